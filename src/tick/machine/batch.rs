//! The delay of a batch: how long results wait for others, and which runs and bytes end the wait.

use std::time::Instant;

use super::Machine;
use crate::execute::WakeWhen;
use crate::tick::pending_writes::PendingWrite;
use crate::tick::phase::Phase;
use crate::tick::prefetch;

/// The tick delays results for a larger batch only while they have less output than this.
pub(super) const BATCH_BYTES: usize = 1024 * 1024;

impl Machine {
    /// Returns when the pool wakes the driver. During the delay of a batch a single ended attempt
    /// does not: thousands may end in a second.
    pub(in crate::tick) fn wake_when(&self) -> WakeWhen {
        if self.batch_ends().is_some() {
            // The delay ends before a difference is negative.
            WakeWhen::Shortage {
                waiting: self.claims.prefetch.refill_at(self.pool.size),
                ended: prefetch::FULL_BATCH - self.writes.len(),
                bytes: BATCH_BYTES - self.writes.bytes(),
            }
        } else {
            WakeWhen::Ended
        }
    }

    /// Returns the bytes of output that wait to be recorded.
    pub(in crate::tick) fn bytes(&self) -> usize {
        let sent = self.unanswered.iter().flat_map(|sent| &sent.writes);
        self.writes.bytes() + sent.map(PendingWrite::bytes).sum::<usize>()
    }

    /// Returns until when the next request is delayed for a larger batch. It is only delayed while
    /// all threads have work, no lease needs to be renewed, and the results take little memory.
    pub(super) fn batch_ends(&self) -> Option<Instant> {
        let until = self.batching_until.min(self.next_renewal);
        let is_delayed = self.now < until
            && self.phase == Phase::Working
            && self.pool.waiting > self.claims.prefetch.refill_at(self.pool.size)
            && self.writes.len() < prefetch::FULL_BATCH
            && self.writes.bytes() < BATCH_BYTES;
        is_delayed.then_some(until)
    }

    /// Returns when the oldest run that waits for a thread has waited too long, because runs take
    /// longer than before.
    pub(super) fn late_at(&self) -> Option<Instant> {
        self.pool.oldest.map(|submitted| submitted + self.claims.prefetch.thread_timeout())
    }

    /// Takes the duration of a step's answer, and begins the delay of the next batch.
    pub(super) fn observe_answer(&mut self, sent_at: Instant) {
        self.claims.prefetch.observe_answer(self.now - sent_at);
        self.batching_until = self.now + self.claims.prefetch.window();
    }
}
