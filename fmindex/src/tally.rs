//! Continuations of a phrase: as a sorted list with counts, and as a bit mask over the alphabet.

use std::cell::RefCell;

use bitvec::domain::Domain;
use bitvec::field::BitField;
use bitvec::order::Lsb0;
use bitvec::slice::BitSlice;

use crate::Symbol;
use crate::bits::low_mask;

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
    /// An empty tally for an alphabet.
    pub(crate) fn new(alphabet: u32) -> Self {
        let mut tally = Self::default();
        tally.fit(alphabet);
        tally
    }

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

    /// Takes 1 from `symbol`, which was added before; one that comes to 0 is not drained.
    #[inline]
    pub(crate) fn remove_one(&mut self, symbol: Symbol) {
        if let Some(total) = self.counts.get_mut(symbol as usize) {
            *total = total.saturating_sub(1);
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
                    let count = std::mem::take(&mut self.counts[symbol]);
                    if count > 0 {
                        each(symbol as Symbol, count);
                    }
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
        Err(_) => use_it(&mut Tally::new(alphabet)),
    })
}

/// Where allowed symbols are written: the whole words of a mask, and its last bits.
pub(crate) struct MaskWords<'a> {
    whole: &'a mut [u64],
    last: u64,
}

impl MaskWords<'_> {
    /// Sets the bit of `symbol`; symbols beyond the mask are dropped.
    #[inline(always)]
    pub(crate) fn set(&mut self, symbol: Symbol) {
        let at = symbol as usize / 64;
        let words = self.whole.len();
        match self.whole.get_mut(at) {
            Some(word) => *word |= 1 << (symbol % 64),
            None if at == words => self.last |= 1 << (symbol % 64),
            None => {}
        }
    }

    /// Joins the words of another mask.
    pub(crate) fn join(&mut self, mut words: impl Iterator<Item = u64>) {
        for word in self.whole.iter_mut() {
            *word |= words.next().unwrap_or(0);
        }
        self.last |= words.next().unwrap_or(0);
    }
}

/// Clears `mask` and lets `fill` set bits; bits at and beyond `alphabet` stay clear.
pub(crate) fn fill_mask(mask: &mut Mask, alphabet: u32, fill: impl FnOnce(&mut MaskWords<'_>)) {
    let used = (alphabet as usize).min(mask.len());
    mask[used..].fill(false);
    let whole = used / 64 * 64;
    let last;
    if let Domain::Region {
        head: None,
        body,
        tail: None,
    } = mask[..whole].domain_mut()
    {
        body.fill(0);
        let mut words = MaskWords {
            whole: body,
            last: 0,
        };
        fill(&mut words);
        last = words.last;
    } else {
        // A mask that does not start at a word.
        let mut words = vec![0; whole / 64];
        let mut others = MaskWords {
            whole: &mut words,
            last: 0,
        };
        fill(&mut others);
        last = others.last;
        mask[..whole].copy_from_bitslice(Mask::from_slice(&words));
    }
    if used > whole {
        let last = last & low_mask((used - whole) as u32);
        mask[whole..used].store_le(last);
    }
}
