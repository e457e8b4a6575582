//! Server-sent events (WHATWG HTML, "Server-sent events"): the data of each event, from bytes as they come.

use std::io::{self, BufRead, BufReader, Read};

/// Longest line taken, in bytes: a server that sends no line break is not read for ever.
const LONGEST_LINE: u64 = 1 << 20;
/// Most data of one event, in bytes.
const LARGEST_EVENT: usize = 1 << 22;

/// Reads events one by one.
pub(super) struct Events<R> {
    lines: BufReader<R>,
}

impl<R: Read> Events<R> {
    pub(super) fn new(body: R) -> Self {
        Self {
            lines: BufReader::new(body),
        }
    }

    /// The data of the next event, its lines joined by line feeds; `None` at the end. Comments, names and ids
    /// are left out; an event that was not closed by an empty line before the end still counts, since some
    /// servers forget it.
    ///
    /// # Errors
    /// The connection's own; a line or event that is too long or no UTF-8.
    pub(super) fn next(&mut self) -> io::Result<Option<String>> {
        let mut data: Option<String> = None;
        loop {
            let mut line = Vec::new();
            let read = (&mut self.lines)
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(data);
            }
            if read as u64 == LONGEST_LINE && !line.ends_with(b"\n") {
                return Err(invalid("a line of more than 1 MiB"));
            }
            while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
                line.pop();
            }
            let line = String::from_utf8(line).map_err(|_| invalid("bytes that are no UTF-8"))?;
            if line.is_empty() {
                if data.is_some() {
                    return Ok(data);
                }
                continue;
            }
            let Some(value) = line.strip_prefix("data:") else {
                continue;
            };
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut data {
                Some(data) if data.len() + value.len() > LARGEST_EVENT => {
                    return Err(invalid("an event of more than 4 MiB"));
                }
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => data = Some(value.to_owned()),
            }
        }
    }
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes one at a time, as a slow network does.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match (self.0.split_first(), buffer.first_mut()) {
                (Some((&first, rest)), Some(to)) => {
                    *to = first;
                    self.0 = rest;
                    Ok(1)
                }
                _ => Ok(0),
            }
        }
    }

    fn events(bytes: &[u8]) -> Vec<String> {
        let mut events = Events::new(Slow(bytes));
        std::iter::from_fn(|| events.next().unwrap()).collect()
    }

    #[test]
    fn events_of_every_shape() {
        assert_eq!(events(b"data: a\n\ndata: b\n\n"), ["a", "b"]);
        assert_eq!(events(b"data:a\r\n\r\ndata:  b\r\n\r\n"), ["a", " b"]);
        assert_eq!(
            events(b": ping\n\nevent: x\nid: 7\ndata: a\ndata: b\nretry: 5\n\n"),
            ["a\nb"]
        );
        assert_eq!(events("data: é東\n\n".as_bytes()), ["é東"]);
        assert_eq!(events(b"data: not closed"), ["not closed"]);
        assert_eq!(events(b"data:\n\n"), [""]);
        assert!(events(b"").is_empty() && events(b"\n\n\r\n: only\n").is_empty());
    }

    #[test]
    fn nothing_is_read_for_ever() {
        let endless = [&b"data: "[..], &vec![b'x'; 2 << 20]].concat();
        assert!(Events::new(endless.as_slice()).next().is_err());
        let many = b"data: 0123456789\n".repeat(1 << 19);
        assert!(Events::new(many.as_slice()).next().is_err());
        assert!(Events::new(&b"data: \xff\n\n"[..]).next().is_err());
    }
}
