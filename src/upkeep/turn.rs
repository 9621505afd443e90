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
