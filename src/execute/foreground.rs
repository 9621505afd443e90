//! Runs a command in the foreground: in jobctl's own process group, with its terminal.

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
    /// The exit status was 0.
    Succeeded(Printed),
    /// The exit status, or 128 and the signal that killed the command, as in a shell.
    Failed(u8),
    /// The command did not start.
    NotStarted(io::Error),
    /// The command started, but the system does not report how it ended.
    Unknown(io::Error),
}

/// What a command wrote to its stdout.
#[derive(Default)]
pub(crate) struct Printed {
    /// All of it; `None`: it is longer than the limit.
    pub(crate) kept: Option<Vec<u8>>,
    /// Why jobctl could not pass all of it on. That a reader has closed its pipe does not count.
    pub(crate) unwritten: Option<io::Error>,
}

/// Runs a command in jobctl's own process group, with jobctl's stdin and stderr, and returns how it
/// ended. Passes its stdout on, and also returns that if it has at most `limit` bytes.
///
/// A signal ends only the command, because jobctl must stay to report how the command ended. Both
/// ignore the signals that jobctl inherited as ignored, as under `nohup`.
pub(crate) fn foreground(words: &[String], limit: usize) -> Foreground {
    let ignored: Vec<_> = sanitize::ignored_signals().collect();
    let caught =
        [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| !ignored.contains(signal));
    // Also catch SIGCHLD, which some daemons leave ignored: while it is ignored, no exit status can
    // be read.
    let caught = Signals::new(caught.chain([SIGCHLD]));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdout(Stdio::piped());
    sanitize::withhold_variables(&mut command);
    let (signals, mut child) = match caught.and_then(|signals| Ok((signals, command.spawn()?))) {
        Ok(started) => started,
        Err(error) => return Foreground::NotStarted(error),
    };
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
    if let Some(process) = process.as_ref().and_then(|process| process.try_clone().ok()) {
        // If the system refuses a descriptor or this thread, no signal is passed on.
        let _ = thread::Builder::new().spawn(move || pass_on_signals(signals, &process));
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

/// Passes SIGTERM and SIGHUP on, which may reach only jobctl. The terminal sends a Ctrl-C to the
/// whole group itself.
fn pass_on_signals(mut signals: Signals, process: &OwnedFd) {
    for number in signals.forever() {
        let signal = match number {
            SIGTERM => Signal::TERM,
            SIGHUP => Signal::HUP,
            _ => continue,
        };
        // Ignore an error: the command may have ended.
        let _ = pidfd_send_signal(process, signal);
    }
}

/// Writes what the command prints to jobctl's own stdout at once, until the command has ended or
/// has closed its stdout. Does not wait for a process in the background that keeps it open.
fn pass_on(mut stdout: ChildStdout, process: Option<&OwnedFd>, limit: usize) -> Printed {
    let mut printed = Printed { kept: Some(Vec::new()), unwritten: None };
    let mut chunk = [0; 8192];
    loop {
        let mut events = vec![PollFd::new(&stdout, PollFlags::IN)];
        events.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
        match poll(&mut events, None) {
            Err(Errno::INTR) => continue,
            // Nothing is left to read, so the event is the end of the command.
            Ok(_) if events[0].revents().is_empty() => return printed,
            _ => {}
        }
        let length = match stdout.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => return printed,
            Ok(length) => length,
        };
        let mut own = io::stdout().lock();
        let written = own.write_all(&chunk[..length]).and_then(|()| own.flush());
        // A reader that has closed its pipe does not stop the command. Report the first other
        // error.
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            printed.unwritten.get_or_insert(error);
        }
        match &mut printed.kept {
            Some(kept) if kept.len() + length <= limit => kept.extend_from_slice(&chunk[..length]),
            _ => printed.kept = None,
        }
    }
}
