//! `verbatim models`: the models and texts that have a short name.

use models::fetch::{self, default_cache};

use crate::{Outcome, models_at, terminal};

/// Subcommands of `verbatim models`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List what has a short name, with licences and sizes
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Fetch by short name into the cache folder
    Fetch {
        /// Short names
        #[arg(required = true)]
        names: Vec<String>,
        /// Fetch nothing; fail where something is missing
        #[arg(long)]
        offline: bool,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Read everything that was fetched and compare its checksums
    Verify {
        /// Short names; all that were fetched, if none is given
        names: Vec<String>,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Print where something that was fetched lies
    Path {
        /// Short name
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Runs `verbatim models`.
///
/// # Errors
/// An unknown name, or a fetch that fails.
pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::List { json } => list(json),
        Command::Fetch {
            names,
            offline,
            json,
        } => fetch_all(&names, offline, json),
        Command::Verify { names, json } => verify(names, json),
        Command::Path { name, json } => path(&name, json),
    }
}

fn fetch_all(names: &[String], offline: bool, json: bool) -> anyhow::Result<Outcome> {
    let mut rows = Vec::new();
    for name in names {
        let fetched = models_at::fetch_known(name, offline)?;
        if json {
            rows.push(serde_json::json!({
                "name": name,
                "folder": fetched.folder,
                "path": fetched.path,
                "downloaded": fetched.downloaded,
            }));
        } else {
            terminal::print(&fetched.folder.display().to_string())?;
        }
    }
    if json {
        terminal::print_json(&rows)?;
    }
    Ok(Outcome::Done)
}

fn path(name: &str, json: bool) -> anyhow::Result<Outcome> {
    let path = fetch::path(fetch::find_or_say(name)?.name, &default_cache()?);
    if json {
        terminal::print_json(&serde_json::json!({"name": name, "path": path}))?;
    } else if let Some(path) = &path {
        terminal::print(&path.display().to_string())?;
    }
    if path.is_none() {
        terminal::say(&format!(
            "{name} was not fetched yet; verbatim models fetch {name} does it"
        ));
        return Ok(Outcome::NothingFound);
    }
    Ok(Outcome::Done)
}

fn list(json: bool) -> anyhow::Result<Outcome> {
    let cache = default_cache()?;
    let mut rows = Vec::new();
    for asset in fetch::known() {
        let path = fetch::path(asset.name, &cache);
        if json {
            rows.push(serde_json::json!({
                "name": asset.name,
                "kind": asset.kind.to_string(),
                "about": asset.about,
                "licences": asset.licences.iter().map(models_at::licence_line).collect::<Vec<_>>(),
                "bytes": asset.bytes,
                "path": path,
            }));
        } else {
            terminal::print(&format!(
                "{:<15} {:<17} {:>7.1} MB  {}{}",
                asset.name,
                asset.kind.to_string(),
                asset.bytes as f64 / 1e6,
                asset.about,
                if path.is_some() { " (fetched)" } else { "" },
            ))?;
            for licence in asset.licences {
                terminal::print(&format!("{:<15} {}", "", models_at::licence_line(licence)))?;
            }
        }
    }
    if json {
        terminal::print_json(&rows)?;
    }
    Ok(Outcome::Done)
}

fn verify(names: Vec<String>, json: bool) -> anyhow::Result<Outcome> {
    let cache = default_cache()?;
    let all = names.is_empty();
    let names = if all {
        fetch::known()
            .iter()
            .map(|asset| asset.name.to_owned())
            .collect()
    } else {
        for name in &names {
            fetch::find_or_say(name)?;
        }
        names
    };
    let mut outcome = Outcome::Done;
    let mut rows = Vec::new();
    for name in names {
        // What was cut or lost is not whole, and this is the command that says so.
        if !fetch::has_files(&name, &cache) {
            if !all {
                terminal::say(&format!("{name} was not fetched yet"));
                outcome = Outcome::NothingFound;
            }
            continue;
        }
        let error = models_at::verify_known(&name).err();
        let error = error.map(|error| error.to_string());
        if error.is_some() {
            terminal::say(&format!("verbatim models fetch {name} mends it"));
            outcome = Outcome::NothingFound;
        }
        if json {
            let good = error.is_none();
            rows.push(serde_json::json!({"name": name, "good": good, "error": error}));
        } else {
            let found = error.as_deref().unwrap_or("good");
            terminal::print(&format!("{name}: {}", terminal::harmless_line(found)))?;
        }
    }
    if json {
        terminal::print_json(&rows)?;
    }
    Ok(outcome)
}
