//! The facts that `check` judges.

use std::time::Duration;

use postgres::Row;
use postgres::types::Type;

use super::{Parameter, Result, Store, query, seconds};

/// A run that failed, for good or not.
#[derive(Clone, Debug)]
pub(crate) struct FailedRun {
    pub(crate) id: i64,
    pub(crate) job: String,
    pub(crate) error: Option<String>,
}

/// The ticks of a worker.
#[derive(Clone, Debug)]
pub(crate) struct TickAge {
    pub(crate) worker: String,
    /// The time since the last tick.
    pub(crate) age: Duration,
    /// How long `check` reports the worker after it stops.
    pub(crate) missed_for: Duration,
}

/// What `check` judges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) dead: i64,
    pub(crate) newest_dead: Option<FailedRun>,
    /// Id, job, and for how long it has been due.
    pub(crate) oldest_due: Option<(i64, String, Duration)>,
    /// Id, job, worker, and for how long it has been running.
    pub(crate) longest_running: Option<(i64, String, String, Duration)>,
    /// Id, job, and for how long its lease has been over.
    pub(crate) longest_lost: Option<(i64, String, Duration)>,
    /// Name, and for how long it should have fired.
    pub(crate) latest_schedule: Option<(String, Duration)>,
    /// Runs whose latest failure is recent enough.
    pub(crate) failed: i64,
    pub(crate) newest_failed: Option<FailedRun>,
    /// The worker that ticked last comes first.
    pub(crate) workers: Vec<TickAge>,
}

impl Store {
    /// The facts about all jobs, or only `jobs`; failures count `within` the last so long, or not at all.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn check(&self, jobs: Option<Vec<String>>, within: Option<Duration>) -> Result<Facts> {
        let within = within.map(|within| within.as_secs_f64());
        self.transact("check the jobs", move |client| {
            let parameters: &[Parameter<'_>] = &[(&jobs, Type::TEXT_ARRAY), (&within, Type::FLOAT8)];
            facts(&client.query_typed_one(query!("check"), parameters)?)
        })
    }

    /// Whether any run of this job is kept, defined or not.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn has_runs(&self, job: String) -> Result<bool> {
        self.transact("look for runs", move |client| {
            client.query_typed_one(query!("has_runs"), &[(&job, Type::TEXT)])?.try_get("has_runs")
        })
    }
}

fn facts(row: &Row) -> std::result::Result<Facts, postgres::Error> {
    let names: Vec<String> = row.try_get("worker_names")?;
    let ages: Vec<f64> = row.try_get("worker_ages")?;
    let missed: Vec<f64> = row.try_get("workers_missed")?;
    let failed_run = |id: &str, job: &str, error: &str| {
        let Some(id) = row.try_get(id)? else { return Ok(None) };
        Ok::<_, postgres::Error>(Some(FailedRun { id, job: row.try_get(job)?, error: row.try_get(error)? }))
    };
    let aged_run = |id: &str, job: &str, age: &str| {
        let Some(id) = row.try_get(id)? else { return Ok(None) };
        Ok::<_, postgres::Error>(Some((id, row.try_get(job)?, seconds(row.try_get(age)?))))
    };
    let latest_schedule = match row.try_get("latest_schedule")? {
        Some(name) => Some((name, seconds(row.try_get("latest_schedule_age")?))),
        None => None,
    };
    let longest_running = match (row.try_get("longest_running_id")?, row.try_get("longest_running_age")?) {
        (Some(id), Some(age)) => {
            Some((id, row.try_get("longest_running_job")?, row.try_get("longest_running_worker")?, seconds(age)))
        }
        _ => None,
    };
    Ok(Facts {
        dead: row.try_get("dead")?,
        newest_dead: failed_run("newest_dead_id", "newest_dead_job", "newest_dead_error")?,
        oldest_due: aged_run("oldest_due_id", "oldest_due_job", "oldest_due_age")?,
        longest_running,
        longest_lost: aged_run("longest_lost_id", "longest_lost_job", "longest_lost_age")?,
        latest_schedule,
        failed: row.try_get("failed")?,
        newest_failed: failed_run("newest_failed_id", "newest_failed_job", "newest_failed_error")?,
        workers: names
            .into_iter()
            .zip(ages.into_iter().zip(missed))
            .map(|(worker, (age, missed))| TickAge { worker, age: seconds(age), missed_for: seconds(missed) })
            .collect(),
    })
}
