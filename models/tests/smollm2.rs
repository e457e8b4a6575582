//! SmolLM2-135M against llama.cpp, and against itself in other chunks, branches and instructions.
//!
//! `fixtures/smollm2.json` says how it was made. The model is fetched once into the cache folder; without it and
//! without a network the tests say so and pass.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use models::chat::Message;
use models::fetch::{self, FetchOptions};
use models::language_model::{Branch, Device, LanguageModel, ModelOptions, Wanted, log_normaliser};
use models::sampling::Sampling;
use models::tokenizer::Tokenizer;
use serde_json::Value;

/// Log-probabilities may differ by that much from llama.cpp's, which rounds more than we do, and choices only where
/// they are as close as that.
const TOLERANCE: f32 = 0.03;
/// Log-probabilities may differ by that much from those of a forward pass in 64-bit floats.
const EXACT_TOLERANCE: f32 = 2e-4;
/// Log-probabilities may differ by that much from those of candle's tensors.
const TENSOR_TOLERANCE: f32 = 1e-3;

fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<std::path::PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let cache = fetch::default_cache().ok()?;
            let fetched = fetch::path("smollm2", &cache).map_or_else(
                || fetch::fetch("smollm2", &FetchOptions::quiet(cache.clone())).map(|f| f.path),
                Ok,
            );
            fetched
                .map_err(|e| {
                    eprintln!("skipped: SmolLM2 is not in the cache and cannot be fetched ({e})")
                })
                .ok()
        })
        .as_deref()
}

fn model() -> Option<&'static LanguageModel> {
    static MODEL: OnceLock<Option<LanguageModel>> = OnceLock::new();
    MODEL
        .get_or_init(|| Some(LanguageModel::open(folder()?, &ModelOptions::default()).unwrap()))
        .as_ref()
}

fn fixture() -> &'static Value {
    static FIXTURE: OnceLock<Value> = OnceLock::new();
    FIXTURE.get_or_init(|| serde_json::from_str(include_str!("fixtures/smollm2.json")).unwrap())
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_u64().unwrap() as u32)
        .collect()
}

fn greedy(model: &LanguageModel, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut cache = model.new_cache();
    let mut logits = model.forward(&mut cache, prompt, Wanted::Last).unwrap();
    (0..count)
        .map(|_| {
            let token = Sampling::greedy()
                .choose(logits.row_mut(0), &[], cache.len())
                .unwrap()
                .token;
            logits = model.forward(&mut cache, &[token], Wanted::Last).unwrap();
            token
        })
        .collect()
}

#[test]
fn ids_equal_llama_cpps_in_many_scripts() {
    let Some(folder) = folder() else { return };
    let tokenizer = Tokenizer::open(folder).unwrap();
    let again = Tokenizer::from_json(&tokenizer.to_json().unwrap()).unwrap();
    assert_eq!(again.fingerprint(), tokenizer.fingerprint());
    assert_eq!(again.vocabulary_size(), 49_152);
    for case in fixture()["texts"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let expected = ids(&case["ids"]);
        assert_eq!(tokenizer.encode_text(text), expected, "{text:?}");
        assert_eq!(again.encode_text(text), expected, "{text:?}");
        assert_eq!(tokenizer.encode_texts(&[text])[0], expected, "{text:?}");
        let bytes: Vec<u8> = expected
            .iter()
            .flat_map(|&id| tokenizer.token_bytes(id).unwrap().to_vec())
            .collect();
        assert_eq!(bytes, text.as_bytes());
    }
    assert_eq!(tokenizer.control_token("<|im_end|>"), Some(2));
    assert!((0..17).all(|id| tokenizer.is_control(id)
        && again.is_control(id)
        && tokenizer.token_bytes(id).is_none()));
}

#[test]
fn ids_equal_those_of_the_tokenizers_library() {
    let Some(folder) = folder() else { return };
    let tokenizer = Tokenizer::open(folder).unwrap();
    let library = tokenizers::Tokenizer::from_bytes(tokenizer.to_json().unwrap()).unwrap();
    let texts = fixture()["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["text"].as_str().unwrap());
    for text in texts.filter(|text| !text.contains("<|")) {
        assert_eq!(
            tokenizer.encode_text(text),
            library.encode(text, false).unwrap().get_ids(),
            "{text:?}"
        );
    }
    let config = proptest::prelude::ProptestConfig {
        failure_persistence: None,
        ..Default::default()
    };
    proptest::proptest!(config, |(text in "[ a-zA-Z0-9'\\n.,é漢ेд🙂-]{0,60}|\\PC{0,30}")| {
        let expected = library.encode(text.as_str(), false).unwrap();
        proptest::prop_assert_eq!(tokenizer.encode_text(&text), expected.get_ids());
    });
}

#[test]
fn prompts_equal_llama_cpps() {
    let Some(model) = model() else { return };
    for run in fixture()["runs"].as_array().unwrap() {
        assert_eq!(
            model
                .tokenizer()
                .encode_prompt(run["prompt"].as_str().unwrap()),
            ids(&run["tokens"])
        );
    }
    for chat in fixture()["chats"].as_array().unwrap() {
        let messages: Vec<Message> = chat["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| Message::new(m["role"].as_str().unwrap(), m["content"].as_str().unwrap()))
            .collect();
        let template = model.chat_template().unwrap();
        assert_eq!(
            template.render(&messages, true, model.tokenizer()).unwrap(),
            ids(&chat["ids"])
        );
    }
    assert!(model.end_tokens().contains(&2) && model.end_tokens().contains(&0));
}

#[test]
fn probabilities_and_greedy_tokens_equal_llama_cpps() {
    let Some(model) = model() else { return };
    let (mut largest, mut largest_exact) = (0.0f32, 0.0f32);
    for run in fixture()["runs"].as_array().unwrap() {
        let (prompt, expected) = (ids(&run["tokens"]), ids(&run["greedy"]));
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
        let difference = |top: &Value, row: &[f32]| {
            let normaliser = log_normaliser(row);
            let pairs = top.as_array().unwrap().iter();
            let pairs = pairs.map(|p| {
                (
                    p[0].as_u64().unwrap() as usize,
                    p[1].as_f64().unwrap() as f32,
                )
            });
            pairs
                .map(|(token, expected)| (row[token] - normaliser - expected).abs())
                .fold(0.0, f32::max)
        };
        for (i, top) in run["top"].as_array().unwrap().iter().enumerate() {
            largest = largest.max(difference(top, logits.row(prompt.len() - 1 + i)));
        }
        largest_exact = largest_exact.max(difference(&run["exact"], logits.row(prompt.len() - 1)));
    }
    println!(
        "largest difference of a log-probability: {largest}; from 64-bit floats: {largest_exact}"
    );
    assert!(
        largest < TOLERANCE && largest_exact < EXACT_TOLERANCE,
        "{largest} {largest_exact}"
    );
}

#[test]
fn chunks_branches_and_instructions_change_nothing() {
    let Some(model) = model() else { return };
    let prompt = ids(&fixture()["runs"][1]["tokens"]);
    let mut cache = model.new_cache();
    let at_once = model.forward(&mut cache, &prompt, Wanted::All).unwrap();
    // Token by token: the same bits.
    let mut single = model.new_cache();
    for (i, &token) in prompt.iter().enumerate() {
        let logits = model.forward(&mut single, &[token], Wanted::Last).unwrap();
        assert_eq!(logits.row(0), at_once.row(i), "position {i}");
    }
    // In chunks, some positions only, after going back.
    for size in [2, 3, 7, 16, 17] {
        single.truncate(5);
        let mut at = 5;
        for chunk in prompt[5..].chunks(size) {
            let logits = model
                .forward(&mut single, chunk, Wanted::At(&[chunk.len() - 1, 0]))
                .unwrap();
            assert_eq!(logits.row(0), at_once.row(at + chunk.len() - 1));
            assert_eq!(logits.row(1), at_once.row(at));
            at += chunk.len();
        }
    }
    // Branches of one trunk, in one pass.
    let mut trunk = cache.fork();
    trunk.truncate(prompt.len() - 4);
    let tails: [&[u32]; 3] = [&prompt[prompt.len() - 4..], &[28, 260, 1234], &[]];
    let mut caches = [trunk.fork(), trunk.fork(), trunk.fork()];
    let mut branches: Vec<Branch<'_>> = caches
        .iter_mut()
        .zip(tails)
        .map(|(cache, tokens)| Branch {
            cache,
            tokens,
            wanted: Wanted::All,
        })
        .collect();
    let found = model.forward_branches(&mut branches).unwrap();
    for (i, row) in (0..4).map(|i| (i, at_once.row(prompt.len() - 4 + i))) {
        assert_eq!(found[0].row(i), row);
    }
    let alone = model
        .forward(&mut trunk.fork(), tails[1], Wanted::All)
        .unwrap();
    assert_eq!(found[1], alone);
    assert_eq!(found[2].rows(), 0);
    assert_eq!(trunk.len(), prompt.len() - 4);
    // Scores of continuations are the log-probabilities of a plain pass.
    let scores = model.score_continuations(&trunk, &tails).unwrap();
    for (i, &token) in tails[0].iter().enumerate() {
        let row = at_once.row(prompt.len() - 5 + i);
        assert_eq!(scores[0][i], row[token as usize] - log_normaliser(row));
    }
    assert_eq!((scores[1].len(), scores[2].len()), (3, 0));
    // A continuation that takes several passes, between others.
    let long: Vec<u32> = prompt.iter().cycle().copied().take(75).collect();
    let found = model
        .score_continuations(&trunk, &[tails[1], &long, tails[0]])
        .unwrap();
    assert_eq!((&found[0], &found[2]), (&scores[1], &scores[0]));
    let mut whole = trunk.fork();
    whole.truncate(trunk.len() - 1);
    let last = [prompt[trunk.len() - 1]];
    let logits = model
        .forward(&mut whole, &[&last[..], &long[..74]].concat(), Wanted::All)
        .unwrap();
    for (i, &token) in long.iter().enumerate() {
        let row = logits.row(i);
        assert_eq!(found[1][i], row[token as usize] - log_normaliser(row));
    }
    // Plain Rust chooses the same tokens.
    let plain = ModelOptions {
        plain: true,
        threads: Some(1),
        ..ModelOptions::default()
    };
    let plain = LanguageModel::open(folder().unwrap(), &plain).unwrap();
    assert_eq!(greedy(&plain, &prompt, 8), greedy(model, &prompt, 8));
}

#[test]
fn tensors_choose_what_the_kernels_choose() {
    let Some(model) = model() else { return };
    let options = ModelOptions {
        device: Device::Tensors,
        ..ModelOptions::default()
    };
    let other = LanguageModel::open(folder().unwrap(), &options).unwrap();
    let mut largest = 0.0f32;
    for run in fixture()["runs"].as_array().unwrap() {
        let (prompt, expected) = (ids(&run["tokens"]), ids(&run["greedy"]));
        let all = [&prompt[..], &expected[..6]].concat();
        let logits = model
            .forward(&mut model.new_cache(), &all, Wanted::All)
            .unwrap();
        let mut cache = other.new_cache();
        other
            .forward(&mut cache, &prompt[..prompt.len() - 1], Wanted::None)
            .unwrap();
        for (i, &token) in all[prompt.len() - 1..].iter().enumerate() {
            let found = other.forward(&mut cache, &[token], Wanted::Last).unwrap();
            let (row, found) = (logits.row(prompt.len() - 1 + i), found.row(0));
            let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
            let (a, b) = (best(row).unwrap(), best(found).unwrap());
            // The same choice, except between two that are as close as rounding.
            assert!(row[b] > row[a] - TENSOR_TOLERANCE, "{} {i}", run["prompt"]);
            let (n, m) = (log_normaliser(row), log_normaliser(found));
            for (a, b) in row.iter().zip(found).filter(|(a, _)| **a - n > -10.0) {
                largest = largest.max(((a - n) - (b - m)).abs());
            }
        }
    }
    println!("largest difference of a log-probability: {largest}");
    assert!(largest < TENSOR_TOLERANCE, "{largest}");
    // Longer than a batch: many runs in the cache, forked and cut back.
    let run = &fixture()["runs"][1];
    let text: Vec<u32> = ids(&run["tokens"]).into_iter().cycle().take(400).collect();
    let (mut a, mut b) = (model.new_cache(), other.new_cache());
    for (chunk, back) in [(270, 20), (40, 0), (9, 3), (1, 0), (20, 9)] {
        let tokens = &text[a.len()..a.len() + chunk];
        let x = model.forward(&mut a, tokens, Wanted::Last).unwrap();
        let y = other.forward(&mut b, tokens, Wanted::Last).unwrap();
        let (n, m) = (log_normaliser(x.row(0)), log_normaliser(y.row(0)));
        for (x, y) in x
            .row(0)
            .iter()
            .zip(y.row(0))
            .filter(|(x, _)| **x - n > -8.0)
        {
            assert!(
                ((x - n) - (y - m)).abs() < 2.0 * TENSOR_TOLERANCE,
                "{x} {y}"
            );
        }
        a.truncate(a.len() - back);
        b = b.fork();
        b.truncate(b.len() - back);
    }
}

#[test]
fn refusals_leave_the_cache_as_it_was() {
    let Some(model) = model() else { return };
    let mut cache = model.new_cache();
    model.forward(&mut cache, &[1, 2, 3], Wanted::None).unwrap();
    assert!(model.forward(&mut cache, &[49_152], Wanted::Last).is_err());
    assert!(
        model
            .forward(&mut cache, &vec![1; model.context_length()], Wanted::Last)
            .is_err()
    );
    assert!(model.forward(&mut cache, &[1], Wanted::At(&[1])).is_err());
    assert_eq!(cache.tokens(), [1, 2, 3]);
    let nothing = model.forward(&mut cache, &[], Wanted::Last).unwrap();
    assert_eq!(nothing.rows(), 0);
    assert_eq!(Arc::strong_count(model.tokenizer()), 1);
}
