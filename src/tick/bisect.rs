//! Finds out which of many items the database refuses, so that one costs the others nothing.

use crate::store;

/// A search for refused items, one transaction a step: its caller renews leases in between.
pub(super) struct Bisection<T> {
    /// The last part is tried first.
    untried: Vec<Vec<T>>,
}

impl<T> Bisection<T> {
    pub(super) fn of(items: Vec<T>) -> Self {
        Self { untried: vec![items] }
    }

    pub(super) fn is_done(&self) -> bool {
        self.untried.is_empty()
    }

    /// Tries the next part, and splits it where it is refused. Returns an item that is refused alone,
    /// and why.
    ///
    /// # Errors
    /// The database's, where no row is to blame for it; the next step tries the same part again.
    pub(super) fn step(
        &mut self,
        attempt: impl FnOnce(&[T]) -> store::Result<()>,
    ) -> store::Result<Option<(T, store::Error)>> {
        let Some(mut part) = self.untried.pop() else { return Ok(None) };
        match attempt(&part) {
            Err(error) if error.may_be_about_rows() => {
                let second = part.split_off(part.len() / 2);
                if part.is_empty() {
                    return Ok(second.into_iter().next().map(|item| (item, error)));
                }
                self.untried.extend([second, part]);
            }
            Err(error) => {
                self.untried.push(part);
                return Err(error);
            }
            Ok(()) => {}
        }
        Ok(None)
    }
}

/// Runs a whole search: does `attempt` with all, and where they are refused with each half, down to
/// single items. Returns the items that are refused alone, and why.
///
/// # Errors
/// The database's, where no row is to blame for it.
pub(super) fn refused<T>(
    all: Vec<T>,
    mut attempt: impl FnMut(&[T]) -> store::Result<()>,
) -> store::Result<Vec<(T, store::Error)>> {
    let mut bisection = Bisection::of(all);
    let mut found = Vec::new();
    while !bisection.is_done() {
        found.extend(bisection.step(&mut attempt)?);
    }
    Ok(found)
}
