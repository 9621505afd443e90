//! A value of a row, as people see it.

use std::io;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::colour::is_coloured;
use crate::job::status::Status;
use crate::text::duration;
use crate::text::plain::plain;
use crate::text::timestamp::{instant, relative};

/// How people see times.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TimeForm {
    Long,
    /// A distance has only its largest unit, and a time has no seconds.
    Short,
}

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
    /// A time. With the database's present time, people see the distance between both.
    Time(DateTime<Utc>, Option<DateTime<Utc>>),
    Nothing,
}

impl Cell {
    /// Returns the value as text without colour. A time is in RFC 3339, not a distance.
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

    /// Returns whether the value is a time or a duration. A narrow table leaves such columns out.
    pub(super) fn is_time(&self) -> bool {
        matches!(self, Self::Length(_) | Self::Time(..))
    }

    /// Returns the text that people see in a table, without colour.
    pub(crate) fn text(&self, form: TimeForm) -> String {
        match (self, form) {
            (Self::Time(at, Some(now)), TimeForm::Long) => relative(*at, *now),
            (Self::Time(at, Some(now)), TimeForm::Short) => {
                let distance = relative(*at, *now);
                match distance.split(' ').collect::<Vec<_>>()[..] {
                    ["in", largest, _] => format!("in {largest}"),
                    [largest, _, "ago"] => format!("{largest} ago"),
                    _ => distance,
                }
            }
            (Self::Time(at, None), TimeForm::Short) => at.format("%Y-%m-%dT%H:%MZ").to_string(),
            _ => self.bare(),
        }
    }

    /// Returns whether the cell is aligned to the right for people.
    pub(super) fn is_right_aligned(&self) -> bool {
        matches!(self, Self::Number(..) | Self::Length(_))
    }

    /// Returns a text, which is a part of the cell's, in the colour of the cell.
    pub(super) fn in_colour(&self, text: String) -> String {
        let word = match self {
            Self::Status(word) => word.as_str(),
            Self::Number(_, Some(status)) => status.as_str(),
            _ => return text,
        };
        match colour_of(word) {
            Some(colour) => format!("\x1b[{}m{text}\x1b[0m", colour as u8),
            None => text,
        }
    }

    /// Returns the value as `bare` does, but in colour if stdout shows colours.
    pub(super) fn coloured(&self) -> String {
        let text = self.bare();
        if is_coloured(&io::stdout()) { self.in_colour(text) } else { text }
    }
}

/// The SGR codes of colours. These are the terminal's own, so its user can read them on its
/// background.
enum TextColour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

/// Returns the colour of a status, an outcome or a severity.
fn colour_of(word: &str) -> Option<TextColour> {
    Some(match word.parse().ok() {
        Some(Status::Succeeded) => TextColour::Green,
        Some(Status::Running) => TextColour::Cyan,
        Some(Status::Failed) => TextColour::Yellow,
        Some(Status::Dead) => TextColour::Red,
        Some(Status::Blocked | Status::Queued | Status::Cancelled) => return None,
        None => match word {
            "interrupted" | "snoozed" | "lease_expired" | "warn" | "unknown" => TextColour::Yellow,
            "bad" => TextColour::Red,
            "ok" => TextColour::Green,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_has_one_unit() {
        let now = DateTime::UNIX_EPOCH + Duration::from_secs(100_000);
        let short = |at| Cell::Time(at, Some(now)).text(TimeForm::Short);
        assert_eq!(short(now - Duration::from_secs(200)), "3m ago");
        assert_eq!(short(now + Duration::from_secs(7500)), "in 2h");
        assert_eq!(short(now), "now");
        assert_eq!(Cell::Time(now, None).text(TimeForm::Short), "1970-01-02T03:46Z");
    }
}
