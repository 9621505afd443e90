//! The wait of a failed run before its next attempt. Pure: the random number is an argument.

use std::time::Duration;

use crate::text::duration;

/// The rule if neither the definition nor the enqueue has one. The `backoff` columns have the same
/// default.
pub(crate) const DEFAULT: &str = "exponential:1m..30m";
/// The maximum of a wait, so that no interval overflows.
const LONGEST: Duration = Duration::from_secs(30 * 86400);
/// The cap of the rule `exponential:BASE`, which has none of its own. A longer BASE is its own cap.
const DEFAULT_CAP: Duration = Duration::from_secs(3600);
/// Each wait is longer or shorter by up to this fraction, at random, so that runs that failed
/// together do not start together.
const JITTER: f64 = 0.2;

/// Returns the wait after an attempt. For a rule that can't be read, applies the default: any
/// program may have written the row, and the run must not be stuck.
pub(crate) fn wait_after(attempt: i32, rule: &str, random: f64) -> Duration {
    let attempt = attempt.unsigned_abs();
    let wait = unjittered(rule, attempt).or_else(|_| unjittered(DEFAULT, attempt));
    jittered(wait.expect("the default is a rule"), random)
}

/// Checks the rule of a `backoff` column, and returns it.
pub(crate) fn check(rule: &str) -> Result<String, String> {
    unjittered(rule, 1).map(|_| rule.to_owned())
}

/// Returns the wait after an attempt, without jitter. Attempts count from 1.
fn unjittered(rule: &str, attempt: u32) -> Result<Duration, String> {
    let attempt = attempt.max(1);
    // Accept what jobctl.is_backoff accepts: whole numbers, and no white space but spaces.
    let is_allowed = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || c == ' ';
    let read_wait = |text: &str| {
        if !text.chars().all(is_allowed) {
            return Err(format!("`{text}` is not a wait; write 30s, 5m, 2h, 1d or 1h30m"));
        }
        Ok(duration::parse_within(text.trim(), Duration::ZERO, LONGEST)?)
    };
    let wait_after_attempt = match rule.split_once(':') {
        Some(("fixed", every)) => read_wait(every)?,
        // The wait begins with the base, and doubles after each attempt, up to the cap.
        Some(("exponential", range)) => {
            let (base, cap) = match range.split_once("..") {
                Some((base, cap)) => (read_wait(base)?, read_wait(cap)?),
                None => read_wait(range).map(|base| (base, base.max(DEFAULT_CAP)))?,
            };
            if base > cap {
                return Err(format!("the first wait of `{rule}` exceeds its maximum"));
            }
            let factor = 1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX);
            base.saturating_mul(factor).min(cap)
        }
        // The wait is this unit, multiplied by the square of the attempt's number.
        Some(("polynomial", unit)) => {
            read_wait(unit)?.saturating_mul(attempt.saturating_mul(attempt))
        }
        // The waits after the first, the second and further attempts. The last one repeats.
        Some(("list", waits)) => {
            let waits: Vec<_> = waits.split(',').map(read_wait).collect::<Result<_, _>>()?;
            waits[waits.len().min(attempt as usize) - 1]
        }
        _ => {
            let forms = "fixed:1m, exponential:1m..30m, polynomial:10s or list:1m,5m,30m";
            return Err(format!("`{rule}` is not a backoff; write {forms}"));
        }
    };
    Ok(wait_after_attempt.min(LONGEST))
}

/// Spreads a wait evenly by +-20 %; `random` is in 0..1.
fn jittered(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(1.0 - JITTER + 2.0 * JITTER * random)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn waits(text: &str, expected: &[&str]) {
        let waits: Vec<_> = (1..)
            .take(expected.len())
            .map(|attempt| duration::show(unjittered(text, attempt).unwrap()))
            .collect();
        assert_eq!(waits, expected, "{text}");
    }

    #[track_caller]
    fn refuses(text: &str, why: &str) {
        let refused = check(text).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }

    #[test]
    fn each_rule_yields_the_documented_waits() {
        waits("fixed:1m", &["1m", "1m", "1m"]);
        waits("exponential:1m..30m", &["1m", "2m", "4m", "8m", "16m", "30m", "30m"]);
        waits("exponential:1m", &["1m", "2m", "4m", "8m", "16m", "32m", "1h", "1h"]);
        waits("polynomial:10s", &["10s", "40s", "1m 30s", "2m 40s"]);
        waits("list:1m,5m,30m,2h", &["1m", "5m", "30m", "2h", "2h"]);
    }

    #[test]
    fn an_invalid_rule_is_refused() {
        refuses("", "write fixed:1m");
        refuses("1m", "write fixed:1m");
        refuses("linear:1m", "write fixed:1m");
        refuses("fixed:", "is not a duration");
        refuses("fixed:5", "is not a duration");
        refuses("polynomial:0", "is not a duration");
        refuses("fixed:31d", "out of range");
        refuses("exponential:2h..1m", "exceeds its maximum");
        refuses("list:", "is not a duration");
        refuses("list:1m,,2m", "is not a duration");
        refuses("fixed:1.5h", "`1.5h` is not a wait");
        refuses("fixed:5\u{b5}s", "is not a wait");
        refuses("list:1m,\t5m", "is not a wait");
    }

    #[test]
    fn jitter_is_twenty_percent_either_way() {
        let wait = Duration::from_secs(100);
        assert_eq!(jittered(wait, 0.0), Duration::from_secs(80));
        assert_eq!(jittered(wait, 0.5), Duration::from_secs(100));
        assert!(jittered(wait, 0.999_999) < Duration::from_secs(120));
    }

    proptest! {
        #[test]
        fn no_attempt_and_no_base_overflows(
            attempt: u32, seconds in 0_u64..=30 * 86400, random in 0.0..1.0
        ) {
            for rule in ["fixed:", "exponential:", "polynomial:", "list:"] {
                let wait = unjittered(&format!("{rule}{seconds}s"), attempt).unwrap();
                prop_assert!(jittered(wait, random) <= LONGEST.mul_f64(1.2));
            }
        }
    }
}
