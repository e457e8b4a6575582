//! Clues: how much one says, and the documents that clues point to.

use std::collections::BTreeMap;

use fmindex::{DocumentId, Index};
use models::tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::settings::ClueSettings;
use crate::spelling::{self, Spelling};

/// A key phrase and what the corpus says of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clue {
    /// The phrase as text, without the space in front.
    pub text: String,
    /// Occurrences in live documents, over all spellings.
    pub occurrences: u64,
    /// Live documents that hold it; 0 where it occurs too often to score.
    pub documents: u64,
    /// Its weight in the document score; 0 where it says nothing.
    pub weight: f64,
}

/// `w(c) = max(0, α·ln(N/occ(c)) + β·ln(N/df(c)))` for `0 < occ ≤ most_occurrences`, else 0
/// (RetroLLM, arXiv:2412.11919; the clamp keeps a match from counting against a document of a small corpus).
pub fn weight(documents: u64, occurrences: u64, frequency: u64, settings: &ClueSettings) -> f64 {
    if occurrences == 0 || frequency == 0 || occurrences > settings.most_occurrences {
        return 0.0;
    }
    let rarity = |count: u64| (documents as f64 / count as f64).ln();
    (settings.alpha * rarity(occurrences) + settings.beta * rarity(frequency)).max(0.0)
}

/// The contribution of one clue to a document's score: `w(c)·ln(1 + tf(c,d))`.
pub fn contribution(weight: f64, term_frequency: u64) -> f64 {
    weight * (1.0 + term_frequency as f64).ln()
}

/// Looks every phrase up, in all its spellings, and ranks the documents by
/// `score(d) = Σ_c w(c)·ln(1 + tf(c,d))`, best first, equal ones in corpus order; at most
/// `settings.documents`, and only those with a positive score.
pub fn rank_documents(
    index: &Index,
    tokenizer: &Tokenizer,
    phrases: &[String],
    settings: &ClueSettings,
) -> (Vec<Clue>, Vec<(DocumentId, f64)>) {
    let mut scores: BTreeMap<DocumentId, f64> = BTreeMap::new();
    let mut clues = Vec::with_capacity(phrases.len());
    for phrase in phrases {
        let spellings = spelling::look_up(index, tokenizer, phrase);
        let occurrences = spellings
            .iter()
            .map(|spelling| index.count(&spelling.ranges))
            .sum();
        let mut clue = Clue {
            text: phrase.clone(),
            occurrences,
            documents: 0,
            weight: 0.0,
        };
        if occurrences <= settings.most_occurrences {
            let counts = term_frequencies(index, &spellings);
            clue.documents = counts.len() as u64;
            clue.weight = weight(index.documents(), occurrences, clue.documents, settings);
            for (document, frequency) in counts {
                *scores.entry(document).or_default() += contribution(clue.weight, frequency);
            }
        }
        clues.push(clue);
    }
    let mut ranking: Vec<_> = scores
        .into_iter()
        .filter(|(_, score)| *score > 0.0)
        .collect();
    ranking.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranking.truncate(settings.documents);
    (clues, ranking)
}

/// Term frequency of a phrase in each live document that holds it, over all its spellings.
fn term_frequencies(index: &Index, spellings: &[Spelling]) -> BTreeMap<DocumentId, u64> {
    let mut counts = BTreeMap::new();
    for spelling in spellings {
        for occurrence in index.locate(&spelling.ranges) {
            *counts.entry(occurrence.document).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_by_hand() {
        let settings = ClueSettings::default();
        let expected = (1000f64 / 10.0).ln() + (1000f64 / 5.0).ln();
        assert!((weight(1000, 10, 5, &settings) - expected).abs() < 1e-12);
        // More occurrences than documents: clamped, not negative.
        assert_eq!(weight(3, 30, 3, &settings), 0.0);
        // Too frequent, or absent.
        assert_eq!(weight(1_000_000, 1001, 1001, &settings), 0.0);
        assert_eq!(weight(10, 0, 0, &settings), 0.0);
        let halved = ClueSettings {
            alpha: 0.5,
            beta: 0.0,
            ..settings
        };
        assert!((weight(1000, 10, 5, &halved) - 0.5 * 100f64.ln()).abs() < 1e-12);
        assert!((contribution(2.0, 3) - 2.0 * 4f64.ln()).abs() < 1e-12);
    }
}
