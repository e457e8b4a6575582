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

use clap::{CommandFactory, Parser, Subcommand};

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
    /// Print the completions of these commands for a shell
    Completions(commands::completions::Arguments),
    /// Print the manual page of a command, or write those of all
    Man(commands::man::Arguments),
}

/// The definition of the command line: help, completions and manual pages come from it.
pub fn command() -> clap::Command {
    Arguments::command()
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
        Command::Completions(arguments) => commands::completions::run(&arguments),
        Command::Man(arguments) => commands::man::run(&arguments),
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

#[cfg(test)]
mod tests {
    /// Commands without another below them, with their whole names.
    fn leaves(command: &clap::Command, name: &str, found: &mut Vec<(String, bool)>) {
        let json = command.get_arguments().any(|flag| flag.get_id() == "json");
        // `eval` does something without a command below it.
        if !command.is_subcommand_required_set() {
            found.push((name.to_owned(), json));
        }
        for below in command.get_subcommands() {
            let name = format!("{name} {}", below.get_name());
            leaves(below, name.trim(), found);
        }
    }

    #[test]
    fn the_definitions_hold_together_and_what_prints_results_has_json() {
        super::command().debug_assert();
        let mut found = Vec::new();
        leaves(&super::command(), "", &mut found);
        assert!(found.len() > 15, "{found:?}");
        for (name, json) in found {
            // JSON Lines, a script for a shell, pages for man.
            let others = ["index export", "completions", "man"];
            assert_eq!(json, !others.contains(&name.as_str()), "{name}");
        }
    }
}
