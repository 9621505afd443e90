//! The way to the exit: what ends a phase, what the next one begins with, and the result of the
//! tick.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use log::Level;

use super::{Instruction, Machine};
use crate::job::attempt::StopReason;
use crate::text::{duration, plural};
use crate::tick::phase::{Phase, PhaseEnd};

/// How long to wait for jobs after they were asked to stop. Then the process exits without them.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a tick that was asked to stop and runs no job waits for the database before it exits.
pub(super) const IDLE_END_TIMEOUT: Duration = Duration::from_secs(1);

impl Machine {
    /// Returns when to release the claim right, or to record a slow answer that came after the last
    /// wake: now, if one of both is necessary.
    pub(super) fn leave_due(&self) -> Option<Instant> {
        let needs_right = self.phase == Phase::Working && !self.claims.gives_up_right();
        let releases_right = self.claims.has_right() && !needs_right;
        // A wake records slow answers, but a short tick does not wake again after the last one.
        let records_slow = self.phase == Phase::Leaving && self.link.has_slow_answer();
        if releases_right || records_slow { Some(self.now) } else { None }
    }

    /// Returns when to delete old runs: now, if nothing else is left to do.
    pub(super) fn prune_due(&self) -> Option<Instant> {
        if self.phase == Phase::Leaving && self.may_prune { Some(self.now) } else { None }
    }

    /// Returns when the phase is spent; `None`: it has no limit now. The phase `Ending` has none
    /// while there is a connection and a result that was never sent.
    pub(super) fn phase_end(&self) -> Option<Instant> {
        let sends_results =
            self.phase == Phase::Ending && self.link.is_up() && self.writes.has_new_results();
        if sends_results { None } else { self.phase_ends }
    }

    /// Reacts to a signal. After the first signal, running jobs may finish within the grace period.
    /// Another signal kills them.
    pub(super) fn signal(&mut self) {
        let was_stopping = self.phase.is_stopping();
        self.has_signal = true;
        self.end_phase(PhaseEnd::Signal);
        if was_stopping {
            self.instructions.push(Instruction::Hurry);
        }
    }

    /// Ends the tick early, because it can't go on. The tick reports the first such error.
    pub(super) fn fail(&mut self, error: anyhow::Error) {
        self.failure.get_or_insert(error);
        self.end_phase(PhaseEnd::Failure);
    }

    /// Goes to the next phase if `cause` ends the present one, and begins it.
    pub(super) fn end_phase(&mut self, cause: PhaseEnd) {
        let before = self.phase;
        self.phase = before.after(cause);
        if self.phase == before {
            return;
        }
        self.phase_ends = None;
        match self.phase {
            Phase::Working | Phase::Draining => {}
            Phase::Stopping => {
                let (running, grace) = (self.pool.running, self.bounds.grace);
                let mut line =
                    format!("stopping: {running} running, grace {}", duration::show(grace));
                if running > 0 {
                    line += "; a second signal ends them now";
                }
                self.log(Level::Info, line);
                self.phase_ends = Some(self.now + grace);
            }
            Phase::Ending => {
                for claim in self.leases.tokens() {
                    self.instructions.push(Instruction::Stop(claim, StopReason::Interrupted));
                }
                // Leases whose runs did not start, so that only their release is left to do.
                let sent = self.unanswered.iter().flat_map(|sent| &sent.writes);
                let sent_releases = sent.filter(|write| write.released().is_some()).count();
                let releases = sent_releases + self.writes.releases();
                let has_jobs_or_results = self.leases.len() > releases;
                let timeout = if has_jobs_or_results { END_TIMEOUT } else { IDLE_END_TIMEOUT };
                self.phase_ends = Some(self.now + timeout);
            }
            Phase::Leaving => {
                // A tick that was asked to stop has little time.
                if before.is_stopping() {
                    self.phase_ends = Some(self.now + IDLE_END_TIMEOUT);
                }
                if before.is_stopping() || self.failure.is_some() {
                    self.may_prune = false;
                }
            }
            Phase::Done => self.exit(),
        }
    }

    /// Whether nothing is left to do in this phase.
    pub(super) fn is_idle(&self) -> bool {
        let holds_no_run = self.leases.is_empty();
        match self.phase {
            Phase::Working => {
                let wakes = self.is_searching() || self.wakes_again;
                holds_no_run && self.link.is_up() && self.claims.is_idle() && !wakes
            }
            Phase::Draining | Phase::Stopping | Phase::Ending => holds_no_run,
            Phase::Leaving => !self.link.is_up() || self.leave_due().or(self.prune_due()).is_none(),
            Phase::Done => false,
        }
    }

    /// Drops the writes that are left, and hands the result of the tick to the driver.
    pub(super) fn exit(&mut self) {
        self.drop_all_writes();
        // The claims that are left have no such write: their job runs, or a request with their
        // write has no answer yet.
        for claim in self.leases.tokens().collect::<Vec<_>>() {
            let subject = format!("run {}", claim.id);
            self.give_up(claim, &subject, &"not released at the exit");
        }
        // After a signal, the tick does not wait for a slow answer, and so may lose the connection.
        // Then only the runs that it gave up are an error.
        let unavailable = if self.has_signal { None } else { self.link.take_unavailable() };
        let result = if let Some(failure) = self.failure.take().or(unavailable) {
            Err(failure)
        } else if self.given_up > 0 {
            let runs = plural::of(self.given_up as i64, "run");
            Err(anyhow!(
                "cannot record or release {runs} in time; other ticks recover them when their \
                 leases end; see the log"
            ))
        } else {
            Ok(())
        };
        self.instructions.push(Instruction::Exit(result));
    }
}
