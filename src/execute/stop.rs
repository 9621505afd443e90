//! Ends an execution from outside, and shows what it has printed. The tick asks for the end, and
//! the executing thread checks after each `SLICE` whether it did. An execution also ends if its
//! lease is not renewed in time, even if the tick hangs.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::output;
use crate::job::attempt::StopReason;

/// How long an executing thread waits before it checks whether the execution must end.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// This many bytes of a running job's output are kept to show them: the last ones.
const LIVE: usize = 8 * 1024;

/// The limits that a tick sets for the execution of a run, and the output so far.
#[derive(Debug)]
pub(crate) struct Stop {
    state: Mutex<StopState>,
    /// The time between SIGTERM and SIGKILL if the lease is lost.
    lost_grace: Duration,
    /// When it is too late to start; `None`: never.
    start_by: Option<Instant>,
}

#[derive(Debug)]
struct StopState {
    /// Why the tick asked the execution to end, if it did.
    asked: Option<StopReason>,
    /// Whether the grace period is over.
    is_hurried: bool,
    /// When the execution must end, unless its lease is renewed.
    until: Instant,
    /// The end of what the job has printed, both streams in the order of arrival.
    printed: VecDeque<u8>,
    /// Whether the job has printed something that was not taken yet.
    has_new_output: bool,
}

impl Stop {
    /// Lets the execution continue until `until`, which `extend` moves. At that time, its command
    /// gets SIGTERM, and SIGKILL after `lost_grace`.
    pub(crate) fn new(until: Instant, lost_grace: Duration) -> Self {
        let (printed, has_new_output) = (VecDeque::new(), false);
        let state = StopState { asked: None, is_hurried: false, until, printed, has_new_output };
        Self { state: Mutex::new(state), lost_grace, start_by: None }
    }

    /// Forbids the execution to start at `start_by` or later.
    pub(crate) fn starting_by(self, start_by: Option<Instant>) -> Self {
        Self { start_by, ..self }
    }

    /// Whether it is too late to start the execution.
    pub(crate) fn is_too_late(&self) -> bool {
        self.start_by.is_some_and(|start_by| Instant::now() >= start_by)
    }

    /// Locks the state.
    fn state(&self) -> MutexGuard<'_, StopState> {
        // No code under this lock can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the execution continue until `until`, unless it was asked to end.
    pub(crate) fn extend(&self, until: Instant) {
        let mut state = self.state();
        // After the end of its lease, another worker may have the run. Then extend nothing, even if
        // the executing thread has not ended the execution yet.
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

    /// Returns why the execution must end: because it was asked to, or because its lease was not
    /// renewed. `None`: it may continue.
    pub(crate) fn asked(&self) -> Option<StopReason> {
        let StopState { asked, until, .. } = *self.state();
        if asked.is_none() && Instant::now() >= until {
            return Some(StopReason::LeaseLost);
        }
        asked
    }

    /// Returns the time between SIGTERM and SIGKILL: `usual`, or less if the tick is in a hurry or
    /// the lease is lost.
    pub(crate) fn grace(&self, usual: Duration) -> Duration {
        let StopState { asked, is_hurried, until, .. } = *self.state();
        // Another worker may soon start the same run, even if this execution was asked to end for
        // another reason before.
        let is_lost = asked == Some(StopReason::LeaseLost) || Instant::now() >= until;
        if is_hurried {
            Duration::ZERO
        } else if is_lost {
            usual.min(self.lost_grace)
        } else {
            usual
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
        if !std::mem::take(&mut state.has_new_output) {
            return None;
        }
        let printed = state.printed.make_contiguous();
        Some(output::text(output::from_char_start(printed)))
    }

    /// Makes the output that was taken last count as new again, because it was not stored.
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
