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
    let mut panel = first;
    let mut chunks = out.chunks_exact_mut(LANES * ABREAST);
    for part in &mut chunks {
        // SAFETY: the caller's.
        unsafe { some_panels_times_one::<V, ABREAST>(matrix, panel, x, sums, part) };
        panel += ABREAST;
    }
    for part in chunks.into_remainder().chunks_exact_mut(LANES) {
        // SAFETY: the caller's.
        unsafe { some_panels_times_one::<V, 1>(matrix, panel, x, sums, part) };
        panel += 1;
    }
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn some_panels_times_one<V: Lanes, const P: usize>(
    matrix: &Matrix,
    first: usize,
    x: &[f32],
    sums: &[f32],
    out: &mut [f32],
) {
    let (columns, groups, group) = (matrix.columns(), matrix.groups(), matrix.group);
    let panels: [usize; P] = std::array::from_fn(|p| first + p);
    // SAFETY, for all calls of `Lanes` below: the caller's.
    let mut totals = [unsafe { V::zero() }; P];
    for g in 0..groups {
        let x = &x[g * group..(g + 1) * group];
        let mut acc = [unsafe { V::zero() }; P];
        match &matrix.elements {
            Elements::Nibbles(v) => {
                let w: [&[[u8; LANES]]; P] = panels.map(|p| {
                    &v[(p * columns + g * group) / 2..(p * columns + (g + 1) * group) / 2]
                });
                for (j, two) in x.chunks_exact(2).enumerate() {
                    let (a, b) = unsafe { (V::splat(two[0]), V::splat(two[1])) };
                    for p in 0..P {
                        unsafe {
                            let (low, high) = V::from_nibbles(&w[p][j]);
                            acc[p] = high.mul_add(b, low.mul_add(a, acc[p]));
                        }
                    }
                }
            }
            Elements::Bytes(v) => {
                let w: [&[[i8; LANES]]; P] =
                    panels.map(|p| &v[p * columns + g * group..p * columns + (g + 1) * group]);
                unsafe { sum_up(x, &w, &mut acc, |e| V::from_bytes(e)) };
            }
            Elements::Brain(v) => {
                let w: [&[[u16; LANES]]; P] = panels.map(|p| &v[p * columns..(p + 1) * columns]);
                unsafe { sum_up(x, &w, &mut acc, |e| V::from_brain(e)) };
            }
            Elements::Half(v) => {
                let w: [&[[u16; LANES]]; P] = panels.map(|p| &v[p * columns..(p + 1) * columns]);
                unsafe { sum_up(x, &w, &mut acc, |e| V::from_half(e)) };
            }
            Elements::Single(v) => {
                let w: [&[[f32; LANES]]; P] = panels.map(|p| &v[p * columns..(p + 1) * columns]);
                unsafe { sum_up(x, &w, &mut acc, |e| V::load(e)) };
            }
        }
        for p in 0..P {
            unsafe {
                totals[p] = match matrix.scales.get(panels[p] * groups + g) {
                    Some(scale) => V::load(scale).mul_add(acc[p], totals[p]),
                    None => acc[p],
                };
                if let Some(offset) = matrix.offsets.get(panels[p] * groups + g) {
                    totals[p] = V::load(offset).mul_add(V::splat(sums[g]), totals[p]);
                }
            }
        }
    }
    for (to, total) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(totals) {
        unsafe { total.store(to) };
    }
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn sum_up<V: Lanes, E, const P: usize>(
    x: &[f32],
    w: &[&[[E; LANES]]; P],
    acc: &mut [V; P],
    read: impl Fn(&[E; LANES]) -> V,
) {
    let w = w.map(|w| &w[..x.len()]);
    for (j, &value) in x.iter().enumerate() {
        // SAFETY: the caller's.
        let value = unsafe { V::splat(value) };
        for p in 0..P {
            // SAFETY: the caller's.
            acc[p] = unsafe { read(&w[p][j]).mul_add(value, acc[p]) };
        }
    }
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
    let scales = matrix
        .scales
        .get(panel * groups..(panel + 1) * groups)
        .unwrap_or_default();
    let offsets = matrix
        .offsets
        .get(panel * groups..(panel + 1) * groups)
        .unwrap_or_default();
    let scaling = Scaling {
        group: matrix.group,
        scales,
        offsets,
    };
    let mut at = 0;
    let out = out.as_chunks_mut::<LANES>().0;
    while at < out.len() {
        let left = out.len() - at;
        macro_rules! tile {
            ($n:literal) => {{
                let rows: [(&[f32], &[f32]); $n] =
                    std::array::from_fn(|i| (x.row(at + i), sums.row(at + i)));
                // SAFETY: the caller's.
                unsafe { tile::<V, $n>(weights, scaling, rows, &mut out[at..at + $n]) };
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
    // SAFETY, for all blocks here: the caller's.
    match elements {
        Elements::Nibbles(v) => {
            for (to, from) in out
                .chunks_exact_mut(2)
                .zip(&v[range.start / 2..range.end / 2])
            {
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
            .for_each(|(to, e)| unsafe { V::from_bytes(e).store(to) }),
        Elements::Brain(v) => out
            .iter_mut()
            .zip(&v[range])
            .for_each(|(to, e)| unsafe { V::from_brain(e).store(to) }),
        Elements::Half(v) => out
            .iter_mut()
            .zip(&v[range])
            .for_each(|(to, e)| unsafe { V::from_half(e).store(to) }),
        Elements::Single(v) => out.copy_from_slice(&v[range]),
    }
}

/// Scales and offsets of one panel, by group of columns.
#[derive(Clone, Copy)]
struct Scaling<'m> {
    group: usize,
    scales: &'m [[f32; LANES]],
    offsets: &'m [[f32; LANES]],
}

/// One panel times `T` rows, each with the sums of its groups.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn tile<V: Lanes, const T: usize>(
    weights: &[[f32; LANES]],
    scaling: Scaling<'_>,
    rows: [(&[f32], &[f32]); T],
    out: &mut [[f32; LANES]],
) {
    const { assert!(T <= TILE) };
    // SAFETY, for all blocks here: the caller's.
    let mut totals = [[0.0f32; LANES]; T];
    for (g, weights) in weights.chunks_exact(scaling.group).enumerate() {
        let rows_here: [&[f32]; T] =
            rows.map(|(row, _)| &row[g * scaling.group..(g + 1) * scaling.group]);
        let acc = unsafe { dot::<V, T>([V::zero(); T], weights, rows_here) };
        for t in 0..T {
            unsafe {
                let mut total = acc[t];
                if let Some(scale) = scaling.scales.get(g) {
                    total = V::load(scale).mul_add(total, V::load(&totals[t]));
                }
                if let Some(offset) = scaling.offsets.get(g) {
                    total = V::load(offset).mul_add(V::splat(rows[t].1[g]), total);
                }
                total.store(&mut totals[t]);
            }
        }
    }
    out[..T].copy_from_slice(&totals);
}

/// `acc` plus the sums of products along a group of columns.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(super) unsafe fn dot<V: Lanes, const T: usize>(
    mut acc: [V; T],
    weights: &[[f32; LANES]],
    rows: [&[f32]; T],
) -> [V; T] {
    let rows = rows.map(|row| &row[..weights.len()]);
    for (k, w) in weights.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe {
            let w = V::load(w);
            for t in 0..T {
                acc[t] = w.mul_add(V::splat(rows[t][k]), acc[t]);
            }
        }
    }
    acc
}
