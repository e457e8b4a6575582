//! Language models, encoders, tokenizers, and the fetching of models.
//!
//! Start with [`language_model`]: a [`language_model::LanguageModel`] is opened from a GGUF file or a folder of
//! safetensors, and turns tokens into logits at the positions asked for. What it has read lies outside of it, in a
//! [`language_model::Cache`], which can be cut back and forked at no cost. [`tokenizer`] stands by itself: it is what
//! an index is built with. [`chat`] and [`sampling`] are what lies before and after the logits. [`remote`] asks models
//! on servers. [`encoder`] holds the models that score passages, and [`fetch`] gets any of them.
//!
//! The arithmetic is in `kernels`, a private module: weights stay in the precision of their file, activations are
//! 32-bit floats, and every sum is taken in one fixed order, so that a token's logits have the same bits in whatever
//! chunk, branch or batch it is computed, with any number of threads. Builds with the feature `cuda` or `metal` can run
//! language models on such a [`device`] instead, by candle's tensors.

mod error;
mod gguf;
mod kernels;

pub mod chat;
pub mod device;
pub mod encoder;
pub mod fetch;
pub mod language_model;
pub mod remote;
pub mod sampling;
pub mod tokenizer;

pub use error::ModelError;
