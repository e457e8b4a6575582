//! The forward–backward score of FB-RAG (arXiv:2505.17206): how well a chunk fits the question (backward) and
//! the outputs that a light model sampled (forward).
//!
//! `S_FB(c) = η_B·S(c; question) + η_F·max_k S(c; y_k)`, where `y_k` is the `k`-th sample, reasoning and answer
//! together, and `S` the relevance of a chunk to a text.

use serde::{Deserialize, Serialize};

/// How scores for different texts are put on one scale before they are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Combination {
    /// As the scorer gives them (the paper). BM25 gives larger numbers for longer texts, so of several samples
    /// the longest tends to win.
    Raw,
    /// Each text's scores are scaled to [0, 1] over the chunks (min–max) first; where all are equal, to 0. The
    /// default, since the length of a sample then says nothing.
    #[default]
    Normalised,
}

/// The weights of the two directions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// η_B: weight of the question.
    pub backward: f64,
    /// η_F: weight of the best sample.
    pub forward: f64,
}

/// A chunk's scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// `S(c; question)`, scaled where the combination says so.
    pub backward: f64,
    /// `max_k S(c; y_k)`, likewise; 0 without samples.
    pub forward: f64,
    /// η_B·backward + η_F·forward.
    pub combined: f64,
}

/// Combines the scores of every chunk for the question with those for every sample. `samples` holds one row a
/// sample, each with one score a chunk; a row of another length counts for the chunks it has. What is no number
/// counts as 0.
pub fn combine(
    question: &[f32],
    samples: &[Vec<f32>],
    weights: Weights,
    combination: Combination,
) -> Vec<Score> {
    let prepare = |row: &[f32]| -> Vec<f64> {
        let row: Vec<f64> = row
            .iter()
            .map(|&s| if s.is_finite() { f64::from(s) } else { 0.0 })
            .collect();
        match combination {
            Combination::Raw => row,
            Combination::Normalised => scaled(&row),
        }
    };
    let samples: Vec<Vec<f64>> = samples.iter().map(|row| prepare(row)).collect();
    prepare(question)
        .into_iter()
        .enumerate()
        .map(|(chunk, backward)| {
            let forward = samples
                .iter()
                .filter_map(|row| row.get(chunk))
                .copied()
                .reduce(f64::max)
                .unwrap_or(0.0);
            Score {
                backward,
                forward,
                combined: weights.backward * backward + weights.forward * forward,
            }
        })
        .collect()
}

/// Min–max scaling to [0, 1]; all 0 where there is nothing to tell apart.
fn scaled(row: &[f64]) -> Vec<f64> {
    let low = row.iter().copied().fold(f64::INFINITY, f64::min);
    let high = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = high - low;
    row.iter()
        .map(|s| if range > 0.0 { (s - low) / range } else { 0.0 })
        .collect()
}

/// The chunks by their combined score, best first; of equals the one that fits the question better, then the
/// one that stands first. So without a sample that says anything the order is that of the question.
pub fn ranking(scores: &[Score]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&scores[a], &scores[b]);
        let combined = b.combined.total_cmp(&a.combined);
        combined.then(b.backward.total_cmp(&a.backward))
    });
    order
}

/// The best chunks of `ranking` within a budget: those are taken in order whose tokens still fit, up to `most`
/// chunks; the first that does not fit ends it, so that a worse chunk never stands in for a better one. `tokens` is
/// asked only for chunks that are looked at.
pub fn within_budget(
    ranking: &[usize],
    tokens: impl Fn(usize) -> usize,
    budget: usize,
    most: Option<usize>,
) -> Vec<usize> {
    let mut left = budget;
    let fits = |&chunk: &usize| {
        let rest = left.checked_sub(tokens(chunk));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let looked_at = ranking.iter().take(most.unwrap_or(usize::MAX));
    looked_at.copied().take_while(fits).collect()
}

/// Chunks that were chosen, given best first, in the order in which a generator reads them: as they stand in
/// their document; the documents by their best chunk. `document_of` gives the document of each chunk; chunks of
/// one document are numbered in text order.
pub fn reading_order(chosen: &[usize], document_of: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut documents: Vec<usize> = Vec::new();
    for &chunk in chosen {
        let document = document_of(chunk);
        if !documents.contains(&document) {
            documents.push(document);
        }
    }
    let place = |chunk: usize| documents.iter().position(|&d| d == document_of(chunk));
    let mut order = chosen.to_vec();
    order.sort_by_key(|&chunk| (place(chunk), chunk));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const FB: Weights = Weights {
        backward: 0.5,
        forward: 0.5,
    };
    const F: Weights = Weights {
        backward: 0.0,
        forward: 1.0,
    };

    fn combined(scores: &[Score]) -> Vec<f64> {
        scores.iter().map(|s| s.combined).collect()
    }

    #[test]
    fn the_best_sample_counts() {
        let question = [4.0, 0.0, 2.0];
        let samples = [vec![0.0, 6.0, 1.0], vec![1.0, 2.0, 8.0]];
        let scores = combine(&question, &samples, FB, Combination::Raw);
        assert_eq!(combined(&scores), [2.5, 3.0, 5.0]);
        assert_eq!(ranking(&scores), [2, 1, 0]);
        let scores = combine(&question, &samples, F, Combination::Raw);
        assert_eq!(combined(&scores), [1.0, 6.0, 8.0]);
        let scores = combine(
            &question,
            &samples,
            Weights {
                backward: 2.0,
                forward: 0.25,
            },
            Combination::Raw,
        );
        assert_eq!(combined(&scores), [8.25, 1.5, 6.0]);
        assert_eq!(ranking(&scores), [0, 2, 1]);
    }

    #[test]
    fn each_text_is_scaled_by_itself() {
        // Raw, the long first sample drowns the second; scaled, both reach 1.
        let question = [1.0, 3.0, 2.0];
        let samples = [vec![10.0, 30.0, 20.0], vec![0.5, 0.0, 0.0]];
        let raw = combine(&question, &samples, F, Combination::Raw);
        assert_eq!(combined(&raw), [10.0, 30.0, 20.0]);
        let scaled = combine(&question, &samples, FB, Combination::Normalised);
        assert_eq!(combined(&scaled), [0.5, 1.0, 0.5]);
        // 0 and 2 tie, and the question prefers 2.
        assert_eq!(ranking(&scaled), [1, 2, 0]);
    }

    #[test]
    fn ties_samples_that_say_nothing_and_none() {
        let question = [1.0, 2.0, 2.0, 0.0];
        for samples in [vec![], vec![vec![0.0; 4]], vec![vec![0.0; 4], vec![]]] {
            for combination in [Combination::Raw, Combination::Normalised] {
                let scores = combine(&question, &samples, F, combination);
                assert_eq!(combined(&scores), [0.0; 4]);
                assert_eq!(ranking(&scores), [1, 2, 0, 3]);
            }
        }
        // A sample that repeats the question scores as the question does, whatever the weights.
        let scores = combine(&question, &[question.to_vec()], FB, Combination::Raw);
        assert_eq!(combined(&scores), [1.0, 2.0, 2.0, 0.0]);
        // Two texts without any difference are scaled to nothing.
        let scores = combine(&[3.0; 3], &[vec![7.0; 3]], FB, Combination::Normalised);
        assert_eq!(combined(&scores), [0.0; 3]);
        assert!(combine(&[], &[vec![]], FB, Combination::Raw).is_empty());
        let odd = combine(
            &[f32::NAN, 1.0],
            &[vec![f32::INFINITY, -1.0]],
            FB,
            Combination::Raw,
        );
        assert_eq!(combined(&odd), [0.0, 0.0]);
        // Cosines may be negative: the largest is still the best.
        let scores = combine(&[0.0], &[vec![-0.5], vec![-0.25]], F, Combination::Raw);
        assert_eq!(combined(&scores), [-0.25]);
    }

    #[test]
    fn budgets_are_kept() {
        let within = |ranking: &[usize], budget, most| {
            within_budget(ranking, |chunk| [10, 20, 30, 40][chunk], budget, most)
        };
        assert_eq!(within(&[3, 0, 1, 2], 75, None), [3, 0, 1]);
        assert_eq!(within(&[3, 0, 1, 2], 70, None), [3, 0, 1]);
        assert_eq!(within(&[3, 0, 1, 2], 69, None), [3, 0]);
        assert!(within(&[3, 0, 1, 2], 39, None).is_empty());
        assert_eq!(within(&[3, 0, 1, 2], 1000, Some(2)), [3, 0]);
        assert!(within(&[3, 0], 1000, Some(0)).is_empty());
        assert!(within(&[], 1000, None).is_empty());
    }

    #[test]
    fn generators_read_in_text_order() {
        // Chunks 0 to 3 are of document 0, 4 to 6 of document 1.
        let document_of = |chunk: usize| usize::from(chunk > 3);
        assert_eq!(reading_order(&[5, 2, 0, 4], document_of), [4, 5, 0, 2]);
        assert_eq!(reading_order(&[2, 5, 0], document_of), [0, 2, 5]);
        assert!(reading_order(&[], document_of).is_empty());
    }
}
