//! Question sets in every format, with records that are bad.

use std::fs;
use std::io::Write;
use std::path::Path;

use corpus_tools::questions::{QuestionSet, QuestionsError, read, sample};
use corpus_tools::reader::Input;

use crate::common;

fn file(name: &str, text: impl AsRef<[u8]>) -> (tempfile::TempDir, Input) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    (dir, Input::named(path))
}

fn read_text(name: &str, text: impl AsRef<[u8]>) -> QuestionSet {
    let (_dir, input) = file(name, text);
    read(&input).unwrap()
}

fn answers(set: &QuestionSet) -> Vec<Vec<&str>> {
    let of = |q: &'_ corpus_tools::questions::Question| q.answers.len();
    assert!(set.questions.iter().all(|question| of(question) < 100));
    set.questions
        .iter()
        .map(|question| question.answers.iter().map(String::as_str).collect())
        .collect()
}

#[test]
fn plain_and_flashrag_lines() {
    let set = read_text(
        "nq.jsonl",
        "\u{feff}{\"id\":\"a\",\"question\":\"who?\",\"answers\":[\"x\",\"x\",\"y\"],\"gold_doc_ids\":[\"d1\",\"d2\",\"d1\"],\"silver_doc_ids\":[\"s\"]}\r\n\
         \n\
         {\"id\":7,\"question\":\"when?\",\"golden_answers\":[\"1901\",1902]}\n\
         {\"question\":\"where?\",\"answer\":\"here\",\"gold_doc_ids\":[]}",
    );
    assert_eq!(set.name, "nq");
    assert!(set.bad.is_empty(), "{:?}", set.bad);
    assert_eq!(
        answers(&set),
        [vec!["x", "y"], vec!["1901", "1902"], vec!["here"]]
    );
    let ids: Vec<&str> = set.questions.iter().map(|q| q.id.as_str()).collect();
    assert_eq!(ids, ["a", "7", "4"]);
    assert_eq!(set.questions[0].gold_ids(), ["d1", "d2"]);
    assert_eq!(set.questions[0].silver, ["s"]);
    assert!(set.questions[2].gold.is_empty());
}

#[test]
fn answers_by_every_name() {
    let set = read_text(
        "sets.jsonl",
        r#"{"id":1,"question":"a?","answers":[],"golden_answers":["Canis"]}
{"id":2,"question":"b?","answer":"hound","answer_aliases":["Canis","hound"]}
{"id":3,"question":"c?","answer":true}
{"id":4,"question":"d?","golden_answers":["False"]}
{"id":5,"question":"e?","answers":{"text":["Rex","Rex"],"answer_start":[1,7]}}
{"id":6,"question":"f?","answers":["REFUTES"]}"#,
    );
    assert!(set.bad.is_empty(), "{:?}", set.bad);
    assert_eq!(
        answers(&set),
        [
            vec!["Canis"],
            vec!["hound", "Canis"],
            vec!["yes"],
            vec!["False"],
            vec!["Rex"],
            vec!["REFUTES"]
        ]
    );
    let labels = set.questions.iter().map(|question| question.is_yes_no());
    assert!(labels.eq([false, false, true, true, false, true]));
}

#[test]
fn kilt_lines() {
    let set = read_text(
        "nq-dev-kilt.jsonl",
        r#"{"id":"6915606477668963399","input":"what do the 3 dots mean in math","output":[{"answer":"the therefore sign"},{"answer":"therefore sign","provenance":[{"wikipedia_id":"10593264","title":"Therefore sign","start_paragraph_id":1}]},{"provenance":[{"wikipedia_id":"1"},{"wikipedia_id":2}]}],"meta":{}}"#,
    );
    let question = &set.questions[0];
    assert_eq!(question.answers, ["the therefore sign", "therefore sign"]);
    assert_eq!(question.gold, [vec!["10593264"], vec!["1", "2"]]);
    assert_eq!(question.gold_ids(), ["10593264", "1", "2"]);
}

#[test]
fn dpr_lists_stop_where_the_json_breaks() {
    let text = r#" [{"dataset":"nq","question":"who sings","answers":["Metric"],"positive_ctxs":[{"title":"t","text":"x","passage_id":"12"},{"psg_id":13}],"hard_negative_ctxs":[{"passage_id":"99"}]},
        {"question":"","answers":[]}, 5,
        {"question":"who sings","answers":["Metric"]}"#;
    let set = read_text("biencoder-nq-dev.json", format!("{text}]"));
    assert_eq!(set.questions.len(), 2);
    assert_eq!(set.questions[0].gold, [["12"], ["13"]]);
    assert_eq!(set.questions[1].id, "4");
    let places: Vec<u64> = set.bad.iter().map(|bad| bad.line).collect();
    assert_eq!(places, [2, 3]);
    let cut = read_text("biencoder-nq-dev.json", text);
    assert_eq!(cut.questions.len(), 2);
    assert!(cut.bad[2].reason.contains("broken JSON"), "{}", cut.bad[2]);
}

#[test]
fn dpr_csv() {
    let set = read_text(
        "nq-test.qa.csv",
        "who got the first nobel prize in physics\t['Wilhelm Conrad Röntgen']\n\
         \"who said \"\"no\"\"?\"\t\"[\"\"Ender's Game\"\", 'a, b']\"\n\
         no tab here\n\
         a\t['x']\textra\n\
         \"open\t['x']\n\
         who?\t[x]\n",
    );
    assert_eq!(set.name, "nq-test");
    assert_eq!(
        answers(&set),
        [vec!["Wilhelm Conrad Röntgen"], vec!["Ender's Game", "a, b"]]
    );
    assert_eq!(set.questions[1].question, "who said \"no\"?");
    let places: Vec<u64> = set.bad.iter().map(|bad| bad.line).collect();
    assert_eq!(places, [3, 4, 5, 6]);
}

fn beir(dir: &Path, splits: &[(&str, &str)]) {
    fs::create_dir_all(dir.join("qrels")).unwrap();
    let queries = "{\"_id\":\"1\",\"text\":\"one?\",\"metadata\":{}}\n{\"_id\":\"2\",\"text\":\"two?\"}\n{\"_id\":\"3\",\"text\":\"three?\"}\n";
    fs::write(dir.join("queries.jsonl"), queries).unwrap();
    for (split, text) in splits {
        let text = format!("query-id\tcorpus-id\tscore\n{text}");
        fs::write(dir.join("qrels").join(split), text).unwrap();
    }
}

#[test]
fn beir_folders_and_splits() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("scifact");
    beir(
        &folder,
        &[
            ("test.tsv", "1\td 1\t2\n1\td2\t0\n2\td3\t0\nbad line\n"),
            ("dev.tsv", "3\td9\t1\n"),
        ],
    );
    let set = read(&Input::named(&folder)).unwrap();
    assert_eq!(set.name, "scifact");
    // The second was judged and nothing was relevant; the third belongs to another split.
    assert_eq!(set.questions.len(), 2);
    assert_eq!(set.questions[0].gold, [["d 1"]]);
    assert!(set.questions[1].gold.is_empty());
    assert_eq!(set.bad.len(), 1);
    assert!(set.bad[0].file.ends_with("test.tsv") && set.bad[0].line == 5);
    let dev = read(&Input::named(folder.join("qrels/dev.tsv"))).unwrap();
    assert_eq!(
        (dev.name.as_str(), dev.questions[0].id.as_str()),
        ("scifact-dev", "3")
    );
    // Without a split that is the folder's own, it has to be named.
    fs::rename(folder.join("qrels/test.tsv"), folder.join("qrels/a.tsv")).unwrap();
    fs::rename(folder.join("qrels/dev.tsv"), folder.join("qrels/b.tsv")).unwrap();
    assert!(matches!(
        read(&Input::named(&folder)),
        Err(QuestionsError::Folder { .. })
    ));
    fs::remove_file(folder.join("qrels/b.tsv")).unwrap();
    assert_eq!(read(&Input::named(&folder)).unwrap().questions.len(), 2);
    fs::remove_file(folder.join("queries.jsonl")).unwrap();
    let error = read(&Input::named(&folder)).unwrap_err().to_string();
    assert!(error.contains("queries.jsonl"), "{error}");
}

#[test]
fn bad_records_are_told_by_place() {
    let (_dir, input) = file(
        "set.jsonl",
        b"{\"id\":\"1\",\"question\":\"a?\"}\n{\"id\":\"1\",\"question\":\"b?\"}\n{\"id\":\"2\"}\n\xff\xfe\n[1]\n{\"id\":\"3\",\"question\":5}\n{\"id\":\"4\",\"question\":\"c?\",\"answers\":{}}\n{\"id\":[],\"question\":\"d?\"}\n{\"id\":\"5\",\"question\":\"e?\"".as_slice(),
    );
    let set = read(&input).unwrap();
    assert_eq!(set.questions.len(), 1);
    let places: Vec<u64> = set.bad.iter().map(|bad| bad.line).collect();
    assert_eq!(places, [2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(set.bad[0].reason.contains("stands at 1"), "{}", set.bad[0]);
    assert!(set.bad[0].to_string().contains("set.jsonl:2"));
}

#[test]
fn nothing_to_ask() {
    for text in ["", "\n\n", "[]", "{}", "hello\n", "\u{0}\u{0}", "[1,2"] {
        let (_dir, input) = file("set.jsonl", text);
        let error = read(&input).unwrap_err();
        assert!(
            matches!(error, QuestionsError::NoQuestion { .. }),
            "{text:?}: {error}"
        );
        assert!(error.to_string().contains("set.jsonl"), "{error}");
    }
    let deep = "[".repeat(100_000);
    let (_dir, input) = file("set.jsonl", deep);
    assert!(read(&input).is_err());
    assert!(matches!(
        read(&Input::named("/no/such/file")),
        Err(QuestionsError::Open { .. })
    ));
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        read(&Input::named(dir.path())),
        Err(QuestionsError::Folder { .. })
    ));
}

#[test]
fn names_of_sets() {
    let dir = tempfile::tempdir().unwrap();
    let line = r#"{"question":"who?"}"#;
    for (path, name) in [
        ("hotpotqa/dev.jsonl", "hotpotqa-dev"),
        ("nq.jsonl", "nq"),
        ("trivia-test.qa.csv", "trivia-test"),
        ("a b/über 1.json", "über-1"),
    ] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, line).unwrap();
        assert_eq!(read(&Input::named(&path)).unwrap().name, name);
    }
}

#[test]
fn compressed_by_content() {
    let text = br#"{"id":"1","question":"who?"}"#;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text).unwrap();
    let gzip = gzip.finish().unwrap();
    assert_eq!(read_text("set.jsonl", &gzip).questions[0].question, "who?");
    let zstd = zstd::encode_all(&text[..], 1).unwrap();
    assert_eq!(read_text("set.zst", &zstd).questions.len(), 1);
    // Cut off in the middle: no question, and no panic.
    let (_dir, input) = file("set.gz", &gzip[..gzip.len() - 12]);
    assert!(read(&input).is_err());
}

#[test]
fn the_real_sets() {
    let Some(folder) = common::shared("qa/nq.jsonl") else {
        return;
    };
    let folder = folder.with_file_name("");
    let mut total = 0;
    for name in [
        "nq",
        "triviaqa",
        "popqa",
        "hotpotqa",
        "2wiki",
        "musique",
        "qed",
        "strategyqa",
    ] {
        let set = read(&Input::named(folder.join(format!("{name}.jsonl")))).unwrap();
        assert_eq!((set.name.as_str(), set.bad.len()), (name, 0));
        assert!(
            set.questions
                .iter()
                .all(|question| !question.answers.is_empty())
        );
        let yes_no = set.questions.iter().filter(|q| q.is_yes_no()).count();
        match name {
            "hotpotqa" => assert_eq!(yes_no, 28),
            "strategyqa" => assert_eq!(yes_no, set.questions.len()),
            "triviaqa" => assert!(
                set.questions
                    .iter()
                    .all(|q| q.gold.is_empty() && !q.silver.is_empty())
            ),
            _ => {}
        }
        total += set.questions.len();
    }
    assert_eq!(total, 3190);
}

#[test]
fn samples_are_seeded_and_grow() {
    let text: String = (0..200)
        .map(|number| format!("{{\"id\":\"{number}\",\"question\":\"who?\"}}\n"))
        .collect();
    let set = read_text("set.jsonl", text);
    let ids = |limit, seed| -> Vec<String> {
        let drawn = sample(&set.questions, limit, seed);
        drawn.iter().map(|question| question.id.clone()).collect()
    };
    let all = ids(None, 1);
    assert_eq!(all.len(), 200);
    assert_eq!(ids(Some(20), 1), all[..20]);
    assert_eq!(ids(Some(500), 1), all);
    assert_ne!(ids(Some(20), 2), all[..20]);
    // The order of the file has no part in it.
    let mut turned = set.questions.clone();
    turned.reverse();
    let drawn = sample(&turned, Some(20), 1);
    assert!(
        drawn
            .iter()
            .zip(&all)
            .all(|(question, id)| question.id == *id)
    );
}
