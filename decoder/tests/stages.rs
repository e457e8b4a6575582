//! The stage machine with logits that say what the model wants: stages come in order, a model that wants no more
//! evidence answers, one that never stops is stopped.

use std::sync::Arc;

use corpus_tools::store::Paragraph;
use decoder::candidates::Candidate;
use decoder::evidence::EvidenceWriter;
use decoder::format::{ControlFormat, Format, Markers, Stage};
use decoder::session::{LogitsSource, Session};
use decoder::settings::{Alignment, EvidenceSettings};
use decoder::stages::StagedSession;
use decoder::windows::Window;
use fmindex::{DocumentId, DocumentIndex};
use models::ModelError;
use models::tokenizer::Tokenizer;

const SEPARATOR: u32 = 300;
const NAMES: [&str; 5] = ["<clue>", "</clue>", "<quote>", "</quote>", "<next>"];
const CLUE: u32 = 256;
const CLUE_END: u32 = 257;
const QUOTE: u32 = 258;
const QUOTE_END: u32 = 259;
const NEXT: u32 = 260;

/// Bytes are tokens, and the control tokens follow them.
fn tokenizer() -> Tokenizer {
    let definition = include_str!("../../models/tests/fixtures/bytes.json");
    let mut json: serde_json::Value = serde_json::from_str(definition).unwrap();
    let added: Vec<serde_json::Value> = NAMES
        .iter()
        .zip(256..)
        .map(|(name, id)| serde_json::json!({"id": id, "content": name, "special": true}))
        .collect();
    json["added_tokens"] = added.into();
    Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
}

fn format(separator: &str) -> Format {
    let name = |at: usize| NAMES[at].to_owned();
    Format::Control(ControlFormat {
        clue: name(0),
        clue_end: name(1),
        evidence: name(2),
        evidence_end: name(3),
        separator: separator.to_owned(),
        lead: " So".to_owned(),
        ..ControlFormat::default()
    })
}

/// What a model wants next: tokens and their logits after a context; all others have 0.
type Wish = fn(&[u32]) -> Vec<(u32, f32)>;

struct Wishing {
    context: Vec<u32>,
    wish: Wish,
}

impl Wishing {
    fn logits(&self) -> Vec<f32> {
        let mut logits = vec![0.0; 301];
        for (token, logit) in (self.wish)(&self.context) {
            logits[token as usize] = logit;
        }
        logits
    }
}

impl LogitsSource for Wishing {
    fn append(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        self.context.extend_from_slice(tokens);
        Ok(self.logits())
    }

    fn append_for_last(
        &mut self,
        tokens: &[u32],
        rows: usize,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut logits = Vec::new();
        for &token in tokens {
            self.context.push(token);
            logits.push(self.logits());
        }
        Ok(logits.split_off(tokens.len() - rows))
    }

    fn truncate(&mut self, length: usize) {
        self.context.truncate(length);
    }

    fn vocabulary_size(&self) -> usize {
        301
    }

    fn end_tokens(&self) -> &[u32] {
        &[]
    }

    fn context_length(&self) -> usize {
        1 << 20
    }
}

/// A document of four sentences with a window over each.
fn ground(tokenizer: &Tokenizer) -> (Vec<Candidate>, Vec<Window>) {
    let sentences = [
        " One is red.",
        " Two is green.",
        " Six is blue.",
        " Ten is grey.",
    ];
    let mut tokens = tokenizer.encode_text(" T");
    tokens.push(SEPARATOR);
    let mut windows = Vec::new();
    let from = tokens.len() as u32;
    for (at, sentence) in sentences.iter().enumerate() {
        let start = tokens.len() as u32;
        tokens.extend(tokenizer.encode_text(sentence));
        windows.push(Window {
            member: 0,
            start,
            end: tokens.len() as u32,
            score: Some(4.0 - at as f32),
            bonus: 0.0,
            relevance: 0.0,
        });
    }
    let paragraph = |number, tokens| Paragraph {
        number,
        tokens,
        bytes: 0..0,
    };
    let paragraphs = vec![
        paragraph(0, 0..from - 1),
        paragraph(1, from..tokens.len() as u32),
    ];
    tokens.push(SEPARATOR);
    let document = DocumentId {
        segment: 0,
        document: 0,
    };
    let index = Arc::new(DocumentIndex::build(&tokens, SEPARATOR));
    let names = ("d".to_owned(), "T".to_owned());
    let candidate = Candidate::new(document, names, 1.0, paragraphs, index, tokenizer);
    (vec![candidate], windows)
}

/// A clue that is given, then evidence until the model turns to the answer or four pieces are written: what was
/// written, control tokens by name.
fn write(format: &Format, wish: Wish) -> String {
    let tokenizer = tokenizer();
    let markers = Markers::new(format, &tokenizer).unwrap();
    let context = Vec::new();
    let session = Session::new(Wishing { context, wish }, Vec::new());
    let mut staged = StagedSession::new(session, &markers);
    staged.session.push(&tokenizer.encode_text("Question: Q"));
    assert_eq!(staged.turn(&[Stage::Clue]).unwrap(), Some(Stage::Clue));
    staged.session.push(&tokenizer.encode_text(" red"));
    let settings = EvidenceSettings {
        alignment: Alignment::Sentence,
        close_from: Some(1),
        ..EvidenceSettings::default()
    };
    let (candidates, windows) = ground(&tokenizer);
    let mut writer =
        EvidenceWriter::new(candidates, windows, &settings, markers.closing_evidence());
    let mut pieces = 0;
    while pieces < 4 {
        let opening = writer.next_opening().unwrap();
        let choices: &[Stage] = match pieces >= 1 {
            true => &[Stage::Evidence, Stage::Answer],
            false => &[Stage::Evidence],
        };
        if staged.turn(choices).unwrap() == Some(Stage::Answer) {
            break;
        }
        writer
            .write(&mut staged.session, &opening)
            .unwrap()
            .unwrap();
        pieces += 1;
    }
    if staged.standing() != Some(Stage::Answer) {
        staged.turn(&[Stage::Answer]).unwrap();
    }
    let tokens = staged.session.tokens();
    let text = |&token: &u32| match tokenizer.control_content(token) {
        Some(name) => name.to_owned(),
        None => tokenizer.decode(&[token]),
    };
    tokens.iter().map(text).collect()
}

/// Ends every piece at the first sentence end, and after `pieces` of them the stage.
fn wishes_for(context: &[u32], pieces: usize) -> Vec<(u32, f32)> {
    let begun = context
        .iter()
        .filter(|&&token| token == QUOTE || token == NEXT);
    match begun.count() >= pieces {
        true => vec![(QUOTE_END, 5.0), (NEXT, 4.0)],
        false => vec![(QUOTE_END, 4.0), (NEXT, 5.0), (QUOTE, 3.0)],
    }
}

#[test]
fn a_model_that_wants_no_more_evidence_answers() {
    let separated = format("<next>");
    assert_eq!(
        write(&separated, |context| wishes_for(context, 2)),
        "Question: Q<clue> red</clue><quote> One is red. <next>Two is green. </quote> So"
    );
    // Without a separator every piece is opened by itself, and what the next opens with is compared.
    let apart = |context: &[u32]| {
        let begun = context.iter().filter(|&&token| token == QUOTE).count();
        match context.last() {
            Some(&QUOTE_END) if begun >= 2 => vec![(u32::from(b' '), 5.0), (QUOTE, 4.0)],
            Some(&QUOTE_END) => vec![(u32::from(b' '), 4.0), (QUOTE, 5.0)],
            _ => vec![(QUOTE_END, 5.0)],
        }
    };
    assert_eq!(
        write(&format(""), apart),
        "Question: Q<clue> red</clue><quote> One is red. </quote><quote>Two is green. </quote> So"
    );
}

#[test]
fn a_model_that_never_stops_is_stopped() {
    let text = write(&format("<next>"), |_| vec![(QUOTE_END, 1.0), (NEXT, 5.0)]);
    assert_eq!(
        text,
        "Question: Q<clue> red</clue><quote> One is red. <next>Two is green. <next>Six is blue. <next>Ten is grey.\
         </quote> So"
    );
}

#[test]
fn lines_are_told_apart_by_their_labels() {
    let lines = |context: &[u32]| {
        let wanted = if context.ends_with(b"green. \n".map(u32::from).as_slice()) {
            b'A'
        } else {
            b'E'
        };
        vec![(u32::from(b'\n'), 4.0), (u32::from(wanted), 3.0)]
    };
    assert_eq!(
        write(&Format::Lines, lines),
        "Question: Q\nClue: red\nEvidence: One is red. \nEvidence:Two is green. \nAnswer:"
    );
}

#[test]
fn what_is_taken_back_leaves_the_stage_as_it_was() {
    let tokenizer = tokenizer();
    let markers = Markers::new(&format("<next>"), &tokenizer).unwrap();
    let source = Wishing {
        context: Vec::new(),
        wish: |_| vec![(NEXT, 1.0)],
    };
    let mut staged = StagedSession::new(Session::new(source, Vec::new()), &markers);
    staged.session.push(&[1]);
    let question = staged.mark();
    staged.turn(&[Stage::Clue]).unwrap();
    staged.session.push(&[2]);
    let clue = staged.mark();
    staged.turn(&[Stage::Clue, Stage::Evidence]).unwrap();
    assert_eq!(staged.session.tokens(), [1, CLUE, 2, NEXT]);
    staged.back_to(clue);
    staged.turn(&[Stage::Evidence]).unwrap();
    assert_eq!(staged.session.tokens(), [1, CLUE, 2, CLUE_END, QUOTE]);
    staged.back_to(question);
    assert_eq!(
        (staged.session.tokens(), staged.standing()),
        (&[1][..], None)
    );
    assert_eq!(staged.turn(&[]).unwrap(), None);
}
