//! Where the constructs of a page begin and end: templates, arguments, comments, and tags whose content is no wikitext.
//!
//! One scan with a stack, linear in the source. What is not closed is no construct.

use memchr::memmem;

/// What a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `{{ … }}`
    Template,
    /// `{{{ … }}}`
    Argument,
    /// `[[ … ]]`; here only so that its bars do not part the arguments of a template.
    Link,
    /// `<!-- … -->`
    Comment,
    /// An extension tag by its place in [`EXTENSIONS`].
    Extension(usize),
}

/// A construct: from `start` to `end`, what it encloses from `inner` to `close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub kind: Kind,
    pub start: usize,
    pub inner: usize,
    pub close: usize,
    pub end: usize,
}

/// What becomes of an extension tag's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extension {
    /// Nothing of it is text of the page.
    Drop,
    /// Its content stands as it is.
    Verbatim,
    /// The same, line by line.
    Lines,
    /// A formula.
    Math,
    /// Pictures with captions, one a line.
    Gallery,
    /// Wikitext whose line ends are kept.
    Poem,
}

/// The tags whose content the wiki does not read as wikitext, or that are dropped with their content.
pub(super) const EXTENSIONS: &[(&str, Extension)] = &[
    ("ref", Extension::Drop),
    ("references", Extension::Drop),
    ("nowiki", Extension::Verbatim),
    ("math", Extension::Math),
    ("chem", Extension::Math),
    ("ce", Extension::Math),
    ("gallery", Extension::Gallery),
    ("pre", Extension::Lines),
    ("syntaxhighlight", Extension::Lines),
    ("source", Extension::Lines),
    ("poem", Extension::Poem),
    ("includeonly", Extension::Drop),
    ("timeline", Extension::Drop),
    ("score", Extension::Drop),
    ("graph", Extension::Drop),
    ("chart", Extension::Drop),
    ("mapframe", Extension::Drop),
    ("maplink", Extension::Drop),
    ("imagemap", Extension::Drop),
    ("inputbox", Extension::Drop),
    ("templatedata", Extension::Drop),
    ("templatestyles", Extension::Drop),
    ("hiero", Extension::Drop),
    ("categorytree", Extension::Drop),
    ("dynamicpagelist", Extension::Drop),
    ("indicator", Extension::Drop),
    ("charinsert", Extension::Drop),
    ("quiz", Extension::Drop),
    ("rss", Extension::Drop),
    ("phonos", Extension::Drop),
    ("style", Extension::Drop),
    ("script", Extension::Drop),
];

enum Open {
    Braces { start: usize, count: usize },
    Link { start: usize },
}

/// The spans of a source, in the order of their starts; nested or apart, never crossing.
pub(super) fn spans(source: &str) -> Vec<Span> {
    let bytes = source.as_bytes();
    let mut spans = Vec::new();
    let mut stack: Vec<Open> = Vec::new();
    let mut braces = 0usize;
    // No closing tag from here on: one search a name, as often as it fails.
    let mut unclosed = [false; EXTENSIONS.len()];
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'<' => {
                if let Some(span) =
                    comment(source, at).or_else(|| extension(source, at, &mut unclosed))
                {
                    at = span.end;
                    spans.push(span);
                } else {
                    at += 1;
                }
            }
            b'{' => {
                let count = run(bytes, at);
                if count >= 2 {
                    stack.push(Open::Braces { start: at, count });
                    braces += 1;
                }
                at += count;
            }
            b'[' => {
                let count = run(bytes, at);
                at += count;
                if count >= 2 {
                    stack.push(Open::Link { start: at - 2 });
                }
            }
            b']' => {
                let mut left = run(bytes, at);
                while left >= 2 {
                    let Some(&Open::Link { start }) = stack.last() else {
                        break;
                    };
                    stack.pop();
                    // `]]]` first closes an external link.
                    let skip = usize::from(left == 3);
                    at += skip;
                    spans.push(Span {
                        kind: Kind::Link,
                        start,
                        inner: start + 2,
                        close: at,
                        end: at + 2,
                    });
                    at += 2;
                    left -= 2 + skip;
                }
                at += left;
            }
            b'}' => {
                let mut left = run(bytes, at);
                while left >= 2 && braces > 0 {
                    match stack.last_mut() {
                        Some(Open::Link { .. }) => {
                            stack.pop();
                        }
                        Some(Open::Braces { start, count }) => {
                            let taken = if *count >= 3 && left >= 3 { 3 } else { 2 };
                            *count -= taken;
                            let start = *start + *count;
                            spans.push(Span {
                                kind: if taken == 3 {
                                    Kind::Argument
                                } else {
                                    Kind::Template
                                },
                                start,
                                inner: start + taken,
                                close: at,
                                end: at + taken,
                            });
                            if *count < 2 {
                                stack.pop();
                                braces -= 1;
                            }
                            at += taken;
                            left -= taken;
                        }
                        None => break,
                    }
                }
                at += left;
            }
            _ => at += 1,
        }
    }
    spans.sort_unstable_by_key(|span| span.start);
    spans
}

/// Length of the run of one byte.
fn run(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().take_while(|&&b| b == bytes[at]).count()
}

fn comment(source: &str, start: usize) -> Option<Span> {
    let inner = start + 4;
    source[start..].starts_with("<!--").then(|| {
        // A comment that is not closed hides the rest of the page.
        let close = source[inner..].find("-->").map(|found| inner + found);
        Span {
            kind: Kind::Comment,
            start,
            inner,
            close: close.unwrap_or(source.len()),
            end: close.map_or(source.len(), |close| close + 3),
        }
    })
}

fn extension(source: &str, start: usize, unclosed: &mut [bool]) -> Option<Span> {
    let bytes = source.as_bytes();
    let name = tag_name(&bytes[start + 1..])?;
    let number = EXTENSIONS
        .iter()
        .position(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))?;
    if unclosed[number] {
        return None;
    }
    let after = start + 1 + name.len();
    let opened = after
        + bytes[after..]
            .iter()
            .position(|&b| b == b'>' || b == b'<')?;
    if bytes[opened] == b'<' {
        return None;
    }
    let inner = opened + 1;
    let span = |close, end| {
        Some(Span {
            kind: Kind::Extension(number),
            start,
            inner,
            close,
            end,
        })
    };
    if bytes[opened - 1] == b'/' {
        return span(inner, inner);
    }
    let mut from = inner;
    while let Some(found) = memmem::find(&bytes[from..], b"</") {
        let close = from + found;
        let named = close + 2;
        let ends = named + name.len();
        if bytes
            .get(named..ends)
            .is_some_and(|other| other.eq_ignore_ascii_case(name))
            && let Some(end) = bytes[ends..].iter().position(|&b| !b.is_ascii_whitespace())
            && bytes[ends + end] == b'>'
        {
            return span(close, ends + end + 1);
        }
        from = named;
    }
    unclosed[number] = true;
    None
}

/// The name at the start of a tag's inside.
pub(super) fn tag_name(bytes: &[u8]) -> Option<&[u8]> {
    let length = bytes
        .iter()
        .take(20)
        .take_while(|b| b.is_ascii_alphanumeric())
        .count();
    (length > 0 && bytes[0].is_ascii_alphabetic()).then(|| &bytes[..length])
}
