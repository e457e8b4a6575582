//! Lines and list elements of an input, decompressed, with their numbers.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};

use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde_json::Value;

use crate::reader::{Input, decompressed};

/// Longest line that is held in memory. DPR and KILT records carry passages; nothing comes near this.
const LONGEST_LINE: u64 = 64 << 20;

/// Opens an input and undoes its compression.
pub(super) fn open(input: &Input) -> io::Result<Box<dyn BufRead + Send>> {
    let raw: Box<dyn Read + Send> = match input {
        Input::StandardInput => Box::new(io::stdin()),
        Input::Path(path) | Input::WikiSummaries(path) => Box::new(fs::File::open(path)?),
    };
    decompressed(BufReader::with_capacity(1 << 16, raw))
}

/// The first byte that is not white space, a byte order mark aside, within the first buffer.
pub(super) fn first_byte(reader: &mut impl BufRead) -> Option<u8> {
    let head = reader.fill_buf().unwrap_or_default();
    let head = head.strip_prefix("\u{feff}".as_bytes()).unwrap_or(head);
    head.iter()
        .copied()
        .find(|byte| !byte.is_ascii_whitespace())
}

/// The next line of an input.
pub(super) enum Line<'a> {
    /// Nothing but white space.
    Blank,
    /// A line without its end.
    Text(&'a str),
    /// A line, or the rest of the input, that cannot be used, and why.
    Bad(String),
}

/// The lines of an input.
pub(super) struct Lines {
    reader: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    number: u64,
    ended: bool,
}

impl Lines {
    pub fn new(reader: Box<dyn BufRead + Send>) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            number: 0,
            ended: false,
        }
    }

    /// The next line with its number, from 1.
    pub fn next_line(&mut self) -> Option<(u64, Line<'_>)> {
        if self.ended {
            return None;
        }
        self.buffer.clear();
        self.number += 1;
        let read = (&mut self.reader)
            .take(LONGEST_LINE + 1)
            .read_until(b'\n', &mut self.buffer);
        let too_long = self.buffer.len() as u64 > LONGEST_LINE;
        let rest = if too_long && !self.buffer.ends_with(b"\n") {
            self.reader.skip_until(b'\n')
        } else {
            Ok(0)
        };
        if let Err(error) = read.and(rest) {
            self.ended = true;
            let reason = format!("reading fails here ({error}); the rest is left out");
            return Some((self.number, Line::Bad(reason)));
        }
        if self.buffer.is_empty() {
            self.ended = true;
            return None;
        }
        if too_long {
            let reason = format!("the line is longer than {LONGEST_LINE} bytes");
            return Some((self.number, Line::Bad(reason)));
        }
        let mut line = self.buffer.as_slice();
        if self.number == 1 {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        let line = match std::str::from_utf8(line) {
            Ok(line) if line.trim().is_empty() => Line::Blank,
            Ok(line) => Line::Text(line.trim_end_matches(['\n', '\r'])),
            Err(error) => {
                let at = error.valid_up_to();
                Line::Bad(format!("invalid UTF-8 at byte {at} of the line"))
            }
        };
        Some((self.number, line))
    }
}

/// Reads a JSON list and hands its elements over one after another, with their numbers from 1; where
/// the JSON is broken, the reason, and nothing after it.
pub(super) fn read_list(
    mut reader: impl BufRead,
    take: &mut dyn FnMut(u64, Result<Value, String>),
) {
    let mark = "\u{feff}".as_bytes();
    if reader.fill_buf().is_ok_and(|head| head.starts_with(mark)) {
        reader.consume(mark.len());
    }
    let mut number = 0;
    let mut parser = serde_json::Deserializer::from_reader(reader);
    let elements = Elements {
        number: &mut number,
        take,
    };
    let read = elements
        .deserialize(&mut parser)
        .and_then(|()| parser.end());
    if let Err(error) = read {
        let reason = format!("broken JSON: {error}; the rest is left out");
        take(number + 1, Err(reason));
    }
}

struct Elements<'a> {
    number: &'a mut u64,
    take: &'a mut dyn FnMut(u64, Result<Value, String>),
}

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element::<Value>()? {
            *self.number += 1;
            (self.take)(*self.number, Ok(element));
        }
        Ok(())
    }
}
