//! Running the real binary and reading what it prints.
#![allow(dead_code)] // Each test file uses its own part.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run of the binary left.
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// The one JSON value on standard output.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {:?}; stderr: {}", self.stdout, self.stderr))
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        assert!(
            !self.stderr.contains("a fault of this program"),
            "{}",
            self.stderr
        );
        self
    }

    /// Asserts wrong use or an error: exit code 2, nothing on standard output, and every word in the message.
    #[track_caller]
    pub fn refused(self, words: &[&str]) -> Self {
        let run = self.ended(2);
        assert!(run.stdout.is_empty(), "{}", run.stdout);
        for word in words {
            assert!(
                run.stderr.contains(word),
                "{word:?} is missing in: {}",
                run.stderr
            );
        }
        run
    }
}

/// Runs `verbatim` with these arguments.
pub fn verbatim<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> Run {
    verbatim_in(arguments, b"")
}

/// Runs `verbatim` with these arguments and this standard input.
pub fn verbatim_in<A: AsRef<std::ffi::OsStr>>(arguments: &[A], input: &[u8]) -> Run {
    verbatim_with(arguments, &[], input)
}

/// Runs `verbatim` with these arguments, environment variables and standard input.
pub fn verbatim_with<A: AsRef<std::ffi::OsStr>>(
    arguments: &[A],
    variables: &[(&str, &std::ffi::OsStr)],
    input: &[u8],
) -> Run {
    use std::io::Write;
    let mut child = Command::new(env!("CARGO_BIN_EXE_verbatim"))
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // A program that reads nothing may close the pipe first.
    let _ = child.stdin.take().expect("piped").write_all(input);
    let output = child.wait_with_output().expect("the binary ends");
    Run {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Builds an index of a JSONL corpus with the real tokenizer.
#[track_caller]
pub fn build(corpus: &Path, out: &Path) -> Run {
    let paths = [
        corpus.to_str().unwrap(),
        "--model",
        "smollm2",
        "--out",
        out.to_str().unwrap(),
    ];
    verbatim(&[&["index", "build"], &paths[..]].concat()).ended(0)
}

/// Writes documents `(id, title, text)` as JSONL.
pub fn write_corpus(path: &Path, documents: &[(&str, &str, &str)]) {
    let lines: Vec<String> = documents
        .iter()
        .map(|(id, title, text)| {
            serde_json::json!({"id": id, "title": title, "text": text}).to_string()
        })
        .collect();
    std::fs::write(path, lines.join("\n") + "\n").unwrap();
}

/// An index of documents `(id, title, text)` in `folder`, with the real tokenizer.
#[track_caller]
pub fn index_of(folder: &Path, documents: &[(&str, &str, &str)]) -> PathBuf {
    let corpus = folder.join("corpus.jsonl");
    write_corpus(&corpus, documents);
    let index = folder.join("index");
    build(&corpus, &index);
    index
}

/// Everything below a folder, for comparing before and after.
pub fn listing(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return found;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(listing(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}
