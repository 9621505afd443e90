//! The results of attempts, and claims that were not started: what waits to be written, and what
//! becomes of a write that the database does not accept.

use std::fmt::Display;
use std::time::Duration;

use anyhow::anyhow;
use log::Level;

use super::{Machine, SentRequest};
use crate::store::{self, Claimed, FencingToken, Kind};
use crate::tick::execution::{Ended, subject};
use crate::tick::leases::Lease;
use crate::tick::pending_writes::PendingWrite;
use crate::tick::phase::Phase;

/// The pause before a rejected result is sent again. It is longer than the pause of claims, so runs
/// are claimed in between.
pub(super) const RESULT_PAUSE: Duration = Duration::from_secs(2);

impl Machine {
    /// Takes an attempt that has ended or could not start. Adds the write that this requires: its
    /// result, or the release of its claim.
    pub(super) fn ended(&mut self, ended: Ended) {
        self.last_ended = self.now;
        match ended {
            Ended::Judged(judged) => {
                let took = judged.finished - judged.started;
                self.claims.prefetch.observe(took, judged.run.bytes());
                self.writes.push(PendingWrite::Record(judged));
                self.claims.claim_soon(self.now);
            }
            Ended::Unstarted(run) => self.unstarted(&run),
            Ended::Exhausted(run, why) => {
                // Log it once, because cron mails the log.
                if !std::mem::replace(&mut self.has_logged_exhausted, true) {
                    let line = format!("{}: {why}; claim released", subject(&run));
                    self.log_about(run.token(), Level::Warn, line);
                }
                self.claims.pause(self.now);
                self.unstarted(&run);
            }
        }
    }

    /// Releases the claim of a run that did not start.
    fn unstarted(&mut self, run: &Claimed) {
        self.claims.unstarted();
        self.writes.push(PendingWrite::Release(run.token()));
    }

    /// Whether a write is due now.
    pub(super) fn has_writes(&self) -> bool {
        self.writes.due(self.now).is_some_and(|at| self.now >= at)
    }

    /// Reacts to an error of a step that had writes and no claim:
    ///
    /// - If a time limit ended it and it was the last try, puts its writes behind the others.
    /// - If rows may be the cause, sends the writes again in smaller parts, until the cause is
    ///   alone.
    /// - After any other error, which is returned, sends all of them again.
    pub(super) fn writes_failed(
        &mut self,
        sent: SentRequest,
        error: store::Error,
    ) -> store::Result<()> {
        let hit_time_limit = error.is_too_slow || error.is_locked();
        // A single write that waits for a lock is sent once more, because the lock may be gone.
        let is_last_try = sent.writes.len() == 1 && (error.is_too_slow || sent.is_again);
        // At the end there is no time to try several writes in smaller parts.
        if hit_time_limit && (is_last_try || self.phase >= Phase::Ending) {
            for write in sent.writes {
                let gives_up = sent.is_again && write.released().is_some();
                self.put_behind(write, gives_up, &error);
            }
            return Ok(());
        }
        if hit_time_limit || self.took_too_long(sent.at) {
            self.writes.too_long(sent.writes.len(), &error);
        }
        if !error.may_be_about_rows() {
            self.writes.put_back(sent.writes, self.now);
            return Err(error);
        }
        match self.writes.rejected(sent.writes, self.now) {
            Some(write) => self.write_rejected(write, error),
            None => Ok(()),
        }
    }

    /// Reacts to an error that this write alone caused.
    fn write_rejected(
        &mut self,
        mut write: PendingWrite,
        error: store::Error,
    ) -> store::Result<()> {
        let (token, is_data) = (write.token(), error.kind == Kind::Data);
        if is_data && write.strip() {
            // Perhaps the texts are the cause: send the result once more without them.
            let line = format!("run {}: output not stored: {error}", token.id);
            self.log_about(token, Level::Warn, line);
            self.writes.send_again(write, self.now);
            return Ok(());
        }
        // After an unexpected error, the write may succeed later, but not if its data is the cause.
        if is_data || write.has_waited(self.now, self.timing.stop_after) {
            self.put_behind(write, true, &error);
            return Ok(());
        }
        self.writes.send_again(write, self.now + RESULT_PAUSE);
        Err(error)
    }

    /// Puts a write that took too long or was rejected behind the others.
    ///
    /// - A result to record is kept in `job_locked_runs` instead, and a tick records it later. So
    ///   it does not delay this tick's end, and keeps no slot of the worker.
    /// - Any other write is sent once more, or if this was the last try (`gives_up`), the tick
    ///   gives the claim up, and another tick recovers the run.
    fn put_behind(&mut self, write: PendingWrite, gives_up: bool, error: &store::Error) {
        let (token, subject) = (write.token(), write.subject());
        if let PendingWrite::Record(judged) = write {
            let kept = "the result is kept in job_locked_runs until a tick can record it";
            let line = format!("{subject}: {}; {kept}", error.for_log());
            self.log_about(token, Level::Warn, line);
            self.writes.push(PendingWrite::Keep(judged));
        } else if gives_up {
            self.give_up(token, &subject, error);
            self.failure.get_or_insert_with(|| anyhow!("{error}"));
        } else {
            self.writes.send_again(write, self.now + RESULT_PAUSE);
        }
    }

    /// Drops results and releases of claims whose lease ended long ago. Until then, the write may
    /// still succeed: while the database is down, no other tick can recover the run. If another
    /// tick did, the claim's token no longer matches, and the write does not change the run. Over a
    /// connection, a result is kept while the tick works, because it belongs to the history.
    pub(super) fn drop_expired(&mut self) {
        let keeps_results = self.link.is_up() && self.phase == Phase::Working;
        // `None`: the clock began later than that, so no lease ended so long ago.
        let long_ago = self.now.checked_sub(self.timing.result_kept);
        self.drop_writes(|write, lease| {
            let is_kept = keeps_results && write.released().is_none();
            !is_kept && lease.is_none_or(|lease| Some(lease.expires()) <= long_ago)
        });
    }

    /// Drops all writes that are not sent yet, and logs what becomes of their claims.
    pub(super) fn drop_all_writes(&mut self) {
        self.drop_writes(|_, _| true);
    }

    /// Drops the writes for which `is_over` returns true, and logs what becomes of their claims.
    /// `is_over` gets a write and the lease of its claim, if the tick still has that lease.
    fn drop_writes(&mut self, is_over: impl Fn(&PendingWrite, Option<&Lease>) -> bool) {
        let leases = &self.leases;
        let is_over = |write: &PendingWrite| is_over(write, leases.get(&write.token()));
        for write in self.writes.drop_if(is_over) {
            let outcome = self.writes.outcome(&write);
            self.give_up(write.token(), &write.subject(), &outcome);
        }
    }

    /// Forgets a claim whose result or release was not written, and counts it if its lease was
    /// still held.
    pub(super) fn give_up(&mut self, claim: FencingToken, subject: &str, why: &dyn Display) {
        self.given_up += usize::from(self.leases.remove(&claim));
        self.leave_to_lease(claim, subject, why);
    }

    /// Logs why this tick can do no more for a run, so that the run depends on the end of its
    /// lease.
    pub(super) fn leave_to_lease(&mut self, claim: FencingToken, subject: &str, why: &dyn Display) {
        let line = format!("{subject}: {why}; another tick recovers the run when its lease ends");
        self.log_about(claim, Level::Error, line);
    }
}
