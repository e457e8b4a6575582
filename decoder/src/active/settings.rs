//! Every number of active retrieval; the defaults are those of FLARE (arXiv:2305.06983) unless a field says
//! otherwise.

use serde::{Deserialize, Serialize};

/// When evidence is retrieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Before the answer, and where the next sentence is uncertain, for that sentence.
    #[default]
    Active,
    /// Before the answer only.
    Single,
    /// Every so many tokens, for the tokens before.
    Tokens,
    /// At every sentence, for that sentence: as `active` with θ above 1.
    Sentences,
    /// At every sentence, for the sentence before.
    Previous,
}

/// What is looked up for an uncertain sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum QueryKind {
    /// The sentence without its improbable tokens.
    #[default]
    Implicit,
    /// A question about each improbable span, which the model itself asks.
    Explicit,
}

/// All settings of active retrieval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActiveSettings {
    /// When evidence is retrieved.
    pub policy: Policy,
    /// θ: a sentence with a token less probable than this is uncertain. 0.8 in the paper, for models a thousand
    /// times as large.
    pub theta: f32,
    /// β: tokens less probable than this are left out of the query, or asked about.
    pub beta: f32,
    /// What is looked up.
    pub query: QueryKind,
    /// Most spans of a sentence that are asked about.
    pub questions: usize,
    /// Pieces of evidence in front of a sentence.
    pub evidence: usize,
    /// Most tokens of a sentence.
    pub sentence_tokens: usize,
    /// Tokens between two retrievals, for [`Policy::Tokens`].
    pub stride: usize,
    /// Most sentences of the answer.
    pub sentences: usize,
    /// Most tokens of the answer.
    pub answer_tokens: usize,
}

impl Default for ActiveSettings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            theta: 0.8,
            beta: 0.4,
            query: QueryKind::default(),
            questions: 3,
            evidence: 2,
            sentence_tokens: 64,
            stride: 16,
            sentences: 8,
            answer_tokens: 256,
        }
    }
}
