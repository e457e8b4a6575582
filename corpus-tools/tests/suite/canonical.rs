//! Canonical form and offset map against a naive definition, in many scripts.

use corpus_tools::canonical::{Canonical, canonical_text, paragraphs};
use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

/// NFC, then runs of white space to one space, one in front, none at the end.
fn naive(paragraph: &str) -> String {
    let composed: String = paragraph.nfc().collect();
    composed
        .split_whitespace()
        .map(|word| format!(" {word}"))
        .collect()
}

/// Pieces that combine, reorder, cluster and fold in every way that is known to hurt.
fn hard_text() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "a",
        "e",
        "Z",
        "x",
        ".",
        "\"",
        "1",
        "é",
        "e\u{301}",
        "\u{301}",
        "\u{323}",
        "\u{308}\u{301}",
        "q\u{307}\u{323}",
        " ",
        "  ",
        "\t",
        "\r\n",
        "\r",
        "\n",
        "\u{a0}",
        "\u{2003}",
        "\u{2028}",
        "\u{3000}",
        "\u{85}",
        "\u{200b}",
        "\u{200d}",
        "\u{feff}",
        "\0",
        "\u{1b}",
        "\u{ad}",
        "\u{600}",
        "\u{6dd}",
        "\u{1100}",
        "\u{1161}",
        "\u{11a8}",
        "가",
        "각",
        "한",
        "中",
        "か\u{3099}",
        "が",
        "\u{fb1d}",
        "\u{212b}",
        "Ω",
        "\u{2126}",
        "ก",
        "ี",
        "่",
        "น้ำ",
        "क",
        "्",
        "ष",
        "ि",
        "\u{93c}",
        "ক\u{9c7}\u{9be}",
        "\u{b47}\u{b3e}",
        "\u{1025}\u{102e}",
        "ש",
        "ָ",
        "ׁ",
        "م",
        "ّ",
        "\u{202e}",
        "👩",
        "\u{200d}🚀",
        "🏽",
        "🇩",
        "🇪",
        "👨‍👩‍👧",
        "\u{fe0f}",
        "\u{e0100}",
        "\u{11127}",
        "\u{11131}\u{11127}",
        "\u{1d15e}",
        "\u{f900}",
        "\u{2f800}",
        "\u{340}",
        "\u{37e}",
        "ﬁ",
    ];
    let piece = prop_oneof![
        8 => prop::sample::select(PIECES).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn is_boundary(text: &str, at: usize) -> bool {
    at == text.len() || text.grapheme_indices(true).any(|(start, _)| start == at)
}

/// What must hold for every span of a paragraph.
fn check(paragraph: &str, from: usize, to: usize) {
    let canonical = Canonical::new(paragraph);
    let text = canonical.text();
    let Some(span) = canonical.span(from..to) else {
        return;
    };
    assert!(from <= span.canonical.start && span.canonical.end <= to);
    let original = &paragraph[span.original.clone()];
    assert_eq!(
        canonical_text(original).strip_prefix(' '),
        Some(&text[span.canonical.clone()]),
        "{paragraph:?} {from}..{to}"
    );
    assert!(
        is_boundary(paragraph, span.original.start),
        "{paragraph:?} {span:?}"
    );
    assert!(
        is_boundary(paragraph, span.original.end),
        "{paragraph:?} {span:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_form_is_the_naive_one(text in hard_text()) {
        prop_assert_eq!(canonical_text(&text), naive(&text));
        let canonical = Canonical::new(&text);
        prop_assert_eq!(canonical.text(), naive(&text));
        // And it is a fixed point.
        prop_assert_eq!(canonical_text(canonical.text()), canonical.text());
    }

    #[test]
    fn every_span_leads_back(text in hard_text(), from in 0usize..60, length in 0usize..60) {
        check(&text, from, from + length);
    }

    #[test]
    fn the_whole_form_is_the_whole_paragraph(text in hard_text()) {
        let canonical = Canonical::new(&text);
        match canonical.span(0..usize::MAX) {
            None => prop_assert!(text.trim().is_empty()),
            Some(span) => {
                prop_assert_eq!(span.canonical, 1..canonical.text().len());
                prop_assert!(text[..span.original.start].trim().is_empty());
                prop_assert!(text[span.original.end..].trim().is_empty());
            }
        }
    }

    #[test]
    fn paragraphs_are_the_lines_that_say_something(text in hard_text()) {
        let spans: Vec<_> = paragraphs(&text).collect();
        let naive: Vec<&str> = text
            .split(['\r', '\n'])
            .filter(|line| !line.chars().all(char::is_whitespace))
            .collect();
        let found: Vec<&str> = spans.iter().map(|span| &text[span.clone()]).collect();
        prop_assert_eq!(found, naive);
        for span in spans {
            prop_assert!(is_boundary(&text, span.start) && is_boundary(&text, span.end));
        }
    }
}

#[test]
fn ends_move_off_the_inside_of_a_cluster() {
    let text = "go 👩‍🚀 now";
    let canonical = Canonical::new(text);
    assert_eq!(canonical.text(), " go 👩‍🚀 now");
    // The end in the emoji moves back over it, the start in it moves forward.
    assert_eq!(canonical.original_span(0..8), Some(0..2));
    assert_eq!(canonical.original_span(6..usize::MAX), Some(15..18));
    assert_eq!(canonical.original_span(6..9), None);
    assert_eq!(canonical.original_span(5..5), None);
    let (from, to) = (9, 2);
    assert_eq!(canonical.original_span(from..to), None);
}

#[test]
fn folded_and_composed_text_is_found_again() {
    let text = "Un cafe\u{301} au\u{a0}\t lait";
    let canonical = Canonical::new(text);
    assert_eq!(canonical.text(), " Un caf\u{e9} au lait");
    let at = canonical.text().find("caf").unwrap();
    let span = canonical.original_span(at..at + "café au l".len()).unwrap();
    assert_eq!(&text[span], "cafe\u{301} au\u{a0}\t l");
}

#[test]
fn nothing_is_the_empty_form() {
    for text in ["", " ", "\r\n\t\u{3000}"] {
        assert_eq!(canonical_text(text), "");
        assert_eq!(paragraphs(text).count(), 0);
    }
}

#[test]
fn a_pile_of_marks_does_not_take_for_ever() {
    let text = format!("a{}b", "\u{301}".repeat(200_000));
    let canonical = Canonical::new(&text);
    assert_eq!(canonical.original_span(0..usize::MAX), Some(0..text.len()));
}
