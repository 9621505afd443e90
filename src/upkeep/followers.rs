//! Enqueues jobs that follow others, and decides about blocked runs whose predecessors have ended.

use std::collections::BTreeSet;
use std::sync::Once;

use super::Turn;
use super::turn::Item;
use crate::store::{self, FollowingJob, Store};

impl Item for FollowingJob {
    fn run(&self) -> Option<i64> {
        None
    }
}

/// Enqueues jobs that follow others as long as there is time. Their runs are blocked, and other
/// jobs may follow them in turn.
fn enqueue_following(store: &Store, turn: &mut Turn) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    let set_aside = |FollowingJob { job_type: job, .. }, why| {
        LOGGED.call_once(|| log::error!(job = job; "job {job} does not follow others: {why}"));
        Ok(false)
    };
    loop {
        let due = store.following_jobs()?;
        let enqueue = |part: &[_]| store.enqueue_following(part);
        if !turn.work_off(due, enqueue, set_aside)? || !turn.try_begin() {
            return Ok(());
        }
    }
}

/// Enqueues jobs that follow others, and releases or cancels blocked runs, as long as there is
/// time. With `ended`, only blocked runs that wait for these runs, which the caller has ended.
/// Without, all blocked runs: also those that a call with `ended` has left, and those whose
/// predecessors another program has ended. `ended` gets the cancelled runs that others wait for,
/// and is empty if the caller need not try again.
pub(crate) fn release_followers(
    store: &Store,
    turn: &mut Turn,
    mut ended: Option<&mut Vec<i64>>,
) -> store::Result<()> {
    let mut left_out: BTreeSet<_> = turn.state.slow().into_iter().collect();
    let mut is_locked = false;
    let mut has_noted = true;
    loop {
        if std::mem::take(&mut has_noted) {
            enqueue_following(store, turn)?;
        }
        let due = store.due_followers(ended.as_deref().cloned(), to_vec(&left_out))?;
        if due.is_empty() {
            // A wake tries rejected runs again, not the caller.
            if let (Some(ended), false) = (ended, is_locked) {
                ended.clear();
            }
            return Ok(());
        }
        let tried = due.clone();
        let decide = |ids: &[i64]| {
            let decided = store.decide_followers(ids.to_vec())?;
            has_noted |= !decided.followed.is_empty();
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
        if !turn.try_begin() {
            return Ok(());
        }
    }
}

fn to_vec(ids: &BTreeSet<i64>) -> Vec<i64> {
    ids.iter().copied().collect()
}
