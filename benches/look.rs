//! Measures the commands for people, with a month of history in the table.

use crate::Scale;
use crate::database::Database;
use crate::process::time_ending_in;
use crate::table::{Goal, Measured, median};

const ROUNDS: usize = 5;

pub fn look(scale: Scale) -> Vec<Measured> {
    let runs = scale.of(1_000_000, 100_000);
    let database = filled(runs);
    let newest = database.number("SELECT max(id) FROM jobctl.job_runs").to_string();
    let lines: [&[&str]; 25] = [
        &["list"],
        &["list", "--since", "12h", "--status", "dead"],
        &["list", "--job", "job-3"],
        &["list", "--job", "http"],
        &["list", "--queue", "none"],
        &["list", "--until", "20d"],
        &["list-dead", "--limit", "50"],
        &["list-dead"],
        &["list-dead", "--group"],
        &["list", "--had-failures"],
        &["failures"],
        &["failures", "--since", "yesterday", "--group"],
        &["show", &newest],
        &["status"],
        &["status", "--prometheus"],
        &["check", "--max-dead", "1000000"],
        &["report"],
        &["report", "--since", "7d"],
        &["report", "--since", "30d"],
        &["jobs"],
        &["jobs", "job-3"],
        &["list", "--worker", "nowhere"],
        &["doctor"],
        &["next"],
        &["prune", "--dry-run", "--older-than", "29d"],
    ];
    lines
        .into_iter()
        .map(|line| {
            let time = |_| {
                let mut command = database.jobctl([]);
                command.0.args(line);
                // `doctor` exits with 1: it complains about a database that was filled by hand.
                time_ending_in(command.0, &[0, 1]).as_secs_f64() * 1e3
            };
            Measured {
                what: format!("{} with {runs} finished runs", line.join(" ")),
                figures: format!("median of {ROUNDS}"),
                value: median((0..ROUNDS).map(time).collect()),
                unit: " ms",
                goal: Goal::AtMost(200.0),
            }
        })
        .collect()
}

/// Inserts a month of ten jobs with their history; one run in a hundred is dead.
fn filled(runs: usize) -> Database {
    let database = Database::new();
    let insert = format!(
        "INSERT INTO jobctl.job_runs (
             job_type, payload, status, attempts, run_at, created_at, started_at, finished_at, \
             failed_at, error_type, last_error
         )
         SELECT
             'job-' || n % 10,
             '{{\"command\": \"true\"}}',
             CASE WHEN n % 100 = 0 THEN 'dead' ELSE 'succeeded' END,
             1,
             at,
             at,
             at,
             at + interval '1 second' * (n % 60),
             CASE WHEN n % 100 = 0 THEN at END,
             CASE WHEN n % 100 = 0 THEN 'exit_code' END,
             CASE WHEN n % 100 = 0 THEN 'exit status 1' END
         FROM generate_series(1, {runs}) AS n
         CROSS JOIN LATERAL (SELECT now() - interval '30 days' * (1 - n::float8 / {runs}) AS at) \
         AS instant"
    );
    database.execute([
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at) VALUES ('bench', '', \
         now())",
        "INSERT INTO jobctl.job_definitions (name, kind, action)
         SELECT 'job-' || n, 'shell', '{\"command\": \"true\"}' FROM generate_series(0, 9) AS n",
        &insert,
        "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, \
            outcome, error_type, error, exit_code)
         SELECT id, 1, 'bench', started_at, finished_at,
             CASE status WHEN 'dead' THEN 'failed' ELSE status END,
             error_type, last_error, CASE status WHEN 'dead' THEN 1 ELSE 0 END
         FROM jobctl.job_runs",
        "VACUUM ANALYZE",
        "CHECKPOINT",
    ]);
    database
}
