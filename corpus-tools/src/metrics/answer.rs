//! Scores of a written answer against the gold answers: exact match, F1, accuracy, ROUGE-L.

use std::collections::HashMap;

use super::text::{normalised, rouge_words};

/// 1 where the normalised answer is a normalised gold answer (SQuAD). 0 without gold answers.
///
/// ```
/// use corpus_tools::metrics::answer::exact_match;
/// assert_eq!(exact_match("the Beatles.", &["Beatles"]), 1.0);
/// ```
pub fn exact_match<G: AsRef<str>>(answer: &str, gold: &[G]) -> f64 {
    let answer = normalised(answer);
    f64::from(u8::from(
        gold.iter().any(|gold| normalised(gold.as_ref()) == answer),
    ))
}

/// The harmonic mean of precision and recall over the words of the normalised answer, each counted as often
/// as it stands; the best over the gold answers (SQuAD). Two that hold no word at all agree, as in SQuAD 2.0, so F1 is
/// never below exact match.
pub fn f1<G: AsRef<str>>(answer: &str, gold: &[G]) -> f64 {
    let answer = normalised(answer);
    best(gold, |gold| {
        let gold = normalised(gold);
        let mut counts: HashMap<&str, i64> = HashMap::new();
        let words: Vec<&str> = answer.split_whitespace().collect();
        let gold: Vec<&str> = gold.split_whitespace().collect();
        if words.is_empty() || gold.is_empty() {
            return f64::from(u8::from(words.is_empty() && gold.is_empty()));
        }
        for word in &gold {
            *counts.entry(word).or_default() += 1;
        }
        let mut common = 0;
        for word in &words {
            if let Some(count) = counts.get_mut(word).filter(|count| **count > 0) {
                *count -= 1;
                common += 1;
            }
        }
        harmonic(common, words.len(), gold.len())
    })
}

/// 1 where the normalised answer contains a normalised gold answer (accuracy, as FlashRAG and PopQA count
/// it). A gold answer that normalises to nothing is contained in an answer that does, too.
pub fn accuracy<G: AsRef<str>>(answer: &str, gold: &[G]) -> f64 {
    let answer = normalised(answer);
    let holds = |gold: &G| match normalised(gold.as_ref()) {
        gold if gold.is_empty() => answer.is_empty(),
        gold => answer.contains(&gold),
    };
    f64::from(u8::from(gold.iter().any(holds)))
}

/// ROUGE-L (Lin 2004): the harmonic mean of precision and recall of the longest common subsequence of
/// words ([`rouge_words`]); the best over the gold answers.
pub fn rouge_l<G: AsRef<str>>(answer: &str, gold: &[G]) -> f64 {
    let answer = rouge_words(answer);
    best(gold, |gold| {
        let gold = rouge_words(gold);
        harmonic(longest_common(&answer, &gold), answer.len(), gold.len())
    })
}

fn best<G: AsRef<str>>(gold: &[G], score: impl Fn(&str) -> f64) -> f64 {
    gold.iter()
        .map(|gold| score(gold.as_ref()))
        .fold(0.0, f64::max)
}

/// 2·P·R / (P + R) with `P = common / answer` and `R = common / gold`.
fn harmonic(common: usize, answer: usize, gold: usize) -> f64 {
    if common == 0 {
        return 0.0;
    }
    let precision = common as f64 / answer as f64;
    let recall = common as f64 / gold as f64;
    2.0 * precision * recall / (precision + recall)
}

/// Length of the longest common subsequence.
fn longest_common(a: &[String], b: &[String]) -> usize {
    let mut row = vec![0usize; b.len() + 1];
    for word in a {
        let mut diagonal = 0;
        for (at, other) in b.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if word == other {
                diagonal + 1
            } else {
                above.max(row[at])
            };
            diagonal = above;
        }
    }
    row[b.len()]
}
