//! The main job through the real binary: real model, real Wikipedia summaries.

mod common;

use std::collections::HashMap;

use common::verbatim;
use serde_json::Value;

/// Texts of the summaries by id, read from the fetched file itself.
fn summaries() -> HashMap<String, String> {
    verbatim(&["models", "fetch", "wiki-summaries"]).ended(0);
    let path = verbatim(&["models", "path", "wiki-summaries"])
        .ended(0)
        .stdout;
    let json = std::fs::read(path.trim()).unwrap();
    let json: HashMap<String, Value> = serde_json::from_slice(&json).unwrap();
    json.into_iter()
        .map(|(id, value)| (id, value["extract"].as_str().unwrap().to_owned()))
        .collect()
}

/// Asserts that every quote stands in the source where the citation says, in bytes and in characters.
#[track_caller]
fn check_citations(answer: &Value, texts: &HashMap<String, String>) {
    let evidence = answer["evidence"].as_array().unwrap();
    assert!(!evidence.is_empty(), "{answer}");
    for citation in evidence {
        let text = &texts[citation["id"].as_str().unwrap()];
        let quote = citation["quote"].as_str().unwrap();
        let number = |key: &str| citation[key].as_u64().unwrap() as usize;
        assert!(!quote.is_empty());
        assert_eq!(&text[number("start_byte")..number("end_byte")], quote);
        let characters: String = text
            .chars()
            .take(number("end_char"))
            .skip(number("start_char"))
            .collect();
        assert_eq!(characters, quote);
        assert!(
            !quote.contains('\n'),
            "a quote crosses a paragraph: {quote:?}"
        );
    }
    assert_eq!(
        answer["trace"]["refused"].as_array().unwrap().len(),
        0,
        "{}",
        answer["trace"]
    );
}

#[test]
fn one_command_answers_with_evidence() {
    let texts = summaries();
    let run = verbatim(&["demo", "--json", "Who discovered penicillin?"]).ended(0);
    let answer = run.json();
    check_citations(&answer, &texts);
    let quotes: Vec<&str> = answer["evidence"]
        .as_array()
        .unwrap()
        .iter()
        .map(|citation| citation["quote"].as_str().unwrap())
        .collect();
    assert!(
        quotes.iter().any(|quote| quote.contains("Fleming")),
        "{quotes:?}"
    );
    assert!(
        answer["answer"].as_str().unwrap().contains("Fleming"),
        "{}",
        answer["answer"]
    );
    assert!(!answer["trace"]["clues"].as_array().unwrap().is_empty());

    // The second run fetches and builds nothing and says the same.
    let again = verbatim(&["demo", "--json", "--offline", "Who discovered penicillin?"]).ended(0);
    assert!(
        !again.stderr.contains("fetching") && !again.stderr.contains("built"),
        "{}",
        again.stderr
    );
    let repeated = again.json();
    assert_eq!(repeated["answer"], answer["answer"]);
    assert_eq!(repeated["evidence"], answer["evidence"]);
}

#[test]
fn ten_of_ten_questions_quote_word_for_word() {
    let texts = summaries();
    let questions = [
        "Who painted the Mona Lisa?",
        "What is the capital of Australia?",
        "When did the Titanic sink?",
        "Who wrote Pride and Prejudice?",
        "What causes tides?",
        "Which planet is the largest in the Solar System?",
        "Who was the first person to walk on the Moon?",
        "What is photosynthesis?",
        "Who developed the theory of general relativity?",
        "Where is Mount Kilimanjaro?",
    ];
    let mut arguments = vec!["demo", "--json"];
    arguments.extend(questions);
    let run = verbatim(&arguments).ended(0);
    let answers: Vec<Value> = run
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), questions.len());
    for (answer, question) in answers.iter().zip(questions) {
        assert_eq!(answer["question"], question);
        check_citations(answer, &texts);
    }
}
