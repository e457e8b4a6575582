//! What an uncertain sentence is looked up in: the engine's constrained evidence, or passages by BM25.

use std::borrow::Cow;
use std::ops::Range;

use corpus_tools::store::Paragraph;
use corpus_tools::{Citation, Index};
use models::tokenizer::Tokenizer;

use super::run::ActiveError;
use crate::engine::Engine;
use crate::session::Cost;
use crate::settings::Settings;
use crate::windows;

/// Finds evidence for a query.
pub trait Retriever {
    /// Up to `most` pieces of evidence, best first, with what the language model did for them. Finding nothing
    /// is no error.
    ///
    /// # Errors
    /// Index or model failed.
    fn retrieve(&self, query: &str, most: usize) -> Result<(Vec<Citation>, Cost), ActiveError>;
}

/// Evidence that the engine writes under its constraint.
pub struct EngineRetriever<'a> {
    engine: &'a Engine<'a>,
    settings: Settings,
}

impl<'a> EngineRetriever<'a> {
    /// A retriever over an engine; the answer stage of `settings` is skipped, and the number of pieces is that
    /// of the call.
    pub fn new(engine: &'a Engine<'a>, settings: Settings) -> Self {
        Self { engine, settings }
    }
}

impl Retriever for EngineRetriever<'_> {
    fn retrieve(&self, query: &str, most: usize) -> Result<(Vec<Citation>, Cost), ActiveError> {
        let mut settings = self.settings.clone();
        settings.answer.most_tokens = 0;
        settings.evidence.most = most;
        settings.evidence.least = Some(most);
        let answer = self.engine.ask(query, &settings)?;
        Ok((answer.evidence, answer.trace.cost))
    }
}

/// Tokens of a passage, at most.
const PASSAGE_TOKENS: u32 = 256;

/// Paragraphs as they stand, by BM25: the best documents, of each the paragraph that fits best, and of a long one the
/// window that does.
pub struct PassageRetriever<'a> {
    index: &'a Index,
    tokenizer: &'a Tokenizer,
}

impl<'a> PassageRetriever<'a> {
    /// A retriever over an index with its tokenizer. A passage has at most 256 tokens.
    pub fn new(index: &'a Index, tokenizer: &'a Tokenizer) -> Self {
        Self { index, tokenizer }
    }
}

impl Retriever for PassageRetriever<'_> {
    fn retrieve(&self, query: &str, most: usize) -> Result<(Vec<Citation>, Cost), ActiveError> {
        let lexical = self.index.lexical();
        let mut passages = Vec::new();
        for (document, score) in lexical.search(query, most)? {
            let stored = self.index.document(document)?;
            let places: Vec<(&Paragraph, Range<u32>)> = stored
                .paragraphs
                .iter()
                .flat_map(|one| {
                    let spans =
                        windows::covering(std::slice::from_ref(one), &one.tokens, PASSAGE_TOKENS);
                    spans.into_iter().map(move |span| (one, span))
                })
                .collect();
            let texts: Vec<Cow<'_, str>> = places
                .iter()
                .map(|(paragraph, span)| match *span == paragraph.tokens {
                    true => stored.paragraph_text(paragraph).into(),
                    false => {
                        let tokens = self.index.fm().extract(document, span.clone());
                        self.tokenizer.decode(&tokens).into()
                    }
                })
                .collect();
            let texts: Vec<&str> = texts.iter().map(Cow::as_ref).collect();
            let scores = lexical.score_texts(query, &texts)?;
            let mut best: Option<usize> = None;
            for (at, score) in scores.iter().enumerate() {
                if best.is_none_or(|best| *score > scores[best]) {
                    best = Some(at);
                }
            }
            let Some(best) = best else {
                continue;
            };
            let span = places[best].1.clone();
            let mut citation = self.index.cite(self.tokenizer, document, span)?;
            citation.score = score;
            passages.push(citation);
        }
        Ok((passages, Cost::default()))
    }
}
