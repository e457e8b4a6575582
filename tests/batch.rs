//! Many questions from a file: killed, gone on with, and refused where the file is not ours.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{index_of, verbatim, write_corpus};
use serde_json::Value;

/// The arguments that ask a file of questions for evidence alone.
fn asking<'a>(index: &'a Path, questions: &'a Path, out: &'a Path) -> Vec<&'a str> {
    let mut arguments = vec!["ask", "--window-scorer", "bm25", "--no-answer"];
    for (flag, path) in [
        ("--index", index),
        ("--questions", questions),
        ("--out", out),
    ] {
        arguments.extend([flag, path.to_str().unwrap()]);
    }
    arguments
}

#[test]
fn a_killed_run_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(
        folder.path(),
        &[
            (
                "1",
                "Lighthouse",
                "A lighthouse is a tower that emits light. It guides ships at sea.",
            ),
            (
                "2",
                "Harbour",
                "A harbour is a place where ships find shelter.",
            ),
        ],
    );
    let questions = folder.path().join("questions.jsonl");
    let lines: Vec<String> = (0..6)
        .map(|number| {
            serde_json::json!({"id": number, "question": format!("What guides ships? ({number})")})
                .to_string()
        })
        .collect();
    fs::write(&questions, lines.join("\n")).unwrap();
    let out = folder.path().join("answers.jsonl");
    let arguments = asking(&index, &questions, &out);

    // Killed once the first answer is there.
    let mut child = Command::new(env!("CARGO_BIN_EXE_verbatim"))
        .args(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while child.try_wait().unwrap().is_none() {
        if fs::read_to_string(&out).is_ok_and(|text| text.contains('\n')) {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = fs::read(&out).unwrap();
    assert!(before.contains(&b'\n'));
    // As if it had been killed in the middle of a line.
    let mut half = before.clone();
    half.extend(b"{\"id\":\"5\",\"question\":\"What");
    fs::write(&out, &half).unwrap();

    verbatim(&arguments).ended(0);
    let after = fs::read_to_string(&out).unwrap();
    let whole = before.iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    assert_eq!(
        &after.as_bytes()[..whole],
        &before[..whole],
        "what was answered is kept"
    );
    let answers: Vec<Value> = after
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ids: Vec<&str> = answers
        .iter()
        .map(|answer| answer["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["0", "1", "2", "3", "4", "5"]);
    for answer in &answers {
        assert!(!answer["evidence"].as_array().unwrap().is_empty());
        assert_eq!(answer["answer"], "");
    }

    // A third run has nothing to do; other settings are refused, and so is a file that is not ours.
    verbatim(&arguments).ended(0);
    assert_eq!(fs::read_to_string(&out).unwrap(), after);
    verbatim(&[&arguments[..], &["--evidence", "1"]].concat())
        .refused(&["answers.jsonl", "settings"]);
    // So is what was asked with something else, and another question of the same id.
    for (more, word) in [
        (["--expand", "splade-tiny"], "expansion"),
        (["--generator", "smollm2"], "generator"),
        (["--scorer-model", "x"], "scorer model"),
        (["--active", "--retrieve=bm25"], "retriever"),
    ] {
        let mut other = [&arguments[..], &more].concat();
        other.retain(|&word| more[0] != "--active" || word != "--no-answer");
        verbatim(&other).refused(&["answers.jsonl:1", word]);
    }
    let asked = fs::read_to_string(&questions).unwrap();
    fs::write(&questions, asked.replace("(3)", "(three)")).unwrap();
    verbatim(&arguments).refused(&["answers.jsonl:4", "another question"]);
    fs::write(&questions, &asked).unwrap();
    // Two programs do not write one file.
    let held = fs::File::open(&out).unwrap();
    held.lock().unwrap();
    verbatim(&arguments).refused(&["answers.jsonl", "another program"]);
    drop(held);
    // Lines from before they said what they were asked with are gone on with.
    let old: Vec<String> = answers
        .iter()
        .map(|answer| {
            let mut answer = answer.clone();
            answer.as_object_mut().unwrap().remove("asked_with");
            answer.to_string() + "\n"
        })
        .collect();
    fs::write(&out, old.concat()).unwrap();
    verbatim(&arguments).ended(0);
    fs::write(&out, &after).unwrap();
    let more = folder.path().join("more.jsonl");
    write_corpus(&more, &[("3", "Compass", "A compass shows north.")]);
    let (index, more) = (index.to_str().unwrap(), more.to_str().unwrap());
    verbatim(&["index", "add", "--index", index, more]).ended(0);
    verbatim(&arguments).refused(&["answers.jsonl:1", "another index"]);
    fs::write(&out, "my diary\nno newline at the end").unwrap();
    verbatim(&arguments).refused(&["answers.jsonl:1"]);
    fs::write(&out, "my diary").unwrap();
    verbatim(&arguments).refused(&["answers.jsonl"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), "my diary");
}

#[test]
fn a_question_that_does_not_fit_does_not_end_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(
        folder.path(),
        &[("1", "Lighthouse", "A lighthouse is a tower.")],
    );
    let questions = folder.path().join("questions.jsonl");
    let long = "who guides ships ".repeat(4000);
    let lines: Vec<String> = [("a", long.as_str()), ("b", "What is a lighthouse?")]
        .iter()
        .map(|(id, question)| serde_json::json!({"id": id, "question": question}).to_string())
        .collect();
    fs::write(&questions, lines.join("\n")).unwrap();
    let out = folder.path().join("answers.jsonl");
    let arguments = asking(&index, &questions, &out);
    let run = verbatim(&arguments).ended(1);
    assert!(run.stderr.contains("question a"), "{}", run.stderr);
    let text = fs::read_to_string(&out).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines[0]["failed"].is_string() && lines[0]["id"] == "a");
    // What failed says what it was asked with, too.
    for key in ["model", "settings"] {
        assert_eq!(lines[0]["trace"][key], lines[1]["trace"][key]);
    }
    assert_eq!(lines[0]["asked_with"], lines[1]["asked_with"]);
    assert_eq!(lines[1]["evidence"][0]["quote"], "A lighthouse is a tower.");
    // Gone on with, there is nothing left to ask.
    verbatim(&arguments).ended(0);
    assert_eq!(fs::read_to_string(&out).unwrap(), text);
}

#[test]
fn questions_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(
        folder.path(),
        &[("1", "Lighthouse", "A lighthouse is a tower.")],
    );
    let questions = folder.path().join("questions.jsonl");
    let out = folder.path().join("answers.jsonl");
    let paths = [
        index.to_str().unwrap(),
        questions.to_str().unwrap(),
        out.to_str().unwrap(),
    ];
    let arguments = [
        "ask",
        "--index",
        paths[0],
        "--questions",
        paths[1],
        "--out",
        paths[2],
    ];
    verbatim(&arguments).refused(&["questions.jsonl"]);
    for (text, place) in [
        ("", "questions.jsonl"),
        (
            "{\"id\":1,\"question\":\"Who?\"}\nwho?\n",
            "questions.jsonl:2",
        ),
        ("{\"id\":1,\"query\":\"Who?\"}\n", "questions.jsonl:1"),
        (
            "{\"id\":1,\"question\":\"Who?\"}\n{\"id\":\"1\",\"question\":\"What?\"}\n",
            "questions.jsonl:2",
        ),
    ] {
        fs::write(&questions, text).unwrap();
        verbatim(&arguments).refused(&[place]);
        assert!(!out.exists(), "an empty file was left for {text:?}");
    }
}
