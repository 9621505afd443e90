//! One tick: recover lost leases, then claim and execute until nothing is due or the time is spent.
//! The one place that knows both the store and execution. A single thread does what stands here; the
//! pool's threads execute and know no database.
//!
//! If the process dies after any line of this, leases run out and another tick recovers the runs.

mod claim;
mod connection;
mod exchange;
mod id;
mod lanes;
mod lease;
mod pace;
mod pool;
mod prune;
mod record;
mod signals;
mod talk;
mod timing;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use signal_hook::iterator::Signals;

use crate::connect::{Connecting, Target};
use crate::count;
use crate::execute::{Caller, Stop};
use crate::model::{Failure, Outcome, Status};
use crate::store::{Holder, Limited, OfLocked, Old, Store, Token, Wanted};
use lanes::Lanes;
use pace::Pace;
use pool::{Attention, Pool};
use record::Judged;
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

/// A run whose lease this tick has.
struct HeldRun {
    attempt: i32,
    stop: Arc<Stop>,
    /// When the lease is over, counted from before its last renewal was sent.
    expires: Instant,
}

/// A claim that goes back, because no thread was free for it.
struct Unstarted {
    claim: Token,
    expires: Instant,
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
    target: Target,
    plan: Plan,
    timing: Timing,
    holder: Holder,
    /// `None` while the connection is lost.
    store: Option<Store>,
    connecting: Option<Connecting>,
    pool: Pool,
    events: Receiver<Event>,
    sender: mpsc::Sender<Event>,
    /// Signals that wait until they are handed on.
    caught: Option<Signals>,
    held: HashMap<i64, HeldRun>,
    unstarted: Vec<Unstarted>,
    /// Ended, and not recorded yet.
    ended: Vec<Judged>,
    /// Ended, with runs that somebody has locked: they wait for that, and nothing else does.
    blocked: Vec<Judged>,
    blocked_until: Instant,
    of_locked: OfLocked,
    /// Recorded, and not in the log yet.
    untold: Vec<(Status, Judged)>,
    /// Ended too late, and not in the history yet.
    lost: Vec<Judged>,
    /// As long as there is no answer, nothing else is asked.
    asked: Option<Asked>,
    pace: Pace,
    lanes: Lanes,
    /// Runs that other ticks of the worker hold: they can only become fewer while this one may claim.
    others: usize,
    phase: Phase,
    look: Look,
    /// Before this nothing is claimed, whatever there is.
    claims_from: Instant,
    may_claim: bool,
    limits: Limited,
    started: Instant,
    /// Runs started.
    taken: usize,
    next_beat: Instant,
    /// Before this the database is left alone.
    paused_until: Instant,
    /// Before this it is, as long as there is work for all threads.
    rested_until: Instant,
    /// Since the database last did what it was asked; a connection alone proves nothing.
    connects: u32,
    /// Why the connection was lost, until it serves again.
    unreached: Option<anyhow::Error>,
    failure: Option<anyhow::Error>,
}

/// Runs a tick to its end.
///
/// # Errors
/// The database can't be reached or refuses; then what was held is left to its lease. Jobs that fail
/// are no error.
pub(crate) fn run(target: Target, plan: Plan, caller: Caller) -> anyhow::Result<()> {
    let (sender, events) = mpsc::channel();
    let caught = signals::catch().context("cannot catch signals")?;
    let timing = Timing::of(plan.wanted.lease);
    let now = Instant::now();
    let mut tick = Tick {
        target,
        holder: Holder { worker: plan.worker.clone(), tick: String::new() },
        store: None,
        connecting: None,
        pool: Pool::new(plan.concurrency, caller, sender.clone()),
        events,
        sender,
        caught: Some(caught),
        held: HashMap::new(),
        unstarted: Vec::new(),
        ended: Vec::new(),
        blocked: Vec::new(),
        blocked_until: now,
        of_locked: OfLocked::Wait,
        untold: Vec::new(),
        lost: Vec::new(),
        asked: None,
        pace: Pace::default(),
        lanes: Lanes::default(),
        others: 0,
        phase: Phase::Working,
        look: Look::Now,
        claims_from: now,
        may_claim: false,
        limits: Limited::No,
        started: now,
        taken: 0,
        next_beat: now + timing.heartbeat,
        paused_until: now,
        rested_until: now,
        connects: 0,
        unreached: None,
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
        if self.store.is_none() {
            self.connect();
        }
        if self.store.is_none() {
            self.give_up_expired();
            return;
        }
        match self.talk() {
            // Sending proves nothing.
            Ok(()) if self.asked.is_some() => {}
            Ok(()) => (self.connects, self.unreached) = (0, None),
            Err(error) => self.trouble(error),
        }
        self.tell();
    }

    /// Whether nothing depends on this tick.
    fn is_free(&self) -> bool {
        self.held.is_empty()
            && self.unstarted.is_empty()
            && [&self.ended, &self.blocked, &self.lost].iter().all(|results| results.is_empty())
    }

    fn is_done(&self) -> bool {
        let idle = self.is_free() && self.asked.is_none();
        match self.phase {
            Phase::Working => idle && (self.failure.is_some() || self.store.is_some() && self.look == Look::AfterRun),
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
        let mut until = now + Duration::from_secs(3600);
        let mut at = |instant: Instant| until = until.min(instant);
        match self.phase {
            Phase::Working if self.has_reached_limit() => at(now),
            Phase::Working => at(self.started + self.plan.max_time),
            Phase::Draining => {}
            Phase::Stopping(instant) | Phase::Ending(instant) => at(instant),
        }
        if self.caught.is_some() {
            at(self.started + signals::KEPT);
        }
        if let Some(asked) = &self.asked {
            at(asked.until());
        } else if self.store.is_some() {
            let resting = if self.rests() { self.rested_until } else { now };
            let not_before = |instant: Instant| instant.max(self.paused_until).max(resting);
            if !self.held.is_empty() || self.may_claim {
                at(not_before(self.next_beat));
            }
            if !self.ended.is_empty() || !self.lost.is_empty() {
                at(not_before(now));
            }
            if !self.blocked.is_empty() {
                at(not_before(self.blocked_until));
            }
            if !self.unstarted.is_empty() {
                at(not_before(now + connection::REFUSED_PAUSE));
            }
            if let Some(waited) = self.pool.waiting_for() {
                at(not_before(now + self.pace.patience().saturating_sub(waited)));
            }
            match self.look {
                Look::Now if self.phase == Phase::Working => at(not_before(self.claims_from)),
                Look::At(instant) if self.phase == Phase::Working => at(not_before(instant.max(self.claims_from))),
                _ if self.phase != Phase::Working && self.may_claim => at(not_before(now)),
                _ => {}
            }
        } else {
            match &self.connecting {
                Some(connecting) => connecting.until().into_iter().for_each(&mut at),
                None => at(self.paused_until),
            }
            let claims = self.unstarted.iter().map(|one| one.expires);
            let results = self.held.values().map(|held| held.expires + self.timing.result_kept);
            results.chain(claims).min().into_iter().for_each(at);
        }
        if self.pool.attend(self.attention()) {
            until = now;
        }
        match self.events.recv_timeout(until.saturating_duration_since(now)) {
            Ok(event) => self.take(event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        while let Ok(event) = self.events.try_recv() {
            self.take(event);
        }
        for attempt in self.pool.ended() {
            match &attempt.ended.outcome {
                Outcome::Failed(why @ Failure::Exhausted(_)) => self.take_back_unstartable(&attempt.run, why),
                _ if !attempt.has_begun => self.take_back(&attempt.run),
                _ => {
                    self.pace.observe(attempt.finished - attempt.started, attempt.run.payload.len());
                    self.ended.push(Judged::new(attempt));
                }
            }
        }
    }

    /// What the pool is to call for: there may be thousands of ends a second.
    fn attention(&self) -> Attention {
        if self.asked.is_some() {
            Attention::None
        } else if self.rests() {
            let waiting = self.pace.few(self.pool.size());
            Attention::Shortage {
                waiting,
                ended: pace::PLENTY - self.ended.len(),
                bytes: BYTES_AT_REST - self.ended_bytes(),
            }
        } else {
            Attention::Ended
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
        for run in self.held.keys().chain(self.unstarted.iter().map(|one| &one.claim.id)) {
            log::error!("run {run}: still held at the end; its lease will run out");
            kept += 1;
        }
        let left = self.give_right_back();
        if let Some(store) = &self.store {
            log::debug!(
                "{} runs started, {} transactions, in {}",
                self.taken,
                store.transactions(),
                crate::duration::show(self.started.elapsed())
            );
        }
        self.prune();
        match self.failure.or(self.unreached) {
            Some(failure) => Err(failure),
            None if kept > 0 => bail!("cannot give {} back in time; see the log", count::of(kept, "run")),
            None => left.map_err(Into::into),
        }
    }
}
