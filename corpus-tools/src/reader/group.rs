//! Passages of one title into one document, wherever they stand in the corpus.
//!
//! The passages of a page need not follow each other, so all of them are read before the first document is
//! given. They are sorted by the page they belong to (pages in the order in which they first occur, passages
//! in the order of the corpus) with bounded memory: sorted runs go to a temporary file and are merged from
//! there. Beside them memory holds a hash and a number for each page.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Map;
use xxhash_rust::xxh3::xxh3_128;

use super::{Part, Place, ReadError, Record};
use crate::names::Redirect;

/// Bytes of passages that are sorted in memory.
const RUN: usize = 64 << 20;
/// Bytes of memory with which the runs are read again, all together.
const MERGE: usize = 32 << 20;

/// Gathers passages, then gives documents.
pub(super) struct Grouping {
    folder: Option<PathBuf>,
    run_bytes: usize,
    /// Numbers of the pages by hashes of their titles.
    pages: HashMap<u128, u64>,
    next_page: u64,
    files: Vec<Arc<str>>,
    run: Vec<(u64, Passage)>,
    bytes: usize,
    spool: Option<Spool>,
    redirects: Vec<Redirect>,
}

/// A passage as it is written to the temporary file.
struct Passage {
    id: String,
    title: String,
    text: String,
    metadata: String,
    file: u64,
    line: u64,
}

struct Spool {
    file: BufWriter<File>,
    /// Where each run ends.
    ends: Vec<u64>,
    written: u64,
}

impl Grouping {
    /// Temporary files lie in `folder`, else where the system has them.
    pub fn new(folder: Option<&Path>, run_bytes: Option<usize>) -> Self {
        Self {
            folder: folder.map(Path::to_owned),
            run_bytes: run_bytes.unwrap_or(RUN),
            pages: HashMap::new(),
            next_page: 0,
            files: Vec::new(),
            run: Vec::new(),
            bytes: 0,
            spool: None,
            redirects: Vec::new(),
        }
    }

    /// Takes a passage.
    pub fn push(&mut self, record: Record) -> Result<(), ReadError> {
        let Record {
            id,
            title,
            text,
            metadata,
            place,
            redirects,
            ..
        } = record;
        self.redirects.extend(redirects);
        let file = match self.files.iter().rposition(|name| *name == place.file) {
            Some(known) => known,
            None => {
                self.files.push(place.file);
                self.files.len() - 1
            }
        };
        let new = self.next_page;
        // A passage without a title belongs to no page but its own.
        let page = match title.is_empty() {
            true => new,
            false => *self.pages.entry(xxh3_128(title.as_bytes())).or_insert(new),
        };
        self.next_page += u64::from(page == new);
        self.bytes += id.len() + title.len() + text.len() + 200;
        let metadata = match metadata.is_empty() {
            true => String::new(),
            false => serde_json::to_string(&metadata).unwrap_or_default(),
        };
        self.bytes += metadata.len();
        self.run.push((
            page,
            Passage {
                id,
                title,
                text,
                metadata,
                file: file as u64,
                line: place.line,
            },
        ));
        match self.bytes >= self.run_bytes {
            true => self.write_run().map_err(|source| self.failed(source)),
            false => Ok(()),
        }
    }

    fn failed(&self, source: io::Error) -> ReadError {
        ReadError::Group {
            folder: self.folder.clone().unwrap_or_else(std::env::temp_dir),
            source,
        }
    }

    fn write_run(&mut self) -> io::Result<()> {
        let mut run = std::mem::take(&mut self.run);
        self.bytes = 0;
        // Stable: passages of a page stay in the order of the corpus.
        run.sort_by_key(|(page, _)| *page);
        let spool = match &mut self.spool {
            Some(spool) => spool,
            none => {
                let file = match &self.folder {
                    Some(folder) => tempfile::tempfile_in(folder)?,
                    None => tempfile::tempfile()?,
                };
                none.insert(Spool {
                    file: BufWriter::with_capacity(1 << 18, file),
                    ends: Vec::new(),
                    written: 0,
                })
            }
        };
        for (page, passage) in run {
            spool.written += passage.write(page, &mut spool.file)?;
        }
        spool.ends.push(spool.written);
        Ok(())
    }

    /// All passages were taken: the documents.
    pub fn finish(mut self) -> Result<Grouped, ReadError> {
        let merge = self.merge().map_err(|source| self.failed(source))?;
        Ok(Grouped {
            merge,
            next: None,
            begun: false,
            files: self.files,
            folder: self.folder,
            redirects: self.redirects,
        })
    }

    fn merge(&mut self) -> io::Result<Merge> {
        if self.spool.is_none() {
            self.run.sort_by_key(|(page, _)| *page);
            return Ok(Merge::Memory(std::mem::take(&mut self.run).into_iter()));
        }
        if !self.run.is_empty() {
            self.write_run()?;
        }
        self.pages = HashMap::new();
        let Some(Spool { file, ends, .. }) = self.spool.take() else {
            return Ok(Merge::Memory(Vec::new().into_iter()));
        };
        let file = Arc::new(Mutex::new(
            file.into_inner().map_err(io::IntoInnerError::into_error)?,
        ));
        let buffer = (MERGE / ends.len().max(1)).clamp(1 << 12, 1 << 18);
        let mut runs = Vec::new();
        let mut heads = BinaryHeap::new();
        let mut start = 0;
        for end in ends {
            let piece = RunPiece {
                file: Arc::clone(&file),
                at: start,
                end,
            };
            start = end;
            let mut run = BufReader::with_capacity(buffer, piece);
            if let Some((page, passage)) = Passage::read(&mut run)? {
                heads.push(Reverse((page, runs.len())));
                runs.push((run, Some(passage)));
            }
        }
        Ok(Merge::Disk { runs, heads })
    }
}

impl Passage {
    fn write(&self, page: u64, out: &mut impl Write) -> io::Result<u64> {
        let strings = [&self.id, &self.title, &self.text, &self.metadata];
        let mut written = 0;
        for number in [page, self.file, self.line] {
            out.write_all(&number.to_le_bytes())?;
            written += 8;
        }
        for string in strings {
            out.write_all(&(string.len() as u64).to_le_bytes())?;
            out.write_all(string.as_bytes())?;
            written += 8 + string.len() as u64;
        }
        Ok(written)
    }

    fn read(from: &mut BufReader<RunPiece>) -> io::Result<Option<(u64, Self)>> {
        if io::BufRead::fill_buf(from)?.is_empty() {
            return Ok(None);
        }
        let number = |from: &mut BufReader<RunPiece>| {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes)?;
            Ok::<_, io::Error>(u64::from_le_bytes(bytes))
        };
        let string = |from: &mut BufReader<RunPiece>| {
            let length = number(from)?;
            let mut string = String::new();
            from.take(length).read_to_string(&mut string)?;
            Ok::<_, io::Error>(string)
        };
        let (page, file, line) = (number(from)?, number(from)?, number(from)?);
        let passage = Self {
            id: string(from)?,
            title: string(from)?,
            text: string(from)?,
            metadata: string(from)?,
            file,
            line,
        };
        Ok(Some((page, passage)))
    }
}

/// A part of the temporary file.
struct RunPiece {
    file: Arc<Mutex<File>>,
    at: u64,
    end: u64,
}

impl Read for RunPiece {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.read(&mut buffer[..count])?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The passages of all runs in order.
enum Merge {
    Memory(std::vec::IntoIter<(u64, Passage)>),
    Disk {
        runs: Vec<(BufReader<RunPiece>, Option<Passage>)>,
        /// Page and run of the runs' next passages; of one page the earlier run first.
        heads: BinaryHeap<Reverse<(u64, usize)>>,
    },
}

impl Merge {
    fn next(&mut self) -> io::Result<Option<(u64, Passage)>> {
        match self {
            Self::Memory(passages) => Ok(passages.next()),
            Self::Disk { runs, heads } => {
                let Some(Reverse((page, number))) = heads.pop() else {
                    return Ok(None);
                };
                let (run, head) = &mut runs[number];
                let passage = head.take();
                if let Some((next, passage)) = Passage::read(run)? {
                    *head = Some(passage);
                    heads.push(Reverse((next, number)));
                }
                Ok(passage.map(|passage| (page, passage)))
            }
        }
    }
}

/// Documents, put together from their passages.
pub(super) struct Grouped {
    merge: Merge,
    next: Option<(u64, Passage)>,
    begun: bool,
    files: Vec<Arc<str>>,
    folder: Option<PathBuf>,
    redirects: Vec<Redirect>,
}

impl Grouped {
    /// The next document; `None` at the end.
    pub fn next(&mut self) -> Option<Result<Record, ReadError>> {
        let document = self.document();
        document
            .map_err(|source| ReadError::Group {
                folder: self.folder.clone().unwrap_or_else(std::env::temp_dir),
                source,
            })
            .transpose()
    }

    fn document(&mut self) -> io::Result<Option<Record>> {
        if !self.begun {
            self.begun = true;
            self.next = self.merge.next()?;
        }
        let Some((page, first)) = self.next.take() else {
            return Ok(None);
        };
        let files = &self.files;
        let place = |passage: &Passage| Place {
            file: Arc::clone(&files[passage.file as usize]),
            line: passage.line,
        };
        let metadata =
            |passage: &Passage| serde_json::from_str(&passage.metadata).unwrap_or_default();
        let id = match first.title.is_empty() {
            true => first.id.clone(),
            false => first.title.clone(),
        };
        let mut record = Record::new(id, first.title.clone(), String::new(), place(&first));
        record.metadata = metadata(&first);
        let mut passage = first;
        loop {
            if !record.text.is_empty() && !record.text.ends_with('\n') {
                record.text.push('\n');
            }
            record.parts.push(Part {
                start: record.text.len(),
                place: place(&passage),
                id: passage.id,
            });
            record.text.push_str(&passage.text);
            match self.merge.next()? {
                Some((next, following)) if next == page => {
                    // What all passages say of themselves is said of the page.
                    let other: Map<String, serde_json::Value> = metadata(&following);
                    record
                        .metadata
                        .retain(|name, value| other.get(name) == Some(value));
                    passage = following;
                }
                next => {
                    self.next = next;
                    break;
                }
            }
        }
        record.redirects = std::mem::take(&mut self.redirects);
        Ok(Some(record))
    }
}
