//! Remote generators: any OpenAI-compatible server, asked for chats or for texts, whole or as they are written.
//!
//! A server that has no chats (one without a template, or one for base models) is given a conversation as a text.
//!
//! What is asked goes to the server's machine; nothing else does. The key comes from an environment variable,
//! goes into one header, and is taken out of every message that a server sends back.

mod error;
mod protocol;
mod stream;

use std::io::Read;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use ureq::http::{Response, Uri};
use ureq::{Agent, Body, Timeout};

pub use error::RemoteError;
pub use protocol::{Choice, Completion, Prompt, Request, TokenProbability};

use protocol::Form;
use stream::Events;

/// Environment variable that holds the key, unless another is named. A variable of this program's own: a key
/// that was set for somebody else's service is not sent wherever an address points.
pub const KEY_VARIABLE: &str = "VERBATIM_API_KEY";

/// Largest answer that is read, in bytes.
const LARGEST_ANSWER: u64 = 64 << 20;
/// Longest time to a connection; at most half of what an answer may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest pause a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Characters of a server's words that are shown.
const SHOWN: usize = 500;

/// How a server is talked to.
#[derive(Clone)]
pub struct RemoteOptions<'a> {
    /// Environment variable that holds the key; one that is not set or empty means none is sent.
    pub key_variable: String,
    /// Longest time for one answer, and between two pieces of it.
    pub timeout: Duration,
    /// How often a request is tried that the server was too busy for.
    pub attempts: u32,
    /// Pause before the second attempt; it doubles each time, and a server's own wish (`Retry-After`) counts more.
    pub pause: Duration,
    /// Asked between attempts and between pieces.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl Default for RemoteOptions<'_> {
    fn default() -> Self {
        Self {
            key_variable: KEY_VARIABLE.to_owned(),
            timeout: Duration::from_secs(300),
            attempts: 4,
            pause: Duration::from_millis(500),
            interrupted: &|| false,
        }
    }
}

/// A key that is never printed.
struct Key(String);

/// A model on a server.
pub struct RemoteModel<'a> {
    agent: Agent,
    /// Without a slash at the end.
    base: String,
    model: String,
    key: Option<Key>,
    options: RemoteOptions<'a>,
    /// Whether conversations are sent as texts, because the server has no chats.
    texts_only: AtomicBool,
    /// Fields that the server refused: no later request says them again.
    refused: Mutex<Vec<&'static str>>,
}

impl std::fmt::Debug for RemoteModel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteModel")
            .field("base", &self.base)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Whether a model is named by the address of a server.
pub fn is_address(spec: &str) -> bool {
    spec.starts_with("http://") || spec.starts_with("https://")
}

impl<'a> RemoteModel<'a> {
    /// Connects to `http(s)://HOST[:PORT][/PATH][#MODEL]`; without a path it is `/v1`. Without a model the server is
    /// asked which it has, and the first is taken. A path that ends in `/completions`, not in `/chat/completions`,
    /// means that conversations are sent as texts; else they are once the server turns out to have no chats.
    ///
    /// # Errors
    /// The address is none, a key would be sent in the clear, or the server does not say which model it has.
    pub fn connect(spec: &str, options: RemoteOptions<'a>) -> Result<Self, RemoteError> {
        let (url, model) = match spec.split_once('#') {
            Some((url, model)) => (url, model.trim()),
            None => (spec, ""),
        };
        let Address {
            base,
            host,
            texts_only,
        } = address_of(url, &options.key_variable)?;
        let local = is_loopback(&host);
        let key = std::env::var(&options.key_variable)
            .ok()
            .map(|key| key.trim().to_owned())
            .filter(|key| !key.is_empty());
        if let Some(key) = &key {
            if key.chars().any(|c| !c.is_ascii_graphic()) {
                let variable = options.key_variable.clone();
                return Err(RemoteError::Key { variable });
            }
            if !local && base.starts_with("http://") {
                return Err(RemoteError::KeyInTheClear {
                    url: base,
                    variable: options.key_variable.clone(),
                });
            }
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // An answer from elsewhere than asked is none; and the key goes nowhere else.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT.min(options.timeout / 2)))
            .timeout_per_read(Some(options.timeout))
            .timeout_global(Some(options.timeout))
            .user_agent(concat!("verbatim/", env!("CARGO_PKG_VERSION")));
        if local {
            config = config.proxy(None);
        }
        let mut remote = Self {
            agent: config.build().new_agent(),
            base,
            model: model.to_owned(),
            key: key.map(Key),
            options,
            texts_only: AtomicBool::new(texts_only),
            refused: Mutex::default(),
        };
        if remote.model.is_empty() {
            remote.model = remote.first_model()?;
        }
        Ok(remote)
    }

    /// The model's name on the server.
    pub fn name(&self) -> &str {
        &self.model
    }

    /// Where the server is, without the name of the model.
    pub fn address(&self) -> &str {
        &self.base
    }

    /// Asks for texts and waits for all of them. A server that gives fewer than were asked for is asked again,
    /// with the next seed.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn complete(&self, request: &Request<'_>) -> Result<Completion, RemoteError> {
        let mut all = Completion::default();
        let wanted = request.samples.max(1);
        while all.choices.len() < wanted {
            let missing = Request {
                samples: wanted - all.choices.len(),
                seed: request.seed.wrapping_add(all.choices.len() as u64),
                ..*request
            };
            let mut answer = self.ask(&missing, false)?;
            let text = self.read(&mut answer)?;
            let mut completion = Completion::default();
            completion
                .add(&text)
                .map_err(|problem| self.protocol(&problem))?;
            if completion.choices.is_empty() {
                return Err(self.protocol("no choice in the answer"));
            }
            let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
                (Some(a), Some(b)) => Some(a.saturating_add(b)),
                (a, b) => a.or(b),
            };
            all.prompt_tokens = all.prompt_tokens.or(completion.prompt_tokens);
            all.written_tokens = sum(all.written_tokens, completion.written_tokens);
            all.requests += 1;
            all.choices.append(&mut completion.choices);
        }
        all.choices.truncate(wanted);
        Ok(all)
    }

    /// Asks for one text and hands on its pieces as they come.
    ///
    /// # Errors
    /// See [`RemoteError`]; what came before stays handed on.
    pub fn stream(
        &self,
        request: &Request<'_>,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Completion, RemoteError> {
        let request = Request {
            samples: 1,
            ..*request
        };
        let answer = self.ask(&request, true)?;
        let mut completion = Completion {
            requests: 1,
            ..Completion::default()
        };
        let events = answer
            .headers()
            .get("content-type")
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        if !events {
            // A server that cannot stream answers at once.
            let mut answer = answer;
            let text = self.read(&mut answer)?;
            let news = completion
                .add(&text)
                .map_err(|problem| self.protocol(&problem))?;
            on_text(&news);
            return Ok(completion);
        }
        let body = answer.into_body().into_reader().take(LARGEST_ANSWER);
        let mut events = Events::new(body);
        let mut done = false;
        while let Some(data) = events.next().map_err(|e| self.broken(e.into()))? {
            if (self.options.interrupted)() {
                return Err(RemoteError::Interrupted);
            }
            if data.trim() == "[DONE]" {
                done = true;
                break;
            }
            let news = completion
                .add(&data)
                .map_err(|problem| self.protocol(&problem))?;
            if !news.is_empty() {
                on_text(&news);
            }
        }
        let finished = completion.choices.iter().any(|c| c.finish.is_some());
        if completion.choices.is_empty() || !(done || finished) {
            return Err(RemoteError::BrokenOff {
                url: self.base.clone(),
                problem: "the connection ended before the text did".to_owned(),
            });
        }
        Ok(completion)
    }

    fn first_model(&self) -> Result<String, RemoteError> {
        let mut answer = self.attempt(|| {
            let mut request = self.agent.get(format!("{}/models", self.base));
            if let Some(Key(key)) = &self.key {
                request = request.header("authorization", format!("Bearer {key}"));
            }
            request.call()
        })?;
        self.check(&mut answer)?;
        let text = self.read(&mut answer)?;
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let first = value["data"][0]["id"].as_str().filter(|id| !id.is_empty());
        first.map(str::to_owned).ok_or_else(|| {
            self.protocol("the server does not say which models it has; name one as URL#MODEL")
        })
    }

    /// Asks for a chat or a text. A server without chats is asked for a text instead, now and from then on.
    fn ask(&self, request: &Request<'_>, stream: bool) -> Result<Response<Body>, RemoteError> {
        let ask = |form: Form| {
            let mut body = request.body(&self.model, form, stream);
            self.post(form.path(), &mut body)
        };
        let is_chat = matches!(request.prompt, Prompt::Chat(_));
        if !is_chat || self.texts_only.load(Ordering::Relaxed) {
            return ask(Form::Text);
        }
        match ask(Form::Chat) {
            Err(refusal) if has_no_chats(&refusal) => match ask(Form::Text) {
                Ok(answer) => {
                    self.texts_only.store(true, Ordering::Relaxed);
                    Ok(answer)
                }
                // It has neither: what it said first is what was asked for.
                Err(RemoteError::Refused { .. }) => Err(refusal),
                Err(error) => Err(error),
            },
            answer => answer,
        }
    }

    /// Posts a body and returns the answer of a server that accepted it. A field that the server does not know is
    /// left out of `body` and the request tried again; later requests do without it.
    fn post(
        &self,
        path: &str,
        body: &mut Map<String, Value>,
    ) -> Result<Response<Body>, RemoteError> {
        let refused = || self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        for field in refused().iter() {
            protocol::leave_out(body, field);
        }
        loop {
            let mut answer = self.attempt(|| {
                let mut request = self.agent.post(format!("{}/{path}", self.base));
                if let Some(Key(key)) = &self.key {
                    request = request.header("authorization", format!("Bearer {key}"));
                }
                request.send_json(&*body)
            })?;
            let error = match self.check(&mut answer) {
                Ok(()) => return Ok(answer),
                Err(error) => error,
            };
            let field = match &error {
                RemoteError::Refused {
                    status: 400 | 422,
                    message,
                    ..
                } => protocol::refused_field(body, message),
                _ => None,
            };
            let Some(field) = field else {
                return Err(error);
            };
            protocol::leave_out(body, field);
            refused().push(field);
        }
    }

    /// Tries until the server is neither busy nor out of reach, or the attempts are used up.
    fn attempt(
        &self,
        send: impl Fn() -> Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, RemoteError> {
        let attempts = self.options.attempts.max(1);
        let mut pause = self.options.pause;
        let mut attempt = 1;
        loop {
            if (self.options.interrupted)() {
                return Err(RemoteError::Interrupted);
            }
            let mut wish = None;
            match send() {
                Ok(mut answer) => {
                    let status = answer.status().as_u16();
                    if !matches!(status, 408 | 425 | 429 | 500 | 502..=504) {
                        return Ok(answer);
                    }
                    if attempt >= attempts {
                        return Err(RemoteError::Busy {
                            url: self.base.clone(),
                            status,
                            attempts,
                            message: self.words(&mut answer),
                        });
                    }
                    wish = answer
                        .headers()
                        .get("retry-after")
                        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
                        .map(Duration::from_secs);
                }
                Err(ureq::Error::Timeout(at)) if at != Timeout::Connect => {
                    return Err(self.timed_out());
                }
                Err(error) if attempt >= attempts || !is_passing(&error) => {
                    return Err(RemoteError::Unreachable {
                        url: self.base.clone(),
                        attempts: attempt,
                        problem: self.without_key(&error.to_string()),
                    });
                }
                Err(_) => {}
            }
            self.wait(wish.unwrap_or(pause).min(LONGEST_PAUSE))?;
            pause = pause.saturating_mul(2);
            attempt += 1;
        }
    }

    fn wait(&self, pause: Duration) -> Result<(), RemoteError> {
        let until = Instant::now() + pause;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if (self.options.interrupted)() {
                return Err(RemoteError::Interrupted);
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        Ok(())
    }

    /// Turns any status but success into an error.
    fn check(&self, answer: &mut Response<Body>) -> Result<(), RemoteError> {
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let status = status.as_u16();
        let message = self.words(answer);
        let variable = &self.options.key_variable;
        let advice = match status {
            300..=399 => "it points elsewhere; give the address itself",
            401 if self.key.is_none() => {
                &format!("it wants a key: set it in the environment variable {variable}")
            }
            401 | 403 => &format!("the key in {variable} is not accepted; set another one"),
            404 => "the address or the model is not known there; name the model as URL#MODEL",
            413 => "ask for less: a smaller budget or fewer chunks",
            400 | 422 if message.contains("context") => {
                "ask for less: a smaller budget or fewer chunks"
            }
            400 | 422 => "the server does not take this request",
            _ => "see the server's own log",
        };
        Err(RemoteError::Refused {
            url: self.base.clone(),
            status,
            message,
            advice: advice.to_owned(),
        })
    }

    /// The server's own words on an error, cut to a readable length, without the key.
    fn words(&self, answer: &mut Response<Body>) -> String {
        let body = answer.body_mut().with_config().limit(1 << 16);
        let text = body.lossy_utf8(true).read_to_string().unwrap_or_default();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let words = protocol::message_of(&value).unwrap_or(text);
        let words: Vec<&str> = words.split_whitespace().collect();
        let words = self.without_key(&words.join(" "));
        match words.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &words[..end]),
            None if words.is_empty() => "no reason given".to_owned(),
            None => words,
        }
    }

    fn read(&self, answer: &mut Response<Body>) -> Result<String, RemoteError> {
        let body = answer.body_mut().with_config().limit(LARGEST_ANSWER);
        body.read_to_string().map_err(|error| self.broken(error))
    }

    /// Why an answer that had begun did not come to its end.
    fn broken(&self, error: ureq::Error) -> RemoteError {
        match error {
            ureq::Error::Timeout(_) => self.timed_out(),
            error => RemoteError::BrokenOff {
                url: self.base.clone(),
                problem: self.without_key(&error.to_string()),
            },
        }
    }

    fn timed_out(&self) -> RemoteError {
        RemoteError::TimedOut {
            url: self.base.clone(),
            limit: self.options.timeout,
        }
    }

    fn protocol(&self, problem: &str) -> RemoteError {
        RemoteError::Protocol {
            url: self.base.clone(),
            problem: self.without_key(problem),
        }
    }

    fn without_key(&self, text: &str) -> String {
        match &self.key {
            Some(Key(key)) => text.replace(key.as_str(), "[key]"),
            None => text.to_owned(),
        }
    }
}

/// Whether trying again may help.
fn is_passing(error: &ureq::Error) -> bool {
    matches!(
        error,
        ureq::Error::Io(_)
            | ureq::Error::ConnectionFailed
            | ureq::Error::HostNotFound
            | ureq::Error::Timeout(Timeout::Connect)
    )
}

/// Whether a refusal of a chat means that the server has none: the call is not there, which is something else than
/// a model that is not, or the model has no template for chats.
fn has_no_chats(error: &RemoteError) -> bool {
    let RemoteError::Refused {
        status, message, ..
    } = error
    else {
        return false;
    };
    let says = |words: &str| message.to_ascii_lowercase().contains(words);
    match status {
        404 | 405 | 501 => !says("model"),
        400 | 422 | 500 => says("chat template") || says("chat_template"),
        _ => false,
    }
}

/// Where a server is.
#[derive(Debug)]
struct Address {
    /// Without a slash at the end.
    base: String,
    host: String,
    /// Whether it is the address of the call for texts.
    texts_only: bool,
}

/// The parts of an address; the key belongs into `variable`.
fn address_of(url: &str, variable: &str) -> Result<Address, RemoteError> {
    let refuse = |problem: &str| RemoteError::Address {
        // Whatever stands before an @ may be a password.
        url: url
            .rsplit_once('@')
            .map_or(url, |(_, after)| after)
            .to_owned(),
        problem: problem.to_owned(),
    };
    let parsed: Uri = url
        .trim()
        .parse()
        .map_err(|_| refuse("not the address of a server"))?;
    if !matches!(parsed.scheme_str(), Some("http" | "https")) {
        return Err(refuse("neither http nor https"));
    }
    let authority = parsed.authority().ok_or_else(|| refuse("no host"))?;
    if authority.as_str().contains('@') {
        return Err(refuse(&format!(
            "a name and password in the address; the key goes into {variable}"
        )));
    }
    if authority.host().is_empty() {
        return Err(refuse("no host"));
    }
    if parsed.query().is_some() {
        return Err(refuse("a query in the address"));
    }
    let path = match parsed.path().trim_end_matches('/') {
        "" => "/v1",
        path => path,
    };
    // What people copy from examples is the address of one call.
    let chats = path.strip_suffix("/chat/completions");
    let texts = path.strip_suffix("/completions");
    let scheme = parsed.scheme_str().unwrap_or("https");
    Ok(Address {
        base: format!("{scheme}://{authority}{}", chats.or(texts).unwrap_or(path)),
        host: authority.host().to_owned(),
        texts_only: chats.is_none() && texts.is_some(),
    })
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (given, base) in [
            ("http://localhost:8000", "http://localhost:8000/v1"),
            ("https://a.example/v1/", "https://a.example/v1"),
            ("http://[::1]:8/x/v1", "http://[::1]:8/x/v1"),
            (
                "https://a.example/api/v1/chat/completions",
                "https://a.example/api/v1",
            ),
        ] {
            let address = address_of(given, KEY_VARIABLE).unwrap();
            assert_eq!((address.base.as_str(), address.texts_only), (base, false));
        }
        let texts = address_of("http://localhost:8/v1/completions/", KEY_VARIABLE).unwrap();
        assert_eq!(texts.base, "http://localhost:8/v1");
        assert!(texts.texts_only);
        for bad in [
            "",
            "localhost",
            "ftp://a.example",
            "http://",
            "http:// a b",
            "https://me:secret@a.example/v1",
            "https://a.example/v1?key=7",
        ] {
            let error = address_of(bad, "MY_KEY").unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
            assert_eq!(error.contains("MY_KEY"), bad.contains('@'), "{error}");
        }
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["a.example", "localhost.a.example", "10.0.0.1", "0.0.0.0"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
