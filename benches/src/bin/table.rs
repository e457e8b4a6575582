//! Runs the benches of this package and writes one Markdown table of what they measured.
//!
//! `cargo run --release -p benches --bin table [-- --only decoding] [-- --out table.md]`; `--table-only` makes the table
//! of what was run before.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::SystemTime;

use anyhow::{Context, bail};
use benches::table::{self, TARGETS};
use benches::{SKIPPED, load};
use clap::Parser;
use clap::builder::PossibleValuesParser;

/// Runs the benches and writes a Markdown table of what they measured: medians with their confidence intervals, and
/// ratios to the peers of the same group
#[derive(Parser)]
#[command(name = "table")]
struct Arguments {
    /// Only this bench; can be given several times
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(TARGETS))]
    only: Vec<String>,
    /// Run nothing; the table of what was run before
    #[arg(long)]
    table_only: bool,
    /// Write the table to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Arguments of every bench, as --quick or a part of the names to run
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether every bench that was to run did.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let wanted = |target: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| only == target)
    };
    let folder = results_folder()?;
    let mut notes: Vec<String> = Vec::new();
    let mut all_ran = true;
    let mut since = None;
    if !arguments.table_only {
        since = Some(SystemTime::now());
        let before = load();
        for target in TARGETS.into_iter().filter(|target| wanted(target)) {
            let outcome = bench(target, &folder, &arguments.arguments)?;
            notes.extend(outcome.skipped);
            if !outcome.succeeded {
                all_ran = false;
                notes.push(format!("failed: {target}; standard error has what it said"));
            }
        }
        let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
        notes.insert(
            0,
            format!(
                "{cores} cores; load over 1, 5 and 15 minutes {before} before, {} after",
                load()
            ),
        );
    }
    let mut results = table::read(&folder, since)?;
    for incomplete in &results.incomplete {
        eprintln!(
            "left out: {} lacks benchmark.json or estimates.json, as after a run that was stopped; run its bench again",
            incomplete.display()
        );
    }
    results.cases.retain(|case| wanted(&case.target));
    if results.cases.is_empty() && arguments.table_only {
        bail!(
            "{}: nothing was measured yet; run this without --table-only",
            folder.display()
        );
    }
    let mut text = table::markdown(&results.cases);
    for note in &notes {
        text.push_str(&format!("\n{note}\n"));
    }
    match &arguments.out {
        Some(path) => std::fs::write(path, &text)
            .with_context(|| format!("{}: cannot write the table", path.display()))?,
        None => std::io::stdout()
            .write_all(text.as_bytes())
            .context("cannot write the table")?,
    }
    Ok(all_ran)
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}

/// Where criterion keeps its results, as criterion itself finds it.
fn results_folder() -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os("CRITERION_HOME") {
        return std::path::absolute(folder).context("CRITERION_HOME is no folder");
    }
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo cannot be run; is it on the PATH?")?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .context("cargo metadata does not say where the target folder is")?;
    let target = metadata["target_directory"]
        .as_str()
        .context("cargo metadata does not say where the target folder is")?;
    Ok(Path::new(target).join("criterion"))
}

/// How the run of a bench ended.
struct Outcome {
    succeeded: bool,
    /// Lines that say what did not run.
    skipped: BTreeSet<String>,
}

/// Runs a bench target, its output on standard error.
fn bench(target: &str, results: &Path, arguments: &[String]) -> anyhow::Result<Outcome> {
    let mut child = cargo()
        .args(["bench", "-p", "benches", "--bench", target, "--"])
        .args(arguments)
        .env("CRITERION_HOME", results)
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo cannot be run; is it on the PATH?")?;
    let mut skipped = BTreeSet::new();
    let mut output = BufReader::new(child.stdout.take().expect("standard output is piped"));
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        eprint!("{text}");
        if text.starts_with(SKIPPED) {
            skipped.insert(text.trim_end().to_owned());
        }
        line.clear();
    }
    Ok(Outcome {
        succeeded: child.wait()?.success(),
        skipped,
    })
}
