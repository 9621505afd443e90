//! The leases of a tick. One statement renews many of them. The tick counts a lease from before
//! that statement was sent, so it stops the job before another worker may claim the run. Pure.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::batch::BatchSize;
use crate::store::Token;

/// A claimed run that is executed, waits for a thread, or has an unrecorded result.
#[derive(Debug)]
struct Lease {
    expires: Instant,
    /// Before this time the lease is not renewed; `None`: never again, the database rejects it.
    renew_from: Option<Instant>,
    /// The database says that the lease is lost. Its job is being stopped.
    is_lost: bool,
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    /// By claim, not by run: after a lost lease, this tick may claim the same run again.
    held: BTreeMap<Token, Lease>,
    /// Claims that were never started and must be released, and the ends of their leases.
    unstarted: Vec<(Token, Instant)>,
    batch: BatchSize,
}

impl Leases {
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns how many leases are held, neither expired nor known to be lost.
    pub(super) fn live(&self, now: Instant) -> usize {
        self.held.values().filter(|lease| lease.expires > now && !lease.is_lost).count()
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.held.keys().copied()
    }

    pub(super) fn unstarted(&self) -> impl Iterator<Item = Token> {
        self.unstarted.iter().map(|(claim, _)| *claim)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.unstarted.is_empty()
    }

    /// Adds a claim. Returns the earlier claims of the same run: their leases are lost.
    pub(super) fn hold(&mut self, claim: Token, now: Instant, expires: Instant) -> Vec<Token> {
        let first = Token { attempt: 0, claimed_at: DateTime::<Utc>::MIN_UTC, ..claim };
        let earlier = self.held.range(first..).map(|(held, _)| *held);
        let earlier = earlier.take_while(|held| held.id == claim.id).collect();
        self.held.insert(claim, Lease { expires, renew_from: Some(now), is_lost: false });
        earlier
    }

    pub(super) fn expiry(&self, claim: &Token) -> Option<Instant> {
        self.held.get(claim).map(|lease| lease.expires)
    }

    pub(super) fn remove(&mut self, claim: &Token) {
        self.held.remove(claim);
    }

    /// Returns the claims to renew in the next statement: those that expire before `fresh`. Also
    /// returns when the first of them may be renewed.
    pub(super) fn stale(&self, now: Instant, fresh: Instant) -> (Vec<Token>, Option<Instant>) {
        let stale = self.held.iter().filter(|(_, lease)| lease.expires < fresh);
        let stale = stale.filter_map(|(claim, lease)| Some((*claim, lease.renew_from?)));
        let due = stale.clone().filter(|(_, from)| now >= *from).map(|(claim, _)| claim);
        (due.take(self.batch.at_most()).collect(), stale.map(|(_, from)| from).min())
    }

    pub(super) fn extend(&mut self, claim: &Token, until: Instant) {
        if let Some(lease) = self.held.get_mut(claim) {
            lease.expires = until;
        }
    }

    pub(super) fn lost(&mut self, claim: &Token) {
        if let Some(lease) = self.held.get_mut(claim) {
            lease.is_lost = true;
        }
    }

    /// Does not renew this lease before `from`.
    pub(super) fn renew_from(&mut self, claim: &Token, from: Instant) {
        if let Some(lease) = self.held.get_mut(claim) {
            lease.renew_from = Some(from);
        }
    }

    /// The database accepted a renewal. Returns whether there are more, because earlier ones were
    /// rejected.
    pub(super) fn accepted(&mut self) -> bool {
        let is_part = self.batch.at_most() < usize::MAX;
        self.batch.accepted(self.held.len());
        is_part
    }

    /// The database rejected the renewal of `claims`. Returns the culprit if there was only one; it
    /// is renewed again from `renew_from`. Otherwise the next renewal has half as many.
    pub(super) fn rejected(
        &mut self,
        claims: &[Token],
        renew_from: Option<Instant>,
    ) -> Option<Token> {
        let [claim] = claims else {
            self.batch.rejected(claims.len());
            return None;
        };
        if let Some(lease) = self.held.get_mut(claim) {
            lease.renew_from = renew_from;
        }
        Some(*claim)
    }

    /// Marks a claim for release.
    pub(super) fn release_later(&mut self, claim: Token) {
        if let Some(lease) = self.held.remove(&claim) {
            self.unstarted.push((claim, lease.expires));
        }
    }

    /// Marks claims for release that this tick never held.
    pub(super) fn release_all_later(&mut self, claims: Vec<Token>, expires: Instant) {
        self.unstarted.extend(claims.into_iter().map(|claim| (claim, expires)));
    }

    /// Forgets the marked claims that were released, and returns how many.
    pub(super) fn released(&mut self, released: &HashSet<&Token>) -> usize {
        self.unstarted.extract_if(.., |(claim, _)| released.contains(claim)).count()
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
