//! One segment on its way: tokens in memory, texts and postings beside, sealed at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fmindex::Progress;
use fmindex::file::FileError;

use super::prepare::Prepared;
use super::{BuildError, Times};
use crate::lexical::LexicalWriter;
use crate::manifest::{Counts, SEGMENTS_FOLDER, SegmentEntry, describe_folder, sync_folder};
use crate::store::{NewDocument, StoreWriter};

pub(super) struct SegmentBuilder {
    name: String,
    dir: PathBuf,
    tokens: Vec<u32>,
    document_starts: Vec<u32>,
    store: StoreWriter,
    lexical: LexicalWriter,
}

impl SegmentBuilder {
    /// Starts segment `number` of the index folder `index`.
    pub fn create(index: &Path, number: u32) -> Result<Self, FileError> {
        let name = format!("{number:06}");
        let dir = index.join(SEGMENTS_FOLDER).join(&name);
        fs::create_dir_all(&dir).map_err(|e| FileError::io(&dir, "create the folder", e))?;
        Ok(Self {
            store: StoreWriter::create(&dir)?,
            lexical: LexicalWriter::create(&dir)?,
            name,
            dir,
            tokens: Vec::new(),
            document_starts: Vec::new(),
        })
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u64 {
        self.tokens.len() as u64
    }

    /// Bytes of memory taken so far.
    pub fn memory(&self) -> u64 {
        let tokens = self.tokens.capacity() * size_of::<u32>();
        (tokens + self.lexical.memory()) as u64 + self.store.memory()
    }

    /// Appends a document; the caller keeps the segment within its limits.
    pub fn push(&mut self, document: Prepared) -> Result<(), FileError> {
        for redirect in document.record.redirects {
            self.store.redirect(redirect);
        }
        self.document_starts.push(self.tokens.len() as u32);
        self.tokens.extend_from_slice(&document.tokens);
        self.store.push(&NewDocument {
            id: &document.record.id,
            title: &document.record.title,
            text: &document.record.text,
            metadata: &document.metadata,
            paragraphs: &document.paragraphs,
            token_counts: &document.token_counts,
            passages: &document.passages,
        })?;
        self.lexical.push(document.analysed)
    }

    /// Writes all files of the segment and describes them for the manifest.
    pub fn finish(
        self,
        fm: &fmindex::BuildOptions,
        progress: &dyn Progress,
        times: &mut Times,
    ) -> Result<SegmentEntry, BuildError> {
        let counts = Counts {
            documents: self.store.documents().into(),
            paragraphs: self.store.paragraph_count(),
            tokens: self.tokens.len() as u64,
            text_bytes: self.store.text_bytes(),
        };
        if progress.interrupted() {
            return Err(BuildError::Interrupted);
        }
        progress.stage("writing documents and BM25", 0);
        let begun = Instant::now();
        self.lexical.finish()?;
        times.lexical += begun.elapsed();
        let begun = Instant::now();
        self.store.finish()?;
        times.write += begun.elapsed();

        let begun = Instant::now();
        fmindex::build_segment(&self.dir, self.tokens, &self.document_starts, fm, progress)?;
        times.fm += begun.elapsed();

        if progress.interrupted() {
            return Err(BuildError::Interrupted);
        }
        progress.stage("checksums", 0);
        let begun = Instant::now();
        let files = describe_folder(&self.dir)?;
        sync_folder(&self.dir);
        times.seal += begun.elapsed();
        Ok(SegmentEntry {
            name: self.name,
            counts,
            deleted: Vec::new(),
            files,
        })
    }
}
