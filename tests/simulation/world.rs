//! The simulated world: events in the order of a virtual time, the network between hosts and the
//! database, faults, and operators. Everything follows from one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta};
use log::Level;

use super::super::driver::{Driver, Runtime, Step};
use super::super::machine::{Bounds, Event, Machine};
use super::super::request::{Answer, AnswerTimeout, Request};
use super::super::timing::Timing;
use super::checks::{By, Checks};
use super::database::{Database, Session, Write};
use super::history;
use super::host::{
    Clock, Exchange, Execution, Host, Job, JobOutcome, Next, Pool, SecondCounts, Stage, Stop, Tick,
    Waits,
};
use super::rows::{Kept, Run};
use super::variants::Variant;
use super::{Random, Time, seconds};
use crate::execute::{PoolState, WakeWhen};
use crate::exit::Exit;
use crate::job::attempt::{AttemptResult, JobOutput, Outcome, StopReason};
use crate::job::failure::{Failure, RetryAfter};
use crate::job::next_status::Prospect;
use crate::job::status::Status;
use crate::store::{self, ClaimFilter, Claimed, FencingToken, Holder, Kind};
use crate::tick::execution::{Ended, JudgedAttempt, Task};

/// How long a connection attempt waits for a silent server.
const CONNECT_TIMEOUT: Time = seconds(10);

/// An event of the world. Its first value is the number of a tick, or of a host where that is said.
pub(super) enum What {
    /// Cron starts a tick on this host.
    Cron(usize),
    /// The driver's timer, or something that wakes it. An older timer than the tick's does nothing.
    Wake(usize, u64),
    /// A job's next step.
    Job(usize, FencingToken),
    Signal(usize),
    /// The attempt to connect with this number ends.
    Connected(usize, u64),
    /// The request with this number reaches the server. The fault follows.
    Reach(usize, u64, Fault),
    /// A statement that was executed long ago is committed: its rows, the runs that it changed, and
    /// the server's generation.
    Commit(Box<Database>, Vec<i64>, u64),
    /// The answer to the request with this number arrives.
    Answer(usize, u64, Answer),
    /// The pause of this host is over.
    Resume(usize),
    Chaos,
    Operator,
    /// A large world gets a run.
    Arrival,
    /// Another session unlocks this run. It had locked the run in this generation of the server.
    Unlock(i64, u64),
    /// A trigger accepts this write again.
    Accept((i64, Write)),
    /// Another session unlocks definitions and workers, which it had locked in this generation.
    UnlockTables(u64),
    /// All runs must be finished.
    Deadline,
    /// The server accepts connections and statements again.
    Up,
    /// The faults stop.
    Calm,
}

/// What happens to a request that reaches the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    None,
    /// The connection is cut before the transaction is committed.
    Uncommitted,
    /// The connection is cut after the transaction is committed.
    Unanswered,
    /// No answer comes, and the transaction is not committed.
    Silent,
    /// No answer comes, but the transaction is committed.
    SilentCommit,
    /// COMMIT arrives when the tick has given up.
    LateCommit,
}

/// How a world is made.
pub(super) struct Config {
    pub(super) seed: u64,
    pub(super) variant: Variant,
    pub(super) records: bool,
}

/// How slow the database is, all the time: the delay of each transaction of a kind, as a part of
/// the longest answer that a tick waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slowness {
    wake: f64,
    renewal: f64,
    step: f64,
    /// It takes this long to become so slow.
    grows: Time,
    /// Only this host has slow answers.
    only: Option<usize>,
    /// The disk stalls this often, and so long.
    stalls: Option<(Time, Time)>,
}

impl Slowness {
    fn of(random: &mut Random) -> Self {
        let mut part = || -> f64 { [0.0, 0.3, 0.6, 0.9][random.below(4) as usize] };
        let (wake, renewal, step) = (part(), part(), part());
        let all = wake.max(renewal).max(step).max(0.3);
        let slow = Self { grows: seconds(random.of(&[0, 0, 60])), ..Self::default() };
        match random.below(3) {
            0 => Self { wake, renewal, step, ..slow },
            1 => Self { wake: all, renewal: all, step: all, ..slow },
            _ => Self { wake: 0.0, renewal: 0.9, step: 0.3, ..slow },
        }
    }

    /// Makes it slow in one more way: only for a host, or now and then. `limit` is the longest
    /// answer.
    fn vary(self, random: &mut Random, hosts: usize, limit: Duration) -> Self {
        let lasts = limit.as_nanos() as u64 * 9 / 10;
        match random.below(4) {
            0 => Self { only: Some(random.below(hosts as u64) as usize), ..self },
            1 => Self {
                stalls: Some((lasts + seconds(random.between(1, 60)), lasts)),
                ..Self::default()
            },
            _ => self,
        }
    }

    fn is_slow(&self) -> bool {
        self.stalls.is_some() || self.wake + self.renewal + self.step > 0.0
    }

    /// Returns the delay of a transaction.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "days")]
    #[expect(clippy::cast_sign_loss, reason = "positive")]
    fn delay(&self, request: &Request, host: usize, timing: &Timing, now: Time) -> Time {
        if let Some((each, lasts)) = self.stalls {
            return lasts.saturating_sub(now % each);
        }
        if self.only.is_some_and(|only| only != host) {
            return 0;
        }
        let part = match request {
            Request::Wake(_) => self.wake,
            Request::Renew { .. } => self.renewal,
            // It changes a column of few rows.
            Request::Store(_) => self.step / 4.0,
            _ => self.step,
        };
        let grown = (now as f64 / self.grows.max(1) as f64).min(1.0);
        (timing.answer_limit().as_nanos() as f64 * part * grown) as Time
    }
}

pub(super) struct World {
    pub(super) now: Time,
    base: Instant,
    queue: BTreeMap<(Time, u64), What>,
    sequence: u64,
    pub(super) random: Random,
    pub(super) database: Database,
    /// A copy of the database that lacks the last commits, and when it was made.
    standby: (Time, Database),
    /// How far the database's clock is ahead, in nanoseconds.
    skew: i64,
    /// Counts the server's starts. Sessions and locks of an older generation are over.
    pub(super) generation: u64,
    is_down: bool,
    up_since: Time,
    /// Until then, half of the answers are slow.
    slow: Time,
    pub(super) slowness: Slowness,
    /// The error of each statement, for some time.
    rejects: Option<(Kind, Exit)>,
    /// The usual time of a message from a host to the server.
    latency: Time,
    pub(super) hosts: Vec<Host>,
    pub(super) ticks: Vec<Option<Box<Tick>>>,
    pub(super) lease: Duration,
    /// The kinds of faults of this world, as bits.
    faults: u64,
    pub(super) is_calm: bool,
    /// Since when all runs are finished, and how many ticks had begun then: they must exit.
    finished: Option<(Time, usize)>,
    /// The length of most jobs is a multiple of this.
    job_scale: u64,
    pub(super) checks: Checks,
    pub(super) variant: Variant,
    pub(super) history: Option<String>,
    pub(super) statements: u64,
    /// How long each run waited, in milliseconds, and how many runs each host started.
    pub(super) waits: Vec<u64>,
    pub(super) shares: Vec<u64>,
}

impl World {
    /// A world that follows from the seed.
    pub(super) fn new(config: &Config) -> Self {
        let mut random = Random::new(config.seed);
        let lease = Duration::from_secs(random.of(&[6, 12, 30, 60]));
        let base = Instant::now();
        let hosts = (0..random.between(1, 4)).map(|number| {
            let shares = random.chance(15);
            Host {
                worker: format!("w{}", if shares { 0 } else { number }),
                clock: Clock::new(base, 1.0 + (random.unit() - 0.5) / 500.0),
                concurrency: random.of(&[1, 1, 2, 4, 8]) as usize,
                linger: random.chance(40),
                period: seconds(random.of(&[5, 20, 60])),
                grace: Duration::from_secs(random.of(&[0, 2, 10])),
                limit: if random.chance(15) { random.between(1, 5) as usize } else { usize::MAX },
                paused: None,
                resumed: 0,
                cut_until: 0,
                threads: usize::MAX,
                dead: BTreeSet::new(),
            }
        });
        let mut hosts: Vec<_> = hosts.collect();
        for number in 1..hosts.len() {
            if hosts[number].worker == hosts[0].worker {
                hosts[number].concurrency = hosts[0].concurrency;
            }
        }
        let database = Database::new(DateTime::UNIX_EPOCH);
        let mut world = Self {
            now: 0,
            base,
            queue: BTreeMap::new(),
            sequence: 0,
            standby: (0, database.clone()),
            database,
            skew: 0,
            generation: 1,
            is_down: false,
            up_since: 0,
            slow: 0,
            slowness: Slowness::default(),
            rejects: None,
            latency: random.of(&[200_000, 1_000_000, 5_000_000, 40_000_000]),
            hosts,
            ticks: Vec::new(),
            lease,
            faults: match random.below(8) {
                0 => 0,
                1..4 => random.next() & random.next() & random.next(),
                4..7 => random.next() & random.next(),
                _ => random.next(),
            },
            is_calm: false,
            finished: None,
            job_scale: random.of(&[1, 20, 300, 2000]),
            checks: Checks::new(lease),
            variant: config.variant,
            history: config.records.then(String::new),
            statements: 0,
            waits: Vec::new(),
            shares: vec![0; 4],
            random,
        };
        // Other random numbers than those of the world, so that slowness changes nothing else.
        let mut random = Random::new(config.seed ^ 0x510e);
        if random.chance(20) {
            world.slowness = Slowness::of(&mut random);
            world.lease = Duration::from_secs(random.of(&[6, 30, 60, 120]));
            // A tick must have the time for a wake and a claim.
            world.hosts.iter_mut().for_each(|host| host.period = seconds(60));
            world.checks = Checks::new(world.lease);
            let limit = Timing::of(world.lease).answer_limit();
            world.slowness = world.slowness.vary(&mut random, world.hosts.len(), limit);
            world.checks.slow = if world.slowness.is_slow() { limit.as_nanos() as u64 } else { 0 };
        }
        world.populate();
        world
    }

    /// A large world without faults: its hosts tick each minute, and a run is due each second.
    pub(super) fn large(hosts: usize, linger: bool) -> Self {
        let mut world = Self::new(&Config { seed: 7, variant: Variant::None, records: false });
        let definitions = std::mem::take(&mut world.database.definitions);
        (world.database, world.queue, world.faults) = (Database::default(), BTreeMap::new(), 0);
        world.database.definitions = definitions;
        world.database.definitions.retain(|name, _| name == "plain");
        world.slowness = Slowness::default();
        (world.lease, world.latency, world.job_scale) = (Duration::from_secs(120), 1_000_000, 20);
        world.checks.is_off = true;
        world.hosts.clear();
        world.shares = vec![0; hosts];
        for number in 0..hosts {
            let rate = 1.0 + (world.random.unit() - 0.5) / 500.0;
            world.hosts.push(Host {
                worker: format!("w{number}"),
                clock: Clock::new(world.base, rate),
                concurrency: 4,
                linger,
                period: seconds(60),
                grace: Duration::from_secs(10),
                limit: usize::MAX,
                paused: None,
                resumed: 0,
                cut_until: 0,
                threads: usize::MAX,
                dead: BTreeSet::new(),
            });
            let first = world.random.below(seconds(1));
            world.push(first, What::Cron(number));
        }
        world.push(0, What::Arrival);
        world
    }

    /// Runs a large world until then.
    pub(super) fn run_until(&mut self, end: Time) {
        while let Some(((at, _), what)) = self.queue.pop_first()
            && at < end
        {
            self.now = at;
            self.set_database_clock();
            self.step(what);
        }
    }

    fn populate(&mut self) {
        self.set_database_clock();
        super::operators::populate(self);
        for host in 0..self.hosts.len() {
            let first = self.random.below(self.hosts[host].period.min(seconds(10)));
            self.push(first, What::Cron(host));
        }
        self.push(seconds(1), What::Chaos);
        self.push(seconds(1), What::Operator);
        let ends = seconds(self.random.between(20, 150));
        self.push(ends, What::Calm);
    }

    pub(super) fn push(&mut self, at: Time, what: What) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), what);
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            let (whole, rest) = (self.now / 1_000_000_000, self.now % 1_000_000_000 / 1000);
            history.push_str(&format!("{whole:>4}.{rest:06} {}\n", line()));
        }
    }

    fn clock(&self, tick: &Tick) -> Instant {
        self.hosts[tick.host].clock.read(self.now)
    }

    pub(super) fn set_database_clock(&mut self) {
        let micros = (i64::try_from(self.now).unwrap() + self.skew) / 1000;
        let start = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        self.database.now = start + TimeDelta::microseconds(micros);
    }

    /// Runs the world to its end: when the faults have stopped, every run must be finished, and
    /// then every tick must exit.
    pub(super) fn run(&mut self) -> Result<(), String> {
        while let Some(((at, _), what)) = self.queue.pop_first() {
            self.now = at;
            self.set_database_clock();
            self.step(what);
            if let Some(broken) = self.checks.broken.take() {
                self.note(|| format!("BROKEN: {broken}"));
                return Err(broken);
            }
            if !self.is_calm || self.checks.unfinished > 0 {
                self.finished = None;
                continue;
            }
            let (since, ticks) = *self.finished.get_or_insert((self.now, self.ticks.len()));
            let Some(tick) = self.ticks[..ticks].iter().flatten().next() else { return Ok(()) };
            let longest = self.hosts[tick.host].max_time() + 4 * self.lease;
            if self.now > since + longest.as_nanos() as u64 + 11 * self.checks.slow + seconds(60) {
                return Err(format!("{} does not exit, although it has no work", tick.name));
            }
        }
        Err("nothing happens any more".to_owned())
    }

    fn step(&mut self, what: What) {
        let tick = match &what {
            What::Wake(tick, _) | What::Job(tick, _) | What::Signal(tick) => Some(*tick),
            What::Connected(tick, _) | What::Answer(tick, ..) => Some(*tick),
            _ => None,
        };
        if let Some(tick) = tick {
            let Some(tick) = &self.ticks[tick] else { return };
            if let Some((until, _)) = self.hosts[tick.host].paused {
                return self.push(until, what);
            }
        }
        match what {
            What::Cron(host) => self.cron(host),
            What::Wake(tick, timer) => self.with_tick(tick, |world, tick| {
                if tick.timer == timer {
                    tick.is_asleep = false;
                    world.drive(tick);
                }
            }),
            What::Job(tick, claim) => self.with_tick(tick, |world, tick| world.job(tick, &claim)),
            What::Signal(tick) => self.with_tick(tick, Self::signal),
            What::Connected(tick, number) => self.with_tick(tick, |world, tick| {
                if tick.connection == number {
                    let is_cut = world.is_down || world.hosts[tick.host].cut_until > world.now;
                    tick.opened = Some((!is_cut).then_some(world.generation));
                    world.wake(tick);
                }
            }),
            What::Reach(tick, number, fault) => {
                self.with_tick(tick, |world, tick| world.reach(tick, number, fault));
            }
            What::Commit(changed, runs, generation) => self.commit(&changed, runs, generation),
            What::Answer(tick, number, answer) => self.with_tick(tick, |world, tick| {
                if tick.exchange.as_ref().is_some_and(|exchange| exchange.number == number) {
                    tick.answer = Some(answer);
                    world.wake(tick);
                }
            }),
            What::Resume(host) => {
                let now = self.now;
                let host = &mut self.hosts[host];
                if let Some((_, Some(stopped))) = host.paused.take() {
                    host.clock.set(stopped, now, 1.0);
                }
                host.resumed = now;
            }
            What::Chaos => super::operators::chaos(self),
            What::Operator => super::operators::operate(self),
            What::Arrival => {
                super::operators::arrive(self);
                self.push(self.now + seconds(1), What::Arrival);
            }
            // These locks ended with their sessions. Another session may have them now.
            What::Unlock(_, generation) | What::UnlockTables(generation)
                if generation != self.generation => {}
            What::Unlock(run, _) => drop(self.database.locked.remove(&run)),
            What::Accept(write) => drop(self.database.refused.remove(&write)),
            What::Up => (self.is_down, self.rejects, self.up_since) = (false, None, self.now),
            What::UnlockTables(_) => {
                self.database.locked_definitions.remove("limited");
                self.database.locked_workers.clear();
            }
            What::Deadline => {
                let stuck = Checks::stuck(&self.database);
                self.checks.fail(format!("not finished long after the last fault: {stuck}"));
            }
            What::Calm => super::operators::calm(self),
        }
    }

    /// Calls `act` with a tick that still exists, and drops the tick if it has exited then.
    fn with_tick(&mut self, number: usize, act: impl FnOnce(&mut Self, &mut Tick)) {
        let Some(mut tick) = self.ticks[number].take() else { return };
        act(self, &mut tick);
        if !tick.has_exited {
            self.ticks[number] = Some(tick);
        }
    }

    fn cron(&mut self, number: usize) {
        let host = &self.hosts[number];
        self.push(self.now + host.period, What::Cron(number));
        let host = &self.hosts[number];
        if host.paused.is_some() {
            return;
        }
        let bounds = Bounds {
            limit: host.limit,
            max_time: self.variant.max_time(host.max_time()),
            linger: host.linger,
            grace: host.grace,
            prunes: false,
            outage: None,
        };
        let now = host.clock.read(self.now);
        let timing = self.variant.timing(Timing::of(self.lease));
        let filter = ClaimFilter {
            queues: Vec::new(),
            excluded_jobs: Vec::new(),
            excluded_kinds: Vec::new(),
            excluded_runs: Vec::new(),
            only_run: None,
            lease: self.lease,
        };
        let name = format!("t{}", self.ticks.len());
        let holder = Holder { worker: host.worker.clone(), tick: name.clone() };
        let mut tick = Tick {
            number: self.ticks.len(),
            name,
            host: number,
            driver: None,
            waits: Waits::Nothing,
            pool: Pool::new(host.concurrency, timing.lost_grace),
            timing,
            session: Session::new(holder, filter, Timing::of(self.lease), now),
            connected: None,
            disconnected_at: self.now,
            connection: 0,
            opened: None,
            exchange: None,
            answer: None,
            sent: now,
            signals: 0,
            signalled: None,
            stopping_since: None,
            observed: now,
            decided: now,
            began: now,
            is_slow: false,
            has_warned: false,
            timer: 0,
            is_asleep: false,
            is_woken: false,
            has_exited: false,
            renewed: BTreeMap::new(),
            counts: SecondCounts::default(),
        };
        self.note(|| format!("{} starts as {}", tick.name, tick.session.holder.worker));
        let machine = Machine::new(bounds, timing, now);
        tick.driver = Some(Driver::new(machine, &mut Simulated { world: self, tick: &mut tick }));
        let number = tick.number;
        self.ticks.push(Some(Box::new(tick)));
        self.push(self.now, What::Wake(number, 0));
    }

    /// Wakes the driver.
    fn wake(&mut self, tick: &mut Tick) {
        tick.is_woken = true;
        if tick.is_asleep {
            let delay = self.random.below(100_000);
            self.continue_after(tick, delay);
        }
    }

    fn continue_after(&mut self, tick: &mut Tick, delay: Time) {
        tick.is_asleep = false;
        tick.timer += 1;
        self.push(self.now + delay, What::Wake(tick.number, tick.timer));
    }

    fn sleep(&mut self, tick: &mut Tick, until: Option<Instant>) {
        let latest = self.now + seconds(3600);
        let at = until.map_or(latest, |until| self.hosts[tick.host].clock.when(until).min(latest));
        tick.is_asleep = true;
        tick.timer += 1;
        self.push(at, What::Wake(tick.number, tick.timer));
    }

    /// Lets the driver go on until it waits, unless what it waits for is still missing.
    fn drive(&mut self, tick: &mut Tick) {
        let Some(mut driver) = tick.driver.take() else { return };
        self.drive_until_it_waits(&mut driver, tick);
        tick.driver = Some(driver);
    }

    fn drive_until_it_waits(&mut self, driver: &mut Driver, tick: &mut Tick) {
        if let Some(turns) = self.variant.turns() {
            driver.machine.turns = turns;
        }
        if let Some(until) = self.give_what_it_waits_for(driver, tick) {
            return self.sleep(tick, until);
        }
        self.variant.resumed(driver);
        loop {
            let step = driver.step(&mut Simulated { world: self, tick });
            match step {
                Step::Continue => {
                    tick.waits = Waits::Nothing;
                    // Other things may happen between two steps.
                    if self.random.chance(70) {
                        continue;
                    }
                }
                Step::Wait(until) => tick.waits = Waits::Wake(until),
                Step::Ask(request, timeout) => {
                    let now = self.clock(tick);
                    self.note(|| format!("{} -> Send {}", tick.name, history::request(&request)));
                    self.send(tick, *request, timeout, now);
                    tick.waits = Waits::Answer;
                }
                Step::Exit(result) => {
                    self.note(|| format!("{} exits: {result:?}", tick.name));
                    let up_since = (!self.is_down).then_some(self.up_since);
                    self.checks.reconnects(tick, &self.hosts[tick.host], up_since, self.now);
                    self.checks.exited(tick, &self.database, result.is_ok(), self.now, &self.hosts);
                    tick.has_exited = true;
                    return;
                }
            }
            let took = 10_000 + self.random.below(40_000);
            return self.continue_after(tick, took);
        }
    }

    /// Gives the driver what it waits for. If that is missing, returns until when it waits.
    fn give_what_it_waits_for(
        &mut self,
        driver: &mut Driver,
        tick: &mut Tick,
    ) -> Option<Option<Instant>> {
        let now = self.clock(tick);
        match &tick.waits {
            Waits::Nothing => {}
            Waits::Wake(until) => {
                if !tick.is_woken && until.is_none_or(|until| until > now) {
                    return Some(*until);
                }
                driver.woken(&mut Simulated { world: self, tick });
            }
            Waits::Answer => {
                let Some(answer) = self.poll(tick, now) else {
                    return Some(tick.exchange.as_ref().map(|exchange| exchange.until));
                };
                driver.answered(&mut Simulated { world: self, tick }, answer);
            }
        }
        None
    }

    fn signal(&mut self, tick: &mut Tick) {
        tick.signals += 1;
        tick.signalled.get_or_insert((self.now, 0)).1 += 1;
        let now = self.clock(tick);
        if let Some(exchange) = &mut tick.exchange {
            exchange.until = exchange.until.min(now + exchange.interrupted);
        }
        self.wake(tick);
    }

    /// Returns how long a message takes from a host to the server, or back.
    fn travel(&mut self) -> Time {
        let spike = if self.random.chance(2) && !self.is_calm { 20 } else { 1 };
        spike * (self.latency / 2 + self.random.below(self.latency))
    }

    /// Gives tasks to the pool of a tick. Fails if the system grants no thread.
    fn submit(&mut self, tick: &mut Tick, tasks: Vec<Task>) -> anyhow::Result<()> {
        let (pool, host) = (&mut tick.pool, &self.hosts[tick.host]);
        let wanted = (pool.running.len() + pool.waiting.len() + tasks.len()).min(pool.size);
        let mut submitted = Ok(());
        match pool.threads.max(wanted.min(host.threads)) {
            0 => submitted = Err(anyhow::anyhow!("cannot start a thread")),
            threads if threads < wanted => (pool.threads, pool.size) = (threads, threads),
            threads => pool.threads = threads,
        }
        let now = self.clock(tick);
        self.checks.submitted(tick, &tasks, &self.hosts[tick.host]);
        for task in tasks {
            let (until, start_by) = (task.until, task.start_by);
            let stop = Stop { asked: task.stopped, is_hurried: false, until, start_by };
            tick.pool.stops.insert(task.run.token(), stop);
            tick.pool.waiting.push_back((task, now));
        }
        self.fill(tick);
        submitted
    }

    /// Starts runs on free threads.
    fn fill(&mut self, tick: &mut Tick) {
        let now = self.clock(tick);
        while let Some((task, stopped)) = tick.pool.take(now) {
            let (claim, run) = (task.run.token(), task.run);
            let job = self.job_of(&run);
            if stopped.is_some() {
                tick.pool.ended.push(Ended::Unstarted(run));
            } else if job.outcome == JobOutcome::CannotStart {
                let why = Failure::Exhausted("no memory".to_owned());
                tick.pool.ended.push(Ended::Exhausted(run, why));
            } else {
                self.note(|| format!("{} starts {} {job:?}", tick.name, history::claim(&claim)));
                let running = self.ticks.iter().flatten().map(|other| &**other);
                self.checks.started(tick, running, &self.hosts, &self.database, &run, self.now);
                self.shares[tick.host] += 1;
                let run_at = run.position.as_ref().map_or(run.claimed_at, |it| it.run_at);
                let waited = (self.database.now - run_at).num_milliseconds();
                self.waits.push(u64::try_from(waited).unwrap_or(0));
                let next = Time::MAX;
                let execution = Execution {
                    run,
                    job,
                    started: now,
                    stage: Stage::Working,
                    next,
                    has_new_output: true,
                    extended: 0,
                    in_turn: 0,
                };
                tick.pool.running.insert(claim, execution);
                self.job(tick, &claim);
            }
        }
        if tick.pool.wakes() && self.variant != Variant::WakeUpLost {
            self.wake(tick);
        }
    }

    /// Draws what the job of a run does.
    fn job_of(&mut self, run: &store::Claimed) -> Job {
        let random = &mut self.random;
        let scale = self.job_scale;
        let takes = match random.below(100) {
            0..60 => random.between(1, 50) * scale / 10,
            60..90 => random.between(1, 500) * scale / 10,
            90..98 => random.between(1000, 10_000),
            _ if self.checks.is_off => 30_000,
            _ => 4 * self.lease.as_millis() as u64,
        };
        let last = random.below(100);
        let outcome = match last {
            0..70 => JobOutcome::Succeeds,
            70..90 => JobOutcome::Fails,
            90..93 => JobOutcome::FailsPermanently,
            93..96 => JobOutcome::AsksForLater,
            // Bit 11: hosts run out of memory.
            _ if self.faults & 0x800 != 0 && !self.is_calm && run.attempt > 0 => {
                JobOutcome::CannotStart
            }
            _ => JobOutcome::Succeeds,
        };
        let output = if random.chance(5) {
            400_000 * random.between(1, 5) as usize
        } else {
            random.below(2) as usize * 20
        };
        let exits_in = random.of(&[1, 1, 100, 3000, 1_000_000]);
        let leaves = if random.chance(5) { random.between(1, 5000) } else { 0 };
        let millis = Duration::from_millis;
        Job {
            takes: millis(takes),
            outcome,
            output,
            exits_in: millis(exits_in),
            leaves: millis(leaves),
        }
    }

    /// Lets a job go on until now.
    fn job(&mut self, tick: &mut Tick, claim: &FencingToken) {
        let now = self.clock(tick);
        let is_working = |tick: &Tick| matches!(tick.pool.stage(claim), Some(Stage::Working));
        let was_working = is_working(tick);
        let next = tick.pool.advance(claim, now);
        if was_working && !is_working(tick) {
            self.checks.stopped(tick, claim, now);
        }
        match next {
            None => {}
            Some(Next::At(next)) => {
                let at = self.hosts[tick.host].clock.when(next);
                let Some(execution) = tick.pool.running.get_mut(claim) else { return };
                if execution.next <= self.now || at < execution.next {
                    execution.next = at;
                    self.push(at, What::Job(tick.number, *claim));
                }
            }
            Some(Next::Ended(why)) => self.ended(tick, claim, why, now),
        }
    }

    fn ended(
        &mut self,
        tick: &mut Tick,
        claim: &FencingToken,
        why: Option<Option<StopReason>>,
        now: Instant,
    ) {
        let Some(Execution { run, job, started, .. }) = tick.pool.running.remove(claim) else {
            return;
        };
        self.note(|| format!("{} ends {} {why:?}", tick.name, history::claim(claim)));
        self.checks.ended(claim, why, &self.hosts[tick.host], self.now);
        let failed = |failure| (Outcome::Failed(failure), None);
        let (outcome, exit_code) = match (why, job.outcome) {
            (Some(Some(why)), _) => (Outcome::Stopped(why), None),
            (Some(None), _) => failed(Failure::Timeout(run.timeout.unwrap_or_default())),
            (None, JobOutcome::Fails) => (Outcome::Failed(Failure::ExitCode(1)), Some(1)),
            (None, JobOutcome::FailsPermanently) => {
                (Outcome::Failed(Failure::ExitCode(64)), Some(64))
            }
            (None, JobOutcome::AsksForLater) => failed(Failure::HttpStatus {
                status: 503,
                retry_after: Some(RetryAfter::In(Duration::from_secs(3))),
            }),
            (None, _) => (Outcome::Succeeded, Some(0)),
        };
        let prospect = Prospect::of(&outcome, None);
        let output =
            JobOutput { text: "x".repeat(job.output), bytes: job.output as u64, truncated: false };
        let failure = Failure::Signal(9);
        let result =
            AttemptResult { outcome, exit_code, output, ..AttemptResult::unstarted(failure) };
        let random = self.random.unit();
        let judged = JudgedAttempt::new(run, result, prospect, (started, now), random);
        tick.pool.bytes += judged.bytes();
        tick.pool.ended.push(Ended::Judged(Box::new(judged)));
        tick.counts.ended_jobs += 1;
        self.fill(tick);
    }

    /// Counts an event of a tick, which is a timer if `is_time`. A tick must not spin: in a second,
    /// it has a limited number of events and statements.
    fn count_event(&mut self, tick: &mut Tick, is_time: bool) {
        let second = self.now / seconds(1);
        if tick.counts.second != second {
            tick.counts = SecondCounts { second, ..SecondCounts::default() };
        }
        tick.counts.timers += usize::from(is_time);
        tick.counts.events += 1;
        let SecondCounts { statements, timers, ended_jobs, events, .. } = tick.counts;
        // A lingering tick polls 50 times a second. A tick that shares its worker with another one
        // wakes, claims and leaves for each run.
        let is_spinning = statements > 75 + 3 * ended_jobs
            || timers > 75 + ended_jobs
            || events > 300 + 10 * ended_jobs;
        if is_spinning {
            let line =
                format!("{} spins: {statements} statements, {events} events in 1 s", tick.name);
            self.checks.fail(line);
        }
    }

    fn send(&mut self, tick: &mut Tick, request: Request, timeout: AnswerTimeout, now: Instant) {
        if tick.connected.is_none() || tick.exchange.is_some() {
            self.checks.fail(format!("{} sends without a session: {request:?}", tick.name));
            return;
        }
        self.checks.sends(tick, &request, &self.hosts[tick.host]);
        self.statements += 1;
        tick.counts.statements += 1;
        let number = self.statements;
        let is_wake = matches!(request, Request::Wake(_));
        let parts = if is_wake { 4 } else { 1 };
        let timeouts = tick.timing.timeouts_of(&request, timeout, now);
        // Each transaction of a wake has its own limit.
        let most = if is_wake && self.slowness.is_slow() { 16 } else { parts };
        let mut until = now + (timeouts.statement + timeouts.silence) * most;
        if tick.signals > 0 {
            until = until.min(now + timeouts.interrupted);
        }
        tick.exchange = Some(Exchange {
            number,
            request,
            decided: tick.observed,
            sent: now,
            until,
            limit: timeouts.statement,
            interrupted: timeouts.interrupted,
            made: Vec::new(),
        });
        let fault = self.fault();
        let delay = parts as u64 * self.travel();
        self.push(self.now + delay, What::Reach(tick.number, number, fault));
    }

    /// Draws what happens to a request.
    fn fault(&mut self) -> Fault {
        if self.is_calm || self.faults & 1 == 0 || !self.random.chance(4) {
            return Fault::None;
        }
        match self.random.below(6) {
            0 => Fault::Uncommitted,
            1 => Fault::Unanswered,
            2 => Fault::Silent,
            3 => Fault::SilentCommit,
            _ => Fault::LateCommit,
        }
    }

    /// A request reaches the server, which executes it, fails or does not answer.
    fn reach(&mut self, tick: &mut Tick, number: u64, fault: Fault) {
        let cut_until = self.hosts[tick.host].cut_until;
        let Some(exchange) = tick.exchange.take_if(|exchange| exchange.number == number) else {
            return;
        };
        let mut exchange = exchange;
        if cut_until > self.now {
            self.push(cut_until, What::Reach(tick.number, number, fault));
            tick.exchange = Some(exchange);
            return;
        }
        let is_lost = tick.connected != Some(self.generation) || self.is_down;
        let is_slow = self.slow > self.now && self.random.chance(50);
        let mut took = self.slowness.delay(&exchange.request, tick.host, &tick.timing, self.now);
        let limit = exchange.limit.as_nanos() as u64;
        let is_ended = matches!(exchange.request, Request::Store(_)) && took > limit;
        if is_ended {
            took = limit;
        }
        let failed = match self.rejects {
            _ if is_lost => Some(lost()),
            _ if is_ended => Some(busy()),
            _ if is_slow && self.random.chance(50) => Some(busy()),
            Some((kind, exit)) => Some(store::Error::new(kind, exit, "rejected")),
            None => None,
        };
        let mut delay = self.travel();
        if is_slow {
            let longest = tick.timing.timeouts.statement.as_nanos() as u64 * 3 / 2;
            delay += self.random.below(longest);
            // The slowest answer may be the last one for a long time.
            if self.random.chance(40) {
                delay = longest - self.random.below(seconds(1)).min(longest);
                let until = self.now + delay + 3 * self.lease.as_nanos() as u64 / 2;
                self.hosts[tick.host].cut_until = until;
            }
        }
        self.database.transactions = 0;
        let answer = match failed {
            Some(error) => Some(refusal(&exchange.request, error, Vec::new())),
            None => self.execute(tick, &mut exchange, fault, Duration::from_nanos(took)),
        };
        delay += took * self.database.transactions.max(1);
        if let Some(mut answer) = answer {
            if let Answer::Wake { woken: Ok(woken), .. } = &mut answer {
                woken.took = Duration::from_nanos(took + 4 * self.latency);
                woken.longest = woken.took;
            }
            self.variant.answer(&mut answer);
            self.push(self.now + delay, What::Answer(tick.number, number, answer));
        }
        tick.exchange = Some(exchange);
    }

    /// Executes a request on the server. Returns the answer, if one will come.
    fn execute(
        &mut self,
        tick: &mut Tick,
        exchange: &mut Exchange,
        fault: Fault,
        took: Duration,
    ) -> Option<Answer> {
        if fault == Fault::Silent {
            return None;
        }
        let before = matches!(fault, Fault::Uncommitted | Fault::LateCommit)
            .then(|| Box::new(self.database.clone()));
        tick.session.now = exchange.sent + took;
        tick.session.dead.clone_from(&self.hosts[tick.host].dead);
        let random = &mut self.random;
        let mut random = || random.unit();
        let database = &mut self.database;
        let tokens = tokens(&exchange.request);
        let follows = tick.session.follows();
        let saved = self.variant.before(&mut exchange.request, database);
        if self.variant == Variant::EveryTickClaims
            && let Some(row) = database.workers.get_mut(&tick.session.holder.worker)
        {
            row.claiming = Some((tick.name.clone(), database.now + self.lease));
        }
        tick.session.hangs = fault == Fault::LateCommit;
        let answer = database.perform(&mut tick.session, &exchange.request, &mut random);
        self.variant.after(saved, database);
        self.set_database_clock();
        if let Answer::Step(Ok(step)) = &answer {
            exchange.made = step.taken.claimed.iter().map(store::Claimed::token).collect();
        }
        let made = exchange.made.clone();
        if let Some(before) = before {
            let changed = std::mem::replace(&mut self.database, *before);
            // A sequence is not rolled back.
            self.database.last_run = changed.last_run;
            if fault == Fault::LateCommit && !matches!(exchange.request, Request::Wake(_)) {
                let is_changed = |(id, run): &(&i64, &Run)| self.database.runs.get(id) != Some(run);
                let runs = changed.runs.iter().filter(is_changed).map(|(id, _)| *id);
                let runs: Vec<_> = runs.collect();
                // The transaction has locked the definitions that limit its runs.
                let jobs = runs.iter().map(|id| changed.runs[id].job_type.clone());
                self.database.locked_definitions.extend(jobs);
                self.database.locked.extend(&runs);
                let at = self.now + self.random.below(2 * self.lease.as_nanos() as u64 / 3);
                self.push(at, What::Commit(Box::new(changed), runs, self.generation));
                return None;
            }
            return Some(refusal(&exchange.request, lost(), made));
        }
        self.note(|| format!("   database: {}", history::answer(&answer)));
        // Most statements of a lingering tick find nothing.
        let is_empty = match &answer {
            Answer::Step(Ok(step)) => {
                tokens.is_empty() && step.taken.claimed.is_empty() && !follows
            }
            _ => false,
        };
        let by = By::Tick {
            worker: &self.hosts[tick.host].worker,
            tick,
            request: &exchange.request,
            tokens: &tokens,
        };
        if !is_empty {
            self.checks.changed(&self.database, &by, self.now);
        }
        // A tick whose leases leave no time for slow transactions fires nothing.
        let has_time = !self.slowness.is_slow()
            || matches!(&exchange.request, Request::Wake(asked) if asked.own_claims.is_empty());
        if has_time && matches!(answer, Answer::Wake { woken: Ok(_), .. }) {
            self.checks.woken(&self.database, tick.number);
        }
        match fault {
            Fault::Unanswered => Some(refusal(&exchange.request, lost(), made)),
            Fault::SilentCommit => None,
            _ => Some(answer),
        }
    }
}

/// What the driver of a tick runs on.
struct Simulated<'a> {
    world: &'a mut World,
    tick: &'a mut Tick,
}

impl Simulated<'_> {
    fn note(&mut self, line: impl FnOnce() -> String) {
        let Self { world, tick } = self;
        world.note(|| format!("{} {}", tick.name, line()));
    }
}

impl Runtime for Simulated<'_> {
    fn now(&self) -> Instant {
        let Self { world, tick } = self;
        world.variant.clock(world.clock(tick), tick.sent, &tick.waits)
    }

    fn random(&mut self) -> f64 {
        let random = self.world.random.unit();
        if self.world.variant == Variant::NoReconnectPause { -1.0 } else { random }
    }

    fn take_signals(&mut self) -> usize {
        let Self { world, tick } = self;
        tick.is_woken = false;
        world.variant.signals(std::mem::take(&mut tick.signals), &tick.waits)
    }

    fn pool(&self) -> PoolState {
        self.tick.pool.state()
    }

    fn wake_when(&mut self, wake_when: WakeWhen, unrecorded: usize) -> bool {
        let Self { world, tick } = self;
        tick.pool.wake_when = wake_when;
        if unrecorded < std::mem::replace(&mut tick.pool.unrecorded, unrecorded) {
            world.fill(tick);
        }
        tick.pool.wakes()
    }

    fn take_ended(&mut self) -> Vec<Ended> {
        let Self { world, tick } = self;
        let ended = std::mem::take(&mut tick.pool.ended);
        tick.pool.bytes = 0;
        for claim in ended.iter().map(Ended::run) {
            tick.pool.stops.remove(&claim.token());
        }
        world.variant.ended(ended, tick)
    }

    fn submit(&mut self, mut tasks: Vec<Task>) -> anyhow::Result<()> {
        let now = self.world.clock(self.tick);
        self.note(|| format!("-> Start {}", history::tasks(&tasks, now)));
        let Self { world, tick } = self;
        world.variant.tasks(&mut tasks, now - tick.sent);
        world.submit(tick, tasks)
    }

    fn withdraw(&mut self) -> Vec<Claimed> {
        self.note(|| "-> Withdraw".to_owned());
        let Self { world, tick } = self;
        if world.variant == Variant::WithdrawIgnored {
            return Vec::new();
        }
        let runs: Vec<_> = tick.pool.waiting.drain(..).map(|(task, _)| task.run).collect();
        for run in &runs {
            tick.pool.stops.remove(&run.token());
        }
        if world.variant == Variant::WithdrawnForgotten { Vec::new() } else { runs }
    }

    fn extend(&mut self, claims: &[FencingToken], until: Instant) {
        let now = self.world.clock(self.tick);
        let line =
            || format!("-> Extend {} {}", history::claims(claims), history::after(until, now));
        self.note(line);
        let Self { world, tick } = self;
        if let Some(claim) = tick.pool.await_output(claims) {
            let line = format!("{} does not store the output of {claim:?}", tick.name);
            world.checks.fail(line);
        }
        let Some(until) = world.variant.extends(claims, until, now - tick.sent, &mut tick.pool)
        else {
            return;
        };
        tick.pool.extend(claims, until, now);
    }

    fn stop(&mut self, claim: &FencingToken, why: StopReason) {
        self.note(|| format!("-> Stop {} {why:?}", history::claim(claim)));
        let Self { world, tick } = self;
        // A tick without threads ends, and one whose statements are all rejected. A tick that was
        // frozen reads such an answer late.
        let sent_ago = (world.clock(tick) - tick.sent).as_nanos() as u64;
        let may_end = tick.pool.threads == 0
            || world.rejects.is_some()
            || world.now.saturating_sub(sent_ago) < world.up_since
            || tick.signalled < Some((world.up_since, 0));
        if why == StopReason::Interrupted && !may_end {
            world.checks.interrupted(tick, &world.hosts[tick.host], world.now);
        }
        if let Some(stop) = tick.pool.stops.get_mut(claim).filter(|_| !world.variant.ignores(why)) {
            stop.asked.get_or_insert(why);
            world.job(tick, claim);
        }
    }

    fn hurry(&mut self) {
        self.note(|| "-> Hurry".to_owned());
        let Self { world, tick } = self;
        tick.pool.stops.values_mut().for_each(|stop| stop.is_hurried = true);
        let running: Vec<_> = tick.pool.running.keys().copied().collect();
        running.iter().for_each(|claim| world.job(tick, claim));
    }

    fn take_output(&mut self, claim: &FencingToken) -> Option<String> {
        let first = self.tick.pool.running.keys().next().copied();
        if self.world.variant == Variant::OutputOfOneJob && first != Some(*claim) {
            return None;
        }
        let execution = self.tick.pool.running.get_mut(claim)?;
        let is_new = execution.has_output();
        execution.has_new_output = false;
        // The longer one is more than a statement stores.
        is_new.then(|| "x".repeat(if claim.id % 2 == 0 { 300_000 } else { 20 }))
    }

    fn keep_output(&mut self, claim: &FencingToken) {
        if self.world.variant == Variant::OutputNotKept {
            return;
        }
        if let Some(execution) = self.tick.pool.running.get_mut(claim) {
            execution.has_new_output = true;
        }
    }

    fn disconnect(&mut self) {
        self.note(|| "-> Disconnect".to_owned());
        let tick = &mut *self.tick;
        tick.disconnected_at = self.world.now;
        (tick.connected, tick.exchange, tick.answer, tick.opened) = (None, None, None, None);
        tick.connection += 1;
    }

    fn connect(&mut self) {
        let Self { world, tick } = self;
        tick.connection += 1;
        let is_silent = world.hosts[tick.host].cut_until > world.now;
        let delay = if is_silent { CONNECT_TIMEOUT } else { 4 * world.travel() };
        world.checks.connected(tick, world.now);
        world.push(world.now + delay, What::Connected(tick.number, tick.connection));
    }

    fn take_connection(&mut self) -> Option<anyhow::Result<()>> {
        self.tick.connected = self.tick.opened.take()?;
        let is_noticed =
            self.tick.connected.is_some() || self.world.variant != Variant::RefusalForgotten;
        let connected = self.tick.connected.map(drop);
        is_noticed.then(|| connected.ok_or_else(|| anyhow::anyhow!("no connection")))
    }

    fn log(&mut self, level: Level, line: &str, _: Option<&FencingToken>) {
        self.note(|| format!("-> {level} {line}"));
        self.tick.has_warned |=
            self.world.variant.logs() && line.starts_with("the database is slow");
    }

    fn recorded(&mut self, judged: &JudgedAttempt, status: Option<Status>) {
        self.note(|| format!("-> Recorded {} {status:?}", history::claim(&judged.run.token())));
    }

    fn observe(&mut self, event: &Event) {
        self.note(|| format!("<- {}", history::event(event)));
        let Self { world, tick } = self;
        tick.observed = world.clock(tick);
        if let Event::Answered(answer) = event {
            tick.is_slow |= is_slow(answer, tick.observed - tick.decided, &tick.timing);
        }
        world.count_event(tick, matches!(event, Event::Time));
        if matches!(event, Event::Signal) {
            tick.stopping_since.get_or_insert(world.now);
        }
    }
}

impl World {
    /// Commits what a statement changed long ago; it kept the runs locked.
    fn commit(&mut self, changed: &Database, runs: Vec<i64>, generation: u64) {
        if generation != self.generation {
            return;
        }
        self.note(|| format!("   database: a late COMMIT of runs {runs:?}"));
        let is_ended = |id: &&i64| changed.runs[id].finished_at.is_some();
        let ended = runs.iter().filter(is_ended).copied().collect();
        self.database.mark_followers(&ended);
        for id in runs {
            self.database.locked.remove(&id);
            let run = changed.runs[&id].clone();
            self.database.locked_definitions.remove(&run.job_type);
            self.database.set(id, Some(run));
            let attempts = changed.attempts.range((id, 0)..=(id, i32::MAX));
            self.database.attempts.extend(attempts.map(|(key, row)| (*key, row.clone())));
        }
        for (id, kept) in &changed.kept {
            let is_newer = |row: &Kept| row.written_at < kept.written_at;
            if kept.written_at == changed.now && self.database.kept.get(id).is_none_or(is_newer) {
                self.database.kept.insert(*id, kept.clone());
            }
        }
        self.checks.changed(&self.database, &By::LateCommit, self.now);
    }

    /// Returns the answer that has come. If no answer has come in time, returns that as an error.
    fn poll(&mut self, tick: &mut Tick, now: Instant) -> Option<Answer> {
        let answer = match (tick.answer.take(), &tick.exchange) {
            (Some(answer), _) => answer,
            (None, Some(exchange)) if now >= exchange.until => {
                self.checks.unanswered(tick.number, self.now);
                self.variant
                    .timed_out(&exchange.request)
                    .unwrap_or_else(|| refusal(&exchange.request, lost(), exchange.made.clone()))
            }
            _ => return None,
        };
        let exchange = tick.exchange.take()?;
        (tick.sent, tick.decided) = (exchange.sent, exchange.decided);
        if let Answer::Store(left) = &answer {
            tick.pool.sent_output(&tokens(&exchange.request), left);
            self.variant.stored(&mut tick.pool, now);
        }
        self.checks.answered(tick, exchange.decided, &answer, now, self.now);
        Some(answer)
    }

    /// Ends a tick and its jobs at once.
    pub(super) fn crash(&mut self, number: usize) {
        if let Some(tick) = self.ticks[number].take() {
            self.note(|| format!("{} crashes", tick.name));
            self.hosts[tick.host].dead.insert(tick.name.clone());
            self.checks.crashed(&tick);
        }
    }

    /// Ends all sessions.
    pub(super) fn restart(&mut self, down: Time) {
        self.generation += 1;
        self.is_down = true;
        self.end_locks();
        self.push(self.now + down, What::Up);
        for number in 0..self.ticks.len() {
            let delay = self.travel();
            if let Some(tick) = &self.ticks[number]
                && let Some(exchange) = &tick.exchange
                && tick.answer.is_none()
            {
                let answer = refusal(&exchange.request, lost(), exchange.made.clone());
                let number = exchange.number;
                self.push(self.now + delay, What::Answer(tick.number, number, answer));
            }
        }
    }

    /// Ends all locks, as their sessions have ended.
    fn end_locks(&mut self) {
        self.database.locked.clear();
        self.database.locked_definitions.clear();
        self.database.locked_workers.clear();
    }

    pub(super) fn copy_to_standby(&mut self) {
        self.standby = (self.now, self.database.clone());
    }

    /// The standby takes over. It lacks the last commits, and its clock differs.
    pub(super) fn fail_over(&mut self) {
        let down = self.random.below(seconds(10));
        self.restart(down);
        let refused = std::mem::take(&mut self.database.refused);
        self.database = self.standby.1.clone();
        self.database.refused = refused;
        self.end_locks();
        self.skew += self.random.below(1_000_000_000) as i64 - 500_000_000;
        self.set_database_clock();
        self.checks.failed_over(&self.database, self.now);
    }

    pub(super) fn slow_down(&mut self, lasts: Time) {
        self.slow = self.now + lasts;
    }

    pub(super) fn reject_all(&mut self, kind: Kind, exit: Exit, lasts: Time) {
        self.rejects = Some((kind, exit));
        if exit == Exit::CouldNot {
            self.checks.refused.extend(self.database.runs.keys().copied());
        }
        self.push(self.now + lasts, What::Up);
    }

    pub(super) fn has_fault(&self, bit: u64) -> bool {
        self.faults >> bit & 1 == 1
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_down
    }
}

/// Whether a tick must say that the database is slow, if this answer took so long.
fn is_slow(answer: &Answer, took: Duration, timing: &Timing) -> bool {
    let took = match answer {
        Answer::Renew(Err(error)) | Answer::Step(Err((error, _))) if error.kind == Kind::Lost => {
            return false;
        }
        Answer::Renew(_) | Answer::Step(_) => took,
        Answer::Wake { woken: Ok(woken), .. } => woken.longest,
        _ => return false,
    };
    took >= timing.heartbeat.max(Duration::from_secs(2))
}

/// The claims that a request names.
fn tokens(request: &Request) -> Vec<FencingToken> {
    match request {
        Request::Step { results, kept, unstarted, .. } => {
            let tokens = results.iter().map(|result| result.token);
            tokens.chain(unstarted.iter().copied()).chain(kept.iter().map(|it| it.token)).collect()
        }
        Request::Renew { claims, kept } => claims.iter().chain(kept).copied().collect(),
        Request::Store(outputs) => outputs.iter().map(|(claim, _)| *claim).collect(),
        _ => Vec::new(),
    }
}

fn lost() -> store::Error {
    store::Error::new(Kind::Lost, Exit::Unavailable, "the connection was lost")
}

fn busy() -> store::Error {
    let mut error = store::Error::new(Kind::Busy, Exit::Unavailable, "the statement took too long");
    error.is_too_slow = true;
    error
}

/// Returns the answer of a request that failed; `made` are the claims that may exist.
fn refusal(request: &Request, error: store::Error, made: Vec<FencingToken>) -> Answer {
    let made = if error.kind == Kind::Lost { made } else { Vec::new() };
    match request {
        Request::Wake(_) => Answer::Wake { woken: Err(error), is_searching: false },
        Request::Renew { .. } => Answer::Renew(Err(error)),
        Request::Store(_) => Answer::Store(Err(error)),
        Request::Step { .. } => Answer::Step(Err((error, made))),
        Request::Leave { .. } => Answer::Leave(Err(error)),
        Request::Prune => Answer::Prune,
    }
}
