//! Building an index from corpora: read, tokenize, write segments, and last the manifest.

mod folder;
mod prepare;
mod segment;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fmindex::file::FileError;
use fmindex::{MAX_ALPHABET, Profile, Progress};
use models::tokenizer::{Tokenizer, TokenizerError};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use crate::analysis::{Analyser, Stemming};
use crate::manifest::{
    Counts, Manifest, SegmentEntry, TOKENIZER_FILE, TokenizerEntry, describe_file, write_renamed,
};
use crate::reader::{BadRecord, Entry, Input, Place, ReadError, ReadOptions, Reader, Record};

use folder::Folder;
use prepare::{Prepared, prepare};
use segment::SegmentBuilder;

/// Text read and tokenized at a time: enough for all threads, little enough to stop within a second.
const BATCH: usize = 1 << 20;
/// So many bad records are listed, the rest is only counted.
const LISTED: usize = 1000;
/// Memory beside what grows with a segment: batches, term table, tokenizer, program.
const FIXED_MEMORY: u64 = 256 << 20;
/// A budget must leave room for segments of this many tokens.
const SMALLEST_SEGMENT: u64 = 4 << 20;

/// What to build.
#[derive(Clone, Debug)]
pub struct BuildOptions<'a> {
    /// The corpora, in order.
    pub corpora: Vec<Input>,
    /// The folder of the index; it must not exist, or be empty, or hold an unfinished build.
    pub out: PathBuf,
    /// The tokenizer of the model that will be asked.
    pub tokenizer: &'a Tokenizer,
    /// Threads; 0 for one a processor. The index does not depend on it.
    pub jobs: usize,
    /// Bytes of memory to stay within, by cutting the corpus into segments; `None`: one segment as
    /// long as it can be.
    pub memory: Option<u64>,
    /// Most tokens of a segment; `None`: as many as fit into memory and format.
    pub segment_tokens: Option<u64>,
    /// Whether the first bad record ends the build.
    pub strict: bool,
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
            segment_tokens: None,
            strict: false,
            profile: Profile::default(),
            stemming: Stemming::default(),
            read: ReadOptions::default(),
        }
    }
}

/// What a build did.
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
}

/// A stage of a build and its time.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// Seconds spent in it.
    pub seconds: f64,
}

/// Why an index was not built. Nothing half-made is left, what stood there before is untouched.
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
    #[error("{second}: the document id {id:?} was seen before, at {first}; ids must be unique")]
    DuplicateId {
        /// The id.
        id: String,
        /// Where it stood first.
        first: Place,
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
    /// The system gives no threads.
    #[error("no threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// [`Progress::interrupted`] said so.
    #[error("interrupted; nothing half-built was left, the same command starts again")]
    Interrupted,
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

/// Builds an index.
///
/// # Errors
/// See [`BuildError`].
pub fn build(
    options: &BuildOptions<'_>,
    progress: &dyn Progress,
) -> Result<BuildReport, BuildError> {
    let begun = Instant::now();
    let vocabulary = options.tokenizer.vocabulary_size();
    if vocabulary >= MAX_ALPHABET {
        return Err(BuildError::Vocabulary { size: vocabulary });
    }
    let fm = fmindex::BuildOptions {
        alphabet: vocabulary + 1,
        separator: vocabulary,
        profile: options.profile,
        threads: options.jobs,
        memory: options
            .memory
            .map(|memory| memory.saturating_sub(FIXED_MEMORY)),
    };
    let fitting = fm.most_tokens();
    let most_tokens = fitting.min(options.segment_tokens.unwrap_or(u64::MAX));
    if let Some(budget) = options.memory
        && fitting < SMALLEST_SEGMENT
    {
        let needed = FIXED_MEMORY + fm.peak_memory(SMALLEST_SEGMENT);
        return Err(BuildError::Memory { budget, needed });
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.jobs)
        .build()?;
    let folder = Folder::claim(&options.out)?;
    let mut work = Work {
        options,
        progress,
        fm,
        most_tokens,
        folder: &folder,
        gathering: Gathering {
            reader: Reader::with_options(options.corpora.clone(), options.read.clone()),
            seen: HashMap::new(),
            skipped: Skipped::default(),
            strict: options.strict,
        },
        open: None,
        done: Vec::new(),
        times: Times::default(),
    };
    work.run(&pool)?;
    let mut report = work.finish()?;
    folder.keep();
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// Time spent by stage.
#[derive(Default)]
struct Times {
    read: Duration,
    tokenize: Duration,
    write: Duration,
    lexical: Duration,
    fm: Duration,
    seal: Duration,
}

/// Bad records: the first ones listed, all counted.
#[derive(Default)]
struct Skipped {
    count: u64,
    listed: Vec<BadRecord>,
}

impl Skipped {
    fn push(&mut self, bad: BadRecord, strict: bool) -> Result<(), BuildError> {
        if strict {
            return Err(BuildError::Strict(bad));
        }
        self.count += 1;
        if self.listed.len() < LISTED {
            self.listed.push(bad);
        }
        Ok(())
    }
}

/// The reading end: batches of records, ids that were seen, records left out.
struct Gathering {
    reader: Reader,
    /// 128-bit hashes of the ids with their places: file and line.
    seen: HashMap<u128, Place>,
    skipped: Skipped,
    strict: bool,
}

impl Gathering {
    /// The next records, about [`BATCH`] bytes of them; none at the end.
    fn batch(&mut self) -> Result<Vec<Record>, BuildError> {
        let mut records = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH {
            match self.reader.next() {
                None => break,
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(Entry::Bad(bad))) => {
                    bytes += 64;
                    self.skipped.push(bad, self.strict)?;
                }
                Some(Ok(Entry::Record(record))) => {
                    let seen = self
                        .seen
                        .insert(xxh3_128(record.id.as_bytes()), record.place.clone());
                    if let Some(first) = seen {
                        return Err(BuildError::DuplicateId {
                            id: record.id,
                            first,
                            second: record.place,
                        });
                    }
                    bytes += record.text.len() + record.title.len() + 64;
                    records.push(*record);
                }
            }
        }
        Ok(records)
    }
}

/// A build under way.
struct Work<'a> {
    options: &'a BuildOptions<'a>,
    progress: &'a dyn Progress,
    fm: fmindex::BuildOptions,
    most_tokens: u64,
    folder: &'a Folder,
    gathering: Gathering,
    open: Option<SegmentBuilder>,
    done: Vec<SegmentEntry>,
    times: Times,
}

impl Work<'_> {
    /// Reads, tokenizes and writes, each a batch ahead of the next, until the corpora end.
    fn run(&mut self, pool: &rayon::ThreadPool) -> Result<(), BuildError> {
        let total = self.gathering.reader.total_bytes().unwrap_or(0);
        self.progress.stage("reading and tokenizing", total);
        let (tokenizer, separator) = (self.options.tokenizer, self.fm.separator);
        let analyser = Analyser::new(self.options.stemming);
        let mut records = self.timed_batch()?;
        let mut prepared = Vec::new();
        while !records.is_empty() || !prepared.is_empty() {
            if self.progress.interrupted() {
                return Err(BuildError::Interrupted);
            }
            let batch = std::mem::take(&mut records);
            let ready = std::mem::take(&mut prepared);
            let (tokenized, rest) = pool.install(|| {
                rayon::join(
                    || {
                        let begun = Instant::now();
                        let prepared = prepare(batch, tokenizer, separator, &analyser);
                        (prepared, begun.elapsed())
                    },
                    || {
                        self.write(ready)?;
                        self.timed_batch()
                    },
                )
            });
            records = rest?;
            prepared = tokenized.0;
            self.times.tokenize += tokenized.1;
            self.progress.advance(self.gathering.reader.bytes_read());
        }
        self.close_segment()
    }

    fn timed_batch(&mut self) -> Result<Vec<Record>, BuildError> {
        let begun = Instant::now();
        let batch = self.gathering.batch();
        self.times.read += begun.elapsed();
        batch
    }

    fn write(&mut self, documents: Vec<Result<Prepared, BadRecord>>) -> Result<(), BuildError> {
        for document in documents {
            let document = match document {
                Ok(document) if document.tokens.len() as u64 > self.most_tokens => {
                    Err(document.bad("the document is longer than a segment can be"))
                }
                other => other,
            };
            match document {
                Err(bad) => self.gathering.skipped.push(bad, self.options.strict)?,
                Ok(document) => self.push(document)?,
            }
        }
        Ok(())
    }

    fn push(&mut self, document: Prepared) -> Result<(), BuildError> {
        let length = document.tokens.len() as u64;
        let full = |segment: &SegmentBuilder| {
            segment.tokens() + length > self.most_tokens
                || self
                    .fm
                    .memory
                    .is_some_and(|memory| segment.memory() > memory)
        };
        if self.open.as_ref().is_some_and(full) {
            self.close_segment()?;
            let total = self.gathering.reader.total_bytes().unwrap_or(0);
            self.progress.stage("reading and tokenizing", total);
        }
        let begun = Instant::now();
        if self.open.is_none() {
            let number = self.done.len() as u32 + 1;
            self.open = Some(SegmentBuilder::create(self.folder.path(), number)?);
        }
        if let Some(segment) = &mut self.open {
            segment.push(document)?;
        }
        self.times.write += begun.elapsed();
        Ok(())
    }

    fn close_segment(&mut self) -> Result<(), BuildError> {
        if let Some(segment) = self.open.take() {
            let entry = segment.finish(&self.fm, self.progress, &mut self.times)?;
            self.done.push(entry);
        }
        Ok(())
    }

    /// Writes tokenizer and manifest: from then on there is an index.
    fn finish(self) -> Result<BuildReport, BuildError> {
        let Skipped { count, listed } = self.gathering.skipped;
        if self.done.is_empty() {
            let first = listed.first();
            let corpora: Vec<String> = self.options.corpora.iter().map(Input::to_string).collect();
            return Err(BuildError::Empty {
                corpora: corpora.join(", "),
                skipped: count,
                first: first.map_or(String::new(), |bad| format!(", the first is {bad}")),
            });
        }
        let dir = self.folder.path();
        let tokenizer = self.options.tokenizer;
        write_renamed(&dir.join(TOKENIZER_FILE), &tokenizer.to_json()?)?;
        let entry = TokenizerEntry {
            fingerprint: tokenizer.fingerprint().to_owned(),
            vocabulary_size: tokenizer.vocabulary_size(),
            file: describe_file(dir, TOKENIZER_FILE)?,
        };
        if self.progress.interrupted() {
            return Err(BuildError::Interrupted);
        }
        let profile = self.options.profile.to_string();
        let manifest = Manifest::new(entry, self.options.stemming, profile, self.done);
        manifest.write(dir)?;

        let Counts {
            documents,
            paragraphs,
            tokens,
            text_bytes,
        } = manifest.counts;
        let files = manifest.segments.iter().flat_map(|entry| &entry.files);
        let stage = |name, time: Duration| Stage {
            name,
            seconds: time.as_secs_f64(),
        };
        Ok(BuildReport {
            documents,
            paragraphs,
            tokens,
            text_bytes,
            bytes: files.map(|file| file.bytes).sum::<u64>() + manifest.tokenizer.file.bytes,
            segments: manifest.segments.len() as u64,
            seconds: 0.0,
            stages: vec![
                stage("read", self.times.read),
                stage("tokenize", self.times.tokenize),
                stage("write", self.times.write),
                stage("bm25", self.times.lexical),
                stage("fm-index", self.times.fm),
                stage("checksums", self.times.seal),
            ],
            skipped_count: count,
            skipped: listed,
        })
    }
}
