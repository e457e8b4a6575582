//! Corpora as they come: compressed, broken, foreign, endless.

use std::fs;
use std::io::Write;
use std::path::Path;

use corpus_tools::reader::{BadRecord, Entry, Input, ReadError, ReadOptions, Reader, Record};

use crate::common::{HARD, corpus, lines, shared};

fn read(
    inputs: impl IntoIterator<Item = Input>,
) -> Result<(Vec<Record>, Vec<BadRecord>), ReadError> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for entry in Reader::new(inputs) {
        match entry? {
            Entry::Record(record) => good.push(*record),
            Entry::Bad(record) => bad.push(record),
        }
    }
    Ok((good, bad))
}

fn read_file(path: &Path) -> Result<(Vec<Record>, Vec<BadRecord>), ReadError> {
    read([Input::named(path)])
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bz2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compression_is_told_by_content() {
    let dir = tempfile::tempdir().unwrap();
    let plain = lines(HARD);
    let (want, _) = read_file(&corpus(dir.path(), "plain", &plain)).unwrap();
    assert_eq!(want.len(), HARD.len());
    assert_eq!(want[1].metadata["kind"], "made-up");
    let (first, second) = plain.as_bytes().split_at(plain.find('\n').unwrap() + 1);
    for (name, bytes) in [
        ("gz", gz(plain.as_bytes())),
        ("gz in two members", [gz(first), gz(second)].concat()),
        ("bz2", bz2(plain.as_bytes())),
        ("bz2 in two streams", [bz2(first), bz2(second)].concat()),
        ("zst", zst(plain.as_bytes())),
        ("zst in two frames", [zst(first), zst(second)].concat()),
        (
            "byte order mark",
            ["\u{feff}".as_bytes(), plain.as_bytes()].concat(),
        ),
        ("CR LF", plain.replace('\n', "\r\n").into_bytes()),
        ("no end of line", plain.trim_end().as_bytes().to_vec()),
        ("blank lines", plain.replace('\n', "\n\n  \n").into_bytes()),
    ] {
        // A misleading name: only the content counts.
        let path = corpus(dir.path(), "corpus.txt", bytes);
        let (found, bad) = read_file(&path).unwrap();
        assert!(bad.is_empty(), "{name}: {bad:?}");
        let same = |(a, b): (&Record, &Record)| {
            (&a.id, &a.title, &a.text, &a.metadata) == (&b.id, &b.title, &b.text, &b.metadata)
        };
        assert!(
            found.len() == want.len() && found.iter().zip(&want).all(same),
            "{name}"
        );
    }
}

#[test]
fn bad_records_are_told_and_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let deep = format!(
        "{{\"id\":\"deep\",\"text\":{}1{}}}",
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let bad: Vec<(Vec<u8>, &str)> = vec![
        (
            b"{\"id\":\"x\",\"text\":\"\xFF\"}".to_vec(),
            "invalid UTF-8 at byte 18",
        ),
        (b"{\"id\":\"x\",\"text\":\"half".to_vec(), "broken JSON"),
        (
            b"{\"id\":\"x\",\"text\":\"\\ud800\"}".to_vec(),
            "broken JSON",
        ),
        (b"[1,2]".to_vec(), "not a JSON object"),
        (b"{\"text\":\"no id\"}".to_vec(), "\"id\" is missing"),
        (b"{\"id\":\"\",\"text\":\"\"}".to_vec(), "\"id\" is empty"),
        (
            b"{\"id\":1.5,\"text\":\"\"}".to_vec(),
            "\"id\" is a number instead of",
        ),
        (
            b"{\"id\":\"x\",\"title\":\"t\"}".to_vec(),
            "\"text\" is missing",
        ),
        (
            b"{\"id\":\"x\",\"text\":null}".to_vec(),
            "\"text\" is null instead of",
        ),
        (
            b"{\"id\":\"x\",\"text\":[1]}".to_vec(),
            "instead of a list of strings",
        ),
        (
            b"{\"id\":\"x\",\"title\":{},\"text\":\"\"}".to_vec(),
            "\"title\" is an object",
        ),
        (deep.into_bytes(), "recursion limit"),
        (
            format!("{{\"id\":\"x\",\"text\":\"{}\"}}", "y".repeat(100_000)).into_bytes(),
            "longer than 50000 bytes",
        ),
    ];
    let mut content = b"{\"id\":\"first\",\"text\":\"good\"}\n".to_vec();
    for (line, _) in &bad {
        content.extend_from_slice(line);
        content.push(b'\n');
    }
    content.extend_from_slice(b"{\"id\":\"last\",\"text\":\"good\"}\n");
    let path = corpus(dir.path(), "bad.jsonl", content);
    let options = ReadOptions {
        longest_line: 50_000,
        ..ReadOptions::default()
    };
    let entries: Vec<Entry> = Reader::with_options([Input::named(&path)], options)
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(entries.len(), bad.len() + 2);
    for (number, (entry, (_, reason))) in (2..).zip(entries[1..].iter().zip(&bad)) {
        let Entry::Bad(found) = entry else {
            panic!("line {number} was taken: {entry:?}")
        };
        assert_eq!(
            (found.line, Path::new(&found.file)),
            (number, path.as_path())
        );
        assert!(found.reason.contains(reason), "{reason} / {found}");
    }
    assert!(matches!(&entries[bad.len() + 1], Entry::Record(last) if last.id == "last"));
}

#[test]
fn truncated_archives_end_the_file_and_not_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let many: String = (0..20_000)
        .map(|i| {
            format!(
                "{{\"id\":\"{i}\",\"text\":\"number {}\"}}\n",
                i * 7919 % 104729
            )
        })
        .collect();
    let after = corpus(dir.path(), "after", "{\"id\":\"after\",\"text\":\"\"}\n");
    for (name, bytes) in [
        ("gz", gz(many.as_bytes())),
        ("bz2", bz2(many.as_bytes())),
        ("zst", zst(many.as_bytes())),
    ] {
        let cut = corpus(dir.path(), name, &bytes[..bytes.len() - bytes.len() / 10]);
        let (good, bad) = read([Input::named(&cut), Input::named(&after)]).unwrap();
        assert_eq!(good.last().unwrap().id, "after", "{name}");
        assert!(
            bad.len() == 1 && bad[0].reason.contains("truncated"),
            "{name}: {bad:?}"
        );

        // Altered in the middle: reported too, and nothing hangs or panics.
        let mut altered = bytes.clone();
        let middle = altered.len() / 2;
        altered[middle..middle + 64].fill(0x55);
        let path = corpus(dir.path(), name, &altered);
        match read([Input::named(&path), Input::named(&after)]) {
            Ok((good, bad)) => assert!(!bad.is_empty() && good.last().unwrap().id == "after"),
            Err(error) => assert!(matches!(error, ReadError::NotACorpus { .. })),
        }
    }
}

#[test]
fn what_is_no_corpus_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |name: &str, bytes: &[u8], expected: &str| {
        let path = corpus(dir.path(), name, bytes);
        let error = read_file(&path).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(expected), "{error}");
    };
    refused(
        "prose.txt",
        b"It is a truth universally acknowledged\nthat",
        "not a corpus",
    );
    refused(
        "noise.bin",
        &(0..=255u8).collect::<Vec<_>>().repeat(4000),
        "not a corpus",
    );
    refused("table.parquet", b"PAR1....", "Parquet");
    refused("wide.jsonl", &[0xFF, 0xFE, b'{', 0], "broken JSON");
    refused("page.html", b"<!DOCTYPE html><p>x", "HTML");
    refused("half.gz", &gz(b"{}")[..8], "truncated");
    let none = read_file(&dir.path().join("none.jsonl"))
        .unwrap_err()
        .to_string();
    assert!(
        none.contains("none.jsonl") && none.contains("cannot open"),
        "{none}"
    );
    // Nothing at all is no error of the reader.
    let empty = corpus(dir.path(), "empty", "\n\n");
    assert_eq!(read_file(&empty).unwrap().0.len(), 0);
}

#[test]
fn field_names_of_other_formats() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("beir")).unwrap();
    corpus(
        &dir.path().join("beir"),
        "corpus.jsonl",
        concat!(
            r#"{"_id":"b1","title":"BEIR","text":"one","metadata":{}}"#,
            "\n",
            r#"{"id":7,"contents":"\"Flash RAG\"\nthe text\nof it"}"#,
            "\n",
            r#"{"_id":"k","wikipedia_id":"99","wikipedia_title":"KILT","text":["KILT\n","First.\n","Second."]}"#,
            "\n",
        ),
    );
    let (good, bad) = read([Input::named(dir.path().join("beir"))]).unwrap();
    assert!(bad.is_empty());
    let short: Vec<_> = good
        .iter()
        .map(|r| (r.id.as_str(), r.title.as_str(), r.text.as_str()))
        .collect();
    assert_eq!(
        short,
        [
            ("b1", "BEIR", "one"),
            ("7", "Flash RAG", "the text\nof it"),
            ("k", "KILT", "KILT\nFirst.\nSecond."),
        ]
    );
    assert_eq!(good[2].metadata["wikipedia_id"], "99");
}

#[test]
fn wikipedia_summaries() {
    let dir = tempfile::tempdir().unwrap();
    let json = r#"{
      "Fox": {"title": "Fox", "extract": "Foxes are small.", "description": "Animal", "topic": "Biology"},
      "Bad": {"title": "Bad"},
      "Dog": {"title": "Dog", "extract": "Dogs are not.", "description": "Animal", "topic": "Biology"}
    }"#;
    let path = corpus(dir.path(), "summaries.json", json);
    let (good, bad) = read([Input::WikiSummaries(path)]).unwrap();
    assert_eq!(good.len(), 2);
    assert_eq!(
        (good[1].id.as_str(), good[1].text.as_str()),
        ("Dog", "Dogs are not.")
    );
    assert_eq!(good[0].metadata["topic"], "Biology");
    assert!(bad.len() == 1 && bad[0].line == 2 && bad[0].reason.contains("extract"));
    let broken = corpus(dir.path(), "broken.json", &json[..40]);
    assert!(read([Input::WikiSummaries(broken)]).is_err());
}

#[test]
fn the_shared_corpora_are_read_whole() {
    for (file, documents) in [
        ("corpora/wiki-small.jsonl.zst", 52_047),
        ("corpora/articles.jsonl.zst", 1_200),
        ("multilingual/ml_xquad_th.jsonl.zst", 240),
        ("longctx/long_leval_natural_question.jsonl.zst", 21),
    ] {
        let Some(path) = shared(file) else { return };
        let (good, bad) = read_file(&path).unwrap();
        assert_eq!((good.len(), bad.len()), (documents, 0), "{file}");
    }
}
