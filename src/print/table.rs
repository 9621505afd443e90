//! Rows as people read them: an aligned table that fits the terminal, one line a row, the status in
//! colour; and the same cells as a program reads them.

use std::io;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{CellAlignment, Color, ColumnConstraint, ContentArrangement, Row, Table, presets};

use super::plain;
use crate::duration;
use crate::model::Status;

/// Narrower than this no table can be.
const NARROWEST: u16 = 40;

/// One value of a row.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Text(String),
    /// A text that says nothing, or something else, when it is cut off.
    Whole(String),
    /// Aligned to the right for people.
    Number(String),
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
            Self::At(at) | Self::Since(at, _) => instant(*at),
            Self::Nothing => String::new(),
        }
    }

    /// Whether it keeps its width where others have to give way: half a time is none, and half a number another.
    fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_) | Self::Number(_) | Self::At(_) | Self::Since(..))
    }

    fn shown(&self, colour: Colour) -> comfy_table::Cell {
        let text = match self {
            Self::Since(at, now) => relative(*at, *now),
            other => other.bare(),
        };
        let cell = comfy_table::Cell::new(text);
        match self {
            Self::Number(_) => cell.set_alignment(CellAlignment::Right),
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
        Self::Number(duration::show(length))
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

/// The rows as a table for the terminal that stdout is.
pub(super) fn table(header: &[&str], rows: impl Iterator<Item = Vec<Cell>>, height: Height, colour: Colour) -> String {
    let fitted = |row: Vec<comfy_table::Cell>| {
        let mut row = Row::from(row);
        if height == Height::OneLine {
            row.max_height(1);
        }
        row
    };
    let rows: Vec<_> = rows.collect();
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_truncation_indicator("…")
        .set_header(header.iter().map(|name| name.to_uppercase()))
        .add_rows(rows.iter().map(|row| fitted(row.iter().map(|cell| cell.shown(colour)).collect())));
    for (index, column) in table.column_iter_mut().enumerate() {
        if rows.iter().any(|row| row.get(index).is_some_and(Cell::is_whole)) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    match colour {
        Colour::Yes => table.enforce_styling(),
        Colour::No => table.force_no_tty(),
    };
    if let Ok(size) = rustix::termios::tcgetwinsize(io::stdout())
        && size.ws_col > 0
    {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(size.ws_col.max(NARROWEST));
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
