//! One tick: takes the claim right, fires schedules and recovers lost runs; then claims and
//! executes until no run is due or the time is spent.
//! `machine.rs` decides, and `driver.rs` performs the machine's instructions. This file is the
//! process: it gives the driver a clock, signals, threads and a connection. If `Driver::step` says
//! what to wait for, this file waits.
//!
//! If the process crashes anywhere in this code, its leases expire and another tick recovers the
//! runs.

mod claim_cursor;
mod claims;
mod database;
mod driver;
mod execution;
mod leases;
mod link;
mod machine;
mod notes;
mod pending_writes;
mod phase;
mod prefetch;
mod request;
mod running;
mod signals;
mod timing;
mod turns;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use log::{Level, log_enabled};

use crate::connect::{self, PendingConnection, Target};
use crate::execute::{Executor, Pool, PoolState, Stop, WakeWhen};
use crate::job::attempt::StopReason;
use crate::job::status::Status;
use crate::print::Summary;
use crate::store::{ClaimFilter, Claimed, FencingToken, Holder, Keep};
use crate::text::duration;
use crate::upkeep::tick_id;
use database::Database;
use driver::{Driver, Runtime, Step};
use execution::{Ended, JudgedAttempt, Task};
pub(crate) use machine::Bounds;
use machine::Machine;
use notes::Notes;
use request::{Answer, AnswerTimeout, Request};
use running::RunningRuns;
use signals::Signals;
use timing::Timing;

/// The summary counts due runs up to this number.
const DUE_COUNTED: usize = 1000;

/// What a tick does: its worker, which runs it claims, and for how long.
pub(crate) struct Plan {
    pub(crate) worker: String,
    pub(crate) filter: ClaimFilter,
    /// The maximum number of threads, and of runs that this worker executes at a time.
    pub(crate) concurrency: usize,
    pub(crate) bounds: Bounds,
    /// How long runs are kept, if a tick deletes old ones.
    pub(crate) keep: Option<Keep>,
    /// Whether this host remembers the tick, to notice the restore of a backup.
    pub(crate) is_remembered: bool,
}

/// The process of a tick.
struct Process {
    target: Target,
    timing: Timing,
    database: Option<Database>,
    connecting: Option<PendingConnection>,
    plan: Plan,
    notes: Notes,
    holder: Holder,
    pool: Pool<Claimed, Ended>,
    running: RunningRuns,
    signals: Signals,
    was_interrupted: bool,
    started: Instant,
    /// The runs handed to the pool, except those that came back without a start.
    runs_started: usize,
    summary: Summary,
}

/// What a tick did.
#[derive(Debug)]
pub(crate) struct TickEnd {
    pub(crate) runs_started: usize,
    /// Whether a signal came.
    pub(crate) interrupted: bool,
    /// Why the tick ended early.
    pub(crate) result: anyhow::Result<()>,
}

/// Runs a tick to its end, and returns what it did. A failed job is not an error. If the tick must
/// exit while it holds runs, their leases expire and another tick recovers them.
pub(crate) fn run(target: Target, plan: Plan, executor: Executor) -> anyhow::Result<TickEnd> {
    let signals = Signals::catch().context("cannot catch signals")?;
    let timing = Timing::of(plan.filter.lease);
    let execute = move |run, stop: &Stop| execution::execute(run, &executor, stop);
    let pool = Pool::new(plan.concurrency, execute, Ended::bytes, signals.waker());
    let started = Instant::now();
    let machine = Machine::new(plan.bounds, timing, started);
    let mut process = Process {
        notes: Notes::new(&target, &plan),
        target,
        timing,
        database: None,
        connecting: None,
        holder: Holder { worker: plan.worker.clone(), tick: String::new() },
        plan,
        pool,
        running: RunningRuns::default(),
        signals,
        was_interrupted: false,
        started,
        runs_started: 0,
        summary: Summary::default(),
    };
    let mut driver = Driver::new(machine, &mut process);
    // The first request needs both. Read their files while the server accepts the connection.
    process.holder.tick = tick_id::new();
    process.notes.read();
    loop {
        match driver.step(&mut process) {
            Step::Continue => {}
            Step::Wait(until) => {
                process.signals.wait(until);
                driver.woken(&mut process);
            }
            Step::Ask(request, timeout) => {
                let answer = process.ask(*request, timeout);
                driver.answered(&mut process, answer);
            }
            Step::Exit(result) => {
                process.exit(result.is_ok(), driver.machine.other_claims());
                let Process { runs_started, was_interrupted: interrupted, .. } = process;
                return Ok(TickEnd { runs_started, interrupted, result });
            }
        }
    }
}

impl Process {
    /// Sends a request, and waits for the answer.
    fn ask(&mut self, request: Request, timeout: AnswerTimeout) -> Answer {
        if let Request::Renew { claims, kept } = &request {
            let now = Instant::now();
            for claim in claims.iter().chain(kept) {
                self.running.log_if_long(claim, &self.plan.worker, now);
            }
        }
        let Self { database, plan, notes, holder, timing, .. } = self;
        let database = database.as_mut().expect("the machine sends only over a connection");
        let answer = database.ask(request, timeout, (plan, &*holder, &*timing), &mut notes.seen);
        notes.write_each_minute();
        answer
    }

    /// Removes a run that has ended, or that no thread will start.
    fn forget(&mut self, run: &Claimed) {
        self.running.remove(&run.token());
    }

    /// Writes the notes and the last lines of the log. `is_ok`: the tick did not fail.
    /// `other_claims`: another tick of this worker has the claim right.
    fn exit(&mut self, is_ok: bool, other_claims: bool) {
        self.notes.write();
        let takes_any_run = self.plan.filter.only_run.is_none();
        if takes_any_run && is_ok && log_enabled!(Level::Info) && io::stderr().is_terminal() {
            self.log_summary(other_claims);
        }
        let transactions = self.database.as_ref().map_or(0, Database::transactions);
        let (runs, took) = (self.runs_started, duration::show(self.started.elapsed()));
        log::debug!("{runs} runs started, {transactions} transactions, in {took}");
    }

    /// Logs what the tick did and why it stopped, for a person at a terminal. `other_claims` is one
    /// of the reasons: another tick of this worker has the claim right.
    fn log_summary(&self, other_claims: bool) {
        let Bounds { limit, max_time, .. } = self.plan.bounds;
        let reasons = [
            (self.was_interrupted, "a signal came"),
            (self.runs_started >= limit, "--limit is reached"),
            (self.started.elapsed() >= max_time, "--max-time is over"),
            (other_claims, "another tick of this worker claims"),
        ];
        let first = reasons.into_iter().find(|(holds, _)| *holds);
        let reason = first.map(|(_, reason)| reason);
        // One more than the summary counts: then it can say that there are more.
        let most = DUE_COUNTED as i64 + 1;
        // `left_alone`: words for the due runs and schedules that the tick left alone on purpose.
        let (mut due, mut left_alone) = (None, String::new());
        if let Some(database) = &self.database {
            // An error only shortens the summary: perhaps the connection is lost, or a signal
            // stopped the statement.
            due = database.count_due(&self.plan, most).ok();
            left_alone = database.left_alone(&self.plan, most).unwrap_or_default();
        }
        log::info!("{}", self.summary.line(due, DUE_COUNTED, reason, &left_alone));
    }
}

impl Runtime for Process {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn random(&mut self) -> f64 {
        rand::random()
    }

    fn take_signals(&mut self) -> usize {
        let signals = self.signals.take();
        self.was_interrupted |= signals > 0;
        signals
    }

    fn pool(&self) -> PoolState {
        self.pool.state()
    }

    fn wake_when(&mut self, wake_when: WakeWhen, unrecorded: usize) -> bool {
        self.pool.wake_when(wake_when, unrecorded)
    }

    fn take_ended(&mut self) -> Vec<Ended> {
        let ended = self.pool.take_ended();
        for run_end in &ended {
            match run_end {
                Ended::Judged(_) => {}
                // `submit` counted the run, but its job did not start.
                Ended::Unstarted(_) | Ended::Exhausted(..) => self.runs_started -= 1,
            }
            self.forget(run_end.run());
        }
        ended
    }

    fn submit(&mut self, tasks: Vec<Task>) -> anyhow::Result<()> {
        self.runs_started += tasks.len();
        let now = Instant::now();
        let mut runs_with_stops = Vec::with_capacity(tasks.len());
        for Task { run, until, start_by, stopped } in tasks {
            let stop = Arc::new(Stop::new(until, self.timing.lost_grace).starting_by(start_by));
            if let Some(why) = stopped {
                stop.ask(why);
            }
            self.running.insert(&run, &self.plan.worker, Arc::clone(&stop), now);
            runs_with_stops.push((run, stop));
        }
        self.pool.submit(runs_with_stops).context("cannot start a thread")
    }

    fn withdraw(&mut self) -> Vec<Claimed> {
        let withdrawn = self.pool.withdraw();
        // `submit` counted these runs, but no thread has started them.
        self.runs_started -= withdrawn.len();
        for run in &withdrawn {
            self.forget(run);
        }
        withdrawn
    }

    fn extend(&mut self, claims: &[FencingToken], until: Instant) {
        for claim in claims {
            // A run that has ended meanwhile has no job to extend.
            if let Some(stop) = self.running.stop(claim) {
                stop.extend(until);
            }
        }
    }

    fn stop(&mut self, claim: &FencingToken, why: StopReason) {
        if let Some(stop) = self.running.stop(claim) {
            stop.ask(why);
        }
    }

    fn hurry(&mut self) {
        for stop in self.running.stops() {
            stop.hurry();
        }
    }

    fn take_output(&mut self, claim: &FencingToken) -> Option<String> {
        self.running.stop(claim)?.take_new_output()
    }

    fn keep_output(&mut self, claim: &FencingToken) {
        if let Some(stop) = self.running.stop(claim) {
            stop.output_not_sent();
        }
    }

    fn disconnect(&mut self) {
        (self.database, self.connecting) = (None, None);
    }

    fn connect(&mut self) {
        self.connecting = Some(connect::start(&self.target, self.signals.waker()));
    }

    fn take_connection(&mut self) -> Option<anyhow::Result<()>> {
        let result = self.connecting.as_ref()?.poll()?;
        self.connecting = None;
        Some(result.map(|client| {
            self.database = Some(Database::over(client, self.signals.interrupted()));
        }))
    }

    fn log(&mut self, level: Level, line: &str, claim: Option<&FencingToken>) {
        match claim {
            Some(FencingToken { id, attempt, .. }) => {
                log::log!(level, run = id, attempt = attempt, worker = self.plan.worker; "{line}");
            }
            None => log::log!(level, "{line}"),
        }
    }

    fn recorded(&mut self, judged: &JudgedAttempt, status: Option<Status>) {
        self.summary.count(status);
        judged.log(status, &self.plan.worker);
    }
}

#[cfg(test)]
#[path = "../../tests/simulation/mod.rs"]
mod simulation;
