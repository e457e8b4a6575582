//! `verbatim read`: an answer about texts that were never indexed.

use std::path::Path;

use anyhow::{Context, bail};
use clap::ValueEnum;
use corpus_tools::reader::{
    Entry, Input, ReadOptions, Reader as CorpusReader, Record, text_document,
};
use decoder::chunks::LongDocument;
use decoder::forward_backward::score::Combination;
use decoder::forward_backward::settings::{Method, SamplePrompt, Task, Truncate};
use decoder::forward_backward::{ForwardSettings, Passage, ReadAnswer, Reader};
use decoder::generator::Generator;
use decoder::scorer::{CrossEncoderScorer, EmbeddingScorer, TextBm25Scorer, WindowScorer};
use decoder::settings::WindowScorerKind;
use models::encoder::{CrossEncoder, SentenceEncoder};

use crate::generator_at::{self, GeneratorArguments};
use crate::models_at::{self, ModelArguments};
use crate::{Outcome, terminal};

/// Arguments of `verbatim read`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    generator: GeneratorArguments,
    #[command(flatten)]
    forward: ForwardArguments,
    /// A choice of a multiple-choice question; give it once for each
    #[arg(long = "choice", value_name = "TEXT")]
    choices: Vec<String>,
    /// Print one JSON object with passages, citations and the whole trace
    #[arg(long)]
    json: bool,
    /// Text or HTML files (`-` for standard input), folders of them or JSON Lines, then the question
    #[arg(value_name = "DOCUMENT… QUESTION", required = true, num_args = 2..)]
    words: Vec<String>,
}

/// Flags of the forward–backward scorer.
#[derive(Debug, Clone, clap::Args)]
pub struct ForwardArguments {
    /// How passages are chosen: by samples (f), by question and samples (fb), by the question in text order
    /// (order) or best first (vanilla), everything (full), everything only where needed (self-route)
    #[arg(long, value_enum, default_value_t = MethodFlag::Fb)]
    method: MethodFlag,
    /// What is asked
    #[arg(long, value_enum, default_value_t = TaskFlag::Question)]
    task: TaskFlag,
    /// Words of a chunk
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    chunk_words: u32,
    /// What scores a chunk for a text
    #[arg(long, value_enum, default_value_t = RelevanceFlag::Bm25)]
    relevance: RelevanceFlag,
    /// The cross-encoder of --relevance cross-encoder: a folder with safetensors, or hf:ORG/REPOSITORY
    #[arg(long, value_name = "MODEL")]
    scorer_model: Option<String>,
    /// How scores for different texts are combined: as they are, or each text's scaled to [0, 1]
    #[arg(long, value_enum, default_value_t = CombinationFlag::Normalised)]
    combination: CombinationFlag,
    /// η_B: weight of the question, if not the method's own
    #[arg(long, value_name = "η", value_parser = weight)]
    backward_weight: Option<f64>,
    /// η_F: weight of the best sample, if not the method's own
    #[arg(long, value_name = "η", value_parser = weight)]
    forward_weight: Option<f64>,
    /// Outputs that the light model samples
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=64))]
    samples: u32,
    /// What the light model is asked to write
    #[arg(long, value_enum, default_value_t = SamplePromptFlag::Reasoning)]
    sample_prompt: SamplePromptFlag,
    /// Only the most probable tokens of a sample that together reach this probability
    #[arg(long, value_name = "P", default_value_t = 0.9, value_parser = share)]
    top_p: f32,
    /// Only that many of the most probable tokens of a sample; 0 for all
    #[arg(long, value_name = "N", default_value_t = 50)]
    top_k: usize,
    /// Seed of the samples
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Most tokens of the passages that the light model reads
    #[arg(long, value_name = "TOKENS", default_value_t = 6144, value_parser = tokens)]
    light_budget: usize,
    /// Most tokens of the passages that the generator reads
    #[arg(long, value_name = "TOKENS", default_value_t = 6144, value_parser = tokens)]
    budget: usize,
    /// Most passages that the generator reads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Most tokens of the answer (64, or 256 for a summary); 0 chooses passages only
    #[arg(long, value_name = "TOKENS", value_parser = answer_tokens)]
    answer_tokens: Option<usize>,
    /// Ask for no citations
    #[arg(long)]
    no_citations: bool,
    /// What to do with a text that does not fit into the model's window
    #[arg(long, value_enum, default_value_t = TruncateFlag::Refuse)]
    truncate: TruncateFlag,
}

/// A flag's values, each with the setting it stands for.
macro_rules! flag {
    ($(#[$doc:meta])* $name:ident => $setting:ident { $($(#[$value:meta])* $case:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
        enum $name { $($(#[$value])* $case),* }

        impl From<$name> for $setting {
            fn from(flag: $name) -> Self {
                match flag { $($name::$case => Self::$case),* }
            }
        }
    };
}

flag!(
    /// See [`Method`].
    MethodFlag => Method { Fb, F, Order, Vanilla, Full, SelfRoute }
);
flag!(
    /// See [`Task`].
    TaskFlag => Task { Question, Summary, Choice }
);
flag!(
    /// See [`WindowScorerKind`]; likelihood would read every chunk once for every sample.
    RelevanceFlag => WindowScorerKind { Bm25, Embedding, CrossEncoder }
);
flag!(
    /// See [`Combination`].
    CombinationFlag => Combination { Raw, Normalised }
);
flag!(
    /// See [`SamplePrompt`].
    SamplePromptFlag => SamplePrompt { Answer, Reasoning, Explanation }
);
flag!(
    /// See [`Truncate`].
    TruncateFlag => Truncate { Refuse, Middle }
);

fn weight(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=1e6).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 1000000".into()),
    }
}

/// Tokens of a context, which no model has more of.
const MOST_TOKENS: usize = 100_000_000;

fn tokens(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=MOST_TOKENS).contains(&number) => Ok(number),
        _ => Err(format!(
            "expected a number of tokens from 1 to {MOST_TOKENS}"
        )),
    }
}

fn answer_tokens(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { tokens(text) }
}

fn share(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 1".into()),
    }
}

impl ForwardArguments {
    /// The settings that the flags stand for.
    fn settings(&self) -> ForwardSettings {
        let mut settings = ForwardSettings {
            method: self.method.into(),
            task: self.task.into(),
            chunk_words: self.chunk_words as usize,
            relevance: self.relevance.into(),
            combination: self.combination.into(),
            backward_weight: self.backward_weight,
            forward_weight: self.forward_weight,
            samples: self.samples as usize,
            sample_prompt: self.sample_prompt.into(),
            light_budget: self.light_budget,
            budget: self.budget,
            chunks: self.chunks.map(|most| most as usize),
            cite: !self.no_citations,
            truncate: self.truncate.into(),
            ..ForwardSettings::default()
        };
        settings.sampling.top_p = self.top_p;
        settings.sampling.top_k = self.top_k;
        settings.sampling.seed = self.seed;
        settings.answer_tokens = self.answer_tokens.unwrap_or(match settings.task {
            Task::Summary => 256,
            Task::Question | Task::Choice => settings.answer_tokens,
        });
        settings
    }

    /// Opens what scores chunks.
    fn relevance(&self, offline: bool) -> anyhow::Result<Box<dyn WindowScorer>> {
        Ok(match self.relevance {
            RelevanceFlag::Bm25 => Box::new(TextBm25Scorer::default()),
            RelevanceFlag::Embedding => {
                let folder = models_at::locate(models_at::SENTENCE_ENCODER, offline)?;
                Box::new(EmbeddingScorer::new(SentenceEncoder::open(&folder)?))
            }
            RelevanceFlag::CrossEncoder => {
                let Some(spec) = &self.scorer_model else {
                    bail!("--relevance cross-encoder needs a model: name one with --scorer-model");
                };
                let folder = models_at::locate(spec, offline)?;
                Box::new(CrossEncoderScorer::new(CrossEncoder::open(&folder)?))
            }
        })
    }
}

/// Runs `verbatim read`.
///
/// # Errors
/// A document cannot be read, a model cannot be opened, or the text does not fit.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let (question, documents) = arguments
        .words
        .split_last()
        .context("expected documents, then a question")?;
    let settings = arguments.forward.settings();
    // Said before a model is loaded for nothing.
    if question.trim().is_empty() {
        bail!("the question is empty");
    }
    if settings.task != Task::Choice && !arguments.choices.is_empty() {
        bail!("--choice goes with --task choice");
    }
    let documents = read_documents(documents)?;
    let relevance = arguments.forward.relevance(arguments.model.offline)?;

    let flags = &arguments.generator;
    let spec = &arguments.model.model;
    let writes = flags.generator.as_ref().unwrap_or(spec);
    let samples = flags.light_model.as_ref().unwrap_or(spec);
    let opened = flags.open(writes, &arguments.model)?;
    let light = (samples != writes && settings.method.looks_forward())
        .then(|| flags.open(samples, &arguments.model))
        .transpose()?;
    let generator = generator_at::generator(&opened);
    let light: Option<Box<dyn Generator + '_>> = light.as_ref().map(generator_at::generator);
    let reader = Reader {
        relevance: relevance.as_ref(),
        light: light.as_deref().unwrap_or(generator.as_ref()),
        generator: generator.as_ref(),
    };
    // A person sees the answer as it is written.
    let mut shown = false;
    let streams = !arguments.json && terminal::is_terminal();
    let mut on_text = |text: &str| {
        if streams {
            if !shown {
                terminal::print_piece(&terminal::answer_label());
            }
            shown = true;
            terminal::print_piece(&terminal::harmless_line(text));
        }
    };
    let choices = &arguments.choices;
    let answer = reader.read(&documents, question, choices, &settings, &mut on_text)?;
    if arguments.json {
        terminal::print_json(&answer)?;
    } else {
        print_answer(&answer, shown)?;
    }
    Ok(if answer.answer.is_empty() && settings.answer_tokens > 0 {
        Outcome::NothingFound
    } else {
        Outcome::Done
    })
}

/// Reads documents: text files, each one document, named as on the command line; folders and JSON Lines, whose
/// records bear their own ids. Offsets of a text file are into its bytes, a byte order mark in front excepted,
/// which is no text; those of a page are into the text that is seen of it.
fn read_documents(names: &[String]) -> anyhow::Result<Vec<LongDocument>> {
    let mut documents = Vec::new();
    for name in names {
        if Path::new(name).is_dir() || is_json_lines(name) {
            read_corpus(name, &mut documents)?;
        } else {
            documents.push(read_document(name)?);
        }
    }
    Ok(documents)
}

/// Whether a file is called JSON Lines, compressed or not.
fn is_json_lines(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let plain = [".gz", ".zst", ".bz2"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name);
    plain.ends_with(".jsonl")
}

fn long_document(record: Record) -> LongDocument {
    LongDocument {
        id: record.id,
        title: record.title,
        text: record.text,
    }
}

fn read_corpus(name: &str, documents: &mut Vec<LongDocument>) -> anyhow::Result<()> {
    let mut reader = CorpusReader::new([Input::named(name)]);
    for entry in reader.by_ref() {
        match entry? {
            Entry::Record(record) => documents.push(long_document(*record)),
            Entry::Bad(bad) => terminal::say(&format!("left out: {bad}")),
        }
    }
    for (what, count) in reader.left_out() {
        terminal::say(&format!("left out: {count} {what}"));
    }
    Ok(())
}

fn read_document(name: &str) -> anyhow::Result<LongDocument> {
    let longest = ReadOptions::default().longest_line;
    let (id, read) = if name == "-" {
        let read = text_document(String::new(), std::io::stdin().lock(), longest);
        ("standard input", read)
    } else {
        let file = std::fs::File::open(name).with_context(|| format!("{name}: cannot read"))?;
        (name, text_document(name.to_owned(), file, longest))
    };
    let record = read.map_err(|reason| anyhow::anyhow!("{id}: {reason}"))?;
    Ok(LongDocument {
        id: id.to_owned(),
        ..long_document(record)
    })
}

/// Prints an answer with its passages for a person; the answer itself may have been `shown` as it was written.
fn print_answer(answer: &ReadAnswer, shown: bool) -> anyhow::Result<()> {
    let (bold, faint, plain) = terminal::styles();
    if shown {
        terminal::print("\n")?;
    } else if !answer.answer.is_empty() {
        let text = terminal::harmless_line(&answer.answer);
        terminal::print(&format!("{}{text}\n", terminal::answer_label()))?;
    }
    if !answer.unknown_citations.is_empty() {
        terminal::say(&format!(
            "the answer cited passages that do not exist: {}",
            answer.unknown_citations.join(", ")
        ));
    }
    if answer.trace.cut_tokens > 0 {
        terminal::say(&format!(
            "{} tokens were cut out of the middle",
            answer.trace.cut_tokens
        ));
    }
    let (label, passages) = if answer.citations.is_empty() {
        ("Passages read:", &answer.passages)
    } else {
        ("Passages cited:", &answer.citations)
    };
    terminal::print(&format!("{bold}{label}{plain}"))?;
    for passage in passages {
        terminal::print(&shown_passage(passage, faint, plain))?;
    }
    Ok(())
}

/// Characters of a passage that are shown; `--json` has all of it.
const SHOWN: usize = 240;

fn shown_passage(passage: &Passage, faint: &str, plain: &str) -> String {
    let citation = &passage.citation;
    let line = terminal::harmless_line(&citation.quote);
    let cut: String = line.chars().take(SHOWN).collect();
    let more = if cut.len() < line.len() { " …" } else { "" };
    format!(
        "[{}] {cut}{more}\n    {faint}[{}, bytes {}–{}, rank {}]{plain}",
        passage.number,
        terminal::harmless_line(&citation.id),
        citation.start_byte,
        citation.end_byte,
        passage.rank
    )
}
