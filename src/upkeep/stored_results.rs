//! Records the results of runs whose rows were locked when they ended. Also deletes the rows of
//! `job_locked_runs` whose claims are over.

use std::sync::Once;

use log::Level;

use super::Turn;
use crate::job::status::Status;
use crate::store::{self, FencingToken, Store, StoredResult};

/// Stored results that are looked up in one wake.
const AT_ONCE: usize = 500;

/// Records stored results as long as there is time, each in its own transaction: a rejected one
/// stops no other.
pub(super) fn record_stored_results(store: &Store, turn: &mut Turn) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    for claim in store.stored_results(AT_ONCE)? {
        if turn.state.is_slow(claim.id) {
            continue;
        }
        if !turn.try_begin() {
            break;
        }
        match store.record_stored(claim) {
            Ok(None) => {}
            Ok(Some(StoredResult { worker, recorded })) => {
                turn.has_changed = true;
                let (id, attempt, name) = (claim.id, claim.attempt, worker.escape_debug());
                let stored = format!("stored result of worker {name}");
                let (level, what) = match recorded {
                    Some(status) => {
                        let level = if status == Status::Dead { Level::Warn } else { Level::Info };
                        (level, format!("{stored} recorded, {status}"))
                    }
                    None => (Level::Warn, format!("lease lost, {stored} not recorded")),
                };
                let status = recorded.map_or("lost", Status::as_str);
                log::log!(
                    level,
                    run = id, attempt = attempt, worker = worker, status = status;
                    "run {id} attempt {attempt}: {what}"
                );
            }
            Err(error) if error.may_be_about_one_row() => {
                let FencingToken { id, attempt, .. } = claim;
                turn.state.rejected(id, &error);
                LOGGED.call_once(|| log::error!(run = id, attempt = attempt; "run {id}: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
