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
    PG_BOSS,
    ("procrastinate", "procrastinate_worker.py", "python3"),
    ("awa", "awa_worker.py", "python3"),
];

const PG_BOSS: (&str, &str, &str) = ("pg-boss", "pg_boss.cjs", "node");

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
    let took = |shape: Shape, runs| {
        let after: Vec<_> = (0..runs).map(|place| shape.after(place, runs)).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        serde_json::to_writer(&file, &after).unwrap();
        time_drain(&installed, PG_BOSS, runs, file.path().to_str())
    };
    let Some(plain) = took(Shape::None, runs) else { return Vec::new() };
    let jobs_a_second = |runs: usize, took: Duration| runs as f64 / took.as_secs_f64();
    let plain = jobs_a_second(runs, plain);
    let row = |shape: Shape| {
        // A chain moves on once a second.
        let runs = if matches!(shape, Shape::Chain) { runs / 500 } else { runs };
        let took = took(shape, runs)?;
        Some(Measured {
            what: format!("pg-boss: {runs} jobs without work, {} / none waits", shape.name()),
            figures: rate(runs, took),
            value: jobs_a_second(runs, took) / plain,
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
    let took = time_drain(installed, peer, runs, None)?;
    Some(Measured {
        what: format!("{}: {runs} x sh -c true, concurrency 8 / a bare pool of threads", peer.0),
        figures: rate(runs, took),
        value: alone.as_secs_f64() / took.as_secs_f64(),
        unit: "",
        goal: Goal::None,
    })
}

/// Returns how long a peer needs for this many jobs; its script gets the `argument`, too.
fn time_drain(
    installed: &Path,
    (name, script, interpreter): (&str, &str, &str),
    runs: usize,
    argument: Option<&str>,
) -> Option<Duration> {
    let database = Database::new();
    let count = runs.to_string();
    let command = |what: &str| {
        let mut command = Command::new(interpreter);
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers").join(script))
            .arg(what)
            .arg(&count)
            .args(argument);
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
