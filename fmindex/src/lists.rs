//! For every code, the blocks in which it occurs and how often before them: rank across blocks.
//!
//! The blocks of one code are cut into *chunks* of equal spans of blocks, a power of two chosen so that
//! a chunk holds about [`TARGET`] of them; a rare code has one chunk. A chunk is an Elias–Fano list of its
//! blocks and a unary string of the occurrences in each: 1 for the first, 0 for each further one. A
//! directory gives each chunk's first row in the code's bucket and its place. One query reads one
//! directory entry and one chunk.
//!
//! On English Wikipedia (512 rows a block): 3.7 bits a row with the directory.

use crate::bits::{BitWriter, EliasFano, prefetch, read, select_one, width_for};
use crate::build::BuildError;
use crate::file::{File, FileError, Words, Writer};

/// Blocks a chunk holds on average, at least half of it.
const TARGET: u64 = 64;

/// The chunks of one code.
pub(crate) struct CodeLists {
    /// Binary logarithm of the blocks that a chunk spans.
    shift: u32,
    /// For each chunk, occurrences in it and its bytes.
    chunks: Vec<(u32, Vec<u8>)>,
}

/// Binary logarithm of a number of blocks, rounded up.
fn log_blocks(blocks: u32) -> u32 {
    blocks.next_power_of_two().ilog2()
}

/// Encodes the lists of one code from the block of each of its rows, ascending.
pub(crate) fn encode(rows_blocks: &[u32], blocks: u32) -> CodeLists {
    let distinct = rows_blocks.chunk_by(|a, b| a == b).count() as u64;
    let mut shift = log_blocks(blocks);
    while shift > 6 && distinct << shift > TARGET * 3 / 2 * u64::from(blocks.max(1)) {
        shift -= 1;
    }
    let count = (blocks.saturating_sub(1) >> shift) + 1;
    let mut chunks = Vec::with_capacity(count as usize);
    let mut rest = rows_blocks;
    for chunk in 0..count {
        let end = rest.partition_point(|&block| block >> shift <= chunk);
        let (mine, after) = rest.split_at(end);
        rest = after;
        chunks.push((mine.len() as u32, encode_chunk(mine, shift)));
    }
    CodeLists { shift, chunks }
}

fn encode_chunk(blocks: &[u32], shift: u32) -> Vec<u8> {
    if blocks.is_empty() {
        return Vec::new();
    }
    let span = 1u32 << shift;
    let distinct: Vec<u32> = blocks
        .chunk_by(|a, b| a == b)
        .map(|run| run[0] & (span - 1))
        .collect();
    let mut bits = BitWriter::default();
    if distinct.len() < 256 {
        bits.push(distinct.len() as u64, 9);
    } else {
        bits.push(256 | (distinct.len() as u64) << 9, 9 + 32);
    }
    EliasFano::write(&distinct, span as usize, &mut bits);
    for run in blocks.chunk_by(|a, b| a == b) {
        bits.push(1, 1);
        bits.zeros(run.len() - 1);
    }
    bits.push(1, 1);
    let bytes = bits.len().div_ceil(8);
    let words = bits.into_words();
    let mut packed: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    packed.truncate(bytes);
    packed
}

/// Writes the sections `heads`, `directory` and `lists`.
#[derive(Default)]
pub(crate) struct ListWriter {
    heads: Vec<u64>,
    directory: Vec<u64>,
    bytes: u64,
}

impl ListWriter {
    /// Begins the section of the lists.
    pub(crate) fn begin(&mut self, writer: &mut Writer) -> Result<(), FileError> {
        writer.begin("lists")
    }

    /// Appends the lists of the next code, whose bucket starts at `row`.
    pub(crate) fn push(
        &mut self,
        lists: CodeLists,
        mut row: u32,
        writer: &mut Writer,
    ) -> Result<(), BuildError> {
        self.heads
            .push(self.directory.len() as u64 | u64::from(lists.shift) << 32);
        for (occurrences, bytes) in lists.chunks {
            self.directory.push(u64::from(row) | self.bytes << 32);
            writer.write(&bytes)?;
            self.bytes += bytes.len() as u64;
            row += occurrences;
        }
        if self.bytes > u64::from(u32::MAX) {
            return Err(BuildError::TooLong {
                tokens: u64::from(row),
            });
        }
        Ok(())
    }

    /// Ends the lists of a segment of `rows` rows and writes what leads to them.
    pub(crate) fn finish(mut self, rows: u32, writer: &mut Writer) -> Result<(), FileError> {
        // Whole words, so that the bytes can be read as such.
        let padding = self.bytes.next_multiple_of(8) - self.bytes;
        writer.write(&[0; 8][..padding as usize])?;
        // The chunk after the last, for ranges that end with the last row, and its end.
        self.directory
            .extend([u64::from(rows) | self.bytes << 32; 2]);
        writer.begin("heads")?;
        writer.write_u64s(&self.heads)?;
        writer.begin("directory")?;
        writer.write_u64s(&self.directory)
    }
}

/// The mapped lists.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    heads: Words<u64>,
    directory: Words<u64>,
    words: Words<u64>,
}

impl Lists {
    pub(crate) fn open(file: &File, codes: u32) -> Result<Self, FileError> {
        let heads = file.section("heads")?.u64s()?;
        if heads.len() != codes as usize {
            let what = format!("the section heads should have {codes} words");
            return Err(FileError::damaged(file.path(), 0, what));
        }
        Ok(Self {
            heads,
            directory: file.section("directory")?.u64s()?,
            words: file.section("lists")?.u64s()?,
        })
    }

    /// Prepares [`Lists::rank`] for the same code and block.
    #[inline(always)]
    pub(crate) fn prefetch(&self, code: u32, block: u32) {
        let Some(head) = self.heads.get(code as usize) else {
            return;
        };
        let chunk = (head & 0xffff_ffff) as usize + (block >> (head >> 32 & 31)) as usize;
        let Some(entry) = self.directory.get(chunk) else {
            return;
        };
        let from = (entry >> 32) as usize / 8;
        let words = self.words.raw();
        prefetch(words.get(from..words.len().min(from + 16)).unwrap_or(&[]));
    }

    /// The row that the first occurrence of `code` in or after `block` leads to, and whether the block
    /// holds the code.
    #[inline(always)]
    pub(crate) fn rank(&self, code: u32, block: u32) -> (u32, bool) {
        let Some(head) = self.heads.get(code as usize) else {
            return (0, false);
        };
        let shift = (head >> 32 & 31) as u32;
        let chunk = (head & 0xffff_ffff) as usize + (block >> shift) as usize;
        let (Some(entry), Some(after)) = (self.directory.get(chunk), self.directory.get(chunk + 1))
        else {
            return (0, false);
        };
        let row = entry as u32;
        if entry >> 32 == after >> 32 {
            return (row, false);
        }
        let words = self.words.raw();
        let at = (entry >> 32) as usize * 8;
        let limit = ((after >> 32) as usize * 8).saturating_sub(at);
        let mut count = read(words, at, 9) as usize;
        let mut list = at + 9;
        if count >= 256 {
            count = read(words, list, 32) as usize;
            list += 32;
        }
        // No list is longer than its chunk's bits: a damaged count does not lead beyond them.
        let count = count.min(limit);
        let low = shift.saturating_sub(width_for(count as u64));
        let list = EliasFano::with_low(list, count, low, 1 << shift);
        let (before, present) = list.rank(words, (block & ((1 << shift) - 1)) as usize);
        let unary = list.end();
        let limit = (at + limit).saturating_sub(unary);
        let occurrences = select_one(words, unary, limit, before);
        (row.saturating_add(occurrences as u32), present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_dense_rare_clustered_and_absent_codes() {
        let blocks = 3000;
        let codes: Vec<Vec<u32>> = vec![
            (0..blocks).collect(),
            // Several in every block.
            (0..blocks * 5).map(|at| at / 5).collect(),
            // More than 255 blocks in one chunk.
            (0..600).map(|at| at / 2).collect(),
            (2500..2900).collect(),
            vec![],
            vec![1234],
            vec![0, 0, 0, 2999],
            (0..blocks).step_by(7).collect(),
        ];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lists");
        let mut writer = Writer::create(&path, "lists").unwrap();
        let mut lists = ListWriter::default();
        lists.begin(&mut writer).unwrap();
        let mut row = 1;
        let mut starts = Vec::new();
        for code in &codes {
            starts.push(row);
            lists.push(encode(code, blocks), row, &mut writer).unwrap();
            row += code.len() as u32;
        }
        lists.finish(row, &mut writer).unwrap();
        writer.finish().unwrap();
        let file = File::open(&path, "lists").unwrap();
        let lists = Lists::open(&file, codes.len() as u32).unwrap();
        for (code, (places, start)) in codes.iter().zip(starts).enumerate() {
            for block in 0..blocks {
                let before = places.partition_point(|&place| place < block);
                let present = places.get(before) == Some(&block);
                let expected = (start + before as u32, present);
                assert_eq!(lists.rank(code as u32, block), expected, "{code} {block}");
                lists.prefetch(code as u32, block);
            }
        }
        assert_eq!(lists.rank(codes.len() as u32, 0), (0, false));
    }
}
