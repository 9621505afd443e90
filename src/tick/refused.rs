//! Due runs that can't be claimed. An unreadable run ends dead. A run that a trigger or a
//! constraint rejects is put off, or skipped by this tick if that is rejected too. So such runs do
//! not delay others.

use std::time::Duration;

use super::bisect::Bisection;
use crate::duration;
use crate::store::{self, Due, Kind, Store, Wanted};

/// Due runs among which a refused one is looked for.
const SIFTED: i64 = 5000;
/// Before one is claimed again. What refuses it may be about other rows, and pass.
const PUT_OFF: Duration = Duration::from_secs(300);
/// A tick skips at most this many runs. If more can't be put off, the cause is not the runs.
const LEFT_OUT: usize = 100;

/// A search for the due runs that can't be claimed. Steps are short, so leases are renewed in
/// between.
pub(super) struct RefusedRuns {
    suspects: Bisection<Due>,
    /// The claim's error; `None` once a run has caused it.
    refusal: Option<store::Error>,
}

impl RefusedRuns {
    /// Starts a search among the due runs after a claim failed with `refusal`.
    ///
    /// # Errors
    /// The database's; `refusal` itself if not even an empty claim works.
    pub(super) fn among_due(
        store: &Store,
        worker: &str,
        wanted: &Wanted,
        refusal: store::Error,
    ) -> store::Result<Self> {
        if store.try_claim(worker, Vec::new()).is_err() {
            return Err(refusal);
        }
        let suspects = Bisection::of(store.preview(wanted, SIFTED)?);
        Ok(Self { suspects, refusal: Some(refusal) })
    }

    pub(super) fn is_done(&self) -> bool {
        self.suspects.is_done()
    }

    /// Tries to claim some of the runs. Ends or puts off a run that can't be claimed alone, or
    /// leaves it out of what is `wanted`.
    ///
    /// # Errors
    /// The database's; after the last step also the claim's own error if no run caused it.
    pub(super) fn step(&mut self, store: &Store, worker: &str, wanted: &mut Wanted) -> store::Result<()> {
        let found = self.suspects.step(|part| {
            let runs = part.iter().map(|run| run.id).collect();
            store.try_claim(worker, runs).map_err(|mut error| {
                // A statement that takes too long may succeed with fewer runs.
                if error.kind == Kind::Busy && part.len() > 1 {
                    error.kind = Kind::Data;
                }
                error
            })
        })?;
        if let Some((run, why)) = found {
            self.refusal = None;
            set_aside(store, &run, why, &mut wanted.left_out_runs)?;
        }
        match self.refusal.take_if(|_| self.suspects.is_done()) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }
}

/// Ends an unreadable run. Puts off any other run, and an unreadable run that can't be ended. A run
/// that can't be put off either is added to `left_out`.
fn set_aside(store: &Store, run: &Due, why: store::Error, left_out: &mut Vec<i64>) -> store::Result<()> {
    let subject = format!("run {} {}", run.id, run.job_type.escape_debug());
    if let Err(why) = store.read(vec![run.id])
        && why.may_be_about_rows()
        && store.end_unreadable(run.id, why.to_string()).is_ok()
    {
        log::error!("{subject}: {why}; dead");
        return Ok(());
    }
    match store.put_off(run.id, why.to_string(), PUT_OFF) {
        Ok(()) => log::error!("{subject}: {why}; put off for {}", duration::show(PUT_OFF)),
        Err(refusal) if refusal.may_be_about_rows() && left_out.len() < LEFT_OUT => {
            log::error!("{subject}: {why}; {refusal}; this tick leaves the run out");
            left_out.push(run.id);
        }
        Err(refusal) => return Err(refusal),
    }
    Ok(())
}
