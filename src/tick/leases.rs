//! The leases of a tick. One statement renews many of them. The tick counts a lease from before
//! that statement was sent, so it stops the job before another worker may claim the run. Pure.

use std::collections::BTreeMap;
use std::time::Instant;

use chrono::{DateTime, Utc};

use crate::store::{BatchSize, Token};

/// A claimed run that is executed, waits for a thread, has an unrecorded result, or must be
/// released.
#[derive(Debug)]
pub(super) struct Lease {
    expires: Instant,
    /// Before this time the lease is not renewed; `None`: never again, it is lost or rejected.
    renew_from: Option<Instant>,
}

impl Lease {
    pub(super) fn expires(&self) -> Instant {
        self.expires
    }

    pub(super) fn extend(&mut self, until: Instant) {
        self.expires = until;
    }

    /// Does not renew the lease before `from`; `None`: never again.
    pub(super) fn renew_from(&mut self, from: Option<Instant>) {
        self.renew_from = from;
    }
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    /// By claim, not by run: after a lost lease, this tick may claim the same run again.
    held: BTreeMap<Token, Lease>,
    /// How many leases one statement renews.
    batch: BatchSize,
}

impl Leases {
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.held.keys().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Adds a claim. Returns the earlier claims of the same run: their leases are lost.
    pub(super) fn add(&mut self, claim: Token, now: Instant, expires: Instant) -> Vec<Token> {
        // Tokens sort by the id of their run first.
        let first = Token { attempt: 0, claimed_at: DateTime::<Utc>::MIN_UTC, ..claim };
        let earlier = self.held.range(first..).map(|(held, _)| *held);
        let earlier = earlier.take_while(|held| held.id == claim.id).collect();
        self.held.insert(claim, Lease { expires, renew_from: Some(now) });
        earlier
    }

    pub(super) fn get(&self, claim: &Token) -> Option<&Lease> {
        self.held.get(claim)
    }

    pub(super) fn get_mut(&mut self, claim: &Token) -> Option<&mut Lease> {
        self.held.get_mut(claim)
    }

    pub(super) fn remove(&mut self, claim: &Token) {
        self.held.remove(claim);
    }

    /// Returns the claims to renew in the next statement, of those that expire before `before`.
    /// Also returns when the first of these may be renewed.
    pub(super) fn to_renew(&self, now: Instant, before: Instant) -> (Vec<Token>, Option<Instant>) {
        let ending = self.held.iter().filter(|(_, lease)| lease.expires < before);
        let ending = ending.filter_map(|(claim, lease)| Some((*claim, lease.renew_from?)));
        let due = ending.clone().filter(|(_, from)| now >= *from).map(|(claim, _)| claim);
        (due.take(self.batch.at_most()).collect(), ending.map(|(_, from)| from).min())
    }

    /// The database rejected a renewal of `size` leases.
    pub(super) fn rejected(&mut self, size: usize) {
        self.batch.rejected(size);
    }

    /// The database accepted a renewal of `size` leases. Returns whether it may have left others,
    /// because it rejected a larger one before.
    pub(super) fn accepted(&mut self, size: usize) -> bool {
        let is_full = size >= self.batch.at_most();
        self.batch.accepted();
        is_full
    }
}
