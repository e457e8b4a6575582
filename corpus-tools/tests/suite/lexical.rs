//! BM25 of an index against the formula, over one and over many segments.

use corpus_tools::analysis::Analyser;
use corpus_tools::bm25::{self, Parameters};
use corpus_tools::{BuildOptions, Index, build};
use fmindex::DocumentId;
use proptest::prelude::*;

use crate::common::{HARD, corpus, indexed, lines, options};

/// Positions of documents and scores of a search, whatever the segments.
fn search(index: &Index, question: &str, k: usize) -> Vec<(usize, f32)> {
    let all: Vec<DocumentId> = index.documents().collect();
    let found = index.lexical().search(question, k).unwrap();
    found
        .into_iter()
        .map(|(document, score)| (all.iter().position(|&d| d == document).unwrap(), score))
        .collect()
}

#[test]
fn any_script_is_found_and_any_question_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = indexed(dir.path(), HARD);
    let best = |question: &str| {
        let found = index.lexical().search(question, 3).unwrap();
        found
            .first()
            .map(|&(document, _)| index.document(document).unwrap().id.to_owned())
    };
    for (question, id) in [
        ("FOXES jumping", "fox"),
        ("café au lait", "café"),
        ("维基百科", "zh"),
        ("แพนเธอร์ส", "th"),
        ("ज्ञान", "hi"),
        ("한국어", "ko"),
        ("astronaut", "emoji"),
        ("nothing", "empty"),
    ] {
        assert_eq!(best(question).as_deref(), Some(id), "{question}");
    }
    for question in [
        "",
        "  ",
        "AND OR NOT",
        "title:(\"",
        "a:b^2~ [x TO *] + - \\",
        "\0\u{1b}",
        "🦀",
    ] {
        index.lexical().search(question, 10).unwrap();
    }
    assert_eq!(index.lexical().search("the", 0).unwrap(), []);
    let long = "the red fox ".repeat(20_000);
    assert_eq!(search(&index, &long, 1)[0].0, 0);

    let terms = index
        .lexical()
        .question_terms("Did the fox say Zanzibar? The dog!")
        .unwrap();
    let written: Vec<&str> = terms.iter().map(|term| term.written.as_str()).collect();
    assert_eq!(terms.last().unwrap().documents, 0);
    assert!(written.contains(&"Zanzibar") && written.contains(&"fox"));
    assert!(
        terms.windows(2).all(|pair| {
            pair[0].idf * pair[0].times as f32 >= pair[1].idf * pair[1].times as f32
        })
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Short documents, whose lengths the index stores exactly: the scores are those of the formula,
    /// equal ones in document order, for one segment and for several.
    #[test]
    fn scores_are_the_formula(
        documents in prop::collection::vec("[abc]( [abcd]{1,2}){0,12}", 1..40),
        question in "[abcd]( [abcde]{1,2}){0,4}",
        k in 1usize..20,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let named: Vec<_> = documents.iter().enumerate().map(|(i, text)| (format!("d{i}"), text)).collect();
        let named: Vec<_> = named.iter().map(|(id, text)| (id.as_str(), "", text.as_str())).collect();
        let path = corpus(dir.path(), "corpus.jsonl", lines(&named));

        let analyser = Analyser::default();
        let texts: Vec<&str> = documents.iter().map(String::as_str).collect();
        let terms: Vec<Vec<String>> = texts.iter().map(|text| analyser.terms(text)).collect();
        let average = terms.iter().map(Vec::len).sum::<usize>() as f32 / terms.len() as f32;
        let score = |terms_of: &Vec<String>| -> f32 {
            analyser.terms(&question).iter().map(|term| {
                let containing = terms.iter().filter(|other| other.contains(term)).count();
                let tf = terms_of.iter().filter(|other| *other == term).count();
                if tf == 0 { return 0.0; }
                bm25::idf(containing as u64, terms.len() as u64)
                    * Parameters::default().frequency_factor(tf as f32, terms_of.len() as f32, average)
            }).sum()
        };
        let wanted: Vec<f32> = terms.iter().map(score).collect();

        let mut answers = Vec::new();
        for (name, segment_tokens) in [("one", None), ("many", Some(60))] {
            let out = dir.path().join(name);
            build(&BuildOptions { segment_tokens, ..options(&path, &out) }, &()).unwrap();
            let index = Index::open(&out).unwrap();
            let found = search(&index, &question, k);
            let expected = wanted.iter().filter(|score| **score > 0.0).count().min(k);
            prop_assert_eq!(found.len(), expected);
            for &(document, score) in &found {
                prop_assert!((score - wanted[document]).abs() < 1e-4, "{} {}", score, wanted[document]);
            }
            let ordered = found.windows(2).all(|pair| {
                pair[0].1 > pair[1].1 || (pair[0].1 == pair[1].1 && pair[0].0 < pair[1].0)
            });
            prop_assert!(ordered);
            let memory = index.lexical().score_texts(&question, &texts).unwrap();
            prop_assert!(memory.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-4));
            answers.push(found);
        }
        prop_assert_eq!(&answers[0], &answers[1]);
    }
}
