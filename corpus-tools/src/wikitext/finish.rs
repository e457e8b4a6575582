//! The last step of a line: quote marks, entities, what was left out, and marks back to characters.

use quick_xml::escape::resolve_html5_entity;

use super::marks::{CELL, DROPPED, is_mark, unescaped};

/// A line as text; empty if nothing in it can be read.
pub(super) fn finish(line: &str) -> String {
    let line = decoded(&tidy(&without_strays(line)));
    let line = line.trim();
    if line.chars().any(char::is_alphanumeric) {
        line.to_owned()
    } else {
        String::new()
    }
}

/// A line without the apostrophes that mean italics and bold type.
///
/// Runs of two, three and five are markup, of four and more than five partly. Where both bold and italics
/// are left open, one bold mark is an apostrophe and italics (`l'''amour''`): the one after a single
/// letter, else after a word, as the wiki decides it.
pub(super) fn without_quotes(line: &str) -> String {
    if !line.contains("''") {
        return line.to_owned();
    }
    // Text and runs in turn.
    let mut pieces: Vec<(&str, usize)> = Vec::new();
    let mut rest = line;
    while let Some(found) = rest.find("''") {
        let run = rest[found..].bytes().take_while(|&b| b == b'\'').count();
        pieces.push((&rest[..found], run));
        rest = &rest[found + run..];
    }
    let mut kept: Vec<usize> = pieces
        .iter()
        .map(|&(_, run)| match run {
            4 => 1,
            run => run.saturating_sub(5),
        })
        .collect();
    let bold = |run: usize| run == 3 || run == 4 || run >= 5;
    let italic = |run: usize| run == 2 || run >= 5;
    let odd =
        |test: &dyn Fn(usize) -> bool| pieces.iter().filter(|(_, run)| test(*run)).count() % 2 == 1;
    if odd(&bold) && odd(&italic) {
        let after = |letters: &dyn Fn(&str) -> bool| {
            (0..pieces.len()).find(|&at| pieces[at].1 == 3 && letters(pieces[at].0))
        };
        let single = after(&|text| {
            let mut last = text.chars().rev();
            last.next().is_some_and(|c| c != ' ') && last.next().is_some_and(|c| c == ' ')
        });
        let word = || after(&|text| !text.ends_with(' ') && !text.is_empty());
        let space = || after(&|text| text.ends_with(' '));
        if let Some(at) = single.or_else(word).or_else(space) {
            kept[at] += 1;
        }
    }
    let mut out = String::with_capacity(line.len());
    for ((text, _), kept) in pieces.iter().zip(kept) {
        out.push_str(text);
        out.extend(std::iter::repeat_n('\'', kept));
    }
    out.push_str(rest);
    out
}

/// A line without brackets and braces that belong to nothing.
fn without_strays(line: &str) -> std::borrow::Cow<'_, str> {
    let pairs = ["{{", "}}", "[[", "]]", "{|", "|}"];
    if !pairs.iter().any(|pair| line.contains(pair)) && !line.contains("||") {
        return line.into();
    }
    let mut line = line.replace("||", " ");
    for pair in pairs {
        line = line.replace(pair, "");
    }
    line.into()
}

/// Takes out the marks of what was left out, with the spaces, commas and brackets it leaves behind, and
/// folds spaces.
fn tidy(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut pending = false;
    let space = |c: char| c == ' ' || c == '\t' || c == '\u{a0}';
    for c in line.chars() {
        if c == DROPPED {
            pending = true;
            continue;
        }
        if c == CELL {
            let end = out.trim_end_matches([' ', ';']).len();
            out.truncate(end);
            if !out.is_empty() {
                out.push_str("; ");
            }
            continue;
        }
        if c == ' ' && out.ends_with(' ') {
            continue;
        }
        if !pending {
            out.push(c);
            continue;
        }
        if space(c) && (out.is_empty() || out.ends_with(space) || out.ends_with(['(', '（', '[']))
        {
            continue;
        }
        if matches!(c, ',' | ';' | '，' | '、' | '；' | '：')
            && out.trim_end().ends_with(['(', '（'])
        {
            let end = out.trim_end().len();
            out.truncate(end);
            continue;
        }
        if matches!(c, ')' | '）' | ']') {
            let end = out
                .trim_end_matches(|c: char| space(c) || ",;，、；".contains(c))
                .len();
            out.truncate(end);
            if out.ends_with(['(', '（']) || c == ']' && out.ends_with('[') {
                out.pop();
                continue;
            }
        }
        if matches!(
            c,
            '.' | ',' | ';' | ':' | '!' | '?' | ')' | '。' | '，' | '、'
        ) {
            let end = out.trim_end_matches(space).len();
            out.truncate(end);
        }
        out.push(c);
        pending = space(c);
    }
    out
}

/// Entities as characters, and marks as the characters they stand for.
fn decoded(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(found) = rest.find('&') {
        out.extend(rest[..found].chars().map(unescaped));
        rest = &rest[found..];
        let end = rest.as_bytes().iter().take(40).position(|&b| b == b';');
        match end.and_then(|end| Some((entity(&rest[1..end])?, end + 1))) {
            Some((text, length)) => {
                out.push_str(&text);
                rest = &rest[length..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.extend(rest.chars().map(unescaped));
    out.retain(|c| !is_mark(c) && !c.is_control());
    out
}

/// What an entity stands for.
fn entity(name: &str) -> Option<String> {
    let Some(number) = name.strip_prefix('#') else {
        return resolve_html5_entity(name).map(str::to_owned);
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => number.parse(),
    };
    let c = char::from_u32(code.ok()?)?;
    Some(if c.is_control() {
        " ".to_owned()
    } else {
        c.to_string()
    })
}
