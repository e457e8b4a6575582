//! Rows of deleted documents: a bit vector with rank over the rows of one segment, in memory or in a file.
//!
//! A document is deleted by walking its tokens once and marking the row of each (`LF` steps, Ferragina and
//! Manzini 2000). A symbol then continues a phrase if its range is wider than its dead rows. One bit a row
//! for the marks and 1/16 bit for their counts.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use crate::file::{File, FileError, Words, Writer};
use crate::range::RowRange;
use crate::segment::Segment;

const KIND: &str = "fm-dead";

/// Words a count stands before: rank reads one count and at most so many words.
const WORDS: usize = 8;

/// A document that was to be deleted and does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("document {document} is to be marked deleted, but the segment has {documents} documents")]
pub struct UnknownDocument {
    /// The document.
    pub document: u32,
    /// Documents of the segment.
    pub documents: u32,
}

/// The rows of a segment's deleted documents; cheap to clone, `Send` and `Sync`.
///
/// ```
/// use fmindex::{BuildOptions, DeadRows, Index, Segment, build_segment};
///
/// let dir = tempfile::tempdir()?;
/// let options = BuildOptions { alphabet: 10, separator: 9, ..BuildOptions::default() };
/// build_segment(dir.path(), vec![1, 2, 9, 1, 3, 9], &[0, 3], &options, &())?;
/// let segment = Segment::open(dir.path())?;
/// DeadRows::mark(&segment, None, &[1])?.write(&dir.path().join("dead-1"))?;
///
/// let dead = DeadRows::open(&dir.path().join("dead-1"), &segment)?;
/// let index = Index::with_dead_rows(vec![segment], vec![Some(dead)])?;
/// assert!(index.allows(&index.range(&[1]), 2));
/// assert!(!index.allows(&index.range(&[1]), 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeadRows {
    /// Marks of rows, little-endian, whole groups of [`WORDS`] and one group more.
    bits: Store<u64>,
    /// Marked rows before each group, little-endian.
    ranks: Store<u32>,
    /// Marks of documents, little-endian.
    gone: Store<u64>,
    rows: u32,
    documents: u32,
    /// Dead documents and their tokens.
    count: u32,
    tokens: u64,
    file: Option<File>,
}

/// Little-endian words in memory or in a mapped file.
#[derive(Clone, Debug)]
enum Store<T> {
    Owned(Arc<[T]>),
    Mapped(Words<T>),
}

impl<T: crate::file::Word> Store<T> {
    #[inline(always)]
    fn raw(&self) -> &[T] {
        match self {
            Self::Owned(words) => words,
            Self::Mapped(words) => words.raw(),
        }
    }
}

/// Words of the marks of `rows` rows.
fn row_words(rows: u32) -> usize {
    (rows as usize).div_ceil(64).next_multiple_of(WORDS) + WORDS
}

impl DeadRows {
    /// Marks the rows of `documents` (any order, repeats allowed) and of what is dead already, `before`.
    ///
    /// # Errors
    /// A document does not exist.
    pub fn mark(
        segment: &Segment,
        before: Option<&Self>,
        documents: &[u32],
    ) -> Result<Self, UnknownDocument> {
        let bwt = &segment.bwt;
        let (rows, all) = (bwt.rows, segment.documents());
        let mut bits: Vec<u64> = vec![0; row_words(rows)];
        let mut gone: Vec<u64> = vec![0; (all as usize).div_ceil(64)];
        let (mut count, mut tokens) = (0, 0);
        if let Some(before) = before.filter(|before| before.rows == rows && before.documents == all)
        {
            bits.copy_from_slice(before.bits.raw());
            gone.copy_from_slice(before.gone.raw());
            (count, tokens) = (before.count, before.tokens);
        }
        let mut spans = Vec::new();
        for &document in documents {
            if document >= all {
                return Err(UnknownDocument {
                    document,
                    documents: all,
                });
            }
            let mark = (1u64 << (document % 64)).to_le();
            let word = &mut gone[document as usize / 64];
            if *word & mark == 0 {
                *word |= mark;
                count += 1;
                let span = segment.document_span(document);
                tokens += span.len() as u64;
                spans.push(span);
            }
        }
        // Batches bound the memory that the rows take before they are marked.
        for batch in spans.chunks(1024) {
            let marked: Vec<Vec<u32>> = batch
                .par_iter()
                .map(|span| bwt.rows_of(span.clone()))
                .collect();
            for row in marked.into_iter().flatten() {
                bits[row as usize / 64] |= (1u64 << (row % 64)).to_le();
            }
        }
        let mut ranks = Vec::with_capacity(bits.len() / WORDS);
        let mut total = 0u32;
        for words in bits.chunks(WORDS) {
            ranks.push(total.to_le());
            total += words.iter().map(|word| word.count_ones()).sum::<u32>();
        }
        Ok(Self {
            bits: Store::Owned(bits.into()),
            ranks: Store::Owned(ranks.into()),
            gone: Store::Owned(gone.into()),
            rows,
            documents: all,
            count,
            tokens,
            file: None,
        })
    }

    /// Writes a new file at `path`; one that is there is replaced as a whole, by rename.
    ///
    /// # Errors
    /// The file cannot be written; then nothing is left of it.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let mut writer = Writer::create(path, KIND)?;
        writer.begin("meta")?;
        let (low, high) = (self.tokens as u32, (self.tokens >> 32) as u32);
        writer.write_u32s(&[self.rows, self.documents, self.count, low, high])?;
        writer.section("documents", bytemuck::cast_slice(self.gone.raw()))?;
        writer.section("rows", bytemuck::cast_slice(self.bits.raw()))?;
        writer.section("ranks", bytemuck::cast_slice(self.ranks.raw()))?;
        writer.finish()
    }

    /// Maps the dead rows of `segment` from a file. Reads its header only, whatever its size.
    ///
    /// # Errors
    /// The file is missing, truncated, of another kind, version or byte order, or speaks of another segment.
    pub fn open(path: &Path, segment: &Segment) -> Result<Self, FileError> {
        let file = File::open(path, KIND)?;
        let meta = file.section("meta")?.u32s()?;
        let word = |at: usize| {
            let what = "the section meta is too short";
            let word = meta.get(at);
            word.ok_or_else(|| FileError::damaged(path, 0, what))
        };
        let (rows, documents, count) = (word(0)?, word(1)?, word(2)?);
        let tokens = u64::from(word(3)?) | u64::from(word(4)?) << 32;
        if (rows, documents) != (segment.bwt.rows, segment.documents()) {
            let what = format!(
                "it marks rows of a segment of {rows} rows and {documents} documents, this one has {} and {}",
                segment.bwt.rows,
                segment.documents()
            );
            return Err(FileError::damaged(path, 0, what));
        }
        if count > documents || tokens > segment.tokens() {
            let what = "the section meta contradicts itself";
            return Err(FileError::damaged(path, 0, what));
        }
        let wrong = |name: &str, length: usize| {
            let what = format!("the section {name} should have {length} words");
            FileError::damaged(path, 0, what)
        };
        let words = |name: &str, length: usize| {
            let words = file.section(name)?.u64s()?;
            let right = words.len() == length;
            right.then_some(words).ok_or_else(|| wrong(name, length))
        };
        let gone = words("documents", (documents as usize).div_ceil(64))?;
        let bits = words("rows", row_words(rows))?;
        let ranks = file.section("ranks")?.u32s()?;
        if ranks.len() != bits.len() / WORDS {
            return Err(wrong("ranks", bits.len() / WORDS));
        }
        Ok(Self {
            bits: Store::Mapped(bits),
            ranks: Store::Mapped(ranks),
            gone: Store::Mapped(gone),
            rows,
            documents,
            count,
            tokens,
            file: Some(file),
        })
    }

    /// Reads every byte of the file and compares all checksums; of marks in memory there is nothing to check.
    ///
    /// # Errors
    /// The first damaged part.
    pub fn verify(&self) -> Result<(), FileError> {
        self.file.as_ref().map_or(Ok(()), File::verify)
    }

    /// Brings the file into memory.
    pub(crate) fn warm(&self) {
        self.file.iter().for_each(File::warm);
    }

    /// Number of dead documents.
    pub fn document_count(&self) -> u32 {
        self.count
    }

    /// Tokens of the dead documents, separators included.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Whether a document is dead.
    #[inline]
    pub fn is_dead(&self, document: u32) -> bool {
        let word = self.gone.raw().get(document as usize / 64);
        word.is_some_and(|word| u64::from_le(*word) >> (document % 64) & 1 == 1)
    }

    /// The dead documents, ascending.
    pub fn documents(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.documents).filter(|&document| self.is_dead(document))
    }

    /// The rows that it speaks of.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    #[inline]
    pub(crate) fn contains(&self, row: u32) -> bool {
        let word = self.bits.raw().get(row as usize / 64);
        word.is_some_and(|word| u64::from_le(*word) >> (row % 64) & 1 == 1)
    }

    /// Calls `each` with the dead rows of a range, ascending.
    #[inline]
    pub(crate) fn each(&self, range: RowRange, mut each: impl FnMut(u32)) {
        let words = self.bits.raw();
        let end = range.end.min(self.rows);
        let mut row = range.start;
        while row < end {
            let shift = row % 64;
            let mut bits = u64::from_le(words[row as usize / 64]) >> shift;
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
        let bits = self.bits.raw();
        let whole = &bits[group * WORDS..word];
        let ones = whole.iter().map(|word| word.count_ones()).sum::<u32>();
        let part = u64::from_le(bits[word]) & ((1 << (row % 64)) - 1);
        // A damaged file may have any counts.
        u32::from_le(self.ranks.raw()[group]).wrapping_add(ones + part.count_ones())
    }

    /// Dead rows of a range.
    #[inline]
    pub(crate) fn count(&self, range: RowRange) -> u32 {
        if range.is_empty() {
            return 0;
        }
        let dead = self.rank(range.end).wrapping_sub(self.rank(range.start));
        dead.min(range.len())
    }
}
