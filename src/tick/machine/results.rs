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
    /// Takes an attempt that has ended or could not start: its result or the release of its claim
    /// waits to be written.
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
                // Once, because cron mails the log.
                if !std::mem::replace(&mut self.has_logged_exhausted, true) {
                    let line = format!("{}: {why}; claim released", subject(&run));
                    self.log_about(run.token(), Level::Warn, line);
                }
                self.claims.pause(self.now);
                self.unstarted(&run);
            }
        }
    }

    fn unstarted(&mut self, run: &Claimed) {
        self.claims.unstarted();
        self.writes.push(PendingWrite::Release(run.token()));
    }

    /// Whether a write is due now.
    pub(super) fn has_writes(&self) -> bool {
        self.writes.due(self.now).is_some_and(|at| self.now >= at)
    }

    /// Reacts to an error of writes without a claim.
    pub(super) fn writes_failed(
        &mut self,
        sent: SentRequest,
        error: store::Error,
    ) -> store::Result<()> {
        let may_be_late = error.is_too_slow || error.is_locked();
        // A lock may be gone at the next try.
        let is_last_try = sent.writes.len() == 1 && (error.is_too_slow || sent.is_again);
        // At the end there is no time to try them in smaller parts.
        if may_be_late && (is_last_try || self.phase >= Phase::Ending) {
            for write in sent.writes {
                let is_last = sent.is_again && write.released().is_some();
                self.put_behind(write, is_last, &error);
            }
            return Ok(());
        }
        if may_be_late || self.took_too_long(sent.at) {
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
            let line = format!("run {}: output not stored: {error}", token.id);
            self.log_about(token, Level::Warn, line);
            self.writes.send_again(write, self.now);
            return Ok(());
        }
        // Sending it again may help after an unexpected error, but not if the data is the cause.
        let is_last_try = is_data || write.has_waited(self.now, self.timing.stop_after);
        if is_last_try {
            self.put_behind(write, is_last_try, &error);
            return Ok(());
        }
        self.writes.send_again(write, self.now + RESULT_PAUSE);
        Err(error)
    }

    /// Puts a write that took too long or was rejected behind the others.
    ///
    /// A result is kept in `job_locked_runs` instead, and a tick records it later. So it does not
    /// delay this tick's end, and keeps no slot of the worker. Any other write is sent once more.
    /// If this was its last try (`is_last`), the tick gives the claim up, and another tick recovers
    /// the run.
    fn put_behind(&mut self, write: PendingWrite, is_last: bool, error: &store::Error) {
        let (token, subject) = (write.token(), write.subject());
        match write {
            PendingWrite::Record(judged) => {
                let kept = "the result is kept in job_locked_runs until a tick can record it";
                let line = format!("{subject}: {}; {kept}", error.for_log());
                self.log_about(token, Level::Warn, line);
                self.writes.push(PendingWrite::Keep(judged));
            }
            _ if is_last => {
                self.give_up(token, &subject, error);
                self.failure.get_or_insert_with(|| anyhow!("{error}"));
            }
            again => self.writes.send_again(again, self.now + RESULT_PAUSE),
        }
    }

    /// Drops results and claims whose lease ended long ago. Until then the write may still succeed:
    /// while the database is down, no other tick can recover the run. If one did, the claim's token
    /// no longer matches, and the write does not change the run. Over a connection, a result is
    /// kept while the tick works, because it belongs to the history.
    pub(super) fn drop_expired(&mut self) {
        let keeps_results = self.link.is_up() && self.phase == Phase::Working;
        let long_ago = self.now.checked_sub(self.timing.result_kept);
        self.drop_writes(|write, lease| {
            (!keeps_results || write.released().is_some())
                && lease.is_none_or(|lease| Some(lease.expires()) <= long_ago)
        });
    }

    /// Drops the writes for which `is_over` returns true, and logs what becomes of their claims.
    /// `is_over` gets a write and the lease of its claim, if the tick still has one.
    pub(super) fn drop_writes(&mut self, is_over: impl Fn(&PendingWrite, Option<&Lease>) -> bool) {
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

    /// Logs that this tick can do no more for a run, and why.
    pub(super) fn leave_to_lease(&mut self, claim: FencingToken, subject: &str, why: &dyn Display) {
        let line = format!("{subject}: {why}; another tick recovers the run when its lease ends");
        self.log_about(claim, Level::Error, line);
    }
}
