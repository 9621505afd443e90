//! Runs the command of a job.
//!
//! Each command leads its own process group, so that its children can be stopped with it and a
//! Ctrl-C for jobctl does not reach it. One thread supervises one command. It sleeps on the pipes
//! and on the process itself (a pidfd), and checks the `Stop` after each slice of time. So it needs
//! no signal handler, and a grandchild that keeps a pipe open can't delay it.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::output::{self, Capture};
use super::stop::{SLICE, Stop};
use super::{process_table, sanitize};
use crate::job::action::{Shell, ShellCommand};
use crate::job::attempt::{AttemptIdentity, AttemptResult, Outcome, StopReason};
use crate::job::failure::Failure;

/// The shell that cron and system(3) use, too, whatever PATH contains.
const SHELL: &str = "/bin/sh";
/// The time between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(5);
/// The time between SIGTERM and SIGKILL for processes that a command left behind.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// How long to wait after SIGKILL. Only a process that is stuck in the kernel takes longer.
const DEATH_TIMEOUT: Duration = Duration::from_secs(5);
/// How often to check whether a process group still has processes; there is no event to wait for.
const GROUP_POLL: Duration = Duration::from_millis(10);

/// Runs a command until it exits, times out or is stopped, and returns the result. At the end, ends
/// all processes of the command's group.
pub(super) fn run(
    shell: &Shell,
    identity: &AttemptIdentity,
    timeout: Option<Duration>,
    stop: &Stop,
) -> AttemptResult {
    let child = match spawn(shell, identity) {
        Ok(child) => child,
        Err(error) => return not_started(shell, &error),
    };
    let process = match ShellProcess::new(child, &shell.stdin, stop) {
        Ok(process) => process,
        // Not `Exhausted`, which would not count the attempt: the command was killed, but may
        // already have had effects.
        Err(error) => return AttemptResult::unstarted(Failure::Spawn(error.to_string())),
    };
    let mut result = process.supervise(timeout);
    // A shell exits with 127 if it has not found a program, so note where it looked.
    if result.exit_code == Some(127) {
        result.note.get_or_insert_with(|| super::search_path(shell.env.get("PATH")));
    }
    result
}

/// Starts the command as the leader of a new process group. Variables tell it its attempt.
fn spawn(shell: &Shell, identity: &AttemptIdentity) -> io::Result<Child> {
    sanitize::withhold()?;
    let mut command = Command::new(program(shell));
    match &shell.command {
        ShellCommand::Script(script) => command.arg0("sh").args(["-c", script]),
        ShellCommand::Arguments(words) => command.args(&words[1..]),
    };
    if let Some(directory) = &shell.cwd {
        command.current_dir(directory);
    }
    sanitize::withhold_variables(&mut command);
    command
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
    // Linux starts no process with a variable of 128 KiB, so leave out a list that long.
    let after = identity.after.as_ref().filter(|ids| ids.len() < 100_000);
    // Without a value, remove the variable: jobctl may have inherited one of another run.
    for (name, value) in [
        ("JOBCTL_SCHEDULED_FOR", identity.scheduled_for.as_ref()),
        ("JOBCTL_AFTER", after),
        ("TRACEPARENT", identity.traceparent.as_ref()),
    ] {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.spawn()
}

/// Returns the program that is started: the shell, or the first word of the command.
fn program(shell: &Shell) -> &str {
    match &shell.command {
        ShellCommand::Script(_) => SHELL,
        ShellCommand::Arguments(words) => &words[0],
    }
}

/// Returns the result for a command that did not start. Its failure and its note say why in words
/// that are clear without their context.
fn not_started(shell: &Shell, error: &io::Error) -> AttemptResult {
    if let Some(directory) = shell.cwd.as_deref().filter(|directory| !Path::new(directory).is_dir())
    {
        let failure = Failure::Spawn("no such working directory".to_owned());
        let note = Some(format!("the directory is `{}`", directory.escape_debug()));
        return AttemptResult { note, ..AttemptResult::unstarted(failure) };
    }
    let (why, note) = super::not_started(
        program(shell),
        shell.cwd.as_deref().map(Path::new),
        shell.env.get("PATH"),
        error,
    );
    let failure = if super::is_exhaustion(error) {
        Failure::Exhausted(why)
    } else if error.kind() == ErrorKind::ArgumentListTooLong {
        Failure::Unstartable("argument list too long".to_owned())
    } else {
        Failure::Spawn(why)
    };
    AttemptResult { note, ..AttemptResult::unstarted(failure) }
}

/// A started command and the open ends of its pipes.
struct ShellProcess<'a> {
    child: Child,
    /// The process group, whose id is the pid of the child.
    group: Pid,
    /// Pidfds of descendants in other groups of the session, found when the end begins. For
    /// example, the program `timeout` moves to a group of its own. A process with a session of its
    /// own is left alone, because it has detached itself, as a daemon does.
    strays: Vec<OwnedFd>,
    /// The pidfd of the child, which is readable once the child has exited. The child stays a
    /// zombie until it is awaited, so no other process can get its pid or its group's id.
    exited: OwnedFd,
    /// The rest of the input.
    stdin: &'a [u8],
    stdout: Capture,
    stderr: Capture,
    stop: &'a Stop,
    /// When the command was asked to end.
    asked_at: Option<Instant>,
}

impl<'a> ShellProcess<'a> {
    /// Prepares the supervision of a started command. Kills the command if the system refuses that.
    fn new(mut child: Child, stdin: &'a str, stop: &'a Stop) -> io::Result<Self> {
        let group = Pid::from_child(&child);
        let nonblocking = |(end, _)| ioctl_fionbio(end, true);
        let prepared = pipes(&child).into_iter().flatten().try_for_each(nonblocking);
        let exited = match prepared.and_then(|()| pidfd_open(group, PidfdFlags::empty())) {
            Ok(exited) => exited,
            Err(error) => {
                // jobctl is out of descriptors, so it can't supervise the command.
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                return Err(error.into());
            }
        };
        Ok(Self {
            child,
            group,
            strays: Vec::new(),
            exited,
            stdin: stdin.as_bytes(),
            stdout: Capture::default(),
            stderr: Capture::default(),
            stop,
            asked_at: None,
        })
    }

    /// Waits until the command exits, times out or is stopped. Then ends its group, and returns the
    /// result.
    fn supervise(mut self, timeout: Option<Duration>) -> AttemptResult {
        let ended_early = self.wait_for_end(timeout);
        let status = if ended_early.is_some() { self.end() } else { self.child.wait().ok() };
        let note = match status {
            // The group got SIGKILL, too, so there is nothing more to try.
            None => Some("the command could not be killed and may still run"),
            Some(_) => self.end_leftover(),
        };
        let exit_code = status.and_then(|status| status.code());
        let signal = status.and_then(|status| status.signal());
        let outcome = match (ended_early, exit_code) {
            // After an interruption, the command used the time after SIGTERM to finish its work.
            (None | Some(Outcome::Stopped(StopReason::Interrupted)), Some(0)) => Outcome::Succeeded,
            (Some(ended_early), _) => ended_early,
            (None, Some(code)) => Outcome::Failed(Failure::ExitCode(code)),
            (None, None) => Outcome::Failed(Failure::Signal(signal.unwrap_or(0))),
        };
        let (output, note) = (output::join(self.stdout, self.stderr), note.map(str::to_owned));
        AttemptResult { outcome, exit_code, signal, http_status: None, output, note }
    }

    /// Waits until the command exits, or until it must be ended. Returns why it must be ended;
    /// `None`: it has exited.
    fn wait_for_end(&mut self, timeout: Option<Duration>) -> Option<Outcome> {
        let started = Instant::now();
        loop {
            if self.wait(self.time_left(started, timeout)) {
                return None;
            }
            let reason = if let Some(why) = self.stop.asked() {
                Outcome::Stopped(why)
            } else if let Some(limit) = timeout.filter(|limit| started.elapsed() >= *limit) {
                Outcome::Failed(Failure::Timeout(limit))
            } else {
                continue;
            };
            // The command may have exited meanwhile.
            let has_exited = self.wait(Duration::ZERO);
            return if has_exited { None } else { Some(reason) };
        }
    }

    /// Returns the time until the next check, at most until the timeout or the end of the lease.
    fn time_left(&self, started: Instant, timeout: Option<Duration>) -> Duration {
        let until_check = self.stop.remaining().min(SLICE);
        match timeout {
            Some(limit) => until_check.min(limit.saturating_sub(started.elapsed())),
            None => until_check,
        }
    }

    /// Ends the group: by SIGTERM, and by SIGKILL if the command does not exit in time. Returns
    /// `None` if the command is stuck in the kernel.
    fn end(&mut self) -> Option<ExitStatus> {
        // Find strays before the signals: a process whose parent has ended is no longer a
        // descendant.
        self.strays = process_table::strays(self.group);
        self.terminate();
        let asked_at = *self.asked_at.insert(Instant::now());
        while asked_at.elapsed() < self.stop.grace(KILL_GRACE) {
            if self.wait(5 * GROUP_POLL) {
                return self.child.wait().ok();
            }
        }
        self.signal(Signal::KILL);
        if self.wait(DEATH_TIMEOUT) { self.child.wait().ok() } else { None }
    }

    /// Ends the remaining processes of the group, and returns a note about them. The command itself
    /// has been awaited, so the group's id is valid only while the group has a process.
    fn end_leftover(&mut self) -> Option<&'static str> {
        self.drain();
        if !self.is_alive() {
            return None;
        }
        let (asked_at, grace) = match self.asked_at {
            // `end` has sent SIGTERM to all of them. The shell of a script ends at once, and the
            // processes that it has started get the rest of the time. Send no second SIGTERM, which
            // may mean "now" to a process.
            Some(asked_at) => (asked_at, KILL_GRACE),
            None => {
                self.terminate();
                (Instant::now(), LEFTOVER_GRACE)
            }
        };
        let until = Instant::now() + grace + DEATH_TIMEOUT;
        while self.is_alive() && Instant::now() < until {
            if asked_at.elapsed() > self.stop.grace(grace) {
                self.signal(Signal::KILL);
            }
            std::thread::sleep(GROUP_POLL);
            self.drain();
        }
        if self.is_alive() {
            return Some("processes of the command could not be ended and may still run");
        }
        // After a stop, processes may only have taken longer to end. Then the command did not leave
        // them behind.
        let was_stopped = self.asked_at.is_some();
        if was_stopped { None } else { Some("the command left processes behind, which were ended") }
    }

    /// Whether a process of the group or a stray is alive.
    fn is_alive(&self) -> bool {
        // A pidfd is readable once its process has ended.
        let is_running = |stray: &OwnedFd| {
            let mut ended = [PollFd::new(stray, PollFlags::IN)];
            poll(&mut ended, Some(&Timespec::default())) == Ok(0)
        };
        process_table::is_alive(self.group) || self.strays.iter().any(is_running)
    }

    /// Asks the processes to end. A stopped process sees SIGTERM only after SIGCONT.
    fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Signals the group and the strays.
    fn signal(&self, signal: Signal) {
        // Ignore errors: the processes may have exited.
        let _ = kill_process_group(self.group, signal);
        for stray in &self.strays {
            let _ = pidfd_send_signal(stray, signal);
        }
    }

    /// Moves data through the pipes until the child has exited or the time is up. Returns whether
    /// the child has exited. Does not wait for other processes that keep a pipe open.
    fn wait(&mut self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        loop {
            let has_exited = self.poll(until.saturating_duration_since(Instant::now()));
            self.drain();
            if has_exited || Instant::now() >= until {
                return has_exited;
            }
        }
    }

    /// Sleeps until some data can be moved, the child has exited or the time is up. Returns whether
    /// the child has exited.
    fn poll(&self, at_most: Duration) -> bool {
        let mut watched = vec![PollFd::new(&self.exited, PollFlags::IN)];
        let pipes = pipes(&self.child).into_iter().flatten();
        watched.extend(pipes.map(|(end, flags)| PollFd::from_borrowed_fd(end, flags)));
        // Ignore an error: a signal has interrupted the wait, and the caller polls again.
        let _ = poll(&mut watched, Timespec::try_from(at_most).ok().as_ref());
        !watched[0].revents().is_empty()
    }

    /// Moves all data that can be moved without waiting, and closes finished pipes.
    fn drain(&mut self) {
        feed(&mut self.child.stdin, &mut self.stdin);
        collect(&mut self.child.stdout, &mut self.stdout, self.stop);
        collect(&mut self.child.stderr, &mut self.stderr, self.stop);
    }
}

/// Returns the open ends of the pipes, and what each waits for.
fn pipes(child: &Child) -> [Option<(BorrowedFd<'_>, PollFlags)>; 3] {
    [
        child.stdin.as_ref().map(|end| (end.as_fd(), PollFlags::OUT)),
        child.stdout.as_ref().map(|end| (end.as_fd(), PollFlags::IN)),
        child.stderr.as_ref().map(|end| (end.as_fd(), PollFlags::IN)),
    ]
}

/// Writes as much to stdin as the pipe takes now, and closes it after the last byte.
fn feed(pipe: &mut Option<ChildStdin>, rest: &mut &[u8]) {
    while let Some(open) = pipe {
        if rest.is_empty() {
            *pipe = None;
            return;
        }
        match open.write(rest) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(written) if written > 0 => *rest = &rest[written..],
            // The command has closed its stdin.
            _ => *pipe = None,
        }
    }
}

/// Reads what a pipe has now, up to a limit, and closes it at its end.
fn collect<R: Read>(pipe: &mut Option<R>, capture: &mut Capture, stop: &Stop) {
    let mut chunk = [0; 16 * 1024];
    // Without the limit, an endless stream could delay the other stream or the timeout.
    for _ in 0..16 {
        let Some(open) = pipe else { return };
        match open.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(read) if read > 0 => {
                capture.push(&chunk[..read]);
                stop.record_output(&chunk[..read]);
            }
            _ => *pipe = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::action::Action;

    /// Tests a stop that comes after the last check and before the command starts.
    #[test]
    fn a_stop_during_the_start_ends_the_command_at_once() {
        let Ok(Action::Shell(shell)) =
            Action::parse("shell", r#"{"command": ["sleep", "60"]}"#).unwrap()
        else {
            unreachable!("a command")
        };
        let identity = AttemptIdentity {
            run_id: 1,
            job: "shell".to_owned(),
            attempt: 1,
            max_attempts: 1,
            idempotency_key: "k".to_owned(),
            scheduled_for: None,
            after: None,
            traceparent: None,
        };
        let started = Instant::now();
        let stop = Stop::new(started + Duration::from_secs(60), Duration::ZERO);
        stop.ask(StopReason::Interrupted);
        let ended = run(&shell, &identity, None, &stop);
        assert!(matches!(ended.outcome, Outcome::Stopped(StopReason::Interrupted)), "{ended:?}");
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    }
}
