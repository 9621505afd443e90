//! Executes one attempt of a job if this host's policy allows it, and returns the result. This
//! module knows processes and sockets, but not PostgreSQL, leases or retries. Its caller stops an
//! execution with a `Stop`.

pub mod benchmark;
mod crontab_program;
mod foreground;
mod http;
mod init_process;
mod output;
mod pool;
mod process_table;
mod sanitize;
mod shell;
mod stop;

use std::env;
use std::io;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use crontab_program::{read_crontab, replace_crontab};
pub(crate) use foreground::{Foreground, Printed, foreground};
pub(crate) use http::HostPolicy;
pub(crate) use init_process::run_as_init;
pub(crate) use pool::{Pool, PoolState, WakeWhen};
pub(crate) use sanitize::{hide_environment, ignored_signals};
pub(crate) use stop::Stop;

use crate::job::action::{self, Action, Shell};
use crate::job::attempt::{AttemptIdentity, AttemptResult};
use crate::job::failure::Failure;
use crate::text::plain;
use http::Caller;

/// The maximum of open descriptors of the tick itself.
const OWN_DESCRIPTORS: u64 = 64;
/// The maximum of open descriptors of one job: pipes, a pidfd, and the descriptors that a start
/// needs for a moment.
const JOB_DESCRIPTORS: u64 = 12;

/// Raises the limit of open descriptors for this many executions at a time. The usual limit is too
/// low for many jobs, and without descriptors they would fail at once.
pub(crate) fn raise_descriptor_limit(executions: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = OWN_DESCRIPTORS + JOB_DESCRIPTORS * executions as u64;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        // If the system refuses, the old limit stays.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Returns whether the error says that this host is short of a resource now, whatever the job.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE)
    )
}

/// Returns why a program did not start that jobctl runs in its own directory, with its own PATH.
pub(crate) fn why_not_started(word: &str, error: &io::Error) -> String {
    match not_started(word, None, None, error) {
        (why, Some(note)) => format!("{why}; {note}"),
        (why, None) => why,
    }
}

/// Returns why a program did not start, in words that viewers may read, and a note for the history
/// and the log, which they do not read.
///
/// - `word`: the program as the command writes it.
/// - `folder`: the command's working directory; `None`: that of jobctl.
/// - `path`: the command's own PATH; `None`: that of jobctl.
fn not_started(
    word: &str,
    folder: Option<&Path>,
    path: Option<&String>,
    error: &io::Error,
) -> (String, Option<String>) {
    let program = with_quoted("program", action::program_name(word));
    let why = match error.kind() {
        io::ErrorKind::NotFound => format!("no such {program}"),
        io::ErrorKind::PermissionDenied => format!("{program} is not executable"),
        _ => return (error.to_string(), None),
    };
    let note = match action::assignment(word) {
        Some(hint) => Some(hint),
        None if word.contains('/') => about_path(word, folder, error),
        None => Some(search_path(path)),
    };
    (why, note)
}

/// Returns a note about a program that is written with its path: where the system looked for it, or
/// what it lacks. `None`: there is nothing to add.
fn about_path(word: &str, folder: Option<&Path>, error: &io::Error) -> Option<String> {
    let folder = folder.map(Path::to_owned).or_else(|| env::current_dir().ok()).unwrap_or_default();
    // Show only a plain path. A word with other characters may also contain a password.
    let path = if action::is_plain_path(word) { Some(word) } else { None };
    if error.kind() == io::ErrorKind::NotFound && folder.join(word).is_file() {
        let file = with_quoted("file", path);
        Some(format!("the {file} exists, but not the interpreter that its first line names"))
    } else if word.starts_with('/') {
        path.map(|path| format!("its path is `{path}`"))
    } else {
        let (path, folder) = (with_quoted("path", path), folder.display().to_string());
        Some(format!("its {path} is relative to the directory `{}`", folder.escape_debug()))
    }
}

/// Returns a noun, followed by the quoted name of its object if that may be shown.
fn with_quoted(noun: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{noun} `{name}`"),
        None => noun.to_owned(),
    }
}

/// Returns words for the folders in which a command looks for programs. `own` is the command's own
/// PATH; `None`: it has that of jobctl.
fn search_path(own: Option<&String>) -> String {
    match own.cloned().or_else(|| env::var("PATH").ok()) {
        Some(path) => format!("PATH is `{}`", plain::line(&path)),
        None => "PATH is not set".to_owned(),
    }
}

/// The commands that this host executes: any, those of definitions, or none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum ShellPolicy {
    Any,
    Defined,
    Off,
}

impl ShellPolicy {
    /// Fails if this host must not run a command.
    fn check(self, command: &Shell) -> Result<(), Failure> {
        let why = match self {
            Self::Any => return Ok(()),
            Self::Defined if command.is_defined => return Ok(()),
            Self::Defined => "--shell defined: this host runs only commands of definitions",
            Self::Off => "--shell off: this host runs no commands",
        };
        Err(Failure::NotAllowed(why.to_owned()))
    }
}

/// Executes the actions that this host's policy allows. Claims already skip other actions. But a
/// trigger or a false server may change a claimed run, so only the check here is reliable.
#[derive(Debug)]
pub(crate) struct Executor {
    shell: ShellPolicy,
    caller: Caller,
}

impl Executor {
    /// Returns an executor that runs the commands and calls the hosts that these policies allow.
    pub(crate) fn new(shell: ShellPolicy, hosts: HostPolicy) -> Self {
        Self { shell, caller: Caller::new(hosts) }
    }

    /// Executes `action` on the calling thread, until it ends, times out or is stopped.
    pub(crate) fn execute(
        &self,
        action: &Action,
        identity: &AttemptIdentity,
        timeout: Option<Duration>,
        stop: &Stop,
    ) -> AttemptResult {
        match action {
            Action::Shell(command) => match self.shell.check(command) {
                Ok(()) => shell::run(command, identity, timeout, stop),
                Err(failure) => AttemptResult::unstarted(failure),
            },
            Action::Http(call) => self.caller.call(call, identity, timeout, stop),
        }
    }
}
