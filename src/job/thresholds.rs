//! The thresholds of all commands. Pure.

use std::time::Duration;

/// After this time without a tick, a person must act. Cron starts a tick every minute, so four in a
/// row may fail.
pub(crate) const TICK_OVERDUE: Duration = Duration::from_secs(300);
/// After this time, a due run is overdue. It is longer than that of a tick, because other runs may
/// come first.
pub(crate) const RUN_OVERDUE: Duration = Duration::from_secs(600);

/// The thresholds of a command: a value above its threshold is a problem.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    /// The number of dead runs to tolerate.
    pub(crate) dead: i64,
    /// The time after which a dead run no longer counts.
    pub(crate) dead_within: Option<Duration>,
    /// The time since a run was due, a schedule should have fired, or a lease expired.
    pub(crate) lag: Duration,
    /// The time since a worker's last tick.
    pub(crate) tick_age: Duration,
    /// The time since a running run started.
    pub(crate) running: Option<Duration>,
    /// A number of failed attempts to tolerate within a duration.
    pub(crate) failures: Option<(i64, Duration)>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            dead: 0,
            dead_within: None,
            lag: RUN_OVERDUE,
            tick_age: TICK_OVERDUE,
            running: None,
            failures: None,
        }
    }
}
