//! What of a document is retrieved and judged: its text whole, and cut to a number of tokens around its best window.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corpus_tools::store::Paragraph;
use corpus_tools::{Citation, Index};
use fmindex::DocumentId;
use models::tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

use super::EvaluationError;
use crate::scorer::{WindowScorer, WindowText};
use crate::windows;

/// Windows of one document that the scorer is asked about; BM25 keeps them where there are more.
const SCORED: usize = 3;

/// A retrieved text, as it is saved and judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retrieved {
    /// External id of the document.
    pub id: String,
    /// External ids of the passages that it holds, where the passages of a page were grouped into the document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passages: Vec<String>,
    /// Title of the document.
    pub title: String,
    /// The text: a passage, or a quote. The title is no part of it.
    pub text: String,
    /// Tokens of the text.
    pub tokens: u32,
    /// The method's own score.
    pub score: f64,
    /// The text cut to the number of tokens at which methods are compared; `None` where it is no longer than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
}

impl Retrieved {
    /// The id that labels most likely speak of: of the passage that it is from, if it is from one, else of the document.
    pub fn external_id(&self) -> &str {
        match self.passages.as_slice() {
            [passage] => passage,
            _ => &self.id,
        }
    }

    /// Every id that it goes by, [`Self::external_id`] first.
    pub fn ids(&self) -> Vec<String> {
        let mut ids = vec![self.external_id().to_owned()];
        for id in self.passages.iter().chain([&self.id]) {
            if !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        ids
    }

    /// The text at the number of tokens at which methods are compared.
    pub fn cut(&self) -> &str {
        self.cut.as_deref().unwrap_or(&self.text)
    }
}

/// Sizes of what is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// A document of more tokens than this is retrieved as the paragraphs around its best one that hold at most that
    /// many.
    pub passage: u32,
    /// Tokens to which texts are cut so that length buys nothing; 0 cuts nothing.
    pub cut: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            passage: 1024,
            cut: 64,
        }
    }
}

/// A passage with the place that it was taken from, before it is cut.
#[derive(Debug, Clone, PartialEq)]
pub struct Passage {
    /// The passage as it is saved and judged.
    pub retrieved: Retrieved,
    document: DocumentId,
    /// Its tokens in the document.
    span: Range<u32>,
}

/// A window of a document: its tokens, and the quote.
type Window = (Range<u32>, Citation);

/// Makes passages of documents.
pub struct Passages<'a> {
    index: &'a Index,
    tokenizer: Arc<Tokenizer>,
    scorer: Option<&'a dyn WindowScorer>,
    sizes: Sizes,
    /// The best windows of the long documents of the question at hand: a retriever that reads passages asks for those
    /// of its result again.
    best: Mutex<HashMap<DocumentId, Option<Window>>>,
}

impl<'a> Passages<'a> {
    /// Passages of the documents of `index`, best windows by `scorer`; none is needed where nothing is cut and no
    /// document is longer than a passage.
    ///
    /// # Errors
    /// The tokenizer of the index cannot be read.
    pub fn new(
        index: &'a Index,
        scorer: Option<&'a dyn WindowScorer>,
        sizes: Sizes,
    ) -> Result<Self, EvaluationError> {
        Ok(Self {
            index,
            tokenizer: index.tokenizer()?,
            scorer,
            sizes,
            best: Mutex::default(),
        })
    }

    /// Whether a document of `index` may be longer than a passage.
    pub fn any_long(index: &Index, sizes: Sizes) -> bool {
        let long = |document| index.fm().document_length(document) > sizes.passage;
        index.documents().any(long)
    }

    /// Forgets the best windows of the last question.
    pub fn forget(&self) {
        self.remembered().clear();
    }

    /// The passage that retrieving `document` for `question` gives, not cut yet: the document, or where that is too
    /// long the paragraphs around its best one.
    ///
    /// # Errors
    /// The document cannot be read or its windows cannot be scored.
    pub fn passage(
        &self,
        question: &str,
        document: DocumentId,
        score: f64,
    ) -> Result<Passage, EvaluationError> {
        let stored = self.index.document(document)?;
        let quotable: Vec<&Paragraph> = stored
            .paragraphs
            .iter()
            .filter(|paragraph| !paragraph.is_title())
            .collect();
        let mut held = &quotable[..];
        let mut text = stored.text.as_ref();
        if tokens_of(held) > self.sizes.passage
            && let Some((span, citation)) = self.best_window(question, document)?
        {
            let best = quotable.iter().position(|one| one.tokens == span);
            let Some(best) = best else {
                // A part of a paragraph that is too long itself.
                return Ok(Passage {
                    retrieved: self.quoted(citation, score),
                    document,
                    span,
                });
            };
            held = &quotable[around(&quotable, best, self.sizes.passage)];
            let bytes = |one: Option<&&Paragraph>| one.map_or(0..0, |one| one.bytes.clone());
            let bytes = bytes(held.first()).start..bytes(held.last()).end;
            text = text.get(bytes).unwrap_or_default();
        }
        let mut passages: Vec<String> = Vec::new();
        for paragraph in held {
            let id = self.index.external_id(document, paragraph.number)?;
            if id != stored.id && passages.last().is_none_or(|last| last != id) {
                passages.push(id.to_owned());
            }
        }
        let edge = |one: Option<&&Paragraph>| one.map_or(0..0, |one| one.tokens.clone());
        Ok(Passage {
            retrieved: Retrieved {
                id: stored.id.to_owned(),
                passages,
                title: stored.title.to_owned(),
                text: text.to_owned(),
                tokens: tokens_of(held),
                score,
                cut: None,
            },
            document,
            span: edge(held.first()).start..edge(held.last()).end,
        })
    }

    /// A piece of evidence as it is judged; cut, it is its first tokens.
    pub fn evidence(&self, citation: Citation) -> Retrieved {
        let score = f64::from(citation.score);
        let mut retrieved = self.quoted(citation, score);
        let tokens = self.tokenizer.encode_text(&retrieved.text);
        let most = self.sizes.cut as usize;
        if most > 0 && tokens.len() > most {
            let begin = self.tokenizer.decode(&tokens[..most]);
            // A cut inside a character leaves a mark that stands in no text.
            let begin = begin.trim_end_matches('\u{fffd}').to_owned();
            retrieved.cut = Some(begin);
        }
        retrieved
    }

    fn quoted(&self, citation: Citation, score: f64) -> Retrieved {
        Retrieved {
            tokens: self.tokenizer.encode_text(&citation.quote).len() as u32,
            passages: citation.passage_id.into_iter().collect(),
            id: citation.id,
            title: citation.title,
            text: citation.quote,
            score,
            cut: None,
        }
    }

    /// Cuts the passages to their best windows; all are scored in one batch.
    ///
    /// # Errors
    /// As [`Passages::passage`].
    pub fn cut(&self, question: &str, passages: &mut [Passage]) -> Result<(), EvaluationError> {
        let most = self.sizes.cut;
        let long = |passage: &Passage| most > 0 && passage.retrieved.tokens > most;
        let windows = passages
            .iter()
            .filter(|passage| long(passage))
            .map(|passage| self.windows(question, passage.document, &passage.span, most))
            .collect::<Result<Vec<_>, _>>()?;
        let best = self.best_of(question, windows)?;
        let cut = passages.iter_mut().filter(|passage| long(passage));
        for (passage, window) in cut.zip(best) {
            passage.retrieved.cut = window.map(|(_, window)| window.quote);
        }
        Ok(())
    }

    /// The best window of a document that is longer than a passage; `None` where nothing can be quoted.
    fn best_window(
        &self,
        question: &str,
        document: DocumentId,
    ) -> Result<Option<Window>, EvaluationError> {
        if let Some(known) = self.remembered().get(&document) {
            return Ok(known.clone());
        }
        let windows = self.windows(question, document, &(0..u32::MAX), self.sizes.passage)?;
        let best = self.best_of(question, vec![windows])?.pop().flatten();
        self.remembered().insert(document, best.clone());
        Ok(best)
    }

    /// Of each list of windows the one that the scorer likes best, the first among equals; all are scored in one
    /// batch.
    fn best_of(
        &self,
        question: &str,
        lists: Vec<Vec<Window>>,
    ) -> Result<Vec<Option<Window>>, EvaluationError> {
        // A list of one window needs no scorer.
        let texts: Vec<WindowText> = lists
            .iter()
            .filter(|windows| windows.len() > 1)
            .flatten()
            .map(|(_, window)| WindowText {
                title: window.title.clone(),
                text: window.quote.clone(),
            })
            .collect();
        let mut scores = match (texts.is_empty(), self.scorer) {
            (true, _) => Vec::new(),
            (false, Some(scorer)) => scorer.score(question, &texts)?,
            (false, None) => {
                return Err(EvaluationError::Lacks {
                    name: "cut".to_owned(),
                    what: "a window scorer",
                });
            }
        }
        .into_iter();
        let best = lists.into_iter().map(|mut windows| {
            if windows.len() < 2 {
                return windows.pop();
            }
            let scores: Vec<f32> = scores.by_ref().take(windows.len()).collect();
            let score = |at: usize| scores.get(at).copied().unwrap_or(f32::NEG_INFINITY);
            (0..windows.len())
                .rev()
                .max_by(|&a, &b| score(a).total_cmp(&score(b)))
                .map(|at| windows.swap_remove(at))
        });
        Ok(best.collect())
    }

    /// The windows of at most `most` tokens inside `within` that the scorer is asked about, in text order.
    fn windows(
        &self,
        question: &str,
        document: DocumentId,
        within: &Range<u32>,
        most: u32,
    ) -> Result<Vec<Window>, EvaluationError> {
        let stored = self.index.document(document)?;
        let mut windows: Vec<Window> = windows::covering(&stored.paragraphs, within, most)
            .into_iter()
            // A span that holds no whole character cannot be quoted.
            .filter_map(|span| {
                let cited = self.index.cite(&self.tokenizer, document, span.clone());
                Some((span, cited.ok()?))
            })
            .collect();
        if windows.len() > SCORED {
            let texts: Vec<&str> = windows
                .iter()
                .map(|(_, window)| window.quote.as_str())
                .collect();
            let scores = self.index.lexical().score_texts(question, &texts)?;
            let mut order: Vec<usize> = (0..windows.len()).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            order.truncate(SCORED);
            order.sort_unstable();
            windows = order.into_iter().map(|at| windows[at].clone()).collect();
        }
        Ok(windows)
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<DocumentId, Option<Window>>> {
        self.best.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The paragraphs of at most `most` tokens together around number `best`: by turns the next and the one before are
/// taken in, each side until one does not fit.
fn around(paragraphs: &[&Paragraph], best: usize, most: u32) -> Range<usize> {
    let tokens = |at: usize| paragraphs.get(at).map(|one| one.tokens.len() as u32);
    let mut held = best..best + 1;
    let mut room = most.saturating_sub(tokens(best).unwrap_or(0));
    let (mut before, mut after) = (true, true);
    while before || after {
        let next = tokens(held.end).filter(|&tokens| after && tokens <= room);
        match next {
            Some(tokens) => (held.end, room) = (held.end + 1, room - tokens),
            None => after = false,
        }
        let previous = held.start.checked_sub(1).and_then(tokens);
        match previous.filter(|&tokens| before && tokens <= room) {
            Some(tokens) => (held.start, room) = (held.start - 1, room - tokens),
            None => before = false,
        }
    }
    held
}

/// Tokens of the paragraphs.
fn tokens_of(paragraphs: &[&Paragraph]) -> u32 {
    paragraphs
        .iter()
        .map(|paragraph| paragraph.tokens.len() as u32)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_on_both_sides_and_stays_within_its_size() {
        let lengths = [10, 300, 0, 500, 40, 400, 30];
        let mut start = 0;
        let paragraphs: Vec<Paragraph> = lengths
            .iter()
            .enumerate()
            .map(|(at, &length)| {
                let tokens = start..start + length;
                start = tokens.end + 1;
                Paragraph {
                    number: at as u32 + 1,
                    tokens,
                    bytes: 0..0,
                }
            })
            .collect();
        let paragraphs: Vec<&Paragraph> = paragraphs.iter().collect();
        // 300 does not fit any more when its turn comes.
        assert_eq!(around(&paragraphs, 3, 1024), 2..7);
        assert_eq!(around(&paragraphs, 3, 500), 2..4);
        assert_eq!(around(&paragraphs, 0, 1024), 0..5);
        assert_eq!(around(&paragraphs, 6, 1024), 2..7);
        for most in 1..1400 {
            for (best, &length) in lengths.iter().enumerate() {
                let held = around(&paragraphs, best, most);
                assert!(held.contains(&best));
                let tokens = tokens_of(&paragraphs[held.clone()]);
                assert!(tokens <= most.max(length));
                // Nothing that fits is left out on either side.
                let fits = |at: usize| {
                    paragraphs
                        .get(at)
                        .is_some_and(|one| tokens + one.tokens.len() as u32 <= most)
                };
                assert!(!fits(held.end) && (held.start == 0 || !fits(held.start - 1)));
            }
        }
    }
}
