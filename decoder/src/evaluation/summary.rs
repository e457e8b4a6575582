//! Every metric of an evaluation, computed from its traces alone.

use std::collections::BTreeMap;
use std::collections::HashMap;

use corpus_tools::metrics::answer::{accuracy, exact_match, f1, rouge_l};
use corpus_tools::metrics::bootstrap::{self, Difference, Interval};
use corpus_tools::metrics::retrieval::{Judge, Ranked};
use corpus_tools::questions::Question;
use corpus_tools::runs::{dpr, kilt, trec};
use serde::{Deserialize, Serialize};

use super::EvaluationError;
use super::folder::{Folder, MethodNote, Plan, SetNote, Trace};
use super::passages::Retrieved;
use crate::forward_backward::citations;
use crate::prefixes::Prefixes;

/// Lengths of the prefixes that the study of false pruning shows.
pub(super) const PREFIXES: [usize; 6] = [1, 2, 3, 5, 8, 13];

/// All numbers of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What was run.
    pub plan: Plan,
    /// The numbers of each set.
    pub sets: Vec<SetSummary>,
}

/// The numbers of one question set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetSummary {
    /// The set.
    pub name: String,
    /// The methods that were run over it, in the order of the plan.
    pub methods: Vec<MethodSummary>,
    /// Every pair of methods by every metric, over the questions that both were asked.
    pub differences: Vec<Compared>,
}

/// The numbers of a method over a set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodSummary {
    /// The method.
    pub name: String,
    /// Questions that were asked.
    pub questions: usize,
    /// Metrics by name: `has_answer@k`, `substring@k`, `gold_hit@k`, `gold_recall@k`, `gold_all@k`, `silver_hit@k`,
    /// the first two also as `cut.…`; `em`, `f1`, `accuracy`, `rouge_l`; `sample_right`, whether a sample
    /// of a light model holds a gold answer, and `found_unsampled@k`, whether none does and yet one of the first k texts; `prefix@n`, whether
    /// a beam still led to a gold document after `n` tokens. Each over the questions that can be judged by it.
    pub metrics: BTreeMap<String, Interval>,
    /// Questions that cannot be judged, by reason.
    pub unjudged: Unjudged,
    /// What it cost.
    pub cost: CostSummary,
}

/// Questions that cannot be judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unjudged {
    /// Answered by yes or no: left out of `has_answer` and `substring`.
    pub yes_no: usize,
    /// Without a gold answer.
    pub no_answer: usize,
    /// Without a gold document: left out of gold-id.
    pub no_gold: usize,
    /// Could not be asked: they count as misses.
    pub failed: usize,
}

/// What a method cost a question, over those that could be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CostSummary {
    /// Median of the time, in milliseconds.
    pub p50_ms: f64,
    /// 95th percentile of the time, in milliseconds.
    pub p95_ms: f64,
    /// Sum of the time, in seconds.
    pub seconds: f64,
    /// Mean of the tokens that the model read, those it wrote included where they were read back.
    pub tokens_in: f64,
    /// Mean of the tokens written.
    pub tokens_out: f64,
    /// Mean of the forward passes.
    pub passes: f64,
    /// Mean of the texts retrieved.
    pub texts: f64,
    /// Mean of the tokens of a retrieved text.
    pub tokens_per_text: f64,
}

/// Two methods by one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The metric.
    pub metric: String,
    /// The first method.
    pub a: String,
    /// The second method.
    pub b: String,
    /// `a − b`, by paired bootstrap.
    #[serde(flatten)]
    pub difference: Difference,
}

/// Other files that can be written beside the TREC runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunFormat {
    /// DPR's retrieval results.
    Dpr,
    /// KILT predictions.
    Kilt,
}

/// By metric, the value of every question that can be judged, with its id.
type Values = BTreeMap<String, Vec<(String, f64)>>;

impl Summary {
    /// Computes every metric from the traces of `folder`, for the numbers `top_k` of k (those of the plan where
    /// none are given).
    ///
    /// # Errors
    /// There is no evaluation in the folder, a file of it is damaged, or a k is beyond the depth of the traces.
    pub fn of(folder: &Folder, top_k: &[usize]) -> Result<Self, EvaluationError> {
        let mut plan = folder.begun_plan()?;
        let depth = plan.top_k.iter().copied().max().unwrap_or(0);
        if let Some(&k) = top_k.iter().find(|&&k| k > depth) {
            return Err(EvaluationError::Depth {
                path: folder.path().to_owned(),
                k,
                depth,
            });
        }
        if !top_k.is_empty() {
            plan.top_k = top_k.to_vec();
        }
        let mut sets = Vec::new();
        for set in &plan.sets {
            let judged = judged(folder, set, &plan)?;
            let methods = judged.iter().map(|judged| MethodSummary {
                name: judged.name.clone(),
                questions: judged.questions,
                metrics: intervals(&judged.values, plan.seed),
                unjudged: judged.unjudged,
                cost: judged.cost,
            });
            sets.push(SetSummary {
                name: set.name.clone(),
                methods: methods.collect(),
                differences: compared(&judged, plan.seed),
            });
        }
        Ok(Self { plan, sets })
    }

    /// Writes `summary.json`, `summary.md`, the TREC runs and qrels, and `formats` beside them.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn write(&self, folder: &Folder, formats: &[RunFormat]) -> Result<(), EvaluationError> {
        for set in &self.sets {
            let mut questions: BTreeMap<String, Question> = BTreeMap::new();
            for method in &set.methods {
                let traces = folder.read_traces(&set.name, &method.name)?;
                write_runs(folder, &set.name, &method.name, &traces, formats)?;
                questions.extend(
                    traces
                        .into_iter()
                        .map(|trace| (trace.question.id.clone(), trace.question)),
                );
            }
            if !questions.is_empty() {
                let questions: Vec<&Question> = questions.values().collect();
                trec::write_qrels(&folder.qrels_file(&set.name), &questions)?;
            }
        }
        let json = serde_json::to_vec_pretty(self).map_err(|error| {
            EvaluationError::io(folder.path(), "write the summary", error.into())
        })?;
        folder.write("summary.json", &json)?;
        folder.write("summary.md", self.markdown().as_bytes())
    }
}

/// A method over a set, every question judged.
pub(super) struct Judged {
    /// The method.
    pub name: String,
    /// What it cost.
    pub cost: CostSummary,
    questions: usize,
    unjudged: Unjudged,
    values: Values,
}

impl Judged {
    /// The mean of a metric, where a question can be judged by it.
    pub fn mean(&self, metric: &str) -> Option<f64> {
        let values = self.values.get(metric)?;
        let sum: f64 = values.iter().map(|(_, value)| value).sum();
        Some(sum / values.len() as f64)
    }
}

/// The methods that were run over a set, judged, in the order of the plan.
pub(super) fn judged(
    folder: &Folder,
    set: &SetNote,
    plan: &Plan,
) -> Result<Vec<Judged>, EvaluationError> {
    let mut all = Vec::new();
    for method in &plan.methods {
        let traces = folder.read_traces(&set.name, &method.name)?;
        if !traces.is_empty() {
            all.push(judge(method, &traces, plan));
        }
    }
    Ok(all)
}

fn intervals(values: &Values, seed: u64) -> BTreeMap<String, Interval> {
    let interval = |values: &[(String, f64)]| {
        let values: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        bootstrap::mean(&values, seed)
    };
    values
        .iter()
        .filter_map(|(metric, values)| Some((metric.clone(), interval(values)?)))
        .collect()
}

fn judge(method: &MethodNote, traces: &[Trace], plan: &Plan) -> Judged {
    let mut values = Values::new();
    let mut unjudged = Unjudged::default();
    for trace in traces {
        let question = &trace.question;
        unjudged.yes_no += usize::from(question.is_yes_no());
        unjudged.no_answer += usize::from(question.answers.is_empty());
        unjudged.failed += usize::from(trace.failed.is_some());
        unjudged.no_gold += usize::from(question.gold.is_empty());
        let mut add = |metric: String, value: Option<f64>| {
            if let Some(value) = value {
                let list = values.entry(metric).or_default();
                list.push((question.id.clone(), value));
            }
        };
        let judge = Judge::new(question);
        let ids: Vec<Vec<String>> = trace.retrieved.iter().map(Retrieved::ids).collect();
        let judged = |text: fn(&Retrieved) -> &str| {
            let ranking: Vec<Ranked<'_>> = trace
                .retrieved
                .iter()
                .zip(&ids)
                .map(|(retrieved, ids)| Ranked {
                    ids,
                    text: text(retrieved),
                })
                .collect();
            judge.judge(&ranking)
        };
        let whole = judged(|retrieved| &retrieved.text);
        let cut = judged(Retrieved::cut);
        let share = |value: bool| f64::from(u8::from(value));
        for &k in plan.top_k.iter().filter(|_| method.retrieves) {
            for (prefix, judged) in [("", &whole), ("cut.", &cut)] {
                if plan.sizes.cut == 0 && prefix == "cut." {
                    continue;
                }
                let of = |found: Option<bool>| found.map(share);
                add(
                    format!("{prefix}has_answer@{k}"),
                    of(judged.has_answer_at(k)),
                );
                add(format!("{prefix}substring@{k}"), of(judged.substring_at(k)));
            }
            add(format!("gold_hit@{k}"), whole.gold_hit_at(k).map(share));
            add(format!("gold_recall@{k}"), whole.gold_recall_at(k));
            add(format!("gold_all@{k}"), whole.gold_all_at(k).map(share));
            add(format!("silver_hit@{k}"), whole.silver_hit_at(k).map(share));
        }
        if let Some(right) = sample_right(trace) {
            add("sample_right".into(), Some(share(right)));
            for &k in plan.top_k.iter().filter(|_| method.retrieves) {
                let found = whole.has_answer_at(k);
                let alone = found.map(|found| share(found && !right));
                add(format!("found_unsampled@{k}"), alone);
            }
        }
        let prefixes = trace.detail.get("prefixes").cloned();
        let prefixes: Option<Prefixes> =
            prefixes.and_then(|found| serde_json::from_value(found).ok());
        for length in PREFIXES.iter().filter(|_| !question.gold.is_empty()) {
            let leads = prefixes.as_ref().and_then(|found| found.leads(*length));
            add(format!("prefix@{length}"), leads.map(share));
        }
        if let Some(answer) = trace
            .answer
            .as_deref()
            .filter(|_| !question.answers.is_empty())
        {
            let gold = &question.answers;
            // Numbers of passages are no part of what was asked for.
            let answer = &citations::without(answer);
            add("em".into(), Some(exact_match(answer, gold)));
            add("f1".into(), Some(f1(answer, gold)));
            add("accuracy".into(), Some(accuracy(answer, gold)));
            add("rouge_l".into(), Some(rouge_l(answer, gold)));
        }
    }
    Judged {
        name: method.name.clone(),
        questions: traces.len(),
        unjudged,
        cost: cost(traces),
        values,
    }
}

/// Whether a sample that a light model drew (FB-RAG) holds a gold answer; `None` where none were drawn, or nothing can
/// be judged.
fn sample_right(trace: &Trace) -> Option<bool> {
    let gold = &trace.question.answers;
    let of = |detail: &serde_json::Value| detail.get("samples")?.get("answers").cloned();
    let answers = of(&trace.detail).or_else(|| of(trace.detail.get("rerank")?))?;
    let answers: Vec<String> = serde_json::from_value(answers).ok()?;
    let right = |answer: &String| accuracy(answer, gold) > 0.0;
    (!answers.is_empty() && !gold.is_empty()).then(|| answers.iter().any(right))
}

/// What the questions cost that could be asked.
fn cost(traces: &[Trace]) -> CostSummary {
    let asked = traces.iter().filter(|trace| trace.failed.is_none());
    let traces: Vec<&Trace> = asked.collect();
    let count = traces.len().max(1) as f64;
    let mean =
        |value: &dyn Fn(&Trace) -> f64| traces.iter().copied().map(value).sum::<f64>() / count;
    let mut times: Vec<f64> = traces.iter().map(|trace| trace.milliseconds).collect();
    times.sort_by(f64::total_cmp);
    // Nearest rank: the smallest time that is not below the share of all.
    let at = |share: f64| {
        let rank = (share * times.len() as f64).ceil() as usize;
        times.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    let texts: usize = traces.iter().map(|trace| trace.retrieved.len()).sum();
    let tokens: u64 = traces
        .iter()
        .flat_map(|trace| &trace.retrieved)
        .map(|retrieved| u64::from(retrieved.tokens))
        .sum();
    CostSummary {
        p50_ms: at(0.5),
        p95_ms: at(0.95),
        seconds: times.iter().sum::<f64>() / 1e3,
        tokens_in: mean(&|trace| trace.cost.evaluated as f64),
        tokens_out: mean(&|trace| trace.cost.written as f64),
        passes: mean(&|trace| trace.cost.passes as f64),
        texts: texts as f64 / count,
        tokens_per_text: tokens as f64 / texts.max(1) as f64,
    }
}

fn compared(judged: &[Judged], seed: u64) -> Vec<Compared> {
    let mut all = Vec::new();
    for (at, a) in judged.iter().enumerate() {
        for b in &judged[at + 1..] {
            for (metric, list) in &a.values {
                let Some(others) = b.values.get(metric) else {
                    continue;
                };
                let others: HashMap<&str, f64> = others
                    .iter()
                    .map(|(id, value)| (id.as_str(), *value))
                    .collect();
                let pairs: Vec<(f64, f64)> = list
                    .iter()
                    .filter_map(|(id, value)| Some((*value, *others.get(id.as_str())?)))
                    .collect();
                all.extend(
                    bootstrap::difference(&pairs, seed).map(|difference| Compared {
                        metric: metric.clone(),
                        a: a.name.clone(),
                        b: b.name.clone(),
                        difference,
                    }),
                );
            }
        }
    }
    all
}

fn write_runs(
    folder: &Folder,
    set: &str,
    method: &str,
    traces: &[Trace],
    formats: &[RunFormat],
) -> Result<(), EvaluationError> {
    let run: Vec<trec::TrecQuery> = traces
        .iter()
        .map(|trace| trec::TrecQuery {
            id: trace.question.id.clone(),
            documents: trace
                .retrieved
                .iter()
                .map(|one| (one.external_id().to_owned(), one.score))
                .collect(),
        })
        .collect();
    trec::write_run(&folder.run_file(set, method, "trec"), method, &run)?;
    for format in formats {
        match format {
            RunFormat::Dpr => {
                let results: Vec<dpr::DprResult> = traces.iter().map(as_dpr).collect();
                dpr::write(&folder.run_file(set, method, "dpr.json"), &results)?;
            }
            RunFormat::Kilt => {
                let predictions: Vec<kilt::KiltPrediction> = traces.iter().map(as_kilt).collect();
                kilt::write(&folder.run_file(set, method, "kilt.jsonl"), &predictions)?;
            }
        }
    }
    Ok(())
}

fn as_dpr(trace: &Trace) -> dpr::DprResult {
    let judge = Judge::new(&trace.question);
    let contexts = trace.retrieved.iter().map(|one| dpr::DprContext {
        id: one.external_id().to_owned(),
        title: one.title.clone(),
        text: one.text.clone(),
        score: one.score,
        has_answer: judge.has_answer(&one.text),
    });
    dpr::DprResult {
        question: trace.question.question.clone(),
        answers: trace.question.answers.clone(),
        ctxs: contexts.collect(),
    }
}

fn as_kilt(trace: &Trace) -> kilt::KiltPrediction {
    let provenance = trace.retrieved.iter().map(|one| kilt::KiltProvenance {
        wikipedia_id: one.id.clone(),
        title: one.title.clone(),
        text: one.text.clone(),
    });
    kilt::KiltPrediction {
        id: trace.question.id.clone(),
        input: trace.question.question.clone(),
        output: vec![kilt::KiltOutput {
            answer: trace.answer.clone().unwrap_or_default(),
            provenance: provenance.collect(),
        }],
    }
}
