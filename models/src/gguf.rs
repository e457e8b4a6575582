//! A GGUF file: its metadata by typed key, and the raw bytes of its tensors.
//!
//! The container is parsed by candle, which checks declared lengths against the file's size; what is read here
//! is checked again wherever a size leads to an allocation.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, Value};

use crate::error::{FETCH_AGAIN, ModelError, Result, file_error, unknown_tensor};
use crate::language_model::{TensorBytes, Tensors};

/// The only, or alphabetically first, GGUF file in a folder.
pub(crate) fn find_in(folder: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "gguf") && path.is_file())
        .collect();
    found.sort();
    Ok(found.into_iter().next())
}

/// An open GGUF file.
pub(crate) struct Gguf {
    path: PathBuf,
    file: File,
    length: u64,
    content: Content,
}

impl Gguf {
    /// Opens `path` and parses its metadata.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let read = |source| ModelError::Read {
            path: path.to_path_buf(),
            source,
        };
        let mut file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let mut magic = [0u8; 4];
        let known = length >= 4 && file.read_exact(&mut magic).is_ok() && &magic == b"GGUF";
        if !known {
            return Err(file_error(
                path,
                "first four bytes",
                format!(
                    "not a GGUF model (a file of {length} bytes that starts with {magic:02x?})"
                ),
                "give a .gguf file, or a folder with config.json, tokenizer.json and safetensors",
            ));
        }
        file.rewind().map_err(read)?;
        let mut reader = BufReader::with_capacity(1 << 18, &file);
        let content = Content::read(&mut reader)
            .map_err(|e| file_error(path, "metadata", first_line(&e.to_string()), FETCH_AGAIN))?;
        let gguf = Self {
            path: path.to_path_buf(),
            file,
            length,
            content,
        };
        gguf.check_extents()?;
        Ok(gguf)
    }

    /// The file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn check_extents(&self) -> Result<()> {
        for (name, info) in &self.content.tensor_infos {
            let start = self.content.tensor_data_offset.saturating_add(info.offset);
            let end = tensor_bytes(info.ggml_dtype, info.shape.dims())
                .and_then(|bytes| start.checked_add(bytes))
                .ok_or_else(|| {
                    file_error(
                        &self.path,
                        format!("tensor {name}"),
                        "its declared shape is no whole number of blocks, or too large",
                        FETCH_AGAIN,
                    )
                })?;
            if end > self.length {
                return Err(file_error(
                    &self.path,
                    format!("tensor {name}"),
                    format!(
                        "it ends at byte {end}, but the file has {}: it was cut short",
                        self.length
                    ),
                    FETCH_AGAIN,
                ));
            }
        }
        Ok(())
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.content.metadata.get(key)
    }

    fn missing(&self, key: &str, kind: &str) -> ModelError {
        let problem = match self.value(key) {
            None => format!("missing; expected {kind}"),
            Some(other) => format!("found {:?}; expected {kind}", other.value_type()),
        };
        file_error(&self.path, format!("metadata {key}"), problem, FETCH_AGAIN)
    }

    /// A text value.
    pub(crate) fn text(&self, key: &str) -> Result<&str> {
        match self.value(key) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(self.missing(key, "a text")),
        }
    }

    /// A whole number of any width, not negative.
    pub(crate) fn number(&self, key: &str) -> Result<u64> {
        self.value(key)
            .and_then(whole)
            .ok_or_else(|| self.missing(key, "a whole number"))
    }

    /// A whole number that is a size in memory.
    pub(crate) fn size(&self, key: &str) -> Result<usize> {
        usize::try_from(self.number(key)?).map_err(|_| self.missing(key, "a size"))
    }

    /// A floating-point number.
    pub(crate) fn float(&self, key: &str) -> Result<f32> {
        match self.value(key) {
            Some(Value::F32(v)) => Ok(*v),
            Some(Value::F64(v)) => Ok(*v as f32),
            _ => Err(self.missing(key, "a floating-point number")),
        }
    }

    /// A truth value.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key) {
            Some(Value::Bool(v)) => Some(*v),
            _ => None,
        }
    }

    /// A list.
    pub(crate) fn list(&self, key: &str) -> Result<&[Value]> {
        match self.value(key) {
            Some(Value::Array(values)) => Ok(values),
            _ => Err(self.missing(key, "a list")),
        }
    }

    /// A list of texts.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<&str>> {
        self.list(key)?
            .iter()
            .map(|v| match v {
                Value::String(text) => Ok(text.as_str()),
                _ => Err(self.missing(key, "a list of texts")),
            })
            .collect()
    }

    /// A list of whole numbers, not negative.
    pub(crate) fn numbers(&self, key: &str) -> Result<Vec<u64>> {
        self.list(key)?
            .iter()
            .map(|v| whole(v).ok_or_else(|| self.missing(key, "a list of whole numbers")))
            .collect()
    }

    /// A list of floating-point numbers.
    pub(crate) fn floats(&self, key: &str) -> Result<Vec<f32>> {
        self.list(key)?
            .iter()
            .map(|v| match v {
                Value::F32(v) => Ok(*v),
                _ => Err(self.missing(key, "a list of floating-point numbers")),
            })
            .collect()
    }

    /// Whether a tensor of that name is there.
    pub(crate) fn has_tensor(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    /// Reads one tensor's blocks.
    pub(crate) fn tensor(&self, name: &str) -> Result<TensorBytes> {
        let info = self.content.tensor_infos.get(name).ok_or_else(|| {
            file_error(&self.path, format!("tensor {name}"), "missing", FETCH_AGAIN)
        })?;
        let (rows, columns) = match info.shape.dims() {
            [columns] => (1, *columns),
            [rows, columns] => (*rows, *columns),
            other => {
                return Err(file_error(
                    &self.path,
                    format!("tensor {name}"),
                    format!("shape {other:?}; expected a vector or a matrix"),
                    FETCH_AGAIN,
                ));
            }
        };
        // `check_extents` has shown that these bytes lie inside the file.
        let size = tensor_bytes(info.ggml_dtype, info.shape.dims()).unwrap_or(0);
        let read = |source| ModelError::Read {
            path: self.path.clone(),
            source,
        };
        let mut bytes = vec![0u8; size as usize];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(
            self.content.tensor_data_offset + info.offset,
        ))
        .map_err(read)?;
        file.read_exact(&mut bytes).map_err(read)?;
        Ok(TensorBytes {
            dtype: info.ggml_dtype,
            rows,
            columns,
            bytes,
        })
    }
}

impl Tensors for Gguf {
    fn has(&self, name: &str) -> bool {
        self.has_tensor(name)
    }

    fn rows(&self, name: &str) -> usize {
        self.content
            .tensor_infos
            .get(name)
            .map_or(0, |info| info.shape.dims().first().copied().unwrap_or(0))
    }

    fn blocks(&self, name: &str, rows: usize, columns: usize) -> Result<TensorBytes> {
        let tensor = self.tensor(name)?;
        if (tensor.rows, tensor.columns) != (rows, columns) {
            let found = format!("{} × {}", tensor.rows, tensor.columns);
            return Err(self.refuse(name, format!("{found}; expected {rows} × {columns}")));
        }
        Ok(tensor)
    }

    fn refuse(&self, name: &str, problem: String) -> ModelError {
        file_error(&self.path, format!("tensor {name}"), problem, FETCH_AGAIN)
    }

    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>> {
        let matrix = self.matrix(name, 1, length)?;
        let mut values = vec![0.0; length];
        matrix.row(0, &mut values);
        Ok(values)
    }

    fn refuse_others(&self, known: &HashSet<String>) -> Result<()> {
        // The frequencies are part of the architecture.
        let others = self.content.tensor_infos.keys();
        match others
            .filter(|name| !known.contains(*name) && *name != "rope_freqs.weight")
            .min()
        {
            None => Ok(()),
            Some(name) => Err(unknown_tensor(&self.path, name)),
        }
    }
}

fn tensor_bytes(dtype: GgmlDType, dims: &[usize]) -> Option<u64> {
    let elements = dims
        .iter()
        .try_fold(1u64, |n, &d| n.checked_mul(d as u64))?;
    let columns = *dims.last()? as u64;
    let block = dtype.block_size() as u64;
    if elements == 0 || !columns.is_multiple_of(block) {
        return None;
    }
    (elements / block).checked_mul(dtype.type_size() as u64)
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::U8(v) => Some(u64::from(*v)),
        Value::U16(v) => Some(u64::from(*v)),
        Value::U32(v) => Some(u64::from(*v)),
        Value::U64(v) => Some(*v),
        Value::I8(v) => u64::try_from(*v).ok(),
        Value::I16(v) => u64::try_from(*v).ok(),
        Value::I32(v) => u64::try_from(*v).ok(),
        Value::I64(v) => u64::try_from(*v).ok(),
        _ => None,
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
