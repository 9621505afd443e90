//! Records stored results. If another session has locked the row of a run when its job ends, the
//! tick stores the result in `job_locked_runs`. Later, a wake records the result: writes it into
//! the run and its history. The wake also deletes the rows of `job_locked_runs` whose claims are
//! over.

use std::sync::Once;

use log::Level;

use super::TimeSlice;
use crate::job::status::Status;
use crate::store::{self, FencingToken, Store, StoredResult};

/// How many stored results are looked up in one wake.
const AT_ONCE: usize = 500;

/// Records stored results as long as there is time: each in its own transaction, so that a rejected
/// result stops no other.
pub(super) fn record_stored_results(store: &Store, slice: &mut TimeSlice) -> store::Result<()> {
    static LOGGED: Once = Once::new();
    for claim in store.stored_results(AT_ONCE)? {
        if slice.state.is_slow(claim.id) {
            continue;
        }
        if !slice.try_begin() {
            break;
        }
        match store.record_stored(claim) {
            // No result was stored, or another session still locks the run.
            Ok(None) => {}
            Ok(Some(stored)) => {
                slice.has_changed = true;
                log_stored(claim, &stored);
            }
            Err(error) if error.may_be_about_one_row() => {
                let FencingToken { id, attempt, .. } = claim;
                slice.state.rejected(id, &error);
                LOGGED.call_once(|| log::error!(run = id, attempt = attempt; "run {id}: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Logs a stored result that was recorded, or came too late.
fn log_stored(claim: FencingToken, StoredResult { worker, recorded }: &StoredResult) {
    let FencingToken { id, attempt, .. } = claim;
    let stored = format!("stored result of worker {}", worker.escape_debug());
    let (level, what) = match recorded {
        Some(Status::Dead) => (Level::Warn, format!("{stored} recorded, dead")),
        Some(status) => (Level::Info, format!("{stored} recorded, {status}")),
        None => (Level::Warn, format!("lease lost, {stored} not recorded")),
    };
    let status = recorded.map_or("lost", Status::as_str);
    log::log!(
        level,
        run = id, attempt = attempt, worker = worker, status = status;
        "run {id} attempt {attempt}: {what}"
    );
}
