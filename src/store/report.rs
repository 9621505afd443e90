//! The facts that the report shows, read in one snapshot.

use std::time::Duration;

use chrono::{DateTime, Utc};
use postgres::types::Json;
use serde::Deserialize;

use super::row::rows;
use super::statement::query;
use super::status::{Flow, Purpose, WorkFacts, Worker, list_workers, read_work};
use super::{Incident, Result, Store};
use crate::job::thresholds::{TICK_OVERDUE, Thresholds};

/// The window and the limits of the report.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The start of each bin, in order; at least one.
    pub(crate) bins: Vec<DateTime<Utc>>,
    /// The length of a bin.
    pub(crate) width: Duration,
    /// Whether the bins are days in UTC. Then the figures of these days are read, not their runs.
    pub(crate) by_day: bool,
    /// Jobs with a problem, which are shown first.
    pub(crate) troubled: Vec<String>,
    /// The maximum number of jobs.
    pub(crate) jobs: i64,
    /// The maximum number of rows of each other list.
    pub(crate) rows: i64,
    pub(crate) details: Details,
}

/// How much the report shows of failed attempts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Details {
    /// Only what a viewer may read: the errors.
    Errors,
    /// Also the last lines of output.
    Output,
}

/// Everything that a report shows. Each list has a maximum length; `all_...` counts all rows.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// By the database's clock.
    pub(crate) now: DateTime<Utc>,
    pub(crate) summary: ReportSummary,
    pub(crate) work: WorkFacts,
    /// The flow of all jobs comes first, if there are several.
    pub(crate) flow: Vec<Flow>,
    pub(crate) jobs: Vec<ReportJob>,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) running: Vec<RunningRun>,
}

/// The runs of a job that ended in a span of time.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Bin {
    /// Counted from 0.
    pub(crate) index: i32,
    pub(crate) succeeded: i64,
    /// Failed attempts that did not end their run.
    pub(crate) failed: i64,
    pub(crate) dead: i64,
    pub(crate) cancelled: i64,
    /// The earliest start of a run or attempt that took longer than a bin, in bins from the first.
    pub(crate) began: Option<f64>,
    /// The longest time from the claim to the record of a success, in seconds.
    pub(crate) longest: Option<f64>,
}

rows! {
    /// Numbers of runs, whatever the window is.
    pub(crate) struct ReportSummary {
        pub(crate) database: String,
        /// Whether there is any run or definition.
        pub(crate) used: bool,
        /// Dead and not settled.
        pub(crate) dead: i64,
        /// Dead and not settled runs that died in the last 24 hours.
        pub(crate) dead_lately: i64,
        pub(crate) failed: i64,
        pub(crate) due: i64,
        pub(crate) due_since: Option<DateTime<Utc>>,
        /// Pending and not due.
        pub(crate) later: i64,
        pub(crate) running: i64,
        /// Running runs whose lease expired.
        pub(crate) lost: i64,
        /// Runs that succeeded on the last seven days in UTC, today included.
        pub(crate) succeeded_7d: i64,
        /// Runs that died on the same seven days.
        pub(crate) dead_7d: i64,
        /// Runs that succeeded on the seven days before those.
        pub(crate) succeeded_before: i64,
        /// Runs that died on the seven days before those.
        pub(crate) dead_before: i64,
        pub(crate) workers: i64,
        /// The workers whose last tick is recent.
        pub(crate) ticking: i64,
        pub(crate) last_tick_at: Option<DateTime<Utc>>,
    }

    /// A job and the numbers of its runs in the window; durations are in seconds.
    pub(crate) struct ReportJob {
        pub(crate) name: String,
        pub(crate) succeeded: i64,
        /// Failed attempts that did not end their run.
        pub(crate) failed: i64,
        pub(crate) dead: i64,
        pub(crate) cancelled: i64,
        /// Runs dropped on the days of the window.
        pub(crate) dropped: i64,
        pub(crate) queued: i64,
        /// Runs that wait for another attempt now.
        pub(crate) to_retry: i64,
        pub(crate) running: i64,
        pub(crate) running_since: Option<DateTime<Utc>>,
        /// The jobs that it follows.
        pub(crate) after: Option<String>,
        /// The average run time of successes on the last day with one.
        pub(crate) average: Option<f64>,
        /// The average run time on a day a week or two before, if it was another day.
        pub(crate) average_before: Option<f64>,
        /// The number of days between the two averages.
        pub(crate) days: Option<i32>,
        /// When its runs reach their timeout, if they take longer and longer.
        pub(crate) days_to_timeout: Option<f64>,
        /// The number of all jobs: the same in each row, as are the next four.
        pub(crate) total: i64,
        /// Runs of all jobs that succeeded.
        pub(crate) all_succeeded: i64,
        /// Failed attempts of all jobs that did not end their run.
        pub(crate) all_failed: i64,
        /// Runs of all jobs that died.
        pub(crate) all_dead: i64,
        /// Runs of all jobs that were dropped.
        pub(crate) all_dropped: i64,
        /// The bins in order, without empty ones.
        #[serde(skip)]
        pub(crate) bins: Json<Vec<Bin>>,
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
    /// Reads everything that a report shows, in one snapshot.
    ///
    /// `scope_of` returns what to read. It gets two things that the snapshot shows first: the time
    /// of the database's clock, where the window ends, and the problems, because their jobs come
    /// first.
    pub(crate) fn report(
        &self,
        scope_of: impl Fn(DateTime<Utc>, &WorkFacts) -> Scope,
    ) -> Result<Snapshot> {
        self.read_snapshot("read the report", |transaction| {
            let mut work = read_work(transaction, None, &Thresholds::default(), Purpose::Report)?;
            let now = work.now;
            let scope = scope_of(now, &work);
            let Scope { bins, by_day, troubled, rows, .. } = &scope;
            let width = scope.width.as_secs_f64();
            let jobs = transaction
                .list(query!("report/jobs"; bins, width, by_day, troubled, limit = scope.jobs))?;
            let since = bins.first();
            let mut incidents: Vec<Incident> = transaction.list(query!(
                "look/list_incidents";
                since, until = None::<DateTime<Utc>>, run_ids = None::<Vec<i64>>,
                attempts = None::<Vec<i32>>, with_unstarted = true, limit = rows,
            ))?;
            match scope.details {
                Details::Errors => {
                    // This role may read outputs, but readers of the report perhaps not.
                    for fact in &mut work.facts {
                        fact.last_line = None;
                    }
                }
                Details::Output => {
                    // Fails if the role may not read outputs.
                    transaction.execute(query!("report/may_read_outputs"))?;
                    for incident in &mut incidents {
                        incident.tell_newest();
                    }
                }
            }
            let silent_after = TICK_OVERDUE.as_secs_f64();
            Ok(Snapshot {
                now,
                summary: transaction.one(query!("report/summary"; silent_after))?,
                work,
                flow: transaction
                    .list(query!("look/flow"; job = None::<String>, tick_age = silent_after))?,
                jobs,
                incidents,
                workers: list_workers(transaction, Some(*rows))?,
                running: transaction
                    .list(query!("look/list_running"; job = None::<String>, limit = rows))?,
            })
        })
    }
}
