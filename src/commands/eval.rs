//! `verbatim eval`: methods over question sets, side by side.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context, bail};
use corpus_tools::Index;
use corpus_tools::lock::WriterLock;
use corpus_tools::questions::{self, QuestionSet};
use corpus_tools::reader::Input;
use decoder::evaluation::folder::{IndexNote, MethodNote, SetNote};
use decoder::evaluation::passages::{Passages, Sizes};
use decoder::evaluation::run::{Drawn, EngineFor};
use decoder::evaluation::summary::RunFormat;
use decoder::evaluation::{
    Evaluation, EvaluationError, Folder, Method, Plan, Progress, Summary, plot,
};
use decoder::scorer::{EmbeddingScorer, WindowScorer};
use decoder::settings::WindowScorerKind;
use decoder::vectors::{Encoder, Vectors, embed};
use decoder::{Engine, Settings};
use models::language_model::LanguageModel;

use crate::generator_at::{self, GeneratorArguments};
use crate::models_at::{self, ModelArguments, SENTENCE_ENCODER, ScorerArguments};
use crate::progress::Shown;
use crate::settings_file::Changes;
use crate::{Outcome, interrupt, terminal};

/// Bad records that are named one by one.
const NAMED: usize = 5;

/// A window scorer with its kind.
type Scorer<'m> = (WindowScorerKind, Box<dyn WindowScorer + 'm>);

/// Arguments of `verbatim eval`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The index
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    index: Option<PathBuf>,
    /// Question sets: FlashRAG, DPR, KILT or plain files, BEIR folders
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "from")]
    questions: Vec<PathBuf>,
    /// Methods: engine, naive-beam, bm25, dense, bm25-rerank, rrf, closed-book, flare, flare-bm25, read; with changes, as
    /// engine:no-clues+evidence.most=3, flare:single, read:fb
    #[arg(
        long,
        value_name = "METHOD",
        value_delimiter = ',',
        default_value = "engine,bm25"
    )]
    methods: Vec<String>,
    /// The numbers k of R@k
    #[arg(long, value_name = "K", value_delimiter = ',', value_parser = rank)]
    top_k: Vec<usize>,
    /// Questions drawn from each set; all without it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Seed of the sample of questions and of the confidence intervals
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Where traces, runs and summary go; the same command goes on with what is left
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    out: Option<PathBuf>,
    /// Compute every metric again from the traces in this folder, without an index or a model; of the other flags
    /// only --top-k, --also and --json go with it
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_A_RUN)]
    from: Option<PathBuf>,
    /// Write no answers: retrieval only
    #[arg(long)]
    no_answer: bool,
    /// Settings for all methods, in TOML
    #[arg(long, value_name = "FILE", value_parser = Changes::from_file)]
    settings: Option<Changes>,
    /// Change one setting for all methods, as evidence.lambda=2
    #[arg(long, value_name = "KEY=VALUE", value_parser = Changes::from_pair)]
    set: Vec<Changes>,
    /// Tokens to which texts are cut around their best window, so that length buys nothing; 0 cuts nothing
    #[arg(long, value_name = "N", default_value_t = Sizes::default().cut)]
    cut: u32,
    /// Sentence encoder of the dense methods: a short name or a folder. What vectors the index lacks are computed into
    /// it, as `index embed` does
    #[arg(long, value_name = "ENCODER", default_value = SENTENCE_ENCODER)]
    encoder: String,
    /// Write these beside the TREC runs: dpr, kilt
    #[arg(long, value_name = "FORMAT", value_delimiter = ',', value_parser = format)]
    also: Vec<RunFormat>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    generator: GeneratorArguments,
    #[command(flatten)]
    scorer: ScorerArguments,
    #[command(flatten)]
    model: ModelArguments,
}

/// The flags that say what is run, none of which changes what is computed from traces.
const OF_A_RUN: [&str; 22] = [
    "index",
    "questions",
    "methods",
    "limit",
    "seed",
    "out",
    "no_answer",
    "settings",
    "set",
    "cut",
    "encoder",
    "generator",
    "light_model",
    "remote_window",
    "remote_key",
    "remote_timeout",
    "scorer_model",
    "expand",
    "model",
    "device",
    "jobs",
    "offline",
];

/// What else can be done with an evaluation.
#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Draw quality against latency, texts and tokens, as SVG and PNG, into DIR/plots
    Plot {
        /// The folder of an evaluation
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Print the files that were written as one JSON array
        #[arg(long)]
        json: bool,
    },
}

fn rank(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(k @ 1..=1000) => Ok(k),
        _ => Err("expected a number from 1 to 1000".into()),
    }
}

fn format(name: &str) -> Result<RunFormat, String> {
    match name {
        "dpr" => Ok(RunFormat::Dpr),
        "kilt" => Ok(RunFormat::Kilt),
        _ => Err("expected dpr or kilt".into()),
    }
}

/// Runs `verbatim eval`.
///
/// # Errors
/// Index, questions or models cannot be opened, the folder holds something else, or a method fails.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    if let Some(Command::Plot { folder, json }) = &arguments.command {
        let written = plot::write(&Folder::at(folder))?;
        if *json {
            terminal::print_json(&written)?;
            return Ok(Outcome::Done);
        }
        for path in written {
            terminal::print(&terminal::harmless_line(&path.display().to_string()))?;
        }
        return Ok(Outcome::Done);
    }
    let mut top_k = arguments.top_k.clone();
    top_k.sort_unstable();
    top_k.dedup();
    let (folder, lock) = match (&arguments.from, &arguments.out) {
        (Some(from), _) => {
            let folder = Folder::at(from);
            folder.begun_plan()?;
            // An evaluation that goes on may be looked at.
            let lock = match folder.lock() {
                Err(EvaluationError::Locked { .. }) => None,
                lock => Some(lock?),
            };
            (folder, lock)
        }
        (None, Some(out)) => {
            let folder = Folder::at(out);
            if top_k.is_empty() {
                top_k = vec![1, 5];
            }
            let lock = evaluate(&arguments, &top_k, &folder)?;
            (folder, Some(lock))
        }
        (None, None) => bail!("give --out DIR for a new evaluation, or --from DIR for an old one"),
    };
    let summary = Summary::of(&folder, &top_k)?;
    match lock {
        Some(_) => summary.write(&folder, &arguments.also)?,
        None => terminal::say(&format!(
            "{}: another evaluation is writing this folder; its files are left as they are",
            folder.path().display()
        )),
    }
    if arguments.json {
        terminal::print_json(&summary)?;
    } else {
        terminal::print(&terminal::harmless(summary.markdown().trim_end()))?;
    }
    Ok(Outcome::Done)
}

/// The methods that the flags name.
fn methods(arguments: &Arguments) -> anyhow::Result<Vec<Method>> {
    let mut base = Settings::default();
    for changes in arguments.settings.iter().chain(&arguments.set) {
        base = changes.apply(base).map_err(anyhow::Error::msg)?;
    }
    if arguments.no_answer {
        base.answer.most_tokens = 0;
    }
    let mut seen = HashSet::new();
    arguments
        .methods
        .iter()
        .filter(|name| seen.insert(name.as_str()))
        .map(|name| Ok(Method::parse(name, &base)?))
        .collect()
}

/// The question sets that the flags name; bad records are told and left out.
fn sets(arguments: &Arguments) -> anyhow::Result<Vec<QuestionSet>> {
    let mut sets: Vec<QuestionSet> = Vec::new();
    for path in &arguments.questions {
        let set = questions::read(&Input::named(path))?;
        for bad in set.bad.iter().take(NAMED) {
            terminal::say(&format!("left out: {bad}"));
        }
        if set.bad.len() > NAMED {
            terminal::say(&format!("left out: {} more", set.bad.len() - NAMED));
        }
        if sets.iter().any(|other| other.name == set.name) {
            bail!(
                "{}: two question sets would be named {:?}; rename the file",
                path.display(),
                set.name
            );
        }
        sets.push(set);
    }
    Ok(sets)
}

/// Refuses another generator or light model where it would change nothing, or cannot be.
fn check_generators(flags: &GeneratorArguments, methods: &[Method]) -> anyhow::Result<()> {
    if flags.generator.is_some() {
        if let Some(method) = methods.iter().find(|method| !method.takes_generator()) {
            bail!(
                "--generator: {} writes with --model, since the probabilities of its tokens say when to retrieve; leave one of the two out",
                method.name
            );
        }
        if !methods.iter().any(Method::answers) {
            bail!(
                "--generator: none of the methods writes an answer; leave it out, or --no-answer"
            );
        }
    }
    if flags.light_model.is_some() && !methods.iter().any(Method::samples) {
        bail!(
            "--light-model: none of the methods samples outputs; engine:rerank-f, engine:rerank-fb, read:f and read:fb do"
        );
    }
    Ok(())
}

/// Runs the methods; the folder stays locked until the lock is dropped.
fn evaluate(arguments: &Arguments, top_k: &[usize], folder: &Folder) -> anyhow::Result<WriterLock> {
    let methods = methods(arguments)?;
    let generators = &arguments.generator;
    check_generators(generators, &methods)?;
    let sets = sets(arguments)?;
    let index = Index::open(arguments.index.as_deref().unwrap_or("".as_ref()))?;
    let sizes = Sizes {
        cut: arguments.cut,
        ..Sizes::default()
    };
    let others = (
        generators.generator.is_some(),
        generators.light_model.is_some(),
    );
    let needs_model = |method: &Method| method.needs_model(others.0, others.1);
    let lock = folder.lock()?;
    let model: Option<LanguageModel> = if methods.iter().any(needs_model) {
        Some(models_at::language_model(&arguments.model)?)
    } else {
        None
    };
    let any_long = Passages::any_long(&index, sizes);
    let limit = arguments
        .limit
        .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let embeds = methods.iter().any(Method::needs_vectors);
    let plan = Plan {
        version: 0,
        index: IndexNote::of(&index),
        seed: arguments.seed,
        limit,
        top_k: top_k.to_vec(),
        sizes,
        encoder: embeds.then(|| arguments.encoder.clone()),
        scorer_model: arguments.scorer.scorer_model.clone(),
        expand: arguments.scorer.expand.clone(),
        generator: generators.generator.clone(),
        light_model: generators.light_model.clone(),
        methods: methods
            .iter()
            .map(|method| {
                Ok(MethodNote {
                    name: method.name.clone(),
                    retrieves: method.retrieves(),
                    model: model
                        .as_ref()
                        .filter(|_| needs_model(method))
                        .map(|model| model.name().to_owned()),
                    // 1: a passage of a long document is several paragraphs; it was one.
                    definition: u32::from(any_long && method.ranks_passages()),
                    settings: method.saved()?,
                })
            })
            .collect::<anyhow::Result<_>>()?,
        sets: arguments
            .questions
            .iter()
            .zip(&sets)
            .map(|(path, set)| SetNote::of(set, &path.display().to_string(), &index))
            .collect::<Result<_, _>>()?,
    };
    folder.begin(plan, &sets)?;

    // Passages are cut by the same scorer whatever the methods name.
    let cuts = (sizes.cut > 0 || any_long) && methods.iter().any(Method::ranks_passages);
    let passage_scorer = cuts.then(|| Settings::default().windows.scorer);
    // Every kind of scorer that is needed, once.
    let mut kinds: Vec<WindowScorerKind> = Vec::new();
    let named = methods
        .iter()
        .flat_map(|method| [method.scorer(), method.other_scorer()]);
    for kind in named.chain([passage_scorer]).flatten() {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let offline = arguments.model.offline;
    let scorers = kinds
        .into_iter()
        .map(|kind| {
            let scorer = arguments
                .scorer
                .scorer(kind, &index, model.as_ref(), offline)?;
            Ok((kind, scorer))
        })
        .collect::<anyhow::Result<Vec<Scorer<'_>>>>()?;
    let interrupted = interrupt::interrupted;
    let expander = arguments.scorer.expander(offline)?;
    let [writer, light] = generators.open_both(&arguments.model, model.as_ref())?;
    let writer = writer.as_ref().map(generator_at::generator);
    let light = light.as_ref().map(generator_at::generator);
    let mut engines: Vec<EngineFor<'_>> = Vec::new();
    for method in methods.iter().filter(|method| method.needs_engine()) {
        let other = method.other_scorer();
        let kind = method.scorer().context("no window scorer")?;
        let known = |one: &EngineFor<'_>| (one.scorer, one.other) == (kind, other);
        let Some(model) = model.as_ref().filter(|_| !engines.iter().any(known)) else {
            continue;
        };
        let scorer = |kind: WindowScorerKind| {
            let found = scorers.iter().find(|(other, _)| *other == kind);
            found.map(|(_, scorer)| scorer.as_ref())
        };
        let windows = scorer(kind).context("no window scorer")?;
        let mut engine = Engine::new(&index, model, windows, &interrupted)?;
        if let Some(expander) = &expander {
            engine = engine.with_expander(expander);
        }
        if let Some(pieces) = other.and_then(scorer) {
            engine = engine.with_piece_scorer(pieces);
        }
        if let Some(light) = &light {
            engine = engine.with_light_model(light.as_ref());
        }
        if let Some(writer) = &writer {
            engine = engine.with_generator(writer.as_ref());
        }
        engines.push(EngineFor {
            scorer: kind,
            other,
            engine,
        });
    }
    let dense = embeds
        .then(|| dense_scorer(&index, &arguments.encoder, &arguments.model))
        .transpose()?;
    let evaluation = Evaluation {
        index: &index,
        model: model.as_ref(),
        engines: &engines,
        generator: writer.as_deref(),
        light: light.as_deref(),
        scorers: &scorers,
        passage_scorer,
        dense: dense.as_ref(),
        depth: top_k.iter().copied().max().unwrap_or(1),
        sizes,
        interrupted: &interrupted,
    };
    evaluation.prepare(&methods)?;
    for set in &sets {
        let drawn = Drawn {
            set: &set.name,
            questions: &set.questions,
            limit,
            seed: arguments.seed,
        };
        show(|progress| Ok(evaluation.run(drawn, &methods, folder, progress)?))?;
    }
    Ok(lock)
}

/// A scorer with the vectors of all documents; those that the index lacks are computed into it.
fn dense_scorer(
    index: &Index,
    encoder: &str,
    model: &ModelArguments,
) -> anyhow::Result<EmbeddingScorer> {
    let encoder = Encoder::open(&models_at::locate(encoder, model.offline)?)?;
    let progress = Shown::default();
    let embedded = embed(index, &encoder, model.jobs, &progress);
    progress.clear();
    embedded
        .context("the dense methods need vectors of all documents in the folder of the index")?;
    let vectors = Vectors::open(index, &encoder)?;
    Ok(EmbeddingScorer::with_vectors(encoder, vectors))
}

/// Shows the progress of `work`: a bar for every method over every set, and a line when it is through.
fn show(work: impl FnOnce(&dyn Fn(Progress<'_>)) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let shown = std::cell::RefCell::new(None);
    let progress = |event: Progress<'_>| match event {
        Progress::Begins {
            set,
            method,
            done,
            questions,
        } => {
            let label = format!("{set} {method}");
            let bar = terminal::bar(&terminal::harmless_line(&label), questions as u64, false);
            bar.set_position(done as u64);
            let began = std::time::Instant::now();
            *shown.borrow_mut() = Some((bar, label, questions - done, began));
        }
        Progress::Asked => {
            if let Some((bar, ..)) = shown.borrow().as_ref() {
                bar.inc(1);
            }
        }
        Progress::Ends => {
            if let Some((bar, label, asked, began)) = shown.borrow_mut().take() {
                bar.finish_and_clear();
                let seconds = began.elapsed().as_secs_f64();
                terminal::say(&format!(
                    "{label}: {asked} questions asked in {seconds:.0} s"
                ));
            }
        }
        _ => {}
    };
    work(&progress)
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;

    #[test]
    fn every_flag_goes_with_from_or_is_refused() {
        let command = Arguments::augment_args(Command::new("eval"));
        for flag in command.get_arguments().map(|flag| flag.get_id().as_str()) {
            let kept = ["from", "top_k", "also", "json", "help"].contains(&flag);
            assert!(kept != OF_A_RUN.contains(&flag), "{flag}");
        }
    }
}
