//! Verifying an index: every byte of every file, and that its parts speak of the same texts.

use std::path::Path;
use std::time::Instant;

use fmindex::file::File;
use fmindex::{DocumentId, Progress};
use models::tokenizer::Tokenizer;
use serde::Serialize;

use crate::canonical::canonical_text;
use crate::index::{Index, IndexError};
use crate::manifest::{SEGMENTS_FOLDER, VECTORS_KIND, vector_files};

/// So many documents, evenly spread, are compared token by token with their texts.
const SAMPLED: u64 = 500;
/// Tokens of the phrase that is looked up in each sampled paragraph.
const PHRASE: u32 = 12;

/// What a verification looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifyReport {
    /// Files whose bytes were read and compared with their checksums.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Live documents of the index.
    pub documents: u64,
    /// Documents whose tokens were compared with their texts and looked up in the FM-index.
    pub sampled: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Reads and checks a whole index: opening checks, every checksum, those of kept sentence vectors too, every offset of the document
/// store, counts, the tokenizer, and for a sample of documents that their tokens spell their texts
/// and are found by the FM-index in their place.
///
/// # Errors
/// The first thing that is wrong, by its file; or [`IndexError::Interrupted`].
pub fn verify(dir: &Path, progress: &dyn Progress) -> Result<VerifyReport, IndexError> {
    let begun = Instant::now();
    let index = Index::open(dir)?;
    let manifest = index.manifest();
    let segments = dir.join(SEGMENTS_FOLDER);
    let mut files = vec![(dir.to_owned(), &manifest.tokenizer.file)];
    for entry in &manifest.segments {
        let folder = segments.join(&entry.name);
        files.extend(entry.all_files().map(|file| (folder.clone(), file)));
    }
    let mut vectors = vector_files(dir);
    // Those of unfinished work are checked by whoever goes on with it.
    vectors.retain(|(path, _)| {
        let folder = path.parent().and_then(Path::extension);
        path.extension().is_some_and(|end| end == "bin") && folder.is_none()
    });
    let vector_bytes: u64 = vectors.iter().map(|(_, bytes)| bytes).sum();
    let total = files.iter().map(|(_, file)| file.bytes).sum::<u64>() + vector_bytes;

    progress.stage("reading files", total);
    let mut bytes = 0;
    for (folder, file) in &files {
        stop(progress)?;
        file.verify(folder)?;
        bytes += file.bytes;
        progress.advance(bytes);
    }
    for (path, size) in &vectors {
        stop(progress)?;
        File::open(path, VECTORS_KIND)
            .and_then(|file| file.verify())
            .map_err(IndexError::Vectors)?;
        bytes += size;
        progress.advance(bytes);
    }
    progress.stage("checking documents", index.stores().len() as u64);
    for (at, (store, segment)) in index.stores().iter().zip(index.fm().segments()).enumerate() {
        stop(progress)?;
        store.verify()?;
        segment.verify()?;
        progress.advance(at as u64 + 1);
    }
    if index.lexical().documents() != index.fm().documents() {
        return Err(IndexError::Disagree {
            path: dir.to_owned(),
            what: format!(
                "BM25 knows {} live documents, the FM-index {}",
                index.lexical().documents(),
                index.fm().documents()
            ),
        });
    }

    let tokenizer = index.tokenizer()?;
    let documents = index.fm().documents();
    let step = documents.div_ceil(SAMPLED).max(1) as usize;
    progress.stage("comparing texts", documents.min(SAMPLED));
    let mut sampled = 0;
    for document in index.documents().step_by(step) {
        stop(progress)?;
        check_document(&index, &tokenizer, document)?;
        sampled += 1;
        progress.advance(sampled);
    }
    Ok(VerifyReport {
        files: (files.len() + vectors.len()) as u64,
        bytes,
        documents,
        sampled,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

fn stop(progress: &dyn Progress) -> Result<(), IndexError> {
    match progress.interrupted() {
        true => Err(IndexError::Interrupted),
        false => Ok(()),
    }
}

/// Every paragraph's tokens spell its canonical form, and its first tokens are found where it stands.
fn check_document(
    index: &Index,
    tokenizer: &Tokenizer,
    number: DocumentId,
) -> Result<(), IndexError> {
    let document = index.document(number)?;
    let wrong = |what: &str| IndexError::Disagree {
        path: index.path().to_owned(),
        what: format!("document {:?}: {what}", document.id),
    };
    let length = document
        .paragraphs
        .last()
        .map_or(0, |last| last.tokens.end + 1);
    if index.fm().document_length(number) != length {
        return Err(wrong("store and FM-index differ in its length"));
    }
    for paragraph in &document.paragraphs {
        let tokens = index.fm().extract(number, paragraph.tokens.clone());
        let mut spelled = Vec::new();
        for &token in &tokens {
            spelled.extend_from_slice(tokenizer.token_bytes(token).unwrap_or_default());
        }
        if spelled != canonical_text(document.paragraph_text(paragraph)).as_bytes() {
            return Err(wrong(
                "the tokens in the FM-index are not those of its text",
            ));
        }
        let phrase = &tokens[..tokens.len().min(PHRASE as usize)];
        if phrase.is_empty() {
            continue;
        }
        // A phrase that stands in very many places is not walked to its end.
        let ranges = index.fm().range(phrase);
        let found = index.fm().count(&ranges);
        let here = |place: fmindex::Occurrence| {
            place.document == number && place.start == paragraph.tokens.start
        };
        if found == 0 || (found < 10_000 && !index.fm().locate(&ranges).any(here)) {
            return Err(wrong("a phrase of it is not found in its place"));
        }
    }
    Ok(())
}
