//! What a tokenizer is made of, read from GGUF metadata or from a `tokenizer.json`.

use std::collections::HashMap;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::TokenizerError;
use super::bpe::Start;
use super::words::{LLAMA3, QWEN2};
use crate::gguf::Gguf;

/// Ids beyond this are refused: no vocabulary comes near it, and tables are as long as the highest id.
const HIGHEST_ID: u64 = 1 << 22;

/// An added token: never part of ordinary text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) id: u32,
    pub(super) content: String,
    pub(super) special: bool,
}

/// Vocabulary, merges and pipeline as a file gives them.
pub(super) struct Definition {
    /// Ordinary entries as they are written in the file.
    pub(super) vocabulary: Vec<(String, u32)>,
    /// Merge rules in order of rank.
    pub(super) merges: Vec<(String, String)>,
    pub(super) start: Start,
    pub(super) whole_words: bool,
    /// The `normalizer` of a `tokenizer.json`, without any prefix.
    pub(super) normalizer: Value,
    /// The `pre_tokenizer` of a `tokenizer.json`, without any prefix.
    pub(super) pre_tokenizer: Value,
    pub(super) controls: Vec<Control>,
    /// Whether runs of white space are tokens of their own, whatever stands beside them.
    pub(super) runs: bool,
    /// The token every prompt begins with, if there is one.
    pub(super) begin: Option<u32>,
    /// Highest id + 1, unused ids included.
    pub(super) size: u32,
}

fn error(path: &Path, problem: impl Into<String>) -> TokenizerError {
    TokenizerError::Invalid {
        path: path.to_path_buf(),
        problem: problem.into(),
    }
}

fn split(pattern: &str) -> Value {
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
        byte_level(false),
    ]})
}

fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}

/// Pipeline by llama.cpp's name of the pre-tokenizer: normalizer, pre-tokenizer, whole words.
fn pipeline(name: &str) -> Option<(Value, Value, bool)> {
    Some(match name {
        "gpt-2" | "gpt2" | "olmo" | "jais" | "mpt" => (Value::Null, byte_level(true), false),
        "smollm" | "starcoder" | "refact" | "command-r" => {
            let digits = json!({"type": "Digits", "individual_digits": true});
            (
                Value::Null,
                json!({"type": "Sequence", "pretokenizers": [digits, byte_level(true)]}),
                false,
            )
        }
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" => (Value::Null, split(LLAMA3), true),
        "qwen2" | "deepseek-r1-qwen" => (json!({"type": "NFC"}), split(QWEN2), false),
        _ => return None,
    })
}

impl Definition {
    /// Reads the tokenizer that a GGUF model carries.
    pub(super) fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let path = gguf.path();
        let wrap = |e: crate::error::ModelError| TokenizerError::Model(Box::new(e));
        let texts = gguf.texts("tokenizer.ggml.tokens").map_err(wrap)?;
        let kinds = gguf.numbers("tokenizer.ggml.token_type").map_err(wrap)?;
        if kinds.len() != texts.len() {
            return Err(error(
                path,
                format!("{} tokens, but {} token types", texts.len(), kinds.len()),
            ));
        }
        let mut vocabulary = Vec::new();
        let mut controls = Vec::new();
        let mut runs = false;
        for (id, (&text, &kind)) in texts.iter().zip(&kinds).enumerate() {
            let id = id as u32;
            match kind {
                1 | 6 => vocabulary.push((text.to_owned(), id)),
                4 if is_white_space(text) => {
                    runs = true;
                    vocabulary.push((text.replace(' ', "▁"), id));
                }
                2..=4 => controls.push(Control {
                    id,
                    content: text.to_owned(),
                    special: kind != 4,
                }),
                // 5: reserved and unused ids.
                _ => {}
            }
        }
        let kind = gguf.text("tokenizer.ggml.model").map_err(wrap)?;
        // Files that say nothing: SentencePiece-like models and Llama 3 begin with it, as in llama.cpp.
        let splitter = gguf.text("tokenizer.ggml.pre").unwrap_or_default();
        let default_begin =
            kind == "llama" || matches!(splitter, "llama3" | "llama-v3" | "llama-bpe");
        let begin = match gguf
            .flag("tokenizer.ggml.add_bos_token")
            .unwrap_or(default_begin)
        {
            true => gguf
                .number("tokenizer.ggml.bos_token_id")
                .ok()
                .and_then(|id| u32::try_from(id).ok()),
            false => None,
        };
        let size = texts.len() as u32;
        match kind {
            "gpt2" => {
                let name = gguf.text("tokenizer.ggml.pre").map_err(wrap)?;
                let (normalizer, pre_tokenizer, whole_words) = pipeline(name).ok_or_else(|| {
                    error(path, format!("its pre-tokenizer '{name}' is not known here; put the model's tokenizer.json beside it"))
                })?;
                let merges = gguf
                    .texts("tokenizer.ggml.merges")
                    .map_err(wrap)?
                    .into_iter()
                    .map(|m| {
                        // The space that parts the two is not the first character: an entry may begin with one.
                        let at = m
                            .char_indices()
                            .skip(1)
                            .find(|&(_, c)| c == ' ')
                            .map(|(at, _)| at);
                        at.map(|at| (m[..at].to_owned(), m[at + 1..].to_owned()))
                            .ok_or_else(|| {
                                error(path, format!("merge rule {m:?} is not two entries"))
                            })
                    })
                    .collect::<Result<_, _>>()?;
                Ok(Self {
                    vocabulary,
                    merges,
                    start: Start::Bytes,
                    whole_words,
                    normalizer,
                    pre_tokenizer,
                    controls,
                    runs,
                    begin,
                    size,
                })
            }
            "llama" => {
                let scores = gguf.floats("tokenizer.ggml.scores").map_err(wrap)?;
                if scores.len() != texts.len() {
                    return Err(error(
                        path,
                        format!("{} tokens, but {} scores", texts.len(), scores.len()),
                    ));
                }
                let merges = merges_by_score(&vocabulary, &scores);
                let normalizer =
                    json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
                Ok(Self {
                    vocabulary,
                    merges,
                    start: Start::Characters,
                    whole_words: false,
                    normalizer,
                    pre_tokenizer: Value::Null,
                    controls,
                    runs,
                    begin,
                    size,
                })
            }
            other => Err(error(
                path,
                format!(
                    "a tokenizer of kind '{other}'; byte-level BPE ('gpt2') and SentencePiece-like BPE ('llama') are supported"
                ),
            )),
        }
    }

    /// Reads a `tokenizer.json`; `path` is used in errors.
    pub(super) fn from_json(bytes: &[u8], path: &Path) -> Result<Self, TokenizerError> {
        let mut root: Value = serde_json::from_slice(bytes)
            .map_err(|e| error(path, format!("not a tokenizer.json: {e}")))?;
        let mut model = root.get_mut("model").map(Value::take).unwrap_or_default();
        let kind = model.get("type").and_then(Value::as_str).unwrap_or("BPE");
        if kind != "BPE" || !model.get("merges").is_some_and(Value::is_array) {
            return Err(error(
                path,
                format!(
                    "its model is of type {kind}; language models with a BPE tokenizer are supported"
                ),
            ));
        }
        for unsupported in ["continuing_subword_prefix", "end_of_word_suffix"] {
            if model
                .get(unsupported)
                .and_then(Value::as_str)
                .is_some_and(|s| !s.is_empty())
            {
                return Err(error(
                    path,
                    format!("its model sets {unsupported}, which is not supported"),
                ));
            }
        }
        let flag = |name: &str| model.get(name).and_then(Value::as_bool).unwrap_or(false);
        let (byte_fallback, whole_words) = (flag("byte_fallback"), flag("ignore_merges"));
        let mut size = 0u64;
        let mut read_id = |value: Option<&Value>, what: &str| {
            let id = value.and_then(Value::as_u64).filter(|&id| id < HIGHEST_ID);
            let id = id.ok_or_else(|| {
                error(path, format!("the id of {what:?} is missing or too large"))
            })?;
            size = size.max(id + 1);
            Ok::<u32, TokenizerError>(id as u32)
        };
        let mut controls = Vec::new();
        let mut runs = false;
        for added in root
            .get("added_tokens")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let content = added
                .get("content")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            let id = read_id(added.get("id"), &content)?;
            let special = added
                .get("special")
                .and_then(Value::as_bool)
                .unwrap_or(true);
            if !special && is_white_space(&content) {
                runs = true;
                continue;
            }
            controls.push(Control {
                id,
                content,
                special,
            });
        }
        let added: std::collections::HashSet<u32> = controls.iter().map(|c| c.id).collect();
        let mut vocabulary = Vec::new();
        let entries = model.get_mut("vocab").map(Value::take).unwrap_or_default();
        let Value::Object(entries) = entries else {
            return Err(error(path, "its model has no vocab"));
        };
        for (text, id) in entries {
            let id = read_id(Some(&id), &text)?;
            if !added.contains(&id) {
                vocabulary.push((text, id));
            }
        }
        let mut merges = Vec::new();
        if let Some(Value::Array(rules)) = model.get_mut("merges").map(Value::take) {
            for rule in rules {
                let two = match &rule {
                    Value::String(text) => text
                        .split_once(' ')
                        .map(|(l, r)| (l.to_owned(), r.to_owned())),
                    Value::Array(two) => match two.as_slice() {
                        [Value::String(l), Value::String(r)] => Some((l.clone(), r.clone())),
                        _ => None,
                    },
                    _ => None,
                };
                merges.push(
                    two.ok_or_else(|| {
                        error(path, format!("merge rule {rule} is not two entries"))
                    })?,
                );
            }
        }
        let normalizer = without_prefix(
            root.get_mut("normalizer")
                .map(Value::take)
                .unwrap_or_default(),
        );
        let pre_tokenizer = without_prefix(
            root.get_mut("pre_tokenizer")
                .map(Value::take)
                .unwrap_or_default(),
        );
        let bytes = mentions(&pre_tokenizer, "ByteLevel");
        if !bytes
            && !byte_fallback
            && !mentions(&normalizer, "Replace")
            && !mentions(&pre_tokenizer, "Metaspace")
        {
            return Err(error(
                path,
                "neither byte-level nor SentencePiece-like: spaces would be lost",
            ));
        }
        let begin = begin_of(
            root.get("post_processor").unwrap_or(&Value::Null),
            &controls,
        );
        Ok(Self {
            vocabulary,
            merges,
            start: if bytes {
                Start::Bytes
            } else {
                Start::Characters
            },
            whole_words,
            normalizer,
            pre_tokenizer,
            controls,
            runs,
            begin,
            size: size as u32,
        })
    }
}

/// Runs of white space that some vocabularies list as added tokens are ordinary text: nothing can be forged of them.
pub(super) fn is_white_space(content: &str) -> bool {
    !content.is_empty()
        && content
            .chars()
            .all(|c| matches!(c, ' ' | '▁' | '\n' | '\t'))
}

/// The rules SentencePiece's scores stand for: any two neighbours that make an entry are joined, the entry of the
/// highest score first. Rules of one score are ordered as the converters of the `transformers` library do.
fn merges_by_score(vocabulary: &[(String, u32)], scores: &[f32]) -> Vec<(String, String)> {
    let known: FxHashMap<&str, u32> = vocabulary
        .iter()
        .map(|(text, id)| (text.as_str(), *id))
        .collect();
    let mut rules: Vec<(f32, &str, &str)> = Vec::new();
    for (text, id) in vocabulary {
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if known.contains_key(left) && known.contains_key(right) {
                rules.push((scores[*id as usize], left, right));
            }
        }
    }
    rules.sort_by(|a, b| {
        b.0.total_cmp(&a.0)
            .then_with(|| (b.1.len(), b.2.len()).cmp(&(a.1.len(), a.2.len())))
    });
    rules
        .into_iter()
        .map(|(_, left, right)| (left.to_owned(), right.to_owned()))
        .collect()
}

/// Whether a pipeline step of this type occurs.
pub(super) fn mentions(step: &Value, kind: &str) -> bool {
    match step {
        Value::Object(fields) => {
            fields.get("type").and_then(Value::as_str) == Some(kind)
                || fields.values().any(|v| mentions(v, kind))
        }
        Value::Array(steps) => steps.iter().any(|v| mentions(v, kind)),
        _ => false,
    }
}

/// The same step with nothing put in front of the text: `Prepend` and the prefix options are taken out.
fn without_prefix(step: Value) -> Value {
    match step {
        Value::Array(steps) => Value::Array(
            steps
                .into_iter()
                .map(without_prefix)
                .filter(|s| !s.is_null())
                .collect(),
        ),
        Value::Object(fields) if fields.get("type").and_then(Value::as_str) == Some("Prepend") => {
            Value::Null
        }
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| {
                    let value = match name.as_str() {
                        "add_prefix_space" => Value::Bool(false),
                        "prepend_scheme" => Value::String("never".to_owned()),
                        "normalizers" | "pretokenizers" => without_prefix(value),
                        _ => value,
                    };
                    (name, value)
                })
                .collect(),
        ),
        other => other,
    }
}

/// The token that a template post-processor puts in front of a single text.
fn begin_of(processor: &Value, controls: &[Control]) -> Option<u32> {
    let first = match processor.get("type").and_then(Value::as_str)? {
        "Sequence" => {
            let steps = processor.get("processors")?.as_array()?;
            return steps.iter().find_map(|step| begin_of(step, controls));
        }
        "TemplateProcessing" => processor.get("single")?.as_array()?.first()?,
        _ => return None,
    };
    let name = first.get("SpecialToken")?.get("id")?.as_str()?;
    controls.iter().find(|c| c.content == name).map(|c| c.id)
}

/// The parts of a `tokenizer.json` that [`Definition::from_json`] reads back.
pub(super) struct Parts<'a> {
    pub(super) vocabulary: Vec<(String, u32)>,
    pub(super) merges: Vec<(String, String)>,
    pub(super) start: Start,
    pub(super) whole_words: bool,
    pub(super) normalizer: &'a Value,
    pub(super) pre_tokenizer: &'a Value,
    pub(super) controls: &'a [Control],
    pub(super) runs: bool,
    pub(super) begin: Option<u32>,
}

/// A `tokenizer.json` of these parts.
pub(super) fn to_json(parts: Parts<'_>) -> Value {
    let runs = parts
        .vocabulary
        .iter()
        .filter(|(text, _)| parts.runs && is_white_space(text) && text != "▁");
    let runs = runs.map(|(text, id)| Control {
        id: *id,
        content: text.clone(),
        special: false,
    });
    let added: Vec<Value> = parts
        .controls
        .iter()
        .cloned()
        .chain(runs)
        .map(|c| {
            // Runs of white space are looked for where spaces have become "▁" as in their content.
            json!({"id": c.id, "content": c.content, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": !c.special && is_white_space(&c.content), "special": c.special})
        })
        .collect();
    let by_id: HashMap<u32, &str> = parts
        .controls
        .iter()
        .map(|c| (c.id, c.content.as_str()))
        .collect();
    let post_processor = match parts
        .begin
        .and_then(|id| by_id.get(&id).map(|content| (id, *content)))
    {
        Some((id, content)) => json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": content, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": content, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": content, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {content: {"id": content, "ids": [id], "tokens": [content]}},
        }),
        None => Value::Null,
    };
    let decoder = match parts.start {
        Start::Bytes => byte_level(true),
        Start::Characters => json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        ]}),
    };
    let vocabulary: serde_json::Map<String, Value> = parts
        .vocabulary
        .into_iter()
        .map(|(text, id)| (text, Value::from(id)))
        .collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": parts.normalizer,
        "pre_tokenizer": parts.pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": parts.start == Start::Characters,
            "ignore_merges": parts.whole_words,
            "vocab": vocabulary,
            "merges": parts.merges,
        },
    })
}
