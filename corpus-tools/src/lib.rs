//! Readers, canonical form, the document store, building and opening an index.

pub mod canonical;
