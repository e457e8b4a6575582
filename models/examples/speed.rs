//! Speed of a model on this machine: tokens a second of a prompt, and one by one.
//!
//! `cargo run --release -p models --example speed -- MODEL.gguf [THREADS] [PROMPT_TOKENS] [NEW_TOKENS]`

use std::path::Path;
use std::time::Instant;

use models::language_model::{LanguageModel, ModelOptions, Wanted};
use models::sampling::Sampling;

const TEXT: &str = " The city lies on both banks of the river, and its oldest bridge was built in the twelfth century. \
    Merchants from the coast brought salt and cloth; the market on the square is held every Thursday to this day.";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().ok_or("which model?")?;
    let number = |i: usize, default: usize| arguments.get(i).map_or(Ok(default), |a| a.parse());
    let (threads, prompt, new) = (number(1, 1)?, number(2, 256)?, number(3, 64)?);
    let plain = arguments.get(4).is_some_and(|a| a == "plain");
    let start = Instant::now();
    let model = LanguageModel::open(
        Path::new(path),
        &ModelOptions {
            threads: Some(threads),
            plain,
            ..ModelOptions::default()
        },
    )?;
    println!(
        "{}: opened in {:.2?}, weights {:.1} MB",
        model.name(),
        start.elapsed(),
        model.size() as f64 / 1e6
    );
    let mut tokens: Vec<u32> = model.tokenizer().begin_token().into_iter().collect();
    while tokens.len() < prompt {
        tokens.extend(model.tokenizer().encode_text(TEXT));
    }
    tokens.truncate(prompt);
    for _ in 0..3 {
        let mut cache = model.new_cache();
        let start = Instant::now();
        let mut logits = model.forward(&mut cache, &tokens, Wanted::Last)?;
        let prompt_time = start.elapsed();
        let start = Instant::now();
        for _ in 0..new {
            let position = cache.len();
            let chosen = Sampling::greedy()
                .choose(logits.row_mut(0), &[], position)
                .ok_or("nothing to choose")?;
            logits = model.forward(&mut cache, &[chosen.token], Wanted::Last)?;
        }
        let time = start.elapsed();
        println!(
            "{threads} threads: prompt of {prompt} {:.1} tokens/s, then {new} one by one {:.1} tokens/s",
            prompt as f64 / prompt_time.as_secs_f64(),
            new as f64 / time.as_secs_f64(),
        );
        if std::env::var_os("SHOW").is_some() {
            println!("{:?}", model.tokenizer().decode(&cache.tokens()[prompt..]));
        }
    }
    if let Some(line) = std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| {
            s.lines()
                .find(|l| l.starts_with("VmHWM"))
                .map(str::to_owned)
        })
    {
        println!("{line}");
    }
    Ok(())
}
