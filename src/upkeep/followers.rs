//! Releases runs that wait for ended ones, if the statement that recorded the end could not:
//! another session had locked them.

use super::Turn;
use crate::store::{self, Store};

/// Ended runs whose followers are looked up at a time.
const ENDED_AT_ONCE: usize = 500;

/// Releases followers as long as there is time.
pub(super) fn release_followers(store: &Store, turn: &mut Turn) -> store::Result<()> {
    loop {
        let ended = store.due_followers(ENDED_AT_ONCE)?;
        let found = ended.len();
        let follow_up = |ids: &[i64]| store.follow_up(ids.to_vec());
        let has_changed = turn.work_off(ended, follow_up, |id, why| {
            log::error!("run {id}: runs that wait for it can't start: {why}");
            Ok(false)
        })?;
        if !turn.goes_on(has_changed, found == ENDED_AT_ONCE) {
            return Ok(());
        }
    }
}
