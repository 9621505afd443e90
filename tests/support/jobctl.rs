//! Runs the binary for a test: without the settings of this machine, and with a deadline. If an
//! expectation is not met, the message has the command, its output and the runs.

use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Proxy, TestDb};

/// No command of a test takes longer.
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns a command line of jobctl without a database.
pub fn jobctl<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Invocation<'static> {
    Invocation::new(arguments, None)
}

/// Copies the binary into a folder, by `cp`. If this process wrote the file, a program that another
/// test starts meanwhile would inherit the open file, and a file that is open for writing can't be
/// executed.
pub fn copy_jobctl(folder: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_jobctl")).arg(folder).status();
    assert!(copied.unwrap().success());
}

/// A command line that has not been run.
#[must_use]
pub struct Invocation<'db> {
    command: Command,
    line: String,
    stdin: Option<Vec<u8>>,
    /// Where output goes instead of to the test.
    stdout: Option<Stdio>,
    stderr: Option<Stdio>,
    db: Option<&'db TestDb>,
}

impl<'db> Invocation<'db> {
    pub fn new<'a>(arguments: impl IntoIterator<Item = &'a str>, db: Option<&'db TestDb>) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_jobctl")), "jobctl", db).args(arguments)
    }

    /// Returns a script of `sh` in which `"$jobctl"` is the binary: for pipes and closed streams.
    pub fn script(text: &str, db: Option<&'db TestDb>) -> Self {
        let mut command = Command::new("sh");
        command.arg("-c").arg(text);
        Self::of(command, text, db).env("jobctl", env!("CARGO_BIN_EXE_jobctl"))
    }

    fn of(mut command: Command, line: &str, db: Option<&'db TestDb>) -> Self {
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("PG")
                || text.starts_with("JOBCTL_")
                || text == "DATABASE_URL"
                || text.to_ascii_lowercase().ends_with("_proxy")
            {
                command.env_remove(&name);
            }
        }
        // Without a state folder, lines that are printed once an hour are printed each time.
        command
            .env_remove("RUST_LOG")
            .env_remove("RUST_BACKTRACE")
            .env("TZ", "UTC")
            .env("XDG_CONFIG_HOME", "/dev/null")
            .env("XDG_STATE_HOME", "/dev/null");
        Self { command, line: line.to_owned(), stdin: None, stdout: None, stderr: None, db }
    }

    pub fn args<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        for argument in arguments {
            self.command.arg(argument);
            self.line = format!("{} {argument:?}", self.line);
        }
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Reaches the database through this proxy.
    pub fn through(self, proxy: &Proxy) -> Self {
        self.env("JOBCTL_DATABASE_URL", &proxy.url())
    }

    pub fn env_clear(mut self) -> Self {
        self.command.env_clear();
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    pub fn current_dir(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Lets a shell run `script` first, for what only a parent can set up.
    pub fn after(mut self, script: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{script}\nexec \"$0\" \"$@\"")]);
        shell.arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        self.line = format!("{script}; {}", self.line);
        self.command = shell;
        self
    }

    /// Redirects stdout.
    pub fn stdout_to(mut self, stdout: Stdio) -> Self {
        self.stdout = Some(stdout);
        self.line += " >...";
        self
    }

    /// Redirects stderr.
    pub fn stderr_to(mut self, stderr: Stdio) -> Self {
        self.stderr = Some(stderr);
        self.line += " 2>...";
        self
    }

    /// Lets the command lead its own process group, as a shell on a terminal does.
    pub fn leads_group(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    /// Runs the command and waits for its end.
    #[track_caller]
    pub fn run(self) -> Finished {
        self.spawn().wait()
    }

    /// Starts the command.
    #[track_caller]
    pub fn spawn(mut self) -> Running<'db> {
        self.command.stdout(self.stdout.unwrap_or_else(Stdio::piped));
        self.command.stderr(self.stderr.unwrap_or_else(Stdio::piped));
        self.command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = self.command.spawn().expect("jobctl starts");
        if let (Some(bytes), Some(mut pipe)) = (self.stdin, child.stdin.take()) {
            // A command may exit before it has read all its input.
            thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        let readers = [child.stdout.take().map(reader), child.stderr.take().map(reader)];
        Running { child, line: self.line, readers, db: self.db, started: Instant::now() }
    }
}

/// Reads a pipe to its end, in a thread.
fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A process; killed when it is dropped.
pub struct Running<'db> {
    child: Child,
    line: String,
    /// Those of stdout and of stderr.
    readers: [Option<JoinHandle<String>>; 2],
    db: Option<&'db TestDb>,
    started: Instant,
}

impl Running<'_> {
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub fn wait(self) -> Finished {
        self.wait_within(DEADLINE)
    }

    #[track_caller]
    pub fn wait_within(mut self, timeout: Duration) -> Finished {
        let waited = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if waited.elapsed() > timeout {
                let _ = self.child.kill();
                let _ = self.child.wait();
                let text =
                    self.readers[1].take().map(|reader| reader.join().unwrap()).unwrap_or_default();
                panic!("{} did not end within {timeout:?}\nstderr: {text}", self.line);
            }
            thread::sleep(Duration::from_millis(2));
        };
        let took = self.started.elapsed();
        let mut text = |index: usize| {
            self.readers[index].take().map(|reader| reader.join().unwrap()).unwrap_or_default()
        };
        let (stdout, stderr) = (text(0), text(1));
        let dump = if status.success() {
            String::new()
        } else {
            self.db.map(TestDb::dump).unwrap_or_default()
        };
        Finished { line: self.line.clone(), status, stdout, stderr, took, dump }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// How a command ended, with assertions that can be chained.
pub struct Finished {
    line: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
    /// The runs of its database, if it failed.
    dump: String,
}

impl Finished {
    #[track_caller]
    fn expect(self, holds: bool, what: &str) -> Self {
        assert!(holds, "expected {what}\n{self}");
        self
    }

    #[track_caller]
    pub fn success(self) -> Self {
        self.exits(0)
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        let holds = self.status.code() == Some(code);
        self.expect(holds, &format!("exit status {code}"))
    }

    #[track_caller]
    pub fn stdout(self, text: &str) -> Self {
        let holds = self.stdout == text;
        self.expect(holds, &format!("stdout {text:?}"))
    }

    #[track_caller]
    pub fn stderr(self, text: &str) -> Self {
        let holds = self.stderr == text;
        self.expect(holds, &format!("stderr {text:?}"))
    }

    #[track_caller]
    pub fn stdout_has(self, text: &str) -> Self {
        let holds = self.stdout.contains(text);
        self.expect(holds, &format!("{text:?} in stdout"))
    }

    #[track_caller]
    pub fn stderr_has(self, text: &str) -> Self {
        let holds = self.stderr.contains(text);
        self.expect(holds, &format!("{text:?} in stderr"))
    }

    /// Asserts that neither stdout nor stderr contains this text.
    #[track_caller]
    pub fn prints_nowhere(self, text: &str) -> Self {
        let holds = !self.stderr.contains(text) && !self.stdout.contains(text);
        self.expect(holds, &format!("{text:?} nowhere"))
    }

    /// Asserts that stderr is one line that begins with the program's name.
    #[track_caller]
    pub fn complains_once(self) -> Self {
        let holds = self.stderr.starts_with("jobctl: ") && self.stderr.lines().count() == 1;
        self.expect(holds, "one line on stderr")
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, status, stdout, stderr, dump, .. } = self;
        write!(formatter, "{line}\n{status}\nstdout: {stdout}\nstderr: {stderr}\n{dump}")
    }
}

/// Returns the words of a text without the seconds of durations, which change while a test runs.
pub fn without_seconds(text: &str) -> String {
    let is_seconds =
        |word: &&str| word.strip_suffix('s').is_some_and(|number| number.parse::<u8>().is_ok());
    text.split_whitespace().filter(|word| !is_seconds(word)).collect::<Vec<_>>().join(" ")
}
