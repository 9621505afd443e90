//! Due runs that the database does not let become running: somebody's trigger or constraint refuses them. They are
//! put off, so that they hold up no other.

use std::time::Duration;

use super::Tick;
use crate::duration;
use crate::store::{self, Due, Kind, Store, Wanted};

/// Due runs among which a refused one is looked for.
const SIFTED: i64 = 5000;
/// Before one is claimed again. What refuses it may be about other rows, and pass.
const PUT_OFF: Duration = Duration::from_secs(300);

impl Tick {
    /// Puts off what can't be claimed.
    ///
    /// # Errors
    /// The database's; also `refusal`, the claim's own error, where no run is to blame for it.
    pub(super) fn put_off_refused(&self, wanted: &Wanted, refusal: store::Error) -> store::Result<()> {
        let Some(store) = &self.connection.store else { return Ok(()) };
        let due = store.preview(wanted, SIFTED)?;
        if sift(store, &self.holder.worker, &due)? { Ok(()) } else { Err(refusal) }
    }
}

/// Finds what is refused by halves, and puts it off. Says whether there was any.
fn sift(store: &Store, worker: &str, due: &[Due]) -> store::Result<bool> {
    match (store.try_claim(worker, due.iter().map(|run| run.id).collect()), due) {
        (Err(error), [run]) if error.kind == Kind::Data => {
            let wait = duration::show(PUT_OFF);
            log::error!("run {} {}: {error}; put off for {wait}", run.id, run.job_type.escape_debug());
            store.put_off(run.id, error.to_string(), PUT_OFF).map(|()| true)
        }
        (Err(error), [_, _, ..]) if error.kind == Kind::Data => {
            let (first, second) = due.split_at(due.len() / 2);
            Ok(sift(store, worker, first)? | sift(store, worker, second)?)
        }
        (tried, _) => tried.map(|()| false),
    }
}
