//! BEIR: `queries.jsonl` and the judgements of a split in `qrels/*.tsv`.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::path::{Path, PathBuf};

use super::input::{self, Line, Lines};
use super::{Collected, QuestionsError, record};
use crate::reader::Input;

/// Splits in the order in which a folder offers them.
const SPLITS: &[&str] = &["test.tsv", "dev.tsv", "validation.tsv"];

/// Whether the file holds judgements: its first line is BEIR's header, or four columns of TREC's qrels.
pub(super) fn is_qrels(path: &Path) -> bool {
    // A pipe could be read only once.
    if !path.is_file() {
        return false;
    }
    let Ok(mut reader) = input::open(&Input::Path(path.to_owned())) else {
        return false;
    };
    let head = reader.fill_buf().unwrap_or_default();
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let columns: Vec<&str> = line.split_whitespace().collect();
    match columns.as_slice() {
        ["query-id", "corpus-id", "score"] => true,
        [_, "0" | "Q0", _, score] => score.parse::<i64>().is_ok(),
        _ => false,
    }
}

/// Reads the folder's `test` split, else `dev`, else the only one.
pub(super) fn read_folder(folder: &Path, collected: &mut Collected) -> Result<(), QuestionsError> {
    let missing = |what: String| QuestionsError::Folder {
        input: folder.display().to_string(),
        what,
    };
    if !folder.join("queries.jsonl").is_file() {
        return Err(missing(
            "a folder without queries.jsonl; name a file of questions, or a folder as BEIR has it"
                .into(),
        ));
    }
    let qrels = folder.join("qrels");
    let mut found: Vec<PathBuf> = std::fs::read_dir(&qrels)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "tsv"))
        .collect();
    found.sort();
    let split = SPLITS
        .iter()
        .map(|split| qrels.join(split))
        .find(|path| found.contains(path))
        .or_else(|| found.first().filter(|_| found.len() == 1).cloned())
        .ok_or_else(|| {
            missing("no qrels/test.tsv, qrels/dev.tsv or single qrels/*.tsv; name the file of judgements".into())
        })?;
    read_split(&split, collected)
}

/// Reads the queries that the judgements in `qrels` speak of. One whose judgements are all 0 stays, without gold.
pub(super) fn read_split(qrels: &Path, collected: &mut Collected) -> Result<(), QuestionsError> {
    let judged = read_qrels(qrels, collected)?;
    let queries = qrels
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("queries.jsonl"))
        .find(|path| path.is_file())
        .ok_or_else(|| QuestionsError::Folder {
            input: qrels.display().to_string(),
            what: "judgements without their queries.jsonl, in the same folder or the one above"
                .into(),
        })?;
    collected.input = queries.display().to_string();
    let mut lines = open_lines(&queries)?;
    let mut found: HashSet<String> = HashSet::new();
    let mut last = 0;
    while let Some((number, line)) = lines.next_line() {
        last = number;
        let parsed = match line {
            Line::Blank => continue,
            Line::Bad(reason) => Err(reason),
            Line::Text(line) => record::beir_query(line),
        };
        match parsed {
            Ok(mut question) => {
                if let Some(gold) = judged.get(&question.id) {
                    found.insert(question.id.clone());
                    if !gold.is_empty() {
                        question.gold = vec![gold.clone()];
                    }
                    collected.add(number, Ok(question));
                }
            }
            Err(reason) => collected.add_bad(number, reason),
        }
    }
    let mut missing: Vec<&String> = judged.keys().filter(|id| !found.contains(*id)).collect();
    missing.sort_unstable();
    for id in missing {
        let reason = format!(
            "the query {id:?}, which {} judges, is not here",
            qrels.display()
        );
        collected.add_bad(last, reason);
    }
    Ok(())
}

fn open_lines(path: &Path) -> Result<Lines, QuestionsError> {
    let input = Input::Path(path.to_owned());
    let reader = input::open(&input).map_err(|source| QuestionsError::Open {
        input: input.to_string(),
        source,
    })?;
    Ok(Lines::new(reader))
}

/// Query id → ids of the documents judged relevant (a score above 0), in the order of the file.
fn read_qrels(
    path: &Path,
    collected: &mut Collected,
) -> Result<HashMap<String, Vec<String>>, QuestionsError> {
    collected.input = path.display().to_string();
    let mut judged: HashMap<String, Vec<String>> = HashMap::new();
    let mut lines = open_lines(path)?;
    while let Some((number, line)) = lines.next_line() {
        let line = match line {
            Line::Blank => continue,
            Line::Bad(reason) => {
                collected.add_bad(number, reason);
                continue;
            }
            Line::Text(line) => line,
        };
        // BEIR separates with tabs, and its ids may hold spaces; TREC with any white space.
        let columns: Vec<&str> = match line.split('\t').collect::<Vec<_>>() {
            columns if columns.len() == 3 || columns.len() == 4 => columns,
            _ => line.split_whitespace().collect(),
        };
        let (query, document, score) = match columns.as_slice() {
            ["query-id", "corpus-id", "score"] if number == 1 => continue,
            [query, document, score] | [query, _, document, score] => (query, document, score),
            _ => {
                let reason = "expected a query id, a document id and a score".to_owned();
                collected.add_bad(number, reason);
                continue;
            }
        };
        let Ok(score) = score.trim().parse::<f64>() else {
            collected.add_bad(number, format!("the score {score:?} is not a number"));
            continue;
        };
        let gold = judged.entry(query.trim().to_owned()).or_default();
        let document = document.trim().to_owned();
        if score > 0.0 && !gold.contains(&document) {
            gold.push(document);
        }
    }
    Ok(judged)
}
