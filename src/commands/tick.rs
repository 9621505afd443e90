//! `jobctl tick`: the command that cron runs.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::process::geteuid;

use super::DatabaseFlags;
use super::arguments::{host_name, length, run_id, up_to, within, worker};
use super::outage::OUTAGE_LIMIT;
use crate::connect;
use crate::execute::{self, Executor, HostPolicy, ShellPolicy};
use crate::exit::{Exit, Fault};
use crate::health;
use crate::job::action::JobKind;
use crate::print::{self, LogFormat, Output, Table};
use crate::store::{ClaimFilter, RunState, Store};
use crate::text::duration::{DAY, SECOND};
use crate::tick::{self, Bounds, Plan, TickEnd};

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
    /// Only runs in these queues, which enqueues and definitions name [default: all queues]
    #[arg(
        long,
        value_name = "QUEUE",
        num_args = 1..,
        value_delimiter = ',',
        value_parser = crate::job::definition_keys::queue
    )]
    queue: Vec<String>,
    /// Make one attempt of this waiting run and exit, without the other duties of a tick. The exit
    /// status is 1 if the run can't start now
    #[arg(
        long,
        value_name = "ID",
        value_parser = run_id,
        conflicts_with_all = ["limit", "linger", "queue", "prune"]
    )]
    run: Option<i64>,
    /// The worker's name [default: the host name]
    #[arg(long, value_name = "WORKER", value_parser = worker)]
    worker: Option<String>,
    /// How long a claim lasts; the tick renews it while the job runs
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = length(SECOND, DAY))]
    lease: Duration,
    /// Time for running jobs to finish after SIGTERM, SIGINT, SIGHUP or SIGQUIT
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = up_to(DAY))]
    grace: Duration,
    /// Which commands this host runs: any, defined (those of definitions), or off
    #[arg(long, value_name = "WHICH", default_value = "any")]
    shell: ShellPolicy,
    /// Hosts that jobs may call: names, addresses, *.example.com, * for all public hosts
    #[arg(long, value_name = "HOST", num_args = 1.., value_delimiter = ',', value_parser = host)]
    http_allow: Vec<String>,
    /// After the work, delete up to 1,000 old finished runs, as `jobctl prune` does
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    ages: super::prune::Ages,
    /// Only print the due runs, in order; rates and max_running may let fewer start
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

/// How often to try to claim the run of `--run`: another session may lock its row for a moment.
const TRIES: usize = 3;
/// The pause before another try to claim a run.
const PAUSE: Duration = Duration::from_millis(100);
/// The exit status of a shell for a command that Ctrl-C ended.
pub(super) const INTERRUPTED: Exit = Exit::Passed(130);

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        match self.run {
            _ if self.dry_run => self.preview(&database.open()?).map(|()| Exit::Done),
            Some(id) => self.start_run(id, database),
            None => {
                let (plan, executor) = (self.plan(), self.executor()?);
                warn_of_user(&plan.worker, database);
                execute::raise_descriptor_limit(plan.concurrency);
                tick::run(database.target()?, plan, executor)?.result?;
                Ok(Exit::Done)
            }
        }
    }

    /// Lists the runs that a tick would claim now. For a person, also prints why it would leave
    /// other due runs alone.
    fn preview(&self, store: &Store) -> anyhow::Result<()> {
        let Plan { worker, filter, .. } = self.plan();
        let at_most = self.limit.map_or(i64::MAX, i64::from);
        let runs = store.preview(&worker, &filter, at_most)?;
        print::rows(self.output, &runs, &PREVIEW)?;
        if self.run.is_none() {
            let stopped = store.count_stopped(&worker, &filter, i64::MAX)?;
            print::hint(self.output, &health::left_alone(&stopped, i64::MAX));
        }
        Ok(())
    }

    /// Makes one attempt of the run of `--run`. Fails, or prints why, if the run can't start now.
    fn start_run(&self, id: i64, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        check_waits(&database.open()?, id)?;
        warn_of_user(&self.plan().worker, database);
        let has_signal = Arc::default();
        super::catch_signals(&has_signal)?;
        let TickEnd { runs_started, interrupted, result } =
            self.run_one(id, database, OUTAGE_LIMIT)?;
        result?;
        Ok(match (runs_started, interrupted) {
            (1.., _) => Exit::Done,
            (0, true) => INTERRUPTED,
            (0, false) => {
                // Another tick may have been faster.
                check_waits(&database.open_until(&has_signal)?, id)?;
                complain_of_waiting(id);
                Exit::CouldNot
            }
        })
    }

    /// Makes one attempt of a run, if a tick could start it now. Before and after the attempt,
    /// waits at most `outage` for a database that is away.
    pub(super) fn run_one(
        &self,
        id: i64,
        database: &DatabaseFlags,
        outage: Duration,
    ) -> anyhow::Result<TickEnd> {
        let mut tries = 1;
        loop {
            let plan = self.plan();
            let plan = Plan {
                filter: ClaimFilter { only_run: Some(id), queues: Vec::new(), ..plan.filter },
                bounds: Bounds {
                    limit: 1,
                    linger: false,
                    prunes: false,
                    outage: Some(outage),
                    ..plan.bounds
                },
                ..plan
            };
            let end = tick::run(database.target()?, plan, self.executor()?)?;
            let is_over = end.runs_started > 0 || end.interrupted || end.result.is_err();
            if is_over || tries == TRIES {
                return Ok(end);
            }
            thread::sleep(PAUSE);
            tries += 1;
        }
    }

    /// Returns the executor of this tick's jobs, with the policies of this host.
    fn executor(&self) -> anyhow::Result<Executor> {
        let hosts = HostPolicy::new(&self.http_allow).map_err(Fault::usage)?;
        Ok(Executor::new(self.shell, hosts))
    }

    /// Returns the plan of a tick with these flags.
    fn plan(&self) -> Plan {
        let built_in = || vec![JobKind::Shell.to_string()];
        let (excluded_jobs, excluded_kinds) = match self.shell {
            ShellPolicy::Any => (Vec::new(), Vec::new()),
            ShellPolicy::Defined => (built_in(), Vec::new()),
            ShellPolicy::Off => (built_in(), vec![JobKind::Shell]),
        };
        Plan {
            worker: self.worker.clone().unwrap_or_else(host_name),
            filter: ClaimFilter {
                queues: self.queue.clone(),
                excluded_jobs,
                excluded_kinds,
                excluded_runs: Vec::new(),
                only_run: self.run,
                lease: self.lease,
            },
            concurrency: usize::from(self.concurrency),
            bounds: Bounds {
                limit: self.limit.map_or(usize::MAX, |limit| limit as usize),
                max_time: self.max_time,
                linger: self.linger,
                grace: self.grace,
                prunes: self.prune,
                outage: None,
            },
            keep: self.prune.then(|| self.ages.keep()),
            is_remembered: true,
        }
    }
}

/// Warns a person at a terminal if this tick runs the jobs as another system user than the worker's
/// last tick, or as root and there was no tick before.
fn warn_of_user(worker: &str, database: &DatabaseFlags) {
    if !io::stderr().is_terminal() {
        return;
    }
    // Ignore an error here: the tick itself prints why the database can't be reached.
    let last = database.open().and_then(|store| Ok(store.last_user(worker)?));
    let user = connect::system_user();
    match last {
        Ok(Some(last)) if last != user => log::warn!(
            "this tick runs jobs as {user}, but the last tick of worker {worker} ran them as \
             {last}; Ctrl-C stops it"
        ),
        Ok(None) if geteuid().is_root() => {
            log::warn!("this tick runs jobs as root; Ctrl-C stops it");
        }
        _ => {}
    }
}

/// Fails unless the run is waiting.
fn check_waits(store: &Store, id: i64) -> anyhow::Result<()> {
    let states = store.run_states(vec![id])?;
    let Some(RunState { status, .. }) = states.first() else {
        let why = format!("cannot start run {id}: no such run");
        return Err(Fault::new(Exit::NotFound, why).into());
    };
    if !status.is_waiting() {
        let why = format!("cannot start run {id}: its status is {status}");
        return Err(Fault::new(Exit::Conflict, why).into());
    }
    Ok(())
}

/// Complains that a run has not started.
pub(super) fn complain_of_waiting(id: i64) {
    print::complain(&format!("run {id} has not started; `jobctl show {id}` says why"));
}

/// Checks one host of --http-allow.
fn host(text: &str) -> Result<String, String> {
    HostPolicy::new(&[text.to_owned()]).map(|_| text.to_owned())
}
