//! The status of a run after an attempt. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::job::action::Action;
use crate::job::attempt::{AttemptResult, HistoryOutcome, Outcome, StopReason};
use crate::job::backoff::wait_after;
use crate::job::failure::{ErrorType, Failure, RetryAfter};
use crate::job::status::Status;
use crate::text::duration;

/// Whether another attempt is of use after a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Prospect {
    /// Another attempt may succeed.
    Transient,
    /// No attempt can succeed.
    Permanent,
    /// The job asks for a later attempt.
    Snoozed,
}

impl Prospect {
    /// Judges a failure by the rule of the action, or by the usual rule if the action can't be
    /// read. For other outcomes, the result has no effect.
    pub(crate) fn of(outcome: &Outcome, action: Option<&Action>) -> Self {
        match outcome {
            Outcome::Failed(failure) => match action {
                Some(action) if action.is_permanent(failure) => Self::Permanent,
                Some(action) if action.is_snooze(failure) => Self::Snoozed,
                None if failure.is_permanent() => Self::Permanent,
                Some(_) | None => Self::Transient,
            },
            Outcome::Succeeded | Outcome::Stopped(_) => Self::Transient,
        }
    }
}

/// The change of a run after an attempt.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct NextStatus {
    pub(crate) status: Status,
    pub(crate) outcome: HistoryOutcome,
    /// The time until the next attempt, if there is one.
    pub(crate) wait: Duration,
    pub(crate) error_type: Option<ErrorType>,
    pub(crate) error: Option<String>,
}

/// What decides the next status of a run besides the result of its attempt.
#[derive(Clone, Copy)]
pub(crate) struct RetryFacts<'a> {
    pub(crate) prospect: Prospect,
    /// The number of this attempt, without attempts that do not count.
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
    /// The backoff rule of the run.
    pub(crate) backoff: &'a str,
    /// In 0..1, for the jitter of the backoff.
    pub(crate) random: f64,
    /// When the attempt ended.
    pub(crate) now: DateTime<Utc>,
}

impl NextStatus {
    /// Returns what an attempt that has just ended changes.
    pub(crate) fn of(ended: &AttemptResult, facts: &RetryFacts<'_>) -> Self {
        let may_retry = facts.attempt < facts.max_attempts;
        let failed = if may_retry { Status::Failed } else { Status::Dead };
        let (status, outcome, error_type, error) = match &ended.outcome {
            Outcome::Succeeded => (Status::Succeeded, HistoryOutcome::Succeeded, None, None),
            Outcome::Stopped(StopReason::Cancelled) => (
                Status::Cancelled,
                HistoryOutcome::Cancelled,
                Some(ErrorType::Cancelled),
                Some("cancelled while it ran".to_owned()),
            ),
            // The attempt does not count, and the run is due again at once, because the job did not
            // cause the interruption. end_runs.sql limits how often.
            Outcome::Stopped(StopReason::Interrupted) => (
                Status::Queued,
                HistoryOutcome::Interrupted,
                Some(ErrorType::Interrupted),
                Some("interrupted by shutdown".to_owned()),
            ),
            // The same result as a recovery by another tick. If the run was already recovered, the
            // claim's token no longer matches, and this result is not recorded.
            Outcome::Stopped(StopReason::LeaseLost) => (
                failed,
                HistoryOutcome::LeaseExpired,
                Some(ErrorType::LeaseExpired),
                Some("lease expired: its worker could not renew it and ended the job".to_owned()),
            ),
            Outcome::Failed(failure) => {
                let (status, outcome) = match facts.prospect {
                    Prospect::Permanent => (Status::Dead, HistoryOutcome::Failed),
                    Prospect::Transient => (failed, HistoryOutcome::Failed),
                    // Like an interrupted attempt, a snoozed one does not count.
                    Prospect::Snoozed => (Status::Queued, HistoryOutcome::Snoozed),
                };
                (status, outcome, Some(failure.error_type()), Some(failure.to_string()))
            }
        };
        let wait = match status {
            Status::Failed => facts.retry_wait(ended),
            Status::Queued if outcome == HistoryOutcome::Snoozed => {
                facts.retry_wait(ended).max(duration::SECOND)
            }
            _ => Duration::ZERO,
        };
        Self { status, outcome, wait, error_type, error }
    }
}

impl RetryFacts<'_> {
    /// Returns the time until the next attempt: the backoff, or the time that the job asked for. A
    /// server's request can only lengthen the backoff.
    fn retry_wait(&self, ended: &AttemptResult) -> Duration {
        let backoff = wait_after(self.attempt, self.backoff, self.random);
        match &ended.outcome {
            Outcome::Failed(Failure::ExitCode(_)) if self.prospect == Prospect::Snoozed => {
                requested_wait(&ended.output.text).unwrap_or(backoff)
            }
            Outcome::Failed(Failure::HttpStatus { retry_after: Some(asked), .. }) => {
                backoff.max(asked.wait(self.now))
            }
            _ => backoff,
        }
    }
}

/// Returns the wait that an output asks for: that of its last line like `retry-after: 10m`. As in a
/// header of HTTP, the wait may also be a number of seconds.
fn requested_wait(output: &str) -> Option<Duration> {
    const NAME: &str = "retry-after:";
    let is_named =
        |line: &&str| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME));
    let request = output.lines().rev().find(is_named)?[NAME.len()..].trim();
    let with_unit = || duration::parse(request).ok().map(RetryAfter::In);
    let retry_after = RetryAfter::seconds(request).or_else(with_unit)?;
    // The time is only needed for a date, which a request of an output can't be.
    Some(retry_after.wait(DateTime::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcome: Outcome) -> AttemptResult {
        AttemptResult { outcome, ..AttemptResult::unstarted(Failure::Signal(9)) }
    }

    /// Attempt `attempt` of 3.
    fn facts(prospect: Prospect, attempt: i32) -> RetryFacts<'static> {
        RetryFacts {
            prospect,
            attempt,
            max_attempts: 3,
            backoff: "list:1m,5m",
            random: 0.5,
            now: DateTime::UNIX_EPOCH,
        }
    }

    #[track_caller]
    fn becomes(outcome: Outcome, attempt: i32, status: Status, wait: u64) {
        let ended = ended(outcome);
        let prospect = Prospect::of(&ended.outcome, None);
        let next_status = NextStatus::of(&ended, &facts(prospect, attempt));
        assert_eq!(
            (next_status.status, next_status.wait),
            (status, Duration::from_secs(wait)),
            "{next_status:?}"
        );
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
        for code in [8, 64, 65, 77, 78] {
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
    fn an_action_overrides_which_failures_are_permanent() {
        let is_permanent = |job, payload, outcome: Outcome| {
            let action = Action::parse(job, payload).unwrap().unwrap();
            Prospect::of(&outcome, Some(&action)) == Prospect::Permanent
        };
        let shell = r#"{"command": "x", "permanent_exit_codes": [3]}"#;
        assert!(is_permanent("shell", shell, Outcome::Failed(Failure::ExitCode(3))));
        assert!(!is_permanent("shell", shell, Outcome::Failed(Failure::ExitCode(64))));
        let call = r#"{"url": "http://a", "transient_statuses": [404, "5xx"]}"#;
        assert!(!is_permanent("http", call, http(404, None)));
        assert!(!is_permanent("http", call, http(503, None)));
        assert!(is_permanent("http", call, http(429, None)));
    }

    #[test]
    fn a_failure_without_a_snooze_waits_by_its_backoff() {
        let mut ended = ended(Outcome::Failed(Failure::ExitCode(1)));
        ended.output.text = "retry-after: 10s".to_owned();
        let next = NextStatus::of(&ended, &facts(Prospect::Transient, 1));
        assert_eq!((next.status, next.wait), (Status::Failed, duration::MINUTE));
    }

    #[test]
    fn a_snooze_lasts_a_second_at_least() {
        for outcome in [Outcome::Failed(Failure::ExitCode(75)), http(503, Some(0))] {
            let facts = RetryFacts { backoff: "fixed:0s", ..facts(Prospect::Snoozed, 1) };
            let next = NextStatus::of(&ended(outcome), &facts);
            assert_eq!((next.outcome, next.wait), (HistoryOutcome::Snoozed, duration::SECOND));
        }
    }

    /// Judges the last attempt.
    #[track_caller]
    fn snoozes(job: &str, payload: &str, outcome: Outcome, output: &str, wait: Option<u64>) {
        let mut ended = ended(outcome);
        ended.output.text = output.to_owned();
        let action = Action::parse(job, payload).unwrap().unwrap();
        let prospect = Prospect::of(&ended.outcome, Some(&action));
        let next_status = NextStatus::of(&ended, &facts(prospect, 3));
        let NextStatus { status, outcome, wait: waits, .. } = next_status;
        let expected = match wait {
            Some(wait) => (Status::Queued, HistoryOutcome::Snoozed, Duration::from_secs(wait)),
            None => (Status::Dead, HistoryOutcome::Failed, Duration::ZERO),
        };
        assert_eq!((status, outcome, waits), expected);
    }

    #[test]
    fn a_job_can_ask_for_an_attempt_later_also_in_its_last_one() {
        let exit = |code| Outcome::Failed(Failure::ExitCode(code));
        let (shell, own) = (r#"{"command": "x"}"#, r#"{"command": "x", "snooze_exit_codes": [3]}"#);
        snoozes("shell", shell, exit(75), "", Some(300));
        snoozes("shell", shell, exit(75), "retry-after: 5m\nretry-after: 10s\nx", Some(10));
        snoozes("shell", shell, exit(75), "retry-after: 90d\n", Some(86400));
        snoozes("shell", shell, exit(75), "Retry-After: 600\r\n", Some(600));
        snoozes("shell", shell, exit(75), "retry-after: 0s", Some(1));
        snoozes("shell", shell, exit(75), "retry-after: 99999999999999999999999", Some(86400));
        let huge = "retry-after: 18446744073709551615s 500ms 500ms";
        snoozes("shell", shell, exit(75), huge, Some(300));
        snoozes("shell", shell, exit(75), "retry-after: soon\nx retry-after: 1s", Some(300));
        snoozes("shell", own, exit(3), "", Some(300));
        snoozes("shell", own, exit(75), "retry-after: 1s", None);
        let permanent = r#"{"command": "x", "permanent_exit_codes": [75]}"#;
        snoozes("shell", permanent, exit(75), "", None);
        let call = r#"{"url": "http://a"}"#;
        snoozes("http", call, http(429, Some(600)), "", Some(600));
        snoozes("http", call, http(503, Some(1)), "", Some(300));
        snoozes("http", call, http(503, None), "", None);
        snoozes("http", call, http(503, Some(0)), "", Some(300));
        let strict = r#"{"url": "http://a", "transient_statuses": [503]}"#;
        snoozes("http", strict, http(429, Some(600)), "", None);
    }

    #[test]
    fn a_server_can_only_ask_for_a_longer_wait() {
        becomes(http(503, Some(120)), 1, Status::Failed, 120);
        becomes(http(503, Some(5)), 1, Status::Failed, 60);
    }

    #[test]
    fn a_lost_lease_is_a_transient_failure() {
        becomes(Outcome::Stopped(StopReason::LeaseLost), 2, Status::Failed, 300);
        becomes(Outcome::Stopped(StopReason::LeaseLost), 3, Status::Dead, 0);
    }

    #[test]
    fn an_interrupted_run_is_queued_at_once_also_after_its_last_attempt() {
        becomes(Outcome::Stopped(StopReason::Interrupted), 2, Status::Queued, 0);
        becomes(Outcome::Stopped(StopReason::Interrupted), 3, Status::Queued, 0);
        becomes(Outcome::Stopped(StopReason::Cancelled), 1, Status::Cancelled, 0);
    }

    #[test]
    fn an_unreadable_rule_waits_as_by_default() {
        assert_eq!(wait_after(2, "sometimes", 0.5), Duration::from_secs(120));
    }
}
