//! The facts that the report shows, read in one snapshot.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::row::{PgResult, column, rows};
use super::session::Transaction;
use super::statement::query;
use super::status::{WorkFacts, Worker, list_workers, read_work};
use super::{Incident, Result, Store, Timeouts};
use crate::job::thresholds::{TICK_OVERDUE, Thresholds};

/// The window and the limits of the report.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The start of the window of the summary.
    pub(crate) since: DateTime<Utc>,
    /// The start of the first bin, at or before `since`.
    pub(crate) from: DateTime<Utc>,
    pub(crate) bin: Duration,
    /// Jobs with a problem, which are shown first.
    pub(crate) troubled: Vec<String>,
    /// The maximum number of jobs.
    pub(crate) jobs: i64,
    /// The maximum number of rows of every other list.
    pub(crate) rows: i64,
    pub(crate) details: Details,
}

/// How much the report shows of failed attempts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Details {
    /// What a viewer may read.
    Errors,
    /// Also shows the last line of output.
    Output,
}

/// Everything that a report shows. Each list has a maximum length; `all_...` counts all rows.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// By the database's clock.
    pub(crate) now: DateTime<Utc>,
    pub(crate) summary: ReportSummary,
    pub(crate) work: WorkFacts,
    pub(crate) jobs: Vec<ReportJob>,
    pub(crate) all_jobs: i64,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) all_incidents: i64,
    pub(crate) workers: Vec<Worker>,
    pub(crate) running: Vec<RunningRun>,
}

rows! {
    /// Numbers of runs; `lately` means in the window.
    pub(crate) struct ReportSummary {
        pub(crate) database: String,
        /// Whether there is any run or definition.
        pub(crate) used: bool,
        /// In the window.
        pub(crate) succeeded: i64,
        /// Succeeded in the window after more than one attempt.
        pub(crate) retried: i64,
        pub(crate) dead_lately: i64,
        /// On the days of the window.
        pub(crate) dropped: i64,
        /// In or before the window.
        pub(crate) dead: i64,
        pub(crate) failed: i64,
        pub(crate) due: i64,
        pub(crate) due_since: Option<DateTime<Utc>>,
        /// Waiting and not due.
        pub(crate) later: i64,
        pub(crate) running: i64,
        /// Running runs whose lease expired.
        pub(crate) lost: i64,
        pub(crate) workers: i64,
        pub(crate) ticking: i64,
        pub(crate) last_tick_at: Option<DateTime<Utc>>,
    }

    /// A job and the numbers of its runs in the window; durations are in seconds.
    pub(crate) struct ReportJob {
        pub(crate) name: String,
        pub(crate) succeeded: i64,
        pub(crate) dead: i64,
        pub(crate) cancelled: i64,
        /// On the days of the window.
        pub(crate) dropped: i64,
        pub(crate) queued: i64,
        /// Runs that wait for another attempt now.
        pub(crate) failed: i64,
        pub(crate) running: i64,
        pub(crate) running_since: Option<DateTime<Utc>>,
        /// The average run time of successes on the last day with one.
        pub(crate) average: Option<f64>,
        /// The same on a day a week before.
        pub(crate) average_before: Option<f64>,
        /// The number of all jobs.
        total: i64,
        /// In order, without empty bins.
        pub(crate) bins: Vec<Bin> = Vec::new(),
    }

    /// The runs of a job that ended in a span of time; durations are in seconds.
    pub(crate) struct Bin {
        /// The place of the job in the list, counted from 1.
        place: i32,
        /// Counted from 0.
        pub(crate) index: i32,
        pub(crate) succeeded: i64,
        /// Failed attempts.
        pub(crate) failed: i64,
        pub(crate) dead: i64,
        pub(crate) cancelled: i64,
        /// The earliest start of a run or attempt that took longer than a bin.
        pub(crate) began: Option<DateTime<Utc>>,
        pub(crate) longest: Option<f64>,
    }

    /// A running run; `None` for its start only if another program set the status.
    pub(crate) struct RunningRun {
        pub(crate) id: i64,
        pub(crate) job_type: String,
        pub(crate) locked_by: String,
        pub(crate) started_at: Option<DateTime<Utc>>,
        pub(crate) attempts: i32,
        pub(crate) max_attempts: i32,
        /// The lease expired.
        pub(crate) is_lost: bool,
        pub(crate) cancel_requested: bool,
    }
}

impl Store {
    /// Reads everything that a report shows. `scope` gets the time of the database's clock and the
    /// problems.
    pub(crate) fn report(
        &self,
        scope: impl Fn(DateTime<Utc>, &WorkFacts) -> Scope + Send + 'static,
    ) -> Result<Snapshot> {
        let timeouts = Timeouts { one_moment: true, ..self.timeouts };
        self.transact_within(timeouts, "read the report", move |transaction| {
            let work = read_work(transaction, None, &Thresholds::default(), true)?;
            let now = work.now;
            let scope = scope(now, &work);
            let Scope { since, from, troubled, rows, .. } = &scope;
            let mut jobs: Vec<ReportJob> =
                transaction.list(query!("report/jobs"; from, troubled, limit = scope.jobs))?;
            read_bins(transaction, &scope, &mut jobs)?;
            let mut incidents: Vec<Incident> = transaction.list(query!(
                "look/list_incidents";
                since, until = None::<DateTime<Utc>>, run_ids = None::<Vec<i64>>,
                attempts = None::<Vec<i32>>, with_unstarted = true, limit = rows,
            ))?;
            if scope.details == Details::Output {
                read_last_lines(transaction, &mut incidents)?;
            }
            let silent_after = TICK_OVERDUE.as_secs_f64();
            Ok(Snapshot {
                now,
                summary: transaction.one(query!("report/summary"; since, silent_after))?,
                work,
                all_jobs: jobs.first().map_or(0, |job| job.total),
                jobs,
                all_incidents: incidents.first().map_or(0, |incident| incident.total),
                incidents,
                workers: list_workers(transaction, Some(*rows))?,
                running: transaction
                    .list(query!("look/list_running"; job = None::<String>, limit = rows))?,
            })
        })
    }
}

/// Adds the bins to the jobs.
fn read_bins(transaction: &mut Transaction, scope: &Scope, jobs: &mut [ReportJob]) -> PgResult<()> {
    let names = column(jobs, |job| job.name.clone());
    let width = scope.bin.as_secs_f64();
    let bins: Vec<Bin> =
        transaction.list(query!("report/bins"; from = scope.from, width, names))?;
    for bin in bins {
        let place = usize::try_from(bin.place - 1).ok();
        if let Some(job) = place.and_then(|place| jobs.get_mut(place)) {
            job.bins.push(bin);
        }
    }
    Ok(())
}

/// Takes the last line of output of the newest attempt for the cause.
fn read_last_lines(transaction: &mut Transaction, incidents: &mut [Incident]) -> PgResult<()> {
    let ids = column(incidents, |incident| incident.newest_id);
    let attempts = column(incidents, |incident| incident.newest_attempt);
    let lines: Vec<Option<String>> =
        transaction.list(query!("report/last_lines"; ids, attempts))?;
    for (incident, line) in incidents.iter_mut().zip(lines) {
        incident.cause = line.or(incident.cause.take());
    }
    Ok(())
}
