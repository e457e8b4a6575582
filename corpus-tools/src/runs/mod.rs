//! Files that the tools of the field exchange: TREC runs, DPR retrieval results, KILT predictions.
//!
//! Each is written and read back. Reading reports bad records with their place and leaves them out.

pub mod dpr;
pub mod kilt;
pub mod trec;

use std::path::{Path, PathBuf};

/// Why a file of results cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot {action}: {source}")]
pub struct RunError {
    /// The file.
    pub path: PathBuf,
    /// What was tried.
    pub action: &'static str,
    /// The system's reason.
    pub source: std::io::Error,
}

impl RunError {
    fn new(path: &Path, action: &'static str, source: impl Into<std::io::Error>) -> Self {
        Self {
            path: path.to_owned(),
            action,
            source: source.into(),
        }
    }
}

/// Writes a file whole or not at all: under another name first, then by rename.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    std::fs::write(&partial, bytes)
        .and_then(|()| std::fs::rename(&partial, path))
        .map_err(|source| RunError::new(path, "write", source))
}
