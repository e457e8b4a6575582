//! The dimensions and peculiarities of a model, from its metadata.

use std::path::Path;

use serde_json::Value;

use crate::error::{FETCH_AGAIN, ModelError, Result, file_error};
use crate::gguf::Gguf;
use crate::kernels::math::Pairing;

/// Longest context that is believed; caches and angles are made as far as they are used.
const LONGEST_CONTEXT: usize = 1 << 24;
/// More layers than any model has.
const MOST_LAYERS: usize = 1 << 10;
/// Wider than any model is.
const WIDEST: usize = 1 << 20;
/// In Gemma 3 one layer of six sees everything.
const GEMMA_PATTERN: usize = 6;

/// Families of models that the forward pass covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Llama, SmolLM2, Mistral.
    Llama,
    /// Qwen2 and Qwen2.5: biases on queries, keys and values.
    Qwen2,
    /// Qwen3: queries and keys normalised by head.
    Qwen3,
    /// Gemma 3, text: as Qwen3, with further norms, GELU, and layers that see a window only.
    Gemma3,
}

impl Family {
    fn by_name(path: &Path, name: &str) -> Result<Self> {
        match name {
            "llama" | "mistral" => Ok(Self::Llama),
            "qwen2" => Ok(Self::Qwen2),
            "qwen3" => Ok(Self::Qwen3),
            "gemma3" | "gemma3_text" => Ok(Self::Gemma3),
            other => Err(file_error(
                path,
                "architecture",
                format!("'{other}' is not a known family"),
                "choose a model of the Llama, Qwen2, Qwen3 or Gemma 3 family",
            )),
        }
    }
}

/// What a layer's rotary positions are computed from.
#[derive(Clone, Debug, PartialEq)]
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

/// Layers that see the last tokens only.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Local {
    /// Tokens they see, their own included.
    pub(crate) window: usize,
    /// Every so many layers one sees everything; 0 for none.
    pub(crate) pattern: usize,
    /// Their rotary positions.
    pub(crate) rotary: Rotary,
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
    pub(crate) local: Option<Local>,
    /// What embeddings are multiplied by.
    pub(crate) embedding_scale: f32,
    /// What products of queries and keys are multiplied by.
    pub(crate) attention_scale: f32,
}

impl Architecture {
    /// Reads the metadata of a GGUF model.
    pub(crate) fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let path = gguf.path();
        let kind = gguf.text("general.architecture")?;
        let family = Family::by_name(path, kind)?;
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
        let scale = match gguf.text(&key("rope.scaling.type")).unwrap_or("none") {
            "none" => 1.0,
            "linear" => gguf.float(&key("rope.scaling.factor"))?,
            other => return Err(unsupported(path, "rope.scaling.type", other)),
        };
        let factors = match gguf.has_tensor("rope_freqs.weight") {
            true => {
                let tensor = gguf.tensor("rope_freqs.weight")?;
                if tensor.dtype != candle_core::quantized::GgmlDType::F32 {
                    return Err(file_error(
                        path,
                        "tensor rope_freqs.weight",
                        "not 32-bit floats",
                        FETCH_AGAIN,
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
        let layers = gguf.size(&key("block_count"))?;
        let rotary = Rotary {
            base: gguf.float(&key("rope.freq_base")).unwrap_or(10_000.0),
            scale,
            factors,
            dimensions: gguf.size(&key("rope.dimension_count")).unwrap_or(head),
            // The converter reorders the heads of Llama for neighbours, and leaves the others as they are.
            pairing: if family == Family::Llama {
                Pairing::Neighbours
            } else {
                Pairing::Halves
            },
        };
        let local = match family {
            Family::Gemma3 => Some(Local {
                window: gguf.size(&key("attention.sliding_window"))?,
                pattern: GEMMA_PATTERN,
                rotary: Rotary {
                    base: gguf.float(&key("rope.freq_base_swa")).unwrap_or(10_000.0),
                    scale: 1.0,
                    factors: Vec::new(),
                    ..rotary.clone()
                },
            }),
            _ => None,
        };
        // The 27 B model scales by width over heads instead of by the head.
        let scaled_by = if family == Family::Gemma3 && layers == 62 {
            width / heads.max(1)
        } else {
            head
        };
        let architecture = Self {
            family,
            name: gguf.text("general.name").unwrap_or(kind).to_owned(),
            layers,
            width,
            heads,
            key_heads: gguf.size(&key("attention.head_count_kv")).unwrap_or(heads),
            head,
            hidden: gguf.size(&key("feed_forward_length"))?,
            context: gguf.size(&key("context_length"))?,
            epsilon: gguf.float(&key("attention.layer_norm_rms_epsilon"))?,
            rotary,
            local,
            embedding_scale: if family == Family::Gemma3 {
                (width as f32).sqrt()
            } else {
                1.0
            },
            attention_scale: 1.0 / (scaled_by as f32).sqrt(),
        };
        architecture.check(path)?;
        Ok(architecture)
    }

    /// Reads a `config.json` of the `transformers` library.
    pub(crate) fn from_config(config: &Value, path: &Path) -> Result<Self> {
        let missing = |name: &str| file_error(path, name, "missing, or not a number", FETCH_AGAIN);
        let size = |name: &str| {
            config
                .get(name)
                .and_then(Value::as_u64)
                .and_then(|n| usize::try_from(n).ok())
                .ok_or_else(|| missing(name))
        };
        let float = |name: &str| config.get(name).and_then(Value::as_f64).map(|v| v as f32);
        let kind = config
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or("");
        let family = Family::by_name(path, kind)?;
        let (width, heads) = (size("hidden_size")?, size("num_attention_heads")?);
        let head = size("head_dim").unwrap_or(width / heads.max(1));
        let expected = if family == Family::Gemma3 {
            "gelu_pytorch_tanh"
        } else {
            "silu"
        };
        let activation = ["hidden_activation", "hidden_act"]
            .iter()
            .find_map(|key| config.get(*key)?.as_str());
        if activation.is_some_and(|a| a != expected) {
            return Err(unsupported(
                path,
                "activation",
                activation.unwrap_or_default(),
            ));
        }
        let (base, scale, factors) = rope_of(config, head, path)?;
        let rotary = Rotary {
            base,
            scale,
            factors,
            dimensions: head,
            pairing: Pairing::Halves,
        };
        let window = size("sliding_window").ok();
        let local = match family {
            Family::Gemma3 => Some(Local {
                window: size("sliding_window")?,
                pattern: size("sliding_window_pattern").unwrap_or(GEMMA_PATTERN),
                rotary: Rotary {
                    base: float("rope_local_base_freq").unwrap_or(10_000.0),
                    scale: 1.0,
                    factors: Vec::new(),
                    ..rotary.clone()
                },
            }),
            Family::Llama => window.map(|window| Local {
                window,
                pattern: 0,
                rotary: rotary.clone(),
            }),
            Family::Qwen2 | Family::Qwen3 => {
                if config.get("use_sliding_window").and_then(Value::as_bool) == Some(true) {
                    return Err(unsupported(path, "use_sliding_window", "true"));
                }
                None
            }
        };
        let scaled_by = float("query_pre_attn_scalar").unwrap_or(head as f32);
        let name = config
            .get("_name_or_path")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty());
        let architecture = Self {
            family,
            name: name.unwrap_or(kind).to_owned(),
            layers: size("num_hidden_layers")?,
            width,
            heads,
            key_heads: size("num_key_value_heads").unwrap_or(heads),
            head,
            hidden: size("intermediate_size")?,
            context: size("max_position_embeddings")?,
            epsilon: float("rms_norm_eps").ok_or_else(|| missing("rms_norm_eps"))?,
            rotary,
            local,
            embedding_scale: if family == Family::Gemma3 {
                (width as f32).sqrt()
            } else {
                1.0
            },
            attention_scale: 1.0 / scaled_by.sqrt(),
        };
        architecture.check(path)?;
        Ok(architecture)
    }

    /// The window of a layer, if it has one.
    pub(crate) fn local(&self, layer: usize) -> Option<&Local> {
        self.local
            .as_ref()
            .filter(|local| local.pattern == 0 || !(layer + 1).is_multiple_of(local.pattern))
    }

    fn check(&self, path: &Path) -> Result<()> {
        let refuse =
            |place: &str, problem: String| Err(file_error(path, place, problem, FETCH_AGAIN));
        let window = self.local.as_ref().map_or(1, |local| local.window);
        for (place, value, most) in [
            ("number of layers", self.layers, MOST_LAYERS),
            ("width", self.width, WIDEST),
            ("number of heads", self.heads, WIDEST),
            ("number of key heads", self.key_heads, WIDEST),
            ("dimensions of a head", self.head, WIDEST),
            ("hidden width", self.hidden, WIDEST),
            ("context length", self.context, LONGEST_CONTEXT),
            ("sliding window", window, LONGEST_CONTEXT),
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
        if self.heads * self.head > WIDEST {
            return refuse(
                "heads",
                format!("{} of {} dimensions", self.heads, self.head),
            );
        }
        let rotary = &self.rotary;
        if rotary.dimensions > self.head || !rotary.dimensions.is_multiple_of(2) {
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

fn unsupported(path: &Path, place: &str, found: &str) -> ModelError {
    file_error(
        path,
        place,
        format!("'{found}' is not supported"),
        "choose a model without it",
    )
}

/// Base, divisor of positions, and divisors of frequencies.
fn rope_of(config: &Value, head: usize, path: &Path) -> Result<(f32, f32, Vec<f32>)> {
    let parameters = config.get("rope_parameters").filter(|v| v.is_object());
    let scaling = parameters.or_else(|| config.get("rope_scaling").filter(|v| v.is_object()));
    let number = |name: &str| scaling.and_then(|s| s.get(name)).and_then(Value::as_f64);
    let base = number("rope_theta")
        .or_else(|| config.get("rope_theta").and_then(Value::as_f64))
        .unwrap_or(10_000.0);
    let kind = scaling
        .and_then(|s| s.get("rope_type").or_else(|| s.get("type")))
        .and_then(Value::as_str);
    let needed = |name: &str| {
        number(name).ok_or_else(|| file_error(path, name, "missing, or not a number", FETCH_AGAIN))
    };
    match kind.unwrap_or("default") {
        "default" => Ok((base as f32, 1.0, Vec::new())),
        "linear" => Ok((base as f32, needed("factor")? as f32, Vec::new())),
        "llama3" => {
            // Low frequencies are stretched, high ones kept, those between interpolated (Llama 3.1's released code).
            let (factor, original) = (
                needed("factor")?,
                needed("original_max_position_embeddings")?,
            );
            let (low, high) = (needed("low_freq_factor")?, needed("high_freq_factor")?);
            let factors = (0..head / 2).map(|i| {
                let wave = std::f64::consts::TAU * base.powf(2.0 * i as f64 / head as f64);
                if wave < original / high {
                    1.0
                } else if wave > original / low {
                    factor as f32
                } else {
                    let smooth = (original / wave - low) / (high - low);
                    (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
                }
            });
            Ok((base as f32, 1.0, factors.collect()))
        }
        other => Err(unsupported(path, "rope_scaling", other)),
    }
}
