//! Lists of runs, of dead runs and of failed attempts that match a filter.

use chrono::{DateTime, Utc};

use super::row::{PgResult, rows};
use super::statement::query;
use super::transaction::Transaction;
use super::{Result, Store};
use crate::job::failure::ErrorType;
use crate::job::status::Status;
use crate::text::listing::Listing;

/// Selects runs; an absent part selects all.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunFilter {
    /// Empty for all.
    pub(crate) statuses: Vec<Status>,
    pub(crate) job: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) key: Option<String>,
    /// The beginning of the key.
    pub(crate) key_prefix: Option<String>,
    pub(crate) share: Option<String>,
    /// A text in the last error, or if the last attempt failed, in the last line of its output.
    pub(crate) error: Option<String>,
    /// Paths in the payload, with dots between their parts, and the values there.
    pub(crate) payload: Vec<(String, String)>,
    /// The login that enqueued the run.
    pub(crate) enqueued_by: Option<String>,
    pub(crate) error_type: Option<ErrorType>,
    /// The start of the window. A run is in the window by its end, or by its creation while it has
    /// not ended.
    pub(crate) since: Option<DateTime<Utc>>,
    /// The end of the window, exclusive.
    pub(crate) until: Option<DateTime<Utc>>,
    /// Only runs with an attempt on this worker, finished or running.
    pub(crate) worker: Option<String>,
    /// Only runs of which an attempt failed.
    pub(crate) had_failures: bool,
    /// Leaves out settled runs, and cancelled runs that no operator cancelled.
    pub(crate) unsettled: bool,
    /// Only these runs.
    pub(crate) ids: Option<Vec<i64>>,
}

impl RunFilter {
    /// Returns whether no index finds the matching runs, so that a search may read all runs of the
    /// table.
    pub(crate) fn reads_all(&self) -> bool {
        // Indexes don't help to find these values.
        let texts = [&self.key_prefix, &self.share, &self.worker, &self.error, &self.enqueued_by];
        let has_text = texts.into_iter().any(Option::is_some) || !self.payload.is_empty();
        // Most runs have one of these statuses. Few runs have any other.
        let is_frequent = |status: &Status| matches!(status, Status::Succeeded | Status::Cancelled);
        let is_over_many = self.statuses.is_empty() || self.statuses.iter().any(is_frequent);
        let is_bounded = self.since.is_some() || self.ids.is_some();
        has_text && is_over_many && !is_bounded
    }
}

/// Selects failed attempts by their end.
#[derive(Clone, Debug)]
pub(crate) struct FailureFilter {
    pub(crate) since: Option<DateTime<Utc>>,
    /// The end of the window, exclusive.
    pub(crate) until: Option<DateTime<Utc>>,
    /// Empty for all.
    pub(crate) jobs: Vec<String>,
    pub(crate) worker: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) share: Option<String>,
    pub(crate) error_type: Option<ErrorType>,
    /// A text in the error or in the last line of output.
    pub(crate) error: Option<String>,
    /// Only attempts of this incident.
    pub(crate) incident: Option<String>,
}

impl FailureFilter {
    /// Returns whether it selects all failed attempts between `since` and `until`.
    fn selects_whole_window(&self) -> bool {
        // Name every field, so that a new one does not compile before it is considered here.
        let Self { since: _, until: _, jobs, worker, queue, share, error_type, error, incident } =
            self;
        let texts = [worker, queue, share, error, incident];
        texts.into_iter().all(Option::is_none) && jobs.is_empty() && error_type.is_none()
    }
}

rows! {
    /// Identifies an attempt.
    struct AttemptNumber {
        run_id: i64,
        attempt: i32,
    }

    /// The name of an incident, and the ends of its first and its last attempt.
    pub(crate) struct IncidentWindow {
        pub(crate) incident: String,
        pub(crate) first_at: DateTime<Utc>,
        pub(crate) last_at: DateTime<Utc>,
    }

    /// Failed attempts with one cause, over all jobs and workers: one incident or several.
    pub(crate) struct Incident {
        /// The run and the number of its first attempt, as in 17.2.
        pub(crate) incident: String,
        pub(crate) error_type: Option<String>,
        /// The last line of output or the error, without values.
        pub(crate) cause: Option<String>,
        pub(crate) first_finished_at: DateTime<Utc>,
        pub(crate) last_finished_at: DateTime<Utc>,
        /// The number of attempts.
        pub(crate) failures: i64,
        pub(crate) runs: i64,
        pub(crate) jobs: Vec<String>,
        pub(crate) workers: Vec<String>,
        /// The number of shares.
        pub(crate) shares: i64,
        /// Runs whose last failed attempt is one of the incident's: dead and not settled.
        pub(crate) dead: i64,
        /// Runs that have not finished.
        pub(crate) waiting: i64,
        /// Runs that succeeded later.
        pub(crate) recovered: i64,
        pub(crate) settled: i64,
        /// The run of the newest attempt.
        pub(crate) newest_id: i64,
        /// The number of incidents, if they are several.
        pub(crate) times: Option<i64>,
        /// The last line of output or the error of the newest attempt; `None` for a role that may
        /// not read outputs.
        pub(crate) newest_cause: Option<String>,
        /// The number of all rows.
        pub(crate) total: i64,
    }
}

impl Incident {
    /// Makes the text of the newest attempt the cause, if the role may read it.
    pub(super) fn tell_newest(&mut self) {
        if let Some(newest) = self.newest_cause.take() {
            self.cause = Some(newest);
        }
    }
}

/// Selects events of the trail.
#[derive(Clone, Debug)]
pub(crate) struct TrailFilter {
    pub(crate) since: Option<DateTime<Utc>>,
    /// The end of the window, exclusive.
    pub(crate) until: Option<DateTime<Utc>>,
    /// A text in the system user, the host or the database role.
    pub(crate) by: Option<String>,
    pub(crate) action: Option<String>,
    pub(crate) job: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) worker: Option<String>,
}

rows! {
    /// The settings of a run, to compare them before and after a replacement.
    pub(crate) struct Run {
        pub(crate) id: i64,
        pub(crate) queue: String,
        pub(crate) priority: i32,
        pub(crate) max_attempts: i32,
        pub(crate) timeout: Option<f64>,
        pub(crate) backoff: String,
    }
}

/// The columns and the order of a list of runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunList {
    /// The newest first. With `until`, the latest end first, because an index has this order.
    Any,
    /// For dead runs, the latest death first.
    Dead,
}

/// The order in which runs are found, which decides which of them a limit leaves out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RunOrder {
    /// By creation.
    NewestFirst,
    /// By end, or by creation for runs that have not ended.
    LatestEndFirst,
}

/// The rows of the trail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TrailRows {
    /// A row for each event.
    Events,
    /// A row for each command: equal events of several runs are one row.
    Commands,
}

/// The runs that are related to a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Relation {
    /// The runs that wait for it.
    Followers,
    /// The runs for which it waits.
    Predecessors,
}

/// The fields of dead runs.
const DEAD_FIELDS: &str = "id job_type queue attempts max_attempts error_type last_error \
                           idempotency_key failed_at finished_at settled_at created_at share \
                           worker enqueued_by last_line";

impl Store {
    /// Returns the runs that match.
    pub(crate) fn list_runs(
        &self,
        list: RunList,
        filter: RunFilter,
        limit: i64,
    ) -> Result<Listing> {
        self.transact("list runs", |transaction| {
            let order = match list {
                RunList::Any if filter.until.is_none() => RunOrder::NewestFirst,
                RunList::Any | RunList::Dead => RunOrder::LatestEndFirst,
            };
            let ids = list_ids(transaction, &filter, order, Some(limit))?;
            let mut runs = transaction.listing(query!("look/list_runs"; ids))?;
            let fields: Vec<_> = match list {
                RunList::Any => {
                    runs.names.iter().filter(|name| *name != "settled_at").cloned().collect()
                }
                RunList::Dead => {
                    runs.now = None;
                    DEAD_FIELDS.split(' ').map(str::to_owned).collect()
                }
            };
            // This can't fail, because each field is a column of the statement.
            runs.select(&fields).ok();
            Ok(runs)
        })
    }

    /// Returns these runs.
    pub(crate) fn runs(&self, ids: Vec<i64>) -> Result<Vec<Run>> {
        self.query("read runs", Transaction::list, query!("look/list_runs"; ids))
    }

    /// Returns the ids of the runs that match, the newest first.
    pub(crate) fn list_ids(&self, filter: RunFilter) -> Result<Vec<i64>> {
        self.transact("list runs", |transaction| {
            list_ids(transaction, &filter, RunOrder::NewestFirst, None)
        })
    }

    /// Counts the dead runs that match by job and error type, the largest group first.
    pub(crate) fn group_dead(&self, filter: RunFilter) -> Result<Listing> {
        self.transact("count dead runs", |transaction| {
            let ids = list_ids(transaction, &filter, RunOrder::NewestFirst, None)?;
            transaction.listing(query!("look/group_dead"; ids))
        })
    }

    /// Returns the events of the trail that match, the newest first.
    pub(crate) fn list_trail(
        &self,
        filter: TrailFilter,
        limit: i64,
        rows: TrailRows,
    ) -> Result<Listing> {
        let grouped = rows == TrailRows::Commands;
        let TrailFilter { since, until, by, action, job, queue, worker } = filter;
        self.query(
            "read the trail",
            Transaction::listing,
            query!("look/list_trail"; since, until, by, action, job, queue, worker, limit, grouped),
        )
    }

    /// Returns about how many runs there are; `None` if the server does not know.
    pub(crate) fn run_estimate(&self) -> Result<Option<i64>> {
        let runs: i64 = self.query("count runs", Transaction::one, query!("look/run_estimate"))?;
        // A negative number means that it is unknown.
        Ok(if runs < 0 { None } else { Some(runs) })
    }

    /// Returns the failed attempts that match, the latest end first.
    pub(crate) fn list_failures(&self, filter: FailureFilter, limit: i64) -> Result<Listing> {
        self.transact("list failed attempts", |transaction| {
            let (run_ids, attempts) = failed_attempts(transaction, &filter, Some(limit))?;
            transaction.listing(query!("look/list_failures"; run_ids, attempts))
        })
    }

    /// Returns the incidents of the failed attempts that match, those with dead runs first.
    pub(crate) fn list_incidents(&self, filter: FailureFilter, limit: i64) -> Result<Listing> {
        self.transact("list incidents", |transaction| {
            let FailureFilter { since, until, .. } = filter;
            // The statement compares `since` and `until` itself, so without other conditions it
            // needs no list of attempts: NULL selects all.
            let (mut run_ids, mut attempts) = (None, None);
            if !filter.selects_whole_window() {
                let matching = failed_attempts(transaction, &filter, None)?;
                (run_ids, attempts) = (Some(matching.0), Some(matching.1));
            }
            transaction.listing(query!(
                "look/list_incidents";
                since, until, run_ids, attempts, with_unstarted = false, limit,
            ))
        })
    }

    /// Returns the incident of this attempt; `None` if it did not fail.
    pub(crate) fn incident_window(
        &self,
        run_id: i64,
        attempt: i32,
    ) -> Result<Option<IncidentWindow>> {
        let statement = query!("look/incident"; run_id, attempt);
        self.query("read an incident", Transaction::first, statement)
    }

    /// Returns the runs that are related to a run. With `direct`, leaves out those that are related
    /// only through other runs.
    pub(crate) fn related_runs(
        &self,
        id: i64,
        relation: Relation,
        direct: bool,
    ) -> Result<Vec<i64>> {
        let followers = relation == Relation::Followers;
        let statement = query!("look/related_runs"; id, followers, direct);
        self.query("read what runs wait for", Transaction::one, statement)
    }

    /// Returns the runs whose last failed attempt is in the incident of this attempt; `None` if
    /// this attempt did not fail.
    pub(crate) fn incident_runs(&self, run_id: i64, attempt: i32) -> Result<Option<Vec<i64>>> {
        self.transact("read an incident", |transaction| {
            let window = transaction.first(query!("look/incident"; run_id, attempt))?;
            let incident = window.map(|it: IncidentWindow| it.incident);
            transaction.first(query!("look/incident_runs"; incident, run_id, attempt))
        })
    }
}

/// Returns the failed attempts that match, at most `limit`: the ids of their runs, and as a second
/// list of equal length, their numbers.
fn failed_attempts(
    transaction: &mut Transaction,
    filter: &FailureFilter,
    limit: Option<i64>,
) -> PgResult<(Vec<i64>, Vec<i32>)> {
    let FailureFilter { since, until, worker, queue, share, error_type, .. } = filter;
    let FailureFilter { incident, error, .. } = filter;
    let jobs = unless_empty(filter.jobs.clone());
    // If a text is asked for, the second statement searches for it in all attempts that the first
    // one finds. Then only the second one may have the limit.
    let first_limit = if error.is_none() { limit } else { None };
    let found: Vec<AttemptNumber> = transaction.list(query!(
        "look/failed_attempts";
        since, until, jobs, worker, queue, share, error_type, incident, limit = first_limit,
    ))?;
    let (run_ids, attempts) = into_columns(found);
    let Some(error) = error else { return Ok((run_ids, attempts)) };
    let with_text = query!("look/attempts_with_text"; run_ids, attempts, error, limit);
    Ok(into_columns(transaction.list(with_text)?))
}

/// Returns the ids of runs and the numbers of their attempts, as arguments of a statement.
fn into_columns(attempts: Vec<AttemptNumber>) -> (Vec<i64>, Vec<i32>) {
    attempts.into_iter().map(|AttemptNumber { run_id, attempt }| (run_id, attempt)).unzip()
}

/// Returns the ids of the runs that match, in this order, at most `limit`.
fn list_ids(
    transaction: &mut Transaction,
    filter: &RunFilter,
    order: RunOrder,
    limit: Option<i64>,
) -> PgResult<Vec<i64>> {
    let latest_end_first = order == RunOrder::LatestEndFirst;
    let RunFilter { job, queue, key, key_prefix, share, error_type, error, .. } = filter;
    let RunFilter { enqueued_by, worker, since, until, unsettled, had_failures, .. } = filter;
    let (paths, values): (Vec<_>, Vec<_>) = filter.payload.iter().cloned().unzip();
    let statuses = unless_empty(filter.statuses.clone());
    let ids = &filter.ids;
    transaction.list(query!(
        "look/list_ids";
        job, queue, key, key_prefix, share, error_type, error, paths, values, enqueued_by, worker,
        since, until, unsettled, statuses, had_failures, latest_end_first, limit, ids,
    ))
}

/// Returns the words of a filter as an argument: NULL, which matches everything, if there are none.
fn unless_empty<T>(words: Vec<T>) -> Option<Vec<T>> {
    if words.is_empty() { None } else { Some(words) }
}
