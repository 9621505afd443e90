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

/// Checks a W3C trace context, as `jobctl.wrong_value` does.
pub(crate) fn traceparent(text: &str) -> Result<String, String> {
    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let parts: Vec<_> = text.split('-').collect();
    // Its parts: the version, the ids of the trace and of the parent, and flags. The standard
    // forbids the version ff and ids of zeros.
    let is_valid = parts.iter().map(|part| part.len()).eq([2, 32, 16, 2])
        && parts.iter().all(|part| part.chars().all(is_hex))
        && parts[0] != "ff"
        && parts[1..3].iter().all(|id| id.contains(|c| c != '0'));
    if !is_valid {
        return Err(format!("not a trace context; write one as in {EXAMPLE}"));
    }
    Ok(text.to_owned())
}
