//! Bisection: finds the items that the database rejects, so that they do not delay the others.

use super::{Error, Result};

/// The maximum of items per transaction, because a transaction locks their rows until it ends.
const AT_ONCE: usize = 500;

/// After a batch that took too long, the next one has this part, 1/8, of its items.
const SLOW_PART: usize = 8;

/// The maximum of items in the next batch: half as many after a rejected batch, twice as many after
/// an accepted one. So the rejected items are found one by one, and do not delay the others for
/// long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BatchSize {
    at_most: usize,
    /// `at_most` does not grow above this, because the server ended larger batches that took too
    /// long.
    in_time: usize,
}

impl Default for BatchSize {
    fn default() -> Self {
        Self { at_most: usize::MAX, in_time: usize::MAX }
    }
}

impl BatchSize {
    /// Each batch has one item.
    pub(crate) const ONE: Self = Self { at_most: 1, in_time: 1 };

    /// Returns the maximum of items in the next batch.
    pub(crate) fn at_most(self) -> usize {
        self.at_most
    }

    /// Makes the next batch half as large, because the database rejected a batch of `size` items.
    pub(crate) fn rejected(&mut self, size: usize) {
        self.at_most = (size / 2).max(1);
    }

    /// Makes the next batch smaller, because a batch of `size` items took too long.
    pub(crate) fn too_long(&mut self, size: usize, error: &Error) {
        if error.is_too_slow {
            // The server ended the batch, and would end others of its size. Each further try may
            // take the whole time limit, so few tries must lead to the slow item.
            self.at_most = (size / SLOW_PART).max(1);
            self.in_time = self.at_most;
        } else {
            // The network may be the cause instead of the items, so later batches grow again.
            self.rejected(size);
        }
    }

    /// Doubles the next batch, because the database accepted one. If it `is_quick`, larger batches
    /// should no longer take too long either, so the limit for them ends.
    pub(crate) fn accepted(&mut self, is_quick: bool) {
        if is_quick {
            self.in_time = usize::MAX;
        }
        self.grow();
    }

    /// Doubles the next batch, up to the limit for batches that took too long.
    fn grow(&mut self) {
        self.at_most = self.at_most.saturating_mul(2).min(self.in_time);
    }
}

/// Tries all items in batches, and returns the rejected ones with the reasons.
///
/// - `size` is the size of the first batch. It becomes the size of the batch that would come next.
/// - `has_time`: once this returns false, no further batch begins.
/// - `attempt` tries a batch in one transaction.
pub(crate) fn bisect<T>(
    items: Vec<T>,
    size: &mut BatchSize,
    has_time: impl Fn() -> bool,
    mut attempt: impl FnMut(&[T]) -> Result<()>,
) -> Result<Vec<(T, Error)>> {
    let mut bisection = Bisection::sized(items, *size);
    let mut rejected = Vec::new();
    while !bisection.is_done() && has_time() {
        rejected.extend(bisection.step(&mut attempt)?);
        *size = bisection.size();
    }
    Ok(rejected)
}

/// A search for rejected items. Each step is one transaction, so the caller can renew leases in
/// between.
pub(crate) struct Bisection<T> {
    untried: Vec<T>,
    size: BatchSize,
}

impl<T> Bisection<T> {
    /// Begins with batches of the maximum size.
    pub(crate) fn of(items: Vec<T>) -> Self {
        Self { untried: items, size: BatchSize::default() }
    }

    /// Begins with batches of this size.
    pub(crate) fn sized(items: Vec<T>, size: BatchSize) -> Self {
        Self { untried: items, size }
    }

    /// Returns the size of the next batch.
    pub(crate) fn size(&self) -> BatchSize {
        self.size
    }

    /// Returns whether each item was accepted or found rejected.
    pub(crate) fn is_done(&self) -> bool {
        self.untried.is_empty()
    }

    /// Returns the items that no step has accepted or found rejected.
    pub(crate) fn into_untried(self) -> Vec<T> {
        self.untried
    }

    /// Tries the next part of the items. Returns an item and the error if the database rejects this
    /// single item. If it rejects several, the next step tries a smaller part. After an error that
    /// no row can have caused, which is returned as such, the next step tries the same part again.
    pub(crate) fn step(
        &mut self,
        attempt: impl FnOnce(&[T]) -> Result<()>,
    ) -> Result<Option<(T, Error)>> {
        let size = self.size.at_most().min(AT_ONCE).min(self.untried.len());
        let Err(error) = attempt(&self.untried[..size]) else {
            self.untried.drain(..size);
            self.size.grow();
            return Ok(None);
        };
        if !error.may_be_about_one_row() {
            return Err(error);
        }
        if size <= 1 {
            return Ok(self.untried.drain(..size).next().map(|item| (item, error)));
        }
        if error.is_too_slow {
            self.size.too_long(size, &error);
        } else {
            self.size.rejected(size);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use crate::store::Kind;

    #[test]
    fn bisection_tries_items_in_order_and_finds_the_rejected_ones() {
        let mut accepted = Vec::new();
        let found = bisect(
            (0..1700).collect(),
            &mut BatchSize::default(),
            || true,
            |part: &[i32]| {
                assert!(part.len() <= AT_ONCE);
                if part.iter().any(|item| item % 400 == 7) {
                    return Err(Error::new(Kind::Data, Exit::CouldNot, "no"));
                }
                accepted.extend_from_slice(part);
                Ok(())
            },
        );
        let found: Vec<_> = found.unwrap().into_iter().map(|(item, _)| item).collect();
        assert_eq!(found, [7, 407, 807, 1207, 1607]);
        assert_eq!(accepted, (0..1700).filter(|item| !found.contains(item)).collect::<Vec<_>>());
    }

    #[test]
    fn rejected_items_are_each_tried_alone_once() {
        let mut attempts = 0;
        let reject = |_: &[()]| {
            attempts += 1;
            Err(Error::new(Kind::Data, Exit::CouldNot, "no"))
        };
        let found = bisect(vec![(); 256], &mut BatchSize::default(), || true, reject);
        assert_eq!((found.unwrap().len(), attempts), (256, 256 + 8));
    }

    #[test]
    fn a_batch_grows_again_unless_the_server_ended_a_larger_one() {
        let mut size = BatchSize::default();
        size.too_long(60, &Error::silent("record results"));
        assert_eq!(size.at_most(), 30);
        size.accepted(false);
        assert_eq!(size.at_most(), 60);
        let mut ended = Error::silent("record results");
        ended.is_too_slow = true;
        size.too_long(60, &ended);
        size.accepted(false);
        assert_eq!(size.at_most(), 7);
        size.accepted(true);
        assert_eq!(size.at_most(), 14);
        size.too_long(7, &ended);
        assert_eq!(size.at_most(), 1);
    }
}
