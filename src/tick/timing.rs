//! The durations of a tick, all derived from the lease. Pure.

use std::time::Duration;

use crate::store::Limits;

/// How often a lease is renewed at least, so that a request to cancel is seen soon.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Before a lease ends, what it protects must have ended: so long before that it is told to.
const MARGIN: Duration = Duration::from_secs(15);
/// The timeout of each last statement of a tick that runs nothing.
const PARTING: Duration = Duration::from_millis(500);

/// What follows from the length of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) lease: Duration,
    /// Between two renewals: at least three fit in a lease.
    pub(super) heartbeat: Duration,
    /// How long a worker's claim right lasts unrenewed.
    pub(super) right: Duration,
    /// From before the last successful renewal was sent to when the work must begin to end.
    pub(super) fence: Duration,
    /// Between SIGTERM and SIGKILL once the fence is reached: that of the command, and that of what it leaves behind.
    /// Both fit before the lease ends.
    pub(super) lost_grace: Duration,
    /// How long after the end of a lease a result, or a claim that was not started, is kept that could not be recorded
    /// or given back, because the database is away.
    pub(super) result_kept: Duration,
    /// A statement that takes longer would endanger the next renewal.
    pub(super) limits: Limits,
    /// The limits of a stopping tick that runs nothing.
    pub(super) parting: Limits,
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
            right: 3 * heartbeat,
            fence: lease - margin,
            lost_grace: Duration::from_secs(1).min(margin / 3),
            result_kept: 3 * lease,
            limits,
            parting: Limits {
                statement: PARTING.min(limits.statement),
                lock: (PARTING / 2).min(limits.lock),
                silence: PARTING.min(limits.silence),
                ..limits
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_lease_three_heartbeats_fit_and_the_work_is_dead_before_it_ends() {
        for seconds in [1, 5, 6, 60, 120, 86400] {
            let lease = Duration::from_secs(seconds);
            let timing = Timing::of(lease);
            assert!(timing.heartbeat * 3 <= lease);
            assert!(timing.fence + 2 * timing.lost_grace < lease);
            // A connection that goes silent is noticed, and there is time for another.
            assert!(timing.heartbeat + timing.limits.statement + timing.limits.silence + lease / 8 < timing.fence);
            assert!(timing.limits.lock < timing.limits.statement);
        }
    }
}
