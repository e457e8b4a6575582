//! Parquet with the columns `id`, `title` and `text`, as Wikipedia is published: row by row.

use std::fs::File;
use std::io::{Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::SerializedFileReader;
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use serde_json::{Map, Value};

use super::source::Source;
use super::{BadRecord, Entry, Place, ReadError, Record, record};

/// A table that is being read.
pub(super) struct Parquet {
    name: Arc<str>,
    rows: RowIter<'static>,
    row: u64,
    ended: bool,
}

impl Parquet {
    /// Opens a table. One that cannot be searched (standard input, a packed file) is first written to a
    /// temporary file, for a table is read from its end.
    pub fn open(mut source: Source) -> Result<Self, ReadError> {
        let input = source.name.to_string();
        let failed = |source| ReadError::Open {
            input: input.clone(),
            source,
        };
        let file = match &source.plain {
            Some(path) => File::open(path).map_err(failed)?,
            None => {
                let mut file = tempfile::tempfile().map_err(failed)?;
                std::io::copy(&mut source.reader, &mut file).map_err(failed)?;
                file.flush().map_err(failed)?;
                file.rewind().map_err(failed)?;
                file
            }
        };
        let not_a_table = |reason: String| ReadError::NotACorpus {
            input: input.clone(),
            bad: 1,
            first: BadRecord {
                file: input.clone(),
                line: 1,
                reason,
            },
        };
        let opened = guarded(|| {
            let reader = SerializedFileReader::new(file)?;
            Ok(RowIter::from_file_into(Box::new(reader)))
        });
        let rows = opened
            .map_err(|reason| not_a_table(format!("it is no readable Parquet file: {reason}")))?;
        Ok(Self {
            name: source.name,
            rows,
            row: 0,
            ended: false,
        })
    }

    /// The next record or bad record; `None` at the end, and after an error of reading.
    pub fn next(&mut self) -> Option<Entry> {
        if self.ended {
            return None;
        }
        self.row += 1;
        let place = Place {
            file: Arc::clone(&self.name),
            line: self.row,
        };
        let row = guarded(|| self.rows.next().transpose());
        let read = match row {
            Ok(None) => return None,
            Ok(Some(row)) => read_row(row, &place),
            Err(reason) => {
                self.ended = true;
                Err(format!(
                    "the row cannot be read ({reason}); the rest of the file is left out"
                ))
            }
        };
        Some(match read {
            Ok(record) => Entry::Record(Box::new(record)),
            Err(reason) => Entry::Bad(BadRecord::at(&place, reason)),
        })
    }
}

/// The library panics over some damaged files: for a reader that is an error like any other.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("its structure is damaged".to_owned()),
    }
}

fn read_row(row: Row, place: &Place) -> Result<Record, String> {
    let fields: Map<String, Value> = row
        .into_columns()
        .into_iter()
        .map(|(name, field)| (name, value(&field)))
        .collect();
    record::from_fields(fields, place)
}

fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => (*value).into(),
        Field::Byte(value) => (*value).into(),
        Field::Short(value) => (*value).into(),
        Field::Int(value) => (*value).into(),
        Field::Long(value) => (*value).into(),
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => (*value).into(),
        Field::Float(value) => (*value).into(),
        Field::Double(value) => (*value).into(),
        Field::Str(text) => text.as_str().into(),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.into(),
            Err(_) => Value::Null,
        },
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        other => other.to_string().into(),
    }
}
