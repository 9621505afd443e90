//! A command in the foreground. With `shell`, the only place that starts a process, signals one and
//! waits for one.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::inherited;

/// How a command in the foreground ended.
pub(crate) enum Foreground {
    Succeeded,
    /// Its exit status, or 128 and the signal that killed it, as in a shell.
    Failed(u8),
    NotStarted(io::Error),
    /// It was started, and the system does not say what became of it.
    Unknown(io::Error),
}

fn start(words: &[String]) -> io::Result<Child> {
    Command::new(&words[0]).args(&words[1..]).env_remove(inherited::OWN_ADDRESS).spawn()
}

/// Runs a command on the terminal, pipes and process group that jobctl itself was given. Signals that
/// ask to end are left to the command: jobctl has to see how it ended. Those that jobctl was started
/// to ignore, as by `nohup`, both ignore.
pub(crate) fn foreground(words: &[String]) -> Foreground {
    let ignored: Vec<_> = inherited::ignored_signals().collect();
    let heard = [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| !ignored.contains(signal));
    // A Ctrl-C reaches the whole group by itself; what is sent to jobctl alone is passed on. While SIGCHLD is
    // ignored, as a daemon may leave it, nobody's exit status can be had.
    let signals = Signals::new(heard.chain([SIGCHLD]));
    let child = signals.and_then(|signals| Ok((signals, start(words)?)));
    let (mut signals, mut child) = match child {
        Ok(started) => started,
        Err(error) => return Foreground::NotStarted(error),
    };
    // Where the system refuses a descriptor or a thread, the command hears of no more than a terminal tells it.
    if let Ok(command) = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        let _ = thread::Builder::new().spawn(move || {
            for number in signals.forever() {
                let signal = match number {
                    SIGTERM => Signal::TERM,
                    SIGHUP => Signal::HUP,
                    _ => continue,
                };
                // It may have ended by now.
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
