//! The dimensions and peculiarities of a model, from its metadata.

use std::path::Path;

use candle_core::DeviceLocation;
use serde_json::Value;

use super::cache::Shape;
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
    /// Which layers they are.
    pub(crate) layers: Vec<bool>,
    /// Their rotary positions.
    pub(crate) rotary: Rotary,
}

/// Whether products with a matrix have a vector added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bias {
    /// They have; a file without it is refused.
    Needed,
    /// They have where the file holds one: metadata of GGUF does not say.
    IfThere,
    /// They have none; a file that holds one is refused.
    None,
}

impl Bias {
    fn from_flag(flag: bool) -> Self {
        if flag { Self::Needed } else { Self::None }
    }
}

/// Biases of a layer's matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Biases {
    /// Of queries, keys and values.
    pub(crate) attention: Bias,
    /// Of what attention gives.
    pub(crate) attention_output: Bias,
    /// Of the feed-forward part.
    pub(crate) feed: Bias,
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
    pub(crate) biases: Biases,
    /// What embeddings are multiplied by.
    pub(crate) embedding_scale: f32,
    /// What products of queries and keys are multiplied by.
    pub(crate) attention_scale: f32,
}

impl Architecture {
    /// The dimensions of this model's caches, on a device or in this machine's memory.
    pub(crate) fn cache_shape(&self, device: Option<DeviceLocation>) -> Shape {
        Shape {
            layers: self.layers,
            heads: self.key_heads,
            head: self.head,
            device,
        }
    }

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
            // The second key is that of files before the first came up.
            "none" => gguf.float(&key("rope.scale_linear")).unwrap_or(1.0),
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
                layers: all_but_each(GEMMA_PATTERN, layers),
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
            biases: Biases {
                attention: match family {
                    Family::Qwen2 => Bias::Needed,
                    _ => Bias::IfThere,
                },
                attention_output: Bias::IfThere,
                feed: Bias::IfThere,
            },
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
    ///
    /// A model that sees pictures too has its language model under `text_config`, where what equals the library's
    /// defaults is left out; such defaults stand here.
    pub(crate) fn from_config(config: &Value, path: &Path) -> Result<Self> {
        let kind = config
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or("");
        let family = Family::by_name(path, kind)?;
        let config = config
            .get("text_config")
            .filter(|v| v.is_object())
            .unwrap_or(config);
        let gemma = family == Family::Gemma3;
        let missing = |name: &str| file_error(path, name, "missing, or not a number", FETCH_AGAIN);
        let given = |name: &str| config.get(name).filter(|v| !v.is_null());
        let size = |name: &str| {
            given(name)
                .and_then(Value::as_u64)
                .and_then(|n| usize::try_from(n).ok())
                .ok_or_else(|| missing(name))
        };
        // A value of the wrong kind is an error; one that is not there has a default in this family.
        let size_or = |name: &str, default: usize| match given(name) {
            Some(_) => size(name),
            None => Ok(default),
        };
        let gemma_size = |name: &str, default: usize| {
            if gemma {
                size_or(name, default)
            } else {
                size(name)
            }
        };
        let float = |name: &str| match given(name) {
            Some(v) => v
                .as_f64()
                .map(|v| Some(v as f32))
                .ok_or_else(|| missing(name)),
            None => Ok(None),
        };
        let flag = |name: &str| given(name).and_then(Value::as_bool).unwrap_or(false);
        for name in ["final_logit_softcapping", "attn_logit_softcapping"] {
            if let Some(value) = given(name) {
                return Err(unsupported(path, name, &value.to_string()));
            }
        }
        if flag("use_bidirectional_attention") {
            return Err(unsupported(path, "use_bidirectional_attention", "true"));
        }
        let width = size("hidden_size")?;
        let layers = size("num_hidden_layers")?;
        let heads = gemma_size("num_attention_heads", 8)?;
        let head = match family {
            Family::Gemma3 => size_or("head_dim", 256)?,
            Family::Qwen3 => size_or("head_dim", 128)?,
            Family::Llama | Family::Qwen2 => size_or("head_dim", width / heads.max(1))?,
        };
        let expected = if gemma { "gelu_pytorch_tanh" } else { "silu" };
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
        let [rotary, local_rotary] = rotaries_of(config, family, head, path)?;
        let window = size_or("sliding_window", 4096)?;
        let kinds = layer_kinds(config, layers, path)?;
        let local = match family {
            Family::Gemma3 => {
                let pattern = match given("sliding_window_pattern") {
                    Some(_) => size("sliding_window_pattern")?,
                    None => size_or("_sliding_window_pattern", GEMMA_PATTERN)?,
                };
                Some(Local {
                    window,
                    layers: kinds.unwrap_or_else(|| all_but_each(pattern, layers)),
                    rotary: local_rotary,
                })
            }
            // Mistral's first release has a window in all layers, the later ones say null; Llama has none.
            Family::Llama => {
                let has_window = match config.get("sliding_window") {
                    Some(value) => !value.is_null(),
                    None => kind == "mistral",
                };
                has_window.then(|| Local {
                    window,
                    layers: kinds.unwrap_or_else(|| all_but_each(0, layers)),
                    rotary: rotary.clone(),
                })
            }
            Family::Qwen2 | Family::Qwen3 => {
                if flag("use_sliding_window") {
                    return Err(unsupported(path, "use_sliding_window", "true"));
                }
                None
            }
        };
        let attention_bias = flag("attention_bias");
        let scaled_by = float("query_pre_attn_scalar")?;
        let name = config
            .get("_name_or_path")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty());
        let architecture = Self {
            family,
            name: name.unwrap_or(kind).to_owned(),
            layers,
            width,
            heads,
            key_heads: size_or("num_key_value_heads", if gemma { 4 } else { heads })?,
            head,
            hidden: size("intermediate_size")?,
            context: gemma_size("max_position_embeddings", 131_072)?,
            epsilon: match float("rms_norm_eps")? {
                Some(epsilon) => epsilon,
                None if gemma => 1e-6,
                None => return Err(missing("rms_norm_eps")),
            },
            rotary,
            local,
            biases: match family {
                Family::Qwen2 => Biases {
                    attention: Bias::Needed,
                    attention_output: Bias::None,
                    feed: Bias::None,
                },
                Family::Llama => Biases {
                    attention: Bias::from_flag(attention_bias),
                    attention_output: Bias::from_flag(attention_bias),
                    feed: Bias::from_flag(flag("mlp_bias")),
                },
                Family::Qwen3 | Family::Gemma3 => Biases {
                    attention: Bias::from_flag(attention_bias),
                    attention_output: Bias::from_flag(attention_bias),
                    feed: Bias::None,
                },
            },
            embedding_scale: if gemma { (width as f32).sqrt() } else { 1.0 },
            attention_scale: match (scaled_by, family) {
                (Some(by), _) => 1.0 / by.sqrt(),
                (None, Family::Gemma3) => 1.0 / 16.0,
                (None, _) => 1.0 / (head as f32).sqrt(),
            },
        };
        architecture.check(path)?;
        Ok(architecture)
    }

    /// The window of a layer, if it has one.
    pub(crate) fn local(&self, layer: usize) -> Option<&Local> {
        self.local
            .as_ref()
            .filter(|local| local.layers.get(layer).copied().unwrap_or(false))
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

/// All layers but every `pattern`-th.
fn all_but_each(pattern: usize, layers: usize) -> Vec<bool> {
    (1..=layers.min(MOST_LAYERS))
        .map(|n| pattern == 0 || !n.is_multiple_of(pattern))
        .collect()
}

/// Which layers see a window only, where `layer_types` says so.
fn layer_kinds(config: &Value, layers: usize, path: &Path) -> Result<Option<Vec<bool>>> {
    let Some(kinds) = config.get("layer_types").and_then(Value::as_array) else {
        return Ok(None);
    };
    if kinds.len() != layers {
        let problem = format!("{} entries for {layers} layers", kinds.len());
        return Err(file_error(path, "layer_types", problem, FETCH_AGAIN));
    }
    kinds
        .iter()
        .map(|kind| match kind.as_str() {
            Some("sliding_attention") => Ok(true),
            Some("full_attention") => Ok(false),
            _ => Err(unsupported(path, "layer_types", &kind.to_string())),
        })
        .collect::<Result<_>>()
        .map(Some)
}

/// The rotary positions of layers that see everything, and of those that see a window.
///
/// Version 5 of the library keeps all of it in `rope_parameters`, for Gemma 3 by kind of layer; before it stood in
/// `rope_theta`, `rope_local_base_freq` and `rope_scaling`.
fn rotaries_of(config: &Value, family: Family, head: usize, path: &Path) -> Result<[Rotary; 2]> {
    let section = |of: &'_ Value, name: &str| match of.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) if value.is_object() => Ok(Some(value.clone())),
        Some(value) => Err(unsupported(path, name, &value.to_string())),
    };
    let number = |name: &str, default: f64| match config.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value
            .as_f64()
            .ok_or_else(|| file_error(path, name, "not a number", FETCH_AGAIN)),
    };
    let gemma = family == Family::Gemma3;
    let base = number("rope_theta", if gemma { 1_000_000.0 } else { 10_000.0 })?;
    let local_base = number("rope_local_base_freq", 10_000.0)?;
    let scaling = match section(config, "rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => section(config, "rope_scaling")?,
    };
    let by_kind = match &scaling {
        Some(parameters) => [
            section(parameters, "full_attention")?,
            section(parameters, "sliding_attention")?,
        ],
        None => [None, None],
    };
    match (by_kind, scaling) {
        ([None, None], scaling) => Ok([
            rotary_of(scaling.as_ref(), base, head, path)?,
            rotary_of(None, local_base, head, path)?,
        ]),
        ([all, windowed], _) => Ok([
            rotary_of(all.as_ref(), base, head, path)?,
            rotary_of(windowed.as_ref(), local_base, head, path)?,
        ]),
    }
}

/// Rotary positions of a section such as `rope_scaling`.
fn rotary_of(scaling: Option<&Value>, base: f64, head: usize, path: &Path) -> Result<Rotary> {
    let given = |name: &str| {
        scaling
            .and_then(|s| s.get(name))
            .filter(|value| !value.is_null())
    };
    let needed = |name: &str| {
        given(name)
            .and_then(Value::as_f64)
            .filter(|value| value.is_finite() && *value > 0.0)
            .ok_or_else(|| file_error(path, name, "missing, or no positive number", FETCH_AGAIN))
    };
    let base = match given("rope_theta") {
        Some(_) => needed("rope_theta")?,
        None => base,
    };
    if given("partial_rotary_factor").is_some() && needed("partial_rotary_factor")? != 1.0 {
        return Err(unsupported(path, "partial_rotary_factor", "other than one"));
    }
    let kind = match given("rope_type").or_else(|| given("type")) {
        Some(Value::String(kind)) => kind,
        Some(other) => return Err(unsupported(path, "rope_type", &other.to_string())),
        None if given("factor").is_some() => {
            let problem = "missing beside a factor";
            return Err(file_error(path, "rope_type", problem, FETCH_AGAIN));
        }
        None => "default",
    };
    let (scale, factors) = match kind {
        "default" => (1.0, Vec::new()),
        "linear" => (needed("factor")? as f32, Vec::new()),
        "llama3" => {
            // Low frequencies are stretched, high ones kept, those between interpolated (Llama 3.1's released code).
            let (factor, original) = (
                needed("factor")?,
                needed("original_max_position_embeddings")?,
            );
            let (low, high) = (needed("low_freq_factor")?, needed("high_freq_factor")?);
            let factors = (0..head.min(WIDEST) / 2).map(|i| {
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
            (1.0, factors.collect())
        }
        other => return Err(unsupported(path, "rope_type", other)),
    };
    Ok(Rotary {
        base: base as f32,
        scale,
        factors,
        dimensions: head,
        pairing: Pairing::Halves,
    })
}
