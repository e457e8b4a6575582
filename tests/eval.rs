//! `verbatim eval`: folders, going on, computing again, refusals, and numbers that stay where they are.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{build, verbatim, write_corpus};
use serde_json::{Value, json};

fn write_lines(path: &Path, lines: &[Value]) {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(path, lines.join("\n")).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_small_evaluation() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let documents = [
        (
            "1",
            "Lighthouse",
            "A lighthouse is a tower that emits light. It guides ships at sea.",
        ),
        (
            "2",
            "Harbour",
            "A harbour is a place where ships find shelter from storms.",
        ),
        (
            "3",
            "Compass",
            "A compass shows the direction of the magnetic north pole.",
        ),
    ];
    write_corpus(&at("corpus.jsonl"), &documents);
    build(&at("corpus.jsonl"), &at("index"));
    write_lines(
        &at("ships.jsonl"),
        &[
            json!({"id": "a", "question": "What guides ships at sea?", "answers": ["lighthouse"], "gold_doc_ids": ["1"]}),
            json!({"id": "b", "question": "What shows the magnetic north pole?", "golden_answers": ["A compass"], "gold_doc_ids": ["3", "99"]}),
            json!({"id": "c", "question": "Is a harbour a tower?", "answers": ["no"]}),
            json!({"id": "d"}),
        ],
    );
    let (index, questions, out, embeddings) =
        (at("index"), at("ships.jsonl"), at("out"), at("embeddings"));
    let arguments = [
        "eval",
        "--index",
        text(&index),
        "--questions",
        text(&questions),
        "--methods",
        "bm25,dense,rrf,bm25-rerank,engine:evidence.most=2",
        "--no-answer",
        "--top-k",
        "1,3",
        "--embeddings",
        text(&embeddings),
        "--out",
        text(&out),
    ];
    let run = verbatim(&arguments).ended(0);
    assert!(run.stderr.contains("ships.jsonl:4"), "{}", run.stderr);
    assert!(run.stdout.contains("## ships") && run.stdout.contains("| bm25-rerank |"));
    let summary: Value =
        serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap();
    let methods = summary["sets"][0]["methods"].as_array().unwrap();
    assert_eq!(methods.len(), 5);
    for method in methods {
        let mean = |metric: &str| method["metrics"][metric]["mean"].as_f64().unwrap();
        assert_eq!(mean("gold_recall@3"), 0.75, "{method}");
        assert_eq!(method["unjudged"]["yes_no"], 1);
        assert_eq!(method["metrics"]["substring@1"]["questions"], 2);
        assert!(method["metrics"].get("em").is_none());
    }
    assert_eq!(summary["plan"]["sets"][0]["gold_missing"], 1);
    let run_file = fs::read_to_string(out.join("runs/ships.bm25.trec")).unwrap();
    assert!(run_file.starts_with(['a', 'b', 'c']) && run_file.contains(" Q0 1 1 "));
    let engine = fs::read_to_string(out.join("traces/ships.engine~evidence.most=2.jsonl")).unwrap();
    for line in engine.lines() {
        let trace: Value = serde_json::from_str(line).unwrap();
        for piece in trace["retrieved"].as_array().unwrap() {
            let quote = piece["text"].as_str().unwrap();
            assert!(
                documents.iter().any(|(_, _, text)| text.contains(quote)),
                "{quote:?}"
            );
        }
    }

    // A second run asks nothing; what is cut off is asked again; the numbers stay.
    let again = verbatim(&arguments).ended(0);
    assert!(
        again.stderr.contains("bm25: 0 questions asked"),
        "{}",
        again.stderr
    );
    let traces = out.join("traces/ships.dense.jsonl");
    let whole = fs::read(&traces).unwrap();
    fs::write(&traces, &whole[..whole.len() - 20]).unwrap();
    let again = verbatim(&arguments).ended(0);
    assert!(
        again.stderr.contains("dense: 1 questions asked"),
        "{}",
        again.stderr
    );

    // From the traces alone, elsewhere, and with other k.
    let moved = at("moved");
    fs::rename(&out, &moved).unwrap();
    let from = verbatim(&[
        "eval",
        "--from",
        text(&moved),
        "--json",
        "--also",
        "dpr,kilt",
    ])
    .ended(0);
    let from = from.json();
    for at in 0..5 {
        let metrics = &from["sets"][0]["methods"][at]["metrics"];
        assert_eq!(metrics, &methods[at]["metrics"]);
    }
    assert!(moved.join("runs/ships.rrf.dpr.json").is_file());
    assert!(moved.join("runs/ships.rrf.kilt.jsonl").is_file());
    let other = verbatim(&["eval", "--from", text(&moved), "--json", "--top-k", "2"]).ended(0);
    assert!(
        other.json()["sets"][0]["methods"][0]["metrics"]
            .get("gold_hit@2")
            .is_some()
    );

    // What does not belong together is refused.
    fs::rename(&moved, &out).unwrap();
    verbatim(&[&arguments[..], &["--seed", "1"]].concat()).refused(&["seed"]);
    verbatim(&[&arguments[..], &["--cut", "32"]].concat()).refused(&["cut"]);
    verbatim(&[&arguments[..], &["--set", "clues.most=1"]].concat()).refused(&["settings"]);
    verbatim(&[&arguments[..], &["--set", "clues.many=1"]].concat()).refused(&["--set"]);
    verbatim(&["eval", "--from", text(&dir.path().join("none"))]).refused(&["evaluation.json"]);
    let mut wrong = arguments;
    wrong[6] = "bm26";
    verbatim(&wrong).refused(&["bm26", "closed-book"]);
    wrong = arguments;
    wrong[4] = "/no/such/questions";
    verbatim(&wrong).refused(&["/no/such/questions"]);
}

/// The shared data file, or a line that says it is missing.
fn shared(file: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/data")
        .join(file);
    if path.is_file() {
        return Some(path);
    }
    eprintln!("skipped: the shared data file {file} is not here");
    None
}

#[test]
fn numbers_stay_within_bounds() {
    let (Some(corpus), Some(questions)) = (
        shared("multilingual/ml_xquad_ru.jsonl.zst"),
        shared("multilingual/qa_xquad_ru.jsonl.zst"),
    ) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    build(&corpus, &index);
    let out = dir.path().join("out");
    let run = verbatim(&[
        "eval",
        "--index",
        text(&index),
        "--questions",
        text(&questions),
        "--methods",
        "bm25",
        "--no-answer",
        "--cut",
        "0",
        "--limit",
        "200",
        "--seed",
        "7",
        "--json",
        "--out",
        text(&out),
    ])
    .ended(0)
    .json();
    let metrics = &run["sets"][0]["methods"][0]["metrics"];
    let mean = |metric: &str| metrics[metric]["mean"].as_f64().unwrap();
    for (metric, low, high) in [
        ("gold_hit@1", 0.70, 0.95),
        ("gold_hit@5", 0.88, 1.0),
        ("has_answer@5", 0.85, 1.0),
        ("substring@5", 0.85, 1.0),
    ] {
        let found = mean(metric);
        assert!(
            (low..=high).contains(&found),
            "{metric}: {found}, expected {low} to {high}"
        );
    }
}
