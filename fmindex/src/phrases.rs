//! The continuations of wide phrases, stored: which symbols follow them, and how often. File `fm.phrases`.
//!
//! Listing the distinct symbols of a range of a million rows costs milliseconds in any structure over the
//! rows; of a corpus only some thousand phrases have such ranges. Their lists are computed once, at
//! build time, and kept as Elias–Fano lists or, where that is smaller, as bitmaps, followed by the counts
//! in bytes. They are found by their range of rows, so two phrases with the same rows share
//! one list. The empty phrase is one of them.

use std::collections::HashSet;
use std::path::Path;

use rayon::prelude::*;

use crate::Symbol;
use crate::bits::{BitWriter, EliasFano, with_bit_instructions, word};
use crate::build::{BuildError, Progress, stage};
use crate::bwt::Bwt;
use crate::file::{File, FileError, Words, Writer};
use crate::range::RowRange;
use crate::tally::{MaskWords, Tally, with_tally};

const FILE: &str = "fm.phrases";
const KIND: &str = "fm-phrases";

/// No longer phrases are stored: a corpus that repeats one text has wide phrases of any length.
const LONGEST: usize = 16;

/// A coded list: which symbols, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SymbolList<'a> {
    words: &'a [u64],
    alphabet: u32,
}

const BITMAP: u64 = 1 << 32;

impl<'a> SymbolList<'a> {
    /// A list that was encoded for `alphabet`.
    pub(crate) fn new(words: &'a [u64], alphabet: u32) -> Self {
        Self { words, alphabet }
    }

    /// Takes the words of a list from what `tally` holds, and empties it.
    pub(crate) fn encode(tally: &mut Tally, alphabet: u32) -> Vec<u64> {
        let (mut symbols, mut counts) = (Vec::new(), Vec::new());
        tally.drain(|symbol, count| {
            symbols.push(symbol);
            counts.push(count);
        });
        let mut bits = BitWriter::default();
        let sparse = EliasFano::new(64, symbols.len(), alphabet as usize).bits();
        let dense = (alphabet as usize).next_multiple_of(64);
        // A bitmap of up to twice the size: it is copied in a fraction of the time.
        if dense <= 2 * sparse {
            bits.push(symbols.len() as u64 | BITMAP, 64);
            let mut next = symbols.iter().peekable();
            for at in (0..dense as u32).step_by(64) {
                let mut word = 0u64;
                while let Some(symbol) = next.next_if(|&&symbol| symbol < at + 64) {
                    word |= 1 << (symbol - at);
                }
                bits.push(word, 64);
            }
        } else {
            bits.push(symbols.len() as u64, 64);
            EliasFano::write(&symbols, alphabet as usize, &mut bits);
        }
        bits.align();
        for count in counts {
            if count < ESCAPE {
                bits.push(count, 8);
            } else {
                bits.push(ESCAPE | count << 8, 40);
            }
        }
        bits.into_words()
    }

    fn sparse(self) -> Option<EliasFano> {
        let header = word(self.words, 0);
        if header & BITMAP != 0 {
            return None;
        }
        Some(EliasFano::new(64, self.len(), self.alphabet as usize))
    }

    fn bitmap(self) -> &'a [u64] {
        let words = (self.alphabet as usize).div_ceil(64);
        self.words.get(1..1 + words).unwrap_or(&[])
    }

    /// Number of symbols.
    pub(crate) fn len(self) -> usize {
        (word(self.words, 0) & 0xffff_ffff).min(u64::from(self.alphabet)) as usize
    }

    /// Adds the symbols to a mask.
    pub(crate) fn mask(self, mask: &mut MaskWords<'_>) {
        match self.sparse() {
            Some(list) => with_bit_instructions(|| {
                list.each(self.words, |_, symbol| mask.set(symbol as Symbol));
            }),
            None => mask.join(self.bitmap().iter().map(|&word| u64::from_le(word))),
        }
    }

    /// Calls `each` with every symbol and its count, ascending.
    #[inline(always)]
    pub(crate) fn each(self, each: impl FnMut(Symbol, u64)) {
        with_bit_instructions(|| self.each_plainly(each));
    }

    #[inline(always)]
    fn each_plainly(self, mut each: impl FnMut(Symbol, u64)) {
        if let Some(list) = self.sparse() {
            let mut counts = Counts::new(self.words, list.end().div_ceil(64));
            list.each(self.words, |_, symbol| {
                each(symbol as Symbol, counts.next());
            });
            return;
        }
        let bitmap = self.bitmap();
        let mut counts = Counts::new(self.words, 1 + bitmap.len());
        for (at, &word) in bitmap.iter().enumerate() {
            let mut bits = u64::from_le(word);
            while bits != 0 {
                let symbol = at as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                each(symbol, counts.next());
            }
        }
    }
}

/// A count of [`ESCAPE`] or more is written as this byte and four more.
const ESCAPE: u64 = 255;

/// Counts in bytes: most are small, and a byte is read in a fraction of the time of a code of bits.
struct Counts<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Counts<'a> {
    fn new(words: &'a [u64], from: usize) -> Self {
        Self {
            bytes: bytemuck::cast_slice(words.get(from..).unwrap_or(&[])),
            at: 0,
        }
    }

    #[inline(always)]
    fn next(&mut self) -> u64 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(1);
        self.at += 1;
        if u64::from(byte) < ESCAPE {
            return u64::from(byte);
        }
        let four = self.bytes.get(self.at..self.at + 4);
        self.at += 4;
        four.map_or(1, |four| {
            u64::from(u32::from_le_bytes(four.try_into().expect("four bytes")))
        })
    }
}

fn key(range: RowRange) -> u64 {
    u64::from(range.start) << 32 | u64::from(range.end)
}

/// Finds the wide phrases of the rows in `dir`, writes their lists, and returns the file's size in bytes.
/// Phrases with at least `wide` rows are wide.
pub(crate) fn write(dir: &Path, wide: u32, progress: &dyn Progress) -> Result<u64, BuildError> {
    let bwt = Bwt::open(dir)?;
    stage(progress, "list wide phrases", u64::from(bwt.rows))?;
    let mut lists: Vec<(u64, Vec<u64>)> = Vec::new();
    let mut seen = HashSet::new();
    let mut level = vec![bwt.full()];
    for _ in 0..=LONGEST {
        if progress.interrupted() {
            return Err(BuildError::Interrupted);
        }
        level.retain(|&range| seen.insert(key(range)));
        let found: Vec<(Vec<u64>, Vec<RowRange>)> = level
            .par_iter()
            .map(|&range| list_phrase(&bwt, range, wide))
            .collect();
        let mut longer = Vec::new();
        for (&range, (list, extended)) in level.iter().zip(found) {
            lists.push((key(range), list));
            longer.extend(extended);
        }
        level = longer;
    }
    lists.sort_unstable_by_key(|&(key, _)| key);
    let path = dir.join(FILE);
    let mut writer = Writer::create(&path, KIND)?;
    let keys: Vec<u64> = lists.iter().map(|&(key, _)| key).collect();
    writer.begin("meta")?;
    writer.write_u32s(&[wide])?;
    writer.begin("ranges")?;
    writer.write_u64s(&keys)?;
    let mut offsets = vec![0u64];
    writer.begin("lists")?;
    for (_, list) in &lists {
        writer.write_u64s(list)?;
        offsets.push(offsets[offsets.len() - 1] + list.len() as u64);
    }
    writer.begin("offsets")?;
    writer.write_u64s(&offsets)?;
    writer.finish()?;
    let size = std::fs::metadata(&path).map_err(|e| FileError::io(&path, "read the size", e))?;
    Ok(size.len())
}

/// The coded list of a range, and the wide ranges of the phrases one token longer.
fn list_phrase(bwt: &Bwt, range: RowRange, wide: u32) -> (Vec<u64>, Vec<RowRange>) {
    with_tally(bwt.alphabet, |tally| {
        let mut longer = Vec::new();
        if range == bwt.full() {
            for code in 1..bwt.codes() {
                let bucket = bwt.bucket(code);
                if !bucket.is_empty() {
                    tally.add(bwt.symbol(code), u64::from(bucket.len()));
                }
                if bucket.len() >= wide {
                    longer.push(bucket);
                }
            }
        } else {
            bwt.list::<true>(range, None, |code, count| {
                if code != 0 {
                    tally.add(bwt.symbol(code), u64::from(count));
                }
            });
        }
        let list = SymbolList::encode(tally, bwt.alphabet);
        if range != bwt.full() {
            SymbolList::new(&list, bwt.alphabet).each(|symbol, count| {
                if count >= u64::from(wide)
                    && let Some(code) = bwt.code(symbol)
                {
                    longer.push(bwt.extend(range, code));
                }
            });
        }
        (list, longer)
    })
}

/// The mapped lists of a segment.
#[derive(Clone, Debug)]
pub(crate) struct Phrases {
    file: File,
    wide: u32,
    ranges: Words<u64>,
    offsets: Words<u64>,
    words: Words<u64>,
    alphabet: u32,
}

impl Phrases {
    pub(crate) fn open(dir: &Path, alphabet: u32) -> Result<Self, FileError> {
        let path = dir.join(FILE);
        let file = File::open(&path, KIND)?;
        let ranges = file.section("ranges")?.u64s()?;
        let offsets = file.section("offsets")?.u64s()?;
        if offsets.len() != ranges.len() + 1 {
            let what = format!("the section offsets should have {} words", ranges.len() + 1);
            return Err(FileError::damaged(&path, 0, what));
        }
        let meta = file.section("meta")?.u32s()?;
        let wide = meta.get(0);
        Ok(Self {
            wide: wide.ok_or_else(|| FileError::damaged(&path, 0, "the section meta is empty"))?,
            words: file.section("lists")?.u64s()?,
            file,
            ranges,
            offsets,
            alphabet,
        })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Number of lists.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The number of the list of a range, if it is stored.
    #[inline]
    pub(crate) fn find(&self, range: RowRange) -> Option<usize> {
        // The first range is the widest: all rows.
        if range.len() < self.wide && range != self.range(0) {
            return None;
        }
        let wanted = key(range);
        let ranges = self.ranges.raw();
        ranges
            .binary_search_by_key(&wanted, |&key| u64::from_le(key))
            .ok()
    }

    /// A list by its number.
    #[inline]
    pub(crate) fn list(&self, number: usize) -> SymbolList<'_> {
        let at = |number: usize| self.offsets.get(number).unwrap_or(0) as usize;
        let words = self.words.raw().get(at(number)..at(number + 1));
        SymbolList::new(words.unwrap_or(&[]), self.alphabet)
    }

    /// The range of a list by its number.
    pub(crate) fn range(&self, number: usize) -> RowRange {
        let key = self.ranges.get(number).unwrap_or(0);
        RowRange {
            start: (key >> 32) as u32,
            end: key as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_is_what_was_tallied(
            counts in prop::collection::btree_map(0u32..700, 1u64..(1 << 31), 0..600),
            alphabet in 700u32..5000,
        ) {
            let words = with_tally(alphabet, |tally| {
                for (&symbol, &count) in &counts {
                    tally.add(symbol, count);
                }
                SymbolList::encode(tally, alphabet)
            });
            let list = SymbolList::new(&words, alphabet);
            let mut listed = std::collections::BTreeMap::new();
            list.each(|symbol, count| assert_eq!(listed.insert(symbol, count), None));
            prop_assert_eq!(&listed, &counts);
            let mut mask = bitvec::vec::BitVec::<u64>::repeat(true, alphabet as usize + 9);
            crate::tally::fill_mask(&mut mask, alphabet, |words| list.mask(words));
            prop_assert!(mask.iter_ones().eq(counts.keys().map(|&symbol| symbol as usize)));
        }

        #[test]
        fn any_words_are_survived(words in prop::collection::vec(any::<u64>(), 0..40)) {
            let mut seen = 0;
            SymbolList::new(&words, 900).each(|_, _| seen += 1);
            prop_assert!(seen <= 960);
        }
    }
}
