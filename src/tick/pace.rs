//! How many runs to claim: as many as can start at once, and where they are very short a few more,
//! so that workers need not wait for the next statement. Pure.

use std::time::Duration;

use crate::store::Claimed;

/// What is claimed ahead starts within this time, where the database is near.
pub(super) const BLINK: Duration = Duration::from_millis(100);
/// And within this one, however far away or busy it is.
const LONGEST_BLINK: Duration = Duration::from_millis(500);
/// What is claimed ahead lasts for so many answers: the next are asked for when half of it is left, that may have
/// to wait for the answer before, and a database that many ticks keep busy is asked the less often.
const ANSWERS_AHEAD: u32 = 8;
/// With so many results at hand there is nothing more to gain by waiting for others.
pub(super) const PLENTY: usize = 500;
/// Runs claimed ahead at most.
const AHEAD: usize = 4000;
/// And for each that was seen to end: the first is often one that failed at once.
const AHEAD_OF_SEEN: usize = 4;
/// Bytes of payload that they have at most, give or take.
pub(super) const BYTES_AHEAD: usize = 4 * 1024 * 1024;

/// How long runs and the database's answers take and how large runs are, as far as this tick has seen.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Seconds: a mean in which the latest runs weigh most. `None` until one has ended.
    mean: Option<f64>,
    /// Bytes of a payload, in the same manner.
    size: usize,
    seen: usize,
    /// What an answer takes, a mean likewise.
    answer: Duration,
    /// The latest claim brought a run's last attempt, and so the next may: none is claimed ahead of its start.
    at_last_attempts: bool,
    /// It brought all that was due: the next is not urgent.
    found_all: bool,
}

impl Pace {
    /// Learns from a run that took so long and had a payload of so many bytes. What is slower or larger is
    /// believed at once, the contrary slowly: holding back work from others is worse than asking once too often.
    pub(super) fn observe(&mut self, took: Duration, payload: usize) {
        let took = took.as_secs_f64();
        self.size = payload.max(self.size - self.size.saturating_sub(payload) / 8);
        self.seen += 1;
        self.mean = Some(match self.mean {
            Some(mean) if took < self.blink().as_secs_f64() => mean + (took - mean) / 8.0,
            _ => took,
        });
    }

    /// Learns from a claim, which `found_all` that was due or did not.
    pub(super) fn observe_claim(&mut self, claimed: &[Claimed], found_all: bool) {
        self.found_all = found_all;
        if !claimed.is_empty() {
            self.at_last_attempts = claimed.iter().any(|run| run.attempt >= run.max_attempts);
        }
    }

    /// Learns from a transaction that took so long. A stall says nothing about the next one.
    pub(super) fn observe_answer(&mut self, took: Duration) {
        self.answer = (3 * self.answer + took.min(LONGEST_BLINK / ANSWERS_AHEAD)) / 4;
    }

    /// What is claimed ahead starts within this time, and as long as there is some, a result waits for others so
    /// long at most: in a flood of them, statement after statement would take the processors from the very jobs,
    /// where the database shares them. One that comes while nothing else is going on is recorded at once.
    pub(super) fn blink(&self) -> Duration {
        (self.answer * ANSWERS_AHEAD).clamp(BLINK, LONGEST_BLINK)
    }

    /// A claim that has waited so long for a thread goes back; another host may be idle.
    pub(super) fn patience(&self) -> Duration {
        self.blink() * 5 / 2
    }

    /// Forgets what it learned of the runs; the next claim is for what can start at once.
    pub(super) fn reset(&mut self) {
        *self = Self { answer: self.answer, ..Self::default() };
    }

    /// How many runs to claim for `workers` threads that hold `held` runs already.
    pub(super) fn wanted(&self, workers: usize, held: usize) -> usize {
        // Asked for in handfuls: while half of what is ahead is there, nobody waits.
        if held <= workers + self.few(workers) { (workers + self.ahead(workers)).saturating_sub(held) } else { 0 }
    }

    /// When so few runs wait for a thread, it is time to claim the next.
    pub(super) fn few(&self, workers: usize) -> usize {
        // Where there was nothing more, none but those that come meanwhile are missed.
        if self.found_all {
            return 0;
        }
        self.ahead(workers).saturating_sub(1) / 2
    }

    fn ahead(&self, workers: usize) -> usize {
        if self.at_last_attempts {
            return 0;
        }
        let blink = self.blink().as_secs_f64();
        let Some(mean) = self.mean.map(|mean| mean.max(1e-6)).filter(|mean| *mean < blink) else {
            return 0;
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "bounded"
        )]
        let ahead = (workers as f64 * (blink / mean - 1.0)).clamp(0.0, AHEAD as f64) as usize;
        ahead.min(AHEAD_OF_SEEN * self.seen).min(BYTES_AHEAD / self.size.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(milliseconds: &[u64]) -> Pace {
        let mut pace = Pace::default();
        milliseconds.iter().for_each(|took| pace.observe(Duration::from_millis(*took), 100));
        pace
    }

    #[test]
    fn at_first_only_what_can_start_at_once_is_claimed() {
        assert_eq!(Pace::default().wanted(4, 0), 4);
        assert_eq!(Pace::default().wanted(4, 3), 1);
        assert_eq!(Pace::default().wanted(4, 4), 0);
    }

    #[test]
    fn long_runs_are_never_claimed_ahead() {
        assert_eq!(after(&[110, 5000]).wanted(4, 4), 0);
        assert_eq!(after(&[1, 1, 1, 5000]).wanted(4, 4), 0);
    }

    #[test]
    fn short_runs_are_claimed_a_blink_ahead_by_the_handful() {
        let pace = after(&[5; 100]);
        assert_eq!(pace.wanted(4, 0), 4 + 76);
        assert_eq!(pace.wanted(4, 4 + 38), 0);
        assert_eq!((pace.wanted(4, 4 + 37), pace.few(4)), (39, 37));
        let pace = after(&[30; 50]);
        assert_eq!((pace.wanted(1, 2), pace.wanted(1, 1), pace.few(1)), (0, 2, 0));
        assert!(after(&[0; 50]).wanted(4, 0) <= 4 + AHEAD);
        assert_eq!(after(&[5]).wanted(4, 4), 4);
    }

    #[test]
    fn what_is_ahead_lasts_for_the_answers_of_a_far_database() {
        let far = |answers: &[u64]| {
            let mut pace = after(&[50; 100]);
            answers.iter().for_each(|took| pace.observe_answer(Duration::from_millis(*took)));
            pace
        };
        assert_eq!((far(&[]).wanted(4, 0), far(&[10; 50]).wanted(4, 0)), (4 + 4, 4 + 4));
        assert_eq!(far(&[]).patience(), Duration::from_millis(250));
        let pace = far(&[40; 50]);
        assert_eq!((pace.wanted(4, 0), pace.few(4)), (4 + 21, 10));
        assert_eq!(pace.patience().as_millis(), 799);
        // However long an answer takes, and though one alone says little.
        assert_eq!(far(&[60_000; 50]).wanted(4, 0), 4 + 35);
        assert_eq!(far(&[1, 1, 60_000]).wanted(4, 0), 4 + 6);
    }

    #[test]
    fn where_last_attempts_come_nothing_is_claimed_ahead() {
        let mut pace = after(&[5; 100]);
        let run = |max_attempts| Claimed { max_attempts, ..Claimed::example(1) };
        pace.observe_claim(&[run(2), run(1)], false);
        assert_eq!((pace.wanted(4, 0), pace.wanted(4, 4), pace.few(4)), (4, 0, 0));
        pace.observe_claim(&[], false);
        assert_eq!(pace.wanted(4, 0), 4);
        pace.observe_claim(&[run(2), run(2)], false);
        assert_eq!(pace.wanted(4, 0), 4 + 76);
    }

    #[test]
    fn where_all_was_found_the_next_are_asked_for_when_none_is_left() {
        let mut pace = after(&[5; 100]);
        pace.observe_claim(&[], true);
        assert_eq!((pace.few(4), pace.wanted(4, 4 + 1), pace.wanted(4, 4)), (0, 0, 76));
        pace.observe_claim(&[], false);
        assert_eq!((pace.few(4), pace.wanted(4, 4 + 37)), (37, 39));
    }

    #[test]
    fn of_large_runs_few_are_claimed_ahead() {
        let mut pace = after(&[1; 1000]);
        assert_eq!(pace.wanted(16, 16), 1584);
        pace.observe(Duration::from_millis(1), 256 * 1024);
        assert_eq!(pace.wanted(16, 16), 16);
        (0..100).for_each(|_| pace.observe(Duration::from_millis(1), 100));
        assert_eq!(pace.wanted(16, 16), 1584);
    }
}
