//! The durations of a tick, all derived from the lease. Pure.

use std::time::{Duration, Instant};

use super::request::AnswerTimeout;
use crate::store::Limits;

/// The longest time between two renewals of a lease, so that a request to cancel is seen soon.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Stop the job this long before its lease ends.
const MARGIN: Duration = Duration::from_secs(15);
/// A tick that stops waits at least this long for an answer.
const LAST_ANSWER: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) lease: Duration,
    /// The time between two renewals. At least three fit in a lease.
    pub(super) heartbeat: Duration,
    /// A job must stop this long after its last successful renewal was sent.
    pub(super) stop_after: Duration,
    /// When the lease is lost: the time between SIGTERM and SIGKILL, once for the command and once
    /// for the processes that it leaves behind. Both end before the lease does.
    pub(super) lost_grace: Duration,
    /// How long an unrecorded result or an unreleased claim is kept after the end of its lease,
    /// because the database may come back.
    pub(super) result_kept: Duration,
    /// The limits of each statement, so short that a slow one does not endanger the next renewal.
    pub(super) limits: Limits,
}

impl Timing {
    pub(super) fn of(lease: Duration) -> Self {
        let margin = MARGIN.min(lease / 4);
        let heartbeat = HEARTBEAT.min(lease / 3);
        let limits = Limits {
            statement: Limits::USUAL.statement.min(lease / 6),
            lock: Limits::USUAL.lock.min(lease / 12),
            silence: Limits::USUAL.silence.min(lease / 12),
            whole_tables: false,
            ..Limits::USUAL
        };
        Self {
            lease,
            heartbeat,
            stop_after: lease - margin,
            lost_grace: Duration::from_secs(1).min(margin / 3),
            result_kept: 3 * lease,
            limits,
        }
    }

    /// The longest time that an answer may take.
    pub(super) fn answer_limit(&self) -> Duration {
        self.limits.statement + self.limits.silence
    }

    /// Returns the limits of a statement that is sent `now`.
    pub(super) fn limits_of(&self, timeout: AnswerTimeout, now: Instant) -> Limits {
        let interrupted = timeout.interrupted.max(LAST_ANSWER);
        let silence = self.limits.silence + timeout.extra;
        let limits = Limits { interrupted, silence, ..self.limits };
        let Some(until) = timeout.until else { return limits };
        // The limits of the statement and of the silence add up to the wait.
        let half = until.saturating_duration_since(now).max(LAST_ANSWER) / 2;
        Limits {
            statement: half.min(limits.statement),
            lock: (half / 2).min(limits.lock),
            silence: half.min(limits.silence),
            ..limits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_heartbeats_fit_in_every_lease_and_jobs_stop_before_it_ends() {
        for seconds in [1, 5, 6, 60, 120, 86400] {
            let lease = Duration::from_secs(seconds);
            let timing = Timing::of(lease);
            assert!(timing.heartbeat * 3 <= lease);
            assert!(timing.stop_after + 2 * timing.lost_grace < lease);
            // The tick notices a silent connection early enough to open another one.
            assert!(
                timing.heartbeat + timing.limits.statement + timing.limits.silence + lease / 8
                    < timing.stop_after
            );
            assert!(timing.limits.lock < timing.limits.statement);
        }
    }
}
