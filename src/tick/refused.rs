//! Due runs that the database does not let become running: somebody's trigger or constraint refuses them. They are
//! put off, so that they hold up no other.

use std::time::Duration;

use super::bisect::Bisection;
use crate::duration;
use crate::store::{self, Due, Store, Wanted};

/// Due runs among which a refused one is looked for.
const SIFTED: i64 = 5000;
/// Before one is claimed again. What refuses it may be about other rows, and pass.
const PUT_OFF: Duration = Duration::from_secs(300);

/// A search for the due runs that can't be claimed. Each step is short: leases are renewed in between.
pub(super) struct RefusedRuns {
    suspects: Bisection<Due>,
    /// The claim's own error, until a run is to blame for it.
    refusal: Option<store::Error>,
}

impl RefusedRuns {
    /// Looks for what is due when a claim was refused with this error.
    ///
    /// # Errors
    /// The database's.
    pub(super) fn among_due(store: &Store, wanted: &Wanted, refusal: store::Error) -> store::Result<Self> {
        let suspects = Bisection::of(store.preview(wanted, SIFTED)?);
        Ok(Self { suspects, refusal: Some(refusal) })
    }

    pub(super) fn is_done(&self) -> bool {
        self.suspects.is_done()
    }

    /// Tries to claim some of the runs, and puts off one that can't be claimed alone.
    ///
    /// # Errors
    /// The database's; at the end also the claim's own error, where no run is to blame for it.
    pub(super) fn step(&mut self, store: &Store, worker: &str) -> store::Result<()> {
        let attempt = |part: &[Due]| store.try_claim(worker, part.iter().map(|run| run.id).collect());
        if let Some((run, why)) = self.suspects.step(attempt)? {
            self.refusal = None;
            let wait = duration::show(PUT_OFF);
            log::error!("run {} {}: {why}; put off for {wait}", run.id, run.job_type.escape_debug());
            store.put_off(run.id, why.to_string(), PUT_OFF)?;
        }
        match self.refusal.take_if(|_| self.suspects.is_done()) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }
}
