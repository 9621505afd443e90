//! `jobctl tick`: what cron runs.

use std::time::Duration;

use clap::Args;

use super::Database;
use crate::duration;
use crate::execute::{self, Executor, HostPolicy, ShellPolicy};
use crate::exit::{Exit, Fault};
use crate::print::{self, Cell, Form};
use crate::store::Wanted;
use crate::tick::{self, Plan, WhenIdle};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86400);

/// Run what is due, then exit: what cron calls
///
/// It recovers runs whose lease was lost, fires schedules, and claims and runs
/// until nothing is due. Its exit status is 0 even when jobs failed. Of the ticks
/// of one worker one claims at a time. To run all of a queue now, beside the
/// worker of the crontab, and in a crontab:
///
///   jobctl tick --queue mail --max-time 1h --worker mail
///   * * * * * jobctl tick --quiet
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Jobs to run at a time, across all ticks of this worker
    #[arg(long, value_name = "N", default_value = "4", allow_negative_numbers = true, value_parser = super::within(1_u16, 1024))]
    concurrency: u16,
    /// Start at most N jobs
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within(1, u32::MAX))]
    limit: Option<u32>,
    /// Stop claiming after this long; running jobs may finish
    #[arg(long, value_name = "DURATION", default_value = "55s", value_parser = max_time)]
    max_time: Duration,
    /// Keep polling until --max-time instead of exiting when idle
    #[arg(long)]
    linger: bool,
    /// Only these queues
    #[arg(long, value_name = "Q", num_args = 1.., value_delimiter = ',', value_parser = crate::definition::queue)]
    queue: Vec<String>,
    /// The worker's name [default: the host name]
    #[arg(long, value_name = "NAME", value_parser = worker)]
    worker: Option<String>,
    /// How long a run stays claimed without a sign of life; renewed while it runs
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = lease)]
    lease: Duration,
    /// How long running jobs get to finish after SIGTERM, SIGINT, SIGHUP or SIGQUIT
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = grace)]
    grace: Duration,
    /// Which commands this host runs: any, those of definitions, or none
    #[arg(long, value_name = "WHICH", default_value = "any")]
    shell: ShellPolicy,
    /// The only hosts that may be called: names, addresses, *.example.com, or * for all public ones
    #[arg(long, value_name = "HOST", num_args = 1.., value_delimiter = ',')]
    http_allow: Vec<String>,
    /// When all is done, delete some of the old finished runs, as `jobctl prune` does
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    ages: super::prune::Ages,
    /// Only print what would be claimed
    #[arg(long)]
    dry_run: bool,
    /// Log only what needs a person; an unreachable database once an hour
    #[arg(long)]
    pub(super) quiet: bool,
    /// Print a JSON array (with --dry-run)
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let hosts = HostPolicy::new(&self.http_allow).map_err(|why| Fault::usage(format!("--http-allow: {why}")))?;
        let wanted = Wanted {
            queues: self.queue,
            left_out: match self.shell {
                ShellPolicy::Any => Vec::new(),
                ShellPolicy::Defined | ShellPolicy::Off => vec!["shell".to_owned()],
            },
            left_out_kinds: match self.shell {
                ShellPolicy::Any | ShellPolicy::Defined => Vec::new(),
                ShellPolicy::Off => vec!["shell".to_owned()],
            },
            left_out_runs: Vec::new(),
            lease: self.lease,
        };
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        if self.dry_run {
            let at_most = i64::try_from(limit).unwrap_or(i64::MAX);
            return preview(database, &wanted, at_most, Form::new(self.json));
        }
        let plan = Plan {
            worker: self.worker.unwrap_or_else(host_name),
            wanted,
            concurrency: usize::from(self.concurrency),
            limit,
            max_time: self.max_time,
            when_idle: if self.linger { WhenIdle::Linger } else { WhenIdle::Exit },
            grace: self.grace,
            prune: if self.prune { self.ages.old() } else { Vec::new() },
        };
        execute::make_room(plan.concurrency);
        tick::run(database.target()?, plan, Executor::new(self.shell, hosts))?;
        Ok(Exit::Done)
    }
}

fn preview(database: &Database, wanted: &Wanted, at_most: i64, form: Form) -> anyhow::Result<Exit> {
    let due = database.open()?.preview(wanted, at_most)?;
    let header = ["id", "job", "queue", "priority", "due since", "attempt"];
    print::rows_or("no run is due", form, &header, &due, |run| {
        vec![
            Cell::from(run.id),
            run.job_type.clone().into(),
            run.queue.clone().into(),
            i64::from(run.priority).into(),
            run.run_at.into(),
            Cell::Whole(format!("{}/{}", run.attempt, run.max_attempts)),
        ]
    })?;
    Ok(Exit::Done)
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn worker(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
        return Err("a worker's name has 1 to 255 bytes and no control characters".to_owned());
    }
    Ok(text.to_owned())
}

fn max_time(text: &str) -> Result<Duration, String> {
    duration::parse_within(text, SECOND, DAY)
}

fn lease(text: &str) -> Result<Duration, String> {
    duration::parse_within(text, SECOND, DAY)
}

fn grace(text: &str) -> Result<Duration, String> {
    duration::parse_within(text, Duration::ZERO, DAY)
}
