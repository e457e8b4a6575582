//! The shape of a BERT, as `config.json` gives it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::EncoderError;

/// A settings file larger than this is not one.
const SETTINGS_LIMIT: u64 = 1 << 20;
/// Bounds on declared sizes, well above any published encoder.
const LARGEST_SIZE: usize = 1 << 20;
const MOST_LAYERS: usize = 256;

/// The non-linearity of the feed-forward layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Activation {
    /// x Φ(x), by the error function.
    #[serde(rename = "gelu")]
    Gelu,
    /// Its approximation by the hyperbolic tangent.
    #[serde(rename = "gelu_new", alias = "gelu_pytorch_tanh", alias = "gelu_fast")]
    GeluTanh,
    /// max(x, 0).
    #[serde(rename = "relu")]
    Relu,
}

/// The architectures read here; they differ in how positions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum ModelType {
    #[serde(rename = "bert")]
    Bert,
    #[serde(rename = "roberta")]
    Roberta,
    #[serde(rename = "xlm-roberta")]
    XlmRoberta,
}

/// The fields of `config.json` that matter here.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct BertConfig {
    pub model_type: ModelType,
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub intermediate_size: usize,
    pub hidden_act: Activation,
    pub max_position_embeddings: usize,
    #[serde(default = "one")]
    pub type_vocab_size: usize,
    #[serde(default = "small")]
    pub layer_norm_eps: f32,
    #[serde(default)]
    pub pad_token_id: Option<usize>,
    #[serde(default)]
    pub position_embedding_type: Option<String>,
}

fn one() -> usize {
    1
}

fn small() -> f32 {
    1e-12
}

impl BertConfig {
    /// Reads and checks `config.json` in `folder`.
    pub fn open(folder: &Path) -> Result<BertConfig, EncoderError> {
        let path = folder.join("config.json");
        let config: BertConfig = read_json(&path)?;
        let wrong = |place: &str, problem: String| Err(EncoderError::file(&path, place, problem));
        for (place, size) in [
            ("vocab_size", config.vocab_size),
            ("hidden_size", config.hidden_size),
            ("num_attention_heads", config.num_attention_heads),
            ("intermediate_size", config.intermediate_size),
            ("max_position_embeddings", config.max_position_embeddings),
            ("type_vocab_size", config.type_vocab_size),
        ] {
            if size == 0 || size > LARGEST_SIZE {
                return wrong(place, format!("{size}, expected 1 to {LARGEST_SIZE}"));
            }
        }
        if config.num_hidden_layers > MOST_LAYERS {
            return wrong(
                "num_hidden_layers",
                format!(
                    "{}, expected at most {MOST_LAYERS}",
                    config.num_hidden_layers
                ),
            );
        }
        if !config
            .hidden_size
            .is_multiple_of(config.num_attention_heads)
        {
            return wrong(
                "num_attention_heads",
                format!(
                    "{} do not divide a hidden size of {}",
                    config.num_attention_heads, config.hidden_size
                ),
            );
        }
        if let Some(kind) = config.position_embedding_type.as_deref()
            && kind != "absolute"
        {
            return wrong(
                "position_embedding_type",
                format!("{kind:?}, expected \"absolute\""),
            );
        }
        if config.first_position() >= config.max_position_embeddings {
            return wrong("pad_token_id", "it leaves no positions".into());
        }
        Ok(config)
    }

    /// The position of the first token: RoBERTa counts on from its padding id.
    pub fn first_position(&self) -> usize {
        match self.model_type {
            ModelType::Bert => 0,
            ModelType::Roberta | ModelType::XlmRoberta => {
                self.pad_token_id.unwrap_or(1).saturating_add(1)
            }
        }
    }

    /// The longest sequence, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.max_position_embeddings - self.first_position()
    }
}

/// Reads a small JSON file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, EncoderError> {
    let read = |source| EncoderError::Read {
        path: PathBuf::from(path),
        source,
    };
    let bytes = fs::metadata(path).map_err(read)?.len();
    if bytes > SETTINGS_LIMIT {
        return Err(EncoderError::file(
            path,
            "size",
            format!("{bytes} bytes, expected at most {SETTINGS_LIMIT}"),
        ));
    }
    let text = fs::read(path).map_err(read)?;
    serde_json::from_slice(&text)
        .map_err(|error| EncoderError::file(path, "JSON", error.to_string()))
}

/// Reads a small JSON file that may be missing.
pub(super) fn read_json_if_there<T: DeserializeOwned>(
    path: &Path,
) -> Result<Option<T>, EncoderError> {
    if path.exists() {
        read_json(path).map(Some)
    } else {
        Ok(None)
    }
}
