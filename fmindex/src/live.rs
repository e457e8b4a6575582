//! Rows of deleted documents: a bit vector with rank over the rows of one segment.

use rayon::prelude::*;

use crate::bwt::Bwt;
use crate::range::RowRange;

/// Marks of dead rows; a count before every 512 rows, so that rank reads one count and at most 8 words.
#[derive(Clone, Debug)]
pub(crate) struct DeadRows {
    bits: Vec<u64>,
    ranks: Vec<u32>,
    rows: u32,
}

const WORDS: usize = 8;

impl DeadRows {
    /// Walks each span of prefix lengths (a document's tokens) once and marks its rows.
    pub(crate) fn of(bwt: &Bwt, spans: &[std::ops::Range<u32>]) -> Self {
        let rows = bwt.rows;
        let mut bits = vec![0u64; (rows as usize).div_ceil(64).next_multiple_of(WORDS) + WORDS];
        // Batches bound the memory that the rows take before they are marked.
        for batch in spans.chunks(1024) {
            let marked: Vec<Vec<u32>> = batch
                .par_iter()
                .map(|span| bwt.rows_of(span.clone()))
                .collect();
            for row in marked.into_iter().flatten() {
                bits[row as usize / 64] |= 1 << (row % 64);
            }
        }
        let mut ranks = Vec::with_capacity(bits.len() / WORDS + 1);
        let mut total = 0;
        for words in bits.chunks(WORDS) {
            ranks.push(total);
            total += words.iter().map(|word| word.count_ones()).sum::<u32>();
        }
        Self { bits, ranks, rows }
    }

    #[inline]
    pub(crate) fn contains(&self, row: u32) -> bool {
        self.bits
            .get(row as usize / 64)
            .is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Calls `each` with the dead rows of a range, ascending.
    #[inline]
    pub(crate) fn each(&self, range: RowRange, mut each: impl FnMut(u32)) {
        let end = range.end.min(self.rows);
        let mut row = range.start;
        while row < end {
            let shift = row % 64;
            let mut bits = self.bits[row as usize / 64] >> shift;
            while bits != 0 {
                let dead = row + bits.trailing_zeros();
                if dead >= end {
                    return;
                }
                each(dead);
                bits &= bits - 1;
            }
            row += 64 - shift;
        }
    }

    /// Dead rows before `row`.
    #[inline]
    fn rank(&self, row: u32) -> u32 {
        let row = row.min(self.rows) as usize;
        let (group, word) = (row / (64 * WORDS), row / 64);
        let whole = &self.bits[group * WORDS..word];
        let mut rank = self.ranks[group];
        rank += whole.iter().map(|word| word.count_ones()).sum::<u32>();
        rank + (self.bits[word] & ((1 << (row % 64)) - 1)).count_ones()
    }

    /// Dead rows of a range.
    #[inline]
    pub(crate) fn count(&self, range: RowRange) -> u32 {
        if range.is_empty() {
            return 0;
        }
        self.rank(range.end) - self.rank(range.start)
    }
}
