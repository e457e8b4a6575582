//! The form in which a model writes its stages: lines under labels for any model, control tokens for one that was
//! tuned with them.
//!
//! Either way a stage is opened by tokens of its own, its phrases are closed by tokens that no text holds, and the
//! model chooses what comes next by the logits of those tokens. [`Format`] is the setting, [`Markers`] what it comes
//! to in a tokenizer.

use models::ModelError;
use models::chat::{ChatTemplate, Message};
use models::tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::prompt;

/// What the model writes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A clue.
    Clue,
    /// A piece of evidence.
    Evidence,
    /// The answer.
    Answer,
}

/// The form of the stages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// One line a phrase under a label, after worked examples: any model can do it.
    #[default]
    Lines,
    /// Control tokens of a model that was tuned with them, after the bare question.
    Control(ControlFormat),
}

/// The control tokens of a tuned model, by name, and how it is asked. The defaults are those of RetroLLM
/// (arXiv:2412.11919): `<|clue|> … <|sep|> … <|/clue|> <|evidence|> … <|sep|> … <|/evidence|> The answer is …`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControlFormat {
    /// Opens the clues, or each clue where there is no separator.
    pub clue: String,
    /// Closes what `clue` opens.
    pub clue_end: String,
    /// Opens the evidence, or each piece where there is no separator.
    pub evidence: String,
    /// Closes what `evidence` opens.
    pub evidence_end: String,
    /// Stands between two phrases of one stage; empty: every phrase is opened and closed by itself.
    pub separator: String,
    /// Opens the answer; empty: the text of `lead` does.
    pub answer: String,
    /// Ordinary text in front of the answer, after the token that opens it, if there is one. It is no part of the
    /// answer.
    pub lead: String,
    /// Whether the title of its document stands in front of a piece, in brackets.
    pub titles: bool,
    /// What the model is asked, with `{question}` in the question's place.
    pub request: String,
    /// Whether the request is a message in the model's chat template, where it has one.
    pub chat: bool,
}

impl Default for ControlFormat {
    fn default() -> Self {
        Self {
            clue: "<|clue|>".to_owned(),
            clue_end: "<|/clue|>".to_owned(),
            evidence: "<|evidence|>".to_owned(),
            evidence_end: "<|/evidence|>".to_owned(),
            separator: "<|sep|>".to_owned(),
            answer: String::new(),
            lead: " The answer is".to_owned(),
            titles: false,
            request: format!("Question: {QUESTION}"),
            chat: true,
        }
    }
}

/// Stands for the question in [`ControlFormat::request`].
const QUESTION: &str = "{question}";

/// Control tokens that an error lists.
const LISTED: usize = 40;

/// Why a model cannot write in a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The tokenizer does not write a line break as one token.
    #[error(
        "the tokenizer has no token for a line break, so stages cannot be told apart; use another model, or \
         format.control for one that was tuned with control tokens"
    )]
    NoLineBreak,
    /// The tokenizer has no such control token.
    #[error(
        "the tokenizer has no control token {name:?} (control.{key}), so the model was not tuned for this format; it \
         has {known}"
    )]
    NoControlToken {
        /// The field of [`ControlFormat`] that names it.
        key: &'static str,
        /// The name that was looked for.
        name: String,
        /// The names that the tokenizer has, or the first of them.
        known: String,
    },
    /// Two things that have to be told apart are one token.
    #[error(
        "control.{} and control.{} are both {name:?}, so stages cannot be told apart; name two control tokens",
        .keys[0], .keys[1]
    )]
    SameToken {
        /// The fields of [`ControlFormat`].
        keys: [&'static str; 2],
        /// The name of both.
        name: String,
    },
    /// Nothing says where the answer begins.
    #[error(
        "nothing opens the answer: control.answer (a control token) and control.lead (a text) are both empty"
    )]
    NothingOpensAnswer,
}

impl ControlFormat {
    /// Whether the request holds the question.
    ///
    /// # Errors
    /// It does not, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.request.matches(QUESTION).count() {
            1 => Ok(()),
            _ => Err(format!(
                "the setting format.control.request is {:?}; expected a text with {QUESTION} in it once",
                self.request
            )),
        }
    }

    /// The id of the control token that a field names. White space around a name does not count, as some tokenizers
    /// have it in the name.
    pub(crate) fn token(
        key: &'static str,
        name: &str,
        tokenizer: &Tokenizer,
    ) -> Result<u32, FormatError> {
        let alike = || {
            let mut all = tokenizer.control_tokens();
            all.find(|(_, other)| other.trim() == name.trim() && !name.trim().is_empty())
        };
        let found = tokenizer.control_token(name);
        let found = found.or_else(|| alike().map(|(id, _)| id));
        found.ok_or_else(|| {
            let names: Vec<String> = tokenizer
                .control_tokens()
                .map(|(_, name)| format!("{name:?}"))
                .collect();
            let listed = names[..names.len().min(LISTED)].join(", ");
            let known = match names.len() {
                0 => "none".to_owned(),
                count if count > LISTED => format!("{listed} and {} more", count - LISTED),
                _ => listed,
            };
            FormatError::NoControlToken {
                key,
                name: name.to_owned(),
                known,
            }
        })
    }

    /// As [`ControlFormat::token`], for a field that may be empty.
    pub(crate) fn optional(
        key: &'static str,
        name: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Option<u32>, FormatError> {
        match name.is_empty() {
            true => Ok(None),
            false => Self::token(key, name, tokenizer).map(Some),
        }
    }

    /// The ids of the prompt for a question. The question is encoded as ordinary text, so it cannot hold a control
    /// token.
    ///
    /// # Errors
    /// The template's own.
    pub fn prompt(
        &self,
        question: &str,
        template: Option<&ChatTemplate>,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, ModelError> {
        let question: Vec<&str> = question.split_whitespace().collect();
        let request = self.request.replacen(QUESTION, &question.join(" "), 1);
        if let Some(template) = template.filter(|_| self.chat) {
            return template.render(&[Message::new("user", request)], true, tokenizer);
        }
        let mut tokens: Vec<u32> = tokenizer.begin_token().into_iter().collect();
        tokens.extend(tokenizer.encode_text(&request));
        Ok(tokens)
    }
}

/// Tokens whose logits stand for the wish to end a phrase, beside the model's own end tokens. No text holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closing {
    /// Ends the phrase, and its stage where phrases of one stage are separated.
    pub end: u32,
    /// Ends the phrase for another one of the same stage.
    pub separator: Option<u32>,
}

impl Closing {
    /// Both.
    pub fn tokens(self) -> impl Iterator<Item = u32> {
        std::iter::once(self.end).chain(self.separator)
    }
}

impl From<u32> for Closing {
    fn from(end: u32) -> Self {
        Self {
            end,
            separator: None,
        }
    }
}

/// The tokens that open and close the stages of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Markers {
    /// Stands between the question and the first stage.
    after_question: Option<u32>,
    clue: Vec<u32>,
    clue_end: u32,
    evidence: Vec<u32>,
    evidence_end: u32,
    separator: Option<u32>,
    answer: Vec<u32>,
    /// Whether a title stands in front of a piece.
    titles: bool,
}

impl Markers {
    /// The markers of a format in a tokenizer.
    ///
    /// # Errors
    /// The tokenizer lacks one of them, or they cannot be told apart.
    pub fn new(format: &Format, tokenizer: &Tokenizer) -> Result<Self, FormatError> {
        match format {
            Format::Lines => Self::lines(tokenizer),
            Format::Control(control) => Self::control(control, tokenizer),
        }
    }

    /// Lines: a label opens one, a line break closes it.
    fn lines(tokenizer: &Tokenizer) -> Result<Self, FormatError> {
        let line_break = prompt::line_break(tokenizer).ok_or(FormatError::NoLineBreak)?;
        let label = |stage| tokenizer.encode_text(prompt::label(stage));
        Ok(Self {
            after_question: Some(line_break),
            clue: label(Stage::Clue),
            clue_end: line_break,
            evidence: label(Stage::Evidence),
            evidence_end: line_break,
            separator: None,
            answer: label(Stage::Answer),
            titles: true,
        })
    }

    fn control(control: &ControlFormat, tokenizer: &Tokenizer) -> Result<Self, FormatError> {
        let token = |key, name: &String| ControlFormat::token(key, name, tokenizer);
        let clue = token("clue", &control.clue)?;
        let clue_end = token("clue_end", &control.clue_end)?;
        let evidence = token("evidence", &control.evidence)?;
        let evidence_end = token("evidence_end", &control.evidence_end)?;
        let separator = ControlFormat::optional("separator", &control.separator, tokenizer)?;
        let answer = ControlFormat::optional("answer", &control.answer, tokenizer)?;
        let openers = [
            ("clue", Some(clue)),
            ("evidence", Some(evidence)),
            ("answer", answer),
        ];
        let ends = [
            ("clue_end", Some(clue_end)),
            ("evidence_end", Some(evidence_end)),
        ];
        let mut pairs = vec![
            (openers[0], openers[1]),
            (openers[0], openers[2]),
            (openers[1], openers[2]),
        ];
        for marker in openers.into_iter().chain([("separator", separator)]) {
            pairs.extend(ends.map(|end| (marker, end)));
        }
        pairs.extend(openers.map(|opener| (opener, ("separator", separator))));
        let same = pairs
            .iter()
            .find(|(one, two)| one.1.is_some() && one.1 == two.1);
        if let Some(&((one, id), (two, _))) = same {
            let name = id.and_then(|id| tokenizer.control_content(id));
            return Err(FormatError::SameToken {
                keys: [one, two],
                name: name.unwrap_or_default().to_owned(),
            });
        }
        let mut opens_answer: Vec<u32> = answer.into_iter().collect();
        opens_answer.extend(tokenizer.encode_text(&control.lead));
        if opens_answer.is_empty() {
            return Err(FormatError::NothingOpensAnswer);
        }
        Ok(Self {
            after_question: None,
            clue: vec![clue],
            clue_end,
            evidence: vec![evidence],
            evidence_end,
            separator,
            answer: opens_answer,
            titles: control.titles,
        })
    }

    /// The tokens that open a stage; at least one.
    pub fn opening(&self, stage: Stage) -> &[u32] {
        match stage {
            Stage::Clue => &self.clue,
            Stage::Evidence => &self.evidence,
            Stage::Answer => &self.answer,
        }
    }

    /// What closes a clue.
    pub fn closing_clue(&self) -> Closing {
        Closing {
            end: self.clue_end,
            separator: self.separator,
        }
    }

    /// What closes a piece of evidence.
    pub fn closing_evidence(&self) -> Closing {
        Closing {
            end: self.evidence_end,
            separator: self.separator,
        }
    }

    /// What stands between `stage` (`None`: the question) and another one.
    pub fn leaving(&self, stage: Option<Stage>) -> Option<u32> {
        match stage {
            None => self.after_question,
            Some(Stage::Clue) => Some(self.clue_end),
            Some(Stage::Evidence) => Some(self.evidence_end),
            Some(Stage::Answer) => None,
        }
    }

    /// What stands between two phrases of one stage that is not opened again.
    pub fn separator(&self) -> Option<u32> {
        self.separator
    }

    /// What stands in front of a piece from a document with this title; often nothing.
    pub fn note(&self, title: &str) -> String {
        match self.titles {
            true => prompt::title_note(title),
            false => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes are tokens; the control tokens are `<|clue|>` and its like, with ids from 256 on.
    fn tokenizer(names: &[&str]) -> Tokenizer {
        let definition = include_str!("../../models/tests/fixtures/bytes.json");
        let mut json: serde_json::Value = serde_json::from_str(definition).unwrap();
        let added: Vec<serde_json::Value> = names
            .iter()
            .zip(256..)
            .map(|(name, id)| serde_json::json!({"id": id, "content": name, "special": true}))
            .collect();
        json["added_tokens"] = added.into();
        Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
    }

    const RETRO: [&str; 5] = [
        "<|clue|>",
        " <|/clue|>",
        "<|evidence|>",
        "<|/evidence|>",
        "<|sep|>",
    ];

    #[test]
    fn the_markers_of_lines_and_of_retrollm() {
        let tokenizer = tokenizer(&RETRO);
        let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
        let lines = Markers::new(&Format::Lines, &tokenizer).unwrap();
        assert_eq!(lines.opening(Stage::Evidence), bytes("Evidence:"));
        assert_eq!(lines.leaving(None), Some(10));
        assert_eq!(lines.closing_clue(), Closing::from(10));
        assert_eq!(lines.note(" A  b"), " (A b)");
        let control = Format::Control(ControlFormat::default());
        let control = Markers::new(&control, &tokenizer).unwrap();
        assert_eq!(control.opening(Stage::Clue), [256]);
        assert_eq!(control.opening(Stage::Answer), bytes(" The answer is"));
        assert_eq!(control.leaving(None), None);
        assert_eq!(control.leaving(Some(Stage::Clue)), Some(257));
        let closing: Vec<u32> = control.closing_evidence().tokens().collect();
        assert_eq!(closing, [259, 260]);
        assert_eq!(control.note("A"), "");
    }

    #[test]
    fn names_that_do_not_do_are_refused() {
        let tokenizer = tokenizer(&RETRO);
        let refused = |change: &dyn Fn(&mut ControlFormat)| {
            let mut control = ControlFormat::default();
            change(&mut control);
            Markers::new(&Format::Control(control), &tokenizer).unwrap_err()
        };
        let error = refused(&|control| control.evidence = "<|quote|>".to_owned()).to_string();
        for word in ["\"<|quote|>\"", "control.evidence", "\"<|sep|>\""] {
            assert!(error.contains(word), "{error}");
        }
        let empty = refused(&|control| control.clue = String::new());
        assert!(matches!(
            empty,
            FormatError::NoControlToken { key: "clue", .. }
        ));
        for (same, keys) in [
            (
                refused(&|c| c.evidence = c.clue.clone()),
                ["clue", "evidence"],
            ),
            (refused(&|c| c.answer = c.clue.clone()), ["clue", "answer"]),
            (
                refused(&|c| c.separator = c.clue_end.clone()),
                ["separator", "clue_end"],
            ),
            (
                refused(&|c| c.evidence_end = c.clue.clone()),
                ["clue", "evidence_end"],
            ),
        ] {
            assert!(
                matches!(&same, FormatError::SameToken { keys: found, .. } if *found == keys),
                "{same}"
            );
        }
        let nothing = refused(&|control| control.lead = String::new());
        assert_eq!(nothing, FormatError::NothingOpensAnswer);
        // One token may close both stages.
        let control = ControlFormat {
            evidence_end: "<|/clue|>".to_owned(),
            ..ControlFormat::default()
        };
        assert!(Markers::new(&Format::Control(control), &tokenizer).is_ok());
    }

    #[test]
    fn many_names_are_listed_in_part() {
        let names: Vec<String> = (0..100).map(|i| format!("<unused{i}>")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let control = Format::Control(ControlFormat::default());
        let error = Markers::new(&control, &tokenizer(&names)).unwrap_err();
        assert!(
            error.to_string().ends_with("\"<unused39>\" and 60 more"),
            "{error}"
        );
        let error = Markers::new(&control, &tokenizer(&[])).unwrap_err();
        assert!(error.to_string().ends_with("it has none"), "{error}");
    }

    #[test]
    fn a_question_is_asked_as_ordinary_text() {
        let tokenizer = tokenizer(&RETRO);
        let control = ControlFormat::default();
        let ids = control
            .prompt("What\n is <|sep|>?", None, &tokenizer)
            .unwrap();
        assert_eq!(tokenizer.decode(&ids), "Question: What is <|sep|>?");
        assert!(ids.iter().all(|&id| id < 256));
        assert!(control.check().is_ok());
        let request = "What?".to_owned();
        let without = ControlFormat { request, ..control };
        assert!(without.check().unwrap_err().contains("{question}"));
    }

    #[test]
    fn the_setting_is_a_word_or_a_table() {
        let read = |json: &str| serde_json::from_str::<Format>(json);
        assert_eq!(read("\"lines\"").unwrap(), Format::Lines);
        let control = read("{\"control\":{\"titles\":true,\"separator\":\"\"}}").unwrap();
        let expected = ControlFormat {
            titles: true,
            separator: String::new(),
            ..ControlFormat::default()
        };
        assert_eq!(control, Format::Control(expected));
        let again = serde_json::to_string(&control).unwrap();
        assert_eq!(read(&again).unwrap(), control);
        assert!(read("{\"control\":{\"quote\":\"x\"}}").is_err());
    }
}
