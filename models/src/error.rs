//! What can go wrong with a model, and where.

use std::path::{Path, PathBuf};

use crate::tokenizer::TokenizerError;

/// An error from opening or running a language model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file is no model of a known format, or a damaged one.
    #[error("{}: {place}: {problem}; {advice}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The field, tensor or section in which the fault was seen.
        place: String,
        /// What was found and what was expected.
        problem: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// The model's tokenizer could not be built.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// More tokens than the model's context holds.
    #[error(
        "{asked} tokens do not fit into this model's context of {limit}; shorten the prompt or the evidence"
    )]
    ContextFull {
        /// Tokens in the cache and in the chunk together.
        asked: usize,
        /// The model's context length in tokens.
        limit: usize,
    },
    /// A token id outside of the model's vocabulary.
    #[error(
        "token id {token} is not in this model's vocabulary of {vocabulary}; index and model may belong to different tokenizers"
    )]
    UnknownToken {
        /// The id that was given.
        token: u32,
        /// Number of ids the model has an embedding for.
        vocabulary: usize,
    },
    /// A position was asked for that the chunk does not have.
    #[error("logits of position {position} were asked for in a chunk of {length} tokens")]
    UnknownPosition {
        /// The position asked for.
        position: usize,
        /// Length of the chunk.
        length: usize,
    },
    /// A cache made by one model was given to another.
    #[error(
        "this cache was made by a model of another shape; make one with this model's `new_cache`"
    )]
    ForeignCache,
    /// The device is not there, or this build cannot use it.
    #[error("device {device}: {problem}")]
    Device {
        /// The device's name as given.
        device: String,
        /// What is missing and what to do.
        problem: String,
    },
    /// The chat template of a model could not be compiled or rendered.
    #[error("chat template: {0}")]
    Template(String),
    /// A tensor operation failed on the device.
    #[error("tensor operation: {0}")]
    Tensor(#[from] candle_core::Error),
}

/// Shorthand for results of this crate's language-model modules.
pub type Result<T, E = ModelError> = std::result::Result<T, E>;

pub(crate) const FETCH_AGAIN: &str = "fetch the model again, or choose another file";

pub(crate) fn file_error(
    path: &Path,
    place: impl Into<String>,
    problem: impl Into<String>,
    advice: &'static str,
) -> ModelError {
    ModelError::File {
        path: path.to_path_buf(),
        place: place.into(),
        problem: problem.into(),
        advice,
    }
}

/// The refusal of a tensor for which the forward pass has no use.
pub(crate) fn unknown_tensor(path: &Path, name: &str) -> ModelError {
    file_error(
        path,
        format!("tensor {name}"),
        "this model's family and metadata have no place for it, and without it every result would be wrong",
        "choose a plain model of the Llama, Qwen2, Qwen3 or Gemma 3 family",
    )
}
