//! Marks within a page on its way to text: Unicode noncharacters, which no text may hold.
//!
//! They say where something was left out, where a line breaks, and stand for characters that are text and
//! no markup, until all markup is gone.

/// Something was left out here.
pub(super) const DROPPED: char = '\u{FDD0}';
/// A line ends here, whatever stands around.
pub(super) const BREAK: char = '\u{FDD1}';
/// A cell of a table begins here.
pub(super) const CELL: char = '\u{FDD2}';
/// A caption begins, and ends.
pub(super) const CAPTION: char = '\u{FDD3}';
pub(super) const CAPTION_END: char = '\u{FDD4}';

/// Characters that mean something in wikitext, and the first of the marks that stand for them.
const SPECIAL: &str = "[]{}|'<>*#:;=!_-~";
const FIRST: u32 = 0xFDD8;

/// Appends `text` so that nothing of it is read as markup.
pub(super) fn push_escaped(out: &mut String, text: &str) {
    out.extend(text.chars().map(|c| {
        let number = c.is_ascii().then(|| SPECIAL.find(c)).flatten();
        let mark = number.and_then(|number| char::from_u32(FIRST + number as u32));
        mark.unwrap_or(c)
    }));
}

/// The character a mark stands for.
pub(super) fn unescaped(mark: char) -> char {
    let number = u32::from(mark).wrapping_sub(FIRST) as usize;
    match SPECIAL.as_bytes().get(number) {
        Some(&special) => special.into(),
        None => mark,
    }
}

/// Whether a character is one of the marks.
pub(super) fn is_mark(c: char) -> bool {
    ('\u{FDD0}'..='\u{FDEF}').contains(&c)
}

/// A source without characters that could be taken for marks, and with one kind of line end.
pub(super) fn clean(source: &str) -> std::borrow::Cow<'_, str> {
    // Every mark begins with these bytes in UTF-8.
    if memchr::memmem::find(source.as_bytes(), &[0xEF, 0xB7]).is_none() && !source.contains('\r') {
        return source.into();
    }
    let ends = source.replace("\r\n", "\n").replace('\r', "\n");
    ends.chars()
        .filter(|&c| !is_mark(c))
        .collect::<String>()
        .into()
}
