//! A weight matrix in panels of sixteen rows, in the precision of its file.
//!
//! Panels are stored column after column, the sixteen rows of a column side by side, so that each lane of a vector
//! is one output. Quantised weights keep their integers, scales and offsets exactly; 16-bit floats stay 16-bit.

use candle_core::quantized::GgmlDType;
use rayon::prelude::*;

use super::blocks::{Grouping, Row, grouping};
use super::lanes::{LANES, half_to_single};
use super::product::Brain;

/// Columns are a multiple of this.
pub(crate) const STEP: usize = 32;

/// The elements of a matrix, panel after panel.
pub(crate) enum Elements {
    /// Integers from 0 to 15: a byte holds columns 2j (low half) and 2j + 1 of one row.
    Nibbles(Vec<[u8; LANES]>),
    /// Signed bytes.
    Bytes(Vec<[i8; LANES]>),
    /// bfloat16.
    Brain(Vec<Brain>),
    /// IEEE half precision.
    Half(Vec<[u16; LANES]>),
    /// 32-bit floats.
    Single(Vec<[f32; LANES]>),
}

/// Rows by columns; multiplying it by a vector of `columns` gives one of `rows`.
pub(crate) struct Matrix {
    rows: usize,
    columns: usize,
    pub(crate) elements: Elements,
    /// Columns in a group; `columns` for floats.
    pub(crate) group: usize,
    /// A scale per row and group; empty for floats.
    pub(crate) scales: Vec<[f32; LANES]>,
    /// An offset per row and group; empty where there is none.
    pub(crate) offsets: Vec<[f32; LANES]>,
}

impl Matrix {
    /// Makes a matrix of the blocks of `rows` rows. The result is an explanation if the shape or format is not
    /// supported.
    pub(crate) fn from_blocks(
        dtype: GgmlDType,
        rows: usize,
        columns: usize,
        bytes: &[u8],
    ) -> Result<Self, String> {
        if !columns.is_multiple_of(STEP) || columns == 0 || rows == 0 {
            return Err(format!(
                "{rows} rows of {columns} columns; columns must be a multiple of {STEP}"
            ));
        }
        let row_bytes = columns / dtype.block_size() * dtype.type_size();
        if !columns.is_multiple_of(dtype.block_size()) || bytes.len() != rows * row_bytes {
            return Err(format!(
                "{} bytes for {rows} rows of {columns} columns in {dtype:?}",
                bytes.len()
            ));
        }
        let row = |r: usize| &bytes[r * row_bytes..(r + 1) * row_bytes];
        let matrix = |elements, group, scales, offsets| Self {
            rows,
            columns,
            elements,
            group,
            scales,
            offsets,
        };
        match dtype {
            GgmlDType::F32 => {
                let read = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                Ok(matrix(
                    Elements::Single(interleave(rows, columns, row, 4, read)),
                    columns,
                    vec![],
                    vec![],
                ))
            }
            GgmlDType::F16 | GgmlDType::BF16 => {
                let read = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
                let elements = interleave(rows, columns, row, 2, read);
                let elements = if dtype == GgmlDType::F16 {
                    Elements::Half(elements)
                } else {
                    Elements::Brain(elements.into_iter().map(Brain).collect())
                };
                Ok(matrix(elements, columns, vec![], vec![]))
            }
            _ => match grouping(dtype) {
                Some(layout) => Ok(Self::from_groups(dtype, layout, rows, columns, row)),
                None => Err(format!("its format {dtype:?} is not supported")),
            },
        }
    }

    fn from_groups<'b>(
        dtype: GgmlDType,
        layout: Grouping,
        rows: usize,
        columns: usize,
        row: impl Fn(usize) -> &'b [u8] + Sync,
    ) -> Self {
        let panels = rows.div_ceil(LANES);
        let groups = columns / layout.group;
        let mut nibbles = vec![
            [0u8; LANES];
            if layout.nibbles {
                panels * columns / 2
            } else {
                0
            }
        ];
        let mut integers = vec![[0i8; LANES]; if layout.nibbles { 0 } else { panels * columns }];
        let mut scales = vec![[0.0f32; LANES]; panels * groups];
        let mut offsets = vec![[0.0f32; LANES]; if layout.offsets { panels * groups } else { 0 }];
        // One of the two is empty, and so is the other's share of every panel.
        let mut parts: Vec<Panel<'_>> = Vec::with_capacity(panels);
        let (mut n, mut i, mut s, mut o) = (
            &mut nibbles[..],
            &mut integers[..],
            &mut scales[..],
            &mut offsets[..],
        );
        for _ in 0..panels {
            parts.push(Panel {
                nibbles: split(&mut n, if layout.nibbles { columns / 2 } else { 0 }),
                integers: split(&mut i, if layout.nibbles { 0 } else { columns }),
                scales: split(&mut s, groups),
                offsets: split(&mut o, if layout.offsets { groups } else { 0 }),
            });
        }
        parts
            .into_par_iter()
            .enumerate()
            .for_each_init(Row::default, |buffer, (panel, part)| {
                for lane in 0..LANES.min(rows - panel * LANES) {
                    buffer.decode(dtype, row(panel * LANES + lane));
                    for (to, two) in part.nibbles.iter_mut().zip(buffer.integers.chunks_exact(2)) {
                        to[lane] = two[0] as u8 | ((two[1] as u8) << 4);
                    }
                    for (to, &integer) in part.integers.iter_mut().zip(&buffer.integers) {
                        to[lane] = integer;
                    }
                    for (to, &scale) in part.scales.iter_mut().zip(&buffer.scales) {
                        to[lane] = scale;
                    }
                    for (to, &offset) in part.offsets.iter_mut().zip(&buffer.offsets) {
                        to[lane] = offset;
                    }
                }
            });
        let elements = if layout.nibbles {
            Elements::Nibbles(nibbles)
        } else {
            Elements::Bytes(integers)
        };
        Self {
            rows,
            columns,
            elements,
            group: layout.group,
            scales,
            offsets,
        }
    }

    /// Number of rows: the length of a product.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns: the length of what it is multiplied by.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Panels of sixteen rows; the last one is filled up with zeros.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Groups in a row; 1 for floats.
    pub(crate) fn groups(&self) -> usize {
        self.columns / self.group
    }

    /// Writes one row as floats.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        let (panel, lane) = (row / LANES, row % LANES);
        let columns = self.columns;
        for (c, to) in out.iter_mut().enumerate().take(columns) {
            let at = panel * columns + c;
            *to = match &self.elements {
                Elements::Nibbles(v) => {
                    let byte = v[at / 2][lane];
                    f32::from(if c % 2 == 0 { byte & 15 } else { byte >> 4 })
                }
                Elements::Bytes(v) => f32::from(v[at][lane]),
                Elements::Brain(v) => f32::from_bits(u32::from(v[at].0[lane]) << 16),
                Elements::Half(v) => half_to_single(v[at][lane]),
                Elements::Single(v) => v[at][lane],
            };
            if !self.scales.is_empty() {
                let group = panel * self.groups() + c / self.group;
                *to *= self.scales[group][lane];
                if !self.offsets.is_empty() {
                    *to += self.offsets[group][lane];
                }
            }
        }
    }

    /// Bytes of memory it takes.
    pub(crate) fn size(&self) -> usize {
        let elements = match &self.elements {
            Elements::Nibbles(v) => v.len(),
            Elements::Bytes(v) => v.len(),
            Elements::Brain(v) => 2 * v.len(),
            Elements::Half(v) => 2 * v.len(),
            Elements::Single(v) => 4 * v.len(),
        };
        LANES * (elements + 4 * (self.scales.len() + self.offsets.len()))
    }
}

struct Panel<'m> {
    nibbles: &'m mut [[u8; LANES]],
    integers: &'m mut [[i8; LANES]],
    scales: &'m mut [[f32; LANES]],
    offsets: &'m mut [[f32; LANES]],
}

/// Takes the first `length` elements off a slice.
fn split<'m, T>(rest: &mut &'m mut [T], length: usize) -> &'m mut [T] {
    let (first, after) = std::mem::take(rest).split_at_mut(length);
    *rest = after;
    first
}

fn interleave<'b, T: Copy + Default + Send>(
    rows: usize,
    columns: usize,
    row: impl Fn(usize) -> &'b [u8] + Sync,
    width: usize,
    read: impl Fn(&[u8]) -> T + Sync,
) -> Vec<[T; LANES]> {
    let mut out = vec![[T::default(); LANES]; rows.div_ceil(LANES) * columns];
    out.par_chunks_exact_mut(columns)
        .enumerate()
        .for_each(|(panel, to)| {
            for lane in 0..LANES.min(rows - panel * LANES) {
                for (to, bytes) in to
                    .iter_mut()
                    .zip(row(panel * LANES + lane).chunks_exact(width))
                {
                    to[lane] = read(bytes);
                }
            }
        });
    out
}
