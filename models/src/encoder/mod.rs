//! Encoders: sentence embeddings, cross-encoders, sparse lexical models.
//!
//! All stand on one BERT of our own that computes in 32-bit floats on the processor. Texts are
//! grouped by length and packed without padding; a group runs on one thread, groups in parallel. Every sum is taken
//! in one fixed order, so what comes of a text has the same bits in any group and on any number of threads.

mod bert;
mod config;
mod cross;
mod error;
mod math;
mod sentence;
mod sparse;
mod tokens;
mod weights;

pub use cross::CrossEncoder;
pub use error::EncoderError;
pub use sentence::SentenceEncoder;
pub use sparse::{SparseEncoder, SparseVector};
