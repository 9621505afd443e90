//! Finds due runs that can't be claimed, so that they do not delay others. An unreadable run ends
//! dead. A run that a trigger or a constraint rejects, or whose claim takes too long, is put off.
//! If that fails, too, this tick skips the run.

use std::collections::HashMap;
use std::time::Duration;

use crate::store::{
    self, AsideEnd, BatchSize, Bisection, ClaimFilter, DueRun, Holder, SetAside, Store,
};
use crate::text::duration;

/// A search tries at most this many due runs.
const SEARCHED: i64 = 5000;
/// A search for a run whose claim takes too long tries at most this many due runs, each alone.
const SEARCHED_IF_SLOW: usize = 100;
/// Of these runs, it tries at most this many of each job. More are not necessary: a claim of a
/// single run took too long, so that run is among the first of its job.
const SEARCHED_OF_JOB: usize = 3;
/// How long a rejected run is put off. It is tried again, because the cause may pass.
const PUT_OFF: Duration = Duration::from_secs(300);
/// A tick skips at most this many runs. If more can't be put off, the cause is not the runs.
const SKIPPED: usize = 10_000;
/// A search logs this many runs, and counts the others.
const LOGGED: usize = 20;

/// A claim that failed, perhaps because of a run.
#[derive(Debug)]
pub(crate) struct FailedClaim {
    pub(crate) error: store::Error,
    /// Whether claims go on without the runs that may be the cause. Then it is not an error if the
    /// search finds no cause.
    pub(crate) goes_on: bool,
}

/// A search for the due runs that can't be claimed. Steps are short, so leases are renewed in
/// between.
pub(crate) struct UnclaimableSearch {
    /// The runs that are not tried yet.
    suspects: Bisection<DueRun>,
    /// Whether the failed claim took too long. Then each suspect is claimed alone, as a trial.
    is_slow: bool,
    /// The error of the failed claim. `None`: a run has caused it, or claims go on anyway.
    error: Option<store::Error>,
    /// How many runs were set aside.
    found: usize,
}

impl UnclaimableSearch {
    /// Starts a search among the due runs after a claim failed. Returns the error of that claim if
    /// not even a claim without runs works: then no run is the cause.
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
            let mut kept_of_job = HashMap::<_, usize>::new();
            due.retain(|run| {
                let kept = kept_of_job.entry(run.job_type.clone()).or_default();
                *kept += 1;
                *kept <= SEARCHED_OF_JOB
            });
            due.truncate(SEARCHED_IF_SLOW);
            size = BatchSize::ONE;
        }
        let suspects = Bisection::sized(due, size);
        let error = if goes_on { None } else { Some(error) };
        Ok(Self { suspects, is_slow, error, found: 0 })
    }

    /// Returns whether all runs were tried.
    pub(crate) fn is_done(&self) -> bool {
        self.suspects.is_done()
    }

    /// Tries the next runs, and sets those aside that can't be claimed: puts them off, or marks
    /// unreadable ones as dead. Excludes the runs that can't be put off in `wanted`, so that this
    /// tick skips them. The last step fails with the error of the claim if no run caused it.
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
                for run in part {
                    store.try_claim(holder, wanted, run.id)?;
                }
            } else {
                let runs = part.iter().map(|run| run.id).collect();
                aside = store.set_aside(worker, runs, PUT_OFF, None)?;
            }
            Ok(())
        })?;
        match failed {
            None => {}
            Some((run, why)) if why.is_too_slow => {
                aside = set_aside_slow(store, worker, run.id, why)?;
            }
            // The database rejects this run. Another search finds such runs; this one is for slow
            // runs.
            Some(_) if is_slow => {}
            // `Store::set_aside` finds rejected runs itself, so no run is the cause.
            Some((_, error)) => return Err(error),
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
        if !self.is_done() {
            return Ok(());
        }
        if self.found > LOGGED {
            log::error!("cannot claim {} more runs, for reasons as above", self.found - LOGGED);
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Puts off a run whose claim takes too long, with the error of that claim. If it takes too long to
/// put the run off, too, the run is kept.
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

/// Returns words for why a run could not be claimed, and what became of it.
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
