//! A command in the foreground. With `shell`, the only place that starts, signals and awaits
//! the processes of jobs.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::sanitize;

pub(crate) enum Foreground {
    Succeeded,
    /// The exit status, or 128 and the signal that killed the command, as in a shell.
    Failed(u8),
    NotStarted(io::Error),
    /// The command started, and the system does not report how it ended.
    Unknown(io::Error),
}

/// Runs a command on jobctl's own terminal, pipes and process group. A signal ends only the
/// command, because jobctl must stay to report how the command ended. Both ignore the signals
/// that jobctl inherited as ignored, as under `nohup`.
pub(crate) fn foreground(words: &[String]) -> Foreground {
    let ignored: Vec<_> = sanitize::ignored_signals().collect();
    let caught =
        [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| !ignored.contains(signal));
    // A Ctrl-C reaches the whole group. SIGTERM and SIGHUP may reach only jobctl, so they are
    // passed on. SIGCHLD must not stay ignored, as some daemons leave it: no exit status could be
    // read.
    let signals = Signals::new(caught.chain([SIGCHLD]));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env_remove(sanitize::OWN_ADDRESS);
    let (mut signals, mut child) = match signals.and_then(|caught| Ok((caught, command.spawn()?))) {
        Ok(started) => started,
        Err(error) => return Foreground::NotStarted(error),
    };
    // If the system refuses a descriptor or a thread, no signal is passed on.
    if let Ok(command) = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        let _ = thread::Builder::new().spawn(move || {
            for number in signals.forever() {
                let signal = match number {
                    SIGTERM => Signal::TERM,
                    SIGHUP => Signal::HUP,
                    _ => continue,
                };
                // The command may have ended.
                let _ = pidfd_send_signal(&command, signal);
            }
        });
    }
    match child.wait() {
        Ok(status) if status.success() => Foreground::Succeeded,
        Ok(status) => {
            let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            Foreground::Failed(status.and_then(|status| u8::try_from(status).ok()).unwrap_or(1))
        }
        Err(error) => Foreground::Unknown(error),
    }
}
