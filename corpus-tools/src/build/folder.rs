//! The folder of an index while it is written: claimed by one writer, cleared of what a killed build
//! left, and emptied again if the build fails.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use fmindex::file::FileError;

use super::BuildError;
use crate::manifest::{LEXICAL_FOLDER, MANIFEST_FILE, SEGMENTS_FOLDER, TOKENIZER_FILE};

/// Name of the file that a writer holds locked. It stays: what is locked is not its existence.
const LOCK_FILE: &str = "writer.lock";

/// First parts of the names of the files of a segment.
const SEGMENT_FILES: [&str; 5] = ["fm", "documents", "text", "names", "document-fm"];

/// A folder claimed for a build. Dropped without [`Folder::keep`], it is emptied, and removed if the
/// build or one before it made it.
pub(super) struct Folder {
    path: PathBuf,
    remove: bool,
    kept: bool,
    lock: Option<File>,
}

impl Folder {
    /// Claims `path`: new, empty, or what an unfinished build left, which is cleared away.
    pub fn claim(path: &Path) -> Result<Self, BuildError> {
        if let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            fs::create_dir_all(parent)
                .map_err(|e| FileError::io(parent, "create the folder", e))?;
        }
        let created = match fs::create_dir(path) {
            Ok(()) => true,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(FileError::io(path, "create the folder", e).into()),
        };
        let leftover = !created && is_ours(path)?;
        let mut folder = Self {
            path: path.to_owned(),
            remove: created || leftover,
            // Nothing may be removed before the lock is held.
            kept: true,
            lock: None,
        };
        folder.lock = Some(lock(path)?);
        // Looked at again under the lock: another writer may have finished in between.
        is_ours(path)?;
        folder.kept = false;
        folder.clear();
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The build is done: what is in the folder stays.
    pub fn keep(mut self) {
        self.kept = true;
    }

    /// Removes what a build writes. Failures are left to the writer that comes next.
    fn clear(&self) {
        let _ = fs::remove_dir_all(self.path.join(SEGMENTS_FOLDER));
        for name in [TOKENIZER_FILE, MANIFEST_FILE] {
            let _ = fs::remove_file(self.path.join(format!("{name}.partial")));
        }
        let _ = fs::remove_file(self.path.join(TOKENIZER_FILE));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // The manifest first: without it nothing is an index.
        let _ = fs::remove_file(self.path.join(MANIFEST_FILE));
        self.clear();
        // While the lock is held where the system can remove an open file, after it elsewhere.
        if !cfg!(unix) {
            self.lock = None;
        }
        let _ = fs::remove_file(self.path.join(LOCK_FILE));
        if self.remove {
            let _ = fs::remove_dir(&self.path);
        }
        self.lock = None;
    }
}

/// Whether an existing folder holds what an unfinished build left; `false`: it is empty.
fn is_ours(path: &Path) -> Result<bool, BuildError> {
    let not_ours = |found: String| BuildError::NotOurs {
        path: path.to_owned(),
        found,
    };
    if !path.is_dir() {
        return Err(not_ours("a file".into()));
    }
    if path.join(MANIFEST_FILE).exists() {
        return Err(BuildError::Exists {
            path: path.to_owned(),
        });
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| FileError::io(path, "list the folder", e))? {
        let entry = entry.map_err(|e| FileError::io(path, "list the folder", e))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    let known = |name: &str| {
        let name = name.strip_suffix(".partial").unwrap_or(name);
        [LOCK_FILE, SEGMENTS_FOLDER, TOKENIZER_FILE, MANIFEST_FILE].contains(&name)
    };
    if let Some(name) = names.iter().find(|name| !known(name)) {
        return Err(not_ours(name.clone()));
    }
    // Only what a build writes is cleared away; a link could lead to something that is not ours.
    let lock = path.join(LOCK_FILE);
    if fs::symlink_metadata(&lock).is_ok_and(|found| !found.is_file()) {
        return Err(not_ours(LOCK_FILE.to_owned()));
    }
    if let Some(name) = foreign_segment_file(&path.join(SEGMENTS_FOLDER)) {
        return Err(not_ours(name));
    }
    // A build takes the lock before it writes anything else.
    match names.first() {
        Some(name) if !names.iter().any(|name| name == LOCK_FILE) => Err(not_ours(name.clone())),
        found => Ok(found.is_some()),
    }
}

/// The first thing below the folder of segments that no build writes, by its path below the index.
fn foreign_segment_file(segments: &Path) -> Option<String> {
    let below = |path: &Path| {
        let parent = segments.parent().unwrap_or(segments);
        path.strip_prefix(parent)
            .unwrap_or(path)
            .display()
            .to_string()
    };
    let kind = |path: &Path| {
        fs::symlink_metadata(path)
            .ok()
            .map(|found| found.file_type())
    };
    match kind(segments) {
        None => return None,
        Some(kind) if kind.is_dir() => {}
        Some(_) => return Some(below(segments)),
    }
    for segment in fs::read_dir(segments).ok()?.flatten() {
        let path = segment.path();
        let numbered = segment
            .file_name()
            .to_string_lossy()
            .bytes()
            .all(|c| c.is_ascii_digit());
        if !numbered || kind(&path).is_none_or(|kind| !kind.is_dir()) {
            return Some(below(&path));
        }
        for file in fs::read_dir(&path).ok()?.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let kind = kind(&file.path());
            let is_dir = kind.is_some_and(|kind| kind.is_dir());
            let is_file = kind.is_some_and(|kind| kind.is_file());
            let stem = name.split('.').next().unwrap_or_default();
            let ours = match stem {
                LEXICAL_FOLDER => is_dir && name == LEXICAL_FOLDER,
                _ => is_file && SEGMENT_FILES.contains(&stem),
            };
            if !ours {
                return Some(below(&file.path()));
            }
        }
    }
    None
}

/// Takes the writer's lock of the folder.
fn lock(dir: &Path) -> Result<File, BuildError> {
    let path = dir.join(LOCK_FILE);
    loop {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| FileError::io(&path, "create the lock", e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // Where locks keep others from reading, the process stays unnamed.
                let mut by = String::new();
                let _ = file.take(64).read_to_string(&mut by);
                let by = match by.trim().parse::<u32>() {
                    Ok(process) => format!(" (process {process})"),
                    Err(_) => String::new(),
                };
                return Err(BuildError::Locked {
                    path: dir.to_owned(),
                    by,
                });
            }
            Err(TryLockError::Error(e)) => {
                return Err(FileError::io(&path, "lock the index for writing", e).into());
            }
        }
        if !is_at(&file, &path) {
            // A writer that failed removed the file after it was opened here.
            continue;
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(|e| FileError::io(&path, "write the lock", e))?;
        return Ok(file);
    }
}

/// Whether `path` still names `file`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(file), Ok(path)) => identity(file) == identity(path),
        _ => false,
    }
}

/// Whether `path` still names `file`: an open file cannot be removed here.
#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}
