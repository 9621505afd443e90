//! Where the next claim looks. Pure.
//!
//! A lane is one priority of one queue. Most claims are full scans: they look at each lane from its
//! beginning, because claimed runs have left it. Two things make a full scan read many entries that
//! it can't claim: a session with an old snapshot, because claimed runs then stay in the index, and
//! a definition with `max_running`, whose waiting runs stay there until they start. A tick notices
//! this because the claim takes long. Its next claims are then continued claims: they look only at
//! lanes in which it has claimed runs, and there only after the last of these runs. So the tick
//! spends only a part of its time on full scans. Earlier runs and other lanes that appear meanwhile
//! wait for the next full scan.
//!
//! A claim looks at only some lanes, definitions with limits, and shares. The next claim goes on
//! after these, so each lane, definition and share has its turn.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::store::{Claim, ClaimResult, Lane, LastShare, Position};

/// A quick full scan takes at most this long, and `SLOW_PER_RUN` in addition for each claimed run.
/// A slower one has probably read entries that it can't claim.
const SLOW: Duration = Duration::from_millis(10);
/// See `SLOW`.
const SLOW_PER_RUN: Duration = Duration::from_micros(20);
/// Full scans may take at most 1/20 of the time.
const SHARE: u32 = 20;

/// Where the next claim continues.
#[derive(Debug, Default)]
pub(super) struct ClaimCursor {
    /// The position of the last claimed run of each lane.
    last: BTreeMap<(String, i32), Position>,
    /// Before this time, claims are continued claims, after the runs in `last`. `None`: the next
    /// claim is a full scan.
    full_scan_from: Option<Instant>,
    /// The next full scan begins after this lane.
    pub(super) after_lane: Option<Lane>,
    /// The next claim begins after this limited definition.
    pub(super) after_definition: Option<i64>,
    /// The next claim continues after these shares.
    pub(super) after_shares: Vec<LastShare>,
    /// Every full scan of this rotation returned all due runs of its lanes. A rotation is a series
    /// of full scans, after which each lane had its turn.
    is_exhaustive: bool,
}

impl ClaimCursor {
    /// Returns the runs after which the next claim continues; `None`: it is a full scan.
    pub(super) fn positions(&self, now: Instant) -> Option<Vec<Position>> {
        if now < self.full_scan_from? { Some(self.last.values().cloned().collect()) } else { None }
    }

    /// Returns whether the latest rotation is complete, and has claimed all due runs.
    pub(super) fn found_all(&self) -> bool {
        self.is_exhaustive
            && self.after_lane.is_none()
            && self.after_definition.is_none()
            && self.after_shares.is_empty()
    }

    /// Takes the result of a claim: what it `asked` for, when it was sent, how long it `took`, and
    /// what it has `taken`. Decides where the next claim looks.
    pub(super) fn observe(
        &mut self,
        asked: &Claim,
        sent_at: Instant,
        took: Duration,
        taken: &ClaimResult,
    ) {
        self.observe_shares(asked, taken);
        if asked.after.is_none() {
            self.observe_full_scan(asked, sent_at, took, taken);
            if self.full_scan_from.is_none() {
                // The next claim is a full scan, too, so it does not continue after these runs.
                return;
            }
        }
        for run in taken.claimed.iter().filter_map(|run| run.position.as_ref()) {
            self.last.insert((run.queue.clone(), run.priority), run.clone());
        }
    }

    /// Notes after which definition and which shares the next claim continues.
    fn observe_shares(&mut self, asked: &Claim, taken: &ClaimResult) {
        // Each claim looks at the locks of runs from the first one, so their old place does not
        // matter.
        self.after_shares.retain(|share| share.definition != LastShare::OF_LOCKS);
        if asked.limits {
            // Forget the shares of the definitions that the claim looked at: from the one after
            // `begin` to the last one. It returns new shares for these.
            let begin = asked.after_definition.unwrap_or(0);
            self.after_shares.retain(|share| {
                let is_before = share.definition <= begin;
                let is_behind = taken.last_definition.is_some_and(|last| share.definition > last);
                is_before || is_behind
            });
            self.after_definition = taken.last_definition;
        }
        self.after_shares.extend(taken.last_shares.iter().cloned());
    }

    /// Decides after a full scan which lanes the next full scan reads, and whether the next claims
    /// are continued claims until full scans have taken no more than their part of the time.
    fn observe_full_scan(
        &mut self,
        asked: &Claim,
        sent_at: Instant,
        took: Duration,
        taken: &ClaimResult,
    ) {
        self.scan_fully();
        let is_short = asked.is_short(&taken.claimed);
        let begins_rotation = asked.after_lane.is_none();
        self.is_exhaustive = is_short && (self.is_exhaustive || begins_rotation);
        self.after_lane.clone_from(&taken.last_lane);
        if is_short && taken.last_lane.is_some() {
            // The rotation goes on: the next claim is a full scan of other lanes.
            return;
        }
        // With limits, a claim that finds too few runs may have read over any number of runs that
        // a limit keeps waiting. So it does not count as quick.
        let reads_over = asked.limits && is_short;
        let runs = u32::try_from(taken.claimed.len()).unwrap_or(u32::MAX);
        let is_quick = !reads_over && took <= SLOW + SLOW_PER_RUN * runs;
        if !is_quick {
            self.full_scan_from = Some(sent_at + took * SHARE);
        }
    }

    /// Decides about the next claim after a continued claim that found fewer runs than it asked
    /// for. Returns when to claim.
    ///
    /// Usually that is now, with a full scan, because a continued claim does not see earlier runs
    /// and other lanes. But if the latest rotation left no due run, another full scan would cost
    /// much and probably find little. While the tick `holds` runs, it has work, so it waits until
    /// full scans are allowed again. Without runs, it scans now, because it may exit if nothing is
    /// due.
    pub(super) fn after_short(&mut self, now: Instant, holds: bool) -> Instant {
        match self.full_scan_from {
            Some(from) if holds && self.found_all() => from,
            _ => {
                self.scan_fully();
                now
            }
        }
    }

    /// Makes the next claim a full scan, and begins a new rotation.
    pub(super) fn reset(&mut self) {
        self.scan_fully();
        self.is_exhaustive = false;
    }

    /// Makes the next claim a full scan.
    fn scan_fully(&mut self) {
        self.last.clear();
        self.full_scan_from = None;
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::store::Claimed;

    fn claim(after: Option<Vec<Position>>, at_most: i32, limits: bool) -> Claim {
        Claim {
            at_most,
            free_threads: 1,
            bytes: 1,
            after,
            after_lane: None,
            after_definition: None,
            after_shares: Vec::new(),
            release_right: false,
            limits,
            locks: true,
        }
    }

    fn taken<const N: usize>(claimed: [Claimed; N]) -> ClaimResult {
        ClaimResult { claimed: claimed.into(), ..ClaimResult::default() }
    }

    /// A claimed run; without a queue, a run of a limited definition.
    fn run(queue: Option<&str>, id: i64) -> Claimed {
        let position = |queue: &str| Position {
            queue: queue.to_owned(),
            priority: 0,
            run_at: DateTime::UNIX_EPOCH,
            id,
        };
        Claimed { position: queue.map(position), ..Claimed::example(id) }
    }

    fn positions(cursor: &ClaimCursor, now: Instant) -> Option<Vec<(String, i64)>> {
        Some(cursor.positions(now)?.into_iter().map(|run| (run.queue, run.id)).collect())
    }

    #[test]
    fn a_full_scan_follows_a_quick_full_scan() {
        let now = Instant::now();
        let mut cursor = ClaimCursor::default();
        assert_eq!(positions(&cursor, now), None);
        cursor.observe(&claim(None, 9, false), now, SLOW, &taken([run(Some("a"), 1)]));
        assert_eq!(positions(&cursor, now), None);
    }

    #[test]
    fn claims_continue_for_a_while_after_a_slow_full_scan() {
        let now = Instant::now();
        let mut cursor = ClaimCursor::default();
        let slow = 2 * SLOW;
        let runs = taken([run(Some("a"), 1), run(Some("a"), 2), run(Some("b"), 7)]);
        cursor.observe(&claim(None, 3, false), now, slow, &runs);
        assert_eq!(
            positions(&cursor, now + slow),
            Some(vec![("a".to_owned(), 2), ("b".to_owned(), 7)])
        );
        let further = claim(cursor.positions(now + slow), 3, false);
        cursor.observe(&further, now + slow, SLOW / 9, &taken([run(Some("a"), 3)]));
        assert_eq!(
            positions(&cursor, now + slow),
            Some(vec![("a".to_owned(), 3), ("b".to_owned(), 7)])
        );
        assert_eq!(positions(&cursor, now + slow * SHARE), None);
        // There may be more in other lanes.
        assert_eq!((cursor.after_short(now, true), positions(&cursor, now + slow)), (now, None));
    }

    #[test]
    fn a_backlog_of_limited_runs_is_scanned_only_rarely() {
        let now = Instant::now();
        let mut cursor = ClaimCursor::default();
        let quick = SLOW / 9;
        cursor.observe(
            &claim(None, 2, true),
            now,
            quick,
            &taken([run(None, 1), run(Some("a"), 2)]),
        );
        assert_eq!(positions(&cursor, now), None);
        cursor.observe(
            &claim(None, 3, true),
            now,
            quick,
            &taken([run(None, 1), run(Some("a"), 2)]),
        );
        assert_eq!(positions(&cursor, now + quick), Some(vec![("a".to_owned(), 2)]));
        assert_eq!(cursor.after_short(now, true), now + quick * SHARE);
        assert_eq!(positions(&cursor, now + quick), Some(vec![("a".to_owned(), 2)]));
        // A tick that holds no run must not wait.
        assert_eq!((cursor.after_short(now, false), positions(&cursor, now + quick)), (now, None));
    }

    #[test]
    fn a_rotation_is_exhaustive_if_every_claim_is_short() {
        let now = Instant::now();
        let mut cursor = ClaimCursor::default();
        let mut look = |runs: Vec<Claimed>, last_lane: Option<&str>| {
            let asked = Claim { after_lane: cursor.after_lane.clone(), ..claim(None, 2, false) };
            let last_lane = last_lane.map(|queue| (queue.to_owned(), 0));
            cursor.observe(
                &asked,
                now,
                Duration::ZERO,
                &ClaimResult { claimed: runs, last_lane, ..ClaimResult::default() },
            );
            (cursor.after_lane.clone().map(|(queue, _)| queue), cursor.found_all())
        };
        let all = || vec![run(Some("a"), 1), run(Some("a"), 2)];
        assert_eq!(look(Vec::new(), Some("f")), (Some("f".to_owned()), false));
        assert_eq!(look(all(), Some("k")), (Some("k".to_owned()), false));
        // The other lanes may have more.
        assert_eq!(look(Vec::new(), None), (None, false));
        assert_eq!(look(Vec::new(), Some("f")), (Some("f".to_owned()), false));
        assert_eq!(look(Vec::new(), None), (None, true));
    }
    #[test]
    fn a_reset_begins_a_new_rotation() {
        let now = Instant::now();
        let mut cursor = ClaimCursor::default();
        cursor.observe(&claim(None, 2, false), now, 2 * SLOW, &taken([run(Some("a"), 1)]));
        assert!(cursor.found_all() && cursor.positions(now).is_some());
        cursor.reset();
        assert!(!cursor.found_all() && cursor.positions(now).is_none());
    }

    /// A claim looks at the definitions from one that it is given to one that it returns.
    #[test]
    fn the_last_shares_of_other_definitions_are_kept() {
        let now = Instant::now();
        let mut cursor = ClaimCursor::default();
        let mut look = |last_definition, shares: &[i64]| {
            let after_definition = cursor.after_definition;
            let asked = Claim { after_definition, ..claim(None, 1, true) };
            let share = |definition: &i64| LastShare { definition: *definition, share: "s".into() };
            let last_shares = shares.iter().map(share).collect();
            let taken = ClaimResult { last_definition, last_shares, ..ClaimResult::default() };
            cursor.observe(&asked, now, Duration::ZERO, &taken);
            let mut kept: Vec<_> = cursor.after_shares.iter().map(|it| it.definition).collect();
            kept.sort_unstable();
            (cursor.after_definition, kept)
        };
        assert_eq!(look(None, &[3, 5, 6, 7]), (None, vec![3, 5, 6, 7]));
        assert_eq!(look(Some(5), &[4, 5]), (Some(5), vec![4, 5, 6, 7]));
        assert_eq!(look(Some(6), &[]), (Some(6), vec![4, 5, 7]));
        assert_eq!(look(None, &[]), (None, vec![4, 5]));
    }
}
