//! The time slice of a wake in which it works for the runs of all workers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::store::{self, BatchSize, Bisection};

/// How long a tick leaves out a run that took too long.
const SLOW_PAUSE: Duration = Duration::from_secs(300);

/// An item that a wake works off.
pub(crate) trait Item {
    /// Returns the id of the item's run; `None` for an item without a run, such as a schedule.
    fn run(&self) -> Option<i64>;
}

impl Item for i64 {
    fn run(&self) -> Option<i64> {
        Some(*self)
    }
}

/// What a tick keeps from one wake to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpkeepState {
    /// How many items the next statement changes.
    batch: BatchSize,
    /// Runs that took longer than the time limit of a statement, and when that was. The tick leaves
    /// them out for a while, because everything else waits for such a statement.
    slow: BTreeMap<i64, Instant>,
}

impl UpkeepState {
    /// Whether to leave a run out, because it took too long a while ago.
    pub(super) fn is_slow(&self, run: i64) -> bool {
        self.slow.get(&run).is_some_and(|since| since.elapsed() < SLOW_PAUSE)
    }

    /// Returns the runs to leave out, because they took too long a while ago.
    pub(super) fn slow(&self) -> Vec<i64> {
        self.slow.keys().copied().filter(|run| self.is_slow(*run)).collect()
    }

    /// Notes that a change of this run failed. If it took too long, the run is left out for a
    /// while.
    pub(super) fn rejected(&mut self, run: i64, why: &store::Error) {
        if why.is_too_slow {
            self.slow.insert(run, Instant::now());
        }
    }
}

/// The part of a wake that works for the runs of all workers: its time limit, and what it did.
#[derive(Debug)]
pub(crate) struct TimeSlice<'a> {
    /// No further transaction begins after this time; `None`: there is no limit.
    until: Option<Instant>,
    pub(super) state: &'a mut UpkeepState,
    /// Whether any row was changed.
    pub(crate) has_changed: bool,
    /// Whether work is left for the next slice, because the time was over.
    pub(crate) is_cut: bool,
}

impl<'a> TimeSlice<'a> {
    /// Returns a slice in which no further transaction begins after `until`.
    pub(crate) fn new(until: Option<Instant>, state: &'a mut UpkeepState) -> Self {
        Self { until, state, has_changed: false, is_cut: false }
    }

    /// Whether another transaction may begin.
    pub(super) fn has_time(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }

    /// Returns whether there is time to begin work that is due. If there is none, marks this slice
    /// as cut short, so that the next slice does the work.
    pub(crate) fn try_begin(&mut self) -> bool {
        let has_time = self.has_time();
        self.is_cut |= !has_time;
        has_time
    }

    /// Tries the items in parts: at least one part, and further parts as long as there is time.
    /// Leaves out slow runs. An item that the database rejects is found and set aside, so it delays
    /// no other item. Returns whether a row was changed.
    ///
    /// - `attempt` works off a part in one transaction. It returns whether it changed a row: it
    ///   changes none if other sessions have locked them all.
    /// - `set_aside` gets an item that the database rejects, and the error. It logs the item, and
    ///   may put it off. It returns whether it changed a row, too.
    pub(crate) fn work_off<T: Item>(
        &mut self,
        mut items: Vec<T>,
        mut attempt: impl FnMut(&[T]) -> store::Result<bool>,
        mut set_aside: impl FnMut(T, store::Error) -> store::Result<bool>,
    ) -> store::Result<bool> {
        items.retain(|item| item.run().is_none_or(|run| !self.state.is_slow(run)));
        let mut bisection = Bisection::sized(items, self.state.batch);
        let (mut has_changed, mut has_time) = (false, true);
        while has_time && !bisection.is_done() {
            let rejected = bisection.step(|part| {
                has_changed |= attempt(part)?;
                Ok(())
            })?;
            if let Some((item, why)) = rejected {
                if let Some(run) = item.run() {
                    self.state.rejected(run, &why);
                }
                has_changed |= set_aside(item, why)?;
            }
            has_time = self.has_time();
        }
        let has_smaller_parts = bisection.size().at_most() < self.state.batch.at_most();
        self.state.batch = bisection.size();
        self.has_changed |= has_changed;
        // If nothing was changed, other sessions have locked the rows, and another slice would find
        // them locked, too. But after a rejected part, the database may accept a smaller part.
        let can_go_on = has_changed || has_smaller_parts;
        self.is_cut |= !bisection.is_done() && can_go_on;
        Ok(has_changed)
    }

    /// Looks up items and works them off, again and again, until there are no more, none of them
    /// can be changed, or the time is over.
    ///
    /// - `look_up` returns at most `at_once` items, which is its argument. If it returns fewer,
    ///   there are no more.
    /// - `attempt` and `set_aside`: see `work_off`.
    pub(super) fn work_through<T: Item>(
        &mut self,
        at_once: usize,
        look_up: impl Fn(usize) -> store::Result<Vec<T>>,
        mut attempt: impl FnMut(&[T]) -> store::Result<bool>,
        mut set_aside: impl FnMut(T, store::Error) -> store::Result<bool>,
    ) -> store::Result<()> {
        loop {
            let items = look_up(at_once)?;
            let is_full = items.len() == at_once;
            let has_changed = self.work_off(items, &mut attempt, &mut set_aside)?;
            if !self.try_go_on(has_changed, is_full) {
                return Ok(());
            }
        }
    }

    /// Returns whether to look up items again. If only the time for that is missing, marks this
    /// slice as cut short.
    ///
    /// - `has_changed`: a row was changed since the last look-up. Otherwise the next one would
    ///   return the same items: other sessions have locked them, or the database rejects them.
    /// - `is_full`: the last look-up returned as many items as it may, so there may be more.
    pub(crate) fn try_go_on(&mut self, has_changed: bool, is_full: bool) -> bool {
        has_changed && is_full && self.try_begin()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::{Error, Kind};

    fn rejected() -> Error {
        Error::example(Kind::Data)
    }

    fn two_at_a_time() -> UpkeepState {
        let mut state = UpkeepState::default();
        state.batch.rejected(4);
        state
    }

    #[test]
    fn a_rejected_item_is_set_aside_and_costs_the_others_nothing() {
        let mut state = UpkeepState::default();
        let mut slice = TimeSlice::new(None, &mut state);
        let (mut done, mut aside) = (Vec::new(), Vec::new());
        let attempt = |part: &[i64]| match part.contains(&3) {
            true => Err(rejected()),
            false => {
                done.extend(part);
                Ok(true)
            }
        };
        let set_aside = |item, _| {
            aside.push(item);
            Ok(false)
        };
        assert!(slice.work_off((1..=5).collect(), attempt, set_aside).unwrap());
        done.sort_unstable();
        assert_eq!((done, aside), (vec![1, 2, 4, 5], vec![3]));
        assert_eq!((slice.has_changed, slice.is_cut), (true, false));
        // To set an item aside is a change, too.
        let mut slice = TimeSlice::new(None, &mut state);
        assert!(slice.work_off(vec![3], |_| Err(rejected()), |_, _| Ok(true)).unwrap());
        assert!(slice.has_changed);
        let set_aside = |_, why| Err(why);
        assert!(slice.work_off(vec![3], |_| Err(rejected()), set_aside).is_err());
    }

    #[test]
    fn without_time_one_part_is_tried_and_the_next_turn_does_the_rest() {
        let over = Instant::now();
        for changes in [true, false] {
            let (mut state, mut tried) = (two_at_a_time(), 0);
            let mut slice = TimeSlice::new(Some(over), &mut state);
            let attempt = |part: &[i64]| {
                tried += part.len();
                Ok(changes)
            };
            assert_eq!(slice.work_off(vec![1, 2, 3], attempt, |_, why| Err(why)).unwrap(), changes);
            // Rows that other sessions have locked do not call for another slice.
            assert_eq!((tried, slice.has_changed, slice.is_cut), (2, changes, changes));
            assert!(!slice.try_begin() && slice.is_cut);
        }
        let mut state = two_at_a_time();
        let mut slice = TimeSlice::new(Some(over), &mut state);
        let rejects = |_: &[i64]| Err(rejected());
        assert!(!slice.work_off(vec![1, 2, 3], rejects, |_, why| Err(why)).unwrap());
        assert!(slice.is_cut, "smaller parts may be accepted");
        assert_eq!(slice.state.batch.at_most(), 1);
        for until in [None, Some(over + Duration::from_secs(3600))] {
            let mut slice = TimeSlice::new(until, &mut state);
            assert!(slice.try_begin() && !slice.is_cut);
        }
    }

    #[test]
    fn items_are_looked_up_until_they_are_few_or_nothing_changes() {
        for (looked_up, changes, over, times) in [
            (vec![2, 2, 1], true, false, 3),
            (vec![2, 2, 0], true, false, 3),
            (vec![2, 2, 2], false, false, 1),
            (vec![2, 2, 2], true, true, 1),
        ] {
            let mut state = UpkeepState::default();
            let mut slice = TimeSlice::new(over.then(Instant::now), &mut state);
            let asked = std::cell::Cell::new(0);
            let look_up = |at_once| {
                assert_eq!(at_once, 2);
                asked.set(asked.get() + 1);
                Ok(vec![0; looked_up[asked.get() - 1]])
            };
            slice.work_through(2, look_up, |_| Ok(changes), |_, why| Err(why)).unwrap();
            assert_eq!((asked.get(), slice.is_cut), (times, over));
        }
    }

    #[test]
    fn a_run_that_takes_too_long_is_left_out_for_a_while() {
        let mut slow = rejected();
        slow.is_too_slow = true;
        let mut slow = Some(slow);
        let mut state = UpkeepState::default();
        let mut tried: Vec<i64> = Vec::new();
        for _ in 0..2 {
            let mut slice = TimeSlice::new(None, &mut state);
            let attempt = |part: &[i64]| {
                tried.extend(part);
                match part {
                    [7] => Err(slow.take().expect("tried once")),
                    _ => Ok(true),
                }
            };
            slice.state.batch = BatchSize::ONE;
            assert!(slice.work_off(vec![7, 8], attempt, |_, _| Ok(false)).unwrap());
        }
        assert_eq!((tried, state.slow()), (vec![7, 8, 8], vec![7]));
        let over = Instant::now().checked_sub(SLOW_PAUSE);
        state.slow.insert(7, over.expect("the host runs for longer"));
        assert!(!state.is_slow(7) && state.slow().is_empty());
    }
}
