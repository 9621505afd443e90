//! Operators and applications, and the faults that come by themselves.

use std::time::Duration;

use super::checks::By;
use super::database::{Run, Spec, Write};
use super::world::{What, World};
use super::{Random, seconds};
use crate::exit::Exit;
use crate::job::definition;
use crate::job::enqueue::{AfterRule, EnqueueResult, KeyScope};
use crate::job::status::{HoldScope, Status};
use crate::store::{Accepted, HoldTarget, Keep, Kind, NewRun, RetryTerms, Unlisted};

const FINAL: [Status; 3] = [Status::Succeeded, Status::Dead, Status::Cancelled];

fn definitions(random: &mut Random, now: chrono::DateTime<chrono::Utc>) -> Vec<Spec> {
    let mut backoff =
        || ["fixed:0s", "fixed:1s", "exponential:1s..8s", "list:2s,5s"][random.below(4) as usize];
    let mut text = format!("[jobs.plain]\nshell = \"x\"\nbackoff = \"{}\"\n", backoff());
    text += &format!("[jobs.hasty]\nshell = \"x\"\nbackoff = \"{}\"\n", backoff());
    text += &format!("timeout = \"{}s\"\n", random.between(1, 20));
    text += "on_dead = \"alert\"\n";
    text += "[jobs.alert]\nshell = \"x\"\nbackoff = \"fixed:1s\"\nmax_attempts = 5\n";
    text += &format!("[jobs.limited]\nshell = \"x\"\nmax_running = {}\n", random.between(1, 3));
    text += "backoff = \"fixed:1s\"\non_end = \"alert\"\n";
    text += &format!("max_running_per_share = {}\n", random.between(1, 2));
    text += &format!("[jobs.rated]\nshell = \"x\"\nrate = \"{}/10s\"\n", random.between(1, 9));
    text += "backoff = \"fixed:1s\"\n";
    for name in ["minutely", "other"] {
        let overlap = ["allow", "skip", "queue"][random.below(3) as usize];
        let catch_up = ["one", "all", "skip"][random.below(3) as usize];
        text += &format!("[jobs.{name}]\nshell = \"x\"\nschedule = \"* * * * *\"\n");
        text += &format!("overlap = \"{overlap}\"\ncatch_up = \"{catch_up}\"\n");
        text += &format!("backoff = \"fixed:2s\"\nmax_attempts = {}\n", random.between(1, 3));
    }
    let definitions = definition::read(&text, now).unwrap().definitions.into_iter();
    definitions
        .map(|mut definition| {
            definition.row["file"] = "".into();
            serde_json::from_value(definition.row).unwrap()
        })
        .collect()
}

pub(super) fn populate(world: &mut World) {
    let wanted = definitions(&mut world.random, world.database.now);
    world.database.apply(&wanted, Unlisted::Disable, false).unwrap();
    for _ in 0..world.random.between(1, 30) {
        enqueue(world);
    }
    world.copy_to_standby();
}

fn enqueue(world: &mut World) {
    let random = &mut world.random;
    let job = ["plain", "plain", "plain", "plain", "hasty", "hasty", "limited", "limited", "rated"]
        [random.below(9) as usize];
    let key = random.chance(20).then(|| format!("k{}", random.below(5)));
    let run = NewRun {
        job_type: job.to_owned(),
        payload: "{}".to_owned(),
        queue: random.chance(20).then(|| "other".to_owned()),
        priority: random.chance(20).then(|| random.below(3) as i32),
        after: random.chance(30).then(|| random.below(20) as f64),
        max_attempts: Some(random.between(1, 4) as i32),
        share: random.chance(30).then(|| format!("s{}", random.below(2))),
        expires_in: random.chance(10).then(|| random.below(20) as f64),
        key_scope: key.as_ref().filter(|_| random.chance(50)).map(|_| KeyScope::Live),
        key,
        ..NewRun::default()
    };
    let existing: Vec<_> = world.database.runs.keys().copied().collect();
    let mut answer = world.database.enqueue(&run);
    let random = &mut world.random;
    if let Some(Accepted { id: Some(id), result: EnqueueResult::Enqueued, .. }) =
        answer.clone().accepted_run()
        && !existing.is_empty()
        && random.chance(30)
    {
        let rules = [AfterRule::Success, AfterRule::AnyEnd, AfterRule::OrCancel];
        let rule = rules[random.below(3) as usize];
        // Mostly runs that have not ended.
        let recent = existing.len().saturating_sub(8);
        let mut after: Vec<_> = (0..random.between(1, 3))
            .map(|_| existing[recent + random.below((existing.len() - recent) as u64) as usize])
            .collect();
        after.dedup();
        if let Some(refused) = world.database.wait_for(id, &after, rule) {
            world.database.set(id, None);
            answer = refused;
        }
        world.note(|| format!("run {id} waits for {after:?}, {rule}: {answer:?}"));
    }
    world.note(|| format!("an application enqueues {job}: {answer:?}"));
    if answer.is_new() {
        world.checks.changed(&world.database, &By::Operator("enqueue"), world.now);
    }
}

/// A run of a large world. Old runs are pruned.
pub(super) fn arrive(world: &mut World) {
    let run = NewRun {
        job_type: "plain".to_owned(),
        payload: "{}".to_owned(),
        backoff: Some("fixed:10s".to_owned()),
        max_attempts: Some(3),
        ..NewRun::default()
    };
    world.database.enqueue(&run);
    let age = Duration::from_secs(60);
    world.database.prune(Keep { ended: age, dead: age }, 10);
}

/// Something that an operator or an application does now and then.
pub(super) fn operate(world: &mut World) {
    if world.is_calm {
        return;
    }
    let pause = world.random.below(seconds(3));
    world.push(world.now + pause, What::Operator);
    if world.is_down() {
        return;
    }
    let ids: Vec<_> = world.database.runs.keys().copied().collect();
    let id = *ids.get(world.random.below(ids.len() as u64) as usize).unwrap_or(&1);
    let name = ["minutely", "other"][world.random.below(2) as usize];
    let database = &mut world.database;
    let waiting = [Status::Queued, Status::Failed, Status::Blocked];
    let (doing, result) = match world.random.below(23) {
        0..9 => return enqueue(world),
        9..11 => {
            let from =
                [Status::Blocked, Status::Queued, Status::Failed, Status::Dead, Status::Cancelled];
            let terms = RetryTerms::default();
            ("retry", database.retry(&[id], &from, terms).map(|done| format!("{done:?}")))
        }
        11 => {
            let (from, terms) = ([Status::Running], RetryTerms::default());
            ("force", database.retry(&[id], &from, terms).map(|done| format!("{done:?}")))
        }
        22 => {
            let (from, terms) = ([Status::Succeeded], RetryTerms::default());
            ("again", database.retry(&[id], &from, terms).map(|done| format!("{done:?}")))
        }
        12..14 => {
            let from = [waiting[0], waiting[1], waiting[2], Status::Running];
            ("cancel", database.cancel(&[id], &from).map(|done| format!("{done:?}")))
        }
        14 => ("pause", database.pause(name).map(|done| format!("{done:?}"))),
        15..17 => ("resume", database.resume(name).map(|done| format!("{done:?}"))),
        17 => {
            let age = Duration::from_secs(20);
            let keep = Keep { ended: age, dead: age };
            ("prune", Ok(format!("{:?}", database.prune(keep, 2))))
        }
        18 => ("prune", database.remove(&[id], &FINAL).map(|done| format!("{done:?}"))),
        19 => {
            let targets = [
                (HoldScope::Job, "plain"),
                (HoldScope::Job, "limited"),
                (HoldScope::Queue, "other"),
                (HoldScope::All, ""),
            ];
            let (scope, name) = targets[world.random.below(4) as usize];
            let host = world.random.below(world.hosts.len() as u64) as usize;
            let target = match world.random.chance(20) {
                true => {
                    HoldTarget { scope: HoldScope::Worker, name: world.hosts[host].worker.clone() }
                }
                false => HoldTarget { scope, name: name.to_owned() },
            };
            let lasts = Duration::from_secs(world.random.between(1, 20));
            let is_hold = world.random.chance(50);
            match is_hold {
                true => ("hold", Ok(format!("{:?}", world.database.hold(target, Some(lasts))))),
                false => ("release", Ok(format!("{:?}", world.database.end_holds(&target)))),
            }
        }
        20 => {
            // In SQL, a request to cancel may be written on a waiting run.
            let Some(run) = database.runs.get(&id).filter(|run| waiting.contains(&run.status))
            else {
                return;
            };
            let at = Some(database.now);
            let run = Run { cancel_requested_at: at, updated_at: database.now, ..run.clone() };
            database.set(id, Some(run));
            ("cancel", Ok("asked for".to_owned()))
        }
        _ => {
            let wanted = definitions(&mut world.random, database.now);
            (
                "apply",
                database.apply(&wanted, Unlisted::Disable, false).map(|done| format!("{done:?}")),
            )
        }
    };
    world.note(|| format!("an operator: {doing} run {id}: {result:?}"));
    world.checks.changed(&world.database, &By::Operator(doing), world.now);
}

/// A fault, if this world has faults of its kind.
pub(super) fn chaos(world: &mut World) {
    if world.is_calm {
        return;
    }
    let pause = world.random.below(seconds(4));
    world.push(world.now + pause, What::Chaos);
    let random = &mut world.random;
    let fault = random.below(16);
    let lease = world.lease.as_nanos() as u64;
    let lasts = random.below(lease * 3 / 2);
    let host = random.below(world.hosts.len() as u64) as usize;
    let tick = random.below(world.ticks.len() as u64) as usize;
    let tick = (tick..world.ticks.len()).find(|tick| world.ticks[*tick].is_some());
    let ids: Vec<_> = world.database.runs.keys().copied().collect();
    let id = *ids.get(random.below(ids.len() as u64) as usize).unwrap_or(&1);
    if !world.has_fault(fault) {
        return;
    }
    let (now, short) = (world.now, world.random.below(seconds(20)));
    world.note(|| format!("fault {fault}: host {host}, tick {tick:?}, run {id}, {lasts} ns"));
    match fault {
        1 if world.hosts[host].paused.is_none() => {
            let stands = world.random.chance(50).then_some(now);
            world.hosts[host].paused = Some((now + lasts, stands));
            world.push(now + lasts, What::Resume(host));
        }
        2 => tick.into_iter().for_each(|tick| world.crash(tick)),
        3 => {
            let Some(tick) = tick else { return };
            world.push(now, What::Signal(tick));
            if world.random.chance(30) {
                world.push(now + short, What::Signal(tick));
            }
        }
        4 => world.restart(short),
        5 => world.fail_over(),
        6 => world.slow_down(lasts),
        7 => world.hosts[host].cut_until = now + lasts,
        8 if world.database.locked.insert(id) => {
            world.push(now + short, What::Unlock(id, world.generation));
        }
        9 => {
            let writes = [Write::Claim, Write::Renewal, Write::Result, Write::Other];
            let write = (id, writes[world.random.below(4) as usize]);
            if world.database.refused.insert(write) {
                world.checks.refused.insert(id);
                world.push(now + 2 * short, What::Accept(write));
            }
        }
        10 => {
            let (kind, exit) = [
                (Kind::Fatal, Exit::Schema),
                (Kind::Fatal, Exit::Configuration),
                (Kind::Fatal, Exit::CouldNot),
                (Kind::Busy, Exit::Unavailable),
            ][world.random.below(4) as usize];
            world.reject_all(kind, exit, short);
        }
        12 => world.hosts[host].threads = world.random.below(3) as usize,
        13 => {
            let rate = 1.0 + (world.random.unit() - 0.5) / 500.0;
            world.hosts[host].clock.set(now, now, rate);
        }
        // A late COMMIT may have the lock, and then it must keep it.
        14 if !world.database.locked_definitions.contains("limited") => {
            let worker = world.hosts[host].worker.clone();
            world.database.locked_workers.insert(worker);
            world.database.locked_definitions.insert("limited".to_owned());
            world.push(now + short, What::UnlockTables(world.generation));
        }
        15 => world.copy_to_standby(),
        _ => {}
    }
    if world.has_fault(5) && world.random.chance(30) {
        world.copy_to_standby();
    }
}

/// The faults stop. From now on everything that is due must be finished within a bound.
pub(super) fn calm(world: &mut World) {
    world.note(|| "the faults stop".to_owned());
    world.is_calm = true;
    for name in ["minutely", "other"] {
        world.database.locked_definitions.remove(name);
        world.database.pause(name).unwrap();
    }
    world.slow_down(0);
    world.hosts.iter_mut().for_each(|host| host.threads = usize::MAX);
    let unfinished = world.database.runs.values().filter(|run| run.finished_at.is_none()).count();
    let slow = if world.checks.slow > 0 { 3 } else { 1 };
    world.push(world.now + slow * seconds(1500 + 70 * unfinished as u64), What::Deadline);
    world.checks.calm_since = Some(world.now);
}
