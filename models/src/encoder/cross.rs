//! Cross-encoders (Nogueira and Cho 2019, arXiv:1901.04085): question and passage read together,
//! one relevance score.

use std::path::Path;

use super::EncoderError;
use super::bert::{Bert, Dense};
use super::config::ModelType;
use super::tokens::TextTokenizer;
use super::weights::Weights;

/// A model that scores how well a passage answers a question. BERT and RoBERTa or XLM-R with a
/// classification head of one label, as `ms-marco-MiniLM` and `bge-reranker` are published.
pub struct CrossEncoder {
    bert: Bert,
    tokenizer: TextTokenizer,
    /// From the first token's vector, before the hyperbolic tangent.
    pooler: Dense,
    classifier: Dense,
}

impl CrossEncoder {
    /// Opens a cross-encoder from its folder: `config.json`, `tokenizer.json`, `model.safetensors`.
    ///
    /// # Errors
    /// [`EncoderError`] where a file is missing, damaged, or describes a model of another kind, one
    /// with several labels too.
    pub fn open(folder: impl AsRef<Path>) -> Result<CrossEncoder, EncoderError> {
        let folder = folder.as_ref();
        let weights = Weights::open(folder)?;
        let bert = Bert::open(folder, &weights)?;
        let size = bert.config().hidden_size;
        let (pooler, classifier) = match bert.config().model_type {
            ModelType::Bert => (format!("{}pooler.dense", weights.prefix()), "classifier"),
            ModelType::Roberta | ModelType::XlmRoberta => {
                ("classifier.dense".to_owned(), "classifier.out_proj")
            }
        };
        Ok(CrossEncoder {
            pooler: Dense::open(&weights, &pooler, size, size)?,
            classifier: Dense::open(&weights, classifier, size, 1)?,
            tokenizer: TextTokenizer::open(folder, &bert, usize::MAX)?,
            bert,
        })
    }

    /// One score a passage, in their order: the model's logit, without a bound; more is better.
    /// Where question and passage are together beyond [`Self::max_tokens`], the longer one is cut.
    ///
    /// # Errors
    /// [`EncoderError::Tokenize`] where the tokenizer refuses a text.
    pub fn score(&self, question: &str, passages: &[&str]) -> Result<Vec<f32>, EncoderError> {
        let inputs = passages
            .iter()
            .map(|&passage| (question, passage).into())
            .collect();
        let encodings = self.tokenizer.encode(inputs)?;
        let size = self.bert.config().hidden_size;
        Ok(self.tokenizer.grouped(&encodings, |packed| {
            let hidden = self.bert.forward(packed);
            let mut firsts = Vec::with_capacity(packed.sequences.len() * size);
            for sequence in &packed.sequences {
                firsts
                    .extend_from_slice(&hidden[sequence.start * size..(sequence.start + 1) * size]);
            }
            let mut pooled = vec![0.0; firsts.len()];
            self.pooler.apply(&firsts, &mut pooled);
            pooled.iter_mut().for_each(|value| *value = value.tanh());
            let mut scores = vec![0.0; packed.sequences.len()];
            self.classifier.apply(&pooled, &mut scores);
            scores
        }))
    }

    /// The longest pair in tokens, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.tokenizer.max_tokens()
    }
}

impl std::fmt::Debug for CrossEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CrossEncoder")
            .field("max_tokens", &self.max_tokens())
            .finish_non_exhaustive()
    }
}
