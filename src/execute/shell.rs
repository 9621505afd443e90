//! The command of a job. With `foreground`, the only place that starts a process, signals one and
//! waits for one.
//!
//! Each command leads a process group of its own, so that what it started can be ended with it and
//! a Ctrl-C meant for jobctl does not reach it. One thread looks after one command: it sleeps on the
//! pipes, on the process itself (a pidfd) and on its `Stop`, so it needs no signal handler and can't
//! be held up by a grandchild that keeps a pipe open.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::output::{self, Capture};
use super::stop::Stop;
use super::{family, inherited};
use crate::action::{self, Shell};
use crate::model::{Ended, Failure, Identity, Outcome, Why};

/// As for cron and for system(3), whatever the PATH is; and nobody has to look for it.
const SHELL: &str = "/bin/sh";
/// Between SIGTERM and SIGKILL.
pub(super) const KILL_GRACE: Duration = Duration::from_secs(5);
/// What processes that a command left behind get to end by themselves and let go of its pipes.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// After SIGKILL; a process can outlive it only inside the kernel.
const DEATH_PATIENCE: Duration = Duration::from_secs(5);
/// How often to check whether a process group still has processes; there is no event to wait for.
const GROUP_POLL: Duration = Duration::from_millis(10);

/// Runs the command until it exits, times out or is stopped; nothing of its group is left then.
pub(super) fn run(shell: &Shell, identity: &Identity, timeout: Option<Duration>, stop: &Stop) -> Ended {
    let (bell, child) = match stop.bell().and_then(|bell| Ok((bell, spawn(shell, identity)?))) {
        Ok(started) => started,
        Err(error) => return not_started(shell, &error),
    };
    match Process::new(child, &shell.stdin, stop, bell) {
        Ok(mut process) => process.supervise(timeout),
        // It may have begun.
        Err(error) => Ended::unstarted(Failure::Spawn(error.to_string())),
    }
}

fn spawn(shell: &Shell, identity: &Identity) -> io::Result<Child> {
    inherited::withhold()?;
    let mut command = match &shell.command {
        action::Command::Script(script) => {
            let mut command = Command::new(SHELL);
            command.arg0("sh").arg("-c").arg(script);
            command
        }
        action::Command::Arguments(words) => {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        }
    };
    if let Some(directory) = &shell.cwd {
        command.current_dir(directory);
    }
    command
        .env_remove(inherited::OWN_ADDRESS)
        .envs(&shell.env)
        .env("JOBCTL_RUN_ID", identity.run_id.to_string())
        .env("JOBCTL_JOB", &identity.job)
        .env("JOBCTL_ATTEMPT", identity.attempt.to_string())
        .env("JOBCTL_MAX_ATTEMPTS", identity.max_attempts.to_string())
        .env("JOBCTL_IDEMPOTENCY_KEY", &identity.idempotency_key)
        .process_group(0)
        .stdin(if shell.stdin.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    match &identity.scheduled_for {
        Some(nominal) => command.env("JOBCTL_SCHEDULED_FOR", nominal),
        None => command.env_remove("JOBCTL_SCHEDULED_FOR"),
    };
    command.spawn()
}

/// The kernel's word for a failed start, made fit for a person who sees only this line.
fn not_started(shell: &Shell, error: &io::Error) -> Ended {
    if let Some(directory) = shell.cwd.as_deref().filter(|directory| !Path::new(directory).is_dir()) {
        let note = Some(format!("the directory is `{}`", directory.escape_debug()));
        return Ended { note, ..Ended::unstarted(Failure::Spawn("no such working directory".to_owned())) };
    }
    let program = action::program(match &shell.command {
        action::Command::Script(_) => SHELL,
        action::Command::Arguments(words) => &words[0],
    });
    Ended::unstarted(match error.kind() {
        _ if super::is_exhaustion(error) => Failure::Exhausted(error.to_string()),
        ErrorKind::NotFound => Failure::Spawn(format!("no such program{program}")),
        ErrorKind::PermissionDenied => Failure::Spawn(format!("program{program} is not executable")),
        ErrorKind::ArgumentListTooLong => Failure::Unstartable("argument list too long".to_owned()),
        _ => Failure::Spawn(error.to_string()),
    })
}

/// A started command and the ends of its pipes that are still open.
struct Process<'a> {
    child: Child,
    group: Pid,
    /// Pidfds of descendants outside of the group, from when the end began: `timeout` of the shell leads a group of
    /// its own. Who has a session of its own has left for good, as a daemon does.
    strays: Vec<OwnedFd>,
    /// Readable once the child has exited. It stays a zombie until it is waited for, so neither its
    /// pid nor its group's id can mean another process meanwhile.
    exited: OwnedFd,
    stdin: &'a [u8],
    stdout: Capture,
    stderr: Capture,
    stop: &'a Stop,
    bell: BorrowedFd<'a>,
    /// Its end is under way: the stop's descriptor, once it is readable, would end every sleep at once.
    ending: bool,
}

/// The processes that remain in a command's group after the command has ended.
#[derive(Clone, Copy)]
enum Leftover {
    None,
    /// Processes that were ended.
    Ended,
    /// Processes that could not be ended: they are stuck, or jobctl may not signal them.
    Alive,
}

/// Why the command was told to end.
enum Reason {
    Timeout(Duration),
    Stopped(Why),
}

impl<'a> Process<'a> {
    fn new(mut child: Child, stdin: &'a str, stop: &'a Stop, bell: BorrowedFd<'a>) -> io::Result<Self> {
        let group = Pid::from_child(&child);
        let prepared = pidfd_open(group, PidfdFlags::empty()).map_err(io::Error::from).and_then(|exited| {
            let ends = [
                child.stdin.as_ref().map(AsFd::as_fd),
                child.stdout.as_ref().map(AsFd::as_fd),
                child.stderr.as_ref().map(AsFd::as_fd),
            ];
            for end in ends.into_iter().flatten() {
                fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
            }
            Ok(exited)
        });
        let exited = prepared.inspect_err(|_| {
            // Out of descriptors: a command that can't be looked after must not go on.
            signal(group, Signal::KILL);
            let _ = child.wait();
        })?;
        Ok(Self {
            child,
            group,
            strays: Vec::new(),
            exited,
            stdin: stdin.as_bytes(),
            stdout: Capture::default(),
            stderr: Capture::default(),
            stop,
            bell,
            ending: false,
        })
    }

    fn supervise(&mut self, timeout: Option<Duration>) -> Ended {
        let started = Instant::now();
        let mut reason = None;
        while reason.is_none() && !self.wait(self.next_look(started, timeout)) {
            let timed_out = || timeout.filter(|limit| started.elapsed() >= *limit).map(Reason::Timeout);
            reason = self.stop.asked().map(Reason::Stopped).or_else(timed_out);
        }
        // What has ended by itself meanwhile is not ended once more.
        reason = reason.filter(|_| !self.wait(Duration::ZERO));
        let status = if reason.is_some() { self.end() } else { self.child.wait().ok() };
        // The group got SIGKILL as well, and it did not end the process.
        let leftover = if status.is_some() { self.sweep() } else { Leftover::Alive };
        self.report(status, reason, leftover)
    }

    /// How long to sleep at most: to the timeout, or until the stop runs out unprolonged.
    fn next_look(&self, started: Instant, timeout: Option<Duration>) -> Duration {
        let stop = self.stop.remaining();
        timeout.map_or(stop, |limit| stop.min(limit.saturating_sub(started.elapsed())))
    }

    /// Ends the group: SIGTERM, which a stopped process sees only after SIGCONT, and SIGKILL when
    /// the command has not exited in time. `None`: it is stuck in the kernel and stays behind.
    fn end(&mut self) -> Option<ExitStatus> {
        self.ending = true;
        // Now: whose parent has ended is nobody's descendant any more.
        self.strays = family::strays(self.group);
        self.tell(Signal::TERM);
        self.tell(Signal::CONT);
        let told = Instant::now();
        while !self.stop.hurried() && told.elapsed() < self.stop.grace(KILL_GRACE) {
            if self.wait(5 * GROUP_POLL) {
                return self.child.wait().ok();
            }
        }
        self.tell(Signal::KILL);
        let killed = Instant::now();
        while killed.elapsed() < DEATH_PATIENCE {
            if self.wait(GROUP_POLL) {
                return self.child.wait().ok();
            }
        }
        None
    }

    /// Ends the remaining processes of the command's group. The command itself has been waited for,
    /// so the group's id is valid only while the group has a process.
    fn sweep(&mut self) -> Leftover {
        self.drain();
        if !self.has_living() {
            return Leftover::None;
        }
        self.tell(Signal::TERM);
        self.tell(Signal::CONT);
        let told = Instant::now();
        while self.has_living() && told.elapsed() < LEFTOVER_GRACE + DEATH_PATIENCE {
            if told.elapsed() > self.stop.grace(LEFTOVER_GRACE) || self.stop.hurried() {
                self.tell(Signal::KILL);
            }
            std::thread::sleep(GROUP_POLL);
            self.drain();
        }
        if self.has_living() { Leftover::Alive } else { Leftover::Ended }
    }

    fn has_living(&self) -> bool {
        let is_alive = |stray: &OwnedFd| {
            let mut exited = [PollFd::new(stray, PollFlags::IN)];
            poll(&mut exited, Some(&timespec(Duration::ZERO))) == Ok(0)
        };
        family::is_alive(self.group) || self.strays.iter().any(is_alive)
    }

    fn tell(&self, what: Signal) {
        signal(self.group, what);
        for stray in &self.strays {
            let _ = pidfd_send_signal(stray, what);
        }
    }

    /// Moves data until the child has exited (`true`), the stop is rung or the time is up. Nobody
    /// is waited for who merely keeps a pipe open.
    fn wait(&mut self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        loop {
            let ready = {
                let never = PollFlags::empty();
                let stop = PollFd::from_borrowed_fd(self.bell, if self.ending { never } else { PollFlags::IN });
                let exited = PollFd::new(&self.exited, PollFlags::IN);
                let mut watched = vec![exited, stop];
                watched.extend(self.open_ends());
                let left = until.saturating_duration_since(Instant::now());
                // A failed poll is an interrupted one; looking again does no harm.
                let _ = poll(&mut watched, Some(&timespec(left)));
                [!watched[0].revents().is_empty(), !watched[1].revents().is_empty()]
            };
            self.drain();
            if ready[0] {
                return true;
            }
            if ready[1] || Instant::now() >= until {
                return false;
            }
        }
    }

    fn open_ends(&self) -> impl Iterator<Item = PollFd<'_>> {
        fn end<'a>(fd: Option<BorrowedFd<'a>>, flags: PollFlags) -> Option<PollFd<'a>> {
            fd.map(|fd| PollFd::from_borrowed_fd(fd, flags))
        }
        [
            end(self.child.stdin.as_ref().map(AsFd::as_fd), PollFlags::OUT),
            end(self.child.stdout.as_ref().map(AsFd::as_fd), PollFlags::IN),
            end(self.child.stderr.as_ref().map(AsFd::as_fd), PollFlags::IN),
        ]
        .into_iter()
        .flatten()
    }

    /// Moves what can be moved without waiting, and closes the ends that are done with.
    fn drain(&mut self) {
        feed(&mut self.child.stdin, &mut self.stdin);
        collect(&mut self.child.stdout, &mut self.stdout);
        collect(&mut self.child.stderr, &mut self.stderr);
    }

    fn report(&mut self, status: Option<ExitStatus>, reason: Option<Reason>, leftover: Leftover) -> Ended {
        let note = match (status, leftover) {
            (None, _) => Some("the command could not be killed and may still run"),
            (_, Leftover::Alive) => Some("processes of the command could not be ended and may still run"),
            // After a stop, processes may still be ending; do not report them as left behind.
            (_, Leftover::Ended) if reason.is_none() => Some("the command left processes behind, which were ended"),
            (_, Leftover::Ended | Leftover::None) => None,
        };
        let (exit_code, signal) = status.map_or((None, None), |status| (status.code(), status.signal()));
        let outcome = match (reason, exit_code, signal) {
            (Some(Reason::Stopped(why)), ..) => Outcome::Stopped(why),
            (Some(Reason::Timeout(limit)), ..) => Outcome::Failed(Failure::Timeout(limit)),
            (None, Some(0), _) => Outcome::Succeeded,
            (None, Some(code), _) => Outcome::Failed(Failure::ExitCode(code)),
            (None, None, signal) => Outcome::Failed(Failure::Signal(signal.unwrap_or(0))),
        };
        let output = output::join(std::mem::take(&mut self.stdout), std::mem::take(&mut self.stderr));
        Ended { outcome, exit_code, signal, http_status: None, output, note: note.map(str::to_owned) }
    }
}

fn feed(pipe: &mut Option<std::process::ChildStdin>, rest: &mut &[u8]) {
    while let Some(open) = pipe {
        match if rest.is_empty() { Ok(0) } else { open.write(rest) } {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(written) if written > 0 => *rest = &rest[written..],
            // All is written, or the command does not want the rest.
            _ => *pipe = None,
        }
    }
}

fn collect<R: Read>(pipe: &mut Option<R>, capture: &mut Capture) {
    let mut chunk = [0; 16 * 1024];
    // Bounded, so that one stream that never ends can't keep the others and the clock waiting.
    for _ in 0..16 {
        let Some(open) = pipe else { return };
        match open.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(read) if read > 0 => capture.push(&chunk[..read]),
            _ => *pipe = None,
        }
    }
}

/// Nobody left to signal is what was wanted.
fn signal(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

fn timespec(duration: Duration) -> Timespec {
    // Rounded up, or the last wait before a deadline would spin.
    let duration = duration + Duration::from_micros(999);
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;

    /// What comes between the last look before the start and the first one after it.
    #[test]
    fn a_stop_that_came_while_the_command_started_ends_it_at_once() {
        let Ok(Action::Shell(shell)) = Action::parse("shell", r#"{"command": ["sleep", "60"]}"#).unwrap() else {
            unreachable!("a command")
        };
        let identity = Identity {
            run_id: 1,
            job: "shell".to_owned(),
            attempt: 1,
            max_attempts: 1,
            idempotency_key: "k".to_owned(),
            scheduled_for: None,
        };
        let started = Instant::now();
        let stop = Stop::new(started + Duration::from_secs(60), Duration::ZERO);
        stop.ask(Why::Interrupted);
        let ended = run(&shell, &identity, None, &stop);
        assert!(matches!(ended.outcome, Outcome::Stopped(Why::Interrupted)), "{ended:?}");
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    }
}
