//! Metrics of answers and of retrieved texts, each by the definition it is named after.
//!
//! [`text`] holds the normalisations, [`answer`] scores what a model wrote, [`retrieval`] what was
//! retrieved, [`bootstrap`] says how sure a mean or a difference is.

pub mod answer;
pub mod bootstrap;
pub mod retrieval;
pub mod text;
