//! Recovers runs whose leases ran out.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Gate, Proxy, TestDb, wait_until, wait_until_within};

#[test]
fn a_run_whose_every_attempt_kills_its_worker_ends_dead() {
    let db = TestDb::new();
    let gate = Gate::new();
    // $PPID is the tick.
    let script = format!("echo start $JOBCTL_ATTEMPT >>{}; kill -9 $PPID", gate.log().display());
    let id = db.enqueue([
        "shell",
        "--max-attempts",
        "3",
        &serde_json::json!({ "command": script }).to_string(),
    ]);
    for attempt in 1..=3 {
        let tick = db.jobctl(["tick"]).spawn();
        assert!(!tick.wait().status.success());
        assert_eq!(db.of_run(id, "status, attempts"), format!("running|{attempt}"));
        db.expire_leases();
        db.jobctl(["tick"]).run().success().stderr_has(" expired, ");
        db.make_waiting_runs_due();
    }
    assert_eq!(
        db.of_run(id, "status, attempts, error_type, finished_at IS NOT NULL"),
        "dead|3|lease_expired|t"
    );
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(gate.lines(), ["start 1", "start 2", "start 3"]);
    let history =
        "SELECT string_agg(attempt || outcome, ' ' ORDER BY attempt) FROM jobctl.job_attempts";
    assert_eq!(db.query(history), "1lease_expired 2lease_expired 3lease_expired");
    db.jobctl(["list-dead"]).run().success().stdout_has("lease expired");
    // A retry by an operator raises max_attempts and keeps the history.
    db.execute("UPDATE jobctl.job_runs SET payload = '{\"command\": \"true\"}'");
    db.jobctl(["retry", &id.to_string()]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|4");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "4");
}

#[test]
fn a_run_that_keeps_failing_starts_max_attempts_times_and_ends_dead() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--max-attempts", "3", "--", "false"]);
    for _ in 0..5 {
        db.jobctl(["tick"]).run().success();
        db.make_waiting_runs_due();
    }
    assert_eq!(db.of_run(id, "status, attempts, error_type"), "dead|3|exit_code");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'failed'"), "3");
    db.jobctl(["retry", &id.to_string()]).run().success();
    assert_eq!(db.of_run(id, "status, attempts, max_attempts"), "queued|3|6");
}

/// Inserts runs that a crashed worker has left: running, with an expired lease.
fn insert_lost_runs(db: &TestDb, runs: u32, more: &str) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs
             (job_type, payload, status, attempts, max_attempts, locked_by, locked_until, \
             started_at)
         SELECT 'shell', '{{\"command\": \"true\"}}', 'running', 1, 1, 'gone', now() - interval \
         '1 second',
             now() - interval '1 hour'
         FROM generate_series(1, {runs});
         {more}"
    ));
}

#[test]
fn many_ticks_at_once_recover_each_run_once() {
    let db = TestDb::new();
    insert_lost_runs(&db, 100, "");
    let ticks: Vec<_> = ["a", "b", "c", "d"]
        .map(|worker| db.jobctl(["tick"]).args(["--worker", worker]).spawn())
        .into();
    let lines: usize =
        ticks.into_iter().map(|tick| tick.wait().success().stderr.lines().count()).sum();
    assert_eq!(lines, 100);
    assert_eq!(db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1"), "dead|100");
    let history = "SELECT worker, outcome, count(*), bool_and(finished_at - started_at > interval \
        '59 minutes')
         FROM jobctl.job_attempts GROUP BY 1, 2";
    assert_eq!(db.query(history), "gone|lease_expired|100|t");
}

#[test]
fn runs_that_cannot_be_recovered_do_not_stop_the_others() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    // The rejected ones were lost first.
    insert_lost_runs(
        &db,
        600,
        "UPDATE jobctl.job_runs SET locked_until = now() - interval '1 hour'",
    );
    crate::bulk::reject_changes_of(&db, "OLD.id <= 600");
    insert_lost_runs(&db, 300, "");
    let statuses = "SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1 ORDER BY 1";
    // A tick tries for a limited time, in random order.
    wait_until_within(Duration::from_secs(120), "all others to be recovered", || {
        db.jobctl(["tick"]).run().success().stderr_has(" is kept");
        db.query(statuses) == "dead|300\nrunning|600"
    });
}

#[test]
fn a_lost_run_with_a_cancel_request_is_cancelled() {
    let db = TestDb::new();
    insert_lost_runs(&db, 1, "UPDATE jobctl.job_runs SET max_attempts = 10");
    db.jobctl(["cancel", "1"]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(1, "status, attempts, finished_at IS NOT NULL"), "cancelled|1|t");
}

#[test]
fn a_run_that_changes_while_it_is_read_is_not_recovered() {
    let changes = [
        (
            "status = 'succeeded', locked_by = NULL, locked_until = NULL, finished_at = now()",
            "succeeded|1||",
        ),
        ("locked_until = now() + interval '1 hour'", "running|1||"),
        ("attempts = 2, locked_until = now() + interval '1 hour'", "running|2||"),
    ];
    for (change, after) in changes {
        let db = TestDb::new();
        db.allow_running_runs_at_end();
        insert_lost_runs(&db, 2, "UPDATE jobctl.job_runs SET max_attempts = 10");
        let mut client = db.client();
        let mut transaction = client.transaction().unwrap();
        transaction
            .batch_execute(&format!("UPDATE jobctl.job_runs SET {change} WHERE id = 1"))
            .unwrap();
        // The tick reads the old row of run 1, finds it locked, and recovers only run 2.
        db.jobctl(["tick"]).run().success().stderr_has("run 2 ").prints_nowhere("run 1 ");
        transaction.commit().unwrap();
        db.jobctl(["tick"]).run().success().stderr("");
        assert_eq!(db.of_run(1, "status, attempts, error_type, last_error"), after);
        assert_eq!(db.query("SELECT run_id FROM jobctl.job_attempts"), "2");
    }
}

#[test]
fn a_run_that_changes_after_it_was_read_is_not_recovered() {
    let changes = [
        (
            "status = 'succeeded', locked_by = NULL, locked_until = NULL, finished_at = now()",
            "succeeded|1||",
        ),
        ("locked_until = now() + interval '1 hour'", "running|1||"),
        ("attempts = 2", "running|2||"),
    ];
    for (change, after) in changes {
        let db = TestDb::new();
        db.allow_running_runs_at_end();
        let proxy = Proxy::to(&db);
        insert_lost_runs(&db, 2, "UPDATE jobctl.job_runs SET max_attempts = 10");
        proxy.freeze_after("for recover.sql");
        let tick = db.jobctl(["tick"]).through(&proxy).spawn();
        wait_until("the tick to claim", || proxy.is_frozen());
        db.execute(&format!("UPDATE jobctl.job_runs SET {change} WHERE id = 1"));
        proxy.restore();
        tick.wait().success().stderr_has("run 2 ").prints_nowhere("run 1 ");
        assert_eq!(db.of_run(1, "status, attempts, error_type, last_error"), after);
        assert_eq!(db.query("SELECT run_id FROM jobctl.job_attempts"), "2");
    }
}

#[test]
fn a_heartbeat_and_a_recovery_never_both_win() {
    let db = TestDb::new();
    let gate = Gate::new();
    for _ in 0..4 {
        gate.enqueue(&db);
    }
    let holder = db.jobctl(["tick", "--lease", "1s", "--limit", "4", "--worker", "w"]).spawn();
    gate.wait_for_starts(4);
    for _ in 0..10 {
        db.expire_leases();
        db.jobctl(["tick", "--worker", "thief", "--shell", "off", "--quiet"]).run().success();
    }
    // The thief takes only the lost runs. The others continue with their first attempts.
    let kept = db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'running'");
    wait_until("the lost job to be killed", || {
        db.query("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'lease_expired'")
            == (4 - kept.parse::<i32>().unwrap()).to_string()
    });
    gate.open();
    holder.wait().success();
    let ends = db.query(
        "SELECT count(*) FROM jobctl.job_runs AS run
         JOIN jobctl.job_attempts AS attempt ON attempt.run_id = run.id AND run.attempts = 1
         WHERE (run.status, attempt.outcome) IN (('succeeded', 'succeeded'), ('failed', \
         'lease_expired'))",
    );
    assert_eq!(ends, "4", "{}", db.dump());
}

#[test]
fn a_tick_recovers_runs_even_without_the_claim_right() {
    let db = TestDb::new();
    let first = db.jobctl(["tick", "--worker", "w", "--linger", "--queue", "none"]).spawn();
    db.wait_until_a_tick_has_the_claim_right();
    insert_lost_runs(&db, 1, "");
    db.jobctl(["tick", "--worker", "w"]).run().success();
    assert_eq!(db.status(1), "dead");
    first.signal(Signal::TERM);
    first.wait().success();
}

#[test]
fn one_tick_recovers_all_lost_runs() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, attempts, locked_by, locked_until, \
            started_at)
         SELECT 'shell', 'running', 1, 'gone', now() - interval '1 minute', now() FROM \
         generate_series(1, 1100)",
    );
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1"), "failed|1100");
}

#[test]
fn a_lost_run_without_started_at_is_recovered_and_counts_as_failed() {
    let db = TestDb::new();
    insert_lost_runs(&db, 1, "UPDATE jobctl.job_runs SET max_attempts = 10, started_at = NULL");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(1, "status, failed_at = updated_at"), "failed|t");
    assert_eq!(db.of_attempt(1, 1, "outcome, started_at < finished_at"), "lease_expired|t");
}

#[test]
fn a_restarted_worker_does_not_wait_for_its_lost_runs() {
    let db = TestDb::new();
    insert_lost_runs(&db, 4, "");
    let id = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["tick", "--worker", "gone", "--concurrency", "4"]).run().success();
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn an_attempt_that_is_in_the_history_already_stays_and_blocks_no_recovery() {
    let db = TestDb::new();
    insert_lost_runs(&db, 2, "");
    let ended = db.enqueue(["shell", "--", "true"]);
    let forced = crate::cancel::enqueue_in_status(&db, "running").to_string();
    db.execute(
        "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         SELECT id, 1, 'before', now(), now(), 'failed' FROM jobctl.job_runs WHERE id <> 2",
    );
    db.jobctl(["retry", "--force", &forced]).run().success();
    db.jobctl(["cancel", &forced]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!([1, 2, ended].map(|id| db.status(id)), ["dead", "dead", "succeeded"]);
    assert_eq!(
        db.query("SELECT worker, count(*) FROM jobctl.job_attempts GROUP BY 1 ORDER BY 1"),
        "before|3\ngone|1"
    );
}
