//! Building an index from corpora: read, tokenize, write segments, and last the manifest.
//!
//! The work goes in steps, and each finished step is in the journal: *parts* of tokenized documents
//! while the inputs are read, then of each segment first its documents and BM25 index, then its
//! FM-index. A build that was interrupted, killed, or ran into a full disk goes on after the last
//! finished step when it is started again, and ends with the same bytes.

mod assemble;
mod folder;
mod gather;
mod journal;
mod part;
mod prepare;
mod space;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fmindex::file::FileError;
use fmindex::{MAX_ALPHABET, Profile, Progress};
use models::tokenizer::{Tokenizer, TokenizerError};
use serde::{Deserialize, Serialize};

use crate::analysis::{Analyser, Stemming};
use crate::index::{Index, IndexError};
use crate::manifest::{
    Counts, Manifest, SEGMENTS_FOLDER, SegmentEntry, Settings, TOKENIZER_FILE, TokenizerEntry,
    describe_file, write_renamed,
};
use crate::reader::{BadRecord, Input, LeftOut, Place, ReadError, ReadOptions, Reader};
use crate::store::Stored;

pub(crate) use assemble::{Assembly, Documents, Source};
pub(crate) use folder::Folder;
use gather::{Gathering, Seen};
use journal::{BUILD, Cursor, Position, part_folder};
pub(crate) use journal::{Journal, Resume, clear_work};
use part::Part;
use prepare::Preparing;
pub(crate) use prepare::joined;
use space::Space;

/// So many bad records are listed, the rest is only counted.
const LISTED: usize = 1000;
/// Memory beside what grows with the corpus or a segment: batches, term table, tokenizer, program.
const FIXED_MEMORY: u64 = 256 << 20;
/// A budget must leave room for segments of this many tokens.
const SMALLEST_SEGMENT: u64 = 4 << 20;

/// What to build.
#[derive(Clone, Debug)]
pub struct BuildOptions<'a> {
    /// The corpora, in order.
    pub corpora: Vec<Input>,
    /// The folder of the index; for [`build`] it must not exist, or be empty, or hold an unfinished build.
    pub out: PathBuf,
    /// The tokenizer of the model that will be asked.
    pub tokenizer: &'a Tokenizer,
    /// Threads; 0 for one a processor. The index does not depend on it.
    pub jobs: usize,
    /// Bytes of memory to stay within, by cutting the corpus into segments; `None`: one segment as
    /// long as it can be.
    pub memory: Option<u64>,
    /// Bytes of memory for the ids that were read, beyond which they are compared at the end; `None`: half of
    /// what the budget leaves.
    pub id_memory: Option<u64>,
    /// Most tokens of a segment; `None`: as many as fit into memory and format.
    pub segment_tokens: Option<u64>,
    /// Whether the first bad record ends the build.
    pub strict: bool,
    /// Bytes of text after which what is tokenized is safe from a kill.
    pub checkpoint: u64,
    /// Whether the texts are kept.
    pub store: Stored,
    /// Sampling of the FM-index.
    pub profile: Profile,
    /// How words are stemmed for BM25.
    pub stemming: Stemming,
    /// Limits of reading.
    pub read: ReadOptions,
}

impl<'a> BuildOptions<'a> {
    /// An index of `corpora` in the folder `out`, everything else by default.
    pub fn new(
        corpora: impl IntoIterator<Item = Input>,
        out: impl Into<PathBuf>,
        tokenizer: &'a Tokenizer,
    ) -> Self {
        Self {
            corpora: corpora.into_iter().collect(),
            out: out.into(),
            tokenizer,
            jobs: 0,
            memory: None,
            id_memory: None,
            segment_tokens: None,
            strict: false,
            checkpoint: 16 << 20,
            store: Stored::default(),
            profile: Profile::default(),
            stemming: Stemming::default(),
            read: ReadOptions::default(),
        }
    }

    /// Whether all inputs can be read a second time.
    fn is_readable_again(&self) -> bool {
        !self.corpora.contains(&Input::StandardInput)
    }
}

/// What a build did. After a build that was resumed, the times are those of the last run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BuildReport {
    /// Documents indexed.
    pub documents: u64,
    /// Paragraphs indexed, titles included.
    pub paragraphs: u64,
    /// Tokens indexed, separators included.
    pub tokens: u64,
    /// Bytes of the documents' texts.
    pub text_bytes: u64,
    /// Bytes of the index.
    pub bytes: u64,
    /// Segments written.
    pub segments: u64,
    /// Seconds of the whole build.
    pub seconds: f64,
    /// Seconds by stage; reading, tokenizing and writing run side by side and overlap.
    pub stages: Vec<Stage>,
    /// How many records were left out.
    pub skipped_count: u64,
    /// The first thousand of them.
    pub skipped: Vec<BadRecord>,
    /// What was left out on purpose, by kind: redirects, pages of other namespaces or content models.
    pub left_out: LeftOut,
    /// What became of an earlier run that was not finished, in words.
    pub notes: Vec<String>,
}

/// A stage of a build and its time.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// Seconds spent in it.
    pub seconds: f64,
}

/// Why an index was not built. What was there before is untouched, and nothing half-made is taken for
/// whole. What was finished is kept for the same command to go on with, unless the inputs are at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A corpus cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The FM-index cannot be built.
    #[error(transparent)]
    FmIndex(fmindex::BuildError),
    /// A bad record, where none was to be tolerated.
    #[error("{0} (strict: the build ends at the first bad record)")]
    Strict(BadRecord),
    /// Two documents have the same id.
    #[error("{second}: the document id {id:?} was seen before, {first}; ids must be unique")]
    DuplicateId {
        /// The id.
        id: String,
        /// Where it stood first, in words.
        first: String,
        /// Where it stands again.
        second: Place,
    },
    /// No document at all.
    #[error(
        "{corpora}: no usable document ({skipped} records left out{first}); expected JSON Lines {{\"id\",\"title\",\"text\"}}; nothing was built"
    )]
    Empty {
        /// The corpora, by name.
        corpora: String,
        /// Number of bad records.
        skipped: u64,
        /// The first of them, in words.
        first: String,
    },
    /// There is an index already.
    #[error("{path}: there is an index already; delete it or name another folder")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// There is something else.
    #[error("{path}: not a folder for an index: it holds {found:?}; name a new or an empty folder")]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// Something that no index has.
        found: String,
    },
    /// Another program is writing the index.
    #[error("{path}: another program is writing this index{by}; wait for it to end")]
    Locked {
        /// The folder.
        path: PathBuf,
        /// Its process, where it could be told.
        by: String,
    },
    /// The memory budget is too small.
    #[error("a budget of {budget} bytes of memory is too small: {needed} would do")]
    Memory {
        /// The budget.
        budget: u64,
        /// The smallest that works.
        needed: u64,
    },
    /// The tokenizer has too many tokens.
    #[error("a vocabulary of {size} tokens; an index holds at most {MAX_ALPHABET} symbols")]
    Vocabulary {
        /// Highest token id + 1.
        size: u32,
    },
    /// The tokenizer cannot be written.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The index that is added to, or merged, cannot be read.
    #[error(transparent)]
    Index(Box<IndexError>),
    /// The disk is too small.
    #[error(
        "{path}: {needed} bytes of disk space are needed and {free} are free; make room or name a folder on another disk (the same command goes on from here)"
    )]
    Space {
        /// The folder of the index.
        path: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that are needed, by estimate.
        needed: u64,
    },
    /// The system gives no threads.
    #[error("no threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// [`Progress::interrupted`] said so.
    #[error("interrupted; the same command goes on from the last finished step")]
    Interrupted,
}

impl From<IndexError> for BuildError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::File(error) => Self::File(error),
            other => Self::Index(Box::new(other)),
        }
    }
}

impl From<fmindex::BuildError> for BuildError {
    fn from(error: fmindex::BuildError) -> Self {
        match error {
            fmindex::BuildError::Interrupted => Self::Interrupted,
            fmindex::BuildError::File(error) => Self::File(error),
            other => Self::FmIndex(other),
        }
    }
}

/// Builds an index, or goes on with a build that was not finished.
///
/// # Errors
/// See [`BuildError`].
pub fn build(
    options: &BuildOptions<'_>,
    progress: &dyn Progress,
) -> Result<BuildReport, BuildError> {
    let begun = Instant::now();
    let limits = Limits::of(options)?;
    let (folder, finished) = Folder::claim_new(&options.out)?;
    if let Some(manifest) = finished {
        // Killed after the manifest was written and before everything was cleared away.
        let new = Work::journal(BUILD, "", options, &limits);
        let same = |old: Journal| old.compare(&new, options.is_readable_again()) == Resume::All;
        if !Journal::read(&options.out).is_some_and(same) {
            let path = options.out.clone();
            return Err(BuildError::Exists { path });
        }
        clear_work(folder.path());
        folder.keep();
        let mut report = BuildReport::of(&manifest, &Times::default());
        report.notes.push("the build was finished already".into());
        return Ok(report);
    }
    let mut work = Work::begin(BUILD, "", options, limits, &folder, None, progress)?;
    let outcome = work.run();
    let report = outcome.and_then(|()| {
        let tokenizer = write_tokenizer(folder.path(), options.tokenizer)?;
        let settings = Settings {
            tokenizer,
            stemming: options.stemming,
            profile: options.profile.to_string(),
            store: options.store,
        };
        work.publish(Manifest::new(settings, work.journal.segments.clone()))
    });
    let mut report = match report {
        Ok(report) => report,
        Err(error) => {
            if work.is_worth_keeping(&error) {
                folder.keep();
            }
            return Err(error);
        }
    };
    folder.keep();
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

fn write_tokenizer(dir: &Path, tokenizer: &Tokenizer) -> Result<TokenizerEntry, BuildError> {
    write_renamed(&dir.join(TOKENIZER_FILE), &tokenizer.to_json()?)?;
    Ok(TokenizerEntry {
        fingerprint: tokenizer.fingerprint().to_owned(),
        vocabulary_size: tokenizer.vocabulary_size(),
        file: describe_file(dir, TOKENIZER_FILE)?,
    })
}

/// What memory and format allow.
pub(crate) struct Limits {
    pub fm: fmindex::BuildOptions,
    /// Most tokens of a segment.
    pub most_tokens: u64,
}

impl Limits {
    /// The limits of a build.
    pub fn of(options: &BuildOptions<'_>) -> Result<Self, BuildError> {
        let vocabulary = options.tokenizer.vocabulary_size();
        let (profile, threads, memory) = (options.profile, options.jobs, options.memory);
        if vocabulary >= MAX_ALPHABET {
            return Err(BuildError::Vocabulary { size: vocabulary });
        }
        let fm = fmindex::BuildOptions {
            alphabet: vocabulary + 1,
            separator: vocabulary,
            profile,
            threads,
            memory: memory.map(|memory| memory.saturating_sub(FIXED_MEMORY)),
        };
        let fitting = fm.most_tokens();
        if let Some(budget) = memory
            && fitting < SMALLEST_SEGMENT
        {
            let needed = FIXED_MEMORY + fm.peak_memory(SMALLEST_SEGMENT);
            return Err(BuildError::Memory { budget, needed });
        }
        let most_tokens = fitting.min(options.segment_tokens.unwrap_or(u64::MAX));
        Ok(Self { fm, most_tokens })
    }

    /// What segments depend on, in words: where they are cut and what is in them.
    fn in_words(&self, stemming: Stemming, stored: Stored) -> String {
        format!(
            "{} {:?} {} {stemming:?} {stored}",
            self.most_tokens, self.fm.memory, self.fm.profile
        )
    }
}

/// Time spent by stage.
#[derive(Default)]
pub(crate) struct Times {
    read: Duration,
    tokenize: Duration,
    write: Duration,
    texts: Duration,
    fm: Duration,
    seal: Duration,
}

impl BuildReport {
    /// A report of the live segments of an index.
    pub(crate) fn of(manifest: &Manifest, times: &Times) -> Self {
        let Counts {
            documents,
            paragraphs,
            tokens,
            text_bytes,
        } = manifest.counts;
        let files = manifest.segments.iter().flat_map(SegmentEntry::all_files);
        let stage = |name, time: Duration| Stage {
            name,
            seconds: time.as_secs_f64(),
        };
        Self {
            documents,
            paragraphs,
            tokens,
            text_bytes,
            bytes: files.map(|file| file.bytes).sum::<u64>() + manifest.tokenizer.file.bytes,
            segments: manifest.segments.len() as u64,
            stages: vec![
                stage("read", times.read),
                stage("tokenize", times.tokenize),
                stage("write parts", times.write),
                stage("documents and bm25", times.texts),
                stage("fm-index", times.fm),
                stage("checksums", times.seal),
            ],
            ..Self::default()
        }
    }
}

/// Bad records: the first ones listed, all counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Skipped {
    count: u64,
    listed: Vec<BadRecord>,
}

impl Skipped {
    fn push(&mut self, bad: BadRecord) {
        self.count += 1;
        if self.listed.len() < LISTED {
            self.listed.push(bad);
        }
    }
}

/// New segments on their way into an index: of a new one, or of one that is added to.
pub(crate) struct Work<'a> {
    options: &'a BuildOptions<'a>,
    limits: Limits,
    dir: PathBuf,
    base: Option<&'a Index>,
    pool: rayon::ThreadPool,
    progress: &'a dyn Progress,
    journal: Journal,
    times: Times,
    notes: Vec<String>,
}

impl<'a> Work<'a> {
    /// Looks at what an earlier run left in the claimed folder, and clears away what is of no use.
    /// `base_mark` stands for the state of the index without which what is finished is of no use.
    pub fn begin(
        task: &str,
        base_mark: &str,
        options: &'a BuildOptions<'a>,
        limits: Limits,
        folder: &Folder,
        base: Option<&'a Index>,
        progress: &'a dyn Progress,
    ) -> Result<Self, BuildError> {
        let dir = folder.path().to_owned();
        let new = Self::journal(task, base_mark, options, &limits);
        let mut work = Self {
            options,
            limits,
            dir,
            base,
            pool: rayon::ThreadPoolBuilder::new()
                .num_threads(options.jobs)
                .build()?,
            progress,
            journal: new,
            times: Times::default(),
            notes: Vec::new(),
        };
        work.resume();
        Ok(work)
    }

    /// The journal of a work in which nothing is finished yet.
    fn journal(
        task: &str,
        base_mark: &str,
        options: &BuildOptions<'_>,
        limits: &Limits,
    ) -> Journal {
        let reading = format!(
            "{base_mark} {} {:?} {} {} {} {:?} {:?}",
            options.tokenizer.fingerprint(),
            options.read,
            options.strict,
            options.store,
            options.checkpoint,
            options.memory,
            options.corpora,
        );
        let writing = limits.in_words(options.stemming, options.store);
        Journal::new(task, &reading, &writing, &options.corpora)
    }

    /// Takes over the journal of an earlier run, or clears away what it left.
    fn resume(&mut self) {
        let readable_again = self.options.is_readable_again();
        let found = Journal::read(&self.dir);
        match found.map(|old| (old.compare(&self.journal, readable_again), old)) {
            Some((Resume::All, old)) => {
                self.note_resumed(&old);
                self.journal = old;
            }
            Some((Resume::Parts, mut old)) => {
                old.keep_parts(&self.journal);
                self.note_resumed(&old);
                self.journal = old;
            }
            Some((Resume::No(why), old)) => {
                if old.holds_work() {
                    self.notes
                        .push(format!("an unfinished work was there, {why}: begun again"));
                }
                clear_work(&self.dir);
            }
            None => clear_work(&self.dir),
        }
        self.clear_orphans();
    }

    fn note_resumed(&mut self, old: &Journal) {
        if old.holds_work() {
            self.notes.push(format!(
                "went on with an unfinished work: {} parts and {} segments were there",
                old.parts,
                old.segments.len()
            ));
        }
    }

    /// Removes segments that neither the index nor the journal speaks of.
    fn clear_orphans(&self) {
        let live = self.base.map(|base| base.manifest().segments.as_slice());
        let names: Vec<&str> = live
            .unwrap_or_default()
            .iter()
            .chain(&self.journal.segments)
            .map(|entry| entry.name.as_str())
            .chain(self.journal.open.iter().map(|open| open.name.as_str()))
            .collect();
        remove_segments(&self.dir, |name| !names.contains(&name));
    }

    /// Reads what is not read, and writes the segments that are not written.
    pub fn run(&mut self) -> Result<(), BuildError> {
        while !self.journal.gathered {
            if !self.gather()? {
                self.notes.push(
                    "an unfinished work was there, but the inputs have changed since: begun again"
                        .into(),
                );
                self.start_again();
            }
        }
        let mut sources = (0..self.journal.parts)
            .map(|number| match number < self.journal.used_parts {
                true => Ok(None),
                false => Part::open(&part_folder(&self.dir, number)).map(Some),
            })
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .map(|part| part.map_or(Source::Nothing, |part| Source::Part(Box::new(part))))
            .collect::<Vec<_>>();
        self.write_segments(&mut sources)?;
        if self.journal.segments.is_empty() {
            let skipped = &self.journal.skipped;
            let corpora: Vec<String> = self.options.corpora.iter().map(Input::to_string).collect();
            let first = skipped.listed.first();
            return Err(BuildError::Empty {
                corpora: corpora.join(", "),
                skipped: skipped.count,
                first: first.map_or(String::new(), |bad| format!(", the first is {bad}")),
            });
        }
        Ok(())
    }

    /// Forgets everything that was finished.
    fn start_again(&mut self) {
        clear_work(&self.dir);
        self.journal = self.journal.emptied();
        self.clear_orphans();
    }

    fn gather(&mut self) -> Result<bool, BuildError> {
        let options = self.options;
        let mut read = options.read.clone();
        // A line is held together with what is parsed from it.
        if let Some(memory) = options.memory {
            let most = memory.saturating_sub(FIXED_MEMORY) / 4 + (1 << 20);
            read.longest_line = read.longest_line.min(most as usize);
        }
        if read.threads == 0 {
            read.threads = options.jobs;
        }
        // Where there is room for an index, there is room for its passages.
        read.temporary.get_or_insert_with(|| self.dir.clone());
        let reader = Reader::with_options(options.corpora.clone(), read);
        let space = Space::check_before(&self.dir, reader.total_bytes(), self.journal.text_bytes)?;
        let half = self.limits.fm.memory.map(|memory| memory / 2);
        let id_memory = options.id_memory.or(half).unwrap_or(u64::MAX);
        let mut gathering = Gathering {
            index: &self.dir,
            journal: &mut self.journal,
            reader,
            preparing: Preparing {
                tokenizer: options.tokenizer,
                separator: self.limits.fm.separator,
                stored: options.store,
                memory: options.memory,
            },
            base: self.base,
            strict: options.strict,
            part_bytes: options.checkpoint,
            most_tokens: self.limits.most_tokens,
            space,
            progress: self.progress,
            seen: Seen::new(id_memory),
            open: None,
            position: Position::default(),
        };
        gathering.run(&self.pool, &mut self.times)
    }

    /// Writes segments of all documents after those that are finished.
    pub fn write_segments(&mut self, sources: &mut [Source]) -> Result<(), BuildError> {
        let first = 1 + self.base.map_or(0, last_number);
        let assembly = Assembly {
            index: &self.dir,
            fm: &self.limits.fm,
            most_tokens: self.limits.most_tokens,
            analyser: Analyser::new(self.options.stemming),
            stored: self.options.store,
            progress: self.progress,
        };
        loop {
            let documents = Documents(sources);
            let Some(from) = documents.live_from(self.journal.next) else {
                return Ok(());
            };
            let open = match self.journal.open.take() {
                Some(open) => open,
                None => {
                    if let Some(entry) = documents.whole_segment(from, self.limits.most_tokens) {
                        self.journal.segments.push(entry);
                        self.journal.next = Cursor::at_source(from.source + 1);
                        self.journal.write(&self.dir)?;
                        continue;
                    }
                    let number = first + self.journal.segments.len() as u32;
                    let name = format!("{number:06}");
                    let open = self.pool.install(|| {
                        assembly.write_texts(&documents, self.journal.next, &name, &mut self.times)
                    })?;
                    self.journal.open = Some(open.clone());
                    self.journal.write(&self.dir)?;
                    open
                }
            };
            let entry = assembly.write_fm_index(&documents, from, &open, &mut self.times)?;
            self.journal.segments.push(entry);
            self.journal.open = None;
            self.journal.next = open.end;
            // Parts that are used up make room for the segments that follow.
            let used = open.end.source;
            let spent = self.journal.used_parts..used;
            self.journal.used_parts = used;
            self.journal.write(&self.dir)?;
            for number in spent {
                sources[number] = Source::Nothing;
                let _ = std::fs::remove_dir_all(part_folder(&self.dir, number));
            }
        }
    }

    /// The segments that are finished.
    pub fn segments(&self) -> &[SegmentEntry] {
        &self.journal.segments
    }

    /// Whether what an earlier run finished is live already.
    pub fn is_published(&self) -> bool {
        let live = self.base.map(|base| base.manifest().segments.as_slice());
        let live = live.unwrap_or_default();
        let named = |entry: &SegmentEntry| live.iter().any(|other| other.name == entry.name);
        !self.journal.segments.is_empty() && self.journal.segments.iter().all(named)
    }

    /// Clears away what is finished.
    pub fn abandon(&mut self) {
        self.start_again();
    }

    /// Puts `manifest` in place: from then on the new segments are live. Then clears the work away.
    pub fn publish(&mut self, manifest: Manifest) -> Result<BuildReport, BuildError> {
        if self.progress.interrupted() {
            return Err(BuildError::Interrupted);
        }
        manifest.write(&self.dir)?;
        clear_work(&self.dir);
        let mut report = BuildReport::of(&manifest, &self.times);
        report.skipped_count = self.journal.skipped.count;
        report.skipped = std::mem::take(&mut self.journal.skipped.listed);
        report.left_out = std::mem::take(&mut self.journal.left_out);
        report.notes = std::mem::take(&mut self.notes);
        Ok(report)
    }

    /// Whether what is finished can serve the same command after this error: not where the inputs
    /// themselves are at fault.
    pub fn is_worth_keeping(&self, error: &BuildError) -> bool {
        let at_fault = matches!(
            error,
            BuildError::DuplicateId { .. } | BuildError::Strict(_) | BuildError::Empty { .. }
        );
        !at_fault && Journal::read(&self.dir).is_some_and(|journal| journal.holds_work())
    }
}

/// The highest number of a segment's name.
pub(crate) fn last_number(index: &Index) -> u32 {
    let names = index.manifest().segments.iter().map(|entry| &entry.name);
    names
        .filter_map(|name| name.parse().ok())
        .max()
        .unwrap_or(0)
}

/// Removes the folders of segments whose name `is_gone`; gives the names of those that could not be
/// removed, because the system does not let go of mapped files.
pub(crate) fn remove_segments(index: &Path, is_gone: impl Fn(&str) -> bool) -> Vec<String> {
    let Ok(found) = std::fs::read_dir(index.join(SEGMENTS_FOLDER)) else {
        return Vec::new();
    };
    let mut left = Vec::new();
    for entry in found.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_gone(&name) && std::fs::remove_dir_all(entry.path()).is_err() {
            left.push(name);
        }
    }
    left
}
