//! The BERT encoder (Devlin et al. 2019, arXiv:1810.04805), RoBERTa's too, on packed sequences.
//!
//! Sequences of different lengths stand one after the other in one matrix, a row a token: linear
//! layers need no padding, and attention runs within each sequence, so no mask is needed either.

use std::ops::Range;
use std::path::Path;

use super::EncoderError;
use super::config::{Activation, BertConfig};
use super::math::{LayerNorm, add, softmax};
use super::weights::Weights;
use crate::kernels::dense::{Panels, Strided, Then, multiply};
use crate::kernels::lanes::{Instructions, LANES};

/// Token sequences, one after the other.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// Token ids of all sequences.
    pub ids: Vec<u32>,
    /// Segment ids, as many: 0 for a text, 1 for the second text of a pair.
    pub segments: Vec<u32>,
    /// Where each sequence begins and ends.
    pub sequences: Vec<Range<usize>>,
}

/// A dense layer: `y = x Wᵀ + b`, its weights packed once.
pub(super) struct Dense {
    panels: Panels,
    inputs: usize,
    instructions: Instructions,
}

impl Dense {
    /// Reads `NAME.weight` and `NAME.bias` of the encoder.
    pub fn encoder(
        weights: &Weights,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<Dense, EncoderError> {
        Dense::open(
            weights,
            &format!("{}{name}", weights.prefix()),
            inputs,
            outputs,
        )
    }

    /// Reads `NAME.weight` and `NAME.bias` under full names.
    pub fn open(
        weights: &Weights,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<Dense, EncoderError> {
        let weight = weights.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
        let bias = weights.tensor(&format!("{name}.bias"), &[outputs])?;
        Ok(Dense::new(&weight, &bias, inputs))
    }

    /// A layer of given weights, a row an output.
    pub fn new(weight: &[f32], bias: &[f32], inputs: usize) -> Dense {
        Dense {
            panels: Panels::new(weight, bias, inputs),
            inputs,
            instructions: Instructions::detect(),
        }
    }

    /// Writes the layer's outputs for all rows of `input`.
    pub fn apply(&self, input: &[f32], output: &mut [f32]) {
        self.apply_then(input, Then::Store, output);
    }

    /// As [`Self::apply`], each output passed through the non-linearity.
    pub fn apply_activated(&self, input: &[f32], activation: Activation, output: &mut [f32]) {
        let then = match activation {
            Activation::Gelu => Then::Gelu,
            Activation::GeluTanh => Then::GeluTanh,
            Activation::Relu => Then::Relu,
        };
        self.apply_then(input, then, output);
    }

    /// Adds the layer's outputs to what stands in `output`.
    fn apply_and_add(&self, input: &[f32], output: &mut [f32]) {
        self.apply_then(input, Then::Add, output);
    }

    fn apply_then(&self, input: &[f32], then: Then, output: &mut [f32]) {
        let rows = Strided::of(input, self.inputs);
        let outputs = self.panels.outputs();
        multiply(self.instructions, &self.panels, rows, then, output, outputs);
    }
}

/// Reads a layer norm of the encoder, under full names; early conversions call its parts gamma
/// and beta.
pub(super) fn open_norm(
    weights: &Weights,
    name: &str,
    size: usize,
    epsilon: f32,
) -> Result<LayerNorm, EncoderError> {
    let early = weights.has(&format!("{name}.gamma"));
    let (gain, bias) = if early {
        ("gamma", "beta")
    } else {
        ("weight", "bias")
    };
    Ok(LayerNorm {
        gain: weights.tensor(&format!("{name}.{gain}"), &[size])?,
        bias: weights.tensor(&format!("{name}.{bias}"), &[size])?,
        epsilon,
    })
}

struct Layer {
    /// Query, key and value as one layer of three times the width.
    attention: Dense,
    attention_output: Dense,
    attention_norm: LayerNorm,
    intermediate: Dense,
    output: Dense,
    output_norm: LayerNorm,
}

/// The encoder: token ids to one vector a token.
pub(super) struct Bert {
    config: BertConfig,
    words: Vec<f32>,
    positions: Vec<f32>,
    segments: Vec<f32>,
    norm: LayerNorm,
    layers: Vec<Layer>,
    instructions: Instructions,
}

/// Memory that attention needs for one head at a time.
#[derive(Default)]
struct Head {
    keys: Panels,
    values: Panels,
    scores: Vec<f32>,
}

impl Bert {
    /// Opens the encoder whose weights lie in `weights`.
    pub fn open(folder: &Path, weights: &Weights) -> Result<Bert, EncoderError> {
        let config = BertConfig::open(folder)?;
        let size = config.hidden_size;
        let words = weights.encoder(
            "embeddings.word_embeddings.weight",
            &[config.vocab_size, size],
        )?;
        let positions = weights.encoder(
            "embeddings.position_embeddings.weight",
            &[config.max_position_embeddings, size],
        )?;
        let segments = weights.encoder(
            "embeddings.token_type_embeddings.weight",
            &[config.type_vocab_size, size],
        )?;
        let norm = |name: &str| {
            open_norm(
                weights,
                &format!("{}{name}", weights.prefix()),
                size,
                config.layer_norm_eps,
            )
        };
        let layer = |at: usize| {
            let name = |part: &str| format!("encoder.layer.{at}.{part}");
            let mut weight = Vec::new();
            let mut bias = Vec::new();
            for part in ["query", "key", "value"] {
                let part = name(&format!("attention.self.{part}"));
                weight.extend(weights.encoder(&format!("{part}.weight"), &[size, size])?);
                bias.extend(weights.encoder(&format!("{part}.bias"), &[size])?);
            }
            Ok(Layer {
                attention: Dense::new(&weight, &bias, size),
                attention_output: Dense::encoder(
                    weights,
                    &name("attention.output.dense"),
                    size,
                    size,
                )?,
                attention_norm: norm(&name("attention.output.LayerNorm"))?,
                intermediate: Dense::encoder(
                    weights,
                    &name("intermediate.dense"),
                    size,
                    config.intermediate_size,
                )?,
                output: Dense::encoder(
                    weights,
                    &name("output.dense"),
                    config.intermediate_size,
                    size,
                )?,
                output_norm: norm(&name("output.LayerNorm"))?,
            })
        };
        Ok(Bert {
            norm: norm("embeddings.LayerNorm")?,
            layers: (0..config.num_hidden_layers)
                .map(layer)
                .collect::<Result<_, EncoderError>>()?,
            words,
            positions,
            segments,
            config,
            instructions: Instructions::detect(),
        })
    }

    /// The encoder's shape.
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    /// The word embeddings, a row a token id; some heads are tied to them.
    pub fn words(&self) -> &[f32] {
        &self.words
    }

    /// The last hidden states, a row a token. Ids, segments and lengths must be within the
    /// model's; [`super::tokens::TextTokenizer`] sees to it.
    pub fn forward(&self, packed: &Packed) -> Vec<f32> {
        let size = self.config.hidden_size;
        let tokens = packed.ids.len();
        let mut hidden = self.embed(packed);
        let mut attention = vec![0.0; tokens * 3 * size];
        let mut context = vec![0.0; tokens * size];
        let mut intermediate = vec![0.0; tokens * self.config.intermediate_size];
        let mut head = Head::default();
        for layer in &self.layers {
            layer.attention.apply(&hidden, &mut attention);
            for sequence in &packed.sequences {
                self.attend(sequence.clone(), &attention, &mut head, &mut context);
            }
            layer.attention_output.apply_and_add(&context, &mut hidden);
            layer.attention_norm.apply(&mut hidden);
            layer
                .intermediate
                .apply_activated(&hidden, self.activation(), &mut intermediate);
            layer.output.apply_and_add(&intermediate, &mut hidden);
            layer.output_norm.apply(&mut hidden);
        }
        hidden
    }

    /// The non-linearity of the feed-forward layers.
    pub fn activation(&self) -> Activation {
        self.config.hidden_act
    }

    fn embed(&self, packed: &Packed) -> Vec<f32> {
        let size = self.config.hidden_size;
        let row = |table: &'_ [f32], at: usize| -> Range<usize> {
            debug_assert!((at + 1) * size <= table.len());
            at * size..(at + 1) * size
        };
        let mut hidden = vec![0.0; packed.ids.len() * size];
        for sequence in &packed.sequences {
            for at in sequence.clone() {
                let position = self.config.first_position() + at - sequence.start;
                let output = &mut hidden[at * size..(at + 1) * size];
                output.copy_from_slice(&self.words[row(&self.words, packed.ids[at] as usize)]);
                add(output, &self.positions[row(&self.positions, position)]);
                add(
                    output,
                    &self.segments[row(&self.segments, packed.segments[at] as usize)],
                );
            }
        }
        self.norm.apply(&mut hidden);
        hidden
    }

    /// Attention within one sequence: reads query, key and value, writes the context.
    fn attend(
        &self,
        sequence: Range<usize>,
        attention: &[f32],
        head: &mut Head,
        context: &mut [f32],
    ) {
        let size = self.config.hidden_size;
        let width = size / self.config.num_attention_heads;
        let length = sequence.len();
        let scale = 1.0 / (width as f32).sqrt();
        let rows = &attention[sequence.start * 3 * size..sequence.end * 3 * size];
        let output = &mut context[sequence.start * size..sequence.end * size];
        let padded = length.next_multiple_of(LANES);
        head.scores.resize(length * padded, 0.0);
        for at in (0..size).step_by(width) {
            let query = Strided {
                values: &rows[at..],
                count: length,
                stride: 3 * size,
            };
            head.keys
                .pack_rows(&rows[size + at..], length, width, 3 * size);
            head.keys.fill_up();
            head.values
                .pack_columns(&rows[2 * size + at..], length, width, 3 * size);
            multiply(
                self.instructions,
                &head.keys,
                query,
                Then::Store,
                &mut head.scores,
                padded,
            );
            softmax(self.instructions, &mut head.scores, padded, length, scale);
            multiply(
                self.instructions,
                &head.values,
                Strided::of(&head.scores, padded),
                Then::Store,
                &mut output[at..],
                size,
            );
        }
    }
}
