//! When and how many runs to claim. Pure.

use std::time::{Duration, Instant};

use super::claim_cursor::ClaimCursor;
use super::prefetch::{self, Prefetch};
use crate::execute::PoolState;
use crate::job::payload::PAYLOAD_LIMIT;
use crate::store::{self, BatchSize, Claim, ClaimResult, FencingToken, Kind};
use crate::upkeep::{FailedClaim, Wake, Woken};

/// How often an idle lingering tick polls. On average a run starts half of this after its enqueue.
/// At this pace, claims cost 50 short transactions a second.
const LINGER_POLL: Duration = Duration::from_millis(20);
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
/// After a claim of runs of limited definitions took too long, the tick claims only others for this
/// long: as long as a tick of cron lasts.
pub(super) const LIMITED_PAUSE: Duration = Duration::from_secs(60);

/// What decides when and how many runs the tick claims next.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) prefetch: Prefetch,
    cursor: ClaimCursor,
    /// When to claim, or without the claim right, when to ask for it. `None`: not before a run has
    /// ended, because no run is due or no thread is free.
    claim_at: Option<Instant>,
    /// The end of a pause after an error: no claim is sent earlier.
    not_before: Instant,
    /// When the run that was recorded last is due again, if its backoff is very short.
    due_again: Option<Instant>,
    /// Since when every claim has skipped a limited definition that another session has locked.
    skipped_since: Option<Instant>,
    /// How many more runs `--limit` allows the tick to start.
    left: usize,
    /// Whether to poll until the time is spent.
    linger: bool,
    /// How many runs one claim takes at most: fewer after a claim that took too long.
    batch: BatchSize,
    /// What the latest wake returned.
    woken: Woken,
    /// The claim right lasts until this time at least. Later it may have ended.
    right_until: Instant,
    /// Other ticks of this worker use all of `--concurrency`, so one of them claims next.
    gives_up_right: bool,
    /// Before this time, claims leave out runs of limited definitions, because a claim of such runs
    /// took too long.
    limited_from: Instant,
    /// The connection was lost during the latest claim of runs of limited definitions.
    lost_limited: bool,
}

impl Claims {
    /// Returns the state before the first wake, which asks for the claim right.
    pub(super) fn new(limit: usize, linger: bool, now: Instant) -> Self {
        Self {
            prefetch: Prefetch::default(),
            cursor: ClaimCursor::default(),
            claim_at: Some(now),
            not_before: now,
            due_again: None,
            skipped_since: None,
            left: limit,
            linger,
            batch: BatchSize::default(),
            woken: Woken::default(),
            right_until: now,
            gives_up_right: false,
            limited_from: now,
            lost_limited: false,
        }
    }

    /// Whether the tick has got its worker's claim right, and not released or lost it. The right
    /// may have ended meanwhile, see `may_claim`.
    pub(super) fn has_right(&self) -> bool {
        self.woken.may_claim
    }

    /// Whether the tick has the claim right, which has not ended yet.
    pub(super) fn may_claim(&self, now: Instant) -> bool {
        self.woken.may_claim && now < self.right_until
    }

    /// Whether the latest wake found that another tick of the worker has the claim right.
    pub(super) fn other_claims(&self) -> bool {
        self.woken.other_claims
    }

    /// Whether to release the claim right, because other ticks of this worker use all slots.
    pub(super) fn gives_up_right(&self) -> bool {
        self.gives_up_right
    }

    /// Notes that the tick has released or lost the claim right.
    pub(super) fn lose_right(&mut self) {
        self.woken.may_claim = false;
    }

    /// Whether as many runs were started as `--limit` allows.
    pub(super) fn are_used_up(&self, pool: &PoolState) -> bool {
        // Claimed runs that wait for a thread may still be released. Then the tick may claim
        // others.
        self.left == 0 && pool.waiting == 0
    }

    /// Whether no claim is planned, because there is nothing to claim before a run ends.
    pub(super) fn is_idle(&self) -> bool {
        self.claim_at.is_none() && self.due_again.is_none()
    }

    /// Returns when to claim; `None`: not before a run has ended.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.claim_at.into_iter().chain(self.due_again).min();
        due.map(|due| due.max(self.not_before))
    }

    /// Makes a claim due now, because others may be claimed: for example, a run ended or was
    /// released.
    pub(super) fn claim_soon(&mut self, now: Instant) {
        self.claim_at = Some(now);
    }

    /// Claims nothing for `CLAIM_PAUSE`.
    pub(super) fn pause(&mut self, now: Instant) {
        self.not_before = now + CLAIM_PAUSE;
    }

    /// Notes that a recorded run is due again after `wait`. If that is very soon, the tick does not
    /// end before, and claims then.
    pub(super) fn note_due_again(&mut self, now: Instant, wait: Duration) {
        if wait < prefetch::WINDOW {
            self.due_again = Some(now + wait);
        }
    }

    /// Returns the next claim, now that it is due and the tick has the claim right. `None`: no slot
    /// is free for another run. Then this also decides when to try again.
    pub(super) fn next_claim(&mut self, now: Instant, pool: &PoolState) -> Option<Claim> {
        if self.due_again.take_if(|due| now >= *due).is_some() {
            // `claim_at` stays set if the claim fails, so the claim is tried again.
            self.claim_at = Some(now);
        }
        let held = pool.running + pool.waiting;
        let useful = self.prefetch.wanted(pool.size, held);
        let wanted = useful.min(self.left).min(self.batch.at_most());
        if wanted == 0 {
            // When a run has ended, there is a slot again.
            self.claim_at = None;
            return None;
        }
        let allowed = match self.woken.held_by_others {
            // `wanted` may exceed the number of threads, to prefetch very short runs.
            0 => wanted,
            // The runs of all ticks of the worker together must not exceed `--concurrency`.
            others => wanted.min(pool.size.saturating_sub(held + others)),
        };
        if allowed == 0 {
            // Let one of these other ticks claim when its runs have ended.
            self.gives_up_right = !self.linger;
            self.ask_again_if_lingering(now);
            return None;
        }
        // After a claim of runs of limited definitions took too long, leave such runs out.
        let is_limited_allowed = now >= self.limited_from;
        let after = self.cursor.positions(now);
        Some(Claim {
            at_most: i32::try_from(allowed).unwrap_or(i32::MAX),
            free_threads: i32::try_from(pool.size.saturating_sub(held)).unwrap_or(i32::MAX),
            // Besides prefetched runs, enough for the largest payload on each thread.
            bytes: i64::try_from(prefetch::BYTES_AHEAD + pool.size * PAYLOAD_LIMIT)
                .unwrap_or(i64::MAX),
            // Only a full scan shows that nothing more is due, and not if it skips the runs of a
            // locked definition.
            release_right: !self.linger && after.is_none() && self.skipped_since.is_none(),
            after,
            after_lane: self.cursor.after_lane.clone(),
            after_definition: self.cursor.after_definition,
            after_shares: self.cursor.after_shares.clone(),
            limits: self.woken.limits && is_limited_allowed,
            locks: is_limited_allowed,
        })
    }

    /// Stops claiming, because the tick has no claim right, or other ticks of its worker use all
    /// slots. A lingering tick asks again later. Another tick claims nothing more until one of its
    /// runs has ended.
    fn ask_again_if_lingering(&mut self, now: Instant) {
        self.claim_at = if self.linger { Some(now + RIGHT_POLL) } else { None };
        self.due_again = None;
    }

    /// Returns the request of a wake. `own`: the claims that the tick holds.
    pub(super) fn wake_request(
        &self,
        right_lasts: Duration,
        own: impl Iterator<Item = FencingToken>,
        until: Instant,
        failed_claim: Option<FailedClaim>,
        slow: Option<Duration>,
    ) -> Wake {
        let keeps_right = self.linger || self.has_right();
        Wake { keeps_right, right_lasts, own_claims: own.collect(), until, failed_claim, slow }
    }

    /// Takes the answer to a wake, which has asked for the right to claim runs for this tick's
    /// worker. If the tick has got that right, it lasts until `right_until` at least. If not, the
    /// tick stops claiming.
    pub(super) fn woken(&mut self, now: Instant, woken: Woken, right_until: Instant) {
        self.woken = woken;
        self.right_until = right_until;
        self.gives_up_right = false;
        // If the wake has left work (`has_more`), the next one may fire runs, and get the right for
        // them. So the tick does not stop yet.
        let may_get_right = woken.may_claim || woken.has_more;
        if !may_get_right {
            self.ask_again_if_lingering(now);
        }
    }

    /// Makes the next claim smaller, because a claim of `size` runs took too long.
    pub(super) fn too_long(&mut self, size: usize, error: &store::Error) {
        self.batch.too_long(size, error);
    }

    /// Reacts to a claim of runs of limited definitions that took too long. Leaves such runs out
    /// for a while, so that others are claimed, if a time limit ended the statement, or if the
    /// connection was lost for the second time in a row. Returns whether it leaves them out.
    pub(super) fn limited_failed(&mut self, now: Instant, error: &store::Error) -> bool {
        let is_lost = error.kind == Kind::Lost;
        // The first loss may be an outage that has nothing to do with the claim.
        let leaves_out = error.is_too_slow || is_lost && self.lost_limited;
        self.lost_limited = is_lost && !leaves_out;
        if leaves_out {
            self.limited_from = now + LIMITED_PAUSE;
        }
        leaves_out
    }

    /// Lets the next claim take twice as many runs, because one succeeded; see
    /// `BatchSize::accepted`.
    pub(super) fn accepted(&mut self, is_quick: bool) {
        self.batch.accepted(is_quick);
    }

    /// Decides when and where to claim next, after a claim that was sent at `sent_at` and took
    /// `took`. `holds`: the tick holds runs.
    pub(super) fn claimed(
        &mut self,
        now: Instant,
        claim: &Claim,
        sent_at: Instant,
        took: Duration,
        taken: &ClaimResult,
        holds: bool,
    ) {
        if claim.limits {
            self.lost_limited = false;
        }
        if taken.claimed.is_empty() && now >= self.right_until {
            // Perhaps the right ended before the claim, which then found nothing. `may_claim` is
            // false now, so the tick asks for the right again.
            if claim.release_right {
                // It may have ended because the claim released it.
                self.lose_right();
            }
            return self.claim_soon(now);
        }
        self.cursor.observe(claim, sent_at, took, taken);
        let is_short = claim.is_short(&taken.claimed);
        self.prefetch.observe_claim(&taken.claimed, is_short);
        if taken.has_released {
            self.lose_right();
        }
        let skipped = is_short && taken.skipped.is_some();
        self.skipped_since = if skipped { self.skipped_since.or(Some(now)) } else { None };
        self.claim_at = if !is_short {
            // More runs may be due.
            Some(now)
        } else if skipped && !self.skips_for_long(now) {
            // Another session has locked a limited definition. A claim of another tick unlocks it
            // soon, but the open transaction of a person may keep the lock for hours.
            Some(now + DEFINITION_POLL)
        } else if claim.after.is_some() {
            Some(self.cursor.after_short(now, holds))
        } else if !self.cursor.found_all() {
            // This full scan has not looked at all lanes and definitions.
            Some(now)
        } else if self.linger {
            Some(now + LINGER_POLL)
        } else {
            // Nothing more is due.
            None
        };
        self.left = self.left.saturating_sub(taken.claimed.len());
    }

    /// Whether a session has locked a limited definition for longer than a claim locks it.
    pub(super) fn skips_for_long(&self, now: Instant) -> bool {
        self.skipped_since.is_some_and(|since| now >= since + DEFINITION_TIMEOUT)
    }

    /// Reacts to a claimed run that did not start: it does not count for `--limit`, and the next
    /// claim is a full scan for runs that can start at once.
    pub(super) fn unstarted(&mut self) {
        self.prefetch.reset();
        self.cursor.reset();
        self.left = self.left.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use crate::store::Claimed;

    const RIGHT: Duration = Duration::from_secs(60);

    /// The claims of a tick that has the right for a minute.
    fn with_right(linger: bool) -> (Claims, Instant) {
        let now = Instant::now();
        let mut claims = Claims::new(1000, linger, now);
        claims.woken(now, Woken { may_claim: true, ..Woken::default() }, now + RIGHT);
        (claims, now)
    }

    fn pool(size: usize, running: usize) -> PoolState {
        PoolState { size, running, waiting: 0, oldest: None }
    }

    fn taken(ids: impl IntoIterator<Item = i64>) -> ClaimResult {
        let claimed = ids.into_iter().map(Claimed::example).collect();
        ClaimResult { claimed, ..ClaimResult::default() }
    }

    /// Claims for two threads at this time; the answer comes at once.
    fn claim(claims: &mut Claims, now: Instant, taken: &ClaimResult) {
        let sent = claims.next_claim(now, &pool(2, 0)).expect("threads are free");
        let ClaimResult { claimed, skipped, .. } = taken;
        let has_released = sent.release_right && sent.is_short(claimed);
        let taken = ClaimResult {
            claimed: claimed.clone(),
            skipped: skipped.clone(),
            has_released,
            ..ClaimResult::default()
        };
        claims.claimed(now, &sent, now, Duration::ZERO, &taken, false);
    }

    #[test]
    fn the_right_ends_with_its_time() {
        let (mut claims, now) = with_right(false);
        let last = RIGHT.checked_sub(Duration::from_millis(1)).unwrap();
        assert!(claims.may_claim(now + last) && !claims.may_claim(now + RIGHT));
        assert!(claims.has_right() && !claims.other_claims());
        claims.lose_right();
        assert!(!claims.may_claim(now) && !claims.has_right());
        claims.woken(now, Woken { other_claims: true, ..Woken::default() }, now);
        assert!(claims.other_claims() && claims.is_idle());
    }

    #[test]
    fn only_a_lingering_tick_and_one_with_the_right_keep_it() {
        let keeps = |claims: &Claims, now| {
            claims.wake_request(RIGHT, [].into_iter(), now, None, None).keeps_right
        };
        for linger in [false, true] {
            let (mut claims, now) = with_right(linger);
            assert!(keeps(&claims, now));
            claims.lose_right();
            assert_eq!(keeps(&claims, now), linger);
        }
    }

    /// The answer to a claim may be late: another tick may have claimed.
    #[test]
    fn a_claim_that_found_nothing_after_the_right_ended_is_repeated() {
        for linger in [false, true] {
            let (mut claims, now) = with_right(linger);
            claim(&mut claims, now + RIGHT, &taken([]));
            // A claim that would have released the right may have done so.
            assert_eq!((claims.due(), claims.has_right()), (Some(now + RIGHT), linger));
            let (mut claims, now) = with_right(linger);
            claim(&mut claims, now + RIGHT, &taken([1]));
            assert_eq!(claims.has_right(), linger, "it released the right");
        }
    }

    #[test]
    fn a_pause_delays_the_next_claim() {
        let (mut claims, now) = with_right(false);
        assert_eq!(claims.due(), Some(now));
        claims.pause(now);
        assert_eq!(claims.due(), Some(now + CLAIM_PAUSE));
        claims.claim_soon(now + CLAIM_PAUSE * 2);
        assert_eq!(claims.due(), Some(now + CLAIM_PAUSE * 2));
    }

    #[test]
    fn a_tick_waits_only_for_a_run_that_is_due_again_very_soon() {
        let (mut claims, now) = with_right(false);
        claim(&mut claims, now, &taken([1]));
        assert!(claims.is_idle());
        claims.note_due_again(now, prefetch::WINDOW);
        assert!(claims.is_idle());
        let wait = prefetch::WINDOW / 2;
        claims.note_due_again(now, wait);
        assert_eq!((claims.is_idle(), claims.due()), (false, Some(now + wait)));
        assert!(claims.next_claim(now + wait, &pool(1, 1)).is_none(), "no thread is free");
        assert!(claims.is_idle());
    }

    #[test]
    fn a_limit_is_used_up_when_its_last_run_has_a_thread() {
        let now = Instant::now();
        let mut claims = Claims::new(3, false, now);
        claims.woken(now, Woken { may_claim: true, ..Woken::default() }, now + RIGHT);
        assert!(!claims.are_used_up(&pool(2, 0)));
        claim(&mut claims, now, &taken([1, 2]));
        assert_eq!(claims.next_claim(now, &pool(2, 0)).unwrap().at_most, 1);
        claim(&mut claims, now, &taken([3]));
        assert!(claims.are_used_up(&pool(2, 1)) && claims.next_claim(now, &pool(2, 0)).is_none());
        assert!(!claims.are_used_up(&PoolState { waiting: 1, ..pool(2, 2) }));
        // The run was released.
        claims.unstarted();
        assert!(!claims.are_used_up(&pool(2, 0)));
        assert_eq!(claims.next_claim(now, &pool(2, 0)).unwrap().at_most, 1);
    }

    #[test]
    fn ticks_of_a_worker_share_its_concurrency() {
        for linger in [false, true] {
            let (mut claims, now) = with_right(linger);
            let shared = |held_by_others| {
                let woken = Woken { may_claim: true, held_by_others, ..Woken::default() };
                move |claims: &mut Claims| {
                    claims.woken(now, woken, now + RIGHT);
                    claims
                        .next_claim(now, &pool(8, 3))
                        .map(|claim| (claim.at_most, claim.free_threads))
                }
            };
            assert_eq!(shared(0)(&mut claims), Some((5, 5)));
            assert_eq!(shared(2)(&mut claims), Some((3, 5)));
            assert!(!claims.gives_up_right());
            assert_eq!(shared(5)(&mut claims), None);
            assert_eq!(claims.gives_up_right(), !linger);
            assert_eq!(claims.due(), linger.then_some(now + RIGHT_POLL));
        }
    }

    #[test]
    fn a_claim_takes_payloads_for_all_threads_and_leaves_out_limits_that_took_too_long() {
        let (mut claims, now) = with_right(false);
        let limits = Woken { may_claim: true, limits: true, ..Woken::default() };
        claims.woken(now, limits, now + RIGHT);
        let first = claims.next_claim(now, &pool(2, 0)).unwrap();
        let bytes = prefetch::BYTES_AHEAD + 2 * PAYLOAD_LIMIT;
        assert_eq!((first.bytes, first.limits), (i64::try_from(bytes).unwrap(), true));
        let limits = |claims: &mut Claims, now| claims.next_claim(now, &pool(2, 0)).unwrap().limits;
        let [lost, busy] = [Kind::Lost, Kind::Busy].map(store::Error::example);
        let mut slow = store::Error::example(Kind::Busy);
        slow.is_too_slow = true;
        // A lost connection may be an outage, a second one is not.
        assert!(!claims.limited_failed(now, &lost) && limits(&mut claims, now));
        claims.claimed(now, &first, now, Duration::ZERO, &taken([1, 2]), true);
        assert!(!claims.limited_failed(now, &lost) && limits(&mut claims, now));
        assert!(!claims.limited_failed(now, &busy) && limits(&mut claims, now));
        for why in [slow, lost] {
            assert!(!claims.limited_failed(now, &store::Error::example(Kind::Lost)));
            // A claim without limits says nothing about them.
            let other = Claim { limits: false, ..first.clone() };
            claims.claimed(now, &other, now, Duration::ZERO, &taken([1, 2]), true);
            assert!(claims.limited_failed(now, &why));
            assert!(!limits(&mut claims, now + LIMITED_PAUSE - Duration::from_millis(1)));
            assert!(limits(&mut claims, now + LIMITED_PAUSE));
        }
    }

    #[test]
    fn a_claim_that_took_too_long_is_followed_by_smaller_ones() {
        let (mut claims, now) = with_right(false);
        let size = |claims: &mut Claims| claims.next_claim(now, &pool(8, 0)).unwrap().at_most;
        claims.too_long(8, &store::Error::new(Kind::Busy, Exit::Unavailable, "slow"));
        assert_eq!(size(&mut claims), 4);
        claims.accepted(true);
        assert_eq!(size(&mut claims), 8);
    }

    #[test]
    fn a_claim_that_finds_no_more_ends_the_claims_of_a_tick_without_linger() {
        for linger in [false, true] {
            let (mut claims, now) = with_right(linger);
            claim(&mut claims, now, &taken([1, 2]));
            assert_eq!(claims.due(), Some(now), "there may be more");
            claim(&mut claims, now, &taken([3]));
            assert_eq!(claims.due(), linger.then_some(now + LINGER_POLL));
        }
    }

    #[test]
    fn a_claim_that_skipped_a_definition_is_repeated_for_a_while() {
        for linger in [false, true] {
            let (mut claims, now) = with_right(linger);
            let skipped = |ids: &[i64]| ClaimResult {
                skipped: Some("a".into()),
                ..taken(ids.iter().copied())
            };
            // As many as wanted: a skipped definition does not matter yet.
            claim(&mut claims, now, &skipped(&[1, 2]));
            assert_eq!(claims.due(), Some(now));
            claim(&mut claims, now, &skipped(&[3]));
            assert_eq!(claims.due(), Some(now + DEFINITION_POLL));
            let repeated = claims.next_claim(now, &pool(2, 0)).unwrap();
            assert!(!repeated.release_right, "runs may be due behind the lock");
            let last = now + DEFINITION_TIMEOUT.checked_sub(Duration::from_millis(1)).unwrap();
            claim(&mut claims, last, &skipped(&[]));
            assert_eq!(claims.due(), Some(last + DEFINITION_POLL));
            let over = now + DEFINITION_TIMEOUT;
            claim(&mut claims, over, &skipped(&[]));
            assert_eq!(claims.due(), linger.then_some(over + LINGER_POLL));
        }
    }
}
