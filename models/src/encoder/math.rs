//! The arithmetic of a transformer between its products, on rows of 32-bit floats: norms, softmax.
//!
//! Loops are written over fixed lanes, so that they compile to vector instructions everywhere, and to wider ones
//! where the processor has them; the result has the same bits either way.

use crate::kernels::lanes::{Instructions, Lanes, by_instructions};
use crate::kernels::math::exp;

/// Sums of a row that are kept apart.
const ABREAST: usize = 16;

/// Adds one row to another.
pub(super) fn add(row: &mut [f32], other: &[f32]) {
    for (value, other) in row.iter_mut().zip(other) {
        *value += other;
    }
}

#[inline(always)]
fn sum(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<ABREAST>();
    let mut lanes = [0.0; ABREAST];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value;
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<ABREAST>();
    let mut lanes = [f32::NEG_INFINITY; ABREAST];
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, f32::max)
}

/// Layer normalisation with its gain and bias.
pub(super) struct LayerNorm {
    pub gain: Vec<f32>,
    pub bias: Vec<f32>,
    pub epsilon: f32,
}

impl LayerNorm {
    /// Normalises every row in place.
    pub fn apply(&self, rows: &mut [f32]) {
        normalise(Instructions::detect(), self, rows);
    }
}

by_instructions! {
    fn normalise(norm: &LayerNorm, rows: &mut [f32]) = normalise_in
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn normalise_in<V: Lanes>(norm: &LayerNorm, rows: &mut [f32]) {
    let size = norm.gain.len();
    for row in rows.chunks_exact_mut(size) {
        let mean = sum(row) / size as f32;
        for value in row.iter_mut() {
            *value -= mean;
        }
        let variance = dot(row, row) / size as f32;
        let scale = 1.0 / (variance + norm.epsilon).sqrt();
        for ((value, gain), bias) in row.iter_mut().zip(&norm.gain).zip(&norm.bias) {
            *value = *value * scale * gain + bias;
        }
    }
}

/// The inner product of two rows.
#[inline(always)]
pub(super) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let (left_chunks, left_rest) = left.as_chunks::<ABREAST>();
    let (right_chunks, right_rest) = right.as_chunks::<ABREAST>();
    let mut lanes = [0.0; ABREAST];
    for (left, right) in left_chunks.iter().zip(right_chunks) {
        for ((lane, left), right) in lanes.iter_mut().zip(left).zip(right) {
            *lane += left * right;
        }
    }
    let rest: f32 = left_rest
        .iter()
        .zip(right_rest)
        .map(|(left, right)| left * right)
        .sum();
    lanes.iter().sum::<f32>() + rest
}

by_instructions! {
    /// Softmax, of the values times `scale`, of the first `columns` values of rows that begin `stride` apart, in place.
    pub(super) fn softmax(rows: &mut [f32], stride: usize, columns: usize, scale: f32) = softmax_in
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn softmax_in<V: Lanes>(rows: &mut [f32], stride: usize, columns: usize, scale: f32) {
    for row in rows.chunks_exact_mut(stride) {
        let row = &mut row[..columns];
        let most = largest(row);
        for value in row.iter_mut() {
            *value = exp((*value - most) * scale);
        }
        let scale = 1.0 / sum(row);
        for value in row.iter_mut() {
            *value *= scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn softmax_sums_to_one(columns in 1usize..40, values in prop::collection::vec(-50.0f32..50.0, 40)) {
            let scale = 0.25;
            let mut row = values.clone();
            let mut plain = values.clone();
            softmax(Instructions::detect(), &mut row, 40, columns, scale);
            softmax(Instructions::Plain, &mut plain, 40, columns, scale);
            prop_assert_eq!(&row, &plain);
            prop_assert_eq!(&row[columns..], &values[columns..]);
            row.truncate(columns);
            prop_assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
            let most = values[..columns].iter().copied().fold(f32::MIN, f32::max);
            let power = |v: &f32| f64::from((v - most) * scale).exp();
            let total: f64 = values[..columns].iter().map(power).sum();
            for (got, value) in row.iter().zip(&values) {
                prop_assert!((f64::from(*got) - power(value) / total).abs() < 1e-6);
            }
        }

        #[test]
        fn norms_have_mean_zero_and_variance_one(values in prop::collection::vec(-9.0f32..9.0, 3..50)) {
            prop_assume!(values.iter().any(|v| (v - values[0]).abs() > 0.1));
            let size = values.len();
            let norm = LayerNorm { gain: vec![1.0; size], bias: vec![0.0; size], epsilon: 1e-12 };
            let mut row = values;
            norm.apply(&mut row);
            prop_assert!((sum(&row) / size as f32).abs() < 1e-4);
            prop_assert!((dot(&row, &row) / size as f32 - 1.0).abs() < 1e-3);
        }
    }
}
