//! Writes answers to stdout, and errors, hints and the log to stderr.

mod fields;
mod log_writer;
mod progress;
mod rate_limit;
mod summary;
mod table;

use std::fmt::Write as _;
use std::io::{self, BufRead, ErrorKind, IsTerminal, Read, Write};
use std::sync::OnceLock;

use anyhow::Context;
use clap::{Args, ValueEnum};
use env_logger::fmt::style::AnsiColor;
use env_logger::{Target, WriteStyle};
use log::{Level, LevelFilter, Record, log_enabled};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::exit::{Exit, Fault};
use crate::text::listing::Listing;
use crate::text::plain::{self, is_invisible, plain};
use log_writer::LogWriter;

pub(crate) use fields::Fields;
pub(crate) use log_writer::finish;
pub(crate) use progress::Progress;
pub(crate) use rate_limit::{complain_hourly, state_folder};
pub(crate) use summary::Summary;
pub(crate) use table::{Cell, Colour, Table, instant, relative, set_colour};

/// Characters of a fact that people see.
const LONGEST_FACT: usize = 1000;

/// The format of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    /// An object a line.
    Json,
}

static LOG_FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// A line of the log. In lines about an attempt, it has the attempt's keys.
struct LogLine(Vec<(&'static str, Value)>);

impl Serialize for LogLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// The keys of an attempt. The status is the run's after the attempt; `lost` if another tick
/// recovered the run.
const ATTEMPT_KEYS: [&str; 9] = [
    "run",
    "job",
    "attempt",
    "worker",
    "status",
    "run_time_seconds",
    "error_type",
    "error",
    "next_attempt_seconds",
];

/// The format of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Tsv,
    Json,
    JsonLines,
}

/// How a command prints its answer.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// table, tsv, json or json-lines [default: table on a terminal, else tsv]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<Format>,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Begin TSV with a line of field names
    #[arg(long)]
    pub(crate) header: bool,
}

impl Output {
    pub(crate) fn format(self) -> Format {
        let usual = if io::stdout().is_terminal() { Format::Table } else { Format::Tsv };
        if self.json { Format::Json } else { self.format.unwrap_or(usual) }
    }

    pub(crate) fn is_json(self) -> bool {
        matches!(self.format(), Format::Json | Format::JsonLines)
    }

    /// Whether a person reads the answer at a terminal.
    pub(crate) fn is_for_people(self) -> bool {
        self.format() == Format::Table && io::stdout().is_terminal()
    }

    /// Whether TSV was asked for, and is not only the default without a terminal.
    pub(crate) fn asks_for_tsv(self) -> bool {
        self.header || self.format == Some(Format::Tsv)
    }
}

/// Prints rows. JSON and TSV have all fields of a row; `table` says what people see.
pub(crate) fn rows<T: Serialize + Default>(
    output: Output,
    rows: &[T],
    table: &Table<'_>,
) -> anyhow::Result<()> {
    named_rows(output, &Fields::of(&T::default())?.names(), rows, table)
}

/// Prints a list as `rows` does. If it has the time of the clock, a table shows times by their
/// distance from it.
pub(crate) fn list(output: Output, list: &Listing, table: &Table<'_>) -> anyhow::Result<()> {
    named_rows(output, &list.names, &list.rows, &table.since(list.now))
}

fn named_rows<T: Serialize>(
    output: Output,
    names: &[String],
    rows: &[T],
    table: &Table<'_>,
) -> anyhow::Result<()> {
    match output.format() {
        Format::Json => json(&rows),
        Format::JsonLines => answer(&rows.iter().map(json_line).collect::<Result<String, _>>()?),
        Format::Tsv => tsv_lines(output, "", names, rows),
        Format::Table if rows.is_empty() => {
            hint(output, table.none);
            Ok(())
        }
        Format::Table => answer(&table.show(rows)?),
    }
}

/// Prints one row; its JSON is an object.
pub(crate) fn row<T: Serialize + Default>(
    output: Output,
    row: &T,
    table: &Table<'_>,
) -> anyhow::Result<()> {
    if output.is_json() { json(row) } else { rows(output, std::slice::from_ref(row), table) }
}

/// Prints an object: in TSV, a line for each field. `people` prints it for people.
pub(crate) fn object<T: Serialize>(
    output: Output,
    value: &T,
    people: impl FnOnce(&Fields) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match output.format() {
        Format::Json | Format::JsonLines => json(value),
        Format::Tsv => answer(&Fields::of(value)?.lines()),
        Format::Table => people(&Fields::of(value)?),
    }
}

/// Prints rows of a kind as TSV. Each line begins with the kind.
pub(crate) fn tsv<T: Serialize + Default>(
    output: Output,
    kind: &str,
    rows: &[T],
) -> anyhow::Result<()> {
    tsv_lines(output, kind, &Fields::of(&T::default())?.names(), rows)
}

/// Prints a list of a kind as `tsv` does.
pub(crate) fn tsv_list(output: Output, kind: &str, list: &Listing) -> anyhow::Result<()> {
    tsv_lines(output, kind, &list.names, &list.rows)
}

fn tsv_lines<T: Serialize>(
    output: Output,
    kind: &str,
    names: &[String],
    rows: &[T],
) -> anyhow::Result<()> {
    let mut text = String::new();
    let mut add = |kind: &str, values: Vec<String>| {
        let first = Some(kind.to_owned()).filter(|kind| !kind.is_empty());
        let line = first.into_iter().chain(values).collect::<Vec<_>>().join("\t");
        text.extend([line.trim_end_matches('\t'), "\n"]);
    };
    if output.header {
        add(if kind.is_empty() { "" } else { "kind" }, names.to_vec());
    }
    for row in rows {
        add(kind, Fields::of(row)?.values());
    }
    answer(&text)
}

/// Returns a table below a heading and an empty line, or nothing if there are no rows.
pub(crate) fn section<T: Serialize>(
    heading: &str,
    rows: &[T],
    table: &Table<'_>,
) -> anyhow::Result<String> {
    if rows.is_empty() {
        return Ok(String::new());
    }
    Ok(format!("\n{heading}\n\n{}", table.show(rows)?))
}

/// Prints facts line by line, with aligned names; facts without a value are left out. Long texts
/// are cut.
pub(crate) fn facts<N: AsRef<str>>(facts: Vec<(N, Cell)>) -> anyhow::Result<()> {
    let facts: Vec<_> = facts
        .into_iter()
        .filter(|(_, cell)| !matches!(cell, Cell::Nothing))
        .map(|(name, cell)| match cell {
            Cell::Time(at, Some(now)) => (name, format!("{} ({})", instant(at), relative(at, now))),
            cell => (name, cell.coloured()),
        })
        .collect();
    let width = facts.iter().map(|(name, _)| name.as_ref().len()).max().unwrap_or_default();
    let mut text = String::new();
    for (name, value) in &facts {
        let _ = write!(text, "{:1$}  ", format!("{}:", name.as_ref()), width + 1);
        let _ = match value.char_indices().nth(LONGEST_FACT) {
            Some((end, _)) => writeln!(text, "{}… ({} bytes in all)", &value[..end], value.len()),
            None => writeln!(text, "{value}"),
        };
    }
    answer(&text)
}

/// Prints the last lines of a job's output, indented.
pub(crate) fn excerpt(text: &str, lines: usize) -> anyhow::Result<()> {
    let skipped = text.lines().count().saturating_sub(lines);
    let mut excerpt = String::new();
    for line in text.lines().skip(skipped) {
        // Tabs are harmless and keep columns apart.
        let line: Vec<_> = line.split('\t').map(plain).collect();
        excerpt.extend(["    ", line.join("\t").trim_end(), "\n"]);
    }
    answer(&excerpt)
}

/// Prints one value as JSON.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> anyhow::Result<()> {
    answer(&json_line(value)?)
}

fn json_line<T: Serialize + ?Sized>(value: &T) -> anyhow::Result<String> {
    let json = serde_json::to_string(value).context("cannot write JSON")?;
    let mut text = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // serde_json escapes ASCII control characters only.
        if c >= '\u{7f}' && is_invisible(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text.push('\n');
    Ok(text)
}

/// Replaces the contents of the terminal by a text. Cuts it below, not above, and says how many
/// lines are left out.
pub(crate) fn redraw(text: &str) -> anyhow::Result<()> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).map(|size| size.ws_row.into());
    let rows = size.ok().filter(|rows| *rows > 1).unwrap_or(usize::MAX);
    // Overwrites the lines in place, because an empty screen would flicker.
    let mut lines: Vec<_> = text.lines().map(|line| format!("{line}\x1b[K\n")).collect();
    if lines.len() >= rows {
        let more = lines.split_off(rows.saturating_sub(2)).len();
        lines.push(format!("and {more} more lines\x1b[K\n"));
    }
    answer(&format!("\x1b[H{}\x1b[J", lines.concat()))
}

/// Writes an answer to stdout. If the reader has closed its pipe, it needs no more: no error.
pub(crate) fn answer(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot write the answer"),
    }
}

/// Writes an error or a warning to stderr, in one line.
pub(crate) fn complain(line: &str) {
    if LOG_FORMAT.get() == Some(&LogFormat::Json) && log_enabled!(Level::Error) {
        return log::error!("{line}");
    }
    // The log lines before it come first.
    finish();
    // If stderr is closed, nothing else can report it.
    let _ = writeln!(io::stderr(), "jobctl: {}", plain::line(line));
}

/// Writes the error about a command line to stderr, in several lines.
pub(crate) fn explain(lines: &str) {
    let lines: Vec<_> = lines.lines().map(plain::line).collect();
    let _ = writeln!(io::stderr(), "jobctl: {}", lines.join("\n"));
}

/// Writes a hint to stderr if a person reads the answer at a terminal.
pub(crate) fn hint(output: Output, line: &str) {
    if output.is_for_people() && !line.is_empty() {
        complain(line);
    }
}

/// Returns whether a person can answer a question: stdin is a terminal.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal()
}

/// Asks whether a command may do `what`; fails if the answer is not yes. `command` names it.
pub(crate) fn confirm(command: &str, what: &str) -> anyhow::Result<()> {
    if !can_ask() {
        return Err(unaskable(command, what).into());
    }
    let _ = write!(io::stderr(), "{}? [y/N] ", plain(what));
    let mut line = String::new();
    io::stdin().lock().take(100).read_line(&mut line).context("cannot read the answer")?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Fault::new(Exit::CouldNot, format!("cannot {command}: not confirmed")).into()),
    }
}

/// The error of a command that would have to ask.
pub(crate) fn unaskable(command: &str, what: &str) -> Fault {
    Fault::usage(format!(
        "cannot {command}: it would {what}, and stdin is not a terminal to ask; add --yes"
    ))
}

/// Starts the log on stderr: one line an event. `JOBCTL_LOG` overrides the level.
pub(crate) fn start_log(level: LevelFilter, format: LogFormat) -> anyhow::Result<()> {
    // Fails only if it was set before; the log is started once.
    let _ = LOG_FORMAT.set(format);
    let mut builder = env_logger::Builder::new();
    let is_coloured = table::is_coloured(&io::stderr());
    builder.write_style(if is_coloured { WriteStyle::Always } else { WriteStyle::Never });
    builder.target(Target::Pipe(Box::new(LogWriter)));
    builder.filter_module("jobctl", level);
    if let Some(filter) = std::env::var("JOBCTL_LOG").ok().filter(|filter| !filter.is_empty()) {
        let level = filter.parse().map_err(|_| {
            Fault::usage(format!(
                "JOBCTL_LOG is `{}`; write off, error, warn, info, debug or trace",
                plain(&filter)
            ))
        })?;
        builder.filter_module("jobctl", level);
    }
    builder.format(move |buffer, record| {
        let (time, message) = (buffer.timestamp().to_string(), record.args().to_string());
        let message = plain::cut(&message);
        let level = record.level().as_str().to_ascii_lowercase();
        if format == LogFormat::Json {
            let mut line = vec![
                ("time", time.into()),
                ("level", level.into()),
                ("message", message.as_ref().into()),
            ];
            let keys = ATTEMPT_KEYS.into_iter();
            line.extend(keys.filter_map(|key| Some((key, json_of(&known(record, key)?)?))));
            return buffer
                .write_all(json_line(&LogLine(line)).map_err(io::Error::other)?.as_bytes());
        }
        // Cron must not mail a failure that is retried, so its level is that of a success.
        let style = match known(record, "status") {
            Some(status) if status.to_string() == "failed" => AnsiColor::Yellow.on_default(),
            _ => buffer.default_level_style(record.level()),
        };
        writeln!(buffer, "{time} {style}{level:<5}{style:#} {}", plain(&message))
    });
    builder.init();
    Ok(())
}

/// The note that the log lost lines.
fn dropped(lines: usize) -> String {
    match LOG_FORMAT.get() {
        Some(LogFormat::Json) => {
            format!("{{\"level\":\"warn\",\"message\":\"{lines} lines dropped\"}}\n")
        }
        _ => format!("{lines} lines dropped\n"),
    }
}

/// Returns a value of the log; `None` if it has none.
fn json_of(value: &log::kv::Value<'_>) -> Option<Value> {
    let number = value.to_i64().map(Value::from).or_else(|| value.to_f64().map(Value::from));
    number.or_else(|| value.to_borrowed_str().map(Value::from))
}

fn known<'a>(record: &'a Record<'_>, key: &'a str) -> Option<log::kv::Value<'a>> {
    record.key_values().get(key.into())
}
