//! Giving the documents of an index out again, as JSON Lines.

use std::io::{self, Write};

use fmindex::Progress;
use serde_json::{Map, Value};

use crate::index::{Index, IndexError};

/// Why documents could not be given out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The index cannot be read, or the work was interrupted.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// What is given out cannot be written.
    #[error("cannot write the documents: {0}")]
    Write(#[from] io::Error),
}

/// Writes the live documents of `index`, in order, one JSON object a line: `id`, `title` and `text` as the
/// corpus gave them (where no texts are kept, what the tokens spell), then the other fields. What
/// [`build`](crate::build()) makes of these lines has the same documents. Gives their number.
///
/// # Errors
/// A document cannot be read, or a line cannot be written.
pub fn export(
    index: &Index,
    out: &mut impl Write,
    progress: &dyn Progress,
) -> Result<u64, ExportError> {
    progress.stage("writing documents", index.fm().documents());
    let mut written = 0;
    for number in index.documents() {
        if progress.interrupted() {
            return Err(IndexError::Interrupted.into());
        }
        let document = index.document(number)?;
        let mut line = Map::new();
        line.insert("id".into(), document.id.into());
        line.insert("title".into(), document.title.into());
        line.insert("text".into(), Value::from(&*document.text));
        for (name, value) in document.metadata() {
            line.entry(name).or_insert(value);
        }
        serde_json::to_writer(&mut *out, &line).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
        written += 1;
        if written % 256 == 0 {
            progress.advance(written);
        }
    }
    out.flush()?;
    Ok(written)
}
