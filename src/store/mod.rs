//! The only place that runs queries: one function per file in `sql/queries`, with the same name. It
//! computes no backoff, starts no process, and reads the host's clock only to limit its own waits.

mod archive;
mod bisect;
mod claim;
mod definitions;
mod doctor;
mod effects;
mod enqueue;
mod error;
mod followers;
mod held_runs;
mod list;
mod load;
mod migrations;
mod operations;
mod report;
mod row;
mod schema;
mod show;
mod statement;
mod status;
mod transaction;
mod wake;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) use archive::Archive;
pub(crate) use bisect::{BatchSize, Bisection, bisect};
#[cfg(test)]
pub(crate) use claim::DefinedAction;
pub(crate) use claim::{
    AsideEnd, Claim, ClaimFilter, ClaimResult, Claimed, DueRun, FencingToken, Holder, Lane,
    LastShare, Position, SetAside,
};
pub(crate) use definitions::{
    Applied, ApplyMode, ApplyTerms, ChangedDefinition, EndedDefinition, FIRED_AT_ONCE,
    SHOWN_APPLICATION_SCHEDULES, StoredDefinition, UnknownEnqueuer, Unlisted, WrongHook,
};
pub(crate) use doctor::{
    GrantFacts, HolderFacts, IndexFacts, ObjectFacts, RoleFacts, SessionFacts, SnapshotFacts,
    TableFacts, ZoneFacts,
};
pub(crate) use effects::{Effect, RESULT_LIMIT, RunEffects};
pub(crate) use enqueue::{Accepted, Dependencies, EncodedRun, NewRun, Predecessor, Queued};
pub(crate) use error::{Error, Kind, MIGRATE, Result, WRITABLE, utf8_database};
pub(crate) use followers::FollowingJob;
#[cfg(test)]
pub(crate) use held_runs::Recorded;
pub(crate) use held_runs::{
    Finish, LeaseState, LostLease, Recovered, Renewed, StepResult, StoredResult,
};
pub(crate) use list::{
    FailureFilter, Incident, Relation, Run, RunFilter, RunList, TrailFilter, TrailRows,
};
pub(crate) use load::LoadFigures;
pub(crate) use operations::{
    AcceptedRestore, Cause, Edit, HeldRunning, HoldTarget, Keep, Operation, OperationResult,
    Pruned, RetryTerms,
};
pub(crate) use report::{Bin, Details, ReportJob, ReportSummary, Scope, Snapshot};
pub(crate) use schema::Mode;
pub(crate) use show::{Attempt, History, RunDetails, RunState, StoredOutput};
pub(crate) use status::{
    Fact, Figures, Flow, JobStatus, Overview, SequenceFacts, StoppedCounts, StoppedFacts, WAITS,
    WorkFacts, Worker,
};
pub(crate) use transaction::Timeouts;
pub(crate) use wake::WakeResult;

use crate::connect::{self, Client, Target};
use crate::text::duration::CENTURY;

/// An open connection to a database whose schema is this program's.
pub(crate) struct Store {
    client: RefCell<Client>,
    timeouts: Timeouts,
    /// Whether the next transaction first checks the schema's version, in the round trip that opens
    /// it. It also sets this to `false`.
    checks_version: Cell<bool>,
    interrupted: Arc<AtomicBool>,
    /// The number of transactions so far.
    transactions: Cell<u64>,
    /// How long the longest transaction took since the last call of `take_longest`.
    longest_transaction: Cell<Duration>,
}

impl Store {
    /// Connects. The first transaction fails with `Exit::Schema` and does nothing if the schema's
    /// version is not the program's.
    pub(crate) fn open(target: &Target) -> anyhow::Result<Self> {
        Self::open_until(target, Arc::default())
    }

    /// Connects as `open` does. While `interrupted` is set, each wait for the server ends early.
    pub(crate) fn open_until(
        target: &Target,
        interrupted: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let client = connect::open(target, &interrupted)?;
        let store = Self::over(client, interrupted);
        store.checks_version.set(true);
        Ok(store)
    }

    /// Connects as `open` does, but the first transaction does not check the schema's version: the
    /// schema may be missing or old.
    pub(crate) fn connect(target: &Target) -> anyhow::Result<Self> {
        let interrupted = Arc::default();
        let client = connect::open(target, &interrupted)?;
        Ok(Self::over(client, interrupted))
    }

    /// Returns a store over an open connection. Its transactions do not check the schema's version,
    /// except those of a tick that set `checks_version`. While `interrupted` is set, a wait for an
    /// answer ends early.
    pub(crate) fn over(client: Client, interrupted: Arc<AtomicBool>) -> Self {
        Self {
            client: RefCell::new(client),
            timeouts: Timeouts::USUAL,
            checks_version: Cell::new(false),
            interrupted,
            transactions: Cell::new(0),
            longest_transaction: Cell::new(Duration::ZERO),
        }
    }

    /// Sets the timeouts of all later statements.
    pub(crate) fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
    }

    /// Returns the number of transactions so far.
    pub(crate) fn transactions(&self) -> u64 {
        self.transactions.get()
    }

    /// Returns how long the longest transaction took since the last call of this function.
    pub(crate) fn take_longest(&self) -> Duration {
        self.longest_transaction.take()
    }
}

/// Converts seconds to a duration of at most a century: the database may contain numbers that
/// `Duration` can't.
pub(crate) fn seconds(seconds: f64) -> Duration {
    let longest = CENTURY.as_secs_f64();
    Duration::from_secs_f64(if seconds.is_finite() { seconds.clamp(0.0, longest) } else { longest })
}
