//! Findings about the work: what keeps runs from being executed, and what a person must look at.
//! All commands use these findings, so they agree. Pure.

use std::cmp::Reverse;

use chrono::{DateTime, Utc};

use super::{Finding, Severity, bad, ok, stopped, unknown};
use crate::health::limits::Thresholds;
use crate::schedule::due::{self, Scheduled};
use crate::store::{self, Fact, SequenceFacts, WorkFacts};
use crate::text::duration::show;
use crate::text::{plural, shell};

/// What `doctor` says if there is no finding with one of these codes. The order of the codes is the
/// order of findings that are equally bad: likely causes first.
const CHECKS: [(&str, &str, &[&str]); 16] = [
    ("restores", "no tick has noticed a restored backup", &["restore_unaccepted"]),
    ("ticks", "every worker ticks", &["worker_missing", "worker_silent"]),
    ("answers", "no tick has waited for a slow database", &["database_slow"]),
    ("sequences", "each sequence is ahead of its table", &["sequence_behind"]),
    ("definitions", "every waiting run has a definition", &["definition_missing"]),
    ("queues", "workers serve all overdue runs", &["queue_unserved", "job_unserved"]),
    ("overdue runs", "no run in a served queue is overdue", &["runs_overdue"]),
    (
        "schedules",
        "no schedule is late",
        &["schedule_broken", "schedule_skipping", "schedule_late"],
    ),
    ("leases", "no run with an expired lease waits for recovery", &["lease_lost"]),
    ("dead runs", "no dead run needs attention", &["runs_dead"]),
    ("freshness", "every job succeeded within its max_age", &["job_stale"]),
    ("timeouts", "every scheduled command has a timeout", &["timeout_missing"]),
    ("history", "no history needs to be pruned", &["prune_missing"]),
    ("effects", "no effect has been open for over a day", &["effect_open"]),
    ("holds", "nothing is held", &["runs_held"]),
    ("pauses", "no schedule is paused", &["schedule_paused", "job_disabled"]),
];
/// Checks that only a flag of `check` asks for.
const ON_REQUEST: [(&str, &str); 2] = [("run times", "run_long"), ("failures", "attempts_failing")];
/// Checks that are skipped while no worker ticks, because missing ticks cause their problems.
const HIDDEN: [&str; 3] = ["queues", "overdue runs", "schedules"];
/// Codes that are worth knowing, while the work goes on.
const WARNINGS: [&str; 3] = ["timeout_missing", "prune_missing", "effect_open"];
/// Returns the codes of all findings, in their order.
pub(crate) fn codes() -> impl Iterator<Item = &'static str> {
    checks_and_codes().map(|(_, code)| code)
}

/// Returns the check of a code, and the code.
pub(super) fn check_of(code: &str) -> Option<(&'static str, &'static str)> {
    checks_and_codes().find(|(_, known)| *known == code)
}

fn checks_and_codes() -> impl Iterator<Item = (&'static str, &'static str)> {
    let usual =
        CHECKS.iter().flat_map(|(check, _, codes)| codes.iter().map(|code| (*check, *code)));
    usual.chain(ON_REQUEST)
}

/// Returns the problems of the work: the worst first, then likely causes, then the newest.
pub(crate) fn work(work: &WorkFacts, limits: &Thresholds) -> Vec<Finding> {
    let mut facts = work.facts.clone();
    let failing = |code: &str, fails: fn(&Scheduled) -> bool| {
        let fact = |schedule: &Scheduled| Fact {
            code: code.to_owned(),
            job_type: Some(schedule.name.clone()),
            ..Fact::default()
        };
        work.scheduled.iter().filter(|schedule| fails(schedule)).map(fact).collect::<Vec<_>>()
    };
    let broken = failing("schedule_broken", due::is_broken);
    // A schedule that can't fire is late, too.
    let is_broken = |fact: &Fact| broken.iter().any(|broken| broken.job_type == fact.job_type);
    facts.retain(|fact| fact.code != "schedule_late" || !is_broken(fact));
    facts.extend(broken);
    facts.extend(failing("schedule_skipping", due::is_skipping));
    let mut tolerate = |code, most| {
        let sum: i64 = facts.iter().filter(|fact| fact.code == code).map(|fact| fact.runs).sum();
        if sum <= most {
            facts.retain(|fact| fact.code != code);
        }
    };
    tolerate("runs_dead", limits.dead);
    tolerate("attempts_failing", limits.failures.map_or(0, |(most, _)| most));
    // A viewer or a worker may not run the commands of some remedies.
    let operator = if work.operates { "" } else { "as an operator: " };
    let found = |fact: &Fact| finding(fact, limits, operator);
    let mut findings: Vec<_> = facts.iter().filter_map(found).collect();
    findings.extend(work.stopped.iter().filter_map(|it| stopped::finding(it, work.now, operator)));
    findings.extend(work.sequences_behind.iter().flatten().map(sequence_behind));
    let place = |finding: &Finding| codes().position(|code| Some(code) == finding.code);
    // The sort is stable: findings that are equally old keep the order of the facts.
    findings.sort_by_key(|finding| {
        let newest = finding.newest_at.or(finding.since_at);
        (Reverse(finding.severity), place(finding), Reverse(newest))
    });
    findings
}

/// Returns the findings of each check of the work: its problems, or that all is well.
pub(crate) fn checks(work: &WorkFacts, findings: &[Finding]) -> Vec<Finding> {
    let is_hidden = findings.iter().any(|finding| finding.code == Some("worker_missing"));
    let of_check = |(check, well, _): (&'static str, &str, _)| {
        let of_check = findings.iter().filter(move |finding| finding.check == check);
        let found: Vec<_> = of_check.cloned().collect();
        let none = match check {
            "sequences" if work.sequences_behind.is_none() => unknown(
                "this role may not read sequences",
                "run `jobctl doctor` as the schema's owner",
            ),
            _ if HIDDEN.contains(&check) && is_hidden => {
                unknown("not checked while no worker ticks", "start ticks, see `ticks`")
            }
            _ => ok(well),
        };
        if found.is_empty() { vec![Finding { check, ..none }] } else { found }
    };
    CHECKS.into_iter().flat_map(of_check).collect()
}

fn sequence_behind(SequenceFacts { table_name, setval }: &SequenceFacts) -> Finding {
    Finding {
        check: "sequences",
        code: Some("sequence_behind"),
        ..bad(
            format!("the sequence of jobctl.{table_name} is behind its table, so inserts fail"),
            format!("as the schema's owner: {setval}"),
        )
    }
}

/// Words a fact. A code that this program does not know has no finding.
fn finding(fact: &Fact, limits: &Thresholds, operator: &str) -> Option<Finding> {
    let (check, code) = check_of(&fact.code)?;
    let job = fact.job_type.as_deref().unwrap_or_default();
    let job_word = shell::word(job);
    let queue = fact.queue.as_deref().unwrap_or_default();
    let worker = fact.worker.as_deref().unwrap_or_default();
    let run = fact.run_id.unwrap_or_default();
    let runs = |adjective: &str| plural::of(fact.runs, &format!("{adjective}run"));
    let is = if fact.runs == 1 { "is" } else { "are" };
    let seconds = || {
        let seconds = fact.detail.as_ref().and_then(|seconds| seconds.parse().ok());
        show(store::seconds(seconds.unwrap_or(0.0)))
    };
    let see_cron = || format!("see cron on {worker}, its mail, and the log of its ticks");
    let (found, remedy) = match code {
        "restore_unaccepted" => (
            "the database was restored, so ticks start nothing".to_owned(),
            format!(
                "cancel the runs whose work is done, then accept the rest: {operator}\
                 `jobctl accept-restore`"
            ),
        ),
        "worker_missing" if worker.is_empty() => (
            "no worker has ever ticked".to_owned(),
            "`jobctl init --crontab` lets cron start ticks".to_owned(),
        ),
        "worker_missing" => ("no worker ticks".to_owned(), see_cron()),
        "worker_silent" => (
            format!("worker {worker} does not tick"),
            format!(
                "{}; if it is gone: {operator}`jobctl forget {}`",
                see_cron(),
                shell::word(worker)
            ),
        ),
        "database_slow" => (
            format!("the database is slow: a tick of {worker} waited {} for an answer", seconds()),
            "look for load, slow triggers and a slow network; `jobctl doctor` names old snapshots"
                .to_owned(),
        ),
        "definition_missing" => (
            format!("{job} has no definition; {} will end dead", runs("waiting ")),
            "`jobctl apply` a file that defines the job, or cancel the runs".to_owned(),
        ),
        "queue_unserved" => (
            format!("no worker serves queue {queue}, which has {}", runs("overdue ")),
            "name the queue in the --queue of a tick, or tick without --queue".to_owned(),
        ),
        "job_unserved" => (
            format!("no worker may run the commands of {job}, which has {}", runs("overdue ")),
            "tick with `--shell any` on a host that may run them (`defined` allows the commands of \
             definitions), or cancel the runs"
                .to_owned(),
        ),
        "runs_overdue" => (
            format!("{} of {job} {is} overdue", runs("")),
            format!("{operator}`jobctl show {run}` says why"),
        ),
        "schedule_broken" => (
            format!("schedule {job} can't fire"),
            format!("`jobctl next {job_word}` shows the error; correct it and apply the file"),
        ),
        "schedule_skipping" => (
            format!("schedule {job} will skip times, because its stored next time is too late"),
            format!(
                "{operator}`jobctl resume {job_word}` corrects it; the database's clock or a \
                 host's zone data was wrong"
            ),
        ),
        "schedule_late" => (
            format!("schedule {job} is late"),
            "each tick fires due schedules; see the log of the ticks".to_owned(),
        ),
        "lease_lost" => (
            format!("no tick has recovered {} of worker {worker} with an expired lease", runs("")),
            "each tick recovers such runs; see the log of the ticks".to_owned(),
        ),
        "runs_dead" => (
            format!("{} of {job}", runs("dead ")),
            format!("{operator}`jobctl list-dead --job {job_word}`; then retry or settle them"),
        ),
        "job_stale" => (
            format!("{job} has not succeeded within {}", seconds()),
            format!("{operator}`jobctl list --job {job_word}` shows its runs"),
        ),
        "run_long" => (
            format!("run {run} of {job} is still running on {worker}"),
            format!("{operator}`jobctl show {run}`; `jobctl cancel {run}` stops it"),
        ),
        "attempts_failing" => {
            let attempts = plural::of(fact.runs, "attempt");
            let within = limits.failures.map_or_else(String::new, |(_, within)| show(within));
            (
                format!("{attempts} of {job} failed within {within}"),
                format!("{operator}`jobctl failures --job {job_word} --group` shows why"),
            )
        }
        "timeout_missing" => (
            format!("{job} has no timeout: if one run hangs, its schedule stops"),
            "add a timeout to the definition".to_owned(),
        ),
        "prune_missing" => (
            "over 1,000 runs finished over 100 days ago".to_owned(),
            format!(
                "{operator}let a crontab run `jobctl prune` every day; it names runs that the \
                 database keeps"
            ),
        ),
        "effect_open" => (
            format!(
                "{} began over a day ago and did not complete",
                plural::of(fact.runs, "effect")
            ),
            format!(
                "{operator}find out whether they happened, and settle each with \
                 `jobctl once --settle`; `jobctl once --list` has their keys"
            ),
        ),
        _ => return None,
    };
    let example = match (code, &fact.detail) {
        ("worker_missing", _) => fact.worker.as_ref().map(|last| format!("the last was {last}")),
        ("job_stale" | "database_slow", _) => None,
        ("restore_unaccepted", by) => by.as_ref().map(|by| format!("noticed by {by}")),
        ("effect_open", key) => key.as_ref().map(|key| format!("the oldest has the key {key}")),
        (_, Some(error)) => Some(format!("the newest is run {run}: {error}")),
        ("runs_dead" | "attempts_failing", None) => Some(format!("the newest is run {run}")),
        ("queue_unserved" | "job_unserved" | "runs_overdue" | "lease_lost", None) => {
            Some(format!("such as run {run}"))
        }
        _ => None,
    };
    // Right after a migration, cron has not yet started the first tick.
    let is_new = code == "worker_missing" && fact.detail.is_some();
    let lasts = |since: DateTime<Utc>, newest: DateTime<Utc>| {
        (newest - since).to_std().is_ok_and(|age| age > limits.lag)
    };
    let is_brief = code == "database_slow"
        && !fact.since_at.zip(fact.newest_at).is_some_and(|(since, newest)| lasts(since, newest));
    let is_warning = is_new || is_brief || WARNINGS.contains(&code);
    let severity = if is_warning { Severity::Warn } else { Severity::Bad };
    Some(Finding {
        check,
        code: Some(code),
        job_type: fact.job_type.clone(),
        queue: fact.queue.clone(),
        worker: fact.worker.clone(),
        run_id: fact.run_id,
        since_at: fact.since_at,
        newest_at: fact.newest_at,
        example,
        ..Finding::new(severity, found, remedy)
    })
}
