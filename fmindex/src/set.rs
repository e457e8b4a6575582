//! The union of a candidate set of per-document indexes: one phrase over all of them in one call.

use std::sync::Arc;

use crate::document::DocumentIndex;
use crate::range::RowRange;
use crate::tally::{Continuation, with_tally};
use crate::{MAX_ALPHABET, Symbol};

/// A candidate set of documents, queried as one. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use fmindex::{DocumentIndex, DocumentSet};
/// let first = Arc::new(DocumentIndex::build(&[1, 2, 0], 0));
/// let second = Arc::new(DocumentIndex::build(&[3, 1, 2, 0], 0));
/// let set = DocumentSet::new(vec![first, second]);
/// let ranges = set.range(&[1, 2]);
/// let places: Vec<_> = set.positions(&ranges).map(|p| (p.member, p.start)).collect();
/// assert_eq!(places, [(0, 0), (1, 1)]);
/// ```
#[derive(Clone, Debug)]
pub struct DocumentSet {
    members: Arc<[Arc<DocumentIndex>]>,
}

/// A place where a phrase stands in a candidate set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetPosition {
    /// Index of the document in the set.
    pub member: u32,
    /// Token offset of the phrase's first token in that document.
    pub start: u32,
}

/// The rows of one phrase in the members that hold it, and the phrase's length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRanges {
    ranges: Vec<(u32, RowRange)>,
    length: u32,
}

impl SetRanges {
    /// Whether no member holds the phrase.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Length of the phrase in tokens.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The members that hold the phrase, ascending.
    pub fn members(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().map(|&(member, _)| member)
    }
}

impl DocumentSet {
    /// A set of documents; their order gives the members their numbers.
    pub fn new(members: Vec<Arc<DocumentIndex>>) -> Self {
        Self {
            members: members.into(),
        }
    }

    /// The documents.
    pub fn members(&self) -> &[Arc<DocumentIndex>] {
        &self.members
    }

    /// The empty phrase.
    pub fn full(&self) -> SetRanges {
        let members = self.members.iter().enumerate();
        SetRanges {
            ranges: members
                .map(|(at, member)| (at as u32, member.full()))
                .collect(),
            length: 0,
        }
    }

    /// The rows of a phrase; none for the separator and unknown symbols.
    pub fn range(&self, phrase: &[Symbol]) -> SetRanges {
        phrase
            .iter()
            .fold(self.full(), |ranges, &symbol| self.extend(&ranges, symbol))
    }

    /// The rows of the phrase with `symbol` appended.
    pub fn extend(&self, ranges: &SetRanges, symbol: Symbol) -> SetRanges {
        let extended = ranges.ranges.iter().filter_map(|&(at, range)| {
            let range = self.members.get(at as usize)?.extend(range, symbol);
            (!range.is_empty()).then_some((at, range))
        });
        SetRanges {
            ranges: extended.collect(),
            length: ranges.length + 1,
        }
    }

    /// Symbols that continue the phrase in any member, with counts over all members, ascending.
    pub fn continuations(&self, ranges: &SetRanges, into: &mut Vec<Continuation>) {
        into.clear();
        let symbols = ranges.ranges.iter().filter_map(|&(at, range)| {
            let member = self.members.get(at as usize)?;
            Some(member.next_symbols(range))
        });
        let rows: u64 = ranges.ranges.iter().map(|(_, r)| u64::from(r.len())).sum();
        if rows <= 64 {
            // Few rows: sorting them touches less memory than a table over the alphabet.
            let mut few: Vec<Symbol> = symbols.flatten().collect();
            few.sort_unstable();
            into.extend(few.chunk_by(|a, b| a == b).map(|run| Continuation {
                symbol: run[0],
                count: run.len() as u64,
            }));
            return;
        }
        let mut beyond: Vec<Symbol> = Vec::new();
        with_tally(MAX_ALPHABET, |tally| {
            for symbol in symbols.flatten() {
                if symbol < MAX_ALPHABET {
                    tally.add(symbol, 1);
                } else {
                    beyond.push(symbol);
                }
            }
            tally.drain(|symbol, count| into.push(Continuation { symbol, count }));
        });
        beyond.sort_unstable();
        into.extend(beyond.chunk_by(|a, b| a == b).map(|run| Continuation {
            symbol: run[0],
            count: run.len() as u64,
        }));
    }

    /// Every place where the phrase stands, by member, then in row order. For the empty phrase, every
    /// token that is not a separator.
    pub fn positions<'a>(
        &'a self,
        ranges: &'a SetRanges,
    ) -> impl Iterator<Item = SetPosition> + 'a {
        let length = ranges.length;
        ranges.ranges.iter().flat_map(move |&(member, range)| {
            let document = self.members.get(member as usize);
            document.into_iter().flat_map(move |document| {
                let starts = document.positions(range, length);
                starts.map(move |start| SetPosition { member, start })
            })
        })
    }

    /// Number of places where the phrase stands.
    pub fn count(&self, ranges: &SetRanges) -> u64 {
        let counts = ranges.ranges.iter().filter_map(|&(at, range)| {
            let member = self.members.get(at as usize)?;
            Some(u64::from(member.occurrences(range, ranges.length)))
        });
        counts.sum()
    }
}
