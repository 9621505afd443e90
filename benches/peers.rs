//! Measures other queues on PostgreSQL with the same work, if benches/peers/install installed them:
//! whole processes, eight jobs at a time, each configured as its manual advises for throughput.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::after::Shape;
use crate::database::Database;
use crate::process::time;
use crate::table::{Goal, Measured, rate};

/// Each peer's name, the script that fills and drains its queue, and the script's interpreter.
const PEERS: [(&str, &str, &str); 4] = [
    ("graphile-worker", "graphile_worker.cjs", "node"),
    ("pg-boss", "pg_boss.cjs", "node"),
    ("procrastinate", "procrastinate_worker.py", "python3"),
    ("awa", "awa_worker.py", "python3"),
];

/// Compares the peers' rates with the plain pool, which needed `alone` for the same work.
pub fn shell(runs: usize, alone: Duration) -> Vec<Measured> {
    let Some(installed) = std::env::var_os("BENCH_PEERS").map(PathBuf::from) else {
        return Vec::new();
    };
    PEERS.iter().filter_map(|peer| drain(&installed, *peer, runs, alone)).collect()
}

/// Compares pg-boss's rates on graphs with its own rate without them. Its jobs do nothing.
pub fn graphs(runs: usize) -> Vec<Measured> {
    let Some(installed) = std::env::var_os("BENCH_PEERS").map(PathBuf::from) else {
        return Vec::new();
    };
    let script = ("pg-boss", "pg_boss_after.cjs", "node");
    let took = |shape: Shape, runs| time_drain(&installed, script, runs, shape.word());
    let Some(plain) = took(Shape::None, runs) else { return Vec::new() };
    let all = runs;
    let row = |shape: Shape| {
        // A chain moves on once a second.
        let runs = if matches!(shape, Shape::Chain) { runs / 500 } else { runs };
        let took = took(shape, runs)?;
        let rate_of = |runs: usize, took: Duration| runs as f64 / took.as_secs_f64();
        Some(Measured {
            what: format!("pg-boss: {runs} jobs without work, {} / none", shape.word()),
            figures: rate(runs, took),
            value: rate_of(runs, took) / rate_of(all, plain),
            unit: "",
            goal: Goal::None,
        })
    };
    Shape::ALL.into_iter().filter_map(row).collect()
}

fn drain(
    installed: &Path,
    peer: (&str, &str, &str),
    runs: usize,
    alone: Duration,
) -> Option<Measured> {
    let took = time_drain(installed, peer, runs, "")?;
    Some(Measured {
        what: format!("{}: {runs} x sh -c true, concurrency 8 / a bare pool of threads", peer.0),
        figures: rate(runs, took),
        value: alone.as_secs_f64() / took.as_secs_f64(),
        unit: "",
        goal: Goal::None,
    })
}

/// Returns how long a peer needs for this many jobs.
fn time_drain(
    installed: &Path,
    (name, script, interpreter): (&str, &str, &str),
    runs: usize,
    shape: &str,
) -> Option<Duration> {
    let database = Database::new();
    let count = runs.to_string();
    let command = |what: &str| {
        let mut command = Command::new(interpreter);
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers").join(script))
            .arg(what)
            .args([count.as_str(), shape]);
        command
            .env("DATABASE_URL", &database.url)
            .env("NODE_PATH", installed.join("node_modules"))
            .env("PYTHONPATH", installed.join("python"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    if !command("fill").status().is_ok_and(|status| status.success()) {
        println!("{name} is not installed, or can't fill its queue; left out");
        return None;
    }
    Some(time(command("drain")))
}
