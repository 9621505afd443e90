//! What processes that jobctl starts must not inherit.
//!
//! jobctl itself inherits file descriptors and ignored signals, from `nohup`, supervisors or
//! background shells. A job must not inherit them: it would keep a wrapper's lock file locked, and
//! an ignored signal could not stop it. A command in the foreground inherits them. No command gets
//! the variables with jobctl's own secrets.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use signal_hook::consts::{FORBIDDEN, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU};
use signal_hook::flag;

/// The variables that may have secrets of jobctl: its address, the file that sets others, and where
/// problems are sent. Commands get DATABASE_URL and the PG* variables.
const OWN_VARIABLES: [&str; 5] = [
    "JOBCTL_DATABASE_URL",
    "JOBCTL_ENV_FILE",
    "JOBCTL_CHECK_EXEC",
    "JOBCTL_CHECK_WEBHOOK",
    "JOBCTL_INIT_EXEC",
];

/// Withholds jobctl's own secrets from a command.
pub(super) fn withhold_variables(command: &mut Command) {
    for name in OWN_VARIABLES {
        command.env_remove(name);
    }
}

/// Lets only root read this process's environment and memory. Otherwise every process of the same
/// user, such as a job, could read /proc/PID/environ.
pub(crate) fn hide_environment() {
    // Ignore an error: an old kernel may not support this.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Withholds inherited descriptors and ignored signals from later processes. Only the first call
/// does the work, and a tick that starts nothing does not call it.
pub(super) fn withhold() -> io::Result<()> {
    static WITHHELD: OnceLock<Result<(), io::ErrorKind>> = OnceLock::new();
    let withheld = WITHHELD.get_or_init(|| {
        withhold_descriptors();
        withhold_ignored_signals().map_err(|error| error.kind())
    });
    (*withheld).map_err(io::Error::from)
}

/// Makes the system close inherited descriptors in later processes, except stdin, stdout and
/// stderr.
fn withhold_descriptors() {
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    for number in descriptors.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if number > 2 {
            #[allow(
                unsafe_code,
                reason = "std has no safe function that borrows an inherited descriptor"
            )]
            // SAFETY: the listing shows that the descriptor is open. Descriptors that other threads
            // open or close meanwhile are jobctl's own, and already closed on exec.
            let inherited = unsafe { BorrowedFd::borrow_raw(number) };
            let _ = fcntl_setfd(inherited, FdFlags::CLOEXEC);
        }
    }
}

/// Catches the signals that are ignored, so that a new process gets their default action. A handler
/// sets a flag that nothing reads, so jobctl still ignores them. But an exit status can be read
/// now, which is not possible while SIGCHLD is ignored.
fn withhold_ignored_signals() -> io::Result<()> {
    // std resets SIGPIPE itself. The terminal's signals would repeat endlessly if they were caught,
    // and no job has a terminal.
    const STILL_IGNORED: [i32; 4] = [SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU];
    for signal in ignored_signals() {
        if !FORBIDDEN.contains(&signal) && !STILL_IGNORED.contains(&signal) {
            flag::register(signal, Arc::default())?;
        }
    }
    Ok(())
}

/// Returns the signals that this process ignores now.
pub(crate) fn ignored_signals() -> impl Iterator<Item = i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hexadecimal = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = hexadecimal.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    let mask = mask.unwrap_or_default();
    // The lowest bit is that of signal 1.
    (1..=31).filter(move |signal| mask >> (signal - 1) & 1 == 1)
}
