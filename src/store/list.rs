//! Lists of runs, of dead runs and of failed attempts that match a filter.

use chrono::{DateTime, Utc};

use super::row::{OwnedArguments, PgResult, borrowed, owned, rows, timestamp};
use super::{Result, Store, query};
use crate::connect::Client;
use crate::job::status::Status;

/// Selects runs; an absent part selects all.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunFilter {
    /// Empty for all.
    pub(crate) statuses: Vec<Status>,
    pub(crate) job: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) error_type: Option<String>,
    /// `since` and `until` compare a run's end, or its creation while it has not ended.
    pub(crate) since: Option<DateTime<Utc>>,
    /// The end of the window, exclusive.
    pub(crate) until: Option<DateTime<Utc>>,
    /// Only runs with an attempt on this worker, finished or running.
    pub(crate) worker: Option<String>,
    /// Only runs of which an attempt failed.
    pub(crate) had_failures: bool,
    /// Leaves out settled runs, and cancelled runs that no operator cancelled.
    pub(crate) unsettled: bool,
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
}

rows! {
    /// A row of `list`; the fields are named as the columns are.
    pub(crate) struct Run {
        pub(crate) id: i64,
        pub(crate) job_type: String,
        pub(crate) status: String,
        pub(crate) queue: String,
        pub(crate) priority: i32,
        pub(crate) attempts: i32,
        pub(crate) max_attempts: i32,
        pub(crate) error_type: Option<String>,
        pub(crate) last_error: Option<String>,
        pub(crate) idempotency_key: Option<String>,
        pub(crate) run_at: DateTime<Utc> as "timestamp",
        pub(crate) created_at: DateTime<Utc> as "timestamp",
        pub(crate) started_at: Option<DateTime<Utc>> as "timestamp",
        pub(crate) failed_at: Option<DateTime<Utc>> as "timestamp",
        pub(crate) finished_at: Option<DateTime<Utc>> as "timestamp",
        /// The run time of the last attempt, also while it runs.
        pub(crate) run_time_seconds: Option<f64>,
        /// By the database's clock.
        #[serde(skip)]
        pub(crate) now: DateTime<Utc>,
    }

    /// A row of `list-dead`; the fields are named as the columns are.
    pub(crate) struct DeadRun {
        pub(crate) id: i64,
        pub(crate) job_type: String,
        pub(crate) queue: String,
        pub(crate) attempts: i32,
        pub(crate) max_attempts: i32,
        pub(crate) error_type: Option<String>,
        pub(crate) last_error: Option<String>,
        pub(crate) idempotency_key: Option<String>,
        pub(crate) failed_at: Option<DateTime<Utc>> as "timestamp",
        pub(crate) finished_at: Option<DateTime<Utc>> as "timestamp",
        pub(crate) settled_at: Option<DateTime<Utc>> as "timestamp",
        pub(crate) created_at: DateTime<Utc> as "timestamp",
    }

    /// The dead runs of one job with the same error type.
    pub(crate) struct DeadGroup {
        pub(crate) job_type: String,
        pub(crate) error_type: Option<String>,
        pub(crate) runs: i64,
        pub(crate) first_finished_at: DateTime<Utc> as "timestamp",
        pub(crate) last_finished_at: DateTime<Utc> as "timestamp",
        pub(crate) newest_id: i64,
        /// The error of the newest run.
        pub(crate) last_error: Option<String>,
        /// By the database's clock.
        #[serde(skip)]
        pub(crate) now: DateTime<Utc>,
    }

    /// A row of `failures`; the fields are named as the columns are.
    pub(crate) struct FailedAttempt {
        pub(crate) run_id: i64,
        pub(crate) attempt: i32,
        pub(crate) job_type: String,
        pub(crate) worker: String,
        pub(crate) finished_at: DateTime<Utc> as "timestamp",
        pub(crate) error_type: Option<String>,
        pub(crate) error: Option<String>,
        /// The last line of the output that is not blank.
        pub(crate) last_line: Option<String>,
        /// The run's status now.
        pub(crate) status: String,
        /// By the database's clock.
        #[serde(skip)]
        pub(crate) now: DateTime<Utc>,
    }

    /// The failed attempts of one job on one worker with the same error.
    pub(crate) struct FailedAttempts {
        pub(crate) job_type: String,
        pub(crate) error_type: Option<String>,
        pub(crate) error: Option<String>,
        pub(crate) worker: String,
        pub(crate) failures: i64,
        pub(crate) first_finished_at: DateTime<Utc> as "timestamp",
        pub(crate) last_finished_at: DateTime<Utc> as "timestamp",
        /// The run of the newest attempt.
        pub(crate) newest_id: i64,
        /// Of the newest attempt's output.
        pub(crate) last_line: Option<String>,
        /// By the database's clock.
        #[serde(skip)]
        pub(crate) now: DateTime<Utc>,
    }
}

impl RunFilter {
    /// Returns the parameters that lists and groups of runs begin with.
    fn arguments(self) -> OwnedArguments {
        let Self { job, queue, key, error_type, since, until, unsettled, .. } = self;
        owned![job, queue, key, error_type, since, until, unsettled]
    }
}

impl FailureFilter {
    fn arguments(self, limit: i64) -> OwnedArguments {
        let Self { since, until, jobs, worker } = self;
        let jobs = Some(jobs).filter(|jobs| !jobs.is_empty());
        owned![since, until, jobs, worker, limit]
    }
}

impl Store {
    /// Returns the runs that match, the newest first; with `until`, in the order of the times that
    /// it compares, which an index has.
    pub(crate) fn list_runs(&self, filter: RunFilter, limit: i64) -> Result<Vec<Run>> {
        self.transact("list runs", move |client| {
            let ids = list_ids(client, &filter, filter.until.is_some(), Some(limit))?;
            client.list(query!("look/list_runs"), &[&ids, &true])
        })
    }

    /// Returns these runs.
    pub(crate) fn runs(&self, ids: Vec<i64>) -> Result<Vec<Run>> {
        self.query("read runs", Client::list, query!("look/list_runs"), owned![ids, false])
    }

    /// Returns the ids of the runs that match, the newest first.
    pub(crate) fn list_ids(&self, filter: RunFilter) -> Result<Vec<i64>> {
        self.transact("list runs", move |client| list_ids(client, &filter, false, None))
    }

    /// Returns the runs that match a filter for dead runs, the latest death first.
    pub(crate) fn list_dead(&self, filter: RunFilter, limit: Option<i64>) -> Result<Vec<DeadRun>> {
        self.transact("list dead runs", move |client| {
            let ids = list_ids(client, &filter, true, limit)?;
            // This list does not show durations.
            client.list(query!("look/list_runs"), &[&ids, &false])
        })
    }

    /// Counts the dead runs that match by job and error type, the largest group first.
    pub(crate) fn group_dead(&self, filter: RunFilter) -> Result<Vec<DeadGroup>> {
        let arguments = filter.arguments();
        self.query("count dead runs", Client::list, query!("look/group_dead"), arguments)
    }

    /// Returns the failed attempts that match, the latest end first.
    pub(crate) fn list_failures(
        &self,
        filter: FailureFilter,
        limit: i64,
    ) -> Result<Vec<FailedAttempt>> {
        let arguments = filter.arguments(limit);
        self.query("list failed attempts", Client::list, query!("look/list_failures"), arguments)
    }

    /// Counts the failed attempts that match by job, error type, error and worker, the largest
    /// group first.
    pub(crate) fn group_failures(
        &self,
        filter: FailureFilter,
        limit: i64,
    ) -> Result<Vec<FailedAttempts>> {
        let arguments = filter.arguments(limit);
        self.query("count failed attempts", Client::list, query!("look/group_failures"), arguments)
    }
}

fn list_ids(
    client: &mut Client,
    filter: &RunFilter,
    latest_end_first: bool,
    limit: Option<i64>,
) -> PgResult<Vec<i64>> {
    let RunFilter { statuses, worker, had_failures, .. } = filter.clone();
    let statuses = Some(statuses).filter(|statuses| !statuses.is_empty());
    let mut arguments = filter.clone().arguments();
    arguments.extend(owned![statuses, worker, had_failures, latest_end_first, limit]);
    client.list(query!("look/list_ids"), &borrowed(&arguments))
}
