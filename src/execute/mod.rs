//! Executes one attempt of a job if this host's policy allows it, and returns the result. This
//! module knows processes and sockets, but not PostgreSQL, leases or retries. Its caller stops an
//! execution with a `Stop`.

mod family;
mod foreground;
mod http;
mod inherited;
mod output;
mod shell;
mod stop;

use std::io;
use std::time::Duration;

use clap::ValueEnum;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use foreground::{Foreground, foreground};
pub(crate) use http::HostPolicy;
pub(crate) use inherited::hide_environment;
pub(crate) use stop::Stop;

use crate::action::{Action, Shell, Source};
use crate::model::{Ended, Failure, Identity};
use http::Caller;

/// Open descriptors of a tick beside those of its jobs, and of one job: pipes, a pidfd, what a start takes for a moment.
const OWN_DESCRIPTORS: u64 = 64;
const DESCRIPTORS_OF_ONE: u64 = 12;

/// Makes room for the descriptors of so many executions at a time, within what the process may have at all: the usual
/// limit is meant for one that opens few, and jobs that fail for want of them fail fast.
pub(crate) fn make_room(executions: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = OWN_DESCRIPTORS + DESCRIPTORS_OF_ONE * executions as u64;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        // Where it is refused, all is as it was.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Whether an error says that this host is short of something just now, whatever is to be executed.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE))
}

/// Which commands this host executes: any, those of definitions, or none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum ShellPolicy {
    Any,
    Defined,
    Off,
}

impl ShellPolicy {
    fn check(self, command: &Shell) -> Result<(), Failure> {
        let why = match (self, command.source) {
            (Self::Any, _) | (Self::Defined, Source::Definition) => return Ok(()),
            (Self::Defined, Source::Payload) => "--shell defined allows only commands of definitions on this host",
            (Self::Off, _) => "--shell off allows no commands on this host",
        };
        Err(Failure::NotAllowed(why.to_owned()))
    }
}

/// Executes the actions that this host's policy allows. Claims already skip other actions, but a
/// trigger or a false server may change a claimed run. So only this check is reliable.
#[derive(Debug)]
pub(crate) struct Executor {
    shell: ShellPolicy,
    caller: Caller,
}

impl Executor {
    pub(crate) fn new(shell: ShellPolicy, hosts: HostPolicy) -> Self {
        Self { shell, caller: Caller::new(hosts) }
    }

    /// Executes `action` on the calling thread, until it ends, times out or is stopped.
    pub(crate) fn execute(
        &self,
        action: &Action,
        identity: &Identity,
        timeout: Option<Duration>,
        stop: &Stop,
    ) -> Ended {
        match action {
            Action::Shell(command) => match self.shell.check(command) {
                Ok(()) => shell::run(command, identity, timeout, stop),
                Err(refused) => Ended::unstarted(refused),
            },
            Action::Http(call) => self.caller.call(call, identity, timeout, stop),
        }
    }
}
