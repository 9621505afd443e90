//! The actions of an operator: retry, cancel, edit, settle, remove and prune runs; hold jobs,
//! queues and workers, which claims then skip.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::row::{Argument, Arguments, borrowed, owned, rows};
use super::session::Transaction;
use super::{Archive, Error, Kind, Result, Store, query};
use crate::exit::Exit;
use crate::job::status::Status;
use crate::text::listing::Listing;

/// The person that asks for a change, and the reason; both go to the trail.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    /// The user and the host, as in `ana@web1`.
    pub(crate) host_user: String,
    pub(crate) reason: Option<String>,
}

/// An action on runs by id.
#[derive(Debug)]
pub(crate) enum RunAction {
    /// Queues runs again. A running run is taken from its worker.
    Retry(RetryTerms),
    /// Stops runs.
    Cancel,
    Edit(Edit),
    /// Closes dead runs: they stay dead, and are no longer reported.
    Settle,
    /// Deletes finished runs.
    Remove,
}

impl RunAction {
    /// Returns the name of the command.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Self::Retry(_) => "retry",
            Self::Cancel => "cancel",
            Self::Edit(_) => "edit",
            Self::Settle => "settle",
            Self::Remove => "prune",
        }
    }
}

/// The terms of a retry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryTerms {
    /// Cancelled runs become due now, not at the time they had.
    pub(crate) cancelled_now: bool,
    /// Settled runs are left out, as if they did not exist.
    pub(crate) unsettled: bool,
}

/// New values of runs; `None` keeps the old one.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub(crate) queue: Option<String>,
    pub(crate) priority: Option<i32>,
    pub(crate) run_at: Option<DateTime<Utc>>,
    /// Seconds after the database's current time; excludes `run_at`.
    pub(crate) after: Option<f64>,
    /// A run that has already started this many times is refused.
    pub(crate) max_attempts: Option<i32>,
    /// Seconds.
    pub(crate) timeout: Option<f64>,
    pub(crate) backoff: Option<String>,
    /// JSON text that fits the jobs of the runs.
    pub(crate) payload: Option<String>,
}

/// The runs that `prune` deletes: their statuses, and the least time since they finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldRuns {
    pub(crate) statuses: &'static [Status],
    pub(crate) age: Duration,
}

/// What a hold applies to.
#[derive(Clone, Debug)]
pub(crate) struct HoldTarget {
    /// `job`, `queue`, `worker` or `all`.
    pub(crate) scope: &'static str,
    /// Empty for the scope `all`.
    pub(crate) name: String,
}

rows! {
    /// A run's status before the action, and whether the action was granted.
    pub(crate) struct ActionResult {
        pub(crate) id: i64,
        pub(crate) status: String,
        pub(crate) granted: bool,
    }

    /// Whether a worker was deleted.
    pub(crate) struct ForgetResult {
        pub(crate) forgotten: bool,
        pub(crate) last_tick_at: DateTime<Utc>,
        pub(crate) now: DateTime<Utc>,
    }

    pub(crate) struct OldRun {
        pub(crate) id: i64,
        pub(crate) finished_at: DateTime<Utc>,
    }

    pub(crate) struct Pruned {
        pub(crate) id: i64,
        pub(crate) status: String,
        /// The run and its history, if it is archived.
        pub(crate) json: Option<String>,
    }
}

/// The actions on ids apply to the runs whose status is one of `from`. An id that is missing from
/// the answer does not exist.
impl Store {
    /// Returns the answers that a request would get by the statuses of the runs, and changes
    /// nothing. It does not detect two conflicts: another run has the key, or no start would be
    /// left.
    pub(crate) fn dry_run(&self, ids: Vec<i64>, from: &[Status]) -> Result<Vec<ActionResult>> {
        let arguments = owned![ids, from.to_vec()];
        self.query("read runs", Transaction::list, query!("operate/dry_run"), arguments)
    }

    /// Performs an action on runs. Skips runs that another session has locked, and returns them
    /// too; or waits for them.
    pub(crate) fn act(
        &self,
        action: &RunAction,
        ids: Vec<i64>,
        from: &[Status],
        cause: &Cause,
        skips_locked: bool,
    ) -> Result<(Vec<ActionResult>, Vec<i64>)> {
        let (statement, terms) = match action {
            RunAction::Retry(RetryTerms { cancelled_now, unsettled }) => {
                (query!("operate/retry"), owned![*cancelled_now, *unsettled])
            }
            RunAction::Cancel => (query!("operate/cancel"), owned![]),
            RunAction::Edit(edit) => {
                let Edit { queue, run_at, after, timeout, backoff, .. } = edit.clone();
                let (priority, max_attempts) = (edit.priority, edit.max_attempts);
                let terms = owned![queue, priority, run_at, after, max_attempts, timeout, backoff];
                (query!("operate/edit"), terms)
            }
            RunAction::Settle => (query!("operate/settle"), owned![]),
            RunAction::Remove => (query!("operate/remove"), owned![]),
        };
        let payload = match action {
            RunAction::Edit(edit) => edit.payload.clone(),
            _ => None,
        };
        let Cause { host_user, reason } = cause.clone();
        let mut rest = owned![from.to_vec(), host_user.clone(), reason.clone()];
        rest.extend(terms);
        self.transact(action.verb(), move |transaction| {
            let locked: Vec<i64> = match skips_locked {
                true => transaction.list(query!("operate/locked"), &[&ids])?,
                false => Vec::new(),
            };
            let free: Vec<_> = ids.iter().copied().filter(|id| !locked.contains(id)).collect();
            let mut arguments: Vec<&dyn Argument> = vec![&free];
            arguments.extend(borrowed(&rest));
            let answers: Vec<ActionResult> = transaction.list(statement, &arguments)?;
            // A separate statement, because an operator may not even name the column.
            if let Some(payload) = &payload {
                let granted = answers.iter().filter(|answer| answer.granted);
                let granted: Vec<_> = granted.map(|answer| answer.id).collect();
                let arguments: Arguments<'_> = &[&granted, payload, &host_user, &reason];
                transaction.execute(query!("operate/edit_payload"), arguments)?;
            }
            Ok((answers, locked))
        })
    }

    /// Returns the jobs of runs.
    pub(crate) fn job_types(&self, ids: Vec<i64>) -> Result<Vec<String>> {
        self.query("read runs", Transaction::list, query!("look/job_types"), owned![ids])
    }

    /// Returns at most `limit` old runs, the oldest that come after `after`.
    pub(crate) fn old_runs(
        &self,
        old: OldRuns,
        after: Option<&OldRun>,
        limit: i64,
    ) -> Result<Vec<OldRun>> {
        let (finished_at, id) = after.map(|last| (last.finished_at, last.id)).unzip();
        let (statuses, age) = (old.statuses.to_vec(), old.age.as_secs_f64());
        let arguments = owned![statuses, age, finished_at, id, limit];
        self.query("look for old runs", Transaction::list, query!("operate/old_runs"), arguments)
    }

    /// Deletes those of the runs that are old, and their history. Appends them to the archive
    /// before the commit, so a crash in between leaves duplicates.
    pub(crate) fn prune(
        &self,
        ids: Vec<i64>,
        old: OldRuns,
        cause: &Cause,
        archive: Option<&Archive>,
    ) -> Result<Vec<Pruned>> {
        let Cause { host_user, reason } = cause.clone();
        let (statuses, age) = (old.statuses.to_vec(), old.age.as_secs_f64());
        let archive = archive.cloned();
        let pruned = self.transact("prune", move |transaction| {
            let pruned: Vec<Pruned> = transaction.list(
                query!("operate/prune"),
                &[&ids, &statuses, &age, &host_user, &reason, &archive.is_some()],
            )?;
            let Some(archive) = &archive else { return Ok(Ok(pruned)) };
            let appended = archive.append(pruned.iter().filter_map(|run| run.json.as_deref()));
            if appended.is_err() {
                transaction.batch_execute("ROLLBACK AND CHAIN")?;
            }
            Ok(appended.map(|()| pruned))
        })?;
        pruned.map_err(|error| {
            let why = format!("cannot write the archive: {error}; these runs are not deleted");
            Error::new(Kind::Busy, Exit::CouldNot, why)
        })
    }

    /// Returns events of the trail that are older than `age` and than 90 days, the oldest first.
    pub(crate) fn old_events(&self, age: Duration, limit: i64) -> Result<Vec<i64>> {
        let arguments = owned![age.as_secs_f64(), limit];
        self.query(
            "look for old events",
            Transaction::list,
            query!("operate/old_events"),
            arguments,
        )
    }

    /// Deletes events of the trail.
    pub(crate) fn prune_events(&self, ids: Vec<i64>) -> Result<()> {
        let statement = query!("operate/prune_events");
        self.query("prune", Transaction::execute, statement, owned![ids]).map(drop)
    }

    /// Returns the workers that stopped long ago.
    pub(crate) fn old_workers(&self) -> Result<Vec<String>> {
        self.query(
            "look for old workers",
            Transaction::list,
            query!("operate/old_workers"),
            owned![],
        )
    }

    /// Deletes those of the workers that stopped long ago.
    pub(crate) fn forget_workers(&self, names: Vec<String>) -> Result<()> {
        let statement = query!("operate/forget_workers");
        self.query("delete old workers", Transaction::execute, statement, owned![names]).map(drop)
    }

    /// Deletes a worker and its holds, unless it ticks now or holds runs. `None`: no such worker.
    pub(crate) fn forget_worker(
        &self,
        worker: String,
        cause: Cause,
    ) -> Result<Option<ForgetResult>> {
        let arguments = owned![worker, cause.host_user, cause.reason];
        self.query("forget the worker", Transaction::first, query!("operate/forget"), arguments)
    }

    /// Accepts a restored database: ticks that remember a newer one start runs again. Returns
    /// whether a tick had noticed the restore.
    pub(crate) fn accept_restore(&self, cause: Cause) -> Result<bool> {
        let (statement, arguments) =
            (query!("operate/accept_restore"), owned![cause.host_user, cause.reason]);
        self.query("accept the database", Transaction::one, statement, arguments)
    }

    /// Counts, by status, the runs that repeated calls of `prune` would delete.
    pub(crate) fn count_old(&self, old: OldRuns) -> Result<Vec<(String, i64)>> {
        let arguments = owned![old.statuses.to_vec(), old.age.as_secs_f64()];
        self.query("count old runs", Transaction::list, query!("operate/count_old"), arguments)
    }

    /// Keeps waiting runs from being claimed, for `lasts` or until they are released. Returns until
    /// when.
    pub(crate) fn hold(
        &self,
        target: HoldTarget,
        lasts: Option<Duration>,
        cause: Cause,
    ) -> Result<Option<DateTime<Utc>>> {
        let (HoldTarget { scope, name }, Cause { host_user, reason }) = (target, cause);
        let lasts = lasts.map(|lasts| lasts.as_secs_f64());
        let arguments = owned![scope, name, lasts, host_user, reason];
        self.query("hold", Transaction::one, query!("operate/hold"), arguments)
    }

    /// Returns the names that exist in the scope of a target, if it is `queue` or `worker`.
    pub(crate) fn hold_names(&self, target: HoldTarget) -> Result<Vec<String>> {
        let arguments = owned![target.scope, target.name];
        self.query("read names", Transaction::list, query!("look/hold_names"), arguments)
    }

    /// Ends the holds of a target. Returns the scope and the name of each that was in force.
    pub(crate) fn end_holds(
        &self,
        target: HoldTarget,
        cause: Cause,
    ) -> Result<Vec<(String, String)>> {
        let arguments = owned![target.scope, target.name, cause.host_user, cause.reason];
        self.query("release", Transaction::list, query!("operate/release"), arguments)
    }

    /// Returns the holds that are in force, the oldest first.
    pub(crate) fn holds(&self) -> Result<Listing> {
        self.query("read holds", Transaction::listing, query!("look/list_holds"), owned![])
    }
}
