//! Normalised text and tokens, as SQuAD, DPR and ROUGE define them.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};
use unicode_normalization::UnicodeNormalization;

/// Ranges of the characters of some Unicode general categories.
struct Category(Vec<(char, char)>);

impl Category {
    fn of(pattern: &str) -> Self {
        let ranges = match regex_syntax::parse(pattern).map(|hir| hir.into_kind()) {
            Ok(HirKind::Class(Class::Unicode(class))) => class
                .ranges()
                .iter()
                .map(|range| (range.start(), range.end()))
                .collect(),
            _ => Vec::new(),
        };
        Self(ranges)
    }

    fn holds(&self, c: char) -> bool {
        let after = self.0.partition_point(|&(start, _)| start <= c);
        after > 0 && c <= self.0[after - 1].1
    }
}

/// What DPR joins to one token: letters, numbers and marks.
static WORD: LazyLock<Category> = LazyLock::new(|| Category::of(r"[\p{L}\p{N}\p{M}]"));
/// What DPR drops: separators and control characters.
static BLANK: LazyLock<Category> = LazyLock::new(|| Category::of(r"[\p{Z}\p{C}]"));
/// What Python counts as part of a word (`\w`), the underscore aside.
static ALPHANUMERIC: LazyLock<Category> = LazyLock::new(|| Category::of(r"[\p{L}\p{N}]"));

fn is_word(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_alphanumeric()
    } else {
        WORD.holds(c)
    }
}

fn is_blank(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_control() || c == ' '
    } else {
        BLANK.holds(c)
    }
}

/// White space as Python's `split` has it: that of Unicode and the four ASCII separators.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// An answer as SQuAD normalises it (Rajpurkar et al. 2016, the official evaluation script): lower case,
/// ASCII punctuation out, the articles *a, an, the* out, white space folded.
///
/// ```
/// use corpus_tools::metrics::text::normalised;
/// assert_eq!(normalised("The  Theory (of) an Atom!"), "theory of atom");
/// ```
pub fn normalised(text: &str) -> String {
    let plain: String = text
        .to_lowercase()
        .chars()
        .filter(|c| !c.is_ascii_punctuation())
        .collect();
    let mut without_articles = String::with_capacity(plain.len());
    let mut rest = plain.as_str();
    // An article is a whole run of word characters; what follows "thé" in two code points is a border,
    // as it is to Python.
    while let Some(first) = rest.chars().next() {
        let word = rest
            .find(|c: char| !ALPHANUMERIC.holds(c))
            .unwrap_or(rest.len());
        let (piece, after) = if word > 0 {
            rest.split_at(word)
        } else {
            rest.split_at(first.len_utf8())
        };
        match piece {
            "a" | "an" | "the" => without_articles.push(' '),
            piece => without_articles.push_str(piece),
        }
        rest = after;
    }
    let mut folded = String::with_capacity(without_articles.len());
    for word in without_articles
        .split(is_space)
        .filter(|word| !word.is_empty())
    {
        if !folded.is_empty() {
            folded.push(' ');
        }
        folded.push_str(word);
    }
    folded
}

/// The tokens of a text as DPR's `SimpleTokenizer` gives them for `has_answer` (Karpukhin et al. 2020):
/// canonical decomposition (NFD), runs of letters, numbers and marks, every other character that is no
/// separator and no control character by itself, lower case.
///
/// ```
/// use corpus_tools::metrics::text::dpr_tokens;
/// assert_eq!(dpr_tokens("St. John's"), ["st", ".", "john", "'", "s"]);
/// ```
pub fn dpr_tokens(text: &str) -> Vec<String> {
    let decomposed: String = text.nfd().collect();
    let mut tokens = Vec::new();
    let mut rest = decomposed.as_str();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let length = if word > 0 { word } else { first.len_utf8() };
        let (token, after) = rest.split_at(length);
        if word > 0 || !is_blank(first) {
            tokens.push(token.to_lowercase());
        }
        rest = after;
    }
    tokens
}

/// The words that ROUGE compares: lower case, runs of letters, numbers and marks. On ASCII text the tokens of
/// the package `rouge-score` without its stemmer; that one drops every other character, so it scores
/// nothing in other scripts. In scripts that write no spaces every character is a word.
pub fn rouge_words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before_alone = false;
    for c in lower.chars() {
        let alone = crate::analysis::is_spaceless(c);
        let mark = !c.is_ascii() && unicode_normalization::char::is_combining_mark(c);
        // A character that is a word by itself ends where the next one begins, its marks aside.
        if !is_word(c) || ((alone || before_alone) && !mark) {
            words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
        }
        if is_word(c) {
            word.push(c);
        }
        before_alone = alone || (mark && before_alone);
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalisation_at_its_borders() {
        for (text, expected) in [
            ("", ""),
            ("The", ""),
            ("a an the", ""),
            ("AC/DC", "acdc"),
            ("the-theatre", "thetheatre"),
            ("An apple a day", "apple day"),
            ("U.S.A.", "usa"),
            ("one\u{a0}two\u{1f}three", "one two three"),
            // The dash is no ASCII punctuation; the article in front of it stands alone.
            ("the–end", "–end"),
            ("Athe the_a", "athe thea"),
        ] {
            assert_eq!(normalised(text), expected, "{text:?}");
        }
    }

    #[test]
    fn decomposed_or_not_the_tokens_are_the_same() {
        assert_eq!(dpr_tokens("Röntgen"), dpr_tokens("Ro\u{308}ntgen"));
        assert_eq!(dpr_tokens("Röntgen").len(), 1);
        assert_eq!(dpr_tokens("a\u{200b}b\tc"), ["a", "b", "c"]);
        assert_eq!(dpr_tokens("東京は"), ["東京は"]);
        assert!(dpr_tokens(" \u{3000}\n").is_empty());
    }

    #[test]
    fn words_of_scripts_without_spaces() {
        assert_eq!(
            rouge_words("It's 3.5 km, Zoë"),
            ["it", "s", "3", "5", "km", "zoë"]
        );
        assert_eq!(rouge_words("东京abc都"), ["东", "京", "abc", "都"]);
        assert!(rouge_words("—!").is_empty());
    }
}
