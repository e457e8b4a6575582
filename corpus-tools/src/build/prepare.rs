//! From records to tokens: canonical form, tokenization and analysis of a batch, in parallel.

use std::ops::Range;

use models::tokenizer::Tokenizer;
use rayon::prelude::*;

use crate::analysis::Analyser;
use crate::canonical::{canonical_text, paragraphs};
use crate::lexical::{AnalysedDocument, analyse_document};
use crate::names::Passage;
use crate::reader::{BadRecord, Part, Record};

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
    pub analysed: AnalysedDocument,
}

impl Prepared {
    /// The document as a bad record.
    pub fn bad(self, reason: &str) -> BadRecord {
        BadRecord::at(&self.record.place, reason)
    }
}

/// Title and lines of a record in canonical form.
struct Lines {
    spans: Vec<Range<u32>>,
    texts: Vec<String>,
}

/// Prepares `records` on the threads of the current pool, in order.
pub(super) fn prepare(
    records: Vec<Record>,
    tokenizer: &Tokenizer,
    separator: u32,
    analyser: &Analyser,
) -> Vec<Result<Prepared, BadRecord>> {
    let lines: Vec<Result<Lines, BadRecord>> = records.par_iter().map(canonical_lines).collect();
    let texts: Vec<&str> = lines
        .iter()
        .flatten()
        .flat_map(|lines| lines.texts.iter().map(String::as_str))
        .collect();
    let mut encoded = tokenizer.encode_texts(&texts).into_iter();
    let paired: Vec<_> = records
        .into_iter()
        .zip(lines)
        .map(|(record, lines)| {
            let count = lines.as_ref().map_or(0, |lines| lines.texts.len());
            let ids: Vec<Vec<u32>> = encoded.by_ref().take(count).collect();
            (record, lines, ids)
        })
        .collect();
    paired
        .into_par_iter()
        .map(|(record, lines, ids)| {
            let lines = lines?;
            let spelled = lines.texts.iter().zip(&ids);
            for (number, (text, ids)) in spelled.enumerate() {
                if !spells(tokenizer, ids, text) {
                    let what = match number {
                        0 => "the title".to_owned(),
                        number => format!("paragraph {number}"),
                    };
                    let reason = format!("{what} cannot be written with this tokenizer");
                    return Err(BadRecord::at(&record.place, reason));
                }
            }
            let mut tokens = Vec::with_capacity(ids.iter().map(|ids| ids.len() + 1).sum());
            for ids in &ids {
                tokens.extend_from_slice(ids);
                tokens.push(separator);
            }
            let metadata = match record.metadata.is_empty() {
                true => String::new(),
                false => serde_json::to_string(&record.metadata).unwrap_or_default(),
            };
            Ok(Prepared {
                metadata,
                passages: passages(&record, &lines.spans),
                paragraphs: lines.spans,
                token_counts: ids.iter().map(|ids| ids.len() as u32).collect(),
                tokens,
                analysed: analyse_document(analyser, &record.title, &record.text),
                record,
            })
        })
        .collect()
}

fn canonical_lines(record: &Record) -> Result<Lines, BadRecord> {
    if u32::try_from(record.text.len().max(record.title.len())).is_err() {
        return Err(BadRecord::at(
            &record.place,
            "the text is longer than 4 GiB",
        ));
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
