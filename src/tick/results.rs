//! Ended claims on their way to the database: results, and claims that were not started. Pure.

use std::time::{Duration, Instant};

use crate::attempt::{JudgedAttempt, subject};
use crate::store::{Finish, Token};
use crate::upkeep::BatchSize;

/// The maximum of output in one statement, in bytes.
pub(super) const BYTES_AT_ONCE: usize = 2 * 1024 * 1024;

/// An ended claim.
#[derive(Debug)]
pub(super) enum Done {
    /// The result must be recorded.
    Judged(Box<JudgedAttempt>),
    /// The claim must be released.
    Unstarted(Token),
}

impl Done {
    pub(super) fn token(&self) -> Token {
        match self {
            Self::Judged(judged) => judged.run.token(),
            Self::Unstarted(claim) => *claim,
        }
    }

    pub(super) fn unstarted(&self) -> Option<Token> {
        if let Self::Unstarted(claim) = self { Some(*claim) } else { None }
    }

    /// Returns the arguments of a statement that is sent now.
    pub(super) fn finish(&self, now: Instant) -> Option<Finish> {
        if let Self::Judged(judged) = self { Some(judged.finish(now)) } else { None }
    }

    /// Returns the bytes of output.
    pub(super) fn bytes(&self) -> usize {
        if let Self::Judged(judged) = self { judged.bytes() } else { 0 }
    }

    /// Removes the texts, which the database rejected. Returns false if there are none.
    pub(super) fn strip(&mut self) -> bool {
        if let Self::Judged(judged) = self { judged.strip() } else { false }
    }

    /// Whether a result has waited longer than `limit`.
    pub(super) fn has_waited(&self, now: Instant, limit: Duration) -> bool {
        if let Self::Judged(judged) = self { now >= judged.finished + limit } else { true }
    }

    /// Returns the subject of a log line.
    pub(super) fn subject(&self) -> String {
        match self {
            Self::Judged(judged) => subject(&judged.run),
            Self::Unstarted(claim) => format!("run {}", claim.id),
        }
    }
}

#[derive(Debug)]
struct Waiting {
    done: Done,
    /// It was sent before, without success, and waits until this time.
    again: Option<Instant>,
}

/// The ended claims that are not yet in the database.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// The oldest first.
    waiting: Vec<Waiting>,
    /// The bytes of output in it.
    bytes: usize,
    batch: BatchSize,
}

impl Results {
    pub(super) fn push(&mut self, done: Done) {
        self.bytes += done.bytes();
        self.waiting.push(Waiting { done, again: None });
    }

    /// Sends it again at `again`.
    pub(super) fn send_again(&mut self, done: Done, again: Instant) {
        self.bytes += done.bytes();
        self.waiting.push(Waiting { done, again: Some(again) });
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = Token> {
        self.waiting.iter().map(|waiting| waiting.done.token())
    }

    /// Returns how many claims must be released.
    pub(super) fn unstarted(&self) -> usize {
        self.waiting.iter().filter(|waiting| waiting.done.unstarted().is_some()).count()
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
    pub(super) fn take(&mut self, now: Instant) -> (Vec<Done>, bool) {
        let (mut count, mut bytes, mut are_sent_again) = (0, 0, false);
        let at_most = self.batch.at_most();
        let fits = |waiting: &mut Waiting| {
            if waiting.again.is_some_and(|again| now < again) || count == at_most {
                return false;
            }
            bytes += waiting.done.bytes();
            let fits = count == 0 || bytes <= BYTES_AT_ONCE;
            count += usize::from(fits);
            are_sent_again |= fits && waiting.again.is_some();
            fits
        };
        let taken: Vec<_> = self.waiting.extract_if(.., fits).map(|waiting| waiting.done).collect();
        self.count_bytes();
        (taken, are_sent_again)
    }

    /// The database accepted a statement.
    pub(super) fn accepted(&mut self) {
        self.batch.accepted();
    }

    /// A statement with these failed. They are sent again from `now` on, before the others.
    pub(super) fn failed(&mut self, sent: Vec<Done>, now: Instant) {
        let again = sent.into_iter().map(|done| Waiting { done, again: Some(now) });
        self.waiting.splice(..0, again);
        self.count_bytes();
    }

    /// The database rejected the oldest `count`. The next statement has half of them. Returns the
    /// one that was rejected alone.
    pub(super) fn rejected(&mut self, count: usize) -> Option<Done> {
        self.batch.rejected(count);
        let rejected = (count == 1).then(|| self.waiting.remove(0).done);
        self.count_bytes();
        rejected
    }

    /// Drops and returns those that are `over`.
    pub(super) fn drop_if(&mut self, over: impl Fn(&Done) -> bool) -> Vec<Done> {
        let dropped = self.waiting.extract_if(.., |waiting| over(&waiting.done));
        let dropped = dropped.map(|waiting| waiting.done).collect();
        self.count_bytes();
        dropped
    }

    /// Counts the bytes after results have come or left.
    fn count_bytes(&mut self) {
        self.bytes = self.waiting.iter().map(|waiting| waiting.done.bytes()).sum();
    }
}
