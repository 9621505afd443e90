//! The size of batches that the database may reject: after a rejected batch the next one has half
//! of its items, after an accepted one twice as many. So the rejected items are found one by one,
//! and do not delay the others for long. Pure.

/// The most items of the next batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchSize(Option<usize>);

impl BatchSize {
    pub(super) fn at_most(self) -> usize {
        self.0.unwrap_or(usize::MAX)
    }

    /// The database rejected a batch of `size` items.
    pub(super) fn rejected(&mut self, size: usize) {
        self.0 = Some((size / 2).max(1));
    }

    /// The database accepted a batch; `waiting` items are left.
    pub(super) fn accepted(&mut self, waiting: usize) {
        self.0 = self.0.filter(|size| *size < waiting).map(|size| 2 * size);
    }
}
