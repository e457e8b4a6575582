//! Every number of the forward–backward scorer; the defaults are those of FB-RAG (arXiv:2505.17206) unless a
//! field says otherwise.

use models::sampling::Sampling;
use serde::{Deserialize, Serialize};

use super::score::{Combination, Weights};
use crate::settings::WindowScorerKind;

/// How the chunks are chosen that the final generator reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// By question and samples, η_B = η_F = ½. The default, since small models are weak readers: what they
    /// sample alone found less than the question did (`docs/forward-backward.md`).
    #[default]
    Fb,
    /// By the samples alone, η_B = 0 and η_F = 1: the better one in the paper, whose light models are sixty
    /// times as large.
    F,
    /// By the question alone, read in text order (order-preserving RAG, arXiv:2409.01666).
    Order,
    /// By the question alone, read best first.
    Vanilla,
    /// Everything, in text order.
    Full,
    /// As `order`; where the generator says that it cannot answer from that, everything (arXiv:2407.16833).
    SelfRoute,
}

impl Method {
    /// The paper's weights of this method.
    pub fn weights(self) -> Weights {
        let (backward, forward) = match self {
            Self::Fb => (0.5, 0.5),
            Self::F => (0.0, 1.0),
            _ => (1.0, 0.0),
        };
        Weights { backward, forward }
    }

    /// Whether a light model samples outputs.
    pub fn looks_forward(self) -> bool {
        matches!(self, Self::Fb | Self::F)
    }
}

/// What is asked of the texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A question with a short answer.
    #[default]
    Question,
    /// A summary of what the texts say about the question. The light model writes it too, without reasoning.
    Summary,
    /// One of several choices.
    Choice,
}

/// What the light model is asked to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum SamplePrompt {
    /// The answer alone.
    Answer,
    /// Reasoning, then the answer.
    #[default]
    Reasoning,
    /// The answer, then an explanation.
    Explanation,
}

/// What happens where a text does not fit into the model's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Truncate {
    /// It is an error.
    #[default]
    Refuse,
    /// Chunks are taken out of the middle until the rest fits, and their tokens counted.
    Middle,
}

/// All settings of the forward–backward scorer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForwardSettings {
    /// How chunks are chosen.
    pub method: Method,
    /// What is asked.
    pub task: Task,
    /// Words of a chunk.
    pub chunk_words: usize,
    /// What scores a chunk for a text.
    pub relevance: WindowScorerKind,
    /// How scores for different texts come to one scale.
    pub combination: Combination,
    /// η_B; `None` for the method's.
    pub backward_weight: Option<f64>,
    /// η_F; `None` for the method's.
    pub forward_weight: Option<f64>,
    /// K: outputs that the light model samples; 0 leaves the question alone.
    pub samples: usize,
    /// How the light model chooses tokens: temperature 1, top-p 0.9, top-k 50.
    pub sampling: Sampling,
    /// What the light model is asked to write.
    pub sample_prompt: SamplePrompt,
    /// Tokens of a sample beyond those of the answer.
    pub sample_tokens: usize,
    /// Most tokens of the chunks that the light model reads (C_I).
    pub light_budget: usize,
    /// Most tokens of the chunks that the final generator reads (C_II).
    pub budget: usize,
    /// Most chunks that the final generator reads; `None` for as many as the budget holds.
    pub chunks: Option<usize>,
    /// Most tokens of the answer; 0 stops after the choice of chunks.
    pub answer_tokens: usize,
    /// Whether the generator is asked to cite passages by number.
    pub cite: bool,
    /// What happens where a text does not fit.
    pub truncate: Truncate,
}

impl Default for ForwardSettings {
    fn default() -> Self {
        Self {
            method: Method::default(),
            task: Task::default(),
            chunk_words: 300,
            relevance: WindowScorerKind::Bm25,
            combination: Combination::default(),
            backward_weight: None,
            forward_weight: None,
            samples: 5,
            sampling: Sampling {
                temperature: 1.0,
                top_p: 0.9,
                top_k: 50,
                ..Sampling::default()
            },
            sample_prompt: SamplePrompt::default(),
            sample_tokens: 64,
            light_budget: 6144,
            budget: 6144,
            chunks: None,
            answer_tokens: 64,
            cite: true,
            truncate: Truncate::default(),
        }
    }
}

impl ForwardSettings {
    /// The weights of the two directions.
    pub fn weights(&self) -> Weights {
        let of_method = self.method.weights();
        Weights {
            backward: self.backward_weight.unwrap_or(of_method.backward),
            forward: self.forward_weight.unwrap_or(of_method.forward),
        }
    }

    /// What the light model is asked to write: no reasoning in front of a summary.
    pub fn sample_prompt(&self) -> SamplePrompt {
        match self.task {
            Task::Summary => SamplePrompt::Answer,
            _ => self.sample_prompt,
        }
    }
}
