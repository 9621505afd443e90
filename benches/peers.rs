//! Measures other queues on PostgreSQL with the same work, if benches/peers/install installed them:
//! whole processes, eight jobs at a time, each configured as its manual advises for throughput.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::database::Database;
use crate::process::{Running, time};
use crate::shape::Shape;
use crate::table::{Goal, Measured, rate};

/// Another queue.
#[derive(Clone, Copy)]
pub struct Peer {
    pub name: &'static str,
    /// Fills and drains its queue.
    script: &'static str,
    interpreter: &'static str,
}

const PEERS: [Peer; 5] = [
    GRAPHILE_WORKER,
    PG_BOSS,
    Peer { name: "procrastinate", script: "procrastinate_worker.py", interpreter: "python3" },
    Peer { name: "awa", script: "awa_worker.py", interpreter: "python3" },
    Peer { name: "good_job", script: "good_job_worker.rb", interpreter: "ruby" },
];

const GRAPHILE_WORKER: Peer =
    Peer { name: "graphile-worker", script: "graphile_worker.cjs", interpreter: "node" };
const PG_BOSS: Peer = Peer { name: "pg-boss", script: "pg_boss.cjs", interpreter: "node" };

/// Returns where the peers are installed.
fn installed() -> Option<PathBuf> {
    std::env::var_os("BENCH_PEERS").map(PathBuf::from)
}

/// A peer beside which the latency of another application is measured.
#[derive(Clone, Copy)]
pub struct Neighbour {
    pub peer: Peer,
    pub schema: &'static str,
    /// The statement that counts its unfinished jobs.
    pub unfinished: &'static str,
}

/// Returns the peers whose script knows `work`.
pub fn neighbours() -> impl Iterator<Item = Neighbour> {
    let neighbours = [
        (GRAPHILE_WORKER, "graphile_worker", "SELECT count(*) FROM graphile_worker.jobs"),
        (PG_BOSS, "pgboss", "SELECT count(*) FROM pgboss.job WHERE state < 'completed'"),
    ];
    let neighbours =
        neighbours.map(|(peer, schema, unfinished)| Neighbour { peer, schema, unfinished });
    installed().into_iter().flat_map(move |_| neighbours)
}

/// Starts a peer's program that enqueues this many jobs in a second and works on them. Returns it
/// once it has done the first job, or `None` if it is not installed.
pub fn work(peer: Peer, database: &Database, rate: usize) -> Option<Running> {
    let mut command = command(&installed()?, peer, database, "work", rate);
    let mut program = Running(command.stdout(Stdio::piped()).spawn().ok()?);
    let output = program.0.stdout.take()?;
    if BufReader::new(output).lines().next().is_none() {
        println!("{} is not installed, or can't work; left out", peer.name);
        return None;
    }
    Some(program)
}

/// Compares the peers' rates with the plain pool, which needed `alone` for the same work.
pub fn shell(runs: usize, alone: Duration) -> Vec<Measured> {
    let Some(installed) = installed() else { return Vec::new() };
    PEERS.iter().filter_map(|peer| drain(&installed, *peer, runs, alone)).collect()
}

/// Compares pg-boss's rates on graphs with its own rate without them. Its jobs do nothing.
pub fn graphs(runs: usize) -> Vec<Measured> {
    let Some(installed) = installed() else { return Vec::new() };
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

fn drain(installed: &Path, peer: Peer, runs: usize, alone: Duration) -> Option<Measured> {
    let took = time_drain(installed, peer, runs, None)?;
    Some(Measured {
        what: format!("{}: {runs} x sh -c true, concurrency 8 / a bare pool of threads", peer.name),
        figures: rate(runs, took),
        value: alone.as_secs_f64() / took.as_secs_f64(),
        unit: "",
        goal: Goal::None,
    })
}

/// Returns how long a peer needs for this many jobs; its script gets the `argument`, too.
fn time_drain(
    installed: &Path,
    peer: Peer,
    runs: usize,
    argument: Option<&str>,
) -> Option<Duration> {
    let database = Database::new();
    let command = |what: &str| {
        let mut command = command(installed, peer, &database, what, runs);
        command.args(argument).stdout(Stdio::null());
        command
    };
    if !command("fill").status().is_ok_and(|status| status.success()) {
        println!("{} is not installed, or can't fill its queue; left out", peer.name);
        return None;
    }
    Some(time(command("drain")))
}

/// A peer's script that does `what` with this many jobs.
fn command(installed: &Path, peer: Peer, database: &Database, what: &str, jobs: usize) -> Command {
    let mut command = Command::new(peer.interpreter);
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers").join(peer.script))
        .arg(what)
        .arg(jobs.to_string())
        .env("DATABASE_URL", &database.url)
        .env("NODE_PATH", installed.join("node_modules"))
        .env("PYTHONPATH", installed.join("python"))
        .env("GEM_HOME", installed.join("ruby"))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}
