//! The table maker on folders as criterion leaves them, made by hand.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use benches::table;

/// Writes the two files of a case as criterion does, and the copy that it keeps beside them.
fn write_case(
    root: &Path,
    folder: &str,
    group: &str,
    name: &str,
    (low, median, high): (f64, f64, f64),
) {
    let names = serde_json::json!({
        "group_id": group, "function_id": name, "value_str": null, "throughput": null,
        "full_id": format!("{group}/{name}"), "directory_name": folder, "title": format!("{group}/{name}"),
    });
    let estimate = |middle: f64| {
        serde_json::json!({
            "confidence_interval": {"confidence_level": 0.95, "lower_bound": low, "upper_bound": high},
            "point_estimate": middle, "standard_error": 1.0,
        })
    };
    let estimates =
        serde_json::json!({"mean": estimate(1e15), "median": estimate(median), "slope": null});
    for copy in ["new", "base"] {
        let case = root.join(folder).join(copy);
        fs::create_dir_all(&case).unwrap();
        fs::write(case.join("benchmark.json"), names.to_string()).unwrap();
        fs::write(case.join("estimates.json"), estimates.to_string()).unwrap();
    }
    fs::create_dir_all(root.join(folder).join("change")).unwrap();
    fs::write(root.join(folder).join("change/estimates.json"), "{}").unwrap();
}

fn sample(root: &Path) {
    let masks = table::group("masks", "mask after 2 tokens");
    let peer = table::peer("llguidance");
    write_case(
        root,
        "masks_ two/small",
        &masks,
        "small",
        (780.0, 800.0, 850.0),
    );
    write_case(
        root,
        "masks_ two/peer",
        &masks,
        &peer,
        (2.0e5, 2.12e5, 2.3e5),
    );
    let evidence = table::group("decoding", "evidence");
    write_case(
        root,
        "decoding_ evidence/a",
        &evidence,
        "forced | runs",
        (9e8, 1e9, 1.25e9),
    );
    // Another group: no peer of the one above.
    write_case(root, "own/case", "own", "case/8", (1.0, 2.0, 3.0));
}

fn run(root: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_table"))
        .args(arguments)
        .env("CRITERION_HOME", root)
        .output()
        .unwrap()
}

#[test]
fn medians_intervals_and_ratios() {
    let root = tempfile::tempdir().unwrap();
    sample(root.path());
    let results = table::read(root.path(), None).unwrap();
    assert!(results.incomplete.is_empty());
    let expected = "\
| bench | case | median | 95 % interval | peer's time / own |
| --- | --- | --- | --- | --- |
| masks: mask after 2 tokens | small | 800 ns | 780 ns to 850 ns | 265 (llguidance) |
| masks: mask after 2 tokens | peer llguidance | 212 µs | 200 µs to 230 µs |  |
| decoding: evidence | forced \\| runs | 1.00 s | 900 ms to 1.25 s |  |
| own | case/8 | 2.00 ns | 1.00 ns to 3.00 ns |  |
";
    assert_eq!(table::markdown(&results.cases), expected);
    // The command writes the same.
    let output = run(root.path(), &["--table-only"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn one_bench_into_a_file() {
    let root = tempfile::tempdir().unwrap();
    sample(root.path());
    let file = root.path().join("table.md");
    let output = run(
        root.path(),
        &[
            "--table-only",
            "--only",
            "decoding",
            "--out",
            file.to_str().unwrap(),
        ],
    );
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    let table = fs::read_to_string(file).unwrap();
    assert!(
        table.contains("forced") && !table.contains("small"),
        "{table}"
    );
    // A bench that there is not is refused with those that there are.
    let output = run(root.path(), &["--table-only", "--only", "decodin"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message.contains("fmindex") && message.contains("answering"),
        "{message}"
    );
}

#[test]
fn what_was_measured_before_a_run_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    sample(root.path());
    let now = SystemTime::now();
    let count = |since| table::read(root.path(), Some(since)).unwrap().cases.len();
    assert_eq!(count(now - Duration::from_secs(3600)), 4);
    assert_eq!(count(now + Duration::from_secs(3600)), 0);
}

#[test]
fn missing_files_are_reported_and_the_rest_is_shown() {
    let root = tempfile::tempdir().unwrap();
    sample(root.path());
    let case = root.path().join("masks_ two/peer/new");
    fs::remove_file(case.join("benchmark.json")).unwrap();
    let results = table::read(root.path(), None).unwrap();
    assert_eq!(results.cases.len(), 3);
    assert_eq!(results.incomplete, std::slice::from_ref(&case));
    let output = run(root.path(), &["--table-only"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{message}");
    assert!(
        message.contains(case.to_str().unwrap()) && message.contains("run its bench again"),
        "{message}"
    );
}

#[test]
fn damaged_files_are_named() {
    let root = tempfile::tempdir().unwrap();
    sample(root.path());
    let file = root.path().join("own/case/new/estimates.json");
    let whole = fs::read_to_string(&file).unwrap();
    let wrong = [
        whole[..whole.len() / 2].to_owned(),
        String::new(),
        "{\"mean\": 1}".to_owned(),
        whole.replace("\"point_estimate\":2.0", "\"point_estimate\":-2.0"),
    ];
    for text in &wrong {
        fs::write(&file, text).unwrap();
        let message = format!("{:#}", table::read(root.path(), None).unwrap_err());
        assert!(
            message.contains(file.to_str().unwrap()),
            "{text:?}: {message}"
        );
        assert!(
            message.contains("run the bench again"),
            "{text:?}: {message}"
        );
        let output = run(root.path(), &["--table-only"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
    }
    fs::write(&file, whole).unwrap();
    assert_eq!(table::read(root.path(), None).unwrap().cases.len(), 4);
}

#[test]
fn nothing_was_measured() {
    let root = tempfile::tempdir().unwrap();
    let absent = root.path().join("criterion");
    assert!(table::read(&absent, None).unwrap().cases.is_empty());
    let output = run(&absent, &["--table-only"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("without --table-only"), "{message}");
}
