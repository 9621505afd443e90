//! How long each job waits after its nominal time, so that not everything starts at midnight.

use std::time::Duration;

/// The share of `spread` that is this job's: the same on every host and in every version, less than
/// `spread`, in whole seconds.
pub(crate) fn spread_of(name: &str, spread: Duration) -> Duration {
    // FNV-1a, because it is a rule that stays; std's hashes may change with the compiler.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    Duration::from_secs(hash.checked_rem(spread.as_secs()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn waits(name: &str, spread: u64, seconds: u64) {
        assert_eq!(spread_of(name, Duration::from_secs(spread)), Duration::from_secs(seconds), "{name}");
    }

    #[test]
    fn a_share_never_changes() {
        waits("cleanup_nightly", 300, 229);
        waits("send_weekly_report", 300, 158);
        waits("", 3600, 437);
        waits("anything", 0, 0);
        waits("anything", 1, 0);
    }

    #[test]
    fn names_that_differ_in_a_digit_are_spread_over_the_whole_time() {
        let minute = |n: u32| spread_of(&format!("job{n}"), Duration::from_secs(300)).as_secs() / 60;
        for fifth in 0..5 {
            let share = (0..1000).filter(|n| minute(*n) == fifth).count();
            assert!((150..250).contains(&share), "{share} of 1000 in minute {fifth}");
        }
    }
}
