//! `jobctl list`: past and waiting runs.

use clap::Args;

use super::DatabaseFlags;
use super::arguments::{Filter, HEADING, JobArgument, Shown, TimeZone, print_first, within};
use crate::job::status::Status;
use crate::print::{Format, Output, Table};
use crate::store::{RunFilter, RunList};
use crate::text::listing::Listing;

/// List runs, the newest first
///
/// With --until, finished runs are sorted by their end and others by their
/// creation, the latest first.
///
/// The runs of the last night, and those that failed:
///
///   jobctl list --since 12h
///   jobctl list --since 12h --had-failures
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArgument,
    /// Only runs of these statuses: blocked, queued, running, succeeded, failed, dead, cancelled
    #[arg(
        long,
        value_name = "STATUS",
        value_delimiter = ',',
        hide_possible_values = true,
        help_heading = HEADING
    )]
    status: Vec<Status>,
    /// Only runs of which an attempt failed, whatever their status
    #[arg(long, help_heading = HEADING)]
    had_failures: bool,
    /// Show at most N
    #[arg(long, value_name = "N", default_value = "50", value_parser = within(1, i64::MAX - 1))]
    limit: i64,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    time_zone: TimeZone,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    output: Output,
}

const NONE: &str = "no run matches";

pub(super) const TABLE: Table<'_> = Table::new(
    "id, job_type as job, status, attempts/max_attempts as attempts, created_at as created, \
     finished_at as ended, run_time_seconds as run time, last_error as error",
    NONE,
);

/// The columns of waiting runs.
const WAITING: Table<'_> = Table::new(
    "id, job_type as job, status, attempts/max_attempts as attempts, run_at as due, queue, \
     priority, share, last_error as error",
    NONE,
);

const RUNNING: Table<'_> = Table::new(
    "id, job_type as job, status, worker, attempts/max_attempts as attempts, started_at as since, \
     usual_end_at as usual end, queue, share",
    NONE,
);

impl Arguments {
    /// Returns the table for the statuses of `--status`.
    fn table(&self) -> &'static Table<'static> {
        match self.status.as_slice() {
            [] => &TABLE,
            statuses if statuses.iter().all(|status| status.is_waiting()) => &WAITING,
            statuses if statuses.iter().all(|status| *status == Status::Running) => &RUNNING,
            _ => &TABLE,
        }
    }

    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let store = database.open()?;
        let table = self.table();
        let filter = RunFilter {
            had_failures: self.had_failures,
            ..self.filter.or_job(self.job).resolve(
                &store,
                &self.time_zone,
                &self.status,
                self.output,
            )?
        };
        print_first(self.output, &self.shown, self.limit, "newest", table, |wanted| {
            let mut runs = store.list_runs(RunList::Any, filter, wanted)?;
            if self.output.format() == Format::Table && !self.had_failures {
                hide_errors_before_success(&mut runs);
            }
            Ok(runs)
        })
    }
}

/// Clears the errors of runs that succeeded in a later attempt: in a table, they would seem to have
/// failed.
pub(super) fn hide_errors_before_success(runs: &mut Listing) {
    for run in &mut runs.rows {
        if *run.value("status") == Status::Succeeded.as_str() {
            run.clear("last_error");
        }
    }
}
