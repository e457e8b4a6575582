//! BM25 over the documents of an index (title and text): the second ranking, on tantivy's postings.
//!
//! tantivy stores terms, postings and lengths; the scoring is ours, so that the parameters are free,
//! several segments count as one collection, deleted documents count nowhere, and equal scores are
//! in document order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fmindex::DocumentId;
use fmindex::file::FileError;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::postings::{Postings, SegmentPostings};
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::{DocSet, InvertedIndexReader, SegmentReader, TERMINATED, TantivyDocument, Term};

use crate::analysis::{Analyser, Stemming};
use crate::bm25::{self, Parameters};
use crate::manifest::{LEXICAL_FOLDER, write_renamed};

const FIELD: &str = "text";
/// Documents scored at a time: the scores of a block stay in the processor's cache.
const BLOCK: u32 = 1 << 16;
/// What the writer's hash table of terms is sized for, by tokens to come; it grows when it must.
const WRITER_MEMORY: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;

/// A term of a question with its weight in the collection.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionTerm {
    /// The word as it stands in the question (its first place).
    pub written: String,
    /// The term: normalised, lower case, stemmed.
    pub term: String,
    /// How often it stands in the question.
    pub times: u32,
    /// Live documents that hold it.
    pub documents: u64,
    /// Its inverse document frequency; 0 where no document holds it.
    pub idf: f32,
}

struct Part {
    terms: Arc<InvertedIndexReader>,
    lengths: FieldNormReader,
    documents: u32,
    /// Sorted numbers of deleted documents.
    deleted: Vec<u32>,
}

impl Part {
    fn is_live(&self, document: u32) -> bool {
        self.deleted.is_empty() || self.deleted.binary_search(&document).is_err()
    }
}

struct Inner {
    parts: Vec<Part>,
    path: PathBuf,
    field: Field,
    analyser: Analyser,
    documents: u64,
    average_length: f32,
}

/// BM25 over all live documents of an index. `Send` and `Sync`, cheap to clone.
#[derive(Clone)]
pub struct Lexical {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Lexical {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lexical")
            .field("documents", &self.inner.documents)
            .finish_non_exhaustive()
    }
}

fn damaged(path: &Path, reason: impl std::fmt::Display) -> FileError {
    FileError::damaged(path, 0, format!("the BM25 index cannot be read ({reason})"))
}

/// Runs what reads tantivy's files. On a damaged body tantivy may panic instead of returning an
/// error; a damaged file must never end the program.
fn guarded<T>(path: &Path, read: impl FnOnce() -> tantivy::Result<T>) -> Result<T, FileError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read))
        .map_err(|_| damaged(path, "its bytes make no sense"))?
        .map_err(|error| damaged(path, error))
}

impl Lexical {
    /// Opens the BM25 indexes of these segment folders; the second of each pair lists deleted documents.
    pub(crate) fn open(
        segments: &[(PathBuf, &[u32])],
        stemming: Stemming,
    ) -> Result<Self, FileError> {
        let (_, field) = schema();
        let mut parts = Vec::new();
        let (mut documents, mut total_length) = (0, 0u64);
        for (dir, deleted) in segments {
            let path = dir.join(LEXICAL_FOLDER);
            let mut part = guarded(&path, || open_part(&path, field))?;
            part.deleted = deleted.to_vec();
            part.deleted.sort_unstable();
            let dead_length: u64 = part
                .deleted
                .iter()
                .filter(|&&document| document < part.documents)
                .map(|&document| u64::from(part.lengths.fieldnorm(document)))
                .sum();
            documents += u64::from(part.documents) - part.deleted.len() as u64;
            total_length += part.terms.total_num_tokens().saturating_sub(dead_length);
            parts.push(part);
        }
        let path = segments.first().map(|(dir, _)| dir.join(LEXICAL_FOLDER));
        Ok(Self {
            inner: Arc::new(Inner {
                parts,
                path: path.unwrap_or_default(),
                field,
                analyser: Analyser::new(stemming),
                documents,
                average_length: total_length as f32 / documents.max(1) as f32,
            }),
        })
    }

    /// How texts are split into terms.
    pub fn analyser(&self) -> Analyser {
        self.inner.analyser
    }

    /// Number of live documents.
    pub fn documents(&self) -> u64 {
        self.inner.documents
    }

    /// The `k` best live documents for `question`, the best first, equal scores in document order.
    /// Documents without any term of the question are not given. Any text is a question.
    ///
    /// # Errors
    /// The files are damaged.
    pub fn search(&self, question: &str, k: usize) -> Result<Vec<(DocumentId, f32)>, FileError> {
        self.search_with(question, k, Parameters::default())
    }

    /// As [`Lexical::search`], with other parameters of BM25.
    ///
    /// # Errors
    /// The files are damaged.
    pub fn search_with(
        &self,
        question: &str,
        k: usize,
        parameters: Parameters,
    ) -> Result<Vec<(DocumentId, f32)>, FileError> {
        guarded(&self.inner.path, || self.best(question, k, parameters))
    }

    fn best(
        &self,
        question: &str,
        k: usize,
        parameters: Parameters,
    ) -> tantivy::Result<Vec<(DocumentId, f32)>> {
        let terms = self.weigh(question)?;
        let mut best = Best::new(k);
        let mut scores = vec![0f32; BLOCK as usize];
        for (number, part) in self.inner.parts.iter().enumerate() {
            let mut lists = Vec::new();
            for term in terms.iter().filter(|term| term.documents > 0) {
                if let Some(postings) = self.postings(part, &term.term)? {
                    lists.push((postings, term.idf * term.times as f32));
                }
            }
            let mut block = 0;
            while block < part.documents && !lists.is_empty() {
                let end = block.saturating_add(BLOCK).min(part.documents);
                for (postings, weight) in &mut lists {
                    let mut document = postings.doc();
                    while document < end {
                        let length = part.lengths.fieldnorm(document) as f32;
                        let frequency = postings.term_freq() as f32;
                        scores[(document - block) as usize] += *weight
                            * parameters.frequency_factor(
                                frequency,
                                length,
                                self.inner.average_length,
                            );
                        document = postings.advance();
                    }
                }
                for document in block..end {
                    let score = std::mem::take(&mut scores[(document - block) as usize]);
                    if score > 0.0 && part.is_live(document) {
                        let segment = number as u32;
                        best.offer(score, DocumentId { segment, document });
                    }
                }
                block = end;
            }
        }
        Ok(best.ranked())
    }

    fn postings(&self, part: &Part, term: &str) -> tantivy::Result<Option<SegmentPostings>> {
        let term = Term::from_field_text(self.inner.field, term);
        Ok(part
            .terms
            .read_postings(&term, IndexRecordOption::WithFreqs)?)
    }

    fn weigh(&self, question: &str) -> tantivy::Result<Vec<QuestionTerm>> {
        let mut written = std::collections::HashMap::new();
        self.inner.analyser.visit(question, |term, word| {
            written.entry(term.to_owned()).or_insert(word.to_owned());
        });
        bm25::query_terms(&self.inner.analyser, question)
            .into_iter()
            .map(|(term, times)| {
                let documents = self.containing(&term)?;
                Ok(QuestionTerm {
                    written: written.remove(&term).unwrap_or_default(),
                    times,
                    documents,
                    idf: match documents {
                        0 => 0.0,
                        _ => bm25::idf(documents, self.inner.documents),
                    },
                    term,
                })
            })
            .collect()
    }

    /// Number of live documents that hold the analysed `term`.
    fn containing(&self, term: &str) -> tantivy::Result<u64> {
        let mut documents = 0;
        for part in &self.inner.parts {
            if part.deleted.is_empty() {
                let term = Term::from_field_text(self.inner.field, term);
                documents += u64::from(part.terms.doc_freq(&term)?);
            } else if let Some(mut postings) = self.postings(part, term)? {
                while postings.doc() != TERMINATED {
                    documents += u64::from(part.is_live(postings.doc()));
                    postings.advance();
                }
            }
        }
        Ok(documents)
    }

    /// The terms of `question`, each once, the heaviest first (inverse document frequency times
    /// number); terms that no document holds come last. Equal weights are in question order.
    ///
    /// # Errors
    /// The files are damaged.
    pub fn question_terms(&self, question: &str) -> Result<Vec<QuestionTerm>, FileError> {
        let mut terms = guarded(&self.inner.path, || self.weigh(question))?;
        let weight = |term: &QuestionTerm| term.idf * term.times as f32;
        terms.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        Ok(terms)
    }

    /// The score of each of `texts` for `question`: weights of terms from this collection, lengths
    /// relative to the average of `texts`.
    ///
    /// # Errors
    /// The files are damaged.
    pub fn score_texts(&self, question: &str, texts: &[&str]) -> Result<Vec<f32>, FileError> {
        let terms = guarded(&self.inner.path, || self.weigh(question))?;
        let idf = |term: &str| {
            let found = terms.iter().find(|other| other.term == term);
            found.map_or(0.0, |term| term.idf)
        };
        let parameters = Parameters::default();
        Ok(bm25::scores_with(
            &self.inner.analyser,
            parameters,
            question,
            texts,
            idf,
        ))
    }
}

fn schema() -> (Schema, Field) {
    let mut builder = Schema::builder();
    let indexing = TextFieldIndexing::default()
        .set_tokenizer("whitespace")
        .set_index_option(IndexRecordOption::WithFreqs)
        .set_fieldnorms(true);
    let options = TextOptions::default().set_indexing_options(indexing);
    let field = builder.add_text_field(FIELD, options);
    (builder.build(), field)
}

fn open_part(path: &Path, field: Field) -> tantivy::Result<Part> {
    let index = tantivy::Index::open_in_dir(path)?;
    let segments = index.searchable_segments()?;
    let [segment] = segments.as_slice() else {
        let what = format!("{} parts instead of one", segments.len());
        return Err(tantivy::TantivyError::SystemError(what));
    };
    // Opened by hand: a tantivy reader would take a lock, and write a file, in the folder.
    let reader = SegmentReader::open(segment)?;
    Ok(Part {
        terms: reader.inverted_index(field)?,
        lengths: reader.get_fieldnorms_reader(field)?,
        documents: reader.max_doc(),
        deleted: Vec::new(),
    })
}

/// The best documents so far, at most `k`.
struct Best {
    k: usize,
    heap: BinaryHeap<Scored>,
}

/// Ordered so that the heap's top is the worst: lower score, then later document.
#[derive(PartialEq)]
struct Scored(f32, DocumentId);

impl Eq for Scored {}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then(self.1.cmp(&other.1))
    }
}

impl Best {
    fn new(k: usize) -> Self {
        Self {
            k,
            heap: BinaryHeap::new(),
        }
    }

    fn offer(&mut self, score: f32, document: DocumentId) {
        let offered = Scored(score, document);
        if self.heap.len() < self.k {
            self.heap.push(offered);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && offered < *worst
        {
            *worst = offered;
        }
    }

    fn ranked(self) -> Vec<(DocumentId, f32)> {
        let sorted = self.heap.into_sorted_vec();
        sorted
            .into_iter()
            .map(|Scored(score, document)| (document, score))
            .collect()
    }
}

/// The terms of one document, ready to be added: no term holds white space, so a space parts them.
pub(crate) struct AnalysedDocument(String);

/// Splits a document into the terms that [`LexicalWriter::push`] takes.
pub(crate) fn analyse_document(analyser: &Analyser, title: &str, text: &str) -> AnalysedDocument {
    let mut terms = String::with_capacity(title.len() + text.len());
    for part in [title, text] {
        analyser.visit(part, |term, _| {
            terms.push_str(term);
            terms.push(' ');
        });
    }
    AnalysedDocument(terms)
}

/// Writes the BM25 index of one segment, document by document.
pub(crate) struct LexicalWriter {
    path: PathBuf,
    field: Field,
    writer: tantivy::SingleSegmentIndexWriter,
}

impl LexicalWriter {
    /// Starts the BM25 index in the segment's folder `dir`, of texts of about so many tokens.
    pub fn create(dir: &Path, tokens: u64) -> Result<Self, FileError> {
        let path = dir.join(LEXICAL_FOLDER);
        fs::create_dir(&path).map_err(|e| FileError::io(&path, "create the folder", e))?;
        let (schema, field) = schema();
        let (least, most) = WRITER_MEMORY.into_inner();
        let memory = tokens.saturating_mul(16).clamp(least, most) as usize;
        let open = || {
            let directory = tantivy::directory::MmapDirectory::open(&path)?;
            tantivy::Index::builder()
                .schema(schema)
                .single_segment_index_writer(directory, memory)
        };
        let writer = open().map_err(|e| write_error(&path, &e))?;
        Ok(Self {
            path,
            field,
            writer,
        })
    }

    /// Appends a document.
    pub fn push(&mut self, document: AnalysedDocument) -> Result<(), FileError> {
        let mut entry = TantivyDocument::default();
        entry.add_text(self.field, document.0);
        self.writer
            .add_document(entry)
            .map_err(|e| write_error(&self.path, &e))
    }

    /// Bytes of memory the postings take so far; the same for the same documents.
    pub fn memory(&self) -> u64 {
        self.writer.mem_usage() as u64
    }

    /// Writes the files.
    pub fn finish(self) -> Result<(), FileError> {
        let path = self.path;
        let index = self.writer.finalize().map_err(|e| write_error(&path, &e))?;
        let segments = index.searchable_segment_ids();
        drop(index);
        match segments.map_err(|e| write_error(&path, &e))?.as_slice() {
            [segment] => name_files(&path, &segment.uuid_string()),
            _ => Ok(()),
        }
    }
}

/// tantivy draws the names of its files at random. Given a fixed name, the same documents make the same
/// bytes; the part's identity stands only in names and in `meta.json`.
fn name_files(path: &Path, drawn: &str) -> Result<(), FileError> {
    const META: &str = "meta.json";
    let fixed = format!("{:032x}", 1);
    let failed = |what| move |e| FileError::io(path, what, e);
    // A list of files for a garbage collection that never runs here.
    for spare in [".managed.json", ".tantivy-meta.lock"] {
        let _ = fs::remove_file(path.join(spare));
    }
    let names: Vec<_> = fs::read_dir(path)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .map_err(failed("list the folder"))?;
    for entry in names {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(rest) = name.strip_prefix(drawn) {
            fs::rename(entry.path(), path.join(format!("{fixed}{rest}")))
                .map_err(failed("rename a file"))?;
        }
    }
    let meta = fs::read_to_string(path.join(META)).map_err(failed("read meta.json"))?;
    let meta = meta
        .replace(drawn, &fixed)
        .replace(&hyphenated(drawn), &hyphenated(&fixed));
    write_renamed(&path.join(META), meta.as_bytes())
}

/// A UUID of 32 digits as it is written out: 8-4-4-4-12.
fn hyphenated(digits: &str) -> String {
    let mut written = String::with_capacity(36);
    for (at, digit) in digits.chars().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            written.push('-');
        }
        written.push(digit);
    }
    written
}

fn write_error(path: &Path, error: &tantivy::TantivyError) -> FileError {
    let source = std::io::Error::other(error.to_string());
    FileError::io(path, "write the BM25 index", source)
}
