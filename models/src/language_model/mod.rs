//! Language models: logits at chosen positions of chosen branches, with the cache outside of the model.

mod architecture;
mod cache;
mod logits;
mod safetensors;
mod tensors;
mod transformer;
mod weights;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::Value;

pub use crate::chat::ChatTemplate;
pub use crate::device::Device;
pub use crate::error::ModelError;
pub use cache::Cache;
use cache::Shape;
pub use logits::{Logits, Wanted, log_normaliser};

use crate::error::{Result, file_error};
use crate::gguf::Gguf;
use crate::kernels::lanes::Instructions;
use crate::tokenizer::Tokenizer;
use architecture::Architecture;
use safetensors::{Safetensors, read_json};
use tensors::{OnDevice, TensorTransformer};
use transformer::{Step, Transformer};
use weights::{Kernels, Weights};
pub(crate) use weights::{TensorBytes, Tensors};

/// Rows of logits that are held at a time while continuations are scored.
const ROWS_SCORED: usize = 32;

/// How a model is opened.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Where it runs.
    pub device: Device,
    /// Threads it uses; `None` for those of the caller's rayon pool.
    pub threads: Option<usize>,
    /// Compute without special instructions of the processor, to compare with.
    pub plain: bool,
}

/// One branch of a pass over several: see [`LanguageModel::forward_branches`].
#[derive(Debug)]
pub struct Branch<'a> {
    /// What the branch has read.
    pub cache: &'a mut Cache,
    /// What it is to read now.
    pub tokens: &'a [u32],
    /// The positions of `tokens` whose logits are wanted.
    pub wanted: Wanted<'a>,
}

/// A language model, ready to run. It is `Send` and `Sync`; share it behind an [`Arc`].
pub struct LanguageModel {
    forward: Forward,
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    end_tokens: Vec<u32>,
    pool: Option<ThreadPool>,
}

/// The forward pass, by what computes it.
enum Forward {
    /// This crate's kernels.
    Kernels(Transformer),
    /// Tensors on a device.
    Tensors(TensorTransformer),
}

impl Forward {
    /// Reads the weights to where the model is to run.
    fn read(
        file: &dyn Tensors,
        architecture: Architecture,
        plain: bool,
        device: Option<&candle_core::Device>,
    ) -> Result<Self> {
        Ok(match device {
            Some(device) => Self::Tensors(TensorTransformer {
                weights: Weights::read(file, &architecture, &OnDevice(device.clone()))?,
                architecture,
                device: device.clone(),
            }),
            None => Self::Kernels(Transformer {
                weights: Weights::read(file, &architecture, &Kernels)?,
                architecture,
                instructions: match plain {
                    true => Instructions::Plain,
                    false => Instructions::detect(),
                },
            }),
        })
    }

    fn architecture(&self) -> &Architecture {
        match self {
            Self::Kernels(model) => &model.architecture,
            Self::Tensors(model) => &model.architecture,
        }
    }

    fn shape(&self) -> Shape {
        match self {
            Self::Kernels(model) => model.shape(),
            Self::Tensors(model) => model.shape(),
        }
    }

    fn logit_width(&self) -> usize {
        match self {
            Self::Kernels(model) => model.weights.logit_width(),
            Self::Tensors(model) => model.weights.logit_width(),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Kernels(model) => model.weights.size(),
            Self::Tensors(model) => model.weights.size(),
        }
    }

    fn run(&self, caches: &mut [&mut Cache], steps: &[Step]) -> Result<Vec<f32>> {
        match self {
            Self::Kernels(model) => Ok(model.forward(caches, steps)),
            Self::Tensors(model) => model.forward(caches, steps),
        }
    }
}

const _: () = {
    const fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<LanguageModel>();
    shared_between_threads::<Cache>();
};

impl std::fmt::Debug for LanguageModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LanguageModel")
            .field("architecture", self.forward.architecture())
            .finish_non_exhaustive()
    }
}

impl LanguageModel {
    /// Opens a GGUF model, or a folder that holds one, or a folder of the `transformers` library (`config.json`,
    /// safetensors, `tokenizer.json`).
    ///
    /// # Errors
    /// The file cannot be read, is damaged or cut short, or is of a family or format that is not supported; the
    /// device is not there. The message names the file, the place in it, and what to do.
    pub fn open(path: &Path, options: &ModelOptions) -> Result<Self> {
        let device = options.device.open()?;
        let read = |source| ModelError::Read {
            path: path.to_path_buf(),
            source,
        };
        let pool = options
            .threads
            .map(|n| ThreadPoolBuilder::new().num_threads(n.max(1)).build())
            .transpose()
            .map_err(|e| read(std::io::Error::other(e)))?;
        let is_folder = std::fs::metadata(path).map_err(read)?.is_dir();
        let forward = |file: &dyn Tensors, architecture| {
            Forward::read(file, architecture, options.plain, device.as_ref())
        };
        let load = || match is_folder {
            true if path.join("config.json").is_file() => Parts::from_folder(path, forward),
            true => match crate::gguf::find_in(path).map_err(read)? {
                Some(file) => Parts::from_gguf(&file, forward),
                None => Err(file_error(
                    path,
                    "folder",
                    "no model in it",
                    "expected a .gguf file, or config.json with model.safetensors and tokenizer.json",
                )),
            },
            false => Parts::from_gguf(path, forward),
        };
        let parts = match &pool {
            Some(pool) => pool.install(load),
            None => load(),
        }?;
        let Parts {
            forward,
            tokenizer,
            end_tokens,
            template,
        } = parts;
        if forward.logit_width() < tokenizer.vocabulary_size() as usize {
            return Err(file_error(
                path,
                "embedding",
                format!(
                    "{} rows for a vocabulary of {}",
                    forward.logit_width(),
                    tokenizer.vocabulary_size()
                ),
                crate::error::FETCH_AGAIN,
            ));
        }
        Ok(Self {
            forward,
            tokenizer: Arc::new(tokenizer),
            template,
            end_tokens,
            pool,
        })
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The model's chat template, if its file has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// Every token that ends a text or a turn.
    pub fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }

    /// Tokens the context holds.
    pub fn context_length(&self) -> usize {
        self.forward.architecture().context
    }

    /// Values in a row of logits: the vocabulary's size, or more where the model's matrix is padded. What lies
    /// beyond the tokenizer's vocabulary must always be masked.
    pub fn logit_width(&self) -> usize {
        self.forward.logit_width()
    }

    /// The model's name as its file gives it.
    pub fn name(&self) -> &str {
        &self.forward.architecture().name
    }

    /// Bytes of memory the weights take.
    pub fn size(&self) -> usize {
        self.forward.size()
    }

    /// An empty cache for this model.
    pub fn new_cache(&self) -> Cache {
        Cache::new(self.forward.shape())
    }

    /// Appends `tokens` to the cache and returns the logits of the wanted positions of this chunk.
    ///
    /// A position's logits do not depend on how the tokens before it were cut into chunks: the bits are the same,
    /// token by token or all at once. (On a device other than [`Device::Cpu`] they are close, but not the same bits.)
    ///
    /// # Errors
    /// The context would overflow, a token or position is unknown, the cache is another model's, or the device failed;
    /// the cache is then as it was.
    pub fn forward(&self, cache: &mut Cache, tokens: &[u32], wanted: Wanted<'_>) -> Result<Logits> {
        let mut logits = self.forward_branches(&mut [Branch {
            cache,
            tokens,
            wanted,
        }])?;
        Ok(logits.pop().unwrap_or(Logits {
            width: self.logit_width(),
            values: Vec::new(),
        }))
    }

    /// Reads a chunk on each of several branches in one pass, which takes less time than one pass after another.
    /// The logits are those of [`LanguageModel::forward`] on each branch.
    ///
    /// # Errors
    /// As [`LanguageModel::forward`]; all caches are then as they were.
    pub fn forward_branches(&self, branches: &mut [Branch<'_>]) -> Result<Vec<Logits>> {
        let width = self.logit_width();
        let mut steps = Vec::new();
        let mut orders = Vec::with_capacity(branches.len());
        for (branch, b) in branches.iter().enumerate() {
            if b.cache.shape() != self.forward.shape() {
                return Err(ModelError::ForeignCache);
            }
            let asked = b.cache.len() + b.tokens.len();
            if asked > self.context_length() {
                return Err(ModelError::ContextFull {
                    asked,
                    limit: self.context_length(),
                });
            }
            let positions = b.wanted.positions(b.tokens.len());
            if let Some(&position) = positions.iter().find(|&&p| p >= b.tokens.len()) {
                return Err(ModelError::UnknownPosition {
                    position,
                    length: b.tokens.len(),
                });
            }
            for (i, &token) in b.tokens.iter().enumerate() {
                if token as usize >= width {
                    let vocabulary = width;
                    return Err(ModelError::UnknownToken { token, vocabulary });
                }
                steps.push(Step {
                    token,
                    branch,
                    position: b.cache.len() + i,
                    wanted: false,
                });
            }
            let first = steps.len() - b.tokens.len();
            for &p in &positions {
                steps[first + p].wanted = true;
            }
            orders.push((first, positions));
        }
        for b in branches.iter_mut() {
            b.cache.extend(b.tokens);
        }
        let mut caches: Vec<&mut Cache> = branches.iter_mut().map(|b| &mut *b.cache).collect();
        let mut run = || self.forward.run(&mut caches, &steps);
        let found = match &self.pool {
            Some(pool) => pool.install(run),
            None => run(),
        };
        let values = match found {
            Ok(values) => values,
            Err(error) => {
                for b in branches.iter_mut() {
                    b.cache.truncate(b.cache.len() - b.tokens.len());
                }
                return Err(error);
            }
        };
        if let [(_, positions)] = orders.as_slice()
            && positions.is_sorted_by(|a, b| a < b)
        {
            return Ok(vec![Logits { width, values }]);
        }
        // Rows came in the order of the steps, each once.
        let mut row_of = vec![0; steps.len()];
        let mut rows = 0;
        for (row, step) in row_of.iter_mut().zip(&steps) {
            *row = rows;
            rows += usize::from(step.wanted);
        }
        Ok(orders
            .into_iter()
            .map(|(first, positions)| Logits {
                width,
                values: positions
                    .iter()
                    .flat_map(|p| {
                        &values[row_of[first + p] * width..(row_of[first + p] + 1) * width]
                    })
                    .copied()
                    .collect(),
            })
            .collect())
    }

    /// The log-probability of every token of each continuation of what `prefix` has read, under the softmax of the
    /// full vocabulary. The prefix is read once only, and is left as it is.
    ///
    /// # Errors
    /// As [`LanguageModel::forward`]; also if `prefix` is empty, as there is nothing to continue.
    pub fn score_continuations(
        &self,
        prefix: &Cache,
        continuations: &[&[u32]],
    ) -> Result<Vec<Vec<f32>>> {
        let Some((&last, _)) = prefix.tokens().split_last() else {
            return Err(ModelError::UnknownPosition {
                position: 0,
                length: 0,
            });
        };
        let mut trunk = prefix.fork();
        trunk.truncate(prefix.len() - 1);
        // The last token of the prefix is read again: its logits are those of the first token of a continuation.
        let inputs: Vec<Vec<u32>> = continuations
            .iter()
            .map(|c| {
                c.split_last()
                    .map_or(Vec::new(), |(_, before)| [&[last], before].concat())
            })
            .collect();
        let lengths: Vec<usize> = inputs.iter().map(Vec::len).collect();
        let mut scores: Vec<Vec<f32>> = lengths.iter().map(|&n| Vec::with_capacity(n)).collect();
        // Branches of the pass before: a long continuation goes on where it stopped.
        let mut open: Vec<(usize, Cache)> = Vec::new();
        for pass in scoring_passes(&lengths) {
            open.retain(|(which, _)| pass.iter().any(|(other, _)| other == which));
            for (which, _) in &pass {
                if open.iter().all(|(other, _)| other != which) {
                    open.push((*which, trunk.fork()));
                }
            }
            let mut branches: Vec<Branch<'_>> = open
                .iter_mut()
                .zip(&pass)
                .map(|((which, cache), (_, range))| Branch {
                    cache,
                    tokens: &inputs[*which][range.clone()],
                    wanted: Wanted::All,
                })
                .collect();
            let found = self.forward_branches(&mut branches)?;
            for (logits, (which, range)) in found.iter().zip(pass) {
                let tokens = &continuations[which][range];
                scores[which].extend(tokens.iter().enumerate().map(|(i, &token)| {
                    let row = logits.row(i);
                    row.get(token as usize)
                        .map_or(f32::NEG_INFINITY, |l| l - log_normaliser(row))
                }));
            }
        }
        Ok(scores)
    }
}

/// Passes that score continuations of these lengths: which one, and which of its tokens. No pass has more than
/// [`ROWS_SCORED`] rows of logits; the parts of a continuation come in order, in passes that follow each other.
fn scoring_passes(lengths: &[usize]) -> Vec<Vec<(usize, Range<usize>)>> {
    let mut passes = Vec::new();
    let mut pass = Vec::new();
    let mut room = ROWS_SCORED;
    for (which, &length) in lengths.iter().enumerate() {
        let mut from = 0;
        while from < length {
            let to = length.min(from + room);
            room -= to - from;
            pass.push((which, from..to));
            from = to;
            if room == 0 {
                passes.push(std::mem::take(&mut pass));
                room = ROWS_SCORED;
            }
        }
    }
    if !pass.is_empty() {
        passes.push(pass);
    }
    passes
}

/// Control tokens that end a turn in the families supported, whatever the metadata says.
const TURN_ENDS: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "</s>",
    "<|eom_id|>",
];

/// What a model's files hold.
struct Parts {
    forward: Forward,
    tokenizer: Tokenizer,
    end_tokens: Vec<u32>,
    template: Option<ChatTemplate>,
}

impl Parts {
    fn from_gguf(
        path: &Path,
        forward: impl Fn(&dyn Tensors, Architecture) -> Result<Forward>,
    ) -> Result<Self> {
        let gguf = Gguf::open(path)?;
        let architecture = Architecture::from_gguf(&gguf)?;
        let tokenizer = Tokenizer::from_open_gguf(&gguf)?;
        let forward = forward(&gguf, architecture)?;
        let id = |key: &str| {
            gguf.number(&format!("tokenizer.ggml.{key}"))
                .ok()
                .and_then(|id| u32::try_from(id).ok())
        };
        let ends = ["eos_token_id", "eot_token_id", "eom_token_id"]
            .iter()
            .filter_map(|key| id(key))
            .collect();
        let text = |key: &str| {
            id(key)
                .and_then(|id| tokenizer.control_content(id))
                .unwrap_or_default()
                .to_owned()
        };
        let template = match gguf.text("tokenizer.chat_template") {
            Ok(source) => Some(ChatTemplate::lenient(
                source,
                [text("bos_token_id"), text("eos_token_id")],
            )),
            Err(_) => None,
        };
        Ok(Self {
            end_tokens: all_ends(ends, &tokenizer),
            forward,
            tokenizer,
            template,
        })
    }

    fn from_folder(
        folder: &Path,
        forward: impl Fn(&dyn Tensors, Architecture) -> Result<Forward>,
    ) -> Result<Self> {
        let path = folder.join("config.json");
        let config = read_json(&path)?;
        let architecture = Architecture::from_config(&config, &path)?;
        let tokenizer = Tokenizer::open(folder)?;
        let file = Safetensors::open(folder, architecture.family)?;
        let forward = forward(&file, architecture)?;
        let optional = |name: &str| match folder.join(name) {
            path if path.is_file() => read_json(&path),
            _ => Ok(Value::Null),
        };
        let generation = optional("generation_config.json")?;
        let settings = optional("tokenizer_config.json")?;
        let mut ends = Vec::new();
        for value in [
            &config["eos_token_id"],
            &config["text_config"]["eos_token_id"],
            &generation["eos_token_id"],
        ] {
            let several = value
                .as_array()
                .map_or(std::slice::from_ref(value), Vec::as_slice);
            ends.extend(
                several
                    .iter()
                    .filter_map(|v| v.as_u64().and_then(|id| u32::try_from(id).ok())),
            );
        }
        let text = |key: &str| {
            let value = &settings[key];
            value
                .as_str()
                .or_else(|| value["content"].as_str())
                .unwrap_or_default()
                .to_owned()
        };
        ends.extend(tokenizer.control_token(&text("eos_token")));
        let source = match folder.join("chat_template.jinja") {
            path if path.is_file() => Some(
                std::fs::read_to_string(&path)
                    .map_err(|source| ModelError::Read { path, source })?,
            ),
            _ => settings["chat_template"].as_str().map(str::to_owned),
        };
        let template =
            source.map(|s| ChatTemplate::lenient(&s, [text("bos_token"), text("eos_token")]));
        Ok(Self {
            end_tokens: all_ends(ends, &tokenizer),
            forward,
            tokenizer,
            template,
        })
    }
}

/// The end tokens named in a model's files, and those by which its kind of chat ends.
fn all_ends(mut ends: Vec<u32>, tokenizer: &Tokenizer) -> Vec<u32> {
    ends.extend(
        TURN_ENDS
            .iter()
            .filter_map(|content| tokenizer.control_token(content)),
    );
    ends.retain(|&id| id < tokenizer.vocabulary_size());
    ends.sort_unstable();
    ends.dedup();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_scoring_pass_holds_more_rows_than_it_may() {
        for lengths in [
            vec![],
            vec![0, 0],
            vec![1, 2, 3],
            vec![1000],
            vec![5, 0, 70, 31, 1, 32, 33, 64, 2],
        ] {
            let mut read = vec![0; lengths.len()];
            for pass in scoring_passes(&lengths) {
                let rows: usize = pass.iter().map(|(_, range)| range.len()).sum();
                assert!((1..=ROWS_SCORED).contains(&rows), "{lengths:?}: {rows}");
                for (which, range) in pass {
                    assert_eq!(range.start, read[which]);
                    read[which] = range.end;
                }
            }
            assert_eq!(read, lengths);
        }
    }
}
