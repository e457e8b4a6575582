//! `verbatim demo`: all of the set-up, once, then the main job on real text with a real model.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use corpus_tools::Index;
use corpus_tools::build::{BuildError, BuildOptions};
use corpus_tools::manifest::MANIFEST_FILE;
use corpus_tools::reader::Input;
use decoder::Engine;
use decoder::settings::WindowScorerKind;
use models::fetch::default_cache;
use models::tokenizer::Tokenizer;

use crate::commands::ask::{self, EngineArguments};
use crate::commands::index;
use crate::models_at::{self, ModelArguments, ScorerArguments};
use crate::{Outcome, interrupt, terminal};

/// Arguments of `verbatim demo`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    scorer: ScorerArguments,
    /// Print one JSON object a question, with the whole trace
    #[arg(long)]
    json: bool,
    /// Questions; three of its own if none is given
    questions: Vec<String>,
}

/// What the demo asks by itself.
const QUESTIONS: [&str; 3] = [
    "Who discovered penicillin?",
    "What is the capital of Mongolia?",
    "Which treaty ended the First World War?",
];

/// Short name of the texts.
const TEXTS: &str = "wiki-summaries";

/// Runs `verbatim demo`.
///
/// # Errors
/// Something cannot be fetched, built or opened.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let settings = arguments.engine.settings();
    // Everything is fetched before anything is built: what fails, fails early.
    let texts = models_at::fetch_known(TEXTS, arguments.model.offline)?;
    if settings.windows.scorer == WindowScorerKind::Embedding {
        models_at::locate(models_at::SENTENCE_ENCODER, arguments.model.offline)?;
    }
    let model = models_at::language_model(&arguments.model)?;
    let folder = index_folder(model.tokenizer())?;
    let index = open_or_build(
        &folder,
        &texts.path,
        model.tokenizer(),
        arguments.model.jobs,
    )?;
    let (scorers, offline) = (&arguments.scorer, arguments.model.offline);
    let scorer = scorers.scorer(settings.windows.scorer, &index, Some(&model), offline)?;
    let expander = scorers.expander(offline)?;
    let pieces = scorers.piece_scorer(&settings, &index, &model, offline)?;
    let mut engine = Engine::new(&index, &model, scorer.as_ref(), &interrupt::interrupted)?;
    if let Some(expander) = &expander {
        engine = engine.with_expander(expander);
    }
    if let Some(pieces) = &pieces {
        engine = engine.with_piece_scorer(pieces.as_ref());
    }
    engine.prepare(&settings)?;
    let questions: Vec<&str> = match arguments.questions.as_slice() {
        [] => QUESTIONS.to_vec(),
        given => given.iter().map(String::as_str).collect(),
    };
    let mut outcome = Outcome::Done;
    for (number, question) in questions.iter().enumerate() {
        let answer = engine.ask(question, &settings)?;
        if answer.evidence.is_empty() {
            outcome = Outcome::NothingFound;
        }
        if arguments.json {
            terminal::print_json(&answer)?;
        } else {
            if number > 0 {
                terminal::print("")?;
            }
            terminal::print(&format!("Question: {}", terminal::harmless_line(question)))?;
            ask::print_answer(&answer)?;
        }
    }
    Ok(outcome)
}

/// Where the index of the summaries stands: one a vocabulary, so that another model gets its own.
fn index_folder(tokenizer: &Tokenizer) -> anyhow::Result<PathBuf> {
    let short = tokenizer
        .fingerprint()
        .get(..12)
        .unwrap_or_default()
        .to_owned();
    Ok(default_cache()?
        .join("indexes")
        .join(format!("{TEXTS}-{short}.index")))
}

/// Opens the index of the summaries; builds it where there is none, waits where another program is building
/// it, and builds it again where the one that is there cannot be used: it lies in the cache, and another
/// version of this program may have written it.
fn open_or_build(
    folder: &Path,
    texts: &Path,
    tokenizer: &Tokenizer,
    jobs: usize,
) -> anyhow::Result<Index> {
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("{}: cannot create the folder", parent.display()))?;
    }
    let mut options =
        BuildOptions::new([Input::WikiSummaries(texts.to_owned())], folder, tokenizer);
    options.jobs = jobs;
    let mut waiting = false;
    loop {
        // Without a manifest there is no index, but perhaps somebody who is building one.
        if folder.join(MANIFEST_FILE).exists() {
            match Index::open(folder) {
                Ok(index) => return Ok(index),
                Err(error) => {
                    terminal::say(&format!("{error}"));
                    std::fs::remove_dir_all(folder).with_context(|| {
                        format!("{}: cannot delete the folder", folder.display())
                    })?;
                }
            }
        }
        let Err(error) = index::build_and_report(&options) else {
            continue;
        };
        match error.downcast_ref() {
            Some(BuildError::Exists { .. }) => {}
            Some(BuildError::Locked { .. }) if !interrupt::interrupted() => {
                if !waiting {
                    terminal::say("another verbatim is building the index; waiting for it");
                    waiting = true;
                }
                std::thread::sleep(Duration::from_millis(300));
            }
            _ => return Err(error),
        }
    }
}
