//! The folder of an evaluation and its summary, from traces written by hand.

use std::fs;

use corpus_tools::questions::{Question, QuestionSet};
use decoder::Settings;
use decoder::evaluation::folder::{IndexNote, MethodNote, Plan, SetNote, Trace};
use decoder::evaluation::passages::{Retrieved, Sizes};
use decoder::evaluation::summary::RunFormat;
use decoder::evaluation::{EvaluationError, Folder, Summary, plot};
use decoder::session::Cost;

fn plan(methods: &[&str]) -> Plan {
    Plan {
        version: 0,
        index: IndexNote {
            path: "wiki.index".into(),
            checksum: "abc".into(),
            documents: 10,
            tokens: 100,
            bytes: 1000,
        },
        seed: 3,
        limit: None,
        top_k: vec![1, 2],
        sizes: Sizes::default(),
        encoder: None,
        scorer_model: None,
        expand: None,
        generator: None,
        light_model: None,
        methods: methods
            .iter()
            .map(|&name| MethodNote {
                name: name.into(),
                model: None,
                retrieves: name != "closed-book",
                definition: 0,
                settings: serde_json::to_value(Settings::default()).unwrap(),
            })
            .collect(),
        sets: vec![SetNote {
            name: "nq".into(),
            source: "nq.jsonl".into(),
            questions: 3,
            checksum: None,
            bad: 0,
            gold: 3,
            gold_missing: 1,
        }],
    }
}

fn question(id: &str, answer: &str, gold: &[&str]) -> Question {
    Question {
        id: id.into(),
        question: format!("question {id}?"),
        answers: vec![answer.into()],
        gold: vec![gold.iter().map(|&id| id.to_owned()).collect()],
        silver: Vec::new(),
    }
}

fn retrieved(id: &str, text: &str, cut: Option<&str>) -> Retrieved {
    Retrieved {
        id: id.into(),
        passages: Vec::new(),
        title: "Title".into(),
        text: text.into(),
        tokens: 10,
        score: 0.5,
        cut: cut.map(str::to_owned),
    }
}

fn trace(question: &Question, retrieved: Vec<Retrieved>, answer: Option<&str>, ms: f64) -> Trace {
    Trace {
        question: question.clone(),
        retrieved,
        answer: answer.map(str::to_owned),
        cost: Cost {
            passes: 2,
            evaluated: 30,
            written: 4,
        },
        failed: None,
        milliseconds: ms,
        detail: serde_json::Value::Null,
    }
}

/// Three questions: one found at once, one at rank 2 and not in the cut text, one answered by yes.
fn traces() -> Vec<Trace> {
    let first = question("1", "Paris", &["a"]);
    let second = question("2", "1901", &["b", "gone"]);
    let third = question("3", "yes", &["c"]);
    vec![
        trace(
            &first,
            vec![retrieved("a", "It is Paris.", None)],
            Some("the Paris"),
            10.0,
        ),
        trace(
            &second,
            vec![
                retrieved("x", "Nothing.", None),
                retrieved("b", "In 1901 it was so.", Some("it was so")),
            ],
            Some("In 1901"),
            30.0,
        ),
        trace(&third, vec![retrieved("c", "yes", None)], Some("no"), 20.0),
    ]
}

#[test]
fn every_metric_from_the_traces_alone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::at(dir.path().join("out"));
    folder.begin(plan(&["bm25", "closed-book"]), &[]).unwrap();
    let mut file = folder.open_traces("nq", "bm25").unwrap();
    for trace in traces() {
        assert!(!file.holds(&trace.question.id));
        file.append(&trace).unwrap();
        assert!(file.holds(&trace.question.id));
    }
    let mut closed = folder.open_traces("nq", "closed-book").unwrap();
    for mut trace in traces().into_iter().take(2) {
        trace.retrieved.clear();
        closed.append(&trace).unwrap();
    }
    let summary = Summary::of(&folder, &[]).unwrap();
    let set = &summary.sets[0];
    let method = &set.methods[0];
    let mean = |metric: &str| {
        let found = method.metrics.get(metric);
        let found = found.unwrap_or_else(|| panic!("{metric} is missing"));
        (found.mean, found.questions)
    };
    assert_eq!(mean("has_answer@1"), (0.5, 2));
    assert_eq!(mean("has_answer@2"), (1.0, 2));
    assert_eq!(mean("cut.has_answer@2"), (0.5, 2));
    assert_eq!(mean("substring@2"), (1.0, 2));
    assert_eq!(mean("gold_hit@1"), (2.0 / 3.0, 3));
    assert_eq!(mean("gold_recall@2"), (2.5 / 3.0, 3));
    assert_eq!(mean("gold_all@2"), (2.0 / 3.0, 3));
    assert_eq!(mean("em"), (1.0 / 3.0, 3));
    assert_eq!(mean("accuracy"), (2.0 / 3.0, 3));
    // 1, then 2·½·1/(½+1) = ⅔, then 0.
    assert!((mean("f1").0 - (1.0 + 2.0 / 3.0) / 3.0).abs() < 1e-12);
    assert!(!method.metrics.contains_key("silver_hit@1"));
    assert_eq!((method.unjudged.yes_no, method.unjudged.no_gold), (1, 0));
    let cost = &method.cost;
    assert_eq!((cost.p50_ms, cost.p95_ms, cost.seconds), (20.0, 30.0, 0.06));
    assert_eq!(
        (cost.tokens_in, cost.tokens_out, cost.passes),
        (30.0, 4.0, 2.0)
    );
    // A method that retrieves nothing has no R@k, and is compared over the questions that both were asked.
    let closed = &set.methods[1];
    assert_eq!(closed.questions, 2);
    assert!(closed.metrics.keys().all(|metric| !metric.contains('@')));
    let em = set
        .differences
        .iter()
        .find(|compared| compared.metric == "em")
        .unwrap();
    assert_eq!(
        (
            em.difference.interval.questions,
            em.difference.interval.mean
        ),
        (2, 0.0)
    );

    // Beyond what was retrieved nothing is known.
    let error = Summary::of(&folder, &[1, 3]).unwrap_err();
    assert!(
        matches!(error, EvaluationError::Depth { k: 3, depth: 2, .. }),
        "{error}"
    );

    summary
        .write(&folder, &[RunFormat::Dpr, RunFormat::Kilt])
        .unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("runs/nq.qrels").lines().count(), 4);
    assert!(read("runs/nq.bm25.trec").contains("2 Q0 b 2 0.5 bm25"));
    assert!(read("runs/nq.bm25.dpr.json").contains("\"has_answer\": true"));
    assert!(read("runs/nq.bm25.kilt.jsonl").contains("\"wikipedia_id\":\"b\""));
    let markdown = read("summary.md");
    assert!(markdown.contains("| bm25 | 0.500"), "{markdown}");
    assert!(
        markdown.contains("1 of 3 gold documents are not in the index"),
        "{markdown}"
    );
    assert!(
        markdown.contains("2 to 3, by method, of 3 questions"),
        "{markdown}"
    );
    let plots = plot::write(&folder).unwrap();
    // Latency, texts, tokens and answers, each twice.
    assert_eq!(plots.len(), 8);
    for path in plots {
        assert!(
            fs::metadata(&path).unwrap().len() > 1000,
            "{}",
            path.display()
        );
    }
    let again: Summary = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(again.sets[0].methods[0].unjudged, method.unjudged);
}

#[test]
fn failed_questions_cost_nothing_and_citations_are_no_words() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::at(dir.path());
    folder.begin(plan(&["bm25"]), &[]).unwrap();
    let mut file = folder.open_traces("nq", "bm25").unwrap();
    let mut traces = traces();
    traces[0].answer = Some("Paris [1, 2].".into());
    traces[2] = Trace {
        answer: Some(String::new()),
        cost: Cost::default(),
        failed: Some("too long".into()),
        ..trace(&traces[2].question, Vec::new(), None, 0.0)
    };
    for trace in &traces {
        file.append(trace).unwrap();
    }
    let summary = Summary::of(&folder, &[]).unwrap();
    let method = &summary.sets[0].methods[0];
    assert_eq!((method.questions, method.unjudged.failed), (3, 1));
    assert_eq!(method.metrics["em"].mean, 1.0 / 3.0);
    assert_eq!(method.metrics["gold_hit@1"].mean, 1.0 / 3.0);
    let cost = &method.cost;
    assert_eq!((cost.p50_ms, cost.p95_ms, cost.seconds), (10.0, 30.0, 0.04));
    assert_eq!((cost.tokens_in, cost.passes, cost.texts), (30.0, 2.0, 1.5));
    assert!(summary.markdown().contains("count as misses"));
}

#[test]
fn one_evaluation_writes_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::at(dir.path().join("out"));
    let held = folder.lock().unwrap();
    let error = folder.lock().unwrap_err();
    assert!(matches!(error, EvaluationError::Locked { .. }), "{error}");
    drop(held);
    folder.lock().unwrap();
}

#[test]
fn question_sets_are_known_by_their_questions() {
    let set = |answer: &str| QuestionSet {
        name: "nq".into(),
        questions: vec![
            question("1", "Paris", &["a"]),
            question("2", answer, &["b", "gone"]),
            question("3", "yes", &["c"]),
        ],
        bad: Vec::new(),
    };
    let begin = |folder: &Folder, set: &QuestionSet, checksum: Option<&str>| {
        let mut plan = plan(&["bm25"]);
        plan.sets[0].checksum = checksum.map(str::to_owned);
        folder.begin(plan, std::slice::from_ref(set))
    };
    let refused = |begun: Result<Plan, EvaluationError>| {
        let error = begun.unwrap_err().to_string();
        assert!(error.contains("another question set nq"), "{error}");
    };
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::at(dir.path().join("new"));
    begin(&folder, &set("1901"), Some("one")).unwrap();
    begin(&folder, &set("1901"), Some("one")).unwrap();
    refused(begin(&folder, &set("1901"), Some("two")));

    // A folder from before there were checksums: what was asked tells the sets apart.
    let folder = Folder::at(dir.path().join("old"));
    begin(&folder, &set("1901"), None).unwrap();
    let mut file = folder.open_traces("nq", "bm25").unwrap();
    for trace in &traces()[..2] {
        file.append(trace).unwrap();
    }
    refused(begin(&folder, &set("1902"), Some("two")));
    let known = begin(&folder, &set("1901"), Some("one")).unwrap();
    assert_eq!(known.sets[0].checksum.as_deref(), Some("one"));
    refused(begin(&folder, &set("1901"), Some("two")));
}

#[test]
fn goes_on_after_an_unfinished_line_and_refuses_what_is_foreign() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::at(dir.path());
    folder.begin(plan(&["bm25"]), &[]).unwrap();
    let traces = traces();
    folder
        .open_traces("nq", "bm25")
        .unwrap()
        .append(&traces[0])
        .unwrap();
    let path = folder.trace_file("nq", "bm25");
    let whole = fs::read(&path).unwrap();
    let mut cut = whole.clone();
    cut.extend(b"{\"id\":\"2\",\"question\":\"wh");
    fs::write(&path, &cut).unwrap();
    assert_eq!(folder.read_traces("nq", "bm25").unwrap(), traces[..1]);
    let mut file = folder.open_traces("nq", "bm25").unwrap();
    assert!(file.holds("1") && !file.holds("2"));
    file.append(&traces[1]).unwrap();
    assert_eq!(folder.read_traces("nq", "bm25").unwrap(), traces[..2]);

    fs::write(&path, "my diary\n").unwrap();
    let error = folder.open_traces("nq", "bm25").unwrap_err();
    assert!(
        matches!(error, EvaluationError::Foreign { line: 1, .. }),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"my diary\n");
    assert!(Summary::of(&folder, &[]).is_err());
    fs::write(dir.path().join("evaluation.json"), "{}").unwrap();
    assert!(folder.begin(plan(&["bm25"]), &[]).is_err());
    let nothing = Folder::at(dir.path().join("nothing"));
    let error = Summary::of(&nothing, &[]).unwrap_err().to_string();
    assert!(error.contains("evaluation.json"), "{error}");
}

#[test]
fn a_folder_grows_and_does_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::at(dir.path());
    folder.begin(plan(&["bm25"]), &[]).unwrap();
    let joined = folder.begin(plan(&["dense", "bm25"]), &[]).unwrap();
    let names: Vec<&str> = joined
        .methods
        .iter()
        .map(|method| method.name.as_str())
        .collect();
    assert_eq!(names, ["bm25", "dense"]);
    assert_eq!(folder.plan().unwrap().unwrap(), joined);
    type Change = fn(&mut Plan);
    let changes: [(&str, Change); 9] = [
        ("another version", |plan| plan.methods[0].definition = 1),
        ("expansion", |plan| plan.expand = Some("splade-tiny".into())),
        ("index", |plan| plan.index.checksum = "other".into()),
        ("seed", |plan| plan.seed = 4),
        ("cut", |plan| plan.sizes.cut = 32),
        ("depth", |plan| plan.top_k = vec![1, 10]),
        ("settings", |plan| {
            plan.methods[0].settings["evidence"]["most"] = 2.into()
        }),
        ("model", |plan| {
            plan.methods[0].model = Some("smollm2".into())
        }),
        ("question set", |plan| plan.sets[0].questions = 4),
    ];
    for (word, change) in changes {
        let mut other = plan(&["bm25"]);
        change(&mut other);
        let error = folder.begin(other, &[]).unwrap_err();
        assert!(matches!(error, EvaluationError::Begun { .. }), "{error}");
        assert!(
            error.to_string().contains(word),
            "{word:?} is missing in: {error}"
        );
    }
    assert_eq!(folder.plan().unwrap().unwrap(), joined);
    // The most that were drawn, not what was drawn last.
    let limited = |limit| {
        let mut plan = plan(&["bm25"]);
        plan.limit = limit;
        let folder = Folder::at(dir.path().join("limited"));
        folder.begin(plan, &[]).unwrap().limit
    };
    let limits = [Some(20), Some(50), Some(10), None, Some(30)].map(limited);
    assert_eq!(limits, [Some(20), Some(50), Some(50), None, None]);
    // Names of methods are safe in file names, and differ.
    let file = |method| folder.trace_file("nq", method);
    assert!(file("engine:a/b").starts_with(dir.path().join("traces")));
    assert_ne!(file("engine:no-clues"), file("engine-no-clues"));
}

#[test]
fn samples_and_prefixes_are_judged() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::at(dir.path());
    folder.begin(plan(&["bm25"]), &[]).unwrap();
    let mut file = folder.open_traces("nq", "bm25").unwrap();
    let mut traces = traces();
    let samples = |answers: &[&str]| serde_json::json!({ "samples": { "answers": answers } });
    traces[0].detail = samples(&["London", "in Paris, I think"]);
    // Found at rank 2, and no sample is right; the samples of a reranker count too.
    traces[1].detail = serde_json::json!({ "rerank": samples(&["1910"]) });
    traces[2].detail =
        serde_json::json!({ "prefixes": { "beams": [5, 3, 0], "relevant": [1, 0, 0] } });
    for trace in &traces {
        file.append(trace).unwrap();
    }
    let summary = Summary::of(&folder, &[]).unwrap();
    let method = &summary.sets[0].methods[0];
    let found = |metric: &str| {
        let found = &method.metrics[metric];
        (found.mean, found.questions)
    };
    assert_eq!(found("sample_right"), (0.5, 2));
    let most = summary.plan.top_k.iter().max().unwrap();
    assert_eq!(found(&format!("found_unsampled@{most}")), (0.5, 2));
    assert_eq!((found("prefix@1"), found("prefix@2")), ((1.0, 1), (0.0, 1)));
    assert!(!method.metrics.contains_key("prefix@3"));
    let shown = summary.markdown();
    assert!(shown.contains("a sample is right") && shown.contains("lead to gold after 2"));
}
