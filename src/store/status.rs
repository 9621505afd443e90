//! The facts that `status` shows, and the problems of the work that other commands show, too.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use postgres::types::Json;
use serde::{Deserialize, Serialize};

use super::claim::ClaimFilter;
use super::definitions::SHOWN_APPLICATION_SCHEDULES;
use super::row::{PgResult, rows, timestamp};
use super::statement::query;
use super::transaction::Transaction;
use super::{Result, Store};
use crate::job::due::{self, Scheduled};
use crate::job::finding_code::Code;
use crate::job::thresholds::{TICK_OVERDUE, Thresholds};
use crate::text::listing::Listing;

rows! {
    /// The runs of a job, counted; the fields are named as in `status --json`. A queued or failed
    /// run counts as `due` or as `not_due`.
    pub(crate) struct JobStatus {
        pub(crate) job_type: String,
        pub(crate) not_due_runs: i64,
        pub(crate) due_runs: i64,
        pub(crate) running_runs: i64,
        pub(crate) failed_runs: i64,
        pub(crate) dead_runs: i64,
        pub(crate) succeeded_runs_last_24h: i64,
        pub(crate) oldest_due_age_seconds: Option<f64>,
        pub(crate) run_time_median_seconds: Option<f64>,
        pub(crate) run_time_p95_seconds: Option<f64>,
        pub(crate) run_time_max_seconds: Option<f64>,
        pub(crate) next_run_at: Option<DateTime<Utc>> as "timestamp",
        /// `fires`, `broken`, `paused` or `disabled`; `None` for an enabled definition without a
        /// schedule.
        pub(crate) state: Option<String>,
        /// The status of the job's last finished run, from `Figures`.
        pub(crate) last_status: Option<String> = None,
        /// The end of the job's last success, from `Figures`.
        pub(crate) last_succeeded_at: Option<DateTime<Utc>> as "timestamp" = None,
        pub(crate) blocked_runs: i64,
        /// When the running run that started last usually ends.
        pub(crate) usual_end_at: Option<DateTime<Utc>> as "timestamp",
    }

    /// What became of a job's runs since its first one. Pruning does not lower these numbers.
    pub(crate) struct Figures {
        pub(crate) job_type: String,
        pub(crate) succeeded: i64,
        pub(crate) dead: i64,
        pub(crate) expired: i64,
        /// Runs that were dropped because the definition was full.
        pub(crate) dropped: i64,
        pub(crate) failed_attempts: i64,
        /// Failed attempts after which the run waited for another one.
        pub(crate) retried_attempts: i64,
        /// The run time of all attempts that succeeded.
        pub(crate) run_time_seconds: f64,
        /// The time from due to start of all attempts whose result ended their run.
        pub(crate) wait_seconds: f64,
        /// For each bound of `WAITS`, how many of these attempts waited at most that long.
        pub(crate) waits: Vec<i64>,
        /// How the job's last run ended.
        #[serde(skip)]
        pub(crate) last_status: Option<String>,
        pub(crate) last_succeeded_at: Option<DateTime<Utc>> as "timestamp",
        /// Runs that were dropped on this day, in UTC.
        pub(crate) dropped_today: i64,
        /// Runs that were dropped on this day and the six before it.
        pub(crate) dropped_last_7_days: i64,
    }

    /// What came and went in the last 10 minutes and the last hour, see look/flow.sql.
    pub(crate) struct Flow {
        /// `None` for all jobs.
        pub(crate) job_type: Option<String>,
        pub(crate) enqueued_10m: i64,
        pub(crate) enqueued_1h: i64,
        pub(crate) started_10m: i64,
        pub(crate) started_1h: i64,
        pub(crate) succeeded_10m: i64,
        pub(crate) succeeded_1h: i64,
        /// Failed attempts, not runs.
        pub(crate) failed_10m: i64,
        pub(crate) failed_1h: i64,
        pub(crate) due_runs: i64,
        /// How the number of due runs changes: `grows`, `shrinks` or `steady`; `None`: no run is
        /// due.
        pub(crate) trend: Option<String>,
        /// The time until no run is due, at the pace of the last 10 minutes; `None`: never, or a
        /// hold or the lack of a worker keeps a due run from starting.
        pub(crate) empty_in_seconds: Option<f64>,
        /// The time until no run is due, at the rate of the definition.
        pub(crate) at_best_seconds: Option<f64>,
        pub(crate) longest_running_seconds: Option<f64>,
    }

    /// A worker and its last tick.
    pub(crate) struct Worker {
        pub(crate) worker: String,
        pub(crate) last_tick_at: DateTime<Utc> as "timestamp",
        pub(crate) version: String,
        /// The queues that it serves; empty: all.
        pub(crate) queues: Vec<String>,
        pub(crate) login: String,
        /// Whether it would be a problem if its ticks stopped.
        #[serde(skip)]
        pub(crate) is_known: bool,
    }

    /// A hold, a paused schedule or a disabled job, see look/stopped.sql.
    pub(crate) struct StoppedFacts {
        pub(crate) code: Code,
        pub(crate) job_type: Option<String>,
        pub(crate) queue: Option<String>,
        pub(crate) worker: Option<String>,
        pub(crate) since_at: Option<DateTime<Utc>>,
        pub(crate) until_at: Option<DateTime<Utc>>,
        pub(crate) stopped_by: Option<String>,
        pub(crate) reason: Option<String>,
        /// How many due runs wait for the release.
        pub(crate) runs: i64,
        /// Whether one of the due runs is late, and its job has a schedule.
        pub(crate) keeps_late: bool,
        /// In seconds.
        pub(crate) max_age: Option<f64>,
        /// The run that asked for a later attempt, and so holds its job; `None`: a person stopped
        /// this.
        pub(crate) run_id: Option<i64>,
    }

    /// What a tick leaves alone on purpose.
    pub(crate) struct StoppedCounts {
        /// Due runs that a hold keeps from its worker.
        pub(crate) held: i64,
        /// Due runs that its host must not execute.
        pub(crate) excluded: i64,
        /// Due schedules that are paused.
        pub(crate) schedules: i64,
    }

    /// A sequence that would return ids that its table already has.
    pub(crate) struct SequenceFacts {
        pub(crate) table_name: String,
        /// The statement that corrects it.
        pub(crate) setval: String,
    }
}

/// The facts of a finding, see look/findings.sql. Parts that do not concern it are absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Fact {
    pub(crate) code: Code,
    pub(crate) job_type: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) run_id: Option<i64>,
    pub(crate) since_at: Option<DateTime<Utc>>,
    /// The jobs of the runs, if the runs of several jobs are one problem.
    pub(crate) jobs: Vec<String>,
    /// The number of runs, attempts, effects or schedules.
    pub(crate) runs: i64,
    /// The name and the login of one of these schedules of applications.
    pub(crate) schedule: Option<String>,
    /// An error, or the tick that found an older database.
    pub(crate) detail: Option<String>,
    /// The last line of output of the attempt with this error, for a role that may read outputs.
    pub(crate) last_line: Option<String>,
    /// That line without values, for other roles.
    pub(crate) cause: Option<String>,
    /// A duration, whose meaning depends on the code.
    pub(crate) seconds: Option<f64>,
    /// How long a run of the job usually takes, in seconds.
    pub(crate) usual_seconds: Option<f64>,
    /// In how many days its runs reach their timeout.
    pub(crate) days: Option<i64>,
    /// The bound of the definition's range of usual run times that the run has exceeded or not
    /// reached.
    pub(crate) limit_seconds: Option<f64>,
    /// When the run is due again.
    pub(crate) next_at: Option<DateTime<Utc>>,
    /// When the problem last grew, if that was after `since_at`.
    pub(crate) newest_at: Option<DateTime<Utc>>,
    /// Whether no tick is expected yet, because the schema is new, or this worker has never ticked.
    pub(crate) is_new: bool,
}

/// The upper bounds of the histogram of waits, in seconds; `jobctl.count_attempts` has the same.
pub(crate) const WAITS: [&str; 7] = ["1", "10", "30", "60", "300", "3600", "+Inf"];

/// Everything that `status` shows, read in one snapshot.
#[derive(Debug, Serialize)]
pub(crate) struct Overview {
    /// By the database's clock.
    #[serde(with = "timestamp")]
    pub(crate) now: DateTime<Utc>,
    pub(crate) jobs: Vec<JobStatus>,
    /// The flow of all jobs comes first, if there are several.
    pub(crate) flow: Vec<Flow>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) longest_running: Listing,
    pub(crate) figures: Vec<Figures>,
    #[serde(skip)]
    pub(crate) work: WorkFacts,
}

/// The problems of the work at one moment.
#[derive(Debug, Default)]
pub(crate) struct WorkFacts {
    /// By the database's clock.
    pub(crate) now: DateTime<Utc>,
    pub(crate) facts: Vec<Fact>,
    /// Everything that was stopped on purpose.
    pub(crate) stopped: Vec<StoppedFacts>,
    /// `None`: the role of this session may not read sequences.
    pub(crate) sequences_behind: Option<Vec<SequenceFacts>>,
    /// The definitions of the jobs. Only a report reads their last runs.
    pub(crate) scheduled: Vec<Scheduled>,
    /// Whether the role of this session has the privileges of an operator.
    pub(crate) operates: bool,
}

/// How many running runs `status` shows at most.
const LONGEST_RUNNING: i64 = 5;

impl Store {
    /// Reads the status of each job, or only of `job`, and the workers and the longest running
    /// runs.
    pub(crate) fn status(&self, job: Option<String>) -> Result<Overview> {
        self.read_snapshot("read the status", |transaction| {
            let mut jobs: Vec<JobStatus> = transaction.list(query!("look/status_jobs"; job))?;
            let figures: Vec<Figures> = transaction.list(query!("look/figures"; job))?;
            let by_job: HashMap<_, _> = figures.iter().map(|one| (&one.job_type, one)).collect();
            let only = job.as_ref().map(|job| vec![job.clone()]);
            let work =
                read_work(transaction, only.as_ref(), &Thresholds::default(), Purpose::Problems)?;
            for job in &mut jobs {
                let JobStatus { job_type, state, next_run_at, .. } = job;
                due::mark_broken(&work.scheduled, job_type, state, next_run_at);
                if let Some(figures) = by_job.get(&job.job_type) {
                    job.last_status.clone_from(&figures.last_status);
                    job.last_succeeded_at = figures.last_succeeded_at;
                }
            }
            let flow = transaction
                .list(query!("look/flow"; job, tick_age = TICK_OVERDUE.as_secs_f64()))?;
            let workers = list_workers(transaction, None)?;
            let longest_running =
                transaction.listing(query!("look/list_running"; job, limit = LONGEST_RUNNING))?;
            Ok(Overview { now: work.now, jobs, flow, workers, longest_running, figures, work })
        })
    }

    /// Returns the problems of all jobs, or only those of `jobs` and of all workers.
    pub(crate) fn inspect_work(
        &self,
        jobs: Option<Vec<String>>,
        thresholds: Thresholds,
    ) -> Result<WorkFacts> {
        self.read_snapshot("inspect the work", |transaction| {
            read_work(transaction, jobs.as_ref(), &thresholds, Purpose::Problems)
        })
    }

    /// Counts the due runs and schedules that a tick of this worker leaves alone on purpose. Counts
    /// runs only up to `limit`.
    pub(crate) fn count_stopped(
        &self,
        worker: &str,
        wanted: &ClaimFilter,
        limit: i64,
    ) -> Result<StoppedCounts> {
        let ClaimFilter { queues, excluded_jobs, excluded_kinds, .. } = wanted;
        self.query(
            "count held runs",
            Transaction::one,
            query!("tick/count_stopped"; queues, worker, limit, excluded_jobs, excluded_kinds),
        )
    }

    /// Returns whether the database has any run of this job, even if the job has no definition.
    pub(crate) fn has_runs(&self, job: String) -> Result<bool> {
        self.query("look for runs", Transaction::one, query!("look/has_runs"; job))
    }
}

/// Returns the workers and their last ticks, at most `limit`.
pub(super) fn list_workers(
    transaction: &mut Transaction,
    limit: Option<i64>,
) -> PgResult<Vec<Worker>> {
    transaction.list(query!("look/list_workers"; limit, tick_age = TICK_OVERDUE.as_secs_f64()))
}

/// What the problems of the work are read for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    Problems,
    /// The report also shows how the last runs of scheduled jobs ended, and the schedules of
    /// applications.
    Report,
}

/// Reads the problems of the work in the transaction of the caller: of all jobs, or only of `jobs`.
pub(super) fn read_work(
    transaction: &mut Transaction,
    jobs: Option<&Vec<String>>,
    thresholds: &Thresholds,
    purpose: Purpose,
) -> PgResult<WorkFacts> {
    let with_figures = purpose == Purpose::Report;
    let applications = if with_figures { SHOWN_APPLICATION_SCHEDULES } else { 0 };
    let mut scheduled: Vec<Scheduled> = transaction.list(query!(
        "look/list_schedules";
        name = None::<String>,
        with_figures,
        applications,
    ))?;
    if let Some(jobs) = jobs {
        scheduled.retain(|one| jobs.contains(&one.name));
    }
    let (tick_age, lag) = (thresholds.tick_age.as_secs_f64(), thresholds.lag.as_secs_f64());
    let seconds = |limit: Option<Duration>| limit.map(|limit| limit.as_secs_f64());
    let (running, dead) = (seconds(thresholds.running), seconds(thresholds.dead_within));
    let failures = seconds(thresholds.failures.map(|(_, within)| within));
    let facts: Vec<Json<Fact>> =
        transaction.list(query!("look/findings"; jobs, tick_age, lag, running, dead, failures))?;
    let facts = facts.into_iter().map(|Json(fact)| fact).collect();
    let stopped = transaction.list(query!("look/stopped"; jobs, tick_age, lag))?;
    let now = transaction.one(query!("look/now"))?;
    let (operates, sees_sequences) = transaction.one(query!("look/operates"))?;
    let sequences_behind = if sees_sequences {
        Some(transaction.list(query!("look/sequences_behind"))?)
    } else {
        None
    };
    Ok(WorkFacts { now, facts, stopped, sequences_behind, scheduled, operates })
}
