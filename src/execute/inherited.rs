//! File descriptors and ignored signals that jobctl inherited. A job must not inherit them: it
//! would keep a wrapper's lock file locked, and it could not be stopped by an ignored signal.
//! `nohup`, supervisors and background shells leave such things. A command in the foreground keeps
//! them. Neither of them gets JOBCTL_DATABASE_URL.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use signal_hook::consts::{FORBIDDEN, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU};
use signal_hook::flag;

/// The variable with jobctl's own address and perhaps its password. Commands get DATABASE_URL and
/// the PG* variables.
pub(super) const OWN_ADDRESS: &str = "JOBCTL_DATABASE_URL";

/// Lets only root read this process's environment and memory. Otherwise every process of the same
/// user, such as a job, could read /proc/PID/environ.
pub(crate) fn hide_environment() {
    // An error is ignored: an old kernel may not support this.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Closes inherited descriptors to later processes and resets ignored signals for them. The first
/// call does the work, so a tick that starts nothing pays nothing.
///
/// # Errors
/// The system refuses a handler.
pub(super) fn withhold() -> io::Result<()> {
    static WITHHELD: OnceLock<Result<(), io::ErrorKind>> = OnceLock::new();
    let withheld = WITHHELD.get_or_init(|| {
        withhold_descriptors();
        withhold_ignored_signals().map_err(|error| error.kind())
    });
    (*withheld).map_err(io::Error::from)
}

fn withhold_descriptors() {
    // What jobctl opens itself is closed on exec from its first moment.
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|number| *number > 2)
        {
            #[allow(unsafe_code, reason = "std knows no other way to a descriptor that it did not open")]
            // SAFETY: the listing says that it is open. What another thread closes or opens meanwhile is jobctl's
            // own, and closed on exec as it is.
            let inherited = unsafe { BorrowedFd::borrow_raw(number) };
            let _ = fcntl_setfd(inherited, FdFlags::CLOEXEC);
        }
    }
}

/// Catches what is ignored, and does nothing then: jobctl is as deaf as before, but a caught signal
/// is back at its default in every process that is started. Nor can anybody's exit status be had
/// while SIGCHLD is ignored.
fn withhold_ignored_signals() -> io::Result<()> {
    for signal in ignored_signals() {
        // std puts SIGPIPE back itself. The terminal's come again and again where they are caught,
        // and no job has a terminal.
        if !FORBIDDEN.contains(&signal) && ![SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal) {
            flag::register(signal, Arc::new(AtomicBool::new(false)))?;
        }
    }
    Ok(())
}

/// Those that are ignored now.
pub(super) fn ignored_signals() -> impl Iterator<Item = i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    (1..=31).filter(move |signal| mask >> (signal - 1) & 1 == 1)
}
