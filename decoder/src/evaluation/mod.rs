//! Evaluations: methods run over question sets, with everything that is needed to judge them kept in traces.
//!
//! A run has a folder. [`folder`] is its layout and what it was begun with, [`method`] names what can be run,
//! [`run`] runs it question by question and goes on where it was stopped, [`summary`] computes every metric
//! from the traces alone. [`passages`] says what of a document is judged, [`retrievers`] are the
//! passage retrievers, [`reader`] writes answers from passages.
//!
//! ```text
//! evaluation.json   index, seed, methods with all settings, question sets
//! traces/           <set>.<method>.jsonl   one object a question
//! runs/             <set>.<method>.trec, <set>.qrels
//! summary.json, summary.md
//! plots/            <set>.<chart>.svg and .png
//! writer.lock       held by the evaluation that writes the folder
//! ```

pub mod error;
pub mod folder;
pub mod method;
pub mod passages;
pub mod plot;
pub mod reader;
pub mod retrievers;
pub mod run;
pub mod summary;
pub mod table;

pub use error::EvaluationError;
pub use folder::{Folder, Plan};
pub use method::Method;
pub use run::{Evaluation, Progress};
pub use summary::Summary;
