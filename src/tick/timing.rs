//! The durations of a tick, all derived from the lease. Pure.

use std::time::{Duration, Instant};

use super::request::{AnswerTimeout, Request};
use crate::store::Timeouts;

/// The longest time between two renewals of a lease, so that a request to cancel is seen soon.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Stop the job this long before its lease ends.
const MARGIN: Duration = Duration::from_secs(15);
/// A tick that stops waits at least this long for an answer.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// The durations of a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) lease: Duration,
    /// The time between two renewals. At least three fit in a lease.
    pub(super) heartbeat: Duration,
    /// A job must stop this long after its claim or its last successful renewal was sent.
    pub(super) stop_after: Duration,
    /// The time between SIGTERM and SIGKILL for a job whose lease is not renewed: once for its
    /// command, and once for the processes that the command leaves behind. Both times are over
    /// before the lease ends.
    pub(super) lost_grace: Duration,
    /// How long an unrecorded result or an unreleased claim is kept after the end of its lease,
    /// because the database may come back.
    pub(super) result_kept: Duration,
    /// The timeouts of each statement, so short that a slow one does not endanger the next renewal.
    pub(super) timeouts: Timeouts,
}

impl Timing {
    /// Derives all durations from the lease, so that an answer and a retry fit into it.
    pub(super) fn of(lease: Duration) -> Self {
        let margin = MARGIN.min(lease / 4);
        let heartbeat = HEARTBEAT.min(lease / 3);
        let timeouts = Timeouts {
            statement: Timeouts::USUAL.statement.min(lease / 6),
            lock: Timeouts::USUAL.lock.min(lease / 12),
            silence: Timeouts::USUAL.silence.min(lease / 12),
            allows_seqscan: false,
            ..Timeouts::USUAL
        };
        Self {
            lease,
            heartbeat,
            stop_after: lease - margin,
            lost_grace: Duration::from_secs(1).min(margin / 3),
            result_kept: 3 * lease,
            timeouts,
        }
    }

    /// Returns when a job must stop whose lease ends at `end`, unless the lease is renewed before.
    pub(super) fn job_stops(&self, end: Instant) -> Instant {
        let margin = self.lease - self.stop_after;
        end - margin
    }

    /// Returns how long an answer may take: the statement, and the silence of a server that should
    /// have ended it.
    pub(super) fn answer_limit(&self) -> Duration {
        self.timeouts.statement + self.timeouts.silence
    }

    /// Returns the timeouts of a request that is sent `now`.
    pub(super) fn timeouts_of(
        &self,
        request: &Request,
        timeout: AnswerTimeout,
        now: Instant,
    ) -> Timeouts {
        let interrupted = timeout.interrupted.max(LAST_ANSWER);
        let silence = self.timeouts.silence + timeout.extra;
        let mut timeouts = Timeouts { interrupted, silence, ..self.timeouts };
        if matches!(request, Request::Store(_)) {
            // Output is optional, so it must not delay other requests for long.
            timeouts = timeouts.short();
        }
        let Some(until) = timeout.until else { return timeouts };
        // Half of the time for the statement, and half for the silence after it: together they are
        // the longest wait.
        let half = until.saturating_duration_since(now).max(LAST_ANSWER) / 2;
        Timeouts {
            statement: half.min(timeouts.statement),
            lock: (half / 2).min(timeouts.lock),
            silence: half.min(timeouts.silence),
            ..timeouts
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
                timing.heartbeat + timing.timeouts.statement + timing.timeouts.silence + lease / 8
                    < timing.stop_after
            );
            assert!(timing.timeouts.lock < timing.timeouts.statement);
            assert!(!timing.timeouts.allows_seqscan);
        }
    }

    #[test]
    fn an_answer_is_awaited_as_long_as_the_phase_and_the_request_allow() {
        let (timing, now) = (Timing::of(Duration::from_secs(60)), Instant::now());
        let timeouts = |until: Option<f64>, interrupted, extra, request: &Request| {
            let seconds = Duration::from_secs_f64;
            let until = until.map(|until| now + seconds(until));
            let (interrupted, extra) = (seconds(interrupted), seconds(extra));
            let timeout = AnswerTimeout { until, interrupted, extra };
            let of = timing.timeouts_of(request, timeout, now);
            [of.statement, of.lock, of.silence, of.interrupted].map(|it| it.as_secs_f64())
        };
        let (prune, store) = (Request::Prune, Request::Store(Vec::new()));
        let [statement, lock, silence] =
            [timing.timeouts.statement, timing.timeouts.lock, timing.timeouts.silence]
                .map(|it| it.as_secs_f64());
        assert_eq!(timeouts(None, 3.0, 0.5, &prune), [statement, lock, silence + 0.5, 3.0]);
        assert_eq!(timeouts(None, 0.0, 0.0, &store), [statement / 4.0, lock / 4.0, silence, 1.0]);
        assert_eq!(timeouts(Some(4.0), 1.0, 0.0, &prune), [2.0, 1.0, 2.0, 1.0]);
        assert_eq!(timeouts(Some(0.0), 1.0, 0.0, &prune), [0.5, 0.25, 0.5, 1.0]);
        let most = timeouts(Some(600.0), 1.0, 0.5, &prune);
        assert_eq!(most, [statement, lock, silence + 0.5, 1.0]);
    }
}
