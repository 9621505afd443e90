//! Says in one line why a run is not running. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{Finding, idle};
use crate::job::finding_code::Code;
use crate::job::status::Status;
use crate::store::RunDetails;
use crate::text::duration;

/// The most due runs that the query counts.
const COUNTED: i64 = 1000;

/// Returns why a run makes no progress; `None` if it makes progress, or if its end needs no
/// explanation. `findings` are those of its job and of all workers.
pub(crate) fn why(run: &RunDetails, findings: &[Finding]) -> Option<String> {
    match run.status {
        Status::Blocked => Some(blocked(run)),
        Status::Queued | Status::Failed => Some(pending(run, findings)),
        Status::Running => running(run, findings).or_else(|| replaced(run)),
        Status::Cancelled => replaced(run),
        Status::Dead if run.attempts >= run.max_attempts => {
            Some(format!("attempt {} of {} was the last", run.attempts, run.max_attempts))
        }
        Status::Dead => Some(
            "its failure is permanent, or max_attempts was raised since; so no tick retries it"
                .to_owned(),
        ),
        Status::Succeeded => None,
    }
}

/// Returns the runs that a blocked run waits for, and the one that keeps it from starting for good,
/// if there is one.
fn blocked(run: &RunDetails) -> String {
    let RunDetails { predecessors, unmet, unmet_statuses, first_unmet, stuck_on, .. } = run;
    let Some(first) = *first_unmet else {
        if run.is_released {
            let next = locked(run).unwrap_or_else(|| "the next tick starts it".to_owned());
            return format!("each run that it waits for has ended; {next}");
        }
        return format!(
            "it is unknown which runs it waits for: their rows in job_dependencies are missing; \
             `jobctl retry {}` starts this run",
            run.id
        );
    };
    let statuses = unmet_statuses.as_deref().unwrap_or_default();
    let waits = match predecessors {
        1 => format!("waits for run {first}, which is {}", statuses.trim_start_matches("1 ")),
        all => format!("waits for {unmet} of {all} runs ({statuses})"),
    };
    match (stuck_on, &run.stuck_status) {
        (Some(id), Some(status)) if *predecessors > 1 || *id != first => {
            format!("{waits}; run {id} is {status}")
        }
        _ if *predecessors > 1 => format!("{waits}; the first is run {first}"),
        _ => waits,
    }
}

/// Returns why a run that waits for its next attempt has not started.
fn pending(run: &RunDetails, findings: &[Finding]) -> String {
    let undefined = |finding: &&Finding| finding.code == Some(Code::DefinitionMissing);
    if let Some(finding) = findings.iter().find(undefined) {
        return finding.found.clone();
    }
    if run.run_at > run.now {
        if let Some(at) = run.expires_at.filter(|at| *at <= run.run_at) {
            if at <= run.now {
                return expired(at, run.now);
            }
            return format!("it expires in {}, before it is due", between(run.now, at));
        }
        let wait = between(run.now, run.run_at);
        return match run.status {
            Status::Failed => {
                format!("attempt {} of {} is due in {wait}", run.attempts + 1, run.max_attempts)
            }
            _ => format!("due in {wait}"),
        };
    }
    let due = match (run.now - run.run_at).num_seconds() {
        0 => "due now".to_owned(),
        _ => format!("due {} ago", between(run.run_at, run.now)),
    };
    format!("{due}: {}", cause(run, findings))
}

/// Returns why a due run waits.
fn cause(run: &RunDetails, findings: &[Finding]) -> String {
    if let Some(why) = locked(run) {
        return why;
    }
    if let Some(at) = run.expires_at.filter(|at| *at <= run.now) {
        return expired(at, run.now);
    }
    if let Some(why) = held(run) {
        return why;
    }
    if let Some(id) = run.replaced_run {
        return format!("run {id} has the same key, and is still running");
    }
    // The limits that are reached.
    let full_job = run.most_running.filter(|most| run.running >= i64::from(*most));
    let of_share = run.max_running_per_share;
    let full_share = of_share.filter(|most| run.running_of_share >= i64::from(*most));
    let full_lock = run.lock_most.filter(|most| run.running_of_lock >= Some((*most).into()));
    let stops_run = |finding: &&Finding| match finding.code {
        Some(Code::WorkerMissing | Code::RestoreUnaccepted) => true,
        Some(Code::QueueUnserved) => finding.queue.as_ref() == Some(&run.queue),
        Some(Code::JobUnserved) => finding.job_type.as_ref() == Some(&run.job_type),
        // A lost run counts for the limits until a tick recovers it.
        Some(Code::LeaseLost) => full_job.or(full_share).or(full_lock).is_some(),
        _ => false,
    };
    if let Some(finding) = findings.iter().find(stops_run) {
        return finding.found.clone();
    }
    if let Some(most) = full_job {
        return format!("{} of at most {most} runs of this job are running", run.running);
    }
    if let Some(most) = full_share {
        let share = match &run.share {
            Some(share) => format!("of share {share}"),
            None => "without a share".to_owned(),
        };
        return format!("{} of at most {most} runs {share} are running", run.running_of_share);
    }
    if let (Some(most), Some(lock)) = (full_lock, &run.lock) {
        let running = run.running_of_lock.unwrap_or_default();
        return format!("{running} of at most {most} runs with the lock {lock} are running");
    }
    let rates = [
        ("its rate", &run.rate, run.allowed_at),
        ("the rate of its share", &run.rate_per_share, run.share_allowed_at),
    ];
    for (rate_name, rate, at) in rates {
        if let (Some(rate), Some(at)) = (rate, at.filter(|at| *at > run.now)) {
            return format!(
                "{rate_name} of {rate} is used up for another {}",
                between(run.now, at)
            );
        }
    }
    if let Some(locker) = run.definition_locker {
        return locked_by("the definition of its job", locker);
    }
    place_in_queue(run)
}

/// Returns the user whose hold keeps the run, and since when; `None` if no hold keeps it.
fn held(run: &RunDetails) -> Option<String> {
    let (by, at) = (run.held_by.as_ref()?, run.held_at?);
    let until = run.held_until.map(|until| format!(", ends in {}", between(run.now, until)));
    let reason = run.hold_reason.as_ref().map(|reason| format!(": {reason}"));
    let [until, reason] = [until, reason].map(Option::unwrap_or_default);
    let held = match &run.held_worker {
        None => "held".to_owned(),
        Some(worker) => format!("no worker claims from its queue; worker {worker} is held"),
    };
    Some(format!("{held} by {by} for {}{until}{reason}", between(at, run.now)))
}

/// Returns when a tick last served the run's queue, and how many due runs are ahead of it: why a
/// run waits that no limit, hold or lock is known to keep.
fn place_in_queue(run: &RunDetails) -> String {
    let no_tick = match &run.only_worker {
        Some(worker) => format!("no tick of worker {worker}"),
        None => "no tick".to_owned(),
    };
    let Some(served_at) = run.served_at else {
        return format!("{no_tick} has served its queue yet");
    };
    let ago = between(served_at, run.now);
    match run.ahead {
        _ if served_at < run.run_at => {
            format!("{no_tick} has served its queue since; the last one was {ago} ago")
        }
        0 => format!(
            "the last tick, {ago} ago, skipped it: all slots were busy, its \
             --limit was reached, a limit, a hold or a lock of another transaction kept it, or \
             this worker does not run such jobs"
        ),
        1 => format!("1 due run is ahead of it{}", at_this_pace(run)),
        COUNTED.. => format!("{COUNTED} or more due runs are ahead of it"),
        ahead => format!("{ahead} due runs are ahead of it{}", at_this_pace(run)),
    }
}

/// Returns words for the time that the runs ahead take if the queue keeps its pace; empty if the
/// pace is unknown.
fn at_this_pace(run: &RunDetails) -> String {
    let seconds = run.seconds_a_run.map(|seconds| (seconds * run.ahead as f64).max(1.0));
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(wait) => format!(", about {} at this pace", duration::show_whole(wait)),
        None => String::new(),
    }
}

/// Returns a sentence about a run that has expired.
fn expired(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    format!("it expired {} ago; the next tick cancels it", between(at, now))
}

/// Returns why a running run makes no progress: its job has ended, its lease has expired, or its
/// cancel was requested. `None`: nothing is known to be wrong.
fn running(run: &RunDetails, findings: &[Finding]) -> Option<String> {
    if run.has_result {
        let why = "its job has ended, but another session has locked the run, or the database \
            rejects or delays the result; each tick tries to record it";
        return Some(why.to_owned());
    }
    if let Some(until) = run.locked_until.filter(|until| *until < run.now) {
        let next = match (locked(run), idle(findings)) {
            (Some(locked), _) => locked,
            (None, Some(idle)) => idle.found.clone(),
            (None, None) => "the next tick recovers it".to_owned(),
        };
        return Some(format!("its lease expired {} ago; {next}", between(until, run.now)));
    }
    let asked_at = run.cancel_requested_at?;
    Some(format!("cancel was requested {} ago", between(asked_at, run.now)))
}

/// Returns a sentence about the transaction that has locked the run; `None`: it is not locked.
fn locked(run: &RunDetails) -> Option<String> {
    Some(locked_by("it", run.locker?))
}

/// Returns a sentence about the server process whose transaction has locked a row.
fn locked_by(row: &str, locker: i32) -> String {
    format!(
        "another transaction has locked {row} (server process {locker}); ticks skip it until \
         that ends"
    )
}

/// Returns a sentence about the run that replaced this one, if one did.
fn replaced(run: &RunDetails) -> Option<String> {
    if run.key_scope != "replaced" {
        return None;
    }
    let by = run.replaced_by.map_or("a newer run".to_owned(), |id| format!("run {id}"));
    Some(format!("{by} replaced it, so it is not tried again"))
}

/// Returns the time between two instants, in whole seconds.
fn between(earlier: DateTime<Utc>, later: DateTime<Utc>) -> String {
    let seconds = (later - earlier).num_seconds().unsigned_abs();
    if seconds == 0 { "0s".to_owned() } else { duration::show(Duration::from_secs(seconds)) }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    const SKIPPED: &str = "due 4m ago: the last tick, 20s ago, skipped it: \
        all slots were busy, its --limit was reached, a limit, a hold or a lock of another \
        transaction kept it, or this worker does not run such jobs";

    const LOCKED: &str =
        "another transaction has locked it (server process 4711); ticks skip it until that ends";

    fn ago(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(20_000) - TimeDelta::seconds(seconds)
    }

    /// A run that has been due for four minutes; a worker served its queue twenty seconds ago.
    fn due() -> RunDetails {
        RunDetails {
            queue: "mail".to_owned(),
            run_at: ago(240),
            status: Status::Queued,
            max_attempts: 10,
            served_at: Some(ago(20)),
            now: ago(0),
            ..RunDetails::default()
        }
    }

    fn failed() -> RunDetails {
        RunDetails { status: Status::Failed, attempts: 3, ..due() }
    }

    fn running() -> RunDetails {
        RunDetails { status: Status::Running, attempts: 3, locked_until: Some(ago(-60)), ..due() }
    }

    fn ended(status: Status, attempts: i32) -> RunDetails {
        RunDetails { status, attempts, ..due() }
    }

    #[track_caller]
    fn says(run: &RunDetails, text: &str) {
        assert_eq!(why(run, &[]).unwrap_or_default(), text);
    }

    #[test]
    fn a_run_that_is_not_due_waits_for_its_time() {
        says(&RunDetails { run_at: ago(-240), ..due() }, "due in 4m");
        says(&RunDetails { run_at: ago(-240), ..failed() }, "attempt 4 of 10 is due in 4m");
    }

    #[test]
    fn a_due_run_waits_for_a_worker() {
        says(
            &RunDetails { served_at: Some(ago(7200)), ..due() },
            "due 4m ago: no tick has served its queue since; the last one was 2h ago",
        );
        says(
            &RunDetails { run_at: ago(0), served_at: Some(ago(50)), ..due() },
            "due now: no tick has served its queue since; the last one was 50s ago",
        );
        says(
            &RunDetails { served_at: None, ..due() },
            "due 4m ago: no tick has served its queue yet",
        );
        says(&due(), SKIPPED);
        says(&failed(), SKIPPED);
    }

    #[test]
    fn due_runs_ahead_are_counted() {
        says(&RunDetails { ahead: 1, ..due() }, "due 4m ago: 1 due run is ahead of it");
        says(&RunDetails { ahead: 12, ..due() }, "due 4m ago: 12 due runs are ahead of it");
        says(
            &RunDetails { ahead: 60, seconds_a_run: Some(25.0), ..due() },
            "due 4m ago: 60 due runs are ahead of it, about 25m at this pace",
        );
        says(
            &RunDetails { ahead: 1000, ..due() },
            "due 4m ago: 1000 or more due runs are ahead of it",
        );
        says(
            &RunDetails { ahead: 12, served_at: Some(ago(7200)), ..due() },
            "due 4m ago: no tick has served its queue since; the last one was 2h ago",
        );
    }

    #[test]
    fn a_run_waits_for_its_definition_or_for_other_runs_of_it() {
        let limited = |running| RunDetails { most_running: Some(2), running, ..due() };
        says(&limited(2), "due 4m ago: 2 of at most 2 runs of this job are running");
        let acme = RunDetails {
            share: Some("acme".to_owned()),
            max_running_per_share: Some(1),
            running_of_share: 1,
            ..due()
        };
        says(&acme, "due 4m ago: 1 of at most 1 runs of share acme are running");
        says(&limited(1), SKIPPED);
    }

    #[test]
    fn an_expired_run_waits_for_the_next_tick() {
        let run = RunDetails { expires_at: Some(ago(60)), ..due() };
        says(&run, "due 4m ago: it expired 1m ago; the next tick cancels it");
        let early = |expires_at| RunDetails { run_at: ago(-240), expires_at, ..failed() };
        says(&early(Some(ago(-60))), "it expires in 1m, before it is due");
        says(&early(Some(ago(60))), "it expired 1m ago; the next tick cancels it");
        says(&early(Some(ago(-300))), "attempt 4 of 10 is due in 4m");
    }

    #[test]
    fn a_held_run_names_the_holder_and_the_reason() {
        let held = |held_until, reason: Option<&str>| RunDetails {
            held_at: Some(ago(720)),
            held_until,
            held_by: Some("ana@web1".to_owned()),
            hold_reason: reason.map(str::to_owned),
            ..due()
        };
        says(
            &held(None, Some("SMTP is down")),
            "due 4m ago: held by ana@web1 for 12m: SMTP is down",
        );
        says(&held(Some(ago(-60)), None), "due 4m ago: held by ana@web1 for 12m, ends in 1m");
    }

    #[test]
    fn a_running_run_has_a_reason_only_if_it_is_lost_or_cancelled() {
        says(&running(), "");
        says(
            &RunDetails { cancel_requested_at: Some(ago(3)), ..running() },
            "cancel was requested 3s ago",
        );
        let lost = RunDetails {
            locked_until: Some(ago(240)),
            cancel_requested_at: Some(ago(3)),
            ..running()
        };
        says(&lost, "its lease expired 4m ago; the next tick recovers it");
    }

    #[test]
    fn a_blocked_run_names_the_runs_that_it_waits_for() {
        let blocked =
            |predecessors, unmet, statuses: &str, stuck: Option<(i64, &str)>| RunDetails {
                status: Status::Blocked,
                predecessors,
                unmet,
                unmet_statuses: Some(statuses.to_owned()),
                first_unmet: Some(17),
                stuck_on: stuck.map(|(id, _)| id),
                stuck_status: stuck.map(|(_, status)| status.to_owned()),
                ..due()
            };
        says(&blocked(1, 1, "1 running", None), "waits for run 17, which is running");
        says(&blocked(1, 1, "1 dead", Some((17, "dead"))), "waits for run 17, which is dead");
        says(
            &blocked(1, 1, "1 blocked", Some((3, "deleted"))),
            "waits for run 17, which is blocked; run 3 is deleted",
        );
        says(
            &blocked(100, 3, "2 failed, 1 running", None),
            "waits for 3 of 100 runs (2 failed, 1 running); the first is run 17",
        );
        says(
            &blocked(100, 3, "2 failed, 1 dead", Some((18, "dead"))),
            "waits for 3 of 100 runs (2 failed, 1 dead); run 18 is dead",
        );
    }

    #[test]
    fn a_locked_run_waits_for_the_end_of_a_transaction() {
        let locker = Some(4711);
        let says_with =
            |run, text: &str| says(&RunDetails { locker, ..run }, &format!("{text}{LOCKED}"));
        says_with(due(), "due 4m ago: ");
        says_with(RunDetails { expires_at: Some(ago(60)), ..due() }, "due 4m ago: ");
        let lost = RunDetails { locked_until: Some(ago(240)), ..running() };
        says_with(lost, "its lease expired 4m ago; ");
        let released =
            || RunDetails { status: Status::Blocked, predecessors: 2, is_released: true, ..due() };
        says_with(released(), "each run that it waits for has ended; ");
        says(&released(), "each run that it waits for has ended; the next tick starts it");
        // These do not wait for the transaction.
        says(&RunDetails { locker, run_at: ago(-240), ..due() }, "due in 4m");
        says(&RunDetails { locker, ..running() }, "");
    }

    #[test]
    fn a_dead_run_has_used_its_attempts_or_failed_permanently() {
        says(&ended(Status::Dead, 10), "attempt 10 of 10 was the last");
        says(
            &ended(Status::Dead, 1),
            "its failure is permanent, or max_attempts was raised since; so no tick retries it",
        );
        says(&ended(Status::Succeeded, 1), "");
        says(&ended(Status::Cancelled, 1), "");
    }
}
