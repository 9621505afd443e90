//! A value of a row, as people see it.

use std::io;
use std::time::Duration;

use chrono::{DateTime, Utc};
use comfy_table::{CellAlignment, Color};

use super::colour::is_coloured;
use crate::job::status::Status;
use crate::text::duration;
use crate::text::plain::plain;
use crate::text::timestamp::{instant, relative};

/// One value of a row.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Text(String),
    /// A text that must not be cut.
    Whole(String),
    /// Aligned to the right for people. A number of runs is coloured by their status.
    Number(String, Option<Status>),
    /// A duration; aligned to the right for people.
    Length(Duration),
    /// Coloured by a run's status, an attempt's outcome or a finding's severity.
    Status(String),
    /// A time, and the database's now if the time is shown by its distance from it.
    Time(DateTime<Utc>, Option<DateTime<Utc>>),
    Nothing,
}

impl Cell {
    /// The text of the cell alone; times are RFC 3339.
    pub(crate) fn bare(&self) -> String {
        match self {
            Self::Text(text) | Self::Whole(text) | Self::Number(text, _) | Self::Status(text) => {
                plain(text)
            }
            Self::Length(length) => duration::show(*length),
            Self::Time(at, _) => instant(*at),
            Self::Nothing => String::new(),
        }
    }

    /// Returns whether the cell must not be cut: half a number is another number.
    pub(super) fn is_whole(&self) -> bool {
        !matches!(self, Self::Text(_) | Self::Nothing)
    }

    /// Returns whether a narrow terminal drops this column first.
    pub(super) fn is_time(&self) -> bool {
        matches!(self, Self::Length(_) | Self::Time(..))
    }

    /// The text for people. In its short form, a distance has only its largest unit, and a time no
    /// seconds.
    pub(crate) fn text(&self, is_short: bool) -> String {
        match self {
            Self::Time(at, Some(now)) => {
                let text = relative(*at, *now);
                match text.split(' ').collect::<Vec<_>>()[..] {
                    ["in", largest, _] if is_short => format!("in {largest}"),
                    [largest, _, "ago"] if is_short => format!("{largest} ago"),
                    _ => text,
                }
            }
            Self::Time(at, None) if is_short => at.format("%Y-%m-%dT%H:%MZ").to_string(),
            _ => self.bare(),
        }
    }

    /// Shortens a text in its middle, because names differ at their ends.
    pub(super) fn within(&self, width: usize) -> Self {
        match self {
            Self::Text(text) if text.chars().count() > width => {
                let chars: Vec<_> = plain(text).chars().collect();
                let end = width.saturating_sub(1) / 2;
                let begin = width.saturating_sub(1) - end;
                let of = |part: &[char]| part.iter().collect::<String>();
                Self::Text(format!("{}…{}", of(&chars[..begin]), of(&chars[chars.len() - end..])))
            }
            _ => self.clone(),
        }
    }

    pub(super) fn shown(&self, is_short: bool, is_coloured: bool) -> comfy_table::Cell {
        let cell = comfy_table::Cell::new(self.text(is_short));
        let cell = match self.colour().filter(|_| is_coloured) {
            Some(colour) => cell.fg(colour),
            None => cell,
        };
        match self {
            Self::Number(..) | Self::Length(_) => cell.set_alignment(CellAlignment::Right),
            _ => cell,
        }
    }

    fn colour(&self) -> Option<Color> {
        match self {
            Self::Status(word) => colour_of(word),
            Self::Number(_, status) => colour_of(status.as_ref()?.as_str()),
            _ => None,
        }
    }

    /// The text of the cell alone, in colour if stdout is.
    pub(super) fn coloured(&self) -> String {
        let text = self.bare();
        let code = match self.colour().filter(|_| is_coloured(&io::stdout())) {
            Some(Color::DarkRed) => 31,
            Some(Color::DarkGreen) => 32,
            Some(Color::DarkYellow) => 33,
            Some(Color::DarkCyan) => 36,
            _ => return text,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// One of the terminal's own eight colours, which its user can read on its background.
fn colour_of(word: &str) -> Option<Color> {
    Some(match word.parse().ok() {
        Some(Status::Succeeded) => Color::DarkGreen,
        Some(Status::Running) => Color::DarkCyan,
        Some(Status::Failed) => Color::DarkYellow,
        Some(Status::Dead) => Color::DarkRed,
        Some(Status::Blocked | Status::Queued | Status::Cancelled) => return None,
        None => match word {
            "interrupted" | "snoozed" | "lease_expired" | "warn" | "unknown" => Color::DarkYellow,
            "bad" => Color::DarkRed,
            "ok" => Color::DarkGreen,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shortened_in_its_middle() {
        let within = |text: &str, width| Cell::Text(text.to_owned()).within(width).bare();
        assert_eq!(within("nightly_backup_of_db", 20), "nightly_backup_of_db");
        assert_eq!(within("nightly_backup_of_db", 9), "nigh…f_db");
        assert_eq!(within("nightly_backup_of_db", 8), "nigh…_db");
        assert_eq!(within("äöü", 2), "ä…");
    }

    #[test]
    fn a_short_time_has_one_unit() {
        let now = DateTime::UNIX_EPOCH + Duration::from_secs(100_000);
        let short = |at| Cell::Time(at, Some(now)).text(true);
        assert_eq!(short(now - Duration::from_secs(200)), "3m ago");
        assert_eq!(short(now + Duration::from_secs(7500)), "in 2h");
        assert_eq!(short(now), "now");
        assert_eq!(Cell::Time(now, None).text(true), "1970-01-02T03:46Z");
    }
}
