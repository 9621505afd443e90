//! `jobctl load`: a load test of the user's own database.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use signal_hook::consts::SIGTERM;
use signal_hook::low_level;

use super::DatabaseFlags;
use super::arguments::{length, within};
use crate::connect::Target;
use crate::execute::{self, Executor, HostPolicy, ShellPolicy};
use crate::exit::{Exit, Fault};
use crate::print::{self, Cell, Output, Progress};
use crate::store::{ClaimFilter, LoadFigures, NewRun, Queued, Store, Timeouts};
use crate::text::duration::{DAY, SECOND};
use crate::tick::{self, Bounds, Plan};

/// The default lease of a tick.
const LEASE: Duration = Duration::from_secs(120);
/// The name of the definition and of the queue. The queries of the load test have it, too.
const NAME: &str = "jobctl-load";
/// How often the test renews its lock (see load/begin.sql), counts its unfinished runs, and checks
/// whether its threads must end or have ended.
const POLL: Duration = Duration::from_millis(250);
/// The most runs of a test: to compute their figures takes two seconds, and a statement may take
/// ten.
const MOST: usize = 1_000_000;
/// Runs that one transaction enqueues.
const BATCH: usize = 2000;

/// Load test this database, and remove the test's runs
///
/// It enqueues runs of the command `true` at a fixed rate, as applications do, in
/// the queue jobctl-load. Workers of this process run them, as ticks with --linger
/// do. Then it prints the rates, and how long due runs waited for a claim. Ticks of
/// other processes take part if they serve all queues, as those of cron do. Like
/// all ticks, those of the test fire due schedules and recover lost runs.
///
/// The test's runs, definition, history and figures are removed at the end, also
/// after Ctrl-C. After `kill -9`, the next `jobctl load` removes them, from half a
/// minute later on. Only one test runs at a time. It needs the role that owns the
/// schema:
///
///   jobctl load
///   jobctl load --runs 100000 --rate 500 --workers 2 --concurrency 16 --yes
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Enqueue this many runs
    #[arg(long, value_name = "N", default_value = "1000", value_parser = within(1_usize, MOST))]
    runs: usize,
    /// Enqueue this many runs a second
    #[arg(long, value_name = "N", default_value = "100", value_parser = within(1_u32, 100_000))]
    rate: u32,
    /// Run the jobs with this many workers, each with a connection of its own
    #[arg(long, value_name = "N", default_value = "1", value_parser = within(1_u16, 64))]
    workers: u16,
    /// Jobs that each worker runs at a time
    #[arg(long, value_name = "N", default_value = "4", value_parser = within(1_u16, 1024))]
    concurrency: u16,
    /// End the test after this long, even if runs are left
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = length(SECOND, DAY))]
    max_time: Duration,
    /// Load a database that has other runs, which may then wait longer
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    output: Output,
}

const FACTS: &str = "succeeded/runs as succeeded, enqueues_per_second as enqueues a second, \
    claims_per_second as claims a second, wait_p50_seconds as wait (median), \
    wait_p95_seconds as wait (95 %), wait_p99_seconds as wait (99 %), \
    wait_max_seconds as wait (longest), dead_rows as dead rows";

/// What the threads of a test share about its enqueues.
#[derive(Default)]
struct Enqueues {
    /// How many runs are enqueued.
    done: AtomicUsize,
    /// Whether the enqueuing thread must stop.
    stop: AtomicBool,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        let target = database.target()?;
        // Catch signals before the first row is written, so that a signal leaves no row behind.
        let interrupted = Arc::default();
        super::catch_signals(&interrupted)?;
        let store = open(&target, &interrupted)?;
        if !self.yes && store.has_other_runs()? {
            let why = "cannot load test this database: it has other runs, which would wait \
                       longer; add --yes";
            return Err(Fault::usage(why).into());
        }
        let in_use = "cannot start a load test: definition `jobctl-load` is in use; wait for the \
                      other test, or try again 30 seconds after it was killed";
        let id = store.begin_load()?.ok_or_else(|| Fault::new(Exit::Unavailable, in_use))?;
        let tested = self.test(&store, &target, id, &interrupted);
        drop(store);
        let removed = remove(&target, id, &interrupted);
        if let (Err(_), Err(error)) = (&tested, &removed) {
            print::complain(&format!("{error:#}"));
        }
        let (figures, stopped) = tested?;
        print::object(self.output, &figures, |fields| {
            let mut facts = fields.cells(FACTS, None);
            facts.push(("WAL", wal(&figures)));
            print::facts(facts)
        })?;
        removed?;
        let why = match stopped {
            Some(why) => why.to_owned(),
            None if figures.succeeded == self.runs as i64 => return Ok(()),
            None => "some runs did not succeed".to_owned(),
        };
        Err(Fault::new(Exit::CouldNot, format!("cannot complete the load test: {why}")).into())
    }

    /// Runs the test. Returns its figures, and why it ended early, if it did.
    fn test(
        &self,
        store: &Store,
        target: &Target,
        id: i64,
        interrupted: &Arc<AtomicBool>,
    ) -> anyhow::Result<(LoadFigures, Option<&'static str>)> {
        execute::raise_descriptor_limit(usize::from(self.workers) * usize::from(self.concurrency));
        let wal_before = store.wal_position();
        let enqueues = Enqueues::default();
        let stopped = thread::scope(|scope| {
            let tick = |number| scope.spawn(move || self.tick(target.clone(), number));
            let ticks: Vec<_> = (1..=self.workers).map(tick).collect();
            let enqueuer = scope.spawn(|| self.enqueue(target, &enqueues, interrupted));
            // A tick that has ended has failed, or a signal stopped it.
            let is_stopped = || {
                interrupted.load(Ordering::Relaxed)
                    || ticks.iter().any(ScopedJoinHandle::is_finished)
            };
            let watched = self.watch(store, id, &enqueues, || enqueuer.is_finished(), is_stopped);
            enqueues.stop.store(true, Ordering::Relaxed);
            let enqueued = joined(enqueuer);
            // Only a signal ends these lingering ticks. Repeat it, because a tick that has just
            // started may miss one.
            while !ticks.iter().all(ScopedJoinHandle::is_finished) {
                let _ = low_level::raise(SIGTERM);
                thread::sleep(POLL);
            }
            ticks.into_iter().try_for_each(joined)?;
            enqueued.and(watched)
        })?;
        let mut figures = store.measure_load()?;
        figures.wal_bytes =
            wal_before.zip(store.wal_position()).map(|(before, after)| after - before);
        figures.dead_rows = store.inspect_tables()?.iter().map(|table| table.dead).sum();
        Ok((figures, stopped))
    }

    /// Waits until all runs have ended. Returns why it stopped before, if it did.
    ///
    /// - `is_enqueued`: whether no more runs will be enqueued.
    /// - `is_stopped`: whether a signal came, or a tick has failed.
    fn watch(
        &self,
        store: &Store,
        id: i64,
        enqueues: &Enqueues,
        is_enqueued: impl Fn() -> bool,
        is_stopped: impl Fn() -> bool,
    ) -> anyhow::Result<Option<&'static str>> {
        let (started, progress) = (Instant::now(), Progress::of(Some(self.runs)));
        loop {
            // Ask this before the runs are counted: the count must have all runs of a test whose
            // enqueues are done.
            let is_enqueued = is_enqueued();
            let removed = "cannot continue the load test: its definition `jobctl-load` was \
                           removed, by another load test or by `apply --prune`; start it again";
            let counted = store.renew_load(id)?;
            let counted = counted.ok_or_else(|| Fault::new(Exit::Conflict, removed))?;
            let unfinished = usize::try_from(counted).unwrap_or_default();
            progress.show(enqueues.done.load(Ordering::Relaxed).saturating_sub(unfinished));
            let stopped = if is_enqueued && unfinished == 0 {
                None
            } else if is_stopped() {
                Some("a signal stopped it")
            } else if started.elapsed() >= self.max_time {
                Some("--max-time is over")
            } else {
                thread::sleep(POLL);
                continue;
            };
            progress.clear();
            return Ok(stopped);
        }
    }

    /// Enqueues the runs that are due by the rate. If the database is slower, each transaction has
    /// more runs.
    fn enqueue(
        &self,
        target: &Target,
        enqueues: &Enqueues,
        interrupted: &Arc<AtomicBool>,
    ) -> anyhow::Result<()> {
        let store = open(target, interrupted)?;
        let (started, rate) = (Instant::now(), f64::from(self.rate));
        let mut enqueued = 0;
        while enqueued < self.runs && !enqueues.stop.load(Ordering::Relaxed) {
            // The first run is due at once.
            let due = (started.elapsed().as_secs_f64() * rate) as usize + 1;
            let batch = due.min(self.runs).saturating_sub(enqueued).min(BATCH);
            if batch == 0 {
                let next_due_at = Duration::from_secs_f64(enqueued as f64 / rate);
                thread::sleep(next_due_at.saturating_sub(started.elapsed()).min(POLL));
                continue;
            }
            let run =
                NewRun { job_type: NAME.to_owned(), payload: "{}".to_owned(), ..NewRun::default() };
            let runs: Vec<_> = (0..batch).map(|_| run.encode()).collect();
            let answers = store.enqueue(&runs, &[], |_| ())?;
            if !answers.iter().all(Queued::is_new) {
                let why = "cannot enqueue: the definition `jobctl-load` was changed; try again";
                return Err(Fault::new(Exit::Conflict, why).into());
            }
            enqueued += batch;
            enqueues.done.store(enqueued, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Runs the jobs until a signal stops it.
    fn tick(&self, target: Target, number: u16) -> anyhow::Result<()> {
        let plan = Plan {
            worker: format!("{NAME}-{number}"),
            filter: ClaimFilter {
                queues: vec![NAME.to_owned()],
                excluded_jobs: Vec::new(),
                excluded_kinds: Vec::new(),
                excluded_runs: Vec::new(),
                only_run: None,
                lease: LEASE,
            },
            concurrency: usize::from(self.concurrency),
            bounds: Bounds {
                limit: usize::MAX,
                // Longer than --max-time may be: the test ends the tick.
                max_time: 2 * DAY,
                linger: true,
                grace: SECOND,
                prunes: false,
                outage: None,
            },
            keep: None,
            // The test removes its workers.
            is_remembered: false,
        };
        let hosts = HostPolicy::new(&[]).map_err(Fault::usage)?;
        tick::run(target, plan, Executor::new(ShellPolicy::Defined, hosts))?.result
    }
}

/// Connects to the database. After a signal, the store waits at most 5 seconds for an answer.
fn open(target: &Target, interrupted: &Arc<AtomicBool>) -> anyhow::Result<Store> {
    let mut store = Store::open_until(target, Arc::clone(interrupted))?;
    store.set_timeouts(Timeouts { interrupted: 5 * SECOND, ..Timeouts::USUAL });
    Ok(store)
}

/// Removes the rows of the test. Opens new connections, because that of the test may be lost.
fn remove(target: &Target, id: i64, interrupted: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let removed = open(target, interrupted).and_then(|store| Ok(store.end_load(id)?));
    removed.context("rows of the load test are left, and the next `jobctl load` removes them")?;
    Ok(Store::open(target)?.vacuum()?)
}

/// Waits for a thread and returns its result; panics if the thread did.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Returns the amount of WAL that the test wrote, as people see it.
fn wal(figures: &LoadFigures) -> Cell {
    const KIB: f64 = 1024.0;
    Cell::Text(match figures.wal_bytes.map(|bytes| bytes as f64 / KIB) {
        Some(kib) => {
            format!("{:.1} MiB, {:.1} KiB a run", kib / KIB, kib / figures.runs.max(1) as f64)
        }
        None => "unknown, because the server does not show it to this role".to_owned(),
    })
}
