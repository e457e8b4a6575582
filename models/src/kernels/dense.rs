//! Products of rows with a matrix of 32-bit floats in panels, with what follows a product done where its sums are.
//!
//! As in [`super::product`], a lane is one output and every output is summed up along the columns in one order, so a
//! row's result does not depend on the rows beside it. Here many rows are the rule: a block of a panel stays in the
//! first-level cache while all rows pass over it, and no result is copied into another order.

use std::cell::RefCell;
use std::ops::Range;

use super::lanes::{Instructions, LANES, Lanes, by_instructions};
use super::math::exp;

/// Rows that are multiplied together: their sums fill the registers.
const TILE: usize = 6;
/// Columns between two looks at the end.
const UNROLLED: usize = 4;
/// Columns of a panel that are multiplied at a time: 24 KiB of weights.
const BLOCK: usize = 384;
/// Floats of output, a row's times the rows, that stay in the second-level cache from one block to the next.
const RESIDENT: usize = 96 * 1024;

/// A matrix that rows are multiplied by: sixteen outputs side by side, column after column, panel after panel.
#[derive(Debug, Default)]
pub(crate) struct Panels {
    columns: usize,
    outputs: usize,
    values: Vec<[f32; LANES]>,
    /// What each output begins with, filled up with zeros.
    bias: Vec<[f32; LANES]>,
}

impl Panels {
    /// Packs a matrix that has a row for each output, and its bias.
    pub(crate) fn new(weight: &[f32], bias: &[f32], columns: usize) -> Self {
        let mut panels = Self::default();
        panels.pack_rows(weight, bias.len(), columns, columns);
        for (to, from) in panels.bias.iter_mut().zip(bias.chunks(LANES)) {
            to[..from.len()].copy_from_slice(from);
        }
        panels
    }

    /// Numbers that a product gives for each row.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Makes this the matrix whose outputs are `outputs` rows of `columns` values that begin `stride` apart.
    pub(crate) fn pack_rows(
        &mut self,
        rows: &[f32],
        outputs: usize,
        columns: usize,
        stride: usize,
    ) {
        self.shape(columns, outputs);
        for output in 0..outputs {
            let row = &rows[output * stride..][..columns];
            let panel = &mut self.values[output / LANES * columns..][..columns];
            for (to, &from) in panel.iter_mut().zip(row) {
                to[output % LANES] = from;
            }
        }
    }

    /// Makes this the matrix whose columns are `columns` rows of `outputs` values that begin `stride` apart.
    pub(crate) fn pack_columns(
        &mut self,
        rows: &[f32],
        columns: usize,
        outputs: usize,
        stride: usize,
    ) {
        self.shape(columns, outputs);
        for column in 0..columns {
            let row = &rows[column * stride..][..outputs];
            for (panel, from) in row.chunks(LANES).enumerate() {
                self.values[panel * columns + column][..from.len()].copy_from_slice(from);
            }
        }
    }

    /// Adds outputs that are 0 up to a whole panel, so that no result needs cutting.
    pub(crate) fn fill_up(&mut self) {
        self.outputs = self.outputs.next_multiple_of(LANES);
    }

    fn shape(&mut self, columns: usize, outputs: usize) {
        (self.columns, self.outputs) = (columns, outputs);
        let panels = outputs.div_ceil(LANES);
        self.values.clear();
        self.values.resize(panels * columns, [0.0; LANES]);
        self.bias.clear();
        self.bias.resize(panels, [0.0; LANES]);
    }
}

/// What is done with a product and its bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is the result.
    Store,
    /// It is added to what stands in the output.
    Add,
    /// x Φ(x), by the error function.
    Gelu,
    /// x Φ(x), by the hyperbolic tangent.
    GeluTanh,
    /// max(x, 0).
    Relu,
}

/// Rows in a slice that begin `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'x> {
    /// From the first value of the first row on.
    pub(crate) values: &'x [f32],
    /// Number of rows.
    pub(crate) count: usize,
    /// Values from one row's begin to the next.
    pub(crate) stride: usize,
}

impl<'x> Strided<'x> {
    /// Rows of `width` values, one after another.
    pub(crate) fn of(values: &'x [f32], width: usize) -> Self {
        Self {
            values,
            count: values.len() / width,
            stride: width,
        }
    }
}

/// Multiplies all rows by the matrix. Rows of the output begin `stride` apart; what stands between them stays.
///
/// # Panics
/// If a row of the input or of the output reaches out of its slice.
pub(crate) fn multiply(
    instructions: Instructions,
    panels: &Panels,
    rows: Strided<'_>,
    then: Then,
    output: &mut [f32],
    stride: usize,
) {
    let some = (RESIDENT / panels.outputs.max(1) / TILE).max(1) * TILE;
    for first in (0..rows.count).step_by(some) {
        let some = Strided {
            values: &rows.values[first * rows.stride..],
            count: some.min(rows.count - first),
            stride: rows.stride,
        };
        let output = &mut output[first * stride..];
        TILES.with_borrow_mut(|tiles| {
            multiply_some(instructions, panels, some, then, output, stride, tiles);
        });
    }
}

thread_local! {
    static TILES: RefCell<Vec<[f32; TILE]>> = const { RefCell::new(Vec::new()) };
}

by_instructions! {
    fn multiply_some(
        panels: &Panels,
        rows: Strided<'_>,
        then: Then,
        output: &mut [f32],
        stride: usize,
        tiles: &mut Vec<[f32; TILE]>,
    ) = multiply_some_in
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn multiply_some_in<V: Lanes>(
    panels: &Panels,
    rows: Strided<'_>,
    then: Then,
    output: &mut [f32],
    stride: usize,
    tiles: &mut Vec<[f32; TILE]>,
) {
    let columns = panels.columns;
    for from in (0..columns).step_by(BLOCK) {
        let to = columns.min(from + BLOCK);
        let start = match (from, then) {
            (0, Then::Add) => Start::BiasAndOutput,
            (0, _) => Start::Bias,
            _ => Start::Output,
        };
        let then = if to == columns { then } else { Then::Store };
        turn(rows, from..to, tiles);
        for (panel, bias) in panels.bias.iter().enumerate() {
            let weights = &panels.values[panel * columns..][from..to];
            let width = LANES.min(panels.outputs - panel * LANES);
            for (tile, inputs) in tiles.chunks_exact(to - from).enumerate() {
                let first = tile * TILE;
                let count = TILE.min(rows.count - first);
                let output = &mut output[first * stride + panel * LANES..];
                // SAFETY: the caller's.
                unsafe {
                    if count == TILE && width == LANES {
                        multiply_tile::<V>(weights, bias, start, inputs, then, output, stride);
                    } else {
                        // A tile that is not whole goes through one that is.
                        let mut whole = [[0.0; LANES]; TILE];
                        for (row, to) in output.chunks(stride).zip(&mut whole[..count]) {
                            to[..width].copy_from_slice(&row[..width]);
                        }
                        let place = whole.as_flattened_mut();
                        multiply_tile::<V>(weights, bias, start, inputs, then, place, LANES);
                        for (row, from) in output.chunks_mut(stride).zip(&whole[..count]) {
                            row[..width].copy_from_slice(&from[..width]);
                        }
                    }
                }
            }
        }
    }
}

/// Turns some columns of the rows round: tile after tile, column after column, the rows of a tile side by side. The
/// last tile is filled up with zeros.
#[inline(always)]
fn turn(rows: Strided<'_>, columns: Range<usize>, tiles: &mut Vec<[f32; TILE]>) {
    let width = columns.len();
    tiles.clear();
    tiles.resize(rows.count.div_ceil(TILE) * width, [0.0; TILE]);
    for (t, tile) in tiles.chunks_exact_mut(width).enumerate() {
        let count = TILE.min(rows.count - t * TILE);
        let row = |i: usize| &rows.values[(t * TILE + i) * rows.stride..][columns.clone()];
        if count == TILE {
            let rows: [&[f32]; TILE] = std::array::from_fn(row);
            for (column, to) in tile.iter_mut().enumerate() {
                *to = std::array::from_fn(|i| rows[i][column]);
            }
        } else {
            for i in 0..count {
                for (to, &value) in tile.iter_mut().zip(row(i)) {
                    to[i] = value;
                }
            }
        }
    }
}

/// What the sums of a block begin with.
#[derive(Clone, Copy)]
enum Start {
    Bias,
    BiasAndOutput,
    Output,
}

/// The rows of a tile times the columns of one panel in a block; rows of the output begin `stride` apart.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn multiply_tile<V: Lanes>(
    weights: &[[f32; LANES]],
    bias: &[f32; LANES],
    start: Start,
    inputs: &[[f32; TILE]],
    then: Then,
    output: &mut [f32],
    stride: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut sums = [V::load(bias); TILE];
        if !matches!(start, Start::Bias) {
            for (t, sum) in sums.iter_mut().enumerate() {
                let there = V::load(place(output, t * stride));
                *sum = match start {
                    Start::BiasAndOutput => V::splat(1.0).mul_add(there, *sum),
                    _ => there,
                };
            }
        }
        let (weights, weights_rest) = weights.as_chunks::<UNROLLED>();
        let (inputs, inputs_rest) = inputs.as_chunks::<UNROLLED>();
        for (weights, inputs) in weights.iter().zip(inputs) {
            for (weights, inputs) in weights.iter().zip(inputs) {
                sums = add_column(sums, weights, inputs);
            }
        }
        for (weights, inputs) in weights_rest.iter().zip(inputs_rest) {
            sums = add_column(sums, weights, inputs);
        }
        for (t, sum) in sums.into_iter().enumerate() {
            let to = place(output, t * stride);
            sum.store(to);
            match then {
                Then::Store | Then::Add => {}
                Then::Gelu => to.iter_mut().for_each(|value| *value = gelu(*value)),
                Then::GeluTanh => to.iter_mut().for_each(|value| *value = gelu_tanh(*value)),
                Then::Relu => to.iter_mut().for_each(|value| *value = value.max(0.0)),
            }
        }
    }
}

/// The sums with the products of one column.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn add_column<V: Lanes>(
    mut sums: [V; TILE],
    weights: &[f32; LANES],
    inputs: &[f32; TILE],
) -> [V; TILE] {
    // SAFETY: the caller's.
    unsafe {
        let weights = V::load(weights);
        for t in 0..TILE {
            sums[t] = weights.mul_add(V::splat(inputs[t]), sums[t]);
        }
    }
    sums
}

/// The sixteen values from `at` on.
#[inline(always)]
fn place(values: &mut [f32], at: usize) -> &mut [f32; LANES] {
    &mut values[at..at + LANES].as_chunks_mut::<LANES>().0[0]
}

/// x Φ(x) = x (1 + erf(x / √2)) / 2, the error function as Eigen's rational approximation within ±4: |error| ≤ 2e-7
/// times |x|. No branch and no call, so that loops over it become vector code.
#[inline(always)]
#[allow(clippy::excessive_precision)]
fn gelu(x: f32) -> f32 {
    let z = (x * std::f32::consts::FRAC_1_SQRT_2).clamp(-4.0, 4.0);
    let s = z * z;
    let p = -2.726_142_258_013_06e-10;
    let p = p * s + 2.770_681_424_959_02e-8;
    let p = p * s - 2.101_024_020_825_08e-6;
    let p = p * s - 5.692_506_394_623_46e-5;
    let p = p * s - 7.349_906_303_268_55e-4;
    let p = p * s - 2.954_599_808_540_25e-3;
    let p = p * s - 1.609_603_332_624_15e-2;
    let q = -1.456_607_184_649_96e-5;
    let q = q * s - 2.133_740_552_789_05e-4;
    let q = q * s - 1.682_826_974_382_03e-3;
    let q = q * s - 7.373_329_167_204_68e-3;
    let q = q * s - 1.426_473_905_141_89e-2;
    let half = 0.5 * x;
    half + half * (z * p / q)
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
        fn gelus_are_gelus(x in -5.0f32..5.0) {
            let wide = f64::from(x);
            let expected = 0.5 * wide * (1.0 + erf(wide / std::f64::consts::SQRT_2));
            prop_assert!((f64::from(gelu(x)) - expected).abs() < 2e-6);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide.powi(3));
            let expected = 0.5 * wide * (1.0 + inner.tanh());
            prop_assert!((f64::from(gelu_tanh(x)) - expected).abs() < 2e-6);
        }

        #[test]
        fn products_are_sums_whatever_stands_beside_a_row(
            count in 1usize..15, columns in 1usize..300, outputs in 1usize..40, gap in 0usize..3,
            seed in prop::collection::vec(-2.0f32..2.0, 997), which in 0usize..5,
        ) {
            let then = [Then::Store, Then::Add, Then::Gelu, Then::GeluTanh, Then::Relu][which];
            let number = |at: usize| seed[at % 997];
            let weight: Vec<f32> = (0..outputs * columns).map(|at| number(at * 7 + 3)).collect();
            let bias: Vec<f32> = (0..outputs).map(|at| number(at * 5)).collect();
            let stride = columns + gap;
            let x: Vec<f32> = (0..count * stride).map(number).collect();
            let panels = Panels::new(&weight, &bias, columns);
            let width = outputs + gap;
            let run = |instructions, first: usize, count: usize| {
                let rows = Strided { values: &x[first * stride..], count, stride };
                let mut output = vec![0.5; count * width];
                multiply(instructions, &panels, rows, then, &mut output, width);
                output
            };
            let all = run(Instructions::detect(), 0, count);
            for (row, found) in all.chunks_exact(width).enumerate() {
                prop_assert_eq!(&run(Instructions::detect(), row, 1), found);
                for (output, &found) in found.iter().enumerate() {
                    if output >= outputs {
                        prop_assert_eq!(found, 0.5);
                        continue;
                    }
                    let sum: f64 = (0..columns)
                        .map(|k| f64::from(weight[output * columns + k]) * f64::from(x[row * stride + k]))
                        .sum::<f64>() + f64::from(bias[output]);
                    let expected = match then {
                        Then::Store => sum,
                        Then::Add => sum + 0.5,
                        Then::Gelu => f64::from(gelu(sum as f32)),
                        Then::GeluTanh => f64::from(gelu_tanh(sum as f32)),
                        Then::Relu => sum.max(0.0),
                    };
                    prop_assert!((f64::from(found) - expected).abs() < 1e-3, "{row},{output}: {found} {expected}");
                }
            }
            for (found, plain) in all.iter().zip(run(Instructions::Plain, 0, count)) {
                prop_assert!((found - plain).abs() < 1e-3);
            }
        }

        #[test]
        fn columns_are_packed_as_their_turned_rows(
            columns in 1usize..40, outputs in 1usize..40, seed in prop::collection::vec(-2.0f32..2.0, 1600),
        ) {
            let turned: Vec<f32> = (0..outputs * columns)
                .map(|at| seed[at % columns * outputs + at / columns])
                .collect();
            let (mut by_rows, mut by_columns) = (Panels::default(), Panels::default());
            by_rows.pack_rows(&turned, outputs, columns, columns);
            by_columns.pack_columns(&seed, columns, outputs, outputs);
            prop_assert_eq!(&by_rows.values, &by_columns.values);
            by_columns.fill_up();
            prop_assert_eq!(by_columns.outputs(), outputs.div_ceil(LANES) * LANES);
        }
    }

    #[test]
    #[should_panic(expected = "range")]
    fn a_product_never_leaves_its_slices() {
        let panels = Panels::new(&[1.0; 8], &[0.0; 2], 4);
        let rows = Strided {
            values: &[0.0; 11],
            count: 3,
            stride: 4,
        };
        multiply(
            Instructions::detect(),
            &panels,
            rows,
            Then::Store,
            &mut [0.0; 6],
            2,
        );
    }
}
