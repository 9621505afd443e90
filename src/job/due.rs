//! Plans due schedules: which nominal times to fire, and which comes next. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use cron_zone::{Error, Schedule};

/// A nominal time is missed if it is older than this: no tick ran when it came.
const ON_TIME: TimeDelta = TimeDelta::minutes(2);
/// The most nominal times that one statement fires: to fire them takes one second, a tenth of its
/// time limit.
const TIMES_AT_ONCE: usize = 5000;
/// The wait until a schedule that cannot be fired is read again.
const BROKEN_PAUSE: TimeDelta = TimeDelta::hours(1);
/// A stored next time may be too late by this much, because a clock was ahead, without a report.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::minutes(5);

/// A schedule whose next nominal time has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct DueSchedule {
    /// The id of the definition.
    pub(crate) id: i64,
    /// The name of the definition.
    pub(crate) name: String,
    /// The id of a schedule that an application made; `None` for the schedule of the definition.
    pub(crate) schedule_id: Option<i64>,
    /// The name that the application gave its schedule.
    pub(crate) application_schedule: Option<String>,
    pub(crate) schedule: String,
    pub(crate) time_zone: String,
    pub(crate) catch_up: String,
    /// The number of nominal times that one fire may queue.
    pub(crate) most_fires: i32,
    /// In seconds.
    pub(crate) spread: f64,
    /// The stored next time, which is due; `None` if no next time is stored yet.
    pub(crate) seen: Option<DateTime<Utc>>,
    /// When an application stored its schedule: its first time is later.
    pub(crate) stored_at: Option<DateTime<Utc>>,
    /// The bounds of the times of an application's schedule, both inclusive.
    pub(crate) starts_at: Option<DateTime<Utc>>,
    pub(crate) ends_at: Option<DateTime<Utc>>,
    /// When the job was resumed after a pause. An application's schedule skips the times before it.
    pub(crate) resumed_at: Option<DateTime<Utc>>,
    /// The database's now.
    pub(crate) now: DateTime<Utc>,
}

impl DueSchedule {
    /// The name for log lines: that of the job, or the one that the application gave.
    pub(crate) fn label(&self) -> &str {
        self.application_schedule.as_ref().unwrap_or(&self.name)
    }
}

/// The nominal times of a due schedule: those to fire now, and the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirePlan {
    /// The times were computed from this schedule; if it has changed since, nothing is fired.
    pub(crate) due: DueSchedule,
    /// `None`: it never fires again.
    pub(crate) next: Option<DateTime<Utc>>,
    /// Nominal times to queue runs for.
    pub(crate) times: Vec<DateTime<Utc>>,
    /// The number of nominal times that are skipped.
    pub(crate) missed: i64,
    /// How many seconds after its nominal time a run is due.
    pub(crate) delay: f64,
    /// Set if the schedule cannot be fired: no tick reads it before this time.
    pub(crate) put_off_until: Option<DateTime<Utc>>,
}

/// A definition's schedule, as `next` and `resume` need it.
#[derive(Clone, Debug)]
pub(crate) struct Scheduled {
    pub(crate) name: String,
    pub(crate) schedule: Option<String>,
    pub(crate) time_zone: String,
    /// The jobs that it follows.
    pub(crate) after: Option<String>,
    pub(crate) enabled: bool,
    pub(crate) paused_at: Option<DateTime<Utc>>,
    pub(crate) next_run_at: Option<DateTime<Utc>>,
    /// Nominal times that were left out.
    pub(crate) skipped_fires: i64,
    /// The name of a schedule that an application made; `None` for the schedule of the definition.
    pub(crate) application_schedule: Option<String>,
    /// The login of that application.
    pub(crate) owner: Option<String>,
    /// How many schedules applications made for the job; 0 for the schedule of the definition.
    pub(crate) schedules: i64,
    /// How the job's last run ended, scheduled or not.
    pub(crate) last_status: Option<String>,
    /// When a run of the job last succeeded.
    pub(crate) last_succeeded_at: Option<DateTime<Utc>>,
    /// How long a run usually takes.
    pub(crate) usual_seconds: Option<f64>,
    /// The database's now.
    pub(crate) now: DateTime<Utc>,
}

impl FirePlan {
    /// Returns whether the next time is due, too: the schedule had no stored time, and its first
    /// time has come since the schedule was stored.
    pub(crate) fn is_due_again(&self) -> bool {
        self.put_off_until.is_none() && self.next.is_some_and(|next| next <= self.due.now)
    }
}

/// Plans each due schedule. Puts off unreadable schedules, so that they delay no other schedule,
/// and returns an error text for each.
pub(crate) fn plan_fires(due: Vec<DueSchedule>) -> (Vec<FirePlan>, Vec<String>) {
    let mut errors = Vec::new();
    let mut plans: Vec<_> = due.into_iter().map(put_off).collect();
    for plan in &mut plans {
        if let Err(why) = set_times(plan) {
            errors.push(format!("schedule of `{}` does not fire: {why}", plan.due.label()));
        }
    }
    (plans, errors)
}

/// Splits plans into batches for one statement each. A batch has at most `TIMES_AT_ONCE` nominal
/// times, unless a single schedule has more.
pub(crate) fn into_batches(plans: Vec<FirePlan>) -> Vec<Vec<FirePlan>> {
    let mut batches: Vec<Vec<FirePlan>> = Vec::new();
    let mut times = 0;
    for plan in plans {
        times += plan.times.len();
        match batches.last_mut() {
            Some(batch) if times <= TIMES_AT_ONCE => batch.push(plan),
            _ => {
                times = plan.times.len();
                batches.push(vec![plan]);
            }
        }
    }
    batches
}

/// Returns a plan that fires nothing and keeps the next nominal time as it is.
pub(crate) fn put_off(due: DueSchedule) -> FirePlan {
    let put_off_until = Some(due.now + BROKEN_PAUSE);
    FirePlan { next: due.seen, put_off_until, due, ..FirePlan::default() }
}

/// Turns a plan that is put off into one that fires. If the schedule is broken, fails, and the plan
/// stays put off.
fn set_times(plan: &mut FirePlan) -> Result<(), String> {
    let due = &plan.due;
    let schedule = Schedule::parse(&due.schedule, &due.time_zone)?;
    let is_before_end = |time: &DateTime<Utc>| due.ends_at.is_none_or(|ends| *time <= ends);
    let is_within_bounds = |seen: &DateTime<Utc>| {
        let begin = due.starts_at.max(due.resumed_at);
        is_before_end(seen) && begin.is_none_or(|begin| *seen >= begin)
    };
    let Some(seen) = due.seen.filter(is_within_bounds) else {
        // There is no stored time to fire, so only find the next one. It may be due already: the
        // search begins at the latest of these times, but not in the future.
        let from = due.seen.max(due.stored_at).max(due.resumed_at).unwrap_or(due.now).min(due.now);
        let next = match due.starts_at.filter(|starts| *starts > from) {
            Some(starts) => schedule.first_at(starts)?,
            None => schedule.first(from)?,
        };
        plan.next = Some(next).filter(is_before_end);
        plan.put_off_until = None;
        return Ok(());
    };
    let most_fires = usize::try_from(due.most_fires).unwrap_or(1);
    let until = due.ends_at.map_or(due.now, |ends| ends.min(due.now));
    // The newest times of the expression after the stored one, and how many were skipped.
    let (mut times, mut skipped) = schedule.missed(seen, until, most_fires);
    // The stored time is due, too, whatever the expression says. It is the oldest.
    if times.len() < most_fires {
        times.insert(0, seen);
    } else {
        skipped += 1;
    }
    if due.catch_up == "skip" {
        let due_times = times.len();
        times.retain(|time| due.now - *time <= ON_TIME);
        skipped += (due_times - times.len()) as u64;
    }
    let spread = Duration::try_from_secs_f64(due.spread).unwrap_or_default();
    plan.delay = delay_of(due.label(), spread).as_secs_f64();
    plan.next = schedule.after(due.now).filter(is_before_end);
    plan.times = times;
    plan.missed = i64::try_from(skipped).unwrap_or(i64::MAX);
    plan.put_off_until = None;
    Ok(())
}

/// Returns the fixed delay of a job within `spread`, in whole seconds. It is derived from the name,
/// so jobs with the same schedule start at different times.
fn delay_of(name: &str, spread: Duration) -> Duration {
    // Hash by FNV-1a, so that all hosts and versions agree: std's hashes may change.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Duration::from_secs(hash.checked_rem(spread.as_secs()).unwrap_or_default())
}

/// If the schedule of a job's definition is broken, sets the job's state to `broken`, and removes
/// its next time.
pub(crate) fn mark_broken(
    scheduled: &[Scheduled],
    job: &str,
    state: &mut Option<String>,
    next: &mut Option<DateTime<Utc>>,
) {
    let is_of_definition = |one: &Scheduled| one.name == job && one.application_schedule.is_none();
    if scheduled.iter().any(|one| is_of_definition(one) && is_broken(one)) {
        (*state, *next) = (Some("broken".to_owned()), None);
    }
}

/// Returns whether the schedule should fire but never will: it can't be read, or no time matches.
pub(crate) fn is_broken(scheduled: &Scheduled) -> bool {
    first_after(scheduled, scheduled.now).is_some_and(|first| first.is_err())
}

/// Returns whether the schedule skips times: the stored next time is too late, for example because
/// a clock was ahead.
pub(crate) fn is_skipping(scheduled: &Scheduled) -> bool {
    let first = first_after(scheduled, scheduled.now + CLOCK_TOLERANCE).and_then(Result::ok);
    first.zip(scheduled.next_run_at).is_some_and(|(first, stored)| stored > first)
}

/// Returns the first nominal time after `from`; `None`: the schedule is disabled or paused, or
/// there is none.
fn first_after(scheduled: &Scheduled, from: DateTime<Utc>) -> Option<Result<DateTime<Utc>, Error>> {
    let schedule =
        scheduled.schedule.as_ref().filter(|_| scheduled.enabled && scheduled.paused_at.is_none());
    schedule.map(|schedule| Schedule::parse(schedule, &scheduled.time_zone)?.first(from))
}

/// Returns the zones in use, except UTC, each with instants at which to compare the host's rules
/// with the database's: now, the next fires, and half a year from now, when clocks may have
/// changed.
pub(crate) fn zones_in_use(scheduled: &[Scheduled]) -> BTreeSet<(String, DateTime<Utc>)> {
    let mut zones = BTreeSet::new();
    for Scheduled { schedule, time_zone, enabled, next_run_at, now, .. } in scheduled {
        if *enabled && schedule.is_some() && time_zone != "UTC" {
            let instants = [Some(*now), *next_run_at, Some(*now + TimeDelta::days(183))];
            zones.extend(instants.into_iter().flatten().map(|at| (time_zone.clone(), at)));
        }
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_at_least_one_schedule_and_bounded_times() {
        let plan = |times: usize| FirePlan {
            times: vec![DateTime::UNIX_EPOCH; times],
            ..FirePlan::default()
        };
        let batches = |times: &[usize]| {
            let batches = into_batches(times.iter().copied().map(plan).collect());
            batches.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(batches(&[]), [0; 0]);
        assert_eq!(batches(&[1; 500]), [500]);
        assert_eq!(batches(&[1000; 12]), [5, 5, 2]);
        assert_eq!(batches(&[0, TIMES_AT_ONCE + 1, 0, 1]), [1, 1, 2]);
    }

    /// An hourly schedule in UTC that was last read at its next time, 0:00, and is due now.
    fn hourly(minutes_late: i64) -> DueSchedule {
        DueSchedule {
            name: "cleanup_nightly".to_owned(),
            schedule: "@hourly".to_owned(),
            time_zone: "UTC".to_owned(),
            most_fires: 100,
            spread: 300.0,
            seen: Some(clock(0)),
            now: clock(minutes_late),
            ..DueSchedule::default()
        }
    }

    fn clock(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::minutes(minutes)
    }

    /// Checks the fired times, in hours, and the number of the others.
    #[track_caller]
    fn fires(due: DueSchedule, hours: &[i64], missed: i64) {
        let (plans, errors) = plan_fires(vec![due]);
        assert_eq!((plans.len(), errors), (1, vec![]));
        let plan = &plans[0];
        assert_eq!(plan.times, hours.iter().map(|hour| clock(hour * 60)).collect::<Vec<_>>());
        assert_eq!((plan.missed, plan.next), (missed, Some(clock(240))));
        assert_eq!((plan.put_off_until, plan.delay), (None, 229.0));
    }

    #[test]
    fn a_late_tick_fires_the_newest_times_and_counts_the_others() {
        let late = || hourly(200);
        fires(late(), &[0, 1, 2, 3], 0);
        fires(DueSchedule { most_fires: 4, ..late() }, &[0, 1, 2, 3], 0);
        fires(DueSchedule { most_fires: 3, ..late() }, &[1, 2, 3], 1);
        fires(DueSchedule { most_fires: 1, ..late() }, &[3], 3);
        let skips = |late| DueSchedule { catch_up: "skip".to_owned(), ..hourly(late) };
        fires(skips(200), &[], 4);
        fires(skips(183), &[], 4);
        // A tick that is two minutes late is on time.
        fires(skips(182), &[3], 3);
        fires(DueSchedule { most_fires: 1, ..skips(182) }, &[3], 3);
    }

    #[test]
    fn a_new_schedule_waits_for_its_first_time_and_a_broken_one_is_put_off() {
        let new = DueSchedule { seen: None, ..hourly(200) };
        let broken = |text: &str| DueSchedule { schedule: text.to_owned(), ..hourly(200) };
        let never = DueSchedule { seen: None, ..broken("0 0 30 2 *") };
        let (plans, errors) = plan_fires(vec![broken("x"), new, never]);
        let of = |plan: &FirePlan| (plan.times.len(), plan.next, plan.put_off_until);
        let put_off = Some(clock(260));
        assert_eq!(
            plans.iter().map(of).collect::<Vec<_>>(),
            [(0, Some(clock(0)), put_off), (0, Some(clock(240)), None), (0, None, put_off)]
        );
        assert_eq!(errors.len(), 2);
        assert!(errors[0].starts_with("schedule of `cleanup_nightly` does not fire: "));
    }

    fn plan(due: DueSchedule) -> FirePlan {
        let (mut plans, errors) = plan_fires(vec![due]);
        assert_eq!(errors, [""; 0]);
        plans.remove(0)
    }

    #[test]
    fn a_new_application_schedule_begins_after_it_was_stored_and_from_its_start_on() {
        // It was stored at 0:30, and is read for the first time at 2:10.
        let begins = |starts_at| {
            let new = DueSchedule { seen: None, stored_at: Some(clock(30)), ..hourly(130) };
            let plan = plan(DueSchedule { starts_at, ..new });
            (plan.times.len(), plan.next, plan.is_due_again())
        };
        assert_eq!(begins(None), (0, Some(clock(60)), true));
        assert_eq!(begins(Some(clock(0))), (0, Some(clock(60)), true));
        assert_eq!(begins(Some(clock(120))), (0, Some(clock(120)), true));
        assert_eq!(begins(Some(clock(180))), (0, Some(clock(180)), false));
        // Its start is a nominal time, at which it was stored: the first time is later.
        let at_start = Some(clock(60));
        let new = DueSchedule { stored_at: at_start, starts_at: at_start, ..hourly(130) };
        assert_eq!(plan(DueSchedule { seen: None, ..new }).next, Some(clock(120)));
    }

    #[test]
    fn an_application_schedule_fires_within_its_bounds() {
        // Its stored time is 0:00, and now it is 2:10.
        let fired = |due| {
            let plan = plan(due);
            (plan.times.len(), plan.next, plan.is_due_again())
        };
        let ends = |minutes| fired(DueSchedule { ends_at: Some(clock(minutes)), ..hourly(130) });
        assert_eq!(ends(180), (3, Some(clock(180)), false));
        assert_eq!(ends(179), (3, None, false));
        assert_eq!(ends(60), (2, None, false));
        assert_eq!(ends(0), (1, None, false));
        assert_eq!(ends(-1), (0, None, false));
        let begin = |minutes| Some(clock(minutes));
        for (minutes, expected) in
            [(0, (3, Some(clock(180)), false)), (1, (0, Some(clock(60)), true))]
        {
            let starts = DueSchedule { starts_at: begin(minutes), ..hourly(130) };
            let resumed = DueSchedule { resumed_at: begin(minutes), ..hourly(130) };
            assert_eq!((fired(starts), fired(resumed)), (expected, expected), "{minutes}");
        }
    }

    #[test]
    fn a_schedule_that_is_put_off_is_not_due_again() {
        let (plans, _) = plan_fires(vec![DueSchedule { schedule: "x".to_owned(), ..hourly(200) }]);
        assert!(plans[0].next.is_some_and(|next| next < plans[0].due.now));
        assert!(!plans[0].is_due_again());
    }

    /// An hourly schedule, half an hour before its next time at 1:00.
    fn scheduled() -> Scheduled {
        Scheduled {
            name: "a".to_owned(),
            schedule: Some("@hourly".to_owned()),
            time_zone: "Europe/Berlin".to_owned(),
            after: None,
            enabled: true,
            paused_at: None,
            next_run_at: Some(clock(60)),
            skipped_fires: 0,
            application_schedule: None,
            owner: None,
            schedules: 0,
            last_status: None,
            last_succeeded_at: None,
            usual_seconds: None,
            now: clock(30),
        }
    }

    /// Returns whether it is broken, and whether it skips times.
    fn states(one: &Scheduled) -> (bool, bool) {
        (is_broken(one), is_skipping(one))
    }

    #[test]
    fn a_schedule_skips_times_if_its_next_time_is_too_late() {
        let next = |minutes| Scheduled { next_run_at: Some(clock(minutes)), ..scheduled() };
        assert_eq!(states(&next(60)), (false, false));
        assert_eq!(states(&next(61)), (false, true));
        // A clock that was five minutes ahead has fired 1:00 already.
        assert_eq!(states(&Scheduled { now: clock(56), ..next(120) }), (false, false));
        assert_eq!(states(&Scheduled { now: clock(54), ..next(120) }), (false, true));
    }

    #[test]
    fn a_schedule_is_broken_if_it_should_fire_and_never_will() {
        let shown = |one: &Scheduled, job: &str| {
            let (mut state, mut next) = (Some("due".to_owned()), Some(clock(60)));
            mark_broken(std::slice::from_ref(one), job, &mut state, &mut next);
            (state.unwrap(), next.is_some())
        };
        let due = ("due".to_owned(), true);
        assert_eq!(shown(&scheduled(), "a"), due);
        for text in ["x", "0 0 30 2 *"] {
            let broken = Scheduled { schedule: Some(text.to_owned()), ..scheduled() };
            assert_eq!(states(&broken), (true, false));
            assert_eq!(shown(&broken, "a"), ("broken".to_owned(), false));
            assert_eq!(shown(&broken, "b"), due);
            for asleep in [
                Scheduled { enabled: false, ..broken.clone() },
                Scheduled { paused_at: Some(clock(0)), ..broken.clone() },
                Scheduled { schedule: None, ..broken.clone() },
            ] {
                assert_eq!(states(&asleep), (false, false));
            }
        }
    }

    #[test]
    fn the_zones_in_use_are_those_of_schedules_that_fire() {
        let tokyo = || Scheduled { time_zone: "Asia/Tokyo".to_owned(), ..scheduled() };
        let zones = zones_in_use(&[
            scheduled(),
            Scheduled { time_zone: "UTC".to_owned(), ..scheduled() },
            Scheduled { schedule: None, ..tokyo() },
            Scheduled { enabled: false, ..tokyo() },
        ]);
        let instants = [clock(30), clock(60), clock(30 + 183 * 24 * 60)];
        assert_eq!(zones, instants.map(|at| ("Europe/Berlin".to_owned(), at)).into());
    }

    #[test]
    fn a_schedule_that_is_put_off_keeps_its_next_time() {
        let [now, seen] = [7200, 60].map(|at| DateTime::from_timestamp(at, 0).unwrap());
        let due = DueSchedule { id: 7, seen: Some(seen), now, ..DueSchedule::default() };
        let plan = put_off(due);
        assert_eq!((plan.due.id, plan.next, plan.times.len()), (7, Some(seen), 0));
        assert_eq!(plan.put_off_until, Some(now + TimeDelta::hours(1)));
    }

    #[track_caller]
    fn waits(name: &str, spread: u64, seconds: u64) {
        assert_eq!(
            delay_of(name, Duration::from_secs(spread)),
            Duration::from_secs(seconds),
            "{name}"
        );
    }

    #[test]
    fn a_delay_never_changes() {
        waits("cleanup_nightly", 300, 229);
        waits("send_weekly_report", 300, 158);
        waits("", 3600, 437);
        waits("anything", 0, 0);
        waits("anything", 1, 0);
    }

    #[test]
    fn similar_names_are_spread_over_the_whole_span() {
        let minute = |n: u32| delay_of(&format!("job{n}"), Duration::from_secs(300)).as_secs() / 60;
        for fifth in 0..5 {
            let share = (0..1000).filter(|n| minute(*n) == fifth).count();
            assert!((150..250).contains(&share), "{share} of 1000 in minute {fifth}");
        }
    }
}
