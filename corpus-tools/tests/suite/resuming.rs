//! Builds that are interrupted, killed at every step, or run into a full disk: nothing half-made is taken
//! for an index, and the same command ends with the bytes of an undisturbed build.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use corpus_tools::maintain::{MergeOptions, add, merge};
use corpus_tools::{BuildError, BuildOptions, Index, IndexError, build, verify};
use fmindex::Progress;

use crate::common::{HARD, corpus, files, lines, many, options};

/// Small parts and segments, so that there are several of both.
fn small(corpus: &Path, out: &Path) -> BuildOptions<'static> {
    BuildOptions {
        checkpoint: 8_000,
        segment_tokens: Some(6_000),
        ..options(corpus, out)
    }
}

/// Stops at the n-th question whether to stop.
struct StopAt(AtomicU32);

impl StopAt {
    fn new(at: u32) -> Self {
        Self(AtomicU32::new(at))
    }
}

impl Progress for StopAt {
    fn interrupted(&self) -> bool {
        self.0.fetch_sub(1, Ordering::SeqCst) == 1
    }
}

fn is_no_index(out: &Path) {
    let error = Index::open(out).unwrap_err();
    assert!(matches!(error, IndexError::NotAnIndex { .. }), "{error}");
}

#[test]
fn an_interrupted_build_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", many(0, 70));
    let whole = dir.path().join("whole");
    let report = build(&small(&path, &whole), &()).unwrap();
    assert!(
        report.segments > 2 && report.skipped_count == 3,
        "{report:?}"
    );
    let expected = files(&whole);

    let mut resumed = 0;
    let mut at = 1;
    loop {
        let out = dir.path().join("index");
        match build(&small(&path, &out), &StopAt::new(at)) {
            Err(BuildError::Interrupted) => {}
            Err(other) => panic!("{other}"),
            Ok(_) => break,
        }
        if out.exists() {
            is_no_index(&out);
        }
        // Another number of threads makes no difference.
        let options = BuildOptions {
            jobs: 1,
            ..small(&path, &out)
        };
        let report = build(&options, &()).unwrap();
        assert_eq!(report.skipped_count, 3);
        resumed += usize::from(report.notes.iter().any(|note| note.contains("went on")));
        assert!(files(&out) == expected, "stopped at {at}");
        fs::remove_dir_all(&out).unwrap();
        at += 11;
    }
    assert!(resumed >= 3, "{resumed} of {at}");
    let stopped = verify(&whole, &StopAt::new(2));
    assert!(matches!(stopped, Err(IndexError::Interrupted)));
}

#[test]
fn a_build_that_is_stopped_again_and_again_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", many(0, 70));
    let whole = dir.path().join("whole");
    build(&small(&path, &whole), &()).unwrap();
    let out = dir.path().join("index");
    let mut runs = 0;
    // Each run gets a little further than the one before: a step that is not finished is done again.
    while let Err(error) = build(&small(&path, &out), &StopAt::new(12 + runs)) {
        assert!(matches!(error, BuildError::Interrupted), "{error}");
        runs += 1;
        assert!(runs < 100);
    }
    assert!(runs > 2, "{runs}");
    assert!(files(&out) == files(&whole));
}

#[test]
fn changed_inputs_and_options_begin_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", many(0, 70));
    let out = dir.path().join("index");
    let stopped = || {
        if out.exists() {
            fs::remove_dir_all(&out).unwrap();
        }
        let stopped = build(&small(&path, &out), &StopAt::new(20));
        assert!(matches!(stopped, Err(BuildError::Interrupted)));
        assert!(out.join("work").exists());
    };
    let same_as_fresh = |options: &BuildOptions<'_>| {
        let report = build(options, &()).unwrap();
        let fresh = dir.path().join("fresh");
        let other = BuildOptions {
            out: fresh.clone(),
            ..options.clone()
        };
        build(&other, &()).unwrap();
        assert!(files(&out) == files(&fresh));
        fs::remove_dir_all(&fresh).unwrap();
        report.notes.join("; ")
    };

    // What was read has changed, to the same length.
    stopped();
    let changed = many(0, 70).replace("red fox", "fed rox");
    corpus(dir.path(), "corpus.jsonl", changed);
    let notes = same_as_fresh(&small(&path, &out));
    assert!(notes.contains("begun again"), "{notes}");

    // The same bytes under a new time are noticed too, and do no harm.
    stopped();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let again = fs::read(&path).unwrap();
    corpus(dir.path(), "corpus.jsonl", again);
    let notes = same_as_fresh(&small(&path, &out));
    assert!(notes.contains("begun again"), "{notes}");

    // Other segments: the parts that were read stay.
    stopped();
    let larger = BuildOptions {
        segment_tokens: Some(9_000),
        ..small(&path, &out)
    };
    let notes = same_as_fresh(&larger);
    assert!(notes.contains("unfinished work"), "{notes}");

    stopped();
    let unkept = BuildOptions {
        store: corpus_tools::store::Stored::None,
        ..small(&path, &out)
    };
    let notes = same_as_fresh(&unkept);
    assert!(notes.contains("begun again"), "{notes}");

    // An input that is at fault leaves nothing.
    stopped();
    let doubled = format!("{}{}", many(0, 70), many(0, 1));
    corpus(dir.path(), "corpus.jsonl", doubled);
    let error = build(&small(&path, &out), &()).unwrap_err();
    assert!(matches!(error, BuildError::DuplicateId { .. }), "{error}");
    assert!(error.to_string().contains("corpus.jsonl:1;"), "{error}");
    assert!(!out.exists());
}

const KILL_AT: &str = "VERBATIM_TEST_KILL_AT";
const KILL_IN: &str = "VERBATIM_TEST_KILL_IN";
const TASK: &str = "VERBATIM_TEST_TASK";

/// Ends the process, as a kill would, at the n-th call.
struct DieAt(AtomicU32);

impl DieAt {
    fn tick(&self) {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            std::process::abort();
        }
    }
}

impl Progress for DieAt {
    fn stage(&self, _: &'static str, _: u64) {
        self.tick();
    }
    fn advance(&self, _: u64) {
        self.tick();
    }
    fn interrupted(&self) -> bool {
        self.tick();
        false
    }
}

fn run_task(task: &str, dir: &Path, progress: &dyn Progress) -> Result<(), BuildError> {
    let out = dir.join("index");
    match task {
        "build" => build(&small(&dir.join("corpus.jsonl"), &out), progress).map(drop),
        "add" => add(&small(&dir.join("more.jsonl"), &out), progress).map(drop),
        _ => {
            let options = MergeOptions {
                segment_tokens: Some(9_000),
                ..MergeOptions::new(&out)
            };
            merge(&options, progress).map(drop)
        }
    }
}

/// The process that the tests below start and that dies; by itself it does nothing.
#[test]
fn child_that_is_killed() {
    let variable = |name| std::env::var(name).ok();
    let (Some(at), Some(dir), Some(task)) = (variable(KILL_AT), variable(KILL_IN), variable(TASK))
    else {
        return;
    };
    let progress = DieAt(AtomicU32::new(at.parse().unwrap()));
    run_task(&task, Path::new(&dir), &progress).unwrap();
}

/// Runs `task` in a process that dies at its `at`-th step; whether it died.
fn killed(task: &str, dir: &Path, at: u32) -> bool {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "resuming::child_that_is_killed"])
        .env(KILL_AT, at.to_string())
        .env(KILL_IN, dir)
        .env(TASK, task)
        .output()
        .unwrap();
    !child.status.success()
}

#[test]
fn a_killed_build_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    corpus(dir.path(), "corpus.jsonl", many(0, 60));
    let out = dir.path().join("index");
    run_task("build", dir.path(), &()).unwrap();
    let expected = files(&out);
    let mut kills = 0;
    for at in (1..).step_by(17) {
        fs::remove_dir_all(&out).unwrap();
        if !killed("build", dir.path(), at) {
            break;
        }
        kills += 1;
        assert!(out.join("writer.lock").exists());
        is_no_index(&out);
        // Killed once more on the way.
        if killed("build", dir.path(), at / 2 + 3) {
            run_task("build", dir.path(), &()).unwrap();
        }
        assert!(files(&out) == expected, "killed at {at}");
    }
    assert!(kills >= 3, "{kills}");
    verify(&out, &()).unwrap();
}

#[test]
fn a_killed_addition_and_a_killed_merge_go_on() {
    let dir = tempfile::tempdir().unwrap();
    corpus(dir.path(), "corpus.jsonl", many(0, 40));
    corpus(dir.path(), "more.jsonl", many(40, 40));
    let out = dir.path().join("index");
    for task in ["add", "merge"] {
        let reset = || {
            if out.exists() {
                fs::remove_dir_all(&out).unwrap();
            }
            run_task("build", dir.path(), &()).unwrap();
            if task == "merge" {
                run_task("add", dir.path(), &()).unwrap();
            }
        };
        reset();
        let before = Index::open(&out).unwrap().manifest().counts;
        run_task(task, dir.path(), &()).unwrap();
        let expected = files(&out);
        let mut kills = 0;
        for at in (2..).step_by(29) {
            reset();
            if !killed(task, dir.path(), at) {
                break;
            }
            kills += 1;
            // The index is what it was, or what it is to be.
            verify(&out, &()).unwrap();
            let counts = Index::open(&out).unwrap().manifest().counts;
            assert!(task == "merge" || counts == before);
            run_task(task, dir.path(), &()).unwrap();
            assert!(files(&out) == expected, "{task} killed at {at}");
        }
        assert!(kills >= 2, "{task}: {kills}");
    }
}

const FULL_IN: &str = "VERBATIM_TEST_FULL_IN";

/// The process that [`a_full_disk_is_survived`] starts with a bound on the size of its files; by itself it
/// does nothing. It succeeds if the build did, or failed as it should.
#[test]
fn child_on_the_full_disk() {
    let Ok(dir) = std::env::var(FULL_IN) else {
        return;
    };
    let dir = Path::new(&dir);
    let out = dir.join("index");
    match build(&small(&dir.join("corpus.jsonl"), &out), &()) {
        Ok(_) => fs::write(dir.join("built"), "").unwrap_or_default(),
        Err(error) => {
            assert!(matches!(error, BuildError::File(_)), "{error}");
            assert!(error.to_string().contains("index"), "{error}");
        }
    }
}

/// Writing beyond a limit of file size fails as writing to a full disk does.
#[cfg(unix)]
#[test]
fn a_full_disk_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", many(0, 60));
    let whole = dir.path().join("whole");
    build(&small(&path, &whole), &()).unwrap();
    let out = dir.path().join("index");
    let mut failures = 0;
    for blocks in (1..).map(|step| step * step) {
        let command = format!(
            "trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" --exact resuming::child_on_the_full_disk"
        );
        let child = Command::new("sh")
            .arg("-c")
            .arg(command)
            .arg(std::env::current_exe().unwrap())
            .env(FULL_IN, dir.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{blocks} blocks: {told}");
        if dir.path().join("built").exists() {
            break;
        }
        failures += 1;
        if out.exists() {
            is_no_index(&out);
        }
    }
    assert!(failures >= 3, "{failures}");
    assert!(files(&out) == files(&whole));
}

#[test]
fn a_first_step_that_fails_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = corpus(dir.path(), "corpus.jsonl", lines(HARD));
    let out = dir.path().join("index");
    let stopped = build(&options(&path, &out), &StopAt::new(1));
    assert!(matches!(stopped, Err(BuildError::Interrupted)));
    assert!(!out.exists());
}

#[test]
fn a_folder_that_changed_below_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let texts = dir.path().join("texts");
    fs::create_dir_all(texts.join("below")).unwrap();
    for number in 0..60 {
        let text = format!(
            "Text {number}. {}",
            "A sentence that says little. ".repeat(20)
        );
        fs::write(texts.join(format!("below/{number}.txt")), text).unwrap();
    }
    let mut begun_again = 0;
    for at in [20, 40, 80, 160] {
        let out = dir.path().join(format!("stopped-{at}"));
        let stopped = build(&small(&texts, &out), &StopAt::new(at));
        assert!(
            matches!(stopped, Err(BuildError::Interrupted)),
            "{stopped:?}"
        );
        let changed = format!("Another text, since {at}.");
        fs::write(texts.join("below/7.txt"), changed).unwrap();
        let report = build(&small(&texts, &out), &()).unwrap();
        begun_again += usize::from(report.notes.iter().any(|note| note.contains("begun again")));
        let fresh = dir.path().join(format!("fresh-{at}"));
        build(&small(&texts, &fresh), &()).unwrap();
        assert!(files(&out) == files(&fresh), "stopped at {at}");
    }
    assert!(begun_again > 0);
}
