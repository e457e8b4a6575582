//! Sentence vectors of all paragraphs of an index (Reimers and Gurevych 2019, arXiv:1908.10084), kept in its folder:
//! computed once, mapped, found by the text that they stand for, and searched without approximation.
//!
//! ```text
//! vectors/
//!   writer.lock                     held by whoever computes vectors
//!   <encoder>/                      fingerprint of the encoder's files
//!     <segment>-<checksum>.bin      the vectors of a segment, by the checksums of its files
//!     <segment>-<checksum>.parts/   those of its first documents, until it is finished
//! ```
//!
//! What is embedded is a paragraph in its canonical form, title in front: the text of the window that is the whole
//! paragraph. A vector has the bits that the encoder gives for its text, so no score depends on whether it was kept.
//! Segments are immutable, and a deleted document is passed over where rows are searched, so additions and deletions
//! leave the files as they are. What a merge writes has files of its own, whose vectors are taken over from the old
//! ones by the hash of their text ([`take_over`]).

use std::fs;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use corpus_tools::canonical::canonical_text;
use corpus_tools::lock::{LOCK_FILE, LockError, WriterLock};
use corpus_tools::manifest::{Manifest, SegmentEntry, VECTORS_FOLDER, VECTORS_KIND};
use corpus_tools::{Document, Index, IndexError};
use fmindex::file::{File, FileError, Word, Words, Writer};
use fmindex::{DocumentId, Progress};
use models::encoder::{EncoderError, SentenceEncoder};
use rayon::prelude::*;
use serde::Serialize;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::scorer::WindowText;

/// Paragraphs after which what is computed is safe from a kill.
const PART: u64 = 1024;
/// Texts that are embedded between two looks at the interrupt.
const BATCH: usize = 32;
/// Documents that one task of a search compares.
const COMPARED: u32 = 4096;
/// What a sentence encoder is read from; only the first has to be there.
const ENCODER_FILES: [&str; 6] = [
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "modules.json",
];

/// Why vectors cannot be computed or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VectorsError {
    /// A file of kept vectors is foreign or damaged.
    #[error("{0}; vectors alone are computed again by `verbatim index embed`")]
    Damaged(FileError),
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Segments have no vectors.
    #[error(
        "{index}: {missing} of {segments} segments have no vectors of this sentence encoder; compute them with `verbatim index embed --index {index}`"
    )]
    Missing {
        /// The index.
        index: PathBuf,
        /// Segments without vectors.
        missing: usize,
        /// Live segments.
        segments: usize,
    },
    /// Another program computes vectors of the index.
    #[error("{path}: another program is computing vectors of this index{by}; wait for it to end")]
    Locked {
        /// The folder.
        path: PathBuf,
        /// Its process, where it could be told.
        by: String,
    },
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The encoder failed.
    #[error(transparent)]
    Encoder(#[from] EncoderError),
    /// The system gives no threads.
    #[error("no threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// [`Progress::interrupted`] said so.
    #[error("interrupted; the same command goes on with the paragraphs that are left")]
    Interrupted,
}

/// A sentence encoder with the fingerprint that its vectors are kept under.
pub struct Encoder {
    pub(crate) model: SentenceEncoder,
    fingerprint: u64,
}

impl Encoder {
    /// Opens the encoder in `folder`, and reads all of its files once more for the fingerprint.
    ///
    /// # Errors
    /// It is no encoder, or damaged.
    pub fn open(folder: &Path) -> Result<Self, EncoderError> {
        let (model, fingerprint) =
            rayon::join(|| SentenceEncoder::open(folder), || fingerprint(folder));
        Ok(Self {
            model: model?,
            fingerprint: fingerprint?,
        })
    }
}

/// The hash of everything that vectors depend on: weights, vocabulary and configuration.
fn fingerprint(folder: &Path) -> Result<u64, EncoderError> {
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; 1 << 18];
    for name in ENCODER_FILES {
        let path = folder.join(name);
        let failed = |source| EncoderError::Read {
            path: path.clone(),
            source,
        };
        let mut file = match fs::File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened.map_err(failed)?,
        };
        hash.update(name.as_bytes());
        loop {
            match file.read(&mut buffer).map_err(failed)? {
                0 => break,
                read => hash.update(&buffer[..read]),
            }
        }
    }
    Ok(hash.digest())
}

/// The hash under which the vector of a text is found.
pub(crate) fn key(text: &str) -> u128 {
    xxh3_128(text.as_bytes())
}

/// What is embedded of a document: its paragraphs but the title.
fn texts<'d>(document: &'d Document<'_>) -> impl Iterator<Item = String> + 'd {
    let paragraphs = document.paragraphs.iter();
    paragraphs
        .filter(|paragraph| !paragraph.is_title())
        .map(|paragraph| {
            let text = canonical_text(document.paragraph_text(paragraph));
            let window = WindowText {
                title: document.title.to_owned(),
                text: text.trim_start().to_owned(),
            };
            window.joined()
        })
}

/// All words of a section.
fn numbers(words: &Words<u32>) -> impl Iterator<Item = u32> + '_ {
    (0..words.len()).map_while(|at| words.get(at))
}

/// What the rows of a file stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Subject {
    /// Fingerprint of the encoder.
    encoder: u64,
    /// Checksum of the segment.
    segment: u64,
    /// First document, a number in the segment.
    first: u32,
    /// Number of documents.
    documents: u32,
    /// Values of a row.
    dimension: usize,
}

impl Subject {
    fn words(self) -> [u64; 5] {
        let (first, documents) = (self.first.into(), self.documents.into());
        let dimension = self.dimension as u64;
        [self.encoder, self.segment, first, documents, dimension]
    }

    /// That of the file at `path`, in its own words; `None` where it is no file of vectors.
    fn of(path: &Path) -> Option<Self> {
        let file = File::open(path, VECTORS_KIND).ok()?;
        let words = file.section("subject").ok()?.u64s().ok()?;
        Some(Self {
            encoder: words.get(0)?,
            segment: words.get(1)?,
            first: words.get(2)?.try_into().ok()?,
            documents: words.get(3)?.try_into().ok()?,
            dimension: words.get(4)?.try_into().ok()?,
        })
    }

    /// The same of some documents of the segment.
    fn part(self, documents: &Range<u32>) -> Self {
        Self {
            first: documents.start,
            documents: documents.end - documents.start,
            ..self
        }
    }
}

/// A file of vectors: of a segment, or of a part of one. Sections, all little-endian: `subject`, the five words of
/// [`Subject`]; `counts`, the rows of each document (u32; none where it was deleted before); `keys`, the hashes of the
/// texts (two u64 each, the upper half first), ascending; `places`, the row of each (u32); `rows` (f32).
#[derive(Clone)]
struct VectorFile {
    file: File,
    dimension: usize,
    counts: Words<u32>,
    keys: Words<u64>,
    places: Words<u32>,
    rows: Words<u32>,
}

impl VectorFile {
    /// Maps the file, and checks its header, what it stands for, and the lengths of its sections; `None` if there is none.
    fn open(path: &Path, subject: &Subject) -> Result<Option<Self>, FileError> {
        if !path.exists() {
            return Ok(None);
        }
        let file = File::open(path, VECTORS_KIND)?;
        let words = file.section("subject")?.u64s()?;
        let found: Vec<u64> = (0..words.len()).map_while(|at| words.get(at)).collect();
        if found != subject.words() {
            return Err(FileError::Foreign {
                path: path.to_owned(),
                expected: VECTORS_KIND.to_owned(),
                found: "it has those of another encoder or segment".to_owned(),
            });
        }
        let opened = Self {
            dimension: subject.dimension,
            counts: file.section("counts")?.u32s()?,
            keys: file.section("keys")?.u64s()?,
            places: file.section("places")?.u32s()?,
            rows: file.section("rows")?.u32s()?,
            file,
        };
        let rows = opened.places.len();
        if opened.counts.len() != subject.documents as usize
            || opened.keys.len() != 2 * rows
            || Some(opened.rows.len()) != rows.checked_mul(subject.dimension)
        {
            let what = "its sections speak of different numbers of paragraphs";
            return Err(FileError::damaged(path, 0, what));
        }
        Ok(Some(opened))
    }

    /// As [`VectorFile::open`], and reads every byte; `None` also where anything is wrong, for whoever can compute it again.
    fn open_sound(path: &Path, subject: &Subject) -> Option<Self> {
        let found = Self::open(path, subject).ok()??;
        found.file.verify().ok()?;
        let counted: u64 = numbers(&found.counts).map(u64::from).sum();
        let rows = found.places.len();
        let inside = numbers(&found.places).all(|place| (place as usize) < rows);
        (counted == rows as u64 && inside).then_some(found)
    }

    fn key_at(&self, at: usize) -> Option<u128> {
        let half = |at| self.keys.get(at).map(u128::from);
        Some((half(2 * at)? << 64) | half(2 * at + 1)?)
    }

    /// The row of a text, by its hash.
    fn find(&self, key: u128) -> Option<&[u32]> {
        let (mut low, mut high) = (0, self.places.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key_at(middle)? < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let place = self
            .places
            .get(low)
            .filter(|_| self.key_at(low) == Some(key))?;
        self.rows_from(place as usize, 1)
    }

    /// `count` rows from a row on, as they stand in the file.
    fn rows_from(&self, first: usize, count: usize) -> Option<&[u32]> {
        let start = first.checked_mul(self.dimension)?;
        let end = start.checked_add(count.checked_mul(self.dimension)?)?;
        self.rows.raw().get(start..end)
    }

    /// Hashes with their rows, by hash.
    fn entries(&self) -> impl Iterator<Item = (u128, u32)> + '_ {
        (0..self.places.len()).map_while(|at| Some((self.key_at(at)?, self.places.get(at)?)))
    }

    /// Tasks of a search: documents of the file, with the first of their rows.
    fn tasks(&self) -> Vec<(Range<u32>, usize)> {
        let documents = self.counts.len() as u32;
        let mut row = 0;
        (0..documents)
            .step_by(COMPARED as usize)
            .map(|first| {
                let task = first..documents.min(first.saturating_add(COMPARED));
                let from = row;
                row += task
                    .clone()
                    .filter_map(|document| self.counts.get(document as usize))
                    .map(|count| count as usize)
                    .sum::<usize>();
                (task, from)
            })
            .collect()
    }
}

/// Vectors on their way into a file.
struct Content<'a> {
    counts: Vec<u32>,
    /// Hashes of the texts with their rows.
    entries: Vec<(u128, u32)>,
    /// The rows, in pieces, as the file has them.
    rows: Vec<&'a [u8]>,
}

impl Content<'_> {
    fn write(mut self, path: &Path, subject: &Subject) -> Result<(), FileError> {
        let mut writer = Writer::create(path, VECTORS_KIND)?;
        writer.begin("subject")?;
        writer.write_u64s(&subject.words())?;
        writer.begin("counts")?;
        writer.write_u32s(&self.counts)?;
        self.entries.par_sort_unstable();
        writer.begin("keys")?;
        for (key, _) in &self.entries {
            writer.write_u64s(&[(key >> 64) as u64, *key as u64])?;
        }
        writer.begin("places")?;
        for (_, place) in &self.entries {
            writer.write_u32s(&[*place])?;
        }
        writer.begin("rows")?;
        for piece in self.rows {
            writer.write(piece)?;
        }
        writer.finish()
    }
}

/// Where the vectors of one index by one encoder lie.
struct Place {
    index: Index,
    /// The folder of the encoder.
    folder: PathBuf,
    /// Fingerprint of the encoder.
    encoder: u64,
    /// Values of a vector.
    dimension: usize,
    /// Of each segment, in order.
    subjects: Vec<Subject>,
}

impl Place {
    fn of(index: &Index, encoder: &Encoder) -> Self {
        Self::new(index, encoder.fingerprint, encoder.model.dimension())
    }

    fn new(index: &Index, encoder: u64, dimension: usize) -> Self {
        let folder = index.path().join(VECTORS_FOLDER);
        let subject = |(entry, documents): (&SegmentEntry, u32)| Subject {
            encoder,
            segment: checksum(entry),
            first: 0,
            documents,
            dimension,
        };
        let documents = index.stores().iter().map(|store| store.documents());
        let segments = index.manifest().segments.iter();
        Self {
            folder: folder.join(format!("{encoder:016x}")),
            encoder,
            dimension,
            subjects: segments.zip(documents).map(subject).collect(),
            index: index.clone(),
        }
    }

    fn file(&self, segment: usize) -> PathBuf {
        self.folder
            .join(file_name(&self.index.manifest().segments[segment]))
    }

    /// The folder of the parts of a segment, and the documents of each.
    fn parts(&self, segment: usize) -> (PathBuf, Vec<Range<u32>>) {
        let store = &self.index.stores()[segment];
        let mut parts = Vec::new();
        let (mut first, mut paragraphs) = (0, 0);
        for document in 0..store.documents() {
            paragraphs += store.paragraphs_of(document);
            if paragraphs >= PART || document + 1 == store.documents() {
                parts.push(first..document + 1);
                (first, paragraphs) = (document + 1, 0);
            }
        }
        (self.file(segment).with_extension("parts"), parts)
    }

    /// Paragraphs of the live documents among some of a segment, titles apart.
    fn paragraphs(&self, segment: usize, documents: Range<u32>) -> u64 {
        let store = &self.index.stores()[segment];
        let live = documents.filter(|&document| self.is_live(segment, document));
        live.map(|document| store.paragraphs_of(document).saturating_sub(1))
            .sum()
    }

    fn is_live(&self, segment: usize, document: u32) -> bool {
        let segment = segment as u32;
        self.index.fm().is_live(DocumentId { segment, document })
    }

    /// What lies in the folder and serves nothing: vectors of segments that are gone, parts of finished ones, what a
    /// killed writer left.
    fn stale(&self) -> Vec<PathBuf> {
        // Others may have added or merged in the meantime.
        let Ok(manifest) = Manifest::read(self.index.path()) else {
            return Vec::new();
        };
        let live: Vec<String> = manifest.segments.iter().map(file_name).collect();
        let Ok(found) = fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        found
            .flatten()
            .filter(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                let ours = [".bin", ".parts", ".bin.partial"];
                ours.iter().any(|end| name.ends_with(end)) && !live.contains(&name)
            })
            .map(|entry| entry.path())
            .collect()
    }
}

/// A segment's own checksum: that of all its files, those of deletions apart. Names of segments are used again.
fn checksum(entry: &SegmentEntry) -> u64 {
    let mut hash = Xxh3::new();
    for file in &entry.files {
        hash.update(file.name.as_bytes());
        hash.update(file.xxh3.as_bytes());
    }
    hash.digest()
}

fn file_name(entry: &SegmentEntry) -> String {
    format!("{}-{:016x}.bin", entry.name, checksum(entry))
}

/// The kept vectors of an index by one encoder. Cheap to clone.
#[derive(Clone)]
pub struct Vectors {
    index: Index,
    /// Of each segment, in order; `None` where it has none.
    files: Vec<Option<VectorFile>>,
}

impl Vectors {
    /// Whether the index has vectors of any encoder.
    pub fn any(index: &Index) -> bool {
        index.path().join(VECTORS_FOLDER).is_dir()
    }

    /// Opens what vectors of `encoder` the index has: headers and sizes are checked, no row is read.
    ///
    /// # Errors
    /// A file is foreign or damaged.
    pub fn open(index: &Index, encoder: &Encoder) -> Result<Self, VectorsError> {
        let place = Place::of(index, encoder);
        let subjects = place.subjects.iter().enumerate();
        let files = subjects
            .map(|(segment, subject)| VectorFile::open(&place.file(segment), subject))
            .collect::<Result<_, _>>()
            .map_err(VectorsError::Damaged)?;
        Ok(Self {
            index: place.index,
            files,
        })
    }

    /// The vector of a text, by its hash (XXH3-128); `None` where it is not kept.
    pub fn get(&self, key: u128) -> Option<Arc<[f32]>> {
        let mut files = self.files.iter().flatten();
        let row = files.find_map(|file| file.find(key))?;
        Some(row.iter().map(|&bits| value(bits)).collect())
    }

    /// Checks that every segment has vectors.
    ///
    /// # Errors
    /// [`VectorsError::Missing`].
    pub fn check_complete(&self) -> Result<(), VectorsError> {
        let missing = self.files.iter().filter(|file| file.is_none()).count();
        match missing {
            0 => Ok(()),
            _ => Err(missing_in(&self.index, missing)),
        }
    }

    /// The `k` best live documents for the vector of a question, with the cosine of their best paragraph; equal ones
    /// in document order. Every row is compared.
    ///
    /// # Errors
    /// [`VectorsError::Missing`].
    pub fn search(
        &self,
        question: &[f32],
        k: usize,
    ) -> Result<Vec<(DocumentId, f64)>, VectorsError> {
        self.check_complete()?;
        let tasks: Vec<(u32, &VectorFile, Range<u32>, usize)> = (0..)
            .zip(self.files.iter().flatten())
            .flat_map(|(segment, file)| {
                let tasks = file.tasks().into_iter();
                tasks.map(move |(documents, row)| (segment, file, documents, row))
            })
            .collect();
        let found: Vec<Vec<(DocumentId, f64)>> = tasks
            .into_par_iter()
            .map(|(segment, file, documents, mut row)| {
                let mut scored = Vec::new();
                for document in documents {
                    let count = file.counts.get(document as usize).unwrap_or(0) as usize;
                    let rows = file.rows_from(row, count).unwrap_or_default();
                    row += count;
                    let document = DocumentId { segment, document };
                    if !self.index.fm().is_live(document) {
                        continue;
                    }
                    let scores = rows
                        .chunks_exact(file.dimension)
                        .map(|row| f64::from(dot(row, question)));
                    if let Some(best) = scores.max_by(f64::total_cmp) {
                        scored.push((document, best));
                    }
                }
                best(scored, k)
            })
            .collect();
        Ok(best(found.concat(), k))
    }
}

/// The error of an index in which so many segments have no vectors.
pub(crate) fn missing_in(index: &Index, missing: usize) -> VectorsError {
    VectorsError::Missing {
        index: index.path().to_owned(),
        missing,
        segments: index.manifest().segments.len(),
    }
}

/// The `k` best, best first, equal ones in document order.
fn best(mut scored: Vec<(DocumentId, f64)>, k: usize) -> Vec<(DocumentId, f64)> {
    let by_score =
        |a: &(DocumentId, f64), b: &(DocumentId, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if scored.len() > k && k > 0 {
        scored.select_nth_unstable_by(k - 1, by_score);
    }
    scored.truncate(k);
    scored.sort_unstable_by(by_score);
    scored
}

/// A value of a row as it stands in the file.
fn value(bits: u32) -> f32 {
    f32::from_bits(bits.native())
}

/// Eight sums side by side, so that the compiler may use wide instructions; their order is fixed.
fn dot(row: &[u32], other: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (eights, rest) = row.as_chunks::<8>();
    let (others, other_rest) = other.as_chunks::<8>();
    for (x, y) in eights.iter().zip(others) {
        for lane in 0..8 {
            sums[lane] += value(x[lane]) * y[lane];
        }
    }
    let rest: f32 = rest
        .iter()
        .zip(other_rest)
        .map(|(&x, y)| value(x) * y)
        .sum();
    sums.iter().sum::<f32>() + rest
}

/// What became of the vectors of an index.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EmbedReport {
    /// Paragraphs of live documents, titles apart.
    pub paragraphs: u64,
    /// Of these, those that were embedded now.
    pub embedded: u64,
    /// Of these, those whose vectors were taken over from another segment.
    pub taken_over: u64,
    /// Bytes of the vectors of all live segments.
    pub bytes: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Embeds what paragraphs of live documents have no vectors yet, with `jobs` threads (0: one a processor), and removes
/// the vectors of segments that are gone. What is damaged is computed again. Where nothing is missing nothing is
/// written. What an earlier run finished before it was stopped is not computed again.
///
/// # Errors
/// A document cannot be read or embedded, a file cannot be written, another program computes vectors of this index,
/// or [`Progress::interrupted`] said so.
pub fn embed(
    index: &Index,
    encoder: &Encoder,
    jobs: usize,
    progress: &dyn Progress,
) -> Result<EmbedReport, VectorsError> {
    let begun = Instant::now();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build()?;
    let place = Place::of(index, encoder);
    let run = Embedding {
        place: &place,
        model: Some(&encoder.model),
        progress,
    };
    let mut report = pool.install(|| run.run())?;
    for (segment, subject) in place.subjects.iter().enumerate() {
        report.paragraphs += place.paragraphs(segment, 0..subject.documents);
        report.bytes += fs::metadata(place.file(segment)).map_or(0, |found| found.len());
    }
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// Gives what a merge wrote the vectors of the segments that are gone, those of every encoder, and removes these. Where
/// a paragraph had none everything stays, for [`embed`] to go on with.
///
/// # Errors
/// As [`embed`].
pub fn take_over(index: &Index, progress: &dyn Progress) -> Result<(), VectorsError> {
    let folders = fs::read_dir(index.path().join(VECTORS_FOLDER));
    for folder in folders.into_iter().flatten().flatten() {
        let name = folder.file_name();
        let Ok(encoder) = u64::from_str_radix(&name.to_string_lossy(), 16) else {
            continue;
        };
        let files = fs::read_dir(folder.path()).into_iter().flatten().flatten();
        let dimension = files
            .filter_map(|file| Subject::of(&file.path()))
            .find(|subject| subject.encoder == encoder)
            .map(|subject| subject.dimension);
        let Some(dimension) = dimension else {
            continue;
        };
        let run = Embedding {
            place: &Place::new(index, encoder, dimension),
            model: None,
            progress,
        };
        run.run()?;
    }
    Ok(())
}

/// One run of [`embed`], or of [`take_over`], which has no model.
struct Embedding<'a> {
    place: &'a Place,
    model: Option<&'a SentenceEncoder>,
    progress: &'a dyn Progress,
}

/// A part that is not computed yet.
struct Part {
    segment: usize,
    documents: Range<u32>,
    path: PathBuf,
}

impl Embedding<'_> {
    fn run(&self) -> Result<EmbedReport, VectorsError> {
        let mut report = EmbedReport::default();
        let all: Vec<usize> = (0..self.place.subjects.len()).collect();
        let unfinished = self.unfinished(&all)?;
        if unfinished.is_empty() {
            if !self.place.stale().is_empty() && lock(&self.place.index).is_ok() {
                self.clear();
            }
            return Ok(report);
        }
        let folder = &self.place.folder;
        fs::create_dir_all(folder).map_err(|e| FileError::io(folder, "create the folder", e))?;
        let _lock = lock(&self.place.index)?;
        // Another writer may have finished some in between.
        let unfinished = self.unfinished(&unfinished)?;
        let mut missing = Vec::new();
        for &segment in &unfinished {
            let (folder, parts) = self.place.parts(segment);
            for (number, documents) in parts.into_iter().enumerate() {
                let path = folder.join(format!("{number:06}.bin"));
                let subject = self.place.subjects[segment].part(&documents);
                if VectorFile::open_sound(&path, &subject).is_none() {
                    missing.push(Part {
                        segment,
                        documents,
                        path,
                    });
                }
            }
        }
        let known = self.known(&unfinished);
        let paragraphs = |part: &Part| self.place.paragraphs(part.segment, part.documents.clone());
        let total = missing.iter().map(paragraphs).sum();
        let stage = match self.model {
            Some(_) => "embedding paragraphs",
            None => "taking over vectors",
        };
        self.progress.stage(stage, total);
        let mut complete = true;
        let mut missing = missing.iter().peekable();
        for segment in unfinished {
            let (folder, parts) = self.place.parts(segment);
            fs::create_dir_all(&folder)
                .map_err(|e| FileError::io(&folder, "create the folder", e))?;
            let mut whole = true;
            while let Some(part) = missing.next_if(|part| part.segment == segment) {
                whole &= self.write_part(part, &known, &mut report)?;
            }
            match whole {
                true => self.assemble(segment, &folder, &parts)?,
                // Parts that are there stay; a folder without any is of no use.
                false => _ = fs::remove_dir(&folder),
            }
            complete &= whole;
        }
        if complete {
            self.clear();
        }
        Ok(report)
    }

    /// Removes what serves nothing.
    fn clear(&self) {
        for path in self.place.stale() {
            // What another program has mapped may have to stay; the next run looks again.
            let _ = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
        }
    }

    fn stop(&self) -> Result<(), VectorsError> {
        match self.progress.interrupted() {
            true => Err(VectorsError::Interrupted),
            false => Ok(()),
        }
    }

    /// Those of some segments that have no sound file. Every byte is read.
    fn unfinished(&self, segments: &[usize]) -> Result<Vec<usize>, VectorsError> {
        self.progress
            .stage("checking vectors", segments.len() as u64);
        let mut unfinished = Vec::new();
        for (&segment, done) in segments.iter().zip(1..) {
            self.stop()?;
            let subject = &self.place.subjects[segment];
            if VectorFile::open_sound(&self.place.file(segment), subject).is_none() {
                unfinished.push(segment);
            }
            self.progress.advance(done);
        }
        Ok(unfinished)
    }

    /// Files in which the vectors of some texts may lie already: those of the finished segments, and of segments that
    /// are gone.
    fn known(&self, unfinished: &[usize]) -> Vec<VectorFile> {
        let finished =
            (0..self.place.subjects.len()).filter(|segment| !unfinished.contains(segment));
        let open = |segment: usize| {
            let subject = &self.place.subjects[segment];
            VectorFile::open(&self.place.file(segment), subject).ok()?
        };
        let open_stale = |path: PathBuf| {
            // Rows are found by their texts: which segment they were of makes no difference.
            let subject = Subject::of(&path)?;
            let own =
                (subject.encoder, subject.dimension) == (self.place.encoder, self.place.dimension);
            own.then(|| VectorFile::open_sound(&path, &subject))?
        };
        let stale = self.place.stale().into_iter();
        finished
            .filter_map(open)
            .chain(stale.filter(|path| !path.is_dir()).filter_map(open_stale))
            .collect()
    }

    /// Writes a part; `false`: it has unknown texts and there is no model.
    fn write_part(
        &self,
        part: &Part,
        known: &[VectorFile],
        report: &mut EmbedReport,
    ) -> Result<bool, VectorsError> {
        self.stop()?;
        let segment = part.segment as u32;
        let (mut counts, mut inputs) = (Vec::new(), Vec::new());
        for document in part.documents.clone() {
            let before = inputs.len();
            if self.place.is_live(part.segment, document) {
                let document = self
                    .place
                    .index
                    .document(DocumentId { segment, document })?;
                inputs.extend(texts(&document));
            }
            counts.push((inputs.len() - before) as u32);
        }
        let dimension = self.place.dimension;
        let mut rows = vec![0u8; inputs.len() * dimension * size_of::<f32>()];
        let mut put = |at: usize, row: &mut dyn Iterator<Item = f32>| {
            let bytes = &mut rows[at * dimension * size_of::<f32>()..];
            for (place, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(row) {
                *place = value.to_le_bytes();
            }
        };
        let entries: Vec<(u128, u32)> = inputs.iter().map(|text| key(text)).zip(0..).collect();
        let mut unknown = Vec::new();
        for (at, (key, _)) in entries.iter().enumerate() {
            match known.iter().find_map(|file| file.find(*key)) {
                Some(row) => put(at, &mut row.iter().map(|&bits| value(bits))),
                None => unknown.push(at),
            }
        }
        if self.model.is_none() && !unknown.is_empty() {
            return Ok(false);
        }
        let taken_over = (inputs.len() - unknown.len()) as u64;
        report.taken_over += taken_over;
        self.progress.advance(report.taken_over + report.embedded);
        // Texts of one length together: a batch costs what its longest costs.
        unknown.sort_by_key(|&at| inputs[at].len());
        for batch in unknown.chunks(BATCH) {
            self.stop()?;
            let texts: Vec<&str> = batch.iter().map(|&at| inputs[at].as_str()).collect();
            let embedded = self.model.map(|model| model.embed(&texts)).transpose()?;
            for (&at, row) in batch.iter().zip(embedded.into_iter().flatten()) {
                put(at, &mut row.into_iter());
            }
            report.embedded += batch.len() as u64;
            self.progress.advance(report.taken_over + report.embedded);
        }
        let content = Content {
            counts,
            entries,
            rows: vec![&rows],
        };
        let subject = self.place.subjects[part.segment].part(&part.documents);
        content.write(&part.path, &subject)?;
        Ok(true)
    }

    /// Makes one file of the parts of a segment, and removes them.
    fn assemble(
        &self,
        segment: usize,
        folder: &Path,
        parts: &[Range<u32>],
    ) -> Result<(), VectorsError> {
        let subject = &self.place.subjects[segment];
        let mut opened = Vec::new();
        for (number, documents) in parts.iter().enumerate() {
            let path = folder.join(format!("{number:06}.bin"));
            let part = VectorFile::open(&path, &subject.part(documents))?;
            opened.extend(part);
        }
        let mut content = Content {
            counts: Vec::new(),
            entries: Vec::new(),
            rows: Vec::new(),
        };
        let sections = opened
            .iter()
            .map(|part| part.file.section("rows"))
            .collect::<Result<Vec<_>, _>>()?;
        for (part, rows) in opened.iter().zip(&sections) {
            let first = content.entries.len() as u32;
            content.counts.extend(numbers(&part.counts));
            let entries = part.entries().map(|(key, row)| (key, first + row));
            content.entries.extend(entries);
            content.rows.push(rows.bytes());
        }
        content.write(&self.place.file(segment), subject)?;
        drop(opened);
        let _ = fs::remove_dir_all(folder);
        Ok(())
    }
}

/// Takes the lock of whoever computes vectors of the index. Documents may be added, deleted and merged meanwhile.
fn lock(index: &Index) -> Result<WriterLock, VectorsError> {
    let folder = index.path().join(VECTORS_FOLDER);
    WriterLock::take(&folder).map_err(|error| match error {
        LockError::Locked(by) => VectorsError::Locked {
            path: folder.clone(),
            by: by.map_or_else(String::new, |process| format!(" (process {process})")),
        },
        LockError::Io(action, error) => {
            FileError::io(&folder.join(LOCK_FILE), action, error).into()
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use corpus_tools::build::{BuildOptions, build};
    use corpus_tools::maintain::{self, MergeOptions};
    use corpus_tools::reader::Input;
    use models::tokenizer::Tokenizer;

    use super::*;

    /// A byte-level tokenizer without merges.
    pub(crate) fn tokenizer() -> Tokenizer {
        let definition = include_bytes!("../../models/tests/fixtures/bytes.json");
        Tokenizer::from_json(definition).unwrap()
    }

    /// A tiny encoder with random weights.
    pub(crate) fn encoder_folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/reference/cross_bert")
    }

    fn encoder() -> Encoder {
        Encoder::open(&encoder_folder()).unwrap()
    }

    fn corpus(folder: &Path, documents: &[(&str, &str, &str)]) -> Input {
        let lines: Vec<String> = documents
            .iter()
            .map(|(id, title, text)| {
                serde_json::json!({"id": id, "title": title, "text": text}).to_string()
            })
            .collect();
        let path = folder.join(format!("{}.jsonl", documents[0].0));
        fs::write(&path, lines.join("\n")).unwrap();
        Input::named(&path)
    }

    /// An index of documents `(id, title, text)` in `folder`.
    pub(crate) fn index(folder: &Path, documents: &[(&str, &str, &str)]) -> Index {
        let tokenizer = tokenizer();
        let out = folder.join("index");
        let options = BuildOptions::new([corpus(folder, documents)], &out, &tokenizer);
        build(&options, &()).unwrap();
        Index::open(&out).unwrap()
    }

    fn add(index: &Index, folder: &Path, documents: &[(&str, &str, &str)]) -> Index {
        let tokenizer = tokenizer();
        let corpus = corpus(folder, documents);
        maintain::add(&BuildOptions::new([corpus], index.path(), &tokenizer), &()).unwrap();
        Index::open(index.path()).unwrap()
    }

    fn embedded(index: &Index) -> (u64, u64, u64) {
        let report = embed(index, &encoder(), 1, &()).unwrap();
        (report.paragraphs, report.embedded, report.taken_over)
    }

    /// All files of vectors but the lock, with their bytes.
    fn files(index: &Index) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = Place::of(index, &encoder()).folder;
        let mut found: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        found.sort();
        found
    }

    pub(crate) const DOCUMENTS: &[(&str, &str, &str)] = &[
        (
            "a",
            "Ed Wood",
            "Ed Wood made  films.\nHe was an\tactor, too.",
        ),
        (
            "b",
            "Cafe\u{301}",
            "Un cafe\u{301} noir.\n\n  東京の喫茶店。 ",
        ),
        ("c", "", "No title.\nEd Wood made films."),
        ("d", "Twins", "The same line.\nThe same line."),
    ];

    /// What windows on whole paragraphs hold, by document: decoded from the tokens.
    fn windows(index: &Index) -> Vec<(DocumentId, Vec<String>)> {
        let tokenizer = tokenizer();
        let window = |document| {
            let stored = index.document(document).unwrap();
            let paragraphs = stored.paragraphs.iter().filter(|one| !one.is_title());
            let joined = paragraphs.map(|paragraph| {
                let tokens = index.fm().extract(document, paragraph.tokens.clone());
                let text = tokenizer.decode(&tokens).trim_start().to_owned();
                let title = stored.title.to_owned();
                WindowText { title, text }.joined()
            });
            (document, joined.collect())
        };
        index.documents().map(window).collect()
    }

    #[test]
    fn rows_are_the_encoders_and_searches_those_of_a_naive_oracle() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), DOCUMENTS);
        let index = add(
            &index,
            folder.path(),
            &[("e", "Rivers", "A river.\nA lake.")],
        );
        let encoder = encoder();
        assert!(!Vectors::any(&index));
        assert_eq!(embedded(&index), (10, 10, 0));
        let vectors = Vectors::open(&index, &encoder).unwrap();
        let embed = |text: &str| encoder.model.embed(&[text]).unwrap().remove(0);
        for text in windows(&index).iter().flat_map(|(_, texts)| texts) {
            assert_eq!(
                vectors.get(key(text)).as_deref(),
                Some(&embed(text)[..]),
                "{text:?}"
            );
        }
        for text in ["", "Ed Wood", "Ed Wood. Ed Wood made  films."] {
            assert_eq!(vectors.get(key(text)), None);
        }
        for question in ["Who made films?", "喫茶店", "The same line."] {
            let question = embed(question);
            let cosine = |text: &String| -> f64 {
                let row = embed(text);
                row.iter()
                    .zip(&question)
                    .map(|(a, b)| f64::from(a * b))
                    .sum()
            };
            let mut expected: Vec<(DocumentId, f64)> = windows(&index)
                .iter()
                .map(|(document, texts)| (*document, texts.iter().map(cosine).fold(-1.0, f64::max)))
                .collect();
            expected.sort_by(|a, b| b.1.total_cmp(&a.1));
            for k in 0..7 {
                let found = vectors.search(&question, k).unwrap();
                assert_eq!(found.len(), k.min(expected.len()));
                for (found, expected) in found.iter().zip(&expected) {
                    assert!(
                        (found.1 - expected.1).abs() < 1e-6,
                        "{found:?} {expected:?}"
                    );
                    assert_eq!(found.0, expected.0);
                }
            }
        }
    }

    #[test]
    fn equal_documents_come_in_order_and_tasks_cover_every_row() {
        let folder = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..COMPARED + 3).map(|number| number.to_string()).collect();
        let documents: Vec<(&str, &str, &str)> =
            ids.iter().map(|id| (id.as_str(), "", "x")).collect();
        let index = index(folder.path(), &documents);
        let encoder = encoder();
        embedded(&index);
        let vectors = Vectors::open(&index, &encoder).unwrap();
        let question = encoder.model.embed(&["x"]).unwrap().remove(0);
        let found = vectors.search(&question, ids.len()).unwrap();
        assert_eq!(found.len(), ids.len());
        assert!(found.is_sorted() && (found[0].1 - 1.0).abs() < 1e-6);
        assert_eq!(vectors.search(&question, 2).unwrap(), found[..2]);
    }

    #[test]
    fn additions_deletions_and_merges() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), DOCUMENTS);
        let encoder = encoder();
        assert_eq!(embedded(&index), (8, 8, 0));
        let first = files(&index);
        // Nothing is missing: nothing is written, and no lock is taken.
        let held = lock(&index).unwrap();
        assert_eq!(embedded(&index), (8, 0, 0));

        let more = [
            ("e", "Rivers", "A river.\nA lake."),
            ("f", "Twins", "The same line."),
        ];
        let index = add(&index, folder.path(), &more);
        let question = encoder.model.embed(&["A lake."]).unwrap().remove(0);
        let search = |index: &Index| Vectors::open(index, &encoder).unwrap().search(&question, 9);
        let missing = search(&index).unwrap_err().to_string();
        assert!(
            missing.contains("1 of 2") && missing.contains("index embed"),
            "{missing}"
        );
        let locked = embed(&index, &encoder, 1, &()).unwrap_err();
        assert!(matches!(locked, VectorsError::Locked { .. }), "{locked}");
        drop(held);
        // A text that stands in another segment has its vector.
        assert_eq!(embedded(&index), (11, 2, 1));
        assert_eq!(files(&index)[0], first[0]);

        // What is deleted is found no longer, and nothing is computed.
        let ids = |index: &Index| -> Vec<String> {
            let found = search(index).unwrap();
            let mut ids: Vec<String> = found
                .into_iter()
                .map(|(document, _)| index.document(document).unwrap().id.to_owned())
                .collect();
            ids.sort();
            ids
        };
        assert_eq!(ids(&index).concat(), "abcdef");
        maintain::delete(index.path(), ["a", "e"]).unwrap();
        let index = Index::open(index.path()).unwrap();
        assert_eq!(ids(&index).concat(), "bcdf");
        assert_eq!(embedded(&index), (7, 0, 0));

        // The vectors of a merged segment are those of the old ones, which go; with the encoder or without.
        let copy = folder.path().join("copy");
        copy_folder(index.path(), &copy);
        let merge = |path: &Path| {
            maintain::merge(&MergeOptions::new(path), &()).unwrap();
            Index::open(path).unwrap()
        };
        let index = merge(index.path());
        assert!(search(&index).is_err());
        assert_eq!(embedded(&index), (7, 0, 7));
        assert_eq!(ids(&index).concat(), "bcdf");
        let copy = merge(&copy);
        take_over(&copy, &()).unwrap();
        assert_eq!(ids(&copy).concat(), "bcdf");
        let bytes = |index: &Index| -> Vec<Vec<u8>> {
            let files = files(index).into_iter();
            files.map(|(_, bytes)| bytes).collect()
        };
        assert!(bytes(&index) == bytes(&copy) && bytes(&copy).len() == 1);
        assert_eq!(embedded(&copy), (7, 0, 0));
        let vectors = Vectors::open(&index, &encoder).unwrap();
        assert!(vectors.get(key("Rivers. A lake.")).is_none());
        assert!(vectors.get(key("Twins. The same line.")).is_some());

        // Where a paragraph had none the old ones stay until it has one.
        let index = add(&index, folder.path(), &[("g", "Seas", "A sea.")]);
        let index = merge(index.path());
        take_over(&index, &()).unwrap();
        assert_eq!(files(&index).len(), 1);
        assert!(search(&index).is_err());
        assert_eq!(embedded(&index), (8, 1, 7));
        assert_eq!(files(&index).len(), 1);
    }

    fn copy_folder(from: &Path, to: &Path) {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (path, to) = (
                entry.as_ref().unwrap().path(),
                to.join(entry.unwrap().file_name()),
            );
            match path.is_dir() {
                true => copy_folder(&path, &to),
                false => _ = fs::copy(&path, &to).unwrap(),
            }
        }
    }

    #[test]
    fn the_name_of_a_segment_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), DOCUMENTS);
        let index = add(&index, folder.path(), &[("e", "Rivers", "A river.")]);
        embedded(&index);
        // Without the document the second segment is gone, and the next one has its name.
        maintain::delete(index.path(), ["e"]).unwrap();
        maintain::merge(&MergeOptions::new(index.path()), &()).unwrap();
        let names = |index: &Index| -> Vec<String> {
            let entries = index.manifest().segments.iter();
            entries.map(|entry| entry.name.clone()).collect()
        };
        let before = names(&index);
        let index = add(&index, folder.path(), &[("f", "Lakes", "A lake.")]);
        assert_eq!(names(&index), before);
        assert!(
            Vectors::open(&index, &encoder())
                .unwrap()
                .check_complete()
                .is_err()
        );
        assert_eq!(embedded(&index), (9, 1, 0));
    }

    /// Interrupts once so many paragraphs are done.
    struct StopAt(u64, AtomicU64);

    impl Progress for StopAt {
        fn advance(&self, done: u64) {
            self.1.store(done, Ordering::Relaxed);
        }

        fn interrupted(&self) -> bool {
            self.1.load(Ordering::Relaxed) >= self.0
        }
    }

    #[test]
    fn an_interrupted_run_goes_on_after_its_last_sound_part() {
        let paragraphs = |document: usize| -> String {
            let lines = (0..100).map(|line| format!("Line {line} of {document}."));
            lines.collect::<Vec<_>>().join("\n")
        };
        let texts: Vec<(String, String)> = (0..25)
            .map(|document| (document.to_string(), paragraphs(document)))
            .collect();
        let documents: Vec<(&str, &str, &str)> = texts
            .iter()
            .map(|(id, text)| (id.as_str(), "", text.as_str()))
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), &documents);
        assert_eq!(embedded(&index), (2500, 2500, 0));
        let whole = files(&index);
        let vectors = index.path().join(VECTORS_FOLDER);

        for damage in [false, true] {
            fs::remove_dir_all(&vectors).unwrap();
            let stop = StopAt(2 * PART, AtomicU64::new(0));
            let stopped = embed(&index, &encoder(), 1, &stop).unwrap_err();
            assert!(matches!(stopped, VectorsError::Interrupted), "{stopped}");
            // What is half done is not taken for vectors.
            assert!(
                Vectors::open(&index, &encoder())
                    .unwrap()
                    .check_complete()
                    .is_err()
            );
            if damage {
                let (folder, _) = Place::of(&index, &encoder()).parts(0);
                let path = folder.join("000000.bin");
                let mut bytes = fs::read(&path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(&path, bytes).unwrap();
            }
            let left = embedded(&index).1;
            match damage {
                // One part of eleven documents is there.
                false => assert_eq!(left, 2500 - 1100),
                true => assert_eq!(left, 2500),
            }
            assert!(files(&index) == whole, "other bytes");
        }
    }

    #[test]
    fn damaged_and_foreign_files_are_refused_by_name_and_computed_again() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), DOCUMENTS);
        let encoder = encoder();
        embedded(&index);
        let (path, good) = files(&index).remove(0);
        let mut flipped = good.clone();
        // The rows stand before the table of sections.
        let row = good.len() - 500;
        flipped[row] ^= 1;
        let mut other = good.clone();
        other[20] ^= 1;
        for (bad, opens) in [
            (&good[..good.len() - 1], false),
            (&other, false),
            (&flipped, true),
        ] {
            fs::write(&path, bad).unwrap();
            match Vectors::open(&index, &encoder) {
                Ok(_) => assert!(opens),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!opens && error.contains(path.to_str().unwrap()), "{error}");
                    assert!(error.contains("index embed"), "{error}");
                }
            }
            assert_eq!(embedded(&index), (8, 8, 0));
            assert!(fs::read(&path).unwrap() == good);
        }
        // Sound, but of another segment.
        let place = Place::of(&index, &encoder);
        let mut subject = place.subjects[0];
        subject.segment ^= 1;
        let content = Content {
            counts: vec![0; subject.documents as usize],
            entries: Vec::new(),
            rows: Vec::new(),
        };
        content.write(&path, &subject).unwrap();
        let error = Vectors::open(&index, &encoder).err().unwrap().to_string();
        assert!(error.contains("another encoder or segment"), "{error}");
        // Of this one, but its sections disagree.
        let subject = place.subjects[0];
        let content = Content {
            counts: vec![0; subject.documents as usize + 1],
            entries: vec![(7, 0)],
            rows: Vec::new(),
        };
        content.write(&path, &subject).unwrap();
        assert!(Vectors::open(&index, &encoder).is_err());
        assert_eq!(embedded(&index), (8, 8, 0));
    }

    #[test]
    fn every_file_of_an_encoder_counts() {
        let folder = tempfile::tempdir().unwrap();
        for file in fs::read_dir(encoder_folder()).unwrap() {
            let path = file.unwrap().path();
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        let same = Encoder::open(folder.path()).unwrap().fingerprint;
        assert_eq!(same, encoder().fingerprint);
        fs::write(
            folder.path().join("sentence_bert_config.json"),
            "{\"max_seq_length\": 8}",
        )
        .unwrap();
        assert_ne!(Encoder::open(folder.path()).unwrap().fingerprint, same);
    }
}
