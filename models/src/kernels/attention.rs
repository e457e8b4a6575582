//! Attention of a few queries to the pages of a cache, by the same products as the matrices.
//!
//! In a page the keys of sixteen tokens stand side by side, dimension after dimension, so that a lane is a token;
//! values stand with sixteen dimensions side by side, token after token. Masked tokens get probability 0 and add
//! nothing, so that a query's result does not depend on what is computed with it.

use super::lanes::{LANES, Lanes, by_instructions};
use super::math::softmax;
use super::product::{TILE, dot};

/// Tokens in a page.
pub(crate) const PAGE: usize = LANES;
/// Queries that are computed together.
pub(crate) const TOGETHER: usize = TILE;

/// One query: a head's vector, scaled, and the tokens it sees, `from..to`.
#[derive(Clone, Copy)]
pub(crate) struct Query<'q> {
    /// As many values as the head has dimensions.
    pub(crate) values: &'q [f32],
    /// First token it sees.
    pub(crate) from: usize,
    /// One past the last token it sees; more than `from`.
    pub(crate) to: usize,
}

/// Keys and values of one head of one layer, page after page, each of as many vectors as the head has dimensions.
pub(crate) struct Memory<'p> {
    /// `keys[page][dimension][token]`.
    pub(crate) keys: Vec<&'p [[f32; LANES]]>,
    /// `values[page][dimension / 16 · 16 + token][dimension % 16]`.
    pub(crate) values: Vec<&'p [[f32; LANES]]>,
}

by_instructions! {
    /// Writes what each query reads, one after another; at most [`TOGETHER`] of them, and at least one.
    pub(crate) fn attend(memory: &Memory<'_>, queries: &[Query<'_>], scores: &mut Vec<f32>, out: &mut [f32]) = attend_in
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn attend_in<V: Lanes>(
    memory: &Memory<'_>,
    queries: &[Query<'_>],
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    macro_rules! some {
        ($n:literal) => {{
            let queries: [Query<'_>; $n] = std::array::from_fn(|i| queries[i]);
            // SAFETY: the caller's.
            unsafe { attend_some::<V, $n>(memory, queries, scores, out) }
        }};
    }
    match queries.len() {
        0 => {}
        1 => some!(1),
        2 => some!(2),
        3 => some!(3),
        4 => some!(4),
        5 => some!(5),
        _ => some!(6),
    }
}

/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn attend_some<V: Lanes, const T: usize>(
    memory: &Memory<'_>,
    queries: [Query<'_>; T],
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    let first = queries.iter().map(|q| q.from).min().unwrap_or(0) / PAGE;
    let last = queries
        .iter()
        .map(|q| q.to)
        .max()
        .unwrap_or(0)
        .div_ceil(PAGE);
    let width = (last - first) * PAGE;
    scores.clear();
    scores.resize(T * width, 0.0);
    for (page, keys) in memory.keys[first..last].iter().enumerate() {
        // SAFETY: the caller's.
        let found = unsafe { dot::<V, T>([V::zero(); T], keys, queries.map(|q| q.values)) };
        for (t, found) in found.into_iter().enumerate() {
            let at = t * width + page * PAGE;
            if let Some(to) = scores[at..].first_chunk_mut::<LANES>() {
                // SAFETY: the caller's.
                unsafe { found.store(to) };
            }
        }
    }
    for (row, query) in scores.chunks_exact_mut(width).zip(&queries) {
        row[..query.from - first * PAGE].fill(f32::NEG_INFINITY);
        row[query.to - first * PAGE..].fill(f32::NEG_INFINITY);
        softmax(row);
    }
    let head = out.len() / T;
    for block in 0..head / LANES {
        // SAFETY: the caller's.
        let mut acc = [unsafe { V::zero() }; T];
        for (page, values) in memory.values[first..last].iter().enumerate() {
            let weights = &values[block * PAGE..(block + 1) * PAGE];
            let rows: [&[f32]; T] =
                std::array::from_fn(|t| &scores[t * width + page * PAGE..][..PAGE]);
            // SAFETY: the caller's.
            acc = unsafe { dot::<V, T>(acc, weights, rows) };
        }
        for t in 0..T {
            if let Some(to) = out[t * head + block * LANES..].first_chunk_mut::<LANES>() {
                // SAFETY: the caller's.
                unsafe { acc[t].store(to) };
            }
        }
    }
}
