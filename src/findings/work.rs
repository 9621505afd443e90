//! The work: whether somebody ticks, and what stands still or is in the way of a run.

use chrono::{DateTime, Utc};

use super::{Finding, some};
use crate::count;
use crate::duration;
use crate::fires::Failing;
use crate::patience::PATIENCE;
use crate::schedule::{Clock, ZoneData};
use crate::store::{RunFacts, WaitingFacts, ZoneFacts};

pub(crate) fn ticks(facts: &RunFacts) -> Finding {
    const CHECK: &str = "ticks";
    match &facts.ticked {
        None => Finding::bad(
            CHECK,
            "no worker has ever ticked",
            "have cron wake one: `jobctl doctor --crontab` prints the line",
        ),
        Some((worker, ago)) => {
            let found = format!("the last was {} ago, by {worker}", duration::show(*ago));
            if has_recent_tick(facts) {
                Finding::ok(CHECK, found)
            } else {
                Finding::bad(CHECK, found, format!("look at cron on {worker}, and at what it mails or logs"))
            }
        }
    }
}

fn has_recent_tick(facts: &RunFacts) -> bool {
    facts.ticked.as_ref().is_some_and(|(_, ago)| *ago < PATIENCE)
}

pub(crate) fn leases(facts: &RunFacts) -> Finding {
    const CHECK: &str = "leases";
    match facts.lost_for {
        Some(since) if since >= PATIENCE => Finding::bad(
            CHECK,
            format!(
                "{} whose lease has run out, the first {} ago",
                count::of(facts.lost, "run"),
                duration::show(since)
            ),
            "any tick recovers them: see why none does",
        ),
        Some(_) => {
            Finding::ok(CHECK, format!("{} lost just now; the next tick takes back", count::of(facts.lost, "run")))
        }
        None => Finding::ok(CHECK, "none is lost"),
    }
}

pub(crate) fn schedules(facts: &RunFacts, failing: &Failing<'_>) -> Finding {
    const CHECK: &str = "schedules";
    if let Some(first) = failing.broken.first() {
        return Finding::bad(
            CHECK,
            format!("can't fire: {}", some(&failing.broken)),
            format!("`jobctl next {first}` says why; apply it anew"),
        );
    }
    if let Some(first) = failing.skipping.first() {
        return Finding::bad(
            CHECK,
            format!("the stored next time is too late: {}", some(&failing.skipping)),
            format!("`jobctl resume {first}` corrects it; the database's clock or a host's zone data was wrong"),
        );
    }
    match facts.late_for {
        Some(late) if late >= PATIENCE => Finding::bad(
            CHECK,
            format!("not fired for {}: {}", duration::show(late), some(&facts.late_schedules)),
            "any tick fires them: see why none does",
        ),
        _ => Finding::ok(CHECK, "none is late"),
    }
}

/// Checks that this host, the other workers and the database have the same rules for the zones in
/// use. With different rules, times are off by an hour.
pub(crate) fn zones(data: &ZoneData, facts: &ZoneFacts) -> Finding {
    const CHECK: &str = "time zones";
    const REMEDY: &str = "update the tzdata packages of all hosts, and PostgreSQL";
    // A zone that this host does not know is reported as a broken schedule.
    let own = |zone: &str, at| Clock::parse(zone).ok().map(|clock| clock.offset(at).num_seconds());
    let is_other = |(zone, at, offset): &&(String, DateTime<Utc>, Option<i32>)| {
        own(zone, *at).is_some_and(|own| offset.map(i64::from) != Some(own))
    };
    let mut others: Vec<_> = facts.offsets.iter().filter(is_other).map(|(zone, ..)| zone.as_str()).collect();
    others.dedup();
    if !others.is_empty() {
        return Finding::warn(CHECK, format!("{data}; the database has other rules for {}", some(&others)), REMEDY);
    }
    let workers = facts.workers.iter().filter(|(_, version)| data.differs_from(version));
    let workers: Vec<_> = workers.map(|(name, _)| name.as_str()).collect();
    if !workers.is_empty() {
        return Finding::warn(CHECK, format!("{data}; another version on {}", some(&workers)), REMEDY);
    }
    Finding::ok(CHECK, data.to_string())
}

pub(crate) fn dead(facts: &RunFacts) -> Finding {
    const CHECK: &str = "dead runs";
    match facts.dead {
        0 => Finding::ok(CHECK, "none"),
        dead => {
            Finding::warn(CHECK, dead.to_string(), "`jobctl list-dead` says why; retry them, or prune what is settled")
        }
    }
}

/// Waiting runs of jobs that nobody has defined.
pub(crate) fn definitions(waiting: &[WaitingFacts]) -> Finding {
    const CHECK: &str = "definitions";
    let undefined = || waiting.iter().filter(|one| !one.defined);
    let runs: i64 = undefined().map(|one| one.runs).sum();
    if runs == 0 {
        return Finding::ok(CHECK, "every run that waits has one");
    }
    let mut jobs: Vec<_> = undefined().map(|one| one.job_type.as_str()).collect();
    jobs.dedup();
    Finding::bad(
        CHECK,
        format!("{} without one, which will end dead: {}", count::of(runs, "run"), some(&jobs)),
        "`jobctl apply` the file that defines them, or cancel them",
    )
}

/// Overdue runs in queues that no worker looks at.
pub(crate) fn queues(facts: &RunFacts, waiting: &[WaitingFacts]) -> Finding {
    const CHECK: &str = "queues";
    if !has_recent_tick(facts) {
        return Finding::unknown(CHECK, "no worker ticks", "see to that first");
    }
    let unserved = || waiting.iter().filter(|one| !one.served && one.overdue > 0);
    let runs: i64 = unserved().map(|one| one.overdue).sum();
    if runs == 0 {
        return Finding::ok(CHECK, "every run that is overdue is in one that a worker serves");
    }
    let mut queues: Vec<_> = unserved().map(|one| one.queue.as_str()).collect();
    queues.sort_unstable();
    queues.dedup();
    Finding::bad(
        CHECK,
        format!("{} overdue where no worker looks: {}", count::of(runs, "run"), some(&queues)),
        "tick with `--queue` and these, or without it",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::findings::Verdict;

    fn ticked(ago: u64) -> RunFacts {
        RunFacts { ticked: Some(("web1".to_owned(), Duration::from_secs(ago))), ..RunFacts::default() }
    }

    fn waiting(job: &str, queue: &str, overdue: i64, defined: bool, served: bool) -> WaitingFacts {
        WaitingFacts { job_type: job.to_owned(), queue: queue.to_owned(), runs: 2, overdue, defined, served }
    }

    #[test]
    fn a_tick_counts_for_five_minutes() {
        assert_eq!(ticks(&RunFacts::default()).verdict, Verdict::Bad);
        assert_eq!(ticks(&ticked(299)).verdict, Verdict::Ok);
        assert_eq!(ticks(&ticked(300)).verdict, Verdict::Bad);
        assert_eq!(ticks(&ticked(720)).found, "the last was 12m ago, by web1");
    }

    #[test]
    fn what_stands_still_gets_as_long() {
        let of = |seconds| {
            let length = Some(Duration::from_secs(seconds));
            let late_schedules = ["a", "b"].map(str::to_owned).to_vec();
            RunFacts { lost: 1, lost_for: length, late_for: length, late_schedules, ..RunFacts::default() }
        };
        assert_eq!(
            (leases(&of(299)).verdict, schedules(&of(299), &Failing::default()).verdict),
            (Verdict::Ok, Verdict::Ok)
        );
        assert_eq!(
            (leases(&of(300)).verdict, schedules(&of(300), &Failing::default()).verdict),
            (Verdict::Bad, Verdict::Bad)
        );
        assert_eq!(schedules(&of(300), &Failing::default()).found, "not fired for 5m: a, b");
    }

    #[test]
    fn runs_in_the_way_of_nothing_are_no_finding() {
        let rows = [waiting("a", "default", 2, true, true), waiting("b", "slow", 0, true, false)];
        assert_eq!(definitions(&rows).verdict, Verdict::Ok);
        assert_eq!(queues(&ticked(1), &rows).verdict, Verdict::Ok);
        assert_eq!(queues(&ticked(301), &rows).verdict, Verdict::Unknown);
    }

    #[test]
    fn runs_that_nobody_defined_or_serves_are_told_with_their_names() {
        let rows =
            [waiting("a", "x", 2, false, false), waiting("a", "y", 1, false, false), waiting("b", "x", 1, true, true)];
        assert_eq!(definitions(&rows).found, "4 runs without one, which will end dead: a");
        assert_eq!(queues(&ticked(1), &rows).found, "3 runs overdue where no worker looks: x, y");
    }
}
