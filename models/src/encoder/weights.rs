//! Weights by name and shape, from `model.safetensors`.

use std::fs;
use std::path::{Path, PathBuf};

use candle_core::safetensors::{BufferedSafetensors, Load};
use candle_core::{DType, Device};

use super::EncoderError;

/// The names an encoder may stand under inside a larger model.
const PREFIXES: [&str; 3] = ["", "bert.", "roberta."];

/// An open file of weights.
pub(super) struct Weights {
    path: PathBuf,
    file: BufferedSafetensors,
    /// What stands before the names of the encoder's own tensors.
    prefix: &'static str,
}

impl Weights {
    /// Opens `model.safetensors` in `folder`. The reader checks the header against the file's
    /// size, so a damaged file is refused here.
    pub fn open(folder: &Path) -> Result<Weights, EncoderError> {
        let path = folder.join("model.safetensors");
        let bytes = fs::read(&path).map_err(|source| EncoderError::Read {
            path: path.clone(),
            source,
        })?;
        let file = BufferedSafetensors::new(bytes)
            .map_err(|error| EncoderError::file(&path, "header", error.to_string()))?;
        let has = |prefix: &&&str| {
            file.get(&format!("{prefix}embeddings.word_embeddings.weight"))
                .is_ok()
        };
        let Some(prefix) = PREFIXES.iter().find(has) else {
            return Err(EncoderError::file(
                &path,
                "embeddings.word_embeddings.weight",
                "it is not there; expected the weights of a BERT or RoBERTa",
            ));
        };
        Ok(Weights { prefix, path, file })
    }

    /// A tensor of the encoder, in row-major order, as 32-bit floats.
    pub fn encoder(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, EncoderError> {
        self.tensor(&format!("{}{name}", self.prefix), shape)
    }

    /// A tensor under its full name.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, EncoderError> {
        let wrong = |problem: String| EncoderError::file(&self.path, name, problem);
        let view = self
            .file
            .get(name)
            .map_err(|_| wrong("the tensor is not there".into()))?;
        if view.shape() != shape {
            return Err(wrong(format!(
                "shape {:?}, expected {shape:?}",
                view.shape()
            )));
        }
        // The common case, without a copy in between.
        if view.dtype() == DType::F32.into() {
            let (words, _) = view.data().as_chunks::<4>();
            return Ok(words.iter().map(|&word| f32::from_le_bytes(word)).collect());
        }
        let values = view
            .load(&Device::Cpu)
            .and_then(|tensor| tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>())
            .map_err(|error| wrong(error.to_string()))?;
        Ok(values)
    }

    /// Whether a tensor is there, under its full name.
    pub fn has(&self, name: &str) -> bool {
        self.file.get(name).is_ok()
    }

    /// What stands before the names of the encoder's own tensors.
    pub fn prefix(&self) -> &'static str {
        self.prefix
    }
}
