//! Running methods over question sets, question by question.

use std::sync::Arc;
use std::time::Instant;

use corpus_tools::questions::{Question, sample};
use corpus_tools::{Citation, Index};
use fmindex::{DocumentIndex, DocumentSet};
use models::language_model::LanguageModel;
use serde_json::Value;

use super::folder::{Folder, Trace};
use super::method::Kind;
use super::passages::{Passages, Retrieved, Sizes};
use super::retrievers::Retrievers;
use super::{EvaluationError, Method, reader};
use crate::active::{self, Active, EngineRetriever, PassageRetriever};
use crate::chunks::LongDocument;
use crate::engine::Engine;
use crate::forward_backward::Reader;
use crate::generator::{Generator, LocalGenerator, RememberingGenerator};
use crate::scorer::{EmbeddingScorer, TextBm25Scorer, WindowScorer};
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

/// An engine with the window scorer, and the scorer of pieces, that a method's settings name.
pub struct EngineFor<'a> {
    /// Its window scorer.
    pub scorer: WindowScorerKind,
    /// What scores pieces for its reranker, if not the window scorer.
    pub other: Option<WindowScorerKind>,
    /// The engine.
    pub engine: Engine<'a>,
}

/// Who writes answers about long texts, and who samples for them.
type Readers<'a> = (
    &'a dyn Generator,
    &'a RememberingGenerator<&'a dyn Generator>,
);

/// What methods stand on.
pub struct Evaluation<'a> {
    /// The index.
    pub index: &'a Index,
    /// The language model, for methods that need one.
    pub model: Option<&'a LanguageModel>,
    /// Engines over the two, as the methods need them.
    pub engines: &'a [EngineFor<'a>],
    /// Who writes the answers, where it is not the model.
    pub generator: Option<&'a dyn Generator>,
    /// Who samples outputs, where it is not the model.
    pub light: Option<&'a dyn Generator>,
    /// The scorers that methods name, and that of passages.
    pub scorers: &'a [(WindowScorerKind, Box<dyn WindowScorer + 'a>)],
    /// Which of them finds the best windows of passages, where any are looked for.
    pub passage_scorer: Option<WindowScorerKind>,
    /// A scorer with the vectors of all documents, for methods that need them.
    pub dense: Option<&'a EmbeddingScorer>,
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
    /// is not asked again. Nothing is remembered from one method to the next, so that their times do not depend on
    /// their order.
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
        let passage_scorer = self.passage_scorer.map(|kind| self.scorer(kind));
        let passages = Passages::new(self.index, passage_scorer.transpose()?, self.sizes)?;
        let questions = sample(drawn.questions, drawn.limit, drawn.seed);
        let own = self
            .model
            .map(|model| LocalGenerator::new(model, self.interrupted));
        let own = own.as_ref().map(|own| own as &dyn Generator);
        let generator = self.generator.or(own);
        // Methods that differ only in how samples are used share them. Where nothing is sampled no model may be open;
        // the light model then writes nothing.
        let light = self.light.or(own).or(generator);
        let light = light.map(RememberingGenerator::new);
        let readers = generator.zip(light.as_ref());
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
            self.forget();
            for question in left {
                passages.forget();
                if let Some(own) = own {
                    own.forget();
                }
                if (self.interrupted)() {
                    return Err(EvaluationError::Interrupted);
                }
                let trace = match self.ask(question, method, &passages, readers) {
                    Err(error) if error.is_of_question() => failed(question, method, &error),
                    asked => asked?,
                };
                file.append(&trace)?;
                progress(Progress::Asked);
            }
            progress(Progress::Ends);
        }
        Ok(())
    }

    fn scorer(&self, kind: WindowScorerKind) -> Result<&dyn WindowScorer, EvaluationError> {
        let found = self.scorers.iter().find(|(other, _)| *other == kind);
        let found = found.map(|(_, scorer)| scorer.as_ref() as &dyn WindowScorer);
        found.ok_or_else(|| EvaluationError::Lacks {
            name: format!("{kind:?}"),
            what: "a window scorer",
        })
    }

    /// Makes scorers and generators forget what they keep to be faster the next time.
    fn forget(&self) {
        for (_, scorer) in self.scorers {
            scorer.forget();
        }
        if let Some(dense) = self.dense {
            dense.forget();
        }
        for one in self.engines {
            one.engine.forget();
        }
        for generator in [self.generator, self.light].into_iter().flatten() {
            generator.forget();
        }
    }

    fn ask(
        &self,
        question: &Question,
        method: &Method,
        passages: &Passages<'_>,
        readers: Option<Readers<'_>>,
    ) -> Result<Trace, EvaluationError> {
        match method.kind {
            Kind::Engine | Kind::NaiveBeam => self.ask_engine(question, method, passages),
            Kind::Prefixes => self.ask_prefixes(question, method),
            Kind::Active | Kind::ActiveBm25 => self.ask_active(question, method, passages),
            Kind::Read => {
                let readers = readers.ok_or_else(|| lacks(method, "a language model"))?;
                self.ask_reader(question, method, passages, readers)
            }
            _ => self.ask_retriever(question, method, passages),
        }
    }

    /// Lets the engines read what stands in front of every question, so that no question waits for it.
    ///
    /// # Errors
    /// The model cannot write its stages as a method's settings ask for, or fails.
    pub fn prepare(&self, methods: &[Method]) -> Result<(), EvaluationError> {
        for method in methods.iter().filter(|method| method.needs_engine()) {
            self.engine(method)?.prepare(&method.settings)?;
        }
        Ok(())
    }

    fn engine(&self, method: &Method) -> Result<&Engine<'_>, EvaluationError> {
        let wanted = (method.scorer(), method.other_scorer());
        let found = self
            .engines
            .iter()
            .find(|one| (Some(one.scorer), one.other) == wanted);
        let found = found.ok_or_else(|| lacks(method, "a language model"))?;
        Ok(&found.engine)
    }

    fn model(&self, method: &Method) -> Result<&LanguageModel, EvaluationError> {
        self.model.ok_or_else(|| lacks(method, "a language model"))
    }

    fn ask_engine(
        &self,
        question: &Question,
        method: &Method,
        passages: &Passages<'_>,
    ) -> Result<Trace, EvaluationError> {
        let (engine, text) = (self.engine(method)?, &question.question);
        let began = Instant::now();
        let answer = match method.kind {
            Kind::NaiveBeam => engine.naive_beams(text, &method.settings)?,
            _ => engine.ask(text, &method.settings)?,
        };
        let milliseconds = began.elapsed().as_secs_f64() * 1e3;
        Ok(Trace {
            detail: detail(&answer.trace),
            retrieved: evidence(passages, answer.evidence),
            answer: method.answers().then_some(answer.answer),
            cost: answer.trace.cost,
            ..empty(question, milliseconds)
        })
    }

    fn ask_prefixes(&self, question: &Question, method: &Method) -> Result<Trace, EvaluationError> {
        let fm = self.index.fm();
        let mut gold = Vec::new();
        for id in question.gold_ids() {
            if let Some((document, _)) = self.index.find_external_id(id)? {
                let tokens = fm.extract(document, 0..fm.document_length(document));
                gold.push(Arc::new(DocumentIndex::build(&tokens, fm.separator())));
            }
        }
        let engine = self.engine(method)?;
        let gold = DocumentSet::new(gold);
        let began = Instant::now();
        let (prefixes, cost) = engine.prefixes(&question.question, &method.settings, &gold)?;
        let milliseconds = began.elapsed().as_secs_f64() * 1e3;
        Ok(Trace {
            cost,
            detail: serde_json::json!({ "prefixes": prefixes }),
            ..empty(question, milliseconds)
        })
    }

    fn ask_active(
        &self,
        question: &Question,
        method: &Method,
        passages: &Passages<'_>,
    ) -> Result<Trace, EvaluationError> {
        let model = self.model(method)?;
        let engine;
        let bm25;
        let retriever: &dyn active::Retriever = if method.kind == Kind::Active {
            engine = EngineRetriever::new(self.engine(method)?, method.settings.clone());
            &engine
        } else {
            bm25 = PassageRetriever::new(self.index, model.tokenizer());
            &bm25
        };
        let began = Instant::now();
        let answer = Active::new(model, retriever, self.interrupted).answer(
            &question.question,
            &method.active,
            &mut |_, _| {},
        )?;
        let milliseconds = began.elapsed().as_secs_f64() * 1e3;
        let mut detail = detail(&answer.trace);
        if let Value::Object(fields) = &mut detail {
            let sentences = serde_json::to_value(&answer.sentences).unwrap_or_default();
            fields.insert("sentences".to_owned(), sentences);
        }
        Ok(Trace {
            retrieved: evidence(passages, answer.evidence),
            answer: Some(answer.answer),
            cost: answer.trace.cost,
            detail,
            ..empty(question, milliseconds)
        })
    }

    fn ask_reader(
        &self,
        question: &Question,
        method: &Method,
        passages: &Passages<'_>,
        (generator, light): Readers<'_>,
    ) -> Result<Trace, EvaluationError> {
        let documents = self.own_documents(question)?;
        let own_terms = TextBm25Scorer::new(self.index.lexical().analyser());
        let kind = method.forward.relevance;
        let relevance: &dyn WindowScorer = match kind {
            // The other texts of the index say nothing about the words of this one.
            WindowScorerKind::Bm25 => &own_terms,
            _ => self.scorer(kind)?,
        };
        let reader = Reader {
            relevance,
            light,
            generator,
        };
        light.take_saved();
        let began = Instant::now();
        let text = &question.question;
        let mut answer = reader.read(&documents, text, &[], &method.forward, &mut |_| {})?;
        // Samples that an earlier method drew count with the time that they took.
        let took = began.elapsed() + light.take_saved();
        let milliseconds = took.as_secs_f64() * 1e3;
        answer.passages.sort_by_key(|passage| passage.rank);
        let mut cost = answer.trace.light_cost;
        cost += answer.trace.cost;
        let chosen = answer.passages.into_iter().map(|passage| passage.citation);
        Ok(Trace {
            retrieved: evidence(passages, chosen),
            answer: method.answers().then_some(answer.answer),
            cost,
            detail: detail(&answer.trace),
            ..empty(question, milliseconds)
        })
    }

    /// The question's gold documents, whole.
    fn own_documents(&self, question: &Question) -> Result<Vec<LongDocument>, EvaluationError> {
        let mut documents: Vec<LongDocument> = Vec::new();
        for id in question.gold_ids() {
            let Some((document, _)) = self.index.find_external_id(id)? else {
                continue;
            };
            let stored = self.index.document(document)?;
            if documents.iter().all(|other| other.id != stored.id) {
                documents.push(LongDocument {
                    id: stored.id.to_owned(),
                    title: stored.title.to_owned(),
                    text: stored.text.into_owned(),
                });
            }
        }
        Ok(documents)
    }

    fn ask_retriever(
        &self,
        question: &Question,
        method: &Method,
        passages: &Passages<'_>,
    ) -> Result<Trace, EvaluationError> {
        let text = &question.question;
        let began = Instant::now();
        let retrievers = Retrievers {
            index: self.index,
            scorer: method.scorer().map(|kind| self.scorer(kind)).transpose()?,
            passages,
            dense: self.dense,
        };
        let ranked = retrievers.rank(method.kind, text, self.depth)?;
        let mut found = ranked
            .iter()
            .map(|&(document, score)| passages.passage(text, document, score))
            .collect::<Result<Vec<_>, _>>()?;
        let (mut answer, mut cost, mut detail) = (None, Cost::default(), Value::Null);
        if method.answers() {
            let read: Vec<Retrieved> = found.iter().map(|one| one.retrieved.clone()).collect();
            let settings = &method.settings.answer;
            let written;
            (written, cost) = match self.generator {
                Some(generator) => {
                    detail = serde_json::json!({"generator": generator.name()});
                    reader::ask(generator, text, &read, settings)?
                }
                None => reader::read(self.model(method)?, text, &read, settings)?,
            };
            answer = Some(written);
        }
        let milliseconds = began.elapsed().as_secs_f64() * 1e3;
        passages.cut(text, &mut found)?;
        Ok(Trace {
            retrieved: found.into_iter().map(|one| one.retrieved).collect(),
            answer,
            cost,
            detail,
            ..empty(question, milliseconds)
        })
    }
}

fn lacks(method: &Method, what: &'static str) -> EvaluationError {
    EvaluationError::Lacks {
        name: method.name.clone(),
        what,
    }
}

fn evidence(
    passages: &Passages<'_>,
    citations: impl IntoIterator<Item = Citation>,
) -> Vec<Retrieved> {
    citations
        .into_iter()
        .map(|citation| passages.evidence(citation))
        .collect()
}

/// A method's own trace without what the plan holds once for all questions.
fn detail(trace: &impl serde::Serialize) -> Value {
    let mut detail = serde_json::to_value(trace).unwrap_or_default();
    if let Value::Object(fields) = &mut detail {
        fields.shift_remove("settings");
        fields.shift_remove("model");
    }
    detail
}

fn empty(question: &Question, milliseconds: f64) -> Trace {
    Trace {
        question: question.clone(),
        retrieved: Vec::new(),
        answer: None,
        cost: Cost::default(),
        failed: None,
        milliseconds,
        detail: Value::Null,
    }
}

/// A question that could not be asked: nothing retrieved, nothing answered.
fn failed(question: &Question, method: &Method, error: &EvaluationError) -> Trace {
    Trace {
        answer: method.answers().then(String::new),
        failed: Some(error.to_string()),
        ..empty(question, 0.0)
    }
}
