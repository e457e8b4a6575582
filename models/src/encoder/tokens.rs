//! Texts to packed token sequences: the tokenizer beside an encoder, truncation, grouping.

use std::path::Path;

use rayon::prelude::*;
use tokenizers::{EncodeInput, Encoding, Tokenizer, TruncationParams};

use super::EncoderError;
use super::bert::{Bert, Packed};

/// Bounds on the tokens of a group. A smaller one makes products less efficient, a larger one
/// falls out of the processor's cache and leaves threads idle.
const SMALLEST_GROUP: usize = 128;
const LARGEST_GROUP: usize = 512;

/// The tokenizer of an encoder.
pub(super) struct TextTokenizer {
    tokenizer: Tokenizer,
    max_tokens: usize,
    segments: usize,
}

impl TextTokenizer {
    /// Opens `tokenizer.json` in `folder`. Sequences are cut at `max_tokens`, special tokens
    /// included, or at what `bert` can read if that is less.
    pub fn open(
        folder: &Path,
        bert: &Bert,
        max_tokens: usize,
    ) -> Result<TextTokenizer, EncoderError> {
        let path = folder.join("tokenizer.json");
        let bytes = std::fs::read(&path).map_err(|source| EncoderError::Read {
            path: path.clone(),
            source,
        })?;
        let wrong = |problem: String| EncoderError::file(&path, "tokenizer", problem);
        let mut tokenizer =
            Tokenizer::from_bytes(bytes).map_err(|error| wrong(error.to_string()))?;
        let config = bert.config();
        let largest = tokenizer.get_vocab(true).into_values().max().unwrap_or(0) as usize;
        if largest >= config.vocab_size {
            return Err(wrong(format!(
                "token id {largest}, expected ids below the model's {}",
                config.vocab_size
            )));
        }
        let max_tokens = max_tokens.min(config.max_tokens());
        let pair_tokens = tokenizer.get_post_processor().map_or(0, |processor| {
            use tokenizers::PostProcessor;
            processor.added_tokens(true)
        });
        if max_tokens <= pair_tokens {
            return Err(wrong(format!(
                "a sequence of {max_tokens} tokens has no room beside {pair_tokens} special ones"
            )));
        }
        tokenizer.with_padding(None);
        // What looks like a special token in a text is text.
        tokenizer.set_encode_special_tokens(true);
        tokenizer
            .with_truncation(Some(TruncationParams {
                max_length: max_tokens,
                ..TruncationParams::default()
            }))
            .map_err(|error| wrong(error.to_string()))?;
        Ok(TextTokenizer {
            tokenizer,
            max_tokens,
            segments: config.type_vocab_size,
        })
    }

    /// The longest sequence, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// The text of a token id.
    pub fn token(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    /// Tokenizes all inputs in parallel, in their order.
    pub fn encode<'s>(&self, inputs: Vec<EncodeInput<'s>>) -> Result<Vec<Encoding>, EncoderError> {
        inputs
            .into_par_iter()
            .enumerate()
            .map(|(text, input)| {
                self.tokenizer
                    .encode_fast(input, true)
                    .map_err(|error| EncoderError::Tokenize {
                        text,
                        problem: error.to_string(),
                    })
            })
            .collect()
    }

    /// Groups sequences of like length, runs `work` on the groups in parallel, and returns one
    /// result a sequence, in the order of `encodings`. `work` must return one result a sequence.
    pub fn grouped<T: Send>(
        &self,
        encodings: &[Encoding],
        work: impl Fn(&Packed) -> Vec<T> + Sync,
    ) -> Vec<T> {
        let mut order: Vec<usize> = (0..encodings.len()).collect();
        // Longest first: the last groups to start are the short ones.
        order.sort_by_key(|&at| std::cmp::Reverse(encodings[at].len()));
        let total: usize = encodings.iter().map(Encoding::len).sum();
        let threads = rayon::current_num_threads();
        let target = (total / (4 * threads).max(1)).clamp(SMALLEST_GROUP, LARGEST_GROUP);
        let mut groups: Vec<(Vec<usize>, Packed)> = Vec::new();
        for at in order {
            let encoding = &encodings[at];
            match groups.last_mut() {
                Some((members, packed)) if packed.ids.len() + encoding.len() <= target => {
                    members.push(at);
                    self.push(packed, encoding);
                }
                _ => {
                    let mut packed = Packed::default();
                    self.push(&mut packed, encoding);
                    groups.push((vec![at], packed));
                }
            }
        }
        let results: Vec<Vec<T>> = groups.par_iter().map(|(_, packed)| work(packed)).collect();
        let mut placed: Vec<Option<T>> = (0..encodings.len()).map(|_| None).collect();
        for ((members, _), results) in groups.iter().zip(results) {
            debug_assert_eq!(members.len(), results.len());
            for (&at, result) in members.iter().zip(results) {
                placed[at] = Some(result);
            }
        }
        placed.into_iter().flatten().collect()
    }

    fn push(&self, packed: &mut Packed, encoding: &Encoding) {
        let start = packed.ids.len();
        packed.ids.extend_from_slice(encoding.get_ids());
        // RoBERTa has one segment for both texts of a pair.
        let last = (self.segments - 1) as u32;
        packed.segments.extend(
            encoding
                .get_type_ids()
                .iter()
                .map(|&segment| segment.min(last)),
        );
        packed.sequences.push(start..packed.ids.len());
    }
}
