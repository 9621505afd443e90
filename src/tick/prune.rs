//! What a tick does last: deletes a piece of the old history, so that nobody has to think of it.

use super::{Phase, Tick};
use crate::count;

/// Runs deleted per tick at most, in about 30 ms: with a tick a minute, 1.4 million a day.
const PRUNED_AT_ONCE: i64 = 1000;

impl Tick {
    /// Deletes what is old, when all work is done and others may claim already. That it can't is no
    /// failure of the tick.
    pub(super) fn prune(&self) {
        let (Some(store), Phase::Working | Phase::Draining, None) = (&self.connection.store, self.phase, &self.failure)
        else {
            return;
        };
        let mut left = PRUNED_AT_ONCE;
        for old in &self.plan.prune {
            match store.prune(*old, None, left) {
                Ok(pruned) => left -= pruned.len() as i64,
                Err(error) => {
                    log::warn!("old runs are not deleted: {}", error.for_log());
                    return;
                }
            }
        }
        match PRUNED_AT_ONCE - left {
            0 => {}
            runs => log::info!("{} pruned", count::of(runs, "old run")),
        }
    }
}
