//! The results of attempts on their way to the database. Pure.

use std::time::Instant;

use super::attempt::JudgedAttempt;
use crate::job::status::Status;
use crate::store::{Finish, Recorded, Token};
use crate::upkeep::BatchSize;

/// The maximum of output in one statement, in bytes.
pub(super) const BYTES_AT_ONCE: usize = 2 * 1024 * 1024;

/// Results that are not yet in the database.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// To be recorded, the oldest first.
    ended: Vec<JudgedAttempt>,
    /// Results whose run is locked or was rejected. They wait; other results do not.
    blocked: Vec<JudgedAttempt>,
    blocked_until: Option<Instant>,
    /// The bytes of output in both.
    bytes: usize,
    batch: BatchSize,
}

impl Results {
    pub(super) fn push(&mut self, judged: JudgedAttempt) {
        self.bytes += judged.bytes();
        self.ended.push(judged);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.blocked.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.ended.len()
    }

    pub(super) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// Returns when there is something to record.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        if self.ended.is_empty() { self.blocked_until } else { Some(now) }
    }

    /// Returns the bytes of output that wait to be recorded.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts the bytes after results have left.
    fn count_bytes(&mut self) {
        self.bytes = self.ended.iter().chain(&self.blocked).map(JudgedAttempt::bytes).sum();
    }

    /// Returns how many of the oldest results fit into the next statement.
    pub(super) fn batch(&self) -> usize {
        let mut bytes = 0;
        let fits = |judged: &&JudgedAttempt| {
            bytes += judged.bytes();
            bytes <= BYTES_AT_ONCE
        };
        let fitting = self.ended.iter().take_while(fits).count().max(1).min(self.ended.len());
        fitting.min(self.batch.at_most())
    }

    /// Returns the oldest `count` results as arguments of a statement that is sent now.
    pub(super) fn oldest(&self, count: usize, now: Instant) -> Vec<Finish> {
        self.ended[..count].iter().map(|judged| judged.finish(now)).collect()
    }

    /// Takes the database's answer about the oldest `count` results. Those whose runs are `locked`
    /// wait until `until`. Returns the others with the new status of their runs; without a status
    /// the lease was lost.
    pub(super) fn recorded(
        &mut self,
        count: usize,
        recorded: &Recorded,
        locked: &[i64],
        until: Instant,
    ) -> Vec<(JudgedAttempt, Option<Status>)> {
        self.batch.accepted();
        let mut answered = Vec::with_capacity(count);
        for judged in self.ended.drain(..count) {
            let claim = judged.run.token();
            if locked.contains(&claim.id) {
                self.blocked.push(judged);
                self.blocked_until = Some(until);
                continue;
            }
            answered.push((judged, recorded.get(&claim).copied()));
        }
        self.count_bytes();
        answered
    }

    /// The database rejected the oldest `count` results. The next statement has half of them.
    /// Returns the result if it was rejected alone.
    pub(super) fn rejected(&mut self, count: usize) -> Option<&mut JudgedAttempt> {
        self.batch.rejected(count);
        self.ended.first_mut().filter(|_| count == 1)
    }

    /// Keeps the oldest result, and sends it again at `until`.
    pub(super) fn block_oldest(&mut self, until: Instant) {
        self.blocked.push(self.ended.remove(0));
        self.blocked_until = Some(until);
    }

    /// Gives up the oldest result.
    pub(super) fn drop_oldest(&mut self) -> JudgedAttempt {
        let dropped = self.ended.remove(0);
        self.count_bytes();
        dropped
    }

    /// Sends blocked results again when their time has come. Returns whether it has.
    pub(super) fn unblock_if_due(&mut self, now: Instant) -> bool {
        let is_due = self.blocked_until.is_some_and(|until| now >= until);
        if is_due {
            self.unblock();
        }
        is_due
    }

    /// Sends blocked results again with the next statement.
    pub(super) fn unblock(&mut self) {
        self.ended.append(&mut self.blocked);
        self.blocked_until = None;
    }

    /// Drops and returns the results whose claim is `over`.
    pub(super) fn drop_if(&mut self, over: impl Fn(&Token) -> bool) -> Vec<JudgedAttempt> {
        let dropped = self.ended.extract_if(.., |judged| over(&judged.run.token())).collect();
        self.count_bytes();
        dropped
    }
}
