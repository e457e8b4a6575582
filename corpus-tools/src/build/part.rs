//! Parts: tokenized documents on disk, between reading and the segments they go into.
//!
//! A part is a small document store with its texts, and `tokens.bin`:
//!
//! ```text
//! tokens        u32: the documents' tokens, every paragraph closed by the separator
//! lines         u64 × documents: line of the input (or number of the record)
//! files         u32 × documents: which of the names it stands in
//! names         the inputs' names, with name_starts u64
//! ```

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use fmindex::file::{File, FileError, Words, Writer};

use super::prepare::Prepared;
use crate::reader::Place;
use crate::store::{Column, NewDocument, Store, StoreWriter, Stored, Strings};

const TOKENS_FILE: &str = "tokens.bin";
const TOKENS_KIND: &str = "tokens";

/// Writes a part, document by document.
pub(super) struct PartWriter {
    store: StoreWriter,
    tokens: Writer,
    token_count: u64,
    lines: Vec<u64>,
    files: Vec<u32>,
    names: Vec<Arc<str>>,
    ids: Vec<Box<str>>,
    /// The ids of grouped passages and where they stand.
    passages: Vec<(Box<str>, Place)>,
}

impl PartWriter {
    /// Starts a part in the new folder `dir`; what stood there is removed.
    pub fn create(dir: &Path) -> Result<Self, FileError> {
        if dir.exists() {
            fs::remove_dir_all(dir).map_err(|e| FileError::io(dir, "clear the folder", e))?;
        }
        fs::create_dir_all(dir).map_err(|e| FileError::io(dir, "create the folder", e))?;
        let mut tokens = Writer::create(&dir.join(TOKENS_FILE), TOKENS_KIND)?;
        tokens.begin("tokens")?;
        Ok(Self {
            store: StoreWriter::create(dir, Stored::Text)?,
            tokens,
            token_count: 0,
            lines: Vec::new(),
            files: Vec::new(),
            names: Vec::new(),
            ids: Vec::new(),
            passages: Vec::new(),
        })
    }

    /// Appends a document.
    pub fn push(&mut self, document: &Prepared) -> Result<(), FileError> {
        self.tokens.write_u32s(&document.tokens)?;
        self.token_count += document.tokens.len() as u64;
        let place = &document.record.place;
        if self.names.last() != Some(&place.file) {
            self.names.push(Arc::clone(&place.file));
        }
        self.files.push(self.names.len() as u32 - 1);
        self.lines.push(place.line);
        self.ids.push(document.record.id.as_str().into());
        for part in &document.record.parts {
            self.passages
                .push((part.id.as_str().into(), part.place.clone()));
        }
        for redirect in &document.record.redirects {
            self.store.redirect(redirect.clone());
        }
        self.store.push(&NewDocument {
            id: &document.record.id,
            title: &document.record.title,
            text: &document.record.text,
            metadata: &document.metadata,
            paragraphs: &document.paragraphs,
            token_counts: &document.token_counts,
            passages: &document.passages,
        })
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u64 {
        self.token_count
    }

    /// Bytes of the texts so far.
    pub fn text_bytes(&self) -> u64 {
        self.store.text_bytes()
    }

    /// Bytes of memory and of disk that ask for an end of the part.
    pub fn weight(&self) -> u64 {
        self.store.text_bytes() + self.store.memory()
    }

    /// Where the document with this id stands in its input.
    pub fn place_of(&self, id: &str) -> Option<Place> {
        let at = self.ids.iter().position(|other| &**other == id)?;
        Some(Place {
            file: Arc::clone(&self.names[self.files[at] as usize]),
            line: self.lines[at],
        })
    }

    /// Where the grouped passage with this id stands in its input.
    pub fn place_of_passage(&self, id: &str) -> Option<Place> {
        let found = self.passages.iter().find(|(other, _)| &**other == id)?;
        Some(found.1.clone())
    }

    /// Writes all files.
    pub fn finish(mut self) -> Result<(), FileError> {
        self.tokens.begin("lines")?;
        self.tokens.write_u64s(&self.lines)?;
        self.tokens.begin("files")?;
        self.tokens.write_u32s(&self.files)?;
        let mut names = Column::default();
        self.names.iter().for_each(|name| names.push(name));
        names.write(&mut self.tokens, "names", "name_starts")?;
        self.tokens.finish()?;
        self.store.finish()
    }
}

/// A finished part, mapped.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub store: Store,
    tokens: Words<u32>,
    lines: Words<u64>,
    files: Words<u32>,
    names: Strings,
}

impl Part {
    /// Maps the part in `dir`.
    pub fn open(dir: &Path) -> Result<Self, FileError> {
        let store = Store::open(dir, Stored::Text)?;
        let file = File::open(&dir.join(TOKENS_FILE), TOKENS_KIND)?;
        let part = Self {
            tokens: file.section("tokens")?.u32s()?,
            lines: file.section("lines")?.u64s()?,
            files: file.section("files")?.u32s()?,
            names: Strings::open(&file, "names", "name_starts")?,
            store,
        };
        let documents = part.store.documents() as usize;
        if part.tokens.len() as u64 != part.store.tokens()
            || part.lines.len() != documents
            || part.files.len() != documents
        {
            let what = "it does not fit the documents beside it";
            return Err(FileError::damaged(file.path(), 0, what));
        }
        Ok(part)
    }

    /// Appends the tokens at these positions of the part.
    pub fn extend(&self, span: Range<u32>, into: &mut Vec<u32>) {
        let span = span.start as usize..span.end as usize;
        let words = self.tokens.raw().get(span).unwrap_or_default();
        into.extend(words.iter().map(|&word| u32::from_le(word)));
    }

    /// Where a document stands in its input.
    pub fn place(&self, document: u32) -> Result<Place, FileError> {
        let at = document as usize;
        let name = self.names.get(self.files.get(at).unwrap_or(u32::MAX))?;
        Ok(Place {
            file: name.into(),
            line: self.lines.get(at).unwrap_or(0),
        })
    }
}
