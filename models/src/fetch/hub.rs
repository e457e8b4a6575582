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
use hf_hub::{Cache, CacheRepo, Repo, RepoType};

use super::cache::check_file;
use super::known::{AssetKind, known};
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

/// Where the hub is and where its client keeps files.
#[derive(Clone)]
struct Hub {
    endpoint: Option<String>,
    cache: Cache,
    silence: Duration,
}

/// Finds the model in the hub client's cache, or downloads it. Returns the GGUF file, or the
/// folder of a model in safetensors, and whether anything was downloaded. The client's own
/// variables count: `HF_HOME`, `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`.
pub(super) fn fetch_hub(
    name: &HubName,
    options: &FetchOptions<'_>,
) -> Result<(PathBuf, bool), FetchError> {
    let hub = Hub {
        endpoint: std::env::var("HF_ENDPOINT")
            .ok()
            .filter(|endpoint| !endpoint.is_empty()),
        cache: Cache::from_env(),
        silence: SILENCE,
    };
    let offline =
        options.is_offline() || std::env::var_os("HF_HUB_OFFLINE").is_some_and(|set| set == "1");
    hub.fetch(name, offline, options)
}

impl Hub {
    fn fetch(
        &self,
        name: &HubName,
        offline: bool,
        options: &FetchOptions<'_>,
    ) -> Result<(PathBuf, bool), FetchError> {
        if offline {
            let refused = || FetchError::Offline {
                what: format!("hf:{}", name.repository),
            };
            return Ok((self.cached(name).ok_or_else(refused)?, false));
        }
        let downloaded = match self.download(name, options) {
            Err(FetchError::HubUnreachable { .. }) if self.cached(name).is_some() => 0,
            others => others?,
        };
        let path = self.cached(name).ok_or_else(|| FetchError::HubNoModel {
            repository: name.repository.clone(),
        })?;
        (options.events)(FetchEvent::Finished {
            name: format!("hf:{}", name.repository),
            folder: path.clone(),
            downloaded: downloaded > 0,
        });
        Ok((path, downloaded > 0))
    }

    fn repository(&self, name: &HubName) -> CacheRepo {
        self.cache
            .repo(Repo::new(name.repository.clone(), RepoType::Model))
    }

    /// What is already there.
    fn cached(&self, name: &HubName) -> Option<PathBuf> {
        let repository = self.repository(name);
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

    /// Downloads what is missing; returns the number of files that came.
    fn download(&self, name: &HubName, options: &FetchOptions<'_>) -> Result<u64, FetchError> {
        let what = format!("hf:{}", name.repository);
        (options.events)(FetchEvent::Started {
            name: what.clone(),
            bytes: 0,
        });
        let (sender, receiver) = mpsc::channel();
        let (hub, wanted) = (self.clone(), name.clone());
        thread::spawn(move || {
            let result = hub.work(&wanted, &sender);
            let _ = sender.send(Heard::Done(result));
        });
        let unreachable = |problem: String| FetchError::HubUnreachable {
            repository: name.repository.clone(),
            problem,
            known: known_names(
                known()
                    .iter()
                    .filter(|asset| asset.kind != AssetKind::Texts),
            ),
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
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > self.silence => {
                    return Err(unreachable(format!(
                        "no answer in {} s",
                        self.silence.as_secs()
                    )));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(unreachable("its client failed".into()));
                }
            }
        }
    }

    /// The client's side, in its own thread.
    fn work(&self, name: &HubName, sender: &Sender<Heard>) -> Result<u64, Failure> {
        let mut builder = ApiBuilder::from_cache(self.cache.clone())
            .with_progress(false)
            .with_retries(2);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        if let Ok(token) = std::env::var("HF_TOKEN")
            && !token.is_empty()
        {
            builder = builder.with_token(Some(token));
        }
        let api = builder.build().map_err(failure)?;
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
        let cache = self.repository(name);
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
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use sha2::{Digest, Sha256};

    use super::super::cache::hexadecimal;
    use super::*;

    /// A hub of one repository on the loopback address, with an entity tag for every file.
    struct FakeHub {
        files: Vec<(&'static str, &'static [u8], String)>,
        requests: AtomicUsize,
    }

    impl FakeHub {
        fn start(files: &[(&'static str, &'static [u8])]) -> (String, Arc<FakeHub>) {
            let tagged = files
                .iter()
                .map(|&(name, bytes)| (name, bytes, sha256(bytes)))
                .collect();
            FakeHub::start_tagged(tagged)
        }

        fn start_tagged(
            files: Vec<(&'static str, &'static [u8], String)>,
        ) -> (String, Arc<FakeHub>) {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
            let hub = Arc::new(FakeHub {
                files,
                requests: AtomicUsize::new(0),
            });
            let server = Arc::clone(&hub);
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let server = Arc::clone(&server);
                    thread::spawn(move || server.answer(stream));
                }
            });
            (endpoint, hub)
        }

        fn answer(&self, mut stream: TcpStream) -> Option<()> {
            let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
            let request = lines.next()?.ok()?;
            let mut start = 0;
            let mut last = None;
            for line in lines
                .by_ref()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
            {
                if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
                    let (from, to) = range.split_once('-')?;
                    start = from.parse().ok()?;
                    last = to.parse::<usize>().ok();
                }
            }
            self.requests.fetch_add(1, Ordering::SeqCst);
            let path = request.split(' ').nth(1)?;
            let (status, headers, body) = if path.starts_with("/api/models/org/model") {
                let siblings: Vec<_> = self
                    .files
                    .iter()
                    .map(|file| format!("{{\"rfilename\":\"{}\"}}", file.0))
                    .collect();
                let body = format!(
                    "{{\"sha\":\"c0ffee\",\"siblings\":[{}]}}",
                    siblings.join(",")
                );
                (
                    "200 OK",
                    String::from("Content-Type: application/json\r\n"),
                    body.into_bytes(),
                )
            } else if let Some(file) = path
                .strip_prefix("/org/model/resolve/main/")
                .and_then(|name| self.files.iter().find(|file| file.0 == name))
            {
                let end = last.map_or(file.1.len(), |last| (last + 1).min(file.1.len()));
                let headers = format!(
                    "ETag: \"{}\"\r\nx-repo-commit: c0ffee\r\nContent-Range: bytes {start}-{}/{}\r\n",
                    file.2,
                    end.saturating_sub(1),
                    file.1.len()
                );
                (
                    "206 Partial Content",
                    headers,
                    file.1.get(start..end)?.to_vec(),
                )
            } else {
                ("404 Not Found", String::new(), Vec::new())
            };
            let head = format!(
                "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(&body))
                .ok()
        }
    }

    fn sha256(bytes: &[u8]) -> String {
        let mut sum = Sha256::new();
        sum.update(bytes);
        hexadecimal(sum)
    }

    fn hub(endpoint: &str, folder: &Path) -> Hub {
        Hub {
            endpoint: Some(endpoint.to_owned()),
            cache: Cache::new(folder.join("hub")),
            silence: SILENCE,
        }
    }

    fn fetch(hub: &Hub, name: &str, offline: bool) -> Result<(PathBuf, bool), FetchError> {
        let options = FetchOptions::quiet(PathBuf::new());
        hub.fetch(
            &HubName::parse(name).expect("a hub name"),
            offline,
            &options,
        )
    }

    #[test]
    fn a_model_is_downloaded_once_and_found_offline() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (endpoint, server) = FakeHub::start(&[
            ("config.json", b"{}"),
            ("1_Pooling/config.json", b"{\"a\":1}"),
            ("model.safetensors", b"weights"),
            ("pytorch_model.bin", b"pickle"),
        ]);
        let hub = hub(&endpoint, folder.path());
        assert!(matches!(
            fetch(&hub, "org/model", true),
            Err(FetchError::Offline { .. })
        ));
        assert_eq!(server.requests.load(Ordering::SeqCst), 0);
        let (path, downloaded) = fetch(&hub, "org/model", false).expect("a model");
        assert!(downloaded);
        assert_eq!(
            fs::read(path.join("model.safetensors")).expect("weights"),
            b"weights"
        );
        assert!(path.join("1_Pooling/config.json").exists());
        assert!(!path.join("pytorch_model.bin").exists());
        assert_eq!(
            fetch(&hub, "org/model", false).expect("a model"),
            (path.clone(), false)
        );
        assert_eq!(
            fetch(&hub, "org/model", true).expect("a model"),
            (path.clone(), false)
        );
        // A hub that went away does not take the model with it.
        let away = Hub {
            endpoint: Some("http://127.0.0.1:9".into()),
            ..hub
        };
        assert_eq!(
            fetch(&away, "org/model", false).expect("a model"),
            (path, false)
        );
    }

    #[test]
    fn a_gguf_file_is_downloaded_by_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (endpoint, _) = FakeHub::start(&[
            ("a.Q4.gguf", b"four"),
            ("a.Q8.gguf", b"eight"),
            ("README.md", b"#"),
        ]);
        let hub = hub(&endpoint, folder.path());
        assert!(matches!(
            fetch(&hub, "org/model", false),
            Err(FetchError::HubAmbiguous { .. })
        ));
        let (path, _) = fetch(&hub, "org/model/a.Q8.gguf", false).expect("a model");
        assert_eq!(fs::read(path).expect("a file"), b"eight");
        let absent = fetch(&hub, "org/model/b.gguf", false);
        assert!(
            matches!(absent, Err(FetchError::HubRefused { .. })),
            "{absent:?}"
        );
    }

    #[test]
    fn the_only_gguf_file_of_a_repository_is_found() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (endpoint, _) = FakeHub::start(&[("a.gguf", b"model"), ("README.md", b"#")]);
        let (path, _) = fetch(&hub(&endpoint, folder.path()), "org/model", false).expect("a model");
        assert_eq!(fs::read(path).expect("a file"), b"model");
    }

    #[test]
    fn bytes_that_are_not_those_of_the_tag_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (endpoint, _) =
            FakeHub::start_tagged(vec![("model.safetensors", b"altered", sha256(b"weights"))]);
        let hub = hub(&endpoint, folder.path());
        for _ in 0..2 {
            let result = fetch(&hub, "org/model", false);
            assert!(
                matches!(result, Err(FetchError::ChecksumDiffers { .. })),
                "{result:?}"
            );
        }
        assert!(matches!(
            fetch(&hub, "org/model", true),
            Err(FetchError::Offline { .. })
        ));
    }

    #[test]
    fn a_hub_that_refuses_or_is_silent_is_said_so() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (endpoint, _) = FakeHub::start(&[]);
        let refused = fetch(&hub(&endpoint, folder.path()), "org/other", false);
        assert!(
            matches!(refused, Err(FetchError::HubRefused { .. })),
            "{refused:?}"
        );
        let empty = fetch(&hub(&endpoint, folder.path()), "org/model", false);
        assert!(
            matches!(empty, Err(FetchError::HubNoModel { .. })),
            "{empty:?}"
        );
        // A socket that accepts and never answers.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let result = fetch(&hub(&endpoint, folder.path()), "org/model", false);
        assert!(
            matches!(result, Err(FetchError::HubUnreachable { .. })),
            "{result:?}"
        );
    }

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
