//! Beam search and diverse beam search over a constrained phrase.
//!
//! Beams add log-probabilities of the full vocabulary, not renormalised over what is allowed; where logits are
//! steered, of the steered ones. Groups of beams are decoded one after another at every position, and a token that an
//! earlier group took at the position counts against a later one (Vijayakumar et al. 2018, arXiv:1610.02424); one
//! group is plain beam search.

use std::time::{Duration, Instant};

use fmindex::Continuation;
use models::ModelError;
use models::language_model::{Branch, Cache, LanguageModel, Wanted, log_normaliser};

use crate::constraint::PhraseConstraint;
use crate::format::Closing;
use crate::session::{Cost, LogitsSource, ModelSource, Session};
use crate::settings::BeamSettings;

/// What beam search asks of a language model: logits along several contexts at once.
pub trait BranchSource {
    /// One context.
    type Context;
    /// A context that goes on from this one by itself.
    fn fork(&self, context: &Self::Context) -> Self::Context;
    /// Appends tokens (at least one) to each context.
    ///
    /// # Errors
    /// The model cannot take the tokens.
    fn append(
        &mut self,
        branches: &mut [(&mut Self::Context, &[u32])],
    ) -> Result<Vec<Appended>, ModelError>;
    /// Every token that ends a generation.
    fn end_tokens(&self) -> &[u32];
}

/// What appending tokens to a context gives.
#[derive(Debug, Clone)]
pub struct Appended {
    /// Natural log-probabilities of the tokens after the first, each under the full vocabulary.
    pub log_probabilities: Vec<f32>,
    /// Logits after the last token.
    pub logits: Vec<f32>,
}

/// Positions whose logits are held at a time for one branch.
const ROWS: usize = 32;

/// A language model whose contexts are forks of one cache.
pub struct ModelBranches<'m> {
    model: &'m LanguageModel,
}

impl<'m> ModelBranches<'m> {
    /// Branches of `model`.
    pub fn new(model: &'m LanguageModel) -> Self {
        Self { model }
    }
}

impl BranchSource for ModelBranches<'_> {
    type Context = Cache;

    fn fork(&self, context: &Cache) -> Cache {
        context.fork()
    }

    fn append(
        &mut self,
        branches: &mut [(&mut Cache, &[u32])],
    ) -> Result<Vec<Appended>, ModelError> {
        let size = self.model.tokenizer().vocabulary_size() as usize;
        let mut appended: Vec<Appended> = branches
            .iter()
            .map(|_| Appended {
                log_probabilities: Vec::new(),
                logits: Vec::new(),
            })
            .collect();
        let longest = branches.iter().map(|(_, tokens)| tokens.len()).max();
        for from in (0..longest.unwrap_or(0)).step_by(ROWS) {
            let mut numbers = Vec::new();
            let mut passes: Vec<Branch<'_>> = Vec::new();
            for (number, (cache, tokens)) in branches.iter_mut().enumerate() {
                if from < tokens.len() {
                    numbers.push(number);
                    passes.push(Branch {
                        cache,
                        tokens: &tokens[from..tokens.len().min(from + ROWS)],
                        wanted: Wanted::All,
                    });
                }
            }
            let logits = self.model.forward_branches(&mut passes)?;
            for (number, logits) in numbers.into_iter().zip(&logits) {
                let tokens = branches[number].1;
                for at in 0..logits.rows() {
                    let row = logits.row(at);
                    let row = &row[..size.min(row.len())];
                    match tokens.get(from + at + 1) {
                        Some(&next) => {
                            let next = log_probability(row, next) as f32;
                            appended[number].log_probabilities.push(next);
                        }
                        None => appended[number].logits = row.to_vec(),
                    }
                }
            }
        }
        Ok(appended)
    }

    fn end_tokens(&self) -> &[u32] {
        self.model.end_tokens()
    }
}

/// A source whose context can be gone on from in several ways at once.
pub trait Branching: LogitsSource {
    /// The model that reads the branches.
    type Branches: BranchSource;
    /// The model, and a fork of what was read.
    fn branch(&self) -> (Self::Branches, <Self::Branches as BranchSource>::Context);
}

impl<'m> Branching for ModelSource<'m> {
    type Branches = ModelBranches<'m>;

    fn branch(&self) -> (ModelBranches<'m>, Cache) {
        (ModelBranches::new(self.model()), self.cache().fork())
    }
}

/// What a stage says of its phrases, beside what the constraint does.
pub trait PhraseRules {
    /// Tokens at which a phrase ends whatever the model says.
    fn most_tokens(&self) -> usize;

    /// Whether the model may end a phrase of at least one token that texts go on with.
    fn may_end(&self, phrase: &PhraseConstraint) -> bool;

    /// Whether a token that goes on with the phrase in a text may be written.
    fn admits(&self, _phrase: &PhraseConstraint, _token: u32) -> bool {
        true
    }

    /// What is added to the logits of tokens that go on with the phrase, each token once.
    fn steering(&self, _phrase: &PhraseConstraint) -> Vec<(u32, f32)> {
        Vec::new()
    }
}

impl PhraseRules for BeamSettings {
    fn most_tokens(&self) -> usize {
        self.most_tokens
    }

    fn may_end(&self, phrase: &PhraseConstraint) -> bool {
        phrase.tokens().len() >= self.close_from
    }
}

/// A phrase that beam search found.
#[derive(Clone)]
pub struct Beam {
    /// The phrase with its places.
    pub constraint: PhraseConstraint,
    /// Sum of the natural log-probabilities of its tokens, steered where they are, and of the end where it was
    /// chosen.
    pub log_probability: f64,
    /// Whether the model chose to end it; the limit or the texts ended it otherwise.
    pub chosen_end: bool,
}

impl Beam {
    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        self.constraint.tokens()
    }

    /// The log-probability over the length to the power of the penalty: what beams are ranked by.
    pub fn score(&self, length_penalty: f64) -> f64 {
        let length = self.tokens().len() + usize::from(self.chosen_end);
        self.log_probability / (length.max(1) as f64).powf(length_penalty)
    }
}

struct Live<C> {
    beam: Beam,
    context: C,
    /// Tokens of the beam that the model has not read, with what steers them; the log-probabilities of all but the
    /// first are not counted yet.
    waiting: Vec<(u32, f32)>,
    /// Logits after what was read.
    logits: Vec<f32>,
}

/// What beams go on from.
#[derive(Clone, Copy)]
pub struct Start<'a, C> {
    /// The context that was read.
    pub context: &'a C,
    /// The logits after it.
    pub logits: &'a [f32],
    /// What may be written; nothing of it is written yet.
    pub constraint: &'a PhraseConstraint,
    /// What ends a phrase beside the model's end tokens.
    pub closing: Closing,
}

/// What a search found.
pub struct Found {
    /// The phrases, at most as many as there are beams, best first.
    pub beams: Vec<Beam>,
    /// What it cost; `written` counts the tokens of all beams.
    pub cost: Cost,
    /// Time that the model took.
    pub passing: Duration,
}

/// Searches phrases that go on from `start`. Of `settings` the number of beams and groups, the diversity and the length
/// penalty count; `rules` say the rest. The search stops early and gives what it has where `interrupted` says so.
/// `watch` is shown every live beam after every token that it takes, forced ones too.
///
/// Where one continuation is left to the only beam of a group, it is taken without a pass, and the whole run is
/// read in one.
///
/// # Errors
/// The model's own.
pub fn search<S: BranchSource>(
    source: &mut S,
    start: Start<'_, S::Context>,
    rules: &dyn PhraseRules,
    settings: &BeamSettings,
    interrupted: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(&PhraseConstraint),
) -> Result<Found, ModelError> {
    let groups = settings.groups.clamp(1, settings.beams.max(1));
    let ends: Vec<u32> = source
        .end_tokens()
        .iter()
        .copied()
        .chain(start.closing.tokens())
        .collect();
    let mut found = Found {
        beams: Vec::new(),
        cost: Cost::default(),
        passing: Duration::ZERO,
    };
    let mut live: Vec<Vec<Live<S::Context>>> = (0..groups)
        .map(|_| {
            vec![Live {
                beam: Beam {
                    constraint: start.constraint.clone(),
                    log_probability: 0.0,
                    chosen_end: false,
                },
                context: source.fork(start.context),
                waiting: Vec::new(),
                logits: start.logits.to_vec(),
            }]
        })
        .collect();
    // Beams of each group: the first ones take what does not divide.
    let width =
        |group: usize| settings.beams / groups + usize::from(group < settings.beams % groups);
    let mut done: Vec<Vec<Beam>> = vec![Vec::new(); groups];
    // By group and position, the tokens that its beams took there.
    let mut taken: Vec<Vec<Vec<u32>>> = vec![Vec::new(); groups];
    while live.iter().any(|group| !group.is_empty()) && !interrupted() {
        read(source, live.iter_mut().flatten(), &mut found)?;
        // Where the earlier groups that go on have got to: a group that forced runs took further waits for them.
        let mut reached = usize::MAX;
        for group in 0..groups {
            let Some(position) = live[group].first().map(|beam| beam.beam.tokens().len()) else {
                continue;
            };
            if position >= reached {
                continue;
            }
            let width = width(group);
            let before = std::mem::take(&mut live[group]);
            let (earlier, own) = taken.split_at_mut(group);
            let own = &mut own[0];
            let against: Vec<u32> = earlier
                .iter()
                .filter_map(|tokens| tokens.get(position))
                .flatten()
                .copied()
                .collect();
            let beams = &mut live[group];
            let mut options: Vec<Way> = Vec::new();
            for (number, beam) in before.iter().enumerate() {
                let against = (&against[..], settings.diversity);
                options.extend(step(beam, number, &ends, width, rules, against));
            }
            options.sort_by(|a, b| b.ranked.total_cmp(&a.ranked));
            options.truncate(width);
            for option in options {
                let parent = &before[option.parent];
                let mut beam = parent.beam.clone();
                beam.log_probability = option.log_probability;
                let Some(token) = option.token else {
                    beam.chosen_end = option.chosen_end;
                    done[group].push(beam);
                    continue;
                };
                if beam.constraint.advance(token).is_err() {
                    continue;
                }
                found.cost.written += 1;
                watch(&beam.constraint);
                beams.push(Live {
                    beam,
                    context: source.fork(&parent.context),
                    waiting: vec![(token, 0.0)],
                    logits: Vec::new(),
                });
            }
            if let [only] = &mut beams[..] {
                run_on(only, rules, &mut found.cost, watch);
            }
            for beam in beams.iter() {
                for (at, &(token, _)) in (position..).zip(&beam.waiting) {
                    if own.len() <= at {
                        own.resize(at + 1, Vec::new());
                    }
                    own[at].push(token);
                }
            }
            // As many as are wanted have ended: the group is done, even where a live beam might still score higher.
            let score = |beam: &Beam| beam.score(settings.length_penalty);
            done[group].sort_by(|a, b| score(b).total_cmp(&score(a)));
            if done[group].len() >= width {
                beams.clear();
            }
            if let Some(beam) = beams.first() {
                reached = reached.min(beam.beam.tokens().len());
            }
        }
    }
    for (group, mut beams) in done.into_iter().enumerate() {
        beams.truncate(width(group));
        found.beams.extend(beams);
    }
    let score = |beam: &Beam| beam.score(settings.length_penalty);
    found.beams.sort_by(|a, b| score(b).total_cmp(&score(a)));
    Ok(found)
}

impl<S: Branching> Session<S> {
    /// [`search`]es phrases that go on from the context, which stays as it is; what it costs is counted.
    ///
    /// # Errors
    /// As [`search`].
    pub fn search(
        &mut self,
        (constraint, closing): (&PhraseConstraint, Closing),
        rules: &dyn PhraseRules,
        settings: &BeamSettings,
        interrupted: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&PhraseConstraint),
    ) -> Result<Vec<Beam>, ModelError> {
        let logits = self.logits()?.to_vec();
        let (mut branches, context) = self.source().branch();
        let start = Start {
            context: &context,
            logits: &logits,
            constraint,
            closing,
        };
        let found = search(&mut branches, start, rules, settings, interrupted, watch)?;
        self.spend(found.cost, found.passing);
        Ok(found.beams)
    }
}

/// Takes continuations as long as there is one only and the phrase may not end.
fn run_on<C>(
    live: &mut Live<C>,
    rules: &dyn PhraseRules,
    cost: &mut Cost,
    watch: &mut dyn FnMut(&PhraseConstraint),
) {
    let phrase = &mut live.beam.constraint;
    while phrase.tokens().len() < rules.most_tokens() && !rules.may_end(phrase) {
        let Some(token) = phrase.forced().filter(|&token| rules.admits(phrase, token)) else {
            return;
        };
        let steering = rules.steering(phrase);
        let steered = steering.iter().find(|(other, _)| *other == token);
        let bonus = steered.map_or(0.0, |(_, bonus)| *bonus);
        if phrase.advance(token).is_err() {
            return;
        }
        live.waiting.push((token, bonus));
        cost.written += 1;
        watch(phrase);
    }
}

/// One pass over everything that waits; counts the log-probabilities of forced tokens.
fn read<'a, S: BranchSource>(
    source: &mut S,
    live: impl Iterator<Item = &'a mut Live<S::Context>>,
    found: &mut Found,
) -> Result<(), ModelError>
where
    S::Context: 'a,
{
    let mut reading: Vec<&mut Live<S::Context>> =
        live.filter(|beam| !beam.waiting.is_empty()).collect();
    if reading.is_empty() {
        return Ok(());
    }
    let (waiting, bonuses): (Vec<Vec<u32>>, Vec<Vec<f32>>) = reading
        .iter_mut()
        .map(|beam| -> (Vec<u32>, Vec<f32>) {
            std::mem::take(&mut beam.waiting).into_iter().unzip()
        })
        .unzip();
    let mut branches: Vec<(&mut S::Context, &[u32])> = reading
        .iter_mut()
        .zip(&waiting)
        .map(|(beam, tokens)| (&mut beam.context, tokens.as_slice()))
        .collect();
    let began = Instant::now();
    let read = source.append(&mut branches)?;
    found.passing += began.elapsed();
    found.cost.passes += 1;
    found.cost.evaluated += waiting.iter().map(Vec::len).sum::<usize>() as u64;
    for ((beam, read), bonuses) in reading.into_iter().zip(read).zip(bonuses) {
        let forced = read.log_probabilities.iter().zip(&bonuses[1..]);
        let steered = forced.map(|(&value, &bonus)| match bonus == 0.0 {
            true => f64::from(value),
            false => f64::from(value + bonus) - steered_normaliser(0.0, &[(value, bonus)]),
        });
        beam.beam.log_probability += steered.sum::<f64>();
        beam.logits = read.logits;
    }
    Ok(())
}

/// The normaliser of a row whose normaliser is `before`, after bonuses were added to some of its logits:
/// ln(e^before + Σ (e^(l + bonus) − e^l)).
fn steered_normaliser(before: f64, steered: &[(f32, f32)]) -> f64 {
    let raised = |&(logit, bonus): &(f32, f32)| f64::from(logit + bonus);
    let largest = steered.iter().map(raised).fold(before, f64::max);
    if !largest.is_finite() {
        return largest;
    }
    let part = |logit: f64| (logit - largest).exp();
    let plain = |&(logit, _): &(f32, f32)| part(f64::from(logit));
    // What is left without them may be rounded below nothing.
    let others = (part(before) - steered.iter().map(plain).sum::<f64>()).max(0.0);
    let steered = steered.iter().map(raised).map(part).sum::<f64>();
    largest + (others + steered).ln()
}

fn log_probability(logits: &[f32], token: u32) -> f64 {
    let logit = logits.get(token as usize);
    f64::from(logit.map_or(f32::NEG_INFINITY, |logit| logit - log_normaliser(logits)))
}

/// One way for a beam to go on, or to end.
struct Way {
    parent: usize,
    /// `None`: the phrase ends here.
    token: Option<u32>,
    chosen_end: bool,
    log_probability: f64,
    /// The log-probability less what earlier groups took.
    ranked: f64,
}

/// The best `width` ways for a beam to go on, and its end where that is permitted. `against` are the tokens that earlier
/// groups took, and what each of them takes off.
fn step<C>(
    live: &Live<C>,
    parent: usize,
    ends: &[u32],
    width: usize,
    rules: &dyn PhraseRules,
    (against, diversity): (&[u32], f64),
) -> Vec<Way> {
    let so_far = live.beam.log_probability;
    let phrase = &live.beam.constraint;
    let length = phrase.tokens().len();
    let forced_end = Way {
        parent,
        token: None,
        chosen_end: false,
        log_probability: so_far,
        ranked: so_far,
    };
    let mut allowed: Vec<Continuation> = Vec::new();
    phrase.allowed(&mut allowed);
    allowed.retain(|next| rules.admits(phrase, next.symbol));
    if allowed.is_empty() || length >= rules.most_tokens() {
        return if length > 0 {
            vec![forced_end]
        } else {
            Vec::new()
        };
    }
    let logit = |token: u32| live.logits.get(token as usize).copied();
    let steering = rules.steering(phrase);
    let bonus = |token: u32| {
        let steered = steering.iter().find(|(other, _)| *other == token);
        steered.map_or(0.0, |(_, bonus)| *bonus)
    };
    let mut normaliser = f64::from(log_normaliser(&live.logits));
    if !steering.is_empty() {
        let steered = steering.iter().filter(|(_, bonus)| *bonus != 0.0);
        let steered: Vec<(f32, f32)> = steered
            .filter_map(|&(token, bonus)| Some((logit(token)?, bonus)))
            .collect();
        normaliser = steered_normaliser(normaliser, &steered);
    }
    let mut options: Vec<Way> = allowed
        .iter()
        .filter_map(|next| {
            let logit = logit(next.symbol)? + bonus(next.symbol);
            let log_probability = so_far + f64::from(logit) - normaliser;
            let times = against
                .iter()
                .filter(|&&token| token == next.symbol)
                .count();
            Some(Way {
                parent,
                token: Some(next.symbol),
                chosen_end: false,
                log_probability,
                ranked: log_probability - diversity * times as f64,
            })
        })
        .collect();
    options.sort_by(|a, b| b.ranked.total_cmp(&a.ranked));
    options.truncate(width);
    if length > 0
        && rules.may_end(phrase)
        && let Some(end) = ends.iter().filter_map(|&end| logit(end)).reduce(f32::max)
    {
        let log_probability = so_far + f64::from(end) - normaliser;
        options.push(Way {
            token: None,
            chosen_end: true,
            log_probability,
            ranked: log_probability,
            ..forced_end
        });
    }
    options
}
