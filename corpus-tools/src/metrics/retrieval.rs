//! Whether retrieved texts hold an answer, and whether retrieved documents are labelled relevant: R@k by its
//! three definitions.
//!
//! - `has_answer` (DPR): a text contains a gold answer as a sequence of tokens ([`dpr_tokens`]).
//! - `substring` (FlashRAG): a normalised gold answer is a substring of a normalised text ([`normalised`]).
//! - `gold-id`: a retrieved document is labelled relevant. With several gold documents the share found and
//!   whether all were found are given as well.
//!
//! Ranks that are missing are misses. What cannot be judged is `None`, never a miss: yes and no answers cannot be found in
//! a text, and a question without labels has no gold document.

use std::collections::HashSet;

use super::text::{dpr_tokens, normalised};
use crate::questions::Question;

/// One entry of a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked<'a> {
    /// External ids that the entry goes by: of its paragraph, its document, or both.
    pub ids: &'a [String],
    /// The text as it was retrieved, the title left out.
    pub text: &'a str,
}

/// Ranks from 1 at which a question was first answered; what a ranking is worth at every k.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Rank of the first text with an answer by `has_answer`; outer `None`: cannot be judged.
    pub has_answer: Option<Option<usize>>,
    /// Rank of the first text with an answer by `substring`.
    pub substring: Option<Option<usize>>,
    /// Ranks of the gold documents, for every set of them that suffices; `None` for one that was not
    /// retrieved. A document counts at its first place, and places after it are counted without its repetitions.
    pub gold: Option<Vec<Vec<Option<usize>>>>,
    /// Rank of the first document with a weak label.
    pub silver: Option<Option<usize>>,
}

fn within(rank: Option<usize>, k: usize) -> bool {
    rank.is_some_and(|rank| rank <= k)
}

impl Judged {
    /// Whether a text of the first `k` holds an answer by `has_answer`.
    pub fn has_answer_at(&self, k: usize) -> Option<bool> {
        self.has_answer.map(|rank| within(rank, k))
    }

    /// Whether a text of the first `k` holds an answer by `substring`.
    pub fn substring_at(&self, k: usize) -> Option<bool> {
        self.substring.map(|rank| within(rank, k))
    }

    /// Whether one of the first `k` documents is labelled relevant.
    pub fn gold_hit_at(&self, k: usize) -> Option<bool> {
        let gold = self.gold.as_ref()?;
        Some(gold.iter().flatten().any(|&rank| within(rank, k)))
    }

    /// The share of the gold documents among the first `k`; the best over the sets that suffice.
    pub fn gold_recall_at(&self, k: usize) -> Option<f64> {
        let share = |set: &Vec<Option<usize>>| {
            set.iter().filter(|&&rank| within(rank, k)).count() as f64 / set.len().max(1) as f64
        };
        let gold = self.gold.as_ref()?;
        Some(gold.iter().map(share).fold(0.0, f64::max))
    }

    /// Whether all documents of a set that suffices are among the first `k`.
    pub fn gold_all_at(&self, k: usize) -> Option<bool> {
        let gold = self.gold.as_ref()?;
        let all = |set: &Vec<Option<usize>>| set.iter().all(|&rank| within(rank, k));
        Some(gold.iter().any(all))
    }

    /// Whether one of the first `k` documents has a weak label.
    pub fn silver_hit_at(&self, k: usize) -> Option<bool> {
        self.silver.map(|rank| within(rank, k))
    }
}

/// Judges rankings for one question; its answers are tokenized once.
#[derive(Clone, Debug)]
pub struct Judge<'q> {
    question: &'q Question,
    /// Tokens and normalised form of the answers that can be found in a text.
    tokens: Vec<Vec<String>>,
    normalised: Vec<String>,
}

impl<'q> Judge<'q> {
    /// A judge for `question`.
    pub fn new(question: &'q Question) -> Self {
        let answers: &[String] = if question.is_yes_no() {
            &[]
        } else {
            &question.answers
        };
        // The reference finds an answer without tokens in every text; here it is found in none.
        let tokens = answers
            .iter()
            .map(|answer| dpr_tokens(answer))
            .filter(|tokens| !tokens.is_empty())
            .collect();
        let normalised = answers
            .iter()
            .map(|answer| normalised(answer))
            .filter(|answer| !answer.is_empty())
            .collect();
        Self {
            question,
            tokens,
            normalised,
        }
    }

    /// Whether `text` contains a gold answer as a sequence of tokens.
    pub fn has_answer(&self, text: &str) -> bool {
        if self.tokens.is_empty() {
            return false;
        }
        let text = dpr_tokens(text);
        self.tokens
            .iter()
            .any(|answer| text.windows(answer.len()).any(|window| window == answer))
    }

    /// Whether the normalised `text` contains a normalised gold answer.
    pub fn substring(&self, text: &str) -> bool {
        if self.normalised.is_empty() {
            return false;
        }
        let text = normalised(text);
        self.normalised.iter().any(|answer| text.contains(answer))
    }

    /// Judges a ranking, the best first.
    pub fn judge(&self, ranking: &[Ranked<'_>]) -> Judged {
        let first = |found: &dyn Fn(&str) -> bool| {
            let at = ranking.iter().position(|entry| found(entry.text));
            at.map(|at| at + 1)
        };
        let distinct = distinct(ranking);
        let rank = |id: &String| {
            let at = distinct.iter().position(|ids| ids.contains(id));
            at.map(|at| at + 1)
        };
        let Question { gold, silver, .. } = self.question;
        Judged {
            has_answer: (!self.tokens.is_empty()).then(|| first(&|text| self.has_answer(text))),
            substring: (!self.normalised.is_empty()).then(|| first(&|text| self.substring(text))),
            gold: (!gold.is_empty()).then(|| {
                gold.iter()
                    .map(|set| set.iter().map(rank).collect())
                    .collect()
            }),
            silver: (!silver.is_empty()).then(|| silver.iter().filter_map(rank).min()),
        }
    }
}

/// The ids of the entries, those left out whose ids all stood before.
pub fn distinct<'a>(ranking: &[Ranked<'a>]) -> Vec<&'a [String]> {
    let mut seen = HashSet::new();
    ranking
        .iter()
        .filter(|entry| {
            // Of a document and its paragraph, the paragraph comes first and tells repetitions.
            entry.ids.first().is_some_and(|id| seen.insert(id))
        })
        .map(|entry| entry.ids)
        .collect()
}
