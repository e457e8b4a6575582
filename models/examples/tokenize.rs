//! Speed of a tokenizer on this machine: megabytes a second of a text file, one document a line.
//!
//! `cargo run --release -p models --example tokenize -- TOKENIZER TEXT`, where TOKENIZER is a model or `tokenizer.json`.

use std::time::Instant;

use models::tokenizer::Tokenizer;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tokenizer, text] = arguments.as_slice() else {
        return Err("expected a tokenizer and a text".into());
    };
    let start = Instant::now();
    let tokenizer = Tokenizer::open(tokenizer)?;
    println!("opened in {:.2?}", start.elapsed());
    let text = std::fs::read_to_string(text)?;
    let lines: Vec<&str> = text.lines().collect();
    let megabytes = text.len() as f64 / 1e6;
    let start = Instant::now();
    let tokens: usize = lines
        .iter()
        .map(|line| tokenizer.encode_text(line).len())
        .sum();
    let one = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let batch: usize = tokenizer.encode_texts(&lines).iter().map(Vec::len).sum();
    let all = start.elapsed().as_secs_f64();
    assert_eq!(tokens, batch);
    println!(
        "{} lines, {megabytes:.1} MB, {tokens} tokens: one by one {:.1} MB/s, as a batch on {} threads {:.1} MB/s",
        lines.len(),
        megabytes / one,
        rayon::current_num_threads(),
        megabytes / all,
    );
    Ok(())
}
