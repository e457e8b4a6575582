//! Weighted reciprocal rank fusion (Cormack et al. 2009, with weights), `s(d) = Σ_r w_r / (k + rank_r(d))`.

use std::collections::HashMap;
use std::hash::Hash;

/// Fuses rankings given as `(weight, documents best first)`, ranks from 1.
///
/// Returns `(document, score)` by falling score; equal scores keep the order of the last ranking,
/// documents that it lacks coming after in the order of the rankings before it. A document that stands
/// twice in one ranking counts with its better rank.
///
/// ```
/// let fused = decoder::fusion::reciprocal_rank(0.0, &[(1.0, vec!['a', 'b']), (2.0, vec!['c', 'a'])]);
/// // a: 1/1 + 2/2 = 2, c: 2/1 = 2 and stands before a in the last ranking.
/// assert_eq!(fused, [('c', 2.0), ('a', 2.0), ('b', 0.5)]);
/// ```
pub fn reciprocal_rank<D: Copy + Eq + Hash>(k: f64, rankings: &[(f64, Vec<D>)]) -> Vec<(D, f64)> {
    let mut scores: HashMap<D, f64> = HashMap::new();
    let mut order: Vec<D> = Vec::new();
    // Later rankings come first in `order`, so that a stable sort settles ties by them.
    for (weight, ranking) in rankings.iter().rev() {
        let mut seen = std::collections::HashSet::new();
        let mut rank = 0;
        for &document in ranking {
            rank += 1;
            if !seen.insert(document) {
                continue;
            }
            let score = scores.entry(document).or_insert_with(|| {
                order.push(document);
                0.0
            });
            *score += weight / (k + f64::from(rank));
        }
    }
    let mut fused: Vec<(D, f64)> = order
        .into_iter()
        .map(|document| (document, scores[&document]))
        .collect();
    fused.sort_by(|a, b| b.1.total_cmp(&a.1));
    fused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_and_ranks_as_defined() {
        let fused = reciprocal_rank(60.0, &[(1.0, vec![1, 2, 3]), (2.0, vec![3, 1])]);
        let expected = [
            (1, 1.0 / 61.0 + 2.0 / 62.0),
            (3, 1.0 / 63.0 + 2.0 / 61.0),
            (2, 1.0 / 62.0),
        ];
        for (document, score) in expected {
            let found = fused
                .iter()
                .find(|(other, _)| *other == document)
                .unwrap()
                .1;
            assert!(
                (found - score).abs() < 1e-12,
                "document {document}: {found} instead of {score}"
            );
        }
        let order: Vec<i32> = fused.iter().map(|(document, _)| *document).collect();
        assert_eq!(order, [3, 1, 2]);
    }

    #[test]
    fn empty_and_repeated_entries() {
        assert!(reciprocal_rank::<u32>(0.0, &[]).is_empty());
        assert!(reciprocal_rank::<u32>(0.0, &[(1.0, vec![])]).is_empty());
        assert_eq!(
            reciprocal_rank(0.0, &[(1.0, vec![7, 7, 8])]),
            [(7, 1.0), (8, 1.0 / 3.0)]
        );
    }
}
