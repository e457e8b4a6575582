//! Looking forward: a light model reads what fits the question best and samples what it would answer.

use models::chat::Message;
use models::sampling::Sampling;
use serde::{Deserialize, Serialize};

use super::prompt::{self, Asked, Style};
use super::reader::ReadError;
use super::score::{self, Combination};
use super::settings::{Method, SamplePrompt};
use crate::generator::{Generator, GeneratorError, Output, Request};
use crate::scorer::{WindowScorer, WindowText};

/// Tokens that a chat template may add to a message.
const TEMPLATE_TOKENS: usize = 64;
/// Tokens of a passage's number and line break, and what a join of two lines may cost.
const LINE_TOKENS: usize = 8;

/// What the light model wrote.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Samples {
    /// Reasoning and answer of each sample, the words that the prompt asked for left out.
    pub texts: Vec<String>,
    /// The answer of each.
    pub answers: Vec<String>,
    /// Chunks that the light model read, as indexes into the ranking's chunks, in reading order.
    pub read: Vec<usize>,
}

/// How the light model is asked.
pub(crate) struct Look {
    pub(crate) prompt: SamplePrompt,
    /// Most tokens of a sample.
    pub(crate) most_tokens: usize,
    /// Most tokens of the passages it reads.
    pub(crate) budget: usize,
    pub(crate) sampling: Sampling,
    pub(crate) samples: usize,
}

/// What came of it.
pub(crate) struct Looked {
    pub(crate) samples: Samples,
    /// One row a sample that says something, one score a passage.
    pub(crate) scores: Vec<Vec<f32>>,
    pub(crate) output: Output,
}

/// Lets the light model read the passages that fit the question best, within the budget and its window, in
/// reading order, and scores *all* passages for what it samples. A sample that says nothing scores nothing.
pub(crate) fn look_forward(
    light: &dyn Generator,
    relevance: &dyn WindowScorer,
    asked: &Asked<'_>,
    texts: &[WindowText],
    by_question: &[f32],
    document_of: impl Fn(usize) -> usize,
    look: &Look,
) -> Result<Looked, ReadError> {
    let weights = Method::Order.weights();
    let backward = score::combine(by_question, &[], weights, Combination::Raw);
    let style = Style::Sample(look.prompt);
    let room = room(light, asked, style, look.most_tokens)?;
    let budget = look.budget.min(room);
    let chosen = within_budget(light, texts, &score::ranking(&backward), budget, None)?;
    let read = score::reading_order(&chosen, document_of);
    let messages = messages(asked, style, &read, texts);
    let output = light.generate(
        &Request {
            messages: &messages,
            most_tokens: look.most_tokens,
            sampling: look.sampling,
            samples: look.samples,
        },
        &mut |_| {},
    )?;
    let mut samples = Samples {
        read,
        ..Samples::default()
    };
    for written in &output.written {
        let (whole, answer) = prompt::parts(&written.text);
        samples.texts.push(whole);
        samples.answers.push(answer);
    }
    let said: Vec<&str> = samples
        .texts
        .iter()
        .map(String::as_str)
        .filter(|sample| !sample.trim().is_empty())
        .collect();
    let scores = relevance.score_all(&said, texts)?;
    Ok(Looked {
        samples,
        scores,
        output,
    })
}

/// Tokens that passages may take in a generator's window beside question and answer; without an end where the
/// window is not known.
pub(crate) fn room(
    generator: &dyn Generator,
    asked: &Asked<'_>,
    style: Style,
    output: usize,
) -> Result<usize, GeneratorError> {
    let Some(limit) = generator.context_length() else {
        return Ok(usize::MAX);
    };
    let bare: usize = prompt::request(asked, style, [])
        .iter()
        .map(|message| generator.count_tokens(&message.content))
        .sum();
    let prompt = bare + TEMPLATE_TOKENS;
    match limit.checked_sub(prompt.saturating_add(output)) {
        Some(room) if room > 0 => Ok(room),
        _ => Err(GeneratorError::WindowFull {
            model: generator.name().to_owned(),
            prompt,
            output,
            limit,
        }),
    }
}

/// The request with the chosen passages.
pub(crate) fn messages(
    asked: &Asked<'_>,
    style: Style,
    chosen: &[usize],
    texts: &[WindowText],
) -> Vec<Message> {
    let passages = chosen.iter().enumerate().map(|(at, &passage)| {
        let WindowText { title, text } = &texts[passage];
        (at + 1, title.as_str(), text.as_str())
    });
    prompt::request(asked, style, passages)
}

/// Tokens that a passage takes in a generator's prompt.
pub(crate) fn tokens_of(generator: &dyn Generator, text: &WindowText) -> usize {
    let line = prompt::passage_line(1, &text.title, &text.text);
    generator.count_tokens(&line) + LINE_TOKENS
}

/// The best passages of `ranking` within a budget of a generator's tokens. That not even one fits is an error.
pub(crate) fn within_budget(
    generator: &dyn Generator,
    texts: &[WindowText],
    ranking: &[usize],
    budget: usize,
    most: Option<usize>,
) -> Result<Vec<usize>, ReadError> {
    let tokens = |passage: usize| tokens_of(generator, &texts[passage]);
    let chosen = score::within_budget(ranking, tokens, budget, most);
    match ranking.first() {
        Some(&best) if chosen.is_empty() && most != Some(0) => Err(ReadError::LargePassage {
            model: generator.name().to_owned(),
            tokens: tokens(best),
            budget,
        }),
        _ => Ok(chosen),
    }
}
