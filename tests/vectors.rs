//! Sentence vectors kept with an index, through the real binary: the same answers with and without them, through
//! additions, deletions and merges, and damage.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{index_of, verbatim, write_corpus};
use serde_json::{Value, json};

const DOCUMENTS: &[(&str, &str, &str)] = &[
    (
        "fleming",
        "Alexander Fleming",
        "Alexander Fleming was a Scottish physician.  He discovered penicillin in 1928 at St Mary's Hospital.",
    ),
    (
        "curie",
        "Marie Curie",
        "Marie Curie discovered polonium and radium.\nShe worked in Paris and won two Nobel Prizes.",
    ),
    (
        "penicillin",
        "Penicillin",
        "Penicillin is an antibiotic. It is still given against many bacterial infections in every hospital.",
    ),
];

const QUESTION: &str = "Who discovered penicillin?";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn embed(index: &Path) -> Value {
    let embed = ["index", "embed", "--index", text(index), "--json"];
    let report = verbatim(&embed).ended(0).json();
    let count = |name: &str| report[name].clone();
    json!([count("paragraphs"), count("embedded"), count("taken_over")])
}

fn verified(index: &Path) -> Value {
    let verify = ["index", "verify", "--index", text(index), "--json"];
    verbatim(&verify).ended(0).json()
}

/// What `ask --json` prints with these flags, the times apart.
fn ask(index: &Path, flags: &[&str]) -> Value {
    let ask = ["ask", "--index", text(index), "--json", QUESTION];
    let mut answer = verbatim(&[&ask[..], flags].concat()).ended(0).json();
    answer["trace"]["milliseconds"] = Value::Null;
    answer
}

/// Files of vectors of segments, in order.
fn vectors(index: &Path) -> Vec<PathBuf> {
    let mut found = common::listing(&index.join("vectors"));
    found.retain(|path| path.extension().is_some_and(|end| end == "bin"));
    found
}

#[test]
fn an_index_with_vectors_through_its_life() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let index = index_of(folder.path(), DOCUMENTS);
    let dense = ["--no-answer", "--set", "candidates.dense_weight=1"];
    let stat = |index: &Path| {
        let stat = ["index", "stat", "--index", text(index), "--json"];
        verbatim(&stat).ended(0).json()
    };
    let (before, files, size) = (ask(&index, &[]), verified(&index), stat(&index));
    let wanted = ["ask", "--index", text(&index), QUESTION];
    verbatim(&[&wanted[..], &dense].concat()).refused(&["index embed"]);
    let other = ["--window-scorer", "bm25"];
    verbatim(&[&wanted[..], &dense, &other].concat()).refused(&["candidates.dense_weight"]);

    // The same answer with vectors, to the last bit of every score.
    assert_eq!(embed(&index), json!([4, 4, 0]));
    assert_eq!(embed(&index), json!([4, 0, 0]));
    assert_eq!(ask(&index, &[]), before);
    let now = verified(&index);
    assert_eq!(now["files"], files["files"].as_u64().unwrap() + 1);
    let kept = fs::metadata(&vectors(&index)[0]).unwrap().len();
    let grown = stat(&index)["bytes"].as_u64().unwrap() - size["bytes"].as_u64().unwrap();
    let components = stat(&index)["components"].clone();
    let components = components.as_array().unwrap();
    let component = components.iter().find(|one| one["name"] == "vectors");
    assert_eq!(component.unwrap()["bytes"], grown);
    // The lock holds the number of a process.
    assert!((kept..kept + 16).contains(&grown), "{kept} {grown}");

    let ranked = ask(&index, &dense);
    let candidates = ranked["trace"]["candidates"].as_array().unwrap();
    let of = |id: &str| candidates.iter().find(|one| one["id"] == id).unwrap();
    assert!(
        candidates.iter().all(|one| one["dense_rank"].is_u64()),
        "{candidates:?}"
    );
    assert!(of("fleming")["dense_rank"].as_u64() < of("curie")["dense_rank"].as_u64());
    let plain = before["trace"]["candidates"].as_array().unwrap();
    assert!(plain.iter().all(|one| one["dense_rank"].is_null()));

    // An addition needs its own alone, a merge none; what is deleted is not found.
    let wood = ("wood", "Ed Wood", "Ed Wood was an American director.");
    write_corpus(&path("more.jsonl"), &[wood]);
    verbatim(&[
        "index",
        "add",
        "--index",
        text(&index),
        text(&path("more.jsonl")),
    ])
    .ended(0);
    verbatim(&[&wanted[..], &dense].concat()).refused(&["1 of 2 segments", "index embed"]);
    assert_eq!(embed(&index), json!([5, 1, 0]));
    verified(&index);
    let delete = ["index", "delete", "--index", text(&index), "fleming"];
    verbatim(&delete).ended(0);
    let ranked = ask(&index, &dense);
    let candidates = ranked["trace"]["candidates"].as_array().unwrap();
    assert!(candidates.len() == 3 && candidates.iter().all(|one| one["id"] != "fleming"));
    verbatim(&["index", "merge", "--index", text(&index)]).ended(0);
    verified(&index);
    let merged = ask(&index, &["--no-answer"]);
    assert_eq!(vectors(&index).len(), 1);
    assert_eq!(embed(&index), json!([4, 0, 0]));
    assert_eq!(ask(&index, &["--no-answer"]), merged);
    let exported = verbatim(&["index", "export", "--index", text(&index)]).ended(0);
    assert_eq!(exported.stdout.lines().count(), 3);
    verbatim(&[
        "index",
        "build",
        text(&path("corpus.jsonl")),
        "--model",
        "smollm2",
        "--out",
        text(&index),
    ])
    .refused(&["there is an index already"]);

    // Damage is found by whoever reads every byte, and mended.
    let file = &vectors(&index)[0];
    let good = fs::read(file).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    fs::write(file, &bad).unwrap();
    let found = verbatim(&["index", "verify", "--index", text(&index)]).ended(1);
    assert!(
        found.stdout.contains(text(file)) && found.stdout.contains("index embed"),
        "{}",
        found.stdout
    );
    fs::write(file, &bad[..middle]).unwrap();
    verbatim(&wanted).refused(&[text(file), "index embed"]);
    assert_eq!(embed(&index), json!([4, 4, 0]));
    assert!(fs::read(file).unwrap() == good);
    assert_eq!(ask(&index, &["--no-answer"]), merged);
}
