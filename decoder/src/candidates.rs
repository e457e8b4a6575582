//! Candidates: the documents that evidence may come from, with their per-document indexes, paragraphs
//! and sentence borders in tokens.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use corpus_tools::store::Paragraph;
use fmindex::{DocumentId, DocumentIndex, DocumentSet};
use models::tokenizer::Tokenizer;
use unicode_segmentation::UnicodeSegmentation;

use crate::scorer::WindowText;
use crate::sentences;
use crate::windows::Ground;

/// One document that evidence may come from. A clone shares the index.
#[derive(Clone)]
pub struct Candidate {
    /// Which document.
    pub document: DocumentId,
    /// Its id as the corpus gave it.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its fused score.
    pub score: f64,
    /// Its paragraphs, title first, in tokens of the document.
    pub paragraphs: Vec<Paragraph>,
    /// Token offsets at which a sentence of evidence starts, or a part of a very long one, ascending; titles have none.
    pub sentence_starts: Vec<u32>,
    index: Arc<DocumentIndex>,
}

impl Candidate {
    /// Prepares the document: builds its FM-index from `tokens` (separators included) and finds the
    /// borders of its sentences.
    pub fn new(
        document: DocumentId,
        (id, title): (String, String),
        score: f64,
        paragraphs: Vec<Paragraph>,
        index: Arc<DocumentIndex>,
        tokenizer: &Tokenizer,
    ) -> Self {
        let tokens = index.tokens();
        let mut sentence_starts = Vec::new();
        for paragraph in paragraphs.iter().filter(|paragraph| !paragraph.is_title()) {
            let span = paragraph.tokens.start as usize..paragraph.tokens.end as usize;
            let Some(inside) = tokens.get(span) else {
                continue;
            };
            sentence_starts
                .extend(starts_in(inside, tokenizer).map(|at| at + paragraph.tokens.start));
        }
        Self {
            document,
            id,
            title,
            score,
            paragraphs,
            sentence_starts,
            index,
        }
    }

    /// The document's tokens, separators included.
    pub fn tokens(&self) -> &[u32] {
        self.index.tokens()
    }

    /// The document's FM-index.
    pub fn index(&self) -> &Arc<DocumentIndex> {
        &self.index
    }

    /// The paragraph that holds the token at `offset`; `None` on a separator or outside.
    pub fn paragraph(&self, offset: u32) -> Option<&Paragraph> {
        let at = self
            .paragraphs
            .partition_point(|paragraph| paragraph.tokens.end <= offset);
        let paragraph = self.paragraphs.get(at)?;
        paragraph.tokens.contains(&offset).then_some(paragraph)
    }

    /// Whether a piece of evidence may end before the token at `offset`: a sentence or a paragraph ends there.
    pub fn ends_at(&self, offset: u32) -> bool {
        let ends = |paragraph: &Paragraph| paragraph.tokens.end.cmp(&offset);
        self.sentence_starts.binary_search(&offset).is_ok()
            || self.paragraphs.binary_search_by(ends).is_ok()
    }

    /// What windows are opened in.
    pub fn ground(&self) -> Ground {
        let quotable = self
            .paragraphs
            .iter()
            .filter(|paragraph| !paragraph.is_title());
        Ground {
            length: self.tokens().len() as u32,
            paragraphs: quotable.map(|paragraph| paragraph.tokens.clone()).collect(),
        }
    }

    /// The words of a span of tokens for a scorer: the title apart, paragraphs one after another.
    pub fn text(&self, span: Range<u32>, tokenizer: &Tokenizer) -> WindowText {
        let mut text = String::new();
        let first = self
            .paragraphs
            .partition_point(|paragraph| paragraph.tokens.end <= span.start);
        let inside = self.paragraphs[first..]
            .iter()
            .take_while(|paragraph| paragraph.tokens.start < span.end);
        for paragraph in inside.filter(|paragraph| !paragraph.is_title()) {
            let start = paragraph.tokens.start.max(span.start);
            let end = paragraph.tokens.end.min(span.end);
            if let Some(tokens) = self.tokens().get(start as usize..end as usize)
                && start < end
            {
                text.push_str(&tokenizer.decode(tokens));
            }
        }
        WindowText {
            title: self.title.clone(),
            text: text.trim_start().to_owned(),
        }
    }
}

/// Long documents that were candidates of earlier questions, so that their indexes are not built again: those used
/// last, of at most [`MOST_REMEMBERED`] tokens together. Documents of less than [`WORTH_REMEMBERING`] are built faster than
/// they are looked up.
#[derive(Default)]
pub struct CandidateMemory {
    kept: Mutex<Kept>,
}

/// Tokens of all documents that are remembered together.
pub const MOST_REMEMBERED: usize = 1 << 23;
/// Tokens of a document from which on it is remembered.
pub const WORTH_REMEMBERING: usize = 2000;

#[derive(Default)]
struct Kept {
    /// With the time of its last use.
    candidates: HashMap<DocumentId, (u64, Candidate)>,
    tokens: usize,
    clock: u64,
}

impl CandidateMemory {
    /// The candidate of a document, with another score; `None` if it is not remembered.
    pub fn get(&self, document: DocumentId, score: f64) -> Option<Candidate> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let clock = kept.clock;
        let (used, candidate) = kept.candidates.get_mut(&document)?;
        *used = clock;
        Some(Candidate {
            score,
            ..candidate.clone()
        })
    }

    /// Remembers a candidate, where that is worth it, and lets others go for it.
    pub fn put(&self, candidate: &Candidate) {
        let tokens = candidate.tokens().len();
        if !(WORTH_REMEMBERING..=MOST_REMEMBERED).contains(&tokens) {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let clock = kept.clock;
        let before = kept
            .candidates
            .insert(candidate.document, (clock, candidate.clone()));
        kept.tokens += tokens;
        kept.tokens -= before.map_or(0, |(_, before)| before.tokens().len());
        while kept.tokens > MOST_REMEMBERED {
            let oldest = kept.candidates.iter().min_by_key(|(_, (used, _))| *used);
            let Some((&oldest, _)) = oldest else { break };
            let gone = kept.candidates.remove(&oldest);
            kept.tokens -= gone.map_or(0, |(_, gone)| gone.tokens().len());
        }
    }

    /// Forgets all.
    pub fn forget(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Kept::default();
    }
}

/// A sentence of more tokens than this is cut: what is no prose (tables, code, speech without stops) would be one
/// sentence of a whole paragraph, whose end no piece of evidence reaches.
const LONGEST_SENTENCE: usize = 160;
/// Tokens after which such a sentence is cut, at the next word.
const PART_OF_SENTENCE: usize = 96;

/// Offsets of the tokens of one paragraph with which a sentence starts, or a part of a very long one. A sentence that
/// starts inside of a token, past the space in front, cannot be begun there and is left out; the first always counts.
fn starts_in(tokens: &[u32], tokenizer: &Tokenizer) -> impl Iterator<Item = u32> {
    let mut bytes = Vec::new();
    let mut borders = Vec::with_capacity(tokens.len());
    for &token in tokens {
        borders.push(bytes.len());
        bytes.extend_from_slice(tokenizer.token_bytes(token).unwrap_or_default());
    }
    let text = String::from_utf8_lossy(&bytes);
    // A lossy text has other offsets; then the paragraph counts as one sentence.
    let starts = if text.len() == bytes.len() {
        sentences::starts(&text)
    } else {
        Vec::new()
    };
    let mut found: Vec<u32> = Vec::new();
    if !tokens.is_empty() {
        found.push(0);
    }
    for start in starts {
        let token = borders.partition_point(|&border| border <= start) - 1;
        let blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == b' ');
        // The space in front of a paragraph can be a token of its own; the first sentence has begun there.
        if token > 0 && blank(&bytes[borders[token]..start]) && !blank(&bytes[..start]) {
            found.push(token as u32);
        }
    }
    found.dedup();
    let long = |(start, end): (usize, usize)| end - start > LONGEST_SENTENCE;
    let ends = found.iter().skip(1).map(|&next| next as usize);
    let ends: Vec<usize> = ends.chain([tokens.len()]).collect();
    let starts: Vec<usize> = found.iter().map(|&start| start as usize).collect();
    let sentences = || starts.iter().copied().zip(ends.iter().copied());
    if text.len() == bytes.len() && sentences().any(long) {
        let words: HashSet<usize> = text
            .split_word_bound_indices()
            .filter(|(at, _)| {
                let rest = &text[*at..];
                let rest = rest.strip_prefix(' ').unwrap_or(rest);
                rest.starts_with(char::is_alphanumeric)
            })
            .map(|(at, _)| at)
            .collect();
        for (mut start, end) in sentences().filter(|&sentence| long(sentence)) {
            while long((start, end)) {
                let next = (start + PART_OF_SENTENCE..end).find(|&at| words.contains(&borders[at]));
                let Some(next) = next else { break };
                found.push(next as u32);
                start = next;
            }
        }
        found.sort_unstable();
    }
    found.into_iter()
}

/// The union of the per-document indexes of some candidates, and which candidate each member is.
pub fn union(
    candidates: &[Candidate],
    members: impl IntoIterator<Item = u32>,
) -> (Arc<DocumentSet>, Vec<u32>) {
    let members: Vec<u32> = members.into_iter().collect();
    let indexes = members
        .iter()
        .map(|&member| candidates[member as usize].index.clone())
        .collect();
    (Arc::new(DocumentSet::new(indexes)), members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_used_last_are_remembered() {
        let definition = include_bytes!("../../models/tests/fixtures/bytes.json");
        let tokenizer = Tokenizer::from_json(definition).unwrap();
        let candidate = |number: u32, length: usize| {
            let document = DocumentId {
                segment: 0,
                document: number,
            };
            let tokens = vec![b'a'.into(); length];
            let index = Arc::new(DocumentIndex::build(&tokens, 256));
            let names = (number.to_string(), String::new());
            Candidate::new(document, names, 1.0, Vec::new(), index, &tokenizer)
        };
        let memory = CandidateMemory::default();
        let known = |number: u32| {
            let document = DocumentId {
                segment: 0,
                document: number,
            };
            memory.get(document, 0.5).map(|found| found.score)
        };
        memory.put(&candidate(0, WORTH_REMEMBERING - 1));
        memory.put(&candidate(1, WORTH_REMEMBERING));
        assert_eq!((known(0), known(1)), (None, Some(0.5)));
        // Two that fill the memory; the one that was not used since has to go for the third.
        memory.forget();
        assert_eq!(known(1), None);
        let half = candidate(2, MOST_REMEMBERED / 2);
        let other = Candidate {
            document: DocumentId {
                segment: 0,
                document: 3,
            },
            ..half.clone()
        };
        memory.put(&half);
        memory.put(&other);
        memory.put(&half);
        memory.put(&candidate(4, WORTH_REMEMBERING));
        assert_eq!((known(2), known(3), known(4)), (Some(0.5), None, Some(0.5)));
    }

    /// The token of a byte is its value.
    fn starts(text: &str) -> Vec<usize> {
        let definition = include_bytes!("../../models/tests/fixtures/bytes.json");
        let tokenizer = Tokenizer::from_json(definition).unwrap();
        let tokens = tokenizer.encode_text(text);
        starts_in(&tokens, &tokenizer)
            .map(|at| at as usize)
            .collect()
    }

    #[test]
    fn sentences_that_never_end_are_cut_at_words() {
        assert_eq!(starts(" One. Two."), [0, 6]);
        let short = "word ".repeat(20);
        assert_eq!(starts(&short), [0]);
        for text in [
            "no stop at all ".repeat(60),
            format!("First. {} Last.", "a b, c ".repeat(90)),
            "東京は日本の首都で".repeat(40),
            "ภาษาไทยเขียนโดยไม่เว้นวรรค".repeat(20),
        ] {
            let found = starts(&text);
            assert!(found.is_sorted() && found.len() > 2, "{found:?}");
            for (at, &start) in found.iter().enumerate() {
                let end = found.get(at + 1).copied().unwrap_or(text.len());
                assert!(end - start <= LONGEST_SENTENCE, "{start}–{end} in {text}");
                let begins = text[start..]
                    .trim_start()
                    .starts_with(char::is_alphanumeric);
                assert!(begins, "{:?}", &text[start..end]);
            }
        }
        // Without a word there is nothing to cut at.
        assert_eq!(starts(&"-".repeat(500)), [0]);
    }
}
