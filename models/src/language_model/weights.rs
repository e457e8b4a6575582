//! The tensors of a model, read from its file into the form that the forward pass uses.

use crate::error::Result;
use crate::kernels::matrix::Matrix;

use super::architecture::{Architecture, Family};

/// A file that holds tensors, under the names of GGUF.
pub(crate) trait Tensors {
    /// Whether a tensor of that name is there.
    fn has(&self, name: &str) -> bool;
    /// Rows of a matrix; 0 if there is none.
    fn rows(&self, name: &str) -> usize;
    /// A matrix of exactly this shape.
    fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix>;
    /// A vector of exactly this length.
    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>>;
}

/// Biases of a layer's queries, keys and values.
pub(crate) struct Biases {
    pub(crate) query: Vec<f32>,
    pub(crate) key: Vec<f32>,
    pub(crate) value: Vec<f32>,
}

/// One transformer block.
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Matrix,
    pub(crate) key: Matrix,
    pub(crate) value: Matrix,
    pub(crate) biases: Option<Biases>,
    /// Norms of each query's and each key's head.
    pub(crate) head_norms: Option<(Vec<f32>, Vec<f32>)>,
    pub(crate) attention_output: Matrix,
    pub(crate) after_attention_norm: Option<Vec<f32>>,
    pub(crate) feed_norm: Vec<f32>,
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
    pub(crate) after_feed_norm: Option<Vec<f32>>,
}

/// All tensors of a model.
pub(crate) struct Weights {
    pub(crate) embedding: Matrix,
    pub(crate) layers: Vec<Layer>,
    pub(crate) output_norm: Vec<f32>,
    /// `None` where the embedding serves as the output too.
    pub(crate) output: Option<Matrix>,
}

impl Weights {
    /// Reads the tensors of a model.
    pub(crate) fn read(file: &dyn Tensors, a: &Architecture) -> Result<Self> {
        let (queries, keys) = (a.heads * a.head, a.key_heads * a.head);
        let vocabulary = file.rows("token_embd.weight");
        let layers = (0..a.layers)
            .map(|i| {
                let name = |part: &str| format!("blk.{i}.{part}.weight");
                let bias =
                    |part: &str, length| file.vector(&format!("blk.{i}.{part}.bias"), length);
                let norm = |part: &str, length| file.vector(&name(part), length);
                let gemma = a.family == Family::Gemma3;
                Ok(Layer {
                    attention_norm: norm("attn_norm", a.width)?,
                    query: file.matrix(&name("attn_q"), queries, a.width)?,
                    key: file.matrix(&name("attn_k"), keys, a.width)?,
                    value: file.matrix(&name("attn_v"), keys, a.width)?,
                    biases: match a.family {
                        Family::Qwen2 => Some(Biases {
                            query: bias("attn_q", queries)?,
                            key: bias("attn_k", keys)?,
                            value: bias("attn_v", keys)?,
                        }),
                        _ => None,
                    },
                    head_norms: match a.family {
                        Family::Qwen3 | Family::Gemma3 => {
                            Some((norm("attn_q_norm", a.head)?, norm("attn_k_norm", a.head)?))
                        }
                        _ => None,
                    },
                    attention_output: file.matrix(&name("attn_output"), a.width, queries)?,
                    after_attention_norm: gemma
                        .then(|| norm("post_attention_norm", a.width))
                        .transpose()?,
                    feed_norm: norm("ffn_norm", a.width)?,
                    gate: file.matrix(&name("ffn_gate"), a.hidden, a.width)?,
                    up: file.matrix(&name("ffn_up"), a.hidden, a.width)?,
                    down: file.matrix(&name("ffn_down"), a.width, a.hidden)?,
                    after_feed_norm: gemma.then(|| norm("post_ffw_norm", a.width)).transpose()?,
                })
            })
            .collect::<Result<_>>()?;
        let output = match file.has("output.weight") {
            true => Some(file.matrix("output.weight", vocabulary, a.width)?),
            false => None,
        };
        Ok(Self {
            embedding: file.matrix("token_embd.weight", vocabulary, a.width)?,
            layers,
            output_norm: file.vector("output_norm.weight", a.width)?,
            output,
        })
    }

    /// The matrix that turns the last layer's output into logits.
    pub(crate) fn output(&self) -> &Matrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }

    /// Bytes of memory the matrices take.
    pub(crate) fn size(&self) -> usize {
        let layers = self.layers.iter().flat_map(|l| {
            [
                &l.query,
                &l.key,
                &l.value,
                &l.attention_output,
                &l.gate,
                &l.up,
                &l.down,
            ]
            .map(Matrix::size)
        });
        self.embedding.size() + self.output.as_ref().map_or(0, Matrix::size) + layers.sum::<usize>()
    }
}
