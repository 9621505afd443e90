//! `jobctl tick`: the command that cron runs.

use std::time::Duration;

use clap::Args;

use super::DatabaseFlags;
use super::arguments::{host_name, length, run_id, up_to, within, worker};
use crate::execute::{self, Executor, HostPolicy, ShellPolicy};
use crate::exit::Fault;
use crate::health;
use crate::job::action::JobKind;
use crate::print::{self, LogFormat, Output, Table};
use crate::store::ClaimFilter;
use crate::text::duration::{DAY, SECOND};
use crate::tick::{self, Bounds, Plan};

/// Run all due runs, then exit; cron calls it
///
/// It recovers runs that lost their lease, fires schedules, and claims and runs
/// until nothing is due. Its exit status is 0 even if jobs failed. Only one tick
/// per worker claims at a time. The first example runs one queue now, under
/// another worker's name; the second is the line of a crontab:
///
///   jobctl tick --queue mail --max-time 1h --worker mail
///   * * * * * jobctl tick --quiet
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Runs to execute at a time, across all ticks of this worker
    #[arg(long, value_name = "N", default_value = "4", value_parser = within(1_u16, 1024))]
    concurrency: u16,
    /// Start at most N runs
    #[arg(long, value_name = "N", value_parser = within(1, u32::MAX))]
    limit: Option<u32>,
    /// Stop claiming after this long; running jobs may finish
    #[arg(long, value_name = "DURATION", default_value = "55s", value_parser = length(SECOND, DAY))]
    max_time: Duration,
    /// Keep polling until --max-time instead of exiting when idle
    #[arg(long)]
    linger: bool,
    /// Only these queues
    #[arg(
        long,
        value_name = "QUEUE",
        num_args = 1..,
        value_delimiter = ',',
        value_parser = crate::job::definition::queue
    )]
    queue: Vec<String>,
    /// Only this run, if it is due and nothing holds it
    #[arg(long, value_name = "ID", value_parser = run_id)]
    run: Option<i64>,
    /// The worker's name [default: the host name]
    #[arg(long, value_name = "WORKER", value_parser = worker)]
    worker: Option<String>,
    /// How long a run stays claimed without a heartbeat; renewed while it runs
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = length(SECOND, DAY))]
    lease: Duration,
    /// Time for running jobs to finish after SIGTERM, SIGINT, SIGHUP or SIGQUIT
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = up_to(DAY))]
    grace: Duration,
    /// Which commands this host runs: any, defined (those of definitions), or off
    // An empty variable must not allow every command, so it is not taken as unset.
    #[arg(long, env = "JOBCTL_TICK_SHELL", value_name = "WHICH", default_value = "any")]
    shell: ShellPolicy,
    /// Hosts that jobs may call: names, addresses, *.example.com, * for all public hosts
    #[arg(
        long,
        env = "JOBCTL_TICK_HTTP_ALLOW",
        value_name = "HOST",
        num_args = 1..,
        value_delimiter = ',',
        value_parser = host
    )]
    http_allow: Vec<String>,
    /// After the work, delete up to 1,000 old finished runs, as `jobctl prune` does
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    ages: super::prune::Ages,
    /// Only print what would be claimed
    #[arg(long)]
    dry_run: bool,
    /// Log only warnings; an error that ends the tick is printed once an hour
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Format of the log: text, or json with one object a line
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    output: Output,
}

const PREVIEW: Table<'_> = Table::new(
    "id, job_type as job, queue, priority, run_at as due since, attempt/max_attempts as attempt",
    "no run is due",
);

impl Arguments {
    /// The same tick, but it starts only this run, and once.
    pub(super) fn of_run(self, id: i64) -> Self {
        Self { run: Some(id), limit: Some(1), linger: false, dry_run: false, ..self }
    }

    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let hosts = HostPolicy::new(&self.http_allow).map_err(Fault::usage)?;
        let built_in = || vec![JobKind::Shell.to_string()];
        let (excluded_jobs, excluded_kinds) = match self.shell {
            ShellPolicy::Any => (Vec::new(), Vec::new()),
            ShellPolicy::Defined => (built_in(), Vec::new()),
            ShellPolicy::Off => (built_in(), vec![JobKind::Shell]),
        };
        let filter = ClaimFilter {
            queues: self.queue,
            excluded_jobs,
            excluded_kinds,
            excluded_runs: Vec::new(),
            only_run: self.run,
            lease: self.lease,
        };
        let worker = self.worker.unwrap_or_else(host_name);
        if self.dry_run {
            let at_most = self.limit.map_or(i64::MAX, i64::from);
            let store = database.open()?;
            let runs = store.preview(&worker, &filter, at_most)?;
            print::rows(self.output, &runs, &PREVIEW)?;
            let stopped = store.count_stopped(&worker, &filter, i64::MAX)?;
            print::hint(self.output, &health::left_alone(&stopped, i64::MAX));
            return Ok(());
        }
        let plan = Plan {
            worker,
            filter,
            concurrency: usize::from(self.concurrency),
            bounds: Bounds {
                limit: self.limit.map_or(usize::MAX, |limit| limit as usize),
                max_time: self.max_time,
                linger: self.linger,
                grace: self.grace,
                prunes: self.prune,
            },
            keep: self.prune.then(|| self.ages.keep()),
            is_remembered: true,
        };
        execute::raise_descriptor_limit(plan.concurrency);
        tick::run(database.target()?, plan, Executor::new(self.shell, hosts))
    }
}

fn host(text: &str) -> Result<String, String> {
    HostPolicy::new(&[text.to_owned()]).map(|_| text.to_owned())
}
