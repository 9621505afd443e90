//! What the machine asks of the database, and the answers.

use std::time::Instant;

use crate::store::{self, Claim, Finish, LockedRuns, Renewed, StepResult, Token};

/// A request to the database. The tick sends the next one only after this one is answered.
#[derive(Debug)]
pub(super) enum Request {
    /// Record that the tick is alive, take or renew the claim right, fire schedules and recover
    /// lost runs.
    Wake(Wake),
    /// Renew leases.
    Renew(Vec<Token>),
    /// Record results, then claim runs: both or neither.
    Step { results: Vec<Finish>, claim: Option<Claim>, locked_runs: LockedRuns },
    /// Release claims whose runs were not started.
    Release(Vec<Token>),
    /// Search for due runs that can't be claimed: begin after a claim failed with this error, or do
    /// the next step.
    Search(Option<store::Error>),
    /// Release the claim right.
    Leave,
    /// Delete old runs.
    Prune,
}

#[derive(Clone, Debug)]
pub(super) struct Wake {
    /// Whether to take the claim right even if no run waits.
    pub(super) keeps_right: bool,
    /// The claims of this tick, to count the runs that other ticks of the worker hold. Their number
    /// is not enough, because some of them may be lost.
    pub(super) own_claims: Vec<Token>,
    /// When firing and recovering must stop, because renewals and results come first.
    pub(super) until: Option<Instant>,
}

/// The answer to a request, with the same name.
#[derive(Debug)]
pub(super) enum Answer {
    Wake(store::Result<Woken>),
    Renew(store::Result<Vec<Renewed>>),
    /// An error carries the claims that exist if the transaction was committed.
    Step(Result<StepResult, (store::Error, Vec<Token>)>),
    /// The runs whose rows are locked, so their claims were not released.
    Release(store::Result<Vec<i64>>),
    Search {
        is_done: bool,
        result: store::Result<()>,
    },
    Leave(store::Result<()>),
    /// Pruning logs its own errors: they are not the tick's.
    Prune,
}

/// What a tick finds when it wakes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Woken {
    /// Whether the tick has its worker's claim right.
    pub(super) may_claim: bool,
    /// Whether another tick of the worker has it.
    pub(super) other_claims: bool,
    /// The runs that other ticks of the worker hold; 0 without the claim right.
    pub(super) held_by_others: usize,
    /// Whether some definition limits how many of its runs may run at once.
    pub(super) limits: bool,
}
