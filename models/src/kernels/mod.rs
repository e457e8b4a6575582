//! Arithmetic on the processor: products of quantised matrices, and elementwise functions.

pub(crate) mod attention;
pub(crate) mod blocks;
pub(crate) mod dense;
pub(crate) mod lanes;
pub(crate) mod math;
pub(crate) mod matrix;
pub(crate) mod product;
