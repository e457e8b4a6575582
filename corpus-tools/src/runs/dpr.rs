//! DPR's retrieval results: a JSON list of `{"question","answers","ctxs":[{"id","title","text","score","has_answer"}]}`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{RunError, write_whole};

/// What was retrieved for one question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DprResult {
    /// The question.
    pub question: String,
    /// The gold answers.
    pub answers: Vec<String>,
    /// The retrieved passages, the best first.
    pub ctxs: Vec<DprContext>,
}

/// A retrieved passage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DprContext {
    /// External id.
    #[serde(deserialize_with = "text_or_number")]
    pub id: String,
    /// Title.
    pub title: String,
    /// Text.
    pub text: String,
    /// Score, as a number; DPR itself writes it as a string, and both are read.
    #[serde(deserialize_with = "number_or_text")]
    pub score: f64,
    /// Whether the text contains a gold answer.
    #[serde(default)]
    pub has_answer: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Either {
    Number(serde_json::Number),
    Text(String),
}

fn text_or_number<'de, D: serde::Deserializer<'de>>(parser: D) -> Result<String, D::Error> {
    Ok(match Either::deserialize(parser)? {
        Either::Number(number) => number.to_string(),
        Either::Text(text) => text,
    })
}

fn number_or_text<'de, D: serde::Deserializer<'de>>(parser: D) -> Result<f64, D::Error> {
    let found = match Either::deserialize(parser)? {
        Either::Number(number) => number.as_f64(),
        Either::Text(text) => text.trim().parse().ok(),
    };
    found.ok_or_else(|| serde::de::Error::custom("expected a score"))
}

/// Writes results, indented as DPR writes them.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, results: &[DprResult]) -> Result<(), RunError> {
    let json =
        serde_json::to_vec_pretty(results).map_err(|error| RunError::new(path, "write", error))?;
    write_whole(path, &json)
}

/// Reads results.
///
/// # Errors
/// The file cannot be read, or is no list of such results; the place is given.
pub fn read(path: &Path) -> Result<Vec<DprResult>, RunError> {
    let bytes = std::fs::read(path).map_err(|error| RunError::new(path, "open", error))?;
    serde_json::from_slice(&bytes).map_err(|error| RunError::new(path, "read", error))
}
