//! What operators ask for: retry, cancel, list-dead.

use chrono::{DateTime, Utc};
use postgres::types::Type;
use serde::Serialize;

use super::{Parameter, Result, Store, collect, query};

/// A run an operator asked about: its status before, and whether the request was granted.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: i64,
    pub(crate) status: String,
    pub(crate) granted: bool,
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
    pub(crate) finished_at: DateTime<Utc>,
    pub(crate) created_at: DateTime<Utc>,
}

impl Store {
    /// Makes runs due now; an id that is missing from the answer does not exist. `force` also takes
    /// a running run from its holder.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn retry(&self, ids: Vec<i64>, force: bool) -> Result<Vec<Asked>> {
        self.transact("retry", move |client| {
            let parameters: &[Parameter<'_>] = &[(&ids, Type::INT8_ARRAY), (&force, Type::BOOL)];
            collect(client.query_typed(query!("retry"), parameters)?, |row| {
                Ok(Asked { id: row.try_get("id")?, status: row.try_get("status")?, granted: row.try_get("retried")? })
            })
        })
    }

    /// Stops runs; an id that is missing from the answer does not exist.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn cancel(&self, ids: Vec<i64>) -> Result<Vec<Asked>> {
        self.transact("cancel", move |client| {
            let parameters: &[Parameter<'_>] = &[(&ids, Type::INT8_ARRAY)];
            collect(client.query_typed(query!("cancel"), parameters)?, |row| {
                Ok(Asked { id: row.try_get("id")?, status: row.try_get("status")?, granted: row.try_get("cancelled")? })
            })
        })
    }

    /// # Errors
    /// The database's.
    pub(crate) fn dead_ids(&self) -> Result<Vec<i64>> {
        self.transact("list dead runs", |client| {
            collect(client.query_typed(query!("dead_ids"), &[])?, |row| row.try_get("id"))
        })
    }

    /// Dead runs, latest death first.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn list_dead(&self, at_most: Option<i64>) -> Result<Vec<DeadRun>> {
        self.transact("list dead runs", move |client| {
            let parameters: &[Parameter<'_>] = &[(&at_most, Type::INT8)];
            collect(client.query_typed(query!("list_dead"), parameters)?, |row| {
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
}
