//! Language models, encoders, tokenizers, and the fetching of models.

mod error;
mod gguf;
mod kernels;

pub mod chat;
pub mod device;
pub mod encoder;
pub mod fetch;
pub mod language_model;
pub mod sampling;
pub mod tokenizer;

pub use error::ModelError;
