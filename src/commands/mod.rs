//! The subcommands, one file each.

pub mod active;
pub mod ask;
pub mod completions;
pub mod demo;
pub mod eval;
pub mod index;
pub mod man;
pub mod models;
pub mod read;
pub mod search;
