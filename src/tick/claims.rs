//! When and how many runs to claim. Pure.

use std::time::{Duration, Instant};

use super::claim_cursor::ClaimCursor;
use super::prefetch::{self, Prefetch};
use crate::execute::PoolState;
use crate::job::payload::PAYLOAD_LIMIT;
use crate::store::{self, BatchSize, Claim, ClaimResult, FencingToken};
use crate::upkeep::{Wake, Woken};

/// How often an idle lingering tick polls. On average a run starts half of this after its enqueue.
/// This costs 15 short transactions a second.
const LINGER_POLL: Duration = Duration::from_millis(65);
/// The pause after a claim that skipped a definition with `max_running`, because another session
/// has locked it.
const DEFINITION_POLL: Duration = Duration::from_millis(30);
/// How long the tick repeats claims that skip a locked definition, before it counts as idle.
const DEFINITION_TIMEOUT: Duration = Duration::from_secs(2);
/// How often to check whether another tick of the worker has released the claim right.
const RIGHT_POLL: Duration = Duration::from_secs(1);
/// After a failed request, or a job that this host could not start, the tick claims nothing for
/// this long.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Claims {
    pub(super) prefetch: Prefetch,
    cursor: ClaimCursor,
    /// When to claim, or without the claim right, when to ask for it. `None`: when a run has ended,
    /// because no run is due or no thread is free.
    when: Option<Instant>,
    not_before: Instant,
    /// When the run that was recorded last is due again, if its backoff is very short.
    due_again: Option<Instant>,
    /// Since when every claim has skipped a limited definition that another session has locked.
    skipped_since: Option<Instant>,
    /// Runs that may still be started.
    left: usize,
    /// Whether to poll until the time is spent.
    linger: bool,
    /// How many runs one claim takes: fewer after one that took too long.
    batch: BatchSize,
    woken: Woken,
    /// Until then the claim right lasts in any case. Later it may have ended.
    right_lasts: Instant,
    /// Other ticks of this worker use all of `--concurrency`, so one of them claims next.
    gives_up_right: bool,
    /// To choose among the runs of limited definitions took too long, so this tick leaves them out.
    leaves_out_limited: bool,
}

impl Claims {
    pub(super) fn new(limit: usize, linger: bool, now: Instant) -> Self {
        Self {
            prefetch: Prefetch::default(),
            cursor: ClaimCursor::default(),
            when: Some(now),
            not_before: now,
            due_again: None,
            skipped_since: None,
            left: limit,
            linger,
            batch: BatchSize::default(),
            woken: Woken::default(),
            right_lasts: now,
            gives_up_right: false,
            leaves_out_limited: false,
        }
    }

    /// Whether the tick has its worker's claim right, unless the right has ended.
    pub(super) fn has_right(&self) -> bool {
        self.woken.may_claim
    }

    /// Whether the tick has the claim right now.
    pub(super) fn may_claim(&self, now: Instant) -> bool {
        self.woken.may_claim && now < self.right_lasts
    }

    pub(super) fn other_claims(&self) -> bool {
        self.woken.other_claims
    }

    pub(super) fn gives_up_right(&self) -> bool {
        self.gives_up_right
    }

    /// The tick has released or lost the claim right.
    pub(super) fn right_lost(&mut self) {
        self.woken.may_claim = false;
    }

    /// Whether as many runs were started as `--limit` allows. Claimed runs that wait for a thread
    /// may still be released; then the tick may claim others.
    pub(super) fn are_used_up(&self, pool: &PoolState) -> bool {
        self.left == 0 && pool.waiting == 0
    }

    pub(super) fn is_idle(&self) -> bool {
        self.when.is_none() && self.due_again.is_none()
    }

    /// Returns when to claim; `None`: when a run has ended.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.when.into_iter().chain(self.due_again).min();
        due.map(|due| due.max(self.not_before))
    }

    /// A run ended or was released, so that others may be claimed.
    pub(super) fn claim_soon(&mut self, now: Instant) {
        self.when = Some(now);
    }

    pub(super) fn pause(&mut self, now: Instant) {
        self.not_before = now + CLAIM_PAUSE;
    }

    /// A recorded run is due again after `wait`.
    pub(super) fn due_again(&mut self, now: Instant, wait: Duration) {
        if wait < prefetch::WINDOW {
            self.due_again = Some(now + wait);
        }
    }

    /// Returns the next claim, now that it is due and the tick has the claim right.
    pub(super) fn next(&mut self, now: Instant, pool: &PoolState) -> Option<Claim> {
        if self.due_again.take_if(|due| now >= *due).is_some() {
            // If the claim fails, it is tried again.
            self.when = Some(now);
        }
        let held = pool.running + pool.waiting;
        let wanted = self.prefetch.wanted(pool.size, held).min(self.left);
        let wanted = wanted.min(self.batch.at_most());
        if wanted == 0 {
            self.when = None;
            return None;
        }
        let wanted = match self.woken.held_by_others {
            // The worker's only tick may exceed its concurrency: very short runs are prefetched.
            0 => wanted,
            others => wanted.min(pool.size.saturating_sub(held + others)),
        };
        if wanted == 0 {
            self.wait_for_others(now);
            self.gives_up_right = !self.linger;
            return None;
        }
        let after = self.cursor.next(now);
        Some(Claim {
            at_most: i32::try_from(wanted).unwrap_or(i32::MAX),
            free_threads: i32::try_from(pool.size.saturating_sub(held)).unwrap_or(i32::MAX),
            // Enough for the largest payload on each thread.
            bytes: i64::try_from(prefetch::BYTES_AHEAD + pool.size * PAYLOAD_LIMIT)
                .unwrap_or(i64::MAX),
            // Only a full scan shows that nothing is due, unless it skips a locked definition.
            release_right: !self.linger && after.is_none() && self.skipped_since.is_none(),
            after,
            after_lane: self.cursor.after_lane.clone(),
            after_definition: self.cursor.after_definition,
            after_shares: self.cursor.after_shares.clone(),
            limits: self.woken.limits && !self.leaves_out_limited,
        })
    }

    /// Other ticks of this worker have the claim right or all slots. Only a lingering tick looks
    /// again later.
    fn wait_for_others(&mut self, now: Instant) {
        self.when = self.linger.then(|| now + RIGHT_POLL);
        self.due_again = None;
    }

    /// Returns what to ask when the tick wakes. It holds the claims `own`.
    pub(super) fn wake(
        &self,
        right: Duration,
        own: impl Iterator<Item = FencingToken>,
        until: Instant,
        claim_error: Option<store::Error>,
        slow: Option<Duration>,
    ) -> Wake {
        let keeps_right = self.linger || self.has_right();
        Wake { keeps_right, right, own_claims: own.collect(), until, claim_error, slow }
    }

    /// Takes the answer to a wake. If the tick has the right, it lasts until `lasts` at least.
    pub(super) fn woken(&mut self, now: Instant, woken: Woken, lasts: Instant) {
        (self.woken, self.gives_up_right, self.right_lasts) = (woken, false, lasts);
        // The next wake may fire runs, and take the right for them.
        if !woken.may_claim && !woken.has_more {
            self.wait_for_others(now);
        }
    }

    /// A claim of `size` runs took too long. The next one takes half of them.
    pub(super) fn too_long(&mut self, size: usize, error: &store::Error) {
        self.batch.too_long(size, error);
    }

    /// Leaves out the runs of limited definitions. They must not keep others from being claimed.
    pub(super) fn leave_out_limited(&mut self) {
        self.leaves_out_limited = true;
    }

    /// A claim succeeded: the next one may take twice as many.
    pub(super) fn accepted(&mut self, is_quick: bool) {
        self.batch.accepted(is_quick);
    }

    /// Decides when and where to claim next, after a claim that was sent at `sent`. The tick
    /// `holds` runs.
    pub(super) fn claimed(
        &mut self,
        now: Instant,
        claim: &Claim,
        sent: Instant,
        took: Duration,
        taken: &ClaimResult,
        holds: bool,
    ) {
        if taken.claimed.is_empty() && now >= self.right_lasts {
            // Perhaps the right ended before the claim, so ask for it again.
            self.woken.may_claim &= !claim.release_right;
            return self.claim_soon(now);
        }
        self.cursor.observe(claim, sent, took, taken);
        let short = claim.is_short(&taken.claimed);
        self.prefetch.observe_claim(&taken.claimed, short);
        if claim.releases_right(taken) {
            self.right_lost();
        }
        // Another session has locked a limited definition. Another tick's claim unlocks it soon; a
        // person's open transaction may keep the lock for hours.
        let skipped = short && taken.skipped;
        self.skipped_since = skipped.then(|| self.skipped_since.unwrap_or(now));
        let waits = self.skipped_since.is_some_and(|since| now < since + DEFINITION_TIMEOUT);
        self.when = if !short {
            Some(now)
        } else if waits {
            Some(now + DEFINITION_POLL)
        } else if claim.after.is_some() {
            Some(self.cursor.after_short(now, holds))
        } else if !self.cursor.found_all() {
            Some(now)
        } else {
            self.linger.then(|| now + LINGER_POLL)
        };
        self.left = self.left.saturating_sub(taken.claimed.len());
    }

    /// A claimed run could not be started. The next claim is a full scan for runs that can start at
    /// once.
    pub(super) fn unstarted(&mut self) {
        self.prefetch.reset();
        self.cursor.reset();
        self.left = self.left.saturating_add(1);
    }
}
