//! Running methods over question sets, question by question.

use std::time::Instant;

use corpus_tools::Index;
use corpus_tools::questions::{Question, sample};
use models::language_model::LanguageModel;
use serde_json::Value;

use super::dense::Dense;
use super::folder::{Folder, Trace};
use super::method::Kind;
use super::passages::{Passages, Sizes};
use super::retrievers::Retrievers;
use super::{EvaluationError, Method, reader};
use crate::engine::Engine;
use crate::scorer::WindowScorer;
use crate::session::Cost;
use crate::settings::WindowScorerKind;

/// What happens in a run, for whoever shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A method begins with a set.
    Begins {
        /// The set.
        set: &'a str,
        /// The method.
        method: &'a str,
        /// Questions that were asked in an earlier run.
        done: usize,
        /// Questions in all.
        questions: usize,
    },
    /// A question was asked.
    Asked,
    /// The method is through with the set.
    Ends,
}

/// What methods stand on.
pub struct Evaluation<'a> {
    /// The index.
    pub index: &'a Index,
    /// The language model, for methods that need one.
    pub model: Option<&'a LanguageModel>,
    /// Engines over the two, one for each window scorer that a method's settings name.
    pub engines: &'a [(WindowScorerKind, Engine<'a>)],
    /// The window scorer of `bm25-rerank` and of the cut.
    pub scorer: &'a dyn WindowScorer,
    /// The embeddings of all documents, for methods that need them.
    pub dense: Option<&'a Dense<'a>>,
    /// How many documents a passage retriever retrieves.
    pub depth: usize,
    /// Sizes of what is judged.
    pub sizes: Sizes,
    /// Asked between questions, and by the engine between steps.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// Which questions of a set are asked.
#[derive(Debug, Clone, Copy)]
pub struct Drawn<'a> {
    /// The set's name.
    pub set: &'a str,
    /// Its questions.
    pub questions: &'a [Question],
    /// How many are drawn; `None`: all.
    pub limit: Option<usize>,
    /// The seed they are drawn with.
    pub seed: u64,
}

impl Evaluation<'_> {
    /// Runs `methods` over the drawn questions of a set, in the order of the sample. What the folder holds
    /// is not asked again.
    ///
    /// # Errors
    /// A method fails, the folder cannot be written, or the run was interrupted; what was asked stays.
    pub fn run(
        &self,
        drawn: Drawn<'_>,
        methods: &[Method],
        folder: &Folder,
        progress: &dyn Fn(Progress<'_>),
    ) -> Result<(), EvaluationError> {
        let passages = Passages::new(self.index, self.scorer, self.sizes)?;
        let questions = sample(drawn.questions, drawn.limit, drawn.seed);
        for method in methods {
            let mut file = folder.open_traces(drawn.set, &method.name)?;
            let left: Vec<&&Question> = questions
                .iter()
                .filter(|question| !file.holds(&question.id))
                .collect();
            progress(Progress::Begins {
                set: drawn.set,
                method: &method.name,
                done: questions.len() - left.len(),
                questions: questions.len(),
            });
            for question in left {
                if (self.interrupted)() {
                    return Err(EvaluationError::Interrupted);
                }
                file.append(&self.ask(question, method, &passages)?)?;
                progress(Progress::Asked);
            }
            progress(Progress::Ends);
        }
        Ok(())
    }

    fn ask(
        &self,
        question: &Question,
        method: &Method,
        passages: &Passages<'_>,
    ) -> Result<Trace, EvaluationError> {
        let text = &question.question;
        let lacks = |what| EvaluationError::Lacks {
            name: method.name.clone(),
            what,
        };
        let answers = method.settings.answer.most_tokens > 0;
        let began = Instant::now();
        if matches!(method.kind, Kind::Engine | Kind::NaiveBeam) {
            let wanted = method.settings.windows.scorer;
            let engine = self.engines.iter().find(|(scorer, _)| *scorer == wanted);
            let (_, engine) = engine.ok_or_else(|| lacks("a language model"))?;
            let answer = match method.kind {
                Kind::NaiveBeam => engine.naive_beams(text, &method.settings)?,
                _ => engine.ask(text, &method.settings)?,
            };
            let milliseconds = began.elapsed().as_secs_f64() * 1e3;
            let mut detail = serde_json::to_value(&answer.trace).unwrap_or_default();
            if let Value::Object(fields) = &mut detail {
                // They stand in the plan, once for all questions.
                fields.shift_remove("settings");
                fields.shift_remove("model");
            }
            return Ok(Trace {
                question: question.clone(),
                retrieved: answer
                    .evidence
                    .into_iter()
                    .map(|citation| passages.evidence(citation))
                    .collect(),
                answer: answers.then_some(answer.answer),
                cost: answer.trace.cost,
                milliseconds,
                detail,
            });
        }
        let retrievers = Retrievers {
            index: self.index,
            scorer: self.scorer,
            passages,
            dense: self.dense,
        };
        let ranked = retrievers.rank(method.kind, text, self.depth)?;
        let mut retrieved = ranked
            .iter()
            .map(|&(document, score)| passages.passage(text, document, score))
            .collect::<Result<Vec<_>, _>>()?;
        let (answer, cost) = if answers {
            let model = self.model.ok_or_else(|| lacks("a language model"))?;
            let (answer, cost) = reader::read(model, text, &retrieved, &method.settings.answer)?;
            (Some(answer), cost)
        } else {
            (None, Cost::default())
        };
        let milliseconds = began.elapsed().as_secs_f64() * 1e3;
        let documents: Vec<_> = ranked.iter().map(|&(document, _)| document).collect();
        passages.cut(text, &documents, &mut retrieved)?;
        Ok(Trace {
            question: question.clone(),
            retrieved,
            answer,
            cost,
            milliseconds,
            detail: Value::Null,
        })
    }
}
