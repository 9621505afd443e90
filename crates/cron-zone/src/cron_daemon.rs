//! Computes when Debian's cron starts a line of a crontab, minute by minute as its daemon does.
//! Tests compare the schedules of this crate with it. It shares no rule with them, except the
//! tables of local time.

use std::collections::BTreeSet;
use std::iter::StepBy;
use std::ops::RangeInclusive;

use chrono::{DateTime, Datelike, TimeDelta, Timelike, Utc};

use cron_zone::Zone;

/// For each field: its first value, its last value, and the names from the first value on.
const FIELDS: [(u32, u32, &str); 5] = [
    (0, 59, ""),
    (0, 23, ""),
    (1, 31, ""),
    (1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    (0, 7, "sun mon tue wed thu fri sat sun"),
];
/// The simulated daemon starts this long before the first time, so that a clock change shortly
/// before it counts.
const WARM_UP: TimeDelta = TimeDelta::days(1);

struct CronLine {
    /// Minute, hour, day of month, month, day of week.
    fields: [BTreeSet<u32>; 5],
    /// Whether each field begins with `*`.
    stars: [bool; 5],
}

/// Returns whether cron accepts a schedule. If not, cron ignores the whole crontab.
pub(crate) fn accepts(schedule: &str) -> bool {
    CronLine::read(schedule).is_some()
}

/// Returns the starts of a line after `from` and up to `until`. If cron starts the line twice in a
/// minute, the instant is there twice. `None`: cron rejects the line.
pub(crate) fn starts(
    schedule: &str,
    zone: &Zone,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Option<Vec<DateTime<Utc>>> {
    let line = CronLine::read(schedule)?;
    // The minute that a local clock shows, counted since 1970.
    let shown = |at: DateTime<Utc>| (at + zone.offset(at)).timestamp().div_euclid(60);
    let begin = (from - WARM_UP).timestamp().div_euclid(60);
    let instants =
        (begin..=until.timestamp().div_euclid(60)).map(|at| DateTime::from_timestamp(at * 60, 0));
    let mut starts = Vec::new();
    // Cron's virtual time: the local minute up to which it has started everything.
    let mut done = None;
    for at in instants.flatten() {
        let now = shown(at);
        let before = done.unwrap_or(now - 1);
        let missed = || (before + 1..=now).filter(|minute| line.matches(*minute)).count();
        let current = || usize::from(line.matches(now));
        let (times, reached) = match now - before {
            1..=5 => (missed(), now),
            // The clock went forward. A line with a star starts once if it matches now; any other
            // line starts once for each skipped time.
            6..=180 if line.is_wild() => (current(), now),
            6..=180 => (missed(), now),
            // The clock went back. Only lines with a star start again.
            -179..=0 => (if line.is_wild() { current() } else { 0 }, before),
            _ => (current(), now),
        };
        done = Some(reached);
        if from < at && at <= until {
            starts.extend(std::iter::repeat_n(at, times));
        }
    }
    Some(starts)
}

impl CronLine {
    /// Reads the five fields; `None` if this cron rejects them.
    fn read(schedule: &str) -> Option<Self> {
        let fields = match schedule {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            fields => fields,
        };
        let fields: [&str; 5] = fields.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let mut line =
            Self { fields: Default::default(), stars: fields.map(|f| f.starts_with('*')) };
        for ((text, rule), values) in fields.iter().zip(FIELDS).zip(&mut line.fields) {
            *values = read_field(text, rule)?;
        }
        // Sunday has two numbers.
        let weekdays = &mut line.fields[4];
        if weekdays.contains(&7) {
            weekdays.insert(0);
        }
        Some(line)
    }

    /// Returns whether the minute or the hour begins with `*`.
    fn is_wild(&self) -> bool {
        self.stars[0] || self.stars[1]
    }

    /// Returns whether the line is due in this minute, counted since 1970 in local time.
    fn matches(&self, minute: i64) -> bool {
        let time = DateTime::from_timestamp(minute * 60, 0).unwrap_or_default();
        let weekday = time.weekday().num_days_from_sunday();
        let values = [time.minute(), time.hour(), time.day(), time.month(), weekday];
        let has = |field: usize| self.fields[field].contains(&values[field]);
        // If one of the two fields of days has a star, both must match. Otherwise, one must match.
        let is_day =
            if self.stars[2] || self.stars[4] { has(2) && has(4) } else { has(2) || has(4) };
        has(0) && has(1) && has(3) && is_day
    }
}

/// Reads a list of values and ranges. As cron does, ignores the text after the list: `5;` is `5`.
fn read_field(text: &str, rule: (u32, u32, &str)) -> Option<BTreeSet<u32>> {
    let (mut values, mut rest) = (BTreeSet::new(), text);
    loop {
        let (range, after) = read_range(rest, rule)?;
        values.extend(range);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Some(values),
        }
    }
}

/// Reads a value, or a range that may have a step. A range that runs backwards has no values.
fn read_range<'a>(
    text: &'a str,
    (first, last, names): (u32, u32, &str),
) -> Option<(StepBy<RangeInclusive<u32>>, &'a str)> {
    let word = |text: &'a str| {
        text.split_at(text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len()))
    };
    let value = |text: &'a str| {
        let (word, rest) = word(text);
        let named = names.split(' ').position(|name| name.eq_ignore_ascii_case(word));
        let value = match named.filter(|_| !word.is_empty()) {
            Some(index) => first + index as u32,
            None => word.parse().ok()?,
        };
        (first..=last).contains(&value).then_some((value, rest))
    };
    let (low, high, rest) = if let Some(rest) = text.strip_prefix('*') {
        (first, last, rest)
    } else {
        let (low, rest) = value(text)?;
        match rest.strip_prefix('-') {
            Some(rest) => value(rest).map(|(high, rest)| (low, high, rest))?,
            None if rest.starts_with('/') => return None,
            None => (low, low, rest),
        }
    };
    let (step, rest) = match rest.strip_prefix('/').map(word) {
        Some((step, rest)) => (step.parse().ok().filter(|step| *step > 0)?, rest),
        None => (1, rest),
    };
    Some(((low..=high).step_by(step), rest))
}

mod tests {
    use super::*;

    #[track_caller]
    fn check(schedule: &str, zone: &str, from: &str, expected: &[&str]) {
        let zone = Zone::parse(zone).unwrap();
        let from: DateTime<Utc> = from.parse().unwrap();
        let starts = starts(schedule, &zone, from, from + TimeDelta::days(7)).unwrap();
        let shown = starts.iter().take(expected.len());
        let shown: Vec<_> =
            shown.map(|at| zone.local(*at).format("%m-%d %H:%M %z").to_string()).collect();
        assert_eq!(shown, expected, "{schedule} {zone:?}");
    }

    #[test]
    fn two_restricted_day_fields_mean_either_and_a_star_means_both() {
        // 2026-11-23 is a Monday.
        let from = "2026-11-23T12:00:00Z";
        let either = ["11-25 00:00 +0000", "11-27 00:00 +0000"];
        check("0 0 25 * fri", "UTC", from, &either);
        check("0 0 */2 * fri", "UTC", from, &["11-27 00:00 +0000"]);
        check("0 0 27 * */2", "UTC", from, &[]);
        check("0 0 * * 7", "UTC", from, &["11-29 00:00 +0000"]);
        check("@weekly", "UTC", from, &["11-29 00:00 +0000"]);
    }

    #[test]
    fn a_skipped_hour_starts_late_and_a_repeated_one_once() {
        let berlin = "Europe/Berlin";
        let forward = "2026-03-29T00:00:00Z";
        // Cron starts a line once for each of its skipped times.
        let twice = ["03-29 03:00 +0200", "03-29 03:00 +0200", "03-30 02:00 +0200"];
        check("0,30 2 * * *", berlin, forward, &twice);
        check("30 * * * *", berlin, forward, &["03-29 01:30 +0100", "03-29 03:30 +0200"]);
        let back = "2026-10-25T00:00:00Z";
        check("30 2 * * *", berlin, back, &["10-25 02:30 +0200", "10-26 02:30 +0100"]);
        check("30 * * * *", berlin, back, &["10-25 02:30 +0200", "10-25 02:30 +0100"]);
        // The second pass has begun.
        check("30 2 * * *", berlin, "2026-10-25T01:10:00Z", &["10-26 02:30 +0100"]);
    }

    #[test]
    fn ranges_are_read_as_cron_reads_them() {
        let numbers = |text, field: usize| read_field(text, FIELDS[field]);
        let list = |numbers: &[u32]| Some(numbers.iter().copied().collect());
        assert_eq!(numbers("10-30/10", 0), list(&[10, 20, 30]));
        assert_eq!(numbers("mon-FRI/2", 4), list(&[1, 3, 5]));
        assert_eq!(numbers("*/6", 1), list(&[0, 6, 12, 18]));
        assert_eq!(numbers("sat-sun", 4), list(&[]));
        assert_eq!(numbers("5;x", 0), list(&[5]));
        assert_eq!(numbers("3,1-2-7,4", 0), list(&[1, 2, 3]));
        for wrong in ["5/10", "60", "*/0", "", "a", "1-", "1,", "1,,2", "*/5x", "L", "?", "-*"] {
            assert_eq!(numbers(wrong, 0), None, "{wrong}");
            assert!(!accepts(&format!("{wrong} * * * *")), "{wrong}");
        }
    }
}
