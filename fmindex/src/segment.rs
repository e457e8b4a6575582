//! One segment: an immutable folder of `fm.*` files, opened by reading headers only.

use std::ops::Range;
use std::path::Path;

use crate::Symbol;
use crate::bwt::Bwt;
use crate::document::{DocumentIndex, DocumentIndexes};
use crate::file::{File, FileError};
use crate::phrases::Phrases;

/// A part of a segment on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// File and section, as `fm.bwt:blocks`.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Size in bits, divided by the segment's tokens; 0 for an empty segment.
    pub bits_per_token: f64,
}

/// An open segment; cheap to clone, `Send` and `Sync`.
#[derive(Clone, Debug)]
pub struct Segment {
    pub(crate) bwt: Bwt,
    pub(crate) phrases: Phrases,
    stored: Option<DocumentIndexes>,
}

impl Segment {
    /// Opens the segment in `dir`. Reads headers and checks sizes, whatever the size of the segment.
    ///
    /// # Errors
    /// A file is missing, truncated, of another kind, version or byte order, or contradicts itself.
    pub fn open(dir: &Path) -> Result<Self, FileError> {
        let bwt = Bwt::open(dir)?;
        let phrases = Phrases::open(dir, bwt.alphabet)?;
        let stored = DocumentIndexes::open(dir)?;
        if let Some(stored) = &stored
            && stored.documents() != bwt.documents.len() as u32 - 1
        {
            return Err(FileError::damaged(
                stored.file().path(),
                0,
                "it speaks of another number of documents than the segment",
            ));
        }
        Ok(Self {
            bwt,
            phrases,
            stored,
        })
    }

    fn files(&self) -> impl Iterator<Item = &File> {
        [&self.bwt.file, self.phrases.file()]
            .into_iter()
            .chain(self.stored.iter().map(DocumentIndexes::file))
    }

    /// Reads every byte and compares all checksums.
    ///
    /// # Errors
    /// The first damaged part.
    pub fn verify(&self) -> Result<(), FileError> {
        self.files().try_for_each(File::verify)
    }

    /// Brings all files into memory, so that no query waits for a disk.
    pub fn warm(&self) {
        self.files().for_each(File::warm);
    }

    /// Every section of every file with its size.
    pub fn stat(&self) -> Vec<Component> {
        let tokens = self.tokens();
        let parts = self.files().flat_map(|file| {
            let name = file
                .path()
                .file_name()
                .unwrap_or_default()
                .to_string_lossy();
            let name = name.into_owned();
            file.sections()
                .map(move |(section, bytes)| (format!("{name}:{section}"), bytes))
        });
        parts
            .map(|(name, bytes)| Component {
                name,
                bytes,
                bits_per_token: if tokens == 0 {
                    0.0
                } else {
                    bytes as f64 * 8.0 / tokens as f64
                },
            })
            .collect()
    }

    /// The alphabet's size.
    pub fn alphabet(&self) -> u32 {
        self.bwt.alphabet
    }

    /// The symbol that closes paragraphs.
    pub fn separator(&self) -> Symbol {
        self.bwt.separator
    }

    /// Number of tokens, separators included.
    pub fn tokens(&self) -> u64 {
        u64::from(self.bwt.tokens())
    }

    /// Number of documents, empty and deleted ones included.
    pub fn documents(&self) -> u32 {
        self.bwt.documents.len() as u32 - 1
    }

    /// Token positions of a document in the segment; empty for a document that does not exist.
    pub fn document_span(&self, document: u32) -> Range<u32> {
        let at = |document: usize| {
            let start = self.bwt.documents.get(document);
            start.unwrap_or(0).min(self.bwt.tokens())
        };
        if document >= self.documents() {
            return 0..0;
        }
        let (start, end) = (at(document as usize), at(document as usize + 1));
        start..end.max(start)
    }

    /// The document that holds the token at a position of the segment.
    pub fn document_at(&self, position: u32) -> Option<u32> {
        let starts = self.bwt.documents.raw();
        let after = starts.partition_point(|&start| u32::from_le(start) <= position) as u32;
        let document = after.checked_sub(1)?;
        (document < self.documents()).then_some(document)
    }

    /// The tokens at positions of the segment; what lies beyond its end is left out. A damaged segment
    /// may give fewer tokens.
    pub fn extract(&self, span: Range<u32>) -> Vec<Symbol> {
        let span = span.start..span.end.min(self.bwt.tokens());
        if span.is_empty() {
            return Vec::new();
        }
        self.bwt.extract(span)
    }

    /// As [`Segment::extract`], but by one chain of steps from one inverse sample, which is several times
    /// slower: it shows what a step costs.
    pub fn extract_in_one_chain(&self, span: Range<u32>) -> Vec<Symbol> {
        let span = span.start..span.end.min(self.bwt.tokens());
        if span.is_empty() {
            return Vec::new();
        }
        self.bwt.extract_in_one_chain(span)
    }

    /// The index of one document: the stored one if the segment has them, else built from the
    /// extracted tokens.
    ///
    /// # Errors
    /// The document does not exist, or the stored index or the segment is damaged.
    pub fn document_index(&self, document: u32) -> Result<DocumentIndex, FileError> {
        let path = self.bwt.file.path();
        if document >= self.documents() {
            let what = format!("document {document} of {} was asked for", self.documents());
            return Err(FileError::damaged(path, 0, what));
        }
        if let Some(stored) = &self.stored {
            return stored.get(document, self.separator());
        }
        let span = self.document_span(document);
        let tokens = self.extract(span.clone());
        if tokens.len() != span.len() {
            let what = format!("document {document} cannot be walked to its end");
            return Err(FileError::damaged(path, 0, what));
        }
        Ok(DocumentIndex::build(&tokens, self.separator()))
    }

    /// The file of the rows, for messages.
    pub(crate) fn path(&self) -> &Path {
        self.bwt.file.path()
    }

    /// Whether per-document indexes are stored in the segment.
    pub fn has_document_indexes(&self) -> bool {
        self.stored.is_some()
    }
}
