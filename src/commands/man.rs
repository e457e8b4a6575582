//! `verbatim man`: manual pages, from the definitions of the command line.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap_mangen::Man;

use crate::{Outcome, terminal};

/// Arguments of `verbatim man`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Write the pages of all commands into this folder instead of one to standard output
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,
    /// The command whose page is wanted, such as `index build`; verbatim itself without one
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs `verbatim man`.
///
/// # Errors
/// There is no such command, or the page cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let mut whole = crate::command().disable_help_subcommand(true);
    whole.build();
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{}: cannot create the folder", folder.display()))?;
        write_all(&whole, folder)?;
        return Ok(Outcome::Done);
    }
    let mut command = &whole;
    for name in &arguments.command {
        let Some(found) = command.find_subcommand(name) else {
            let names: Vec<&str> = command
                .get_subcommands()
                .map(|one| one.get_name())
                .collect();
            let of = command.get_bin_name().unwrap_or("verbatim");
            match names.is_empty() {
                true => bail!("{of} has no command of its own, so there is no {name:?}"),
                false => bail!("{of} has no command {name:?}; it has {}", names.join(", ")),
            }
        };
        command = found;
    }
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    std::io::stdout().lock().write_all(&page)?;
    Ok(Outcome::Done)
}

/// Writes the page of a command and of all below it, and says which.
fn write_all(command: &clap::Command, folder: &Path) -> anyhow::Result<()> {
    let written = Man::new(command.clone())
        .generate_to(folder)
        .with_context(|| format!("{}: cannot write a page", folder.display()))?;
    terminal::say(&written.display().to_string());
    for below in command.get_subcommands() {
        write_all(below, folder)?;
    }
    Ok(())
}
