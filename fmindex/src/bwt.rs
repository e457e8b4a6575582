//! The rows of a segment: BWT, rank, positions. One file, `fm.bwt`.

use std::path::Path;

use crate::build::{BuildError, BuildOptions, Codes, NO_CODE, Progress, Sorted, stage};
use crate::file::{File, FileError, Words, Writer};
use crate::range::RowRange;
use crate::{MAX_ALPHABET, MAX_TOKENS, Symbol};

pub(crate) const FILE: &str = "fm.bwt";
const KIND: &str = "fm-bwt";

/// Writes the file and returns its size in bytes.
pub(crate) fn write(
    dir: &Path,
    sorted: Sorted,
    alphabet: &Codes,
    document_starts: &[u32],
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<u64, BuildError> {
    let path = dir.join(FILE);
    let Sorted { text, suffixes } = sorted;
    let n = suffixes.len();
    stage(progress, "write rows", n as u64)?;
    // Row 0 is the empty prefix; row r is the prefix of length n - suffixes[r - 1].
    let mut bwt = Vec::with_capacity(n + 1);
    let mut primary = 0;
    let mut positions = Vec::with_capacity(n + 1);
    let mut inverse = vec![0u32; n + 1];
    bwt.push(if n == 0 { 0 } else { text.code(n - 1) });
    positions.push(0);
    for (at, &suffix) in suffixes.iter().enumerate() {
        let suffix = suffix as usize;
        if suffix == 0 {
            primary = at as u32 + 1;
            bwt.push(0);
        } else {
            bwt.push(text.code(suffix - 1));
        }
        positions.push((n - suffix) as u32);
        inverse[n - suffix] = at as u32 + 1;
    }
    let mut counts = vec![0u32; alphabet.len() as usize + 1];
    for &code in &bwt {
        counts[code as usize + 1] += 1;
    }
    for at in 1..counts.len() {
        counts[at] += counts[at - 1];
    }
    let mut next = counts.clone();
    let mut rows = vec![0u32; n + 1];
    for (row, &code) in bwt.iter().enumerate() {
        let at = &mut next[code as usize];
        rows[*at as usize] = row as u32;
        *at += 1;
    }
    let mut writer = Writer::create(&path, KIND)?;
    writer.begin("meta")?;
    writer.write_u32s(&[
        n as u32,
        options.alphabet,
        options.separator,
        alphabet.len(),
        primary,
        document_starts.len() as u32,
        options.profile.sample_rate(),
    ])?;
    for (name, words) in [
        ("codes", &alphabet.code),
        ("symbols", &alphabet.symbols),
        ("starts", &alphabet.starts),
        ("counts", &counts),
        ("bwt", &bwt),
        ("rows", &rows),
        ("positions", &positions),
        ("inverse", &inverse),
    ] {
        writer.begin(name)?;
        writer.write_u32s(words)?;
    }
    writer.begin("documents")?;
    writer.write_u32s(document_starts)?;
    writer.write_u32s(&[n as u32])?;
    writer.finish()?;
    Ok(std::fs::metadata(&path)
        .map_err(|e| FileError::io(&path, "read the size", e))?
        .len())
}

/// The mapped rows.
#[derive(Clone, Debug)]
pub(crate) struct Bwt {
    pub(crate) file: File,
    pub(crate) rows: u32,
    pub(crate) alphabet: u32,
    pub(crate) separator: Symbol,
    codes: u32,
    primary: u32,
    code: Words<u32>,
    symbols: Words<u32>,
    starts: Words<u32>,
    counts: Words<u32>,
    bwt: Words<u32>,
    by_code: Words<u32>,
    positions: Words<u32>,
    inverse: Words<u32>,
    pub(crate) documents: Words<u32>,
}

impl Bwt {
    pub(crate) fn open(dir: &Path) -> Result<Self, FileError> {
        let path = dir.join(FILE);
        let file = File::open(&path, KIND)?;
        let meta = file.section("meta")?.u32s()?;
        let word = |at: usize| {
            meta.get(at)
                .ok_or_else(|| FileError::damaged(&path, 0, "the section meta is too short"))
        };
        let (tokens, alphabet, separator, codes) = (word(0)?, word(1)?, word(2)?, word(3)?);
        let documents = word(5)?;
        if u64::from(tokens) >= MAX_TOKENS
            || alphabet == 0
            || alphabet > MAX_ALPHABET
            || separator >= alphabet
            || codes == 0
            || codes > alphabet
            || documents == u32::MAX
        {
            return Err(FileError::damaged(
                &path,
                0,
                "the section meta contradicts itself",
            ));
        }
        let words = |name: &str, length: u32| {
            let words = file.section(name)?.u32s()?;
            if words.len() != length as usize {
                let what = format!("the section {name} should have {length} words");
                return Err(FileError::damaged(&path, 0, what));
            }
            Ok(words)
        };
        let rows = tokens + 1;
        Ok(Self {
            rows,
            alphabet,
            separator,
            codes,
            primary: word(4)?,
            code: words("codes", alphabet)?,
            symbols: words("symbols", codes)?,
            starts: words("starts", codes + 1)?,
            counts: words("counts", codes + 1)?,
            bwt: words("bwt", rows)?,
            by_code: words("rows", rows)?,
            positions: words("positions", rows)?,
            inverse: words("inverse", rows)?,
            documents: words("documents", documents + 1)?,
            file,
        })
    }

    /// The code of a symbol that occurs; the separator and unknown symbols have none here.
    #[inline]
    pub(crate) fn code(&self, symbol: Symbol) -> Option<u32> {
        if symbol == self.separator {
            return None;
        }
        let code = self.code.get(symbol as usize)?;
        (code != NO_CODE && code < self.codes).then_some(code)
    }

    #[inline]
    pub(crate) fn symbol(&self, code: u32) -> Symbol {
        self.symbols.get(code as usize).unwrap_or(self.separator)
    }

    /// Number of codes.
    pub(crate) fn codes(&self) -> u32 {
        self.codes
    }

    /// Number of tokens.
    #[inline]
    pub(crate) fn tokens(&self) -> u32 {
        self.rows - 1
    }

    /// Rows whose last token has this code.
    #[inline]
    pub(crate) fn bucket(&self, code: u32) -> RowRange {
        let at = |code: usize| self.starts.get(code).unwrap_or(0).min(self.rows - 1) + 1;
        let (start, end) = (at(code as usize), at(code as usize + 1));
        RowRange {
            start,
            end: end.max(start),
        }
    }

    /// Every row: the empty phrase.
    pub(crate) fn full(&self) -> RowRange {
        RowRange {
            start: 0,
            end: self.rows,
        }
    }

    /// Rows whose last token is not a separator.
    pub(crate) fn words(&self) -> RowRange {
        RowRange {
            start: self.bucket(0).end,
            end: self.rows,
        }
    }

    /// First row of `code` whose prefix without its last token stands at or after `row`.
    #[inline]
    fn step(&self, code: u32, row: u32) -> u32 {
        let at = |code: u32| self.counts.get(code as usize).unwrap_or(0).min(self.rows) as usize;
        let (from, to) = (at(code), at(code + 1));
        let list = self.by_code.raw().get(from..to).unwrap_or(&[]);
        let before = list.partition_point(|&other| u32::from_le(other) < row) as u32;
        (self.bucket(code).start + before).min(self.rows)
    }

    /// Range of the phrase one token longer.
    #[inline]
    pub(crate) fn extend(&self, range: RowRange, code: u32) -> RowRange {
        let (start, end) = (self.step(code, range.start), self.step(code, range.end));
        if start < end {
            RowRange { start, end }
        } else {
            RowRange::EMPTY
        }
    }

    /// Next code and row of that next token; `None` at the end of the text.
    #[inline]
    pub(crate) fn next(&self, row: u32) -> Option<(u32, u32)> {
        if row == self.primary {
            return None;
        }
        let code = self.bwt.get(row as usize)?;
        if code >= self.codes {
            return None;
        }
        let spurious = u32::from(code == 0 && row > self.primary);
        let next = self.step(code, row).checked_sub(spurious)?;
        (next < self.rows).then_some((code, next))
    }

    /// Calls `each` with next codes of the rows and how often each stands there, in any order; a code
    /// may come more than once.
    pub(crate) fn list(&self, range: RowRange, mut each: impl FnMut(u32, u32)) {
        for row in range.start..range.end {
            each(self.bwt.get(row as usize).unwrap_or(0), 1);
        }
    }

    /// Calls `each` with every row and its next code.
    pub(crate) fn each_row(&self, range: RowRange, mut each: impl FnMut(u32, u32)) {
        for row in range.start..range.end {
            each(row, self.bwt.get(row as usize).unwrap_or(0));
        }
    }

    /// Length of a row's prefix of the text.
    #[inline]
    pub(crate) fn position(&self, row: u32) -> Option<u32> {
        self.positions
            .get(row as usize)
            .filter(|&position| position < self.rows)
    }

    /// Row of the prefix of a length.
    pub(crate) fn row_at(&self, position: u32) -> Option<u32> {
        self.inverse
            .get(position as usize)
            .filter(|&row| row < self.rows)
    }
}

impl Bwt {
    /// Rows of the prefixes that end with the tokens at the text positions of `span`, in text order;
    /// fewer in a damaged file.
    pub(crate) fn rows_of(&self, span: std::ops::Range<u32>) -> Vec<u32> {
        let mut rows = Vec::new();
        let Some(mut row) = self.row_at(span.start) else {
            return rows;
        };
        for _ in span {
            let Some((_, next)) = self.next(row) else {
                break;
            };
            row = next;
            rows.push(row);
        }
        rows
    }
}

impl Bwt {
    /// The files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        std::iter::once(&self.file)
    }

    /// Tokens at text positions; fewer in a damaged file.
    pub(crate) fn extract(&self, span: std::ops::Range<u32>) -> Vec<Symbol> {
        let mut tokens = Vec::with_capacity(span.len());
        let Some(mut row) = self.row_at(span.start) else {
            return tokens;
        };
        for _ in span {
            let Some((code, next)) = self.next(row) else {
                break;
            };
            row = next;
            tokens.push(self.symbol(code));
        }
        tokens
    }
}
