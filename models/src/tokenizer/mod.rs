//! Tokenizers: text to token ids and back, with the exact bytes of every token.
//!
//! A [`Tokenizer`] is read from a `tokenizer.json` or from the metadata of a GGUF model and gives the same ids from
//! either. Ordinary text is encoded by a vocabulary that holds no control tokens at all, so that no text can ever
//! produce one.

mod alphabet;
mod bpe;
mod definition;
mod memory;
mod words;

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{NormalizedString, Normalizer};

use crate::gguf::Gguf;
use alphabet::Alphabet;
use bpe::{Bpe, Start};
use definition::{Control, Definition, Parts, mentions};
use memory::Memories;
use words::Words;

/// An error from reading or writing a tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file holds no tokenizer, or one of a kind that is not supported.
    #[error("tokenizer {}: {problem}", path.display())]
    Invalid {
        /// The file; `tokenizer.json` when it was given as bytes.
        path: PathBuf,
        /// What was found and what was expected.
        problem: String,
    },
    /// A folder without any file that holds a tokenizer.
    #[error("no tokenizer in {}: expected tokenizer.json or a .gguf model", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// The GGUF file that should hold the tokenizer could not be read.
    #[error(transparent)]
    Model(Box<crate::error::ModelError>),
    /// The tokenizer could not be written as JSON.
    #[error("cannot write the tokenizer: {0}")]
    Write(#[from] serde_json::Error),
}

/// Text in many scripts, whose ids are part of a fingerprint.
const PROBE: &str = " The café's 1,984 naïve coöperators didn't re-enter Łódź (Poland) at 12:30; \"Ω≈ç√\" \
    Привет, мир! 你好，世界。 こんにちは 안녕하세요 שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก 👩‍🚀🚀 \
    e\u{301} \u{a0}x\ttab\r\nline\n\n  <|im_end|> <s> </s> <0x0A> ▁under_score ½ ٣ Ⅻ";

/// A vocabulary with its rules, its exact bytes and its control tokens.
///
/// It is `Send` and `Sync`; share it behind an [`std::sync::Arc`].
pub struct Tokenizer {
    bpe: Bpe,
    words: Words,
    memories: Memories,
    normalizer: Option<NormalizerWrapper>,
    /// Whether the normalizer leaves ASCII as it is.
    ascii_stays: bool,
    normalizer_json: Value,
    pre_tokenizer_json: Value,
    /// Exact bytes of all ordinary tokens, one after another.
    bytes: Vec<u8>,
    /// Where each id's bytes lie; empty for ids that are not ordinary.
    spans: Vec<(u32, u32)>,
    controls: Vec<Control>,
    /// Control tokens by first byte of their content, the longest first.
    control_starts: FxHashMap<u8, Vec<usize>>,
    control_ids: FxHashMap<u32, usize>,
    begin: Option<u32>,
    fingerprint: String,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocabulary_size", &self.vocabulary_size())
            .field("controls", &self.controls.len())
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Opens a `tokenizer.json`, a GGUF model, or a folder that holds one of them.
    ///
    /// # Errors
    /// The file cannot be read, or holds no tokenizer of a supported kind.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let path = path.as_ref();
        if path.is_dir() {
            let json = path.join("tokenizer.json");
            if json.is_file() {
                return Self::from_file(json);
            }
            let gguf = crate::gguf::find_in(path).map_err(|source| TokenizerError::Read {
                path: path.to_path_buf(),
                source,
            })?;
            return match gguf {
                Some(gguf) => Self::from_gguf(gguf),
                None => Err(TokenizerError::Missing {
                    path: path.to_path_buf(),
                }),
            };
        }
        match path.extension().and_then(|e| e.to_str()) {
            Some("gguf") => Self::from_gguf(path),
            _ => Self::from_file(path),
        }
    }

    /// Reads the tokenizer a GGUF model carries in its metadata.
    ///
    /// Byte-level BPE (`tokenizer.ggml.model` = `gpt2`) and SentencePiece-like BPE (`llama`) are supported.
    ///
    /// # Errors
    /// The file cannot be read, is no GGUF file, or its tokenizer is of another kind.
    pub fn from_gguf(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let gguf = Gguf::open(path.as_ref()).map_err(|e| TokenizerError::Model(Box::new(e)))?;
        Self::from_open_gguf(&gguf)
    }

    pub(crate) fn from_open_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        Self::from_definition(Definition::from_gguf(gguf)?, gguf.path())
    }

    /// Reads a `tokenizer.json` of the `tokenizers` library with a BPE model.
    ///
    /// # Errors
    /// The file cannot be read, is not a tokenizer, or its model is not BPE.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|source| TokenizerError::Read {
            path: path.to_path_buf(),
            source,
        })?;
        Self::from_definition(Definition::from_json(&bytes, path)?, path)
    }

    /// Reads a `tokenizer.json` from memory, such as one that [`Tokenizer::to_json`] wrote.
    ///
    /// # Errors
    /// As [`Tokenizer::from_file`].
    pub fn from_json(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let path = Path::new("tokenizer.json");
        Self::from_definition(Definition::from_json(bytes, path)?, path)
    }

    fn from_definition(definition: Definition, path: &Path) -> Result<Self, TokenizerError> {
        let invalid = |problem: String| TokenizerError::Invalid {
            path: path.to_path_buf(),
            problem,
        };
        let alphabet = Alphabet::new();
        let mut spans = vec![(0u32, 0u32); definition.size as usize];
        let mut bytes = Vec::new();
        let mut single_bytes = [None; 256];
        let mut by_text: FxHashMap<&str, u32> = FxHashMap::default();
        let mut entries: FxHashMap<Box<[u8]>, u32> = FxHashMap::default();
        let mut before_spaces = Box::new([false; 256]);
        for (text, id) in &definition.vocabulary {
            let exact = match definition.start {
                Start::Bytes => alphabet.bytes_of(text).ok_or_else(|| {
                    invalid(format!(
                        "vocabulary entry {text:?} is not of the byte-level alphabet"
                    ))
                })?,
                Start::Characters => match fallback_byte(text) {
                    Some(byte) => {
                        single_bytes[usize::from(byte)] = Some(*id);
                        vec![byte]
                    }
                    None => text.replace('▁', " ").into_bytes(),
                },
            };
            if exact.is_empty() {
                continue;
            }
            if definition.start == Start::Bytes && exact.len() == 1 {
                single_bytes[usize::from(exact[0])] = Some(*id);
            }
            for two in exact.windows(2).filter(|two| two[1] == b' ') {
                before_spaces[usize::from(two[0])] = true;
            }
            let at = bytes.len() as u32;
            bytes.extend_from_slice(&exact);
            spans[*id as usize] = (at, bytes.len() as u32);
            by_text.insert(text, *id);
            if definition.start == Start::Bytes || fallback_byte(text).is_none() {
                entries.insert(exact.into_boxed_slice(), *id);
            }
        }
        if entries.is_empty() {
            return Err(invalid("its vocabulary is empty".to_owned()));
        }
        let merges: Vec<(u32, u32, u32)> = definition
            .merges
            .iter()
            .filter_map(|(left, right)| {
                // Rules that make a control token have no place in ordinary text.
                let joined = by_text.get(format!("{left}{right}").as_str())?;
                Some((
                    *by_text.get(left.as_str())?,
                    *by_text.get(right.as_str())?,
                    *joined,
                ))
            })
            .collect();
        let words = words_of(&definition, before_spaces)
            .map_err(|e| invalid(format!("its pre-tokenizer: {e}")))?;
        let steps = normalizer_steps(&definition);
        let ascii_stays = steps.iter().all(leaves_ascii);
        let normalizer =
            normalizer_of(steps).map_err(|e| invalid(format!("its normalizer: {e}")))?;
        let mut control_starts: FxHashMap<u8, Vec<usize>> = FxHashMap::default();
        let mut control_ids = FxHashMap::default();
        for (i, control) in definition.controls.iter().enumerate() {
            control_ids.insert(control.id, i);
            if let Some(&first) = control.content.as_bytes().first() {
                control_starts.entry(first).or_default().push(i);
            }
        }
        for starts in control_starts.values_mut() {
            starts.sort_by_key(|&i| std::cmp::Reverse(definition.controls[i].content.len()));
        }
        let mut tokenizer = Self {
            bpe: Bpe::new(
                definition.start,
                entries,
                single_bytes,
                merges,
                definition.whole_words,
            ),
            words,
            memories: Memories::default(),
            normalizer,
            ascii_stays,
            normalizer_json: definition.normalizer,
            pre_tokenizer_json: definition.pre_tokenizer,
            bytes,
            spans,
            begin: definition.begin.filter(|id| control_ids.contains_key(id)),
            controls: definition.controls,
            control_starts,
            control_ids,
            fingerprint: String::new(),
        };
        tokenizer.fingerprint = tokenizer.compute_fingerprint();
        Ok(tokenizer)
    }

    fn compute_fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for id in 0..self.vocabulary_size() {
            if let Some(bytes) = self.token_bytes(id) {
                hash.update(id.to_le_bytes());
                hash.update((bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
        }
        hash.update(u32::MAX.to_le_bytes());
        for id in self.encode_text(PROBE) {
            hash.update(id.to_le_bytes());
        }
        hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Writes the tokenizer as a `tokenizer.json`, from which [`Tokenizer::from_json`] makes an equal one: the same
    /// ids, control tokens and fingerprint.
    ///
    /// # Errors
    /// JSON could not be written, which does not happen for a tokenizer that was read.
    pub fn to_json(&self) -> Result<Vec<u8>, TokenizerError> {
        let alphabet = Alphabet::new();
        let text_of = |id: u32| {
            let bytes = self.token_bytes(id)?;
            Some(match self.bpe.start() {
                Start::Bytes => alphabet.entry_of(bytes),
                Start::Characters => match bytes {
                    [byte] if self.bpe.single_byte(*byte) == Some(id) => format!("<0x{byte:02X}>"),
                    _ => String::from_utf8_lossy(bytes).replace(' ', "▁"),
                },
            })
        };
        let vocabulary = (0..self.vocabulary_size())
            .filter_map(|id| Some((text_of(id)?, id)))
            .collect();
        let merges = self
            .bpe
            .rules()
            .into_iter()
            .filter_map(|(left, right)| Some((text_of(left)?, text_of(right)?)))
            .collect();
        let json = definition::to_json(Parts {
            vocabulary,
            merges,
            start: self.bpe.start(),
            whole_words: self.bpe.whole_words(),
            normalizer: &self.normalizer_json,
            pre_tokenizer: &self.pre_tokenizer_json,
            controls: &self.controls,
            runs: matches!(self.words, Words::Spaced { runs: true, .. }),
            begin: self.begin,
        });
        Ok(serde_json::to_vec(&json)?)
    }

    /// SHA-256, as 64 hexadecimal digits, over every ordinary token (id and exact bytes) and over the ids of a fixed
    /// text in many scripts. Control tokens are left out, so that a GGUF file and the `tokenizer.json` of one model
    /// agree.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The highest id + 1, control tokens and unused ids included.
    pub fn vocabulary_size(&self) -> u32 {
        self.spans.len() as u32
    }

    /// Ids of an ordinary text. Nothing is put in front, and no control token is ever recognised or produced:
    /// `<|im_end|>` in a text becomes ordinary pieces.
    ///
    /// Bytes for which the vocabulary has no token at all are left out (a few control characters and unassigned code
    /// points in some vocabularies).
    pub fn encode_text(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let normalized = self.normalized(text);
        self.words
            .each(normalized.as_deref().unwrap_or(text), |word| {
                self.bpe.encode(word, &mut ids)
            });
        ids
    }

    /// Ids of many ordinary texts, as [`Tokenizer::encode_text`] gives them, on all threads of the current pool.
    pub fn encode_texts(&self, texts: &[&str]) -> Vec<Vec<u32>> {
        texts
            .par_iter()
            .with_min_len(16)
            .map_init(
                || self.memories.borrow(),
                |memory, text| {
                    let mut ids = Vec::with_capacity(text.len() / 3);
                    let normalized = self.normalized(text);
                    self.words
                        .each(normalized.as_deref().unwrap_or(text), |word| {
                            memory.encode(&self.bpe, word, &mut ids)
                        });
                    ids
                },
            )
            .collect()
    }

    /// Ids of a prompt: control tokens are recognised where their content stands, the longest first; what lies
    /// between is encoded as ordinary text. The token that prompts begin with is not added; see
    /// [`Tokenizer::begin_token`].
    pub fn encode_prompt(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        let bytes = text.as_bytes();
        let (mut from, mut at) = (0, 0);
        while at < bytes.len() {
            let found = self.control_starts.get(&bytes[at]).and_then(|starts| {
                starts
                    .iter()
                    .map(|&i| &self.controls[i])
                    .find(|c| bytes[at..].starts_with(c.content.as_bytes()))
            });
            match found {
                Some(control) => {
                    if from < at {
                        ids.extend(self.encode_text(&text[from..at]));
                    }
                    ids.push(control.id);
                    at += control.content.len();
                    from = at;
                }
                None => at += 1,
            }
        }
        if from < bytes.len() {
            ids.extend(self.encode_text(&text[from..]));
        }
        ids
    }

    /// The text of these ids: their exact bytes joined, then read as UTF-8 with replacement characters where it is
    /// not. Control tokens and unknown ids are left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            bytes.extend_from_slice(self.token_bytes(id).unwrap_or_default());
        }
        String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }

    /// The exact bytes an ordinary token stands for; `None` for control tokens and ids that are not in use.
    ///
    /// Joined over [`Tokenizer::encode_text`] they are the text's bytes, where the vocabulary covers all bytes and
    /// no normalizer changes the text.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        let &(from, to) = self.spans.get(id as usize)?;
        (from < to).then(|| &self.bytes[from as usize..to as usize])
    }

    /// The id of a control token by its content, such as `<|im_end|>`.
    pub fn control_token(&self, content: &str) -> Option<u32> {
        self.controls
            .iter()
            .find(|c| c.content == content)
            .map(|c| c.id)
    }

    /// The content of a control token, such as `<|im_end|>`.
    pub fn control_content(&self, id: u32) -> Option<&str> {
        self.control_ids
            .get(&id)
            .map(|&i| self.controls[i].content.as_str())
    }

    /// All control tokens with their contents, in the order of the definition.
    pub fn control_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        self.controls.iter().map(|c| (c.id, c.content.as_str()))
    }

    /// Whether an id is a control token.
    pub fn is_control(&self, id: u32) -> bool {
        self.control_ids.contains_key(&id)
    }

    /// The control token that the model expects in front of every prompt, if it expects one.
    pub fn begin_token(&self) -> Option<u32> {
        self.begin
    }

    fn normalized(&self, text: &str) -> Option<String> {
        let normalizer = self.normalizer.as_ref()?;
        if self.ascii_stays && text.is_ascii() {
            return None;
        }
        let mut normalized = NormalizedString::from(text);
        normalizer.normalize(&mut normalized).ok()?;
        Some(normalized.get().to_owned())
    }
}

/// The byte of an entry such as `<0x0A>`.
fn fallback_byte(entry: &str) -> Option<u8> {
    let digits = entry.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2)
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

fn words_of(
    definition: &Definition,
    before_spaces: Box<[bool; 256]>,
) -> Result<Words, serde_json::Error> {
    let step = &definition.pre_tokenizer;
    if definition.start == Start::Characters {
        // Their pre-tokenizers only part words at spaces, which such a vocabulary never crosses.
        return Ok(Words::Spaced {
            before_spaces,
            runs: definition.runs,
        });
    }
    let kind = |v: &Value| {
        v.get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let uses_pattern = |v: &Value| v.get("use_regex").and_then(Value::as_bool).unwrap_or(true);
    let steps: Vec<&Value> = match step.get("pretokenizers").and_then(Value::as_array) {
        Some(steps) => steps.iter().collect(),
        None => vec![step],
    };
    let kinds: Vec<String> = steps.iter().map(|s| kind(s)).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    match (kinds.as_slice(), steps.as_slice()) {
        (["ByteLevel"], [only]) if uses_pattern(only) => return Ok(Words::Gpt2),
        (["ByteLevel"], _) => return Ok(Words::Whole),
        (["Digits", "ByteLevel"], [digits, level])
            if digits["individual_digits"] == Value::Bool(true) && uses_pattern(level) =>
        {
            return Ok(Words::DigitsThenGpt2);
        }
        (["Split", "ByteLevel"], [split, level])
            if !uses_pattern(level) && split["behavior"] == "Isolated" =>
        {
            match split["pattern"]["Regex"].as_str() {
                Some(words::LLAMA3) => return Ok(Words::Grouped { digits: 3 }),
                Some(words::QWEN2) => return Ok(Words::Grouped { digits: 1 }),
                _ => {}
            }
        }
        _ => {}
    }
    // Bytes are mapped here and not by the crate: its byte-level steps become the patterns they stand for.
    let rest: Vec<Value> = steps
        .into_iter()
        .filter_map(|s| match kind(s).as_str() {
            "ByteLevel" if uses_pattern(s) => Some(serde_json::json!({
                "type": "Split", "pattern": {"Regex": words::GPT2}, "behavior": "Isolated", "invert": false})),
            "ByteLevel" => None,
            _ => Some(s.clone()),
        })
        .collect();
    let sequence = serde_json::json!({"type": "Sequence", "pretokenizers": rest});
    Ok(Words::Other(Box::new(serde_json::from_value::<
        PreTokenizerWrapper,
    >(sequence)?)))
}

/// The steps of the normalizer, without the replacement of spaces, which the vocabulary's exact bytes make superfluous;
/// what other steps do with the sign that stands for a space they do with spaces.
fn normalizer_steps(definition: &Definition) -> Vec<Value> {
    let mut steps = Vec::new();
    flatten(&definition.normalizer, &mut steps);
    if definition.start == Start::Characters {
        steps.retain(|s| {
            !(mentions(s, "Replace") && s["pattern"]["String"] == " " && s["content"] == "▁")
        });
        for step in steps.iter_mut().filter(|s| mentions(s, "Replace")) {
            for place in ["/content", "/pattern/String", "/pattern/Regex"] {
                if let Some(Value::String(text)) = step.pointer_mut(place) {
                    *text = text.replace('▁', " ");
                }
            }
        }
    }
    steps
}

/// The steps of a step, one after another.
fn flatten(step: &Value, into: &mut Vec<Value>) {
    match step.get("normalizers").and_then(Value::as_array) {
        Some(steps) => steps.iter().for_each(|step| flatten(step, into)),
        None if step.is_null() => {}
        None => into.push(step.clone()),
    }
}

/// Whether a step of a normalizer cannot change ASCII.
fn leaves_ascii(step: &Value) -> bool {
    match step.get("type").and_then(Value::as_str) {
        Some("NFC" | "NFD" | "NFKC" | "NFKD" | "StripAccents") => true,
        Some("Replace") => step["pattern"]["String"]
            .as_str()
            .is_some_and(|pattern| !pattern.is_ascii()),
        _ => false,
    }
}

fn normalizer_of(steps: Vec<Value>) -> Result<Option<NormalizerWrapper>, serde_json::Error> {
    if steps.is_empty() {
        return Ok(None);
    }
    let sequence = serde_json::json!({"type": "Sequence", "normalizers": steps});
    Ok(Some(serde_json::from_value(sequence)?))
}

#[cfg(test)]
pub(crate) mod tests;
