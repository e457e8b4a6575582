//! `verbatim read` through the real binary: texts that were never indexed, a real model, a fixed seed.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{verbatim, verbatim_in};
use serde_json::Value;

/// Filler of so many sentences, each of its own words, so that the text has several chunks.
fn filler(from: usize, sentences: usize) -> String {
    (from..from + sentences)
        .map(|n| format!("In village number {n} the harvest of barley was good that year. "))
        .collect()
}

const FACT: &str = "The lighthouse of Ardnamurchan was designed by Alan Stevenson in 1849.";

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// A long text with one fact in it.
fn report(folder: &Path) -> PathBuf {
    let text = format!("{}\n\n{FACT}\n\n{}", filler(0, 60), filler(100, 60));
    write(folder, "report.txt", &text)
}

/// Asserts that every passage stands where it says, in bytes and in characters.
#[track_caller]
fn check_passages(answer: &Value, text: &str) {
    for passage in answer["passages"].as_array().unwrap() {
        let number = |key: &str| passage[key].as_u64().unwrap() as usize;
        let quote = passage["quote"].as_str().unwrap();
        assert_eq!(&text[number("start_byte")..number("end_byte")], quote);
        let (from, to) = (number("start_char"), number("end_char"));
        let characters: String = text.chars().take(to).skip(from).collect();
        assert_eq!(characters, quote);
    }
}

const SMALL: [&str; 6] = [
    "--chunk-words",
    "60",
    "--light-budget",
    "300",
    "--budget",
    "300",
];

#[test]
fn the_passage_with_the_fact_is_found_and_the_run_repeats() {
    let folder = tempfile::tempdir().unwrap();
    let path = report(folder.path());
    let text = fs::read_to_string(&path).unwrap();
    let question = "Who designed the lighthouse of Ardnamurchan?";
    for method in ["f", "fb", "order", "vanilla"] {
        let arguments = [
            &[
                "read",
                "--json",
                "--method",
                method,
                "--samples",
                "2",
                "--seed",
                "7",
            ][..],
            &SMALL,
            &[path.to_str().unwrap(), question],
        ]
        .concat();
        let answer = verbatim(&arguments).ended(0).json();
        check_passages(&answer, &text);
        let best = answer["passages"]
            .as_array()
            .unwrap()
            .iter()
            .find(|passage| passage["rank"] == 1)
            .unwrap();
        assert!(
            best["quote"].as_str().unwrap().contains(FACT),
            "{method}: {best}"
        );
        let samples = answer["trace"]["samples"]["texts"].as_array().unwrap();
        let looks = matches!(method, "f" | "fb");
        assert_eq!(samples.len(), if looks { 2 } else { 0 });
        assert!(!answer["answer"].as_str().unwrap().is_empty());
        if method == "f" {
            let mut again = verbatim(&arguments).ended(0).json();
            again["trace"]["milliseconds"] = answer["trace"]["milliseconds"].clone();
            assert_eq!(again, answer);
        }
    }
}

#[test]
fn everything_is_refused_or_cut_in_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "long.txt", &filler(0, 900));
    let path = path.to_str().unwrap();
    let question = "What was good that year?";
    verbatim(&["read", "--method", "full", path, question]).refused(&["8192", "--truncate middle"]);
    let arguments = [
        "read",
        "--method",
        "full",
        "--truncate",
        "middle",
        "--json",
        "--answer-tokens",
        "0",
        path,
        question,
    ];
    let answer = verbatim(&arguments).ended(0).json();
    assert!(answer["trace"]["cut_tokens"].as_u64().unwrap() > 1000);
    let passages = answer["passages"].as_array().unwrap();
    assert_eq!(passages[0]["start_byte"], 0);
    let last = passages.last().unwrap()["end_byte"].as_u64().unwrap();
    assert_eq!(
        last,
        fs::read_to_string(path).unwrap().trim_end().len() as u64
    );
}

#[test]
fn choices_and_self_route() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        folder.path(),
        "colours.md",
        "# Colours\n\nThe door of the house is green. The roof is red.\n",
    );
    let path = path.to_str().unwrap();
    let arguments = [
        "read",
        "--json",
        "--method",
        "order",
        "--task",
        "choice",
        "--choice",
        "green",
        "--choice",
        "yellow",
        path,
        "Which colour has the door?",
    ];
    let answer = verbatim(&arguments).ended(0).json();
    let letter = answer["answer"].as_str().unwrap();
    assert!(matches!(letter, "A" | "B"), "{letter}");
    let arguments = [
        "read",
        "--json",
        "--method",
        "self-route",
        path,
        "Which colour has the door?",
    ];
    let answer = verbatim(&arguments).ended(0).json();
    assert!(matches!(
        answer["trace"]["route"].as_str(),
        Some("retrieved" | "full")
    ));
    let arguments = [
        "read",
        "--task",
        "summary",
        "--answer-tokens",
        "20",
        path,
        "the house",
    ];
    assert!(verbatim(&arguments).ended(0).stdout.contains("Passages"));
}

#[test]
fn several_documents_in_other_scripts_and_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(
        folder.path(),
        "东京.txt",
        "\u{feff}东京是日本的首都。它很大。",
    );
    let run = verbatim_in(
        &[
            "read",
            "--json",
            "--method",
            "vanilla",
            "--answer-tokens",
            "0",
            first.to_str().unwrap(),
            "-",
            "日本的首都",
        ],
        "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย".as_bytes(),
    )
    .ended(0);
    let answer = run.json();
    let passages = answer["passages"].as_array().unwrap();
    assert_eq!(passages.len(), 2);
    assert_eq!(passages[0]["quote"], "东京是日本的首都。它很大。");
    assert_eq!(passages[1]["id"], "standard input");

    // The records of a corpus are documents too; a bad one is told of and left out.
    let corpus = "{\"id\":\"7\",\"title\":\"Tea\",\"text\":\"Tea is a drink.\"}\nnonsense\n";
    let corpus = write(folder.path(), "corpus.jsonl", corpus);
    let run = verbatim(&[
        "read",
        "--json",
        "--answer-tokens",
        "0",
        "--method",
        "order",
        corpus.to_str().unwrap(),
        "tea",
    ])
    .ended(0);
    assert!(run.stderr.contains("corpus.jsonl:2"), "{}", run.stderr);
    assert_eq!(run.json()["passages"][0]["id"], "7");

    // So are the files of a folder, and a page is read as it is seen.
    let page = "<title>Tea house</title><style>p {}</style><p>Green <b>tea</b> is served.</p>";
    let pages = folder.path().join("pages");
    fs::create_dir(&pages).unwrap();
    let other = write(&pages, "other.xhtml", page);
    let wide: Vec<u8> = "\u{feff}"
        .chars()
        .chain(page.chars())
        .collect::<String>()
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let page = pages.join("house.html");
    fs::write(&page, wide).unwrap();
    for named in [&pages, &page, &other] {
        let run = verbatim(&[
            "read",
            "--json",
            "--answer-tokens",
            "0",
            "--method",
            "order",
            named.to_str().unwrap(),
            "tea",
        ])
        .ended(0);
        let passage = run.json()["passages"][0].clone();
        assert_eq!(passage["title"], "Tea house");
        assert!(
            passage["quote"]
                .as_str()
                .unwrap()
                .contains("Green tea is served."),
            "{passage}"
        );
    }
}

#[test]
fn bad_input_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let good = write(folder, "good.txt", "Some text.");
    let good = good.to_str().unwrap();
    let missing = folder.join("missing.txt");
    verbatim(&["read", missing.to_str().unwrap(), "Who?"]).refused(&["missing.txt"]);
    verbatim(&["read", folder.join("none.jsonl").to_str().unwrap(), "Who?"])
        .refused(&["none.jsonl"]);
    verbatim(&["read", good, "  "]).refused(&["question", "empty"]);
    verbatim(&["read", good]).refused(&["QUESTION"]);
    let empty = write(folder, "empty.txt", " \n\t");
    verbatim(&["read", empty.to_str().unwrap(), "Who?"]).refused(&["no text"]);
    let binary = folder.join("picture.txt");
    fs::write(&binary, b"\x89PNG\r\n\x1a\n\0\0").unwrap();
    verbatim(&["read", binary.to_str().unwrap(), "Who?"]).refused(&["picture.txt", "binary"]);
    let other = folder.join("latin.txt");
    fs::write(&other, b"caf\xe9").unwrap();
    verbatim(&["read", other.to_str().unwrap(), "Who?"]).refused(&["latin.txt", "byte 3", "UTF-8"]);
    let zeros = folder.join("zeros.txt");
    fs::write(&zeros, b"a\0b").unwrap();
    verbatim(&["read", zeros.to_str().unwrap(), "Who?"]).refused(&["zeros.txt"]);
    verbatim(&["read", "--choice", "a", good, "Who?"]).refused(&["--task choice"]);
    verbatim(&["read", "--task", "choice", "--choice", "a", good, "Who?"]).refused(&["choices"]);
    verbatim(&["read", "--samples", "1000", good, "Who?"]).refused(&["1000"]);
    for flag in ["--answer-tokens", "--budget", "--light-budget", "--chunks"] {
        let most = u64::MAX.to_string();
        verbatim(&["read", flag, &most, good, "Who?"]).refused(&[flag, &most]);
    }
    // A passage that is more than may be read.
    let long = write(folder, "long.txt", &"A word and another. ".repeat(100));
    for budget in ["--budget", "--light-budget"] {
        verbatim(&["read", budget, "50", long.to_str().unwrap(), "Who?"])
            .refused(&["at most 50", "fewer words a chunk"]);
    }
    verbatim(&["read", "--relevance", "cross-encoder", good, "Who?"]).refused(&["--scorer-model"]);
    verbatim(&[
        "read",
        "--generator",
        "http://me:secret@localhost/v1#m",
        good,
        "Who?",
    ])
    .refused(&["password"]);
    // A port that nobody listens on.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    verbatim(&[
        "read",
        "--method",
        "order",
        "--generator",
        &address,
        good,
        "Who?",
    ])
    .refused(&["cannot be reached", &address]);
}
