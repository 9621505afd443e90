//! Tables for people: aligned, as wide as the terminal, one line a row, the status in colour.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Color, ColumnConstraint, ContentArrangement, Row, presets};

use super::Fields;
use crate::job::status::Status;
use crate::text::duration;
use crate::text::plain::plain;

/// Columns that are never left out.
const KEPT: [&str; 3] = ["job", "status", "error"];
/// The minimum width of a table.
const NARROWEST: u16 = 40;
/// The minimum width of a text column.
const TEXT_WIDTH: usize = 24;
const PADDING: usize = 2;

/// One value of a row.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Text(String),
    /// A text that must not be cut.
    Whole(String),
    /// Aligned to the right for people.
    Number(String),
    /// A duration; aligned to the right for people.
    Length(Duration),
    /// Coloured by a run's status, an attempt's outcome or a finding's severity.
    Status(String),
    /// A time shown exactly.
    At(DateTime<Utc>),
    /// A time shown by its distance from the database's now.
    Since(DateTime<Utc>, DateTime<Utc>),
    Nothing,
}

impl Cell {
    /// The text of the cell alone; times are RFC 3339.
    pub(super) fn bare(&self) -> String {
        match self {
            Self::Text(text) | Self::Whole(text) | Self::Number(text) | Self::Status(text) => {
                plain(text)
            }
            Self::Length(length) => duration::show(*length),
            Self::At(at) | Self::Since(at, _) => instant(*at),
            Self::Nothing => String::new(),
        }
    }

    /// Returns whether the cell must not be cut: half a number is another number.
    fn is_whole(&self) -> bool {
        !matches!(self, Self::Text(_) | Self::Nothing)
    }

    /// Returns whether a narrow terminal drops this column first.
    fn is_time(&self) -> bool {
        matches!(self, Self::Length(_) | Self::At(_) | Self::Since(..))
    }

    /// The text for people.
    fn text(&self, times: Times) -> String {
        match (self, times) {
            (Self::Since(at, now), Times::Full) => relative(*at, *now),
            (Self::Since(at, now), Times::Short) => {
                // Keeps only the largest unit.
                let text = relative(*at, *now);
                let words: Vec<_> = text.split(' ').collect();
                words[..words.len().min(if at > now { 2 } else { 1 })].join(" ")
            }
            (Self::At(at), Times::Short) => at.format("%Y-%m-%dT%H:%MZ").to_string(),
            _ => self.bare(),
        }
    }

    fn shown(&self, times: Times, is_coloured: bool) -> comfy_table::Cell {
        let cell = comfy_table::Cell::new(self.text(times));
        match self {
            Self::Number(_) | Self::Length(_) => cell.set_alignment(CellAlignment::Right),
            Self::Status(word) if is_coloured => match colour_of(word) {
                Some(colour) => cell.fg(colour),
                None => cell,
            },
            _ => cell,
        }
    }
}

/// Whether colours are printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set; elsewhere if CLICOLOR_FORCE is.
    Auto,
    Always,
    Never,
}

static COLOUR: OnceLock<Colour> = OnceLock::new();

pub(crate) fn set_colour(colour: Colour) {
    // Fails only if it was set before; the command line is parsed once.
    let _ = COLOUR.set(colour);
}

/// Returns whether colours are printed to this stream, by --color, <https://no-color.org> and
/// <https://bixense.com/clicolors>.
pub(super) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match COLOUR.get() {
        Some(Colour::Always) => true,
        Some(Colour::Never) => false,
        Some(Colour::Auto) | None => {
            variable("NO_COLOR").is_none()
                && (variable("CLICOLOR_FORCE").is_some_and(|value| value != "0")
                    || stream.is_terminal() && variable("TERM").is_some_and(|term| term != "dumb"))
        }
    }
}

/// How people see rows.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    /// Headings, each with the name of the field below it.
    columns: &'a [(&'a str, &'a str)],
    /// Printed if there is no row.
    pub(super) none: &'a str,
    /// The database's now; if it is set, times are shown by their distance from it.
    now: Option<DateTime<Utc>>,
    height: Height,
}

impl<'a> Table<'a> {
    pub(crate) const fn new(columns: &'a [(&'a str, &'a str)], none: &'a str) -> Self {
        Self { columns, none, now: None, height: Height::OneLine }
    }

    /// Shows times by their distance from `now`.
    pub(crate) fn since(self, now: Option<DateTime<Utc>>) -> Self {
        Self { now, ..self }
    }

    /// Wraps long texts instead of cutting them.
    pub(crate) fn wrapped(self) -> Self {
        Self { height: Height::AsNeeded, ..self }
    }

    /// Returns the table in the width of the terminal.
    pub(super) fn show(&self, rows: &[Fields]) -> String {
        let cells =
            |row: &Fields| self.columns.iter().map(|(_, name)| row.cell(name, self.now)).collect();
        if let [(_, name)] = self.columns {
            // A table of one column needs no heading.
            return rows.iter().map(|row| row.cell(name, self.now).bare() + "\n").collect();
        }
        let header: Vec<_> = self.columns.iter().map(|(heading, _)| *heading).collect();
        table(&header, &rows.iter().map(cells).collect::<Vec<_>>(), self.height)
    }
}

/// How a text is shown that does not fit into its column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Height {
    /// Cut.
    OneLine,
    /// Wrapped.
    AsNeeded,
}

/// The precision of times.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Times {
    Full,
    Short,
}

/// Returns the columns that fit into a terminal of this width, and the precision of times. Shortens
/// times first. Then leaves out times and empty columns, starting from the right; then numbers,
/// starting from the left; then texts that may be cut off, starting from the right. The first
/// column, the job, the status and the error stay.
fn fitting(
    header: &[&str],
    rows: &[Vec<Cell>],
    height: Height,
    width: usize,
) -> (Vec<usize>, Times) {
    let mut columns: Vec<usize> = (0..header.len()).collect();
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let fits = |columns: &[usize], times| {
        let width_of = |column: &usize| {
            let is_text = !cells(*column).any(Cell::is_whole);
            let widest = cells(*column)
                .map(|cell| cell.text(times).chars().count())
                .max()
                .unwrap_or_default();
            let wanted = widest.max(header[*column].len());
            PADDING + if is_text { wanted.min(TEXT_WIDTH) } else { wanted }
        };
        columns.iter().map(width_of).sum::<usize>() <= width
    };
    if fits(&columns, Times::Full) {
        return (columns, Times::Full);
    }
    let is_time =
        |column: &usize| cells(*column).all(|cell| matches!(cell, Cell::Nothing) || cell.is_time());
    let is_number = |column: &usize| {
        cells(*column).any(|cell| matches!(cell, Cell::Number(_) | Cell::Whole(_)))
    };
    let is_minor = |column: &usize| height == Height::OneLine && !KEPT.contains(&header[*column]);
    while !fits(&columns, Times::Short) {
        let others = || columns.iter().skip(1);
        let time = others().rposition(is_time);
        let left_out =
            time.or_else(|| others().position(is_number)).or_else(|| others().rposition(is_minor));
        let Some(left_out) = left_out else { break };
        columns.remove(left_out + 1);
    }
    (columns, Times::Short)
}

fn table(header: &[&str], rows: &[Vec<Cell>], height: Height) -> String {
    let is_coloured = is_coloured(&io::stdout());
    let width = rustix::termios::tcgetwinsize(io::stdout())
        .ok()
        .map(|size| size.ws_col)
        .filter(|width| *width > 0);
    let width = width.map(|width| width.max(NARROWEST));
    let (columns, times) = fitting(header, rows, height, width.map_or(usize::MAX, usize::from));
    let fitted = |row: Vec<comfy_table::Cell>| {
        let mut row = Row::from(row);
        if height == Height::OneLine {
            row.max_height(1);
        }
        row
    };
    let mut table = comfy_table::Table::new();
    table
        .load_style(presets::NOTHING)
        .set_truncation_indicator("…")
        .set_header(columns.iter().map(|column| header[*column].to_uppercase()))
        .add_rows(rows.iter().map(|row| {
            let cells = columns.iter().filter_map(|column| row.get(*column));
            fitted(cells.map(|cell| cell.shown(times, is_coloured)).collect())
        }));
    for (column, shown) in columns.iter().zip(table.column_iter_mut()) {
        if rows.iter().any(|row| row.get(*column).is_some_and(Cell::is_whole)) {
            shown.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    if is_coloured {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.to_string().lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// RFC 3339, to the second.
pub(crate) fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// A time by its distance from now: `3m 12s ago`, `in 2h`, `now`.
pub(crate) fn relative(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    match ((now - at).to_std(), (at - now).to_std()) {
        (Ok(past), _) if past >= Duration::from_secs(1) => {
            format!("{} ago", duration::show_whole(past))
        }
        (_, Ok(ahead)) if ahead >= Duration::from_secs(1) => {
            format!("in {}", duration::show_whole(ahead))
        }
        _ => "now".to_owned(),
    }
}

fn colour_of(word: &str) -> Option<Color> {
    Some(match Status::parse(word) {
        Some(Status::Succeeded) => Color::Green,
        Some(Status::Running) => Color::Cyan,
        Some(Status::Failed) => Color::Yellow,
        Some(Status::Dead) => Color::Red,
        Some(Status::Queued | Status::Cancelled) => return None,
        None => match word {
            "interrupted" | "lease_expired" | "warn" | "unknown" => Color::Yellow,
            "bad" => Color::Red,
            "ok" => Color::Green,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }

    #[track_caller]
    fn shows(at: &str, text: &str) {
        let [at, now] = [at, "2026-01-05T12:00:00Z"]
            .map(|time| DateTime::parse_from_rfc3339(time).expect("a time"));
        assert_eq!(relative(at.to_utc(), now.to_utc()), text);
    }

    #[track_caller]
    fn fits(width: usize, columns: &[usize], times: Times) {
        let now = DateTime::UNIX_EPOCH;
        let row = vec![
            Cell::Number("1234".to_owned()),
            text("cleanup_nightly"),
            Cell::Status("succeeded".to_owned()),
            Cell::Whole("1/10".to_owned()),
            Cell::Since(now, now + Duration::from_secs(200)),
            Cell::Length(Duration::from_secs(1)),
            text("cannot connect to 127.0.0.1:9: Connection refused"),
        ];
        let header = ["id", "job", "status", "attempts", "created", "run time", "error"];
        assert_eq!(
            fitting(&header, &[row], Height::OneLine, width),
            (columns.to_vec(), times),
            "{width}"
        );
    }

    #[test]
    fn times_are_shortened_and_left_out_before_texts_are_cut() {
        fits(92, &[0, 1, 2, 3, 4, 5, 6], Times::Full);
        fits(91, &[0, 1, 2, 3, 4, 5, 6], Times::Short);
        fits(88, &[0, 1, 2, 3, 4, 6], Times::Short);
        fits(78, &[0, 1, 2, 3, 6], Times::Short);
        fits(69, &[0, 1, 2, 6], Times::Short);
        fits(40, &[0, 1, 2, 6], Times::Short);
    }

    #[test]
    fn other_texts_are_left_out_before_jobs_are_cut() {
        let texts = ["cleanup_nightly", "fires", "0 2 * * *", "Europe/Berlin"].map(text);
        let row = [vec![Cell::At(DateTime::UNIX_EPOCH)], texts.to_vec()].concat();
        let header = ["at", "job", "state", "schedule", "time zone"];
        let columns = |height, width| fitting(&header, std::slice::from_ref(&row), height, width).0;
        assert_eq!(columns(Height::OneLine, 69), [0, 1, 2, 3, 4]);
        assert_eq!(columns(Height::OneLine, 54), [0, 1, 2, 3]);
        assert_eq!(columns(Height::OneLine, 40), [0, 1]);
        assert_eq!(columns(Height::AsNeeded, 40), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_short_time_has_one_unit() {
        let now = DateTime::UNIX_EPOCH + Duration::from_secs(100_000);
        let short = |at| Cell::Since(at, now).text(Times::Short);
        assert_eq!(short(now - Duration::from_secs(200)), "3m");
        assert_eq!(short(now + Duration::from_secs(7500)), "in 2h");
        assert_eq!(short(now), "now");
        assert_eq!(Cell::At(now).text(Times::Short), "1970-01-02T03:46Z");
    }

    #[test]
    fn a_time_is_shown_relative_to_now() {
        shows("2026-01-05T12:00:00.900Z", "now");
        shows("2026-01-05T11:59:59.100Z", "now");
        shows("2026-01-05T11:59:57.100Z", "2s ago");
        shows("2026-01-05T11:55:30Z", "4m 30s ago");
        shows("2026-01-02T10:00:00Z", "3d 2h ago");
        shows("2026-01-05T12:02:00Z", "in 2m");
        shows("2027-01-05T12:00:00Z", "in 365d");
    }
}
