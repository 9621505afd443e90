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
    /// Returns when to wake.
    pub(super) fn wake_due(&self) -> Option<Instant> {
        if self.phase != Phase::Working {
            None
        } else if self.is_searching() {
            // The search must not delay results.
            (!self.has_writes()).then_some(self.next_wake)
        } else if self.wakes_again {
            Some(self.next_wake)
        } else if self.claims.may_claim(self.now) {
            (!self.claims.gives_up_right()).then_some(self.next_wake)
        } else {
            // A wake takes the place of the claim: it asks for the claim right.
            self.claim_due()
        }
    }

    pub(super) fn is_searching(&self) -> bool {
        !matches!(self.search, Search::None)
    }

    /// Begins a search for due runs that can't be claimed.
    pub(super) fn search_unclaimable(&mut self, failed: FailedClaim) {
        (self.search, self.next_wake) = (Search::Begins(failed), self.now);
    }

    /// Makes the request of a wake, and sets the time of the next one. `right_lasts` is how long
    /// the claim right lasts without another wake.
    pub(super) fn wake(&mut self, right_lasts: Duration) -> Request {
        let (now, answer) = (self.now, self.link.longest_answer());
        self.next_wake = now + self.timing.heartbeat;
        self.wakes_again = false;
        // Other statements must not wait long. A slow database needs more time: to fire, to recover
        // and to expire are two transactions each. But the next renewal must not come too late.
        let renewed_by = now + self.timing.answer_limit() + 3 * answer;
        let stops = self.leases.first_end().map(|end| self.timing.job_stops(end));
        let spare =
            stops.map_or(Duration::MAX, |stops| stops.saturating_duration_since(renewed_by));
        // Recording a slow answer is a transaction of its own, and the leases matter more. A tick
        // that has no time records it at its end.
        let has_time = spare >= 6 * answer;
        let slow = if has_time { self.link.take_slow_answer() } else { None };
        let until = now + (6 * answer).min(spare).max(self.timing.heartbeat / 4);
        let until = self.phase_ends.map_or(until, |end| until.min(end));
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

    /// Reacts to the answer to a wake: whether the tick has the claim right, and when it wakes
    /// again.
    pub(super) fn woken(&mut self, sent: &SentRequest, woken: Woken) {
        if woken.has_more && self.leases.is_empty() {
            (self.wakes_again, self.next_wake) = (true, self.now);
        }
        self.claims.woken(self.now, woken, sent.at + sent.right_lasts);
    }
}
