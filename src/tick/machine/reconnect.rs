//! The connection and its errors: whether the tick connects again, keeps trying, drains or ends.

use std::time::Instant;

use log::Level;

use super::wake::Search;
use super::{Instruction, Machine};
use crate::exit::Exit;
use crate::store::{self, Kind};
use crate::tick::phase::{Phase, PhaseEnd};

impl Machine {
    /// Returns when a tick that runs no job gives the database up; `None`: it runs a job, there is
    /// a connection, or there is no limit.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        let runs_jobs = self.pool.running + self.pool.waiting > 0;
        if runs_jobs {
            return None;
        }
        Some(self.link.away_since()?.max(self.last_ended) + self.bounds.outage?)
    }

    /// Reacts to a new connection: makes a renewal and a claim due now.
    pub(super) fn connected(&mut self) {
        self.link.connected();
        self.next_renewal = self.now;
        // Output is not stored before a renewal has succeeded.
        self.renewals_until_output = self.renewals_until_output.max(1);
        // During the outage, runs may have been released.
        self.claims.claim_soon(self.now);
    }

    /// Decides after an error of the database whether to try again, to drain, or to end.
    pub(super) fn on_error(&mut self, error: store::Error) {
        if self.phase == Phase::Leaving {
            // Only leaving and pruning were left to do: skip both.
            self.claims.lose_right();
            self.may_prune = false;
            if error.kind == Kind::Lost {
                self.link.lost(self.now, error.into());
            } else {
                self.failure.get_or_insert(error.into());
            }
            return;
        }
        if error.kind == Kind::Lost {
            if self.link.has_answered() && self.reconnects() {
                let running = self.pool.running;
                let line = format!("{}; {running} running, reconnecting", error.for_log());
                self.log(Level::Warn, line);
            }
            return self.disconnected(error.into());
        }
        self.link.rejected(self.now, self.timing.heartbeat);
        let has_runs = !self.leases.is_empty();
        let is_lasting = self.link.rejected_for(self.now) >= self.timing.stop_after;
        // The schema was migrated, or no run can be claimed. Leases and results are not affected.
        let rejects_claims = error.kind == Kind::Data || error.exit == Exit::Schema;
        let tries_again = match error.kind {
            // A lock or the lack of a resource will end.
            Kind::Busy => has_runs || self.lingers(),
            // Jobs continue as in an outage, until their leases are about to end.
            _ => has_runs && self.phase != Phase::Ending && !is_lasting,
        };
        if rejects_claims && has_runs && self.phase == Phase::Working {
            // Claim nothing more, but let the running jobs finish.
            self.log(Level::Warn, format!("{error}; {} running", self.pool.running));
            self.failure.get_or_insert(error.into());
            self.end_phase(PhaseEnd::Spent);
        } else if tries_again {
            self.warn(&error);
            self.link.unavailable(error.into());
        } else {
            self.fail(error.into());
        }
    }

    /// Logs an error after which the tick goes on: for debugging, and once also as a warning, see
    /// `Link::take_warning`.
    fn warn(&mut self, error: &store::Error) {
        if self.link.take_warning(self.now, error) {
            self.log(Level::Warn, format!("{}; jobctl keeps trying", error.for_log()));
        }
        self.log(Level::Debug, error.to_string());
    }

    /// Reacts to a lost or refused connection: connects again if the tick has claimed runs or
    /// lingers, and otherwise ends the tick. Jobs continue until their leases are about to end.
    pub(super) fn disconnected(&mut self, error: anyhow::Error) {
        (self.search, self.wakes_again) = (Search::None, false);
        self.claims.lose_right();
        let pause = self.link.lost(self.now, error);
        if self.reconnects() {
            self.instructions.push(Instruction::Connect(pause));
        } else {
            self.end_phase(PhaseEnd::Failure);
        }
    }

    /// Whether to connect again: while the tick has claimed runs, or lingers. Without claimed runs,
    /// a lingering tick exits once a connection ends without an answer, and cron starts the next
    /// tick.
    fn reconnects(&self) -> bool {
        !self.leases.is_empty() || self.lingers() && self.link.has_answered()
    }

    /// Whether the tick still polls for due runs.
    fn lingers(&self) -> bool {
        self.bounds.linger && self.phase == Phase::Working
    }
}
