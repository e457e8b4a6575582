//! The subcommands, one file each.

pub mod active;
pub mod ask;
pub mod demo;
pub mod eval;
pub mod index;
pub mod models;
pub mod read;
pub mod search;
