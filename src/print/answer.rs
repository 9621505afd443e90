//! Answers on stdout: rows, objects, facts and texts, as a table, TSV or JSON. Hints about them go
//! to stderr.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::cell::Cell;
use super::fields::Fields;
use super::message::complain;
use super::table::Table;
use crate::text::listing::Listing;
use crate::text::plain::{is_invisible, plain};
use crate::text::timestamp::{instant, relative};

/// The most characters of a fact that people see.
const LONGEST_FACT: usize = 1000;

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
    /// Returns the format that a flag asks for, or else the usual one.
    pub(crate) fn format(self) -> Format {
        let usual = if io::stdout().is_terminal() { Format::Table } else { Format::Tsv };
        if self.json { Format::Json } else { self.format.unwrap_or(usual) }
    }

    pub(crate) fn is_json(self) -> bool {
        matches!(self.format(), Format::Json | Format::JsonLines)
    }

    /// Returns whether a person reads the answer at a terminal.
    pub(crate) fn is_for_people(self) -> bool {
        self.format() == Format::Table && io::stdout().is_terminal()
    }

    /// Returns whether a flag asks for TSV, so not if TSV is only the default without a terminal.
    pub(crate) fn asks_for_tsv(self) -> bool {
        self.header || self.format == Some(Format::Tsv)
    }
}

/// Writes a hint to stderr if a person reads the answer at a terminal.
pub(crate) fn hint(output: Output, line: &str) {
    if output.is_for_people() && !line.is_empty() {
        complain(line);
    }
}

/// Prints rows. JSON and TSV have all fields of a row, and a table has the columns of `table`.
pub(crate) fn rows<T: Serialize + Default>(
    output: Output,
    rows: &[T],
    table: &Table<'_>,
) -> anyhow::Result<()> {
    named_rows(output, &Fields::of(&T::default())?.names(), rows, table)
}

/// Prints a list as `rows` does. If the list has the database's time, a table shows times by their
/// distance from it.
pub(crate) fn list(output: Output, list: &Listing, table: &Table<'_>) -> anyhow::Result<()> {
    named_rows(output, &list.names, &list.rows, &table.since(list.now))
}

/// Prints rows whose fields have these names.
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

/// Prints rows as TSV. Each line begins with their kind.
pub(crate) fn tsv<T: Serialize + Default>(
    output: Output,
    kind: &str,
    rows: &[T],
) -> anyhow::Result<()> {
    tsv_lines(output, kind, &Fields::of(&T::default())?.names(), rows)
}

/// Prints a list as `tsv` does.
pub(crate) fn tsv_list(output: Output, kind: &str, list: &Listing) -> anyhow::Result<()> {
    tsv_lines(output, kind, &list.names, &list.rows)
}

/// Prints a line of TSV for each row, after a header if the output has one. Unless `kind` is empty,
/// each line begins with it.
fn tsv_lines<T: Serialize>(
    output: Output,
    kind: &str,
    names: &[String],
    rows: &[T],
) -> anyhow::Result<()> {
    let mut text = String::new();
    let mut add = |first: &str, mut values: Vec<String>| {
        if !kind.is_empty() {
            values.insert(0, first.to_owned());
        }
        text.extend([values.join("\t").trim_end_matches('\t'), "\n"]);
    };
    if output.header {
        add("kind", names.to_vec());
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

/// Prints facts line by line, with aligned names. Leaves out facts without a value, and cuts long
/// texts.
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
        // Print tabs as they are: they are harmless, and keep columns apart.
        let line: Vec<_> = line.split('\t').map(plain).collect();
        excerpt.extend(["    ", line.join("\t").trim_end(), "\n"]);
    }
    answer(&excerpt)
}

/// Prints one value as JSON.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> anyhow::Result<()> {
    answer(&json_line(value)?)
}

/// Returns a line of JSON without invisible characters, which are escaped.
pub(super) fn json_line<T: Serialize + ?Sized>(value: &T) -> anyhow::Result<String> {
    let json = serde_json::to_string(value).context("cannot write JSON")?;
    let mut text = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // Escape what serde_json does not escape: it escapes only ASCII control characters.
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

/// The lines of the smallest section: an empty line, the heading, an empty line, the names, one
/// row.
const SMALLEST_SECTION: usize = 5;

/// Replaces the contents of the terminal by a line with the time, and sections, as far as they fit.
pub(crate) fn redraw(clock: &str, sections: &[String]) -> anyhow::Result<()> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).map(|size| size.ws_row.into());
    let rows = size.ok().filter(|rows| *rows > 1).unwrap_or(usize::MAX);
    let mut text = format!("{clock}\n");
    // Two rows are not for sections: the first one has the time, and the last one the cursor.
    text.extend(fitting(sections, rows - 2).into_iter().flat_map(|line| [line, "\n".to_owned()]));
    // Go to the first line, clear the rest of each line after its text, and then the rows below. To
    // clear the whole screen first would make it flicker.
    answer(&format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")))
}

/// Returns the lines of sections, cut so that they fit into this many rows.
///
/// As long as they do not fit, the longest section loses its last line, down to one row, and gets a
/// line with the number of lost ones. Then the last sections are left out.
fn fitting(sections: &[String], rows: usize) -> Vec<String> {
    let mut shown: Vec<Section> = sections.iter().map(|text| Section::of(text)).collect();
    while shown.iter().map(Section::height).sum::<usize>() > rows {
        let long = shown.iter_mut().filter(|section| section.lines.len() > SMALLEST_SECTION);
        match long.max_by_key(|section| section.lines.len()) {
            Some(longest) => {
                longest.lines.pop();
                longest.lost += 1;
            }
            None => drop(shown.pop()),
        }
    }
    let mut lines = Vec::new();
    for Section { lines: kept, lost } in shown {
        lines.extend(kept.into_iter().map(str::to_owned));
        if lost > 0 {
            lines.push(format!(" and {lost} more"));
        }
    }
    lines
}

/// The lines of a section that are shown, and how many are not.
struct Section<'a> {
    lines: Vec<&'a str>,
    lost: usize,
}

impl<'a> Section<'a> {
    fn of(text: &'a str) -> Self {
        Self { lines: text.lines().collect(), lost: 0 }
    }

    fn height(&self) -> usize {
        self.lines.len() + usize::from(self.lost > 0)
    }
}

/// Writes an answer to stdout. A closed pipe is not an error: its reader needs no more.
pub(crate) fn answer(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot write the answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_share_the_rows_of_a_terminal() {
        let section = |name: &str, rows: usize| {
            let rows: String = (1..=rows).map(|row| format!(" {name}{row}\n")).collect();
            format!("\n{name}\n\n NAMES\n{rows}")
        };
        let sections = [section("a", 1), section("b", 5), section("c", 3)];
        let shown = |rows| fitting(&sections, rows).join("|");
        let [all, a] = [shown(99), "|a|| NAMES| a1".to_owned()];
        assert_eq!(shown(21), all);
        assert_eq!(
            shown(20),
            format!("{a}||b|| NAMES| b1| b2| b3| and 2 more||c|| NAMES| c1| c2| c3")
        );
        assert_eq!(shown(17), format!("{a}||b|| NAMES| b1| and 4 more||c|| NAMES| c1| and 2 more"));
        assert_eq!(shown(16), format!("{a}||b|| NAMES| b1| and 4 more"));
        assert_eq!(shown(5), a);
        assert_eq!(shown(4), "");
    }
}
