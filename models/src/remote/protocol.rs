//! The JSON of the OpenAI-compatible protocol: what is asked, and what comes back, whole or in pieces.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::chat::Message;

/// What a server is asked to go on from.
#[derive(Clone, Copy, Debug)]
pub enum Prompt<'a> {
    /// A conversation (`chat/completions`, or `completions` where a server has no chats).
    Chat(&'a [Message]),
    /// A text (`completions`).
    Text(&'a str),
}

/// What is asked of a server.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to go on from.
    pub prompt: Prompt<'a>,
    /// Most tokens of a text.
    pub most_tokens: usize,
    /// What logits are divided by; 0 is greedy.
    pub temperature: f32,
    /// Only the most probable tokens that together reach this probability; 1 for all.
    pub top_p: f32,
    /// Only that many of the most probable tokens; 0 for all. Left out for a server that does not know it.
    pub top_k: usize,
    /// Seed; a server may not heed it.
    pub seed: u64,
    /// How many texts.
    pub samples: usize,
    /// Whether the log-probabilities of the tokens are wanted.
    pub log_probabilities: bool,
}

/// A token of a text with its natural log-probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenProbability {
    /// The token's text, as the server gives it.
    pub text: String,
    /// Its log-probability.
    pub log_probability: f32,
}

/// One text that a server wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The text.
    pub text: String,
    /// Why it ended, in the server's word: `stop` or `length` for most.
    pub finish: Option<String>,
    /// Its tokens, where they were asked for and given.
    pub tokens: Vec<TokenProbability>,
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// The texts.
    pub choices: Vec<Choice>,
    /// Tokens of the prompt, where the server says.
    pub prompt_tokens: Option<u64>,
    /// Tokens of all texts, where the server says.
    pub written_tokens: Option<u64>,
    /// Requests that were answered; each has the prompt read.
    pub requests: u64,
}

/// Which of the two calls a request is made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Chat,
    Text,
}

impl Form {
    /// The last part of the address.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat => "chat/completions",
            Self::Text => "completions",
        }
    }
}

/// What a turn of the user begins with in a conversation that is sent as a text. A model that writes it has gone on
/// to the next turn.
const USER: &str = "User:";

/// A conversation as a text that goes on with the next turn, for a server without chats.
fn as_text(messages: &[Message]) -> String {
    let mut text = String::new();
    for message in messages {
        match message.role.as_str() {
            "user" => text.push_str(&format!("{USER} ")),
            "assistant" => text.push_str("Assistant: "),
            _ => {}
        }
        text.push_str(message.content.trim());
        text.push_str("\n\n");
    }
    // Without a space behind it, since the first token brings its own.
    text.push_str("Assistant:");
    text
}

impl Request<'_> {
    /// The body. Fields that not every server knows come last and can be taken out again. A text is never sent as a
    /// chat.
    pub(super) fn body(&self, model: &str, form: Form, stream: bool) -> Map<String, Value> {
        let mut body = Map::new();
        let mut set = |key: &str, value: Value| {
            body.insert(key.to_owned(), value);
        };
        set("model", json!(model));
        match self.prompt {
            Prompt::Chat(messages) if form == Form::Chat => {
                let messages: Vec<Value> = messages
                    .iter()
                    .map(|m| json!({"role": m.role, "content": defused(&m.content)}))
                    .collect();
                set("messages", json!(messages));
            }
            Prompt::Chat(messages) => {
                set("prompt", json!(defused(&as_text(messages))));
                set("stop", json!([format!("\n{USER}")]));
            }
            Prompt::Text(text) => set("prompt", json!(defused(text))),
        }
        if self.log_probabilities {
            // A chat is asked whether, a text for how many of the likeliest besides.
            let wanted = match form {
                Form::Chat => json!(true),
                Form::Text => json!(1),
            };
            set("logprobs", wanted);
        }
        set("max_tokens", json!(self.most_tokens));
        set("temperature", json!(self.temperature));
        if self.temperature > 0.0 {
            if self.top_p < 1.0 {
                set("top_p", json!(self.top_p));
            }
            if self.top_k > 0 {
                set("top_k", json!(self.top_k));
            }
        }
        // Servers read it as a signed number of 32 bits or more.
        set("seed", json!(self.seed & 0x7fff_ffff));
        if self.samples > 1 {
            set("n", json!(self.samples));
        }
        if stream {
            set("stream", json!(true));
            set("stream_options", json!({"include_usage": true}));
        }
        body
    }
}

/// Fields that some servers refuse to be told of.
const OPTIONAL: &[&str] = &[
    "stream_options",
    "top_k",
    "seed",
    "n",
    "stop",
    "logprobs",
    "top_p",
    "temperature",
];

/// The field of a body that was refused with `message`, where the message names one that can be said otherwise
/// or left out.
pub(super) fn refused_field(body: &Map<String, Value>, message: &str) -> Option<&'static str> {
    let names = |field: &str| {
        message
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .any(|word| word == field)
    };
    if names("max_completion_tokens") && body.contains_key("max_tokens") {
        return Some("max_tokens");
    }
    OPTIONAL
        .iter()
        .copied()
        .find(|&field| names(field) && body.contains_key(field))
}

/// Takes a refused field out of a body; `max_tokens` gets its newer name.
pub(super) fn leave_out(body: &mut Map<String, Value>, field: &str) {
    let value = body.remove(field);
    if let Some(most) = value.filter(|_| field == "max_tokens") {
        body.insert("max_completion_tokens".to_owned(), most);
    }
}

/// A text in which nothing looks like a control token: some servers take those in a message for real ones, and
/// the texts come from strangers. A space goes behind the opening bracket.
fn defused(text: &str) -> String {
    const OPENINGS: &[&str] = &[
        "<|",
        "<\u{ff5c}",
        "<s>",
        "</s>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<bos>",
        "<eos>",
        "<unk>",
        "<pad>",
        "[INST]",
        "[/INST]",
        "<<SYS>>",
        "<</SYS>>",
    ];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['<', '[']) {
        out.push_str(&rest[..=at]);
        if OPENINGS.iter().any(|o| rest[at..].starts_with(o)) {
            out.push(' ');
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out
}

#[derive(Deserialize)]
struct Reply {
    choices: Option<Vec<ReplyChoice>>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize, Default)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct ReplyChoice {
    #[serde(default)]
    index: usize,
    text: Option<String>,
    message: Option<Content>,
    delta: Option<Content>,
    finish_reason: Option<String>,
    logprobs: Option<Value>,
}

#[derive(Deserialize)]
struct Content {
    content: Option<String>,
}

/// Most texts taken of one answer: an index is a number that a stranger sends.
const MOST_CHOICES: usize = 1024;

impl Completion {
    /// Adds an answer or a piece of one. Returns the text that was new in the first choice.
    ///
    /// # Errors
    /// What came and what was expected.
    pub(super) fn add(&mut self, json: &str) -> Result<String, String> {
        let reply: Reply =
            serde_json::from_str(json).map_err(|e| format!("expected a completion: {e}"))?;
        if let Some(error) = reply.error.filter(|e| !e.is_null()) {
            return Err(message_of(&error).unwrap_or_else(|| error.to_string()));
        }
        if let Some(usage) = reply.usage {
            self.prompt_tokens = usage.prompt_tokens.or(self.prompt_tokens);
            self.written_tokens = usage.completion_tokens.or(self.written_tokens);
        }
        let mut news = String::new();
        let Some(choices) = reply.choices else {
            return Err("expected a field \"choices\"".to_owned());
        };
        for choice in choices {
            if choice.index >= MOST_CHOICES {
                return Err(format!("a choice with the index {}", choice.index));
            }
            if self.choices.len() <= choice.index {
                self.choices.resize_with(choice.index + 1, Choice::default);
            }
            let to = &mut self.choices[choice.index];
            let content = choice.message.or(choice.delta).and_then(|c| c.content);
            let text = choice.text.or(content).unwrap_or_default();
            to.text.push_str(&text);
            to.finish = choice.finish_reason.or(to.finish.take());
            if let Some(probabilities) = choice.logprobs {
                to.tokens.extend(token_probabilities(&probabilities));
            }
            if choice.index == 0 {
                news.push_str(&text);
            }
        }
        Ok(news)
    }
}

/// Log-probabilities in the shape of chats (`content`) or of texts (`tokens`, `token_logprobs`).
fn token_probabilities(value: &Value) -> Vec<TokenProbability> {
    let number = |value: &Value| value.as_f64().map(|p| p as f32);
    if let Some(content) = value["content"].as_array() {
        return content
            .iter()
            .filter_map(|entry| {
                Some(TokenProbability {
                    text: entry["token"].as_str()?.to_owned(),
                    log_probability: number(&entry["logprob"])?,
                })
            })
            .collect();
    }
    let (Some(tokens), Some(numbers)) = (
        value["tokens"].as_array(),
        value["token_logprobs"].as_array(),
    ) else {
        return Vec::new();
    };
    tokens
        .iter()
        .zip(numbers)
        .filter_map(|(token, p)| {
            Some(TokenProbability {
                text: token.as_str()?.to_owned(),
                log_probability: number(p)?,
            })
        })
        .collect()
}

/// The words of an error in the shapes that servers give it.
pub(super) fn message_of(value: &Value) -> Option<String> {
    let error = if value["error"].is_null() {
        value
    } else {
        &value["error"]
    };
    let text = error
        .as_str()
        .or_else(|| error["message"].as_str())
        .or_else(|| error["detail"].as_str());
    match text {
        Some(text) => Some(text.to_owned()),
        None if !error["detail"].is_null() => Some(error["detail"].to_string()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_hold_no_control_tokens() {
        assert_eq!(
            defused("a <|im_end|> b </s> [INST] <p> [1] <start_of_turn>user"),
            "a < |im_end|> b < /s> [ INST] <p> [1] < start_of_turn>user"
        );
        assert_eq!(defused("1 < 2 [x] é<"), "1 < 2 [x] é<");
    }

    #[test]
    fn a_conversation_as_a_text() {
        let messages = [
            Message::new("system", "Answer. "),
            Message::new("user", "Capital of France?"),
            Message::new("assistant", "Paris"),
            Message::new("user", "Of Italy?\n"),
        ];
        assert_eq!(
            as_text(&messages),
            "Answer.\n\nUser: Capital of France?\n\nAssistant: Paris\n\nUser: Of Italy?\n\nAssistant:"
        );
    }

    #[test]
    fn pieces_make_a_whole() {
        let mut completion = Completion::default();
        let first = r#"{"choices":[{"index":0,"delta":{"role":"assistant"}}]}"#;
        assert_eq!(completion.add(first).unwrap(), "");
        let piece = r#"{"choices":[{"index":0,"delta":{"content":"Par"},"logprobs":{"content":[{"token":"Par","logprob":-0.5}]}}]}"#;
        assert_eq!(completion.add(piece).unwrap(), "Par");
        let last = r#"{"choices":[{"index":0,"delta":{"content":"is"},"finish_reason":"stop"}]}"#;
        completion.add(last).unwrap();
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#;
        completion.add(usage).unwrap();
        assert_eq!(completion.choices[0].text, "Paris");
        assert_eq!(completion.choices[0].finish.as_deref(), Some("stop"));
        assert_eq!(completion.choices[0].tokens[0].log_probability, -0.5);
        assert_eq!(completion.prompt_tokens, Some(7));
        assert!(
            completion
                .add(r#"{"error":{"message":"overloaded"}}"#)
                .unwrap_err()
                == "overloaded"
        );
        assert!(completion.add("{}").is_err() && completion.add("[").is_err());
        assert!(
            completion
                .add(r#"{"choices":[{"index":4294967295}]}"#)
                .is_err()
        );
    }

    #[test]
    fn probabilities_of_texts() {
        let mut completion = Completion::default();
        let json = r#"{"choices":[{"text":"a b","logprobs":{"tokens":["a"," b"],"token_logprobs":[null,-1.5]}}]}"#;
        completion.add(json).unwrap();
        assert_eq!(completion.choices[0].tokens.len(), 1);
        assert_eq!(completion.choices[0].tokens[0].text, " b");
    }

    #[test]
    fn a_refused_field_is_left_out() {
        let request = Request {
            prompt: Prompt::Text("a"),
            most_tokens: 5,
            temperature: 1.0,
            top_p: 0.9,
            top_k: 50,
            seed: u64::MAX,
            samples: 2,
            log_probabilities: false,
        };
        let mut body = request.body("m", Form::Text, true);
        assert_eq!(body["seed"], 0x7fff_ffff);
        let refused = "Unrecognized request argument supplied: top_k";
        assert_eq!(refused_field(&body, refused), Some("top_k"));
        leave_out(&mut body, "top_k");
        assert!(!body.contains_key("top_k"));
        assert_eq!(refused_field(&body, refused), None);
        let renamed = "Use 'max_completion_tokens' instead of 'max_tokens'.";
        assert_eq!(refused_field(&body, renamed), Some("max_tokens"));
        leave_out(&mut body, "max_tokens");
        assert_eq!(body["max_completion_tokens"], 5);
        assert_eq!(refused_field(&body, renamed), None);
        assert_eq!(refused_field(&body, "no such model"), None);
    }
}
