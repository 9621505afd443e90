//! Where claims go on. Usually at the beginning of every lane (a queue's priority): what was claimed is
//! not there any more. But while any session holds an old snapshot nothing leaves an index, and while a definition
//! limits how many of its runs go at once its backlog stays where it is; to walk from the beginning takes longer the
//! more there is. A tick that notices goes on from the last run that it claimed, and looks everywhere only for a
//! share of its time; what came meanwhile behind its back (an earlier run, another lane) waits as long.
//!
//! A claim looks at a limited number of lanes, and the next claim at those behind: a rotation through
//! all lanes. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Look;
use crate::store::{Claim, Lane, LaneName, Limited, Taken};

/// A claim that looked everywhere and took longer than this, with this for each run, has read over what
/// is dead.
const LONG: Duration = Duration::from_millis(10);
const LONG_A_RUN: Duration = Duration::from_micros(20);
/// Such claims are made for one part in so many of the time.
const SHARE: u32 = 20;

#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The last run claimed in each.
    last: BTreeMap<(String, i32), Lane>,
    /// Before this only they are looked at.
    everywhere_from: Option<Instant>,
    /// The next look everywhere begins behind this lane.
    behind: Option<LaneName>,
    /// Since the rotation began at the first lane, each look brought all that was due in its lanes.
    is_exhaustive: bool,
}

impl Lanes {
    /// Where the next claim goes on; `None`: everywhere.
    pub(super) fn next(&self, now: Instant) -> Option<Vec<Lane>> {
        let awaited = self.everywhere_from.filter(|from| now < *from);
        awaited.map(|_| self.last.values().cloned().collect())
    }

    pub(super) fn behind(&self) -> Option<LaneName> {
        self.behind.clone()
    }

    /// Whether the last rotation brought all that was due.
    pub(super) fn brought_all(&self) -> bool {
        self.is_exhaustive && self.behind.is_none()
    }

    /// Learns from a claim that was sent at that time, took so long, and brought this of what was
    /// `asked` for.
    pub(super) fn learn(&mut self, asked: &Claim, sent: Instant, took: Duration, taken: &Taken) {
        let claimed = &taken.claimed;
        if asked.after.is_none() {
            self.look_everywhere();
            let short = asked.is_short(claimed);
            self.is_exhaustive = short && (self.is_exhaustive || asked.behind.is_none());
            self.behind.clone_from(&taken.cut);
            if short && taken.cut.is_some() {
                return;
            }
            // Of what a limit keeps waiting there may be any number to read over.
            let in_vain = asked.limits == Limited::Yes && short;
            if !in_vain && took <= LONG + LONG_A_RUN * u32::try_from(claimed.len()).unwrap_or(u32::MAX) {
                return;
            }
            self.everywhere_from = Some(sent + took * SHARE);
        }
        let lanes = claimed.iter().filter_map(|run| run.lane.as_ref());
        for lane in lanes {
            self.last.insert((lane.queue.clone(), lane.priority), lane.clone());
        }
    }

    /// When to look after there was too little in the lanes: at once, unless there was nothing else anywhere, and
    /// what the tick `holds` keeps it here.
    pub(super) fn after_short(&mut self, holds: bool) -> Look {
        match self.everywhere_from {
            Some(from) if holds && self.brought_all() => Look::At(from),
            _ => {
                self.look_everywhere();
                Look::Now
            }
        }
    }

    /// The next claim is to look everywhere, and all lanes are to have their turn.
    pub(super) fn forget(&mut self) {
        self.look_everywhere();
        self.is_exhaustive = false;
    }

    fn look_everywhere(&mut self) {
        self.last.clear();
        self.everywhere_from = None;
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::store::{Claimed, Wanted};

    fn claim(after: Option<Vec<Lane>>, at_most: i32, limits: Limited) -> Claim {
        let wanted =
            Wanted { queues: Vec::new(), left_out: Vec::new(), left_out_kinds: Vec::new(), lease: Duration::ZERO };
        Claim { wanted, at_most, at_once: 1, bytes: 1, after, behind: None, give_back: false, limits }
    }

    fn taken<const N: usize>(claimed: [Claimed; N]) -> Taken {
        Taken { claimed: claimed.into(), ..Taken::default() }
    }

    /// A run of a limited definition where there is no queue.
    fn run(queue: Option<&str>, id: i64) -> Claimed {
        let lane = |queue: &str| Lane { queue: queue.to_owned(), priority: 0, run_at: DateTime::UNIX_EPOCH, id };
        Claimed { lane: queue.map(lane), ..Claimed::example(id) }
    }

    fn places(lanes: &Lanes, now: Instant) -> Option<Vec<(String, i64)>> {
        Some(lanes.next(now)?.into_iter().map(|lane| (lane.queue, lane.id)).collect())
    }

    #[test]
    fn a_claim_that_is_quick_is_followed_by_one_that_looks_everywhere() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        assert_eq!(places(&lanes, now), None);
        lanes.learn(&claim(None, 9, Limited::No), now, LONG, &taken([run(Some("a"), 1)]));
        assert_eq!(places(&lanes, now), None);
    }

    #[test]
    fn after_a_slow_one_claims_go_on_in_their_lanes_for_a_while() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        let slow = 2 * LONG;
        let runs = taken([run(Some("a"), 1), run(Some("a"), 2), run(Some("b"), 7)]);
        lanes.learn(&claim(None, 3, Limited::No), now, slow, &runs);
        assert_eq!(places(&lanes, now + slow), Some(vec![("a".to_owned(), 2), ("b".to_owned(), 7)]));
        let further = claim(lanes.next(now + slow), 3, Limited::No);
        lanes.learn(&further, now + slow, LONG / 9, &taken([run(Some("a"), 3)]));
        assert_eq!(places(&lanes, now + slow), Some(vec![("a".to_owned(), 3), ("b".to_owned(), 7)]));
        assert_eq!(places(&lanes, now + slow * SHARE), None);
        // There may be more in other lanes.
        assert_eq!((lanes.after_short(true), places(&lanes, now + slow)), (Look::Now, None));
    }

    #[test]
    fn what_a_limit_keeps_waiting_is_read_over_only_now_and_then() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        let quick = LONG / 9;
        lanes.learn(&claim(None, 2, Limited::Yes), now, quick, &taken([run(None, 1), run(Some("a"), 2)]));
        assert_eq!(places(&lanes, now), None);
        lanes.learn(&claim(None, 3, Limited::Yes), now, quick, &taken([run(None, 1), run(Some("a"), 2)]));
        assert_eq!(places(&lanes, now + quick), Some(vec![("a".to_owned(), 2)]));
        assert_eq!(lanes.after_short(true), Look::At(now + quick * SHARE));
        assert_eq!(places(&lanes, now + quick), Some(vec![("a".to_owned(), 2)]));
        // Nobody ends a tick that holds nothing but itself.
        assert_eq!((lanes.after_short(false), places(&lanes, now + quick)), (Look::Now, None));
    }

    #[test]
    fn a_rotation_ends_when_no_part_of_the_lanes_had_enough() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        let mut look = |runs: Vec<Claimed>, cut: Option<&str>| {
            let asked = Claim { behind: lanes.behind(), ..claim(None, 2, Limited::No) };
            let cut = cut.map(|queue| (queue.to_owned(), 0));
            lanes.learn(&asked, now, Duration::ZERO, &Taken { claimed: runs, cut, passed_over: false });
            (lanes.behind().map(|(queue, _)| queue), lanes.brought_all())
        };
        let all = || vec![run(Some("a"), 1), run(Some("a"), 2)];
        assert_eq!(look(Vec::new(), Some("f")), (Some("f".to_owned()), false));
        assert_eq!(look(all(), Some("k")), (Some("k".to_owned()), false));
        // There may be more behind the first part.
        assert_eq!(look(Vec::new(), None), (None, false));
        assert_eq!(look(Vec::new(), Some("f")), (Some("f".to_owned()), false));
        assert_eq!(look(Vec::new(), None), (None, true));
    }
}
