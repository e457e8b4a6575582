//! The tensors of a model, read from its file into the form that the forward pass uses.

use crate::error::{FETCH_AGAIN, Result, file_error};
use crate::gguf::Gguf;
use crate::kernels::matrix::Matrix;

use super::architecture::Architecture;

/// One transformer block.
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Matrix,
    pub(crate) key: Matrix,
    pub(crate) value: Matrix,
    pub(crate) attention_output: Matrix,
    pub(crate) feed_norm: Vec<f32>,
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
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
    /// Reads the tensors of a GGUF model.
    pub(crate) fn from_gguf(gguf: &Gguf, a: &Architecture) -> Result<Self> {
        let (queries, keys) = (a.heads * a.head, a.key_heads * a.head);
        let vocabulary = *gguf
            .shapes()
            .get("token_embd.weight")
            .and_then(|dims| dims.first())
            .unwrap_or(&0);
        let layers = (0..a.layers)
            .map(|i| {
                let name = |part: &str| format!("blk.{i}.{part}.weight");
                Ok(Layer {
                    attention_norm: vector(gguf, &name("attn_norm"), a.width)?,
                    query: matrix(gguf, &name("attn_q"), queries, a.width)?,
                    key: matrix(gguf, &name("attn_k"), keys, a.width)?,
                    value: matrix(gguf, &name("attn_v"), keys, a.width)?,
                    attention_output: matrix(gguf, &name("attn_output"), a.width, queries)?,
                    feed_norm: vector(gguf, &name("ffn_norm"), a.width)?,
                    gate: matrix(gguf, &name("ffn_gate"), a.hidden, a.width)?,
                    up: matrix(gguf, &name("ffn_up"), a.hidden, a.width)?,
                    down: matrix(gguf, &name("ffn_down"), a.width, a.hidden)?,
                })
            })
            .collect::<Result<_>>()?;
        let output = match gguf.has_tensor("output.weight") {
            true => Some(matrix(gguf, "output.weight", vocabulary, a.width)?),
            false => None,
        };
        Ok(Self {
            embedding: matrix(gguf, "token_embd.weight", vocabulary, a.width)?,
            layers,
            output_norm: vector(gguf, "output_norm.weight", a.width)?,
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

fn matrix(gguf: &Gguf, name: &str, rows: usize, columns: usize) -> Result<Matrix> {
    let tensor = gguf.tensor(name)?;
    let refuse =
        |problem: String| file_error(gguf.path(), format!("tensor {name}"), problem, FETCH_AGAIN);
    if (tensor.rows, tensor.columns) != (rows, columns) {
        return Err(refuse(format!(
            "{} × {}; expected {rows} × {columns}",
            tensor.rows, tensor.columns
        )));
    }
    Matrix::from_blocks(tensor.dtype, rows, columns, &tensor.bytes).map_err(refuse)
}

fn vector(gguf: &Gguf, name: &str, length: usize) -> Result<Vec<f32>> {
    let tensor = gguf.tensor(name)?;
    let refuse =
        |problem: String| file_error(gguf.path(), format!("tensor {name}"), problem, FETCH_AGAIN);
    if (tensor.rows, tensor.columns) != (1, length) {
        return Err(refuse(format!(
            "{} × {}; expected a vector of {length}",
            tensor.rows, tensor.columns
        )));
    }
    let matrix = Matrix::from_blocks(tensor.dtype, 1, length, &tensor.bytes).map_err(refuse)?;
    let mut values = vec![0.0; length];
    matrix.row(0, &mut values);
    Ok(values)
}
