//! The functions that each tick calls read few rows with any plan that a session has kept. A
//! session plans a query once, and the table may change very much afterwards.

use postgres::{Client, Transaction};

use crate::support::TestDb;

/// A claim of eight runs may read fewer rows than this: eight of each of a thousand lanes, the
/// probes for the lanes, and those of limited jobs. Each part of the test inserts more rows, so a
/// plan that reads all of them fails.
const MOST_ROWS: i64 = 15_000;

/// Returns how many times the transaction has scanned the table of runs, and how many rows it has
/// read by indexes.
fn scans_and_rows_read(transaction: &mut Transaction<'_>) -> (i64, i64) {
    let statement = "SELECT seq_scan, coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
        WHERE relid = 'jobctl.job_runs'::regclass";
    let row = transaction.query_one(statement, &[]).unwrap();
    (row.get(0), row.get(1))
}

/// Asserts that a session reads few rows to claim eight runs, to renew their leases and to record
/// their results. Undoes that.
fn assert_reads_few_rows(client: &mut Client, when: &str) {
    // Without runs of limited jobs, and with them.
    for limits in ["NULL", "0"] {
        let mut transaction = client.transaction().unwrap();
        let claim = format!(
            "SELECT id, claimed_at FROM jobctl.claim_runs('w', 't', 8, 60, '{{}}', '{{}}', '{{}}',
                 '{{}}', NULL, NULL, NULL, NULL, 1000000, 8, NULL, NULL, {limits}, '{{}}', '{{}}',
                 NULL, false)"
        );
        let arguments = "array_agg(id) AS runs, array_agg('w'::text) AS workers,
            array_agg(1) AS numbers, array_agg(claimed_at) AS claims,
            array_agg('succeeded'::text) AS ends, array_agg(0.0::float8) AS zeros";
        let before = "CREATE TEMPORARY TABLE claimed ON COMMIT DROP AS";
        let steps = [
            ("a claim", format!("{before} SELECT {arguments} FROM ({claim}) AS claimed")),
            (
                "a renewal",
                "SELECT jobctl.renew_leases('w', runs, numbers, claims, 60) FROM claimed"
                    .to_owned(),
            ),
            (
                "the record of results",
                "SELECT jobctl.end_runs('result', runs, workers, numbers, claims, ends,
                     outcomes => ends, started_ago => zeros)
                 FROM claimed WHERE runs <> '{NULL}'"
                    .to_owned(),
            ),
        ];
        let mut so_far = 0;
        for (what, statement) in steps {
            transaction.batch_execute(&statement).unwrap();
            let (scans, rows) = scans_and_rows_read(&mut transaction);
            assert_eq!(scans, 0, "{when}: {what} with limits from {limits} scans the table");
            let rows_read = rows - so_far;
            assert!(
                rows_read < MOST_ROWS,
                "{when}: {what}, limits from {limits}: {rows_read} rows"
            );
            so_far = rows;
        }
        transaction.rollback().unwrap();
    }
}

#[test]
fn a_tick_reads_few_rows_with_any_plan_in_any_table() {
    let db = TestDb::new();
    db.apply("[jobs.limited]\nshell = 'true'\nmax_running_per_share = 2\n");
    // The tick `t` of the worker has the claim right.
    db.execute(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, claiming_tick,
             claiming_until)
         VALUES ('w', '', now(), 't', now() + interval '1 hour')",
    );
    // This session plans its queries now, while the table is empty, and keeps these plans.
    let mut early = db.client();
    assert_reads_few_rows(&mut early, "an empty table");
    let insert_runs = |insert: &str, count: usize| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs {insert} FROM generate_series(1, {count}) AS n"
        ));
    };
    // What fills the table, one after the other: a name, the columns and values of a run, and the
    // number of runs.
    let fills: [(&str, &str, usize); 5] = [
        (
            "many finished",
            "(job_type, status, attempts, started_at, finished_at)
             SELECT 'shell', 'succeeded', 1, now(), now()",
            100_000,
        ),
        ("one lane", "(job_type, payload) SELECT 'shell', '{\"command\": \":\"}'", 50_000),
        (
            "a thousand lanes",
            "(job_type, payload, queue) SELECT 'shell', '{\"command\": \":\"}', 'q' || n % 1000",
            20_000,
        ),
        ("many shares", "(job_type, share) SELECT 'limited', 's' || n % 1000", 20_000),
        ("many blocked", "(job_type, status) SELECT 'limited', 'blocked'", 50_000),
    ];
    for (when, insert, count) in fills {
        insert_runs(insert, count);
        for analyzes in [false, true] {
            if analyzes {
                db.execute("ANALYZE jobctl.job_runs");
            }
            let when = format!("{when}, analyzed: {analyzes}");
            // The early session has old plans, and a new session makes new ones.
            assert_reads_few_rows(&mut early, &format!("{when}, a plan of before"));
            assert_reads_few_rows(&mut db.client(), &when);
        }
    }
}

/// The kept plans expect few runs. Each run must still be read once, and not once for each other.
#[test]
fn twenty_thousand_runs_are_renewed_and_ended_within_the_time_of_a_statement() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, locked_by, locked_until,
             started_at)
         SELECT 'shell', 'running', 1, 'w', now() + interval '1 hour', now()
         FROM generate_series(1, 20000)",
    );
    let claims = "(SELECT array_agg(id ORDER BY id) AS runs, array_agg(1) AS ones,
             array_agg(locked_by) AS workers, array_agg(started_at) AS claims,
             array_agg('succeeded'::text) AS ends, array_agg(0::float8) AS zeros
         FROM jobctl.job_runs) AS mine";
    let assert_answers_within_ten_seconds = |call: &str| {
        let mut client = db.client();
        client.batch_execute("SET statement_timeout = '10s'").unwrap();
        let row = client.query_one(&format!("SELECT count(*) FROM {claims} {call}"), &[]).unwrap();
        assert_eq!(row.get::<_, i64>(0), 20_000, "{call}");
    };
    assert_answers_within_ten_seconds(
        "CROSS JOIN LATERAL jobctl.renew_leases('w', runs, ones, claims, 60) AS answer
         WHERE answer.renewed",
    );
    assert_answers_within_ten_seconds(
        "CROSS JOIN LATERAL jobctl.end_runs('result', runs, workers, ones, claims, ends, zeros,
             ends, started_ago => zeros) AS ended
         CROSS JOIN LATERAL unnest(ended.ids)",
    );
}
