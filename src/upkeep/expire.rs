//! Cancels the waiting runs that expired. No claim takes them, so a delay does no harm.

use std::sync::Once;

use super::Turn;
use crate::store::{self, Store};
use crate::text::plural;

/// Expired runs that are looked up at a time.
const EXPIRED_AT_ONCE: usize = 500;

/// Cancels expired runs as long as there is time.
pub(super) fn expire(store: &Store, turn: &mut Turn) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    let mut total = 0;
    loop {
        let expired = store.expired(EXPIRED_AT_ONCE)?;
        let found = expired.len();
        let expire = |ids: &[i64]| {
            let ended = store.expire(ids)?;
            total += ended;
            Ok(ended > 0)
        };
        let has_ended = turn.work_off(expired, expire, |id, why| {
            LOGGED.call_once(|| log::error!("run {id}: {why}"));
            Ok(false)
        })?;
        if !turn.goes_on(has_ended, found == EXPIRED_AT_ONCE) {
            break;
        }
    }
    if total > 0 {
        log::info!("{} expired", plural::of(total as i64, "run"));
    }
    Ok(())
}
