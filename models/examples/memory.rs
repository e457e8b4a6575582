//! Peak memory of opening a model, reading a prompt and writing after it.
//!
//! `cargo run --release -p models --example memory -- MODEL.gguf [THREADS] [PROMPT_TOKENS] [NEW_TOKENS]`
//!
//! Resident memory of the process is read from the system every millisecond (Linux only): all of it (RSS), and what no
//! file stands behind (RssAnon). `VmHWM` is the system's own record of the first.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use models::language_model::{LanguageModel, ModelOptions, Wanted};
use models::sampling::Sampling;

const TEXT: &str = " The city lies on both banks of the river, and its oldest bridge was built in the twelfth century. \
    Merchants from the coast brought salt and cloth; the market on the square is held every Thursday to this day.";

/// A line of `/proc/self/status`, which counts in units of 1,024 bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    text.lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(':')?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0)
}

fn megabytes(units: u64) -> u64 {
    units * 1024 / 1_000_000
}

fn generate(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let path = arguments.first().ok_or("which model?")?;
    let number = |i: usize, default: usize| arguments.get(i).map_or(Ok(default), |a| a.parse());
    let (threads, prompt, new) = (number(1, 2)?, number(2, 256)?, number(3, 64)?);
    let options = ModelOptions {
        threads: Some(threads),
        ..ModelOptions::default()
    };
    let model = LanguageModel::open(Path::new(path), &options)?;
    let opened = status("RssAnon");
    let mut tokens: Vec<u32> = model.tokenizer().begin_token().into_iter().collect();
    while tokens.len() < prompt {
        tokens.extend(model.tokenizer().encode_text(TEXT));
    }
    tokens.truncate(prompt);
    let mut cache = model.new_cache();
    let mut logits = model.forward(&mut cache, &tokens, Wanted::Last)?;
    for _ in 0..new {
        let chosen = Sampling::greedy()
            .choose(logits.row_mut(0), &[], cache.len())
            .ok_or("nothing to choose")?;
        logits = model.forward(&mut cache, &[chosen.token], Wanted::Last)?;
    }
    println!(
        "{}: {} tokens read and written; RssAnon once open {} MB; weights {} MB, cache {} MB",
        model.name(),
        cache.len(),
        megabytes(opened),
        model.size() / 1_000_000,
        cache.size() / 1_000_000,
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (done, all, anonymous) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                all.fetch_max(status("VmRSS"), Ordering::Relaxed);
                anonymous.fetch_max(status("RssAnon"), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let found = generate(&arguments).map_err(|e| e.to_string());
        done.store(true, Ordering::Relaxed);
        found
    })?;
    println!(
        "peak RSS {} MB (VmHWM {} MB), peak RssAnon {} MB",
        megabytes(all.into_inner()),
        megabytes(status("VmHWM")),
        megabytes(anonymous.into_inner()),
    );
    Ok(())
}
