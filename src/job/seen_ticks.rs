//! Finds out whether a database is older than a tick has seen it, as after the restore of a backup.
//! Compares only times that the database stored, so a wrong clock of a host has no effect. Pure.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// An asynchronous failover may lose the ticks of this time before the last one.
const MAY_BE_LOST: TimeDelta = TimeDelta::minutes(10);
/// Remembered ticks are at least this far apart, except the last one, so that there are few.
const APART: TimeDelta = TimeDelta::seconds(30);
/// `prune` deletes no worker whose last tick is more recent than this; see old_workers.sql.
const KEPT_BY_PRUNE: TimeDelta = TimeDelta::days(1);

/// What a wake finds in the database about the ticks of its worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredTick {
    /// When the schema was created. A new database has another time, a restored one the same.
    pub(crate) created_at: DateTime<Utc>,
    /// The latest tick before this wake, even if it was before the database's clock was set back;
    /// `None` if the database does not know the worker.
    pub(crate) previous_at: Option<DateTime<Utc>>,
    /// The database's time, which this wake stores.
    pub(crate) now: DateTime<Utc>,
}

/// The ticks of a worker that this host has seen in a database.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct SeenTicks {
    created_at: Option<DateTime<Utc>>,
    /// In order: the newest tick that no failover can have lost, and all later ones.
    ticks: Vec<DateTime<Utc>>,
    /// The database's clock was corrected: some ticks were later than now.
    #[serde(skip)]
    is_corrected: bool,
}

impl SeenTicks {
    fn last(&self) -> Option<DateTime<Utc>> {
        self.ticks.last().copied()
    }

    /// Returns whether to write these ticks over the `stored` ones in the file: not if those are
    /// newer, because another tick began later and ended earlier, or only little older.
    pub(crate) fn replaces(&self, stored: &Self) -> bool {
        self.created_at != stored.created_at
            || self.is_corrected
            || self.last() > stored.last().map(|stored| stored + APART)
    }

    /// Returns a tick that this host has seen and that the database has lost, as after the restore
    /// of a backup; `None`: nothing shows a loss. Does not count the newest ticks, which a failover
    /// may lose: those of the last `MAY_BE_LOST`.
    pub(crate) fn lost_tick(&self, found: StoredTick) -> Option<DateTime<Utc>> {
        let StoredTick { created_at, previous_at, now } = found;
        let last = self.last().filter(|_| self.created_at == Some(created_at))?;
        let kept_until = last - MAY_BE_LOST;
        // The newest tick that no failover can have lost.
        let newest_kept = self.ticks.iter().rfind(|tick| **tick <= kept_until).copied();
        let lost = match previous_at {
            // The database has only older ticks of this worker. If no tick until `kept_until` is
            // remembered, this time stands for one.
            Some(previous) => {
                Some(newest_kept.unwrap_or(kept_until)).filter(|tick| previous < *tick)
            }
            // The database does not know the worker, and `prune` can't have deleted it.
            None => newest_kept.filter(|_| last > now - KEPT_BY_PRUNE),
        };
        // A tick in the future is not lost: the database's clock was ahead.
        lost.filter(|tick| *tick <= now)
    }

    /// Remembers the ticks that a wake found and stored.
    pub(crate) fn saw(&mut self, stored: StoredTick) {
        let StoredTick { created_at, previous_at, now } = stored;
        // The ticks of another database say nothing about this one.
        if self.created_at != Some(created_at) {
            *self = Self { created_at: Some(created_at), ..Self::default() };
        }
        // Forget ticks in the future: the database's clock was ahead, and was corrected.
        self.is_corrected |= self.last() > Some(now);
        self.ticks.retain(|tick| *tick <= now);
        // Remember the previous tick, too, because another host may tick by the same name.
        self.ticks.extend(previous_at.filter(|at| self.last() < Some(*at) && *at <= now));
        // The new tick replaces the last one, if that is too close to the one before it.
        if let [.., before, last] = *self.ticks
            && last - before < APART
        {
            self.ticks.pop();
        }
        self.ticks.push(now);
        // Of the ticks that no failover can have lost, only the newest one is needed.
        let may_be_lost = |tick: &DateTime<Utc>| *tick > now - MAY_BE_LOST;
        let first_in_doubt = self.ticks.iter().position(may_be_lost).unwrap_or_default();
        self.ticks.drain(..first_in_doubt.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::minutes(minutes)
    }

    fn stored(previous: Option<i64>, now: i64) -> StoredTick {
        StoredTick { created_at: at(0), previous_at: previous.map(at), now: at(now) }
    }

    /// What a host has seen that ticked at these minutes.
    fn seen(minutes: impl IntoIterator<Item = i64>) -> SeenTicks {
        let mut seen = SeenTicks::default();
        let mut previous = None;
        for now in minutes {
            seen.saw(stored(previous, now));
            previous = Some(now);
        }
        seen
    }

    #[track_caller]
    fn loses(seen: &SeenTicks, previous: Option<i64>, now: i64, lost: Option<i64>) {
        assert_eq!(seen.lost_tick(stored(previous, now)), lost.map(at), "{seen:?}");
    }

    #[test]
    fn a_corrected_clock_does_not_look_like_a_restore() {
        let ahead = seen(1030..=1050);
        loses(&ahead, Some(1050), 1021, None);
        let mut corrected = ahead.clone();
        corrected.saw(stored(Some(1050), 1021));
        assert!(corrected.replaces(&ahead));
        // What the file has: the time passes those that were wrong.
        let mut read = SeenTicks { is_corrected: false, ..corrected };
        for now in 1022..=1100 {
            loses(&read, Some(now - 1), now, None);
            read.saw(stored(Some(now - 1), now));
        }
        loses(&read, Some(1089), 1101, Some(1090));
    }

    #[test]
    fn a_failover_may_lose_ten_minutes() {
        let minutely = seen(1000..=1100);
        loses(&minutely, Some(1090), 1101, None);
        loses(&minutely, Some(1089), 1101, Some(1090));
        loses(&minutely, Some(0), 9999, Some(1090));
        // A host that ticks every hour may lose its last tick, which is an hour of its work.
        let hourly = seen([600, 660, 720]);
        loses(&hourly, Some(660), 780, None);
        loses(&hourly, Some(600), 780, Some(660));
        // The first tick with this memory knows the one before.
        let mut upgraded = SeenTicks::default();
        upgraded.saw(stored(Some(660), 720));
        loses(&upgraded, Some(660), 780, None);
        loses(&upgraded, Some(659), 780, Some(660));
        loses(&seen([1000]), Some(990), 1001, None);
        loses(&seen([1000]), Some(989), 1001, Some(990));
    }

    #[test]
    fn an_unknown_worker_is_lost_unless_it_was_new_or_pruned() {
        loses(&seen(1000..=1100), None, 1101, Some(1090));
        loses(&seen(1000..=1009), None, 1101, None);
        loses(&seen(1000..=1100), None, 1100 + 24 * 60 - 1, Some(1090));
        loses(&seen(1000..=1100), None, 1100 + 24 * 60, None);
    }

    #[test]
    fn a_new_database_has_lost_nothing() {
        let found = StoredTick { created_at: at(1100), ..stored(None, 1101) };
        let mut seen = seen(1000..=1100);
        assert_eq!(seen.lost_tick(found), None);
        seen.saw(found);
        assert_eq!(seen.ticks, [at(1101)]);
    }

    #[test]
    fn a_clock_of_the_database_that_was_ahead_is_forgotten() {
        let mut ahead = seen([1000, 9000, 9020]);
        loses(&ahead, Some(1003), 1004, None);
        ahead.saw(stored(Some(9020), 1002));
        assert_eq!(ahead.ticks, [at(1002)]);
    }

    #[test]
    fn newer_ticks_and_those_of_another_database_replace_the_stored_ones() {
        let before = seen([1000]);
        assert!(seen([1001]).replaces(&before));
        assert!(!seen([1000]).replaces(&before) && !seen([999]).replaces(&before));
        let mut other = SeenTicks::default();
        other.saw(StoredTick { created_at: at(1), ..stored(None, 999) });
        assert!(other.replaces(&before));
    }

    #[test]
    fn few_ticks_are_kept() {
        let mut seen = seen(1000..=1100);
        for second in 0..600 {
            let now = at(1100) + TimeDelta::seconds(second);
            seen.saw(StoredTick { now, ..stored(Some(1100), 0) });
            assert!(seen.ticks.len() <= 22, "{seen:?}");
        }
        loses(&seen, Some(1098), 1200, Some(1099));
    }
}
