//! Fires the schedules whose time has come: what runs they come to, and what becomes of those that can't fire.

use crate::fires;
use crate::store::{self, DueSchedule, Kind, Planned, Store};

/// Fires what is due. What can't be fired is put off, said in the log, and holds up no other.
///
/// # Errors
/// The database's.
pub(crate) fn fire(store: &Store) -> store::Result<()> {
    loop {
        let due = store.due_schedules()?;
        let (fires, broken) = fires::plan(&due);
        broken.iter().for_each(|why| log::error!("{why}"));
        let mut moved = false;
        for fires in fires::shares(fires) {
            moved |= fire_share(store, &due, fires)?;
        }
        // Where none could be moved on, another tick or a person has them.
        if !moved || due.len() < usize::try_from(store::FIRED_AT_ONCE).unwrap_or(0) {
            return Ok(());
        }
    }
}

/// Fires some of those that are `due`, and says whether any was moved on. Where one has runs that can't be stored,
/// it is put off and the others are fired.
fn fire_share(store: &Store, due: &[DueSchedule], fires: Vec<Planned>) -> store::Result<bool> {
    let find = |id| due.iter().find(|one| one.id == id);
    let fired = match (store.fire(fires.clone()), &fires[..]) {
        (Err(error), [refused]) if error.kind == Kind::Data => {
            let Some(refused) = find(refused.id) else { return Err(error) };
            log::error!("schedule of `{}` does not fire: {error}", refused.name);
            return Ok(!store.fire(vec![fires::put_off(refused)])?.is_empty());
        }
        (Err(error), _) if error.kind == Kind::Data => {
            let mut alone = fires.into_iter().map(|fire| fire_share(store, due, vec![fire]));
            return alone.try_fold(false, |moved, more| Ok(moved | more?));
        }
        (fired, _) => fired?,
    };
    for (id, runs) in &fired {
        let name = find(*id).map_or("", |one| one.name.as_str());
        let fire = fires.iter().find(|fire| fire.id == *id);
        match fire.map_or((0, 0), |fire| (fire.times.len(), fire.missed)) {
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
    Ok(!fired.is_empty())
}
