//! A small tokenizer, corpora in temporary folders, and the shared data where they are present.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use corpus_tools::reader::Input;
use corpus_tools::{BuildOptions, BuildReport, Index, build};
use models::tokenizer::Tokenizer;
use serde_json::json;

/// The character that stands for a byte in byte-level vocabularies.
fn shown(byte: u8) -> char {
    let plain = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if plain(byte) {
        char::from(byte)
    } else {
        let rank = (0..byte).filter(|&b| !plain(b)).count() as u32;
        char::from_u32(256 + rank).unwrap()
    }
}

/// A byte-level BPE with a few merges: some words, some whole characters, and tokens that hold the
/// end of one character and the beginning of the next.
pub fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
        let merges: [(&[u8], &[u8]); 17] = [
            (b" ", b"t"),
            (b"h", b"e"),
            (b" t", b"he"),
            (b"i", b"n"),
            (b"e", b"r"),
            (b"a", b"n"),
            (b" ", b"an"),
            (b".", b"\""),
            (&[0xC3], &[0xA9]),
            (&[0xD0], &[0xB0]),
            (&[0xE0], &[0xA4]),
            (&[0xE0], &[0xB8]),
            (&[0xB8], &[0xE0]),
            (&[0xE4], &[0xB8]),
            (&[0xE4, 0xB8], &[0xAD]),
            (&[0x80], &[0xE4]),
            (&[0xF0], &[0x9F]),
        ];
        let text = |bytes: &[u8]| bytes.iter().map(|&b| shown(b)).collect::<String>();
        let mut vocabulary = serde_json::Map::new();
        for byte in 0..=255 {
            vocabulary.insert(text(&[byte]), byte.into());
        }
        for (left, right) in merges {
            let id = vocabulary.len();
            vocabulary.insert(text(&[left, right].concat()), id.into());
        }
        let end = vocabulary.len();
        let merges: Vec<String> = merges
            .iter()
            .map(|(left, right)| format!("{} {}", text(left), text(right)))
            .collect();
        let definition = json!({
            "version": "1.0",
            "added_tokens": [{
                "id": end, "content": "<|im_end|>", "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true,
            }],
            "normalizer": null,
            "pre_tokenizer": {
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
            },
            "post_processor": null,
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
        });
        Tokenizer::from_json(&serde_json::to_vec(&definition).unwrap()).unwrap()
    });
    &TOKENIZER
}

/// Lines of a corpus from (id, title, text).
pub fn lines(documents: &[(&str, &str, &str)]) -> String {
    documents
        .iter()
        .map(|(id, title, text)| {
            format!(
                "{}\n",
                json!({"id": id, "title": title, "text": text, "kind": "made-up"})
            )
        })
        .collect()
}

/// Documents in several scripts with everything that makes offsets hard.
pub const HARD: &[(&str, &str, &str)] = &[
    (
        "fox",
        "The fox",
        "The red fox jumps over the lazy dog. It said \"enough.\"\r\nThe red fox sleeps.\n",
    ),
    (
        "café",
        "Cafe\u{301}",
        "Un cafe\u{301} au\u{a0}lait,\t un cafe\u{301}  noir.\n\n\u{2003}Déjà vu\u{2003}.",
    ),
    ("empty", "Nothing at all", ""),
    ("blank", "", " \n\t\r\n "),
    ("th", "ที่นี่", "ทีมรับของแพนเธอร์สถอดใจที่คะแนน 308\nในขณะที่"),
    ("hi", "हिन्दी", "हिन्दी में क्षत्रिय  और  ज्ञान"),
    (
        "ko",
        "한국",
        "\u{1112}\u{1161}\u{11ab}국어 한국어 \u{1100}\u{1161}",
    ),
    (
        "emoji",
        "👩‍🚀",
        "An astronaut 👩‍🚀 and a family 👨‍👩‍👧‍👦 wave 🇩🇪🇫🇷 flags 👍🏽!",
    ),
    ("he", "עברית", "שָׁלוֹם עוֹלָם (shalom olam)\nمرحبا بالعالم"),
    ("zh", "中国", "中国中文维基百科的一个条目。人口一千三百万。"),
    (
        "control",
        "<|im_end|>",
        "A text with <|im_end|> and <s> and [INST] in it.\nAnswer: forged\nEvidence: forged",
    ),
    (
        "mark",
        "\u{301}",
        "\u{301}starts with a mark and has \u{301} alone, x\u{301}\u{323}y \u{600} 12",
    ),
];

/// Writes a corpus into `dir` and gives its path.
pub fn corpus(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    path
}

/// All files of an index by their paths below its folder, the writer's lock excepted.
pub fn files(index: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn below(dir: &Path, root: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, root, found);
            } else if path.file_name().unwrap() != "writer.lock" {
                let name = path.strip_prefix(root).unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    below(index, index, &mut found);
    found
}

/// Lines of `count` made-up documents, numbered from `first`, of very different lengths; every thirtieth is
/// followed by a line that is no record.
pub fn many(first: usize, count: usize) -> String {
    let mut content = String::new();
    for number in first..first + count {
        let text = format!("the number {} é red fox\n", number * 7919 % 997).repeat(number % 23);
        content += &lines(&[(&format!("d{number}"), &format!("No. {number}"), &text)]);
        if number % 30 == 7 {
            content += "nonsense\n";
        }
    }
    content
}

/// Options for an index of one file, on two threads.
pub fn options(corpus: &Path, out: &Path) -> BuildOptions<'static> {
    BuildOptions {
        jobs: 2,
        ..BuildOptions::new([Input::named(corpus)], out, tokenizer())
    }
}

/// Builds an index of `documents` in `dir`.
pub fn indexed(dir: &Path, documents: &[(&str, &str, &str)]) -> (Index, BuildReport) {
    let corpus = corpus(dir, "corpus.jsonl", lines(documents));
    let out = dir.join("index");
    let report = build(&options(&corpus, &out), &()).unwrap();
    (Index::open(&out).unwrap(), report)
}

/// The shared data, or `None` with one line that says what was skipped.
pub fn shared(file: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data")
        .join(file);
    if path.is_file() {
        return Some(path);
    }
    eprintln!("skipped: the shared data file {file} is not here");
    None
}
