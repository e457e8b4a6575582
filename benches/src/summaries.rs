//! What benches of decoding and answering stand on: the 10,033 Wikipedia summaries of `verbatim demo` with an index of
//! their own, and the demo's models, fetched where they are not there yet.

use std::path::PathBuf;

use anyhow::Context;
use corpus_tools::manifest::MANIFEST_FILE;
use corpus_tools::reader::Input;
use corpus_tools::{BuildOptions, Index, build};
use models::encoder::SentenceEncoder;
use models::fetch::{self, FetchEvent, FetchOptions, default_cache};
use models::language_model::{LanguageModel, ModelOptions};
use models::tokenizer::Tokenizer;

/// Short names of the texts, of the language model, of the encoder that scores windows.
const TEXTS: &str = "wiki-summaries";
const MODEL: &str = "smollm2";
const ENCODER: &str = "minilm";

/// Questions that the summaries hold an answer to.
pub const QUESTIONS: [&str; 10] = [
    "Who discovered penicillin?",
    "What is the capital of Mongolia?",
    "Which treaty ended the First World War?",
    "Who painted the Mona Lisa?",
    "When did the Titanic sink?",
    "Who wrote Pride and Prejudice?",
    "What causes tides?",
    "Which planet is the largest in the Solar System?",
    "Who was the first person to walk on the Moon?",
    "What is photosynthesis?",
];

/// The folder of what benches keep from one run to the next: `VERBATIM_BENCH_DIR`, else `benches` in the cache.
///
/// # Errors
/// There is no cache folder.
pub fn folder() -> anyhow::Result<PathBuf> {
    Ok(match std::env::var_os("VERBATIM_BENCH_DIR") {
        Some(folder) => folder.into(),
        None => default_cache()?.join("benches"),
    })
}

/// Where a known asset lies, once it is there.
fn fetched(name: &str) -> anyhow::Result<PathBuf> {
    let say = |event| {
        if let FetchEvent::Licences { name, licences } = event {
            for licence in licences {
                eprintln!("fetching {name}: {}, {}", licence.covers, licence.name);
            }
        }
    };
    let options = FetchOptions {
        events: &say,
        ..FetchOptions::quiet(default_cache()?)
    };
    Ok(fetch::fetch(name, &options)?.path)
}

/// The language model of the demo, SmolLM2-135M-Instruct, on all cores.
///
/// # Errors
/// It cannot be fetched or opened.
pub fn language_model() -> anyhow::Result<LanguageModel> {
    Ok(LanguageModel::open(
        &fetched(MODEL)?,
        &ModelOptions::default(),
    )?)
}

/// The encoder that scores windows in the demo, all-MiniLM-L6-v2.
///
/// # Errors
/// It cannot be fetched or opened.
pub fn sentence_encoder() -> anyhow::Result<SentenceEncoder> {
    Ok(SentenceEncoder::open(fetched(ENCODER)?)?)
}

/// The index of the summaries for [`language_model`]; built in [`folder`] where it is not there yet.
///
/// # Errors
/// Something cannot be fetched, built or opened.
pub fn index() -> anyhow::Result<Index> {
    let texts = fetched(TEXTS)?;
    let tokenizer = Tokenizer::open(fetched(MODEL)?)?;
    let short = tokenizer.fingerprint().get(..12).unwrap_or_default();
    let folder = folder()?.join(format!("{TEXTS}-{short}.index"));
    if !folder.join(MANIFEST_FILE).exists() {
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("{}: cannot create the folder", folder.display()))?;
        eprintln!("building an index of the summaries: {}", folder.display());
        build(
            &BuildOptions::new([Input::WikiSummaries(texts)], &folder, &tokenizer),
            &(),
        )?;
    }
    Index::open(&folder).with_context(|| {
        format!(
            "{}: delete the folder, and it is built again",
            folder.display()
        )
    })
}
