//! The methods that can be run, by the names that a command line gives them.

use serde_json::Value;

use super::EvaluationError;
use crate::settings::Settings;

/// What a method does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The engine: clues, candidates, windows, evidence.
    Engine,
    /// Naive constrained beams over the corpus-level index.
    NaiveBeam,
    /// BM25 over the documents.
    Bm25,
    /// Sentence embeddings of the documents, by cosine.
    Dense,
    /// The best 20 documents of BM25, in the order of the window scorer.
    Bm25Rerank,
    /// Reciprocal rank fusion of BM25 and the embeddings, k = 60.
    Fused,
    /// No retrieval: the model answers by itself.
    ClosedBook,
}

/// Names of the kinds.
const KINDS: &[(&str, Kind)] = &[
    ("engine", Kind::Engine),
    ("naive-beam", Kind::NaiveBeam),
    ("bm25", Kind::Bm25),
    ("dense", Kind::Dense),
    ("bm25-rerank", Kind::Bm25Rerank),
    ("rrf", Kind::Fused),
    ("closed-book", Kind::ClosedBook),
];

/// Names of ablations and presets, and the changes of settings that they stand for.
const ABLATIONS: &[(&str, &str)] = &[
    ("no-clues", "clues.most=0"),
    ("no-expansion", "clues.auxiliary=0"),
    ("no-future-windows", "evidence.lambda=0"),
    ("no-titles", "candidates.title_weight=0+titles.bonus=0"),
    ("no-hops", "hops.pieces=0"),
    ("all-candidates", "evidence.scope=candidates"),
    (
        "multi-hop",
        "candidates.most=50+windows.most_per_document=12+evidence.most=10+evidence.least=10",
    ),
];

/// A method with its settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Method {
    /// As it was named: `KIND`, or `KIND:CHANGE+CHANGE…`.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Settings of the engine and of the answer.
    pub settings: Settings,
}

impl Method {
    /// Reads `KIND` or `KIND:CHANGE+CHANGE…` over the settings `base`. A change is the name of an ablation
    /// or `section.field=value`, as `evidence.lambda=0` or `windows.scorer=bm25`.
    ///
    /// ```
    /// use decoder::{Settings, evaluation::Method};
    /// let method = Method::parse("engine:no-clues+evidence.most=3", &Settings::default()).unwrap();
    /// assert_eq!((method.settings.clues.most, method.settings.evidence.most), (0, 3));
    /// assert!(Method::parse("engine:evidence.most=many", &Settings::default()).is_err());
    /// ```
    ///
    /// # Errors
    /// [`EvaluationError::Method`].
    pub fn parse(name: &str, base: &Settings) -> Result<Self, EvaluationError> {
        let wrong = |reason: String| EvaluationError::Method {
            name: name.to_owned(),
            reason,
        };
        let (kind, changes) = match name.split_once(':') {
            Some((kind, changes)) => (kind, changes),
            None => (name, ""),
        };
        let known = KINDS.iter().find(|(other, _)| *other == kind);
        let Some(&(_, kind)) = known else {
            let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
            return Err(wrong(format!("there are {}", names.join(", "))));
        };
        let mut settings = serde_json::to_value(base).map_err(|error| wrong(error.to_string()))?;
        for change in changes.split('+').filter(|change| !change.is_empty()) {
            let ablation = ABLATIONS.iter().find(|(other, _)| *other == change);
            let changes = ablation.map_or(change, |(_, changes)| changes);
            for change in changes.split('+') {
                set(&mut settings, change).map_err(wrong)?;
            }
        }
        let settings =
            serde_json::from_value(settings).map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            name: name.to_owned(),
            kind,
            settings,
        })
    }

    /// Whether it needs a language model; the passage retrievers do only where answers are written.
    pub fn needs_model(&self) -> bool {
        matches!(self.kind, Kind::Engine | Kind::NaiveBeam | Kind::ClosedBook)
            || self.settings.answer.most_tokens > 0
    }

    /// Whether it retrieves anything that can be judged.
    pub fn retrieves(&self) -> bool {
        self.kind != Kind::ClosedBook
    }

    /// Whether it needs the sentence embeddings of all documents.
    pub fn needs_embeddings(&self) -> bool {
        matches!(self.kind, Kind::Dense | Kind::Fused)
    }
}

/// Applies `section.field=value`; the value is JSON, or else a string.
fn set(settings: &mut Value, change: &str) -> Result<(), String> {
    let unknown = || {
        let names: Vec<&str> = ABLATIONS.iter().map(|(name, _)| *name).collect();
        format!(
            "there is no change {change:?}; expected {} or section.field=value",
            names.join(", ")
        )
    };
    let (path, value) = change.split_once('=').ok_or_else(unknown)?;
    let pointer = format!("/{}", path.replace('.', "/"));
    let field = settings.pointer_mut(&pointer).ok_or_else(unknown)?;
    *field = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_changes() {
        let base = Settings::default();
        let parse = |name| Method::parse(name, &base);
        assert_eq!(parse("bm25").unwrap().kind, Kind::Bm25);
        assert_eq!(parse("engine").unwrap().settings, base);
        let method = parse("engine:no-future-windows+windows.scorer=bm25").unwrap();
        assert_eq!(method.settings.evidence.lambda, 0.0);
        assert_eq!(
            method.settings.windows.scorer,
            crate::settings::WindowScorerKind::Bm25
        );
        for wrong in [
            "",
            "engin",
            "engine:",
            "engine:nonsense",
            "engine:evidence=1",
            "engine:evidence.none=1",
            "engine:evidence.most=-1",
            "engine:evidence.scope=everywhere",
        ] {
            let error = parse(wrong).map(|method| method.settings);
            let empty = wrong == "engine:";
            assert_eq!(error.is_ok(), empty, "{wrong:?}");
        }
        let message = parse("what").unwrap_err().to_string();
        assert!(message.contains("bm25-rerank"), "{message}");
    }

    #[test]
    fn every_ablation_is_a_change() {
        for (name, _) in ABLATIONS {
            let method = Method::parse(&format!("engine:{name}"), &Settings::default()).unwrap();
            assert_ne!(method.settings, Settings::default(), "{name}");
        }
    }
}
