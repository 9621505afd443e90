//! The delay of a batch: how long results wait for others, and how many results, how much of their
//! output, and how few waiting runs end the delay.

use std::time::Instant;

use super::Machine;
use crate::execute::WakeWhen;
use crate::tick::pending_writes::PendingWrite;
use crate::tick::phase::Phase;
use crate::tick::prefetch;

/// The tick delays results for a larger batch only while they have less output than this.
pub(super) const BATCH_BYTES: usize = 1024 * 1024;

impl Machine {
    /// Returns when the pool wakes the driver: after each ended attempt, but during the delay of a
    /// batch only after many, because thousands may end in a second.
    pub(in crate::tick) fn wake_when(&self) -> WakeWhen {
        if self.batch_ends().is_some() {
            // Neither difference is negative, because `batch_ends` has compared both numbers.
            WakeWhen::Shortage {
                waiting: self.claims.prefetch.refill_at(self.pool.size),
                ended: prefetch::FULL_BATCH - self.writes.len(),
                bytes: BATCH_BYTES - self.writes.bytes(),
            }
        } else {
            WakeWhen::Ended
        }
    }

    /// Returns the bytes of output that are not recorded yet, also those in the unanswered request.
    pub(in crate::tick) fn bytes(&self) -> usize {
        let sent = self.unanswered.iter().flat_map(|sent| &sent.writes);
        self.writes.bytes() + sent.map(PendingWrite::bytes).sum::<usize>()
    }

    /// Returns until when the next request is delayed for a larger batch; `None`: it is not
    /// delayed. It is only delayed while all threads have work, no lease needs to be renewed, and
    /// the results take little memory.
    pub(super) fn batch_ends(&self) -> Option<Instant> {
        let until = self.batching_until.min(self.next_renewal);
        let is_delayed = self.now < until
            && self.phase == Phase::Working
            && self.pool.waiting > self.claims.prefetch.refill_at(self.pool.size)
            && self.writes.len() < prefetch::FULL_BATCH
            && self.writes.bytes() < BATCH_BYTES;
        if is_delayed { Some(until) } else { None }
    }

    /// Returns when the oldest run that waits for a thread has waited too long; `None`: no run
    /// waits. That happens if runs take longer than those before.
    pub(super) fn late_at(&self) -> Option<Instant> {
        self.pool.oldest.map(|submitted| submitted + self.claims.prefetch.thread_timeout())
    }

    /// Takes the duration of a step's answer, and begins the delay of the next batch.
    pub(super) fn observe_answer(&mut self, sent_at: Instant) {
        self.claims.prefetch.observe_answer(self.now - sent_at);
        self.batching_until = self.now + self.claims.prefetch.window();
    }
}
