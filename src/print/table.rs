//! Rows as people read them: an aligned table that fits the terminal, one line a row, the status in
//! colour; and the same cells as a program reads them.

use std::io;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{CellAlignment, Color, ColumnConstraint, ContentArrangement, Row, Table, presets};

use super::plain;
use crate::duration;
use crate::model::Status;

/// Columns that are never left out.
const KEPT: [&str; 3] = ["job", "status", "error"];
/// Narrower than this no table can be.
const NARROWEST: u16 = 40;
/// The minimum width of a text column.
const TEXT_WIDTH: usize = 24;
const PADDING: usize = 2;

/// One value of a row.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Text(String),
    /// A text that says nothing, or something else, when it is cut off.
    Whole(String),
    /// Aligned to the right for people.
    Number(String),
    /// A duration; aligned to the right for people.
    Length(Duration),
    /// Coloured for people, where its word is a run's status or an attempt's outcome.
    Status(String),
    /// An instant that people want to know exactly.
    At(DateTime<Utc>),
    /// An instant that people want to know by its distance from the database's now.
    Since(DateTime<Utc>, DateTime<Utc>),
    Nothing,
}

impl Cell {
    /// As a program reads it; instants are RFC 3339.
    pub(super) fn bare(&self) -> String {
        match self {
            Self::Text(text) | Self::Whole(text) | Self::Number(text) | Self::Status(text) => plain(text),
            Self::Length(length) => duration::show(*length),
            Self::At(at) | Self::Since(at, _) => instant(*at),
            Self::Nothing => String::new(),
        }
    }

    /// Whether it keeps its width where others have to give way: half a time is none, and half a number another.
    fn is_whole(&self) -> bool {
        !matches!(self, Self::Text(_) | Self::Nothing)
    }

    /// Whether a narrow terminal drops this column first.
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

    fn shown(&self, times: Times, colour: Colour) -> comfy_table::Cell {
        let cell = comfy_table::Cell::new(self.text(times));
        match self {
            Self::Number(_) | Self::Length(_) => cell.set_alignment(CellAlignment::Right),
            Self::Status(word) if colour == Colour::Yes => match colour_of(word) {
                Some(colour) => cell.fg(colour),
                None => cell,
            },
            _ => cell,
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Number(number.to_string())
    }
}

impl From<Duration> for Cell {
    fn from(length: Duration) -> Self {
        Self::Length(length)
    }
}

impl From<DateTime<Utc>> for Cell {
    fn from(at: DateTime<Utc>) -> Self {
        Self::At(at)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

/// Whether a terminal is to be told colours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Colour {
    No,
    Yes,
}

impl Colour {
    /// What the user of a terminal wants, after <https://no-color.org>.
    pub(super) fn wanted() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if refused || dumb { Self::No } else { Self::Yes }
    }
}

/// What becomes of a text that does not fit into its column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Height {
    /// It is cut off.
    OneLine,
    /// It goes on in the next line.
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
/// starting from the left; then texts that may be cut off, starting from the right. The first column,
/// the job, the status and the error stay.
fn fitting(header: &[&str], rows: &[Vec<Cell>], height: Height, width: usize) -> (Vec<usize>, Times) {
    let mut columns: Vec<usize> = (0..header.len()).collect();
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let fits = |columns: &[usize], times| {
        let width_of = |column: &usize| {
            let is_text = !cells(*column).any(Cell::is_whole);
            let widest = cells(*column).map(|cell| cell.text(times).chars().count()).max().unwrap_or_default();
            let wanted = widest.max(header[*column].len());
            PADDING + if is_text { wanted.min(TEXT_WIDTH) } else { wanted }
        };
        columns.iter().map(width_of).sum::<usize>() <= width
    };
    if fits(&columns, Times::Full) {
        return (columns, Times::Full);
    }
    let is_time = |column: &usize| cells(*column).all(|cell| matches!(cell, Cell::Nothing) || cell.is_time());
    let is_number = |column: &usize| cells(*column).any(|cell| matches!(cell, Cell::Number(_) | Cell::Whole(_)));
    let is_minor = |column: &usize| height == Height::OneLine && !KEPT.contains(&header[*column]);
    while !fits(&columns, Times::Short) {
        let others = || columns.iter().skip(1);
        let time = others().rposition(is_time);
        let left_out = time.or_else(|| others().position(is_number)).or_else(|| others().rposition(is_minor));
        let Some(left_out) = left_out else { break };
        columns.remove(left_out + 1);
    }
    (columns, Times::Short)
}

/// The rows as a table for the terminal that stdout is.
pub(super) fn table(header: &[&str], rows: impl Iterator<Item = Vec<Cell>>, height: Height, colour: Colour) -> String {
    let rows: Vec<_> = rows.collect();
    let width = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col).filter(|width| *width > 0);
    let width = width.map(|width| width.max(NARROWEST));
    let (columns, times) = fitting(header, &rows, height, width.map_or(usize::MAX, usize::from));
    let fitted = |row: Vec<comfy_table::Cell>| {
        let mut row = Row::from(row);
        if height == Height::OneLine {
            row.max_height(1);
        }
        row
    };
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_truncation_indicator("…")
        .set_header(columns.iter().map(|column| header[*column].to_uppercase()))
        .add_rows(rows.iter().map(|row| {
            let cells = columns.iter().filter_map(|column| row.get(*column));
            fitted(cells.map(|cell| cell.shown(times, colour)).collect())
        }));
    for (column, shown) in columns.iter().zip(table.column_iter_mut()) {
        if rows.iter().any(|row| row.get(*column).is_some_and(Cell::is_whole)) {
            shown.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    match colour {
        Colour::Yes => table.enforce_styling(),
        Colour::No => table.force_no_tty(),
    };
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.to_string().lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// RFC 3339, to the second.
pub(crate) fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// An instant by its distance from now: `3m 12s ago`, `in 2h`, `now`.
pub(crate) fn relative(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    match ((now - at).to_std(), (at - now).to_std()) {
        (Ok(past), _) if past >= Duration::from_secs(1) => format!("{} ago", duration::show_whole(past)),
        (_, Ok(ahead)) if ahead >= Duration::from_secs(1) => format!("in {}", duration::show_whole(ahead)),
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
            "interrupted" | "lease_expired" => Color::Yellow,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn shows(at: &str, text: &str) {
        let [at, now] = [at, "2026-01-05T12:00:00Z"].map(|time| DateTime::parse_from_rfc3339(time).expect("a time"));
        assert_eq!(relative(at.to_utc(), now.to_utc()), text);
    }

    #[track_caller]
    fn fits(width: usize, columns: &[usize], times: Times) {
        let now = DateTime::UNIX_EPOCH;
        let row = vec![
            Cell::from(1234),
            Cell::from("cleanup_nightly"),
            Cell::Status("succeeded".to_owned()),
            Cell::Whole("1/10".to_owned()),
            Cell::Since(now, now + Duration::from_secs(200)),
            Cell::Length(Duration::from_secs(1)),
            Cell::from("cannot connect to 127.0.0.1:9: Connection refused"),
        ];
        let header = ["id", "job", "status", "attempts", "created", "run time", "error"];
        assert_eq!(fitting(&header, &[row], Height::OneLine, width), (columns.to_vec(), times), "{width}");
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
        let texts = ["cleanup_nightly", "fires", "0 2 * * *", "Europe/Berlin"].map(Cell::from);
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
    fn an_instant_is_told_by_its_distance() {
        shows("2026-01-05T12:00:00.900Z", "now");
        shows("2026-01-05T11:59:59.100Z", "now");
        shows("2026-01-05T11:59:57.100Z", "2s ago");
        shows("2026-01-05T11:55:30Z", "4m 30s ago");
        shows("2026-01-02T10:00:00Z", "3d 2h ago");
        shows("2026-01-05T12:02:00Z", "in 2m");
        shows("2027-01-05T12:00:00Z", "in 365d");
    }
}
