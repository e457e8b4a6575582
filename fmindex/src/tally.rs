//! Continuations of a phrase: as a sorted list with counts, and as a bit mask over the alphabet.

use std::cell::RefCell;

use bitvec::domain::Domain;
use bitvec::order::Lsb0;
use bitvec::slice::BitSlice;

use crate::Symbol;

/// A mask over the alphabet: bit `s` says whether symbol `s` may come next.
pub type Mask = BitSlice<u64, Lsb0>;

/// A symbol that continues a phrase, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Continuation {
    /// The next symbol; never the separator.
    pub symbol: Symbol,
    /// Live occurrences of the phrase followed by `symbol`; at least 1.
    pub count: u64,
}

/// Counts by symbol that come out sorted, in time of what was added: a table of counts under a
/// bitmap of three levels. Empty between uses; one a thread, see [`with_tally`].
#[derive(Default)]
pub(crate) struct Tally {
    counts: Vec<u64>,
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl Tally {
    fn fit(&mut self, alphabet: u32) {
        let alphabet = alphabet as usize;
        if self.counts.len() < alphabet {
            self.counts.resize(alphabet, 0);
            self.words.resize(alphabet.div_ceil(64), 0);
            self.summary.resize(self.words.len().div_ceil(64), 0);
        }
    }

    /// Adds `count` to `symbol`. Symbols outside of the alphabet are dropped: a damaged file may
    /// name them.
    #[inline]
    pub(crate) fn add(&mut self, symbol: Symbol, count: u64) {
        let symbol = symbol as usize;
        if let Some(total) = self.counts.get_mut(symbol) {
            *total += count;
            self.words[symbol / 64] |= 1 << (symbol % 64);
            self.summary[symbol / 4096] |= 1 << (symbol / 64 % 64);
        }
    }

    /// Calls `each` with every symbol and its count, in order of symbols, and empties the tally.
    #[inline]
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Symbol, u64)) {
        for (at, summary) in self.summary.iter_mut().enumerate() {
            let mut groups = std::mem::take(summary);
            while groups != 0 {
                let word = at * 64 + groups.trailing_zeros() as usize;
                groups &= groups - 1;
                let mut bits = std::mem::take(&mut self.words[word]);
                while bits != 0 {
                    let symbol = word * 64 + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    each(symbol as Symbol, std::mem::take(&mut self.counts[symbol]));
                }
            }
        }
    }
}

/// Runs `use_it` with this thread's empty tally for an alphabet.
pub(crate) fn with_tally<R>(alphabet: u32, use_it: impl FnOnce(&mut Tally) -> R) -> R {
    thread_local! {
        static TALLY: RefCell<Tally> = RefCell::default();
    }
    TALLY.with(|tally| match tally.try_borrow_mut() {
        Ok(mut tally) => {
            tally.fit(alphabet);
            use_it(&mut tally)
        }
        // A caller's closure asks for continuations inside of another listing: a tally of its own.
        Err(_) => {
            let mut tally = Tally::default();
            tally.fit(alphabet);
            use_it(&mut tally)
        }
    })
}

/// Where allowed symbols are written: the words of a mask, zeroed.
pub(crate) struct MaskWords<'a> {
    words: &'a mut [u64],
}

impl MaskWords<'_> {
    /// Sets the bit of `symbol`; symbols beyond the mask are dropped.
    #[inline]
    pub(crate) fn set(&mut self, symbol: Symbol) {
        if let Some(word) = self.words.get_mut(symbol as usize / 64) {
            *word |= 1 << (symbol % 64);
        }
    }

    /// Joins `words` of a whole mask.
    pub(crate) fn join(&mut self, words: impl Iterator<Item = u64>) {
        for (word, other) in self.words.iter_mut().zip(words) {
            *word |= other;
        }
    }
}

/// Clears `mask`, lets `fill` set bits, and leaves bits at and beyond `alphabet` clear.
pub(crate) fn fill_mask(mask: &mut Mask, alphabet: u32, fill: impl FnOnce(&mut MaskWords<'_>)) {
    mask.fill(false);
    let whole = mask.len() / 64 * 64;
    let in_place = matches!(
        mask[..whole].domain(),
        Domain::Region {
            head: None,
            tail: None,
            ..
        }
    ) && mask.len() >= alphabet as usize
        && whole >= alphabet as usize;
    if in_place {
        if let Domain::Region { body, .. } = mask[..whole].domain_mut() {
            let words = (alphabet as usize).div_ceil(64);
            fill(&mut MaskWords {
                words: &mut body[..words],
            });
        }
    } else {
        let mut words = vec![0; (alphabet as usize).div_ceil(64)];
        fill(&mut MaskWords { words: &mut words });
        let bits = BitSlice::<u64, Lsb0>::from_slice(&words);
        let length = mask.len().min(alphabet as usize);
        mask[..length].copy_from_bitslice(&bits[..length]);
    }
    if mask.len() > alphabet as usize {
        mask[alphabet as usize..].fill(false);
    }
}
