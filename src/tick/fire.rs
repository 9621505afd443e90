//! Fires the schedules whose time has come: what runs they come to, and what becomes of those that can't fire.

use super::bisect::Bisection;
use crate::fires;
use crate::store::{self, DueSchedule, Planned, Store};

/// Fires what is due as long as there is time. What can't be fired is put off, said in the log, and
/// holds up no other.
///
/// # Errors
/// The database's.
pub(crate) fn fire(store: &Store, has_time: impl Fn() -> bool) -> store::Result<()> {
    loop {
        let due = store.due_schedules()?;
        let (fires, broken) = fires::plan(&due);
        broken.iter().for_each(|why| log::error!("{why}"));
        let mut moved = false;
        for fires in fires::shares(fires) {
            moved |= fire_share(store, &due, fires, &has_time)?;
        }
        // Where none could be moved on, another tick or a person has them.
        if !moved || due.len() < usize::try_from(store::FIRED_AT_ONCE).unwrap_or(0) {
            return Ok(());
        }
    }
}

/// Fires some of those that are `due`, and says whether any was moved on. Where one has runs that can't be stored,
/// it is put off and the others are fired.
fn fire_share(
    store: &Store,
    due: &[DueSchedule],
    fires: Vec<Planned>,
    has_time: impl Fn() -> bool,
) -> store::Result<bool> {
    let find = |id| due.iter().find(|one| one.id == id);
    let mut moved = false;
    let mut search = Bisection::of(fires);
    while !search.is_done() && has_time() {
        let refused = search.step(|part| {
            for (id, runs) in store.fire(part.to_vec())? {
                moved = true;
                if let (Some(one), Some(fire)) = (find(id), part.iter().find(|fire| fire.id == id)) {
                    tell(&one.name, fire, &runs);
                }
            }
            Ok(())
        })?;
        if let Some((one, why)) = refused.and_then(|(fire, why)| Some((find(fire.id)?, why))) {
            log::error!("schedule of `{}` does not fire: {why}", one.name);
            match store.fire(vec![fires::put_off(one)]) {
                Ok(put_off) => moved |= !put_off.is_empty(),
                // The schedule can't be put off either. It must not keep runs from being claimed.
                Err(why) if why.may_be_about_rows() => {}
                Err(why) => return Err(why),
            }
        }
    }
    Ok(moved)
}

/// Says in the log what came of a schedule.
fn tell(name: &str, fire: &Planned, runs: &[i64]) {
    match (fire.times.len(), fire.missed) {
        _ if !runs.is_empty() => {
            let runs: Vec<_> = runs.iter().map(|run| format!("run {run}")).collect();
            log::info!("schedule {name}: fired, {}", runs.join(", "));
        }
        // It is put off, or gets its first time.
        (0, 0) => {}
        (0, _) => log::info!("schedule {name}: not fired, its time was missed"),
        _ => log::info!("schedule {name}: not fired, its last run is not finished"),
    }
}
