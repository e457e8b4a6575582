//! Passages as tab-separated values: with a header and quoted fields (DPR), or without either (SEAL).

use std::collections::VecDeque;

use serde_json::Value;

use super::lines::{Line, Lines};
use super::source::Source;
use super::{BadRecord, Entry, Place, Record};

/// A field in quotes may hold line ends; one with more than these was never closed.
const MOST_LINES: usize = 64;

/// A table that is being read.
pub(super) struct Table {
    lines: Lines,
    /// The columns by the header's names; without a header `id`, `title`, `text`.
    columns: Option<Vec<String>>,
    /// Lines behind a quote that was never closed, to be read again.
    again: VecDeque<(Place, String)>,
}

/// Whether an input begins like a table: tabs in its first line, which is no JSON.
pub(super) fn is_table(head: &[u8]) -> bool {
    let head = head.strip_prefix("\u{feff}".as_bytes()).unwrap_or(head);
    let line = head.split(|&b| b == b'\n').next().unwrap_or_default();
    let tabs = line.iter().filter(|&&b| b == b'\t').count();
    tabs >= 2 && !line.trim_ascii_start().starts_with(b"{") && !line.contains(&0)
}

impl Table {
    pub fn new(source: Source) -> Self {
        let head = source
            .head
            .strip_prefix("\u{feff}".as_bytes())
            .unwrap_or(&source.head);
        let line = head.split(|&b| b == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).to_ascii_lowercase();
        let names: Vec<String> = line
            .trim_end()
            .split('\t')
            .map(|name| match name.trim_matches('"') {
                "_id" | "docid" | "doc_id" | "passage_id" | "psg_id" | "pid" => "id".to_owned(),
                "contents" | "passage" => "text".to_owned(),
                name => name.to_owned(),
            })
            .collect();
        let header = ["id", "text", "title"]
            .iter()
            .all(|name| names.iter().any(|n| n == name));
        Self {
            lines: Lines::new(source),
            columns: header.then_some(names),
            again: VecDeque::new(),
        }
    }

    /// The next record or bad record; `None` at the end.
    pub fn next(&mut self, longest: usize) -> Option<Entry> {
        loop {
            let (place, line) = self.line(longest)?;
            let line = match line {
                Ok(line) => line,
                Err(reason) => return Some(Entry::Bad(BadRecord::at(&place, reason))),
            };
            if self.columns.is_some() && place.line == 1 {
                continue;
            }
            let read = match &self.columns {
                None => plain(&line, &place),
                Some(_) => self.quoted(line, &place, longest),
            };
            return Some(match read {
                Ok(record) => Entry::Record(Box::new(record)),
                Err(reason) => Entry::Bad(BadRecord::at(&place, reason)),
            });
        }
    }

    /// The next line that is not blank, or why it is none.
    fn line(&mut self, longest: usize) -> Option<(Place, Result<String, String>)> {
        if let Some((place, line)) = self.again.pop_front() {
            return Some((place, Ok(line)));
        }
        loop {
            let (place, line) = self.lines.next_line(longest)?;
            match line {
                Line::Blank => {}
                Line::Text(line) => {
                    let line = line.to_owned();
                    return Some((place, Ok(line)));
                }
                Line::Bad(reason) => return Some((place, Err(reason))),
            }
        }
    }

    /// A row under a header, its fields quoted where they hold quotes, tabs or line ends.
    fn quoted(&mut self, first: String, place: &Place, longest: usize) -> Result<Record, String> {
        let mut row = first;
        let mut more: Vec<(Place, String)> = Vec::new();
        let fields = loop {
            if let Some(fields) = fields(&row) {
                break fields;
            }
            let unclosed = "a quoted field does not end".to_owned();
            let next = match more.len() < MOST_LINES && row.len() < longest {
                true => self.line(longest),
                false => None,
            };
            match next {
                Some((place, Ok(line))) => {
                    row.push('\n');
                    row.push_str(&line);
                    more.push((place, line));
                }
                // The lines behind this one are rows of their own.
                _ => {
                    for line in more.into_iter().rev() {
                        self.again.push_front(line);
                    }
                    return Err(unclosed);
                }
            }
        };
        let columns = self.columns.as_deref().unwrap_or_default();
        if fields.len() != columns.len() {
            return Err(format!(
                "{} fields instead of the {} of the header",
                fields.len(),
                columns.len()
            ));
        }
        let mut record = Record::new(String::new(), String::new(), String::new(), place.clone());
        for (name, field) in columns.iter().zip(fields) {
            match name.as_str() {
                "id" => record.id = field,
                "title" => record.title = field,
                "text" => record.text = field,
                _ => {
                    record.metadata.insert(name.clone(), Value::String(field));
                }
            }
        }
        with_id(record)
    }
}

/// A row without quoting: id, title, and the rest is text.
fn plain(line: &str, place: &Place) -> Result<Record, String> {
    let mut fields = line.splitn(3, '\t');
    let (Some(id), Some(title), Some(text)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(
            "fewer than three fields; expected id, title and text, with tabs between".to_owned(),
        );
    };
    with_id(Record::new(
        id.trim().to_owned(),
        unquoted(title),
        unquoted(text),
        place.clone(),
    ))
}

fn with_id(record: Record) -> Result<Record, String> {
    match record.id.is_empty() {
        true => Err("the field \"id\" is empty".to_owned()),
        false => Ok(record),
    }
}

/// A field that was written in quotes all the same.
fn unquoted(field: &str) -> String {
    let inside = field
        .strip_prefix('"')
        .and_then(|field| field.strip_suffix('"'));
    match inside {
        Some(inside) if !inside.replace("\"\"", "").contains('"') => inside.replace("\"\"", "\""),
        _ => field.to_owned(),
    }
}

/// The fields of a row (RFC 4180 with tabs); `None` if the last one's quotes are not closed.
fn fields(row: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = row;
    loop {
        let Some(mut quoted) = rest.strip_prefix('"') else {
            match rest.split_once('\t') {
                Some((field, after)) => {
                    fields.push(field.to_owned());
                    rest = after;
                    continue;
                }
                None => {
                    fields.push(rest.to_owned());
                    return Some(fields);
                }
            }
        };
        let mut field = String::new();
        loop {
            let end = quoted.find('"')?;
            field.push_str(&quoted[..end]);
            quoted = &quoted[end + 1..];
            match quoted.strip_prefix('"') {
                Some(after) => {
                    field.push('"');
                    quoted = after;
                }
                None => break,
            }
        }
        // What stands between the closing quote and the tab belongs to the field.
        match quoted.split_once('\t') {
            Some((tail, after)) => {
                fields.push(field + tail);
                rest = after;
            }
            None => {
                fields.push(field + quoted);
                return Some(fields);
            }
        }
    }
}
