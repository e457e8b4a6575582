//! Speed of a tokenizer beside the `tokenizers` library on this machine, in one run: megabytes a second of a text
//! file, one document a line; and whether all ids are the same.
//!
//! `cargo run --release --example tokenize -- TOKENIZER TEXT [REPEATS]`, where TOKENIZER is a model or a
//! `tokenizer.json`. Both take batches of about a megabyte on all threads of the pool (`RAYON_NUM_THREADS`).

use std::time::Instant;

use models::tokenizer::Tokenizer;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (tokenizer, text, repeats) = match arguments.as_slice() {
        [tokenizer, text] => (tokenizer, text, 1),
        [tokenizer, text, repeats] => (tokenizer, text, repeats.parse()?),
        _ => return Err("expected a tokenizer, a text, and how often".into()),
    };
    let start = Instant::now();
    let tokenizer = Tokenizer::open(tokenizer)?;
    println!("opened in {:.2?}", start.elapsed());
    // Its control tokens are left out: ordinary text is compared.
    let mut json: serde_json::Value = serde_json::from_slice(&tokenizer.to_json()?)?;
    if let Some(added) = json["added_tokens"].as_array_mut() {
        added.retain(|token| token["special"] == false);
    }
    json["post_processor"] = serde_json::Value::Null;
    let library: tokenizers::Tokenizer = serde_json::to_string(&json)?.parse()?;

    let text = std::fs::read_to_string(text)?;
    let mut batches: Vec<Vec<&str>> = vec![Vec::new()];
    let mut bytes = 0;
    for line in text.lines() {
        if bytes > 1 << 20 {
            batches.push(Vec::new());
            bytes = 0;
        }
        bytes += line.len();
        batches.last_mut().expect("there is one").push(line);
    }
    let megabytes = text.len() as f64 / 1e6;
    let rate = |start: Instant| megabytes / start.elapsed().as_secs_f64();
    for _ in 0..repeats {
        let start = Instant::now();
        let mut tokens = 0;
        for line in text.lines() {
            tokens += tokenizer.encode_text(line).len();
        }
        let one = rate(start);
        let start = Instant::now();
        let own: Vec<_> = batches.iter().map(|b| tokenizer.encode_texts(b)).collect();
        let batch = rate(start);
        let start = Instant::now();
        let mut theirs = Vec::with_capacity(batches.len());
        for batch in &batches {
            theirs.push(library.encode_batch_fast(batch.clone(), false)?);
        }
        let peer = rate(start);
        let own_ids = own.iter().flatten().map(Vec::as_slice);
        let their_ids = theirs.iter().flatten().map(|encoding| encoding.get_ids());
        let differ = own_ids.zip(their_ids).filter(|(a, b)| a != b).count();
        println!(
            "{megabytes:.1} MB, {tokens} tokens, {} threads: one by one {one:.1} MB/s, in batches {batch:.1} MB/s; \
             tokenizers::encode_batch_fast {peer:.1} MB/s: {:.1} times as fast; {differ} texts differ",
            rayon::current_num_threads(),
            batch / peer,
        );
    }
    Ok(())
}
