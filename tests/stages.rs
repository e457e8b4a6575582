//! The stages of a tuned model through the real binary: control tokens that the real tokenizer has stand in for
//! those of a model that was tuned with them.

mod common;

use common::{index_of, verbatim};
use serde_json::Value;

const DOCUMENTS: &[(&str, &str, &str)] = &[
    (
        "fleming",
        "Alexander Fleming",
        "Alexander Fleming was a Scottish physician who discovered penicillin. He shared the Nobel Prize in 1945. \
         His discovery of penicillin is described as a great victory over disease.",
    ),
    (
        "penicillin",
        "Penicillin",
        "Penicillins are antibiotics that come from moulds. Most penicillins in clinical use are made by deep tank \
         fermentation. They were among the first medications to be effective against bacteria.",
    ),
    (
        "florey",
        "Howard Florey",
        "Howard Florey was an Australian pathologist. He carried out the first clinical trials of penicillin in 1941 \
         at the Radcliffe Infirmary in Oxford.",
    ),
];

/// A settings file in which two control tokens end a piece of evidence: for another one, and for good.
fn settings(folder: &std::path::Path, name: &str, another: &str, enough: &str) -> String {
    let path = folder.join(name);
    let text = format!(
        "[format.control]\nclue = \"<issue_start>\"\nclue_end = \"<issue_closed>\"\nevidence = \"<jupyter_text>\"\n\
         evidence_end = \"{enough}\"\nseparator = \"{another}\"\n[evidence]\nmost = 3\nclose_from = 4\ncover = false\n"
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Asserts that there are so many pieces of evidence, each a slice of its document.
#[track_caller]
fn check_evidence(answer: &Value, pieces: usize) {
    let evidence = answer["evidence"].as_array().unwrap();
    assert_eq!(evidence.len(), pieces, "{answer}");
    for citation in evidence {
        let document = DOCUMENTS.iter().find(|(id, ..)| citation["id"] == *id);
        let (_, _, text) = document.unwrap();
        let at = |key: &str| citation[key].as_u64().unwrap() as usize;
        assert_eq!(citation["quote"], text[at("start_byte")..at("end_byte")]);
    }
    assert_eq!(answer["trace"]["refused"], Value::Array(Vec::new()));
}

#[test]
fn a_model_with_control_tokens_is_led_through_its_stages() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(folder.path(), DOCUMENTS);
    let ask = |arguments: &[&str]| {
        let index = index.to_str().unwrap();
        let fixed = ["ask", "--index", index, "--window-scorer", "bm25", "--json"];
        verbatim(&[&fixed, arguments, &["Who discovered penicillin?"]].concat())
    };
    // In a turn of its own, the model would rather end it than do anything else with a notebook.
    let stops = settings(folder.path(), "stops.toml", "<empty_output>", "<|im_end|>");
    let goes_on = settings(folder.path(), "on.toml", "<|im_end|>", "<empty_output>");
    for (file, more, pieces) in [
        (&stops, &[][..], 1),
        (&stops, &["--set", "evidence.least=2"], 2),
        (&goes_on, &[], 3),
        (&goes_on, &["--set", "evidence.most=2"], 2),
    ] {
        let answer = ask(&[&["--settings", file], more].concat()).ended(0).json();
        check_evidence(&answer, pieces);
        let clues = answer["trace"]["clues"].as_array().unwrap();
        assert!((1..=3).contains(&clues.len()), "{clues:?}");
        assert!(
            clues
                .iter()
                .all(|clue| clue["occurrences"].as_u64() > Some(0))
        );
        assert!(!answer["answer"].as_str().unwrap().contains(['<', '\n']));
        let format = &answer["trace"]["settings"]["format"]["control"];
        assert_eq!(format["clue"], "<issue_start>");
        assert_eq!(format["lead"], " The answer is");
    }
    // The same in lines says another thing in its trace.
    let lines = ask(&[]).ended(0).json();
    assert_eq!(lines["trace"]["settings"]["format"], "lines");

    // Names are looked up before anything is asked.
    let unknown = ask(&["--set", "format.control.evidence=<quote>"]);
    unknown.refused(&["<|clue|>", "<jupyter_text>", "control.clue"]);
    let same = [
        "--settings",
        &stops,
        "--set",
        "format.control.evidence=<issue_start>",
    ];
    ask(&same).refused(&["control.clue and control.evidence are both \"<issue_start>\""]);
    let request = ask(&["--set", "format.control.request=\"Why?\""]);
    request.refused(&["format.control.request", "{question}"]);
    ask(&["--set", "format.control.quote=x"]).refused(&["quote"]);
}

#[test]
fn clues_and_evidence_by_beams_are_quotes_too() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(folder.path(), DOCUMENTS);
    let index = index.to_str().unwrap();
    let beams = [
        "--set",
        "clues.beams=4",
        "--set",
        "evidence.beams=3",
        "--set",
        "evidence.most=2",
        "--scope",
        "document",
    ];
    let fixed = ["ask", "--index", index, "--window-scorer", "bm25", "--json"];
    let ask = [&fixed, &beams[..], &["Who discovered penicillin?"]].concat();
    let answer = verbatim(&ask).ended(0).json();
    check_evidence(&answer, 2);
    let clues = answer["trace"]["clues"].as_array().unwrap();
    let mut texts: Vec<String> = clues
        .iter()
        .map(|clue| clue["text"].as_str().unwrap().to_lowercase())
        .collect();
    assert!((1..=3).contains(&texts.len()), "{texts:?}");
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), clues.len(), "a clue stands twice");
    // Tokens of all beams are counted, more than are in the quotes.
    let cost = &answer["trace"]["cost"];
    assert!(cost["written"].as_u64() > Some(0) && cost["passes"].as_u64() > Some(0));
    // The same again.
    let again = verbatim(&ask).ended(0).json();
    assert_eq!(again["evidence"], answer["evidence"]);
    assert_eq!(again["trace"]["cost"], answer["trace"]["cost"]);
}
