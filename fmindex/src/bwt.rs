//! The rows of a segment: next codes in blocks, rank by occurrence lists, sampled positions. File `fm.bwt`.
//!
//! Row 0 is the empty prefix of the text; the other rows are the text's prefixes sorted by their reversed
//! tokens. A row's *next code* is the code of the token that follows its prefix (the Burrows–Wheeler
//! transform of the reversed text; Burrows and Wheeler 1994, Ferragina and Manzini 2000). A row's
//! *position* is the length of its prefix. The row of the whole text has no next token; its next code is
//! the separator's, and a step from there knows that it is spurious.

use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::bits::{BitWriter, prefetch, read, width_for, with_bit_instructions};
use crate::blocks::{Block, Encoder, Shape};
use crate::build::{BuildError, BuildOptions, Codes, NO_CODE, Progress, Reversed, Sorted, stage};
use crate::dead::DeadRows;
use crate::file::{File, FileError, Words, Writer};
use crate::lists::{self, ListWriter, Lists};
use crate::range::RowRange;
use crate::{MAX_ALPHABET, MAX_TOKENS, Symbol};

const FILE: &str = "fm.bwt";
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
    let Sorted { text, mut suffixes } = sorted;
    let tokens = suffixes.len() as u32;
    // The row of the empty prefix; the sorter leaves room for it.
    suffixes.reserve_exact(1);
    suffixes.insert(0, tokens as i32);
    let rows = tokens + 1;
    let primary = suffixes.iter().position(|&suffix| suffix == 0);
    let primary = primary.unwrap_or(0) as u32;

    let profile = options.profile;
    let mut writer = Writer::create(&path, KIND)?;
    let shape = Shape {
        shift: profile.block_shift(),
        codes: alphabet.len(),
        sample_width: width_for(u64::from(tokens / profile.sample_rate()) + 1),
    };
    writer.begin("meta")?;
    writer.write_u32s(&[
        tokens,
        options.alphabet,
        options.separator,
        alphabet.len(),
        primary,
        document_starts.len() as u32,
        shape.shift,
        profile.sample_rate(),
        profile.inverse_rate(),
    ])?;
    for (name, words) in [
        ("codes", &alphabet.code),
        ("symbols", &alphabet.symbols),
        ("starts", &alphabet.starts),
    ] {
        writer.begin(name)?;
        writer.write_u32s(words)?;
    }
    writer.begin("documents")?;
    writer.write_u32s(document_starts)?;
    writer.write_u32s(&[tokens])?;
    writer.begin("inverse")?;
    writer.write_u64s(&inverse_samples(&suffixes, profile.inverse_rate()))?;

    stage(progress, "code rows", u64::from(rows))?;
    write_blocks(
        &mut suffixes,
        &text,
        shape,
        profile.sample_rate(),
        &mut writer,
        progress,
    )?;
    drop(text);
    // What were suffixes are codes now.
    stage(progress, "list occurrences", u64::from(rows))?;
    write_lists(suffixes, alphabet, shape, &mut writer, progress)?;
    writer.finish()?;
    let size = std::fs::metadata(&path).map_err(|e| FileError::io(&path, "read the size", e))?;
    Ok(size.len())
}

/// Rows of the prefixes whose length is a multiple of the rate, packed.
fn inverse_samples(suffixes: &[i32], rate: u32) -> Vec<u64> {
    let tokens = suffixes.len() as u32 - 1;
    let mut sampled = vec![0u32; (tokens / rate) as usize + 1];
    for (row, &suffix) in suffixes.iter().enumerate() {
        let position = tokens - suffix as u32;
        if position.is_multiple_of(rate) {
            sampled[(position / rate) as usize] = row as u32;
        }
    }
    let width = width_for(suffixes.len() as u64);
    let mut bits = BitWriter::default();
    for row in sampled {
        bits.push(u64::from(row), width);
    }
    bits.into_words()
}

/// Writes the blocks and leaves each row's next code where its suffix was.
fn write_blocks(
    suffixes: &mut [i32],
    text: &Reversed,
    shape: Shape,
    rate: u32,
    writer: &mut Writer,
    progress: &dyn Progress,
) -> Result<(), BuildError> {
    let tokens = suffixes.len() as u32 - 1;
    let mut offsets = vec![0u32];
    let mut at = 0u64;
    let mut done = 0;
    writer.begin("blocks")?;
    // Batches bound the memory that coded blocks take before they are written.
    for batch in suffixes.chunks_mut(1 << 22) {
        if progress.interrupted() {
            return Err(BuildError::Interrupted);
        }
        let coded: Vec<(Vec<u64>, Vec<u32>)> = batch
            .par_chunks_mut(1 << 14)
            .map(|rows| {
                let mut encoder = Encoder::new(shape);
                let mut words = Vec::new();
                let mut lengths = Vec::new();
                let mut codes = Vec::with_capacity(shape.rows());
                let mut samples = Vec::new();
                for block in rows.chunks_mut(shape.rows()) {
                    codes.clear();
                    samples.clear();
                    for (row, entry) in block.iter_mut().enumerate() {
                        let suffix = *entry as u32;
                        let position = tokens - suffix;
                        if position.is_multiple_of(rate) {
                            samples.push((row as u32, position / rate));
                        }
                        let code = match suffix {
                            0 => 0,
                            _ => text.code(suffix as usize - 1),
                        };
                        codes.push(code);
                        *entry = code as i32;
                    }
                    let coded = encoder.encode(&codes, &samples);
                    lengths.push(coded.len() as u32);
                    words.extend_from_slice(&coded);
                }
                (words, lengths)
            })
            .collect();
        for (words, lengths) in coded {
            writer.write_u64s(&words)?;
            for length in lengths {
                at += u64::from(length);
                offsets.push(at as u32);
            }
        }
        done += batch.len() as u64;
        progress.advance(done);
    }
    if at > u64::from(u32::MAX) {
        return Err(BuildError::TooLong {
            tokens: u64::from(tokens),
        });
    }
    writer.begin("offsets")?;
    writer.write_u32s(&offsets)?;
    Ok(())
}

fn write_lists(
    codes: Vec<i32>,
    alphabet: &Codes,
    shape: Shape,
    writer: &mut Writer,
    progress: &dyn Progress,
) -> Result<(), BuildError> {
    let rows = codes.len() as u32;
    let blocks = rows.div_ceil(1 << shape.shift);
    // Block of every row, sorted by the row's code: a counting sort.
    let mut next = vec![0u32; alphabet.len() as usize + 1];
    for &code in &codes {
        next[code as usize + 1] += 1;
    }
    for at in 1..next.len() {
        next[at] += next[at - 1];
    }
    let begins = next.clone();
    let mut sorted = vec![0u32; codes.len()];
    for (row, &code) in codes.iter().enumerate() {
        let at = &mut next[code as usize];
        sorted[*at as usize] = row as u32 >> shape.shift;
        *at += 1;
    }
    drop(codes);
    let mut list_writer = ListWriter::default();
    list_writer.begin(writer)?;
    let codes: Vec<usize> = (0..alphabet.symbols.len()).collect();
    // Batches of codes with about as many rows each.
    let mut at = 0;
    while at < codes.len() {
        if progress.interrupted() {
            return Err(BuildError::Interrupted);
        }
        let begin = begins[at];
        let mut end = at + 1;
        while end < codes.len() && begins[end + 1] - begin < 1 << 22 {
            end += 1;
        }
        let coded: Vec<_> = codes[at..end]
            .par_iter()
            .map(|&code| {
                let rows = begins[code] as usize..begins[code + 1] as usize;
                lists::encode(&sorted[rows], blocks)
            })
            .collect();
        for (lists, &code) in coded.into_iter().zip(&codes[at..end]) {
            list_writer.push(lists, alphabet.starts[code] + 1, writer)?;
        }
        progress.advance(u64::from(begins[end]));
        at = end;
    }
    list_writer.finish(rows, writer)?;
    Ok(())
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
    shape: Shape,
    rate: u32,
    inverse_rate: u32,
    row_width: u32,
    code: Words<u32>,
    symbols: Words<u32>,
    starts: Words<u32>,
    pub(crate) documents: Words<u32>,
    inverse: Words<u64>,
    offsets: Words<u32>,
    blocks: Words<u64>,
    lists: Lists,
}

impl Bwt {
    pub(crate) fn open(dir: &Path) -> Result<Self, FileError> {
        let path = dir.join(FILE);
        let file = File::open(&path, KIND)?;
        let meta = file.section("meta")?.u32s()?;
        let mut words = (0..9).map(|at| meta.get(at));
        let mut word = || {
            let word = words.next().flatten();
            word.ok_or_else(|| FileError::damaged(&path, 0, "the section meta is too short"))
        };
        let (tokens, alphabet, separator, codes) = (word()?, word()?, word()?, word()?);
        let (primary, documents, shift) = (word()?, word()?, word()?);
        let (rate, inverse_rate) = (word()?, word()?);
        if u64::from(tokens) >= MAX_TOKENS
            || alphabet == 0
            || alphabet > MAX_ALPHABET
            || separator >= alphabet
            || codes == 0
            || codes > alphabet
            || u64::from(documents) >= MAX_TOKENS
            || primary > tokens
            || !(8..=9).contains(&shift)
            || !(1..=1 << 16).contains(&rate)
            || !(1..=1 << 16).contains(&inverse_rate)
        {
            let what = "the section meta contradicts itself";
            return Err(FileError::damaged(&path, 0, what));
        }
        let rows = tokens + 1;
        let row_width = width_for(u64::from(rows));
        let sized = |name: &str, length: u32| {
            let words = file.section(name)?.u32s()?;
            if words.len() != length as usize {
                let what = format!("the section {name} should have {length} words");
                return Err(FileError::damaged(&path, 0, what));
            }
            Ok(words)
        };
        Ok(Self {
            rows,
            alphabet,
            separator,
            codes,
            primary,
            shape: Shape {
                shift,
                codes,
                sample_width: width_for(u64::from(tokens / rate) + 1),
            },
            rate,
            inverse_rate,
            row_width,
            code: sized("codes", alphabet)?,
            symbols: sized("symbols", codes)?,
            starts: sized("starts", codes + 1)?,
            documents: sized("documents", documents + 1)?,
            inverse: file.section("inverse")?.u64s()?,
            offsets: sized("offsets", rows.div_ceil(1 << shift) + 1)?,
            blocks: file.section("blocks")?.u64s()?,
            lists: Lists::open(&file, codes)?,
            file,
        })
    }

    /// The code of a symbol that occurs; the separator has none here.
    #[inline]
    pub(crate) fn code(&self, symbol: Symbol) -> Option<u32> {
        if symbol == self.separator {
            return None;
        }
        let code = self.code.get(symbol as usize)?;
        (code != NO_CODE && code < self.codes).then_some(code)
    }

    /// The symbol of a code.
    #[inline]
    pub(crate) fn symbol(&self, code: u32) -> Symbol {
        self.symbols.get(code as usize).unwrap_or(self.separator)
    }

    /// Number of codes.
    pub(crate) fn codes(&self) -> u32 {
        self.codes
    }

    /// Number of tokens.
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

    #[inline(always)]
    fn block_words(&self, block: u32) -> &[u64] {
        let at = |block: u32| self.offsets.get(block as usize).unwrap_or(0) as usize;
        let words = self.blocks.raw().get(at(block)..at(block + 1));
        words.unwrap_or(&[])
    }

    #[inline(always)]
    fn block(&self, block: u32) -> Block<'_> {
        let words = self.block_words(block);
        prefetch(words);
        Block::new(words, self.shape)
    }

    #[inline(always)]
    fn prefetch(&self, block: u32) {
        prefetch(self.block_words(block));
    }

    #[inline(always)]
    fn place(&self, row: u32) -> (u32, usize) {
        (
            row >> self.shape.shift,
            (row & ((1 << self.shape.shift) - 1)) as usize,
        )
    }

    /// Range of the phrase one token longer.
    pub(crate) fn extend(&self, range: RowRange, code: u32) -> RowRange {
        with_bit_instructions(|| self.extend_plainly(range, code))
    }

    #[inline(always)]
    fn extend_plainly(&self, range: RowRange, code: u32) -> RowRange {
        let (block, from) = self.place(range.start);
        let (last, to) = self.place(range.end);
        // Both ends are on their way while the first list is read.
        self.prefetch(block);
        if last != block {
            self.prefetch(last);
            self.lists.prefetch(code, last);
        }
        let (base, present) = self.lists.rank(code, block);
        let (mut start, mut end) = (base, base);
        if block == last {
            if !present {
                return RowRange::EMPTY;
            }
            let block = self.block(block);
            let Some(number) = block.find(code) else {
                return RowRange::EMPTY;
            };
            start = start.saturating_add(block.rank(number, from) as u32);
            end = end.saturating_add(block.rank(number, to) as u32);
        } else {
            if present && from > 0 {
                let block = self.block(block);
                let number = block.find(code);
                let rank = number.map_or(0, |number| block.rank(number, from));
                start = start.saturating_add(rank as u32);
            }
            let (base, present) = self.lists.rank(code, last);
            end = base;
            if present && to > 0 {
                let block = self.block(last);
                let number = block.find(code);
                let rank = number.map_or(0, |number| block.rank(number, to));
                end = end.saturating_add(rank as u32);
            }
        }
        let end = end.min(self.rows);
        if start < end {
            RowRange { start, end }
        } else {
            RowRange::EMPTY
        }
    }

    /// Next code of a row.
    #[inline]
    pub(crate) fn next_code(&self, row: u32) -> u32 {
        let (block, at) = self.place(row);
        let block = self.block(block);
        block.code(block.number(at))
    }

    /// Calls `each` with next codes of live rows and how often each stands there, in any order; a code
    /// may come more than once. Without `COUNTS` the counts are at least 1 and not more is known.
    #[inline(always)]
    pub(crate) fn list<const COUNTS: bool>(
        &self,
        range: RowRange,
        dead: Option<&DeadRows>,
        each: impl FnMut(u32, u32),
    ) {
        with_bit_instructions(|| self.list_plainly::<COUNTS>(range, dead, each));
    }

    #[inline(always)]
    fn list_plainly<const COUNTS: bool>(
        &self,
        range: RowRange,
        dead: Option<&DeadRows>,
        mut each: impl FnMut(u32, u32),
    ) {
        let mut row = range.start;
        while row < range.end.min(self.rows) {
            let (at, from) = self.place(row);
            let begin = row - from as u32;
            let end = range
                .end
                .min(self.rows)
                .min(begin + (1 << self.shape.shift));
            let to = (end - begin) as usize;
            let block = self.block(at);
            if end < range.end {
                self.prefetch(at + 1);
            }
            let here = RowRange { start: row, end };
            row = end;
            let dead = dead.filter(|dead| dead.count(here) > 0);
            if to - from <= FEW_ROWS {
                if dead.is_some() {
                    for row in from..to {
                        if !dead.is_some_and(|dead| dead.contains(begin + row as u32)) {
                            each(block.code(block.number(row)), 1);
                        }
                    }
                    continue;
                }
                // Equal numbers stand together often: each distinct one is looked up once.
                let mut few = [(0usize, 0u32); FEW_ROWS];
                let mut distinct = 0;
                block.each_number(from, to, |number| {
                    let known = few[..distinct]
                        .iter()
                        .position(|&(other, _)| other == number);
                    match known {
                        Some(at) => few[at].1 += 1,
                        None if distinct < FEW_ROWS => {
                            few[distinct] = (number, 1);
                            distinct += 1;
                        }
                        None => {}
                    }
                });
                for &(number, count) in &few[..distinct] {
                    each(block.code(number), count);
                }
                continue;
            }
            let whole = to - from == self.shape.rows();
            if !COUNTS && whole && dead.is_none() {
                block.each_code(|_, code| each(code, 1));
                continue;
            }
            let mut counts = [0u16; 512];
            block.each_number(from, to, |number| counts[number & 511] += 1);
            if let Some(dead) = dead {
                dead.each(here, |row| {
                    let number = block.number((row - begin) as usize);
                    counts[number & 511] = counts[number & 511].saturating_sub(1);
                });
            }
            block.each_code(|number, code| {
                let count = counts[number & 511];
                if count > 0 {
                    each(code, u32::from(count));
                }
            });
        }
    }

    /// Calls `each` with the index and the position of each of at most [`LANES`] rows, in any order; all
    /// of them walk at once. A damaged file may leave rows out.
    pub(crate) fn positions(&self, rows: &[u32], each: impl FnMut(usize, u32)) {
        with_bit_instructions(|| self.positions_plainly(rows, each));
    }

    #[inline(always)]
    fn positions_plainly(&self, rows: &[u32], mut each: impl FnMut(usize, u32)) {
        let mut lanes = Lanes::default();
        for (at, &row) in rows.iter().enumerate().take(LANES) {
            lanes.push(at, row);
        }
        for steps in 0..=self.rate {
            lanes.retain(|at, row| {
                let position = if row == self.primary {
                    self.tokens().checked_sub(steps)
                } else {
                    let (block, within) = self.place(row);
                    let Some(value) = self.block(block).sample(within) else {
                        return true;
                    };
                    let position = value.checked_mul(self.rate);
                    position.and_then(|position| position.checked_sub(steps))
                };
                if let Some(position) = position.filter(|&position| position <= self.tokens()) {
                    each(at, position);
                }
                false
            });
            if lanes.count == 0 {
                return;
            }
            self.step(&mut lanes, |_, _, _| {});
        }
    }

    /// Moves every lane to the row of one token more and calls `each` with the lane's number, the token's
    /// code and the row. Lanes at the end of the text, or lost in a damaged file, are dropped.
    ///
    /// A step waits for memory about three times; doing each part for all lanes overlaps the waits.
    #[inline(always)]
    fn step(&self, lanes: &mut Lanes, mut each: impl FnMut(usize, u32, u32)) {
        let mut parts = [(0u32, 0u32); LANES];
        for &row in &lanes.rows[..lanes.count] {
            self.prefetch(self.place(row).0);
        }
        for (part, &row) in parts.iter_mut().zip(&lanes.rows[..lanes.count]) {
            let (block, at) = self.place(row);
            let coded = Block::new(self.block_words(block), self.shape);
            let (number, before) = coded.number_and_rank(at);
            *part = (coded.code(number), before as u32);
            if lanes.count > 1 {
                self.lists.prefetch(part.0, block);
            }
        }
        let mut part = 0;
        lanes.retain_mut(|at, row| {
            let (code, before) = parts[part];
            part += 1;
            if *row == self.primary || *row >= self.rows || code >= self.codes {
                return false;
            }
            let (base, _) = self.lists.rank(code, self.place(*row).0);
            let spurious = u32::from(code == 0 && *row > self.primary);
            let Some(next) = base.saturating_add(before).checked_sub(spurious) else {
                return false;
            };
            *row = next;
            if next < self.rows {
                each(at, code, next);
            }
            next < self.rows
        });
    }

    /// Rows of the prefixes that end with the tokens at the text positions of `span`, in text order;
    /// fewer in a damaged file.
    pub(crate) fn rows_of(&self, span: Range<u32>) -> Vec<u32> {
        self.walk(span, |_, row| row)
    }

    /// Tokens at text positions within the text; fewer in a damaged file.
    pub(crate) fn extract(&self, span: Range<u32>) -> Vec<Symbol> {
        self.walk(span, |code, _| self.symbol(code))
    }

    /// As [`Bwt::extract`], but walking from one inverse sample only: what a step costs.
    pub(crate) fn extract_in_one_chain(&self, span: Range<u32>) -> Vec<Symbol> {
        let mut tokens = Vec::with_capacity(span.len());
        with_bit_instructions(|| {
            let start = span.start - span.start % self.inverse_rate;
            let mut lanes = Lanes::default();
            lanes.push(0, self.inverse_sample(start / self.inverse_rate));
            for position in start..span.end {
                self.step(&mut lanes, |_, code, _| {
                    if position >= span.start {
                        tokens.push(self.symbol(code));
                    }
                });
            }
        });
        tokens
    }

    #[inline(always)]
    fn inverse_sample(&self, index: u32) -> u32 {
        let width = self.row_width;
        let at = (u64::from(index) * u64::from(width)) as usize;
        read(self.inverse.raw(), at, width) as u32
    }

    /// What `each` makes of the code and the row of every token of a span of the text. Chains start at
    /// every inverse sample and walk side by side.
    #[inline(always)]
    fn walk(&self, span: Range<u32>, each: impl Fn(u32, u32) -> u32) -> Vec<u32> {
        let mut made = vec![0; span.len()];
        let whole = with_bit_instructions(|| self.walk_plainly(span, &mut made, each));
        made.truncate(whole);
        made
    }

    /// Fills `made` and returns up to where it is right.
    #[inline(always)]
    fn walk_plainly(
        &self,
        span: Range<u32>,
        made: &mut [u32],
        each: impl Fn(u32, u32) -> u32,
    ) -> usize {
        let rate = self.inverse_rate;
        let mut first = span.start / rate;
        while first * rate < span.end {
            let last = span.end.div_ceil(rate).min(first + LANES as u32);
            let mut lanes = Lanes::default();
            for index in first..last {
                lanes.push((index - first) as usize, self.inverse_sample(index));
            }
            for offset in 0..rate {
                // Where the last lane would leave the span, it has done its part.
                lanes.retain(|at, _| (first + at as u32) * rate + offset < span.end);
                let expected = lanes.count;
                let mut lost = span.end;
                let mut seen = [false; LANES];
                self.step(&mut lanes, |at, code, row| {
                    seen[at] = true;
                    let position = (first + at as u32) * rate + offset;
                    if let Some(at) = position.checked_sub(span.start) {
                        made[at as usize] = each(code, row);
                    }
                });
                if lanes.count < expected {
                    // A damaged file: only what lies before the first lost chain is known to be right.
                    for (at, _) in seen.iter().enumerate().filter(|(_, seen)| !**seen) {
                        lost = lost.min((first + at as u32) * rate + offset);
                    }
                    return (lost.saturating_sub(span.start) as usize).min(made.len());
                }
            }
            first = last;
        }
        made.len()
    }
}

/// Chains of rows that walk side by side.
pub(crate) const LANES: usize = 16;

/// Rows under way, each with the number of its lane.
#[derive(Default)]
struct Lanes {
    numbers: [u8; LANES],
    rows: [u32; LANES],
    count: usize,
}

impl Lanes {
    #[inline(always)]
    fn push(&mut self, number: usize, row: u32) {
        self.numbers[self.count] = number as u8;
        self.rows[self.count] = row;
        self.count += 1;
    }

    #[inline(always)]
    fn retain_mut(&mut self, mut keep: impl FnMut(usize, &mut u32) -> bool) {
        let mut kept = 0;
        for at in 0..self.count {
            let (number, mut row) = (self.numbers[at], self.rows[at]);
            if keep(usize::from(number), &mut row) {
                self.numbers[kept] = number;
                self.rows[kept] = row;
                kept += 1;
            }
        }
        self.count = kept;
    }

    #[inline(always)]
    fn retain(&mut self, mut keep: impl FnMut(usize, u32) -> bool) {
        self.retain_mut(|number, row| keep(number, *row));
    }
}

/// Fewer rows of a block are read one by one, without a table over its codes.
const FEW_ROWS: usize = 12;
