//! Fires the schedules whose time has come.

use super::TimeSlice;
use super::time_slice::Item;
use crate::job::due::{self, DueSchedule, FirePlan};
use crate::store::{self, Store};

impl Item for FirePlan {
    fn run(&self) -> Option<i64> {
        None
    }
}

/// Fires due schedules as long as there is time. A schedule that can't fire is logged and put off,
/// so it delays no other.
pub(crate) fn fire(store: &Store, slice: &mut TimeSlice) -> store::Result<()> {
    loop {
        let (plans, unreadable) = due::plan_fires(store.due_schedules()?);
        for why in &unreadable {
            log::error!("{why}");
        }
        // If the look-up returned as many schedules as it may, there may be more.
        let is_full = plans.len() as i64 >= store::FIRED_AT_ONCE;
        let is_due_again = plans.iter().any(FirePlan::is_due_again);
        let mut has_moved = false;
        for (place, batch) in due::into_batches(plans).into_iter().enumerate() {
            // The caller has checked that there is time for the first batch.
            if place > 0 && !slice.try_begin() {
                return Ok(());
            }
            let fire = |part: &[FirePlan]| fire_part(store, part);
            has_moved |= slice.work_off(batch, fire, |plan, why| put_off(store, plan.due, &why))?;
        }
        if !slice.try_go_on(has_moved, is_full || is_due_again) {
            return Ok(());
        }
    }
}

/// Fires some schedules, and logs the result of each. Returns whether any of them moved on to its
/// next time.
fn fire_part(store: &Store, part: &[FirePlan]) -> store::Result<bool> {
    let fired = store.fire(part.to_vec())?;
    for (place, runs) in &fired {
        if let Some(fire) = part.get(*place) {
            log_fired(fire, runs);
        }
    }
    Ok(!fired.is_empty())
}

/// Puts off a schedule whose runs the database rejects, and logs the error. Returns whether it
/// could be put off.
fn put_off(store: &Store, due: DueSchedule, why: &store::Error) -> store::Result<bool> {
    log::error!(job = due.name; "schedule of `{}` does not fire: {why}", due.label());
    match store.fire(vec![due::put_off(due)]) {
        Ok(put_off) => Ok(!put_off.is_empty()),
        // A schedule that can't be put off either must not keep runs from being claimed.
        Err(why) if why.may_be_about_one_row() => Ok(false),
        Err(why) => Err(why),
    }
}

/// Logs which runs a fire has queued, or why it has queued none.
fn log_fired(fire: &FirePlan, runs: &[i64]) {
    let (job, name) = (&fire.due.name, fire.due.label());
    if !runs.is_empty() {
        let runs: Vec<_> = runs.iter().map(|run| format!("run {run}")).collect();
        log::info!(job = job; "schedule {name}: fired, {}", runs.join(", "));
    } else if !fire.times.is_empty() {
        log::info!(job = job; "schedule {name}: not fired, its last run is not finished");
    } else if fire.missed != 0 {
        log::info!(job = job; "schedule {name}: not fired, its time was missed");
    } else if fire.next.is_none() && fire.put_off_until.is_none() {
        log::info!(job = job; "schedule {name}: ended");
    }
    // Otherwise the schedule was put off, or got its first time.
}
