//! Ends an execution from outside, and shows what it has printed. The tick asks; the executing
//! thread checks after each `SLICE`. An execution also ends if its lease is not renewed in time,
//! even if the tick hangs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::output::LiveOutput;
use crate::job::attempt::StopReason;

/// How long an executing thread waits before it checks whether the execution must end.
pub(super) const SLICE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Stop {
    state: Mutex<State>,
    lost_grace: Duration,
    output: LiveOutput,
}

#[derive(Clone, Copy, Debug)]
struct State {
    asked: Option<StopReason>,
    is_hurried: bool,
    until: Instant,
}

impl Stop {
    /// The execution may continue until `until`, which `extend` moves. At that time its command
    /// gets SIGTERM, and SIGKILL after `lost_grace`.
    pub(crate) fn new(until: Instant, lost_grace: Duration) -> Self {
        let state = Mutex::new(State { asked: None, is_hurried: false, until });
        Self { state, lost_grace, output: LiveOutput::default() }
    }

    pub(crate) fn output(&self) -> &LiveOutput {
        &self.output
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code under this lock can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the execution continue until `until`, unless it was asked to end.
    pub(crate) fn extend(&self, until: Instant) {
        self.state().until = until;
    }

    /// Asks the execution to end. If it was asked before, the first reason stays.
    pub(crate) fn ask(&self, why: StopReason) {
        self.state().asked.get_or_insert(why);
    }

    /// Ends the grace period of an execution that was asked to end.
    pub(crate) fn hurry(&self) {
        self.state().is_hurried = true;
    }

    /// Returns why the execution must end, if it must.
    pub(crate) fn asked(&self) -> Option<StopReason> {
        let State { asked, until, .. } = *self.state();
        asked.or_else(|| (Instant::now() >= until).then_some(StopReason::LeaseLost))
    }

    /// Returns the time between SIGTERM and SIGKILL, at most `usual`.
    pub(crate) fn grace(&self, usual: Duration) -> Duration {
        // After the lease is lost, another worker may start the same run, so end soon. This is so
        // even if the execution was asked to end for another reason before.
        let is_lost = self.asked() == Some(StopReason::LeaseLost) || self.remaining().is_zero();
        if is_lost { usual.min(self.lost_grace) } else { usual }
    }

    pub(crate) fn is_hurried(&self) -> bool {
        self.state().is_hurried
    }

    /// Returns how long the execution may continue without an extension.
    pub(crate) fn remaining(&self) -> Duration {
        self.state().until.saturating_duration_since(Instant::now())
    }
}
