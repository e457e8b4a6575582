//! From records to tokens: canonical form and tokenization of a batch, in parallel.

use std::ops::Range;

use models::tokenizer::Tokenizer;
use rayon::prelude::*;

use super::FIXED_MEMORY;
use super::journal::Position;
use crate::canonical::{canonical_text, paragraphs};
use crate::names::Passage;
use crate::reader::{BadRecord, Part, Record};
use crate::store::Stored;

/// What the reader came upon, and how far the inputs are read with it.
pub(super) struct Item {
    pub found: Result<Record, BadRecord>,
    pub position: Position,
}

/// How documents are prepared.
#[derive(Clone, Copy)]
pub(super) struct Preparing<'a> {
    pub tokenizer: &'a Tokenizer,
    pub separator: u32,
    pub stored: Stored,
    /// Bytes of memory for the whole build.
    pub memory: Option<u64>,
}

/// A document ready to be written.
pub(super) struct Prepared {
    pub record: Record,
    /// The metadata as JSON; empty where there are none.
    pub metadata: String,
    /// Places of the paragraphs in the text; the title's comes first and is empty.
    pub paragraphs: Vec<Range<u32>>,
    /// Tokens of each paragraph, the separator left out.
    pub token_counts: Vec<u32>,
    /// External ids of paragraphs, where passages were grouped.
    pub passages: Vec<Passage>,
    /// The tokens of all paragraphs, each closed by the separator.
    pub tokens: Vec<u32>,
}

/// A document or a bad record, and how far the inputs are read with it.
pub(super) struct Ready {
    pub document: Result<Prepared, BadRecord>,
    pub position: Position,
}

/// Memory that reading and tokenizing a document takes beside [`FIXED_MEMORY`], in bytes: up to 6 for each of its text
/// (measured: 3, on one of 27 MB), and up to 40 for each of its longest run without a space, which may be one word to
/// the tokenizer.
pub(super) fn working_memory(text: &str) -> u64 {
    let longest = text.split(char::is_whitespace).map(str::len).max();
    6 * text.len() as u64 + 40 * longest.unwrap_or(0) as u64
}

/// Title and lines of a record in canonical form.
struct Lines {
    spans: Vec<Range<u32>>,
    texts: Vec<String>,
}

/// Documents below this size are not measured one by one: the fixed part of the budget covers them.
const SMALL: usize = 1 << 20;

impl Preparing<'_> {
    /// Prepares `items` on the threads of the current pool, in order.
    pub fn prepare(&self, items: Vec<Item>) -> Vec<Ready> {
        let lines: Vec<Option<Result<Lines, BadRecord>>> = items
            .par_iter()
            .map(|item| Some(self.canonical_lines(item.found.as_ref().ok()?)))
            .collect();
        let texts: Vec<&str> = lines
            .iter()
            .flatten()
            .flatten()
            .flat_map(|lines| lines.texts.iter().map(String::as_str))
            .collect();
        let mut encoded = self.tokenizer.encode_texts(&texts).into_iter();
        let paired: Vec<_> = items
            .into_iter()
            .zip(lines)
            .map(|(item, lines)| {
                let good = lines.as_ref().and_then(|lines| lines.as_ref().ok());
                let count = good.map_or(0, |lines| lines.texts.len());
                let ids: Vec<Vec<u32>> = encoded.by_ref().take(count).collect();
                (item, lines, ids)
            })
            .collect();
        paired
            .into_par_iter()
            .map(|(item, lines, ids)| Ready {
                position: item.position,
                document: match (item.found, lines) {
                    (Err(bad), _) | (Ok(_), Some(Err(bad))) => Err(bad),
                    (Ok(record), None) => Err(BadRecord::at(&record.place, "it was not prepared")),
                    (Ok(record), Some(Ok(lines))) => self.assemble(record, lines, &ids),
                },
            })
            .collect()
    }

    fn canonical_lines(&self, record: &Record) -> Result<Lines, BadRecord> {
        let longest = record.text.len().max(record.title.len());
        if u32::try_from(longest).is_err() {
            return Err(BadRecord::at(
                &record.place,
                "the text is longer than 4 GiB",
            ));
        }
        if let Some(budget) = self.memory.filter(|_| longest > SMALL) {
            let needed = FIXED_MEMORY + working_memory(&record.text);
            if needed > budget {
                let reason = format!(
                    "a text of {} bytes needs a memory budget of {needed} bytes, more than the {budget} allowed",
                    record.text.len()
                );
                return Err(BadRecord::at(&record.place, reason));
            }
        }
        let title: Range<u32> = 0..0;
        let mut spans = vec![title];
        let mut texts = vec![canonical_text(&record.title)];
        for span in paragraphs(&record.text) {
            texts.push(canonical_text(&record.text[span.clone()]));
            spans.push(span.start as u32..span.end as u32);
        }
        Ok(Lines { spans, texts })
    }

    fn assemble(
        &self,
        mut record: Record,
        mut lines: Lines,
        ids: &[Vec<u32>],
    ) -> Result<Prepared, BadRecord> {
        for (number, (text, ids)) in lines.texts.iter().zip(ids).enumerate() {
            if !spells(self.tokenizer, ids, text) {
                let what = match number {
                    0 => "the title".to_owned(),
                    number => format!("paragraph {number}"),
                };
                let reason = format!("{what} cannot be written with this tokenizer");
                return Err(BadRecord::at(&record.place, reason));
            }
        }
        let passages = passages(&record, &lines.spans);
        if self.stored == Stored::None {
            (record.text, lines.spans) = joined(lines.texts.iter().skip(1).map(String::as_str));
        }
        let mut tokens = Vec::with_capacity(ids.iter().map(|ids| ids.len() + 1).sum());
        for ids in ids {
            tokens.extend_from_slice(ids);
            tokens.push(self.separator);
        }
        let metadata = match record.metadata.is_empty() {
            true => String::new(),
            false => serde_json::to_string(&record.metadata).unwrap_or_default(),
        };
        Ok(Prepared {
            metadata,
            passages,
            paragraphs: lines.spans,
            token_counts: ids.iter().map(|ids| ids.len() as u32).collect(),
            tokens,
            record,
        })
    }
}

/// The text of a document whose texts are not kept: its paragraphs in canonical form as lines, without the
/// space in front; and where they lie, the title's empty place first.
pub(crate) fn joined<'a>(paragraphs: impl Iterator<Item = &'a str>) -> (String, Vec<Range<u32>>) {
    let mut text = String::new();
    let title: Range<u32> = 0..0;
    let mut spans = vec![title];
    for paragraph in paragraphs {
        if !text.is_empty() {
            text.push('\n');
        }
        let start = text.len() as u32;
        text.push_str(paragraph.strip_prefix(' ').unwrap_or(paragraph));
        spans.push(start..text.len() as u32);
    }
    (text, spans)
}

/// The passages of a record by the numbers of their first paragraphs.
fn passages(record: &Record, paragraphs: &[Range<u32>]) -> Vec<Passage> {
    let passage = |part: &Part| Passage {
        id: part.id.clone(),
        first_paragraph: 1 + paragraphs[1..]
            .partition_point(|span| (span.start as usize) < part.start)
            as u32,
    };
    record.parts.iter().map(passage).collect()
}

/// Whether the tokens, joined, are exactly `text`.
fn spells(tokenizer: &Tokenizer, ids: &[u32], text: &str) -> bool {
    let mut rest = text.as_bytes();
    for &id in ids {
        let spelled = tokenizer.token_bytes(id).unwrap_or_default();
        match rest.strip_prefix(spelled) {
            Some(after) if !spelled.is_empty() => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}
