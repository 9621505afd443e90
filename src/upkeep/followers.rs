//! Enqueues jobs that follow others, and decides about blocked runs whose predecessors have ended.

use std::collections::BTreeSet;
use std::sync::Once;

use super::TimeSlice;
use super::time_slice::Item;
use crate::store::{self, FollowingJob, Store};

impl Item for FollowingJob {
    fn run(&self) -> Option<i64> {
        None
    }
}

/// Enqueues jobs that follow others, as long as there is time. The new runs are blocked, and other
/// jobs may follow their jobs in turn, so this looks for such jobs until it finds none.
fn enqueue_following(store: &Store, slice: &mut TimeSlice) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    let set_aside = |FollowingJob { job_type: job, .. }, why| {
        LOGGED.call_once(|| log::error!(job = job; "job {job} does not follow others: {why}"));
        Ok(false)
    };
    loop {
        let due = store.following_jobs()?;
        let enqueue = |part: &[_]| store.enqueue_following(part);
        let has_changed = slice.work_off(due, enqueue, set_aside)?;
        if !has_changed || !slice.try_begin() {
            return Ok(());
        }
    }
}

/// Enqueues jobs that follow others, and releases or cancels blocked runs whose predecessors have
/// ended, as long as there is time.
///
/// - With `ended`, the runs that the caller has ended, this decides only about the blocked runs
///   that wait for them. If it cancels some of these, it adds them to the list, because other runs
///   may wait for them in turn. It empties the list if the caller need not try again.
/// - Without `ended`, this decides about all blocked runs: also about those that a call with
///   `ended` has left, and those whose predecessors another program has ended.
pub(crate) fn release_followers(
    store: &Store,
    slice: &mut TimeSlice,
    mut ended: Option<&mut Vec<i64>>,
) -> store::Result<()> {
    // The blocked runs that this call does not try again: slow, rejected and locked ones.
    let mut left_out: BTreeSet<_> = slice.state.slow().into_iter().collect();
    // Whether a run was left out because another session has locked it.
    let mut is_locked = false;
    // Whether ended runs may have been noted for jobs that follow theirs.
    let mut has_noted = true;
    loop {
        if has_noted {
            enqueue_following(store, slice)?;
            has_noted = false;
        }
        let left_out_ids = left_out.iter().copied().collect();
        let due = store.due_followers(ended.as_deref().cloned(), left_out_ids)?;
        if due.is_empty() {
            // The caller must try locked runs again. Rejected runs wait for the next wake.
            if !is_locked && let Some(ended) = ended {
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
        let has_changed = slice.work_off(due, decide, set_aside)?;
        if !has_changed {
            // Other sessions have locked the tried runs, except those that were rejected.
            for run in tried {
                let was_locked = left_out.insert(run);
                is_locked |= was_locked;
            }
        }
        if !slice.try_begin() {
            return Ok(());
        }
    }
}
