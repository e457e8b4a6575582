//! KILT predictions: JSON Lines `{"id","input","output":[{"answer","provenance":[{"wikipedia_id","title","text"}]}]}`.

use std::io::BufRead;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{RunError, write_whole};
use crate::reader::BadRecord;

/// The prediction for one question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KiltPrediction {
    /// The question's id.
    pub id: String,
    /// The question.
    pub input: String,
    /// The answers; KILT's evaluation reads the first.
    pub output: Vec<KiltOutput>,
}

/// An answer with its provenance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KiltOutput {
    /// The answer.
    #[serde(default)]
    pub answer: String,
    /// Where it comes from, the best first.
    #[serde(default)]
    pub provenance: Vec<KiltProvenance>,
}

/// A place in a page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KiltProvenance {
    /// External id of the page.
    pub wikipedia_id: String,
    /// Title of the page.
    #[serde(default)]
    pub title: String,
    /// The quote.
    #[serde(default)]
    pub text: String,
}

/// Writes predictions, one a line.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, predictions: &[KiltPrediction]) -> Result<(), RunError> {
    let mut bytes = Vec::new();
    for prediction in predictions {
        serde_json::to_writer(&mut bytes, prediction)
            .map_err(|error| RunError::new(path, "write", error))?;
        bytes.push(b'\n');
    }
    write_whole(path, &bytes)
}

/// Reads predictions, and what was left out.
///
/// # Errors
/// The file cannot be opened or read.
pub fn read(path: &Path) -> Result<(Vec<KiltPrediction>, Vec<BadRecord>), RunError> {
    let file = std::fs::File::open(path).map_err(|error| RunError::new(path, "open", error))?;
    let (mut predictions, mut bad) = (Vec::new(), Vec::new());
    for (at, line) in std::io::BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|error| RunError::new(path, "read", error))?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(prediction) => predictions.push(prediction),
            Err(error) => bad.push(BadRecord {
                file: path.display().to_string(),
                line: at as u64 + 1,
                reason: format!("no KILT prediction: {error}"),
            }),
        }
    }
    Ok((predictions, bad))
}
