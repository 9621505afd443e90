//! Cancels the waiting runs that expired. No claim takes them, so a delay does no harm.

use std::sync::Once;

use crate::store::{self, Store};
use crate::text::plural;

/// Expired runs that are looked up at a time.
const EXPIRED_AT_ONCE: usize = 500;

/// Cancels expired runs as long as there is time.
pub(super) fn expire(store: &Store, has_time: impl Fn() -> bool) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    let mut total = 0;
    loop {
        let expired = store.expired(EXPIRED_AT_ONCE)?;
        let (found, mut ended) = (expired.len(), 0);
        let rejected = store::bisect(expired, &has_time, |ids| {
            ended += store.expire(ids)?;
            Ok(())
        })?;
        if let Some((id, why)) = rejected.first() {
            LOGGED.call_once(|| log::error!("run {id}: {why}"));
        }
        total += ended;
        // If none was cancelled, other sessions have locked them or the database rejects them.
        if ended == 0 || found < EXPIRED_AT_ONCE {
            break;
        }
    }
    if total > 0 {
        log::info!("{} expired", plural::of(total as i64, "run"));
    }
    Ok(())
}
