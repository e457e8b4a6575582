//! `verbatim index`: building an index, changing it, verifying it, and saying what it holds.

use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use corpus_tools::build::{BuildOptions, BuildReport, build};
use corpus_tools::maintain::{self, ExportError, MergeOptions};
use corpus_tools::reader::{GroupBy, Input};
use corpus_tools::store::Stored;
use corpus_tools::{Index, IndexError, VerifyReport};
use decoder::vectors::{Encoder, embed, take_over};
use fmindex::Profile;
use models::tokenizer::Tokenizer;

use crate::progress::Shown;
use crate::{Outcome, models_at, terminal};

/// Subcommands of `verbatim index`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Build an index of one or more corpora, or go on with a build that was stopped
    Build(BuildArguments),
    /// Add the documents of more corpora to an index
    Add(AddArguments),
    /// Delete documents by their ids: from then on they are neither generated, counted nor found
    Delete(DeleteArguments),
    /// Make one segment of many, and remove the bytes of deleted documents
    Merge(MergeArguments),
    /// Compute the sentence vectors of all paragraphs, or of those that have none yet, and keep them with the index
    Embed(EmbedArguments),
    /// Write the documents as JSON Lines {"id","title","text"} with the texts as they came
    Export {
        /// The index
        #[arg(long, value_name = "DIR")]
        index: PathBuf,
        /// File to write; standard output by default
        #[arg(long, value_name = "FILE", default_value = "-")]
        out: PathBuf,
    },
    /// Read every byte of an index and compare all checksums and counts
    Verify {
        /// The index
        #[arg(long, value_name = "DIR")]
        index: PathBuf,
        /// Print the report as one JSON object
        #[arg(long)]
        json: bool,
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

/// What a command reads into an index, and how.
#[derive(Debug, clap::Args)]
pub struct Reading {
    /// Corpora: JSON Lines {"id","title","text"}, MediaWiki dumps, tables of id, title and text, Parquet,
    /// plain, gzip, Zstandard or bzip2, all told by content; folders of .txt, .md and .html; `-` for standard input
    #[arg(required = true, value_name = "CORPUS")]
    corpora: Vec<PathBuf>,
    #[command(flatten)]
    resources: Resources,
    /// End at the first bad record instead of leaving it out
    #[arg(long)]
    strict: bool,
    /// Make one document of the passages with the same title; each paragraph keeps its passage's id
    #[arg(long, value_name = "FIELD")]
    group_by: Option<GroupField>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

impl Reading {
    /// The options of a build that writes to `out`.
    fn options<'t>(&self, out: &Path, tokenizer: &'t Tokenizer) -> BuildOptions<'t> {
        let inputs = self.corpora.iter().map(Input::named);
        let mut options = BuildOptions::new(inputs, out, tokenizer);
        options.memory = self.resources.memory;
        options.jobs = self.resources.jobs;
        options.strict = self.strict;
        options.read.group_by = self.group_by.map(GroupBy::from);
        options
    }
}

/// Arguments of `verbatim index build`.
#[derive(Debug, clap::Args)]
pub struct BuildArguments {
    #[command(flatten)]
    reading: Reading,
    /// Model whose tokenizer the index is for: a short name, a local file or folder, or hf:ORG/REPOSITORY
    #[arg(long)]
    model: String,
    /// Folder of the index; it must not exist yet, or be empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Sampling: small, or fast for a larger index that locates faster
    #[arg(long, default_value_t = Profile::default())]
    profile: Profile,
    /// Whether the texts are kept: text, or none for a smaller index whose quotes are what the tokens spell
    #[arg(long, default_value_t = Stored::default(), value_name = "text|none")]
    store: Stored,
    /// Fetch nothing; fail where something is missing
    #[arg(long)]
    offline: bool,
}

/// What work on an index may take.
#[derive(Debug, clap::Args)]
pub struct Resources {
    /// Memory to stay within, as in 2G or 800M: segments are cut so that they fit, but no document is cut;
    /// no limit by default
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,
    /// Threads; 0 for all cores. The index does not depend on it
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = models_at::jobs)]
    jobs: usize,
}

/// Arguments of `verbatim index add`.
#[derive(Debug, clap::Args)]
pub struct AddArguments {
    /// The index
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    #[command(flatten)]
    reading: Reading,
}

/// Arguments of `verbatim index delete`.
#[derive(Debug, clap::Args)]
pub struct DeleteArguments {
    /// The index
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// Ids of documents
    #[arg(value_name = "ID", required_unless_present = "ids")]
    id: Vec<String>,
    /// File of ids, one a line; `-` for standard input
    #[arg(long, value_name = "FILE")]
    ids: Option<PathBuf>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `verbatim index merge`.
#[derive(Debug, clap::Args)]
pub struct MergeArguments {
    /// The index
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    #[command(flatten)]
    resources: Resources,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `verbatim index embed`.
#[derive(Debug, clap::Args)]
pub struct EmbedArguments {
    /// The index
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// Sentence encoder: a short name or a folder; by default that of the window scorer
    #[arg(long, value_name = "ENCODER", default_value = models_at::SENTENCE_ENCODER)]
    encoder: String,
    /// Threads; 0 for all cores. The vectors do not depend on it
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = models_at::jobs)]
    jobs: usize,
    /// Fetch nothing; fail where something is missing
    #[arg(long)]
    offline: bool,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// What makes one document of several passages.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum GroupField {
    /// Their title
    Title,
}

impl From<GroupField> for GroupBy {
    fn from(field: GroupField) -> Self {
        match field {
            GroupField::Title => Self::Title,
        }
    }
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
            let reading = &arguments.reading;
            let mut options = reading.options(&arguments.out, &tokenizer);
            options.profile = arguments.profile;
            options.store = arguments.store;
            let report = build_and_report(&options)?;
            if reading.json {
                terminal::print_json(&report)?;
            }
            Ok(Outcome::Done)
        }
        Command::Add(arguments) => add(arguments),
        Command::Delete(arguments) => delete(arguments),
        Command::Merge(arguments) => merge(arguments),
        Command::Embed(arguments) => embed_paragraphs(&arguments),
        Command::Export { index, out } => export(&index, &out),
        Command::Verify { index, json } => verify(&index, json),
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
    say_report(&report);
    Ok(report)
}

fn say_report(report: &BuildReport) {
    for note in &report.notes {
        terminal::say(note);
    }
    for record in &report.skipped {
        terminal::say(&format!("left out: {record}"));
    }
    if report.skipped_count > report.skipped.len() as u64 {
        terminal::say(&format!(
            "left out: {} records in all",
            report.skipped_count
        ));
    }
    for (kind, count) in &report.left_out {
        terminal::say(&format!("left out on purpose: {count} {kind}"));
    }
    terminal::say(&format!(
        "{} documents, {} paragraphs, {} tokens in {} segments; {:.1} MB of text in {:.1} MB of index; {:.1} s ({})",
        report.documents,
        report.paragraphs,
        report.tokens,
        report.segments,
        report.text_bytes as f64 / 1e6,
        report.bytes as f64 / 1e6,
        report.seconds,
        stages(&report.stages),
    ));
}

fn stages(stages: &[corpus_tools::build::Stage]) -> String {
    let words: Vec<String> = stages
        .iter()
        .map(|stage| format!("{} {:.1} s", stage.name, stage.seconds))
        .collect();
    words.join(", ")
}

fn add(arguments: AddArguments) -> anyhow::Result<Outcome> {
    let tokenizer = Index::open(&arguments.index)?.tokenizer()?;
    let options = arguments.reading.options(&arguments.index, &tokenizer);
    let progress = Shown::default();
    let report = maintain::add(&options, &progress);
    progress.clear();
    let report = report?;
    terminal::say(&format!("added to {}", options.out.display()));
    say_report(&report);
    if arguments.reading.json {
        terminal::print_json(&report)?;
    }
    Ok(Outcome::Done)
}

fn delete(arguments: DeleteArguments) -> anyhow::Result<Outcome> {
    let mut ids = arguments.id;
    if let Some(file) = &arguments.ids {
        ids.extend(lines(file)?);
    }
    let report = maintain::delete(&arguments.index, &ids)?;
    for id in &report.unknown {
        terminal::say(&format!("no document has the id {id:?}"));
    }
    if arguments.json {
        terminal::print_json(&report)?;
    } else {
        terminal::print(&format!(
            "{} documents deleted, {} are left; their bytes are gone after `index merge`",
            report.deleted, report.documents
        ))?;
    }
    Ok(match report.unknown.is_empty() {
        true => Outcome::Done,
        false => Outcome::NothingFound,
    })
}

/// The lines of a file, or of standard input for `-`, without their ends; empty ones are left out.
fn lines(file: &Path) -> anyhow::Result<Vec<String>> {
    let named = || format!("cannot read the ids in {}", file.display());
    let reader: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(file).with_context(named)?),
    };
    let mut ids = Vec::new();
    for line in BufReader::new(reader).lines() {
        let line = line.with_context(named)?;
        let id = line.trim_end_matches('\r');
        if !id.is_empty() {
            ids.push(id.to_owned());
        }
    }
    Ok(ids)
}

fn merge(arguments: MergeArguments) -> anyhow::Result<Outcome> {
    let options = MergeOptions {
        jobs: arguments.resources.jobs,
        memory: arguments.resources.memory,
        ..MergeOptions::new(&arguments.index)
    };
    let progress = Shown::default();
    let report = maintain::merge(&options, &progress);
    let kept = match &report {
        Ok(_) => Index::open(&options.index)
            .map_err(anyhow::Error::from)
            .and_then(|index| Ok(take_over(&index, &progress)?)),
        Err(_) => Ok(()),
    };
    progress.clear();
    let report = report?;
    if let Err(error) = kept {
        terminal::say(&format!(
            "merged, but the sentence vectors are still those of before: {error}; `index embed` takes them over"
        ));
    }
    for note in &report.notes {
        terminal::say(note);
    }
    for name in &report.left {
        terminal::say(&format!(
            "the old segment {name} is still open in another program; the next change removes it"
        ));
    }
    if arguments.json {
        terminal::print_json(&report)?;
    } else {
        terminal::print(&format!(
            "{} segments became {}; {} deleted documents removed, {} documents; {:.1} MB became {:.1} MB; {:.1} s ({})",
            report.segments_before,
            report.segments,
            report.removed,
            report.documents,
            report.bytes_before as f64 / 1e6,
            report.bytes as f64 / 1e6,
            report.seconds,
            stages(&report.stages),
        ))?;
    }
    Ok(Outcome::Done)
}

fn embed_paragraphs(arguments: &EmbedArguments) -> anyhow::Result<Outcome> {
    let index = Index::open(&arguments.index)?;
    let encoder = Encoder::open(&models_at::locate(&arguments.encoder, arguments.offline)?)?;
    let progress = Shown::default();
    let report = embed(&index, &encoder, arguments.jobs, &progress);
    progress.clear();
    let report = report?;
    if arguments.json {
        terminal::print_json(&report)?;
    } else {
        terminal::print(&format!(
            "{} paragraphs have vectors: {} embedded now, {} taken over from other segments; {:.1} MB; {:.1} s",
            report.paragraphs,
            report.embedded,
            report.taken_over,
            report.bytes as f64 / 1e6,
            report.seconds,
        ))?;
    }
    Ok(Outcome::Done)
}

fn export(folder: &Path, out: &Path) -> anyhow::Result<Outcome> {
    let index = Index::open(folder)?;
    if index.stat().store == Stored::None {
        terminal::say("the index keeps no texts: what is written is what its tokens spell");
    }
    let progress = Shown::default();
    let written = match out == Path::new("-") {
        true => {
            let mut out = BufWriter::new(std::io::stdout().lock());
            maintain::export(&index, &mut out, &progress)
        }
        false => export_to(&index, out, &progress),
    };
    progress.clear();
    let written = match written {
        // A closed pipe ends quietly.
        Err(ExportError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => {
            return Err(error.into());
        }
        Err(ExportError::Write(error)) => {
            return Err(error).with_context(|| format!("{}: cannot write", out.display()));
        }
        other => other?,
    };
    terminal::say(&format!("{written} documents written"));
    Ok(Outcome::Done)
}

/// Writes beside the file and renames at the end: a file of that name is whole.
fn export_to(index: &Index, out: &Path, progress: &Shown) -> Result<u64, ExportError> {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let temporary = out.with_file_name(name);
    let written = std::fs::File::create(&temporary)
        .map_err(ExportError::from)
        .and_then(|file| {
            let mut file = BufWriter::new(file);
            let written = maintain::export(index, &mut file, progress)?;
            file.flush()?;
            file.get_ref().sync_all()?;
            std::fs::rename(&temporary, out)?;
            Ok(written)
        });
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// What `index verify --json` prints.
#[derive(Debug, serde::Serialize)]
struct Verified {
    good: bool,
    /// What was looked at, where all of it is good.
    #[serde(flatten)]
    report: Option<VerifyReport>,
    /// The first thing that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn verify(folder: &Path, json: bool) -> anyhow::Result<Outcome> {
    let progress = Shown::default();
    let outcome = corpus_tools::verify::verify(folder, &progress);
    progress.clear();
    match outcome {
        Ok(report) if json => {
            terminal::print_json(&Verified {
                good: true,
                report: Some(report),
                error: None,
            })?;
            Ok(Outcome::Done)
        }
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
            let error = error.to_string();
            match json {
                true => terminal::print_json(&Verified {
                    good: false,
                    report: None,
                    error: Some(error),
                })?,
                false => terminal::print(&terminal::harmless_line(&error))?,
            }
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
        "{} documents, {} paragraphs, {} tokens in {} segments; {} bytes of text{}",
        stat.documents,
        stat.paragraphs,
        stat.tokens,
        stat.segments,
        stat.text_bytes,
        match stat.store {
            Stored::Text => "",
            Stored::None => " (not kept)",
        }
    ))?;
    if stat.deleted > 0 {
        terminal::print(&format!(
            "{} more documents are deleted; `index merge` removes their bytes",
            stat.deleted
        ))?;
    }
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
