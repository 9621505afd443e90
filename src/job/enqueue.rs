//! The words of an enqueue: how long its key is taken, what a taken key does, which ends of other
//! runs it waits for, and the result. Pure.

use crate::text::words::words;

words! {
    /// How long the key of a run is taken.
    pub(crate) enum KeyScope {
        /// Until the run is pruned.
        Retained = "retained",
        /// Until the run has finished.
        Live = "live",
    }

    /// What an enqueue does if its key has a run.
    pub(crate) enum OnConflict {
        /// Returns the run if its job and payload are the same.
        Same = "same",
        /// Changes the waiting run.
        Replace = "replace",
        Error = "error",
    }

    /// What a run does if a run that it waits for ends without success.
    pub(crate) enum AfterRule {
        /// Waits for a retry that succeeds.
        Success = "success",
        /// Starts.
        AnyEnd = "any_end",
        /// Is cancelled.
        OrCancel = "or_cancel",
    }

    /// The result of an accepted enqueue.
    pub(crate) enum EnqueueResult {
        Enqueued = "enqueued",
        /// The key already had this run.
        Existing = "existing",
        Replaced = "replaced",
        /// The definition is full.
        Dropped = "dropped",
    }
}
