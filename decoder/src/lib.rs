//! Constraints, stages, windows, scoring: from a question to an answer with cited evidence.
