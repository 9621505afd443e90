//! What follows from ended runs: the decision about blocked runs that waited for them, and the jobs
//! that follow other jobs.

use chrono::{DateTime, Utc};

use super::row::{column, from_row, rows, timestamp};
use super::statement::query;
use super::transaction::Transaction;
use super::{Result, Store};

/// How many rows of `job_dependencies` one decision looks up, so that it is short. All rows of one
/// run are looked up at once, even if they are more.
const EDGES_AT_ONCE: i64 = 1000;

/// The result of a decision about blocked runs.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    /// Whether the decision changed a row.
    pub(crate) decides: bool,
    /// The cancelled runs that other runs wait for.
    pub(crate) followed: Vec<i64>,
}

from_row!(Decided { decides, followed });

rows! {
    /// A job that follows others, and a time for which it is due, see enqueue_following.sql.
    pub(crate) struct FollowingJob {
        definition_id: i64,
        pub(crate) job_type: String,
        scheduled_for: Option<DateTime<Utc>> as "timestamp",
    }
}

impl Store {
    /// Returns the jobs that follow others and are due.
    pub(crate) fn following_jobs(&self) -> Result<Vec<FollowingJob>> {
        let statement = query!("tick/following_jobs");
        self.query("look for jobs that follow others", Transaction::list, statement)
    }

    /// Enqueues these jobs. Returns whether that changed any row.
    pub(crate) fn enqueue_following(&self, jobs: &[FollowingJob]) -> Result<bool> {
        let definitions = column(jobs, |job| job.definition_id);
        let times = column(jobs, |job| job.scheduled_for);
        let statement = query!("tick/enqueue_following"; definitions, times);
        self.query("enqueue jobs that follow others", Transaction::one, statement)
    }

    /// Returns blocked runs to decide about, except `rejected`. With `ended`, returns only those
    /// that wait for these ended runs.
    pub(crate) fn due_followers(
        &self,
        ended: Option<Vec<i64>>,
        rejected: Vec<i64>,
    ) -> Result<Vec<i64>> {
        let statement = query!("tick/due_followers"; edges = EDGES_AT_ONCE, ended, rejected);
        self.query("look for blocked runs", Transaction::list, statement)
    }

    /// Releases or cancels those of these blocked runs whose predecessors have ended.
    pub(crate) fn decide_followers(&self, ids: Vec<i64>) -> Result<Decided> {
        self.query("release blocked runs", Transaction::one, query!("tick/decide_followers"; ids))
    }
}
