//! The subcommands, one file each.

pub mod ask;
pub mod demo;
pub mod index;
pub mod models;
pub mod search;
