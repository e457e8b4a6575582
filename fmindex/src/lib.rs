//! FM-index over integer symbols: suffix arrays, BWT, rank; corpus-level and per-document; files on disk.

pub mod file;
