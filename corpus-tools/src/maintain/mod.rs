//! Changing an index that is there: adding documents, deleting some, merging segments; and giving its
//! documents out again.
//!
//! Segments are never written to: an addition makes new ones, a deletion lists documents in the manifest,
//! a merge writes new segments of what is live and removes the old ones. The new manifest comes last, by
//! rename, so that a reader sees the index before or after, never in between; an index that is open goes
//! on answering as it was. One writer works at a time.

mod add;
mod delete;
mod export;
mod merge;

pub use add::add;
pub use delete::{DeleteReport, delete};
pub use export::{ExportError, export};
pub use merge::{MergeOptions, MergeReport, merge};
