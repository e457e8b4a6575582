//! bzip2 in parallel: the streams of a multistream file are decompressed on several threads, in order.
//!
//! A dump is published as many streams of a hundred pages, one after the other. Each begins at a byte with
//! a signature of ten bytes; between two of them a stream is cut out and given to a thread. A file in
//! one stream is decompressed on one thread, beside whoever reads it.
//!
//! A damaged stream is an error of reading, after which the next one can be read.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bzip2::read::MultiBzDecoder;
use memchr::memmem;

/// Compressed bytes read at a time.
const STEP: usize = 1 << 18;
/// A stream longer than this, compressed, is not cut out but decompressed as it comes.
const LONGEST_STREAM: usize = 8 << 20;
/// Decompressed bytes of a stream that a thread holds ready; an exploding one goes on only as it is read.
const AHEAD: usize = 32 << 20;
/// Bytes handed over at a time from a stream that is not cut out.
const PIECE: usize = 1 << 20;

/// A stream with its signature: block size, then the first block's magic number (π in decimal digits).
const MAGIC: &[u8] = b"1AY&SY";
const SIGNATURE: usize = 10;

type Stream = MultiBzDecoder<Cursor<Vec<u8>>>;

/// Decompressed bytes and what follows them.
struct Piece {
    bytes: Vec<u8>,
    then: Then,
}

/// What follows a piece.
enum Then {
    /// The next one.
    Next,
    /// The rest of its stream, which was too long to be held.
    Rest(Box<Stream>),
    /// Damage; then the next one.
    Failed(io::Error),
}

struct Job {
    compressed: Vec<u8>,
    answer: SyncSender<Piece>,
}

/// The decompressed bytes of a bzip2 file.
pub(super) struct Streams {
    /// The pieces in their order, each as it becomes ready.
    pieces: Receiver<Receiver<Piece>>,
    current: Cursor<Vec<u8>>,
    then: Then,
}

impl Streams {
    /// Decompresses `raw` on `threads` threads (0: one a processor).
    pub fn new(raw: impl Read + Send + 'static, threads: usize) -> Self {
        let threads = match threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
        .min(64);
        let (in_order, pieces) = sync_channel(2 * threads);
        let (jobs, queue) = sync_channel::<Job>(threads);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(Job { compressed, answer }) = job else {
                        return;
                    };
                    // Nobody may be waiting any more.
                    let _ = answer.send(decompress(compressed));
                }
            });
        }
        thread::spawn(move || split(raw, &in_order, &jobs));
        Self {
            pieces,
            current: Cursor::default(),
            then: Then::Next,
        }
    }
}

impl Read for Streams {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let read = self.current.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            match std::mem::replace(&mut self.then, Then::Next) {
                Then::Next => {}
                Then::Failed(error) => return Err(error),
                Then::Rest(mut stream) => {
                    let read = stream.read(buffer)?;
                    if read > 0 {
                        self.then = Then::Rest(stream);
                        return Ok(read);
                    }
                }
            }
            let Ok(piece) = self.pieces.recv() else {
                return Ok(0);
            };
            let Ok(piece) = piece.recv() else {
                return Err(io::Error::other("a thread of decompression ended"));
            };
            self.current = Cursor::new(piece.bytes);
            self.then = piece.then;
        }
    }
}

fn decompress(compressed: Vec<u8>) -> Piece {
    let mut stream = MultiBzDecoder::new(Cursor::new(compressed));
    let mut bytes = Vec::new();
    // What comes out before the damage is good.
    let then = match (&mut stream).take(AHEAD as u64).read_to_end(&mut bytes) {
        Err(error) => Then::Failed(error),
        Ok(AHEAD) => Then::Rest(Box::new(stream)),
        Ok(_) => Then::Next,
    };
    Piece { bytes, then }
}

/// Cuts the file into streams. Ends when the file does, or when nobody reads any more.
fn split(mut raw: impl Read, in_order: &SyncSender<Receiver<Piece>>, jobs: &SyncSender<Job>) {
    let hand_over = |compressed: Vec<u8>| {
        let (answer, ready) = sync_channel(1);
        in_order.send(ready).is_ok() && jobs.send(Job { compressed, answer }).is_ok()
    };
    let ready = |piece: Piece| {
        let (answer, ready) = sync_channel(1);
        answer.send(piece).is_ok() && in_order.send(ready).is_ok()
    };
    let mut stream: Vec<u8> = Vec::new();
    loop {
        // What was searched before cannot hold a whole signature, but its beginning.
        let from = stream.len().saturating_sub(SIGNATURE - 1).max(1);
        let before = stream.len();
        let read = (&mut raw).take(STEP as u64).read_to_end(&mut stream);
        if stream.len() > before {
            let mut from = from;
            while let Some(next) = signature(&stream, from) {
                let rest = stream.split_off(next);
                if !hand_over(std::mem::replace(&mut stream, rest)) {
                    return;
                }
                from = 1;
            }
        }
        let ended = match read {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => {
                if !stream.is_empty() && !hand_over(std::mem::take(&mut stream)) {
                    return;
                }
                ready(Piece {
                    bytes: Vec::new(),
                    then: Then::Failed(error),
                });
                return;
            }
        };
        if ended {
            if !stream.is_empty() {
                hand_over(stream);
            }
            return;
        }
        if stream.len() > LONGEST_STREAM {
            let mut whole = MultiBzDecoder::new(Cursor::new(stream).chain(raw));
            loop {
                let mut bytes = Vec::new();
                let read = (&mut whole).take(PIECE as u64).read_to_end(&mut bytes);
                let (then, ended) = match read {
                    Ok(0) => return,
                    Ok(_) => (Then::Next, false),
                    Err(error) => (Then::Failed(error), true),
                };
                if !ready(Piece { bytes, then }) || ended {
                    return;
                }
            }
        }
    }
}

/// Where a stream begins at or after `from`.
fn signature(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let found = at + memmem::find(bytes.get(at..)?, MAGIC)?;
        if let Some(start) = found.checked_sub(4).filter(|&start| start >= from)
            && bytes[start..].starts_with(b"BZh")
            && (b'1'..=b'9').contains(&bytes[start + 3])
        {
            return Some(start);
        }
        at = found + 1;
    }
}
