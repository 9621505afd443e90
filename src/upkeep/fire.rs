//! Fires the schedules whose time has come.

use crate::schedule::due::{self, FirePlan};
use crate::store::{self, Bisection, Store};

/// Fires due schedules as long as there is time. A schedule that can't fire is logged and put off,
/// so it delays no other.
pub(crate) fn fire(store: &Store, has_time: impl Fn() -> bool) -> store::Result<()> {
    loop {
        let (fires, broken) = due::plan_fires(store.due_schedules()?);
        let due = fires.len();
        broken.iter().for_each(|why| log::error!("{why}"));
        let mut moved = false;
        for fires in due::into_batches(fires) {
            moved |= fire_batch(store, fires, &has_time)?;
        }
        // If no schedule moved on, other sessions have locked them.
        if !moved || due < usize::try_from(store::FIRED_AT_ONCE).unwrap_or(0) {
            return Ok(());
        }
    }
}

/// Fires some schedules. Returns whether any of them moved on to its next time. A schedule whose
/// runs the database rejects is put off.
fn fire_batch(
    store: &Store,
    fires: Vec<FirePlan>,
    has_time: impl Fn() -> bool,
) -> store::Result<bool> {
    let mut moved = false;
    let mut search = Bisection::of(fires);
    while !search.is_done() && has_time() {
        let rejected = search.step(|part| {
            for (id, runs) in store.fire(part.to_vec())? {
                moved = true;
                if let Some(fire) = part.iter().find(|fire| fire.due.id == id) {
                    log_fired(fire, &runs);
                }
            }
            Ok(())
        })?;
        if let Some((FirePlan { due, .. }, why)) = rejected {
            log::error!("schedule of `{}` does not fire: {why}", due.name);
            match store.fire(vec![due::put_off(due)]) {
                Ok(put_off) => moved |= !put_off.is_empty(),
                // The schedule can't be put off either. It must not keep runs from being claimed.
                Err(why) if why.may_be_about_rows() => {}
                Err(why) => return Err(why),
            }
        }
    }
    Ok(moved)
}

fn log_fired(fire: &FirePlan, runs: &[i64]) {
    let name = &fire.due.name;
    match (fire.times.len(), fire.missed) {
        _ if !runs.is_empty() => {
            let runs: Vec<_> = runs.iter().map(|run| format!("run {run}")).collect();
            log::info!("schedule {name}: fired, {}", runs.join(", "));
        }
        // It was put off, or got its first time.
        (0, 0) => {}
        (0, _) => log::info!("schedule {name}: not fired, its time was missed"),
        _ => log::info!("schedule {name}: not fired, its last run is not finished"),
    }
}
