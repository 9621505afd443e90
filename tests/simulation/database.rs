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

use super::rows::{Attempt, Definition, Dependency, Kept, Run, Spec, State, Worker, first_fire};
use crate::exit::Exit;
use crate::job::attempt::HistoryOutcome;
use crate::job::backoff::wait_after;
use crate::job::due::{self, DueSchedule, FirePlan};
use crate::job::enqueue::AfterRule;
use crate::job::status::Status;
use crate::store::{
    self, Bisection, Claim, ClaimFilter, ClaimResult, Claimed, DefinedAction, DueRun, FencingToken,
    Finish, Holder, Kind, LeaseState, Position, Recorded, Recovered, Renewed, StepResult,
};
use crate::tick::request::{Answer, Request};
use crate::tick::timing::Timing;
use crate::upkeep::{FailedClaim, TimeSlice, UpkeepState, Wake, Woken};

type Time = DateTime<Utc>;
type Random<'a> = &'a mut dyn FnMut() -> f64;

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
    Run(i64, Option<Box<Run>>),
    Attempt((i64, i32), Option<Attempt>),
    Worker(String, Option<Worker>),
    Definition(String, Option<Box<Definition>>),
    Kept(i64, Option<Kept>),
    Dependencies(Dependencies),
}

/// By predecessor and follower.
type Dependencies = BTreeMap<(i64, i64), Dependency>;

/// A tick's session, and the parts of its plan that the database sees.
pub(super) struct Session {
    pub(super) holder: Holder,
    pub(super) filter: ClaimFilter,
    pub(super) timing: Timing,
    /// Ticks of this host that have crashed.
    pub(super) dead: BTreeSet<String>,
    /// The host's time when the request is sent.
    pub(super) now: Instant,
    /// The connection hangs: of a request, only its first transaction is performed.
    pub(super) hangs: bool,
    state: UpkeepState,
    followed: Vec<i64>,
    undecided: usize,
    search: Option<(Bisection<DueRun>, Option<store::Error>)>,
}

impl Session {
    pub(super) fn new(holder: Holder, filter: ClaimFilter, timing: Timing, now: Instant) -> Self {
        let dead = BTreeSet::new();
        let state = UpkeepState::default();
        let (followed, undecided, hangs) = (Vec::new(), 0, false);
        Self { holder, filter, timing, dead, now, hangs, state, followed, undecided, search: None }
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
    pub(super) dependencies: Dependencies,
    /// Rows that another session has locked for deletion: runs, definitions and workers.
    pub(super) locked: BTreeSet<i64>,
    pub(super) locked_definitions: BTreeSet<String>,
    pub(super) locked_workers: BTreeSet<String>,
    /// Writes that a trigger rejects.
    pub(super) refused: BTreeSet<(i64, Write)>,
    /// Jobs whose new runs a trigger rejects.
    pub(super) refused_jobs: BTreeSet<String>,
    /// The last id. A failed transaction uses ids, too.
    pub(super) last_run: i64,
    waiting: BTreeSet<i64>,
    running: BTreeSet<i64>,
    journal: Vec<Before>,
    /// How many transactions were begun.
    pub(super) transactions: u64,
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
            Request::Prune => Answer::Prune,
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
                    Before::Run(id, run) => drop(self.set(id, run.map(|run| *run))),
                    Before::Attempt(id, row) => restore(&mut self.attempts, id, row),
                    Before::Worker(name, row) => restore(&mut self.workers, name, row),
                    Before::Definition(name, row) => {
                        restore(&mut self.definitions, name, row.map(|row| *row));
                    }
                    Before::Kept(id, row) => restore(&mut self.kept, id, row),
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
        self.waiting.remove(&id);
        self.running.remove(&id);
        let Some(run) = run else { return self.runs.remove(&id) };
        match run.status {
            Status::Queued | Status::Failed => drop(self.waiting.insert(id)),
            Status::Running => drop(self.running.insert(id)),
            _ => {}
        }
        self.runs.insert(id, run)
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
        self.journal.push(Before::Run(id, before.map(Box::new)));
        Ok(())
    }

    /// Adds an attempt to the history, unless it is there already.
    fn add_attempt(&mut self, id: (i64, i32), attempt: Attempt) {
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
            let limits = self.limits();
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
        let mut slice = TimeSlice::new(None, &mut state);
        let Seen { fires, locked, lost, expired, followers, .. } = seen;
        slice.is_cut = !has_time && (fires || locked || lost || expired || followers);
        if seen.fires && has_time {
            self.fire(&mut slice)?;
        }
        if seen.locked && has_time {
            self.record_stored_results(&mut slice)?;
        }
        if seen.lost && has_time {
            self.recover_all(&mut slice, random)?;
        }
        if seen.expired && has_time {
            self.expire_all(&mut slice)?;
        }
        if (seen.followers || slice.has_changed) && has_time {
            self.release_followers(&mut slice, None)?;
        }
        let (has_changed, has_more) = (slice.has_changed, slice.is_cut);
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
            let suspects = Bisection::of(self.preview(&session.filter, 5000));
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
            .then(|| (tick.clone(), now + interval(asked.right_lasts)));
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
        let limits = self.limits();
        let followers = self.dependencies.values().any(|it| it.state == State::Due);
        Ok(Seen { claiming_tick, locked, lost, expired, fires, followers, limits })
    }

    fn leave(&mut self, worker: &str, tick: &str) -> store::Result<()> {
        self.transact("release the claim right", |it| it.return_right(worker, tick))
    }

    /// release_right.sql
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
    fn record_stored_results(&mut self, slice: &mut TimeSlice) -> store::Result<()> {
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
                result.add_age(store::seconds(as_seconds(it.now - kept.written_at)));
                it.finish(&kept.worker, &[&result]).map(|_| true)
            });
            match recorded {
                Err(error) if error.may_be_about_rows() => {}
                recorded => slice.has_changed |= recorded?,
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
        let (mut recorded, mut followed) = self.finish(&session.holder.worker, &free)?;
        let skipped = results.iter().filter(|it| locked.contains(&it.token.id));
        for result in skipped.chain(kept) {
            let (worker, claim) = (&session.holder.worker, result.token);
            if self.keep_locked(worker, &claim, Duration::ZERO, Some(result.clone())) {
                recorded.insert(claim, result.next_status.status);
            }
        }
        let free: Vec<_> = unstarted.iter().filter(|it| !locked.contains(&it.id)).collect();
        followed.extend(self.release(&session.holder.worker, &free)?);
        let queues_runs = !followed.is_empty();
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

    /// finish.sql, recorded_before.sql and note_lost.sql
    fn finish(&mut self, worker: &str, ended: &[&Finish]) -> Result<(Recorded, Vec<i64>)> {
        let now = self.now;
        let (mut recorded, mut ended_runs) = (Recorded::new(), BTreeSet::new());
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
            self.add_attempt((result.token.id, result.token.attempt), attempt);
        }
        let followed = self.mark_followers(&ended_runs);
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
        Ok((recorded, followed))
    }

    /// limited_runs, of definitions that only limit how many of their runs run at once. Also the
    /// first definition that another session has locked.
    fn within_limits(
        &self,
        worker: &str,
        claim: &Claim,
        filter: &ClaimFilter,
    ) -> (Vec<&Run>, Option<String>) {
        let (mut runs, mut skipped) = (Vec::new(), None);
        for (name, definition) in &self.definitions {
            let is_other = |id: i64| self.runs.get(&id).is_none_or(|run| run.job_type != *name);
            let Some(most) = definition.most_running().filter(|_| {
                self.is_job_served(name, filter) && !filter.only_run.is_some_and(is_other)
            }) else {
                continue;
            };
            let is_of = |run: &&Run| run.job_type == *name;
            let is_due = |run: &&Run| run.run_at <= self.now && filter.serves(&run.queue);
            let mut due: Vec<_> = self.waiting().filter(is_of).filter(is_due).collect();
            if !due.is_empty() && self.locked_definitions.contains(name) {
                skipped.get_or_insert_with(|| name.clone());
                continue;
            }
            due.retain(|run| !filter.excludes(run.id) && !self.is_locked(run.id));
            due.retain(|run| !run.is_expired(self.now) && run.is_for(worker));
            due.retain(|run| !self.has_running_lock(run));
            due.sort_by_key(|run| (run.priority, run.run_at, run.id));
            let free = (most as usize).saturating_sub(self.running().filter(is_of).count());
            due.truncate(free.min(claim.at_most as usize));
            runs.extend(due);
        }
        (runs, skipped)
    }

    /// Whether claims must check limits or locks.
    fn limits(&self) -> bool {
        self.definitions.values().any(|it| it.most_running().is_some())
            || self.waiting().any(|run| run.lock.is_some())
    }

    /// Whether a run with the same lock is running. Definitions have no locks here.
    fn has_running_lock(&self, run: &Run) -> bool {
        run.lock.is_some() && self.running().any(|it| it.lock == run.lock)
    }

    /// The runs that their locks let start: of each lock, the first one.
    fn within_locks<'a>(&self, mut runs: Vec<&'a Run>) -> Vec<&'a Run> {
        runs.sort_by_key(|run| (run.priority, run.run_at, run.id));
        let mut taken = BTreeSet::new();
        runs.retain(|run| {
            let is_first = run.lock.as_ref().is_none_or(|lock| taken.insert(lock));
            is_first && !self.has_running_lock(run)
        });
        runs
    }

    fn is_limited(&self, job: &str) -> bool {
        self.definitions.get(job).is_some_and(|it| it.most_running().is_some())
    }

    /// Whether a tick with this filter claims runs of the job.
    fn is_job_served(&self, job_type: &str, filter: &ClaimFilter) -> bool {
        let kind = self.definitions.get(job_type).map(|definition| definition.spec.kind);
        !filter.excluded_jobs.iter().any(|it| it == job_type)
            && !kind.is_some_and(|kind| filter.excluded_kinds.contains(&kind))
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
        let (within_limits, skipped) = if claim.limits {
            self.within_limits(&holder.worker, claim, filter)
        } else {
            (Vec::new(), None)
        };
        let has_right = self.workers.get(&holder.worker).is_some_and(|row| {
            row.claiming.as_ref().is_some_and(|(tick, until)| *tick == holder.tick && *until > now)
        });
        let may_claim = has_right || filter.only_run.is_some();
        let mut oldest: BTreeMap<(&str, i32), Time> = BTreeMap::new();
        for run in self.waiting() {
            let first = oldest.entry((&run.queue, run.priority)).or_insert(run.run_at);
            *first = run.run_at.min(*first);
        }
        // When the lane of a run begins, if the claim reads the run there.
        let lane = |run: &Run| match &claim.after {
            None => oldest.get(&(&*run.queue, run.priority)).copied(),
            Some(after) => {
                let is_of = |it: &&Position| it.queue == run.queue && it.priority == run.priority;
                let last = after.iter().find(is_of)?;
                ((run.run_at, run.id) > (last.run_at, last.id)).then_some(last.run_at)
            }
        };
        let is_claimable = |run: &&Run| {
            run.run_at <= now
                && !run.is_expired(now)
                && !filter.excludes(run.id)
                && filter.serves(&run.queue)
                && self.is_job_served(&run.job_type, filter)
                && !self.is_limited(&run.job_type)
                && (run.lock.is_some() || !self.is_locked(run.id))
                && run.is_for(&holder.worker)
        };
        let (with_lock, without_lock): (Vec<_>, Vec<_>) =
            self.waiting().filter(is_claimable).partition(|run| run.lock.is_some());
        // The first run of each lock, unless another session has locked its row.
        let with_lock = self.within_locks(with_lock).into_iter();
        let with_lock = with_lock
            .filter(|run| (claim.limits || claim.locks) && !self.is_locked(run.id))
            .take(at_most);
        let by_id = self.within_locks(within_limits.into_iter().chain(with_lock).collect());
        // The order of claims: priority, age of the lane, queue, then place in the lane.
        let mut due: Vec<_> = without_lock
            .into_iter()
            .filter_map(|run| Some((run.priority, lane(run)?, &run.queue, run.run_at, run.id)))
            .collect();
        due.extend(by_id.iter().map(|it| (it.priority, it.run_at, &it.queue, it.run_at, it.id)));
        due.sort_unstable();
        due.truncate(if may_claim { at_most } else { 0 });
        let mut claimed = Vec::new();
        let mut bytes = 0;
        for (place, (.., id)) in due.iter().enumerate() {
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
        claimed.sort_by_key(|run| (run.priority, run.run_at, run.id));
        let claimed: Vec<_> = claimed.into_iter().map(|run| self.claimed(run)).collect();
        let has_released = claim.release_right && claim.is_short(&claimed);
        if has_released {
            self.return_right(&holder.worker, &holder.tick)?;
        }
        Ok(ClaimResult { claimed, skipped, has_released, ..ClaimResult::default() })
    }

    /// Returns what a claim says about a run.
    fn claimed(&self, run: Run) -> Claimed {
        let after: Vec<_> = self.predecessors(run.id).map(|(id, _)| id.to_string()).collect();
        let definition = self.definitions.get(&run.job_type).map(|definition| &definition.spec);
        let max_attempts = run.most_attempts();
        // Claims find runs with a lock or a limit by these, and all others by their lanes.
        let is_of_lane = run.lock.is_none() && !self.is_limited(&run.job_type);
        let Run { id, queue, priority, run_at, .. } = run;
        let position = Position { queue, priority, run_at, id };
        Claimed {
            id,
            position: is_of_lane.then_some(position),
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
            key: run.key.filter(|_| run.key_scope == "retained"),
            scheduled_for: run.scheduled_for.map(|at| at.format("%Y-%m-%dT%H:%M:%SZ").to_string()),
            after: (!after.is_empty()).then(|| after.join(",")),
            // The model has no outputs.
            passes_results: false,
            prints_json: false,
            traceparent: None,
            results: None,
            job_type: run.job_type,
        }
    }

    /// lock_runs.sql and release_claims.sql
    fn release(&mut self, worker: &str, claims: &[&FencingToken]) -> Result<Vec<i64>> {
        let mut released = BTreeSet::new();
        for claim in claims {
            let Some(run) = self.held(worker, claim) else { continue };
            let run = Run { attempts: run.attempts - 1, ..run.clone() };
            let (status, _) = self.end(&run, &End::of(Status::Queued, None, None))?;
            if status == Status::Cancelled {
                released.insert(claim.id);
            }
        }
        Ok(self.mark_followers(&released))
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
            self.add_attempt((claim.id, claim.attempt), attempt);
        }
    }

    /// Returns the history of an attempt that lost its lease, which ends now.
    fn ended_now(&self, worker: &str, started_at: Time, outcome: &str, error: &str) -> Attempt {
        let (worker, outcome, error) = (worker.to_owned(), outcome.to_owned(), error.to_owned());
        let (error_type, error) = (Some(outcome.clone()), Some(error));
        Attempt { worker, started_at, finished_at: self.now, outcome, error_type, error }
    }

    /// As `upkeep::recover`. The order of the runs does not matter.
    fn recover_all(&mut self, slice: &mut TimeSlice, random: Random<'_>) -> store::Result<()> {
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
            let any = slice.work_off(waits, recover, |_, _| Ok(false))?;
            if !slice.try_go_on(any, found == 500) {
                return Ok(());
            }
        }
    }

    /// As `upkeep::expire`.
    fn expire_all(&mut self, slice: &mut TimeSlice) -> store::Result<()> {
        self.transactions += 1;
        let is_expired = |run: &&Run| run.is_expired(self.now);
        let mut expired: Vec<_> = self.waiting().filter(is_expired).collect();
        expired.sort_by_key(|run| (run.expires_at, run.id));
        let expired = expired.iter().map(|run| run.id).collect();
        slice.work_off(expired, |ids| self.expire(ids), |_, _| Ok(false)).map(drop)
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
            it.mark_followers(&ended);
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
                it.add_attempt((*id, *attempt), lost);
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
            let ended = recovered.iter().filter(|run| run.status != Status::Failed);
            it.mark_followers(&ended.map(|run| run.id).collect());
            Ok(recovered)
        })
    }

    /// preview.sql
    fn preview(&self, filter: &ClaimFilter, limit: usize) -> Vec<DueRun> {
        let is_due = |run: &&Run| {
            run.run_at <= self.now
                && !run.is_expired(self.now)
                && !filter.excludes(run.id)
                && filter.serves(&run.queue)
                && self.is_job_served(&run.job_type, filter)
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
                        error_type: Some("claim_rejected".to_owned()),
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
    fn fire(&mut self, slice: &mut TimeSlice) -> store::Result<()> {
        loop {
            self.transactions += 1;
            let (plans, _) = due::plan_fires(self.due_schedules());
            let found = plans.len();
            let mut moved = false;
            let this = RefCell::new(&mut *self);
            let fire = |part: &[FirePlan]| Ok(!this.borrow_mut().fire_planned(part)?.is_empty());
            for batch in due::into_batches(plans) {
                moved |= slice.work_off(batch, fire, |plan, _| fire(&[due::put_off(plan.due)]))?;
            }
            let is_full = i64::try_from(found).is_ok_and(|it| it >= store::FIRED_AT_ONCE);
            if !slice.try_go_on(moved, is_full) {
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
            ..DueSchedule::default()
        });
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|it| (it.seen.is_none(), it.seen, it.id));
        due.truncate(usize::try_from(store::FIRED_AT_ONCE).unwrap_or(0));
        due
    }

    /// jobctl.fire, for times that were planned just now. Returns the new runs of each schedule, by
    /// its place.
    fn fire_planned(&mut self, plans: &[FirePlan]) -> store::Result<Vec<(usize, Vec<i64>)>> {
        self.transact("fire schedules", |it| {
            let mut fired = Vec::new();
            for (place, plan) in plans.iter().enumerate() {
                let definition = &it.definitions[&plan.due.name];
                if !it.locked_definitions.contains(&plan.due.name) {
                    let runs = it.fire_one(definition.clone(), plan)?;
                    fired.push((place, runs));
                }
            }
            Ok(fired)
        })
    }

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
            let mut run = self.new_run(&spec.name);
            if self.refused_jobs.contains(&spec.name) {
                return Err(Cause::Refused);
            }
            let fire = (Some(id), Some(nominal));
            if self.runs.values().any(|it| (it.definition_id, it.scheduled_for) == fire) {
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
}

/// Followers.
impl Database {
    /// Returns the runs that wait for a run.
    pub(super) fn followers(&self, id: i64) -> impl Iterator<Item = (i64, Dependency)> {
        self.dependencies.range((id, 0)..=(id, i64::MAX)).map(|((_, run), row)| (*run, *row))
    }

    /// Returns the runs that a run waits for.
    pub(super) fn predecessors(&self, id: i64) -> impl Iterator<Item = (i64, Dependency)> {
        let rows = self.dependencies.iter().filter(move |((_, run), _)| *run == id);
        rows.map(|((after, _), row)| (*after, *row))
    }

    /// Whether each run that a run waits for has ended as it asks.
    pub(super) fn is_met(&self, run: i64) -> bool {
        self.predecessors(run).all(|(_, row)| row.state == State::Met)
    }

    pub(super) fn has_succeeded(&self, id: i64) -> bool {
        self.runs.get(&id).is_some_and(|run| run.status == Status::Succeeded)
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
    pub(super) fn mark_followers(&mut self, runs: &BTreeSet<i64>) -> Vec<i64> {
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
        Ok((decides, self.mark_followers(&cancelled)))
    }

    /// As `Database::follow_up` of a tick.
    fn follow_up(&mut self, session: &mut Session) {
        if session.followed.is_empty() || session.hangs {
            return;
        }
        let mut state = std::mem::take(&mut session.state);
        let mut slice = TimeSlice::new(None, &mut state);
        let decided = self.release_followers(&mut slice, Some(&mut session.followed));
        session.undecided = if slice.has_changed { 0 } else { session.undecided + 1 };
        if decided.is_err() || session.undecided > 5 {
            session.followed.clear();
        }
        session.state = state;
    }

    /// As `upkeep::release_followers`.
    fn release_followers(
        &mut self,
        slice: &mut TimeSlice,
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
            if !slice.work_off(tried.clone(), decide, set_aside)? {
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

/// What operators and applications write, in the smallest form: the rules of their commands are
/// checked by `sequences.rs`.
impl Database {
    /// A new run of a job, due now, with the values of its definition. It is not in the table yet.
    pub(super) fn new_run(&mut self, job: &str) -> Run {
        self.last_run += 1;
        let (now, Definition { id, spec, .. }) = (self.now, &self.definitions[job]);
        Run {
            id: self.last_run,
            definition_id: Some(*id),
            job_type: job.to_owned(),
            payload: "{}".to_owned(),
            queue: spec.queue.clone(),
            priority: spec.priority,
            run_at: now,
            status: Status::Queued,
            attempts: 0,
            max_attempts: spec.max_attempts,
            uncounted_attempts: 0,
            snoozed_attempts: 0,
            granted_attempts: None,
            timeout: None,
            backoff: spec.backoff.clone(),
            key: None,
            key_scope: "retained".to_owned(),
            scheduled_for: None,
            expires_at: spec.expires.map(|expires| now + seconds(expires)),
            share: None,
            lock: None,
            worker: None,
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

    /// Lets a run wait for others.
    pub(super) fn block(&mut self, id: i64, after: &[i64], rule: AfterRule) {
        for before in after {
            let state = if self.has_succeeded(*before) { State::Met } else { State::Due };
            self.dependencies.insert((*before, id), Dependency { rule, state });
        }
        if !self.is_met(id) {
            let run = Run { status: Status::Blocked, ..self.runs[&id].clone() };
            self.set(id, Some(run));
        }
    }

    /// Queues a run that has ended, waits, or runs: then it is taken from its worker.
    pub(super) fn requeue(&mut self, id: i64) {
        let _ = self.transact("retry", |it| {
            let run = it.unlocked_run(id)?;
            if let Some(worker) = &run.locked_by {
                let started = run.started_at.unwrap_or(it.now);
                it.add_attempt(
                    (id, run.attempts),
                    it.ended_now(worker, started, "interrupted", "taken"),
                );
            }
            it.write(Run {
                status: Status::Queued,
                run_at: it.now,
                max_attempts: run.max_attempts.max(run.attempts - run.uncounted_attempts + 1),
                locked_by: None,
                locked_until: None,
                cancel_requested_at: None,
                expires_at: None,
                finished_at: None,
                updated_at: it.now,
                ..run
            })
        });
    }

    /// Cancels a waiting run, or asks for it.
    pub(super) fn cancel(&mut self, id: i64) {
        let _ = self.transact("cancel", |it| {
            let run = it.unlocked_run(id)?;
            if run.status == Status::Running {
                let cancel_requested_at = run.cancel_requested_at.or(Some(it.now));
                return it.write(Run { cancel_requested_at, updated_at: it.now, ..run });
            }
            it.end(&run, &End::of(Status::Cancelled, None, None))?;
            it.mark_followers(&BTreeSet::from([id]));
            Ok(())
        });
    }

    /// Returns a run, unless another session has locked it.
    fn unlocked_run(&self, id: i64) -> Result<Run> {
        if self.is_locked(id) { Err(Cause::Locked) } else { Ok(self.runs[&id].clone()) }
    }

    /// Deletes a run, its history, and what it waited for.
    pub(super) fn delete(&mut self, id: i64) {
        if self.is_locked(id) {
            return;
        }
        self.set(id, None);
        self.attempts.retain(|(run, _), _| *run != id);
        let runs = &self.runs;
        self.dependencies.retain(|(after, run), row| {
            let is_over = row.state == State::Met || !runs.contains_key(after);
            (*run != id || !is_over) && (*after != id || runs.contains_key(run))
        });
        self.mark_followers(&BTreeSet::from([id]));
    }

    /// Writes the definitions of a file. Those that exist keep their next times and pauses.
    pub(super) fn define(&mut self, wanted: Vec<Spec>) {
        for spec in wanted {
            let schedule = spec.schedule.as_ref();
            let next_run_at = schedule.and_then(|it| first_fire(it, &spec.time_zone, self.now));
            let new = Definition {
                id: i64::try_from(self.definitions.len()).unwrap_or(0) + 1,
                spec: spec.clone(),
                paused_at: None,
                next_run_at,
                put_off_until: None,
                rate_next_at: None,
                last_share: None,
                skipped_fires: 0,
            };
            let name = spec.name.clone();
            self.definitions.entry(name).or_insert(new).spec = spec;
        }
    }

    /// Pauses a schedule, or resumes it at its next time.
    pub(super) fn pause(&mut self, name: &str, pauses: bool) {
        let now = self.now;
        let Some(row) = self.definitions.get_mut(name) else { return };
        row.paused_at = pauses.then_some(now);
        if let Some(schedule) = row.spec.schedule.as_ref().filter(|_| !pauses) {
            row.next_run_at = first_fire(schedule, &row.spec.time_zone, now);
        }
    }
}
