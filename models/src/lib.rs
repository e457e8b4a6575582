//! Language models, encoders, tokenizers, and the fetching of models.

mod error;
mod gguf;

pub mod encoder;
pub mod fetch;
pub mod tokenizer;

pub use error::ModelError;
