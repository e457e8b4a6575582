//! FM-index over integer symbols: suffix arrays, BWT, rank; corpus-level and per-document; files on disk.
//!
//! A *segment* holds a run of documents; a document is a run of paragraphs, each closed by the
//! reserved *separator* symbol. The index stands over the reversed text, so one backward-search step
//! appends one symbol on the right of a phrase. No phrase crosses a separator. Many segments answer
//! as one [`Index`].
//!
//! ```
//! use fmindex::{BuildOptions, Continuation, Index, Profile, Segment, build_segment};
//!
//! // Symbols 0..10, separator 9. Two documents: "1 2 3 | 1 2 4 |" and "1 2 3 |".
//! let tokens = vec![1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 3, 9];
//! let dir = tempfile::tempdir()?;
//! let options = BuildOptions { alphabet: 10, separator: 9, ..BuildOptions::default() };
//! build_segment(dir.path(), tokens, &[0, 8], &options, &())?;
//!
//! let index = Index::new(vec![Segment::open(dir.path())?])?;
//! let ranges = index.range(&[1, 2]);
//! assert_eq!(index.count(&ranges), 3);
//! let mut next = Vec::new();
//! index.continuations(&ranges, &mut next);
//! assert_eq!(next, [Continuation { symbol: 3, count: 2 }, Continuation { symbol: 4, count: 1 }]);
//! let three = index.extend(&ranges, 3);
//! let mut places: Vec<_> = index.locate(&three).map(|o| (o.document.document, o.start)).collect();
//! places.sort();
//! assert_eq!(places, [(0, 0), (1, 0)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod file;

mod bits;
mod blocks;
mod build;
mod bwt;
mod dead;
mod document;
mod index;
mod lists;
mod merge;
mod phrases;
mod range;
mod segment;
mod set;
mod sort;
mod tally;

pub use build::{BuildError, BuildOptions, BuildReport, Profile, Progress, build_segment};
pub use dead::{DeadRows, UnknownDocument};
pub use document::{DocumentIndex, DocumentIndexes, build_document_indexes};
pub use file::FileError;
pub use index::{DocumentCounts, DocumentId, Index, IndexError, Occurrence};
pub use merge::merge_segments;
pub use range::{Ranges, RowRange};
pub use segment::{Component, Segment};
pub use set::{DocumentSet, SetPosition, SetRanges};
pub use tally::{Continuation, Mask};

/// An integer symbol: a token id below the alphabet's size.
pub type Symbol = u32;

/// The largest alphabet a segment can have.
pub const MAX_ALPHABET: u32 = 1 << 20;
/// A segment holds fewer tokens than this.
pub const MAX_TOKENS: u64 = 1 << 31;
