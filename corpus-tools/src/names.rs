//! The names of a segment beside its documents' ids: external ids of paragraphs, redirects, and titles in order.
//!
//! One container file ([`fmindex::file`]), mapped and never read ahead; a segment without it has no such names.
//!
//! ```text
//! names.bin   passages             external ids, with passage_starts u64 × (passages + 1)
//!             passage_docs         u32 × passages: the document, in ascending order
//!             passage_firsts       u32 × passages: first paragraph, counted in its document
//!             passage_order        u32 × passages: in the order of their external ids
//!             redirects            alternative titles, with redirect_starts u64 × (redirects + 1)
//!             targets              the titles they lead to, with target_starts; rows by target, then title
//!             redirect_order       u32 × redirects: in the order of the alternative titles
//!             title_order          u32 × documents: in the order of their titles
//! ```
//!
//! A redirect names its target by title and not by document: in a dump it stands before or after the page
//! it leads to, and that page may lie in another segment.

use std::ops::Range;
use std::path::Path;

use fmindex::file::{File, FileError, Words, Writer};

use crate::store::{Column, Strings};

/// The file's name in a segment's folder.
pub const NAMES_FILE: &str = "names.bin";
const NAMES_KIND: &str = "names";

/// The external ids of a document's paragraphs: where those of one passage begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// External id, as the corpus gave it.
    pub id: String,
    /// Number of its first paragraph in the document; its last is the one before the next passage's first.
    pub first_paragraph: u32,
}

/// A name that leads to a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Redirect {
    /// Title of the page it leads to.
    pub target: String,
    /// The alternative title.
    pub title: String,
}

/// The names of one segment, mapped.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    file: File,
    passages: Strings,
    passage_documents: Words<u32>,
    passage_paragraphs: Words<u32>,
    passage_order: Words<u32>,
    redirects: Strings,
    targets: Strings,
    redirect_order: Words<u32>,
    title_order: Words<u32>,
}

impl Names {
    /// Maps the names in the segment's folder `dir`, of `documents` documents; `None` where there are none.
    pub fn open(dir: &Path, documents: u32) -> Result<Option<Self>, FileError> {
        let path = dir.join(NAMES_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let file = File::open(&path, NAMES_KIND)?;
        let names = Self {
            passages: Strings::open(&file, "passages", "passage_starts")?,
            passage_documents: file.section("passage_docs")?.u32s()?,
            passage_paragraphs: file.section("passage_firsts")?.u32s()?,
            passage_order: file.section("passage_order")?.u32s()?,
            redirects: Strings::open(&file, "redirects", "redirect_starts")?,
            targets: Strings::open(&file, "targets", "target_starts")?,
            redirect_order: file.section("redirect_order")?.u32s()?,
            title_order: file.section("title_order")?.u32s()?,
            file,
        };
        let (passages, redirects) = (names.passages.count(), names.redirects.count());
        let agree = names.passage_documents.len() == passages
            && names.passage_paragraphs.len() == passages
            && names.passage_order.len() == passages
            && names.targets.count() == redirects
            && names.redirect_order.len() == redirects
            && names.title_order.len() == documents as usize;
        match agree {
            true => Ok(Some(names)),
            false => Err(names.damaged("its sections speak of different numbers of names")),
        }
    }

    /// The external id of a paragraph (number in its document), where it has one of its own.
    pub fn paragraph_id(&self, document: u32, paragraph: u32) -> Result<Option<&str>, FileError> {
        let rows = self.passages_of(document);
        let after = partition(rows.clone(), |row| {
            self.passage_paragraphs.get(row) <= Some(paragraph)
        });
        match after.checked_sub(1).filter(|row| rows.contains(row)) {
            Some(row) if paragraph > 0 => self.passages.get(row as u32).map(Some),
            _ => Ok(None),
        }
    }

    /// All passages of a document, in order.
    pub fn passages(&self, document: u32) -> Result<Vec<Passage>, FileError> {
        self.passages_of(document)
            .map(|row| {
                Ok(Passage {
                    id: self.passages.get(row as u32)?.to_owned(),
                    first_paragraph: self.passage_paragraphs.get(row).unwrap_or(0),
                })
            })
            .collect()
    }

    /// The document that holds the passage of an external id, and where the passage's paragraphs begin
    /// and end in it; the end is open for the document's last one.
    pub fn find_passage(&self, id: &str) -> Result<Option<(u32, u32, Option<u32>)>, FileError> {
        let Some(row) = self.search(&self.passage_order, &self.passages, id)?.next() else {
            return Ok(None);
        };
        let row = row as usize;
        let document = self.passage_documents.get(row).unwrap_or(u32::MAX);
        let first = self.passage_paragraphs.get(row).unwrap_or(0);
        let next = (self.passage_documents.get(row + 1) == Some(document))
            .then(|| self.passage_paragraphs.get(row + 1))
            .flatten();
        Ok(Some((document, first, next)))
    }

    /// The titles to which a title leads by a redirect.
    pub fn targets(&self, title: &str) -> Result<Vec<&str>, FileError> {
        self.search(&self.redirect_order, &self.redirects, title)?
            .map(|row| self.targets.get(row))
            .collect()
    }

    /// The alternative titles that lead to a title.
    pub fn alternatives(&self, target: &str) -> Result<Vec<&str>, FileError> {
        let mut found = Vec::new();
        let rows = 0..self.targets.count();
        let first = try_partition(rows.clone(), |row| {
            Ok(self.targets.get(row as u32)? < target)
        })?;
        for row in (first..rows.end).map(|row| row as u32) {
            if self.targets.get(row)? != target {
                break;
            }
            found.push(self.redirects.get(row)?);
        }
        Ok(found)
    }

    /// All redirects, by target and title.
    pub fn redirects(&self) -> impl Iterator<Item = Result<Redirect, FileError>> + '_ {
        (0..self.redirects.count() as u32).map(|row| {
            Ok(Redirect {
                target: self.targets.get(row)?.to_owned(),
                title: self.redirects.get(row)?.to_owned(),
            })
        })
    }

    /// The documents with this title; `title_of` gives a document's.
    pub fn titled<'a>(
        &self,
        title: &str,
        title_of: impl Fn(u32) -> Result<&'a str, FileError>,
    ) -> Result<Vec<u32>, FileError> {
        let at = |row: usize| self.title_order.get(row).unwrap_or(u32::MAX);
        let rows = 0..self.title_order.len();
        let first = try_partition(rows.clone(), |row| Ok(title_of(at(row))? < title))?;
        let mut found = Vec::new();
        for row in first..rows.end {
            if title_of(at(row))? != title {
                break;
            }
            found.push(at(row));
        }
        Ok(found)
    }

    /// Reads every byte, compares checksums, and checks every string and order.
    pub fn verify<'a>(
        &self,
        title_of: impl Fn(u32) -> Result<&'a str, FileError>,
    ) -> Result<(), FileError> {
        self.file.verify()?;
        self.check_order(&self.passage_order, &self.passages)?;
        self.check_order(&self.redirect_order, &self.redirects)?;
        for row in 1..self.targets.count() as u32 {
            if self.targets.get(row - 1)? > self.targets.get(row)? {
                return Err(self.damaged("the redirects are not in the order of their targets"));
            }
        }
        let mut before = None;
        for row in 0..self.passage_documents.len() {
            let place = (
                self.passage_documents.get(row),
                self.passage_paragraphs.get(row),
            );
            if before.is_some_and(|before| before > place) {
                return Err(self.damaged("the passages are not in the order of their places"));
            }
            before = Some(place);
        }
        let mut before = "";
        for row in 0..self.title_order.len() {
            let title = title_of(self.title_order.get(row).unwrap_or(u32::MAX))?;
            if title < before {
                return Err(self.damaged("the documents are not in the order of their titles"));
            }
            before = title;
        }
        Ok(())
    }

    fn check_order(&self, order: &Words<u32>, strings: &Strings) -> Result<(), FileError> {
        let mut before = "";
        for row in 0..order.len() {
            let text = strings.get(order.get(row).unwrap_or(u32::MAX))?;
            if text < before {
                return Err(self.damaged("its names are not in order"));
            }
            before = text;
        }
        Ok(())
    }

    fn passages_of(&self, document: u32) -> Range<usize> {
        let rows = 0..self.passage_documents.len();
        let first = partition(rows.clone(), |row| {
            self.passage_documents.get(row) < Some(document)
        });
        let end = partition(first..rows.end, |row| {
            self.passage_documents.get(row) <= Some(document)
        });
        first..end
    }

    /// The rows whose string is `wanted`.
    fn search<'a>(
        &'a self,
        order: &'a Words<u32>,
        strings: &'a Strings,
        wanted: &'a str,
    ) -> Result<impl Iterator<Item = u32> + 'a, FileError> {
        let at = move |row: usize| order.get(row).unwrap_or(u32::MAX);
        let first = try_partition(0..order.len(), |row| Ok(strings.get(at(row))? < wanted))?;
        Ok((first..order.len())
            .map(at)
            .take_while(move |&row| strings.get(row).is_ok_and(|text| text == wanted)))
    }

    fn damaged(&self, what: &str) -> FileError {
        FileError::damaged(self.file.path(), 0, what)
    }
}

/// The first of `rows` for which `before` does not hold; it holds for a beginning of them.
fn partition(rows: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (rows.start, rows.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The same where looking can fail.
fn try_partition(
    rows: Range<usize>,
    before: impl Fn(usize) -> Result<bool, FileError>,
) -> Result<usize, FileError> {
    let (mut low, mut high) = (rows.start, rows.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Gathers the names of one segment.
#[derive(Default)]
pub(crate) struct NamesWriter {
    passages: Column,
    documents: Vec<u32>,
    paragraphs: Vec<u32>,
    redirects: Vec<Redirect>,
    redirect_bytes: usize,
}

impl NamesWriter {
    /// The passages of a document; documents come in order.
    pub fn passages(&mut self, document: u32, passages: &[Passage]) {
        for passage in passages {
            self.passages.push(&passage.id);
            self.documents.push(document);
            self.paragraphs.push(passage.first_paragraph);
        }
    }

    /// A redirect, to a page of this segment or of any other.
    pub fn redirect(&mut self, redirect: Redirect) {
        self.redirect_bytes += redirect.title.capacity() + redirect.target.capacity();
        self.redirects.push(redirect);
    }

    /// Bytes of memory taken so far.
    pub fn memory(&self) -> usize {
        self.passages.memory()
            + (self.documents.capacity() + self.paragraphs.capacity()) * size_of::<u32>()
            + self.redirects.capacity() * size_of::<Redirect>()
            + self.redirect_bytes
    }

    /// Writes the file into `dir`; `titles` are those of the documents.
    pub fn finish(mut self, dir: &Path, titles: &Column) -> Result<(), FileError> {
        self.redirects.sort_unstable();
        self.redirects.dedup();
        let (mut redirects, mut targets) = (Column::default(), Column::default());
        for redirect in std::mem::take(&mut self.redirects) {
            redirects.push(&redirect.title);
            targets.push(&redirect.target);
        }
        let passage_order = self.passages.order();
        let redirect_order = redirects.order();
        let title_order = titles.order();
        let mut writer = Writer::create(&dir.join(NAMES_FILE), NAMES_KIND)?;
        self.passages
            .write(&mut writer, "passages", "passage_starts")?;
        redirects.write(&mut writer, "redirects", "redirect_starts")?;
        targets.write(&mut writer, "targets", "target_starts")?;
        for (name, words) in [
            ("passage_docs", &self.documents),
            ("passage_firsts", &self.paragraphs),
            ("passage_order", &passage_order),
            ("redirect_order", &redirect_order),
            ("title_order", &title_order),
        ] {
            writer.begin(name)?;
            writer.write_u32s(words)?;
        }
        writer.finish()
    }
}
