//! Window scorers: how relevant a window is to the question.

use corpus_tools::lexical::Lexical;
use fmindex::FileError;
use models::encoder::{EncoderError, SentenceEncoder};

/// The text of a window as a scorer reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowText {
    /// Title of the window's document; not evidence, but in many paragraphs the only place that names the subject.
    pub title: String,
    /// The window's words.
    pub text: String,
}

impl WindowText {
    /// Title in front of the words.
    pub fn joined(&self) -> String {
        if self.title.is_empty() {
            self.text.clone()
        } else {
            format!("{}. {}", self.title, self.text)
        }
    }
}

/// Why windows could not be scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScorerError {
    /// The encoder behind the scorer failed.
    #[error(transparent)]
    Encoder(#[from] EncoderError),
    /// The term weights of the index could not be read.
    #[error(transparent)]
    Lexical(#[from] FileError),
}

/// Scores windows against a question; higher is more relevant, the scale is the scorer's own.
pub trait WindowScorer: Send + Sync {
    /// One score a window, in order.
    ///
    /// # Errors
    /// See [`ScorerError`].
    fn score(&self, question: &str, windows: &[WindowText]) -> Result<Vec<f32>, ScorerError>;
}

/// BM25 of the windows at hand (k1 0.9, b 0.4), with the term weights of the whole collection.
#[derive(Debug, Clone)]
pub struct Bm25Scorer {
    lexical: Lexical,
}

impl Bm25Scorer {
    /// A scorer with the term weights of `lexical`.
    pub fn new(lexical: Lexical) -> Self {
        Self { lexical }
    }
}

impl WindowScorer for Bm25Scorer {
    fn score(&self, question: &str, windows: &[WindowText]) -> Result<Vec<f32>, ScorerError> {
        let texts: Vec<String> = windows.iter().map(WindowText::joined).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        Ok(self.lexical.score_texts(question, &texts)?)
    }
}

/// Cosine of sentence embeddings.
pub struct EmbeddingScorer {
    encoder: SentenceEncoder,
}

impl EmbeddingScorer {
    /// A scorer over a loaded sentence encoder.
    pub fn new(encoder: SentenceEncoder) -> Self {
        Self { encoder }
    }
}

impl WindowScorer for EmbeddingScorer {
    fn score(&self, question: &str, windows: &[WindowText]) -> Result<Vec<f32>, ScorerError> {
        let joined: Vec<String> = windows.iter().map(WindowText::joined).collect();
        let mut texts = vec![question];
        texts.extend(joined.iter().map(String::as_str));
        let embeddings = self.encoder.embed(&texts)?;
        let Some((question, windows)) = embeddings.split_first() else {
            return Ok(Vec::new());
        };
        // Embeddings have length 1, so the dot product is the cosine.
        Ok(windows
            .iter()
            .map(|window| window.iter().zip(question).map(|(a, b)| a * b).sum())
            .collect())
    }
}
