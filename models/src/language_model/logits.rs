//! Logits of the positions that were asked for.

use crate::kernels::math;

/// Which positions of a chunk logits are wanted of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// None: the chunk is only read into the cache.
    None,
    /// The last position; nothing for an empty chunk.
    Last,
    /// All positions, in order.
    All,
    /// These positions of the chunk, counted from 0, in the order given.
    At(&'a [usize]),
}

impl Wanted<'_> {
    /// The positions in a chunk of this length.
    pub(crate) fn positions(&self, length: usize) -> Vec<usize> {
        match self {
            Self::None => Vec::new(),
            Self::Last => length.checked_sub(1).into_iter().collect(),
            Self::All => (0..length).collect(),
            Self::At(positions) => positions.to_vec(),
        }
    }
}

/// Rows of logits, one for each position that was wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Logits {
    pub(crate) width: usize,
    pub(crate) values: Vec<f32>,
}

impl Logits {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.width
    }

    /// Values in a row: the model's [`logit_width`](super::LanguageModel::logit_width).
    pub fn width(&self) -> usize {
        self.width
    }

    /// The logits of the `i`-th position that was wanted.
    ///
    /// # Panics
    /// There is no such row.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.width..(i + 1) * self.width]
    }

    /// As [`Logits::row`], to be masked in place.
    ///
    /// # Panics
    /// There is no such row.
    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        &mut self.values[i * self.width..(i + 1) * self.width]
    }

    /// All rows as one vector, row after row.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }
}

/// ln Σ exp(logit): what is taken from a logit to make it a log-probability. −∞ for an empty or fully masked row.
pub fn log_normaliser(logits: &[f32]) -> f32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if largest == f32::NEG_INFINITY {
        return largest;
    }
    let mut sums = [0.0f32; 16];
    let chunks = logits.chunks_exact(16);
    for (sum, l) in sums.iter_mut().zip(chunks.remainder()) {
        *sum += math::exp(l - largest);
    }
    for chunk in chunks {
        for (sum, l) in sums.iter_mut().zip(chunk) {
            *sum += math::exp(l - largest);
        }
    }
    largest + (sums.iter().map(|&s| f64::from(s)).sum::<f64>().ln() as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normaliser_is_the_logarithm_of_the_sum() {
        let logits: Vec<f32> = (0..1003).map(|i| (i % 37) as f32 * 0.3 - 4.0).collect();
        let expected = logits.iter().map(|&l| f64::from(l).exp()).sum::<f64>().ln();
        assert!((f64::from(log_normaliser(&logits)) - expected).abs() < 1e-5);
        assert_eq!(
            log_normaliser(&[f32::NEG_INFINITY, 3.5, f32::NEG_INFINITY]),
            3.5
        );
        assert_eq!(log_normaliser(&[]), f32::NEG_INFINITY);
        assert_eq!(log_normaliser(&[f32::NEG_INFINITY; 3]), f32::NEG_INFINITY);
    }

    #[test]
    fn wanted_positions() {
        assert_eq!(Wanted::Last.positions(0), Vec::<usize>::new());
        assert_eq!(Wanted::Last.positions(4), [3]);
        assert_eq!(Wanted::All.positions(3), [0, 1, 2]);
        assert_eq!(Wanted::At(&[2, 0]).positions(3), [2, 0]);
        assert!(Wanted::None.positions(9).is_empty());
    }
}
