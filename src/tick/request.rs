//! What the machine asks of the database, and the answers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::store::{self, Claim, FencingToken, Finish, Renewed, StepResult};
use crate::upkeep::{Wake, Woken};

/// How long to wait for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerTimeout {
    /// Wait until this time at most; `None`: only the usual timeouts end the wait.
    pub(super) until: Option<Instant>,
    /// After a signal, wait this long at most.
    pub(super) interrupted: Duration,
    /// Wait this much longer than usual, because the request has more statements than usual.
    pub(super) extra: Duration,
}

/// A request to the database.
#[derive(Debug)]
pub(super) enum Request {
    /// Record that the tick is alive, take or renew the claim right, fire schedules, recover lost
    /// runs, and search for due runs that can't be claimed.
    Wake(Wake),
    /// Renew the leases of `claims` in the rows of their runs, and those of `kept` in
    /// `job_locked_runs`, because a renewal in their rows takes too long.
    Renew { claims: Vec<FencingToken>, kept: Vec<FencingToken> },
    /// Write results and releases, then claim runs: all or nothing.
    Step {
        /// Results to record.
        results: Vec<Finish>,
        /// Results to keep in `job_locked_runs`, because it took too long to record them.
        kept: Vec<Finish>,
        /// Claims to release, because their runs did not start.
        unstarted: Vec<FencingToken>,
        claim: Option<Claim>,
        /// Whether to skip runs that another session has locked, instead of waiting for the locks.
        skips_locked: bool,
    },
    /// Store the output of jobs whose leases were just renewed. The machine sends an empty list,
    /// and the driver fills it.
    Store(Vec<(FencingToken, String)>),
    /// Release the claim right, and record that the database took this long for an answer.
    Leave { slow: Option<Duration> },
    /// Delete old runs.
    Prune,
}

/// The answer to the request of the same name.
#[derive(Debug)]
pub(super) enum Answer {
    Wake {
        woken: store::Result<Woken>,
        /// Whether the search for runs that can't be claimed goes on.
        is_searching: bool,
    },
    Renew(store::Result<Vec<Renewed>>),
    /// With an error, the claims that exist if the transaction was committed.
    Step(Result<StepResult, (store::Error, Vec<FencingToken>)>),
    /// The ids of the runs whose output is still to be stored.
    Store(store::Result<BTreeSet<i64>>),
    Leave(store::Result<()>),
    /// The statements have logged their own errors, which do not concern the tick.
    Prune,
}
