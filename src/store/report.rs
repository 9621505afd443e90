//! What a report shows, as it was at one moment.

use std::time::Duration;

use chrono::{DateTime, Utc};
use postgres::Row;
use postgres::types::Type;

use super::status::{Worker, list_workers};
use super::{Limits, Parameter, Result, Store, collect, query};
use crate::connect::Client;

/// What the database is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// What happened from then on is counted in the summary.
    pub(crate) since: DateTime<Utc>,
    /// Start of the first bin of time, which is no later than `since`.
    pub(crate) from: DateTime<Utc>,
    pub(crate) bin: Duration,
    /// A worker that has not ticked for so long is silent.
    pub(crate) patience: Duration,
    /// Most jobs, and most rows of every other list.
    pub(crate) jobs: i64,
    pub(crate) rows: i64,
}

/// Everything a report shows. Lists are cut off; the number of all stands beside them.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The database's now.
    pub(crate) now: DateTime<Utc>,
    pub(crate) summary: Summary,
    pub(crate) jobs: Vec<Job>,
    pub(crate) all_jobs: i64,
    pub(crate) failures: Vec<Failure>,
    pub(crate) all_failures: i64,
    pub(crate) fires: Vec<NextFire>,
    pub(crate) all_fires: i64,
    pub(crate) workers: Vec<Worker>,
    pub(crate) running: Vec<Running>,
}

/// Numbers of runs, where nothing else is said; `lately` is since the window began.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) database: String,
    /// Whether there is any run or definition.
    pub(crate) used: bool,
    /// Lately.
    pub(crate) succeeded: i64,
    /// Lately, after more than one attempt.
    pub(crate) retried: i64,
    pub(crate) dead_lately: i64,
    /// Whenever they died.
    pub(crate) dead: i64,
    pub(crate) failed: i64,
    pub(crate) due: i64,
    pub(crate) due_since: Option<DateTime<Utc>>,
    /// Waiting and not due.
    pub(crate) later: i64,
    pub(crate) running: i64,
    /// Running with a lease that ran out.
    pub(crate) lost: i64,
    /// The oldest nominal time of a schedule that nobody has fired.
    pub(crate) late_since: Option<DateTime<Utc>>,
    pub(crate) workers: i64,
    pub(crate) ticking: i64,
    pub(crate) last_tick_at: Option<DateTime<Utc>>,
}

/// A job, with numbers of its runs in the window; durations in seconds.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) succeeded: i64,
    pub(crate) dead: i64,
    pub(crate) cancelled: i64,
    /// Waiting for another attempt now.
    pub(crate) failed: i64,
    pub(crate) running: i64,
    pub(crate) running_since: Option<DateTime<Utc>>,
    pub(crate) median: Option<f64>,
    pub(crate) longest: Option<f64>,
    /// In order; those without anything are left out.
    pub(crate) bins: Vec<Bin>,
}

/// What ended of a job in a stretch of time; durations in seconds.
#[derive(Debug)]
pub(crate) struct Bin {
    /// From 0.
    pub(crate) index: i32,
    pub(crate) succeeded: i64,
    /// Attempts.
    pub(crate) failed: i64,
    pub(crate) dead: i64,
    pub(crate) cancelled: i64,
    /// The earliest start of what took longer than a bin.
    pub(crate) began: Option<DateTime<Utc>>,
    pub(crate) median: Option<f64>,
    pub(crate) longest: Option<f64>,
}

/// Runs of one job that fail alike; the details are those of the newest.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) id: i64,
    pub(crate) job: String,
    /// Empty where the run has none.
    pub(crate) error_type: String,
    pub(crate) last_error: Option<String>,
    pub(crate) attempts: i32,
    pub(crate) max_attempts: i32,
    pub(crate) ended_at: DateTime<Utc>,
    pub(crate) dead: i64,
    pub(crate) failed: i64,
}

/// A schedule.
#[derive(Debug)]
pub(crate) struct NextFire {
    pub(crate) job: String,
    pub(crate) schedule: String,
    pub(crate) time_zone: String,
    pub(crate) enabled: bool,
    pub(crate) paused_at: Option<DateTime<Utc>>,
    pub(crate) next_run_at: Option<DateTime<Utc>>,
}

/// A run that is held.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: i64,
    pub(crate) job: String,
    pub(crate) worker: String,
    pub(crate) attempts: i32,
    pub(crate) max_attempts: i32,
    /// `None` only where another program says that it runs.
    pub(crate) started_at: Option<DateTime<Utc>>,
    /// Its lease ran out.
    pub(crate) is_lost: bool,
    pub(crate) is_asked_to_end: bool,
}

type Read<T> = std::result::Result<T, postgres::Error>;

impl Store {
    /// Reads what a report shows; `scope` is asked with the database's now.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn report(&self, scope: impl Fn(DateTime<Utc>) -> Scope + Send + 'static) -> Result<Snapshot> {
        let limits = Limits { one_moment: true, ..self.limits };
        self.session.transact("read the report", limits, move |client| {
            let now = client.query_typed_one(query!("now"), &[])?.try_get("now")?;
            let scope = scope(now);
            let (mut jobs, all_jobs) = jobs(client, &scope)?;
            fill(client, &scope, &mut jobs)?;
            let (failures, all_failures) = failures(client, &scope)?;
            let (fires, all_fires) = fires(client, &scope)?;
            Ok(Snapshot {
                now,
                summary: summary(client, &scope)?,
                jobs,
                all_jobs,
                failures,
                all_failures,
                fires,
                all_fires,
                workers: list_workers(client, Some(scope.rows))?,
                running: running(client, &scope)?,
            })
        })
    }
}

fn summary(client: &mut Client, scope: &Scope) -> Read<Summary> {
    let parameters: &[Parameter<'_>] =
        &[(&scope.since, Type::TIMESTAMPTZ), (&scope.patience.as_secs_f64(), Type::FLOAT8)];
    let row = client.query_typed_one(query!("report_summary"), parameters)?;
    Ok(Summary {
        database: row.try_get("database")?,
        used: row.try_get("used")?,
        succeeded: row.try_get("succeeded")?,
        retried: row.try_get("retried")?,
        dead_lately: row.try_get("dead_lately")?,
        dead: row.try_get("dead")?,
        failed: row.try_get("failed")?,
        due: row.try_get("due")?,
        due_since: row.try_get("due_since")?,
        later: row.try_get("later")?,
        running: row.try_get("running")?,
        lost: row.try_get("lost")?,
        late_since: row.try_get("late_since")?,
        workers: row.try_get("workers")?,
        ticking: row.try_get("ticking")?,
        last_tick_at: row.try_get("last_tick_at")?,
    })
}

fn jobs(client: &mut Client, scope: &Scope) -> Read<(Vec<Job>, i64)> {
    let parameters: &[Parameter<'_>] = &[(&scope.from, Type::TIMESTAMPTZ), (&scope.jobs, Type::INT8)];
    let rows = client.query_typed(query!("report_jobs"), parameters)?;
    let all = all(&rows, "jobs")?;
    let jobs = collect(rows, |row| {
        Ok(Job {
            name: row.try_get("job")?,
            succeeded: row.try_get("succeeded")?,
            dead: row.try_get("dead")?,
            cancelled: row.try_get("cancelled")?,
            failed: row.try_get("failed")?,
            running: row.try_get("running")?,
            running_since: row.try_get("running_since")?,
            median: None,
            longest: None,
            bins: Vec::new(),
        })
    })?;
    Ok((jobs, all))
}

/// Adds durations and bins to the jobs.
fn fill(client: &mut Client, scope: &Scope, jobs: &mut [Job]) -> Read<()> {
    let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
    let parameters: &[Parameter<'_>] =
        &[(&scope.from, Type::TIMESTAMPTZ), (&scope.bin.as_secs_f64(), Type::FLOAT8), (&names, Type::TEXT_ARRAY)];
    for row in client.query_typed(query!("report_bins"), parameters)? {
        let lane = usize::try_from(row.try_get::<_, i32>("lane")? - 1).ok();
        let Some(job) = lane.and_then(|lane| jobs.get_mut(lane)) else { continue };
        let (median, longest) = (row.try_get("median")?, row.try_get("longest")?);
        let Some(index) = row.try_get("bin")? else {
            (job.median, job.longest) = (median, longest);
            continue;
        };
        job.bins.push(Bin {
            index,
            succeeded: row.try_get("succeeded")?,
            failed: row.try_get("failed")?,
            dead: row.try_get("dead")?,
            cancelled: row.try_get("cancelled")?,
            began: row.try_get("began")?,
            median,
            longest,
        });
    }
    Ok(())
}

fn failures(client: &mut Client, scope: &Scope) -> Read<(Vec<Failure>, i64)> {
    let rows = client.query_typed(query!("report_failures"), &[(&scope.rows, Type::INT8)])?;
    let all = all(&rows, "groups")?;
    let failures = collect(rows, |row| {
        Ok(Failure {
            id: row.try_get("id")?,
            job: row.try_get("job")?,
            error_type: row.try_get("error_type")?,
            last_error: row.try_get("last_error")?,
            attempts: row.try_get("attempts")?,
            max_attempts: row.try_get("max_attempts")?,
            ended_at: row.try_get("ended_at")?,
            dead: row.try_get("dead")?,
            failed: row.try_get("failed")?,
        })
    })?;
    Ok((failures, all))
}

fn fires(client: &mut Client, scope: &Scope) -> Read<(Vec<NextFire>, i64)> {
    let rows = client.query_typed(query!("report_fires"), &[(&scope.rows, Type::INT8)])?;
    let all = all(&rows, "schedules")?;
    let fires = collect(rows, |row| {
        Ok(NextFire {
            job: row.try_get("name")?,
            schedule: row.try_get("schedule")?,
            time_zone: row.try_get("time_zone")?,
            enabled: row.try_get("enabled")?,
            paused_at: row.try_get("paused_at")?,
            next_run_at: row.try_get("next_run_at")?,
        })
    })?;
    Ok((fires, all))
}

fn running(client: &mut Client, scope: &Scope) -> Read<Vec<Running>> {
    collect(client.query_typed(query!("report_running"), &[(&scope.rows, Type::INT8)])?, |row| {
        Ok(Running {
            id: row.try_get("id")?,
            job: row.try_get("job")?,
            worker: row.try_get("worker")?,
            attempts: row.try_get("attempts")?,
            max_attempts: row.try_get("max_attempts")?,
            started_at: row.try_get("started_at")?,
            is_lost: row.try_get("is_lost")?,
            is_asked_to_end: row.try_get("is_asked_to_end")?,
        })
    })
}

/// How many rows there are beyond those that were read, the same in every row.
fn all(rows: &[Row], column: &str) -> Read<i64> {
    rows.first().map_or(Ok(0), |row| row.try_get(column))
}
