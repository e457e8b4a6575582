//! The canonical form of a paragraph, and the way back from it to the original bytes.
//!
//! What is tokenized is not a paragraph as it came but its canonical form: canonical composition
//! (NFC), runs of white space folded to one space, one space in front, none at the end, nothing
//! else inserted or removed. It is computed grapheme cluster by grapheme cluster, so that a cut
//! between clusters of the original is a cut of the canonical form, and the canonical form of the
//! one side does not depend on the other. That is what makes a citation checkable: for every span
//! that [`Canonical::span`] returns, the canonical form of the original slice is the canonical slice.

use std::ops::Range;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};
use unicode_segmentation::UnicodeSegmentation;

/// The paragraphs of a text: its lines that hold something besides white space, as byte ranges
/// without the line's end. Lines end with a line feed, a carriage return, or both.
///
/// ```
/// use corpus_tools::canonical::paragraphs;
/// let spans: Vec<_> = paragraphs("One.\r\n \n  Two.").collect();
/// assert_eq!(spans, [0..4, 8..14]);
/// ```
pub fn paragraphs(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    text.split(['\n', '\r']).filter_map(move |line| {
        let span = start..start + line.len();
        start = span.end + 1;
        (!line.trim().is_empty()).then_some(span)
    })
}

/// Calls `visit` with the byte range of every grapheme cluster of `paragraph`, in order.
fn clusters(paragraph: &str, mut visit: impl FnMut(Range<usize>)) {
    let bytes = paragraph.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let ascii = |i: usize| bytes.get(i).is_none_or(u8::is_ascii);
        // Between two ASCII characters there is always a boundary, CR LF excepted: both are white space.
        let length = if ascii(at) && ascii(at + 1) {
            1
        } else {
            let cluster = paragraph[at..].graphemes(true).next();
            cluster.map_or(1, str::len)
        };
        visit(at..at + length);
        at += length;
    }
}

/// Appends the canonical form of `cluster` to `out`, white space held back in `space`, and returns
/// where it stands without the space in front; `None` if the cluster is white space.
fn append(out: &mut String, space: &mut bool, cluster: &str) -> Option<Range<usize>> {
    let mut begin = None;
    let mut rest = cluster;
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            *space = true;
            rest = rest.trim_start();
            continue;
        }
        // White space inside a cluster: a space that carries a mark, or follows a prepended sign.
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        if std::mem::take(space) {
            out.push(' ');
        }
        begin.get_or_insert(out.len());
        push_composed(out, &rest[..end]);
        rest = &rest[end..];
    }
    Some(begin?..out.len())
}

fn push_composed(out: &mut String, cluster: &str) {
    if cluster.len() == 1 || is_nfc_quick(cluster.chars()) == IsNormalized::Yes {
        out.push_str(cluster);
    } else {
        out.extend(cluster.nfc());
    }
}

/// The canonical form of `paragraph`: the empty string if it holds nothing but white space.
///
/// ```
/// use corpus_tools::canonical::canonical_text;
/// assert_eq!(canonical_text("Cafe\u{301}\t au  lait \r\n"), " Caf\u{e9} au lait");
/// ```
pub fn canonical_text(paragraph: &str) -> String {
    let mut text = String::with_capacity(paragraph.len() + 1);
    let mut space = true;
    let mut rest = paragraph;
    while !rest.is_empty() {
        let plain = plain_prefix(rest);
        for (number, word) in rest[..plain].split(ascii_white_space).enumerate() {
            space |= number > 0;
            if !word.is_empty() {
                if std::mem::take(&mut space) {
                    text.push(' ');
                }
                text.push_str(word);
            }
        }
        rest = &rest[plain..];
        let cluster = rest.graphemes(true).next().unwrap_or_default();
        append(&mut text, &mut space, cluster);
        rest = &rest[cluster.len()..];
    }
    text
}

/// White space of ASCII as [`char::is_whitespace`] has it.
fn ascii_white_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// Length of the ASCII text in front whose characters are clusters by themselves: the last one
/// before something else may carry a mark. (CR LF is one cluster, but both are white space.)
fn plain_prefix(text: &str) -> usize {
    match text.bytes().position(|byte| !byte.is_ascii()) {
        None => text.len(),
        Some(at) => at.saturating_sub(1),
    }
}

/// A span of a canonical form together with the original bytes it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalSpan {
    /// Bytes of [`Canonical::text`], the space in front left out.
    pub canonical: Range<usize>,
    /// Bytes of the original paragraph, between two grapheme boundaries.
    pub original: Range<usize>,
}

/// A paragraph's canonical form with the map back to the original.
#[derive(Clone, Debug)]
pub struct Canonical {
    text: String,
    /// The grapheme clusters that hold something besides white space.
    units: Vec<CanonicalSpan>,
}

impl Canonical {
    /// Canonical form and offset map of `paragraph`.
    pub fn new(paragraph: &str) -> Self {
        let mut text = String::with_capacity(paragraph.len() + 1);
        let mut units = Vec::with_capacity(paragraph.len());
        let mut space = true;
        clusters(paragraph, |original| {
            if let Some(canonical) = append(&mut text, &mut space, &paragraph[original.clone()]) {
                units.push(CanonicalSpan {
                    canonical,
                    original,
                });
            }
        });
        Self { text, units }
    }

    /// The canonical form, as [`canonical_text`] gives it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The largest span on grapheme boundaries within the canonical bytes `range`, and its original
    /// bytes: a start inside a cluster moves forward, an end inside one moves back, white space at
    /// the ends is left out. `None` if nothing is left. Ends may lie anywhere, past the text too.
    pub fn span(&self, range: Range<usize>) -> Option<CanonicalSpan> {
        let first = self
            .units
            .partition_point(|unit| unit.canonical.start < range.start);
        let last = self
            .units
            .partition_point(|unit| unit.canonical.end <= range.end);
        let units = self.units.get(first..last)?;
        let (first, last) = (units.first()?, units.last()?);
        Some(CanonicalSpan {
            canonical: first.canonical.start..last.canonical.end,
            original: first.original.start..last.original.end,
        })
    }

    /// The original bytes of [`Canonical::span`].
    pub fn original_span(&self, range: Range<usize>) -> Option<Range<usize>> {
        self.span(range).map(|span| span.original)
    }
}
