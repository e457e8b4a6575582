//! From documents to segments: the store, BM25, and the FM-index, each from the same documents in order.
//!
//! A segment's documents come from parts (a build) or from other segments (a merge). Where a segment ends
//! depends on the documents and the limits alone, so the files are the same whoever made them, on however
//! many threads, and however often the work was interrupted.

use std::borrow::Cow;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use fmindex::file::FileError;
use fmindex::{DocumentId, Progress};
use rayon::prelude::*;

use super::journal::{Cursor, OpenSegment};
use super::part::Part;
use super::{BuildError, Times};
use crate::analysis::Analyser;
use crate::index::Index;
use crate::lexical::{AnalysedDocument, LexicalWriter, analyse_document};
use crate::manifest::{Counts, SEGMENTS_FOLDER, SegmentEntry, describe_folder, sync_folder};
use crate::store::{NewDocument, Store, StoreWriter, Stored};

/// Bytes of text analysed at a time.
const BATCH: usize = 1 << 20;
/// Tokens extracted from a segment at a time.
const PIECE: u32 = 1 << 20;

/// A run of documents that segments are made of.
pub(crate) enum Source {
    /// A part of a build.
    Part(Box<Part>),
    /// A segment of an index, by its number; its deleted documents are left out.
    Segment(Index, u32),
    /// A part that went into a segment already.
    Nothing,
}

impl Source {
    fn store(&self) -> Option<&Store> {
        match self {
            Self::Part(part) => Some(&part.store),
            Self::Segment(index, number) => index.stores().get(*number as usize),
            Self::Nothing => None,
        }
    }

    fn documents(&self) -> u32 {
        self.store().map_or(0, Store::documents)
    }

    fn is_live(&self, document: u32) -> bool {
        match self {
            Self::Part(_) => true,
            Self::Nothing => false,
            Self::Segment(index, segment) => {
                let segment = *segment;
                index.fm().is_live(DocumentId { segment, document })
            }
        }
    }

    fn length(&self, document: u32) -> u64 {
        let span = self.store().map(|store| store.token_span(document));
        span.unwrap_or_default().len() as u64
    }

    /// The text that is stored, or that the tokens spell.
    fn text(&self, document: u32) -> Result<Cow<'_, str>, BuildError> {
        match self {
            Self::Part(part) => Ok(part.store.text(document)?.unwrap_or_default().into()),
            Self::Nothing => Ok("".into()),
            Self::Segment(index, segment) => {
                let segment = *segment;
                match self.store().map(|store| store.text(document)).transpose()? {
                    Some(Some(text)) => Ok(text.into()),
                    _ => Ok(index.document(DocumentId { segment, document })?.text),
                }
            }
        }
    }

    /// Copies the redirects into a new store; those that lead to nothing that is live are left out.
    fn copy_redirects(&self, into: &mut StoreWriter) -> Result<(), BuildError> {
        for redirect in self.store().into_iter().flat_map(Store::redirects) {
            let redirect = redirect?;
            let leads = match self {
                Self::Segment(index, _) => !index.documents_titled(&redirect.title)?.is_empty(),
                _ => true,
            };
            if leads {
                into.redirect(redirect);
            }
        }
        Ok(())
    }

    /// Appends the tokens at these positions of the source.
    fn extend(&self, span: Range<u32>, into: &mut Vec<u32>) -> Result<(), BuildError> {
        match self {
            Self::Part(part) => part.extend(span, into),
            Self::Nothing => {}
            Self::Segment(index, number) => {
                let Some(segment) = index.fm().segments().get(*number as usize) else {
                    return Ok(());
                };
                let found = segment.extract(span.clone());
                if found.len() != span.len() {
                    let what = format!("tokens {} to {} cannot be walked", span.start, span.end);
                    return Err(FileError::damaged(index.path(), 0, what).into());
                }
                into.extend_from_slice(&found);
            }
        }
        Ok(())
    }
}

/// Documents of several sources, one after the other.
pub(crate) struct Documents<'a>(pub &'a [Source]);

impl Documents<'_> {
    /// The first live document at or after `from`; `None` at the end.
    pub fn live_from(&self, mut from: Cursor) -> Option<Cursor> {
        while let Some(source) = self.0.get(from.source) {
            while from.document < source.documents() {
                if source.is_live(from.document) {
                    return Some(from);
                }
                from.document += 1;
            }
            from = Cursor::at_source(from.source + 1);
        }
        None
    }

    /// The live documents from `from` on.
    fn iter(&self, from: Cursor) -> impl Iterator<Item = Cursor> + '_ {
        std::iter::successors(self.live_from(from), |at| {
            self.live_from(Cursor {
                document: at.document + 1,
                ..*at
            })
        })
    }

    /// Tokens of a document, separators included.
    pub fn length(&self, at: Cursor) -> u64 {
        self.0
            .get(at.source)
            .map_or(0, |source| source.length(at.document))
    }

    /// Tokens of all live documents from `from` on.
    pub fn tokens(&self, from: Cursor) -> u64 {
        self.iter(from).map(|at| self.length(at)).sum()
    }

    /// The segment that begins at `from`, if it can stay as it is: nothing in it is deleted, and it is the
    /// last, or no further document fits in beside it.
    pub fn whole_segment(&self, from: Cursor, most_tokens: u64) -> Option<SegmentEntry> {
        let Source::Segment(index, number) = self.0.get(from.source)? else {
            return None;
        };
        let entry = index.manifest().segments.get(*number as usize)?;
        if from.document > 0 || !entry.deleted.is_empty() || entry.counts.tokens > most_tokens {
            return None;
        }
        let fits = self
            .live_from(Cursor::at_source(from.source + 1))
            .is_some_and(|next| entry.counts.tokens + self.length(next) <= most_tokens);
        (!fits).then(|| entry.clone())
    }

    /// All tokens and the starts of all documents between two places.
    fn gather(
        &self,
        span: Range<Cursor>,
        counts: Counts,
        progress: &dyn Progress,
    ) -> Result<(Vec<u32>, Vec<u32>), BuildError> {
        let mut tokens = Vec::with_capacity(counts.tokens as usize);
        let mut starts = Vec::with_capacity(counts.documents as usize);
        // Runs of live documents that follow each other are extracted together.
        let mut run: Option<(usize, Range<u32>)> = None;
        let flush = |run: Option<(usize, Range<u32>)>, tokens: &mut Vec<u32>| match run {
            Some((source, span)) => {
                self.0[source].extend(span, tokens)?;
                progress.advance(tokens.len() as u64);
                stop(progress)
            }
            None => Ok(()),
        };
        let mut total = 0u64;
        for at in self.iter(span.start).take_while(|at| *at < span.end) {
            starts.push(u32::try_from(total).unwrap_or(u32::MAX));
            let Some(store) = self.0[at.source].store() else {
                continue;
            };
            let document = store.token_span(at.document);
            total += document.len() as u64;
            match &mut run {
                Some((source, span))
                    if *source == at.source
                        && span.end == document.start
                        && span.end - span.start < PIECE =>
                {
                    span.end = document.end;
                }
                _ => flush(run.replace((at.source, document)), &mut tokens)?,
            }
        }
        flush(run, &mut tokens)?;
        Ok((tokens, starts))
    }
}

fn stop(progress: &dyn Progress) -> Result<(), BuildError> {
    match progress.interrupted() {
        true => Err(BuildError::Interrupted),
        false => Ok(()),
    }
}

/// What segments are made with.
pub(crate) struct Assembly<'a> {
    pub index: &'a Path,
    pub fm: &'a fmindex::BuildOptions,
    /// Most tokens of a segment.
    pub most_tokens: u64,
    pub analyser: Analyser,
    pub stored: Stored,
    pub progress: &'a dyn Progress,
}

impl Assembly<'_> {
    /// Writes store and BM25 index of the segment `name`, of the live documents after `after`, where the
    /// segment before ended, as many as fit.
    pub fn write_texts(
        &self,
        documents: &Documents<'_>,
        after: Cursor,
        name: &str,
        times: &mut Times,
    ) -> Result<OpenSegment, BuildError> {
        let begun = Instant::now();
        let from = documents.live_from(after).unwrap_or(after);
        let dir = self.index.join(SEGMENTS_FOLDER).join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(|e| FileError::io(&dir, "clear the folder", e))?;
        }
        fs::create_dir_all(&dir).map_err(|e| FileError::io(&dir, "create the folder", e))?;
        let total = documents.tokens(from).min(self.most_tokens);
        self.progress.stage("writing documents and BM25", total);
        let mut store = StoreWriter::create(&dir, self.stored)?;
        let mut lexical = LexicalWriter::create(&dir, total)?;
        let mut end = from;
        // The first source whose redirects are in no segment yet.
        let mut uncopied = after.source + usize::from(after.document > 0);
        let mut ready = Vec::new();
        let mut more = true;
        let mut planned = 0;
        while more || !ready.is_empty() {
            stop(self.progress)?;
            let limit = self.fm.memory.unwrap_or(u64::MAX);
            let full = lexical.memory() + store.memory() > limit;
            let mut batch = Vec::new();
            if more && !full {
                let mut bytes = 0;
                for at in documents.iter(end) {
                    let length = documents.length(at);
                    if planned > 0 && planned + length > self.most_tokens {
                        more = false;
                        break;
                    }
                    if bytes >= BATCH {
                        break;
                    }
                    planned += length;
                    let text = documents.0[at.source].text(at.document)?;
                    bytes += text.len() + 64;
                    batch.push((at, text));
                    end = Cursor {
                        document: at.document + 1,
                        ..at
                    };
                }
            }
            more &= !batch.is_empty();
            let (analysed, written) = rayon::join(
                || self.analyse(documents, &batch),
                || -> Result<(), BuildError> {
                    ready
                        .into_iter()
                        .try_for_each(|terms| Ok(lexical.push(terms)?))
                },
            );
            written?;
            for (at, text) in &batch {
                // Redirects go where the first document after the beginning of their source goes.
                while uncopied <= at.source {
                    documents.0[uncopied].copy_redirects(&mut store)?;
                    uncopied += 1;
                }
                write_document(
                    &mut store,
                    documents.0[at.source].store(),
                    at.document,
                    text,
                )?;
            }
            ready = analysed?;
            self.progress.advance(store.tokens());
        }
        let counts = Counts {
            documents: store.documents().into(),
            paragraphs: store.paragraph_count(),
            tokens: store.tokens(),
            text_bytes: store.text_bytes(),
        };
        lexical.finish()?;
        store.finish()?;
        sync_folder(&dir);
        times.texts += begun.elapsed();
        Ok(OpenSegment {
            name: name.to_owned(),
            counts,
            end,
        })
    }

    fn analyse(
        &self,
        documents: &Documents<'_>,
        batch: &[(Cursor, Cow<'_, str>)],
    ) -> Result<Vec<AnalysedDocument>, BuildError> {
        batch
            .par_iter()
            .map(|(at, text)| {
                let store = documents.0[at.source].store();
                let title = store.map_or(Ok(""), |store| store.title(at.document))?;
                Ok(analyse_document(&self.analyser, title, text))
            })
            .collect()
    }

    /// Builds the FM-index of a segment whose documents are written, and describes the whole segment.
    pub fn write_fm_index(
        &self,
        documents: &Documents<'_>,
        from: Cursor,
        open: &OpenSegment,
        times: &mut Times,
    ) -> Result<SegmentEntry, BuildError> {
        let dir = self.index.join(SEGMENTS_FOLDER).join(&open.name);
        let begun = Instant::now();
        self.progress.stage("gathering tokens", open.counts.tokens);
        let (tokens, starts) = documents.gather(from..open.end, open.counts, self.progress)?;
        fmindex::build_segment(&dir, tokens, &starts, self.fm, self.progress)?;
        times.fm += begun.elapsed();
        stop(self.progress)?;
        self.progress.stage("checksums", 0);
        let begun = Instant::now();
        let files = describe_folder(&dir)?;
        sync_folder(&dir);
        times.seal += begun.elapsed();
        Ok(SegmentEntry {
            name: open.name.clone(),
            counts: open.counts,
            deleted: Vec::new(),
            dead_rows: None,
            files,
        })
    }
}

/// Copies a document of `from` into a new store.
fn write_document(
    store: &mut StoreWriter,
    from: Option<&Store>,
    document: u32,
    text: &str,
) -> Result<(), BuildError> {
    let Some(from) = from else { return Ok(()) };
    let paragraphs = from.paragraphs(document)?;
    let spans: Vec<Range<u32>> = paragraphs
        .iter()
        .map(|paragraph| paragraph.bytes.start as u32..paragraph.bytes.end as u32)
        .collect();
    let token_counts: Vec<u32> = paragraphs
        .iter()
        .map(|paragraph| paragraph.tokens.len() as u32)
        .collect();
    store.push(&NewDocument {
        id: from.id(document)?,
        title: from.title(document)?,
        text,
        metadata: from.metadata(document)?,
        paragraphs: &spans,
        token_counts: &token_counts,
        passages: &from.passages(document)?,
    })?;
    Ok(())
}
