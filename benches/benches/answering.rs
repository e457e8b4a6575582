//! Whole questions over an index of the demo's summaries, with the demo's models, beside passage retrievers and naive
//! constrained beams in the same run.
//!
//! `cargo bench -p benches --bench answering`
//!
//! Ten questions are asked by turns, so that the interval of a slow case is that of ten questions. Nothing is remembered
//! from one to the next. The engine writes five pieces of evidence, passage retrievers give five documents; an answer is
//! written from the first three (from one by the beams).

use std::time::Duration;

use benches::{skip, summaries, table};
use corpus_tools::Index;
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, SamplingMode};
use criterion::{criterion_group, criterion_main};
use decoder::evaluation::method::Kind;
use decoder::evaluation::passages::{Passages, Retrieved, Sizes};
use decoder::evaluation::reader;
use decoder::evaluation::retrievers::Retrievers;
use decoder::retrieval::Retriever;
use decoder::scorer::{EmbeddingScorer, WindowScorer};
use decoder::{Engine, Settings};
use models::language_model::LanguageModel;

/// What all methods stand on.
struct Ground {
    index: Index,
    model: LanguageModel,
    scorer: EmbeddingScorer,
}

impl Ground {
    fn open() -> anyhow::Result<Self> {
        Ok(Self {
            index: summaries::index()?,
            model: summaries::language_model()?,
            scorer: EmbeddingScorer::new(summaries::sentence_encoder()?),
        })
    }
}

fn named<'c>(criterion: &'c mut Criterion, what: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(table::group("answering", what));
    group
        .sample_size(10)
        .sampling_mode(SamplingMode::Flat)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5));
    group
}

/// Times `ask` on the questions by turns; `forget` comes before each and is not timed.
fn time<T>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    forget: impl Fn(),
    ask: impl Fn(&str) -> T,
) {
    let mut at = 0;
    group.bench_function(name, |bench| {
        bench.iter_batched(
            || {
                forget();
                at += 1;
                summaries::QUESTIONS[at % summaries::QUESTIONS.len()]
            },
            &ask,
            BatchSize::PerIteration,
        );
    });
}

fn answering(criterion: &mut Criterion) {
    let ground = match Ground::open() {
        Ok(ground) => ground,
        Err(error) => return skip("answering", format!("{error:#}")),
    };
    let (index, model, scorer) = (&ground.index, &ground.model, &ground.scorer);
    index.fm().warm();
    let engine = Engine::new(index, model, scorer, &|| false).expect("models of the demo");
    let sizes = Sizes::default();
    let passages = Passages::new(index, Some(scorer), sizes).expect("the index was just opened");
    let retrievers = Retrievers {
        index,
        scorer: Some(scorer),
        passages: &passages,
        dense: None,
    };
    let forget = || {
        engine.forget();
        scorer.forget();
        passages.forget();
    };
    let with_answer = Settings::default();
    let mut alone = Settings::default();
    alone.answer.most_tokens = 0;
    let depth = alone.evidence.most;
    let retrieve = |kind: Kind, question: &str| -> Vec<Retrieved> {
        let ranked = retrievers.rank(kind, question, depth).expect("an index");
        let passage = |&(document, score)| passages.passage(question, document, score);
        let found = ranked.iter().map(passage);
        found
            .map(|passage| passage.expect("an undamaged index").retrieved)
            .collect()
    };
    let peers = [
        (Kind::Bm25, table::peer("BM25 passages")),
        (
            Kind::Bm25Rerank,
            table::peer("BM25, reranked by the window scorer"),
        ),
    ];
    for question in summaries::QUESTIONS {
        let answer = engine.ask(question, &alone).expect("a question");
        assert!(!answer.evidence.is_empty(), "{question}");
        assert_eq!(retrieve(Kind::Bm25Rerank, question).len(), depth);
    }

    let mut group = named(criterion, "evidence for a question");
    time(&mut group, "engine", forget, |question| {
        engine.ask(question, &alone).expect("a question")
    });
    time(
        &mut group,
        "engine, its windows without the language model",
        forget,
        |question| {
            let tokenizer = model.tokenizer();
            let mut retriever = Retriever::new(index, tokenizer, scorer, &alone, question);
            let rankings = retriever.rankings(&[]).expect("an undamaged index");
            retriever.first_round(&rankings).expect("a question")
        },
    );
    for (kind, name) in &peers {
        time(&mut group, name, forget, |question| {
            retrieve(*kind, question)
        });
    }
    let beams = table::peer("naive constrained beams");
    time(&mut group, &beams, forget, |question| {
        engine.naive_beams(question, &alone).expect("a question")
    });
    group.finish();

    let mut group = named(criterion, "answer to a question");
    time(&mut group, "engine", forget, |question| {
        engine.ask(question, &with_answer).expect("a question")
    });
    for (kind, name) in &peers {
        time(&mut group, name, forget, |question| {
            let found = retrieve(*kind, question);
            reader::read(model, question, &found, &with_answer.answer).expect("a question")
        });
    }
    time(&mut group, &beams, forget, |question| {
        engine
            .naive_beams(question, &with_answer)
            .expect("a question")
    });
    group.finish();
}

criterion_group!(benches, answering);
criterion_main!(benches);
