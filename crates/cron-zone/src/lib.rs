//! When a cron expression fires in a time zone: across clock changes, and in words.
//!
//! ```
//! use chrono::{DateTime, Utc};
//! use cron_zone::Schedule;
//!
//! let schedule = Schedule::parse("30 2 * * *", "Europe/Berlin")?;
//! assert_eq!(schedule.words(), "At 02:30 every day (Europe/Berlin time).");
//!
//! // On 29 March 2026, the clock goes from 02:00 to 03:00.
//! let noon: DateTime<Utc> = "2026-03-28T12:00:00Z".parse()?;
//! let fire = schedule.fires(noon).next().expect("it fires every day");
//! assert_eq!(fire.local.to_string(), "2026-03-29 03:00:00 +02:00");
//! assert_eq!(
//!     fire.mark.as_deref(),
//!     Some("right after a gap: 2026-03-29 02:00 to 03:00 does not exist")
//! );
//!
//! // Errors say what to write instead.
//! let error = Schedule::parse("*/5 * * *", "UTC").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "`*/5 * * *` has 4 fields; write five: minute, hour, day of month, month, day of week"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Expressions
//!
//! The five fields of crontab(5) with its names, lists, ranges and steps, and `@hourly`, `@daily`,
//! `@midnight`, `@weekly`, `@monthly`, `@yearly` and `@annually`. Beyond crontab(5):
//!
//! - The day of the month may be `L`, its last day, or `LW`, its last day from Monday to Friday.
//! - The day of the week may be `mon#1`, the first Monday of the month, or `friL`, its last Friday.
//! - A range may end with Sunday: `sat-sun`.
//! - `@every 90m` counts whole minutes from the last fire, see [`duration`].
//!
//! If both day fields are restricted, one of them must match, as in cron: `0 0 13 * 5` fires on
//! each Friday and on each 13th.
//!
//! # Clock changes
//!
//! They are treated as in Debian's cron. A schedule with fixed times fires once for each time. If
//! the clock skips the time, it fires right after the gap; if the time occurs twice, it fires the
//! first time. A schedule whose minute or hour starts with `*` fires whenever the clock shows a
//! matching minute: not in a gap, and twice in a repeated hour.
//!
//! # Time zones
//!
//! The rules come from the files of the system, in `/usr/share/zoneinfo` or the folder in `TZDIR`.
//! If a zone is missing there, they come from a compiled-in copy. An unknown zone is an error, and
//! never taken for UTC.
//!
//! No function reads a clock.

#![deny(missing_docs)]

pub mod duration;
mod error;
mod expression;
mod words;
mod zone;
mod zone_data;

use std::iter;

use chrono::{DateTime, Datelike, Days, DurationRound, FixedOffset, NaiveDateTime, TimeDelta, Utc};

pub use error::Error;
use expression::Expression;
pub use zone::Zone;
use zone::{END, Period};
pub use zone_data::ZoneData;

/// How many years to search ahead and back. Within 40 years, every date falls on every day of the
/// week, even 29 February if a year such as 2100 has none.
pub const HORIZON_YEARS: u32 = 41;
const HORIZON: Days = Days::new(HORIZON_YEARS as u64 * 366 - 1);
/// The shortest time that chrono knows.
const NANOSECOND: TimeDelta = TimeDelta::nanoseconds(1);

/// A schedule, and the time zone in which it is read.
#[derive(Clone, Debug)]
pub struct Schedule {
    text: String,
    rule: Rule,
    zone: Zone,
}

#[derive(Clone, Debug)]
enum Rule {
    Cron(Expression),
    /// `@every`: this much time after the last fire.
    Every(TimeDelta),
}

/// One upcoming nominal time.
#[derive(Debug)]
pub struct Fire {
    /// The instant.
    pub at: DateTime<Utc>,
    /// What the clock of the zone shows then.
    pub local: DateTime<FixedOffset>,
    /// The effect of a clock change on this time, in words.
    pub mark: Option<String>,
}

/// A part of one period of a zone, in which nominal times are searched for.
struct Span {
    /// The start of the period, if times in the gap before it fire then.
    right_after_gap: Option<DateTime<Utc>>,
    /// The first local time to search for matches.
    from: NaiveDateTime,
    /// The end of the local times to search, exclusive.
    until: NaiveDateTime,
    /// Local time minus UTC.
    offset: TimeDelta,
}

impl Schedule {
    /// Reads an expression, and the name of its time zone, such as `Europe/Berlin` or `UTC`.
    ///
    /// # Errors
    /// The expression can't be read, or the zone is unknown.
    pub fn parse(expression: &str, time_zone: &str) -> Result<Self, Error> {
        let text = expression.trim().to_owned();
        let rule = match text.strip_prefix("@every ") {
            Some(interval) => Rule::Every(every(interval.trim())?),
            None => Rule::Cron(Expression::parse(&text).map_err(Error)?),
        };
        Ok(Self { rule, text, zone: Zone::parse(time_zone)? })
    }

    /// Returns whether it uses a form that crontab(5) lacks.
    pub fn extends_cron(&self) -> bool {
        match &self.rule {
            Rule::Cron(expression) => expression.extends_cron(),
            Rule::Every(_) => true,
        }
    }

    /// Returns the first nominal time after `from`.
    ///
    /// # Errors
    /// The schedule never fires, such as on 30 February.
    pub fn first(&self, from: DateTime<Utc>) -> Result<DateTime<Utc>, Error> {
        self.after(from).ok_or_else(|| {
            let (text, day) = (&self.text, from.date_naive());
            let years = HORIZON_YEARS;
            Error(format!("`{text}` never fires: no time within {years} years of {day} matches"))
        })
    }

    /// Returns the first nominal time from `start` on; `@every` counts from it.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub fn first_at(&self, start: DateTime<Utc>) -> Result<DateTime<Utc>, Error> {
        match &self.rule {
            Rule::Every(_) => self.first(start),
            Rule::Cron(_) => self.first(start - NANOSECOND),
        }
    }

    /// Returns the first nominal time after `instant`; `None` if there is none within the horizon.
    pub fn after(&self, instant: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match &self.rule {
            // Drop the seconds: otherwise, each fire would move the next one by some.
            Rule::Every(interval) => {
                instant.duration_trunc(TimeDelta::minutes(1)).ok()?.checked_add_signed(*interval)
            }
            Rule::Cron(expression) => {
                let horizon = instant.checked_add_days(HORIZON).unwrap_or(DateTime::<Utc>::MAX_UTC);
                let mut spans = self.spans(expression, instant, horizon);
                spans.find_map(|span| times_in(expression, &span).next())
            }
        }
    }

    /// Returns the nominal times after `after` and up to `until`: the `newest` ones in order, and
    /// the number of the others. Does not count times before the horizon. Counts days, not minutes,
    /// so a year takes as long for every schedule. `@every` has no missed times, because its next
    /// time is known only after a fire.
    pub fn missed(
        &self,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
        newest: usize,
    ) -> (Vec<DateTime<Utc>>, u64) {
        let Rule::Cron(expression) = &self.rule else { return (Vec::new(), 0) };
        let horizon = until.checked_sub_days(HORIZON).unwrap_or(DateTime::<Utc>::MIN_UTC);
        let spans: Vec<_> = self.spans(expression, after.max(horizon), until).collect();
        let backwards = spans.iter().rev().flat_map(|span| times_in(expression, span).rev());
        let mut newest_times: Vec<_> = backwards.take(newest).collect();
        newest_times.reverse();
        let all: u64 = spans.iter().map(|span| count_in(expression, span)).sum();
        let others = all - newest_times.len() as u64;
        (newest_times, others)
    }

    /// Returns the nominal times after `instant`, with what a person must know about them.
    pub fn fires(&self, instant: DateTime<Utc>) -> impl Iterator<Item = Fire> + '_ {
        let mut last = instant;
        iter::from_fn(move || {
            let at = self.after(last)?;
            let mark = match &self.rule {
                Rule::Cron(expression) => self.mark(expression, last, at),
                Rule::Every(_) => None,
            };
            last = at;
            Some(Fire { at, local: self.zone.local(at), mark })
        })
    }

    /// Returns the schedule in one sentence.
    pub fn words(&self) -> String {
        match &self.rule {
            Rule::Cron(expression) => words::sentence(expression, self.zone.name()),
            Rule::Every(interval) => {
                let interval = duration::show(interval.to_std().unwrap_or_default());
                format!("Every {interval}, counted from the last fire.")
            }
        }
    }

    /// Returns the parts of each period that are after `after` and up to `until`.
    fn spans(
        &self,
        expression: &Expression,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> impl Iterator<Item = Span> {
        // Instants at the ends of chrono's range have no local time, so they have no spans.
        let has_local_time = (1..=9999).contains(&after.year());
        let periods = has_local_time.then(|| self.zone.periods(after)).into_iter().flatten();
        let until = until.min(END);
        periods
            .take_while(move |period| period.start <= until)
            .map(move |period| span_in(expression, &period, after, until))
    }

    /// Returns words about the effect of a clock change on the fire at `at`, if there is one. The
    /// fire before it is at `since`.
    fn mark(
        &self,
        expression: &Expression,
        since: DateTime<Utc>,
        at: DateTime<Utc>,
    ) -> Option<String> {
        let follows_clock = expression.follows_clock();
        let mut periods = self.zone.periods(since).take_while(|period| period.start <= at);
        if let Some(period) =
            periods.find(|period| since < period.start && matches_gap(expression, period))
        {
            let (from, until) = period.gap();
            let effect = if follows_clock { "none in the gap before" } else { "right after a gap" };
            let short = if from.date() == until.date() { "%H:%M" } else { "%Y-%m-%d %H:%M" };
            let (from, until) = (from.format("%Y-%m-%d %H:%M"), until.format(short));
            return Some(format!("{effect}: {from} to {until} does not exist"));
        }
        let mut periods = self.zone.periods(at);
        let period = periods.next()?;
        let is_in_second_pass = at < period.start + period.repeated();
        let is_in_first_pass =
            periods.next().is_some_and(|next| at >= next.start - next.repeated());
        let pass = if is_in_second_pass {
            "second pass"
        } else if !is_in_first_pass {
            return None;
        } else if follows_clock {
            "first pass"
        } else {
            "first pass only"
        };
        Some(format!("repeated time: {pass}"))
    }
}

/// Reads the time from one fire to the next.
fn every(interval: &str) -> Result<TimeDelta, Error> {
    let read = duration::parse_within(interval, duration::MINUTE, duration::YEAR)?;
    if read.as_secs() % 60 != 0 || read.subsec_nanos() != 0 {
        return Err(Error(format!("`{interval}` in `@every` is not a number of whole minutes")));
    }
    TimeDelta::from_std(read).map_err(|error| Error(error.to_string()))
}

/// Returns the span of a period in which to search for times after `after` and up to `until`.
fn span_in(
    expression: &Expression,
    period: &Period,
    after: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Span {
    let follows_clock = expression.follows_clock();
    let fires_after_gap = !follows_clock && after < period.start && matches_gap(expression, period);
    let right_after_gap = if fires_after_gap { Some(period.start) } else { None };
    // Skip the repeated times at the start of the period, which fired in the period before.
    let repeated = if follows_clock { TimeDelta::zero() } else { period.repeated() };
    let from = (period.start + repeated).max(right_after_gap.unwrap_or(after) + NANOSECOND);
    let until = period.end.min(until + NANOSECOND).max(from);
    let offset = period.offset;
    Span {
        right_after_gap,
        from: from.naive_utc() + offset,
        until: until.naive_utc() + offset,
        offset,
    }
}

/// Returns the nominal times in a span.
fn times_in<'a>(
    expression: &'a Expression,
    span: &Span,
) -> impl DoubleEndedIterator<Item = DateTime<Utc>> + use<'a> {
    let offset = span.offset;
    let shown = expression.between(span.from, span.until);
    span.right_after_gap.into_iter().chain(shown.map(move |local| (local - offset).and_utc()))
}

/// Returns the number of nominal times in a span.
fn count_in(expression: &Expression, span: &Span) -> u64 {
    u64::from(span.right_after_gap.is_some()) + expression.count(span.from, span.until)
}

/// Returns whether the clock skips a matching time at the start of a period.
fn matches_gap(expression: &Expression, period: &Period) -> bool {
    let (from, until) = period.gap();
    expression.between(from, until).next().is_some()
}

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
extern crate self as cron_zone;

#[cfg(test)]
mod cron_daemon;

#[cfg(test)]
mod tests {
    use chrono::{TimeDelta, Timelike};
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn schedule(expression: &str, zone: &str) -> Schedule {
        Schedule::parse(expression, zone).unwrap()
    }

    /// Checks the first fires after `from`, as a person sees them. `expected` abbreviates the
    /// marks, such as ` after gap` or ` once`.
    #[track_caller]
    fn fires(expression: &str, zone: &str, from: &str, expected: &[&str]) {
        let schedule = schedule(expression, zone);
        let shown = schedule.fires(at(from)).take(expected.len()).map(|fire| {
            let mark = match fire.mark.unwrap_or_default().split(": ").collect::<Vec<_>>()[..] {
                [""] => "",
                ["right after a gap", _] => " after gap",
                ["none in the gap before", _] => " left out",
                ["repeated time", "first pass only"] => " once",
                ["repeated time", "first pass"] => " first",
                ["repeated time", "second pass"] => " second",
                ref other => panic!("{other:?}"),
            };
            assert_eq!(fire.at, fire.local);
            format!("{} = {}{mark}", fire.at.format("%m-%dT%H:%MZ"), fire.local.format("%H:%M%:z"))
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{expression} {zone}");
    }

    #[test]
    fn every_counts_whole_minutes_from_the_last_fire() {
        fires(
            "@every 90m",
            "Europe/Berlin",
            "2026-03-28T23:00:59Z",
            &["03-29T00:30Z = 01:30+01:00", "03-29T02:00Z = 04:00+02:00"],
        );
        let hourly = schedule(" @every  1h ", "UTC");
        assert_eq!(hourly.words(), "Every 1h, counted from the last fire.");
        assert_eq!(hourly.missed(at("2026-01-01T00:00:00Z"), at("2026-01-09T00:00:00Z"), 5).1, 0);
        for (interval, why) in [
            ("30s", "`30s` is out of range; allowed are 1m to 365d"),
            ("366d", "`366d` is out of range; allowed are 1m to 365d"),
            ("90s", "`90s` in `@every` is not a number of whole minutes"),
        ] {
            let refused = Schedule::parse(&format!("@every {interval}"), "UTC").unwrap_err();
            assert_eq!(refused.to_string(), why);
        }
    }

    #[test]
    fn a_skipped_time_fires_right_after_the_gap() {
        fires(
            "30 2 * * *",
            "America/New_York",
            "2026-03-07T12:00:00Z",
            &["03-08T07:00Z = 03:00-04:00 after gap", "03-09T06:30Z = 02:30-04:00"],
        );
        fires(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            &["03-29T01:00Z = 03:00+02:00 after gap", "03-30T00:30Z = 02:30+02:00"],
        );
        fires(
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            &["10-03T15:30Z = 02:30+11:00 after gap", "10-04T15:15Z = 02:15+11:00"],
        );
        fires(
            "0 0 * * *",
            "America/Havana",
            "2026-03-07T12:00:00Z",
            &["03-08T05:00Z = 01:00-04:00 after gap", "03-09T04:00Z = 00:00-04:00"],
        );
        fires(
            "30 0 * * *",
            "Asia/Tehran",
            "2022-03-21T12:00:00Z",
            &["03-21T20:30Z = 01:00+04:30 after gap", "03-22T20:00Z = 00:30+04:30"],
        );
        fires(
            "59 1 * * *",
            "Europe/Dublin",
            "2026-03-28T12:00:00Z",
            &["03-29T01:00Z = 02:00+01:00 after gap", "03-30T00:59Z = 01:59+01:00"],
        );
        fires(
            "0 3 * * *",
            "Pacific/Chatham",
            "2026-09-26T00:00:00Z",
            &["09-26T14:00Z = 03:45+13:45 after gap", "09-27T13:15Z = 03:00+13:45"],
        );
        // During Ramadan the clock is one hour behind; the tables call that daylight-saving time.
        fires(
            "30 2 * * *",
            "Africa/Casablanca",
            "2026-03-21T12:00:00Z",
            &["03-22T02:00Z = 03:00+01:00 after gap", "03-23T01:30Z = 02:30+01:00"],
        );
        // Samoa skipped a whole day: it moved across the date line.
        fires(
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-29T00:00:00Z",
            &[
                "12-29T22:00Z = 12:00-10:00",
                "12-30T10:00Z = 00:00+14:00 after gap",
                "12-30T22:00Z = 12:00+14:00",
            ],
        );
    }

    #[test]
    fn a_mark_names_the_local_times_of_the_gap() {
        let mark = |expression: &str, zone: &str, from: &str| {
            schedule(expression, zone).fires(at(from)).find_map(|fire| fire.mark).unwrap()
        };
        assert_eq!(
            mark("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z"),
            "right after a gap: 2026-03-08 02:00 to 03:00 does not exist"
        );
        assert_eq!(
            mark("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z"),
            "right after a gap: 2011-12-30 00:00 to 2011-12-31 00:00 does not exist"
        );
    }

    #[test]
    fn a_schedule_has_words_and_no_times_before_the_calendar() {
        let daily = schedule("0 9 * * mon", "Europe/Berlin");
        assert_eq!(daily.words(), "At 09:00 on Monday (Europe/Berlin time).");
        assert_eq!(daily.after(DateTime::<Utc>::MIN_UTC), None);
        assert_eq!(daily.after(DateTime::<Utc>::MAX_UTC), None);
        let now = at("2026-01-05T08:00:00Z");
        assert_eq!(daily.missed(now, now, 5), (vec![], 0));
    }

    #[test]
    fn all_times_in_a_gap_fire_once_together_with_the_time_after_it() {
        fires(
            "0,30 1-3 * * *",
            "America/New_York",
            "2026-03-08T06:00:00Z",
            &[
                "03-08T06:30Z = 01:30-05:00",
                "03-08T07:00Z = 03:00-04:00 after gap",
                "03-08T07:30Z = 03:30-04:00",
            ],
        );
    }

    #[test]
    fn a_repeated_time_fires_in_its_first_pass() {
        fires(
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00:00Z",
            &["11-01T05:30Z = 01:30-04:00 once", "11-02T06:30Z = 01:30-05:00"],
        );
        fires(
            "0,30 1,2 * * *",
            "America/New_York",
            "2026-11-01T05:59:59Z",
            &["11-01T07:00Z = 02:00-05:00"],
        );
        fires(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &["10-25T00:30Z = 02:30+02:00 once", "10-26T01:30Z = 02:30+01:00"],
        );
        fires(
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-03T20:00:00Z",
            &["04-04T14:45Z = 01:45+11:00 once", "04-05T15:15Z = 01:45+10:30"],
        );
        fires(
            "0 0 * * *",
            "America/Havana",
            "2026-10-31T12:00:00Z",
            &["11-01T04:00Z = 00:00-04:00 once", "11-02T05:00Z = 00:00-05:00"],
        );
        // At midnight the clock goes back into the day before.
        fires(
            "30 23 * * *",
            "Asia/Tehran",
            "2022-09-21T12:00:00Z",
            &["09-21T19:00Z = 23:30+04:30 once", "09-22T20:00Z = 23:30+03:30"],
        );
        fires("0 0 * * *", "Asia/Tehran", "2022-09-21T12:00:00Z", &["09-21T20:30Z = 00:00+03:30"]);
        fires(
            "30 1 * * *",
            "Europe/Dublin",
            "2026-10-24T12:00:00Z",
            &["10-25T00:30Z = 01:30+01:00 once", "10-26T01:30Z = 01:30+00:00"],
        );
        fires(
            "0 3 * * *",
            "Pacific/Chatham",
            "2026-04-04T00:00:00Z",
            &["04-04T13:15Z = 03:00+13:45 once", "04-05T14:15Z = 03:00+12:45"],
        );
        fires(
            "30 2 * * *",
            "Africa/Casablanca",
            "2026-02-14T12:00:00Z",
            &["02-15T01:30Z = 02:30+01:00 once", "02-16T02:30Z = 02:30+00:00"],
        );
    }

    #[test]
    fn a_wildcard_follows_the_clock() {
        fires(
            "30 * * * *",
            "America/New_York",
            "2026-11-01T04:00:00Z",
            &[
                "11-01T04:30Z = 00:30-04:00",
                "11-01T05:30Z = 01:30-04:00 first",
                "11-01T06:30Z = 01:30-05:00 second",
                "11-01T07:30Z = 02:30-05:00",
            ],
        );
        fires(
            "30 * * * *",
            "America/New_York",
            "2026-03-08T06:00:00Z",
            &["03-08T06:30Z = 01:30-05:00", "03-08T07:30Z = 03:30-04:00 left out"],
        );
        fires(
            "*/15 2 * * *",
            "America/New_York",
            "2026-03-08T00:00:00Z",
            &["03-09T06:00Z = 02:00-04:00 left out"],
        );
        fires(
            "*/15 3 * * *",
            "America/New_York",
            "2026-03-08T00:00:00Z",
            &["03-08T07:00Z = 03:00-04:00"],
        );
        fires(
            "*/20 1-2 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:30:00Z",
            &[
                "04-04T14:40Z = 01:40+11:00 first",
                "04-04T15:10Z = 01:40+10:30 second",
                "04-04T15:30Z = 02:00+10:30",
            ],
        );
        fires(
            "0 */6 * * *",
            "America/Havana",
            "2026-10-31T22:00:00Z",
            &[
                "11-01T04:00Z = 00:00-04:00 first",
                "11-01T05:00Z = 00:00-05:00 second",
                "11-01T11:00Z = 06:00-05:00",
            ],
        );
    }

    #[test]
    fn a_repeated_hour_may_reach_into_the_next_day_of_utc() {
        // At 23:00 UTC, the clock of Gaza goes back from 02:00 to 01:00.
        let schedule = schedule("59 1 * * *", "Asia/Gaza");
        let first = schedule.after(at("2026-10-23T12:00:00Z")).unwrap();
        assert_eq!(first, at("2026-10-23T22:59:00Z"));
        assert_eq!(schedule.after(first).unwrap(), at("2026-10-24T23:59:00Z"));
    }

    #[test]
    fn the_next_time_is_strictly_later() {
        fires("0 0 1 1 *", "UTC", "2026-01-01T00:00:00Z", &["01-01T00:00Z = 00:00+00:00"]);
        let minutely = schedule("* * * * *", "Asia/Kathmandu");
        assert_eq!(
            minutely.after(at("2026-01-01T00:00:59.999Z")),
            Some(at("2026-01-01T00:01:00Z"))
        );
        assert_eq!(minutely.after(at("2026-01-01T00:01:00Z")), Some(at("2026-01-01T00:02:00Z")));
    }

    #[test]
    fn the_first_time_at_an_instant_may_be_that_instant() {
        let daily = schedule("0 9 * * *", "UTC");
        let nine = at("2026-01-01T09:00:00Z");
        assert_eq!(daily.first_at(nine), Ok(nine));
        assert_eq!(daily.first_at(nine + NANOSECOND), Ok(at("2026-01-02T09:00:00Z")));
        let every = schedule("@every 90m", "UTC");
        assert_eq!(every.first_at(nine), Ok(at("2026-01-01T10:30:00Z")));
    }

    #[test]
    fn last_and_nth_days_and_intervals_extend_cron() {
        for extended in ["0 9 L * *", "0 9 LW * *", "0 9 * * 5L", "0 9 * * 1#2", "@every 90m"] {
            assert!(schedule(extended, "UTC").extends_cron(), "{extended}");
        }
        for plain in ["0 9 1-7 * 1", "0 9 */2 * mon,5", "@weekly"] {
            assert!(!schedule(plain, "UTC").extends_cron(), "{plain}");
        }
    }

    #[test]
    fn an_error_is_its_sentence() {
        let error = Schedule::parse("@never", "UTC").unwrap_err();
        let sentence = error.to_string();
        assert!(sentence.starts_with("`@never` is not a schedule"));
        assert_eq!(String::from(error), sentence);
    }

    #[test]
    fn a_schedule_that_never_fires_is_refused() {
        let now = at("2026-03-01T00:00:00Z");
        for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 */2"] {
            let why = schedule(never, "Europe/Berlin").first(now).unwrap_err();
            assert_eq!(
                why.to_string(),
                format!("`{never}` never fires: no time within 41 years of 2026-03-01 matches")
            );
        }
        for rare in ["0 0 29 2 *", "0 0 30 2 1", "@yearly"] {
            assert!(schedule(rare, "Europe/Berlin").first(now).is_ok());
        }
        assert_eq!(
            schedule("0 0 29 2 */7", "UTC").after(at("2032-02-29T00:00:00Z")),
            Some(at("2060-02-29T00:00:00Z"))
        );
        assert_eq!(
            schedule("0 0 29 2 */7", "UTC").after(at("2088-02-29T00:00:00Z")),
            Some(at("2128-02-29T00:00:00Z"))
        );
        // 2100 is not a leap year.
        assert_eq!(
            schedule("0 0 29 2 *", "UTC").after(at("2096-02-29T00:00:00Z")),
            Some(at("2104-02-29T00:00:00Z"))
        );
    }

    #[test]
    fn an_instant_beyond_all_calendars_has_no_next_time() {
        let schedule = schedule("* * * * *", "America/New_York");
        for extreme in [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC] {
            assert_eq!(schedule.after(extreme), None);
            assert_eq!(schedule.missed(extreme, extreme, 1), (vec![], 0));
        }
        let now = at("2026-01-01T00:00:00Z");
        assert_eq!(schedule.missed(DateTime::<Utc>::MIN_UTC, now, 1).0, [now]);
    }

    #[test]
    fn the_newest_missed_times_are_listed_and_the_others_counted() {
        let schedule = schedule("* * * * *", "Europe/Berlin");
        let (down, up) = (at("2026-03-29T00:00:00Z"), at("2026-03-29T03:00:10Z"));
        assert_eq!(schedule.missed(down, up, 0), (vec![], 180));
        assert_eq!(schedule.missed(down, up, 1), (vec![at("2026-03-29T03:00:00Z")], 179));
        let hundred = schedule.missed(down, up, 100);
        assert_eq!((hundred.0.len(), hundred.1), (100, 80));
        assert_eq!(hundred.0[0], at("2026-03-29T01:21:00Z"));
        assert!(hundred.0.is_sorted());
        assert_eq!(schedule.missed(up, down, 5), (vec![], 0));
    }

    #[test]
    fn the_number_missed_is_exact_for_years() {
        let year = schedule("* * * * *", "America/New_York").missed(
            at("2025-01-01T12:34:00Z"),
            at("2026-01-01T12:34:00Z"),
            1,
        );
        assert_eq!(year.1, 365 * 1440 - 1);
        let daily = schedule("30 2 * * *", "America/New_York").missed(
            at("2020-01-01T12:00:00Z"),
            at("2026-01-01T12:00:00Z"),
            3,
        );
        assert_eq!(daily.1, 6 * 365 + 2 - 3);
        // One hour is skipped, and one is repeated.
        let hourly = schedule("@hourly", "Europe/Berlin").missed(
            at("2026-01-01T00:00:00Z"),
            at("2027-01-01T00:00:00Z"),
            0,
        );
        assert_eq!(hourly.1, 365 * 24);
        let cut =
            schedule("@daily", "UTC").missed(DateTime::UNIX_EPOCH, at("2026-01-01T00:00:00Z"), 0);
        assert_eq!(cut.1, u64::from(HORIZON_YEARS) * 366 - 1);
    }

    const ZONES: [&str; 12] = [
        "UTC",
        "America/New_York",
        "America/Havana",
        "America/St_Johns",
        "Africa/Casablanca",
        "Antarctica/Troll",
        "Asia/Gaza",
        "Asia/Tehran",
        "Australia/Lord_Howe",
        "Europe/Berlin",
        "Europe/Dublin",
        "Pacific/Chatham",
    ];

    fn field(first: u32, last: u32) -> impl Strategy<Value = String> {
        let value = first..=last;
        let range = (value.clone(), value.clone())
            .prop_map(|(one, other)| (one.min(other), one.max(other)));
        let item = prop_oneof![
            value.clone().prop_map(|value| value.to_string()),
            range.clone().prop_map(|(low, high)| format!("{low}-{high}")),
            (range, 0..60_u32)
                .prop_map(|((low, high), n)| format!("{low}-{high}/{}", 1 + n % (high - low + 1))),
        ];
        prop_oneof![
            2 => Just("*".to_owned()),
            1 => (1..=last).prop_map(|step| format!("*/{step}")),
            4 => prop::collection::vec(item, 1..4).prop_map(|items| items.join(",")),
        ]
    }

    prop_compose! {
        fn any_schedule()(
            minute in field(0, 59), hour in field(0, 4), day in field(1, 31), month in field(1, 12),
            weekday in field(0, 6), zone in prop::sample::select(&ZONES),
        ) -> Schedule {
            schedule(&format!("{minute} {hour} {day} {month} {weekday}"), zone)
        }
    }

    /// A time that is usually within days of a clock change.
    fn any_time() -> impl Strategy<Value = DateTime<Utc>> {
        let changes = [
            "2026-03-08T07:00:00Z",
            "2026-10-25T01:00:00Z",
            "2026-11-01T06:00:00Z",
            "2022-09-21T19:30:00Z",
        ];
        (prop::sample::select(changes.to_vec()), -500_000..500_000_i64)
            .prop_map(|(change, seconds)| at(change) + TimeDelta::seconds(seconds))
    }

    /// The clock of Berlin goes forward on 29 March 2026, a Sunday.
    #[test]
    fn cron_differs_in_a_skipped_hour_and_in_a_range_that_ends_with_sunday() {
        let starts = |text: &str, zone: &str| {
            let (schedule, from) = (schedule(text, zone), at("2026-03-28T11:00:00Z"));
            let until = from + TimeDelta::days(2);
            let by_cron = cron_daemon::starts(text, &schedule.zone, from, until).unwrap();
            [by_cron, schedule.missed(from, until, usize::MAX).0]
        };
        let same = |text: &str, count: usize, first: &str| {
            let [cron, ours] = starts(text, "Europe/Berlin");
            assert_eq!((cron.len(), cron[0], &cron), (count, at(first), &ours), "{text}");
        };
        same("30 2 * * *", 2, "2026-03-29T01:00:00Z");
        same("*/5 * * * mon-fri", 157, "2026-03-29T22:00:00Z");
        same("0 0 1,30 * 7", 2, "2026-03-28T23:00:00Z");
        same("@daily", 2, "2026-03-28T23:00:00Z");
        assert!(starts("@yearly", "Europe/Berlin").iter().all(Vec::is_empty));
        let gap = at("2026-03-29T01:00:00Z");
        assert_eq!(starts("0,30 2 * * 0", "Europe/Berlin"), [vec![gap, gap], vec![gap]]);
        let sunday = at("2026-03-29T00:00:00Z");
        assert_eq!(starts("0 0 * * sat-sun", "UTC"), [vec![], vec![sunday]]);
    }

    proptest! {
        #[test]
        fn times_increase_wherever_the_search_starts(
            schedule in any_schedule(), from in any_time(), between in 0.0..1.0,
        ) {
            let mut last = from;
            for _ in 0..20 {
                let Some(next) = schedule.after(last) else { break };
                prop_assert!(next > last);
                let seconds = (next - last).num_seconds() as f64 * between;
                let inside = last + TimeDelta::seconds(seconds as i64);
                if inside < next {
                    prop_assert_eq!(schedule.after(inside), Some(next));
                }
                last = next;
            }
        }

        #[test]
        fn each_fire_matches_local_time_or_follows_a_gap(
            schedule in any_schedule(), from in any_time()
        ) {
            for fire in schedule.fires(from).take(20) {
                let local = fire.local.naive_local();
                let end = local + TimeDelta::seconds(1);
                let Rule::Cron(expression) = &schedule.rule else { unreachable!("cron") };
                let shown = expression.between(local, end).next().is_some();
                let follows_gap = fire.mark.as_ref().is_some_and(|mark| mark.starts_with("right \
                    after"));
                let gap = || schedule.zone.periods(fire.at).next().unwrap().gap();
                let made_up = follows_gap && gap().1 == local;
                prop_assert!(shown || made_up, "{} {:?}", schedule.text, fire);
                prop_assert_eq!(fire.at.second(), 0);
            }
        }

        /// Both differ only after a gap: cron then starts a line once for each skipped time.
        #[test]
        fn each_minute_of_a_fire_is_a_minute_of_cron(
            schedule in any_schedule(), from in any_time(), hours in 0..100_i64,
        ) {
            let until = from + TimeDelta::hours(hours);
            let Schedule { text, zone, .. } = &schedule;
            let mut starts = cron_daemon::starts(text, zone, from, until).unwrap();
            starts.dedup();
            prop_assert_eq!(starts, schedule.missed(from, until, usize::MAX).0);
        }

        #[test]
        fn missed_times_are_the_times_that_after_yields(
            schedule in any_schedule(), from in any_time(),
            hours in 0..200_i64, newest in 0..50_usize,
        ) {
            let until = from + TimeDelta::hours(hours);
            let all: Vec<_> = iter::successors(schedule.after(from), |last| schedule.after(*last))
                .take_while(|at| *at <= until)
                .collect();
            let (older, newer) = all.split_at(all.len().saturating_sub(newest));
            prop_assert_eq!(
                schedule.missed(from, until, newest),
                (newer.to_vec(), older.len() as u64)
            );
        }
    }
}
