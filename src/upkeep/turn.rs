//! The part of a wake that works for the runs of all workers.

use std::time::Instant;

use crate::store::{self, BatchSize, Bisection};

/// The time that a wake has for the runs of all workers, and what comes of it.
#[derive(Debug)]
pub(crate) struct Turn {
    /// No further transaction begins after this time; `None`: there is no limit.
    until: Option<Instant>,
    pub(crate) batch: BatchSize,
    /// Some row was changed.
    pub(crate) has_changed: bool,
    /// The next turn can do more.
    pub(crate) is_cut: bool,
}

impl Turn {
    pub(crate) fn new(until: Option<Instant>, batch: BatchSize) -> Self {
        Self { until, batch, has_changed: false, is_cut: false }
    }

    pub(super) fn has_time(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }

    /// Whether there is time to begin work that is due. Otherwise the next turn does it.
    pub(crate) fn begins(&mut self) -> bool {
        let begins = self.has_time();
        self.is_cut |= !begins;
        begins
    }

    /// Tries the items in parts, at least one part, and further ones as long as there is time.
    /// `attempt` and `set_aside`, which gets a rejected item, return whether a row was changed.
    /// Returns whether any was.
    pub(crate) fn work_off<T>(
        &mut self,
        items: Vec<T>,
        mut attempt: impl FnMut(&[T]) -> store::Result<bool>,
        mut set_aside: impl FnMut(T, store::Error) -> store::Result<bool>,
    ) -> store::Result<bool> {
        let mut search = Bisection::sized(items, self.batch);
        let (mut has_changed, mut has_time) = (false, true);
        while has_time && !search.is_done() {
            let rejected = search.step(|part| {
                has_changed |= attempt(part)?;
                Ok(())
            })?;
            if let Some((item, why)) = rejected {
                has_changed |= set_aside(item, why)?;
            }
            has_time = self.has_time();
        }
        let is_halved = search.size().at_most() < self.batch.at_most();
        self.batch = search.size();
        self.has_changed |= has_changed;
        self.is_cut |= !search.is_done() && (has_changed || is_halved);
        Ok(has_changed)
    }

    /// Looks up items, at most `at_once` at a time, and works them off, as long as there is time
    /// and some of them are changed.
    pub(super) fn work_through<T>(
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
            if !self.goes_on(has_changed, is_full) {
                return Ok(());
            }
        }
    }

    /// Whether to look for more items: the last ones were as many as are looked up at a time. If
    /// none of them was changed, other sessions have locked them, or the database rejects them.
    pub(crate) fn goes_on(&mut self, has_changed: bool, is_full: bool) -> bool {
        has_changed && is_full && self.begins()
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

    fn two_at_a_time() -> BatchSize {
        let mut size = BatchSize::default();
        size.rejected(4);
        size
    }

    #[test]
    fn a_rejected_item_is_set_aside_and_costs_the_others_nothing() {
        let mut turn = Turn::new(None, BatchSize::default());
        let (mut done, mut aside) = (Vec::new(), Vec::new());
        let attempt = |part: &[i32]| match part.contains(&3) {
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
        assert!(turn.work_off((1..=5).collect(), attempt, set_aside).unwrap());
        done.sort_unstable();
        assert_eq!((done, aside), (vec![1, 2, 4, 5], vec![3]));
        assert_eq!((turn.has_changed, turn.is_cut), (true, false));
        // To set an item aside is a change, too.
        let mut turn = Turn::new(None, BatchSize::default());
        assert!(turn.work_off(vec![3], |_| Err(rejected()), |_, _| Ok(true)).unwrap());
        assert!(turn.has_changed);
        let set_aside = |_, why| Err(why);
        assert!(turn.work_off(vec![3], |_| Err(rejected()), set_aside).is_err());
    }

    #[test]
    fn without_time_one_part_is_tried_and_the_next_turn_does_the_rest() {
        let over = Instant::now();
        for changes in [true, false] {
            let (mut turn, mut tried) = (Turn::new(Some(over), two_at_a_time()), 0);
            let attempt = |part: &[i32]| {
                tried += part.len();
                Ok(changes)
            };
            assert_eq!(turn.work_off(vec![1, 2, 3], attempt, |_, why| Err(why)).unwrap(), changes);
            // Rows that other sessions have locked do not call for another turn.
            assert_eq!((tried, turn.has_changed, turn.is_cut), (2, changes, changes));
            assert!(!turn.begins() && turn.is_cut);
        }
        let mut turn = Turn::new(Some(over), two_at_a_time());
        let rejects = |_: &[i32]| Err(rejected());
        assert!(!turn.work_off(vec![1, 2, 3], rejects, |_, why| Err(why)).unwrap());
        assert!(turn.is_cut, "smaller parts may be accepted");
        assert_eq!(turn.batch.at_most(), 1);
        for until in [None, Some(over + Duration::from_secs(3600))] {
            let mut turn = Turn::new(until, BatchSize::default());
            assert!(turn.begins() && !turn.is_cut);
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
            let mut turn = Turn::new(over.then(Instant::now), BatchSize::default());
            let asked = std::cell::Cell::new(0);
            let look_up = |at_once| {
                assert_eq!(at_once, 2);
                asked.set(asked.get() + 1);
                Ok(vec![(); looked_up[asked.get() - 1]])
            };
            turn.work_through(2, look_up, |_| Ok(changes), |_, why| Err(why)).unwrap();
            assert_eq!((asked.get(), turn.is_cut), (times, over));
        }
    }
}
