//! The rule that turns what an attempt came to into the run's next status. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::action::Action;
use crate::backoff::{self, Backoff};
use crate::model::{Ended, Failure, Outcome, Status, Why};

/// What another attempt would be worth after a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Prospect {
    Transient,
    /// It would fail again.
    Permanent,
}

impl Prospect {
    /// By the rule of the action, where there is one, else by the usual rule.
    pub(crate) fn of(outcome: &Outcome, action: Option<&Action>) -> Self {
        let permanent = match outcome {
            Outcome::Failed(failure) => action.map_or(failure.is_permanent(), |action| action.is_permanent(failure)),
            Outcome::Succeeded | Outcome::Stopped(_) => false,
        };
        if permanent { Self::Permanent } else { Self::Transient }
    }
}

/// What becomes of a run after an attempt.
#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) status: Status,
    /// As it stands in the history.
    pub(crate) outcome: &'static str,
    /// Until the next attempt, where there is one.
    pub(crate) wait: Duration,
    pub(crate) error_type: Option<&'static str>,
    pub(crate) error: Option<String>,
}

impl Verdict {
    /// Judges attempt `attempt` of at most `max_attempts`, which ended at `now`. `prospect` says
    /// whether a failed attempt may be retried. `random` in 0..1 is the jitter.
    pub(crate) fn of(
        ended: &Ended,
        prospect: Prospect,
        attempt: i32,
        max_attempts: i32,
        rule: &str,
        random: f64,
        now: DateTime<Utc>,
    ) -> Self {
        let attempts_left = attempt < max_attempts;
        let after_failure = |prospect| match prospect {
            Prospect::Transient if attempts_left => (Status::Failed, wait_after(attempt, rule, random)),
            Prospect::Transient | Prospect::Permanent => (Status::Dead, Duration::ZERO),
        };
        match &ended.outcome {
            Outcome::Succeeded => Self::of_status(Status::Succeeded, "succeeded", None, None),
            Outcome::Stopped(Why::Cancelled) => {
                Self::of_status(Status::Cancelled, "cancelled", Some("cancelled"), Some("cancelled while it ran"))
            }
            // The start counts, because starts are bounded; the wait does not, because the job did
            // nothing wrong.
            Outcome::Stopped(Why::Interrupted) => {
                let status = if attempts_left { Status::Queued } else { Status::Dead };
                Self::of_status(status, "interrupted", Some("interrupted"), Some("interrupted by shutdown"))
            }
            // As if the run had been recovered, unless it has been: then the fence refuses this.
            Outcome::Stopped(Why::LeaseLost) => {
                const WHAT: &str = "lease expired: its worker could not renew it and ended the job";
                let (status, wait) = after_failure(Prospect::Transient);
                Self { wait, ..Self::of_status(status, "lease_expired", Some("lease_expired"), Some(WHAT)) }
            }
            Outcome::Failed(failure) => {
                let (status, wait) = after_failure(prospect);
                let asked = match failure {
                    Failure::HttpStatus { retry_after: Some(wish), .. } => wish.wait(now),
                    _ => Duration::ZERO,
                };
                let (error_type, error) = (failure.error_type(), failure.to_string());
                Self { wait: wait.max(asked), ..Self::of_status(status, "failed", Some(error_type), Some(&error)) }
            }
        }
    }

    fn of_status(status: Status, outcome: &'static str, error_type: Option<&'static str>, error: Option<&str>) -> Self {
        Self { status, outcome, wait: Duration::ZERO, error_type, error: error.map(str::to_owned) }
    }
}

/// The backoff after an attempt. A rule that can't be read (any program may have written the row)
/// must not wedge the run: it waits as by default.
pub(crate) fn wait_after(attempt: i32, rule: &str, random: f64) -> Duration {
    let backoff = Backoff::parse(rule).or_else(|_| Backoff::parse(backoff::DEFAULT)).expect("the default is a rule");
    backoff::jittered(backoff.after(attempt.unsigned_abs()), random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RetryAfter;

    fn ended(outcome: Outcome) -> Ended {
        Ended { outcome, ..Ended::unstarted(Failure::Signal(9)) }
    }

    #[track_caller]
    fn becomes(outcome: Outcome, attempt: i32, status: Status, wait: u64) {
        let ended = ended(outcome);
        let verdict = Verdict::of(
            &ended,
            Prospect::of(&ended.outcome, None),
            attempt,
            3,
            "list:1m,5m",
            0.5,
            DateTime::UNIX_EPOCH,
        );
        assert_eq!((verdict.status, verdict.wait), (status, Duration::from_secs(wait)), "{verdict:?}");
    }

    fn http(status: u16, retry_after: Option<u64>) -> Outcome {
        Outcome::Failed(Failure::HttpStatus {
            status,
            retry_after: retry_after.map(|wait| RetryAfter::In(Duration::from_secs(wait))),
        })
    }

    #[test]
    fn a_transient_failure_is_retried_until_no_attempt_is_left() {
        becomes(Outcome::Failed(Failure::ExitCode(1)), 1, Status::Failed, 60);
        becomes(Outcome::Failed(Failure::Signal(9)), 2, Status::Failed, 300);
        becomes(Outcome::Failed(Failure::ExitCode(1)), 3, Status::Dead, 0);
    }

    #[test]
    fn a_permanent_failure_is_dead_at_once() {
        for code in [64, 65, 77, 78] {
            becomes(Outcome::Failed(Failure::ExitCode(code)), 1, Status::Dead, 0);
        }
        for status in [301, 308, 400, 401, 403, 404, 410, 422] {
            becomes(http(status, None), 1, Status::Dead, 0);
        }
        becomes(Outcome::Failed(Failure::BadPayload(String::new())), 1, Status::Dead, 0);
        for status in [408, 425, 429, 500, 503, 599] {
            becomes(http(status, None), 1, Status::Failed, 60);
        }
    }

    #[test]
    fn an_action_can_say_what_is_permanent() {
        let prospect = |job, payload, outcome: Outcome| {
            let action = Action::parse(job, payload).unwrap().unwrap();
            Prospect::of(&outcome, Some(&action))
        };
        let shell = r#"{"command": "x", "permanent_exit_codes": [3]}"#;
        assert_eq!(prospect("shell", shell, Outcome::Failed(Failure::ExitCode(3))), Prospect::Permanent);
        assert_eq!(prospect("shell", shell, Outcome::Failed(Failure::ExitCode(64))), Prospect::Transient);
        let call = r#"{"url": "http://a", "transient_statuses": [404, "5xx"]}"#;
        assert_eq!(prospect("http", call, http(404, None)), Prospect::Transient);
        assert_eq!(prospect("http", call, http(503, None)), Prospect::Transient);
        assert_eq!(prospect("http", call, http(429, None)), Prospect::Permanent);
    }

    #[test]
    fn a_server_can_ask_for_a_longer_wait_but_not_for_a_shorter_one() {
        becomes(http(503, Some(120)), 1, Status::Failed, 120);
        becomes(http(503, Some(5)), 1, Status::Failed, 60);
    }

    #[test]
    fn a_lease_that_was_not_renewed_is_a_failure_like_one_that_was_recovered() {
        becomes(Outcome::Stopped(Why::LeaseLost), 2, Status::Failed, 300);
        becomes(Outcome::Stopped(Why::LeaseLost), 3, Status::Dead, 0);
    }

    #[test]
    fn an_interruption_waits_for_nothing_and_is_bounded() {
        becomes(Outcome::Stopped(Why::Interrupted), 2, Status::Queued, 0);
        becomes(Outcome::Stopped(Why::Interrupted), 3, Status::Dead, 0);
        becomes(Outcome::Stopped(Why::Cancelled), 1, Status::Cancelled, 0);
    }

    #[test]
    fn a_rule_that_can_not_be_read_waits_as_by_default() {
        assert_eq!(wait_after(2, "sometimes", 0.5), Duration::from_secs(120));
    }
}
