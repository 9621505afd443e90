//! What must hold after every step: the promises of README.md and the invariants of the design.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};

use super::super::request::{Answer, Request};
use super::database::Database;
use super::host::{Host, Stage, Tick};
use super::rows::{Definition, Kept, Run};
use super::{Time, seconds};
use crate::job::attempt::{HistoryOutcome, StopReason};
use crate::job::backoff::wait_after;
use crate::job::failure::ErrorType;
use crate::job::status::Status;
use crate::store::{Claimed, FencingToken, LeaseState};
use crate::tick::execution::Task;

/// The driver needs less than this for the instructions of an answer.
const STEP: Duration = Duration::from_millis(1);

/// The cause of a change of the database.
pub(super) enum By<'a> {
    /// The claims are those that the machine named.
    Tick {
        worker: &'a str,
        tick: &'a Tick,
        request: &'a Request,
        tokens: &'a [FencingToken],
    },
    /// A statement of a tick that no check has seen.
    LateCommit,
    Operator(&'static str),
}

/// How many runs of each job run.
fn count_running(database: &Database) -> BTreeMap<String, usize> {
    let mut running = BTreeMap::new();
    for run in database.runs.values().filter(|run| run.status == Status::Running) {
        *running.entry(run.job_type.clone()).or_default() += 1;
    }
    running
}

pub(super) struct Checks {
    /// The first promise that was broken.
    pub(super) broken: Option<String>,
    /// A large world is only measured.
    pub(super) is_off: bool,
    lease: Duration,
    /// The longest answer in a world whose database is slow, else 0.
    pub(super) slow: Time,
    /// The rows after the last change.
    seen: BTreeMap<i64, Run>,
    kept: BTreeMap<i64, Kept>,
    /// The runs that have not ended and may still end.
    pub(super) unfinished: usize,
    /// The database's clock at the last change.
    clock: DateTime<Utc>,
    /// The runs of each schedule's nominal time.
    fired: BTreeMap<(i64, DateTime<Utc>), i64>,
    /// How many processes a run had, and how many of them a failover forgot.
    starts: BTreeMap<i64, (i32, i32)>,
    /// The claims whose process has started.
    started: BTreeSet<FencingToken>,
    /// When the database granted or renewed a lease.
    granted: BTreeMap<FencingToken, Time>,
    /// The number of the tick that made a claim.
    claimed_by: BTreeMap<FencingToken, usize>,
    /// How many runs of each job were running after the last change.
    running: BTreeMap<String, usize>,
    /// When a tick learned that a lease is lost.
    lost: BTreeMap<FencingToken, Time>,
    /// Results that are not recorded, since when.
    results: BTreeMap<FencingToken, Time>,
    pub(super) calm_since: Option<Time>,
    /// Two processes of one run are excused until then: a failover forgot a claim.
    excused_until: Time,
    failed_over_at: Time,
    /// Runs that an operator has taken from their worker.
    forced: BTreeSet<i64>,
    /// Runs of which a trigger has rejected some write.
    pub(super) refused: BTreeSet<i64>,
    /// The latest second in which a tick has connected, and how often.
    connects: BTreeMap<usize, (Time, u32)>,
    /// How many wakes of a tick in a row have left as many schedules due, and how many.
    left_due: BTreeMap<usize, (u32, usize)>,
}

impl Checks {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            broken: None,
            is_off: false,
            lease,
            slow: 0,
            seen: BTreeMap::new(),
            kept: BTreeMap::new(),
            unfinished: 1,
            clock: DateTime::UNIX_EPOCH,
            fired: BTreeMap::new(),
            starts: BTreeMap::new(),
            started: BTreeSet::new(),
            granted: BTreeMap::new(),
            claimed_by: BTreeMap::new(),
            running: BTreeMap::new(),
            lost: BTreeMap::new(),
            results: BTreeMap::new(),
            calm_since: None,
            excused_until: 0,
            failed_over_at: 0,
            forced: BTreeSet::new(),
            refused: BTreeSet::new(),
            connects: BTreeMap::new(),
            left_due: BTreeMap::new(),
        }
    }

    pub(super) fn fail(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    /// Compares the rows with those after the last change.
    pub(super) fn changed(&mut self, database: &Database, by: &By<'_>, now: Time) {
        if self.is_off {
            return;
        }
        let mut seen = std::mem::take(&mut self.seen);
        self.clock = database.now;
        let is_gone = |id: &i64| !database.runs.contains_key(id);
        let gone: Vec<_> = seen.keys().copied().filter(is_gone).collect();
        for id in gone {
            let is_final = seen.remove(&id).is_some_and(|run| run.finished_at.is_some());
            if !is_final || !matches!(by, By::Operator("prune")) {
                self.fail(format!("run {id} is lost"));
            }
        }
        let is_unfinished = |run: &&Run| run.finished_at.is_none() && !database.is_stuck(run);
        let unfinished = database.runs.values().filter(is_unfinished).count();
        for (id, run) in &database.runs {
            let old = seen.get(id);
            let is_same = |old: &Run| {
                old.updated_at == run.updated_at
                    && old.locked_until == run.locked_until
                    && old.status == run.status
                    && old.attempts == run.attempts
            };
            if old.is_some_and(is_same) {
                continue;
            }
            if let Err(why) = self.judge(old, run, by, database, now) {
                let status = old.map_or("-", |old| old.status.as_str());
                let line = format!("run {id} {status} -> {}: {why}", run.status.as_str());
                self.fail(line);
            }
            seen.insert(*id, run.clone());
        }
        self.seen = seen;
        for (id, kept) in &database.kept {
            let is_same = |old: &Kept| old.written_at == kept.written_at;
            if kept.result.is_none() && !self.kept.get(id).is_some_and(is_same) {
                self.granted.insert(kept.claim, now);
            }
        }
        self.kept.clone_from(&database.kept);
        self.unfinished = unfinished;
        self.check_limits(database);
    }

    /// A tick that has just woken has fired the schedules, even if it holds runs.
    pub(super) fn woken(&mut self, database: &Database, tick: usize) {
        if self.is_off {
            return;
        }
        let locked = &database.locked_definitions;
        let due = database.due_schedules();
        let due = due.iter().filter(|due| !locked.contains(&due.name)).count();
        let (wakes, before) = self.left_due.entry(tick).or_default();
        // A slow database leaves time for some of them.
        *wakes = if due > 0 && due >= *before { *wakes + 1 } else { 0 };
        *before = due;
        if *wakes > 2 {
            self.fail(format!("tick {tick} has woken three times, and a schedule is still due"));
        }
    }

    /// Judges the change of one run.
    fn judge(
        &mut self,
        old: Option<&Run>,
        run: &Run,
        by: &By<'_>,
        database: &Database,
        now: Time,
    ) -> Result<(), String> {
        let claim = token(run);
        // Fails if this is true, which must not happen.
        let forbid = |wrong: bool, why: &str| if wrong { Err(why.to_owned()) } else { Ok(()) };
        let is_running = run.status == Status::Running;
        forbid(
            is_running != run.locked_until.is_some(),
            "a lease without running, or the reverse",
        )?;
        forbid(run.attempts > run.most_attempts(), "more attempts than it may have")?;
        let is_interrupted = run.last_error.as_deref() == Some("interrupted by shutdown");
        let interrupted = run.uncounted_attempts - run.snoozed_attempts;
        let is_used_up = run.status == Status::Dead && interrupted < 100;
        forbid(is_interrupted && is_used_up, "an interruption used up its last attempt")?;
        let history = database.attempts.range((run.id, 1)..=(run.id, i32::MAX)).count();
        let ended = run.attempts - i32::from(is_running);
        forbid(history != ended as usize, &format!("{history} rows of history, {ended} attempts"))?;
        let Some(old) = old else { return self.created(run, by) };
        let is_asked = matches!(by, By::Operator("retry" | "cancel"));
        // A tick has decided about it. The same statement may also claim it.
        if old.status == Status::Blocked && run.status != old.status && !is_asked && !is_running {
            return Ok(());
        }
        let was_running = old.status == Status::Running;
        let held = was_running.then(|| token(old));
        let is_held = |worker: &str, of: &FencingToken| {
            Some(*of) == held && old.locked_by.as_deref() == Some(worker)
        };
        let is_over = old.locked_until.is_some_and(|until| until < database.now);
        match by {
            By::Operator("retry") => {
                forbid(was_running || old.status == Status::Succeeded, "retried")?;
            }
            By::Operator("force") => {
                self.forced.insert(run.id);
                forbid(!was_running, "forced")?;
            }
            By::Operator("again") => forbid(old.status != Status::Succeeded, "retried again")?,
            By::Operator("cancel") => forbid(old.finished_at.is_some(), "cancelled a final run")?,
            By::Operator(_) => return Err("changed by an operator".to_owned()),
            By::LateCommit => {}
            By::Tick { worker, tick, request, tokens } => match request {
                Request::Wake(_) if was_running && !is_running => {
                    let kept = self.kept.get(&run.id).filter(|kept| Some(kept.claim) == held);
                    let is_stored = kept.is_some_and(|kept| kept.result.is_some());
                    let is_kept = kept.is_some_and(|kept| kept.locked_until > database.now);
                    forbid(
                        !is_stored && (!is_over || is_kept),
                        "recovered before its lease ended",
                    )?;
                    // A run that succeeded keeps the error of an earlier attempt.
                    let is_recovered = run.error_type.as_deref() == Some("lease_expired")
                        && run.status != Status::Succeeded;
                    forbid(
                        is_stored && is_recovered && !was_lost(kept),
                        "its stored result is lost",
                    )?;
                }
                // It was queued or failed, and is cancelled now.
                Request::Wake(_) if old.finished_at.is_none() && run.finished_at.is_some() => {
                    let is_early = old.expires_at.is_none_or(|at| at > database.now);
                    forbid(is_early, "cancelled before it expired")?;
                }
                // A search has put it off.
                Request::Wake(_) => forbid(old.finished_at.is_some() || was_running, "put off")?,
                Request::Step { results, kept, claim: wanted, .. } => {
                    let (tokens, unstarted) = tokens.split_at(results.len());
                    let unstarted = &unstarted[..unstarted.len() - kept.len()];
                    let mut all = results.iter().zip(tokens);
                    let result = all.find(|(_, of)| is_held(worker, of)).map(|(it, _)| it);
                    let is_released = was_running
                        && result.is_none()
                        && unstarted.iter().any(|of| of.id == run.id);
                    if is_released {
                        let is_fenced = unstarted.iter().any(|of| is_held(worker, of));
                        forbid(!is_fenced, "a lost claim was released")?;
                        forbid(
                            self.started.contains(&token(old)),
                            "a started attempt was released",
                        )?;
                        let attempts = old.attempts - i32::from(!is_running);
                        forbid(run.attempts != attempts, "released twice")?;
                    }
                    let is_lost = was_running && !is_released && result.is_none();
                    forbid(is_lost, "a result of a lost lease")?;
                    if let Some(result) = result.filter(|_| run.status == Status::Failed) {
                        let asked = result.next_status.error_type != Some(ErrorType::HttpStatus);
                        let counted = old.attempts - old.uncounted_attempts;
                        let least = wait_after(counted, &old.backoff, 0.0);
                        let waits = (run.run_at - database.now).to_std().unwrap_or_default();
                        let is_short = waits + Duration::from_millis(1) < least;
                        forbid(asked && is_short, "a backoff that is too short")?;
                    }
                    if is_running {
                        forbid(wanted.is_none(), "claimed without a claim")?;
                        forbid(
                            !was_running && old.run_at > database.now,
                            "claimed before it is due",
                        )?;
                        forbid(old.finished_at.is_some(), "a final run was claimed")?;
                        let is_expired = run.expires_at.is_some_and(|at| at <= database.now);
                        forbid(is_expired, "an expired run was claimed")?;
                        let attempts = old.attempts + i32::from(!is_released);
                        forbid(run.attempts != attempts, "a claim does not count its attempt")?;
                        self.claimed_by.insert(claim, tick.number);
                    }
                }
                Request::Renew { .. } => {
                    let is_fenced = tokens.iter().any(|of| is_held(worker, of));
                    forbid(!is_fenced || held != Some(claim), "a lost lease was renewed")?;
                }
                _ => return Err(format!("changed by {request:?}")),
            },
        }
        if is_running && !matches!(by, By::Operator(_)) {
            self.granted.insert(claim, now);
        }
        if let Some(held) = held.filter(|held| !is_running || *held != claim)
            && let Some(ended) = self.results.remove(&held)
            && self.calm_since.is_some_and(|calm| ended > calm + seconds(100))
        {
            // It waits for the answer to a wake, to an urgent renewal and to its own statement.
            let bound = seconds(3) + 11 * self.slow;
            let is_late = now > ended + bound && !self.refused.contains(&run.id);
            forbid(is_late, "its result was recorded late")?;
        }
        Ok(())
    }

    /// Judges a new run: a nominal time has one run, and only a tick fires it.
    fn created(&mut self, run: &Run, by: &By<'_>) -> Result<(), String> {
        if let Some(fire) = run.definition_id.zip(run.scheduled_for) {
            if let Some(other) = self.fired.insert(fire, run.id) {
                return Err(format!("the same time fired run {other}"));
            }
            return match by {
                By::Tick { request: Request::Wake(_), .. } | By::LateCommit => Ok(()),
                _ => Err("fired by no tick".to_owned()),
            };
        }
        Ok(())
    }

    /// `max_running` holds; a limit that was lowered waits until runs have ended.
    fn check_limits(&mut self, database: &Database) {
        let running = count_running(database);
        let before = std::mem::replace(&mut self.running, running.clone());
        for (name, running) in running {
            let most = database.definitions.get(&name).and_then(Definition::most_running);
            let before = before.get(&name).copied().unwrap_or(0);
            if most.is_some_and(|most| running > before && running > most as usize) {
                self.fail(format!("{running} runs of {name} at once, the limit is {most:?}"));
            }
        }
    }

    /// A tick hands claimed runs to its pool.
    pub(super) fn submitted(&mut self, tick: &Tick, tasks: &[Task], host: &Host) {
        if self.is_off {
            return;
        }
        let pool = &tick.pool;
        // The system may have fewer threads than the claim counted on.
        if pool.size < host.concurrency {
            return;
        }
        let free = pool.size.saturating_sub(pool.running.len() + pool.waiting.len());
        let last = tasks.iter().filter(|task| task.run.attempt >= task.run.max_attempts).count();
        if last > free {
            self.fail(format!("{} claims {last} last attempts for {free} threads", tick.name));
        }
    }

    /// A process starts.
    pub(super) fn started<'a>(
        &mut self,
        tick: &Tick,
        others: impl Iterator<Item = &'a Tick>,
        hosts: &[Host],
        database: &Database,
        run: &Claimed,
        now: Time,
    ) {
        if self.is_off {
            return;
        }
        let claim = run.token();
        let host = &hosts[tick.host];
        if !self.started.insert(claim) {
            self.fail(format!("{claim:?} started twice"));
        }
        if tick.stopping_since.is_some() {
            self.fail(format!("{claim:?} starts after a signal"));
        }
        let (starts, forgotten) = self.starts.entry(run.id).or_default();
        *starts += 1;
        if let Some(row) = database.runs.get(&run.id)
            && *starts > row.most_attempts() + *forgotten
        {
            let line = format!("run {} started {starts} times of {}", run.id, row.most_attempts());
            self.fail(line);
        }
        if let Some(row) = database.runs.get(&run.id)
            && token(row) == claim
            && row.cancel_requested_at.is_some_and(|at| at < claim.claimed_at)
        {
            self.fail(format!("run {} starts, but was cancelled before its claim", run.id));
        }
        // The clocks of hosts and of the database drift, and a paused clock knows no time.
        let (late, is_paused_here) =
            (TimeDelta::milliseconds(100), is_paused(host, now, self.lease));
        if let Some(row) = database.runs.get(&run.id)
            && token(row) == claim
            && row.expires_at.is_some_and(|at| at + late < database.now)
            && !is_paused_here
            && now > self.excused_until
        {
            self.fail(format!("run {} starts after it has expired", run.id));
        }
        // A process whose lease is lost ends soon.
        let is_held = |claim: &&FencingToken| {
            let is_held =
                |run: &Run| token(run) == **claim && run.locked_until > Some(database.now);
            database.runs.get(&claim.id).is_some_and(is_held)
        };
        let held = |tick: &Tick| tick.pool.running.keys().filter(is_held).count();
        let mut running = held(tick);
        for other in others {
            let is_excused = now < self.excused_until
                || self.forced.contains(&run.id)
                || is_paused(host, now, self.lease)
                || is_paused(&hosts[other.host], now, self.lease);
            if other.pool.running.keys().any(|it| it.id == run.id) && !is_excused {
                self.fail(format!(
                    "run {} runs on two hosts: {}, {}",
                    run.id, other.name, tick.name
                ));
            }
            if hosts[other.host].worker == host.worker {
                running += held(other);
            }
        }
        // After a pause longer than the lease, a tick does not count the runs of the other ticks of
        // its host before they have renewed their leases.
        let is_excused = now <= self.excused_until || is_paused(host, now, self.lease);
        if running >= host.concurrency && !is_excused {
            let line = format!("worker {}: {} processes at once", host.worker, running + 1);
            self.fail(line);
        }
    }

    /// A process has ended. `why`: by a stop or, if the inner value is missing, by its timeout.
    pub(super) fn ended(
        &mut self,
        claim: &FencingToken,
        why: Option<Option<StopReason>>,
        host: &Host,
        now: Time,
    ) {
        if self.is_off {
            return;
        }
        let is_calm = |calm: u64| now > calm.max(host.resumed) + seconds(40);
        let is_calm = self.calm_since.is_some_and(is_calm);
        let seen = self.seen.get(&claim.id).filter(|run| token(run) == *claim);
        if let Some(asked) = seen.and_then(|run| run.cancel_requested_at)
            && is_calm
            && !matches!(why, Some(Some(_)))
            && asked + TimeDelta::seconds(40) < self.clock
        {
            self.fail(format!("{claim:?} was cancelled, but went on"));
        }
        self.results.insert(*claim, now);
        let lease = self.lease.as_nanos() as u64;
        let Some(granted) = self.granted.get(claim).copied() else { return };
        // Clocks drift by a thousandth.
        let late = now.saturating_sub(granted + lease + lease / 500);
        if late > 0 && host.resumed <= granted {
            self.fail(format!("{claim:?} ended {late} ns after its lease, {why:?}"));
        }
        if let Some(lost) = self.lost.remove(claim)
            && now > lost + seconds(13)
            && host.resumed <= lost
        {
            self.fail(format!("{claim:?} ended long after its lease was lost"));
        }
    }

    /// A job is asked to stop, because its tick ends.
    pub(super) fn interrupted(&mut self, tick: &Tick, host: &Host, now: Time) {
        let grace = host.grace.as_nanos() as u64 * 99 / 100;
        let is_early = |first: Time| now < first + grace && host.resumed <= first;
        if tick.signalled.is_some_and(|(first, signals)| signals == 1 && is_early(first)) {
            self.fail(format!("{} stops jobs before --grace is over", tick.name));
        }
    }

    /// A job gets SIGTERM, or has ended.
    pub(super) fn stopped(&mut self, tick: &Tick, claim: &FencingToken, now: Instant) {
        let Some(Stage::Ending { why: Some(StopReason::LeaseLost), .. }) = tick.pool.stage(claim)
        else {
            return;
        };
        let is_asked = tick.pool.stops[claim].asked.is_some();
        let renewed = tick.renewed.get(claim).map(|sent| *sent + tick.timing.stop_after);
        if renewed.is_some_and(|until| now < until) && !is_asked {
            self.fail(format!("{claim:?} is ended, but its lease was renewed"));
        }
    }

    /// A request of a tick got no answer within the limit. The time within which results are
    /// recorded is only promised if all answers come, so that time begins again.
    pub(super) fn unanswered(&mut self, tick: usize, now: Time) {
        let of_tick = |claim: &FencingToken| self.claimed_by.get(claim) == Some(&tick);
        self.results.iter_mut().filter(|(claim, _)| of_tick(claim)).for_each(|(_, at)| *at = now);
    }

    /// A tick takes an answer, which says whose leases it renewed or lost.
    pub(super) fn answered(
        &mut self,
        tick: &mut Tick,
        decided: Instant,
        answer: &Answer,
        clock: Instant,
        now: Time,
    ) {
        let Answer::Renew(Ok(renewed)) = answer else { return };
        for (claim, state) in renewed {
            match state {
                LeaseState::Renewed | LeaseState::Kept | LeaseState::CancelRequested
                    if tick.pool.stops.get(claim).is_some_and(|stop| clock + STEP < stop.until) =>
                {
                    tick.renewed.insert(*claim, decided);
                }
                LeaseState::Lost if tick.pool.running.contains_key(claim) => {
                    self.lost.entry(*claim).or_insert(now);
                }
                _ => {}
            }
        }
    }

    /// A tick begins to connect.
    pub(super) fn connected(&mut self, tick: &Tick, now: Time) {
        if self.is_off {
            return;
        }
        let second = now / seconds(1);
        let (of, connects) = self.connects.entry(tick.number).or_default();
        if *of != second {
            (*of, *connects) = (second, 0);
        }
        *connects += 1;
        if *connects > 10 {
            self.fail(format!("{} connects again and again", tick.name));
        }
    }

    /// A tick sends a request.
    pub(super) fn sends(&mut self, tick: &Tick, request: &Request, host: &Host) {
        let is_over = tick.observed > tick.began + host.max_time();
        if is_over && matches!(request, Request::Step { claim: Some(_), .. }) {
            self.fail(format!("{} claims after --max-time", tick.name));
        }
        if matches!(request, Request::Store(_)) {
            if tick.pool.pauses_output > 0 {
                self.fail(format!("{} stores output right after a failure", tick.name));
            }
            let goes_on = |claim: &&FencingToken| {
                let is_asked = tick.pool.stops.get(claim).is_none_or(|stop| stop.asked.is_some());
                self.lost.contains_key(claim) && !is_asked
            };
            if let Some(claim) = tick.pool.running.keys().find(goes_on) {
                self.fail(format!("{} stores output before {claim:?} is stopped", tick.name));
            }
        }
    }

    /// A tick exits. It must be connected if that was possible for long.
    pub(super) fn reconnects(
        &mut self,
        tick: &Tick,
        host: &Host,
        up_since: Option<Time>,
        now: Time,
    ) {
        let Some(up_since) = up_since.filter(|_| tick.connected.is_none()) else { return };
        let could_since = up_since.max(host.cut_until).max(host.resumed).max(tick.disconnected_at);
        if now > could_since + seconds(30) && !self.is_off {
            self.fail(format!("{} does not connect again", tick.name));
        }
    }

    /// A tick has crashed, so its results can't be recorded.
    pub(super) fn crashed(&mut self, tick: &Tick) {
        for claim in tick.pool.running.keys() {
            self.results.remove(claim);
        }
        self.results.retain(|claim, _| self.claimed_by.get(claim) != Some(&tick.number));
    }

    /// A tick has exited. Without an error, it must have released its claims and its claim right.
    pub(super) fn exited(
        &mut self,
        tick: &Tick,
        database: &Database,
        is_ok: bool,
        now: Time,
        hosts: &[Host],
    ) {
        if self.is_off {
            return;
        }
        self.crashed(tick);
        if tick.is_slow && !tick.has_warned {
            self.fail(format!("{} does not say that the database is slow", tick.name));
        }
        let host = &hosts[tick.host];
        let was_paused = host.resumed > 0 && now < host.resumed + seconds(20);
        if let Some(claim) = tick.pool.running.keys().next().filter(|_| !was_paused) {
            self.fail(format!("{} exits, but {claim:?} still runs", tick.name));
        }
        if let Some((since, _)) = tick.signalled
            && now > since + host.grace.as_nanos() as u64 + seconds(60) + 11 * self.slow
            && host.resumed <= since
        {
            self.fail(format!("{} exits long after its signal", tick.name));
        }
        if !is_ok {
            return;
        }
        for run in database.runs.values().filter(|run| run.locked_until > Some(database.now)) {
            let claim = token(run);
            let is_revived = self.granted.get(&claim).is_some_and(|at| *at < self.failed_over_at);
            let is_refused = self.refused.contains(&run.id);
            let is_stored = database.kept(run).is_some_and(|kept| kept.result.is_some());
            let is_done = is_revived || is_refused || is_stored;
            if self.claimed_by.get(&claim) == Some(&tick.number) && !is_done {
                self.fail(format!("{} exits without error, but holds {claim:?}", tick.name));
            }
        }
        let row = database.workers.get(&host.worker);
        let right = row.and_then(|row| row.claiming.as_ref());
        // A tick does not know whether it still has the right after a reconnection, if a signal
        // ended its wait for an answer, or if a failover brought the right back.
        let was_answered = tick.connection == 1 && tick.stopping_since.is_none();
        let knows = was_answered && now > self.excused_until;
        if right.is_some_and(|(name, _)| *name == tick.name) && knows {
            self.fail(format!("{} exits without error, but has the claim right", tick.name));
        }
    }

    /// The standby took over: the last commits are lost.
    pub(super) fn failed_over(&mut self, database: &Database, now: Time) {
        let pruned: Vec<_> = self.starts.keys().copied().collect();
        for id in self.seen.keys().chain(&pruned) {
            // A run may be claimed and not yet started.
            let (starts, forgotten) = self.starts.entry(*id).or_default();
            let attempts = database.runs.get(id).map_or(0, |run| run.attempts);
            *forgotten = (*starts - attempts + 1).max(*forgotten);
        }
        self.seen = database.runs.clone();
        self.kept = database.kept.clone();
        let exists = |_: &(i64, DateTime<Utc>), id: &mut i64| database.runs.contains_key(id);
        self.fired.retain(exists);
        self.running = count_running(database);
        self.results.clear();
        self.failed_over_at = now;
        self.excused_until = now + 3 * self.lease.as_nanos() as u64;
    }

    /// Describes the runs that have not ended, and what they wait for.
    pub(super) fn stuck(database: &Database) -> String {
        let unfinished = database.runs.values().filter(|run| run.finished_at.is_none());
        let after = |run: &Run| database.predecessors(run.id).collect::<Vec<_>>();
        unfinished
            .map(|run| format!("{run:?} after {:?}", after(run)))
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// Whether the stored result is that of a job which was ended because its lease was lost.
fn was_lost(kept: Option<&Kept>) -> bool {
    let result = kept.and_then(|kept| kept.result.as_ref());
    result.is_some_and(|result| result.next_status.outcome == HistoryOutcome::LeaseExpired)
}

fn token(run: &Run) -> FencingToken {
    FencingToken {
        id: run.id,
        attempt: run.attempts,
        claimed_at: run.started_at.unwrap_or_default(),
    }
}

/// Whether a host is paused, or was a short time ago.
fn is_paused(host: &Host, now: Time, lease: Duration) -> bool {
    host.paused.is_some() || host.resumed > 0 && now < host.resumed + 2 * lease.as_nanos() as u64
}
