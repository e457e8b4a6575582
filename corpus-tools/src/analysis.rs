//! Words of a text as BM25 counts them: one analysis for documents, windows and questions.
//!
//! Compatibility composition (NFKC) and lower case; words are runs of letters, digits and the marks
//! they carry; an English possessive is dropped and, with [`Stemming::English`], ASCII words are
//! stemmed (Snowball). Scripts that write no spaces (Han, kana, Thai, Lao, Khmer, Myanmar, Tibetan)
//! give overlapping pairs of characters, so that text in them matches without a dictionary.

use std::cell::RefCell;

use frostem::{Algorithm, Stemmer};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};

/// Words longer than this many bytes are cut: no index should hold a megabyte as one term.
const LONGEST_WORD: usize = 128;

/// How words are stemmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stemming {
    /// Words stay as they are.
    None,
    /// The English (Porter 2) stemmer, for words of ASCII letters.
    #[default]
    English,
}

/// Splits texts into terms. Cheap to create and to clone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Analyser {
    stemming: Stemming,
}

/// A term with the word of the text it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// The term: normalised, lower case, stemmed.
    pub term: String,
    /// The word as it stands in the analysed text. Normalised where the text was not in NFKC.
    pub written: &'a str,
}

/// Whether a character belongs to a script that writes no spaces between words (Han, kana, Thai, Lao,
/// Khmer, Myanmar, Tibetan).
pub fn is_spaceless(c: char) -> bool {
    c >= '\u{0E00}'
        && matches!(u32::from(c),
        0x0E00..=0x0EFF      // Thai, Lao
        | 0x0F00..=0x0FFF    // Tibetan
        | 0x1000..=0x109F    // Myanmar
        | 0x1780..=0x17FF    // Khmer
        | 0x3005..=0x3007 | 0x3040..=0x30FF | 0x31F0..=0x31FF // kana
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF // Han
        | 0xAA60..=0xAA7F    // Myanmar extended
        | 0x20000..=0x3FFFF) // Han, supplementary
}

fn is_word(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_alphanumeric()
    } else {
        c.is_alphanumeric() || is_combining_mark(c)
    }
}

/// Where the word at the start of `text` ends: a run of one kind of script, marks staying with what
/// they stand on.
fn word_end(text: &str, spaceless: bool) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii() {
            if spaceless || !byte.is_ascii_alphanumeric() {
                return at;
            }
            at += 1;
            continue;
        }
        let Some(c) = text[at..].chars().next() else {
            return at;
        };
        if !is_word(c) || (is_spaceless(c) != spaceless && !is_combining_mark(c)) {
            return at;
        }
        at += c.len_utf8();
    }
    at
}

/// Replaces `word` by its English stem, from memory where this thread stemmed it before.
fn stem(word: &mut String) {
    const REMEMBERED: usize = 1 << 16;
    thread_local! {
        static STEMS: RefCell<FxHashMap<Box<str>, Box<str>>> = RefCell::default();
    }
    STEMS.with_borrow_mut(|stems| {
        if let Some(stem) = stems.get(word.as_str()) {
            word.clear();
            word.push_str(stem);
            return;
        }
        let stem = Stemmer::new(Algorithm::English).stem(word).into_owned();
        if stems.len() < REMEMBERED {
            stems.insert(word.as_str().into(), stem.as_str().into());
        }
        *word = stem;
    });
}

impl Analyser {
    /// An analyser that stems so.
    pub fn new(stemming: Stemming) -> Self {
        Self { stemming }
    }

    /// How this analyser stems.
    pub fn stemming(&self) -> Stemming {
        self.stemming
    }

    /// Calls `visit` with every term of `text` in order, and the word it was made from.
    pub fn visit(&self, text: &str, mut visit: impl FnMut(&str, &str)) {
        let normalised: String;
        let text = if text.is_ascii() || is_nfkc_quick(text.chars()) == IsNormalized::Yes {
            text
        } else {
            normalised = text.nfkc().collect();
            &normalised
        };
        let mut lower = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(is_word) {
            rest = &rest[start..];
            let spaceless = rest.starts_with(is_spaceless);
            // A mark that stands on nothing is a word of its own, so a word is never empty.
            let (word, after) = rest.split_at(word_end(rest, spaceless));
            rest = after;
            if spaceless {
                pairs(word, &mut visit);
                continue;
            }
            rest = without_possessive(rest);
            lower.clear();
            if word.is_ascii() {
                lower.push_str(word);
                lower.make_ascii_lowercase();
            } else {
                lower.extend(word.chars().flat_map(char::to_lowercase));
            }
            if lower.len() > LONGEST_WORD {
                lower.truncate(lower.floor_char_boundary(LONGEST_WORD));
            }
            if self.stemming == Stemming::English && lower.bytes().all(|b| b.is_ascii_lowercase()) {
                stem(&mut lower);
            }
            visit(&lower, word);
        }
    }

    /// The terms of `text`, in order, repeats included.
    ///
    /// ```
    /// use corpus_tools::analysis::Analyser;
    /// let analyser = Analyser::default();
    /// assert_eq!(analyser.terms("Wood's cameras, 東京都!"), ["wood", "camera", "東京", "京都"]);
    /// ```
    pub fn terms(&self, text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        self.visit(text, |term, _| terms.push(term.to_owned()));
        terms
    }
}

/// What follows a word, without `'s`.
fn without_possessive(rest: &str) -> &str {
    for apostrophe in ["'", "\u{2019}"] {
        if let Some(after) = rest.strip_prefix(apostrophe)
            && let Some(after) = after.strip_prefix(['s', 'S'])
            && !after.starts_with(is_word)
        {
            return after;
        }
    }
    rest
}

/// Overlapping pairs of characters with their marks; a character that stands alone as it is.
fn pairs(run: &str, visit: &mut impl FnMut(&str, &str)) {
    let mut starts = run
        .char_indices()
        .filter(|&(at, c)| at == 0 || !is_combining_mark(c))
        .map(|(at, _)| at)
        .chain([run.len()]);
    let (Some(mut first), Some(mut second)) = (starts.next(), starts.next()) else {
        return;
    };
    if second == run.len() {
        visit(run, run);
    }
    for third in starts {
        let pair = &run[first..third];
        visit(&pair[..pair.floor_char_boundary(LONGEST_WORD)], pair);
        (first, second) = (second, third);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str) -> Vec<String> {
        Analyser::default().terms(text)
    }

    #[test]
    fn words_of_many_scripts() {
        assert_eq!(terms("U.S. Cafés (1928)"), ["u", "s", "cafés", "1928"]);
        assert_eq!(terms("Cafe\u{301}"), terms("Caf\u{e9}"));
        assert_eq!(terms("Ｆｕｌｌ ﬁne"), ["full", "fine"]);
        assert_eq!(terms("Россия́ ΑΘΗΝΑ"), ["россия́", "αθηνα"]);
        assert_eq!(terms("हिन्दी में"), ["हिन्दी", "में"]);
        assert_eq!(terms("東京 2020年"), ["東京", "2020", "年"]);
        assert_eq!(terms("日本語です"), ["日本", "本語", "語で", "です"]);
        assert_eq!(terms("ที่นี่"), ["ที่นี่"]);
        assert_eq!(terms("it’s Wood's dogs'"), ["it", "wood", "dog"]);
        assert!(terms("").is_empty() && terms(" –!\u{301}\n").len() <= 1);
    }

    #[test]
    fn a_long_word_is_cut() {
        let word = "é".repeat(1000);
        assert_eq!(terms(&word)[0].len(), LONGEST_WORD);
        let marks = format!("東{}京", "\u{301}".repeat(1000));
        assert!(terms(&marks).iter().all(|term| term.len() <= LONGEST_WORD));
    }
}
