//! Finds out which of many the database refuses, so that one costs the others nothing.

use crate::store::{self, Kind};

/// Does `attempt` with all, and where one of them is refused with each half, down to the single ones. Returns those
/// with which it can't be done, and why.
///
/// # Errors
/// The database's, of another kind.
pub(super) fn refused<'a, T>(
    all: &'a [T],
    attempt: &mut impl FnMut(&[T]) -> store::Result<()>,
) -> store::Result<Vec<(&'a T, store::Error)>> {
    match (attempt(all), all) {
        (Err(error), [one]) if error.kind == Kind::Data => Ok(vec![(one, error)]),
        (Err(error), [_, _, ..]) if error.kind == Kind::Data => {
            let (first, second) = all.split_at(all.len() / 2);
            let mut found = refused(first, attempt)?;
            found.extend(refused(second, attempt)?);
            Ok(found)
        }
        (done, _) => done.map(|()| Vec::new()),
    }
}
