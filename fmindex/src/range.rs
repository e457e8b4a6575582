//! Ranges of rows: where a phrase stands in the sorted rows of one segment, and of all of them.

/// A half-open range of rows of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RowRange {
    /// First row.
    pub start: u32,
    /// One past the last row.
    pub end: u32,
}

impl RowRange {
    /// The range of no rows.
    pub const EMPTY: Self = Self { start: 0, end: 0 };

    /// Number of rows.
    #[inline]
    pub fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is no row.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// The same rows as machine-word indices.
    #[inline]
    pub(crate) fn span(self) -> std::ops::Range<usize> {
        self.start as usize..self.end.max(self.start) as usize
    }
}

/// The rows of one phrase: a range in every segment, and the phrase's length in tokens.
///
/// With one segment it holds no memory of its own, so a clone is a copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ranges {
    first: RowRange,
    rest: Vec<RowRange>,
    length: u32,
}

impl Ranges {
    /// `count` ranges, one a segment in order, for a phrase of `length` tokens.
    pub(crate) fn from_fn(
        count: usize,
        length: u32,
        mut range: impl FnMut(usize) -> RowRange,
    ) -> Self {
        let first = if count == 0 {
            RowRange::EMPTY
        } else {
            range(0)
        };
        let rest = (1..count).map(range).collect();
        Self {
            first,
            rest,
            length,
        }
    }

    /// The range in the segment `at`.
    #[inline]
    pub fn of_segment(&self, at: usize) -> RowRange {
        match at {
            0 => self.first,
            _ => self.rest.get(at - 1).copied().unwrap_or(RowRange::EMPTY),
        }
    }

    /// Whether no segment has a row of the phrase. Rows of deleted documents count as rows.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.rest.iter().all(|range| range.is_empty())
    }

    /// Number of rows over all segments, deleted documents included.
    pub fn len(&self) -> u64 {
        u64::from(self.first.len()) + self.rest.iter().map(|r| u64::from(r.len())).sum::<u64>()
    }

    /// Length of the phrase in tokens.
    pub fn length(&self) -> u32 {
        self.length
    }
}
