//! Many questions from a file, answered one after another into a file that can be gone on with.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
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

/// One line of the output.
#[derive(Debug, Serialize)]
struct Answered<A> {
    id: String,
    #[serde(flatten)]
    answer: A,
}

/// The line of a question that could not be asked.
#[derive(Debug, Serialize)]
struct Failed<'q> {
    id: &'q str,
    question: &'q str,
    failed: String,
}

/// What a line that was written before is known by; one of a question that failed has no trace.
#[derive(Debug, Deserialize)]
struct Before {
    id: String,
    trace: Option<BeforeTrace>,
    failed: Option<String>,
}

#[derive(Debug, Deserialize)]
struct BeforeTrace {
    model: String,
    settings: Value,
}

/// Questions that are left to ask, and the file the answers go to.
#[derive(Debug)]
pub struct Batch {
    questions: Vec<Question>,
    done: usize,
    /// Model and settings of the answers that are there already.
    before: Option<(String, Value)>,
    out: File,
    path: PathBuf,
}

impl Batch {
    /// Reads the questions and what was answered before. A last line that was not written to its end is
    /// cut off.
    ///
    /// # Errors
    /// A file cannot be read or written; a line is no question or no answer, by its number.
    pub fn open(questions: &Path, out: &Path) -> anyhow::Result<Self> {
        let questions = read_questions(questions)?;
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
            match (answered.trace, answered.failed) {
                (Some(trace), _) => _ = before.get_or_insert((trace.model, trace.settings)),
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
        let settings: Value = serde_json::from_str(&serde_json::to_string(settings)?)?;
        if let Some((model, earlier)) = &self.before
            && (model != model_name || *earlier != settings)
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
                    id: question.id.clone(),
                    answer,
                })?,
                Err(error) if is_of_question(&error) => {
                    failed += 1;
                    terminal::say(&format!("question {}: {error}", question.id));
                    serde_json::to_vec(&Failed {
                        id: &question.id,
                        question: &question.question,
                        failed: error.to_string(),
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
