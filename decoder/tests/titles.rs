//! Titles named in a text, looked up in a real index of a few documents.

use corpus_tools::Index;
use corpus_tools::build::{BuildOptions, build};
use corpus_tools::reader::Input;
use decoder::retrieval::shares;
use decoder::settings::TitleSettings;
use decoder::titles::{NamedTitle, named_in};
use models::tokenizer::Tokenizer;

/// A byte-level tokenizer without merges: the id of a token is its byte.
fn tokenizer() -> Tokenizer {
    let definition = include_bytes!("../../models/tests/fixtures/bytes.json");
    Tokenizer::from_json(definition).unwrap()
}

fn few(tokenizer: &Tokenizer, folder: &std::path::Path) -> Index {
    let documents = [
        ("a", "Ed Wood", "Edward Wood was a director."),
        ("b", "Ed Wood (film)", "Ed Wood is a film."),
        ("c", "Ed", "A given name."),
        ("d", "Wood", "Wood grows."),
        // A paragraph that is a name, in a document with another title.
        ("e", "Names", "Bela Lugosi\nVampira"),
        ("f", "Bela Lugosi", "An actor."),
        ("g", "Springfield, Ohio", "A town."),
        ("h", "Ed Wooden", "Somebody else."),
        ("i", "東京", "日本の首都。"),
        ("j", "", "No title."),
    ];
    index(tokenizer, folder, &documents)
}

fn index(
    tokenizer: &Tokenizer,
    folder: &std::path::Path,
    documents: &[(&str, &str, &str)],
) -> Index {
    let lines: Vec<String> = documents
        .iter()
        .map(|(id, title, text)| {
            serde_json::json!({"id": id, "title": title, "text": text}).to_string()
        })
        .collect();
    let corpus = folder.join("corpus.jsonl");
    std::fs::write(&corpus, lines.join("\n")).unwrap();
    let out = folder.join("index");
    build(
        &BuildOptions::new([Input::named(&corpus)], &out, tokenizer),
        &(),
    )
    .unwrap();
    Index::open(&out).unwrap()
}

#[test]
fn names_are_found_with_their_documents() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer();
    let index = few(&tokenizer, folder.path());
    let settings = TitleSettings::default();
    let named = |text: &str| named_in(&index, &tokenizer, text, &settings).unwrap();
    let shown = |titles: &[NamedTitle]| -> Vec<(String, String)> {
        let ids = |title: &NamedTitle| {
            let ids = title.documents.iter();
            ids.map(|&document| index.document(document).unwrap().id.to_owned())
                .collect::<String>()
        };
        titles
            .iter()
            .map(|title| (title.name.clone(), ids(title)))
            .collect()
    };
    let expect = |text: &str, expected: &[(&str, &str)]| {
        let found = shown(&named(text));
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, ids)| ((*name).to_owned(), (*ids).to_owned()))
            .collect();
        assert_eq!(found, expected, "{text:?}");
    };
    // The longest name only, its namesakes behind it; "Ed Wooden" is another name.
    expect(
        "Was Ed Wood a friend of Bela Lugosi?",
        &[("Ed Wood", "ab"), ("Bela Lugosi", "f")],
    );
    expect("He met Ed Wooden.", &[("Ed Wooden", "h")]);
    // Without capitals names are tried with them, but a single word is none.
    expect(
        "who played bela lugosi in ed wood",
        &[("Bela Lugosi", "f"), ("Ed Wood", "ab")],
    );
    expect("is wood heavy", &[]);
    // What is added after a comma, other scripts, and texts without names.
    expect("Where is Springfield in Ohio?", &[("Springfield", "g")]);
    expect("The Tokyo of 東京 Tower", &[("東京", "i")]);
    expect("Vampira is in no title", &[]);
    expect("", &[]);
    expect(" \n ", &[]);
    // Frequent names, and names of many documents, say nothing.
    let strict = |settings: TitleSettings| {
        shown(&named_in(&index, &tokenizer, "On Ed Wood", &settings).unwrap())
    };
    let rare = TitleSettings {
        most_occurrences: 1,
        ..settings.clone()
    };
    assert!(strict(rare).is_empty());
    let alone = TitleSettings {
        sharing: 1,
        ..settings.clone()
    };
    assert!(strict(alone).is_empty());
    let none = TitleSettings {
        most_words: 0,
        ..settings.clone()
    };
    assert!(strict(none).is_empty());

    // A name of one document that stands twice, in ten documents: 1 − ln 2 / ln 10.
    let titles = named("On Bela Lugosi");
    assert_eq!(titles[0].occurrences, 2);
    let share = |titles: &[NamedTitle]| shares(titles, 10, 0.25)[&titles[0].documents[0]];
    let whole = 1.0 - 2f32.ln() / 10f32.ln();
    assert!((share(&titles) - whole).abs() < 1e-6);
    // The same, guessed from a text without capitals; a script without letter case is none.
    let titles = named("on bela lugosi");
    assert!((share(&titles) - 0.25 * whole).abs() < 1e-6);
    assert!(!named("東京")[0].guessed);
}

#[test]
fn a_title_is_found_however_many_texts_begin_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer();
    let bodies: Vec<(String, String)> = (0..600)
        .map(|number| {
            (
                format!("b{number}"),
                format!("Alder Grove was crossed {number} times."),
            )
        })
        .collect();
    let mut documents: Vec<(&str, &str, &str)> = bodies
        .iter()
        .map(|(id, text)| (id.as_str(), "Crossings", text.as_str()))
        .collect();
    for at in [0, 300, 600] {
        documents.insert(at, ("t", "Alder Grove", "A village."));
        let out = folder.path().join(at.to_string());
        std::fs::create_dir(&out).unwrap();
        let index = index(&tokenizer, &out, &documents);
        let settings = TitleSettings::default();
        let found = named_in(&index, &tokenizer, "Where is Alder Grove?", &settings).unwrap();
        assert_eq!((found.len(), found[0].occurrences), (1, 601));
        assert_eq!(index.document(found[0].documents[0]).unwrap().id, "t");
        let rare = TitleSettings {
            most_occurrences: 600,
            ..settings
        };
        let found = named_in(&index, &tokenizer, "Where is Alder Grove?", &rare).unwrap();
        assert!(found.is_empty());
        documents.remove(at);
    }
}

/// The tokenizer of bytes, with these words as tokens too.
fn with_tokens(words: &[&str]) -> Tokenizer {
    let definition = include_bytes!("../../models/tests/fixtures/bytes.json");
    let mut definition: serde_json::Value = serde_json::from_slice(definition).unwrap();
    let vocabulary = definition["model"]["vocab"].as_object().unwrap().clone();
    let shown: Vec<String> = (0..256u64)
        .map(|byte| {
            let entry = vocabulary.iter().find(|(_, id)| **id == byte);
            entry.unwrap().0.clone()
        })
        .collect();
    let mut merges = Vec::new();
    for word in words {
        let mut left = shown[usize::from(word.as_bytes()[0])].clone();
        for &byte in &word.as_bytes()[1..] {
            let right = &shown[usize::from(byte)];
            merges.push(format!("{left} {right}"));
            left.push_str(right);
            let vocabulary = definition["model"]["vocab"].as_object_mut().unwrap();
            let id = vocabulary.len();
            vocabulary.entry(left.clone()).or_insert(id.into());
        }
    }
    merges.dedup();
    definition["model"]["merges"] = merges.into();
    Tokenizer::from_json(definition.to_string().as_bytes()).unwrap()
}

#[test]
fn a_token_may_reach_over_words_in_scripts_without_spaces() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = with_tokens(&["京都", "日本銀"]);
    let documents = [
        ("a", "京都大学", "大学。"),
        ("b", "日本銀行", "銀行。"),
        ("c", "大阪府", "府。"),
    ];
    let index = index(&tokenizer, folder.path(), &documents);
    let named = |text: &str| -> Vec<String> {
        let settings = TitleSettings::default();
        let found = named_in(&index, &tokenizer, text, &settings).unwrap();
        found.into_iter().map(|title| title.name).collect()
    };
    assert_eq!(named("京都大学はどこにありますか"), ["京都大学"]);
    assert_eq!(named("日本銀行と大阪府"), ["日本銀行", "大阪府"]);
    assert!(named("京都はどこ").is_empty());
}
