//! Evidence in a better order: each piece, with the window it was written from, is scored for the question and
//! for what a light model samples after reading the pieces.

use models::sampling::Sampling;
use serde::{Deserialize, Serialize};

use super::prompt::Asked;
use super::reader::ReadError;
use super::samples::{Look, Samples, look_forward};
use super::score::{self, Combination, Score};
use super::settings::{ForwardSettings, Method, SamplePrompt, Task};
use crate::generator::Generator;
use crate::scorer::{WindowScorer, WindowText};
use crate::session::Cost;
use crate::settings::WindowScorerKind;

/// Whether and how evidence is reranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Rerank {
    /// Evidence stays in the order in which it was written.
    #[default]
    None,
    /// By the samples alone.
    F,
    /// By question and samples.
    Fb,
}

/// Settings of the reranking of evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RerankSettings {
    /// Whether and how.
    pub method: Rerank,
    /// What scores a piece for a text.
    pub relevance: WindowScorerKind,
    /// How scores for different texts come to one scale.
    pub combination: Combination,
    /// K: outputs that the light model samples.
    pub samples: usize,
    /// How the light model chooses tokens.
    pub sampling: Sampling,
    /// What the light model is asked to write.
    pub sample_prompt: SamplePrompt,
    /// Most tokens of a sample.
    pub sample_tokens: usize,
    /// Most tokens of the pieces that the light model reads.
    pub light_budget: usize,
}

impl Default for RerankSettings {
    fn default() -> Self {
        let forward = ForwardSettings::default();
        Self {
            method: Rerank::None,
            relevance: WindowScorerKind::Embedding,
            combination: Combination::Normalised,
            samples: forward.samples,
            sampling: forward.sampling,
            sample_prompt: SamplePrompt::Answer,
            sample_tokens: 64,
            light_budget: 2048,
        }
    }
}

/// A piece's place before and after.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RerankedPiece {
    /// Rank in the order in which the evidence was written, from 1.
    pub written: usize,
    /// Its scores.
    #[serde(flatten)]
    pub score: Score,
}

/// How evidence was reranked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RerankTrace {
    /// The light model.
    pub light_model: String,
    /// What it wrote.
    pub samples: Samples,
    /// The pieces in their new order.
    pub pieces: Vec<RerankedPiece>,
    /// What the light model did.
    pub cost: Cost,
}

impl RerankTrace {
    /// The pieces in their new order, as indexes into the old.
    pub fn order(&self) -> impl Iterator<Item = usize> + '_ {
        self.pieces.iter().map(|piece| piece.written - 1)
    }
}

/// Ranks pieces of evidence. `pieces` are their texts with what stands around them, in the order in which they
/// were written. `None` where there is nothing to rank: no method, or fewer than two pieces.
///
/// # Errors
/// See [`ReadError`].
pub fn rerank(
    light: &dyn Generator,
    relevance: &dyn WindowScorer,
    question: &str,
    pieces: &[WindowText],
    settings: &RerankSettings,
) -> Result<Option<RerankTrace>, ReadError> {
    let method = match settings.method {
        Rerank::None => return Ok(None),
        Rerank::F => Method::F,
        Rerank::Fb => Method::Fb,
    };
    if pieces.len() < 2 {
        return Ok(None);
    }
    let asked = Asked {
        question,
        task: Task::Question,
        choices: &[],
    };
    let by_question = relevance.score(question, pieces)?;
    let looked = look_forward(
        light,
        relevance,
        &asked,
        pieces,
        &by_question,
        // Each piece is read as a text of its own: best first.
        |piece| piece,
        &Look {
            prompt: settings.sample_prompt,
            most_tokens: settings.sample_tokens,
            budget: settings.light_budget,
            sampling: settings.sampling,
            samples: settings.samples,
        },
    )?;
    let scores = score::combine(
        &by_question,
        &looked.scores,
        method.weights(),
        settings.combination,
    );
    let pieces = score::ranking(&scores)
        .into_iter()
        .map(|piece| RerankedPiece {
            written: piece + 1,
            score: scores[piece],
        })
        .collect();
    Ok(Some(RerankTrace {
        light_model: light.name().to_owned(),
        samples: looked.samples,
        pieces,
        cost: looked.output.cost,
    }))
}
