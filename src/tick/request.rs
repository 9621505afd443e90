//! What the machine asks of the database, and the answers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::store::{self, Claim, FencingToken, Finish, Renewed, StepResult};
use crate::upkeep::{Wake, Woken};

/// How long to wait for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerTimeout {
    /// Wait until this time at most.
    pub(super) until: Option<Instant>,
    /// After a signal, wait this long at most.
    pub(super) interrupted: Duration,
    /// Wait this much longer than usual: the request has more statements than usual.
    pub(super) extra: Duration,
}

/// A request to the database.
#[derive(Debug)]
pub(super) enum Request {
    /// Record that the tick is alive, take or renew the claim right, fire schedules, recover lost
    /// runs, and search for due runs that can't be claimed.
    Wake(Wake),
    /// Renew the leases of `claims` in their rows, and those of `kept` in `job_locked_runs`,
    /// because the rows of these take too long.
    Renew { claims: Vec<FencingToken>, kept: Vec<FencingToken> },
    /// Record results, keep the results that took too long to record in `job_locked_runs`, release
    /// claims whose runs were not started, then claim runs: all or nothing.
    Step {
        results: Vec<Finish>,
        kept: Vec<Finish>,
        unstarted: Vec<FencingToken>,
        claim: Option<Claim>,
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
        /// The search goes on.
        is_searching: bool,
    },
    Renew(store::Result<Vec<Renewed>>),
    /// An error carries the claims that exist if the transaction was committed.
    Step(Result<StepResult, (store::Error, Vec<FencingToken>)>),
    /// The runs whose output is still to be stored.
    Store(store::Result<BTreeSet<i64>>),
    Leave(store::Result<()>),
    /// Pruning logs its own errors: they are not the tick's.
    Prune,
}
