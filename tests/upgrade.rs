//! A schema of an earlier release that is migrated while jobs run and applications enqueue.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::thread;

use postgres::Client;
use sha2::{Digest, Sha256};

use crate::docs::root;
use crate::support::{TestDb, wait_until};

/// The migrations of the released versions. Databases have them, so they never change.
const RELEASED: [(&str, &str); 2] = [
    ("0000_version_table", "b7bedf39f58cb21d4d87eefadf88abfdbe1a67b89b8bd89ed9176bd6b65b6915"),
    ("0001_initial", "73fa768284e8f3d1bf80c33af6b22ab8eaa146f4dbbac8b1d666f25c311ef304"),
];

const ENQUEUE: &str = "SELECT jobctl.enqueue('a')";

/// Returns the text of a migration.
fn text(migration: &str) -> String {
    fs::read_to_string(root().join(format!("sql/migrations/{migration}.sql"))).unwrap()
}

#[test]
fn released_migrations_never_change() {
    for (name, checksum) in RELEASED {
        let found: String = Sha256::digest(text(name)).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(found, checksum, "{name} is released: write a new migration instead");
    }
}

/// Returns a database with the schema of the first release, and the job `a`.
fn released() -> TestDb {
    let db = TestDb::empty();
    let schema = fs::read_to_string(root().join("tests/released/0.1.0.sql")).unwrap();
    // The file creates functions before the tables that they read.
    db.execute(&format!("SET check_function_bodies = off; {schema}"));
    let (name, checksum) = RELEASED[1];
    db.execute(&format!(
        "INSERT INTO jobctl.schema_migrations (version, name, checksum)
         VALUES (1, '{name}', '{checksum}')"
    ));
    db.execute(
        "INSERT INTO jobctl.job_definitions (name, kind, action)
         VALUES ('a', 'shell', '{\"command\": \"true\"}')",
    );
    db
}

/// Enqueues again and again during `work`, and returns how many enqueues failed, because they
/// waited for a lock for longer than a second. `work` gets a function with that number so far.
fn refused_enqueues(db: &TestDb, work: impl FnOnce(&dyn Fn() -> u32)) -> u32 {
    let [refused, accepted] = [AtomicU32::new(0), AtomicU32::new(0)];
    let (end, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // The drop of this sender ends the thread, also if the test fails.
        let _end = end;
        scope.spawn(|| {
            let is_over = is_over;
            let mut application = db.client();
            application.batch_execute("SET lock_timeout = '1s'").unwrap();
            while is_over.try_recv() == Err(TryRecvError::Empty) {
                let enqueued = application.batch_execute(ENQUEUE);
                let count = if enqueued.is_ok() { &accepted } else { &refused };
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        wait_until("the first enqueue", || accepted.load(Ordering::Relaxed) > 0);
        work(&|| refused.load(Ordering::Relaxed));
    });
    refused.into_inner()
}

#[test]
fn a_migration_stops_no_enqueue_and_loses_no_run() {
    let db = released();
    // A host with the old program has a run under a lease.
    let running = db.query(ENQUEUE).parse().unwrap();
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'old',
             started_at = now(), locked_until = now() + interval '1 minute'",
    );
    // With a million runs, a migration that writes all rows, or reads them under a lock, takes
    // longer than a second.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload, status, attempts, finished_at)
         SELECT 'shell', '{\"command\": \"true\"}', 'succeeded', 1, now()
         FROM generate_series(1, 1000000)",
    );
    let refused = refused_enqueues(&db, |_| {
        db.jobctl(["migrate"]).run().success();
    });
    assert_eq!(refused, 0);
    assert_eq!(db.of_run(running, "status, locked_by"), "running|old");

    // The new program recovers the run of the old host, and executes all runs.
    db.expire_leases();
    db.jobctl(["tick", "--quiet"]).run().success();
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.of_run(running, "status, attempts"), "succeeded|2");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE finished_at IS NULL"), "0");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.schema_migrations WHERE version = 1"), "1");
}

/// Shows that the count in the test before is not 0 for another reason.
#[test]
fn the_counter_of_refused_enqueues_notices_a_migration_that_keeps_its_lock() {
    let db = released();
    let mut migrator: Client = db.client();
    let refused = refused_enqueues(&db, |refused| {
        migrator.batch_execute("BEGIN; LOCK TABLE jobctl.job_runs").unwrap();
        wait_until("an enqueue to give up", || refused() > 0);
        migrator.batch_execute("COMMIT").unwrap();
    });
    assert!(refused > 0);
}
