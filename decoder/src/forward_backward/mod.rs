//! FB-RAG (arXiv:2505.17206): looking forward to what a light model would answer, and backward to the question,
//! to choose what the final generator reads.
//!
//! 1. *Recall*: the chunks that fit the question best, within a budget.
//! 2. *Precision*: a light model reads them and samples outputs; every chunk of the whole text is scored for the
//!    question and for the samples ([`score`]).
//! 3. *Generation*: the best chunks, in text order, go to the generator, which cites them by number
//!    ([`citations`]).
//!
//! [`Reader`] does this over texts that were never indexed; [`rerank`] scores generated evidence the same way.

pub mod citations;
pub mod prompt;
mod reader;
pub mod rerank;
mod samples;
pub mod score;
pub mod settings;

pub use reader::{ChunkScore, Passage, ReadAnswer, ReadError, ReadTrace, Reader, Route};
pub use samples::Samples;
pub use settings::ForwardSettings;
