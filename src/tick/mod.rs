//! One tick: takes the claim right, fires schedules and recovers lost runs; then claims and
//! executes until no run is due or the time is spent.
//! `machine.rs` decides. This file waits for the next event (an answer of the database, an ended
//! attempt, a signal or a time), tells the machine, and performs its instructions.
//!
//! If the process crashes anywhere in this code, its leases expire and another tick recovers the
//! runs.

mod claim_cursor;
mod claims;
mod database;
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
mod timing;
mod turns;
mod wakes;

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use log::{Level, log_enabled};

use crate::connect::{PendingConnection, Target};
use crate::execute::{Executor, Pool, Stop, WakeWhen};
use crate::print::Summary;
use crate::store::{ClaimFilter, Claimed, FencingToken, Holder, OldRuns};
use crate::text::duration;
use crate::upkeep::tick_id;
use database::Database;
use execution::{Ended, Task};
pub(crate) use machine::Bounds;
use machine::{Event, Instruction, Machine};
use notes::Notes;
use request::{AnswerTimeout, Request};
use running::RunningRuns;
use timing::Timing;
use wakes::Wakes;

/// About this many bytes of output are stored after a renewal. The rest follows after the next one.
const OUTPUT_AT_ONCE: usize = 256 * 1024;
/// The summary counts due runs up to this number.
const DUE_COUNTED: usize = 1000;

pub(crate) struct Plan {
    pub(crate) worker: String,
    pub(crate) filter: ClaimFilter,
    /// The maximum number of threads, and of runs that this worker executes at a time.
    pub(crate) concurrency: usize,
    pub(crate) bounds: Bounds,
    /// Old runs that may be deleted, some per tick.
    pub(crate) prune: Vec<OldRuns>,
    /// Whether this host remembers the tick, to notice the restore of a backup.
    pub(crate) is_remembered: bool,
}

/// Performs what the machine decides.
struct Driver {
    target: Target,
    timing: Timing,
    database: Option<Database>,
    /// When to begin to connect.
    connect_at: Option<Instant>,
    connecting: Option<PendingConnection>,
    plan: Plan,
    notes: Notes,
    holder: Holder,
    pool: Pool<Claimed, Ended>,
    running: RunningRuns,
    wakes: Wakes,
    was_interrupted: bool,
    /// Events for the machine, the oldest first.
    events: VecDeque<Event>,
    started: Instant,
    runs_started: usize,
    summary: Summary,
    /// Whether output is stored after the next renewal.
    stores_output: bool,
}

/// Runs a tick to its end. A failed job is not an error. If the tick must exit while it holds runs,
/// their leases expire and another tick recovers them.
pub(crate) fn run(target: Target, plan: Plan, executor: Executor) -> anyhow::Result<()> {
    let wakes = Wakes::catch().context("cannot catch signals")?;
    let timing = Timing::of(plan.filter.lease);
    let execute = move |run, stop: &Stop| execution::execute(run, &executor, stop);
    let pool = Pool::new(plan.concurrency, execute, Ended::bytes, wakes.waker());
    let started = Instant::now();
    let mut machine = Machine::new(plan.bounds, timing, started);
    let mut driver = Driver {
        notes: Notes::new(&target, &plan),
        target,
        timing,
        database: None,
        connect_at: Some(started),
        connecting: None,
        holder: Holder { worker: plan.worker.clone(), tick: String::new() },
        plan,
        pool,
        running: RunningRuns::default(),
        wakes,
        was_interrupted: false,
        events: VecDeque::new(),
        started,
        runs_started: 0,
        summary: Summary::default(),
        stores_output: true,
    };
    driver.connect();
    // Do this now, while the server starts a process for the connection.
    driver.holder.tick = tick_id::new();
    driver.notes.read();
    loop {
        let event = driver.next_event(&machine);
        let instructions = machine.on(Instant::now(), driver.pool.state(), event);
        // While the driver waits for an answer, the pool does not wake it, but must know how much
        // output waits to be recorded.
        driver.pool.wake_when(WakeWhen::Never, machine.bytes());
        for instruction in instructions {
            if let Instruction::Exit(result) = instruction {
                driver.notes.write();
                if result.is_ok() && log_enabled!(Level::Info) && io::stderr().is_terminal() {
                    driver.log_summary(machine.other_claims());
                }
                let transactions = driver.database.map_or(0, |database| database.transactions());
                let (runs, took) = (driver.runs_started, duration::show(started.elapsed()));
                log::debug!("{runs} runs started, {transactions} transactions, in {took}");
                return result;
            }
            driver.perform(instruction);
        }
    }
}

impl Driver {
    /// Sleeps until something happens or is due, and returns it.
    fn next_event(&mut self, machine: &Machine) -> Event {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        if !self.pool.wake_when(machine.wake_when(), machine.bytes()) {
            self.wakes.wait(machine.until().into_iter().chain(self.connect_at).min());
        }
        self.take_events();
        self.connect();
        self.events.pop_front().unwrap_or(Event::Time)
    }

    /// Takes signals and ended attempts. They precede a new connection and an answer, so the next
    /// statement records them.
    fn take_events(&mut self) {
        let signals = self.wakes.take();
        self.was_interrupted |= signals > 0;
        self.events.extend((0..signals).map(|_| Event::Signal));
        let ended = self.pool.ended();
        if !ended.is_empty() {
            let is_unstarted = |ended: &&Ended| !matches!(ended, Ended::Judged(_));
            self.runs_started -= ended.iter().filter(is_unstarted).count();
            self.forget(ended.iter().map(Ended::run));
            self.events.push_back(Event::Ended(ended));
        }
    }

    fn perform(&mut self, instruction: Instruction) {
        match instruction {
            Instruction::Connect(pause) => {
                (self.database, self.connecting) = (None, None);
                let pause = pause.mul_f64(rand::random_range(0.5..1.0));
                self.connect_at = Some(Instant::now() + pause);
                self.connect();
            }
            Instruction::Send(request, timeout) => self.send(request, timeout),
            Instruction::Start(tasks) => self.start(tasks),
            Instruction::Withdraw => {
                let withdrawn = self.pool.withdraw();
                self.runs_started -= withdrawn.len();
                self.forget(withdrawn.iter());
                // Handle this event first: the pool's state already lacks these runs. The machine
                // would otherwise believe that they were started, and that --limit is reached.
                let unstarted = withdrawn.into_iter().map(Ended::Unstarted).collect();
                self.events.push_front(Event::Ended(unstarted));
            }
            Instruction::Extend(claims, until) => {
                let stops = claims.iter().filter_map(|claim| self.running.stop(claim));
                stops.for_each(|stop| stop.extend(until));
                self.store_output(&claims);
            }
            Instruction::Stop(claim, why) => {
                if let Some(stop) = self.running.stop(&claim) {
                    stop.ask(why);
                }
            }
            Instruction::Hurry => self.running.stops().for_each(Stop::hurry),
            Instruction::Log(level, line) => log::log!(level, "{line}"),
            Instruction::Recorded(judged, status) => {
                self.summary.count(status);
                judged.log(status, &self.plan.worker);
            }
            Instruction::Exit(_) => {}
        }
    }

    /// Sends a request, and waits for the answer.
    fn send(&mut self, request: Request, timeout: AnswerTimeout) {
        let Self { database, plan, notes, holder, timing, running, .. } = self;
        let database = database.as_mut().expect("the machine sends only over a connection");
        if let Request::Renew(claims) = &request {
            claims
                .iter()
                .for_each(|claim| running.log_if_long(claim, &plan.worker, Instant::now()));
        }
        let tick = (plan, &*holder, &*timing);
        let answer = database.ask(request, timeout, tick, &mut notes.seen);
        notes.write_each_minute();
        self.take_events();
        self.events.push_back(Event::Answered(answer));
    }

    fn start(&mut self, tasks: Vec<Task>) {
        self.runs_started += tasks.len();
        let (running, now) = (&mut self.running, Instant::now());
        let with_stop = |Task { run, until, start_by, stopped }| {
            let stop = Arc::new(Stop::new(until, self.timing.lost_grace).starting_by(start_by));
            if let Some(why) = stopped {
                stop.ask(why);
            }
            running.insert(&run, Arc::clone(&stop), now);
            (run, stop)
        };
        if let Err(error) = self.pool.submit(tasks.into_iter().map(with_stop).collect()) {
            let error = anyhow::Error::new(error).context("cannot start a thread");
            self.events.push_back(Event::Failed(error));
        }
    }

    fn forget<'a>(&mut self, runs: impl Iterator<Item = &'a Claimed>) {
        runs.for_each(|run| self.running.remove(&run.token()));
    }

    /// Stores what the jobs of these claims have printed, after their leases were renewed: a lease
    /// matters more. After a failure, no output is stored at the next renewal.
    fn store_output(&mut self, claims: &[FencingToken]) {
        let stores = std::mem::replace(&mut self.stores_output, true);
        let Some(database) = self.database.as_mut().filter(|_| stores) else { return };
        let (mut room, mut outputs) = (OUTPUT_AT_ONCE, Vec::new());
        for claim in claims {
            let stop = self.running.stop(claim).filter(|_| room > 0);
            if let Some(output) = stop.and_then(|stop| stop.take_new_output()) {
                room = room.saturating_sub(output.len());
                outputs.push((*claim, output));
            }
        }
        if outputs.is_empty() {
            return;
        }
        let sent: Vec<_> = outputs.iter().map(|(claim, _)| *claim).collect();
        let timeouts = self.timing.short_timeouts();
        let left = database.store_output(&self.plan.worker, outputs, timeouts);
        self.stores_output = left.is_ok();
        let is_unstored = |id| left.as_ref().map_or(true, |left| left.contains(id));
        let unstored = sent.iter().filter(|claim| is_unstored(&claim.id));
        let stops = unstored.filter_map(|claim| self.running.stop(claim));
        stops.for_each(|stop| stop.output_not_sent());
    }

    /// Logs what the tick did and why it stopped, for a person at a terminal.
    fn log_summary(&self, other_claims: bool) {
        let Bounds { limit, max_time, .. } = self.plan.bounds;
        let reasons = [
            (self.was_interrupted, "a signal came"),
            (self.runs_started >= limit, "--limit is reached"),
            (self.started.elapsed() >= max_time, "--max-time is over"),
            (other_claims, "another tick of this worker claims"),
        ];
        let reason = reasons.into_iter().find_map(|(holds, reason)| holds.then_some(reason));
        // The connection may be lost, or the statement may be stopped by a signal.
        let most = DUE_COUNTED as i64 + 1;
        let count = |database: &Database| database.count_due(&self.plan, most).ok();
        let due = self.database.as_ref().and_then(count);
        let left = |database: &Database| database.left_alone(&self.plan, most).ok();
        let left = self.database.as_ref().and_then(left).unwrap_or_default();
        log::info!("{}", self.summary.line(due, DUE_COUNTED, reason, &left));
    }

    /// Begins to connect when it is time, and takes the connection when it is there.
    fn connect(&mut self) {
        if self.connect_at.take_if(|at| Instant::now() >= *at).is_some() {
            self.connecting = Some(self.target.clone().connect(self.wakes.waker()));
        }
        let Some(result) = self.connecting.as_ref().and_then(PendingConnection::poll) else {
            return;
        };
        self.connecting = None;
        self.events.push_back(match result {
            Ok(thread) => {
                self.database = Some(Database::over(thread, self.wakes.interrupted()));
                Event::Connected
            }
            Err(error) => Event::Disconnected(error),
        });
    }
}

#[cfg(test)]
#[path = "../../tests/simulation/mod.rs"]
mod simulation;
