//! Records results and claims due runs, both in one transaction. The tick's thread judges ended
//! attempts meanwhile.

use std::time::{Duration, Instant};

use super::put_off::UnclaimableSearch;
use super::{ClaimWhen, Tick};
use crate::store::{self, Claim, Claimed, Kind, LockedRuns, PendingStep, StepResult};

/// After a failed request, or a job that this host could not start, the tick claims nothing for
/// this long.
pub(super) const CLAIM_PAUSE: Duration = Duration::from_secs(1);

/// A request in flight.
pub(super) struct FinishAndClaim {
    pub(super) asked: PendingStep,
    /// How many of the oldest results it records.
    results: usize,
    claim: Option<Claim>,
    sent: Instant,
}

impl Tick {
    /// Sends the results of ended attempts, and claims runs to start now or within the prefetch
    /// window.
    pub(super) fn finish_and_claim(&mut self) -> store::Result<Option<FinishAndClaim>> {
        let results = self.results.batch();
        if results > 0 {
            self.claim_when = ClaimWhen::Now;
        }
        let held = self.leases.held().saturating_sub(results + self.results.blocked.len());
        let claim = match self.next_claim(held) {
            // Another session has locked the worker's row, or the query failed. Send the results
            // first; the next claim, without results, reports the error.
            Err(error) if results > 0 && error.kind != Kind::Lost => {
                self.no_claim_before = Instant::now() + CLAIM_PAUSE;
                None
            }
            claim => claim?,
        };
        let Some(store) = self.connection.store.as_ref().filter(|_| results > 0 || claim.is_some())
        else {
            return Ok(None);
        };
        let sent = Instant::now();
        let ended = self.results.oldest(results);
        let (locked_runs, wake_up) = (self.locked_runs, self.wake_up());
        let asked =
            store.finish_and_claim(&self.holder, ended, claim.clone(), locked_runs, wake_up);
        Ok(Some(FinishAndClaim { asked, results, claim, sent }))
    }

    pub(super) fn finished_and_claimed(
        &mut self,
        request: FinishAndClaim,
        answer: store::Result<StepResult>,
    ) -> store::Result<()> {
        let FinishAndClaim { asked, results, claim, sent } = request;
        let took = sent.elapsed();
        let expires = sent + self.timing.lease;
        self.prefetch.observe_answer(took);
        self.batching_until = Instant::now() + self.prefetch.window();
        if let Err(error) = &answer {
            if error.kind == Kind::Lost {
                self.leases.release_later(asked.abandon(), expires);
            }
            // The claim may have caused the error, so send the results without a claim next time.
            self.no_claim_before = Instant::now() + CLAIM_PAUSE;
        }
        match answer {
            // One locked run must not delay the other results and the claims.
            Err(error) if error.kind == Kind::Busy && results > 0 => {
                self.locked_runs = LockedRuns::Skip;
                return Err(error);
            }
            // One rejected value must not delay the other results, nor one run the other claims.
            Err(error) if error.may_be_about_rows() => {
                if results > 0 {
                    self.results_rejected(results)?;
                } else if let (Some(claim), Some(store)) = (claim, &self.connection.store) {
                    let worker = &self.holder.worker;
                    let search = UnclaimableSearch::among_due(store, worker, &claim.wanted, error)?;
                    self.search = Some(search);
                }
            }
            answer => {
                let StepResult { recorded, locked, taken, claiming } = answer?;
                self.connection.succeeded();
                self.results.recorded(results, &recorded, &locked, &mut self.leases);
                if self.results.blocked.is_empty() {
                    self.locked_runs = LockedRuns::Wait;
                }
                if let Some(claim) = claim {
                    self.claimed(&claim, sent, claiming, &taken);
                    if self.is_stopping() {
                        // A signal came before the answer, so these runs must not start.
                        let claims = taken.claimed.iter().map(Claimed::token);
                        self.leases.release_later(claims, expires);
                    } else {
                        self.start(taken.claimed, sent);
                    }
                }
            }
        }
        Ok(())
    }
}
