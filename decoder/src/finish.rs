//! What comes after the evidence: reranking it, and an answer by another generator than the engine's model.

use std::time::Duration;

use corpus_tools::Citation;
use models::sampling::Sampling;

use crate::engine::{Engine, EngineError};
use crate::evidence::{EvidenceWriter, Piece};
use crate::forward_backward::citations::{self, Cited};
use crate::forward_backward::prompt::{self, Asked, Style};
use crate::forward_backward::rerank::{self, RerankTrace};
use crate::forward_backward::settings::Task;
use crate::generator::{Generator, GeneratorError, LocalGenerator, Request};
use crate::scorer::{Bm25Scorer, WindowScorer, WindowText};
use crate::session::Cost;
use crate::settings::{Settings, WindowScorerKind};

/// Who reranks the evidence and writes the answer, where it is not the engine's model alone.
#[derive(Clone, Copy, Default)]
pub(crate) struct Helpers<'a> {
    /// What scores pieces for the reranker, if not the scorer of windows.
    pub(crate) relevance: Option<&'a dyn WindowScorer>,
    /// Who samples for the reranker.
    pub(crate) light: Option<&'a dyn Generator>,
    /// Who writes the answer.
    pub(crate) generator: Option<&'a dyn Generator>,
}

impl Helpers<'_> {
    /// The generator's name, for the trace.
    pub(crate) fn generator_name(&self) -> Option<String> {
        self.generator.map(|generator| generator.name().to_owned())
    }
}

/// An answer with the evidence it cites.
pub(crate) struct Answered {
    pub(crate) cited: Cited,
    pub(crate) cost: Cost,
    /// Time that the engine's own model took.
    pub(crate) passing: Duration,
}

impl Answered {
    /// An answer that was not asked to cite.
    pub(crate) fn plain(text: String, cost: Cost, passing: Duration) -> Self {
        let cited = Cited {
            text,
            ..Cited::default()
        };
        Self {
            cited,
            cost,
            passing,
        }
    }
}

impl<'a> Engine<'a> {
    /// The engine with another scorer of pieces for the reranker than that of windows, or than BM25 where the
    /// settings ask for that.
    #[must_use]
    pub fn with_piece_scorer(mut self, relevance: &'a dyn WindowScorer) -> Self {
        self.helpers.relevance = Some(relevance);
        self
    }

    /// The engine with another light model for the reranker than its own.
    #[must_use]
    pub fn with_light_model(mut self, light: &'a dyn Generator) -> Self {
        self.helpers.light = Some(light);
        self
    }

    /// The engine with another generator of answers than its own model. It is asked to cite evidence by number.
    #[must_use]
    pub fn with_generator(mut self, generator: &'a dyn Generator) -> Self {
        self.helpers.generator = Some(generator);
        self
    }

    /// A piece with the rest of its window, as a scorer reads it.
    pub(crate) fn surroundings(&self, writer: &EvidenceWriter<'_>, piece: &Piece) -> WindowText {
        let candidate = &writer.candidates()[piece.member as usize];
        let window = &writer.windows()[piece.window];
        let mut span = piece.span.clone();
        if window.member == piece.member {
            span = span.start.min(window.start)..span.end.max(window.end);
        }
        candidate.text(span, self.tokenizer())
    }

    /// Ranks the pieces again, by question and samples of the light model, where the settings say so.
    pub(crate) fn rerank(
        &self,
        question: &str,
        pieces: &[WindowText],
        settings: &Settings,
    ) -> Result<Option<RerankTrace>, EngineError> {
        let own = LocalGenerator::new(self.model, self.interrupted);
        let light = self.helpers.light.unwrap_or(&own);
        let words = Bm25Scorer::new(self.index.lexical().clone());
        let relevance: &dyn WindowScorer = match (self.helpers.relevance, settings.rerank.relevance)
        {
            (Some(relevance), _) => relevance,
            (None, WindowScorerKind::Bm25) => &words,
            (None, _) => self.scorer,
        };
        let settings = &settings.rerank;
        Ok(rerank::rerank(
            light, relevance, question, pieces, settings,
        )?)
    }
}

/// Asks a generator for the answer. Of the best pieces those of one document stand in text order; they bear the
/// numbers under which they are listed, so that a citation resolves to a piece.
pub(crate) fn cite(
    generator: &dyn Generator,
    question: &str,
    evidence: &[Citation],
    settings: &Settings,
    on_text: &mut dyn FnMut(&str),
) -> Result<Answered, EngineError> {
    let shown = evidence.len().min(settings.answer.evidence);
    let mut order: Vec<usize> = (0..shown).collect();
    let first_of = |at: usize| evidence.iter().position(|c| c.id == evidence[at].id);
    order.sort_by_key(|&at| (first_of(at), evidence[at].start_byte));
    let passages: Vec<(usize, &str, &str)> = order
        .iter()
        .map(|&at| {
            let piece = &evidence[at];
            (at + 1, piece.title.as_str(), piece.quote.as_str())
        })
        .collect();
    Ok(cite_passages(
        generator,
        question,
        &passages,
        (settings.answer.most_tokens, settings.sampling),
        on_text,
    )?)
}

/// Asks a generator for an answer of at most `most_tokens` from passages with their numbers, titles and texts.
pub(crate) fn cite_passages(
    generator: &dyn Generator,
    question: &str,
    passages: &[(usize, &str, &str)],
    (most_tokens, sampling): (usize, Sampling),
    on_text: &mut dyn FnMut(&str),
) -> Result<Answered, GeneratorError> {
    let asked = Asked {
        question,
        task: Task::Question,
        choices: &[],
    };
    let style = Style::Answer { cite: true };
    let messages = prompt::request(&asked, style, passages.iter().copied());
    let mut output = generator.generate(
        &Request {
            messages: &messages,
            most_tokens,
            sampling,
            samples: 1,
        },
        on_text,
    )?;
    let text = output.written.pop().map_or(String::new(), |w| w.text);
    Ok(Answered {
        cited: citations::resolve(&text, |number| {
            passages.iter().any(|&(known, ..)| known == number)
        }),
        cost: output.cost,
        passing: Duration::ZERO,
    })
}
