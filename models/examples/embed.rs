//! Times the sentence encoder on the texts of a corpus, as a rerank of windows does.
//!
//! `cargo run --release -p models --example embed -- FOLDER CORPUS.jsonl [WINDOWS] [TOKENS] [ROUNDS]`
//!
//! A window is the title and the beginning of a text, cut to about so many tokens. Threads are set by
//! `RAYON_NUM_THREADS`. Besides the time that passed, the processor's time is printed, which other programs on the
//! machine change little (Linux only). With `SHOW` in the environment, windows are written instead.

use std::io::BufRead;
use std::time::Instant;

use models::encoder::SentenceEncoder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = arguments.first().ok_or("give the encoder's folder")?;
    let corpus = arguments
        .get(1)
        .ok_or("give a corpus in JSON lines, of title and text")?;
    let number = |i: usize, default: usize| arguments.get(i).map_or(Ok(default), |a| a.parse());
    let (windows, tokens, rounds) = (number(2, 32)?, number(3, 128)?, number(4, 9)?);
    let mut tokenizer = tokenizers::Tokenizer::from_file(format!("{folder}/tokenizer.json"))
        .map_err(|error| error.to_string())?;
    let _ = tokenizer.with_padding(None).with_truncation(None);
    let mut texts: Vec<String> = Vec::new();
    for line in std::io::BufReader::new(std::fs::File::open(corpus)?).lines() {
        let record: serde_json::Value = serde_json::from_str(&line?)?;
        let title = record["title"].as_str().unwrap_or_default();
        let mut text = record["text"].as_str().unwrap_or_default().to_owned();
        let encoding = tokenizer
            .encode(text.as_str(), false)
            .map_err(|error| error.to_string())?;
        let Some(&(_, end)) = encoding.get_offsets().get(tokens - 1) else {
            continue;
        };
        text.truncate(end);
        texts.push(format!("{title}\n{text}"));
        if texts.len() == windows {
            break;
        }
    }
    if std::env::var_os("SHOW").is_some() {
        println!("{}", serde_json::to_string(&texts)?);
        return Ok(());
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let start = Instant::now();
    let encoder = SentenceEncoder::open(folder)?;
    let opened = start.elapsed();
    let mut times: Vec<f64> = Vec::new();
    let before = processor_time();
    for _ in 0..rounds {
        let start = Instant::now();
        encoder.embed(&texts)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let used = processor_time()
        .zip(before)
        .map(|(after, before)| after - before);
    times.sort_by(f64::total_cmp);
    println!(
        "opened in {:.0} ms; {} windows of {tokens} tokens and a title: best {:.0} ms, median {:.0} ms, processor {:.0} ms",
        opened.as_secs_f64() * 1e3,
        texts.len(),
        times[0],
        times[times.len() / 2],
        used.map_or(f64::NAN, |used| used * 1e3 / rounds as f64),
    );
    Ok(())
}

/// Seconds of processor time this program has used.
fn processor_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    // In hundredths of a second, in user and in system mode.
    Some((ticks(11)? + ticks(12)?) / 100.0)
}
