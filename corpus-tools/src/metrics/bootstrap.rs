//! Bootstrap over questions (Efron 1979; paired as in Koehn 2004): intervals of a mean, and of the difference of two
//! methods over the same questions.

use serde::{Deserialize, Serialize};

/// Resamples that are drawn.
pub const RESAMPLES: usize = 2000;

/// A mean with its 95 % percentile interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Number of questions.
    pub questions: usize,
}

/// The mean of a difference over paired questions with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Mean, interval and number of pairs.
    #[serde(flatten)]
    pub interval: Interval,
    /// Twice the share of resamples in which the difference vanishes or has the other sign, at most 1.
    pub p: f64,
}

/// The mean of `values` with its interval; `None` without values. The same seed gives the same interval.
pub fn mean(values: &[f64], seed: u64) -> Option<Interval> {
    Some(interval(values, &resampled(values, seed)?))
}

/// The mean of `a − b` over `pairs`; `None` without pairs. Both methods are resampled together.
pub fn difference(pairs: &[(f64, f64)], seed: u64) -> Option<Difference> {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| a - b).collect();
    let means = resampled(&differences, seed)?;
    let share = |count: usize| (count + 1) as f64 / (means.len() + 1) as f64;
    let below = means.iter().filter(|&&mean| mean <= 0.0).count();
    let above = means.iter().filter(|&&mean| mean >= 0.0).count();
    Some(Difference {
        interval: interval(&differences, &means),
        p: (2.0 * share(below.min(above))).min(1.0),
    })
}

fn interval(values: &[f64], means: &[f64]) -> Interval {
    // Positions 2.5 % from both ends of the sorted means.
    let tail = means.len() / 40;
    Interval {
        mean: values.iter().sum::<f64>() / values.len() as f64,
        low: means[tail],
        high: means[means.len() - 1 - tail],
        questions: values.len(),
    }
}

/// The means of the resamples, ascending.
fn resampled(values: &[f64], seed: u64) -> Option<Vec<f64>> {
    if values.is_empty() {
        return None;
    }
    let mut state = seed;
    let count = values.len() as u64;
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let sum: f64 = (0..count)
                .map(|_| {
                    values[((u128::from(next(&mut state)) * u128::from(count)) >> 64) as usize]
                })
                .sum();
            sum / count as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    Some(means)
}

/// SplitMix64 (Steele, Lea and Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_binomial() {
        // 200 questions, 60 % right: the standard error is √(0.6·0.4/200) = 0.0346.
        let values: Vec<f64> = (0..200).map(|i| f64::from(u8::from(i % 5 < 3))).collect();
        let found = mean(&values, 7).unwrap();
        assert_eq!((found.mean, found.questions), (0.6, 200));
        assert!(
            (found.low - (0.6 - 1.96 * 0.0346)).abs() < 0.015,
            "{found:?}"
        );
        assert!(
            (found.high - (0.6 + 1.96 * 0.0346)).abs() < 0.015,
            "{found:?}"
        );
        assert_eq!(mean(&values, 7), mean(&values, 7));
    }

    #[test]
    fn pairing_sees_what_two_intervals_do_not() {
        // The second method is right wherever the first is, and on 8 questions of 200 more.
        let pairs: Vec<(f64, f64)> = (0..200)
            .map(|i| (f64::from(u8::from(i < 108)), f64::from(u8::from(i < 100))))
            .collect();
        let found = difference(&pairs, 1).unwrap();
        assert!((found.interval.mean - 0.04).abs() < 1e-12);
        assert!(found.interval.low > 0.0 && found.p < 0.01, "{found:?}");
        let same: Vec<(f64, f64)> = (0..50).map(|i| (f64::from(i), f64::from(i))).collect();
        assert_eq!(difference(&same, 1).unwrap().p, 1.0);
    }

    #[test]
    fn edges() {
        assert_eq!(mean(&[], 0), None);
        assert_eq!(difference(&[], 0), None);
        let one = mean(&[0.25], 0).unwrap();
        assert_eq!((one.mean, one.low, one.high), (0.25, 0.25, 0.25));
    }
}
