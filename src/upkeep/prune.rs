//! Deletes old runs.

use crate::store::{Cause, OldRuns, Store};
use crate::text::plural;

/// Maximum of runs deleted per tick, in about 30 ms: 1.4 million a day with a tick a minute.
const PRUNED_AT_ONCE: i64 = 1000;

/// Deletes some of the `old` runs in the name of a worker. A failure is logged: it is not a failure
/// of the tick.
pub(crate) fn prune(store: &Store, worker: &str, old: &[OldRuns]) {
    let cause = Cause { host_user: worker.to_owned(), reason: None };
    let mut left = PRUNED_AT_ONCE;
    for old in old {
        match store.prune(*old, None, left, &cause, None) {
            Ok(pruned) => left -= pruned.len() as i64,
            Err(error) => {
                log::warn!("old runs are not deleted: {}", error.for_log());
                return;
            }
        }
    }
    if left < PRUNED_AT_ONCE {
        log::info!("{} pruned", plural::of(PRUNED_AT_ONCE - left, "old run"));
    }
}
