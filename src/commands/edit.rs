//! `jobctl edit`: changes values of runs that were given at enqueue.

use chrono::{DateTime, Utc};
use clap::{Args, ValueHint};

use super::DatabaseFlags;
use super::arguments::{HEADING, time, within};
use super::bulk::{BulkRequest, Selection};
use super::enqueue::read_payload;
use super::enqueue::request::{check_job, timeout, wait};
use crate::exit::{Exit, Fault};
use crate::job::action::MOST_ATTEMPTS;
use crate::job::definition_keys::queue;
use crate::job::status::{HoldScope, Status};
use crate::job::{backoff, payload};
use crate::store::{Edit, Operation, Store};

/// Change the queue, time, limits or payload of waiting runs
///
/// Dead runs can be edited, too; a retry uses the new values. Only the owner of the
/// schema can replace a payload.
///
///   jobctl edit 3 4 --priority -10
///   jobctl edit --all-waiting --job send_weekly_report --in 2h
///   jobctl edit --all-waiting --from-queue mail --queue slow --dry-run
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    mut_group("Values", |values| values.required(true)),
    // `--queue` is the new queue here, so the filter gets another name.
    mut_arg("queue", |filter| filter.long("from-queue"))
)]
pub(crate) struct Arguments {
    /// All blocked, queued and failed runs, due or not; filters narrow them down
    #[arg(
        id = "All",
        long = "all-waiting",
        conflicts_with_all = ["ids", "payload_file"],
        help_heading = HEADING
    )]
    all_waiting: bool,
    #[command(flatten)]
    values: Values,
    #[command(flatten)]
    runs: Selection,
}

/// The new values.
#[derive(Args, Debug)]
struct Values {
    /// Read the payload from a file, or from stdin
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    payload_file: Option<String>,
    /// The queue; a tick can serve only some queues
    // The filter has the id `queue`.
    #[arg(id = "new_queue", long = "queue", value_name = "QUEUE", value_parser = queue)]
    queue: Option<String>,
    /// Runs with a smaller number start first
    #[arg(long, value_name = "N", value_parser = within(i32::MIN, i32::MAX))]
    priority: Option<i32>,
    /// The time until the next attempt: fixed:1m, exponential:1m..30m, polynomial:10s (times the
    /// square of the attempt) or list:1m,5m,30m
    #[arg(long, value_name = "SPEC", value_parser = backoff::check)]
    backoff: Option<String>,
    /// Number of attempts, crashes included, after which the run is dead
    #[arg(long, value_name = "N", value_parser = within(1, MOST_ATTEMPTS))]
    max_attempts: Option<i32>,
    /// Time limit of one attempt
    #[arg(long, value_name = "DURATION", value_parser = timeout())]
    timeout: Option<f64>,
    /// Do not start before this time: RFC 3339, with its offset
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "in")]
    run_at: Option<DateTime<Utc>>,
    /// Do not start before this much time has passed
    #[arg(long, value_name = "DURATION", value_parser = wait())]
    r#in: Option<f64>,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        self.runs.check(self.all_waiting, "--all-waiting", "edit")?;
        let payload = self.values.payload_file.as_deref().map(payload_of).transpose()?;
        let store = database.open()?;
        if let Some(payload) = &payload {
            check_payload(&store, self.runs.ids(), payload)?;
        }
        let sets_time = self.values.run_at.is_some() || self.values.r#in.is_some();
        let only_waiting = self.all_waiting || sets_time;
        let from =
            Status::that(|status| status.is_waiting() || *status == Status::Dead && !only_waiting);
        let rule = if only_waiting {
            "only waiting runs have a time; a retry makes other runs due"
        } else {
            "only waiting and dead runs can be edited"
        };
        let Values { queue, priority, run_at, r#in, max_attempts, timeout, backoff, .. } =
            self.values;
        super::warn_of_names(&store, HoldScope::Queue, queue.as_deref());
        let edit =
            Edit { queue, priority, run_at, after: r#in, max_attempts, timeout, backoff, payload };
        let request = BulkRequest {
            operation: Operation::Edit(edit),
            from: &from,
            granted_word: &|_| "edited",
            why_refused: &|_, status| {
                if !from.contains(&status) {
                    return format!("its status is {status}; {rule}");
                }
                "its starts so far use up --max-attempts; give a larger number".to_owned()
            },
        };
        request.of_selection(self.runs, &store, self.all_waiting.then_some("waiting"))
    }
}

/// Reads a payload from a file, and checks it.
fn payload_of(file: &str) -> anyhow::Result<String> {
    let bytes = read_payload(file)?;
    Ok(payload::check(&bytes).map_err(Fault::usage)?.to_owned())
}

/// Fails if the job of one of these runs can't have this payload. The job of a run never changes.
fn check_payload(store: &Store, ids: &[i64], payload: &str) -> anyhow::Result<()> {
    let jobs = store.job_types(ids.to_vec())?;
    Ok(jobs.iter().try_for_each(|job| check_job(job, payload)).map_err(Fault::usage)?)
}
