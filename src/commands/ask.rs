//! `verbatim ask`: an answer with evidence quoted word for word from an index.

use std::path::PathBuf;

use anyhow::Context;
use corpus_tools::{Citation, Index};
use decoder::forward_backward::rerank::Rerank;
use decoder::settings::{Scope, WindowScorerKind};
use decoder::{Answer, Engine, EngineError, Settings};

use crate::batch::{AskedWith, Batch};
use crate::commands::active::{self, ActiveArguments, Asked};
use crate::generator_at::{self, GeneratorArguments};
use crate::models_at::{self, ModelArguments, ScorerArguments};
use crate::settings_file::Changes;
use crate::{Outcome, interrupt, terminal};

/// Arguments of `verbatim ask`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The index
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    scorer: ScorerArguments,
    #[command(flatten)]
    generator: GeneratorArguments,
    #[command(flatten)]
    active: ActiveArguments,
    /// Print one JSON object with the whole trace
    #[arg(long, conflicts_with = "questions")]
    json: bool,
    /// Answer every question of a JSON Lines file {"id","question"}; `-` for standard input
    #[arg(
        long,
        value_name = "FILE",
        requires = "out",
        conflicts_with = "question"
    )]
    questions: Option<PathBuf>,
    /// Where the answers go, one JSON object a line; what is there already is not asked again
    #[arg(long, value_name = "FILE", requires = "questions")]
    out: Option<PathBuf>,
    /// The question; `-` reads it from standard input
    #[arg(required_unless_present = "questions")]
    question: Option<String>,
}

/// Flags that change what the engine computes.
#[derive(Debug, Clone, clap::Args)]
pub struct EngineArguments {
    /// Settings from a TOML file; flags go before it
    #[arg(long, value_name = "FILE", value_parser = Changes::from_file)]
    settings: Option<Changes>,
    /// One setting, such as evidence.close_from=64; goes before all else, may stand several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = Changes::from_pair)]
    set: Vec<Changes>,
    /// What scores windows against the question: bm25, embedding, cross-encoder or likelihood
    #[arg(long, value_name = "SCORER", value_parser = scorer_kind)]
    window_scorer: Option<WindowScorerKind>,
    /// Most pieces of evidence; with --active, in front of a sentence
    #[arg(long, value_name = "N", value_parser = pieces)]
    evidence: Option<usize>,
    /// How strongly the relevance of the windows ahead steers the evidence; 0 switches it off
    #[arg(long, value_name = "λ", value_parser = lambda, allow_negative_numbers = true)]
    lambda: Option<f32>,
    /// Where a piece of evidence may stand: place (where its window begins), document or candidates
    #[arg(long, value_name = "SCOPE", value_parser = scope)]
    scope: Option<Scope>,
    /// Rerank the evidence by what a light model samples after reading it (f), and by the question too (fb)
    #[arg(long, value_name = "METHOD", value_parser = rerank)]
    rerank: Option<Rerank>,
    /// What scores evidence for a text when it is reranked, as --window-scorer
    #[arg(long, value_name = "SCORER", value_parser = scorer_kind)]
    rerank_relevance: Option<WindowScorerKind>,
    /// Outputs that the light model samples
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=64))]
    rerank_samples: Option<u32>,
    /// Seed of what is sampled; 0 unless the settings say otherwise
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write no answer, evidence only
    #[arg(long)]
    no_answer: bool,
}

fn scorer_kind(name: &str) -> Result<WindowScorerKind, String> {
    match name {
        "bm25" => Ok(WindowScorerKind::Bm25),
        "embedding" => Ok(WindowScorerKind::Embedding),
        "cross-encoder" => Ok(WindowScorerKind::CrossEncoder),
        "likelihood" => Ok(WindowScorerKind::Likelihood),
        _ => Err("expected bm25, embedding, cross-encoder or likelihood".into()),
    }
}

fn rerank(name: &str) -> Result<Rerank, String> {
    match name {
        "none" => Ok(Rerank::None),
        "f" => Ok(Rerank::F),
        "fb" => Ok(Rerank::Fb),
        _ => Err("expected none, f or fb".into()),
    }
}

fn pieces(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=100) => Ok(number),
        _ => Err("expected a number of pieces from 1 to 100".into()),
    }
}

fn lambda(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if (0.0..=1e6).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 1000000".into()),
    }
}

fn scope(name: &str) -> Result<Scope, String> {
    match name {
        "place" => Ok(Scope::Place),
        "document" => Ok(Scope::Document),
        "candidates" => Ok(Scope::Candidates),
        _ => Err("expected place, document or candidates".into()),
    }
}

impl EngineArguments {
    /// The default settings with what file and flags change.
    pub fn settings(&self) -> Settings {
        // Changes were checked when they were read.
        let changed = |settings: Settings, changes: &Changes| {
            changes.apply(settings.clone()).unwrap_or(settings)
        };
        let mut settings = self.settings.iter().fold(Settings::default(), changed);
        if let Some(scorer) = self.window_scorer {
            settings.windows.scorer = scorer;
            if scorer == WindowScorerKind::Likelihood {
                // The language model reads every window.
                settings.windows.prefilter = 10;
            }
        }
        if let Some(most) = self.evidence {
            settings.evidence.most = most;
        }
        if let Some(lambda) = self.lambda {
            settings.evidence.lambda = lambda;
        }
        if let Some(scope) = self.scope {
            settings.evidence.scope = scope;
        }
        if let Some(method) = self.rerank {
            settings.rerank.method = method;
        }
        if let Some(relevance) = self.rerank_relevance {
            settings.rerank.relevance = relevance;
        }
        if let Some(samples) = self.rerank_samples {
            settings.rerank.samples = samples as usize;
        }
        if let Some(seed) = self.seed {
            settings.rerank.sampling.seed = seed;
            settings.sampling.seed = seed;
        }
        if self.no_answer {
            settings.answer.most_tokens = 0;
        }
        self.set.iter().fold(settings, changed)
    }
}

/// Runs `verbatim ask`.
///
/// # Errors
/// Index or model cannot be opened or do not belong together.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let index = Index::open(&arguments.index)?;
    let settings = arguments.engine.settings();
    let ask = match (&arguments.questions, &arguments.out) {
        (Some(questions), Some(out)) => {
            let asked_with = asked_with(&arguments, &index, &settings)?;
            Asked::Many(Box::new(Batch::open(questions, out, asked_with)?))
        }
        _ => Asked::One(question(arguments.question.as_deref().unwrap_or_default())?),
    };
    let model = models_at::language_model(&arguments.model)?;
    let mut flags = arguments.active.clone();
    flags.pieces = arguments.engine.evidence;
    let flags = &flags;
    if flags.active && !flags.needs_engine() {
        index.check_tokenizer(model.tokenizer())?;
        return active::run(flags, ask, &index, &model, None, &settings, arguments.json);
    }
    let offline = arguments.model.offline;
    let scorers = &arguments.scorer;
    let scorer = scorers.scorer(settings.windows.scorer, &index, Some(&model), offline)?;
    let expander = scorers.expander(offline)?;
    let pieces = scorers.piece_scorer(&settings, &index, &model, offline)?;
    let generators = &arguments.generator;
    let [writer, light] = generators.open_both(&arguments.model, Some(&model))?;
    let writer = writer.as_ref().map(generator_at::generator);
    let light = light.as_ref().map(generator_at::generator);
    let mut engine = Engine::new(&index, &model, scorer.as_ref(), &interrupt::interrupted)?;
    if let Some(expander) = &expander {
        engine = engine.with_expander(expander);
    }
    if let Some(pieces) = &pieces {
        engine = engine.with_piece_scorer(pieces.as_ref());
    }
    if let Some(light) = &light {
        engine = engine.with_light_model(light.as_ref());
    }
    if let Some(writer) = &writer {
        engine = engine.with_generator(writer.as_ref());
    }
    engine.prepare(&settings)?;
    if flags.active {
        let engine = Some(&engine);
        return active::run(
            flags,
            ask,
            &index,
            &model,
            engine,
            &settings,
            arguments.json,
        );
    }
    let question = match ask {
        Asked::One(question) => question,
        Asked::Many(batch) => return batch.run(&engine, &settings),
    };
    // A person sees the answer as it is written.
    let streams = !arguments.json && terminal::is_terminal();
    let mut shown = false;
    let answer = engine.ask_streaming(&question, &settings, &mut |text| {
        if streams {
            if !shown {
                terminal::print_piece(&terminal::answer_label());
            }
            shown = true;
            terminal::print_piece(&terminal::harmless_line(text));
        }
    })?;
    if arguments.json {
        terminal::print_json(&answer)?;
    } else {
        print_answer_from(&answer, Some(&index), shown)?;
    }
    Ok(if answer.evidence.is_empty() {
        Outcome::NothingFound
    } else {
        Outcome::Done
    })
}

/// What many questions are asked with, for whoever goes on with them.
fn asked_with(
    arguments: &Arguments,
    index: &Index,
    settings: &Settings,
) -> anyhow::Result<AskedWith> {
    let active = &arguments.active;
    let retriever = active.active.then(|| match active.needs_engine() {
        // As they are written and read again.
        true => Ok(serde_json::from_str(&serde_json::to_string(settings)?)?),
        false => Ok::<_, serde_json::Error>(serde_json::Value::from("bm25")),
    });
    let (scorer, generator) = (&arguments.scorer, &arguments.generator);
    Ok(AskedWith {
        index: index.manifest().checksum.clone(),
        scorer_model: scorer.scorer_model.clone(),
        expand: scorer.expand.clone(),
        generator: generator.generator.clone(),
        light_model: generator.light_model.clone(),
        retriever: retriever.transpose()?,
    })
}

fn question(given: &str) -> anyhow::Result<String> {
    let question = match given {
        "-" => std::io::read_to_string(std::io::stdin())
            .context("standard input: cannot read the question")?,
        question => question.to_owned(),
    };
    // Said before a model is loaded for nothing.
    if question.trim().is_empty() {
        return Err(EngineError::EmptyQuestion.into());
    }
    Ok(question)
}

/// Prints an answer with its evidence for a person.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_answer(answer: &Answer) -> anyhow::Result<()> {
    print_answer_from(answer, None, false)
}

/// As [`print_answer`]; a quote that begins or ends inside a sentence is shown in it. `shown`: the answer was shown
/// as it was written.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_answer_from(
    answer: &Answer,
    index: Option<&Index>,
    shown: bool,
) -> anyhow::Result<()> {
    let colour = terminal::colour();
    let (bold, faint, plain) = terminal::styles();
    if answer.evidence.is_empty() {
        terminal::say("no evidence found");
        return Ok(());
    }
    if shown {
        terminal::print("\n")?;
    } else if !answer.answer.is_empty() {
        terminal::print(&format!(
            "{}{}\n",
            terminal::answer_label(),
            terminal::harmless_line(&answer.answer)
        ))?;
    }
    if !answer.unknown_citations.is_empty() {
        terminal::say(&format!(
            "the answer cited pieces that do not exist: {}",
            answer.unknown_citations.join(", ")
        ));
    }
    terminal::print(&format!("{bold}Evidence:{plain}"))?;
    for (number, citation) in answer.evidence.iter().enumerate() {
        let others = match citation.other_occurrences {
            0 => String::new(),
            1 => ", and in 1 other place".to_owned(),
            count => format!(", and in {count} other places"),
        };
        let (before, after) = index
            .and_then(|index| rest_of_sentence(index, citation))
            .unwrap_or_default();
        let quote = terminal::harmless_line(&citation.quote);
        let quote = match colour {
            true => emphasised(&quote, &terminal::harmless_line(&answer.answer)),
            false => quote,
        };
        terminal::print(&format!(
            "{}. {faint}{}{plain}“{quote}”{faint}{}{plain}\n   {faint}{} [{}, bytes {}–{}{others}]{plain}",
            number + 1,
            terminal::harmless_line(&before),
            terminal::harmless_line(&after),
            terminal::harmless_line(&citation.title),
            terminal::harmless_line(&citation.id),
            citation.start_byte,
            citation.end_byte,
        ))?;
    }
    Ok(())
}

/// Bytes of the rest of a sentence that are shown beside a quote.
const LONGEST_REST: usize = 600;

/// What of the first and the last sentence of a quote stands outside of it; `None` if the text is not to be had.
fn rest_of_sentence(index: &Index, citation: &Citation) -> Option<(String, String)> {
    let document = index.document_by_external_id(&citation.id).ok()??;
    let document = index.document(document).ok()?;
    let span = citation.start_byte as usize..citation.end_byte as usize;
    let paragraph = document
        .paragraphs
        .iter()
        .find(|paragraph| paragraph.number == citation.paragraph)?;
    let text = document.paragraph_text(paragraph);
    let at = |byte: usize| byte.checked_sub(paragraph.bytes.start);
    let (start, end) = (at(span.start)?, at(span.end)?);
    let starts = decoder::sentences::starts(text);
    let first = starts.iter().rev().find(|&&from| from <= start)?;
    let next = starts.iter().find(|&&from| from >= end);
    let before = text.get(*first..start)?;
    let after = text.get(end..next.copied().unwrap_or(text.len()))?;
    // The rest of what never ends is not shown.
    let shown = |rest: &str| match rest.len() <= LONGEST_REST {
        true => rest.trim_end_matches('\n').to_owned(),
        false => String::new(),
    };
    Some((shown(before), shown(after.trim_end())))
}

/// The text with every place of `part` in bold, letter case apart; `part` must be harmless already.
fn emphasised(text: &str, part: &str) -> String {
    let part = part.trim_matches(|c: char| c.is_whitespace() || c == '.');
    let lower = text.to_lowercase();
    // Lower case of other length has other offsets; nothing is emphasised then.
    if part.is_empty() || lower.len() != text.len() {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut from = 0;
    for (at, found) in lower.match_indices(&part.to_lowercase()) {
        let end = at + found.len();
        let (Some(before), Some(found)) = (text.get(from..at), text.get(at..end)) else {
            continue;
        };
        shown.push_str(before);
        shown.push_str(&format!("\x1b[1m{found}\x1b[22m"));
        from = end;
    }
    shown.push_str(text.get(from..).unwrap_or_default());
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_stands_out_in_the_quote() {
        assert_eq!(
            emphasised("Paris is large. paris!", "Paris."),
            "\x1b[1mParis\x1b[22m is large. \x1b[1mparis\x1b[22m!"
        );
        assert_eq!(emphasised("Paris", ""), "Paris");
        assert_eq!(emphasised("İstanbul", "i"), "İstanbul");
    }
}
