//! FLARE (arXiv:2305.06983): retrieving while an answer is written, where its next sentence is uncertain.
//!
//! Sentence by sentence: the model writes what it would say next ([`sentence`]). If every token is probable
//! enough, the sentence stays; otherwise a query is formed of it ([`decision`]), evidence is retrieved, and the
//! sentence is written again with that evidence in front ([`Active`]). The baselines that retrieve once or at
//! fixed places run the same way.

pub mod decision;
mod retrieve;
mod run;
pub mod sentence;
pub mod settings;

pub use retrieve::{EngineRetriever, PassageRetriever, Retriever};
pub use run::{Active, ActiveAnswer, ActiveError, ActiveTrace, Finish, Sentence};
pub use settings::{ActiveSettings, Policy, QueryKind};
