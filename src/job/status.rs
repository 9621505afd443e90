//! The status of a run, and what can be held. Pure.

use crate::text::words::words;

words! {
    /// The words of the `status` column.
    pub(crate) enum Status {
        /// Waits for other runs.
        Blocked = "blocked",
        /// Waits for its first attempt, or for one after an interruption, a snooze or a retry.
        Queued = "queued",
        /// Claimed by a tick, until its lease ends.
        Running = "running",
        Succeeded = "succeeded",
        /// Waits for its next attempt after a failure.
        Failed = "failed",
        /// Failed for good.
        Dead = "dead",
        Cancelled = "cancelled",
    }

    /// What a hold keeps from starting: the words of the `scope` column.
    pub(crate) enum HoldScope {
        All = "all",
        Job = "job",
        Queue = "queue",
        Worker = "worker",
    }
}

impl Status {
    /// Returns whether the run is queued or failed: a claim takes it when it is due.
    pub(crate) fn is_pending(self) -> bool {
        matches!(self, Self::Queued | Self::Failed)
    }

    /// Returns whether the run waits for an attempt, due or not: it is pending, or blocked.
    pub(crate) fn is_waiting(self) -> bool {
        match self {
            Self::Blocked | Self::Queued | Self::Failed => true,
            Self::Running | Self::Succeeded | Self::Dead | Self::Cancelled => false,
        }
    }

    /// Returns whether the run has ended, and only an operator can start it again.
    pub(crate) fn is_final(self) -> bool {
        self != Self::Running && !self.is_waiting()
    }

    /// Returns the statuses for which `is_wanted` is true.
    pub(crate) fn that(is_wanted: impl FnMut(&Self) -> bool) -> Vec<Self> {
        Self::ALL.into_iter().filter(is_wanted).collect()
    }
}
