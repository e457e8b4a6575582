//! One JSON object as a record, under the field names of the formats that are read.

use serde_json::{Map, Value};

use super::{Place, Record};

/// Reads a line as a record; the error says what is wrong with it.
///
/// Fields: `id`, `_id` (BEIR, KILT) or `wikipedia_id`, a string or an integer; `title` or
/// `wikipedia_title`, which may be missing; `text`, a string or a list of paragraphs (KILT), or
/// `contents` with the title in quotes on its first line (FlashRAG).
pub(super) fn from_json(line: &str, place: &Place) -> Result<Record, String> {
    let fields: Map<String, Value> = serde_json::from_str(line).map_err(|error| {
        if error.is_data() {
            "not a JSON object".to_owned()
        } else {
            // The line number within the line says nothing.
            let message = error.to_string();
            let end = message.rfind(" at line ").unwrap_or(message.len());
            format!(
                "broken JSON: {} at byte {}",
                &message[..end],
                error.column()
            )
        }
    })?;
    from_fields(fields, place)
}

/// Takes the fields of a record; what is not known by name is metadata.
pub(super) fn from_fields(mut fields: Map<String, Value>, place: &Place) -> Result<Record, String> {
    let id = match take(&mut fields, &["id", "_id", "wikipedia_id"]) {
        None => return Err("the field \"id\" is missing".into()),
        Some((_, Value::String(id))) if id.is_empty() => {
            return Err("the field \"id\" is empty".into());
        }
        Some((_, Value::String(id))) => id,
        Some((_, Value::Number(id))) if !id.is_f64() => id.to_string(),
        Some((name, other)) => return Err(wrong(name, "a string or an integer", &other)),
    };
    let title = match take(&mut fields, &["title", "wikipedia_title"]) {
        None | Some((_, Value::Null)) => None,
        Some((_, Value::String(title))) => Some(title),
        Some((name, other)) => return Err(wrong(name, "a string", &other)),
    };
    let (title, text) = match take(&mut fields, &["text", "contents"]) {
        None => return Err("the field \"text\" is missing".into()),
        Some(("contents", Value::String(contents))) if title.is_none() => {
            // FlashRAG's first line is the title, in quotes; elsewhere all of it is text.
            match contents.split_once('\n') {
                Some((title, text)) if unquoted(title) != title.trim() => {
                    (unquoted(title).to_owned(), text.to_owned())
                }
                _ => (String::new(), contents),
            }
        }
        Some((_, Value::String(text))) => (title.unwrap_or_default(), text),
        Some((name, Value::Array(paragraphs))) => {
            (title.unwrap_or_default(), joined(name, &paragraphs)?)
        }
        Some((name, other)) => return Err(wrong(name, "a string", &other)),
    };
    Ok(Record {
        metadata: fields,
        ..Record::new(id, title, text, place.clone())
    })
}

/// Takes the first of `names` that is there, in their order.
fn take(fields: &mut Map<String, Value>, names: &[&'static str]) -> Option<(&'static str, Value)> {
    let found = names.iter().find(|name| fields.contains_key(**name))?;
    Some((found, fields.shift_remove(*found)?))
}

/// Paragraphs as lines of one text.
fn joined(name: &str, paragraphs: &[Value]) -> Result<String, String> {
    let mut text = String::new();
    for paragraph in paragraphs {
        let Value::String(paragraph) = paragraph else {
            return Err(wrong(name, "a list of strings", paragraph));
        };
        text.push_str(paragraph);
        if !paragraph.ends_with('\n') {
            text.push('\n');
        }
    }
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

fn unquoted(title: &str) -> &str {
    let title = title.trim();
    title
        .strip_prefix('"')
        .and_then(|title| title.strip_suffix('"'))
        .unwrap_or(title)
}

fn wrong(name: &str, expected: &str, found: &Value) -> String {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    format!("the field {name:?} is {found} instead of {expected}")
}
