//! Measures the database's share of an attempt: one session claims runs and records them without
//! executing anything.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use postgres::types::{ToSql, Type};
use postgres::{Client, Row};

use crate::database::Database;

const AT_ONCE: usize = 1000;

/// The statements of the measurement.
#[derive(Clone, Copy)]
pub enum Statements {
    /// The simplest statements with the effect of a tick.
    Plain,
    /// jobctl's own statements.
    Own,
}

/// Returns the time that one session needs for this many runs.
pub fn drain(database: &Database, runs: usize, statements: Statements) -> Duration {
    let mut client = claiming(database);
    let started = Instant::now();
    for _ in 0..runs.div_ceil(AT_ONCE) {
        match statements {
            Statements::Plain => plain(&mut client),
            Statements::Own => _ = own(&mut client, AT_ONCE),
        }
    }
    let took = started.elapsed();
    database.assert_all_ran_once(runs);
    took
}

/// Returns a session of the worker `bench`, which has the claim right, with the settings of a tick.
pub fn claiming(database: &Database) -> Client {
    let mut client = database.client();
    client
        .batch_execute(
            "SET enable_seqscan = off; SET random_page_cost = 1.1; SET jit = off;
             INSERT INTO jobctl.job_workers (worker, version, last_tick_at, claiming_tick, \
             claiming_until)
             VALUES ('bench', '', now(), 'bench', now() + interval '1 hour')
             ON CONFLICT (worker) DO UPDATE SET claiming_until = excluded.claiming_until",
        )
        .unwrap();
    client
}

fn plain(client: &mut Client) {
    client
        .batch_execute(&format!(
            "BEGIN;
             UPDATE jobctl.job_runs
             SET status = 'running', attempts = attempts + 1, locked_by = 'bench',
                 locked_until = now() + interval '2 minutes', started_at = now(), updated_at = now()
             WHERE id = ANY (ARRAY(
                 SELECT id FROM jobctl.job_runs
                 WHERE status IN ('queued', 'failed') AND queue = 'default' AND priority = 0 AND \
                 run_at <= now()
                 ORDER BY run_at, id LIMIT {AT_ONCE} FOR NO KEY UPDATE SKIP LOCKED
             ));
             COMMIT; BEGIN;
             WITH ended AS (
                 UPDATE jobctl.job_runs
                 SET status = 'succeeded', locked_by = NULL, locked_until = NULL, finished_at = \
                 now(), updated_at = now()
                 WHERE status = 'running' AND locked_by = 'bench'
                 RETURNING id, attempts
             )
             INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, \
             outcome, http_status)
             SELECT id, attempts, 'bench', now(), now(), 'succeeded', 200 FROM ended;
             COMMIT"
        ))
        .unwrap();
}

/// Claims up to this many runs by the tick's statement; `bench` must have the claim right.
pub fn claim(client: &mut Client, at_most: i32) -> Vec<Row> {
    let (texts, ids) = (Vec::<&str>::new(), Vec::<i64>::new());
    let arguments: &[(&(dyn ToSql + Sync), Type)] = &[
        (&"bench", Type::TEXT),
        (&"bench", Type::TEXT),
        (&at_most, Type::INT4),
        (&120.0_f64, Type::FLOAT8),
        (&texts, Type::TEXT_ARRAY),
        (&texts, Type::TEXT_ARRAY),
        (&texts, Type::TEXT_ARRAY),
        (&ids, Type::INT8_ARRAY),
        // A full scan.
        (&None::<Vec<&str>>, Type::TEXT_ARRAY),
        (&None::<Vec<i32>>, Type::INT4_ARRAY),
        (&None::<Vec<DateTime<Utc>>>, Type::TIMESTAMPTZ_ARRAY),
        (&None::<Vec<i64>>, Type::INT8_ARRAY),
        (&i64::MAX, Type::INT8),
        (&at_most, Type::INT4),
        (&None::<&str>, Type::TEXT),
        (&None::<i32>, Type::INT4),
        // No limited definitions.
        (&None::<i64>, Type::INT8),
        (&ids, Type::INT8_ARRAY),
        (&texts, Type::TEXT_ARRAY),
        // Any run.
        (&None::<i64>, Type::INT8),
        (&false, Type::BOOL),
    ];
    client.query_typed(include_str!("../sql/queries/tick/claim.sql"), arguments).unwrap()
}

/// Claims and records this many runs, which are due. Returns how long each took.
pub fn own(client: &mut Client, runs: usize) -> [Duration; 2] {
    let started = Instant::now();
    client.batch_execute("BEGIN").unwrap();
    let claimed = claim(client, i32::try_from(runs).unwrap());
    client.batch_execute("COMMIT; BEGIN").unwrap();
    let claimed_in = started.elapsed();
    assert_eq!(claimed.len(), runs);
    let ids: Vec<i64> = claimed.iter().map(|run| run.get("id")).collect();
    let claimed_at: Vec<DateTime<Utc>> = claimed.iter().map(|run| run.get("claimed_at")).collect();
    let (succeeded, texts) = (vec!["succeeded"; ids.len()], vec![None::<&str>; ids.len()]);
    let (numbers, seconds) = (vec![None::<i32>; ids.len()], vec![0.0_f64; ids.len()]);
    let finish: &[(&(dyn ToSql + Sync), Type)] = &[
        (&"bench", Type::TEXT),
        (&ids, Type::INT8_ARRAY),
        (&vec![1_i32; ids.len()], Type::INT4_ARRAY),
        (&succeeded, Type::TEXT_ARRAY),
        (&seconds, Type::FLOAT8_ARRAY),
        (&succeeded, Type::TEXT_ARRAY),
        (&texts, Type::TEXT_ARRAY),
        (&texts, Type::TEXT_ARRAY),
        (&texts, Type::TEXT_ARRAY),
        (&numbers, Type::INT4_ARRAY),
        (&numbers, Type::INT4_ARRAY),
        (&vec![Some(200_i32); ids.len()], Type::INT4_ARRAY),
        (&texts, Type::TEXT_ARRAY),
        (&vec![0_i64; ids.len()], Type::INT8_ARRAY),
        (&vec![false; ids.len()], Type::BOOL_ARRAY),
        (&seconds, Type::FLOAT8_ARRAY),
        (&seconds, Type::FLOAT8_ARRAY),
        (&claimed_at, Type::TIMESTAMPTZ_ARRAY),
    ];
    let started = Instant::now();
    client.query_typed(include_str!("../sql/queries/tick/finish.sql"), finish).unwrap();
    client.batch_execute("COMMIT").unwrap();
    [claimed_in, started.elapsed()]
}
