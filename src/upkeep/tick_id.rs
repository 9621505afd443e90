//! Names ticks, so that a tick can see that another tick of this host has crashed.
//!
//! Then the next tick need not wait until the claim right of the crashed tick expires. It must wait
//! for the leases of runs, because the processes that the crashed tick started may still run.

use std::fs;

use rand::TryRng;
use rand::rngs::SysRng;
use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

/// Returns a name for this tick: `HOST.PID.RANDOM`. HOST identifies this boot of the kernel and the
/// pid namespace; a pid has no meaning outside of them.
pub(crate) fn new() -> String {
    // The system's generator: setting up another one would take 10 % of an idle tick's CPU time.
    let random = SysRng.try_next_u64().unwrap_or_default();
    format!("{}.{}.{random:016x}", host(), getpid().as_raw_nonzero())
}

/// Returns whether the tick of that name was a process of this host, and no process has its pid any
/// more. Nothing is known about a tick of another host or boot. If another process has the pid now,
/// the tick counts as alive.
pub(super) fn is_dead(tick: &str) -> bool {
    let mut parts = tick.split('.');
    let is_here = parts.next() == Some(&host());
    let pid = parts.next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    is_here && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Returns a name for this boot of the kernel and the pid namespace of this process.
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
    fn each_tick_has_a_name_of_its_own() {
        let names = [new(), new()];
        assert_ne!(names[0], names[1]);
        // A boot has 32 hexadecimal digits.
        assert!(host().split_once('-').is_some_and(|(boot, _)| boot.len() == 32), "{}", host());
        let begin = format!("{}.{}.", host(), getpid().as_raw_nonzero());
        assert!(names.iter().all(|name| name.starts_with(&begin)), "{names:?}");
    }

    #[test]
    fn only_a_missing_process_of_this_host_is_a_dead_tick() {
        assert!(!is_dead(&new()));
        // Linux assigns no pid as large as this.
        assert!(is_dead(&format!("{}.{}.0", host(), 5_000_000)));
        assert!(!is_dead("elsewhere.5000000.0"));
        assert!(!is_dead("nonsense"));
    }
}
