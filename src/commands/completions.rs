//! `verbatim completions`: what a shell needs to complete command lines, from the definitions of the command line.

use std::io::Write;

use clap_complete::Shell;

use crate::Outcome;

/// Arguments of `verbatim completions`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The shell that the script is for
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs `verbatim completions`: the script goes to standard output.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut crate::command(),
        "verbatim",
        &mut script,
    );
    std::io::stdout().lock().write_all(&script)?;
    Ok(Outcome::Done)
}
