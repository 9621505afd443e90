//! A model of the database: the effects of the statements in sql/queries on the tables, as the tick
//! and operators see them. `differential.rs` compares it with PostgreSQL.
//!
//! Each transaction is atomic, and the world decides their order. If a statement would have to wait
//! for a locked row, its transaction fails at once, as after `lock_timeout`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::job::action::{self, JobKind};
use crate::job::attempt::{HOOK_KEY_PREFIX, HistoryOutcome};
use crate::job::backoff::wait_after;
use crate::job::enqueue::{AfterRule, EnqueueResult, KeyScope};
use crate::job::status::{HoldScope, Status};
use crate::schedule::Schedule;
use crate::schedule::due::{self, DueSchedule, FirePlan};
use crate::store::{
    self, Accepted, Bisection, Claim, ClaimFilter, ClaimResult, Claimed, DefinedAction, DueRun,
    Edit, FencingToken, Finish, HoldTarget, Holder, Keep, Kind, LeaseState, NewRun,
    OperationResult, Position, Queued, Recorded, Recovered, Renewed, RetryTerms, StepResult,
    Unlisted,
};
use crate::tick::request::{Answer, Request};
use crate::tick::timing::Timing;
use crate::upkeep::{FailedClaim, Turn, UpkeepState, Wake, Woken};

type Time = DateTime<Utc>;
/// The waiting runs by queue and priority, the oldest first.
type Lanes<'a> = BTreeMap<(&'a str, i32), Vec<&'a Run>>;
type Random<'a> = &'a mut dyn FnMut() -> f64;

/// A row of `job_runs`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Run {
    pub(super) id: i64,
    pub(super) definition_id: Option<i64>,
    pub(super) job_type: String,
    pub(super) payload: String,
    pub(super) queue: String,
    pub(super) priority: i32,
    pub(super) run_at: Time,
    #[serde(serialize_with = "word")]
    pub(super) status: Status,
    pub(super) attempts: i32,
    pub(super) max_attempts: i32,
    pub(super) uncounted_attempts: i32,
    pub(super) snoozed_attempts: i32,
    pub(super) granted_attempts: Option<i32>,
    /// Seconds.
    pub(super) timeout: Option<f64>,
    pub(super) backoff: String,
    #[serde(rename = "idempotency_key")]
    pub(super) key: Option<String>,
    pub(super) key_scope: KeyScope,
    pub(super) scheduled_for: Option<Time>,
    pub(super) expires_at: Option<Time>,
    pub(super) share: Option<String>,
    pub(super) locked_by: Option<String>,
    pub(super) locked_until: Option<Time>,
    pub(super) cancel_requested_at: Option<Time>,
    pub(super) last_error: Option<String>,
    pub(super) error_type: Option<String>,
    pub(super) failed_at: Option<Time>,
    pub(super) started_at: Option<Time>,
    pub(super) finished_at: Option<Time>,
    pub(super) updated_at: Time,
}

impl Run {
    /// Runs without a share are one share together.
    pub(super) fn share(&self) -> &str {
        self.share.as_deref().unwrap_or_default()
    }

    /// How often it may start.
    pub(super) fn most_attempts(&self) -> i32 {
        self.max_attempts + self.uncounted_attempts
    }

    fn is_expired(&self, now: Time) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// A row of `job_attempts`, without its output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Attempt {
    pub(super) worker: String,
    pub(super) started_at: Time,
    pub(super) finished_at: Time,
    pub(super) outcome: String,
    pub(super) error_type: Option<String>,
    pub(super) error: Option<String>,
}

/// The columns of `job_definitions` that come from the file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) kind: JobKind,
    pub(super) action: Value,
    pub(super) payload: Value,
    pub(super) schedule: Option<String>,
    pub(super) time_zone: String,
    pub(super) catch_up: String,
    pub(super) overlap: String,
    pub(super) max_running: Option<i32>,
    pub(super) rate: Option<String>,
    pub(super) burst: Option<i32>,
    pub(super) max_running_per_share: Option<i32>,
    pub(super) max_waiting: Option<i32>,
    pub(super) when_full: String,
    pub(super) snooze: String,
    pub(super) pass_result: bool,
    pub(super) max_attempts: i32,
    pub(super) timeout: Option<f64>,
    pub(super) max_age: Option<f64>,
    pub(super) max_lag: Option<f64>,
    pub(super) alert_after: i32,
    pub(super) usual: Option<String>,
    pub(super) expires: Option<f64>,
    pub(super) keep: Option<f64>,
    pub(super) keep_dead: Option<f64>,
    pub(super) backoff: String,
    pub(super) priority: i32,
    pub(super) queue: String,
    pub(super) spread: f64,
    pub(super) on_dead: Option<String>,
    pub(super) on_success: Option<String>,
    pub(super) on_end: Option<String>,
    pub(super) file: String,
    pub(super) enqueuers: Option<Vec<String>>,
    pub(super) enqueue_may_set: Vec<String>,
    pub(super) enabled: bool,
}

impl Spec {
    /// Returns the hooks of a run that has ended so: their keys and jobs, in the order of the keys.
    fn hooks(&self, status: Status) -> impl Iterator<Item = (&'static str, &String)> {
        let keys = [
            ("on_dead", &self.on_dead, status == Status::Dead),
            ("on_end", &self.on_end, true),
            ("on_success", &self.on_success, status == Status::Succeeded),
        ];
        keys.into_iter().filter(|key| key.2).filter_map(|(key, job, _)| Some((key, job.as_ref()?)))
    }

    fn has_hook(&self, job: &str) -> bool {
        [&self.on_dead, &self.on_success, &self.on_end].iter().any(|it| it.as_deref() == Some(job))
    }
}

/// Returns the first time of a schedule after `now`.
pub(super) fn first_fire(schedule: &str, time_zone: &str, now: Time) -> Option<Time> {
    Schedule::parse(schedule, time_zone).and_then(|schedule| schedule.first(now)).ok()
}

/// A row of `job_definitions`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Definition {
    pub(super) id: i64,
    #[serde(flatten)]
    pub(super) spec: Spec,
    pub(super) paused_at: Option<Time>,
    pub(super) next_run_at: Option<Time>,
    pub(super) put_off_until: Option<Time>,
    pub(super) rate_next_at: Option<Time>,
    pub(super) last_share: Option<String>,
    pub(super) skipped_fires: i64,
}

/// A row of `job_workers`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Worker {
    pub(super) last_tick_at: Time,
    pub(super) ticking_since: Time,
    pub(super) queues: Vec<String>,
    /// The tick that has the claim right, and until when.
    pub(super) claiming: Option<(String, Time)>,
}

/// A row of `job_holds`.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) target: HoldTarget,
    pub(super) until: Option<Time>,
    pub(super) run: Option<i64>,
}

impl Hold {
    fn is_of(&self, scope: HoldScope, name: &str) -> bool {
        self.target.scope == scope && self.target.name == name
    }
}

/// A row of `job_dependencies`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Dependency {
    pub(super) rule: AfterRule,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Open,
    Stuck,
    Due,
    Met,
}

/// A row of `job_locked_runs`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Kept {
    #[serde(skip)]
    pub(super) claim: FencingToken,
    pub(super) worker: String,
    pub(super) locked_until: Time,
    pub(super) result: Option<Finish>,
    pub(super) written_at: Time,
}

impl Kept {
    /// Whether the run of this claim is not recovered.
    fn lasts(&self, now: Time) -> bool {
        self.locked_until > now || self.result.is_some()
    }
}

/// What ends an attempt or a run, as the arguments of jobctl.end_runs.
struct End {
    status: Status,
    wait: Duration,
    outcome: Option<HistoryOutcome>,
    error_type: Option<String>,
    error: Option<String>,
    /// Whether an attempt ends that was started.
    is_attempt: bool,
}

impl End {
    /// The end of a run that no attempt ends.
    fn of(status: Status, error_type: Option<&str>, error: Option<&str>) -> Self {
        let [error_type, error] = [error_type, error].map(|it| it.map(str::to_owned));
        Self { status, wait: Duration::ZERO, outcome: None, error_type, error, is_attempt: false }
    }
}

/// A kind of write to a run, which a trigger may reject.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Write {
    Claim,
    Renewal,
    /// The run does not run afterwards: a result, a recovery, a release, a forced retry.
    Result,
    /// The run did not run before and does not run afterwards.
    Other,
}

/// Why a transaction fails.
#[derive(Debug)]
pub(super) enum Cause {
    Refused,
    Locked,
}

type Result<T> = std::result::Result<T, Cause>;

/// A row before a transaction changed it; `None`: it did not exist.
#[derive(Clone, Debug)]
enum Before {
    Run(i64, Option<Run>),
    Attempt((i64, i32), Option<Attempt>),
    Worker(String, Option<Worker>),
    Definition(String, Option<Box<Definition>>),
    Kept(i64, Option<Kept>),
    Holds(Vec<Hold>),
    Dependencies(Dependencies),
}

/// By predecessor and follower.
type Dependencies = BTreeMap<(i64, i64), Dependency>;

/// A tick's session, and the parts of its plan that the database sees.
pub(super) struct Session {
    pub(super) holder: Holder,
    pub(super) filter: ClaimFilter,
    pub(super) timing: Timing,
    pub(super) keep: Option<Keep>,
    /// Ticks of this host that have crashed.
    pub(super) dead: BTreeSet<String>,
    /// The host's time when the request is sent.
    pub(super) now: Instant,
    state: UpkeepState,
    followed: Vec<i64>,
    undecided: usize,
    search: Option<(Bisection<DueRun>, Option<store::Error>)>,
}

impl Session {
    pub(super) fn new(holder: Holder, filter: ClaimFilter, timing: Timing, now: Instant) -> Self {
        let dead = BTreeSet::new();
        let state = UpkeepState::default();
        let (followed, undecided) = (Vec::new(), 0);
        Self {
            holder,
            filter,
            timing,
            keep: None,
            dead,
            now,
            state,
            followed,
            undecided,
            search: None,
        }
    }

    /// Whether the next request decides about runs that wait for ended ones.
    pub(super) fn follows(&self) -> bool {
        !self.followed.is_empty()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Database {
    /// The database's clock.
    pub(super) now: Time,
    pub(super) runs: BTreeMap<i64, Run>,
    pub(super) attempts: BTreeMap<(i64, i32), Attempt>,
    pub(super) definitions: BTreeMap<String, Definition>,
    pub(super) workers: BTreeMap<String, Worker>,
    pub(super) kept: BTreeMap<i64, Kept>,
    /// The holds by scope and name, until when.
    pub(super) holds: Vec<Hold>,
    pub(super) dependencies: Dependencies,
    /// Rows that another session has locked for deletion: runs, definitions and workers.
    pub(super) locked: BTreeSet<i64>,
    pub(super) locked_definitions: BTreeSet<String>,
    pub(super) locked_workers: BTreeSet<String>,
    /// Writes that a trigger rejects.
    pub(super) refused: BTreeSet<(i64, Write)>,
    /// Jobs whose new runs a trigger rejects.
    pub(super) refused_jobs: BTreeSet<String>,
    /// The last ids. A failed transaction uses ids, too.
    pub(super) last_run: i64,
    pub(super) last_definition: i64,
    waiting: BTreeSet<i64>,
    running: BTreeSet<i64>,
    finished: BTreeSet<(Time, i64)>,
    fires: BTreeSet<(i64, Time)>,
    keys: BTreeMap<(String, KeyScope), BTreeSet<i64>>,
    journal: Vec<Before>,
    /// How many transactions were begun.
    pub(super) transactions: u64,
}

fn word<S: Serializer>(status: &Status, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(status.as_str())
}

fn is_waiting(status: Status) -> bool {
    matches!(status, Status::Queued | Status::Failed)
}

/// `make_interval(secs => $1)`.
fn interval(duration: Duration) -> TimeDelta {
    seconds(duration.as_secs_f64())
}

fn seconds(seconds: f64) -> TimeDelta {
    #[expect(clippy::cast_possible_truncation, reason = "PostgreSQL rounds to microseconds")]
    TimeDelta::microseconds((seconds * 1e6).round_ties_even() as i64)
}

/// `extract(epoch FROM $1)`
#[expect(clippy::cast_precision_loss, reason = "years")]
fn as_seconds(time: TimeDelta) -> f64 {
    time.num_microseconds().unwrap_or(i64::MAX) as f64 / 1e6
}

fn is_whole_minute(time: Time) -> bool {
    time.timestamp_micros() % 60_000_000 == 0
}

impl Definition {
    /// How many of its runs may run at once.
    fn most_running(&self) -> Option<i32> {
        let of_overlap = (self.spec.overlap == "queue").then_some(1);
        self.spec.max_running.into_iter().chain(of_overlap).min()
    }

    /// The number of starts that its rate names, and the average time between two of them.
    pub(super) fn rate(&self) -> Option<(i32, TimeDelta)> {
        let (starts, time) = self.spec.rate.as_ref()?.split_once('/')?;
        let starts: i32 = starts.parse().ok()?;
        let (time, unit) = time.split_at(time.len() - 1);
        let unit = [("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)]
            .into_iter()
            .find(|(name, _)| *name == unit)?;
        let time: f64 = time.parse().ok()?;
        Some((starts, seconds(time * unit.1 / f64::from(starts))))
    }

    fn is_limited(&self) -> bool {
        self.most_running().is_some()
            || self.spec.rate.is_some()
            || self.spec.max_running_per_share.is_some()
    }

    /// How many runs its rate lets start now.
    fn allowed(&self, now: Time) -> Option<i64> {
        let (starts, interval) = self.rate()?;
        let ahead = self.rate_next_at.map_or(TimeDelta::zero(), |next| next - now);
        let [ahead, interval] =
            [ahead, interval].map(|time| time.num_microseconds().unwrap_or(i64::MAX).max(0));
        let used = ahead.div_euclid(interval) + i64::from(ahead % interval > 0);
        Some(i64::from(self.spec.burst.unwrap_or(starts)) - used)
    }

    fn most_fires(&self) -> i32 {
        match self.spec.catch_up.split_once(':') {
            Some((_, most)) => most.parse().unwrap_or(1),
            None if self.spec.catch_up == "all" => 100,
            None => 1,
        }
    }

    fn fires(&self, now: Time) -> bool {
        self.spec.enabled
            && self.paused_at.is_none()
            && self.spec.schedule.is_some()
            && self.next_run_at.is_none_or(|next| next <= now)
            && self.put_off_until.is_none_or(|until| until <= now)
    }
}

impl Database {
    pub(super) fn new(now: Time) -> Self {
        Self { now, ..Self::default() }
    }

    /// Performs a request of a tick as `tick::database::Database` does. `random` in 0..1 is the
    /// jitter of recovered runs.
    pub(super) fn perform(
        &mut self,
        session: &mut Session,
        request: &Request,
        random: Random<'_>,
    ) -> Answer {
        let worker = session.holder.worker.clone();
        if matches!(request, Request::Step { .. } | Request::Leave { .. }) {
            self.follow_up(session);
        }
        match request {
            Request::Wake(asked) => {
                let woken = self.wake(session, asked, random);
                Answer::Wake { woken, is_searching: session.search.is_some() }
            }
            Request::Renew { claims, kept } => {
                let lease = session.timing.lease;
                let renew = |it: &mut Self| it.renew(&worker, claims, kept, lease);
                Answer::Renew(self.transact("renew leases", renew))
            }
            Request::Step { results, kept, unstarted, claim, skips_locked } => {
                let (claim, skips) = (claim.as_ref(), *skips_locked);
                let step = |it: &mut Self| it.step(session, results, kept, unstarted, claim, skips);
                // The claims of a lost answer are for the world to add.
                let step =
                    self.transact("record results", step).map_err(|error| (error, Vec::new()));
                Answer::Step(step.map(|(step, followed)| {
                    session.followed.extend(followed);
                    if claim.is_none() {
                        self.follow_up(session);
                    }
                    StepResult { follows: !session.followed.is_empty(), ..step }
                }))
            }
            Request::Store(outputs) => {
                let stored = |it: &mut Self| {
                    let mut left: BTreeSet<_> = outputs.iter().map(|(claim, _)| claim.id).collect();
                    for (claim, _) in outputs {
                        if it.held(&worker, claim).is_some() && !it.is_locked(claim.id) {
                            left.remove(&claim.id);
                        }
                    }
                    Ok(left)
                };
                Answer::Store(self.transact("store output", stored))
            }
            Request::Leave { .. } => Answer::Leave(self.leave(&worker, &session.holder.tick)),
            Request::Prune => {
                if let Some(keep) = session.keep {
                    self.prune(keep, 1000);
                }
                Answer::Prune
            }
        }
    }

    /// Runs a transaction: all of it or nothing.
    fn transact<T>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> store::Result<T> {
        self.journal.clear();
        self.transactions += 1;
        work(self).map_err(|cause| {
            while let Some(before) = self.journal.pop() {
                match before {
                    Before::Run(id, run) => drop(self.set(id, run)),
                    Before::Attempt(id, row) => restore(&mut self.attempts, id, row),
                    Before::Worker(name, row) => restore(&mut self.workers, name, row),
                    Before::Definition(name, row) => {
                        restore(&mut self.definitions, name, row.map(|row| *row));
                    }
                    Before::Kept(id, row) => restore(&mut self.kept, id, row),
                    Before::Holds(holds) => self.holds = holds,
                    Before::Dependencies(rows) => self.dependencies = rows,
                }
            }
            let (kind, exit, why) = match cause {
                Cause::Refused => (Kind::Data, Exit::CouldNot, "refused"),
                Cause::Locked => (Kind::Busy, Exit::Unavailable, "locked"),
            };
            store::Error::new(kind, exit, format!("cannot {doing}: {why}"))
        })
    }

    /// Sets a row of `job_runs` and its indexes. Returns the row before.
    pub(super) fn set(&mut self, id: i64, run: Option<Run>) -> Option<Run> {
        let before = self.runs.remove(&id);
        self.waiting.remove(&id);
        self.running.remove(&id);
        if let Some(run) = &before {
            run.finished_at.map(|at| self.finished.remove(&(at, id)));
            run.definition_id.zip(run.scheduled_for).map(|fire| self.fires.remove(&fire));
        }
        if let Some(run) = run {
            if is_waiting(run.status) {
                self.waiting.insert(id);
            } else if run.status == Status::Running {
                self.running.insert(id);
            }
            run.finished_at.map(|at| self.finished.insert((at, id)));
            run.definition_id.zip(run.scheduled_for).map(|fire| self.fires.insert(fire));
            if let Some(key) = &run.key {
                let key = (key.clone(), run.key_scope);
                self.keys.entry(key).or_default().insert(id);
            }
            self.runs.insert(id, run);
        }
        before
    }

    /// Writes a run, unless a trigger rejects that.
    fn write(&mut self, run: Run) -> Result<()> {
        let id = run.id;
        if let Some(before) = self.runs.get(&id) {
            let is_running = [before.status, run.status].map(|status| status == Status::Running);
            let write = match is_running {
                [false, true] => Write::Claim,
                [true, true] => Write::Renewal,
                [true, false] => Write::Result,
                [false, false] => Write::Other,
            };
            if self.refused.contains(&(id, write)) {
                return Err(Cause::Refused);
            }
        }
        let before = self.set(id, Some(run));
        self.journal.push(Before::Run(id, before));
        Ok(())
    }

    /// Adds to the history, unless it has the attempt already.
    fn note(&mut self, id: (i64, i32), attempt: Attempt) {
        if let Entry::Vacant(vacant) = self.attempts.entry(id) {
            vacant.insert(attempt);
            self.journal.push(Before::Attempt(id, None));
        }
    }

    fn write_definition(&mut self, definition: Definition) -> Result<()> {
        let name = definition.spec.name.clone();
        if self.locked_definitions.contains(&name) {
            return Err(Cause::Locked);
        }
        let before = self.definitions.insert(name.clone(), definition);
        self.journal.push(Before::Definition(name, before.map(Box::new)));
        Ok(())
    }

    fn write_worker(&mut self, name: &str, worker: Worker) -> Result<()> {
        if self.locked_workers.contains(name) {
            return Err(Cause::Locked);
        }
        let before = self.workers.insert(name.to_owned(), worker);
        self.journal.push(Before::Worker(name.to_owned(), before));
        Ok(())
    }

    fn is_locked(&self, id: i64) -> bool {
        self.locked.contains(&id) && self.runs.contains_key(&id)
    }

    fn waiting(&self) -> impl Iterator<Item = &Run> {
        self.waiting.iter().map(|id| &self.runs[id])
    }

    fn running(&self) -> impl Iterator<Item = &Run> {
        self.running.iter().map(|id| &self.runs[id])
    }

    /// Returns the kept lease or result of a running run's claim.
    pub(super) fn kept(&self, run: &Run) -> Option<&Kept> {
        self.kept.get(&run.id).filter(|kept| self.held(&kept.worker, &kept.claim) == Some(run))
    }

    /// Whether a wake recovers a running run.
    fn is_lost(&self, run: &Run) -> bool {
        run.locked_until < Some(self.now)
            && !self.kept(run).is_some_and(|kept| kept.lasts(self.now))
    }

    /// Whether a worker has the lease of a running run.
    fn has_lease(&self, run: &Run) -> bool {
        run.locked_until > Some(self.now)
            || self.kept(run).is_some_and(|kept| kept.locked_until > self.now)
    }

    /// Returns the run whose lease this claim still has: the fence of every write.
    fn held(&self, worker: &str, claim: &FencingToken) -> Option<&Run> {
        self.runs.get(&claim.id).filter(|run| {
            run.status == Status::Running
                && run.locked_by.as_deref() == Some(worker)
                && run.attempts == claim.attempt
                && run.started_at == Some(claim.claimed_at)
        })
    }
}

fn restore<K: Ord, V>(rows: &mut BTreeMap<K, V>, key: K, row: Option<V>) {
    match row {
        Some(row) => drop(rows.insert(key, row)),
        None => drop(rows.remove(&key)),
    }
}

/// What `wake.sql` returns.
struct Seen {
    claiming_tick: Option<String>,
    locked: bool,
    lost: bool,
    expired: bool,
    fires: bool,
    followers: bool,
    limits: bool,
}

/// The requests of a tick.
impl Database {
    /// As `Upkeep::wake`.
    fn wake(
        &mut self,
        session: &mut Session,
        asked: &Wake,
        random: Random<'_>,
    ) -> store::Result<Woken> {
        let Holder { worker, tick } = &session.holder.clone();
        let has_time = session.now < asked.until;
        if session.filter.only_run.is_some() {
            let limits = self.definitions.values().any(Definition::is_limited);
            self.search_all(session, asked, true)?;
            return Ok(Woken { may_claim: true, limits, ..Woken::default() });
        }
        let report = |it: &mut Self, session: &Session| {
            it.transact("look for due runs", |it| it.report(session, asked))
        };
        let mut seen = report(self, session)?;
        if let Some(dead) = seen.claiming_tick.clone().filter(|it| session.dead.contains(it)) {
            self.leave(worker, &dead)?;
            seen = report(self, session)?;
        }
        let mut state = std::mem::take(&mut session.state);
        let mut turn = Turn::new(None, &mut state);
        let Seen { fires, locked, lost, expired, followers, .. } = seen;
        turn.is_cut = !has_time && (fires || locked || lost || expired || followers);
        if seen.fires && has_time {
            self.fire(&mut turn)?;
        }
        if seen.locked && has_time {
            self.record_stored_results(&mut turn)?;
        }
        if seen.lost && has_time {
            self.recover_all(&mut turn, random)?;
        }
        if seen.expired && has_time {
            self.expire_all(&mut turn)?;
        }
        if (seen.followers || turn.has_changed) && has_time {
            self.release_followers(&mut turn, None)?;
        }
        let (has_changed, has_more) = (turn.has_changed, turn.is_cut);
        session.state = state;
        if has_changed && seen.claiming_tick.is_none() {
            seen = report(self, session)?;
        }
        let may_claim = seen.claiming_tick.as_ref() == Some(tick);
        let mut held_by_others = 0;
        if may_claim {
            let is_held = |run: &&Run| {
                run.locked_by.as_ref() == Some(worker)
                    && self.has_lease(run)
                    && self.kept(run).is_none_or(|kept| kept.result.is_none())
                    && !asked.own_claims.iter().any(|claim| self.held(worker, claim) == Some(*run))
            };
            held_by_others = self.running().filter(is_held).count();
        }
        self.search_all(session, asked, has_time)?;
        let other_claims = !may_claim && seen.claiming_tick.is_some();
        Ok(Woken {
            may_claim,
            other_claims,
            held_by_others,
            limits: may_claim && seen.limits,
            has_more,
            took: Duration::ZERO,
            longest: Duration::ZERO,
        })
    }

    /// As `Upkeep::search_unclaimable`.
    fn search_all(
        &mut self,
        session: &mut Session,
        asked: &Wake,
        has_time: bool,
    ) -> store::Result<()> {
        if let Some(FailedClaim { error, goes_on }) = &asked.failed_claim {
            let error = store::Error::new(error.kind, error.exit, error.to_string());
            let suspects =
                Bisection::of(self.preview(&session.holder.worker, &session.filter, 5000));
            session.search = Some((suspects, (!goes_on).then_some(error)));
        }
        while session.search.is_some() {
            let step = self.search(session);
            session.search.take_if(|(suspects, _)| suspects.is_done());
            step?;
            if !has_time {
                break;
            }
        }
        Ok(())
    }

    /// wake.sql
    fn report(&mut self, session: &Session, asked: &Wake) -> Result<Seen> {
        let (now, Holder { worker, tick }) = (self.now, &session.holder);
        let lost = self.running().any(|run| run.locked_until < Some(now));
        let expired = self.waiting().any(|run| run.is_expired(now));
        let claiming = (asked.keeps_right || !self.waiting.is_empty())
            .then(|| (tick.clone(), now + interval(asked.right)));
        let queues = session.filter.queues.clone();
        let mut row = Worker { last_tick_at: now, ticking_since: now, queues, claiming };
        if let Some(before) = self.workers.get(worker) {
            if before.last_tick_at >= now - TimeDelta::hours(1) {
                row.ticking_since = before.ticking_since;
            }
            let other = |(other, until): &&(String, Time)| other != tick && *until >= now;
            if let Some(other) = before.claiming.as_ref().filter(other) {
                (row.claiming, row.queues) = (Some(other.clone()), before.queues.clone());
            }
        }
        let claiming_tick = row.claiming.as_ref().map(|(tick, _)| tick.clone());
        let locked = !self.kept.is_empty();
        self.write_worker(worker, row)?;
        let fires = self.definitions.values().any(|definition| definition.fires(now));
        let limits = self.definitions.values().any(Definition::is_limited);
        let followers = self.dependencies.values().any(|it| it.state == State::Due);
        Ok(Seen { claiming_tick, locked, lost, expired, fires, followers, limits })
    }

    fn leave(&mut self, worker: &str, tick: &str) -> store::Result<()> {
        self.transact("release the claim right", |it| it.return_right(worker, tick))
    }

    /// leave.sql
    fn return_right(&mut self, worker: &str, tick: &str) -> Result<()> {
        let has_right = |row: &&Worker| row.claiming.as_ref().is_some_and(|(it, _)| it == tick);
        match self.workers.get(worker).filter(has_right) {
            Some(row) => self.write_worker(worker, Worker { claiming: None, ..row.clone() }),
            None => Ok(()),
        }
    }

    /// renew_leases and keep_locked.sql
    fn renew(
        &mut self,
        worker: &str,
        claims: &[FencingToken],
        kept: &[FencingToken],
        lease: Duration,
    ) -> Result<Vec<Renewed>> {
        let mut renewed = Vec::with_capacity(claims.len() + kept.len());
        for claim in claims.iter().chain(kept) {
            let is_kept = kept.contains(claim);
            let state = match self.held(worker, claim) {
                None if is_kept => LeaseState::Busy,
                None => LeaseState::Lost,
                Some(run) if is_kept || self.is_locked(claim.id) => {
                    let is_cancelled = run.cancel_requested_at.is_some();
                    match (self.keep_locked(worker, claim, lease, None), is_cancelled) {
                        (false, _) => LeaseState::Busy,
                        (true, false) => LeaseState::Kept,
                        (true, true) => LeaseState::CancelRequested,
                    }
                }
                Some(run) => {
                    let run = Run { locked_until: Some(self.now + interval(lease)), ..run.clone() };
                    let is_cancelled = run.cancel_requested_at.is_some();
                    self.write(run)?;
                    if is_cancelled { LeaseState::CancelRequested } else { LeaseState::Renewed }
                }
            };
            renewed.push((*claim, state));
        }
        Ok(renewed)
    }

    /// keep_locked.sql: keeps the lease or the result of a locked run. Returns whether it did.
    fn keep_locked(
        &mut self,
        worker: &str,
        claim: &FencingToken,
        lease: Duration,
        result: Option<Finish>,
    ) -> bool {
        let Some(run) = self.held(worker, claim).filter(|run| self.has_lease(run)) else {
            return false;
        };
        if result.is_none() && self.kept(run).is_some_and(|kept| kept.result.is_some()) {
            return false;
        }
        let (now, id, worker) = (self.now, run.id, worker.to_owned());
        let locked_until = now + interval(lease);
        let kept = Kept { claim: *claim, worker, locked_until, result, written_at: now };
        self.journal.push(Before::Kept(id, self.kept.insert(id, kept)));
        true
    }

    /// As `upkeep::record_stored_results`.
    fn record_stored_results(&mut self, turn: &mut Turn) -> store::Result<()> {
        self.transactions += 1;
        let is_settled = |(id, kept): &(&i64, &Kept)| match self.runs.get(id) {
            Some(_) if self.is_locked(**id) => false,
            Some(run) => kept.result.is_some() || self.kept(run).is_none(),
            None => true,
        };
        let settled = self.kept.iter().filter(is_settled).map(|(id, _)| *id);
        for id in settled.collect::<Vec<_>>() {
            let recorded = self.transact("record stored results", |it| {
                let Some(kept) = it.kept.remove(&id) else { return Ok(false) };
                it.journal.push(Before::Kept(id, Some(kept.clone())));
                let Some(mut result) = kept.result else { return Ok(false) };
                result.age(store::seconds(as_seconds(it.now - kept.written_at)));
                it.finish(&kept.worker, &[&result]).map(|_| true)
            });
            match recorded {
                Err(error) if error.may_be_about_rows() => {}
                recorded => turn.has_changed |= recorded?,
            }
        }
        Ok(())
    }

    /// As `Store::finish_and_claim`.
    fn step(
        &mut self,
        session: &Session,
        results: &[Finish],
        kept: &[Finish],
        unstarted: &[FencingToken],
        claim: Option<&Claim>,
        skips_locked: bool,
    ) -> Result<(StepResult, Vec<i64>)> {
        let mut locked: Vec<_> = results.iter().map(|it| it.token.id).collect();
        locked.extend(unstarted.iter().map(|claim| claim.id));
        locked.retain(|id| skips_locked && self.is_locked(*id));
        locked.sort_unstable();
        locked.dedup();
        let free: Vec<_> = results.iter().filter(|it| !locked.contains(&it.token.id)).collect();
        let (mut recorded, mut followed, mut queues_runs) =
            self.finish(&session.holder.worker, &free)?;
        let skipped = results.iter().filter(|it| locked.contains(&it.token.id));
        for result in skipped.chain(kept) {
            let (worker, claim) = (&session.holder.worker, result.token);
            if self.keep_locked(worker, &claim, Duration::ZERO, Some(result.clone())) {
                recorded.insert(claim, result.next_status.status);
            }
        }
        let free: Vec<_> = unstarted.iter().filter(|it| !locked.contains(&it.id)).collect();
        let (of_released, queues) = self.release(&session.holder.worker, &free)?;
        followed.extend(of_released);
        queues_runs |= queues;
        let taken = match claim {
            Some(claim) => self.claim(&session.holder, claim, &session.filter)?,
            None => ClaimResult::default(),
        };
        let claiming = Duration::ZERO;
        let step = StepResult { recorded, queues_runs, locked, taken, claiming, follows: false };
        Ok((step, followed))
    }

    /// The change of a run in jobctl.end_runs. Returns its status and its outcome.
    fn end(&mut self, run: &Run, end: &End) -> Result<(Status, Option<HistoryOutcome>)> {
        if self.is_locked(run.id) {
            return Err(Cause::Locked);
        }
        let now = self.now;
        let mut run = Run { locked_by: None, locked_until: None, updated_at: now, ..run.clone() };
        let is_uncounted = match end.outcome {
            Some(HistoryOutcome::Snoozed) => run.snoozed_attempts < 100,
            Some(HistoryOutcome::Interrupted) => {
                run.uncounted_attempts - run.snoozed_attempts < 100
            }
            _ => false,
        };
        run.status = match end.status {
            Status::Queued | Status::Failed if run.cancel_requested_at.is_some() => {
                Status::Cancelled
            }
            Status::Queued | Status::Failed
                if end.is_attempt && run.attempts >= run.most_attempts() && !is_uncounted =>
            {
                Status::Dead
            }
            status => status,
        };
        if is_waiting(run.status) && end.is_attempt {
            run.run_at = now + interval(end.wait);
        }
        let outcome = match (end.outcome, run.status) {
            (Some(HistoryOutcome::Snoozed), Status::Dead) => Some(HistoryOutcome::Failed),
            (outcome, _) => outcome,
        };
        if matches!(outcome, Some(HistoryOutcome::Failed | HistoryOutcome::LeaseExpired)) {
            run.failed_at = Some(now);
        }
        run.uncounted_attempts += i32::from(is_uncounted);
        run.snoozed_attempts +=
            i32::from(is_uncounted && end.outcome == Some(HistoryOutcome::Snoozed));
        run.last_error = end.error.clone().or(run.last_error);
        run.error_type = end.error_type.clone().or(run.error_type);
        run.finished_at = (!is_waiting(run.status)).then_some(now);
        let status = run.status;
        self.write(run)?;
        Ok((status, outcome))
    }

    /// What follows the end of runs in jobctl.end_runs: returns those that others wait for, and
    /// whether any run may be due.
    fn ended(&mut self, runs: BTreeSet<i64>) -> (Vec<i64>, bool) {
        let followed = self.mark_followers(&runs);
        let queues_runs = self.enqueue_hooks(runs) || !followed.is_empty();
        (followed, queues_runs)
    }

    /// finish.sql, recorded_before.sql and note_lost.sql
    fn finish(&mut self, worker: &str, ended: &[&Finish]) -> Result<(Recorded, Vec<i64>, bool)> {
        let now = self.now;
        let (mut recorded, mut ended_runs) = (Recorded::new(), BTreeSet::new());
        let mut snoozed = Vec::new();
        for result in ended {
            let next = &result.next_status;
            let Some(run) = self.held(worker, &result.token).cloned() else { continue };
            let error_type = next.error_type.map(|it| it.to_string());
            let (status, outcome) = self.end(
                &run,
                &End {
                    status: next.status,
                    wait: next.wait,
                    outcome: Some(next.outcome),
                    error_type: error_type.clone(),
                    error: next.error.clone(),
                    is_attempt: true,
                },
            )?;
            if outcome == Some(HistoryOutcome::Snoozed) && status == Status::Queued {
                snoozed.push(run.id);
            }
            recorded.insert(result.token, status);
            if !is_waiting(status) {
                ended_runs.insert(run.id);
            }
            let attempt = Attempt {
                worker: worker.to_owned(),
                started_at: now - interval(result.started_ago),
                finished_at: now - interval(result.ended_ago),
                outcome: outcome.unwrap_or(next.outcome).to_string(),
                error_type,
                error: result.detail.clone().or_else(|| next.error.clone()),
            };
            self.note((result.token.id, result.token.attempt), attempt);
        }
        self.hold_snoozed(&snoozed);
        let (followed, queues_runs) = self.ended(ended_runs);
        for Finish { token, next_status, detail, .. } in ended {
            let is_recorded = |attempt: &Attempt| {
                attempt.worker == worker
                    && (attempt.outcome == next_status.outcome.as_str()
                        || next_status.outcome == HistoryOutcome::Snoozed
                            && attempt.outcome == "failed")
                    && attempt.error.as_ref() == detail.as_ref().or(next_status.error.as_ref())
            };
            let run = self.runs.get(&token.id).filter(|run| {
                run.attempts > token.attempt || run.started_at == Some(token.claimed_at)
            });
            let attempt = self.attempts.get(&(token.id, token.attempt));
            if let Some(run) = run.filter(|_| attempt.is_some_and(is_recorded)) {
                let ends = matches!(run.status, Status::Dead | Status::Cancelled);
                let is_last = run.attempts == token.attempt;
                let status = if ends && is_last { run.status } else { next_status.status };
                recorded.entry(*token).or_insert(status);
            }
        }
        for result in ended.iter().filter(|result| !recorded.contains_key(&result.token)) {
            self.note_lost(worker, result.token, result.started_ago);
        }
        Ok((recorded, followed, queues_runs))
    }

    /// jobctl.hold_snoozed
    fn hold_snoozed(&mut self, snoozed: &[i64]) {
        let now = self.now;
        let holds_job = |definition: &&Definition| definition.spec.snooze == "job";
        if snoozed.is_empty() || self.definitions.values().find(holds_job).is_none() {
            return;
        }
        self.journal.push(Before::Holds(self.holds.clone()));
        let mut latest = BTreeMap::new();
        for run in snoozed.iter().map(|id| &self.runs[id]).filter(|run| run.run_at > now) {
            if self.definitions.get(&run.job_type).filter(holds_job).is_some() {
                let last = latest.entry(run.job_type.clone()).or_insert((run.run_at, run.id));
                *last = (run.run_at, run.id).max(*last);
            }
        }
        let is_covered = |name: &str, until: Time| {
            let mut current = self.holds.iter().filter(|hold| self.is_in_force(hold));
            current.any(|hold| {
                hold.is_of(HoldScope::Job, name) && hold.until.is_none_or(|other| other >= until)
            })
        };
        let held: Vec<_> = latest
            .iter()
            .filter(|(name, (until, _))| !is_covered(name, *until))
            .map(|(name, &(until, run))| {
                let target = HoldTarget { scope: HoldScope::Job, name: name.clone() };
                Hold { target, until: Some(until), run: Some(run) }
            })
            .collect();
        let is_replaced = |hold: &Hold| {
            hold.run.is_some()
                && latest.get(&hold.target.name).is_some_and(|(until, _)| hold.until < Some(*until))
        };
        self.holds.retain(|hold| hold.until.is_none_or(|it| it > now) && !is_replaced(hold));
        self.holds.extend(held);
    }

    /// limited_runs: the runs of limited definitions that may run, in the
    /// order of turns, each with the run whose place it takes, and the first definition
    /// that another session has locked.
    fn within_limits(
        &self,
        claim: &Claim,
        filter: &ClaimFilter,
    ) -> (Vec<(i64, i64)>, Option<String>) {
        let (mut runs, mut skipped) = (Vec::new(), None);
        for (name, definition) in &self.definitions {
            let is_other = |id: &i64| self.runs.get(id).is_none_or(|run| run.job_type != *name);
            if !definition.is_limited()
                || !self.is_job_served(name, filter)
                || filter.only_run.as_ref().is_some_and(is_other)
            {
                continue;
            }
            let due = self.waiting().filter(|run| run.job_type == *name && run.run_at <= self.now);
            let is_served = |run: &&Run| filter.serves(&run.queue);
            let mut due: Vec<_> = due.filter(is_served).collect();
            let is_used_up = definition.allowed(self.now).is_some_and(|allowed| allowed < 1);
            if due.is_empty() || is_used_up {
                continue;
            }
            if self.locked_definitions.contains(name) {
                skipped.get_or_insert_with(|| name.clone());
                continue;
            }
            let running = self.running().filter(|run| run.job_type == *name).count();
            let free = definition.most_running().map(|most| i64::from(most) - running as i64);
            let allowed = definition.allowed(self.now);
            let free = [free, allowed].into_iter().flatten().min().unwrap_or(i64::MAX);
            let free = usize::try_from(free).unwrap_or(0);
            due.retain(|run| !filter.excludes(run.id) && !self.is_locked(run.id));
            due.retain(|run| !self.is_held(run) && !run.is_expired(self.now));
            due.sort_by_key(|run| (run.priority, run.run_at, run.id));
            let at_most = free.min(usize::try_from(claim.at_most).unwrap_or(0));
            let last_share = definition.last_share.as_deref().unwrap_or_default();
            let running = |share| {
                let is_of = |it: &&Run| it.job_type == *name && it.share() == share;
                self.running().filter(is_of).count()
            };
            let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
            let most = definition.spec.max_running_per_share.map_or(usize::MAX, |it| it as usize);
            due.retain(|run| {
                let turn = turns.entry(run.share()).or_default();
                *turn += 1;
                *turn <= at_most && *turn + running(run.share()) <= most
            });
            turns.clear();
            let mut in_turn: Vec<_> = due
                .iter()
                .map(|run| {
                    let turn = turns.entry(run.share()).or_default();
                    *turn += 1;
                    (*turn, run.share() <= last_share, run.share(), run.id)
                })
                .collect();
            in_turn.sort_unstable();
            let in_turn = in_turn.into_iter().map(|(.., id)| id);
            runs.extend(in_turn.zip(due.iter().map(|run| run.id)).take(at_most));
        }
        (runs, skipped)
    }

    /// Whether a tick with this filter claims runs of the job.
    fn is_job_served(&self, job_type: &str, filter: &ClaimFilter) -> bool {
        let kind = self.definitions.get(job_type).map(|definition| definition.spec.kind);
        !filter.excluded_jobs.iter().any(|it| it == job_type)
            && !kind.is_some_and(|kind| filter.excluded_kinds.contains(&kind))
    }

    /// The view current_holds.
    fn has_hold(&self, scope: HoldScope, name: &str) -> bool {
        self.holds.iter().any(|hold| hold.is_of(scope, name) && self.is_in_force(hold))
    }

    fn is_in_force(&self, hold: &Hold) -> bool {
        let waits = |id| {
            self.runs
                .get(&id)
                .is_some_and(|run| run.status == Status::Queued && Some(run.run_at) == hold.until)
        };
        hold.until.is_none_or(|until| until > self.now) && hold.run.is_none_or(waits)
    }

    /// Whether a hold of its job or its queue keeps a run from being claimed.
    pub(super) fn is_held(&self, run: &Run) -> bool {
        self.has_hold(HoldScope::Job, &run.job_type) || self.has_hold(HoldScope::Queue, &run.queue)
    }

    pub(super) fn holds_worker(&self, worker: &str) -> bool {
        self.has_hold(HoldScope::All, "") || self.has_hold(HoldScope::Worker, worker)
    }

    /// claim_runs
    fn claim(
        &mut self,
        holder: &Holder,
        claim: &Claim,
        filter: &ClaimFilter,
    ) -> Result<ClaimResult> {
        let now = self.now;
        let at_most = usize::try_from(claim.at_most).unwrap_or(0);
        let (within_limits, skipped) =
            if claim.limits { self.within_limits(claim, filter) } else { (Vec::new(), None) };
        let has_right = self.workers.get(&holder.worker).is_some_and(|row| {
            row.claiming.as_ref().is_some_and(|(tick, until)| *tick == holder.tick && *until > now)
        });
        let may_claim =
            (has_right || filter.only_run.is_some()) && !self.holds_worker(&holder.worker);
        let mut lanes: Lanes<'_> = BTreeMap::new();
        for run in self.waiting() {
            lanes.entry((&run.queue, run.priority)).or_default().push(run);
        }
        lanes.values_mut().for_each(|lane| lane.sort_by_key(|run| (run.run_at, run.id)));
        let (starts, last_lane) = self.starts(&lanes, claim, filter);
        // Priority, age of the lane, queue, then place in the lane.
        let mut due: Vec<(i32, Time, &str, Time, i64)> = Vec::new();
        for (priority, oldest, queue, after) in starts {
            let is_limited =
                |run: &Run| self.definitions.get(&run.job_type).is_some_and(Definition::is_limited);
            let is_free = |run: &&&Run| {
                after.is_none_or(|after| (run.run_at, run.id) > after)
                    && run.run_at <= now
                    && !run.is_expired(now)
                    && !filter.excludes(run.id)
                    && self.is_job_served(&run.job_type, filter)
                    && !is_limited(run)
                    && !self.is_held(run)
                    && !self.is_locked(run.id)
            };
            let lane = lanes.get(&(queue, priority)).into_iter().flatten().filter(is_free);
            due.extend(lane.map(|run| (priority, oldest, queue, run.run_at, run.id)));
            due.truncate(at_most);
        }
        let mut due: Vec<_> = due.into_iter().map(|place| (place, place.4)).collect();
        due.extend(within_limits.iter().map(|(id, place_of)| {
            let it = &self.runs[place_of];
            ((it.priority, it.run_at, it.queue.as_str(), it.run_at, it.id), *id)
        }));
        due.sort_unstable();
        due.truncate(if may_claim { at_most } else { 0 });
        let mut claimed = Vec::new();
        let mut bytes = 0;
        for (place, (_, id)) in due.iter().enumerate() {
            let run = &self.runs[id];
            let starts_now = i32::try_from(place).is_ok_and(|place| place < claim.free_threads);
            if bytes >= claim.bytes || run.attempts + 1 >= run.most_attempts() && !starts_now {
                break;
            }
            bytes += i64::try_from(run.payload.len()).unwrap_or(i64::MAX);
            claimed.push(run.clone());
        }
        for run in &mut claimed {
            run.status = Status::Running;
            run.attempts += 1;
            run.locked_by = Some(holder.worker.clone());
            run.locked_until = Some(now + interval(filter.lease));
            (run.started_at, run.updated_at) = (Some(now), now);
            self.write(run.clone())?;
        }
        for (name, definition) in &self.definitions.clone() {
            let started: Vec<_> = claimed.iter().filter(|run| run.job_type == *name).collect();
            let turn = |run: &&&Run| within_limits.iter().position(|(id, _)| *id == run.id);
            let Some(last) = started.iter().max_by_key(turn) else { continue };
            let mut row = Definition { last_share: last.share.clone(), ..definition.clone() };
            if let Some((_, interval)) = definition.rate() {
                let next = definition.rate_next_at.map_or(now, |next| next.max(now));
                row.rate_next_at =
                    Some(next + interval * i32::try_from(started.len()).unwrap_or(0));
            }
            if definition.is_limited() && row != *definition {
                self.write_definition(row)?;
            }
        }
        claimed.sort_by_key(|run| (run.priority, run.run_at, run.id));
        let claimed: Vec<_> =
            claimed.into_iter().map(|run| self.claimed(run, &within_limits)).collect();
        let has_released = claim.release_right && claim.is_short(&claimed) && last_lane.is_none();
        if has_released {
            self.return_right(&holder.worker, &holder.tick)?;
        }
        Ok(ClaimResult { claimed, skipped, last_lane, has_released, ..ClaimResult::default() })
    }

    /// Returns where the claim looks for runs, in this order: priority, oldest run, queue and the
    /// last claimed run of each lane. Then the last lane, if there may be more.
    #[expect(clippy::type_complexity, reason = "used once")]
    fn starts<'a>(
        &self,
        lanes: &Lanes<'a>,
        claim: &'a Claim,
        filter: &ClaimFilter,
    ) -> (Vec<(i32, Time, &'a str, Option<(Time, i64)>)>, Option<store::Lane>) {
        let mut last_lane = None;
        let mut starts = Vec::new();
        if let Some(after) = &claim.after {
            let start = |it: &'a Position| {
                (it.priority, it.run_at, it.queue.as_str(), Some((it.run_at, it.id)))
            };
            starts.extend(after.iter().map(start));
        } else {
            let mut last: Option<(&str, i32)> = None;
            let mut places = 0;
            for (&(queue, priority), lane) in lanes {
                let begin =
                    claim.after_lane.as_ref().map(|(queue, priority)| (queue.as_str(), *priority));
                let is_passed = begin.is_some_and(|begin| (queue, priority) <= begin)
                    || last.is_some_and(|(last, _)| last == queue) && !filter.serves(queue);
                if is_passed || places == 1000 {
                    continue;
                }
                (last, places) = (Some((queue, priority)), places + 1);
                let due = lane.first().map(|run| run.run_at).filter(|oldest| *oldest <= self.now);
                starts.extend(due.map(|oldest| (priority, oldest, queue, None)));
            }
            last_lane = last.filter(|_| places == 1000).map(|(queue, it)| (queue.to_owned(), it));
        }
        starts.retain(|(_, _, queue, _)| filter.serves(queue));
        starts.sort_by_key(|(priority, oldest, ..)| (*priority, *oldest));
        (starts, last_lane)
    }

    fn claimed(&self, run: Run, within_limits: &[(i64, i64)]) -> Claimed {
        let after: Vec<_> = self.predecessors(run.id).map(|(id, _)| id.to_string()).collect();
        let definition = self.definitions.get(&run.job_type).map(|definition| &definition.spec);
        let max_attempts = run.most_attempts();
        let Run { id, queue, priority, run_at, .. } = run;
        let is_limited = within_limits.iter().any(|(limited, _)| *limited == id);
        let position = Position { queue, priority, run_at, id };
        Claimed {
            id,
            position: (!is_limited).then_some(position),
            payload: run.payload,
            definition: definition.map(|spec| DefinedAction {
                kind: spec.kind,
                action: Arc::from(spec.action.to_string()),
            }),
            attempt: run.attempts,
            max_attempts,
            uncounted_attempts: run.uncounted_attempts,
            claimed_at: self.now,
            cancel_asked: run.cancel_requested_at.is_some(),
            expires_in: run.expires_at.map(|at| store::seconds(as_seconds(at - self.now))),
            timeout: run.timeout.or(definition.and_then(|spec| spec.timeout)).map(store::seconds),
            backoff: run.backoff,
            key: run.key.filter(|_| run.key_scope == KeyScope::Retained),
            scheduled_for: run.scheduled_for.map(|at| at.format("%Y-%m-%dT%H:%M:%SZ").to_string()),
            after: (!after.is_empty()).then(|| after.join(",")),
            // The model has no outputs.
            passes_results: false,
            results: None,
            job_type: run.job_type,
        }
    }

    /// locked.sql and release.sql
    fn release(&mut self, worker: &str, claims: &[&FencingToken]) -> Result<(Vec<i64>, bool)> {
        let mut released = BTreeSet::new();
        for claim in claims {
            let Some(run) = self.held(worker, claim) else { continue };
            let run = Run { attempts: run.attempts - 1, ..run.clone() };
            let (status, _) = self.end(&run, &End::of(Status::Queued, None, None))?;
            if status == Status::Cancelled {
                released.insert(claim.id);
            }
        }
        Ok(self.ended(released))
    }

    /// note_lost.sql
    fn note_lost(&mut self, worker: &str, claim: FencingToken, started_ago: Duration) {
        let is_over = self.runs.get(&claim.id).is_some_and(|run| {
            let is_ended = run.attempts == claim.attempt && run.status != Status::Running;
            run.attempts > claim.attempt || is_ended
        });
        if is_over && !self.is_locked(claim.id) {
            let (started, error) =
                (self.now - interval(started_ago), "its worker lost the lease and ended it");
            let attempt = self.ended_now(worker, started, "lease_expired", error);
            self.note((claim.id, claim.attempt), attempt);
        }
    }

    /// The history of an attempt whose lease was taken away.
    fn ended_now(&self, worker: &str, started_at: Time, outcome: &str, error: &str) -> Attempt {
        let (worker, outcome, error) = (worker.to_owned(), outcome.to_owned(), error.to_owned());
        let (error_type, error) = (Some(outcome.clone()), Some(error));
        Attempt { worker, started_at, finished_at: self.now, outcome, error_type, error }
    }

    /// As `upkeep::recover`. The order of the runs does not matter.
    fn recover_all(&mut self, turn: &mut Turn, random: Random<'_>) -> store::Result<()> {
        loop {
            self.transactions += 1;
            let expired = self.running().filter(|run| self.is_lost(run));
            let mut expired: Vec<_> = expired.collect();
            expired.sort_by_key(|run| run.locked_until);
            expired.truncate(500);
            let wait = |run: &&Run| {
                let counted = run.attempts - run.uncounted_attempts;
                (run.id, run.attempts, wait_after(counted, &run.backoff, random()))
            };
            let waits: Vec<_> = expired.iter().map(wait).collect();
            let found = waits.len();
            let recover = |part: &[_]| Ok(!self.recover(part)?.is_empty());
            let any = turn.work_off(waits, recover, |_, _| Ok(false))?;
            if !turn.goes_on(any, found == 500) {
                return Ok(());
            }
        }
    }

    /// As `upkeep::expire`.
    fn expire_all(&mut self, turn: &mut Turn) -> store::Result<()> {
        self.transactions += 1;
        let is_expired = |run: &&Run| run.is_expired(self.now);
        let mut expired: Vec<_> = self.waiting().filter(is_expired).collect();
        expired.sort_by_key(|run| (run.expires_at, run.id));
        let expired = expired.iter().map(|run| run.id).collect();
        turn.work_off(expired, |ids| self.expire(ids), |_, _| Ok(false)).map(drop)
    }

    /// expire.sql. Returns whether any run was cancelled.
    fn expire(&mut self, ids: &[i64]) -> store::Result<bool> {
        self.transact("cancel expired runs", |it| {
            let mut ended = BTreeSet::new();
            for id in ids {
                if it.is_locked(*id) {
                    continue;
                }
                let run = it.runs[id].clone();
                let why = "expired: it did not start in time";
                it.end(&run, &End::of(Status::Cancelled, Some("expired"), Some(why)))?;
                ended.insert(*id);
            }
            let any = !ended.is_empty();
            it.ended(ended);
            Ok(any)
        })
    }

    /// recover.sql
    pub(super) fn recover(
        &mut self,
        expired: &[(i64, i32, Duration)],
    ) -> store::Result<Vec<Recovered>> {
        const WHAT: &str = "lease expired: its worker crashed, hung or lost the database";
        self.transact("recover lost leases", |it| {
            let mut recovered = Vec::new();
            for (id, attempt, wait) in expired {
                let is_expired = |run: &&Run| {
                    run.status == Status::Running && run.attempts == *attempt && it.is_lost(run)
                };
                let Some(run) = it.runs.get(id).filter(is_expired) else { continue };
                if it.is_locked(*id) {
                    continue;
                }
                let run = run.clone();
                let worker = run.locked_by.clone().unwrap_or_default();
                let until = run.locked_until.unwrap_or_default();
                let started = run.started_at.unwrap_or(until);
                let lost = it.ended_now(&worker, started, "lease_expired", WHAT);
                it.note((*id, *attempt), lost);
                let end = End {
                    wait: *wait,
                    outcome: Some(HistoryOutcome::LeaseExpired),
                    is_attempt: true,
                    ..End::of(Status::Failed, Some("lease_expired"), Some(WHAT))
                };
                let (status, _) = it.end(&run, &end)?;
                let run = &it.runs[id];
                let expires_first = run.expires_at.is_some_and(|at| at <= run.run_at);
                recovered.push(Recovered { id: *id, status, expires_first });
            }
            it.ended(
                recovered
                    .iter()
                    .filter(|run| run.status != Status::Failed)
                    .map(|run| run.id)
                    .collect(),
            );
            Ok(recovered)
        })
    }

    /// preview.sql
    fn preview(&self, worker: &str, filter: &ClaimFilter, limit: usize) -> Vec<DueRun> {
        let is_due = |run: &&Run| {
            run.run_at <= self.now
                && !run.is_expired(self.now)
                && !filter.excludes(run.id)
                && filter.serves(&run.queue)
                && self.is_job_served(&run.job_type, filter)
                && !self.is_held(run)
                && !self.holds_worker(worker)
        };
        let mut due: Vec<_> = self.waiting().filter(is_due).collect();
        due.sort_by_key(|run| (run.priority, run.run_at, run.id));
        due.truncate(limit);
        let due = due.into_iter().map(|run| DueRun {
            id: run.id,
            job_type: run.job_type.clone(),
            queue: run.queue.clone(),
            priority: run.priority,
            run_at: run.run_at,
            attempt: run.attempts + 1,
            max_attempts: run.most_attempts(),
        });
        due.collect()
    }

    /// As `UnclaimableSearch::step`. Every run is readable.
    fn search(&mut self, session: &mut Session) -> store::Result<()> {
        let Some((suspects, error)) = &mut session.search else { return Ok(()) };
        let mut aside = Vec::new();
        suspects.step(|part| {
            aside = self.transact("claim runs", |it| it.set_aside(part))?;
            Ok(())
        })?;
        for (run, is_kept) in aside {
            *error = None;
            if is_kept {
                session.filter.excluded_runs.push(run);
            }
        }
        error.take_if(|_| suspects.is_done()).map_or(Ok(()), Err)
    }

    /// jobctl.set_aside_unclaimable: the rejected runs, and whether they could not be put off.
    fn set_aside(&mut self, runs: &[DueRun]) -> std::result::Result<Vec<(i64, bool)>, Cause> {
        let mut aside = Vec::new();
        for DueRun { id, .. } in runs {
            let is_free = |run: &&Run| is_waiting(run.status) && !self.is_locked(run.id);
            let Some(run) = self.runs.get(id).filter(is_free) else { continue };
            if !self.refused.contains(&(*id, Write::Claim)) {
                continue;
            }
            let mut is_kept = false;
            if run.run_at <= self.now {
                is_kept = self
                    .write(Run {
                        run_at: self.now + TimeDelta::seconds(300),
                        last_error: Some("cannot claim runs: refused".to_owned()),
                        updated_at: self.now,
                        ..run.clone()
                    })
                    .is_err();
            }
            aside.push((*id, is_kept));
        }
        Ok(aside)
    }
}

impl ClaimFilter {
    fn excludes(&self, run: i64) -> bool {
        self.excluded_runs.contains(&run) || self.only_run.is_some_and(|only| only != run)
    }

    fn serves(&self, queue: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|it| it == queue)
    }
}

/// Schedules.
impl Database {
    /// As `tick::fire::fire`.
    pub(super) fn fire(&mut self, turn: &mut Turn) -> store::Result<()> {
        loop {
            self.transactions += 1;
            let (plans, _) = due::plan_fires(self.due_schedules());
            let found = plans.len();
            let mut moved = false;
            let this = RefCell::new(&mut *self);
            let fire = |part: &[FirePlan]| Ok(!this.borrow_mut().fire_planned(part)?.is_empty());
            for batch in due::into_batches(plans) {
                moved |= turn.work_off(batch, fire, |plan, _| fire(&[due::put_off(plan.due)]))?;
            }
            let is_full = i64::try_from(found).is_ok_and(|it| it >= store::FIRED_AT_ONCE);
            if !turn.goes_on(moved, is_full) {
                return Ok(());
            }
        }
    }

    /// due_schedules.sql
    pub(super) fn due_schedules(&self) -> Vec<DueSchedule> {
        let now = self.now;
        let due = self.definitions.values().filter(|definition| definition.fires(now));
        let due = due.map(|definition| DueSchedule {
            id: definition.id,
            name: definition.spec.name.clone(),
            schedule: definition.spec.schedule.clone().unwrap_or_default(),
            time_zone: definition.spec.time_zone.clone(),
            catch_up: definition.spec.catch_up.clone(),
            most_fires: definition.most_fires(),
            spread: definition.spec.spread,
            seen: definition.next_run_at,
            now,
        });
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|it| (it.seen.is_none(), it.seen, it.id));
        due.truncate(usize::try_from(store::FIRED_AT_ONCE).unwrap_or(0));
        due
    }

    /// fire.sql. Returns the new runs of each schedule that moved on or was put off.
    pub(super) fn fire_planned(
        &mut self,
        plans: &[FirePlan],
    ) -> store::Result<Vec<(i64, Vec<i64>)>> {
        self.transact("fire schedules", |it| {
            let mut fired = Vec::new();
            for plan in plans {
                let find = it.definitions.values().find(|definition| definition.id == plan.due.id);
                if let Some(definition) = find.filter(|definition| it.may_fire(definition, plan)) {
                    let runs = it.fire_one(definition.clone(), plan)?;
                    fired.push((plan.due.id, runs));
                }
            }
            Ok(fired)
        })
    }

    /// The conditions of the function `jobctl.fire`.
    fn may_fire(&self, definition: &Definition, plan: &FirePlan) -> bool {
        let (spec, due, seen) = (&definition.spec, &plan.due, plan.due.seen);
        let from = seen.unwrap_or(self.now - TimeDelta::hours(1));
        let is_next = |next: Time| next > from && is_whole_minute(next);
        let is_nominal = |time: &Time| {
            seen.is_some_and(|seen| seen <= *time && (*time == seen || is_whole_minute(*time)))
                && *time <= self.now
                && plan.next.is_none_or(|next| *time < next)
        };
        spec.enabled
            && definition.paused_at.is_none()
            && definition.next_run_at == seen
            && spec.schedule.as_ref() == Some(&due.schedule)
            && spec.time_zone == due.time_zone
            && seen.is_none_or(|seen| seen <= self.now)
            && match plan.put_off_until {
                Some(_) => plan.next == seen && plan.times.is_empty(),
                None => plan.next.is_none_or(is_next),
            }
            && i32::try_from(plan.times.len()).is_ok_and(|times| times <= definition.most_fires())
            && plan.times.iter().all(is_nominal)
            && !self.locked_definitions.contains(&spec.name)
    }

    /// The rest of the function `jobctl.fire`.
    fn fire_one(&mut self, mut definition: Definition, plan: &FirePlan) -> Result<Vec<i64>> {
        (definition.next_run_at, definition.put_off_until) = (plan.next, plan.put_off_until);
        let Definition { id, spec, .. } = definition.clone();
        let mut due = plan.times.clone();
        due.sort_unstable();
        if spec.overlap == "skip" {
            due.drain(..due.len().saturating_sub(1));
            let is_fired = |run: &Run| run.job_type == spec.name && run.scheduled_for.is_some();
            if self.waiting().chain(self.running()).any(is_fired) {
                due.clear();
            }
        }
        let mut fired = Vec::new();
        for nominal in due {
            let run = NewRun { job_type: spec.name.clone(), ..NewRun::default() };
            let mut run = self.new_run(&run, Some((id, &spec)));
            if self.refused_jobs.contains(&spec.name) {
                return Err(Cause::Refused);
            }
            if self.fires.contains(&(id, nominal)) {
                continue;
            }
            run.run_at = nominal + seconds(plan.delay);
            run.expires_at = spec.expires.map(|expires| run.run_at + seconds(expires));
            (run.payload, run.scheduled_for) = (spec.payload.to_string(), Some(nominal));
            fired.push(run.id);
            self.write(run)?;
        }
        if plan.put_off_until.is_none() {
            let skipped = plan.times.len() - fired.len();
            definition.skipped_fires += plan.missed + i64::try_from(skipped).unwrap_or(0);
        }
        self.write_definition(definition)?;
        Ok(fired)
    }

    /// The row of a new run, with a new id. It is not in the table yet.
    fn new_run(&mut self, new: &NewRun, definition: Option<(i64, &Spec)>) -> Run {
        self.last_run += 1;
        let now = self.now;
        let spec = definition.map(|(_, spec)| spec);
        let after = |it: f64| now + seconds(it);
        let text = |own: &Option<String>, of: fn(&Spec) -> &String, default: &str| {
            own.clone().or_else(|| spec.map(|spec| of(spec).clone())).unwrap_or(default.to_owned())
        };
        let number = |own: Option<i32>, of: fn(&Spec) -> i32, default| {
            own.or(spec.map(of)).unwrap_or(default)
        };
        let asked = new.run_at.or(new.after.map(after)).unwrap_or(now);
        let expires = new.expires_in.or(spec.and_then(|spec| spec.expires));
        Run {
            id: self.last_run,
            definition_id: definition.map(|(id, _)| id),
            job_type: new.job_type.clone(),
            payload: new.payload.clone(),
            queue: text(&new.queue, |spec| &spec.queue, "default"),
            priority: number(new.priority, |spec| spec.priority, 0),
            run_at: asked.max(now),
            status: Status::Queued,
            attempts: 0,
            max_attempts: number(new.max_attempts, |spec| spec.max_attempts, 10),
            uncounted_attempts: 0,
            snoozed_attempts: 0,
            granted_attempts: None,
            timeout: new.timeout,
            backoff: text(&new.backoff, |spec| &spec.backoff, "exponential:1m..30m"),
            key: new.key.clone(),
            key_scope: new.scope(),
            scheduled_for: None,
            expires_at: expires.map(|expires| asked + seconds(expires)),
            share: new.share.clone(),
            locked_by: None,
            locked_until: None,
            cancel_requested_at: None,
            last_error: None,
            error_type: None,
            failed_at: None,
            started_at: None,
            finished_at: None,
            updated_at: now,
        }
    }
}

/// Followers.
impl Database {
    /// The runs that wait for a run.
    fn followers(&self, id: i64) -> impl Iterator<Item = (i64, Dependency)> {
        self.dependencies.range((id, 0)..=(id, i64::MAX)).map(|((_, run), row)| (*run, *row))
    }

    /// What a run waits for.
    pub(super) fn predecessors(&self, id: i64) -> impl Iterator<Item = (i64, Dependency)> {
        let rows = self.dependencies.iter().filter(move |((_, run), _)| *run == id);
        rows.map(|((after, _), row)| (*after, *row))
    }

    fn is_met(&self, run: i64) -> bool {
        self.predecessors(run).all(|(_, row)| row.state == State::Met)
    }

    pub(super) fn is_good(&self, id: i64) -> bool {
        self.runs.get(&id).is_some_and(|run| run.status == Status::Succeeded)
    }

    pub(super) fn has_met_followers(&self, id: i64) -> bool {
        self.followers(id).any(|(_, row)| row.state == State::Met)
    }

    /// `jobctl.wait_for` of a run that this transaction has enqueued.
    pub(super) fn wait_for(&mut self, id: i64, after: &[i64], rule: AfterRule) -> Option<Queued> {
        for before in BTreeSet::from_iter(after) {
            let refused = match self.runs.get(before).map(|run| run.status) {
                None => Some((Exit::NotFound, format!("no run {before}"))),
                Some(status @ (Status::Dead | Status::Cancelled))
                    if rule == AfterRule::OrCancel =>
                {
                    let why = format!("run {before} is {status}, which would cancel the new run");
                    Some((Exit::Usage, format!("{why} at once")))
                }
                _ => None,
            };
            if let Some((exit, why)) = refused {
                return Some(Queued::Refused(exit, why));
            }
        }
        for before in after {
            let state = if self.is_good(*before) { State::Met } else { State::Due };
            self.dependencies.insert((*before, id), Dependency { rule, state });
        }
        if !self.is_met(id) {
            let run = Run { status: Status::Blocked, ..self.runs[&id].clone() };
            self.set(id, Some(run));
        }
        None
    }

    /// The state of a dependency, by the status of the predecessor.
    fn state_after(&self, before: i64, rule: AfterRule) -> State {
        match self.runs.get(&before) {
            Some(run) if run.status == Status::Succeeded => State::Met,
            Some(run) if run.finished_at.is_none() => State::Open,
            _ if rule == AfterRule::AnyEnd => State::Met,
            _ => State::Stuck,
        }
    }

    /// jobctl.mark_followers
    fn mark_followers(&mut self, runs: &BTreeSet<i64>) -> Vec<i64> {
        let is_marked = |row: &Dependency| matches!(row.state, State::Open | State::Stuck);
        let followed = |id: &&i64| self.followers(**id).any(|(_, row)| is_marked(&row));
        let followed: Vec<_> = runs.iter().filter(followed).copied().collect();
        if !followed.is_empty() {
            self.journal.push(Before::Dependencies(self.dependencies.clone()));
        }
        for ((after, _), row) in &mut self.dependencies {
            if runs.contains(after) && is_marked(row) {
                row.state = State::Due;
            }
        }
        followed
    }

    /// due_followers.sql: those that wait for `ended`, or all.
    fn due_followers(&self, ended: Option<&[i64]>) -> BTreeSet<i64> {
        let due = self.dependencies.iter().filter(|((after, _), row)| {
            row.state == State::Due && ended.is_none_or(|ended| ended.contains(after))
        });
        due.map(|((_, run), _)| *run).collect()
    }

    /// jobctl.decide_followers
    fn decide_followers(&mut self, ids: &BTreeSet<i64>) -> Result<(bool, Vec<i64>)> {
        self.journal.push(Before::Dependencies(self.dependencies.clone()));
        let runs = &self.runs;
        self.dependencies.retain(|(_, run), row| {
            row.state != State::Due || !ids.contains(run) || runs.contains_key(run)
        });
        let is_free = |(_, run): &(i64, i64)| ids.contains(run) && !self.is_locked(*run);
        let due = self.dependencies.iter().filter(|(_, row)| row.state == State::Due);
        let due: Vec<_> = due.map(|(key, _)| *key).filter(is_free).collect();
        let is_unended = |id: &i64| self.runs.get(id).is_some_and(|it| it.finished_at.is_none());
        let unended: BTreeSet<_> = due.iter().map(|(after, _)| *after).filter(is_unended).collect();
        for id in &unended {
            if !self.is_locked(*id) {
                self.write(self.runs[id].clone())?;
            }
        }
        let (mut decides, mut candidates) = (false, BTreeMap::new());
        for (after, run) in due {
            if unended.contains(&after) && self.is_locked(after) {
                continue;
            }
            decides = true;
            let Dependency { rule, .. } = self.dependencies[&(after, run)];
            let state = self.state_after(after, rule);
            self.dependencies.insert((after, run), Dependency { rule, state });
            let is_refused = state == State::Stuck && rule == AfterRule::OrCancel;
            if state == State::Met || is_refused {
                let first = candidates.entry(run).or_insert(None);
                *first = first.or(is_refused.then_some(after));
            }
        }
        let mut cancelled = BTreeSet::new();
        for (id, refused) in candidates {
            let run = self.runs[&id].clone();
            if run.status != Status::Blocked || (refused.is_none() && !self.is_met(id)) {
                continue;
            }
            if let Some(after) = refused {
                let status = self.runs.get(&after).map_or("deleted", |it| it.status.as_str());
                let why = format!("run {after} did not succeed: it is {status}");
                self.end(&run, &End::of(Status::Cancelled, Some("predecessor"), Some(&why)))?;
                cancelled.insert(id);
                continue;
            }
            let shift = (self.now - run.run_at).max(TimeDelta::zero());
            self.write(Run {
                status: Status::Queued,
                run_at: run.run_at.max(self.now),
                expires_at: run.expires_at.map(|at| at + shift),
                updated_at: self.now,
                ..run
            })?;
        }
        Ok((decides, self.ended(cancelled).0))
    }

    /// As `Database::follow_up` of a tick.
    fn follow_up(&mut self, session: &mut Session) {
        if session.followed.is_empty() {
            return;
        }
        let mut state = std::mem::take(&mut session.state);
        let mut turn = Turn::new(None, &mut state);
        let decided = self.release_followers(&mut turn, Some(&mut session.followed));
        session.undecided = if turn.has_changed { 0 } else { session.undecided + 1 };
        if decided.is_err() || session.undecided > 5 {
            session.followed.clear();
        }
        session.state = state;
    }

    /// As `upkeep::release_followers`.
    fn release_followers(
        &mut self,
        turn: &mut Turn,
        mut ended: Option<&mut Vec<i64>>,
    ) -> store::Result<()> {
        let (mut left_out, mut is_locked) = (BTreeSet::new(), false);
        loop {
            self.transactions += 1;
            let due = &self.due_followers(ended.as_deref().map(Vec::as_slice)) - &left_out;
            if due.is_empty() {
                if let (Some(ended), false) = (ended, is_locked) {
                    ended.clear();
                }
                return Ok(());
            }
            let tried: Vec<_> = due.into_iter().collect();
            let decide = |ids: &[i64]| {
                let ids = ids.iter().copied().collect();
                let (decides, followed) =
                    self.transact("release blocked runs", |it| it.decide_followers(&ids))?;
                if let Some(ended) = ended.as_deref_mut() {
                    ended.extend(followed);
                }
                Ok(decides)
            };
            let set_aside = |id, _| {
                left_out.insert(id);
                Ok(false)
            };
            if !turn.work_off(tried.clone(), decide, set_aside)? {
                for run in tried {
                    is_locked |= left_out.insert(run);
                }
            }
        }
    }

    /// Whether a blocked run waits for one that has ended without success, or for such a run.
    pub(super) fn is_stuck(&self, run: &Run) -> bool {
        let stuck = |(after, row): (i64, Dependency)| match self.runs.get(&after) {
            Some(before) if before.finished_at.is_none() => self.is_stuck(before),
            // A run that `or_cancel` has cancelled waits after a retry, too.
            _ => row.state == State::Stuck,
        };
        run.status == Status::Blocked && self.predecessors(run.id).any(stuck)
    }
}

/// Hooks.
impl Database {
    /// jobctl.enqueue_hooks: those of the given runs that have ended in this transaction. Returns
    /// whether there were any.
    fn enqueue_hooks(&mut self, runs: BTreeSet<i64>) -> bool {
        let mut enqueues = false;
        for id in runs {
            let Some(run) = self.runs.get(&id).filter(|run| run.finished_at == Some(self.now))
            else {
                continue;
            };
            for (key, job) in self.hooks(run) {
                if self.definitions.get(&job).is_some_and(|it| !it.spec.enabled) {
                    continue;
                }
                let hook = NewRun {
                    job_type: job,
                    payload: self.hook_payload(&self.runs[&id]),
                    key: Some(key),
                    key_scope: Some(KeyScope::Live),
                    ..NewRun::default()
                };
                // Another run may have the key; then the hook was enqueued before.
                let answer = self.enqueue(&hook);
                enqueues |= matches!(answer, Queued::Accepted(_));
                if let Queued::Accepted(Accepted {
                    id: Some(id),
                    result: EnqueueResult::Enqueued,
                    ..
                }) = answer
                {
                    self.journal.push(Before::Run(id, None));
                }
            }
        }
        enqueues
    }

    /// wrong_hooks.sql
    fn has_wrong_hook(&self) -> bool {
        self.definitions.values().any(|definition| {
            let spec = &definition.spec;
            let mut hooks = [&spec.on_dead, &spec.on_success, &spec.on_end].into_iter().flatten();
            let is_hook = self.definitions.values().any(|it| it.spec.has_hook(&spec.name));
            hooks.any(|job| is_hook || spec.enabled && !self.definitions.contains_key(job))
        })
    }

    /// Returns the hooks of a run that has ended: their keys and their jobs.
    pub(super) fn hooks(&self, run: &Run) -> Vec<(String, String)> {
        let is_hook = self.definitions.values().any(|it| it.spec.has_hook(&run.job_type));
        let definition = self.definitions.get(&run.job_type).filter(|_| !is_hook);
        let hooks = definition.into_iter().flat_map(|it| it.spec.hooks(run.status));
        let ended = run.finished_at.unwrap_or_default().timestamp_micros();
        let key = |(key, job): (_, &String)| {
            (format!("{HOOK_KEY_PREFIX}{key}-{}-{ended}", run.id), job.clone())
        };
        hooks.map(key).collect()
    }

    /// The incident in which a run died. Here each failed attempt is one of its own, because the
    /// first of those that fail at the same moment depends on the order in which they are written.
    fn incident(&self, run: &Run) -> Option<String> {
        let last = self.attempts.get(&(run.id, run.attempts))?;
        let has_failed = ["failed", "lease_expired"].contains(&&*last.outcome);
        let dies = run.status == Status::Dead && has_failed && last.error_type == run.error_type;
        dies.then(|| format!("{}.{}", run.id, run.attempts))
    }

    /// The payload of a hook's run, as PostgreSQL prints it.
    fn hook_payload(&self, run: &Run) -> String {
        let is_failure = run.status != Status::Succeeded;
        let error = run.last_error.as_ref().filter(|_| is_failure);
        let attempts = if run.attempts == 1 { "attempt" } else { "attempts" };
        let what = match run.status {
            Status::Succeeded => "succeeded".to_owned(),
            Status::Cancelled => "was cancelled".to_owned(),
            _ => format!("is dead after {} {attempts}", run.attempts),
        };
        let why = error.map(|error| format!(": {error}")).unwrap_or_default();
        let worker = self.attempts.get(&(run.id, run.attempts)).map(|it| &it.worker);
        let members = [
            ("job", json!(run.job_type)),
            ("key", json!(run.key)),
            ("run", json!(run.id)),
            ("text", json!(format!("run {} of job {} {what}{why}", run.id, run.job_type))),
            ("error", json!(error)),
            ("share", json!(run.share)),
            ("status", json!(run.status.as_str())),
            ("worker", json!(worker)),
            ("attempts", json!(run.attempts)),
            ("incident", json!(self.incident(run))),
            ("error_type", json!(run.error_type.as_ref().filter(|_| is_failure))),
        ];
        let members = members.map(|(name, value)| format!("\"{name}\": {value}"));
        format!("{{{}}}", members.join(", "))
    }
}

/// Operators and programs that enqueue.
impl Database {
    /// Enqueues a run, as `Store::enqueue`; the arguments are valid.
    pub(super) fn enqueue(&mut self, new: &NewRun) -> Queued {
        let definition = self.definitions.get(&new.job_type).cloned();
        if definition.is_none() && !action::is_built_in(&new.job_type) {
            return Queued::Undefined;
        }
        let definition = definition.as_ref().map(|definition| (definition.id, &definition.spec));
        let run = self.new_run(new, definition);
        let has_key = |it: &&Run| it.key_scope == KeyScope::Retained || it.finished_at.is_none();
        let taken = self.of_key(&run.key, run.key_scope).find(has_key).cloned();
        if let Some(taken) = taken {
            // insert_keyed_run.sql takes an id, and then enqueue_runs takes another.
            self.last_run += i64::from(action::is_built_in(&new.job_type));
            let is_same = (&taken.job_type, &taken.payload) == (&run.job_type, &run.payload);
            let is_later = taken.status == Status::Queued && taken.run_at > run.run_at;
            let due_at = Some(taken.run_at).filter(|_| is_later);
            let (id, status, result) =
                (Some(taken.id), Some(taken.status), EnqueueResult::Existing);
            return match is_same {
                true => Queued::Accepted(Accepted { id, result, status, due_at }),
                false => Queued::KeyTaken,
            };
        }
        let id = run.id;
        self.set(id, Some(run));
        let (id, result) = (Some(id), EnqueueResult::Enqueued);
        Queued::Accepted(Accepted { id, result, status: None, due_at: None })
    }

    /// Returns the runs that have or had this key in this scope.
    fn of_key(&self, key: &Option<String>, scope: KeyScope) -> impl Iterator<Item = &Run> {
        let ids = key.as_ref().and_then(|key| self.keys.get(&(key.clone(), scope)));
        ids.into_iter().flatten().filter_map(|id| self.runs.get(id))
    }

    /// Acts on the runs whose status is one of `from`. Returns an answer per existing run, as
    /// retry.sql, cancel.sql and remove.sql. `act` returns whether it is granted.
    fn act(
        &mut self,
        doing: &str,
        ids: &[i64],
        from: &[Status],
        act: impl Fn(&mut Self, Run) -> Result<bool>,
    ) -> store::Result<Vec<OperationResult>> {
        self.transact(doing, |it| {
            let ids: BTreeSet<_> =
                ids.iter().copied().filter(|id| it.runs.contains_key(id)).collect();
            if ids.iter().any(|id| it.is_locked(*id)) {
                return Err(Cause::Locked);
            }
            let (mut answers, mut granted_runs) = (Vec::new(), BTreeSet::new());
            for id in ids {
                let run = it.runs[&id].clone();
                let status = run.status;
                let granted = from.contains(&run.status) && act(it, run)?;
                granted_runs.extend(granted.then_some(id));
                let waits = granted && doing == "retry" && it.runs[&id].status == Status::Blocked;
                answers.push(OperationResult { id, status, granted, waits });
            }
            if doing == "prune" {
                it.delete_all(&granted_runs);
            } else {
                granted_runs.retain(|id| it.runs[id].finished_at.is_some());
                it.ended(granted_runs);
            }
            Ok(answers)
        })
    }

    /// retry.sql; `force` is a retry from `running`.
    pub(super) fn retry(
        &mut self,
        ids: &[i64],
        from: &[Status],
        terms: RetryTerms,
    ) -> store::Result<Vec<OperationResult>> {
        self.act("retry", ids, from, |it, mut run| {
            // The key belongs to an unfinished run, else to the newest of the runs in `ids`.
            let has_key = |other: &Run| {
                let is_asked = ids.contains(&other.id) && from.contains(&other.status);
                let is_newer = other.finished_at.is_some() && is_asked && other.id > run.id;
                other.id != run.id && (other.finished_at.is_none() || is_newer)
            };
            if run.key_scope == KeyScope::Live && it.of_key(&run.key, KeyScope::Live).any(has_key) {
                return Ok(false);
            }
            let granted = run.granted_attempts.unwrap_or(run.max_attempts);
            let is_used_up = run.attempts >= run.most_attempts();
            if let Some(worker) = &run.locked_by {
                let error = "taken from its holder by retry --force";
                let started = run.started_at.unwrap_or(it.now);
                let attempt = it.ended_now(worker, started, "interrupted", error);
                it.note((run.id, run.attempts), attempt);
            }
            if matches!(run.error_type.as_deref(), Some("expired" | "predecessor")) {
                (run.last_error, run.error_type) = (None, None);
            }
            let keeps_time = run.status == Status::Cancelled && !terms.cancelled_now;
            let is_later = run.run_at > it.now && !run.is_expired(it.now);
            let waits =
                run.status == Status::Cancelled && !terms.cancelled_now && it.waits_again(run.id);
            it.write(Run {
                status: if waits { Status::Blocked } else { Status::Queued },
                run_at: if keeps_time { run.run_at.max(it.now) } else { it.now },
                max_attempts: match is_used_up {
                    true => 1_000_000.min(run.attempts - run.uncounted_attempts + granted),
                    false => run.max_attempts,
                },
                granted_attempts: Some(granted),
                locked_by: None,
                locked_until: None,
                cancel_requested_at: None,
                expires_at: run.expires_at.filter(|_| keeps_time && is_later),
                finished_at: None,
                updated_at: it.now,
                ..run
            })?;
            Ok(true)
        })
    }

    /// jobctl.wait_again
    fn waits_again(&mut self, id: i64) -> bool {
        self.journal.push(Before::Dependencies(self.dependencies.clone()));
        for ((after, run), row) in &mut self.dependencies {
            let mut history = self.attempts.range((*after, 0)..=(*after, i32::MAX));
            let has_succeeded = history.any(|(_, attempt)| attempt.outcome == "succeeded");
            let is_known = self.runs.contains_key(after);
            let is_any_end = row.state == State::Met && row.rule == AfterRule::AnyEnd;
            if *run == id && is_any_end && is_known && !has_succeeded {
                row.state = State::Due;
            }
        }
        !self.is_met(id)
    }

    /// cancel.sql
    pub(super) fn cancel(
        &mut self,
        ids: &[i64],
        from: &[Status],
    ) -> store::Result<Vec<OperationResult>> {
        self.act("cancel", ids, from, |it, mut run| {
            if run.finished_at.is_some() {
                return Ok(false);
            }
            run.cancel_requested_at.get_or_insert(it.now);
            if run.status != Status::Running {
                return it.end(&run, &End::of(Status::Cancelled, None, None)).map(|_| true);
            }
            run.updated_at = it.now;
            it.write(run).map(|()| true)
        })
    }

    /// edit.sql
    pub(super) fn edit(
        &mut self,
        ids: &[i64],
        from: &[Status],
        edit: &Edit,
    ) -> store::Result<Vec<OperationResult>> {
        self.act("edit", ids, from, |it, mut run| {
            let counted = run.attempts - run.uncounted_attempts;
            let is_editable = match run.status {
                Status::Blocked | Status::Queued | Status::Failed | Status::Dead => true,
                Status::Running | Status::Succeeded | Status::Cancelled => false,
            };
            if !is_editable || edit.max_attempts.is_some_and(|most| counted >= most) {
                return Ok(false);
            }
            let before = run.clone();
            run.priority = edit.priority.unwrap_or(run.priority);
            run.max_attempts = edit.max_attempts.unwrap_or(run.max_attempts);
            if let Some(after) = edit.after {
                run.run_at = it.now + seconds(after);
                let shift = run.run_at - before.run_at;
                run.expires_at = run.expires_at.map(|at| at + shift);
            }
            if run == before {
                return Ok(true);
            }
            run.updated_at = it.now;
            it.write(run).map(|()| true)
        })
    }

    /// remove.sql
    pub(super) fn remove(
        &mut self,
        ids: &[i64],
        from: &[Status],
    ) -> store::Result<Vec<OperationResult>> {
        self.act("prune", ids, from, |_, run| Ok(run.finished_at.is_some()))
    }

    /// Deletes runs, their history and what they wait for.
    fn delete_all(&mut self, ids: &BTreeSet<i64>) {
        ids.iter().for_each(|id| self.delete(*id));
        let runs = &self.runs;
        self.dependencies.retain(|(after, run), row| {
            let is_over = row.state == State::Met || !runs.contains_key(after);
            let is_done = ids.contains(run) && is_over;
            !is_done && (!ids.contains(after) || runs.contains_key(run))
        });
        self.mark_followers(ids);
    }

    fn delete(&mut self, id: i64) {
        self.set(id, None);
        let history: Vec<_> =
            self.attempts.range((id, 0)..=(id, i32::MAX)).map(|(id, _)| *id).collect();
        history.iter().for_each(|id| drop(self.attempts.remove(id)));
    }

    /// prune.sql
    pub(super) fn prune(&mut self, default: Keep, limit: usize) -> Vec<i64> {
        let is_old = |run: &Run| {
            let own = self.definitions.get(&run.job_type).map(|row| &row.spec);
            let (own, default) = match run.status {
                Status::Dead => (own.and_then(|own| own.keep_dead), default.dead),
                _ => (own.and_then(|own| own.keep), default.ended),
            };
            let keep = own.map_or(default, Duration::from_secs_f64);
            run.finished_at.is_some_and(|end| end < self.now - interval(keep))
                && !self.followers(run.id).any(|(follower, _)| {
                    self.runs.get(&follower).is_some_and(|it| it.finished_at.is_none())
                })
        };
        let old = self.runs.values().filter(|run| is_old(run) && !self.is_locked(run.id));
        let old: Vec<_> = old.map(|run| run.id).take(limit).collect();
        self.delete_all(&old.iter().copied().collect());
        old
    }

    /// apply.sql and end_others.sql. Returns the names of changed
    /// definitions, and of the others.
    pub(super) fn apply(
        &mut self,
        wanted: &[Spec],
        others: Unlisted,
        takes_over: bool,
    ) -> store::Result<(Vec<String>, Vec<String>)> {
        let file = wanted.first().map_or("", |spec| &spec.file);
        self.transact("apply definitions", |it| {
            let is_foreign = wanted.iter().any(|spec| {
                it.definitions.get(&spec.name).is_some_and(|row| row.spec.file != file)
            });
            let mut changed = Vec::new();
            for spec in wanted {
                it.last_definition += 1;
                let next = spec.schedule.as_ref().filter(|_| spec.enabled);
                let next = next.and_then(|next| first_fire(next, &spec.time_zone, it.now));
                let row = match it.definitions.get(&spec.name) {
                    Some(_) if it.locked_definitions.contains(&spec.name) => {
                        return Err(Cause::Locked);
                    }
                    Some(row) if row.spec == *spec && row.put_off_until.is_none() => continue,
                    Some(row) => {
                        let when = |it: &Spec| (it.schedule.clone(), it.time_zone.clone());
                        let is_due = spec.schedule.is_some()
                            && row.paused_at.is_none()
                            && row.next_run_at.is_some_and(|next| next <= it.now);
                        let is_kept = row.spec.enabled
                            && spec.enabled
                            && (when(&row.spec) == when(spec) || is_due);
                        let next_run_at = row.next_run_at.filter(|_| is_kept).or(next);
                        let rate = |it: &Spec| (it.rate.clone(), it.burst);
                        let is_same_rate = rate(&row.spec) == rate(spec);
                        Definition {
                            spec: spec.clone(),
                            next_run_at,
                            put_off_until: None,
                            rate_next_at: row.rate_next_at.filter(|_| is_same_rate),
                            ..row.clone()
                        }
                    }
                    None => Definition {
                        id: it.last_definition,
                        spec: spec.clone(),
                        paused_at: None,
                        next_run_at: next,
                        put_off_until: None,
                        rate_next_at: None,
                        last_share: None,
                        skipped_fires: 0,
                    },
                };
                changed.push(spec.name.clone());
                it.write_definition(row)?;
            }
            let is_other = |row: &&Definition| wanted.iter().all(|spec| spec.name != row.spec.name);
            let rest = it.definitions.values().filter(is_other);
            let rest = rest.filter(|row| row.spec.file == file);
            let rest = rest.filter(|row| others == Unlisted::Remove || row.spec.enabled);
            let rest: Vec<_> = rest.map(|row| row.spec.name.clone()).collect();
            for name in &rest {
                if it.locked_definitions.contains(name) {
                    return Err(Cause::Locked);
                }
                let Some(mut row) = it.definitions.remove(name) else { continue };
                it.journal.push(Before::Definition(name.clone(), Some(Box::new(row.clone()))));
                if others == Unlisted::Disable {
                    row.spec.enabled = false;
                    it.write_definition(row)?;
                }
            }
            if is_foreign && !takes_over || it.has_wrong_hook() {
                return Err(Cause::Refused);
            }
            changed.sort_unstable();
            Ok((changed, rest))
        })
    }

    /// pause.sql
    pub(super) fn pause(&mut self, name: &str) -> store::Result<Option<bool>> {
        self.change(name, "pause a schedule", |row, now| {
            row.paused_at.get_or_insert(now);
            row.spec.schedule.is_some()
        })
    }

    /// resume.sql, with the next time of `jobctl resume`.
    pub(super) fn resume(&mut self, name: &str) -> store::Result<Option<Option<Time>>> {
        self.change(name, "resume a schedule", |row, now| {
            let Spec { schedule, time_zone, enabled, .. } = &row.spec;
            let next = schedule.as_ref().filter(|_| *enabled);
            let next = next.and_then(|schedule| first_fire(schedule, time_zone, now));
            row.next_run_at = match row.paused_at.take() {
                Some(_) => next,
                None => row.next_run_at.into_iter().chain(next).min(),
            };
            row.put_off_until = None;
            row.next_run_at.filter(|_| *enabled)
        })
    }

    /// hold.sql
    pub(super) fn hold(&mut self, target: HoldTarget, lasts: Option<Duration>) -> Option<Time> {
        self.holds.retain(|hold| hold.until.is_none_or(|until| until > self.now));
        let until = lasts.map(|lasts| self.now + interval(lasts));
        self.holds.push(Hold { target, until, run: None });
        until
    }

    /// operate/release.sql; returns the number of holds that were in force.
    pub(super) fn end_holds(&mut self, target: &HoldTarget) -> usize {
        let is_of = |hold: &&Hold| hold.is_of(target.scope, &target.name);
        let ended = self.holds.iter().filter(is_of).filter(|hold| self.is_in_force(hold)).count();
        self.holds.retain(|hold| !is_of(&hold));
        ended
    }

    fn change<T>(
        &mut self,
        name: &str,
        doing: &str,
        change: impl FnOnce(&mut Definition, Time) -> T,
    ) -> store::Result<Option<T>> {
        self.transact(doing, |it| {
            let Some(mut row) = it.definitions.get(name).cloned() else { return Ok(None) };
            let result = change(&mut row, it.now);
            it.write_definition(row)?;
            Ok(Some(result))
        })
    }
}
