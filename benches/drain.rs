//! Measures how fast a queue is drained, relative to the same work without a database.

use std::thread;
use std::time::{Duration, Instant};

use crate::database::Database;
use crate::plain::{self, Plans};
use crate::process::peak_memory;
use crate::server::Server;
use crate::session::{self, Statements};
use crate::table::{Goal, Measured, median, rate};
use crate::{Scale, alone, peers};

/// Rounds of each comparison.
const ROUNDS: usize = 3;
const SHELL: &str = r#"{"command": "true"}"#;

/// Compares `sh -c true` with a plain pool of threads that spawns the same.
pub fn shell(scale: Scale) -> Vec<Measured> {
    const CONCURRENCY: usize = 8;
    let runs = scale.of(4000, 1500);
    let (mut pool, mut executed) = (Vec::new(), Vec::new());
    let rounds = (0..ROUNDS).map(|_| {
        let alone = alone::spawn(runs, CONCURRENCY);
        pool.push(alone);
        executed.push((alone::executions(runs, CONCURRENCY, "shell", SHELL), alone));
        let database = Database::new();
        database.fill(runs, "shell", SHELL);
        let took = database.jobctl(["tick", "--concurrency", "8"]).run();
        database.assert_all_ran_once(runs);
        (took, alone)
    });
    let ours = Measured {
        what: format!("{runs} x sh -c true, concurrency 8 / a bare pool of threads"),
        goal: Goal::AtLeast(0.9),
        ..compare(runs, rounds.collect())
    };
    let without_database = Measured {
        what: "the same, executed by jobctl's own code with no database".to_owned(),
        ..compare(runs, executed)
    };
    let mut rows = vec![ours, without_database];
    if !scale.quick {
        rows.extend(peers::shell(runs, pool.into_iter().min().unwrap()));
    }
    rows
}

/// Compares calls of a local server with the same client in a loop.
pub fn http(scale: Scale) -> Vec<Measured> {
    const CONCURRENCY: usize = 16;
    let runs = scale.of(20_000, 5000);
    let server = Server::start(usize::MAX);
    let mut beside =
        [Statements::Plain, Statements::Own].map(|statements| (statements, Vec::new(), Vec::new()));
    let rounds = (0..ROUNDS).map(|_| {
        let filled = || {
            let database = Database::new();
            database.fill(runs, "http", &payload(&server));
            database
        };
        let call = || alone::executions(runs, CONCURRENCY, "http", &payload(&server));
        let alone = call();
        for (statements, written, side_by_side) in &mut beside {
            written.push((session::drain(&filled(), runs, *statements), alone));
            let database = filled();
            let started = Instant::now();
            thread::scope(|scope| {
                scope.spawn(|| session::drain(&database, runs, *statements));
                call();
            });
            side_by_side.push((started.elapsed(), alone));
        }
        let database = filled();
        let took = database.jobctl(["tick", "--concurrency", "16"]).run();
        database.assert_all_ran_once(runs);
        (took, alone)
    });
    let ours = Measured {
        what: format!("{runs} HTTP calls, concurrency 16 / the same client in a loop"),
        goal: Goal::AtLeast(0.6),
        ..compare(runs, rounds.collect())
    };
    assert_eq!(server.calls(), 4 * ROUNDS * runs);
    let bounds = beside.into_iter().flat_map(|(statements, written, side_by_side)| {
        let whose = match statements {
            Statements::Plain => "the plainest statements",
            Statements::Own => "jobctl's own statements",
        };
        [
            (format!("no calls: {whose}, 1000 runs at a time, one session"), written),
            (
                format!("the calls, and {whose} side by side, neither waiting for the other"),
                side_by_side,
            ),
        ]
    });
    let bounds = bounds.map(|(what, rounds)| Measured { what, ..compare(runs, rounds) });
    [ours].into_iter().chain(bounds).collect()
}

/// Drains while another session holds an old snapshot, which keeps every dead row version. Their
/// number must not slow the drain down.
pub fn snapshot(scale: Scale) -> Vec<Measured> {
    let runs = scale.of(300_000, 30_000);
    let server = Server::start(runs / 10);
    let database = Database::new();
    database.fill(runs, "http", &payload(&server));
    let mut holder = database.client();
    holder
        .batch_execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobctl.job_workers",
        )
        .unwrap();
    let started = Instant::now();
    database.jobctl(["tick", "--concurrency", "16", "--max-time", "10m"]).run();
    database.assert_all_ran_once(runs);
    let marks = server.marks();
    let first = marks[0] - started;
    let last = marks[9] - marks[8];
    vec![Measured {
        what: format!("{runs} HTTP calls while a session holds a snapshot: last / first tenth"),
        figures: format!("{} and {}", rate(runs / 10, last), rate(runs / 10, first)),
        value: first.as_secs_f64() / last.as_secs_f64(),
        unit: "",
        goal: Goal::AtLeast(0.7),
    }]
}

/// Compares many concurrent ticks with one tick of the same total concurrency.
pub fn hosts(scale: Scale) -> Vec<Measured> {
    const TICKS: usize = 64;
    let runs = scale.of(4000, 1500);
    let filled = || {
        let database = Database::new();
        database.fill(runs, "shell", SHELL);
        database
    };
    let (mut kept, mut forgotten) = (Vec::new(), Vec::new());
    let rounds = (0..ROUNDS).map(|_| {
        let database = filled();
        let alone = database.jobctl(["tick", "--concurrency", "64"]).run();
        kept.push((plain::drain(runs, TICKS, Plans::Kept), alone));
        forgotten.push((plain::drain(runs, TICKS, Plans::Forgotten), alone));
        database.assert_all_ran_once(runs);
        let database = filled();
        let started = Instant::now();
        let tick = |name: usize| {
            let worker = format!("host-{name}");
            database.jobctl(["tick", "--concurrency", "1", "--worker", &worker]).0.spawn().unwrap()
        };
        let ticks: Vec<_> = (0..TICKS).map(tick).collect();
        ticks.into_iter().for_each(|mut tick| assert!(tick.wait().unwrap().success()));
        let took = started.elapsed();
        database.assert_all_ran_once(runs);
        (took, alone)
    });
    let ours = Measured {
        what: format!("{runs} x sh -c true, {TICKS} ticks of 1 thread / one of {TICKS}"),
        goal: Goal::AtLeast(0.8),
        ..compare(runs, rounds.collect())
    };
    let plainest = |how: &str, rounds| Measured {
        what: format!(
            "the same by {TICKS} sessions of the plainest queue, a job at a time, plans {how}"
        ),
        ..compare(runs, rounds)
    };
    vec![ours, plainest("kept", kept), plainest("planned again", forgotten)]
}

/// Measures jobs that print far more than jobctl keeps.
pub fn memory(scale: Scale) -> Vec<Measured> {
    let runs = scale.of(10_000, 1000);
    let mut text = tempfile::NamedTempFile::new().unwrap();
    let line = "a line of what a job prints: 0123456789 abcdefghijklmnopqrstuv\n";
    std::io::Write::write_all(&mut text, line.repeat((1 << 20) / line.len()).as_bytes()).unwrap();
    let database = Database::new();
    database.fill(
        runs,
        "shell",
        &format!(r#"{{"command": ["cat", "{}"]}}"#, text.path().to_str().unwrap()),
    );
    let peak = peak_memory(database.jobctl(["tick", "--concurrency", "32", "--max-time", "10m"]));
    database.assert_all_ran_once(runs);
    vec![Measured {
        what: format!("peak memory, {runs} jobs that print 1 MiB each, concurrency 32"),
        figures: String::new(),
        value: peak,
        unit: " MiB",
        goal: Goal::AtMost(64.0),
    }]
}

fn payload(server: &Server) -> String {
    format!(r#"{{"url": "{}", "json": {{"user": 5}}}}"#, server.url)
}

/// Returns the median ratio of jobctl's rate to its reference's, from pairs of their times.
pub fn compare(count: usize, rounds: Vec<(Duration, Duration)>) -> Measured {
    let ratios =
        rounds.iter().map(|(ours, other)| other.as_secs_f64() / ours.as_secs_f64()).collect();
    let best = |times: Vec<Duration>| rate(count, times.into_iter().min().unwrap());
    Measured {
        what: String::new(),
        figures: format!(
            "{} and {}, best of {}",
            best(rounds.iter().map(|pair| pair.0).collect()),
            best(rounds.iter().map(|pair| pair.1).collect()),
            rounds.len()
        ),
        value: median(ratios),
        unit: "",
        goal: Goal::None,
    }
}
