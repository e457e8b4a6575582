//! Finding and opening the models that a command names, fetching known ones on the way.

use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::{Context, bail};
use corpus_tools::Index;
use decoder::Settings;
use decoder::forward_backward::rerank::Rerank;
use decoder::scorer::{
    Bm25Scorer, CrossEncoderScorer, EmbeddingScorer, LikelihoodScorer, WindowScorer,
};
use decoder::settings::WindowScorerKind;
use indicatif::ProgressBar;
use models::encoder::{CrossEncoder, SparseEncoder};
use models::fetch::{self, FetchEvent, FetchOptions, Fetched, Licence, default_cache};
use models::language_model::{Device, LanguageModel, ModelOptions};
use models::remote::is_address;

use crate::{interrupt, terminal};

/// Short name of the sentence encoder that scores windows.
pub const SENTENCE_ENCODER: &str = "minilm";

/// More threads than this help nobody and can bring a machine down.
const MOST_JOBS: usize = 1024;

/// A number of threads.
pub fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number <= MOST_JOBS => Ok(number),
        _ => Err(format!(
            "expected a number of threads from 0 to {MOST_JOBS}"
        )),
    }
}

/// Flags of every command that uses a language model.
#[derive(Debug, Clone, clap::Args)]
pub struct ModelArguments {
    /// Model: a short name (see `models list`), a local file or folder, or hf:ORG/REPOSITORY
    #[arg(long, default_value = "smollm2")]
    pub model: String,
    /// Device that runs the language model: cpu; cuda, cuda:N or metal in builds with that feature
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub device: Device,
    /// Threads; 0 for all cores
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = jobs)]
    pub jobs: usize,
    /// Fetch nothing; fail where something is missing
    #[arg(long)]
    pub offline: bool,
}

/// Shows the events of a fetch on standard error.
struct Shown {
    bar: Mutex<Option<ProgressBar>>,
}

impl Shown {
    fn event(&self, event: FetchEvent) {
        let mut bar = self
            .bar
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        match event {
            FetchEvent::Licences { name, licences } => {
                terminal::say(&format!("fetching {name}; its licences:"));
                for licence in licences {
                    terminal::say(&format!("  {}", licence_line(licence)));
                }
            }
            FetchEvent::Waiting { .. } => {
                terminal::say("another verbatim is fetching this; waiting for it")
            }
            FetchEvent::Started { name, bytes } => *bar = Some(terminal::bar(&name, bytes, true)),
            FetchEvent::Progress { done, total } => {
                if let Some(bar) = bar.as_ref() {
                    bar.set_length(total);
                    bar.set_position(done);
                }
            }
            FetchEvent::Finished { .. } => {
                if let Some(bar) = bar.take() {
                    bar.finish_and_clear();
                }
            }
            _ => {}
        }
    }
}

/// A licence on one line: what it covers, its name, and what to know of it.
pub fn licence_line(licence: &Licence) -> String {
    let note = if licence.note.is_empty() {
        String::new()
    } else {
        format!(" ({})", licence.note)
    };
    format!("{}: {}{note}", licence.covers, licence.name)
}

/// Runs `work` with fetch options whose events are shown.
fn with_options<T>(offline: bool, work: impl FnOnce(&FetchOptions) -> T) -> anyhow::Result<T> {
    let shown = Shown {
        bar: Mutex::new(None),
    };
    let events = |event: FetchEvent| shown.event(event);
    let interrupted = || interrupt::interrupted();
    let options = FetchOptions {
        cache: default_cache()?,
        offline,
        events: &events,
        interrupted: &interrupted,
    };
    Ok(work(&options))
}

/// Fetches a known asset, or finds it in the cache.
///
/// # Errors
/// See [`fetch::FetchError`].
pub fn fetch_known(name: &str, offline: bool) -> anyhow::Result<Fetched> {
    Ok(with_options(offline, |options| {
        fetch::fetch(name, options)
    })??)
}

/// Reads a known asset in the cache again and compares its checksums.
///
/// # Errors
/// A file is missing or differs.
pub fn verify_known(name: &str) -> anyhow::Result<Fetched> {
    Ok(with_options(true, |options| fetch::verify(name, options))??)
}

/// Where the model named `spec` lies, fetching it if it is known by name and not there yet.
///
/// # Errors
/// Not a known name nor a path, or the fetch fails.
pub fn locate(spec: &str, offline: bool) -> anyhow::Result<PathBuf> {
    Ok(with_options(offline, |options| fetch::resolve(spec, options))??.path)
}

/// Opens the language model that the flags name.
///
/// # Errors
/// It is a server, not to be had, damaged, or of an unknown family.
pub fn language_model(arguments: &ModelArguments) -> anyhow::Result<LanguageModel> {
    if is_address(&arguments.model) {
        bail!(
            "--model {}: the model that writes under the constraint, and whose token probabilities say when to retrieve, runs on this machine; a server can write the answer (--generator) or samples (--light-model)",
            arguments.model
        );
    }
    arguments.device.check()?;
    let path = locate(&arguments.model, arguments.offline)?;
    let options = ModelOptions {
        device: arguments.device,
        threads: (arguments.jobs > 0).then_some(arguments.jobs),
        ..Default::default()
    };
    Ok(LanguageModel::open(&path, &options)?)
}

/// Flags of every command that scores windows.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ScorerArguments {
    /// The cross-encoder of `--window-scorer cross-encoder`: a folder with safetensors, or hf:ORG/REPOSITORY
    #[arg(long, value_name = "MODEL")]
    pub scorer_model: Option<String>,
    /// Expand questions with a sparse lexical model (SPLADE): splade-tiny, a folder, or hf:ORG/REPOSITORY
    #[arg(long, value_name = "MODEL")]
    pub expand: Option<String>,
}

impl ScorerArguments {
    /// Opens the window scorer of that kind; `model` is the language model, where one is open.
    ///
    /// # Errors
    /// Its model is not named, not to be had, or damaged.
    pub fn scorer<'m>(
        &self,
        kind: WindowScorerKind,
        index: &Index,
        model: Option<&'m LanguageModel>,
        offline: bool,
    ) -> anyhow::Result<Box<dyn WindowScorer + 'm>> {
        Ok(match kind {
            WindowScorerKind::CrossEncoder => {
                let Some(spec) = &self.scorer_model else {
                    bail!(
                        "--window-scorer cross-encoder needs a model: name one with --scorer-model"
                    );
                };
                let folder = locate(spec, offline)?;
                Box::new(CrossEncoderScorer::new(CrossEncoder::open(&folder)?))
            }
            WindowScorerKind::Likelihood => {
                let model = model.context("--window-scorer likelihood needs a language model")?;
                Box::new(LikelihoodScorer::new(model))
            }
            WindowScorerKind::Bm25 => Box::new(Bm25Scorer::new(index.lexical().clone())),
            WindowScorerKind::Embedding => {
                let folder = locate(SENTENCE_ENCODER, offline)
                    .context("the window scorer `embedding` needs the model minilm; --window-scorer bm25 needs none")?;
                Box::new(EmbeddingScorer::open(&folder, index)?)
            }
        })
    }

    /// Opens the sparse lexical model, where one is named.
    ///
    /// # Errors
    /// It is not to be had, or damaged.
    pub fn expander(&self, offline: bool) -> anyhow::Result<Option<SparseEncoder>> {
        let Some(spec) = &self.expand else {
            return Ok(None);
        };
        Ok(Some(SparseEncoder::open(locate(spec, offline)?)?))
    }

    /// Opens what scores evidence when it is reranked, where that is not the window scorer.
    ///
    /// # Errors
    /// As [`ScorerArguments::scorer`].
    pub fn piece_scorer<'m>(
        &self,
        settings: &Settings,
        index: &Index,
        model: &'m LanguageModel,
        offline: bool,
    ) -> anyhow::Result<Option<Box<dyn WindowScorer + 'm>>> {
        let kind = settings.rerank.relevance;
        // BM25 stands in the index, and the engine has the window scorer.
        let there = kind == WindowScorerKind::Bm25 || kind == settings.windows.scorer;
        if settings.rerank.method == Rerank::None || there {
            return Ok(None);
        }
        Ok(Some(self.scorer(kind, index, Some(model), offline)?))
    }
}
