//! `jobctl trail`: what people changed.

use clap::Args;

use super::DatabaseFlags;
use super::arguments::{
    JobArgument, Shown, TimeZone, flag_words, job, print_first, within, worker,
};
use super::when::When;
use crate::job::definition_keys;
use crate::print::{Format, Output, Table};
use crate::store::{TrailFilter, TrailRows};
use crate::text::words::words;

words! {
    /// What people do, see the constraint `action_is_known`.
    enum ChangeKind {
        Retry = "retry",
        Cancel = "cancel",
        Edit = "edit",
        Settle = "settle",
        Prune = "prune",
        Pause = "pause",
        Resume = "resume",
        Hold = "hold",
        Release = "release",
        Forget = "forget",
        Restore = "restore",
        AcceptRestore = "accept-restore",
        Add = "add",
        Change = "change",
        Enable = "enable",
        Disable = "disable",
        Remove = "remove",
        Alert = "alert",
        Undo = "undo",
    }
}
flag_words!(ChangeKind);

const HEADING: &str = "Which changes";

/// List what people changed, the newest first
///
/// Each change that a person asked for: of runs, definitions, schedules, holds of
/// jobs, queues and workers, and restored databases. In a table, a command that
/// changed many runs is one line. What a colleague did today:
///
///   jobctl trail --since 00:00 --by ana
///   jobctl trail --job send_weekly_report --action change
///
/// The problems that `check` reported with --repeat, --exec or --webhook, their
/// receiver, and whether it got them:
///
///   jobctl trail --action alert
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    // In other commands, the time zone is listed with the flags that select runs.
    mut_arg("time_zone", |zone| zone.help_heading(HEADING))
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArgument,
    /// Show at most N
    #[arg(long, value_name = "N", default_value = "50", value_parser = within(1, i64::MAX - 1))]
    limit: i64,
    #[command(flatten)]
    filter: EventFilter,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    output: Output,
}

/// Flags that select events; an event must match all of them.
#[derive(Args, Debug)]
#[command(next_help_heading = HEADING)]
struct EventFilter {
    /// Only changes since then: 2h, 02:00, yesterday, a date
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    since: Option<When>,
    /// Only changes before then
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    until: Option<When>,
    /// Only changes with this text in the system user, the host or the database role, ignoring
    /// case
    #[arg(long, value_name = "TEXT")]
    by: Option<String>,
    /// Only changes of this kind, such as retry, hold, or change (of a definition)
    #[arg(long, value_name = "ACTION", hide_possible_values = true)]
    action: Option<ChangeKind>,
    /// Only changes of this definition, or of runs of this job
    #[arg(long, value_name = "JOB", value_parser = job)]
    job: Option<String>,
    /// Only holds of this queue, and changes of runs in it
    #[arg(long, value_name = "QUEUE", value_parser = definition_keys::queue)]
    queue: Option<String>,
    /// Only changes that concern this worker, such as its holds
    #[arg(long, value_name = "WORKER", value_parser = worker)]
    worker: Option<String>,
    #[command(flatten)]
    time_zone: TimeZone,
}

const TABLE: Table<'_> = Table::new(
    "recorded_at as at, action, run_id as run, job_type as job, detail, host_user|recorded_by as \
     by, reason",
    "no change matches",
);

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let store = database.open()?;
        let EventFilter { since, until, by, action, job, queue, worker, time_zone } = self.filter;
        let [since, until] = time_zone.window(&store, [since, until])?;
        // clap refuses a job with --job and another one without it.
        let job = job.or(self.job.name);
        let action = action.map(|action| action.to_string());
        let filter = TrailFilter { since, until, by, action, job, queue, worker };
        // For a person, all events of a command are one row. A program gets each event.
        let rows = match self.output.format() {
            Format::Table => TrailRows::Commands,
            Format::Json | Format::JsonLines | Format::Tsv => TrailRows::Events,
        };
        print_first(self.output, &self.shown, self.limit, "newest", &TABLE.wrapped(), |wanted| {
            store.list_trail(filter, wanted, rows)
        })
    }
}
