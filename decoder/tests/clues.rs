//! The clue stage by beams against an exhaustive search over every phrase, with logits that are a fixed function of
//! the context.

mod hashed;

use decoder::format::Closing;
use decoder::session::Session;
use decoder::settings::{BeamSettings, ClueSettings};
use decoder::stages::{search_clues, write_clue};
use hashed::{Hashed, Logits, index_of};
use models::sampling::Sampling;
use models::tokenizer::Tokenizer;
use proptest::prelude::*;

const SEPARATOR: u32 = 256;
const CLOSE: u32 = b'\n' as u32;

/// A byte-level tokenizer without merges: the id of a token is its byte.
fn tokenizer() -> Tokenizer {
    let definition = include_bytes!("../../models/tests/fixtures/bytes.json");
    Tokenizer::from_json(definition).unwrap()
}

fn logits(seed: u64) -> Logits {
    Logits::new(seed, 256)
}

/// What goes on with a phrase somewhere, each once.
fn next(paragraphs: &[String], phrase: &[u8]) -> Vec<u8> {
    let windows = paragraphs
        .iter()
        .flat_map(|text| text.as_bytes().windows(phrase.len() + 1));
    let mut next: Vec<u8> = windows
        .filter(|window| window.starts_with(phrase))
        .map(|window| window[phrase.len()])
        .collect();
    next.sort_unstable();
    next.dedup();
    next
}

/// Every clue that can be written, with its score, as it is cut back to whole words.
fn all(paragraphs: &[String], settings: &ClueSettings, seed: u64) -> Vec<(String, f64)> {
    let mut open: Vec<(Vec<u8>, f64, usize)> = vec![(Vec::new(), 0.0, 0)];
    let mut found = Vec::new();
    while let Some((phrase, so_far, whole)) = open.pop() {
        let mut next = next(paragraphs, &phrase);
        if phrase.is_empty() {
            // A byte begins a word where it is the space in front of one.
            next.retain(|&byte| byte == b' ');
        }
        let is_whole = next.is_empty() || next.iter().any(|byte| !byte.is_ascii_alphanumeric());
        let length = phrase.len();
        let whole = if is_whole { length } else { whole };
        let mut close = |sum: f64, length: usize| {
            let text = String::from_utf8_lossy(&phrase[..whole]).trim().to_owned();
            found.push((text, sum / length as f64));
        };
        if next.is_empty() || length >= settings.most_tokens {
            if length > 0 {
                close(so_far, length);
            }
            continue;
        }
        let context: Vec<u32> = std::iter::once(0)
            .chain(phrase.iter().map(|&byte| u32::from(byte)))
            .collect();
        if length >= settings.close_from && is_whole {
            close(
                so_far + logits(seed).log_probability(&context, CLOSE),
                length + 1,
            );
        }
        for byte in next {
            let sum = so_far + logits(seed).log_probability(&context, u32::from(byte));
            open.push(([&phrase[..], &[byte]].concat(), sum, whole));
        }
    }
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut distinct: Vec<(String, f64)> = Vec::new();
    for (text, score) in found {
        let same = |other: &(String, f64)| other.0.to_lowercase() == text.to_lowercase();
        if !text.is_empty() && !distinct.iter().any(same) {
            distinct.push((text, score));
        }
    }
    distinct
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn beams_find_the_best_clues(
        paragraphs in prop::collection::vec("( (a|A|ab|b|ba|c)){1,5}", 1..4),
        seed in any::<u64>(),
        close_from in 1usize..5,
        most_tokens in 2usize..8,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let texts: Vec<Vec<u32>> =
            paragraphs.iter().map(|text| text.bytes().map(u32::from).collect()).collect();
        let index = index_of(&texts, SEPARATOR, folder.path());
        let tokenizer = tokenizer();
        let settings = ClueSettings { close_from, most_tokens, ..Default::default() };
        let closing = Closing::from(CLOSE);
        let began = || {
            let mut session = Session::new(Hashed::new(logits(seed)), Vec::new());
            session.push(&[0]);
            session
        };
        let search = |beams: usize| {
            let settings_of_beams = BeamSettings { beams, groups: 1, ..Default::default() };
            let mut session = began();
            let found = search_clues(
                &mut session,
                (&index, closing),
                &tokenizer,
                &settings,
                &settings_of_beams,
                &|| false,
            );
            assert_eq!(session.tokens(), [0], "something was written");
            let cost = session.cost();
            assert!(cost.passes > 0 && cost.evaluated > 0);
            found.unwrap()
        };
        let texts = |clues: &[(Vec<u32>, String)]| -> Vec<String> {
            clues.iter().map(|(_, text)| text.clone()).collect()
        };
        // One beam is greedy.
        let mut session = began();
        let greedy = write_clue(&mut session, &index, &tokenizer, closing, &settings, Sampling::greedy()).unwrap();
        let one = search(1);
        prop_assert_eq!(one.first().map(|(_, text)| text), greedy.as_ref());
        if let Some((tokens, _)) = one.first() {
            prop_assert_eq!(&session.tokens()[1..], &tokens[..]);
        }
        // So many that nothing is dropped: all clues, best first.
        let every = all(&paragraphs, &settings, seed);
        let found = texts(&search(4096));
        let told_apart = every.windows(2).all(|pair| pair[0].1 - pair[1].1 > 1e-4);
        let mut expected: Vec<String> = every.into_iter().map(|(text, _)| text).collect();
        if told_apart {
            prop_assert_eq!(&found, &expected);
        }
        let mut found: Vec<String> = found.iter().map(|text| text.to_lowercase()).collect();
        expected.iter_mut().for_each(|text| *text = text.to_lowercase());
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
    }
}
