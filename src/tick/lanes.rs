//! Where claims go on. Usually at the beginning of every lane (a queue's priority): what was claimed is
//! not there any more. But while any session holds an old snapshot nothing leaves an index, and to walk
//! from the beginning takes longer with every run. A tick that notices goes on from the last run that it
//! claimed, and looks everywhere only for a share of its time; what came meanwhile behind its back (an
//! earlier run, another lane) waits as long. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::store::Lane;

/// A claim that looked everywhere and took longer than this, with this for each run, has read over what
/// is dead.
const LONG: Duration = Duration::from_millis(20);
const LONG_A_RUN: Duration = Duration::from_micros(40);
/// Such claims are made for one part in so many of the time.
const SHARE: u32 = 20;

#[derive(Debug)]
pub(super) struct Lanes {
    /// The last run claimed in each.
    last: BTreeMap<(String, i32), Lane>,
    everywhere_from: Instant,
}

impl Lanes {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: BTreeMap::new(), everywhere_from: now }
    }

    /// Where the next claim goes on; empty: everywhere.
    pub(super) fn next(&self, now: Instant) -> Vec<Lane> {
        if now >= self.everywhere_from { Vec::new() } else { self.last.values().cloned().collect() }
    }

    /// Learns from a claim that went on in `lanes`, was sent at that time and took so long.
    pub(super) fn learn<'a>(
        &mut self,
        lanes: &[Lane],
        sent: Instant,
        took: Duration,
        claimed: impl ExactSizeIterator<Item = &'a Lane>,
    ) {
        if lanes.is_empty() {
            self.last.clear();
            if took <= LONG + LONG_A_RUN * u32::try_from(claimed.len()).unwrap_or(u32::MAX) {
                return;
            }
            self.everywhere_from = sent + took * SHARE;
        }
        for lane in claimed {
            self.last.insert((lane.queue.clone(), lane.priority), lane.clone());
        }
    }

    /// The next claim is to look everywhere.
    pub(super) fn forget(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn run(queue: &str, id: i64) -> Lane {
        Lane { queue: queue.to_owned(), priority: 0, run_at: DateTime::UNIX_EPOCH, id }
    }

    fn places(lanes: &Lanes, now: Instant) -> Vec<(String, i64)> {
        lanes.next(now).into_iter().map(|lane| (lane.queue, lane.id)).collect()
    }

    #[test]
    fn a_claim_that_is_quick_is_followed_by_one_that_looks_everywhere() {
        let now = Instant::now();
        let mut lanes = Lanes::new(now);
        assert!(places(&lanes, now).is_empty());
        lanes.learn(&[], now, LONG, [run("a", 1)].iter());
        assert!(places(&lanes, now).is_empty());
    }

    #[test]
    fn after_a_slow_one_claims_go_on_in_their_lanes_for_a_while() {
        let now = Instant::now();
        let mut lanes = Lanes::new(now);
        let slow = 2 * LONG;
        lanes.learn(&[], now, slow, [run("a", 1), run("a", 2), run("b", 7)].iter());
        let seen = lanes.next(now + slow);
        assert_eq!(places(&lanes, now + slow), [("a".to_owned(), 2), ("b".to_owned(), 7)]);
        lanes.learn(&seen, now + slow, LONG / 9, [run("a", 3)].iter());
        assert_eq!(places(&lanes, now + slow), [("a".to_owned(), 3), ("b".to_owned(), 7)]);
        assert!(places(&lanes, now + slow * SHARE).is_empty());
        lanes.forget();
        assert!(places(&lanes, now + slow).is_empty());
    }
}
