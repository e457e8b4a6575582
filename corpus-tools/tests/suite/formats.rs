//! Passages in tables, Parquet, folders of texts, and passages grouped into documents.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use corpus_tools::reader::{
    BadRecord, Entry, GroupBy, Input, ReadError, ReadOptions, Reader, Record,
};
use corpus_tools::{BuildError, Index, build};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::common::{corpus, options, shared, tokenizer};

fn read_with(
    path: &Path,
    options: ReadOptions,
) -> Result<(Vec<Record>, Vec<BadRecord>), ReadError> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for entry in Reader::with_options([Input::named(path)], options) {
        match entry? {
            Entry::Record(record) => good.push(*record),
            Entry::Bad(record) => bad.push(record),
        }
    }
    Ok((good, bad))
}

fn read(path: &Path) -> (Vec<Record>, Vec<BadRecord>) {
    read_with(path, ReadOptions::default()).unwrap()
}

fn short(records: &[Record]) -> Vec<(&str, &str, &str)> {
    records
        .iter()
        .map(|r| (r.id.as_str(), r.title.as_str(), r.text.as_str()))
        .collect()
}

#[test]
fn tables_with_and_without_header() {
    let dir = tempfile::tempdir().unwrap();
    let dpr = "id\ttext\ttitle\n1\t\"A \"\"red\"\" fox.\"\tFox\n2\t\"Two\nlines\"\t\"The \"\"Dog\"\"\"\n\n3\tno title\n\
               4\t\"never closed\tCat\n5\tlast\tCat\n";
    let (good, bad) = read(&corpus(dir.path(), "psgs_w100.tsv", dpr));
    assert_eq!(
        short(&good),
        [
            ("1", "Fox", "A \"red\" fox."),
            ("2", "The \"Dog\"", "Two\nlines"),
            ("5", "Cat", "last")
        ]
    );
    let told: Vec<(u64, &str)> = bad
        .iter()
        .map(|bad| (bad.line, bad.reason.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (6, "2 fields instead of the 3 of the header"),
            (7, "a quoted field does not end")
        ]
    );

    let seal = "1\tFox\tA \"red\" fox\twith a tab.\n2\tDog\t\"A \"\"dog\"\".\"\nbroken\tline\n\tno id\ttext\n";
    let (good, bad) = read(&corpus(dir.path(), "seal.tsv", seal));
    assert_eq!(
        short(&good),
        [
            ("1", "Fox", "A \"red\" fox\twith a tab."),
            ("2", "Dog", "A \"dog\".")
        ]
    );
    assert_eq!(bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [3, 4]);
}

/// A table in Parquet with the columns of Wikipedia, two groups of rows.
fn wikipedia(compression: Compression) -> Vec<u8> {
    let schema = "message m { REQUIRED INT64 views; REQUIRED BYTE_ARRAY id (UTF8); REQUIRED BYTE_ARRAY url (UTF8); \
                  REQUIRED BYTE_ARRAY title (UTF8); REQUIRED BYTE_ARRAY text (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(
        WriterProperties::builder()
            .set_compression(compression)
            .build(),
    );
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
    for group in 0..2 {
        let rows = (group * 100..group * 100 + 100).collect::<Vec<i64>>();
        let mut columns = writer.next_row_group().unwrap();
        let mut number = columns.next_column().unwrap().unwrap();
        number
            .typed::<Int64Type>()
            .write_batch(&rows, None, None)
            .unwrap();
        number.close().unwrap();
        for name in ["id", "url", "title", "text"] {
            let values: Vec<ByteArray> = rows
                .iter()
                .map(|row| ByteArray::from(format!("{name} é {row}").into_bytes()))
                .collect();
            let mut column = columns.next_column().unwrap().unwrap();
            column
                .typed::<ByteArrayType>()
                .write_batch(&values, None, None)
                .unwrap();
            column.close().unwrap();
        }
        columns.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

#[test]
fn parquet_as_wikipedia_is_published() {
    let dir = tempfile::tempdir().unwrap();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(Default::default()),
    ] {
        let bytes = wikipedia(compression);
        let packed = zstd::encode_all(bytes.as_slice(), 1).unwrap();
        for bytes in [bytes, packed] {
            let (good, bad) = read(&corpus(dir.path(), "wiki.parquet", &bytes));
            assert!(bad.is_empty() && good.len() == 200, "{bad:?}");
            let last = &good[199];
            assert_eq!(
                (last.id.as_str(), last.title.as_str(), last.text.as_str()),
                ("id é 199", "title é 199", "text é 199")
            );
            assert_eq!(
                (&last.metadata["url"], &last.metadata["views"]),
                (&"url é 199".into(), &199.into())
            );
        }
    }
    // Cut or altered anywhere: an error or bad rows, never a panic that a user sees, and it ends.
    let bytes = wikipedia(Compression::SNAPPY);
    for at in (0..bytes.len()).step_by(97) {
        let mut altered = bytes.clone();
        altered[at] ^= 0x5A;
        let _ = read_with(
            &corpus(dir.path(), "altered.parquet", &altered),
            ReadOptions::default(),
        );
        let path = corpus(dir.path(), "cut.parquet", &bytes[..at.max(4)]);
        let refused = read_with(&path, ReadOptions::default())
            .unwrap_err()
            .to_string();
        assert!(refused.contains("cut.parquet"), "{refused}");
    }
}

#[test]
fn a_folder_of_texts() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("texts");
    fs::create_dir_all(root.join("b/c")).unwrap();
    let wrapped = "A paragraph that somebody has broken into lines by hand, as\nletters were written once; it goes on here.\n\nShort\nlines\n";
    corpus(&root, "a.txt", wrapped);
    corpus(&root, "b/notes.md", "# Notes on *foxes*\n\nThey sleep.\n");
    corpus(
        &root.join("b"),
        "c/page.html",
        "<!doctype html><title>A &amp; B</title><script>var x = '<p>no</p>';</script><nav>menu</nav>\
         <h1>Head</h1><p>One <b>bold</b>\n text.<p>Two&nbsp;more<table><tr><td>1<td>2</table><pre>a\nb</pre>",
    );
    corpus(
        &root,
        "wide.txt",
        "\u{feff}wide é"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<u8>>(),
    );
    corpus(&root, "latin1.txt", b"caf\xE9");
    corpus(&root, "binary.txt", b"MZ\0\0");
    corpus(&root, "picture.png", b"\x89PNG");
    corpus(&root, ".hidden.txt", "hidden");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&root, root.join("b/loop")).unwrap();
    let mut reader = Reader::new([Input::named(&root)]);
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for entry in &mut reader {
        match entry.unwrap() {
            Entry::Record(record) => good.push(*record),
            Entry::Bad(record) => bad.push(record),
        }
    }
    let unwrapped = wrapped.replacen("as\nletters", "as letters", 1);
    assert_eq!(
        short(&good),
        [
            ("a.txt", "a", unwrapped.as_str()),
            (
                "b/c/page.html",
                "A & B",
                "Head\nOne bold text.\nTwo more\n1; 2\na\nb"
            ),
            (
                "b/notes.md",
                "Notes on *foxes*",
                "# Notes on *foxes*\n\nThey sleep.\n"
            ),
            ("wide.txt", "wide", "wide é"),
        ]
    );
    let mut reasons: Vec<&str> = bad.iter().map(|bad| bad.reason.as_str()).collect();
    reasons.sort_unstable();
    let mut expected = vec!["a binary file", "invalid UTF-8 at byte 3, in line 1"];
    if cfg!(unix) {
        expected.insert(1, "a link that leads back");
    }
    assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
    for (reason, start) in reasons.iter().zip(expected) {
        assert!(reason.starts_with(start), "{reason}");
    }
    assert_eq!(reader.left_out().values().sum::<u64>(), 1);
}

/// Passages of three pages, not next to each other, and one without a title.
const PASSAGES: &str = "id\ttext\ttitle\n11\tThe fox one.\tFox\n21\tThe dog one.\tDog\n12\t\"The fox two.\nIts second line.\"\tFox\n\
    91\tNo title.\t\n13\t\tFox\n14\tThe fox four.\tFox\n22\tThe dog two.\tDog\n";

#[test]
fn passages_of_a_title_become_one_document() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "psgs.tsv", PASSAGES);
    // In memory, and over runs on disk of one passage each.
    for sort_memory in [None, Some(1)] {
        let out = dir.path().join(format!("index-{}", sort_memory.is_some()));
        let mut options = options(&path, &out);
        options.read.group_by = Some(GroupBy::Title);
        options.read.sort_memory = sort_memory;
        let report = build(&options, &()).unwrap();
        assert_eq!(report.documents, 3);
        let index = Index::open(&out).unwrap();
        let fox = index.document_by_external_id("Fox").unwrap().unwrap();
        let document = index.document(fox).unwrap();
        assert_eq!(
            document.text,
            "The fox one.\nThe fox two.\nIts second line.\nThe fox four."
        );
        let ids: Vec<&str> = (0..5)
            .map(|paragraph| index.external_id(fox, paragraph).unwrap())
            .collect();
        assert_eq!(ids, ["Fox", "11", "12", "12", "14"]);
        for (id, document, paragraphs) in [
            ("11", "Fox", 1..2),
            ("12", "Fox", 2..4),
            ("13", "Fox", 4..4),
            ("14", "Fox", 4..5),
            ("22", "Dog", 2..3),
            ("91", "91", 1..2),
            ("Dog", "Dog", 1..3),
        ] {
            let (found, place) = index.find_external_id(id).unwrap().unwrap();
            assert_eq!(
                (index.document(found).unwrap().id, place),
                (document, paragraphs),
                "{id}"
            );
        }
        assert!(index.find_external_id("23").unwrap().is_none());

        // A citation carries the id of its passage.
        let paragraph = &document.paragraphs[3];
        let citation = index
            .cite(tokenizer(), fox, paragraph.tokens.clone())
            .unwrap();
        assert_eq!(
            (citation.quote.as_str(), citation.external_id()),
            ("Its second line.", "12")
        );
        let json = serde_json::to_value(&citation).unwrap();
        assert_eq!(
            (&json["id"], &json["passage_id"]),
            (&"Fox".into(), &"12".into())
        );
        corpus_tools::verify(&out, &()).unwrap();
    }
}

#[test]
fn an_id_that_stands_twice_is_refused_with_both_places() {
    let dir = tempfile::tempdir().unwrap();
    let twice = format!("{PASSAGES}11\tAgain.\tCat\n");
    let path = corpus(dir.path(), "psgs.tsv", twice);
    let out = dir.path().join("index");
    for group_by in [None, Some(GroupBy::Title)] {
        // As they are read, and at the end where memory holds no ids.
        for id_memory in [None, Some(1)] {
            let mut options = options(&path, &out);
            options.read.group_by = group_by;
            options.id_memory = id_memory;
            match build(&options, &()) {
                Err(BuildError::DuplicateId { id, first, second }) => {
                    assert_eq!((id.as_str(), second.line), ("11", 10));
                    assert!(first.ends_with("psgs.tsv:2"), "{first}");
                }
                other => panic!("{other:?}"),
            }
            assert!(!out.exists());
        }
    }
}

#[test]
fn texts_in_many_languages_go_through_unharmed() {
    for language in ["ar", "hi", "ru", "th", "zh"] {
        let Some(path) = shared(&format!("multilingual/ml_xquad_{language}.jsonl.zst")) else {
            return;
        };
        let raw = zstd::decode_all(fs::File::open(&path).unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let wide: Vec<u8> = String::from_utf8(raw.clone())
            .unwrap()
            .encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect();
        let (good, bad) = read(&path);
        assert!(bad.is_empty() && good.len() == 240, "{language}");
        // The fields as they stand, whichever way they come.
        let lines = std::str::from_utf8(&raw).unwrap().lines();
        for (record, line) in good.iter().zip(lines) {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (record.id.as_str(), record.text.as_str()),
                (
                    value["id"].as_str().unwrap(),
                    value["text"].as_str().unwrap()
                )
            );
        }
        let (again, bad) = read(&corpus(dir.path(), "wide.jsonl", &wide));
        assert!(
            bad.is_empty() && short(&again) == short(&good),
            "{language}"
        );
        // Text without markup is its own wikitext.
        let site = corpus_tools::wikitext::Site::default();
        for record in &good {
            let folded = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            let page = corpus_tools::wikitext::plain_text(&record.text, &record.title, &site);
            let plain = !record.text.contains(['[', '<', '&', '{', '*', '='])
                && !record.text.contains("''");
            if plain && !record.text.starts_with([' ', ':', '#', ';']) {
                assert_eq!(
                    folded(&page),
                    folded(&record.text),
                    "{language} {}",
                    record.id
                );
            }
        }
    }
}
