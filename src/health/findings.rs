//! Findings about the work: what keeps runs from being executed, and what else needs a person. All
//! commands use these findings, so they agree. Pure.

use std::cmp::Reverse;

use super::{Finding, Severity, minute, ok, stopped, unknown};
use crate::job::due::{self, Scheduled};
use crate::job::failure;
use crate::job::finding_code::{Code, DoctorCheck};
use crate::job::thresholds::Thresholds;
use crate::store::{self, Fact, SequenceFacts, WorkFacts};
use crate::text::duration::show;
use crate::text::{plural, shell};

/// Checks that are skipped while ticks do no work, because this causes all problems that they find.
pub(crate) const SKIPPED_WITHOUT_TICKS: [DoctorCheck; 6] = [
    DoctorCheck::Ticks,
    DoctorCheck::Leases,
    DoctorCheck::Results,
    DoctorCheck::Queues,
    DoctorCheck::OverdueRuns,
    DoctorCheck::Schedules,
];
/// Codes of warnings: facts that are worth knowing, while the work goes on.
const WARNINGS: [Code; 3] = [Code::TimeoutMissing, Code::PruneMissing, Code::EffectOpen];

/// Codes of problems that may cause any other problem.
const CAUSES: [Code; 5] = [
    Code::RestoreUnaccepted,
    Code::DatabaseReadOnly,
    Code::WorkerMissing,
    Code::WorkerSilent,
    Code::DatabaseSlow,
];

/// Returns the problems of the work, in this order: the worst first, then problems that may cause
/// others, then those of the most runs, then the newest.
pub(crate) fn work(work: &WorkFacts, thresholds: &Thresholds) -> Vec<Finding> {
    let mut facts = work.facts.clone();
    // Returns a fact with this code for each schedule of a definition that `has_problem`.
    let schedules_with = |code: Code, has_problem: fn(&Scheduled) -> bool| {
        let fact = |schedule: &Scheduled| Fact {
            code,
            job_type: Some(schedule.name.clone()),
            ..Fact::default()
        };
        let of_definitions = work.scheduled.iter().filter(|one| one.application_schedule.is_none());
        of_definitions.filter(|schedule| has_problem(schedule)).map(fact).collect::<Vec<_>>()
    };
    let broken = schedules_with(Code::ScheduleBroken, due::is_broken);
    // A schedule that can't fire is also late: report only that it can't fire.
    let is_broken = |fact: &Fact| broken.iter().any(|broken| broken.job_type == fact.job_type);
    facts.retain(|fact| fact.code != Code::ScheduleLate || !is_broken(fact));
    facts.extend(broken);
    // After a restore, ticks wait for accept-restore: they do not update the rows of their workers,
    // recover nothing and release nothing. Do not report that as further problems.
    if facts.iter().any(|fact| fact.code == Code::RestoreUnaccepted) {
        facts.retain(|fact| {
            !matches!(
                fact.code,
                Code::WorkerMissing
                    | Code::LeaseLost
                    | Code::ResultsUnrecorded
                    | Code::RunsUnreleased
            )
        });
    }
    facts.extend(schedules_with(Code::ScheduleSkipping, due::is_skipping));
    // Removes the facts with a code if they are about at most `most` runs together.
    let mut drop_tolerated = |code, most| {
        let sum: i64 = facts.iter().filter(|fact| fact.code == code).map(|fact| fact.runs).sum();
        if sum <= most {
            facts.retain(|fact| fact.code != code);
        }
    };
    drop_tolerated(Code::RunsDead, thresholds.dead);
    drop_tolerated(Code::AttemptsFailing, thresholds.failures.map_or(0, |(most, _)| most));
    // Remedies begin with this if they have commands that this role may not run.
    let operator = if work.operates { "" } else { "as an operator: " };
    let mut findings: Vec<_> =
        facts.iter().map(|fact| finding(fact, thresholds, operator)).collect();
    findings.extend(work.stopped.iter().map(|fact| stopped::finding(fact, work.now, operator)));
    findings.extend(work.sequences_behind.iter().flatten().map(sequence_behind));
    // The sort is stable: findings that are equally old keep the order of the facts.
    findings.sort_by_key(|finding| {
        let newest = finding.newest_at.or(finding.since_at);
        let cause = finding.code.filter(|_| finding.runs.is_none());
        (Reverse(finding.severity), cause.is_none(), cause, Reverse(finding.runs), Reverse(newest))
    });
    findings
}

/// Returns the finding about why no tick does any work; `None`: ticks work.
pub(crate) fn idle(findings: &[Finding]) -> Option<&Finding> {
    findings
        .iter()
        .find(|finding| matches!(finding.code, Some(Code::WorkerMissing | Code::RestoreUnaccepted)))
}

/// Returns the findings of each check of the work: its problems, or that all is well.
pub(crate) fn checks(work: &WorkFacts, findings: &[Finding]) -> Vec<Finding> {
    let idle = idle(findings).and_then(|finding| finding.code);
    let mut checks = Vec::new();
    for check in DoctorCheck::ALL {
        let Some(all_is_well) = check.all_is_well() else { continue };
        let problems = findings.iter().filter(|finding| finding.check == check.as_str());
        let problems: Vec<_> = problems.cloned().collect();
        if !problems.is_empty() {
            checks.extend(problems);
            continue;
        }
        let without_problem = match check {
            DoctorCheck::Sequences if work.sequences_behind.is_none() => unknown(
                "this role may not read sequences",
                "run `jobctl doctor` as the schema's owner",
            ),
            _ if SKIPPED_WITHOUT_TICKS.contains(&check) && idle == Some(Code::WorkerMissing) => {
                unknown("not checked while no worker ticks", "start ticks, see `ticks`")
            }
            _ if SKIPPED_WITHOUT_TICKS.contains(&check) && idle.is_some() => {
                unknown("not checked while ticks start nothing", "see `restores`")
            }
            _ => ok(all_is_well),
        };
        checks.push(Finding { check: check.as_str(), ..without_problem });
    }
    checks
}

/// Returns the finding about a sequence that is behind the ids of its table.
fn sequence_behind(SequenceFacts { table_name, setval }: &SequenceFacts) -> Finding {
    Finding {
        severity: Severity::Bad,
        ..Finding::of(
            Code::SequenceBehind,
            format!(
                "the sequence of jobctl.{table_name} is behind: inserts fail or repeat old ids"
            ),
            format!("as the schema's owner: {setval}"),
        )
    }
}

/// Returns the finding about a fact of look/findings.sql or of a schedule.
fn finding(fact: &Fact, thresholds: &Thresholds, operator: &str) -> Finding {
    let (found, remedy) = found_and_remedy(fact, thresholds, operator);
    Finding {
        severity: severity(fact, thresholds),
        job_type: fact.job_type.clone(),
        queue: fact.queue.clone(),
        worker: fact.worker.clone(),
        run_id: fact.run_id,
        since_at: fact.since_at,
        newest_at: fact.newest_at,
        jobs: fact.jobs.clone(),
        runs: if CAUSES.contains(&fact.code) { None } else { Some(fact.runs.max(1)) },
        example: example(fact),
        ..Finding::of(fact.code, found, remedy)
    }
}

/// Returns the sentence and the remedy for a fact.
fn found_and_remedy(fact: &Fact, thresholds: &Thresholds, operator: &str) -> (String, String) {
    let code = fact.code;
    let job = fact.job_type.as_deref().unwrap_or_default();
    let (job_argument, job_option) = (shell::argument(job), shell::option("job", job));
    let queue = fact.queue.as_deref().unwrap_or_default();
    let worker = fact.worker.as_deref().unwrap_or_default();
    let run = fact.run_id.unwrap_or_default();
    let runs = |adjective: &str| plural::of(fact.runs, &format!("{adjective}run"));
    let is = if fact.runs == 1 { "is" } else { "are" };
    let schedules = || {
        let example = fact.schedule.as_deref().unwrap_or_default();
        format!("{} (such as {example})", plural::of(fact.runs, "schedule"))
    };
    let seconds = || show(store::seconds(fact.seconds.unwrap_or(0.0)));
    let each_tick = |does: &str| {
        format!(
            "each tick {does}, unless another session has locked the rows, or a trigger rejects or \
             delays the change; see the log of the ticks"
        )
    };
    let see_cron = || format!("see cron on {worker}, its mail, and the log of its ticks");
    match code {
        Code::RestoreUnaccepted => (
            "the database was restored, so ticks start nothing".to_owned(),
            format!(
                "cancel the runs whose work is done, then accept the rest: {operator}\
                 `jobctl accept-restore`"
            ),
        ),
        Code::DatabaseReadOnly => (
            "default_transaction_read_only is on for this database, so ticks do no work".to_owned(),
            store::WRITABLE.to_owned(),
        ),
        Code::WorkerMissing if worker.is_empty() => (
            "no worker has ever ticked".to_owned(),
            "`jobctl init --crontab` lets cron start ticks".to_owned(),
        ),
        Code::WorkerMissing => ("no worker ticks".to_owned(), see_cron()),
        Code::WorkerSilent => (
            {
                let ticks = if fact.is_new { "has never ticked" } else { "does not tick" };
                let pinned = match fact.runs {
                    0 => String::new(),
                    _ => format!(", and {} {is} only for it", runs("due ")),
                };
                format!("worker {worker} {ticks}{pinned}")
            },
            if fact.is_new {
                format!(
                    "start its ticks with --worker {}, or cancel the runs; `jobctl show {run}`",
                    shell::argument(worker)
                )
            } else {
                format!(
                    "{}; if it is gone: {operator}`jobctl forget {}`",
                    see_cron(),
                    shell::argument(worker)
                )
            },
        ),
        Code::DatabaseSlow => (
            format!("the database is slow: a tick of {worker} waited {} for an answer", seconds()),
            "look for load, slow triggers and a slow network; `jobctl doctor` names old snapshots"
                .to_owned(),
        ),
        Code::DefinitionMissing => (
            format!("{job} has no definition; {} will end dead", runs("waiting ")),
            "`jobctl apply` a file that defines the job, or cancel the runs".to_owned(),
        ),
        Code::QueueUnserved => (
            format!("no worker serves queue {queue}, which has {}", runs("overdue ")),
            "name the queue in the --queue of a tick, or tick without --queue".to_owned(),
        ),
        Code::JobUnserved => (
            format!("no worker may run the commands of {job}, which has {}", runs("overdue ")),
            "tick with `--shell any` on a host that may run them (`defined` allows the commands of \
             definitions), or cancel the runs"
                .to_owned(),
        ),
        Code::RunsOverdue => (
            format!("{} of {job} {is} overdue", runs("")),
            format!("{operator}`jobctl show {run}` says why"),
        ),
        Code::RunsRejected => (
            format!("the database rejects the claim of {} of {job}", runs("waiting ")),
            format!("{operator}`jobctl show {run}` has the error; see triggers and constraints"),
        ),
        Code::RunsSnoozing => (
            format!("{} of {job} asked for a later attempt at least ten times", runs("waiting ")),
            format!("{operator}`jobctl show {run}` has the answers; `jobctl cancel` ends a run"),
        ),
        Code::ClockAhead => (
            format!(
                "the database's clock was ahead when {} of {job} got {} time",
                runs("waiting "),
                if fact.runs == 1 { "its" } else { "their" }
            ),
            format!(
                "{operator}`jobctl show {run}` says when it is due; `jobctl retry {run}` makes it \
                 due now"
            ),
        ),
        Code::RunsStuck => (
            format!(
                "{} of {job} {} for runs that did not succeed or are unknown",
                runs(""),
                if fact.runs == 1 { "waits" } else { "wait" }
            ),
            format!(
                "{operator}`jobctl list --before {run}` shows the known ones: retry those that did \
                 not succeed; or `jobctl retry {run}` to start run {run} without them, or `jobctl \
                 cancel {run}`"
            ),
        ),
        Code::RunsUnreleased => (
            format!(
                "no tick has released or cancelled {} of {job}, although a run before {} has ended",
                runs("blocked "),
                if fact.runs == 1 { "it" } else { "them" }
            ),
            each_tick("does so"),
        ),
        Code::ScheduleBroken if fact.schedule.is_some() => (
            format!("{} for {job} can't fire", schedules()),
            "the log of the ticks has the error; store it again with `jobctl.schedule`, or remove \
             it with `jobctl.unschedule`"
                .to_owned(),
        ),
        Code::ScheduleLate if fact.schedule.is_some() => (
            format!("{} for {job} {is} late", schedules()),
            "each tick fires due schedules; see the log of the ticks".to_owned(),
        ),
        Code::ScheduleBroken => (
            format!("schedule {job} can't fire"),
            format!("`jobctl next {job_argument}` shows the error; correct it and apply the file"),
        ),
        Code::ScheduleSkipping => (
            format!("schedule {job} will skip times, because its stored next time is too late"),
            format!(
                "{operator}`jobctl resume {job_argument}` corrects it; the database's clock or a \
                 host's zone data was wrong"
            ),
        ),
        Code::ScheduleLate => (
            format!("schedule {job} is late"),
            "each tick fires due schedules; see the log of the ticks".to_owned(),
        ),
        Code::LeaseLost => (
            format!("no tick has recovered {} of worker {worker} with an expired lease", runs("")),
            "each tick recovers such runs, unless another session has locked them; see the log of \
             the ticks".to_owned(),
        ),
        Code::ResultsUnrecorded => (
            format!(
                "no tick has recorded {} of worker {worker}",
                plural::of(fact.runs, "stored result")
            ),
            each_tick("records such results"),
        ),
        Code::JobFailing => (
            format!("{job} fails: {} without a success", plural::of(fact.runs, "failed attempt")),
            format!(
                "{operator}`jobctl show {run}`; {}",
                match fact.next_at {
                    None => "its next attempt is running".to_owned(),
                    Some(at) => format!("its next attempt is due at {}", minute(at)),
                }
            ),
        ),
        Code::RunsDead => (
            format!("{} of {job}", runs("dead ")),
            format!("{operator}`jobctl list-dead {job_option}`; then retry or settle them"),
        ),
        Code::JobStale => (
            format!("{job} has not succeeded within {}", seconds()),
            format!("{operator}`jobctl list {job_option}` shows its runs"),
        ),
        Code::RunUnusual => {
            // `bound`: the words before a limit of the definition.
            let expected = |bound| match (fact.limit_seconds, fact.usual_seconds) {
                (Some(limit), _) => {
                    format!("; its definition allows {bound} {}", show(store::seconds(limit)))
                }
                (None, Some(usual)) => {
                    format!("; usually it takes {}", show(store::seconds(usual)))
                }
                (None, None) => String::new(),
            };
            match (fact.days, fact.seconds) {
                (Some(days), _) => (
                    format!("{job} reaches its timeout in about {}", plural::of(days, "day")),
                    "raise its timeout, or find out why its runs take longer and longer".to_owned(),
                ),
                (None, Some(_)) => (
                    format!(
                        "run {run} of {job} succeeded after {}{}",
                        seconds(),
                        expected("at least")
                    ),
                    format!("{operator}`jobctl show {run} --output` shows what it did"),
                ),
                (None, None) => (
                    format!(
                        "run {run} of {job} is running for longer than usual{}",
                        expected("at most")
                    ),
                    format!("{operator}`jobctl show {run}`; `jobctl cancel {run}` stops it"),
                ),
            }
        }
        Code::RunLong => (
            format!("run {run} of {job} is still running on {worker}"),
            format!("{operator}`jobctl show {run}`; `jobctl cancel {run}` stops it"),
        ),
        Code::AttemptsFailing => {
            let attempts = plural::of(fact.runs, "attempt");
            let within = thresholds.failures.map_or_else(String::new, |(_, within)| show(within));
            (
                format!("{attempts} of {job} failed within {within}"),
                format!("{operator}`jobctl failures {job_option} --group` shows why"),
            )
        }
        Code::TimeoutMissing => (
            format!("{job} has no timeout: if one run hangs, its schedule stops"),
            "add a timeout to the definition".to_owned(),
        ),
        Code::PruneMissing => (
            "over 1,000 runs finished over 100 days ago".to_owned(),
            format!(
                "{operator}let a crontab run `jobctl prune` every day; it names runs that the \
                 database keeps"
            ),
        ),
        Code::EffectOpen => (
            format!("{} began and did not complete", plural::of(fact.runs, "effect")),
            format!(
                "{operator}find out whether they happened, and settle each with \
                 `jobctl once --settle`; `jobctl once --list` has their keys"
            ),
        ),
        // Not reached: `stopped::finding` and `sequence_behind` handle these codes.
        Code::SequenceBehind | Code::RunsHeld | Code::SchedulePaused | Code::JobDisabled => {
            (code.as_str().to_owned(), String::new())
        }
    }
}

/// Returns words about a run or a worker that shows the problem, if there is one.
fn example(fact: &Fact) -> Option<String> {
    let newest = || format!("the newest is run {}", fact.run_id.unwrap_or_default());
    match (fact.code, &fact.detail) {
        (Code::WorkerMissing, _) => fact.worker.as_ref().map(|last| format!("the last was {last}")),
        (Code::RestoreUnaccepted, by) => by.as_ref().map(|by| format!("noticed by {by}")),
        (_, Some(error)) => {
            let words = fact.last_line.as_ref().or(fact.cause.as_ref());
            Some(format!("{}: {}", newest(), failure::with_words(error, words)))
        }
        (Code::RunsDead | Code::AttemptsFailing, None) => Some(newest()),
        (Code::RunLong | Code::RunUnusual, None) => None,
        (_, None) => fact.run_id.map(|run| format!("such as run {run}")),
    }
}

/// Returns how bad a fact is: a person must act, or it is only worth knowing.
fn severity(fact: &Fact, thresholds: &Thresholds) -> Severity {
    let is_warning = match fact.code {
        // Right after a migration, cron has not yet started the first tick.
        Code::WorkerMissing => fact.is_new,
        // One slow answer is only worth a warning; a person must act if slow answers go on.
        Code::DatabaseSlow => fact
            .since_at
            .zip(fact.newest_at)
            .and_then(|(since, newest)| (newest - since).to_std().ok())
            .is_none_or(|lasted| lasted <= thresholds.lag),
        Code::RunUnusual => fact.limit_seconds.is_none(),
        code => WARNINGS.contains(&code),
    };
    if is_warning { Severity::Warn } else { Severity::Bad }
}
