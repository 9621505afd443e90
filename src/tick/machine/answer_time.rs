//! The time of an answer: how long the tick waits for it, and what follows from how long it took.

use std::time::{Duration, Instant};

use log::Level;

use super::{Machine, SentRequest};
use crate::store::Kind;
use crate::text::{duration, plural};
use crate::tick::phase::Phase;
use crate::tick::request::{Answer, AnswerTimeout};
use crate::tick::turns::Duty;

impl Machine {
    /// Returns how long to wait for the answer to this request. Even a tick that is short of time
    /// waits three times as long as other answers took: after an answer that it gives up, it must
    /// connect again before it can record a result.
    pub(super) fn answer_timeout(&self, sent: &SentRequest) -> AnswerTimeout {
        let slow = 3 * self.link.longest_answer();
        // While it records the last results, the end of the phase does not limit the wait.
        let records_last = self.phase == Phase::Ending && !sent.writes.is_empty();
        let until = if self.phase >= Phase::Stopping && !records_last {
            self.phase_ends.map(|end| end.max(self.now + slow))
        } else {
            None
        };
        // After a signal, running jobs must soon be asked to stop. If there are none, the tick
        // waits longer for the answer to a claim: without it, the claimed runs would wait until
        // their leases end.
        let is_only_claim = self.leases.is_empty() && sent.claim.is_some();
        let interrupted = if is_only_claim { self.bounds.grace.max(slow) } else { slow };
        let extra = if sent.is_again { self.spare() } else { Duration::ZERO };
        AnswerTimeout { until, interrupted, extra }
    }

    /// Returns how much longer than usual an answer may take, at most twice as long, so that all
    /// leases can still be renewed after it.
    fn spare(&self) -> Duration {
        let limit = self.timing.answer_limit();
        let Some(first_end) = self.leases.first_end() else { return limit };
        let renewed_by = self.now + limit + self.leases.renewals() * self.link.longest_renewal();
        self.timing.job_stops(first_end).saturating_duration_since(renewed_by).min(limit)
    }

    /// Measures how long the answer took, and logs once if the database is slow.
    pub(super) fn observe(&mut self, sent: &SentRequest, answer: &Answer) {
        let request_took = self.now - sent.at;
        let took = match answer {
            // A lost connection has its own pause, and says nothing about the time of answers.
            Answer::Renew(Err(error)) | Answer::Step(Err((error, _)))
                if error.kind == Kind::Lost =>
            {
                return;
            }
            Answer::Renew(_) => {
                self.link.observe_renewal(request_took);
                request_took
            }
            Answer::Step(_) => {
                self.link.observe_step(request_took);
                request_took
            }
            // A wake sends several statements, and has measured their answers itself.
            Answer::Wake { woken: Ok(woken), .. } => {
                self.link.observe(woken.took);
                woken.longest
            }
            Answer::Wake { woken: Err(_), .. }
            | Answer::Store(_)
            | Answer::Leave(_)
            | Answer::Prune => return,
        };
        if !self.link.take_slow_warning(took, self.timing.heartbeat) {
            return;
        }
        let runs = |count: usize| plural::of(count as i64, "run");
        let purpose = match sent.duty {
            Duty::Renew => {
                format!("to renew the leases of {}", runs(sent.renewed.len() + sent.kept))
            }
            Duty::Step if !sent.writes.is_empty() => {
                format!("to record {}", runs(sent.writes.len()))
            }
            Duty::Step => "to claim runs".to_owned(),
            _ => "to look for due runs".to_owned(),
        };
        let (took, limit) = (duration::show(took), duration::show(self.timing.answer_limit()));
        let line = format!(
            "the database is slow: it took {took} {purpose}; results, claims and the end of this \
             tick wait for such answers, and leases are lost if one takes longer than {limit}"
        );
        self.log(Level::Warn, line);
    }

    /// Whether a failed request took as long as a statement may take. If so, a request for fewer
    /// rows may succeed.
    pub(super) fn took_too_long(&self, sent_at: Instant) -> bool {
        self.now - sent_at >= self.timing.timeouts.statement
    }

    /// Whether a request took less than half of the time that a statement may take. Then a request
    /// for twice as many rows should not take too long.
    pub(super) fn was_quick(&self, sent_at: Instant) -> bool {
        self.now - sent_at < self.timing.timeouts.statement / 2
    }
}
