//! Executes one attempt of a job and says what it came to. Knows processes and sockets; knows
//! neither PostgreSQL nor leases, attempts or retries: whoever supervises holds a `Stop`.

mod family;
mod foreground;
mod http;
mod inherited;
mod output;
mod shell;
mod stop;

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use foreground::{Foreground, foreground};
pub(crate) use http::{Caller, HostPolicy};
pub(crate) use stop::Stop;

use crate::action::Action;
use crate::model::{Ended, Identity};

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

/// Executes `action` on the calling thread, until it ends, times out or is stopped.
pub(crate) fn execute(
    action: &Action,
    identity: &Identity,
    timeout: Option<Duration>,
    caller: &Caller,
    stop: &Stop,
) -> Ended {
    match action {
        Action::Shell(command) => shell::run(command, identity, timeout, stop),
        Action::Http(call) => caller.call(call, identity, timeout, stop),
    }
}
