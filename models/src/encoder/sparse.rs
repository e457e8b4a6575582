//! Sparse lexical vectors by SPLADE (Formal et al. 2021, arXiv:2109.10086): one weight a word
//! piece of the vocabulary, the largest over the text's tokens of log(1 + max(logit, 0)).

use std::path::Path;

use super::EncoderError;
use super::bert::{Bert, Dense, open_norm};
use super::math::LayerNorm;
use super::tokens::TextTokenizer;
use super::weights::Weights;

/// Tokens whose logits over the whole vocabulary are held at once.
const ROWS_AT_ONCE: usize = 32;

/// A model that maps a text to weights over its vocabulary: a BERT with its masked-LM head.
pub struct SparseEncoder {
    bert: Bert,
    tokenizer: TextTokenizer,
    transform: Dense,
    norm: LayerNorm,
    decoder: Dense,
}

/// The non-zero weights of a text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SparseVector {
    /// Token ids, increasing.
    pub ids: Vec<u32>,
    /// Their weights, all above 0.
    pub weights: Vec<f32>,
}

impl SparseVector {
    /// The inner product: the score of a text for a question.
    pub fn dot(&self, other: &SparseVector) -> f32 {
        let (mut at, mut total) = (0, 0.0);
        for (id, weight) in self.ids.iter().zip(&self.weights) {
            while other.ids.get(at).is_some_and(|other| other < id) {
                at += 1;
            }
            if other.ids.get(at) == Some(id) {
                total += weight * other.weights[at];
            }
        }
        total
    }
}

impl SparseEncoder {
    /// Opens a SPLADE from its folder: `config.json`, `tokenizer.json`, `model.safetensors` with
    /// the head under `cls.predictions`. Decoder weights that are not there are tied to the word
    /// embeddings. Sequences are cut at 256 tokens, as these models are trained.
    ///
    /// # Errors
    /// [`EncoderError`] where a file is missing, damaged, or describes a model of another kind.
    pub fn open(folder: impl AsRef<Path>) -> Result<SparseEncoder, EncoderError> {
        let folder = folder.as_ref();
        let weights = Weights::open(folder)?;
        let bert = Bert::open(folder, &weights)?;
        let (size, vocabulary) = (bert.config().hidden_size, bert.config().vocab_size);
        let decoder = "cls.predictions.decoder.weight";
        let decoder = if weights.has(decoder) {
            weights.tensor(decoder, &[vocabulary, size])?
        } else {
            bert.words().to_vec()
        };
        let bias = weights.tensor("cls.predictions.bias", &[vocabulary])?;
        Ok(SparseEncoder {
            transform: Dense::open(&weights, "cls.predictions.transform.dense", size, size)?,
            norm: open_norm(
                &weights,
                "cls.predictions.transform.LayerNorm",
                size,
                bert.config().layer_norm_eps,
            )?,
            decoder: Dense::new(&decoder, &bias, size),
            tokenizer: TextTokenizer::open(folder, &bert, 256)?,
            bert,
        })
    }

    /// One vector a text, in the order of the texts.
    ///
    /// # Errors
    /// [`EncoderError::Tokenize`] where the tokenizer refuses a text.
    pub fn encode(&self, texts: &[&str]) -> Result<Vec<SparseVector>, EncoderError> {
        let inputs = texts.iter().map(|&text| text.into()).collect();
        let encodings = self.tokenizer.encode(inputs)?;
        let size = self.bert.config().hidden_size;
        Ok(self.tokenizer.grouped(&encodings, |packed| {
            let hidden = self.bert.forward(packed);
            let mut rows = vec![0.0; hidden.len()];
            self.transform
                .apply_activated(&hidden, self.bert.activation(), &mut rows);
            self.norm.apply(&mut rows);
            let of = |sequence: &std::ops::Range<usize>| {
                self.largest(&rows[sequence.start * size..sequence.end * size])
            };
            packed.sequences.iter().map(of).collect()
        }))
    }

    /// The text of a token id of the vocabulary.
    pub fn token(&self, id: u32) -> Option<String> {
        self.tokenizer.token(id)
    }

    /// The longest text in tokens, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.tokenizer.max_tokens()
    }

    /// The weights of one text from its transformed rows. The logarithm grows with its argument,
    /// so the largest logit is found first.
    fn largest(&self, rows: &[f32]) -> SparseVector {
        let (size, vocabulary) = (
            self.bert.config().hidden_size,
            self.bert.config().vocab_size,
        );
        let mut most = vec![0.0f32; vocabulary];
        let mut logits = vec![0.0; vocabulary * ROWS_AT_ONCE.min(rows.len() / size)];
        for block in rows.chunks(size * ROWS_AT_ONCE) {
            let logits = &mut logits[..block.len() / size * vocabulary];
            self.decoder.apply(block, logits);
            for row in logits.chunks_exact(vocabulary) {
                for (most, &logit) in most.iter_mut().zip(row) {
                    *most = if logit > *most { logit } else { *most };
                }
            }
        }
        let mut vector = SparseVector::default();
        for (id, &logit) in most.iter().enumerate() {
            if logit > 0.0 {
                vector.ids.push(id as u32);
                vector.weights.push(logit.ln_1p());
            }
        }
        vector
    }
}

impl std::fmt::Debug for SparseEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SparseEncoder")
            .field("vocabulary", &self.bert.config().vocab_size)
            .field("max_tokens", &self.max_tokens())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_products_meet_where_ids_meet() {
        let vector = |pairs: &[(u32, f32)]| SparseVector {
            ids: pairs.iter().map(|pair| pair.0).collect(),
            weights: pairs.iter().map(|pair| pair.1).collect(),
        };
        let one = vector(&[(1, 2.0), (5, 3.0), (9, 1.0)]);
        let two = vector(&[(0, 7.0), (5, 0.5), (9, 4.0), (11, 1.0)]);
        assert_eq!(one.dot(&two), 5.5);
        assert_eq!(two.dot(&one), 5.5);
        assert_eq!(one.dot(&SparseVector::default()), 0.0);
    }
}
