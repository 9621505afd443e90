//! Measures what a run costs beside a long history: how long its enqueue, claim, result and
//! deletion take.

use std::time::{Duration, Instant};

use crate::database::Database;
use crate::table::{Goal, Measured, median};
use crate::{Scale, session};

/// Runs per statement, and how often each is measured.
const RUNS: usize = 1000;
const ROUNDS: usize = 20;
const WHAT: [&str; 4] =
    ["enqueue", "claim", "result, without a history of attempts,", "deletion by a process"];

pub fn history(scale: Scale) -> Vec<Measured> {
    let sizes = [1, 10, 100].map(|factor| factor * scale.of(1_000_000, 10_000));
    let database = Database::new();
    let (mut before, mut costs) = (0, Vec::new());
    for size in sizes {
        grow(&database, before, size);
        costs.push((size, cost(&database)));
        before = size;
    }
    let (least, of_least) = costs[0];
    let row = |what: usize| {
        costs[1..].iter().map(move |(size, of_size)| Measured {
            what: format!("{} beside {size} finished runs / {least}", WHAT[what]),
            figures: format!("{:.1} and {:.1} µs a run", of_size[what], of_least[what]),
            value: of_size[what] / of_least[what],
            unit: "",
            goal: Goal::None,
        })
    };
    (0..WHAT.len()).flat_map(|what| row(what).collect::<Vec<_>>()).collect()
}

/// Adds finished runs of the 30 days before the test, the oldest first. Without their attempts,
/// whose insertion would take as long again.
fn grow(database: &Database, from: usize, to: usize) {
    database.execute([
        &format!(
            "INSERT INTO jobctl.job_runs (
                 job_type, payload, status, attempts, run_at, created_at, started_at, finished_at
             )
             SELECT 'job-' || n % 10, '{{}}', 'succeeded', 1, at, at, at, at
             FROM generate_series({from} + 1, {to}) AS n
             CROSS JOIN LATERAL (
                 SELECT now() - interval '30 days' * (1.01 - n::float8 / {to}) AS at
             ) AS instant"
        ),
        "VACUUM ANALYZE jobctl.job_runs",
        "CHECKPOINT",
    ]);
}

/// Returns the microseconds of a run, in the order of `WHAT`.
fn cost(database: &Database) -> [f64; 4] {
    let mut client = session::claiming(database);
    let mut took: [Vec<f64>; 4] = Default::default();
    for round in 0..=ROUNDS {
        let started = Instant::now();
        let fill = "INSERT INTO jobctl.job_runs (job_type, payload) SELECT 'shell', '{\"command\": \
                    \"true\"}' FROM generate_series(1, $1::integer)";
        client.execute(fill, &[&i32::try_from(RUNS).unwrap()]).unwrap();
        let enqueue = started.elapsed();
        let [claim, result] = session::own(&mut client, RUNS);
        let deletion = delete(database, &mut client);
        // The first round fills the caches.
        if round > 0 {
            for (took, part) in took.iter_mut().zip([enqueue, claim, result, deletion]) {
                took.push(part.as_secs_f64() * 1e6 / RUNS as f64);
            }
        }
    }
    took.map(median)
}

/// Deletes the oldest runs as `jobctl prune` does.
fn delete(database: &Database, client: &mut postgres::Client) -> Duration {
    let newest = "SELECT ceil(extract(epoch FROM now() - finished_at))::bigint FROM jobctl.job_runs
        WHERE finished_at IS NOT NULL ORDER BY finished_at OFFSET $1 LIMIT 1";
    let seconds: i64 = client.query_one(newest, &[&i64::try_from(RUNS).unwrap()]).unwrap().get(0);
    database.jobctl(["prune", "--older-than", &format!("{seconds}s")]).run()
}
