//! A simulation of hosts, a network and a database that runs the tick's real machine. One seed
//! gives one history. See docs/internals/simulation.md.

#![allow(clippy::print_stdout)]

mod checks;
mod database;
mod differential;
mod history;
mod host;
#[path = "../support/left_out.rs"]
mod left_out;
mod operations;
mod operators;
mod postgres;
mod rows;
mod sequences;
mod variants;
mod world;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use variants::{VARIANTS, Variant};
use world::{Config, World};

use crate::text::plural;

/// Nanoseconds of real time since the start of the world.
type Time = u64;

const fn seconds(seconds: u64) -> Time {
    seconds * 1_000_000_000
}

/// SplitMix64: its numbers stay the same in all versions of all libraries.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number less than `end`, or 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn of<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    pub(crate) fn maybe<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        self.chance(50).then(|| self.of(from))
    }
}

/// Runs the world of a seed. Returns what it broke, if anything, and its history if it is kept.
fn run(seed: u64, variant: Variant, records: bool) -> (Option<String>, String) {
    let mut world = World::new(&Config { seed, variant, records });
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    let broken = ended
        .unwrap_or_else(|panic| Err(format!("panicked: {:?}", panic.downcast_ref::<String>())));
    let broken = broken.err();
    (broken, world.history.unwrap_or_default())
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Runs `count` worlds from the seed `first` on all processors. Returns what the first broken one
/// broke.
fn run_all(first: u64, count: u64, variant: Variant) -> Option<(u64, String)> {
    let next = AtomicU64::new(first);
    let broken = Mutex::new(None::<(u64, String)>);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_over = |found: &Option<(u64, _)>| found.as_ref().is_some_and(|it| it.0 < seed);
            if seed >= first + count || is_over(&broken.lock().unwrap()) {
                return;
            }
            if let (Some(why), _) = run(seed, variant, false) {
                let mut found = broken.lock().unwrap();
                if !is_over(&found) {
                    *found = Some((seed, why));
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    broken.into_inner().unwrap()
}

/// `make simulate` sets SEEDS, or the SEED to replay.
#[test]
fn every_promise_holds_in_every_world() {
    // VARIANT=NoFence puts a defect in.
    let name = env::var("VARIANT").unwrap_or_default();
    let mut variants = VARIANTS.iter().map(|(variant, ..)| *variant);
    let variant = variants.find(|it| format!("{it:?}") == name).unwrap_or(Variant::None);
    let (first, count) = match number("SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("SEEDS").unwrap_or(2000)),
    };
    if let Some((seed, why)) = run_all(first, count, variant) {
        let (_, history) = run(seed, variant, true);
        let lines: Vec<_> = history.lines().collect();
        let shown = if count == 1 { lines.len() } else { 60 };
        let tail = lines[lines.len().saturating_sub(shown)..].join("\n");
        panic!("{tail}\nseed {seed}: {why}; `make simulate SEED={seed}` prints all of it");
    }
    if count == 1 {
        println!("{}", run(first, variant, true).1);
    }
}

/// `make simulate HOSTS=1000` prints the figures of docs/internals/simulation.md.
#[test]
fn large_worlds_wait_little_and_share_work() {
    let Some(most) = number("HOSTS") else { return };
    println!("hosts  ticks    runs  statements/run  waits ms: median  p99     max  runs/host");
    for hosts in [1, 10, 100, 1000].into_iter().filter(|hosts| *hosts <= most) {
        for (linger, end) in [(false, 86_400), (true, 864_000 / hosts.max(10))] {
            let mut world = World::large(hosts as usize, linger);
            world.run_until(seconds(end));
            let (waits, shares) = (&mut world.waits, &mut world.shares);
            waits.sort_unstable();
            shares.sort_unstable();
            let (runs, ticks) = (waits.len(), if linger { "linger" } else { "cron" });
            let statements = world.statements as f64 / runs as f64;
            let [median, p99] = [50, 99].map(|percent| waits[(runs - 1) * percent / 100]);
            let (last, most) = (waits[runs - 1], shares[shares.len() - 1]);
            let [least, middle] = [shares[0], shares[shares.len() / 2]];
            println!(
                "{hosts:>5} {ticks:>6} {runs:>7} {statements:>15.1} {median:>17} {p99:>4} \
                 {last:>7}  {least} to {most}, median {middle}"
            );
            assert!(p99 < 70_000, "99 of 100 runs start at the next tick");
        }
    }
}

#[test]
fn the_same_seed_replays_the_same_history() {
    for seed in 1..=5 {
        let [first, second] = [(); 2].map(|()| run(seed, Variant::None, true).1);
        assert!(first == second && first.len() > 1000, "seed {seed}");
    }
}

#[test]
fn every_known_defect_is_found() {
    let found = |(variant, seeds, _): &(Variant, u64, &str)| {
        let found = run_all(1, *seeds, *variant).map(|(seed, _)| seed);
        let result = found.map_or("not found".to_owned(), |seed| {
            format!("found after {}", plural::of(seed.cast_signed(), "world"))
        });
        println!("planted {variant:?}: {result}");
        found.is_some()
    };
    let missed: Vec<_> = VARIANTS.iter().filter(|variant| !found(variant)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
