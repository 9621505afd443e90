//! `make bench`: how fast jobctl is, each figure as a ratio to a reference on the same work in the
//! same run. Whole processes, the release binary, a PostgreSQL with fsync on; see
//! docs/internals/performance-reasons.md for what bounds each figure.
//!
//! `--quick` does less of everything, `--json FILE` writes the figures too, and names of
//! measurements choose some. Nothing here fails because of a time: only wrong results do.

// A benchmark measures the binary, as tests/ does, and prints its figures.
#![allow(clippy::disallowed_types, clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]
#![allow(unreachable_pub)]

mod after;
mod alone;
mod beside;
mod bulk;
mod claim;
mod database;
mod drain;
mod floods;
mod history;
mod limits;
mod linger;
mod look;
mod peers;
mod plain;
mod process;
mod server;
mod session;
mod shape;
mod short;
mod soak;
mod table;
mod wait;

use std::time::Instant;

use database::Database;
use table::Measured;

/// The size of a measurement.
#[derive(Clone, Copy)]
pub struct Scale {
    quick: bool,
}

impl Scale {
    /// Returns `full`, or `quick` with `--quick`.
    fn of(self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}

type Measure = fn(Scale) -> Vec<Measured>;

/// All measurements, in the order of the table.
const MEASURES: [(&str, Measure); 16] = [
    ("tick", short::empty_tick),
    ("enqueue", short::enqueue),
    ("shell", drain::shell),
    ("http", drain::http),
    ("bulk", bulk::bulk),
    ("claim", claim::claim),
    ("snapshot", drain::snapshot),
    ("linger", linger::linger),
    ("wait", wait::wait),
    ("beside", beside::beside),
    ("hosts", drain::hosts),
    ("limits", limits::limits),
    ("floods", floods::floods),
    ("after", after::after),
    ("memory", drain::memory),
    ("look", look::look),
];

/// They take half an hour each, so they are measured only if they are named.
const LONG: [(&str, Measure); 2] = [("soak", soak::soak), ("history", history::history)];

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == process::MEMORY) {
        return process::measure_memory(&arguments[1..]);
    }
    let mut arguments = arguments.into_iter().filter(|argument| argument != "--bench");
    let (mut scale, mut json, mut names) = (Scale { quick: false }, None, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => scale.quick = true,
            "--json" => json = Some(arguments.next().expect("--json FILE")),
            name => names.push(name.to_owned()),
        }
    }
    let started = Instant::now();
    println!("{}\n", Database::new().about());
    table::print_header();
    let chosen = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
    let mut measured = Vec::new();
    let long = LONG.into_iter().filter(|(name, _)| names.iter().any(|one| one == name));
    let chosen = MEASURES.into_iter().filter(|(name, _)| chosen(name)).chain(long);
    for (name, measure) in chosen {
        let rows = measure(scale);
        rows.iter().for_each(|row| table::print_row(name, row));
        measured.extend(rows.into_iter().map(|row| (name, row)));
    }
    println!("\n{} s in all", started.elapsed().as_secs());
    if let Some(file) = json {
        std::fs::write(file, table::json(&measured)).unwrap();
    }
}
