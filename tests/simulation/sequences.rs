//! Random sequences of all operations go to PostgreSQL, by the product's own code. After each one,
//! invariants over the rows before and after it must hold. None of them computes what a statement
//! does; each says what must be true whatever it does.
//!
//! Then defects are planted in the functions of the schema. Each must break an invariant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, thread};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::database::Database;
use super::operations::{Operation, STEPS, Sequence};
use super::postgres::{Real, Reply, Rows, THREADS, server, try_sequences, with_database};
use super::rows::{Definition, Run, State};
use crate::job::attempt::HOOK_KEY_PREFIX;
use crate::job::enqueue::{AfterRule, EnqueueResult};
use crate::job::status::Status;
use crate::store::{self, Accepted, Edit, OperationResult, Queued, RetryTerms};
use crate::tick::request::{Answer, Request};

type Time = DateTime<Utc>;
type Broken = Result<(), String>;

/// Fails with this reason unless the invariant holds.
fn must(holds: bool, why: impl Into<String>) -> Broken {
    if holds { Ok(()) } else { Err(why.into()) }
}

/// An operation, its answer, and the rows around it.
struct Change<'a> {
    before: &'a Database,
    after: &'a Database,
    /// The same rows as JSON.
    rows: [&'a Rows; 2],
    sequence: &'a Sequence,
    operation: &'a Operation,
    reply: &'a Reply,
    now: Time,
}

/// What happened before, in a sequence.
#[derive(Default)]
struct Past {
    /// The starts of jobs since their rates were set.
    starts: BTreeMap<String, (Value, Vec<Time>)>,
    /// The runs that a command changed, before and after it.
    commands: BTreeMap<String, BTreeMap<i64, [Run; 2]>>,
    /// The jobs whose runs a definition must follow, but does not yet, and since when; by
    /// definition and scheduled time.
    noted: BTreeMap<(i64, Option<Time>), (Time, BTreeSet<String>)>,
    /// The runs without a scheduled time that have ended as a definition asks.
    counted: BTreeSet<(i64, i64)>,
    /// The ends that such a definition has followed.
    followed: BTreeSet<(i64, i64, Time)>,
}

impl Change<'_> {
    /// Checks all invariants.
    fn check(&self, past: &mut Past) -> Broken {
        for run in self.after.runs.values() {
            self.check_row(run).map_err(|why| format!("run {}: {why}", run.id))?;
        }
        self.check_keys_and_times()?;
        self.check_history()?;
        self.check_edges()?;
        self.check_following(past)?;
        // Of two operations at the same time, the rows in between are not known. Other sequences
        // check each of them alone.
        if matches!(self.operation, Operation::Race(..)) {
            return Ok(());
        }
        let ids: BTreeSet<_> = self.before.runs.keys().chain(self.after.runs.keys()).collect();
        for id in ids {
            let (old, new) = (self.before.runs.get(id), self.after.runs.get(id));
            let changed = match (old, new) {
                (None, Some(new)) => self.check_created(new),
                (Some(old), None) => self.check_deleted(old),
                (Some(old), Some(new)) if old != new => self.check_changed(old, new),
                _ => continue,
            };
            let status = |run: Option<&Run>| run.map_or("none", |run| run.status.as_str());
            changed
                .map_err(|why| format!("run {id}, {} -> {}: {why}", status(old), status(new)))?;
        }
        self.check_hooks()?;
        self.check_snoozes()?;
        self.check_definitions()?;
        self.check_answer(past)?;
        if let (Operation::Tick(index, Request::Step { .. }), Reply::Tick(Answer::Step(Ok(_)))) =
            (self.operation, self.reply)
        {
            self.check_claims(*index)?;
        }
        self.check_rates(past)
    }

    /// What holds for each row at any time.
    fn check_row(&self, run: &Run) -> Broken {
        let is_running = run.status == Status::Running;
        let has_lease = run.locked_by.is_some() && run.locked_until.is_some();
        must(is_running == has_lease, "a lease without running, or the reverse")?;
        let is_final = run.status.is_final();
        must(is_final == run.finished_at.is_some(), "an end without its time")?;
        must(run.attempts <= run.most_attempts(), "more attempts than it may have")?;
        let history = self.after.attempts.range((run.id, 0)..=(run.id, i32::MAX)).count();
        let ended = (run.attempts - i32::from(is_running)) as usize;
        must(history == ended, format!("{history} rows of history, {ended} attempts"))?;
        let is_stranded = run.status == Status::Blocked && self.after.is_met(run.id);
        must(!is_stranded, "blocked, but it waits for no run")
    }

    /// A key and a scheduled time have one run each.
    fn check_keys_and_times(&self) -> Broken {
        let (mut keys, mut times) = (BTreeSet::new(), BTreeSet::new());
        for run in self.after.runs.values() {
            let is_taken = match &*run.key_scope {
                "retained" => true,
                "live" => run.finished_at.is_none(),
                _ => false,
            };
            if let Some(key) = run.key.as_ref().filter(|_| is_taken) {
                must(keys.insert((key, &run.key_scope)), format!("two runs have key {key}"))?;
            }
            if let Some(time) = run.definition_id.zip(run.scheduled_for) {
                let is_first = times.insert((time, &run.worker));
                must(is_first, format!("{} fired twice for {}", run.job_type, time.1))?;
            }
        }
        Ok(())
    }

    /// History is only added to, and is deleted with its run.
    fn check_history(&self) -> Broken {
        for (key, attempt) in &self.before.attempts {
            let is_kept = self.after.attempts.get(key) == Some(attempt);
            let is_deleted = !self.after.runs.contains_key(&key.0);
            must(is_kept || is_deleted, format!("the history of attempt {key:?} changed"))?;
        }
        for (run, _) in self.after.attempts.keys() {
            must(self.after.runs.contains_key(run), format!("history of no run: {run}"))?;
        }
        Ok(())
    }

    /// An edge is met only by an end as its rule asks, and lasts as long as its runs.
    fn check_edges(&self) -> Broken {
        for (key @ (id, follower), edge) in &self.after.dependencies {
            let was_met =
                self.before.dependencies.get(key).is_some_and(|it| it.state == State::Met);
            if edge.state == State::Met && !was_met {
                let is_met = match (self.after.runs.get(id), edge.rule) {
                    (None, rule) => rule == AfterRule::AnyEnd,
                    (Some(run), AfterRule::AnyEnd) => run.finished_at.is_some(),
                    (Some(run), _) => run.status == Status::Succeeded,
                };
                // The second of two operations may retry or remove it after its end.
                let is_raced = matches!(self.operation, Operation::Race(raced, _) if raced == id);
                let is_over = self.after.runs.get(id).is_some_and(|it| it.finished_at.is_some());
                must(
                    is_met || is_raced && !is_over,
                    format!("run {follower} need not wait for run {id} any more"),
                )?;
            }
        }
        for (key @ (id, follower), edge) in &self.before.dependencies {
            let is_kept = self.after.dependencies.contains_key(key);
            let is_over = edge.state == State::Met && !self.after.runs.contains_key(id);
            let is_gone = !self.after.runs.contains_key(follower);
            must(
                is_kept || is_over || is_gone,
                format!("run {follower} does not wait for run {id} any more"),
            )?;
        }
        Ok(())
    }

    /// A new run has a cause: a hook, a followed job, an enqueue or a schedule.
    fn check_created(&self, run: &Run) -> Broken {
        if run.key.as_ref().is_some_and(|key| key.starts_with(HOOK_KEY_PREFIX)) {
            let tells = |it: &Run| self.ends(it) && self.hooks_of(it).contains(&hook_of(run));
            let has_cause = self.after.runs.values().any(tells);
            return must(has_cause, "a hook of an end that did not happen");
        }
        if self.is_following(run) {
            return if run.status == Status::Blocked { Ok(()) } else { self.check_released(run) };
        }
        let Some(time) = run.scheduled_for else {
            let is_asked = matches!(self.operation, Operation::Enqueue(..));
            return must(is_asked, "nothing enqueued it");
        };
        let is_fire =
            matches!(self.operation, Operation::Fire(_) | Operation::Tick(_, Request::Wake(_)));
        must(is_fire, "no tick fired it")?;
        let pins = self.before.definitions[&run.job_type].pins();
        must(run.worker.is_some() == pins, "it is for the wrong worker")?;
        let next = self.after.definitions[&run.job_type].next_run_at;
        must(time <= self.now, "it was fired before its time")?;
        must(next.is_none_or(|next| next > time), "its time may fire again")
    }

    /// Only an ended run is deleted, by a command or a prune.
    fn check_deleted(&self, run: &Run) -> Broken {
        must(run.finished_at.is_some(), "an unfinished run is lost")?;
        match self.operation {
            Operation::Act(store::Operation::Remove, ..) => self.check_granted(run.id),
            Operation::Prune(..) | Operation::Tick(_, Request::Prune) => {
                let waits =
                    |id| self.before.runs.get(&id).is_some_and(|it| it.finished_at.is_none());
                let is_awaited = self.before.followers(run.id).any(|(id, _)| waits(id));
                must(!is_awaited, "another run waits for it")
            }
            _ => Err("nothing asked for that".to_owned()),
        }
    }

    /// The operation may change this run in this way.
    fn check_changed(&self, old: &Run, new: &Run) -> Broken {
        let was_running = old.status == Status::Running;
        // A hook may fill its definition, too.
        if new.error_type.as_deref() == Some("dropped") && new.finished_at == Some(self.now) {
            let rest = &self.before.definitions[&new.job_type].spec.rest;
            let drops = rest["when_full"] == "drop_oldest" && !rest["max_waiting"].is_null();
            return must(drops && old.finished_at.is_none(), "dropped, but not full");
        }
        if let Operation::Tick(_, Request::Step { .. } | Request::Wake(_) | Request::Leave { .. }) =
            self.operation
            && old.status == Status::Blocked
        {
            return self.check_released(new);
        }
        match self.operation {
            Operation::Act(..) => self.check_granted(new.id),
            Operation::Enqueue(..) => {
                let is_replaced = self
                    .accepted()
                    .any(|it| it.result == EnqueueResult::Replaced && it.id == Some(new.id))
                    && old.status.is_waiting();
                let loses_key = was_running && new.key_scope == "replaced";
                must(is_replaced || loses_key, "it was not asked for")
            }
            Operation::Recover(_) => must(
                was_running && old.locked_until < Some(self.now),
                "recovered before its lease ended",
            ),
            Operation::Tick(index, request) => {
                must(old.finished_at.is_none(), "a final run changed")?;
                let worker = &self.sequence.sessions[*index].holder.worker;
                let is_own = old.locked_by.as_ref() == Some(worker);
                match request {
                    Request::Renew { claims, kept } => {
                        let locked_until = old.locked_until;
                        let is_same = *old == Run { locked_until, ..new.clone() };
                        let names = |claim: &store::FencingToken| {
                            (claim.id, claim.attempt, Some(claim.claimed_at))
                                == (old.id, old.attempts, old.started_at)
                        };
                        let is_named = claims.iter().chain(kept).any(names);
                        must(is_same && is_own && is_named, "a wrong renewal")
                    }
                    Request::Step { results, unstarted, .. } if was_running => {
                        let tokens = results.iter().map(|it| it.token);
                        let named = tokens.chain(unstarted.iter().copied()).any(|claim| {
                            (claim.id, claim.attempt, Some(claim.claimed_at))
                                == (old.id, old.attempts, old.started_at)
                        });
                        must(named && is_own, "the result of a lost lease")
                    }
                    Request::Step { .. } => {
                        must(new.status == Status::Running, "no claim, but it changed")
                    }
                    Request::Wake(_) if was_running => {
                        let kept = self.before.kept(old);
                        let is_stored = kept.is_some_and(|kept| kept.result.is_some());
                        let is_over = old.locked_until < Some(self.now)
                            && kept.is_none_or(|kept| kept.locked_until <= self.now);
                        must(is_stored || is_over, "recovered before its lease ended")
                    }
                    Request::Wake(_) if new.finished_at.is_some() => {
                        must(old.is_expired(self.now), "ended before it expired")
                    }
                    Request::Wake(_) => must(new.run_at > self.now, "put off"),
                    _ => Err("nothing asked for that".to_owned()),
                }
            }
            _ => Err("nothing asked for that".to_owned()),
        }
    }

    /// A tick has decided about a blocked run.
    fn check_released(&self, new: &Run) -> Broken {
        let mut edges = self.after.predecessors(new.id);
        if new.status != Status::Cancelled {
            let is_met = edges.all(|(_, edge)| edge.state == State::Met);
            return must(is_met, "released before the runs that it waits for");
        }
        let has_cause = edges.any(|(id, edge)| {
            edge.rule == AfterRule::OrCancel
                && !self.after.has_succeeded(id)
                && edge.state != State::Met
        });
        let is_expired = new.is_expired(self.now);
        must(has_cause || is_expired, "cancelled without a cause")
    }

    /// The enabled definitions that follow others, the jobs that each follows, and its rule.
    fn followers(database: &Database) -> impl Iterator<Item = (i64, Vec<&str>, &Value)> {
        let all = database.definitions.values().filter(|it| it.spec.enabled);
        all.filter(|it| it.paused_at.is_none()).filter_map(|it| {
            let jobs = it.spec.rest["after"].as_array()?.iter().filter_map(Value::as_str);
            Some((it.id, jobs.collect(), &it.spec.rest["when"]))
        })
    }

    /// Whether a tick has enqueued a run because its job follows others.
    fn is_following(&self, run: &Run) -> bool {
        let is_tick = matches!(
            self.operation,
            Operation::Tick(_, Request::Wake(_) | Request::Step { .. } | Request::Leave { .. })
        );
        let job = self.before.definitions.get(&run.job_type);
        is_tick && job.is_some_and(|it| !it.spec.rest["after"].is_null())
    }

    /// A job that follows others has one run for each time, or after an end of each of them.
    fn check_following(&self, past: &mut Past) -> Broken {
        let new = || self.after.runs.values().filter(|it| !self.before.runs.contains_key(&it.id));
        for (id, jobs, rule) in Self::followers(self.before) {
            let of_job = |run: &&Run| jobs.contains(&&*run.job_type);
            let fired = new().filter(of_job).filter(|run| run.scheduled_for.is_some());
            let ended = self.after.runs.values().filter(of_job).filter(|run| {
                let is_as_asked = run.status == Status::Succeeded || rule == "any_end";
                run.scheduled_for.is_none() && is_as_asked && self.ends(run)
            });
            let ended: Vec<_> = ended.collect();
            past.counted.extend(ended.iter().map(|run| (id, run.id)));
            for run in fired.chain(ended) {
                let noted = past.noted.entry((id, run.scheduled_for));
                noted.or_insert((self.now, BTreeSet::new())).1.insert(run.job_type.clone());
            }
        }
        // What a definition has missed meanwhile is not made up. See also the age in the view.
        let follows = |database, id| {
            Self::followers(database).find(|(it, ..)| *it == id).map(|(_, jobs, _)| jobs)
        };
        past.noted.retain(|(id, time), (since, _)| {
            let is_new = time.is_none() || self.now - *since < TimeDelta::days(6);
            let jobs = follows(self.before, *id);
            is_new && jobs.is_some() && jobs == follows(self.after, *id)
        });
        for run in new().filter(|run| self.is_following(run)) {
            let definition = &self.before.definitions[&run.job_type];
            self.check_follows(run, definition, past)
                .map_err(|why| format!("run {}: {why}", run.id))?;
            past.noted.remove(&(definition.id, run.scheduled_for));
        }
        let Operation::Tick(index, Request::Wake(_)) = self.operation else { return Ok(()) };
        let Reply::Tick(Answer::Wake { woken: Ok(woken), .. }) = self.reply else { return Ok(()) };
        if woken.has_more || self.sequence.sessions[*index].filter.only_run.is_some() {
            return Ok(());
        }
        for (id, jobs, _) in Self::followers(self.after) {
            let is_complete = |noted: &BTreeSet<String>| jobs.iter().all(|it| noted.contains(*it));
            let mut due =
                past.noted.iter().filter(|((it, _), (_, noted))| *it == id && is_complete(noted));
            // A trigger rejects its runs with a scheduled time.
            let due = due.find(|((_, time), _)| {
                time.is_none() || !self.sequence.tables.refused_jobs.contains("d3")
            });
            must(due.is_none(), format!("definition {id} does not follow: {due:?}"))?;
        }
        Ok(())
    }

    /// The run follows a run of each job for its time, or the end of one that no other run follows.
    fn check_follows(&self, run: &Run, definition: &Definition, past: &mut Past) -> Broken {
        let jobs = definition.spec.rest["after"].as_array().map_or(0, Vec::len);
        let edges: Vec<_> = self.after.predecessors(run.id).collect();
        // A job may have a run for each worker. One that has ended may have been deleted since.
        let is_whole = match run.scheduled_for {
            Some(_) => edges.len() >= jobs,
            None => edges.len() <= jobs,
        };
        must(is_whole, format!("it follows {} runs of {jobs} jobs", edges.len()))?;
        for (before, _) in
            edges.iter().filter_map(|(id, edge)| self.after.runs.get(id).zip(Some(edge)))
        {
            must(before.scheduled_for == run.scheduled_for, "it follows a run of another time")?;
            if run.scheduled_for.is_some() {
                continue;
            }
            let is_counted = past.counted.contains(&(definition.id, before.id));
            must(is_counted, "it follows a run that has not ended as asked")?;
            let end = before.finished_at.map(|at| (definition.id, before.id, at));
            let is_first = end.is_none_or(|end| past.followed.insert(end));
            must(is_first, format!("another run follows run {}, too", before.id))?;
        }
        Ok(())
    }

    /// Whether a run has ended by this operation.
    fn ends(&self, run: &Run) -> bool {
        let was_over = self.before.runs.get(&run.id).is_some_and(|old| old.finished_at.is_some());
        run.finished_at == Some(self.now) && !was_over
    }

    /// Returns the hooks of a run that ends: their keys and jobs. A hook has no hooks.
    fn hooks_of(&self, run: &Run) -> Vec<(String, String)> {
        const KEYS: [&str; 3] = ["on_dead", "on_success", "on_end"];
        let hook = |job: &str, key: &str| {
            let definition = self.before.definitions.get(job)?;
            definition.spec.rest[key].as_str().map(str::to_owned)
        };
        let mut jobs =
            self.before.definitions.keys().flat_map(|job| KEYS.map(|key| hook(job, key)));
        if jobs.any(|it| it.as_ref() == Some(&run.job_type)) {
            return Vec::new();
        }
        let is_due = [run.status == Status::Dead, run.status == Status::Succeeded, true];
        let ended = run.finished_at.unwrap_or_default().timestamp_micros();
        let of_run = |(key, is_due): (&&str, bool)| {
            let job = hook(&run.job_type, key).filter(|_| is_due)?;
            Some((format!("{HOOK_KEY_PREFIX}{key}-{}-{ended}", run.id), job))
        };
        KEYS.iter().zip(is_due).filter_map(of_run).collect()
    }

    /// Each end has one run of each of its hooks.
    fn check_hooks(&self) -> Broken {
        for run in self.after.runs.values().filter(|run| self.ends(run)) {
            for hook in self.hooks_of(run) {
                let takes =
                    |it: &Definition| it.spec.enabled && it.spec.rest["max_waiting"].is_null();
                if self.before.definitions.get(&hook.1).is_some_and(takes) {
                    let runs = self.after.runs.values().filter(|it| hook_of(it) == hook).count();
                    must(runs == 1, format!("{runs} runs of hook {}", hook.0))?;
                }
            }
        }
        Ok(())
    }

    /// A run that asked for a later attempt holds its job, if the definition says so.
    fn check_snoozes(&self) -> Broken {
        for (key @ (id, _), attempt) in &self.after.attempts {
            let run = &self.after.runs[id];
            let snooze =
                self.before.definitions.get(&run.job_type).map(|it| &it.spec.rest["snooze"]);
            let is_new = !self.before.attempts.contains_key(key) && attempt.outcome == "snoozed";
            let waits = run.status == Status::Queued && run.run_at > self.now;
            if is_new && waits && snooze.is_some_and(|it| it == "job") {
                let holds_it = |hold: &Value| {
                    hold[0] == "job"
                        && hold[1] == *run.job_type
                        && time(&hold[2]).is_none_or(|until| until >= run.run_at)
                };
                let is_held = holds(self.rows[1]).iter().any(holds_it);
                must(is_held, format!("run {id} snoozed, but its job is not held"))?;
            }
        }
        Ok(())
    }

    /// Only operations on a definition change it.
    fn check_definitions(&self) -> Broken {
        let (before, after) = (&self.before.definitions, &self.after.definitions);
        match self.operation {
            Operation::Apply(..) | Operation::Fire(_) => return Ok(()),
            Operation::Tick(_, Request::Wake(_) | Request::Step { .. }) => {
                let same = before.keys().eq(after.keys())
                    && before.iter().all(|(name, it)| {
                        it.spec == after[name].spec && it.paused_at == after[name].paused_at
                    });
                return must(same, "a tick changed a definition");
            }
            _ => {}
        }
        for (name, definition) in before {
            let is_asked = match self.operation {
                Operation::Pause(asked) | Operation::Resume(asked) => asked == name,
                _ => false,
            };
            let is_same = after.get(name) == Some(definition);
            must(is_asked || is_same, format!("definition {name} changed"))?;
        }
        must(before.len() == after.len(), "definitions came or went")
    }

    /// A statement that failed has changed no row.
    fn check_unchanged(&self) -> Broken {
        let [before, after] =
            self.rows.map(|rows| rows.iter().filter(|(key, _)| *key != "last_run"));
        must(before.eq(after), "a statement that failed changed rows")
    }

    /// What an answer says, and what a failed statement must not do.
    fn check_answer(&self, past: &mut Past) -> Broken {
        match (self.operation, self.reply) {
            (
                _,
                Reply::Acted(Err(_))
                | Reply::Queued(Err(_))
                | Reply::Fired(Err(_))
                | Reply::Recovered(Err(_))
                | Reply::Done(Err(_) | Ok(false)),
            ) => self.check_unchanged(),
            (Operation::Act(action, ids, from, name), Reply::Acted(Ok(answers))) => {
                self.check_acted(action, ids, from, answers, past)?;
                let granted = answers.iter().filter(|answer| answer.granted);
                let changed = granted.filter_map(|answer| {
                    let new = self.after.runs.get(&answer.id)?;
                    Some((answer.id, [self.before.runs[&answer.id].clone(), new.clone()]))
                });
                past.commands.insert(name.clone(), changed.collect());
                Ok(())
            }
            (Operation::Enqueue(..), _) => self.check_enqueued(),
            (Operation::Apply(specs, ..), _) => self.check_applied(specs),
            (Operation::Pause(name), _) => {
                let is_paused = self.after.definitions[name].paused_at.is_some();
                must(is_paused, format!("{name} is not paused"))
            }
            (Operation::Resume(name), _) => {
                let is_paused = self.after.definitions[name].paused_at.is_some();
                must(!is_paused, format!("{name} is still paused"))
            }
            (Operation::Release(target), _) => {
                let is_of =
                    |hold: &Value| hold[0] == target.scope.as_str() && hold[1] == *target.name;
                let holds = holds(self.rows[1]).iter().any(is_of);
                must(!holds, format!("{target:?} is still held"))
            }
            (Operation::Hold(target, lasts), _) => {
                let until = lasts.map(|lasts| self.now + lasts);
                let is_it = |hold: &Value| {
                    (hold[0].as_str(), hold[1].as_str(), time(&hold[2]))
                        == (Some(target.scope.as_str()), Some(&*target.name), until)
                };
                must(holds(self.rows[1]).iter().any(is_it), format!("{target:?} is not held"))
            }
            (Operation::Fire(plans), Reply::Fired(Ok(fired))) => {
                for (place, runs) in fired {
                    let plan = &plans[*place];
                    let times = plan.times.len();
                    let of_plan = |it: &&Definition| it.id == plan.due.id;
                    let definition = self.before.definitions.values().find(of_plan);
                    let pins = definition.is_some_and(Definition::pins);
                    let most = if pins { times * self.before.workers.len() } else { times };
                    must(runs.len() <= most, format!("{} runs of {times} times", runs.len()))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A command answers for each run, and has done with each what it says.
    fn check_acted(
        &self,
        action: &store::Operation,
        ids: &[i64],
        from: &[Status],
        answers: &[OperationResult],
        past: &Past,
    ) -> Broken {
        let answered: BTreeSet<_> = answers.iter().map(|answer| answer.id).collect();
        let leaves_out = matches!(action, store::Operation::Retry(terms) if terms.unsettled);
        let is_known = |id: &i64| self.before.runs.contains_key(id) && !answered.contains(id);
        let unanswered = ids.iter().any(is_known);
        must(!unanswered || leaves_out, "an existing run has no answer")?;
        for answer in answers {
            let OperationResult { id, status, granted, .. } = *answer;
            let old = &self.before.runs[&id];
            must(status == old.status, format!("run {id} was not {status}"))?;
            must(!granted || from.contains(&status), format!("run {id} may not be {status}"))?;
            let new = self.after.runs.get(&id);
            let Some(new) = new.filter(|_| granted) else {
                let is_refused = match (action, granted) {
                    (store::Operation::Remove, true) => new.is_none(),
                    _ => new == Some(old),
                };
                let is_due =
                    from.contains(&status) && !granted && !self.may_refuse(action, old, past);
                must(is_refused, format!("run {id} was refused, but changed"))?;
                must(!is_due, format!("run {id} was refused without a cause"))?;
                continue;
            };
            let done = match action {
                store::Operation::Retry(terms) => {
                    self.check_retried(old, new, *terms, answer.is_blocked)
                }
                store::Operation::Cancel => {
                    let is_over = new.status == Status::Cancelled || status == Status::Running;
                    let is_asked = new.cancel_requested_at.is_some();
                    must(is_over && is_asked, "cancelled, but not")
                }
                store::Operation::Edit(edit) => self.check_edited(new, edit),
                store::Operation::Settle => {
                    let updated_at = old.updated_at;
                    must(*old == Run { updated_at, ..new.clone() }, "settled")
                }
                store::Operation::Remove => Err("removed, but it is there".to_owned()),
                store::Operation::Undo(name) => match past.commands.get(name) {
                    Some(changed) => self.check_undone(old, new, changed),
                    None => Ok(()),
                },
            };
            done.map_err(|why| format!("run {id}: {why}"))?;
        }
        Ok(())
    }

    /// Whether a command may refuse a run whose status it was asked for.
    fn may_refuse(&self, action: &store::Operation, run: &Run, past: &Past) -> bool {
        match action {
            store::Operation::Retry(_) => {
                let has_key = |it: &Run| it.id != run.id && it.key == run.key;
                run.key.is_some() && self.after.runs.values().any(has_key)
            }
            store::Operation::Cancel => run.status.is_final(),
            store::Operation::Remove => !run.status.is_final(),
            store::Operation::Settle => run.status != Status::Dead,
            store::Operation::Undo(name) => {
                // A worker does not get its run back.
                let is_same = |[old, changed]: &[Run; 2]| {
                    changed == run && (old.status != Status::Running || old.status == run.status)
                };
                // The rows around a race of two commands are not known.
                let changed = past.commands.get(name);
                !changed.and_then(|changed| changed.get(&run.id)).is_some_and(is_same)
            }
            store::Operation::Edit(edit) => {
                let counted = run.attempts - run.uncounted_attempts;
                let is_editable = run.status.is_waiting() || run.status == Status::Dead;
                !is_editable || edit.max_attempts.is_some_and(|most| most <= counted)
            }
        }
    }

    /// A retried run can start again.
    fn check_retried(&self, old: &Run, new: &Run, terms: RetryTerms, is_blocked: bool) -> Broken {
        let waits_for_others =
            old.status == Status::Cancelled && !terms.cancelled_now && !self.after.is_met(new.id);
        let wanted = if waits_for_others { Status::Blocked } else { Status::Queued };
        must(new.status == wanted, format!("retried, and {}", new.status))?;
        must(is_blocked == waits_for_others, "a wrong answer about others")?;
        must(new.attempts < new.most_attempts(), "retried without an attempt")?;
        let is_kept = new.attempts == old.attempts && new.payload == old.payload;
        must(is_kept && new.cancel_requested_at.is_none(), "retried otherwise")?;
        must(new.run_at >= self.now && !new.is_expired(self.now), "not in time")
    }

    /// An undone run is what it was before the command, and no longer waits for what has ended.
    fn check_undone(&self, old: &Run, new: &Run, changed: &BTreeMap<i64, [Run; 2]>) -> Broken {
        let Some([first, changed]) = changed.get(&old.id) else {
            return Err("undone, but the command did not change it".to_owned());
        };
        let locked_until = changed.locked_until;
        must(*changed == Run { locked_until, ..old.clone() }, "undone, but it has changed since")?;
        let status = match first.status {
            Status::Blocked if self.after.is_met(new.id) => Status::Queued,
            status => status,
        };
        let Run { locked_until, updated_at, .. } = *new;
        let wanted = Run { status, locked_until, updated_at, ..first.clone() };
        must(*new == wanted, format!("undone, but it was {first:?}"))
    }

    /// An edit changes only what it names.
    fn check_edited(&self, new: &Run, edit: &Edit) -> Broken {
        let Edit { queue, priority, run_at, after, max_attempts, timeout, backoff, .. } = edit;
        let moves = run_at.is_some() || after.is_some();
        let has = queue.as_ref().is_none_or(|it| *it == new.queue)
            && priority.is_none_or(|it| it == new.priority)
            && max_attempts.is_none_or(|it| it == new.max_attempts)
            && timeout.is_none_or(|it| Some(it) == new.timeout)
            && backoff.as_ref().is_none_or(|it| *it == new.backoff)
            && (!moves || new.run_at >= self.now);
        must(has, "it has not what was asked")?;
        let may_change = |column: &str| match column {
            "queue" => queue.is_some(),
            "priority" => priority.is_some(),
            "max_attempts" => max_attempts.is_some(),
            "timeout" => timeout.is_some(),
            "backoff" => backoff.is_some(),
            "run_at" | "expires_at" => moves,
            _ => column == "updated_at",
        };
        let key = format!("run {}", new.id);
        let [before, after] = self.rows.map(|rows| &rows[&key]);
        let columns = after.as_object().into_iter().flatten();
        let changed = |(column, value): &(&String, &Value)| before[&**column] != **value;
        let mut changed = columns.filter(changed).map(|(column, _)| column);
        let other = changed.find(|column| !may_change(column));
        must(other.is_none(), format!("an edit changed another column: {other:?}"))
    }

    /// Returns the answers to the enqueues that were accepted.
    fn accepted(&self) -> impl Iterator<Item = &Accepted> {
        let answers = if let Reply::Queued(Ok(answers)) = self.reply { &answers[..] } else { &[] };
        answers.iter().filter_map(|answer| match answer {
            Queued::Accepted(accepted) => Some(accepted),
            _ => None,
        })
    }

    /// All accepted runs are new or replaced, and `max_waiting` holds.
    fn check_enqueued(&self) -> Broken {
        let is_accepted = |answer: &Queued| matches!(answer, Queued::Accepted(_));
        if let Reply::Queued(Ok(answers)) = self.reply
            && !answers.iter().all(is_accepted)
        {
            return self.check_unchanged();
        }
        let new = self.after.runs.values().filter(|run| !self.before.runs.contains_key(&run.id));
        let is_hook =
            |run: &Run| run.key.as_ref().is_some_and(|key| key.starts_with(HOOK_KEY_PREFIX));
        let new: Vec<_> = new.filter(|run| !is_hook(run)).collect();
        let accepted = self.accepted().filter(|it| it.result == EnqueueResult::Enqueued);
        let accepted: BTreeSet<_> = accepted.filter_map(|it| it.id).collect();
        let is_same = new.iter().map(|run| run.id).eq(accepted.iter().copied());
        must(is_same, format!("accepted {accepted:?}, but there are {} new runs", new.len()))?;
        for (name, definition) in &self.before.definitions {
            let Some(most) = definition.spec.rest["max_waiting"].as_u64() else { continue };
            let waits = |run: &&Run| run.job_type == *name && run.status.is_waiting();
            let waiting = |tables: &Database| tables.runs.values().filter(waits).count() as u64;
            let (before, after) = (waiting(self.before), waiting(self.after));
            // A locked run is not dropped.
            let drops = definition.spec.rest["when_full"] == "drop_oldest";
            let is_exempt = drops && !self.sequence.tables.locked.is_empty();
            must(
                after <= most.max(before) || is_exempt,
                format!("{after} runs of {name} wait, before {before}: max_waiting is {most}"),
            )?;
        }
        Ok(())
    }

    /// The definitions are those of the file, and keep their pauses.
    fn check_applied(&self, specs: &[Value]) -> Broken {
        for spec in specs {
            let name = spec["name"].as_str().unwrap_or_default();
            let row = &self.rows[1][&format!("definition {name}")];
            for (key, value) in spec.as_object().into_iter().flatten() {
                let is_same =
                    row[key] == *value || row[key].as_f64() == value.as_f64() && value.is_number();
                must(is_same, format!("{name}: {key} is {}, not {value}", row[key]))?;
            }
            if let Some(old) = self.before.definitions.get(name) {
                let new = &self.after.definitions[name];
                let is_kept = (new.id, new.paused_at) == (old.id, old.paused_at);
                must(is_kept, format!("{name} lost its pause"))?;
            }
        }
        for (name, old) in &self.before.definitions {
            if specs.iter().all(|spec| spec["name"] != **name) {
                let new = self.after.definitions.get(name);
                let is_of_file = old.spec.rest["file"] == specs[0]["file"];
                let is_over = new.is_none_or(|new| !new.spec.enabled);
                let is_right = if is_of_file { is_over } else { new == Some(old) };
                must(is_right, format!("definition {name} of another file, or left over"))?;
            }
        }
        Ok(())
    }

    /// What a claim takes.
    fn check_claims(&self, index: usize) -> Broken {
        let Operation::Tick(_, Request::Step { claim, .. }) = self.operation else { return Ok(()) };
        let Reply::Tick(Answer::Step(Ok(step))) = self.reply else { return Ok(()) };
        let taken = &step.taken.claimed;
        let Some(claim) = claim else {
            return must(taken.is_empty(), "claimed without a claim");
        };
        let session = &self.sequence.sessions[index];
        let (holder, filter) = (&session.holder, &session.filter);
        let right = self.before.workers.get(&holder.worker).and_then(|row| row.claiming.as_ref());
        let has_right =
            right.is_some_and(|(tick, until)| *tick == holder.tick && *until > self.now);
        must(
            taken.is_empty() || has_right || filter.only_run.is_some(),
            "claimed without the claim right",
        )?;
        must(taken.len() <= claim.at_most as usize, "claimed too many")?;
        let last = taken.iter().filter(|run| run.attempt >= run.max_attempts).count();
        must(last <= claim.free_threads as usize, "last attempts are prefetched")?;
        for claimed in taken {
            let Some(run) = self.after.runs.get(&claimed.id) else { continue };
            let definition = self.before.definitions.get(&run.job_type);
            self.check_claimed(run, index, definition, claim.limits)
                .map_err(|why| format!("run {} was claimed: {why}", run.id))?;
        }
        Ok(())
    }

    /// A tick with this index may claim this run.
    fn check_claimed(
        &self,
        run: &Run,
        index: usize,
        definition: Option<&Definition>,
        with_limits: bool,
    ) -> Broken {
        let session = &self.sequence.sessions[index];
        let (worker, filter) = (&session.holder.worker, &session.filter);
        let is_held_by = run.status == Status::Running && run.locked_by.as_ref() == Some(worker);
        must(is_held_by && run.started_at == Some(self.now), "it does not run")?;
        must(run.run_at <= self.now, "it is not due")?;
        must(!run.is_expired(self.now), "it has expired")?;
        let is_served = (filter.queues.is_empty() || filter.queues.contains(&run.queue))
            && !filter.excluded_jobs.contains(&run.job_type)
            && !definition.is_some_and(|it| filter.excluded_kinds.contains(&it.spec.kind))
            && filter.only_run.is_none_or(|only| only == run.id);
        must(is_served, "this tick does not serve it")?;
        let holds_it = |hold: &Value| {
            let name = match hold[0].as_str() {
                Some("job") => &run.job_type,
                Some("queue") => &run.queue,
                Some("worker") => worker,
                _ => "",
            };
            hold[1] == *name && hold[3].is_null() && time(&hold[2]).is_none_or(|it| it > self.now)
        };
        must(!holds(self.rows[0]).iter().any(holds_it), "it is held")?;
        let has_old_key = |it: &Run| {
            it.status == Status::Running && it.key_scope == "replaced" && it.key == run.key
        };
        let is_replacing = self.after.runs.values().any(has_old_key);
        must(!is_replacing, "the run that it replaces still runs")?;
        must(run.is_for(worker), "it is for another worker")?;
        if let Some(lock) = self.lock(run) {
            let has_lock = |it: &&Run| {
                it.status == Status::Running && self.lock(it).as_deref() == Some(&*lock)
            };
            let running = self.after.runs.values().filter(has_lock).count() as u64;
            let most = self.lock_most(&lock);
            must(running <= most, format!("{running} runs with lock {lock}, at most {most}"))?;
        }
        let Some(definition) = definition else { return Ok(()) };
        let shares = definition.spec.rest["max_running_per_share"].as_u64();
        let is_limited = definition.most_running().is_some()
            || shares.is_some()
            || ["rate", "rate_per_share", "lock"]
                .iter()
                .any(|limit| !definition.spec.rest[*limit].is_null());
        must(with_limits || !is_limited, "limits were left out")?;
        let of_job = |it: &&Run| it.status == Status::Running && it.job_type == run.job_type;
        let running = self.after.runs.values().filter(of_job);
        let of_share = running.clone().filter(|it| it.share == run.share).count() as u64;
        let running = running.count();
        let most = definition.most_running();
        must(
            most.is_none_or(|most| running <= most as usize),
            format!("{running} run at once, max_running is {most:?}"),
        )?;
        must(
            shares.is_none_or(|most| of_share <= most),
            format!("{of_share} of share {:?} run at once, at most {shares:?}", run.share),
        )
    }

    /// The lock of a run: that of its definition, or its own.
    fn lock(&self, run: &Run) -> Option<String> {
        let definition = self.before.definitions.get(&run.job_type);
        let of_job = definition.map(|it| &it.spec.rest["lock"]);
        let of_job = of_job.and_then(|lock| lock["name"].as_str().or(lock.as_str()));
        of_job.map(str::to_owned).or_else(|| run.lock.clone())
    }

    /// The least number that the definitions with a lock name.
    fn lock_most(&self, name: &str) -> u64 {
        let locks = self.before.definitions.values().map(|it| &it.spec.rest["lock"]);
        let most = |lock: &Value| match lock.as_str() {
            Some(lock) => (lock == name).then_some(1),
            None => lock["most"].as_u64().filter(|_| lock["name"] == name),
        };
        locks.filter_map(most).min().unwrap_or(1)
    }

    /// In every span of time, no more runs start than `rate` and `burst` allow.
    fn check_rates(&self, past: &mut Past) -> Broken {
        let taken = match self.reply {
            Reply::Tick(Answer::Step(Ok(step))) => &step.taken.claimed[..],
            _ => &[],
        };
        for (name, definition) in &self.after.definitions {
            let rest = &definition.spec.rest;
            let started: Vec<_> = taken.iter().filter(|run| run.job_type == *name).collect();
            if let Some(limit) = rate(&rest["rate"]) {
                let terms = [&rest["rate"], &rest["burst"], &definition.id.into()];
                let burst = rest["burst"].as_i64();
                let terms = Value::from_iter(terms.map(Clone::clone));
                self.check_rate(past, name, terms, limit, burst, started.len())?;
            }
            let Some(limit) = rate(&rest["rate_per_share"]) else { continue };
            let of_run = |id: i64| self.after.runs[&id].share.clone().unwrap_or_default();
            for share in ["", "a", "b", "B", "ä"] {
                let of_share = started.iter().filter(|run| of_run(run.id) == share).count();
                let terms = [&rest["rate_per_share"], &definition.id.into()];
                let terms = Value::from_iter(terms.map(Clone::clone));
                self.check_rate(
                    past,
                    &format!("{name} of share {share}"),
                    terms,
                    limit,
                    None,
                    of_share,
                )?;
            }
        }
        Ok(())
    }

    /// Notes how many runs of `what` have started, and compares with a rate.
    fn check_rate(
        &self,
        past: &mut Past,
        what: &str,
        terms: Value,
        (most, interval): (i64, TimeDelta),
        burst: Option<i64>,
        started: usize,
    ) -> Broken {
        let (known, times) = past.starts.entry(what.to_owned()).or_default();
        if *known != terms {
            (*known, *times) = (terms, Vec::new());
        }
        times.extend(std::iter::repeat_n(self.now, started));
        for (place, first) in times.iter().enumerate() {
            let span = (self.now - *first).num_microseconds().unwrap_or(0);
            let allowed = burst.unwrap_or(most) + span / interval.num_microseconds().unwrap_or(1);
            let started = (times.len() - place) as i64;
            let why = || format!("{started} starts of {what} within the rate of {allowed}");
            must(started <= allowed, why())?;
        }
        Ok(())
    }

    /// The command has answered that it changed this run.
    fn check_granted(&self, id: i64) -> Broken {
        let Reply::Acted(Ok(answers)) = self.reply else { return Err("it failed".to_owned()) };
        let is_granted = answers.iter().any(|answer| answer.id == id && answer.granted);
        must(is_granted, "it was not granted")
    }
}

/// Returns a hook's run as `hooks_of` names it: its key and job.
fn hook_of(run: &Run) -> (String, String) {
    (run.key.clone().unwrap_or_default(), run.job_type.clone())
}

/// The holds as scope, name, end and run.
fn holds(rows: &Rows) -> &[Value] {
    rows.get("holds").and_then(Value::as_array).map_or(&[], |holds| holds)
}

fn time(value: &Value) -> Option<Time> {
    value.as_str()?.parse().ok()
}

/// The number of starts that a rate names, and the average time between two of them.
fn rate(text: &Value) -> Option<(i64, TimeDelta)> {
    let (starts, time) = text.as_str()?.split_once('/')?;
    let (starts, time): (i64, _) = (starts.parse().ok()?, time.split_at(time.len() - 1));
    let unit = if time.1 == "m" { 60_000_000 } else { 1_000_000 };
    Some((starts, TimeDelta::microseconds(time.0.parse::<i64>().ok()? * unit / starts)))
}

/// Runs a sequence. Returns the invariant that it broke.
fn check(real: &mut Real, seed: u64) -> Broken {
    let mut sequence = Sequence::new(seed, true);
    let mut past = Past::default();
    real.reset(&sequence.sessions);
    let mut rows = real.rows(sequence.tables.now);
    for step in 0..STEPS {
        let operation = sequence.operation(step);
        let reply = real.perform(&operation);
        let (now, next) = (sequence.tables.now, sequence.next_time());
        let before = sequence.tables.clone();
        let old_rows = std::mem::replace(&mut rows, real.rows(next));
        sequence.adopt(&rows, &operation, &reply);
        let change = Change {
            before: &before,
            after: &sequence.tables,
            rows: [&old_rows, &rows],
            sequence: &sequence,
            operation: &operation,
            reply: &reply,
            now,
        };
        let checked = change.check(&mut past);
        checked.map_err(|why| format!("step {step}: {why}\n{operation:?}\n{reply:?}"))?;
        sequence.tables.now = next;
    }
    Ok(())
}

#[test]
fn random_sequences_break_no_invariant() {
    try_sequences("sequences", check);
}

/// The text of a function or a view of the schema.
macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../../sql/", $name, ".sql"))
    };
}

/// A defect of the schema.
struct Defect {
    name: &'static str,
    /// The statements to execute, with a text in them replaced by another.
    sql: &'static str,
    replaced: &'static str,
    by: &'static str,
    /// A part of the error of the broken invariant, or several.
    found: &'static str,
}

/// Changes what the statements in sql/queries write; a constraint would reject one of the changes.
const TRIGGER: &str = "
    ALTER TABLE jobctl.job_runs DROP CONSTRAINT waiting_has_an_attempt_left;
    CREATE FUNCTION public.spoil() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        CHANGE;
        RETURN NEW;
    END $$;
    CREATE TRIGGER spoil BEFORE UPDATE ON jobctl.job_runs
        FOR EACH ROW EXECUTE FUNCTION public.spoil()";

const CLAIM: &str = text!("functions/claim_runs");
const LIMITED: &str = text!("functions/limited_runs");
const END: &str = text!("functions/end_runs");
const DECIDE: &str = text!("functions/decide_followers");
const FOLLOW: &str = text!("functions/enqueue_following");

macro_rules! defects {
    ($($name:literal in $sql:expr; $replaced:literal => $by:literal; $found:literal)*) => {
        const DEFECTS: &[Defect] =
            &[$(Defect { name: $name, sql: $sql, replaced: $replaced, by: $by, found: $found },)*];
    };
}

defects! {
    "limits ignored" in LIMITED; "definition.most_running - (" => "9999 - ("; "max_running is"
    "share limit ignored" in LIMITED;
        "limits.max_running_per_share - coalesce(running.runs, 0)" => "NULL::bigint"; "of share"
    "rate not counted" in CLAIM;
        "started.runs * definition.rate_interval" => "interval '0'"; "within the rate"
    "lock ignored" in text!("functions/within_locks");
        "chosen.turn + coalesce(running.runs, 0)" => "0"; "runs with lock"
    "most of a lock ignored" in text!("functions/most_with_lock");
        "min(definition.lock_most)" => "max(definition.lock_most) + 1"; "runs with lock"
    "rate of a share not counted" in CLAIM;
        "now() + count(*) * definition.share_interval" => "now()"; "of share"
    "claimed by another worker" in CLAIM;
        "coalesce(run.worker = claim_runs.worker, true)" => "true"; "for another worker"
    "one run for all workers" in text!("functions/fire");
        "definition.each_worker OR" => "false AND"; "it is for the wrong worker"
    "claimed within a limit by another worker" in LIMITED;
        "coalesce(run.worker = limited_runs.worker, true)" => "true"; "for another worker"
    "hold ignored" in CLAIM; "FROM jobctl.current_holds AS hold" =>
        "FROM jobctl.current_holds AS hold WHERE false"; "it is held"
    "expiry ignored at claim" in CLAIM;
        "coalesce(run.expires_at > now(), true)" => "true"; "it has expired"
    "claim without the right" in CLAIM;
        "worker.claiming_tick = claim_runs.tick" => "true"; "without the claim right"
    "retry leaves no attempt" in TRIGGER; "CHANGE" =>
        "IF OLD.status = 'dead' THEN NEW.max_attempts := OLD.max_attempts; END IF";
        "retried without an attempt"
    "retry loses the block" in text!("functions/reopen_dependencies");
        "AND dependency.state <> 'met'" => "AND false"; "retried, and queued|undone, but it was"
    "undo restores another value" in TRIGGER; "CHANGE" =>
        "IF OLD.status = 'queued' AND NEW.status = 'dead' THEN NEW.priority := 9; END IF";
        "undone, but it was"
    "live key inserted twice" in "DROP INDEX jobctl.job_runs_key"; "" => ""; "two runs have key"
    "max_waiting ignored" in text!("functions/try_enqueue");
        "is_full := FOUND" => "is_full := false"; "max_waiting is"
    "oldest runs not dropped" in text!("functions/drop_oldest");
        "LIMIT 2" => "LIMIT 0"; "max_waiting is"
    "edit changes another column" in TRIGGER; "CHANGE" =>
        "IF NEW.priority <> OLD.priority THEN NEW.share := 'spoilt'; END IF";
        "an edit changed another column"
    "prune takes a predecessor of an unfinished run" in text!("views/awaited_runs");
        "AND follower.finished_at IS NULL" => "AND false"; "another run waits for it"
    "fire twice" in text!("functions/fire");
        "next_run_at = fire.next," => ""; "its time may fire again"
    "hook lost" in END; "jobctl.enqueue_hooks(finals) OR" => ""; "0 runs of hook"
    "result of another claim" in END;
        "AND run.started_at IS NOT DISTINCT FROM given.claim_time" => "";
        "the result of a lost lease"
    "attempt not counted" in END;
        "run.attempts - (way = 'release')::integer" => "run.attempts - 1"; "rows of history"
    "snooze holds no job" in END;
        "IF snoozed IS NOT NULL" => "IF false"; "its job is not held"
    "follower released early" in DECIDE;
        "AND dependency.state <> 'met'" => "AND dependency.state = 'stuck'";
        "released before the runs"
    "fire not noted" in text!("functions/fire");
        "PERFORM jobctl.note_predecessors(fired);" => ""; "does not follow"
    "end not noted" in END; "|| jobctl.note_predecessors(finals)" => ""; "does not follow"
    "failed run followed" in text!("functions/note_predecessors");
        "ELSE run.status = 'succeeded'" => "ELSE run.finished_at IS NOT NULL";
        "has not ended as asked"
    "followed before all are noted" in FOLLOW;
        "following.after <@ grouped.jobs" => "following.after && grouped.jobs"; "runs of 2 jobs"
    "following run not blocked" in FOLLOW;
        "WHEN awaited.runs > 0" => "WHEN false"; "released before the runs"
    "any end is met" in DECIDE; "WHEN dependency.rule = 'any_end'" => "WHEN true"; "need not wait"
}

/// The most sequences in which each defect must be found.
const MOST: u64 = 300;

/// Returns after how many sequences a defect is found.
fn find(server: &str, place: usize) -> Result<u64, String> {
    let Defect { name, sql, replaced, by, found } = &DEFECTS[place];
    assert!(sql.contains(replaced), "{name}: the schema has no such text: {replaced}");
    with_database(server, &format!("defect_{place}"), |real| {
        real.sql.rows(&sql.replace(replaced, by));
        for seed in 0..MOST {
            match check(real, seed) {
                Err(why) if found.split('|').any(|part| why.contains(part)) => return Ok(seed + 1),
                Err(why) => return Err(format!("{name}: sequence {seed}: found as {why}")),
                Ok(()) => {}
            }
        }
        Err(format!("{name}: not found"))
    })
}

/// DEFECT=NAME tries that defect alone.
#[test]
#[expect(clippy::print_stdout, reason = "after how many sequences each is found")]
fn every_planted_defect_of_the_schema_breaks_an_invariant() {
    let Some(server) = server("defects of the schema") else { return };
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(Defect { name, .. }) = DEFECTS.get(place) else { return };
            if env::var("DEFECT").is_ok_and(|asked| !asked.contains(name)) {
                continue;
            }
            match find(&server, place) {
                Ok(seed) => println!("planted {name}: found after {seed}"),
                Err(why) => missed.lock().unwrap().push(why),
            }
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
