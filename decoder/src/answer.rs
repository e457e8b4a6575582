//! The answer to a question with its evidence and its trace, as it is printed and saved.

use corpus_tools::Citation;
use serde::{Deserialize, Serialize};

use crate::clues::Clue;
use crate::forward_backward::rerank::RerankTrace;
use crate::session::Cost;
use crate::settings::Settings;

/// An answer with the evidence it was written from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The question.
    pub question: String,
    /// What the model wrote after the evidence; empty if the stage was skipped or nothing was found.
    pub answer: String,
    /// Numbers of the pieces that the answer cites, from 1, where a generator was asked to cite.
    #[serde(default)]
    pub cited: Vec<usize>,
    /// Numbers that the answer cited and no piece has; they were taken out of it.
    #[serde(default)]
    pub unknown_citations: Vec<String>,
    /// Pieces of evidence, in the order in which they were written, or reranked; every quote was found again
    /// in the stored text.
    pub evidence: Vec<Citation>,
    /// How the answer came about.
    pub trace: Trace,
}

/// How an answer came about.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Name of the language model.
    pub model: String,
    /// The settings of the run.
    pub settings: Settings,
    /// The clues that the model wrote, with their weights.
    pub clues: Vec<Clue>,
    /// The strongest terms of the question, looked up beside the clues.
    pub auxiliary_clues: Vec<String>,
    /// Titles named in the question.
    pub titles: Vec<String>,
    /// The candidates, best first; then those that evidence led to.
    pub candidates: Vec<CandidateTrace>,
    /// The windows that were scored, best first.
    pub windows: Vec<WindowTrace>,
    /// Pieces that were written and could not be cited, with the reason; empty in a sound index.
    pub refused: Vec<String>,
    /// Quotes that no text holds: what the model wrote where the evidence was not constrained. They are not shown
    /// as evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfounded: Vec<String>,
    /// How the evidence was reranked, where it was.
    #[serde(default)]
    pub rerank: Option<RerankTrace>,
    /// Who wrote the answer, if not the model.
    #[serde(default)]
    pub generator: Option<String>,
    /// What the language model did.
    pub cost: Cost,
    /// Milliseconds by stage.
    pub milliseconds: Milliseconds,
}

/// A candidate in a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateTrace {
    /// External id.
    pub id: String,
    /// Title.
    pub title: String,
    /// Fused score.
    pub score: f64,
    /// Rank in the clue ranking, from 1.
    pub clue_rank: Option<usize>,
    /// Rank in the lexical ranking, from 1.
    pub lexical_rank: Option<usize>,
    /// Rank in the dense ranking, from 1.
    #[serde(default)]
    pub dense_rank: Option<usize>,
    /// Rank among the documents whose title is named in the question, from 1.
    pub title_rank: Option<usize>,
    /// The document (external id) whose quoted text names this one's title, where that raised it.
    pub named_in: Option<String>,
}

/// A window in a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowTrace {
    /// External id of its document.
    pub id: String,
    /// First token in the document.
    pub start: u32,
    /// One past the last token.
    pub end: u32,
    /// The scorer's number.
    pub score: f32,
    /// What BM25, titles and hops added to the scaled number.
    pub bonus: f32,
    /// Both together, scaled to [0, 1].
    pub relevance: f32,
}

/// Milliseconds spent in each stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Milliseconds {
    /// Reading the prompt and writing clues.
    pub clues: f64,
    /// Scoring documents and fusing rankings.
    pub candidates: f64,
    /// Opening and scoring windows.
    pub windows: f64,
    /// Writing and locating evidence.
    pub evidence: f64,
    /// Reranking evidence.
    #[serde(default)]
    pub rerank: f64,
    /// Writing the answer.
    pub answer: f64,
    /// Of all that, the window scorer's part.
    #[serde(default)]
    pub scorer: f64,
    /// Of all that, the model's passes for clues, evidence and answer. What neither took is the part of index
    /// and constraint.
    #[serde(default)]
    pub model: f64,
}
