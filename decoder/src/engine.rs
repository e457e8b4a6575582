//! The engine: question → clues → candidates → windows → evidence → answer.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Instant;

use corpus_tools::{Citation, Index, IndexError};
use fmindex::{DocumentId, FileError};
use models::ModelError;
use models::chat::Message;
use models::encoder::SparseEncoder;
use models::language_model::{Cache, LanguageModel, Wanted};
use models::tokenizer::Tokenizer;

use crate::answer::{Answer, CandidateTrace, Milliseconds, Trace, WindowTrace};
use crate::candidates::CandidateMemory;
use crate::evidence::EvidenceWriter;
use crate::finish::{self, Answered, Helpers};
use crate::format::{Format, FormatError, Markers, Stage};
use crate::forward_backward::ReadError;
use crate::generator::GeneratorError;
use crate::prompt;
use crate::retrieval::{Hop, Rankings, Retriever, dense_scorer};
use crate::scorer::{self, ScorerError, WindowScorer, WindowText};
use crate::session::{ModelSource, Session};
use crate::settings::{AnswerPrompt, Settings};
use crate::stages::{self, StagedSession};
use crate::{sentences, spelling, windows};

/// Why a question could not be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model cannot write its stages in the form that the settings ask for.
    #[error("{model}: {reason}")]
    Format {
        /// The model's name.
        model: String,
        /// Why not.
        reason: FormatError,
    },
    /// The question holds nothing.
    #[error("the question is empty")]
    EmptyQuestion,
    /// A setting has a value that means nothing.
    #[error("{0}")]
    Settings(String),
    /// The language model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The window scorer failed.
    #[error(transparent)]
    Scorer(#[from] ScorerError),
    /// The index failed, or was built with another vocabulary than the model has.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The BM25 files of the index are damaged.
    #[error(transparent)]
    Lexical(#[from] FileError),
    /// The evidence could not be reranked.
    #[error(transparent)]
    Rerank(#[from] ReadError),
    /// The generator of the answer failed.
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl EngineError {
    /// Whether this question is to blame, as one that does not fit into the model's window, and the next may
    /// well be answered.
    pub fn is_of_question(&self) -> bool {
        match self {
            Self::EmptyQuestion | Self::Model(ModelError::ContextFull { .. }) => true,
            Self::Rerank(error) => error.is_of_question(),
            Self::Generator(error) => error.is_of_question(),
            _ => false,
        }
    }
}

/// Tokens that a line of the prompt may take beside a piece: its label and the title.
const LINE_TOKENS: usize = 64;

/// An index, a model and a window scorer that answer questions together.
pub struct Engine<'a> {
    pub(crate) index: &'a Index,
    pub(crate) model: &'a LanguageModel,
    pub(crate) scorer: &'a dyn WindowScorer,
    pub(crate) expander: Option<&'a SparseEncoder>,
    /// Long documents of earlier questions.
    memory: CandidateMemory,
    /// The worked examples in front of every question, read once, where one is asked in lines.
    preamble: OnceLock<(Vec<u32>, Cache)>,
    pub(crate) interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Who reranks the evidence and writes the answer, where it is not the model alone.
    pub(crate) helpers: Helpers<'a>,
}

impl<'a> Engine<'a> {
    /// Checks that model and index belong together. `interrupted` is asked between steps.
    ///
    /// # Errors
    /// Another vocabulary.
    pub fn new(
        index: &'a Index,
        model: &'a LanguageModel,
        scorer: &'a dyn WindowScorer,
        interrupted: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<Self, EngineError> {
        index.check_tokenizer(model.tokenizer())?;
        Ok(Self {
            index,
            model,
            scorer,
            expander: None,
            memory: CandidateMemory::default(),
            preamble: OnceLock::new(),
            interrupted,
            helpers: Helpers::default(),
        })
    }

    /// The same with a sparse lexical model that expands questions.
    #[must_use]
    pub fn with_expander(self, expander: &'a SparseEncoder) -> Self {
        Self {
            expander: Some(expander),
            ..self
        }
    }

    /// Reads what stands in front of every question, which the first one to be asked would otherwise wait for.
    ///
    /// # Errors
    /// The model cannot write its stages as `settings` ask for, or fails.
    pub fn prepare(&self, settings: &Settings) -> Result<(), EngineError> {
        self.markers(settings)?;
        if settings.format == Format::Lines {
            self.preamble()?;
        }
        Ok(())
    }

    /// Forgets what earlier questions left to make later ones faster.
    pub fn forget(&self) {
        self.memory.forget();
    }

    /// Name of the language model.
    pub fn model_name(&self) -> &str {
        self.model.name()
    }

    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        self.model.tokenizer()
    }

    /// A retriever for `question` that knows what the engine remembers and expands questions as the engine does.
    pub(crate) fn retriever<'e>(
        &'e self,
        question: &'e str,
        settings: &'e Settings,
    ) -> Result<Retriever<'e>, EngineError> {
        let (index, tokenizer) = (self.index, self.tokenizer());
        let retriever = Retriever::new(index, tokenizer, self.scorer, settings, question)
            .with_memory(&self.memory);
        let Some(expander) = self.expander else {
            return Ok(retriever);
        };
        let terms = scorer::expand(expander, question, settings.clues.auxiliary)?;
        Ok(retriever.with_expansion(terms))
    }

    /// The tokens that open and close the stages.
    pub(crate) fn markers(&self, settings: &Settings) -> Result<Markers, EngineError> {
        let markers = Markers::new(&settings.format, self.tokenizer());
        markers.map_err(|reason| EngineError::Format {
            model: self.model.name().to_owned(),
            reason,
        })
    }

    /// The worked examples with a cache that holds them.
    fn preamble(&self) -> Result<&(Vec<u32>, Cache), EngineError> {
        if let Some(read) = self.preamble.get() {
            return Ok(read);
        }
        let tokenizer = self.tokenizer();
        // Models that were trained with a begin token write nonsense without it.
        let mut tokens: Vec<u32> = tokenizer.begin_token().into_iter().collect();
        tokens.extend(tokenizer.encode_text(&prompt::preamble()));
        let mut cache = self.model.new_cache();
        self.model.forward(&mut cache, &tokens, Wanted::None)?;
        Ok(self.preamble.get_or_init(|| (tokens, cache)))
    }

    /// A session that has come to the end of a question.
    pub(crate) fn open_question<'m>(
        &self,
        question: &str,
        settings: &Settings,
        markers: &'m Markers,
    ) -> Result<StagedSession<'m, ModelSource<'a>>, EngineError> {
        let tokenizer = self.tokenizer();
        let session = match &settings.format {
            Format::Lines => {
                let (examples, cache) = self.preamble()?;
                let source = ModelSource::with_cache(self.model, cache.fork());
                let mut session = Session::new(source, examples.clone());
                session.push(&tokenizer.encode_text(&prompt::question_lines(question)));
                session
            }
            Format::Control(control) => {
                let template = self.model.chat_template();
                let mut session = Session::new(ModelSource::new(self.model), Vec::new());
                session.push(&control.prompt(question, template, tokenizer)?);
                session
            }
        };
        Ok(StagedSession::new(session, markers))
    }

    pub(crate) fn check_interrupt(&self) -> Result<(), EngineError> {
        if (self.interrupted)() {
            Err(EngineError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Answers one question. The same question, model, index and settings give the same answer.
    ///
    /// # Errors
    /// [`EngineError`]; finding nothing is no error but an answer without evidence.
    pub fn ask(&self, question: &str, settings: &Settings) -> Result<Answer, EngineError> {
        self.ask_streaming(question, settings, &mut |_| {})
    }

    /// As [`Engine::ask`]; `on_text` is given the answer piece by piece as it is written, numbers that cite no
    /// evidence still in it.
    ///
    /// # Errors
    /// As [`Engine::ask`].
    pub fn ask_streaming(
        &self,
        question: &str,
        settings: &Settings,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Answer, EngineError> {
        if question.trim().is_empty() {
            return Err(EngineError::EmptyQuestion);
        }
        settings.check().map_err(EngineError::Settings)?;
        // Said before any clue is written.
        dense_scorer(self.index, self.scorer, settings)?;
        let markers = self.markers(settings)?;
        let mut staged = self.open_question(question, settings, &markers)?;
        let mut clock = Instant::now();
        let mut lap = || {
            let elapsed = clock.elapsed().as_secs_f64() * 1e3;
            clock = Instant::now();
            elapsed
        };
        let mut milliseconds = Milliseconds::default();
        let most = settings.clues.most;
        let phrases = self.write_clues(&mut staged, settings, &[], most)?;
        milliseconds.clues = lap();

        let fm = self.index.fm();
        let mut retriever = self.retriever(question, settings)?;
        let mut rankings = retriever.rankings(&phrases)?;
        milliseconds.candidates = lap();
        self.check_interrupt()?;

        let (candidates, windows) = retriever.first_round(&rankings)?;
        milliseconds.windows = lap();
        self.check_interrupt()?;

        let mut refused = Vec::new();
        let mut unfounded = Vec::new();
        let mut evidence: Vec<Citation> = Vec::new();
        // Each piece with the window it was written for.
        let mut surroundings = Vec::new();
        let closing = markers.closing_evidence();
        let mut writer = EvidenceWriter::new(candidates, windows, &settings.evidence, closing)
            .with_sampling(settings.sampling);
        // By candidate that a piece of evidence led to, the id of the document that the piece is from.
        let mut led_to: HashMap<u32, String> = HashMap::new();
        let least = settings.evidence.least(&settings.format);
        let beams = settings.evidence.beams;
        let beams = (beams > 1).then(|| settings.beams.with_beams(beams));
        // A piece with its line must leave room for the answer; what is there already is answered from.
        let piece = settings
            .evidence
            .most_tokens
            .min(self.model.context_length() / 2);
        let room = piece + settings.answer.most_tokens + LINE_TOKENS;
        while evidence.len() < settings.evidence.most {
            self.check_interrupt()?;
            let asked = staged.session.tokens().len().saturating_add(room);
            if asked > self.model.context_length() {
                break;
            }
            let Some(opening) = writer.next_opening() else {
                break;
            };
            let choices: &[Stage] = match evidence.len() >= least {
                true => &[Stage::Evidence, Stage::Answer],
                false => &[Stage::Evidence],
            };
            let before = staged.mark();
            if staged.turn(choices)? == Some(Stage::Answer) {
                break;
            }
            let member = writer.windows()[opening.window].member;
            let note = markers.note(&writer.candidates()[member as usize].title);
            staged.session.push(&self.tokenizer().encode_text(&note));
            if !settings.evidence.constrained {
                let quote = self.write_unconstrained(&mut staged.session, settings)?;
                let window = &writer.windows()[opening.window];
                let relevance = window.relevance;
                writer.close(opening.window);
                match self.cite_text(&quote) {
                    Ok(mut citation) => {
                        citation.score = relevance;
                        surroundings.push(WindowText {
                            title: citation.title.clone(),
                            text: citation.quote.clone(),
                        });
                        evidence.push(citation);
                    }
                    Err(_) => unfounded.push(quote),
                }
                if evidence.len() + unfounded.len() >= settings.evidence.most {
                    break;
                }
                continue;
            }
            let session = &mut staged.session;
            let piece = match &beams {
                Some(beams) => writer.write_beams(session, &opening, beams, self.interrupted)?,
                None => writer.write(session, &opening)?,
            };
            let Some(piece) = piece else {
                staged.back_to(before);
                writer.close(opening.window);
                continue;
            };
            let candidate = &writer.candidates()[piece.member as usize];
            match self
                .index
                .cite(self.tokenizer(), candidate.document, piece.span.clone())
            {
                Ok(mut citation) => {
                    let tokens =
                        &candidate.tokens()[piece.span.start as usize..piece.span.end as usize];
                    citation.other_occurrences = fm.count(&fm.range(tokens)).saturating_sub(1);
                    citation.score = piece.relevance;
                    if evidence.len() < settings.hops.pieces
                        && evidence.len() + 1 < settings.evidence.most
                    {
                        let known: Vec<String> = rankings
                            .clues
                            .iter()
                            .map(|clue| clue.text.clone())
                            .collect();
                        let most = settings.hops.clues;
                        let phrases = self.write_clues(&mut staged, settings, &known, most)?;
                        let before = lap();
                        let hop = Hop {
                            quote: &citation.quote,
                            phrases: &phrases,
                            from: piece.member,
                        };
                        let raised = retriever.hop(hop, &mut rankings, &mut writer)?;
                        for member in raised {
                            let from = led_to.entry(member);
                            from.or_insert_with(|| citation.id.clone());
                        }
                        milliseconds.evidence += before;
                        milliseconds.windows += lap();
                    }
                    evidence.push(citation);
                    surroundings.push(self.surroundings(&writer, &piece));
                }
                Err(error) => {
                    refused.push(error.to_string());
                    staged.back_to(before);
                }
            }
        }
        milliseconds.evidence += lap();
        milliseconds.scorer = retriever.scoring().as_secs_f64() * 1e3;

        let rerank = self.rerank(question, &surroundings, settings)?;
        if let Some(rerank) = &rerank {
            evidence = rerank.order().map(|at| evidence[at].clone()).collect();
        }
        milliseconds.rerank = lap();
        self.check_interrupt()?;

        let Answered {
            cited,
            cost,
            passing,
        } = self.write_answer(question, &evidence, staged, settings, on_text)?;
        milliseconds.answer = lap();
        milliseconds.model = passing.as_secs_f64() * 1e3;

        let trace = Trace {
            model: self.model.name().to_owned(),
            settings: settings.clone(),
            auxiliary_clues: rankings.auxiliary.clone(),
            titles: rankings
                .titles
                .iter()
                .map(|title| title.name.clone())
                .collect(),
            candidates: candidate_traces(&writer, &rankings, &led_to),
            windows: window_traces(&writer),
            clues: rankings.clues,
            refused,
            unfounded,
            rerank,
            generator: self.helpers.generator_name(),
            cost,
            milliseconds,
        };
        Ok(Answer {
            question: question.to_owned(),
            answer: cited.text,
            cited: cited.numbers,
            unknown_citations: cited.unknown,
            evidence,
            trace,
        })
    }

    /// The answer stage: in a conversation of its own, or after the evidence. Gives the answer,
    /// empty where the stage is skipped or there is no evidence, and the whole cost. Another generator is asked to
    /// cite.
    pub(crate) fn write_answer(
        &self,
        question: &str,
        evidence: &[Citation],
        mut staged: StagedSession<'_, ModelSource<'_>>,
        settings: &Settings,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Answered, EngineError> {
        let most = settings.answer.most_tokens;
        if evidence.is_empty() || most == 0 {
            let (cost, passing) = (staged.session.cost(), staged.session.passing());
            return Ok(Answered::plain(String::new(), cost, passing));
        }
        if let Some(generator) = self.helpers.generator {
            let mut answered = finish::cite(generator, question, evidence, settings, on_text)?;
            answered.cost += staged.session.cost();
            answered.passing += staged.session.passing();
            return Ok(answered);
        }
        // A tuned model answers where it stands.
        let apart = settings.answer.prompt == AnswerPrompt::Chat;
        let apart = apart && settings.format == Format::Lines;
        let chat = self.model.chat_template().filter(|_| apart);
        if let Some(template) = chat {
            let quotes = evidence
                .iter()
                .map(|citation| (citation.title.as_str(), citation.quote.as_str()))
                .take(settings.answer.evidence);
            let request = Message::new("user", prompt::answer_request(question, quotes));
            let tokens = template.render(&[request], true, self.tokenizer())?;
            let (mut cost, mut passing) = (staged.session.cost(), staged.session.passing());
            let mut session = Session::new(ModelSource::new(self.model), Vec::new());
            session.push(&tokens);
            let answer = self.write_freely(&mut session, most, settings, on_text)?;
            cost += session.cost();
            passing += session.passing();
            return Ok(Answered::plain(answer, cost, passing));
        }
        if staged.standing() != Some(Stage::Answer) {
            staged.turn(&[Stage::Answer])?;
        }
        let session = &mut staged.session;
        let answer = self.write_freely(session, most, settings, on_text)?;
        Ok(Answered::plain(answer, session.cost(), session.passing()))
    }

    fn write_freely(
        &self,
        session: &mut Session<ModelSource<'_>>,
        most: usize,
        settings: &Settings,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<String, EngineError> {
        let (tokenizer, sampling) = (self.tokenizer(), settings.sampling);
        let text = stages::write_freely(session, tokenizer, most, sampling, on_text)?;
        Ok(text)
    }

    /// A quote that the model writes without a constraint: as many whole sentences as the limit holds.
    fn write_unconstrained(
        &self,
        session: &mut Session<ModelSource<'_>>,
        settings: &Settings,
    ) -> Result<String, EngineError> {
        let most = settings.evidence.most_tokens;
        let text = self.write_freely(session, most, settings, &mut |_| {})?;
        let last = sentences::starts(&text).last().copied().unwrap_or(0);
        // The limit may have ended the last sentence, which is all of it where it is the only one.
        let whole = match last > 0 && !sentences::ends(&text) {
            true => text[..last].trim_end(),
            false => &text,
        };
        Ok(whole.to_owned())
    }

    /// The first place of a text that can be cited, in any of the spellings in which it can stand.
    fn cite_text(&self, text: &str) -> Result<Citation, String> {
        let mut refusal = "the text stands nowhere".to_owned();
        for tokens in spelling::forms(self.tokenizer(), text) {
            match self.cite_phrase(&tokens) {
                Ok(citation) => return Ok(citation),
                Err(reason) => refusal = reason,
            }
        }
        Err(refusal)
    }

    /// As [`Engine::write_clues`], by one search: the best phrases that are not `known`, at most `most`.
    fn search_clues(
        &self,
        staged: &mut StagedSession<'_, ModelSource<'_>>,
        settings: &Settings,
        known: &[String],
        most: usize,
    ) -> Result<Vec<String>, EngineError> {
        let mut phrases: Vec<String> = Vec::new();
        let before = staged.mark();
        let choices = clue_or_evidence(known.is_empty());
        let closing = staged.markers().closing_clue();
        if staged.turn(choices)? == Some(Stage::Clue) {
            let found = stages::search_clues(
                &mut staged.session,
                (self.index.fm(), closing),
                self.tokenizer(),
                &settings.clues,
                &settings.beams.with_beams(settings.clues.beams),
                self.interrupted,
            )?;
            let new = |text: &str| {
                let text = text.to_lowercase();
                known.iter().all(|other| other.to_lowercase() != text)
            };
            for (tokens, text) in found.into_iter().filter(|(_, text)| new(text)).take(most) {
                if !phrases.is_empty() {
                    staged.turn(&[Stage::Clue])?;
                }
                staged.session.push(&tokens);
                phrases.push(text);
            }
        }
        if phrases.is_empty() {
            staged.back_to(before);
        }
        Ok(phrases)
    }

    /// A clue stage: one clue after another, until the model turns to evidence or `most` are written. What is `known`
    /// is not written again. Before any evidence the first clue is not up to the model.
    fn write_clues(
        &self,
        staged: &mut StagedSession<'_, ModelSource<'_>>,
        settings: &Settings,
        known: &[String],
        most: usize,
    ) -> Result<Vec<String>, EngineError> {
        if settings.clues.beams > 1 && most > 0 {
            return self.search_clues(staged, settings, known, most);
        }
        let mut phrases: Vec<String> = Vec::new();
        let closing = staged.markers().closing_clue();
        for written in 0..most {
            self.check_interrupt()?;
            let before = staged.mark();
            let choices = clue_or_evidence(written == 0 && known.is_empty());
            let clue = match staged.turn(choices)? {
                Some(Stage::Clue) => stages::write_clue(
                    &mut staged.session,
                    self.index.fm(),
                    self.tokenizer(),
                    closing,
                    &settings.clues,
                    settings.sampling,
                )?,
                _ => None,
            };
            let same = |clue: &str| {
                let mut all = known.iter().chain(&phrases);
                all.any(|other| other.to_lowercase() == clue.to_lowercase())
            };
            match clue.filter(|clue| !same(clue)) {
                Some(clue) => phrases.push(clue),
                None => {
                    // What was not written is taken back; the evidence stage opens its own.
                    staged.back_to(before);
                    break;
                }
            }
        }
        Ok(phrases)
    }
}

/// What a clue stage may turn to: the very first clue of a question is not up to the model.
fn clue_or_evidence(first: bool) -> &'static [Stage] {
    match first {
        true => &[Stage::Clue],
        false => &[Stage::Clue, Stage::Evidence],
    }
}

fn candidate_traces(
    writer: &EvidenceWriter<'_>,
    rankings: &Rankings,
    led_to: &HashMap<u32, String>,
) -> Vec<CandidateTrace> {
    let rank = |ranking: &[DocumentId], document| {
        let at = ranking.iter().position(|&other| other == document);
        at.map(|at| at + 1)
    };
    let candidates = writer.candidates().iter().zip(0u32..);
    candidates
        .map(|(candidate, member)| CandidateTrace {
            id: candidate.id.clone(),
            title: candidate.title.clone(),
            score: candidate.score,
            clue_rank: rank(&rankings.by_clues, candidate.document),
            lexical_rank: rank(&rankings.by_words, candidate.document),
            dense_rank: rank(&rankings.by_vectors, candidate.document),
            title_rank: rank(&rankings.by_titles, candidate.document),
            named_in: led_to.get(&member).cloned(),
        })
        .collect()
}

fn window_traces(writer: &EvidenceWriter<'_>) -> Vec<WindowTrace> {
    let mut windows = writer.windows().to_vec();
    windows::rank(&mut windows);
    let scored = windows
        .iter()
        .filter_map(|window| Some((window, window.score?)));
    scored
        .map(|(window, score)| WindowTrace {
            id: writer.candidates()[window.member as usize].id.clone(),
            start: window.start,
            end: window.end,
            score,
            bonus: window.bonus,
            relevance: window.relevance,
        })
        .collect()
}
