//! Sentence borders of a text, in any script (Unicode UAX #29), with the common false ends mended.

use unicode_segmentation::UnicodeSegmentation;

/// Abbreviations that end in a full stop and go on within the sentence, lower case, without the stop.
/// A subset of the English suppressions of CLDR (`segmentations/en.xml`) and initials of titles.
const ABBREVIATIONS: &[&str] = &[
    "adm", "brig", "c", "ca", "capt", "cf", "cmdr", "co", "col", "corp", "cpl", "dr", "e.g", "ed",
    "esp", "etc", "fr", "ft", "gen", "gov", "hon", "i.e", "inc", "jr", "lt", "ltd", "maj",
    "messrs", "mlle", "mme", "mr", "mrs", "ms", "mt", "no", "nos", "op", "p", "pp", "prof", "pvt",
    "rep", "rev", "sen", "sgt", "sr", "st", "v", "viz", "vol", "vs",
];

/// Byte offsets at which a sentence starts, ascending; the first is that of the first character that is
/// not white space. White space between two sentences belongs to the one before.
///
/// UAX #29 ends a sentence after "Dr. " before a capital letter; an end after a known abbreviation or a
/// single letter ("J. K. Rowling") is taken back, and so is one before a small letter ("Why?" he asked).
///
/// ```
/// let text = "Dr. No is a film. It stars S. Connery! 东京是首都。它很大。";
/// let starts = decoder::sentences::starts(text);
/// let sentences: Vec<&str> = starts.iter().map(|&at| text[at..].chars().next().unwrap().len_utf8())
///     .zip(&starts).map(|(n, &at)| &text[at..at + n]).collect();
/// assert_eq!(sentences, ["D", "I", "东", "它"]);
/// ```
pub fn starts(text: &str) -> Vec<usize> {
    let mut starts: Vec<usize> = Vec::new();
    let mut before = 0;
    for (at, sentence) in text.split_sentence_bound_indices() {
        let first = at + (sentence.len() - sentence.trim_start().len());
        let blank = sentence.trim().is_empty();
        let lower = text[first..].starts_with(char::is_lowercase);
        let go_on = starts.last().is_some() && (lower || continues(&text[before..at]));
        if !blank && !go_on {
            starts.push(first);
        }
        before = at;
    }
    starts
}

/// Whether a text ends where a sentence may end: what came after it would start another.
///
/// ```
/// use decoder::sentences::ends;
/// assert!(ends("It is a film.\"") && ends("它很大。") && ends("यह पहला है।"));
/// assert!(!ends("It stars S.") && !ends("It is a") && !ends(""));
/// ```
pub fn ends(text: &str) -> bool {
    let next = format!("{text} A");
    !text.trim().is_empty() && starts(&next).last() == Some(&(next.len() - 1))
}

/// Whether a character is of a script that is written without spaces between words: Thai, Lao, Myanmar, Khmer, kana
/// and ideographs.
pub fn is_unspaced(c: char) -> bool {
    matches!(
        u32::from(c),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x3040..=0x30ff | 0x31f0..=0x31ff
            | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff
    )
}

/// Whether a sentence that seems to end with `sentence` goes on after it.
fn continues(sentence: &str) -> bool {
    let trimmed = sentence.trim_end();
    let Some(body) = trimmed.strip_suffix('.') else {
        return false;
    };
    let word = body
        .rsplit(|c: char| c.is_whitespace() || matches!(c, '(' | '"' | '“' | '[' | '–' | '—'))
        .next();
    let word = word.unwrap_or(body);
    let mut letters = word.rsplit('.').next().unwrap_or(word).chars();
    let single =
        matches!((letters.next(), letters.next()), (Some(letter), None) if letter.is_uppercase());
    single || ABBREVIATIONS.contains(&word.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<&str> {
        let starts = starts(text);
        let ends = starts.iter().skip(1).copied().chain([text.len()]);
        starts
            .iter()
            .zip(ends)
            .map(|(&from, to)| text[from..to].trim_end())
            .collect()
    }

    #[test]
    fn abbreviations_and_initials_go_on() {
        assert_eq!(
            split(
                " He met Dr. Watson and J. R. R. Tolkien in St. Louis. They left at 5 p.m. sharp."
            ),
            [
                "He met Dr. Watson and J. R. R. Tolkien in St. Louis.",
                "They left at 5 p.m. sharp."
            ]
        );
        assert_eq!(
            split("It is 3.5 km. \"Why?\" he asked."),
            ["It is 3.5 km.", "\"Why?\" he asked."]
        );
    }

    #[test]
    fn other_scripts() {
        assert_eq!(split("東京は首都です。大きいです。").len(), 2);
        assert_eq!(split("यह पहला वाक्य है। यह दूसरा है।").len(), 2);
        assert_eq!(split("هذه جملة. هل هذه أخرى؟ نعم.").len(), 3);
    }

    #[test]
    fn edges() {
        assert!(starts("").is_empty());
        assert!(starts("  \n ").is_empty());
        assert_eq!(starts("  one"), [2]);
        // Only punctuation: whatever the borders, they are ascending, in range, and on characters.
        let odd = starts(". . . ?! …");
        assert!(odd.is_sorted() && odd.first() == Some(&0));
    }
}
