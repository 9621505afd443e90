//! Where claims continue. A lane is a queue's priority. Usually a claim starts at the beginning of
//! every lane, because claimed runs have left it. In two cases such a full scan takes longer the
//! more runs there are. While a session holds an old snapshot, claimed runs stay in the index. And
//! the backlog of a definition with `max_running` stays where it is.
//!
//! A tick that notices this continues after its last claimed run. It does a full scan only for a
//! share of its time. Earlier runs and other lanes that appear meanwhile wait for the next full
//! scan.
//!
//! A claim looks at a limited number of lanes, and the next claim at the lanes after them: a
//! rotation through all lanes. Pure.

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
    /// The next full scan begins after this lane.
    behind: Option<LaneName>,
    /// Every claim of this rotation returned all that was due in its lanes.
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

    /// Returns whether the last rotation claimed all that was due.
    pub(super) fn brought_all(&self) -> bool {
        self.is_exhaustive && self.behind.is_none()
    }

    /// Updates the state after a claim: what it `asked` for, when it was sent, how long it `took`,
    /// and what it returned.
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

    /// Makes the next claim a full scan, and gives all lanes a turn.
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
        let wanted = Wanted {
            queues: Vec::new(),
            left_out: Vec::new(),
            left_out_kinds: Vec::new(),
            left_out_runs: Vec::new(),
            lease: Duration::ZERO,
        };
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
    fn a_rotation_is_exhaustive_if_no_part_fills_a_claim() {
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
        // The other lanes may have more.
        assert_eq!(look(Vec::new(), None), (None, false));
        assert_eq!(look(Vec::new(), Some("f")), (Some("f".to_owned()), false));
        assert_eq!(look(Vec::new(), None), (None, true));
    }
}
