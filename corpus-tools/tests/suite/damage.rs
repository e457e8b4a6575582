//! Truncated, altered and foreign files: refused by name, and never a panic.

use std::fs;
use std::path::{Path, PathBuf};

use corpus_tools::{Index, IndexError, build, verify};
use models::tokenizer::Tokenizer;

use crate::common::{HARD, corpus, lines, options, tokenizer};

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.file_name().unwrap() != "writer.lock" {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn built(dir: &Path) -> PathBuf {
    let corpus = corpus(dir, "corpus.jsonl", lines(HARD));
    let out = dir.join("index");
    build(&options(&corpus, &out), &()).unwrap();
    out
}

/// Puts `bytes` where `path` stands: a new file, so that no open map is written to.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Everything an index can be asked; answers and errors are both well.
fn ask_everything(index: &Index) {
    for question in ["the red fox", "维基百科 中国", "nothing"] {
        let _ = index.lexical().search(question, 5);
        let _ = index.lexical().question_terms(question);
    }
    for &(id, _, _) in HARD {
        let _ = index.document_by_external_id(id);
    }
    for number in index.documents() {
        if let Ok(document) = index.document(number) {
            document.metadata();
            for paragraph in &document.paragraphs {
                document.paragraph_text(paragraph);
                let _ = index.cite(tokenizer(), number, paragraph.tokens.clone());
            }
        }
        let _ = index.cite(tokenizer(), number, 3..9);
    }
    index.stat();
}

#[test]
fn truncated_files_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let out = built(dir.path());
    for path in files(&out) {
        let good = fs::read(&path).unwrap();
        // The manifest ends with a newline that nobody misses.
        for length in [0, 1, good.len() / 2, good.len() - 2] {
            replace(&path, &good[..length]);
            let error = Index::open(&out).unwrap_err().to_string();
            let name = path.file_name().unwrap().to_string_lossy();
            assert!(error.contains(&*name), "{name}: {error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(Index::open(&out).is_err());
        fs::write(&path, good).unwrap();
    }
    verify(&out, &()).unwrap();
}

#[test]
fn altered_files_are_found_by_verify_and_harm_no_query() {
    let dir = tempfile::tempdir().unwrap();
    let out = built(dir.path());
    for path in files(&out) {
        let good = fs::read(&path).unwrap();
        let steps = 48;
        for step in 0..steps {
            let at = (good.len() - 1) * step / (steps - 1).max(1);
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (step % 8);
            replace(&path, &bytes);
            if let Ok(index) = Index::open(&out) {
                ask_everything(&index);
            }
            let outcome = verify(&out, &());
            assert!(
                outcome.is_err(),
                "{path:?}: byte {at} was altered and not found"
            );
        }
        // And all of the body at once.
        let mut bytes = good.clone();
        let from = bytes.len().min(64);
        bytes[from..].fill(0xA5);
        replace(&path, &bytes);
        if let Ok(index) = Index::open(&out) {
            ask_everything(&index);
        }
        replace(&path, &good);
    }
    verify(&out, &()).unwrap();
}

#[test]
fn other_versions_and_other_places_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = built(dir.path());
    let manifest = out.join("manifest.json");
    let good = fs::read_to_string(&manifest).unwrap();
    let refused = |content: &str, expected: &str| {
        replace(&manifest, content.as_bytes());
        let error = Index::open(&out).unwrap_err().to_string();
        assert!(
            error.contains("manifest.json") && error.contains(expected),
            "{error}"
        );
    };
    refused(
        &good.replace("\"version\": 1", "\"version\": 2"),
        "version 2",
    );
    refused(&good.replace("verbatim index", "some index"), "some index");
    refused("{}", "manifest");
    refused(
        &good.replace("\"documents\": 12", "\"documents\": 13"),
        "checksum",
    );
    replace(&manifest, good.as_bytes());
    Index::open(&out).unwrap();

    assert!(matches!(
        Index::open(dir.path().join("none")),
        Err(IndexError::NotAnIndex { .. })
    ));
    assert!(matches!(
        Index::open(dir.path()),
        Err(IndexError::NotAnIndex { .. })
    ));
    let file = dir.path().join("corpus.jsonl");
    assert!(matches!(
        Index::open(file),
        Err(IndexError::NotAnIndex { .. })
    ));
}

#[test]
fn a_model_of_another_vocabulary_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let index = Index::open(built(dir.path())).unwrap();
    index.check_tokenizer(tokenizer()).unwrap();
    let json = String::from_utf8(tokenizer().to_json().unwrap()).unwrap();
    // The same vocabulary without its last token is another one.
    let mut other: serde_json::Value = serde_json::from_str(&json).unwrap();
    other["model"]["merges"].as_array_mut().unwrap().pop();
    let vocabulary = other["model"]["vocab"].as_object_mut().unwrap();
    vocabulary.retain(|_, id| id.as_u64() != Some(272));
    let other = Tokenizer::from_json(&serde_json::to_vec(&other).unwrap()).unwrap();
    let error = index.check_tokenizer(&other).unwrap_err();
    assert!(
        matches!(error, IndexError::OtherTokenizer { .. }),
        "{error}"
    );
}
