//! A tick as process 1 of a container, which has the duties of an init: it reaps the orphans of all
//! jobs. Otherwise each orphan stays in the process table as a zombie.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// As process 1, starts jobctl again as a child, and reaps processes and passes signals on until
/// this child has ended. Returns its exit status; `None` in any other process, or if it can't start
/// jobctl.
///
/// The tick itself can't reap all orphans, because that would also take the exit statuses of its
/// commands. So the init is a process of its own.
pub(crate) fn run_as_init() -> Option<ExitCode> {
    if process::id() != 1 {
        return None;
    }
    let mut signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM]).ok()?;
    let mut command = Command::new(env::current_exe().ok()?);
    // In a group of its own, a Ctrl-C reaches the child only once: through this process.
    let child = command.args(env::args_os().skip(1)).process_group(0).spawn().ok()?;
    let child = Pid::from_child(&child);
    for signal in signals.forever() {
        let passed_on = match signal {
            SIGHUP => Signal::HUP,
            SIGINT => Signal::INT,
            SIGQUIT => Signal::QUIT,
            SIGTERM => Signal::TERM,
            _ => {
                // SIGCHLD: a process has ended.
                if let Some(status) = reap(child) {
                    return Some(ExitCode::from(status));
                }
                continue;
            }
        };
        // Ignore an error: jobctl may have ended.
        let _ = kill_process(child, passed_on);
    }
    None
}

/// Reaps all processes that have ended. Returns the exit status of `child`, if it is one of them.
fn reap(child: Pid) -> Option<u8> {
    let mut ended = None;
    while let Ok(Some((process, status))) = wait(WaitOptions::NOHANG) {
        if process == child {
            ended = Some(exit_status(status));
        }
    }
    ended
}

/// Returns the exit status that a shell would report: 128 and the signal if a signal killed the
/// process.
fn exit_status(status: WaitStatus) -> u8 {
    let of_signal = status.terminating_signal().map(|signal| 128 + signal);
    let status = status.exit_status().or(of_signal);
    status.and_then(|status| u8::try_from(status).ok()).unwrap_or(1)
}
