//! The protocol's edges against a small server on the loopback address: what it answers is written by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use models::chat::Message;
use models::remote::{Prompt, RemoteError, RemoteModel, RemoteOptions, Request};

/// What the server was asked: the first line, the headers in lower case, the body.
struct Asked {
    line: String,
    headers: String,
    body: serde_json::Value,
}

/// How the server answers one request.
#[derive(Clone)]
enum Reply {
    /// Status line and headers after the protocol's version, and the body.
    Whole(&'static str, String),
    /// Bytes as they are, then the connection is closed.
    Raw(Vec<u8>),
    /// Bytes as they are, then nothing, for longer than anyone waits.
    Silence(Vec<u8>),
}

/// A server that gives these replies, one a connection, and then stops. Returns its address and what it was asked.
fn serve(replies: Vec<Reply>) -> (String, Receiver<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for reply in replies {
            let Ok((stream, _)) = listener.accept() else {
                return;
            };
            let asked = read_request(&stream);
            if sender.send(asked).is_err() {
                return;
            }
            answer(stream, reply);
        }
    });
    (address, receiver)
}

fn read_request(stream: &TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut headers = String::new();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        if header.trim().is_empty() {
            break;
        }
        let header = header.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        headers.push_str(&header);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Asked {
        line: line.trim().to_owned(),
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    }
}

fn answer(mut stream: TcpStream, reply: Reply) {
    match reply {
        Reply::Whole(head, body) => {
            let _ = write!(
                stream,
                "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
        Reply::Raw(bytes) => {
            let _ = stream.write_all(&bytes);
        }
        Reply::Silence(bytes) => {
            let _ = stream.write_all(&bytes);
            std::thread::sleep(Duration::from_secs(5));
        }
    }
}

fn json(body: &str) -> Reply {
    Reply::Whole("200 OK\r\ncontent-type: application/json", body.to_owned())
}

/// A stream of events in chunks, as servers send it.
fn events(parts: &[&str]) -> Reply {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec();
    for part in parts {
        bytes.extend(format!("{:x}\r\n{part}\r\n", part.len()).into_bytes());
    }
    bytes.extend(b"0\r\n\r\n");
    Reply::Raw(bytes)
}

fn options() -> RemoteOptions<'static> {
    RemoteOptions {
        // A variable that nobody sets.
        key_variable: "VERBATIM_TEST_NO_KEY".to_owned(),
        timeout: Duration::from_secs(2),
        attempts: 3,
        pause: Duration::from_millis(5),
        interrupted: &|| false,
    }
}

fn connect(address: &str) -> RemoteModel<'static> {
    RemoteModel::connect(&format!("{address}#m"), options()).unwrap()
}

fn request(messages: &[Message], samples: usize) -> Request<'_> {
    Request {
        prompt: Prompt::Chat(messages),
        most_tokens: 7,
        temperature: 1.0,
        top_p: 0.9,
        top_k: 50,
        seed: 3,
        samples,
        log_probabilities: false,
    }
}

const PARIS: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Paris"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":1}}"#;

#[test]
fn a_chat_is_asked_and_answered() {
    let (address, asked) = serve(vec![json(PARIS)]);
    let messages = [Message::new("user", "Capital of France? <|im_end|>")];
    let answer = connect(&address).complete(&request(&messages, 1)).unwrap();
    assert_eq!(answer.choices[0].text, "Paris");
    assert_eq!(
        (answer.prompt_tokens, answer.written_tokens),
        (Some(11), Some(1))
    );
    let asked = asked.recv().unwrap();
    assert_eq!(asked.line, "POST /v1/chat/completions HTTP/1.1");
    assert!(
        !asked.headers.contains("authorization"),
        "{}",
        asked.headers
    );
    assert_eq!(asked.body["model"], "m");
    assert_eq!(asked.body["max_tokens"], 7);
    assert_eq!(asked.body["seed"], 3);
    assert!(asked.body.get("n").is_none() && asked.body.get("stream").is_none());
    assert_eq!(
        asked.body["messages"][0]["content"],
        "Capital of France? < |im_end|>"
    );
}

#[test]
fn texts_and_their_probabilities() {
    let reply = r#"{"choices":[{"text":" Paris.","index":0,"logprobs":{"tokens":[" Paris","."],"token_logprobs":[-0.25,-1.0]},"finish_reason":"length"}]}"#;
    let (address, asked) = serve(vec![json(reply)]);
    let ask = Request {
        prompt: Prompt::Text("The capital of France is"),
        log_probabilities: true,
        ..request(&[], 1)
    };
    let answer = connect(&address).complete(&ask).unwrap();
    assert_eq!(answer.choices[0].tokens[1].log_probability, -1.0);
    assert_eq!(answer.choices[0].finish.as_deref(), Some("length"));
    let asked = asked.recv().unwrap();
    assert_eq!(asked.line, "POST /v1/completions HTTP/1.1");
    assert_eq!(asked.body["logprobs"], 1);
}

const TEXT: &str = r#"{"choices":[{"index":0,"text":" Paris","finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;

#[test]
fn a_server_without_chats_is_given_texts() {
    let messages = [
        Message::new("system", "Answer."),
        Message::new("user", "Capital of France? <|im_end|>"),
    ];
    let prompt = "Answer.\n\nUser: Capital of France? < |im_end|>\n\nAssistant:";
    for (head, body) in [
        ("404 Not Found", "{\"detail\":\"Not Found\"}"),
        ("405 Method Not Allowed", ""),
        ("501 Not Implemented", ""),
        (
            "400 Bad Request",
            "{\"error\":{\"message\":\"As of transformers v4.44, you must provide a chat template\"}}",
        ),
    ] {
        let refusal = Reply::Whole(head, body.to_owned());
        let streamed = events(&[
            "data: {\"choices\":[{\"index\":0,\"text\":\" Par\"}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"text\":\"is\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        ]);
        let (address, asked) = serve(vec![refusal, json(TEXT), streamed]);
        let model = connect(&address);
        let answer = model.complete(&request(&messages, 1)).unwrap();
        assert_eq!(answer.choices[0].text, " Paris", "{head}");
        let mut text = String::new();
        model
            .stream(&request(&messages, 1), &mut |piece| text.push_str(piece))
            .unwrap();
        assert_eq!(text, " Paris");
        let asked: Vec<Asked> = asked.iter().collect();
        let lines: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
        // Asked for a chat once only.
        assert_eq!(
            lines,
            [
                "POST /v1/chat/completions HTTP/1.1",
                "POST /v1/completions HTTP/1.1",
                "POST /v1/completions HTTP/1.1"
            ]
        );
        for asked in &asked[1..] {
            assert_eq!(asked.body["prompt"], prompt);
            assert_eq!(asked.body["stop"], serde_json::json!(["\nUser:"]));
            assert!(asked.body.get("messages").is_none());
            assert_eq!(asked.body["max_tokens"], 7);
        }
    }
    // By its address, at once.
    let (address, asked) = serve(vec![json(TEXT)]);
    connect(&format!("{address}/v1/completions"))
        .complete(&request(&messages, 1))
        .unwrap();
    assert_eq!(asked.recv().unwrap().line, "POST /v1/completions HTTP/1.1");
}

#[test]
fn a_server_with_neither_says_what_it_said_of_the_chat() {
    let messages = [Message::new("user", "?")];
    let refuse = |words: &str| {
        let body = serde_json::json!({"error": {"message": words}}).to_string();
        Reply::Whole("404 No", body)
    };
    let (address, asked) = serve(vec![refuse("no such page"), refuse("nor this one")]);
    let error = connect(&address)
        .complete(&request(&messages, 1))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no such page"), "{error}");
    assert_eq!(asked.iter().count(), 2);
}

#[test]
fn probabilities_of_a_chat() {
    let reply = r#"{"choices":[{"index":0,"message":{"content":"Paris."},"logprobs":{"content":[{"token":"Paris","logprob":-0.25,"top_logprobs":[]},{"token":".","logprob":-1.0}]},"finish_reason":"stop"}]}"#;
    let (address, asked) = serve(vec![json(reply), json(PARIS)]);
    let messages = [Message::new("user", "Capital of France?")];
    let ask = Request {
        log_probabilities: true,
        ..request(&messages, 1)
    };
    let model = connect(&address);
    let answer = model.complete(&ask).unwrap();
    let tokens: Vec<(&str, f32)> = answer.choices[0]
        .tokens
        .iter()
        .map(|token| (token.text.as_str(), token.log_probability))
        .collect();
    assert_eq!(tokens, [("Paris", -0.25), (".", -1.0)]);
    assert_eq!(asked.recv().unwrap().body["logprobs"], true);
    // A server that gives none is no error.
    let answer = model.complete(&ask).unwrap();
    assert!(answer.choices[0].tokens.is_empty());
}

#[test]
fn a_stream_comes_in_pieces() {
    let (address, asked) = serve(vec![events(&[
        ": hello\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\nda",
        "ta: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Pa",
        "r\"}}]}\r\n\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"is é\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
    ])]);
    let messages = [Message::new("user", "?")];
    let mut pieces = Vec::new();
    let answer = connect(&address)
        .stream(&request(&messages, 1), &mut |piece| {
            pieces.push(piece.to_owned())
        })
        .unwrap();
    assert_eq!(pieces, ["Par", "is é"]);
    assert_eq!(answer.choices[0].text, "Paris é");
    assert_eq!(answer.written_tokens, Some(2));
    assert_eq!(asked.recv().unwrap().body["stream"], true);
}

#[test]
fn a_server_that_cannot_stream_answers_at_once() {
    let (address, _asked) = serve(vec![json(PARIS)]);
    let mut text = String::new();
    let messages = [Message::new("user", "?")];
    connect(&address)
        .stream(&request(&messages, 1), &mut |piece| text.push_str(piece))
        .unwrap();
    assert_eq!(text, "Paris");
}

#[test]
fn a_stream_that_breaks_off_is_an_error() {
    let messages = [Message::new("user", "?")];
    let piece = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\n";
    for reply in [
        events(&[piece]),
        events(&[]),
        Reply::Raw(
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{piece}",
                piece.len()
            )
            .into_bytes(),
        ),
    ] {
        let (address, _asked) = serve(vec![reply]);
        let error = connect(&address)
            .stream(&request(&messages, 1), &mut |_| {})
            .unwrap_err();
        assert!(matches!(error, RemoteError::BrokenOff { .. }), "{error}");
    }
    let (address, _asked) = serve(vec![events(&[
        "data: {\"error\":{\"message\":\"out of memory\"}}\n\n",
    ])]);
    let error = connect(&address)
        .stream(&request(&messages, 1), &mut |_| {})
        .unwrap_err();
    assert!(error.to_string().contains("out of memory"), "{error}");
}

#[test]
fn a_busy_server_is_asked_again() {
    let busy = Reply::Whole("503 Busy\r\nretry-after: 0", "busy".to_owned());
    let (address, asked) = serve(vec![
        busy.clone(),
        Reply::Whole("429 Slowly", "{\"error\":\"slowly\"}".to_owned()),
        json(PARIS),
    ]);
    let messages = [Message::new("user", "?")];
    let model = connect(&address);
    assert!(model.complete(&request(&messages, 1)).is_ok());
    assert_eq!(asked.iter().take(3).count(), 3);
    // Not for ever.
    let (address, asked) = serve(vec![busy; 5]);
    let error = connect(&address)
        .complete(&request(&messages, 1))
        .unwrap_err();
    assert!(
        matches!(&error, RemoteError::Busy { status: 503, attempts: 3, message, .. } if message == "busy"),
        "{error}"
    );
    assert_eq!(asked.try_iter().count(), 3);
}

#[test]
fn refusals_are_told_apart() {
    let messages = [Message::new("user", "?")];
    for (head, body, words) in [
        (
            "401 No",
            "{\"error\":{\"message\":\"no key\"}}",
            &["401", "no key", "variable VERBATIM_TEST_NO_KEY"][..],
        ),
        ("403 No", "", &["403", "key"]),
        (
            "404 No",
            "{\"detail\":\"no such model\"}",
            &["404", "no such model", "#MODEL"],
        ),
        (
            "400 No",
            "{\"error\":{\"message\":\"maximum context length is 512\"}}",
            &["400", "context", "fewer chunks"],
        ),
        (
            "301 Moved\r\nlocation: http://elsewhere.example/",
            "",
            &["301", "elsewhere"],
        ),
        (
            "418 Teapot",
            "<html>short\nand stout</html>",
            &["418", "short and stout"],
        ),
    ] {
        let (address, asked) = serve(vec![Reply::Whole(head, body.to_owned())]);
        let error = connect(&address)
            .complete(&request(&messages, 1))
            .unwrap_err()
            .to_string();
        for word in words {
            assert!(error.contains(word), "{word} is missing in: {error}");
        }
        assert_eq!(asked.iter().count(), 1, "{error}");
    }
}

#[test]
fn fields_that_a_server_does_not_know_are_left_out() {
    let refuse = |field: &str| {
        Reply::Whole(
            "400 Bad Request",
            format!(
                "{{\"error\":{{\"message\":\"Unrecognized request argument supplied: {field}\"}}}}"
            ),
        )
    };
    let rename = Reply::Whole(
        "400 Bad Request",
        "{\"error\":{\"message\":\"Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.\"}}".to_owned(),
    );
    let (address, asked) = serve(vec![
        refuse("top_k"),
        rename,
        json(PARIS),
        json(PARIS),
        json(PARIS),
    ]);
    let messages = [Message::new("user", "?")];
    let model = connect(&address);
    model.complete(&request(&messages, 1)).unwrap();
    // What was refused is not said again, whole or streamed.
    model.complete(&request(&messages, 1)).unwrap();
    model.stream(&request(&messages, 1), &mut |_| {}).unwrap();
    let asked: Vec<_> = asked.iter().map(|asked| asked.body).collect();
    assert_eq!(asked.len(), 5);
    for body in &asked[2..] {
        assert!(body.get("top_k").is_none() && body.get("max_tokens").is_none());
        assert_eq!(body["max_completion_tokens"], 7);
    }
}

#[test]
fn fewer_texts_than_were_asked_for() {
    let (address, asked) = serve(vec![json(PARIS), json(PARIS), json(PARIS)]);
    let messages = [Message::new("user", "?")];
    let answer = connect(&address).complete(&request(&messages, 3)).unwrap();
    assert_eq!(answer.choices.len(), 3);
    assert_eq!((answer.written_tokens, answer.requests), (Some(3), 3));
    let seeds: Vec<u64> = asked
        .iter()
        .map(|asked| asked.body["seed"].as_u64().unwrap())
        .collect();
    assert_eq!(seeds, [3, 4, 5]);
}

#[test]
fn answers_that_are_none() {
    let messages = [Message::new("user", "?")];
    for body in [
        "",
        "hello",
        "{}",
        "[]",
        "{\"choices\":[]}",
        "{\"choices\":null}",
    ] {
        let (address, _asked) = serve(vec![json(body)]);
        let error = connect(&address)
            .complete(&request(&messages, 1))
            .unwrap_err();
        assert!(
            matches!(error, RemoteError::Protocol { .. }),
            "{body:?}: {error}"
        );
    }
    let (address, _asked) = serve(vec![Reply::Raw(b"SSH-2.0-x\r\n".to_vec()); 3]);
    assert!(connect(&address).complete(&request(&messages, 1)).is_err());
}

#[test]
fn nobody_waits_for_ever() {
    let messages = [Message::new("user", "?")];
    let short = RemoteOptions {
        timeout: Duration::from_millis(200),
        ..options()
    };
    // Silence before an answer, within one, and within a stream.
    let head = "HTTP/1.1 200 OK\r\ncontent-type: ";
    for begun in [
        String::new(),
        format!("{head}application/json\r\ncontent-length: 900\r\n\r\n{{"),
        format!(
            "{head}text/event-stream\r\n\r\ndata: {{\"choices\":[{{\"delta\":{{\"content\":\"Par\"}}}}]}}\n\n"
        ),
    ] {
        for streams in [false, true] {
            let (address, _asked) = serve(vec![Reply::Silence(begun.clone().into_bytes())]);
            let model = RemoteModel::connect(&format!("{address}#m"), short.clone()).unwrap();
            let ask = request(&messages, 1);
            let answer = match streams {
                true => model.stream(&ask, &mut |_| {}),
                false => model.complete(&ask),
            };
            let error = answer.unwrap_err();
            assert!(
                matches!(error, RemoteError::TimedOut { .. }),
                "{begun}: {error}"
            );
        }
    }
    // A port that nobody listens on.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let error = connect(&address)
        .complete(&request(&messages, 1))
        .unwrap_err();
    assert!(
        matches!(error, RemoteError::Unreachable { attempts: 3, .. }),
        "{error}"
    );
    // One that takes no more connections, since nobody accepts those that wait.
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = full.local_addr().unwrap();
    let waiting: Vec<TcpStream> = std::iter::from_fn(|| {
        TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok()
    })
    .take(10_000)
    .collect();
    let model = RemoteModel::connect(&format!("http://{address}#m"), short).unwrap();
    let error = model.complete(&request(&messages, 1)).unwrap_err();
    assert!(
        matches!(error, RemoteError::Unreachable { attempts: 3, .. }),
        "{error}"
    );
    drop(waiting);
    let stopped = RemoteOptions {
        interrupted: &|| true,
        ..options()
    };
    let model = RemoteModel::connect(&format!("http://{address}#m"), stopped).unwrap();
    let error = model.complete(&request(&messages, 1)).unwrap_err();
    assert!(matches!(error, RemoteError::Interrupted), "{error}");
}

#[test]
fn the_server_names_its_model() {
    let (address, asked) = serve(vec![json(
        "{\"data\":[{\"id\":\"small\"},{\"id\":\"big\"}]}",
    )]);
    let model = RemoteModel::connect(&address, options()).unwrap();
    assert_eq!(model.name(), "small");
    assert_eq!(asked.recv().unwrap().line, "GET /v1/models HTTP/1.1");
    let (address, _asked) = serve(vec![json("{\"data\":[]}")]);
    let error = RemoteModel::connect(&address, options()).unwrap_err();
    assert!(error.to_string().contains("#MODEL"), "{error}");
}

#[test]
fn a_key_is_sent_in_one_header_and_never_shown() {
    // A variable that cargo sets stands in for a key: setting one is not safe while other tests run.
    let variable = "CARGO_PKG_NAME";
    let key = std::env::var(variable).unwrap();
    let with_key = RemoteOptions {
        key_variable: variable.to_owned(),
        ..options()
    };
    let reply = Reply::Whole(
        "401 No",
        format!("{{\"error\":{{\"message\":\"bad key {key}!\"}}}}"),
    );
    let (address, asked) = serve(vec![reply]);
    let model = RemoteModel::connect(&format!("{address}#m"), with_key.clone()).unwrap();
    let messages = [Message::new("user", "?")];
    let error = model.complete(&request(&messages, 1)).unwrap_err();
    assert!(error.to_string().contains("bad key [key]!"), "{error}");
    assert!(error.to_string().contains(variable), "{error}");
    assert!(!format!("{model:?} {error:?}").contains(&format!("{key}!")));
    let asked = asked.recv().unwrap();
    assert!(
        asked
            .headers
            .contains(&format!("authorization: bearer {key}"))
    );
    // Not in the clear to another machine.
    let error = RemoteModel::connect("http://a.example/v1#m", with_key).unwrap_err();
    assert!(
        matches!(error, RemoteError::KeyInTheClear { .. }),
        "{error}"
    );
    assert!(!error.to_string().contains(&format!("{key};")));
}
