//! MediaWiki dumps: single and multistream, in other encodings, damaged, hostile; redirects and what is left out.

use std::io::Write;
use std::path::Path;

use corpus_tools::reader::{BadRecord, Entry, Input, LeftOut, ReadOptions, Reader, Record};
use corpus_tools::{Index, build};

use crate::common::{corpus, options, shared};

fn read(path: &Path, options: ReadOptions) -> (Vec<Record>, Vec<BadRecord>, LeftOut) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut reader = Reader::with_options([Input::named(path)], options);
    for entry in &mut reader {
        match entry.unwrap() {
            Entry::Record(record) => good.push(*record),
            Entry::Bad(record) => bad.push(record),
        }
    }
    (good, bad, reader.left_out())
}

fn bz2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const HEAD: &str = "<mediawiki xml:lang=\"xx\">\n  <siteinfo>\n    <sitename>Xpedia</sitename>\n    <namespaces>\n      \
    <namespace key=\"0\" />\n      <namespace key=\"6\" case=\"first-letter\">Pildo</namespace>\n      \
    <namespace key=\"14\" case=\"first-letter\">Rubriko</namespace>\n    </namespaces>\n  </siteinfo>\n";

fn page(id: u32, title: &str, text: &str) -> String {
    format!(
        "  <page>\n    <title>{title}</title>\n    <ns>0</ns>\n    <id>{id}</id>\n    <revision>\n      <id>9{id}</id>\n      \
         <contributor><username>x</username><id>7</id></contributor>\n      <model>wikitext</model>\n      \
         <text xml:space=\"preserve\">{text}</text>\n    </revision>\n  </page>\n"
    )
}

fn redirect(id: u32, title: &str, target: &str) -> String {
    format!(
        "  <page>\n    <title>{title}</title>\n    <ns>0</ns>\n    <id>{id}</id>\n    <redirect title=\"{target}\" />\n    \
         <revision>\n      <text>#REDIRECT [[{target}]]</text>\n    </revision>\n  </page>\n"
    )
}

/// Articles 1 to `count`, each with a few lines.
fn articles(count: u32) -> Vec<String> {
    (1..=count)
        .map(|id| {
            let noise = id.wrapping_mul(2_654_435_761);
            page(
                id,
                &format!("Title {id} &amp; more"),
                &format!("'''Page {id}''' speaks of {noise}.\n\nIt ends.[[Rubriko:A]]"),
            )
        })
        .collect()
}

/// A dump as it is published: head, streams of ten pages, foot.
fn multistream(pages: &[String]) -> Vec<Vec<u8>> {
    let mut streams = vec![bz2(HEAD.as_bytes())];
    streams.extend(pages.chunks(10).map(|pages| bz2(pages.concat().as_bytes())));
    streams.push(bz2(b"</mediawiki>\n"));
    streams
}

#[test]
fn every_packing_gives_the_same_pages() {
    let dir = tempfile::tempdir().unwrap();
    let pages = articles(60);
    let plain = format!("{HEAD}{}</mediawiki>\n", pages.concat());
    let utf16 = |big: bool, mark: bool| -> Vec<u8> {
        let mark = if mark { "\u{feff}" } else { "" };
        format!("{mark}{plain}")
            .encode_utf16()
            .flat_map(|unit| {
                if big {
                    unit.to_be_bytes()
                } else {
                    unit.to_le_bytes()
                }
            })
            .collect()
    };
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(plain.as_bytes()).unwrap();
    for (name, bytes) in [
        ("plain", plain.clone().into_bytes()),
        (
            "xml declaration",
            format!("<?xml version=\"1.0\"?>\n{plain}").into_bytes(),
        ),
        ("without lines", plain.replace('\n', " ").into_bytes()),
        ("gz", gz.finish().unwrap()),
        ("zst", zstd::encode_all(plain.as_bytes(), 1).unwrap()),
        ("bz2", bz2(plain.as_bytes())),
        ("multistream bz2", multistream(&pages).concat()),
        ("UTF-16, little end first", utf16(false, true)),
        ("UTF-16, big end first", utf16(true, true)),
        ("UTF-16 without a mark", utf16(false, false)),
        ("UTF-16 in bz2", bz2(&utf16(false, true))),
    ] {
        let path = corpus(dir.path(), "dump", bytes);
        for threads in [1, 4] {
            let options = ReadOptions {
                threads,
                ..ReadOptions::default()
            };
            let (good, bad, _) = read(&path, options);
            assert!(bad.is_empty(), "{name}: {bad:?}");
            assert_eq!(good.len(), 60, "{name}");
            assert_eq!(
                (good[6].id.as_str(), good[6].title.as_str()),
                ("7", "Title 7 & more"),
                "{name}"
            );
            let text = match name {
                "without lines" => "Page 7 speaks of 1401181143. It ends.",
                _ => "Page 7 speaks of 1401181143.\nIt ends.",
            };
            assert_eq!(
                good[6].text.split_whitespace().collect::<Vec<_>>(),
                text.split_whitespace().collect::<Vec<_>>(),
                "{name}"
            );
        }
    }
}

#[test]
fn redirects_become_alternative_titles() {
    let dir = tempfile::tempdir().unwrap();
    let dump = [
        HEAD.to_owned(),
        redirect(10, "Reynard", "Fox"),
        page(1, "Fox", "A fox."),
        redirect(11, "Vixen &amp; dog", "Fox"),
        redirect(12, "Tod", "Reynard"),
        page(2, "Dog", "A dog."),
        redirect(13, "Hound", "Dog#Kinds"),
        redirect(14, "Loop", "Pool"),
        redirect(15, "Pool", "Loop"),
        "</mediawiki>".to_owned(),
    ]
    .concat();
    let path = corpus(dir.path(), "dump.xml", dump);
    let out = dir.path().join("index");
    let mut options = options(&path, &out);
    // A segment each: a redirect and its page lie apart.
    options.segment_tokens = Some(16);
    let report = build(&options, &()).unwrap();
    assert_eq!(
        report.left_out.values().copied().collect::<Vec<_>>(),
        [6],
        "{:?}",
        report.left_out
    );
    let index = Index::open(&out).unwrap();
    let titled = |title: &str| -> Vec<String> {
        let found = index.documents_titled(title).unwrap();
        found
            .iter()
            .map(|&d| index.document(d).unwrap().id.to_owned())
            .collect()
    };
    for (title, id) in [
        ("Fox", "1"),
        ("Reynard", "1"),
        ("Vixen & dog", "1"),
        ("Tod", "1"),
        ("Dog", "2"),
        ("Hound", "2"),
    ] {
        assert_eq!(titled(title), [id], "{title}");
    }
    assert!(titled("Loop").is_empty() && titled("Cat").is_empty());
    let fox = index.document_by_external_id("1").unwrap().unwrap();
    assert_eq!(
        index.alternative_titles(fox).unwrap(),
        ["Reynard", "Vixen & dog"]
    );
    corpus_tools::verify(&out, &()).unwrap();
}

#[test]
fn what_is_no_article_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let in_namespace =
        |id: u32, title: &str, ns: &str| page(id, title, "text").replace("<ns>0</ns>", ns);
    let dump = [
        HEAD.to_owned(),
        page(1, "Fox", "A fox."),
        in_namespace(2, "Rubriko:Bestoj", "<ns>14</ns>"),
        // Old dumps have no numbers.
        in_namespace(3, "Pildo:Fox.jpg", ""),
        page(4, "Code", "x").replace("<model>wikitext", "<model>javascript"),
        page(5, "Gone", "").replace(
            "<text xml:space=\"preserve\">",
            "<text deleted=\"deleted\">",
        ),
        page(6, "Empty", ""),
        page(7, "No id", "x").replace("<id>7</id>", ""),
        page(8, "", "x"),
        page(9, "Odd", "x").replace("<ns>0</ns>", "<ns>zero</ns>"),
        page(10, "Entity", "a &bogus; b"),
        page(11, "Tags", "a</wrong> b"),
        page(12, "Last", "The last."),
        "</mediawiki>".to_owned(),
    ]
    .concat();
    let path = corpus(dir.path(), "dump.xml", dump);
    let (good, bad, left_out) = read(&path, ReadOptions::default());
    let ids: Vec<&str> = good.iter().map(|record| record.id.as_str()).collect();
    assert_eq!(ids, ["1", "6", "12"]);
    let counts: Vec<(&str, u64)> = left_out
        .iter()
        .map(|(kind, n)| (kind.as_str(), *n))
        .collect();
    assert_eq!(
        counts,
        [
            ("pages of other namespaces", 2),
            ("pages of the content model javascript", 1),
            ("pages whose text was deleted", 1),
        ]
    );
    let reasons: Vec<&str> = bad.iter().map(|bad| bad.reason.as_str()).collect();
    for (reason, part) in
        reasons
            .iter()
            .zip(["no id", "no title", "no number", "entity", "broken XML"])
    {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(reasons.len(), 5, "{reasons:?}");
    // Each with the line where its page begins.
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text.lines().nth(bad[0].line as usize - 1).unwrap();
    assert_eq!(line.trim(), "<page>");
}

#[test]
fn damage_is_told_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let pages = articles(60);
    let plain = format!("{HEAD}{}</mediawiki>\n", pages.concat()).into_bytes();
    let read = |bytes: Vec<u8>, options: ReadOptions| {
        let path = corpus(dir.path(), "dump", bytes);
        read(&path, options)
    };

    // Invalid UTF-8 harms one page.
    let mut bytes = plain.clone();
    let at = bytes.windows(9).position(|w| w == b"'''Page 7").unwrap();
    bytes[at] = 0xFF;
    let (good, bad, _) = read(bytes, ReadOptions::default());
    assert_eq!((good.len(), bad.len()), (59, 1));
    assert!(bad[0].reason.contains("invalid UTF-8"), "{bad:?}");

    // So does a page without its end, and one that is too long.
    let mut cut = pages.clone();
    cut[6] = cut[6].replace("</page>", "");
    let (good, bad, _) = read(
        [HEAD, &cut.concat()].concat().into_bytes(),
        ReadOptions::default(),
    );
    assert_eq!((good.len(), bad.len()), (59, 1));
    assert!(bad[0].reason.contains("before the next one"), "{bad:?}");
    let mut long = pages.clone();
    long[6] = page(7, "Long", &"word ".repeat(400_000));
    let limit = ReadOptions {
        longest_line: 1 << 16,
        ..ReadOptions::default()
    };
    let (good, bad, _) = read([HEAD, &long.concat()].concat().into_bytes(), limit.clone());
    assert_eq!((good.len(), bad.len()), (59, 1));
    assert!(bad[0].reason.contains("longer than 65536 bytes"), "{bad:?}");
    assert_eq!(good[6].id, "8");

    // The end is missing.
    let half = plain.len() / 2;
    let (good, bad, _) = read(plain[..half].to_vec(), ReadOptions::default());
    assert!(
        good.len() >= 25 && bad.len() == 1 && bad[0].reason.contains("truncated"),
        "{bad:?}"
    );

    // A damaged stream harms its pages and no other's.
    let mut streams = multistream(&pages);
    let middle = streams[3].len() / 2;
    streams[3][middle] ^= 0x55;
    for threads in [1, 3] {
        let options = ReadOptions {
            threads,
            ..ReadOptions::default()
        };
        let (good, bad, _) = read(streams.concat(), options);
        assert_eq!(good.len(), 50, "{bad:?}");
        assert!(
            !bad.is_empty() && bad[0].reason.contains("damaged"),
            "{bad:?}"
        );
        assert_eq!(good.last().unwrap().id, "60");
    }
    let whole = multistream(&pages).concat();
    let (good, bad, _) = read(whole[..whole.len() - 60].to_vec(), ReadOptions::default());
    assert!(good.len() >= 50 && bad.len() == 1, "{bad:?}");
    let single = bz2(&plain);
    let (_, bad, _) = read(single[..single.len() - 9].to_vec(), ReadOptions::default());
    assert!(
        bad.iter().any(|bad| bad.reason.contains("truncated")),
        "{bad:?}"
    );
}

#[test]
fn exploding_archives_are_read_in_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    // 200 MB of nothing in a page, some hundred bytes packed; and one good page behind it.
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    encoder.write_all(HEAD.as_bytes()).unwrap();
    encoder
        .write_all(
            page(1, "Bomb", "")
                .split("</text>")
                .next()
                .unwrap()
                .as_bytes(),
        )
        .unwrap();
    for _ in 0..200 {
        encoder.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    encoder.write_all(b"</text></revision></page>").unwrap();
    encoder
        .write_all(page(2, "Good", "A good page.").as_bytes())
        .unwrap();
    let path = corpus(dir.path(), "bomb.xml.bz2", encoder.finish().unwrap());
    let options = ReadOptions {
        longest_line: 1 << 20,
        ..ReadOptions::default()
    };
    let (good, bad, _) = read(&path, options);
    assert_eq!((good.len(), bad.len()), (1, 1), "{bad:?}");
    assert_eq!(good[0].text, "A good page.");
    assert!(bad[0].reason.contains("longer than"), "{bad:?}");
}

#[test]
fn real_dumps_are_read_whole() {
    // One of the hundred redirects of the first lies in another namespace.
    for (dump, articles, redirects) in [
        ("enwiki-206pages", 106, 99),
        ("ltgwiki-2004pages", 0, 0),
        ("enwiki-tables", 0, 0),
        ("bgwiki-utf16", 0, 0),
    ] {
        let Some(path) = shared(&format!("dumps/{dump}.xml.bz2")) else {
            return;
        };
        let (good, bad, left_out) = read(&path, ReadOptions::default());
        assert!(bad.is_empty(), "{dump}: {bad:?}");
        assert!(!good.is_empty(), "{dump}");
        if articles > 0 {
            assert_eq!(good.len(), articles, "{dump}");
            assert_eq!(left_out.values().sum::<u64>(), redirects + 1, "{dump}");
            let titles = good
                .iter()
                .map(|record| record.redirects.len() as u64)
                .sum::<u64>();
            assert_eq!(titles, redirects, "{dump}");
        }
        assert!(
            good.iter().filter(|record| record.text.len() > 100).count() * 10 > good.len() * 8,
            "{dump}"
        );
    }
}
