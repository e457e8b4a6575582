//! An open index: its FM-index, its documents, BM25, and citations checked against the stored text.

use std::borrow::Cow;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fmindex::file::FileError;
use fmindex::{DeadRows, DocumentId};
use models::tokenizer::{Tokenizer, TokenizerError};
use serde_json::{Map, Value};

use crate::build::joined;
use crate::canonical::Canonical;
use crate::citation::Citation;
use crate::lexical::Lexical;
use crate::manifest::{
    MANIFEST_FILE, Manifest, SEGMENTS_FOLDER, SegmentEntry, TOKENIZER_FILE, VECTORS_FOLDER,
    vector_files,
};
use crate::store::{Paragraph, Store, Stored};

/// Why an index cannot be opened, verified or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// A file is missing, foreign, truncated or damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no index at the path.
    #[error("{path}: {reason}")]
    NotAnIndex {
        /// The folder that was named.
        path: PathBuf,
        /// What is there instead, and what to do.
        reason: &'static str,
    },
    /// The segments do not go together.
    #[error("{path}: {source}")]
    Segments {
        /// The index.
        path: PathBuf,
        /// The reason.
        source: fmindex::IndexError,
    },
    /// The parts of the index speak of different numbers of documents, paragraphs or tokens.
    #[error("{path}: {what}; restore the index or build it again")]
    Disagree {
        /// The segment, or the index.
        path: PathBuf,
        /// Which numbers differ.
        what: String,
    },
    /// A file of kept sentence vectors is foreign or damaged.
    #[error("{0}; vectors alone are computed again by `verbatim index embed`")]
    Vectors(FileError),
    /// The tokenizer of the index cannot be read.
    #[error("{path}: {source}")]
    Tokenizer {
        /// The tokenizer's file.
        path: PathBuf,
        /// The reason.
        source: TokenizerError,
    },
    /// A model of another vocabulary was brought to the index.
    #[error(
        "{path}: built with another tokenizer (fingerprint {expected}) than this model's ({found}); take the model the index was built for, or build an index with this one"
    )]
    OtherTokenizer {
        /// The index.
        path: PathBuf,
        /// First digits of the index's fingerprint.
        expected: String,
        /// First digits of the model's fingerprint.
        found: String,
    },
    /// There is no such document, or it was deleted.
    #[error("{path}: there is no document {document:?}")]
    NoSuchDocument {
        /// The index.
        path: PathBuf,
        /// What was asked for.
        document: DocumentId,
    },
    /// A check of [`verify`](mod@crate::verify) was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Why a span of tokens cannot be cited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CiteError {
    /// The index cannot be read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The span does not lie inside one paragraph.
    #[error("tokens {}..{} of document {id:?} do not lie inside one paragraph", span.start, span.end)]
    NotInOneParagraph {
        /// External id of the document.
        id: String,
        /// The tokens.
        span: Range<u32>,
    },
    /// The span lies in the title, which is not evidence.
    #[error("tokens {}..{} of document {id:?} are its title, which is not evidence", span.start, span.end)]
    Title {
        /// External id of the document.
        id: String,
        /// The tokens.
        span: Range<u32>,
    },
    /// The span holds no whole grapheme.
    #[error("tokens {}..{} of document {id:?} hold no whole character", span.start, span.end)]
    NoText {
        /// External id of the document.
        id: String,
        /// The tokens.
        span: Range<u32>,
    },
    /// Tokens and stored text are not the same: the index is damaged or of another tokenizer.
    #[error(
        "paragraph {paragraph} of document {id:?}: the tokens in the index are not those of the stored text; verify the index"
    )]
    Mismatch {
        /// External id of the document.
        id: String,
        /// Number of the paragraph.
        paragraph: u32,
    },
}

/// A stored document; borrows from the open index.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    /// Number in the index.
    pub number: DocumentId,
    /// External id.
    pub id: &'a str,
    /// Title, as the corpus gave it.
    pub title: &'a str,
    /// Text, as the corpus gave it. Where the index keeps no texts: what the tokens spell, the paragraphs
    /// as lines.
    pub text: Cow<'a, str>,
    /// The title (paragraph 0) and the paragraphs.
    pub paragraphs: Vec<Paragraph>,
    metadata: &'a str,
}

impl Document<'_> {
    /// The fields of the corpus beside id, title and text. Empty if there were none.
    pub fn metadata(&self) -> Map<String, Value> {
        serde_json::from_str(self.metadata).unwrap_or_default()
    }

    /// The paragraph that holds the token at `offset` of the document (its separator included).
    pub fn paragraph_at(&self, offset: u32) -> Option<&Paragraph> {
        let at = self
            .paragraphs
            .partition_point(|paragraph| paragraph.tokens.end < offset);
        self.paragraphs.get(at)
    }

    /// The original text of a paragraph: a line of the text, or the title.
    pub fn paragraph_text(&self, paragraph: &Paragraph) -> &str {
        if paragraph.is_title() {
            self.title
        } else {
            self.text.get(paragraph.bytes.clone()).unwrap_or_default()
        }
    }
}

/// A component of an index on disk.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ComponentSize {
    /// What it is.
    pub name: String,
    /// Size in bytes over all segments.
    pub bytes: u64,
    /// Bits a token.
    pub bits_per_token: f64,
}

/// Figures of an index.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Stat {
    /// Live documents.
    pub documents: u64,
    /// Deleted documents, whose bytes a merge removes.
    pub deleted: u64,
    /// Paragraphs of live documents, titles included.
    pub paragraphs: u64,
    /// Tokens of live documents, separators included.
    pub tokens: u64,
    /// Bytes of the texts of all segments.
    pub text_bytes: u64,
    /// Whether the texts are kept.
    pub store: Stored,
    /// Live segments.
    pub segments: u64,
    /// Bits a token of the FM-index alone.
    pub bits_per_token: f64,
    /// Bytes of the whole folder.
    pub bytes: u64,
    /// The FM-index by component, then the store and BM25, then sentence vectors where there are any.
    pub components: Vec<ComponentSize>,
}

/// So many titles are followed from one title over redirects.
const MOST_REDIRECTS: usize = 16;

struct Inner {
    dir: PathBuf,
    manifest: Manifest,
    fm: fmindex::Index,
    stores: Vec<Store>,
    lexical: Lexical,
    tokenizer: OnceLock<Arc<Tokenizer>>,
}

/// An open index. `Send` and `Sync`, cheap to clone; parallel queries give the same answers.
///
/// The files are memory-mapped: whoever owns the folder must not write to them, only replace them.
#[derive(Clone)]
pub struct Index {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index")
            .field("dir", &self.inner.dir)
            .field("counts", &self.inner.manifest.counts)
            .finish_non_exhaustive()
    }
}

impl Index {
    /// Opens the index in the folder `dir`. Maps its files and checks headers and sizes; no text, no
    /// tokenizer is read.
    ///
    /// # Errors
    /// There is no index, it was not finished, or a file is missing, truncated, foreign, of another
    /// version, or does not agree with the manifest.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, IndexError> {
        let dir = dir.as_ref();
        loop {
            let before = Manifest::read(dir).ok();
            match Self::open_once(dir) {
                // A writer may have put a new manifest in place and removed segments in between.
                Err(_) if before.is_some() && Manifest::read(dir).ok() != before => {}
                outcome => return outcome,
            }
        }
    }

    fn open_once(dir: &Path) -> Result<Self, IndexError> {
        let dir = dir.to_owned();
        let none = |reason| IndexError::NotAnIndex {
            path: dir.clone(),
            reason,
        };
        match fs::metadata(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(none("there is no such folder; build an index first"));
            }
            Err(e) => return Err(FileError::io(&dir, "open the index", e).into()),
            Ok(found) if !found.is_dir() => {
                return Err(none("an index is a folder, this is a file"));
            }
            Ok(_) if !dir.join(MANIFEST_FILE).exists() => {
                return Err(none(
                    "no manifest.json: this is no index, or its build did not end; the same build command goes on with it",
                ));
            }
            Ok(_) => {}
        }
        let manifest = Manifest::read(&dir)?;
        manifest.tokenizer.file.check_size(&dir)?;
        let mut fm = Vec::new();
        let mut stores = Vec::new();
        let mut dead = Vec::new();
        let mut folders = Vec::new();
        for entry in &manifest.segments {
            let path = dir.join(SEGMENTS_FOLDER).join(&entry.name);
            for file in entry.all_files() {
                file.check_size(&path)?;
            }
            let segment = fmindex::Segment::open(&path)?;
            let store = Store::open(&path, manifest.store)?;
            let counts = &entry.counts;
            for (what, manifest, found) in [
                ("documents", counts.documents, store.documents().into()),
                ("documents", counts.documents, segment.documents().into()),
                ("paragraphs", counts.paragraphs, store.paragraph_count()),
                ("tokens", counts.tokens, store.tokens()),
                ("tokens", counts.tokens, segment.tokens()),
                (
                    "bytes of text",
                    counts.text_bytes,
                    store.text_bytes().unwrap_or(counts.text_bytes),
                ),
                (
                    "token ids",
                    u64::from(manifest.tokenizer.vocabulary_size),
                    segment.separator().into(),
                ),
            ] {
                if manifest != found {
                    let what = format!("the manifest says {manifest} {what}, its files {found}");
                    return Err(IndexError::Disagree { path, what });
                }
            }
            if let Some(&gone) = entry.deleted.iter().find(|&&d| d >= store.documents()) {
                let what = format!("document {gone} is deleted, but does not exist");
                return Err(IndexError::Disagree { path, what });
            }
            let rows = match &entry.dead_rows {
                Some(file) => Some(DeadRows::open(&path.join(&file.name), &segment)?),
                None => None,
            };
            let marked = rows.as_ref().map_or(0, DeadRows::document_count);
            if marked as usize != entry.deleted.len() {
                let what = format!(
                    "{} documents are deleted, rows are marked of {marked}",
                    entry.deleted.len()
                );
                return Err(IndexError::Disagree { path, what });
            }
            fm.push(segment);
            stores.push(store);
            dead.push(rows);
            folders.push((path, entry.deleted.as_slice()));
        }
        let lexical = Lexical::open(&folders, manifest.stemming)?;
        let fm = fmindex::Index::with_dead_rows(fm, dead).map_err(|source| {
            let path = dir.clone();
            IndexError::Segments { path, source }
        })?;
        Ok(Self {
            inner: Arc::new(Inner {
                dir,
                manifest,
                fm,
                stores,
                lexical,
                tokenizer: OnceLock::new(),
            }),
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.inner.dir
    }

    /// The corpus-level FM-index over all segments.
    pub fn fm(&self) -> &fmindex::Index {
        &self.inner.fm
    }

    /// BM25 over all documents.
    pub fn lexical(&self) -> &Lexical {
        &self.inner.lexical
    }

    /// The manifest as it was when the index was opened.
    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    /// The stores of the segments, in order.
    pub fn stores(&self) -> &[Store] {
        &self.inner.stores
    }

    /// The tokenizer the index was built with; read on the first call.
    ///
    /// # Errors
    /// The file cannot be read or is another one than the manifest speaks of.
    pub fn tokenizer(&self) -> Result<Arc<Tokenizer>, IndexError> {
        if let Some(tokenizer) = self.inner.tokenizer.get() {
            return Ok(Arc::clone(tokenizer));
        }
        let path = self.inner.dir.join(TOKENIZER_FILE);
        let tokenizer = Tokenizer::from_file(&path).map_err(|source| {
            let path = path.clone();
            IndexError::Tokenizer { path, source }
        })?;
        if tokenizer.fingerprint() != self.inner.manifest.tokenizer.fingerprint {
            let what = "the tokenizer is not the one the index was built with";
            return Err(FileError::damaged(&path, 0, what).into());
        }
        let tokenizer = Arc::new(tokenizer);
        Ok(Arc::clone(self.inner.tokenizer.get_or_init(|| tokenizer)))
    }

    /// Checks that `tokenizer` is the one the index was built with, in vocabulary and ids.
    ///
    /// # Errors
    /// [`IndexError::OtherTokenizer`].
    pub fn check_tokenizer(&self, tokenizer: &Tokenizer) -> Result<(), IndexError> {
        let expected = &self.inner.manifest.tokenizer.fingerprint;
        let found = tokenizer.fingerprint();
        if expected != found {
            let short = |fingerprint: &str| fingerprint.chars().take(12).collect();
            return Err(IndexError::OtherTokenizer {
                path: self.inner.dir.clone(),
                expected: short(expected),
                found: short(found),
            });
        }
        Ok(())
    }

    fn store(&self, document: DocumentId) -> Result<&Store, IndexError> {
        let store = self.inner.stores.get(document.segment as usize);
        store
            .filter(|store| document.document < store.documents() && self.fm().is_live(document))
            .ok_or_else(|| IndexError::NoSuchDocument {
                path: self.inner.dir.clone(),
                document,
            })
    }

    /// A live document.
    ///
    /// # Errors
    /// There is no such document, or its segment is damaged.
    pub fn document(&self, document: DocumentId) -> Result<Document<'_>, IndexError> {
        let store = self.store(document)?;
        let paragraphs = store.paragraphs(document.document)?;
        let text = match store.text(document.document)? {
            Some(text) => text.into(),
            None => self.spelled_text(document, &paragraphs)?.into(),
        };
        Ok(Document {
            number: document,
            id: store.id(document.document)?,
            title: store.title(document.document)?,
            text,
            paragraphs,
            metadata: store.metadata(document.document)?,
        })
    }

    /// The text that the tokens of a document spell, its paragraphs as lines.
    fn spelled_text(
        &self,
        document: DocumentId,
        paragraphs: &[Paragraph],
    ) -> Result<String, IndexError> {
        let tokenizer = self.tokenizer()?;
        let tokens = self
            .fm()
            .extract(document, 0..self.fm().document_length(document));
        let lines = paragraphs.iter().filter(|paragraph| !paragraph.is_title());
        let lines: Vec<String> = lines
            .map(|line| {
                let span = line.tokens.start as usize..line.tokens.end as usize;
                tokenizer.decode(tokens.get(span).unwrap_or_default())
            })
            .collect();
        let (text, spans) = joined(lines.iter().map(String::as_str));
        let places = paragraphs.iter().map(|paragraph| &paragraph.bytes);
        let same = |(span, place): (&Range<u32>, &Range<usize>)| {
            span.start as usize == place.start && span.end as usize == place.end
        };
        if spans.len() != paragraphs.len() || !spans.iter().zip(places).all(same) {
            let what = format!(
                "the tokens of document {} of segment {} do not spell its paragraphs",
                document.document, document.segment
            );
            let path = self.inner.dir.clone();
            return Err(IndexError::Disagree { path, what });
        }
        Ok(text)
    }

    /// The paragraphs of a live document; the first is the title.
    ///
    /// # Errors
    /// As [`Index::document`].
    pub fn paragraphs(&self, document: DocumentId) -> Result<Vec<Paragraph>, IndexError> {
        Ok(self.store(document)?.paragraphs(document.document)?)
    }

    /// The live document whose external id is `id`.
    ///
    /// # Errors
    /// A segment is damaged.
    pub fn document_by_external_id(&self, id: &str) -> Result<Option<DocumentId>, IndexError> {
        for (segment, store) in self.inner.stores.iter().enumerate() {
            if let Some(document) = store.find(id)? {
                let segment = segment as u32;
                let document = DocumentId { segment, document };
                if self.fm().is_live(document) {
                    return Ok(Some(document));
                }
            }
        }
        Ok(None)
    }

    /// The id by which gold labels name a paragraph of a live document: that of the passage it came from
    /// where the passages of a page were grouped, else the document's own.
    ///
    /// # Errors
    /// As [`Index::document`].
    pub fn external_id(&self, document: DocumentId, paragraph: u32) -> Result<&str, IndexError> {
        let store = self.store(document)?;
        Ok(match store.paragraph_id(document.document, paragraph)? {
            Some(id) => id,
            None => store.id(document.document)?,
        })
    }

    /// Where the text with an external id stands: a live document, and its paragraphs. For the id of a
    /// document all of them but the title, for that of a grouped passage the passage's own.
    ///
    /// # Errors
    /// A segment is damaged.
    pub fn find_external_id(
        &self,
        id: &str,
    ) -> Result<Option<(DocumentId, Range<u32>)>, IndexError> {
        if let Some(found) = self.find_passage(id)? {
            return Ok(Some(found));
        }
        match self.document_by_external_id(id)? {
            Some(document) => {
                let count = self.paragraphs(document)?.len() as u32;
                Ok(Some((document, 1..count.max(1))))
            }
            None => Ok(None),
        }
    }

    /// Where the grouped passage with this external id stands: a live document, and its paragraphs.
    ///
    /// # Errors
    /// A segment is damaged.
    pub fn find_passage(&self, id: &str) -> Result<Option<(DocumentId, Range<u32>)>, IndexError> {
        for (segment, store) in self.inner.stores.iter().enumerate() {
            if let Some((document, paragraphs)) = store.find_passage(id)? {
                let segment = segment as u32;
                let document = DocumentId { segment, document };
                if self.fm().is_live(document) {
                    return Ok(Some((document, paragraphs)));
                }
            }
        }
        Ok(None)
    }

    /// The live documents with exactly this title, or with this alternative title: pages to which a
    /// redirect of that title leads, over several redirects if need be.
    ///
    /// # Errors
    /// A segment is damaged.
    pub fn documents_titled(&self, title: &str) -> Result<Vec<DocumentId>, IndexError> {
        let mut titles = vec![title.to_owned()];
        let mut seen = 0;
        let mut found = Vec::new();
        while let Some(title) = titles.get(seen).cloned() {
            seen += 1;
            for (segment, store) in self.inner.stores.iter().enumerate() {
                let segment = segment as u32;
                let live = store.titled(&title)?.into_iter();
                found.extend(
                    live.map(|document| DocumentId { segment, document })
                        .filter(|&document| self.fm().is_live(document)),
                );
                for target in store.redirect_targets(&title)? {
                    // A chain of redirects may be a circle.
                    if titles.len() < MOST_REDIRECTS && titles.iter().all(|seen| seen != target) {
                        titles.push(target.to_owned());
                    }
                }
            }
        }
        Ok(found)
    }

    /// The alternative titles of a live document: the redirects that lead straight to its title.
    ///
    /// # Errors
    /// As [`Index::document`].
    pub fn alternative_titles(&self, document: DocumentId) -> Result<Vec<&str>, IndexError> {
        let title = self.store(document)?.title(document.document)?;
        let mut found = Vec::new();
        for store in &self.inner.stores {
            found.extend(store.alternative_titles(title)?);
        }
        Ok(found)
    }

    /// All live documents, in order.
    pub fn documents(&self) -> impl Iterator<Item = DocumentId> + '_ {
        self.inner
            .stores
            .iter()
            .enumerate()
            .flat_map(|(segment, store)| {
                (0..store.documents()).map(move |document| DocumentId {
                    segment: segment as u32,
                    document,
                })
            })
            .filter(|&document| self.fm().is_live(document))
    }

    /// Cites the tokens `span` of a document, counted from its first token: finds the paragraph, goes
    /// from token bytes to the canonical form and from there to the original bytes, moves the ends to
    /// grapheme boundaries (the end back, the start forward), and checks that the canonical form of
    /// the quoted slice is what the tokens say.
    ///
    /// # Errors
    /// The span does not lie inside one paragraph, lies in the title, holds no whole grapheme, or
    /// tokens and stored text differ.
    pub fn cite(
        &self,
        tokenizer: &Tokenizer,
        document: DocumentId,
        span: Range<u32>,
    ) -> Result<Citation, CiteError> {
        let stored = self.document(document)?;
        let id = || stored.id.to_owned();
        let paragraph = stored
            .paragraphs
            .iter()
            .find(|paragraph| {
                paragraph.tokens.start <= span.start && span.end <= paragraph.tokens.end
            })
            .filter(|_| span.start < span.end);
        let Some(paragraph) = paragraph else {
            let id = id();
            return Err(CiteError::NotInOneParagraph { id, span });
        };
        if paragraph.is_title() {
            return Err(CiteError::Title { id: id(), span });
        }
        let mismatch = || CiteError::Mismatch {
            id: id(),
            paragraph: paragraph.number,
        };

        // The whole paragraph's tokens must spell its canonical form.
        let tokens = self.fm().extract(document, paragraph.tokens.clone());
        let canonical = Canonical::new(stored.paragraph_text(paragraph));
        let mut rest = canonical.text().as_bytes();
        let mut bytes = 0..0;
        for (offset, &token) in (paragraph.tokens.start..).zip(&tokens) {
            let spelled = tokenizer.token_bytes(token).ok_or_else(mismatch)?;
            rest = rest.strip_prefix(spelled).ok_or_else(mismatch)?;
            if offset < span.start {
                bytes.start += spelled.len();
            }
            if offset < span.end {
                bytes.end += spelled.len();
            }
        }
        if !rest.is_empty() || tokens.len() != paragraph.tokens.len() {
            return Err(mismatch());
        }

        let Some(found) = canonical.span(bytes) else {
            return Err(CiteError::NoText { id: id(), span });
        };
        let start = paragraph.bytes.start + found.original.start;
        let end = paragraph.bytes.start + found.original.end;
        let quote = stored.text.get(start..end).ok_or_else(mismatch)?;
        // Found again, word for word: canonical form of the slice = the slice of the canonical form.
        let again = crate::canonical::canonical_text(quote);
        if again.strip_prefix(' ') != canonical.text().get(found.canonical) {
            return Err(mismatch());
        }
        let start_char = stored.text[..start].chars().count() as u64;
        let metadata = stored.metadata();
        Ok(Citation {
            metadata,
            decoded: self.inner.manifest.store == Stored::None,
            id: id(),
            title: stored.title.to_owned(),
            quote: quote.to_owned(),
            start_byte: start as u64,
            end_byte: end as u64,
            start_char,
            end_char: start_char + quote.chars().count() as u64,
            paragraph: paragraph.number,
            passage_id: self
                .store(document)?
                .paragraph_id(document.document, paragraph.number)
                .map_err(IndexError::from)?
                .map(str::to_owned),
            other_occurrences: 0,
            score: 0.0,
        })
    }

    /// Figures: counts, bits a token, sizes by component.
    pub fn stat(&self) -> Stat {
        let manifest = &self.inner.manifest;
        let tokens = manifest.counts.tokens.max(1);
        let bits = |bytes: u64| bytes as f64 * 8.0 / tokens as f64;
        let mut components: Vec<ComponentSize> = Vec::new();
        let mut add =
            |name: &str, bytes: u64| match components.iter_mut().find(|other| other.name == name) {
                Some(other) => other.bytes += bytes,
                None => components.push(ComponentSize {
                    name: name.to_owned(),
                    bytes,
                    bits_per_token: 0.0,
                }),
            };
        for segment in self.fm().segments() {
            for component in segment.stat() {
                add(&component.name, component.bytes);
            }
        }
        let mut all = manifest.tokenizer.file.bytes;
        let mut fm = 0;
        for file in manifest.segments.iter().flat_map(SegmentEntry::all_files) {
            all += file.bytes;
            match file.name.split(['.', '/']).next().unwrap_or_default() {
                name @ ("documents" | "text" | "names" | "lexical") => add(name, file.bytes),
                _ => fm += file.bytes,
            }
        }
        let vectors: u64 = vector_files(&self.inner.dir)
            .iter()
            .map(|(_, bytes)| bytes)
            .sum();
        if vectors > 0 {
            add(VECTORS_FOLDER, vectors);
            all += vectors;
        }
        for component in &mut components {
            component.bits_per_token = bits(component.bytes);
        }
        let mut dead_paragraphs = 0;
        for (entry, store) in manifest.segments.iter().zip(self.stores()) {
            let dead = entry.deleted.iter();
            dead_paragraphs += dead.map(|&d| store.paragraphs_of(d)).sum::<u64>();
        }
        Stat {
            documents: self.fm().documents(),
            deleted: manifest.counts.documents - self.fm().documents(),
            paragraphs: manifest.counts.paragraphs.saturating_sub(dead_paragraphs),
            store: manifest.store,
            tokens: self.fm().tokens(),
            text_bytes: manifest.counts.text_bytes,
            segments: manifest.segments.len() as u64,
            bits_per_token: bits(fm),
            bytes: all,
            components,
        }
    }
}
