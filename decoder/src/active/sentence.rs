//! One sentence, written freely, with the probability of every token.

use std::ops::Range;

use models::ModelError;
use models::language_model::log_normaliser;
use models::tokenizer::Tokenizer;

use crate::sentences;
use crate::session::{LogitsSource, Session};
use crate::stages::favourites;

/// Why a sentence ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The next sentence began.
    Border,
    /// The limit was reached.
    Limit,
    /// The model ended its turn.
    Turn,
}

/// A sentence as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenSentence {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// The probability of each under the full vocabulary, from the pass that chose it.
    pub probabilities: Vec<f32>,
    /// Why it ends.
    pub end: End,
}

impl WrittenSentence {
    /// The least probability of a token; 1 without any.
    pub fn least(&self) -> f32 {
        self.probabilities.iter().copied().fold(1.0, f32::min)
    }
}

/// Whether a sentence is to end at its border, or only at the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    /// At the border of the sentence.
    Sentence,
    /// After so many tokens, wherever the border is.
    Tokens,
}

/// Writes the next sentence greedily: until the first token that belongs to another one, an end token, or
/// `most` tokens. The session then holds the sentence and no token after it.
///
/// A border is seen by what follows it: by the token that begins the next sentence, which is not written, or later,
/// and then what begins behind the border is taken back. A token that holds text of both sentences belongs to the
/// first, one that holds white space and the next sentence to the next.
///
/// # Errors
/// The model's own.
pub fn write<S: LogitsSource>(
    session: &mut Session<S>,
    tokenizer: &Tokenizer,
    most: usize,
    stretch: Stretch,
) -> Result<WrittenSentence, ModelError> {
    let mut written = WrittenSentence {
        tokens: Vec::new(),
        probabilities: Vec::new(),
        end: End::Limit,
    };
    let ends = session.source().end_tokens().to_vec();
    let mut bytes = Vec::new();
    while written.tokens.len() < most && session.tokens().len() < session.source().context_length()
    {
        let logits = session.logits()?;
        let Some(&(token, logit)) = favourites(logits, 1).first() else {
            written.end = End::Turn;
            break;
        };
        let probability = (logit - log_normaliser(logits)).exp();
        if ends.contains(&token) || tokenizer.is_control(token) {
            written.end = End::Turn;
            break;
        }
        let before = bytes.len();
        bytes.extend_from_slice(tokenizer.token_bytes(token).unwrap_or_default());
        let border = match stretch {
            Stretch::Sentence => border(&bytes),
            Stretch::Tokens => None,
        };
        if border.as_ref().is_none_or(|border| before < border.start) {
            session.write(token);
            written.tokens.push(token);
            written.probabilities.push(probability);
        }
        if let Some(border) = border {
            take_back(session, tokenizer, &mut written, border);
            written.end = End::Border;
            break;
        }
    }
    Ok(written)
}

/// The bytes between the first sentence and the second, which are white space or none; `None` while there is but one
/// sentence, or while the last character is not whole.
fn border(bytes: &[u8]) -> Option<Range<usize>> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        // Bytes that make no character: no border is looked for behind them.
        Err(_) => return None,
    };
    let second = *sentences::starts(text).get(1)?;
    Some(text[..second].trim_end().len()..second)
}

/// Takes back the tokens from the first one on that holds nothing of the first sentence but of the second.
fn take_back<S: LogitsSource>(
    session: &mut Session<S>,
    tokenizer: &Tokenizer,
    written: &mut WrittenSentence,
    border: Range<usize>,
) {
    let mut start = 0;
    let mut keep = 0;
    for &token in &written.tokens {
        let end = start + tokenizer.token_bytes(token).map_or(0, <[u8]>::len);
        if start >= border.start && end > border.end {
            break;
        }
        start = end;
        keep += 1;
    }
    session.rollback(written.tokens.len() - keep);
    written.tokens.truncate(keep);
    written.probabilities.truncate(keep);
}
