//! Readers, canonical form, building, opening, verifying and citing, on made-up and on real texts.

mod building;
mod canonical;
mod citing;
mod common;
mod damage;
mod dumps;
mod formats;
mod lexical;
mod maintaining;
mod metrics;
mod questions;
mod readers;
mod resuming;
mod runs;
mod wikitext;
