//! Byte-pair encoding of one word: which neighbours are joined, in which order.
//!
//! Both kinds of vocabulary are kept as exact bytes: byte-level ones start from single bytes, SentencePiece-like
//! ones from characters with single bytes as the fallback. The pair of lowest rank is joined first, the leftmost
//! among equals (Sennrich et al. 2016).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

/// Where words start from before any merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Single bytes.
    Bytes,
    /// Characters; a character that is no entry becomes its bytes.
    Characters,
}

/// Merge rules and the entries they start from.
pub(super) struct Bpe {
    start: Start,
    merges: FxHashMap<u64, (u32, u32)>,
    bytes: [Option<u32>; 256],
    entries: FxHashMap<Box<[u8]>, u32>,
    whole_words: bool,
}

const NONE: u32 = u32::MAX;
/// Words of at most this many symbols are merged by scanning, longer ones with a heap.
const SCANNED: usize = 24;

fn pair(left: u32, right: u32) -> u64 {
    (u64::from(left) << 32) | u64::from(right)
}

impl Bpe {
    /// `entries`: exact bytes and id of each ordinary token; `bytes`: the token of each single byte;
    /// `merges`: (left, right, joined) in order of rank; `whole_words`: a word that is an entry is taken as it is.
    pub(super) fn new(
        start: Start,
        entries: FxHashMap<Box<[u8]>, u32>,
        bytes: [Option<u32>; 256],
        merges: impl IntoIterator<Item = (u32, u32, u32)>,
        whole_words: bool,
    ) -> Self {
        let mut map = FxHashMap::default();
        for (rank, (left, right, joined)) in merges.into_iter().enumerate() {
            map.entry(pair(left, right))
                .or_insert((rank as u32, joined));
        }
        Self {
            start,
            merges: map,
            bytes,
            entries,
            whole_words,
        }
    }

    /// Merge rules in order of rank.
    pub(super) fn rules(&self) -> Vec<(u32, u32)> {
        let mut rules: Vec<(u32, u64)> = self
            .merges
            .iter()
            .map(|(&p, &(rank, _))| (rank, p))
            .collect();
        rules.sort_unstable();
        rules
            .into_iter()
            .map(|(_, p)| ((p >> 32) as u32, p as u32))
            .collect()
    }

    /// Whether a word that is an entry is taken as it is.
    pub(super) fn whole_words(&self) -> bool {
        self.whole_words
    }

    /// The token of a single byte.
    pub(super) fn single_byte(&self, byte: u8) -> Option<u32> {
        self.bytes[usize::from(byte)]
    }

    /// Where words start from.
    pub(super) fn start(&self) -> Start {
        self.start
    }

    /// Appends the ids of one word. Bytes for which the vocabulary has no token are left out.
    pub(super) fn encode(&self, word: &str, out: &mut Vec<u32>) {
        if self.whole_words
            && let Some(&id) = self.entries.get(word.as_bytes())
        {
            out.push(id);
            return;
        }
        let first = out.len();
        match self.start {
            Start::Bytes => out.extend(word.bytes().filter_map(|b| self.bytes[usize::from(b)])),
            Start::Characters => {
                let mut buffer = [0; 4];
                for c in word.chars() {
                    let bytes = c.encode_utf8(&mut buffer).as_bytes();
                    match self.entries.get(bytes) {
                        Some(&id) => out.push(id),
                        None => {
                            out.extend(bytes.iter().filter_map(|&b| self.bytes[usize::from(b)]))
                        }
                    }
                }
            }
        }
        let symbols = out.len() - first;
        if symbols <= SCANNED {
            self.merge_scanning(out, first);
        } else {
            self.merge_with_heap(out, first);
        }
    }

    fn rank(&self, left: u32, right: u32) -> (u32, u32) {
        self.merges
            .get(&pair(left, right))
            .copied()
            .unwrap_or((NONE, NONE))
    }

    fn merge_scanning(&self, ids: &mut Vec<u32>, first: usize) {
        let mut ranks = [(NONE, NONE); SCANNED];
        let mut length = ids.len() - first;
        for i in 1..length {
            ranks[i - 1] = self.rank(ids[first + i - 1], ids[first + i]);
        }
        while length > 1 {
            let mut best = 0;
            for i in 1..length - 1 {
                if ranks[i].0 < ranks[best].0 {
                    best = i;
                }
            }
            if ranks[best].0 == NONE {
                break;
            }
            ids[first + best] = ranks[best].1;
            ids.remove(first + best + 1);
            ranks.copy_within(best + 1..length - 1, best);
            length -= 1;
            if best > 0 {
                ranks[best - 1] = self.rank(ids[first + best - 1], ids[first + best]);
            }
            if best + 1 < length {
                ranks[best] = self.rank(ids[first + best], ids[first + best + 1]);
            }
        }
    }

    fn merge_with_heap(&self, ids: &mut Vec<u32>, first: usize) {
        let symbols = &mut ids[first..];
        let length = symbols.len();
        let mut next: Vec<u32> = (1..=length as u32).collect();
        let mut previous: Vec<u32> = (0..length as u32).map(|i| i.wrapping_sub(1)).collect();
        let mut heap = BinaryHeap::with_capacity(length);
        let push = |heap: &mut BinaryHeap<_>, symbols: &[u32], left: usize, right: usize| {
            if let Some(&(rank, joined)) = self.merges.get(&pair(symbols[left], symbols[right])) {
                heap.push(Reverse((
                    rank,
                    left as u32,
                    joined,
                    symbols[left],
                    symbols[right],
                )));
            }
        };
        for right in 1..length {
            push(&mut heap, symbols, right - 1, right);
        }
        while let Some(Reverse((_, left, joined, was_left, was_right))) = heap.pop() {
            let left = left as usize;
            let right = next[left] as usize;
            // An entry is stale when a neighbour was joined since it was pushed.
            if symbols[left] != was_left || right >= length || symbols[right] != was_right {
                continue;
            }
            symbols[left] = joined;
            symbols[right] = NONE;
            next[left] = next[right];
            let after = next[left] as usize;
            if after < length {
                previous[after] = left as u32;
                push(&mut heap, symbols, left, after);
            }
            if previous[left] != NONE {
                push(&mut heap, symbols, previous[left] as usize, left);
            }
        }
        let mut kept = first;
        for i in first..ids.len() {
            if ids[i] != NONE {
                ids[kept] = ids[i];
                kept += 1;
            }
        }
        ids.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Letters a–d as single tokens 0–3, every further token a random merge of earlier ones.
    fn random_rules(choices: &[(u8, u8)]) -> Bpe {
        let mut bytes = [None; 256];
        let mut texts: Vec<Vec<u8>> = (0..4u8).map(|i| vec![b'a' + i]).collect();
        for i in 0..4u32 {
            bytes[usize::from(b'a') + i as usize] = Some(i);
        }
        let mut merges = Vec::new();
        for &(l, r) in choices {
            let (left, right) = (usize::from(l) % texts.len(), usize::from(r) % texts.len());
            let joined = [texts[left].clone(), texts[right].clone()].concat();
            let id = texts.iter().position(|t| *t == joined).unwrap_or_else(|| {
                texts.push(joined.clone());
                texts.len() - 1
            });
            merges.push((left as u32, right as u32, id as u32));
        }
        let entries = texts
            .into_iter()
            .enumerate()
            .map(|(i, t)| (t.into_boxed_slice(), i as u32))
            .collect();
        Bpe::new(Start::Bytes, entries, bytes, merges, false)
    }

    fn naive(bpe: &Bpe, mut ids: Vec<u32>) -> Vec<u32> {
        loop {
            let best = (1..ids.len()).min_by_key(|&i| bpe.rank(ids[i - 1], ids[i]).0);
            match best.map(|i| (i, bpe.rank(ids[i - 1], ids[i]))) {
                Some((i, (rank, joined))) if rank != NONE => {
                    ids[i - 1] = joined;
                    ids.remove(i);
                }
                _ => return ids,
            }
        }
    }

    proptest! {
        #[test]
        fn both_ways_of_merging_equal_the_naive_one(
            choices in prop::collection::vec(any::<(u8, u8)>(), 0..40),
            word in "[a-d]{0,80}",
        ) {
            let bpe = random_rules(&choices);
            let start: Vec<u32> = word.bytes().map(|b| u32::from(b - b'a')).collect();
            let expected = naive(&bpe, start.clone());
            let mut by_heap = start.clone();
            bpe.merge_with_heap(&mut by_heap, 0);
            prop_assert_eq!(&by_heap, &expected);
            let mut encoded = vec![7];
            bpe.encode(&word, &mut encoded);
            prop_assert_eq!(&encoded[1..], &expected[..]);
            if start.len() <= SCANNED {
                let mut scanned = start;
                bpe.merge_scanning(&mut scanned, 0);
                prop_assert_eq!(&scanned, &expected);
            }
        }
    }
}
