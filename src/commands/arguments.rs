//! Flags and values that several commands take.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;

use super::filter::HEADING;
use crate::exit::Fault;
use crate::job::attempt::RUN_KEY_PREFIX;
use crate::print::{self, Output, Table, instant};
use crate::schedule::{When, Zone};
use crate::store::Store;
use crate::text::duration;
pub(super) use crate::text::timestamp::parse as time;

/// The time zone of `--since` and `--until`. It is not part of the filters: a variable that sets it
/// selects no runs.
#[derive(Args, Debug)]
#[group(skip)]
pub(super) struct TimeZone {
    /// Time zone of --since and --until: UTC, or an area and city as in America/New_York
    #[arg(
        long,
        value_name = "TZ",
        default_value = "UTC",
        value_parser = Zone::parse,
        help_heading = HEADING
    )]
    time_zone: Zone,
}

impl TimeZone {
    /// Resolves `--since` and `--until` by the database's clock.
    pub(super) fn window(
        &self,
        store: &Store,
        window: [Option<When>; 2],
    ) -> anyhow::Result<[Option<DateTime<Utc>>; 2]> {
        if window == [None; 2] {
            return Ok([None; 2]);
        }
        let window = When::window(window, store.now()?, &self.time_zone);
        if let [Some(since), Some(until)] = window
            && since > until
        {
            let [since, until] = [since, until].map(instant);
            let why = format!("--since {since} is after --until {until}; add the dates");
            return Err(Fault::usage(why).into());
        }
        Ok(window)
    }
}

/// Prints at most `limit` rows, and a hint if there are more. `rows` has one more if there are;
/// `which` says which come first.
pub(super) fn print_first<T: Serialize + Default>(
    output: Output,
    mut rows: Vec<T>,
    limit: i64,
    which: &str,
    table: &Table<'_>,
) -> anyhow::Result<()> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    print::rows(output, &rows, table)?;
    if has_more {
        print::hint(output, &format!("these are the {which} {limit}; --limit shows more"));
    }
    Ok(())
}

/// Reads a number within a range; the error names the range.
pub(super) fn within<N>(
    least: N,
    most: N,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: Copy + Display + FromStr + PartialOrd + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("allowed are {least} to {most}"))
    }
}

/// Reads a duration within a range.
pub(super) fn length(
    least: Duration,
    most: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| duration::parse_within(text, least, most)
}

/// Reads a duration of at most this.
pub(super) fn up_to(
    most: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    length(Duration::ZERO, most)
}

/// Reads a duration within a range, in seconds: the database takes these.
pub(super) fn seconds(
    least: Duration,
    most: Duration,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    let length = length(least, most);
    move |text| length(text).map(|length| length.as_secs_f64())
}

/// Reads a run's id.
pub(super) fn run_id(text: &str) -> Result<i64, String> {
    let id = text.parse().ok().filter(|id| *id > 0);
    id.ok_or_else(|| format!("ids are whole numbers from 1 to {}", i64::MAX))
}

/// Checks a worker's name.
pub(super) fn worker(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
        return Err("a worker's name has 1 to 255 bytes and no control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// Checks the key of an effect.
pub(super) fn key(text: &str) -> Result<String, String> {
    plain("key", text)
}

/// Checks the share of a run.
pub(super) fn share(text: &str) -> Result<String, String> {
    plain("share", text)
}

/// Checks a short text. Scripts would pass a text that begins with - as an option.
fn plain(what: &str, text: &str) -> Result<String, String> {
    let is_plain = !text.starts_with('-') && !text.chars().any(char::is_control);
    if is_plain && (1..=255).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "a {what} must have 1 to 255 bytes without control characters, and must not begin with -"
    ))
}

/// Checks the key of a run.
pub(super) fn run_key(text: &str) -> Result<String, String> {
    if text.starts_with(RUN_KEY_PREFIX) {
        return Err(format!(
            "the key prefix {RUN_KEY_PREFIX} is reserved for runs without a key; use another key"
        ));
    }
    key(text)
}
