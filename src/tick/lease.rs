//! Keeps what a tick holds: one statement renews all leases. Each is counted here from before that
//! statement was sent, so that what it protects is told to end before another worker may have it.

use std::collections::HashMap;
use std::time::Instant;

use super::{HeldRun, Tick};
use crate::model::Why;
use crate::store::{self, Claimed, Held, Pending};

/// A renewal that is under way.
pub(super) struct Renewal {
    pub(super) answer: Pending<Vec<(i64, Held)>>,
    pub(super) sent: Instant,
}

/// Takes an attempt out of what is held. Where the lease of a run was lost, another attempt of it may be held since:
/// that stays.
pub(super) fn give_up(held: &mut HashMap<i64, HeldRun>, run: &Claimed) -> Option<HeldRun> {
    let is_this = held.get(&run.id).is_some_and(|held| held.attempt == run.attempt);
    if is_this { held.remove(&run.id) } else { None }
}

impl Tick {
    /// Renews all leases and the claim right, when it is time to.
    pub(super) fn beat(&mut self) -> store::Result<Option<Renewal>> {
        let Some(store) = self.store.as_ref().filter(|_| Instant::now() >= self.next_beat) else { return Ok(None) };
        let sent = Instant::now();
        // Nothing is to be renewed that was claimed just now; of short runs there may be thousands.
        let fresh = sent + self.timing.lease - self.timing.heartbeat / 5;
        let held = self.held.iter().filter(|(_, run)| run.expires < fresh).map(|(id, run)| (*id, run.attempt));
        let held: Vec<_> = held.collect();
        if held.is_empty() {
            return self.beaten(sent).map(|()| None);
        }
        let answer = store.heartbeat(&self.holder.worker, &held, self.timing.lease, self.bell());
        Ok(Some(Renewal { answer, sent }))
    }

    /// Takes in what became of the leases that were to be renewed at `sent`.
    pub(super) fn renewed(&mut self, answers: Vec<(i64, Held)>, sent: Instant) -> store::Result<()> {
        for (id, answer) in answers {
            let Some(run) = self.held.get_mut(&id) else { continue };
            match answer {
                Held::Renewed | Held::CancelAsked => {
                    run.stop.prolong(sent + self.timing.fence);
                    run.expires = sent + self.timing.lease;
                    if answer == Held::CancelAsked {
                        run.stop.ask(Why::Cancelled);
                    }
                }
                Held::Busy => {}
                Held::Lost => run.stop.ask(Why::LeaseLost),
            }
        }
        self.beaten(sent)
    }

    fn beaten(&mut self, sent: Instant) -> store::Result<()> {
        self.next_beat = sent + self.timing.heartbeat;
        if self.may_claim { self.wake() } else { Ok(()) }
    }
}
