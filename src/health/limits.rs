//! Default thresholds, shared by `check`, `doctor`, `status` and `report`. Pure.

use std::time::Duration;

/// Cron starts a tick every minute, and four in a row may fail. After this time a missing tick, a
/// late fire or an expired lease needs a person.
pub(crate) const TICK_OVERDUE: Duration = Duration::from_secs(300);
/// A due run may wait longer than a tick, because other runs may come first.
pub(crate) const RUN_OVERDUE: Duration = Duration::from_secs(600);
