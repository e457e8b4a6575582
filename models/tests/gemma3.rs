//! Gemma 3 270M against llama.cpp.
//!
//! `fixtures/gemma3.json` says how it was made. The tests run where the model lies in the cache folder (`verbatim models
//! fetch gemma3`, under Gemma's own terms); elsewhere they say so and pass.

use std::path::PathBuf;
use std::sync::OnceLock;

use models::fetch;
use models::language_model::{Device, LanguageModel, ModelOptions, Wanted, log_normaliser};
use serde_json::Value;

/// Log-probabilities may differ by that much from llama.cpp's, which rounds more than we do.
const TOLERANCE: f32 = 0.05;
/// Log-probabilities may differ by that much from those of candle's tensors.
const TENSOR_TOLERANCE: f32 = 1e-3;

fn path() -> Option<PathBuf> {
    let given = std::env::var_os("VERBATIM_TEST_GEMMA3").map(PathBuf::from);
    let path = given.or_else(|| fetch::path("gemma3", &fetch::default_cache().ok()?));
    if path.is_none() {
        eprintln!("skipped: Gemma 3 is not in the cache folder");
    }
    path
}

fn model() -> Option<&'static LanguageModel> {
    static MODEL: OnceLock<Option<LanguageModel>> = OnceLock::new();
    MODEL
        .get_or_init(|| Some(LanguageModel::open(&path()?, &ModelOptions::default()).unwrap()))
        .as_ref()
}

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/gemma3.json")).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_u64().unwrap() as u32)
        .collect()
}

#[test]
fn ids_equal_llama_cpps_in_many_scripts() {
    let Some(model) = model() else { return };
    let tokenizer = model.tokenizer();
    for case in fixture()["texts"].as_array().unwrap() {
        let (text, expected) = (case["text"].as_str().unwrap(), ids(&case["ids"]));
        // llama.cpp recognises added tokens such as `</s>` in ordinary text, and takes a literal `▁` for a space; we
        // do neither.
        if expected.iter().any(|&id| tokenizer.is_control(id)) || text.contains('▁') {
            assert_eq!(tokenizer.decode(&tokenizer.encode_text(text)), text);
            continue;
        }
        assert_eq!(tokenizer.encode_text(text), expected, "{text:?}");
        assert_eq!(tokenizer.decode(&expected), text);
    }
    assert_eq!(tokenizer.begin_token(), Some(2));
    assert!(model.end_tokens().contains(&106) && model.end_tokens().contains(&1));
}

#[test]
fn probabilities_and_greedy_tokens_equal_llama_cpps() {
    let Some(model) = model() else { return };
    let mut largest = 0.0f32;
    for run in fixture()["runs"].as_array().unwrap() {
        let (prompt, expected) = (ids(&run["tokens"]), ids(&run["greedy"]));
        let encoded = model
            .tokenizer()
            .encode_prompt(run["prompt"].as_str().unwrap());
        assert_eq!([&[2][..], &encoded].concat(), prompt);
        let all = [&prompt[..], &expected[..]].concat();
        let logits = model
            .forward(&mut model.new_cache(), &all, Wanted::All)
            .unwrap();
        for (i, &token) in expected.iter().enumerate() {
            let row = logits.row(prompt.len() - 1 + i);
            let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert!(
                row[token as usize] > best - TOLERANCE,
                "{} {i}",
                run["prompt"]
            );
        }
        for (i, top) in run["top"].as_array().unwrap().iter().enumerate() {
            let row = logits.row(prompt.len() - 1 + i);
            let normaliser = log_normaliser(row);
            for pair in top.as_array().unwrap() {
                let (token, expected) = (
                    pair[0].as_u64().unwrap() as usize,
                    pair[1].as_f64().unwrap() as f32,
                );
                largest = largest.max((row[token] - normaliser - expected).abs());
            }
        }
    }
    println!("largest difference of a log-probability: {largest}");
    assert!(largest < TOLERANCE, "{largest}");
}

#[test]
fn tensors_choose_what_the_kernels_choose_beyond_the_window() {
    let Some(model) = model() else { return };
    let options = ModelOptions {
        device: Device::Tensors,
        ..ModelOptions::default()
    };
    let other = LanguageModel::open(&path().unwrap(), &options).unwrap();
    let text = "The old bridge over the river was built in the twelfth century, and merchants brought salt. ";
    let tokens = model.tokenizer().encode_text(&text.repeat(40));
    assert!(tokens.len() >= 559);
    let all = [&[2][..], &tokens[..559]].concat();
    let (mut a, mut b) = (model.new_cache(), other.new_cache());
    let mut largest = 0.0f32;
    let mut from = 0;
    for chunk in [300, 230, 1, 28, 1] {
        let chunk = &all[from..from + chunk];
        from += chunk.len();
        let x = model.forward(&mut a, chunk, Wanted::Last).unwrap();
        let y = other.forward(&mut b, chunk, Wanted::Last).unwrap();
        let (x, y) = (x.row(0), y.row(0));
        let (n, m) = (log_normaliser(x), log_normaliser(y));
        let best = |row: &[f32]| {
            (0..row.len())
                .max_by(|&a, &b| row[a].total_cmp(&row[b]))
                .unwrap()
        };
        assert!(x[best(y)] > x[best(x)] - TENSOR_TOLERANCE);
        for (x, y) in x.iter().zip(y).filter(|(x, _)| **x - n > -8.0) {
            largest = largest.max(((x - n) - (y - m)).abs());
        }
    }
    println!("largest difference of a log-probability: {largest}");
    assert!(largest < TENSOR_TOLERANCE, "{largest}");
}
