//! Every window scorer, the expansion of questions, and other ways to choose tokens, with their real models through
//! the real binary.

mod common;

use std::path::Path;

use common::{index_of, verbatim};
use serde_json::Value;

const DOCUMENTS: &[(&str, &str, &str)] = &[
    (
        "fleming",
        "Alexander Fleming",
        "Alexander Fleming was a Scottish physician. He discovered penicillin in 1928 at St Mary's Hospital.",
    ),
    (
        "curie",
        "Marie Curie",
        "Marie Curie discovered polonium and radium. She worked in Paris and won two Nobel Prizes.",
    ),
    (
        "penicillin",
        "Penicillin",
        "Penicillin is an antibiotic. It is still given against many bacterial infections in every hospital.",
    ),
    (
        "wood",
        "Ed Wood",
        "Ed Wood was an American director. His films were made in a few days with very little money.",
    ),
];

/// What `ask --json` prints with these flags. Every quote is looked for in its text.
fn ask(index: &Path, question: &str, flags: &[&str]) -> Value {
    let mut arguments = vec!["ask", "--index", index.to_str().unwrap(), "--json"];
    arguments.extend(["--no-answer", question]);
    arguments.extend(flags);
    let answer = verbatim(&arguments).ended(0).json();
    for piece in answer["evidence"].as_array().unwrap() {
        let (_, _, text) = DOCUMENTS
            .iter()
            .find(|(id, ..)| piece["id"] == *id)
            .unwrap();
        let at = |name: &str| piece[name].as_u64().unwrap() as usize;
        assert_eq!(piece["quote"], text[at("start_byte")..at("end_byte")]);
    }
    answer
}

fn scores(answer: &Value) -> Vec<f64> {
    let windows = answer["trace"]["windows"].as_array().unwrap();
    windows
        .iter()
        .map(|window| window["score"].as_f64().unwrap())
        .collect()
}

#[test]
fn every_scorer_orders_windows_on_its_own_scale() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(folder.path(), DOCUMENTS);
    let tiny = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/models/tests/reference/cross_bert"
    );
    let question = "Who discovered penicillin?";
    let mut seen: Vec<Vec<f64>> = Vec::new();
    for flags in [
        &["--window-scorer", "bm25"][..],
        &["--window-scorer", "embedding"],
        &["--window-scorer", "likelihood"],
        &["--window-scorer", "cross-encoder", "--scorer-model", tiny],
    ] {
        let answer = ask(&index, question, flags);
        assert_eq!(answer["trace"]["settings"]["windows"]["scorer"], flags[1]);
        // The cross-encoder has random weights: what it finds best says nothing.
        if flags[1] != "cross-encoder" {
            assert_eq!(answer["evidence"][0]["id"], "fleming", "{flags:?}");
        }
        let scores = scores(&answer);
        assert!(scores.len() > 1 && scores.iter().all(|score| score.is_finite()));
        // Mean log-probabilities.
        assert!(flags[1] != "likelihood" || scores.iter().all(|&score| score < 0.0));
        assert!(!seen.contains(&scores), "{flags:?} scores like another");
        seen.push(scores);
    }
    verbatim(&[
        "ask",
        "--index",
        index.to_str().unwrap(),
        "--window-scorer",
        "cross-encoder",
        question,
    ])
    .refused(&["--scorer-model"]);
}

#[test]
fn a_question_is_expanded_by_a_sparse_model() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(folder.path(), DOCUMENTS);
    let question = "Which medicine did the doctor find?";
    let plain = ask(&index, question, &[]);
    let expanded = ask(&index, question, &["--expand", "splade-tiny"]);
    let terms = |answer: &Value| answer["trace"]["auxiliary_clues"].clone();
    assert_ne!(terms(&plain), terms(&expanded));
    let words = terms(&expanded);
    let words: Vec<&str> = words
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!((1..=8).contains(&words.len()), "{words:?}");
    // Terms that the question does not hold, and no pieces of words.
    assert!(
        words
            .iter()
            .any(|word| !question.to_lowercase().contains(word)),
        "{words:?}"
    );
    assert!(words.iter().all(|word| !word.starts_with('#')), "{words:?}");
}

#[test]
fn what_is_drawn_depends_on_the_seed_and_is_still_a_quote() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(folder.path(), DOCUMENTS);
    let question = "What was discovered in a hospital?";
    let clues = |seed: &str| {
        let flags = ["--set", "sampling.temperature=2", "--seed", seed];
        let answer = ask(&index, question, &flags);
        assert!(!answer["evidence"].as_array().unwrap().is_empty());
        (answer["trace"]["clues"].clone(), answer["evidence"].clone())
    };
    let drawn: Vec<_> = ["1", "2", "3", "4"].map(clues).into();
    assert_eq!(drawn[0], clues("1"));
    assert!(drawn.iter().any(|one| one.0 != drawn[0].0), "{drawn:?}");
    // Every clue occurs in the collection, in one letter case or another.
    for (clues, _) in &drawn {
        for clue in clues.as_array().unwrap() {
            let text = clue["text"].as_str().unwrap();
            assert!(clue["occurrences"].as_u64().unwrap() > 0, "{clue}");
            assert!(DOCUMENTS.iter().any(|(_, title, body)| {
                let found = |place: &str| place.to_lowercase().contains(&text.to_lowercase());
                found(body) || found(title)
            }));
        }
    }
}

#[test]
fn without_the_constraint_what_no_text_holds_is_no_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(folder.path(), DOCUMENTS);
    let mut arguments = vec!["ask", "--index", index.to_str().unwrap(), "--json"];
    arguments.extend(["--no-answer", "--set", "evidence.constrained=false"]);
    arguments.push("Who discovered penicillin?");
    // Exit code 1 where nothing of it stands in a text.
    let run = verbatim(&arguments);
    assert!(matches!(run.code, Some(0 | 1)), "{}", run.stderr);
    let answer = run.json();
    let unfounded = answer["trace"]["unfounded"].as_array();
    let unfounded = unfounded.cloned().unwrap_or_default();
    let evidence = answer["evidence"].as_array().unwrap();
    assert!(!unfounded.is_empty() || !evidence.is_empty());
    let stands = |quote: &str| DOCUMENTS.iter().any(|(.., body)| body.contains(quote));
    assert!(
        evidence
            .iter()
            .all(|piece| stands(piece["quote"].as_str().unwrap()))
    );
    for quote in &unfounded {
        let quote = quote.as_str().unwrap();
        assert!(
            quote.is_empty() || !stands(quote),
            "{quote:?} stands in a text"
        );
    }
}

#[test]
fn clues_may_follow_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(folder.path(), DOCUMENTS);
    let question = "Where did the man who discovered penicillin work?";
    let count = |flags: &[&str]| {
        let answer = ask(&index, question, flags);
        assert!(!answer["evidence"].as_array().unwrap().is_empty());
        answer["trace"]["clues"].as_array().unwrap().len()
    };
    // The model decides whether it wants any; there are never more than it may write.
    let (without, with) = (count(&[]), count(&["--set", "hops.clues=2"]));
    assert!(
        (without..=without + 4).contains(&with),
        "{without} and {with}"
    );
    verbatim(&[
        "ask",
        "--index",
        index.to_str().unwrap(),
        "--set",
        "hops.clues=-1",
        question,
    ])
    .refused(&["hops.clues"]);
}
