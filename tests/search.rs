//! `verbatim search` against plain string search, in many scripts.

mod common;

use std::collections::HashSet;

use common::{build, verbatim, write_corpus};

const TEXTS: &[(&str, &str)] = &[
    (
        "years",
        "In 1969 and 1969, then 1969. Again 1969\n1969 it was; (1969) too.",
    ),
    ("emoji", "👩‍👩 done 👩 and 👩‍👩‍👧 done"),
    ("hindi", "मम में उनके में क्लोरोप्लास्ट में है। मम"),
    ("thai", "กะพริบ ถูก ถึง ตัว กะพริบ"),
    ("chinese", "这是第一，这是第二。3,000 3, 这"),
    ("marks", "cafe\u{301} and café and cafe"),
];

/// Every place that is listed is the phrase, is listed once, and stands where it says.
#[test]
fn places_are_the_phrase_and_listed_once() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    let documents: Vec<_> = TEXTS.iter().map(|(id, text)| (*id, "", *text)).collect();
    write_corpus(&corpus, &documents);
    let index = folder.path().join("index");
    build(&corpus, &index);
    let index = index.to_str().unwrap();
    // (phrase, its spellings as they stand in a text, places that begin and end with a token)
    let cases: [(&str, &[&str], usize); 9] = [
        ("1969", &["1969"], 6),
        ("👩", &["👩"], 1),
        ("मम", &["मम"], 2),
        ("में", &["में"], 3),
        ("क्लोरोप्लास्ट", &["क्लोरोप्लास्ट"], 1),
        ("กะพริบ", &["กะพริบ"], 2),
        ("3,", &["3,"], 2),
        ("café", &["café", "cafe\u{301}"], 2),
        ("न", &["न"], 1),
    ];
    for (phrase, spellings, expected) in cases {
        let run = verbatim(&[
            "search", "--index", index, "--json", "--top", "1000", phrase,
        ]);
        assert!(matches!(run.code, Some(0 | 1)), "{phrase}: {}", run.stderr);
        let found = run.json();
        let places = found["places"].as_array().unwrap();
        let mut seen = HashSet::new();
        for place in places {
            let quote = place["quote"].as_str().unwrap();
            assert!(spellings.contains(&quote), "{phrase}: quoted {quote:?}");
            let text = TEXTS.iter().find(|(id, _)| place["id"] == **id).unwrap().1;
            let number = |key: &str| place[key].as_u64().unwrap() as usize;
            assert_eq!(&text[number("start_byte")..number("end_byte")], quote);
            assert!(
                seen.insert((place["id"].as_str().unwrap(), number("start_byte"))),
                "{phrase}: twice"
            );
        }
        assert_eq!(places.len(), expected, "{phrase}: {found}");
        assert!(found["occurrences"].as_u64().unwrap() >= expected as u64);
    }
}
