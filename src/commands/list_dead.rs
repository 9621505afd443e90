//! `jobctl list-dead`: runs that are not tried again, and why.

use clap::Args;

use super::DatabaseFlags;
use super::arguments::{Filter, JobArgument, Shown, TimeZone, print_first, within};
use crate::job::status::Status;
use crate::print::{Output, Table};
use crate::store::{RunFilter, RunList};

/// List dead runs, the latest death first
///
/// A dead run failed and gets no further attempt: none is left, or the failure was
/// permanent.
///
/// The most frequent errors, and the dead runs of one job:
///
///   jobctl list-dead --group
///   jobctl list-dead --job send_weekly_report --since 1d
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArgument,
    /// Count dead runs by job and error type, most frequent first
    #[arg(long)]
    group: bool,
    /// Also settled runs; see `jobctl settle`
    #[arg(long)]
    all: bool,
    /// Show at most N
    #[arg(long, value_name = "N", value_parser = within(1, i64::MAX))]
    limit: Option<i64>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    time_zone: TimeZone,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    output: Output,
}

const NONE: &str = "no dead run matches";

const RUNS: Table<'_> = Table::new(
    "id, job_type as job, attempts/max_attempts as attempts, finished_at as died at, \
     error_type as error type, last_error as error, last_line as last line",
    NONE,
);

/// The columns with `--all`, which adds settled runs.
const ALL: Table<'_> = Table::new(
    "id, job_type as job, attempts/max_attempts as attempts, finished_at as died at, \
     settled_at as settled at, error_type as error type, last_error as error, \
     last_line as last line",
    NONE,
);

const GROUPS: Table<'_> = Table::new(
    "job_type as job, error_type as error type, runs, first_finished_at as first died, \
     last_finished_at as last died, newest_id as newest, last_error as error, \
     last_line as last line",
    NONE,
);

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let store = database.open()?;
        let filter = RunFilter {
            unsettled: !self.all,
            ..self.filter.or_job(self.job).resolve(
                &store,
                &self.time_zone,
                &[Status::Dead],
                self.output,
            )?
        };
        let (which, table) = match (self.group, self.all) {
            (true, _) => ("most frequent", &GROUPS),
            (false, true) => ("latest", &ALL),
            (false, false) => ("latest", &RUNS),
        };
        let limit = self.limit.unwrap_or(i64::MAX);
        print_first(self.output, &self.shown, limit, which, table, |wanted| {
            if self.group {
                store.group_dead(filter)
            } else {
                store.list_runs(RunList::Dead, filter, wanted)
            }
        })
    }
}
