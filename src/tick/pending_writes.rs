//! The writes about ended claims, until the database has them: results to record, and claims that
//! were not started to release. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::execution::{JudgedAttempt, subject};
use crate::store::{self, BatchSize, FencingToken, Finish};

/// The maximum size of the output in one statement, in bytes.
pub(super) const BYTES_AT_ONCE: usize = 2 * 1024 * 1024;

/// The write about an ended claim.
#[derive(Debug)]
pub(super) enum PendingWrite {
    Record(Box<JudgedAttempt>),
    Release(FencingToken),
}

impl PendingWrite {
    pub(super) fn token(&self) -> FencingToken {
        match self {
            Self::Record(judged) => judged.run.token(),
            Self::Release(claim) => *claim,
        }
    }

    pub(super) fn released(&self) -> Option<FencingToken> {
        if let Self::Release(claim) = self { Some(*claim) } else { None }
    }

    /// Returns the arguments of a statement that is sent now.
    pub(super) fn finish(&self, now: Instant) -> Option<Finish> {
        if let Self::Record(judged) = self { Some(judged.finish(now)) } else { None }
    }

    /// Returns the bytes of output.
    pub(super) fn bytes(&self) -> usize {
        if let Self::Record(judged) = self { judged.bytes() } else { 0 }
    }

    /// Replaces the texts, which the database rejected. Returns false if there are none.
    pub(super) fn strip(&mut self) -> bool {
        if let Self::Record(judged) = self { judged.strip() } else { false }
    }

    /// Whether a result has waited longer than `limit`. A release is not worth another try.
    pub(super) fn has_waited(&self, now: Instant, limit: Duration) -> bool {
        if let Self::Record(judged) = self { now >= judged.finished + limit } else { true }
    }

    /// Returns the subject of a log line.
    pub(super) fn subject(&self) -> String {
        match self {
            Self::Record(judged) => subject(&judged.run),
            Self::Release(claim) => format!("run {}", claim.id),
        }
    }
}

#[derive(Debug)]
struct Waiting {
    write: PendingWrite,
    /// It was sent before, without success. Until this time it is not sent again.
    again: Option<Instant>,
}

/// The writes that the database does not have yet.
#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    /// The oldest first.
    waiting: Vec<Waiting>,
    /// The bytes of output in it.
    bytes: usize,
    batch: BatchSize,
    /// The claims of those that may be committed, because the answer was lost.
    uncertain: BTreeSet<FencingToken>,
}

impl PendingWrites {
    pub(super) fn push(&mut self, write: PendingWrite) {
        self.bytes += write.bytes();
        self.waiting.push(Waiting { write, again: None });
    }

    /// Sends it again at `again`.
    pub(super) fn send_again(&mut self, write: PendingWrite, again: Instant) {
        self.bytes += write.bytes();
        self.waiting.push(Waiting { write, again: Some(again) });
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = FencingToken> {
        self.waiting.iter().map(|waiting| waiting.write.token())
    }

    /// Returns how many claims must be released.
    pub(super) fn releases(&self) -> usize {
        self.waiting.iter().filter(|waiting| waiting.write.released().is_some()).count()
    }

    /// Returns the bytes of output that wait to be recorded.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns when there is something to send.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.again.unwrap_or(now)).min()
    }

    /// Takes as many as fit into the next statement, the oldest first. Also returns whether any of
    /// them is sent again.
    pub(super) fn take(&mut self, now: Instant) -> (Vec<PendingWrite>, bool) {
        let (mut count, mut bytes, mut are_sent_again) = (0, 0, false);
        let at_most = self.batch.at_most();
        let fits = |waiting: &mut Waiting| {
            if waiting.again.is_some_and(|again| now < again) || count == at_most {
                return false;
            }
            bytes += waiting.write.bytes();
            let fits = count == 0 || bytes <= BYTES_AT_ONCE;
            count += usize::from(fits);
            are_sent_again |= fits && waiting.again.is_some();
            fits
        };
        let taken: Vec<_> =
            self.waiting.extract_if(.., fits).map(|waiting| waiting.write).collect();
        self.bytes -= bytes_of(&taken);
        (taken, are_sent_again)
    }

    /// The database accepted a statement: the next one may have twice as many.
    pub(super) fn accepted(&mut self, is_quick: bool) {
        self.batch.accepted(is_quick);
    }

    /// A statement with `size` of them took too long: the next one has half of them.
    pub(super) fn too_long(&mut self, size: usize, error: &store::Error) {
        self.batch.too_long(size, error);
    }

    /// Whether there is a result that was never sent.
    pub(super) fn has_new_results(&self) -> bool {
        let is_new = |waiting: &Waiting| waiting.again.is_none();
        self.waiting.iter().any(|it| is_new(it) && it.write.released().is_none())
    }

    /// The answer to a statement with these was lost.
    pub(super) fn answer_lost(&mut self, sent: &[PendingWrite]) {
        self.uncertain.extend(sent.iter().map(PendingWrite::token));
    }

    /// Returns what to log about a claim whose write this tick can't send again.
    pub(super) fn outcome(&self, claim: &FencingToken, is_release: bool) -> &'static str {
        match (is_release, self.uncertain.contains(claim)) {
            (false, false) => "result not recorded, lease lost",
            (true, false) => "claim not released, lease lost",
            (false, true) => "the result may not be recorded: the answer was lost",
            (true, true) => "the claim may not be released: the answer was lost",
        }
    }

    /// Whether the answer to the latest write about this claim was lost.
    pub(super) fn is_uncertain(&self, claim: &FencingToken) -> bool {
        self.uncertain.contains(claim)
    }

    /// A statement with these failed. They are sent again from `now` on, before the others.
    pub(super) fn failed(&mut self, sent: Vec<PendingWrite>, now: Instant) {
        self.bytes += bytes_of(&sent);
        let again = sent.into_iter().map(|write| Waiting { write, again: Some(now) });
        self.waiting.splice(..0, again);
    }

    /// The database rejected a statement with only these. Returns a single one; keeps several, and
    /// the next statement has half of them.
    pub(super) fn rejected(
        &mut self,
        mut sent: Vec<PendingWrite>,
        now: Instant,
    ) -> Option<PendingWrite> {
        self.batch.rejected(sent.len());
        if sent.len() == 1 {
            return sent.pop();
        }
        self.failed(sent, now);
        None
    }

    /// Drops and returns those that are `over`.
    pub(super) fn drop_if(&mut self, over: impl Fn(&PendingWrite) -> bool) -> Vec<PendingWrite> {
        let dropped = self.waiting.extract_if(.., |waiting| over(&waiting.write));
        let dropped: Vec<_> = dropped.map(|waiting| waiting.write).collect();
        self.bytes -= bytes_of(&dropped);
        dropped
    }
}

fn bytes_of(writes: &[PendingWrite]) -> usize {
    writes.iter().map(PendingWrite::bytes).sum()
}
