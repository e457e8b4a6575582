//! A folder of texts: one document a file, its id the path below the folder.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::dump::LeftOut;
use super::utf16::{self, Utf16};
use super::{BadRecord, Entry, Place, ReadError, Record, html};

/// Texts with all their lines no longer than this may be broken into lines by hand.
const LONGEST_WRAPPED: usize = 120;
/// A line shorter than this ends where it does on purpose: a heading, a verse.
const SHORTEST_WRAPPED: usize = 45;
/// Folders within folders, at most.
const DEEPEST: usize = 200;

/// A folder that is being read, in the order of the names.
pub(super) struct Folder {
    /// The folders that are open, each with what is left of it, the last entry first.
    open: Vec<Level>,
    bytes: u64,
    left_out: LeftOut,
}

struct Level {
    /// The folder without links, to notice that a link leads back.
    real: PathBuf,
    /// Its path below the folder that was named, with `/`, ending in one.
    below: String,
    entries: Vec<PathBuf>,
}

/// What a file's ending says.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Markdown,
    Html,
}

impl Folder {
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let failed = |source| ReadError::Open {
            input: path.display().to_string(),
            source,
        };
        let real = path.canonicalize().map_err(failed)?;
        let entries = entries(path).map_err(failed)?;
        Ok(Self {
            open: vec![Level {
                real,
                below: String::new(),
                entries,
            }],
            bytes: 0,
            left_out: LeftOut::new(),
        })
    }

    /// Bytes of the files read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// Files of other kinds, counted.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// The next document or what is wrong with a file; `None` at the end.
    pub fn next(&mut self, longest: usize) -> Option<Entry> {
        loop {
            let level = self.open.last_mut()?;
            let Some(path) = level.entries.pop() else {
                self.open.pop();
                continue;
            };
            let place = Place {
                file: path.display().to_string().into(),
                line: 1,
            };
            let bad = |reason: String| Some(Entry::Bad(BadRecord::at(&place, reason)));
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return bad("the name of the file is not UTF-8, so it can be no id".to_owned());
            };
            let id = format!("{}{name}", level.below);
            let found = match fs::metadata(&path) {
                Ok(found) => found,
                Err(error) => return bad(format!("cannot be looked at: {error}")),
            };
            if found.is_dir() {
                if let Some(reason) = self.enter(&path, id) {
                    return bad(reason);
                }
                continue;
            }
            let Some(kind) = kind(&path) else {
                *self
                    .left_out
                    .entry("files of other kinds than .txt, .md, .html".to_owned())
                    .or_default() += 1;
                continue;
            };
            if !found.is_file() {
                return bad("not a file: a device, a socket or a pipe".to_owned());
            }
            self.bytes += found.len();
            let text = match fs::File::open(&path) {
                Ok(file) => read(file, longest),
                Err(error) => Err(cannot_read(error)),
            };
            return match text {
                Ok(text) => Some(Entry::Record(Box::new(document(kind, id, &text, place)))),
                Err(reason) => bad(reason),
            };
        }
    }

    /// Goes on with a folder; says why if it cannot.
    fn enter(&mut self, path: &Path, id: String) -> Option<String> {
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) => return Some(format!("cannot be opened: {error}")),
        };
        if self.open.iter().any(|level| level.real == real) {
            return Some("a link that leads back into a folder it lies in".to_owned());
        }
        if self.open.len() >= DEEPEST {
            return Some(format!("more than {DEEPEST} folders deep"));
        }
        match entries(path) {
            Ok(entries) => {
                self.open.push(Level {
                    real,
                    below: format!("{id}/"),
                    entries,
                });
                None
            }
            Err(error) => Some(format!("cannot be opened: {error}")),
        }
    }
}

/// The entries of a folder, the last name first; hidden ones are none.
fn entries(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            entries.push(entry.path());
        }
    }
    entries.sort_unstable_by(|a, b| b.cmp(a));
    Ok(entries)
}

fn kind(path: &Path) -> Option<Kind> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    match ending.as_str() {
        "txt" | "text" => Some(Kind::Text),
        "md" | "markdown" => Some(Kind::Markdown),
        "html" | "htm" | "xhtml" => Some(Kind::Html),
        _ => None,
    }
}

fn cannot_read(error: std::io::Error) -> String {
    format!("cannot be read: {error}")
}

/// One text as a document, as a folder of them is read: what `id` ends in says whether it is HTML or Markdown; anything
/// else is plain text. Line ends within a paragraph that was wrapped by hand become spaces, and every other byte of a
/// text in UTF-8 stays at its place (a byte order mark in front is no text).
///
/// # Errors
/// Why it is no text, in words: it cannot be read, is longer than `longest` bytes, binary, or neither UTF-8 nor UTF-16.
pub fn text_document(id: String, input: impl Read, longest: usize) -> Result<Record, String> {
    let text = read(input, longest)?;
    let kind = kind(Path::new(&id)).unwrap_or(Kind::Text);
    let place = Place {
        file: id.as_str().into(),
        line: 1,
    };
    Ok(document(kind, id, &text, place))
}

/// A file as a string, or why it is none.
fn read(input: impl Read, longest: usize) -> Result<String, String> {
    let failed = cannot_read;
    let mut bytes = Vec::new();
    input
        .take((longest as u64).saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() > longest {
        return Err(format!("the file is longer than {longest} bytes"));
    }
    if let Some(order) = utf16::order(&bytes) {
        let mut decoded = Vec::new();
        Utf16::new(bytes.as_slice(), order)
            .read_to_end(&mut decoded)
            .map_err(failed)?;
        bytes = decoded;
    }
    if bytes.starts_with("\u{feff}".as_bytes()) {
        bytes.drain(..3);
    }
    if bytes.contains(&0) {
        return Err("a binary file: it holds zero bytes".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = memchr::memchr_iter(b'\n', &error.as_bytes()[..at]).count() + 1;
        format!("invalid UTF-8 at byte {at}, in line {line}; convert the file to UTF-8")
    })
}

fn document(kind: Kind, id: String, text: &str, place: Place) -> Record {
    let stem = || {
        let stem = Path::new(&id).file_stem();
        stem.map_or(String::new(), |stem| stem.to_string_lossy().into_owned())
    };
    let (title, text) = match kind {
        Kind::Html => {
            let (title, text) = html::text(text);
            (if title.is_empty() { stem() } else { title }, text)
        }
        Kind::Markdown => {
            let heading = text.lines().find_map(|line| line.strip_prefix("# "));
            let title =
                heading.map(|heading| heading.trim().trim_end_matches('#').trim_end().to_owned());
            (
                title.filter(|title| !title.is_empty()).unwrap_or_else(stem),
                unwrapped(text),
            )
        }
        Kind::Text => (stem(), unwrapped(text)),
    };
    Record::new(id, title, text, place)
}

/// A text with the lines of a paragraph on one line, if it was broken into lines by hand.
///
/// Only line ends become spaces, so that every byte stays where the file has it.
fn unwrapped(text: &str) -> String {
    let length = |line: &str| line.trim_end().chars().count();
    if text.lines().any(|line| length(line) > LONGEST_WRAPPED) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let goes_on = lines.peek().is_some_and(|next| {
            let begins = next.starts_with(|c: char| c.is_alphabetic() || "\"'(“‘«„".contains(c));
            begins
                && length(line) >= SHORTEST_WRAPPED
                && !line.starts_with(['#', '|', '\t', '>'])
                && !line.starts_with("    ")
        });
        if goes_on {
            out.extend(
                line.chars()
                    .map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }),
            );
        } else {
            out.push_str(line);
        }
    }
    out
}
