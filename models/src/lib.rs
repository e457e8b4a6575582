//! Language models, encoders, tokenizers, and the fetching of models.
