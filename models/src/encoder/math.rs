//! The arithmetic of a transformer on rows of 32-bit floats: products, norms, non-linearities.
//!
//! Loops are written over fixed lanes, so that they compile to vector instructions everywhere;
//! products go to the `gemm` crate, which chooses its instructions when it runs.

use gemm::Parallelism;

use super::config::Activation;

const LANES: usize = 8;

/// A matrix seen in a slice.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> View<'a> {
    /// Rows of `columns` values that begin `stride` apart.
    pub fn strided(data: &'a [f32], rows: usize, columns: usize, stride: usize) -> View<'a> {
        View {
            data,
            rows,
            columns,
            row_stride: stride,
            column_stride: 1,
        }
    }

    /// Rows of `columns` values, one after the other.
    pub fn rows(data: &'a [f32], columns: usize) -> View<'a> {
        View::strided(data, data.len() / columns, columns, columns)
    }

    /// Rows and columns exchanged.
    pub fn transposed(self) -> View<'a> {
        View {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// Whether every element lies in the slice.
    fn fits(&self) -> bool {
        fits(
            self.data.len(),
            self.rows,
            self.columns,
            self.row_stride,
            self.column_stride,
        )
    }
}

fn fits(
    length: usize,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
) -> bool {
    if rows == 0 || columns == 0 {
        return true;
    }
    let last = (rows - 1)
        .checked_mul(row_stride)
        .zip((columns - 1).checked_mul(column_stride))
        .and_then(|(row, column)| row.checked_add(column));
    last.is_some_and(|last| last < length)
}

/// `output = scale × left × right`, or, with `add`, `output += scale × left × right`. The output's
/// rows begin `stride` apart. One thread: callers run one sequence group a thread.
///
/// # Panics
/// If the shapes do not match or do not fit their slices.
pub(super) fn product(
    output: &mut [f32],
    stride: usize,
    left: View<'_>,
    right: View<'_>,
    scale: f32,
    add: bool,
) {
    let (rows, columns, inner) = (left.rows, right.columns, left.columns);
    assert_eq!(inner, right.rows, "inner sizes of a product");
    assert!(
        left.fits() && right.fits(),
        "a factor reaches out of its slice"
    );
    assert!(
        stride >= columns && fits(output.len(), rows, columns, stride, 1),
        "a product reaches out of its slice"
    );
    if rows == 0 || columns == 0 {
        return;
    }
    // SAFETY: every element that the shapes and strides name was checked to lie inside its slice;
    // the output is borrowed exclusively and its rows do not overlap, since `stride >= columns`.
    // The strides fit `isize`, because each is below the length of a slice or never used.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            output.as_mut_ptr(),
            1,
            stride as isize,
            add,
            left.data.as_ptr(),
            left.column_stride as isize,
            left.row_stride as isize,
            right.data.as_ptr(),
            right.column_stride as isize,
            right.row_stride as isize,
            1.0,
            scale,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// The matrix with rows of `columns` values, its rows and columns exchanged.
pub(super) fn transpose(matrix: &[f32], columns: usize) -> Vec<f32> {
    // Tiles keep both sides in the processor's cache.
    const TILE: usize = 32;
    let rows = matrix.len() / columns;
    let mut transposed = vec![0.0; matrix.len()];
    for top in (0..rows).step_by(TILE) {
        for left in (0..columns).step_by(TILE) {
            for row in top..rows.min(top + TILE) {
                for column in left..columns.min(left + TILE) {
                    transposed[column * rows + row] = matrix[row * columns + column];
                }
            }
        }
    }
    transposed
}

/// Writes `bias` into every row of `output`.
pub(super) fn fill_rows(output: &mut [f32], bias: &[f32]) {
    for row in output.chunks_exact_mut(bias.len()) {
        row.copy_from_slice(bias);
    }
}

/// Adds `bias` to every row of `output`.
pub(super) fn add_rows(output: &mut [f32], bias: &[f32]) {
    for row in output.chunks_exact_mut(bias.len()) {
        add(row, bias);
    }
}

/// Adds one row to another.
pub(super) fn add(row: &mut [f32], other: &[f32]) {
    for (value, other) in row.iter_mut().zip(other) {
        *value += other;
    }
}

fn sum(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value;
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

fn largest(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
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
        let size = self.gain.len();
        for row in rows.chunks_exact_mut(size) {
            let mean = sum(row) / size as f32;
            for value in row.iter_mut() {
                *value -= mean;
            }
            let variance = dot(row, row) / size as f32;
            let scale = 1.0 / (variance + self.epsilon).sqrt();
            for ((value, gain), bias) in row.iter_mut().zip(&self.gain).zip(&self.bias) {
                *value = *value * scale * gain + bias;
            }
        }
    }
}

/// The inner product of two rows.
pub(super) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let (left_chunks, left_rest) = left.as_chunks::<LANES>();
    let (right_chunks, right_rest) = right.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
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

/// Softmax of every row in place.
pub(super) fn softmax(rows: &mut [f32], columns: usize) {
    for row in rows.chunks_exact_mut(columns) {
        let most = largest(row);
        for value in row.iter_mut() {
            *value = exp(*value - most);
        }
        let scale = 1.0 / sum(row);
        for value in row.iter_mut() {
            *value *= scale;
        }
    }
}

/// Applies the non-linearity to every value.
pub(super) fn activate(values: &mut [f32], activation: Activation) {
    match activation {
        Activation::Gelu => values.iter_mut().for_each(|value| *value = gelu(*value)),
        Activation::GeluTanh => values
            .iter_mut()
            .for_each(|value| *value = gelu_tanh(*value)),
        Activation::Relu => values.iter_mut().for_each(|value| *value = value.max(0.0)),
    }
}

/// e^x for x ≤ 88, to about two units in the last place: x = n ln 2 + r with |r| ≤ ln 2 / 2, a
/// polynomial for e^r (Cephes' `expf`), and n put into the exponent. No branch and no call, so
/// that loops over it become vector code.
#[inline(always)]
#[allow(clippy::excessive_precision)]
fn exp(x: f32) -> f32 {
    // Adding this number rounds to an integer, in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Below, the result is as good as 0 and its exponent would not fit.
    let x = if x < -87.0 { -87.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_375 - n * -2.121_944_4e-4;
    let p = 1.987_569_15e-4;
    let p = p * r + 1.398_199_95e-3;
    let p = p * r + 8.333_451_9e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_55e-1;
    let p = p * r + 0.5;
    let e = p * r * r + r + 1.0;
    let exponent = (shifted.to_bits() << 23).wrapping_add(0x3f80_0000);
    e * f32::from_bits(exponent)
}

/// x Φ(x), the error function by formula 7.1.26 of Abramowitz and Stegun: |error| ≤ 1.5e-7.
#[inline(always)]
#[allow(clippy::excessive_precision)]
fn gelu(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let p = 1.061_405_429;
    let p = p * t - 1.453_152_027;
    let p = p * t + 1.421_413_741;
    let p = p * t - 0.284_496_736;
    let p = p * t + 0.254_829_592;
    // 1 - erf(z)
    let tail = p * t * exp(-z * z);
    let positive = if x > 0.0 { x } else { 0.0 };
    positive - 0.5 * x.abs() * tail
}

/// 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), the tanh by the exponential.
#[inline(always)]
#[allow(clippy::excessive_precision)]
fn gelu_tanh(x: f32) -> f32 {
    let inner = 0.797_884_56 * (x + 0.044_715 * x * x * x);
    let shrunk = exp(-2.0 * inner.abs());
    let tanh = (1.0 - shrunk) / (1.0 + shrunk);
    let tanh = if inner < 0.0 { -tanh } else { tanh };
    0.5 * x * (1.0 + tanh)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The error function by its series, in double precision.
    fn erf(x: f64) -> f64 {
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    proptest! {
        #[test]
        fn exp_is_exp(x in -86.0f32..88.0) {
            let expected = f64::from(x).exp();
            prop_assert!(((f64::from(exp(x)) - expected) / expected).abs() < 4e-7);
        }

        #[test]
        fn gelus_are_gelus(x in -5.0f32..5.0) {
            let wide = f64::from(x);
            let expected = 0.5 * wide * (1.0 + erf(wide / std::f64::consts::SQRT_2));
            prop_assert!((f64::from(gelu(x)) - expected).abs() < 2e-6);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide.powi(3));
            let expected = 0.5 * wide * (1.0 + inner.tanh());
            prop_assert!((f64::from(gelu_tanh(x)) - expected).abs() < 2e-6);
        }

        #[test]
        fn products_are_sums(
            rows in 0usize..9, inner in 0usize..9, columns in 0usize..9, gap in 0usize..3,
            seed in prop::collection::vec(-2.0f32..2.0, 200), add in any::<bool>(), transpose in any::<bool>(),
        ) {
            let left_stride = inner + gap;
            let left = View::strided(&seed, rows, inner, left_stride);
            let right = if transpose {
                View::strided(&seed[7..], columns, inner, inner + gap).transposed()
            } else {
                View::strided(&seed[7..], inner, columns, columns + gap)
            };
            let stride = columns + gap;
            let mut output = vec![1.0; rows * stride + 1];
            product(&mut output, stride, left, right, 0.5, add);
            for row in 0..rows {
                for column in 0..stride {
                    let at = row * stride + column;
                    let expected = if column >= columns {
                        1.0
                    } else {
                        let cell = |k: usize| if transpose {
                            seed[7 + column * (inner + gap) + k]
                        } else {
                            seed[7 + k * (columns + gap) + column]
                        };
                        let sum: f32 = (0..inner).map(|k| seed[row * left_stride + k] * cell(k)).sum();
                        0.5 * sum + if add { 1.0 } else { 0.0 }
                    };
                    prop_assert!((output[at] - expected).abs() < 1e-4, "{row},{column}: {} {expected}", output[at]);
                }
            }
        }

        #[test]
        fn softmax_sums_to_one(columns in 1usize..40, values in prop::collection::vec(-50.0f32..50.0, 40)) {
            let mut row = values[..columns].to_vec();
            softmax(&mut row, columns);
            prop_assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
            let most = values[..columns].iter().copied().fold(f32::MIN, f32::max);
            let total: f64 = values[..columns].iter().map(|v| f64::from(v - most).exp()).sum();
            for (got, value) in row.iter().zip(&values) {
                prop_assert!((f64::from(*got) - f64::from(value - most).exp() / total).abs() < 1e-6);
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

    #[test]
    fn transposing_twice_changes_nothing() {
        let matrix: Vec<f32> = (0..70 * 33).map(|at| at as f32).collect();
        let transposed = transpose(&matrix, 33);
        assert_eq!(transposed[70], 1.0);
        assert_eq!(transpose(&transposed, 70), matrix);
    }

    #[test]
    #[should_panic(expected = "reaches out")]
    fn a_product_never_leaves_its_slices() {
        let short = [0.0; 5];
        product(
            &mut [0.0; 9],
            3,
            View::strided(&short, 3, 2, 2),
            View::strided(&[0.0; 6], 2, 3, 3),
            1.0,
            false,
        );
    }
}
