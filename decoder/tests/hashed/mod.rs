//! A stand-in for a language model where two ways of decoding are compared: logits that are a fixed function of the
//! context, for one context and for contexts that branch; and an index of what they may write.
#![allow(dead_code)] // Each test file uses its own part.

use std::cell::Cell;
use std::path::Path;

use decoder::beam::{Appended, BranchSource, Branching};
use decoder::session::LogitsSource;
use fmindex::{BuildOptions, Index, Segment, build_segment};
use models::ModelError;
use models::language_model::log_normaliser;

/// The function.
#[derive(Clone, Copy)]
pub struct Logits {
    pub seed: u64,
    /// Tokens that stand for something.
    pub vocabulary: usize,
    /// Logits above those.
    pub padding: usize,
    /// Logits are less than this.
    pub spread: f32,
    /// A token whose logit is 1 more.
    pub liked: Option<u32>,
}

impl Logits {
    /// A function without padding and liking.
    pub fn new(seed: u64, vocabulary: usize) -> Self {
        Self {
            seed,
            vocabulary,
            padding: 0,
            spread: 6.0,
            liked: None,
        }
    }

    /// The logits after a context, padding included.
    pub fn after(&self, context: &[u32]) -> Vec<f32> {
        let mut state = self.seed;
        for &token in context {
            state = (state ^ u64::from(token) ^ 0x51)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23);
        }
        (0..(self.vocabulary + self.padding) as u32)
            .map(|token| {
                let mixed = (state ^ u64::from(token).wrapping_mul(0xd134_2543_de82_ef95))
                    .wrapping_mul(0xaf25_1af3_b0f0_25b5);
                let noise = ((mixed >> 40) as f32 / (1u32 << 24) as f32) * self.spread;
                noise + f32::from(u8::from(self.liked == Some(token)))
            })
            .collect()
    }

    /// Those of the vocabulary.
    pub fn of_vocabulary(&self, context: &[u32]) -> Vec<f32> {
        let mut logits = self.after(context);
        logits.truncate(self.vocabulary);
        logits
    }

    /// The log-probability of a token over the vocabulary.
    pub fn log_probability(&self, context: &[u32], token: u32) -> f64 {
        let logits = self.of_vocabulary(context);
        f64::from(logits[token as usize] - log_normaliser(&logits))
    }
}

/// One context, and the passes over it.
pub struct Hashed {
    pub context: Vec<u32>,
    pub logits: Logits,
    pub passes: Cell<u64>,
}

impl Hashed {
    /// An empty context.
    pub fn new(logits: Logits) -> Self {
        Self {
            context: Vec::new(),
            logits,
            passes: Cell::new(0),
        }
    }
}

impl LogitsSource for Hashed {
    fn append(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        assert!(!tokens.is_empty(), "a pass over nothing");
        self.context.extend_from_slice(tokens);
        self.passes.set(self.passes.get() + 1);
        Ok(self.logits.after(&self.context))
    }

    fn append_for_last(
        &mut self,
        tokens: &[u32],
        rows: usize,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let from = tokens.len() - rows;
        let mut logits = vec![self.append(&tokens[..=from])?];
        for &token in &tokens[from + 1..] {
            self.context.push(token);
            logits.push(self.logits.after(&self.context));
        }
        Ok(logits)
    }

    fn truncate(&mut self, length: usize) {
        self.context.truncate(length);
    }

    fn vocabulary_size(&self) -> usize {
        self.logits.vocabulary
    }

    fn end_tokens(&self) -> &[u32] {
        &[]
    }

    fn context_length(&self) -> usize {
        1 << 20
    }
}

impl Branching for Hashed {
    type Branches = Branches;

    fn branch(&self) -> (Branches, Vec<u32>) {
        (Branches(self.logits), self.context.clone())
    }
}

/// Contexts that branch.
pub struct Branches(pub Logits);

impl BranchSource for Branches {
    type Context = Vec<u32>;

    fn fork(&self, context: &Vec<u32>) -> Vec<u32> {
        context.clone()
    }

    fn append(
        &mut self,
        branches: &mut [(&mut Vec<u32>, &[u32])],
    ) -> Result<Vec<Appended>, ModelError> {
        let read = |(context, tokens): &mut (&mut Vec<u32>, &[u32])| {
            let mut log_probabilities = Vec::new();
            for (at, &token) in tokens.iter().enumerate() {
                if at > 0 {
                    log_probabilities.push(self.0.log_probability(context, token) as f32);
                }
                context.push(token);
            }
            Appended {
                log_probabilities,
                logits: self.0.of_vocabulary(context),
            }
        };
        Ok(branches.iter_mut().map(read).collect())
    }

    fn end_tokens(&self) -> &[u32] {
        &[]
    }
}

/// An index in `folder` of one document of these paragraphs.
pub fn index_of(paragraphs: &[Vec<u32>], separator: u32, folder: &Path) -> Index {
    let closed = |paragraph: &Vec<u32>| [&paragraph[..], &[separator]].concat();
    let tokens: Vec<u32> = paragraphs.iter().flat_map(closed).collect();
    let options = BuildOptions {
        alphabet: separator + 1,
        separator,
        ..Default::default()
    };
    build_segment(folder, tokens, &[0], &options, &()).unwrap();
    Index::new(vec![Segment::open(folder).unwrap()]).unwrap()
}
