//! The actions of an operator on runs: retry, cancel, settle, remove, prune.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::row::{owned, rows};
use super::{Archive, Error, Kind, Result, Store, query};
use crate::connect::Client;
use crate::exit::Exit;
use crate::job::status::Status;

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

rows! {
    /// A run's status before the action, and whether the action was granted.
    pub(crate) struct ActionResult {
        pub(crate) id: i64,
        pub(crate) status: String,
        pub(crate) granted: bool,
    }

    pub(crate) struct Pruned {
        pub(crate) id: i64,
        pub(crate) status: String,
        pub(crate) finished_at: DateTime<Utc>,
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
        let arguments = owned![ids, Status::words(from)];
        self.query("read runs", Client::list, query!("operate/dry_run"), arguments)
    }

    /// Performs an action on runs.
    pub(crate) fn act(
        &self,
        action: &RunAction,
        ids: Vec<i64>,
        from: &[Status],
        cause: &Cause,
    ) -> Result<Vec<ActionResult>> {
        let (statement, terms) = match action {
            RunAction::Retry(RetryTerms { cancelled_now, unsettled }) => {
                (query!("operate/retry"), owned![*cancelled_now, *unsettled])
            }
            RunAction::Cancel => (query!("operate/cancel"), owned![]),
            RunAction::Edit(edit) => return self.edit(ids, from, edit, cause),
            RunAction::Settle => (query!("operate/settle"), owned![]),
            RunAction::Remove => (query!("operate/remove"), owned![]),
        };
        let Cause { host_user, reason } = cause.clone();
        let mut arguments = owned![ids, Status::words(from), host_user, reason];
        arguments.extend(terms);
        self.query(action.verb(), Client::list, statement, arguments)
    }

    fn edit(
        &self,
        ids: Vec<i64>,
        from: &[Status],
        edit: &Edit,
        cause: &Cause,
    ) -> Result<Vec<ActionResult>> {
        let (from, Cause { host_user, reason }) = (Status::words(from), cause.clone());
        let edit = edit.clone();
        self.transact("edit", move |client| {
            let Edit { queue, priority, run_at, after, max_attempts, timeout, backoff, payload } =
                &edit;
            let answers: Vec<ActionResult> = client.list(
                query!("operate/edit"),
                &[
                    &ids,
                    &from,
                    &host_user,
                    &reason,
                    queue,
                    priority,
                    run_at,
                    after,
                    max_attempts,
                    timeout,
                    backoff,
                ],
            )?;
            // A separate statement, because an operator may not even name the column.
            if let Some(payload) = payload {
                let granted = answers.iter().filter(|answer| answer.granted);
                let granted: Vec<_> = granted.map(|answer| answer.id).collect();
                client.execute(
                    query!("operate/edit_payload"),
                    &[&granted, payload, &host_user, &reason],
                )?;
            }
            Ok(answers)
        })
    }

    /// Returns the jobs of runs.
    pub(crate) fn job_types(&self, ids: Vec<i64>) -> Result<Vec<String>> {
        self.query("read runs", Client::list, query!("look/job_types"), owned![ids])
    }

    /// Deletes at most `limit` old runs and their history: the oldest that come after `after`.
    /// Fewer deleted runs mean that no more are left. With dead runs, deletes events of that age.
    /// Appends the runs to the archive before the commit, so a crash in between leaves duplicates.
    pub(crate) fn prune(
        &self,
        old: OldRuns,
        after: Option<&Pruned>,
        limit: i64,
        cause: &Cause,
        archive: Option<&Archive>,
    ) -> Result<Vec<Pruned>> {
        let Cause { host_user, reason } = cause.clone();
        let (finished_at, id) = after.map(|last| (last.finished_at, last.id)).unzip();
        let (statuses, age) = (Status::words(old.statuses), old.age.as_secs_f64());
        let archive = archive.cloned();
        let pruned = self.transact("prune", move |client| {
            let pruned: Vec<Pruned> = client.list(
                query!("operate/prune"),
                &[
                    &statuses,
                    &age,
                    &finished_at,
                    &id,
                    &limit,
                    &host_user,
                    &reason,
                    &archive.is_some(),
                ],
            )?;
            let Some(archive) = &archive else { return Ok(Ok(pruned)) };
            let appended = archive.append(pruned.iter().filter_map(|run| run.json.as_deref()));
            if appended.is_err() {
                client.batch_execute("ROLLBACK AND CHAIN")?;
            }
            Ok(appended.map(|()| pruned))
        })?;
        pruned.map_err(|error| {
            let why = format!("cannot write the archive: {error}; these runs are not deleted");
            Error::new(Kind::Fatal, Exit::CouldNot, why)
        })
    }

    /// Deletes the rows of workers that stopped long ago.
    pub(crate) fn forget_workers(&self) -> Result<()> {
        let statement = query!("operate/forget_workers");
        self.query("delete old workers", Client::execute, statement, owned![]).map(drop)
    }

    /// Counts, by status, the runs that repeated calls of `prune` would delete.
    pub(crate) fn count_old(&self, old: OldRuns) -> Result<Vec<(String, i64)>> {
        let arguments = owned![Status::words(old.statuses), old.age.as_secs_f64()];
        self.query("count old runs", Client::list, query!("operate/count_old"), arguments)
    }
}
