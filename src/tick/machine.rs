//! The state machine of a tick. It decides everything about runs, leases and the connection, but
//! does nothing itself: the driver tells it each event and performs the instructions that it
//! returns. It reads no clock, draws no random number and logs nothing, so a simulation can run it.
//!
//! Two things change independently. The phase says how far the tick is on its way to the exit, see
//! `Phase::after`. The connection is there or not; without one, jobs go on until their leases are
//! about to end.
//!
//! The driver waits for the answer to each request, so the machine sends one at a time. If several
//! are due, `Machine::send` says which comes first.

mod answer_time;
mod batch;
mod reconnect;
mod renewal;
mod results;
mod shutdown;
mod step;
mod wake;

use std::time::{Duration, Instant};

use log::Level;

use self::wake::Search;
use super::claims::Claims;
use super::execution::{Ended, JudgedAttempt, Task};
use super::leases::Leases;
use super::link::Link;
use super::pending_writes::{PendingWrite, PendingWrites};
use super::phase::{Phase, PhaseEnd};
use super::request::{Answer, AnswerTimeout, Request};
use super::timing::Timing;
use super::turns::{Duty, Turns};
use crate::execute::PoolState;
use crate::exit::{Exit, Fault};
use crate::job::attempt::StopReason;
use crate::job::status::Status;
use crate::store::{Claim, FencingToken, Kind};

/// How much and how long a tick works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The maximum number of runs to start.
    pub(crate) limit: usize,
    /// The tick claims nothing after this time.
    pub(crate) max_time: Duration,
    /// Whether to poll until the time is spent.
    pub(crate) linger: bool,
    /// How long running jobs may continue after a signal.
    pub(crate) grace: Duration,
    /// Whether to delete old runs at the end.
    pub(crate) prunes: bool,
    /// How long a tick that runs no job waits for a database that is away. Then it ends without its
    /// unrecorded results. `None`: there is no such limit, and the tick gives each result up
    /// `Timing::result_kept` after the end of its lease.
    pub(crate) outage: Option<Duration>,
}

/// What the driver tells the machine.
#[derive(Debug)]
pub(super) enum Event {
    Connected,
    ConnectFailed(anyhow::Error),
    Answered(Answer),
    /// Attempts ended, or could not start, or were withdrawn.
    Ended(Vec<Ended>),
    /// A signal asks the tick to stop.
    Signal,
    /// The tick can't go on, because the host gives it not even one thread.
    Failed(anyhow::Error),
    /// Nothing else has happened, but the time that `Machine::until` returned has come, or the pool
    /// has reached the state that `Machine::wake_when` returned.
    Time,
}

/// What the driver must do. It performs instructions in their order.
#[derive(Debug)]
pub(super) enum Instruction {
    /// Drop the connection if there is one, and connect after 50 to 100 % of this time.
    Connect(Duration),
    /// Send a request and wait for the answer.
    Send(Request, AnswerTimeout),
    /// Hand runs to the pool.
    Start(Vec<Task>),
    /// Withdraw the runs that no thread has started. The next event returns them.
    Withdraw,
    /// Let the jobs of these claims continue until this time.
    Extend(Vec<FencingToken>, Instant),
    /// Ask the job of a claim to stop.
    Stop(FencingToken, StopReason),
    /// End the grace period of jobs that were asked to stop.
    Hurry,
    /// Log a line, perhaps about a claim.
    Log(Level, String, Option<FencingToken>),
    /// Log and count a result that was recorded with this status of its run; `None`: its lease was
    /// lost.
    Recorded(Box<JudgedAttempt>, Option<Status>),
    Exit(anyhow::Result<()>),
}

/// What the machine remembers of a request until the answer.
#[derive(Debug)]
struct SentRequest {
    /// When it was sent.
    at: Instant,
    duty: Duty,
    /// A wake takes or renews the claim right for this long.
    right_lasts: Duration,
    /// A renewal renews these leases in the rows of their runs.
    renewed: Vec<FencingToken>,
    /// A renewal renews this many leases in `job_locked_runs` instead.
    kept: usize,
    /// A step sends these writes.
    writes: Vec<PendingWrite>,
    /// Some of the writes were sent before. Then the step has more statements, which check what an
    /// earlier request wrote.
    is_again: bool,
    /// A step sends this claim.
    claim: Option<Claim>,
}

#[derive(Debug)]
pub(super) struct Machine {
    bounds: Bounds,
    timing: Timing,
    now: Instant,
    pool: PoolState,
    instructions: Vec<Instruction>,
    phase: Phase,
    /// When `PhaseEnd::Spent` ends the phase.
    phase_ends: Option<Instant>,
    /// Why the tick ends early.
    failure: Option<anyhow::Error>,
    link: Link,
    /// When an attempt ended last.
    last_ended: Instant,
    /// The number of held claims whose result or release the tick has given up sending.
    given_up: usize,
    /// The request that has no answer yet. Signals and ended attempts may come before the answer.
    unanswered: Option<SentRequest>,
    /// The simulation sets another order.
    pub(super) turns: Turns,
    leases: Leases,
    /// How many renewals must succeed before output is stored again. A failure adds one.
    renewals_until_output: u32,
    next_renewal: Instant,
    next_wake: Instant,
    writes: PendingWrites,
    /// See `batch_ends`.
    batching_until: Instant,
    claims: Claims,
    search: Search,
    /// A tick without claimed runs wakes again at once, because the last wake left something to do.
    wakes_again: bool,
    /// A step with writes and a claim failed, so the next step with writes has no claim.
    claims_apart: bool,
    // Warnings that were logged, to log each only once.
    has_logged_exhausted: bool,
    has_logged_limited: bool,
    has_logged_skipped: bool,
    /// Whether old runs are still to be deleted at the end.
    may_prune: bool,
    /// A signal has asked the tick to stop.
    has_signal: bool,
}

impl Machine {
    /// Returns a machine that waits for its first connection.
    pub(super) fn new(bounds: Bounds, timing: Timing, now: Instant) -> Self {
        Self {
            bounds,
            timing,
            now,
            pool: PoolState::default(),
            instructions: Vec::new(),
            phase: Phase::Working,
            phase_ends: Some(now + bounds.max_time),
            failure: None,
            link: Link::new(now),
            last_ended: now,
            given_up: 0,
            unanswered: None,
            turns: Turns::default(),
            leases: Leases::default(),
            renewals_until_output: 1,
            next_renewal: now,
            next_wake: now,
            writes: PendingWrites::default(),
            batching_until: now,
            claims: Claims::new(bounds.limit, bounds.linger, now),
            search: Search::None,
            wakes_again: false,
            claims_apart: false,
            has_logged_exhausted: false,
            has_logged_limited: false,
            has_logged_skipped: false,
            may_prune: bounds.prunes,
            has_signal: false,
        }
    }

    /// Takes an event that comes at `now`, with the pool in this state, and returns what to do.
    pub(super) fn on(&mut self, now: Instant, pool: PoolState, event: Event) -> Vec<Instruction> {
        (self.now, self.pool) = (now, pool);
        match event {
            Event::Connected => self.connected(),
            Event::ConnectFailed(error) => self.disconnected(error),
            Event::Answered(answer) => self.answered(answer),
            Event::Ended(attempts) => {
                for attempt in attempts {
                    self.ended(attempt);
                }
            }
            Event::Signal => self.signal(),
            Event::Failed(error) => self.fail(error),
            Event::Time => {}
        }
        if self.unanswered.is_none() {
            self.advance();
        }
        std::mem::take(&mut self.instructions)
    }

    /// Returns when to send `Event::Time`, if no other event comes before.
    pub(super) fn until(&self) -> Option<Instant> {
        if !self.link.is_up() {
            // Nothing can be sent. The tick only waits for the time when `drop_expired` drops a
            // write, for the end of the phase, and for the time to give the database up.
            let leases = self.writes.tokens().filter_map(|claim| self.leases.get(&claim));
            let dropped = leases.map(|lease| lease.expires() + self.timing.result_kept);
            return dropped.chain(self.phase_end()).chain(self.gives_up_at()).min();
        }
        let first_duty = self.duties().map(|(at, _)| at).chain(self.late_at()).min();
        let send_at = first_duty.map(|at| at.max(self.not_before().unwrap_or(at)));
        send_at.into_iter().chain(self.phase_end()).min()
    }

    /// Returns the time before which nothing is sent.
    fn not_before(&self) -> Option<Instant> {
        self.link.paused_until().max(self.batch_ends())
    }

    /// Whether another tick of the worker had the claim right when this one last asked for it.
    pub(super) fn other_claims(&self) -> bool {
        self.claims.other_claims()
    }

    /// Ends the phase if it is over, drops old writes, and sends the request that is due, if any.
    fn advance(&mut self) {
        let is_over = self.phase_end().is_some_and(|end| self.now >= end);
        if is_over || self.phase == Phase::Working && self.claims.are_used_up(&self.pool) {
            self.end_phase(PhaseEnd::Spent);
        }
        // Without a connection, late runs stay, because their claims could not be released.
        let is_late = self.link.is_up() && self.late_at().is_some_and(|at| self.now >= at);
        if self.pool.waiting > 0 && (is_late || self.phase.is_stopping()) {
            // The driver answers with `Event::Ended` at once, and that continues here.
            return self.instructions.push(Instruction::Withdraw);
        }
        if self.gives_up_at().is_some_and(|end| self.now >= end) {
            self.drop_all_writes();
            let silent = || Fault::new(Exit::Unavailable, "the database did not answer").into();
            let away = self.link.take_unavailable().unwrap_or_else(silent);
            self.fail(away);
        }
        self.drop_expired();
        // If there is nothing to send and nothing left to do, the phase ends. The next phase may
        // have something to send.
        while !self.send() && self.is_idle() {
            self.end_phase(PhaseEnd::Idle);
        }
    }

    /// Returns the kinds of requests that the tick must send, and when each is due.
    fn duties(&self) -> impl Iterator<Item = (Instant, Duty)> {
        let duties = [
            (Duty::Renew, self.renewal_due()),
            (Duty::Wake, self.wake_due()),
            (Duty::Step, self.step_due()),
            (Duty::Store, self.output_due()),
            (Duty::Leave, self.leave_due()),
            (Duty::Prune, self.prune_due()),
        ];
        duties.into_iter().filter_map(|(duty, at)| Some((at?, duty)))
    }

    /// Sends the first of the requests that are due: a renewal without which a lease might end, or
    /// output to store, or else the request that has its turn. Returns whether there is one.
    fn send(&mut self) -> bool {
        let now = self.now;
        if !self.link.is_up() || self.not_before().is_some_and(|at| now < at) {
            return false;
        }
        let due = self.duties().filter(|(at, _)| now >= *at);
        let mut due: Vec<_> = due.map(|(_, duty)| duty).collect();
        due.sort_by_cached_key(|duty| match duty {
            Duty::Renew if self.renews_first() => 0,
            Duty::Store => 1,
            duty => 2 + self.turns.before(*duty),
        });
        for duty in due {
            // If answers are slow, the next wake is late, so the right must last longer.
            let right_lasts = 3 * self.timing.heartbeat + 12 * self.link.longest_answer();
            // `renew` and `step` add what they send.
            let (renewed, writes) = (Vec::new(), Vec::new());
            let mut sent = SentRequest {
                at: now,
                duty,
                right_lasts,
                renewed,
                kept: 0,
                writes,
                is_again: false,
                claim: None,
            };
            // `None`: this duty has nothing to send now. Then the next duty has its turn.
            let request = match duty {
                Duty::Renew => self.renew(&mut sent),
                Duty::Wake => Some(self.wake(right_lasts)),
                Duty::Step => self.step(&mut sent),
                Duty::Store => {
                    self.renewals_until_output = 1;
                    Some(Request::Store(Vec::new()))
                }
                Duty::Leave => Some(Request::Leave { slow: self.link.take_slow_answer() }),
                Duty::Prune => {
                    self.may_prune = false;
                    Some(Request::Prune)
                }
            };
            if let Some(request) = request {
                self.turns.had_turn(duty);
                let timeout = self.answer_timeout(&sent);
                self.unanswered = Some(sent);
                self.instructions.push(Instruction::Send(request, timeout));
                return true;
            }
        }
        // Nothing is left that the database could reject.
        self.link.accepted();
        false
    }

    /// Reacts to the answer to the unanswered request.
    fn answered(&mut self, answer: Answer) {
        let Some(sent) = self.unanswered.take() else { return };
        self.observe(&sent, &answer);
        // `Ok`: the session works, even if the database rejected some rows.
        let result = match answer {
            Answer::Wake { woken, is_searching } => {
                if is_searching {
                    (self.search, self.next_wake) = (Search::Running, self.now);
                }
                woken
                    .map(|woken| self.woken(&sent, woken))
                    .inspect_err(|_| self.claims.pause(self.now))
            }
            Answer::Renew(renewed) => self.renewed(&sent, renewed),
            Answer::Step(Ok(step)) => {
                self.stepped(sent, step);
                Ok(())
            }
            Answer::Step(Err((error, claims))) => self.step_failed(sent, error, claims),
            Answer::Store(Err(error)) => {
                self.renewals_until_output += 1;
                self.log(Level::Debug, error.to_string());
                if error.kind == Kind::Lost { Err(error) } else { Ok(()) }
            }
            Answer::Store(Ok(_)) => Ok(()),
            Answer::Leave(left) => left.map(|()| self.claims.lose_right()),
            Answer::Prune => Ok(()),
        };
        match result {
            Ok(()) => self.link.answered(),
            Err(error) => self.on_error(error),
        }
    }

    /// Logs a line about a claim.
    fn log_about(&mut self, claim: FencingToken, level: Level, line: String) {
        self.instructions.push(Instruction::Log(level, line, Some(claim)));
    }

    /// Logs a line.
    fn log(&mut self, level: Level, line: String) {
        self.instructions.push(Instruction::Log(level, line, None));
    }
}

#[cfg(test)]
pub(super) mod tests;
