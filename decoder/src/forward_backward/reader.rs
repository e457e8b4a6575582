//! Reading texts that were never indexed: recall, precision, generation, and the baselines beside them.

use std::time::Instant;

use corpus_tools::Citation;
use serde::{Deserialize, Serialize};

use super::citations;
use super::prompt::{self, Asked, LABELS, Style};
use super::samples::{self, Samples};
use super::score::{self, Score};
use super::settings::{ForwardSettings, Method, Task, Truncate};
use crate::chunks::{self, Chunk, LongDocument};
use crate::generator::{Generator, GeneratorError, Request};
use crate::scorer::{ScorerError, WindowScorer, WindowText};
use crate::session::Cost;

/// Why a text could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The question holds nothing.
    #[error("the question is empty")]
    EmptyQuestion,
    /// The texts hold no word.
    #[error("the documents hold no text")]
    EmptyDocuments,
    /// A multiple-choice question without choices, or with too many.
    #[error("a multiple-choice question needs 2 to {} choices; {given} were given", LABELS.len())]
    Choices {
        /// How many were given.
        given: usize,
    },
    /// The best passage alone is more than may be read.
    #[error(
        "the best passage takes {tokens} tokens of {model}, and at most {budget} are to be read: give a larger budget of tokens, fewer words a chunk, or a model with a larger window"
    )]
    LargePassage {
        /// The model that was to read it.
        model: String,
        /// What it takes.
        tokens: usize,
        /// What there is room for.
        budget: usize,
    },
    /// Chunks could not be scored.
    #[error(transparent)]
    Scorer(#[from] ScorerError),
    /// A generator failed.
    #[error(transparent)]
    Generator(#[from] GeneratorError),
}

impl ReadError {
    /// Whether this question or its texts are to blame, and the next may well be answered.
    pub fn is_of_question(&self) -> bool {
        match self {
            Self::Generator(error) => error.is_of_question(),
            Self::Scorer(_) | Self::Choices { .. } => false,
            Self::EmptyQuestion | Self::EmptyDocuments | Self::LargePassage { .. } => true,
        }
    }
}

/// A chunk in the ranking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkScore {
    /// Number of the chunk over all documents, in text order, from 0.
    pub chunk: usize,
    /// Where it stands.
    #[serde(flatten)]
    pub place: Chunk,
    /// Its scores.
    #[serde(flatten)]
    pub score: Score,
}

/// A passage that the generator was given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Passage {
    /// Its number in the prompt, from 1.
    pub number: usize,
    /// Its rank by score, from 1.
    pub rank: usize,
    /// Where it stands, with its text.
    #[serde(flatten)]
    pub citation: Citation,
}

/// Which context the answer came from, under Self-Route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// From the passages that were retrieved.
    Retrieved,
    /// From everything, since the generator said that the passages do not hold the answer.
    Full,
}

/// How an answer came about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadTrace {
    /// The light model, where one was asked.
    pub light_model: Option<String>,
    /// The generator.
    pub generator: String,
    /// The settings of the run.
    pub settings: ForwardSettings,
    /// The choices of a multiple-choice question.
    pub choices: Vec<String>,
    /// What the light model wrote.
    pub samples: Samples,
    /// All chunks, best first.
    pub ranking: Vec<ChunkScore>,
    /// Which context was answered from, under Self-Route.
    pub route: Option<Route>,
    /// Tokens of the passages that were cut out of the middle so that the rest fits.
    pub cut_tokens: usize,
    /// Tokens of the light model's prompt.
    pub light_prompt_tokens: usize,
    /// Tokens of the generator's prompt.
    pub prompt_tokens: usize,
    /// What the light model did.
    pub light_cost: Cost,
    /// What the generator did.
    pub cost: Cost,
    /// Milliseconds for ranking, samples, and answer.
    pub milliseconds: [f64; 3],
}

/// An answer from texts that were never indexed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadAnswer {
    /// The question.
    pub question: String,
    /// The answer; citations of passages that do not exist were dropped from it.
    pub answer: String,
    /// The passages that the answer cites, in its order.
    pub citations: Vec<Passage>,
    /// Numbers that the answer cited and no passage has.
    pub unknown_citations: Vec<String>,
    /// All passages that the generator was given, in its order.
    pub passages: Vec<Passage>,
    /// How the answer came about.
    pub trace: ReadTrace,
}

/// Answers questions about texts: a scorer of chunks, a light model, and a generator, each chosen by itself.
pub struct Reader<'a> {
    /// S: how well a chunk fits a text.
    pub relevance: &'a dyn WindowScorer,
    /// Samples outputs.
    pub light: &'a dyn Generator,
    /// Writes the answer.
    pub generator: &'a dyn Generator,
}

/// The passages that go into a prompt.
struct Context {
    /// Chunks in reading order.
    chunks: Vec<usize>,
    cut_tokens: usize,
}

impl Reader<'_> {
    /// Answers a question about `documents`. `on_text` is given the answer as it is written.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(
        &self,
        documents: &[LongDocument],
        question: &str,
        choices: &[String],
        settings: &ForwardSettings,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<ReadAnswer, ReadError> {
        if question.trim().is_empty() {
            return Err(ReadError::EmptyQuestion);
        }
        let right_number = (2..=LABELS.len()).contains(&choices.len());
        if settings.task == Task::Choice && !right_number {
            let given = choices.len();
            return Err(ReadError::Choices { given });
        }
        let chunks = chunks::chunk(documents, settings.chunk_words);
        if chunks.is_empty() {
            return Err(ReadError::EmptyDocuments);
        }
        let asked = Asked {
            question,
            task: settings.task,
            choices,
        };
        let mut clock = Instant::now();
        let mut lap = || {
            let elapsed = clock.elapsed().as_secs_f64() * 1e3;
            clock = Instant::now();
            elapsed
        };
        let texts: Vec<WindowText> = chunks
            .iter()
            .map(|chunk| WindowText {
                title: documents[chunk.document].title.clone(),
                text: chunk.text(documents).to_owned(),
            })
            .collect();
        let by_question = self.relevance.score(question, &texts)?;
        let ranked = lap();

        let of = |chunk: usize| chunks[chunk].document;
        let mut samples = Samples::default();
        let mut light_prompt_tokens = 0;
        let mut light_cost = Cost::default();
        let mut forward = Vec::new();
        let looks_forward = settings.method.looks_forward() && settings.samples > 0;
        if looks_forward {
            let looked = samples::look_forward(
                self.light,
                self.relevance,
                &asked,
                &texts,
                &by_question,
                of,
                &samples::Look {
                    prompt: settings.sample_prompt(),
                    most_tokens: settings
                        .answer_tokens
                        .saturating_add(settings.sample_tokens),
                    budget: settings.light_budget,
                    sampling: settings.sampling,
                    samples: settings.samples,
                },
            )?;
            samples = looked.samples;
            light_prompt_tokens = looked.output.prompt_tokens;
            light_cost = looked.output.cost;
            forward = looked.scores;
        }
        let scores = score::combine(
            &by_question,
            &forward,
            settings.weights(),
            settings.combination,
        );
        let ranking = score::ranking(&scores);
        let sampled = lap();

        let cite = settings.cite && settings.task != Task::Choice;
        let style = match settings.method {
            Method::SelfRoute => Style::AnswerOrNone,
            _ => Style::Answer { cite },
        };
        let room = samples::room(self.generator, &asked, style, settings.answer_tokens)?;
        let everything = || {
            let refusal = |total| {
                // All of the window but the room is question, template, and answer.
                let limit = self.generator.context_length().unwrap_or(room);
                let output = settings.answer_tokens;
                GeneratorError::WindowFull {
                    model: self.generator.name().to_owned(),
                    prompt: total + limit.saturating_sub(room).saturating_sub(output),
                    output,
                    limit,
                }
            };
            let tokens = texts
                .iter()
                .map(|text| samples::tokens_of(self.generator, text));
            whole(&tokens.collect::<Vec<_>>(), room, settings.truncate).map_err(refusal)
        };
        let mut context = if settings.method == Method::Full {
            everything()?
        } else {
            let budget = settings.budget.min(room);
            let mut chosen =
                samples::within_budget(self.generator, &texts, &ranking, budget, settings.chunks)?;
            if settings.method != Method::Vanilla {
                chosen = score::reading_order(&chosen, of);
            }
            Context {
                chunks: chosen,
                cut_tokens: 0,
            }
        };
        let mut trace = ReadTrace {
            light_model: looks_forward.then(|| self.light.name().to_owned()),
            generator: self.generator.name().to_owned(),
            settings: settings.clone(),
            choices: choices.to_vec(),
            samples,
            ranking: ranking
                .iter()
                .map(|&chunk| ChunkScore {
                    chunk,
                    place: chunks[chunk].clone(),
                    score: scores[chunk],
                })
                .collect(),
            route: None,
            cut_tokens: 0,
            light_prompt_tokens,
            prompt_tokens: 0,
            light_cost,
            cost: Cost::default(),
            milliseconds: [ranked, sampled, 0.0],
        };
        let mut answer = String::new();
        let mut asked_to_cite = style == Style::Answer { cite: true };
        if settings.answer_tokens > 0 {
            // What may be taken back is not shown before it is certain.
            let routes = settings.method == Method::SelfRoute;
            let mut quiet = |_: &str| {};
            let shown: &mut dyn FnMut(&str) = if routes { &mut quiet } else { on_text };
            answer = self.answer(&asked, style, &context, &texts, &mut trace, shown)?;
            if routes {
                let none = answer.to_lowercase().contains(prompt::UNANSWERABLE);
                trace.route = Some(if none { Route::Full } else { Route::Retrieved });
                if none {
                    context = everything()?;
                }
                // A choice that was described is made again, by its letter.
                if none || settings.task == Task::Choice {
                    let style = Style::Answer { cite };
                    asked_to_cite = cite;
                    answer = self.answer(&asked, style, &context, &texts, &mut trace, on_text)?;
                } else {
                    on_text(&answer);
                }
            }
        }
        trace.cut_tokens = context.cut_tokens;
        trace.milliseconds[2] = lap();

        let passages: Vec<Passage> = context
            .chunks
            .iter()
            .enumerate()
            .map(|(at, &chunk)| Passage {
                number: at + 1,
                rank: ranking
                    .iter()
                    .position(|&c| c == chunk)
                    .map_or(0, |r| r + 1),
                citation: chunks[chunk].citation(documents, scores[chunk].combined as f32),
            })
            .collect();
        let cited = match asked_to_cite {
            true => citations::resolve(&answer, |number| (1..=passages.len()).contains(&number)),
            // Numbers in brackets are the model's own words.
            false => citations::Cited {
                text: answer,
                ..citations::Cited::default()
            },
        };
        Ok(ReadAnswer {
            question: question.to_owned(),
            answer: cited.text,
            citations: cited
                .numbers
                .iter()
                .filter_map(|number| passages.get(number - 1).cloned())
                .collect(),
            unknown_citations: cited.unknown,
            passages,
            trace,
        })
    }

    /// One answer of the generator, its cost added to the trace.
    fn answer(
        &self,
        asked: &Asked<'_>,
        style: Style,
        context: &Context,
        texts: &[WindowText],
        trace: &mut ReadTrace,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<String, GeneratorError> {
        let messages = samples::messages(asked, style, &context.chunks, texts);
        let chooses = asked.task == Task::Choice && style != Style::AnswerOrNone;
        let (text, output) = if chooses {
            let labels = &LABELS[..asked.choices.len()];
            let (label, output) = self.generator.choose(&messages, labels)?;
            let text = label.map_or(String::new(), |label| labels[label].to_owned());
            on_text(&text);
            (text, output)
        } else {
            let mut output = self.generator.generate(
                &Request {
                    messages: &messages,
                    most_tokens: trace.settings.answer_tokens,
                    sampling: models::sampling::Sampling::greedy(),
                    samples: 1,
                },
                on_text,
            )?;
            let text = output.written.pop().map_or(String::new(), |w| w.text);
            (text, output)
        };
        trace.prompt_tokens += output.prompt_tokens;
        trace.cost += output.cost;
        Ok(text)
    }
}

/// Everything in text order; what does not fit is refused with the tokens of everything, or taken out of the
/// middle.
fn whole(tokens: &[usize], room: usize, truncate: Truncate) -> Result<Context, usize> {
    let total: usize = tokens.iter().sum();
    if total <= room {
        return Ok(Context {
            chunks: (0..tokens.len()).collect(),
            cut_tokens: 0,
        });
    }
    if truncate == Truncate::Refuse {
        return Err(total);
    }
    // From both ends in turn, so that as much of the beginning stays as of the end.
    let (mut head, mut tail) = (0, tokens.len());
    let (mut from_head, mut from_tail) = (0, 0);
    while head < tail {
        let front = from_head <= from_tail;
        let next = if front {
            tokens[head]
        } else {
            tokens[tail - 1]
        };
        if from_head + from_tail + next > room {
            break;
        }
        if front {
            from_head += next;
            head += 1;
        } else {
            from_tail += next;
            tail -= 1;
        }
    }
    Ok(Context {
        chunks: (0..head).chain(tail..tokens.len()).collect(),
        cut_tokens: total - from_head - from_tail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_cut_and_counted() {
        let tokens = [10, 20, 30, 40, 50];
        let all = whole(&tokens, 150, Truncate::Refuse).unwrap();
        assert_eq!((all.chunks, all.cut_tokens), (vec![0, 1, 2, 3, 4], 0));
        assert_eq!(whole(&tokens, 149, Truncate::Refuse).err(), Some(150));
        let cut = whole(&tokens, 100, Truncate::Middle).unwrap();
        assert_eq!((cut.chunks, cut.cut_tokens), (vec![0, 1, 4], 70));
        let nothing = whole(&tokens, 5, Truncate::Middle).unwrap();
        assert_eq!((nothing.chunks, nothing.cut_tokens), (vec![], 150));
        assert!(whole(&[], 5, Truncate::Refuse).unwrap().chunks.is_empty());
    }
}
