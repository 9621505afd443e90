//! A command in the foreground. With `shell`, the only place that starts, signals and awaits
//! the processes of jobs.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdout, Command, Stdio};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::sanitize;

/// How a command in the foreground ended.
pub(crate) enum Foreground {
    Succeeded(Printed),
    /// The exit status, or 128 and the signal that killed the command, as in a shell.
    Failed(u8),
    NotStarted(io::Error),
    /// The command started, and the system does not report how it ended.
    Unknown(io::Error),
}

/// What a command wrote to its stdout.
#[derive(Default)]
pub(crate) struct Printed {
    /// `None`: it is longer than the limit.
    pub(crate) kept: Option<Vec<u8>>,
    /// Why jobctl could not pass all of it on. A reader that has closed its pipe needs no more.
    pub(crate) unwritten: Option<io::Error>,
}

/// Runs a command in jobctl's own process group, with its stdin and stderr. Passes stdout on, and
/// also returns it if it has at most `limit` bytes. A signal ends only the command, because jobctl
/// must stay to report how the command ended. Both ignore the signals that jobctl inherited as
/// ignored, as under `nohup`.
pub(crate) fn foreground(words: &[String], limit: usize) -> Foreground {
    let ignored: Vec<_> = sanitize::ignored_signals().collect();
    let caught =
        [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| !ignored.contains(signal));
    // A Ctrl-C reaches the whole group. SIGTERM and SIGHUP may reach only jobctl, so they are
    // passed on. SIGCHLD must not stay ignored, as some daemons leave it: no exit status could be
    // read.
    let signals = Signals::new(caught.chain([SIGCHLD]));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdout(Stdio::piped());
    sanitize::withhold_variables(&mut command);
    let (mut signals, mut child) = match signals.and_then(|caught| Ok((caught, command.spawn()?))) {
        Ok(started) => started,
        Err(error) => return Foreground::NotStarted(error),
    };
    // If the system refuses a descriptor or a thread, no signal is passed on.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
    if let Some(command) = process.as_ref().and_then(|process| process.try_clone().ok()) {
        let _ = thread::Builder::new().spawn(move || {
            for number in signals.forever() {
                let signal = match number {
                    SIGTERM => Signal::TERM,
                    SIGHUP => Signal::HUP,
                    _ => continue,
                };
                // Ignore an error: the command may have ended.
                let _ = pidfd_send_signal(&command, signal);
            }
        });
    }
    let printed = child.stdout.take().map(|stdout| pass_on(stdout, process.as_ref(), limit));
    match child.wait() {
        Ok(status) if status.success() => Foreground::Succeeded(printed.unwrap_or_default()),
        Ok(status) => {
            let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            Foreground::Failed(status.and_then(|status| u8::try_from(status).ok()).unwrap_or(1))
        }
        Err(error) => Foreground::Unknown(error),
    }
}

/// Writes what the command prints to jobctl's own stdout at once, until the command has ended or
/// has closed its stdout. A process in the background may keep it open for longer.
fn pass_on(mut stdout: ChildStdout, process: Option<&OwnedFd>, limit: usize) -> Printed {
    let mut printed = Printed { kept: Some(Vec::new()), unwritten: None };
    let mut chunk = [0; 8192];
    loop {
        let mut events = vec![PollFd::new(&stdout, PollFlags::IN)];
        events.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
        match poll(&mut events, None) {
            Err(Errno::INTR) => continue,
            Ok(_) if events[0].revents().is_empty() => return printed,
            _ => {}
        }
        let length = match stdout.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => return printed,
            Ok(length) => length,
        };
        // A closed stdout does not stop the command.
        let mut own = io::stdout().lock();
        let written = own.write_all(&chunk[..length]).and_then(|()| own.flush());
        let failure = written.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        printed.unwritten = printed.unwritten.or(failure);
        printed.kept = printed.kept.filter(|kept| kept.len() + length <= limit);
        if let Some(kept) = &mut printed.kept {
            kept.extend_from_slice(&chunk[..length]);
        }
    }
}
