//! Deleting documents: they are listed as deleted in the manifest, and from then on neither generated,
//! counted, nor found. Their bytes are gone after a merge.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use crate::build::{BuildError, Folder};
use crate::index::Index;
use crate::manifest::Manifest;

/// What a deletion did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeleteReport {
    /// Documents deleted now.
    pub deleted: u64,
    /// Live documents that are left.
    pub documents: u64,
    /// Ids of no live document, in the order they were given.
    pub unknown: Vec<String>,
}

/// Deletes the live documents with these external ids from the index in `dir`. Ids that no live document
/// has are reported; the others are deleted all the same.
///
/// # Errors
/// There is no index, another writer is at work, or a file cannot be read or written.
pub fn delete(
    dir: &Path,
    ids: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<DeleteReport, BuildError> {
    Index::open(dir)?;
    let folder = Folder::claim_index(dir)?;
    let index = Index::open(dir)?;
    let mut report = DeleteReport::default();
    let mut gone = BTreeSet::new();
    for id in ids {
        let id = id.as_ref();
        match index.document_by_external_id(id)? {
            Some(document) => {
                gone.insert(document);
            }
            None => report.unknown.push(id.to_owned()),
        }
    }
    report.deleted = gone.len() as u64;
    report.documents = index.fm().documents() - report.deleted;
    if gone.is_empty() {
        return Ok(report);
    }
    let mut segments = index.manifest().segments.clone();
    for document in gone {
        segments[document.segment as usize]
            .deleted
            .push(document.document);
    }
    for segment in &mut segments {
        segment.deleted.sort_unstable();
    }
    Manifest::new(index.manifest().settings(), segments).write(folder.path())?;
    Ok(report)
}
