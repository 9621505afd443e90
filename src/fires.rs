//! What a due schedule comes to: which nominal times are fired, and which comes next. Pure.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::schedule::{Missed, Schedule, spread_of};
use crate::store::{DueSchedule, Planned, Scheduled};

/// A nominal time that is older than this was missed: nobody ticked when it came.
const ON_TIME: TimeDelta = TimeDelta::minutes(2);
/// Nominal times fired per statement: a tenth of what ten seconds, its limit, are enough for.
const TIMES_AT_ONCE: usize = 5000;
/// Before a schedule that can't be fired is looked at again.
const BROKEN_PAUSE: TimeDelta = TimeDelta::hours(1);

/// What due schedules come to, and what is wrong with those that can't be read: these are put off, so
/// that they hold up no other.
pub(crate) fn plan(due: &[DueSchedule]) -> (Vec<Planned>, Vec<String>) {
    let mut broken = Vec::new();
    let fires = due.iter().map(|one| {
        plan_one(one).unwrap_or_else(|why| {
            broken.push(format!("schedule of `{}` does not fire: {why}", one.name));
            put_off(one)
        })
    });
    let fires = fires.collect();
    (fires, broken)
}

/// What is planned, in shares that a statement can bear: one schedule at least, and not too many times.
pub(crate) fn shares(fires: Vec<Planned>) -> Vec<Vec<Planned>> {
    let mut shares: Vec<Vec<Planned>> = Vec::new();
    let mut times = 0;
    for fire in fires {
        times += fire.times.len();
        match shares.last_mut() {
            Some(share) if times <= TIMES_AT_ONCE => share.push(fire),
            _ => {
                times = fire.times.len();
                shares.push(vec![fire]);
            }
        }
    }
    shares
}

/// One that can't be fired: it is left at the time that has come, for when it can.
pub(crate) fn put_off(due: &DueSchedule) -> Planned {
    Planned {
        id: due.id,
        seen: due.seen,
        schedule: due.schedule.clone(),
        time_zone: due.time_zone.clone(),
        next: due.seen,
        times: Vec::new(),
        missed: 0,
        delay: 0.0,
        put_off_until: Some(due.now + BROKEN_PAUSE),
    }
}

fn plan_one(due: &DueSchedule) -> Result<Planned, String> {
    let Some(seen) = due.seen else {
        let next = Some(first(&due.schedule, &due.time_zone, due.now)?);
        return Ok(Planned { next, put_off_until: None, ..put_off(due) });
    };
    let schedule = Schedule::parse(&due.schedule, &due.time_zone)?;
    let newest = usize::try_from(due.most_fires).unwrap_or(1);
    // What has come is due whatever the expression says; behind it lies what came since.
    let Missed { mut times, mut skipped } = schedule.missed(seen, due.now, newest);
    if times.len() < newest {
        times.insert(0, seen);
    } else {
        skipped += 1;
    }
    if due.catch_up == "skip" {
        let before = times.len();
        times.retain(|time| due.now - *time <= ON_TIME);
        skipped += (before - times.len()) as u64;
    }
    let delay = spread_of(&due.name, Duration::try_from_secs_f64(due.spread).unwrap_or_default());
    Ok(Planned {
        next: schedule.after(due.now),
        times,
        missed: i64::try_from(skipped).unwrap_or(i64::MAX),
        delay: delay.as_secs_f64(),
        put_off_until: None,
        ..put_off(due)
    })
}

/// The first nominal time after `now`.
///
/// # Errors
/// The schedule can't be read, or never fires.
pub(crate) fn first(schedule: &str, time_zone: &str, now: DateTime<Utc>) -> Result<DateTime<Utc>, String> {
    Schedule::parse(schedule, time_zone)?.first(now)
}

/// Whether it should fire and never will, because its schedule can't be read or names no time.
pub(crate) fn is_broken(scheduled: &Scheduled) -> bool {
    let Scheduled { schedule, time_zone, enabled, paused_at, now, .. } = scheduled;
    let cannot_fire = |schedule: &String| first(schedule, time_zone, *now).is_err();
    *enabled && paused_at.is_none() && schedule.as_ref().is_some_and(cannot_fire)
}

/// The names of those that are broken.
pub(crate) fn broken(scheduled: &[Scheduled]) -> Vec<&str> {
    scheduled.iter().filter(|one| is_broken(one)).map(|one| one.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_fires_one_schedule_at_least_and_not_too_many_times() {
        let fire = |times: usize| Planned {
            id: 1,
            seen: None,
            schedule: String::new(),
            time_zone: String::new(),
            next: None,
            times: vec![DateTime::UNIX_EPOCH; times],
            missed: 0,
            delay: 0.0,
            put_off_until: None,
        };
        let shares = |times: &[usize]| {
            let shares = shares(times.iter().copied().map(fire).collect());
            shares.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(shares(&[]), [0; 0]);
        assert_eq!(shares(&[1; 500]), [500]);
        assert_eq!(shares(&[1000; 12]), [5, 5, 2]);
        assert_eq!(shares(&[0, TIMES_AT_ONCE + 1, 0, 1]), [1, 1, 2]);
    }
}
