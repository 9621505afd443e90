//! Due runs that can't be claimed. An unreadable run ends dead. A run that a trigger or a
//! constraint rejects is put off, or skipped by this tick if that is rejected too. So such runs do
//! not delay others.

use std::collections::HashMap;
use std::time::Duration;

use crate::store::{self, AsideEnd, Bisection, ClaimFilter, DueRun, SetAside, Store};
use crate::text::duration;

/// The number of due runs to search.
const SEARCHED: i64 = 5000;
/// The delay of a rejected run. The cause may be about other rows, and may pass.
const PUT_OFF: Duration = Duration::from_secs(300);
/// A tick skips at most this many runs. If more can't be put off, the cause is not the runs.
const SKIPPED: usize = 10_000;
/// A search logs this many runs, and counts the others.
const LOGGED: usize = 20;

/// A search for the due runs that can't be claimed. Steps are short, so leases are renewed in
/// between.
pub(crate) struct UnclaimableSearch {
    suspects: Bisection<DueRun>,
    /// The claim's error; `None` once a run has caused it.
    error: Option<store::Error>,
    /// How many runs were set aside.
    found: usize,
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
        if store.claim_nothing().is_err() {
            return Err(error);
        }
        let suspects = Bisection::of(store.preview(worker, wanted, SEARCHED)?);
        Ok(Self { suspects, error: Some(error), found: 0 })
    }

    /// Returns whether all runs were tried.
    pub(crate) fn is_done(&self) -> bool {
        self.suspects.is_done()
    }

    /// Tries to claim some of the runs, and sets those aside that can't be claimed. The last step
    /// returns the claim's own error if no run caused it.
    pub(crate) fn step(
        &mut self,
        store: &Store,
        worker: &str,
        wanted: &mut ClaimFilter,
    ) -> store::Result<()> {
        let (mut jobs, mut aside) = (HashMap::new(), Vec::new());
        let failed = self.suspects.step(|part| {
            jobs = part.iter().map(|run| (run.id, run.job_type.clone())).collect();
            let runs = part.iter().map(|run| run.id).collect();
            aside = store.set_aside(worker, runs, PUT_OFF)?;
            Ok(())
        })?;
        if let Some((_, error)) = failed {
            return Err(error);
        }
        for run in aside {
            self.error = None;
            self.found += 1;
            if self.found <= LOGGED {
                log::error!("run {} {}: {}", run.id, jobs[&run.id].escape_debug(), end(&run));
            }
            match run.end {
                AsideEnd::Kept(error) if wanted.excluded_runs.len() >= SKIPPED => {
                    return Err(error);
                }
                AsideEnd::Kept(_) => wanted.excluded_runs.push(run.id),
                AsideEnd::PutOff | AsideEnd::Dead => {}
            }
        }
        if self.is_done() && self.found > LOGGED {
            log::error!("{} more runs cannot be claimed, for such reasons", self.found - LOGGED);
        }
        self.error.take_if(|_| self.suspects.is_done()).map_or(Ok(()), Err)
    }
}

/// Says what became of a run.
fn end(run: &SetAside) -> String {
    match &run.end {
        AsideEnd::PutOff => format!("{}; put off for {}", run.why, duration::show(PUT_OFF)),
        AsideEnd::Dead => format!("{}; dead", run.why),
        AsideEnd::Kept(error) => format!("{}; {error}; this tick skips the run", run.why),
    }
}
