//! The operations of an operator: retry, cancel, edit, settle, remove and prune runs; hold jobs,
//! queues and workers, which claims then skip.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::row::{PgResult, column, rows};
use super::statement::query;
use super::transaction::Transaction;
use super::{Archive, Error, Kind, Result, Store, Timeouts};
use crate::exit::Exit;
use crate::job::status::{HoldScope, Status};
use crate::text::listing::Listing;

/// How long the second try of an operation on a single run may take, after the first one took
/// longer than the usual limit.
const SINGLE_RUN: Duration = Duration::from_secs(300);

/// The person that asks for a change, and the reason; both go to the trail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cause {
    /// The user and the host, as in `ana@web1`.
    pub(crate) host_user: String,
    pub(crate) reason: Option<String>,
    /// The name under which a command for many runs can be undone; `None`: it can't.
    pub(crate) operation: Option<String>,
}

/// What to do with runs by id.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Queues runs again. A running run is taken from its worker.
    Retry(RetryTerms),
    /// Cancels runs. A running one is asked to stop.
    Cancel,
    /// Changes settings or the payload of runs that do not run.
    Edit(Edit),
    /// Closes dead runs: they stay dead, and are no longer reported.
    Settle,
    /// Deletes finished runs.
    Remove,
    /// Undoes the operation with this name.
    Undo(String),
}

impl Operation {
    /// Returns the name of the command.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Self::Retry(_) => "retry",
            Self::Cancel => "cancel",
            Self::Edit(_) => "edit",
            Self::Settle => "settle",
            Self::Remove => "prune",
            Self::Undo(_) => "undo",
        }
    }
}

/// The terms of a retry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryTerms {
    /// Whether cancelled runs become due now, not at the time that they had.
    pub(crate) cancelled_now: bool,
    /// Whether to leave out settled runs, as if they did not exist.
    pub(crate) unsettled: bool,
}

/// New values of runs; `None` keeps the old one.
#[derive(Clone, Debug, Default)]
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

/// How long runs are kept after their end, if their definition does not say it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// For succeeded and cancelled runs.
    pub(crate) ended: Duration,
    /// For dead runs.
    pub(crate) dead: Duration,
}

impl Keep {
    /// Returns both in seconds: for succeeded and cancelled runs, and for dead runs.
    fn seconds(self) -> (f64, f64) {
        (self.ended.as_secs_f64(), self.dead.as_secs_f64())
    }
}

/// What a hold applies to.
#[derive(Clone, Debug)]
pub(crate) struct HoldTarget {
    pub(crate) scope: HoldScope,
    /// Empty for all runs.
    pub(crate) name: String,
}

rows! {
    /// The runs of hold targets that still run.
    pub(crate) struct HeldRunning {
        /// How many runs are running.
        pub(crate) running: i64,
        /// Whether each of the targets is held.
        pub(crate) is_held: bool,
    }
}

rows! {
    /// The answer to an operation on a run.
    pub(crate) struct OperationResult {
        pub(crate) id: i64,
        /// The status before the operation.
        pub(crate) status: Status,
        /// Whether the operation was possible.
        pub(crate) granted: bool,
        /// Whether a retried run is blocked until other runs have ended.
        pub(crate) is_blocked: bool,
    }

    /// The answer to the deletion of a worker.
    pub(crate) struct ForgetResult {
        /// Whether the worker was deleted.
        pub(crate) forgotten: bool,
        /// `None`: the worker never ticked, and had holds.
        pub(crate) last_tick_at: Option<DateTime<Utc>>,
        /// By the database's clock.
        pub(crate) now: DateTime<Utc>,
    }

    /// A restore that was accepted, see operate/accept_restore.sql.
    pub(crate) struct AcceptedRestore {
        /// How many ids new runs must skip, so that the ids of lost runs do not come again.
        pub(crate) skipped: i64,
        /// Whether new runs skip them already: only the schema's owner may change the sequence.
        pub(crate) ids_are_raised: bool,
    }

    /// A run of a job, see operate/old_runs.sql.
    pub(crate) struct AgedRun {
        pub(crate) id: i64,
        /// Whether to delete the run.
        pub(crate) is_old: bool,
        /// Whether the run was created so lately that no later run is old.
        pub(crate) is_young: bool,
    }

    /// A deleted run.
    pub(crate) struct Pruned {
        pub(crate) id: i64,
        pub(crate) status: Status,
        /// The run and its history, if it is archived.
        pub(crate) json: Option<String>,
    }
}

impl Store {
    /// Returns the answers that an operation would get, as far as the statuses of the runs decide
    /// it, and changes nothing. Two conflicts are not detected: another run has the key, or no
    /// start would be left. A run that does not exist has no answer.
    ///
    /// - `from`: the statuses in which the operation is granted.
    pub(crate) fn dry_run(&self, ids: Vec<i64>, from: &[Status]) -> Result<Vec<OperationResult>> {
        let statement = query!("operate/dry_run"; ids, from);
        self.query("read runs", Transaction::list, statement)
    }

    /// Performs an operation on runs. Returns the answers, and the ids of the skipped runs. A run
    /// that does not exist has no answer. A single run that takes too long gets more time, because
    /// an operator must be able to end a run that no tick can end in time.
    ///
    /// - `from`: the statuses in which the operation is granted.
    /// - `skips_locked`: whether to skip runs that another session has locked. Otherwise waits for
    ///   the locks.
    pub(crate) fn operate(
        &self,
        operation: &Operation,
        ids: Vec<i64>,
        from: &[Status],
        cause: &Cause,
        skips_locked: bool,
    ) -> Result<(Vec<OperationResult>, Vec<i64>)> {
        let doing = match operation {
            Operation::Edit(Edit { payload: Some(_), .. }) => "edit payloads",
            _ => operation.verb(),
        };
        let operate = |transaction: &mut Transaction<'_>| {
            let mut skipped: Vec<i64> = Vec::new();
            if skips_locked {
                // Locks the other runs, so that `perform` waits for none.
                skipped = transaction.list(query!("operate/lock_runs"; ids))?;
            }
            let chosen: Vec<_> = ids.iter().copied().filter(|id| !skipped.contains(id)).collect();
            let answers = perform(transaction, operation, &chosen, from, cause)?;
            Ok((answers, skipped))
        };
        match self.transact(doing, operate) {
            Err(error) if error.is_too_slow && ids.len() == 1 => {
                let timeouts = Timeouts { statement: SINGLE_RUN, ..self.timeouts };
                self.transact_within(timeouts, doing, operate)
            }
            result => result,
        }
    }

    /// Returns the runs that an operation changed.
    pub(crate) fn operation_runs(&self, name: &str) -> Result<Vec<i64>> {
        let statement = query!("operate/operation_runs"; operation = name);
        self.query("read the trail", Transaction::list, statement)
    }

    /// Returns the jobs of runs.
    pub(crate) fn job_types(&self, ids: Vec<i64>) -> Result<Vec<String>> {
        self.query("read runs", Transaction::list, query!("look/job_types"; ids))
    }

    /// Returns the jobs that may have old runs. With each job, returns for how many seconds it
    /// keeps succeeded and cancelled runs, and dead runs.
    pub(crate) fn prunable_jobs(&self, default: Keep) -> Result<Vec<(String, f64, f64)>> {
        let (keep, keep_dead) = default.seconds();
        let statement = query!("operate/prunable_jobs"; keep, keep_dead);
        self.query("look for old runs", Transaction::list, statement)
    }

    /// Returns runs of a job, in the order of their ids, and whether each is old.
    ///
    /// - `dead`: whether to return only its dead runs. Otherwise returns all its runs that are not
    ///   running. Of these, only runs that succeeded or were cancelled can be old.
    /// - `age`: a run is old this many seconds after its end.
    /// - `after`: returns only runs with larger ids.
    /// - `limit`: returns at most this many runs.
    pub(crate) fn aged_runs(
        &self,
        job: &str,
        dead: bool,
        age: f64,
        after: i64,
        limit: i64,
    ) -> Result<Vec<AgedRun>> {
        let statement = if dead {
            query!("operate/old_dead_runs"; job, age, after, limit)
        } else {
            query!("operate/old_runs"; job, age, after, limit)
        };
        self.query("look for old runs", Transaction::list, statement)
    }

    /// Returns the id of the newest run of a job; `None` if it has none.
    pub(crate) fn newest_run(&self, job: &str) -> Result<Option<i64>> {
        let statement = query!("operate/newest_run"; job);
        self.query("look for old runs", Transaction::one, statement)
    }

    /// Deletes those of the runs that are old, and their history. With an archive, appends them to
    /// it before the commit. So a crash in between loses no run, but the next prune archives these
    /// runs again.
    pub(crate) fn prune(
        &self,
        ids: Vec<i64>,
        default: Keep,
        cause: &Cause,
        archive: Option<&Archive>,
    ) -> Result<Vec<Pruned>> {
        let Cause { host_user, reason, .. } = cause;
        let (keep, keep_dead) = default.seconds();
        let archives = archive.is_some();
        let (pruned, appended) = self.transact("prune", |transaction| {
            if archives {
                transaction.execute(query!("schema/plain_texts"))?;
            }
            let pruned: Vec<Pruned> = transaction
                .list(query!("operate/prune"; ids, keep, keep_dead, host_user, reason, archives))?;
            let lines = pruned.iter().filter_map(|run| run.json.as_deref());
            let appended = match archive {
                Some(archive) => archive.append(lines),
                None => Ok(()),
            };
            if appended.is_err() {
                transaction.undo()?;
            }
            Ok((pruned, appended))
        })?;
        appended.map_err(|error| {
            let why = format!("cannot write the archive: {error}; these runs are not deleted");
            Error::new(Kind::Busy, Exit::CouldNot, why)
        })?;
        Ok(pruned)
    }

    /// Returns the ids of at most `limit` events of the trail that are older than `age` and older
    /// than 90 days, the oldest first.
    pub(crate) fn old_events(&self, age: Duration, limit: i64) -> Result<Vec<i64>> {
        let statement = query!("operate/old_events"; age = age.as_secs_f64(), limit);
        self.query("look for old events", Transaction::list, statement)
    }

    /// Deletes events of the trail.
    pub(crate) fn prune_events(&self, ids: Vec<i64>) -> Result<()> {
        let statement = query!("operate/prune_events"; ids);
        self.query("prune", Transaction::execute, statement).map(drop)
    }

    /// Records problems that were reported. `jobs` and `details` have the job and the line of each
    /// problem, and `delivery` says whether the receiver got them.
    pub(crate) fn record_alerts(
        &self,
        host_user: &str,
        delivery: &str,
        jobs: Vec<Option<&str>>,
        details: Vec<String>,
    ) -> Result<()> {
        let statement = query!("operate/record_alerts"; host_user, delivery, jobs, details);
        self.query("record the alerts", Transaction::execute, statement).map(drop)
    }

    /// Returns the workers that stopped long ago.
    pub(crate) fn old_workers(&self) -> Result<Vec<String>> {
        self.query("look for old workers", Transaction::list, query!("operate/old_workers"))
    }

    /// Deletes those of the workers that stopped long ago.
    pub(crate) fn forget_workers(&self, names: Vec<String>) -> Result<()> {
        let statement = query!("operate/prune_workers"; names);
        self.query("delete old workers", Transaction::execute, statement).map(drop)
    }

    /// Deletes a worker and its holds, unless it ticks now or has claimed runs. Returns `None` if
    /// there is no such worker.
    pub(crate) fn forget_worker(
        &self,
        worker: String,
        cause: Cause,
    ) -> Result<Option<ForgetResult>> {
        let Cause { host_user, reason, .. } = cause;
        let statement = query!("operate/forget_worker"; worker, host_user, reason);
        self.query("forget the worker", Transaction::first, statement)
    }

    /// Accepts a restored database, so that ticks that remember a newer state of it start runs
    /// again. If no tick has noticed a restore, accepts it only with `unnoticed`, and returns
    /// `None` otherwise.
    pub(crate) fn accept_restore(
        &self,
        cause: Cause,
        unnoticed: bool,
    ) -> Result<Option<AcceptedRestore>> {
        let Cause { host_user, reason, .. } = cause;
        let statement = query!("operate/accept_restore"; host_user, reason, unnoticed);
        self.query("accept the database", Transaction::first, statement)
    }

    /// Counts, by status, the runs that repeated calls of `prune` would delete.
    pub(crate) fn count_old(&self, default: Keep) -> Result<Vec<(Status, i64)>> {
        let (keep, keep_dead) = default.seconds();
        let statement = query!("operate/count_old"; keep, keep_dead);
        self.query("count old runs", Transaction::list, statement)
    }

    /// Counts the running runs of these targets, and checks that each target is held.
    pub(crate) fn held_running(&self, targets: &[HoldTarget]) -> Result<HeldRunning> {
        let scopes = column(targets, |target| target.scope);
        let names = column(targets, |target| target.name.as_str());
        self.query("count runs", Transaction::one, query!("look/held_running"; scopes, names))
    }

    /// Holds targets: no claim takes their runs for `lasts`, or until the targets are released.
    /// Returns until when, for each target; `None`: until it is released.
    pub(crate) fn hold(
        &self,
        targets: Vec<HoldTarget>,
        lasts: Option<Duration>,
        cause: Cause,
    ) -> Result<Vec<Option<DateTime<Utc>>>> {
        let lasts = lasts.map(|lasts| lasts.as_secs_f64());
        self.transact("hold", |transaction| {
            let Cause { host_user, reason, .. } = &cause;
            let mut ends = Vec::new();
            for HoldTarget { scope, name } in &targets {
                let statement = query!("operate/hold"; scope, name, lasts, host_user, reason);
                ends.push(transaction.one(statement)?);
            }
            Ok(ends)
        })
    }

    /// Returns the names of all workers, or of the queues that definitions and workers name. If
    /// waiting runs have the queue `name`, it is one of these.
    pub(crate) fn hold_names(&self, scope: HoldScope, name: &str) -> Result<Vec<String>> {
        self.query("read names", Transaction::list, query!("look/hold_names"; scope, name))
    }

    /// Ends the holds of these targets. Returns the scope and the name of each that was in force.
    pub(crate) fn end_holds(
        &self,
        targets: Vec<HoldTarget>,
        cause: Cause,
    ) -> Result<Vec<(HoldScope, String)>> {
        self.transact("release", |transaction| {
            let Cause { host_user, reason, .. } = &cause;
            let mut ended = Vec::new();
            for HoldTarget { scope, name } in &targets {
                let statement = query!("operate/release"; scope, name, host_user, reason);
                ended.append(&mut transaction.list(statement)?);
            }
            Ok(ended)
        })
    }

    /// Returns the holds that are in force, the oldest first.
    pub(crate) fn list_holds(&self) -> Result<Listing> {
        self.query("read holds", Transaction::listing, query!("look/list_holds"))
    }
}

/// Performs an operation on runs, and returns the answers.
fn perform(
    transaction: &mut Transaction<'_>,
    operation: &Operation,
    ids: &[i64],
    from: &[Status],
    Cause { host_user, reason, operation: name }: &Cause,
) -> PgResult<Vec<OperationResult>> {
    let answers: Vec<OperationResult> = match operation {
        Operation::Retry(RetryTerms { cancelled_now, unsettled }) => transaction.list(query!(
            "operate/retry";
            ids, from, host_user, reason, cancelled_now, unsettled, operation = name,
        )),
        Operation::Cancel => transaction
            .list(query!("operate/cancel"; ids, from, host_user, reason, operation = name)),
        Operation::Edit(edit) => {
            let Edit { queue, priority, run_at, after, max_attempts, timeout, backoff, .. } = edit;
            transaction.list(query!(
                "operate/edit";
                ids, from, host_user, reason,
                queue, priority, run_at, after, max_attempts, timeout, backoff,
                operation = name,
            ))
        }
        Operation::Settle => transaction
            .list(query!("operate/settle"; ids, from, host_user, reason, operation = name)),
        Operation::Remove => transaction
            .list(query!("operate/remove"; ids, from, host_user, reason, operation = name)),
        Operation::Undo(undone) => {
            transaction.list(query!("operate/undo"; ids, operation = undone, host_user, reason))
        }
    }?;
    // The payload has a statement of its own, because the role of an operator has no privilege for
    // this column, and PostgreSQL rejects even statements that only name it.
    if let Operation::Edit(Edit { payload: Some(payload), .. }) = operation {
        let granted = answers.iter().filter(|answer| answer.granted);
        let ids: Vec<_> = granted.map(|answer| answer.id).collect();
        transaction.execute(query!(
            "operate/edit_payload"; ids, payload, host_user, reason, operation = name,
        ))?;
    }
    Ok(answers)
}
