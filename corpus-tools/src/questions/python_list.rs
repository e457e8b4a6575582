//! A list of strings as Python prints it, the form of the answers in DPR's `.qa.csv`.

use std::iter::Peekable;
use std::str::Chars;

/// Reads `['a', "b's", 'c\'d']`; `None` where it is anything else. A list of JSON strings is read as well.
pub(super) fn parse(text: &str) -> Option<Vec<String>> {
    let inside = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut chars = inside.chars().peekable();
    let mut items = Vec::new();
    loop {
        skip_space(&mut chars);
        let Some(&quote) = chars.peek() else {
            return Some(items);
        };
        if quote != '\'' && quote != '"' {
            return None;
        }
        chars.next();
        items.push(string(&mut chars, quote)?);
        skip_space(&mut chars);
        match chars.next() {
            None => return Some(items),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}

fn skip_space(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| c.is_whitespace()).is_some() {}
}

/// The rest of a string up to its closing `quote`.
fn string(chars: &mut Peekable<Chars<'_>>, quote: char) -> Option<String> {
    let mut text = String::new();
    loop {
        match chars.next()? {
            c if c == quote => return Some(text),
            '\\' => match chars.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'x' => text.push(code(chars, 2)?),
                'u' => text.push(code(chars, 4)?),
                'U' => text.push(code(chars, 8)?),
                c @ ('\\' | '\'' | '"') => text.push(c),
                other => {
                    // Python keeps the backslash of an escape that it does not know.
                    text.push('\\');
                    text.push(other);
                }
            },
            c => text.push(c),
        }
    }
}

fn code(chars: &mut Peekable<Chars<'_>>, digits: usize) -> Option<char> {
    let mut number = 0u32;
    for _ in 0..digits {
        number = (number << 4) | chars.next()?.to_digit(16)?;
    }
    char::from_u32(number)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lists_as_python_prints_them() {
        let list = |text| parse(text).unwrap_or_else(|| panic!("{text} is not read"));
        assert_eq!(list("['14 December 1972 UTC', 'December 1972']").len(), 2);
        assert_eq!(
            list(r#"["Ender's Game", 'say "hi"', 'it\'s']"#),
            ["Ender's Game", "say \"hi\"", "it's"]
        );
        assert_eq!(
            list(r"['a\\b', 'R\xf6ntgen', '\u6771\U0001F600', '\d']"),
            ["a\\b", "Röntgen", "東😀", "\\d"]
        );
        assert!(list("[]").is_empty());
        assert_eq!(list(" ['a', ] "), ["a"]);
        for text in [
            "",
            "[",
            "'a'",
            "['a'",
            "['a]",
            "['a' 'b']",
            "[1]",
            r"['\ud800']",
            "['a\\",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
