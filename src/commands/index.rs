//! `verbatim index`: building an index, verifying it, and saying what it holds.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use corpus_tools::build::{BuildOptions, BuildReport, build};
use corpus_tools::reader::Input;
use corpus_tools::{Index, IndexError};
use fmindex::{Profile, Progress};
use indicatif::ProgressBar;
use models::tokenizer::Tokenizer;

use crate::{Outcome, interrupt, models_at, terminal};

/// Subcommands of `verbatim index`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Build an index of one or more corpora
    Build(BuildArguments),
    /// Read every byte of an index and compare all checksums and counts
    Verify {
        /// The index
        #[arg(long, value_name = "DIR")]
        index: PathBuf,
    },
    /// Say what an index holds and how large its parts are
    Stat {
        /// The index
        #[arg(long, value_name = "DIR")]
        index: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `verbatim index build`.
#[derive(Debug, clap::Args)]
pub struct BuildArguments {
    /// Corpora: JSON Lines {"id","title","text"}, plain, gzip, Zstandard or bzip2; `-` for standard input
    #[arg(required = true, value_name = "CORPUS")]
    corpora: Vec<PathBuf>,
    /// Model whose tokenizer the index is for: a short name, a local file or folder, or hf:ORG/REPOSITORY
    #[arg(long)]
    model: String,
    /// Folder of the index; it must not exist yet, or be empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Memory for building, as in 2G or 800M: the corpus is cut into segments that fit, but no document is
    /// cut; no limit by default
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,
    /// Threads; 0 for all cores. The index does not depend on it
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = models_at::jobs)]
    jobs: usize,
    /// End at the first bad record instead of leaving it out
    #[arg(long)]
    strict: bool,
    /// Sampling: small, or fast for a larger index that locates faster
    #[arg(long, default_value_t = Profile::default())]
    profile: Profile,
    /// Fetch nothing; fail where something is missing
    #[arg(long)]
    offline: bool,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// Bytes from a number with an optional suffix K, M, G or T (powers of 1024).
fn bytes(text: &str) -> Result<u64, String> {
    let expected = || format!("expected a number of bytes such as 2G or 800M, not {text:?}");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..]
        .to_ascii_uppercase()
        .trim_end_matches("IB")
        .trim_end_matches('B')
    {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(expected()),
    };
    let number: f64 = digits.parse().map_err(|_| expected())?;
    let value = number * (1u64 << shift) as f64;
    if value.is_finite() && (1.0..1e18).contains(&value) {
        Ok(value as u64)
    } else {
        Err(expected())
    }
}

/// Runs `verbatim index`.
///
/// # Errors
/// A corpus, a tokenizer or an index cannot be read, or the index cannot be written.
pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Build(arguments) => {
            let tokenizer =
                Tokenizer::open(models_at::locate(&arguments.model, arguments.offline)?)?;
            let inputs = arguments.corpora.iter().map(Input::named);
            let mut options = BuildOptions::new(inputs, &arguments.out, &tokenizer);
            options.memory = arguments.memory;
            options.jobs = arguments.jobs;
            options.strict = arguments.strict;
            options.profile = arguments.profile;
            let report = build_and_report(&options)?;
            if arguments.json {
                terminal::print_json(&report)?;
            }
            Ok(Outcome::Done)
        }
        Command::Verify { index } => verify(&index),
        Command::Stat { index, json } => stat(&index, json),
    }
}

/// Builds an index with progress and a report on standard error.
///
/// # Errors
/// See [`corpus_tools::BuildError`].
pub fn build_and_report(options: &BuildOptions<'_>) -> anyhow::Result<BuildReport> {
    let progress = Shown::default();
    let report = build(options, &progress);
    progress.clear();
    let report = report?;
    terminal::say(&format!("built {}", options.out.display()));
    for record in &report.skipped {
        terminal::say(&format!("left out: {record}"));
    }
    if report.skipped_count > report.skipped.len() as u64 {
        terminal::say(&format!(
            "left out: {} records in all",
            report.skipped_count
        ));
    }
    let stages: Vec<String> = report
        .stages
        .iter()
        .map(|stage| format!("{} {:.1} s", stage.name, stage.seconds))
        .collect();
    terminal::say(&format!(
        "{} documents, {} paragraphs, {} tokens; {:.1} MB of text in {:.1} MB of index; {:.1} s ({})",
        report.documents,
        report.paragraphs,
        report.tokens,
        report.text_bytes as f64 / 1e6,
        report.bytes as f64 / 1e6,
        report.seconds,
        stages.join(", "),
    ));
    Ok(report)
}

/// Shows the stages of long work on standard error.
#[derive(Default)]
struct Shown {
    bar: Mutex<Option<ProgressBar>>,
}

impl Shown {
    fn bar(&self) -> std::sync::MutexGuard<'_, Option<ProgressBar>> {
        self.bar
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn clear(&self) {
        if let Some(bar) = self.bar().take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Shown {
    fn stage(&self, name: &'static str, total: u64) {
        self.clear();
        *self.bar() = Some(terminal::bar(name, total, false));
    }

    fn advance(&self, done: u64) {
        if let Some(bar) = self.bar().as_ref() {
            bar.set_position(done);
        }
    }

    fn interrupted(&self) -> bool {
        interrupt::interrupted()
    }
}

fn verify(folder: &Path) -> anyhow::Result<Outcome> {
    let progress = Shown::default();
    let outcome = corpus_tools::verify::verify(folder, &progress);
    progress.clear();
    match outcome {
        Ok(report) => {
            let folder = terminal::harmless_line(&folder.display().to_string());
            terminal::print(&format!(
                "{folder}: good ({} files, {} bytes, {} documents, {} of them compared with their tokens)",
                report.files, report.bytes, report.documents, report.sampled
            ))?;
            Ok(Outcome::Done)
        }
        // A missing index or an interrupt is an error; everything else is a check that failed.
        Err(error @ (IndexError::NotAnIndex { .. } | IndexError::Interrupted)) => Err(error.into()),
        Err(error) => {
            terminal::print(&terminal::harmless_line(&error.to_string()))?;
            Ok(Outcome::NothingFound)
        }
    }
}

fn stat(folder: &Path, json: bool) -> anyhow::Result<Outcome> {
    let stat = Index::open(folder)?.stat();
    if json {
        terminal::print_json(&stat)?;
        return Ok(Outcome::Done);
    }
    terminal::print(&format!(
        "{} documents, {} paragraphs, {} tokens in {} segments; {} bytes of text",
        stat.documents, stat.paragraphs, stat.tokens, stat.segments, stat.text_bytes
    ))?;
    terminal::print(&format!(
        "FM-index: {:.2} bits a token; the whole folder: {} bytes",
        stat.bits_per_token, stat.bytes
    ))?;
    for component in &stat.components {
        terminal::print(&format!(
            "  {:<20} {:>12} bytes {:>8.2} bits a token",
            component.name, component.bytes, component.bits_per_token
        ))?;
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes() {
        assert_eq!(super::bytes("2G"), Ok(2 << 30));
        assert_eq!(super::bytes("1.5MiB"), Ok(3 << 19));
        assert_eq!(super::bytes("4096"), Ok(4096));
        for bad in ["", "G", "-1", "2X", "nan", "1e40", "0"] {
            assert!(super::bytes(bad).is_err(), "{bad}");
        }
    }
}
