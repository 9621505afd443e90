//! Times in JSON and TSV: RFC 3339 in UTC with six digits of a second, as PostgreSQL stores them.

use chrono::{DateTime, Datelike, SecondsFormat, TimeDelta, Utc};
use serde::{Serialize, Serializer};

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
    // The tables accept only these years. The offset can change the year.
    match (1..=9999).contains(&time.year()) {
        true => Ok(time),
        false => Err(format!("`{text}` is out of range; allowed are the years 1 to 9999 in UTC")),
    }
}

/// Returns the time this many seconds later, if it is in the years that the tables accept.
pub(crate) fn after(time: DateTime<Utc>, seconds: f64) -> Option<DateTime<Utc>> {
    let later = time.checked_add_signed(TimeDelta::try_seconds(seconds as i64)?)?;
    Some(later).filter(|later| later.year() <= 9999)
}
