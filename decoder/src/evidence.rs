//! The evidence stage: pieces of text written word for word under the per-document indexes, steered by
//! the relevance of the windows that lie ahead.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use fmindex::{DocumentSet, SetPosition};
use models::ModelError;
use models::sampling::Sampling;

use crate::beam::{Branching, PhraseRules};
use crate::candidates::{self, Candidate};
use crate::constraint::PhraseConstraint;
use crate::format::Closing;
use crate::session::{LogitsSource, Session};
use crate::settings::{Alignment, BeamSettings, Beginning, EvidenceSettings, Scope};
use crate::windows::{self, Window};

/// A piece of evidence as it was written, before it is located again and cited.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Number of the candidate it is cited from.
    pub member: u32,
    /// Its tokens, as offsets in that document.
    pub span: Range<u32>,
    /// The window it was written for, as an index into the writer's windows.
    pub window: usize,
    /// Relevance of the best window that the cited place overlaps.
    pub relevance: f32,
    /// Tokens at which the model had a choice, the others having been forced.
    pub chosen: usize,
}

/// Most tokens of a forced run that are evaluated in one pass where the piece might end within it.
pub const BLOCK: usize = 16;

/// A token of a forced run.
struct Forced {
    token: u32,
    /// Whether the piece might end before it.
    decides: bool,
}

/// Where a piece may stand.
struct PieceScope {
    /// Numbers of the candidates in scope.
    members: Vec<u32>,
    /// Which of them the window's is.
    own: u32,
    /// The window it is written for.
    window: Window,
}

/// The rules of the evidence stage for beams.
struct PieceRules<'w> {
    writer: &'w EvidenceWriter<'w>,
    scope: &'w PieceScope,
}

impl PhraseRules for PieceRules<'_> {
    fn most_tokens(&self) -> usize {
        self.writer.settings.most_tokens
    }

    fn may_end(&self, phrase: &PhraseConstraint) -> bool {
        self.writer.may_choose_end(phrase, self.scope)
    }

    fn steering(&self, phrase: &PhraseConstraint) -> Vec<(u32, f32)> {
        let mut steering = self.writer.relevance_ahead(phrase, &self.scope.members);
        for (_, relevance) in &mut steering {
            *relevance *= self.writer.settings.lambda;
        }
        steering
    }
}

/// Writes pieces of evidence, each for the next-best window that has something left to quote.
///
/// Owns the candidates and their windows, which may become more between two pieces.
pub struct EvidenceWriter<'a> {
    candidates: Vec<Candidate>,
    windows: Vec<Window>,
    /// Windows in which there is nothing left to quote.
    taken: Vec<bool>,
    /// Pieces written from each candidate.
    pieces: Vec<u32>,
    settings: &'a EvidenceSettings,
    /// What closes a piece.
    closing: Closing,
    /// How a token is chosen among those that are allowed.
    sampling: Sampling,
    /// The union of all candidates, where the scope asks for it.
    everything: Option<(Arc<DocumentSet>, Vec<u32>)>,
    /// Sentence starts that were quoted, as (member, offset).
    quoted: HashSet<(u32, u32)>,
}

impl<'a> EvidenceWriter<'a> {
    /// A writer over `windows` of `candidates`. The logits of `closing` stand for the wish to end a piece, beside
    /// those of the model's own end tokens.
    pub fn new(
        candidates: Vec<Candidate>,
        windows: Vec<Window>,
        settings: &'a EvidenceSettings,
        closing: impl Into<Closing>,
    ) -> Self {
        let mut writer = Self {
            candidates: Vec::new(),
            windows: Vec::new(),
            taken: Vec::new(),
            pieces: Vec::new(),
            settings,
            closing: closing.into(),
            sampling: Sampling::greedy(),
            everything: None,
            quoted: HashSet::new(),
        };
        writer.extend(candidates, windows);
        writer
    }

    /// The same, drawing tokens as `sampling` says. The repetition penalty does not count: quotes are what they are.
    #[must_use]
    pub fn with_sampling(self, sampling: Sampling) -> Self {
        Self { sampling, ..self }
    }

    /// Adds candidates after those that are there, and windows, whose `member` counts from the first of all
    /// candidates. Relevance is scaled again over all windows.
    pub fn extend(&mut self, candidates: Vec<Candidate>, windows: Vec<Window>) {
        self.candidates.extend(candidates);
        self.windows.extend(windows);
        windows::scale(&mut self.windows);
        self.taken.resize(self.windows.len(), false);
        self.pieces.resize(self.candidates.len(), 0);
        self.everything = (self.settings.scope == Scope::Candidates)
            .then(|| candidates::union(&self.candidates, 0..self.candidates.len() as u32));
    }

    /// The candidates, in the order in which they came.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The windows, in the order in which they came.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// The relevance of a candidate's best open window; `None` if there is none, or if
    /// something of the candidate was quoted.
    pub fn best_relevance(&self, member: u32) -> Option<f32> {
        if self
            .pieces
            .get(member as usize)
            .is_none_or(|&pieces| pieces > 0)
        {
            return None;
        }
        let windows = self.windows.iter().zip(&self.taken);
        windows
            .filter(|(window, taken)| window.member == member && window.score.is_some() && !**taken)
            .map(|(window, _)| window.relevance)
            .reduce(f32::max)
    }

    /// Adds `bonus` to the open windows of a candidate, and scales all again.
    pub fn raise(&mut self, member: u32, bonus: f32) {
        for (window, taken) in self.windows.iter_mut().zip(&self.taken) {
            if window.member == member && !taken {
                window.bonus += bonus;
            }
        }
        windows::scale(&mut self.windows);
    }

    /// Closes a window that nothing can be written for.
    pub fn close(&mut self, window: usize) {
        self.taken[window] = true;
    }

    /// The best window that is open, its document's earlier pieces counting against it.
    fn best_window(&self) -> Option<usize> {
        let value = |at: usize| {
            let window = &self.windows[at];
            let before = self.pieces.get(window.member as usize).copied();
            window.relevance - self.settings.repeat * before.unwrap_or(0) as f32
        };
        let open = (0..self.windows.len())
            .filter(|&at| !self.taken[at] && self.windows[at].score.is_some());
        open.reduce(|best, next| match value(next) > value(best) {
            true => next,
            false => best,
        })
    }

    /// Moves to the best window that still has a place to begin, and returns where; `None` at the end. A window
    /// of which a part was quoted stays open for the rest. Call [`EvidenceWriter::write`] with it.
    pub fn next_opening(&mut self) -> Option<Opening> {
        while let Some(number) = self.best_window() {
            let mut starts = self.starts(&self.windows[number]);
            if starts.is_empty() {
                self.taken[number] = true;
            }
            if self.settings.beginning == Beginning::First {
                starts.truncate(1);
            }
            if !starts.is_empty() {
                return Some(Opening {
                    window: number,
                    starts,
                });
            }
        }
        None
    }

    /// Where a piece for `window` may begin: in the first fifth of the window, at sentence starts under
    /// sentence alignment; if there is none, at the start of the sentence that holds the window's start; if
    /// that was quoted, at the first start in the window that was not. Never in a title.
    fn starts(&self, window: &Window) -> Vec<u32> {
        let Some(candidate) = self.candidates.get(window.member as usize) else {
            return Vec::new();
        };
        let fresh = |&start: &u32| !self.quoted.contains(&(window.member, start));
        let fifth = window.start..window.start + (window.end - window.start).div_ceil(5);
        match self.settings.alignment {
            Alignment::Sentence => {
                let sentences = &candidate.sentence_starts;
                let inside: Vec<u32> = sentences
                    .iter()
                    .copied()
                    .filter(|start| fifth.contains(start))
                    .collect();
                let holding = sentences
                    .partition_point(|&start| start <= window.start)
                    .checked_sub(1);
                let opening = if inside.is_empty() {
                    // A window that begins in the title: the first sentence after it, if the window reaches it.
                    let at = holding.unwrap_or(0);
                    sentences
                        .get(at)
                        .copied()
                        .filter(|&start| start < window.end)
                        .into_iter()
                        .collect()
                } else {
                    inside
                };
                let mut starts: Vec<u32> = opening.into_iter().filter(fresh).collect();
                if starts.is_empty() {
                    // The beginning was quoted: what is left of the window.
                    let rest = sentences
                        .iter()
                        .copied()
                        .filter(|start| (window.start..window.end).contains(start));
                    starts.extend(rest.filter(fresh).take(1));
                }
                starts
            }
            Alignment::Window => {
                let evidence = |at: &u32| {
                    candidate
                        .paragraph(*at)
                        .is_some_and(|paragraph| !paragraph.is_title())
                };
                let inside: Vec<u32> = fifth.filter(evidence).filter(fresh).collect();
                if inside.is_empty() {
                    (window.start..window.end)
                        .filter(evidence)
                        .filter(fresh)
                        .take(1)
                        .collect()
                } else {
                    inside
                }
            }
        }
    }

    /// Writes one piece: every token continues a text in scope, and the piece ends where the alignment
    /// permits it and the model prefers to, at the limit, or where nothing continues.
    ///
    /// `logit'(t) = logit(t) + λ·max r(w)` over the windows `w` in which `t` would stand; the end keeps its own. What
    /// is drawn depends on the position in the context alone, so forced runs change nothing.
    ///
    /// Where one continuation is left nothing is evaluated; where the piece might also end, up to [`BLOCK`] tokens of
    /// the run are evaluated in one pass, and the piece is cut back to the first end that is preferred.
    ///
    /// # Errors
    /// The model's own.
    pub fn write<S: LogitsSource>(
        &mut self,
        session: &mut Session<S>,
        opening: &Opening,
    ) -> Result<Option<Piece>, ModelError> {
        let Some((mut constraint, scope)) = self.begin(opening) else {
            return Ok(None);
        };
        let members = &scope.members;
        let ends: Vec<u32> = session
            .source()
            .end_tokens()
            .iter()
            .copied()
            .chain(self.closing.tokens())
            .collect();
        let mut chosen = 0;
        let mut allowed = Vec::new();
        // Length of the longest beginning at which the piece may end.
        let mut last_end = 0;
        loop {
            let length = constraint.tokens().len();
            let may_end = self.may_end(&constraint, members);
            if may_end {
                last_end = length;
            }
            if length >= self.settings.most_tokens {
                break;
            }
            constraint.allowed(&mut allowed);
            if allowed.is_empty() {
                last_end = length;
                break;
            }
            let permitted = may_end && self.may_choose_end(&constraint, &scope);
            let token = match (&allowed[..], permitted) {
                ([only], false) => {
                    if !self.settings.skip_forced {
                        session.logits()?;
                    }
                    only.symbol
                }
                ([_], true) if self.settings.skip_forced => {
                    let run = self.forced_run(&constraint, &scope);
                    let kept = self.end_in_run(session, &constraint, members, &run, &ends)?;
                    for step in run.iter().take(kept) {
                        if constraint.advance(step.token).is_err() {
                            return Ok(None);
                        }
                        if self.may_end(&constraint, members) {
                            last_end = constraint.tokens().len();
                        }
                    }
                    chosen += run.iter().take(kept).filter(|step| step.decides).count();
                    if kept < run.len() {
                        break;
                    }
                    continue;
                }
                (_, permitted) => {
                    let position = session.tokens().len();
                    let ahead = self.relevance_ahead(&constraint, members);
                    let symbols: Vec<u32> = allowed.iter().map(|next| next.symbol).collect();
                    let logits = session.logits()?;
                    let may_end = permitted.then_some(&ends[..]);
                    match self.choose(logits, &symbols, &ahead, may_end, position) {
                        Some(token) if token != self.closing.end => token,
                        _ => break,
                    }
                }
            };
            chosen += usize::from(allowed.len() > 1);
            if constraint.advance(token).is_err() {
                break;
            }
            session.write(token);
        }
        // Cut back to the last whole sentence, where there is one.
        if last_end > 0 && self.settings.alignment == Alignment::Sentence {
            let excess = constraint.tokens().len() - last_end;
            session.rollback(excess);
            if constraint.rollback(excess).is_err() {
                return Ok(None);
            }
        }
        Ok(self.place(&constraint, members, opening.window, chosen))
    }

    /// As [`EvidenceWriter::write`], by beam search: the piece is the best of the phrases that were found, by their
    /// log-probability over their length. The same rules hold, and the same logits are steered; nothing is drawn.
    /// Of `search` the beams, groups, diversity and length penalty count. `None` where nothing can be written, or
    /// `interrupted` says so before a phrase has ended.
    ///
    /// # Errors
    /// The model's own.
    pub fn write_beams<S: Branching>(
        &mut self,
        session: &mut Session<S>,
        opening: &Opening,
        search: &BeamSettings,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Piece>, ModelError> {
        let Some((constraint, scope)) = self.begin(opening) else {
            return Ok(None);
        };
        let rules = PieceRules {
            writer: self,
            scope: &scope,
        };
        let what = (&constraint, self.closing);
        let found = session.search(what, &rules, search, interrupted, &mut |_| {})?;
        let Some(best) = found.into_iter().next() else {
            return Ok(None);
        };
        let mut phrase = best.constraint;
        // Where the limit ended it, as above.
        if self.settings.alignment == Alignment::Sentence {
            self.cut_back(&mut phrase, &scope.members);
        }
        session.push(phrase.tokens());
        let mut replayed = constraint;
        let mut chosen = 0;
        let mut allowed = Vec::new();
        for &token in phrase.tokens() {
            replayed.allowed(&mut allowed);
            chosen += usize::from(allowed.len() > 1 || self.may_choose_end(&replayed, &scope));
            if replayed.advance(token).is_err() {
                break;
            }
        }
        Ok(self.place(&phrase, &scope.members, opening.window, chosen))
    }

    /// Takes a phrase that texts go on with back to its last sentence end, where it has one.
    fn cut_back(&self, phrase: &mut PhraseConstraint, members: &[u32]) {
        let mut allowed = Vec::new();
        phrase.allowed(&mut allowed);
        if allowed.is_empty() {
            return;
        }
        let mut shorter = phrase.clone();
        while !shorter.tokens().is_empty() {
            if self.may_end(&shorter, members) {
                *phrase = shorter;
                return;
            }
            if shorter.rollback(1).is_err() {
                return;
            }
        }
    }

    /// A piece of which nothing is written, with where it may stand.
    fn begin(&self, opening: &Opening) -> Option<(PhraseConstraint, PieceScope)> {
        let window = self.windows[opening.window].clone();
        let (set, members) = match &self.everything {
            Some((set, members)) => (set.clone(), members.clone()),
            None => candidates::union(&self.candidates, [window.member]),
        };
        let own = members.iter().position(|&member| member == window.member)? as u32;
        let place = |start: u32| SetPosition { member: own, start };
        let first: Vec<SetPosition> = opening.starts.iter().map(|&start| place(start)).collect();
        let aligned = Arc::new(self.aligned(&members, &first));
        let constraint = PhraseConstraint::documents_from(set, first, aligned);
        let scope = PieceScope {
            members,
            own,
            window,
        };
        Some((constraint, scope))
    }

    /// The token to go on with, or `closing.end` to end, by the steered logits: the largest, or one that is drawn. Of equal
    /// ones going on comes before ending, then the smaller symbol. `ends` are the tokens that stand for the end, where
    /// the piece may end.
    fn choose(
        &self,
        logits: &[f32],
        symbols: &[u32],
        ahead: &[(u32, f32)],
        ends: Option<&[u32]>,
        position: usize,
    ) -> Option<u32> {
        let logit = |token: u32| {
            let logit = logits.get(token as usize).copied();
            logit.unwrap_or(f32::NEG_INFINITY)
        };
        let steered = |symbol: u32| {
            let ahead = ahead.iter().find(|(other, _)| *other == symbol);
            let relevance = ahead.map_or(0.0, |(_, relevance)| *relevance);
            (symbol, logit(symbol) + self.settings.lambda * relevance)
        };
        let mut options: Vec<(u32, f32)> = symbols.iter().map(|&symbol| steered(symbol)).collect();
        let end = ends.map(|ends| {
            let wish = ends.iter().map(|&end| logit(end));
            (self.closing.end, wish.fold(f32::NEG_INFINITY, f32::max))
        });
        if self.sampling.temperature > 0.0 {
            options.extend(end);
            return self.sampling.choose_among(&options, position);
        }
        // What is allowed stands, even where the logits are no numbers.
        let best = options
            .into_iter()
            .reduce(|best, next| if next.1 > best.1 { next } else { best })?;
        match end {
            Some((close, wish)) if wish > best.1 => Some(close),
            _ => Some(best.0),
        }
    }

    /// The tokens that have to follow the phrase while nothing else can, as far as the last place within a block at
    /// which the piece might end, and one token more.
    fn forced_run(&self, constraint: &PhraseConstraint, scope: &PieceScope) -> Vec<Forced> {
        let mut ahead = constraint.clone();
        let mut run: Vec<Forced> = Vec::new();
        let mut useful = 0;
        while run.len() < BLOCK && ahead.tokens().len() < self.settings.most_tokens {
            let Some(token) = ahead.forced() else { break };
            let decides = self.may_choose_end(&ahead, scope);
            if ahead.advance(token).is_err() {
                break;
            }
            run.push(Forced { token, decides });
            if decides {
                useful = run.len();
            }
        }
        run.truncate(useful);
        run
    }

    /// Reads a forced run in one pass, and appends to the session as much of it as stands before the first end that
    /// is preferred. Gives the number of tokens that were kept.
    fn end_in_run<S: LogitsSource>(
        &self,
        session: &mut Session<S>,
        constraint: &PhraseConstraint,
        members: &[u32],
        run: &[Forced],
        ends: &[u32],
    ) -> Result<usize, ModelError> {
        let first = session.tokens().len();
        let tokens: Vec<u32> = run.iter().map(|step| step.token).collect();
        let (last, before) = tokens.split_last().expect("a run holds the forced token");
        let rows = if before.is_empty() {
            vec![session.logits()?.to_vec()]
        } else {
            session.push(before);
            session.logits_of_last(run.len())?
        };
        let mut ahead = constraint.clone();
        let mut kept = 0;
        for (step, logits) in run.iter().zip(&rows) {
            if step.decides {
                let relevance = self.relevance_ahead(&ahead, members);
                let position = first + kept;
                let choice = self.choose(logits, &[step.token], &relevance, Some(ends), position);
                if choice != Some(step.token) {
                    break;
                }
            }
            if ahead.advance(step.token).is_err() {
                break;
            }
            kept += 1;
        }
        if kept == run.len() {
            session.push(&[*last]);
        } else {
            session.rollback(before.len() - kept);
        }
        session.count_written(kept as u64);
        Ok(kept)
    }

    /// Positions at which the same tokens count as the same piece; what was quoted before is no such place.
    fn aligned(&self, members: &[u32], first: &[SetPosition]) -> HashSet<SetPosition> {
        let mut aligned: HashSet<SetPosition> = first.iter().copied().collect();
        if self.settings.scope == Scope::Place {
            return aligned;
        }
        for (slot, &member) in members.iter().enumerate() {
            let candidate = &self.candidates[member as usize];
            let mut add = |start: u32| {
                if !self.quoted.contains(&(member, start)) {
                    let member = slot as u32;
                    aligned.insert(SetPosition { member, start });
                }
            };
            match self.settings.alignment {
                Alignment::Sentence => candidate.sentence_starts.iter().copied().for_each(add),
                Alignment::Window => {
                    let quotable = candidate
                        .paragraphs
                        .iter()
                        .filter(|paragraph| !paragraph.is_title());
                    quotable
                        .flat_map(|paragraph| paragraph.tokens.clone())
                        .for_each(&mut add);
                }
            }
        }
        aligned
    }

    /// Whether the piece has reached the end of its window; one that left the window's document has.
    fn covers(&self, constraint: &PhraseConstraint, scope: &PieceScope) -> bool {
        let length = constraint.tokens().len() as u32;
        let end = scope.window.end;
        let inside = |start: u32| start < end && start + length < end;
        !constraint
            .positions()
            .iter()
            .any(|position| position.member == scope.own && inside(position.start))
    }

    /// Whether a piece could end here.
    fn may_end(&self, constraint: &PhraseConstraint, members: &[u32]) -> bool {
        let length = constraint.tokens().len() as u32;
        length > 0
            && match self.settings.alignment {
                Alignment::Window => true,
                Alignment::Sentence => constraint.positions().iter().any(|position| {
                    self.candidates[members[position.member as usize] as usize]
                        .ends_at(position.start + length)
                }),
            }
    }

    /// Whether the model may end the piece here, while texts go on with it.
    fn may_choose_end(&self, constraint: &PhraseConstraint, scope: &PieceScope) -> bool {
        constraint.tokens().len() >= self.settings.close_from()
            && self.may_end(constraint, &scope.members)
            && (!self.settings.cover || self.covers(constraint, scope))
    }

    /// The best relevance among the windows in which each next token would stand.
    fn relevance_ahead(&self, constraint: &PhraseConstraint, members: &[u32]) -> Vec<(u32, f32)> {
        let length = constraint.tokens().len() as u32;
        let mut ahead: Vec<(u32, f32)> = Vec::new();
        for position in constraint.positions() {
            let member = members[position.member as usize];
            let at = position.start + length;
            let Some(&symbol) = self.candidates[member as usize].tokens().get(at as usize) else {
                continue;
            };
            let relevance = self.relevance_at(member, at..at + 1);
            match ahead.iter_mut().find(|(other, _)| *other == symbol) {
                Some((_, best)) => *best = best.max(relevance),
                None => ahead.push((symbol, relevance)),
            }
        }
        ahead
    }

    fn relevance_at(&self, member: u32, span: Range<u32>) -> f32 {
        let inside = self.windows.iter().filter(|window| {
            window.member == member && window.start < span.end && span.start < window.end
        });
        inside.map(|window| window.relevance).fold(0.0, f32::max)
    }

    /// The surviving position in the best window: among equals the current window's document, then the
    /// first. Marks the starts it covers as quoted.
    fn place(
        &mut self,
        constraint: &PhraseConstraint,
        members: &[u32],
        window: usize,
        chosen: usize,
    ) -> Option<Piece> {
        let length = constraint.tokens().len() as u32;
        let mut best: Option<(f32, bool, u32, u32)> = None;
        for position in constraint.positions() {
            let member = members[position.member as usize];
            let relevance = self.relevance_at(member, position.start..position.start + length);
            let own = member == self.windows[window].member;
            let better = best.is_none_or(|(other, theirs, ..)| {
                relevance > other || (relevance == other && own && !theirs)
            });
            if better {
                best = Some((relevance, own, member, position.start));
            }
        }
        let (relevance, _, member, start) = best.filter(|_| length > 0)?;
        let span = start..start + length;
        self.pieces[member as usize] += 1;
        let candidate = &self.candidates[member as usize];
        match self.settings.alignment {
            Alignment::Sentence => {
                let covered = candidate
                    .sentence_starts
                    .iter()
                    .filter(|start| span.contains(start));
                self.quoted.extend(covered.map(|&start| (member, start)));
            }
            Alignment::Window => self
                .quoted
                .extend(span.clone().map(|start| (member, start))),
        }
        Some(Piece {
            member,
            span,
            window,
            relevance,
            chosen,
        })
    }
}

/// Where the next piece of evidence may begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The window, as an index into the writer's windows.
    pub window: usize,
    /// Token offsets in the window's document; never empty.
    pub starts: Vec<u32>,
}
