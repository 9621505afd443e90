//! The problems that `check` reports, from the facts and the thresholds. Pure.

use std::time::Duration;

use crate::schedule::due::FailingSchedules;
use crate::store::{CheckFacts, FailedRun, TickAge};
use crate::text::duration::{show, show_whole};
use crate::text::plural;

/// A value above its threshold is a problem.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    pub(crate) dead: i64,
    /// The time since a run was due, a schedule should have fired, or a lease expired.
    pub(crate) lag: Duration,
    /// The time since a worker's last tick.
    pub(crate) tick_age: Duration,
    pub(crate) running: Option<Duration>,
    /// A number of failures within a duration.
    pub(crate) failures: Option<(i64, Duration)>,
}

/// If more workers than this are silent, only the one that ticked last is named.
const NAMED: usize = 3;

/// Returns the problems, likely causes first. Each says where to look.
pub(crate) fn reasons(
    facts: &CheckFacts,
    failing: &FailingSchedules<'_>,
    limits: &Thresholds,
) -> Vec<String> {
    let late = |run: &Option<(i64, String, Duration)>| {
        let (id, job, age) = run.as_ref().filter(|(.., age)| *age > limits.lag)?;
        Some((format!("run {id} {job}"), show_whole(*age)))
    };
    let mut reasons = ticks(facts, limits);
    if let Some((run, age)) = late(&facts.oldest_due) {
        reasons.push(format!("{run} has been due for {age}, see `jobctl status`"));
    }
    reasons.extend(failing.sentences().map(|(sentence, remedy)| format!("{sentence}, {remedy}")));
    if let Some((name, age)) = facts.latest_schedule.as_ref().filter(|(_, age)| *age > limits.lag) {
        let age = show_whole(*age);
        reasons.push(format!("schedule {name} is {age} late, see `jobctl status`"));
    }
    if let Some((run, age)) = late(&facts.longest_lost) {
        reasons.push(format!("{run} lost its lease {age} ago, see `jobctl doctor`"));
    }
    if facts.dead > limits.dead {
        let dead = plural::of(facts.dead, "dead run");
        let example = example(facts.dead, &facts.newest_dead);
        reasons.push(format!("{dead}{example}, see `jobctl list-dead`"));
    }
    if let Some((id, job, worker, age)) = &facts.longest_running
        && limits.running.is_some_and(|most| *age > most)
    {
        let age = show_whole(*age);
        reasons.push(format!(
            "run {id} {job} has been running for {age} on {worker}, see `jobctl status`"
        ));
    }
    if let Some((most, within)) = limits.failures
        && facts.failed > most
    {
        let failed = plural::of(facts.failed, "run");
        let example = example(facts.failed, &facts.newest_failed);
        reasons.push(format!("{failed} failed within {}{example}", show(within)));
    }
    reasons
}

/// Returns the problem that no worker ticks, or those of workers that stopped recently.
fn ticks(facts: &CheckFacts, limits: &Thresholds) -> Vec<String> {
    let Some(latest) = facts.workers.first() else {
        return vec!["no worker has ever ticked, see `jobctl doctor --crontab`".to_owned()];
    };
    if latest.age > limits.tick_age {
        let (age, worker) = (show_whole(latest.age), &latest.worker);
        return vec![format!("no worker has ticked for {age}, see cron on {worker}")];
    }
    let is_silent = |tick: &&TickAge| {
        tick.age > limits.tick_age && tick.age <= limits.tick_age + tick.missed_for
    };
    let silent: Vec<_> = facts.workers.iter().filter(is_silent).collect();
    if silent.len() > NAMED {
        return vec![format!(
            "{} workers have not ticked for over {}, the last to tick was {}, see their cron",
            silent.len(),
            show(limits.tick_age),
            silent[0].worker
        )];
    }
    let reason = |TickAge { worker, age, .. }: &TickAge| {
        format!("worker {worker} has not ticked for {}, see its cron", show_whole(*age))
    };
    silent.into_iter().map(reason).collect()
}

fn example(count: i64, run: &Option<FailedRun>) -> String {
    let Some(FailedRun { id, job, error }) = run else { return String::new() };
    let newest = if count == 1 { "" } else { "newest: " };
    let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    format!(" ({newest}{id} {job}{error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    const THRESHOLDS: Thresholds = Thresholds {
        dead: 0,
        lag: MINUTE.saturating_mul(10),
        tick_age: MINUTE.saturating_mul(5),
        running: None,
        failures: None,
    };

    /// Returns workers by name and minutes since their last tick. A stopped worker is reported for
    /// a day.
    fn workers(ages: &[(&str, u32)]) -> Vec<TickAge> {
        let tick = |(worker, minutes): &(&str, u32)| TickAge {
            worker: (*worker).to_owned(),
            age: MINUTE * *minutes,
            missed_for: MINUTE * 24 * 60,
        };
        ages.iter().map(tick).collect()
    }

    /// The facts of a database with one worker and no problem.
    fn fine() -> CheckFacts {
        CheckFacts { workers: workers(&[("web1", 1)]), ..CheckFacts::default() }
    }

    fn run(id: i64, error: Option<&str>) -> Option<FailedRun> {
        Some(FailedRun { id, job: "mail".to_owned(), error: error.map(str::to_owned) })
    }

    #[track_caller]
    fn says(facts: &CheckFacts, limits: &Thresholds, expected: &[&str]) {
        assert_eq!(reasons(facts, &FailingSchedules::default(), limits), expected);
    }

    #[test]
    fn a_database_without_problems_has_no_reasons() {
        says(&fine(), &THRESHOLDS, &[]);
    }

    #[test]
    fn dead_runs_are_counted_with_the_newest_as_example() {
        let one = CheckFacts { dead: 1, newest_dead: run(41, Some("HTTP status 503")), ..fine() };
        says(&one, &THRESHOLDS, &["1 dead run (41 mail: HTTP status 503), see `jobctl list-dead`"]);
        let two = CheckFacts { dead: 2, newest_dead: run(41, None), ..fine() };
        says(&two, &THRESHOLDS, &["2 dead runs (newest: 41 mail), see `jobctl list-dead`"]);
        says(
            &two,
            &Thresholds { dead: 1, ..THRESHOLDS },
            &["2 dead runs (newest: 41 mail), see `jobctl list-dead`"],
        );
        says(&two, &Thresholds { dead: 2, ..THRESHOLDS }, &[]);
    }

    #[test]
    fn a_run_due_longer_than_the_limit_is_a_reason() {
        let due = |age| CheckFacts { oldest_due: Some((17, "mail".to_owned(), age)), ..fine() };
        says(&due(THRESHOLDS.lag), &THRESHOLDS, &[]);
        says(
            &due(THRESHOLDS.lag + Duration::from_millis(1)),
            &THRESHOLDS,
            &["run 17 mail has been due for 10m, see `jobctl status`"],
        );
    }

    #[test]
    fn late_schedules_and_expired_leases_past_the_limit_are_reasons() {
        let late =
            |age| CheckFacts { latest_schedule: Some(("nightly".to_owned(), age)), ..fine() };
        says(&late(THRESHOLDS.lag), &THRESHOLDS, &[]);
        says(
            &late(MINUTE * 11),
            &THRESHOLDS,
            &["schedule nightly is 11m late, see `jobctl status`"],
        );
        let lost = |age| CheckFacts { longest_lost: Some((17, "mail".to_owned(), age)), ..fine() };
        says(&lost(THRESHOLDS.lag), &THRESHOLDS, &[]);
        says(
            &lost(MINUTE * 11),
            &THRESHOLDS,
            &["run 17 mail lost its lease 11m ago, see `jobctl doctor`"],
        );
    }

    #[test]
    fn schedules_that_cannot_fire_are_one_reason_with_the_first_name() {
        let said = |broken: &[&'static str], skipping: &[&'static str]| {
            let failing = FailingSchedules { broken: broken.to_vec(), skipping: skipping.to_vec() };
            reasons(&fine(), &failing, &THRESHOLDS)
        };
        assert_eq!(said(&["a"], &[]), ["schedule a can't fire, see `jobctl next a`"]);
        assert_eq!(
            said(&["a", "b"], &[]),
            ["schedule a and 1 more can't fire, see `jobctl next a`"]
        );
        assert_eq!(said(&[], &["a"]), ["schedule a will skip times, run `jobctl resume a`"]);
    }

    #[test]
    fn a_long_running_run_is_a_reason_only_with_a_threshold() {
        let facts = CheckFacts {
            longest_running: Some((17, "backup".to_owned(), "web1".to_owned(), MINUTE * 1600)),
            ..fine()
        };
        says(&facts, &THRESHOLDS, &[]);
        says(&facts, &Thresholds { running: Some(MINUTE * 1600), ..THRESHOLDS }, &[]);
        says(
            &facts,
            &Thresholds { running: Some(MINUTE), ..THRESHOLDS },
            &["run 17 backup has been running for 1d 2h on web1, see `jobctl status`"],
        );
    }

    #[test]
    fn failures_count_only_with_a_limit() {
        let facts =
            CheckFacts { failed: 3, newest_failed: run(9, Some("exit status 1")), ..fine() };
        says(&facts, &THRESHOLDS, &[]);
        says(&facts, &Thresholds { failures: Some((3, MINUTE)), ..THRESHOLDS }, &[]);
        says(
            &facts,
            &Thresholds { failures: Some((2, MINUTE * 60)), ..THRESHOLDS },
            &["3 runs failed within 1h (newest: 9 mail: exit status 1)"],
        );
    }

    #[test]
    fn a_database_without_recent_ticks_is_a_reason() {
        says(
            &CheckFacts::default(),
            &THRESHOLDS,
            &["no worker has ever ticked, see `jobctl doctor --crontab`"],
        );
        let silent = |ages| CheckFacts { workers: workers(ages), ..CheckFacts::default() };
        says(&silent(&[("web1", 5)]), &THRESHOLDS, &[]);
        says(
            &silent(&[("web1", 6)]),
            &THRESHOLDS,
            &["no worker has ticked for 6m, see cron on web1"],
        );
        // A database without any recent tick stays a reason, even after a month.
        says(
            &silent(&[("web1", 60 * 24 * 30), ("web2", 60 * 24 * 31)]),
            &THRESHOLDS,
            &["no worker has ticked for 30d, see cron on web1"],
        );
    }

    #[test]
    fn each_missing_worker_is_reported_for_a_day() {
        let with = |ages: &[(&str, u32)]| CheckFacts {
            workers: workers(&[&[("web1", 1)], ages].concat()),
            ..CheckFacts::default()
        };
        says(&with(&[("web2", 5)]), &THRESHOLDS, &[]);
        says(
            &with(&[("web2", 6), ("web3", 24 * 60)]),
            &THRESHOLDS,
            &[
                "worker web2 has not ticked for 6m, see its cron",
                "worker web3 has not ticked for 1d, see its cron",
            ],
        );
        says(&with(&[("web2", 24 * 60 + 6)]), &THRESHOLDS, &[]);
        // A host may tick only once a day.
        let daily = Thresholds { tick_age: MINUTE * 25 * 60, ..THRESHOLDS };
        says(
            &with(&[("web2", 26 * 60)]),
            &daily,
            &["worker web2 has not ticked for 1d 2h, see its cron"],
        );
    }

    #[test]
    fn a_stopped_worker_is_reported_for_as_long_as_it_had_ticked() {
        let with = |age: u32, ticked: u32| {
            let mut facts = CheckFacts {
                workers: workers(&[("web1", 1), ("pod-x", age)]),
                ..CheckFacts::default()
            };
            facts.workers[1].missed_for = MINUTE * ticked;
            facts
        };
        says(&with(6, 0), &THRESHOLDS, &[]);
        says(&with(15, 10), &THRESHOLDS, &["worker pod-x has not ticked for 15m, see its cron"]);
        says(&with(16, 10), &THRESHOLDS, &[]);
    }

    #[test]
    fn many_silent_workers_are_one_reason() {
        let silent = [("web1", 1), ("a", 6), ("b", 7), ("c", 8), ("d", 9)];
        let facts = CheckFacts { workers: workers(&silent), ..CheckFacts::default() };
        says(
            &facts,
            &THRESHOLDS,
            &["4 workers have not ticked for over 5m, the last to tick was a, see their cron"],
        );
    }

    #[test]
    fn reasons_begin_with_the_likeliest_cause() {
        let facts = CheckFacts {
            dead: 1,
            newest_dead: run(1, None),
            oldest_due: Some((2, "mail".to_owned(), MINUTE * 60)),
            ..CheckFacts::default()
        };
        let reasons = reasons(&facts, &FailingSchedules::default(), &THRESHOLDS);
        let said: Vec<_> = reasons
            .iter()
            .map(|reason| reason.split(' ').take(3).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(said, ["no worker has", "run 2 mail", "1 dead run"]);
    }
}
