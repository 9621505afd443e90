//! The report's time axis: bins of a length that people know, and where its hours are. Pure.

use chrono::{DateTime, FixedOffset, TimeDelta, Timelike, Utc};

use crate::schedule::Clock;

// In seconds.
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Lengths of a bin, in seconds.
const BINS: [i64; 17] = [
    10,
    30,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    6 * HOUR,
    8 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    4 * DAY,
];
/// As many as can still be told apart on a telephone, where a bin is three pixels wide.
const MOST_BINS: i64 = 96;

/// Lengths of time between two labels, in seconds.
const STEPS: [i64; 15] = [
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    60 * DAY,
];
/// As many labels as fit side by side on a telephone.
const MOST_LABELS: i64 = 8;
/// The clocks of the world differ by multiples of this, in seconds, so that full hours do too.
const GRAIN: i64 = 15 * MINUTE;

/// The window that a report looks at, cut into bins. It begins on the edge of a bin, so that it is up
/// to one bin longer than what was asked for; what is said of the window in words keeps to that.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) from: DateTime<Utc>,
    pub(super) now: DateTime<Utc>,
    /// Seconds.
    pub(super) bin: i64,
    pub(super) bins: i32,
    clock: Clock,
}

/// A label and its place, in bins from the start.
#[derive(Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) place: f64,
    pub(super) label: String,
}

impl Axis {
    pub(super) fn of(now: DateTime<Utc>, since: TimeDelta, clock: Clock) -> Self {
        let since = since.num_seconds();
        let bin = BINS.into_iter().find(|bin| since <= bin * MOST_BINS).unwrap_or(4 * DAY);
        let start = now.timestamp() - since;
        // On an edge by the clock: a bin of a day is a day of those who read it.
        let from = start - (start + offset(clock.show(now))).rem_euclid(bin);
        let bins = i32::try_from((now.timestamp() - from) / bin + 1).unwrap_or(i32::MAX);
        Self { from: instant(from), now, bin, bins, clock }
    }

    /// Where an instant lies, in bins from the start; not beyond either end.
    pub(super) fn place(&self, at: DateTime<Utc>) -> f64 {
        let place = (at - self.from).as_seconds_f64() / self.bin as f64;
        place.clamp(0.0, f64::from(self.bins))
    }

    pub(super) fn has(&self, bin: i32) -> bool {
        (0..self.bins).contains(&bin)
    }

    /// The start of a bin.
    pub(super) fn start(&self, bin: i32) -> DateTime<Utc> {
        instant(self.from.timestamp() + i64::from(bin) * self.bin)
    }

    /// The labels.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        let span = self.bin * i64::from(self.bins);
        let step = STEPS.into_iter().find(|step| span / step <= MOST_LABELS).unwrap_or(60 * DAY);
        let grain = step.min(GRAIN);
        let (from, until) = (self.from.timestamp(), self.from.timestamp() + span);
        let first = from + (-from).rem_euclid(grain);
        let instants = (0..).map(|n| first + n * grain).take_while(|at| *at < until);
        let ticks = instants.filter_map(|at| {
            let local = self.clock.show(instant(at));
            let is_due = (at + offset(local)).rem_euclid(step) == 0;
            is_due.then(|| Tick { place: self.place(instant(at)), label: label(local, span) })
        });
        ticks.collect()
    }

    /// An instant as short as it is clear: today without its day, this week by the weekday.
    pub(super) fn show(&self, at: DateTime<Utc>) -> String {
        let (local, now) = (self.clock.show(at), self.clock.show(self.now));
        let format = match (local.date_naive() - now.date_naive()).num_days() {
            0 => "%H:%M",
            -6..=6 => "%a %H:%M",
            _ => "%Y-%m-%d %H:%M",
        };
        local.format(format).to_string()
    }

    pub(super) fn show_exactly(&self, at: DateTime<Utc>) -> String {
        format!("{} {}", self.clock.show(at).format("%a %Y-%m-%d %H:%M:%S"), self.zone())
    }

    pub(super) fn zone(&self) -> &str {
        self.clock.name()
    }
}

fn label(local: DateTime<FixedOffset>, span: i64) -> String {
    let format = match local.num_seconds_from_midnight() {
        0 if span > 7 * DAY => "%-d %b",
        0 => "%a %-d",
        _ => "%H:%M",
    };
    local.format(format).to_string()
}

fn offset(local: DateTime<FixedOffset>) -> i64 {
    i64::from(local.offset().local_minus_utc())
}

fn instant(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(now: &str, hours: i64, zone: &str) -> Axis {
        let now = DateTime::parse_from_rfc3339(now).unwrap().to_utc();
        Axis::of(now, TimeDelta::hours(hours), Clock::parse(zone).unwrap())
    }

    #[track_caller]
    fn cuts(hours: i64, zone: &str, from: &str, bin: i64, bins: i32) {
        let axis = axis("2026-01-05T12:07:09.5Z", hours, zone);
        assert_eq!((axis.from.to_rfc3339().as_str(), axis.bin, axis.bins), (from, bin, bins));
    }

    #[test]
    fn a_window_is_cut_into_bins_that_people_know() {
        cuts(1, "UTC", "2026-01-05T11:07:00+00:00", MINUTE, 61);
        cuts(24, "UTC", "2026-01-04T12:00:00+00:00", 15 * MINUTE, 97);
        cuts(24 * 30, "Europe/Berlin", "2025-12-06T07:00:00+00:00", 8 * HOUR, 91);
        cuts(24 * 90, "Asia/Kathmandu", "2025-10-06T18:15:00+00:00", DAY, 91);
        cuts(24 * 366, "UTC", "2025-01-04T00:00:00+00:00", 4 * DAY, 92);
    }

    #[track_caller]
    fn labels(now: &str, hours: i64, zone: &str, expected: &str) {
        let axis = axis(now, hours, zone);
        let ticks: Vec<_> = axis.ticks().iter().map(|tick| format!("{}@{}", tick.label, tick.place)).collect();
        assert_eq!(ticks.join(" "), expected);
    }

    #[test]
    fn labels_stand_at_full_hours_of_the_clock_and_at_midnight_name_the_day() {
        let day = "12:00@0 15:00@12 18:00@24 21:00@36 Mon 5@48 03:00@60 06:00@72 09:00@84 12:00@96";
        labels("2026-01-05T12:07:00Z", 24, "UTC", day);
        labels("2026-01-05T12:07:00Z", 1, "UTC", "11:10@3 11:20@13 11:30@23 11:40@33 11:50@43 12:00@53");
        labels("2026-01-05T12:07:00Z", 24 * 30, "UTC", "11 Dec@14 18 Dec@35 25 Dec@56 1 Jan@77");
        // The night in which the clock leaps from 2 to 3.
        labels("2026-03-29T08:00:00Z", 12, "Europe/Berlin", "22:00@6 Sun 29@18 04:00@36 06:00@48 08:00@60 10:00@72");
    }

    #[test]
    fn instants_are_shown_as_short_as_they_are_clear() {
        let axis = axis("2026-01-05T12:07:09Z", 24, "Europe/Berlin");
        let shown = |at: &str| axis.show(DateTime::parse_from_rfc3339(at).unwrap().to_utc());
        assert_eq!(shown("2026-01-05T01:30:00Z"), "02:30");
        assert_eq!(shown("2026-01-04T22:30:00Z"), "Sun 23:30");
        assert_eq!(shown("2026-01-11T08:00:00Z"), "Sun 09:00");
        assert_eq!(shown("2025-12-24T08:00:00Z"), "2025-12-24 09:00");
        assert_eq!(axis.show_exactly(axis.now), "Mon 2026-01-05 13:07:09 Europe/Berlin");
    }

    #[test]
    fn what_lies_beyond_either_end_is_placed_at_it() {
        let axis = axis("2026-01-05T12:07:09Z", 24, "UTC");
        assert_eq!(axis.place(axis.start(-3)), 0.0);
        assert_eq!(axis.place(axis.start(4)), 4.0);
        assert_eq!(axis.place(axis.start(400)), 97.0);
    }
}
