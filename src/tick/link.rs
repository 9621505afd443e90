//! The connection as the machine sees it: when to connect again, and how long errors last. Pure.

use std::time::{Duration, Instant};

use crate::store::{self, Kind};

/// The pause before a rejected statement is sent again.
const REJECTED_PAUSE: Duration = Duration::from_millis(200);
/// If a lock or a full disk lasts this long, a person must act: log a warning.
const WARN_AFTER: Duration = Duration::from_secs(5);
/// The pause after the first failed attempt to connect. It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// An answer that takes at least this long, and longer than a heartbeat, is slow.
const SLOW: Duration = Duration::from_secs(2);

/// How long an answer takes at most, as far as the latest ones show.
#[derive(Clone, Copy, Debug, Default)]
struct Longest(Duration);

impl Longest {
    fn observe(&mut self, took: Duration) {
        self.0 = took.max(self.0 * 3 / 4);
    }
}

#[derive(Debug, Default)]
pub(super) struct Link {
    is_up: bool,
    /// The latest session has answered.
    has_answered: bool,
    /// How often the connection was lost or refused since the last answer.
    losses: u32,
    /// Why it was lost, until the next answer.
    lost: Option<anyhow::Error>,
    /// Since when statements have been rejected, while no results or claims were accepted.
    rejected_since: Option<Instant>,
    has_warned: bool,
    has_warned_slow: bool,
    /// The longest slow answer that the database does not know yet.
    slow: Option<Duration>,
    longest_answer: Longest,
    longest_renewal: Longest,
    longest_step: Longest,
    /// Until this time the tick sends nothing.
    paused_until: Option<Instant>,
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    pub(super) fn connected(&mut self) {
        (self.is_up, self.has_answered) = (true, false);
    }

    pub(super) fn answered(&mut self) {
        (self.has_answered, self.losses, self.lost) = (true, 0, None);
    }

    /// Records how long an answer took.
    pub(super) fn observe(&mut self, took: Duration) {
        self.longest_answer.observe(took);
    }

    pub(super) fn observe_renewal(&mut self, took: Duration) {
        self.observe(took);
        self.longest_renewal.observe(took);
    }

    pub(super) fn observe_step(&mut self, took: Duration) {
        self.observe(took);
        self.longest_step.observe(took);
    }

    /// Returns how long an answer takes at most, as far as the latest ones show.
    pub(super) fn longest_answer(&self) -> Duration {
        self.longest_answer.0
    }

    /// Returns how long a renewal takes; before the first one, as long as other answers.
    pub(super) fn longest_renewal(&self) -> Duration {
        let Longest(took) = self.longest_renewal;
        if took.is_zero() { self.longest_answer.0 } else { took }
    }

    pub(super) fn longest_step(&self) -> Duration {
        self.longest_step.0
    }

    /// Records a slow answer. Returns whether to warn of a slow database, once.
    pub(super) fn warns_slow(&mut self, took: Duration, heartbeat: Duration) -> bool {
        let is_slow = took >= heartbeat.max(SLOW);
        if is_slow {
            self.slow = self.slow.max(Some(took));
        }
        is_slow && !std::mem::replace(&mut self.has_warned_slow, true)
    }

    /// Whether the database does not know yet that it is slow.
    pub(super) fn is_slow(&self) -> bool {
        self.slow.is_some()
    }

    /// Returns the longest slow answer that the database does not know yet.
    pub(super) fn take_slow(&mut self) -> Option<Duration> {
        self.slow.take()
    }

    /// Results and claims were accepted, or there was nothing to send.
    pub(super) fn accepted(&mut self) {
        self.rejected_since = None;
    }

    /// The database rejected a statement, which is sent again after a pause.
    pub(super) fn rejected(&mut self, now: Instant) {
        self.answered();
        self.paused_until = Some(now + REJECTED_PAUSE);
        self.rejected_since.get_or_insert(now);
    }

    /// Returns whether to log a warning about a rejection. Warns only once: immediately after an
    /// unexpected error, but after a delay for a lock or a full disk.
    pub(super) fn warns(&mut self, now: Instant, error: &store::Error) -> bool {
        let lasts = self.rejected_for(now) >= WARN_AFTER;
        let warns = !self.has_warned && (error.kind != Kind::Busy || lasts);
        self.has_warned |= warns;
        warns
    }

    /// Returns the time since the first rejection without any success.
    pub(super) fn rejected_for(&self, now: Instant) -> Duration {
        self.rejected_since.map_or(Duration::ZERO, |since| now - since)
    }

    /// The connection was lost or refused. Returns the pause before the next attempt to connect.
    pub(super) fn lost(&mut self, why: anyhow::Error) -> Duration {
        (self.is_up, self.lost) = (false, Some(why));
        let pause = match self.losses {
            0 => Duration::ZERO,
            losses => LONGEST_PAUSE.min(FIRST_PAUSE * (1 << (losses - 1).min(10))),
        };
        self.losses += 1;
        pause
    }

    pub(super) fn take_lost(&mut self) -> Option<anyhow::Error> {
        self.lost.take()
    }
}
