//! A simulated host: its clock, and its ticks. A tick is the real `Driver` with the real `Machine`
//! and a simulated pool, which does what src/execute/pool.rs does. src/execute/ is a job that ends,
//! exits some time after SIGTERM, or waits for SIGKILL.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::super::driver::Driver;
use super::super::request::{Answer, Request};
use super::super::timing::Timing;
use super::Time;
use super::database::Session;
use crate::execute::{PoolState, WakeWhen};
use crate::job::attempt::StopReason;
use crate::store::{self, Claimed, FencingToken};
use crate::tick::execution::{Ended, Task};

/// src/execute/shell.rs has the same times.
const KILL_GRACE: Duration = Duration::from_secs(5);
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// With more output in results that are not recorded, no job starts.
const BYTES_UNRECORDED: usize = 4 * 1024 * 1024;

/// A monotonic clock: it drifts, but never jumps. `Instant` stands still while a virtual machine is
/// suspended, and goes on while a process is stopped.
pub(super) struct Clock {
    pub(super) base: Instant,
    at: Time,
    reading: f64,
    rate: f64,
}

impl Clock {
    pub(super) fn new(base: Instant, rate: f64) -> Self {
        Self { base, at: 0, reading: 0.0, rate }
    }

    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "days")]
    #[expect(clippy::cast_sign_loss, reason = "the clock never goes back")]
    pub(super) fn read(&self, now: Time) -> Instant {
        let reading = self.reading + now.saturating_sub(self.at) as f64 * self.rate;
        self.base + Duration::from_nanos(reading as u64)
    }

    /// Returns the first time at which the clock shows `instant` or later.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "days")]
    #[expect(clippy::cast_sign_loss, reason = "not before the start")]
    pub(super) fn when(&self, instant: Instant) -> Time {
        let reading = instant.saturating_duration_since(self.base).as_nanos() as f64;
        self.at + ((reading - self.reading).max(0.0) / self.rate).ceil() as u64 + 1
    }

    /// Goes on from `now` at another rate, as if it had stood still since `stopped`.
    pub(super) fn set(&mut self, stopped: Time, now: Time, rate: f64) {
        self.reading = (self.read(stopped) - self.base).as_nanos() as f64;
        (self.at, self.rate) = (now, rate);
    }
}

pub(super) struct Host {
    pub(super) worker: String,
    pub(super) clock: Clock,
    pub(super) concurrency: usize,
    pub(super) linger: bool,
    pub(super) period: Time,
    pub(super) grace: Duration,
    pub(super) limit: usize,
    /// Until when the host is paused, and since when its clock stands still.
    pub(super) paused: Option<(Time, Option<Time>)>,
    /// The end of the latest pause.
    pub(super) resumed: Time,
    /// No packet passes before this time.
    pub(super) cut_until: Time,
    /// The most threads that the system grants.
    pub(super) threads: usize,
    /// Its ticks that crashed.
    pub(super) dead: BTreeSet<String>,
}

impl Host {
    /// How long its ticks claim.
    pub(super) fn max_time(&self) -> Duration {
        Duration::from_nanos(self.period) * 9 / 10
    }
}

/// How a job ends if nothing stops it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum JobOutcome {
    Succeeds,
    Fails,
    FailsPermanently,
    AsksForLater,
    /// The host has no memory for it.
    CannotStart,
}

/// What a job does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) takes: Duration,
    pub(super) outcome: JobOutcome,
    /// Bytes.
    pub(super) output: usize,
    /// The time that it needs to exit after SIGTERM.
    pub(super) exits_in: Duration,
    /// How long the processes live that it leaves behind.
    pub(super) leaves: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Working,
    /// It got SIGTERM; `None`: it exceeded its timeout.
    Ending {
        since: Instant,
        why: Option<StopReason>,
    },
    /// Its command has ended, but left processes behind.
    Leftover {
        since: Instant,
        why: Option<Option<StopReason>>,
    },
}

pub(super) struct Execution {
    pub(super) run: Claimed,
    pub(super) job: Job,
    pub(super) started: Instant,
    pub(super) stage: Stage,
    /// When its next event comes.
    pub(super) next: Time,
    /// Whether a look at its output finds something new.
    pub(super) has_new_output: bool,
    /// How often its lease was extended since its output was stored.
    pub(super) extended: usize,
    /// How many jobs had output to store at most since then.
    pub(super) in_turn: usize,
}

impl Execution {
    pub(super) fn prints(&self) -> bool {
        self.job.output > 0
    }

    pub(super) fn has_output(&self) -> bool {
        self.prints() && self.has_new_output
    }
}

#[derive(Clone, Copy)]
pub(super) struct Stop {
    pub(super) asked: Option<StopReason>,
    pub(super) is_hurried: bool,
    pub(super) until: Instant,
    pub(super) start_by: Option<Instant>,
}

impl Stop {
    fn why(self, now: Instant) -> Option<StopReason> {
        self.asked.or_else(|| (now >= self.until).then_some(StopReason::LeaseLost))
    }
}

/// What follows for an execution.
pub(super) enum Next {
    At(Instant),
    /// It ended; `Some`: by a stop, or by its timeout.
    Ended(Option<Option<StopReason>>),
}

pub(super) struct Pool {
    pub(super) size: usize,
    pub(super) threads: usize,
    /// The tasks that wait for a thread, and since when.
    pub(super) waiting: VecDeque<(Task, Instant)>,
    pub(super) running: BTreeMap<FencingToken, Execution>,
    pub(super) stops: BTreeMap<FencingToken, Stop>,
    pub(super) ended: Vec<Ended>,
    pub(super) bytes: usize,
    pub(super) unrecorded: usize,
    pub(super) wake_when: WakeWhen,
    /// Leases that a defect extends late.
    pub(super) late: Vec<(Vec<FencingToken>, Instant)>,
    /// How many extensions of leases must come before output is stored.
    pub(super) pauses_output: usize,
    lost_grace: Duration,
}

impl Pool {
    pub(super) fn new(size: usize, lost_grace: Duration) -> Self {
        Self {
            size,
            threads: 0,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            stops: BTreeMap::new(),
            ended: Vec::new(),
            bytes: 0,
            unrecorded: 0,
            wake_when: WakeWhen::Never,
            late: Vec::new(),
            pauses_output: 0,
            lost_grace,
        }
    }

    pub(super) fn state(&self) -> PoolState {
        PoolState {
            size: self.size,
            running: self.running.len(),
            waiting: self.waiting.len(),
            oldest: self.waiting.front().map(|(_, submitted)| *submitted),
        }
    }

    /// Returns the next task if a thread is free, and why it must not start.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Task, Option<StopReason>)> {
        let is_full = self.bytes + self.unrecorded > BYTES_UNRECORDED;
        if is_full || self.running.len() >= self.threads {
            return None;
        }
        let (task, _) = self.waiting.pop_front()?;
        let stop = self.stops[&task.run.token()];
        // A task that must stop, and a task that is too late, are both released.
        let is_too_late = stop.start_by.is_some_and(|start_by| now >= start_by);
        let why = stop.why(now).or(is_too_late.then_some(StopReason::Interrupted));
        Some((task, why))
    }

    /// Returns whether the driver must wake now, as it has asked. Then that request is over.
    pub(super) fn wakes(&mut self) -> bool {
        let wakes = match self.wake_when {
            WakeWhen::Never => false,
            WakeWhen::Shortage { waiting, ended, bytes } => {
                self.waiting.len() <= waiting || self.ended.len() >= ended || self.bytes >= bytes
            }
            WakeWhen::Ended => !self.ended.is_empty(),
        };
        if wakes {
            self.wake_when = WakeWhen::Never;
        }
        wakes
    }

    /// Lets jobs go on until `until`, unless they have to end before.
    pub(super) fn extend(&mut self, claims: &[FencingToken], until: Instant, now: Instant) {
        for claim in claims {
            if let Some(stop) = self.stops.get_mut(claim).filter(|stop| now < stop.until) {
                stop.until = until;
            }
        }
    }

    /// Counts an extension of these leases. Returns a job whose output was not stored after so many
    /// extensions that each job has had its turn.
    pub(super) fn await_output(&mut self, claims: &[FencingToken]) -> Option<FencingToken> {
        self.pauses_output = self.pauses_output.saturating_sub(1);
        // The results of jobs that were interrupted have their output, and come soon.
        if self.stops.values().any(|stop| stop.asked == Some(StopReason::Interrupted)) {
            return None;
        }
        let printing = self.running.values().filter(|execution| execution.prints()).count();
        let mut late = None;
        for claim in claims {
            if let Some(execution) = self.running.get_mut(claim).filter(|it| it.prints()) {
                execution.extended += 1;
                execution.in_turn = execution.in_turn.max(printing);
                late = late.or((execution.extended > execution.in_turn + 3).then_some(*claim));
            }
        }
        late
    }

    /// The output of these jobs was sent, and stored except that of `left`.
    pub(super) fn sent_output(
        &mut self,
        sent: &[FencingToken],
        left: &store::Result<BTreeSet<i64>>,
    ) {
        self.pauses_output = if left.is_ok() { 0 } else { 2 };
        for (claim, execution) in &mut self.running {
            if left.is_err() || sent.contains(claim) {
                (execution.extended, execution.in_turn) = (0, 0);
            }
            let is_stored = left.as_ref().is_ok_and(|left| !left.contains(&claim.id));
            execution.has_new_output |= is_stored && sent.contains(claim);
        }
    }

    pub(super) fn stage(&self, claim: &FencingToken) -> Option<Stage> {
        self.running.get(claim).map(|execution| execution.stage)
    }

    /// Lets an execution go on until `now`.
    pub(super) fn advance(&mut self, claim: &FencingToken, now: Instant) -> Option<Next> {
        let execution = self.running.get_mut(claim)?;
        let stop = self.stops[claim];
        let (job, started) = (execution.job, execution.started);
        let grace = |usual: Duration| match stop {
            Stop { is_hurried: true, .. } => Duration::ZERO,
            Stop { asked: Some(StopReason::LeaseLost), .. } => usual.min(self.lost_grace),
            Stop { until, .. } if now >= until => usual.min(self.lost_grace),
            _ => usual,
        };
        // The grace may become shorter at the end of the lease.
        let until = |end: Instant| if now < stop.until { end.min(stop.until) } else { end };
        loop {
            let leave = |why| Stage::Leftover { since: now, why };
            match execution.stage {
                Stage::Working => {
                    let ends = started + job.takes;
                    let timeout = execution.run.timeout.map(|limit| started + limit);
                    let is_late = timeout.is_some_and(|at| now >= at);
                    execution.stage = match stop.why(now) {
                        _ if now >= ends => leave(None),
                        Some(why) => Stage::Ending { since: now, why: Some(why) },
                        None if is_late => Stage::Ending { since: now, why: None },
                        None => {
                            let next = ends.min(stop.until);
                            return Some(Next::At(timeout.map_or(next, |at| at.min(next))));
                        }
                    };
                }
                Stage::Ending { since, why } => {
                    let ends = since + job.exits_in.min(grace(KILL_GRACE));
                    if now < ends {
                        return Some(Next::At(until(ends)));
                    }
                    execution.stage = leave(Some(why));
                }
                Stage::Leftover { since, why } => {
                    let ends = since + job.leaves.min(grace(LEFTOVER_GRACE));
                    return Some(if now < ends { Next::At(until(ends)) } else { Next::Ended(why) });
                }
            }
        }
    }
}

/// What a tick has done in the current second of simulated time.
#[derive(Default)]
pub(super) struct SecondCounts {
    pub(super) second: Time,
    pub(super) statements: usize,
    pub(super) timers: usize,
    pub(super) ended_jobs: usize,
    pub(super) events: usize,
}

/// A request whose answer is missing.
pub(super) struct Exchange {
    pub(super) number: u64,
    pub(super) request: Request,
    /// When the machine decided to send it: it may be sent later.
    pub(super) decided: Instant,
    pub(super) sent: Instant,
    pub(super) until: Instant,
    /// When the server ends a statement.
    pub(super) limit: Duration,
    /// How long to wait after a signal.
    pub(super) interrupted: Duration,
    /// The claims that exist if the transaction is committed.
    pub(super) made: Vec<FencingToken>,
}

/// What a driver waits for.
pub(super) enum Waits {
    Nothing,
    /// Until this time, or until something wakes it.
    Wake(Option<Instant>),
    Answer,
}

pub(super) struct Tick {
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) host: usize,
    /// `None` while it makes a step.
    pub(super) driver: Option<Driver>,
    pub(super) waits: Waits,
    pub(super) timing: Timing,
    pub(super) pool: Pool,
    pub(super) session: Session,
    /// The server's generation, if there is a connection.
    pub(super) connected: Option<u64>,
    /// Since when it has none, if it has none.
    pub(super) disconnected_at: Time,
    /// The latest attempt to connect, and its result.
    pub(super) connection: u64,
    pub(super) opened: Option<Option<u64>>,
    pub(super) exchange: Option<Exchange>,
    pub(super) answer: Option<Answer>,
    /// When the request of the latest answer was sent.
    pub(super) sent: Instant,
    /// Signals that were not delivered.
    pub(super) signals: usize,
    /// When the first signal came, and how many came.
    pub(super) signalled: Option<(Time, usize)>,
    /// When the machine learned of it.
    pub(super) stopping_since: Option<Time>,
    /// When the machine got the latest event.
    pub(super) observed: Instant,
    /// When it decided to send the latest request that was answered.
    pub(super) decided: Instant,
    pub(super) began: Instant,
    /// An answer was slow, and the log says so.
    pub(super) is_slow: bool,
    pub(super) has_warned: bool,
    /// The latest timer; an older one does nothing.
    pub(super) timer: u64,
    pub(super) is_asleep: bool,
    pub(super) is_woken: bool,
    pub(super) has_exited: bool,
    /// When the answered renewal of a claim was sent.
    pub(super) renewed: BTreeMap<FencingToken, Instant>,
    pub(super) counts: SecondCounts,
}
