//! The wake: when it is due, what it asks the database, and what the answer means. It takes the
//! claim right, fires schedules, recovers lost runs, and searches for due runs that can't be
//! claimed.

use std::time::{Duration, Instant};

use super::{Machine, SentRequest};
use crate::tick::phase::Phase;
use crate::tick::request::Request;
use crate::upkeep::{FailedClaim, Woken};

/// A search for due runs that can't be claimed. While there is one, the tick claims nothing.
#[derive(Debug)]
pub(super) enum Search {
    None,
    /// The next wake begins it, because a claim failed.
    Begins(FailedClaim),
    /// The next wake continues it.
    Running,
}

impl Machine {
    /// Returns when to wake; `None`: not before something else happens.
    pub(super) fn wake_due(&self) -> Option<Instant> {
        if self.phase != Phase::Working {
            None
        } else if self.is_searching() {
            // The search must not delay results.
            if self.has_writes() { None } else { Some(self.next_wake) }
        } else if self.wakes_again {
            Some(self.next_wake)
        } else if self.claims.may_claim(self.now) {
            // A wake renews the claim right. Do not renew it just before the tick releases it.
            if self.claims.gives_up_right() { None } else { Some(self.next_wake) }
        } else {
            // Without the claim right, a wake asks for it when the next claim is due.
            self.claim_due()
        }
    }

    /// Whether a search for runs that can't be claimed goes on, or begins at the next wake.
    pub(super) fn is_searching(&self) -> bool {
        !matches!(self.search, Search::None)
    }

    /// Makes a wake due now that begins a search for due runs that can't be claimed.
    pub(super) fn search_unclaimable(&mut self, failed: FailedClaim) {
        (self.search, self.next_wake) = (Search::Begins(failed), self.now);
    }

    /// Makes the request of a wake, and sets the time of the next one. `right_lasts` is how long
    /// the claim right lasts without another wake.
    pub(super) fn wake(&mut self, right_lasts: Duration) -> Request {
        let (now, answer) = (self.now, self.link.longest_answer());
        self.next_wake = now + self.timing.heartbeat;
        self.wakes_again = false;
        // How long the wake may take before the next renewal would come too late.
        let renewed_by = now + self.timing.answer_limit() + 3 * answer;
        let spare = match self.leases.first_end() {
            Some(end) => self.timing.job_stops(end).saturating_duration_since(renewed_by),
            None => Duration::MAX,
        };
        // The wake fires, recovers and expires, with two transactions each, and other statements
        // must not wait for longer than these need.
        let needed = 6 * answer;
        let mut until = now + needed.min(spare).max(self.timing.heartbeat / 4);
        if let Some(phase_ends) = self.phase_ends {
            until = until.min(phase_ends);
        }
        // Recording a slow answer is another transaction, and the leases matter more. A tick that
        // has no time now records it at its end.
        let slow = if spare >= needed { self.link.take_slow_answer() } else { None };
        // The answer says whether a search goes on.
        let failed_claim = match std::mem::replace(&mut self.search, Search::None) {
            Search::Begins(failed) => Some(failed),
            Search::None | Search::Running => None,
        };
        Request::Wake(self.claims.wake_request(
            right_lasts,
            self.leases.tokens(),
            until,
            failed_claim,
            slow,
        ))
    }

    /// Reacts to the answer to a wake: notes whether the tick has the claim right. If the wake has
    /// left work and the tick holds no runs, makes another wake due now.
    pub(super) fn woken(&mut self, sent: &SentRequest, woken: Woken) {
        if woken.has_more && self.leases.is_empty() {
            (self.wakes_again, self.next_wake) = (true, self.now);
        }
        self.claims.woken(self.now, woken, sent.at + sent.right_lasts);
    }
}
