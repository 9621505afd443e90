//! Checks the promises of jobctl in a log of events, one a line: a time, a word and its arguments.
//! The order of the lines is the order of the events; all processes append to the same file.
//!
//! | written by | lines |
//! |---|---|
//! | a job | `start RUN ATTEMPT TICK JOB`, `beat`, `term`, `end ... CODE`, `effect ... KEY`, |
//! | | `version ... VERSION`, of the payload that it got |
//! | the test | `tick TICK WORKER CONCURRENCY`, `fault TICK`, `gone TICK`, `limit JOB N` |
//! | | `answer RUN KEY`, `retry RUN`, `force RUN`, `pause JOB`, `schedule JOB FIRST TIMES` |
//! | | `share-limit JOB N`, `rate JOB MICROS BURST`, `held JOB FROM UNTIL`, |
//! | | `prune RUN`, `retry-all`, `undo` |
//! | a trigger | `insert RUN JOB MAX KEY NOMINAL STATUS`, `change RUN FROM TO ATTEMPTS MAX` |
//! | | `claim RUN ATTEMPT JOB SHARE TIME EXPIRES LOCK ONLY WORKER`, `payload RUN VERSION` |
//! | | `follows RUN AFTER`, of the runs of the job that follows `origin` |
//! | at the end | `waits RUN AFTER RULE`, `run RUN STATUS`, `recorded KEY`, `archived RUN`, |
//! | | `attempt RUN ATTEMPT WORKER OUTCOME CODE STARTED FINISHED` |
//!
//! The times are for people. The checks ignore them and use the order.
//!
//! `fault` means that the tick gets SIGKILL or SIGSTOP, or that the machine stalls. From then on,
//! its jobs may overlap with other attempts: docs/operations.md promises no more.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

type Attempt = (i64, i64);

const FINAL: [&str; 3] = ["succeeded", "dead", "cancelled"];

/// One attempt, as its job logged it.
struct Execution<'a> {
    tick: &'a str,
    job: &'a str,
    /// The places of its lines in the log; the first one is `start`.
    lines: Vec<usize>,
    /// The exit statuses of its `end` lines.
    codes: Vec<&'a str>,
}

#[derive(Default)]
struct Log<'a> {
    lines: Vec<Vec<&'a str>>,
    executions: BTreeMap<Attempt, Execution<'a>>,
    /// The worker and the concurrency of each tick.
    ticks: BTreeMap<&'a str, (&'a str, usize)>,
    /// The place of each tick's first `fault`.
    faults: BTreeMap<&'a str, usize>,
    /// The place of each tick's `gone`.
    gone: BTreeMap<&'a str, usize>,
    /// The place of each run's first `force`.
    forces: BTreeMap<i64, usize>,
    /// The lines `insert` and `change` of each run.
    changes: BTreeMap<i64, Vec<&'a [&'a str]>>,
    broken: RefCell<Vec<String>>,
}

fn number(word: &str) -> i64 {
    word.parse().unwrap_or_else(|_| panic!("`{word}` in a log of events is not a number"))
}

/// Returns the broken promises.
pub fn broken(text: &str) -> Vec<String> {
    // Without the times.
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split(' ').skip(1).collect()).collect();
    let mut log = Log::default();
    lines.iter().enumerate().for_each(|(at, line)| log.read(at, line));
    log.lines.clone_from(&lines);
    log.no_run_is_lost();
    log.attempts_do_not_overlap();
    log.no_process_outlives_its_tick();
    log.limits_hold();
    log.transitions_are_legal_and_starts_bounded();
    log.history_is_complete_and_true();
    log.each_key_has_one_run();
    log.each_time_fires_once();
    log.each_effect_happens_once();
    log.limits_hold_in_the_database();
    log.rates_hold();
    log.neither_held_nor_expired_runs_are_claimed();
    log.only_its_worker_claims_a_pinned_run();
    log.the_last_version_of_a_payload_runs();
    log.archived_or_kept();
    log.runs_wait_for_others();
    log.each_success_is_followed_once();
    log.broken.into_inner()
}

impl<'a> Log<'a> {
    /// Sorts the line at this place of the log into the maps that the checks use.
    fn read(&mut self, at: usize, line: &'a [&'a str]) {
        match *line {
            ["start", run, attempt, tick, job] => {
                let started = (number(run), number(attempt));
                let execution = Execution { tick, job, lines: vec![at], codes: Vec::new() };
                if self.executions.insert(started, execution).is_some() {
                    self.problem(format!("run {run} attempt {attempt} started twice"));
                }
            }
            ["beat" | "term" | "end" | "effect" | "version", run, attempt, _, ref more @ ..] => {
                let Some(execution) = self.executions.get_mut(&(number(run), number(attempt)))
                else {
                    return self.problem(format!("run {run} attempt {attempt}: no start"));
                };
                execution.lines.push(at);
                if line[0] == "end" {
                    execution.codes.extend(more.first());
                }
            }
            ["tick", tick, worker, concurrency] => {
                let concurrency = usize::try_from(number(concurrency)).unwrap();
                self.ticks.insert(tick, (worker, concurrency));
            }
            ["fault", tick] => drop(self.faults.entry(tick).or_insert(at)),
            ["gone", tick] => drop(self.gone.insert(tick, at)),
            ["force", run] => drop(self.forces.entry(number(run)).or_insert(at)),
            ["insert" | "change", run, ..] => {
                self.changes.entry(number(run)).or_default().push(line);
            }
            _ => {}
        }
    }

    fn problem(&self, text: String) {
        self.broken.borrow_mut().push(text);
    }

    /// Returns the arguments of all lines with this word.
    fn all(&self, word: &str) -> Vec<Vec<&'a str>> {
        let with_word = self.lines.iter().filter(|line| line[0] == word);
        with_word.map(|line| line[1..].to_vec()).collect()
    }

    fn count(&self, line: [&str; 2]) -> usize {
        self.lines.iter().filter(|other| **other == line).count()
    }

    /// Returns whether this attempt may run beside others at this line. It may after a fault of its
    /// tick, and after a forced retry of its run.
    fn is_excused(&self, attempt: Attempt, at: usize) -> bool {
        let of_tick = self.faults.get(self.executions[&attempt].tick);
        let excuses = [of_tick, self.forces.get(&attempt.0)];
        excuses.into_iter().flatten().any(|excuse| *excuse < at)
    }

    /// Returns whether this attempt was running at this line without an excuse: it wrote a line
    /// before and another one after.
    fn is_running(&self, attempt: Attempt, at: usize) -> bool {
        let lines = &self.executions[&attempt].lines;
        let later = lines.iter().find(|line| **line > at);
        lines[0] < at && later.is_some_and(|later| !self.is_excused(attempt, *later))
    }

    /// Returns the status after the last change of this run.
    fn status(&self, run: i64) -> Option<&'a str> {
        self.changes.get(&run)?.last()?.get(3).copied()
    }

    fn is_deleted(&self, run: i64) -> bool {
        self.status(run) == Some("deleted")
    }

    /// Returns whether this run waits, directly or through others, for a run that did not succeed.
    /// So only a retry of that run lets it start. A run that was cancelled with its predecessor and
    /// then retried waits so, too.
    fn is_stuck(&self, run: i64) -> bool {
        self.all("waits").iter().any(|waits| {
            let [follower, before, rule] = waits[..] else { return false };
            number(follower) == run
                && match self.status(number(before)) {
                    Some("dead" | "cancelled" | "deleted") => rule != "any_end",
                    Some("blocked") => self.is_stuck(number(before)),
                    _ => false,
                }
        })
    }

    fn no_run_is_lost(&self) {
        // The status of each run at the end.
        let rows: BTreeMap<_, _> =
            self.all("run").iter().map(|row| (number(row[0]), row[1])).collect();
        for run in self.changes.keys() {
            match rows.get(run) {
                Some(&"blocked") if self.is_stuck(*run) => {}
                Some(status) if !FINAL.contains(status) => {
                    self.problem(format!("run {run} is still {status}"));
                }
                Some(status) if self.status(*run) != Some(status) => {
                    self.problem(format!("run {run} is {status} without a transition"));
                }
                None if !self.is_deleted(*run) => self.problem(format!("run {run} is lost")),
                _ => {}
            }
        }
        for answer in self.all("answer") {
            if !self.changes.contains_key(&number(answer[0])) {
                self.problem(format!("run {} is lost after its enqueue", answer[0]));
            }
        }
    }

    fn attempts_do_not_overlap(&self) {
        for (&(run, later), execution) in &self.executions {
            let start = execution.lines[0];
            for &(_, earlier) in self.executions.range((run, 0)..(run + 1, 0)).map(|(id, _)| id) {
                if earlier != later && self.is_running((run, earlier), start) {
                    self.problem(format!("run {run} attempts {earlier} and {later} overlap"));
                }
            }
        }
    }

    fn no_process_outlives_its_tick(&self) {
        for ((run, attempt), execution) in &self.executions {
            let tick = execution.tick;
            let end = self.gone.get(tick).filter(|_| !self.faults.contains_key(tick));
            if end.is_some_and(|end| execution.lines.last() > Some(end)) {
                self.problem(format!("run {run} attempt {attempt} outlived its tick {tick}"));
            }
        }
    }

    fn limits_hold(&self) {
        let limits: BTreeMap<_, _> =
            self.all("limit").iter().map(|limit| (limit[0], number(limit[1]))).collect();
        let locks: BTreeMap<_, _> =
            self.all("claim").iter().map(|claim| (number(claim[0]), claim[6])).collect();
        let lock = |run: i64| locks.get(&run).copied().filter(|lock| *lock != "-");
        let tick = |execution: &Execution<'a>| self.ticks.get(execution.tick).copied();
        let worker = |execution: &Execution<'a>| tick(execution).map(|(worker, _)| worker);
        for (&started, execution) in &self.executions {
            let ((run, attempt), start) = (started, execution.lines[0]);
            if self.is_excused(started, start) {
                continue;
            }
            // Count the attempts that run at this start: this one, and those of other runs.
            let (mut of_job, mut of_worker, mut of_lock) = (0, 0, 0);
            let running = self.executions.iter().filter(|(other, _)| {
                **other == started || other.0 != run && self.is_running(**other, start)
            });
            for (&(other_run, _), other) in running {
                let has_lock = lock(run).is_some() && lock(other_run) == lock(run);
                of_lock += i32::from(has_lock);
                of_job += i64::from(other.job == execution.job);
                of_worker += usize::from(worker(other) == worker(execution));
            }
            if of_lock > 1 {
                self.problem(format!("run {run} attempt {attempt}: {of_lock} runs of its lock"));
            }
            if limits.get(execution.job).is_some_and(|limit| of_job > *limit) {
                let job = execution.job;
                self.problem(format!("run {run} attempt {attempt}: {of_job} runs of {job}"));
            }
            if let Some((name, limit)) = tick(execution)
                && of_worker > limit
            {
                self.problem(format!(
                    "run {run} attempt {attempt}: {of_worker} runs of worker {name}"
                ));
            }
        }
    }

    fn transitions_are_legal_and_starts_bounded(&self) {
        for (run, changes) in &self.changes {
            let name = run.to_string();
            // How often an operator may have undone a retry, or revived this run.
            let undos = self.all("undo").len();
            let retries = self.count(["retry", name.as_str()])
                + self.count(["force", name.as_str()])
                + self.all("retry-all").len()
                + undos;
            let ["insert", _, _, first_max, _, _, inserted] = *changes[0] else {
                self.problem(format!("run {run}: no insert"));
                continue;
            };
            let (mut status, mut attempts, mut revived, mut undone) = (inserted, 0, 0, 0);
            // An interrupted attempt does not count. After one, MAX of a `change` is `3+1`.
            let (mut max, mut uncounted) = (number(first_max), 0);
            for change in &changes[1..] {
                let ["change", _, from, to, new_attempts, new_max] = **change else {
                    self.problem(format!("run {run}: two inserts"));
                    continue;
                };
                // A claim counts an attempt, and its release subtracts it again.
                let added = number(new_attempts) - attempts;
                let is_legal = match (from, to, added) {
                    ("queued" | "failed", "running", 1)
                    | ("queued" | "failed" | "blocked", "cancelled", 0)
                    | ("queued", "blocked", 0)
                    | ("blocked", "queued", 0)
                    | ("running", "succeeded" | "failed" | "dead" | "cancelled" | "queued", 0)
                    | ("running", "queued" | "cancelled", -1)
                    | ("succeeded" | "dead" | "cancelled", "deleted", 0) => true,
                    ("failed" | "dead" | "cancelled", "queued", 0)
                    | ("cancelled", "failed" | "blocked", 0) => {
                        // Each retry allows one such change.
                        revived += 1;
                        revived <= retries
                    }
                    // Each undo allows one such change: it restores the end before a retry.
                    ("queued" | "blocked", "dead" | "failed", 0) => {
                        undone += 1;
                        undone <= undos
                    }
                    _ => false,
                };
                if from != status || !is_legal {
                    self.problem(format!("run {run}: {from} -> {to}, attempts {added:+}"));
                }
                let (new_max, new_uncounted) = new_max.split_once('+').unwrap_or((new_max, "0"));
                let more = number(new_uncounted) - uncounted;
                // After an interrupted attempt, the run is queued again, or cancelled if an
                // operator asked for that.
                let may_be_interruption = matches!((from, to), ("running", "queued" | "cancelled"));
                if more != 0 && !(more == 1 && may_be_interruption) {
                    self.problem(format!("run {run}: {from} -> {to}, uncounted {more:+}"));
                }
                uncounted += more;
                (status, attempts, max) = (to, number(new_attempts), number(new_max));
            }
            let starts = self.executions.range((*run, 0)..(run + 1, 0)).count();
            let allowed = number(first_max) * (1 + i64::try_from(retries).unwrap());
            if i64::try_from(starts).unwrap() > max + uncounted || max > allowed {
                self.problem(format!("run {run}: {starts} starts, {max} of {allowed} allowed"));
            }
        }
    }

    fn history_is_complete_and_true(&self) {
        // The rows of each run: run, attempt, worker, outcome, code, start and end.
        let mut history: BTreeMap<i64, Vec<Vec<&str>>> = BTreeMap::new();
        for row in self.all("attempt") {
            history.entry(number(row[0])).or_default().push(row);
        }
        for run in self.changes.keys().filter(|run| !self.is_deleted(**run)) {
            let rows = history.get(run).map_or(&[][..], Vec::as_slice);
            let numbers: Vec<_> = rows.iter().map(|row| number(row[1])).collect();
            let attempts = match *self.changes[run][self.changes[run].len() - 1] {
                ["change", _, _, _, attempts, _] => number(attempts),
                _ => 0,
            };
            if numbers != (1..=attempts).collect::<Vec<_>>() {
                self.problem(format!("run {run}: attempts {numbers:?} of {attempts} in history"));
            }
            // The start and the end of each attempt, in the order of the attempts.
            let times: Vec<_> =
                rows.iter().flat_map(|row| [number(row[5]), number(row[6])]).collect();
            if !times.is_sorted() {
                self.problem(format!("run {run}: the times of its history are not in order"));
            }
            // If an attempt succeeded, it is the last one, and the status is `succeeded`. No other
            // run has this status.
            let outcomes: Vec<_> = rows.iter().map(|row| row[3]).collect();
            let first_success = outcomes.iter().position(|outcome| *outcome == "succeeded");
            let is_last = first_success.is_some_and(|place| place + 1 == outcomes.len());
            if first_success.is_some() != (self.status(*run) == Some("succeeded"))
                || first_success.is_some() && !is_last
            {
                let status = self.status(*run);
                self.problem(format!("run {run} is {status:?} after {outcomes:?}"));
            }
        }
        for row in history.values().flatten() {
            let [run, attempt, worker, outcome, code, ..] = **row else { continue };
            let execution = self.executions.get(&(number(run), number(attempt)));
            // A job writes `end` and then exits. So an attempt with an exit status has this line.
            let code = if outcome == "succeeded" { "0" } else { code };
            if code != "-" && !execution.is_some_and(|it| it.codes.contains(&code)) {
                self.problem(format!(
                    "run {run} attempt {attempt}: {outcome} without `end {code}`"
                ));
            }
            let of_worker = execution.and_then(|it| self.ticks.get(it.tick)).map(|it| it.0);
            if of_worker.is_some_and(|name| name != worker) {
                self.problem(format!("run {run} attempt {attempt}: worker {worker} in history"));
            }
        }
        // Each attempt that started has a row in the history.
        for (run, attempt) in self.executions.keys() {
            let has_row = |rows: &Vec<Vec<&str>>| rows.iter().any(|row| number(row[1]) == *attempt);
            if !self.is_deleted(*run) && !history.get(run).is_some_and(has_row) {
                self.problem(format!("run {run} attempt {attempt} started without history"));
            }
        }
    }

    fn each_key_has_one_run(&self) {
        // The run that has each key at this line of the log.
        let mut holders: BTreeMap<&str, i64> = BTreeMap::new();
        for line in &self.lines {
            match line[..] {
                ["insert", run, _, _, key, ..] if key != "-" => {
                    if let Some(other) = holders.insert(key, number(run)) {
                        self.problem(format!("key {key} has runs {other} and {run}"));
                    }
                }
                ["change", run, _, "deleted", ..] => {
                    holders.retain(|_, holder| *holder != number(run))
                }
                _ => {}
            }
        }
        // An enqueue was answered with the run that has its key.
        let keys: BTreeMap<_, _> = self.all("insert").iter().map(|row| (row[0], row[3])).collect();
        for answer in self.all("answer") {
            if keys.get(answer[0]).is_some_and(|key| *key != answer[1]) {
                self.problem(format!("key {} was answered with run {}", answer[1], answer[0]));
            }
        }
    }

    fn each_time_fires_once(&self) {
        // An `insert` has the words run, job, max, key, nominal time and status.
        let mut fired: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for row in self.all("insert").iter().filter(|row| row[4] != "-") {
            if !fired.entry(row[1]).or_default().insert(number(row[4])) {
                self.problem(format!("{} fired twice at {}", row[1], row[4]));
            }
        }
        // A pause may skip times of a job.
        for row in self.all("schedule").iter().filter(|row| self.count(["pause", row[0]]) == 0) {
            let times = fired.get(row[0]);
            for time in (0..number(row[2])).map(|minute| number(row[1]) + 60 * minute) {
                if !times.is_some_and(|times| times.contains(&time)) {
                    self.problem(format!("{} did not fire at {time}", row[0]));
                }
            }
        }
    }

    fn each_effect_happens_once(&self) {
        let mut seen = BTreeSet::new();
        for word in ["effect", "recorded"] {
            for key in self.all(word).iter().filter_map(|row| row.last().copied()) {
                if !seen.insert((word, key)) {
                    self.problem(format!("effect {key} happened twice"));
                }
            }
        }
        // Each run of `once` that succeeded has its effect.
        for row in self.all("attempt").iter().filter(|row| row[3] == "succeeded") {
            let is_of_run = |effect: &Vec<&str>| effect[0] == row[0];
            let execution = self.executions.get(&(number(row[0]), number(row[1])));
            if execution.is_some_and(|it| it.job == "once")
                && !self.all("effect").iter().any(is_of_run)
            {
                self.problem(format!("run {} succeeded without its effect", row[0]));
            }
        }
    }
}

/// A claim by the database's data.
#[derive(Clone, Copy)]
struct Claim<'a> {
    run: i64,
    attempt: i64,
    job: &'a str,
    share: &'a str,
    lock: &'a str,
    time: i64,
    /// The version of the payload that was claimed.
    version: Option<&'a str>,
}

impl<'a> Log<'a> {
    /// Returns the claims, except those that were released. After each claim, calls `check` with
    /// the claims of all runs that are running then, the new one last. The trigger's lines are in
    /// the order of the changes.
    fn claims(&self, mut check: impl FnMut(&[Claim<'a>])) -> Vec<Claim<'a>> {
        let (mut claims, mut running) = (Vec::<Claim>::new(), Vec::<Claim>::new());
        let mut versions: BTreeMap<i64, &str> = BTreeMap::new();
        for line in &self.lines {
            match line[..] {
                ["payload", run, version] => drop(versions.insert(number(run), version)),
                ["claim", run, attempt, job, share, time, _, lock, ..] => {
                    let run = number(run);
                    let (attempt, time) = (number(attempt), number(time));
                    let version = versions.get(&run).copied();
                    let claim = Claim { run, attempt, job, share, lock, time, version };
                    claims.push(claim);
                    running.push(claim);
                    check(&running);
                }
                ["change", run, "running", _, attempts, _] => {
                    running.retain(|claim| claim.run != number(run));
                    // A released claim does not count as an attempt.
                    let is_released =
                        |it: &Claim| it.run == number(run) && it.attempt > number(attempts);
                    claims.retain(|claim| !is_released(claim));
                }
                _ => {}
            }
        }
        claims
    }

    fn limits_hold_in_the_database(&self) {
        let limits_by_job = |word: &str| -> BTreeMap<&str, usize> {
            let rows = self.all(word).into_iter();
            rows.map(|row| (row[0], usize::try_from(number(row[1])).unwrap())).collect()
        };
        let (of_jobs, of_shares) = (limits_by_job("limit"), limits_by_job("share-limit"));
        self.claims(|running| {
            // The new claim.
            let Claim { run, job, share, lock, .. } = running[running.len() - 1];
            if lock != "-" && running.iter().filter(|other| other.lock == lock).count() > 1 {
                self.problem(format!("run {run}: several claims with lock {lock} at once"));
            }
            let same_job = running.iter().filter(|other| other.job == job);
            let same_share = same_job.clone().filter(|other| other.share == share).count();
            for (count, limits, of) in
                [(same_job.count(), &of_jobs, job), (same_share, &of_shares, share)]
            {
                if limits.get(job).is_some_and(|limit| count > *limit) {
                    self.problem(format!("run {run}: {count} claims of {of} at once"));
                }
            }
        });
    }

    fn rates_hold(&self) {
        let mut claims = self.claims(|_| {});
        claims.sort_by_key(|claim| claim.time);
        for rate in self.all("rate") {
            let (interval, burst) = (number(rate[1]), number(rate[2]));
            let times = claims.iter().filter(|claim| claim.job == rate[0]).map(|claim| claim.time);
            let times: Vec<_> = times.collect();
            for (place, last) in times.iter().enumerate() {
                // From any claim to a later one, both counted, at most `burst` are allowed, and one
                // for each interval in between.
                let exceeds = times[..place].iter().enumerate().any(|(first_place, first)| {
                    let counted = (place - first_place + 1) as i64;
                    counted > burst + (last - first) / interval
                });
                if exceeds {
                    self.problem(format!("too many claims of {} at {last}", rate[0]));
                }
            }
        }
    }

    fn neither_held_nor_expired_runs_are_claimed(&self) {
        let holds = self.all("held");
        for claim in self.all("claim") {
            let [run, _, job, _, time, expires, ..] = claim[..] else { continue };
            if expires != "-" && number(expires) <= number(time) {
                self.problem(format!("run {run} was claimed after it had expired"));
            }
            let time = number(time);
            let is_held = |hold: &Vec<&str>| {
                hold[0] == job && (number(hold[1])..number(hold[2])).contains(&time)
            };
            if holds.iter().any(is_held) {
                self.problem(format!("run {run} was claimed while {job} was held"));
            }
        }
    }

    fn only_its_worker_claims_a_pinned_run(&self) {
        for claim in self.all("claim") {
            let [run, .., only, worker] = claim[..] else { continue };
            if only != "-" && only != worker {
                self.problem(format!("run {run} is for {only}, and {worker} claimed it"));
            }
        }
    }

    fn the_last_version_of_a_payload_runs(&self) {
        for claim in self.claims(|_| {}) {
            let [run, attempt] = [claim.run, claim.attempt].map(|number| number.to_string());
            // A line has a run, an attempt, a tick and a version.
            for line in self.all("version") {
                if line[..2] == [&*run, &*attempt] && line.get(3).copied() != claim.version {
                    let (got, last) = (line.get(3), claim.version);
                    self.problem(format!("run {run} got version {got:?}, not {last:?}"));
                }
            }
        }
    }

    /// A run is claimed only after the runs that it waits for have ended as it asks, or after an
    /// operator let it start.
    fn runs_wait_for_others(&self) {
        for waits in self.all("waits") {
            let [run, after, rule] = waits[..] else { continue };
            let is_claim = |line: &Vec<&str>| line.starts_with(&["claim", run]);
            let is_end = |line: &Vec<&str>| {
                let ends: &[_] = if rule == "any_end" {
                    &["succeeded", "dead", "cancelled", "deleted"]
                } else {
                    &["succeeded"]
                };
                line.starts_with(&["change", after]) && ends.contains(&line[3])
            };
            let is_retry = |line: &Vec<&str>| {
                line[0] == "retry-all" || line[..] == ["retry", run] || line[..] == ["force", run]
            };
            // An operator's retry lets a blocked run start.
            let is_allowed = self.lines.iter().any(is_retry);
            let claimed = self.lines.iter().position(is_claim);
            let ended = self.lines.iter().position(is_end);
            if claimed.is_some_and(|at| ended.is_none_or(|end| end > at)) && !is_allowed {
                self.problem(format!("run {run} was claimed before run {after} had ended"));
            }
        }
    }

    /// After each success of a job, a run of the job that follows it is enqueued. One run may
    /// follow several successes, and none is followed twice.
    fn each_success_is_followed_once(&self) {
        let jobs: BTreeMap<_, _> = self.all("insert").iter().map(|row| (row[0], row[1])).collect();
        let is_success = |line: &&Vec<&str>| {
            let is_of_origin = |run: &str| jobs.get(run) == Some(&"origin");
            matches!(line[..], ["change", run, _, "succeeded", ..] if is_of_origin(run))
        };
        let is_follower = |line: &&Vec<&str>| matches!(line[..], ["insert", _, "following", ..]);
        // The places of the last success and of the last run that follows.
        let success = self.lines.iter().rposition(|line| is_success(&line));
        let follower = self.lines.iter().rposition(|line| is_follower(&line));
        if success > follower {
            self.problem("no run follows the last success of origin".to_owned());
        }
        let mut followed = BTreeSet::new();
        for link in self.all("follows") {
            if !followed.insert(link[1]) {
                self.problem(format!("several runs follow run {}", link[1]));
            }
        }
    }

    /// A deleted run was archived before, unless it was pruned without an archive.
    fn archived_or_kept(&self) {
        let named = |word: &str| -> BTreeSet<i64> {
            self.all(word).iter().map(|row| number(row[0])).collect()
        };
        let (archived, pruned) = (named("archived"), named("prune"));
        for run in self.changes.keys().filter(|run| self.is_deleted(**run)) {
            if !archived.contains(run) && !pruned.contains(run) {
                self.problem(format!("run {run} is deleted and not archived"));
            }
        }
    }
}

/// A log without a problem. Run 1 has two attempts, the first of which loses its lease. Run 2 of
/// the same job runs beside it. Run 9 is cancelled and archived. Run 4 follows run 3 and waits for
/// run 1.
const GOOD_LOG: &str = "\
0 limit once 2
0 share-limit once 2
0 rate once 1 2
0 held once 2000 3000
0 schedule once 600 1
0 tick t1 a 2
0 tick t2 b 2
0 answer 1 k
0 insert 1 once 2 k - queued
0 insert 2 once 1 - 600 queued
0 payload 1 7
0 change 1 queued running 1 2
0 claim 1 1 once s 1000 5000 m - a
1 start 1 1 t1 once
1 version 1 1 t1 7
0 change 2 queued running 1 1
0 claim 2 1 once s 1001 - n b b
1 start 2 1 t2 once
2 beat 1 1 t1
3 term 1 1 t1
3 end 1 1 t1 143
0 change 1 running failed 1 2
0 change 1 failed running 2 2
0 claim 1 2 once s 4000 5000 m - b
4 start 1 2 t2 once
5 effect 1 2 t2 k
5 end 1 2 t2 0
0 change 1 running succeeded 2 2
6 effect 2 1 t2 k2
6 end 2 1 t2 0
0 change 2 running succeeded 1 1
0 insert 9 once 1 - - queued
0 change 9 queued cancelled 0 1
0 change 9 cancelled deleted 0 1
0 archived 9
0 insert 3 origin 1 - - queued
0 change 3 queued running 1 1
0 change 3 running succeeded 1 1
0 follows 4 3
0 change 3 succeeded deleted 1 1
0 archived 3
0 insert 4 following 1 - - queued
0 change 4 queued blocked 0 1
0 change 4 blocked queued 0 1
0 change 4 queued running 1 1
0 claim 4 1 once s 9000 - - - b
7 start 4 1 t2 once
7 effect 4 1 t2 k4
7 end 4 1 t2 0
0 change 4 running succeeded 1 1
7 gone t1
7 gone t2
0 waits 4 1 success
0 run 1 succeeded
0 run 2 succeeded
0 run 4 succeeded
0 recorded k3
0 attempt 1 1 a lease_expired - 1 3
0 attempt 1 2 b succeeded 0 4 5
0 attempt 2 1 b succeeded 0 1 6
0 attempt 4 1 b succeeded 0 7 7
";

/// Asserts that the log with `old` replaced by `new` has this problem, and that the log without the
/// replacement has none.
#[track_caller]
fn assert_change_found(old: &str, new: &str, problem: &str) {
    assert_eq!(broken(GOOD_LOG), Vec::<String>::new());
    assert!(GOOD_LOG.contains(old), "{old}");
    let problems = broken(&GOOD_LOG.replacen(old, new, 1));
    assert!(problems.iter().any(|found| found.contains(problem)), "{old}: {problems:?}");
}

#[test]
fn lost_runs_are_found() {
    // A text of the good log, its replacement, and the problem.
    assert_change_found("0 run 1 succeeded\n", "0 run 1 running\n", "run 1 is still running");
    assert_change_found("0 run 1 succeeded\n", "", "run 1 is lost");
    assert_change_found("0 answer 1 k\n", "0 answer 8 k\n", "run 8 is lost after its enqueue");
    assert_change_found(
        "0 run 1 succeeded\n",
        "0 run 1 dead\n",
        "run 1 is dead without a transition",
    );
}

#[test]
fn overlaps_are_found_unless_the_tick_was_stopped_or_the_run_forced() {
    // The first attempt still runs after the start of the second.
    let late = "4 start 1 2 t2 once\n4 beat 1 1 t1\n";
    assert_change_found("4 start 1 2 t2 once\n", late, "run 1 attempts 1 and 2 overlap");
    assert_change_found(
        "4 start 1 2 t2 once\n",
        // A fault after the overlap excuses nothing.
        &format!("{late}4 fault t1\n4 force 1\n"),
        "run 1 attempts 1 and 2 overlap",
    );
    for excuse in ["3 fault t1\n", "3 force 1\n"] {
        let excused = GOOD_LOG.replace("4 start 1 2 t2 once\n", &format!("{excuse}{late}"));
        assert_eq!(broken(&excused), Vec::<String>::new());
    }
}

#[test]
fn processes_that_outlive_their_tick_are_found() {
    // A text of the good log, its replacement, and the problem.
    assert_change_found(
        "7 gone t1\n",
        "7 gone t1\n7 beat 1 1 t1\n",
        "run 1 attempt 1 outlived its tick t1",
    );
}

#[test]
fn a_blocked_run_may_stay_only_behind_one_that_did_not_succeed() {
    // A text of the good log, its replacement, and the problem.
    assert_change_found("0 run 4 succeeded\n", "0 run 4 blocked\n", "run 4 is still blocked");
    // Run 5 was cancelled because of run 9, and an operator retried it. It is blocked again, as run
    // 9 is cancelled.
    let problems_with = |retry: &str| {
        let waits =
            "0 insert 5 once 1 - - queued\n0 change 5 queued blocked 0 1\n0 waits 5 9 or_cancel\n";
        let cancelled = "0 change 5 blocked cancelled 0 1\n0 change 5 cancelled blocked 0 1\n";
        let end = format!("7 gone t1\n{waits}{cancelled}0 run 5 blocked\n{retry}");
        broken(&GOOD_LOG.replacen("7 gone t1\n", &end, 1))
    };
    assert_eq!(problems_with("0 retry 5\n"), Vec::<String>::new());
    assert_eq!(problems_with(""), ["run 5: cancelled -> blocked, attempts +0"]);
}

#[test]
fn repeated_and_unbounded_starts_are_found() {
    // A text of the good log, its replacement, and the problem.
    assert_change_found(
        "4 start 1 2 t2 once",
        "4 start 1 1 t2 once",
        "run 1 attempt 1 started twice",
    );
    assert_change_found(
        "0 insert 1 once 2 k - queued",
        "0 insert 1 once 1 k - queued",
        "run 1: 2 starts, 2 of 1 allowed",
    );
    let third = "4 start 1 2 t2 once\n4 start 1 3 t2 once\n";
    assert_change_found("4 start 1 2 t2 once\n", third, "run 1: 3 starts, 2 of 2 allowed");
}

#[test]
fn exceeded_limits_are_found() {
    // A text of the good log, its replacement, and the problem.
    assert_change_found("0 limit once 2", "0 limit once 1", "run 2 attempt 1: 2 runs of once");
    assert_change_found("0 tick t2 b 2", "0 tick t2 b 1", "run 1 attempt 2: 2 runs of worker b");
}

#[test]
fn broken_rules_of_claims_followers_and_archives_are_found() {
    // A text of the good log, its replacement, and the problem.
    assert_change_found("0 limit once 2", "0 limit once 1", "run 2: 2 claims of once at once");
    assert_change_found(
        "0 share-limit once 2",
        "0 share-limit once 1",
        "run 2: 2 claims of s at once",
    );
    assert_change_found("0 rate once 1 2", "0 rate once 9999 2", "too many claims of once at 4000");
    assert_change_found(
        "0 held once 2000 3000",
        "0 held once 2000 5000",
        "run 1 was claimed while once was held",
    );
    assert_change_found("s 4000 5000", "s 5000 5000", "run 1 was claimed after it had expired");
    assert_change_found("1001 - n", "1001 - m", "run 2: several claims with lock m at once");
    assert_change_found("1001 - n", "1001 - m", "run 2 attempt 1: 2 runs of its lock");
    assert_change_found("n b b", "n a b", "run 2 is for a, and b claimed it");
    assert_change_found("0 payload 1 7", "0 payload 1 8", "run 1 got version");
    assert_change_found(
        "0 insert 4 following",
        "0 insert 4 once",
        "no run follows the last success",
    );
    let twice = "0 follows 4 3\n0 follows 2 3\n";
    assert_change_found("0 follows 4 3\n", twice, "several runs follow run 3");
    assert_change_found("0 archived 9\n", "", "run 9 is deleted and not archived");
}

#[test]
fn a_claim_before_the_end_of_a_predecessor_is_found() {
    // Run 4 waits for run 1. Here run 1 ends only after the claim of run 4.
    let end = "0 change 1 running succeeded 2 2\n";
    let log = GOOD_LOG.replace(end, "");
    let broken = broken(&log.replace("7 gone t1", &format!("{end}7 gone t1")));
    assert_eq!(broken, ["run 4 was claimed before run 1 had ended"], "{broken:?}");
}

#[test]
fn illegal_transitions_are_found() {
    // The last change of run 2. The words after `change` are: run, old status, new status, attempts
    // and max_attempts.
    let last = "0 change 2 running succeeded 1 1\n";
    // Another change after the last one: its words after the run, and the problem.
    for (change, problem) in [
        ("succeeded queued 1 1", "run 2: succeeded -> queued, attempts +0"),
        ("succeeded running 2 2", "run 2: succeeded -> running, attempts +1"),
        ("succeeded dead 1 1", "run 2: succeeded -> dead"),
        ("running failed 1 1", "run 2: running -> failed"),
    ] {
        assert_change_found(last, &format!("{last}0 change 2 {change}\n"), problem);
    }
    // Only the undo of a retry changes `queued` to `dead`, and this log has no undo.
    assert_change_found(
        "0 change 9 queued cancelled 0 1",
        "0 change 9 queued dead 0 1",
        "run 9: queued -> dead, attempts +0",
    );
    // Only a retry changes `failed` to `queued`, and this log has no retry.
    let revived = "0 change 1 failed queued 1 2\n0 change 1 queued running 2 2\n";
    assert_change_found("0 change 1 failed running 2 2\n", revived, "run 1: failed -> queued");
}

#[test]
fn incomplete_and_untrue_histories_are_found() {
    // The columns: run, attempt, worker, outcome, exit code, start and end. The changes remove the
    // attempt, or make a column wrong.
    let first = "0 attempt 1 1 a lease_expired - 1 3\n";
    assert_change_found(first, "", "run 1: attempts [2] of 2 in history");
    assert_change_found(first, "", "run 1 attempt 1 started without history");
    assert_change_found(
        first,
        "0 attempt 1 1 a failed 143 1 5\n",
        "the times of its history are not in order",
    );
    assert_change_found(
        first,
        "0 attempt 1 1 a failed 75 1 3\n",
        "run 1 attempt 1: failed without `end 75`",
    );
    assert_change_found(
        first,
        "0 attempt 1 1 b lease_expired - 1 3\n",
        "run 1 attempt 1: worker b in history",
    );
    // The run has two successes: a late result replaced the loss of the lease.
    assert_change_found(
        first,
        "0 attempt 1 1 a succeeded 0 1 3\n",
        "run 1 is Some(\"succeeded\") after",
    );
    // The run is `succeeded` without an attempt that succeeded.
    assert_change_found(
        "b succeeded 0 4 5",
        "b failed - 4 5",
        "run 1 is Some(\"succeeded\") after",
    );
}

#[test]
fn repeated_keys_fires_and_effects_are_found() {
    // A text of the good log, its replacement, and the problem.
    assert_change_found(
        "0 insert 2 once 1 - 600 queued",
        "0 insert 2 once 1 k 600 queued",
        "key k has runs 1 and 2",
    );
    assert_change_found("0 answer 1 k", "0 answer 2 k", "key k was answered with run 2");
    assert_change_found(
        "0 insert 1 once 2 k - queued",
        "0 insert 1 once 2 k 600 queued",
        "once fired twice at 600",
    );
    assert_change_found(
        "0 schedule once 600 1",
        "0 schedule once 600 2",
        "once did not fire at 660",
    );
    assert_change_found("effect 2 1 t2 k2", "effect 2 1 t2 k", "effect k happened twice");
    assert_change_found(
        "0 recorded k3\n",
        "0 recorded k3\n0 recorded k3\n",
        "effect k3 happened twice",
    );
    assert_change_found("6 effect 2 1 t2 k2\n", "", "run 2 succeeded without its effect");
}
