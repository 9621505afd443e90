//! The status of a run after an attempt. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::job::action::Action;
use crate::job::attempt::{AttemptResult, HistoryOutcome, Outcome, StopReason};
use crate::job::backoff::wait_after;
use crate::job::failure::{ErrorType, Failure};
use crate::job::status::Status;

/// Returns whether another attempt is pointless, by the rule of the action if there is one, else by
/// the usual rule.
pub(crate) fn is_permanent(outcome: &Outcome, action: Option<&Action>) -> bool {
    let Outcome::Failed(failure) = outcome else { return false };
    action.map_or(failure.is_permanent(), |action| action.is_permanent(failure))
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

impl NextStatus {
    /// Judges attempt `attempt` of at most `max_attempts`, which ended at `now`. `random` in 0..1
    /// is the jitter.
    pub(crate) fn of(
        ended: &AttemptResult,
        is_permanent: bool,
        attempt: i32,
        max_attempts: i32,
        rule: &str,
        random: f64,
        now: DateTime<Utc>,
    ) -> Self {
        let unless_used_up = |status| if attempt < max_attempts { status } else { Status::Dead };
        let (status, outcome, error) = match &ended.outcome {
            Outcome::Succeeded => (Status::Succeeded, HistoryOutcome::Succeeded, None),
            Outcome::Stopped(StopReason::Cancelled) => (
                Status::Cancelled,
                HistoryOutcome::Cancelled,
                Some("cancelled while it ran".to_owned()),
            ),
            // The attempt counts, because `max_attempts` limits the starts. The run is due again at
            // once, because the job did not cause the interruption.
            Outcome::Stopped(StopReason::Interrupted) => {
                let error = "interrupted by shutdown".to_owned();
                (unless_used_up(Status::Queued), HistoryOutcome::Interrupted, Some(error))
            }
            // The same result as a recovery by another tick. If the run was already recovered, the
            // claim's token no longer matches, and this result is not recorded.
            Outcome::Stopped(StopReason::LeaseLost) => {
                let error = "lease expired: its worker could not renew it and ended the job";
                (
                    unless_used_up(Status::Failed),
                    HistoryOutcome::LeaseExpired,
                    Some(error.to_owned()),
                )
            }
            Outcome::Failed(failure) => {
                let status =
                    if is_permanent { Status::Dead } else { unless_used_up(Status::Failed) };
                (status, HistoryOutcome::Failed, Some(failure.to_string()))
            }
        };
        let error_type = match &ended.outcome {
            Outcome::Succeeded => None,
            Outcome::Stopped(StopReason::Cancelled) => Some(ErrorType::Cancelled),
            Outcome::Stopped(StopReason::Interrupted) => Some(ErrorType::Interrupted),
            Outcome::Stopped(StopReason::LeaseLost) => Some(ErrorType::LeaseExpired),
            Outcome::Failed(failure) => Some(failure.error_type()),
        };
        let wait = match (status, &ended.outcome) {
            (
                Status::Failed,
                Outcome::Failed(Failure::HttpStatus { retry_after: Some(asked), .. }),
            ) => wait_after(attempt, rule, random).max(asked.wait(now)),
            (Status::Failed, _) => wait_after(attempt, rule, random),
            _ => Duration::ZERO,
        };
        Self { status, outcome, wait, error_type, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::failure::RetryAfter;

    fn ended(outcome: Outcome) -> AttemptResult {
        AttemptResult { outcome, ..AttemptResult::unstarted(Failure::Signal(9)) }
    }

    #[track_caller]
    fn becomes(outcome: Outcome, attempt: i32, status: Status, wait: u64) {
        let ended = ended(outcome);
        let next_status = NextStatus::of(
            &ended,
            is_permanent(&ended.outcome, None),
            attempt,
            3,
            "list:1m,5m",
            0.5,
            DateTime::UNIX_EPOCH,
        );
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
            is_permanent(&outcome, Some(&action))
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
    fn an_interrupted_run_is_queued_at_once_while_attempts_are_left() {
        becomes(Outcome::Stopped(StopReason::Interrupted), 2, Status::Queued, 0);
        becomes(Outcome::Stopped(StopReason::Interrupted), 3, Status::Dead, 0);
        becomes(Outcome::Stopped(StopReason::Cancelled), 1, Status::Cancelled, 0);
    }

    #[test]
    fn an_unreadable_rule_waits_as_by_default() {
        assert_eq!(wait_after(2, "sometimes", 0.5), Duration::from_secs(120));
    }
}
