//! One writer at a time: the lock of a folder that is written.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// Name of the file that a writer holds locked. It stays: what is locked is not its existence.
pub const LOCK_FILE: &str = "writer.lock";

/// The lock of a folder, held until it is dropped. The system takes it from a process that ends, however it ends.
#[derive(Debug)]
pub struct WriterLock {
    _file: File,
}

/// Why a folder could not be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it; its number, where it could be told.
    Locked(Option<u32>),
    /// The file of the lock cannot be made or locked: what was tried, and the system's reason.
    Io(&'static str, io::Error),
}

impl WriterLock {
    /// Locks the folder `dir`, which is there already, for writing, without waiting.
    ///
    /// ```
    /// use corpus_tools::lock::{LockError, WriterLock};
    /// let dir = tempfile::tempdir().unwrap();
    /// let held = WriterLock::take(dir.path()).unwrap();
    /// assert!(matches!(WriterLock::take(dir.path()), Err(LockError::Locked(_))));
    /// drop(held);
    /// assert!(WriterLock::take(dir.path()).is_ok());
    /// ```
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join(LOCK_FILE);
        loop {
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(|error| LockError::Io("create the lock", error))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    // Where locks keep others from reading, the process stays unnamed.
                    let mut by = String::new();
                    let _ = file.take(64).read_to_string(&mut by);
                    return Err(LockError::Locked(by.trim().parse().ok()));
                }
                Err(TryLockError::Error(error)) => {
                    return Err(LockError::Io("lock the folder for writing", error));
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
            written.map_err(|error| LockError::Io("write the lock", error))?;
            return Ok(Self { _file: file });
        }
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
