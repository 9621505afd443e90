//! What a due schedule comes to: which nominal times are fired, and which comes next. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::count;
use crate::schedule::{Missed, Schedule, spread_of};
use crate::store::{DueSchedule, Planned, Scheduled};

/// A nominal time that is older than this was missed: nobody ticked when it came.
const ON_TIME: TimeDelta = TimeDelta::minutes(2);
/// Nominal times fired per statement: a tenth of what ten seconds, its limit, are enough for.
const TIMES_AT_ONCE: usize = 5000;
/// Before a schedule that can't be fired is looked at again.
const BROKEN_PAUSE: TimeDelta = TimeDelta::hours(1);
/// A schedule that fires this much too early, because a clock was ahead, is not reported.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::minutes(5);

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

/// The names of schedules that do not fire as defined.
#[derive(Debug, Default)]
pub(crate) struct Failing<'a> {
    /// Never fire: unreadable, or without any matching time.
    pub(crate) broken: Vec<&'a str>,
    /// Skip times: the stored next time is too late, for example because a clock was ahead.
    pub(crate) skipping: Vec<&'a str>,
}

impl<'a> Failing<'a> {
    pub(crate) fn among(scheduled: &'a [Scheduled]) -> Self {
        let named = |fails: fn(&Scheduled) -> bool| {
            scheduled.iter().filter(|one| fails(one)).map(|one| one.name.as_str()).collect()
        };
        Self { broken: named(is_broken), skipping: named(is_skipping) }
    }

    /// Returns a sentence for each kind of failure, and what to do about the first schedule.
    pub(crate) fn sentences(&self) -> impl Iterator<Item = (String, String)> {
        let kinds = [
            (&self.broken, "can't fire", "see `jobctl next"),
            (&self.skipping, "will skip times", "run `jobctl resume"),
        ];
        kinds.into_iter().filter_map(|(names, fails, remedy)| {
            let first = names.first()?;
            Some((format!("schedule {} {fails}", count::listed(names, 1)), format!("{remedy} {first}`")))
        })
    }
}

/// Whether the schedule should fire but never will.
pub(crate) fn is_broken(scheduled: &Scheduled) -> bool {
    first_from(scheduled, scheduled.now).is_some_and(|first| first.is_err())
}

fn is_skipping(scheduled: &Scheduled) -> bool {
    let first = first_from(scheduled, scheduled.now + CLOCK_TOLERANCE).and_then(Result::ok);
    first.zip(scheduled.next_run_at).is_some_and(|(first, next)| next > first)
}

/// Returns the first nominal time after `from`; `None` if the schedule should not fire.
fn first_from(scheduled: &Scheduled, from: DateTime<Utc>) -> Option<Result<DateTime<Utc>, String>> {
    let schedule = scheduled.schedule.as_ref().filter(|_| scheduled.enabled && scheduled.paused_at.is_none());
    schedule.map(|schedule| first(schedule, &scheduled.time_zone, from))
}

/// Returns the zones in use, each with instants at which to compare the host with the database:
/// now, the next fires, and half a year later. UTC needs no comparison.
pub(crate) fn zones_in_use(scheduled: &[Scheduled]) -> BTreeSet<(String, DateTime<Utc>)> {
    let fires = |one: &&Scheduled| one.enabled && one.schedule.is_some() && one.time_zone != "UTC";
    let instants = |one: &Scheduled| [Some(one.now), one.next_run_at, Some(one.now + TimeDelta::days(183))];
    let zones = scheduled.iter().filter(fires);
    zones.flat_map(|one| instants(one).into_iter().flatten().map(|at| (one.time_zone.clone(), at))).collect()
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
