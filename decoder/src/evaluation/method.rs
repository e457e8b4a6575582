//! The methods that can be run, by the names that a command line gives them.

use serde_json::Value;

use super::EvaluationError;
use crate::active::ActiveSettings;
use crate::forward_backward::rerank::Rerank;
use crate::forward_backward::settings::{ForwardSettings, Truncate};
use crate::settings::{Settings, WindowScorerKind};

/// What a method does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The engine: clues, candidates, windows, evidence.
    Engine,
    /// Naive constrained beams over the corpus-level index.
    NaiveBeam,
    /// The study of false pruning: whether naive beams still lead to a gold document after so many tokens.
    Prefixes,
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
    /// Active retrieval (FLARE), evidence by the engine.
    Active,
    /// Active retrieval (FLARE), passages by BM25.
    ActiveBm25,
    /// Chunks of the question's own gold documents by the forward–backward scorer (FB-RAG): the setting of a
    /// long document with questions about it. What it retrieves says which chunks came up, not which documents.
    Read,
}

/// Names of the kinds.
const KINDS: &[(&str, Kind)] = &[
    ("engine", Kind::Engine),
    ("naive-beam", Kind::NaiveBeam),
    ("prefixes", Kind::Prefixes),
    ("bm25", Kind::Bm25),
    ("dense", Kind::Dense),
    ("bm25-rerank", Kind::Bm25Rerank),
    ("rrf", Kind::Fused),
    ("closed-book", Kind::ClosedBook),
    ("flare", Kind::Active),
    ("flare-bm25", Kind::ActiveBm25),
    ("read", Kind::Read),
];

/// Names of ablations and presets, and the changes of settings that they stand for.
const ABLATIONS: &[(&str, &str)] = &[
    ("no-clues", "clues.most=0"),
    ("no-expansion", "clues.auxiliary=0"),
    // Where a piece stays at its place nothing steers it: the two below are to be compared with each other.
    ("document", "evidence.scope=document"),
    (
        "no-future-windows",
        "evidence.scope=document+evidence.lambda=0",
    ),
    ("no-titles", "candidates.title_weight=0+titles.bonus=0"),
    ("no-hops", "hops.pieces=0"),
    ("clue-hops", "hops.clues=1"),
    ("unconstrained", "evidence.constrained=false"),
    ("token-by-token", "evidence.skip_forced=false"),
    ("beams", "clues.beams=5+evidence.beams=5"),
    ("all-candidates", "evidence.scope=candidates"),
    ("rerank-f", "rerank.method=f"),
    ("rerank-fb", "rerank.method=fb"),
    (
        "multi-hop",
        "candidates.most=50+windows.most_per_document=12+evidence.most=10+evidence.least=10",
    ),
    ("single", "active.policy=single"),
    ("every-tokens", "active.policy=tokens"),
    ("every-sentence", "active.policy=sentences"),
    ("previous-sentence", "active.policy=previous"),
    ("fb", "read.method=fb"),
    ("f", "read.method=f"),
    ("order", "read.method=order"),
    ("vanilla", "read.method=vanilla"),
    ("full", "read.method=full"),
    ("self-route", "read.method=self-route"),
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
    /// Settings of active retrieval.
    pub active: ActiveSettings,
    /// Settings of the forward–backward scorer. A text that does not fit the model is cut in the middle.
    pub forward: ForwardSettings,
}

impl Method {
    /// Reads `KIND` or `KIND:CHANGE+CHANGE…` over the settings `base`. A change is the name of an ablation
    /// or `section.field=value`, as `evidence.lambda=0` or `windows.scorer=bm25`; the sections `active` and
    /// `read` hold the settings of active retrieval and of the forward–backward scorer.
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
        let mut forward = ForwardSettings {
            truncate: Truncate::Middle,
            ..ForwardSettings::default()
        };
        if base.answer.most_tokens == 0 {
            forward.answer_tokens = 0;
        }
        let mut settings = values(base, &ActiveSettings::default(), &forward)
            .map_err(|error| wrong(error.to_string()))?;
        for change in changes.split('+').filter(|change| !change.is_empty()) {
            let ablation = ABLATIONS.iter().find(|(other, _)| *other == change);
            let changes = ablation.map_or(change, |(_, changes)| changes);
            for change in changes.split('+') {
                set(&mut settings, change).map_err(wrong)?;
            }
        }
        let mut section = |name: &str| match &mut settings {
            Value::Object(sections) => sections.shift_remove(name).unwrap_or_default(),
            _ => Value::Null,
        };
        let (active, forward) = (section("active"), section("read"));
        let read = || {
            Ok::<_, serde_json::Error>(Self {
                name: name.to_owned(),
                kind,
                active: serde_json::from_value(active)?,
                forward: serde_json::from_value(forward)?,
                settings: serde_json::from_value(settings)?,
            })
        };
        let method = read().map_err(|error| wrong(error.to_string()))?;
        method.settings.check().map_err(wrong)?;
        let silent = method.settings.answer.most_tokens == 0;
        if silent && matches!(kind, Kind::ClosedBook | Kind::Active | Kind::ActiveBm25) {
            let reason = "it does nothing without writing an answer; leave out the method, or --no-answer (answer.most_tokens=0)";
            return Err(wrong(reason.to_owned()));
        }
        Ok(method)
    }

    /// The settings that count for it, as they are saved.
    ///
    /// # Errors
    /// They cannot be written as JSON, which no settings of this crate do.
    pub fn saved(&self) -> Result<Value, EvaluationError> {
        let values = values(&self.settings, &self.active, &self.forward);
        let mut values = values.map_err(|error| EvaluationError::Method {
            name: self.name.clone(),
            reason: error.to_string(),
        })?;
        if let Value::Object(sections) = &mut values {
            if !matches!(self.kind, Kind::Active | Kind::ActiveBm25) {
                sections.shift_remove("active");
            }
            if self.kind != Kind::Read {
                sections.shift_remove("read");
            }
        }
        Ok(values)
    }

    /// Whether it asks the engine.
    pub fn needs_engine(&self) -> bool {
        matches!(
            self.kind,
            Kind::Engine | Kind::NaiveBeam | Kind::Prefixes | Kind::Active
        )
    }

    /// Whether it ranks documents of the index, which are then judged as passages.
    pub fn ranks_passages(&self) -> bool {
        matches!(
            self.kind,
            Kind::Bm25 | Kind::Dense | Kind::Bm25Rerank | Kind::Fused
        )
    }

    /// Whether it writes an answer.
    pub fn answers(&self) -> bool {
        match self.kind {
            Kind::Active | Kind::ActiveBm25 => true,
            Kind::Read => self.forward.answer_tokens > 0,
            Kind::Prefixes => false,
            _ => self.settings.answer.most_tokens > 0,
        }
    }

    /// Whether a generator other than the model can write its answer. Active retrieval needs the probabilities of
    /// the tokens that are written.
    pub fn takes_generator(&self) -> bool {
        !matches!(self.kind, Kind::Active | Kind::ActiveBm25)
    }

    /// Whether a light model samples for it.
    pub fn samples(&self) -> bool {
        match self.kind {
            Kind::Read => self.forward.method.looks_forward(),
            Kind::Engine | Kind::Active => self.settings.rerank.method != Rerank::None,
            _ => false,
        }
    }

    /// Whether it needs the language model, where there is another `generator` or `light` model or not. The passage
    /// retrievers do only where they write answers themselves.
    pub fn needs_model(&self, generator: bool, light: bool) -> bool {
        let scorers = [self.scorer(), self.other_scorer()];
        let scores = scorers.contains(&Some(WindowScorerKind::Likelihood));
        let writes = match self.kind {
            Kind::ActiveBm25 => true,
            // The generator counts tokens, too.
            Kind::Read => !generator || (self.samples() && !light),
            _ => self.answers() && !generator,
        };
        scores || writes || self.needs_engine()
    }

    /// Whether it retrieves anything that can be judged.
    pub fn retrieves(&self) -> bool {
        !matches!(self.kind, Kind::ClosedBook | Kind::Prefixes)
    }

    /// Whether it needs the sentence vectors of all documents.
    pub fn needs_vectors(&self) -> bool {
        matches!(self.kind, Kind::Dense | Kind::Fused)
    }

    /// The scorer of its windows, or of the passages that it reranks, where it has any.
    pub fn scorer(&self) -> Option<WindowScorerKind> {
        match self.kind {
            Kind::Engine | Kind::Active | Kind::Bm25Rerank => Some(self.settings.windows.scorer),
            // Its engine has no windows, and BM25 needs nothing to be opened.
            Kind::NaiveBeam | Kind::Prefixes => Some(WindowScorerKind::Bm25),
            _ => None,
        }
    }

    /// What scores its pieces for the reranker, or its chunks, where that is not the window scorer and has to be
    /// opened.
    pub fn other_scorer(&self) -> Option<WindowScorerKind> {
        let kind = match self.kind {
            // BM25 of the chunks at hand.
            Kind::Read if self.forward.relevance == WindowScorerKind::Bm25 => return None,
            Kind::Read => self.forward.relevance,
            _ if self.samples() => self.settings.rerank.relevance,
            _ => return None,
        };
        (Some(kind) != self.scorer()).then_some(kind)
    }
}

/// All settings in one value. Numbers go through text, so that they are those that a file gives back.
fn values(
    settings: &Settings,
    active: &ActiveSettings,
    forward: &ForwardSettings,
) -> serde_json::Result<Value> {
    let mut all: Value = serde_json::from_str(&serde_json::to_string(settings)?)?;
    if let Value::Object(sections) = &mut all {
        let section = serde_json::from_str(&serde_json::to_string(active)?)?;
        sections.insert("active".to_owned(), section);
        let section = serde_json::from_str(&serde_json::to_string(forward)?)?;
        sections.insert("read".to_owned(), section);
    }
    Ok(all)
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
    use crate::settings::Scope;

    #[test]
    fn names_and_changes() {
        let base = Settings::default();
        let parse = |name| Method::parse(name, &base);
        assert_eq!(parse("bm25").unwrap().kind, Kind::Bm25);
        assert_eq!(parse("engine").unwrap().settings, base);
        let method = parse("engine:no-future-windows+windows.scorer=bm25").unwrap();
        assert_eq!(method.settings.evidence.lambda, 0.0);
        assert_eq!(method.settings.evidence.scope, Scope::Document);
        assert_eq!(method.scorer(), Some(WindowScorerKind::Bm25));
        for wrong in [
            "",
            "engin",
            "engine:nonsense",
            "engine:evidence=1",
            "engine:evidence.none=1",
            "engine:evidence.most=-1",
            "engine:evidence.most_tokens=0",
            "engine:windows.radius=2147483648",
            "engine:evidence.scope=everywhere",
            "read:read.method=what",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse("engine:").is_ok());
        let message = parse("what").unwrap_err().to_string();
        assert!(message.contains("bm25-rerank"), "{message}");
    }

    #[test]
    fn what_a_method_needs() {
        let parse = |name| Method::parse(name, &Settings::default()).unwrap();
        let mut silent = Settings::default();
        silent.answer.most_tokens = 0;
        for name in ["closed-book", "flare", "flare-bm25"] {
            let error = Method::parse(name, &silent).unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains("--no-answer"),
                "{error}"
            );
        }
        // The model alone, with another generator, with another light model, with both.
        let models = |method: &Method| {
            let needs = |generator, light| method.needs_model(generator, light);
            [
                needs(false, false),
                needs(true, false),
                needs(false, true),
                needs(true, true),
            ]
        };
        for (name, needs) in [
            ("engine", [true; 4]),
            ("naive-beam", [true; 4]),
            ("flare-bm25", [true; 4]),
            ("bm25", [true, false, true, false]),
            ("closed-book", [true, false, true, false]),
            ("read:order", [true, false, true, false]),
            ("read:fb", [true, true, true, false]),
            ("bm25-rerank:windows.scorer=likelihood", [true; 4]),
        ] {
            assert_eq!(models(&parse(name)), needs, "{name}");
        }
        let bm25 = Method::parse("bm25", &silent).unwrap();
        assert_eq!((models(&bm25), bm25.scorer()), ([false; 4], None));
        assert!(!parse("flare").takes_generator() && parse("read").takes_generator());
        assert!(parse("engine:rerank-f").samples() && !parse("engine").samples());
    }

    #[test]
    fn saved_settings_survive_a_file() {
        for name in ["engine", "flare:active.theta=0.3", "read:fb", "bm25"] {
            let method = Method::parse(name, &Settings::default()).unwrap();
            let saved = method.saved().unwrap();
            assert_eq!(saved.get("active").is_some(), name.starts_with("flare"));
            assert_eq!(saved.get("read").is_some(), name.starts_with("read"));
            let again: Value = serde_json::from_str(&saved.to_string()).unwrap();
            assert_eq!(again, saved, "{name}");
        }
    }

    #[test]
    fn every_ablation_is_a_change() {
        let parse = |name: &str| {
            let method = Method::parse(name, &Settings::default()).unwrap();
            (method.settings, method.active, method.forward)
        };
        for (name, _) in ABLATIONS {
            let changed = parse(&format!("engine:{name}"));
            // FB is what reading does anyway.
            assert_eq!(changed == parse("engine"), *name == "fb", "{name}");
        }
    }
}
