//! Readers, canonical form, building, opening, verifying and citing, on made-up and on real texts.

mod building;
mod canonical;
mod citing;
mod common;
mod damage;
mod lexical;
mod maintaining;
mod metrics;
mod questions;
mod readers;
mod resuming;
mod runs;
