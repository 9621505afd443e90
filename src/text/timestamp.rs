//! The texts of times. In JSON and TSV, a time is in RFC 3339 and UTC, with six digits of a second,
//! as PostgreSQL stores it. Pure.

use chrono::{DateTime, Datelike, SecondsFormat, TimeDelta, Utc};
use serde::{Serialize, Serializer};

use super::duration::{self, SECOND};

/// Writes a time for JSON and TSV, or null if there is none.
pub(crate) fn serialize<S: Serializer>(
    at: &(impl Copy + Into<Option<DateTime<Utc>>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let at: Option<DateTime<Utc>> = (*at).into();
    at.map(|at| at.to_rfc3339_opts(SecondsFormat::Micros, true)).serialize(serializer)
}

/// Reads a time in RFC 3339.
pub(crate) fn parse(text: &str) -> Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text).map_err(|_| {
        format!("`{text}` is not a time; write RFC 3339 with the offset, 2026-01-31T08:00:00+01:00")
    })?;
    let time = time.to_utc();
    // The tables accept only these years. Check the year in UTC, which the offset can change.
    if !(1..=9999).contains(&time.year()) {
        return Err(format!("`{text}` is out of range; allowed are the years 1 to 9999 in UTC"));
    }
    Ok(time)
}

/// Returns the time this many seconds later, if it is in the years that the tables accept.
pub(crate) fn after(time: DateTime<Utc>, seconds: f64) -> Option<DateTime<Utc>> {
    let later = time.checked_add_signed(TimeDelta::try_seconds(seconds as i64)?)?;
    Some(later).filter(|later| later.year() <= 9999)
}

/// Returns a time in RFC 3339, to the second.
pub(crate) fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Returns how long ago a time was, at least a second: `3m 12s`.
pub(crate) fn age(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    duration::show_whole((now - at).to_std().unwrap_or_default().max(SECOND))
}

/// Returns the distance of a time from now: `3m 12s ago`, `in 2h`, `now`.
pub(crate) fn relative(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    match ((now - at).to_std(), (at - now).to_std()) {
        (Ok(past), _) if past >= SECOND => {
            format!("{} ago", duration::show_whole(past))
        }
        (_, Ok(ahead)) if ahead >= SECOND => {
            format!("in {}", duration::show_whole(ahead))
        }
        _ => "now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn shows(at: &str, text: &str) {
        let [at, now] = [at, "2026-01-05T12:00:00Z"].map(|time| parse(time).unwrap());
        assert_eq!(relative(at, now), text);
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
