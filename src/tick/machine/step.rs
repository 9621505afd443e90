//! The step: the request that records results, releases the claims of runs that did not start, and
//! claims runs. This file decides when it is due, what the answer means, and what becomes of the
//! claimed runs.

use std::time::{Duration, Instant};

use log::Level;

use super::{Instruction, Machine, SentRequest};
use crate::job::attempt::StopReason;
use crate::job::status::Status;
use crate::store::{self, Claim, Claimed, FencingToken, Kind, StepResult};
use crate::text::duration;
use crate::tick::claims::LIMITED_PAUSE;
use crate::tick::execution::Task;
use crate::tick::pending_writes::{self, PendingWrite};
use crate::tick::phase::Phase;
use crate::tick::request::Request;
use crate::upkeep::FailedClaim;

/// The pause before a result is sent again because another session has locked its run.
pub(super) const LOCKED_PAUSE: Duration = Duration::from_secs(1);

impl Machine {
    /// Returns when to write results, or to claim runs if the tick has the claim right.
    pub(super) fn step_due(&self) -> Option<Instant> {
        if self.phase == Phase::Leaving {
            return None;
        }
        let may_claim = self.claims.may_claim(self.now);
        let claim = if may_claim { self.claim_due() } else { None };
        self.writes.due(self.now).into_iter().chain(claim).min()
    }

    /// Returns when to claim runs, or without the claim right, when to ask for it.
    pub(super) fn claim_due(&self) -> Option<Instant> {
        let can_claim = self.phase == Phase::Working
            && !self.is_searching()
            // Before jobs print more output, record the output that is waiting.
            && self.writes.bytes() <= pending_writes::BYTES_AT_ONCE
            && self.has_time_to_claim();
        if can_claim { self.claims.due() } else { None }
    }

    /// Whether all leases can be renewed in time after a claim: before their jobs must stop, if the
    /// answers take as long as the longest of the latest ones.
    pub(super) fn has_time_to_claim(&self) -> bool {
        let needed =
            self.link.longest_step() + self.leases.renewals() * self.link.longest_renewal();
        // Such short answers endanger no lease. Skip the look at all leases, which takes time.
        if needed < self.timing.heartbeat / 4 {
            return true;
        }
        let renewed_by = self.now + needed;
        self.leases.first_end().is_none_or(|end| self.timing.job_stops(end) >= renewed_by)
    }

    /// Takes the writes that are due, and decides whether to claim runs. Notes both in `sent`, and
    /// returns the request; `None`: there is nothing to send.
    pub(super) fn step(&mut self, sent: &mut SentRequest) -> Option<Request> {
        let (writes, are_sent_again) = self.writes.take(self.now);
        if are_sent_again {
            // Their results may free places of a limited definition.
            self.claims.claim_soon(self.now);
        }
        let is_apart = self.claims_apart && !writes.is_empty();
        if !is_apart
            && self.claims.may_claim(self.now)
            && self.claim_due().is_some_and(|at| self.now >= at)
        {
            sent.claim = self.claims.next_claim(self.now, &self.pool);
        }
        (sent.writes, sent.is_again) = (writes, are_sent_again);
        if sent.writes.is_empty() && sent.claim.is_none() {
            return None;
        }
        let (mut results, mut kept, mut unstarted) = (Vec::new(), Vec::new(), Vec::new());
        for write in &sent.writes {
            results.extend(write.result_to_record(self.now));
            kept.extend(write.result_to_keep(self.now));
            unstarted.extend(write.released());
        }
        // Only the first try to record results waits for locks.
        let skips_locked = are_sent_again || !unstarted.is_empty();
        Some(Request::Step { results, kept, unstarted, claim: sent.claim.clone(), skips_locked })
    }

    /// Reacts to the answer to a step: forgets the written results and released claims, sends the
    /// locked ones again, decides about the next claim, and starts the claimed runs.
    pub(super) fn stepped(&mut self, sent: SentRequest, step: StepResult) {
        let StepResult { recorded, queues_runs, follows, locked, taken, claiming } = step;
        self.link.accepted();
        self.observe_answer(sent.at);
        let is_quick = self.was_quick(sent.at);
        self.writes.accepted(is_quick);
        self.claims_apart = false;
        let mut has_released = false;
        for write in sent.writes {
            let token = write.token();
            if locked.contains(&token.id) && !recorded.contains_key(&token) {
                self.writes.send_again(write, self.now + LOCKED_PAUSE);
                continue;
            }
            self.leases.remove(&token);
            let (PendingWrite::Record(judged) | PendingWrite::Keep(judged)) = write else {
                has_released = true;
                continue;
            };
            let status = recorded.get(&token).copied();
            if matches!(status, Some(Status::Failed | Status::Queued)) {
                self.claims.note_due_again(self.now, judged.next_status.wait);
            }
            self.instructions.push(Instruction::Recorded(judged, status));
        }
        let Some(claim) = sent.claim else {
            // Released runs, hooks and followers may be due, so an idle tick claims once more. A
            // tick that is not idle claims anyway.
            if (has_released || queues_runs || follows) && self.claims.is_idle() {
                self.claims.claim_soon(self.now);
            }
            return;
        };
        self.claims.accepted(is_quick);
        let holds = !taken.claimed.is_empty() || !self.leases.is_empty();
        self.claims.claimed(self.now, &claim, sent.at, claiming, &taken, holds);
        if taken.skips_runs {
            // Search for the runs that a trigger makes the database skip. After a pause, claim the
            // runs behind them.
            let error = store::Error::skips_runs();
            self.search_unclaimable(FailedClaim { error, goes_on: true });
            self.claims.claim_soon(self.now);
            self.claims.pause(self.now);
        }
        if let Some(job) = taken.skipped
            && self.claims.skips_for_long(self.now)
            && !std::mem::replace(&mut self.has_logged_skipped, true)
        {
            let why = "another session has locked its definition; `jobctl doctor` names long \
                transactions";
            self.log(Level::Warn, format!("runs of {job} do not start: {why}"));
        }
        if self.has_writes() || follows {
            // Other runs may be claimed: runs of this tick ended meanwhile, or the next request
            // first releases followers.
            self.claims.claim_soon(self.now);
        }
        if self.phase.is_stopping() {
            // A signal came before the answer, so these runs must not start.
            self.release(taken.claimed.iter().map(Claimed::token), sent.at);
        } else {
            self.start(taken.claimed, sent.at);
        }
    }

    /// Reacts to an error of a step. Sends the writes again in smaller parts or claims fewer runs,
    /// so that one locked, rejected, slow or unclaimable run does not delay the others.
    /// `maybe_claimed`: the claims that exist if the transaction was committed.
    pub(super) fn step_failed(
        &mut self,
        sent: SentRequest,
        error: store::Error,
        maybe_claimed: Vec<FencingToken>,
    ) -> store::Result<()> {
        self.observe_answer(sent.at);
        // If these claims exist, their runs must not wait until the leases end.
        self.release(maybe_claimed, sent.at);
        self.claims.pause(self.now);
        if error.may_be_committed {
            self.writes.answer_lost(&sent.writes);
        }
        let Some(claim) = &sent.claim else { return self.writes_failed(sent, error) };
        if sent.writes.is_empty() {
            return self.claim_failed(claim, sent.at, error);
        }
        // Either the claim or the writes caused the error, so send the writes without a claim.
        self.claims_apart = true;
        self.writes.put_back(sent.writes, self.now);
        if error.may_be_about_rows() { Ok(()) } else { Err(error) }
    }

    /// Reacts to an error of a claim without writes.
    fn claim_failed(
        &mut self,
        claim: &Claim,
        sent_at: Instant,
        error: store::Error,
    ) -> store::Result<()> {
        let is_slow = error.is_too_slow || self.took_too_long(sent_at);
        let leaves_out_limited =
            is_slow && claim.limits && self.claims.limited_failed(self.now, &error);
        if leaves_out_limited {
            self.log_limited();
        } else if is_slow && claim.at_most > 1 {
            self.claims.too_long(claim.at_most.unsigned_abs() as usize, &error);
            if error.kind == Kind::Busy {
                // Perhaps it only took too many runs. Do not search for a slow one yet.
                return Ok(());
            }
        }
        if !error.may_be_about_one_row() {
            return Err(error);
        }
        self.search_unclaimable(FailedClaim { error, goes_on: leaves_out_limited });
        Ok(())
    }

    /// Logs that runs of limited definitions are left out: as a warning only once, because cron
    /// mails warnings.
    fn log_limited(&mut self) {
        let was_logged = std::mem::replace(&mut self.has_logged_limited, true);
        let level = if was_logged { Level::Debug } else { Level::Warn };
        let limit = duration::show(self.timing.timeouts.statement);
        let pause = duration::show(LIMITED_PAUSE);
        let line = format!(
            "claiming runs of jobs with limits took longer than {limit}; for {pause} at a time, \
             this tick claims only runs of other jobs"
        );
        self.log(level, line);
    }

    /// Hands claimed runs to the pool.
    pub(super) fn start(&mut self, mut claimed: Vec<Claimed>, sent_at: Instant) {
        let mut tasks = Vec::with_capacity(claimed.len());
        // Last attempts come first, because they must start at once: if the worker crashed before,
        // the run would be dead without a start. A claim takes no more of them than threads are
        // free.
        claimed.sort_by_key(|run| run.attempt < run.max_attempts);
        for run in claimed {
            for earlier in self.leases.add(run.token(), self.now, sent_at + self.timing.lease) {
                self.instructions.push(Instruction::Stop(earlier, StopReason::LeaseLost));
            }
            let stopped = if run.cancel_asked { Some(StopReason::Cancelled) } else { None };
            // The database counted this time from after `sent_at`, so the run does not start late.
            let start_by = run.expires_in.map(|left| sent_at + left);
            tasks.push(Task { run, until: sent_at + self.timing.stop_after, start_by, stopped });
        }
        if !tasks.is_empty() {
            // The driver hands the tasks to the pool after this call, so count them as waiting now.
            self.pool.waiting += tasks.len();
            self.pool.oldest.get_or_insert(self.now);
            self.instructions.push(Instruction::Start(tasks));
        }
    }

    /// Releases claims whose runs did not start. The claim was sent at `sent_at`.
    fn release(&mut self, claims: impl IntoIterator<Item = FencingToken>, sent_at: Instant) {
        for claim in claims {
            self.leases.add(claim, self.now, sent_at + self.timing.lease);
            self.writes.push(PendingWrite::Release(claim));
        }
    }
}
