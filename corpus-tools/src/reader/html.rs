//! HTML as text: what a reader of the page sees, one paragraph a line.

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{Token, Tokenizer};

/// The title and text of a page: what a reader sees of it, one paragraph a line. No input fails.
pub fn text(html: &str) -> (String, String) {
    let mut page = Page::default();
    let mut emitter = DefaultEmitter::default();
    // The contents of scripts and styles are no tags.
    emitter.naively_switch_states(true);
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        match token {
            Token::StartTag(tag) => {
                let name = String::from_utf8_lossy(&tag.name).into_owned();
                page.open(&name);
                if tag.self_closing && SKIPPED.contains(&name.as_str()) {
                    page.close(&name);
                }
            }
            Token::EndTag(tag) => page.close(&String::from_utf8_lossy(&tag.name)),
            Token::String(text) => page.push(&String::from_utf8_lossy(&text)),
            _ => {}
        }
    }
    page.end_line();
    if page.text.ends_with('\n') {
        page.text.pop();
    }
    let title: Vec<&str> = page.title.split_whitespace().collect();
    (title.join(" "), page.text)
}

/// Elements whose content is not read as text of the page.
const SKIPPED: &[&str] = &[
    "script", "style", "template", "noscript", "iframe", "svg", "math", "canvas", "audio", "video",
    "object", "nav", "footer", "select", "button", "textarea", "datalist", "dialog",
];

/// Elements that stand on lines of their own.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "br",
    "caption",
    "center",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hgroup",
    "hr",
    "html",
    "legend",
    "li",
    "main",
    "menu",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "tbody",
    "tfoot",
    "thead",
    "tr",
    "ul",
];

#[derive(Default)]
struct Page {
    title: String,
    text: String,
    line: String,
    /// The skipped element that is open, and how often.
    skipped: Option<(String, usize)>,
    in_title: bool,
    preformatted: usize,
    cells: bool,
}

impl Page {
    fn open(&mut self, name: &str) {
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += usize::from(skipped == name);
        } else if SKIPPED.contains(&name) {
            self.skipped = Some((name.to_owned(), 1));
        } else if name == "title" {
            // Only the first one is the page's.
            self.in_title = self.title.is_empty();
        } else if BLOCKS.contains(&name) {
            self.end_line();
            self.preformatted += usize::from(name == "pre");
        } else if matches!(name, "td" | "th") {
            if self.cells && !self.line.trim().is_empty() {
                let end = self.line.trim_end().len();
                self.line.truncate(end);
                self.line.push_str("; ");
            }
            self.cells = true;
        }
    }

    fn close(&mut self, name: &str) {
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth -= usize::from(skipped == name);
            if *depth == 0 {
                self.skipped = None;
            }
        } else if name == "title" {
            self.in_title = false;
        } else if BLOCKS.contains(&name) {
            self.end_line();
            self.preformatted -= usize::from(name == "pre" && self.preformatted > 0);
        }
    }

    fn push(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            self.title.push_str(text);
            return;
        }
        for c in text.chars() {
            if c == '\n' && self.preformatted > 0 {
                self.end_line();
            } else if c.is_whitespace() {
                if !self.line.ends_with(' ') {
                    self.line.push(' ');
                }
            } else if !c.is_control() {
                self.line.push(c);
            }
        }
    }

    fn end_line(&mut self) {
        self.cells = false;
        let line = std::mem::take(&mut self.line);
        let line = line.trim();
        if !line.is_empty() {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }
}
