//! Wikitext as text: by example, on anything at all, and on real pages with a measure of what is left and lost.

use std::fs;

use corpus_tools::reader::{Entry, Input, Reader};
use corpus_tools::wikitext::{Site, plain_text, redirect_target, residue};
use proptest::prelude::*;

use crate::common::shared;

fn text(source: &str) -> String {
    plain_text(source, "Title", &Site::default())
}

#[test]
fn constructs() {
    for (source, expected) in [
        // Links.
        ("[[Fox]]es and [[Canidae|dogs]]", "Foxes and dogs"),
        (
            "[[Fox (animal)|]] [[:Category:Foxes]] [[#Habitat|below]]",
            "Fox Category:Foxes below",
        ),
        (
            "A[[Category:Foxes]] [[Категория:Лисы|x]]\n[[fr:Renard]]",
            "A",
        ),
        (
            "[https://example.org/a?b=c the site] and [https://example.org] x",
            "the site and x",
        ),
        (
            "[[It: Chapter Two]] and [[wikt:fox|fox]]",
            "It: Chapter Two and fox",
        ),
        // Pictures give captions as paragraphs of their own.
        (
            "[[File:A.jpg|thumb|200px|A red [[fox]] at night]]Foxes sleep.",
            "A red fox at night\nFoxes sleep.",
        ),
        (
            "[[Datei:A.jpg|mini|links]]Text [[Archivo:b.png|40px]].",
            "Text.",
        ),
        ("[[Zzz:picture.svg|thumb|left]]Text", "Text"),
        // Type.
        (
            "'''Bold''', ''italic'', '''''both''''' and l'''amour''.",
            "Bold, italic, both and l'amour.",
        ),
        ("5'' of rain", "5 of rain"),
        (
            "a<br/>b<sup>2</sup> H<sub>2</sub>O 10<sup>−6</sup> 1<sup>st</sup>",
            "a\nb² H2O 10⁻⁶ 1st",
        ),
        (
            "&lt;b&gt; &amp; caf&eacute; &#8364; &#x10330; &unknown;",
            "<b> & café € 𐌰 &unknown;",
        ),
        (
            "<nowiki>[[not a link]] ''x''</nowiki> {{nowrap|a <nowiki>|</nowiki> b}}",
            "[[not a link]] ''x'' a | b",
        ),
        ("x < y and y > z, <stdio.h>", "x < y and y > z, <stdio.h>"),
        (
            "<math>\\frac{a}{b} \\leq \\alpha</math> holds",
            "a/b ≤ α holds",
        ),
        ("a<!-- comment -->b <!-- open", "ab"),
        (
            "__NOTOC__ a __KEIN_INHALTSVERZEICHNIS__ b __目次非表示__ c __init__",
            "a b c __init__",
        ),
        ("-{zh-hans:计算机; zh-hant:電腦}- -{简体}-", "计算机 简体"),
        ("shown<span style=\"display: none\">hidden</span>", "shown"),
        // References leave nothing, and nothing of what stood around them.
        (
            "A fact.<ref name=\"a\">Book {{cite|x}}.</ref> More<ref name=\"b\" /> of it <ref>c</ref>.",
            "A fact. More of it.",
        ),
        ("x<ref>open", "xopen"),
        // Templates.
        (
            "{{Infobox|name={{x|y}}\n|a=b}}\nText {{unknown|with|words}} here.",
            "Text here.",
        ),
        (
            "Paris ({{IPA|x}}; born 1970) and printf()",
            "Paris (born 1970) and printf()",
        ),
        (
            "{{convert|10|km|mi}} {{convert|5|-|7|sqmi}} {{cvt|6|ft|2|in}}",
            "10 km 5–7 sq mi 6 ft 2 in",
        ),
        (
            "{{lang|fr|chat}} {{lang-de|Katze}} {{nowrap|1 000}} {{ill|Title|de}}",
            "chat Katze 1 000 Title",
        ),
        (
            "{{nihongo|Tokyo|東京|Tōkyō}} {{abbr|km|kilometre}}",
            "Tokyo (東京, Tōkyō) km",
        ),
        (
            "{{birth date|1990|5|3}} {{as of|2010|5|lc=y}} {{circa|1500}}",
            "May 3, 1990 as of May 2010 c. 1500",
        ),
        (
            "{{PAGENAME}} {{#if: x | yes | no}} {{lc:ABC}} {{{1|default}}}",
            "Title yes abc default",
        ),
        (
            "{{quote|It is ''so''.|A. Writer}}",
            "It is so.\n— A. Writer",
        ),
        ("{{unclosed|a\n\nText}} more", "more"),
        ("{{unclosed and text", "unclosed and text"),
        // Blocks.
        ("== Empty ==\n== Full ==\ntext\n=== Sub ===\n", "Full\ntext"),
        (
            "* one\n** two\n# three\n: four\n;term: meaning",
            "one\ntwo\nthree\nfour\nterm: meaning",
        ),
        (
            "A paragraph\nin two lines\n\nand another\n----\nlast",
            "A paragraph in two lines\nand another\nlast",
        ),
        (
            "{| class=\"wikitable\"\n|+ Heights\n! Name !! Height\n|-\n| style=\"color:red\" | [[Mount A|A]] || 10 m\n|-\n|B\n|20 m\n|}\nafter",
            "Heights\nName; Height\nA; 10 m\nB; 20 m\nafter",
        ),
        ("{|\n| a\n{|\n| inner\n|}\n| b\n|}", "inner\na; b"),
        ("{|\n| unclosed", "unclosed"),
        ("{{(!}}\n{{!}} a {{!!}} b\n{{!}}}", "a; b"),
        (
            "<gallery>\nFile:A.jpg|A [[fox]] sleeps\nFile:B.jpg\n</gallery>",
            "A fox sleeps",
        ),
        (
            "<poem>\nRoses are red\nViolets are blue\n</poem>",
            "Roses are red\nViolets are blue",
        ),
        (
            "<syntaxhighlight lang=c>\nint a[] = {{1}};\n</syntaxhighlight>",
            "int a[] = {{1}};",
        ),
        ("<table><tr><td>a</td><td>b</td></tr></table>", "a; b"),
    ] {
        assert_eq!(text(source), expected, "{source}");
    }
}

#[test]
fn namespaces_come_from_the_wiki() {
    let site = Site::new(
        "Vikipedeja",
        [(6, "Fails"), (14, "Kategoreja"), (10, "Taiss")],
    );
    let source = "[[Fails:A.jpg|thumb|Liela lopsa mežā]]Lopsa.[[Kategoreja:Zvieri]]";
    assert_eq!(plain_text(source, "", &site), "Liela lopsa mežā\nLopsa.");
    assert_eq!(site.namespace("Taiss:Kaste"), 10);
    assert_eq!(site.namespace("Lopsa: zvērs"), 0);
}

#[test]
fn codes_with_something_behind_them_and_words_of_other_wikis() {
    assert_eq!(
        text("The cruiser {{SMS|Emden}} sank."),
        "The cruiser SMS Emden sank."
    );
    assert_eq!(
        text("It cost {{INR|500}} million."),
        "It cost INR 500 million."
    );
    assert_eq!(text("Vienna ({{langx|de|Wien}})"), "Vienna (Wien)");
    let film = "The 1988 film [[Imagine: John Lennon]] was made.";
    let site = Site::new("Wikipedia", [(6, "File"), (14, "Category")]);
    assert_eq!(
        plain_text(film, "Film", &site),
        "The 1988 film Imagine: John Lennon was made."
    );
}

#[test]
fn redirects_in_any_language() {
    for (source, target) in [
        ("#REDIRECT [[Fox]]", Some("Fox")),
        (
            "#redirect[[red_fox#Habitat]] {{R from move}}",
            Some("red fox"),
        ),
        ("#ПЕРЕНАПРАВЛЕНИЕ: [[Лиса]]", Some("Лиса")),
        ("# [[Fox]]\n# [[Dog]]", None),
        ("'''Fox''' #REDIRECT [[x]]", None),
    ] {
        assert_eq!(redirect_target(source).as_deref(), target, "{source}");
    }
}

/// Pieces of markup, opened and closed in any order.
fn markup() -> impl Strategy<Value = String> {
    let pieces = [
        "{{",
        "}}",
        "{{{",
        "}}}",
        "[[",
        "]]",
        "[",
        "]",
        "{|",
        "|}",
        "\n|-\n",
        "\n|",
        "\n!",
        "||",
        "|",
        "=",
        "\n==",
        "==\n",
        "'''",
        "''",
        "<ref>",
        "</ref>",
        "<ref name=x/>",
        "<nowiki>",
        "</nowiki>",
        "<!--",
        "-->",
        "<math>",
        "</math>",
        "<gallery>",
        "</gallery>",
        "<poem>",
        "</poem>",
        "<br>",
        "<span style=display:none>",
        "</span>",
        "<sup>",
        "-{",
        "}-",
        "__",
        "__TOC__",
        "&amp;",
        "&#x",
        ";",
        "\n*",
        "\n#",
        "\n:",
        " ",
        "\n",
        "\n\n",
        "http://a",
        "[http://b ",
        "File:",
        "Category:",
        "convert|1|km",
        "lang|fr|",
        "#if:",
        "lc:",
        "é",
        "中",
        "\u{fdd0}",
        "\u{301}",
        "a",
        "word ",
        "(",
        ")",
        "\t",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..60)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn anything_is_text(source in prop_oneof![any::<String>(), markup()]) {
        let text = text(&source);
        for line in text.lines() {
            prop_assert_eq!(line.trim(), line);
            prop_assert!(line.chars().any(char::is_alphanumeric), "{:?}", line);
            prop_assert!(!line.contains(|c: char| c.is_control() || ('\u{fdd0}'..='\u{fdef}').contains(&c)), "{:?}", line);
        }
    }

    #[test]
    fn plain_paragraphs_stay(words in prop::collection::vec("[a-zA-Zéя中]{1,8}[,.]?", 1..40)) {
        let line = words.join(" ");
        prop_assert_eq!(text(&line), line);
    }
}

/// What is nested or left open a hundred thousand times ends: were a step not linear, this would take hours.
#[test]
fn hostile_pages_end() {
    let bombs: [(&str, &str, &str); 16] = [
        ("{{", "x", "}}"),
        ("{{", "", ""),
        ("{{{", "x", "}}}"),
        ("{{convert|", "1|km", "}}"),
        ("{{nowrap|", "x", "}}"),
        ("[[a|", "x", "]]"),
        ("[[", "", ""),
        ("[[File:a.jpg|thumb|", "x", ""),
        ("[http://a ", "x", "]"),
        ("\n{|\n|", "x", "\n|}"),
        ("<ref>", "", ""),
        ("<b <", "", ""),
        ("<poem>", "x", "</poem>"),
        ("'''", "x", "''"),
        ("-{", "x", "}-"),
        ("<span style='display:none'>", "x", ""),
    ];
    for (open, inside, close) in bombs {
        let times = 100_000;
        let source = format!(
            "start {}{inside}{} end",
            open.repeat(times),
            close.repeat(times)
        );
        let text = text(&source);
        assert!(text.len() <= 2 * source.len() + 1000, "{open}");
    }
}

/// The measures on every real page that is here: markup left in less than 1 paragraph in 500, and every
/// line of the source that has no markup but links and type is in the text.
#[test]
fn real_pages_read_well() {
    let (mut paragraphs, mut marked, mut plain_lines, mut lost) =
        (0u32, Vec::new(), 0u32, Vec::new());
    let mut judge = |title: &str, source: &str, text: &str| {
        for paragraph in text.lines() {
            paragraphs += 1;
            if let Some(sign) = residue::markup(paragraph) {
                marked.push(format!("{title}: {sign}: {paragraph}"));
            }
        }
        for line in source.lines().filter(|line| line.len() > 60) {
            // A line within a reference or a comment of several lines looks like any other: a few may be lost.
            let begins = line.starts_with([' ', '!', '*', '#', ':', ';', '[']);
            if begins
                || line.contains(['{', '}', '<', '>', '|', '&', '=', '_'])
                || line.contains("''")
            {
                continue;
            }
            let shown = line.replace("[[", "").replace("]]", "");
            if shown.contains(['[', ']']) {
                continue;
            }
            plain_lines += 1;
            let shown: Vec<&str> = shown.split_whitespace().collect();
            if !text.contains(&shown.join(" ")) {
                lost.push(format!("{title}: {line}"));
            }
        }
    };
    let mut pages = 0;
    let Some(folder) = shared("wikitext/anarchism.txt") else {
        return;
    };
    for entry in fs::read_dir(folder.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let source = fs::read_to_string(&path).unwrap();
        let title = path.file_stem().unwrap().to_string_lossy().into_owned();
        judge(
            &title,
            &source,
            &plain_text(&source, &title, &Site::default()),
        );
        pages += 1;
    }
    for dump in [
        "bgwiki-utf16",
        "enwiki-206pages",
        "enwiki-tables",
        "ltgwiki-2004pages",
    ] {
        let Some(path) = shared(&format!("dumps/{dump}.xml.bz2")) else {
            return;
        };
        for entry in Reader::new([Input::named(path)]) {
            match entry.unwrap() {
                // The source is not at hand: the text alone is judged.
                Entry::Record(record) => judge(&record.title, "", &record.text),
                Entry::Bad(bad) => panic!("{bad}"),
            }
            pages += 1;
        }
    }
    eprintln!(
        "{pages} pages, {paragraphs} paragraphs, {} with markup; {plain_lines} plain lines of sources, {} lost",
        marked.len(),
        lost.len()
    );
    assert!(
        paragraphs > 20_000 && plain_lines > 50,
        "{paragraphs} {plain_lines}"
    );
    assert!(marked.len() * 500 < paragraphs as usize, "{marked:#?}");
    assert!(lost.len() * 20 < plain_lines as usize, "{lost:#?}");
}
