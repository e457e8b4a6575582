//! Builds that succeed, fail, are interrupted and are killed; and what they leave behind.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use corpus_tools::reader::{Entry, Input, Reader};
use corpus_tools::{BuildError, BuildOptions, Index, IndexError, build, verify};
use fmindex::Progress;

use crate::common::{HARD, corpus, files, indexed, lines, options, shared, tokenizer};

fn is_nothing(out: &Path) {
    assert!(!out.exists(), "{out:?} was left");
}

#[test]
fn what_is_built_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (index, report) = indexed(dir.path(), HARD);
    assert_eq!(report.documents, HARD.len() as u64);
    assert_eq!(report.skipped_count, 0);
    assert_eq!(report.tokens, index.fm().tokens());
    assert_eq!(
        report.text_bytes,
        HARD.iter().map(|d| d.2.len() as u64).sum::<u64>()
    );
    for &(id, title, text) in HARD {
        let number = index.document_by_external_id(id).unwrap().unwrap();
        let document = index.document(number).unwrap();
        assert_eq!(
            (document.id, document.title, &*document.text),
            (id, title, text)
        );
        assert_eq!(document.metadata()["kind"], "made-up");
        assert!(document.paragraphs[0].is_title());
        let last = document.paragraphs.last().unwrap();
        assert_eq!(index.fm().document_length(number), last.tokens.end + 1);
        for paragraph in &document.paragraphs {
            let at = document.paragraph_at(paragraph.tokens.start);
            assert_eq!(at, Some(paragraph));
        }
    }
    assert_eq!(index.document_by_external_id("none").unwrap(), None);
    assert_eq!(
        index.tokenizer().unwrap().fingerprint(),
        tokenizer().fingerprint()
    );
    let checked = verify(index.path(), &()).unwrap();
    assert_eq!(
        (checked.documents, checked.sampled),
        (HARD.len() as u64, HARD.len() as u64)
    );
    let stat = index.stat();
    assert_eq!(
        (stat.documents, stat.tokens),
        (report.documents, report.tokens)
    );
    assert_eq!(stat.bytes, report.bytes);
    assert!(stat.components.iter().any(|c| c.name == "lexical"));
}

#[test]
fn special_tokens_in_a_text_are_text() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = indexed(dir.path(), HARD);
    for document in index.documents() {
        let length = index.fm().document_length(document);
        for token in index.fm().extract(document, 0..length) {
            assert!(!tokenizer().is_control(token));
        }
    }
}

#[test]
fn threads_do_not_change_the_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..3000)
        .map(|i| {
            format!(
                "{{\"id\":\"{i}\",\"title\":\"No. {i}\",\"text\":\"{}\"}}\n",
                format!("the number {} é ", i * 7919 % 997).repeat(i % 90)
            )
        })
        .collect();
    let path = corpus(dir.path(), "corpus.jsonl", text);
    let built = |jobs: usize| {
        let out = dir.path().join(format!("index{jobs}"));
        build(
            &BuildOptions {
                jobs,
                segment_tokens: Some(400_000),
                ..options(&path, &out)
            },
            &(),
        )
        .unwrap();
        files(&out)
    };
    let one = built(1);
    assert!(one.keys().filter(|name| name.ends_with("text.bin")).count() > 1);
    assert!(one == built(4), "the files depend on the threads");
}

#[test]
fn many_segments_are_one_index() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", lines(HARD));
    let mut counts = Vec::new();
    for (name, segment_tokens) in [("one", None), ("some", Some(300)), ("each", Some(170))] {
        let out = dir.path().join(name);
        build(
            &BuildOptions {
                segment_tokens,
                ..options(&path, &out)
            },
            &(),
        )
        .unwrap();
        verify(&out, &()).unwrap();
        let index = Index::open(&out).unwrap();
        let phrase = tokenizer().encode_text(" red fox");
        let ids: Vec<String> = index
            .documents()
            .map(|d| index.document(d).unwrap().id.to_owned())
            .collect();
        counts.push((
            ids,
            index.fm().count(&index.fm().range(&phrase)),
            index.manifest().counts,
        ));
    }
    assert!(counts[0] == counts[1] && counts[1] == counts[2]);
    assert_eq!(counts[0].1, 2);
}

#[test]
fn a_failed_build_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("index");
    let fails = |content: &str, strict: bool| {
        let path = corpus(dir.path(), "corpus.jsonl", content);
        let error = build(
            &BuildOptions {
                strict,
                ..options(&path, &out)
            },
            &(),
        )
        .unwrap_err();
        is_nothing(&out);
        error
    };
    assert!(matches!(
        fails("", false),
        BuildError::Empty { skipped: 0, .. }
    ));
    assert!(matches!(fails("prose\n", false), BuildError::Read(_)));
    let good = lines(&HARD[..2]);
    let strict = fails(&format!("{good}nonsense\n"), true);
    assert!(
        matches!(&strict, BuildError::Strict(bad) if bad.line == 3),
        "{strict}"
    );
    let again = fails(&format!("{good}{good}"), false).to_string();
    assert!(
        again.contains("corpus.jsonl:3") && again.contains("corpus.jsonl:1"),
        "{again}"
    );
    let missing = build(&options(&dir.path().join("none"), &out), &()).unwrap_err();
    assert!(missing.to_string().contains("none"));
    is_nothing(&out);

    let small = BuildOptions {
        memory: Some(1 << 20),
        ..options(&dir.path().join("corpus.jsonl"), &out)
    };
    let BuildError::Memory { needed, .. } = build(&small, &()).unwrap_err() else {
        panic!()
    };
    corpus(dir.path(), "corpus.jsonl", &good);
    build(
        &BuildOptions {
            memory: Some(needed),
            ..small
        },
        &(),
    )
    .unwrap();
}

#[test]
fn a_document_too_long_for_the_budget_is_left_out_with_its_figure() {
    let dir = tempfile::tempdir().unwrap();
    let long = "a".repeat(1_500_000);
    let documents = [("long", "one word", long.as_str()), ("fox", "", "A fox.")];
    let path = corpus(dir.path(), "corpus.jsonl", lines(&documents));
    let out = dir.path().join("index");
    let tight = BuildOptions {
        memory: Some(1),
        ..options(&path, &out)
    };
    let BuildError::Memory { needed, .. } = build(&tight, &()).unwrap_err() else {
        panic!()
    };
    let tight = BuildOptions {
        memory: Some(needed),
        ..tight
    };
    let report = build(&tight, &()).unwrap();
    assert_eq!((report.documents, report.skipped_count), (1, 1));
    let reason = &report.skipped[0].reason;
    assert!(reason.contains("needs a memory budget of"), "{reason}");
}

#[test]
fn bad_records_are_in_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(
        dir.path(),
        "corpus.jsonl",
        format!("{}nonsense\n{{\"id\":1}}\n", lines(HARD)),
    );
    let report = build(&options(&path, &dir.path().join("index")), &()).unwrap();
    assert_eq!(
        (report.documents, report.skipped_count),
        (HARD.len() as u64, 2)
    );
    assert_eq!(report.skipped[1].line, HARD.len() as u64 + 2);
}

#[test]
fn only_a_new_folder_is_built_in() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", lines(HARD));
    // An empty folder will do.
    let out = dir.path().join("index");
    fs::create_dir(&out).unwrap();
    build(&options(&path, &out), &()).unwrap();
    let before = files(&out);
    assert!(matches!(
        build(&options(&path, &out), &()),
        Err(BuildError::Exists { .. })
    ));
    assert_eq!(files(&out), before);

    let foreign = dir.path().join("photos");
    fs::create_dir(&foreign).unwrap();
    for name in ["cat.jpg", "tokenizer.json"] {
        fs::write(foreign.join(name), "mine").unwrap();
        let error = build(&options(&path, &foreign), &())
            .unwrap_err()
            .to_string();
        assert!(error.contains("photos") && error.contains(name), "{error}");
        assert_eq!(fs::read_to_string(foreign.join(name)).unwrap(), "mine");
        fs::remove_file(foreign.join(name)).unwrap();
    }
    let file = corpus(dir.path(), "file", "mine");
    assert!(matches!(
        build(&options(&path, &file), &()),
        Err(BuildError::NotOurs { .. })
    ));
}

/// Says when a build has begun and waits to be let on.
struct Gate {
    reached: Sender<()>,
    open: Mutex<Receiver<()>>,
}

impl Progress for Gate {
    fn stage(&self, name: &'static str, _: u64) {
        if name == "reading and tokenizing" {
            self.reached.send(()).unwrap();
            self.open.lock().unwrap().recv().unwrap();
        }
    }
}

#[test]
fn a_second_writer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", lines(HARD));
    let out = dir.path().join("index");
    let (reached, wait_reached) = channel();
    let (let_on, open) = channel();
    let gate = Gate {
        reached,
        open: Mutex::new(open),
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| build(&options(&path, &out), &gate));
        wait_reached.recv().unwrap();
        let second = build(&options(&path, &out), &()).unwrap_err();
        assert!(matches!(&second, BuildError::Locked { .. }), "{second}");
        assert!(second.to_string().contains(&*out.to_string_lossy()));
        assert!(matches!(
            Index::open(&out),
            Err(IndexError::NotAnIndex { .. })
        ));
        let_on.send(()).unwrap();
        first.join().unwrap().unwrap();
    });
    verify(&out, &()).unwrap();
}

#[test]
fn summaries_are_indexed() {
    let dir = tempfile::tempdir().unwrap();
    let json = r#"{"Fox": {"title": "Fox", "extract": "Foxes are small.", "description": "Animal", "topic": "Biology"}}"#;
    let path = corpus(dir.path(), "summaries.json", json);
    let out = dir.path().join("index");
    build(
        &BuildOptions::new([Input::WikiSummaries(path)], &out, tokenizer()),
        &(),
    )
    .unwrap();
    let index = Index::open(&out).unwrap();
    let number = index.document_by_external_id("Fox").unwrap().unwrap();
    assert_eq!(
        index.document(number).unwrap().metadata()["topic"],
        "Biology"
    );
}

#[test]
fn long_shared_articles_are_indexed_whole() {
    let Some(path) = shared("corpora/articles.jsonl.zst") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut content = String::new();
    for entry in Reader::new([Input::named(path)]).take(40) {
        if let Entry::Record(record) = entry.unwrap() {
            content += &lines(&[(&record.id, &record.title, &record.text)]);
        }
    }
    let path = corpus(dir.path(), "articles.jsonl", content);
    let out = dir.path().join("index");
    let report = build(&options(&path, &out), &()).unwrap();
    assert_eq!((report.documents, report.skipped_count), (40, 0));
    verify(&out, &()).unwrap();
}
