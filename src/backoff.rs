//! How long a failed run waits before its next attempt. Pure: the random number is an argument.

use std::time::Duration;

use crate::duration;

/// What a run waits by if nobody said anything else; the columns have the same default.
pub(crate) const DEFAULT: &str = "exponential:1m..30m";
/// No wait is longer, whatever a rule yields, so that no interval overflows.
const LONGEST: Duration = Duration::from_secs(30 * 86400);
/// The cap of `exponential:BASE` without one.
const DEFAULT_CAP: Duration = Duration::from_secs(3600);
/// What a wait is multiplied by lies this far around 1, so that runs that failed together do not
/// come back together.
const JITTER: f64 = 0.2;

/// The rule of a run, as its `backoff` column holds it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Backoff {
    /// `fixed:1m`: always the same.
    Fixed(Duration),
    /// `exponential:1m..30m`: doubles from the base up to the cap.
    Exponential { base: Duration, cap: Duration },
    /// `polynomial:10s`: the square of the attempt, times that.
    Polynomial(Duration),
    /// `list:1m,5m,30m`: one after the other; the last repeats.
    List(Vec<Duration>),
}

impl Backoff {
    /// # Errors
    /// Names the forms, or what is wrong with a duration in one.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // No more than jobctl.is_backoff understands: whole numbers, and no white space but spaces.
        let known = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || c == ' ';
        let wait = |text: &str| match text.chars().all(known) {
            true => duration::parse_within(text.trim(), Duration::ZERO, LONGEST),
            false => Err(format!("`{text}` is no wait; write 30s, 5m, 2h, 1d or 1h30m")),
        };
        match text.split_once(':') {
            Some(("fixed", every)) => wait(every).map(Self::Fixed),
            Some(("polynomial", unit)) => wait(unit).map(Self::Polynomial),
            Some(("list", waits)) => waits.split(',').map(wait).collect::<Result<_, _>>().map(Self::List),
            Some(("exponential", range)) => {
                let (base, cap) = match range.split_once("..") {
                    Some((base, cap)) => (wait(base)?, wait(cap)?),
                    None => wait(range).map(|base| (base, base.max(DEFAULT_CAP)))?,
                };
                if base > cap {
                    return Err(format!("`{text}` starts above its cap"));
                }
                Ok(Self::Exponential { base, cap })
            }
            _ => Err(format!(
                "`{text}` is not a backoff; write fixed:1m, exponential:1m..30m, polynomial:10s or list:1m,5m,30m"
            )),
        }
    }

    /// The wait after the given attempt (from 1), without jitter.
    pub(crate) fn after(&self, attempt: u32) -> Duration {
        let attempt = attempt.max(1);
        let wait = match self {
            Self::Fixed(every) => *every,
            Self::Exponential { base, cap } => {
                let factor = 1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX);
                base.saturating_mul(factor).min(*cap)
            }
            Self::Polynomial(unit) => unit.saturating_mul(attempt.saturating_mul(attempt)),
            Self::List(waits) => {
                let index = usize::try_from(attempt - 1).unwrap_or(usize::MAX).min(waits.len() - 1);
                waits[index]
            }
        };
        wait.min(LONGEST)
    }
}

/// The wait as it is used: `random` in 0..1 spreads it evenly by +-20 %.
pub(crate) fn jittered(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(1.0 - JITTER + 2.0 * JITTER * random)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn waits(text: &str, expected: &[&str]) {
        let backoff = Backoff::parse(text).unwrap();
        let waits: Vec<_> = (1..).take(expected.len()).map(|attempt| duration::show(backoff.after(attempt))).collect();
        assert_eq!(waits, expected, "{text}");
    }

    #[track_caller]
    fn refuses(text: &str, why: &str) {
        let refused = Backoff::parse(text).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }

    #[test]
    fn each_rule_yields_the_table_in_the_readme() {
        waits("fixed:1m", &["60s", "60s", "60s"]);
        waits("exponential:1m..30m", &["60s", "2m", "4m", "8m", "16m", "30m", "30m"]);
        waits("exponential:1m", &["60s", "2m", "4m", "8m", "16m", "32m", "1h", "1h"]);
        waits("polynomial:10s", &["10s", "40s", "90s", "2m 40s"]);
        waits("list:1m,5m,30m,2h", &["60s", "5m", "30m", "2h", "2h"]);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        refuses("", "write fixed:1m");
        refuses("1m", "write fixed:1m");
        refuses("linear:1m", "write fixed:1m");
        refuses("fixed:", "is not a duration");
        refuses("fixed:5", "is not a duration");
        refuses("fixed:31d", "out of range");
        refuses("exponential:2h..1m", "above its cap");
        refuses("list:", "is not a duration");
        refuses("list:1m,,2m", "is not a duration");
        refuses("fixed:1.5h", "`1.5h` is no wait");
        refuses("fixed:5\u{b5}s", "is no wait");
        refuses("list:1m,\t5m", "is no wait");
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
        fn no_attempt_and_no_base_overflows(attempt: u32, seconds in 0_u64..=30 * 86400, random in 0.0..1.0) {
            for rule in ["fixed:", "exponential:", "polynomial:", "list:"] {
                let backoff = Backoff::parse(&format!("{rule}{seconds}s")).unwrap();
                prop_assert!(jittered(backoff.after(attempt), random) <= LONGEST.mul_f64(1.2));
            }
        }
    }
}
