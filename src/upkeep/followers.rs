//! Decides about blocked runs that no other statement could decide about: they are new, or another
//! session had locked them when the runs that they wait for ended.

use std::collections::BTreeSet;

use super::Turn;
use crate::store::{self, Store};

/// Runs whose followers are looked up at a time.
const AT_ONCE: usize = 500;

/// Releases or cancels blocked runs as long as there is time. One statement follows a chain of
/// cancelled runs for ten links, and leaves the next ones to the next statement.
pub(super) fn release_followers(store: &Store, turn: &mut Turn) -> store::Result<()> {
    let follow_up = |ids: &[i64]| store.follow_up(ids.to_vec());
    let set_aside = |id, why| {
        log::error!(run = id; "run {id}: runs that wait for it can't start: {why}");
        Ok(false)
    };
    // Each run once: another session may have locked its followers.
    let mut tried = BTreeSet::new();
    loop {
        let mut due = store.due_followers(AT_ONCE)?;
        due.retain(|run| tried.insert(*run));
        if !turn.work_off(due, follow_up, set_aside)? || !turn.begins() {
            return Ok(());
        }
    }
}
