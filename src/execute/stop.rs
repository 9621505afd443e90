//! Ends an execution from outside, and shows what it has printed. The tick asks; the executing
//! thread checks after each `SLICE`. An execution also ends if its lease is not renewed in time,
//! even if the tick hangs.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::output;
use crate::job::attempt::StopReason;

/// How long an executing thread waits before it checks whether the execution must end.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// The most bytes of output that are in memory while a job runs: the last ones.
const LIVE: usize = 8 * 1024;

/// The limits that a tick sets for the execution of a run, and the output so far.
#[derive(Debug)]
pub(crate) struct Stop {
    state: Mutex<StopState>,
    lost_grace: Duration,
    start_by: Option<Instant>,
}

#[derive(Debug)]
struct StopState {
    asked: Option<StopReason>,
    is_hurried: bool,
    until: Instant,
    /// The end of what the job has printed, both streams in the order of arrival.
    printed: VecDeque<u8>,
    has_new_output: bool,
}

impl Stop {
    /// The execution may continue until `until`, which `extend` moves. At that time its command
    /// gets SIGTERM, and SIGKILL after `lost_grace`.
    pub(crate) fn new(until: Instant, lost_grace: Duration) -> Self {
        let (printed, has_new_output) = (VecDeque::new(), false);
        let state = StopState { asked: None, is_hurried: false, until, printed, has_new_output };
        Self { state: Mutex::new(state), lost_grace, start_by: None }
    }

    /// The execution must not start at `start_by` or later.
    pub(crate) fn starting_by(self, start_by: Option<Instant>) -> Self {
        Self { start_by, ..self }
    }

    /// Whether it is too late to start the execution.
    pub(crate) fn is_too_late(&self) -> bool {
        self.start_by.is_some_and(|start_by| Instant::now() >= start_by)
    }

    fn state(&self) -> MutexGuard<'_, StopState> {
        // No code under this lock can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the execution continue until `until`, unless it was asked to end. An answer that comes
    /// too late extends nothing, even if the executing thread has not ended the execution yet:
    /// another worker may have the run.
    pub(crate) fn extend(&self, until: Instant) {
        let mut state = self.state();
        if Instant::now() < state.until {
            state.until = until;
        }
    }

    /// Asks the execution to end. If it was asked before, the first reason stays.
    pub(crate) fn ask(&self, why: StopReason) {
        self.state().asked.get_or_insert(why);
    }

    /// Ends the grace period of an execution that was asked to end.
    pub(crate) fn hurry(&self) {
        self.state().is_hurried = true;
    }

    /// Returns why the execution must end, if it must: it was asked to, or its lease was not
    /// renewed.
    pub(crate) fn asked(&self) -> Option<StopReason> {
        let StopState { asked, until, .. } = *self.state();
        asked.or_else(|| (Instant::now() >= until).then_some(StopReason::LeaseLost))
    }

    /// Returns the time between SIGTERM and SIGKILL, at most `usual`.
    pub(crate) fn grace(&self, usual: Duration) -> Duration {
        let StopState { asked, is_hurried, until, .. } = *self.state();
        // After the lease is lost, another worker may start the same run, so end soon. This is so
        // even if the execution was asked to end for another reason before.
        let is_lost = asked == Some(StopReason::LeaseLost) || Instant::now() >= until;
        match (is_hurried, is_lost) {
            (true, _) => Duration::ZERO,
            (false, true) => usual.min(self.lost_grace),
            (false, false) => usual,
        }
    }

    /// Returns how long the execution may continue without an extension.
    pub(crate) fn remaining(&self) -> Duration {
        self.state().until.saturating_duration_since(Instant::now())
    }

    /// Adds output of the job.
    pub(super) fn record_output(&self, chunk: &[u8]) {
        let mut state = self.state();
        output::push_bounded(&mut state.printed, chunk, LIVE);
        state.has_new_output = true;
    }

    /// Takes the end of the output, if the job has printed something since the last call.
    pub(crate) fn take_new_output(&self) -> Option<String> {
        let mut state = self.state();
        let is_new = std::mem::take(&mut state.has_new_output);
        is_new.then(|| output::text(output::from_char_start(state.printed.make_contiguous())))
    }

    /// Notes that the output that was taken last did not arrive, so it is new again.
    pub(crate) fn output_not_sent(&self) {
        let mut state = self.state();
        state.has_new_output = !state.printed.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_that_must_end_is_not_extended() {
        let hour = Duration::from_secs(3600);
        let [late, in_time] = [Duration::ZERO, hour].map(|left| {
            let stop = Stop::new(Instant::now() + left, Duration::ZERO);
            stop.extend(Instant::now() + 2 * hour);
            stop.remaining()
        });
        assert_eq!(late, Duration::ZERO);
        assert!(in_time > hour);
    }

    #[test]
    fn the_end_of_a_live_output_is_taken_once() {
        let live = Stop::new(Instant::now(), Duration::ZERO);
        assert_eq!(live.take_new_output(), None);
        live.record_output("€".repeat(LIVE).as_bytes());
        live.record_output(b"last");
        let taken = live.take_new_output().unwrap();
        assert!(taken.len() <= LIVE && taken.ends_with("€last") && !taken.contains('\u{fffd}'));
        assert_eq!(live.take_new_output(), None);
        live.output_not_sent();
        assert_eq!(live.take_new_output(), Some(taken));
    }
}
