//! `bio` and `suffix` as independent witnesses: counts and places of phrases over bytes.

use bio::alphabets::Alphabet;
use bio::data_structures::bwt::{Occ, bwt, less};
use bio::data_structures::fmindex::{BackwardSearchResult, FMIndex, FMIndexable};
use bio::data_structures::suffix_array::suffix_array;
use fmindex::{BuildOptions, Index, Segment, build_segment};
use proptest::prelude::*;
use suffix::SuffixTable;

/// Closes the one document; above every letter.
const SEPARATOR: u32 = 127;

fn index(text: &[u8]) -> (tempfile::TempDir, Index) {
    let mut tokens: Vec<u32> = text.iter().map(|&byte| u32::from(byte)).collect();
    tokens.push(SEPARATOR);
    let dir = tempfile::tempdir().unwrap();
    let options = BuildOptions {
        alphabet: 128,
        separator: SEPARATOR,
        threads: 1,
        ..BuildOptions::default()
    };
    build_segment(dir.path(), tokens, &[0], &options, &()).unwrap();
    let index = Index::new(vec![Segment::open(dir.path()).unwrap()]).unwrap();
    (dir, index)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn three_structures_agree(
        letters in prop::collection::vec(0u8..26, 1..3000),
        span in 1u8..27,
        places in prop::collection::vec((0usize..3000, 1usize..9), 1..20),
    ) {
        let text: Vec<u8> = letters.iter().map(|letter| b'a' + letter % span).collect();
        let (_dir, index) = index(&text);
        let table = SuffixTable::new(std::str::from_utf8(&text).unwrap());
        let mut closed = text.clone();
        closed.push(b'$');
        let alphabet = Alphabet::new(&closed);
        let sorted = suffix_array(&closed);
        let transform = bwt(&closed, &sorted);
        let smaller = less(&transform, &alphabet);
        let occurrences = Occ::new(&transform, 3, &alphabet);
        let peer = FMIndex::new(&transform, &smaller, &occurrences);
        for (start, length) in places {
            let start = start.min(text.len() - 1);
            let mut phrase = text[start..text.len().min(start + length)].to_vec();
            if length == 8 {
                phrase.reverse();
            }
            let mut by_suffix: Vec<u32> =
                table.positions(std::str::from_utf8(&phrase).unwrap()).to_vec();
            by_suffix.sort_unstable();
            let mut by_bio: Vec<u32> = match peer.backward_search(phrase.iter()) {
                BackwardSearchResult::Complete(interval) => {
                    interval.occ(&sorted).into_iter().map(|at| at as u32).collect()
                }
                _ => Vec::new(),
            };
            by_bio.sort_unstable();
            let symbols: Vec<u32> = phrase.iter().map(|&byte| u32::from(byte)).collect();
            let ranges = index.range(&symbols);
            let mut ours: Vec<u32> = index.locate(&ranges).map(|place| place.start).collect();
            ours.sort_unstable();
            prop_assert_eq!(&ours, &by_suffix);
            prop_assert_eq!(&ours, &by_bio);
            prop_assert_eq!(index.count(&ranges), ours.len() as u64);
        }
    }
}
