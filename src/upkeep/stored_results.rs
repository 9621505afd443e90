//! Records the results of runs whose rows were locked when they ended. Also deletes the rows of
//! `job_locked_runs` whose claims are over.

use std::sync::Once;

use super::Turn;
use crate::store::{self, Store, StoredResult};

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
        if !turn.begins() {
            break;
        }
        match store.record_stored(claim) {
            Ok(None) => {}
            Ok(Some(StoredResult { worker, recorded })) => {
                turn.has_changed = true;
                let (id, attempt, worker) = (claim.id, claim.attempt, worker.escape_debug());
                match recorded {
                    Some(status) => log::info!(
                        "run {id} attempt {attempt}: stored result of worker {worker} recorded, {}",
                        status.as_str()
                    ),
                    None => log::warn!(
                        "run {id} attempt {attempt}: lease lost, stored result of worker {worker} \
                         not recorded"
                    ),
                }
            }
            Err(error) if error.may_be_about_one_row() => {
                turn.state.rejected(claim.id, &error);
                LOGGED.call_once(|| log::error!("run {}: {error}", claim.id));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
