//! One tick: recover lost leases, then claim and execute until nothing is due or the time is spent.
//! The one place that knows both the store and execution. One thread runs all code of this folder,
//! except the pool's threads, which execute jobs and know no database.
//!
//! If the process crashes anywhere in this code, its leases expire and another tick recovers the
//! runs.

mod bisect;
mod claim;
mod claim_cursor;
mod connection;
mod finish_and_claim;
mod fire;
mod id;
mod lease;
mod pool;
mod prefetch;
mod put_off;
mod record;
mod request;
mod signals;
mod timing;
mod wake;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use signal_hook::iterator::Signals;

use crate::connect::Target;
use crate::execute::Executor;
use crate::job::attempt::Outcome;
use crate::job::failure::Failure;
use crate::store::{ClaimFilter, Holder, LockedRuns, OldRuns};
use crate::text::{duration, plural};
use claim_cursor::ClaimCursor;
use connection::Connection;
pub(crate) use fire::fire;
use lease::Leases;
use pool::{Pool, WakeWhen};
use prefetch::Prefetch;
use put_off::UnclaimableSearch;
use record::{JudgedAttempt, Results};
use request::InFlight;
use timing::Timing;

/// The tick delays results for a larger batch only while they have less output than this.
const BATCH_BYTES: usize = 1024 * 1024;
/// Maximum of runs deleted per tick, in about 30 ms: 1.4 million a day with a tick a minute.
const PRUNED_AT_ONCE: i64 = 1000;

pub(crate) struct Plan {
    pub(crate) worker: String,
    pub(crate) wanted: ClaimFilter,
    /// The maximum of threads, and of runs that this worker executes at a time.
    pub(crate) concurrency: usize,
    /// The maximum of runs to start.
    pub(crate) limit: usize,
    /// The tick claims nothing after this time.
    pub(crate) max_time: Duration,
    /// Poll until the time is spent.
    pub(crate) linger: bool,
    /// How long running jobs may continue after a signal.
    pub(crate) grace: Duration,
    /// Old runs that may be deleted, some per tick.
    pub(crate) prune: Vec<OldRuns>,
}

/// Wakes the tick's thread.
enum Event {
    Signal,
    /// The pool reached the state that the tick waits for, the database answered, or the attempt to
    /// connect ended. Every step looks for all of them.
    Wake,
}

/// The phases of a tick, in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Working,
    /// The tick claims nothing more. Running jobs may finish.
    Draining,
    /// A signal came. At this instant the tick stops the jobs that still run.
    Stopping(Instant),
    /// All jobs were asked to stop. At this instant the tick exits without the rest.
    Ending(Instant),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ClaimWhen {
    Now,
    /// At this instant, or when a run has ended.
    At(Instant),
    /// When a run has ended: nothing is due, or no thread is free.
    AfterRun,
}

struct Tick {
    plan: Plan,
    timing: Timing,
    holder: Holder,
    connection: Connection,
    pool: Pool,
    events: Receiver<Event>,
    sender: mpsc::Sender<Event>,
    /// Caught signals, until a thread forwards them.
    signals: Option<Signals>,
    /// A signal sets this flag.
    interrupted: Arc<AtomicBool>,
    leases: Leases,
    results: Results,
    locked_runs: LockedRuns,
    /// The tick sends no other request before this one is answered.
    in_flight: Option<InFlight>,
    prefetch: Prefetch,
    cursor: ClaimCursor,
    /// While this search runs, the tick claims nothing.
    search: Option<UnclaimableSearch>,
    /// Runs that other ticks of the worker hold. While this tick may claim, the number only falls.
    held_by_others: usize,
    phase: Phase,
    claim_when: ClaimWhen,
    no_claim_before: Instant,
    may_claim: bool,
    /// Since when every claim has skipped a limited definition that another session has locked.
    skipped_since: Option<Instant>,
    limits: bool,
    started: Instant,
    runs_started: usize,
    next_heartbeat: Instant,
    /// Before this the tick sends no request, as long as all threads have work.
    batching_until: Instant,
    failure: Option<anyhow::Error>,
}

/// Runs a tick to its end. A failed job is not an error. After an error of the database, held runs
/// are left to their leases.
pub(crate) fn run(target: Target, plan: Plan, executor: Executor) -> anyhow::Result<()> {
    let (sender, events) = mpsc::channel();
    let (signals, interrupted) = signals::catch().context("cannot catch signals")?;
    let timing = Timing::of(plan.wanted.lease);
    let now = Instant::now();
    let mut tick = Tick {
        holder: Holder { worker: plan.worker.clone(), tick: String::new() },
        connection: Connection::to(target),
        pool: Pool::new(plan.concurrency, executor, sender.clone()),
        events,
        sender,
        signals: Some(signals),
        interrupted,
        leases: Leases::default(),
        results: Results::default(),
        locked_runs: LockedRuns::Wait,
        in_flight: None,
        prefetch: Prefetch::default(),
        cursor: ClaimCursor::default(),
        search: None,
        held_by_others: 0,
        phase: Phase::Working,
        claim_when: ClaimWhen::Now,
        no_claim_before: now,
        may_claim: false,
        skipped_since: None,
        limits: false,
        started: now,
        runs_started: 0,
        next_heartbeat: now + timing.heartbeat,
        batching_until: now,
        failure: None,
        plan,
        timing,
    };
    tick.connect();
    // While the server starts a process for the connection.
    tick.holder.tick = id::new();
    while !tick.is_done() {
        tick.wait();
        tick.step();
        tick.forward_signals();
    }
    tick.leave()
}

impl Tick {
    /// Does everything that can be done now, in the order of urgency.
    fn step(&mut self) {
        self.advance();
        self.connect();
        if self.connection.store.is_none() {
            self.results.drop_expired(self.timing.result_kept, &mut self.leases);
            self.leases.drop_expired(self.timing.result_kept);
            return;
        }
        match self.request() {
            // Only an answer proves that the connection works.
            Ok(()) if self.in_flight.is_some() => {}
            Ok(()) => self.connection.succeeded(),
            Err(error) => {
                // A signal may have ended the wait early.
                self.take_events(None);
                self.on_error(error);
            }
        }
        self.results.log();
        if self.claim_when == ClaimWhen::AfterRun
            && let Some(due) = self.results.due_again
        {
            self.claim_when = ClaimWhen::At(due);
            // If another run ends before then, the claim may be too early: keep the time.
            self.results.due_again = Some(due).filter(|due| *due > Instant::now());
        }
    }

    /// Whether the tick holds no run and no result.
    fn is_free(&self) -> bool {
        self.leases.is_empty() && self.results.is_empty()
    }

    fn is_done(&self) -> bool {
        let is_idle = self.is_free() && self.in_flight.is_none();
        match self.phase {
            Phase::Working if self.failure.is_none() => {
                let is_connected = self.connection.store.is_some();
                is_idle && is_connected && self.claim_when == ClaimWhen::AfterRun
            }
            Phase::Working | Phase::Draining | Phase::Stopping(_) => is_idle,
            Phase::Ending(until) => is_idle || Instant::now() >= until && self.in_flight.is_none(),
        }
    }

    /// Moves on to the next phase when its time has come.
    fn advance(&mut self) {
        let is_over = || self.started.elapsed() >= self.plan.max_time || self.has_reached_limit();
        match self.phase {
            Phase::Working if is_over() => self.phase = Phase::Draining,
            Phase::Stopping(until) if Instant::now() >= until => self.end_all(),
            _ => {}
        }
    }

    /// Returns whether the tick has started as many runs as `--limit` allows. Claimed runs that
    /// wait for a thread may still be released; then the tick may claim others.
    fn has_reached_limit(&self) -> bool {
        self.runs_started >= self.plan.limit && self.pool.waiting_for().is_none()
    }

    /// Sleeps until something happens or is due, and takes the attempts that have ended.
    fn wait(&mut self) {
        let now = Instant::now();
        let is_reached = self.pool.wake_when(self.wake_when(), self.results.bytes());
        let until = if is_reached { now } else { self.next_step(now) };
        let first = self.events.recv_timeout(until.saturating_duration_since(now)).ok();
        self.take_events(first);
        for attempt in self.pool.ended() {
            match &attempt.ended.outcome {
                Outcome::Failed(why @ Failure::Exhausted(_)) => {
                    self.release_unstartable(&attempt.run, why);
                }
                _ if !attempt.has_begun => self.release_unstarted(&attempt.run),
                _ => {
                    let took = attempt.finished - attempt.started;
                    self.prefetch.observe(took, attempt.run.payload.len());
                    self.results.ended.push(JudgedAttempt::new(attempt));
                }
            }
        }
    }

    /// Returns when the next step is due if no event comes before.
    fn next_step(&self, now: Instant) -> Instant {
        let mut until = now + Duration::from_secs(3600);
        let mut at = |instant: Instant| until = until.min(instant);
        match self.phase {
            Phase::Working if self.has_reached_limit() => at(now),
            Phase::Working => at(self.started + self.plan.max_time),
            Phase::Stopping(instant) => at(instant),
            Phase::Ending(instant) if self.in_flight.is_none() => at(instant),
            // Still waits for the answer to a request in flight, even after `Ending`'s time.
            Phase::Draining | Phase::Ending(_) => {}
        }
        if self.signals.is_some() {
            at(self.started + signals::FORWARD_AFTER);
        }
        if let Some(request) = &self.in_flight {
            at(request.until());
        } else if self.connection.store.is_some() {
            let batching_until = if self.is_batching() { self.batching_until } else { now };
            let not_before =
                |instant: Instant| instant.max(self.connection.paused_until).max(batching_until);
            if self.leases.held() > 0 || self.may_claim {
                at(not_before(self.next_heartbeat));
            }
            self.results.next(now).map(not_before).into_iter().for_each(&mut at);
            if !self.leases.unstarted.is_empty() {
                at(not_before(now + connection::REJECTED_PAUSE));
            }
            if let Some(waited) = self.pool.waiting_for() {
                at(not_before(now + self.prefetch.thread_timeout().saturating_sub(waited)));
            }
            match (self.phase, self.claim_when) {
                (Phase::Working, _) if self.search.is_some() => at(not_before(now)),
                (Phase::Working, ClaimWhen::Now) => at(not_before(self.no_claim_before)),
                (Phase::Working, ClaimWhen::At(instant)) => {
                    at(not_before(instant.max(self.no_claim_before)));
                }
                (Phase::Draining, _) if self.may_claim => at(not_before(now)),
                _ => {}
            }
        } else {
            let dropped = self.leases.first_dropped(self.timing.result_kept);
            [self.connection.next(), dropped].into_iter().flatten().for_each(at);
        }
        until
    }

    /// Returns when the pool wakes this thread. Thousands of attempts may end in a second, so not
    /// every one of them does.
    fn wake_when(&self) -> WakeWhen {
        if self.in_flight.is_some() {
            WakeWhen::Never
        } else if self.is_batching() {
            WakeWhen::Shortage {
                waiting: self.prefetch.refill_at(self.pool.size),
                ended: prefetch::FULL_BATCH - self.results.ended.len(),
                bytes: BATCH_BYTES - self.results.bytes(),
            }
        } else {
            WakeWhen::Ended
        }
    }

    fn take_events(&mut self, mut first: Option<Event>) {
        while let Some(event) = first.take().or_else(|| self.events.try_recv().ok()) {
            if matches!(event, Event::Signal) {
                self.stop();
            }
        }
    }

    /// Releases the claim right, prunes, and returns the error that stopped the tick.
    fn leave(mut self) -> anyhow::Result<()> {
        let warn =
            |run: &_| log::error!("run {run}: still held at the end; its lease will run out");
        let held = self.leases.runs().inspect(warn).count() as i64;
        if self.is_stopping() {
            self.shorten_timeouts(Duration::ZERO);
        }
        let released = self.release_claim_right();
        if let Some(store) = &self.connection.store {
            let (runs, took) = (self.runs_started, duration::show(self.started.elapsed()));
            log::debug!("{runs} runs started, {} transactions, in {took}", store.transactions());
        }
        self.prune();
        match self.failure.or(self.connection.lost) {
            Some(failure) => Err(failure),
            None if held > 0 => {
                bail!("cannot release {} in time; see the log", plural::of(held, "run"))
            }
            None => released.map_err(Into::into),
        }
    }

    /// Deletes old runs after all work is done and other ticks may claim. A failure is not a
    /// failure of the tick.
    fn prune(&self) {
        let (Some(store), Phase::Working | Phase::Draining, None) =
            (&self.connection.store, self.phase, &self.failure)
        else {
            return;
        };
        let mut left = PRUNED_AT_ONCE;
        for old in &self.plan.prune {
            match store.prune(*old, None, left) {
                Ok(pruned) => left -= pruned.len() as i64,
                Err(error) => {
                    log::warn!("old runs are not deleted: {}", error.for_log());
                    return;
                }
            }
        }
        if left < PRUNED_AT_ONCE {
            log::info!("{} pruned", plural::of(PRUNED_AT_ONCE - left, "old run"));
        }
    }
}
