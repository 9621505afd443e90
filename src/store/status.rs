//! How it goes: what `status` shows.

use chrono::{DateTime, Utc};
use postgres::Row;
use postgres::types::Type;
use serde::Serialize;

use super::{Limits, Parameter, Result, Store, collect, query};
use crate::connect::Client;
use crate::patience::PATIENCE;

/// How a job does; the fields are named as in `status --json`. `waiting` and `due` divide the queued and
/// failed runs.
#[derive(Debug, Serialize)]
pub(crate) struct JobStatus {
    pub(crate) job: String,
    pub(crate) waiting: i64,
    pub(crate) due: i64,
    pub(crate) running: i64,
    pub(crate) failed: i64,
    pub(crate) dead: i64,
    pub(crate) oldest_due_age_seconds: Option<f64>,
    pub(crate) succeeded_last_24h: i64,
    pub(crate) run_time_median_seconds: Option<f64>,
    pub(crate) run_time_p95_seconds: Option<f64>,
    pub(crate) run_time_max_seconds: Option<f64>,
    pub(crate) next_fire_at: Option<DateTime<Utc>>,
    /// Of the definition: `fires`, `paused` or `disabled`; `None` without a schedule, unless disabled.
    pub(crate) state: Option<String>,
}

/// Who ticks.
#[derive(Debug, Serialize)]
pub(crate) struct Worker {
    pub(crate) worker: String,
    pub(crate) last_tick_at: DateTime<Utc>,
    pub(crate) version: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct RunningRun {
    pub(crate) id: i64,
    pub(crate) job: String,
    pub(crate) worker: String,
    pub(crate) started_at: Option<DateTime<Utc>>,
    pub(crate) running_for_seconds: Option<f64>,
    pub(crate) locked_until: DateTime<Utc>,
}

/// What `status` shows, as it was at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct Overview {
    /// The database's.
    pub(crate) now: DateTime<Utc>,
    pub(crate) jobs: Vec<JobStatus>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) running: Vec<RunningRun>,
}

/// Running runs that `status` shows.
const LONGEST_RUNNING: i64 = 5;

impl Store {
    /// How every job does, or only `job`; who ticks; and what has been running longest.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn status(&self, job: Option<String>) -> Result<Overview> {
        let limits = Limits { one_moment: true, ..self.limits };
        self.session.transact("read the status", limits, move |client| {
            let of_job: &[Parameter<'_>] = &[(&job, Type::TEXT)];
            let longest: &[Parameter<'_>] = &[(&job, Type::TEXT), (&LONGEST_RUNNING, Type::INT8)];
            Ok(Overview {
                now: client.query_typed_one(query!("now"), &[])?.try_get("now")?,
                jobs: collect(client.query_typed(query!("status_jobs"), of_job)?, job_status)?,
                workers: list_workers(client, None)?,
                running: collect(client.query_typed(query!("status_running"), longest)?, |row| {
                    Ok(RunningRun {
                        id: row.try_get("id")?,
                        job: row.try_get("job_type")?,
                        worker: row.try_get("locked_by")?,
                        started_at: row.try_get("started_at")?,
                        running_for_seconds: row.try_get("running_for")?,
                        locked_until: row.try_get("locked_until")?,
                    })
                })?,
            })
        })
    }
}

pub(super) fn list_workers(
    client: &mut Client,
    at_most: Option<i64>,
) -> std::result::Result<Vec<Worker>, postgres::Error> {
    let parameters: &[Parameter<'_>] = &[(&at_most, Type::INT8), (&PATIENCE.as_secs_f64(), Type::FLOAT8)];
    collect(client.query_typed(query!("list_workers"), parameters)?, |row| {
        Ok(Worker {
            worker: row.try_get("name")?,
            last_tick_at: row.try_get("last_tick_at")?,
            version: row.try_get("version")?,
        })
    })
}

fn job_status(row: &Row) -> std::result::Result<JobStatus, postgres::Error> {
    let took: Option<Vec<Option<f64>>> = row.try_get("took")?;
    let [median, p95, max] = [0, 1, 2].map(|rank| took.as_ref().and_then(|took| took.get(rank).copied().flatten()));
    Ok(JobStatus {
        job: row.try_get("job_type")?,
        waiting: row.try_get("waiting")?,
        due: row.try_get("due")?,
        running: row.try_get("running")?,
        failed: row.try_get("failed")?,
        dead: row.try_get("dead")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age")?,
        succeeded_last_24h: row.try_get("succeeded")?,
        run_time_median_seconds: median,
        run_time_p95_seconds: p95,
        run_time_max_seconds: max,
        next_fire_at: row.try_get("next_fire_at")?,
        state: row.try_get("state")?,
    })
}
