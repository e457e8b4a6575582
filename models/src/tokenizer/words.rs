//! Splitting text into the words that byte-pair encoding works on.
//!
//! The patterns of the families supported are written out by hand, an order of magnitude faster than a backtracking
//! regular expression; any other pattern of a `tokenizer.json` goes through the `tokenizers` crate.

use std::sync::LazyLock;

use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

/// GPT-2's pattern (Radford et al. 2019, the released encoder).
pub(super) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's pattern: digits in groups of three.
pub(super) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen2's pattern: digits one by one.
pub(super) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A way of splitting text into words.
pub(super) enum Words {
    /// GPT-2's pattern.
    Gpt2,
    /// Digits one by one, GPT-2's pattern on what lies between (SmolLM, StarCoder).
    DigitsThenGpt2,
    /// The pattern of Llama 3 and Qwen2, with the greatest number of digits in a group.
    Grouped {
        /// Digits in a group.
        digits: usize,
    },
    /// SentencePiece-like: no words but those of white space.
    Spaced {
        /// The bytes that stand before a space inside of an entry of the vocabulary. After any other byte a space
        /// begins a word, since no token crosses there; so words are short and can be looked up.
        before_spaces: Box<[bool; 256]>,
        /// Whether runs of spaces, line breaks or tabs are words of their own.
        runs: bool,
    },
    /// The whole text is one word.
    Whole,
    /// Any other pattern.
    Other(Box<PreTokenizerWrapper>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Letter,
    Number,
    Other,
}

static CLASSES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut table = vec![Class::Other as u8; 0x11_0000];
    for (pattern, class) in [
        (r"\p{L}", Class::Letter),
        (r"\p{N}", Class::Number),
        (r"\s", Class::Space),
    ] {
        if let Ok(hir) = regex_syntax::parse(pattern)
            && let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(ranges)) =
                hir.kind()
        {
            for range in ranges.iter() {
                table[range.start() as usize..=range.end() as usize].fill(class as u8);
            }
        }
    }
    table
});

/// Classes of ASCII, in the cache at all times.
static ASCII: [Class; 128] = {
    let mut table = [Class::Other; 128];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = match byte as u8 {
            b'\t'..=b'\r' | b' ' => Class::Space,
            b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
            b'0'..=b'9' => Class::Number,
            _ => Class::Other,
        };
        byte += 1;
    }
    table
};

fn class(c: char) -> Class {
    match CLASSES[c as usize] {
        0 => Class::Space,
        1 => Class::Letter,
        2 => Class::Number,
        _ => Class::Other,
    }
}

/// A place in a text, and what stands there.
#[derive(Clone, Copy)]
struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl Cursor<'_> {
    fn byte(self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn peek(self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    /// The class of the character that stands here, and its length in bytes.
    #[inline]
    fn look(self) -> Option<(Class, usize)> {
        let byte = self.byte()?;
        match ASCII.get(usize::from(byte)) {
            Some(&class) => Some((class, 1)),
            None => self.peek().map(|c| (class(c), c.len_utf8())),
        }
    }

    #[inline]
    fn class(self) -> Option<Class> {
        self.look().map(|(class, _)| class)
    }

    #[inline]
    fn advance(&mut self) {
        if let Some((_, length)) = self.look() {
            self.at += length;
        }
    }

    #[inline]
    fn skip_class(&mut self, wanted: Class, at_most: usize) {
        for _ in 0..at_most {
            match self.look() {
                Some((class, length)) if class == wanted => self.at += length,
                _ => break,
            }
        }
    }
}

/// Length in bytes of an English contraction at the start of `text`.
fn contraction(text: &str, any_case: bool) -> Option<usize> {
    let rest = text.strip_prefix('\'')?;
    let mut chars = rest.chars();
    // Under Unicode case folding the long s is an s.
    let fold = |c: char| match c {
        'ſ' if any_case => 's',
        c if any_case => c.to_ascii_lowercase(),
        c => c,
    };
    let first = chars.next()?;
    match fold(first) {
        's' | 't' | 'm' | 'd' => Some(1 + first.len_utf8()),
        'r' | 'v' if chars.next().map(fold) == Some('e') => Some(3),
        'l' if chars.next().map(fold) == Some('l') => Some(3),
        _ => None,
    }
}

/// End of the match of `\s+(?!\S)|\s+` that starts in a run of white space; with `digits` a number ends the text.
fn spaces_end(text: &str, from: usize, digits: bool) -> usize {
    let mut cursor = Cursor { text, at: from };
    let mut last = from;
    while cursor.class() == Some(Class::Space) {
        last = cursor.at;
        cursor.advance();
    }
    // The last space of a run stays with what follows it, unless it is the only one.
    let ends = cursor.at == text.len() || (digits && cursor.class() == Some(Class::Number));
    if ends || last == from {
        cursor.at
    } else {
        last
    }
}

/// End of the match of GPT-2's pattern at `from`. With `digits` every number is a word of its own, and the text
/// ends before it.
#[inline]
fn gpt2_end(text: &str, from: usize, digits: bool) -> usize {
    let mut cursor = Cursor { text, at: from };
    let first = cursor.byte();
    if first == Some(b'\'')
        && let Some(length) = contraction(&text[from..], false)
    {
        return from + length;
    }
    if first == Some(b' ') {
        cursor.at += 1;
    }
    match cursor.look() {
        Some((Class::Number, length)) if digits => match cursor.at == from {
            true => from + length,
            false => spaces_end(text, from, digits),
        },
        Some((found, length)) if found != Class::Space => {
            cursor.at += length;
            cursor.skip_class(found, usize::MAX);
            cursor.at
        }
        _ => spaces_end(text, from, digits),
    }
}

fn grouped_end(text: &str, from: usize, digits: usize) -> usize {
    let start = Cursor { text, at: from };
    if start.byte() == Some(b'\'')
        && let Some(length) = contraction(&text[from..], true)
    {
        return from + length;
    }
    let (Some(first), Some(first_class)) = (start.peek(), start.class()) else {
        return text.len();
    };
    let mut after = start;
    after.advance();
    let mut cursor = start;
    if first_class == Class::Letter
        || (first_class != Class::Number
            && first != '\r'
            && first != '\n'
            && after.class() == Some(Class::Letter))
    {
        cursor.advance();
        cursor.skip_class(Class::Letter, usize::MAX);
        return cursor.at;
    }
    if first_class == Class::Number {
        cursor.skip_class(Class::Number, digits);
        return cursor.at;
    }
    if first == ' ' {
        cursor.advance();
    }
    if cursor.class() == Some(Class::Other) {
        cursor.skip_class(Class::Other, usize::MAX);
        while matches!(cursor.peek(), Some('\r' | '\n')) {
            cursor.advance();
        }
        return cursor.at;
    }
    let mut run = start;
    let mut line_end = None;
    while run.class() == Some(Class::Space) {
        let breaks = matches!(run.peek(), Some('\r' | '\n'));
        run.advance();
        if breaks {
            line_end = Some(run.at);
        }
    }
    line_end.unwrap_or_else(|| spaces_end(text, from, false))
}

/// End of the piece that starts at `from`: at the next space that follows a byte which no token holds before a space;
/// with `runs` around two spaces or more, and around line breaks and tabs.
fn spaced_end(bytes: &[u8], from: usize, before_spaces: &[bool; 256], runs: bool) -> usize {
    let parts = |before: u8| before != b' ' && !before_spaces[usize::from(before)];
    // Only called where a run ends the piece or is the piece, so that every byte is counted once.
    let run = |at: usize| {
        if !runs || !matches!(bytes[at], b'\n' | b'\t' | b' ') {
            return 0;
        }
        let same = bytes[at..].iter().take_while(|&&b| b == bytes[at]).count();
        if bytes[at] == b' ' && same == 1 {
            0
        } else {
            same
        }
    };
    match run(from) {
        0 => (from + 1..bytes.len())
            .find(|&i| match bytes[i] {
                b' ' => parts(bytes[i - 1]) || run(i) > 0,
                b'\n' | b'\t' => runs,
                _ => false,
            })
            .unwrap_or(bytes.len()),
        same => from + same,
    }
}

impl Words {
    /// Calls `word` with each word of `text`, in order; together they are the text.
    pub(super) fn each<'t>(&self, text: &'t str, mut word: impl FnMut(&'t str)) {
        let mut scan = |end: &dyn Fn(usize) -> usize| {
            let mut from = 0;
            while from < text.len() {
                let to = end(from);
                word(&text[from..to]);
                from = to;
            }
        };
        match self {
            Self::Gpt2 => scan(&|from| gpt2_end(text, from, false)),
            Self::DigitsThenGpt2 => scan(&|from| gpt2_end(text, from, true)),
            Self::Grouped { digits } => scan(&|from| grouped_end(text, from, *digits)),
            Self::Spaced {
                before_spaces,
                runs,
            } => {
                scan(&|from| spaced_end(text.as_bytes(), from, before_spaces, *runs));
            }
            Self::Whole => scan(&|_| text.len()),
            Self::Other(pattern) => {
                let mut split = PreTokenizedString::from(text);
                match pattern.pre_tokenize(&mut split) {
                    Ok(()) => {
                        for (_, (from, to), _) in
                            split.get_splits(OffsetReferential::Original, OffsetType::Byte)
                        {
                            word(&text[from..to]);
                        }
                    }
                    // A pattern that fails on a text (too much backtracking) leaves it as one word.
                    Err(_) => word(text),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokenizers::SplitDelimiterBehavior;
    use tokenizers::pre_tokenizers::digits::Digits;
    use tokenizers::pre_tokenizers::sequence::Sequence;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

    fn pattern(text: &str) -> PreTokenizerWrapper {
        Split::new(
            SplitPattern::Regex(text.to_owned()),
            SplitDelimiterBehavior::Isolated,
            false,
        )
        .unwrap()
        .into()
    }

    fn split(words: &Words, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        words.each(text, |w| found.push(w.to_owned()));
        found
    }

    fn check(text: &str) {
        let pairs = [
            (Words::Gpt2, Words::Other(Box::new(pattern(GPT2)))),
            (
                Words::DigitsThenGpt2,
                Words::Other(Box::new(
                    Sequence::new(vec![Digits::new(true).into(), pattern(GPT2)]).into(),
                )),
            ),
            (
                Words::Grouped { digits: 3 },
                Words::Other(Box::new(pattern(LLAMA3))),
            ),
            (
                Words::Grouped { digits: 1 },
                Words::Other(Box::new(pattern(QWEN2))),
            ),
        ];
        for (own, other) in &pairs {
            let found = split(own, text);
            assert_eq!(found, split(other, text), "{text:?}");
            assert_eq!(found.concat(), text);
        }
        for words in [
            Words::Spaced {
                before_spaces: Box::new([false; 256]),
                runs: false,
            },
            Words::Spaced {
                before_spaces: Box::new([false; 256]),
                runs: true,
            },
            Words::Whole,
        ] {
            assert_eq!(split(&words, text).concat(), text);
        }
    }

    #[test]
    fn splits_known_cases() {
        for text in [
            "",
            " ",
            "  ",
            "a",
            " a",
            "  a",
            "a  ",
            "don't DON'T 'll 'LL' 'rE",
            "x\r\n\r\n  y",
            "12345 6 ٣٤ Ⅻ ½",
            "\u{a0}\u{a0}b",
            "!?\n\n a",
            " !\n",
            "\n a",
            "a\tb",
            " \n \n  c",
            "ƒ'ſ",
            "日本語 テスト。",
            "हिन्दी में",
            "👩‍👩‍👧 ok",
            "a\u{301}b",
            "\r",
            "'",
            "''s",
            " 's",
            "a\u{2028}b \u{3000}c",
        ] {
            check(text);
        }
        assert_eq!(
            split(&Words::DigitsThenGpt2, "in 1984, don't"),
            ["in", " ", "1", "9", "8", "4", ",", " don", "'t"]
        );
        assert_eq!(
            split(
                &Words::Spaced {
                    before_spaces: Box::new([false; 256]),
                    runs: false
                },
                " a  b c"
            ),
            [" a", "  b", " c"]
        );
    }

    #[test]
    fn runs_are_words_of_their_own() {
        let words = Words::Spaced {
            before_spaces: Box::new([false; 256]),
            runs: true,
        };
        assert_eq!(
            split(&words, "  a b\n\nc\t   d "),
            ["  ", "a", " b", "\n\n", "c", "\t", "   ", "d", " "]
        );
    }

    proptest! {
        #[test]
        fn splits_as_the_regular_expressions_do(text in "[ a-zA-Z0-9'\\r\\n\\t.,!sSlLtTdD\u{a0}éßñ漢ेด٣½🙂\u{301}\u{200d}ſ]{0,40}") {
            check(&text);
        }

        #[test]
        fn any_text_is_split_without_loss(text in any::<String>()) {
            for words in [Words::Gpt2, Words::DigitsThenGpt2, Words::Grouped { digits: 3 }, Words::Spaced { before_spaces: Box::new([false; 256]), runs: true }] {
                prop_assert_eq!(split(&words, &text).concat(), text.clone());
            }
        }
    }
}
