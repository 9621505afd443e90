//! What people look at: runs that match a filter, the dead, one run with its history.

use chrono::{DateTime, Utc};
use postgres::Row;
use postgres::types::Type;
use serde::Serialize;

use super::{Parameter, Result, Store, collect, query};
use crate::connect::Client;
use crate::model::Status;

/// Which runs are meant; an absent part restricts nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Empty for any.
    pub(crate) statuses: Vec<Status>,
    pub(crate) job: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) error_type: Option<String>,
    /// As is `until`, about a run's end, or its creation while it has not ended.
    pub(crate) since: Option<DateTime<Utc>>,
    /// Not included.
    pub(crate) until: Option<DateTime<Utc>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Order {
    Newest,
    LatestEnd,
}

/// A row of `list`; the fields are named as the columns are.
#[derive(Debug, Serialize)]
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
    pub(crate) run_at: DateTime<Utc>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) started_at: Option<DateTime<Utc>>,
    pub(crate) failed_at: Option<DateTime<Utc>>,
    pub(crate) finished_at: Option<DateTime<Utc>>,
    /// Of the last attempt.
    pub(crate) run_seconds: Option<f64>,
    /// The database's now.
    #[serde(skip)]
    pub(crate) now: DateTime<Utc>,
}

/// A row of `list-dead`; the fields are named as the columns are.
#[derive(Debug, Serialize)]
pub(crate) struct DeadRun {
    pub(crate) id: i64,
    pub(crate) job_type: String,
    pub(crate) queue: String,
    pub(crate) attempts: i32,
    pub(crate) max_attempts: i32,
    pub(crate) error_type: Option<String>,
    pub(crate) last_error: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) failed_at: Option<DateTime<Utc>>,
    pub(crate) finished_at: Option<DateTime<Utc>>,
    pub(crate) created_at: DateTime<Utc>,
}

/// What died of the same.
#[derive(Debug, Serialize)]
pub(crate) struct DeadGroup {
    pub(crate) job_type: String,
    pub(crate) error_type: Option<String>,
    pub(crate) runs: i64,
    pub(crate) first_died_at: DateTime<Utc>,
    pub(crate) last_died_at: DateTime<Utc>,
    pub(crate) newest_id: i64,
    /// Of the newest.
    pub(crate) last_error: Option<String>,
    /// The database's now.
    #[serde(skip)]
    pub(crate) now: DateTime<Utc>,
}

impl Store {
    /// Runs that match, the newest first.
    ///
    /// # Errors
    /// The database's, as for all functions here.
    pub(crate) fn list_runs(&self, filter: Filter, at_most: i64) -> Result<Vec<Run>> {
        self.transact("list runs", move |client| {
            let ids = list_ids(client, &filter, Order::Newest, Some(at_most))?;
            collect(list_runs(client, &ids, Order::Newest)?, |row| {
                Ok(Run {
                    id: row.try_get("id")?,
                    job_type: row.try_get("job_type")?,
                    status: row.try_get("status")?,
                    queue: row.try_get("queue")?,
                    priority: row.try_get("priority")?,
                    attempts: row.try_get("attempts")?,
                    max_attempts: row.try_get("max_attempts")?,
                    error_type: row.try_get("error_type")?,
                    last_error: row.try_get("last_error")?,
                    idempotency_key: row.try_get("idempotency_key")?,
                    run_at: row.try_get("run_at")?,
                    created_at: row.try_get("created_at")?,
                    started_at: row.try_get("started_at")?,
                    failed_at: row.try_get("failed_at")?,
                    finished_at: row.try_get("finished_at")?,
                    run_seconds: row.try_get("run_seconds")?,
                    now: row.try_get("now")?,
                })
            })
        })
    }

    /// The ids of runs that match, the newest first.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn list_ids(&self, filter: Filter) -> Result<Vec<i64>> {
        self.transact("list runs", move |client| list_ids(client, &filter, Order::Newest, None))
    }

    /// Runs that match a filter for dead ones, the latest death first.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn list_dead(&self, filter: Filter, at_most: Option<i64>) -> Result<Vec<DeadRun>> {
        self.transact("list dead runs", move |client| {
            let ids = list_ids(client, &filter, Order::LatestEnd, at_most)?;
            collect(list_runs(client, &ids, Order::LatestEnd)?, |row| {
                Ok(DeadRun {
                    id: row.try_get("id")?,
                    job_type: row.try_get("job_type")?,
                    queue: row.try_get("queue")?,
                    attempts: row.try_get("attempts")?,
                    max_attempts: row.try_get("max_attempts")?,
                    error_type: row.try_get("error_type")?,
                    last_error: row.try_get("last_error")?,
                    idempotency_key: row.try_get("idempotency_key")?,
                    failed_at: row.try_get("failed_at")?,
                    finished_at: row.try_get("finished_at")?,
                    created_at: row.try_get("created_at")?,
                })
            })
        })
    }

    /// Dead runs that match, counted by job and error type, the most first.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn group_dead(&self, filter: Filter) -> Result<Vec<DeadGroup>> {
        self.transact("count dead runs", move |client| {
            let parameters: &[Parameter<'_>] = &[
                (&filter.job, Type::TEXT),
                (&filter.queue, Type::TEXT),
                (&filter.key, Type::TEXT),
                (&filter.error_type, Type::TEXT),
                (&filter.since, Type::TIMESTAMPTZ),
                (&filter.until, Type::TIMESTAMPTZ),
            ];
            collect(client.query_typed(query!("group_dead"), parameters)?, |row| {
                Ok(DeadGroup {
                    job_type: row.try_get("job_type")?,
                    error_type: row.try_get("error_type")?,
                    runs: row.try_get("runs")?,
                    first_died_at: row.try_get("first_died_at")?,
                    last_died_at: row.try_get("last_died_at")?,
                    newest_id: row.try_get("newest_id")?,
                    last_error: row.try_get("last_error")?,
                    now: row.try_get("now")?,
                })
            })
        })
    }
}

fn list_ids(
    client: &mut Client,
    filter: &Filter,
    order: Order,
    at_most: Option<i64>,
) -> std::result::Result<Vec<i64>, postgres::Error> {
    let statuses = Some(Status::words(&filter.statuses)).filter(|statuses| !statuses.is_empty());
    let by_end = order == Order::LatestEnd;
    let parameters: &[Parameter<'_>] = &[
        (&statuses, Type::TEXT_ARRAY),
        (&filter.job, Type::TEXT),
        (&filter.queue, Type::TEXT),
        (&filter.key, Type::TEXT),
        (&filter.error_type, Type::TEXT),
        (&filter.since, Type::TIMESTAMPTZ),
        (&filter.until, Type::TIMESTAMPTZ),
        (&by_end, Type::BOOL),
        (&at_most, Type::INT8),
    ];
    collect(client.query_typed(query!("list_ids"), parameters)?, |row| row.try_get("id"))
}

/// Only the list of runs of every status shows how long they took.
fn list_runs(client: &mut Client, ids: &[i64], order: Order) -> std::result::Result<Vec<Row>, postgres::Error> {
    let timed = order == Order::Newest;
    client.query_typed(query!("list_runs"), &[(&ids, Type::INT8_ARRAY), (&timed, Type::BOOL)])
}
