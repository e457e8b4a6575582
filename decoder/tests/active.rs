//! Sentences written against a model that says what a test wants it to; passages by BM25 from a real index.

use models::ModelError;
use models::tokenizer::Tokenizer;

use corpus_tools::Index;
use corpus_tools::build::{BuildOptions, build};
use corpus_tools::reader::Input;
use decoder::active::sentence::{End, Stretch, write};
use decoder::active::{PassageRetriever, Retriever};
use decoder::session::{LogitsSource, Session};

/// Tokens of several bytes; nothing is encoded with them.
const LONG: &[&str] = &["。大", " 東", " No"];
/// Tokens of the vocabulary: bytes, the end, and the long ones.
const VOCABULARY: usize = 257 + LONG.len();

/// A tokenizer of bytes: the token of each byte value, the end token, and [`LONG`].
fn tokenizer() -> Tokenizer {
    let mut alphabet: Vec<char> = Vec::new();
    let mut extra = 0;
    // The printable spelling of bytes that byte-level BPE uses.
    for byte in 0u32..256 {
        let printable = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        alphabet.push(if printable {
            char::from_u32(byte).unwrap()
        } else {
            extra += 1;
            char::from_u32(255 + extra).unwrap()
        });
    }
    let mut vocabulary: serde_json::Map<String, serde_json::Value> = alphabet
        .iter()
        .enumerate()
        .map(|(id, c)| (c.to_string(), id.into()))
        .collect();
    for (at, text) in LONG.iter().enumerate() {
        let spelling: String = text.bytes().map(|b| alphabet[b as usize]).collect();
        vocabulary.insert(spelling, (257 + at).into());
    }
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 256, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": []}
    });
    Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
}

/// Says these tokens one after another, each with its probability, then the last for ever.
struct Script {
    tokens: Vec<(u32, f32)>,
    length: usize,
    prompt: usize,
}

impl LogitsSource for Script {
    fn append(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        self.length += tokens.len();
        let at = (self.length - self.prompt).min(self.tokens.len() - 1);
        let (token, probability) = self.tokens[at];
        let rest = ((1.0 - probability) / (VOCABULARY - 1) as f32).ln();
        let mut logits = vec![rest; VOCABULARY];
        logits[token as usize] = probability.ln();
        Ok(logits)
    }

    fn append_for_last(
        &mut self,
        tokens: &[u32],
        rows: usize,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut logits = tokens
            .iter()
            .map(|&token| self.append(&[token]))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(logits.split_off(tokens.len() - rows))
    }

    fn truncate(&mut self, length: usize) {
        self.length = length;
    }

    fn vocabulary_size(&self) -> usize {
        VOCABULARY
    }

    fn end_tokens(&self) -> &[u32] {
        &[256]
    }

    fn context_length(&self) -> usize {
        1000
    }
}

/// A session in which the model will say `text`, each byte with probability ½ but the one at `unsure`.
fn session(
    tokenizer: &Tokenizer,
    text: &str,
    unsure: Option<usize>,
    ends: bool,
) -> Session<Script> {
    let tokens = tokenizer.encode_text(text);
    session_of(tokens, unsure, ends)
}

/// As [`session`], of tokens.
fn session_of(tokens: Vec<u32>, unsure: Option<usize>, ends: bool) -> Session<Script> {
    let mut tokens: Vec<(u32, f32)> = tokens
        .into_iter()
        .enumerate()
        .map(|(at, token)| (token, if unsure == Some(at) { 0.1 } else { 0.5 }))
        .collect();
    if ends {
        tokens.push((256, 0.9));
    }
    let mut session = Session::new(
        Script {
            tokens,
            length: 0,
            prompt: 1,
        },
        Vec::new(),
    );
    session.push(&[u32::from(b'?')]);
    session
}

fn sentences(text: &str, most: usize) -> Vec<(String, End)> {
    let tokenizer = tokenizer();
    let mut session = session(&tokenizer, text, None, true);
    let mut found = Vec::new();
    for _ in 0..20 {
        let sentence = write(&mut session, &tokenizer, most, Stretch::Sentence).unwrap();
        assert_eq!(sentence.tokens.len(), sentence.probabilities.len());
        let end = sentence.end;
        found.push((tokenizer.decode(&sentence.tokens), end));
        if end == End::Turn {
            break;
        }
    }
    let said: String = found.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(said, text, "nothing is lost or said twice");
    found
}

#[test]
fn sentences_end_in_any_script() {
    for (text, wanted) in [
        (
            " It is blue. It has 3.5 m. Dr. No left.",
            vec![" It is blue.", " It has 3.5 m.", " Dr. No left."],
        ),
        (
            "東京は首都です。大きいです。",
            vec!["東京は首都です。", "大きいです。"],
        ),
        (" यह पहला है। यह दूसरा है।", vec![" यह पहला है।", " यह दूसरा है।"]),
        (" هل هذه؟ نعم.", vec![" هل هذه؟", " نعم."]),
        ("One\nTwo", vec!["One", "\nTwo"]),
    ] {
        let found: Vec<String> = sentences(text, 200)
            .into_iter()
            .map(|(text, _)| text)
            .filter(|text| !text.is_empty())
            .collect();
        let trimmed: Vec<&str> = found.iter().map(|s| s.trim()).collect();
        let wanted: Vec<&str> = wanted.iter().map(|s| s.trim()).collect();
        assert_eq!(trimmed, wanted);
    }
}

#[test]
fn tokens_across_a_border() {
    let tokenizer = tokenizer();
    let long = |text: &str| 257 + LONG.iter().position(|long| *long == text).unwrap() as u32;
    let bytes = |text: &str| tokenizer.encode_text(text);
    for (tokens, first, rest) in [
        // Text of both sentences, or white space and the next one.
        (
            [bytes("東"), vec![long("。大")], bytes("き")],
            "東。大",
            "き",
        ),
        (
            [bytes("Yes."), vec![long(" No")], bytes(".")],
            "Yes.",
            " No.",
        ),
        (
            [bytes("です。"), vec![long(" 東")], bytes("京")],
            "です。",
            " 東京",
        ),
        // A border that is seen when its character is whole.
        ([bytes("Yes. "), bytes("É"), bytes("t")], "Yes. ", "Ét"),
    ] {
        let mut session = session_of(tokens.concat(), None, true);
        let sentence = write(&mut session, &tokenizer, 64, Stretch::Sentence).unwrap();
        assert_eq!(tokenizer.decode(&sentence.tokens), first);
        assert_eq!(sentence.end, End::Border);
        assert_eq!(session.tokens().len(), 1 + sentence.tokens.len());
        let next = write(&mut session, &tokenizer, 64, Stretch::Sentence).unwrap();
        assert_eq!(tokenizer.decode(&next.tokens), rest);
    }
}

#[test]
fn a_model_that_never_ends_a_sentence_is_cut() {
    let tokenizer = tokenizer();
    let mut session = session(&tokenizer, "and on ", None, false);
    for round in 1..4 {
        let sentence = write(&mut session, &tokenizer, 64, Stretch::Sentence).unwrap();
        assert_eq!((sentence.tokens.len(), sentence.end), (64, End::Limit));
        assert_eq!(session.tokens().len(), 1 + 64 * round);
    }
    // The window ends it too.
    let sentence = write(&mut session, &tokenizer, 10_000, Stretch::Sentence).unwrap();
    assert_eq!(sentence.end, End::Limit);
    assert_eq!(session.tokens().len(), 1000);
}

#[test]
fn probabilities_are_those_of_the_pass() {
    let tokenizer = tokenizer();
    let mut session = session(&tokenizer, "Yes it is. No", Some(2), true);
    let sentence = write(&mut session, &tokenizer, 64, Stretch::Sentence).unwrap();
    assert_eq!(sentence.end, End::Border);
    assert_eq!(tokenizer.decode(&sentence.tokens).trim(), "Yes it is.");
    for (at, p) in sentence.probabilities.iter().enumerate() {
        let wanted = if at == 2 { 0.1 } else { 0.5 };
        assert!((p - wanted).abs() < 1e-4, "{at}: {p}");
    }
    assert!((sentence.least() - 0.1).abs() < 1e-4);
    // One pass a token, and one for the token that began the next sentence.
    let cost = session.cost();
    assert_eq!(cost.written as usize, sentence.tokens.len());
    assert!(cost.passes as usize <= sentence.tokens.len() + 1);
}

#[test]
fn strides_and_turns() {
    let tokenizer = tokenizer();
    let mut session = session(&tokenizer, "A. B. C. D.", None, true);
    let stride = write(&mut session, &tokenizer, 4, Stretch::Tokens).unwrap();
    assert_eq!((stride.tokens.len(), stride.end), (4, End::Limit));
    let rest = write(&mut session, &tokenizer, 64, Stretch::Tokens).unwrap();
    assert_eq!((rest.tokens.len(), rest.end), (7, End::Turn));
    let nothing = write(&mut session, &tokenizer, 64, Stretch::Sentence).unwrap();
    assert_eq!((nothing.tokens.len(), nothing.end), (0, End::Turn));
    assert_eq!(nothing.least(), 1.0);
}

#[test]
fn a_passage_of_a_long_paragraph_is_the_window_that_fits() {
    let folder = tempfile::tempdir().unwrap();
    let plain = "Nothing is said here that anyone would ask for. ".repeat(200);
    let text = format!("{plain}The lighthouse was lit in 1887. {plain}");
    let line = serde_json::json!({"id": "a", "title": "Coast", "text": text});
    let corpus = folder.path().join("corpus.jsonl");
    std::fs::write(&corpus, line.to_string()).unwrap();
    let tokenizer = tokenizer();
    let out = folder.path().join("index");
    build(
        &BuildOptions::new([Input::named(&corpus)], &out, &tokenizer),
        &(),
    )
    .unwrap();
    let index = Index::open(&out).unwrap();
    let retriever = PassageRetriever::new(&index, &tokenizer);
    let (found, _) = retriever
        .retrieve("When was the lighthouse lit?", 2)
        .unwrap();
    assert_eq!(found.len(), 1);
    let quote = &found[0].quote;
    assert!(quote.contains("lighthouse was lit"), "{quote:?}");
    assert!(tokenizer.encode_text(quote).len() <= 256);
    let place = found[0].start_byte as usize..found[0].end_byte as usize;
    assert_eq!(quote, &text[place]);
}
