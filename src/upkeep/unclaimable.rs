//! Due runs that can't be claimed. An unreadable run ends dead. A run that a trigger or a
//! constraint rejects is put off, or skipped by this tick if that is rejected too. So such runs do
//! not delay others.

use std::time::Duration;

use crate::store::{self, Bisection, ClaimFilter, DueRun, Kind, Store};
use crate::text::duration;

/// The number of due runs to search.
const SEARCHED: i64 = 5000;
/// The delay of a rejected run. The cause may be about other rows, and may pass.
const PUT_OFF: Duration = Duration::from_secs(300);
/// A tick skips at most this many runs. If more can't be put off, the cause is not the runs.
const SKIPPED: usize = 100;

/// A search for the due runs that can't be claimed. Steps are short, so leases are renewed in
/// between.
pub(crate) struct UnclaimableSearch {
    suspects: Bisection<DueRun>,
    /// The claim's error; `None` once a run has caused it.
    error: Option<store::Error>,
}

impl UnclaimableSearch {
    /// Starts a search among the due runs after a claim failed with `error`. Returns `error` if not
    /// even an empty claim works.
    pub(crate) fn among_due(
        store: &Store,
        worker: &str,
        wanted: &ClaimFilter,
        error: store::Error,
    ) -> store::Result<Self> {
        if store.try_claim(worker, Vec::new()).is_err() {
            return Err(error);
        }
        let suspects = Bisection::of(store.preview(worker, wanted, SEARCHED)?);
        Ok(Self { suspects, error: Some(error) })
    }

    /// Returns whether all runs were tried.
    pub(crate) fn is_done(&self) -> bool {
        self.suspects.is_done()
    }

    /// Tries to claim some of the runs. Sets a run aside that can't be claimed alone. The last step
    /// returns the claim's own error if no run caused it.
    pub(crate) fn step(
        &mut self,
        store: &Store,
        worker: &str,
        wanted: &mut ClaimFilter,
    ) -> store::Result<()> {
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
            self.error = None;
            set_aside(store, &run, why, &mut wanted.excluded_runs)?;
        }
        self.error.take_if(|_| self.suspects.is_done()).map_or(Ok(()), Err)
    }
}

/// Ends an unreadable run. Puts off any other run, and an unreadable run that can't be ended. A run
/// that can't be put off either is added to `skipped`.
fn set_aside(
    store: &Store,
    run: &DueRun,
    why: store::Error,
    skipped: &mut Vec<i64>,
) -> store::Result<()> {
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
        Err(error) if error.may_be_about_rows() && skipped.len() < SKIPPED => {
            log::error!("{subject}: {why}; {error}; this tick skips the run");
            skipped.push(run.id);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
