//! Constraints, stages, windows, scoring: from a question to an answer with cited evidence.
//!
//! Data flows one way: question → clues → candidates → windows → evidence → answer. The definitions are
//! those of RetroLLM (arXiv:2412.11919); [`settings::Settings`] holds every number.

pub mod active;
pub mod answer;
pub mod beam;
pub mod candidates;
pub mod chunks;
pub mod clues;
pub mod constraint;
pub mod engine;
pub mod evaluation;
pub mod evidence;
mod finish;
pub mod format;
pub mod forward_backward;
pub mod fusion;
pub mod generator;
pub mod naive;
pub mod prefixes;
pub mod processor;
pub mod prompt;
pub mod retrieval;
pub mod scorer;
pub mod sentences;
pub mod session;
pub mod settings;
pub mod spelling;
pub mod stages;
pub mod titles;
pub mod vectors;
pub mod windows;

pub use answer::Answer;
pub use constraint::{ConstraintError, PhraseConstraint};
pub use engine::{Engine, EngineError};
pub use settings::Settings;
