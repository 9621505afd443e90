//! Errors and warnings on stderr, and questions to the person at the terminal.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::Context;
use log::{Level, log_enabled};

use super::log_writer::{finish, is_json};
use crate::exit::{Exit, Fault};
use crate::text::plain::{self, plain};

/// Writes an error or a warning to stderr, in one line.
pub(crate) fn complain(line: &str) {
    if is_json() && log_enabled!(Level::Error) {
        return log::error!("{line}");
    }
    // Write the log lines that came before.
    finish();
    // If stderr is closed, nothing else can report it.
    let _ = writeln!(io::stderr(), "jobctl: {}", plain::line(line));
}

/// Writes the error about a command line to stderr, in several lines.
pub(crate) fn explain(lines: &str) {
    let lines: Vec<_> = lines.lines().map(plain::line).collect();
    let _ = writeln!(io::stderr(), "jobctl: {}", lines.join("\n"));
}

/// Returns whether a person can answer a prompt: stdin is a terminal.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Asks whether to do `what`. Fails if the answer is not yes, or if there is no terminal to ask.
/// `command` is the command's name, for the error.
pub(crate) fn confirm(command: &str, what: &str) -> anyhow::Result<()> {
    if !can_ask() {
        return Err(unaskable(command, what).into());
    }
    let _ = write!(io::stderr(), "{}? [y/N] ", plain(what));
    let mut line = String::new();
    // An answer without an end must not fill the memory.
    io::stdin().lock().take(100).read_line(&mut line).context("cannot read the answer")?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Fault::new(Exit::CouldNot, format!("cannot {command}: not confirmed")).into()),
    }
}

/// The error of a command that would have to ask before it does `what`, but can't.
pub(crate) fn unaskable(command: &str, what: &str) -> Fault {
    Fault::usage(format!(
        "cannot {command}: it would {what}, and stdin is not a terminal to ask; add --yes"
    ))
}
