//! Masks beside `llguidance`, whose substring constraint is the nearest thing in a library of constrained
//! decoding, on a text that it can hold.
//!
//! `VERBATIM_TOKENS=tokens.u32 cargo bench -p benches --bench masks`; without a file of tokens, on the summaries of the
//! demo. `VERBATIM_LIMIT` cuts the corpus to so many tokens (default 10,000). A token is spelled by letters of its own, so that both sides are given the same
//! tokens and the same next tokens; that is checked before anything is timed.

use std::hint::black_box;
use std::sync::Arc;

use benches::{Corpus, table};
use bitvec::prelude::{BitVec, Lsb0};
use criterion::{Criterion, criterion_group, criterion_main};
use fmindex::{BuildOptions, Index, Segment, build_segment};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};

const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

fn spelled(token: u32) -> Vec<u8> {
    let letter = |at: u32| LETTERS[(token >> (6 * at) & 63) as usize];
    vec![letter(3), letter(2), letter(1), letter(0)]
}

fn masks(criterion: &mut Criterion) {
    let Some(mut corpus) = Corpus::at_hand("masks") else {
        return;
    };
    let limit = std::env::var("VERBATIM_LIMIT").ok();
    let limit = limit.and_then(|limit| limit.parse().ok()).unwrap_or(10_000);
    let separator = corpus.separator;
    // One run of tokens, as the peer has no borders.
    corpus.tokens.retain(|&token| token != separator);
    corpus.tokens.truncate(limit);
    let mut closed = corpus.tokens.clone();
    closed.push(separator);
    let dir = tempfile::tempdir().expect("a folder");
    let options = BuildOptions {
        alphabet: separator + 1,
        separator,
        ..BuildOptions::default()
    };
    build_segment(dir.path(), closed, &[0], &options, &()).expect("a build");
    let index = Index::new(vec![Segment::open(dir.path()).expect("a segment")]).expect("an index");

    // The separator's id ends a text over there.
    let words: Vec<Vec<u8>> = (0..=separator)
        .map(|token| match token == separator {
            true => b"\xff<end>".to_vec(),
            false => spelled(token),
        })
        .collect();
    let trie = TokTrie::from(&TokRxInfo::new(separator + 1, separator), &words);
    let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new_simple(&environment).expect("a factory");
    factory.quiet();
    factory.limits_mut().initial_lexer_fuel = u64::MAX;
    let chunks: Vec<String> = corpus
        .tokens
        .iter()
        .map(|&token| String::from_utf8(spelled(token)).expect("letters"))
        .collect();
    let chunks = serde_json::to_string(&chunks).expect("strings");
    let grammar = format!("start: TEXT\nTEXT: %regex {{ \"substring_chunks\": {chunks} }}");
    let parser = factory.create_parser(TopLevelGrammar::from_lark(grammar));
    let fresh = Matcher::new(Ok(parser.expect("a grammar")));

    let mut mask: BitVec<u64, Lsb0> = BitVec::repeat(false, separator as usize + 1);
    for length in [0, 1, 2, 3, 5] {
        let phrases = corpus.phrases(length.max(1), 200, 31 + length as u64);
        let phrases: Vec<&[u32]> = phrases.iter().map(|phrase| &phrase[..length]).collect();
        let asked: Vec<_> = phrases
            .iter()
            .map(|phrase| {
                let ranges = index.range(phrase);
                let mut matcher = fresh.deep_clone();
                matcher
                    .consume_tokens(phrase)
                    .expect("a phrase of the text");
                (ranges, matcher)
            })
            .collect();
        for (ranges, matcher) in &asked {
            index.mask(ranges, &mut mask);
            let theirs = matcher.deep_clone().compute_mask().expect("a mask");
            for token in 0..separator {
                assert_eq!(
                    mask[token as usize],
                    theirs.is_allowed(token),
                    "token {token}"
                );
            }
        }
        let mut group =
            criterion.benchmark_group(table::group("masks", format!("mask after {length} tokens")));
        let mut at = 0;
        let mut next = move || {
            at = (at + 1) % 200;
            at
        };
        group.bench_function("small", |bencher| {
            bencher.iter(|| index.mask(black_box(&asked[next()].0), &mut mask));
        });
        group.bench_function(table::peer("llguidance"), |bencher| {
            // It remembers the last mask; a copy that has not been asked is asked.
            bencher.iter_batched(
                || asked[next()].1.deep_clone(),
                |mut matcher| matcher.compute_mask().expect("a mask"),
                criterion::BatchSize::PerIteration,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, masks);
criterion_main!(benches);
