//! Deletes old runs, and old events of the trail.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::TimeDelta;

use crate::job::status::Status;
use crate::store::{self, Archive, BatchSize, Cause, OldRun, OldRuns, Pruned, Store};
use crate::text::plural;

/// Maximum of runs deleted per tick, in about 30 ms: 1.4 million a day with a tick a minute.
const PRUNED_AT_ONCE: i64 = 1000;
/// How long a tick tries to delete runs that the database keeps.
const PRUNING: Duration = Duration::from_secs(1);

/// Rows that the database keeps: their number and the first one, by the reason.
#[derive(Default)]
pub(crate) struct Kept(BTreeMap<String, (i64, String)>);

impl Kept {
    pub(crate) fn add(&mut self, rejected: Vec<(impl ToString, store::Error)>) {
        for (row, why) in rejected {
            let first = || (0, row.to_string());
            self.0.entry(why.cause().to_owned()).or_insert_with(first).0 += 1;
        }
    }

    /// Returns a line for each reason.
    pub(crate) fn lines(&self, noun: &str) -> Vec<String> {
        let line = |(why, (rows, first)): (&String, &(i64, String))| match rows {
            1 => format!("cannot prune {noun} {first}: {why}"),
            _ => format!("cannot prune {}, such as {noun} {first}: {why}", plural::of(*rows, noun)),
        };
        self.0.iter().map(line).collect()
    }
}

/// Deletes old runs in batches, the oldest first.
pub(crate) struct Pruning<'a> {
    pub(crate) store: &'a Store,
    pub(crate) cause: &'a Cause,
    pub(crate) archive: Option<&'a Archive>,
    /// How long to try a batch of which the database keeps some runs.
    pub(crate) time: Option<Duration>,
}

impl Pruning<'_> {
    /// Tries the old runs after `last`, at most `limit`. Returns the deleted ones, and the last one
    /// that was tried if there may be more.
    pub(crate) fn batch(
        &self,
        old: OldRuns,
        last: Option<&OldRun>,
        limit: i64,
        kept: &mut Kept,
    ) -> store::Result<(Vec<Pruned>, Option<OldRun>)> {
        let mut batch = self.store.old_runs(old, last, limit)?;
        let ids: Vec<_> = batch.iter().map(|run| run.id).collect();
        let is_full = ids.len() as i64 == limit;
        let mut pruned = Vec::new();
        kept.add(store::bisect(ids, &mut BatchSize::default(), self.has_time(), |ids| {
            pruned.extend(self.store.prune(ids.to_vec(), old, self.cause, self.archive)?);
            Ok(())
        })?);
        Ok((pruned, batch.pop().filter(|_| is_full)))
    }

    /// Deletes the oldest events of the trail, if `old` are the dead runs: events are kept as long.
    pub(crate) fn events(&self, old: OldRuns, kept: &mut Kept) -> store::Result<()> {
        if !old.statuses.contains(&Status::Dead) {
            return Ok(());
        }
        let events = self.store.old_events(old.age, PRUNED_AT_ONCE)?;
        let prune = |ids: &[i64]| self.store.prune_events(ids.to_vec());
        kept.add(store::bisect(events, &mut BatchSize::default(), self.has_time(), prune)?);
        Ok(())
    }

    fn has_time(&self) -> impl Fn() -> bool + use<> {
        let until = self.time.map(|time| Instant::now() + time);
        move || until.is_none_or(|until| Instant::now() < until)
    }
}

/// Deletes some of the `old` runs in the name of a worker. A failure is logged: it is not a failure
/// of the tick.
pub(crate) fn prune(store: &Store, worker: &str, old: &[OldRuns]) {
    let cause = Cause { host_user: worker.to_owned(), reason: None };
    let pruning = Pruning { store, cause: &cause, archive: None, time: Some(PRUNING) };
    let (mut left, mut runs, mut events) = (PRUNED_AT_ONCE, Kept::default(), Kept::default());
    let pruned = old.iter().try_for_each(|old| {
        let (pruned, last) = pruning.batch(*old, None, left, &mut runs)?;
        left -= pruned.len() as i64;
        // The database keeps some of the oldest. If it keeps thousands, each tick tries others.
        if let Some(last) = last.filter(|_| left > 0) {
            let last = after_random_time(store, *old, last)?;
            left -= pruning.batch(*old, Some(&last), left, &mut runs)?.0.len() as i64;
        }
        pruning.events(*old, &mut events)
    });
    if let Err(error) = pruned {
        log::warn!("old runs are not deleted: {}", error.for_log());
    }
    for line in runs.lines("run").into_iter().chain(events.lines("event")) {
        log::info!("{line}");
    }
    if left < PRUNED_AT_ONCE {
        log::info!("{} pruned", plural::of(PRUNED_AT_ONCE - left, "old run"));
    }
}

/// Returns a place between an old run and the newest one that is old.
fn after_random_time(store: &Store, old: OldRuns, run: OldRun) -> store::Result<OldRun> {
    let rest = (store.now()? - old.age - run.finished_at).num_microseconds().unwrap_or_default();
    let skipped = TimeDelta::microseconds(rand::random_range(0..=rest.max(0)));
    Ok(OldRun { finished_at: run.finished_at + skipped, ..run })
}
