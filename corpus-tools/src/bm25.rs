//! BM25 (Robertson and Zaragoza 2009): its formula, and ranking a handful of texts in memory.
//!
//! `idf(t) · tf · (k1 + 1) / (tf + k1 · (1 − b + b · length / average length))`, summed over the
//! question's terms as often as they stand in it, with `idf = ln(1 + (N − df + ½) / (df + ½))`.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::analysis::Analyser;

/// The two parameters of BM25.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Parameters {
    /// Saturation of the term frequency.
    pub k1: f32,
    /// How much length counts, 0 to 1.
    pub b: f32,
}

impl Default for Parameters {
    /// `k1` 0.9, `b` 0.4: what passage retrieval is usually compared with.
    fn default() -> Self {
        Self { k1: 0.9, b: 0.4 }
    }
}

impl Parameters {
    /// The factor of one term in a text: everything of the formula but `idf`.
    #[inline]
    pub fn frequency_factor(&self, frequency: f32, length: f32, average_length: f32) -> f32 {
        let relative = if average_length > 0.0 {
            length / average_length
        } else {
            1.0
        };
        frequency * (self.k1 + 1.0) / (frequency + self.k1 * (1.0 - self.b + self.b * relative))
    }
}

/// Inverse document frequency of a term that stands in `containing` of `documents` documents.
pub fn idf(containing: u64, documents: u64) -> f32 {
    let (containing, documents) = (containing as f64, documents.max(containing) as f64);
    ((documents - containing + 0.5) / (containing + 0.5)).ln_1p() as f32
}

/// The terms of a question, each once, in order of their first place, with their number.
pub(crate) fn query_terms(analyser: &Analyser, query: &str) -> Vec<(String, u32)> {
    let mut terms: Vec<(String, u32)> = Vec::new();
    let mut places = HashMap::new();
    analyser.visit(query, |term, _| {
        let place = *places.entry(term.to_owned()).or_insert_with(|| {
            terms.push((term.to_owned(), 0));
            terms.len() - 1
        });
        terms[place].1 += 1;
    });
    terms
}

/// The score of each of `texts` for `query`. `idf_of` gives a term's weight; average length is
/// taken over `texts`.
pub fn scores_with(
    analyser: &Analyser,
    parameters: Parameters,
    query: &str,
    texts: &[&str],
    mut idf_of: impl FnMut(&str) -> f32,
) -> Vec<f32> {
    let terms = query_terms(analyser, query);
    let places = terms.iter().zip(0..).map(|((term, _), at)| (&**term, at));
    let counted = count(analyser, &places.collect(), texts);
    let weights: Vec<(usize, f32)> = terms
        .iter()
        .enumerate()
        .map(|(at, (term, times))| (at, idf_of(term) * *times as f32))
        .collect();
    combine(parameters, &weights, &counted)
}

/// The score of each of `texts` for each of `queries`, with document frequencies over `texts` themselves and
/// default parameters: a row a query. The texts are read once.
pub fn scores(analyser: &Analyser, queries: &[&str], texts: &[&str]) -> Vec<Vec<f32>> {
    let queries: Vec<Vec<(String, u32)>> = queries
        .iter()
        .map(|query| query_terms(analyser, query))
        .collect();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (term, _) in queries.iter().flatten() {
        let next = places.len();
        places.entry(term).or_insert(next);
    }
    let counted = count(analyser, &places, texts);
    let weight = |(term, times): &(String, u32)| {
        let at = places[term.as_str()];
        let containing = counted.iter().filter(|text| text.frequencies[at] > 0);
        let idf = idf(containing.count() as u64, texts.len() as u64);
        (at, idf * *times as f32)
    };
    queries
        .iter()
        .map(|terms| {
            let weights: Vec<(usize, f32)> = terms.iter().map(weight).collect();
            combine(Parameters::default(), &weights, &counted)
        })
        .collect()
}

/// `texts` by their score for `query`, the best first, equal ones in their order: pairs of index and
/// score. Texts without any term of the query come last with score 0.
///
/// ```
/// use corpus_tools::bm25;
/// let ranked = bm25::rank("a red fox", &["the blue whale", "red foxes", "a fox"]);
/// assert_eq!(ranked[0].0, 1);
/// ```
pub fn rank(query: &str, texts: &[&str]) -> Vec<(usize, f32)> {
    let scores = scores(&Analyser::default(), &[query], texts);
    let mut ranked: Vec<_> = scores.into_iter().flatten().enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked
}

struct Counted {
    length: u32,
    frequencies: Vec<u32>,
}

/// Reads each of `texts`; `places` says where the frequency of a term is counted, without a gap.
fn count(analyser: &Analyser, places: &HashMap<&str, usize>, texts: &[&str]) -> Vec<Counted> {
    let count = |text: &&str| {
        let mut counted = Counted {
            length: 0,
            frequencies: vec![0; places.len()],
        };
        analyser.visit(text, |term, _| {
            counted.length += 1;
            if let Some(&at) = places.get(term) {
                counted.frequencies[at] += 1;
            }
        });
        counted
    };
    texts.par_iter().map(count).collect()
}

/// The sums over `weights`, pairs of a term's place and its weight.
fn combine(parameters: Parameters, weights: &[(usize, f32)], counted: &[Counted]) -> Vec<f32> {
    let total: u64 = counted.iter().map(|text| u64::from(text.length)).sum();
    let average = total as f32 / counted.len().max(1) as f32;
    counted
        .iter()
        .map(|text| {
            let factor =
                |tf: u32| parameters.frequency_factor(tf as f32, text.length as f32, average);
            weights
                .iter()
                .map(|&(at, weight)| (text.frequencies[at], weight))
                .filter(|&(tf, _)| tf > 0)
                .map(|(tf, weight)| weight * factor(tf))
                .sum()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_by_hand() {
        // N = 3, df(fox) = 2, lengths 2, 1, 3, average 2.
        let analyser = Analyser::default();
        let texts = ["fox fox", "fox", "red red whale"];
        let queries = ["red", "fox", "whale fox red fox"];
        let all = scores(&analyser, &queries, &texts);
        let got = &all[1];
        let idf = (1.0f32 + (3.0 - 2.0 + 0.5) / 2.5).ln();
        let first = idf * 2.0 * 1.9 / (2.0 + 0.9);
        let second = idf * 1.9 / (1.0 + 0.9 * (0.6 + 0.4 * 0.5));
        for (got, want) in got.iter().zip([first, second, 0.0]) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        // Several queries at once are scored as each alone.
        assert_eq!(all[2], scores(&analyser, &queries[2..], &texts)[0]);
        assert!(scores(&analyser, &[], &texts).is_empty());
    }

    #[test]
    fn edges() {
        assert!(rank("anything", &[]).is_empty());
        assert_eq!(rank("", &["a", "b"]), [(0, 0.0), (1, 0.0)]);
        assert_eq!(rank("x", &["", ""]), [(0, 0.0), (1, 0.0)]);
        assert_eq!(rank("東京都", &["大阪", "東京"])[0].0, 1);
    }
}
