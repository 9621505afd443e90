//! When something is wrong: from the facts to the reasons to complain. Pure.

use std::time::Duration;

use crate::count;
use crate::duration::{show, show_whole};
use crate::fires::Failing;
use crate::store::{Facts, FailedRun, TickAge};

/// What is still no reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) dead: i64,
    /// Since a run was due, a schedule should have fired, or a lease was over.
    pub(super) lag: Duration,
    /// Since a worker's last tick.
    pub(super) tick_age: Duration,
    pub(super) running: Option<Duration>,
    /// So many, within that time.
    pub(super) failures: Option<(i64, Duration)>,
}

/// With more silent workers than this, only the one that ticked last is named.
const NAMED: usize = 3;

/// Why all is not well: likely causes come first, and each says where to look.
pub(super) fn reasons(facts: &Facts, failing: &Failing<'_>, limits: &Limits) -> Vec<String> {
    let mut reasons = ticks(facts, limits);
    if let Some((id, job, age)) = &facts.oldest_due
        && *age > limits.lag
    {
        reasons.push(format!("run {id} {job} has been due for {}, see `jobctl status`", show_whole(*age)));
    }
    reasons.extend(failing.sentences().map(|(sentence, remedy)| format!("{sentence}, {remedy}")));
    if let Some((name, age)) = &facts.latest_schedule
        && *age > limits.lag
    {
        reasons.push(format!("schedule {name} is late by {}, see `jobctl status`", show_whole(*age)));
    }
    if let Some((id, job, age)) = &facts.longest_lost
        && *age > limits.lag
    {
        let age = show_whole(*age);
        reasons.push(format!("run {id} {job} has been without a lease for {age} and nobody recovers it"));
    }
    if facts.dead > limits.dead {
        let dead = count::of(facts.dead, "dead run");
        reasons.push(format!("{dead}{}, see `jobctl list-dead`", example(facts.dead, facts.newest_dead.as_ref())));
    }
    if let Some(most) = limits.running
        && let Some((id, job, worker, age)) = &facts.longest_running
        && *age > most
    {
        reasons
            .push(format!("run {id} {job} has been running for {} on {worker}, see `jobctl status`", show_whole(*age)));
    }
    if let Some((most, within)) = limits.failures
        && facts.failed > most
    {
        let failed = count::of(facts.failed, "run");
        let example = example(facts.failed, facts.newest_failed.as_ref());
        reasons.push(format!("{failed} failed within {}{example}", show(within)));
    }
    reasons
}

/// Nobody ticks; or some don't who did until a short time ago.
fn ticks(facts: &Facts, limits: &Limits) -> Vec<String> {
    let Some(latest) = facts.workers.first() else {
        return vec!["no worker has ever ticked, is `jobctl tick` in a crontab?".to_owned()];
    };
    if latest.age > limits.tick_age {
        return vec![format!("no worker has ticked for {}, see cron on {}", show_whole(latest.age), latest.worker)];
    }
    let is_missed = |tick: &&TickAge| tick.age > limits.tick_age && tick.age <= limits.tick_age + tick.missed_for;
    let silent: Vec<_> = facts.workers.iter().filter(is_missed).collect();
    match silent[..] {
        [last, .., _] if silent.len() > NAMED => vec![format!(
            "{} workers have not ticked for over {}, the last to tick was {}, see their cron",
            silent.len(),
            show(limits.tick_age),
            last.worker
        )],
        _ => silent
            .iter()
            .map(|tick| format!("worker {} has not ticked for {}, see its cron", tick.worker, show_whole(tick.age)))
            .collect(),
    }
}

fn example(count: i64, run: Option<&FailedRun>) -> String {
    let Some(FailedRun { id, job, error }) = run else { return String::new() };
    let newest = if count == 1 { "" } else { "newest: " };
    let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    format!(" ({newest}{id} {job}{error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    const LIMITS: Limits = Limits {
        dead: 0,
        lag: MINUTE.saturating_mul(10),
        tick_age: MINUTE.saturating_mul(5),
        running: None,
        failures: None,
    };

    /// Workers that had ticked for more than a day.
    fn workers(ages: &[(&str, u32)]) -> Vec<TickAge> {
        let tick = |(worker, minutes): &(&str, u32)| TickAge {
            worker: (*worker).to_owned(),
            age: MINUTE * *minutes,
            missed_for: MINUTE * 24 * 60,
        };
        ages.iter().map(tick).collect()
    }

    /// A worker ticks and nothing else is known.
    fn fine() -> Facts {
        Facts { workers: workers(&[("web1", 1)]), ..Facts::default() }
    }

    fn run(id: i64, error: Option<&str>) -> Option<FailedRun> {
        Some(FailedRun { id, job: "mail".to_owned(), error: error.map(str::to_owned) })
    }

    #[track_caller]
    fn says(facts: &Facts, limits: &Limits, expected: &[&str]) {
        assert_eq!(reasons(facts, &Failing::default(), limits), expected);
    }

    #[test]
    fn nothing_wrong_is_no_reason() {
        says(&fine(), &LIMITS, &[]);
    }

    #[test]
    fn dead_runs_are_counted_with_the_newest_as_example() {
        let one = Facts { dead: 1, newest_dead: run(41, Some("HTTP status 503")), ..fine() };
        says(&one, &LIMITS, &["1 dead run (41 mail: HTTP status 503), see `jobctl list-dead`"]);
        let two = Facts { dead: 2, newest_dead: run(41, None), ..fine() };
        says(&two, &LIMITS, &["2 dead runs (newest: 41 mail), see `jobctl list-dead`"]);
        says(&two, &Limits { dead: 1, ..LIMITS }, &["2 dead runs (newest: 41 mail), see `jobctl list-dead`"]);
        says(&two, &Limits { dead: 2, ..LIMITS }, &[]);
    }

    #[test]
    fn a_run_may_be_due_as_long_as_the_limit() {
        let due = |age| Facts { oldest_due: Some((17, "mail".to_owned(), age)), ..fine() };
        says(&due(LIMITS.lag), &LIMITS, &[]);
        says(
            &due(LIMITS.lag + Duration::from_millis(1)),
            &LIMITS,
            &["run 17 mail has been due for 10m, see `jobctl status`"],
        );
    }

    #[test]
    fn a_schedule_may_be_late_and_a_lease_over_as_long_as_the_limit() {
        let late = |age| Facts { latest_schedule: Some(("nightly".to_owned(), age)), ..fine() };
        says(&late(LIMITS.lag), &LIMITS, &[]);
        says(&late(MINUTE * 11), &LIMITS, &["schedule nightly is late by 11m, see `jobctl status`"]);
        let lost = |age| Facts { longest_lost: Some((17, "mail".to_owned(), age)), ..fine() };
        says(&lost(LIMITS.lag), &LIMITS, &[]);
        says(&lost(MINUTE * 11), &LIMITS, &["run 17 mail has been without a lease for 11m and nobody recovers it"]);
    }

    #[test]
    fn schedules_that_can_not_fire_are_told_with_the_first_as_example() {
        let said = |broken: &[&'static str], skipping: &[&'static str]| {
            let failing = Failing { broken: broken.to_vec(), skipping: skipping.to_vec() };
            reasons(&fine(), &failing, &LIMITS)
        };
        assert_eq!(said(&["a"], &[]), ["schedule a can't fire, see `jobctl next a`"]);
        assert_eq!(said(&["a", "b"], &[]), ["schedule a and 1 more can't fire, see `jobctl next a`"]);
        assert_eq!(said(&[], &["a"]), ["schedule a will skip times, run `jobctl resume a`"]);
    }

    #[test]
    fn a_run_may_be_running_for_ever_unless_there_is_a_limit() {
        let facts =
            Facts { longest_running: Some((17, "backup".to_owned(), "web1".to_owned(), MINUTE * 1600)), ..fine() };
        says(&facts, &LIMITS, &[]);
        says(&facts, &Limits { running: Some(MINUTE * 1600), ..LIMITS }, &[]);
        says(
            &facts,
            &Limits { running: Some(MINUTE), ..LIMITS },
            &["run 17 backup has been running for 26h 40m on web1, see `jobctl status`"],
        );
    }

    #[test]
    fn failures_count_only_where_they_are_limited() {
        let facts = Facts { failed: 3, newest_failed: run(9, Some("exit status 1")), ..fine() };
        says(&facts, &LIMITS, &[]);
        says(&facts, &Limits { failures: Some((3, MINUTE)), ..LIMITS }, &[]);
        says(
            &facts,
            &Limits { failures: Some((2, MINUTE * 60)), ..LIMITS },
            &["3 runs failed within 1h (newest: 9 mail: exit status 1)"],
        );
    }

    #[test]
    fn somebody_must_tick() {
        says(&Facts::default(), &LIMITS, &["no worker has ever ticked, is `jobctl tick` in a crontab?"]);
        let silent = |ages| Facts { workers: workers(ages), ..Facts::default() };
        says(&silent(&[("web1", 5)]), &LIMITS, &[]);
        says(&silent(&[("web1", 6)]), &LIMITS, &["no worker has ticked for 6m, see cron on web1"]);
        // Not ticking at all stays a reason, for however long.
        says(
            &silent(&[("web1", 60 * 24 * 30), ("web2", 60 * 24 * 31)]),
            &LIMITS,
            &["no worker has ticked for 30d, see cron on web1"],
        );
    }

    #[test]
    fn each_worker_is_missed_for_a_day() {
        let with =
            |ages: &[(&str, u32)]| Facts { workers: workers(&[&[("web1", 1)], ages].concat()), ..Facts::default() };
        says(&with(&[("web2", 5)]), &LIMITS, &[]);
        says(
            &with(&[("web2", 6), ("web3", 24 * 60)]),
            &LIMITS,
            &["worker web2 has not ticked for 6m, see its cron", "worker web3 has not ticked for 24h, see its cron"],
        );
        says(&with(&[("web2", 24 * 60 + 6)]), &LIMITS, &[]);
        // Where a host ticks once a day.
        let daily = Limits { tick_age: MINUTE * 25 * 60, ..LIMITS };
        says(&with(&[("web2", 26 * 60)]), &daily, &["worker web2 has not ticked for 26h, see its cron"]);
    }

    #[test]
    fn a_stopped_worker_is_reported_for_as_long_as_it_had_ticked() {
        let with = |age: u32, ticked: u32| {
            let mut facts = Facts { workers: workers(&[("web1", 1), ("pod-x", age)]), ..Facts::default() };
            facts.workers[1].missed_for = MINUTE * ticked;
            facts
        };
        says(&with(6, 0), &LIMITS, &[]);
        says(&with(15, 10), &LIMITS, &["worker pod-x has not ticked for 15m, see its cron"]);
        says(&with(16, 10), &LIMITS, &[]);
    }

    #[test]
    fn many_silent_workers_are_one_reason() {
        let silent = [("web1", 1), ("a", 6), ("b", 7), ("c", 8), ("d", 9)];
        let facts = Facts { workers: workers(&silent), ..Facts::default() };
        says(&facts, &LIMITS, &["4 workers have not ticked for over 5m, the last to tick was a, see their cron"]);
    }

    #[test]
    fn the_likeliest_cause_comes_first() {
        let facts = Facts {
            dead: 1,
            newest_dead: run(1, None),
            oldest_due: Some((2, "mail".to_owned(), MINUTE * 60)),
            ..Facts::default()
        };
        let reasons = reasons(&facts, &Failing::default(), &LIMITS);
        let said: Vec<_> =
            reasons.iter().map(|reason| reason.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(said, ["no worker has", "run 2 mail", "1 dead run"]);
    }
}
