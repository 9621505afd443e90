//! Deletes old runs, and old events of the trail.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::seq::SliceRandom;

use crate::store::{self, Archive, BatchSize, Cause, Keep, Pruned, Store};
use crate::text::plural;

/// A tick deletes at most this many runs, which takes about 30 ms. With a tick a minute, that is
/// 1.4 million a day.
const PRUNED_AT_ONCE: usize = 1000;
/// How long a tick tries to delete a part of the old runs if the database refuses some of them. All
/// pruning of a tick takes at most twice as long.
const PRUNING: Duration = Duration::from_secs(1);
/// After this many parts of a job's runs without a deleted run, a tick goes on at a random run.
const FRUITLESS_LIMIT: u32 = 8;
/// The number of runs that are read, and deleted, in one transaction.
const PART: usize = 1000;
/// The number of runs that are deleted in one transaction with an archive. They are fewer, because
/// the transaction also reads their payloads and outputs.
const PART_TO_ARCHIVE: usize = 100;

/// Old rows that the database refuses to delete: by the reason, their number and the first row.
#[derive(Default)]
pub(crate) struct Undeleted(BTreeMap<String, (i64, String)>);

impl Undeleted {
    /// Adds rows, each with its error.
    pub(crate) fn add(&mut self, rejected: Vec<(impl ToString, store::Error)>) {
        for (row, why) in rejected {
            let of_reason = self.0.entry(why.cause().to_owned());
            let (count, _first) = of_reason.or_insert_with(|| (0, row.to_string()));
            *count += 1;
        }
    }

    /// Returns a line for each reason.
    pub(crate) fn lines(&self, noun: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for (why, (count, first)) in &self.0 {
            lines.push(match count {
                1 => format!("cannot prune {noun} {first}: {why}"),
                _ => {
                    let rows = plural::of(*count, noun);
                    format!("cannot prune {rows}, such as {noun} {first}: {why}")
                }
            });
        }
        lines
    }
}

/// Runs of a job that are pruned one after another, by id: its dead runs, or its other ended runs.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    job: String,
    dead: bool,
    /// A run is old this many seconds after its end.
    age: f64,
}

/// Returns the series that may have old runs: two for each job. `default` is how long runs are
/// kept if their definition does not say it.
pub(crate) fn series(store: &Store, default: Keep) -> store::Result<Vec<Series>> {
    let mut all = Vec::new();
    for (job, keep, keep_dead) in store.prunable_jobs(default)? {
        all.push(Series { job: job.clone(), dead: false, age: keep });
        all.push(Series { job, dead: true, age: keep_dead });
    }
    Ok(all)
}

impl Series {
    /// Reads the part of this series after the run `after`. Returns its old runs, and the run after
    /// which the next part begins; `None`: no later run is old.
    fn part(&self, store: &Store, after: i64) -> store::Result<(Vec<i64>, Option<i64>)> {
        let part = store.aged_runs(&self.job, self.dead, self.age, after, PART as i64)?;
        let old: Vec<_> = part.iter().filter(|run| run.is_old).map(|run| run.id).collect();
        let next = match part.last() {
            // No later run is old, see old_runs.sql.
            Some(last) if last.is_young && old.is_empty() => None,
            Some(last) if part.len() >= PART => Some(last.id),
            _ => None,
        };
        Ok((old, next))
    }

    /// Returns the ids of all old runs.
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
    /// How long runs are kept if their definition does not say it.
    pub(crate) default: Keep,
    /// How long to try a part if the database refuses to delete some of its runs; `None`: until all
    /// of them were tried.
    pub(crate) time: Option<Duration>,
}

/// What the deletion of a part of a series has achieved.
pub(crate) struct PrunedPart {
    /// The deleted runs.
    pub(crate) pruned: Vec<Pruned>,
    /// Whether the database refused to delete some of the old runs.
    has_undeleted: bool,
    /// The run after which the next part begins; `None` if no later run is old.
    pub(crate) next: Option<i64>,
}

impl Pruning<'_> {
    /// Deletes at most `limit` old runs of the part after the run `after`. Adds the runs that the
    /// database refuses to delete to `undeleted`.
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

    /// Deletes the oldest events of the trail, which are kept as long as dead runs. Returns whether
    /// another call may delete more.
    pub(crate) fn delete_events(&self, undeleted: &mut Undeleted) -> store::Result<bool> {
        let events = self.store.old_events(self.default.dead, PRUNED_AT_ONCE as i64)?;
        let prune = |ids: &[i64]| self.store.prune_events(ids.to_vec());
        let is_full = events.len() == PRUNED_AT_ONCE;
        let rejected = store::bisect(events, &mut BatchSize::default(), self.has_time(), prune)?;
        // The next call would look up the rejected events again.
        let has_more = is_full && rejected.is_empty();
        undeleted.add(rejected);
        Ok(has_more)
    }

    /// Deletes old runs of all jobs for a limited time, and at most `left`, from which it subtracts
    /// the number of deleted runs.
    fn delete_some(&self, left: &mut usize, undeleted: &mut Undeleted) -> store::Result<()> {
        let until = Instant::now() + 2 * PRUNING;
        let mut all = series(self.store, self.default)?;
        // If the time is over before the last series, a random order gives each job its turn in
        // some tick.
        all.shuffle(&mut rand::rng());
        for series in all {
            let (mut after, mut fruitless) = (Some(0), 0);
            while let Some(id) = after {
                if *left == 0 || Instant::now() >= until {
                    return Ok(());
                }
                let part = self.delete_part(&series, id, *left, undeleted)?;
                *left -= part.pruned.len();
                after = part.next;
                if part.pruned.is_empty() {
                    fruitless += 1;
                }
                let is_stuck = part.has_undeleted || fruitless > FRUITLESS_LIMIT;
                if is_stuck && let Some(next) = part.next {
                    // The database may refuse thousands of the oldest runs. So each tick goes on
                    // with others.
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
    let mut left = PRUNED_AT_ONCE;
    let (mut undeleted_runs, mut undeleted_events) = (Undeleted::default(), Undeleted::default());
    let result = pruning
        .delete_some(&mut left, &mut undeleted_runs)
        .and_then(|()| pruning.delete_events(&mut undeleted_events));
    if let Err(error) = result {
        log::warn!("old runs are not deleted: {}", error.for_log());
    }
    for line in undeleted_runs.lines("run").into_iter().chain(undeleted_events.lines("event")) {
        log::info!("{line}");
    }
    if left < PRUNED_AT_ONCE {
        log::info!("{} pruned", plural::of((PRUNED_AT_ONCE - left) as i64, "old run"));
    }
}
