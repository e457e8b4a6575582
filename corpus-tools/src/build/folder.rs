//! The folder of an index while it is written: claimed by one writer, and emptied again if a build fails
//! and leaves nothing worth keeping.

use std::fs;
use std::path::{Path, PathBuf};

use fmindex::file::FileError;

use super::BuildError;
use super::journal::{Journal, PARTS_FOLDER, clear_work};
use crate::lock::{LOCK_FILE, LockError, WriterLock};
use crate::manifest::{
    LEXICAL_FOLDER, MANIFEST_FILE, Manifest, SEGMENTS_FOLDER, TOKENIZER_FILE, VECTORS_FOLDER,
    WORK_FOLDER,
};

/// First parts of the names of the files of a segment.
const SEGMENT_FILES: [&str; 5] = ["fm", "documents", "text", "names", "document-fm"];
/// The same of a part.
const PART_FILES: [&str; 4] = ["tokens", "documents", "text", "names"];

/// A folder claimed by this writer. Dropped without [`Folder::keep`], a folder claimed for a new index is
/// emptied, and removed if the build or one before it made it.
pub(crate) struct Folder {
    path: PathBuf,
    remove: bool,
    kept: bool,
    lock: Option<WriterLock>,
}

impl Folder {
    /// Claims `path` for a new index: it is new, empty, or holds what an unfinished build left. With a
    /// manifest where a build was finished, and killed before it cleared its work away.
    pub fn claim_new(path: &Path) -> Result<(Self, Option<Manifest>), BuildError> {
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
        if path.join(MANIFEST_FILE).exists() {
            return Ok((folder, Some(Manifest::read(path)?)));
        }
        folder.kept = false;
        Ok((folder, None))
    }

    /// Claims the folder of an index that is there, to change it.
    pub fn claim_index(path: &Path) -> Result<Self, BuildError> {
        Ok(Self {
            path: path.to_owned(),
            remove: false,
            kept: true,
            lock: Some(lock(path)?),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in the folder stays.
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
        clear_work(&self.path);
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
    let finished = || Journal::read(path).is_some_and(|journal| journal.is_build());
    if path.join(MANIFEST_FILE).exists() && !finished() {
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
        [
            LOCK_FILE,
            SEGMENTS_FOLDER,
            WORK_FOLDER,
            VECTORS_FOLDER,
            TOKENIZER_FILE,
            MANIFEST_FILE,
        ]
        .contains(&name)
    };
    if let Some(name) = names.iter().find(|name| !known(name)) {
        return Err(not_ours(name.clone()));
    }
    // Only what a build writes is cleared away; a link could lead to something that is not ours.
    let lock = path.join(LOCK_FILE);
    if fs::symlink_metadata(&lock).is_ok_and(|found| !found.is_file()) {
        return Err(not_ours(LOCK_FILE.to_owned()));
    }
    for (folder, is_file) in [
        (
            path.join(SEGMENTS_FOLDER),
            is_segment_file as fn(&str, bool) -> bool,
        ),
        (path.join(WORK_FOLDER).join(PARTS_FOLDER), is_part_file),
    ] {
        if let Some(name) = foreign_file(path, &folder, is_file) {
            return Err(not_ours(name));
        }
    }
    // A build takes the lock before it writes anything else.
    match names.first() {
        Some(name) if !names.iter().any(|name| name == LOCK_FILE) => Err(not_ours(name.clone())),
        found => Ok(found.is_some()),
    }
}

fn is_segment_file(name: &str, is_dir: bool) -> bool {
    match name.split('.').next().unwrap_or_default() {
        LEXICAL_FOLDER => is_dir && name == LEXICAL_FOLDER,
        stem => !is_dir && SEGMENT_FILES.contains(&stem),
    }
}

fn is_part_file(name: &str, is_dir: bool) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    !is_dir && PART_FILES.contains(&stem)
}

/// The first thing in the numbered folders below `folder` that no build writes, by its path below the
/// index.
fn foreign_file(index: &Path, folder: &Path, is_ours: fn(&str, bool) -> bool) -> Option<String> {
    let below = |path: &Path| {
        let path = path.strip_prefix(index).unwrap_or(path);
        path.display().to_string()
    };
    let kind = |path: &Path| {
        fs::symlink_metadata(path)
            .ok()
            .map(|found| found.file_type())
    };
    match kind(folder) {
        None => return None,
        Some(kind) if kind.is_dir() => {}
        Some(_) => return Some(below(folder)),
    }
    for numbered in fs::read_dir(folder).ok()?.flatten() {
        let path = numbered.path();
        let name = numbered.file_name();
        let is_number = name.to_string_lossy().bytes().all(|c| c.is_ascii_digit());
        if !is_number || kind(&path).is_none_or(|kind| !kind.is_dir()) {
            return Some(below(&path));
        }
        for file in fs::read_dir(&path).ok()?.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let known = kind(&file.path())
                .is_some_and(|kind| !kind.is_symlink() && is_ours(&name, kind.is_dir()));
            if !known {
                return Some(below(&file.path()));
            }
        }
    }
    None
}

/// Takes the writer's lock of the folder.
fn lock(dir: &Path) -> Result<WriterLock, BuildError> {
    WriterLock::take(dir).map_err(|error| match error {
        LockError::Locked(by) => BuildError::Locked {
            path: dir.to_owned(),
            by: by.map_or_else(String::new, |process| format!(" (process {process})")),
        },
        LockError::Io(action, error) => FileError::io(&dir.join(LOCK_FILE), action, error).into(),
    })
}
