//! Lists of runs, of dead runs and of failed attempts that match a filter.

use chrono::{DateTime, Utc};

use super::row::{OwnedArguments, PgResult, borrowed, owned, rows};
use super::session::Transaction;
use super::{Result, Store, query};
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
    /// What an enqueue reads of the runs that it replaced.
    pub(crate) struct Run {
        pub(crate) id: i64,
        pub(crate) queue: String,
        pub(crate) priority: i32,
        pub(crate) max_attempts: i32,
    }
}

/// The columns and the order of a list of runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunList {
    /// The newest first; with `until`, in the order of the times that it compares, which an index
    /// has.
    Any,
    /// For dead runs, the latest death first.
    Dead,
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
    /// Returns the runs that match.
    pub(crate) fn list_runs(
        &self,
        list: RunList,
        filter: RunFilter,
        limit: i64,
    ) -> Result<Listing> {
        let (statement, latest_end_first) = match list {
            RunList::Any => (query!("look/list_runs"), filter.until.is_some()),
            RunList::Dead => (query!("look/list_dead"), true),
        };
        self.transact("list runs", move |transaction| {
            let ids = list_ids(transaction, &filter, latest_end_first, Some(limit))?;
            transaction.listing(statement, &[&ids])
        })
    }

    /// Returns these runs.
    pub(crate) fn runs(&self, ids: Vec<i64>) -> Result<Vec<Run>> {
        self.query("read runs", Transaction::list, query!("look/list_runs"), owned![ids])
    }

    /// Returns the ids of the runs that match, the newest first.
    pub(crate) fn list_ids(&self, filter: RunFilter) -> Result<Vec<i64>> {
        self.transact("list runs", move |transaction| list_ids(transaction, &filter, false, None))
    }

    /// Counts the dead runs that match by job and error type, the largest group first.
    pub(crate) fn group_dead(&self, filter: RunFilter) -> Result<Listing> {
        let arguments = filter.arguments();
        self.query("count dead runs", Transaction::listing, query!("look/group_dead"), arguments)
    }

    /// Returns the failed attempts that match, the latest end first.
    pub(crate) fn list_failures(&self, filter: FailureFilter, limit: i64) -> Result<Listing> {
        let arguments = filter.arguments(limit);
        self.query(
            "list failed attempts",
            Transaction::listing,
            query!("look/list_failures"),
            arguments,
        )
    }

    /// Counts the failed attempts that match by job, error type, error and worker, the largest
    /// group first.
    pub(crate) fn group_failures(&self, filter: FailureFilter, limit: i64) -> Result<Listing> {
        let arguments = filter.arguments(limit);
        self.query(
            "count failed attempts",
            Transaction::listing,
            query!("look/group_failures"),
            arguments,
        )
    }
}

fn list_ids(
    transaction: &mut Transaction,
    filter: &RunFilter,
    latest_end_first: bool,
    limit: Option<i64>,
) -> PgResult<Vec<i64>> {
    let RunFilter { statuses, worker, had_failures, .. } = filter.clone();
    let statuses = Some(statuses).filter(|statuses| !statuses.is_empty());
    let mut arguments = filter.clone().arguments();
    arguments.extend(owned![statuses, worker, had_failures, latest_end_first, limit]);
    transaction.list(query!("look/list_ids"), &borrowed(&arguments))
}
