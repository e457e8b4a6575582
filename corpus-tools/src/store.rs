//! The document store of a segment: ids, titles, metadata, original texts, and where paragraphs lie.
//!
//! Two container files ([`fmindex::file`]), mapped and never read ahead (a third holds the [names](crate::names)):
//!
//! ```text
//! text.bin        text             the documents' texts as the corpus gave them, one after the other
//!                 starts           u64 × (documents + 1)
//! documents.bin   ids, titles, metadata (JSON objects)  bytes, each with *_starts u64 × (documents + 1)
//!                 id_order         u32 × documents: document numbers in the order of their ids
//!                 paragraphs       u32 × (documents + 1): number of a document's first paragraph
//!                 byte_starts, byte_ends  u32 × paragraphs: place in the document's text (0, 0: the title)
//!                 token_starts     u32 × (paragraphs + 1): first token in the segment
//! ```
//!
//! An index that keeps no texts has no `text.bin`; a document's text is then what its tokens spell, its
//! paragraphs as lines, and the places of the paragraphs are places in that.
//!
//! Every offset is checked where it is used: a damaged body gives an error.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use fmindex::file::{File, FileError, Section, Words, Writer};
use serde::{Deserialize, Serialize};

use crate::names::{Names, NamesWriter, Passage, Redirect};

const DOCUMENTS_FILE: &str = "documents.bin";
const TEXT_FILE: &str = "text.bin";
const DOCUMENTS_KIND: &str = "documents";
const TEXT_KIND: &str = "text";

/// Whether an index keeps the texts of its documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stored {
    /// The original bytes: quotes are slices of them.
    #[default]
    Text,
    /// No texts: quotes are what the tokens spell (canonical form), and say so.
    None,
}

impl Stored {
    pub(crate) fn is_text(&self) -> bool {
        *self == Self::Text
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::None => "none",
        })
    }
}

/// The name of a way of storing that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("nothing is stored as {0:?}; there are text and none")]
pub struct UnknownStored(String);

impl FromStr for Stored {
    type Err = UnknownStored;

    fn from_str(name: &str) -> Result<Self, UnknownStored> {
        match name {
            "text" => Ok(Self::Text),
            "none" => Ok(Self::None),
            _ => Err(UnknownStored(name.to_owned())),
        }
    }
}

/// A paragraph of a stored document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paragraph {
    /// Number within the document; the title is 0.
    pub number: u32,
    /// Tokens, counted from the document's first, the separator left out.
    pub tokens: Range<u32>,
    /// Bytes of the document's text: a whole line, without its end. `0..0` for the title.
    pub bytes: Range<usize>,
}

impl Paragraph {
    /// Whether this is the title, which is indexed but never quoted.
    pub fn is_title(&self) -> bool {
        self.number == 0
    }
}

/// Mapped strings: bytes with their starts.
#[derive(Clone, Debug)]
pub(crate) struct Strings {
    bytes: Section,
    starts: Words<u64>,
}

impl Strings {
    pub fn open(file: &File, name: &str, starts: &str) -> Result<Self, FileError> {
        let strings = Self {
            bytes: file.section(name)?,
            starts: file.section(starts)?.u64s()?,
        };
        let ends = strings.starts.len().checked_sub(1);
        let last = ends.and_then(|last| strings.starts.get(last));
        if strings.starts.get(0) != Some(0) || last != Some(strings.bytes.len() as u64) {
            return Err(damaged(
                file,
                format!("{starts} do not fit the section {name}"),
            ));
        }
        Ok(strings)
    }

    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn get(&self, index: u32) -> Result<&str, FileError> {
        let index = index as usize;
        let bounds = self.starts.get(index).zip(self.starts.get(index + 1));
        bounds
            .and_then(|(start, end)| {
                self.bytes
                    .bytes()
                    .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
            })
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .ok_or_else(|| {
                damaged(
                    self.bytes.file(),
                    format!(
                        "string {index} of {} is not valid UTF-8 in place",
                        self.count()
                    ),
                )
            })
    }
}

fn damaged(file: &File, what: impl Into<String>) -> FileError {
    FileError::damaged(file.path(), 0, what)
}

/// The documents of one segment, mapped.
#[derive(Clone, Debug)]
pub struct Store {
    ids: Strings,
    titles: Strings,
    metadata: Strings,
    id_order: Words<u32>,
    paragraphs: Words<u32>,
    byte_starts: Words<u32>,
    byte_ends: Words<u32>,
    token_starts: Words<u32>,
    texts: Option<Strings>,
    documents: File,
    text: Option<File>,
    names: Option<Names>,
}

impl Store {
    /// Maps the store in the segment's folder `dir`; reads headers only.
    ///
    /// # Errors
    /// A file is missing, foreign or damaged, or the two do not fit each other.
    pub fn open(dir: &Path, stored: Stored) -> Result<Self, FileError> {
        let documents = File::open(&dir.join(DOCUMENTS_FILE), DOCUMENTS_KIND)?;
        let text = match stored {
            Stored::Text => Some(File::open(&dir.join(TEXT_FILE), TEXT_KIND)?),
            Stored::None => None,
        };
        let mut store = Self {
            names: None,
            ids: Strings::open(&documents, "ids", "id_starts")?,
            titles: Strings::open(&documents, "titles", "title_starts")?,
            metadata: Strings::open(&documents, "metadata", "metadata_starts")?,
            id_order: documents.section("id_order")?.u32s()?,
            paragraphs: documents.section("paragraphs")?.u32s()?,
            byte_starts: documents.section("byte_starts")?.u32s()?,
            byte_ends: documents.section("byte_ends")?.u32s()?,
            token_starts: documents.section("token_starts")?.u32s()?,
            texts: match &text {
                Some(text) => Some(Strings::open(text, "text", "starts")?),
                None => None,
            },
            documents,
            text,
        };
        let count = store.ids.count();
        let agree = store.titles.count() == count
            && store.metadata.count() == count
            && store
                .texts
                .as_ref()
                .is_none_or(|texts| texts.count() == count)
            && store.id_order.len() == count
            && store.paragraphs.len() == count + 1
            && store.byte_starts.len() == store.byte_ends.len()
            && store.token_starts.len() == store.byte_starts.len() + 1
            && store.paragraphs.get(count) == u32::try_from(store.byte_starts.len()).ok();
        if !agree || u32::try_from(count).is_err() {
            let what = "its sections speak of different numbers of documents or paragraphs";
            return Err(damaged(&store.documents, what));
        }
        store.names = Names::open(dir, store.documents())?;
        Ok(store)
    }

    /// Number of documents.
    pub fn documents(&self) -> u32 {
        self.ids.count() as u32
    }

    /// Number of paragraphs, titles included.
    pub fn paragraph_count(&self) -> u64 {
        self.byte_starts.len() as u64
    }

    /// Number of tokens, separators included.
    pub fn tokens(&self) -> u64 {
        self.token_starts
            .get(self.byte_starts.len())
            .unwrap_or(0)
            .into()
    }

    /// Bytes of all texts; `None` where they are not kept.
    pub fn text_bytes(&self) -> Option<u64> {
        self.texts.as_ref().map(|texts| texts.bytes.len() as u64)
    }

    /// The external id of a document.
    ///
    /// # Errors
    /// There is no such document, or the file is damaged; as for all that follow.
    pub fn id(&self, document: u32) -> Result<&str, FileError> {
        self.ids.get(document)
    }

    /// The title of a document, as the corpus gave it.
    ///
    /// # Errors
    /// As [`Store::id`].
    pub fn title(&self, document: u32) -> Result<&str, FileError> {
        self.titles.get(document)
    }

    /// The text of a document, as the corpus gave it; `None` where texts are not kept.
    ///
    /// # Errors
    /// As [`Store::id`].
    pub fn text(&self, document: u32) -> Result<Option<&str>, FileError> {
        self.texts
            .as_ref()
            .map(|texts| texts.get(document))
            .transpose()
    }

    /// Number of paragraphs of a document, its title included; 0 for one that does not exist.
    pub fn paragraphs_of(&self, document: u32) -> u64 {
        let at = document as usize;
        let bounds = self.paragraphs.get(at).zip(self.paragraphs.get(at + 1));
        bounds.map_or(0, |(first, next)| next.saturating_sub(first).into())
    }

    /// The tokens of a document in its segment, separators included. Empty for one that does not exist.
    pub fn token_span(&self, document: u32) -> Range<u32> {
        let start = |document: usize| {
            let first = self.paragraphs.get(document)?;
            self.token_starts.get(first as usize)
        };
        let index = document as usize;
        match (start(index), start(index + 1)) {
            (Some(start), Some(end)) if start <= end => start..end,
            _ => 0..0,
        }
    }

    /// The extra fields of a document: a JSON object, or the empty string for none.
    ///
    /// # Errors
    /// As [`Store::id`].
    pub fn metadata(&self, document: u32) -> Result<&str, FileError> {
        self.metadata.get(document)
    }

    /// The document whose external id is `id`.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn find(&self, id: &str) -> Result<Option<u32>, FileError> {
        let (mut low, mut high) = (0, self.id_order.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let document = self.id_order.get(middle).unwrap_or(u32::MAX);
            match self.ids.get(document)?.cmp(id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(Some(document)),
            }
        }
        Ok(None)
    }

    /// The external id that a paragraph has of its own: that of the passage it came from, where the
    /// passages of a page were grouped into one document. `None` for a title, and where nothing was grouped.
    ///
    /// # Errors
    /// The file is damaged; as for all that follow.
    pub fn paragraph_id(&self, document: u32, paragraph: u32) -> Result<Option<&str>, FileError> {
        match &self.names {
            Some(names) => names.paragraph_id(document, paragraph),
            None => Ok(None),
        }
    }

    /// The passages that were grouped into a document, in order; empty if it was not grouped.
    ///
    /// # Errors
    /// As [`Store::paragraph_id`].
    pub fn passages(&self, document: u32) -> Result<Vec<Passage>, FileError> {
        match &self.names {
            Some(names) => names.passages(document),
            None => Ok(Vec::new()),
        }
    }

    /// The document and the paragraphs of the passage whose external id is `id`.
    ///
    /// # Errors
    /// As [`Store::paragraph_id`].
    pub fn find_passage(&self, id: &str) -> Result<Option<(u32, Range<u32>)>, FileError> {
        let Some((document, first, next)) = self
            .names
            .as_ref()
            .map(|names| names.find_passage(id))
            .transpose()?
            .flatten()
        else {
            return Ok(None);
        };
        let end = match next {
            Some(next) => next,
            None => self.paragraphs(document)?.len() as u32,
        };
        Ok(Some((document, first..end.max(first))))
    }

    /// The documents with exactly this title.
    ///
    /// # Errors
    /// As [`Store::paragraph_id`].
    pub fn titled(&self, title: &str) -> Result<Vec<u32>, FileError> {
        match &self.names {
            Some(names) => names.titled(title, |document| self.title(document)),
            None => Ok(Vec::new()),
        }
    }

    /// The titles to which `title` leads by redirects that stand in this segment; the pages may lie in others.
    ///
    /// # Errors
    /// As [`Store::paragraph_id`].
    pub fn redirect_targets(&self, title: &str) -> Result<Vec<&str>, FileError> {
        match &self.names {
            Some(names) => names.targets(title),
            None => Ok(Vec::new()),
        }
    }

    /// The alternative titles of the title `target` that stand in this segment, in order.
    ///
    /// # Errors
    /// As [`Store::paragraph_id`].
    pub fn alternative_titles(&self, target: &str) -> Result<Vec<&str>, FileError> {
        match &self.names {
            Some(names) => names.alternatives(target),
            None => Ok(Vec::new()),
        }
    }

    /// All redirects of the segment, by target and title.
    ///
    /// # Errors
    /// As [`Store::paragraph_id`], for each.
    pub fn redirects(&self) -> impl Iterator<Item = Result<Redirect, FileError>> + '_ {
        self.names.iter().flat_map(Names::redirects)
    }

    /// The paragraphs of a document; the first is the title.
    ///
    /// # Errors
    /// As [`Store::id`].
    pub fn paragraphs(&self, document: u32) -> Result<Vec<Paragraph>, FileError> {
        self.checked_paragraphs(document).ok_or_else(|| {
            let what = format!("the paragraphs of document {document} do not lie inside of it");
            damaged(&self.documents, what)
        })
    }

    fn checked_paragraphs(&self, document: u32) -> Option<Vec<Paragraph>> {
        let index = document as usize;
        let first = self.paragraphs.get(index)? as usize;
        let last = self.paragraphs.get(index + 1)? as usize;
        if first >= last || last > self.byte_starts.len() {
            return None;
        }
        let text = match &self.texts {
            Some(texts) => Some(texts.get(document).ok()?),
            None => None,
        };
        let base = self.token_starts.get(first)?;
        let mut end_before = 0;
        (first..last)
            .map(|at| {
                let start = self.token_starts.get(at)?.checked_sub(base)?;
                let next = self.token_starts.get(at + 1)?.checked_sub(base)?;
                // The separator is the last token of every paragraph.
                let end = next.checked_sub(1).filter(|&end| start <= end)?;
                let bytes = self.byte_starts.get(at)? as usize..self.byte_ends.get(at)? as usize;
                if let Some(text) = text {
                    text.get(bytes.clone())?;
                }
                if bytes.start < end_before || bytes.end < bytes.start {
                    return None;
                }
                end_before = bytes.end;
                Some(Paragraph {
                    number: (at - first) as u32,
                    tokens: start..end,
                    bytes,
                })
            })
            .collect()
    }

    /// Reads every byte, compares checksums, and checks every offset, string and the order of ids.
    ///
    /// # Errors
    /// The first place that is wrong.
    pub fn verify(&self) -> Result<(), FileError> {
        self.documents.verify()?;
        self.text.iter().try_for_each(File::verify)?;
        let mut tokens = 0;
        for document in 0..self.documents() {
            self.title(document)?;
            let metadata = self.metadata(document)?;
            let object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>;
            if !metadata.is_empty() && object(metadata).is_err() {
                let what = format!("the metadata of document {document} are not a JSON object");
                return Err(damaged(&self.documents, what));
            }
            if self.find(self.id(document)?)? != Some(document) {
                let what = format!("document {document} is not found by its id");
                return Err(damaged(&self.documents, what));
            }
            for paragraph in self.paragraphs(document)? {
                tokens += u64::from(paragraph.tokens.end - paragraph.tokens.start) + 1;
            }
        }
        if tokens != self.tokens() {
            return Err(damaged(&self.documents, "token starts do not add up"));
        }
        if let Some(names) = &self.names {
            names.verify(|document| self.title(document))?;
        }
        Ok(())
    }
}

/// Strings on their way into a file.
#[derive(Default)]
pub(crate) struct Column {
    bytes: Vec<u8>,
    starts: Vec<u64>,
}

impl Column {
    pub fn push(&mut self, text: &str) {
        self.starts.push(self.bytes.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn get(&self, index: u32) -> &[u8] {
        let start = self.starts[index as usize] as usize;
        let next = self.starts.get(index as usize + 1);
        &self.bytes[start..next.map_or(self.bytes.len(), |&end| end as usize)]
    }

    /// The numbers of the strings in the order of the strings.
    pub fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.starts.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| (self.get(a), a).cmp(&(self.get(b), b)));
        order
    }

    /// Bytes of memory that may be taken: twice what is held, since vectors grow by doubling.
    pub fn memory(&self) -> usize {
        2 * (self.bytes.len() + self.starts.len() * size_of::<u64>())
    }

    pub fn write(mut self, writer: &mut Writer, name: &str, starts: &str) -> Result<(), FileError> {
        self.starts.push(self.bytes.len() as u64);
        writer.section(name, &self.bytes)?;
        writer.begin(starts)?;
        writer.write_u64s(&self.starts)
    }
}

/// What a document is stored with. Texts go to disk as they come, the rest is held until the end.
pub(crate) struct NewDocument<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub text: &'a str,
    /// A JSON object, or empty.
    pub metadata: &'a str,
    /// Places of the paragraphs in `text`, the title's empty one first.
    pub paragraphs: &'a [Range<u32>],
    /// Tokens of each paragraph, the separator left out.
    pub token_counts: &'a [u32],
    /// External ids of paragraphs, where passages were grouped.
    pub passages: &'a [Passage],
}

/// Writes the store of one segment, document by document.
pub(crate) struct StoreWriter {
    path: PathBuf,
    text: Option<Writer>,
    text_starts: Vec<u64>,
    text_bytes: u64,
    ids: Column,
    titles: Column,
    metadata: Column,
    paragraphs: Vec<u32>,
    byte_starts: Vec<u32>,
    byte_ends: Vec<u32>,
    token_starts: Vec<u32>,
    tokens: u32,
    names: NamesWriter,
}

impl StoreWriter {
    /// Starts the store in the existing folder `dir`.
    pub fn create(dir: &Path, stored: Stored) -> Result<Self, FileError> {
        let text = match stored {
            Stored::Text => {
                let mut text = Writer::create(&dir.join(TEXT_FILE), TEXT_KIND)?;
                text.begin("text")?;
                Some(text)
            }
            Stored::None => None,
        };
        Ok(Self {
            path: dir.join(DOCUMENTS_FILE),
            text,
            text_starts: Vec::new(),
            text_bytes: 0,
            ids: Column::default(),
            titles: Column::default(),
            metadata: Column::default(),
            paragraphs: Vec::new(),
            byte_starts: Vec::new(),
            byte_ends: Vec::new(),
            token_starts: Vec::new(),
            tokens: 0,
            names: NamesWriter::default(),
        })
    }

    /// A redirect to a page of this or of another segment.
    pub fn redirect(&mut self, redirect: Redirect) {
        self.names.redirect(redirect);
    }

    /// Appends a document. The caller keeps the segment below 2³¹ tokens.
    pub fn push(&mut self, document: &NewDocument<'_>) -> Result<(), FileError> {
        self.names.passages(self.documents(), document.passages);
        if let Some(text) = &mut self.text {
            text.write(document.text.as_bytes())?;
        }
        self.text_starts.push(self.text_bytes);
        self.text_bytes += document.text.len() as u64;
        self.ids.push(document.id);
        self.titles.push(document.title);
        self.metadata.push(document.metadata);
        self.paragraphs.push(self.byte_starts.len() as u32);
        for (bytes, tokens) in document.paragraphs.iter().zip(document.token_counts) {
            self.byte_starts.push(bytes.start);
            self.byte_ends.push(bytes.end);
            self.token_starts.push(self.tokens);
            self.tokens += tokens + 1;
        }
        Ok(())
    }

    /// Number of documents so far.
    pub fn documents(&self) -> u32 {
        self.text_starts.len() as u32
    }

    /// Tokens so far, separators included.
    pub fn tokens(&self) -> u64 {
        self.tokens.into()
    }

    /// Number of paragraphs so far.
    pub fn paragraph_count(&self) -> u64 {
        self.byte_starts.len() as u64
    }

    /// Bytes of the texts so far, kept or not.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Bytes of memory that may be taken so far: twice what is held, since vectors grow by doubling.
    pub fn memory(&self) -> u64 {
        let columns = [&self.ids, &self.titles, &self.metadata];
        let strings: usize = columns.map(Column::memory).iter().sum();
        let words = self.text_starts.len() * 8
            + (self.byte_starts.len() * 3 + self.paragraphs.len() * 2) * 4;
        (strings + 2 * words + self.names.memory()) as u64
    }

    /// Writes what is held and finishes the files.
    pub fn finish(mut self) -> Result<(), FileError> {
        self.text_starts.push(self.text_bytes);
        if let Some(mut text) = self.text.take() {
            text.begin("starts")?;
            text.write_u64s(&self.text_starts)?;
            text.finish()?;
        }

        self.paragraphs.push(self.byte_starts.len() as u32);
        self.token_starts.push(self.tokens);
        let id_order = self.ids.order();
        if let Some(dir) = self.path.parent() {
            self.names.finish(dir, &self.titles)?;
        }

        let mut writer = Writer::create(&self.path, DOCUMENTS_KIND)?;
        self.ids.write(&mut writer, "ids", "id_starts")?;
        self.titles.write(&mut writer, "titles", "title_starts")?;
        self.metadata
            .write(&mut writer, "metadata", "metadata_starts")?;
        for (name, words) in [
            ("id_order", &id_order),
            ("paragraphs", &self.paragraphs),
            ("byte_starts", &self.byte_starts),
            ("byte_ends", &self.byte_ends),
            ("token_starts", &self.token_starts),
        ] {
            writer.begin(name)?;
            writer.write_u32s(words)?;
        }
        writer.finish()
    }
}
