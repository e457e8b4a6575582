//! Lines of an input: files and standard input, decompressed by content, with a bound on length.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Input, Place, ReadError};

const BUFFER: usize = 1 << 17;
/// 128 MiB: the largest window of Zstandard's long mode without further flags.
const ZSTD_WINDOW_LOG: u32 = 27;

/// Counts the bytes that are read through it.
struct Counting<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// The next line of a source.
pub(super) enum Line<'a> {
    /// Nothing but white space.
    Blank,
    /// A line, without its end.
    Text(&'a str),
    /// A line, or the rest of the input, that cannot be used, and why.
    Bad(String),
}

/// An open input.
pub(super) struct Source {
    name: Arc<str>,
    reader: Box<dyn BufRead + Send>,
    count: Arc<AtomicU64>,
    line: u64,
    buffer: Vec<u8>,
    /// An error of the very first read; reported as the first line.
    broken: Option<io::Error>,
    failed: bool,
}

/// The corpus in a folder as BEIR publishes it, else the path itself.
pub(super) fn corpus_file(path: &Path) -> PathBuf {
    let inside = path.join("corpus.jsonl");
    if path.is_dir() && inside.is_file() {
        inside
    } else {
        path.to_owned()
    }
}

impl Source {
    pub fn open(input: &Input) -> Result<Self, ReadError> {
        let open = |source| ReadError::Open {
            input: input.to_string(),
            source,
        };
        let count = Arc::new(AtomicU64::new(0));
        let raw: Box<dyn Read + Send> = match input {
            Input::StandardInput => Box::new(io::stdin()),
            Input::Path(path) | Input::WikiSummaries(path) => {
                let path = corpus_file(path);
                if path.is_dir() {
                    return Err(ReadError::Unsupported {
                        input: input.to_string(),
                        what: "a folder without corpus.jsonl; name the files of the corpus",
                    });
                }
                Box::new(fs::File::open(&path).map_err(open)?)
            }
        };
        let counting = Counting {
            inner: raw,
            count: Arc::clone(&count),
        };
        let mut reader = decompressed(BufReader::with_capacity(BUFFER, counting)).map_err(open)?;
        let (head, broken) = match reader.fill_buf() {
            Ok(head) => (head, None),
            Err(error) => (&[][..], Some(error)),
        };
        let what = if head.starts_with(b"PAR1") {
            Some("a Parquet file; convert it to JSON Lines with the fields id, title, text")
        } else if head.starts_with(b"<mediawiki") {
            Some("a MediaWiki dump; convert it to JSON Lines with the fields id, title, text")
        } else if head.starts_with(&[0xFF, 0xFE]) || head.starts_with(&[0xFE, 0xFF]) {
            Some("text in UTF-16; convert it to UTF-8")
        } else {
            None
        };
        if let Some(what) = what {
            return Err(ReadError::Unsupported {
                input: input.to_string(),
                what,
            });
        }
        Ok(Self {
            name: input.to_string().into(),
            reader,
            count,
            line: 0,
            buffer: Vec::new(),
            broken,
            failed: false,
        })
    }

    /// Bytes read so far, before decompression.
    pub fn bytes_read(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The next line with its place; `None` at the end, and after an error of reading.
    pub fn next_line(&mut self, longest: usize) -> Option<(Place, Line<'_>)> {
        if self.failed {
            return None;
        }
        self.buffer.clear();
        self.line += 1;
        let place = Place {
            file: Arc::clone(&self.name),
            line: self.line,
        };
        let limit = longest as u64 + 1;
        let read = (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut self.buffer);
        let mut failure = self.broken.take().or(read.err());
        if failure.is_none() && self.buffer.is_empty() {
            return None;
        }
        if failure.is_none() && self.buffer.len() as u64 == limit && !self.buffer.ends_with(b"\n") {
            self.buffer = Vec::new();
            failure = self.reader.skip_until(b'\n').err();
            if failure.is_none() {
                let reason = format!("the line is longer than {longest} bytes");
                return Some((place, Line::Bad(reason)));
            }
        }
        if let Some(error) = failure {
            self.failed = true;
            let reason = match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    "the input ends in the middle of compressed data: it is truncated".to_owned()
                }
                _ => format!("reading fails here ({error}); the rest of the input is left out"),
            };
            return Some((place, Line::Bad(reason)));
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

/// Recognises gzip, Zstandard and bzip2 by their first bytes, many members included.
pub(crate) fn decompressed<R: Read + Send + 'static>(
    mut raw: BufReader<R>,
) -> io::Result<Box<dyn BufRead + Send>> {
    let head = raw.fill_buf()?;
    Ok(if head.starts_with(&[0x1F, 0x8B]) {
        Box::new(buffered(flate2::bufread::MultiGzDecoder::new(raw)))
    } else if head.starts_with(&[0x28, 0xB5, 0x2F, 0xFD])
        || (head.len() >= 4 && head[0] & 0xF0 == 0x50 && head[1..4] == [0x2A, 0x4D, 0x18])
    {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(raw)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG)?;
        Box::new(buffered(decoder))
    } else if head.len() >= 4 && head.starts_with(b"BZh") && (b'1'..=b'9').contains(&head[3]) {
        Box::new(buffered(bzip2::bufread::MultiBzDecoder::new(raw)))
    } else {
        Box::new(raw)
    })
}

fn buffered<R: Read>(inner: R) -> BufReader<R> {
    BufReader::with_capacity(BUFFER, inner)
}
