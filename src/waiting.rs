//! Why a run is not running, in one line: what it waits for, or why it is not tried any more. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::duration;
use crate::model::Status;
use crate::store::Shown;

/// As far as due runs that come first are counted.
const COUNTED: i64 = 1000;

/// Why a run is not going on; `None` where there is nothing to explain.
pub(crate) fn why(run: &Shown) -> Option<String> {
    match Status::parse(&run.status)? {
        Status::Queued | Status::Failed => Some(waits(run)),
        Status::Running => held(run),
        Status::Dead if run.attempts >= run.max_attempts => Some("no attempt is left".to_owned()),
        Status::Dead => Some("its failure is permanent: another attempt would fail as well".to_owned()),
        Status::Succeeded | Status::Cancelled => None,
    }
}

/// What a queued or failed run waits for.
fn waits(run: &Shown) -> String {
    if !run.defined {
        return "it has no definition; the next attempt ends it dead".to_owned();
    }
    if run.run_at > run.now {
        let ahead = between(run.now, run.run_at);
        return match run.status.as_str() {
            "failed" => format!("waits for attempt {} of {}, due in {ahead}", run.attempts + 1, run.max_attempts),
            _ => format!("not due for {ahead}"),
        };
    }
    let due = match (run.now - run.run_at).num_seconds() {
        0 => "due now".to_owned(),
        _ => format!("due for {}", between(run.run_at, run.now)),
    };
    let cause = match (run.ticked_at, run.served_at) {
        _ if run.most_running.is_some_and(|most| run.running >= i64::from(most)) => {
            let most = run.most_running.unwrap_or_default();
            format!("its definition has {} of at most {most} running", run.running)
        }
        (None, _) => "no worker has ever ticked".to_owned(),
        (Some(_), None) => format!("no worker serves its queue `{}`", run.queue),
        (_, Some(served)) if served < run.run_at => {
            format!("no tick has looked since; the last was {} ago", between(served, run.now))
        }
        _ if run.ahead >= COUNTED => format!("{COUNTED} due runs or more come first"),
        _ if run.ahead == 1 => "one due run comes first".to_owned(),
        _ if run.ahead > 1 => format!("{} due runs come first", run.ahead),
        (_, Some(served)) => {
            format!("the last tick, {} ago, left it: it was full, or runs no such jobs", between(served, run.now))
        }
    };
    format!("{due}: {cause}")
}

/// What is the matter with a running run.
fn held(run: &Shown) -> Option<String> {
    match (run.locked_until, run.cancel_requested_at) {
        (Some(until), _) if until < run.now => {
            Some(format!("its lease ran out {} ago; the next tick recovers it", between(until, run.now)))
        }
        (_, Some(asked)) => Some(format!("cancel was asked for {} ago", between(asked, run.now))),
        _ => None,
    }
}

/// In whole seconds, in words.
fn between(earlier: DateTime<Utc>, later: DateTime<Utc>) -> String {
    let seconds = (later - earlier).num_seconds().unsigned_abs();
    if seconds == 0 { "0s".to_owned() } else { duration::show(Duration::from_secs(seconds)) }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn ago(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(20_000) - TimeDelta::seconds(seconds)
    }

    /// Due for four minutes, in a queue that a worker looked at twenty seconds ago.
    fn due() -> Shown {
        Shown {
            id: 7,
            job_type: "report".to_owned(),
            payload: Ok("{}".to_owned()),
            queue: "mail".to_owned(),
            priority: 0,
            run_at: ago(240),
            status: "queued".to_owned(),
            attempts: 0,
            max_attempts: 10,
            timeout_seconds: None,
            backoff: "fixed:1m".to_owned(),
            idempotency_key: None,
            key_scope: "retained".to_owned(),
            scheduled_for: None,
            locked_by: None,
            locked_until: None,
            cancel_requested_at: None,
            last_error: None,
            error_type: None,
            failed_at: None,
            started_at: None,
            finished_at: None,
            enqueued_by: "app".to_owned(),
            created_at: ago(300),
            updated_at: ago(300),
            defined: true,
            disabled: false,
            paused_at: None,
            most_running: None,
            running: 0,
            ahead: 0,
            ticked_at: Some(ago(20)),
            served_at: Some(ago(20)),
            now: ago(0),
            history: Vec::new(),
        }
    }

    fn failed() -> Shown {
        Shown { status: "failed".to_owned(), attempts: 3, ..due() }
    }

    fn running() -> Shown {
        Shown { status: "running".to_owned(), attempts: 3, locked_until: Some(ago(-60)), ..due() }
    }

    fn ended(status: &str, attempts: i32) -> Shown {
        Shown { status: status.to_owned(), attempts, finished_at: Some(ago(1)), ..due() }
    }

    #[track_caller]
    fn says(run: &Shown, text: &str) {
        assert_eq!(why(run).unwrap_or_default(), text);
    }

    #[test]
    fn what_is_not_due_waits_for_its_time() {
        says(&Shown { run_at: ago(-240), ..due() }, "not due for 4m");
        says(&Shown { run_at: ago(-240), ..failed() }, "waits for attempt 4 of 10, due in 4m");
        says(&Shown { run_at: ago(-240), ticked_at: None, served_at: None, ..due() }, "not due for 4m");
    }

    #[test]
    fn what_is_due_waits_for_a_worker() {
        says(&Shown { ticked_at: None, served_at: None, ..due() }, "due for 4m: no worker has ever ticked");
        says(&Shown { served_at: None, ..due() }, "due for 4m: no worker serves its queue `mail`");
        says(
            &Shown { served_at: Some(ago(7200)), ..due() },
            "due for 4m: no tick has looked since; the last was 2h ago",
        );
        says(
            &Shown { run_at: ago(0), served_at: Some(ago(50)), ..due() },
            "due now: no tick has looked since; the last was 50s ago",
        );
        let left = "due for 4m: the last tick, 20s ago, left it: it was full, or runs no such jobs";
        says(&due(), left);
        says(&failed(), left);
    }

    #[test]
    fn what_comes_first_is_counted() {
        says(&Shown { ahead: 1, ..due() }, "due for 4m: one due run comes first");
        says(&Shown { ahead: 12, ..due() }, "due for 4m: 12 due runs come first");
        says(&Shown { ahead: 1000, ..due() }, "due for 4m: 1000 due runs or more come first");
        says(
            &Shown { ahead: 12, served_at: Some(ago(7200)), ..due() },
            "due for 4m: no tick has looked since; the last was 2h ago",
        );
    }

    #[test]
    fn a_definition_can_be_full_or_gone() {
        let limited = |running| Shown { most_running: Some(2), running, ..due() };
        says(&limited(2), "due for 4m: its definition has 2 of at most 2 running");
        says(&limited(1), "due for 4m: the last tick, 20s ago, left it: it was full, or runs no such jobs");
        let gone = "it has no definition; the next attempt ends it dead";
        says(&Shown { defined: false, ..due() }, gone);
        says(&Shown { defined: false, run_at: ago(-240), ..failed() }, gone);
    }

    #[test]
    fn what_runs_needs_no_reason_but_when_it_is_lost_or_to_end() {
        says(&running(), "");
        says(&Shown { cancel_requested_at: Some(ago(3)), ..running() }, "cancel was asked for 3s ago");
        let lost = Shown { locked_until: Some(ago(240)), cancel_requested_at: Some(ago(3)), ..running() };
        says(&lost, "its lease ran out 4m ago; the next tick recovers it");
    }

    #[test]
    fn what_is_dead_has_used_up_its_attempts_or_would_fail_again() {
        says(&ended("dead", 10), "no attempt is left");
        says(&ended("dead", 1), "its failure is permanent: another attempt would fail as well");
        says(&ended("succeeded", 1), "");
        says(&ended("cancelled", 1), "");
    }
}
