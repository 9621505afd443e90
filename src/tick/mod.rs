//! One tick: recover lost leases, then claim and execute until nothing is due or the time is spent.
//! The one place that knows both the store and execution. A single thread does what stands here; the
//! pool's threads execute and know no database.
//!
//! If the process dies after any line of this, leases run out and another tick recovers the runs.

mod bisect;
mod claim;
mod connection;
mod exchange;
mod fire;
mod id;
mod lanes;
mod lease;
mod pace;
mod pool;
mod prune;
mod record;
mod refused;
mod signals;
mod talk;
mod timing;
mod wake;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use signal_hook::iterator::Signals;

use crate::connect::Target;
use crate::count;
use crate::execute::Executor;
use crate::model::{Failure, Outcome};
use crate::store::{Holder, Limited, OfLocked, Old, Wanted};
use connection::Connection;
pub(crate) use fire::fire;
use lanes::Lanes;
use lease::Leases;
use pace::Pace;
use pool::{Attention, Pool};
use record::{Judged, Results};
use refused::RefusedRuns;
use talk::Asked;
use timing::Timing;

/// Bytes of output that may wait to be recorded.
const BYTES_AT_REST: usize = 1024 * 1024;

/// What a tick is to do.
pub(crate) struct Plan {
    pub(crate) worker: String,
    pub(crate) wanted: Wanted,
    /// Threads, and runs of this worker at a time.
    pub(crate) concurrency: usize,
    /// Runs to start at most.
    pub(crate) limit: usize,
    /// Nothing new is claimed after this.
    pub(crate) max_time: Duration,
    pub(crate) when_idle: WhenIdle,
    /// What running work gets to end by itself after a signal.
    pub(crate) grace: Duration,
    /// What may be deleted, a piece a tick.
    pub(crate) prune: Vec<Old>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WhenIdle {
    Exit,
    /// Look again until the time is spent.
    Linger,
}

/// What wakes the tick's thread.
enum Event {
    /// The pool has what it was told to call for.
    Ended,
    Signal,
    /// There is an answer to what was asked, or to the attempt to connect.
    Answered,
}

/// How far a tick has got; it never goes back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Working,
    /// Claims nothing any more; what runs may end in its own time.
    Draining,
    /// A signal came; what still runs then is told to end.
    Stopping(Instant),
    /// All is told to end; what has not ended then is left behind.
    Ending(Instant),
}

/// When to look for due runs again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Look {
    Now,
    /// Then, or when a run has ended.
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
    /// Signals that wait until they are handed on.
    caught: Option<Signals>,
    /// A signal sets this flag.
    interrupted: Arc<AtomicBool>,
    leases: Leases,
    results: Results,
    of_locked: OfLocked,
    /// As long as there is no answer, nothing else is asked.
    asked: Option<Asked>,
    pace: Pace,
    lanes: Lanes,
    /// While this search runs, the tick claims nothing.
    refused: Option<RefusedRuns>,
    /// Runs that other ticks of the worker hold: they can only become fewer while this one may claim.
    others: usize,
    phase: Phase,
    look: Look,
    /// Before this nothing is claimed, whatever there is.
    claims_from: Instant,
    may_claim: bool,
    /// Since when each claim has passed over a limited definition that somebody has locked.
    passed_over_since: Option<Instant>,
    limits: Limited,
    started: Instant,
    /// Runs started.
    taken: usize,
    next_beat: Instant,
    /// Before this the database is left alone, as long as there is work for all threads.
    rested_until: Instant,
    failure: Option<anyhow::Error>,
}

/// Runs a tick to its end.
///
/// # Errors
/// The database can't be reached or refuses; then what was held is left to its lease. Jobs that fail
/// are no error.
pub(crate) fn run(target: Target, plan: Plan, executor: Executor) -> anyhow::Result<()> {
    let (sender, events) = mpsc::channel();
    let (caught, interrupted) = signals::catch().context("cannot catch signals")?;
    let timing = Timing::of(plan.wanted.lease);
    let now = Instant::now();
    let mut tick = Tick {
        holder: Holder { worker: plan.worker.clone(), tick: String::new() },
        connection: Connection::to(target),
        pool: Pool::new(plan.concurrency, executor, sender.clone()),
        events,
        sender,
        caught: Some(caught),
        interrupted,
        leases: Leases::default(),
        results: Results::default(),
        of_locked: OfLocked::Wait,
        asked: None,
        pace: Pace::default(),
        lanes: Lanes::default(),
        refused: None,
        others: 0,
        phase: Phase::Working,
        look: Look::Now,
        claims_from: now,
        may_claim: false,
        passed_over_since: None,
        limits: Limited::No,
        started: now,
        taken: 0,
        next_beat: now + timing.heartbeat,
        rested_until: now,
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
    /// All that there is to do now, in the order of its urgency.
    fn step(&mut self) {
        self.advance();
        if self.connection.store.is_none() {
            self.connect();
        }
        if self.connection.store.is_none() {
            self.results.give_up_expired(self.timing.result_kept, &mut self.leases);
            self.leases.forget_expired(self.timing.result_kept);
            return;
        }
        match self.talk() {
            // Sending proves nothing.
            Ok(()) if self.asked.is_some() => {}
            Ok(()) => self.connection.serves(),
            Err(error) => {
                // A signal may have ended the wait early.
                self.take_events();
                self.trouble(error);
            }
        }
        self.results.tell();
        if self.look == Look::AfterRun
            && let Some(due) = self.results.due_again
        {
            self.look = Look::At(due);
            // Until then, what else ends may have it look too early.
            self.results.due_again = Some(due).filter(|due| *due > Instant::now());
        }
    }

    /// Whether nothing depends on this tick.
    fn is_free(&self) -> bool {
        self.leases.is_empty() && self.results.is_empty()
    }

    fn is_done(&self) -> bool {
        let idle = self.is_free() && self.asked.is_none();
        match self.phase {
            Phase::Working => {
                idle && (self.failure.is_some() || self.connection.store.is_some() && self.look == Look::AfterRun)
            }
            Phase::Draining | Phase::Stopping(_) => idle,
            Phase::Ending(until) => idle || Instant::now() >= until && self.asked.is_none(),
        }
    }

    /// Moves on to the next phase when its time has come.
    fn advance(&mut self) {
        match self.phase {
            Phase::Working if self.started.elapsed() >= self.plan.max_time || self.has_reached_limit() => {
                self.phase = Phase::Draining;
            }
            Phase::Stopping(until) if Instant::now() >= until => self.end_all(),
            _ => {}
        }
    }

    /// What waits for a thread may yet go back, and others be started instead.
    fn has_reached_limit(&self) -> bool {
        self.taken >= self.plan.limit && self.pool.waiting_for().is_none()
    }

    /// Sleeps until something happens or is due.
    fn wait(&mut self) {
        let now = Instant::now();
        let is_called = self.pool.attend(self.attention(), self.results.bytes());
        let until = if is_called { now } else { self.next_step(now) };
        match self.events.recv_timeout(until.saturating_duration_since(now)) {
            Ok(event) => self.take(event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        self.take_events();
        for attempt in self.pool.ended() {
            match &attempt.ended.outcome {
                Outcome::Failed(why @ Failure::Exhausted(_)) => self.take_back_unstartable(&attempt.run, why),
                _ if !attempt.has_begun => self.take_back(&attempt.run),
                _ => {
                    self.pace.observe(attempt.finished - attempt.started, attempt.run.payload.len());
                    self.results.ended.push(Judged::new(attempt));
                }
            }
        }
    }

    /// When there is something to do, should nothing happen before.
    fn next_step(&self, now: Instant) -> Instant {
        let mut until = now + Duration::from_secs(3600);
        let mut at = |instant: Instant| until = until.min(instant);
        match self.phase {
            Phase::Working if self.has_reached_limit() => at(now),
            Phase::Working => at(self.started + self.plan.max_time),
            Phase::Draining => {}
            Phase::Stopping(instant) => at(instant),
            // What is asked then is waited for.
            Phase::Ending(instant) if self.asked.is_none() => at(instant),
            Phase::Ending(_) => {}
        }
        if self.caught.is_some() {
            at(self.started + signals::KEPT);
        }
        if let Some(asked) = &self.asked {
            at(asked.until());
        } else if self.connection.store.is_some() {
            let resting = if self.rests() { self.rested_until } else { now };
            let not_before = |instant: Instant| instant.max(self.connection.paused_until).max(resting);
            if self.leases.held() > 0 || self.may_claim {
                at(not_before(self.next_beat));
            }
            self.results.next(now).map(not_before).into_iter().for_each(&mut at);
            if self.leases.has_unstarted() {
                at(not_before(now + connection::REFUSED_PAUSE));
            }
            if let Some(waited) = self.pool.waiting_for() {
                at(not_before(now + self.pace.patience().saturating_sub(waited)));
            }
            match self.look {
                _ if self.phase == Phase::Working && self.refused.is_some() => at(not_before(now)),
                Look::Now if self.phase == Phase::Working => at(not_before(self.claims_from)),
                Look::At(instant) if self.phase == Phase::Working => at(not_before(instant.max(self.claims_from))),
                _ if self.phase == Phase::Draining && self.may_claim => at(not_before(now)),
                _ => {}
            }
        } else {
            let next = [self.connection.next(), self.leases.first_given_up(self.timing.result_kept)];
            next.into_iter().flatten().for_each(at);
        }
        until
    }

    /// What the pool is to call for: there may be thousands of ends a second.
    fn attention(&self) -> Attention {
        if self.asked.is_some() {
            Attention::None
        } else if self.rests() {
            let waiting = self.pace.few(self.pool.size());
            Attention::Shortage {
                waiting,
                ended: pace::PLENTY - self.results.ended.len(),
                bytes: BYTES_AT_REST - self.results.bytes(),
            }
        } else {
            Attention::Ended
        }
    }

    fn take_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.take(event);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Signal => self.stop(),
            // Where it comes from is asked at every step.
            Event::Ended | Event::Answered => {}
        }
    }

    /// The end: gives the claim right back and reports what made it impossible to go on.
    fn leave(mut self) -> anyhow::Result<()> {
        let mut kept = 0;
        for run in self.leases.runs() {
            log::error!("run {run}: still held at the end; its lease will run out");
            kept += 1;
        }
        if self.is_stopping() {
            self.be_brief(Duration::ZERO);
        }
        let left = self.give_right_back();
        if let Some(store) = &self.connection.store {
            log::debug!(
                "{} runs started, {} transactions, in {}",
                self.taken,
                store.transactions(),
                crate::duration::show(self.started.elapsed())
            );
        }
        self.prune();
        match self.failure.or(self.connection.lost) {
            Some(failure) => Err(failure),
            None if kept > 0 => bail!("cannot give {} back in time; see the log", count::of(kept, "run")),
            None => left.map_err(Into::into),
        }
    }
}
