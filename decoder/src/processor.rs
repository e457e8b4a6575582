//! A logits processor that any host can call: rows of logits and the ids so far, one row a sequence, each in a
//! stage of its own.
//!
//! The host generates; the processor only says what may come next. A stage machine finds out from the ids
//! where a phrase begins and ends, so sequences may be reordered, forked or cut back between two calls, as
//! beam search of a host does.

use std::sync::Arc;

use fmindex::{Continuation, Index};
use models::tokenizer::Tokenizer;

use crate::constraint::{ConstraintError, PhraseConstraint};
use crate::format::{Closing, ControlFormat, FormatError};

/// A phrase that begins: what it may hold, and when it may end.
#[derive(Clone)]
pub struct Phrase {
    /// What may be written.
    pub constraint: PhraseConstraint,
    /// Tokens from which on it may be closed, while it could go on. Where nothing continues it, it may
    /// always be closed, and only that.
    pub close_from: usize,
    /// Tokens at which it must be closed.
    pub most_tokens: usize,
    /// Tokens that close it; at least one, or it never ends. They belong to no phrase.
    pub close: Vec<u32>,
}

/// Says where phrases begin: the stage machine's table.
pub trait StageRules: Send + Sync {
    /// The phrase that begins after `ids`, the whole sequence so far, outside of any phrase; `None` where
    /// the model goes on writing freely. A function of the ids alone.
    fn begin(&self, ids: &[u32]) -> Option<Phrase>;
}

/// Why a sequence cannot go on: it holds a token that was not allowed. Sticky for the ids that hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sequence {row}: {source}")]
pub struct ProcessorError {
    /// The row.
    pub row: usize,
    /// What was refused.
    pub source: ConstraintError,
}

/// Where one sequence stands.
#[derive(Clone)]
enum Stage {
    Free,
    Phrase(Phrase),
    Ended,
    Failed(ConstraintError),
}

#[derive(Clone)]
struct Sequence {
    seen: Vec<u32>,
    stage: Stage,
}

/// Masks logits so that phrases are text that exists. One processor serves a batch of sequences.
pub struct LogitsProcessor {
    rules: Arc<dyn StageRules>,
    /// Ids below this stand for something; logits at or above are padding.
    vocabulary: usize,
    ends: Vec<u32>,
    /// Tokens in front of every sequence that the rules are not asked about, such as the prompt.
    prompt: usize,
    sequences: Vec<Sequence>,
}

impl LogitsProcessor {
    /// A processor for a model of `vocabulary` ids and all its end tokens. The first `prompt` tokens of each
    /// sequence are given, not generated; a phrase can begin right after them.
    pub fn new(
        rules: Arc<dyn StageRules>,
        vocabulary: usize,
        ends: Vec<u32>,
        prompt: usize,
    ) -> Self {
        Self {
            rules,
            vocabulary,
            ends,
            prompt,
            sequences: Vec::new(),
        }
    }

    /// Masks one row of logits a sequence, in place: what may not come next becomes −∞. `ids[i]` is all of
    /// sequence `i` so far; rows may be longer than the vocabulary.
    ///
    /// # Errors
    /// A sequence holds a token that was not allowed. All rows are masked all the same, that sequence's to
    /// the end tokens.
    ///
    /// # Panics
    /// There are not as many rows as sequences.
    pub fn process(
        &mut self,
        ids: &[&[u32]],
        logits: &mut [&mut [f32]],
    ) -> Result<(), ProcessorError> {
        assert_eq!(ids.len(), logits.len(), "one row of logits a sequence");
        let fresh = Sequence {
            seen: Vec::new(),
            stage: Stage::Free,
        };
        self.sequences.resize(ids.len(), fresh);
        let mut failed = None;
        for (row, (ids, logits)) in ids.iter().zip(logits).enumerate() {
            self.follow(row, ids);
            if let Stage::Failed(source) = self.sequences[row].stage {
                failed.get_or_insert(ProcessorError { row, source });
            }
            self.mask(row, logits);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Brings the stage of a row up to its ids: from where it was, if they go on from there, else from the
    /// beginning.
    fn follow(&mut self, row: usize, ids: &[u32]) {
        let sequence = &mut self.sequences[row];
        let known = ids.len() >= self.prompt
            && sequence.seen.len() >= self.prompt
            && !sequence.seen.is_empty()
            && ids.starts_with(&sequence.seen);
        if !known {
            let prompt = ids.len().min(self.prompt);
            sequence.seen = ids[..prompt].to_vec();
            sequence.stage = open(&*self.rules, &sequence.seen);
        }
        for &id in &ids[sequence.seen.len()..] {
            sequence.seen.push(id);
            let ends = self.ends.contains(&id);
            sequence.stage = match std::mem::replace(&mut sequence.stage, Stage::Ended) {
                Stage::Free if !ends => open(&*self.rules, &sequence.seen),
                Stage::Phrase(phrase) if !phrase.permits(id) => {
                    let position = phrase.constraint.tokens().len();
                    Stage::Failed(ConstraintError::NotAllowed {
                        symbol: id,
                        position,
                    })
                }
                Stage::Phrase(phrase) if phrase.close.contains(&id) => match ends {
                    true => Stage::Ended,
                    false => open(&*self.rules, &sequence.seen),
                },
                Stage::Phrase(mut phrase) => match phrase.constraint.advance(id) {
                    Ok(()) => Stage::Phrase(phrase),
                    Err(error) => Stage::Failed(error),
                },
                Stage::Failed(error) => Stage::Failed(error),
                Stage::Free | Stage::Ended => Stage::Ended,
            };
        }
    }

    fn mask(&self, row: usize, logits: &mut [f32]) {
        let size = self.vocabulary.min(logits.len());
        logits[size..].fill(f32::NEG_INFINITY);
        let logits = &mut logits[..size];
        let only = |tokens: &mut dyn Iterator<Item = u32>, logits: &mut [f32]| {
            let kept: Vec<(u32, f32)> = tokens
                .filter_map(|token| Some((token, *logits.get(token as usize)?)))
                .collect();
            logits.fill(f32::NEG_INFINITY);
            for (token, logit) in kept {
                logits[token as usize] = logit;
            }
        };
        match &self.sequences[row].stage {
            Stage::Free => {}
            Stage::Phrase(phrase) => {
                let allowed = phrase.continuations();
                let close = match phrase.may_close(&allowed) {
                    true => phrase.close.as_slice(),
                    false => &[],
                };
                let tokens = allowed.iter().map(|next| next.symbol);
                only(&mut tokens.chain(close.iter().copied()), logits);
            }
            Stage::Ended | Stage::Failed(_) => only(&mut self.ends.iter().copied(), logits),
        }
    }
}

impl Phrase {
    /// The tokens of texts that may follow; what closes a phrase is never part of one.
    fn continuations(&self) -> Vec<Continuation> {
        let mut allowed: Vec<Continuation> = Vec::new();
        if self.constraint.tokens().len() < self.most_tokens {
            self.constraint.allowed(&mut allowed);
            allowed.retain(|next| !self.close.contains(&next.symbol));
        }
        allowed
    }

    fn may_close(&self, continuations: &[Continuation]) -> bool {
        continuations.is_empty() || self.constraint.tokens().len() >= self.close_from
    }

    /// Whether the mask leaves a token open.
    fn permits(&self, token: u32) -> bool {
        let length = self.constraint.tokens().len();
        match self.close.contains(&token) {
            true => length >= self.close_from || self.may_close(&self.continuations()),
            false => length < self.most_tokens && self.constraint.allows(token),
        }
    }
}

fn open(rules: &dyn StageRules, ids: &[u32]) -> Stage {
    match rules.begin(ids) {
        Some(phrase) => Stage::Phrase(phrase),
        None => Stage::Free,
    }
}

/// What a control token opens.
#[derive(Clone)]
pub struct Opener {
    /// The token.
    pub token: u32,
    /// The phrase, nothing of which is written yet.
    pub phrase: Phrase,
}

/// Rules of a model that was tuned with control tokens: a phrase begins after the token that opens it, and after
/// each separator until its stage is closed.
#[derive(Clone)]
pub struct ControlTokens {
    openers: Vec<Opener>,
    separator: Option<u32>,
}

impl ControlTokens {
    /// Rules with the given openers.
    pub fn new(openers: Vec<Opener>) -> Self {
        Self {
            openers,
            separator: None,
        }
    }

    /// Clues as `format` marks them, each a phrase of the corpus of `least` to `most` tokens.
    ///
    /// # Errors
    /// The tokenizer lacks one of the control tokens that concern clues.
    pub fn clues(
        index: &Index,
        tokenizer: &Tokenizer,
        format: &ControlFormat,
        (least, most): (usize, usize),
    ) -> Result<Self, FormatError> {
        let end = ControlFormat::token("clue_end", &format.clue_end, tokenizer)?;
        let separator = ControlFormat::optional("separator", &format.separator, tokenizer)?;
        let clue = Opener {
            token: ControlFormat::token("clue", &format.clue, tokenizer)?,
            phrase: Phrase {
                constraint: PhraseConstraint::corpus(index),
                close_from: least,
                most_tokens: most,
                close: Closing { end, separator }.tokens().collect(),
            },
        };
        Ok(Self {
            separator,
            ..Self::new(vec![clue])
        })
    }

    /// These rules and further ones. Where the phrase can be closed by the separator, another one of it follows.
    #[must_use]
    pub fn with(mut self, opener: Opener) -> Self {
        self.openers.push(opener);
        self
    }

    /// These rules with a token that stands between phrases of one stage.
    #[must_use]
    pub fn with_separator(mut self, separator: u32) -> Self {
        self.separator = Some(separator);
        self
    }

    fn opened_by(&self, token: u32) -> Option<&Opener> {
        self.openers.iter().find(|opener| opener.token == token)
    }

    /// The opener of the stage that is open at the end of `ids`.
    fn open_stage(&self, ids: &[u32]) -> Option<&Opener> {
        let closes = |token: u32| {
            let mut openers = self.openers.iter();
            openers.any(|opener| opener.phrase.close.contains(&token))
        };
        let mut back = ids.iter().rev().copied();
        let marker = back.find(|&token| {
            Some(token) != self.separator && (self.opened_by(token).is_some() || closes(token))
        })?;
        self.opened_by(marker)
    }
}

impl StageRules for ControlTokens {
    fn begin(&self, ids: &[u32]) -> Option<Phrase> {
        let (&last, before) = ids.split_last()?;
        let opener = match self.opened_by(last) {
            None if self.separator == Some(last) => self
                .open_stage(before)
                .filter(|opener| opener.phrase.close.contains(&last)),
            opener => opener,
        };
        opener.map(|opener| opener.phrase.clone())
    }
}
