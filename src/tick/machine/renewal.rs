//! The renewal: when it is due and when it precedes all else, which leases it renews, and what the
//! answer means for their jobs. After it, the output of running jobs is stored.

use std::time::Instant;

use log::Level;

use super::{Instruction, Machine, SentRequest};
use crate::job::attempt::StopReason;
use crate::store::{self, Kind, LeaseState, Renewed};
use crate::tick::phase::Phase;
use crate::tick::request::Request;
use crate::tick::turns::Duty;

impl Machine {
    /// Returns when to renew leases; `None`: no lease needs to be renewed.
    pub(super) fn renewal_due(&self) -> Option<Instant> {
        let is_needed = match self.phase {
            // The jobs end soon: renew only leases that would end before the phase does.
            Phase::Ending => self.leases.first_end().is_some_and(|end| Some(end) < self.phase_ends),
            Phase::Leaving => false,
            _ => !self.leases.is_empty(),
        };
        if is_needed { Some(self.next_renewal) } else { None }
    }

    /// Returns when to store the output of running jobs: now, if enough renewals have succeeded
    /// since the last time.
    pub(super) fn output_due(&self) -> Option<Instant> {
        let is_due = self.phase < Phase::Ending
            && self.renewals_until_output == 0
            && !self.is_lease_in_danger();
        if is_due { Some(self.now) } else { None }
    }

    /// Whether leases are renewed before all else: if a lease is in danger. But if they need
    /// several slow statements, results have a turn after each of these.
    pub(super) fn renews_first(&self) -> bool {
        // Both other duties now precede the renewal, so the last request was a renewal.
        let was_renewal = self.turns.before(Duty::Renew) == 2;
        let is_turn_of_results = self.has_writes() && was_renewal;
        !is_turn_of_results && self.is_lease_in_danger()
    }

    /// Whether the lease of a job might end if another request came before its renewal.
    pub(super) fn is_lease_in_danger(&self) -> bool {
        // Another request and the renewal take one answer each.
        let renewed_by = self.now + 2 * self.timing.answer_limit();
        self.leases.first_end().is_some_and(|end| self.timing.job_stops(end) < renewed_by)
    }

    /// Makes the request that renews leases, and notes its claims in `sent`. If no lease needs it
    /// yet, sets the time of the next renewal instead, and returns `None`.
    pub(super) fn renew(&mut self, sent: &mut SentRequest) -> Option<Request> {
        // Skip leases that began or were renewed a moment ago: a tick may hold thousands of very
        // short runs.
        let before = self.now + self.timing.lease - self.timing.heartbeat / 5;
        let (claims, kept, renewable_from) = self.leases.to_renew(self.now, before);
        if claims.is_empty() && kept.is_empty() {
            let usual = self.now + self.timing.heartbeat;
            self.next_renewal = match renewable_from {
                Some(from) => usual.min(from),
                None => usual,
            };
            return None;
        }
        (sent.renewed, sent.kept) = (claims.clone(), kept.len());
        Some(Request::Renew { claims, kept })
    }

    /// Reacts to the answer to a renewal: extends the renewed leases, and stops runs that were
    /// cancelled or whose lease is lost.
    pub(super) fn renewed(
        &mut self,
        sent: &SentRequest,
        answer: store::Result<Vec<Renewed>>,
    ) -> store::Result<()> {
        self.leases.renew_rows_again();
        let answers = match answer {
            Ok(answers) => answers,
            Err(error) => return self.renewal_failed(sent, error),
        };
        let heartbeat = self.timing.heartbeat;
        let stop_at = sent.at + self.timing.stop_after;
        let expires = sent.at + self.timing.lease;
        let mut extended = Vec::with_capacity(answers.len());
        let mut stops = Vec::new();
        for (claim, state) in answers {
            // The tick may have given the claim up meanwhile.
            let Some(lease) = self.leases.get_mut(&claim) else { continue };
            match state {
                LeaseState::Renewed | LeaseState::Kept | LeaseState::CancelRequested => {
                    // A request for no rows has renewed leases only in `job_locked_runs`.
                    let in_row = !sent.renewed.is_empty();
                    lease.extend(expires, in_row);
                    extended.push(claim);
                    if state == LeaseState::CancelRequested {
                        stops.push(Instruction::Stop(claim, StopReason::Cancelled));
                    }
                }
                LeaseState::Busy => lease.renew_from(Some(sent.at + heartbeat)),
                LeaseState::Lost => {
                    // Another worker may have the run: never renew this lease again.
                    lease.renew_from(None);
                    stops.push(Instruction::Stop(claim, StopReason::LeaseLost));
                }
            }
        }
        self.renewals_until_output = self.renewals_until_output.saturating_sub(1);
        self.instructions.push(Instruction::Extend(extended, stop_at));
        self.instructions.extend(stops);
        let was_full = self.leases.accepted(sent.renewed.len(), self.was_quick(sent.at));
        if !was_full {
            self.next_renewal = sent.at + heartbeat;
        }
        Ok(())
    }

    /// Reacts to an error of a renewal, so that one slow or rejected row does not cost the other
    /// runs their leases.
    fn renewal_failed(&mut self, sent: &SentRequest, error: store::Error) -> store::Result<()> {
        let soon = self.now + self.timing.heartbeat / 5;
        if sent.renewed.is_empty() {
            // The request had no row that may be the cause.
            self.next_renewal = soon;
            return Err(error);
        }
        if error.is_too_slow || error.is_locked() {
            // At once, renew all leases in `job_locked_runs`. The rows follow in smaller batches.
            self.leases.too_long(sent.renewed.len(), &error);
            self.next_renewal = self.now;
            if let Some(claim) = self.leases.keep_all(&sent.renewed) {
                let kept = "its lease is kept in job_locked_runs";
                let line = format!("run {}: {}; {kept}", claim.id, error.for_log());
                self.log_about(claim, Level::Warn, line);
            }
            return Ok(());
        }
        if error.may_be_about_rows() {
            self.leases.rejected(sent.renewed.len());
            // Several rows: the next renewal has half of them, until the rejected one is alone.
            let [claim] = &*sent.renewed else { return Ok(()) };
            let is_data = error.kind == Kind::Data;
            if let Some(lease) = self.leases.get_mut(claim) {
                lease.renew_from(if is_data { None } else { Some(soon) });
            }
            if !is_data {
                return Err(error);
            }
            self.leave_to_lease(*claim, &format!("run {}", claim.id), &error);
            return Ok(());
        }
        if self.took_too_long(sent.at) {
            self.leases.too_long(sent.renewed.len(), &error);
        }
        // Retry soon. Until then, the tick records results.
        self.next_renewal = soon;
        Err(error)
    }
}
