//! Operators and applications, and the faults that come by themselves.

use chrono::TimeDelta;

use super::checks::By;
use super::database::Write;
use super::rows::{Run, Spec};
use super::world::{What, World};
use super::{Random, seconds};
use crate::exit::Exit;
use crate::job::definition;
use crate::job::enqueue::AfterRule;
use crate::job::status::Status;
use crate::store::Kind;

fn definitions(random: &mut Random, now: chrono::DateTime<chrono::Utc>) -> Vec<Spec> {
    let mut backoff =
        || ["fixed:0s", "fixed:1s", "exponential:1s..8s", "list:2s,5s"][random.below(4) as usize];
    let mut text = format!("[jobs.plain]\nshell = \"x\"\nbackoff = \"{}\"\n", backoff());
    text += &format!("[jobs.hasty]\nshell = \"x\"\nbackoff = \"{}\"\n", backoff());
    text += &format!("timeout = \"{}s\"\n", random.between(1, 20));
    text += &format!("[jobs.limited]\nshell = \"x\"\nmax_running = {}\n", random.between(1, 3));
    text += "backoff = \"fixed:1s\"\n";
    for name in ["minutely", "other"] {
        let overlap = ["allow", "skip", "queue"][random.below(3) as usize];
        let catch_up = ["one", "all", "skip"][random.below(3) as usize];
        text += &format!("[jobs.{name}]\nshell = \"x\"\nschedule = \"* * * * *\"\n");
        text += &format!("overlap = \"{overlap}\"\ncatch_up = \"{catch_up}\"\n");
        text += &format!("backoff = \"fixed:2s\"\nmax_attempts = {}\n", random.between(1, 3));
    }
    let definitions = definition::read(&text, now).unwrap().definitions.into_iter();
    definitions.map(|definition| serde_json::from_value(definition.row).unwrap()).collect()
}

pub(super) fn populate(world: &mut World) {
    let wanted = definitions(&mut world.random, world.database.now);
    world.database.define(wanted);
    for _ in 0..world.random.between(1, 30) {
        enqueue(world);
    }
    world.copy_to_standby();
}

fn enqueue(world: &mut World) {
    let random = &mut world.random;
    let job = random.of(&["plain", "plain", "plain", "plain", "hasty", "hasty", "limited"]);
    let existing: Vec<_> = world.database.runs.keys().copied().collect();
    let mut run = world.database.new_run(job);
    if random.chance(20) {
        run.queue = "other".to_owned();
    }
    run.priority = if random.chance(20) { random.below(3) as i32 } else { 0 };
    run.max_attempts = random.between(1, 4) as i32;
    if random.chance(30) {
        run.run_at += TimeDelta::seconds(random.below(20) as i64);
    }
    if random.chance(10) {
        run.expires_at = Some(run.run_at + TimeDelta::seconds(random.below(20) as i64));
    }
    let id = run.id;
    world.database.set(id, Some(run));
    world.note(|| format!("an application enqueues run {id} of {job}"));
    let random = &mut world.random;
    if !existing.is_empty() && random.chance(30) {
        let rule = random.of(&[AfterRule::Success, AfterRule::AnyEnd, AfterRule::OrCancel]);
        // Mostly runs that have not ended.
        let recent = &existing[existing.len().saturating_sub(8)..];
        let mut after: Vec<_> = (0..random.between(1, 3)).map(|_| random.of(recent)).collect();
        after.dedup();
        world.database.block(id, &after, rule);
        world.note(|| format!("run {id} waits for {after:?}, {rule}"));
    }
    world.checks.changed(&world.database, &By::Operator("enqueue"), world.now);
}

/// A run of a large world. Old runs are deleted.
pub(super) fn arrive(world: &mut World) {
    let database = &mut world.database;
    let run = Run { backoff: "fixed:10s".to_owned(), max_attempts: 3, ..database.new_run("plain") };
    database.set(run.id, Some(run));
    let young = Some(database.now - TimeDelta::seconds(60));
    let old =
        database.runs.values().filter(|it| it.finished_at.is_some() && it.finished_at < young);
    let old: Vec<_> = old.map(|run| run.id).take(10).collect();
    old.into_iter().for_each(|id| database.delete(id));
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
    let Some(run) = database.runs.get(&id) else { return enqueue(world) };
    let is_ended = run.finished_at.is_some();
    let (doing, ()) = match (world.random.below(21), run.status) {
        (0..9, _) => return enqueue(world),
        (9..12, Status::Running) => ("force", database.requeue(id)),
        (9..12, Status::Succeeded) => ("again", database.requeue(id)),
        (9..12, _) => ("retry", database.requeue(id)),
        (12..15, _) if !is_ended => ("cancel", database.cancel(id)),
        (15, _) => ("pause", database.pause(name, true)),
        (16..18, _) => ("resume", database.pause(name, false)),
        (18, _) if is_ended => ("prune", database.delete(id)),
        (19, Status::Blocked | Status::Queued | Status::Failed) => {
            // In SQL, a request to cancel may be written on a waiting run.
            let at = Some(database.now);
            let run = Run { cancel_requested_at: at, updated_at: database.now, ..run.clone() };
            ("cancel", drop(database.set(id, Some(run))))
        }
        (20, _) => ("apply", database.define(definitions(&mut world.random, database.now))),
        _ => return,
    };
    world.note(|| format!("an operator: {doing} run {id}"));
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
        world.database.pause(name, true);
    }
    world.slow_down(0);
    world.hosts.iter_mut().for_each(|host| host.threads = usize::MAX);
    let unfinished = world.database.runs.values().filter(|run| run.finished_at.is_none()).count();
    let slow = if world.checks.slow > 0 { 3 } else { 1 };
    world.push(world.now + slow * seconds(1500 + 70 * unfinished as u64), What::Deadline);
    world.checks.calm_since = Some(world.now);
}
