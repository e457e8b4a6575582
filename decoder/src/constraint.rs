//! The phrase constraint: which tokens may follow, so that what is written is text that exists.
//!
//! One type over the corpus-level index (clues) and the per-document indexes of the candidates
//! (evidence). It can be cloned, rolled back and replayed; an error is typed and sticky. If nothing
//! continues the phrase, nothing is allowed: there is no fallback to the free vocabulary.

use std::collections::HashSet;
use std::sync::Arc;

use fmindex::{Continuation, DocumentSet, Index, Mask, Ranges, SetPosition, SetRanges, Symbol};

/// Why a constraint refuses to go on. Sticky: once set, every later call answers with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConstraintError {
    /// A token was taken that does not continue the phrase in any text in scope.
    #[error(
        "token {symbol} at position {position} does not continue the phrase in any text in scope"
    )]
    NotAllowed {
        /// The refused token.
        symbol: Symbol,
        /// Its position in the phrase, from 0.
        position: usize,
    },
    /// More tokens were to be taken back than the phrase holds.
    #[error("cannot take back {asked} tokens of a phrase of {length}")]
    RollbackTooFar {
        /// Tokens to take back.
        asked: usize,
        /// Tokens of the phrase.
        length: usize,
    },
}

/// Where a phrase may stand.
#[derive(Clone)]
enum Space {
    Corpus(Index),
    /// `aligned`: where the same tokens count as the same phrase; everywhere if `None`.
    Documents {
        set: Arc<DocumentSet>,
        aligned: Option<Arc<HashSet<SetPosition>>>,
    },
}

/// One phrase so far: its rows, and under alignment the positions that survive.
#[derive(Clone)]
enum Standing {
    Corpus(Ranges),
    Documents {
        ranges: SetRanges,
        surviving: Option<Arc<Vec<SetPosition>>>,
    },
}

/// The phrase written so far and what may follow it.
///
/// `allowed` lists tokens with the number of their occurrences, `allows` tests one, `mask` fills a bit
/// per symbol; all three agree at every step. Sources: SEAL (arXiv:2204.10628), RetroLLM
/// (arXiv:2412.11919).
#[derive(Clone)]
pub struct PhraseConstraint {
    space: Space,
    /// `standing[i]` after `i` tokens; never empty.
    standing: Vec<Standing>,
    tokens: Vec<Symbol>,
    error: Option<ConstraintError>,
}

impl PhraseConstraint {
    /// An empty phrase under the corpus-level index: anything in a live document is in scope.
    pub fn corpus(index: &Index) -> Self {
        let standing = vec![Standing::Corpus(index.full())];
        Self {
            space: Space::Corpus(index.clone()),
            standing,
            tokens: Vec::new(),
            error: None,
        }
    }

    /// An empty phrase under the per-document indexes of a set: every position is in scope.
    pub fn documents(set: Arc<DocumentSet>) -> Self {
        let standing = vec![Standing::Documents {
            ranges: set.full(),
            surviving: None,
        }];
        let space = Space::Documents { set, aligned: None };
        Self {
            space,
            standing,
            tokens: Vec::new(),
            error: None,
        }
    }

    /// An empty phrase that begins at one of `first` and then stands wherever the same tokens begin at
    /// a position of `aligned` (which should hold `first`).
    pub fn documents_from(
        set: Arc<DocumentSet>,
        first: Vec<SetPosition>,
        aligned: Arc<HashSet<SetPosition>>,
    ) -> Self {
        let surviving = Some(Arc::new(first));
        let standing = vec![Standing::Documents {
            ranges: set.full(),
            surviving,
        }];
        let space = Space::Documents {
            set,
            aligned: Some(aligned),
        };
        Self {
            space,
            standing,
            tokens: Vec::new(),
            error: None,
        }
    }

    fn now(&self) -> &Standing {
        self.standing
            .last()
            .expect("the empty phrase always stands")
    }

    /// Tokens of the phrase so far.
    pub fn tokens(&self) -> &[Symbol] {
        &self.tokens
    }

    /// The sticky error, if one occurred.
    pub fn error(&self) -> Option<ConstraintError> {
        self.error
    }

    /// Lists what may follow, by rising symbol, with the number of occurrences of each.
    /// Empty after an error or where the phrase stands only before separators.
    pub fn allowed(&self, into: &mut Vec<Continuation>) {
        into.clear();
        if self.error.is_some() {
            return;
        }
        match (&self.space, self.now()) {
            (Space::Corpus(index), Standing::Corpus(ranges)) => index.continuations(ranges, into),
            (
                Space::Documents { set, .. },
                Standing::Documents {
                    surviving: Some(surviving),
                    ..
                },
            ) => {
                into.extend(surviving.iter().filter_map(|&position| {
                    let symbol = self.symbol_after(set, position)?;
                    Some(Continuation { symbol, count: 1 })
                }));
                into.sort_unstable_by_key(|continuation| continuation.symbol);
                into.dedup_by(|next, kept| {
                    let same = next.symbol == kept.symbol;
                    kept.count += if same { next.count } else { 0 };
                    same
                });
            }
            (Space::Documents { set, .. }, Standing::Documents { ranges, .. }) => {
                set.continuations(ranges, into);
            }
            _ => unreachable!("space and standing are made together"),
        }
    }

    /// The token that follows the phrase at a surviving position; `None` before a separator or the end.
    fn symbol_after(&self, set: &DocumentSet, position: SetPosition) -> Option<Symbol> {
        let document = set.members().get(position.member as usize)?;
        let symbol = *document
            .tokens()
            .get(position.start as usize + self.tokens.len())?;
        (symbol != document.separator()).then_some(symbol)
    }

    /// Whether `symbol` may follow.
    pub fn allows(&self, symbol: Symbol) -> bool {
        if self.error.is_some() {
            return false;
        }
        match (&self.space, self.now()) {
            (Space::Corpus(index), Standing::Corpus(ranges)) => index.allows(ranges, symbol),
            (Space::Documents { set, .. }, Standing::Documents { ranges, surviving }) => {
                match surviving {
                    Some(surviving) => surviving
                        .iter()
                        .any(|&position| self.symbol_after(set, position) == Some(symbol)),
                    None => !set.extend(ranges, symbol).is_empty(),
                }
            }
            _ => unreachable!("space and standing are made together"),
        }
    }

    /// Sets the bit of every symbol that may follow and clears all others, whatever the mask's length:
    /// a vocabulary padded beyond the alphabet stays closed.
    pub fn mask(&self, mask: &mut Mask) {
        mask.fill(false);
        let mut allowed = Vec::new();
        self.allowed(&mut allowed);
        for continuation in allowed {
            if let Some(mut bit) = mask.get_mut(continuation.symbol as usize) {
                *bit = true;
            }
        }
    }

    /// The one token that may follow, where there is exactly one.
    pub fn forced(&self) -> Option<Symbol> {
        let mut allowed = Vec::new();
        self.allowed(&mut allowed);
        match allowed[..] {
            [only] => Some(only.symbol),
            _ => None,
        }
    }

    /// Appends a token to the phrase.
    ///
    /// # Errors
    /// [`ConstraintError::NotAllowed`], sticky, where the token does not continue the phrase.
    pub fn advance(&mut self, symbol: Symbol) -> Result<(), ConstraintError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let next = match (&self.space, self.now()) {
            (Space::Corpus(index), Standing::Corpus(ranges)) => {
                let allowed = index.allows(ranges, symbol);
                allowed.then(|| Standing::Corpus(index.extend(ranges, symbol)))
            }
            (Space::Documents { set, aligned }, Standing::Documents { ranges, surviving }) => {
                let ranges = set.extend(ranges, symbol);
                let surviving = match (aligned, surviving) {
                    (Some(aligned), Some(surviving)) => {
                        let opened = surviving
                            .iter()
                            .any(|&at| self.symbol_after(set, at) == Some(symbol));
                        let kept: Vec<SetPosition> = if self.tokens.is_empty() && opened {
                            set.positions(&ranges)
                                .filter(|at| aligned.contains(at))
                                .collect()
                        } else {
                            let stays =
                                |at: &SetPosition| self.symbol_after(set, *at) == Some(symbol);
                            surviving.iter().copied().filter(stays).collect()
                        };
                        Some(Arc::new(kept))
                    }
                    _ => None,
                };
                let alive = surviving
                    .as_ref()
                    .map_or(!ranges.is_empty(), |surviving| !surviving.is_empty());
                alive.then_some(Standing::Documents { ranges, surviving })
            }
            _ => unreachable!("space and standing are made together"),
        };
        match next {
            Some(next) => {
                self.standing.push(next);
                self.tokens.push(symbol);
                Ok(())
            }
            None => {
                let error = ConstraintError::NotAllowed {
                    symbol,
                    position: self.tokens.len(),
                };
                self.error = Some(error);
                Err(error)
            }
        }
    }

    /// Takes the last `count` tokens back.
    ///
    /// # Errors
    /// [`ConstraintError::RollbackTooFar`], or the sticky error of before.
    pub fn rollback(&mut self, count: usize) -> Result<(), ConstraintError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let length = self.tokens.len();
        if count > length {
            let error = ConstraintError::RollbackTooFar {
                asked: count,
                length,
            };
            self.error = Some(error);
            return Err(error);
        }
        self.tokens.truncate(length - count);
        self.standing.truncate(self.standing.len() - count);
        Ok(())
    }

    /// The places where the phrase stands, under per-document indexes; empty for a corpus constraint.
    /// Before the first token: where it may begin.
    pub fn positions(&self) -> Vec<SetPosition> {
        match (&self.space, self.now()) {
            (
                _,
                Standing::Documents {
                    surviving: Some(surviving),
                    ..
                },
            ) => surviving.to_vec(),
            (Space::Documents { set, .. }, Standing::Documents { ranges, .. }) => {
                set.positions(ranges).collect()
            }
            _ => Vec::new(),
        }
    }

    /// How often the phrase occurs in scope, aligned or not.
    pub fn count(&self) -> u64 {
        match (&self.space, self.now()) {
            (Space::Corpus(index), Standing::Corpus(ranges)) => index.count(ranges),
            (Space::Documents { set, .. }, Standing::Documents { ranges, .. }) => set.count(ranges),
            _ => unreachable!("space and standing are made together"),
        }
    }
}
