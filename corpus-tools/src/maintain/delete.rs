//! Deleting documents: they are listed as deleted in the manifest, and from then on neither generated,
//! counted, nor found. Their bytes are gone after a merge.

use std::collections::BTreeSet;
use std::path::Path;

use fmindex::DeadRows;
use fmindex::file::FileError;
use serde::Serialize;

use crate::build::{BuildError, Folder};
use crate::index::Index;
use crate::manifest::{Manifest, SEGMENTS_FOLDER, describe_file};

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
    let mut replaced = Vec::new();
    for (number, entry) in segments.iter_mut().enumerate() {
        let new: Vec<u32> = gone
            .iter()
            .filter(|document| document.segment as usize == number)
            .map(|document| document.document)
            .collect();
        if new.is_empty() {
            continue;
        }
        let dir = folder.path().join(SEGMENTS_FOLDER).join(&entry.name);
        let segment = &index.fm().segments()[number];
        let before = match &entry.dead_rows {
            Some(file) => Some(DeadRows::open(&dir.join(&file.name), segment)?),
            None => None,
        };
        let rows = DeadRows::mark(segment, before.as_ref(), &new)
            .map_err(|unknown| FileError::damaged(&dir, 0, unknown.to_string()))?;
        entry.deleted.extend(&new);
        entry.deleted.sort_unstable();
        // A new name each time: a file that is mapped is never written to.
        let name = format!("fm.dead-{}", entry.deleted.len());
        rows.write(&dir.join(&name))?;
        if let Some(old) = entry.dead_rows.replace(describe_file(&dir, &name)?) {
            replaced.push(dir.join(old.name));
        }
    }
    Manifest::new(index.manifest().settings(), segments).write(folder.path())?;
    for file in replaced {
        // Readers keep what they have mapped; where the system does not let go of it, it stays unused.
        let _ = std::fs::remove_file(file);
    }
    Ok(report)
}
