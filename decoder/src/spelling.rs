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
/// bracket or a quotation mark). White space is folded as in the canonical form. No form holds another one,
/// so no place is found twice.
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
            if !tokens.is_empty() {
                forms.push(tokens);
            }
        }
    }
    without_holders(forms)
}

/// Leaves out repeats and every sequence that holds another one: where it stands, the other stands too.
fn without_holders(mut forms: Vec<Vec<Symbol>>) -> Vec<Vec<Symbol>> {
    let mut kept: Vec<Vec<Symbol>> = Vec::new();
    let all = forms.clone();
    forms.retain(|form| {
        let holds = |other: &Vec<Symbol>| {
            other.len() < form.len() && form.windows(other.len()).any(|window| window == other)
        };
        !all.iter().any(holds)
    });
    for form in forms {
        if !kept.contains(&form) {
            kept.push(form);
        }
    }
    kept
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_holds_another() {
        // As " 1969" is a space and then the digits of "1969": every place of the first is one of the second.
        let forms = vec![
            vec![9, 1, 2],
            vec![1, 2],
            vec![3],
            vec![1, 2],
            vec![3, 4, 1],
            vec![5, 6],
        ];
        assert_eq!(without_holders(forms), [vec![1, 2], vec![3], vec![5, 6]]);
        assert!(without_holders(Vec::new()).is_empty());
    }
}
