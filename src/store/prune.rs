//! Deletes old finished runs, and counts them; forgets workers that are gone.

use std::time::Duration;

use chrono::{DateTime, Utc};
use postgres::types::Type;

use super::{Parameter, Result, Store, collect, query};
use crate::model::Status;

/// Runs that may be deleted: which statuses, and how long ago they finished at least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Old {
    pub(crate) statuses: &'static [Status],
    pub(crate) age: Duration,
}

/// A run that was deleted.
#[derive(Clone, Debug)]
pub(crate) struct Pruned {
    pub(crate) id: i64,
    pub(crate) status: String,
    pub(crate) finished_at: DateTime<Utc>,
}

impl Store {
    /// Deletes old runs and their history: the oldest behind `after`, `at_most` so many. Fewer than
    /// that: there are no more.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn prune(&self, old: Old, after: Option<&Pruned>, at_most: i64) -> Result<Vec<Pruned>> {
        let (finished_at, id) = after.map(|last| (last.finished_at, last.id)).unzip();
        self.transact("prune", move |client| {
            let parameters: &[Parameter<'_>] = &[
                (&Status::words(old.statuses), Type::TEXT_ARRAY),
                (&old.age.as_secs_f64(), Type::FLOAT8),
                (&finished_at, Type::TIMESTAMPTZ),
                (&id, Type::INT8),
                (&at_most, Type::INT8),
            ];
            collect(client.query_typed(query!("prune"), parameters)?, |row| {
                Ok(Pruned {
                    id: row.try_get("id")?,
                    status: row.try_get("status")?,
                    finished_at: row.try_get("finished_at")?,
                })
            })
        })
    }

    /// Deletes the records of workers that stopped long ago.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn forget_workers(&self) -> Result<()> {
        self.transact("delete old workers", |client| client.query_typed(query!("forget_workers"), &[]).map(|_| ()))
    }

    /// How many runs `prune` would delete in the end, by status.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn count_old(&self, old: Old) -> Result<Vec<(String, i64)>> {
        self.transact("count old runs", move |client| {
            let parameters: &[Parameter<'_>] =
                &[(&Status::words(old.statuses), Type::TEXT_ARRAY), (&old.age.as_secs_f64(), Type::FLOAT8)];
            collect(client.query_typed(query!("count_old"), parameters)?, |row| {
                Ok((row.try_get("status")?, row.try_get("runs")?))
            })
        })
    }
}
