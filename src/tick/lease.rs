//! The leases of a tick. One statement renews all of them. The tick counts a lease from before that
//! statement was sent, so it stops the job before another worker may claim the run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::Tick;
use super::bisect::Bisection;
use crate::execute::Stop;
use crate::job::attempt::StopReason;
use crate::store::{self, Claimed, Kind, LeaseState, Pending, Renewed, Token};

/// A claimed run that is executed, waits for a thread, or has an unrecorded result.
struct HeldRun {
    stop: Arc<Stop>,
    /// The database rejects the renewal of its lease.
    is_rejected: bool,
    /// The end of its lease.
    expires: Instant,
}

#[derive(Default)]
pub(super) struct Leases {
    /// By claim, not by run: after a lost lease, this tick may claim the same run again.
    held: BTreeMap<Token, HeldRun>,
    /// Unstarted claims that must be released, and the ends of their leases.
    pub(super) unstarted: Vec<(Token, Instant)>,
}

impl Leases {
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.unstarted.is_empty()
    }

    /// Returns the ids of held and of unstarted runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = i64> {
        self.held.keys().chain(self.unstarted.iter().map(|(claim, _)| claim)).map(|claim| claim.id)
    }

    /// Asks executions of earlier claims of the same run to stop: their leases are lost.
    pub(super) fn hold(&mut self, run: &Claimed, stop: Arc<Stop>, expires: Instant) {
        let first = Token { id: run.id, attempt: 0, claimed_at: DateTime::<Utc>::MIN_UTC };
        let others = self.held.range(first..).take_while(|(claim, _)| claim.id == run.id);
        others.for_each(|(_, held)| held.stop.ask(StopReason::LeaseLost));
        self.held.insert(run.token(), HeldRun { stop, is_rejected: false, expires });
    }

    pub(super) fn expiry(&self, run: &Claimed) -> Option<Instant> {
        self.held.get(&run.token()).map(|held| held.expires)
    }

    /// Removes this claim and returns when its lease ends.
    pub(super) fn remove(&mut self, run: &Claimed) -> Option<Instant> {
        self.held.remove(&run.token()).map(|held| held.expires)
    }

    pub(super) fn release_later(
        &mut self,
        claims: impl IntoIterator<Item = Token>,
        expires: Instant,
    ) {
        self.unstarted.extend(claims.into_iter().map(|claim| (claim, expires)));
    }

    /// Drops unreleased claims whose lease ended longer than `kept` ago. Until then a release may
    /// still succeed: while the database is down, no other tick can recover the run. If one did,
    /// the claim's token no longer matches, and the release changes nothing.
    pub(super) fn drop_expired(&mut self, kept: Duration) {
        let now = Instant::now();
        self.unstarted.retain(|(claim, expires)| {
            let is_kept = now < *expires + kept;
            if !is_kept {
                log::warn!("run {}: claim not released, lease lost", claim.id);
            }
            is_kept
        });
    }

    /// Returns when the first result or claim is dropped, `kept` after the end of its lease.
    pub(super) fn first_dropped(&self, kept: Duration) -> Option<Instant> {
        let held = self.held.values().map(|held| held.expires);
        let first = held.chain(self.unstarted.iter().map(|(_, expires)| *expires)).min();
        first.map(|expires| expires + kept)
    }

    pub(super) fn for_each_stop(&self, what: impl Fn(&Stop)) {
        self.held.values().for_each(|held| what(&held.stop));
    }
}

/// A renewal in flight.
pub(super) struct Renewal {
    pub(super) answer: Pending<Vec<Renewed>>,
    held: Vec<Token>,
    sent: Instant,
}

impl Tick {
    /// Renews all leases and the claim right when they are due.
    pub(super) fn send_renewal(&mut self) -> store::Result<Option<Renewal>> {
        let sent = Instant::now();
        let Some(store) = self.connection.store.as_ref().filter(|_| sent >= self.next_heartbeat)
        else {
            return Ok(None);
        };
        // Skip leases that have just begun: a tick may hold thousands of very short runs.
        let fresh = sent + self.timing.lease - self.timing.heartbeat / 5;
        let stale =
            self.leases.held.iter().filter(|(_, run)| run.expires < fresh && !run.is_rejected);
        let held: Vec<_> = stale.map(|(claim, _)| *claim).collect();
        if held.is_empty() {
            return self.renew_claim_right(sent).map(|()| None);
        }
        let (lease, wake_up) = (self.timing.lease, self.wake_up());
        let answer = store.heartbeat(&self.holder.worker, &held, lease, wake_up);
        Ok(Some(Renewal { answer, held, sent }))
    }

    pub(super) fn renewed(
        &mut self,
        renewal: &Renewal,
        answer: store::Result<Vec<Renewed>>,
    ) -> store::Result<()> {
        let renewed = match answer {
            // One rejected run must not cost the others their leases.
            Err(error) if error.may_be_about_rows() => self.renew_by_bisection(&renewal.held),
            answer => answer.map(|answers| self.extend_leases(answers, renewal.sent)),
        };
        if renewed.is_err() {
            // Retry soon. Until then, the tick records results.
            self.next_heartbeat = Instant::now() + self.timing.heartbeat / 5;
            return renewed;
        }
        self.renew_claim_right(renewal.sent)
    }

    /// Renews all leases except those that the database rejects. A lease that a trigger or a
    /// constraint rejected is not tried again. Any other rejection is returned as an error, after
    /// the other leases are renewed.
    fn renew_by_bisection(&mut self, held: &[Token]) -> store::Result<()> {
        let mut unexpected = Ok(());
        let mut search = Bisection::of(held.to_vec());
        while !search.is_done() {
            let rejected = search.step(|part| {
                let Some(store) = &self.connection.store else { return Ok(()) };
                let sent = Instant::now();
                let answers = store.renew(&self.holder.worker, part, self.timing.lease)?;
                self.extend_leases(answers, sent);
                Ok(())
            })?;
            match rejected {
                None => {}
                Some((_, why)) if why.kind != Kind::Data => unexpected = Err(why),
                Some((claim, why)) => {
                    log::error!("run {}: {why}; its lease will run out", claim.id);
                    if let Some(run) = self.leases.held.get_mut(&claim) {
                        run.is_rejected = true;
                    }
                }
            }
        }
        unexpected
    }

    /// Extends the leases whose renewal was sent at `sent`. Stops runs that were cancelled or lost.
    fn extend_leases(&mut self, answers: Vec<Renewed>, sent: Instant) {
        for (claim, answer) in answers {
            let Some(run) = self.leases.held.get_mut(&claim) else { continue };
            match answer {
                LeaseState::Renewed | LeaseState::CancelRequested => {
                    run.stop.extend(sent + self.timing.fence);
                    run.expires = sent + self.timing.lease;
                    if answer == LeaseState::CancelRequested {
                        run.stop.ask(StopReason::Cancelled);
                    }
                }
                LeaseState::Busy => {}
                LeaseState::Lost => run.stop.ask(StopReason::LeaseLost),
            }
        }
    }

    fn renew_claim_right(&mut self, sent: Instant) -> store::Result<()> {
        self.next_heartbeat = sent + self.timing.heartbeat;
        match self.may_claim {
            // The database has just answered, so this statement does not delay stopping the jobs.
            true if self.is_stopping() => self.release_claim_right(),
            true => self.wake(),
            false => Ok(()),
        }
    }
}
