//! A session with a language model: one growing context, logits when asked for, and what they cost.

use std::time::{Duration, Instant};

use models::ModelError;
use models::language_model::{Cache, LanguageModel, Wanted};
use serde::{Deserialize, Serialize};

/// What the decoder asks of a language model: logits after a context that can be cut back.
///
/// The model knows nothing of constraints. A deterministic implementation stands in for a model where
/// a test compares two ways of decoding.
pub trait LogitsSource {
    /// Appends `tokens` (at least one) to the context and returns the logits after the last of them:
    /// one number a vocabulary entry, padding rows included.
    ///
    /// # Errors
    /// The model cannot take the tokens, for one because its context is full.
    fn append(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError>;
    /// Appends `tokens` in one pass and returns the logits after each of the last `rows` of them, in order.
    ///
    /// # Errors
    /// As [`LogitsSource::append`].
    fn append_for_last(&mut self, tokens: &[u32], rows: usize)
    -> Result<Vec<Vec<f32>>, ModelError>;
    /// Cuts the context back to its first `length` tokens.
    fn truncate(&mut self, length: usize);
    /// Vocabulary entries that stand for something; logits at or above this are padding.
    fn vocabulary_size(&self) -> usize;
    /// Every token that ends a generation.
    fn end_tokens(&self) -> &[u32];
    /// Most tokens the context can hold.
    fn context_length(&self) -> usize;
}

/// A language model with a cache of its own.
pub struct ModelSource<'m> {
    model: &'m LanguageModel,
    cache: Cache,
}

impl<'m> ModelSource<'m> {
    /// A source with an empty context.
    pub fn new(model: &'m LanguageModel) -> Self {
        Self {
            model,
            cache: model.new_cache(),
        }
    }

    /// A source that goes on from what `cache` holds.
    pub fn with_cache(model: &'m LanguageModel, cache: Cache) -> Self {
        Self { model, cache }
    }

    /// The model.
    pub fn model(&self) -> &'m LanguageModel {
        self.model
    }

    /// What was read.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}

impl LogitsSource for ModelSource<'_> {
    fn append(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        let logits = self.model.forward(&mut self.cache, tokens, Wanted::Last)?;
        Ok(logits.row(0).to_vec())
    }

    fn append_for_last(
        &mut self,
        tokens: &[u32],
        rows: usize,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let places: Vec<usize> = (tokens.len().saturating_sub(rows)..tokens.len()).collect();
        let wanted = Wanted::At(&places);
        let logits = self.model.forward(&mut self.cache, tokens, wanted)?;
        Ok((0..logits.rows())
            .map(|row| logits.row(row).to_vec())
            .collect())
    }

    fn truncate(&mut self, length: usize) {
        self.cache.truncate(length);
    }

    fn vocabulary_size(&self) -> usize {
        self.model.tokenizer().vocabulary_size() as usize
    }

    fn end_tokens(&self) -> &[u32] {
        self.model.end_tokens()
    }

    fn context_length(&self) -> usize {
        self.model.context_length()
    }
}

/// What a session cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Forward passes of the model.
    pub passes: u64,
    /// Positions evaluated in them.
    pub evaluated: u64,
    /// Tokens written by the model or forced by a constraint.
    pub written: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.passes += other.passes;
        self.evaluated += other.evaluated;
        self.written += other.written;
    }
}

/// A context that is fed lazily: tokens are appended without a pass, and one pass evaluates all that
/// are waiting when logits are asked for. So a run of forced tokens costs no pass of its own.
pub struct Session<S> {
    source: S,
    tokens: Vec<u32>,
    /// Tokens of the context that the source has read.
    read: usize,
    logits: Vec<f32>,
    cost: Cost,
    passing: Duration,
}

impl<S: LogitsSource> Session<S> {
    /// A session over a source whose context holds `read` already.
    pub fn new(source: S, read: Vec<u32>) -> Self {
        Self {
            source,
            read: read.len(),
            tokens: read,
            logits: Vec::new(),
            cost: Cost::default(),
            passing: Duration::ZERO,
        }
    }

    /// All tokens of the context, those waiting included.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// What the session cost so far.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Time that its passes took so far.
    pub fn passing(&self) -> Duration {
        self.passing
    }

    /// Appends tokens that are given, such as a prompt.
    pub fn push(&mut self, tokens: &[u32]) {
        if !tokens.is_empty() {
            self.tokens.extend_from_slice(tokens);
            self.logits.clear();
        }
    }

    /// Appends one token that was chosen or forced.
    pub fn write(&mut self, token: u32) {
        self.push(&[token]);
        self.cost.written += 1;
    }

    /// Takes the last `count` tokens back; the logits then have to be asked for again.
    pub fn rollback(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let length = self.tokens.len().saturating_sub(count);
        self.tokens.truncate(length);
        self.logits.clear();
        if length < self.read {
            self.source.truncate(length);
            self.read = length;
        }
    }

    /// Logits after each of the last `count` tokens of the context (all, if it is shorter), in order, from one pass
    /// over them and whatever else was waiting.
    ///
    /// # Errors
    /// The model's own.
    pub fn logits_of_last(&mut self, count: usize) -> Result<Vec<Vec<f32>>, ModelError> {
        let count = count.min(self.tokens.len());
        if count == 0 {
            return Ok(Vec::new());
        }
        // What was read of the last tokens is read again: only the logits of one position are kept.
        let from = self.read.min(self.tokens.len() - count);
        if from < self.read {
            self.source.truncate(from);
        }
        let waiting = &self.tokens[from..];
        let start = Instant::now();
        let mut rows = self.source.append_for_last(waiting, count)?;
        self.passing += start.elapsed();
        self.cost.passes += 1;
        self.cost.evaluated += waiting.len() as u64;
        self.read = self.tokens.len();
        let size = self.source.vocabulary_size();
        rows.iter_mut().for_each(|row| row.truncate(size));
        self.logits = rows.last().cloned().unwrap_or_default();
        Ok(rows)
    }

    /// Counts what was spent on branches of the context.
    pub fn spend(&mut self, cost: Cost, passing: Duration) {
        self.cost += cost;
        self.passing += passing;
    }

    /// Counts a run of tokens that were pushed to see where they end as written.
    pub fn count_written(&mut self, tokens: u64) {
        self.cost.written += tokens;
    }

    /// Logits after the context, one a vocabulary entry; padding is cut off.
    ///
    /// # Errors
    /// The model's own; an empty context.
    pub fn logits(&mut self) -> Result<&[f32], ModelError> {
        if self.logits.is_empty() {
            if self.read == self.tokens.len() {
                // Everything was read, but the logits are gone: the last token is read again.
                self.read = self.read.saturating_sub(1);
                self.source.truncate(self.read);
            }
            let waiting = &self.tokens[self.read..];
            let start = Instant::now();
            let mut logits = self.source.append(waiting)?;
            self.passing += start.elapsed();
            self.cost.passes += 1;
            self.cost.evaluated += waiting.len() as u64;
            self.read = self.tokens.len();
            logits.truncate(self.source.vocabulary_size());
            self.logits = logits;
        }
        Ok(&self.logits)
    }
}
