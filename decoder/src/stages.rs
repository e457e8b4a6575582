//! The stages as a machine: which of them comes next, and what the model writes outside of evidence, clues under
//! the corpus-level index and the free answer.

use fmindex::{Continuation, Index};
use models::ModelError;
use models::sampling::Sampling;
use models::tokenizer::Tokenizer;
use unicode_segmentation::UnicodeSegmentation;

use crate::beam::{Branching, PhraseRules};
use crate::constraint::PhraseConstraint;
use crate::format::{Closing, Markers, Stage};
use crate::sentences::is_unspaced;
use crate::session::{LogitsSource, Session};
use crate::settings::{BeamSettings, ClueSettings};

/// How many of the model's favourites are tested against the index before the continuations are listed.
const FAVOURITES: usize = 64;

/// The `count` entries with the highest logits, best first; equal ones by rising token.
pub fn favourites(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut entries: Vec<(u32, f32)> = logits
        .iter()
        .enumerate()
        .map(|(token, &logit)| (token as u32, logit))
        .collect();
    let by_logit = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if entries.len() > count && count > 0 {
        entries.select_nth_unstable_by(count - 1, by_logit);
        entries.truncate(count);
    }
    entries.sort_unstable_by(by_logit);
    entries
}

/// The token with the highest logit among those that continue the phrase and that `admits` lets pass.
///
/// The model's own favourites are tested one by one; only where none of them is allowed are the
/// continuations listed. The result is the same either way.
pub fn best_allowed(
    logits: &[f32],
    constraint: &PhraseConstraint,
    admits: impl Fn(u32) -> bool,
) -> Option<(u32, f32)> {
    let quick = favourites(logits, FAVOURITES);
    let found = quick
        .into_iter()
        .find(|&(token, _)| admits(token) && constraint.allows(token));
    if found.is_some() {
        return found;
    }
    let mut allowed: Vec<Continuation> = Vec::new();
    constraint.allowed(&mut allowed);
    let scored = allowed
        .iter()
        .filter(|continuation| admits(continuation.symbol))
        .filter_map(|continuation| {
            logits
                .get(continuation.symbol as usize)
                .map(|&logit| (continuation.symbol, logit))
        });
    scored.reduce(|best, next| {
        if next.1.total_cmp(&best.1).is_gt() {
            next
        } else {
            best
        }
    })
}

/// Whether a token begins a word: a space, then a letter or a digit (which may be a token of its own), or a letter
/// of a script without spaces.
fn begins_word(tokenizer: &Tokenizer, token: u32) -> bool {
    let text = tokenizer.token_bytes(token).map(String::from_utf8_lossy);
    text.is_some_and(|text| match text.strip_prefix(' ') {
        Some(rest) => rest.is_empty() || rest.starts_with(char::is_alphanumeric),
        None => text.starts_with(|c| is_unspaced(c) && c.is_alphabetic()),
    })
}

/// Whether a word may end before `token`: it begins with something that is neither letter nor digit nor mark, or
/// with a letter of a script without spaces.
fn ends_word(tokenizer: &Tokenizer, token: u32) -> bool {
    let Some(bytes) = tokenizer.token_bytes(token) else {
        return true;
    };
    // A token that begins inside a character continues the character.
    let first = String::from_utf8_lossy(bytes).chars().next();
    first.is_none_or(|first| {
        let letter = first.is_alphanumeric() && !is_unspaced(first);
        // A mark belongs to the character in front of it.
        let mark = format!("a{first}").graphemes(true).count() == 1;
        first != char::REPLACEMENT_CHARACTER && !letter && !mark && first != '\''
    })
}

/// Writes one clue: at most `settings.most_tokens` tokens that occur together in one paragraph of a live
/// document, closed by the model from `settings.close_from` on, cut back to a whole word where the
/// limit or the corpus ended it inside one. Returns its text; `None` if nothing can be written.
///
/// # Errors
/// The model's own.
pub fn write_clue<S: LogitsSource>(
    session: &mut Session<S>,
    index: &Index,
    tokenizer: &Tokenizer,
    closing: Closing,
    settings: &ClueSettings,
    sampling: Sampling,
) -> Result<Option<String>, ModelError> {
    let mut constraint = PhraseConstraint::corpus(index);
    let mut allowed = Vec::new();
    // Length of the longest beginning that ends with a whole word.
    let mut whole = 0;
    loop {
        let length = constraint.tokens().len();
        if length > 0 {
            constraint.allowed(&mut allowed);
            if allowed.is_empty() || allowed.iter().any(|next| ends_word(tokenizer, next.symbol)) {
                whole = length;
            }
            if allowed.is_empty() || length >= settings.most_tokens {
                break;
            }
        }
        let ends = session.source().end_tokens().to_vec();
        let position = session.tokens().len();
        let logits = session.logits()?;
        let admits = |token: u32| length > 0 || begins_word(tokenizer, token);
        let end = ends
            .iter()
            .copied()
            .chain(closing.tokens())
            .filter_map(|end| logits.get(end as usize).copied());
        let may_end = length >= settings.close_from && whole == length;
        let end = may_end.then(|| end.fold(f32::NEG_INFINITY, f32::max));
        let token = if sampling.temperature > 0.0 {
            constraint.allowed(&mut allowed);
            let open = allowed.iter().map(|next| next.symbol);
            let mut options: Vec<(u32, f32)> = open
                .filter(|&symbol| admits(symbol))
                .filter_map(|symbol| Some((symbol, *logits.get(symbol as usize)?)))
                .collect();
            options.extend(end.map(|end| (closing.end, end)));
            sampling.choose_among(&options, position)
        } else {
            best_allowed(logits, &constraint, admits).map(|(token, logit)| match end {
                Some(end) if end > logit => closing.end,
                _ => token,
            })
        };
        let Some(token) = token.filter(|&token| token != closing.end) else {
            break;
        };
        if constraint.advance(token).is_err() {
            break;
        }
        session.write(token);
    }
    let excess = constraint.tokens().len() - whole;
    session.rollback(excess);
    if whole == 0 || constraint.rollback(excess).is_err() {
        return Ok(None);
    }
    Ok(Some(
        tokenizer.decode(constraint.tokens()).trim().to_owned(),
    ))
}

/// The rules of the clue stage for beams, as in [`write_clue`].
struct ClueRules<'a> {
    tokenizer: &'a Tokenizer,
    settings: &'a ClueSettings,
}

impl ClueRules<'_> {
    /// Whether a phrase of at least one token ends with a whole word.
    fn is_whole(&self, phrase: &PhraseConstraint) -> bool {
        let mut allowed = Vec::new();
        phrase.allowed(&mut allowed);
        let ends = |next: &Continuation| ends_word(self.tokenizer, next.symbol);
        allowed.is_empty() || allowed.iter().any(ends)
    }
}

impl PhraseRules for ClueRules<'_> {
    fn most_tokens(&self) -> usize {
        self.settings.most_tokens
    }

    fn may_end(&self, phrase: &PhraseConstraint) -> bool {
        phrase.tokens().len() >= self.settings.close_from && self.is_whole(phrase)
    }

    fn admits(&self, phrase: &PhraseConstraint, token: u32) -> bool {
        !phrase.tokens().is_empty() || begins_word(self.tokenizer, token)
    }
}

/// Searches clues by (diverse) beams from where the session is, under the rules of [`write_clue`]: each with its
/// tokens and its text, best first, and each text once, whatever its capitals. Nothing is drawn or written.
///
/// # Errors
/// The model's own.
pub fn search_clues<S: Branching>(
    session: &mut Session<S>,
    (index, closing): (&Index, Closing),
    tokenizer: &Tokenizer,
    settings: &ClueSettings,
    search: &BeamSettings,
    interrupted: &dyn Fn() -> bool,
) -> Result<Vec<(Vec<u32>, String)>, ModelError> {
    let rules = ClueRules {
        tokenizer,
        settings,
    };
    let what = (&PhraseConstraint::corpus(index), closing);
    let found = session.search(what, &rules, search, interrupted, &mut |_| {})?;
    let mut clues: Vec<(Vec<u32>, String)> = Vec::new();
    for mut phrase in found.into_iter().map(|beam| beam.constraint) {
        while !phrase.tokens().is_empty() && !rules.is_whole(&phrase) && phrase.rollback(1).is_ok()
        {
        }
        let text = tokenizer.decode(phrase.tokens()).trim().to_owned();
        let known = |(_, other): &(_, String)| other.to_lowercase() == text.to_lowercase();
        if !text.is_empty() && !clues.iter().any(known) {
            clues.push((phrase.tokens().to_vec(), text));
        }
    }
    Ok(clues)
}

/// A session in which a model writes its stages one after another: `question → clues → evidence → answer`, the model
/// choosing when to go on.
pub struct StagedSession<'m, S> {
    /// The session.
    pub session: Session<S>,
    markers: &'m Markers,
    /// The stage of the phrase that stands last; `None` after the question.
    standing: Option<Stage>,
}

/// Where a staged session was.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    length: usize,
    standing: Option<Stage>,
}

impl<'m, S: LogitsSource> StagedSession<'m, S> {
    /// A session that has come to the end of the question.
    pub fn new(session: Session<S>, markers: &'m Markers) -> Self {
        Self {
            session,
            markers,
            standing: None,
        }
    }

    /// What opens and closes the stages.
    pub fn markers(&self) -> &'m Markers {
        self.markers
    }

    /// The stage that was turned to last; `None` after the question.
    pub fn standing(&self) -> Option<Stage> {
        self.standing
    }

    /// Where the session is, for [`StagedSession::back_to`].
    pub fn mark(&self) -> Mark {
        Mark {
            length: self.session.tokens().len(),
            standing: self.standing,
        }
    }

    /// Takes back everything since `mark`.
    pub fn back_to(&mut self, mark: Mark) {
        let excess = self.session.tokens().len().saturating_sub(mark.length);
        self.session.rollback(excess);
        self.standing = mark.standing;
    }

    /// Lets the model choose which of some stages comes next (another phrase of the same one may be among them), and
    /// appends what closes the phrase that stands and opens the next. Where phrases of a stage are separated, it
    /// chooses between separator and end by their logits; then, or where they are not, by those of the first tokens
    /// that open a stage. With one choice the model is not asked. Gives `None` where there is none.
    ///
    /// # Errors
    /// The model's own.
    pub fn turn(&mut self, choices: &[Stage]) -> Result<Option<Stage>, ModelError> {
        let markers = self.markers;
        let mut choices = choices.to_vec();
        let again = |stage: &Stage| self.standing == Some(*stage);
        if let Some(separator) = markers.separator()
            && let Some(at) = choices.iter().position(again)
        {
            let goes_on = match markers.leaving(self.standing) {
                Some(end) if choices.len() > 1 => {
                    let logits = self.session.logits()?;
                    logits.get(separator as usize) >= logits.get(end as usize)
                }
                _ => true,
            };
            if goes_on {
                self.session.push(&[separator]);
                return Ok(self.standing);
            }
            choices.remove(at);
        }
        if let Some(leaving) = markers.leaving(self.standing) {
            self.session.push(&[leaving]);
        }
        let chosen = if choices.len() > 1 {
            let logits = self.session.logits()?;
            let logit = |stage: Stage| {
                let first = markers.opening(stage).first();
                first.and_then(|&first| logits.get(first as usize)).copied()
            };
            choices.into_iter().reduce(|best, next| {
                if logit(next) > logit(best) {
                    next
                } else {
                    best
                }
            })
        } else {
            choices.pop()
        };
        if let Some(stage) = chosen {
            self.session.push(markers.opening(stage));
            self.standing = chosen;
        }
        Ok(chosen)
    }
}

/// Writes freely until a line break, a control token or `most` tokens. Returns the text. `on_text` is given every piece
/// of it as it comes, whole characters only.
///
/// # Errors
/// The model's own.
pub fn write_freely<S: LogitsSource>(
    session: &mut Session<S>,
    tokenizer: &Tokenizer,
    most: usize,
    sampling: Sampling,
    on_text: &mut dyn FnMut(&str),
) -> Result<String, ModelError> {
    let mut shown = 0;
    let mut written = Vec::new();
    let ends = session.source().end_tokens().to_vec();
    while written.len() < most && session.tokens().len() < session.source().context_length() {
        let position = session.tokens().len();
        let history: &[u32] = match sampling.repetition_penalty == 1.0 {
            true => &[],
            false => &written,
        };
        let mut logits = session.logits()?.to_vec();
        let Some(chosen) = sampling.choose(&mut logits, history, position) else {
            break;
        };
        let token = chosen.token;
        let breaks = tokenizer
            .token_bytes(token)
            .is_some_and(|bytes| bytes.contains(&b'\n'));
        // A line break or an end before anything was written is no answer: the model has nothing to say.
        if breaks || ends.contains(&token) || tokenizer.is_control(token) {
            break;
        }
        session.write(token);
        written.push(token);
        let text = tokenizer.decode(&written);
        // A character may need another token, and white space at the end is not part of the answer.
        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER).trim();
        if text.len() > shown && text.is_char_boundary(shown) {
            on_text(&text[shown..]);
            shown = text.len();
        }
    }
    Ok(tokenizer.decode(&written).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn favourites_are_the_best_in_order() {
        let logits = [0.5, 3.0, -1.0, 3.0, 2.0];
        assert_eq!(favourites(&logits, 3), [(1, 3.0), (3, 3.0), (4, 2.0)]);
        assert_eq!(favourites(&logits, 10).len(), 5);
        assert!(favourites(&[], 3).is_empty());
        assert_eq!(favourites(&[f32::NAN, 1.0, f32::NEG_INFINITY], 3).len(), 3);
    }
}
