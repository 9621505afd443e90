//! Decides about blocked runs whose predecessors have ended.

use std::collections::BTreeSet;

use super::Turn;
use crate::store::{self, Store};

/// Releases or cancels blocked runs as long as there is time: those that wait for the runs of
/// `ended`, which the caller has ended, or all. The second also finds those that the first has
/// left, whose predecessors were ended without jobctl, and new ones. `ended` gets the cancelled
/// runs that others wait for, and is empty if the caller need not try again.
pub(crate) fn release_followers(
    store: &Store,
    turn: &mut Turn,
    mut ended: Option<&mut Vec<i64>>,
) -> store::Result<()> {
    let mut left_out: BTreeSet<_> = turn.state.slow().into_iter().collect();
    let mut is_locked = false;
    loop {
        let due = store.due_followers(ended.as_deref().cloned(), to_vec(&left_out))?;
        if due.is_empty() {
            // A wake tries rejected ones again, not the caller.
            if let (Some(ended), false) = (ended, is_locked) {
                ended.clear();
            }
            return Ok(());
        }
        let tried = due.clone();
        let decide = |ids: &[i64]| {
            let decided = store.decide_followers(ids.to_vec())?;
            if let Some(ended) = ended.as_deref_mut() {
                ended.extend(decided.followed);
            }
            Ok(decided.decides)
        };
        let set_aside = |id, why| {
            log::error!(run = id; "run {id} stays blocked: {why}");
            left_out.insert(id);
            Ok(false)
        };
        if !turn.work_off(due, decide, set_aside)? {
            // Other sessions have locked the runs that were not rejected.
            for run in tried {
                is_locked |= left_out.insert(run);
            }
        }
        if !turn.begins() {
            return Ok(());
        }
    }
}

fn to_vec(ids: &BTreeSet<i64>) -> Vec<i64> {
    ids.iter().copied().collect()
}
