//! Spellings of a phrase: tokens differ at boundaries and with case, so what is looked up is tried in
//! each form that can occur in a text.

use fmindex::{Index, Ranges, Symbol};
use models::tokenizer::Tokenizer;

/// A spelling of a phrase that occurs in the corpus.
#[derive(Clone)]
pub struct Spelling {
    /// The tokens looked up.
    pub tokens: Vec<Symbol>,
    /// Their rows in the corpus-level index; never empty.
    pub ranges: Ranges,
}

/// The token sequences under which `phrase` can stand in a text: as written, in lower case, with its
/// first letter capitalised; each after a space and without one (at the start of a text, after a
/// bracket or a quotation mark). White space is folded as in the canonical form. Without repeats.
pub fn forms(tokenizer: &Tokenizer, phrase: &str) -> Vec<Vec<Symbol>> {
    let canonical = corpus_tools::canonical::Canonical::new(phrase);
    let written = canonical.text().trim_start();
    if written.is_empty() {
        return Vec::new();
    }
    let mut cases = vec![written.to_owned(), written.to_lowercase()];
    let mut letters = written.chars();
    if let Some(first) = letters.next() {
        cases.push(first.to_uppercase().chain(letters).collect());
    }
    let mut forms: Vec<Vec<Symbol>> = Vec::new();
    for case in cases {
        for text in [format!(" {case}"), case] {
            let tokens = tokenizer.encode_text(&text);
            if !tokens.is_empty() && !forms.contains(&tokens) {
                forms.push(tokens);
            }
        }
    }
    forms
}

/// The spellings of `phrase` that occur in live documents.
pub fn look_up(index: &Index, tokenizer: &Tokenizer, phrase: &str) -> Vec<Spelling> {
    forms(tokenizer, phrase)
        .into_iter()
        .map(|tokens| Spelling {
            ranges: index.range(&tokens),
            tokens,
        })
        .filter(|spelling| index.count(&spelling.ranges) > 0)
        .collect()
}
