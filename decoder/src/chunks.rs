//! Chunks: a text cut into runs of so many words, with the bytes at which they stand.

use std::ops::Range;

use corpus_tools::Citation;
use corpus_tools::analysis::is_spaceless;
use corpus_tools::canonical;
use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation;

/// Characters of a script without spaces that count as one word; words of Chinese and Japanese have one to
/// two on average.
const SPACELESS_WORD: usize = 2;
/// Characters after which a run without white space counts as a further word, so that no chunk grows without
/// end over a text that has none.
const LONGEST_WORD: usize = 48;

/// A text that chunks are cut from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongDocument {
    /// What citations call it.
    pub id: String,
    /// Its title; may be empty. It is shown to scorers and models and never quoted.
    pub title: String,
    /// The text that offsets speak of.
    pub text: String,
}

/// A run of words of one document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Number of the document, from 0.
    pub document: usize,
    /// Its bytes in the document's text, from the first character of its first word to the last of its last.
    pub bytes: Range<usize>,
    /// Words in it.
    pub words: usize,
}

impl Chunk {
    /// The chunk's text, as it stands in the document.
    pub fn text<'d>(&self, documents: &'d [LongDocument]) -> &'d str {
        let text = documents.get(self.document).map_or("", |d| d.text.as_str());
        text.get(self.bytes.clone()).unwrap_or_default()
    }

    /// The whole chunk as a citation; `score` is the caller's.
    pub fn citation(&self, documents: &[LongDocument], score: f32) -> Citation {
        let (id, title, text) = documents
            .get(self.document)
            .map_or(("", "", ""), |d| (&d.id, &d.title, &d.text));
        let quote = self.text(documents);
        let before = text.get(..self.bytes.start).unwrap_or_default();
        let start_char = before.chars().count() as u64;
        // The title is paragraph 0, so the first paragraph of the text is 1.
        let paragraph = canonical::paragraphs(text)
            .take_while(|paragraph| paragraph.start <= self.bytes.start)
            .count();
        Citation {
            id: id.to_owned(),
            passage_id: None,
            title: title.to_owned(),
            quote: quote.to_owned(),
            start_byte: self.bytes.start as u64,
            end_byte: self.bytes.end as u64,
            start_char,
            end_char: start_char + quote.chars().count() as u64,
            paragraph: u32::try_from(paragraph).unwrap_or(u32::MAX),
            other_occurrences: 0,
            score,
            metadata: Default::default(),
            decoded: false,
        }
    }
}

/// The words of a text as byte ranges. A word ends at white space; in a script without spaces it is two
/// characters long, and no word is longer than 48. Cuts are between grapheme clusters.
///
/// ```
/// let text = "One two,  東京都です.";
/// let words: Vec<&str> = decoder::chunks::words(text).map(|word| &text[word]).collect();
/// assert_eq!(words, ["One", "two,", "東京", "都で", "す."]);
/// ```
pub fn words(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut clusters = text.grapheme_indices(true).peekable();
    std::iter::from_fn(move || {
        while clusters.next_if(|(_, c)| is_blank(c)).is_some() {}
        let (start, first) = clusters.next()?;
        let mut end = start + first.len();
        let mut spaceless = usize::from(first.starts_with(is_spaceless));
        let mut length = 1;
        while let Some(&(at, cluster)) = clusters.peek() {
            let next = usize::from(cluster.starts_with(is_spaceless));
            // Punctuation stays with what is before it.
            let begins = next == 1 || cluster.starts_with(char::is_alphanumeric);
            let full = length >= LONGEST_WORD || (spaceless >= SPACELESS_WORD && begins);
            if is_blank(cluster) || full {
                break;
            }
            end = at + cluster.len();
            spaceless += next;
            length += 1;
            clusters.next();
        }
        Some(start..end)
    })
}

fn is_blank(cluster: &str) -> bool {
    cluster.chars().all(char::is_whitespace)
}

/// Cuts every document into chunks of `words` words (at least one), the last of a document being shorter. All
/// words stand in exactly one chunk; a document without words has none.
///
/// ```
/// use decoder::chunks::{LongDocument, chunk};
/// let document = LongDocument { id: "a".into(), title: String::new(), text: " one two\nthree ".into() };
/// let chunks = chunk(std::slice::from_ref(&document), 2);
/// assert_eq!(chunks[0].text(std::slice::from_ref(&document)), "one two");
/// assert_eq!(chunks[1].bytes, 9..14);
/// ```
pub fn chunk(documents: &[LongDocument], words: usize) -> Vec<Chunk> {
    let most = words.max(1);
    let mut chunks: Vec<Chunk> = Vec::new();
    for (document, LongDocument { text, .. }) in documents.iter().enumerate() {
        let mut open: Option<Chunk> = None;
        for word in self::words(text) {
            match &mut open {
                Some(chunk) if chunk.words < most => {
                    chunk.words += 1;
                    chunk.bytes.end = word.end;
                }
                _ => {
                    let next = Chunk {
                        document,
                        bytes: word,
                        words: 1,
                    };
                    chunks.extend(open.replace(next));
                }
            }
        }
        chunks.extend(open);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document(text: &str) -> [LongDocument; 1] {
        [LongDocument {
            id: "d".into(),
            title: "T".into(),
            text: text.into(),
        }]
    }

    fn texts(text: &str, words: usize) -> Vec<String> {
        let documents = document(text);
        chunk(&documents, words)
            .iter()
            .map(|c| c.text(&documents).to_owned())
            .collect()
    }

    #[test]
    fn edge_texts() {
        for empty in ["", " ", "\n\r\n\t\u{a0}", "\u{3000}"] {
            assert!(texts(empty, 3).is_empty(), "{empty:?}");
        }
        assert_eq!(texts("one", 3), ["one"]);
        assert_eq!(texts("a b c", 3), ["a b c"]);
        assert_eq!(texts("a b c d", 3), ["a b c", "d"]);
        assert_eq!(texts("a\r\n\r\nb\u{a0}c", 2), ["a\r\n\r\nb", "c"]);
        // No words asked for counts as one.
        assert_eq!(texts("a b", 0), ["a", "b"]);
        // A run without white space is not one endless word.
        let long = "x".repeat(1000);
        assert_eq!(texts(&long, 10).len(), 3);
        assert_eq!(texts(&long, 10).concat(), long);
        // A cluster is never cut.
        let family = "👩‍👩‍👧‍👦".repeat(100);
        for piece in texts(&family, 1) {
            assert_eq!(piece.len() % "👩‍👩‍👧‍👦".len(), 0);
        }
        let marks = format!("a{}", "\u{301}".repeat(10_000));
        assert_eq!(texts(&marks, 1), [marks]);
    }

    #[test]
    fn scripts_without_spaces() {
        let chinese = "光合作用是植物利用阳光的过程。它产生氧气。".repeat(40);
        let chunks = texts(&chinese, 300);
        assert_eq!(chunks.concat(), chinese);
        assert!(chunks.len() >= 2, "{}", chunks.len());
        let longest = chunks.iter().map(|c| c.chars().count()).max();
        assert!(longest <= Some(900), "{longest:?}");
        let thai = "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย".repeat(50);
        assert!(texts(&thai, 300).len() >= 2);
        assert_eq!(texts(&thai, 300).concat(), thai);
    }

    #[test]
    fn citations_resolve() {
        let documents = document("Ünï cödé\n\nsecond 東京 paragraph\nthird");
        for (chunk, paragraph) in chunk(&documents, 2).iter().zip([1, 2, 2, 3]) {
            let citation = chunk.citation(&documents, 0.5);
            let (from, to) = (citation.start_byte as usize, citation.end_byte as usize);
            assert_eq!(&documents[0].text[from..to], citation.quote);
            let (from, to) = (citation.start_char as usize, citation.end_char as usize);
            let characters: String = documents[0].text.chars().take(to).skip(from).collect();
            assert_eq!(characters, citation.quote);
            assert_eq!(citation.paragraph, paragraph, "{citation:?}");
        }
    }

    proptest! {
        #[test]
        fn every_word_stands_in_one_chunk(text in "[a-c 東京\u{301}\n👩\u{200d}.\u{a0}]{0,80}", words in 1usize..6) {
            let documents = document(&text);
            let chunks = chunk(&documents, words);
            let mut covered = String::new();
            let mut end = 0;
            for chunk in &chunks {
                prop_assert!(chunk.bytes.start >= end && chunk.words <= words);
                prop_assert!(text[end..chunk.bytes.start].trim().is_empty());
                covered.push_str(chunk.text(&documents));
                end = chunk.bytes.end;
            }
            prop_assert!(text[end..].trim().is_empty());
            let solid = |t: &str| t.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(solid(&covered), solid(&text));
            let all: usize = chunks.iter().map(|c| c.words).sum();
            prop_assert_eq!(all, super::words(&text).count());
        }
    }
}
