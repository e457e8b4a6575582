//! Readers, canonical form, the document store, building and opening an index.

pub mod analysis;
pub mod bm25;
pub mod build;
pub mod canonical;
pub mod citation;
pub mod index;
pub mod lexical;
pub mod manifest;
pub mod reader;
pub mod store;
pub mod verify;

pub use build::{BuildError, BuildOptions, BuildReport, build};
pub use citation::Citation;
pub use index::{CiteError, Document, Index, IndexError};
pub use verify::{VerifyReport, verify};
