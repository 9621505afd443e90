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
/// How long a tick that runs nothing waits for the database before it exits.
pub(super) const IDLE_END_TIMEOUT: Duration = Duration::from_secs(1);

impl Machine {
    /// Returns when to release the claim right, or to record a slow answer that came after the last
    /// wake.
    pub(super) fn leave_due(&self) -> Option<Instant> {
        let needs_right = self.phase == Phase::Working && !self.claims.gives_up_right();
        // A short tick does not wake again after a slow answer, and may have no right to release.
        let notes_slow = self.phase == Phase::Leaving && self.link.has_slow_answer();
        (self.claims.has_right() && !needs_right || notes_slow).then_some(self.now)
    }

    /// Returns when to delete old runs: now, if nothing else is left to do.
    pub(super) fn prune_due(&self) -> Option<Instant> {
        (self.phase == Phase::Leaving && self.may_prune).then_some(self.now)
    }

    /// Returns when the phase is spent. The last one before the exit goes on until each result was
    /// sent once.
    pub(super) fn phase_end(&self) -> Option<Instant> {
        let sends_results =
            self.phase == Phase::Ending && self.link.is_up() && self.writes.has_new_results();
        self.phase_ends.filter(|_| !sends_results)
    }

    /// Reacts to a signal. After the first one running jobs may finish within the grace period.
    /// Another one kills them.
    pub(super) fn signal(&mut self) {
        let is_another = self.phase.is_stopping();
        self.has_signal = true;
        self.end_phase(PhaseEnd::Signal);
        if is_another {
            self.instructions.push(Instruction::Hurry);
        }
    }

    /// Ends the tick early with this error, unless another one came first.
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
                let claims: Vec<_> = self.leases.tokens().collect();
                let stop = |claim| Instruction::Stop(claim, StopReason::Interrupted);
                self.instructions.extend(claims.into_iter().map(stop));
                let sent = self.unanswered.iter().flat_map(|sent| &sent.writes);
                let releases = sent.filter(|write| write.released().is_some()).count();
                let holds = self.leases.len() > releases + self.writes.releases();
                let timeout = if holds { END_TIMEOUT } else { IDLE_END_TIMEOUT };
                self.phase_ends = Some(self.now + timeout);
            }
            Phase::Leaving => {
                self.may_prune &= !before.is_stopping() && self.failure.is_none();
                // Only a tick that was asked to stop has little time.
                self.phase_ends = before.is_stopping().then(|| self.now + IDLE_END_TIMEOUT);
            }
            Phase::Done => self.exit(),
        }
    }

    /// Whether nothing is left to do in this phase.
    pub(super) fn is_idle(&self) -> bool {
        let is_free = self.leases.is_empty();
        match self.phase {
            Phase::Working => {
                let wakes = self.is_searching() || self.wakes_again;
                is_free && self.link.is_up() && self.claims.is_idle() && !wakes
            }
            Phase::Draining | Phase::Stopping | Phase::Ending => is_free,
            Phase::Leaving => !self.link.is_up() || self.leave_due().or(self.prune_due()).is_none(),
            Phase::Done => false,
        }
    }

    /// Drops the writes that are left, and hands the result of the tick to the driver.
    pub(super) fn exit(&mut self) {
        self.drop_writes(|_, _| true);
        for claim in self.leases.tokens().collect::<Vec<_>>() {
            let subject = format!("run {}", claim.id);
            self.give_up(claim, &subject, &"not released at the exit");
        }
        // After a signal the tick does not wait for a slow answer. Then only claimed runs matter,
        // not a lost connection.
        let lost = self.link.take_unavailable().filter(|_| !self.has_signal);
        let result = match self.failure.take().or(lost) {
            Some(failure) => Err(failure),
            None if self.given_up == 0 => Ok(()),
            None => {
                let runs = plural::of(self.given_up as i64, "run");
                Err(anyhow!(
                    "cannot record or release {runs} in time; other ticks recover them when their \
                     leases end; see the log"
                ))
            }
        };
        self.instructions.push(Instruction::Exit(result));
    }
}
