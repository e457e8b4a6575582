//! The table of what benches measured, made of the files that criterion leaves.
//!
//! A case has a folder with `new/benchmark.json` (its names) and `new/estimates.json` (statistics in nanoseconds, with
//! confidence intervals). The names carry what the table needs: [`group`] puts the bench target in front, [`peer`] marks
//! what the other cases of a group are measured against.

use std::fmt::{Display, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The bench targets of this package, in the order in which they are run and shown.
pub const TARGETS: [&str; 4] = ["fmindex", "masks", "decoding", "answering"];

/// Ends the target in the name of a group.
const TARGET_ENDS: &str = ": ";
/// Begins the name of a peer's case.
const PEER: &str = "peer ";

/// Name of a group of cases of a bench target.
pub fn group(target: &str, what: impl Display) -> String {
    format!("{target}{TARGET_ENDS}{what}")
}

/// Name of the case that a peer does.
pub fn peer(name: impl Display) -> String {
    format!("{PEER}{name}")
}

/// A time for one iteration in nanoseconds, with its confidence interval (95 % unless a bench says otherwise).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub lower: f64,
    /// Upper end of the interval.
    pub upper: f64,
}

/// One case that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Bench target; empty for a group that was not named by [`group`].
    pub target: String,
    /// What the cases of the group have in common.
    pub group: String,
    /// Its own name.
    pub name: String,
    /// What it took.
    pub time: Time,
}

impl Case {
    /// The peer's name, if it is a peer's case.
    pub fn peer(&self) -> Option<&str> {
        self.name.strip_prefix(PEER)
    }
}

/// What a folder of criterion holds.
#[derive(Debug, Default)]
pub struct Results {
    /// The cases, by target as in [`TARGETS`], then by name.
    pub cases: Vec<Case>,
    /// Folders of cases that lack a file, as a run that was stopped leaves them.
    pub incomplete: Vec<PathBuf>,
}

/// `benchmark.json`, as far as it counts here.
#[derive(Deserialize)]
struct Names {
    group_id: String,
    function_id: Option<String>,
    value_str: Option<String>,
}

/// `estimates.json`, as far as it counts here.
#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    confidence_interval: Interval,
    point_estimate: f64,
}

#[derive(Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

/// Reads every case below `folder` that was measured at or after `since`. Where there is no such folder there is none.
///
/// # Errors
/// A folder or file cannot be read, or does not hold what criterion writes.
pub fn read(folder: &Path, since: Option<SystemTime>) -> anyhow::Result<Results> {
    let mut results = Results::default();
    if folder.exists() {
        collect(folder, since, &mut results)?;
    }
    let place = |target: &str| TARGETS.iter().position(|other| *other == target);
    results.cases.sort_by_key(|case| {
        let target = place(&case.target).unwrap_or(TARGETS.len());
        // Peers come after what is measured against them.
        let is_peer = case.peer().is_some();
        (target, case.group.clone(), is_peer, case.name.clone())
    });
    results.incomplete.sort();
    Ok(results)
}

fn collect(folder: &Path, since: Option<SystemTime>, results: &mut Results) -> anyhow::Result<()> {
    let unreadable = || format!("{}: cannot read the folder", folder.display());
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        if !entry.file_type().with_context(unreadable)?.is_dir() {
            continue;
        }
        let path = entry.path();
        // Beside it lie `base`, a copy, and `change`, a comparison of the two.
        if entry.file_name() != "new" {
            collect(&path, since, results)?;
            continue;
        }
        let (names, estimates) = (path.join("benchmark.json"), path.join("estimates.json"));
        if !names.exists() || !estimates.exists() {
            results.incomplete.push(path);
            continue;
        }
        let written = fs::metadata(&names).and_then(|data| data.modified());
        let written = written.with_context(|| format!("{}: cannot be read", names.display()))?;
        if since.is_none_or(|since| written >= since) {
            results.cases.push(case(&names, &estimates)?);
        }
    }
    Ok(())
}

fn case(names: &Path, estimates: &Path) -> anyhow::Result<Case> {
    let Names {
        group_id,
        function_id,
        value_str,
    } = json(names)?;
    let Estimates { median } = json(estimates)?;
    let time = Time {
        median: median.point_estimate,
        lower: median.confidence_interval.lower_bound,
        upper: median.confidence_interval.upper_bound,
    };
    let times = [time.lower, time.median, time.upper];
    if !times.iter().all(|&time| time.is_finite() && time > 0.0) {
        bail!(
            "{}: the median is {} in {} to {}; expected nanoseconds above 0; delete the folder and run the bench again",
            estimates.display(),
            time.median,
            time.lower,
            time.upper
        );
    }
    let (target, group) = group_id
        .split_once(TARGET_ENDS)
        .unwrap_or(("", group_id.as_str()));
    let name: Vec<String> = function_id.into_iter().chain(value_str).collect();
    Ok(Case {
        target: target.to_owned(),
        group: group.to_owned(),
        name: name.join("/"),
        time,
    })
}

fn json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    serde_json::from_slice(&text).with_context(|| {
        format!(
            "{}: not what criterion writes; delete the folder and run the bench again",
            path.display()
        )
    })
}

/// The cases as a Markdown table: the median with its confidence interval, and for each peer of the same group how many
/// times as long it took, so that numbers above 1 are in our favour.
pub fn markdown(cases: &[Case]) -> String {
    let mut table = String::from(
        "| bench | case | median | 95 % interval | peer's time / own |\n| --- | --- | --- | --- | --- |\n",
    );
    for case in cases {
        let ratios: Vec<String> = cases
            .iter()
            .filter(|_| case.peer().is_none())
            .filter(|other| (&other.target, &other.group) == (&case.target, &case.group))
            .filter_map(|other| {
                let ratio = significant(other.time.median / case.time.median);
                Some(format!("{ratio} ({})", other.peer()?))
            })
            .collect();
        let bench = match case.target.is_empty() {
            true => case.group.clone(),
            false => group(&case.target, &case.group),
        };
        let Time {
            median,
            lower,
            upper,
        } = case.time;
        let cells = [
            bench,
            case.name.clone(),
            shown(median),
            format!("{} to {}", shown(lower), shown(upper)),
            ratios.join(", "),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        writeln!(table, "| {} |", cells.join(" | ")).expect("a string takes all");
    }
    table
}

/// Nanoseconds in a unit that leaves one to three digits in front of the point.
fn shown(nanoseconds: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let unit = units.iter().find(|(size, _)| nanoseconds >= *size);
    let (size, name) = unit.unwrap_or(&(1.0, "ns"));
    format!("{} {name}", significant(nanoseconds / size))
}

/// A number above 0 with three digits that count; whole numbers keep all.
fn significant(number: f64) -> String {
    let before = number.log10().floor() as i32;
    let after = (2 - before).clamp(0, 9) as usize;
    format!("{number:.after$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_their_units() {
        for (nanoseconds, expected) in [
            (0.5, "0.500 ns"),
            (999.0, "999 ns"),
            (1_000.0, "1.00 µs"),
            (12_345.0, "12.3 µs"),
            (2.5e6, "2.50 ms"),
            (7.2e10, "72.0 s"),
            (1.5e13, "15000 s"),
        ] {
            assert_eq!(shown(nanoseconds), expected);
        }
    }

    #[test]
    fn every_bench_target_is_run() {
        let manifest = include_str!("../Cargo.toml");
        let named: Vec<&str> = manifest
            .split("[[bench]]\nname = \"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert_eq!(named, TARGETS);
    }
}
