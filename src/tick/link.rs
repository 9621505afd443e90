//! The connection as the machine sees it: when to connect again, and how long errors last. Pure.

use std::time::{Duration, Instant};

use crate::store::{self, Kind};

/// The shortest pause before a rejected statement is sent again.
const REJECTED_PAUSE: Duration = Duration::from_millis(200);
/// The pause grows to this part, 1/10, of the time since the first rejection, up to
/// `LONGEST_PAUSE`: a full disk may last for hours.
const REJECTED_PART: u32 = 10;
/// If a lock or a full disk lasts this long, a person must act: log a warning.
const WARN_AFTER: Duration = Duration::from_secs(5);
/// The pause after the first failed attempt to connect. It doubles after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause before the tick connects again, or sends a rejected statement again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// An answer that takes at least this long, and longer than a heartbeat, is slow.
const SLOW: Duration = Duration::from_secs(2);

/// The time of the longest of the latest answers, as an estimate of the next one.
#[derive(Clone, Copy, Debug, Default)]
struct Longest(Duration);

impl Longest {
    /// Takes the duration of an answer. A longer one counts at once. After a shorter one, the
    /// estimate falls by at most a quarter.
    fn observe(&mut self, took: Duration) {
        self.0 = took.max(self.0 * 3 / 4);
    }
}

/// The state of the connection.
#[derive(Debug, Default)]
pub(super) struct Link {
    is_up: bool,
    /// The latest session has answered.
    has_answered: bool,
    /// How often the connection was lost or refused since the last answer.
    losses: u32,
    /// Why the connection was lost, or why the database rejected a statement. The next answer
    /// clears it.
    unavailable: Option<anyhow::Error>,
    /// Since when there is no connection that has answered.
    away_since: Option<Instant>,
    /// Since when statements have been rejected, while no results or claims were accepted.
    rejected_since: Option<Instant>,
    /// Whether a rejection was logged as a warning.
    has_warned: bool,
    /// Whether a slow answer was logged as a warning.
    has_warned_slow: bool,
    /// The duration of the longest slow answer that is not recorded in the database yet.
    slow_answer: Option<Duration>,
    longest_answer: Longest,
    longest_renewal: Longest,
    longest_step: Longest,
    /// Until this time the tick sends nothing.
    paused_until: Option<Instant>,
}

impl Link {
    /// Returns a link without a connection.
    pub(super) fn new(now: Instant) -> Self {
        Self { away_since: Some(now), ..Self::default() }
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Whether the database has answered over the latest connection.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Returns until when the tick sends nothing, after a rejection.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Returns since when the database is away; `None` while there is a connection, even if the
    /// database has not answered over it yet.
    pub(super) fn away_since(&self) -> Option<Instant> {
        self.away_since.filter(|_| !self.is_up)
    }

    /// Notes that there is a connection. It has not answered yet.
    pub(super) fn connected(&mut self) {
        (self.is_up, self.has_answered) = (true, false);
    }

    /// Notes that the database has answered, so the connection works.
    pub(super) fn answered(&mut self) {
        (self.has_answered, self.losses, self.unavailable) = (true, 0, None);
        self.away_since = None;
    }

    /// Notes the duration of an answer of any kind.
    pub(super) fn observe(&mut self, took: Duration) {
        self.longest_answer.observe(took);
    }

    /// Notes the duration of a renewal.
    pub(super) fn observe_renewal(&mut self, took: Duration) {
        self.observe(took);
        self.longest_renewal.observe(took);
    }

    /// Notes the duration of a step.
    pub(super) fn observe_step(&mut self, took: Duration) {
        self.observe(took);
        self.longest_step.observe(took);
    }

    /// Returns the time of the longest of the latest answers.
    pub(super) fn longest_answer(&self) -> Duration {
        self.longest_answer.0
    }

    /// Returns the time of the longest of the latest renewals; before the first renewal, of any
    /// answers.
    pub(super) fn longest_renewal(&self) -> Duration {
        let Longest(took) = self.longest_renewal;
        if took.is_zero() { self.longest_answer.0 } else { took }
    }

    /// Returns the time of the longest of the latest steps.
    pub(super) fn longest_step(&self) -> Duration {
        self.longest_step.0
    }

    /// Takes the duration of an answer, and remembers it if it is slow. Returns whether to warn of
    /// a slow database, which is true only once.
    pub(super) fn take_slow_warning(&mut self, took: Duration, heartbeat: Duration) -> bool {
        let is_slow = took >= heartbeat.max(SLOW);
        if is_slow {
            self.slow_answer = self.slow_answer.max(Some(took));
        }
        is_slow && !std::mem::replace(&mut self.has_warned_slow, true)
    }

    /// Whether a slow answer is not recorded in the database yet.
    pub(super) fn has_slow_answer(&self) -> bool {
        self.slow_answer.is_some()
    }

    /// Returns the longest slow answer that is not recorded in the database yet, and forgets it:
    /// the caller records it.
    pub(super) fn take_slow_answer(&mut self) -> Option<Duration> {
        self.slow_answer.take()
    }

    /// Ends the time of rejections: the database accepted results or claims, or there was nothing
    /// to send.
    pub(super) fn accepted(&mut self) {
        self.rejected_since = None;
    }

    /// Begins a pause, after which a rejected statement is sent again. The pause is much shorter
    /// than a `heartbeat`, because leases must be renewed.
    pub(super) fn rejected(&mut self, now: Instant, heartbeat: Duration) {
        // A rejection is an answer, too.
        self.answered();
        self.rejected_since.get_or_insert(now);
        let part = self.rejected_for(now) / REJECTED_PART;
        let pause = part.min(LONGEST_PAUSE).min(heartbeat / 5).max(REJECTED_PAUSE);
        self.paused_until = Some(now + pause);
    }

    /// Returns whether to log a warning about a rejection, which is true only once: at once for an
    /// unexpected error, but after `WARN_AFTER` for a lock or a full disk.
    pub(super) fn take_warning(&mut self, now: Instant, error: &store::Error) -> bool {
        let lasts = self.rejected_for(now) >= WARN_AFTER;
        let warns = !self.has_warned && (error.kind != Kind::Busy || lasts);
        self.has_warned |= warns;
        warns
    }

    /// Returns the time since the first rejection after which nothing was accepted.
    pub(super) fn rejected_for(&self, now: Instant) -> Duration {
        self.rejected_since.map_or(Duration::ZERO, |since| now - since)
    }

    /// Notes that the connection was lost or refused. Returns the pause before the next attempt to
    /// connect.
    pub(super) fn lost(&mut self, now: Instant, why: anyhow::Error) -> Duration {
        (self.is_up, self.unavailable) = (false, Some(why));
        self.away_since.get_or_insert(now);
        let pause = match self.losses {
            // The first loss since an answer: connect again at once.
            0 => Duration::ZERO,
            // Double the pause each time. 2^10 is far above the limit, and fits the number.
            losses => LONGEST_PAUSE.min(FIRST_PAUSE * (1 << (losses - 1).min(10))),
        };
        self.losses += 1;
        pause
    }

    /// Remembers why the latest statement failed, which may succeed later.
    pub(super) fn unavailable(&mut self, why: anyhow::Error) {
        self.unavailable = Some(why);
    }

    /// Takes the error that `unavailable` or `lost` noted, if there was no answer since.
    pub(super) fn take_unavailable(&mut self) -> Option<anyhow::Error> {
        self.unavailable.take()
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use crate::exit::Exit;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_longest_answer_is_forgotten_slowly_and_kinds_are_separate() {
        let mut link = Link::default();
        assert_eq!(link.longest_renewal(), Duration::ZERO);
        link.observe(seconds(4));
        assert_eq!((link.longest_renewal(), link.longest_step()), (seconds(4), Duration::ZERO));
        link.observe_renewal(seconds(1));
        assert_eq!((link.longest_answer(), link.longest_renewal()), (seconds(3), seconds(1)));
        link.observe_step(seconds(8));
        assert_eq!((link.longest_answer(), link.longest_step()), (seconds(8), seconds(8)));
        assert_eq!(link.longest_renewal(), seconds(1));
    }

    #[test]
    fn a_slow_answer_is_kept_until_it_is_taken_and_logged_once() {
        let mut link = Link::default();
        let heartbeat = seconds(5);
        assert!(!link.take_slow_warning(seconds(4), heartbeat) && !link.has_slow_answer());
        assert!(link.take_slow_warning(seconds(6), heartbeat) && link.has_slow_answer());
        assert!(
            !link.take_slow_warning(seconds(7), heartbeat)
                && !link.take_slow_warning(seconds(5), heartbeat)
        );
        assert_eq!((link.take_slow_answer(), link.take_slow_answer()), (Some(seconds(7)), None));
        // Even with a very short lease, not each answer is slow.
        assert!(!Link::default().take_slow_warning(seconds(1), Duration::ZERO));
        assert!(Link::default().take_slow_warning(SLOW, Duration::ZERO));
    }

    #[test]
    fn each_lost_connection_is_followed_by_a_longer_pause_until_an_answer() {
        let mut link = Link::default();
        link.connected();
        assert!(link.is_up() && !link.has_answered());
        link.answered();
        assert!(link.has_answered());
        let now = Instant::now();
        let lost = |link: &mut Link| link.lost(now, anyhow!("gone")).as_millis();
        let pauses = [(); 7].map(|()| lost(&mut link));
        assert_eq!(pauses, [0, 200, 400, 800, 1600, 3200, 5000]);
        assert!(!link.is_up() && link.take_unavailable().is_some());
        // A new connection has not answered yet.
        link.connected();
        assert_eq!((link.has_answered(), lost(&mut link)), (false, 5000));
        link.connected();
        link.answered();
        assert!(link.take_unavailable().is_none());
        assert_eq!(lost(&mut link), 0);
    }

    #[test]
    fn rejections_last_until_a_statement_is_accepted() {
        let (mut link, now) = (Link::default(), Instant::now());
        assert_eq!(link.rejected_for(now), Duration::ZERO);
        link.rejected(now, seconds(20));
        assert_eq!(link.paused_until(), Some(now + REJECTED_PAUSE));
        link.rejected(now + seconds(1), seconds(20));
        assert_eq!(link.rejected_for(now + seconds(3)), seconds(3));
        // The pause grows, up to a fifth of a heartbeat, and to the longest.
        for (after, heartbeat, pause) in [(10, 20, 1), (1000, 20, 4), (1000, 60, 5)] {
            let at = now + seconds(after);
            link.rejected(at, seconds(heartbeat));
            assert_eq!(link.paused_until(), Some(at + seconds(pause)));
        }
        link.accepted();
        assert_eq!(link.rejected_for(now + seconds(3)), Duration::ZERO);
    }

    #[test]
    fn a_lock_is_logged_after_a_while_and_another_error_at_once() {
        let now = Instant::now();
        let error = |kind| store::Error::new(kind, Exit::Unavailable, "no");
        let mut link = Link::default();
        link.rejected(now, seconds(20));
        let early = now + WARN_AFTER.checked_sub(Duration::from_millis(1)).unwrap();
        assert!(!link.take_warning(early, &error(Kind::Busy)));
        assert!(link.take_warning(now + WARN_AFTER, &error(Kind::Busy)));
        assert!(!link.take_warning(now + WARN_AFTER, &error(Kind::Data)));
        let mut link = Link::default();
        link.rejected(now, seconds(20));
        assert!(
            link.take_warning(now, &error(Kind::Data))
                && !link.take_warning(now, &error(Kind::Data))
        );
    }
}
