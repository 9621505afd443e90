//! Names ticks, so that one that died can be told from one that is merely elsewhere or slow.
//!
//! Only the claim right leans on this, to spare its host the wait for the right's lease. Runs do not:
//! what a dead tick started may still be running.

use std::fs;

use rand::TryRng;
use rand::rngs::SysRng;
use rustix::process::{Pid, getpid, test_kill_process};

/// A name for this tick: `HOST.PID.RANDOM`, where HOST is the kernel's id of this boot and of the
/// pid namespace, in which alone the pid means anything.
pub(super) fn new() -> String {
    // The system's own: to set another generator up takes a tenth of an idle tick's processor time.
    let random = SysRng.try_next_u64().unwrap_or_default();
    format!("{}.{}.{random:016x}", host(), getpid().as_raw_nonzero())
}

/// Whether the tick of that name is known to be gone. One of another boot of this host, or of
/// another host, is not known; a pid that was given to another process since is taken for alive.
pub(super) fn is_dead(tick: &str) -> bool {
    let mut parts = tick.split('.');
    let (Some(host), Some(pid)) = (parts.next(), parts.next().and_then(|pid| pid.parse().ok())) else { return false };
    host == self::host() && Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

fn host() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits = |text: &str| text.chars().filter(char::is_ascii_hexdigit).collect::<String>();
    format!("{}-{}", digits(&boot), digits(&namespace.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_of_this_process_is_alive_and_one_of_elsewhere_is_not_known_to_be_dead() {
        assert!(!is_dead(&new()));
        // Beyond the largest pid that Linux gives.
        assert!(is_dead(&format!("{}.{}.0", host(), 5_000_000)));
        assert!(!is_dead("elsewhere.5000000.0"));
        assert!(!is_dead("nonsense"));
    }
}
