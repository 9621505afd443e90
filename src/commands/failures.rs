//! `jobctl failures`: failed attempts, and why they failed.

use chrono::TimeDelta;
use clap::Args;

use super::DatabaseFlags;
use super::arguments::{
    HEADING, JobArgument, Shown, TimeZone, incident, job, no_incident, print_first, share, within,
    worker,
};
use super::when::When;
use crate::job::definition_keys;
use crate::job::failure::ErrorType;
use crate::print::{Output, Table};
use crate::store::FailureFilter;
use crate::text::duration::DAY;

/// List failed attempts, even of runs that succeeded later
///
/// A row per attempt, the newest first. Cancelled and interrupted
/// attempts do not count, nor do snoozed ones, which asked to be made
/// later. What failed last night, and why:
///
///   jobctl failures --since 22:00 --group
///   jobctl failures --since 22:00 --worker web1
///
/// With --group, an incident is one line: attempts that failed alike,
/// over all jobs, shares and workers. Those with dead runs, which get
/// no further attempt, come first. If an incident of the
/// same jobs comes again within 8 hours, both are one line, and TIMES
/// counts them. The id selects the attempts of its newest incident
/// with dead runs, and their runs:
///
///   jobctl failures --incident 17.2
///   jobctl list --incident 17.2
///   jobctl retry --all-dead --incident 17.2
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArgument,
    /// List incidents: attempts that failed alike, with at most 30 minutes between them
    #[arg(long)]
    group: bool,
    /// Show at most N
    #[arg(long, value_name = "N", default_value = "50", value_parser = within(1, i64::MAX - 1))]
    limit: i64,
    #[command(flatten)]
    filter: AttemptFilter,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    output: Output,
}

/// Flags that select attempts; an attempt must match all of them.
#[derive(Args, Debug)]
#[command(next_help_heading = HEADING)]
struct AttemptFilter {
    /// Only attempts of these jobs: names of definitions, or shell or http for runs without one;
    /// repeat it or use commas
    #[arg(long, value_name = "JOB", value_delimiter = ',', value_parser = job)]
    job: Vec<String>,
    /// Only attempts on this worker
    #[arg(long, value_name = "WORKER", value_parser = worker)]
    worker: Option<String>,
    /// Only attempts of runs of this queue
    #[arg(long, value_name = "QUEUE", value_parser = definition_keys::queue)]
    queue: Option<String>,
    /// Only attempts of runs with this share, which `enqueue --share` set
    #[arg(long, value_name = "SHARE", value_parser = share)]
    share: Option<String>,
    /// Only attempts that failed with this type, such as exit_code or timeout
    #[arg(long, value_name = "TYPE", hide_possible_values = true)]
    error_type: Option<ErrorType>,
    /// Only attempts with this text in their error or last line of output, ignoring case
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only attempts of this incident of --group
    #[arg(long, value_name = "INCIDENT", value_parser = incident)]
    incident: Option<(i64, i32)>,
    /// Only attempts that ended since then: 2h, 02:00, yesterday, a date [default: 24h ago; with
    /// --until, 24h before it; with --incident, any time]
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    since: Option<When>,
    /// Only attempts that ended before then
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    until: Option<When>,
    #[command(flatten)]
    time_zone: TimeZone,
}

const NONE: &str = "no failed attempt matches";

const ATTEMPTS: Table<'_> = Table::new(
    "run_id as run, job_type as job, attempt, worker, finished_at as ended, status as run status, \
     error, last_line as last line",
    NONE,
);

const INCIDENTS: Table<'_> = Table::new(
    "incident, first_finished_at as first, last_finished_at as last, times, failures, dead, \
     waiting, recovered, jobs, workers, shares, newest_cause|cause as cause",
    NONE,
);

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let store = database.open()?;
        let AttemptFilter { job: mut jobs, worker, queue, share, error_type, error, .. } =
            self.filter;
        let AttemptFilter { incident, since, until, time_zone, .. } = self.filter;
        jobs.extend(self.job.name);
        for job in &jobs {
            super::check_job_exists(&store, job)?;
        }
        // Without --since, --until and --incident, list the failures of the last day.
        let since = match (since, until, incident) {
            (None, None, None) => Some(When::Ago(DAY)),
            _ => since,
        };
        let [mut since, mut until] = time_zone.window(&store, [since, until])?;
        let mut incident_name = None;
        if let Some((run, attempt)) = incident {
            let window =
                store.incident_window(run, attempt)?.ok_or_else(|| no_incident((run, attempt)))?;
            // The end of a window is exclusive.
            let end = window.last_at + TimeDelta::microseconds(1);
            since = since.max(Some(window.first_at));
            until = Some(until.map_or(end, |until| until.min(end)));
            incident_name = Some(window.incident);
        }
        let filter = FailureFilter {
            // With only --until, list the failures of the day before it.
            since: since.or_else(|| until.map(|until| until - DAY)),
            until,
            jobs,
            worker,
            queue,
            share,
            error_type,
            error,
            incident: incident_name,
        };
        let (output, shown, limit) = (self.output, &self.shown, self.limit);
        let (which, table) = if self.group { ("worst", &INCIDENTS) } else { ("newest", &ATTEMPTS) };
        print_first(output, shown, limit, which, table, |limit| {
            if self.group {
                store.list_incidents(filter, limit)
            } else {
                store.list_failures(filter, limit)
            }
        })
    }
}
