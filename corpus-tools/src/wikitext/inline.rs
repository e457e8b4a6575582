//! Links, HTML tags and what else stands within lines.
//!
//! One walk over the expanded page with a stack of open brackets; what they enclose lies at the end of the
//! output, so that closing one moves no more than its label. Bars that part a table's cells stay.

use super::marks::{BREAK, CAPTION, CAPTION_END, CELL, DROPPED};
use super::site::{Prefix, Site};
use super::structure::{EXTENSIONS, tag_name};

/// Links nested deeper than this are not told apart.
const DEEPEST: usize = 16;

/// An open bracket.
enum Open {
    /// `[[`: where its inside begins in the output, the bars in it, and the end of the last link in it.
    Link {
        start: usize,
        bars: Vec<usize>,
        inner: usize,
    },
    /// `[`, in front of an address that was left out.
    Address,
}

/// Wikitext without links, tags, addresses and switches.
pub(super) fn inline(text: &str, site: &Site) -> String {
    let mut walk = Walk {
        text,
        site,
        at: 0,
        out: String::with_capacity(text.len()),
        stack: Vec::new(),
    };
    walk.run();
    walk.abandon(true);
    walk.out
}

struct Walk<'a> {
    text: &'a str,
    site: &'a Site,
    at: usize,
    out: String,
    stack: Vec<Open>,
}

impl<'a> Walk<'a> {
    fn run(&mut self) {
        let bytes = self.text.as_bytes();
        while self.at < bytes.len() {
            let step = match bytes[self.at] {
                b'[' => self.open_bracket(),
                b']' => self.close_bracket(),
                b'|' => {
                    if let Some(Open::Link { bars, .. }) = self.stack.last_mut() {
                        bars.push(self.out.len());
                    }
                    0
                }
                b'\n' => {
                    self.line_end();
                    0
                }
                b'<' => self.tag(),
                b'-' => self.variant(),
                b'_' => self.switch(),
                _ => 0,
            };
            if step > 0 {
                self.at += step;
                continue;
            }
            // Up to the next byte that could mean something.
            let rest = &bytes[self.at + 1..];
            let plain = rest
                .iter()
                .position(|b| matches!(b, b'[' | b']' | b'|' | b'\n' | b'<' | b'-' | b'_'))
                .unwrap_or(rest.len());
            let end = self.at + 1 + plain;
            self.out.push_str(&self.text[self.at..end]);
            self.at = end;
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn open_bracket(&mut self) -> usize {
        let rest = self.rest();
        if rest.starts_with("[[") && !rest.starts_with("[[[") {
            if self.stack.len() < DEEPEST {
                self.stack.push(Open::Link {
                    start: self.out.len(),
                    bars: Vec::new(),
                    inner: 0,
                });
            }
            return 2;
        }
        match address(&rest[1..]) {
            Some(length) => {
                self.stack.push(Open::Address);
                let label = &rest[1 + length..];
                let blank = label.len() - label.trim_start_matches(' ').len();
                // A label keeps no space in front; none at all leaves nothing.
                if label[blank..].starts_with(']') {
                    self.out.push(DROPPED);
                }
                1 + length + blank
            }
            None => 0,
        }
    }

    fn close_bracket(&mut self) -> usize {
        match self.stack.last() {
            Some(Open::Address) => {
                self.stack.pop();
                1
            }
            Some(Open::Link { .. }) if self.rest().starts_with("]]") => {
                if let Some(Open::Link { start, bars, inner }) = self.stack.pop() {
                    self.link(start, &bars, inner);
                }
                let end = self.out.len();
                for open in &mut self.stack {
                    if let Open::Link { inner, .. } = open {
                        *inner = end;
                    }
                }
                2
            }
            None if self.rest().starts_with("]]") => {
                // Closes nothing: left over from something damaged.
                2
            }
            _ => 0,
        }
    }

    /// What ends with a line: addresses, and links that were never closed.
    fn line_end(&mut self) {
        while matches!(self.stack.last(), Some(Open::Address)) {
            self.stack.pop();
        }
        let next = &self.rest()[1..];
        let heading = next.starts_with("==");
        if heading
            || ["\n", "{|", "|-", "|}"]
                .iter()
                .any(|start| next.starts_with(start))
        {
            self.abandon(heading);
        }
    }

    /// Gives up the links that are open; those of pictures only if `all` are, for captions have paragraphs.
    fn abandon(&mut self, all: bool) {
        while let Some(Open::Link { start, bars, .. }) = self.stack.last() {
            let (start, bar) = (*start, bars.last().copied());
            let file = self.site.prefix(&self.out[start..]).0 == Prefix::File;
            if file && !all {
                return;
            }
            self.stack.pop();
            if let Some(bar) = bar.filter(|_| file) {
                // What was meant as the caption stays.
                self.out.replace_range(start..=bar, &DROPPED.to_string());
            }
        }
    }

    /// Puts the text of the link in place of its inside.
    fn link(&mut self, start: usize, bars: &[usize], inner: usize) {
        let inside = &self.out[start..];
        let target_end = bars.first().map_or(inside.len(), |bar| bar - start);
        let target = inside[..target_end].trim_matches(|c: char| c.is_whitespace() || c == DROPPED);
        let label = bars.last().map(|bar| inside[bar - start + 1..].trim());
        let (prefix, rest) = self.site.prefix(target);
        let replaced = match prefix {
            _ if target.starts_with(':') => {
                let target = target[1..].trim_start();
                label
                    .filter(|label| !label.is_empty())
                    .unwrap_or(target)
                    .to_owned()
            }
            Prefix::Category | Prefix::Language => DROPPED.to_string(),
            Prefix::File => caption(&self.out, bars, inner),
            _ if address(target).is_some() => {
                let named = target.split_once(char::is_whitespace);
                label
                    .or(named.map(|(_, name)| name))
                    .map_or(DROPPED.to_string(), str::to_owned)
            }
            Prefix::Namespace | Prefix::None => match label {
                // The pipe trick: the name without its namespace and what stands in brackets.
                Some("") => {
                    let name = if prefix == Prefix::Namespace {
                        rest
                    } else {
                        target
                    };
                    let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
                    name.trim().to_owned()
                }
                Some(label) => label.to_owned(),
                None if target.starts_with('#') => target[1..].to_owned(),
                None if target.starts_with('/') => target.trim_matches('/').to_owned(),
                None => target.to_owned(),
            },
        };
        self.out.truncate(start);
        self.out.push_str(&replaced);
    }

    fn tag(&mut self) -> usize {
        let rest = self.rest();
        let closing = rest.starts_with("</");
        let Some(name) = tag_name(&rest.as_bytes()[1 + usize::from(closing)..]) else {
            return 0;
        };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let Some(kind) = html(&name) else {
            return 0;
        };
        let after = 1 + usize::from(closing) + name.len();
        let end = match rest.as_bytes()[after..]
            .iter()
            .position(|&b| b == b'>' || b == b'<')
        {
            Some(found) if rest.as_bytes()[after + found] == b'>' => after + found + 1,
            _ => return 0,
        };
        let tag = &rest[..end];
        if !closing && !tag.ends_with("/>") {
            if let Some(hidden) = hidden(tag, &rest[end..], &name) {
                self.out.push(DROPPED);
                return end + hidden;
            }
            if name == "sup"
                && let Some((raised, length)) = raised(&rest[end..])
            {
                self.out.push_str(&raised);
                return end + length;
            }
        }
        match kind {
            Html::Inline => {}
            Html::Cell if closing => {}
            Html::Block => self.out.push(BREAK),
            Html::Cell => self.out.push(CELL),
            Html::Left => self.out.push(DROPPED),
        }
        end
    }

    /// `-{zh-hans:…; zh-hant:…}-`: the first of the variants of a text.
    fn variant(&mut self) -> usize {
        let rest = self.rest();
        if !rest.starts_with("-{") {
            return 0;
        }
        let near = &rest.as_bytes()[2..rest.len().min(600)];
        let Some(length) = memchr::memmem::find(near, b"}-") else {
            return 0;
        };
        let inside = &rest[2..2 + length];
        if inside.contains("-{") || inside.contains('\n') {
            return 0;
        }
        let (flags, text) = match inside.split_once('|') {
            Some((flags, text)) if flags.len() <= 12 && !flags.contains(':') => {
                (flags.trim(), text)
            }
            _ => ("", inside),
        };
        if flags.contains(['H', 'T', '-']) {
            self.out.push(DROPPED);
            return length + 4;
        }
        let first = text.split(';').map(str::trim).find_map(|variant| {
            let (code, text) = variant.split_once(':')?;
            let code = code.trim();
            let is_code = (2..=8).contains(&code.len())
                && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
            is_code.then_some(text.trim())
        });
        let chosen = first.unwrap_or(text).to_owned();
        self.out.push_str(&chosen);
        length + 4
    }

    /// `__NOTOC__` and its like, in any language.
    fn switch(&mut self) -> usize {
        let rest = self.rest();
        if !rest.starts_with("__") {
            return 0;
        }
        let mut length = 0;
        for c in rest[2..].chars() {
            if c == '_' && rest[2 + length..].starts_with("__") {
                let name = &rest[2..2 + length];
                let code = ["FILE", "LINE", "DATE", "TIME", "FUNCTION", "CLASS"].contains(&name);
                return if length > 2 && !code { length + 4 } else { 0 };
            }
            if length > 90
                || !(c == '_' || c.is_alphabetic() && !c.is_lowercase() || is_combining(c))
            {
                return 0;
            }
            length += c.len_utf8();
        }
        0
    }
}

/// Marks that make up words in scripts without case.
fn is_combining(c: char) -> bool {
    !c.is_ascii() && !c.is_alphabetic() && unicode_normalization::char::is_combining_mark(c)
}

/// The length of an address with a scheme, up to a blank or what else ends it.
pub(super) fn address(text: &str) -> Option<usize> {
    let known = text.starts_with("//")
        || [
            "http://",
            "https://",
            "ftp://",
            "ftps://",
            "irc://",
            "ircs://",
            "news:",
            "mailto:",
            "gopher://",
            "nntp://",
            "telnet://",
            "tel:",
            "sms:",
            "geo:",
            "magnet:",
            "urn:",
            "git://",
            "svn://",
            "sftp://",
            "ssh://",
            "xmpp:",
            "mms://",
            "bitcoin:",
            "worldwind://",
            "wikia://",
        ]
        .iter()
        .any(|scheme| {
            let start = text.as_bytes().get(..scheme.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))
        });
    let end = |c: char| c.is_whitespace() || "[]<>\"|".contains(c) || c == DROPPED || c == BREAK;
    let length = text.find(end).unwrap_or(text.len());
    (known && length > 2).then_some(length)
}

/// The caption of a picture, as a paragraph of its own; options are no captions.
fn caption(out: &str, bars: &[usize], inner: usize) -> String {
    let Some(&last) = bars.last() else {
        return DROPPED.to_string();
    };
    let text = out[last + 1..].trim();
    let option = text.split_once('=').is_some_and(|(name, _)| {
        name.chars().count() <= 12 && name.trim().chars().all(|c| c.is_alphabetic() || c == '_')
    });
    // Options are one or two words in small letters, in any language, and hold no links; captions in
    // scripts without spaces or case are longer than any option.
    let words = text.split_whitespace().count();
    let long = inner > last
        || words >= 3
        || words == 2 && text.starts_with(char::is_uppercase)
        || words == 1
            && text.chars().filter(|c| !c.is_ascii()).count() >= 6
            && !text.contains(char::is_lowercase);
    match long && !option {
        true => format!("{CAPTION}{text}{CAPTION_END}"),
        false => DROPPED.to_string(),
    }
}

/// Content that is not shown, with its closing tag.
fn hidden(tag: &str, rest: &str, name: &str) -> Option<usize> {
    let attributes: String = tag.chars().filter(|c| !c.is_whitespace()).collect();
    if !attributes.to_ascii_lowercase().contains("display:none") {
        return None;
    }
    let near = &rest.as_bytes()[..rest.len().min(1000)];
    let closing = format!("</{name}>");
    let found = near
        .windows(closing.len())
        .position(|window| window.eq_ignore_ascii_case(closing.as_bytes()))?;
    Some(found + closing.len())
}

/// Digits of an exponent as raised characters, with the length of the content and the closing tag.
fn raised(rest: &str) -> Option<(String, usize)> {
    const RAISED: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹";
    let length = rest.char_indices().take(12).find(|(_, c)| *c == '<')?.0;
    let content = &rest[..length];
    let closing = rest[length..].get(..6)?;
    if content.is_empty() || !closing.eq_ignore_ascii_case("</sup>") {
        return None;
    }
    let raised = content
        .chars()
        .map(|c| match c {
            '-' | '−' => Some('⁻'),
            '+' => Some('⁺'),
            c => RAISED.chars().nth(c.to_digit(10)? as usize),
        })
        .collect::<Option<String>>()?;
    Some((raised, length + closing.len()))
}

enum Html {
    /// Leaves its content as it is.
    Inline,
    /// Begins or ends a line.
    Block,
    /// Begins or ends a cell.
    Cell,
    /// An extension tag without its other half.
    Left,
}

fn html(name: &str) -> Option<Html> {
    Some(match name {
        "br" | "p" | "div" | "center" | "blockquote" | "li" | "ul" | "ol" | "dl" | "dt" | "dd"
        | "hr" | "table" | "tr" | "tbody" | "thead" | "tfoot" | "caption" | "h1" | "h2" | "h3"
        | "h4" | "h5" | "h6" | "section" | "article" | "figure" | "figcaption" => Html::Block,
        "td" | "th" => Html::Cell,
        "b" | "i" | "u" | "s" | "em" | "strong" | "small" | "big" | "sub" | "sup" | "span"
        | "font" | "tt" | "code" | "var" | "kbd" | "samp" | "cite" | "dfn" | "abbr" | "acronym"
        | "del" | "ins" | "strike" | "q" | "bdi" | "bdo" | "rb" | "rp" | "rt" | "rtc" | "ruby"
        | "mark" | "time" | "data" | "wbr" | "noinclude" | "onlyinclude" | "includeonly"
        | "nobr" | "a" | "img" | "col" | "colgroup" | "link" | "meta" | "label" | "input"
        | "translate" | "tvar" | "langconvert" | "blink" => Html::Inline,
        name if EXTENSIONS.iter().any(|(known, _)| *known == name) => Html::Left,
        _ => return None,
    })
}
