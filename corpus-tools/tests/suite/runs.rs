//! TREC, DPR and KILT files, written and read back.

use std::fs;

use corpus_tools::questions::Question;
use corpus_tools::runs::{dpr, kilt, trec};
use proptest::prelude::*;
use trec::TrecQuery;

fn query(id: &str, documents: &[(&str, f64)]) -> TrecQuery {
    let documents = documents.iter().map(|&(id, score)| (id.to_owned(), score));
    TrecQuery {
        id: id.to_owned(),
        documents: documents.collect(),
    }
}

#[test]
fn trec_columns_and_scores() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.trec");
    let run = [
        query("q 1", &[("Alexander Fleming", 2.5), ("100%", 0.5)]),
        // Evidence in the order in which it was written; one document twice.
        query("q2", &[("a", 0.5), ("b", 1.0), ("a", 0.25), ("c", 0.1)]),
        query("q3", &[("a", f64::NAN)]),
        query("q4", &[]),
    ];
    trec::write_run(&path, "engine", &run).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        "q%201 Q0 Alexander%20Fleming 1 2.5 engine\n\
         q%201 Q0 100%25 2 0.5 engine\n\
         q2 Q0 a 1 1 engine\n\
         q2 Q0 b 2 0.5 engine\n\
         q2 Q0 c 3 0.3333333333333333 engine\n\
         q3 Q0 a 1 1 engine\n"
    );
    let (tag, read, bad) = trec::read_run(&path).unwrap();
    assert_eq!((tag.as_str(), bad.len()), ("engine", 0));
    assert_eq!(read[0], run[0]);
    let ids: Vec<&str> = read[1]
        .documents
        .iter()
        .map(|(id, _)| id.as_str())
        .collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert_eq!(read.len(), 3);
}

#[test]
fn trec_files_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    fs::write(&path, b"1\tQ0\td2\t2\t1e-3\tx\n1 Q0 d1 1 7 x\n\nshort line\n1 Q0 d3 third 1 x\n1 Q0 d3 3 high x\n\xff\n2 Q0 50%-off%zz 1 1 x\n").unwrap();
    let (tag, read, bad) = trec::read_run(&path).unwrap();
    assert_eq!(tag, "x");
    assert_eq!(
        read,
        [
            query("1", &[("d1", 7.0), ("d2", 1e-3)]),
            query("2", &[("50%-off%zz", 1.0)])
        ]
    );
    let places: Vec<u64> = bad.iter().map(|bad| bad.line).collect();
    assert_eq!(places, [4, 5, 6, 7]);
    assert!(
        trec::read_run(&dir.path().join("none"))
            .unwrap_err()
            .to_string()
            .contains("none")
    );
}

#[test]
fn qrels_hold_every_gold_document_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qrels");
    let question = Question {
        id: "q".into(),
        gold: vec![vec!["a".into(), "b c".into()], vec!["a".into()]],
        ..Question::default()
    };
    let without = Question {
        id: "r".into(),
        ..Question::default()
    };
    trec::write_qrels(&path, &[&question, &without]).unwrap();
    let (judged, bad) = trec::read_qrels(&path).unwrap();
    assert!(bad.is_empty());
    let judged: Vec<(&str, &str, i64)> = judged
        .iter()
        .map(|one| (one.query.as_str(), one.document.as_str(), one.relevance))
        .collect();
    let expected = [("q", "a", 1), ("q", "b c", 1)];
    assert_eq!(judged, expected);
}

#[test]
fn dpr_results() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results.json");
    let results = vec![dpr::DprResult {
        question: "who?".into(),
        answers: vec!["Röntgen".into()],
        ctxs: vec![dpr::DprContext {
            id: "12".into(),
            title: "T".into(),
            text: "by Röntgen\n".into(),
            score: 0.5,
            has_answer: true,
        }],
    }];
    dpr::write(&path, &results).unwrap();
    assert_eq!(dpr::read(&path).unwrap(), results);
    // As DPR writes them: the score is a string; and as others do, with numbers as ids.
    fs::write(&path, r#"[{"question":"q","answers":[],"ctxs":[{"id":5,"title":"","text":"","score":"81.5","has_answer":false}]}]"#).unwrap();
    let read = dpr::read(&path).unwrap();
    assert_eq!(
        (read[0].ctxs[0].id.as_str(), read[0].ctxs[0].score),
        ("5", 81.5)
    );
    fs::write(&path, r#"[{"question":"q"}]"#).unwrap();
    assert!(
        dpr::read(&path)
            .unwrap_err()
            .to_string()
            .contains("results.json")
    );
}

#[test]
fn kilt_predictions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("predictions.jsonl");
    let place = kilt::KiltProvenance {
        wikipedia_id: "736".into(),
        title: "Albert Einstein".into(),
        text: "a \"quote\"\n".into(),
    };
    let prediction = kilt::KiltPrediction {
        id: "1".into(),
        input: "who?".into(),
        output: vec![kilt::KiltOutput {
            answer: "x".into(),
            provenance: vec![place],
        }],
    };
    kilt::write(&path, std::slice::from_ref(&prediction)).unwrap();
    assert_eq!(kilt::read(&path).unwrap(), (vec![prediction], Vec::new()));
    fs::write(&path, "{\"id\":\"1\",\"input\":\"q\",\"output\":[{\"provenance\":[{\"wikipedia_id\":\"7\",\"start_character\":3}]}]}\nnonsense\n").unwrap();
    let (read, bad) = kilt::read(&path).unwrap();
    assert_eq!(read[0].output[0].provenance[0].wikipedia_id, "7");
    assert_eq!((bad.len(), bad[0].line), (1, 2));
}

proptest! {
    #[test]
    fn any_id_survives_a_run(ids in proptest::collection::hash_set(any::<String>(), 1..6), query in any::<String>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let documents = ids.into_iter().zip([9.0, 8.0, 7.5, 3.25, -1.0, -2.0]).collect();
        let run = [TrecQuery { id: query, documents }];
        trec::write_run(&path, "a tag", &run).unwrap();
        let (tag, read, bad) = trec::read_run(&path).unwrap();
        prop_assert_eq!(tag, "a tag");
        prop_assert!(bad.is_empty());
        prop_assert_eq!(&read[..], &run[..]);
    }
}
