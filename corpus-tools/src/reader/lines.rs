//! An input line by line, with a bound on their length.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use super::Place;
use super::source::Source;

/// The next line of a source.
pub(super) enum Line<'a> {
    /// Nothing but white space.
    Blank,
    /// A line, without its end.
    Text(&'a str),
    /// A line, or the rest of the input, that cannot be used, and why.
    Bad(String),
}

/// The lines of an input.
pub(super) struct Lines {
    source: Source,
    line: u64,
    buffer: Vec<u8>,
    failed: bool,
}

impl Lines {
    pub fn new(source: Source) -> Self {
        Self {
            source,
            line: 0,
            buffer: Vec::new(),
            failed: false,
        }
    }

    /// The next line with its place; `None` at the end, and after an error of reading.
    pub fn next_line(&mut self, longest: usize) -> Option<(Place, Line<'_>)> {
        if self.failed {
            return None;
        }
        self.buffer.clear();
        self.line += 1;
        let place = Place {
            file: Arc::clone(&self.source.name),
            line: self.line,
        };
        let limit = longest as u64 + 1;
        let read = (&mut self.source.reader)
            .take(limit)
            .read_until(b'\n', &mut self.buffer);
        let mut failure = read.err();
        if failure.is_none() && self.buffer.is_empty() {
            return None;
        }
        if failure.is_none() && self.buffer.len() as u64 == limit && !self.buffer.ends_with(b"\n") {
            self.buffer = Vec::new();
            failure = self.source.reader.skip_until(b'\n').err();
            if failure.is_none() {
                let reason = format!("the line is longer than {longest} bytes");
                return Some((place, Line::Bad(reason)));
            }
        }
        if let Some(error) = failure {
            self.failed = true;
            return Some((place, Line::Bad(failed_reading(&error))));
        }
        let mut line = self.buffer.as_slice();
        if self.line == 1 {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        let line = match std::str::from_utf8(line) {
            Ok(line) => line.trim_end_matches(['\n', '\r']),
            Err(error) => {
                let reason = format!("invalid UTF-8 at byte {} of the line", error.valid_up_to());
                return Some((place, Line::Bad(reason)));
            }
        };
        if line.trim().is_empty() {
            return Some((place, Line::Blank));
        }
        Some((place, Line::Text(line)))
    }
}

/// Why an input cannot be read on.
pub(super) fn failed_reading(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            "the input ends in the middle of compressed data: it is truncated".to_owned()
        }
        _ => format!("reading fails here ({error}); the rest of the input is left out"),
    }
}
