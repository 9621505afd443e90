//! Checks of the work: whether workers tick, and whether anything keeps runs from being executed.

use chrono::{DateTime, Utc};

use super::{Finding, bad, names, ok, some, unknown, warn};
use crate::health::limits::TICK_OVERDUE;
use crate::schedule::due::FailingSchedules;
use crate::schedule::{Zone, ZoneData};
use crate::store::{RunFacts, WaitingFacts, ZoneFacts};
use crate::text::duration;
use crate::text::plural;

pub(crate) fn ticks(facts: &RunFacts) -> Finding {
    let Some((worker, ago)) = &facts.ticked else {
        return bad(
            "no worker has ever ticked",
            "add a tick to a crontab; `jobctl doctor --crontab` prints the line",
        );
    };
    let found = format!("the last tick was {} ago, by {worker}", duration::show(*ago));
    if has_recent_tick(facts) {
        return ok(found);
    }
    bad(found, format!("check cron on {worker}, its mail, and the log of the ticks"))
}

fn has_recent_tick(facts: &RunFacts) -> bool {
    facts.ticked.as_ref().is_some_and(|(_, ago)| *ago < TICK_OVERDUE)
}

pub(crate) fn leases(facts: &RunFacts) -> Finding {
    let runs = plural::of(facts.lost, "run");
    let (its, it, the_first) =
        if facts.lost == 1 { ("its", "it", "") } else { ("their", "them", ", the first") };
    match facts.lost_for {
        Some(age) if age >= TICK_OVERDUE => bad(
            format!("{runs} lost {its} lease{the_first} {} ago", duration::show(age)),
            "each tick recovers such runs; check why no tick succeeds",
        ),
        Some(_) => ok(format!("{runs} just lost {its} lease; the next tick recovers {it}")),
        None => ok("no run has lost its lease"),
    }
}

pub(crate) fn schedules(facts: &RunFacts, failing: &FailingSchedules<'_>) -> Finding {
    if let Some(first) = failing.broken.first() {
        return bad(
            format!("can't fire: {}", some(&failing.broken)),
            format!("`jobctl next {first}` shows the error; correct the schedule and apply it"),
        );
    }
    if let Some(first) = failing.skipping.first() {
        return bad(
            format!("the stored next time is too late: {}", some(&failing.skipping)),
            format!(
                "`jobctl resume {first}` corrects it; \
                 the database's clock or a host's zone data was wrong"
            ),
        );
    }
    match facts.late_for {
        Some(late) if late >= TICK_OVERDUE => bad(
            format!("{} late: {}", duration::show(late), some(&facts.late_schedules)),
            "each tick fires due schedules; check why no tick succeeds",
        ),
        _ => ok("no schedule is late"),
    }
}

/// Checks that this host, the other workers and the database have the same rules for the zones in
/// use. With different rules, times are off by an hour.
pub(crate) fn zones(data: &ZoneData, facts: &ZoneFacts) -> Finding {
    const REMEDY: &str = "update the tzdata packages of all hosts, and PostgreSQL";
    // A zone that this host does not know is reported as a broken schedule.
    let own = |zone: &str, at| Zone::parse(zone).ok().map(|clock| clock.offset(at).num_seconds());
    let differs = |(zone, at, offset): &(String, DateTime<Utc>, Option<i32>)| {
        own(zone, *at).is_some_and(|own| offset.map(i64::from) != Some(own))
    };
    let zones = names(&facts.offsets, differs, |(zone, ..)| zone);
    if !zones.is_empty() {
        let zones = some(&zones);
        return warn(format!("{data}; the database has different rules for {zones}"), REMEDY);
    }
    let workers =
        names(&facts.workers, |(_, version)| data.differs_from(version), |(name, _)| name);
    if !workers.is_empty() {
        return warn(format!("{data}; another version on {}", some(&workers)), REMEDY);
    }
    ok(data.to_string())
}

pub(crate) fn dead(facts: &RunFacts) -> Finding {
    if facts.dead == 0 {
        return ok("no run is dead");
    }
    warn(
        plural::of(facts.dead, "dead run"),
        "`jobctl list-dead` shows the errors; retry the runs, or prune those that need no retry",
    )
}

/// Checks that every waiting run has a definition.
pub(crate) fn definitions(waiting: &[WaitingFacts]) -> Finding {
    let jobs = names(waiting, |one| !one.defined, |one| &one.job_type);
    if jobs.is_empty() {
        return ok("every waiting run has a definition");
    }
    let runs = waiting.iter().filter(|one| !one.defined).map(|one| one.runs).sum();
    let runs = plural::of(runs, "run");
    bad(
        format!("{runs} without a definition will be marked dead: {}", some(&jobs)),
        "`jobctl apply` a file that defines these jobs, or cancel the runs",
    )
}

/// Checks that workers serve the queues of overdue runs.
pub(crate) fn queues(facts: &RunFacts, waiting: &[WaitingFacts]) -> Finding {
    if !has_recent_tick(facts) {
        return unknown("no worker ticks", "start ticks first, see `ticks`");
    }
    let is_unserved = |one: &WaitingFacts| !one.served && one.overdue > 0;
    let mut queues = names(waiting, is_unserved, |one| &one.queue);
    if queues.is_empty() {
        return ok("workers serve the queues of all overdue runs");
    }
    queues.sort_unstable();
    queues.dedup();
    let overdue = waiting.iter().filter(|one| is_unserved(one)).map(|one| one.overdue).sum();
    let overdue = plural::of(overdue, "overdue run");
    bad(
        format!("{overdue} in queues that no worker serves: {}", some(&queues)),
        "name these queues in the --queue of a tick, or tick without --queue",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::health::Severity;

    fn ticked(ago: u64) -> RunFacts {
        RunFacts {
            ticked: Some(("web1".to_owned(), Duration::from_secs(ago))),
            ..RunFacts::default()
        }
    }

    fn waiting(job: &str, queue: &str, overdue: i64, defined: bool, served: bool) -> WaitingFacts {
        WaitingFacts {
            job_type: job.to_owned(),
            queue: queue.to_owned(),
            runs: 2,
            overdue,
            defined,
            served,
        }
    }

    #[test]
    fn a_tick_is_recent_for_five_minutes() {
        assert_eq!(ticks(&RunFacts::default()).verdict, Severity::Bad);
        assert_eq!(ticks(&ticked(299)).verdict, Severity::Ok);
        assert_eq!(ticks(&ticked(300)).verdict, Severity::Bad);
        assert_eq!(ticks(&ticked(720)).found, "the last tick was 12m ago, by web1");
    }

    #[test]
    fn leases_and_schedules_are_bad_after_five_minutes() {
        let of = |seconds| {
            let length = Some(Duration::from_secs(seconds));
            let late_schedules = ["a", "b"].map(str::to_owned).to_vec();
            RunFacts {
                lost: 1,
                lost_for: length,
                late_for: length,
                late_schedules,
                ..RunFacts::default()
            }
        };
        assert_eq!(
            (leases(&of(299)).verdict, schedules(&of(299), &FailingSchedules::default()).verdict),
            (Severity::Ok, Severity::Ok)
        );
        assert_eq!(
            (leases(&of(300)).verdict, schedules(&of(300), &FailingSchedules::default()).verdict),
            (Severity::Bad, Severity::Bad)
        );
        assert_eq!(schedules(&of(300), &FailingSchedules::default()).found, "5m late: a, b");
    }

    #[test]
    fn defined_and_served_runs_are_ok() {
        let rows = [waiting("a", "default", 2, true, true), waiting("b", "slow", 0, true, false)];
        assert_eq!(definitions(&rows).verdict, Severity::Ok);
        assert_eq!(queues(&ticked(1), &rows).verdict, Severity::Ok);
        assert_eq!(queues(&ticked(301), &rows).verdict, Severity::Unknown);
    }

    #[test]
    fn undefined_and_unserved_runs_are_found_by_name() {
        let rows = [
            waiting("a", "x", 2, false, false),
            waiting("a", "y", 1, false, false),
            waiting("b", "x", 1, true, true),
        ];
        assert_eq!(definitions(&rows).found, "4 runs without a definition will be marked dead: a");
        assert_eq!(
            queues(&ticked(1), &rows).found,
            "3 overdue runs in queues that no worker serves: x, y"
        );
    }
}
