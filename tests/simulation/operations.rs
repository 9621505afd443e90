//! Random operations of ticks, operators and applications, by the rows that PostgreSQL has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::Random;
use super::database::{Database, Session, Write};
use super::postgres::{Reply, Rows, copy_of_request, tables};
use crate::exit::Exit;
use crate::job::action::JobKind;
use crate::job::attempt::HistoryOutcome;
use crate::job::due::{self, FirePlan};
use crate::job::enqueue::{AfterRule, KeyScope, OnConflict};
use crate::job::failure::ErrorType;
use crate::job::next_status::NextStatus;
use crate::job::status::{HoldScope, Status};
use crate::store::{
    self, Claim, ClaimFilter, Dependencies, Edit, FencingToken, Finish, HoldTarget, Holder, Keep,
    Kind, NewRun, Position, Predecessor, RetryTerms, Unlisted,
};
use crate::tick::request::{Answer, Request};
use crate::tick::timing::Timing;
use crate::upkeep::{FailedClaim, Wake, tick_id};

/// The first time of the clock, in microseconds.
const BEGINNING: i64 = 1_800_000_000_000_000;
pub(super) const STEPS: usize = 40;
pub(super) const LEASE: Duration = Duration::from_secs(60);
/// How long a claim right lasts.
pub(super) const RIGHT: Duration = Duration::from_secs(15);
/// Workers and their ticks; the last tick has crashed.
pub(super) const TICKS: [(&str, &str); 4] = [("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "")];
const JOBS: [&str; 3] = ["d1", "d2", "d3"];

#[derive(Debug)]
pub(super) enum Operation {
    /// A request of the tick with this index in `TICKS`.
    Tick(usize, Request),
    Enqueue(Vec<NewRun>, Vec<Dependencies>),
    /// A command for runs whose status is one of these, and its name.
    Act(store::Operation, Vec<i64>, Vec<Status>, String),
    Prune(Vec<i64>, Keep),
    Pause(String),
    Resume(String),
    /// A hold that lasts this long, or until its release.
    Hold(HoldTarget, Option<Duration>),
    Release(HoldTarget),
    /// The definitions of a file, what happens to those that it no longer has, and whether it takes
    /// over definitions of other files.
    Apply(Vec<Value>, Unlisted, bool),
    /// Each run, its attempt, and the wait before the next one.
    Recover(Vec<(i64, i32, Duration)>),
    Fire(Vec<FirePlan>),
    /// Another session locks these rows until `Unlock`.
    Lock(Vec<i64>, Vec<String>, Vec<String>),
    Unlock,
    /// From now on a trigger rejects this write.
    Refuse(i64, Write),
    RefuseJob(String),
    /// Both wait for a lock of this run; then they go on in this order.
    Race(i64, Box<[Operation; 2]>),
}

/// Returns what a tick claims: mostly all runs.
pub(super) fn filter(random: &mut Random) -> ClaimFilter {
    let words_if = |is_set: bool, words: &[&str]| -> Vec<String> {
        if is_set { words.iter().map(|word| (*word).to_owned()).collect() } else { Vec::new() }
    };
    ClaimFilter {
        queues: words_if(random.chance(10), &["default", "y"]),
        excluded_jobs: words_if(random.chance(10), &["shell"]),
        excluded_kinds: if random.chance(10) { vec![JobKind::Http] } else { Vec::new() },
        excluded_runs: Vec::new(),
        only_run: if random.chance(5) { random.maybe(&[1, 2, 3, 5, 8]) } else { None },
        lease: LEASE,
    }
}

/// One sequence of operations.
pub(super) struct Sequence {
    seed: u64,
    pub(super) random: Random,
    /// Whether there is what the model lacks: rates, shares, holds, hooks, replaced runs.
    is_full: bool,
    pub(super) tables: Database,
    pub(super) sessions: Vec<Session>,
    /// All claims so far, by the tick that made them.
    claims: Vec<(usize, FencingToken)>,
    /// The places of the claimed runs in their lanes.
    positions: Vec<Position>,
    /// Computed from schedules earlier; by now they may have fired.
    plans: Vec<FirePlan>,
    /// The latest request, and the index of its tick.
    last: Option<(usize, Request)>,
    /// The commands so far: their names, and the runs that each changed.
    commands: Vec<(String, Vec<i64>)>,
}

impl Sequence {
    pub(super) fn new(seed: u64, is_full: bool) -> Self {
        let mut random = Random::new(seed);
        let own = tick_id::new();
        let host = own.split('.').next().unwrap_or_default();
        let crashed = format!("{host}.5000000.0");
        let session = |(worker, tick): &(&str, &str)| {
            let tick = if tick.is_empty() { crashed.clone() } else { (*tick).to_owned() };
            let holder = Holder { worker: (*worker).to_owned(), tick };
            let mut session =
                Session::new(holder, filter(&mut random), Timing::of(LEASE), Instant::now());
            session.dead.insert(crashed.clone());
            session
        };
        Self {
            sessions: TICKS.iter().map(session).collect(),
            seed,
            random,
            is_full,
            tables: Database::new(DateTime::from_timestamp_micros(BEGINNING).unwrap()),
            claims: Vec::new(),
            positions: Vec::new(),
            plans: Vec::new(),
            last: None,
            commands: Vec::new(),
        }
    }

    /// Takes over the rows that PostgreSQL has after an operation, and its answer.
    pub(super) fn adopt(&mut self, rows: &Rows, operation: &Operation, reply: &Reply) {
        let old = std::mem::replace(&mut self.tables, tables(rows));
        self.tables.now = old.now;
        self.tables.locked = old.locked;
        self.tables.locked_definitions = old.locked_definitions;
        self.tables.locked_workers = old.locked_workers;
        self.tables.refused = old.refused;
        self.tables.refused_jobs = old.refused_jobs;
        self.note(operation, reply);
    }

    /// Remembers what later operations need: claims, locks, refusals and commands.
    fn note(&mut self, operation: &Operation, reply: &Reply) {
        let tables = &mut self.tables;
        match (operation, reply) {
            (Operation::Tick(index, request), Reply::Tick(answer)) => {
                if let Answer::Step(Ok(step)) = answer {
                    for run in &step.taken.claimed {
                        self.claims.push((*index, run.token()));
                        self.positions.extend(run.position.clone());
                    }
                }
                self.last = Some((*index, copy_of_request(request)));
            }
            (Operation::Lock(runs, definitions, workers), _) => {
                tables.locked.extend(runs.iter().filter(|id| tables.runs.contains_key(id)));
                tables.locked_definitions.extend(definitions.iter().cloned());
                tables.locked_definitions.retain(|name| tables.definitions.contains_key(name));
                tables.locked_workers.extend(workers.iter().cloned());
                tables.locked_workers.retain(|name| tables.workers.contains_key(name));
            }
            // An undo can't be undone.
            (Operation::Act(store::Operation::Undo(_), ..), Reply::Acted(_)) => {}
            (Operation::Act(_, _, _, name), Reply::Acted(Ok(answers))) => {
                let granted = answers.iter().filter(|answer| answer.granted);
                self.commands.push((name.clone(), granted.map(|answer| answer.id).collect()));
            }
            (Operation::Unlock, _) => {
                tables.locked.clear();
                tables.locked_definitions.clear();
                tables.locked_workers.clear();
            }
            (Operation::Refuse(run, write), _) => drop(tables.refused.insert((*run, *write))),
            (Operation::RefuseJob(job), _) => drop(tables.refused_jobs.insert(job.clone())),
            (Operation::Race(_, both), Reply::Raced(first, replies)) => {
                for index in [*first, 1 - *first] {
                    self.note(&both[index], &replies[index]);
                }
            }
            _ => {}
        }
    }

    /// Returns the time of the next operation.
    pub(super) fn next_time(&mut self) -> DateTime<Utc> {
        const SECOND: u64 = 1_000_000;
        let longest = match self.random.below(100) {
            0..8 => 1,
            8..70 => SECOND,
            70..86 => 20 * SECOND,
            86..94 => 120 * SECOND,
            94..98 => 7200 * SECOND,
            _ => 3 * 86400 * SECOND,
        };
        self.tables.now + Duration::from_micros(self.random.below(longest))
    }

    /// Returns the operation of a step.
    pub(super) fn operation(&mut self, step: usize) -> Operation {
        let (seed, random) = (self.seed, &mut self.random);
        let mut index = random.below(TICKS.len() as u64) as usize;
        // The kinds of operations have the numbers of the `match` below. First comes an apply (85),
        // then enqueues (64) and a wake (42).
        let mut kind = match step {
            0 => 85,
            1..6 => 64,
            6 => 42,
            _ => random.below(100),
        };
        // Mostly a tick that has something to do.
        let has_right = |session: &Session| {
            let row = self.tables.workers.get(&session.holder.worker);
            row.and_then(|row| row.claiming.as_ref())
                .is_some_and(|(it, until)| *it == session.holder.tick && *until > self.tables.now)
        };
        let holds = |(index, claim): &&(usize, FencingToken)| {
            let worker = Some(&self.sessions[*index].holder.worker);
            let run =
                self.tables.runs.get(&claim.id).filter(|run| run.locked_by.as_ref() == worker);
            run.is_some_and(|run| run.started_at == Some(claim.claimed_at))
        };
        let claiming = self.sessions.iter().position(has_right);
        let holding = self.claims.iter().rfind(holds).map(|(index, _)| *index);
        if kind < 42 && random.chance(80) {
            let wanted = if kind < 16 { claiming } else { holding.or(claiming) };
            match wanted {
                Some(wanted) => index = wanted,
                None => kind = 42,
            }
        }
        let tick = |request| Operation::Tick(index, request);
        match kind {
            0..26 => tick(self.step(index)),
            26..39 => {
                let mut claims = self.tokens(index);
                let parts = if self.random.chance(30) { 2 } else { 1 };
                let kept = claims.split_off(claims.len() / parts);
                tick(Request::Renew { claims, kept })
            }
            39..42 => {
                let tokens = self.tokens(index).into_iter();
                tick(Request::Store(tokens.map(|claim| (claim, "output".to_owned())).collect()))
            }
            42..64 if !(56..60).contains(&kind) => {
                let own_claims = self.tokens(index);
                let random = &mut self.random;
                let keeps_right = random.chance(50);
                let lasts = if random.chance(10) { Duration::ZERO } else { RIGHT };
                let until = Instant::now() + 1000 * lasts;
                let error = || store::Error::new(Kind::Data, Exit::CouldNot, "no");
                let failed_claim =
                    (kind >= 60).then(|| FailedClaim { error: error(), goes_on: kind == 63 });
                let (right_lasts, slow) = (RIGHT, None);
                tick(Request::Wake(Wake {
                    keeps_right,
                    right_lasts,
                    own_claims,
                    until,
                    failed_claim,
                    slow,
                }))
            }
            56..58 => tick(Request::Leave { slow: None }),
            58..60 => tick(Request::Prune),
            64..72 => {
                // The last id does not exist.
                let ids: Vec<_> = self.tables.runs.keys().copied().chain([1_000_000]).collect();
                let after = self.random.chance(50).then(|| {
                    let rules = [AfterRule::Success, AfterRule::AnyEnd, AfterRule::OrCancel];
                    let mut after: Vec<_> = (0..=self.random.below(2))
                        .map(|_| Predecessor::Id(self.random.of(&ids)))
                        .collect();
                    after.dedup_by_key(|it| format!("{it:?}"));
                    Dependencies { run: 0, after, rule: self.random.of(&rules) }
                });
                let runs = (0..=self.random.below(3)).map(|_| self.new_run()).collect();
                Operation::Enqueue(runs, after.into_iter().collect())
            }
            72..77 => {
                let terms =
                    RetryTerms { cancelled_now: random.chance(30), unsettled: random.chance(50) };
                self.act(store::Operation::Retry(terms))
            }
            77..79 => self.act(store::Operation::Cancel),
            79..80 if !self.commands.is_empty() => {
                let (undone, ids) = self.random.of(&self.commands);
                self.act_on(store::Operation::Undo(undone), ids, Status::ALL.to_vec())
            }
            79..81 => {
                let edit = Edit {
                    queue: random.maybe(&["x".to_owned()]),
                    priority: random.maybe(&[0, 1]),
                    after: random.maybe(&[0.0, 1.0, 60.0]),
                    max_attempts: random.maybe(&[1, 3]),
                    timeout: random.maybe(&[5.0]),
                    backoff: random.maybe(&["fixed:3s".to_owned()]),
                    ..Edit::default()
                };
                self.act(store::Operation::Edit(edit))
            }
            81..82 => {
                let ended = Keep { ended: Duration::ZERO, dead: Duration::from_secs(60) };
                match random.below(3) {
                    0 => self.act(store::Operation::Remove),
                    1 => self.act(store::Operation::Settle),
                    _ => Operation::Prune(self.tables.runs.keys().copied().collect(), ended),
                }
            }
            82..85 if self.is_full && random.chance(60) => {
                let (scope, name) = random.of(&[
                    (HoldScope::Job, "shell"),
                    (HoldScope::Job, "d1"),
                    (HoldScope::Queue, "default"),
                    (HoldScope::Queue, "x"),
                    (HoldScope::Worker, "a"),
                    (HoldScope::All, ""),
                ]);
                let target = HoldTarget { scope, name: name.to_owned() };
                match random.below(5) {
                    0..2 => Operation::Hold(target, random.maybe(&[Duration::from_secs(2)])),
                    _ => Operation::Release(target),
                }
            }
            82..83 => Operation::Pause(random.of(&JOBS).to_owned()),
            83..85 => Operation::Resume(random.of(&JOBS).to_owned()),
            85..88 => {
                let count = if step == 0 { 3 } else { 1 + random.below(3) as usize };
                let file = random.of(&["", "", "billing"]);
                let is_full = self.is_full;
                let specs = JOBS[..count].iter().map(|name| spec(random, name, file, is_full));
                let mut specs: Vec<_> = specs.collect();
                let unlisted = random.of(&[Unlisted::Disable, Unlisted::Remove]);
                let takes_over = random.chance(50);
                // Other random numbers, so that the numbers of the other operations do not change.
                let random = &mut Random::new(seed + step as u64);
                if is_full && count == 3 && random.chance(50) {
                    follow(random, &mut specs);
                }
                Operation::Apply(specs, unlisted, takes_over)
            }
            88..91 => {
                let expired = self.tables.runs.values().filter(|run| run.status == Status::Running);
                let expired = expired.map(|run| (run.id, run.attempts, Duration::from_secs(7)));
                let mut expired: Vec<_> = expired.collect();
                expired.iter_mut().for_each(|run| run.1 -= i32::from(random.chance(10)));
                Operation::Recover(expired)
            }
            91..93 => {
                let (plans, _) = due::plan_fires(self.tables.due_schedules());
                let plans = if self.random.chance(50) {
                    std::mem::replace(&mut self.plans, plans)
                } else {
                    plans
                };
                Operation::Fire(plans)
            }
            93..97 => match seed % 3 {
                0 => self.race(),
                1 if self.tables.locked.len() + self.tables.locked_workers.len() > 0 => {
                    Operation::Unlock
                }
                1 => Operation::Lock(
                    self.ids(),
                    self.random.maybe(&JOBS).into_iter().map(str::to_owned).collect(),
                    self.random.maybe(&["a"]).into_iter().map(str::to_owned).collect(),
                ),
                _ if self.random.chance(20) => {
                    Operation::RefuseJob(self.random.of(&JOBS).to_owned())
                }
                _ => {
                    let writes = [Write::Claim, Write::Renewal, Write::Result, Write::Other];
                    Operation::Refuse(self.ids()[0], self.random.of(&writes))
                }
            },
            _ => match &self.last {
                // As after a lost answer, or as by another tick.
                Some((last, request)) => {
                    let index = if random.chance(70) { *last } else { index };
                    Operation::Tick(index, copy_of_request(request))
                }
                None => tick(Request::Leave { slow: None }),
            },
        }
    }

    /// Two operations on one run that wait for its lock.
    fn race(&mut self) -> Operation {
        let running = self.tables.runs.values().filter(|run| run.status == Status::Running);
        let running: Vec<_> = running.map(|run| run.id).collect();
        let run = if running.is_empty() { self.ids()[0] } else { self.random.of(&running) };
        let claim = self.claims.iter().rfind(|(_, claim)| claim.id == run).map(|(_, claim)| *claim);
        if claim.is_none() && !self.is_full {
            return Operation::Unlock;
        }
        let both = [0, 1].map(|index| {
            let all = Status::ALL.to_vec();
            match (claim, if self.is_full { self.random.below(5) } else { 4 }) {
                (_, 0) => {
                    self.act_on(store::Operation::Retry(RetryTerms::default()), vec![run], all)
                }
                (_, 1) => {
                    let from = self.statuses();
                    self.act_on(store::Operation::Cancel, vec![run], from)
                }
                (_, 2) => self.act_on(store::Operation::Remove, vec![run], all),
                (None, _) => self.act_on(store::Operation::Cancel, vec![run], all),
                (Some(claim), _) => {
                    let results = vec![self.finish(claim)];
                    let (kept, unstarted) = (Vec::new(), Vec::new());
                    let (claim, skips_locked) = (None, false);
                    let step = Request::Step { results, kept, unstarted, claim, skips_locked };
                    Operation::Tick(index, step)
                }
            }
        });
        Operation::Race(run, Box::new(both))
    }

    /// A command for some runs.
    fn act(&mut self, operation: store::Operation) -> Operation {
        let (ids, from) = (self.ids(), self.statuses());
        self.act_on(operation, ids, from)
    }

    fn act_on(&mut self, action: store::Operation, ids: Vec<i64>, from: Vec<Status>) -> Operation {
        Operation::Act(action, ids, from, format!("{:x}", self.random.below(u64::MAX)))
    }

    /// Returns one to three runs.
    fn ids(&mut self) -> Vec<i64> {
        let known: Vec<_> = self.tables.runs.keys().copied().collect();
        let count = 1 + self.random.below(3);
        let mut id = || if known.is_empty() { 1 } else { self.random.of(&known) };
        let ids: BTreeSet<_> = (0..count).map(|_| id()).collect();
        ids.into_iter().collect()
    }

    /// Returns the statuses that a command accepts: mostly all.
    fn statuses(&mut self) -> Vec<Status> {
        let all = Status::ALL.to_vec();
        if self.random.chance(70) { all } else { vec![self.random.of(&all)] }
    }

    /// Returns claims, mostly of this tick. Some are not valid.
    fn tokens(&mut self, index: usize) -> Vec<FencingToken> {
        let random = &mut self.random;
        let mut tokens = BTreeSet::new();
        for (owner, mut claim) in self.claims.iter().rev().copied().take(8) {
            if random.chance(if owner == index { 70 } else { 8 }) {
                claim.attempt += i32::from(random.chance(3));
                claim.claimed_at += Duration::from_micros(u64::from(random.chance(3)));
                tokens.insert(claim);
            }
        }
        tokens.into_iter().collect()
    }

    /// Returns a request that records results, releases claims and claims runs.
    fn step(&mut self, index: usize) -> Request {
        let results = if self.random.chance(60) { self.tokens(index) } else { Vec::new() };
        let results: Vec<_> = results.into_iter().map(|token| self.finish(token)).collect();
        let (kept, results): (Vec<_>, Vec<_>) =
            results.into_iter().partition(|_| self.random.chance(5));
        let unstarted = if self.random.chance(25) { self.tokens(index) } else { Vec::new() };
        let random = &mut self.random;
        let mut after = BTreeMap::new();
        for position in &self.positions {
            after.insert((position.queue.clone(), position.priority), position.clone());
        }
        let lane = [("default".to_owned(), 0), ("x".to_owned(), 1)];
        let lane = random.of(&lane);
        let claim = (results.is_empty() || random.chance(60)).then(|| Claim {
            at_most: 1 + random.below(5) as i32,
            free_threads: random.of(&[0, 1, 2, 5, 5, 5]),
            bytes: if random.chance(15) { 1 + random.below(20) as i64 } else { 1 << 20 },
            after: random.chance(12).then(|| after.into_values().collect()),
            after_lane: (self.is_full && random.chance(8)).then_some(lane),
            after_definition: None,
            after_shares: Vec::new(),
            release_right: random.chance(30),
            limits: random.chance(85),
            locks: true,
        });
        Request::Step { results, kept, unstarted, claim, skips_locked: random.chance(50) }
    }

    /// Returns a result of the attempt with this claim.
    fn finish(&mut self, token: FencingToken) -> Finish {
        let random = &mut self.random;
        let (status, outcome, error_type) = random.of(&[
            (Status::Succeeded, HistoryOutcome::Succeeded, None),
            (Status::Failed, HistoryOutcome::Failed, Some(ErrorType::ExitCode)),
            (Status::Failed, HistoryOutcome::LeaseExpired, Some(ErrorType::LeaseExpired)),
            (Status::Dead, HistoryOutcome::Failed, Some(ErrorType::Timeout)),
            (Status::Queued, HistoryOutcome::Interrupted, Some(ErrorType::Interrupted)),
            (Status::Queued, HistoryOutcome::Snoozed, Some(ErrorType::ExitCode)),
            (Status::Cancelled, HistoryOutcome::Cancelled, Some(ErrorType::Cancelled)),
        ]);
        let error = error_type.map(|it| format!("{it} {}", random.below(2)));
        let wait = Duration::from_millis(random.below(100_000));
        let ended_ago = Duration::from_millis(random.below(2000));
        Finish {
            token,
            next_status: NextStatus { status, outcome, wait, error_type, error },
            detail: random.maybe(&["more".to_owned()]),
            exit_code: None,
            signal: None,
            http_status: None,
            output: None,
            output_bytes: 0,
            output_truncated: false,
            started_ago: ended_ago + Duration::from_millis(random.below(9000)),
            ended_ago,
        }
    }

    fn new_run(&mut self) -> NewRun {
        let (is_full, random) = (self.is_full, &mut self.random);
        let job_type = random.of(&["shell", "shell", "d1", "d2", "d3"]).to_owned();
        let text = |it: Option<&str>| it.map(str::to_owned);
        let key = random.chance(35).then(|| random.of(&["k1", "k2"]));
        let payloads: &[_] = if key.is_some() && random.chance(90) {
            &["{}"]
        } else {
            &["{}", "{\"n\": 1}", "[1, 22, 333]"]
        };
        let at = self.tables.now - Duration::from_secs(60);
        let run_at = if random.chance(30) {
            Some(at + Duration::from_micros(random.below(90_000_000)))
        } else {
            None
        };
        let scopes = [KeyScope::Live, KeyScope::Live, KeyScope::Retained];
        let key_scope = key.and_then(|_| random.maybe(&scopes));
        let replaces = is_full && key_scope == Some(KeyScope::Live) && random.chance(40);
        NewRun {
            job_type,
            payload: random.of(payloads).to_owned(),
            queue: text(random.maybe(&["x", "y"])),
            priority: random.maybe(&[0, 1]),
            run_at,
            after: if run_at.is_none() { random.maybe(&[0.0, 0.25, 5.0]) } else { None },
            max_attempts: random.maybe(&[1, 2, 3]),
            timeout: random.maybe(&[30.0]),
            backoff: text(random.maybe(&["fixed:1s", "list:2s,5m"])),
            expires_in: random.maybe(&[1.0, 2.0, 20.0, 3600.0]).filter(|_| run_at.is_none()),
            share: text(random.maybe(&["a", "b", "B", "ä"]).filter(|_| is_full)),
            lock: if random.chance(20) { text(random.maybe(&["l", "m", "M"])) } else { None },
            worker: if random.chance(10) { text(random.maybe(&["a", "b"])) } else { None },
            key: text(key),
            key_scope,
            on_conflict: replaces.then_some(OnConflict::Replace),
            ..NewRun::default()
        }
    }
}

/// Lets the last job follow the others. Mostly all of these have scheduled times, or none has.
fn follow(random: &mut Random, specs: &mut [Value]) {
    if random.chance(90) {
        specs[1]["schedule"] = specs[0]["schedule"].clone();
    }
    let following = &mut specs[2];
    following["schedule"] = Value::Null;
    following["after"] = random.of(&[json!(["d1", "d2"]), json!(["d2", "d1"]), json!(["d1"])]);
    following["when"] = random.of(&["success", "success", "any_end", "or_cancel"]).into();
    // A hook of another job would be a circle.
    for hook in ["on_dead", "on_success", "on_end"] {
        following[hook] = Value::Null;
    }
}

/// The row of a definition.
fn spec(random: &mut Random, name: &str, file: &str, is_full: bool) -> Value {
    // Most hooks are `d1`, which few definitions lack. If a hook is wrong, nothing is applied.
    let mut hook = || match random.below(100) {
        _ if !is_full => None,
        0 => Some("none"),
        1 => Some("d2"),
        2..30 if name != "d1" => Some("d1"),
        _ => None,
    };
    let hooks = [hook(), hook(), hook()];
    // Mostly one limit, so that no other one hides its defects.
    let (limit, most) = (random.below(6), random.of(&[1, 2]));
    let limited = |kind, more| (limit == kind || is_full && limit == 5).then_some(most + more);
    let rate_per_share = (is_full && limit == 4).then(|| random.of(&["2/3s", "1/2m"]));
    let locks = [json!("l"), json!({"name": "l", "most": 2}), json!("m")];
    let lock = (is_full && limit == 3).then(|| random.of(&locks));
    let rate = (is_full && limit == 1).then(|| random.of(&["2/3s", "7/1s", "1/2m"]));
    json!({
        "name": name,
        "kind": random.of(&JobKind::ALL),
        "action": "true",
        "payload": random.of(&[json!(7), json!("text")]),
        "schedule": random.maybe(&["* * * * *", "*/5 * * * *", "0 * * * *"]),
        "time_zone": random.of(&["UTC", "Europe/Berlin"]),
        "catch_up": random.of(&["skip", "one", "all", "all:3"]),
        "each_worker": is_full && limit == 2,
        "workers": null,
        "overlap": random.of(&["allow", "skip", if limit == 5 { "queue" } else { "skip" }]),
        "max_running": limited(0, 0),
        "rate": rate,
        "burst": rate.and_then(|_| random.maybe(&[1, 3])),
        "max_running_per_share": limited(2, 0).filter(|_| is_full),
        "rate_per_share": rate_per_share,
        "lock": lock,
        "max_waiting": limited(3, 1).filter(|_| is_full),
        "when_full": random.of(&["refuse", "drop_new", "drop_oldest"]),
        "snooze": if is_full { random.of(&["run", "job"]) } else { "run" },
        "pass_result": false,
        "result": "text",
        "max_attempts": 1 + random.below(3),
        "timeout": random.maybe(&[10.0]),
        "max_age": null,
        "max_lag": null,
        "alert_after": 3,
        "usual": null,
        "expires": random.maybe(&[2.0, 600.0]),
        "keep": random.maybe(&[60.0, 1e6]),
        "keep_dead": random.maybe(&[0.0, 1e6]),
        "backoff": random.of(&["fixed:1s", "exponential:1m..30m"]),
        "priority": random.below(2),
        "queue": random.of(&["default", "x"]),
        "spread": random.of(&[0.0, 300.0]),
        "on_dead": hooks[0],
        "on_success": hooks[1],
        "on_end": hooks[2],
        "after": null,
        "when": "success",
        "file": file,
        "enqueuers": null,
        "enqueue_may_set": [],
        "enabled": random.chance(90),
    })
}
