//! Markup that is left in a text: the measure of a reader of wikitext.

/// The first sign of markup in a paragraph, if there is one; stricter than a glance, so that it counts
/// too much rather than too little.
///
/// Signs: brackets and braces in pairs, apostrophes in pairs, HTML tags and entities, switches, addresses
/// in brackets, parameters of pictures and attributes of tables, bars in pairs, and what begins lines of
/// lists, tables and headings.
pub fn markup(paragraph: &str) -> Option<&'static str> {
    const SIGNS: &[&str] = &[
        "[[",
        "]]",
        "{{",
        "}}",
        "{|",
        "|}",
        "''",
        "||",
        "[http",
        "|thumb",
        "thumb|",
        "colspan=",
        "rowspan=",
        "style=\"",
        "align=\"",
        "class=\"",
        "bgcolor=",
        "valign=",
        "cellpadding",
        "cellspacing",
        "#REDIRECT",
        "-{",
        "}-",
        "<!--",
        "-->",
        "|-",
        "~~~~",
    ];
    let found = SIGNS.iter().find(|sign| paragraph.contains(**sign));
    // `*word` is how linguists write a form that they reconstruct.
    let start = [
        "==", "* ", "**", "# ", "##", ":", "; ", "|", "!", "{{", "}", "-----",
    ]
    .iter()
    .find(|start| paragraph.starts_with(**start));
    found
        .or(start)
        .copied()
        .or_else(|| tag(paragraph).then_some("an HTML tag"))
        .or_else(|| entity(paragraph).then_some("an entity"))
        .or_else(|| switch(paragraph).then_some("a switch"))
}

fn tag(text: &str) -> bool {
    const TAGS: &[&str] = &[
        "ref",
        "br",
        "nowiki",
        "math",
        "small",
        "sub",
        "sup",
        "div",
        "span",
        "gallery",
        "table",
        "tr",
        "td",
        "center",
        "blockquote",
        "references",
        "poem",
        "pre",
        "code",
        "big",
        "font",
        "b",
        "i",
        "u",
        "s",
        "p",
        "li",
        "ul",
        "includeonly",
        "noinclude",
        "timeline",
        "score",
    ];
    text.split('<').skip(1).any(|rest| {
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        TAGS.contains(&rest[..length].to_ascii_lowercase().as_str())
            && rest[length..].starts_with(['>', ' ', '/'])
            && rest.contains('>')
    })
}

fn entity(text: &str) -> bool {
    text.split('&').skip(1).any(|rest| {
        let rest = rest.strip_prefix('#').unwrap_or(rest);
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        (2..10).contains(&length) && rest[length..].starts_with(';')
    })
}

fn switch(text: &str) -> bool {
    let mut parts = text.split("__").skip(1);
    parts.any(|part| part.chars().count() > 2 && part.chars().all(char::is_uppercase))
        && text.matches("__").count() >= 2
}
