//! MediaWiki dumps: pages of articles as records, redirects as alternative titles.
//!
//! The XML is cut at `<page>` and `</page>`, which no escaped text can hold, and each page is parsed by
//! itself: what is damaged in one page harms no other, memory holds a few megabytes of pages whatever the
//! length of the dump, and pages become text in parallel.
//!
//! The dump is read once, as it comes. A redirect may stand before or after the page it leads to, so it is
//! given to the index with the next record, by titles; the index resolves it when a title is looked up.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, ErrorKind};
use std::sync::Arc;

use memchr::{memchr, memchr_iter, memmem};
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader as Xml, XmlVersion};
use rayon::prelude::*;

use super::lines::failed_reading;
use super::source::Source;
use super::{BadRecord, Entry, Place, ReadOptions, Record};
use crate::names::Redirect;
use crate::wikitext::{Site, plain_text, redirect_target};

/// Bytes of pages that become text at a time, and most pages.
const BATCH: usize = 4 << 20;
const BATCH_PAGES: usize = 256;
/// Longest head in front of the first page.
const LONGEST_HEAD: usize = 1 << 20;
/// Bytes read from the source at a time.
const STEP: usize = 1 << 18;
/// So many kinds of what is left out are told apart.
const MOST_KINDS: usize = 50;

/// What was left out on purpose, by kind, with its number.
pub type LeftOut = BTreeMap<String, u64>;

/// Whether an input begins like a dump.
pub(super) fn is_dump(head: &[u8]) -> bool {
    let head = head.strip_prefix("\u{feff}".as_bytes()).unwrap_or(head);
    let head = head.trim_ascii_start();
    head.starts_with(b"<mediawiki")
        || head.starts_with(b"<page>")
        || head.starts_with(b"<?xml") && memmem::find(head, b"<mediawiki").is_some()
}

/// A dump that is being read.
pub(super) struct Dump {
    pages: Pages,
    site: Option<Arc<Site>>,
    ready: VecDeque<Entry>,
    /// The last record, held back until its redirects are known: those in front of the next one.
    held: Option<Box<Record>>,
    /// Redirects in front of the first record.
    redirects: Vec<Redirect>,
    left_out: LeftOut,
    ended: bool,
}

/// What a page is.
enum Page {
    Article {
        id: String,
        title: String,
        text: String,
    },
    Redirect(Redirect),
    LeftOut(String),
    Bad(String),
}

impl Dump {
    pub fn new(source: Source, options: &ReadOptions) -> Self {
        Self {
            pages: Pages {
                source,
                window: Vec::new(),
                start: 0,
                line: 1,
                longest: options.longest_line,
                ended: false,
                failed: None,
            },
            site: None,
            ready: VecDeque::new(),
            held: None,
            redirects: Vec::new(),
            left_out: LeftOut::new(),
            ended: false,
        }
    }

    /// What was left out so far.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// The next record or bad record; `None` at the end.
    pub fn next(&mut self) -> Option<Entry> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(entry);
            }
            if self.ended {
                let mut last = self.held.take()?;
                last.redirects.append(&mut self.redirects);
                return Some(Entry::Record(last));
            }
            self.batch();
        }
    }

    /// Reads some pages and turns them into text.
    fn batch(&mut self) {
        let site = match &self.site {
            Some(site) => Arc::clone(site),
            None => {
                let site = Arc::new(site(&self.pages.head()));
                self.site = Some(Arc::clone(&site));
                site
            }
        };
        let mut raw = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH && raw.len() < BATCH_PAGES {
            match self.pages.next() {
                Some((line, page)) => {
                    bytes += page.as_ref().map_or(0, Vec::len);
                    raw.push((line, page));
                }
                None => {
                    self.ended = true;
                    break;
                }
            }
        }
        let pages: Vec<(u64, Page)> = raw
            .into_par_iter()
            .map(|(line, page)| match page {
                Ok(page) => (line, read_page(&page, &site)),
                Err(reason) => (line, Page::Bad(reason)),
            })
            .collect();
        for (line, page) in pages {
            let place = Place {
                file: Arc::clone(&self.pages.source.name),
                line,
            };
            match page {
                Page::Article { id, title, text } => {
                    let mut record = Box::new(Record::new(id, title, text, place));
                    match self.held.take() {
                        Some(mut before) => {
                            before.redirects.append(&mut self.redirects);
                            self.ready.push_back(Entry::Record(before));
                        }
                        None => record.redirects.append(&mut self.redirects),
                    }
                    self.held = Some(record);
                }
                Page::Redirect(redirect) => {
                    self.count("redirects, kept as alternative titles".to_owned());
                    self.redirects.push(redirect);
                }
                Page::LeftOut(kind) => self.count(kind),
                Page::Bad(reason) => self
                    .ready
                    .push_back(Entry::Bad(BadRecord::at(&place, reason))),
            }
        }
    }

    fn count(&mut self, kind: String) {
        if self.left_out.len() < MOST_KINDS || self.left_out.contains_key(&kind) {
            *self.left_out.entry(kind).or_default() += 1;
        } else {
            *self
                .left_out
                .entry("pages of other kinds".to_owned())
                .or_default() += 1;
        }
    }
}

/// The raw pages of a dump, cut out of its bytes.
struct Pages {
    source: Source,
    /// Bytes that were read; from `start` on they are still to be used.
    window: Vec<u8>,
    start: usize,
    /// The line of the first byte that is still to be used.
    line: u64,
    longest: usize,
    ended: bool,
    /// Why reading failed behind what is in the window.
    failed: Option<String>,
}

impl Pages {
    /// What stands in front of the first page.
    fn head(&mut self) -> Vec<u8> {
        loop {
            if let Some(found) = memmem::find(&self.window, b"<page") {
                return self.window[..found].to_vec();
            }
            let more = match self.window.len() > LONGEST_HEAD {
                true => More::Ended,
                false => self.read(),
            };
            if let More::Failed(reason) = more {
                self.failed = Some(reason);
            } else if matches!(more, More::Read) {
                continue;
            }
            return self.window[..self.window.len().min(LONGEST_HEAD)].to_vec();
        }
    }

    /// The next page with its line, or why it is none.
    fn next(&mut self) -> Option<(u64, Result<Vec<u8>, String>)> {
        // To the start of a page.
        loop {
            let rest = &self.window[self.start..];
            if let Some(found) = memmem::find(rest, b"<page") {
                // `<pages>`, `<pageid>` and the like are others.
                match rest.get(found + 5) {
                    Some(b'>' | b' ' | b'\t' | b'\n' | b'\r') => {
                        self.forward(found);
                        break;
                    }
                    Some(_) => {
                        self.forward(found + 5);
                        continue;
                    }
                    None => self.forward(found),
                }
            } else {
                self.forward(rest.len().saturating_sub(4));
            }
            match self.read() {
                More::Read => {}
                More::Ended => return None,
                More::Failed(reason) => return Some((self.line, Err(reason))),
            }
        }
        // To its end.
        let line = self.line;
        let mut searched = 5;
        loop {
            let rest = &self.window[self.start..];
            let end = memmem::find(&rest[searched..], b"</page").map(|found| searched + found);
            let next = memmem::find(&rest[searched..end.unwrap_or(rest.len())], b"<page>")
                .map(|found| searched + found);
            if let Some(next) = next {
                self.forward(next);
                return Some((
                    line,
                    Err("the page does not end before the next one begins".to_owned()),
                ));
            }
            if let Some(end) = end
                && let Some(close) = memchr(b'>', &rest[end..])
            {
                let page = rest[..=end + close].to_vec();
                self.forward(page.len());
                return Some((
                    line,
                    match page.len() > self.longest {
                        true => Err(self.too_long()),
                        false => Ok(page),
                    },
                ));
            }
            if rest.len() > self.longest {
                // What follows is skipped up to the next page.
                let reason = self.too_long();
                self.forward(5);
                self.skip_page();
                return Some((line, Err(reason)));
            }
            searched = end.unwrap_or(rest.len().saturating_sub(6)).max(5);
            let reason = match self.read() {
                More::Read => continue,
                More::Ended => {
                    "the dump ends in the middle of this page: it is truncated".to_owned()
                }
                // What was read of the page is lost; the next one begins after the damage.
                More::Failed(reason) => reason,
            };
            self.forward(self.window.len() - self.start);
            return Some((line, Err(reason)));
        }
    }

    fn too_long(&self) -> String {
        format!("the page is longer than {} bytes", self.longest)
    }

    /// Passes over the rest of a page that is too long to be held.
    fn skip_page(&mut self) {
        loop {
            let rest = &self.window[self.start..];
            if let Some(end) = memmem::find(rest, b"</page") {
                return self.forward(end);
            }
            self.forward(rest.len().saturating_sub(6));
            match self.read() {
                More::Read => {}
                More::Ended => return,
                More::Failed(reason) => {
                    self.failed = Some(reason);
                    return;
                }
            }
        }
    }

    /// Uses `count` bytes.
    fn forward(&mut self, count: usize) {
        let used = &self.window[self.start..self.start + count];
        self.line += memchr_iter(b'\n', used).count() as u64;
        self.start += count;
    }

    /// Reads some more.
    fn read(&mut self) -> More {
        if let Some(reason) = self.failed.take() {
            return More::Failed(reason);
        }
        if self.ended {
            return More::Ended;
        }
        self.window.drain(..self.start);
        self.start = 0;
        let mut left = STEP;
        while left > 0 {
            let reason = match self.source.reader.fill_buf() {
                Ok([]) => {
                    self.ended = true;
                    break;
                }
                Ok(bytes) => {
                    let taken = bytes.len().min(left);
                    self.window.extend_from_slice(&bytes[..taken]);
                    self.source.reader.consume(taken);
                    left -= taken;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.ended = !self.source.survives;
                    match error.kind() {
                        ErrorKind::UnexpectedEof => failed_reading(&error),
                        _ if self.ended => failed_reading(&error),
                        _ => format!("the archive is damaged here ({error}); some pages are lost"),
                    }
                }
            };
            // What stands in front of the damage is used first.
            if left == STEP {
                return More::Failed(reason);
            }
            self.failed = Some(reason);
            break;
        }
        match left == STEP {
            true => More::Ended,
            false => More::Read,
        }
    }
}

/// What reading more of a dump gave.
enum More {
    Read,
    Ended,
    /// Nothing but a reason; more may follow it.
    Failed(String),
}

/// The wiki, by the head of its dump.
fn site(head: &[u8]) -> Site {
    let head = String::from_utf8_lossy(head);
    let mut name = String::new();
    let mut namespaces: Vec<(i32, String)> = Vec::new();
    let mut key = None;
    let mut in_name = false;
    let mut xml = Xml::from_str(&head);
    xml.config_mut().check_end_names = false;
    loop {
        match xml.read_event() {
            Ok(Event::Start(tag)) => match tag.local_name().as_ref() {
                "sitename" => in_name = true,
                "namespace" => {
                    key = attribute(&tag, "key").and_then(|key| key.parse().ok());
                    namespaces.extend(key.map(|key| (key, String::new())));
                }
                _ => {}
            },
            Ok(Event::End(_)) => (key, in_name) = (None, false),
            Ok(Event::Text(text)) => {
                let text = text.xml10_content();
                match namespaces.last_mut() {
                    Some((_, name)) if key.is_some() => name.push_str(&text),
                    _ if in_name => name.push_str(&text),
                    _ => {}
                }
            }
            Ok(Event::Eof) | Err(_) => break,
            Ok(_) => {}
        }
    }
    let namespaces = namespaces.iter().map(|(key, name)| (*key, name.as_str()));
    Site::new(&name, namespaces)
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = tag.try_get_attribute(name).ok()??;
    Some(
        attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .ok()?
            .into_owned(),
    )
}

/// What the XML of a page holds.
#[derive(Default)]
struct Fields {
    title: String,
    id: String,
    namespace: String,
    model: String,
    redirect: Option<String>,
    text: String,
    deleted: bool,
}

fn read_page(page: &[u8], site: &Site) -> Page {
    let page = match std::str::from_utf8(page) {
        Ok(page) => page,
        Err(error) => {
            let line = memchr_iter(b'\n', &page[..error.valid_up_to()]).count();
            return Page::Bad(format!(
                "invalid UTF-8 at byte {} of the page, in its line {}",
                error.valid_up_to(),
                line + 1
            ));
        }
    };
    let fields = match fields(page) {
        Ok(fields) => fields,
        Err(reason) => return Page::Bad(reason),
    };
    let (title, id) = (fields.title.trim(), fields.id.trim());
    if title.is_empty() {
        return Page::Bad("the page has no title".to_owned());
    }
    let namespace = match fields.namespace.trim() {
        "" => site.namespace(title),
        number => match number.parse() {
            Ok(number) => number,
            Err(_) => {
                return Page::Bad(format!("the namespace {number:?} of the page is no number"));
            }
        },
    };
    if namespace != 0 {
        return Page::LeftOut("pages of other namespaces".to_owned());
    }
    let target = match &fields.redirect {
        Some(target) => Some(target.clone()).filter(|target| !target.is_empty()),
        None => redirect_target(&fields.text),
    };
    if let Some(target) = target {
        let target = target
            .split('#')
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned();
        return Page::Redirect(Redirect {
            target,
            title: title.to_owned(),
        });
    }
    if !matches!(fields.model.trim(), "" | "wikitext") {
        let model: String = fields.model.trim().chars().take(40).collect();
        return Page::LeftOut(format!("pages of the content model {model}"));
    }
    if fields.deleted && fields.text.is_empty() {
        return Page::LeftOut("pages whose text was deleted".to_owned());
    }
    if id.is_empty() {
        return Page::Bad("the page has no id".to_owned());
    }
    Page::Article {
        id: id.to_owned(),
        title: title.to_owned(),
        text: plain_text(&fields.text, title, site),
    }
}

/// The fields of a page; of several revisions the last one's.
fn fields(page: &str) -> Result<Fields, String> {
    let mut fields = Fields::default();
    // Names of the open elements, as far as they matter.
    let mut open: Vec<Element> = Vec::new();
    let mut xml = Xml::from_str(page);
    loop {
        let event = xml.read_event().map_err(|error| {
            format!(
                "broken XML: {error} at byte {} of the page",
                xml.error_position()
            )
        })?;
        match event {
            Event::Start(tag) => {
                let element = begin(&mut fields, &open, &tag);
                open.push(element);
            }
            Event::Empty(tag) => {
                begin(&mut fields, &open, &tag);
            }
            Event::End(_) => {
                open.pop();
            }
            Event::Text(text) => push(&mut fields, &open, &text.xml10_content()),
            Event::CData(text) => push(&mut fields, &open, &text.xml10_content()),
            Event::GeneralRef(reference) => {
                let name = reference.xml10_content();
                if let Some(text) = resolve_predefined_entity(&name) {
                    push(&mut fields, &open, text);
                } else if let Ok(Some(c)) = reference.resolve_char_ref() {
                    push(&mut fields, &open, c.encode_utf8(&mut [0; 4]));
                } else {
                    return Err(format!(
                        "broken XML: an entity {name:?} that XML does not know"
                    ));
                }
            }
            Event::Eof => return Ok(fields),
            _ => {}
        }
    }
}

/// An element of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    Page,
    Title,
    Namespace,
    Id,
    Revision,
    Model,
    Text,
    Other,
}

fn begin(fields: &mut Fields, open: &[Element], tag: &BytesStart<'_>) -> Element {
    let name = tag.local_name();
    match (open, name.as_ref()) {
        ([], "page") => Element::Page,
        ([Element::Page], "title") => Element::Title,
        ([Element::Page], "ns") => Element::Namespace,
        ([Element::Page], "id") => Element::Id,
        ([Element::Page], "redirect") => {
            fields.redirect = Some(attribute(tag, "title").unwrap_or_default());
            Element::Other
        }
        ([Element::Page], "revision") => Element::Revision,
        ([Element::Page, Element::Revision], "model") => {
            fields.model.clear();
            Element::Model
        }
        ([Element::Page, Element::Revision], "text") => {
            fields.text.clear();
            fields.deleted = attribute(tag, "deleted").is_some();
            Element::Text
        }
        _ => Element::Other,
    }
}

fn push(fields: &mut Fields, open: &[Element], text: &str) {
    match open.last() {
        Some(Element::Title) => fields.title.push_str(text),
        Some(Element::Namespace) => fields.namespace.push_str(text),
        Some(Element::Id) => fields.id.push_str(text),
        Some(Element::Model) => fields.model.push_str(text),
        Some(Element::Text) => fields.text.push_str(text),
        _ => {}
    }
}
