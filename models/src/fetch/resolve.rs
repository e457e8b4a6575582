//! From a model as the user names it to a path: short name, local path, or hub name.

use std::path::{Path, PathBuf};

use super::hub::{HubName, fetch_hub};
use super::known::{AssetKind, KnownAsset, find, known};
use super::{FetchError, FetchOptions, fetch, known_names};

/// Where a model lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedModel {
    /// A GGUF file, or the folder of a model in safetensors.
    pub path: PathBuf,
    /// The entry of the table, where it was asked for by short name.
    pub known: Option<&'static KnownAsset>,
    /// Whether anything was downloaded now.
    pub downloaded: bool,
}

/// Finds a model and fetches it if need be. In this order: a short name of [`known()`]; with
/// `hf:` before it, a hub name; a local file or folder; a hub name, `ORGANISATION/REPOSITORY`. A
/// file or folder that is named like a known model is reached as `./NAME`.
///
/// # Errors
/// [`FetchError::NoSuchModel`], [`FetchError::NotAModel`], and those of [`fetch`] or of the hub.
pub fn resolve(spec: &str, options: &FetchOptions<'_>) -> Result<ResolvedModel, FetchError> {
    let models = || {
        known()
            .iter()
            .filter(|asset| asset.kind != AssetKind::Texts)
    };
    let no_such_model = || FetchError::NoSuchModel {
        spec: spec.to_owned(),
        known: known_names(models()),
    };
    if let Some(asset) = find(spec) {
        if asset.kind == AssetKind::Texts {
            return Err(FetchError::NotAModel { name: asset.name });
        }
        let fetched = fetch(spec, options)?;
        return Ok(ResolvedModel {
            path: fetched.path,
            known: Some(asset),
            downloaded: fetched.downloaded,
        });
    }
    let hub_name = match spec.strip_prefix("hf:") {
        Some(name) => HubName::parse(name).ok_or_else(no_such_model)?,
        None if !spec.is_empty() && Path::new(spec).exists() => {
            return Ok(ResolvedModel {
                path: PathBuf::from(spec),
                known: None,
                downloaded: false,
            });
        }
        None => HubName::parse(spec).ok_or_else(no_such_model)?,
    };
    let (path, downloaded) = fetch_hub(&hub_name, options)?;
    Ok(ResolvedModel {
        path,
        known: None,
        downloaded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offline(cache: &Path) -> FetchOptions<'static> {
        FetchOptions {
            offline: true,
            ..FetchOptions::quiet(cache.to_path_buf())
        }
    }

    #[test]
    fn names_paths_and_nonsense_are_told_apart() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = offline(folder.path());
        let file = folder.path().join("x.gguf");
        std::fs::write(&file, b"GGUF").expect("a file");
        let local = resolve(&file.to_string_lossy(), &options).expect("a local model");
        assert_eq!(
            (local.path, local.known, local.downloaded),
            (file, None, false)
        );
        assert!(matches!(
            resolve("minilm", &options),
            Err(FetchError::Offline { .. })
        ));
        assert!(matches!(
            resolve("hf:no-such/model-here", &options),
            Err(FetchError::Offline { .. })
        ));
        assert!(matches!(
            resolve("no-such/model-here", &options),
            Err(FetchError::Offline { .. })
        ));
        assert!(matches!(
            resolve("wiki-summaries", &options),
            Err(FetchError::NotAModel { .. })
        ));
        for nonsense in [
            "",
            "no such model",
            "a/b/c/d",
            "hf:",
            "hf:x",
            "../nowhere/at/all",
        ] {
            let error = resolve(nonsense, &options);
            assert!(
                matches!(error, Err(FetchError::NoSuchModel { .. })),
                "{nonsense:?}: {error:?}"
            );
        }
    }
}
