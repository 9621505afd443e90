//! The leases of a tick. One statement renews many of them. The tick counts a lease from before
//! the statement was sent. So the lease ends for the tick before it ends in the database, and the
//! tick stops the job before another worker may claim the run. Pure.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::store::{self, BatchSize, FencingToken};

/// The lease of a claimed run. The run is executed, waits for a thread, has an unrecorded result,
/// or must be released.
#[derive(Debug)]
pub(super) struct Lease {
    expires: Instant,
    /// When the lease in the run's row ends. That may be in the past while `job_locked_runs` keeps
    /// the lease.
    row_expires: Instant,
    /// Renewing the row takes too long, so `job_locked_runs` keeps the lease.
    is_slow: bool,
    /// Before this time the lease is not renewed; `None`: never again, it is lost or rejected.
    renew_from: Option<Instant>,
}

impl Lease {
    /// Returns when the lease ends.
    pub(super) fn expires(&self) -> Instant {
        self.expires
    }

    /// Extends the lease. `in_row`: it was renewed in the row of its run, not only in
    /// `job_locked_runs`.
    pub(super) fn extend(&mut self, until: Instant, in_row: bool) {
        self.expires = until;
        if in_row {
            self.row_expires = until;
        }
    }

    /// Does not renew the lease before `from`; `None`: never again.
    pub(super) fn renew_from(&mut self, from: Option<Instant>) {
        self.renew_from = from;
    }
}

/// The leases that this tick holds.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// By claim, not by run: after a lost lease, this tick may claim the same run again.
    held: BTreeMap<FencingToken, Lease>,
    /// How many rows one statement renews.
    batch: BatchSize,
    /// The next renewal keeps all leases in `job_locked_runs`, because rows took too long.
    keeps_all: bool,
}

impl Leases {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns how many statements it takes to renew all leases.
    pub(super) fn renewals(&self) -> u32 {
        u32::try_from(self.held.len().div_ceil(self.batch.at_most())).unwrap_or(u32::MAX)
    }

    /// Returns the claims whose leases the tick holds.
    pub(super) fn tokens(&self) -> impl Iterator<Item = FencingToken> {
        self.held.keys().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Adds a claim. Returns the earlier claims of the same run: their leases are lost.
    pub(super) fn add(
        &mut self,
        claim: FencingToken,
        now: Instant,
        expires: Instant,
    ) -> Vec<FencingToken> {
        // Tokens sort by the id of their run, then by the attempt: no token of this run is less.
        let first = FencingToken { attempt: i32::MIN, ..claim };
        let from_first = self.held.range(first..).map(|(held, _)| *held);
        let earlier = from_first.take_while(|held| held.id == claim.id).collect();
        let (row_expires, renew_from) = (expires, Some(now));
        self.held.insert(claim, Lease { expires, row_expires, is_slow: false, renew_from });
        earlier
    }

    pub(super) fn get(&self, claim: &FencingToken) -> Option<&Lease> {
        self.held.get(claim)
    }

    pub(super) fn get_mut(&mut self, claim: &FencingToken) -> Option<&mut Lease> {
        self.held.get_mut(claim)
    }

    /// Forgets a lease. Returns whether the tick held it.
    pub(super) fn remove(&mut self, claim: &FencingToken) -> bool {
        self.held.remove(claim).is_some()
    }

    /// Returns when the first of the renewable leases ends.
    pub(super) fn first_end(&self) -> Option<Instant> {
        let renewable = self.held.values().filter(|lease| lease.renew_from.is_some());
        renewable.map(Lease::expires).min()
    }

    /// Selects the leases that end before `before` and may be renewed now. Returns three things:
    ///
    /// - the claims to renew in their rows: at most a batch, those whose rows expire first;
    /// - the claims to keep in `job_locked_runs`;
    /// - when the first lease that ends before `before` may be renewed.
    pub(super) fn to_renew(
        &self,
        now: Instant,
        before: Instant,
    ) -> (Vec<FencingToken>, Vec<FencingToken>, Option<Instant>) {
        let (mut rows, mut kept, mut next) = (Vec::new(), Vec::new(), None);
        for (claim, lease) in &self.held {
            let Some(from) = lease.renew_from.filter(|_| lease.expires < before) else { continue };
            next = Some(next.map_or(from, |next: Instant| next.min(from)));
            if now < from {
                continue;
            }
            if self.keeps_all || lease.is_slow {
                kept.push(*claim);
            } else {
                rows.push((lease.row_expires, *claim));
            }
        }
        if rows.len() > self.batch.at_most() {
            rows.sort_unstable();
            rows.truncate(self.batch.at_most());
        }
        (rows.into_iter().map(|(_, claim)| claim).collect(), kept, next)
    }

    /// Makes the next batch half as large, because the database rejected a renewal of `size`
    /// leases.
    pub(super) fn rejected(&mut self, size: usize) {
        self.batch.rejected(size);
    }

    /// Makes the next batch smaller, because a renewal of `size` leases took too long.
    pub(super) fn too_long(&mut self, size: usize, error: &store::Error) {
        self.batch.too_long(size, error);
    }

    /// Makes the next renewal keep all leases in `job_locked_runs`: the renewal of these rows took
    /// too long, and another slow one might cost all leases. If it was a single row, returns its
    /// claim, and never renews that row again.
    pub(super) fn keep_all(&mut self, rows: &[FencingToken]) -> Option<FencingToken> {
        self.keeps_all = true;
        let [claim] = *rows else { return None };
        self.held.get_mut(&claim)?.is_slow = true;
        Some(claim)
    }

    /// Ends the effect of `keep_all`, after the database has answered or rejected the renewal.
    pub(super) fn renew_rows_again(&mut self) {
        self.keeps_all = false;
    }

    /// Notes that the database accepted a renewal of `size` rows; see `BatchSize::accepted`.
    /// Returns whether the batch was full, so that more leases may have to be renewed now.
    pub(super) fn accepted(&mut self, size: usize, is_quick: bool) -> bool {
        let is_full = size >= self.batch.at_most();
        if size > 0 {
            self.batch.accepted(is_quick);
        }
        is_full
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::DateTime;

    use super::*;

    fn claim(id: i64, attempt: i32, second: i64) -> FencingToken {
        let claimed_at = DateTime::from_timestamp(second, 0).unwrap_or_default();
        FencingToken { id, attempt, claimed_at }
    }

    #[test]
    fn a_claim_ends_the_earlier_claims_of_its_run_only() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        // An attempt that was not started is claimed again with its number.
        let earlier = [claim(7, 1, 10), claim(7, 1, 20), claim(7, 2, 30)];
        for (count, claim) in earlier.into_iter().enumerate() {
            assert_eq!(leases.add(claim, now, now), earlier[..count]);
        }
        for other in [claim(6, 9, 90), claim(8, 1, 5)] {
            assert_eq!(leases.add(other, now, now), []);
        }
        assert_eq!(leases.add(claim(7, 3, 40), now, now), earlier);
        assert_eq!((leases.len(), leases.is_empty()), (6, false));
    }

    #[test]
    fn a_renewal_has_the_first_that_expire_if_they_are_too_many() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        assert_eq!((leases.len(), leases.is_empty(), leases.first_end()), (0, true, None));
        let at = |seconds| now + Duration::from_secs(seconds);
        for (id, expires) in [(1, 9), (2, 7), (3, 5), (4, 3), (5, 30)] {
            leases.add(claim(id, 1, 0), now, at(expires));
        }
        let to_renew = |leases: &Leases| {
            let (claims, _, next) = leases.to_renew(at(1), at(30));
            (claims.iter().map(|claim| claim.id).collect::<Vec<_>>(), next)
        };
        assert_eq!((to_renew(&leases), leases.renewals()), ((vec![1, 2, 3, 4], Some(now)), 1));
        leases.rejected(4);
        assert_eq!((to_renew(&leases).0, leases.renewals()), (vec![4, 3], 3));
        assert_eq!(leases.first_end(), Some(at(3)));
        for (id, from) in [(4, None), (3, Some(at(2))), (2, Some(at(1)))] {
            leases.get_mut(&claim(id, 1, 0)).unwrap().renew_from(from);
        }
        assert_eq!((to_renew(&leases), leases.first_end()), ((vec![1, 2], Some(now)), Some(at(5))));
        assert!(leases.accepted(2, true) && !leases.accepted(3, true));
    }
}
