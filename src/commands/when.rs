//! Times as an operator gives them to look back: `2h`, `02:00`, `yesterday`, a date, RFC 3339.

use std::time::Duration;

use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use cron_zone::Zone;

use crate::text::duration::{self, CENTURY};
use crate::text::timestamp;

/// A time as it was given. `resolve` turns it into an instant, by a clock and a time zone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum When {
    Ago(Duration),
    At(DateTime<Utc>),
    /// The latest such time of day that is not in the future.
    TimeOfDay(NaiveTime),
    Local(NaiveDateTime),
    /// The start of the day that is this many days before today.
    StartOfDay(Days),
}

impl When {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if duration::parse(text).is_ok() {
            return Ok(Self::Ago(duration::parse_within(text, Duration::ZERO, CENTURY)?));
        }
        let at = timestamp::parse(text).ok().map(Self::At);
        at.or_else(|| Self::local(text)).ok_or_else(|| {
            format!(
                "`{text}` is not a time; write an age (30m, 2h, 1d), 02:00, today, yesterday, \
                 2026-01-31, \"2026-01-31 08:00\" or RFC 3339 (2026-01-31T08:00:00+01:00)"
            )
        })
    }

    /// Reads the forms that need a time zone.
    fn local(text: &str) -> Option<Self> {
        // Compare the shape first: chrono also accepts blanks and signs within a time.
        let text = text.replace('T', " ");
        let shape: String =
            text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        let time_of_day = |format| NaiveTime::parse_from_str(&text, format).map(Self::TimeOfDay);
        let local = |format| NaiveDateTime::parse_from_str(&text, format).map(Self::Local);
        match shape.as_str() {
            "today" => return Some(Self::StartOfDay(Days::new(0))),
            "yesterday" => return Some(Self::StartOfDay(Days::new(1))),
            "0:00" | "00:00" => time_of_day("%H:%M"),
            "0:00:00" | "00:00:00" => time_of_day("%H:%M:%S"),
            "0000-00-00 00:00" => local("%Y-%m-%d %H:%M"),
            "0000-00-00 00:00:00" => local("%Y-%m-%d %H:%M:%S"),
            "0000-00-00" => NaiveDate::parse_from_str(&text, "%Y-%m-%d")
                .map(|date| Self::Local(date.and_time(NaiveTime::MIN))),
            _ => return None,
        }
        .ok()
    }

    /// Returns the start and the end of a window, as instants seen from `now`. If the start is a
    /// time of day, it is the latest one before the end: at any hour, 22:00 and 06:00 mean one
    /// night.
    pub(crate) fn window(
        [since, until]: [Option<Self>; 2],
        now: DateTime<Utc>,
        zone: &Zone,
    ) -> [Option<DateTime<Utc>>; 2] {
        let until = until.map(|until| until.resolve(now, zone));
        let since = since.map(|since| match (since, until) {
            (Self::TimeOfDay(_), Some(until)) => since.resolve(until.min(now), zone),
            _ => since.resolve(now, zone),
        });
        [since, until]
    }

    /// Returns the instant, seen from `now`.
    pub(crate) fn resolve(self, now: DateTime<Utc>, zone: &Zone) -> DateTime<Utc> {
        // Returns the instant of a time on the day that is some days before today.
        let days_ago = |days: Days, time: NaiveTime| {
            zone.instant((zone.local(now).date_naive() - days).and_time(time))
        };
        match self {
            Self::Ago(length) => now - length,
            Self::At(at) => at,
            Self::Local(local) => zone.instant(local),
            Self::StartOfDay(days) => days_ago(days, NaiveTime::MIN),
            Self::TimeOfDay(time) => {
                let today = days_ago(Days::new(0), time);
                if today <= now { today } else { days_ago(Days::new(1), time) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the instant that each text means.
    #[track_caller]
    fn means(zone: &str, now: &str, expected: &[(&str, &str)]) {
        let zone = Zone::parse(zone).unwrap();
        let now = timestamp::parse(now).unwrap();
        for (text, instant) in expected {
            let at = When::parse(text).unwrap().resolve(now, &zone);
            assert_eq!(at, timestamp::parse(instant).unwrap(), "{text} {}", zone.name());
        }
    }

    #[test]
    fn a_time_is_given_as_people_say_it() {
        let common = [
            ("90m", "2026-11-22T01:00:00Z"),
            ("1d 2h", "2026-11-21T00:30:00Z"),
            ("0s", "2026-11-22T02:30:00Z"),
            ("2026-11-22T02:00:00+01:00", "2026-11-22T01:00:00Z"),
            ("2026-11-22 02:00:00Z", "2026-11-22T02:00:00Z"),
        ];
        means("UTC", "2026-11-22T02:30:00Z", &common);
        means("Asia/Kathmandu", "2026-11-22T02:30:00Z", &common);
        means(
            "UTC",
            "2026-11-22T02:30:00Z",
            &[
                ("02:00", "2026-11-22T02:00:00Z"),
                ("2:00", "2026-11-22T02:00:00Z"),
                ("02:30", "2026-11-22T02:30:00Z"),
                ("02:30:01", "2026-11-21T02:30:01Z"),
                ("22:00", "2026-11-21T22:00:00Z"),
                ("today", "2026-11-22T00:00:00Z"),
                ("yesterday", "2026-11-21T00:00:00Z"),
                ("2026-11-20", "2026-11-20T00:00:00Z"),
                ("2026-11-20 02:00", "2026-11-20T02:00:00Z"),
                ("2026-11-20T02:00:59", "2026-11-20T02:00:59Z"),
                ("2027-01-01", "2027-01-01T00:00:00Z"),
            ],
        );
        // In New York, it is still the day before.
        means(
            "America/New_York",
            "2026-11-22T02:30:00Z",
            &[
                ("02:00", "2026-11-21T07:00:00Z"),
                ("21:30", "2026-11-22T02:30:00Z"),
                ("today", "2026-11-21T05:00:00Z"),
                ("yesterday", "2026-11-20T05:00:00Z"),
                ("2026-11-22 02:00", "2026-11-22T07:00:00Z"),
            ],
        );
    }

    #[test]
    fn two_times_of_day_are_the_latest_window_that_has_ended() {
        let zone = Zone::parse("UTC").unwrap();
        for (now, since, until, window) in [
            ("2026-11-22T12:00:00Z", "22:00", "06:00", "2026-11-21T22:00 2026-11-22T06:00"),
            ("2026-11-22T23:00:00Z", "22:00", "06:00", "2026-11-21T22:00 2026-11-22T06:00"),
            ("2026-11-22T03:00:00Z", "22:00", "06:00", "2026-11-20T22:00 2026-11-21T06:00"),
            ("2026-11-22T03:00:00Z", "02:00", "04:00", "2026-11-21T02:00 2026-11-21T04:00"),
            ("2026-11-22T03:00:00Z", "02:00", "2026-11-20", "2026-11-19T02:00 2026-11-20T00:00"),
            ("2026-11-22T03:00:00Z", "02:00", "2026-11-30", "2026-11-22T02:00 2026-11-30T00:00"),
        ] {
            let when = [since, until].map(|text| Some(When::parse(text).unwrap()));
            let found = When::window(when, timestamp::parse(now).unwrap(), &zone);
            let found = found.map(|at| at.unwrap().format("%Y-%m-%dT%H:%M").to_string());
            assert_eq!(found.join(" "), window, "{now} {since} {until}");
        }
    }

    #[test]
    fn a_skipped_time_means_the_end_of_the_gap() {
        means(
            "Europe/Berlin",
            "2026-03-29T06:00:00Z",
            &[
                ("01:59", "2026-03-29T00:59:00Z"),
                ("02:00", "2026-03-29T01:00:00Z"),
                ("02:30", "2026-03-29T01:00:00Z"),
                ("03:00", "2026-03-29T01:00:00Z"),
                ("today", "2026-03-28T23:00:00Z"),
                ("yesterday", "2026-03-27T23:00:00Z"),
            ],
        );
        // The gap begins at midnight.
        means("America/Havana", "2026-03-08T12:00:00Z", &[("today", "2026-03-08T05:00:00Z")]);
        // Samoa skipped the whole day.
        means(
            "Pacific/Apia",
            "2011-12-30T12:00:00Z",
            &[("yesterday", "2011-12-30T10:00:00Z"), ("12:00", "2011-12-30T10:00:00Z")],
        );
    }

    #[test]
    fn a_repeated_time_means_its_first_pass() {
        means(
            "Europe/Berlin",
            "2026-10-25T12:00:00Z",
            &[
                ("01:59", "2026-10-24T23:59:00Z"),
                ("02:00", "2026-10-25T00:00:00Z"),
                ("02:59:59", "2026-10-25T00:59:59Z"),
                ("03:00", "2026-10-25T02:00:00Z"),
            ],
        );
        means("America/Havana", "2026-11-01T12:00:00Z", &[("today", "2026-11-01T04:00:00Z")]);
        // During the second pass, all times of the first pass are over.
        means("Europe/Berlin", "2026-10-25T01:10:00Z", &[("02:50", "2026-10-25T00:50:00Z")]);
    }

    #[test]
    fn the_error_for_another_text_names_all_forms() {
        for text in [
            "",
            "now",
            "2",
            "-1h",
            "24:00",
            "02:60",
            "2 am",
            " 2:00",
            "02: 0",
            "+2:00",
            "tomorrow",
            "1M",
            "2026-02-30",
            "2026-11-2",
            "2026-11-2202:00",
            "2026-11-22 25:00",
        ] {
            let refused = When::parse(text).unwrap_err();
            for form in ["`{text}`", "2h", "02:00", "yesterday", "2026-01-31", "RFC 3339"] {
                assert!(refused.contains(&form.replace("{text}", text)), "{refused}");
            }
        }
    }
}
