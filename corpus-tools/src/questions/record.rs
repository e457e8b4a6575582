//! One record of a question set, under the field names of the formats that are read.

use serde_json::{Map, Value};

use super::{Question, python_list};

/// Reads a line of JSON.
pub(super) fn from_json(line: &str) -> Result<Question, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| {
        let message = error.to_string();
        // The line number within the line says nothing.
        let end = message.rfind(" at line ").unwrap_or(message.len());
        let at = error.column();
        format!("broken JSON: {} at byte {at}", &message[..end])
    })?;
    from_value(&value)
}

/// Reads a record. The question is `question`, `input` (KILT) or `text` beside an `_id` (BEIR); answers are
/// `answers`, `golden_answers` (FlashRAG), `answer`, or those of `output` (KILT).
pub(super) fn from_value(value: &Value) -> Result<Question, String> {
    let Value::Object(fields) = value else {
        return Err("not a JSON object".into());
    };
    let id = match fields.get("id").or_else(|| fields.get("_id")) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        Some(_) => return Err("the field \"id\" is neither a string nor a number".into()),
    };
    let names: &[&str] = if fields.contains_key("_id") {
        &["question", "input", "text"]
    } else {
        &["question", "input"]
    };
    let question = names
        .iter()
        .find_map(|name| fields.get(*name))
        .ok_or("expected a field \"question\" (or \"input\") that holds a question")?;
    let question = match question {
        Value::String(question) if !question.trim().is_empty() => question.clone(),
        Value::String(_) => return Err("the question is empty".into()),
        _ => return Err("the question is not a string".into()),
    };
    let mut read = Question {
        id,
        question,
        ..Question::default()
    };
    for name in ["answers", "golden_answers", "answer", "answer_aliases"] {
        if let Some(answers) = fields.get(name) {
            read.answers.extend(strings(name, answers)?);
        }
    }
    if let Some(ids) = fields.get("gold_doc_ids") {
        add_gold(&mut read, strings("gold_doc_ids", ids)?);
    }
    if let Some(ids) = fields.get("silver_doc_ids") {
        read.silver = unique(strings("silver_doc_ids", ids)?);
    }
    if let Some(contexts) = fields.get("positive_ctxs") {
        // Each was matched by itself: any of them suffices.
        for id in positive_contexts(contexts)? {
            add_gold(&mut read, vec![id]);
        }
    }
    if let Some(output) = fields.get("output") {
        add_outputs(&mut read, output)?;
    }
    read.answers = unique(read.answers);
    Ok(read)
}

/// Reads a line of a DPR `.qa.csv`: the question, a tab, a Python list of answers; either may be quoted.
pub(super) fn from_tabs(line: &str) -> Result<Question, String> {
    let expected = "expected one JSON object a line, or a question, a tab and a list of answers";
    let (question, rest) = field(line)?;
    let rest = rest.ok_or(expected)?;
    let (answers, rest) = field(rest)?;
    if rest.is_some_and(|rest| !rest.trim().is_empty()) {
        return Err(
            "more than two columns; expected a question, a tab and a list of answers".into(),
        );
    }
    if question.trim().is_empty() {
        return Err("the question is empty".into());
    }
    let answers = python_list::parse(&answers).ok_or(expected)?;
    Ok(Question {
        question,
        answers: unique(answers),
        ..Question::default()
    })
}

/// The first column of a tab-separated line as Python's `csv` reads it, and the rest.
fn field(line: &str) -> Result<(String, Option<&str>), String> {
    let Some(mut rest) = line.strip_prefix('"') else {
        return Ok(match line.split_once('\t') {
            Some((field, rest)) => (field.to_owned(), Some(rest)),
            None => (line.to_owned(), None),
        });
    };
    let mut field = String::new();
    loop {
        let Some((inside, after)) = rest.split_once('"') else {
            return Err("a quoted column does not end".into());
        };
        field.push_str(inside);
        match after.chars().next() {
            None => return Ok((field, None)),
            Some('\t') => return Ok((field, Some(&after[1..]))),
            Some('"') => {
                field.push('"');
                rest = &after[1..];
            }
            Some(_) => return Err("text after the end of a quoted column".into()),
        }
    }
}

/// The ids of DPR's positive contexts (`passage_id`, or `psg_id` in older files).
fn positive_contexts(contexts: &Value) -> Result<Vec<String>, String> {
    let Value::Array(contexts) = contexts else {
        return Err("the field \"positive_ctxs\" is not a list".into());
    };
    let id = |context: &Value| {
        let id = ["passage_id", "psg_id", "id"]
            .iter()
            .find_map(|name| context.get(*name))?;
        string(id)
    };
    Ok(contexts.iter().filter_map(id).collect())
}

/// Adds answers and provenances of KILT: every output with a provenance is one set of gold documents.
fn add_outputs(question: &mut Question, output: &Value) -> Result<(), String> {
    let Value::Array(outputs) = output else {
        return Err("the field \"output\" is not a list".into());
    };
    for output in outputs {
        if let Some(Value::String(answer)) = output.get("answer")
            && !answer.is_empty()
        {
            question.answers.push(answer.clone());
        }
        if let Some(Value::Array(provenance)) = output.get("provenance") {
            let ids = provenance
                .iter()
                .filter_map(|place| string(place.get("wikipedia_id")?));
            let ids = ids.collect();
            add_gold(question, ids);
        }
    }
    Ok(())
}

fn add_gold(question: &mut Question, ids: Vec<String>) {
    let ids = unique(ids);
    if !ids.is_empty() && !question.gold.contains(&ids) {
        question.gold.push(ids);
    }
}

fn string(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(true) => Some("yes".to_owned()),
        Value::Bool(false) => Some("no".to_owned()),
        _ => None,
    }
}

/// A list of strings, numbers or truth values (yes and no); a single one counts as a list of one, null as an empty
/// one, and of an object (as SQuAD has it) its `text` counts.
fn strings(name: &str, value: &Value) -> Result<Vec<String>, String> {
    let found = match value {
        Value::Null => Some(Vec::new()),
        Value::Array(values) => values.iter().map(string).collect(),
        Value::Object(fields) if fields.contains_key("text") => {
            return strings(name, &fields["text"]);
        }
        one => string(one).map(|one| vec![one]),
    };
    found.ok_or_else(|| format!("the field {name:?} is not a list of strings"))
}

fn unique(values: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    values
        .into_iter()
        .filter(|value| seen.insert(value.clone()))
        .collect()
}

/// The fields of a BEIR query: its id and its text.
pub(super) fn beir_query(line: &str) -> Result<Question, String> {
    let fields: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("broken JSON: {error}"))?;
    from_value(&Value::Object(fields))
}
