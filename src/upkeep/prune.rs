//! Deletes old runs, and old events of the trail.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::seq::SliceRandom;

use crate::store::{self, AgedRun, Archive, BatchSize, Cause, Keep, Pruned, Store};
use crate::text::plural;

/// Maximum of runs deleted per tick, in about 30 ms: 1.4 million a day with a tick a minute.
const PRUNED_AT_ONCE: usize = 1000;
/// How long a tick tries to delete a part of the old runs if the database refuses some of them. All
/// pruning of a tick takes at most twice as long.
const PRUNING: Duration = Duration::from_secs(1);
/// After this many parts of a job's runs from which it deleted nothing, a tick goes on at a random
/// run.
const FRUITLESS_LIMIT: u32 = 8;
/// The runs that are read, and deleted, in one transaction.
const PART: usize = 1000;
/// The runs that are deleted in one transaction with an archive: it reads them, with payloads and
/// outputs.
const PART_TO_ARCHIVE: usize = 100;

/// Old rows that the database refuses to delete: their number and the first one, by the reason.
#[derive(Default)]
pub(crate) struct Undeleted(BTreeMap<String, (i64, String)>);

impl Undeleted {
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

/// Runs of a job that are pruned one after another, by id: its dead runs, or its other ended runs.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    job: String,
    dead: bool,
    /// Seconds after their end until they are old.
    age: f64,
}

/// Returns the series that may have old runs.
pub(crate) fn series(store: &Store, default: Keep) -> store::Result<Vec<Series>> {
    let of_job = |(job, keep, keep_dead): (String, f64, f64)| {
        let series = |(dead, age)| Series { job: job.clone(), dead, age };
        [(false, keep), (true, keep_dead)].map(series)
    };
    Ok(store.prunable_jobs(default)?.into_iter().flat_map(of_job).collect())
}

impl Series {
    /// Returns the old runs of the part after the run `after`, and where the next part begins.
    fn part(&self, store: &Store, after: i64) -> store::Result<(Vec<i64>, Option<i64>)> {
        let part = store.aged_runs(&self.job, self.dead, self.age, after, PART as i64)?;
        let is_last = |last: &AgedRun| {
            part.len() < PART || last.is_young && !part.iter().any(|run| run.is_old)
        };
        let next = part.last().filter(|last| !is_last(last)).map(|last| last.id);
        Ok((part.iter().filter(|run| run.is_old).map(|run| run.id).collect(), next))
    }

    /// Returns all old runs.
    pub(crate) fn old(&self, store: &Store) -> store::Result<Vec<i64>> {
        let (mut old, mut after) = (Vec::new(), Some(0));
        while let Some(id) = after {
            let (part, next) = self.part(store, id)?;
            old.extend(part);
            after = next;
        }
        Ok(old)
    }
}

/// Deletes old runs in parts, the oldest first.
pub(crate) struct Pruning<'a> {
    pub(crate) store: &'a Store,
    pub(crate) cause: &'a Cause,
    pub(crate) archive: Option<&'a Archive>,
    pub(crate) default: Keep,
    /// How long to try a part if the database refuses to delete some of its runs.
    pub(crate) time: Option<Duration>,
}

/// A part of a series, without the deleted runs.
pub(crate) struct PrunedPart {
    pub(crate) pruned: Vec<Pruned>,
    /// Whether the database refused to delete some of its old runs.
    has_undeleted: bool,
    /// The run after which the next part begins; `None` if no later run is old.
    pub(crate) next: Option<i64>,
}

impl Pruning<'_> {
    /// Deletes at most `limit` old runs of the part after the run `after`.
    pub(crate) fn delete_part(
        &self,
        series: &Series,
        after: i64,
        limit: usize,
        undeleted: &mut Undeleted,
    ) -> store::Result<PrunedPart> {
        let (mut old, next) = series.part(self.store, after)?;
        old.truncate(limit);
        let (mut pruned, mut has_undeleted) = (Vec::new(), false);
        let at_once = if self.archive.is_some() { PART_TO_ARCHIVE } else { PART };
        for ids in old.chunks(at_once) {
            let prune = |ids: &[i64]| {
                let ids = ids.to_vec();
                pruned.extend(self.store.prune(ids, self.default, self.cause, self.archive)?);
                Ok(())
            };
            let size = &mut BatchSize::default();
            let rejected = store::bisect(ids.to_vec(), size, self.has_time(), prune)?;
            has_undeleted |= !rejected.is_empty();
            undeleted.add(rejected);
        }
        Ok(PrunedPart { pruned, has_undeleted, next })
    }

    /// Deletes the oldest events of the trail: events are kept as long as dead runs. Returns
    /// whether there may be more old events.
    pub(crate) fn delete_events(&self, undeleted: &mut Undeleted) -> store::Result<bool> {
        let events = self.store.old_events(self.default.dead, PRUNED_AT_ONCE as i64)?;
        let prune = |ids: &[i64]| self.store.prune_events(ids.to_vec());
        let is_full = events.len() == PRUNED_AT_ONCE;
        let rejected = store::bisect(events, &mut BatchSize::default(), self.has_time(), prune)?;
        let has_more = is_full && rejected.is_empty();
        undeleted.add(rejected);
        Ok(has_more)
    }

    /// Deletes old runs for a limited time, and at most `left`, from which it subtracts the deleted
    /// ones.
    fn delete_some(&self, left: &mut usize, undeleted: &mut Undeleted) -> store::Result<()> {
        let until = Instant::now() + 2 * PRUNING;
        let mut all = series(self.store, self.default)?;
        // In a random order, no job's old runs delay those of the other jobs in each tick.
        all.shuffle(&mut rand::rng());
        for series in all {
            let (mut after, mut fruitless) = (Some(0), 0);
            while let Some(id) = after.filter(|_| *left > 0 && Instant::now() < until) {
                let part = self.delete_part(&series, id, *left, undeleted)?;
                *left -= part.pruned.len();
                after = part.next;
                fruitless += u32::from(part.pruned.is_empty());
                let is_stuck = part.has_undeleted || fruitless > FRUITLESS_LIMIT;
                // If the database refuses thousands of the oldest runs, each tick tries others.
                if let Some(next) = part.next.filter(|_| is_stuck) {
                    let newest = self.store.newest_run(&series.job)?.unwrap_or(next);
                    after = Some(rand::random_range(next..=newest.max(next)));
                }
            }
        }
        Ok(())
    }

    /// Returns a function that says whether the time for a part is not over yet.
    fn has_time(&self) -> impl Fn() -> bool + use<> {
        let until = self.time.map(|time| Instant::now() + time);
        move || until.is_none_or(|until| Instant::now() < until)
    }
}

/// Deletes some old runs in the name of a worker. A failure is logged: it is not a failure of the
/// tick.
pub(crate) fn prune(store: &Store, worker: &str, default: Keep) {
    let cause = Cause { host_user: worker.to_owned(), ..Cause::default() };
    let pruning = Pruning { store, cause: &cause, archive: None, default, time: Some(PRUNING) };
    let (mut left, mut runs, mut events) =
        (PRUNED_AT_ONCE, Undeleted::default(), Undeleted::default());
    let pruned = pruning
        .delete_some(&mut left, &mut runs)
        .and_then(|()| pruning.delete_events(&mut events).map(drop));
    if let Err(error) = pruned {
        log::warn!("old runs are not deleted: {}", error.for_log());
    }
    for line in runs.lines("run").into_iter().chain(events.lines("event")) {
        log::info!("{line}");
    }
    if left < PRUNED_AT_ONCE {
        log::info!("{} pruned", plural::of((PRUNED_AT_ONCE - left) as i64, "old run"));
    }
}
