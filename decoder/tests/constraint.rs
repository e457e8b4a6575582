//! The phrase constraint against brute force: along random walks, every intermediate mask.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bitvec::vec::BitVec;
use decoder::PhraseConstraint;
use decoder::constraint::ConstraintError;
use fmindex::{
    BuildOptions, Continuation, DocumentIndex, DocumentSet, Index, Segment, SetPosition,
    build_segment,
};
use proptest::prelude::*;

const SEPARATOR: u32 = 7;
const ALPHABET: u32 = 8;

/// Documents as lists of paragraphs, symbols 0 to 6.
fn corpora() -> impl Strategy<Value = Vec<Vec<Vec<u32>>>> {
    let paragraph = prop::collection::vec(0..SEPARATOR, 0..12);
    prop::collection::vec(prop::collection::vec(paragraph, 0..4), 0..6)
}

fn document_tokens(document: &[Vec<u32>]) -> Vec<u32> {
    document
        .iter()
        .flat_map(|paragraph| paragraph.iter().copied().chain([SEPARATOR]))
        .collect()
}

fn index(corpus: &[Vec<Vec<u32>>], folder: &std::path::Path) -> Index {
    let mut tokens = Vec::new();
    let mut starts = Vec::new();
    for document in corpus {
        starts.push(tokens.len() as u32);
        tokens.extend(document_tokens(document));
    }
    let options = BuildOptions {
        alphabet: ALPHABET,
        separator: SEPARATOR,
        ..Default::default()
    };
    build_segment(folder, tokens, &starts, &options, &()).unwrap();
    Index::new(vec![Segment::open(folder).unwrap()]).unwrap()
}

/// Tokens after every occurrence of `phrase` inside a paragraph of `documents`, with counts.
fn brute_force<'a>(
    documents: impl Iterator<Item = &'a Vec<Vec<u32>>>,
    phrase: &[u32],
) -> BTreeMap<u32, u64> {
    let mut next = BTreeMap::new();
    for paragraph in documents.flatten() {
        for window in paragraph.windows(phrase.len() + 1) {
            if window.starts_with(phrase) {
                *next.entry(window[phrase.len()]).or_default() += 1;
            }
        }
    }
    next
}

/// Checks list, mask, single tests and forced token of the constraint against `expected`.
fn check(constraint: &PhraseConstraint, expected: &BTreeMap<u32, u64>) {
    let mut allowed: Vec<Continuation> = Vec::new();
    constraint.allowed(&mut allowed);
    let listed: BTreeMap<u32, u64> = allowed
        .iter()
        .map(|continuation| (continuation.symbol, continuation.count))
        .collect();
    assert_eq!(listed.len(), allowed.len(), "a symbol is listed twice");
    assert_eq!(&listed, expected);
    // Longer than the alphabet: a padded vocabulary.
    let mut mask: BitVec<u64> = BitVec::repeat(true, 100);
    constraint.mask(&mut mask);
    for symbol in 0..100 {
        assert_eq!(
            mask[symbol],
            expected.contains_key(&(symbol as u32)),
            "mask of {symbol}"
        );
        assert_eq!(
            constraint.allows(symbol as u32),
            mask[symbol],
            "test of {symbol}"
        );
    }
    let only = (expected.len() == 1).then(|| *expected.keys().next().unwrap());
    assert_eq!(constraint.forced(), only);
}

/// Walks along `choices` and back, checking every step.
fn walk<'a>(
    mut constraint: PhraseConstraint,
    documents: impl Fn() -> Box<dyn Iterator<Item = &'a Vec<Vec<u32>>> + 'a>,
    choices: &[usize],
) {
    let mut phrase = Vec::new();
    for &choice in choices {
        let expected = brute_force(documents(), &phrase);
        check(&constraint, &expected);
        let Some(&symbol) = expected.keys().nth(choice % expected.len().max(1)) else {
            break;
        };
        constraint.advance(symbol).unwrap();
        phrase.push(symbol);
        assert_eq!(constraint.tokens(), phrase);
    }
    // Back to half, and the mask is what it was there.
    let back = phrase.len() / 2;
    constraint.rollback(back).unwrap();
    phrase.truncate(phrase.len() - back);
    check(&constraint, &brute_force(documents(), &phrase));
    // A token that is not allowed: an error that stays, and a clone from before that does not have it.
    let before = constraint.clone();
    let refused = (0..ALPHABET)
        .find(|symbol| !constraint.allows(*symbol))
        .unwrap();
    let error = ConstraintError::NotAllowed {
        symbol: refused,
        position: phrase.len(),
    };
    assert_eq!(constraint.advance(refused), Err(error));
    assert_eq!(constraint.error(), Some(error));
    assert_eq!(constraint.rollback(0), Err(error));
    check(&constraint, &BTreeMap::new());
    check(&before, &brute_force(documents(), &phrase));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn corpus_constraint(corpus in corpora(), choices in prop::collection::vec(0usize..8, 0..10)) {
        let folder = tempfile::tempdir().unwrap();
        let index = index(&corpus, folder.path());
        walk(PhraseConstraint::corpus(&index), || Box::new(corpus.iter()), &choices);
    }

    #[test]
    fn documents_constraint(corpus in corpora(), choices in prop::collection::vec(0usize..8, 0..10)) {
        let members = corpus.iter().map(|document| {
            Arc::new(DocumentIndex::build(&document_tokens(document), SEPARATOR))
        });
        let set = Arc::new(DocumentSet::new(members.collect()));
        walk(PhraseConstraint::documents(set), || Box::new(corpus.iter()), &choices);
    }

    /// Under alignment a phrase begins at the given places and survives at aligned ones only.
    #[test]
    fn aligned_constraint(
        corpus in corpora(),
        choices in prop::collection::vec(0usize..8, 0..10),
        picks in prop::collection::vec(0usize..60, 1..12),
    ) {
        let documents: Vec<Vec<u32>> = corpus.iter().map(|document| document_tokens(document)).collect();
        let members = documents.iter().map(|tokens| Arc::new(DocumentIndex::build(tokens, SEPARATOR)));
        let set = Arc::new(DocumentSet::new(members.collect()));
        let places: Vec<SetPosition> = documents
            .iter()
            .enumerate()
            .flat_map(|(member, tokens)| (0..tokens.len()).map(move |start| (member, start)))
            .map(|(member, start)| SetPosition { member: member as u32, start: start as u32 })
            .collect();
        prop_assume!(!places.is_empty());
        let mut aligned: Vec<SetPosition> = picks.iter().map(|pick| places[pick % places.len()]).collect();
        aligned.sort_unstable_by_key(|place| (place.member, place.start));
        aligned.dedup();
        let first: Vec<SetPosition> = aligned.iter().copied().step_by(2).collect();
        let all: HashSet<SetPosition> = aligned.iter().copied().collect();
        let mut constraint = PhraseConstraint::documents_from(set, first.clone(), Arc::new(all));
        let mut surviving = first;
        let mut phrase: Vec<u32> = Vec::new();
        let token_at = |place: &SetPosition, ahead: usize| {
            let token = documents[place.member as usize].get(place.start as usize + ahead).copied();
            token.filter(|&token| token != SEPARATOR)
        };
        for choice in choices {
            let mut expected: BTreeMap<u32, u64> = BTreeMap::new();
            for token in surviving.iter().filter_map(|place| token_at(place, phrase.len())) {
                *expected.entry(token).or_default() += 1;
            }
            check(&constraint, &expected);
            let Some(&symbol) = expected.keys().nth(choice % expected.len().max(1)) else { break };
            constraint.advance(symbol).unwrap();
            let from = if phrase.is_empty() { &aligned } else { &surviving };
            surviving = from
                .iter()
                .copied()
                .filter(|place| token_at(place, phrase.len()) == Some(symbol))
                .collect();
            phrase.push(symbol);
            let mut positions = constraint.positions();
            positions.sort_unstable_by_key(|place| (place.member, place.start));
            prop_assert_eq!(&positions, &surviving);
        }
    }
}
