//! How many runs to claim: as many as can start at once. If runs are very short, the tick claims
//! more (prefetch), so that threads need not wait for the next claim. Pure.

use std::time::Duration;

use crate::store::Claimed;

/// Prefetched runs start within this time if the database is near.
pub(super) const WINDOW: Duration = Duration::from_millis(100);
/// A longer answer counts as one of this length: one stall does not predict the next answer. So
/// prefetched runs start within half a second, however far away or busy the database is.
const LONGEST_ANSWER: Duration = Duration::from_micros(62_500);
/// Prefetched runs keep the threads busy for the time of this many answers of the database. The
/// next claim is sent when half of them are left, and may have to wait for an earlier answer. A
/// larger number puts less load on a database with many ticks.
const ANSWERS_AHEAD: u32 = 8;
/// Batches with more results than this are no faster per result.
pub(super) const FULL_BATCH: usize = 500;
/// The maximum of prefetched runs.
const AHEAD: usize = 4000;
/// The maximum of prefetched runs per ended run. One ended run predicts little: the first may fail
/// faster than the others.
const AHEAD_PER_ENDED: usize = 4;
/// The approximate maximum of the payloads and results of prefetched runs, in bytes.
pub(super) const BYTES_AHEAD: usize = 4 * 1024 * 1024;

/// The durations and sizes that this tick has observed.
#[derive(Debug, Default)]
pub(super) struct Prefetch {
    /// The mean duration of a run in seconds; later runs count more. `None` until a run has ended.
    mean_run_time: Option<f64>,
    /// The size of the largest input of a job, in bytes. It falls if later inputs are smaller.
    input_bytes: usize,
    /// How many runs have ended.
    ended: usize,
    /// The mean duration of an answer; later answers count more.
    mean_answer: Duration,
    /// The latest claim returned a run's last attempt, so the next claim may, too. A last attempt
    /// is never claimed before it can start.
    at_last_attempts: bool,
    /// The latest claim returned all due runs: the next one is not urgent.
    found_all: bool,
}

impl Prefetch {
    /// Takes the duration of an ended run and the size of its input, in bytes. A run that outlasts
    /// the window, or that has a larger input, counts at once; other runs change the estimates
    /// slowly. The reason: an estimate that is too low keeps runs from other hosts, but one that is
    /// too high only costs an additional claim.
    pub(super) fn observe(&mut self, took: Duration, input: usize) {
        let took = took.as_secs_f64();
        let lowered = self.input_bytes - self.input_bytes.saturating_sub(input) / 8;
        self.input_bytes = input.max(lowered);
        self.ended += 1;
        self.mean_run_time = Some(match self.mean_run_time {
            Some(mean) if took < self.window().as_secs_f64() => mean + (took - mean) / 8.0,
            _ => took,
        });
    }

    /// Takes the runs that a claim returned, and whether these were all due runs.
    pub(super) fn observe_claim(&mut self, claimed: &[Claimed], found_all: bool) {
        self.found_all = found_all;
        // An empty claim says nothing about the last attempts.
        if !claimed.is_empty() {
            self.at_last_attempts = claimed.iter().any(|run| run.attempt >= run.max_attempts);
        }
    }

    /// Takes the duration of an answer.
    pub(super) fn observe_answer(&mut self, took: Duration) {
        self.mean_answer = (3 * self.mean_answer + took.min(LONGEST_ANSWER)) / 4;
    }

    /// Returns the time within which prefetched runs start. It is also the batch delay: while there
    /// are prefetched runs, a result waits this long for others. Without that, thousands of
    /// statements would take the processor from the jobs if the database shares it.
    pub(super) fn window(&self) -> Duration {
        (self.mean_answer * ANSWERS_AHEAD).max(WINDOW)
    }

    /// Returns how long a claimed run may wait for a thread. After that its claim is released,
    /// because another host may be idle.
    pub(super) fn thread_timeout(&self) -> Duration {
        self.window() * 5 / 2
    }

    /// Forgets the observed runs. The next claim is for runs that can start at once.
    pub(super) fn reset(&mut self) {
        *self = Self { mean_answer: self.mean_answer, ..Self::default() };
    }

    /// Returns how many runs to claim for this number of threads, if the tick already holds `held`
    /// runs. It is 0 while more than half of the prefetched runs wait: then no thread is idle.
    pub(super) fn wanted(&self, threads: usize, held: usize) -> usize {
        if held <= threads + self.refill_at(threads) {
            (threads + self.ahead(threads)).saturating_sub(held)
        } else {
            0
        }
    }

    /// Returns how many runs may still wait for a thread when it is time for the next claim: about
    /// half of the prefetched ones.
    pub(super) fn refill_at(&self, threads: usize) -> usize {
        if self.found_all {
            // The next claim can only find runs that were enqueued since, so it is not urgent.
            return 0;
        }
        self.ahead(threads).saturating_sub(1) / 2
    }

    /// Returns how many runs to prefetch: as many as keep the threads busy for the window, beyond
    /// those that start at once.
    fn ahead(&self, threads: usize) -> usize {
        if self.at_last_attempts {
            return 0;
        }
        let window = self.window().as_secs_f64();
        let Some(mean) = self.mean_run_time else { return 0 };
        // Do not divide by zero.
        let mean = mean.max(1e-6);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "bounded"
        )]
        let ahead = (threads as f64 * (window / mean - 1.0)).clamp(0.0, AHEAD as f64) as usize;
        ahead.min(AHEAD_PER_ENDED * self.ended).min(BYTES_AHEAD / self.input_bytes.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(milliseconds: &[u64]) -> Prefetch {
        let mut prefetch = Prefetch::default();
        milliseconds.iter().for_each(|took| prefetch.observe(Duration::from_millis(*took), 100));
        prefetch
    }

    #[test]
    fn the_first_claim_is_for_runs_that_can_start_at_once() {
        assert_eq!(Prefetch::default().wanted(4, 0), 4);
        assert_eq!(Prefetch::default().wanted(4, 3), 1);
        assert_eq!(Prefetch::default().wanted(4, 4), 0);
    }

    #[test]
    fn long_runs_are_never_prefetched() {
        assert_eq!(after(&[110, 5000]).wanted(4, 4), 0);
        assert_eq!(after(&[1, 1, 1, 5000]).wanted(4, 4), 0);
    }

    #[test]
    fn the_estimate_moves_slowly_but_a_long_run_counts_at_once() {
        // The mean is 21 ms: three more runs fit the window.
        assert_eq!(after(&[20, 28]).wanted(1, 1), 3);
        assert_eq!(after(&[20, 99]).wanted(1, 1), 2);
        // As long as the window.
        assert_eq!(after(&[20, 100]).wanted(1, 1), 0);
    }

    #[test]
    fn short_runs_are_prefetched_for_the_window_and_refilled_at_half() {
        let prefetch = after(&[5; 100]);
        assert_eq!(prefetch.wanted(4, 0), 4 + 76);
        assert_eq!(prefetch.wanted(4, 4 + 38), 0);
        assert_eq!((prefetch.wanted(4, 4 + 37), prefetch.refill_at(4)), (39, 37));
        let prefetch = after(&[30; 50]);
        assert_eq!(
            (prefetch.wanted(1, 2), prefetch.wanted(1, 1), prefetch.refill_at(1)),
            (0, 2, 0)
        );
        assert!(after(&[0; 50]).wanted(4, 0) <= 4 + AHEAD);
        assert_eq!(after(&[5]).wanted(4, 4), 4);
    }

    #[test]
    fn a_far_database_lengthens_the_prefetch_window() {
        let far = |answers: &[u64]| {
            let mut prefetch = after(&[50; 100]);
            answers.iter().for_each(|took| prefetch.observe_answer(Duration::from_millis(*took)));
            prefetch
        };
        assert_eq!((far(&[]).wanted(4, 0), far(&[10; 50]).wanted(4, 0)), (4 + 4, 4 + 4));
        assert_eq!(far(&[]).thread_timeout(), Duration::from_millis(250));
        let mut known = far(&[50; 50]);
        let window = known.window();
        known.reset();
        assert_eq!((known.window(), known.wanted(4, 4)), (window, 0));
        let prefetch = far(&[40; 50]);
        assert_eq!((prefetch.wanted(4, 0), prefetch.refill_at(4)), (4 + 21, 10));
        assert_eq!(prefetch.thread_timeout().as_millis(), 799);
        // The window has an upper limit, and one slow answer counts little.
        assert_eq!(far(&[60_000; 50]).wanted(4, 0), 4 + 35);
        assert_eq!(far(&[1, 1, 60_000]).wanted(4, 0), 4 + 6);
    }

    #[test]
    fn last_attempts_are_never_prefetched() {
        let mut prefetch = after(&[5; 100]);
        let run = |max_attempts| Claimed { max_attempts, ..Claimed::example(1) };
        prefetch.observe_claim(&[run(2), run(1)], false);
        assert_eq!(
            (prefetch.wanted(4, 0), prefetch.wanted(4, 4), prefetch.refill_at(4)),
            (4, 0, 0)
        );
        prefetch.observe_claim(&[], false);
        assert_eq!(prefetch.wanted(4, 0), 4);
        prefetch.observe_claim(&[run(2), run(2)], false);
        assert_eq!(prefetch.wanted(4, 0), 4 + 76);
    }

    #[test]
    fn after_a_complete_claim_the_next_waits_until_the_prefetch_is_empty() {
        let mut prefetch = after(&[5; 100]);
        prefetch.observe_claim(&[], true);
        assert_eq!(
            (prefetch.refill_at(4), prefetch.wanted(4, 4 + 1), prefetch.wanted(4, 4)),
            (0, 0, 76)
        );
        prefetch.observe_claim(&[], false);
        assert_eq!((prefetch.refill_at(4), prefetch.wanted(4, 4 + 37)), (37, 39));
    }

    #[test]
    fn few_runs_with_large_payloads_are_prefetched() {
        let mut prefetch = after(&[1; 1000]);
        assert_eq!(prefetch.wanted(16, 16), 1584);
        prefetch.observe(Duration::from_millis(1), 256 * 1024);
        assert_eq!(prefetch.wanted(16, 16), 16);
        (0..100).for_each(|_| prefetch.observe(Duration::from_millis(1), 100));
        assert_eq!(prefetch.wanted(16, 16), 1584);
    }
}
