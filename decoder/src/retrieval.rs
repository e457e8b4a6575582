//! Retrieval for one question: rankings of documents, candidates, and their windows with relevance.
//! No language model is asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corpus_tools::Index;
use fmindex::{DocumentId, DocumentIndex};
use models::tokenizer::Tokenizer;
use rayon::prelude::*;

use crate::candidates::{self, Candidate, CandidateMemory};
use crate::clues::{self, Clue};
use crate::engine::EngineError;
use crate::evidence::EvidenceWriter;
use crate::scorer::{EmbeddingScorer, ScorerError, WindowScorer, WindowText};
use crate::settings::Settings;
use crate::titles::{self, NamedTitle};
use crate::windows::{self, ClueOccurrence, Ground, Window};
use crate::{fusion, spelling, vectors};

/// Windows of linked documents that are scored for each document that a hop may lead to.
const WINDOWS_PER_HOP: usize = 4;
/// Linked documents that become candidates for each document that a hop may lead to: those with the rarest names.
const LINKED_PER_HOP: usize = 32;

/// What one question is retrieved with.
pub struct Retriever<'a> {
    index: &'a Index,
    tokenizer: &'a Tokenizer,
    scorer: &'a dyn WindowScorer,
    settings: &'a Settings,
    question: &'a str,
    /// Terms of a sparse lexical model, the strongest first.
    expansion: Option<Vec<String>>,
    /// Where candidates of earlier questions are found.
    memory: Option<&'a CandidateMemory>,
    /// The best BM25 score of a window so far.
    best_lexical: f32,
    /// Time that the scorer took so far.
    scoring: Duration,
}

/// The rankings of documents for a question, and what they come from.
#[derive(Debug, Clone)]
pub struct Rankings {
    /// The clues with their weights.
    pub clues: Vec<Clue>,
    /// The strongest terms of the question.
    pub auxiliary: Vec<String>,
    /// Titles named in the question.
    pub titles: Vec<NamedTitle>,
    /// Documents by clues, best first.
    pub by_clues: Vec<DocumentId>,
    /// Documents by BM25, best first.
    pub by_words: Vec<DocumentId>,
    /// Documents by the rarity of their named title, the rarest first.
    pub by_titles: Vec<DocumentId>,
    /// Documents by sentence vectors, best first; empty where that ranking has no weight.
    pub by_vectors: Vec<DocumentId>,
    /// All of them fused, with scores, best first, as many as there may be candidates.
    pub fused: Vec<(DocumentId, f64)>,
}

impl Rankings {
    /// Key phrases that open windows: the clues, then the auxiliary clues.
    pub fn phrases(&self) -> impl Iterator<Item = &str> {
        let clues = self.clues.iter().map(|clue| clue.text.as_str());
        clues.chain(self.auxiliary.iter().map(String::as_str))
    }
}

/// The share of a bonus for each document of some named titles, in a collection of `documents`:
/// `ln(N/occ) / ln N / √n` for a name with `occ` occurrences that is the title of `n` documents, so that a
/// rare name of one document gets nearly all and a word that stands everywhere nothing; a name that is spelled in
/// another way has `guessed` times that. The greatest where several names lead to one document.
pub fn shares(titles: &[NamedTitle], documents: u64, guessed: f32) -> HashMap<DocumentId, f32> {
    let mut shares = HashMap::new();
    let all = (documents.max(2) as f32).ln();
    for title in titles {
        let rarity = 1.0 - (title.occurrences.max(1) as f32).ln() / all;
        let sure = if title.guessed { guessed } else { 1.0 };
        let share = sure * rarity.max(0.0) / (title.documents.len().max(1) as f32).sqrt();
        for &document in &title.documents {
            let best: &mut f32 = shares.entry(document).or_default();
            *best = best.max(share);
        }
    }
    shares
}

/// The scorer whose vectors rank documents; `None` where that ranking has no weight.
///
/// # Errors
/// It has a weight, and the scorer embeds nothing, or the index does not keep its vectors.
pub(crate) fn dense_scorer<'s>(
    index: &Index,
    scorer: &'s dyn WindowScorer,
    settings: &Settings,
) -> Result<Option<&'s EmbeddingScorer>, EngineError> {
    let weight = settings.candidates.dense_weight;
    if weight <= 0.0 {
        return Ok(None);
    }
    let Some(scorer) = scorer.as_embedding() else {
        return Err(EngineError::Settings(format!(
            "the setting candidates.dense_weight is {weight}, but only the window scorer embedding has sentence vectors; set windows.scorer=embedding or candidates.dense_weight=0"
        )));
    };
    let complete = match scorer.vectors() {
        Some(vectors) => vectors.check_complete(),
        None => Err(vectors::missing_in(index, index.manifest().segments.len())),
    };
    complete.map_err(ScorerError::from)?;
    Ok(Some(scorer))
}

impl<'a> Retriever<'a> {
    /// A retriever for `question`. `tokenizer` is the index's.
    pub fn new(
        index: &'a Index,
        tokenizer: &'a Tokenizer,
        scorer: &'a dyn WindowScorer,
        settings: &'a Settings,
        question: &'a str,
    ) -> Self {
        Self {
            index,
            tokenizer,
            scorer,
            settings,
            question,
            expansion: None,
            memory: None,
            best_lexical: f32::MIN_POSITIVE,
            scoring: Duration::ZERO,
        }
    }

    /// Time that the window scorer took so far.
    pub fn scoring(&self) -> Duration {
        self.scoring
    }

    /// The same with terms of a sparse lexical model, the strongest first. They take the place of the question's
    /// own terms as auxiliary clues, and stand beside the question in the lexical ranking.
    #[must_use]
    pub fn with_expansion(self, terms: Vec<String>) -> Self {
        Self {
            expansion: Some(terms),
            ..self
        }
    }

    /// The same with a memory of candidates, which is looked up before an index is built, and filled.
    #[must_use]
    pub fn with_memory(self, memory: &'a CandidateMemory) -> Self {
        Self {
            memory: Some(memory),
            ..self
        }
    }

    /// Ranks documents by clues (`phrases`), by BM25, by named titles and, where that has a weight, by sentence
    /// vectors, and fuses the rankings.
    ///
    /// # Errors
    /// The index is damaged, or it does not keep the vectors that are wanted.
    pub fn rankings(&self, phrases: &[String]) -> Result<Rankings, EngineError> {
        let settings = self.settings;
        let (clues, by_clues) =
            clues::rank_documents(self.index.fm(), self.tokenizer, phrases, &settings.clues);
        let by_clues: Vec<DocumentId> =
            by_clues.into_iter().map(|(document, _)| document).collect();
        let lexical = self.index.lexical();
        let words = match &self.expansion {
            Some(terms) => format!("{} {}", self.question, terms.join(" ")),
            None => self.question.to_owned(),
        };
        let by_words: Vec<DocumentId> = lexical
            .search(&words, settings.candidates.most)?
            .into_iter()
            .map(|(document, _)| document)
            .collect();
        let titles = self.named(self.question)?;
        let mut rarest: Vec<&NamedTitle> = titles.iter().collect();
        rarest.sort_by_key(|title| title.occurrences);
        let by_titles: Vec<DocumentId> = rarest
            .iter()
            .flat_map(|title| title.documents.iter().copied())
            .collect();
        let dense = dense_scorer(self.index, self.scorer, settings)?;
        let by_vectors: Vec<DocumentId> = dense
            .map(|scorer| scorer.search(self.question, settings.candidates.most))
            .transpose()?
            .into_iter()
            .flatten()
            .map(|(document, _)| document)
            .collect();
        let weights = &settings.candidates;
        let mut fused = fusion::reciprocal_rank(
            weights.fusion_k,
            &[
                (weights.title_weight, by_titles.clone()),
                (weights.clue_weight, by_clues.clone()),
                (weights.dense_weight, by_vectors.clone()),
                (weights.lexical_weight, by_words.clone()),
            ],
        );
        fused.truncate(weights.most);
        let auxiliary: Vec<String> = match &self.expansion {
            Some(terms) => terms.clone(),
            None => lexical
                .question_terms(self.question)?
                .into_iter()
                .filter(|term| term.documents > 0)
                .map(|term| term.written)
                .collect(),
        };
        let auxiliary = auxiliary.into_iter().take(settings.clues.auxiliary);
        let auxiliary = auxiliary.collect();
        Ok(Rankings {
            clues,
            auxiliary,
            titles,
            by_clues,
            by_words,
            by_titles,
            by_vectors,
            fused,
        })
    }

    /// Titles named in a text.
    ///
    /// # Errors
    /// The index is damaged.
    pub fn named(&self, text: &str) -> Result<Vec<NamedTitle>, EngineError> {
        Ok(titles::named_in(
            self.index,
            self.tokenizer,
            text,
            &self.settings.titles,
        )?)
    }

    fn shares(&self, titles: &[NamedTitle]) -> HashMap<DocumentId, f32> {
        let documents = self.index.fm().documents();
        shares(titles, documents, self.settings.titles.guessed)
    }

    /// Makes a document a candidate: reads its tokens and builds its FM-index.
    ///
    /// # Errors
    /// The index is damaged.
    pub fn candidate(&self, document: DocumentId, score: f64) -> Result<Candidate, EngineError> {
        if let Some(known) = self.memory.and_then(|memory| memory.get(document, score)) {
            return Ok(known);
        }
        let fm = self.index.fm();
        let tokens = fm.extract(document, 0..fm.document_length(document));
        let index = Arc::new(DocumentIndex::build(&tokens, fm.separator()));
        let stored = self.index.document(document)?;
        let names = (stored.id.to_owned(), stored.title.to_owned());
        let paragraphs = stored.paragraphs;
        let candidate = Candidate::new(document, names, score, paragraphs, index, self.tokenizer);
        if let Some(memory) = self.memory {
            memory.put(&candidate);
        }
        Ok(candidate)
    }

    /// Opens windows around the phrases in the candidates, lets BM25 and `bonus` (by candidate) keep the
    /// best `most` for the scorer, and gives those with their scores; the others are dropped. `member`
    /// counts from the first of `candidates`.
    ///
    /// # Errors
    /// The scorer's own, or the index is damaged.
    pub fn windows(
        &mut self,
        candidates: &[Candidate],
        rankings: &Rankings,
        bonus: &[f32],
        most: usize,
    ) -> Result<Vec<Window>, EngineError> {
        let (set, members) = candidates::union(candidates, 0..candidates.len() as u32);
        let mut occurrences = Vec::new();
        for (clue, phrase) in rankings.phrases().enumerate() {
            let mut found = Vec::new();
            for tokens in spelling::forms(self.tokenizer, phrase) {
                let length = tokens.len() as u32;
                found.extend(
                    set.positions(&set.range(&tokens))
                        .map(|position| ClueOccurrence {
                            clue,
                            member: members[position.member as usize],
                            start: position.start,
                            length,
                        }),
                );
            }
            found.sort_unstable_by_key(|occurrence| (occurrence.member, occurrence.start));
            occurrences.extend(found);
        }
        let grounds: Vec<Ground> = candidates.iter().map(Candidate::ground).collect();
        let opened = windows::open(&grounds, &occurrences, &self.settings.windows);
        let text = |window: &Window| {
            candidates[window.member as usize].text(window.start..window.end, self.tokenizer)
        };
        // A window that holds nothing but a title has nothing to quote.
        let (mut windows, mut texts): (Vec<Window>, Vec<WindowText>) = opened
            .into_par_iter()
            .map(|window| {
                let text = text(&window);
                (window, text)
            })
            .filter(|(_, text)| !text.text.trim().is_empty())
            .unzip();
        let joined: Vec<String> = texts.iter().map(WindowText::joined).collect();
        let joined: Vec<&str> = joined.iter().map(String::as_str).collect();
        let scores = self.index.lexical().score_texts(self.question, &joined)?;
        // Later rounds are measured against the first.
        if self.best_lexical <= f32::MIN_POSITIVE {
            self.best_lexical = scores.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
        }
        let best = self.best_lexical;
        for (window, score) in windows.iter_mut().zip(&scores) {
            let given = bonus.get(window.member as usize).copied().unwrap_or(0.0);
            window.bonus = self.settings.windows.lexical * score / best + given;
        }
        if windows.len() > most {
            // BM25 decides; its share of the bonus may be 0.
            let key = |at: usize| {
                let given = bonus.get(windows[at].member as usize);
                scores[at] / best + given.copied().unwrap_or(0.0)
            };
            let mut order: Vec<usize> = (0..windows.len()).collect();
            order.sort_by(|&a, &b| key(b).total_cmp(&key(a)));
            order.truncate(most);
            windows = order.iter().map(|&at| windows[at].clone()).collect();
            texts = order.iter().map(|&at| texts[at].clone()).collect();
        }
        let start = Instant::now();
        let scores = self.scorer.score(self.question, &texts)?;
        self.scoring += start.elapsed();
        for (window, score) in windows.iter_mut().zip(scores) {
            window.score = Some(score);
        }
        Ok(windows)
    }

    /// Candidates and windows of the question itself.
    ///
    /// # Errors
    /// As [`Retriever::windows`].
    pub fn first_round(
        &mut self,
        rankings: &Rankings,
    ) -> Result<(Vec<Candidate>, Vec<Window>), EngineError> {
        let candidates = rankings
            .fused
            .par_iter()
            .map(|&(document, score)| self.candidate(document, score))
            .collect::<Result<Vec<_>, _>>()?;
        let shares = self.shares(&rankings.titles);
        let bonus: Vec<f32> = candidates
            .iter()
            .map(|candidate| {
                self.settings.titles.bonus * shares.get(&candidate.document).copied().unwrap_or(0.0)
            })
            .collect();
        let most = self.settings.windows.prefilter;
        let windows = self.windows(&candidates, rankings, &bonus, most)?;
        Ok((candidates, windows))
    }

    /// Follows the titles that are named in a piece of evidence, and the clues that were written after it: their
    /// documents that are no candidates yet become some, with their windows, and the windows of the most relevant
    /// ones are raised. Gives the members that were raised.
    ///
    /// # Errors
    /// As [`Retriever::windows`].
    pub fn hop(
        &mut self,
        hop: Hop<'_>,
        rankings: &mut Rankings,
        writer: &mut EvidenceWriter<'_>,
    ) -> Result<Vec<u32>, EngineError> {
        let settings = &self.settings.hops;
        let mut shares = self.shares(&self.named(hop.quote)?);
        for (document, share) in self.clue_shares(hop.phrases, rankings) {
            let best: &mut f32 = shares.entry(document).or_default();
            *best = best.max(share);
        }
        let own = writer.candidates()[hop.from as usize].document;
        let mut linked: Vec<(DocumentId, f32)> = shares.into_iter().collect();
        linked.retain(|&(document, share)| document != own && share > 0.0);
        // The likeliest first; making a candidate of a long document takes time.
        linked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        linked.truncate(settings.documents * LINKED_PER_HOP);
        linked.sort_by_key(|&(document, _)| document);
        let known: HashMap<DocumentId, u32> = writer
            .candidates()
            .iter()
            .zip(0..)
            .map(|(candidate, member)| (candidate.document, member))
            .collect();
        let first = known.len() as u32;
        let fresh = linked
            .par_iter()
            .filter(|(document, _)| !known.contains_key(document))
            .map(|&(document, _)| self.candidate(document, 0.0))
            .collect::<Result<Vec<_>, _>>()?;
        let most = settings.documents * WINDOWS_PER_HOP;
        let mut windows = self.windows(&fresh, rankings, &[], most)?;
        for window in &mut windows {
            window.member += first;
        }
        let added = fresh
            .iter()
            .map(|candidate| candidate.document)
            .zip(first..);
        let members: HashMap<DocumentId, u32> = known.into_iter().chain(added).collect();
        writer.extend(fresh, windows);
        let mut raised: Vec<(f32, u32, f32)> = linked
            .iter()
            .filter_map(|(document, share)| {
                let member = *members.get(document)?;
                let bonus = settings.bonus * share;
                let relevance = writer.best_relevance(member)?;
                Some((relevance + bonus, member, bonus))
            })
            .collect();
        raised.sort_by(|a, b| b.0.total_cmp(&a.0));
        raised.truncate(settings.documents);
        for &(_, member, bonus) in &raised {
            writer.raise(member, bonus);
        }
        Ok(raised.into_iter().map(|(_, member, _)| member).collect())
    }

    /// The share of a bonus for the documents of clues that were written after a piece, as [`shares`] has it for
    /// titles: the document score over that of one clue which stands once in the collection, at most 1. The clues
    /// are added to `rankings`, so that they open windows.
    fn clue_shares(&self, phrases: &[String], rankings: &mut Rankings) -> HashMap<DocumentId, f32> {
        if phrases.is_empty() {
            return HashMap::new();
        }
        let fm = self.index.fm();
        let settings = &self.settings.clues;
        let (clues, ranking) = clues::rank_documents(fm, self.tokenizer, phrases, settings);
        rankings.clues.extend(clues);
        let once = clues::weight(fm.documents(), 1, 1, settings);
        let most = clues::contribution(once, 1).max(f64::MIN_POSITIVE);
        ranking
            .into_iter()
            .map(|(document, score)| (document, (score / most).min(1.0) as f32))
            .collect()
    }
}

/// What a further hop begins with.
#[derive(Debug, Clone, Copy)]
pub struct Hop<'a> {
    /// The quote whose text is searched for titles.
    pub quote: &'a str,
    /// Clues that were written after it.
    pub phrases: &'a [String],
    /// The candidate that the quote is from.
    pub from: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scorer::Bm25Scorer;
    use crate::vectors::tests::{DOCUMENTS, encoder_folder, index, tokenizer};
    use crate::vectors::{Encoder, embed};

    #[test]
    fn the_dense_ranking_has_its_weight_and_needs_vectors() {
        let folder = tempfile::tempdir().unwrap();
        let (index, tokenizer) = (index(folder.path(), DOCUMENTS), tokenizer());
        let question = "Who made films?";
        let open = || EmbeddingScorer::open(&encoder_folder(), &index).unwrap();
        let rank = |scorer: &dyn WindowScorer, settings: &Settings| {
            Retriever::new(&index, &tokenizer, scorer, settings, question).rankings(&[])
        };
        let without = Settings::default();
        let mut settings = Settings::default();
        settings.candidates.dense_weight = 1.0;
        let error = rank(&open(), &settings).unwrap_err().to_string();
        assert!(error.contains("index embed"), "{error}");
        let bm25 = Bm25Scorer::new(index.lexical().clone());
        let error = rank(&bm25, &settings).unwrap_err().to_string();
        assert!(error.contains("dense_weight"), "{error}");

        let before = rank(&open(), &without).unwrap();
        let encoder = Encoder::open(&encoder_folder()).unwrap();
        embed(&index, &encoder, 1, &()).unwrap();
        let scorer = open();
        let after = rank(&scorer, &without).unwrap();
        assert_eq!(after.fused, before.fused);
        assert!(after.by_vectors.is_empty());

        let fused = rank(&scorer, &settings).unwrap();
        let found = scorer.search(question, settings.candidates.most).unwrap();
        let documents: Vec<DocumentId> = found.into_iter().map(|(document, _)| document).collect();
        assert_eq!(fused.by_vectors, documents);
        let score = |rankings: &Rankings, document| {
            let found = rankings.fused.iter().find(|(other, _)| *other == document);
            found.map_or(0.0, |(_, score)| *score)
        };
        for (rank, &document) in (1..).zip(&documents) {
            let more = score(&fused, document) - score(&before, document);
            assert!(
                (more - 1.0 / f64::from(rank)).abs() < 1e-9,
                "{document:?}: {more}"
            );
        }
    }
}
