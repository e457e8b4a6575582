//! The evidence stage with a deterministic source of logits against a plain re-implementation that
//! evaluates every token by itself and looks for text by brute force.

mod hashed;

use std::collections::HashSet;
use std::sync::Arc;

use corpus_tools::store::Paragraph;
use decoder::candidates::Candidate;
use decoder::evidence::EvidenceWriter;
use decoder::session::Session;
use decoder::settings::{Alignment, BeamSettings, Beginning, EvidenceSettings, Scope};
use decoder::windows::Window;
use fmindex::{DocumentId, DocumentIndex};
use hashed::{Hashed, Logits};
use models::language_model::log_normaliser;
use models::sampling::Sampling;
use models::tokenizer::Tokenizer;
use proptest::prelude::*;

const SEPARATOR: u32 = 256;
const CLOSE: u32 = b'\n' as u32;
/// Logits above this are padding.
const VOCABULARY: usize = 256;

/// A byte-level tokenizer without merges: the id of a token is its byte.
fn tokenizer() -> Tokenizer {
    let definition = include_bytes!("../../models/tests/fixtures/bytes.json");
    Tokenizer::from_json(definition).unwrap()
}

/// Padded logits, with a liking for closing now and then.
fn logits(seed: u64) -> Logits {
    Logits {
        padding: 44,
        spread: 4.0,
        liked: Some(CLOSE),
        ..Logits::new(seed, VOCABULARY)
    }
}

/// The candidates of some documents.
fn candidates(documents: &[Vec<String>]) -> Vec<Candidate> {
    let tokenizer = tokenizer();
    documents
        .iter()
        .zip(0..)
        .map(|(paragraphs, number)| candidate(number, paragraphs, &tokenizer))
        .collect()
}

/// A candidate of some paragraphs, the first of which is the title.
fn candidate(number: u32, paragraphs: &[String], tokenizer: &Tokenizer) -> Candidate {
    let mut tokens = Vec::new();
    let mut spans = Vec::new();
    for (at, paragraph) in paragraphs.iter().enumerate() {
        let start = tokens.len() as u32;
        tokens.extend(tokenizer.encode_text(&format!(" {paragraph}")));
        spans.push(Paragraph {
            number: at as u32,
            tokens: start..tokens.len() as u32,
            bytes: 0..0,
        });
        tokens.push(SEPARATOR);
    }
    let document = DocumentId {
        segment: 0,
        document: number,
    };
    let index = Arc::new(DocumentIndex::build(&tokens, SEPARATOR));
    Candidate::new(
        document,
        (number.to_string(), paragraphs[0].clone()),
        1.0,
        spans,
        index,
        tokenizer,
    )
}

/// Sentences of few words, so that many begin alike and some stand twice.
fn documents() -> impl Strategy<Value = Vec<Vec<String>>> {
    let word = prop::sample::select(vec!["the", "cat", "a", "dog", "ran", "sat", "é", "東"]);
    let sentence = prop::collection::vec(word, 1..6).prop_map(|words| {
        let text = words.join(" ");
        let mut letters = text.chars();
        let first = letters.next().unwrap().to_uppercase().to_string();
        format!("{first}{}.", letters.as_str())
    });
    let paragraph = prop::collection::vec(sentence, 1..5).prop_map(|sentences| sentences.join(" "));
    prop::collection::vec(prop::collection::vec(paragraph, 2..4), 1..4)
}

/// Windows of 30 tokens, three a candidate, with scores that are drawn.
fn windows(candidates: &[Candidate], seed: u64) -> Vec<Window> {
    let mut windows = Vec::new();
    for (member, candidate) in candidates.iter().enumerate() {
        let length = candidate.tokens().len() as u32;
        for start in [0, length / 3, length / 2] {
            windows.push(Window {
                member: member as u32,
                start,
                end: (start + 30).min(length),
                score: Some(((seed >> (start % 50)) & 0xff) as f32),
                bonus: 0.0,
                relevance: 0.0,
            });
        }
    }
    decoder::windows::rank(&mut windows);
    windows
}

/// What the stage has to write for one opening, looked at by brute force.
struct Plain<'a> {
    candidates: &'a [Candidate],
    windows: &'a [Window],
    settings: &'a EvidenceSettings,
    window: usize,
    starts: &'a [u32],
    context: &'a [u32],
    quoted: &'a HashSet<(u32, u32)>,
    seed: u64,
}

/// How a piece stands.
struct Stands {
    /// What may follow, with its steered logit, by rising symbol.
    options: Vec<(u32, f32)>,
    /// Logits after the piece, steered.
    logits: Vec<f32>,
    may_end: bool,
    /// Whether the model may end it.
    permitted: bool,
}

impl Plain<'_> {
    fn stands(&self, piece: &[u32]) -> Stands {
        let (candidates, settings) = (self.candidates, self.settings);
        let member = self.windows[self.window].member;
        let in_scope = |other: u32| settings.scope == Scope::Candidates || other == member;
        let begins = |other: u32, at: u32| {
            !self.quoted.contains(&(other, at))
                && match settings.alignment {
                    Alignment::Sentence => candidates[other as usize].sentence_starts.contains(&at),
                    Alignment::Window => candidates[other as usize]
                        .paragraph(at)
                        .is_some_and(|paragraph| !paragraph.is_title()),
                }
        };
        // Every place where the piece stands, found anew.
        let mut places = Vec::new();
        for other in (0..candidates.len() as u32).filter(|&other| in_scope(other)) {
            let tokens = candidates[other as usize].tokens();
            for at in 0..tokens.len() as u32 {
                let possible = if piece.is_empty() {
                    other == member && self.starts.contains(&at)
                } else if settings.scope == Scope::Place {
                    self.starts.contains(&at)
                } else {
                    begins(other, at)
                };
                if possible && tokens[at as usize..].starts_with(piece) {
                    places.push((other, at));
                }
            }
        }
        let length = piece.len() as u32;
        let ends = |&(other, at): &(u32, u32)| candidates[other as usize].ends_at(at + length);
        let may_end =
            length > 0 && (settings.alignment == Alignment::Window || places.iter().any(ends));
        let mut ahead: Vec<(u32, f32)> = Vec::new();
        for &(other, at) in &places {
            let next = at + length;
            let symbol = candidates[other as usize].tokens()[next as usize];
            if symbol == SEPARATOR {
                continue;
            }
            let inside = self
                .windows
                .iter()
                .filter(|w| w.member == other && (w.start..w.end).contains(&next));
            let relevance = inside.map(|window| window.relevance).fold(0.0, f32::max);
            match ahead.iter_mut().find(|(known, _)| *known == symbol) {
                Some((_, best)) => *best = best.max(relevance),
                None => ahead.push((symbol, relevance)),
            }
        }
        ahead.sort_by_key(|&(symbol, _)| symbol);
        let whole: Vec<u32> = self.context.iter().chain(piece).copied().collect();
        let mut logits = logits(self.seed).of_vocabulary(&whole);
        for &(symbol, relevance) in &ahead {
            logits[symbol as usize] += settings.lambda * relevance;
        }
        let options = ahead
            .iter()
            .map(|&(symbol, _)| (symbol, logits[symbol as usize]));
        let options = options.collect();
        let end = self.windows[self.window].end;
        let inside = |&(other, at): &(u32, u32)| other == member && at < end && at + length < end;
        let covered = !(settings.cover && places.iter().any(inside));
        Stands {
            options,
            logits,
            may_end,
            permitted: may_end && piece.len() >= settings.close_from() && covered,
        }
    }

    /// What is written token by token, one evaluation a token, and the number of choices on the way.
    fn write(&self, sampling: Sampling) -> (Vec<u32>, u64) {
        let mut piece: Vec<u32> = Vec::new();
        let mut last_end = 0;
        let mut choices = 0;
        loop {
            let stands = self.stands(&piece);
            if stands.may_end {
                last_end = piece.len();
            }
            if piece.len() >= self.settings.most_tokens {
                break;
            }
            let Some(best) = stands
                .options
                .iter()
                .copied()
                .reduce(|a, b| if b.1 > a.1 { b } else { a })
            else {
                last_end = piece.len();
                break;
            };
            choices += u64::from(stands.permitted || stands.options.len() > 1);
            let close = stands.logits[CLOSE as usize];
            let next = if sampling.temperature > 0.0 {
                let end = stands.permitted.then_some((CLOSE, close));
                let all: Vec<(u32, f32)> = stands.options.iter().copied().chain(end).collect();
                let position = self.context.len() + piece.len();
                sampling.choose_among(&all, position).unwrap()
            } else if stands.permitted && close > best.1 {
                CLOSE
            } else {
                best.0
            };
            if next == CLOSE {
                break;
            }
            piece.push(next);
        }
        if last_end > 0 && self.settings.alignment == Alignment::Sentence {
            piece.truncate(last_end);
        }
        (piece, choices)
    }

    /// Every piece that ends in any way, as it is cut back, with its log-probability over its length (the chosen end
    /// counts as a token).
    fn all(&self) -> Vec<(Vec<u32>, f64)> {
        let mut open: Vec<(Vec<u32>, f64, usize)> = vec![(Vec::new(), 0.0, 0)];
        let mut found = Vec::new();
        while let Some((piece, so_far, last_end)) = open.pop() {
            let stands = self.stands(&piece);
            let last_end = if stands.may_end {
                piece.len()
            } else {
                last_end
            };
            let limit = piece.len() >= self.settings.most_tokens;
            let mut close = |kept: usize, sum: f64, length: usize| {
                let kept = match kept > 0 && self.settings.alignment == Alignment::Sentence {
                    true => kept,
                    false => piece.len(),
                };
                found.push((piece[..kept].to_vec(), sum / length as f64));
            };
            if stands.options.is_empty() {
                close(piece.len(), so_far, piece.len());
                continue;
            }
            if limit {
                close(last_end, so_far, piece.len());
                continue;
            }
            let normaliser = log_normaliser(&stands.logits);
            let after = |logit: f32| so_far + f64::from(logit) - f64::from(normaliser);
            if stands.permitted {
                close(
                    last_end,
                    after(stands.logits[CLOSE as usize]),
                    piece.len() + 1,
                );
            }
            for (symbol, logit) in stands.options {
                open.push(([&piece[..], &[symbol]].concat(), after(logit), last_end));
            }
        }
        found
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn writes_what_plain_decoding_writes(
        documents in documents(),
        seed in any::<u64>(),
        close_from in 1usize..30,
        most_tokens in 5usize..80,
        lambda in prop::sample::select(vec![0.0f32, 1.0, 5.0]),
        scope in prop::sample::select(vec![Scope::Place, Scope::Document, Scope::Candidates]),
        sentences in any::<bool>(),
        model_begins in any::<bool>(),
        cover in any::<bool>(),
        temperature in prop::sample::select(vec![0.0f32, 1.0]),
        skip_forced in prop::bool::weighted(0.8),
    ) {
        let candidates = candidates(&documents);
        let windows = windows(&candidates, seed);
        let settings = EvidenceSettings {
            most_tokens,
            lambda,
            close_from: Some(close_from),
            cover,
            beginning: if model_begins { Beginning::Model } else { Beginning::First },
            scope,
            skip_forced,
            alignment: if sentences { Alignment::Sentence } else { Alignment::Window },
            ..Default::default()
        };
        let source = Hashed::new(logits(seed));
        let mut session = Session::new(source, Vec::new());
        session.push(&[1, 2, 3]);
        let sampling = Sampling { temperature, seed, ..Sampling::default() };
        let mut writer = EvidenceWriter::new(candidates.clone(), windows.clone(), &settings, CLOSE)
            .with_sampling(sampling);
        let (mut pieces, mut choices) = (0, 0);
        let mut quoted: HashSet<(u32, u32)> = HashSet::new();
        while let Some(opening) = writer.next_opening() {
            let context = session.tokens().to_vec();
            let plain = Plain {
                candidates: &candidates,
                windows: &windows,
                settings: &settings,
                window: opening.window,
                starts: &opening.starts,
                context: &context,
                quoted: &quoted,
                seed,
            };
            let (expected, chosen) = plain.write(sampling);
            let piece = writer.write(&mut session, &opening).unwrap().unwrap();
            prop_assert_eq!(&session.tokens()[context.len()..], &expected[..]);
            // It stands where it says, inside one paragraph that is no title, and begins at a fresh place.
            let candidate = &candidates[piece.member as usize];
            let span = piece.span.start as usize..piece.span.end as usize;
            prop_assert_eq!(&candidate.tokens()[span], &expected[..]);
            let paragraph = candidate.paragraph(piece.span.start).unwrap();
            prop_assert!(!paragraph.is_title() && piece.span.end <= paragraph.tokens.end);
            prop_assert!(piece.span.len() <= most_tokens);
            prop_assert!(!quoted.contains(&(piece.member, piece.span.start)), "the same place twice");
            quoted.extend(piece.span.clone().map(|at| (piece.member, at)));
            session.push(&[CLOSE]);
            pieces += 1;
            choices += chosen;
        }
        let places: usize = candidates.iter().map(|candidate| candidate.tokens().len()).sum();
        prop_assert!(pieces <= places);
        // At most a pass for every choice, and none for a forced token.
        let cost = session.cost();
        prop_assert_eq!(cost.passes, session.source().passes.get());
        prop_assert!(!skip_forced || cost.passes <= choices, "{} passes for {} choices", cost.passes, choices);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn beams_find_the_best_piece(
        documents in documents(),
        seed in any::<u64>(),
        close_from in 1usize..30,
        most_tokens in 5usize..60,
        lambda in prop::sample::select(vec![0.0f32, 1.0, 5.0]),
        scope in prop::sample::select(vec![Scope::Place, Scope::Document, Scope::Candidates]),
        sentences in any::<bool>(),
        model_begins in any::<bool>(),
        cover in any::<bool>(),
        beams in 2usize..5,
        groups in 1usize..4,
    ) {
        let candidates = candidates(&documents);
        let windows = windows(&candidates, seed);
        let settings = EvidenceSettings {
            most_tokens,
            lambda,
            close_from: Some(close_from),
            cover,
            beginning: if model_begins { Beginning::Model } else { Beginning::First },
            scope,
            alignment: if sentences { Alignment::Sentence } else { Alignment::Window },
            ..Default::default()
        };
        let search = |beams, groups| BeamSettings { beams, groups, ..Default::default() };
        let context = [1, 2, 3];
        // A fresh writer each time: what one quotes would be taken from the next.
        let write = |search: Option<&BeamSettings>| {
            let mut writer = EvidenceWriter::new(candidates.clone(), windows.clone(), &settings, CLOSE);
            let source = Hashed::new(logits(seed));
            let mut session = Session::new(source, Vec::new());
            session.push(&context);
            let opening = writer.next_opening().unwrap();
            let piece = match search {
                Some(search) => writer.write_beams(&mut session, &opening, search, &|| false),
                None => writer.write(&mut session, &opening),
            };
            let piece = piece.unwrap().unwrap();
            let tokens = session.tokens()[context.len()..].to_vec();
            let span = piece.span.start as usize..piece.span.end as usize;
            assert_eq!(&candidates[piece.member as usize].tokens()[span], &tokens[..]);
            (piece, tokens, session.cost(), opening)
        };
        // One beam is greedy.
        let (piece, tokens, _, opening) = write(None);
        let (one, same, cost, _) = write(Some(&search(1, 1)));
        prop_assert_eq!((&one.span, one.member, &same), (&piece.span, piece.member, &tokens));
        prop_assert!(cost.written >= tokens.len() as u64 && cost.passes > 0);
        let quoted = HashSet::new();
        let plain = Plain {
            candidates: &candidates,
            windows: &windows,
            settings: &settings,
            window: opening.window,
            starts: &opening.starts,
            context: &context,
            quoted: &quoted,
            seed,
        };
        let every = plain.all();
        // So many that nothing is dropped and nothing stops early: the best of all pieces.
        let (_, found, ..) = write(Some(&search(every.len() + 1024, 1)));
        let best = every.iter().map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max);
        let mut as_good = every.iter().filter(|(_, score)| *score > best - 1e-4);
        prop_assert!(as_good.any(|(piece, _)| *piece == found), "{:?} is not the best", found);
        // Fewer, and in groups: a piece that can be written.
        let (_, found, ..) = write(Some(&search(beams, groups)));
        prop_assert!(every.iter().any(|(piece, _)| *piece == found));
    }
}

#[test]
fn a_forced_run_is_read_in_blocks() {
    let tokenizer = tokenizer();
    // Every letter of the text could be the last of the piece.
    let text = "Abcdefghijklmnopqrstuvwxyz 0123456789 ABCDEFGHIJKLMNOPQRSTUVWXYZ and so on to the end of it.";
    let candidate = candidate(0, &["T".to_owned(), text.to_owned()], &tokenizer);
    let start = candidate.paragraphs[1].tokens.start;
    let end = candidate.paragraphs[1].tokens.end;
    let settings = EvidenceSettings {
        alignment: Alignment::Window,
        close_from: Some(4),
        most_tokens: 200,
        cover: false,
        ..Default::default()
    };
    let mut blocks = 0;
    for seed in 0..60 {
        let windows = vec![Window {
            member: 0,
            start,
            end,
            score: Some(1.0),
            bonus: 0.0,
            relevance: 1.0,
        }];
        let candidates = vec![candidate.clone()];
        let source = Hashed::new(logits(seed));
        let mut session = Session::new(source, Vec::new());
        session.push(&[1, 2, 3]);
        let mut writer = EvidenceWriter::new(candidates, windows, &settings, CLOSE);
        let opening = writer.next_opening().unwrap();
        let piece = writer.write(&mut session, &opening).unwrap().unwrap();
        let length = piece.span.len() as u64;
        let decisions = length.saturating_sub(4) + 1;
        let cost = session.cost();
        assert!(
            cost.passes <= decisions.div_ceil(16) + 1,
            "{cost:?} for {length}"
        );
        assert_eq!(cost.written, length);
        assert_eq!(session.tokens().len() as u64, 3 + length);
        // What is evaluated beyond the end is less than a block.
        assert!(cost.evaluated < 3 + length + 16, "{cost:?} for {length}");
        blocks += u64::from(length > 20);
    }
    assert!(blocks > 0, "no run was longer than a block");
}
