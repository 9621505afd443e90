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

/// Enqueues jobs that follow others as long as there is time. Their runs are blocked, and other
/// jobs may follow them in turn.
fn enqueue_following(store: &Store, slice: &mut TimeSlice) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    let set_aside = |FollowingJob { job_type: job, .. }, why| {
        LOGGED.call_once(|| log::error!(job = job; "job {job} does not follow others: {why}"));
        Ok(false)
    };
    loop {
        let due = store.following_jobs()?;
        let enqueue = |part: &[_]| store.enqueue_following(part);
        if !slice.work_off(due, enqueue, set_aside)? || !slice.try_begin() {
            return Ok(());
        }
    }
}

/// Enqueues jobs that follow others, and releases or cancels blocked runs, as long as there is
/// time.
///
/// - `ended`: the runs that the caller has ended. Then this decides only about runs that wait for
///   them, and for runs that it cancels meanwhile, which it adds. It empties the list if the caller
///   need not try again.
/// - Without `ended`, this decides about all blocked runs: also those that a call with `ended` has
///   left, and those whose predecessors another program has ended.
pub(crate) fn release_followers(
    store: &Store,
    slice: &mut TimeSlice,
    mut ended: Option<&mut Vec<i64>>,
) -> store::Result<()> {
    let mut left_out: BTreeSet<_> = slice.state.slow().into_iter().collect();
    // Whether some run was left out because another session has locked it.
    let mut is_locked = false;
    // Whether runs may have been noted for jobs that follow theirs.
    let mut has_noted = true;
    loop {
        if std::mem::take(&mut has_noted) {
            enqueue_following(store, slice)?;
        }
        let due = store.due_followers(ended.as_deref().cloned(), to_vec(&left_out))?;
        if due.is_empty() {
            // The caller tries locked runs again. Only a wake tries rejected runs again.
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
        if !slice.work_off(due, decide, set_aside)? {
            // Nothing was changed, so other sessions have locked the runs that were not rejected.
            for run in tried {
                is_locked |= left_out.insert(run);
            }
        }
        if !slice.try_begin() {
            return Ok(());
        }
    }
}

fn to_vec(ids: &BTreeSet<i64>) -> Vec<i64> {
    ids.iter().copied().collect()
}
