//! The bytes of an input: files and standard input, decompressed by content, in UTF-8.

use std::fs;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bz2::Streams;
use super::utf16::{self, Utf16};
use super::{Input, ReadError};

const BUFFER: usize = 1 << 17;
/// 128 MiB: the largest window of Zstandard's long mode without further flags.
const ZSTD_WINDOW_LOG: u32 = 27;
/// Bytes that are looked at to tell the format.
const HEAD: usize = 1 << 14;

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

/// An open input.
pub(super) struct Source {
    /// The input's name.
    pub name: Arc<str>,
    /// The decompressed bytes.
    pub reader: Box<dyn BufRead + Send>,
    /// The first of them, still to be read; shorter only at the end of the input.
    pub head: Vec<u8>,
    /// Whether something good can follow an error of reading.
    pub survives: bool,
    /// The file, where it lies as it is read: neither compressed nor standard input.
    pub plain: Option<PathBuf>,
    count: Arc<AtomicU64>,
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
    /// Opens an input, on `threads` threads where that helps.
    pub fn open(input: &Input, threads: usize) -> Result<Self, ReadError> {
        let open = |source| ReadError::Open {
            input: input.to_string(),
            source,
        };
        let count = Arc::new(AtomicU64::new(0));
        let mut plain = None;
        let raw: Box<dyn Read + Send> = match input {
            Input::StandardInput => Box::new(io::stdin()),
            Input::Path(path) | Input::WikiSummaries(path) => {
                let path = corpus_file(path);
                let file = fs::File::open(&path).map_err(open)?;
                plain = Some(path);
                Box::new(file)
            }
        };
        let counting = Counting {
            inner: raw,
            count: Arc::clone(&count),
        };
        let (mut reader, packing) =
            unpacked(BufReader::with_capacity(BUFFER, counting), threads).map_err(open)?;
        let (mut head, mut broken) = look(&mut reader);
        if let Some(order) = utf16::order(&head) {
            let whole: Box<dyn Read + Send> =
                Box::new(Cursor::new(head).chain(Broken(broken)).chain(reader));
            reader = Box::new(buffered(Utf16::new(whole, order)));
            (head, broken) = look(&mut reader);
            plain = None;
        }
        Ok(Self {
            name: input.to_string().into(),
            reader: Box::new(
                Cursor::new(head.clone())
                    .chain(Broken(broken))
                    .chain(reader),
            ),
            head,
            survives: packing == Packing::Bzip2,
            plain: plain.filter(|_| packing == Packing::None),
            count,
        })
    }

    /// Where to ask for the bytes read so far, before decompression.
    pub fn count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.count)
    }
}

/// The first bytes, and an error behind them.
fn look(reader: &mut impl Read) -> (Vec<u8>, Option<io::Error>) {
    let mut head = Vec::new();
    let broken = reader.take(HEAD as u64).read_to_end(&mut head).err();
    (head, broken)
}

/// Nothing but an error, once: that of looking ahead, where it belongs.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl BufRead for Broken {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.take().map_or(Ok(&[]), Err)
    }

    fn consume(&mut self, _: usize) {}
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    None,
    Gzip,
    Zstandard,
    Bzip2,
}

/// The decompressed bytes of an input, whatever packs it.
pub(crate) fn decompressed<R: Read + Send + 'static>(
    raw: BufReader<R>,
) -> io::Result<Box<dyn BufRead + Send>> {
    Ok(unpacked(raw, 1)?.0)
}

/// Recognises gzip, Zstandard and bzip2 by their first bytes, many members included.
fn unpacked<R: Read + Send + 'static>(
    mut raw: BufReader<R>,
    threads: usize,
) -> io::Result<(Box<dyn BufRead + Send>, Packing)> {
    let head = raw.fill_buf()?;
    Ok(if head.starts_with(&[0x1F, 0x8B]) {
        let decoder = flate2::bufread::MultiGzDecoder::new(raw);
        (Box::new(buffered(decoder)), Packing::Gzip)
    } else if head.starts_with(&[0x28, 0xB5, 0x2F, 0xFD])
        || (head.len() >= 4 && head[0] & 0xF0 == 0x50 && head[1..4] == [0x2A, 0x4D, 0x18])
    {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(raw)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG)?;
        (Box::new(buffered(decoder)), Packing::Zstandard)
    } else if head.len() >= 4 && head.starts_with(b"BZh") && (b'1'..=b'9').contains(&head[3]) {
        (
            Box::new(buffered(Streams::new(raw, threads))),
            Packing::Bzip2,
        )
    } else {
        (Box::new(raw), Packing::None)
    })
}

fn buffered<R: Read>(inner: R) -> BufReader<R> {
    BufReader::with_capacity(BUFFER, inner)
}
