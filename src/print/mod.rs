//! The only place that writes to a terminal, a pipe or a log: answers to stdout, the rest to stderr,
//! and nothing that a job's name or output could use to command the terminal.

mod closed;
mod hourly;
mod later;
mod table;

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Context;
use env_logger::{Target, WriteStyle};
use log::LevelFilter;
use serde::Serialize;

use crate::exit::{Exit, Fault};
use later::Later;
use table::{Colour, Height};

pub(crate) use hourly::complain_hourly;
pub(crate) use later::finish;
pub(crate) use table::{Cell, instant, relative};

/// How an answer is printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// A table on a terminal, else tab-separated values without a header.
    Text,
    Json,
}

impl Form {
    pub(crate) fn new(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Prints rows: `header` names the columns on a terminal, `cells` makes a row of values, and JSON
/// is the rows themselves.
///
/// # Errors
/// stdout takes no more, for another reason than that its reader has gone.
pub(crate) fn rows<T: Serialize, C: Into<Cell>>(
    form: Form,
    header: &[&str],
    rows: &[T],
    cells: impl Fn(&T) -> Vec<C>,
) -> anyhow::Result<()> {
    rows_of(Height::OneLine, form, header, rows, cells)
}

/// Prints rows. If there are none, prints `none` for people.
///
/// # Errors
/// The same as `rows`.
pub(crate) fn rows_or<T: Serialize, C: Into<Cell>>(
    none: &str,
    form: Form,
    header: &[&str],
    rows: &[T],
    cells: impl Fn(&T) -> Vec<C>,
) -> anyhow::Result<()> {
    if rows.is_empty() {
        hint(form, none);
    }
    self::rows(form, header, rows, cells)
}

/// Prints rows whose texts are to be read to their end: on a terminal they go on in the next line.
///
/// # Errors
/// As `rows`.
pub(crate) fn full_rows<T: Serialize, C: Into<Cell>>(
    form: Form,
    header: &[&str],
    rows: &[T],
    cells: impl Fn(&T) -> Vec<C>,
) -> anyhow::Result<()> {
    rows_of(Height::AsNeeded, form, header, rows, cells)
}

fn rows_of<T: Serialize, C: Into<Cell>>(
    height: Height,
    form: Form,
    header: &[&str],
    rows: &[T],
    cells: impl Fn(&T) -> Vec<C>,
) -> anyhow::Result<()> {
    if form == Form::Json {
        return json(&rows);
    }
    let rows = rows.iter().map(|row| cells(row).into_iter().map(Into::into).collect::<Vec<Cell>>());
    if io::stdout().is_terminal() {
        return if rows.len() == 0 { Ok(()) } else { answer(&table::table(header, rows, height, Colour::wanted())) };
    }
    let mut text = String::new();
    for row in rows {
        text.extend([row.iter().map(Cell::bare).collect::<Vec<_>>().join("\t").as_str(), "\n"]);
    }
    answer(&text)
}

/// Prints what introduces rows, to people only.
///
/// # Errors
/// As `answer`.
pub(crate) fn heading(form: Form, text: &str) -> anyhow::Result<()> {
    if form == Form::Json || !io::stdout().is_terminal() {
        return Ok(());
    }
    answer(&format!("{}\n\n", plain(text)))
}

/// Prints facts line by line, their names aligned; what there is nothing of is left out. People get
/// instants with their distance from now.
///
/// # Errors
/// As `answer`.
pub(crate) fn facts(facts: Vec<(&str, Cell)>) -> anyhow::Result<()> {
    let people = io::stdout().is_terminal();
    let facts = facts.into_iter().filter(|(_, cell)| !matches!(cell, Cell::Nothing));
    let values: Vec<_> = facts
        .map(|(name, cell)| match cell {
            Cell::Since(at, now) if people => (name, format!("{} ({})", instant(at), relative(at, now))),
            cell => (name, cell.bare()),
        })
        .collect();
    let width = values.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    answer(
        &values
            .iter()
            .map(|(name, value)| format!("{:1$}  {value}\n", format!("{name}:"), width + 1))
            .collect::<String>(),
    )
}

/// Prints the last lines of what a job printed, indented and harmless.
///
/// # Errors
/// As `answer`.
pub(crate) fn excerpt(text: &str, lines: usize) -> anyhow::Result<()> {
    let skipped = text.lines().count().saturating_sub(lines);
    let mut excerpt = String::new();
    for line in text.lines().skip(skipped) {
        // A tab commands nothing and keeps columns apart.
        let line: Vec<_> = line.split('\t').map(plain).collect();
        excerpt.extend(["    ", line.join("\t").trim_end(), "\n"]);
    }
    answer(&excerpt)
}

/// Prints one value as JSON.
///
/// # Errors
/// As `answer`.
pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let json = serde_json::to_string(value).context("cannot write JSON")?;
    let mut text = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // serde_json escapes ASCII control characters in strings; outside strings they are white
        // space.
        if c >= '\u{7f}' && commands_terminals(c) {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text.push('\n');
    answer(&text)
}

/// Prints an answer as JSON, or as this text.
///
/// # Errors
/// As `answer`.
pub(crate) fn either<T: Serialize>(form: Form, value: &T, text: &str) -> anyhow::Result<()> {
    match form {
        Form::Json => json(value),
        Form::Text => answer(text),
    }
}

/// Writes an answer to stdout. A reader that has gone wants no more: that is no error.
///
/// # Errors
/// stdout is closed or its device is full.
pub(crate) fn answer(text: &str) -> anyhow::Result<()> {
    // Who has nothing to say misses no stdout.
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    let written =
        if closed::stdout() { Err(ErrorKind::NotConnected.into()) } else { stdout.write_all(text.as_bytes()) };
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotConnected => {
            Err(Fault::new(Exit::CouldNot, "cannot write the answer: stdout is closed").into())
        }
        done => done.context("cannot write the answer"),
    }
}

/// Says on stderr, in one line, what went wrong.
pub(crate) fn complain(line: &str) {
    // Behind what the log said before.
    finish();
    // There is nowhere left to say that stderr is gone.
    let _ = writeln!(io::stderr(), "jobctl: {}", plain(line));
}

/// Says on stderr, in several lines, what is wrong with a command line.
pub(crate) fn explain(lines: &str) {
    let lines: Vec<_> = lines.lines().map(plain).collect();
    let _ = writeln!(io::stderr(), "jobctl: {}", lines.join("\n"));
}

/// Says on stderr what somebody who reads the answer on a terminal may want to know besides.
pub(crate) fn hint(form: Form, line: &str) {
    if form == Form::Text && io::stdout().is_terminal() {
        complain(line);
    }
}

/// Asks for confirmation at the terminal. Returns true if stdin is no terminal or there is no
/// question.
///
/// # Errors
/// Those of `question`; stdin can't be read.
pub(crate) fn confirm(question: impl FnOnce() -> anyhow::Result<Option<String>>) -> anyhow::Result<bool> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Ok(true);
    }
    let Some(question) = question()? else { return Ok(true) };
    let _ = write!(io::stderr(), "{} [y/N] ", plain(&question));
    let mut line = String::new();
    stdin.read_line(&mut line).context("cannot read the answer")?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Says on stderr how far a long command is, where somebody looks on.
pub(crate) fn progress(line: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{line}");
        let _ = stderr.flush();
    }
}

/// The text on one line, with what a terminal would obey (control characters, direction marks)
/// written out instead.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if commands_terminals(c) {
            let _ = write!(plain, "{}", c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Returns whether a character changes the terminal instead of being shown: a control character or
/// a direction mark.
fn commands_terminals(c: char) -> bool {
    let is_direction = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || is_direction
}

/// Starts the log on stderr: one line an event. `JOBCTL_LOG` overrides the level.
///
/// # Errors
/// `JOBCTL_LOG` is no filter.
pub(crate) fn start_log(level: LevelFilter) -> anyhow::Result<()> {
    let mut builder = env_logger::Builder::new();
    let is_coloured = io::stderr().is_terminal() && Colour::wanted() == Colour::Yes;
    builder.write_style(if is_coloured { WriteStyle::Always } else { WriteStyle::Never });
    builder.target(Target::Pipe(Box::new(Later)));
    builder.filter_module("jobctl", level);
    if let Some(filter) = std::env::var("JOBCTL_LOG").ok().filter(|filter| !filter.is_empty()) {
        let level = filter.parse().map_err(|_| {
            Fault::usage(format!("JOBCTL_LOG is `{}`; write off, error, warn, info, debug or trace", plain(&filter)))
        })?;
        builder.filter_module("jobctl", level);
    }
    builder.format(|buffer, record| {
        let style = buffer.default_level_style(record.level());
        let level = record.level().as_str().to_ascii_lowercase();
        writeln!(buffer, "{} {style}{level:<5}{style:#} {}", buffer.timestamp(), plain(&record.args().to_string()))
    });
    builder.init();
    Ok(())
}
