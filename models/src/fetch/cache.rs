//! The cache folder: where assets lie, the stamp that says one is whole, the lock of a fetch.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::known::{AssetFile, KnownAsset};
use super::{FetchError, FetchEvent, FetchOptions};

const STAMP_NAME: &str = "asset.json";
const STAMP_FORMAT: u32 = 1;
/// A stamp larger than this is not one of ours.
const STAMP_LIMIT: u64 = 64 * 1024;
const READ_BUFFER: usize = 1 << 20;

/// The cache folder: `VERBATIM_CACHE`, else `verbatim` in the platform's cache folder.
///
/// # Errors
/// [`FetchError::NoCacheFolder`] where neither is known.
pub fn default_cache() -> Result<PathBuf, FetchError> {
    match std::env::var_os("VERBATIM_CACHE") {
        Some(folder) if !folder.is_empty() => Ok(PathBuf::from(folder)),
        _ => dirs::cache_dir()
            .map(|folder| folder.join("verbatim"))
            .ok_or(FetchError::NoCacheFolder),
    }
}

/// Where the finished files of an asset lie.
pub(super) fn asset_folder(asset: &KnownAsset, cache: &Path) -> PathBuf {
    cache.join("assets").join(asset.folder_name())
}

/// Where its downloads and unfinished files lie; removed when it is done.
pub(super) fn partial_folder(asset: &KnownAsset, cache: &Path) -> PathBuf {
    cache.join("partial").join(asset.folder_name())
}

/// The path of a file of the asset below `folder`.
pub(super) fn file_path(folder: &Path, file: &AssetFile) -> PathBuf {
    file.name
        .split('/')
        .fold(folder.to_path_buf(), |path, part| path.join(part))
}

/// What was there when the asset was finished; written last.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    format: u32,
    asset: String,
    files: Vec<StampFile>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StampFile {
    name: String,
    bytes: u64,
    sha256: String,
}

impl Stamp {
    fn of(asset: &KnownAsset) -> Self {
        Stamp {
            format: STAMP_FORMAT,
            asset: asset.name.to_owned(),
            files: asset
                .files
                .iter()
                .map(|file| StampFile {
                    name: file.name.to_owned(),
                    bytes: file.bytes,
                    sha256: file.sha256.to_owned(),
                })
                .collect(),
        }
    }
}

/// Whether the asset is whole: its stamp says what the table says, and every file has its size.
/// Costs a few system calls, no hashing.
pub(super) fn is_finished(asset: &KnownAsset, cache: &Path) -> bool {
    let folder = asset_folder(asset, cache);
    let Ok(stamp) = File::open(folder.join(STAMP_NAME)) else {
        return false;
    };
    let mut text = String::new();
    if stamp.take(STAMP_LIMIT).read_to_string(&mut text).is_err() {
        return false;
    }
    let same = serde_json::from_str::<Stamp>(&text).is_ok_and(|stamp| stamp == Stamp::of(asset));
    same && asset
        .files
        .iter()
        .all(|file| has_size(&file_path(&folder, file), file.bytes))
}

/// Says that the asset is whole. Written under another name first, so that it is there or not.
pub(super) fn write_stamp(asset: &KnownAsset, cache: &Path) -> Result<(), FetchError> {
    let text = serde_json::to_string_pretty(&Stamp::of(asset)).unwrap_or_default();
    let partial = partial_folder(asset, cache).join(STAMP_NAME);
    let target = asset_folder(asset, cache).join(STAMP_NAME);
    let mut file = create_new(&partial)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(FetchError::io("write", &partial))?;
    drop(file);
    fs::rename(&partial, &target).map_err(FetchError::io("write", &target))
}

/// Takes the stamp away, before files that it vouches for are replaced.
pub(super) fn remove_stamp(asset: &KnownAsset, cache: &Path) -> Result<(), FetchError> {
    let stamp = asset_folder(asset, cache).join(STAMP_NAME);
    match fs::remove_file(&stamp) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(FetchError::io("remove", &stamp)(error))
        }
        _ => Ok(()),
    }
}

pub(super) fn has_size(path: &Path, bytes: u64) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == bytes)
}

/// Opens a new file for writing; whatever stood under its name, a link too, is removed first.
pub(super) fn create_new(path: &Path) -> Result<File, FetchError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(FetchError::io("remove", path)(error));
        }
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(FetchError::io("create", path))
}

pub(super) fn create_folder(path: &Path) -> Result<(), FetchError> {
    fs::create_dir_all(path).map_err(FetchError::io("create the folder", path))
}

/// Checks a file's size, then its SHA-256.
///
/// # Errors
/// [`FetchError::ChecksumDiffers`], [`FetchError::Io`], [`FetchError::Interrupted`].
pub(super) fn check_file(
    path: &Path,
    bytes: u64,
    sha256: &str,
    what: &str,
    options: &FetchOptions<'_>,
) -> Result<(), FetchError> {
    let differs = |found: String| FetchError::ChecksumDiffers {
        file: path.to_path_buf(),
        expected: format!("{bytes} bytes with SHA-256 {sha256}"),
        found,
    };
    let mut file = File::open(path).map_err(FetchError::io("open", path))?;
    let found = file.metadata().map_err(FetchError::io("read", path))?.len();
    if found != bytes {
        return Err(differs(format!("{found} bytes")));
    }
    let mut sum = Sha256::new();
    let mut buffer = vec![0; READ_BUFFER];
    loop {
        options.go_on(what)?;
        let read = file
            .read(&mut buffer)
            .map_err(FetchError::io("read", path))?;
        if read == 0 {
            break;
        }
        sum.update(&buffer[..read]);
    }
    let found = hexadecimal(sum);
    if found == sha256 {
        Ok(())
    } else {
        Err(differs(format!("SHA-256 {found}")))
    }
}

/// The digest as lower-case hexadecimal digits.
pub(super) fn hexadecimal(sum: Sha256) -> String {
    sum.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Holds the lock of one asset: one fetch at a time over all processes. Given back on drop, and
/// by the system when a process ends, however it ends.
#[derive(Debug)]
pub(super) struct FetchLock {
    _file: File,
}

impl FetchLock {
    /// Waits for the lock, and says so once if another process has it.
    pub(super) fn take(
        asset: &KnownAsset,
        options: &FetchOptions<'_>,
    ) -> Result<FetchLock, FetchError> {
        let folder = options.cache.join("locks");
        create_folder(&folder)?;
        let path = folder.join(format!("{}.lock", asset.folder_name()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(FetchError::io("open the lock", &path))?;
        let mut said = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(FetchLock { _file: file }),
                Err(TryLockError::WouldBlock) => {
                    if !said {
                        (options.events)(FetchEvent::Waiting { name: asset.name });
                        said = true;
                    }
                    options.go_on(asset.name)?;
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(TryLockError::Error(error)) => {
                    return Err(FetchError::io("lock", &path)(error));
                }
            }
        }
    }
}
