//! One tick: recover lost leases, then claim and execute until nothing is due or the time is spent.
//! `machine.rs` decides. This file waits for the next event (an answer of the database, an ended
//! attempt, a signal or a time), tells the machine, and performs its instructions.
//!
//! If the process crashes anywhere in this code, its leases expire and another tick recovers the
//! runs.

mod attempt;
mod claim_cursor;
mod claims;
mod database;
mod id;
mod leases;
mod link;
mod machine;
mod prefetch;
mod request;
mod results;
mod running;
mod signals;
mod summary;
mod timing;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;
use log::{Level, log_enabled};
use signal_hook::iterator::Signals;

use crate::connect::{PendingConnection, Target};
use crate::execute::{Executor, Pool, Stop};
use crate::store::{self, ClaimFilter, Claimed, Holder, LeaseState, OldRuns, Renewed, Token};
use crate::text::duration;
use attempt::{Ended, Task, subject};
use database::Database;
pub(crate) use machine::Bounds;
use machine::{Event, Instruction, Machine};
use request::Answer;
use running::RunningRuns;
use summary::Summary;
use timing::Timing;

/// A renewal has about this many bytes of output. The rest is sent with the next one.
const OUTPUT_AT_ONCE: usize = 256 * 1024;
/// The summary counts due runs up to this number.
const DUE_COUNTED: usize = 1000;

pub(crate) struct Plan {
    pub(crate) worker: String,
    pub(crate) filter: ClaimFilter,
    /// The maximum of threads, and of runs that this worker executes at a time.
    pub(crate) concurrency: usize,
    pub(crate) bounds: Bounds,
    /// Old runs that may be deleted, some per tick.
    pub(crate) prune: Vec<OldRuns>,
}

/// Wakes the driver.
enum WakeUp {
    Signal,
    /// The pool reached the state that the machine waits for, the database answered, or the attempt
    /// to connect ended.
    Something,
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
    holder: Holder,
    pool: Pool<Claimed, Ended>,
    running: RunningRuns,
    wakes: Receiver<WakeUp>,
    waker: Sender<WakeUp>,
    /// Caught signals, until a thread forwards them.
    signals: Option<Signals>,
    /// A signal sets this flag.
    interrupted: Arc<AtomicBool>,
    /// Events for the machine, the oldest first.
    events: VecDeque<Event>,
    started: Instant,
    runs_started: usize,
    summary: Summary,
    /// The last renewal succeeded.
    sends_output: bool,
}

/// Runs a tick to its end. A failed job is not an error. After an error of the database, held runs
/// are left to their leases.
pub(crate) fn run(target: Target, plan: Plan, executor: Executor) -> anyhow::Result<()> {
    let (signals, interrupted) = signals::catch().context("cannot catch signals")?;
    let (waker, wakes) = mpsc::channel();
    let timing = Timing::of(plan.filter.lease);
    let wake = wake_up(&waker);
    let execute = move |run, stop: &Stop| attempt::execute(run, &executor, stop);
    let pool = Pool::new(plan.concurrency, execute, Ended::bytes, wake);
    let started = Instant::now();
    let mut machine = Machine::new(plan.bounds, timing, started);
    let mut driver = Driver {
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
        waker,
        signals: Some(signals),
        interrupted,
        events: VecDeque::new(),
        started,
        runs_started: 0,
        summary: Summary::default(),
        sends_output: true,
    };
    driver.connect();
    // Create the id now, while the server starts a process for the connection.
    driver.holder.tick = id::new();
    loop {
        let event = driver.next_event(&machine);
        for instruction in machine.on(Instant::now(), driver.pool.state(), event) {
            if let Instruction::Exit(result) = instruction {
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
        driver.forward_signals();
    }
}

impl Driver {
    /// Sleeps until something happens or is due, and returns it.
    fn next_event(&mut self, machine: &Machine) -> Event {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        let is_reached = self.pool.wake_when(machine.wake_when(), machine.bytes());
        let until = if is_reached { Some(Instant::now()) } else { self.until(machine.until()) };
        let now = Instant::now();
        let longest = Duration::from_secs(3600);
        let wait = until.map_or(longest, |until| until.saturating_duration_since(now).min(longest));
        let wake = self.wakes.recv_timeout(wait).ok();
        self.take_wakes(wake);
        for (claim, job, line) in self.running.long(Instant::now()) {
            log::info!(run = claim.id, job = job, attempt = claim.attempt; "{line}");
        }
        // Judged attempts first: the next statement records them.
        let ended = self.pool.ended();
        if !ended.is_empty() {
            self.forget(ended.iter().map(Ended::run));
            self.events.push_back(Event::Ended(ended));
        }
        if let Some(answer) = self.database.as_mut().and_then(Database::poll) {
            if let Answer::Renew(renewed) = &answer {
                self.output_sent(renewed);
            }
            self.events.push_back(Event::Answered(answer));
        }
        self.connect();
        self.events.pop_front().unwrap_or(Event::Time)
    }

    /// Returns when the next step is due if nothing wakes the driver before.
    fn until(&mut self, machine: Option<Instant>) -> Option<Instant> {
        let forward = self.signals.as_ref().map(|_| self.started + signals::FORWARD_AFTER);
        let answer = self.database.as_mut().and_then(Database::until);
        let times = [machine, forward, answer, self.connect_at, self.running.until()];
        times.into_iter().flatten().min()
    }

    fn perform(&mut self, instruction: Instruction) {
        match instruction {
            Instruction::Connect(pause) => {
                (self.database, self.connecting) = (None, None);
                let pause = pause.mul_f64(rand::random_range(0.5..1.0));
                self.connect_at = Some(Instant::now() + pause);
                self.connect();
            }
            Instruction::Send(request) => {
                let Self { database, plan, holder, timing, running, sends_output, .. } = self;
                let wake = wake_up(&self.waker);
                let room = Cell::new(if *sends_output { OUTPUT_AT_ONCE } else { 0 });
                let new_output = |claim: &Token| {
                    let stop = running.stop(claim).filter(|_| room.get() > 0)?;
                    let output = stop.take_new_output()?;
                    room.set(room.get().saturating_sub(output.len()));
                    Some(output)
                };
                let send = |database: &mut Database| {
                    database.send(request, plan, holder, timing, new_output, wake)
                };
                if let Some(answer) = database.as_mut().and_then(send) {
                    self.take_wakes(None);
                    self.events.push_back(Event::Answered(answer));
                }
            }
            Instruction::Shorten(until) => {
                if let Some(database) = &mut self.database {
                    database.shorten(self.timing.last_limits, until);
                }
            }
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
                judged.log(status);
            }
            Instruction::Exit(_) => {}
        }
    }

    fn start(&mut self, tasks: Vec<Task>) {
        self.runs_started += tasks.len();
        let (running, now) = (&mut self.running, Instant::now());
        let with_stop = |Task { run, until, stopped }| {
            log::debug!("{}: claimed", subject(&run));
            let stop = Arc::new(Stop::new(until, self.timing.lost_grace));
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

    /// After a failed renewal the next one has no output: a lease matters more. What did not arrive
    /// is sent again.
    fn output_sent(&mut self, renewed: &store::Result<Vec<Renewed>>) {
        self.sends_output = renewed.is_ok();
        match renewed {
            Err(_) => self.running.stops().for_each(|stop| stop.output_not_sent()),
            Ok(renewed) => renewed
                .iter()
                .filter(|(_, state)| *state == LeaseState::Busy)
                .filter_map(|(claim, _)| self.running.stop(claim))
                .for_each(|stop| stop.output_not_sent()),
        }
    }

    /// Logs what the tick did and why it stopped, for a person at a terminal.
    fn log_summary(&self, other_claims: bool) {
        let Bounds { limit, max_time, .. } = self.plan.bounds;
        let reason = match () {
            () if self.interrupted.load(Ordering::Relaxed) => Some("a signal came"),
            () if self.runs_started >= limit => Some("--limit is reached"),
            () if self.started.elapsed() >= max_time => Some("--max-time is over"),
            () if other_claims => Some("another tick of this worker claims"),
            () => None,
        };
        // The connection may be lost, or the statement may be stopped by a signal.
        let most = DUE_COUNTED as i64 + 1;
        let count = |database: &Database| database.count_due(&self.plan, most).ok();
        let due = self.database.as_ref().and_then(count);
        log::info!("{}", self.summary.line(due, DUE_COUNTED, reason));
    }

    fn take_wakes(&mut self, mut wake: Option<WakeUp>) {
        while let Some(woken) = wake.take().or_else(|| self.wakes.try_recv().ok()) {
            if matches!(woken, WakeUp::Signal) {
                self.events.push_back(Event::Signal);
            }
        }
    }

    /// Begins to connect when it is time, and takes the connection when it is there.
    fn connect(&mut self) {
        if self.connect_at.take_if(|at| Instant::now() >= *at).is_some() {
            self.connecting = Some(self.target.clone().connect(wake_up(&self.waker)));
        }
        let Some(result) = self.connecting.as_ref().and_then(PendingConnection::poll) else {
            return;
        };
        self.connecting = None;
        self.events.push_back(match result {
            Ok(thread) => {
                let interrupted = Arc::clone(&self.interrupted);
                self.database = Some(Database::over(thread, self.timing.limits, interrupted));
                Event::Connected
            }
            Err(error) => Event::Disconnected(error),
        });
    }

    /// Forwards signals as soon as there may be something to stop: runs are being claimed.
    fn forward_signals(&mut self) {
        let is_early = self.database.as_mut().and_then(Database::until).is_none()
            && self.started.elapsed() < signals::FORWARD_AFTER;
        let Some(signals) = self.signals.take_if(|_| !is_early) else { return };
        let waker = self.waker.clone();
        if let Err(error) = signals::forward(signals, move || waker.send(WakeUp::Signal)) {
            let error = anyhow::Error::new(error).context("cannot catch signals");
            self.events.push_back(Event::Failed(error));
        }
    }
}

/// Returns a function that wakes the driver.
fn wake_up(waker: &Sender<WakeUp>) -> impl Fn() + Send + Sync + 'static {
    let waker = waker.clone();
    // Sending fails only if the tick has ended; then no wake-up is needed.
    move || drop(waker.send(WakeUp::Something))
}

#[cfg(test)]
#[path = "../../tests/simulation/mod.rs"]
mod simulation;
