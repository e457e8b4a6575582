//! The `verbatim` command: parses the command line, runs one subcommand, turns its outcome into an exit code.

mod batch;
mod commands;
mod generator_at;
mod interrupt;
mod models_at;
mod progress;
mod settings_file;
mod terminal;

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::{Parser, Subcommand};

/// How a command ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done: exit code 0.
    Done,
    /// Nothing was found, or a check failed: exit code 1.
    NothingFound,
}

/// Answers from a text collection with evidence that is word for word in it.
#[derive(Debug, Parser)]
#[command(
    name = "verbatim",
    version,
    propagate_version = true,
    max_term_width = 100
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch a small model and about 10,000 Wikipedia summaries once, index them, and answer a question
    Demo(commands::demo::Arguments),
    /// Build an index, add to it, delete from it, merge, export, verify it, or say what it holds
    #[command(subcommand)]
    Index(commands::index::Command),
    /// Find a phrase in an index, word for word
    Search(commands::search::Arguments),
    /// Answer a question with evidence quoted from an index
    Ask(commands::ask::Arguments),
    /// Run methods over question sets and compare them: R@k, EM, F1, cost, with confidence intervals
    Eval(Box<commands::eval::Arguments>),
    /// Answer a question about text files that were never indexed
    Read(commands::read::Arguments),
    /// List, fetch, verify or locate the models that have a short name
    #[command(subcommand)]
    Models(commands::models::Command),
}

/// What the last panic said. Some are expected and caught: a library that reads a damaged file may panic,
/// and the caller turns that into an error of its own.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let mut last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        *last = panic.to_string().replace('\n', " ");
    }));
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        let last = LAST_PANIC
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        terminal::say(&format!(
            "error: a fault of this program, not of its input: {last}; please report it with the command that led to it"
        ));
        ExitCode::from(2)
    })
}

fn run() -> ExitCode {
    interrupt::install();
    // clap ends wrong use with exit code 2, help and version with 0.
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Demo(arguments) => commands::demo::run(arguments),
        Command::Index(command) => commands::index::run(command),
        Command::Search(arguments) => commands::search::run(arguments),
        Command::Ask(arguments) => commands::ask::run(arguments),
        Command::Eval(arguments) => commands::eval::run(*arguments),
        Command::Read(arguments) => commands::read::run(arguments),
        Command::Models(command) => commands::models::run(command),
    };
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::NothingFound) => ExitCode::from(1),
        Err(error) if terminal::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::print_error(&error);
            ExitCode::from(if interrupt::interrupted() {
                interrupt::CODE
            } else {
                2
            })
        }
    }
}
