//! Every number of the engine in one serialisable structure; the defaults are those of RetroLLM
//! (arXiv:2412.11919) unless a field says otherwise or the paper has no such number.
//!
//! What titles, hops and BM25 add to relevance, how wide windows are, and that a piece stays in its place and
//! covers its window, was chosen on 50 to 100 questions each of six sets (Natural Questions, HotpotQA,
//! 2WikiMultihopQA, MuSiQue, PopQA, TriviaQA) over 52,047 Wikipedia paragraphs, with all-MiniLM-L6-v2 as the scorer,
//! without clues and with pieces that end as soon as they may. Figures at the fields are from these same questions,
//! so they are no estimate for others.

use models::sampling::Sampling;
use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::forward_backward::rerank::RerankSettings;

/// All settings of one run; printed with every result that is saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The form in which the model writes its stages.
    pub format: Format,
    /// The clue stage and the document score.
    pub clues: ClueSettings,
    /// The fusion of rankings and the candidate set.
    pub candidates: CandidateSettings,
    /// Titles that are named in a question or in evidence.
    pub titles: TitleSettings,
    /// Documents that evidence leads to.
    pub hops: HopSettings,
    /// Opening, merging and scoring windows.
    pub windows: WindowSettings,
    /// The evidence stage.
    pub evidence: EvidenceSettings,
    /// The reranking of evidence.
    pub rerank: RerankSettings,
    /// The answer stage.
    pub answer: AnswerSettings,
    /// Naive constrained beams over the whole collection, the rival of the engine; and how beams of clues and of
    /// evidence are grouped and ranked.
    pub beams: BeamSettings,
    /// How tokens of clues, evidence and answer are chosen among those that are allowed: greedily by default. Beams
    /// draw nothing.
    pub sampling: Sampling,
}

impl Settings {
    /// Whether every number means something.
    ///
    /// # Errors
    /// The first that does not, by its key, with what is expected.
    pub fn check(&self) -> Result<(), String> {
        // More than any text has tokens, windows or candidates, and far from where sums overflow.
        const MOST: f64 = 1e6;
        let (clues, windows, evidence) = (&self.clues, &self.windows, &self.evidence);
        let count = |number: usize| number as f64;
        let least_zero = [
            ("clues.most", count(clues.most)),
            ("clues.close_from", count(clues.close_from)),
            ("clues.alpha", clues.alpha),
            ("clues.beta", clues.beta),
            ("clues.documents", count(clues.documents)),
            ("clues.auxiliary", count(clues.auxiliary)),
            ("candidates.most", count(self.candidates.most)),
            ("candidates.fusion_k", self.candidates.fusion_k),
            ("candidates.clue_weight", self.candidates.clue_weight),
            ("candidates.lexical_weight", self.candidates.lexical_weight),
            ("candidates.title_weight", self.candidates.title_weight),
            ("candidates.dense_weight", self.candidates.dense_weight),
            ("titles.most_words", count(self.titles.most_words)),
            ("titles.guessed", self.titles.guessed.into()),
            ("titles.bonus", self.titles.bonus.into()),
            ("hops.pieces", count(self.hops.pieces)),
            ("hops.documents", count(self.hops.documents)),
            ("hops.clues", count(self.hops.clues)),
            ("hops.bonus", self.hops.bonus.into()),
            ("windows.whole_paragraph", windows.whole_paragraph.into()),
            ("windows.lexical", windows.lexical.into()),
            ("evidence.most", count(evidence.most)),
            ("evidence.least", count(evidence.least.unwrap_or(0))),
            ("evidence.repeat", evidence.repeat.into()),
            ("evidence.lambda", evidence.lambda.into()),
            ("answer.most_tokens", count(self.answer.most_tokens)),
            ("beams.diversity", self.beams.diversity),
            ("beams.length_penalty", self.beams.length_penalty),
            ("sampling.temperature", self.sampling.temperature.into()),
            ("sampling.top_k", count(self.sampling.top_k)),
            ("sampling.top_p", self.sampling.top_p.into()),
            ("sampling.min_p", self.sampling.min_p.into()),
        ];
        let least_one = [
            ("clues.most_tokens", count(clues.most_tokens)),
            ("windows.radius", windows.radius.into()),
            ("windows.most_tokens", windows.most_tokens.into()),
            (
                "windows.most_per_document",
                count(windows.most_per_document),
            ),
            ("windows.most", count(windows.most)),
            ("windows.prefilter", count(windows.prefilter)),
            ("evidence.most_tokens", count(evidence.most_tokens)),
            ("evidence.beams", count(evidence.beams)),
            ("clues.beams", count(clues.beams)),
            ("beams.beams", count(self.beams.beams)),
            ("beams.groups", count(self.beams.groups)),
            ("beams.most_tokens", count(self.beams.most_tokens)),
        ];
        let wrong = |least: f64, numbers: &[(&'static str, f64)]| {
            let mut numbers = numbers.iter();
            let found = numbers.find(|(_, number)| !(least..=MOST).contains(number));
            found.map(|(key, number)| {
                format!("the setting {key} is {number}; expected {least} to {MOST}")
            })
        };
        if let Some(reason) = wrong(0.0, &least_zero).or_else(|| wrong(1.0, &least_one)) {
            return Err(reason);
        }
        match &self.format {
            Format::Lines => Ok(()),
            Format::Control(control) => control.check(),
        }
    }
}

/// Settings of the clue stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClueSettings {
    /// Most clues the model may write; 0 skips the stage (the ablation "no clues").
    pub most: usize,
    /// Most tokens of one clue.
    pub most_tokens: usize,
    /// Tokens from which on a clue may be closed.
    pub close_from: usize,
    /// Beams: the best phrases of one search are the clues, with the groups, diversity and length penalty of `beams`. 1:
    /// the model writes one clue after another.
    pub beams: usize,
    /// A clue that occurs more often than this says nothing and scores no document.
    pub most_occurrences: u64,
    /// Weight α of ln(N/occ) in the weight of a clue.
    pub alpha: f64,
    /// Weight β of ln(N/df) in the weight of a clue.
    pub beta: f64,
    /// Documents kept of the clue ranking.
    pub documents: usize,
    /// Auxiliary clues: the strongest terms of the question itself; 0 is the ablation "no expansion".
    pub auxiliary: usize,
}

impl Default for ClueSettings {
    fn default() -> Self {
        Self {
            most: 3,
            most_tokens: 6,
            close_from: 2,
            beams: 1,
            most_occurrences: 1000,
            alpha: 1.0,
            beta: 1.0,
            documents: 5,
            auxiliary: 8,
        }
    }
}

/// Settings of the fusion of the clue ranking with the lexical ranking and others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CandidateSettings {
    /// Most candidates (25 for single-hop questions, 50 for multi-hop).
    pub most: usize,
    /// Constant `k` of weighted reciprocal rank fusion.
    pub fusion_k: f64,
    /// Weight of the clue ranking.
    pub clue_weight: f64,
    /// Weight of the lexical (BM25) ranking.
    pub lexical_weight: f64,
    /// Weight of the ranking of documents whose title is named in the question.
    pub title_weight: f64,
    /// Weight of the dense ranking: documents by the cosine of their best paragraph. It needs the window scorer
    /// `embedding` and an index that keeps its vectors; 0 leaves it out.
    pub dense_weight: f64,
}

impl Default for CandidateSettings {
    fn default() -> Self {
        Self {
            most: 25,
            fusion_k: 0.0,
            clue_weight: 1.0,
            lexical_weight: 2.0,
            title_weight: 1.0,
            dense_weight: 0.0,
        }
    }
}

/// Settings of the look-up of titles that are named in a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TitleSettings {
    /// Most words of a name; 0 looks no titles up.
    pub most_words: usize,
    /// A name that occurs more often than this says nothing.
    pub most_occurrences: u64,
    /// A name that more documents have (namesakes told apart in brackets, parts of one page) says nothing.
    pub sharing: usize,
    /// The part of a bonus that is left for a name which a text without capitals spells in another way: in
    /// such a text many words look like names.
    pub guessed: f32,
    /// What the title being named in the question adds to the relevance of a document's windows; a frequent
    /// name and one of several documents have less of it (see [`shares`](crate::retrieval::shares)).
    pub bonus: f32,
}

impl Default for TitleSettings {
    fn default() -> Self {
        Self {
            most_words: 10,
            most_occurrences: 1000,
            sharing: 12,
            guessed: 0.2,
            bonus: 0.5,
        }
    }
}

/// Settings of further hops: documents whose title is named in a piece of evidence become candidates too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HopSettings {
    /// The first pieces of evidence, so many of them, whose text is searched for titles; 0 takes no hop.
    pub pieces: usize,
    /// Most documents that one piece leads to: those whose windows are the most relevant.
    pub documents: usize,
    /// Most clues that the model may write after each of these pieces, with it in front; their documents count as
    /// those that are named. 0: titles alone.
    pub clues: usize,
    /// What being named in a piece of evidence adds to the relevance of a document's windows; a frequent name
    /// and one of several documents have less of it (see [`shares`](crate::retrieval::shares)). With hops, the
    /// share of gold documents in the first five pieces was 0.82 instead of 0.70 on HotpotQA and 0.93 instead of
    /// 0.70 on 2WikiMultihopQA; on Natural Questions it fell from 0.78 to 0.74.
    pub bonus: f32,
}

impl Default for HopSettings {
    fn default() -> Self {
        Self {
            pieces: 2,
            documents: 2,
            clues: 0,
            bonus: 0.6,
        }
    }
}

/// What scores windows against the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum WindowScorerKind {
    /// BM25 of the window's words (k1 0.9, b 0.4).
    Bm25,
    /// Cosine of sentence embeddings.
    #[default]
    Embedding,
    /// A cross-encoder.
    CrossEncoder,
    /// Likelihood of the question after the window, under the language model.
    Likelihood,
}

/// Settings of the windows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WindowSettings {
    /// Tokens on each side of an occurrence (32 in the paper).
    pub radius: u32,
    /// Overlapping windows merge while the merged one stays within this many tokens (128 in the paper).
    pub most_tokens: u32,
    /// A paragraph of at most this many tokens, and at least twice `radius`, is one window as soon as a window
    /// overlaps it; 0 for none.
    pub whole_paragraph: u32,
    /// Occurrences of one clue that open a window, over all candidates.
    pub occurrences_per_clue: usize,
    /// Most windows of one document (32 for single-hop questions, 12 for multi-hop).
    pub most_per_document: usize,
    /// Most windows in all.
    pub most: usize,
    /// Windows that BM25 (with what titles add) keeps for the scorer.
    pub prefilter: usize,
    /// What BM25 adds to the relevance of the window it finds best, of the others in proportion.
    pub lexical: f32,
    /// What scores windows.
    pub scorer: WindowScorerKind,
}

impl Default for WindowSettings {
    fn default() -> Self {
        Self {
            radius: 48,
            most_tokens: 160,
            whole_paragraph: 224,
            occurrences_per_clue: 64,
            most_per_document: 32,
            most: 512,
            prefilter: 32,
            lexical: 0.5,
            scorer: WindowScorerKind::Embedding,
        }
    }
}

/// Where a piece of evidence may begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Alignment {
    /// Whole sentences: begins at a sentence start, ends at a sentence end.
    #[default]
    Sentence,
    /// Any token in the first fifth of the window; ends anywhere from `close_from` tokens on (the paper).
    Window,
}

/// Which of the places at the start of a window a piece of evidence may begin at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Beginning {
    /// The first that was not quoted yet: the first word says little about a sentence, and a small model that
    /// chooses by it often leaves out the one that names the subject.
    #[default]
    First,
    /// The one whose first token the model prefers (the paper).
    Model,
}

/// Where the places lie that a piece of evidence may stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Where it begins, so that the model decides only where it ends: a small model that is let choose among the
    /// sentences of a document that begin with the same words leaves the window it was to quote.
    #[default]
    Place,
    /// The document of the current window.
    Document,
    /// All candidates.
    Candidates,
}

/// Settings of the evidence stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvidenceSettings {
    /// Most pieces (5 for single-hop questions, 10 for multi-hop). Each takes the next-best window that holds
    /// something not quoted yet, so this is also the number of windows that are used.
    pub most: usize,
    /// Pieces written before the model may turn to the answer; `None`: 5 in lines, since a model that was never tuned
    /// for this format does not know when it has read enough, and 1 with control tokens.
    pub least: Option<usize>,
    /// Where a piece begins and ends.
    pub alignment: Alignment,
    /// Which place at the start of the window a piece begins at.
    pub beginning: Beginning,
    /// Tokens from which on a piece may end; `None`: 24 under sentence alignment, 64 under window alignment.
    pub close_from: Option<usize>,
    /// Whether a piece goes on at least to the end of its window, up to `most_tokens`. The first piece held
    /// the answer for 0.64 of Natural Questions with it, for 0.36 where pieces ended at the first sentence end after
    /// 24 tokens.
    pub cover: bool,
    /// Tokens at which a piece ends whatever the model says (160 in the paper).
    pub most_tokens: usize,
    /// Beams: a piece is the best phrase of a search, with the groups, diversity and length penalty of `beams`. 1: the
    /// model writes it token by token.
    pub beams: usize,
    /// What an earlier piece of the same document takes off the relevance of a window when the next is chosen.
    pub repeat: f32,
    /// λ: how strongly the relevance of the windows ahead steers the choice; 0 is the ablation "no future windows".
    pub lambda: f32,
    /// Where the surviving positions lie.
    pub scope: Scope,
    /// Whether tokens that have to follow are written without asking the model. Without it every token costs a pass of
    /// its own, as in plain constrained decoding; what is written is the same.
    pub skip_forced: bool,
    /// Whether the model can write nothing but what stands in a text. Without it (an ablation of the paper) it
    /// writes freely after the title of each window, and what no text holds is no evidence and is counted.
    pub constrained: bool,
}

impl Default for EvidenceSettings {
    fn default() -> Self {
        Self {
            most: 5,
            least: None,
            alignment: Alignment::Sentence,
            beginning: Beginning::First,
            close_from: None,
            cover: true,
            most_tokens: 224,
            beams: 1,
            repeat: 0.1,
            lambda: 4.0,
            scope: Scope::Place,
            skip_forced: true,
            constrained: true,
        }
    }
}

impl EvidenceSettings {
    /// Pieces written before the model may turn to the answer, as the format has it unless set.
    pub fn least(&self, format: &Format) -> usize {
        self.least.unwrap_or(match format {
            Format::Lines => 5,
            Format::Control(_) => 1,
        })
    }

    /// Tokens from which on a piece may end, as the alignment has it unless set.
    pub fn close_from(&self) -> usize {
        self.close_from.unwrap_or(match self.alignment {
            Alignment::Sentence => 24,
            Alignment::Window => 64,
        })
    }
}

/// How the model is asked for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerPrompt {
    /// A conversation of its own with the evidence in it, where the model has a chat template; else a line.
    #[default]
    Chat,
    /// The line after the evidence, in the same text (the paper).
    Line,
}

/// Settings of the answer stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerSettings {
    /// Most tokens of the answer; 0 skips the stage.
    pub most_tokens: usize,
    /// How the model is asked, in the format of lines; with control tokens it answers after the evidence.
    pub prompt: AnswerPrompt,
    /// Pieces of evidence that a conversation shows, the first ones: a small model is led astray by the others.
    pub evidence: usize,
}

impl Default for AnswerSettings {
    fn default() -> Self {
        Self {
            most_tokens: 64,
            prompt: AnswerPrompt::default(),
            evidence: 3,
        }
    }
}

/// Settings of beam search. The defaults are those of the naive constrained beams that RetroLLM compares itself
/// with: 5 beams in 5 groups, diversity 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BeamSettings {
    /// Number of beams.
    pub beams: usize,
    /// Groups that the beams are divided into; 1 is plain beam search.
    pub groups: usize,
    /// What every earlier group that took a token at a step takes off its log-probability.
    pub diversity: f64,
    /// Tokens from which on the model may end a phrase.
    pub close_from: usize,
    /// Most tokens of a phrase.
    pub most_tokens: usize,
    /// Beams are ranked by their log-probability over their length to this power.
    pub length_penalty: f64,
    /// Whether they stay within the candidates of the question instead of the whole collection.
    pub candidates: bool,
}

impl BeamSettings {
    /// The same with another number of beams.
    #[must_use]
    pub fn with_beams(&self, beams: usize) -> Self {
        Self {
            beams,
            ..self.clone()
        }
    }
}

impl Default for BeamSettings {
    fn default() -> Self {
        Self {
            beams: 5,
            groups: 5,
            diversity: 1.0,
            close_from: 128,
            most_tokens: 128,
            length_penalty: 1.0,
            candidates: false,
        }
    }
}
