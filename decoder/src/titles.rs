//! Titles named in a text, and their documents, looked up through the corpus-level index.

use std::ops::Range;

use corpus_tools::canonical::canonical_text;
use corpus_tools::{Index, IndexError};
use fmindex::{Continuation, DocumentId, Ranges};
use models::tokenizer::Tokenizer;
use unicode_segmentation::UnicodeSegmentation;

use crate::sentences::is_unspaced;
use crate::settings::TitleSettings;

/// Spellings of a name that are followed at the same time.
const MOST_SPELLINGS: usize = 8;

/// A name in a text that is the title of documents.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTitle {
    /// The name as titles spell it, without what they add to tell namesakes apart.
    pub name: String,
    /// Where it stands: bytes of the text's canonical form.
    pub span: Range<usize>,
    /// Whether the text, which has no capitals, spells it in another way.
    pub guessed: bool,
    /// Occurrences of the name in live documents.
    pub occurrences: u64,
    /// The documents: first those whose title is the name, then those that add something in brackets, then
    /// those that add something after a comma; each in corpus order.
    pub documents: Vec<DocumentId>,
}

/// Titles that stand in `text`, in the order in which they stand; one inside of a longer one is left out,
/// and so are names that occur too often, or are the title of too many documents, to say anything.
///
/// In a text without capitals every word is also tried with one, as titles have them; a single word is no
/// name there.
///
/// # Errors
/// The index is damaged.
pub fn named_in(
    index: &Index,
    tokenizer: &Tokenizer,
    text: &str,
    settings: &TitleSettings,
) -> Result<Vec<NamedTitle>, IndexError> {
    let text = canonical_text(text);
    let words: Vec<Range<usize>> = text
        .unicode_word_indices()
        .map(|(at, word)| at..at + word.len())
        .collect();
    let capital = |word: &Range<usize>| text[word.clone()].chars().any(char::is_uppercase);
    let cased = words.iter().skip(1).any(capital);
    let fm = index.fm();
    let mut found: Vec<NamedTitle> = Vec::new();
    for (first, start) in words.iter().enumerate() {
        let mut spellings = vec![String::new()];
        for (last, word) in words
            .iter()
            .enumerate()
            .skip(first)
            .take(settings.most_words)
        {
            let gap = match last == first {
                true => "",
                false => &text[words[last - 1].end..word.start],
            };
            let mut longer = Vec::new();
            for spelling in &spellings {
                for word in cases(&text[word.clone()], cased) {
                    let name = format!("{spelling}{gap}{word}");
                    let begun = begin(index, tokenizer, &name);
                    if begun.is_empty() {
                        // In scripts without spaces a token may reach over several words of a name.
                        if name.ends_with(is_unspaced) {
                            longer.push(name);
                        }
                        continue;
                    }
                    // A frequent name says nothing, and is not located.
                    let occurrences = fm.count(&fm.range(&tokens(tokenizer, &name)));
                    let says = occurrences <= settings.most_occurrences;
                    let documents = match says && (cased || last > first) {
                        true => titled(index, tokenizer, &name, &begun)?,
                        false => Vec::new(),
                    };
                    if !documents.is_empty() {
                        let span = start.start..words[last].end;
                        found.push(NamedTitle {
                            occurrences,
                            guessed: text[span.clone()] != name,
                            name: name.clone(),
                            span,
                            documents,
                        });
                    }
                    longer.push(name);
                }
            }
            longer.truncate(MOST_SPELLINGS);
            if longer.is_empty() {
                break;
            }
            spellings = longer;
        }
    }
    let spans: Vec<Range<usize>> = found.iter().map(|title| title.span.clone()).collect();
    let within = |span: &Range<usize>, other: &Range<usize>| {
        other.start <= span.start && span.end <= other.end && span.len() < other.len()
    };
    found.retain(|title| {
        title.documents.len() <= settings.sharing
            && !spans.iter().any(|other| within(&title.span, other))
    });
    Ok(found)
}

/// The forms in which a word of a name is tried.
fn cases(word: &str, cased: bool) -> Vec<String> {
    let mut cases = vec![word.to_owned()];
    if !cased {
        let mut letters = word.chars();
        let first = letters.next().map(char::to_uppercase);
        let capitalised: String = first.into_iter().flatten().chain(letters).collect();
        if capitalised != word {
            cases.push(capitalised);
        }
    }
    cases
}

/// The tokens of a name with a space in front, as it stands in a text and at the start of a paragraph.
fn tokens(tokenizer: &Tokenizer, name: &str) -> Vec<u32> {
    tokenizer.encode_text(&format!(" {name}"))
}

/// The rows of `name` at the start of a paragraph.
fn begin(index: &Index, tokenizer: &Tokenizer, name: &str) -> Ranges {
    let fm = index.fm();
    let mut ranges = fm.paragraph_starts();
    for token in tokens(tokenizer, name) {
        ranges = fm.extend(&ranges, token);
    }
    ranges
}

/// Documents whose title is `name`, or `name` with something added.
fn titled(
    index: &Index,
    tokenizer: &Tokenizer,
    name: &str,
    begun: &Ranges,
) -> Result<Vec<DocumentId>, IndexError> {
    let fm = index.fm();
    let mut next: Vec<Continuation> = Vec::new();
    fm.continuations(begun, &mut next);
    let going_on: u64 = next.iter().map(|next| next.count).sum();
    let mut found = Vec::new();
    let mut collect = |ranges: &Ranges, is: &dyn Fn(&str) -> bool| -> Result<(), IndexError> {
        let mut documents = Vec::new();
        for place in fm.locate(ranges) {
            if place.start == 0
                && is(canonical_text(index.document(place.document)?.title).trim_start())
            {
                documents.push(place.document);
            }
        }
        documents.sort_unstable();
        found.extend(documents);
        Ok(())
    };
    // Some of the paragraphs that begin with the name are nothing but the name.
    if fm.count(begun) > going_on {
        collect(begun, &|title| title == name)?;
    }
    for added in [" (", ","] {
        let adds = |title: &str| {
            let rest = title.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(added))
        };
        // What is added may be the beginning of a token, or several tokens.
        let mut open = vec![(begun.clone(), added.as_bytes())];
        while let Some((ranges, rest)) = open.pop() {
            fm.continuations(&ranges, &mut next);
            for &Continuation { symbol, .. } in &next {
                let token = tokenizer.token_bytes(symbol).unwrap_or_default();
                if token.starts_with(rest) {
                    collect(&fm.extend(&ranges, symbol), &adds)?;
                } else if !token.is_empty()
                    && let Some(rest) = rest.strip_prefix(token)
                {
                    open.push((fm.extend(&ranges, symbol), rest));
                }
            }
        }
    }
    Ok(found)
}
