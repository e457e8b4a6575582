//! A model folder of the `transformers` library: `config.json`, safetensors, tokenizer files.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::quantized::GgmlDType;
use serde_json::Value;

use crate::error::{FETCH_AGAIN, ModelError, Result, file_error, unknown_tensor};

use super::architecture::Family;
use super::weights::{TensorBytes, Tensors};

/// Longest header that is read; those of the largest models take a few megabytes.
const LONGEST_HEADER: u64 = 100 << 20;
/// What the names of a language model's tensors begin with, and that of its output: alone, or inside of a model that
/// sees pictures too, before and since version 5 of the library.
const PREFIXES: [(&str, &str); 3] = [
    ("model.", "lm_head.weight"),
    ("language_model.model.", "language_model.lm_head.weight"),
    ("model.language_model.", "lm_head.weight"),
];

/// One tensor: which file, where in it, and of what shape.
struct Place {
    file: usize,
    start: u64,
    dtype: GgmlDType,
    dims: Vec<usize>,
}

/// The safetensors files of a folder.
pub(crate) struct Safetensors {
    folder: PathBuf,
    files: Vec<(PathBuf, File)>,
    tensors: HashMap<String, Place>,
    family: Family,
    prefix: &'static str,
    output: &'static str,
}

impl Safetensors {
    /// Opens all files of a folder and reads their headers.
    pub(crate) fn open(folder: &Path, family: Family) -> Result<Self> {
        let index = folder.join("model.safetensors.index.json");
        let names: Vec<String> = if index.is_file() {
            let json = read_json(&index)?;
            let map = json.get("weight_map").and_then(Value::as_object);
            let map =
                map.ok_or_else(|| file_error(&index, "weight_map", "missing", FETCH_AGAIN))?;
            let mut names: Vec<String> = map
                .values()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect();
            names.sort_unstable();
            names.dedup();
            names
        } else {
            vec!["model.safetensors".to_owned()]
        };
        let mut found = Self {
            folder: folder.to_path_buf(),
            files: Vec::new(),
            tensors: HashMap::new(),
            family,
            prefix: PREFIXES[0].0,
            output: PREFIXES[0].1,
        };
        for name in names {
            if Path::new(&name).components().count() != 1 || name.starts_with('.') {
                return Err(file_error(
                    &index,
                    "weight_map",
                    format!("{name:?} is not a file of this folder"),
                    FETCH_AGAIN,
                ));
            }
            found.add(&folder.join(name))?;
        }
        for (prefix, output) in PREFIXES {
            if found
                .tensors
                .contains_key(&format!("{prefix}embed_tokens.weight"))
            {
                (found.prefix, found.output) = (prefix, output);
                break;
            }
        }
        Ok(found)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let read = |source| ModelError::Read {
            path: path.to_path_buf(),
            source,
        };
        let header_error = |problem: String| file_error(path, "header", problem, FETCH_AGAIN);
        let mut file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let mut size = [0u8; 8];
        file.read_exact(&mut size)
            .map_err(|_| header_error(format!("a file of {length} bytes holds none")))?;
        let size = u64::from_le_bytes(size);
        if size > LONGEST_HEADER || size > length.saturating_sub(8) {
            return Err(header_error(format!(
                "it declares {size} bytes in a file of {length}"
            )));
        }
        let mut header = vec![0u8; size as usize];
        file.read_exact(&mut header).map_err(read)?;
        let header: HashMap<String, Value> = serde_json::from_slice(&header)
            .map_err(|e| header_error(format!("not safetensors: {e}")))?;
        let data = length - 8 - size;
        for (name, value) in header.iter().filter(|(name, _)| *name != "__metadata__") {
            let refuse =
                |problem: &str| file_error(path, format!("tensor {name}"), problem, FETCH_AGAIN);
            let numbers = |key: &str| -> Option<Vec<u64>> {
                value
                    .get(key)?
                    .as_array()?
                    .iter()
                    .map(Value::as_u64)
                    .collect()
            };
            let dtype = match value.get("dtype").and_then(Value::as_str) {
                Some("F32") => GgmlDType::F32,
                Some("F16") => GgmlDType::F16,
                Some("BF16") => GgmlDType::BF16,
                // Such tensors may be there as long as they are not asked for.
                _ => continue,
            };
            let shape = numbers("shape").ok_or_else(|| refuse("its shape is missing"))?;
            let offsets =
                numbers("data_offsets").ok_or_else(|| refuse("its offsets are missing"))?;
            let elements = shape
                .iter()
                .try_fold(dtype.type_size() as u64, |n, d| n.checked_mul(*d));
            match (offsets.as_slice(), elements) {
                (&[from, to], Some(bytes)) if from <= to && to <= data && to - from == bytes => {
                    let place = Place {
                        file: self.files.len(),
                        start: 8 + size + from,
                        dtype,
                        dims: shape.iter().map(|&d| d as usize).collect(),
                    };
                    self.tensors.insert(name.clone(), place);
                }
                _ => {
                    return Err(refuse(
                        "its shape and its place in the file do not agree; the file may be cut short",
                    ));
                }
            }
        }
        self.files.push((path.to_path_buf(), file));
        Ok(())
    }

    fn place(&self, name: &str) -> Option<&Place> {
        let name = self.translated(name);
        self.tensors.get(&name)
    }

    /// The name that the `transformers` library gives to what GGUF calls `name`.
    fn translated(&self, name: &str) -> String {
        let gemma = self.family == Family::Gemma3;
        let prefix = self.prefix;
        match name {
            "token_embd.weight" => return format!("{prefix}embed_tokens.weight"),
            "output_norm.weight" => return format!("{prefix}norm.weight"),
            "output.weight" => return self.output.to_owned(),
            _ => {}
        }
        let mut parts = name.splitn(4, '.');
        let (_, layer, part, kind) = (parts.next(), parts.next(), parts.next(), parts.next());
        let part = match part.unwrap_or_default() {
            "attn_norm" => "input_layernorm",
            "attn_q" => "self_attn.q_proj",
            "attn_k" => "self_attn.k_proj",
            "attn_v" => "self_attn.v_proj",
            "attn_output" => "self_attn.o_proj",
            "attn_q_norm" => "self_attn.q_norm",
            "attn_k_norm" => "self_attn.k_norm",
            "post_attention_norm" => "post_attention_layernorm",
            "ffn_norm" if gemma => "pre_feedforward_layernorm",
            "ffn_norm" => "post_attention_layernorm",
            "post_ffw_norm" => "post_feedforward_layernorm",
            "ffn_gate" => "mlp.gate_proj",
            "ffn_up" => "mlp.up_proj",
            "ffn_down" => "mlp.down_proj",
            other => other,
        };
        format!(
            "{prefix}layers.{}.{part}.{}",
            layer.unwrap_or_default(),
            kind.unwrap_or_default()
        )
    }
}

impl Tensors for Safetensors {
    fn has(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    fn rows(&self, name: &str) -> usize {
        self.place(name)
            .and_then(|place| place.dims.first().copied())
            .unwrap_or(0)
    }

    fn blocks(&self, name: &str, rows: usize, columns: usize) -> Result<TensorBytes> {
        let own = self.translated(name);
        let refuse = |path: &Path, problem: String| {
            file_error(path, format!("tensor {own}"), problem, FETCH_AGAIN)
        };
        let place = self
            .place(name)
            .ok_or_else(|| refuse(&self.folder, "missing".to_owned()))?;
        let (path, mut file) = self
            .files
            .get(place.file)
            .map_or((&self.folder, None), |(p, f)| (p, Some(f)));
        let fits = match place.dims.as_slice() {
            [n] => rows == 1 && *n == columns,
            [r, c] => (*r, *c) == (rows, columns),
            _ => false,
        };
        if !fits {
            return Err(refuse(
                path,
                format!("shape {:?}; expected {rows} × {columns}", place.dims),
            ));
        }
        // `add` has shown that these bytes lie inside the file.
        let mut bytes = vec![0u8; rows * columns * place.dtype.type_size()];
        if let Some(file) = &mut file {
            let read = |source| ModelError::Read {
                path: path.clone(),
                source,
            };
            file.seek(SeekFrom::Start(place.start)).map_err(read)?;
            file.read_exact(&mut bytes).map_err(read)?;
        }
        Ok(TensorBytes {
            dtype: place.dtype,
            rows,
            columns,
            bytes,
        })
    }

    fn refuse(&self, name: &str, problem: String) -> ModelError {
        let place = self
            .place(name)
            .and_then(|place| self.files.get(place.file));
        let path = place.map_or(&self.folder, |(path, _)| path);
        let own = self.translated(name);
        file_error(path, format!("tensor {own}"), problem, FETCH_AGAIN)
    }

    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>> {
        let matrix = self.matrix(name, 1, length)?;
        let mut values = vec![0.0; length];
        matrix.row(0, &mut values);
        // Gemma's norms multiply by one more than their weights.
        if self.family == Family::Gemma3 && name.contains("norm") {
            values.iter_mut().for_each(|v| *v += 1.0);
        }
        Ok(values)
    }

    fn refuse_others(&self, known: &HashSet<String>) -> Result<()> {
        let known: HashSet<String> = known.iter().map(|name| self.translated(name)).collect();
        // What stands beside the language model, such as a picture encoder, is not used; nor are the frequencies that
        // old versions of the library stored, which follow from the configuration.
        let layers = format!("{}layers.", self.prefix);
        let others = self.tensors.iter().filter(|(name, _)| {
            name.starts_with(&layers)
                && !name.ends_with("rotary_emb.inv_freq")
                && !known.contains(*name)
        });
        match others.min_by_key(|(name, _)| *name) {
            None => Ok(()),
            Some((name, place)) => {
                let path = self.files.get(place.file).map_or(&self.folder, |(p, _)| p);
                Err(unknown_tensor(path, name))
            }
        }
    }
}

/// Reads a JSON file.
pub(crate) fn read_json(path: &Path) -> Result<Value> {
    let bytes = std::fs::read(path).map_err(|source| ModelError::Read {
        path: path.to_path_buf(),
        source,
    })?;
    serde_json::from_slice(&bytes).map_err(|e| file_error(path, "JSON", e.to_string(), FETCH_AGAIN))
}
