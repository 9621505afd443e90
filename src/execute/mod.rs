//! Executes one attempt of a job and says what it came to. Knows processes and sockets; knows
//! neither PostgreSQL nor leases, attempts or retries: whoever supervises holds a `Stop`.

mod http;
mod inherited;
mod output;
mod shell;
mod stop;

use std::time::Duration;

pub(crate) use http::{Caller, HostPolicy};
pub(crate) use shell::{Foreground, foreground};
pub(crate) use stop::Stop;

use crate::action::Action;
use crate::model::{Ended, Identity};

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
