//! A generator that is a model on an OpenAI-compatible server.

use models::chat::Message;
use models::remote::{Completion, Prompt, RemoteModel, Request as RemoteRequest};

use super::{Generator, GeneratorError, Output, Request, Written, first_label};
use crate::session::Cost;

/// Bytes of text that a token is taken to have, where the tokenizer is elsewhere. Prose in English has more a
/// token; numbers, rare words and other scripts may have fewer.
const BYTES_PER_TOKEN: usize = 3;

/// A model on a server as a generator.
#[derive(Debug)]
pub struct RemoteGenerator<'a> {
    model: RemoteModel<'a>,
    context_length: Option<usize>,
}

impl<'a> RemoteGenerator<'a> {
    /// A generator over a model on a server; its window in tokens, where the user knows it.
    pub fn new(model: RemoteModel<'a>, context_length: Option<usize>) -> Self {
        Self {
            model,
            context_length,
        }
    }

    fn output(&self, completion: Completion) -> Output {
        let texts = completion.choices.len().max(1);
        let tokens = completion.written_tokens.unwrap_or(0) as usize;
        let written: Vec<Written> = completion
            .choices
            .into_iter()
            .map(|choice| Written {
                text: choice.text.trim().to_owned(),
                tokens: tokens / texts,
                ended: choice.finish.as_deref() != Some("length"),
            })
            .collect();
        let prompt_tokens = completion.prompt_tokens.unwrap_or(0);
        Output {
            written,
            prompt_tokens: prompt_tokens as usize,
            cost: Cost {
                passes: completion.requests,
                evaluated: prompt_tokens.saturating_mul(completion.requests),
                written: tokens as u64,
            },
        }
    }
}

impl Generator for RemoteGenerator<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn context_length(&self) -> Option<usize> {
        self.context_length
    }

    fn count_tokens(&self, text: &str) -> usize {
        text.len().div_ceil(BYTES_PER_TOKEN)
    }

    fn generate(
        &self,
        request: &Request<'_>,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Output, GeneratorError> {
        let ask = RemoteRequest {
            prompt: Prompt::Chat(request.messages),
            most_tokens: request.most_tokens,
            temperature: request.sampling.temperature,
            top_p: request.sampling.top_p,
            top_k: request.sampling.top_k,
            seed: request.sampling.seed,
            samples: request.samples,
            log_probabilities: false,
        };
        let completion = match request.samples {
            0 => return Ok(Output::default()),
            1 => self.model.stream(&ask, on_text)?,
            _ => self.model.complete(&ask)?,
        };
        Ok(self.output(completion))
    }

    fn choose(
        &self,
        messages: &[Message],
        labels: &[&str],
    ) -> Result<(Option<usize>, Output), GeneratorError> {
        let ask = RemoteRequest {
            prompt: Prompt::Chat(messages),
            most_tokens: 16,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            seed: 0,
            samples: 1,
            log_probabilities: false,
        };
        let output = self.output(self.model.complete(&ask)?);
        let text = output.written.first().map_or("", |w| w.text.as_str());
        Ok((first_label(text, labels), output))
    }
}
