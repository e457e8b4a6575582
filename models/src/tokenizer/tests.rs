//! Tests of the tokenizer on small vocabularies.

use super::*;
use serde_json::json;

/// Byte-level: all bytes as ids 10.., a few merges, two control tokens with low ids, holes between.
fn byte_level(pre_tokenizer: Value) -> Vec<u8> {
    let alphabet = Alphabet::new();
    let mut vocabulary = serde_json::Map::new();
    vocabulary.insert("<|im_start|>".into(), json!(1));
    for byte in 0..=255u8 {
        vocabulary.insert(alphabet.entry_of(&[byte]), json!(10 + u32::from(byte)));
    }
    for (i, entry) in ["Pa", "ri", "Pari", "Paris", "ĠParis", "Ġt", "Ġth", "Ġthe"]
        .iter()
        .enumerate()
    {
        vocabulary.insert((*entry).into(), json!(300 + i));
    }
    let merges = [
        "P a",
        "r i",
        "Pa ri",
        "Pari s",
        "Ġ Paris",
        "Ġ t",
        "Ġt h",
        "Ġth e",
        "< |im_start|>",
    ];
    let model = json!({"type": "BPE", "vocab": vocabulary, "merges": merges});
    let added = json!([
        {"id": 1, "content": "<|im_start|>", "special": true},
        {"id": 2, "content": "<|im_end|>", "special": true},
        {"id": 3, "content": "<|im_end|>>", "special": true},
    ]);
    serde_json::to_vec(
        &json!({"added_tokens": added, "pre_tokenizer": pre_tokenizer, "model": model}),
    )
    .unwrap()
}

/// The first of [`all`], for tests of other modules.
pub(crate) fn byte_level_tokenizer() -> Tokenizer {
    Tokenizer::from_json(&byte_level(json!({"type": "ByteLevel"}))).unwrap()
}

fn sentencepiece_like() -> Vec<u8> {
    let mut vocabulary = serde_json::Map::new();
    vocabulary.insert("<bos>".into(), json!(0));
    for byte in 0..=255u32 {
        vocabulary.insert(format!("<0x{byte:02X}>"), json!(1 + byte));
    }
    for (i, entry) in ["▁", "a", "b", "é", "▁a", "ab", "▁ab", "▁▁"]
        .iter()
        .enumerate()
    {
        vocabulary.insert((*entry).into(), json!(300 + i));
    }
    let merges = json!([["▁", "a"], ["a", "b"], ["▁a", "b"], ["▁", "▁"]]);
    let model = json!({"type": "BPE", "vocab": vocabulary, "merges": merges, "byte_fallback": true, "unk_token": "<unk>"});
    let normalizers = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
    let post = json!({"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]});
    let added = json!([{"id": 0, "content": "<bos>", "special": true}]);
    let root = json!({"added_tokens": added, "normalizer": normalizers, "post_processor": post, "model": model});
    serde_json::to_vec(&root).unwrap()
}

/// The same with runs of white space among its added tokens and without a space in front, as in Gemma 3.
fn with_runs() -> Vec<u8> {
    let mut root: serde_json::Value = serde_json::from_slice(&sentencepiece_like()).unwrap();
    root["normalizer"] = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let merges = root["model"]["merges"].as_array_mut().unwrap();
    merges.extend([json!(["▁▁", "▁"]), json!(["\n", "\n"])]);
    root["model"]["vocab"]["\n"] = json!(310);
    for (id, run) in [(307, "▁▁"), (308, "▁▁▁"), (309, "\n\n")] {
        root["model"]["vocab"][run] = json!(id);
        let added = json!({"id": id, "content": run, "special": false, "normalized": true});
        root["added_tokens"].as_array_mut().unwrap().push(added);
    }
    serde_json::to_vec(&root).unwrap()
}

fn all() -> Vec<Tokenizer> {
    let level = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let other = json!({"type": "Split", "pattern": {"Regex": "\\p{Lu}|\\s+"}, "behavior": "Isolated", "invert": false});
    [
        byte_level(level.clone()),
        byte_level(json!({"type": "Sequence", "pretokenizers": [digits, level.clone()]})),
        byte_level(json!({"type": "Sequence", "pretokenizers": [other, level]})),
        sentencepiece_like(),
        with_runs(),
    ]
    .iter()
    .map(|bytes| Tokenizer::from_json(bytes).unwrap())
    .collect()
}

const TEXTS: &[&str] = &[
    "",
    " ",
    "Paris",
    " Paris, the Paris",
    "no space",
    "  two  spaces  ",
    "line\r\nline\u{a0}\u{3000}x",
    "<|im_start|>user<|im_end|>>",
    "日本語 👩‍👩‍👧 e\u{301} नमस्ते שלום",
    "▁a ▁ literal",
    "<0x0A> <bos> <unk>",
    "a\0b\u{7f}\u{10ffff}",
];

#[test]
fn the_bytes_of_the_ids_are_the_text() {
    for tokenizer in all() {
        for text in TEXTS {
            let ids = tokenizer.encode_text(text);
            let bytes: Vec<u8> = ids
                .iter()
                .flat_map(|&id| tokenizer.token_bytes(id).unwrap().to_vec())
                .collect();
            assert_eq!(String::from_utf8_lossy(&bytes), *text);
            assert_eq!(tokenizer.decode(&ids), *text);
            assert!(
                ids.iter()
                    .all(|&id| !tokenizer.is_control(id) && id < tokenizer.vocabulary_size())
            );
        }
        let singly: Vec<_> = TEXTS.iter().map(|t| tokenizer.encode_text(t)).collect();
        assert_eq!(tokenizer.encode_texts(TEXTS), singly);
    }
}

#[test]
fn ids_equal_those_of_the_tokenizers_library() {
    for tokenizer in all() {
        let library = tokenizers::Tokenizer::from_bytes(tokenizer.to_json().unwrap()).unwrap();
        let more = ["a  ab   b a", "a\n\nb\na\t\tb", "   ", "ab \n\n  a"];
        // The library takes control tokens and a literal "▁" in a text for what they stand for.
        let plain = |text: &&&str| !text.contains(['<', '▁']);
        for text in TEXTS.iter().chain(&more).filter(plain) {
            let theirs = library.encode(*text, false).unwrap();
            assert_eq!(tokenizer.encode_text(text), theirs.get_ids(), "{text:?}");
        }
    }
}

#[test]
fn merges_follow_their_order() {
    let tokenizer = &all()[0];
    assert_eq!(tokenizer.encode_text("Paris"), [303]);
    assert_eq!(tokenizer.encode_text(" Paris the"), [304, 307]);
    let spaced = &all()[3];
    assert_eq!(spaced.encode_text(" ab ab"), [306, 306]);
    assert_eq!(spaced.encode_text("ab  é"), [305, 307, 303]);
    assert_eq!(spaced.encode_text("\n"), [11]);
}

#[test]
fn control_tokens_come_from_prompts_only() {
    let tokenizer = &all()[0];
    assert_eq!(tokenizer.control_token("<|im_end|>"), Some(2));
    assert_eq!(tokenizer.control_token("nothing"), None);
    assert_eq!(tokenizer.control_content(1), Some("<|im_start|>"));
    assert_eq!(tokenizer.token_bytes(1), None);
    assert_eq!(tokenizer.token_bytes(5), None);
    assert_eq!(tokenizer.token_bytes(u32::MAX), None);
    assert_eq!(tokenizer.vocabulary_size(), 308);
    let ids = tokenizer.encode_prompt("<|im_start|> Paris<|im_end|>><|im_end|>Paris");
    assert_eq!(ids, [1, 304, 3, 2, 303]);
    assert_eq!(tokenizer.decode(&ids), " ParisParis");
    assert_eq!(tokenizer.begin_token(), None);
    assert_eq!(all()[3].begin_token(), Some(0));
}

#[test]
fn written_and_read_again_it_is_the_same() {
    for tokenizer in all() {
        let again = Tokenizer::from_json(&tokenizer.to_json().unwrap()).unwrap();
        assert_eq!(again.fingerprint(), tokenizer.fingerprint());
        assert_eq!(again.vocabulary_size(), tokenizer.vocabulary_size());
        assert_eq!(again.controls, tokenizer.controls);
        assert_eq!(again.begin_token(), tokenizer.begin_token());
        for text in TEXTS {
            assert_eq!(again.encode_text(text), tokenizer.encode_text(text));
            assert_eq!(again.encode_prompt(text), tokenizer.encode_prompt(text));
        }
        for id in 0..tokenizer.vocabulary_size() {
            assert_eq!(again.token_bytes(id), tokenizer.token_bytes(id));
        }
    }
    let fingerprints: std::collections::HashSet<_> =
        all().iter().map(|t| t.fingerprint().to_owned()).collect();
    assert_eq!(fingerprints.len(), 3, "one for each vocabulary");
}

#[test]
fn refusals_say_what_was_expected() {
    let message = |bytes: &[u8]| Tokenizer::from_json(bytes).unwrap_err().to_string();
    assert!(message(b"").contains("not a tokenizer.json"));
    assert!(message(b"{}").contains("BPE"));
    assert!(message(br#"{"model":{"type":"WordPiece","vocab":{}}}"#).contains("WordPiece"));
    assert!(message(br#"{"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}}"#).contains("empty"));
    assert!(message(br#"{"pre_tokenizer":{"type":"ByteLevel"},"model":{"vocab":{"a":99999999999},"merges":[]}}"#).contains("too large"));
    assert!(
        message(
            br#"{"pre_tokenizer":{"type":"ByteLevel"},"model":{"vocab":{"a":1},"merges":["a"]}}"#
        )
        .contains("merge rule")
    );
    assert!(message(br#"{"model":{"vocab":{"a":1},"merges":[]}}"#).contains("spaces"));
    let folder = tempfile::tempdir().unwrap();
    assert!(
        Tokenizer::open(folder.path())
            .unwrap_err()
            .to_string()
            .contains("no tokenizer in")
    );
    std::fs::write(folder.path().join("model.gguf"), b"GGUF").unwrap();
    assert!(
        Tokenizer::open(folder.path())
            .unwrap_err()
            .to_string()
            .contains("model.gguf")
    );
    std::fs::write(folder.path().join("model.gguf"), b"PK").unwrap();
    assert!(
        Tokenizer::open(folder.path())
            .unwrap_err()
            .to_string()
            .contains("not a GGUF")
    );
}

proptest::proptest! {
    /// What is remembered of other texts never changes ids.
    #[test]
    fn batches_give_the_ids_of_single_texts(
        texts in proptest::collection::vec("[ a-h0-9.,'>\\n\\t<éß漢字ेด🙂]{0,60}", 0..60),
    ) {
        for tokenizer in all() {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let singly: Vec<_> = texts.iter().map(|text| tokenizer.encode_text(text)).collect();
            for _ in 0..2 {
                proptest::prop_assert_eq!(&tokenizer.encode_texts(&texts), &singly);
            }
        }
    }
}

#[test]
fn a_normalizer_that_changes_ascii_is_applied_to_it() {
    let with = |normalizer: serde_json::Value| {
        let mut root: serde_json::Value =
            serde_json::from_slice(&byte_level(json!({"type": "ByteLevel"}))).unwrap();
        root["normalizer"] = normalizer;
        Tokenizer::from_json(&serde_json::to_vec(&root).unwrap()).unwrap()
    };
    let plain = byte_level_tokenizer();
    let replace =
        |pattern, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    for (normalizer, text, expected) in [
        (json!({"type": "Lowercase"}), " The PARIS", " the paris"),
        (json!({"type": "Lowercase"}), " The CAFÉ", " the café"),
        (replace(json!({"String": "``"}), "\""), " ``The", " \"The"),
        (
            replace(json!({"Regex": " {2,}"}), " "),
            " the   Paris",
            " the Paris",
        ),
        (
            replace(json!({"String": "é"}), "e"),
            " the café",
            " the cafe",
        ),
        // The exact bytes of a byte-level vocabulary do not make spaces of the sign for one.
        (replace(json!({"String": " "}), "▁"), " the", "▁the"),
        (
            json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Sequence",
                "normalizers": [{"type": "Lowercase"}, {"type": "Prepend", "prepend": "x"}]}]}),
            " The",
            " the",
        ),
        (json!({"type": "NFC"}), " The", " The"),
    ] {
        let tokenizer = with(normalizer.clone());
        let expected = plain.encode_text(expected);
        assert_eq!(tokenizer.encode_text(text), expected, "{normalizer}");
        assert_eq!(tokenizer.encode_texts(&[text])[0], expected, "{normalizer}");
        let again = Tokenizer::from_json(&tokenizer.to_json().unwrap()).unwrap();
        assert_eq!(again.encode_text(text), expected, "{normalizer}");
    }
    // Where the vocabulary's spaces are written as a sign, other steps work on spaces.
    let mut root: serde_json::Value = serde_json::from_slice(&sentencepiece_like()).unwrap();
    root["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, replace(json!({"String": " "}), "▁"),
        replace(json!({"Regex": "▁{2,}"}), "▁"), replace(json!({"String": "-"}), "▁")]});
    let tokenizer = Tokenizer::from_json(&serde_json::to_vec(&root).unwrap()).unwrap();
    assert_eq!(
        tokenizer.decode(&tokenizer.encode_text(" ab   a-b")),
        " ab a b"
    );
}

#[test]
fn long_runs_of_white_space_take_linear_time() {
    // With a step back over each run for each of its characters these would take minutes.
    let texts = [" ", "\n", "\t", " a", "  a", " \n"].map(|unit| unit.repeat(1_000_000));
    let start = std::time::Instant::now();
    for tokenizer in [sentencepiece_like(), with_runs()] {
        let tokenizer = Tokenizer::from_json(&tokenizer).unwrap();
        for text in &texts {
            let mut bytes = 0;
            tokenizer.words.each(text, |word| bytes += word.len());
            assert_eq!(bytes, text.len());
        }
    }
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}
