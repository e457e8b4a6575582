//! Naive constrained beam search: quotes written under the corpus-level index alone, without clues, candidates
//! or windows. The baseline that RetroLLM (arXiv:2412.11919) compares itself with.

use std::time::Instant;

use corpus_tools::{Citation, CiteError};

use crate::answer::{Answer, Milliseconds, Trace};
use crate::engine::{Engine, EngineError};
use crate::format::{Markers, Stage};
use crate::session::ModelSource;
use crate::settings::Settings;
use crate::stages::StagedSession;

/// Places of a phrase that are tried for a citation: a title is none.
const MOST_PLACES: usize = 64;

impl<'a> Engine<'a> {
    /// A session that has turned to evidence right after the question.
    pub(crate) fn open_evidence<'m>(
        &self,
        question: &str,
        settings: &Settings,
        markers: &'m Markers,
    ) -> Result<StagedSession<'m, ModelSource<'a>>, EngineError> {
        let mut staged = self.open_question(question, settings, markers)?;
        staged.turn(&[Stage::Evidence])?;
        Ok(staged)
    }

    /// Answers a question with naive constrained beams: after the question the model writes pieces of
    /// evidence, one a beam, that stand anywhere in the collection, and answers from them. The evidence is in
    /// the order of the beams, best first; its score is the beam's. Only `settings.beams`,
    /// `settings.format` and `settings.answer` count.
    ///
    /// # Errors
    /// As [`Engine::ask`].
    pub fn naive_beams(&self, question: &str, settings: &Settings) -> Result<Answer, EngineError> {
        if question.trim().is_empty() {
            return Err(EngineError::EmptyQuestion);
        }
        let began = Instant::now();
        let markers = self.markers(settings)?;
        let mut staged = self.open_evidence(question, settings, &markers)?;
        let space = self.beam_space(question, settings)?;
        let beams = staged.session.search(
            (&space, markers.closing_evidence()),
            &settings.beams,
            &settings.beams,
            self.interrupted,
            &mut |_| {},
        )?;
        self.check_interrupt()?;
        let mut evidence = Vec::new();
        let mut refused = Vec::new();
        let mut cited = None;
        for beam in &beams {
            match self.cite_phrase(beam.tokens()) {
                Ok(mut citation) => {
                    cited.get_or_insert(beam);
                    citation.score = beam.score(settings.beams.length_penalty) as f32;
                    evidence.push(citation);
                }
                Err(reason) => refused.push(reason),
            }
        }
        let mut milliseconds = Milliseconds {
            evidence: began.elapsed().as_secs_f64() * 1e3,
            ..Milliseconds::default()
        };
        if let Some(best) = cited {
            staged.session.push(best.tokens());
        }
        // The answer rests on the best phrase alone.
        let top = &evidence[..evidence.len().min(1)];
        let answered = self.write_answer(question, top, staged, settings, &mut |_| {})?;
        milliseconds.model = answered.passing.as_secs_f64() * 1e3;
        milliseconds.answer = began.elapsed().as_secs_f64() * 1e3 - milliseconds.evidence;
        let trace = Trace {
            model: self.model_name().to_owned(),
            settings: settings.clone(),
            refused,
            generator: self.helpers.generator_name(),
            cost: answered.cost,
            milliseconds,
            ..Trace::default()
        };
        Ok(Answer {
            question: question.to_owned(),
            answer: answered.cited.text,
            cited: answered.cited.numbers,
            unknown_citations: answered.cited.unknown,
            evidence,
            trace,
        })
    }

    /// The first place of a phrase that can be cited.
    pub(crate) fn cite_phrase(&self, tokens: &[u32]) -> Result<Citation, String> {
        let fm = self.index.fm();
        let ranges = fm.range(tokens);
        let mut refusal: Option<CiteError> = None;
        let length = tokens.len() as u32;
        if length > 0 {
            for place in fm.locate(&ranges).take(MOST_PLACES) {
                let span = place.start..place.start + length;
                match self.index.cite(self.tokenizer(), place.document, span) {
                    Ok(mut citation) => {
                        citation.other_occurrences = fm.count(&ranges).saturating_sub(1);
                        return Ok(citation);
                    }
                    Err(error) => {
                        refusal.get_or_insert(error);
                    }
                }
            }
        }
        Err(refusal.map_or_else(
            || "the phrase stands nowhere".to_owned(),
            |error| error.to_string(),
        ))
    }
}
