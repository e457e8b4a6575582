//! `verbatim ask --active` through the real binary: a real model, a small index, fixed output.

mod common;

use std::path::{Path, PathBuf};

use common::{index_of, verbatim};
use serde_json::Value;

const LIGHTHOUSE: &str = "A lighthouse is a tower that emits light from a system of lamps and lenses. It guides ships at sea and at night. Most lighthouses stand on the coast.";
const HARBOUR: &str = "A harbour is a body of water where ships and boats find shelter from storms. Large harbours have cranes.";

fn index(folder: &Path) -> PathBuf {
    index_of(
        folder,
        &[
            ("1", "Lighthouse", LIGHTHOUSE),
            ("2", "Harbour", HARBOUR),
            (
                "3",
                "Barley",
                "Barley is a cereal grain that grows in temperate climates. It is used for bread and beer.",
            ),
        ],
    )
}

fn ask(index: &Path, more: &[&str]) -> Value {
    let head = [
        "ask",
        "--index",
        index.to_str().unwrap(),
        "--active",
        "--json",
        "--window-scorer",
        "bm25",
        "--sentences",
        "2",
    ];
    verbatim(&[&head, more].concat()).ended(0).json()
}

#[track_caller]
fn check(answer: &Value) {
    for citation in answer["evidence"].as_array().unwrap() {
        let text = match citation["id"].as_str().unwrap() {
            "1" => LIGHTHOUSE,
            "2" => HARBOUR,
            _ => continue,
        };
        let number = |key: &str| citation[key].as_u64().unwrap() as usize;
        assert_eq!(
            &text[number("start_byte")..number("end_byte")],
            citation["quote"].as_str().unwrap()
        );
    }
    let evidence = answer["evidence"].as_array().unwrap().len() as u64;
    for sentence in answer["sentences"].as_array().unwrap() {
        assert!(
            sentence["evidence"]
                .as_array()
                .unwrap()
                .iter()
                .all(|at| at.as_u64().unwrap() < evidence)
        );
    }
}

#[test]
fn every_policy_answers_and_repeats_itself() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path());
    let question = "What does a lighthouse do?";
    for policy in ["active", "single", "tokens", "sentences", "previous"] {
        let answer = ask(
            &index,
            &["--retrieve", "bm25", "--policy", policy, question],
        );
        check(&answer);
        let sentences = answer["sentences"].as_array().unwrap();
        assert!(!sentences.is_empty(), "{policy}: {answer}");
        let retrievals = answer["trace"]["retrievals"].as_u64().unwrap();
        match policy {
            "single" => assert_eq!(retrievals, 1),
            "sentences" => assert_eq!(
                retrievals,
                1 + answer["trace"]["uncertain"].as_u64().unwrap()
            ),
            "previous" => assert!(retrievals as usize >= sentences.len()),
            _ => {}
        }
        if policy == "active" {
            let mut again = ask(
                &index,
                &["--retrieve", "bm25", "--policy", policy, question],
            );
            again["trace"]["milliseconds"] = answer["trace"]["milliseconds"].clone();
            assert_eq!(again, answer);
        }
    }
}

#[test]
fn theta_decides() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path());
    let question = "What does a lighthouse do?";
    let never = ask(&index, &["--retrieve", "bm25", "--theta", "0", question]);
    assert_eq!(never["trace"]["uncertain"], 0);
    assert_eq!(never["trace"]["retrievals"], 1);
    let single = ask(
        &index,
        &["--retrieve", "bm25", "--policy", "single", question],
    );
    assert_eq!(never["answer"], single["answer"]);
    let always = ask(&index, &["--retrieve", "bm25", "--theta", "1", question]);
    assert!(always["trace"]["uncertain"].as_u64().unwrap() > 0);

    // Calibrated on the same question for a share of 1, every sentence of it is uncertain.
    let questions = folder.path().join("questions.jsonl");
    std::fs::write(&questions, format!("{{\"question\":{question:?}}}\n")).unwrap();
    let calibrated = ask(
        &index,
        &[
            "--retrieve",
            "bm25",
            "--uncertain-share",
            "1",
            "--calibrate",
            questions.to_str().unwrap(),
            question,
        ],
    );
    let theta = calibrated["trace"]["settings"]["theta"].as_f64().unwrap();
    let least: Vec<f64> = single["sentences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sentence| sentence["least_probability"].as_f64().unwrap())
        .collect();
    assert!(least.iter().all(|&p| p < theta), "{least:?} {theta}");
}

#[test]
fn evidence_under_the_constraint_and_questions_about_spans() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path());
    let answer = ask(
        &index,
        &[
            "--theta",
            "1",
            "--query",
            "explicit",
            "What does a lighthouse do?",
        ],
    );
    check(&answer);
    let looked_up = answer["sentences"].as_array().unwrap().iter();
    let queries: Vec<&Value> = looked_up
        .flat_map(|sentence| sentence["queries"].as_array().unwrap())
        .collect();
    assert!(!queries.is_empty(), "{answer}");
    let run = verbatim(&[
        "ask",
        "--index",
        index.to_str().unwrap(),
        "--active",
        "--retrieve",
        "bm25",
        "--sentences",
        "2",
        "What does a lighthouse do?",
    ])
    .ended(0);
    assert!(
        run.stdout.contains("Evidence:") && run.stdout.contains("[1]"),
        "{}",
        run.stdout
    );
}

#[test]
fn evidence_is_what_stood_before_a_sentence_and_flags_count() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path());
    let question = "What does a lighthouse do?";
    let flags = ["--retrieve", "bm25", "--theta", "1", "--query", "explicit"];
    let answer = ask(
        &index,
        &[&flags[..], &["--evidence", "1", question]].concat(),
    );
    // One piece in front of each writing of a sentence: the first, and one more a retrieval.
    let count = |name: &str| answer["trace"][name].as_u64().unwrap() as usize;
    let pieces = answer["evidence"].as_array().unwrap().len();
    assert_eq!(answer["trace"]["settings"]["evidence"], 1);
    assert!((1..=count("retrievals")).contains(&pieces), "{answer}");
    verbatim(&[
        "ask",
        "--index",
        index.to_str().unwrap(),
        "--active",
        "--model",
        "http://127.0.0.1:9/v1",
        question,
    ])
    .refused(&["--model http://127.0.0.1:9/v1", "probabilities"]);
    for flag in [
        &["--no-answer"][..],
        &["--generator", "smollm2"],
        &["--rerank", "f"],
    ] {
        let index = index.to_str().unwrap();
        verbatim(&[&["ask", "--index", index, "--active", question], flag].concat())
            .refused(&["--active", flag[0]]);
    }
}

#[test]
fn nothing_retrieved_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path());
    let run = verbatim(&[
        "ask",
        "--index",
        index.to_str().unwrap(),
        "--active",
        "--retrieve",
        "bm25",
        "--sentences",
        "1",
        "--theta",
        "0",
        "Xyzzy?",
    ])
    .ended(1);
    assert!(run.stderr.contains("no evidence"), "{}", run.stderr);
    verbatim(&[
        "ask",
        "--index",
        index.to_str().unwrap(),
        "--theta",
        "0.5",
        "Who?",
    ])
    .refused(&["--active"]);
    verbatim(&[
        "ask",
        "--index",
        index.to_str().unwrap(),
        "--active",
        "--uncertain-share",
        "0.5",
        "Who?",
    ])
    .refused(&["--calibrate"]);
}
