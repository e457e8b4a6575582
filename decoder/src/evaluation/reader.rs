//! Retrieve-then-read: an answer written from passages, or from nothing, with the prompt of the engine's own answer
//! stage, so that methods differ in what they read and in nothing else.

use std::time::Duration;

use models::ModelError;
use models::chat::Message;
use models::language_model::LanguageModel;
use models::sampling::Sampling;

use super::EvaluationError;
use super::passages::Retrieved;
use crate::engine::EngineError;
use crate::finish::{self, Answered};
use crate::generator::{Generator, GeneratorError, Request};
use crate::prompt;
use crate::session::{Cost, ModelSource, Session};
use crate::settings::{AnswerPrompt, AnswerSettings};
use crate::stages;

/// Writes an answer to `question` from the first passages, as many as the settings say; from none, the model
/// answers by itself. Passages that do not fit the model's context are left out, the last first.
///
/// # Errors
/// The model fails.
pub fn read(
    model: &LanguageModel,
    question: &str,
    passages: &[Retrieved],
    settings: &AnswerSettings,
) -> Result<(String, Cost), EvaluationError> {
    let room = model
        .context_length()
        .saturating_sub(settings.most_tokens + 1);
    let mut count = passages.len().min(settings.evidence);
    let mut tokens = request(model, question, &passages[..count], settings)?;
    while tokens.len() > room && count > 0 {
        count -= 1;
        tokens = request(model, question, &passages[..count], settings)?;
    }
    let mut session = Session::new(ModelSource::new(model), Vec::new());
    session.push(&tokens);
    let (most, sampling) = (settings.most_tokens, Sampling::greedy());
    let tokenizer = model.tokenizer();
    let answer = stages::write_freely(&mut session, tokenizer, most, sampling, &mut |_| {})?;
    Ok((answer, session.cost()))
}

/// As [`read`], by another generator than the model, with the prompt of the engine's own answers by another generator;
/// from no passage, it answers by itself.
///
/// # Errors
/// The generator fails, or not even the question fits.
pub fn ask(
    generator: &dyn Generator,
    question: &str,
    passages: &[Retrieved],
    settings: &AnswerSettings,
) -> Result<(String, Cost), EvaluationError> {
    let mut shown: Vec<(usize, &str, &str)> = passages
        .iter()
        .take(settings.evidence)
        .zip(1..)
        .map(|(passage, number)| (number, passage.title.as_str(), passage.text.as_str()))
        .collect();
    loop {
        let most = settings.most_tokens;
        let written = match shown.is_empty() {
            true => closed_book(generator, question, most),
            false => {
                let how = (most, Sampling::greedy());
                finish::cite_passages(generator, question, &shown, how, &mut |_| {})
            }
        };
        match written {
            Err(GeneratorError::WindowFull { .. }) if !shown.is_empty() => _ = shown.pop(),
            written => {
                let Answered { cited, cost, .. } = written.map_err(EngineError::Generator)?;
                return Ok((cited.text, cost));
            }
        }
    }
}

fn closed_book(
    generator: &dyn Generator,
    question: &str,
    most_tokens: usize,
) -> Result<Answered, GeneratorError> {
    let request = Request {
        messages: &[Message::new("user", prompt::bare_request(question))],
        most_tokens,
        sampling: Sampling::greedy(),
        samples: 1,
    };
    let mut output = generator.generate(&request, &mut |_| {})?;
    let text = output.written.pop().map_or(String::new(), |w| w.text);
    Ok(Answered::plain(text, output.cost, Duration::ZERO))
}

fn request(
    model: &LanguageModel,
    question: &str,
    passages: &[Retrieved],
    settings: &AnswerSettings,
) -> Result<Vec<u32>, ModelError> {
    let texts = passages
        .iter()
        .map(|passage| (passage.title.as_str(), passage.text.as_str()));
    let chat = model
        .chat_template()
        .filter(|_| settings.prompt == AnswerPrompt::Chat);
    if let Some(template) = chat {
        let request = if passages.is_empty() {
            prompt::bare_request(question)
        } else {
            prompt::answer_request(question, texts)
        };
        return template.render(&[Message::new("user", request)], true, model.tokenizer());
    }
    let tokenizer = model.tokenizer();
    let mut tokens: Vec<u32> = tokenizer.begin_token().into_iter().collect();
    tokens.extend(tokenizer.encode_text(&prompt::answer_lines(question, texts)));
    Ok(tokens)
}
