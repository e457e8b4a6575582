//! Metrics against reference implementations and against values computed by hand.
//!
//! `data/metrics.json` was written once with the reference implementations: `normalised`, `em` and `f1` with the SQuAD 2.0
//! functions that `transformers` carries, `rouge_l` with `rouge-score` 0.1.2 (ASCII texts only), `tokens` and
//! `has_answer` with the tokens of DPR's `SimpleTokenizer` (its pattern in the package `regex`).
//! `data/witness.json` was written once by `ir_measures` 0.4.3 from `witness.run.trec` and `witness.qrels`;
//! `pytrec_eval-terrier` 0.5.11 gave the same.

use std::collections::HashMap;
use std::path::PathBuf;

use corpus_tools::metrics::answer::{accuracy, exact_match, f1, rouge_l};
use corpus_tools::metrics::retrieval::{Judge, Ranked};
use corpus_tools::metrics::text;
use corpus_tools::questions::Question;
use corpus_tools::runs::trec;
use serde_json::Value;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(data(name)).unwrap()).unwrap()
}

fn question(answers: &[&str], gold: &[&str]) -> Question {
    Question {
        id: "q".into(),
        question: "?".into(),
        answers: answers.iter().map(|&answer| answer.into()).collect(),
        gold: vec![gold.iter().map(|&id| id.into()).collect()],
        silver: Vec::new(),
    }
}

fn ids(ids: &[&str]) -> Vec<Vec<String>> {
    ids.iter().map(|&id| vec![id.to_owned()]).collect()
}

fn ranking<'a>(ids: &'a [Vec<String>], texts: &[&'a str]) -> Vec<Ranked<'a>> {
    let texts = texts.iter().copied().chain(std::iter::repeat(""));
    ids.iter()
        .zip(texts)
        .map(|(ids, text)| Ranked { ids, text })
        .collect()
}

#[test]
fn as_the_reference_implementations() {
    let cases = json("metrics.json");
    let cases = cases.as_array().unwrap();
    let (mut judged, mut rouged) = (0, 0);
    for case in cases {
        let answer = case["answer"].as_str().unwrap();
        let gold = [case["gold"].as_str().unwrap()];
        assert_eq!(text::normalised(answer), case["normalised"], "{case}");
        assert_eq!(
            Value::from(text::dpr_tokens(answer)),
            case["tokens"],
            "{case}"
        );
        assert_eq!(
            exact_match(answer, &gold),
            case["em"].as_f64().unwrap(),
            "{case}"
        );
        let close =
            |found: f64, expected: &Value| (found - expected.as_f64().unwrap()).abs() < 1e-9;
        assert!(close(f1(answer, &gold), &case["f1"]), "{case}");
        if !case["rouge_l"].is_null() {
            rouged += 1;
            assert!(close(rouge_l(answer, &gold), &case["rouge_l"]), "{case}");
        }
        if let Some(expected) = case["has_answer"].as_bool() {
            judged += 1;
            let question = question(&gold, &[]);
            // Of yes and no the reference says what stands there, ours that it means nothing.
            let expected = expected && !question.is_yes_no();
            assert_eq!(Judge::new(&question).has_answer(answer), expected, "{case}");
        }
        assert!(f1(answer, &gold) >= exact_match(answer, &gold), "{case}");
        assert!(
            accuracy(answer, &gold) >= exact_match(answer, &gold),
            "{case}"
        );
    }
    assert!(cases.len() > 150 && judged > 100 && rouged > 40);
}

#[test]
fn answers_by_hand() {
    // Best over the gold answers; "the" and the full stop do not count.
    let gold = ["Niels Bohr", "Bohr"];
    assert_eq!(exact_match("The Bohr.", &gold), 1.0);
    // Precision 1/3, recall 1/1.
    assert!((f1("It was Bohr", &gold) - 0.5).abs() < 1e-12);
    assert_eq!(accuracy("It was Bohr", &gold), 1.0);
    assert_eq!(exact_match("It was Bohr", &gold), 0.0);
    // A word counts as often as it stands: 1 common of 2 and of 1.
    assert!((f1("bohr bohr", &["Bohr"]) - 2.0 / 3.0).abs() < 1e-12);
    // Longest common subsequence "police the gunman" is 2 words: "police … gunman" (Lin 2004, section 3.1: 3/4 and 2/4).
    assert!(
        (rouge_l("police kill the gunman", &["police killed the gunman"]) - 0.75).abs() < 1e-12
    );
    assert!((rouge_l("the gunman kill police", &["police killed the gunman"]) - 0.5).abs() < 1e-12);
    // Nothing written, nothing asked for.
    for metric in [exact_match, f1, accuracy, rouge_l] {
        assert_eq!(metric("something", &[] as &[&str]), 0.0);
        assert_eq!(metric("", &["gold"]), 0.0);
    }
    // Exact match is never above F1: a gold answer that normalises to nothing.
    assert_eq!((exact_match("A", &["The"]), f1("A", &["The"])), (1.0, 1.0));
    assert_eq!(
        (accuracy("A", &["The"]), accuracy("Bohr", &["The"])),
        (1.0, 0.0)
    );
}

#[test]
fn rankings_by_hand() {
    let question = question(&["Röntgen", "W. C. Röntgen"], &["x-rays", "prize", "gone"]);
    let judge = Judge::new(&question);
    let ids = ids(&["a", "prize", "prize", "a", "x-rays"]);
    let ranking = ranking(
        &ids,
        &["Roentgen", "the Röntgens", "by Ro\u{308}ntgen.", "", ""],
    );
    let judged = judge.judge(&ranking);
    // "Röntgens" is another token, but holds the string.
    assert_eq!(judged.has_answer, Some(Some(3)));
    assert_eq!(judged.substring, Some(Some(2)));
    assert_eq!(
        [1, 2, 3, 5].map(|k| judged.has_answer_at(k)),
        [false, false, true, true].map(Some)
    );
    // Without its repetitions the ranking is a, prize, x-rays; "gone" is in no corpus and stays a miss.
    assert_eq!(judged.gold, Some(vec![vec![Some(3), Some(2), None]]));
    assert_eq!(judged.gold_hit_at(1), Some(false));
    assert_eq!(judged.gold_hit_at(2), Some(true));
    assert_eq!(judged.gold_recall_at(2), Some(1.0 / 3.0));
    assert_eq!(judged.gold_recall_at(100), Some(2.0 / 3.0));
    assert_eq!(judged.gold_all_at(100), Some(false));
    // Nothing retrieved: misses, not gaps.
    let none = judge.judge(&[]);
    assert_eq!(none.has_answer_at(5), Some(false));
    assert_eq!(none.gold_recall_at(5), Some(0.0));
    assert_eq!(none.silver_hit_at(5), None);
}

#[test]
fn what_cannot_be_judged_is_left_out() {
    let ids = ids(&["a"]);
    let ranking = ranking(&ids, &["Yes, the cat."]);
    let yes = question(&["Yes."], &["a"]);
    let judged = Judge::new(&yes).judge(&ranking);
    assert!(yes.is_yes_no());
    assert_eq!((judged.has_answer, judged.substring), (None, None));
    assert_eq!(judged.gold_all_at(1), Some(true));
    // An answer without a token is in no text.
    for answers in [&[][..], &["\u{3000}"][..], &["the"][..]] {
        let question = Question {
            gold: Vec::new(),
            ..question(answers, &[])
        };
        let judged = Judge::new(&question).judge(&ranking);
        assert_eq!(judged.gold, None);
        assert_eq!(
            judged.has_answer.is_some(),
            answers == ["the"],
            "{answers:?}"
        );
        assert_eq!(judged.substring, None, "{answers:?}");
    }
    // Yes beside another answer is an answer like any other.
    assert!(!question(&["yes", "in 1901"], &[]).is_yes_no());
}

#[test]
fn one_of_several_sets_of_gold_documents_suffices() {
    let mut question = question(&[], &["a", "b"]);
    question.gold.push(vec!["c".into()]);
    let judge = Judge::new(&question);
    let only_c = ids(&["x", "c"]);
    let judged = judge.judge(&ranking(&only_c, &[]));
    assert_eq!(judged.gold_recall_at(2), Some(1.0));
    assert_eq!(judged.gold_all_at(2), Some(true));
    let only_a = ids(&["a"]);
    assert_eq!(
        judge.judge(&ranking(&only_a, &[])).gold_recall_at(1),
        Some(0.5)
    );
    // A paragraph with an id of its own answers for its document as well.
    let nested = vec![vec!["p7".to_owned(), "c".to_owned()]];
    assert_eq!(
        judge.judge(&ranking(&nested, &[])).gold_all_at(1),
        Some(true)
    );
}

#[test]
fn as_ir_measures_and_pytrec_eval() {
    let (_, run, bad) = trec::read_run(&data("witness.run.trec")).unwrap();
    let (qrels, bad_qrels) = trec::read_qrels(&data("witness.qrels")).unwrap();
    assert!(bad.is_empty() && bad_qrels.is_empty());
    let mut gold: HashMap<String, Vec<String>> = HashMap::new();
    for judgement in qrels {
        let documents = gold.entry(judgement.query).or_default();
        documents.push(judgement.document);
    }
    let expected = json("witness.json");
    let mut sums: HashMap<String, f64> = HashMap::new();
    for (id, gold) in &gold {
        let question = Question {
            id: id.clone(),
            gold: vec![gold.clone()],
            ..Question::default()
        };
        let documents = run.iter().find(|query| query.id == *id);
        let ids: Vec<Vec<String>> = documents
            .into_iter()
            .flat_map(|query| &query.documents)
            .map(|(id, _)| vec![id.clone()])
            .collect();
        let judged = Judge::new(&question).judge(&ranking(&ids, &[]));
        for k in [1, 5, 10] {
            let hit = f64::from(u8::from(judged.gold_hit_at(k).unwrap()));
            for (name, found) in [
                (format!("R@{k}"), judged.gold_recall_at(k).unwrap()),
                (format!("Success@{k}"), hit),
            ] {
                let expected = expected["questions"][id][&name].as_f64().unwrap();
                assert!(
                    (found - expected).abs() < 1e-9,
                    "{id} {name}: {found}, {expected}"
                );
                *sums.entry(name).or_default() += found;
            }
        }
    }
    assert_eq!(expected["questions"].as_object().unwrap().len(), gold.len());
    for (name, sum) in sums {
        let expected = expected["mean"][&name].as_f64().unwrap();
        assert!((sum / gold.len() as f64 - expected).abs() < 1e-9, "{name}");
    }
}
