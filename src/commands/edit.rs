//! `jobctl edit`: changes values of runs that were given at enqueue.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueHint};

use super::Database;
use super::arguments::{length, time, within};
use super::bulk::{Request, Selection};
use super::enqueue::{LONGEST_WAIT, check_job, read_payload, timeout};
use super::trail::Reason;
use crate::exit::{Exit, Fault};
use crate::job::action::MOST_ATTEMPTS;
use crate::job::status::Status;
use crate::job::{backoff, definition, payload};
use crate::store::{Edit, Store};

/// Change the queue, time, limits or payload of waiting runs
///
/// Dead runs can be edited, too; a retry uses the new values. Only the owner of the
/// schema can replace a payload.
///
///   jobctl edit 3 4 --priority -10
///   jobctl edit --all-waiting --job send_weekly_report --in 2h
///   jobctl edit --all-waiting --from-queue mail --queue slow --dry-run
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// All queued and failed runs, due or not; filters narrow them down
    #[arg(id = "All", long = "all-waiting", conflicts_with_all = ["ids", "payload_file"])]
    all_waiting: bool,
    #[command(flatten)]
    values: Values,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    runs: FromQueue,
}

/// The new values; those that are not given stay.
#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct Values {
    /// The queue; a tick can serve only some queues
    #[arg(id = "new_queue", long = "queue", value_name = "Q", value_parser = definition::queue)]
    queue: Option<String>,
    /// Runs with a smaller number start first
    #[arg(long, value_name = "N", value_parser = within(i32::MIN, i32::MAX))]
    priority: Option<i32>,
    /// Do not start before this time: RFC 3339, with its offset
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "in")]
    run_at: Option<DateTime<Utc>>,
    /// Do not start before this much time has passed
    #[arg(long, value_name = "DURATION", value_parser = length(Duration::ZERO, LONGEST_WAIT))]
    r#in: Option<Duration>,
    /// Wait after a failure: fixed:1m, exponential:1m..30m, polynomial:10s, list:1m,5m,30m
    #[arg(long, value_name = "SPEC", value_parser = backoff::check)]
    backoff: Option<String>,
    /// Maximum number of starts, those so far included
    #[arg(long, value_name = "N", value_parser = within(1, MOST_ATTEMPTS))]
    max_attempts: Option<i32>,
    /// Time limit of one attempt
    #[arg(long, value_name = "DURATION", value_parser = timeout())]
    timeout: Option<Duration>,
    /// Read the payload of the runs with these ids from a file, or from stdin
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    payload_file: Option<String>,
}

/// The usual selection, but `--queue` is a new value here, so the filter is `--from-queue`.
#[derive(Debug)]
struct FromQueue(Selection);

impl Args for FromQueue {
    fn augment_args(command: Command) -> Command {
        Selection::augment_args(command).mut_arg("queue", |queue| queue.long("from-queue"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FromQueue {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Selection::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let FromQueue(runs) = self.runs;
        runs.check(self.all_waiting, "--all-waiting")?;
        let payload = self.values.payload_file.as_deref().map(payload_of).transpose()?;
        let store = database.open()?;
        if let Some(payload) = &payload {
            fits_jobs(&store, runs.ids(), payload)?;
        }
        let has_time = self.values.run_at.is_some() || self.values.r#in.is_some();
        let (from, only): (&[_], _) = if self.all_waiting || has_time {
            (
                &[Status::Queued, Status::Failed],
                "only queued and failed runs have a time; a retry makes other runs due",
            )
        } else {
            (
                &[Status::Queued, Status::Failed, Status::Dead],
                "only queued, failed and dead runs can be edited",
            )
        };
        let cause = self.reason.cause();
        let edit = self.values.edit(payload);
        let request = Request {
            verb: "edit",
            from,
            ask: &|ids| store.edit(ids, from, &edit, &cause),
            granted: &|_| "edited",
            why: &|status| match from.iter().any(|from| from.as_str() == status) {
                true => "its starts so far use up --max-attempts; give a larger number".to_owned(),
                false => format!("its status is {status}; {only}"),
            },
        };
        request.of(runs, &store, self.all_waiting.then_some("waiting"))
    }
}

impl Values {
    fn edit(self, payload: Option<String>) -> Edit {
        Edit {
            queue: self.queue,
            priority: self.priority,
            run_at: self.run_at,
            after: self.r#in.map(|wait| wait.as_secs_f64()),
            max_attempts: self.max_attempts,
            timeout: self.timeout.map(|limit| limit.as_secs_f64()),
            backoff: self.backoff,
            payload,
        }
    }
}

fn payload_of(file: &str) -> anyhow::Result<String> {
    let bytes = read_payload(file)?;
    Ok(payload::check(&bytes).map_err(Fault::usage)?.to_owned())
}

/// Fails if the job of one of these runs can't have this payload. The job of a run never changes.
fn fits_jobs(store: &Store, ids: &[i64], payload: &str) -> anyhow::Result<()> {
    let jobs = store.job_types(ids.to_vec())?;
    Ok(jobs.iter().try_for_each(|job| check_job(job, payload)).map_err(Fault::usage)?)
}
