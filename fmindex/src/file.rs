//! Container files: one header, named sections, checksums; written once, then only mapped.
//!
//! Layout, all integers little-endian on every machine:
//!
//! ```text
//! 0    magic            8 bytes  "VERBATIM"
//! 8    byte order       u32      0x0403_0201
//! 12   format version   u32
//! 16   kind             16 bytes ASCII, zero padded
//! 32   file length      u64
//! 40   table offset     u64      multiple of 64
//! 48   section count    u32
//! 52   reserved         u32      zero
//! 56   checksum         u64      XXH3-64 of bytes 0..56 and of the table
//! 64   sections, each starting at a multiple of 64, zero padded to one
//! ...  table: for each section name (16 bytes), offset u64, length u64, XXH3-64 u64 of the padded section
//! ```
//!
//! Opening checks the header, the length of the file and the table; [`File::verify`] checks every
//! byte. A file is written under a temporary name, synced and renamed, and never touched again.

use std::fs;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Version of the container layout and of the sections of every kind of file in an index.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"VERBATIM";
const BYTE_ORDER: u32 = 0x0403_0201;
const HEADER: usize = 64;
const ALIGN: u64 = 64;
const NAME: usize = 16;
const ENTRY: usize = NAME + 24;
/// More sections than any kind of file has: a bound on what a foreign header can make us read.
const MAX_SECTIONS: u32 = 1024;

/// Why an index file cannot be used. Every variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system refused an operation on the file.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted, as an infinitive.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The file does not start with the magic bytes, or is of another kind.
    #[error(
        "{path}: not a {expected} file of a verbatim index ({found}); build the index again or name the right folder"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The kind that was expected.
        expected: String,
        /// What was found instead.
        found: String,
    },
    /// The file was written by another version of the format.
    #[error(
        "{path}: written in format version {found}, this program reads version {supported}; build the index again"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// Version this program reads.
        supported: u32,
    },
    /// The file was written with another byte order.
    #[error(
        "{path}: written in another byte order; index files are little-endian, build the index again"
    )]
    ByteOrder {
        /// The file.
        path: PathBuf,
    },
    /// The file has another length than its header declares.
    #[error(
        "{path}: {found} bytes, but its header declares {declared}: the file is truncated or was appended to; restore it or build the index again"
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes found.
        found: u64,
        /// Bytes declared.
        declared: u64,
    },
    /// Header, table or a section does not agree with itself or with its checksum.
    #[error("{path}: damaged at byte {offset}: {what}; restore the file or build the index again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// First byte of the damaged part.
        offset: u64,
        /// What was expected there.
        what: String,
    },
}

impl FileError {
    /// Wraps a system error on `path`.
    pub fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            action,
            source,
        }
    }

    /// A damaged part of `path` that starts at byte `offset`.
    pub fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            offset,
            what: what.into(),
        }
    }
}

/// Writes a container file section by section, under a temporary name beside the final one.
///
/// Dropped without [`Writer::finish`], it removes the temporary file: nothing half-written stays.
///
/// ```
/// use fmindex::file::{File, Writer};
/// let dir = tempfile::tempdir().unwrap();
/// let path = dir.path().join("words.bin");
/// let mut writer = Writer::create(&path, "example").unwrap();
/// writer.section("words", bytemuck::cast_slice(&[1u32, 2, 3])).unwrap();
/// writer.finish().unwrap();
/// let file = File::open(&path, "example").unwrap();
/// assert_eq!(file.section("words").unwrap().len(), 12);
/// file.verify().unwrap();
/// ```
pub struct Writer {
    path: PathBuf,
    temporary: PathBuf,
    out: Option<BufWriter<fs::File>>,
    kind: [u8; NAME],
    position: u64,
    table: Vec<([u8; NAME], u64, u64, u64)>,
    open: Option<([u8; NAME], u64, Xxh3)>,
}

impl Writer {
    /// Starts a file of `kind` (at most 16 ASCII bytes) that will stand at `path`.
    ///
    /// # Errors
    /// The temporary file cannot be created or written.
    pub fn create(path: &Path, kind: &str) -> Result<Self, FileError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let temporary = path.with_file_name(name);
        let file = fs::File::create(&temporary)
            .map_err(|e| FileError::io(&temporary, "create the file", e))?;
        let mut writer = Self {
            path: path.to_owned(),
            temporary,
            out: Some(BufWriter::with_capacity(1 << 20, file)),
            kind: padded_name(kind),
            position: 0,
            table: Vec::new(),
            open: None,
        };
        writer.put(&[0; HEADER])?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let out = self.out.as_mut().expect("writer is open until finished");
        out.write_all(bytes)
            .map_err(|e| FileError::io(&self.temporary, "write", e))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Begins the section `name`; what [`Writer::write`] is given goes into it.
    ///
    /// # Errors
    /// The padding of the section before cannot be written.
    pub fn begin(&mut self, name: &str) -> Result<(), FileError> {
        self.close_section()?;
        assert!(
            self.table.iter().all(|entry| entry.0 != padded_name(name)),
            "section {name} is written twice"
        );
        self.open = Some((padded_name(name), self.position, Xxh3::new()));
        Ok(())
    }

    /// Appends bytes to the section begun last.
    ///
    /// # Errors
    /// The bytes cannot be written (a full disk, for one).
    ///
    /// # Panics
    /// No section was begun.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.open
            .as_mut()
            .expect("a section is begun before it is written")
            .2
            .update(bytes);
        self.put(bytes)
    }

    /// Appends 32-bit words, little-endian, to the section begun last.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write_u32s(&mut self, words: &[u32]) -> Result<(), FileError> {
        if cfg!(target_endian = "little") {
            return self.write(bytemuck::cast_slice(words));
        }
        words
            .iter()
            .try_for_each(|word| self.write(&word.to_le_bytes()))
    }

    /// Appends 64-bit words, little-endian, to the section begun last.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write_u64s(&mut self, words: &[u64]) -> Result<(), FileError> {
        if cfg!(target_endian = "little") {
            return self.write(bytemuck::cast_slice(words));
        }
        words
            .iter()
            .try_for_each(|word| self.write(&word.to_le_bytes()))
    }

    /// Writes a whole section at once.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn section(&mut self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.begin(name)?;
        self.write(bytes)
    }

    fn close_section(&mut self) -> Result<(), FileError> {
        let Some((name, start, mut hash)) = self.open.take() else {
            return Ok(());
        };
        let length = self.position - start;
        let padding = [0u8; ALIGN as usize];
        let padding = &padding[..(self.position.next_multiple_of(ALIGN) - self.position) as usize];
        hash.update(padding);
        self.put(padding)?;
        self.table.push((name, start, length, hash.digest()));
        Ok(())
    }

    /// Writes table and header, syncs, and renames the file to its final name.
    ///
    /// # Errors
    /// A write, the sync or the rename fails; the temporary file is then removed.
    pub fn finish(mut self) -> Result<(), FileError> {
        self.close_section()?;
        let table_offset = self.position;
        let mut table = Vec::with_capacity(self.table.len() * ENTRY);
        for (name, start, length, hash) in &self.table {
            table.extend_from_slice(name);
            table.extend_from_slice(&start.to_le_bytes());
            table.extend_from_slice(&length.to_le_bytes());
            table.extend_from_slice(&hash.to_le_bytes());
        }
        self.put(&table)?;
        let mut header = [0u8; HEADER];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&BYTE_ORDER.to_le_bytes());
        header[12..16].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        header[16..32].copy_from_slice(&self.kind);
        header[32..40].copy_from_slice(&self.position.to_le_bytes());
        header[40..48].copy_from_slice(&table_offset.to_le_bytes());
        header[48..52].copy_from_slice(&(self.table.len() as u32).to_le_bytes());
        let checksum = header_checksum(&header, &table);
        header[56..64].copy_from_slice(&checksum.to_le_bytes());
        let temporary = self.temporary.clone();
        let failed = |action| move |e| FileError::io(&temporary, action, e);
        let mut out = self.out.take().expect("writer is open until finished");
        out.seek(SeekFrom::Start(0)).map_err(failed("seek"))?;
        let temporary = self.temporary.clone();
        let failed = |action| move |e: io::Error| FileError::io(&temporary, action, e);
        out.write_all(&header)
            .and_then(|()| out.flush())
            .and_then(|()| out.get_ref().sync_all())
            .map_err(failed("write"))?;
        drop(out);
        fs::rename(&self.temporary, &self.path)
            .map_err(|e| FileError::io(&self.path, "rename the finished file", e))?;
        self.temporary = PathBuf::new();
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.out.take());
        if !self.temporary.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

fn padded_name(name: &str) -> [u8; NAME] {
    assert!(
        name.is_ascii() && !name.is_empty() && name.len() <= NAME,
        "bad section name {name:?}"
    );
    let mut padded = [0; NAME];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    padded
}

fn shown_name(name: &[u8]) -> String {
    let end = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    name[..end].escape_ascii().to_string()
}

fn header_checksum(header: &[u8; HEADER], table: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&header[..56]);
    hash.update(table);
    hash.digest()
}

/// A mapped container file whose header and table have been checked. Cheap to clone.
#[derive(Clone)]
pub struct File {
    inner: Arc<Mapped>,
}

struct Mapped {
    path: PathBuf,
    map: Mmap,
    sections: Vec<([u8; NAME], Range<usize>, u64)>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("path", &self.inner.path)
            .finish_non_exhaustive()
    }
}

impl File {
    /// Maps `path` and checks that it is a complete container file of `kind`.
    /// Reads the header and the table only, whatever the size of the file.
    ///
    /// # Errors
    /// The file is missing, of another kind, version or byte order, of another length than declared,
    /// or its header or table is damaged.
    pub fn open(path: &Path, kind: &str) -> Result<Self, FileError> {
        let file = fs::File::open(path).map_err(|e| FileError::io(path, "open the file", e))?;
        let found = file
            .metadata()
            .map_err(|e| FileError::io(path, "read the size", e))?;
        let foreign = |found: String| FileError::Foreign {
            path: path.to_owned(),
            expected: kind.to_owned(),
            found,
        };
        if !found.is_file() {
            return Err(foreign("it is not a regular file".into()));
        }
        if found.len() < HEADER as u64 {
            return Err(foreign(format!("it has only {} bytes", found.len())));
        }
        // SAFETY: index files are written under a temporary name and renamed; this crate never writes
        // to, truncates or replaces the bytes of a finished file, and its documentation asks the same
        // of whoever owns the folder. What a map returns is only ever read as plain integers, every
        // one of which is checked before it is used as an offset.
        let map =
            unsafe { Mmap::map(&file) }.map_err(|e| FileError::io(path, "map the file", e))?;
        let header: &[u8; HEADER] = map[..HEADER].try_into().expect("length was checked");
        if header[..8] != MAGIC {
            return Err(foreign("its first bytes are not VERBATIM".into()));
        }
        let u32_at = |at: usize| u32::from_le_bytes(map[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(map[at..at + 8].try_into().expect("8 bytes"));
        match u32_at(8) {
            BYTE_ORDER => {}
            order if order == BYTE_ORDER.swap_bytes() => {
                return Err(FileError::ByteOrder {
                    path: path.to_owned(),
                });
            }
            _ => return Err(FileError::damaged(path, 8, "the byte order mark is wrong")),
        }
        if u32_at(12) != FORMAT_VERSION {
            return Err(FileError::Version {
                path: path.to_owned(),
                found: u32_at(12),
                supported: FORMAT_VERSION,
            });
        }
        if header[16..32] != padded_name(kind) {
            return Err(foreign(format!(
                "it is a {} file",
                shown_name(&header[16..32])
            )));
        }
        let declared = u64_at(32);
        if declared != found.len() {
            return Err(FileError::Length {
                path: path.to_owned(),
                found: found.len(),
                declared,
            });
        }
        let (table_offset, count) = (u64_at(40), u32_at(48));
        let table_end = table_offset.checked_add(u64::from(count) * ENTRY as u64);
        if count > MAX_SECTIONS
            || !table_offset.is_multiple_of(ALIGN)
            || table_offset < HEADER as u64
            || table_end != Some(declared)
        {
            return Err(FileError::damaged(
                path,
                40,
                "the section table does not end the file",
            ));
        }
        let table = &map[table_offset as usize..];
        if header_checksum(header, table) != u64_at(56) {
            return Err(FileError::damaged(
                path,
                0,
                "header and section table fail their checksum",
            ));
        }
        let mut sections = Vec::with_capacity(count as usize);
        let mut expected = HEADER as u64;
        for entry in table.chunks_exact(ENTRY) {
            let word = |at: usize| {
                u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes of an entry"))
            };
            let (start, length) = (word(NAME), word(NAME + 8));
            let end = start.checked_add(length).filter(|&end| end <= table_offset);
            let (true, Some(end)) = (start == expected, end) else {
                return Err(FileError::damaged(
                    path,
                    start,
                    "a section lies outside of its place",
                ));
            };
            expected = end.next_multiple_of(ALIGN);
            let name = entry[..NAME].try_into().expect("16 bytes of an entry");
            sections.push((name, start as usize..end as usize, word(NAME + 16)));
        }
        if expected != table_offset {
            return Err(FileError::damaged(
                path,
                expected,
                "bytes that belong to no section",
            ));
        }
        Ok(Self {
            inner: Arc::new(Mapped {
                path: path.to_owned(),
                map,
                sections,
            }),
        })
    }

    /// Where the file stands.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Size of the whole file in bytes.
    pub fn size(&self) -> u64 {
        self.inner.map.len() as u64
    }

    /// Names and sizes in bytes of all sections, in file order.
    pub fn sections(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.inner
            .sections
            .iter()
            .map(|(name, range, _)| (shown_name(name), range.len() as u64))
    }

    /// The section `name`, mapped.
    ///
    /// # Errors
    /// The file has no such section.
    pub fn section(&self, name: &str) -> Result<Section, FileError> {
        let padded = padded_name(name);
        let found = self
            .inner
            .sections
            .iter()
            .find(|(other, _, _)| *other == padded);
        let (_, range, _) = found.ok_or_else(|| {
            FileError::damaged(self.path(), 0, format!("the section {name} is missing"))
        })?;
        Ok(Section {
            file: self.clone(),
            range: range.clone(),
        })
    }

    /// Reads every byte and compares all checksums.
    ///
    /// # Errors
    /// The first section that differs, by its first byte.
    pub fn verify(&self) -> Result<(), FileError> {
        for (name, range, checksum) in &self.inner.sections {
            let padded = range.end.next_multiple_of(ALIGN as usize);
            if xxh3_64(&self.inner.map[range.start..padded]) != *checksum {
                let what = format!("the section {} fails its checksum", shown_name(name));
                return Err(FileError::damaged(self.path(), range.start as u64, what));
            }
        }
        Ok(())
    }

    /// Brings the whole file into memory and maps all of it, in large pages where the system has them for
    /// files: queries read here and there, and with small pages half of the wait is for page tables.
    pub fn warm(&self) {
        let map = &self.inner.map;
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::WillNeed);
        #[cfg(target_os = "linux")]
        {
            // Neither is there on every kernel; what they do not do, the loop below does.
            let _ = map.advise(memmap2::Advice::HugePage);
            let _ = map.advise(memmap2::Advice::PopulateRead);
        }
        let sum = map.iter().step_by(4096).fold(0u8, |sum, byte| sum ^ byte);
        std::hint::black_box(sum);
    }
}

/// A section of a mapped file; keeps the map alive. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Section {
    file: File,
    range: Range<usize>,
}

impl Section {
    /// The bytes of the section.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.file.inner.map[self.range.clone()]
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether the section holds nothing.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The file the section lies in.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The section as 32-bit words.
    ///
    /// # Errors
    /// Its length is not a multiple of four.
    pub fn u32s(&self) -> Result<Words<u32>, FileError> {
        Words::new(self.clone())
    }

    /// The section as 64-bit words.
    ///
    /// # Errors
    /// Its length is not a multiple of eight.
    pub fn u64s(&self) -> Result<Words<u64>, FileError> {
        Words::new(self.clone())
    }
}

/// An integer that stands little-endian in a file.
pub trait Word: bytemuck::Pod {
    /// From the file's byte order to the machine's.
    fn native(self) -> Self;
}

impl Word for u32 {
    #[inline]
    fn native(self) -> Self {
        Self::from_le(self)
    }
}

impl Word for u64 {
    #[inline]
    fn native(self) -> Self {
        Self::from_le(self)
    }
}

/// Mapped words of a section, read in the machine's byte order.
#[derive(Clone, Debug)]
pub struct Words<T> {
    section: Section,
    of: std::marker::PhantomData<T>,
}

impl<T: Word> Words<T> {
    fn new(section: Section) -> Result<Self, FileError> {
        if !section.len().is_multiple_of(size_of::<T>()) {
            let start = section.range.start as u64;
            let what = format!("{} bytes are not whole words", section.len());
            return Err(FileError::damaged(section.file.path(), start, what));
        }
        Ok(Self {
            section,
            of: std::marker::PhantomData,
        })
    }

    /// The words as they stand in the file. On a little-endian machine these are the values.
    #[inline]
    pub fn raw(&self) -> &[T] {
        // Sections start at multiples of 64 of a page-aligned map, so the cast never fails.
        bytemuck::cast_slice(self.section.bytes())
    }

    /// Number of words.
    #[inline]
    pub fn len(&self) -> usize {
        self.section.len() / size_of::<T>()
    }

    /// Whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.section.is_empty()
    }

    /// The word at `index`, or `None` outside.
    #[inline]
    pub fn get(&self, index: usize) -> Option<T> {
        self.raw().get(index).map(|word| word.native())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(dir: &Path) -> PathBuf {
        let path = dir.join("sample");
        let mut writer = Writer::create(&path, "sample").unwrap();
        writer.section("empty", &[]).unwrap();
        writer.begin("numbers").unwrap();
        writer.write_u32s(&[7, 8, 9]).unwrap();
        writer.write_u64s(&[1 << 40]).unwrap();
        writer.section("bytes", b"word for word").unwrap();
        writer.finish().unwrap();
        path
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::open(&sample(dir.path()), "sample").unwrap();
        file.verify().unwrap();
        assert!(file.section("empty").unwrap().is_empty());
        let numbers = file.section("numbers").unwrap().u32s().unwrap();
        assert_eq!(
            (numbers.get(2), numbers.get(4), numbers.get(5)),
            (Some(9), Some(256), None)
        );
        assert_eq!(file.section("bytes").unwrap().bytes(), b"word for word");
        assert!(file.section("bytes").unwrap().u32s().is_err());
        assert!(file.section("none").is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = sample(dir.path());
        let good = fs::read(&path).unwrap();
        let bad = dir.path().join("bad");
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&bad, &bytes).unwrap();
            let outcome = File::open(&bad, "sample").and_then(|file| file.verify());
            assert!(outcome.is_err(), "bit {bit} was flipped and not found");
        }
        for length in 0..good.len() {
            fs::write(&bad, &good[..length]).unwrap();
            assert!(
                File::open(&bad, "sample").is_err(),
                "a cut at {length} was not found"
            );
        }
        let mut longer = good.clone();
        longer.push(0);
        fs::write(&bad, &longer).unwrap();
        assert!(matches!(
            File::open(&bad, "sample"),
            Err(FileError::Length { .. })
        ));
    }

    #[test]
    fn refusals_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = sample(dir.path());
        assert!(matches!(
            File::open(&path, "other"),
            Err(FileError::Foreign { .. })
        ));
        assert!(matches!(
            File::open(dir.path(), "sample"),
            Err(FileError::Foreign { .. } | FileError::Io { .. })
        ));
        assert!(matches!(
            File::open(&dir.path().join("no"), "sample"),
            Err(FileError::Io { .. })
        ));
        let mut bytes = fs::read(&path).unwrap();
        bytes[12] = 99;
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(
            File::open(&path, "sample"),
            Err(FileError::Version { found: 99, .. })
        ));
        bytes[8..12].reverse();
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(
            File::open(&path, "sample"),
            Err(FileError::ByteOrder { .. })
        ));
    }

    #[test]
    fn an_unfinished_file_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(&dir.path().join("half"), "sample").unwrap();
        writer.section("bytes", b"half").unwrap();
        drop(writer);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
