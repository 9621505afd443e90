//! The leases of a tick. One statement renews many of them. The tick counts a lease from before
//! that statement was sent, so it stops the job before another worker may claim the run. Pure.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use crate::store::Token;
use crate::upkeep::BatchSize;

/// A claimed run that is executed, waits for a thread, or has an unrecorded result.
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
    /// Claims that were never started and must be released, and the ends of their leases.
    unstarted: Vec<(Token, Instant)>,
    /// How many leases one statement renews.
    batch: BatchSize,
    /// How many claims one statement releases.
    release_batch: BatchSize,
}

impl Leases {
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.held.keys().copied()
    }

    pub(super) fn unstarted(&self) -> impl Iterator<Item = Token> {
        self.unstarted.iter().map(|(claim, _)| *claim)
    }

    /// Returns the claims to release in the next statement.
    pub(super) fn to_release(&self) -> Vec<Token> {
        self.unstarted().take(self.release_batch.at_most()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.unstarted.is_empty()
    }

    /// Adds a claim. Returns the earlier claims of the same run: their leases are lost.
    pub(super) fn add(&mut self, claim: Token, now: Instant, expires: Instant) -> Vec<Token> {
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

    /// Marks a claim for release. If this tick never held it, its lease ends at `expires`.
    pub(super) fn release_later(&mut self, claim: Token, expires: Instant) {
        let expires = self.held.remove(&claim).map_or(expires, |lease| lease.expires);
        self.unstarted.push((claim, expires));
    }

    /// Forgets the marked claims that were released, and returns how many.
    pub(super) fn released(&mut self, released: &HashSet<&Token>) -> usize {
        self.release_batch.accepted();
        self.unstarted.extract_if(.., |(claim, _)| released.contains(claim)).count()
    }

    /// The database rejected the release of these claims. Forgets the claim if it was rejected
    /// alone, and returns it.
    pub(super) fn release_rejected(&mut self, claims: &[Token]) -> Option<Token> {
        self.release_batch.rejected(claims.len());
        let [rejected] = claims else { return None };
        self.unstarted.retain(|(claim, _)| claim != rejected);
        Some(*rejected)
    }

    /// Drops unreleased claims whose lease ended longer than `kept` ago, and returns them. Until
    /// then a release may still succeed: while the database is down, no other tick can recover the
    /// run. If one did, the claim's token no longer matches, and the release changes nothing.
    pub(super) fn drop_expired(&mut self, now: Instant, kept: Duration) -> Vec<Token> {
        let dropped = self.unstarted.extract_if(.., |(_, expires)| now >= *expires + kept);
        dropped.map(|(claim, _)| claim).collect()
    }

    /// Returns when the first result or claim is dropped, `kept` after the end of its lease.
    pub(super) fn first_dropped(&self, kept: Duration) -> Option<Instant> {
        let held = self.held.values().map(|lease| lease.expires);
        let first = held.chain(self.unstarted.iter().map(|(_, expires)| *expires)).min();
        first.map(|expires| expires + kept)
    }
}
