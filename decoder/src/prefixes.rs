//! The study of false pruning (RetroLLM, arXiv:2412.11919): whether beams that are constrained by the whole
//! collection, or by the candidates alone, still lead to a relevant document after so many tokens.

use fmindex::DocumentSet;
use serde::{Deserialize, Serialize};

use crate::candidates;
use crate::constraint::PhraseConstraint;
use crate::engine::{Engine, EngineError};
use crate::session::Cost;
use crate::settings::{BeamSettings, Settings};

/// Tokens of the prefixes that are looked at, as in the paper.
pub const LENGTH: usize = 13;

/// Beams by the length of their prefix.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prefixes {
    /// Beams that had `i + 1` tokens.
    pub beams: Vec<u32>,
    /// Of those, the ones whose prefix stands in a relevant document.
    pub relevant: Vec<u32>,
}

impl Prefixes {
    /// Whether a beam of `length` tokens still led to a relevant document; `None` where no beam got so far.
    pub fn leads(&self, length: usize) -> Option<bool> {
        let at = length.checked_sub(1)?;
        let beams = *self.beams.get(at)?;
        (beams > 0).then(|| self.relevant.get(at).is_some_and(|&relevant| relevant > 0))
    }
}

impl Engine<'_> {
    /// What naive beams may write: anything in the collection, or in the candidates of the question where
    /// `beams.candidates` says so. The candidates are those of a question for which no clue was written.
    pub(crate) fn beam_space(
        &self,
        question: &str,
        settings: &Settings,
    ) -> Result<PhraseConstraint, EngineError> {
        if !settings.beams.candidates {
            return Ok(PhraseConstraint::corpus(self.index.fm()));
        }
        let retriever = self.retriever(question, settings)?;
        let rankings = retriever.rankings(&[])?;
        let found = rankings
            .fused
            .iter()
            .map(|&(document, score)| retriever.candidate(document, score))
            .collect::<Result<Vec<_>, _>>()?;
        let (set, _) = candidates::union(&found, 0..found.len() as u32);
        Ok(PhraseConstraint::documents(set))
    }

    /// Follows naive beams through their first [`LENGTH`] tokens and counts those whose prefix stands in one of the
    /// `relevant` documents. Only `settings.beams` counts, and `settings.candidates` where the beams stay in the
    /// candidates.
    ///
    /// # Errors
    /// As [`Engine::ask`].
    pub fn prefixes(
        &self,
        question: &str,
        settings: &Settings,
        relevant: &DocumentSet,
    ) -> Result<(Prefixes, Cost), EngineError> {
        if question.trim().is_empty() {
            return Err(EngineError::EmptyQuestion);
        }
        settings.check().map_err(EngineError::Settings)?;
        let constraint = self.beam_space(question, settings)?;
        let markers = self.markers(settings)?;
        let mut staged = self.open_evidence(question, settings, &markers)?;
        let mut found = Prefixes {
            beams: vec![0; LENGTH],
            relevant: vec![0; LENGTH],
        };
        let beams = BeamSettings {
            close_from: LENGTH,
            most_tokens: LENGTH,
            ..settings.beams.clone()
        };
        staged.session.search(
            (&constraint, markers.closing_evidence()),
            &beams,
            &beams,
            self.interrupted,
            &mut |phrase| {
                let at = phrase.tokens().len() - 1;
                found.beams[at] += 1;
                let stands = !relevant.range(phrase.tokens()).is_empty();
                found.relevant[at] += u32::from(stands);
            },
        )?;
        self.check_interrupt()?;
        Ok((found, staged.session.cost()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_no_beam_reached_says_nothing() {
        let prefixes = Prefixes {
            beams: vec![5, 4, 0],
            relevant: vec![2, 0, 0],
        };
        assert_eq!(prefixes.leads(1), Some(true));
        assert_eq!(prefixes.leads(2), Some(false));
        assert_eq!(prefixes.leads(3), None);
        assert_eq!((prefixes.leads(0), prefixes.leads(4)), (None, None));
    }
}
