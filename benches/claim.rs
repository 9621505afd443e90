//! Measures the tick's claim statement in a table with much history and many future runs.

use std::time::Instant;

use crate::database::Database;
use crate::table::{Goal, Measured, median};
use crate::{Scale, session};

/// Runs per claim.
const CLAIMED: i32 = 100;
const ROUNDS: usize = 40;

pub fn claim(scale: Scale) -> Vec<Measured> {
    let (finished, future, due) =
        (scale.of(5_000_000, 200_000), scale.of(1_000_000, 50_000), scale.of(100_000, 20_000));
    let large = filled(finished, future, due);
    let small = filled(0, 0, 1000);
    let rounds: Vec<_> =
        (0..ROUNDS).map(|_| [milliseconds(&large), milliseconds(&small)]).collect();
    let of = |index: usize| median(rounds.iter().map(|round| round[index]).collect());
    vec![Measured {
        what: format!(
            "claim of {CLAIMED}, {finished} finished, {future} future, {due} due / 1000 due"
        ),
        figures: format!("{:.2} ms and {:.2} ms, medians of {ROUNDS}", of(0), of(1)),
        value: of(0) / of(1),
        unit: "",
        goal: Goal::AtMost(1.5),
    }]
}

/// Inserts runs of five queues and four priorities.
fn filled(finished: usize, future: usize, due: usize) -> Database {
    let database = Database::new();
    let insert = |runs: usize, columns: &str, values: &str| {
        database.execute([&format!(
            "INSERT INTO jobctl.job_runs (job_type, payload, queue, priority, {columns})
             SELECT 'shell', '{{\"command\": \"true\"}}', 'queue-' || n % 5, n % 4, {values}
             FROM generate_series(1, {runs}) AS n"
        )]);
    };
    let past = "now() - interval '30 days' * n / (1 + ";
    insert(
        finished,
        "status, attempts, run_at, created_at, started_at, finished_at",
        &format!(
            "'succeeded', 1, {past}{finished}), {past}{finished}), {past}{finished}), \
                {past}{finished})"
        ),
    );
    insert(
        future,
        "run_at",
        &format!("now() + interval '1 hour' + interval '30 days' * n / {}", future.max(1)),
    );
    insert(due, "run_at", &format!("now() - interval '1 hour' * n / {due}"));
    database.execute([
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, claiming_tick, \
         claiming_until)
         VALUES ('bench', '', now(), 'bench', now() + interval '1 day')",
        "VACUUM ANALYZE",
        "CHECKPOINT",
    ]);
    database
}

/// Measures one claim on a new connection, and rolls it back so that the next finds the same.
fn milliseconds(database: &Database) -> f64 {
    let mut client = database.client();
    let started = Instant::now();
    client.batch_execute("BEGIN; SET LOCAL search_path = pg_catalog, pg_temp").unwrap();
    let claimed = session::claim(&mut client, CLAIMED);
    let took = started.elapsed();
    assert_eq!(claimed.len(), usize::try_from(CLAIMED).unwrap());
    client.batch_execute("ROLLBACK").unwrap();
    took.as_secs_f64() * 1e3
}
