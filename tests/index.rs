//! An index through its life with the real binary: built, killed and taken up again, added to, cut down, merged,
//! given out again.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{build, verbatim, verbatim_in, write_corpus};

/// A corpus that takes a moment to build: documents of made-up sentences in several alphabets.
fn made_up(path: &Path, count: usize) {
    let sentences = [
        "The observatory recorded a faint comet above the northern ridge.",
        "Ein Brief aus Łódź beschrieb die Überfahrt über den Fluss.",
        "Старая мельница стояла у реки ещё сто лет назад.",
        "气象站的记录保存在图书馆里。",
        "In 1784 the harbour held 312 ships, 47 of them unregistered.",
    ];
    let texts: Vec<(String, String, String)> = (0..count)
        .map(|number| {
            let lines = (0..1 + number % 40).map(|line| {
                let sentence = sentences[(number * 7 + line * 3) % sentences.len()];
                format!("{sentence} ({number}-{line})")
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            (format!("m{number}"), format!("Record {number}"), text)
        })
        .collect();
    let documents: Vec<(&str, &str, &str)> = texts
        .iter()
        .map(|(id, title, text)| (id.as_str(), title.as_str(), text.as_str()))
        .collect();
    write_corpus(path, &documents);
}

/// Names and bytes of all files of an index but the lock.
fn files(index: &Path) -> Vec<(String, Vec<u8>)> {
    let below = common::listing(index).into_iter();
    below
        .filter(|path| path.is_file() && !path.ends_with("writer.lock"))
        .map(|path| {
            let name = path.strip_prefix(index).unwrap().display().to_string();
            (name, fs::read(path).unwrap())
        })
        .collect()
}

fn arguments<'a>(corpus: &'a Path, out: &'a Path) -> Vec<&'a str> {
    let mut arguments = vec!["index", "build", corpus.to_str().unwrap()];
    arguments.extend(["--model", "smollm2", "--out", out.to_str().unwrap()]);
    arguments
}

#[test]
fn a_build_that_is_killed_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    made_up(&corpus, 15_000);
    let whole = folder.path().join("whole.index");
    build(&corpus, &whole);
    let out = folder.path().join("killed.index");
    let start = |jobs: &str| {
        Command::new(env!("CARGO_BIN_EXE_verbatim"))
            .args(arguments(&corpus, &out))
            .args(["--jobs", jobs])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    // Killed later each time, until it is done before it is killed.
    for step in 1.. {
        let mut child = start(if step % 2 == 0 { "1" } else { "2" });
        for _ in 0..step * 8 {
            std::thread::sleep(Duration::from_millis(100));
            if child.try_wait().unwrap().is_some() {
                break;
            }
        }
        let _ = child.kill();
        if child.wait().unwrap().success() {
            assert!(step > 1, "it was never killed");
            break;
        }
        let opened = verbatim(&["index", "stat", "--index", out.to_str().unwrap()]);
        assert_ne!(opened.code, Some(0), "a half-built index was opened");
    }
    assert!(files(&out) == files(&whole), "the bytes differ");
    // The finished index is not built over.
    verbatim(&arguments(&corpus, &out)).refused(&["there is an index already"]);
}

/// The signal of Ctrl-C, in the middle of reading and of sorting.
#[cfg(unix)]
#[test]
fn a_build_that_is_interrupted_says_so_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    made_up(&corpus, 15_000);
    let whole = folder.path().join("whole.index");
    build(&corpus, &whole);
    let out = folder.path().join("interrupted.index");
    let mut interrupted = 0;
    for step in 1.. {
        let child = Command::new(env!("CARGO_BIN_EXE_verbatim"))
            .args(arguments(&corpus, &out))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(step * 400));
        let signal = ["-INT", &child.id().to_string()];
        // It fails where the build has ended meanwhile.
        let _ = Command::new("kill")
            .args(signal)
            .stderr(Stdio::null())
            .status();
        let ended = child.wait_with_output().unwrap();
        if ended.status.success() {
            break;
        }
        interrupted += 1;
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{said}");
        assert!(said.contains("the same command goes on"), "{said}");
        assert!(ended.stdout.is_empty());
        let opened = verbatim(&["index", "stat", "--index", out.to_str().unwrap()]);
        assert_ne!(opened.code, Some(0), "a half-built index was opened");
    }
    assert!(interrupted > 0, "it was never interrupted");
    assert!(files(&out) == files(&whole), "the bytes differ");
}

#[test]
fn an_index_through_its_life() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let first: &[(&str, &str, &str)] = &[
        (
            "1",
            "Ada Lovelace",
            "Ada Lovelace was an English mathematician.",
        ),
        (
            "2",
            "Alan Turing",
            "Alan Turing was an English mathematician.\nHe broke ciphers.",
        ),
    ];
    let second: &[(&str, &str, &str)] = &[("3", "Grace Hopper", "Grace  Hopper wrote a compiler.")];
    write_corpus(Path::new(&path("first.jsonl")), first);
    write_corpus(Path::new(&path("second.jsonl")), second);
    let index = path("life.index");
    build(Path::new(&path("first.jsonl")), Path::new(&index));

    verbatim(&["index", "add", "--index", &index, &path("second.jsonl")]).ended(0);
    let again = verbatim(&["index", "add", "--index", &index, &path("second.jsonl")]);
    again.refused(&["second.jsonl:1", "\"3\"", "in the index"]);
    let stat = verbatim(&["index", "stat", "--index", &index, "--json"])
        .ended(0)
        .json();
    assert_eq!(
        (stat["documents"].as_u64(), stat["segments"].as_u64()),
        (Some(3), Some(2))
    );
    let search = [
        "search",
        "--index",
        &index,
        "English mathematician",
        "--json",
    ];
    assert_eq!(verbatim(&search).ended(0).json()["occurrences"], 2);

    // By argument, by file and by standard input; an unknown id is told and exits with 1.
    let unknown = verbatim(&["index", "delete", "--index", &index, "1", "nobody"]).ended(1);
    assert!(unknown.stderr.contains("\"nobody\""), "{}", unknown.stderr);
    assert_eq!(verbatim(&search).ended(0).json()["occurrences"], 1);
    let exported = verbatim(&["index", "export", "--index", &index])
        .ended(0)
        .stdout;
    let expected = fs::read_to_string(path("first.jsonl")).unwrap();
    let expected = expected.lines().skip(1).collect::<Vec<_>>().join("\n");
    let second_lines = fs::read_to_string(path("second.jsonl")).unwrap();
    assert_eq!(exported, format!("{expected}\n{second_lines}"));

    let merged = verbatim(&["index", "merge", "--index", &index, "--json"])
        .ended(0)
        .json();
    assert_eq!(
        (merged["segments"].as_u64(), merged["removed"].as_u64()),
        (Some(1), Some(1))
    );
    verbatim(&["index", "verify", "--index", &index]).ended(0);
    for (name, bytes) in files(Path::new(&index)) {
        assert!(
            !bytes.windows(8).any(|window| window == b"Lovelace"),
            "{name}"
        );
    }
    verbatim_in(
        &["index", "delete", "--index", &index, "--ids", "-"],
        b"2\r\n\n3\n",
    )
    .ended(0);
    verbatim(&search).ended(1);
    let none = path("none.index");
    verbatim(&["index", "delete", "--index", &none, "1"]).refused(&["no such folder"]);
    verbatim(&["index", "delete", "--index", &index]).refused(&["<ID>"]);
}

#[test]
fn passages_that_are_added_are_grouped_too() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    write_corpus(&corpus, &[("1", "Alpha", "One."), ("2", "Alpha", "Two.")]);
    let out = folder.path().join("index");
    verbatim(&[&arguments(&corpus, &out)[..], &["--group-by", "title"]].concat()).ended(0);
    write_corpus(&corpus, &[("3", "Beta", "Three."), ("4", "Beta", "Four.")]);
    let (index, more) = (out.to_str().unwrap(), corpus.to_str().unwrap());
    verbatim(&[
        "index",
        "add",
        "--index",
        index,
        more,
        "--group-by",
        "title",
    ])
    .ended(0);
    let stat = verbatim(&["index", "stat", "--index", index, "--json"]).ended(0);
    assert_eq!(stat.json()["documents"], 2);
}

/// Where nobody reads what is said, a command ends as it would.
#[cfg(unix)]
#[test]
fn a_closed_standard_error_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    made_up(&corpus, 10);
    let out = folder.path().join("index");
    for (arguments, code) in [
        (arguments(&corpus, &out), 0),
        (vec!["search", "--index", "nowhere.index", "a"], 2),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_verbatim"))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}

#[test]
fn without_texts_a_quote_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    fs::write(
        &corpus,
        "{\"id\":\"7\",\"title\":\"Comet\",\"text\":\"A  faint comet\\twas seen.\",\"year\":1784}\n",
    )
    .unwrap();
    let out = folder.path().join("small.index");
    let mut build = arguments(&corpus, &out);
    build.extend(["--store", "none"]);
    verbatim(&build).ended(0);
    let found = verbatim(&[
        "search",
        "--index",
        out.to_str().unwrap(),
        "faint comet was",
        "--json",
    ]);
    let found = found.ended(0).json().to_string();
    assert!(found.contains("\"decoded\":true"), "{found}");
    assert!(found.contains("\"metadata\":{\"year\":1784}"), "{found}");
}
