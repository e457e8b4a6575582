//! One or many segments queried as if one.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::Symbol;
use crate::bwt::LANES;
use crate::dead::DeadRows;
use crate::phrases::SymbolList;
use crate::range::{Ranges, RowRange};
use crate::segment::Segment;
use crate::tally::{Continuation, Mask, MaskWords, Tally, fill_mask, with_tally};

/// A document of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId {
    /// Index of the segment.
    pub segment: u32,
    /// Index of the document in the segment.
    pub document: u32,
}

/// A place where a phrase stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Occurrence {
    /// The document.
    pub document: DocumentId,
    /// Token offset of the phrase's first token in the document.
    pub start: u32,
}

/// In which documents a phrase stands, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentCounts {
    /// Documents with their term frequency, ascending by document.
    pub counts: Vec<(DocumentId, u32)>,
    /// Whether the phrase has more live occurrences than were looked at; the counts then speak of
    /// those that were.
    pub capped: bool,
}

/// Why segments cannot be queried together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Two segments have different alphabets or separators.
    #[error(
        "segment {segment} has an alphabet of {found:?} symbols and separator, the first segment one of {expected:?}: they were built with different tokenizers"
    )]
    Alphabet {
        /// Index of the segment.
        segment: usize,
        /// Alphabet and separator of the first segment.
        expected: (u32, Symbol),
        /// Alphabet and separator of this segment.
        found: (u32, Symbol),
    },
    /// A deleted document does not exist.
    #[error(
        "document {document} of segment {segment} is marked deleted, but the segment has {documents} documents"
    )]
    Document {
        /// Index of the segment.
        segment: usize,
        /// The document.
        document: u32,
        /// Documents of the segment.
        documents: u32,
    },
    /// Dead rows belong to another segment.
    #[error("the dead rows that were given for segment {segment} are those of another segment")]
    Marks {
        /// Index of the segment.
        segment: usize,
    },
}

struct Part {
    segment: Segment,
    dead: Option<DeadRows>,
    /// Where documents are dead, the stored lists without them, each made when first asked for.
    live_lists: Vec<OnceLock<Box<[u64]>>>,
}

struct Inner {
    segments: Vec<Segment>,
    parts: Vec<Part>,
    alphabet: u32,
    separator: Symbol,
    tokens: u64,
    documents: u64,
}

/// Segments queried as one; `Send` and `Sync`, cheap to clone.
///
/// Symbols are never the separator: asking for it gives no rows, and it is never listed.
#[derive(Clone)]
pub struct Index {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index")
            .field("segments", &self.inner.segments.len())
            .field("tokens", &self.inner.tokens)
            .finish_non_exhaustive()
    }
}

impl Index {
    /// Joins segments of one alphabet and separator. No segments at all make an empty index.
    ///
    /// # Errors
    /// The segments have different alphabets or separators.
    pub fn new(segments: Vec<Segment>) -> Result<Self, IndexError> {
        Self::with_dead_documents(segments, &[])
    }

    /// Joins segments; `dead[i]` lists the deleted documents of segment `i` (any order, missing lists
    /// are empty). Each deleted document is walked once and its rows are marked: with many of them
    /// rather store the marks, see [`DeadRows`].
    ///
    /// # Errors
    /// The segments have different alphabets or separators, or a deleted document does not exist.
    pub fn with_dead_documents(
        segments: Vec<Segment>,
        dead: &[Vec<u32>],
    ) -> Result<Self, IndexError> {
        let mark = |(at, (segment, dead)): (usize, (&Segment, &Vec<u32>))| {
            if dead.is_empty() {
                return Ok(None);
            }
            let marked = DeadRows::mark(segment, None, dead);
            marked.map(Some).map_err(|unknown| IndexError::Document {
                segment: at,
                document: unknown.document,
                documents: unknown.documents,
            })
        };
        let marked = segments.iter().zip(dead).enumerate().map(mark);
        let marked = marked.collect::<Result<Vec<_>, _>>()?;
        Self::with_dead_rows(segments, marked)
    }

    /// Joins segments; `dead[i]` are the rows of the deleted documents of segment `i` (missing ones: none).
    /// Takes time of the number of segments only.
    ///
    /// # Errors
    /// The segments have different alphabets or separators, or marks belong to another segment.
    pub fn with_dead_rows(
        segments: Vec<Segment>,
        dead: Vec<Option<DeadRows>>,
    ) -> Result<Self, IndexError> {
        let expected = segments
            .first()
            .map_or((1, 0), |segment| (segment.alphabet(), segment.separator()));
        let mut parts = Vec::with_capacity(segments.len());
        let (mut tokens, mut documents) = (0, 0);
        let mut dead = dead.into_iter();
        for (at, segment) in segments.iter().enumerate() {
            let found = (segment.alphabet(), segment.separator());
            if found != expected {
                return Err(IndexError::Alphabet {
                    segment: at,
                    expected,
                    found,
                });
            }
            let dead = dead.next().flatten();
            tokens += segment.tokens();
            documents += u64::from(segment.documents());
            if let Some(dead) = &dead {
                if dead.rows() != segment.bwt.rows {
                    return Err(IndexError::Marks { segment: at });
                }
                documents -= u64::from(dead.document_count().min(segment.documents()));
                tokens -= dead.tokens().min(segment.tokens());
            }
            parts.push(Part::new(segment.clone(), dead));
        }
        let (alphabet, separator) = expected;
        Ok(Self {
            inner: Arc::new(Inner {
                segments,
                parts,
                alphabet,
                separator,
                tokens,
                documents,
            }),
        })
    }

    /// Brings all files into memory and, where documents are deleted, makes the lists of wide phrases
    /// without them, so that no query waits for either.
    pub fn warm(&self) {
        self.inner.segments.iter().for_each(Segment::warm);
        for part in &self.inner.parts {
            part.dead.iter().for_each(DeadRows::warm);
            (0..part.live_lists.len()).into_par_iter().for_each(|at| {
                part.stored(part.segment.phrases.range(at));
            });
        }
    }

    /// The alphabet's size.
    pub fn alphabet(&self) -> u32 {
        self.inner.alphabet
    }

    /// The symbol that closes paragraphs.
    pub fn separator(&self) -> Symbol {
        self.inner.separator
    }

    /// Number of live documents, empty ones included.
    pub fn documents(&self) -> u64 {
        self.inner.documents
    }

    /// Number of tokens of live documents, separators included.
    pub fn tokens(&self) -> u64 {
        self.inner.tokens
    }

    /// The segments.
    pub fn segments(&self) -> &[Segment] {
        &self.inner.segments
    }

    /// Whether a document exists and is not deleted.
    pub fn is_live(&self, document: DocumentId) -> bool {
        let part = self.inner.parts.get(document.segment as usize);
        part.is_some_and(|part| {
            document.document < part.segment.documents() && !part.is_gone(document.document)
        })
    }

    /// The empty phrase.
    pub fn full(&self) -> Ranges {
        let parts = &self.inner.parts;
        Ranges::from_fn(parts.len(), 0, |at| parts[at].segment.bwt.full())
    }

    /// The empty phrase where a paragraph starts: what it is extended to stands at the start of one, so a
    /// document's first paragraph is found by its first tokens. Before it was extended, counts, places
    /// and continuations are those of [`Index::full`].
    pub fn paragraph_starts(&self) -> Ranges {
        // Rows are sorted by the token before them; separators come first, after the row of the text's start.
        let parts = &self.inner.parts;
        Ranges::from_fn(parts.len(), 0, |at| {
            let bwt = &parts[at].segment.bwt;
            RowRange {
                start: 0,
                end: bwt.words().start,
            }
        })
    }

    /// The rows of a phrase; none if it holds the separator or a symbol that does not occur.
    pub fn range(&self, phrase: &[Symbol]) -> Ranges {
        let mut ranges = self.full();
        for &symbol in phrase {
            ranges = self.extend(&ranges, symbol);
        }
        ranges
    }

    /// The rows of the phrase with `symbol` appended: one backward-search step a segment.
    pub fn extend(&self, ranges: &Ranges, symbol: Symbol) -> Ranges {
        let parts = &self.inner.parts;
        let length = ranges.length().saturating_add(1);
        Ranges::from_fn(parts.len(), length, |at| {
            let range = ranges.of_segment(at);
            let bwt = &parts[at].segment.bwt;
            match bwt.code(symbol) {
                Some(code) if !range.is_empty() => bwt.extend(range, code),
                _ => RowRange::EMPTY,
            }
        })
    }

    /// The ranges that hold occurrences, by segment: for the empty phrase, the rows of all tokens but
    /// separators.
    fn occurrences<'a>(
        &'a self,
        ranges: &'a Ranges,
    ) -> impl Iterator<Item = (u32, &'a Part, RowRange)> + 'a {
        let parts = self.inner.parts.iter().enumerate();
        parts.filter_map(|(at, part)| {
            let range = match ranges.length() {
                0 => part.segment.bwt.words(),
                _ => ranges.of_segment(at),
            };
            (!range.is_empty()).then_some((at as u32, part, range))
        })
    }

    /// Live occurrences of the phrase; for the empty phrase, live tokens that are not separators.
    pub fn count(&self, ranges: &Ranges) -> u64 {
        let live = |part: &Part, range: RowRange| {
            let dead = part.dead.as_ref().map_or(0, |dead| dead.count(range));
            u64::from(range.len() - dead)
        };
        self.occurrences(ranges)
            .map(|(_, part, range)| live(part, range))
            .sum()
    }

    /// Symbols that continue the phrase in a live document, with counts, ascending by symbol. `into` is
    /// cleared first.
    pub fn continuations(&self, ranges: &Ranges, into: &mut Vec<Continuation>) {
        into.clear();
        if let [part] = &self.inner.parts[..]
            && let Some(list) = part.stored(ranges.of_segment(0))
        {
            into.reserve(list.len());
            list.each(|symbol, count| into.push(Continuation { symbol, count }));
            return;
        }
        if ranges.len() <= FEW {
            // Few entries are sorted sooner than counted in a table that no cache holds.
            for (at, part) in self.inner.parts.iter().enumerate() {
                part.list(ranges.of_segment(at), |symbol, count| {
                    into.push(Continuation { symbol, count });
                });
            }
            into.sort_unstable_by_key(|next| next.symbol);
            into.dedup_by(|next, kept| {
                let same = next.symbol == kept.symbol;
                if same {
                    kept.count += next.count;
                }
                same
            });
            return;
        }
        with_tally(self.alphabet(), |tally| {
            for (at, part) in self.inner.parts.iter().enumerate() {
                part.list(ranges.of_segment(at), |symbol, count| {
                    tally.add(symbol, count)
                });
            }
            tally.drain(|symbol, count| into.push(Continuation { symbol, count }));
        });
    }

    /// Sets exactly the bits of the symbols that continue the phrase in a live document; a mask longer
    /// than the alphabet has its further bits cleared, a shorter one is cut.
    pub fn mask(&self, ranges: &Ranges, mask: &mut Mask) {
        fill_mask(mask, self.alphabet(), |words| {
            for (at, part) in self.inner.parts.iter().enumerate() {
                part.mask(ranges.of_segment(at), words);
            }
        });
    }

    /// Whether `symbol` continues the phrase in a live document; cheaper than a list of all.
    pub fn allows(&self, ranges: &Ranges, symbol: Symbol) -> bool {
        self.count(&self.extend(ranges, symbol)) > 0
    }

    /// Live occurrences of the phrase, by segment and then in row order. For the empty phrase, every
    /// live token that is not a separator. Rows are walked side by side as more of them are asked for.
    pub fn locate<'a>(&'a self, ranges: &'a Ranges) -> impl Iterator<Item = Occurrence> + 'a {
        let length = ranges.length().max(1);
        self.occurrences(ranges)
            .flat_map(move |(segment, part, range)| {
                let mut row = range.start;
                let mut size = 1;
                let batches = std::iter::from_fn(move || {
                    let batch = part.live_rows(&mut row, range.end, size);
                    size = (size * 4).min(LANES);
                    (!batch.is_empty()).then_some(batch)
                });
                batches.flat_map(move |rows| part.occurrences(segment, &rows, length))
            })
    }

    /// Documents of the phrase with their term frequencies: exact if it has at most `cap` live
    /// occurrences, else those of the first `cap` rows and marked so.
    pub fn document_counts(&self, ranges: &Ranges, cap: usize) -> DocumentCounts {
        let mut found: Vec<DocumentId> = self
            .locate(ranges)
            .take(cap)
            .map(|occurrence| occurrence.document)
            .collect();
        found.sort_unstable();
        let counts = found
            .chunk_by(|a, b| a == b)
            .map(|run| (run[0], run.len() as u32));
        DocumentCounts {
            counts: counts.collect(),
            capped: self.count(ranges) > cap as u64,
        }
    }

    /// Tokens of a document, separators of paragraphs included where the span crosses them. What lies
    /// outside of the document is left out; of a document that does not exist, everything.
    pub fn extract(&self, document: DocumentId, span: Range<u32>) -> Vec<Symbol> {
        let Some(part) = self.inner.parts.get(document.segment as usize) else {
            return Vec::new();
        };
        let whole = part.segment.document_span(document.document);
        let at = |offset: u32| whole.start.saturating_add(offset).min(whole.end);
        part.segment.extract(at(span.start)..at(span.end))
    }

    /// Tokens of a document, separators included; 0 for one that does not exist.
    pub fn document_length(&self, document: DocumentId) -> u32 {
        let part = self.inner.parts.get(document.segment as usize);
        part.map_or(0, |part| {
            part.segment.document_span(document.document).len() as u32
        })
    }
}

/// With as many rows or fewer, continuations are listed by sorting.
const FEW: u64 = 256;

impl Part {
    fn new(segment: Segment, dead: Option<DeadRows>) -> Self {
        let lists = dead.as_ref().map_or(0, |_| segment.phrases.len());
        Self {
            live_lists: (0..lists).map(|_| OnceLock::new()).collect(),
            segment,
            dead,
        }
    }

    fn is_gone(&self, document: u32) -> bool {
        self.dead
            .as_ref()
            .is_some_and(|dead| dead.is_dead(document))
    }

    /// The next live rows from `row` on and before `end`, at most `size`; moves `row` behind them.
    fn live_rows(&self, row: &mut u32, end: u32, size: usize) -> Vec<u32> {
        let mut rows = Vec::with_capacity(size);
        while *row < end && rows.len() < size {
            if !self.dead.as_ref().is_some_and(|dead| dead.contains(*row)) {
                rows.push(*row);
            }
            *row += 1;
        }
        rows
    }

    /// Where phrases of `length` tokens with these rows stand, in the order of the rows.
    fn occurrences(&self, segment: u32, rows: &[u32], length: u32) -> Vec<Occurrence> {
        let mut positions = [None; LANES];
        let bwt = &self.segment.bwt;
        bwt.positions(rows, |at, position| positions[at] = Some(position));
        let place = |position: u32| {
            let document = self.segment.document_at(position.checked_sub(1)?)?;
            let first = self.segment.document_span(document).start;
            let start = position.checked_sub(length)?.checked_sub(first)?;
            let document = DocumentId { segment, document };
            Some(Occurrence { document, start })
        };
        positions.into_iter().flatten().filter_map(place).collect()
    }

    /// The live continuations of a range that has a stored list.
    fn stored(&self, range: RowRange) -> Option<SymbolList<'_>> {
        let phrases = &self.segment.phrases;
        let number = phrases.find(range)?;
        let Some(dead) = &self.dead else {
            return Some(phrases.list(number));
        };
        let alphabet = self.segment.alphabet();
        let words = self.live_lists.get(number)?.get_or_init(|| {
            let bwt = &self.segment.bwt;
            // Not this thread's tally: a listing may be what asks.
            let mut tally = Tally::new(alphabet);
            if range == bwt.full() {
                for code in 1..bwt.codes() {
                    let bucket = bwt.bucket(code);
                    let live = bucket.len() - dead.count(bucket);
                    tally.add(bwt.symbol(code), u64::from(live));
                }
            } else {
                phrases
                    .list(number)
                    .each(|symbol, count| tally.add(symbol, count));
                dead.each(range, |row| {
                    tally.remove_one(bwt.symbol(bwt.next_code(row)));
                });
            }
            SymbolList::encode(&mut tally, alphabet).into()
        });
        Some(SymbolList::new(words, alphabet))
    }

    /// Calls `each` with the live continuations of a range and their counts; a symbol may come again.
    fn list(&self, range: RowRange, mut each: impl FnMut(Symbol, u64)) {
        if let Some(list) = self.stored(range) {
            list.each(each);
            return;
        }
        let bwt = &self.segment.bwt;
        bwt.list::<true>(range, self.dead.as_ref(), |code, count| {
            if code != 0 {
                each(bwt.symbol(code), u64::from(count));
            }
        });
    }

    /// Sets the bits of the live continuations of a range.
    fn mask(&self, range: RowRange, words: &mut MaskWords<'_>) {
        if let Some(list) = self.stored(range) {
            list.mask(words);
            return;
        }
        let bwt = &self.segment.bwt;
        bwt.list::<false>(range, self.dead.as_ref(), |code, _| {
            if code != 0 {
                words.set(bwt.symbol(code));
            }
        });
    }
}
