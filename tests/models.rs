//! `verbatim models` with a cache folder of its own: what is whole, damaged, missing, unknown.

mod common;

use std::fs;
use std::path::Path;

use common::{Run, verbatim, verbatim_with};

/// Runs `verbatim models …` on a cache folder, without the network.
fn models(cache: &Path, arguments: &[&str]) -> Run {
    let variables = [
        ("VERBATIM_CACHE", cache.as_os_str()),
        ("VERBATIM_OFFLINE", "1".as_ref()),
    ];
    verbatim_with(&[&["models"], arguments].concat(), &variables, b"")
}

#[test]
fn what_is_not_there_is_told_from_what_is_not_known() {
    let cache = tempfile::tempdir().unwrap();
    let run = models(cache.path(), &["path", "minilm"]).ended(1);
    assert!(run.stderr.contains("models fetch minilm"), "{}", run.stderr);
    let run = models(cache.path(), &["verify", "minilm"]).ended(1);
    assert!(run.stderr.contains("not fetched yet"), "{}", run.stderr);
    // Nothing was fetched, so all of it is good.
    assert_eq!(models(cache.path(), &["verify"]).ended(0).stdout, "");
    models(cache.path(), &["fetch", "minilm"]).refused(&["minilm", "offline"]);
    for command in ["fetch", "path", "verify"] {
        models(cache.path(), &[command, "no-such"]).refused(&["no-such", "known are", "minilm"]);
    }
}

#[test]
fn what_was_damaged_is_never_called_good() {
    // A copy of an asset, as a fetch left it.
    verbatim(&["models", "fetch", "splade-tiny"]).ended(0);
    let path = verbatim(&["models", "path", "splade-tiny"]).ended(0).stdout;
    let original = Path::new(path.trim());
    let cache = tempfile::tempdir().unwrap();
    let folder = cache
        .path()
        .join("assets")
        .join(original.file_name().unwrap());
    fs::create_dir_all(&folder).unwrap();
    let restore = || {
        for entry in fs::read_dir(original).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    };
    restore();
    let run = models(cache.path(), &["verify"]).ended(0);
    assert_eq!(run.stdout, "splade-tiny: good\n");
    let config = folder.join("config.json");
    let whole = fs::read(&config).unwrap();
    let mut altered = whole.clone();
    altered[0] ^= 1;
    for damaged in [Some(&whole[..9]), Some(&altered[..]), None] {
        restore();
        match damaged {
            Some(bytes) => fs::write(&config, bytes).unwrap(),
            None => fs::remove_file(&config).unwrap(),
        }
        for arguments in [&["verify"][..], &["verify", "splade-tiny"]] {
            let run = models(cache.path(), arguments).ended(1);
            assert!(run.stdout.contains("config.json"), "{}", run.stdout);
            assert!(
                run.stderr.contains("models fetch splade-tiny"),
                "{}",
                run.stderr
            );
        }
        // From then on it is not taken for whole: a fetch would mend it.
        models(cache.path(), &["path", "splade-tiny"]).ended(1);
        models(cache.path(), &["fetch", "splade-tiny"]).refused(&["offline"]);
    }
}
