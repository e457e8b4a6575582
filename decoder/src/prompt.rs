//! The prompt for models that were never tuned for this format: worked examples, one line a stage.
//!
//! Lines are the separators of the stages. Text of the corpus cannot forge one, since no phrase holds
//! a line break, and every text is encoded as ordinary text, so it cannot hold a control token either.

use models::tokenizer::Tokenizer;

use crate::format::Stage;

/// The label in front of a line; no space after it, since the first token brings its own.
pub fn label(stage: Stage) -> &'static str {
    match stage {
        Stage::Clue => "Clue:",
        Stage::Evidence => "Evidence:",
        Stage::Answer => "Answer:",
    }
}

struct Example {
    question: &'static str,
    clues: &'static [&'static str],
    /// Title and quote.
    evidence: &'static [(&'static str, &'static str)],
    answer: &'static str,
}

const EXAMPLES: &[Example] = &[
    Example {
        question: "Who directed the film Blade Runner?",
        clues: &["Blade Runner", "Ridley Scott"],
        evidence: &[(
            "Blade Runner",
            "Blade Runner is a 1982 science fiction film directed by Ridley Scott.",
        )],
        answer: "Ridley Scott",
    },
    Example {
        question: "When was the Treaty of Versailles signed?",
        clues: &["Treaty of Versailles"],
        evidence: &[
            (
                "Treaty of Versailles",
                "The Treaty of Versailles was a peace treaty signed on 28 June 1919.",
            ),
            (
                "Treaty of Versailles",
                "It ended the state of war between Germany and most of the Allied Powers.",
            ),
        ],
        answer: "28 June 1919",
    },
];

/// The title of a document as it stands between the label of an evidence line and the quote: it is not
/// quoted, but it often names what the quote is about. One line, whatever the title holds.
pub fn title_note(title: &str) -> String {
    let words: Vec<&str> = title.split_whitespace().collect();
    if words.is_empty() {
        return String::new();
    }
    format!(" ({})", words.join(" "))
}

/// What is in front of a question: an instruction and worked examples. The same for every question, so
/// a model needs to read it once.
pub fn preamble() -> String {
    let mut text = String::from(
        "Name the key phrases of the question, quote evidence from an encyclopedia, then answer briefly.\n\n",
    );
    for example in EXAMPLES {
        text.push_str(&question_lines(example.question));
        for clue in example.clues {
            text.push_str(&format!("\n{} {clue}", label(Stage::Clue)));
        }
        for (title, quote) in example.evidence {
            text.push_str(&format!(
                "\n{}{} {quote}",
                label(Stage::Evidence),
                title_note(title)
            ));
        }
        text.push_str(&format!("\n{} {}", label(Stage::Answer), example.answer));
        text.push_str("\n\n");
    }
    text
}

/// What a chat model is asked for the answer: the evidence as a list of quotes under their titles, each on
/// one line, then the question. No numbers: a small model goes on counting in its answer.
pub fn answer_request<'a>(
    question: &str,
    evidence: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text = String::from("Evidence from an encyclopedia:\n");
    for (title, quote) in evidence {
        text.push_str(&format!("- {}: {}\n", line(title), line(quote)));
    }
    text.push_str(&format!(
        "\nQuestion: {}\nAnswer in a few words, from the evidence only.",
        line(question)
    ));
    text
}

/// What a chat model is asked where it gets no evidence.
pub fn bare_request(question: &str) -> String {
    let question: Vec<&str> = question.split_whitespace().collect();
    format!("Question: {}\nAnswer in a few words.", question.join(" "))
}

/// The lines that a model without a chat template continues with an answer: the worked examples, the question, the
/// evidence under its titles.
pub fn answer_lines<'a>(
    question: &str,
    evidence: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut text = preamble() + &question_lines(question);
    for (title, quote) in evidence {
        let words: Vec<&str> = quote.split_whitespace().collect();
        let (opening, title) = (label(Stage::Evidence), title_note(title));
        text.push_str(&format!("\n{opening}{title} {}", words.join(" ")));
    }
    text + "\n" + label(Stage::Answer)
}

/// The line of a question, white space folded so that it is one line.
pub fn question_lines(question: &str) -> String {
    let words: Vec<&str> = question.split_whitespace().collect();
    format!("Question: {}", words.join(" "))
}

/// The token that closes a line.
///
/// `None` if the tokenizer does not write a line break as one token.
pub fn line_break(tokenizer: &Tokenizer) -> Option<u32> {
    match tokenizer.encode_text("\n")[..] {
        [token] => Some(token),
        _ => None,
    }
}
