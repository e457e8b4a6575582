//! The logits processor: token traces are replayed, and every mask on the way is compared with brute force.

use std::collections::BTreeSet;
use std::sync::Arc;

use decoder::PhraseConstraint;
use decoder::format::ControlFormat;
use decoder::processor::{ControlTokens, LogitsProcessor, Opener, Phrase, StageRules};
use fmindex::{BuildOptions, DocumentIndex, DocumentSet, Index, Segment, build_segment};
use models::tokenizer::Tokenizer;
use proptest::prelude::*;

const SEPARATOR: u32 = 6;
/// Control tokens behind the corpus's symbols: clue, evidence, the token that closes either, two ends.
const CLUE: u32 = 7;
const EVIDENCE: u32 = 8;
const CLOSE: u32 = 9;
const ENDS: [u32; 2] = [10, 11];
const VOCABULARY: usize = 12;
/// Logits are wider than the vocabulary, as in many models.
const WIDTH: usize = 16;
const CLUE_LENGTHS: (usize, usize) = (2, 4);
const EVIDENCE_LENGTHS: (usize, usize) = (1, 6);

type Document = Vec<Vec<u32>>;

fn flat(document: &Document) -> Vec<u32> {
    let closed = |paragraph: &Vec<u32>| [&paragraph[..], &[SEPARATOR]].concat();
    document.iter().flat_map(closed).collect()
}

fn index(corpus: &[Document], folder: &std::path::Path) -> Index {
    let mut tokens = Vec::new();
    let mut starts = Vec::new();
    for document in corpus {
        starts.push(tokens.len() as u32);
        tokens.extend(flat(document));
    }
    let options = BuildOptions {
        alphabet: SEPARATOR + 1,
        separator: SEPARATOR,
        ..Default::default()
    };
    build_segment(folder, tokens, &starts, &options, &()).unwrap();
    Index::new(vec![Segment::open(folder).unwrap()]).unwrap()
}

/// Clues anywhere in the corpus, evidence in the first document.
fn rules(corpus: &[Document], index: &Index) -> Arc<dyn StageRules> {
    let phrase = |constraint, (close_from, most_tokens)| Phrase {
        constraint,
        close_from,
        most_tokens,
        close: vec![CLOSE],
    };
    let first = DocumentIndex::build(&flat(&corpus[0]), SEPARATOR);
    let set = Arc::new(DocumentSet::new(vec![Arc::new(first)]));
    let clue = Opener {
        token: CLUE,
        phrase: phrase(PhraseConstraint::corpus(index), CLUE_LENGTHS),
    };
    let evidence = Opener {
        token: EVIDENCE,
        phrase: phrase(PhraseConstraint::documents(set), EVIDENCE_LENGTHS),
    };
    Arc::new(ControlTokens::new(vec![clue]).with(evidence))
}

/// What may follow `ids` in the plainest way: the stage is read off the ids, the texts are searched.
fn brute_force(corpus: &[Document], ids: &[u32]) -> BTreeSet<u32> {
    let mut open: Option<(u32, usize)> = None;
    for (at, id) in ids.iter().enumerate() {
        match (open, *id) {
            (None, CLUE | EVIDENCE) => open = Some((*id, at + 1)),
            (None, id) if ENDS.contains(&id) => return ENDS.into(),
            (Some(_), CLOSE) => open = None,
            _ => {}
        }
    }
    let Some((kind, start)) = open else {
        return (0..VOCABULARY as u32).collect();
    };
    let phrase = &ids[start..];
    let (scope, (least, most)) = match kind {
        CLUE => (corpus, CLUE_LENGTHS),
        _ => (&corpus[..1], EVIDENCE_LENGTHS),
    };
    let mut next = BTreeSet::new();
    if phrase.len() < most {
        for paragraph in scope.iter().flatten() {
            for window in paragraph.windows(phrase.len() + 1) {
                if window.starts_with(phrase) {
                    next.insert(window[phrase.len()]);
                }
            }
        }
    }
    if next.is_empty() || phrase.len() >= least {
        next.insert(CLOSE);
    }
    next
}

/// The tokens that a processor lets pass after each of some sequences.
fn masks(processor: &mut LogitsProcessor, ids: &[&[u32]]) -> Vec<BTreeSet<u32>> {
    let mut rows = vec![vec![0.5f32; WIDTH]; ids.len()];
    let mut slices: Vec<&mut [f32]> = rows.iter_mut().map(Vec::as_mut_slice).collect();
    processor.process(ids, &mut slices).unwrap();
    rows.iter()
        .map(|row| {
            let open = row.iter().enumerate().filter(|(_, logit)| **logit == 0.5);
            let open: BTreeSet<u32> = open.map(|(token, _)| token as u32).collect();
            let closed = row.iter().filter(|logit| **logit == f32::NEG_INFINITY);
            assert_eq!(open.len() + closed.count(), WIDTH, "a logit was changed");
            open
        })
        .collect()
}

fn corpora() -> impl Strategy<Value = Vec<Document>> {
    let paragraph = prop::collection::vec(0..SEPARATOR, 0..10);
    prop::collection::vec(prop::collection::vec(paragraph, 0..4), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_mask_of_a_trace_is_brute_forces(
        corpus in corpora(),
        draws in prop::collection::vec((0usize..3, any::<u32>()), 1..60),
        swaps in prop::collection::vec(any::<bool>(), 60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let index = index(&corpus, folder.path());
        // Two sequences with prompts of two tokens, the second of which opens a stage.
        let mut processor = LogitsProcessor::new(rules(&corpus, &index), VOCABULARY, ENDS.to_vec(), 2);
        let mut sequences = [vec![0, CLUE], vec![1, EVIDENCE], vec![2, 2]];
        for ((row, draw), swap) in draws.into_iter().zip(swaps) {
            let ids: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
            let found = masks(&mut processor, &ids);
            for (found, ids) in found.iter().zip(&ids) {
                prop_assert_eq!(found, &brute_force(&corpus, &ids[1..]), "after {:?}", ids);
            }
            // One sequence goes on with something allowed; sometimes the host reorders, or cuts one back.
            let allowed: Vec<u32> = found[row].iter().copied().collect();
            sequences[row].push(allowed[draw as usize % allowed.len()]);
            if swap {
                sequences.swap(0, 1 + draw as usize % 2);
                let shorter = 2.max(sequences[0].len() - 1 - draw as usize % 2);
                sequences[0].truncate(shorter);
            }
        }
    }
}

#[test]
fn a_token_that_was_not_allowed_is_an_error_and_leaves_the_end() {
    let corpus = vec![vec![vec![1, 2, 3], vec![3, 4]]];
    let folder = tempfile::tempdir().unwrap();
    let index = index(&corpus, folder.path());
    let mut processor = LogitsProcessor::new(rules(&corpus, &index), VOCABULARY, ENDS.to_vec(), 0);
    let mut rows = [vec![1.0f32; WIDTH], vec![1.0; WIDTH]];
    let [first, second] = &mut rows;
    let good: &[u32] = &[CLUE, 1, 2];
    let bad: &[u32] = &[CLUE, 1, 3, 0];
    let error = processor
        .process(&[good, bad], &mut [first, second])
        .unwrap_err();
    assert_eq!(error.row, 1);
    let open = |row: &[f32]| -> Vec<usize> {
        (0..WIDTH)
            .filter(|&at| row[at] > f32::NEG_INFINITY)
            .collect()
    };
    assert_eq!(open(first), [3, CLOSE as usize]);
    assert_eq!(open(second), ENDS.map(|end| end as usize));
    // The host takes it back, and all is well.
    let mut row = vec![1.0f32; WIDTH];
    let good: &[u32] = &[CLUE, 1];
    processor.process(&[good], &mut [&mut row]).unwrap();
    assert_eq!(open(&row), [2]);
}

#[test]
fn what_the_mask_closed_is_refused() {
    let corpus = vec![vec![vec![1, 2, 3, 4, 5, 1, 2], vec![3, 4]]];
    let folder = tempfile::tempdir().unwrap();
    let index = index(&corpus, folder.path());
    let last_row = |ids: &[u32]| {
        let rules = rules(&corpus, &index);
        let mut processor = LogitsProcessor::new(rules, VOCABULARY, ENDS.to_vec(), 0);
        let mut row = vec![1.0f32; WIDTH];
        processor.process(&[ids], &mut [&mut row]).is_ok()
    };
    // Closed before it may be; closed where nothing continues it; longer than it may be.
    assert!(!last_row(&[CLUE, 1, CLOSE]));
    assert!(last_row(&[CLUE, 1, 2, CLOSE]));
    assert!(last_row(&[CLUE, 1, 2, 3, 4, CLOSE]));
    assert!(!last_row(&[CLUE, 1, 2, 3, 4, 5]));
    // The same whether the host shows every step or only the last.
    let rules = rules(&corpus, &index);
    let mut processor = LogitsProcessor::new(rules, VOCABULARY, ENDS.to_vec(), 0);
    let ids = [CLUE, 1, CLOSE];
    for length in 1..=ids.len() {
        let mut row = vec![1.0f32; WIDTH];
        let ended = processor.process(&[&ids[..length]], &mut [&mut row]);
        assert_eq!(ended.is_ok(), length < 3);
    }
}

#[test]
fn phrases_of_one_stage_are_separated() {
    let separator = ENDS[0];
    let corpus = vec![vec![vec![1, 2, 3, 4], vec![3, 4]]];
    let folder = tempfile::tempdir().unwrap();
    let index = index(&corpus, folder.path());
    let clue = Opener {
        token: CLUE,
        phrase: Phrase {
            constraint: PhraseConstraint::corpus(&index),
            close_from: 1,
            most_tokens: 4,
            close: vec![CLOSE, separator],
        },
    };
    let rules = Arc::new(ControlTokens::new(vec![clue]).with_separator(separator));
    let open = |ids: &[u32]| {
        let mut processor = LogitsProcessor::new(rules.clone(), VOCABULARY, vec![ENDS[1]], 0);
        masks(&mut processor, &[ids]).remove(0)
    };
    let texts: BTreeSet<u32> = [1, 2, 3, 4].into();
    // Another clue, then one more; after the stage is closed the separator is as free as anything.
    assert_eq!(open(&[CLUE]), texts);
    assert_eq!(open(&[CLUE, 1]), [2, CLOSE, separator].into());
    assert_eq!(open(&[CLUE, 1, separator]), texts);
    assert_eq!(open(&[0, CLUE, 1, separator, 3, separator]), texts);
    let free: BTreeSet<u32> = (0..VOCABULARY as u32).collect();
    assert_eq!(open(&[CLUE, 1, CLOSE]), free);
    assert_eq!(open(&[CLUE, 1, CLOSE, separator]), free);
    assert_eq!(open(&[separator]), free);
}

#[test]
fn clues_of_a_format_are_looked_up_by_name() {
    let definition = include_str!("../../models/tests/fixtures/bytes.json");
    let mut json: serde_json::Value = serde_json::from_str(definition).unwrap();
    json["added_tokens"] = serde_json::json!([
        {"id": 256, "content": "<|clue|>", "special": true},
        {"id": 257, "content": "<|/clue|>", "special": true},
    ]);
    let tokenizer = Tokenizer::from_json(json.to_string().as_bytes()).unwrap();
    let corpus = vec![vec![vec![1, 2, 3, 4]]];
    let folder = tempfile::tempdir().unwrap();
    let index = index(&corpus, folder.path());
    let format = ControlFormat {
        separator: String::new(),
        ..ControlFormat::default()
    };
    let rules = ControlTokens::clues(&index, &tokenizer, &format, (2, 4)).unwrap();
    let phrase = rules.begin(&[5, 256]).unwrap();
    assert_eq!((phrase.close, phrase.close_from), (vec![257], 2));
    assert!(rules.begin(&[256, 257]).is_none());
    let error = ControlTokens::clues(&index, &tokenizer, &ControlFormat::default(), (2, 4));
    let error = error.err().unwrap().to_string();
    assert!(error.contains("\"<|sep|>\" (control.separator)"), "{error}");
}
