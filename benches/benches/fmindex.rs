//! The index beside its peers, in one run.
//!
//! `VERBATIM_TOKENS=tokens.u32 cargo bench -p benches --bench fmindex`; without a file of tokens, on the summaries of
//! the demo. `VERBATIM_LIMIT` cuts the corpus to so many tokens (default 8,000,000).
//!
//! - Next tokens: `qwt` as the wavelet-matrix FM-index, over the BWT of the same reversed tokens.
//! - Count and locate over bytes: `bio` and `suffix`, over the tokens folded to letters.

use std::hint::black_box;

use benches::{Corpus, table};
use bio::alphabets::Alphabet;
use bio::data_structures::bwt::{Occ, bwt, less};
use bio::data_structures::fmindex::{BackwardSearchResult, FMIndex, FMIndexable};
use bio::data_structures::suffix_array::suffix_array;
use bitvec::prelude::{BitVec, Lsb0};
use criterion::{Criterion, criterion_group, criterion_main};
use fmindex::{BuildOptions, Index, Profile, Segment, build_segment};
use qwt::{OccsRangeUnsigned, QWT256Pfs, RankUnsigned};
use suffix::SuffixTable;

/// The FM-index that a wavelet matrix gives, over reversed tokens with one sentinel in front.
struct Wavelet {
    tree: QWT256Pfs<u32>,
    starts: Vec<usize>,
    separator: u32,
}

impl Wavelet {
    fn new(corpus: &Corpus) -> Self {
        // Symbols move up by one: 0 is the sentinel.
        let mut reversed: Vec<i32> = corpus
            .tokens
            .iter()
            .rev()
            .map(|&token| token as i32 + 1)
            .collect();
        reversed.push(0);
        let sorted = libsais::SuffixArrayConstruction::for_text_mut(&mut reversed)
            .in_owned_buffer32()
            .single_threaded()
            .run()
            .expect("memory to sort in")
            .into_vec();
        let mut transform: Vec<u32> = sorted[..reversed.len()]
            .iter()
            .map(|&at| reversed[(at as usize).checked_sub(1).unwrap_or(reversed.len() - 1)] as u32)
            .collect();
        let mut starts = vec![0; corpus.separator as usize + 3];
        for &symbol in &reversed {
            starts[symbol as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        Self {
            tree: QWT256Pfs::new(&mut transform),
            starts,
            separator: corpus.separator + 1,
        }
    }

    fn extend(&self, range: (usize, usize), token: u32) -> (usize, usize) {
        let symbol = token + 1;
        let at = |row| self.starts[symbol as usize] + self.tree.rank(symbol, row).unwrap_or(0);
        (at(range.0), at(range.1))
    }

    fn list(&self, range: (usize, usize), into: &mut Vec<(u32, usize)>) {
        into.clear();
        let listed = self.tree.occs_range(range.0..range.1).into_iter().flatten();
        into.extend(listed.filter(|&(symbol, _)| symbol != self.separator && symbol != 0));
    }
}

fn built(
    tokens: Vec<u32>,
    starts: &[u32],
    separator: u32,
    profile: Profile,
) -> (tempfile::TempDir, Index) {
    let dir = tempfile::tempdir().expect("a folder");
    let options = BuildOptions {
        alphabet: separator + 1,
        separator,
        profile,
        ..BuildOptions::default()
    };
    build_segment(dir.path(), tokens, starts, &options, &()).expect("a build");
    let index = Index::new(vec![Segment::open(dir.path()).expect("a segment")]).expect("an index");
    index.warm();
    (dir, index)
}

fn next_tokens(criterion: &mut Criterion) {
    let Some(mut corpus) = Corpus::at_hand("fmindex") else {
        return;
    };
    let limit = std::env::var("VERBATIM_LIMIT")
        .ok()
        .and_then(|limit| limit.parse().ok());
    corpus.cut(limit.unwrap_or(8_000_000));
    let (_small, small) = built(
        corpus.tokens.clone(),
        &corpus.starts,
        corpus.separator,
        Profile::Small,
    );
    let (_fast, fast) = built(
        corpus.tokens.clone(),
        &corpus.starts,
        corpus.separator,
        Profile::Fast,
    );
    let wavelet = Wavelet::new(&corpus);
    let mut mask: BitVec<u64, Lsb0> = BitVec::repeat(false, corpus.separator as usize + 1);
    for length in [1, 2, 3, 5, 8] {
        let phrases = corpus.phrases(length, 500, length as u64);
        let mut group =
            criterion.benchmark_group(table::group("fmindex", format!("next tokens of {length}")));
        group.sample_size(10);
        for (name, index) in [("small", &small), ("fast", &fast)] {
            let prepared: Vec<_> = phrases
                .iter()
                .map(|phrase| (index.range(&phrase[..length - 1]), phrase[length - 1]))
                .collect();
            let mut list = Vec::new();
            let mut at = 0;
            group.bench_function(format!("{name} list"), |bench| {
                bench.iter(|| {
                    let (ranges, token) = &prepared[at % prepared.len()];
                    at += 1;
                    index.continuations(&index.extend(ranges, *token), &mut list);
                    black_box(list.len())
                });
            });
            group.bench_function(format!("{name} mask"), |bench| {
                bench.iter(|| {
                    let (ranges, token) = &prepared[at % prepared.len()];
                    at += 1;
                    index.mask(&index.extend(ranges, *token), &mut mask);
                });
            });
        }
        let whole = (0, corpus.tokens.len() + 1);
        let prepared: Vec<_> = phrases
            .iter()
            .map(|phrase| {
                let before = phrase[..length - 1].iter();
                (
                    before.fold(whole, |range, &token| wavelet.extend(range, token)),
                    phrase[length - 1],
                )
            })
            .collect();
        // Both structures list the same tokens, or the comparison means nothing.
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for (phrase, &(range, token)) in phrases.iter().zip(&prepared).take(50) {
            wavelet.list(wavelet.extend(range, token), &mut theirs);
            theirs.sort_unstable();
            small.continuations(&small.range(phrase), &mut ours);
            let same = ours
                .iter()
                .map(|next| (next.symbol + 1, next.count as usize));
            assert!(same.eq(theirs.iter().copied()), "{phrase:?}");
        }
        let mut at = 0;
        group.bench_function(table::peer("qwt list"), |bench| {
            bench.iter(|| {
                let (range, token) = prepared[at % prepared.len()];
                at += 1;
                wavelet.list(wavelet.extend(range, token), &mut theirs);
                black_box(theirs.len())
            });
        });
        group.finish();
    }
}

fn bytes(criterion: &mut Criterion) {
    let Some(mut corpus) = Corpus::at_hand("fmindex") else {
        return;
    };
    corpus.cut(1_000_000);
    let text: Vec<u8> = corpus
        .tokens
        .iter()
        .map(|token| b'0' + (token % 64) as u8)
        .collect();
    let mut tokens: Vec<u32> = text.iter().map(|&byte| u32::from(byte)).collect();
    tokens.push(255);
    let (_dir, index) = built(tokens, &[0], 255, Profile::Fast);
    let table = SuffixTable::new(std::str::from_utf8(&text).expect("letters"));
    let mut closed = text.clone();
    closed.push(b'$');
    let alphabet = Alphabet::new(&closed);
    let sorted = suffix_array(&closed);
    let transform = bwt(&closed, &sorted);
    let smaller = less(&transform, &alphabet);
    let occurrences = Occ::new(&transform, 128, &alphabet);
    let peer = FMIndex::new(&transform, &smaller, &occurrences);
    let mut state = 1;
    let phrases: Vec<Vec<u8>> = (0..500)
        .map(|_| {
            let from = benches::draw(&mut state, text.len() - 6);
            text[from..from + 6].to_vec()
        })
        .collect();
    let symbols: Vec<Vec<u32>> = phrases
        .iter()
        .map(|phrase| phrase.iter().map(|&byte| u32::from(byte)).collect())
        .collect();
    let mut group =
        criterion.benchmark_group(table::group("fmindex", "count and locate six letters"));
    group.sample_size(10);
    let mut at = 0;
    group.bench_function("fast", |bench| {
        bench.iter(|| {
            at += 1;
            let ranges = index.range(&symbols[at % symbols.len()]);
            black_box((index.count(&ranges), index.locate(&ranges).take(10).count()))
        });
    });
    group.bench_function(table::peer("bio, unsampled positions"), |bench| {
        bench.iter(|| {
            at += 1;
            match peer.backward_search(phrases[at % phrases.len()].iter()) {
                BackwardSearchResult::Complete(interval) => black_box(interval.occ(&sorted).len()),
                _ => 0,
            }
        });
    });
    group.bench_function(table::peer("suffix"), |bench| {
        bench.iter(|| {
            at += 1;
            let phrase = std::str::from_utf8(&phrases[at % phrases.len()]).expect("letters");
            black_box(table.positions(phrase).len())
        });
    });
    group.finish();
}

criterion_group!(benches, next_tokens, bytes);
criterion_main!(benches);
