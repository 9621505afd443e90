//! Due runs that can't be claimed. An unreadable run ends dead. A run that a trigger or a
//! constraint rejects, or whose claim takes too long, is put off, or skipped by this tick if that
//! fails too. So such runs do not delay others.

use std::collections::HashMap;
use std::time::Duration;

use crate::store::{
    self, AsideEnd, BatchSize, Bisection, ClaimFilter, DueRun, Holder, SetAside, Store,
};
use crate::text::duration;

/// The number of due runs to search.
const SEARCHED: i64 = 5000;
/// The number of due runs to search for a run whose claim takes too long. Each is tried alone.
const SEARCHED_IF_SLOW: usize = 100;
/// The number of these runs of each job: a claim of a single run took too long, so this run is
/// among the first ones of its job.
const SEARCHED_OF_JOB: usize = 3;
/// The delay of a rejected run. The cause may be about other rows, and may pass.
const PUT_OFF: Duration = Duration::from_secs(300);
/// A tick skips at most this many runs. If more can't be put off, the cause is not the runs.
const SKIPPED: usize = 10_000;
/// A search logs this many runs, and counts the others.
const LOGGED: usize = 20;

/// A claim that failed, perhaps because of a run.
#[derive(Debug)]
pub(crate) struct FailedClaim {
    pub(crate) error: store::Error,
    /// Claims go on without the runs that may be the cause. So it is not a failure if the search
    /// finds no such run.
    pub(crate) goes_on: bool,
}

/// A search for the due runs that can't be claimed. Steps are short, so leases are renewed in
/// between.
pub(crate) struct UnclaimableSearch {
    suspects: Bisection<DueRun>,
    /// The claim took too long, so each suspect is claimed for a trial.
    is_slow: bool,
    /// The claim's error, unless a run is known to have caused it or claims go on anyway.
    error: Option<store::Error>,
    /// How many runs were set aside.
    found: usize,
}

impl UnclaimableSearch {
    /// Starts a search among the due runs after a claim failed. Returns its error if not even an
    /// empty claim works.
    pub(crate) fn start(
        store: &Store,
        holder: &Holder,
        wanted: &ClaimFilter,
        FailedClaim { error, goes_on }: FailedClaim,
    ) -> store::Result<Self> {
        if store.claim_nothing().is_err() {
            return Err(error);
        }
        let is_slow = error.is_too_slow;
        let mut due = store.preview(&holder.worker, wanted, SEARCHED)?;
        let mut size = BatchSize::default();
        if is_slow {
            let mut of_job = HashMap::<_, usize>::new();
            due.retain(|run| {
                let seen = of_job.entry(run.job_type.clone()).or_default();
                *seen += 1;
                *seen <= SEARCHED_OF_JOB
            });
            due.truncate(SEARCHED_IF_SLOW);
            size = BatchSize::ONE;
        }
        let suspects = Bisection::sized(due, size);
        Ok(Self { suspects, is_slow, error: (!goes_on).then_some(error), found: 0 })
    }

    /// Returns whether all runs were tried.
    pub(crate) fn is_done(&self) -> bool {
        self.suspects.is_done()
    }

    /// Tries to claim some of the runs, and sets those aside that can't be claimed. Adds the runs
    /// that could not even be put off to `wanted`, so that this tick skips them. The last step
    /// fails with the error of the claim if no run caused it.
    pub(crate) fn step(
        &mut self,
        store: &Store,
        holder: &Holder,
        wanted: &mut ClaimFilter,
    ) -> store::Result<()> {
        let (mut jobs, mut aside) = (HashMap::new(), Vec::new());
        let (is_slow, worker) = (self.is_slow, &*holder.worker);
        let failed = self.suspects.step(|part| {
            jobs = part.iter().map(|run| (run.id, run.job_type.clone())).collect();
            if is_slow {
                return part.iter().try_for_each(|run| store.try_claim(holder, wanted, run.id));
            }
            let runs = part.iter().map(|run| run.id).collect();
            aside = store.set_aside(worker, runs, PUT_OFF, None)?;
            Ok(())
        })?;
        match failed {
            Some((run, why)) if why.is_too_slow => {
                aside = set_aside_slow(store, worker, run.id, why)?;
            }
            // `Store::set_aside` finds rejected runs itself, so no run is the cause.
            Some((_, error)) if !is_slow => return Err(error),
            // This search is for slow runs. Another one finds the runs that the database rejects.
            Some(_) | None => {}
        }
        for run in aside {
            self.error = None;
            self.found += 1;
            if self.found <= LOGGED {
                let (id, job, outcome) = (run.id, &jobs[&run.id], outcome(&run));
                log::error!(run = id, job = job; "run {id} {}: {outcome}", job.escape_debug());
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
            log::error!("cannot claim {} more runs, for reasons as above", self.found - LOGGED);
        }
        self.error.take_if(|_| self.suspects.is_done()).map_or(Ok(()), Err)
    }
}

/// Puts off a run whose claim takes too long for this reason. If that takes too long, too, the run
/// is kept.
fn set_aside_slow(
    store: &Store,
    worker: &str,
    run: i64,
    why: store::Error,
) -> store::Result<Vec<SetAside>> {
    match store.set_aside(worker, vec![run], PUT_OFF, Some(&why)) {
        Err(error) if error.is_too_slow => {
            Ok(vec![SetAside { id: run, why, end: AsideEnd::Kept(error) }])
        }
        aside => aside,
    }
}

/// Returns words for what became of a run.
fn outcome(run: &SetAside) -> String {
    match &run.end {
        AsideEnd::PutOff => {
            format!("{}; put off for {}", run.why.for_log(), duration::show(PUT_OFF))
        }
        AsideEnd::Dead => format!("{}; dead", run.why.for_log()),
        AsideEnd::Kept(error) => {
            format!("{}; {}; this tick skips the run", run.why.for_log(), error.for_log())
        }
    }
}
