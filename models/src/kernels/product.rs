//! Products of matrices in panels with one vector or with many, in one order of summation.
//!
//! For each output the columns of a group are summed one after another, then the group's sum is scaled and added to
//! the total; the offset follows, times the sum of the inputs of the group. A batch unpacks each panel once and uses
//! it for all of its rows. As both ways add in the same order, a row's product does not depend on the batch.

use std::cell::RefCell;

use rayon::prelude::*;

use super::lanes::{Instructions, LANES, Lanes, by_instructions};
use super::matrix::{Elements, Matrix};

/// Rows of the input that share an unpacked panel in registers.
pub(super) const TILE: usize = 6;
/// Panels that one vector is multiplied with at a time, to keep enough sums in flight.
const ABREAST: usize = 4;
/// Multiplications below which a product is not worth a second thread.
const WORTH_A_THREAD: usize = 100_000;
/// Floats of input that stay in the second-level cache while a panel passes over them.
const RESIDENT: usize = 64 * 1024;

/// Rows of equal width, one after another.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'x> {
    /// The values.
    pub(crate) values: &'x [f32],
    /// Values in a row.
    pub(crate) width: usize,
}

impl<'x> Rows<'x> {
    /// Number of rows.
    pub(crate) fn count(self) -> usize {
        self.values.len() / self.width
    }

    fn row(self, i: usize) -> &'x [f32] {
        &self.values[i * self.width..(i + 1) * self.width]
    }
}

/// `outs[m]` = the product of each input row with `matrices[m]`, row after row. All matrices have as many columns
/// as a row of the input.
pub(crate) fn multiply(
    instructions: Instructions,
    matrices: &[&Matrix],
    x: Rows<'_>,
) -> Vec<Vec<f32>> {
    if x.count() == 1 {
        return multiply_one(instructions, matrices, x.values);
    }
    let resident = (RESIDENT / x.width / TILE).max(1) * TILE;
    let mut outs: Vec<Vec<f32>> = matrices
        .iter()
        .map(|m| Vec::with_capacity(m.rows() * x.count()))
        .collect();
    for values in x.values.chunks(resident * x.width) {
        for (out, matrix) in outs.iter_mut().zip(matrices) {
            multiply_some(
                instructions,
                matrix,
                Rows {
                    values,
                    width: x.width,
                },
                out,
            );
        }
    }
    outs
}

/// Appends the products of some rows with one matrix.
fn multiply_some(instructions: Instructions, matrix: &Matrix, x: Rows<'_>, out: &mut Vec<f32>) {
    let count = x.count();
    let mut panels = vec![0.0; matrix.panels() * LANES * count];
    let sums = Sums::of(matrix, x);
    let per_thread = (WORTH_A_THREAD / (matrix.columns() * LANES * count)).max(1);
    panels
        .par_chunks_exact_mut(LANES * count)
        .with_min_len(per_thread)
        .enumerate()
        .for_each(|(panel, out)| {
            UNPACKED.with_borrow_mut(|unpacked| {
                panel_times_rows(instructions, matrix, panel, x, &sums, unpacked, out);
            });
        });
    // From panel after panel to row after row.
    let first = out.len();
    out.resize(first + matrix.rows() * count, 0.0);
    out[first..]
        .par_chunks_exact_mut(matrix.rows())
        .with_min_len(16)
        .enumerate()
        .for_each(|(i, row)| {
            for (to, panel) in row
                .chunks_mut(LANES)
                .zip(panels.chunks_exact(LANES * count))
            {
                to.copy_from_slice(&panel[i * LANES..i * LANES + to.len()]);
            }
        });
}

thread_local! {
    static UNPACKED: RefCell<Vec<[f32; LANES]>> = const { RefCell::new(Vec::new()) };
}

/// Sums of the inputs of each group, which offsets are multiplied by.
struct Sums {
    groups: usize,
    values: Vec<f32>,
}

impl Sums {
    fn of(matrix: &Matrix, x: Rows<'_>) -> Self {
        let groups = if matrix.offsets.is_empty() {
            0
        } else {
            matrix.groups()
        };
        let mut values = Vec::with_capacity(groups * x.count());
        if groups > 0 {
            values.extend(x.values.chunks_exact(matrix.group).map(|group| {
                let mut lanes = [0.0f32; LANES];
                for part in group.chunks_exact(LANES) {
                    for (lane, v) in lanes.iter_mut().zip(part) {
                        *lane += v;
                    }
                }
                lanes.iter().sum::<f32>()
            }));
        }
        Self { groups, values }
    }

    fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.groups..(i + 1) * self.groups]
    }
}

fn multiply_one(instructions: Instructions, matrices: &[&Matrix], x: &[f32]) -> Vec<Vec<f32>> {
    let mut outs: Vec<Vec<f32>> = matrices
        .iter()
        .map(|m| vec![0.0; m.panels() * LANES])
        .collect();
    let rows = Rows {
        values: x,
        width: x.len(),
    };
    let sums: Vec<Sums> = matrices.iter().map(|m| Sums::of(m, rows)).collect();
    let work: usize = matrices
        .iter()
        .map(|m| m.panels() * LANES * m.columns())
        .sum();
    let pieces = (work / WORTH_A_THREAD).clamp(1, 4 * rayon::current_num_threads());
    let panels: usize = matrices.iter().map(|m| m.panels()).sum();
    let share = panels.div_ceil(pieces).next_multiple_of(ABREAST);
    let mut tasks = Vec::with_capacity(pieces + matrices.len());
    for (m, out) in outs.iter_mut().enumerate() {
        tasks.extend(
            out.chunks_mut(share * LANES)
                .enumerate()
                .map(|(i, part)| (m, i * share, part)),
        );
    }
    let run = |(m, first, part): (usize, usize, &mut [f32])| {
        panels_times_one(instructions, matrices[m], first, x, sums[m].row(0), part);
    };
    if pieces == 1 {
        tasks.into_iter().for_each(run);
    } else {
        tasks.into_par_iter().for_each(run);
    }
    for (out, matrix) in outs.iter_mut().zip(matrices) {
        out.truncate(matrix.rows());
    }
    outs
}

by_instructions! {
    /// `out` = panels from `first` on times one vector.
    fn panels_times_one(matrix: &Matrix, first: usize, x: &[f32], sums: &[f32], out: &mut [f32]) = panels_times_one_in
}

by_instructions! {
    /// `out[i]` = one panel times row `i` of the input.
    fn panel_times_rows(
        matrix: &Matrix,
        panel: usize,
        x: Rows<'_>,
        sums: &Sums,
        unpacked: &mut Vec<[f32; LANES]>,
        out: &mut [f32],
    ) = panel_times_rows_in
}

/// How one element of a panel is stored: the weights of sixteen rows in one column, or in two.
trait Stored: Copy {
    /// Columns in an element.
    const COLUMNS: usize;

    /// `acc` plus the products with the inputs of these columns.
    ///
    /// # Safety
    /// As [`Lanes`].
    unsafe fn add_to<V: Lanes>(&self, x: [V; 2], acc: V) -> V;
}

/// Elements of one column.
macro_rules! stored {
    ($element:ty, $read:ident) => {
        impl Stored for $element {
            const COLUMNS: usize = 1;

            #[inline(always)]
            unsafe fn add_to<V: Lanes>(&self, x: [V; 2], acc: V) -> V {
                // SAFETY: the caller's.
                unsafe { V::$read(self).mul_add(x[0], acc) }
            }
        }
    };
}

/// bfloat16, to tell it from half precision.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Brain(pub(crate) [u16; LANES]);

stored!([i8; LANES], from_bytes);
stored!([u16; LANES], from_half);
stored!([f32; LANES], load);

impl Stored for Brain {
    const COLUMNS: usize = 1;

    #[inline(always)]
    unsafe fn add_to<V: Lanes>(&self, x: [V; 2], acc: V) -> V {
        // SAFETY: the caller's.
        unsafe { V::from_brain(&self.0).mul_add(x[0], acc) }
    }
}

impl Stored for [u8; LANES] {
    const COLUMNS: usize = 2;

    #[inline(always)]
    unsafe fn add_to<V: Lanes>(&self, x: [V; 2], acc: V) -> V {
        // SAFETY: the caller's.
        unsafe {
            let (low, high) = V::from_nibbles(self);
            high.mul_add(x[1], low.mul_add(x[0], acc))
        }
    }
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn panels_times_one_in<V: Lanes>(
    matrix: &Matrix,
    first: usize,
    x: &[f32],
    sums: &[f32],
    out: &mut [f32],
) {
    let scaling = Scaling {
        scales: &matrix.scales,
        offsets: &matrix.offsets,
    };
    // SAFETY: the caller's.
    unsafe {
        match (&matrix.elements, matrix.group) {
            (Elements::Nibbles(v), 16) => {
                all_panels::<V, _, 8>(v, scaling, true, first, x, sums, out)
            }
            (Elements::Nibbles(v), _) => {
                all_panels::<V, _, 16>(v, scaling, true, first, x, sums, out)
            }
            (Elements::Bytes(v), 16) => {
                all_panels::<V, _, 16>(v, scaling, true, first, x, sums, out)
            }
            (Elements::Bytes(v), _) => {
                all_panels::<V, _, 32>(v, scaling, true, first, x, sums, out)
            }
            (Elements::Brain(v), _) => {
                all_panels::<V, _, 32>(v, scaling, false, first, x, sums, out)
            }
            (Elements::Half(v), _) => {
                all_panels::<V, _, 32>(v, scaling, false, first, x, sums, out)
            }
            (Elements::Single(v), _) => {
                all_panels::<V, _, 32>(v, scaling, false, first, x, sums, out)
            }
        }
    }
}

/// Scales and offsets by panel and group of columns.
#[derive(Clone, Copy)]
struct Scaling<'m> {
    scales: &'m [[f32; LANES]],
    offsets: &'m [[f32; LANES]],
}

/// Panels of elements in groups of `H` times one vector.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn all_panels<V: Lanes, S: Stored, const H: usize>(
    elements: &[S],
    scaling: Scaling<'_>,
    scaled: bool,
    first: usize,
    x: &[f32],
    sums: &[f32],
    out: &mut [f32],
) {
    let groups = x.len() / (H * S::COLUMNS);
    let elements = elements.as_chunks::<H>().0;
    let mut panel = first;
    let (four, rest) = out.as_chunks_mut::<LANES>().0.as_chunks_mut::<ABREAST>();
    for to in four {
        let weights =
            std::array::from_fn(|p| &elements[(panel + p) * groups..(panel + p + 1) * groups]);
        let totals =
            // SAFETY: the caller's.
            unsafe { some_panels::<V, S, H, ABREAST>(weights, scaling, scaled, panel, x, sums) };
        for (to, total) in to.iter_mut().zip(totals) {
            // SAFETY: the caller's.
            unsafe { total.store(to) };
        }
        panel += ABREAST;
    }
    for to in rest {
        let weights = [&elements[panel * groups..(panel + 1) * groups]];
        let [total] =
            // SAFETY: the caller's.
            unsafe { some_panels::<V, S, H, 1>(weights, scaling, scaled, panel, x, sums) };
        // SAFETY: the caller's.
        unsafe { total.store(to) };
        panel += 1;
    }
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn some_panels<V: Lanes, S: Stored, const H: usize, const P: usize>(
    weights: [&[[S; H]]; P],
    scaling: Scaling<'_>,
    scaled: bool,
    panel: usize,
    x: &[f32],
    sums: &[f32],
) -> [V; P] {
    // SAFETY: the caller's.
    let zero = unsafe { V::zero() };
    let groups = weights[0].len();
    let mut totals = [zero; P];
    for (g, x) in x.chunks_exact(H * S::COLUMNS).enumerate() {
        let here: [&[S; H]; P] = std::array::from_fn(|p| &weights[p][g]);
        let start = if scaled { [zero; P] } else { totals };
        // SAFETY: the caller's.
        let acc = unsafe { one_group::<V, S, H, P>(start, here, x) };
        if !scaled {
            totals = acc;
            continue;
        }
        for p in 0..P {
            let at = (panel + p) * groups + g;
            if let Some(scale) = scaling.scales.get(at) {
                // SAFETY: the caller's.
                totals[p] = unsafe { V::load(scale).mul_add(acc[p], totals[p]) };
            }
            if let (Some(offset), Some(sum)) = (scaling.offsets.get(at), sums.get(g)) {
                // SAFETY: the caller's.
                totals[p] = unsafe { V::load(offset).mul_add(V::splat(*sum), totals[p]) };
            }
        }
    }
    totals
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn one_group<V: Lanes, S: Stored, const H: usize, const P: usize>(
    mut acc: [V; P],
    weights: [&[S; H]; P],
    x: &[f32],
) -> [V; P] {
    let mut inputs = x.chunks_exact(S::COLUMNS);
    #[expect(
        clippy::needless_range_loop,
        reason = "constant bounds are unrolled without checks"
    )]
    for j in 0..H {
        let Some(input) = inputs.next() else { break };
        let second = if S::COLUMNS == 2 { input[1] } else { input[0] };
        // SAFETY: the caller's.
        let pair = unsafe { [V::splat(input[0]), V::splat(second)] };
        for p in 0..P {
            // SAFETY: the caller's.
            acc[p] = unsafe { weights[p][j].add_to(pair, acc[p]) };
        }
    }
    acc
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn panel_times_rows_in<V: Lanes>(
    matrix: &Matrix,
    panel: usize,
    x: Rows<'_>,
    sums: &Sums,
    unpacked: &mut Vec<[f32; LANES]>,
    out: &mut [f32],
) {
    let (columns, groups) = (matrix.columns(), matrix.groups());
    let range = panel * columns..(panel + 1) * columns;
    let weights: &[[f32; LANES]] = if let Elements::Single(v) = &matrix.elements {
        &v[range]
    } else {
        unpacked.clear();
        unpacked.resize(columns, [0.0; LANES]);
        // SAFETY: the caller's.
        unsafe { unpack::<V>(&matrix.elements, range, unpacked) };
        unpacked
    };
    let of_panel = panel * groups..(panel + 1) * groups;
    let scaling = Scaling {
        scales: matrix.scales.get(of_panel.clone()).unwrap_or_default(),
        offsets: matrix.offsets.get(of_panel).unwrap_or_default(),
    };
    let mut at = 0;
    let out = out.as_chunks_mut::<LANES>().0;
    while at < out.len() {
        let left = out.len() - at;
        macro_rules! tile {
            ($n:literal) => {{
                let rows: [&[f32]; $n] = std::array::from_fn(|i| x.row(at + i));
                let sums: [&[f32]; $n] = std::array::from_fn(|i| sums.row(at + i));
                let to = &mut out[at..at + $n];
                // SAFETY: the caller's.
                unsafe {
                    match (matrix.scales.is_empty(), matrix.group) {
                        (true, _) => dot_into::<V, $n>(weights, rows, to),
                        (_, 16) => tile::<V, 16, $n>(weights, scaling, rows, sums, to),
                        _ => tile::<V, 32, $n>(weights, scaling, rows, sums, to),
                    }
                }
                at += $n;
            }};
        }
        match left {
            1 => tile!(1),
            2 => tile!(2),
            3 => tile!(3),
            4 => tile!(4),
            5 => tile!(5),
            _ => tile!(6),
        }
    }
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn unpack<V: Lanes>(
    elements: &Elements,
    range: std::ops::Range<usize>,
    out: &mut [[f32; LANES]],
) {
    match elements {
        Elements::Nibbles(v) => {
            for (to, from) in out
                .as_chunks_mut::<2>()
                .0
                .iter_mut()
                .zip(&v[range.start / 2..range.end / 2])
            {
                // SAFETY: the caller's.
                unsafe {
                    let (low, high) = V::from_nibbles(from);
                    low.store(&mut to[0]);
                    high.store(&mut to[1]);
                }
            }
        }
        Elements::Bytes(v) => out
            .iter_mut()
            .zip(&v[range])
            // SAFETY: the caller's.
            .for_each(|(to, e)| unsafe { V::from_bytes(e).store(to) }),
        Elements::Brain(v) => out
            .iter_mut()
            .zip(&v[range])
            // SAFETY: the caller's.
            .for_each(|(to, e)| unsafe { V::from_brain(&e.0).store(to) }),
        Elements::Half(v) => out
            .iter_mut()
            .zip(&v[range])
            // SAFETY: the caller's.
            .for_each(|(to, e)| unsafe { V::from_half(e).store(to) }),
        Elements::Single(v) => out.copy_from_slice(&v[range]),
    }
}

/// One panel in groups of `G` columns times `T` rows, each with the sums of its groups.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn tile<V: Lanes, const G: usize, const T: usize>(
    weights: &[[f32; LANES]],
    scaling: Scaling<'_>,
    rows: [&[f32]; T],
    sums: [&[f32]; T],
    out: &mut [[f32; LANES]],
) {
    const { assert!(T <= TILE) };
    let mut totals = [[0.0f32; LANES]; T];
    let weights = weights.as_chunks::<G>().0;
    let rows: [&[[f32; G]]; T] = rows.map(|row| row.as_chunks::<G>().0);
    for (g, (weights, scale)) in weights.iter().zip(scaling.scales).enumerate() {
        let here: [&[f32; G]; T] = std::array::from_fn(|t| &rows[t][g]);
        // SAFETY: the caller's.
        let acc = unsafe { dot_group::<V, G, T>([V::zero(); T], weights, here) };
        // SAFETY: the caller's.
        let scale = unsafe { V::load(scale) };
        for t in 0..T {
            // SAFETY: the caller's.
            unsafe {
                let mut total = scale.mul_add(acc[t], V::load(&totals[t]));
                if let (Some(offset), Some(sum)) = (scaling.offsets.get(g), sums[t].get(g)) {
                    total = V::load(offset).mul_add(V::splat(*sum), total);
                }
                total.store(&mut totals[t]);
            }
        }
    }
    out[..T].copy_from_slice(&totals);
}

/// `acc` plus the sums of products along `G` columns.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn dot_group<V: Lanes, const G: usize, const T: usize>(
    mut acc: [V; T],
    weights: &[[f32; LANES]; G],
    rows: [&[f32; G]; T],
) -> [V; T] {
    for k in 0..G {
        // SAFETY: the caller's.
        unsafe {
            let w = V::load(&weights[k]);
            for t in 0..T {
                acc[t] = w.mul_add(V::splat(rows[t][k]), acc[t]);
            }
        }
    }
    acc
}

/// `acc` plus the sums of products along all columns, of which there are a multiple of sixteen.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(super) unsafe fn dot<V: Lanes, const T: usize>(
    mut acc: [V; T],
    weights: &[[f32; LANES]],
    rows: [&[f32]; T],
) -> [V; T] {
    let rows: [&[[f32; 16]]; T] = rows.map(|row| row.as_chunks::<16>().0);
    for (g, weights) in weights.as_chunks::<16>().0.iter().enumerate() {
        let here: [&[f32; 16]; T] = std::array::from_fn(|t| &rows[t][g]);
        // SAFETY: the caller's.
        acc = unsafe { dot_group::<V, 16, T>(acc, weights, here) };
    }
    acc
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn dot_into<V: Lanes, const T: usize>(
    weights: &[[f32; LANES]],
    rows: [&[f32]; T],
    out: &mut [[f32; LANES]],
) {
    // SAFETY: the caller's.
    let acc = unsafe { dot::<V, T>([V::zero(); T], weights, rows) };
    for (to, sum) in out.iter_mut().zip(acc) {
        // SAFETY: the caller's.
        unsafe { sum.store(to) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::{GgmlDType, QTensor};
    use candle_core::{Device, Tensor};

    fn noise(i: usize) -> f32 {
        (i.wrapping_mul(2_654_435_761) >> 7) as u16 as f32 / 32_768.0 - 1.0
    }

    fn matrix(dtype: GgmlDType, rows: usize, columns: usize) -> Matrix {
        let values: Vec<f32> = (0..rows * columns).map(noise).collect();
        let tensor = Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap();
        let blocks = QTensor::quantize(&tensor, dtype).unwrap();
        Matrix::from_blocks(dtype, rows, columns, &blocks.data().unwrap()).unwrap()
    }

    #[test]
    fn products_are_right_in_every_format_and_the_same_in_every_batch() {
        for dtype in [
            GgmlDType::F32,
            GgmlDType::F16,
            GgmlDType::BF16,
            GgmlDType::Q4_0,
            GgmlDType::Q4_1,
            GgmlDType::Q5_0,
            GgmlDType::Q5_1,
            GgmlDType::Q8_0,
            GgmlDType::Q2K,
            GgmlDType::Q3K,
            GgmlDType::Q4K,
            GgmlDType::Q5K,
            GgmlDType::Q6K,
        ] {
            for rows in [1, 16, 83, 130] {
                let columns = 512;
                let matrix = matrix(dtype, rows, columns);
                let x: Vec<f32> = (0..9 * columns).map(|i| noise(i + 77)).collect();
                let all = Rows {
                    values: &x,
                    width: columns,
                };
                let mut row = vec![0.0; columns];
                for instructions in [Instructions::Plain, Instructions::detect()] {
                    let found = multiply(instructions, &[&matrix, &matrix], all);
                    assert_eq!(found[0], found[1]);
                    assert_eq!(found[0].len(), 9 * rows);
                    for r in 0..rows {
                        matrix.row(r, &mut row);
                        for i in 0..9 {
                            let expected: f64 = row
                                .iter()
                                .zip(all.row(i))
                                .map(|(a, b)| f64::from(*a) * f64::from(*b))
                                .sum();
                            let difference = (f64::from(found[0][i * rows + r]) - expected).abs();
                            assert!(difference < 1e-3, "{dtype:?} {rows} {r} {i}: {difference}");
                        }
                    }
                    for (from, count) in [
                        (0, 1),
                        (4, 1),
                        (2, 2),
                        (1, 3),
                        (0, 4),
                        (3, 5),
                        (1, 6),
                        (0, 7),
                    ] {
                        let values = &x[from * columns..(from + count) * columns];
                        let some = multiply(
                            instructions,
                            &[&matrix],
                            Rows {
                                values,
                                width: columns,
                            },
                        );
                        assert_eq!(
                            some[0],
                            found[0][from * rows..(from + count) * rows],
                            "{dtype:?} {from} {count}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn shapes_and_formats_are_refused_with_reasons() {
        assert!(Matrix::from_blocks(GgmlDType::F32, 2, 24, &[0; 192]).is_err());
        assert!(Matrix::from_blocks(GgmlDType::F32, 2, 32, &[0; 255]).is_err());
        assert!(Matrix::from_blocks(GgmlDType::Q4K, 2, 32, &[0; 288]).is_err());
        assert!(Matrix::from_blocks(GgmlDType::Q8K, 1, 256, &[0; 292]).is_err());
    }
}
