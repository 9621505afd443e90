//! The writes about ended claims, until the database has them: results that must be recorded, and
//! claims of runs that did not start, which must be released. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::execution::{JudgedAttempt, subject};
use crate::store::{self, BatchSize, FencingToken, Finish};

/// The maximum size of the output in one statement, in bytes.
pub(super) const BYTES_AT_ONCE: usize = 2 * 1024 * 1024;

/// The write about an ended claim.
#[derive(Debug)]
pub(super) enum PendingWrite {
    /// A result to record.
    Record(Box<JudgedAttempt>),
    /// A result that took too long to record. The database keeps it in `job_locked_runs`, and a
    /// later tick records it.
    Keep(Box<JudgedAttempt>),
    /// A claim to release, because its run did not start.
    Release(FencingToken),
}

impl PendingWrite {
    /// Returns the attempt whose result this write has; `None` for a release.
    fn judged(&self) -> Option<&JudgedAttempt> {
        match self {
            Self::Record(judged) | Self::Keep(judged) => Some(judged),
            Self::Release(_) => None,
        }
    }

    /// Returns the claim that this write is about.
    pub(super) fn token(&self) -> FencingToken {
        match self {
            Self::Record(judged) | Self::Keep(judged) => judged.run.token(),
            Self::Release(claim) => *claim,
        }
    }

    /// Returns the claim to release; `None` for a result.
    pub(super) fn released(&self) -> Option<FencingToken> {
        if let Self::Release(claim) = self { Some(*claim) } else { None }
    }

    /// Returns the result, if it must be recorded, with times for a statement that is sent now.
    pub(super) fn result_to_record(&self, now: Instant) -> Option<Finish> {
        if let Self::Record(judged) = self { Some(judged.finish(now)) } else { None }
    }

    /// Returns the result, if it must be kept, with times for a statement that is sent now.
    pub(super) fn result_to_keep(&self, now: Instant) -> Option<Finish> {
        if let Self::Keep(judged) = self { Some(judged.finish(now)) } else { None }
    }

    /// Returns the bytes of output.
    pub(super) fn bytes(&self) -> usize {
        self.judged().map_or(0, JudgedAttempt::bytes)
    }

    /// Replaces the texts, which the database rejected. Returns false if they were replaced before,
    /// or if this is a release, which has no texts.
    pub(super) fn strip(&mut self) -> bool {
        match self {
            Self::Record(judged) | Self::Keep(judged) => judged.strip(),
            Self::Release(_) => false,
        }
    }

    /// Whether a result has waited for `limit` since its job ended. Returns true for a release,
    /// which is not worth another try.
    pub(super) fn has_waited(&self, now: Instant, limit: Duration) -> bool {
        self.judged().is_none_or(|judged| now >= judged.finished + limit)
    }

    /// Returns the subject of a log line.
    pub(super) fn subject(&self) -> String {
        match self.judged() {
            Some(judged) => subject(&judged.run),
            None => format!("run {}", self.token().id),
        }
    }
}

/// A write that waits to be sent.
#[derive(Debug)]
struct Waiting {
    write: PendingWrite,
    /// When to send the write again after a failure; `None`: it was never sent.
    retry_at: Option<Instant>,
}

/// The writes that the database does not have yet.
#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    /// In the order in which they are sent.
    waiting: Vec<Waiting>,
    /// The bytes of output in `waiting`.
    bytes: usize,
    /// How many writes the next statement has at most.
    batch: BatchSize,
    /// The claims of writes that may be committed: the answer was lost.
    uncertain: BTreeSet<FencingToken>,
}

impl PendingWrites {
    /// Adds a new write, to be sent at once.
    pub(super) fn push(&mut self, write: PendingWrite) {
        self.bytes += write.bytes();
        self.waiting.push(Waiting { write, retry_at: None });
    }

    /// Keeps a write that failed, and sends it again at `retry_at`.
    pub(super) fn send_again(&mut self, write: PendingWrite, retry_at: Instant) {
        self.bytes += write.bytes();
        self.waiting.push(Waiting { write, retry_at: Some(retry_at) });
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the claims of the writes that wait.
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

    /// Returns when the first write must be sent: `now` for a new one. `None`: there is none.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.retry_at.unwrap_or(now)).min()
    }

    /// Takes as many of the due writes as fit into the next statement, in their order. Also returns
    /// whether some of them were sent before.
    pub(super) fn take(&mut self, now: Instant) -> (Vec<PendingWrite>, bool) {
        let (mut count, mut bytes, mut are_sent_again) = (0, 0, false);
        let at_most = self.batch.at_most();
        let is_taken = |waiting: &mut Waiting| {
            if waiting.retry_at.is_some_and(|at| now < at) || count == at_most {
                return false;
            }
            bytes += waiting.write.bytes();
            // The first write is sent whatever its size, since no other statement would take it.
            if count > 0 && bytes > BYTES_AT_ONCE {
                return false;
            }
            count += 1;
            are_sent_again |= waiting.retry_at.is_some();
            true
        };
        let taken: Vec<_> =
            self.waiting.extract_if(.., is_taken).map(|waiting| waiting.write).collect();
        self.bytes -= bytes_of(&taken);
        (taken, are_sent_again)
    }

    /// Lets the next statement have twice as many writes, because the database accepted one; see
    /// `BatchSize::accepted`.
    pub(super) fn accepted(&mut self, is_quick: bool) {
        self.batch.accepted(is_quick);
    }

    /// Makes the next statement smaller, because one with `size` writes took too long.
    pub(super) fn too_long(&mut self, size: usize, error: &store::Error) {
        self.batch.too_long(size, error);
    }

    /// Whether there is a result that was never sent.
    pub(super) fn has_new_results(&self) -> bool {
        self.waiting.iter().any(|Waiting { write, retry_at }| {
            let is_result = write.judged().is_some();
            is_result && retry_at.is_none()
        })
    }

    /// Notes that the answer to a statement with these writes was lost, so the database may have
    /// them.
    pub(super) fn answer_lost(&mut self, sent: &[PendingWrite]) {
        self.uncertain.extend(sent.iter().map(PendingWrite::token));
    }

    /// Returns what to log about a write that this tick can't send again.
    pub(super) fn outcome(&self, write: &PendingWrite) -> String {
        let is_uncertain = self.uncertain.contains(&write.token());
        let Some(judged) = write.judged() else {
            let released = "the database did not confirm that the claim is released";
            return if is_uncertain { released } else { "claim not released" }.to_owned();
        };
        let is_last_attempt = judged.run.attempt >= judged.run.max_attempts;
        // What the recovery of the run does after the lease ends.
        let next =
            if is_last_attempt { "the run will be dead" } else { "the run will start again" };
        let ended = judged.what_happened();
        if is_uncertain {
            let unconfirmed = "the database did not confirm the result";
            format!("{ended}; {unconfirmed}; if it was not recorded, {next}")
        } else {
            format!("{ended}; result not recorded, so {next}")
        }
    }

    /// Puts the writes of a failed statement before all others, to be sent again from `now` on.
    pub(super) fn put_back(&mut self, sent: Vec<PendingWrite>, now: Instant) {
        self.bytes += bytes_of(&sent);
        let again = sent.into_iter().map(|write| Waiting { write, retry_at: Some(now) });
        self.waiting.splice(..0, again);
    }

    /// Reacts to the rejection of a statement with only these writes. A single write is the cause:
    /// returns it. Several writes are put back, and the next statement has half of them.
    pub(super) fn rejected(
        &mut self,
        mut sent: Vec<PendingWrite>,
        now: Instant,
    ) -> Option<PendingWrite> {
        self.batch.rejected(sent.len());
        if sent.len() == 1 {
            return sent.pop();
        }
        self.put_back(sent, now);
        None
    }

    /// Drops and returns the writes for which `is_over` returns true.
    pub(super) fn drop_if(&mut self, is_over: impl Fn(&PendingWrite) -> bool) -> Vec<PendingWrite> {
        let dropped = self.waiting.extract_if(.., |waiting| is_over(&waiting.write));
        let dropped: Vec<_> = dropped.map(|waiting| waiting.write).collect();
        self.bytes -= bytes_of(&dropped);
        dropped
    }
}

/// Returns the bytes of output in these writes.
fn bytes_of(writes: &[PendingWrite]) -> usize {
    writes.iter().map(PendingWrite::bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{judged, run};
    use super::*;
    use crate::store::Kind;

    /// A result with this many bytes of output, whose job ended at `finished`.
    fn result(id: i64, bytes: usize, finished: Instant) -> PendingWrite {
        PendingWrite::Record(Box::new(judged(id, bytes, finished)))
    }

    fn release(id: i64) -> PendingWrite {
        PendingWrite::Release(run(id).token())
    }

    fn ids(writes: &[PendingWrite]) -> Vec<i64> {
        writes.iter().map(|write| write.token().id).collect()
    }

    #[test]
    fn a_statement_takes_the_oldest_writes_that_fit() {
        let (mut writes, now) = (PendingWrites::default(), Instant::now());
        assert_eq!(writes.due(now), None);
        for (id, bytes) in [(1, BYTES_AT_ONCE + 1), (2, 10), (3, BYTES_AT_ONCE - 10), (4, 1)] {
            writes.push(result(id, bytes, now));
        }
        writes.push(release(5));
        assert_eq!((writes.len(), writes.releases()), (5, 1));
        assert_eq!((writes.bytes(), writes.due(now)), (2 * BYTES_AT_ONCE + 2, Some(now)));
        assert_eq!(writes.tokens().map(|token| token.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        // A single one is sent whatever its size.
        let (first, are_sent_again) = writes.take(now);
        assert_eq!((ids(&first), are_sent_again), (vec![1], false));
        let (second, _) = writes.take(now);
        assert_eq!((ids(&second), writes.bytes()), (vec![2, 3], 1));
        assert_eq!(ids(&writes.take(now).0), [4, 5]);
        assert_eq!((writes.bytes(), writes.len()), (0, 0));
    }

    #[test]
    fn a_write_that_failed_is_sent_again_in_time() {
        let (mut writes, now) = (PendingWrites::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        writes.push(result(1, 10, now));
        writes.send_again(result(2, 5, now), later);
        assert_eq!((writes.due(now), writes.bytes()), (Some(now), 15));
        assert!(writes.has_new_results());
        assert_eq!(ids(&writes.take(now).0), [1]);
        assert_eq!((writes.due(now), writes.has_new_results()), (Some(later), false));
        let (again, are_sent_again) = writes.take(later);
        assert_eq!((ids(&again), are_sent_again), (vec![2], true));
        writes.push(release(3));
        assert!(!writes.has_new_results());
        // The writes that failed come first.
        writes.put_back(again, now);
        assert_eq!((ids(&writes.take(now).0), writes.bytes()), (vec![2, 3], 0));
    }

    #[test]
    fn a_rejected_statement_is_halved_to_find_the_cause() {
        let (mut writes, now) = (PendingWrites::default(), Instant::now());
        (1..=4).for_each(|id| writes.push(result(id, 1, now)));
        let all = writes.take(now).0;
        assert!(writes.rejected(all, now).is_none());
        let half = writes.take(now).0;
        assert_eq!(ids(&half), [1, 2]);
        assert!(writes.rejected(half, now).is_none());
        let single = writes.take(now).0;
        assert_eq!(writes.rejected(single, now).map(|write| write.token().id), Some(1));
        writes.accepted(true);
        assert_eq!(ids(&writes.take(now).0), [2, 3]);
        let slow = store::Error::new(Kind::Busy, crate::exit::Exit::Unavailable, "too slow");
        writes.too_long(2, &slow);
        writes.push(release(5));
        assert_eq!(ids(&writes.take(now).0), [4]);
    }

    #[test]
    fn a_result_can_lose_its_texts_once_and_waits_for_a_limit() {
        let now = Instant::now();
        let mut write = result(1, 100, now);
        assert_eq!((write.bytes(), write.released()), (100, None));
        assert!(write.strip() && !write.strip());
        assert_eq!(
            write.result_to_record(now).unwrap().output.unwrap(),
            "[output could not be stored]"
        );
        assert!(write.subject().contains("run 1"), "{}", write.subject());
        let limit = Duration::from_secs(5);
        let waited = [4, 5, 6].map(|seconds| write.has_waited(now + seconds * limit / 5, limit));
        assert_eq!(waited, [false, true, true]);
        let mut write = release(2);
        assert_eq!((write.bytes(), write.released()), (0, Some(run(2).token())));
        assert!(
            !write.strip() && write.result_to_record(now).is_none() && write.has_waited(now, limit)
        );
        assert_eq!(write.subject(), "run 2");
    }

    #[test]
    fn a_write_without_an_answer_differs_from_one_that_failed() {
        let (mut writes, now) = (PendingWrites::default(), Instant::now());
        writes.answer_lost(&[result(1, 0, now)]);
        let dropped = [result(1, 0, now), release(1), result(2, 0, now), release(2)];
        assert_eq!(
            dropped.map(|write| writes.outcome(&write)),
            [
                "killed by SIGKILL (out of memory?) after 0ms; the database did not confirm the \
                 result; if it was not recorded, the run will start again",
                "the database did not confirm that the claim is released",
                "killed by SIGKILL (out of memory?) after 0ms; result not recorded, so the run \
                 will start again",
                "claim not released",
            ]
        );
        let PendingWrite::Record(mut last) = result(2, 0, now) else { panic!("a result") };
        last.run.max_attempts = last.run.attempt;
        let outcome = writes.outcome(&PendingWrite::Keep(last));
        assert!(outcome.ends_with("result not recorded, so the run will be dead"), "{outcome}");
        writes.push(result(3, 7, now));
        writes.push(release(4));
        let dropped = writes.drop_if(|write| write.released().is_none());
        assert_eq!((ids(&dropped), writes.bytes(), writes.len()), (vec![3], 0, 1));
    }
}
