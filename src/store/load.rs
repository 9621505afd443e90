//! The load test: its lock, its figures, and the removal of its rows.

use std::time::Duration;

use super::row::rows;
use super::statement::{query, text};
use super::transaction::Transaction;
use super::{Result, Store, Timeouts};

/// How many runs one transaction deletes at most.
const REMOVED_AT_ONCE: u64 = 5000;
/// The longest VACUUM that the command waits for.
const VACUUM_TIMEOUT: Duration = Duration::from_secs(600);

rows! {
    /// The figures of a load test.
    pub(crate) struct LoadFigures {
        pub(crate) runs: i64,
        pub(crate) succeeded: i64,
        pub(crate) enqueues_per_second: Option<f64>,
        pub(crate) claims_per_second: Option<f64>,
        /// The wait of a run from due to claim.
        pub(crate) wait_p50_seconds: Option<f64>,
        pub(crate) wait_p95_seconds: Option<f64>,
        pub(crate) wait_p99_seconds: Option<f64>,
        pub(crate) wait_max_seconds: Option<f64>,
        /// How many bytes of WAL the whole server wrote during the test; `None` if it does not show
        /// them.
        pub(crate) wal_bytes: Option<i64> = None,
        /// The dead rows of all tables of jobctl after the test, as PostgreSQL counts them.
        pub(crate) dead_rows: i64 = 0,
    }
}

impl Store {
    /// Returns whether there are runs of other jobs than the load test.
    pub(crate) fn has_other_runs(&self) -> Result<bool> {
        self.query("read runs", Transaction::one, query!("load/has_other_runs"))
    }

    /// Takes the lock of the load test of this database, and removes the rows that a killed test
    /// has left. Returns the id of the lock; `None`: another test has the lock.
    pub(crate) fn begin_load(&self) -> Result<Option<i64>> {
        let id = self.query("start a load test", Transaction::first, query!("load/begin"))?;
        if let Some(id) = id {
            self.remove_load_runs(id)?;
            self.remove_rest_of_load(None)?;
        }
        Ok(id)
    }

    /// Renews the lock, and returns the number of unfinished runs. `None`: the lock is lost.
    pub(crate) fn renew_load(&self, id: i64) -> Result<Option<i64>> {
        self.query("renew the load test", Transaction::first, query!("load/renew"; id))
    }

    /// Returns the bytes of WAL that the server has written; `None` if it does not show them.
    pub(crate) fn wal_position(&self) -> Option<i64> {
        self.query("read the position of the WAL", Transaction::one, query!("load/wal_position"))
            .ok()
    }

    /// Returns the figures of the test, without those that `LoadFigures` says the caller adds.
    pub(crate) fn measure_load(&self) -> Result<LoadFigures> {
        self.query("measure the load", Transaction::one, query!("load/measure"))
    }

    /// Removes all rows of the test. Leaves them if another test has the lock now.
    pub(crate) fn end_load(&self, id: i64) -> Result<()> {
        let has_lock = self.remove_load_runs(id)?;
        // An `apply --prune` may have removed the definition of the test, which is the lock. Then
        // take the lock again.
        let lock = if has_lock { Some(id) } else { self.begin_load()? };
        match lock {
            Some(id) => self.remove_rest_of_load(Some(id)),
            None => Ok(()),
        }
    }

    /// Frees the space of deleted runs. A session counts the rows that it deleted when it ends, so
    /// another session must have deleted them.
    pub(crate) fn vacuum(&self) -> Result<()> {
        let timeouts = Timeouts { statement: VACUUM_TIMEOUT, ..self.timeouts };
        self.transact_within(timeouts, "vacuum the tables", |transaction| {
            // VACUUM can't run in a transaction: end this one, and begin one for `transact`.
            transaction.batch_execute("COMMIT")?;
            transaction.batch_execute(text!("load/vacuum"))?;
            transaction.batch_execute("BEGIN")
        })
    }

    /// Removes the runs of the test, in several transactions. Returns false if it has lost the
    /// lock.
    fn remove_load_runs(&self, id: i64) -> Result<bool> {
        let most = i64::try_from(REMOVED_AT_ONCE).unwrap_or(i64::MAX);
        loop {
            let removed = self.transact("remove the load test", |transaction| {
                let unfinished: Option<i64> = transaction.first(query!("load/renew"; id))?;
                if unfinished.is_none() {
                    return Ok(None);
                }
                transaction.execute(query!("load/remove_runs"; most)).map(Some)
            })?;
            match removed {
                None => return Ok(false),
                // There may be more.
                Some(REMOVED_AT_ONCE..) => {}
                Some(_) => return Ok(true),
            }
        }
    }

    /// Removes all rows of the test except its runs. With the `id` of its lock, also removes its
    /// definition, which is the lock.
    fn remove_rest_of_load(&self, id: Option<i64>) -> Result<()> {
        let statement = query!("load/remove_rest"; id);
        self.query("remove the load test", Transaction::execute, statement).map(drop)
    }
}
