//! What a tick with work to do asks over and over: results in, due runs out, one transaction after the other.
//! The tick's thread judges what ends meanwhile.

use std::time::{Duration, Instant};

use super::refused::RefusedRuns;
use super::{Look, Tick};
use crate::store::{self, Claim, Claimed, Exchanged, Exchanging, Kind, OfLocked};

/// After an exchange that failed, or a job that this host could not start, nothing is claimed for so long.
pub(super) const CLAIM_PAUSE: Duration = Duration::from_secs(1);

/// One that is under way.
pub(super) struct Exchange {
    pub(super) asked: Exchanging,
    /// It records so many of the oldest results.
    results: usize,
    claim: Option<Claim>,
    sent: Instant,
}

impl Tick {
    /// Sends what has ended, and asks for what can start at once and a blink ahead.
    pub(super) fn exchange(&mut self) -> store::Result<Option<Exchange>> {
        let results = self.results.batch();
        if results > 0 {
            self.look = Look::Now;
        }
        let claim = match self.next_claim(self.leases.held().saturating_sub(results + self.results.blocked())) {
            // Another session has locked the worker's row, or the query failed. Send the results
            // first; the next claim, without results, reports the error.
            Err(error) if results > 0 && error.kind != Kind::Lost => {
                self.claims_from = Instant::now() + CLAIM_PAUSE;
                None
            }
            claim => claim?,
        };
        let Some(store) = self.connection.store.as_ref().filter(|_| results > 0 || claim.is_some()) else {
            return Ok(None);
        };
        let sent = Instant::now();
        let ended = self.results.oldest(results);
        let asked = store.exchange(&self.holder, ended, claim.clone(), self.of_locked, self.bell());
        Ok(Some(Exchange { asked, results, claim, sent }))
    }

    /// Takes in the answer to an exchange.
    pub(super) fn exchanged(&mut self, exchange: Exchange, answer: store::Result<Exchanged>) -> store::Result<()> {
        let Exchange { asked, results, claim, sent } = exchange;
        let took = sent.elapsed();
        let expires = sent + self.timing.lease;
        self.pace.observe_answer(took);
        self.rested_until = Instant::now() + self.pace.blink();
        if let Err(error) = &answer {
            if error.kind == Kind::Lost {
                self.leases.give_back(asked.abandon(), expires);
            }
            // Should it be the claim that fails, then results must not wait for it: they go alone next time.
            self.claims_from = Instant::now() + CLAIM_PAUSE;
        }
        match answer {
            // One locked run must not keep the others and the claims waiting either.
            Err(error) if error.kind == Kind::Busy && results > 0 => {
                self.of_locked = OfLocked::PassOver;
                return Err(error);
            }
            // One value that PostgreSQL refuses must not cost the others their results, nor one run their claims.
            Err(error) if error.may_be_about_rows() => {
                if results > 0 {
                    self.results_refused(results)?;
                } else if let (Some(claim), Some(store)) = (claim, &self.connection.store) {
                    let search = RefusedRuns::among_due(store, &self.holder.worker, &claim.wanted, error)?;
                    self.refused = Some(search);
                }
            }
            answer => {
                let Exchanged { recorded, locked, taken, claiming } = answer?;
                self.connection.serves();
                self.results.let_go(results, &recorded, &locked, &mut self.leases);
                if self.results.blocked() == 0 {
                    self.of_locked = OfLocked::Wait;
                }
                if let Some(claim) = claim {
                    self.learn(&claim, sent, claiming, &taken);
                    if self.is_stopping() {
                        // The signal came while they were on their way.
                        self.leases.give_back(taken.claimed.iter().map(Claimed::token), expires);
                    } else {
                        self.start(taken.claimed, sent);
                    }
                }
            }
        }
        Ok(())
    }
}
