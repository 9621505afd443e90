//! Where claims go on. Usually at the beginning of every lane (a queue's priority): what was claimed is
//! not there any more. But while any session holds an old snapshot nothing leaves an index, and to walk
//! from the beginning takes longer with every run. A tick that notices goes on from the last run that it
//! claimed, and looks everywhere only for a share of its time; what came meanwhile behind its back (an
//! earlier run, another lane) waits as long. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::store::{Claimed, Lane};

/// A claim that looked everywhere and took longer has read over what is dead.
const LONG: Duration = Duration::from_millis(20);
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

    /// Learns from a claim that went on in `lanes` and took so long.
    pub(super) fn learn(&mut self, lanes: &[Lane], took: Duration, now: Instant, claimed: &[Claimed]) {
        if lanes.is_empty() {
            self.last.clear();
            self.everywhere_from = if took > LONG { now + took * SHARE } else { now };
        }
        for run in claimed {
            self.last.insert((run.lane.queue.clone(), run.lane.priority), run.lane.clone());
        }
    }

    /// The next claim is to look everywhere.
    pub(super) fn forget(&mut self) {
        self.last.clear();
    }
}
