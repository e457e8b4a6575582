//! Citations: every span of tokens leads to a quote that stands word for word in the text.

use corpus_tools::canonical::canonical_text;
use corpus_tools::{CiteError, Index, build};
use fmindex::DocumentId;
use unicode_segmentation::UnicodeSegmentation;

use crate::common::{HARD, corpus, indexed, lines, options, shared, tokenizer};

/// Whether a span of tokens covers a whole visible grapheme of its paragraph's canonical form.
fn holds_a_character(index: &Index, number: DocumentId, span: std::ops::Range<u32>) -> bool {
    let document = index.document(number).unwrap();
    let tokens = document.paragraph_at(span.start).unwrap().tokens.clone();
    let length = |span| {
        let tokens = index.fm().extract(number, span);
        let bytes = |token: &u32| tokenizer().token_bytes(*token).unwrap().len();
        tokens.iter().map(bytes).sum::<usize>()
    };
    let (from, to) = (
        length(tokens.start..span.start),
        length(tokens.start..span.end),
    );
    let canonical =
        canonical_text(document.paragraph_text(document.paragraph_at(span.start).unwrap()));
    canonical
        .grapheme_indices(true)
        .any(|(at, cluster)| from <= at && at + cluster.len() <= to && !cluster.trim().is_empty())
}

/// Checks the citation of one span inside a paragraph; says whether there was one.
fn check(index: &Index, number: DocumentId, span: std::ops::Range<u32>) -> bool {
    let document = index.document(number).unwrap();
    let tokens = index.fm().extract(number, span.clone());
    let citation = match index.cite(tokenizer(), number, span.clone()) {
        Ok(citation) => citation,
        // Only what holds no whole character has no citation.
        Err(CiteError::NoText { .. }) => {
            assert!(!holds_a_character(index, number, span), "{:?}", document.id);
            return false;
        }
        Err(error) => panic!("{error}"),
    };
    let (start, end) = (citation.start_byte as usize, citation.end_byte as usize);
    assert_eq!(citation.quote, document.text[start..end]);
    assert!(!citation.quote.is_empty());
    let chars: Vec<char> = document.text.chars().collect();
    let by_chars: String = chars[citation.start_char as usize..citation.end_char as usize]
        .iter()
        .collect();
    assert_eq!(by_chars, citation.quote);
    let boundary = |at: usize| {
        at == document.text.len()
            || document
                .text
                .grapheme_indices(true)
                .any(|(start, _)| start == at)
    };
    assert!(
        boundary(start) && boundary(end),
        "{:?} {start}..{end}",
        document.id
    );

    // The canonical form of the slice is what the tokens say, but for clusters cut at either end.
    let mut said = Vec::new();
    for token in tokens {
        said.extend_from_slice(tokenizer().token_bytes(token).unwrap());
    }
    let again = canonical_text(&citation.quote);
    let again = again.strip_prefix(' ').unwrap().as_bytes();
    let at = said.windows(again.len()).position(|window| window == again);
    assert!(
        at.is_some(),
        "{:?} {span:?}: {:?}",
        document.id,
        citation.quote
    );
    let paragraph = &document.paragraphs[citation.paragraph as usize];
    assert!(paragraph.bytes.start <= start && end <= paragraph.bytes.end);
    true
}

#[test]
fn every_span_of_hard_texts() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = indexed(dir.path(), HARD);
    for number in index.documents() {
        for paragraph in &index.paragraphs(number).unwrap()[1..] {
            let tokens = paragraph.tokens.clone();
            for start in tokens.clone() {
                for end in start + 1..=tokens.end {
                    check(&index, number, start..end);
                }
            }
        }
    }
}

#[test]
fn spans_in_many_languages() {
    for language in ["ar", "hi", "ru", "th", "zh"] {
        let Some(path) = shared(&format!("multilingual/ml_xquad_{language}.jsonl.zst")) else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("index");
        let report = build(&options(&path, &out), &()).unwrap();
        assert_eq!((report.documents, report.skipped_count), (240, 0));
        let index = Index::open(&out).unwrap();
        let mut random = 88172645463325252u64;
        let mut cited = 0;
        for number in index.documents() {
            let paragraphs = index.paragraphs(number).unwrap();
            for _ in 0..4 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let paragraph = &paragraphs[1 + random as usize % (paragraphs.len() - 1)];
                let length = paragraph.tokens.len() as u64;
                let start = paragraph.tokens.start + ((random >> 8) % length) as u32;
                let end =
                    start + 1 + ((random >> 32) % u64::from(paragraph.tokens.end - start)) as u32;
                cited += u32::from(check(&index, number, start..end));
            }
            // And whole paragraphs, in which nothing is moved.
            let last = paragraphs.last().unwrap();
            let citation = index
                .cite(tokenizer(), number, last.tokens.clone())
                .unwrap();
            let document = index.document(number).unwrap();
            assert_eq!(citation.quote, document.paragraph_text(last).trim());
        }
        assert!(cited > 700, "{language} {cited}");
    }
}

#[test]
fn what_is_no_evidence_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = indexed(dir.path(), HARD);
    let number = index.document_by_external_id("fox").unwrap().unwrap();
    let paragraphs = index.paragraphs(number).unwrap();
    let cite = |span| index.cite(tokenizer(), number, span);
    let (title, first, second) = (
        &paragraphs[0].tokens,
        &paragraphs[1].tokens,
        &paragraphs[2].tokens,
    );
    assert!(matches!(cite(title.clone()), Err(CiteError::Title { .. })));
    let crossing = [
        first.start..first.end + 1,
        first.start..second.end,
        title.start..first.end,
        first.end..second.start,
        first.start..first.start,
        second.end..second.end + 5,
        0..u32::MAX,
        u32::MAX - 1..u32::MAX,
    ];
    for span in crossing {
        let found = cite(span.clone());
        assert!(
            matches!(found, Err(CiteError::NotInOneParagraph { .. })),
            "{span:?} {found:?}"
        );
    }
    let none = DocumentId {
        segment: 0,
        document: 9999,
    };
    assert!(matches!(
        index.cite(tokenizer(), none, 0..1),
        Err(CiteError::Index(_))
    ));
    let none = DocumentId {
        segment: 9,
        document: 0,
    };
    assert!(index.document(none).is_err());
}

#[test]
fn a_citation_is_written_as_agreed() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = indexed(dir.path(), &[("1", "Le café", "é. Un cafe\u{301}  noir.")]);
    let number = index.documents().next().unwrap();
    let tokens = index.paragraphs(number).unwrap()[1].tokens.clone();
    let text = tokenizer().decode(&index.fm().extract(number, tokens.clone()));
    assert_eq!(text, " é. Un café noir.");
    // From " Un" to the end.
    let skipped = tokenizer().encode_text(" é.").len() as u32;
    let citation = index
        .cite(tokenizer(), number, tokens.start + skipped..tokens.end)
        .unwrap();
    assert_eq!(
        serde_json::to_value(&citation).unwrap(),
        serde_json::json!({
            "id": "1", "title": "Le café", "quote": "Un cafe\u{301}  noir.",
            "start_byte": 4, "end_byte": 20, "start_char": 3, "end_char": 18,
            "paragraph": 1, "other_occurrences": 0, "score": 0.0,
            "metadata": {"kind": "made-up"},
        })
    );
}

#[test]
fn parallel_questions_have_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", lines(HARD));
    let out = dir.path().join("index");
    build(&options(&path, &out), &()).unwrap();
    let index = Index::open(&out).unwrap();
    let ask = || {
        let found = index
            .lexical()
            .search("the red fox and the café", 10)
            .unwrap();
        let ids: Vec<String> = found
            .iter()
            .map(|(d, _)| index.document(*d).unwrap().id.to_owned())
            .collect();
        (found, ids)
    };
    let alone = ask();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), alone);
        }
    });
}
