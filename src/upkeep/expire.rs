//! Cancels the pending runs that expired. No claim takes such a run, so a delay does no harm.

use std::sync::Once;

use super::TimeSlice;
use crate::store::{self, Store};
use crate::text::plural;

/// How many expired runs are looked up at a time.
const EXPIRED_AT_ONCE: usize = 500;

/// Cancels expired runs as long as there is time, and logs how many.
pub(super) fn expire(store: &Store, slice: &mut TimeSlice) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    let mut total = 0;
    let look_up = |limit| store.expired(limit);
    let expire = |ids: &[i64]| {
        let ended = store.expire(ids)?;
        total += ended;
        let has_changed = ended > 0;
        Ok(has_changed)
    };
    let set_aside = |id, why| {
        LOGGED.call_once(|| log::error!(run = id; "run {id}: {why}"));
        let has_changed = false;
        Ok(has_changed)
    };
    slice.work_through(EXPIRED_AT_ONCE, look_up, expire, set_aside)?;
    if total > 0 {
        log::info!("{} expired", plural::of(total as i64, "run"));
    }
    Ok(())
}
