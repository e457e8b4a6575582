//! Measurements against peers: what they share.
//!
//! Tokens come from a raw file of little-endian 32-bit words named by `VERBATIM_TOKENS`, every paragraph
//! closed by the separator, which is the highest symbol in the file. A file `<name>.docs` beside it, if
//! there is one, has the token starts of the documents; without it every paragraph is a document. Where no file is
//! named, they are the tokens of the [`summaries`].

pub mod summaries;
pub mod table;

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Instant;

/// A tokenized corpus.
pub struct Corpus {
    /// Tokens in text order.
    pub tokens: Vec<u32>,
    /// Token start of every document.
    pub starts: Vec<u32>,
    /// Closes every paragraph; the highest symbol.
    pub separator: u32,
}

fn words(path: &PathBuf) -> std::io::Result<Vec<u32>> {
    let bytes = std::fs::read(path)?;
    let words = bytes.chunks_exact(4);
    Ok(words
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect())
}

impl Corpus {
    /// Reads the corpus that `VERBATIM_TOKENS` names, else that of the summaries; `None`, with one line for `target`
    /// that says why, where those cannot be had.
    ///
    /// # Panics
    /// The file that is named cannot be read or has no tokens.
    pub fn at_hand(target: &str) -> Option<Self> {
        let Some(path) = std::env::var_os("VERBATIM_TOKENS") else {
            return match summaries::index() {
                Ok(index) => Some(Self::of(&index)),
                Err(error) => {
                    let how =
                        "VERBATIM_TOKENS names no file of tokens, and the summaries cannot be had";
                    skip(target, format!("{how}: {error:#}"));
                    None
                }
            };
        };
        let path = PathBuf::from(path);
        let tokens = words(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let separator = *tokens.iter().max().expect("a file with tokens");
        let mut beside = path.into_os_string();
        beside.push(".docs");
        let starts = words(&beside.into()).unwrap_or_else(|_| {
            let ends = tokens.iter().enumerate().filter(|&(_, &t)| t == separator);
            let last = tokens.len() - 1;
            std::iter::once(0)
                .chain(
                    ends.map(|(at, _)| at)
                        .filter(|&at| at < last)
                        .map(|at| at as u32 + 1),
                )
                .collect()
        });
        Some(Self {
            tokens,
            starts,
            separator,
        })
    }

    /// The corpus that an index was built of, by its own tokens.
    pub fn of(index: &corpus_tools::Index) -> Self {
        let fm = index.fm();
        let (mut tokens, mut starts) = (Vec::new(), Vec::new());
        for document in index.documents() {
            starts.push(tokens.len() as u32);
            tokens.extend(fm.extract(document, 0..fm.document_length(document)));
        }
        Self {
            tokens,
            starts,
            separator: fm.separator(),
        }
    }

    /// Keeps the documents that end within the first `limit` tokens.
    pub fn cut(&mut self, limit: usize) {
        let kept = self
            .starts
            .partition_point(|&start| start as usize <= limit);
        let end = self.starts[..kept]
            .last()
            .map_or(0, |&start| start as usize);
        if limit < self.tokens.len() && end > 0 {
            self.tokens.truncate(end);
            self.starts.retain(|&start| (start as usize) < end);
        }
    }

    /// Maps the symbols one to one into an alphabet of `alphabet`, as if by a larger vocabulary: every
    /// occurrence of a symbol gets one of several ids by its place, so that more ids are in use. The
    /// separator becomes the highest id.
    ///
    /// # Panics
    /// The alphabet is smaller than the corpus's own.
    pub fn spread(&mut self, alphabet: u32) {
        let own = self.separator;
        assert!(alphabet > own, "an alphabet of {alphabet} is not larger");
        let copies = (alphabet - 1) / own;
        let mut before = self.separator;
        for token in &mut self.tokens {
            let next = *token;
            if next == self.separator {
                *token = alphabet - 1;
            } else {
                // The token before chooses the copy: a larger vocabulary's tokens depend on context too.
                let copy = (before.wrapping_mul(2_654_435_761) >> 16) % copies;
                *token = next + own * copy;
            }
            before = next;
        }
        self.separator = alphabet - 1;
    }

    /// `count` phrases of `length` tokens drawn from the corpus, none across a separator.
    pub fn phrases(&self, length: usize, count: usize, seed: u64) -> Vec<Vec<u32>> {
        let mut state = seed;
        let mut phrases = Vec::with_capacity(count);
        while phrases.len() < count {
            let at = draw(&mut state, self.tokens.len());
            let Some(phrase) = self.tokens.get(at..at + length) else {
                continue;
            };
            if !phrase.contains(&self.separator) {
                phrases.push(phrase.to_vec());
            }
        }
        phrases
    }
}

/// Begins the line of a bench that does not run.
pub const SKIPPED: &str = "skipped: ";

/// Says in one line that `target`, or a part of it, does not run, and why.
pub fn skip(target: &str, why: impl Display) {
    println!("{SKIPPED}{target}: {why}");
}

/// The load of the machine over 1, 5 and 15 minutes; empty where the system does not tell.
pub fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The next number below `most` of a small generator (SplitMix64).
pub fn draw(state: &mut u64, most: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % most as u64) as usize
}

/// Times of single calls.
#[derive(Default)]
pub struct Times(Vec<u64>);

impl Times {
    /// Times one call.
    pub fn call<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = std::hint::black_box(call());
        self.0.push(begun.elapsed().as_nanos() as u64);
        result
    }

    /// The time in microseconds that the given share of the calls does not exceed.
    pub fn quantile(&mut self, share: f64) -> f64 {
        self.0.sort_unstable();
        let at = (self.0.len() as f64 * share) as usize;
        self.0
            .get(at.min(self.0.len().saturating_sub(1)))
            .map_or(0.0, |&t| t as f64 / 1000.0)
    }

    /// Median and 99th percentile in microseconds, as text.
    pub fn shown(&mut self) -> String {
        format!("{:7.2} / {:7.2}", self.quantile(0.5), self.quantile(0.99))
    }
}

/// Seconds for which this thread had a processor: what a wall clock would show on an idle machine.
/// Where the system does not tell (it is Linux that does), seconds of the wall clock.
pub fn busy_seconds() -> f64 {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = schedule.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    match nanoseconds {
        Some(nanoseconds) => nanoseconds / 1e9,
        None => BEGUN.get_or_init(Instant::now).elapsed().as_secs_f64(),
    }
}

/// The most memory that this process has had, in bytes; 0 where the system does not tell.
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}
