//! What is printed: results to standard output, made harmless; progress and errors to standard error.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// Text from a corpus, a model or a file name as it may reach a terminal: control characters, escape
/// sequences and direction overrides are shown as `\u{..}`, a line feed and a tab pass.
pub fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let passes = c == '\n' || c == '\t';
        if (c.is_control() && !passes) || is_invisible_control(c) {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Marks, embeddings, overrides and isolates of the direction of writing, line and paragraph separators, and
/// the byte order mark. Joiners pass: scripts and emoji need them.
fn is_invisible_control(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
    )
}

/// As [`harmless`], on one line.
pub fn harmless_line(text: &str) -> String {
    harmless(&text.replace(['\n', '\r', '\t'], " "))
}

/// Prints one JSON value on a line of its own; control characters beyond ASCII's are escaped too.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string(value)?;
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        // JSON leaves DEL and the C1 controls as they are; some terminals act on them.
        if matches!(c, '\u{7f}'..='\u{9f}') || is_invisible_control(c) {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    print(&shown)
}

/// Prints one line of results.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(line: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}

/// Prints a part of a line at once. A reader who went away is noticed at the next whole line.
pub fn print_piece(piece: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(piece.as_bytes());
    let _ = out.flush();
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard output is a terminal that takes colour.
pub fn colour() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Escape sequences for bold, faint and plain, where the terminal takes them.
pub fn styles() -> (&'static str, &'static str, &'static str) {
    if colour() {
        ("\x1b[1m", "\x1b[2m", "\x1b[0m")
    } else {
        ("", "", "")
    }
}

/// What stands in front of an answer.
pub fn answer_label() -> String {
    let (bold, _, plain) = styles();
    format!("{bold}Answer:{plain} ")
}

/// Writes a line to standard error. Where nobody reads it, nothing is lost but the line.
pub fn write_error(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says something about the work, on standard error.
pub fn say(message: &str) {
    write_error(&harmless(message));
}

/// Prints an error with its causes, each once.
pub fn print_error(error: &anyhow::Error) {
    let mut shown = String::new();
    for cause in error.chain() {
        let cause = harmless(&cause.to_string());
        if shown.is_empty() {
            shown = cause;
        } else if !shown.contains(&cause) {
            let _ = write!(shown, ": {cause}");
        }
    }
    write_error(&format!("error: {shown}"));
}

/// Whether the error is that of a reader who went away: that ends a program quietly.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// A progress bar on standard error with rate and time left; plain silence where that is no terminal.
pub fn bar(label: &str, total: u64, bytes: bool) -> ProgressBar {
    let bar = if total == 0 {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::new(total)
    };
    let template = match (total, bytes) {
        (0, true) => "{prefix} {spinner} {bytes} ({bytes_per_sec})",
        (0, false) => "{prefix} {spinner} {human_pos} ({per_sec})",
        (_, true) => "{prefix} {wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}, {eta} left)",
        (_, false) => "{prefix} {wide_bar} {human_pos}/{human_len} ({per_sec}, {eta} left)",
    };
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_prefix(label.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_act_on() {
        assert_eq!(
            harmless("a\u{1b}[2Jb\u{9b}1mc\u{7f}\u{202e}d\te\nf"),
            "a\\u{1b}[2Jb\\u{9b}1mc\\u{7f}\\u{202e}d\te\nf"
        );
        assert_eq!(harmless("naïve 東京 👩‍🔬"), "naïve 東京 👩‍🔬");
        assert_eq!(harmless_line("a\r\nb"), "a  b");
    }
}
