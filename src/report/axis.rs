//! The report's time axis: the length of its bins, and the places of its labels. Pure.

use std::time::Duration;

use chrono::{DateTime, FixedOffset, TimeDelta, Timelike, Utc};
use cron_zone::Zone;

// All lengths are in seconds.
const MIN: i64 = 60;
const HOUR: i64 = 60 * MIN;
const DAY: i64 = 24 * HOUR;

/// Possible lengths of a bin. A window of more than eight days has bins of one or more days.
#[rustfmt::skip]
const BINS: [i64; 13] = [
    10, 30, MIN, 2 * MIN, 5 * MIN, 10 * MIN, 15 * MIN, 30 * MIN, HOUR, 2 * HOUR, DAY, 2 * DAY,
    4 * DAY,
];
/// The maximum number of bins. On a telephone, each is three pixels wide then.
const MAX_BINS: i64 = 96;

/// Possible distances between two labels.
#[rustfmt::skip]
const STEPS: [i64; 15] = [
    MIN, 2 * MIN, 5 * MIN, 10 * MIN, 15 * MIN, 30 * MIN, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR,
    12 * HOUR, DAY, 2 * DAY, 7 * DAY, 60 * DAY,
];
/// The maximum number of labels: more would not fit side by side on a telephone.
const MAX_LABELS: i64 = 8;
/// All UTC offsets are multiples of this, so in UTC, every full local hour is a multiple of it.
const GRAIN: i64 = 15 * MIN;

/// The window of a report, cut into bins. It begins on the edge of a bin, so it is up to one bin
/// longer than the requested window.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) from: DateTime<Utc>,
    pub(super) now: DateTime<Utc>,
    /// The length of a bin in seconds.
    pub(super) bin: i64,
    pub(super) bins: i32,
    clock: Zone,
}

/// A label of the axis, and its place in bins from the start.
#[derive(Debug, PartialEq)]
pub(super) struct Label {
    pub(super) place: f64,
    pub(super) text: String,
}

impl Axis {
    pub(super) fn new(now: DateTime<Utc>, window: TimeDelta, clock: Zone) -> Self {
        let window = window.num_seconds();
        let bin = BINS.into_iter().find(|bin| window <= bin * MAX_BINS).unwrap_or(4 * DAY);
        let start = now.timestamp() - window;
        // Bins begin at full local times. Days are in UTC, as those of the figures.
        let ahead = if bin >= DAY { 0 } else { offset(clock.local(now)) };
        let from = start - (start + ahead).rem_euclid(bin);
        let bins = i32::try_from((now.timestamp() - from) / bin + 1).unwrap_or(i32::MAX);
        Self { from: instant(from), now, bin, bins, clock }
    }

    /// Returns the length of a bin.
    pub(super) fn width(&self) -> Duration {
        Duration::from_secs(self.bin.unsigned_abs())
    }

    /// Returns whether bins are days in UTC, whose numbers come from daily figures.
    pub(super) fn by_day(&self) -> bool {
        self.bin >= DAY
    }

    /// Returns the position of an instant, in bins from the start. An instant outside the window
    /// has the position of the nearer end.
    pub(super) fn position(&self, at: DateTime<Utc>) -> f64 {
        let position = (at - self.from).as_seconds_f64() / self.bin as f64;
        position.clamp(0.0, f64::from(self.bins))
    }

    /// Returns the start of a bin.
    pub(super) fn start(&self, bin: i32) -> DateTime<Utc> {
        instant(self.from.timestamp() + i64::from(bin) * self.bin)
    }

    /// Returns the labels: full local hours or days, at even distances.
    pub(super) fn labels(&self) -> Vec<Label> {
        let span = self.bin * i64::from(self.bins);
        let step = STEPS.into_iter().find(|step| span / step <= MAX_LABELS).unwrap_or(60 * DAY);
        let grain = step.min(GRAIN);
        let (from, until) = (self.from.timestamp(), self.from.timestamp() + span);
        let first = from + (-from).rem_euclid(grain);
        let mut labels = Vec::new();
        for at in (0..).map(|n| first + n * grain).take_while(|at| *at < until) {
            let local = self.clock.local(instant(at));
            let is_full_step = (at + offset(local)).rem_euclid(step) == 0;
            if is_full_step {
                let (place, text) = (self.position(instant(at)), label(local, span));
                labels.push(Label { place, text });
            }
        }
        labels
    }

    /// Returns a time as text: only the time of day if it is today, with the day of the week if it
    /// is less than a week ago or ahead, or else with the date.
    pub(super) fn show(&self, at: DateTime<Utc>) -> String {
        let (local, now) = (self.clock.local(at), self.clock.local(self.now));
        let format = match (local.date_naive() - now.date_naive()).num_days() {
            0 => "%H:%M",
            -6..=6 => "%a %H:%M",
            _ => "%Y-%m-%d %H:%M",
        };
        local.format(format).to_string()
    }

    /// Returns a time as text with its date, its seconds and its zone.
    pub(super) fn show_exactly(&self, at: DateTime<Utc>) -> String {
        format!("{} {}", self.clock.local(at).format("%a %Y-%m-%d %H:%M:%S"), self.zone())
    }

    pub(super) fn zone(&self) -> &str {
        self.clock.name()
    }
}

/// Returns the text of a label: the time of day, or at midnight the day.
fn label(local: DateTime<FixedOffset>, span: i64) -> String {
    let format = match local.num_seconds_from_midnight() {
        0 if span > 7 * DAY => "%-d %b",
        0 => "%a %-d",
        _ => "%H:%M",
    };
    local.format(format).to_string()
}

/// Returns how many seconds a local time is ahead of UTC.
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
        Axis::new(now, TimeDelta::hours(hours), Zone::parse(zone).unwrap())
    }

    #[track_caller]
    fn cuts(hours: i64, zone: &str, from: &str, bin: i64, bins: i32) {
        let axis = axis("2026-01-05T12:07:09.5Z", hours, zone);
        assert_eq!((axis.from.to_rfc3339().as_str(), axis.bin, axis.bins), (from, bin, bins));
    }

    #[test]
    fn a_window_is_cut_into_bins_of_a_common_length() {
        cuts(1, "UTC", "2026-01-05T11:07:00+00:00", MIN, 61);
        cuts(24, "UTC", "2026-01-04T12:00:00+00:00", 15 * MIN, 97);
        cuts(24 * 7, "Asia/Kathmandu", "2025-12-29T10:15:00+00:00", 2 * HOUR, 85);
        cuts(24 * 8, "Europe/Berlin", "2025-12-28T11:00:00+00:00", 2 * HOUR, 97);
        cuts(24 * 30, "Asia/Kathmandu", "2025-12-06T00:00:00+00:00", DAY, 31);
        cuts(24 * 90, "Europe/Berlin", "2025-10-07T00:00:00+00:00", DAY, 91);
        cuts(24 * 366, "UTC", "2025-01-04T00:00:00+00:00", 4 * DAY, 92);
    }

    #[track_caller]
    fn labels(now: &str, hours: i64, zone: &str, expected: &str) {
        let axis = axis(now, hours, zone);
        let labels: Vec<_> =
            axis.labels().iter().map(|label| format!("{}@{}", label.text, label.place)).collect();
        assert_eq!(labels.join(" "), expected);
    }

    #[test]
    fn labels_are_at_full_local_hours_and_name_the_day_at_midnight() {
        let day = "12:00@0 15:00@12 18:00@24 21:00@36 Mon 5@48 03:00@60 06:00@72 09:00@84 12:00@96";
        labels("2026-01-05T12:07:00Z", 24, "UTC", day);
        labels(
            "2026-01-05T12:07:00Z",
            1,
            "UTC",
            "11:10@3 11:20@13 11:30@23 11:40@33 11:50@43 12:00@53",
        );
        labels("2026-01-05T12:07:00Z", 24 * 30, "UTC", "11 Dec@5 18 Dec@12 25 Dec@19 1 Jan@26");
        // At night, the clock moves from 2 to 3.
        labels(
            "2026-03-29T08:00:00Z",
            12,
            "Europe/Berlin",
            "22:00@6 Sun 29@18 04:00@36 06:00@48 08:00@60 10:00@72",
        );
    }

    #[test]
    fn an_instant_is_shown_without_redundant_parts() {
        let axis = axis("2026-01-05T12:07:09Z", 24, "Europe/Berlin");
        let shown = |at: &str| axis.show(DateTime::parse_from_rfc3339(at).unwrap().to_utc());
        assert_eq!(shown("2026-01-05T01:30:00Z"), "02:30");
        assert_eq!(shown("2026-01-04T22:30:00Z"), "Sun 23:30");
        assert_eq!(shown("2026-01-11T08:00:00Z"), "Sun 09:00");
        assert_eq!(shown("2025-12-24T08:00:00Z"), "2025-12-24 09:00");
        assert_eq!(axis.show_exactly(axis.now), "Mon 2026-01-05 13:07:09 Europe/Berlin");
    }

    #[test]
    fn an_instant_outside_the_window_is_placed_at_its_end() {
        let axis = axis("2026-01-05T12:07:09Z", 24, "UTC");
        assert_eq!(axis.position(axis.start(-3)), 0.0);
        assert_eq!(axis.position(axis.start(4)), 4.0);
        assert_eq!(axis.position(axis.start(400)), 97.0);
    }
}
