//! The state machine of a tick. It decides everything about runs, leases and the connection, but
//! does nothing itself: the driver tells it each event and performs the instructions that it
//! returns. It reads no clock, draws no random number and logs nothing, so a simulation can run it.
//!
//! Two things change independently. The phase (`Phase::after`) is how far the tick is on its way to
//! the exit. The connection is there or not; without one, jobs go on until their leases are about
//! to end. The driver waits for the answer to a request, so at most one is sent at a time: the most
//! urgent of those that are due, see `Machine::duties`.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use log::Level;

use super::claims::{Claims, LIMITED_PAUSE};
use super::execution::{Ended, JudgedAttempt, Task, subject};
use super::leases::{Lease, Leases};
use super::link::Link;
use super::pending_writes::{self, PendingWrite, PendingWrites};
use super::phase::{Phase, PhaseEnd};
use super::prefetch;
use super::request::{Answer, AnswerTimeout, Request};
use super::timing::Timing;
use super::turns::{Duty, Turns};
use crate::execute::{PoolState, WakeWhen};
use crate::exit::{Exit, Fault};
use crate::job::attempt::StopReason;
use crate::job::status::Status;
use crate::store::{self, Claim, Claimed, FencingToken, Kind, LeaseState, Renewed, StepResult};
use crate::text::{duration, plural};
use crate::upkeep::{FailedClaim, Woken};

/// The tick delays results for a larger batch only while they have less output than this.
const BATCH_BYTES: usize = 1024 * 1024;
/// The pause before a result is sent again because another session has locked its run.
const LOCKED_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a rejected result is sent again. It is longer than the pause of claims, so runs
/// are claimed in between.
const RESULT_PAUSE: Duration = Duration::from_secs(2);
/// How long to wait for jobs after they were asked to stop. Then the process exits without them.
const END_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a tick that runs nothing waits for the database before it exits.
const IDLE_END_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// How long a tick that runs no job waits for a database that is away; `None`: as long as it
    /// keeps results.
    pub(crate) outage: Option<Duration>,
}

/// What the driver tells the machine.
#[derive(Debug)]
pub(super) enum Event {
    Connected,
    /// The attempt to connect failed.
    Disconnected(anyhow::Error),
    Answered(Answer),
    /// Attempts ended, or could not start, or were withdrawn.
    Ended(Vec<Ended>),
    /// A signal asks the tick to stop.
    Signal,
    /// The host can't go on: there is not even one thread.
    Failed(anyhow::Error),
    /// The time that `Machine::until` returned has come, or the pool reached `Machine::wake_when`.
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

/// A search for due runs that can't be claimed. While there is one, the tick claims nothing.
#[derive(Debug)]
enum Search {
    None,
    /// The next wake begins it, because a claim failed.
    Begins(FailedClaim),
    /// The next wake continues it.
    Running,
}

/// What the machine keeps of a request until the answer.
#[derive(Debug)]
struct Sent {
    at: Instant,
    duty: Duty,
    /// How long the claim right lasts that it takes.
    right: Duration,
    /// The claims whose leases it renews in their rows.
    renewed: Vec<FencingToken>,
    /// How many leases it keeps without their rows.
    kept: usize,
    writes: Vec<PendingWrite>,
    /// Some writes are sent again: more statements check what an earlier request wrote.
    is_again: bool,
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
    /// When the phase is spent.
    phase_ends: Option<Instant>,
    failure: Option<anyhow::Error>,
    link: Link,
    /// When an attempt ended last.
    last_ended: Instant,
    /// The request that has no answer yet. Signals and ended attempts may come before the answer.
    sent: Option<Sent>,
    /// A test lets other duties come first.
    pub(super) turns: Turns,
    leases: Leases,
    /// The renewals since output was last sent; one less if that failed. Above zero, output is
    /// stored.
    renewals_without_output: i32,
    next_renewal: Instant,
    next_wake: Instant,
    writes: PendingWrites,
    /// See `batch_ends`.
    batching_until: Instant,
    claims: Claims,
    search: Search,
    /// A tick that holds nothing wakes again at once, because the last wake left something to do.
    wakes_again: bool,
    /// Results and a claim failed together, so the results are sent without a claim.
    claims_apart: bool,
    has_logged_exhausted: bool,
    has_logged_limited: bool,
    has_logged_skipped: bool,
    may_prune: bool,
    /// A signal has asked the tick to stop.
    has_signal: bool,
}

impl Machine {
    /// A machine that waits for its first connection.
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
            sent: None,
            turns: Turns::default(),
            leases: Leases::default(),
            renewals_without_output: 0,
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

    /// Takes an event at `now`, when the pool is in this state, and returns what to do.
    pub(super) fn on(&mut self, now: Instant, pool: PoolState, event: Event) -> Vec<Instruction> {
        (self.now, self.pool) = (now, pool);
        match event {
            Event::Connected => self.connected(),
            Event::Disconnected(error) => self.disconnected(error),
            Event::Answered(answer) => self.answered(answer),
            Event::Ended(attempts) => attempts.into_iter().for_each(|ended| self.ended(ended)),
            Event::Signal => self.signal(),
            Event::Failed(error) => self.fail(error),
            Event::Time => {}
        }
        if self.sent.is_none() {
            self.advance();
        }
        std::mem::take(&mut self.instructions)
    }

    /// Returns when the next event is `Event::Time`, if none comes before.
    pub(super) fn until(&self) -> Option<Instant> {
        if !self.link.is_up() {
            let leases = self.writes.tokens().filter_map(|claim| self.leases.get(&claim));
            let dropped = leases.map(|lease| lease.expires() + self.timing.result_kept);
            return dropped.chain(self.phase_end()).chain(self.outage_end()).min();
        }
        let not_before = self.not_before();
        let due = self.duties().map(|(at, _)| at).chain(self.late_at());
        let due = due.map(|at| at.max(not_before.unwrap_or(at)));
        due.chain(self.phase_end()).min()
    }

    /// Returns when the phase is spent. The last one before the exit goes on until each result was
    /// sent once.
    fn phase_end(&self) -> Option<Instant> {
        let sends_results =
            self.phase == Phase::Ending && self.link.is_up() && self.writes.has_new_results();
        self.phase_ends.filter(|_| !sends_results)
    }

    /// Returns when a tick that runs no job gives the database up.
    fn outage_end(&self) -> Option<Instant> {
        let runs_none = self.pool.running + self.pool.waiting == 0;
        let since = self.link.away_since().filter(|_| runs_none)?;
        Some(since.max(self.last_ended) + self.bounds.outage?)
    }

    /// Returns the time before which nothing is sent.
    fn not_before(&self) -> Option<Instant> {
        self.link.paused_until().max(self.batch_ends())
    }

    /// Returns when the pool wakes the driver. During the delay of a batch a single ended attempt
    /// does not: thousands may end in a second.
    pub(super) fn wake_when(&self) -> WakeWhen {
        if self.batch_ends().is_some() {
            // The delay ends before a difference is negative.
            WakeWhen::Shortage {
                waiting: self.claims.prefetch.refill_at(self.pool.size),
                ended: prefetch::FULL_BATCH - self.writes.waiting(),
                bytes: BATCH_BYTES - self.writes.bytes(),
            }
        } else {
            WakeWhen::Ended
        }
    }

    /// Returns the bytes of output that wait to be recorded.
    pub(super) fn bytes(&self) -> usize {
        let sent = self.sent.iter().flat_map(|sent| &sent.writes);
        self.writes.bytes() + sent.map(PendingWrite::bytes).sum::<usize>()
    }

    /// Whether another tick of the worker had the claim right when this one last asked for it.
    pub(super) fn other_claims(&self) -> bool {
        self.claims.other_claims()
    }

    /// Returns until when the next request is delayed for a larger batch. It is only delayed while
    /// all threads have work, no lease needs to be renewed, and the results take little memory.
    fn batch_ends(&self) -> Option<Instant> {
        let until = self.batching_until.min(self.next_renewal);
        let is_delayed = self.now < until
            && self.phase == Phase::Working
            && self.pool.waiting > self.claims.prefetch.refill_at(self.pool.size)
            && self.writes.waiting() < prefetch::FULL_BATCH
            && self.writes.bytes() < BATCH_BYTES;
        is_delayed.then_some(until)
    }

    /// Returns when the oldest run that waits for a thread has waited too long, because runs take
    /// longer than before.
    fn late_at(&self) -> Option<Instant> {
        self.pool.oldest.map(|submitted| submitted + self.claims.prefetch.thread_timeout())
    }

    /// Takes the steps that are due; sends at most one request.
    fn advance(&mut self) {
        let is_over = self.phase_end().is_some_and(|end| self.now >= end);
        if is_over || self.phase == Phase::Working && self.claims.are_used_up(&self.pool) {
            self.turn(PhaseEnd::Spent);
        }
        // Without a connection, withdrawn runs could not be released.
        let is_late = self.link.is_up() && self.late_at().is_some_and(|at| self.now >= at);
        if self.pool.waiting > 0 && (is_late || self.phase.is_stopping()) {
            return self.instructions.push(Instruction::Withdraw);
        }
        if self.outage_end().is_some_and(|end| self.now >= end) {
            self.drop_writes(|_, _| true);
            let silent = || Fault::new(Exit::Unavailable, "the database did not answer").into();
            let away = self.link.take_unavailable().unwrap_or_else(silent);
            self.fail(away);
        }
        self.drop_expired();
        while !self.send() && self.is_idle() {
            self.turn(PhaseEnd::Idle);
        }
    }

    /// Returns the statements that may be due, and when.
    fn duties(&self) -> impl Iterator<Item = (Instant, Duty)> {
        let now = self.now;
        let (is_working, is_leaving) = (self.phase == Phase::Working, self.phase == Phase::Leaving);
        let when = |is_due: bool, at: Instant| is_due.then_some(at);
        let (has_right, may_claim) = (self.claims.has_right(), self.claims.may_claim(now));
        let needs_right = is_working && !self.claims.gives_up_right();
        // A short tick does not wake again after a slow answer, and may have no right to release.
        let notes_slow = is_leaving && self.link.is_slow();
        let claim = self.claim_due();
        let wake = match (self.is_searching(), may_claim) {
            // The search must not delay results.
            (true, _) => when(!self.has_writes(), self.next_wake),
            (false, _) if self.wakes_again => Some(self.next_wake),
            (false, true) => when(needs_right, self.next_wake),
            // A wake takes the place of the claim: it asks for the right.
            (false, false) => claim,
        };
        let step = self.writes.due(now).into_iter().chain(claim.filter(|_| may_claim)).min();
        let renews = match self.phase {
            // Results come first, and the jobs end soon.
            Phase::Ending => self.leases.first_end().is_some_and(|end| Some(end) < self.phase_ends),
            _ => !is_leaving && !self.leases.is_empty(),
        };
        let stores = self.phase < Phase::Ending
            && self.renewals_without_output > 0
            && !self.is_lease_in_danger();
        let duties = [
            (Duty::Renew, when(renews, self.next_renewal)),
            (Duty::Wake, wake.filter(|_| is_working)),
            (Duty::Step, step.filter(|_| !is_leaving)),
            (Duty::Store, when(stores, now)),
            (Duty::Leave, when(has_right && !needs_right || notes_slow, now)),
            (Duty::Prune, when(is_leaving && self.may_prune, now)),
        ];
        duties.into_iter().filter_map(|(duty, at)| Some((at?, duty)))
    }

    fn is_searching(&self) -> bool {
        !matches!(self.search, Search::None)
    }

    /// Whether there is something to write now.
    fn has_writes(&self) -> bool {
        self.writes.due(self.now).is_some_and(|at| self.now >= at)
    }

    fn claim_due(&self) -> Option<Instant> {
        let may_claim = self.phase == Phase::Working
            && !self.is_searching()
            // Before jobs print more output, record the output that is waiting.
            && self.writes.bytes() <= pending_writes::BYTES_AT_ONCE
            && self.has_time_to_claim();
        if may_claim { self.claims.due() } else { None }
    }

    /// Whether all leases can be renewed in time after a claim, if answers take as long as before.
    fn has_time_to_claim(&self) -> bool {
        let Timing { lease, heartbeat, stop_after, .. } = self.timing;
        let needed =
            self.link.longest_step() + self.leases.renewals() * self.link.longest_renewal();
        // Short answers endanger no lease: do not look at all of them.
        needed < heartbeat / 4
            || self
                .leases
                .first_end()
                .is_none_or(|end| end + stop_after >= self.now + lease + needed)
    }

    /// Whether leases are renewed before all else. Leases that need several slow statements still
    /// delay no result by more than one.
    fn renews_first(&self) -> bool {
        let has_result_turn = self.has_writes() && self.turns.before(Duty::Renew) == 2;
        !has_result_turn && self.is_lease_in_danger()
    }

    /// Whether the lease of a job might end if another request came before its renewal.
    fn is_lease_in_danger(&self) -> bool {
        let Timing { lease, stop_after, .. } = self.timing;
        let stops = self.leases.first_end().map(|end| end + stop_after);
        stops.is_some_and(|stops| stops < self.now + lease + 2 * self.timing.answer_limit())
    }

    /// Sends the statement that is due and has its turn. Returns whether there is one.
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
            let right = 3 * self.timing.heartbeat + 12 * self.link.longest_answer();
            let (renewed, writes) = (Vec::new(), Vec::new());
            let mut sent = Sent {
                at: now,
                duty,
                right,
                renewed,
                kept: 0,
                writes,
                is_again: false,
                claim: None,
            };
            // `None`: there is nothing to send before a later time.
            let request = match duty {
                Duty::Renew => self.renew(&mut sent),
                Duty::Wake => Some(self.wake(right)),
                Duty::Step => self.step(&mut sent),
                Duty::Store => {
                    self.renewals_without_output = 0;
                    Some(Request::Store(Vec::new()))
                }
                Duty::Leave => Some(Request::Leave { slow: self.link.take_slow() }),
                Duty::Prune => {
                    self.may_prune = false;
                    Some(Request::Prune)
                }
            };
            if let Some(request) = request {
                self.turns.sent(duty);
                let timeout = self.answer_timeout(&sent);
                self.sent = Some(sent);
                self.instructions.push(Instruction::Send(request, timeout));
                return true;
            }
        }
        self.link.accepted();
        false
    }

    /// Returns how long to wait for the answer. A tick that gives up an answer must connect again
    /// before it records a result, so it waits as long as other answers took.
    fn answer_timeout(&self, sent: &Sent) -> AnswerTimeout {
        let slow = 3 * self.link.longest_answer();
        let is_last = self.phase == Phase::Ending && !sent.writes.is_empty();
        let until = self.phase_ends.filter(|_| self.phase >= Phase::Stopping && !is_last);
        // Jobs must learn of a signal, but a claim alone is worth waiting for.
        let is_claim = self.leases.is_empty() && sent.claim.is_some();
        let interrupted = if is_claim { self.bounds.grace.max(slow) } else { slow };
        let extra = if sent.is_again { self.spare() } else { Duration::ZERO };
        AnswerTimeout { until: until.map(|until| until.max(self.now + slow)), interrupted, extra }
    }

    /// Returns how much longer than usual an answer may take, so that all leases can be renewed
    /// after it.
    fn spare(&self) -> Duration {
        let Timing { lease, stop_after, .. } = self.timing;
        let limit = self.timing.answer_limit();
        let needed = lease + limit + self.leases.renewals() * self.link.longest_renewal();
        let spare = |end: Instant| (end + stop_after).saturating_duration_since(self.now + needed);
        self.leases.first_end().map_or(limit, spare).min(limit)
    }

    fn answered(&mut self, answer: Answer) {
        let Some(sent) = self.sent.take() else { return };
        self.observe(&sent, &answer);
        let done = match answer {
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
                self.renewals_without_output -= 1;
                self.log(Level::Debug, error.to_string());
                if error.kind == Kind::Lost { Err(error) } else { Ok(()) }
            }
            Answer::Store(Ok(_)) => Ok(()),
            Answer::Leave(left) => left.map(|()| self.claims.right_lost()),
            Answer::Prune => Ok(()),
        };
        // `Ok`: the session works, even if it rejected some rows.
        match done {
            Ok(()) => self.link.answered(),
            Err(error) => self.on_error(error),
        }
    }

    /// Measures the answer, and logs once if the database is slow.
    fn observe(&mut self, sent: &Sent, answer: &Answer) {
        let mut took = self.now - sent.at;
        match answer {
            // The pause before the next attempt to connect says enough.
            Answer::Renew(Err(error)) | Answer::Step(Err((error, _)))
                if error.kind == Kind::Lost =>
            {
                return;
            }
            Answer::Renew(_) => self.link.observe_renewal(took),
            Answer::Step(_) => self.link.observe_step(took),
            Answer::Wake { woken: Ok(woken), .. } => {
                self.link.observe(woken.took);
                // A wake has several answers.
                took = woken.longest;
            }
            Answer::Wake { woken: Err(_), .. }
            | Answer::Store(_)
            | Answer::Leave(_)
            | Answer::Prune => return,
        }
        if !self.link.warns_slow(took, self.timing.heartbeat) {
            return;
        }
        let runs = |count: usize| plural::of(count as i64, "run");
        let what = match sent.duty {
            Duty::Renew => {
                format!("to renew the leases of {}", runs(sent.renewed.len() + sent.kept))
            }
            Duty::Step if !sent.writes.is_empty() => {
                format!("to record {}", runs(sent.writes.len()))
            }
            Duty::Step => "to claim runs".to_owned(),
            _ => "to look for due runs".to_owned(),
        };
        let (took, limit) = (duration::show(took), duration::show(self.timing.answer_limit()));
        let line = format!(
            "the database is slow: it took {took} {what}; results, claims and the end of this tick \
             wait for such answers, and leases are lost if one takes longer than {limit}"
        );
        self.log(Level::Warn, line);
    }

    fn renew(&mut self, sent: &mut Sent) -> Option<Request> {
        // Skip leases that have just begun: a tick may hold thousands of very short runs.
        let before = self.now + self.timing.lease - self.timing.heartbeat / 5;
        let (claims, kept, next) = self.leases.to_renew(self.now, before);
        if claims.is_empty() && kept.is_empty() {
            let usual = self.now + self.timing.heartbeat;
            self.next_renewal = next.map_or(usual, |next| usual.min(next));
            return None;
        }
        (sent.renewed, sent.kept) = (claims.clone(), kept.len());
        Some(Request::Renew { claims, kept })
    }

    /// Takes the state of leases. Stops runs that were cancelled or lost.
    fn renewed(&mut self, sent: &Sent, answer: store::Result<Vec<Renewed>>) -> store::Result<()> {
        let heartbeat = self.timing.heartbeat;
        self.leases.keep_no_more();
        let answers = match answer {
            Ok(answers) => answers,
            // One slow row must not cost the others their leases.
            Err(error) if (error.is_too_slow || error.is_locked()) && !sent.renewed.is_empty() => {
                self.leases.too_long(sent.renewed.len(), &error);
                self.next_renewal = self.now;
                if let Some(claim) = self.leases.keep_all(&sent.renewed) {
                    let line = format!("run {}: {}; its lease is kept", claim.id, error.for_log());
                    self.log_about(claim, Level::Warn, line);
                }
                return Ok(());
            }
            // One rejected lease must not cost the others theirs.
            Err(error) if error.may_be_about_rows() && !sent.renewed.is_empty() => {
                self.leases.rejected(sent.renewed.len());
                let [claim] = &*sent.renewed else { return Ok(()) };
                let again = (error.kind != Kind::Data).then(|| self.now + heartbeat / 5);
                if let Some(lease) = self.leases.get_mut(claim) {
                    lease.renew_from(again);
                }
                if again.is_some() {
                    return Err(error);
                }
                self.leave_to_lease(*claim, &format!("run {}", claim.id), &error);
                return Ok(());
            }
            Err(error) => {
                if !sent.renewed.is_empty() && self.took_too_long(sent.at) {
                    self.leases.too_long(sent.renewed.len(), &error);
                }
                // Retry soon. Until then, the tick records results.
                self.next_renewal = self.now + heartbeat / 5;
                return Err(error);
            }
        };
        let stop_at = sent.at + self.timing.stop_after;
        let expires = sent.at + self.timing.lease;
        let mut extended = Vec::with_capacity(answers.len());
        let mut stops = Vec::new();
        for (claim, state) in answers {
            let Some(lease) = self.leases.get_mut(&claim) else { continue };
            match state {
                LeaseState::Renewed | LeaseState::Kept | LeaseState::CancelRequested => {
                    lease.extend(expires, !sent.renewed.is_empty());
                    extended.push(claim);
                    if state == LeaseState::CancelRequested {
                        stops.push(Instruction::Stop(claim, StopReason::Cancelled));
                    }
                }
                LeaseState::Busy => lease.renew_from(Some(sent.at + heartbeat)),
                LeaseState::Lost => {
                    lease.renew_from(None);
                    stops.push(Instruction::Stop(claim, StopReason::LeaseLost));
                }
            }
        }
        self.renewals_without_output += 1;
        self.instructions.push(Instruction::Extend(extended, stop_at));
        self.instructions.extend(stops);
        if !self.leases.accepted(sent.renewed.len(), self.was_quick(sent.at)) {
            self.next_renewal = sent.at + heartbeat;
        }
        Ok(())
    }

    fn wake(&mut self, right: Duration) -> Request {
        let (now, answer) = (self.now, self.link.longest_answer());
        self.next_wake = now + self.timing.heartbeat;
        self.wakes_again = false;
        // Other statements must not wait long. A slow database needs more time: to fire, to recover
        // and to expire are two transactions each. But the next renewal must not come too late.
        let Timing { heartbeat, lease, stop_after, .. } = self.timing;
        let used = lease.saturating_sub(stop_after) + self.timing.answer_limit() + 3 * answer;
        let spare = |end: Instant| end.saturating_duration_since(now + used);
        let spare = self.leases.first_end().map_or(Duration::MAX, spare);
        // The note is a transaction of its own, and the leases matter more. A tick that has no time
        // sends it at its end.
        let has_time = spare >= 6 * answer;
        let slow = if has_time { self.link.take_slow() } else { None };
        let until = now + (6 * answer).min(spare).max(heartbeat / 4);
        let until = self.phase_ends.map_or(until, |end| until.min(end));
        let failed_claim = match std::mem::replace(&mut self.search, Search::None) {
            Search::Begins(failed) => Some(failed),
            Search::None | Search::Running => None,
        };
        Request::Wake(self.claims.wake(right, self.leases.tokens(), until, failed_claim, slow))
    }

    fn woken(&mut self, sent: &Sent, woken: Woken) {
        if woken.has_more && self.leases.is_empty() {
            (self.wakes_again, self.next_wake) = (true, self.now);
        }
        self.claims.woken(self.now, woken, sent.at + sent.right);
    }

    /// Whether a request that failed took too long. One for fewer rows may succeed.
    fn took_too_long(&self, sent: Instant) -> bool {
        self.now - sent >= self.timing.timeouts.statement
    }

    /// Whether a request for twice as many rows takes less than the limit.
    fn was_quick(&self, sent: Instant) -> bool {
        self.now - sent < self.timing.timeouts.statement / 2
    }

    /// Records results, releases claims that were not started, and claims runs, to start now or
    /// within the prefetch window.
    fn step(&mut self, sent: &mut Sent) -> Option<Request> {
        let (writes, are_sent_again) = self.writes.take(self.now);
        (sent.writes, sent.is_again) = (writes, are_sent_again);
        if are_sent_again {
            // They may free places of a limited definition.
            self.claims.claim_soon(self.now);
        }
        let is_apart = self.claims_apart && !sent.writes.is_empty();
        if !is_apart
            && self.claims.may_claim(self.now)
            && self.claim_due().is_some_and(|at| self.now >= at)
        {
            sent.claim = self.claims.next(self.now, &self.pool);
        }
        (!sent.writes.is_empty() || sent.claim.is_some()).then(|| Request::Step {
            results: sent.writes.iter().filter_map(|write| write.finish(self.now)).collect(),
            kept: sent.writes.iter().filter_map(|write| write.keep(self.now)).collect(),
            unstarted: sent.writes.iter().filter_map(PendingWrite::released).collect(),
            claim: sent.claim.clone(),
            // Only the first try to record a result waits for a lock.
            skips_locked: are_sent_again || sent.writes.iter().any(|it| it.released().is_some()),
        })
    }

    fn stepped(&mut self, sent: Sent, step: StepResult) {
        let StepResult { recorded, queues_runs, follows, locked, taken, claiming } = step;
        self.link.accepted();
        self.observe_answer(sent.at);
        let is_quick = self.was_quick(sent.at);
        self.writes.accepted(is_quick);
        self.claims_apart = false;
        let mut is_released = false;
        for write in sent.writes {
            let token = write.token();
            if locked.contains(&token.id) && !recorded.contains_key(&token) {
                self.writes.send_again(write, self.now + LOCKED_PAUSE);
                continue;
            }
            self.leases.remove(&token);
            let (PendingWrite::Record(judged) | PendingWrite::Keep(judged)) = write else {
                is_released = true;
                continue;
            };
            let status = recorded.get(&token).copied();
            if matches!(status, Some(Status::Failed | Status::Queued)) {
                self.claims.due_again(self.now, judged.next_status.wait);
            }
            self.instructions.push(Instruction::Recorded(judged, status));
        }
        let Some(claim) = sent.claim else {
            // Released runs, hooks and followers are due. A tick that polls finds them anyway.
            if (is_released || queues_runs || follows) && self.claims.is_idle() {
                self.claims.claim_soon(self.now);
            }
            return;
        };
        self.claims.accepted(is_quick);
        let holds = !taken.claimed.is_empty() || !self.leases.is_empty();
        self.claims.claimed(self.now, &claim, sent.at, claiming, &taken, holds);
        if taken.skips_runs {
            // The runs behind those that the search sets aside are claimed after a pause.
            self.search_unclaimable(store::Error::skips_runs(), true);
            self.claims.claim_soon(self.now);
            self.claims.pause(self.now);
        }
        if let Some(job) = taken.skipped.filter(|_| self.claims.skips_for_long(self.now))
            && !std::mem::replace(&mut self.has_logged_skipped, true)
        {
            let why = "another session has locked its definition; `jobctl doctor` names long \
                transactions";
            self.log(Level::Warn, format!("runs of {job} do not start: {why}"));
        }
        if self.has_writes() || follows {
            // Runs ended meanwhile, or what waits for them starts before the next request.
            self.claims.claim_soon(self.now);
        }
        if self.phase.is_stopping() {
            // A signal came before the answer, so these runs must not start.
            self.release(taken.claimed.iter().map(Claimed::token), sent.at);
        } else {
            self.start(taken.claimed, sent.at);
        }
    }

    /// The results or the claim failed. One locked run, one rejected value, one slow and one
    /// unclaimable run must not delay the others.
    fn step_failed(
        &mut self,
        sent: Sent,
        error: store::Error,
        made: Vec<FencingToken>,
    ) -> store::Result<()> {
        self.observe_answer(sent.at);
        // The lost transaction may have been committed.
        self.release(made, sent.at);
        self.claims.pause(self.now);
        if error.may_be_committed {
            self.writes.answer_lost(&sent.writes);
        }
        match &sent.claim {
            None => self.writes_failed(sent, error),
            Some(claim) if sent.writes.is_empty() => self.claim_failed(claim, sent.at, error),
            // Either may have caused the error, so send the results without a claim next time.
            Some(_) => {
                self.claims_apart = true;
                self.writes.failed(sent.writes, self.now);
                if error.may_be_about_rows() { Ok(()) } else { Err(error) }
            }
        }
    }

    fn claim_failed(
        &mut self,
        claim: &Claim,
        sent: Instant,
        error: store::Error,
    ) -> store::Result<()> {
        let mut leaves_out_limited = false;
        if error.is_too_slow || self.took_too_long(sent) {
            leaves_out_limited = claim.limits && self.claims.limited_failed(self.now, &error);
            if leaves_out_limited {
                self.log_limited();
            } else if claim.at_most > 1 {
                self.claims.too_long(claim.at_most.unsigned_abs() as usize, &error);
                if error.kind == Kind::Busy {
                    return Ok(());
                }
            }
        }
        if !error.may_be_about_one_row() {
            return Err(error);
        }
        self.search_unclaimable(error, leaves_out_limited);
        Ok(())
    }

    /// Begins a search for due runs that can't be claimed.
    fn search_unclaimable(&mut self, error: store::Error, goes_on: bool) {
        let failed = FailedClaim { error, goes_on };
        (self.search, self.next_wake) = (Search::Begins(failed), self.now);
    }

    fn writes_failed(&mut self, sent: Sent, error: store::Error) -> store::Result<()> {
        // At the end there is no time to try them in smaller parts.
        let keeps = sent.writes.len() == 1 || self.phase >= Phase::Ending;
        let may_be_late = error.is_too_slow || error.is_locked();
        // A lock may be gone at the next try.
        let is_last_try = error.is_too_slow || sent.is_again || self.phase >= Phase::Ending;
        if may_be_late && keeps && is_last_try {
            for write in sent.writes {
                let is_last = sent.is_again && write.released().is_some();
                self.put_behind(write, is_last, &error);
            }
            return Ok(());
        }
        if may_be_late || self.took_too_long(sent.at) {
            self.writes.too_long(sent.writes.len(), &error);
        }
        if !error.may_be_about_rows() {
            self.writes.failed(sent.writes, self.now);
            return Err(error);
        }
        let is_data = error.kind == Kind::Data;
        let Some(mut write) = self.writes.rejected(sent.writes, self.now) else { return Ok(()) };
        let token = write.token();
        if is_data && write.strip() {
            let line = format!("run {}: output not stored: {error}", token.id);
            self.log_about(token, Level::Warn, line);
            self.writes.send_again(write, self.now);
        } else if is_data || write.has_waited(self.now, self.timing.stop_after) {
            // Sending it again may help after an unexpected error, but not if the data is the
            // cause.
            self.put_behind(write, true, &error);
        } else {
            self.writes.send_again(write, self.now + RESULT_PAUSE);
            return Err(error);
        }
        Ok(())
    }

    /// Puts a write that took too long or was rejected behind the others. A result is stored
    /// instead, and a tick records it later, so it does not delay this tick's end and keeps no
    /// slot of the worker. Other writes get another try, unless this `is_last`.
    fn put_behind(&mut self, write: PendingWrite, is_last: bool, error: &store::Error) {
        let (token, subject) = (write.token(), write.subject());
        match write {
            PendingWrite::Record(judged) => {
                let line = format!("{subject}: {}; stored for later", error.for_log());
                self.log_about(token, Level::Warn, line);
                self.writes.push(PendingWrite::Keep(judged));
            }
            _ if is_last => {
                self.leases.remove(&token);
                self.leave_to_lease(token, &subject, error);
                self.failure.get_or_insert_with(|| anyhow!("{error}"));
            }
            again => self.writes.send_again(again, self.now + RESULT_PAUSE),
        }
    }

    /// Logs that runs of limited definitions are left out. Warns once, because cron mails warnings.
    fn log_limited(&mut self) {
        let is_known = std::mem::replace(&mut self.has_logged_limited, true);
        let level = if is_known { Level::Debug } else { Level::Warn };
        let limit = duration::show(self.timing.timeouts.statement);
        let pause = duration::show(LIMITED_PAUSE);
        let line = format!(
            "claiming runs of jobs with limits took longer than {limit}; for {pause} at a time, \
             this tick claims only runs of other jobs"
        );
        self.log(level, line);
    }

    fn observe_answer(&mut self, sent: Instant) {
        self.claims.prefetch.observe_answer(self.now - sent);
        self.batching_until = self.now + self.claims.prefetch.window();
    }

    /// Hands claimed runs to the pool. The claim was sent at `sent`.
    fn start(&mut self, mut claimed: Vec<Claimed>, sent: Instant) {
        let mut tasks = Vec::with_capacity(claimed.len());
        // A last attempt must start at once: if the worker crashed before, the run would be dead
        // without a start. There are no more of them than free threads.
        claimed.sort_by_key(|run| run.attempt < run.max_attempts);
        for run in claimed {
            for earlier in self.leases.add(run.token(), self.now, sent + self.timing.lease) {
                self.instructions.push(Instruction::Stop(earlier, StopReason::LeaseLost));
            }
            let stopped = run.cancel_asked.then_some(StopReason::Cancelled);
            // The database measured this time after the request was sent.
            let start_by = run.expires_in.map(|left| sent + left);
            tasks.push(Task { run, until: sent + self.timing.stop_after, start_by, stopped });
        }
        if !tasks.is_empty() {
            // The driver hands them to the pool after this call.
            self.pool.waiting += tasks.len();
            self.pool.oldest.get_or_insert(self.now);
            self.instructions.push(Instruction::Start(tasks));
        }
    }

    fn ended(&mut self, ended: Ended) {
        self.last_ended = self.now;
        match ended {
            Ended::Judged(judged) => {
                let took = judged.finished - judged.started;
                self.claims.prefetch.observe(took, judged.run.bytes());
                self.writes.push(PendingWrite::Record(judged));
                self.claims.claim_soon(self.now);
            }
            Ended::Unstarted(run) => self.unstarted(&run),
            Ended::Exhausted(run, why) => {
                // Once, because cron mails the log.
                if !std::mem::replace(&mut self.has_logged_exhausted, true) {
                    let line = format!("{}: {why}; claim released", subject(&run));
                    self.log_about(run.token(), Level::Warn, line);
                }
                self.claims.pause(self.now);
                self.unstarted(&run);
            }
        }
    }

    fn unstarted(&mut self, run: &Claimed) {
        self.claims.unstarted();
        self.writes.push(PendingWrite::Release(run.token()));
    }

    /// Releases claims that were sent at `sent` and not started.
    fn release(&mut self, claims: impl IntoIterator<Item = FencingToken>, sent: Instant) {
        for claim in claims {
            self.leases.add(claim, self.now, sent + self.timing.lease);
            self.writes.push(PendingWrite::Release(claim));
        }
    }

    fn connected(&mut self) {
        self.link.connected();
        self.next_renewal = self.now;
        // The leases come first.
        self.renewals_without_output = self.renewals_without_output.min(0);
        // Runs may have been released meanwhile.
        self.claims.claim_soon(self.now);
    }

    /// Decides after an error of the database whether to try again, to drain, or to end.
    fn on_error(&mut self, error: store::Error) {
        if self.phase == Phase::Leaving {
            self.claims.right_lost();
            self.may_prune = false;
            if error.kind == Kind::Lost {
                self.link.lost(self.now, error.into());
            } else {
                self.failure.get_or_insert(error.into());
            }
            return;
        }
        if error.kind == Kind::Lost {
            if self.link.has_answered() && self.reconnects() {
                let running = self.pool.running;
                let line = format!("{}; {running} running, reconnecting", error.for_log());
                self.log(Level::Warn, line);
            }
            return self.disconnected(error.into());
        }
        self.link.rejected(self.now, self.timing.heartbeat);
        let holds = !self.leases.is_empty();
        let lasts = self.link.rejected_for(self.now) >= self.timing.stop_after;
        // The schema was migrated, or no run can be claimed. Leases and results are not affected.
        let rejects_claims = error.kind == Kind::Data || error.exit == Exit::Schema;
        let may_pass = match error.kind {
            Kind::Busy => holds || self.lingers(),
            // Jobs continue as in an outage, until their leases are about to end.
            _ => holds && self.phase != Phase::Ending && !lasts,
        };
        if rejects_claims && holds && self.phase == Phase::Working {
            self.log(Level::Warn, format!("{error}; {} running", self.pool.running));
            self.failure.get_or_insert(error.into());
            self.turn(PhaseEnd::Spent);
        } else if may_pass {
            self.warn(&error);
            self.link.unavailable(error.into());
        } else {
            self.fail(error.into());
        }
    }

    fn warn(&mut self, error: &store::Error) {
        if self.link.warns(self.now, error) {
            self.log(Level::Warn, format!("{}; jobctl keeps trying", error.for_log()));
        }
        self.log(Level::Debug, error.to_string());
    }

    /// Reacts to a lost or refused connection. Jobs continue until their leases are about to end.
    fn disconnected(&mut self, error: anyhow::Error) {
        (self.search, self.wakes_again) = (Search::None, false);
        self.claims.right_lost();
        let pause = self.link.lost(self.now, error);
        if self.reconnects() {
            self.instructions.push(Instruction::Connect(pause));
        } else {
            self.turn(PhaseEnd::Failure);
        }
    }

    /// Whether to connect again: while the tick holds claims, or lingers. A lingering tick exits
    /// once a session ends without an answer, and cron starts the next tick.
    fn reconnects(&self) -> bool {
        !self.leases.is_empty() || self.lingers() && self.link.has_answered()
    }

    fn lingers(&self) -> bool {
        self.bounds.linger && self.phase == Phase::Working
    }

    /// Drops results and claims whose lease ended long ago. Until then the write may still succeed:
    /// while the database is down, no other tick can recover the run. If one did, the claim's token
    /// no longer matches, and the write does not change the run. Over a connection, a result is
    /// kept while the tick works, because it belongs to the history.
    fn drop_expired(&mut self) {
        let keeps_results = self.link.is_up() && self.phase == Phase::Working;
        let over = self.now.checked_sub(self.timing.result_kept);
        self.drop_writes(|write, lease| {
            (!keeps_results || write.released().is_some())
                && lease.is_none_or(|lease| Some(lease.expires()) <= over)
        });
    }

    /// Drops these writes, and logs what becomes of their claims.
    fn drop_writes(&mut self, is_over: impl Fn(&PendingWrite, Option<&Lease>) -> bool) {
        let leases = &self.leases;
        let is_over = |write: &PendingWrite| is_over(write, leases.get(&write.token()));
        for write in self.writes.drop_if(is_over) {
            self.leases.remove(&write.token());
            let outcome = self.writes.outcome(&write);
            self.leave_to_lease(write.token(), &write.subject(), &outcome);
        }
    }

    /// Reacts to a signal. After the first one running jobs may finish within the grace period.
    /// Another one kills them.
    fn signal(&mut self) {
        let is_another = self.phase.is_stopping();
        self.has_signal = true;
        self.turn(PhaseEnd::Signal);
        if is_another {
            self.instructions.push(Instruction::Hurry);
        }
    }

    fn fail(&mut self, error: anyhow::Error) {
        self.failure.get_or_insert(error);
        self.turn(PhaseEnd::Failure);
    }

    /// Goes to the next phase, if this ends the present one.
    fn turn(&mut self, end: PhaseEnd) {
        let before = self.phase;
        self.phase = before.after(end);
        if self.phase == before {
            return;
        }
        self.phase_ends = None;
        match self.phase {
            Phase::Working | Phase::Draining => {}
            Phase::Stopping => {
                let (running, grace) = (self.pool.running, self.bounds.grace);
                let mut line =
                    format!("stopping: {running} running, grace {}", duration::show(grace));
                if running > 0 {
                    line += "; a second signal ends them now";
                }
                self.log(Level::Info, line);
                self.phase_ends = Some(self.now + grace);
            }
            Phase::Ending => {
                let claims: Vec<_> = self.leases.tokens().collect();
                let stop = |claim| Instruction::Stop(claim, StopReason::Interrupted);
                self.instructions.extend(claims.into_iter().map(stop));
                let sent = self.sent.iter().flat_map(|sent| &sent.writes);
                let releases = sent.filter(|write| write.released().is_some()).count();
                let holds = self.leases.held() > releases + self.writes.releases();
                let timeout = if holds { END_TIMEOUT } else { IDLE_END_TIMEOUT };
                self.phase_ends = Some(self.now + timeout);
            }
            Phase::Leaving => {
                self.may_prune &= !before.is_stopping() && self.failure.is_none();
                // Only a tick that was asked to stop has little time.
                self.phase_ends = before.is_stopping().then(|| self.now + IDLE_END_TIMEOUT);
            }
            Phase::Done => self.exit(),
        }
    }

    fn exit(&mut self) {
        let held = self.leases.held();
        self.drop_writes(|_, _| true);
        for claim in self.leases.tokens().collect::<Vec<_>>() {
            let subject = format!("run {}", claim.id);
            self.leave_to_lease(claim, &subject, &"not released at the exit");
        }
        // After a signal the tick does not wait for a slow answer. Only what it holds matters.
        let lost = self.link.take_unavailable().filter(|_| !self.has_signal);
        let result = match self.failure.take().or(lost) {
            Some(failure) => Err(failure),
            None if held == 0 => Ok(()),
            None => {
                let runs = plural::of(held as i64, "run");
                Err(anyhow!("cannot release {runs} in time; see the log"))
            }
        };
        self.instructions.push(Instruction::Exit(result));
    }

    /// Whether nothing is left to do in this phase.
    fn is_idle(&self) -> bool {
        let is_free = self.leases.is_empty();
        match self.phase {
            Phase::Working => {
                let wakes = self.is_searching() || self.wakes_again;
                is_free && self.link.is_up() && self.claims.is_idle() && !wakes
            }
            Phase::Draining | Phase::Stopping | Phase::Ending => is_free,
            Phase::Leaving => {
                let has_duty = self.claims.has_right() || self.link.is_slow() || self.may_prune;
                !self.link.is_up() || !has_duty
            }
            Phase::Done => false,
        }
    }

    /// Logs that this tick can do no more for a run, and why.
    fn leave_to_lease(&mut self, claim: FencingToken, subject: &str, why: &dyn Display) {
        let line = format!("{subject}: {why}; another tick recovers it after its lease");
        self.log_about(claim, Level::Error, line);
    }

    fn log_about(&mut self, claim: FencingToken, level: Level, line: String) {
        self.instructions.push(Instruction::Log(level, line, Some(claim)));
    }

    fn log(&mut self, level: Level, line: String) {
        self.instructions.push(Instruction::Log(level, line, None));
    }
}

#[cfg(test)]
pub(super) mod tests;
