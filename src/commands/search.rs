//! `verbatim search`: where a phrase stands in an index, word for word.

use std::path::PathBuf;

use corpus_tools::canonical::canonical_text;
use corpus_tools::store::Paragraph;
use corpus_tools::{Citation, CiteError, Index};
use decoder::spelling;
use serde::Serialize;

use crate::{Outcome, terminal};

/// Arguments of `verbatim search`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The index
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// Most places to show; all are counted, those in titles and inside characters too
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The phrase
    phrase: String,
}

/// What a search found.
#[derive(Debug, Serialize)]
struct Found {
    phrase: String,
    occurrences: u64,
    documents: u64,
    documents_capped: bool,
    places: Vec<Place>,
}

/// One place where the phrase stands.
#[derive(Debug, Serialize)]
struct Place {
    #[serde(flatten)]
    citation: Citation,
    /// The words around it.
    context: String,
}

/// Most occurrences whose documents are told apart: beyond that the number of documents is a lower bound.
const DOCUMENT_CAP: usize = 10_000;
/// Characters of context on each side.
const CONTEXT: usize = 60;

/// Runs `verbatim search`.
///
/// # Errors
/// The index cannot be opened or is damaged.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let index = Index::open(&arguments.index)?;
    let tokenizer = index.tokenizer()?;
    let fm = index.fm();
    let spellings = spelling::look_up(fm, &tokenizer, &arguments.phrase);
    let occurrences = spellings
        .iter()
        .map(|spelling| fm.count(&spelling.ranges))
        .sum();
    let mut documents = std::collections::BTreeSet::new();
    let mut capped = false;
    let mut places = Vec::new();
    for spelling in &spellings {
        let words = tokenizer.decode(&spelling.tokens);
        let counts = fm.document_counts(&spelling.ranges, DOCUMENT_CAP);
        capped |= counts.capped;
        documents.extend(counts.counts.iter().map(|(document, _)| *document));
        for occurrence in fm.locate(&spelling.ranges) {
            if places.len() >= arguments.top {
                break;
            }
            let span = occurrence.start..occurrence.start + spelling.tokens.len() as u32;
            // An occurrence in a title is counted, but titles are not quoted.
            let document = index.document(occurrence.document)?;
            if document
                .paragraph_at(span.start)
                .is_none_or(Paragraph::is_title)
            {
                continue;
            }
            let citation = match index.cite(&tokenizer, occurrence.document, span) {
                Ok(citation) => citation,
                // The tokens stand there, but begin or end inside a character.
                Err(CiteError::NoText { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            // A quote that was cut back to whole characters is not what was looked for.
            if canonical_text(&citation.quote).trim_start() != words.trim_start() {
                continue;
            }
            let context = context(
                &document.text,
                citation.start_byte as usize..citation.end_byte as usize,
            );
            places.push(Place { citation, context });
        }
    }
    let found = Found {
        phrase: arguments.phrase,
        occurrences,
        documents: documents.len() as u64,
        documents_capped: capped,
        places,
    };
    if arguments.json {
        terminal::print_json(&found)?;
    } else {
        print(&found)?;
    }
    Ok(if found.occurrences == 0 {
        Outcome::NothingFound
    } else {
        Outcome::Done
    })
}

/// The quote with the words around it, on one line.
fn context(text: &str, span: std::ops::Range<usize>) -> String {
    let before: String = text[..span.start].chars().rev().take(CONTEXT).collect();
    let before: String = before.chars().rev().collect();
    let after: String = text[span.end..].chars().take(CONTEXT).collect();
    let mark = |cut: bool| if cut { "…" } else { "" };
    let (front, back) = (
        before.len() < span.start,
        span.end + after.len() < text.len(),
    );
    format!(
        "{}{before}[{}]{after}{}",
        mark(front),
        &text[span],
        mark(back)
    )
}

fn print(found: &Found) -> anyhow::Result<()> {
    if found.occurrences == 0 {
        terminal::say("not found");
        return Ok(());
    }
    let at_least = if found.documents_capped {
        "at least "
    } else {
        ""
    };
    terminal::print(&format!(
        "{} occurrences in {at_least}{} documents",
        found.occurrences, found.documents
    ))?;
    for place in &found.places {
        let citation = &place.citation;
        terminal::print(&format!(
            "{} [{} bytes {}–{}]\n    {}",
            terminal::harmless_line(&citation.title),
            terminal::harmless_line(&citation.id),
            citation.start_byte,
            citation.end_byte,
            terminal::harmless_line(&place.context),
        ))?;
    }
    Ok(())
}
