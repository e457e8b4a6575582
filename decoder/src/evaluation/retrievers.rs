//! Passage retrievers: the rivals of the engine, one ranking of documents a question.

use corpus_tools::Index;
use fmindex::DocumentId;

use super::EvaluationError;
use super::method::Kind;
use super::passages::Passages;
use crate::fusion;
use crate::scorer::{EmbeddingScorer, WindowScorer, WindowText};

/// Documents of BM25 that are put into another order.
const RERANKED: usize = 20;
/// Documents of each ranking that are fused.
const FUSED: usize = 100;
/// The constant of reciprocal rank fusion (Cormack et al. 2009).
const FUSION_K: f64 = 60.0;

/// What the retrievers stand on.
pub struct Retrievers<'a> {
    /// The index.
    pub index: &'a Index,
    /// Scores passages for `bm25-rerank`, where that is asked for.
    pub scorer: Option<&'a dyn WindowScorer>,
    /// Makes the passages that are scored.
    pub passages: &'a Passages<'a>,
    /// A scorer with the vectors of all documents, where a method needs them.
    pub dense: Option<&'a EmbeddingScorer>,
}

impl Retrievers<'_> {
    /// The `k` best documents with their scores, best first. A method that is no passage retriever retrieves none.
    ///
    /// # Errors
    /// The index, the encoder or the scorer fails, or there are no vectors.
    pub fn rank(
        &self,
        kind: Kind,
        question: &str,
        k: usize,
    ) -> Result<Vec<(DocumentId, f64)>, EvaluationError> {
        match kind {
            Kind::Bm25 => self.lexical(question, k),
            Kind::Dense => self.dense(question, k),
            Kind::Bm25Rerank => {
                let scorer = self.scorer.ok_or_else(|| EvaluationError::Lacks {
                    name: "bm25-rerank".to_owned(),
                    what: "a window scorer",
                })?;
                let mut ranked = self.lexical(question, RERANKED)?;
                let texts = ranked
                    .iter()
                    .map(|&(document, score)| {
                        let passage = self.passages.passage(question, document, score)?;
                        Ok(WindowText {
                            title: passage.retrieved.title,
                            text: passage.retrieved.text,
                        })
                    })
                    .collect::<Result<Vec<_>, EvaluationError>>()?;
                let scores = scorer.score(question, &texts)?;
                for (entry, score) in ranked.iter_mut().zip(scores) {
                    entry.1 = f64::from(score);
                }
                ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
                ranked.truncate(k);
                Ok(ranked)
            }
            Kind::Fused => {
                let documents = |ranked: Vec<(DocumentId, f64)>| {
                    ranked.into_iter().map(|(document, _)| document).collect()
                };
                let dense = documents(self.dense(question, FUSED)?);
                let lexical = documents(self.lexical(question, FUSED)?);
                let mut fused = fusion::reciprocal_rank(FUSION_K, &[(1.0, dense), (1.0, lexical)]);
                fused.truncate(k);
                Ok(fused)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn lexical(&self, question: &str, k: usize) -> Result<Vec<(DocumentId, f64)>, EvaluationError> {
        let found = self.index.lexical().search(question, k)?;
        Ok(found
            .into_iter()
            .map(|(document, score)| (document, f64::from(score)))
            .collect())
    }

    fn dense(&self, question: &str, k: usize) -> Result<Vec<(DocumentId, f64)>, EvaluationError> {
        let dense = self.dense.ok_or_else(|| EvaluationError::Lacks {
            name: "dense".to_owned(),
            what: "a sentence encoder",
        })?;
        Ok(dense.search(question, k)?)
    }
}
