//! How long is too long, where nobody says otherwise: `check`, `doctor` and `report` agree on it. Pure.

use std::time::Duration;

/// Cron wakes a worker every minute, and four of five may be lost: what has not happened for so long
/// does not happen by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// A run that is due may wait longer: those before it take their time.
pub(crate) const LAG: Duration = Duration::from_secs(600);
