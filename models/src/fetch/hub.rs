//! Models by hub name, through the `hf-hub` client and its own cache.
//!
//! The client has no time limits of its own, so it works in a thread that is left behind when
//! nothing has been heard from it for [`SILENCE`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use hf_hub::api::Progress;
use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};

use super::cache::check_file;
use super::known::known;
use super::{FetchError, FetchEvent, FetchOptions, known_names};

/// How long the hub may be silent before it counts as unreachable.
const SILENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// The files a model in safetensors may consist of, beside its shards.
const MODEL_FILES: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "sentence_bert_config.json",
    "modules.json",
    "1_Pooling/config.json",
    "model.safetensors.index.json",
    "model.safetensors",
];

/// A hub name: a repository, and one file of it where that is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HubName {
    /// As organisation/name.
    pub repository: String,
    /// A GGUF file of it.
    pub file: Option<String>,
}

impl HubName {
    /// Reads `ORGANISATION/REPOSITORY` or `ORGANISATION/REPOSITORY/FILE.gguf`.
    pub fn parse(text: &str) -> Option<HubName> {
        let parts: Vec<_> = text.split('/').collect();
        if !parts.iter().all(|part| is_plain(part)) {
            return None;
        }
        let (repository, file) = match parts.as_slice() {
            [_, _] => (text.to_owned(), None),
            [organisation, name, file @ ..] if is_gguf(text) && !file.is_empty() => {
                (format!("{organisation}/{name}"), Some(file.join("/")))
            }
            _ => return None,
        };
        Some(HubName { repository, file })
    }
}

/// Whether a part of a name is one that can't lead out of a folder.
fn is_plain(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('.')
        && part
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn is_gguf(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".gguf")
}

/// Finds the model in the hub client's cache, or downloads it. Returns the GGUF file, or the
/// folder of a model in safetensors, and whether anything was downloaded.
pub(super) fn fetch_hub(
    name: &HubName,
    options: &FetchOptions<'_>,
) -> Result<(PathBuf, bool), FetchError> {
    let cache = Cache::from_env();
    if options.is_offline() || std::env::var_os("HF_HUB_OFFLINE").is_some_and(|set| set == "1") {
        let offline = || FetchError::Offline {
            what: format!("hf:{}", name.repository),
        };
        return Ok((cached(&cache, name).ok_or_else(offline)?, false));
    }
    let downloaded = match download(name, options) {
        Err(FetchError::HubUnreachable { .. }) if cached(&cache, name).is_some() => 0,
        others => others?,
    };
    let path = cached(&cache, name).ok_or_else(|| FetchError::HubNoModel {
        repository: name.repository.clone(),
    })?;
    (options.events)(FetchEvent::Finished {
        name: format!("hf:{}", name.repository),
        folder: path.clone(),
        downloaded: downloaded > 0,
    });
    Ok((path, downloaded > 0))
}

/// What is already there.
fn cached(cache: &Cache, name: &HubName) -> Option<PathBuf> {
    let repository = cache.repo(Repo::new(name.repository.clone(), RepoType::Model));
    if let Some(file) = &name.file {
        return repository.get(file);
    }
    for weights in ["model.safetensors", "model.safetensors.index.json"] {
        if let Some(path) = repository.get(weights) {
            return path.parent().map(Path::to_path_buf);
        }
    }
    let any = repository
        .get("README.md")
        .or_else(|| repository.get("config.json"))?;
    let mut files: Vec<_> = fs::read_dir(any.parent()?)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_gguf(&path.to_string_lossy()))
        .collect();
    (files.len() == 1).then(|| files.remove(0))
}

enum Heard {
    Sizes { file: String, bytes: u64 },
    Bytes(u64),
    Done(Result<u64, Failure>),
}

enum Failure {
    Hub(String),
    Refused(String),
    Typed(FetchError),
}

/// Downloads what is missing; returns the number of files that came.
fn download(name: &HubName, options: &FetchOptions<'_>) -> Result<u64, FetchError> {
    let what = format!("hf:{}", name.repository);
    (options.events)(FetchEvent::Started {
        name: what.clone(),
        bytes: 0,
    });
    let (sender, receiver) = mpsc::channel();
    let wanted = name.clone();
    thread::spawn(move || {
        let result = work(&wanted, &sender);
        let _ = sender.send(Heard::Done(result));
    });
    let unreachable = |problem: String| FetchError::HubUnreachable {
        repository: name.repository.clone(),
        problem,
        known: known_names(known()),
    };
    let mut heard = Instant::now();
    let (mut done, mut total) = (0, 0);
    let mut last_file = String::new();
    loop {
        options.go_on(&what)?;
        match receiver.recv_timeout(POLL) {
            Ok(Heard::Sizes { file, bytes }) => {
                // The client announces a file twice.
                if file != last_file {
                    total += bytes;
                    last_file = file;
                }
                heard = Instant::now();
            }
            Ok(Heard::Bytes(bytes)) => {
                done = (done + bytes).min(total);
                (options.events)(FetchEvent::Progress { done, total });
                heard = Instant::now();
            }
            Ok(Heard::Done(Ok(files))) => return Ok(files),
            Ok(Heard::Done(Err(Failure::Hub(problem)))) => return Err(unreachable(problem)),
            Ok(Heard::Done(Err(Failure::Refused(problem)))) => {
                return Err(FetchError::HubRefused {
                    repository: name.repository.clone(),
                    problem,
                });
            }
            Ok(Heard::Done(Err(Failure::Typed(error)))) => return Err(error),
            Err(RecvTimeoutError::Timeout) if heard.elapsed() > SILENCE => {
                return Err(unreachable(format!("no answer in {} s", SILENCE.as_secs())));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(unreachable("its client failed".into()));
            }
        }
    }
}

/// The client's side, in its own thread.
fn work(name: &HubName, sender: &Sender<Heard>) -> Result<u64, Failure> {
    let api = ApiBuilder::from_env()
        .with_progress(false)
        .with_retries(2)
        .build()
        .map_err(failure)?;
    let repository = api.model(name.repository.clone());
    let wanted = match &name.file {
        Some(file) => vec![file.clone()],
        None => {
            let info = repository.info().map_err(failure)?;
            let offered: Vec<_> = info
                .siblings
                .into_iter()
                .map(|file| file.rfilename)
                .collect();
            choose(&name.repository, &offered).map_err(Failure::Typed)?
        }
    };
    let cache = Cache::from_env().repo(Repo::new(name.repository.clone(), RepoType::Model));
    let mut count = 0;
    for file in wanted {
        if cache.get(&file).is_some() {
            continue;
        }
        download_one(&repository, &file, sender)?;
        count += 1;
    }
    Ok(count)
}

fn download_one(repository: &ApiRepo, file: &str, sender: &Sender<Heard>) -> Result<(), Failure> {
    let path = repository
        .download_with_progress(file, Teller(sender.clone()))
        .map_err(failure)?;
    // The hub names the blob of a large file by its SHA-256, and the client does not check it.
    let blob = fs::canonicalize(&path).unwrap_or(path.clone());
    let sum = blob
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let bytes = fs::metadata(&blob)
            .map(|metadata| metadata.len())
            .unwrap_or(0);
        let quiet = FetchOptions::quiet(PathBuf::new());
        if let Err(error) = check_file(&blob, bytes, &sum, file, &quiet) {
            // Gone, so that it is not taken for good the next time.
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(&blob);
            return Err(Failure::Typed(error));
        }
    }
    Ok(())
}

/// Which of the offered files make up the model.
fn choose(repository: &str, offered: &[String]) -> Result<Vec<String>, FetchError> {
    let is_shard =
        |file: &str| is_plain(file) && file.starts_with("model-") && file.ends_with(".safetensors");
    if offered
        .iter()
        .any(|file| file == "model.safetensors" || is_shard(file))
    {
        let is_wanted = |file: &&String| MODEL_FILES.contains(&file.as_str()) || is_shard(file);
        let mut wanted: Vec<_> = offered.iter().filter(is_wanted).cloned().collect();
        // What is found first decides whether a model is there: the weights come last.
        wanted.sort_by_key(|file| file.starts_with("model"));
        return Ok(wanted);
    }
    let files: Vec<_> = offered
        .iter()
        .filter(|file| is_gguf(file) && file.split('/').all(is_plain))
        .collect();
    match files.as_slice() {
        [] => Err(FetchError::HubNoModel {
            repository: repository.to_owned(),
        }),
        [file] => {
            let readme = offered.iter().find(|file| *file == "README.md");
            Ok(readme.into_iter().chain([*file]).cloned().collect())
        }
        [first, ..] => Err(FetchError::HubAmbiguous {
            repository: repository.to_owned(),
            first: (*first).clone(),
            files: files
                .iter()
                .map(|file| file.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

fn failure(error: ApiError) -> Failure {
    let problem = error.to_string();
    match error {
        ApiError::IoError(source) if source.kind() == std::io::ErrorKind::StorageFull => {
            Failure::Typed(FetchError::io("write", Cache::from_env().path())(source))
        }
        ApiError::RequestError(_) if problem.contains("http status") => Failure::Refused(problem),
        _ => Failure::Hub(problem),
    }
}

struct Teller(Sender<Heard>);

impl Progress for Teller {
    fn init(&mut self, size: usize, filename: &str) {
        let _ = self.0.send(Heard::Sizes {
            file: filename.to_owned(),
            bytes: size as u64,
        });
    }

    fn update(&mut self, size: usize) {
        let _ = self.0.send(Heard::Bytes(size as u64));
    }

    fn finish(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[&str]) -> Vec<String> {
        files.iter().map(|file| (*file).to_owned()).collect()
    }

    #[test]
    fn hub_names_are_read() {
        let name = HubName::parse("org/model.v1_2-x").expect("a repository");
        assert_eq!(
            (name.repository.as_str(), name.file),
            ("org/model.v1_2-x", None)
        );
        let name = HubName::parse("org/model/sub/a.Q4.gguf").expect("a file");
        assert_eq!(name.repository, "org/model");
        assert_eq!(name.file.as_deref(), Some("sub/a.Q4.gguf"));
        for wrong in [
            "",
            "model",
            "/model",
            "org/",
            "../model",
            "org/..",
            "a/b/c",
            "a/b/../c.gguf",
            "a b/c",
            "a\\b/c",
            "C:/x",
        ] {
            assert_eq!(HubName::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn only_files_of_the_model_are_chosen() {
        let offered = names(&[
            "model.safetensors",
            "pytorch_model.bin",
            "config.json",
            "onnx/model.onnx",
            "1_Pooling/config.json",
            "README.md",
            "../../evil.json",
            "model-../x.safetensors",
        ]);
        let chosen = choose("o/r", &offered).expect("a model");
        assert_eq!(
            chosen,
            names(&["config.json", "1_Pooling/config.json", "model.safetensors"])
        );
    }

    #[test]
    fn one_gguf_is_taken_and_several_are_named() {
        assert_eq!(
            choose("o/r", &names(&["README.md", "a.gguf"])).ok(),
            Some(names(&["README.md", "a.gguf"]))
        );
        let several = choose("o/r", &names(&["a.gguf", "b.gguf"]));
        assert!(matches!(several, Err(FetchError::HubAmbiguous { .. })));
        let none = choose("o/r", &names(&["pytorch_model.bin", "../x.gguf"]));
        assert!(matches!(none, Err(FetchError::HubNoModel { .. })));
    }
}
