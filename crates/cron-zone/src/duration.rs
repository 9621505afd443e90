//! Reads durations (`30s`, `5m`, `2h`, `1d`, `1h30m`) and writes them.

use std::time::Duration;

use crate::Error;

/// A hundred years, a limit for durations that people write.
pub const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A second.
pub const SECOND: Duration = Duration::from_secs(1);
/// A minute.
pub const MINUTE: Duration = Duration::from_secs(60);
/// An hour.
pub const HOUR: Duration = Duration::from_secs(3600);
/// 24 hours.
pub const DAY: Duration = Duration::from_secs(86_400);
/// 365 days.
pub const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Reads a duration. Every number needs a unit: `ms`, `s`, `m`, `h`, `d` or `w`. Accepts zero.
/// Refuses months and years, which have no fixed length, so that `1M` is never read as a minute.
///
/// # Errors
/// The text is not a duration.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let units = text.split(|c: char| !c.is_ascii_alphabetic());
    let mut units = units.filter(|unit| !unit.is_empty()).peekable();
    // Refuse a text without a unit: humantime accepts `0`.
    let has_known_units = units.peek().is_some()
        && units.all(|unit| matches!(unit, "ms" | "s" | "m" | "h" | "d" | "w"));
    // humantime 2.4 panics at some sums near `u64::MAX` seconds. 20 numbers of 12 digits stay below
    // that, even in weeks.
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let mut lengths = numbers.map(|digits| digits.trim_start_matches('0').len());
    let is_short = lengths.clone().count() <= 20 && lengths.all(|length| length <= 12);
    if has_known_units
        && is_short
        && let Ok(duration) = humantime::parse_duration(text)
    {
        return Ok(duration);
    }
    let is_negative =
        text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let what = if is_negative { "is negative" } else { "is not a duration" };
    Err(Error(format!("`{text}` {what}; write 30s, 5m, 2h, 1d or 1h30m")))
}

/// Reads a duration from `least` to `most`.
///
/// # Errors
/// The text is not a duration, or it is out of range.
pub fn parse_within(text: &str, least: Duration, most: Duration) -> Result<Duration, Error> {
    let duration = parse(text)?;
    if (least..=most).contains(&duration) {
        return Ok(duration);
    }
    let (least, most) = (show(least), show(most));
    Err(Error(format!("`{text}` is out of range; allowed are {least} to {most}")))
}

/// Writes a duration as short as its size allows: `3ms`, `1.2s`, `59s`, `5m 30s`, `2h 5m`, `1d 1h`.
pub fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if duration < SECOND {
        return format!("{}ms", duration.as_millis());
    }
    if seconds < 10 && duration.subsec_millis() >= 50 {
        return format!("{:.1}s", duration.as_secs_f64());
    }
    if seconds < 60 {
        return format!("{seconds}s");
    }
    // The largest unit that fits, and the one below it.
    let (large, small, [large_name, small_name]) = if seconds < 3600 {
        (60, 1, ["m", "s"])
    } else if seconds < 86_400 {
        (3600, 60, ["h", "m"])
    } else {
        (86_400, 3600, ["d", "h"])
    };
    match seconds % large / small {
        0 => format!("{}{large_name}", seconds / large),
        rest => format!("{}{large_name} {rest}{small_name}", seconds / large),
    }
}

/// Writes a duration in whole seconds.
pub fn show_whole(duration: Duration) -> String {
    show(Duration::from_secs(duration.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, seconds: f64) {
        assert_eq!(parse(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
    }

    #[track_caller]
    fn refuses(text: &str) {
        let refused = parse(text).unwrap_err().to_string();
        assert!(refused.contains("30s, 5m, 2h, 1d"), "{refused}");
    }

    #[track_caller]
    fn shows(milliseconds: u64, text: &str) {
        assert_eq!(show(Duration::from_millis(milliseconds)), text);
    }

    #[test]
    fn every_unit_is_read() {
        reads("250ms", 0.25);
        reads("30s", 30.0);
        reads("5m", 300.0);
        reads("2h", 7200.0);
        reads("1d", 86400.0);
        reads("1w", 604_800.0);
        reads("1h30m", 5400.0);
        reads("1h 30m", 5400.0);
    }

    #[test]
    fn a_duration_needs_a_unit_of_fixed_length() {
        for text in [
            "",
            "0",
            "5",
            "-5s",
            "NaN",
            "1e18",
            "1M",
            "1month",
            "1y",
            "s",
            "5 parsecs",
            "99999999999999999999s",
            "18446744073709551615s 500ms 500ms",
        ] {
            refuses(text);
        }
    }

    #[test]
    fn an_error_names_the_allowed_range() {
        let second = SECOND;
        assert_eq!(parse_within("2s", second, second * 3), Ok(second * 2));
        assert_eq!(
            parse_within("0s", second, second * 300).unwrap_err().to_string(),
            "`0s` is out of range; allowed are 1s to 5m"
        );
    }

    #[test]
    fn a_duration_is_written_as_short_as_possible() {
        shows(3, "3ms");
        shows(1240, "1.2s");
        shows(9000, "9s");
        shows(59_999, "59s");
        shows(60_000, "1m");
        shows(64_000, "1m 4s");
        shows(330_000, "5m 30s");
        shows(300_000, "5m");
        shows(3_600_000, "1h");
        shows(3_599_999, "59m 59s");
        shows(3_660_000, "1h 1m");
        shows(7_500_000, "2h 5m");
        shows(86_399_999, "23h 59m");
        shows(86_400_000, "1d");
        shows(90_000_000, "1d 1h");
        shows(270_000_000, "3d 3h");
    }
}
