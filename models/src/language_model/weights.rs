//! The tensors of a model, read from its file into the form that the forward pass uses.

use candle_core::quantized::GgmlDType;

use crate::error::{ModelError, Result};
use crate::kernels::matrix::Matrix;

use std::cell::RefCell;
use std::collections::HashSet;

use super::architecture::{Architecture, Bias, Family};

/// One tensor as a file holds it.
pub(crate) struct TensorBytes {
    /// Block format of the elements.
    pub(crate) dtype: GgmlDType,
    /// Rows by columns; a vector has one row.
    pub(crate) rows: usize,
    /// Elements in a row.
    pub(crate) columns: usize,
    /// The blocks, row after row.
    pub(crate) bytes: Vec<u8>,
}

/// A file that holds tensors, under the names of GGUF.
pub(crate) trait Tensors {
    /// Whether a tensor of that name is there.
    fn has(&self, name: &str) -> bool;
    /// Rows of a matrix; 0 if there is none.
    fn rows(&self, name: &str) -> usize;
    /// The blocks of a tensor of exactly this shape.
    fn blocks(&self, name: &str, rows: usize, columns: usize) -> Result<TensorBytes>;
    /// A vector of exactly this length.
    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>>;
    /// The refusal of a tensor.
    fn refuse(&self, name: &str, problem: String) -> ModelError;
    /// Refuses a file that holds a tensor of the language model which none of these names means: what is not read
    /// would be missing from every result.
    fn refuse_others(&self, known: &HashSet<String>) -> Result<()>;

    /// A matrix of exactly this shape, for the kernels of this crate.
    fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix> {
        Kernels
            .matrix(&self.blocks(name, rows, columns)?)
            .map_err(|problem| self.refuse(name, problem))
    }
}

/// What a model's tensors become where it runs. Results explain what is not supported.
pub(crate) trait Storage {
    /// A matrix, to be multiplied with rows.
    type Matrix;
    /// A vector, such as the weights of a norm.
    type Vector;
    /// Whether the output needs a matrix of its own, even where the embedding serves as the output too.
    const OUTPUT_APART: bool;
    /// Takes a matrix.
    fn matrix(&self, tensor: &TensorBytes) -> Result<Self::Matrix, String>;
    /// Takes a vector.
    fn vector(&self, values: Vec<f32>) -> Result<Self::Vector, String>;
    /// Bytes of memory a matrix takes.
    fn size(matrix: &Self::Matrix) -> usize;
}

/// The processor, with the kernels of this crate.
pub(crate) struct Kernels;

impl Storage for Kernels {
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    const OUTPUT_APART: bool = false;

    fn matrix(&self, tensor: &TensorBytes) -> Result<Matrix, String> {
        Matrix::from_blocks(tensor.dtype, tensor.rows, tensor.columns, &tensor.bytes)
    }

    fn vector(&self, values: Vec<f32>) -> Result<Vec<f32>, String> {
        Ok(values)
    }

    fn size(matrix: &Matrix) -> usize {
        matrix.size()
    }
}

/// A matrix with what is added to its products.
pub(crate) struct Linear<S: Storage> {
    pub(crate) matrix: S::Matrix,
    pub(crate) bias: Option<S::Vector>,
}

/// One transformer block.
pub(crate) struct Layer<S: Storage> {
    pub(crate) attention_norm: S::Vector,
    pub(crate) query: Linear<S>,
    pub(crate) key: Linear<S>,
    pub(crate) value: Linear<S>,
    /// Norms of each query's and each key's head.
    pub(crate) head_norms: Option<(S::Vector, S::Vector)>,
    pub(crate) attention_output: Linear<S>,
    pub(crate) after_attention_norm: Option<S::Vector>,
    pub(crate) feed_norm: S::Vector,
    pub(crate) gate: Linear<S>,
    pub(crate) up: Linear<S>,
    pub(crate) down: Linear<S>,
    pub(crate) after_feed_norm: Option<S::Vector>,
}

/// All tensors of a model.
pub(crate) struct Weights<S: Storage> {
    /// Always in this process's memory: rows of it are looked up.
    pub(crate) embedding: Matrix,
    pub(crate) layers: Vec<Layer<S>>,
    pub(crate) output_norm: S::Vector,
    /// `None` where the embedding serves as the output too, and can.
    pub(crate) output: Option<S::Matrix>,
}

impl<S: Storage> Weights<S> {
    /// Reads the tensors of a model; all that the file holds must be known.
    pub(crate) fn read(file: &dyn Tensors, a: &Architecture, storage: &S) -> Result<Self> {
        let (queries, keys) = (a.heads * a.head, a.key_heads * a.head);
        let vocabulary = file.rows("token_embd.weight");
        let known = RefCell::new(HashSet::new());
        let matrix = |name: &str, rows, columns| {
            known.borrow_mut().insert(name.to_owned());
            storage
                .matrix(&file.blocks(name, rows, columns)?)
                .map_err(|problem| file.refuse(name, problem))
        };
        let vector = |name: &str, length| {
            known.borrow_mut().insert(name.to_owned());
            storage
                .vector(file.vector(name, length)?)
                .map_err(|problem| file.refuse(name, problem))
        };
        let gemma = a.family == Family::Gemma3;
        let layers = (0..a.layers)
            .map(|i| {
                let norm = |part: &str, length| vector(&format!("blk.{i}.{part}.weight"), length);
                let linear = |part: &str, rows, columns, bias| -> Result<Linear<S>> {
                    let name = format!("blk.{i}.{part}.bias");
                    let has_bias = match bias {
                        Bias::Needed => true,
                        Bias::IfThere => file.has(&name),
                        Bias::None => false,
                    };
                    Ok(Linear {
                        matrix: matrix(&format!("blk.{i}.{part}.weight"), rows, columns)?,
                        bias: has_bias.then(|| vector(&name, rows)).transpose()?,
                    })
                };
                let biases = a.biases;
                Ok(Layer {
                    attention_norm: norm("attn_norm", a.width)?,
                    query: linear("attn_q", queries, a.width, biases.attention)?,
                    key: linear("attn_k", keys, a.width, biases.attention)?,
                    value: linear("attn_v", keys, a.width, biases.attention)?,
                    head_norms: match a.family {
                        Family::Qwen3 | Family::Gemma3 => {
                            Some((norm("attn_q_norm", a.head)?, norm("attn_k_norm", a.head)?))
                        }
                        Family::Llama | Family::Qwen2 => None,
                    },
                    attention_output: linear(
                        "attn_output",
                        a.width,
                        queries,
                        biases.attention_output,
                    )?,
                    after_attention_norm: gemma
                        .then(|| norm("post_attention_norm", a.width))
                        .transpose()?,
                    feed_norm: norm("ffn_norm", a.width)?,
                    gate: linear("ffn_gate", a.hidden, a.width, biases.feed)?,
                    up: linear("ffn_up", a.hidden, a.width, biases.feed)?,
                    down: linear("ffn_down", a.width, a.hidden, biases.feed)?,
                    after_feed_norm: gemma.then(|| norm("post_ffw_norm", a.width)).transpose()?,
                })
            })
            .collect::<Result<_>>()?;
        let output = match file.has("output.weight") {
            true => Some(matrix("output.weight", vocabulary, a.width)?),
            false if S::OUTPUT_APART => Some(matrix("token_embd.weight", vocabulary, a.width)?),
            false => None,
        };
        known.borrow_mut().insert("token_embd.weight".to_owned());
        let weights = Self {
            embedding: file.matrix("token_embd.weight", vocabulary, a.width)?,
            layers,
            output_norm: vector("output_norm.weight", a.width)?,
            output,
        };
        file.refuse_others(&known.borrow())?;
        Ok(weights)
    }

    /// Values in a row of logits.
    pub(crate) fn logit_width(&self) -> usize {
        // Both matrices have as many rows.
        self.embedding.rows()
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
            .map(|linear| S::size(&linear.matrix))
        });
        self.embedding.size() + self.output.as_ref().map_or(0, S::size) + layers.sum::<usize>()
    }
}

impl Weights<Kernels> {
    /// The matrix that turns the last layer's output into logits.
    pub(crate) fn output(&self) -> &Matrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }
}
