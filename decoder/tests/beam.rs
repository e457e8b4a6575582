//! Beam search against an exhaustive search over every phrase, with logits that are a fixed function of the context.

mod hashed;

use std::collections::BTreeSet;

use decoder::PhraseConstraint;
use decoder::beam::{Start, search};
use decoder::settings::BeamSettings;
use hashed::{Branches, Logits, index_of};
use proptest::prelude::*;

const SEPARATOR: u32 = 4;
const CLOSE: u32 = 5;

fn logits(seed: u64) -> Logits {
    Logits::new(seed, 6)
}

/// The tokens that go on from a phrase somewhere, each once, rising.
fn next_tokens(paragraphs: &[Vec<u32>], phrase: &[u32]) -> BTreeSet<u32> {
    paragraphs
        .iter()
        .flat_map(|paragraph| paragraph.windows(phrase.len() + 1))
        .filter(|window| window.starts_with(phrase))
        .map(|window| window[phrase.len()])
        .collect()
}

/// Every phrase that can be written, with its log-probability and whether the model ended it.
fn all(paragraphs: &[Vec<u32>], settings: &BeamSettings, seed: u64) -> Vec<(Vec<u32>, f64, bool)> {
    let mut open = vec![(Vec::new(), 0.0)];
    let mut found = Vec::new();
    while let Some((phrase, so_far)) = open.pop() {
        let next = next_tokens(paragraphs, &phrase);
        if next.is_empty() || phrase.len() >= settings.most_tokens {
            if !phrase.is_empty() {
                found.push((phrase, so_far, false));
            }
            continue;
        }
        if phrase.len() >= settings.close_from.max(1) {
            let end = so_far + logits(seed).log_probability(&phrase, CLOSE);
            found.push((phrase.clone(), end, true));
        }
        for token in next {
            let longer = [&phrase[..], &[token]].concat();
            open.push((
                longer,
                so_far + logits(seed).log_probability(&phrase, token),
            ));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn beams_are_phrases_of_the_texts_with_their_probability(
        paragraphs in prop::collection::vec(prop::collection::vec(0..SEPARATOR, 1..7), 1..5),
        seed in any::<u64>(),
        beams in 1usize..6,
        groups in 1usize..6,
        close_from in 1usize..5,
        diversity in prop::sample::select(vec![0.0, 1.0]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let index = index_of(&paragraphs, SEPARATOR, folder.path());
        let settings = BeamSettings { beams, groups, diversity, close_from, most_tokens: 5, length_penalty: 1.0, ..Default::default() };
        let run = |settings: &BeamSettings| {
            let context = Vec::new();
            let first = logits(seed).after(&context);
            let constraint = PhraseConstraint::corpus(&index);
            let start = Start { context: &context, logits: &first, constraint: &constraint, closing: CLOSE.into() };
            let found = search(&mut Branches(logits(seed)), start, settings, settings, &|| false, &mut |_| {}).unwrap();
            (found.beams, found.cost)
        };
        let (found, cost) = run(&settings);
        let every = all(&paragraphs, &settings, seed);
        prop_assert!(!found.is_empty() && found.len() <= beams);
        prop_assert!(found.is_sorted_by(|a, b| a.score(1.0) >= b.score(1.0)));
        prop_assert!(cost.evaluated <= cost.written);
        for beam in &found {
            let same = every.iter().find(|(phrase, _, ended)| phrase == beam.tokens() && *ended == beam.chosen_end);
            let (_, log_probability, _) = same.expect("a phrase of the texts");
            prop_assert!((beam.log_probability - log_probability).abs() < 1e-4);
        }
        // One group so wide that nothing is dropped, and that does not stop early, finds every phrase.
        let wide = BeamSettings { beams: every.len() + 1024, groups: 1, ..settings };
        let (found, _) = run(&wide);
        prop_assert_eq!(found.len(), every.len());
        let best = |ended: f64, length: usize, sum: f64| sum / (length as f64 + ended);
        let most = every.iter().map(|(phrase, sum, ended)| best(f64::from(u8::from(*ended)), phrase.len(), *sum));
        prop_assert!((found[0].score(1.0) - most.fold(f64::NEG_INFINITY, f64::max)).abs() < 1e-4);
    }

    #[test]
    fn groups_of_one_are_decoded_position_by_position(
        paragraphs in prop::collection::vec(prop::collection::vec(0..SEPARATOR, 1..9), 1..5),
        seed in any::<u64>(),
        groups in 1usize..6,
        close_from in 1usize..9,
        diversity in prop::sample::select(vec![0.5, 1.0, 3.0]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let index = index_of(&paragraphs, SEPARATOR, folder.path());
        let settings = BeamSettings {
            beams: groups,
            groups,
            diversity,
            close_from,
            most_tokens: 8,
            length_penalty: 0.0,
            ..Default::default()
        };
        let constraint = PhraseConstraint::corpus(&index);
        let context = Vec::new();
        let first = logits(seed).after(&context);
        let start = Start { context: &context, logits: &first, constraint: &constraint, closing: CLOSE.into() };
        let found = search(&mut Branches(logits(seed)), start, &settings, &settings, &|| false, &mut |_| {}).unwrap();
        let mut found: Vec<Vec<u32>> = found.beams.iter().map(|beam| beam.tokens().to_vec()).collect();
        // One group after another, one token at a time, each knowing all that the groups before it took.
        let mut plain: Vec<Vec<u32>> = Vec::new();
        for _ in 0..groups {
            let mut phrase: Vec<u32> = Vec::new();
            loop {
                let next = next_tokens(&paragraphs, &phrase);
                if next.is_empty() || phrase.len() >= settings.most_tokens {
                    break;
                }
                let ranked = |token: u32| {
                    let times = plain.iter().filter(|other| other.get(phrase.len()) == Some(&token)).count();
                    logits(seed).log_probability(&phrase, token) - diversity * times as f64
                };
                let best = next
                    .iter()
                    .copied()
                    .reduce(|best, next| if ranked(next) > ranked(best) { next } else { best })
                    .unwrap();
                if phrase.len() >= close_from && logits(seed).log_probability(&phrase, CLOSE) > ranked(best) {
                    break;
                }
                phrase.push(best);
            }
            plain.push(phrase);
        }
        found.sort();
        plain.sort();
        prop_assert_eq!(found, plain);
    }
}
