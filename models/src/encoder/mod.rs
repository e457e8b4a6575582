//! Encoders: sentence embeddings, cross-encoders, sparse lexical models.
