//! Sentence embeddings (Reimers and Gurevych 2019, arXiv:1908.10084): one unit vector a text.

use std::path::Path;

use serde::Deserialize;

use super::EncoderError;
use super::bert::Bert;
use super::config::{read_json, read_json_if_there};
use super::math::{add, dot};
use super::tokens::TextTokenizer;
use super::weights::Weights;

/// A model that maps a text to one dense vector of length 1.
pub struct SentenceEncoder {
    bert: Bert,
    tokenizer: TextTokenizer,
    pooling: Pooling,
}

/// How the vectors of the tokens become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pooling {
    /// Their mean.
    Mean,
    /// The first.
    First,
    /// The largest value in each dimension.
    Largest,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PoolingConfig {
    pooling_mode_cls_token: bool,
    pooling_mode_mean_tokens: bool,
    pooling_mode_max_tokens: bool,
    pooling_mode_mean_sqrt_len_tokens: bool,
    pooling_mode_weightedmean_tokens: bool,
    pooling_mode_lasttoken: bool,
}

#[derive(Debug, Deserialize)]
struct LengthConfig {
    max_seq_length: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct Module {
    #[serde(rename = "type")]
    kind: String,
}

impl SentenceEncoder {
    /// Opens an encoder from its folder: `config.json`, `tokenizer.json`, `model.safetensors`, and,
    /// where they are there, `sentence_bert_config.json` (longest sequence), `1_Pooling/config.json`
    /// and `modules.json`, as sentence-transformers lays them out.
    ///
    /// # Errors
    /// [`EncoderError`] where a file is missing, damaged, or describes a model of another kind.
    pub fn open(folder: impl AsRef<Path>) -> Result<SentenceEncoder, EncoderError> {
        let folder = folder.as_ref();
        check_modules(folder)?;
        let pooling = read_pooling(folder)?;
        let length: Option<LengthConfig> =
            read_json_if_there(&folder.join("sentence_bert_config.json"))?;
        let max_tokens = length
            .and_then(|length| length.max_seq_length)
            .unwrap_or(usize::MAX);
        let bert = Bert::open(folder, &Weights::open(folder)?)?;
        let tokenizer = TextTokenizer::open(folder, &bert, max_tokens)?;
        Ok(SentenceEncoder {
            bert,
            tokenizer,
            pooling,
        })
    }

    /// One vector a text, in the order of the texts, each of [`Self::dimension`] values and length
    /// 1, so that the inner product of two is their cosine. A text beyond [`Self::max_tokens`] is
    /// cut. The same text gives the same bits whatever it is embedded with, on any number of threads.
    ///
    /// # Errors
    /// [`EncoderError::Tokenize`] where the tokenizer refuses a text.
    pub fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EncoderError> {
        let inputs = texts.iter().map(|&text| text.into()).collect();
        let encodings = self.tokenizer.encode(inputs)?;
        Ok(self.tokenizer.grouped(&encodings, |packed| {
            let hidden = self.bert.forward(packed);
            let size = self.dimension();
            let pool = |sequence: &std::ops::Range<usize>| {
                self.pooling
                    .apply(&hidden[sequence.start * size..sequence.end * size], size)
            };
            packed.sequences.iter().map(pool).collect()
        }))
    }

    /// The number of values in a vector.
    pub fn dimension(&self) -> usize {
        self.bert.config().hidden_size
    }

    /// The longest text in tokens, special tokens included; the rest of a longer one is cut.
    pub fn max_tokens(&self) -> usize {
        self.tokenizer.max_tokens()
    }
}

impl std::fmt::Debug for SentenceEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SentenceEncoder")
            .field("dimension", &self.dimension())
            .field("max_tokens", &self.max_tokens())
            .field("pooling", &self.pooling)
            .finish_non_exhaustive()
    }
}

impl Pooling {
    /// Pools rows of `size` values into one, of length 1.
    fn apply(self, rows: &[f32], size: usize) -> Vec<f32> {
        let mut pooled = rows[..size].to_vec();
        let others = rows[size..].chunks_exact(size);
        match self {
            Pooling::First => {}
            // The mean is the sum up to its length, which is taken out below.
            Pooling::Mean => others.for_each(|row| add(&mut pooled, row)),
            Pooling::Largest => others.for_each(|row| {
                pooled
                    .iter_mut()
                    .zip(row)
                    .for_each(|(most, value)| *most = most.max(*value));
            }),
        }
        let length = dot(&pooled, &pooled).sqrt();
        if length > 0.0 {
            pooled.iter_mut().for_each(|value| *value /= length);
        }
        pooled
    }
}

/// Refuses a model with parts that are not computed here.
fn check_modules(folder: &Path) -> Result<(), EncoderError> {
    let path = folder.join("modules.json");
    let modules: Option<Vec<Module>> = read_json_if_there(&path)?;
    for module in modules.unwrap_or_default() {
        let kind = module.kind.rsplit('.').next().unwrap_or_default();
        if !matches!(kind, "Transformer" | "Pooling" | "Normalize") {
            return Err(EncoderError::file(
                &path,
                "type",
                format!("{kind:?}, expected Transformer, Pooling and Normalize only"),
            ));
        }
    }
    Ok(())
}

fn read_pooling(folder: &Path) -> Result<Pooling, EncoderError> {
    let path = folder.join("1_Pooling").join("config.json");
    if !path.exists() {
        return Ok(Pooling::Mean);
    }
    let config: PoolingConfig = read_json(&path)?;
    let others = config.pooling_mode_mean_sqrt_len_tokens
        || config.pooling_mode_weightedmean_tokens
        || config.pooling_mode_lasttoken;
    match (
        config.pooling_mode_mean_tokens,
        config.pooling_mode_cls_token,
        config.pooling_mode_max_tokens,
    ) {
        (true, false, false) if !others => Ok(Pooling::Mean),
        (false, true, false) if !others => Ok(Pooling::First),
        (false, false, true) if !others => Ok(Pooling::Largest),
        _ => Err(EncoderError::file(
            &path,
            "pooling_mode",
            "expected exactly one of mean, cls and max",
        )),
    }
}
