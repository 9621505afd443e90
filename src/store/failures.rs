//! Failed attempts, those of runs that succeeded later included.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::row::{FromRow, owned, rows, timestamp};
use super::{Result, Store, query};
use crate::connect::Client;

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
    /// A row of `failures`; the fields are named as the columns are.
    #[derive(Serialize)]
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
    #[derive(Serialize)]
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

impl Store {
    /// Returns the failed attempts that match, the latest end first.
    pub(crate) fn list_failures(
        &self,
        filter: FailureFilter,
        limit: i64,
    ) -> Result<Vec<FailedAttempt>> {
        self.failures("list failed attempts", query!("look/list_failures"), filter, limit)
    }

    /// Counts the failed attempts that match by job, error type, error and worker, the largest
    /// group first.
    pub(crate) fn group_failures(
        &self,
        filter: FailureFilter,
        limit: i64,
    ) -> Result<Vec<FailedAttempts>> {
        self.failures("count failed attempts", query!("look/group_failures"), filter, limit)
    }

    fn failures<R: FromRow + Send + 'static>(
        &self,
        doing: &'static str,
        query: &'static str,
        filter: FailureFilter,
        limit: i64,
    ) -> Result<Vec<R>> {
        let FailureFilter { since, until, jobs, worker } = filter;
        let jobs = Some(jobs).filter(|jobs| !jobs.is_empty());
        self.query(doing, Client::list, query, owned![since, until, jobs, worker, limit])
    }
}
