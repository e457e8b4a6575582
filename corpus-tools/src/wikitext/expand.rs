//! From the source of a page to wikitext without templates, comments and extension tags.

use std::collections::HashMap;
use std::ops::Range;

use super::marks::{BREAK, DROPPED, push_escaped};
use super::math::math_text;
use super::structure::{EXTENSIONS, Extension, Kind, Span, spans};
use super::{Site, templates};

/// Constructs nested deeper than this are left out.
const DEEPEST: usize = 24;
/// Sources within sources: a gallery in a poem in a gallery.
const DEEPEST_SOURCE: usize = 3;

/// Expands `source` into wikitext that holds only links, tables, lists, headings and HTML tags.
pub(super) fn expand(source: &str, site: &Site, title: &str) -> String {
    let mut out = String::with_capacity(source.len());
    expand_source(source, site, title, 0, &mut out);
    out
}

fn expand_source(source: &str, site: &Site, title: &str, level: usize, out: &mut String) {
    let page = Page {
        source,
        spans: spans(source),
        site,
        title,
        level,
    };
    page.expand(0..source.len(), 0, out);
}

struct Page<'a> {
    source: &'a str,
    spans: Vec<Span>,
    site: &'a Site,
    title: &'a str,
    level: usize,
}

impl Page<'_> {
    /// The first span that begins at or after `at`.
    fn first_span(&self, at: usize) -> usize {
        self.spans.partition_point(|span| span.start < at)
    }

    fn expand(&self, range: Range<usize>, depth: usize, out: &mut String) {
        let mut at = range.start;
        let mut number = self.first_span(at);
        while let Some(span) = self.spans.get(number).filter(|span| span.start < range.end) {
            if span.kind == Kind::Link {
                number += 1;
                continue;
            }
            out.push_str(&self.source[at..span.start]);
            at = self.construct(span, depth, out);
            number = self.first_span(at);
        }
        if at < range.end {
            out.push_str(&self.source[at..range.end]);
        }
    }

    /// Writes one construct and says where the source goes on.
    fn construct(&self, span: &Span, depth: usize, out: &mut String) -> usize {
        let inner = span.inner..span.close;
        match span.kind {
            Kind::Link => {}
            Kind::Comment => {
                // A comment that has a line of its own goes with its line.
                let alone = out.is_empty() || out.ends_with('\n');
                if alone && self.source[span.end..].starts_with('\n') {
                    return span.end + 1;
                }
            }
            Kind::Extension(number) => {
                let content = &self.source[inner];
                self.extension(EXTENSIONS[number].1, content, out);
            }
            _ if depth >= DEEPEST => out.push(DROPPED),
            Kind::Argument => match self.split(inner).get(1) {
                Some(default) => self.expand(default.clone(), depth + 1, out),
                None => out.push(DROPPED),
            },
            Kind::Template => {
                let arguments = self.split(inner);
                Call {
                    page: self,
                    name: self.text(arguments[0].clone(), depth).unwrap_or_default(),
                    positional: Vec::new(),
                    named: Vec::new(),
                    expanded: HashMap::new(),
                    depth,
                    out,
                }
                .write(&arguments);
            }
        }
        span.end
    }

    fn extension(&self, extension: Extension, content: &str, out: &mut String) {
        match extension {
            Extension::Drop => out.push(DROPPED),
            Extension::Verbatim => push_escaped(out, content),
            Extension::Math => push_escaped(out, &math_text(content)),
            Extension::Lines => {
                out.push('\n');
                for line in content.lines() {
                    push_escaped(out, line);
                    out.push(BREAK);
                    out.push('\n');
                }
            }
            _ if self.level >= DEEPEST_SOURCE => out.push(DROPPED),
            Extension::Poem => {
                let mut poem = String::new();
                expand_source(content, self.site, self.title, self.level + 1, &mut poem);
                out.push('\n');
                for line in poem.lines() {
                    out.push_str(line);
                    out.push(BREAK);
                    out.push('\n');
                }
            }
            Extension::Gallery => {
                let mut gallery = String::new();
                expand_source(content, self.site, self.title, self.level + 1, &mut gallery);
                out.push('\n');
                for line in gallery.lines() {
                    if let Some((_, caption)) = line.split_once('|') {
                        out.push_str(caption.rsplit_once("]]|").map_or(caption, |(_, last)| last));
                        out.push(BREAK);
                        out.push('\n');
                    }
                }
            }
        }
    }

    /// Parts a template's inside at its own bars.
    fn split(&self, inner: Range<usize>) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut start = inner.start;
        self.own(inner.clone(), |at, byte| {
            if byte == b'|' {
                parts.push(start..at);
                start = at + 1;
            }
            true
        });
        parts.push(start..inner.end);
        parts
    }

    /// Looks at the bytes of `range` that lie in no construct, until `look` says no.
    fn own(&self, range: Range<usize>, mut look: impl FnMut(usize, u8) -> bool) {
        let bytes = self.source.as_bytes();
        let mut at = range.start;
        let mut number = self.first_span(at);
        while at < range.end {
            match self.spans.get(number) {
                Some(span) if span.start == at => {
                    at = span.end;
                    number = self.first_span(at);
                }
                _ => {
                    if !look(at, bytes[at]) {
                        return;
                    }
                    at += 1;
                }
            }
        }
    }

    /// The expanded text of an argument, trimmed; `None` if it is empty.
    fn text(&self, range: Range<usize>, depth: usize) -> Option<String> {
        let mut text = String::new();
        self.expand(range, depth + 1, &mut text);
        let trimmed = text.trim_matches(|c: char| c.is_whitespace() || c == DROPPED);
        (!trimmed.is_empty()).then(|| trimmed.to_owned())
    }
}

/// A template with its arguments, about to be written.
pub(super) struct Call<'a, 'o> {
    page: &'a Page<'a>,
    name: String,
    positional: Vec<Range<usize>>,
    named: Vec<(&'a str, Range<usize>)>,
    /// Arguments that were asked for, by where they begin.
    expanded: HashMap<usize, Option<String>>,
    depth: usize,
    out: &'o mut String,
}

impl<'a> Call<'a, '_> {
    /// The name, without underscores and prefixes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of positional arguments.
    pub fn count(&self) -> usize {
        self.positional.len()
    }

    /// A positional argument, from 1, expanded; `None` if it is missing or empty.
    pub fn positional(&mut self, number: usize) -> Option<String> {
        let range = self.positional.get(number.checked_sub(1)?)?.clone();
        self.argument(range)
    }

    /// A named argument, expanded; `None` if it is missing or empty.
    pub fn named(&mut self, name: &str) -> Option<String> {
        let (_, range) = self
            .named
            .iter()
            .rfind(|(known, _)| known.eq_ignore_ascii_case(name))?;
        let range = range.clone();
        self.argument(range)
    }

    /// Expands an argument, once: in nested templates asking twice would double at every level.
    fn argument(&mut self, range: Range<usize>) -> Option<String> {
        let start = range.start;
        if let Some(known) = self.expanded.get(&start) {
            return known.clone();
        }
        let text = self.page.text(range, self.depth);
        self.expanded.insert(start, text.clone());
        text
    }

    /// Appends to the page.
    pub fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn write(mut self, parts: &[Range<usize>]) {
        let name = self.name.replace('_', " ");
        let mut name = name.split(DROPPED).collect::<String>().trim().to_owned();
        for prefix in ["subst:", "safesubst:", "template:", "msg:"] {
            if let Some(rest) = strip_prefix(&name, prefix) {
                name = rest.trim_start().to_owned();
            }
        }
        if let Some((function, first)) = name.split_once(':').filter(|(f, _)| !f.is_empty()) {
            let (function, first) = (function.to_lowercase(), first.trim().to_owned());
            return self.function(&function, &first, &parts[1..]);
        }
        match name.as_str() {
            "PAGENAME" | "FULLPAGENAME" | "SUBPAGENAME" | "BASEPAGENAME" => {
                push_escaped(self.out, self.page.title);
                return;
            }
            "SITENAME" => {
                push_escaped(self.out, self.page.site.name());
                return;
            }
            _ => {}
        }
        self.name = name;
        for part in &parts[1..] {
            let mut equals = None;
            self.page.own(part.clone(), |at, byte| {
                equals = (byte == b'=').then_some(at);
                equals.is_none()
            });
            let named = equals.map(|at| (self.page.source[part.start..at].trim(), at));
            match named {
                Some((name, at)) => {
                    // `1=…` is the first positional argument, written out.
                    match name.parse::<usize>() {
                        Ok(number) if (1..=32).contains(&number) => {
                            let count = self.positional.len().max(number);
                            self.positional.resize(count, 0..0);
                            self.positional[number - 1] = at + 1..part.end;
                        }
                        _ => self.named.push((name, at + 1..part.end)),
                    }
                }
                None => self.positional.push(part.clone()),
            }
        }
        templates::render(&mut self);
    }

    /// Parser functions: those that can be told without the wiki.
    fn function(&mut self, function: &str, first: &str, rest: &[Range<usize>]) {
        let depth = self.depth;
        let argument = |number: usize| {
            rest.get(number)
                .and_then(|range| self.page.text(range.clone(), depth))
        };
        let text = match function {
            "lc" => Some(first.to_lowercase()),
            "uc" => Some(first.to_uppercase()),
            "lcfirst" | "ucfirst" | "formatnum" | "nowrap" => Some(first.to_owned()),
            "#if" => argument(usize::from(first.is_empty())),
            "#ifeq" => {
                let same = argument(0).unwrap_or_default() == first;
                argument(if same { 1 } else { 2 })
            }
            "#ifexist" | "#iferror" => argument(0),
            _ => None,
        };
        match text {
            Some(text) => self.out.push_str(&text),
            None => self.out.push(DROPPED),
        }
    }
}

fn strip_prefix<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}
