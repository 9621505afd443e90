//! `load` measures a database and leaves none of its rows, however it ends.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Proxy, Role, TestDb, wait_until};

/// Returns the number of rows of each table that a load test writes to.
fn numbers_of_rows(db: &TestDb) -> String {
    db.query(
        "SELECT (SELECT count(*) FROM jobctl.job_runs),
             (SELECT count(*) FROM jobctl.job_attempts),
             (SELECT count(*) FROM jobctl.job_definitions),
             (SELECT count(*) FROM jobctl.job_figures),
             (SELECT count(*) FROM jobctl.job_workers),
             (SELECT count(*) FROM jobctl.job_events)",
    )
}

const NO_ROWS: &str = "0|0|0|0|0|0";

/// Waits until a run of a load test has succeeded.
fn wait_for_a_success(db: &TestDb) {
    wait_until("a run to succeed", || {
        db.query(
            "SELECT EXISTS (SELECT FROM jobctl.job_runs
             WHERE job_type = 'jobctl-load' AND status = 'succeeded')",
        ) == "t"
    });
}

/// Ages the lock of a load test as if the test had not renewed it for 31 seconds.
fn age_lock(db: &TestDb) {
    db.execute(
        "UPDATE jobctl.job_definitions SET updated_at = updated_at - interval '31 seconds'
         WHERE name = 'jobctl-load'",
    );
}

/// A load test that runs until it is stopped.
const LONG: [&str; 5] = ["load", "--runs", "1000000", "--rate", "100"];

#[test]
fn a_load_test_prints_its_figures_and_changes_no_other_row() {
    let db = TestDb::new();
    // One run of another job has ended, and one is due.
    db.apply("[jobs.other]\nshell = 'true'\n");
    db.enqueue(["other"]);
    db.jobctl(["tick"]).run().success();
    let due = db.enqueue(["other"]);
    let (before, check) = (numbers_of_rows(&db), db.jobctl(["check"]).run().success().stdout);

    let load = db.jobctl(["load", "--runs", "40", "--rate", "100", "--workers", "2", "--yes"]);
    let json = load.args(["--json"]).run().success().stderr("").stdout;
    let figures: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(figures["runs"], 40);
    assert_eq!(figures["succeeded"], 40);
    let number = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("{name}: {json}"));
    let rate = number("enqueues_per_second");
    assert!((1.0..=150.0).contains(&rate), "{json}");
    assert!(number("claims_per_second") > 0.0, "{json}");
    let waits = ["p50", "p95", "p99", "max"].map(|name| number(&format!("wait_{name}_seconds")));
    assert!(waits[0] > 0.0 && waits.is_sorted(), "{json}");
    // Each run writes a few rows, of more than a hundred bytes each.
    assert!(number("wal_bytes") > 40.0 * 100.0, "{json}");

    assert_eq!(numbers_of_rows(&db), before);
    assert_eq!(db.status(due), "queued", "other runs are left to other ticks");
    db.jobctl(["check"]).run().success().stdout(&check);
    // The rows of the test were deleted, so the tables get a VACUUM.
    wait_until("the VACUUM to be counted", || {
        db.query(
            "SELECT count(*) FROM pg_stat_user_tables
             WHERE relname IN ('job_runs', 'job_attempts') AND vacuum_count > 0
                 AND analyze_count > 0",
        ) == "2"
    });
}

#[test]
fn a_database_with_other_runs_needs_yes() {
    let db = TestDb::new();
    db.enqueue(["shell", "--", "true"]);
    let refused = db.jobctl(["load", "--runs", "1"]).run().exits(2).stdout("").complains_once();
    refused.stderr_has("it has other runs").stderr_has("add --yes");
    assert_eq!(numbers_of_rows(&db), "1|0|0|0|0|0");
}

#[test]
fn a_signal_ends_a_load_test_and_leaves_no_row() {
    let db = TestDb::new();
    for signal in [Signal::INT, Signal::TERM] {
        let load = db.jobctl(LONG).spawn();
        wait_for_a_success(&db);
        load.signal(signal);
        let ended = load.wait().exits(1).complains_once().stderr_has("a signal stopped it");
        assert!(ended.stdout.starts_with("runs\t"), "the figures so far are printed\n{ended}");
        assert_eq!(numbers_of_rows(&db), NO_ROWS);
    }
}

#[test]
fn a_signal_ends_a_load_test_although_the_database_is_silent() {
    let db = TestDb::new();
    let proxy = Proxy::to(&db);
    // The server gets the statement with this text, by which a load test takes its lock, but no
    // answer passes the proxy.
    proxy.freeze_after("ON CONFLICT (name) DO UPDATE");
    let load = db.jobctl(LONG).through(&proxy).spawn();
    wait_until("the database to be silent", || proxy.is_frozen());
    load.signal(Signal::TERM);
    let ended = load.wait().exits(5).complains_once();
    let ended = ended.stderr_has("cannot start a load test: the database does not answer");
    assert!(ended.took < Duration::from_secs(9), "{ended}");
}

#[test]
fn one_load_test_runs_at_a_time_and_removes_the_rows_of_a_killed_one() {
    let db = TestDb::new();
    let first = db.jobctl(LONG).spawn();
    wait_for_a_success(&db);
    let other = || db.jobctl(["load", "--runs", "3"]).run();
    other().exits(5).stdout("").complains_once().stderr_has("is in use");
    first.signal(Signal::KILL);
    first.wait();
    assert_ne!(numbers_of_rows(&db), NO_ROWS);
    // One of the rows that it left is a running run with a valid lease.
    db.execute(
        "UPDATE jobctl.job_runs
         SET status = 'running', attempts = 1, finished_at = NULL, locked_by = 'jobctl-load-1',
             locked_until = now() + interval '1 hour'
         WHERE id = (SELECT max(id) FROM jobctl.job_runs)",
    );
    // Until the lock is 30 seconds old, the other test may only be slow.
    other().exits(5);
    age_lock(&db);
    other().success().stdout_has("runs\t3\nsucceeded\t3\n");
    assert_eq!(numbers_of_rows(&db), NO_ROWS);
}

#[test]
fn a_load_test_whose_lock_was_taken_stops() {
    let db = TestDb::new();
    let frozen = db.jobctl(LONG).spawn();
    wait_for_a_success(&db);
    // The server would end a session that is frozen within a transaction.
    wait_until("the test to be frozen between transactions", || {
        frozen.signal(Signal::STOP);
        let is_between = db.query(
            "SELECT bool_and(state = 'idle') FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        ) == "t";
        if !is_between {
            frozen.signal(Signal::CONT);
        }
        is_between
    });
    age_lock(&db);
    // The lock is the definition of the load test. Its id changes when another test takes the lock.
    let lock = || db.query("SELECT id FROM jobctl.job_definitions");
    let first = lock();
    let mut second = db.jobctl(LONG).spawn();
    // Before the second test has the lock, all runs are those of the frozen test.
    wait_until("the second test to take the lock", || lock() != first);
    wait_for_a_success(&db);
    frozen.signal(Signal::CONT);
    frozen.wait().exits(4).stdout("").stderr_has("jobctl-load` was");
    assert!(second.is_running());
    assert_ne!(numbers_of_rows(&db), NO_ROWS, "the rows of the second test are kept");
    second.signal(Signal::TERM);
    second.wait().exits(1).stderr_has("a signal stopped it");
    assert_eq!(numbers_of_rows(&db), NO_ROWS);
}

#[test]
fn a_load_test_without_its_definition_removes_its_runs() {
    let db = TestDb::new();
    let load = db.jobctl(LONG).spawn();
    wait_for_a_success(&db);
    // `apply --prune` deletes all definitions that its file does not have.
    let file = "[jobs.a]\nshell = 'true'\n";
    db.jobctl(["apply", "--prune", "--yes", "-"]).stdin(file).run().success();
    load.wait().exits(4).stdout("").stderr_has("jobctl-load` was");
    assert_eq!(numbers_of_rows(&db), "0|0|1|0|0|1", "only the other definition and its event");
}

#[test]
fn a_load_test_that_loses_its_connections_removes_its_runs() {
    let db = TestDb::new();
    let load = db.jobctl(LONG).spawn();
    wait_for_a_success(&db);
    db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    load.wait().exits(5).stdout("").stderr_has("try again");
    assert_eq!(numbers_of_rows(&db), NO_ROWS);
}

#[test]
fn a_load_test_that_cannot_finish_ends_after_max_time() {
    let db = TestDb::new();
    // No run of the load test can start, because its queue is held.
    db.jobctl(["hold", "--queue", "jobctl-load"]).run().success();
    let load = db.jobctl(["load", "--runs", "5", "--max-time", "1s"]).run().exits(1);
    load.stdout_has("runs\t5\nsucceeded\t0\n").complains_once().stderr_has("--max-time is over");
    assert_eq!(numbers_of_rows(&db), "0|0|0|0|0|1", "the event about the hold is kept");
}

#[test]
fn a_load_test_also_lets_ticks_of_other_workers_run_its_jobs() {
    let db = TestDb::new();
    // The worker of the load test itself is held, so only the other tick can run its jobs.
    db.jobctl(["hold", "--worker", "jobctl-load-1"]).run().success();
    let tick = db.jobctl(["tick", "--worker", "other", "--linger"]).spawn();
    db.jobctl(["load", "--runs", "5"]).run().success().stdout_has("succeeded\t5\n");
    tick.signal(Signal::TERM);
    tick.wait().success().stderr_has("jobctl-load attempt 1/1: succeeded");
}

#[test]
fn only_the_owner_of_the_schema_may_load_and_the_server_may_hide_its_wal() {
    let db = TestDb::empty();
    let owner = Role::new(&db);
    db.execute(&format!("GRANT CREATE ON DATABASE {} TO {}", db.name(), owner.name()));
    owner.jobctl(["migrate"]).run().success();
    let operator = Role::granted(&db, "operator");
    operator.jobctl(["load"]).run().exits(7).stdout("").complains_once().stderr_has("owner");
    assert_eq!(numbers_of_rows(&db), NO_ROWS);

    // With this function, `load` measures how much WAL the server writes.
    db.execute("REVOKE EXECUTE ON FUNCTION pg_current_wal_lsn() FROM PUBLIC");
    let load = owner.jobctl(["load", "--runs", "3", "--format", "table"]).run().success();
    load.stderr("").stdout_has("succeeded:          3/3\n").stdout_has("unknown, because");
    assert_eq!(numbers_of_rows(&db), NO_ROWS);
}

#[test]
fn figures_of_a_test_without_ended_runs_count_no_run() {
    let db = TestDb::new();
    let figures = db.query(include_str!("../sql/queries/load/measure.sql"));
    // Only `runs` and `succeeded` have a value: rates and wait times are NULL.
    assert_eq!(figures, "0|0||||||");
}
