//! Flags and values that several commands take.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Datelike, Utc};
use clap::Args;

use crate::job::attempt::RUN_KEY_PREFIX;
use crate::print::{Form, Format};
use crate::text::duration;

/// How a command prints its answer.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(super) struct Output {
    /// table, tsv, json or json-lines [default: table on a terminal, else tsv]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<Format>,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Begin TSV with a line of field names
    #[arg(long)]
    header: bool,
}

impl Output {
    pub(super) fn form(self) -> Form {
        let usual = if io::stdout().is_terminal() { Format::Table } else { Format::Tsv };
        let format = if self.json { Format::Json } else { self.format.unwrap_or(usual) };
        Form { format, header: self.header }
    }
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

/// Reads a run's id.
pub(super) fn run_id(text: &str) -> Result<i64, String> {
    let id = text.parse().ok().filter(|id| *id > 0);
    id.ok_or_else(|| format!("ids are whole numbers from 1 to {}", i64::MAX))
}

/// Reads a time in RFC 3339.
pub(super) fn time(text: &str) -> Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text).map_err(|_| {
        format!("`{text}` is not a time; write RFC 3339 with the offset, 2026-01-31T08:00:00+01:00")
    })?;
    let time = time.to_utc();
    // The tables allow these years, and an offset can lead outside of them.
    match (1..=9999).contains(&time.year()) {
        true => Ok(time),
        false => Err(format!("`{text}` is out of range; allowed are the years 1 to 9999 in UTC")),
    }
}

/// Checks the key of an effect. Scripts would pass a key that begins with - as an option.
pub(super) fn key(text: &str) -> Result<String, String> {
    let is_plain = !text.starts_with('-') && !text.chars().any(char::is_control);
    if is_plain && (1..=255).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err("a key must have 1 to 255 bytes without control characters, and must not begin with -"
        .to_owned())
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
