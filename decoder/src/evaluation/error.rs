//! Why an evaluation cannot go on.

use std::path::{Path, PathBuf};

use corpus_tools::IndexError;
use corpus_tools::runs::RunError;
use fmindex::FileError;
use models::ModelError;
use models::encoder::EncoderError;

use crate::active::ActiveError;
use crate::engine::EngineError;
use crate::forward_backward::ReadError;
use crate::scorer::ScorerError;

/// Why an evaluation cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// There is no such method, or its settings make no sense.
    #[error("method {name:?}: {reason}")]
    Method {
        /// As it was named.
        name: String,
        /// What is wrong, and what there is.
        reason: String,
    },
    /// A method lacks the model that it needs.
    #[error("method {name:?} needs {what}")]
    Lacks {
        /// The method.
        name: String,
        /// What it needs.
        what: &'static str,
    },
    /// The folder was begun with something else.
    #[error("{path}: was begun with {what}; use the same again, or name another folder")]
    Begun {
        /// The folder.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// Another program writes the folder.
    #[error(
        "{path}: another evaluation is writing this folder{by}; wait for it to end, or name another folder"
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// Its process, where it could be told.
        by: String,
    },
    /// R@k is asked for beyond what was retrieved.
    #[error(
        "{path}: R@{k} cannot be told: texts were retrieved to a depth of {depth}; ask for a k of at most {depth}, or run the methods again with --top-k {k}"
    )]
    Depth {
        /// The folder.
        path: PathBuf,
        /// What was asked for.
        k: usize,
        /// The depth of the traces.
        depth: usize,
    },
    /// A file of the folder is none of this program's.
    #[error("{path}:{line}: {reason}; name another folder")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file of results cannot be written.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The engine failed.
    #[error(transparent)]
    Engine(Box<EngineError>),
    /// Active retrieval failed.
    #[error(transparent)]
    Active(Box<ActiveError>),
    /// Reading failed.
    #[error(transparent)]
    Read(Box<ReadError>),
    /// The language model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The window scorer failed.
    #[error(transparent)]
    Scorer(#[from] ScorerError),
    /// The sentence encoder failed.
    #[error(transparent)]
    Encoder(#[from] EncoderError),
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A file of the index is damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// The run was interrupted; the same call goes on.
    #[error("interrupted")]
    Interrupted,
}

impl EvaluationError {
    /// Whether this question is to blame and the next may well be answered.
    pub(super) fn is_of_question(&self) -> bool {
        match self {
            Self::Active(error) => error.is_of_question(),
            Self::Read(error) => error.is_of_question(),
            Self::Engine(error) => error.is_of_question(),
            error => matches!(error, Self::Model(ModelError::ContextFull { .. })),
        }
    }

    pub(super) fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            action,
            source,
        }
    }
}

impl From<EngineError> for EvaluationError {
    fn from(error: EngineError) -> Self {
        Self::Engine(Box::new(error))
    }
}

impl From<ActiveError> for EvaluationError {
    fn from(error: ActiveError) -> Self {
        Self::Active(Box::new(error))
    }
}

impl From<ReadError> for EvaluationError {
    fn from(error: ReadError) -> Self {
        Self::Read(Box::new(error))
    }
}
