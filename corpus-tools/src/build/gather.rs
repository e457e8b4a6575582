//! Reading: from the inputs to parts of tokenized documents, each finished part in the journal.

use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

use fmindex::Progress;
use fmindex::file::FileError;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::journal::{Journal, Position, part_folder};
use super::part::{Part, PartWriter};
use super::prepare::{Item, Prepared, Preparing, Ready};
use super::space::Space;
use super::{BuildError, Times};
use crate::index::Index;
use crate::reader::{BadRecord, Entry, Place, Reader};
use crate::store::Store;

/// Text read and tokenized at a time: enough for all threads, little enough to stop within a second.
const BATCH: usize = 1 << 20;

/// The reading end of a build.
pub(super) struct Gathering<'a> {
    pub index: &'a Path,
    pub journal: &'a mut Journal,
    pub reader: Reader,
    pub preparing: Preparing<'a>,
    /// Documents that are there already.
    pub base: Option<&'a Index>,
    pub strict: bool,
    /// Bytes of text (and of what is stored beside it) in a part.
    pub part_bytes: u64,
    /// Most tokens of a document.
    pub most_tokens: u64,
    pub space: Space,
    pub progress: &'a dyn Progress,
    pub seen: Seen,
    pub open: Option<PartWriter>,
    /// How far the reader is.
    pub position: Position,
}

impl Gathering<'_> {
    /// Reads, tokenizes and writes, each a batch ahead of the next, until the inputs end.
    ///
    /// `Ok(false)`: the inputs are not those that were read before; nothing was done.
    pub fn run(&mut self, pool: &rayon::ThreadPool, times: &mut Times) -> Result<bool, BuildError> {
        if !self.go_back()? {
            return Ok(false);
        }
        let total = self.reader.total_bytes().unwrap_or(0);
        self.progress.stage("reading and tokenizing", total);
        let mut items = self.timed_batch(times)?;
        let mut ready = Vec::new();
        while !items.is_empty() || !ready.is_empty() {
            if self.progress.interrupted() {
                return Err(BuildError::Interrupted);
            }
            let batch = std::mem::take(&mut items);
            let written = std::mem::take(&mut ready);
            let preparing = self.preparing;
            let (prepared, rest) = pool.install(|| {
                rayon::join(
                    || {
                        let begun = Instant::now();
                        (preparing.prepare(batch), begun.elapsed())
                    },
                    || {
                        let begun = Instant::now();
                        self.write(written)?;
                        times.write += begun.elapsed();
                        self.timed_batch(times)
                    },
                )
            });
            items = rest?;
            ready = prepared.0;
            times.tokenize += prepared.1;
            self.progress.advance(self.reader.bytes_read());
        }
        self.close_part(None)?;
        self.check_unique()?;
        self.journal.left_out = self.reader.left_out();
        self.journal.gathered = true;
        self.journal.write(self.index)?;
        Ok(true)
    }

    /// Passes over what is in parts already; `false` if the inputs differ from what was read then.
    fn go_back(&mut self) -> Result<bool, BuildError> {
        let until = self.journal.position;
        if until.entries == 0 {
            return Ok(true);
        }
        let total = self.reader.total_bytes().unwrap_or(0);
        self.progress
            .stage("going back to where the work was stopped", total);
        while self.position.entries < until.entries {
            if self.position.entries.is_multiple_of(1024) {
                if self.progress.interrupted() {
                    return Err(BuildError::Interrupted);
                }
                self.progress.advance(self.reader.bytes_read());
            }
            match self.reader.next() {
                None => return Ok(false),
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(Entry::Bad(_))) => self.position.pass_bad(),
                Some(Ok(Entry::Record(record))) => self.position.pass(&record),
            }
        }
        if self.position != until {
            return Ok(false);
        }
        for number in self.journal.used_parts..self.journal.parts {
            let part = Part::open(&part_folder(self.index, number))?;
            for document in 0..part.store.documents() {
                self.seen.insert(part.store.id(document)?, Kind::Document);
                for passage in part.store.passages(document)? {
                    self.seen.insert(&passage.id, Kind::Passage);
                }
            }
        }
        Ok(true)
    }

    fn timed_batch(&mut self, times: &mut Times) -> Result<Vec<Item>, BuildError> {
        let begun = Instant::now();
        let batch = self.batch();
        times.read += begun.elapsed();
        batch
    }

    /// The next entries, about [`BATCH`] bytes of them; none at the end.
    fn batch(&mut self) -> Result<Vec<Item>, BuildError> {
        let mut items = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH {
            let found = match self.reader.next() {
                None => break,
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(Entry::Bad(bad))) => {
                    self.position.pass_bad();
                    Err(bad)
                }
                Some(Ok(Entry::Record(record))) => {
                    self.position.pass(&record);
                    bytes += record.text.len() + record.title.len();
                    Ok(*record)
                }
            };
            bytes += 64;
            items.push(Item {
                found,
                position: self.position,
            });
        }
        Ok(items)
    }

    fn write(&mut self, entries: Vec<Ready>) -> Result<(), BuildError> {
        for Ready { document, position } in entries {
            let document = document.and_then(|document| {
                match document.tokens.len() as u64 > self.most_tokens {
                    false => Ok(document),
                    true => Err(BadRecord::at(
                        &document.record.place,
                        format!(
                            "{} tokens; a segment of this build holds {}",
                            document.tokens.len(),
                            self.most_tokens
                        ),
                    )),
                }
            });
            match document {
                Err(bad) if self.strict => return Err(BuildError::Strict(bad)),
                Err(bad) => self.journal.skipped.push(bad),
                Ok(document) => self.push(&document)?,
            }
            let full = |part: &PartWriter| part.weight() >= self.part_bytes;
            if self.open.as_ref().is_some_and(full) {
                self.close_part(Some(position))?;
            }
        }
        Ok(())
    }

    fn push(&mut self, document: &Prepared) -> Result<(), BuildError> {
        let record = &document.record;
        // The title of a page, which is the id of its document, may be the id of a passage elsewhere.
        let document_id = (&record.id, &record.place, Kind::Document);
        let passages = record
            .parts
            .iter()
            .map(|part| (&part.id, &part.place, Kind::Passage));
        for (id, place, kind) in std::iter::once(document_id).chain(passages) {
            let in_base = match (self.base, kind) {
                (None, _) => false,
                (Some(base), Kind::Document) => base.document_by_external_id(id)?.is_some(),
                (Some(base), Kind::Passage) => base.find_passage(id)?.is_some(),
            };
            if in_base {
                return Err(BuildError::DuplicateId {
                    id: id.clone(),
                    first: "in the index".to_owned(),
                    second: place.clone(),
                });
            }
            if self.seen.insert(id, kind) {
                return Err(self.duplicate(id, kind, place.clone())?);
            }
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let dir = part_folder(self.index, self.journal.parts);
                self.open.insert(PartWriter::create(&dir)?)
            }
        };
        Ok(open.push(document)?)
    }

    /// The error of an id that was seen before.
    fn duplicate(&self, id: &str, kind: Kind, second: Place) -> Result<BuildError, FileError> {
        let mut first = self.open.as_ref().and_then(|open| match kind {
            Kind::Document => open.place_of(id),
            Kind::Passage => open.place_of_passage(id),
        });
        for number in self.journal.used_parts..self.journal.parts {
            let part = Part::open(&part_folder(self.index, number))?;
            let found = match kind {
                Kind::Document => part.store.find(id)?,
                Kind::Passage => part.store.find_passage(id)?.map(|found| found.0),
            };
            if let Some(document) = found {
                first = Some(part.place(document)?);
                break;
            }
        }
        Ok(BuildError::DuplicateId {
            id: id.to_owned(),
            first: first.map_or("in a finished part".to_owned(), |place| {
                format!("at {place}")
            }),
            second,
        })
    }

    /// Finishes the part that is open: from then on it will not be made again. Without a position: at the
    /// end of the inputs.
    fn close_part(&mut self, position: Option<Position>) -> Result<(), BuildError> {
        if let Some(part) = self.open.take() {
            self.journal.text_bytes += part.text_bytes();
            let written = part.text_bytes() + part.tokens() * 4;
            part.finish()?;
            self.journal.parts += 1;
            self.space.wrote(written);
        }
        self.journal.position = position.unwrap_or(self.position);
        self.journal.write(self.index)?;
        let read = self.reader.bytes_read();
        self.space.check(
            self.index,
            read,
            self.reader.total_bytes().unwrap_or(read),
            self.journal.text_bytes,
        )
    }

    /// Compares the ids of all parts where memory did not hold them while they were read.
    fn check_unique(&mut self) -> Result<(), BuildError> {
        if self.seen.is_complete() {
            return Ok(());
        }
        self.seen.forget();
        let parts = (self.journal.used_parts..self.journal.parts)
            .map(|number| Part::open(&part_folder(self.index, number)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut ids = 0;
        for part in &parts {
            for document in 0..part.store.documents() {
                ids += 1 + part.store.passages(document)?.len() as u64;
            }
        }
        let rounds = ids.div_ceil(self.seen.capacity()).max(1);
        self.progress.stage("comparing ids", rounds);
        for round in 0..rounds {
            let mut found: Vec<(u128, u32, u32)> = Vec::new();
            for (number, part) in parts.iter().enumerate() {
                for document in 0..part.store.documents() {
                    let mut add = |id: &str, kind| {
                        let hash = hash(id, kind);
                        if hash as u64 % rounds == round {
                            found.push((hash, number as u32, document));
                        }
                    };
                    add(part.store.id(document)?, Kind::Document);
                    for passage in part.store.passages(document)? {
                        add(&passage.id, Kind::Passage);
                    }
                }
                if self.progress.interrupted() {
                    return Err(BuildError::Interrupted);
                }
            }
            found.sort_unstable();
            for two in found.windows(2) {
                if two[0].0 == two[1].0 {
                    let place = |at: (u128, u32, u32)| parts[at.1 as usize].place(at.2);
                    return Err(BuildError::DuplicateId {
                        id: id_with(&parts[two[1].1 as usize].store, two[1].2, two[1].0)?,
                        first: format!("at {}", place(two[0])?),
                        second: place(two[1])?,
                    });
                }
            }
            self.progress.advance(round + 1);
        }
        Ok(())
    }
}

/// The hash that ids of one kind are compared by.
fn hash(id: &str, kind: Kind) -> u128 {
    xxh3_128_with_seed(id.as_bytes(), kind as u64)
}

/// The id of a document, or of a passage in it, with this hash.
fn id_with(store: &Store, document: u32, wanted: u128) -> Result<String, FileError> {
    let mut passages = store.passages(document)?.into_iter();
    Ok(passages
        .find(|passage| hash(&passage.id, Kind::Passage) == wanted)
        .map_or(store.id(document)?.to_owned(), |passage| passage.id))
}

/// What an id is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Document,
    Passage,
}

/// Ids that were seen, as 128-bit hashes, as long as there is memory for them.
pub(super) struct Seen {
    hashes: HashSet<[u32; 4]>,
    most: u64,
    complete: bool,
}

impl Seen {
    /// Bytes of an entry at worst: 17 a place, when a table that is full at 7/8 grows to one of twice its
    /// size beside it.
    const ENTRY: u64 = 60;

    /// A set that may take `memory` bytes.
    pub fn new(memory: u64) -> Self {
        Self {
            hashes: HashSet::new(),
            most: (memory / Self::ENTRY).max(1),
            complete: true,
        }
    }

    /// Whether every id was compared with all before it.
    fn is_complete(&self) -> bool {
        self.complete
    }

    /// How many ids fit.
    fn capacity(&self) -> u64 {
        self.most
    }

    fn forget(&mut self) {
        self.hashes = HashSet::new();
    }

    /// Whether `id` was seen before, as far as that is known.
    fn insert(&mut self, id: &str, kind: Kind) -> bool {
        if !self.complete {
            return false;
        }
        if self.hashes.len() as u64 >= self.most {
            self.complete = false;
            self.forget();
            return false;
        }
        let hash = hash(id, kind);
        let words = [0, 32, 64, 96].map(|shift| (hash >> shift) as u32);
        !self.hashes.insert(words)
    }
}
