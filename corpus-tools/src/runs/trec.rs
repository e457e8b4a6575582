//! TREC run files and qrels: `qid Q0 docid rank score tag`, and `qid 0 docid relevance`.
//!
//! White space separates the columns, so white space in an id, and `%`, are written as percent escapes
//! (`%20`) and undone on reading. `trec_eval` and its kin order a run by score and forget the ranks, so scores that
//! do not fall from rank to rank are replaced by `1/rank`.

use std::fmt::Write as _;
use std::io::BufRead;
use std::path::Path;

use super::{RunError, write_whole};
use crate::questions::Question;
use crate::reader::{BadRecord, Input};

/// What was retrieved for one question, the best first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrecQuery {
    /// The question's id.
    pub id: String,
    /// Ids of documents with their scores; an id stands once.
    pub documents: Vec<(String, f64)>,
}

/// A judgement of qrels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The question's id.
    pub query: String,
    /// The document's id.
    pub document: String,
    /// Above 0 where the document is relevant.
    pub relevance: i64,
}

/// Writes a run under the name `tag`. A document that stands twice for a question is written at its
/// first place.
///
/// # Errors
/// The file cannot be written.
pub fn write_run(path: &Path, tag: &str, queries: &[TrecQuery]) -> Result<(), RunError> {
    let mut text = String::new();
    let tag = escaped(tag);
    for query in queries {
        let mut seen = std::collections::HashSet::new();
        let documents: Vec<&(String, f64)> = query
            .documents
            .iter()
            .filter(|(id, _)| seen.insert(id))
            .collect();
        let falling = documents.windows(2).all(|pair| pair[0].1 > pair[1].1)
            && documents.iter().all(|(_, score)| score.is_finite());
        for (at, (id, score)) in documents.into_iter().enumerate() {
            let rank = at + 1;
            let score = if falling { *score } else { 1.0 / rank as f64 };
            let (query, id) = (escaped(&query.id), escaped(id));
            let _ = writeln!(text, "{query} Q0 {id} {rank} {score} {tag}");
        }
    }
    write_whole(path, text.as_bytes())
}

/// Reads a run. Questions are in the order of the file, documents in the order of their ranks. Returns the
/// tag of the first line with them, and what was left out.
///
/// # Errors
/// The file cannot be opened or read.
pub fn read_run(path: &Path) -> Result<(String, Vec<TrecQuery>, Vec<BadRecord>), RunError> {
    let mut tag = String::new();
    let mut queries: Vec<TrecQuery> = Vec::new();
    // The ranks of the documents of each.
    let mut ranks: Vec<Vec<u64>> = Vec::new();
    let mut places = std::collections::HashMap::new();
    let bad = read_columns(path, |columns| {
        let [query, _, id, rank, score, run] = columns else {
            return Err(format!("{} columns instead of 6", columns.len()));
        };
        let rank: u64 = rank
            .parse()
            .map_err(|_| format!("the rank {rank:?} is not a whole number"))?;
        let score = score
            .parse()
            .map_err(|_| format!("the score {score:?} is not a number"))?;
        if tag.is_empty() {
            tag = plain(run);
        }
        let at = *places.entry((*query).to_owned()).or_insert_with(|| {
            queries.push(TrecQuery {
                id: plain(query),
                documents: Vec::new(),
            });
            ranks.push(Vec::new());
            queries.len() - 1
        });
        // Files are in the order of ranks almost always; then this puts at the end.
        let place = ranks[at].partition_point(|&before| before <= rank);
        ranks[at].insert(place, rank);
        queries[at].documents.insert(place, (plain(id), score));
        Ok(())
    })?;
    Ok((tag, queries, bad))
}

/// Writes the gold documents of `questions` as qrels with relevance 1. Alternatives are put together; a question without
/// gold has no line, so an evaluation that averages over the qrels leaves it out.
///
/// # Errors
/// The file cannot be written.
pub fn write_qrels(path: &Path, questions: &[&Question]) -> Result<(), RunError> {
    let mut text = String::new();
    for question in questions {
        for id in question.gold_ids() {
            let _ = writeln!(text, "{} 0 {} 1", escaped(&question.id), escaped(id));
        }
    }
    write_whole(path, text.as_bytes())
}

/// Reads qrels in the order of the file; and what was left out.
///
/// # Errors
/// The file cannot be opened or read.
pub fn read_qrels(path: &Path) -> Result<(Vec<Judgement>, Vec<BadRecord>), RunError> {
    let mut judged = Vec::new();
    let bad = read_columns(path, |columns| {
        let [query, _, id, relevance] = columns else {
            return Err(format!("{} columns instead of 4", columns.len()));
        };
        let relevance = relevance
            .parse()
            .map_err(|_| format!("the relevance {relevance:?} is not a whole number"))?;
        judged.push(Judgement {
            query: plain(query),
            document: plain(id),
            relevance,
        });
        Ok(())
    })?;
    Ok((judged, bad))
}

fn read_columns(
    path: &Path,
    mut take: impl FnMut(&[&str]) -> Result<(), String>,
) -> Result<Vec<BadRecord>, RunError> {
    let file = std::fs::File::open(path).map_err(|e| RunError::new(path, "open", e))?;
    let mut bad = Vec::new();
    for (at, line) in std::io::BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|e| RunError::new(path, "read", e))?;
        let taken = match std::str::from_utf8(&line) {
            Ok(line) if line.trim().is_empty() => continue,
            Ok(line) => take(&line.split_whitespace().collect::<Vec<_>>()),
            Err(_) => Err("invalid UTF-8".to_owned()),
        };
        if let Err(reason) = taken {
            bad.push(BadRecord {
                file: Input::Path(path.to_owned()).to_string(),
                line: at as u64 + 1,
                reason,
            });
        }
    }
    Ok(bad)
}

/// An id without white space: what would end a column, and `%`, in percent escapes.
pub fn escaped(id: &str) -> String {
    let mut written = String::with_capacity(id.len());
    for c in id.chars() {
        if c.is_whitespace() || c.is_control() || c == '%' {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _ = write!(written, "%{byte:02X}");
            }
        } else {
            written.push(c);
        }
    }
    // A column cannot be empty.
    if written.is_empty() {
        "%".to_owned()
    } else {
        written
    }
}

/// The id that [`escaped`] wrote.
fn plain(id: &str) -> String {
    if id == "%" {
        return String::new();
    }
    let bytes = id.as_bytes();
    let mut read = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = bytes
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        read.push(escape.unwrap_or(bytes[at]));
        at += if escape.is_some() { 3 } else { 1 };
    }
    // Escapes that are none of ours may spell no text.
    String::from_utf8(read).unwrap_or_else(|_| id.to_owned())
}
