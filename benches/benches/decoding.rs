//! What a step of decoding costs, without a model and with one, beside what one would do without the structures.
//!
//! `cargo bench -p benches --bench decoding`, on the summaries of the demo.
//!
//! - The phrase constraint, over the collection and within the candidates of a question: a token is taken and the mask of
//!   the next is made. The peer scans the texts. (`masks` has the index alone beside `llguidance`.)
//! - The logits processor: clues of eight tokens, a row of logits a sequence. The peer scans the texts.
//! - A piece of evidence by the model of the demo, with forced runs and token by token, until the model has read
//!   it. The peer writes as many tokens with the same model and no constraint.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use benches::{Corpus, draw, skip, summaries, table};
use bitvec::prelude::{BitVec, Lsb0};
use corpus_tools::Index;
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, SamplingMode};
use criterion::{criterion_group, criterion_main};
use decoder::PhraseConstraint;
use decoder::Settings;
use decoder::candidates::{self, Candidate};
use decoder::evidence::{EvidenceWriter, Piece};
use decoder::format::Stage;
use decoder::processor::{LogitsProcessor, Phrase, StageRules};
use decoder::prompt;
use decoder::retrieval::Retriever;
use decoder::scorer::Bm25Scorer;
use decoder::session::{Cost, LogitsSource, ModelSource, Session};
use decoder::settings::Scope;
use decoder::windows::Window;
use fmindex::Mask;
use models::language_model::{Cache, LanguageModel, Wanted};

/// Phrases that are asked by turns.
const PHRASES: usize = 200;
/// Tokens of a clue that the processor leads through.
const CLUE: usize = 8;
/// Tokens from which on a clue may be closed.
const CLOSE_FROM: usize = 2;
/// Tokens in front of a clue; what they are does not matter.
const PROMPT: usize = 64;
/// Entries of the model's vocabulary, and so logits a row.
const VOCABULARY: usize = 49_152;

fn named<'c>(criterion: &'c mut Criterion, what: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(table::group("decoding", what));
    group
        .sample_size(10)
        .sampling_mode(SamplingMode::Flat)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    group
}

/// The index of the summaries, or one line that says why there is none.
fn index() -> Option<Index> {
    summaries::index()
        .map_err(|error| skip("decoding", format!("{error:#}")))
        .ok()
}

/// The tokens that follow `phrase` in `tokens`, by a scan.
fn scan(tokens: &[u32], separator: u32, phrase: &[u32], mask: &mut Mask) {
    mask.fill(false);
    for stretch in tokens.windows(phrase.len() + 1) {
        let (&next, before) = stretch.split_last().expect("at least one token");
        // Most places differ in the first token; comparing slices is a call.
        if before.first() == phrase.first() && before == phrase && next != separator {
            mask.set(next as usize, true);
        }
    }
}

/// Times one step of the constraint after phrases of the corpus: the last token is taken, and the mask of the next is
/// made.
fn steps(criterion: &mut Criterion, scope: &str, empty: &PhraseConstraint, corpus: &Corpus) {
    let alphabet = corpus.separator as usize + 1;
    let mut ours: BitVec<u64, Lsb0> = BitVec::repeat(false, alphabet);
    let mut theirs = ours.clone();
    for length in [1, 2, 3, 5, 8] {
        let phrases = corpus.phrases(length, PHRASES, length as u64);
        let mut prepared: Vec<(PhraseConstraint, u32)> = phrases
            .iter()
            .map(|phrase| {
                let (&last, before) = phrase.split_last().expect("at least one token");
                let mut constraint = empty.clone();
                for &token in before {
                    constraint.advance(token).expect("a phrase of the texts");
                }
                (constraint, last)
            })
            .collect();
        let mut step = |at: usize, mask: &mut Mask| {
            let (constraint, last) = &mut prepared[at % PHRASES];
            constraint.advance(*last).expect("a phrase of the texts");
            constraint.mask(mask);
            constraint.rollback(1).expect("a token to take back");
        };
        for (at, phrase) in phrases.iter().enumerate() {
            step(at, &mut ours);
            scan(&corpus.tokens, corpus.separator, phrase, &mut theirs);
            assert_eq!(ours, theirs, "{phrase:?}");
        }
        let mut group = named(criterion, &format!("step and mask {scope}, token {length}"));
        let mut at = 0;
        group.bench_function("constraint", |bench| {
            bench.iter(|| {
                at += 1;
                step(at, &mut ours);
            });
        });
        group.bench_function(table::peer("scan of the texts"), |bench| {
            bench.iter(|| {
                at += 1;
                let phrase = black_box(&phrases[at % PHRASES]);
                scan(&corpus.tokens, corpus.separator, phrase, &mut theirs);
            });
        });
        group.finish();
    }
}

fn constraint(criterion: &mut Criterion) {
    let Some(index) = index() else { return };
    let corpus = Corpus::of(&index);
    index.fm().warm();
    let empty = PhraseConstraint::corpus(index.fm());
    steps(criterion, "in the collection", &empty, &corpus);

    let question = Question::ask(&index, summaries::QUESTIONS[0]);
    let all = 0..question.candidates.len() as u32;
    let (set, _) = candidates::union(&question.candidates, all);
    let mut tokens = Vec::new();
    let mut starts = Vec::new();
    for candidate in &question.candidates {
        starts.push(tokens.len() as u32);
        tokens.extend_from_slice(candidate.tokens());
    }
    let within = Corpus {
        tokens,
        starts,
        separator: corpus.separator,
    };
    let scope = format!("in {} candidates", question.candidates.len());
    steps(
        criterion,
        &scope,
        &PhraseConstraint::documents(set),
        &within,
    );
}

/// A clue begins after the prompt.
struct ClueAfterPrompt(Phrase);

impl StageRules for ClueAfterPrompt {
    fn begin(&self, ids: &[u32]) -> Option<Phrase> {
        (ids.len() == PROMPT).then(|| self.0.clone())
    }
}

fn processor(criterion: &mut Criterion) {
    let Some(index) = index() else { return };
    let corpus = Corpus::of(&index);
    index.fm().warm();
    let tokenizer = index.tokenizer().expect("the index was just opened");
    let close = prompt::line_break(&tokenizer).expect("a model of the demo");
    let rules = Arc::new(ClueAfterPrompt(Phrase {
        constraint: PhraseConstraint::corpus(index.fm()),
        close_from: CLOSE_FROM,
        most_tokens: CLUE + 1,
        close: vec![close],
    }));
    for rows in [1, 8] {
        let mut clues = corpus.phrases(CLUE, rows * 20, 7);
        // What closes a clue is no part of one.
        clues.retain(|clue| !clue.contains(&close));
        let batches: Vec<Vec<Vec<u32>>> = clues
            .chunks_exact(rows)
            .map(|batch| {
                let with_prompt = |clue: &Vec<u32>| [&[0; PROMPT][..], clue].concat();
                batch.iter().map(with_prompt).collect()
            })
            .collect();
        let mut processor = LogitsProcessor::new(rules.clone(), VOCABULARY, Vec::new(), PROMPT);
        let mut state = 1;
        let fresh: Vec<f32> = (0..VOCABULARY)
            .map(|_| draw(&mut state, 1000) as f32 / 100.0)
            .collect();
        let mut ours = vec![fresh.clone(); rows];
        let mut theirs = ours.clone();
        let mut mask: BitVec<u64, Lsb0> = BitVec::repeat(false, corpus.separator as usize + 1);
        // A step: the ids so far, and the rows that are masked. What was masked stays so: masking costs the same again.
        let mut lead = |batch: &[Vec<u32>], step: usize, logits: &mut [Vec<f32>]| {
            let ids: Vec<&[u32]> = batch.iter().map(|ids| &ids[..PROMPT + step]).collect();
            let mut logits: Vec<&mut [f32]> = logits.iter_mut().map(Vec::as_mut_slice).collect();
            processor
                .process(&ids, &mut logits)
                .expect("clues of the texts");
        };
        let mut search = |batch: &[Vec<u32>], step: usize, logits: &mut [Vec<f32>]| {
            for (ids, logits) in batch.iter().zip(logits) {
                scan(
                    &corpus.tokens,
                    corpus.separator,
                    &ids[PROMPT..PROMPT + step],
                    &mut mask,
                );
                let closes = step >= CLOSE_FROM || mask.not_any();
                mask.set(close as usize, closes);
                for (logit, open) in logits.iter_mut().zip(&mask) {
                    if !*open {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        };
        for step in 0..=CLUE {
            ours.fill(fresh.clone());
            theirs.fill(fresh.clone());
            lead(&batches[0], step, &mut ours);
            search(&batches[0], step, &mut theirs);
            assert!(ours == theirs, "step {step} of {:?}", batches[0]);
        }
        let what = format!("logits of a clue of {CLUE} tokens, {rows} of {VOCABULARY} a step");
        let mut group = named(criterion, &what);
        let mut at = 0;
        group.bench_function("processor", |bench| {
            bench.iter(|| {
                at += 1;
                (0..CLUE).for_each(|step| lead(&batches[at % batches.len()], step, &mut ours));
            });
        });
        group.bench_function(table::peer("scan of the texts"), |bench| {
            bench.iter(|| {
                at += 1;
                (0..CLUE).for_each(|step| search(&batches[at % batches.len()], step, &mut theirs));
            });
        });
        group.finish();
    }
}

/// A question with what is retrieved for it without a model.
struct Question {
    text: &'static str,
    candidates: Vec<Candidate>,
    windows: Vec<Window>,
}

impl Question {
    fn ask(index: &Index, text: &'static str) -> Self {
        let tokenizer = index.tokenizer().expect("the index was just opened");
        let scorer = Bm25Scorer::new(index.lexical().clone());
        let settings = Settings::default();
        let mut retriever = Retriever::new(index, &tokenizer, &scorer, &settings, text);
        let rankings = retriever.rankings(&[]).expect("an undamaged index");
        let found = retriever.first_round(&rankings);
        let (candidates, windows) = found.expect("an undamaged index");
        Self {
            text,
            candidates,
            windows,
        }
    }
}

/// What is in front of a piece of evidence, read by the model but for its last token.
struct Context {
    tokens: Vec<u32>,
    cache: Cache,
}

impl Context {
    fn read(model: &LanguageModel, question: &str, title: &str) -> Self {
        let tokenizer = model.tokenizer();
        let mut tokens: Vec<u32> = tokenizer.begin_token().into_iter().collect();
        let (lines, note) = (prompt::question_lines(question), prompt::title_note(title));
        for part in [
            prompt::preamble(),
            lines,
            "\n".to_owned(),
            format!("{}{note}", prompt::label(Stage::Evidence)),
        ] {
            tokens.extend(tokenizer.encode_text(&part));
        }
        let mut cache = model.new_cache();
        let read = &tokens[..tokens.len() - 1];
        model
            .forward(&mut cache, read, Wanted::None)
            .expect("a prompt that fits");
        Self { tokens, cache }
    }

    fn session<'m>(&self, model: &'m LanguageModel) -> Session<ModelSource<'m>> {
        let (last, read) = self.tokens.split_last().expect("a prompt");
        let source = ModelSource::with_cache(model, self.cache.fork());
        let mut session = Session::new(source, read.to_vec());
        session.push(&[*last]);
        session
    }
}

/// Lets the model read what a session holds: forced tokens are written without it, but what comes after them needs it.
fn read_to_the_end<S: LogitsSource>(session: &mut Session<S>) {
    session.logits().expect("a context that fits");
}

/// Writes `count` tokens greedily, whatever they are.
fn write_plainly<S: LogitsSource>(session: &mut Session<S>, count: usize) {
    for _ in 0..count {
        let logits = session.logits().expect("a context that fits");
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let token = best.map_or(0, |(token, _)| token as u32);
        session.write(token);
    }
}

fn evidence(criterion: &mut Criterion) {
    let Some(index) = index() else { return };
    let model = match summaries::language_model() {
        Ok(model) => model,
        Err(error) => return skip("decoding", format!("evidence: {error:#}")),
    };
    let question = Question::ask(&index, summaries::QUESTIONS[0]);
    let close = prompt::line_break(model.tokenizer()).expect("a model of the demo");
    for (scope, name) in [
        (Scope::Place, "where it begins"),
        (Scope::Document, "anywhere in its document"),
        (Scope::Candidates, "anywhere in the candidates"),
    ] {
        let mut settings = Settings::default().evidence;
        settings.scope = scope;
        let writer = |settings| {
            let (candidates, windows) = (question.candidates.clone(), question.windows.clone());
            EvidenceWriter::new(candidates, windows, settings, close)
        };
        let mut first = writer(&settings);
        let opening = first.next_opening().expect("the question has windows");
        let member = first.windows()[opening.window].member as usize;
        let title = first.candidates()[member].title.clone();
        let context = Context::read(&model, question.text, &title);
        let write = |settings| -> (Piece, Cost) {
            let (mut writer, mut session) = (writer(settings), context.session(&model));
            let piece = writer.write(&mut session, &opening);
            let piece = piece.expect("a context that fits").expect("a piece");
            read_to_the_end(&mut session);
            (piece, session.cost())
        };
        let mut one_by_one = settings.clone();
        one_by_one.skip_forced = false;
        // Both write the same, or the comparison means nothing.
        let (piece, cost) = write(&settings);
        let (same, plain) = write(&one_by_one);
        assert_eq!(piece, same);
        let count = piece.span.len();
        println!(
            "evidence that stands {name}: {count} tokens; passes of the model {} with forced runs, {} token by token",
            cost.passes, plain.passes
        );
        let mut group = named(criterion, &format!("evidence that stands {name}"));
        for (name, settings) in [("forced runs", &settings), ("token by token", &one_by_one)] {
            group.bench_function(name, |bench| {
                bench.iter_batched(
                    || (writer(settings), context.session(&model)),
                    |(mut writer, mut session)| {
                        let piece = writer.write(&mut session, &opening);
                        read_to_the_end(&mut session);
                        (piece, writer, session)
                    },
                    BatchSize::PerIteration,
                );
            });
        }
        group.bench_function(table::peer("as many tokens, unconstrained"), |bench| {
            bench.iter_batched(
                || context.session(&model),
                |mut session| {
                    write_plainly(&mut session, count);
                    read_to_the_end(&mut session);
                    session
                },
                BatchSize::PerIteration,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, constraint, processor, evidence);
criterion_main!(benches);
