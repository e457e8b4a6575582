//! Every query against a naive oracle: random small corpora, 1, 2 and 17 segments, deleted documents.

use std::collections::BTreeMap;
use std::path::Path;

use bitvec::prelude::{BitVec, Lsb0};
use fmindex::{
    BuildOptions, Continuation, DeadRows, DocumentId, DocumentIndex, DocumentSet, Index,
    Occurrence, Profile, Segment, SetPosition, Symbol, build_document_indexes, build_segment,
    merge_segments,
};
use proptest::prelude::*;
use std::sync::Arc;

/// Documents of paragraphs; no paragraph holds the separator.
type Corpus = Vec<Vec<Vec<Symbol>>>;

struct Built {
    index: Index,
    /// Tokens of each document, separators included.
    documents: Vec<(DocumentId, Vec<Symbol>)>,
    live: Vec<bool>,
    _folders: Vec<tempfile::TempDir>,
}

fn flat(document: &[Vec<Symbol>], separator: Symbol) -> Vec<Symbol> {
    let closed = document
        .iter()
        .map(|paragraph| [paragraph.as_slice(), &[separator]].concat());
    closed.collect::<Vec<_>>().concat()
}

fn build(corpus: &Corpus, options: &BuildOptions, segments: usize, dead: &[usize]) -> Built {
    let per_segment = corpus.len().div_ceil(segments).max(1);
    let mut opened = Vec::new();
    let mut folders = Vec::new();
    let mut documents = Vec::new();
    let mut gone = vec![Vec::new(); segments];
    let mut live = Vec::new();
    for (at, gone) in gone.iter_mut().enumerate() {
        let part = corpus.chunks(per_segment).nth(at).unwrap_or(&[]);
        let mut tokens = Vec::new();
        let mut starts = Vec::new();
        for (document, paragraphs) in part.iter().enumerate() {
            starts.push(tokens.len() as u32);
            let flat = flat(paragraphs, options.separator);
            tokens.extend_from_slice(&flat);
            if dead.contains(&documents.len()) {
                gone.push(document as u32);
            }
            live.push(!dead.contains(&documents.len()));
            let id = DocumentId {
                segment: at as u32,
                document: document as u32,
            };
            documents.push((id, flat));
        }
        let folder = tempfile::tempdir().unwrap();
        build_segment(folder.path(), tokens, &starts, options, &()).unwrap();
        opened.push(Segment::open(folder.path()).unwrap());
        folders.push(folder);
    }
    let index = if segments.is_multiple_of(2) {
        Index::with_dead_documents(opened, &gone).unwrap()
    } else {
        let dead = opened.iter().zip(&gone).zip(&folders);
        let dead = dead.map(|((segment, gone), folder)| stored(segment, gone, folder.path()));
        let dead = dead.collect();
        Index::with_dead_rows(opened, dead).unwrap()
    };
    Built {
        index,
        documents,
        live,
        _folders: folders,
    }
}

/// Dead rows marked in two rounds and stored in between, as by two deletions.
fn stored(segment: &Segment, gone: &[u32], dir: &Path) -> Option<DeadRows> {
    let (first, second) = gone.split_at(gone.len() / 2);
    let paths = [dir.join("dead-1"), dir.join("dead-2")];
    let dead = DeadRows::mark(segment, None, first).unwrap();
    dead.write(&paths[0]).unwrap();
    let dead = DeadRows::open(&paths[0], segment).unwrap();
    let dead = DeadRows::mark(segment, Some(&dead), &[second, first].concat()).unwrap();
    dead.write(&paths[1]).unwrap();
    let dead = DeadRows::open(&paths[1], segment).unwrap();
    dead.verify().unwrap();
    assert_eq!(dead.documents().collect::<Vec<_>>(), gone);
    Some(dead)
}

/// Live places of a phrase, sorted.
fn places(built: &Built, phrase: &[Symbol]) -> Vec<Occurrence> {
    let separator = built.index.separator();
    let mut found = Vec::new();
    for ((document, tokens), live) in built.documents.iter().zip(&built.live) {
        if !live {
            continue;
        }
        for start in 0..tokens.len() {
            let stands = match phrase {
                [] => tokens[start] != separator,
                _ => tokens[start..].starts_with(phrase),
            };
            if stands && !phrase.contains(&separator) {
                found.push(Occurrence {
                    document: *document,
                    start: start as u32,
                });
            }
        }
    }
    found
}

fn continuations(built: &Built, phrase: &[Symbol]) -> Vec<Continuation> {
    let separator = built.index.separator();
    let mut counts = BTreeMap::new();
    for ((_, tokens), live) in built.documents.iter().zip(&built.live) {
        for start in 0..tokens.len() {
            let after = start + phrase.len();
            if *live
                && tokens[start..].starts_with(phrase)
                && !phrase.contains(&separator)
                && after < tokens.len()
                && tokens[after] != separator
            {
                *counts.entry(tokens[after]).or_default() += 1;
            }
        }
    }
    let counts = counts.into_iter();
    counts
        .map(|(symbol, count)| Continuation { symbol, count })
        .collect()
}

fn check_phrase(built: &Built, phrase: &[Symbol]) {
    let index = &built.index;
    let ranges = index.range(phrase);
    assert_eq!(ranges.length() as usize, phrase.len());
    let expected = places(built, phrase);
    assert_eq!(index.count(&ranges), expected.len() as u64, "{phrase:?}");
    let mut found: Vec<_> = index.locate(&ranges).collect();
    found.sort();
    assert_eq!(found, expected, "{phrase:?}");

    if !phrase.is_empty() {
        let extend = |ranges, &symbol: &Symbol| index.extend(&ranges, symbol);
        let ranges = phrase.iter().fold(index.paragraph_starts(), extend);
        let mut found: Vec<_> = index.locate(&ranges).collect();
        found.sort();
        let starts_paragraph = |place: &&Occurrence| {
            let (_, tokens) = built
                .documents
                .iter()
                .find(|(document, _)| *document == place.document)
                .unwrap();
            place.start == 0 || tokens[place.start as usize - 1] == index.separator()
        };
        let expected: Vec<_> = expected.iter().filter(starts_paragraph).copied().collect();
        assert_eq!(found, expected, "{phrase:?} at the start of a paragraph");
        assert_eq!(index.count(&ranges), expected.len() as u64);
    }

    let expected_next = continuations(built, phrase);
    let mut next = vec![Continuation {
        symbol: 0,
        count: 0,
    }];
    index.continuations(&ranges, &mut next);
    assert_eq!(next, expected_next, "{phrase:?}");
    for length in [index.alphabet() as usize, index.alphabet() as usize + 67, 3] {
        let mut mask: BitVec<u64, Lsb0> = BitVec::repeat(true, length);
        index.mask(&ranges, &mut mask);
        let set: Vec<usize> = mask.iter_ones().collect();
        let expected: Vec<usize> = expected_next
            .iter()
            .map(|c| c.symbol as usize)
            .filter(|&symbol| symbol < length)
            .collect();
        assert_eq!(set, expected);
        // A mask that does not start at a word.
        if length > 3 {
            let mut mask: BitVec<u64, Lsb0> = BitVec::repeat(true, length);
            index.mask(&ranges, &mut mask[3..]);
            assert!(mask[..3].all());
            assert!(
                mask[3..]
                    .iter_ones()
                    .eq(expected.iter().copied().filter(|&s| s < length - 3))
            );
        }
    }
    for symbol in 0..index.alphabet().min(300) + 2 {
        let allowed = expected_next.iter().any(|c| c.symbol == symbol);
        assert_eq!(index.allows(&ranges, symbol), allowed);
    }
    let mut by_document: BTreeMap<DocumentId, u32> = BTreeMap::new();
    for place in &expected {
        *by_document.entry(place.document).or_default() += 1;
    }
    let counts = index.document_counts(&ranges, expected.len());
    assert!(!counts.capped);
    assert_eq!(counts.counts, by_document.into_iter().collect::<Vec<_>>());
    if !expected.is_empty() {
        let capped = index.document_counts(&ranges, expected.len() - 1);
        assert!(capped.capped);
        let total: u32 = capped.counts.iter().map(|(_, tf)| tf).sum();
        assert_eq!(total as usize, expected.len() - 1);
    }
}

fn check(built: &Built, phrases: &[Vec<Symbol>]) {
    let index = &built.index;
    let live = built.live.iter().filter(|&&live| live).count();
    assert_eq!(index.documents(), live as u64);
    for (document, tokens) in &built.documents {
        assert_eq!(index.document_length(*document), tokens.len() as u32);
        assert_eq!(&index.extract(*document, 0..u32::MAX), tokens);
        let (from, to) = (tokens.len() / 3, tokens.len() * 2 / 3);
        assert_eq!(
            index.extract(*document, from as u32..to as u32),
            tokens[from..to]
        );
    }
    check_phrase(built, &[]);
    for phrase in phrases {
        check_phrase(built, phrase);
    }
    // Walk along texts: every intermediate phrase of the first documents.
    for (_, tokens) in built.documents.iter().take(3) {
        for start in [0, tokens.len() / 2] {
            for length in 1..6.min(tokens.len().saturating_sub(start)) {
                check_phrase(built, &tokens[start..start + length]);
            }
        }
    }
}

fn check_documents(corpus: &Corpus, separator: Symbol, phrases: &[Vec<Symbol>]) {
    let documents: Vec<Vec<Symbol>> = corpus.iter().map(|d| flat(d, separator)).collect();
    let members = documents
        .iter()
        .map(|tokens| Arc::new(DocumentIndex::build(tokens, separator)));
    let set = DocumentSet::new(members.collect());
    let empty = Vec::new();
    for phrase in phrases.iter().chain([&empty]) {
        let ranges = set.range(phrase);
        let mut expected = Vec::new();
        let mut counts: BTreeMap<Symbol, u64> = BTreeMap::new();
        for (member, tokens) in documents.iter().enumerate() {
            for start in 0..tokens.len() {
                let stands = tokens[start..].starts_with(phrase) && !phrase.contains(&separator);
                if stands && !(phrase.is_empty() && tokens[start] == separator) {
                    expected.push(SetPosition {
                        member: member as u32,
                        start: start as u32,
                    });
                }
                if stands
                    && let Some(&next) = tokens.get(start + phrase.len())
                    && next != separator
                {
                    *counts.entry(next).or_default() += 1;
                }
            }
        }
        let mut found: Vec<_> = set.positions(&ranges).collect();
        assert_eq!(set.count(&ranges), found.len() as u64);
        found.sort();
        assert_eq!(found, expected, "{phrase:?}");
        let mut next = Vec::new();
        set.continuations(&ranges, &mut next);
        let counts = counts.into_iter();
        let expected: Vec<_> = counts
            .map(|(symbol, count)| Continuation { symbol, count })
            .collect();
        assert_eq!(next, expected, "{phrase:?}");
    }
}

/// Corpora over `symbols` symbols, the separator the last of them.
fn corpora(symbols: u32, paragraph: usize) -> impl Strategy<Value = Corpus> {
    let paragraph = prop::collection::vec(0..symbols - 1, 0..paragraph);
    let document = prop::collection::vec(paragraph, 0..4);
    prop::collection::vec(document, 0..20)
}

fn options(alphabet: u32, separator: Symbol, fast: bool) -> BuildOptions {
    BuildOptions {
        alphabet,
        separator,
        profile: if fast { Profile::Fast } else { Profile::Small },
        threads: 1,
        memory: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn tiny_alphabets(
        corpus in corpora(4, 40),
        phrases in prop::collection::vec(prop::collection::vec(0u32..4, 1..5), 0..12),
        segments in prop::sample::select(vec![1, 2, 17]),
        dead in prop::collection::vec(0usize..20, 0..6),
        fast: bool,
    ) {
        let built = build(&corpus, &options(4, 3, fast), segments, &dead);
        check(&built, &phrases);
        check_documents(&corpus, 3, &phrases);
    }

    #[test]
    fn the_separator_may_be_any_symbol(
        corpus in corpora(6, 30),
        phrases in prop::collection::vec(prop::collection::vec(0u32..7, 1..4), 0..8),
        separator in 0u32..6,
        segments in 1usize..4,
    ) {
        // The last symbol of the strategy is the separator: swap it with the one wanted.
        let swap = |symbol: Symbol| if symbol == separator { 5 } else { symbol };
        let corpus: Corpus = corpus
            .iter()
            .map(|d| d.iter().map(|p| p.iter().map(|&s| swap(s)).collect()).collect())
            .collect();
        let built = build(&corpus, &options(6, separator, false), segments, &[]);
        check(&built, &phrases);
        check_documents(&corpus, separator, &phrases);
    }

    #[test]
    fn wide_alphabets(
        corpus in corpora(1 << 20, 60),
        segments in 1usize..3,
        dead in prop::collection::vec(0usize..20, 0..3),
    ) {
        let built = build(&corpus, &options(1 << 20, (1 << 20) - 1, false), segments, &dead);
        let phrases: Vec<Vec<Symbol>> = built
            .documents
            .iter()
            .filter(|(_, tokens)| tokens.len() > 2)
            .map(|(_, tokens)| tokens[..2].to_vec())
            .take(2)
            .collect();
        for phrase in &phrases {
            check_phrase(&built, phrase);
        }
        check_phrase(&built, &[]);
    }

    #[test]
    fn merged_segments_answer_as_the_live_documents(
        corpus in corpora(4, 30),
        phrases in prop::collection::vec(prop::collection::vec(0u32..4, 1..4), 0..6),
        segments in 1usize..4,
        dead in prop::collection::vec(0usize..20, 0..6),
    ) {
        let options = options(4, 3, false);
        let built = build(&corpus, &options, segments, &dead);
        let mut gone = vec![Vec::new(); segments];
        for ((document, _), live) in built.documents.iter().zip(&built.live) {
            if !live {
                gone[document.segment as usize].push(document.document);
            }
        }
        let folder = tempfile::tempdir().unwrap();
        merge_segments(folder.path(), built.index.segments(), &gone, &options, &()).unwrap();
        let live = built.documents.iter().zip(&built.live).filter(|(_, live)| **live);
        let documents: Vec<_> = live
            .enumerate()
            .map(|(at, ((_, tokens), _))| (DocumentId { segment: 0, document: at as u32 }, tokens.clone()))
            .collect();
        let merged = Built {
            index: Index::new(vec![Segment::open(folder.path()).unwrap()]).unwrap(),
            live: vec![true; documents.len()],
            documents,
            _folders: vec![folder],
        };
        check(&merged, &phrases);
    }

    #[test]
    fn stored_document_indexes_equal_built_ones(corpus in corpora(5, 50)) {
        let built = build(&corpus, &options(5, 4, false), 1, &[]);
        let folder = built._folders[0].path();
        let bare = &built.index.segments()[0];
        build_document_indexes(folder, bare, &()).unwrap();
        let stored = Segment::open(folder).unwrap();
        stored.verify().unwrap();
        prop_assert!(stored.has_document_indexes() && !bare.has_document_indexes());
        for (document, tokens) in &built.documents {
            let one = stored.document_index(document.document).unwrap();
            prop_assert_eq!(one.tokens(), &tokens[..]);
            prop_assert_eq!(one, bare.document_index(document.document).unwrap());
        }
    }
}

#[test]
fn edge_kinds() {
    let one = |paragraphs: Vec<Vec<Symbol>>| vec![paragraphs];
    let phrases = [vec![0], vec![1], vec![0, 0], vec![0, 1], vec![2]];
    let corpora: Vec<Corpus> = vec![
        vec![],                                       // no document
        vec![vec![]],                                 // an empty document
        vec![vec![]; 40],                             // many of them
        one(vec![vec![]]),                            // an empty paragraph
        one(vec![vec![]; 300]),                       // only separators
        one(vec![vec![0]]),                           // one token
        one(vec![vec![0; 700]]),                      // all equal, longer than blocks
        one(vec![(0..700).map(|i| i % 2).collect()]), // a period
        vec![one(vec![vec![0]])[0].clone(); 500],     // many equal documents
        vec![vec![], one(vec![vec![1]])[0].clone(), vec![], vec![]],
    ];
    for corpus in &corpora {
        for segments in [1, 2, 17] {
            let built = build(
                corpus,
                &options(3, 2, false),
                segments,
                &[0, 7]
                    .iter()
                    .copied()
                    .filter(|&d| d < corpus.len() && corpus.len() > 1)
                    .collect::<Vec<_>>(),
            );
            check(&built, &phrases);
        }
        check_documents(corpus, 2, &phrases);
    }
}

#[test]
fn all_distinct_and_the_highest_symbol() {
    let tokens: Vec<Symbol> = (0..1500).rev().collect();
    let corpus = vec![vec![tokens]];
    let built = build(&corpus, &options(1501, 1500, false), 1, &[]);
    check_phrase(&built, &[1499]);
    check_phrase(&built, &[700, 699, 698]);
    check_phrase(&built, &[]);
    check_phrase(&built, &[0]);
    check_phrase(&built, &[1500]);
    check_phrase(&built, &[u32::MAX]);
}

#[test]
fn lengths_around_block_boundaries() {
    // A cheap generator: the test wants variety, not randomness.
    let mut state = 1u64;
    let mut draw = |most: u32| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as u32 % most
    };
    for around in [32, 64, 128, 256, 512, 1024, 2048] {
        for length in around - 3..=around + 3 {
            for symbols in [1, 2, 5, 200] {
                let paragraph: Vec<Symbol> = (0..length).map(|_| draw(symbols)).collect();
                let corpus = vec![vec![paragraph]];
                let built = build(&corpus, &options(201, 200, length % 2 == 0), 1, &[]);
                let (document, tokens) = &built.documents[0];
                assert_eq!(&built.index.extract(*document, 0..u32::MAX), tokens);
                for phrase in [&tokens[..1], &tokens[length - 2..length], &tokens[5..8]] {
                    check_phrase(&built, phrase);
                }
            }
        }
    }
}

#[test]
fn wide_phrases_with_and_without_dead_documents() {
    let mut state = 7u64;
    let mut draw = |most: u32| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        // The product of two makes small symbols frequent.
        ((state >> 33) as u32 % most) * ((state >> 20) as u32 & 255) / 256
    };
    let corpus: Corpus = (0..300)
        .map(|_| {
            (0..3)
                .map(|_| (0..draw(60)).map(|_| draw(5)).collect())
                .collect()
        })
        .collect();
    let phrases = [
        vec![0],
        vec![1],
        vec![0, 0],
        vec![0, 1],
        vec![3],
        vec![0, 0, 0],
    ];
    for segments in [1, 2] {
        for dead in [
            vec![],
            (0..300).step_by(9).collect(),
            (0..299).collect::<Vec<_>>(),
        ] {
            let built = build(&corpus, &options(6, 5, false), segments, &dead);
            built.index.warm();
            check_phrase(&built, &[]);
            for phrase in &phrases {
                check_phrase(&built, phrase);
            }
        }
    }
}

#[test]
fn queries_from_many_threads_agree() {
    let corpus: Corpus = (0..200u32)
        .map(|d| vec![(0..80).map(|i| (d * i + i * i) % 7).collect()])
        .collect();
    let built = build(&corpus, &options(8, 7, false), 2, &[3, 50, 120]);
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let built = &built;
            scope.spawn(move || {
                for (_, tokens) in built.documents.iter().skip(thread).step_by(40) {
                    for length in 0..4 {
                        check_phrase(built, &tokens[thread..thread + length]);
                    }
                }
            });
        }
    });
}

#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
    let tokens: Vec<Symbol> = (0..60_000u64)
        .map(|i| {
            if i % 50 == 49 {
                90
            } else {
                (i * i % 7919 % 90) as u32
            }
        })
        .collect();
    let starts: Vec<u32> = (0..60_000).step_by(500).collect();
    let read = |threads: usize| -> Vec<(std::ffi::OsString, Vec<u8>)> {
        let folder = tempfile::tempdir().unwrap();
        let options = BuildOptions {
            threads,
            ..options(91, 90, false)
        };
        build_segment(folder.path(), tokens.clone(), &starts, &options, &()).unwrap();
        let mut files: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    };
    let one = read(1);
    assert!(one == read(2) && one == read(5));
}
