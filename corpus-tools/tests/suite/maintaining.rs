//! Adding, deleting, merging, exporting: the index answers as one that was built of its live documents.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use corpus_tools::maintain::{MergeOptions, add, delete, export, merge};
use corpus_tools::store::Stored;
use corpus_tools::{BuildError, BuildOptions, Index, build, verify};
use proptest::prelude::*;

use crate::common::{HARD, corpus, files, indexed, lines, many, options, tokenizer};

/// Everything an index says, in an order that does not depend on its segments.
fn answers(index: &Index) -> Vec<String> {
    let mut said = Vec::new();
    let fm = index.fm();
    said.push(format!("{} {}", fm.documents(), fm.tokens()));
    let id = |number| index.document(number).unwrap().id.to_owned();
    let mut words = BTreeSet::new();
    for &(_, title, text) in HARD {
        words.extend(title.split_whitespace());
        words.extend(text.split_whitespace().take(4));
    }
    for word in words {
        let phrase = tokenizer().encode_text(&format!(" {word}"));
        let ranges = fm.range(&phrase);
        let mut next = Vec::new();
        fm.continuations(&ranges, &mut next);
        let counts = fm.document_counts(&ranges, 1000).counts;
        let mut counts: Vec<_> = counts.iter().map(|&(d, n)| (id(d), n)).collect();
        counts.sort();
        let found = index.lexical().search(word, 100).unwrap();
        let mut found: Vec<_> = found
            .iter()
            .map(|&(number, score)| (id(number), score.to_bits()))
            .collect();
        found.sort();
        said.push(format!(
            "{word} {} {next:?} {counts:?} {found:?}",
            fm.count(&ranges)
        ));
    }
    for number in index.documents() {
        let document = index.document(number).unwrap();
        said.push(format!(
            "{} {} {:?} {:?}",
            document.id,
            document.title,
            document.text,
            document.metadata()
        ));
    }
    said
}

#[test]
fn documents_are_added() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = indexed(dir.path(), &HARD[..5]);
    let more = corpus(dir.path(), "more.jsonl", lines(&HARD[5..]));
    let out = index.path().to_owned();
    let report = add(&options(&more, &out), &()).unwrap();
    assert_eq!((report.documents, report.segments), (HARD.len() as u64, 2));
    // A reader that was open sees what it saw.
    assert_eq!(index.fm().documents(), 5);
    let whole = tempfile::tempdir().unwrap();
    let (whole, _) = indexed(whole.path(), HARD);
    assert_eq!(answers(&Index::open(&out).unwrap()), answers(&whole));
    verify(&out, &()).unwrap();

    let before = files(&out);
    let error = add(&options(&more, &out), &()).unwrap_err();
    assert!(matches!(&error, BuildError::DuplicateId { first, .. } if first == "in the index"));
    assert!(files(&out) == before);
    let nothing = corpus(dir.path(), "nothing.jsonl", "");
    let error = add(&options(&nothing, &out), &()).unwrap_err();
    assert!(matches!(error, BuildError::Empty { .. }), "{error}");
    assert!(files(&out) == before);
    // A deleted id may come again.
    delete(&out, ["ko"]).unwrap();
    let again = corpus(
        dir.path(),
        "again.jsonl",
        lines(&[("ko", "new", "The new red fox.")]),
    );
    add(&options(&again, &out), &()).unwrap();
    let index = Index::open(&out).unwrap();
    let number = index.document_by_external_id("ko").unwrap().unwrap();
    assert_eq!(index.document(number).unwrap().title, "new");
}

#[test]
fn deleted_documents_are_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = indexed(dir.path(), HARD);
    let out = index.path().to_owned();
    let report = delete(&out, ["fox", "none", "zh", "fox"]).unwrap();
    assert_eq!(
        (report.deleted, report.unknown),
        (2, vec!["none".to_owned()])
    );
    let rest: Vec<_> = HARD
        .iter()
        .copied()
        .filter(|document| !["fox", "zh"].contains(&document.0))
        .collect();
    let fresh = tempfile::tempdir().unwrap();
    let (fresh, _) = indexed(fresh.path(), &rest);
    let left = Index::open(&out).unwrap();
    assert_eq!(answers(&left), answers(&fresh));
    assert_eq!(left.document_by_external_id("fox").unwrap(), None);
    let (mine, theirs) = (left.stat(), fresh.stat());
    assert_eq!(mine.deleted, 2);
    assert_eq!(
        (mine.documents, mine.paragraphs, mine.tokens),
        (theirs.documents, theirs.paragraphs, theirs.tokens)
    );
    verify(&out, &()).unwrap();
    assert_eq!(delete(&out, ["fox"]).unwrap().unknown, ["fox"]);
    assert_eq!(index.fm().documents(), HARD.len() as u64);

    let merged = merge(&MergeOptions::new(&out), &()).unwrap();
    assert_eq!((merged.removed, merged.documents), (2, rest.len() as u64));
    assert!(merged.left.is_empty());
    verify(&out, &()).unwrap();
    let segment = |index: &Path, name: &str| files(&index.join("segments").join(name));
    assert!(segment(&out, "000002") == segment(fresh.path(), "000001"));
    // Nothing of the texts is left in any file; the reader from before still has them.
    for (name, bytes) in files(&out) {
        for gone in ["lazy dog", "人口一千三百万"] {
            let found = bytes.windows(gone.len()).any(|w| w == gone.as_bytes());
            assert!(!found, "{gone} is in {name:?}");
        }
    }
    assert!(answers(&index).iter().any(|line| line.contains("lazy dog")));
    let manifest = fs::read(out.join("manifest.json")).unwrap();
    assert_eq!(merge(&MergeOptions::new(&out), &()).unwrap().segments, 1);
    assert_eq!(fs::read(out.join("manifest.json")).unwrap(), manifest);
}

#[test]
fn everything_can_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = indexed(dir.path(), HARD);
    let out = index.path().to_owned();
    delete(&out, HARD.iter().map(|document| document.0)).unwrap();
    for merged in [false, true] {
        if merged {
            let report = merge(&MergeOptions::new(&out), &()).unwrap();
            assert_eq!(report.segments, 0);
        }
        let empty = Index::open(&out).unwrap();
        assert_eq!((empty.fm().documents(), empty.fm().tokens()), (0, 0));
        assert!(empty.lexical().search("fox", 3).unwrap().is_empty());
        let fox = tokenizer().encode_text(" red fox");
        assert_eq!(empty.fm().count(&empty.fm().range(&fox)), 0);
        verify(&out, &()).unwrap();
        empty.stat();
    }
    let path = corpus(dir.path(), "again.jsonl", lines(HARD));
    add(&options(&path, &out), &()).unwrap();
    assert_eq!(
        Index::open(&out).unwrap().fm().documents(),
        HARD.len() as u64
    );
}

#[test]
fn what_is_exported_makes_the_same_index() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = indexed(dir.path(), HARD);
    let mut out = Vec::new();
    assert_eq!(export(&index, &mut out, &()).unwrap(), HARD.len() as u64);
    assert_eq!(String::from_utf8(out.clone()).unwrap(), lines(HARD));
    delete(index.path(), ["fox"]).unwrap();
    let mut fewer = Vec::new();
    let left = Index::open(index.path()).unwrap();
    export(&left, &mut fewer, &()).unwrap();
    assert_eq!(String::from_utf8(fewer).unwrap(), lines(&HARD[1..]));
}

#[test]
fn without_texts_quotes_are_what_the_tokens_spell() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", lines(HARD));
    let out = dir.path().join("index");
    let unkept = BuildOptions {
        store: Stored::None,
        ..options(&path, &out)
    };
    build(&unkept, &()).unwrap();
    verify(&out, &()).unwrap();
    for (name, bytes) in files(&out) {
        assert!(!bytes.windows(8).any(|w| w == b"lazy dog"), "{name:?}");
    }
    let index = Index::open(&out).unwrap();
    let fox = index.document_by_external_id("fox").unwrap().unwrap();
    let document = index.document(fox).unwrap();
    assert_eq!(
        document.text,
        "The red fox jumps over the lazy dog. It said \"enough.\"\nThe red fox sleeps."
    );
    let second = document.paragraphs[2].tokens.clone();
    let citation = index.cite(tokenizer(), fox, second).unwrap();
    assert_eq!(citation.quote, "The red fox sleeps.");
    assert!(citation.decoded);
    let span = citation.start_byte as usize..citation.end_byte as usize;
    assert_eq!(&document.text[span], citation.quote);
    for number in index.documents() {
        for paragraph in index.paragraphs(number).unwrap().iter().skip(1) {
            index
                .cite(tokenizer(), number, paragraph.tokens.clone())
                .unwrap();
        }
    }

    // BM25 and the tokens are those of an index with texts; a merge keeps both.
    let kept = dir.path().join("kept");
    build(&options(&path, &kept), &()).unwrap();
    let kept = Index::open(&kept).unwrap();
    let only = |index: &Index| {
        let said = answers(index);
        said[..said.len() - HARD.len()].to_vec()
    };
    assert_eq!(only(&index), only(&kept));
    delete(&out, ["fox"]).unwrap();
    delete(kept.path(), ["fox"]).unwrap();
    merge(&MergeOptions::new(&out), &()).unwrap();
    merge(&MergeOptions::new(kept.path()), &()).unwrap();
    verify(&out, &()).unwrap();
    let (index, kept) = (
        Index::open(&out).unwrap(),
        Index::open(kept.path()).unwrap(),
    );
    let lexical = |index: &Index| files(&index.path().join("segments/000002/lexical"));
    assert!(lexical(&index) == lexical(&kept));
}

#[test]
fn metadata_are_cited() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = indexed(dir.path(), &HARD[..1]);
    let number = index.documents().next().unwrap();
    let span = index.paragraphs(number).unwrap()[1].tokens.clone();
    let citation = index.cite(tokenizer(), number, span).unwrap();
    let json = serde_json::to_value(&citation).unwrap();
    assert_eq!(json["metadata"], serde_json::json!({"kind": "made-up"}));
    assert_eq!(json.get("decoded"), None);
}

#[test]
fn writers_find_what_they_need_or_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    let path = corpus(dir.path(), "corpus.jsonl", lines(HARD));
    let told = [
        add(&options(&path, &none), &()).unwrap_err(),
        delete(&none, ["a"]).unwrap_err(),
        merge(&MergeOptions::new(&none), &()).unwrap_err(),
    ];
    for error in told {
        assert!(error.to_string().contains("no such folder"), "{error}");
    }
    assert!(!none.exists());
    let small = MergeOptions {
        memory: Some(1 << 20),
        ..MergeOptions::new(indexed(dir.path(), HARD).0.path())
    };
    assert!(matches!(merge(&small, &()), Err(BuildError::Memory { .. })));
}

#[derive(Clone, Debug)]
enum Change {
    Add(usize),
    Delete(Vec<usize>),
    Merge(Option<u64>),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        3 => (1usize..9).prop_map(Change::Add),
        3 => prop::collection::vec(0usize..60, 1..8).prop_map(Change::Delete),
        2 => prop::option::of(300u64..3000).prop_map(Change::Merge),
    ];
    prop::collection::vec(change, 1..7)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// Whatever is added, deleted and merged in whatever order, the index answers as a fresh build of its
    /// live documents; after a merge its segments have the bytes of that build.
    #[test]
    fn any_history_ends_like_a_fresh_build(history in changes(), none in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("index");
        let store = if none { Stored::None } else { Stored::Text };
        let with = |path: &Path, out: &Path| BuildOptions { store, ..options(path, out) };
        let of = |numbers: &[usize]| -> String {
            numbers.iter().map(|&number| {
                let (id, title, text) = HARD[number % HARD.len()];
                let text = format!("{text}\n number {number} red fox");
                lines(&[(&format!("{id}{number}"), title, &text)])
            }).collect()
        };
        let id = |number: usize| format!("{}{number}", HARD[number % HARD.len()].0);
        let mut live: Vec<usize> = (0..4).collect();
        let mut made = 4;
        let first = corpus(dir.path(), "first.jsonl", of(&live));
        build(&with(&first, &out), &()).unwrap();
        let mut merged = None;
        for change in history {
            merged = None;
            match change {
                Change::Add(count) => {
                    let new: Vec<usize> = (made..made + count).collect();
                    made += count;
                    let path = corpus(dir.path(), "new.jsonl", of(&new));
                    add(&with(&path, &out), &()).unwrap();
                    live.extend(new);
                }
                Change::Delete(numbers) => {
                    let gone: BTreeSet<usize> = numbers.iter().copied().filter(|n| live.contains(n)).collect();
                    let report = delete(&out, numbers.iter().map(|&n| id(n))).unwrap();
                    prop_assert_eq!(report.deleted, gone.len() as u64);
                    live.retain(|number| !gone.contains(number));
                }
                Change::Merge(segment_tokens) => {
                    let options = MergeOptions { segment_tokens, jobs: 1, ..MergeOptions::new(&out) };
                    merge(&options, &()).unwrap();
                    merged = Some(segment_tokens);
                }
            }
        }
        let index = Index::open(&out).unwrap();
        let ids: Vec<String> = index.documents().map(|d| index.document(d).unwrap().id.to_owned()).collect();
        prop_assert_eq!(&ids, &live.iter().map(|&n| id(n)).collect::<Vec<_>>());
        verify(&out, &()).unwrap();
        if live.is_empty() {
            return Ok(());
        }
        let fresh = dir.path().join("fresh");
        let path = corpus(dir.path(), "fresh.jsonl", of(&live));
        let segment_tokens = merged.flatten();
        build(&BuildOptions { segment_tokens, ..with(&path, &fresh) }, &()).unwrap();
        prop_assert_eq!(answers(&index), answers(&Index::open(&fresh).unwrap()));
        if merged.is_some() {
            let segments = |index: &Path| -> Vec<_> {
                let manifest = Index::open(index).unwrap().manifest().clone();
                let names = manifest.segments.iter().map(|entry| &entry.name);
                names.map(|name| files(&index.join("segments").join(name))).collect()
            };
            prop_assert!(segments(&out) == segments(&fresh));
        }
    }
}

#[test]
fn a_reader_stays_through_every_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", many(0, 60));
    let out = dir.path().join("index");
    let small = |path: &Path| BuildOptions {
        segment_tokens: Some(3_000),
        ..options(path, &out)
    };
    build(&small(&path), &()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One reader keeps the index open, one opens it again and again.
        let open = Index::open(&out).unwrap();
        let before = answers(&open);
        let reader = scope.spawn(|| {
            let mut opened = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let index = Index::open(&out).unwrap();
                let document = index.documents().next().unwrap();
                index.document(document).unwrap();
                index.lexical().search("number fox", 3).unwrap();
                opened += 1;
            }
            opened
        });
        for round in 1..4 {
            let more = corpus(dir.path(), "more.jsonl", many(round * 60, 20));
            add(&small(&more), &()).unwrap();
            delete(&out, (0..5).map(|n| format!("d{}", round * 7 + n))).unwrap();
            merge(&MergeOptions::new(&out), &()).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
        assert_eq!(answers(&open), before);
    });
    verify(&out, &()).unwrap();
}
