//! The facts that `check` judges.

use std::time::Duration;

use postgres::Row;

use super::row::{FromColumn, FromRow, PgResult};
use super::{Result, Store, query, seconds};

/// A run whose last attempt failed.
#[derive(Clone, Debug)]
pub(crate) struct FailedRun {
    pub(crate) id: i64,
    pub(crate) job: String,
    pub(crate) error: Option<String>,
}

/// The last tick of a worker.
#[derive(Clone, Debug)]
pub(crate) struct TickAge {
    pub(crate) worker: String,
    pub(crate) age: Duration,
    /// How long `check` reports the worker after it stops.
    pub(crate) missed_for: Duration,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CheckFacts {
    pub(crate) dead: i64,
    pub(crate) newest_dead: Option<FailedRun>,
    /// Id, job, and the time since the run is due.
    pub(crate) oldest_due: Option<(i64, String, Duration)>,
    /// Id, job, worker, and the time since the start.
    pub(crate) longest_running: Option<(i64, String, String, Duration)>,
    /// Id, job, and the time since the lease expired.
    pub(crate) longest_lost: Option<(i64, String, Duration)>,
    /// Name, and the time since the schedule is due.
    pub(crate) latest_schedule: Option<(String, Duration)>,
    /// Runs whose last attempt failed within the given time.
    pub(crate) failed: i64,
    pub(crate) newest_failed: Option<FailedRun>,
    /// The latest tick comes first.
    pub(crate) workers: Vec<TickAge>,
}

impl Store {
    /// Returns the facts about all jobs, or only `jobs`. Failures count if they are younger than
    /// `within`; by default none counts.
    pub(crate) fn check(
        &self,
        jobs: Option<Vec<String>>,
        within: Option<Duration>,
    ) -> Result<CheckFacts> {
        let within = within.map(|within| within.as_secs_f64());
        self.transact("check the jobs", move |client| {
            client.one(query!("look/check"), &[&jobs, &within])
        })
    }

    /// Returns whether any run of this job is kept, defined or not.
    pub(crate) fn has_runs(&self, job: String) -> Result<bool> {
        self.transact("look for runs", move |client| client.one(query!("look/has_runs"), &[&job]))
    }
}

impl FromRow for CheckFacts {
    fn from_row(row: &Row) -> PgResult<Self> {
        let names: Vec<String> = row.try_get("worker_names")?;
        let ages: Vec<f64> = row.try_get("worker_ages")?;
        let missed: Vec<f64> = row.try_get("workers_missed")?;
        let workers = names.into_iter().zip(ages).zip(missed);
        let schedule = part(row, "latest_schedule", "name")?;
        let worker = part(row, "longest_running", "worker")?;
        Ok(Self {
            dead: row.try_get("dead")?,
            newest_dead: failed_run(row, "newest_dead")?,
            oldest_due: aged_run(row, "oldest_due")?,
            longest_running: aged_run(row, "longest_running")?
                .zip(worker)
                .map(|((id, job, age), worker)| (id, job, worker, age)),
            longest_lost: aged_run(row, "longest_lost")?,
            latest_schedule: schedule.zip(part(row, "latest_schedule", "age")?),
            failed: row.try_get("failed")?,
            newest_failed: failed_run(row, "newest_failed")?,
            workers: workers
                .map(|((worker, age), missed)| TickAge {
                    worker,
                    age: seconds(age),
                    missed_for: seconds(missed),
                })
                .collect(),
        })
    }
}

/// Reads a column of a fact: the fact's name is the prefix of its columns.
fn part<T>(row: &Row, fact: &str, part: &str) -> PgResult<Option<T>>
where
    Option<T>: FromColumn,
{
    FromColumn::from_column(row, format!("{fact}_{part}").as_str())
}

fn failed_run(row: &Row, fact: &str) -> PgResult<Option<FailedRun>> {
    let run = part(row, fact, "id")?.zip(part(row, fact, "job")?);
    let error = part(row, fact, "error")?;
    Ok(run.map(|(id, job)| FailedRun { id, job, error }))
}

fn aged_run(row: &Row, fact: &str) -> PgResult<Option<(i64, String, Duration)>> {
    let run = part(row, fact, "id")?.zip(part(row, fact, "job")?).zip(part(row, fact, "age")?);
    Ok(run.map(|((id, job), age)| (id, job, age)))
}
