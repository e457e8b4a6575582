//! The dimensions and peculiarities of a model, from its metadata.

use std::path::Path;

use crate::error::{Result, file_error};
use crate::gguf::Gguf;
use crate::kernels::math::Pairing;

/// Longest context that is believed; caches and angles are made as far as they are used.
const LONGEST_CONTEXT: usize = 1 << 24;
/// More layers than any model has.
const MOST_LAYERS: usize = 1 << 10;
/// Wider than any model is.
const WIDEST: usize = 1 << 20;

/// Families of models that the forward pass covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Llama, SmolLM2, Mistral.
    Llama,
}

/// What a layer's rotary positions are computed from.
#[derive(Clone, Debug)]
pub(crate) struct Rotary {
    /// Base of the frequencies.
    pub(crate) base: f32,
    /// What positions are divided by.
    pub(crate) scale: f32,
    /// What each frequency is divided by; empty for 1.
    pub(crate) factors: Vec<f32>,
    /// Dimensions that rotate in a head.
    pub(crate) dimensions: usize,
    /// Which dimensions rotate together.
    pub(crate) pairing: Pairing,
}

/// Dimensions and constants of a model.
#[derive(Clone, Debug)]
pub(crate) struct Architecture {
    pub(crate) family: Family,
    pub(crate) name: String,
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) head: usize,
    pub(crate) hidden: usize,
    pub(crate) context: usize,
    pub(crate) epsilon: f32,
    pub(crate) rotary: Rotary,
}

impl Architecture {
    /// Reads the metadata of a GGUF model.
    pub(crate) fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let path = gguf.path();
        let kind = gguf.text("general.architecture")?;
        let family = match kind {
            "llama" => Family::Llama,
            other => return Err(unknown(path, other)),
        };
        let key = |name: &str| format!("{kind}.{name}");
        let heads = gguf.size(&key("attention.head_count"))?;
        let width = gguf.size(&key("embedding_length"))?;
        let head = gguf
            .size(&key("attention.key_length"))
            .unwrap_or(width / heads.max(1));
        if gguf.number(&key("expert_count")).unwrap_or(0) > 0 {
            return Err(file_error(
                path,
                "expert_count",
                "mixtures of experts are not supported",
                "choose a dense model",
            ));
        }
        let scaling = gguf.text(&key("rope.scaling.type")).unwrap_or("none");
        let scale = match scaling {
            "none" => 1.0,
            "linear" => gguf.float(&key("rope.scaling.factor"))?,
            other => {
                return Err(file_error(
                    path,
                    "rope.scaling.type",
                    format!("'{other}' is not supported"),
                    "choose a model without it",
                ));
            }
        };
        let factors = match gguf.has_tensor("rope_freqs.weight") {
            true => {
                let tensor = gguf.tensor("rope_freqs.weight")?;
                if tensor.dtype != candle_core::quantized::GgmlDType::F32 {
                    return Err(file_error(
                        path,
                        "tensor rope_freqs.weight",
                        "not 32-bit floats",
                        crate::error::FETCH_AGAIN,
                    ));
                }
                tensor
                    .bytes
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .map(|b| f32::from_le_bytes(*b))
                    .collect()
            }
            false => Vec::new(),
        };
        let architecture = Self {
            family,
            name: gguf.text("general.name").unwrap_or(kind).to_owned(),
            layers: gguf.size(&key("block_count"))?,
            width,
            heads,
            key_heads: gguf.size(&key("attention.head_count_kv")).unwrap_or(heads),
            head,
            hidden: gguf.size(&key("feed_forward_length"))?,
            context: gguf.size(&key("context_length"))?,
            epsilon: gguf.float(&key("attention.layer_norm_rms_epsilon"))?,
            rotary: Rotary {
                base: gguf.float(&key("rope.freq_base")).unwrap_or(10_000.0),
                scale,
                factors,
                dimensions: gguf.size(&key("rope.dimension_count")).unwrap_or(head),
                pairing: Pairing::Neighbours,
            },
        };
        architecture.check(path)?;
        Ok(architecture)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let refuse = |place: &str, problem: String| {
            Err(file_error(
                path,
                place,
                problem,
                "the file may be damaged; fetch it again",
            ))
        };
        for (place, value, most) in [
            ("number of layers", self.layers, MOST_LAYERS),
            ("width", self.width, WIDEST),
            ("number of heads", self.heads, WIDEST),
            ("number of key heads", self.key_heads, WIDEST),
            ("dimensions of a head", self.head, WIDEST),
            ("hidden width", self.hidden, WIDEST),
            ("context length", self.context, LONGEST_CONTEXT),
        ] {
            if value == 0 || value > most {
                return refuse(place, format!("{value}; expected 1 to {most}"));
            }
        }
        if !self.heads.is_multiple_of(self.key_heads) {
            return refuse(
                "number of heads",
                format!(
                    "{} is no multiple of the {} key heads",
                    self.heads, self.key_heads
                ),
            );
        }
        if !self.head.is_multiple_of(16) {
            return refuse(
                "dimensions of a head",
                format!("{} is no multiple of 16", self.head),
            );
        }
        let rotary = &self.rotary;
        if rotary.dimensions > self.head || rotary.dimensions % 2 != 0 {
            return refuse(
                "rotary dimensions",
                format!("{} in a head of {}", rotary.dimensions, self.head),
            );
        }
        if !rotary.factors.is_empty() && rotary.factors.len() != rotary.dimensions / 2 {
            return refuse(
                "rotary factors",
                format!(
                    "{}; expected {}",
                    rotary.factors.len(),
                    rotary.dimensions / 2
                ),
            );
        }
        Ok(())
    }
}

fn unknown(path: &Path, found: &str) -> crate::error::ModelError {
    file_error(
        path,
        "architecture",
        format!("'{found}' is not a known family"),
        "choose a model of the Llama family",
    )
}
