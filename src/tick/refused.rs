//! Due runs that the database does not let become running: somebody's trigger or constraint refuses them. They are
//! put off, so that they hold up no other.

use std::time::Duration;

use super::{Tick, halves};
use crate::duration;
use crate::store::{self, Due, Wanted};

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
        let worker = &self.holder.worker;
        let mut attempt = |part: &[Due]| store.try_claim(worker, part.iter().map(|run| run.id).collect());
        let found = halves::refused(&due, &mut attempt)?;
        for (run, why) in &found {
            let wait = duration::show(PUT_OFF);
            log::error!("run {} {}: {why}; put off for {wait}", run.id, run.job_type.escape_debug());
            store.put_off(run.id, why.to_string(), PUT_OFF)?;
        }
        if found.is_empty() { Err(refusal) } else { Ok(()) }
    }
}
