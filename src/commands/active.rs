//! `verbatim ask --active`: a longer answer, sentence by sentence, with evidence retrieved on the way.

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use corpus_tools::{Citation, Index};
use decoder::active::decision::threshold_for;
use decoder::active::{
    Active, ActiveAnswer, ActiveSettings, EngineRetriever, PassageRetriever, Policy, QueryKind,
    Retriever, Sentence,
};
use decoder::{Engine, Settings};
use models::language_model::LanguageModel;

use crate::batch::Batch;
use crate::{Outcome, batch, interrupt, terminal};

/// Flags of active retrieval.
#[derive(Debug, Clone, clap::Args)]
pub struct ActiveArguments {
    /// Write a longer answer, sentence by sentence, and retrieve again where the next one is uncertain
    #[arg(long, conflicts_with_all = ["generator", "light_model", "rerank", "no_answer"])]
    pub active: bool,
    /// Pieces of evidence in front of a sentence: what --evidence says.
    #[arg(skip)]
    pub pieces: Option<usize>,
    /// When to retrieve: where a sentence is uncertain (active), once (single), every 16 tokens (tokens), at
    /// every sentence for itself (sentences) or for the one before (previous)
    #[arg(long, value_enum, default_value_t = PolicyFlag::Active, requires = "active")]
    policy: PolicyFlag,
    /// θ: a sentence with a token less probable than this is uncertain
    #[arg(long, value_name = "θ", value_parser = probability, requires = "active", conflicts_with = "uncertain_share")]
    theta: Option<f32>,
    /// Choose θ so that this share of sentences is uncertain, on the questions of --calibrate
    #[arg(long, value_name = "SHARE", value_parser = probability, requires_all = ["active", "calibrate"])]
    uncertain_share: Option<f32>,
    /// JSON Lines {"question"} to calibrate θ on
    #[arg(long, value_name = "FILE", requires = "uncertain_share")]
    calibrate: Option<PathBuf>,
    /// β: tokens less probable than this are left out of the query, or asked about
    #[arg(long, value_name = "β", default_value_t = 0.4, value_parser = probability, requires = "active")]
    beta: f32,
    /// What to look up: the sentence without its improbable tokens, or questions about them
    #[arg(long, value_enum, default_value_t = QueryFlag::Implicit, requires = "active")]
    query: QueryFlag,
    /// Where to look it up: evidence that the engine writes under its constraint, or BM25 passages
    #[arg(long, value_enum, default_value_t = RetrieveFlag::Engine, requires = "active")]
    retrieve: RetrieveFlag,
    /// Most sentences of the answer
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000), requires = "active")]
    sentences: u32,
}

/// See [`Policy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyFlag {
    Active,
    Single,
    Tokens,
    Sentences,
    Previous,
}

/// See [`QueryKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum QueryFlag {
    Implicit,
    Explicit,
}

/// Where evidence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RetrieveFlag {
    Engine,
    Bm25,
}

fn probability(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 1".into()),
    }
}

impl ActiveArguments {
    /// Whether the engine is needed, and with it a scorer of windows.
    pub fn needs_engine(&self) -> bool {
        self.retrieve == RetrieveFlag::Engine
    }

    fn settings(&self) -> ActiveSettings {
        let defaults = ActiveSettings::default();
        ActiveSettings {
            policy: match self.policy {
                PolicyFlag::Active => Policy::Active,
                PolicyFlag::Single => Policy::Single,
                PolicyFlag::Tokens => Policy::Tokens,
                PolicyFlag::Sentences => Policy::Sentences,
                PolicyFlag::Previous => Policy::Previous,
            },
            theta: self.theta.unwrap_or(defaults.theta),
            beta: self.beta,
            query: match self.query {
                QueryFlag::Implicit => QueryKind::Implicit,
                QueryFlag::Explicit => QueryKind::Explicit,
            },
            sentences: self.sentences as usize,
            evidence: self.pieces.unwrap_or(defaults.evidence),
            ..defaults
        }
    }
}

/// One question, or many with a file for the answers.
pub enum Asked {
    /// Answered on standard output.
    One(String),
    /// Answered into a file.
    Many(Box<Batch>),
}

/// Answers sentence by sentence.
///
/// # Errors
/// Index or model failed, or a file cannot be read or written.
pub fn run(
    arguments: &ActiveArguments,
    asked: Asked,
    index: &Index,
    model: &LanguageModel,
    engine: Option<&Engine<'_>>,
    settings: &Settings,
    json: bool,
) -> anyhow::Result<Outcome> {
    let passages = PassageRetriever::new(index, model.tokenizer());
    let evidence = engine.map(|engine| EngineRetriever::new(engine, settings.clone()));
    let retriever: &dyn Retriever = match &evidence {
        Some(evidence) => evidence,
        None => &passages,
    };
    let active = Active::new(model, retriever, &interrupt::interrupted);
    let mut settings = arguments.settings();
    if let (Some(share), Some(file)) = (arguments.uncertain_share, &arguments.calibrate) {
        settings.theta = calibrate(&active, &settings, f64::from(share), file)?;
        terminal::say(&format!("θ = {}", settings.theta));
    }
    let question = match asked {
        Asked::One(question) => question,
        Asked::Many(batch) => {
            return batch.run_with(model.name(), &settings, |question| {
                Ok(active.answer(question, &settings, &mut |_, _| {})?)
            });
        }
    };
    let mut shown = Shown::default();
    let mut failed = None;
    let answer = active.answer(&question, &settings, &mut |sentence, evidence| {
        if !json && failed.is_none() {
            failed = shown.sentence(sentence, evidence).err();
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if json {
        terminal::print_json(&answer)?;
    } else {
        shown.evidence(&answer)?;
    }
    Ok(if answer.evidence.is_empty() || answer.answer.is_empty() {
        Outcome::NothingFound
    } else {
        Outcome::Done
    })
}

/// θ for a share of uncertain sentences over the questions of a file.
fn calibrate(
    active: &Active<'_>,
    settings: &ActiveSettings,
    share: f64,
    file: &std::path::Path,
) -> anyhow::Result<f32> {
    let questions = batch::read_questions(file)?;
    let bar = terminal::bar("calibrating", questions.len() as u64, false);
    let mut least = Vec::new();
    for question in &questions {
        least.extend(active.least_probabilities(&question.question, settings)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    threshold_for(share, &least).with_context(|| {
        format!(
            "{}: no sentence was written for any question, so there is nothing to calibrate on",
            file.display()
        )
    })
}

/// What was printed so far.
#[derive(Default)]
struct Shown {
    /// Evidence numbers in the order in which sentences cited them.
    cited: Vec<usize>,
}

impl Shown {
    /// Prints a sentence as soon as it is certain, with the number of the evidence it rests on.
    fn sentence(&mut self, sentence: &Sentence, evidence: &[Citation]) -> anyhow::Result<()> {
        let mut line = terminal::harmless_line(&sentence.text);
        if let Some(cited) = sentence.cited.filter(|&cited| cited < evidence.len()) {
            let number = self
                .cited
                .iter()
                .position(|&known| known == cited)
                .unwrap_or_else(|| {
                    self.cited.push(cited);
                    self.cited.len() - 1
                });
            line.push_str(&format!(" [{}]", number + 1));
        }
        terminal::print(&line)
    }

    /// Prints the evidence that was cited.
    fn evidence(&self, answer: &ActiveAnswer) -> anyhow::Result<()> {
        if answer.evidence.is_empty() {
            terminal::say("no evidence found");
            return Ok(());
        }
        let (bold, faint, plain) = terminal::styles();
        if self.cited.is_empty() {
            terminal::say("no sentence shares a word with the evidence in front of it");
            return Ok(());
        }
        terminal::print(&format!("\n{bold}Evidence:{plain}"))?;
        for (number, &at) in self.cited.iter().enumerate() {
            let citation = &answer.evidence[at];
            terminal::print(&format!(
                "{}. “{}”\n   {faint}{} [{}, bytes {}–{}]{plain}",
                number + 1,
                terminal::harmless_line(&citation.quote),
                terminal::harmless_line(&citation.title),
                terminal::harmless_line(&citation.id),
                citation.start_byte,
                citation.end_byte,
            ))?;
        }
        Ok(())
    }
}
