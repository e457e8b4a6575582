//! The journal of unfinished work: which steps are finished, so that the same command goes on after the
//! last of them.
//!
//! It lies in the work folder, is written anew by rename after every finished step, and is removed last.
//! What it does not name is not finished and is cleared away.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use fmindex::file::FileError;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::Skipped;
use crate::manifest::{Counts, SegmentEntry, WORK_FOLDER, write_renamed};
use crate::reader::{Input, LeftOut, Record};

const JOURNAL_FILE: &str = "journal.json";
pub(super) const PARTS_FOLDER: &str = "parts";
/// No journal is longer.
const LONGEST: u64 = 256 << 20;
const VERSION: u32 = 1;
/// The task of building a new index.
pub(super) const BUILD: &str = "build";

/// An input as it was when the work began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InputMark {
    name: String,
    bytes: u64,
    /// Nanoseconds since 1970 of the last change.
    modified: u64,
    /// Of a folder: a hash of names, sizes and times of all that lies below it.
    #[serde(default)]
    below: u64,
}

impl InputMark {
    /// Marks of `inputs`; `None` where one cannot be read twice.
    pub fn of(inputs: &[Input]) -> Option<Vec<Self>> {
        let mark = |input: &Input| {
            let path = input.path()?;
            let found = fs::metadata(&path).ok();
            let modified = found.as_ref().and_then(|found| found.modified().ok());
            let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            Some(Self {
                name: input.to_string(),
                bytes: found.as_ref().map_or(0, fs::Metadata::len),
                modified: since.map_or(0, |since| since.as_nanos() as u64),
                below: match found.is_some_and(|found| found.is_dir()) {
                    true => below(&path, 0),
                    false => 0,
                },
            })
        };
        inputs.iter().map(mark).collect()
    }
}

/// Folders within folders that are looked into, as far as a reader goes.
const DEEPEST: usize = 200;

/// A hash of names, sizes and times of all that lies below a folder. Links are not followed.
fn below(folder: &Path, depth: usize) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    let mut hash = 0;
    for path in paths {
        let Ok(found) = fs::symlink_metadata(&path) else {
            continue;
        };
        let time = found.modified().ok();
        let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let since = since.map_or(0, |since| since.as_nanos() as u64);
        let inside = match found.is_dir() && depth < DEEPEST {
            true => below(&path, depth + 1),
            false => 0,
        };
        let name = path.file_name().unwrap_or_default();
        hash = xxh3_64_with_seed(name.as_encoded_bytes(), hash);
        for number in [found.len(), since, inside] {
            hash = xxh3_64_with_seed(&number.to_le_bytes(), hash);
        }
    }
    hash
}

/// How far the inputs are read into parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// Entries of the reader, good and bad.
    pub entries: u64,
    /// A hash of all good ones.
    pub hash: u64,
}

impl Position {
    /// Goes on by one record.
    pub fn pass(&mut self, record: &Record) {
        self.entries += 1;
        for part in [&record.id, &record.title, &record.text] {
            self.hash = xxh3_64_with_seed(part.as_bytes(), self.hash.wrapping_add(1));
        }
        let parts = record.parts.iter().map(|part| &part.id);
        let redirects = record.redirects.iter();
        for name in parts.chain(redirects.flat_map(|redirect| [&redirect.title, &redirect.target]))
        {
            self.hash = xxh3_64_with_seed(name.as_bytes(), self.hash.wrapping_add(2));
        }
        for (name, value) in &record.metadata {
            self.hash = xxh3_64_with_seed(name.as_bytes(), self.hash);
            self.hash = xxh3_64_with_seed(value.to_string().as_bytes(), self.hash);
        }
    }

    /// Goes on by an entry that is left out.
    pub fn pass_bad(&mut self) {
        self.entries += 1;
    }
}

/// A place among the documents of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// Which source: a part or a segment, from 0.
    pub source: usize,
    /// The document in it.
    pub document: u32,
}

impl Cursor {
    /// The first document of a source.
    pub fn at_source(source: usize) -> Self {
        Self {
            source,
            document: 0,
        }
    }
}

/// A segment whose documents and BM25 index are written, and whose FM-index is not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpenSegment {
    pub name: String,
    pub counts: Counts,
    /// The document after its last.
    pub end: Cursor,
}

/// What is finished of a work.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Journal {
    version: u32,
    /// `build`, `add` or `merge`.
    pub(super) task: String,
    /// What the parts depend on.
    reading: String,
    /// What the segments depend on.
    pub(super) writing: String,
    inputs: Vec<InputMark>,
    pub(super) position: Position,
    pub(super) parts: usize,
    /// Parts before this one went into segments and are removed.
    pub(super) used_parts: usize,
    pub(super) text_bytes: u64,
    /// Whether all inputs are read.
    pub(super) gathered: bool,
    pub(super) skipped: Skipped,
    /// What was left out on purpose, once all inputs are read.
    #[serde(default)]
    pub(super) left_out: LeftOut,
    /// Finished segments.
    pub segments: Vec<SegmentEntry>,
    /// Where the next segment begins.
    pub next: Cursor,
    pub open: Option<OpenSegment>,
}

impl Journal {
    /// A journal of nothing. `reading` and `writing` are the options in words that parts and segments
    /// depend on.
    pub fn new(task: &str, reading: &str, writing: &str, inputs: &[Input]) -> Self {
        let digest = |text: &str| format!("{:016x}", xxh3_64(text.as_bytes()));
        Self {
            version: VERSION,
            task: task.to_owned(),
            reading: digest(reading),
            writing: digest(writing),
            inputs: InputMark::of(inputs).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// The journal in the index folder `index`, if there is one that can be read.
    pub fn read(index: &Path) -> Option<Self> {
        let path = index.join(WORK_FOLDER).join(JOURNAL_FILE);
        let found = fs::metadata(&path).ok()?;
        if found.len() > LONGEST {
            return None;
        }
        let journal: Self = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (journal.version == VERSION).then_some(journal)
    }

    /// Writes the journal.
    pub fn write(&self, index: &Path) -> Result<(), FileError> {
        let work = index.join(WORK_FOLDER);
        fs::create_dir_all(&work).map_err(|e| FileError::io(&work, "create the folder", e))?;
        let json = serde_json::to_vec(self).expect("a journal is plain JSON");
        write_renamed(&work.join(JOURNAL_FILE), &json)
    }

    /// Whether it is the journal of a build, not of a change of an index.
    pub fn is_build(&self) -> bool {
        self.task == BUILD
    }

    /// Whether anything is finished that would be lost.
    pub fn holds_work(&self) -> bool {
        self.parts > 0 || !self.segments.is_empty() || self.open.is_some()
    }

    /// How this journal of an earlier run serves the work that `new` begins, whose inputs can be read again
    /// or not.
    pub fn compare(&self, new: &Self, readable_again: bool) -> Resume {
        if self.task != new.task {
            return Resume::No("of another kind");
        }
        if !readable_again {
            return Resume::No("from standard input, which cannot be read again");
        }
        if self.reading != new.reading {
            return Resume::No("with other options or another tokenizer");
        }
        if self.inputs != new.inputs {
            return Resume::No("of other inputs, or they have changed since");
        }
        match self.writing == new.writing {
            true => Resume::All,
            // Segments of another size cannot be kept, and used-up parts cannot be had again.
            false if self.used_parts > 0 => Resume::No("with other options"),
            false => Resume::Parts,
        }
    }

    /// The same work with nothing finished.
    pub fn emptied(&self) -> Self {
        let of_work = self.clone();
        Self {
            version: of_work.version,
            task: of_work.task,
            reading: of_work.reading,
            writing: of_work.writing,
            inputs: of_work.inputs,
            ..Self::default()
        }
    }

    /// Forgets the segments.
    pub fn keep_parts(&mut self, new: &Self) {
        self.writing.clone_from(&new.writing);
        self.segments.clear();
        self.next = Cursor::default();
        self.open = None;
    }
}

/// What of an earlier run can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    All,
    Parts,
    /// Nothing: it was an unfinished work … (the rest of a sentence).
    No(&'static str),
}

/// The folder of part `number`.
pub(super) fn part_folder(index: &Path, number: usize) -> PathBuf {
    let name = format!("{:06}", number + 1);
    index.join(WORK_FOLDER).join(PARTS_FOLDER).join(name)
}

/// Removes the work folder, the journal last.
pub(crate) fn clear_work(index: &Path) {
    let work = index.join(WORK_FOLDER);
    let _ = fs::remove_dir_all(work.join(PARTS_FOLDER));
    let _ = fs::remove_file(work.join(format!("{JOURNAL_FILE}.partial")));
    let _ = fs::remove_file(work.join(JOURNAL_FILE));
    let _ = fs::remove_dir(&work);
}
