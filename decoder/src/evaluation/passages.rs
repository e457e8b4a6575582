//! What of a document is retrieved and judged: its text whole, and cut to a number of tokens around its best window.

use std::collections::HashMap;
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
    /// A document of more tokens than this is retrieved as its best window of that many.
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

/// Where a best window was found: the question, the document, and the window's size.
type Wanted = (String, DocumentId, u32);

/// Makes passages of documents. Best windows are remembered, since methods retrieve the same documents.
pub struct Passages<'a> {
    index: &'a Index,
    tokenizer: Arc<Tokenizer>,
    scorer: &'a dyn WindowScorer,
    sizes: Sizes,
    best: Mutex<HashMap<Wanted, Option<Citation>>>,
}

impl<'a> Passages<'a> {
    /// Passages of the documents of `index`, best windows by `scorer`.
    ///
    /// # Errors
    /// The tokenizer of the index cannot be read.
    pub fn new(
        index: &'a Index,
        scorer: &'a dyn WindowScorer,
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

    /// The passage that retrieving `document` for `question` gives, not cut yet.
    ///
    /// # Errors
    /// The document cannot be read or its windows cannot be scored.
    pub fn passage(
        &self,
        question: &str,
        document: DocumentId,
        score: f64,
    ) -> Result<Retrieved, EvaluationError> {
        let stored = self.index.document(document)?;
        let tokens = tokens_of(&stored.paragraphs);
        if tokens > self.sizes.passage
            && let [Some(window)] =
                &self.best_windows(question, &[document], self.sizes.passage)?[..]
        {
            return Ok(self.quoted(window.clone(), score));
        }
        let mut passages: Vec<String> = Vec::new();
        for paragraph in stored.paragraphs.iter().filter(|one| !one.is_title()) {
            let id = self.index.external_id(document, paragraph.number)?;
            if id != stored.id && passages.last().is_none_or(|last| last != id) {
                passages.push(id.to_owned());
            }
        }
        Ok(Retrieved {
            id: stored.id.to_owned(),
            passages,
            title: stored.title.to_owned(),
            text: stored.text.into_owned(),
            tokens,
            score,
            cut: None,
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

    /// Cuts the passages of these documents to their best windows; all are scored in one batch.
    ///
    /// # Errors
    /// As [`Passages::passage`].
    pub fn cut(
        &self,
        question: &str,
        documents: &[DocumentId],
        passages: &mut [Retrieved],
    ) -> Result<(), EvaluationError> {
        let most = self.sizes.cut;
        let long = |passage: &Retrieved| most > 0 && passage.tokens > most;
        let wanted: Vec<DocumentId> = documents
            .iter()
            .zip(passages.iter())
            .filter(|(_, passage)| long(passage))
            .map(|(&document, _)| document)
            .collect();
        let windows = self.best_windows(question, &wanted, self.sizes.cut)?;
        let cut = passages.iter_mut().filter(|passage| long(passage));
        for (passage, window) in cut.zip(windows) {
            passage.cut = window.map(|window| window.quote);
        }
        Ok(())
    }

    /// Of each document the window of at most `most` tokens that the scorer likes best; the first among
    /// equals, `None` where nothing can be quoted.
    fn best_windows(
        &self,
        question: &str,
        documents: &[DocumentId],
        most: u32,
    ) -> Result<Vec<Option<Citation>>, EvaluationError> {
        let key = |document| (question.to_owned(), document, most);
        let mut windows: Vec<(DocumentId, Vec<Citation>)> = Vec::new();
        for &document in documents {
            let known = self.remembered().contains_key(&key(document));
            if !known && windows.iter().all(|(other, _)| *other != document) {
                windows.push((document, self.windows(question, document, most)?));
            }
        }
        // A document of one window needs no scorer.
        let texts: Vec<WindowText> = windows
            .iter()
            .filter(|(_, windows)| windows.len() > 1)
            .flat_map(|(_, windows)| windows)
            .map(|window| WindowText {
                title: window.title.clone(),
                text: window.quote.clone(),
            })
            .collect();
        let mut scores = if texts.is_empty() {
            Vec::new()
        } else {
            self.scorer.score(question, &texts)?
        }
        .into_iter();
        let mut remembered = self.remembered();
        for (document, mut windows) in windows {
            let best = if windows.len() > 1 {
                let scores: Vec<f32> = scores.by_ref().take(windows.len()).collect();
                let score = |at: usize| scores.get(at).copied().unwrap_or(f32::NEG_INFINITY);
                (0..windows.len())
                    .rev()
                    .max_by(|&a, &b| score(a).total_cmp(&score(b)))
                    .map(|at| windows.swap_remove(at))
            } else {
                windows.pop()
            };
            remembered.insert(key(document), best);
        }
        Ok(documents
            .iter()
            .map(|&document| remembered.get(&key(document)).cloned().flatten())
            .collect())
    }

    /// The windows of a document that the scorer is asked about, in text order.
    fn windows(
        &self,
        question: &str,
        document: DocumentId,
        most: u32,
    ) -> Result<Vec<Citation>, EvaluationError> {
        let stored = self.index.document(document)?;
        let mut windows: Vec<Citation> = windows::covering(&stored.paragraphs, most)
            .into_iter()
            // A span that holds no whole character cannot be quoted.
            .filter_map(|span| self.index.cite(&self.tokenizer, document, span).ok())
            .collect();
        if windows.len() > SCORED {
            let texts: Vec<&str> = windows.iter().map(|window| window.quote.as_str()).collect();
            let scores = self.index.lexical().score_texts(question, &texts)?;
            let mut order: Vec<usize> = (0..windows.len()).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            order.truncate(SCORED);
            order.sort_unstable();
            windows = order.into_iter().map(|at| windows[at].clone()).collect();
        }
        Ok(windows)
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<Wanted, Option<Citation>>> {
        self.best.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens of the paragraphs, the title left out.
fn tokens_of(paragraphs: &[Paragraph]) -> u32 {
    let quoted = paragraphs.iter().filter(|paragraph| !paragraph.is_title());
    quoted
        .map(|paragraph| paragraph.tokens.end - paragraph.tokens.start)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_not_counted() {
        let paragraphs = [0..5, 6..16, 17..17, 18..42].map(|tokens| Paragraph {
            number: u32::from(tokens.start > 0),
            tokens,
            bytes: 0..0,
        });
        assert_eq!(tokens_of(&paragraphs), 34);
    }
}
