//! A generator that is a language model of this machine. All texts of a request share the prompt's cache and
//! are written in one batch; what two prompts in a row have in common in front is read once.

use std::sync::{Mutex, PoisonError};

use models::ModelError;
use models::chat::Message;
use models::language_model::{Branch, Cache, LanguageModel, Wanted};
use models::tokenizer::Tokenizer;

use super::{Generator, GeneratorError, Output, Request, Written};
use crate::session::Cost;

/// Tokens read in one pass, between two looks at whether the run was interrupted.
const PASS: usize = 256;

/// A language model of this machine as a generator.
pub struct LocalGenerator<'m> {
    model: &'m LanguageModel,
    interrupted: &'m (dyn Fn() -> bool + Sync),
    /// What was read last.
    last: Mutex<Option<Cache>>,
}

impl<'m> LocalGenerator<'m> {
    /// A generator over a model; `interrupted` is asked between passes.
    pub fn new(model: &'m LanguageModel, interrupted: &'m (dyn Fn() -> bool + Sync)) -> Self {
        Self {
            model,
            interrupted,
            last: Mutex::new(None),
        }
    }

    /// The tokens of a conversation, as the model's chat template has it; for a model without one its contents,
    /// one after another, and a line to go on from.
    fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, ModelError> {
        let tokenizer = self.model.tokenizer();
        if let Some(template) = self.model.chat_template() {
            return template.render(messages, true, tokenizer);
        }
        let mut text = String::new();
        for message in messages {
            text.push_str(&message.content);
            text.push_str("\n\n");
        }
        text.push_str("Answer:");
        let mut tokens: Vec<u32> = tokenizer.begin_token().into_iter().collect();
        tokens.extend(tokenizer.encode_text(&text));
        Ok(tokens)
    }

    fn check_interrupt(&self) -> Result<(), GeneratorError> {
        if (self.interrupted)() {
            Err(GeneratorError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Reads a prompt and returns its cache and the logits after it.
    fn read(
        &self,
        prompt: &[u32],
        output: usize,
        cost: &mut Cost,
    ) -> Result<(Cache, Vec<f32>), GeneratorError> {
        let limit = self.model.context_length();
        if prompt.is_empty() || prompt.len().saturating_add(output) > limit {
            return Err(GeneratorError::WindowFull {
                model: self.model.name().to_owned(),
                prompt: prompt.len(),
                output,
                limit,
            });
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cache = last.take().unwrap_or_else(|| self.model.new_cache());
        // The last token is read in any case, for its logits.
        let known = cache.common_prefix(prompt).min(prompt.len() - 1);
        cache.truncate(known);
        let mut logits = Vec::new();
        for chunk in prompt[known..].chunks(PASS) {
            self.check_interrupt()?;
            let wanted = if cache.len() + chunk.len() == prompt.len() {
                Wanted::Last
            } else {
                Wanted::None
            };
            let read = self.model.forward(&mut cache, chunk, wanted)?;
            cost.passes += 1;
            cost.evaluated += chunk.len() as u64;
            logits = read.into_values();
        }
        *last = Some(cache.fork());
        Ok((cache, logits))
    }
}

/// A text that is being written.
struct Branching {
    cache: Cache,
    tokens: Vec<u32>,
    next: Option<u32>,
    ended: bool,
    sampling: models::sampling::Sampling,
}

impl Branching {
    /// Chooses the next token; `None` ends the text.
    fn choose(
        &mut self,
        logits: &[f32],
        position: usize,
        most: usize,
        model: &LanguageModel,
    ) -> Option<u32> {
        if self.tokens.len() >= most {
            return None;
        }
        let tokenizer = model.tokenizer();
        let size = (tokenizer.vocabulary_size() as usize).min(logits.len());
        let mut logits = logits[..size].to_vec();
        let chosen = self.sampling.choose(&mut logits, &self.tokens, position);
        let token = chosen.map(|chosen| chosen.token);
        let token = token
            .filter(|&token| !model.end_tokens().contains(&token) && !tokenizer.is_control(token));
        self.ended = token.is_none();
        token
    }
}

impl Generator for LocalGenerator<'_> {
    fn forget(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn name(&self) -> &str {
        self.model.name()
    }

    fn context_length(&self) -> Option<usize> {
        Some(self.model.context_length())
    }

    fn count_tokens(&self, text: &str) -> usize {
        self.model.tokenizer().encode_text(text).len()
    }

    fn generate(
        &self,
        request: &Request<'_>,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Output, GeneratorError> {
        let mut cost = Cost::default();
        let prompt = self.prompt(request.messages)?;
        let (trunk, logits) = self.read(&prompt, request.most_tokens, &mut cost)?;
        let mut branches: Vec<Branching> = (0..request.samples as u64)
            .map(|sequence| Branching {
                cache: trunk.fork(),
                tokens: Vec::new(),
                next: None,
                ended: false,
                sampling: request.sampling.for_sequence(sequence),
            })
            .collect();
        let mut stream = Stream::default();
        for branch in &mut branches {
            branch.next = branch.choose(&logits, prompt.len(), request.most_tokens, self.model);
        }
        loop {
            self.check_interrupt()?;
            let mut going: Vec<&mut Branching> =
                branches.iter_mut().filter(|b| b.next.is_some()).collect();
            if going.is_empty() {
                break;
            }
            for branch in &mut going {
                branch.tokens.extend(branch.next);
            }
            if request.samples == 1
                && let Some(token) = going[0].next
            {
                stream.push(token, self.model.tokenizer(), on_text);
            }
            // The last token permitted needs no pass.
            going.retain_mut(|branch| {
                let goes_on = branch.tokens.len() < request.most_tokens;
                if !goes_on {
                    branch.next = None;
                }
                goes_on
            });
            if going.is_empty() {
                continue;
            }
            let chunks: Vec<[u32; 1]> = going
                .iter()
                .map(|branch| [branch.next.unwrap_or_default()])
                .collect();
            let mut pass: Vec<Branch<'_>> = going
                .iter_mut()
                .zip(&chunks)
                .map(|(branch, tokens)| Branch {
                    cache: &mut branch.cache,
                    tokens,
                    wanted: Wanted::Last,
                })
                .collect();
            let logits = self.model.forward_branches(&mut pass)?;
            cost.passes += 1;
            cost.evaluated += chunks.len() as u64;
            for (branch, logits) in going.into_iter().zip(&logits) {
                let position = prompt.len() + branch.tokens.len();
                branch.next =
                    branch.choose(logits.row(0), position, request.most_tokens, self.model);
            }
        }
        let written: Vec<Written> = branches
            .into_iter()
            .map(|branch| Written {
                text: self
                    .model
                    .tokenizer()
                    .decode(&branch.tokens)
                    .trim()
                    .to_owned(),
                tokens: branch.tokens.len(),
                ended: branch.ended,
            })
            .collect();
        cost.written = written.iter().map(|text| text.tokens as u64).sum();
        Ok(Output {
            written,
            prompt_tokens: prompt.len(),
            cost,
        })
    }

    fn choose(
        &self,
        messages: &[Message],
        labels: &[&str],
    ) -> Result<(Option<usize>, Output), GeneratorError> {
        let mut cost = Cost::default();
        let prompt = self.prompt(messages)?;
        let tokens: Vec<Vec<u32>> = labels
            .iter()
            .map(|label| self.model.tokenizer().encode_text(label))
            .collect();
        let longest = tokens.iter().map(Vec::len).max().unwrap_or(0);
        let (trunk, _) = self.read(&prompt, longest, &mut cost)?;
        let continuations: Vec<&[u32]> = tokens.iter().map(Vec::as_slice).collect();
        let scores = self.model.score_continuations(&trunk, &continuations)?;
        cost.passes += 1;
        cost.evaluated += tokens.iter().map(|t| t.len() as u64).sum::<u64>();
        let totals: Vec<f32> = scores.iter().map(|s| s.iter().sum()).collect();
        let mut best: Option<usize> = None;
        for (label, total) in totals.iter().enumerate() {
            if best.is_none_or(|b| total.total_cmp(&totals[b]).is_gt()) {
                best = Some(label);
            }
        }
        let output = Output {
            written: Vec::new(),
            prompt_tokens: prompt.len(),
            cost,
        };
        Ok((best, output))
    }
}

/// Bytes of a text that have come but make no whole character yet.
#[derive(Default)]
struct Stream {
    waiting: Vec<u8>,
    begun: bool,
}

impl Stream {
    /// Hands on what is whole after `token`; white space in front of the text is left out.
    fn push(&mut self, token: u32, tokenizer: &Tokenizer, on_text: &mut dyn FnMut(&str)) {
        self.waiting
            .extend_from_slice(tokenizer.token_bytes(token).unwrap_or_default());
        let whole = match std::str::from_utf8(&self.waiting) {
            Ok(_) => self.waiting.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // Bytes that make no character are shown as such.
            Err(_) => self.waiting.len(),
        };
        let rest = self.waiting.split_off(whole);
        let text = String::from_utf8_lossy(&self.waiting).into_owned();
        self.waiting = rest;
        let text = if self.begun { &text } else { text.trim_start() };
        if !text.is_empty() {
            self.begun = true;
            on_text(text);
        }
    }
}
