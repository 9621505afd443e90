//! The status of a run, and what can be held. Pure.

use crate::text::words::words;

words! {
    /// The words of the `status` column.
    pub(crate) enum Status {
        /// Waits for other runs.
        Blocked = "blocked",
        /// Waits for its first attempt, or for one after an interruption, a snooze or a retry.
        Queued = "queued",
        /// Held by a tick until its lease ends.
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
    /// Returns whether the run has ended, and only an operator can start it again.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Dead | Self::Cancelled)
    }
}
