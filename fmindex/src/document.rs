//! The FM-index of one document, built when asked or stored in a segment.

use std::path::Path;

use rayon::prelude::*;

use crate::Symbol;
use crate::build::{BuildError, Progress, stage};
use crate::file::{File, FileError, Words, Writer};
use crate::range::RowRange;
use crate::segment::Segment;
use crate::sort;
use crate::tally::Continuation;

/// FM-index of one document over its reversed tokens (Ferragina and Manzini 2000), small enough to be
/// plain: the next symbol of every row, the rows by symbol (which is the function Ψ), all positions.
/// 20 bytes a token in memory.
///
/// Row 0 is the empty prefix; [`DocumentIndex::full`] is the empty phrase.
///
/// ```
/// use fmindex::DocumentIndex;
/// let index = DocumentIndex::build(&[5, 6, 5, 7, 0], 0);
/// let five = index.extend(index.full(), 5);
/// assert_eq!(five.len(), 2);
/// assert_eq!(index.extend(index.extend(five, 7), 0).len(), 0); // no phrase crosses a separator
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentIndex {
    tokens: Vec<Symbol>,
    /// Symbol by code: the separator first, the others ascending.
    symbols: Vec<Symbol>,
    /// Rows of smaller codes, row 0 not counted; one more entry for the total.
    starts: Vec<u32>,
    /// Code of the token that follows each row's prefix; 0 at the end of the document.
    next: Vec<u32>,
    /// Row `j + 1` is the prefix of row `by_code[j]` and one token more.
    by_code: Vec<u32>,
    /// Prefix length of each row.
    positions: Vec<u32>,
}

impl DocumentIndex {
    /// Builds the index of a document from its tokens, separators included.
    pub fn build(tokens: &[Symbol], separator: Symbol) -> Self {
        let mut symbols: Vec<Symbol> = tokens.to_vec();
        symbols.sort_unstable();
        symbols.dedup();
        symbols.retain(|&symbol| symbol != separator);
        symbols.insert(0, separator);
        let codes: Vec<u32> = tokens
            .iter()
            .map(|&symbol| code_of(&symbols, symbol).unwrap_or(0))
            .collect();
        let mut reversed: Vec<i32> = codes.iter().rev().map(|&code| code as i32).collect();
        let suffixes = sort::suffix_array_i32(&mut reversed, symbols.len() as u32, 1)
            // Only a lack of memory makes the sorter fail; comparing suffixes takes none.
            .unwrap_or_else(|_| {
                let mut suffixes: Vec<i32> = (0..reversed.len() as i32).collect();
                suffixes.sort_by_key(|&at| &reversed[at as usize..]);
                suffixes
            });
        let length = tokens.len() as u32;
        let positions = std::iter::once(0)
            .chain(
                suffixes[..tokens.len()]
                    .iter()
                    .map(|&at| length - at as u32),
            )
            .collect();
        Self::assemble(tokens.to_vec(), symbols, &codes, positions)
    }

    /// Fills in what follows from the sorted positions, in linear time.
    fn assemble(
        tokens: Vec<Symbol>,
        symbols: Vec<Symbol>,
        codes: &[u32],
        positions: Vec<u32>,
    ) -> Self {
        let mut starts = vec![0u32; symbols.len() + 1];
        for &code in codes {
            starts[code as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut fill = starts.clone();
        let mut by_code = vec![0u32; tokens.len()];
        let mut next = Vec::with_capacity(positions.len());
        for (row, &position) in positions.iter().enumerate() {
            let code = codes.get(position as usize).copied();
            next.push(code.unwrap_or(0));
            if let Some(code) = code {
                let at = &mut fill[code as usize];
                by_code[*at as usize] = row as u32;
                *at += 1;
            }
        }
        Self {
            tokens,
            symbols,
            starts,
            next,
            by_code,
            positions,
        }
    }

    /// The document's tokens, separators included.
    pub fn tokens(&self) -> &[Symbol] {
        &self.tokens
    }

    /// The separator that closes every paragraph.
    pub fn separator(&self) -> Symbol {
        // Code 0 is always its own.
        self.symbols[0]
    }

    /// The range of the empty phrase.
    pub fn full(&self) -> RowRange {
        RowRange {
            start: 0,
            end: self.positions.len() as u32,
        }
    }

    /// The range of the phrase with `symbol` appended; empty for the separator and unknown symbols.
    pub fn extend(&self, range: RowRange, symbol: Symbol) -> RowRange {
        let Some(code) = code_of(&self.symbols, symbol).filter(|&code| code != 0) else {
            return RowRange::EMPTY;
        };
        let from = self.starts[code as usize];
        let list = &self.by_code[from as usize..self.starts[code as usize + 1] as usize];
        let start = list.partition_point(|&row| row < range.start) as u32;
        let end = list.partition_point(|&row| row < range.end) as u32;
        if start >= end {
            return RowRange::EMPTY;
        }
        RowRange {
            start: from + start + 1,
            end: from + end + 1,
        }
    }

    /// The range of a phrase.
    pub fn range(&self, phrase: &[Symbol]) -> RowRange {
        phrase
            .iter()
            .fold(self.full(), |range, &symbol| self.extend(range, symbol))
    }

    /// Symbols that follow the rows of `range`, with counts, ascending; never the separator.
    pub fn continuations(&self, range: RowRange, into: &mut Vec<Continuation>) {
        into.clear();
        let mut codes: Vec<u32> = self.next_codes(range).collect();
        codes.sort_unstable();
        for run in codes.chunk_by(|a, b| a == b) {
            into.push(Continuation {
                symbol: self.symbols[run[0] as usize],
                count: run.len() as u64,
            });
        }
    }

    fn next_codes(&self, range: RowRange) -> impl Iterator<Item = u32> + '_ {
        let rows = self.next.get(range.span()).unwrap_or(&[]);
        rows.iter().copied().filter(|&code| code != 0)
    }

    /// The symbols that follow the rows of `range`, one a row, unsorted; never the separator.
    pub(crate) fn next_symbols(&self, range: RowRange) -> impl Iterator<Item = Symbol> + '_ {
        self.next_codes(range)
            .map(|code| self.symbols[code as usize])
    }

    /// Token offsets at which the phrase of `length` tokens with the rows `range` starts, in row order.
    /// For the empty phrase, the offset of every token that is not a separator.
    pub fn positions(&self, range: RowRange, length: u32) -> impl Iterator<Item = u32> + '_ {
        let range = if length == 0 {
            RowRange {
                start: self.starts[1] + 1,
                end: range.end,
            }
        } else {
            range
        };
        let rows = self.positions.get(range.span()).unwrap_or(&[]);
        rows.iter()
            .map(move |&position| position.saturating_sub(length.max(1)))
    }

    /// Rows of a phrase of `length` tokens that count as occurrences.
    pub(crate) fn occurrences(&self, range: RowRange, length: u32) -> u32 {
        match length {
            0 => range.len().saturating_sub(self.starts[1] + 1),
            _ => range.len(),
        }
    }
}

fn code_of(symbols: &[Symbol], symbol: Symbol) -> Option<u32> {
    let (&separator, others) = symbols.split_first()?;
    if symbol == separator {
        return Some(0);
    }
    others.binary_search(&symbol).ok().map(|at| at as u32 + 1)
}

const FILE: &str = "document-fm.index";
const KIND: &str = "document-fm";

/// The stored per-document indexes of a segment: for each document its symbols, its codes and its
/// sorted positions, in 16 bits where they fit; about 5 bytes a token.
#[derive(Clone, Debug)]
pub struct DocumentIndexes {
    file: File,
    offsets: Words<u64>,
    data: Words<u32>,
}

/// Stores the index of every document of `segment` in its folder `dir`, as `document-fm.index`, and
/// returns the file's size in bytes. Open the segment again to use them.
///
/// # Errors
/// The file cannot be written, the segment is damaged, or `progress` interrupted.
pub fn build_document_indexes(
    dir: &Path,
    segment: &Segment,
    progress: &dyn Progress,
) -> Result<u64, BuildError> {
    let documents = segment.documents();
    stage(progress, "index documents", u64::from(documents))?;
    let path = dir.join(FILE);
    let mut writer = Writer::create(&path, KIND)?;
    writer.begin("data")?;
    let mut offsets = vec![0u64];
    let mut at = 0;
    for batch in (0..documents).collect::<Vec<_>>().chunks(512) {
        if progress.interrupted() {
            return Err(BuildError::Interrupted);
        }
        let packed: Vec<Vec<u32>> = batch
            .par_iter()
            .map(|&document| {
                let span = segment.document_span(document);
                let tokens = segment.extract(span.clone());
                if tokens.len() != span.len() {
                    let what = format!("document {document} cannot be walked to its end");
                    return Err(FileError::damaged(segment.path(), 0, what));
                }
                Ok(pack(&DocumentIndex::build(&tokens, segment.separator())))
            })
            .collect::<Result<_, _>>()?;
        for words in packed {
            writer.write_u32s(&words)?;
            at += words.len() as u64;
            offsets.push(at);
        }
        progress.advance(u64::from(batch[batch.len() - 1]) + 1);
    }
    writer.begin("offsets")?;
    writer.write_u64s(&offsets)?;
    writer.finish()?;
    let size = std::fs::metadata(&path).map_err(|e| FileError::io(&path, "read the size", e))?;
    Ok(size.len())
}

fn pack(index: &DocumentIndex) -> Vec<u32> {
    if index.tokens.is_empty() {
        return Vec::new();
    }
    let mut words = vec![index.tokens.len() as u32, index.symbols.len() as u32 - 1];
    words.extend_from_slice(&index.symbols[1..]);
    let codes = index
        .tokens
        .iter()
        .map(|&symbol| code_of(&index.symbols, symbol).unwrap_or(0));
    pack_numbers(codes, index.symbols.len() as u32 - 1, &mut words);
    pack_numbers(
        index.positions[1..].iter().copied(),
        index.tokens.len() as u32,
        &mut words,
    );
    words
}

/// Numbers up to `most`: two a word where 16 bits hold them, else one.
fn pack_numbers(numbers: impl Iterator<Item = u32>, most: u32, words: &mut Vec<u32>) {
    if most > u32::from(u16::MAX) {
        words.extend(numbers);
        return;
    }
    let mut low = None;
    for number in numbers {
        match low.take() {
            None => low = Some(number),
            Some(low) => words.push(low | number << 16),
        }
    }
    words.extend(low);
}

/// Reads `count` numbers up to `most` from the front of `words`.
fn unpack_numbers(words: &mut &[u32], count: usize, most: u32) -> Option<Vec<u32>> {
    let narrow = most <= u32::from(u16::MAX);
    let (mine, rest) = words.split_at_checked(if narrow { count.div_ceil(2) } else { count })?;
    *words = rest;
    let numbers: Vec<u32> = if narrow {
        let halves = mine.iter().flat_map(|&word| {
            let word = u32::from_le(word);
            [word & 0xffff, word >> 16]
        });
        halves.take(count).collect()
    } else {
        mine.iter().map(|&word| u32::from_le(word)).collect()
    };
    numbers
        .iter()
        .all(|&number| number <= most)
        .then_some(numbers)
}

impl DocumentIndexes {
    /// Opens the stored indexes of the segment in `dir`; `None` if it has none.
    pub(crate) fn open(dir: &Path) -> Result<Option<Self>, FileError> {
        let path = dir.join(FILE);
        if !path
            .try_exists()
            .map_err(|e| FileError::io(&path, "look for the file", e))?
        {
            return Ok(None);
        }
        let file = File::open(&path, KIND)?;
        let offsets = file.section("offsets")?.u64s()?;
        if offsets.is_empty() {
            return Err(FileError::damaged(&path, 0, "the section offsets is empty"));
        }
        Ok(Some(Self {
            data: file.section("data")?.u32s()?,
            offsets,
            file,
        }))
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Number of documents.
    pub fn documents(&self) -> u32 {
        (self.offsets.len() - 1) as u32
    }

    /// The stored index of a document, whose paragraphs are closed by `separator`.
    ///
    /// # Errors
    /// The document does not exist, or what is stored is damaged.
    pub fn get(&self, document: u32, separator: Symbol) -> Result<DocumentIndex, FileError> {
        let damaged = || {
            let what = format!("the index of document {document} contradicts itself");
            FileError::damaged(self.file.path(), 0, what)
        };
        let at = |index: u32| self.offsets.get(index as usize).map(|at| at as usize);
        let (Some(start), Some(end)) = (at(document), at(document.saturating_add(1))) else {
            return Err(damaged());
        };
        let words = self.data.raw().get(start..end).ok_or_else(damaged)?;
        if words.is_empty() {
            return Ok(DocumentIndex::build(&[], separator));
        }
        unpack(words, separator).ok_or_else(damaged)
    }
}

fn unpack(mut words: &[u32], separator: Symbol) -> Option<DocumentIndex> {
    let (&[length, distinct], rest) = words.split_first_chunk::<2>()?;
    let (length, distinct) = (u32::from_le(length), u32::from_le(distinct));
    let (others, rest) = rest.split_at_checked(distinct as usize)?;
    words = rest;
    let symbols: Vec<Symbol> = std::iter::once(separator)
        .chain(others.iter().map(|&symbol| u32::from_le(symbol)))
        .collect();
    let ascending = symbols[1..].is_sorted_by(|a, b| a < b);
    if !ascending || symbols[1..].contains(&separator) {
        return None;
    }
    let codes = unpack_numbers(&mut words, length as usize, distinct)?;
    let mut positions = vec![0];
    positions.extend(unpack_numbers(&mut words, length as usize, length)?);
    let mut seen = vec![false; length as usize + 1];
    for &position in &positions {
        if std::mem::replace(&mut seen[position as usize], true) {
            return None;
        }
    }
    if !words.is_empty() {
        return None;
    }
    let tokens = codes.iter().map(|&code| symbols[code as usize]).collect();
    Some(DocumentIndex::assemble(tokens, symbols, &codes, positions))
}
