//! Building a segment: checks, codes, suffix sorting, and writing the `fm.*` files.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::bwt;
use crate::file::FileError;
use crate::phrases;
use crate::sort::{self, SortError};
use crate::{MAX_ALPHABET, MAX_TOKENS, Symbol};

/// How densely positions are sampled: smaller files, or faster `locate` and `extract`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A suffix-array sample each 32 tokens, an inverse sample each 64.
    #[default]
    Small,
    /// A suffix-array sample each 12 tokens, an inverse sample each 32.
    Fast,
}

impl Profile {
    /// Tokens between two suffix-array samples: a `locate` walks half as many steps on average.
    pub fn sample_rate(self) -> u32 {
        match self {
            Self::Small => 32,
            Self::Fast => 12,
        }
    }

    /// Binary logarithm of the rows of a block: larger blocks are smaller in total, smaller ones faster.
    pub(crate) fn block_shift(self) -> u32 {
        match self {
            Self::Small => 9,
            Self::Fast => 8,
        }
    }

    /// Rows from which on a phrase's continuations are stored.
    pub(crate) fn wide_phrase(self) -> u32 {
        match self {
            Self::Small => 2048,
            Self::Fast => 1024,
        }
    }

    /// Tokens between two inverse samples: an `extract` walks half as many steps to its start.
    pub fn inverse_rate(self) -> u32 {
        match self {
            Self::Small => 64,
            Self::Fast => 32,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "small",
            Self::Fast => "fast",
        })
    }
}

/// The name of a profile that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("no profile is called {0:?}; there are small and fast")]
pub struct UnknownProfile(String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        match name {
            "small" => Ok(Self::Small),
            "fast" => Ok(Self::Fast),
            _ => Err(UnknownProfile(name.to_owned())),
        }
    }
}

/// What a segment is built with.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Symbols are below this number; at most [`MAX_ALPHABET`].
    pub alphabet: u32,
    /// The symbol that closes every paragraph; below `alphabet`.
    pub separator: Symbol,
    /// Sampling rates.
    pub profile: Profile,
    /// Threads to use; 0 for one a processor. The files do not depend on it.
    pub threads: usize,
    /// Bytes of memory that may be taken at the peak, the tokens included; `None` for no limit.
    pub memory: Option<u64>,
}

impl Default for BuildOptions {
    /// Bytes with the separator 256, small, all processors, no limit of memory.
    fn default() -> Self {
        Self {
            alphabet: 257,
            separator: 256,
            profile: Profile::Small,
            threads: 0,
            memory: None,
        }
    }
}

impl BuildOptions {
    /// An upper estimate of the peak memory in bytes for a segment of `tokens` tokens, the caller's
    /// tokens included: what [`build_segment`] compares with [`BuildOptions::memory`].
    pub fn peak_memory(&self, tokens: u64) -> u64 {
        let per_token = self.bytes_per_token();
        let tables = u64::from(self.alphabet) * 64;
        tokens * per_token + tables + (16 << 20)
    }

    /// Tokens and their order take 4 bytes each; counting sorts and coded batches fit beside. Measured on
    /// 72 M tokens: 8.3 bytes with 47,453 symbols, 8.3 with 216,806.
    fn bytes_per_token(&self) -> u64 {
        9
    }

    /// The most tokens a segment can have within [`BuildOptions::memory`]: what a builder cuts
    /// segments at.
    pub fn most_tokens(&self) -> u64 {
        let Some(memory) = self.memory else {
            return MAX_TOKENS - 1;
        };
        let per_token = self.bytes_per_token();
        (memory.saturating_sub(self.peak_memory(0)) / per_token).min(MAX_TOKENS - 1)
    }
}

/// Hears how far a build is, and says whether it should stop. `()` hears nothing and never stops.
pub trait Progress: Sync {
    /// A stage begins that will advance to `total` units (tokens, mostly).
    fn stage(&self, name: &'static str, total: u64) {
        let _ = (name, total);
    }
    /// The stage stands at `done` units.
    fn advance(&self, done: u64) {
        let _ = done;
    }
    /// Whether the build should end with [`BuildError::Interrupted`]. Asked between steps; the suffix
    /// sort is one step.
    fn interrupted(&self) -> bool {
        false
    }
}

impl Progress for () {}

pub(crate) fn stage(
    progress: &dyn Progress,
    name: &'static str,
    total: u64,
) -> Result<(), BuildError> {
    if progress.interrupted() {
        return Err(BuildError::Interrupted);
    }
    progress.stage(name, total);
    Ok(())
}

/// Why a segment was not built. Files that were begun have been removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file cannot be written, or a segment that is merged cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// [`Progress::interrupted`] said so.
    #[error("the build was interrupted; nothing half-written is left")]
    Interrupted,
    /// The alphabet is empty or too large, or the separator lies outside of it.
    #[error(
        "an alphabet of {alphabet} with the separator {separator}: the alphabet must have 1 to {MAX_ALPHABET} symbols and hold the separator"
    )]
    Alphabet {
        /// The alphabet's size that was asked for.
        alphabet: u32,
        /// The separator that was asked for.
        separator: Symbol,
    },
    /// More tokens than a segment can have.
    #[error(
        "{tokens} tokens in one segment; a segment holds fewer than {MAX_TOKENS}: build several"
    )]
    TooLong {
        /// Number of tokens given.
        tokens: u64,
    },
    /// A token is not in the alphabet.
    #[error("token {position} is {symbol}, outside of the alphabet of {alphabet}")]
    Symbol {
        /// Position of the token.
        position: usize,
        /// The token.
        symbol: Symbol,
        /// The alphabet's size.
        alphabet: u32,
    },
    /// Document starts are not ascending from 0 within the tokens.
    #[error(
        "document {document} starts at token {start}: starts must begin with 0, not descend, and lie within the {tokens} tokens"
    )]
    DocumentStart {
        /// Index of the document.
        document: usize,
        /// Its start.
        start: u32,
        /// Number of tokens.
        tokens: usize,
    },
    /// A document that is not empty does not end with the separator.
    #[error("document {document} does not end with the separator: every paragraph is closed by it")]
    NotClosed {
        /// Index of the document.
        document: usize,
    },
    /// The build would take more memory than it may.
    #[error(
        "building {tokens} tokens takes up to {needed} bytes, more than the {budget} allowed: allow more, or build segments of at most {most} tokens"
    )]
    Memory {
        /// Number of tokens given.
        tokens: u64,
        /// Upper estimate of the peak.
        needed: u64,
        /// The budget.
        budget: u64,
        /// Tokens that would fit.
        most: u64,
    },
    /// The suffix sort failed.
    #[error(transparent)]
    Sort(#[from] SortError),
    /// The system gives no threads.
    #[error("no thread pool: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// What a build did.
#[derive(Clone, Debug, Default)]
pub struct BuildReport {
    /// Tokens indexed, separators included.
    pub tokens: u64,
    /// Documents, empty ones included.
    pub documents: u32,
    /// Distinct symbols that occur.
    pub distinct: u32,
    /// Seconds of the suffix sort alone.
    pub sort_seconds: f64,
    /// Seconds of the whole build.
    pub seconds: f64,
    /// Bytes written.
    pub bytes: u64,
}

/// Builds the `fm.*` files of a segment in the existing folder `dir`.
///
/// `tokens` are the documents' tokens in text order, every paragraph closed by the separator; they are
/// taken by value because their memory is used again. `document_starts` gives the token start of every
/// document, ascending from 0; a document that starts where the next one starts is empty.
/// The files are the same for any number of threads.
///
/// # Errors
/// See [`BuildError`]. Nothing that was begun is left.
pub fn build_segment(
    dir: &Path,
    tokens: Vec<Symbol>,
    document_starts: &[u32],
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<BuildReport, BuildError> {
    let begun = std::time::Instant::now();
    check(&tokens, document_starts, options)?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .build()?;
    let mut report = BuildReport {
        tokens: tokens.len() as u64,
        documents: document_starts.len() as u32,
        ..BuildReport::default()
    };
    pool.install(|| -> Result<(), BuildError> {
        let alphabet = Codes::of(&tokens, options, progress)?;
        report.distinct = alphabet.symbols.len() as u32;
        let sorted = sort_reversed(tokens, &alphabet, options, progress, &mut report)?;
        report.bytes = bwt::write(dir, sorted, &alphabet, document_starts, options, progress)?;
        report.bytes += phrases::write(dir, options.profile.wide_phrase(), progress)?;
        Ok(())
    })?;
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

fn check(tokens: &[Symbol], starts: &[u32], options: &BuildOptions) -> Result<(), BuildError> {
    let &BuildOptions {
        alphabet,
        separator,
        ..
    } = options;
    if alphabet == 0 || alphabet > MAX_ALPHABET || separator >= alphabet {
        return Err(BuildError::Alphabet {
            alphabet,
            separator,
        });
    }
    let count = tokens.len() as u64;
    if count >= MAX_TOKENS || starts.len() as u64 >= MAX_TOKENS {
        return Err(BuildError::TooLong { tokens: count });
    }
    if let Some(budget) = options.memory {
        let needed = options.peak_memory(count);
        if needed > budget {
            return Err(BuildError::Memory {
                tokens: count,
                needed,
                budget,
                most: options.most_tokens(),
            });
        }
    }
    let bad_start = |document: usize, start: u32| BuildError::DocumentStart {
        document,
        start,
        tokens: tokens.len(),
    };
    match starts.first() {
        None if tokens.is_empty() => {}
        None => return Err(bad_start(0, 0)),
        Some(&first) if first != 0 => return Err(bad_start(0, first)),
        Some(_) => {}
    }
    for (document, &start) in starts.iter().enumerate() {
        let end = starts
            .get(document + 1)
            .map_or(tokens.len(), |&end| end as usize);
        let start_at = start as usize;
        if end < start_at {
            return Err(bad_start(document + 1, end as u32));
        }
        if end > tokens.len() {
            return Err(bad_start(document + 1, end as u32));
        }
        if end > start_at && tokens[end - 1] != separator {
            return Err(BuildError::NotClosed { document });
        }
    }
    Ok(())
}

/// The codes of a segment's symbols: the separator has code 0, the other symbols that occur follow in
/// order of falling frequency, so that codes are dense and small ones are frequent.
pub(crate) struct Codes {
    /// Code by symbol; `u32::MAX` where the symbol does not occur.
    pub(crate) code: Vec<u32>,
    /// Symbol by code.
    pub(crate) symbols: Vec<Symbol>,
    /// Occurrences of smaller codes, by code; one more entry for the total.
    pub(crate) starts: Vec<u32>,
}

/// No code: the symbol does not occur.
pub(crate) const NO_CODE: u32 = u32::MAX;

impl Codes {
    fn of(
        tokens: &[Symbol],
        options: &BuildOptions,
        progress: &dyn Progress,
    ) -> Result<Self, BuildError> {
        stage(progress, "count symbols", tokens.len() as u64)?;
        let alphabet = options.alphabet;
        let mut counts = vec![0u32; alphabet as usize];
        for (position, &symbol) in tokens.iter().enumerate() {
            *counts.get_mut(symbol as usize).ok_or(BuildError::Symbol {
                position,
                symbol,
                alphabet,
            })? += 1;
        }
        let mut symbols: Vec<Symbol> = (0..alphabet)
            .filter(|&symbol| symbol != options.separator && counts[symbol as usize] > 0)
            .collect();
        symbols.sort_by_key(|&symbol| (std::cmp::Reverse(counts[symbol as usize]), symbol));
        symbols.insert(0, options.separator);
        let mut code = vec![NO_CODE; alphabet as usize];
        let mut starts = Vec::with_capacity(symbols.len() + 1);
        let mut total = 0;
        for (at, &symbol) in symbols.iter().enumerate() {
            code[symbol as usize] = at as u32;
            starts.push(total);
            total += counts[symbol as usize];
        }
        starts.push(total);
        Ok(Self {
            code,
            symbols,
            starts,
        })
    }

    /// Number of codes, the separator's included.
    pub(crate) fn len(&self) -> u32 {
        self.symbols.len() as u32
    }
}

/// The reversed text in codes, as wide as the sorter needs them.
pub(crate) enum Reversed {
    Narrow(Vec<u16>),
    Wide(Vec<i32>),
}

impl Reversed {
    /// The code at a position of the reversed text.
    #[inline]
    pub(crate) fn code(&self, at: usize) -> u32 {
        match self {
            Self::Narrow(codes) => u32::from(codes[at]),
            Self::Wide(codes) => codes[at] as u32,
        }
    }
}

/// A sorted text: its suffix array and its codes, both over the reversed text.
pub(crate) struct Sorted {
    pub(crate) text: Reversed,
    pub(crate) suffixes: Vec<i32>,
}

fn sort_reversed(
    mut tokens: Vec<Symbol>,
    alphabet: &Codes,
    options: &BuildOptions,
    progress: &dyn Progress,
    report: &mut BuildReport,
) -> Result<Sorted, BuildError> {
    stage(progress, "sort suffixes", tokens.len() as u64)?;
    let begun;
    let (text, suffixes) = if alphabet.len() <= 1 << 16 {
        let codes = |&symbol: &Symbol| alphabet.code[symbol as usize] as u16;
        let text: Vec<u16> = tokens.iter().rev().map(codes).collect();
        drop(tokens);
        begun = std::time::Instant::now();
        let suffixes = sort::suffix_array_u16(&text, options.threads)?;
        (Reversed::Narrow(text), suffixes)
    } else {
        tokens.reverse();
        // The same memory: 32-bit words of the same size and alignment.
        let mut text: Vec<i32> = tokens
            .into_iter()
            .map(|symbol| alphabet.code[symbol as usize] as i32)
            .collect();
        begun = std::time::Instant::now();
        let suffixes = sort::suffix_array_i32(&mut text, alphabet.len(), options.threads)?;
        (Reversed::Wide(text), suffixes)
    };
    report.sort_seconds = begun.elapsed().as_secs_f64();
    progress.advance(report.tokens);
    let mut suffixes = suffixes;
    suffixes.truncate(report.tokens as usize);
    Ok(Sorted { text, suffixes })
}
