//! Many questions from a file, answered one after another into a file that can be gone on with.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use corpus_tools::questions::{self, Question};
use corpus_tools::reader::Input;
use decoder::active::ActiveError;
use decoder::{Engine, EngineError, Settings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Outcome, interrupt, terminal};

/// What answers are asked with beside the model and the settings, which every trace holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskedWith {
    /// Checksum of the index's manifest.
    pub index: String,
    /// The cross-encoder of the window scorer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scorer_model: Option<String>,
    /// The sparse model that expands questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expand: Option<String>,
    /// Who writes the answers, if not the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<String>,
    /// Who samples for the reranker, if not the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub light_model: Option<String>,
    /// Where active retrieval looks things up, with the settings of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retriever: Option<Value>,
}

impl AskedWith {
    /// What of it is another one in `other`, in words.
    fn difference(&self, other: &Self) -> Option<String> {
        let named = |what: &str, name: &Option<String>| match name {
            Some(name) => format!("another {what} ({name})"),
            None => format!("no {what} of its own"),
        };
        if self.index != other.index {
            return Some("another index, or before the index was changed".to_owned());
        }
        for (what, one, two) in [
            ("scorer model", &self.scorer_model, &other.scorer_model),
            ("expansion", &self.expand, &other.expand),
            ("generator", &self.generator, &other.generator),
            ("light model", &self.light_model, &other.light_model),
        ] {
            if one != two {
                return Some(named(what, one));
            }
        }
        (self.retriever != other.retriever)
            .then(|| "another retriever, or other settings of it".to_owned())
    }
}

/// One line of the output.
#[derive(Debug, Serialize)]
struct Answered<'a, A> {
    id: &'a str,
    #[serde(flatten)]
    answer: A,
    asked_with: &'a AskedWith,
}

/// The line of a question that could not be asked.
#[derive(Debug, Serialize)]
struct Failed<'a> {
    id: &'a str,
    question: &'a str,
    failed: String,
    trace: TraceHead,
    asked_with: &'a AskedWith,
}

/// What a line that was written before is known by. Older lines of questions that failed have no trace, and no older
/// line says what it was asked with.
#[derive(Debug, Deserialize)]
struct Before {
    id: String,
    question: Option<String>,
    trace: Option<TraceHead>,
    failed: Option<String>,
    asked_with: Option<AskedWith>,
}

/// The part of a trace that all answers of a file have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TraceHead {
    model: String,
    settings: Value,
}

/// Questions that are left to ask, and the file the answers go to.
#[derive(Debug)]
pub struct Batch {
    questions: Vec<Question>,
    done: usize,
    /// Model and settings of the answers that are there already.
    before: Option<TraceHead>,
    asked_with: AskedWith,
    /// Locked until it is closed: one program writes it at a time.
    out: File,
    path: PathBuf,
}

impl Batch {
    /// Reads the questions and what was answered before, which must have been asked with the same. A last line that
    /// was not written to its end is cut off.
    ///
    /// # Errors
    /// A file cannot be read or written, or another program writes it; a line is no question, no answer, or the
    /// answer to another question or by other means, by its number.
    pub fn open(questions: &Path, out: &Path, asked_with: AskedWith) -> anyhow::Result<Self> {
        let questions = read_questions(questions)?;
        let known: HashMap<&str, &str> = questions
            .iter()
            .map(|question| (question.id.as_str(), question.question.as_str()))
            .collect();
        let shown = out.display();
        // A device or a pipe could be read for ever.
        if std::fs::metadata(out).is_ok_and(|found| !found.is_file()) {
            bail!("{shown}: not a regular file; name another file with --out");
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(out)
            .with_context(|| format!("{shown}: cannot open the file for the answers"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "{shown}: another program is writing its answers there; wait for it to end, or name another file with --out"
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("{shown}: cannot lock the file"));
            }
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)
            .with_context(|| format!("{shown}: cannot read"))?;
        let whole = text
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let mut seen = HashSet::new();
        let mut before = None;
        for (number, line) in text[..whole].split(|&byte| byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let answered: Before = serde_json::from_slice(line).with_context(|| {
                format!(
                    "{shown}:{}: not an answer of this program; name another file with --out",
                    number + 1
                )
            })?;
            if let Some(before) = &answered.asked_with
                && let Some(what) = before.difference(&asked_with)
            {
                bail!(
                    "{shown}:{}: was asked with {what}; use the same again, or name another file with --out",
                    number + 1
                );
            }
            if let (Some(now), Some(before)) = (known.get(answered.id.as_str()), &answered.question)
                && now != before
            {
                bail!(
                    "{shown}:{}: answers another question of the id {:?}; use the same questions again, or name another file with --out",
                    number + 1,
                    answered.id
                );
            }
            match (answered.trace, answered.failed) {
                (Some(trace), _) => _ = before.get_or_insert(trace),
                (None, Some(_)) => {}
                (None, None) => bail!(
                    "{shown}:{}: not an answer of this program; name another file with --out",
                    number + 1
                ),
            }
            seen.insert(answered.id);
        }
        // Only a line that this program began is cut off, never a foreign file.
        let foreign = seen.is_empty() && !text.is_empty() && !text.starts_with(b"{\"id\":");
        if foreign {
            bail!(
                "{shown}: holds something that is no answer of this program; name another file with --out"
            );
        }
        file.set_len(whole as u64)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .with_context(|| format!("{shown}: cannot cut the unfinished line off"))?;
        let done = questions
            .iter()
            .filter(|question| seen.contains(&question.id))
            .count();
        let questions = questions
            .into_iter()
            .filter(|question| !seen.contains(&question.id))
            .collect();
        Ok(Self {
            questions,
            done,
            before,
            asked_with,
            out: file,
            path: out.to_owned(),
        })
    }

    /// Asks what is left; a line is written and flushed for every answer.
    ///
    /// # Errors
    /// The engine fails, or the file cannot be written. What was answered stays.
    pub fn run(self, engine: &Engine<'_>, settings: &Settings) -> anyhow::Result<Outcome> {
        self.run_with(engine.model_name(), settings, |question| {
            Ok(engine.ask(question, settings)?)
        })
    }

    /// As [`Batch::run`], for any kind of answer that has a trace with `model` and `settings`.
    ///
    /// # Errors
    /// `ask` fails, or the file cannot be written. What was answered stays.
    pub fn run_with<A: Serialize>(
        mut self,
        model_name: &str,
        settings: &impl Serialize,
        ask: impl Fn(&str) -> anyhow::Result<A>,
    ) -> anyhow::Result<Outcome> {
        let shown = self.path.display();
        // As it is written and read again, so that equal settings are equal.
        let trace = TraceHead {
            model: model_name.to_owned(),
            settings: serde_json::from_str(&serde_json::to_string(settings)?)?,
        };
        if let Some(TraceHead { model, settings }) = &self.before
            && (*model != trace.model || *settings != trace.settings)
        {
            bail!(
                "{shown}: was begun with another model or other settings ({model}); use those again, or name another file with --out"
            );
        }
        if self.done > 0 {
            terminal::say(&format!(
                "{shown}: {} answers are there, {} to go",
                self.done,
                self.questions.len()
            ));
        }
        let bar = terminal::bar("questions", self.questions.len() as u64, false);
        let mut failed = 0;
        for question in &self.questions {
            if interrupt::interrupted() {
                bail!("interrupted; the same command goes on with what is left");
            }
            let mut line = match ask(&question.question) {
                Ok(answer) => serde_json::to_vec(&Answered {
                    id: &question.id,
                    answer,
                    asked_with: &self.asked_with,
                })?,
                Err(error) if is_of_question(&error) => {
                    failed += 1;
                    terminal::say(&format!("question {}: {error}", question.id));
                    serde_json::to_vec(&Failed {
                        id: &question.id,
                        question: &question.question,
                        failed: error.to_string(),
                        trace: trace.clone(),
                        asked_with: &self.asked_with,
                    })?
                }
                Err(error) => return Err(error),
            };
            line.push(b'\n');
            self.out
                .write_all(&line)
                .and_then(|()| self.out.flush())
                .with_context(|| format!("{shown}: cannot write"))?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        terminal::say(&format!(
            "{shown}: {} answers",
            self.done + self.questions.len() - failed
        ));
        if failed > 0 {
            terminal::say(&format!("{shown}: {failed} questions could not be asked"));
            return Ok(Outcome::NothingFound);
        }
        Ok(Outcome::Done)
    }
}

/// Whether a question is to blame for an error, and the next may well be answered.
fn is_of_question(error: &anyhow::Error) -> bool {
    let engine = error.downcast_ref::<EngineError>();
    let active = error.downcast_ref::<ActiveError>();
    engine.is_some_and(EngineError::is_of_question)
        || active.is_some_and(ActiveError::is_of_question)
}

/// Reads a question set of any known format; a bad record is refused, since nobody would miss its answer.
///
/// # Errors
/// The file cannot be read or is no question set, or a record is bad.
pub fn read_questions(path: &Path) -> anyhow::Result<Vec<Question>> {
    let set = questions::read(&Input::named(path))?;
    if let Some(bad) = set.bad.first() {
        bail!("{bad}");
    }
    Ok(set.questions)
}
