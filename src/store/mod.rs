//! The only place that runs queries: one function per file in `sql/queries`, named like it. It
//! decides nothing: no backoff, no process, and no clock but for how long it waits itself.

mod check;
mod claim;
mod definitions;
mod effects;
mod enqueue;
mod error;
mod exchange;
mod inspect;
mod look;
mod operate;
mod prune;
mod report;
mod runs;
mod schema;
mod session;
mod show;
mod status;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use postgres::Row;

pub(crate) use check::{Facts, FailedRun, TickAge};
pub(crate) use claim::{Claim, Claimed, Due, Holder, Lane, LaneName, Limited, Taken, Token, Wanted};
pub(crate) use definitions::{Applied, DueSchedule, FIRED_AT_ONCE, Others, Planned, Purpose, Scheduled};
pub(crate) use effects::Effect;
pub(crate) use enqueue::{NewRun, Queued};
pub(crate) use error::{Error, Kind, Result};
pub(crate) use exchange::{Exchanged, Exchanging, OfLocked};
pub(crate) use inspect::{
    GrantFacts, HolderFacts, IndexFacts, RoleFacts, RunFacts, SequenceFacts, SessionFacts, SnapshotFacts, TableFacts,
    WaitingFacts, ZoneFacts,
};
pub(crate) use look::{Filter, Run};
pub(crate) use operate::Asked;
pub(crate) use prune::Old;
pub(crate) use report::{Bin, Failure, Job, NextFire, Scope, Snapshot, Summary};
pub(crate) use runs::{Expired, Finish, Held, Recorded, Renewed};
pub(crate) use schema::Mode;
pub(crate) use session::{Limits, Pending};
pub(crate) use show::{Attempt, Shown};
pub(crate) use status::{JobStatus, Overview, RunningRun, Worker};

use crate::connect::{Client, Link, Parameter, Target};
use crate::duration::CENTURY;
use session::Session;

/// The text of a query file.
macro_rules! query {
    ($name:literal) => {
        include_str!(concat!("../../sql/queries/", $name, ".sql"))
    };
}
use query;

/// An open connection to a database whose schema is this program's.
pub(crate) struct Store {
    session: Session,
    limits: Limits,
    transactions: Cell<u64>,
}

impl Store {
    /// Connects, and has the first transaction make sure of the schema's version: it fails with
    /// `Exit::Schema`, and does nothing, where that is older or newer than the program's.
    ///
    /// # Errors
    /// Unreachable, or not allowed.
    pub(crate) fn open(target: &Target) -> anyhow::Result<Self> {
        let store = Self::connect(target)?;
        store.session.check_version();
        Ok(store)
    }

    /// Connects, whatever the schema's version is.
    ///
    /// # Errors
    /// Unreachable, or not allowed.
    pub(crate) fn connect(target: &Target) -> anyhow::Result<Self> {
        target.clone().connect(|| ()).wait().map(Self::over)
    }

    /// A connection as a store, whatever the schema's version is.
    pub(crate) fn over(link: Link) -> Self {
        Self { session: Session::over(link), limits: Limits::USUAL, transactions: Cell::new(0) }
    }

    /// Bounds every later statement.
    pub(crate) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// When this flag is set, a wait for an answer ends early; later calls wait as usual.
    pub(crate) fn interrupted_by(&mut self, flag: Arc<AtomicBool>) {
        self.session.interrupted_by(flag);
    }

    /// How many were asked for so far.
    pub(crate) fn transactions(&self) -> u64 {
        self.transactions.get()
    }

    fn transact<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl Fn(&mut Client) -> std::result::Result<T, postgres::Error> + Send + 'static,
    ) -> Result<T> {
        self.transactions.set(self.transactions.get() + 1);
        self.session.transact(doing, self.limits, work)
    }

    fn send<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl Fn(&mut Client) -> std::result::Result<T, postgres::Error> + Send + 'static,
        answered: impl FnOnce() + Send + 'static,
    ) -> Pending<T> {
        self.transactions.set(self.transactions.get() + 1);
        self.session.send(doing, self.limits, work, answered)
    }
}

/// A number of seconds as a duration: what the database may hold and `Duration` can't is cut off at
/// a century.
pub(crate) fn seconds(seconds: f64) -> Duration {
    let longest = CENTURY.as_secs_f64();
    Duration::from_secs_f64(if seconds.is_finite() { seconds.clamp(0.0, longest) } else { longest })
}

/// One row's columns, each decoded by `read`.
fn collect<T>(
    rows: Vec<Row>,
    read: impl Fn(&Row) -> std::result::Result<T, postgres::Error>,
) -> std::result::Result<Vec<T>, postgres::Error> {
    rows.iter().map(read).collect()
}
