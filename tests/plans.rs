//! The kept plans of the functions that each tick calls read few rows: a session plans once,
//! whatever the table has then, and the table may change.

use postgres::{Client, Transaction};

use crate::support::TestDb;

/// More rows than a claim of eight looks at: eight of each of a thousand lanes, the probes for the
/// lanes, and those of limited jobs. Fewer than wait in any part.
const MOST: i64 = 15_000;

/// How much of the table the transaction has read so far.
fn read(transaction: &mut Transaction<'_>) -> (i64, i64) {
    let statement = "SELECT seq_scan, coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
        WHERE relid = 'jobctl.job_runs'::regclass";
    let row = transaction.query_one(statement, &[]).unwrap();
    (row.get(0), row.get(1))
}

/// Claims eight runs, renews their leases and records their results, and undoes that.
fn assert_reads_few_rows(client: &mut Client, when: &str) {
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
            let (scans, rows) = read(&mut transaction);
            assert_eq!(scans, 0, "{when}: {what} with limits from {limits} scans the table");
            let rows_read = rows - so_far;
            assert!(rows_read < MOST, "{when}: {what} with limits from {limits}: {rows_read} rows");
            so_far = rows;
        }
        transaction.rollback().unwrap();
    }
}

#[test]
fn a_tick_reads_few_rows_with_any_plan_in_any_table() {
    let db = TestDb::new();
    db.apply("[jobs.limited]\nshell = 'true'\nmax_running_per_share = 2\n");
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
            // The session from before has old plans, and a new session makes new ones.
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
    let within = |call: &str| {
        let limit = "SET statement_timeout = '10s'";
        let mut client = db.client();
        client.batch_execute(limit).unwrap();
        let row = client.query_one(&format!("SELECT count(*) FROM {claims} {call}"), &[]).unwrap();
        assert_eq!(row.get::<_, i64>(0), 20_000, "{call}");
    };
    within(
        "CROSS JOIN LATERAL jobctl.renew_leases('w', runs, ones, claims, 60) AS answer
         WHERE answer.renewed",
    );
    within(
        "CROSS JOIN LATERAL jobctl.end_runs('result', runs, workers, ones, claims, ends, zeros,
             ends, started_ago => zeros) AS ended
         CROSS JOIN LATERAL unnest(ended.ids)",
    );
}
