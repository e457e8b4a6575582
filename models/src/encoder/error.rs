//! What can go wrong while an encoder is opened or run.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the encoders; each names the file, the place, and what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncoderError {
    /// A file of the model could not be read.
    #[error("cannot read {}: {source}; an encoder is a folder with config.json, tokenizer.json and model.safetensors", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of the model is not what it should be.
    #[error("{}: {place}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The field or tensor.
        place: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// A text could not be turned into tokens.
    #[error("the tokenizer failed on text {text}: {problem}")]
    Tokenize {
        /// Which of the texts, counted from 0.
        text: usize,
        /// What the tokenizer said.
        problem: String,
    },
}

impl EncoderError {
    pub(super) fn file(
        path: &Path,
        place: impl Into<String>,
        problem: impl Into<String>,
    ) -> EncoderError {
        EncoderError::File {
            path: path.to_path_buf(),
            place: place.into(),
            problem: problem.into(),
        }
    }
}
