//! Readers, canonical form, the document store, building and opening an index.
//!
//! From a corpus to citations: [`reader`] streams records, [`canonical`] says what of a paragraph is
//! tokenized, [`mod@build`] writes segments and last the [`manifest`], [`Index`] opens them,
//! [`maintain`] adds, deletes and merges, [`mod@verify`] checks every byte, and [`Index::cite`] leads a span of tokens back to the original
//! text. [`lexical`] is BM25 over the documents, [`bm25`] its formula, [`analysis`] its words.
//!
//! For evaluations: [`questions`] reads question sets, [`metrics`] scores answers and rankings, [`runs`]
//! writes and reads TREC, DPR and KILT files.
//!
//! ```no_run
//! use corpus_tools::reader::Input;
//! use corpus_tools::{BuildOptions, Index, build};
//! use models::tokenizer::Tokenizer;
//!
//! let tokenizer = Tokenizer::open("model.gguf")?;
//! let options = BuildOptions::new([Input::named("wiki.jsonl.zst")], "wiki.index", &tokenizer);
//! let report = build(&options, &())?;
//! println!("{} documents, {} left out", report.documents, report.skipped_count);
//!
//! let index = Index::open("wiki.index")?;
//! let phrase = tokenizer.encode_text(" Treaty of Versailles");
//! for place in index.fm().locate(&index.fm().range(&phrase)) {
//!     let span = place.start..place.start + phrase.len() as u32;
//!     if let Ok(citation) = index.cite(&tokenizer, place.document, span) {
//!         println!("{} {}..{}", citation.title, citation.start_byte, citation.end_byte);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod analysis;
pub mod bm25;
pub mod build;
pub mod canonical;
pub mod citation;
pub mod index;
pub mod lexical;
pub mod lock;
pub mod maintain;
pub mod manifest;
pub mod metrics;
pub mod names;
pub mod questions;
pub mod reader;
pub mod runs;
pub mod store;
pub mod verify;
pub mod wikitext;

pub use build::{BuildError, BuildOptions, BuildReport, build};
pub use citation::Citation;
pub use index::{CiteError, Document, Index, IndexError};
pub use verify::{VerifyReport, verify};
