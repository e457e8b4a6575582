//! A generator that remembers the samples it gave, for studies that ask for the same ones again and again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use models::chat::Message;

use super::{Generator, GeneratorError, Output, Request};
use crate::session::Cost;

/// Everything a request depends on but the number of samples.
#[derive(PartialEq, Eq, Hash)]
struct Asked {
    messages: Vec<(String, String)>,
    most_tokens: usize,
    sampling: String,
}

/// What a request gave, and how long it took.
struct Given {
    output: Output,
    took: Duration,
}

/// Another generator, whose answers to requests for samples are kept in memory.
///
/// Sampling is keyed by (seed, sequence, position, token), so the first `K` of `N` samples are those that a request
/// for `K` gives: a request for no more samples than an equal one had before is answered from memory. Its cost is
/// that of the samples when they were drawn, in proportion to the tokens written.
pub struct RememberingGenerator<G> {
    inner: G,
    known: Mutex<HashMap<Asked, Given>>,
    saved: Mutex<Duration>,
}

impl<G: Generator> RememberingGenerator<G> {
    /// A generator that remembers what `inner` gives. It must give the same samples for the same request, as
    /// [`LocalGenerator`](super::LocalGenerator) does and a server need not.
    pub fn new(inner: G) -> Self {
        Self {
            inner,
            known: Mutex::default(),
            saved: Mutex::default(),
        }
    }

    /// Time that was saved since this was last called: what the remembered samples took when they were drawn.
    /// Where fewer are asked for than were drawn together, the time of all, which is an upper bound.
    pub fn take_saved(&self) -> Duration {
        std::mem::take(&mut *self.saved.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn remembered(&self, asked: &Asked, samples: usize) -> Option<Output> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let given = known.get(asked)?;
        let written = given.output.written.get(..samples)?.to_vec();
        let tokens = |written: &[super::Written]| written.iter().map(|one| one.tokens as u64).sum();
        let (all, some): (u64, u64) = (tokens(&given.output.written), tokens(&written));
        let part = |cost: u64| (cost * some).checked_div(all).unwrap_or(cost);
        let cost = given.output.cost;
        *self.saved.lock().unwrap_or_else(PoisonError::into_inner) += given.took;
        let prompt = given.output.prompt_tokens as u64;
        Some(Output {
            prompt_tokens: given.output.prompt_tokens,
            cost: Cost {
                passes: cost.passes,
                evaluated: prompt.min(cost.evaluated) + part(cost.evaluated.saturating_sub(prompt)),
                written: part(cost.written),
            },
            written,
        })
    }
}

impl<G: Generator> Generator for RememberingGenerator<G> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn context_length(&self) -> Option<usize> {
        self.inner.context_length()
    }

    fn count_tokens(&self, text: &str) -> usize {
        self.inner.count_tokens(text)
    }

    fn generate(
        &self,
        request: &Request<'_>,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Output, GeneratorError> {
        let asked = Asked {
            messages: request
                .messages
                .iter()
                .map(|message| (message.role.clone(), message.content.clone()))
                .collect(),
            most_tokens: request.most_tokens,
            sampling: serde_json::to_string(&request.sampling).unwrap_or_default(),
        };
        if let Some(output) = self.remembered(&asked, request.samples) {
            if let [only] = &output.written[..] {
                on_text(&only.text);
            }
            return Ok(output);
        }
        let began = Instant::now();
        let output = self.inner.generate(request, on_text)?;
        let given = Given {
            output: output.clone(),
            took: began.elapsed(),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(asked, given);
        Ok(output)
    }

    fn choose(
        &self,
        messages: &[Message],
        labels: &[&str],
    ) -> Result<(Option<usize>, Output), GeneratorError> {
        self.inner.choose(messages, labels)
    }
}

#[cfg(test)]
mod tests {
    use models::sampling::Sampling;

    use super::super::Written;
    use super::*;

    /// Counts its calls and writes the number of each sample.
    struct Numbers(Mutex<usize>);

    impl Generator for Numbers {
        fn name(&self) -> &str {
            "numbers"
        }

        fn context_length(&self) -> Option<usize> {
            None
        }

        fn count_tokens(&self, text: &str) -> usize {
            text.len()
        }

        fn generate(
            &self,
            request: &Request<'_>,
            _on_text: &mut dyn FnMut(&str),
        ) -> Result<Output, GeneratorError> {
            *self.0.lock().unwrap() += 1;
            let write = |number: usize| Written {
                text: number.to_string(),
                tokens: 2,
                ended: true,
            };
            Ok(Output {
                written: (0..request.samples).map(write).collect(),
                prompt_tokens: 10,
                cost: Cost {
                    passes: 3,
                    evaluated: 10 + 2 * request.samples as u64,
                    written: 2 * request.samples as u64,
                },
            })
        }

        fn choose(
            &self,
            _messages: &[Message],
            _labels: &[&str],
        ) -> Result<(Option<usize>, Output), GeneratorError> {
            Ok((None, Output::default()))
        }
    }

    #[test]
    fn fewer_samples_of_the_same_request_come_from_memory() {
        let numbers = RememberingGenerator::new(Numbers(Mutex::new(0)));
        let messages = [Message::new("user", "a")];
        let ask = |messages: &[Message], samples, seed| {
            let sampling = Sampling {
                seed,
                ..Sampling::default()
            };
            let request = Request {
                messages,
                most_tokens: 5,
                sampling,
                samples,
            };
            numbers.generate(&request, &mut |_| {}).unwrap()
        };
        let calls = || *numbers.inner.0.lock().unwrap();
        let four = ask(&messages, 4, 1);
        let two = ask(&messages, 2, 1);
        assert_eq!(calls(), 1);
        assert_eq!(two.written, four.written[..2]);
        assert_eq!((two.cost.evaluated, two.cost.written), (14, 4));
        assert_eq!(ask(&messages, 4, 1), four);
        assert_eq!(calls(), 1);
        // More samples, another seed, other messages: drawn anew.
        assert_eq!(ask(&messages, 5, 1).written.len(), 5);
        ask(&messages, 4, 2);
        ask(&[Message::new("user", "b")], 4, 1);
        assert_eq!(calls(), 4);
        numbers.take_saved();
        assert_eq!(numbers.take_saved(), Duration::ZERO);
    }
}
