//! Disk space: an estimate before the work, and a better one after every part.

use std::path::Path;

use super::BuildError;

/// What an index takes for a byte of text: the text, half of it for the FM-index, a quarter for BM25, and
/// ids, titles and places. Measured: 1.8 on English Wikipedia.
const INDEX_PER_TEXT: f64 = 1.9;
/// What parts take for a byte of text: the text and its tokens, 4 bytes each.
const PARTS_PER_TEXT: f64 = 2.0;
/// Text in a byte of input, at least: a guess until the first part is written. In the XML of a Wikipedia it is a
/// fifth.
const LEAST_TEXT: f64 = 0.2;
/// Bytes that are left free in any case.
const MARGIN: u64 = 64 << 20;

/// Watches the space on the index's disk.
#[derive(Debug, Default)]
pub(super) struct Space {
    written: u64,
}

impl Space {
    /// Refuses a work that cannot end well, before it begins: `inputs` bytes lie on disk. What share of
    /// them is text is not known yet, so this is a lower bound: markup is no text, but what is compressed
    /// holds more than it weighs. Parts of `done` bytes of text are there already.
    pub fn check_before(dir: &Path, inputs: Option<u64>, done: u64) -> Result<Self, BuildError> {
        if let Some(bytes) = inputs {
            let text = bytes as f64 * LEAST_TEXT;
            let there = done as f64 * PARTS_PER_TEXT;
            let needed = text * (INDEX_PER_TEXT + PARTS_PER_TEXT) - there;
            refuse(dir, needed.max(0.0))?;
        }
        Ok(Self::default())
    }

    /// Counts bytes of a finished part.
    pub fn wrote(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Refuses to go on when what is left to do will not fit: `read` of `total` bytes of the inputs gave
    /// `text` bytes of text.
    pub fn check(&self, dir: &Path, read: u64, total: u64, text: u64) -> Result<(), BuildError> {
        // The first part says little about the rest.
        if read < 1 << 20 || self.written == 0 {
            return Ok(());
        }
        let whole = text as f64 * (total as f64 / read as f64).max(1.0);
        let left = whole - text as f64;
        refuse(dir, left * PARTS_PER_TEXT + whole * INDEX_PER_TEXT)
    }
}

fn refuse(dir: &Path, needed: f64) -> Result<(), BuildError> {
    // Where the system does not say how much is free, the writes will.
    let Ok(free) = fs4::available_space(dir) else {
        return Ok(());
    };
    let needed = needed as u64;
    if needed.saturating_add(MARGIN) > free {
        return Err(BuildError::Space {
            path: dir.to_owned(),
            free,
            needed: needed + MARGIN,
        });
    }
    Ok(())
}
