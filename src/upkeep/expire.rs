//! Cancels the waiting runs that expired. No claim takes them, so a delay does no harm.

use std::sync::Once;

use super::TimeSlice;
use crate::store::{self, Store};
use crate::text::plural;

/// Expired runs that are looked up at a time.
const EXPIRED_AT_ONCE: usize = 500;

/// Cancels expired runs as long as there is time.
pub(super) fn expire(store: &Store, slice: &mut TimeSlice) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    let mut total = 0;
    let expire = |ids: &[i64]| {
        let ended = store.expire(ids)?;
        total += ended;
        Ok(ended > 0)
    };
    let set_aside = |id, why| {
        LOGGED.call_once(|| log::error!(run = id; "run {id}: {why}"));
        Ok(false)
    };
    slice.work_through(EXPIRED_AT_ONCE, |limit| store.expired(limit), expire, set_aside)?;
    if total > 0 {
        log::info!("{} expired", plural::of(total as i64, "run"));
    }
    Ok(())
}
