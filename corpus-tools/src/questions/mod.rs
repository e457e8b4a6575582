//! Question sets as the field publishes them, told apart by content.
//!
//! | set | shape |
//! | --- | --- |
//! | plain JSON Lines | `{"id","question","answers","gold_doc_ids"}`, perhaps with `silver_doc_ids` |
//! | FlashRAG JSON Lines | `{"id","question","golden_answers"}` |
//! | KILT JSON Lines | `{"id","input","output":[{"answer","provenance":[{"wikipedia_id"}]}]}` |
//! | DPR JSON | a list of `{"question","answers","positive_ctxs":[{"passage_id"}]}` |
//! | DPR `.qa.csv` | `question<TAB>['answer', …]`, no header |
//! | BEIR | a folder with `queries.jsonl` and `qrels/*.tsv`, or one of its `.tsv` |
//!
//! Any of them may be compressed (gzip, Zstandard, bzip2). A bad record is reported with its place and left
//! out. A list is read element by element, so memory does not grow with what a record carries beside the
//! question.

mod beir;
mod input;
mod python_list;
mod record;

use std::collections::HashMap;
use std::fs;
use std::io::BufRead;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::reader::{BadRecord, Input};
use input::{Line, Lines};

/// A question with what is known about its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its id in the set; its number (from 1) where the set gives none.
    pub id: String,
    /// The question.
    pub question: String,
    /// The gold answers, each right by itself; empty where the set has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    /// Sets of external ids of documents (or paragraphs), each of which suffices for the answer. Most question
    /// sets give one; KILT gives one for every output with a provenance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gold: Vec<Vec<String>>,
    /// External ids of documents with weak labels: they were matched by their text, not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silver: Vec<String>,
}

impl Question {
    /// Every gold id, each once, in the order of the set.
    pub fn gold_ids(&self) -> Vec<&str> {
        let mut ids: Vec<&str> = Vec::new();
        for id in self.gold.iter().flatten() {
            if !ids.contains(&id.as_str()) {
                ids.push(id);
            }
        }
        ids
    }

    /// Whether every gold answer is `yes` or `no`, or a label that stands for a judgement (`true`, `false`, and
    /// FEVER's): such an answer cannot be found in a text.
    pub fn is_yes_no(&self) -> bool {
        let plain = |answer: &String| crate::metrics::text::normalised(answer);
        !self.answers.is_empty()
            && self
                .answers
                .iter()
                .all(|answer| LABELS.contains(&plain(answer).as_str()))
    }
}

/// Answers that judge a statement, normalised.
const LABELS: [&str; 7] = [
    "yes",
    "no",
    "true",
    "false",
    "supports",
    "refutes",
    "not enough info",
];

/// A question set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionSet {
    /// Its name, from the name of its file or folder; safe in a file name.
    pub name: String,
    /// The questions, in the order of the set, with ids that differ.
    pub questions: Vec<Question>,
    /// What was left out, and why.
    pub bad: Vec<BadRecord>,
}

/// Why a question set cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuestionsError {
    /// The input cannot be opened.
    #[error("{input}: cannot open the questions: {source}")]
    Open {
        /// The input.
        input: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A folder that is not laid out as BEIR's.
    #[error("{input}: {what}")]
    Folder {
        /// The folder.
        input: String,
        /// What is missing, and what to do.
        what: String,
    },
    /// There is no question in it.
    #[error(
        "{input}: holds no question; expected JSON Lines {{\"id\",\"question\",\"answers\"}}, FlashRAG, KILT, DPR (JSON or .qa.csv) or a BEIR folder{}",
        first.as_ref().map(|bad| format!("; the first record is bad: {bad}")).unwrap_or_default()
    )]
    NoQuestion {
        /// The input.
        input: String,
        /// The first bad record, if there was any.
        first: Option<BadRecord>,
    },
}

/// Reads a question set.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("nq.jsonl");
/// std::fs::write(&path, r#"{"id":"q1","question":"who wrote hamlet","golden_answers":["Shakespeare"]}"#).unwrap();
/// use corpus_tools::reader::Input;
/// let set = corpus_tools::questions::read(&Input::named(&path)).unwrap();
/// assert_eq!((set.name.as_str(), set.questions[0].answers[0].as_str()), ("nq", "Shakespeare"));
/// ```
///
/// # Errors
/// The input cannot be opened, or holds no question at all.
pub fn read(input: &Input) -> Result<QuestionSet, QuestionsError> {
    let name = set_name(input);
    let shown = input.to_string();
    let mut collected = Collected::new(&shown);
    match input {
        Input::Path(path) if path.is_dir() => {
            beir::read_folder(path, &mut collected)?;
        }
        Input::Path(path) if beir::is_qrels(path) => {
            beir::read_split(path, &mut collected)?;
        }
        _ => {
            let mut reader = input::open(input).map_err(|source| QuestionsError::Open {
                input: shown.clone(),
                source,
            })?;
            if input::first_byte(&mut reader) == Some(b'[') {
                input::read_list(reader, &mut |number, element| {
                    collected.add(number, element.and_then(|value| record::from_value(&value)));
                });
            } else {
                read_lines(reader, &mut collected);
            }
        }
    }
    let Collected { questions, bad, .. } = collected;
    if questions.is_empty() {
        return Err(QuestionsError::NoQuestion {
            input: shown,
            first: bad.into_iter().next(),
        });
    }
    Ok(QuestionSet {
        name,
        questions,
        bad,
    })
}

/// A seeded sample: the questions by rising XXH3 of their id under `seed`, the first `limit` of them. A larger limit
/// begins with the smaller one's questions, and whatever the set is cut to, the sample is a random one.
pub fn sample(questions: &[Question], limit: Option<usize>, seed: u64) -> Vec<&Question> {
    let mut drawn: Vec<&Question> = questions.iter().collect();
    let key = |question: &&Question| {
        let id = question.id.as_bytes();
        (
            xxhash_rust::xxh3::xxh3_64_with_seed(id, seed),
            question.id.clone(),
        )
    };
    drawn.sort_by_cached_key(key);
    drawn.truncate(limit.unwrap_or(usize::MAX));
    drawn
}

fn read_lines(reader: Box<dyn BufRead + Send>, collected: &mut Collected) {
    let mut lines = Lines::new(reader);
    while let Some((number, line)) = lines.next_line() {
        let parsed = match line {
            Line::Blank => continue,
            Line::Bad(reason) => Err(reason),
            Line::Text(line) if line.trim_start().starts_with('{') => record::from_json(line),
            Line::Text(line) => record::from_tabs(line),
        };
        collected.add(number, parsed);
    }
}

/// Questions and bad records on their way into a set.
struct Collected {
    input: String,
    questions: Vec<Question>,
    bad: Vec<BadRecord>,
    /// Where each id stands.
    seen: HashMap<String, u64>,
}

impl Collected {
    fn new(input: &str) -> Self {
        Self {
            input: input.to_owned(),
            questions: Vec::new(),
            bad: Vec::new(),
            seen: HashMap::new(),
        }
    }

    /// Adds what stands at line or record `number`; a question without an id gets the number.
    fn add(&mut self, number: u64, parsed: Result<Question, String>) {
        let mut question = match parsed {
            Ok(question) => question,
            Err(reason) => return self.add_bad(number, reason),
        };
        if question.id.is_empty() {
            question.id = number.to_string();
        }
        if let Some(first) = self.seen.get(&question.id) {
            let reason = format!(
                "the question id {:?} stands at {first} already; ids must differ",
                question.id
            );
            return self.add_bad(number, reason);
        }
        self.seen.insert(question.id.clone(), number);
        self.questions.push(question);
    }

    fn add_bad(&mut self, number: u64, reason: String) {
        self.bad.push(BadRecord {
            file: self.input.clone(),
            line: number,
            reason,
        });
    }
}

/// Names of files that say which part of a set they are, but not of which set.
const PARTS: &[&str] = &["train", "dev", "test", "valid", "validation", "queries"];

/// `nq` of `nq.jsonl.zst` and of a folder `nq`; `nq-dev` of `nq/dev.jsonl` and of `nq/qrels/dev.tsv`.
fn set_name(input: &Input) -> String {
    let path = match input {
        Input::StandardInput => return "questions".to_owned(),
        Input::Path(path) => fs::canonicalize(path).unwrap_or_else(|_| path.clone()),
        Input::WikiSummaries(path) => path.clone(),
    };
    let stem = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut stem = name.as_ref();
        for ending in [
            ".zst", ".gz", ".bz2", ".jsonl", ".json", ".csv", ".tsv", ".qa", ".txt",
        ] {
            stem = stem.strip_suffix(ending).unwrap_or(stem);
        }
        stem.to_owned()
    };
    let mut name = if path.is_dir() {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    } else {
        stem(&path)
    };
    if PARTS.contains(&name.to_lowercase().as_str())
        && let Some(folder) = path.ancestors().skip(1).find(|folder| {
            folder
                .file_name()
                .is_some_and(|name| name != "qrels" && !name.is_empty())
        })
    {
        let folder = folder.file_name().unwrap_or_default().to_string_lossy();
        name = format!("{folder}-{name}");
    }
    let safe: String = name
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    match safe.trim_matches(['.', '-']) {
        "" => "questions".to_owned(),
        safe => safe.to_owned(),
    }
}
