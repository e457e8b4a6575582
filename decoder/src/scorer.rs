//! Window scorers: how relevant a window is to the question.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corpus_tools::analysis::Analyser;
use corpus_tools::lexical::Lexical;
use corpus_tools::{Index, bm25};
use fmindex::{DocumentId, FileError};
use models::ModelError;
use models::encoder::{CrossEncoder, EncoderError, SentenceEncoder, SparseEncoder};
use models::language_model::{LanguageModel, Wanted};

use crate::vectors::{self, Encoder, Vectors, VectorsError};

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
    /// The language model behind the scorer failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The term weights of the index could not be read.
    #[error(transparent)]
    Lexical(#[from] FileError),
    /// The kept vectors of the index cannot be used.
    #[error(transparent)]
    Vectors(#[from] VectorsError),
}

/// Scores windows against a question; higher is more relevant, the scale is the scorer's own.
pub trait WindowScorer: Send + Sync {
    /// One score a window, in order.
    ///
    /// # Errors
    /// See [`ScorerError`].
    fn score(&self, question: &str, windows: &[WindowText]) -> Result<Vec<f32>, ScorerError>;

    /// One row of scores a text, in order. A scorer that prepares windows prepares them once.
    ///
    /// # Errors
    /// See [`ScorerError`].
    fn score_all(
        &self,
        texts: &[&str],
        windows: &[WindowText],
    ) -> Result<Vec<Vec<f32>>, ScorerError> {
        texts.iter().map(|text| self.score(text, windows)).collect()
    }

    /// Forgets what it keeps to be faster the next time; scores do not depend on it. For whoever measures time.
    fn forget(&self) {}

    /// The embedding scorer that it is, if it is one: what it embeds with can also rank documents.
    fn as_embedding(&self) -> Option<&EmbeddingScorer> {
        None
    }
}

/// BM25 of the texts at hand (k1 0.9, b 0.4), with the term weights of these texts: for what was never indexed.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextBm25Scorer {
    analyser: Analyser,
}

impl TextBm25Scorer {
    /// A scorer that stems so.
    pub fn new(analyser: Analyser) -> Self {
        Self { analyser }
    }
}

impl WindowScorer for TextBm25Scorer {
    fn score(&self, question: &str, windows: &[WindowText]) -> Result<Vec<f32>, ScorerError> {
        let mut rows = self.score_all(&[question], windows)?;
        Ok(rows.pop().unwrap_or_default())
    }

    fn score_all(
        &self,
        texts: &[&str],
        windows: &[WindowText],
    ) -> Result<Vec<Vec<f32>>, ScorerError> {
        // A title that stands before every window of a document tells those apart from other documents' only.
        let joined: Vec<String> = windows.iter().map(WindowText::joined).collect();
        let joined: Vec<&str> = joined.iter().map(String::as_str).collect();
        Ok(bm25::scores(&self.analyser, texts, &joined))
    }
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

/// Embeddings that [`EmbeddingScorer`] remembers: 50 MB of 384 values each.
const REMEMBERED: usize = 1 << 15;

/// Cosine of sentence embeddings. Texts whose vectors the index keeps are not embedded; those that were embedded before,
/// as the windows of documents that several questions lead to, are remembered.
pub struct EmbeddingScorer {
    encoder: SentenceEncoder,
    vectors: Option<Vectors>,
    remembered: Mutex<Remembered>,
}

/// Embeddings by the hash of their text, in two generations: when the younger is full it becomes the older,
/// whose embeddings are forgotten unless they are asked for again.
#[derive(Default)]
struct Remembered {
    younger: HashMap<u128, Arc<[f32]>>,
    older: HashMap<u128, Arc<[f32]>>,
}

impl Remembered {
    fn get(&mut self, key: u128) -> Option<Arc<[f32]>> {
        if let Some(embedding) = self.younger.get(&key) {
            return Some(Arc::clone(embedding));
        }
        let embedding = self.older.remove(&key)?;
        self.insert(key, Arc::clone(&embedding));
        Some(embedding)
    }

    fn insert(&mut self, key: u128, embedding: Arc<[f32]>) {
        if self.younger.len() >= REMEMBERED / 2 {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(key, embedding);
    }
}

impl EmbeddingScorer {
    /// A scorer over a loaded sentence encoder.
    pub fn new(encoder: SentenceEncoder) -> Self {
        Self {
            encoder,
            vectors: None,
            remembered: Mutex::default(),
        }
    }

    /// A scorer over a loaded sentence encoder and the vectors that an index keeps of it.
    pub fn with_vectors(encoder: Encoder, vectors: Vectors) -> Self {
        Self {
            vectors: Some(vectors),
            ..Self::new(encoder.model)
        }
    }

    /// A scorer over the sentence encoder in `folder`, with the vectors that `index` keeps of it, if it keeps any.
    ///
    /// # Errors
    /// The folder holds no encoder, or a file of vectors is foreign or damaged.
    pub fn open(folder: &Path, index: &Index) -> Result<Self, ScorerError> {
        // The fingerprint takes reading all weights again.
        if !Vectors::any(index) {
            return Ok(Self::new(SentenceEncoder::open(folder)?));
        }
        let encoder = Encoder::open(folder)?;
        let vectors = Vectors::open(index, &encoder)?;
        Ok(Self::with_vectors(encoder, vectors))
    }

    /// The vectors that the index keeps.
    pub fn vectors(&self) -> Option<&Vectors> {
        self.vectors.as_ref()
    }

    /// Dense retrieval: the `k` best documents for `question` with the cosine of their best paragraph, as
    /// [`Vectors::search`]; none where it has no vectors.
    ///
    /// # Errors
    /// The question cannot be embedded, or segments have no vectors.
    pub fn search(&self, question: &str, k: usize) -> Result<Vec<(DocumentId, f64)>, ScorerError> {
        let embedded = self.embed(&[question])?;
        match (&self.vectors, embedded.first()) {
            (Some(vectors), Some(question)) => Ok(vectors.search(question, k)?),
            _ => Ok(Vec::new()),
        }
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The embedding of each text; those that are neither kept nor remembered are computed in one batch.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EncoderError> {
        let remembered = || self.remembered();
        let keys: Vec<u128> = texts.iter().map(|text| vectors::key(text)).collect();
        let mut found: HashMap<u128, Arc<[f32]>> = HashMap::new();
        if let Some(vectors) = &self.vectors {
            let kept = |&key: &u128| Some((key, vectors.get(key)?));
            found.extend(keys.iter().filter_map(kept));
        }
        let mut unknown: Vec<(u128, &str)> = Vec::new();
        let mut asked: HashSet<u128> = HashSet::new();
        {
            let mut remembered = remembered();
            for (&key, &text) in keys.iter().zip(texts) {
                if found.contains_key(&key) {
                    continue;
                }
                match remembered.get(key) {
                    Some(embedding) => _ = found.insert(key, embedding),
                    None if asked.insert(key) => unknown.push((key, text)),
                    None => {}
                }
            }
        }
        let new: Vec<&str> = unknown.iter().map(|(_, text)| *text).collect();
        let computed = self.encoder.embed(&new)?;
        let mut remembered = remembered();
        for ((key, _), embedding) in unknown.into_iter().zip(computed) {
            let embedding: Arc<[f32]> = embedding.into();
            remembered.insert(key, Arc::clone(&embedding));
            found.insert(key, embedding);
        }
        Ok(keys
            .iter()
            .filter_map(|key| found.get(key).cloned())
            .collect())
    }
}

impl WindowScorer for EmbeddingScorer {
    fn forget(&self) {
        *self.remembered() = Remembered::default();
    }

    fn as_embedding(&self) -> Option<&EmbeddingScorer> {
        Some(self)
    }

    fn score(&self, question: &str, windows: &[WindowText]) -> Result<Vec<f32>, ScorerError> {
        let mut rows = self.score_all(&[question], windows)?;
        Ok(rows.pop().unwrap_or_default())
    }

    fn score_all(
        &self,
        texts: &[&str],
        windows: &[WindowText],
    ) -> Result<Vec<Vec<f32>>, ScorerError> {
        let joined: Vec<String> = windows.iter().map(WindowText::joined).collect();
        let mut all = texts.to_vec();
        all.extend(joined.iter().map(String::as_str));
        let embeddings = self.embed(&all)?;
        let (texts, windows) = embeddings.split_at(texts.len());
        // Embeddings have length 1, so the dot product is the cosine.
        let cosine = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum();
        Ok(texts
            .iter()
            .map(|text| windows.iter().map(|window| cosine(text, window)).collect())
            .collect())
    }
}

/// A cross-encoder: question and window read together (Nogueira and Cho 2019, arXiv:1901.04085).
pub struct CrossEncoderScorer {
    encoder: CrossEncoder,
}

impl CrossEncoderScorer {
    /// A scorer over a loaded cross-encoder.
    pub fn new(encoder: CrossEncoder) -> Self {
        Self { encoder }
    }
}

impl WindowScorer for CrossEncoderScorer {
    fn score(&self, question: &str, windows: &[WindowText]) -> Result<Vec<f32>, ScorerError> {
        let joined: Vec<String> = windows.iter().map(WindowText::joined).collect();
        let texts: Vec<&str> = joined.iter().map(String::as_str).collect();
        Ok(self.encoder.score(question, &texts)?)
    }
}

/// Query likelihood: the mean log-probability of the question's tokens after the window, under the language
/// model (Sachan et al. 2022, arXiv:2204.07496). No further model is needed, but every window is read.
pub struct LikelihoodScorer<'m> {
    model: &'m LanguageModel,
}

impl<'m> LikelihoodScorer<'m> {
    /// A scorer with the given model.
    pub fn new(model: &'m LanguageModel) -> Self {
        Self { model }
    }
}

impl WindowScorer for LikelihoodScorer<'_> {
    fn score(&self, question: &str, windows: &[WindowText]) -> Result<Vec<f32>, ScorerError> {
        let tokenizer = self.model.tokenizer();
        let question = tokenizer.encode_text(&format!(" {}", question.trim()));
        let prompt = tokenizer.encode_text("\nA question that this text answers:");
        let room = self.model.context_length();
        let room = room.saturating_sub(question.len() + prompt.len() + 1);
        let mut scores = Vec::with_capacity(windows.len());
        for window in windows {
            let mut tokens: Vec<u32> = tokenizer.begin_token().into_iter().collect();
            tokens.extend(tokenizer.encode_text(&window.joined()));
            tokens.truncate(room);
            tokens.extend(&prompt);
            let mut cache = self.model.new_cache();
            self.model.forward(&mut cache, &tokens, Wanted::None)?;
            let tokens = self.model.score_continuations(&cache, &[&question])?;
            let sum: f32 = tokens.iter().flatten().sum();
            scores.push(sum / question.len().max(1) as f32);
        }
        Ok(scores)
    }
}

/// The `most` strongest terms of a question under a sparse lexical model, the strongest first: words of the
/// model's vocabulary, no pieces of words and no marks.
///
/// # Errors
/// The encoder's own.
pub fn expand(
    encoder: &SparseEncoder,
    question: &str,
    most: usize,
) -> Result<Vec<String>, ScorerError> {
    let mut terms: Vec<(u32, f32)> = Vec::new();
    for vector in encoder.encode(&[question])? {
        terms.extend(vector.ids.iter().copied().zip(vector.weights));
    }
    terms.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let words = terms
        .into_iter()
        .filter_map(|(id, _)| encoder.token(id))
        .filter(|word| word.chars().all(char::is_alphanumeric) && word.chars().count() > 1);
    Ok(words.take(most).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::embed;
    use crate::vectors::tests::{DOCUMENTS, encoder_folder, index};

    #[test]
    fn scores_do_not_depend_on_what_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), DOCUMENTS);
        let open = || EmbeddingScorer::open(&encoder_folder(), &index).unwrap();
        let without = open();
        assert!(without.vectors().is_none());
        let encoder = Encoder::open(&encoder_folder()).unwrap();
        embed(&index, &encoder, 1, &()).unwrap();
        let with = open();
        let window = |title: &str, text: &str| WindowText {
            title: title.to_owned(),
            text: text.to_owned(),
        };
        let mut windows = vec![
            window("Ed Wood", "Ed Wood made films."),
            window("Caf\u{e9}", "Un caf\u{e9} noir."),
            window("", "No title."),
            window("", "No title."),
        ];
        // As titles came: only texts are in the canonical form.
        windows[1].title = DOCUMENTS[1].1.to_owned();
        let scores = |scorer: &EmbeddingScorer, windows: &[WindowText]| -> Vec<u32> {
            let scores = scorer.score("Who made films?", windows).unwrap();
            scores.into_iter().map(f32::to_bits).collect()
        };
        assert_eq!(scores(&with, &windows), scores(&without, &windows));
        // The question alone was embedded.
        assert_eq!(with.remembered().younger.len(), 1);
        assert_eq!(without.remembered().younger.len(), 4);
        windows.insert(1, window("Ed Wood", "Ed Wood made"));
        assert_eq!(scores(&with, &windows), scores(&without, &windows));
        assert_eq!(with.remembered().younger.len(), 2);
        with.forget();
        assert_eq!(scores(&with, &windows), scores(&without, &windows));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_is_asked_for_stays() {
        let mut remembered = Remembered::default();
        let embedding = |key: u128| -> Arc<[f32]> { [key as f32].into() };
        remembered.insert(0, embedding(0));
        for key in 1..3 * REMEMBERED as u128 {
            remembered.insert(key, embedding(key));
            assert_eq!(remembered.get(0).as_deref(), Some(&[0.0][..]));
            assert!(remembered.younger.len() + remembered.older.len() <= REMEMBERED);
        }
        assert_eq!(remembered.get(1), None);
        let last = 3 * REMEMBERED as u128 - 1;
        assert_eq!(remembered.get(last).as_deref(), Some(&[last as f32][..]));
    }
}
