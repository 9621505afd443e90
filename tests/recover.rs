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
        // The job kills this tick. The next tick recovers the run.
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

    // No later tick starts the dead run.
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(gate.lines(), ["start 1", "start 2", "start 3"]);
    let history = "SELECT string_agg(attempt || ' ' || outcome, ', ' ORDER BY attempt)
        FROM jobctl.job_attempts";
    assert_eq!(db.query(history), "1 lease_expired, 2 lease_expired, 3 lease_expired");
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
    // More ticks than attempts.
    for _ in 0..5 {
        db.jobctl(["tick"]).run().success();
        db.make_waiting_runs_due();
    }
    assert_eq!(db.of_run(id, "status, attempts, error_type"), "dead|3|exit_code");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'failed'"), "3");
    // A retry grants as many attempts again.
    db.jobctl(["retry", &id.to_string()]).run().success();
    assert_eq!(db.of_run(id, "status, attempts, max_attempts"), "queued|3|6");
}

/// Inserts `N` runs that the crashed worker `gone` has left: running in their first attempt, with
/// an expired lease. Returns their ids. After its recovery, a run with `max_attempts` 1 is dead,
/// and a run with more attempts is failed.
fn insert_lost_runs<const N: usize>(db: &TestDb, max_attempts: u32) -> [i64; N] {
    let ids = db.query(&format!(
        "INSERT INTO jobctl.job_runs
             (job_type, payload, status, attempts, max_attempts, locked_by, locked_until,
             started_at)
         SELECT 'shell', '{{\"command\": \"true\"}}', 'running', 1, {max_attempts}, 'gone',
             now() - interval '1 second', now() - interval '1 hour'
         FROM generate_series(1, {N})
         RETURNING id"
    ));
    let ids: Vec<i64> = ids.lines().map(|id| id.parse().unwrap()).collect();
    ids.try_into().unwrap()
}

#[test]
fn many_ticks_at_once_recover_each_run_once() {
    let db = TestDb::new();
    insert_lost_runs::<100>(&db, 1);
    let ticks: Vec<_> = ["a", "b", "c", "d"]
        .map(|worker| db.jobctl(["tick"]).args(["--worker", worker]).spawn())
        .into();
    // A tick prints a line for each run that it recovers.
    let lines: usize =
        ticks.into_iter().map(|tick| tick.wait().success().stderr.lines().count()).sum();
    assert_eq!(lines, 100);
    assert_eq!(db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1"), "dead|100");
    let history = "SELECT worker, outcome, count(*),
            bool_and(finished_at - started_at > interval '59 minutes')
        FROM jobctl.job_attempts GROUP BY 1, 2";
    assert_eq!(db.query(history), "gone|lease_expired|100|t");
}

#[test]
fn runs_that_cannot_be_recovered_do_not_stop_the_others() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    // The leases of the runs whose update is rejected expired first.
    let rejected = insert_lost_runs::<600>(&db, 1);
    db.execute("UPDATE jobctl.job_runs SET locked_until = now() - interval '1 hour'");
    crate::bulk::reject_changes_of(&db, &format!("OLD.id <= {}", rejected[599]));
    insert_lost_runs::<300>(&db, 1);
    let statuses = "SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1 ORDER BY 1";
    // A tick tries for a limited time, in random order, so it may take several ticks.
    wait_until_within(Duration::from_secs(120), "all others to be recovered", || {
        // The tick prints the error of the database for a rejected run: `run N is kept`.
        db.jobctl(["tick"]).run().success().stderr_has(" is kept");
        db.query(statuses) == "dead|300\nrunning|600"
    });
}

#[test]
fn a_lost_run_with_a_cancel_request_is_cancelled() {
    let db = TestDb::new();
    let [id] = insert_lost_runs(&db, 10);
    db.jobctl(["cancel", &id.to_string()]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts, finished_at IS NOT NULL"), "cancelled|1|t");
}

#[test]
fn a_lost_run_that_another_session_has_locked_is_not_recovered() {
    // What the other session changes, and the run afterwards: it ends, its lease is renewed, or
    // another worker claims it.
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
        let [changed, other] = insert_lost_runs(&db, 10);
        let mut client = db.client();
        let mut transaction = client.transaction().unwrap();
        transaction
            .batch_execute(&format!("UPDATE jobctl.job_runs SET {change} WHERE id = {changed}"))
            .unwrap();
        // The tick reads the old version of the row, finds it locked, and recovers only the other.
        let tick = db.jobctl(["tick"]).run().success();
        tick.stderr_has(&format!("run {other} ")).prints_nowhere(&format!("run {changed} "));
        transaction.commit().unwrap();
        db.jobctl(["tick"]).run().success().stderr("");
        assert_eq!(db.of_run(changed, "status, attempts, error_type, last_error"), after);
        assert_eq!(db.query("SELECT run_id FROM jobctl.job_attempts"), other.to_string());
    }
}

#[test]
fn a_lost_run_that_changes_before_its_recovery_is_sent_is_not_recovered() {
    // What another session changes, and the run afterwards, as in the test before.
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
        let [changed, other] = insert_lost_runs(&db, 10);
        // The proxy stops the tick after the statement that reads the lost runs.
        proxy.freeze_after("for recover.sql");
        let tick = db.jobctl(["tick"]).through(&proxy).spawn();
        wait_until("the tick to read the lost runs", || proxy.is_frozen());
        db.execute(&format!("UPDATE jobctl.job_runs SET {change} WHERE id = {changed}"));
        proxy.restore();
        let tick = tick.wait().success();
        tick.stderr_has(&format!("run {other} ")).prints_nowhere(&format!("run {changed} "));
        assert_eq!(db.of_run(changed, "status, attempts, error_type, last_error"), after);
        assert_eq!(db.query("SELECT run_id FROM jobctl.job_attempts"), other.to_string());
    }
}

#[test]
fn a_heartbeat_and_a_recovery_never_both_win() {
    let db = TestDb::new();
    let gate = Gate::new();
    for _ in 0..4 {
        gate.enqueue(&db);
    }
    // With this lease, the holder sends a heartbeat every third of a second.
    let holder = db.jobctl(["tick", "--lease", "1s", "--limit", "4", "--worker", "w"]).spawn();
    gate.wait_for_starts(4);
    // Each round, either a heartbeat renews an expired lease or the other tick recovers its run.
    // `--shell off`: that tick starts no run.
    for _ in 0..10 {
        db.expire_leases();
        db.jobctl(["tick", "--worker", "recoverer", "--shell", "off", "--quiet"]).run().success();
    }
    // The runs that are still running continue with their first attempts.
    let running = db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'running'");
    let recovered = (4 - running.parse::<i32>().unwrap()).to_string();
    wait_until("the lost jobs to be killed", || {
        db.query("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'lease_expired'")
            == recovered
    });
    gate.open();
    holder.wait().success();
    // Each run has one end: its result, or its recovery.
    let ends = db.query(
        "SELECT count(*) FROM jobctl.job_runs AS run
         JOIN jobctl.job_attempts AS attempt ON attempt.run_id = run.id AND run.attempts = 1
         WHERE (run.status, attempt.outcome) IN
             (('succeeded', 'succeeded'), ('failed', 'lease_expired'))",
    );
    assert_eq!(ends, "4", "{}", db.dump());
}

#[test]
fn a_tick_recovers_runs_even_without_the_claim_right() {
    let db = TestDb::new();
    // A lingering tick of the same worker keeps the claim right.
    let first = db.jobctl(["tick", "--worker", "w", "--linger", "--queue", "none"]).spawn();
    db.wait_until_a_tick_has_the_claim_right();
    // The run is dead once it is recovered, since it has only one attempt.
    let [lost] = insert_lost_runs(&db, 1);
    db.jobctl(["tick", "--worker", "w"]).run().success();
    assert_eq!(db.status(lost), "dead");
    first.signal(Signal::TERM);
    first.wait().success();
}

#[test]
fn one_tick_recovers_all_lost_runs() {
    let db = TestDb::new();
    // A statement recovers 500 runs, so the tick sends three.
    insert_lost_runs::<1100>(&db, 10);
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1"), "failed|1100");
}

#[test]
fn a_lost_run_without_started_at_is_recovered_and_counts_as_failed() {
    let db = TestDb::new();
    let [id] = insert_lost_runs(&db, 10);
    db.execute("UPDATE jobctl.job_runs SET started_at = NULL");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, failed_at = updated_at"), "failed|t");
    assert_eq!(db.of_attempt(id, 1, "outcome, started_at < finished_at"), "lease_expired|t");
}

#[test]
fn the_lost_runs_of_a_restarted_worker_take_none_of_its_slots() {
    let db = TestDb::new();
    insert_lost_runs::<4>(&db, 1);
    let id = db.enqueue(["shell", "--", "true"]);
    // As many slots as lost runs of this worker.
    db.jobctl(["tick", "--worker", "gone", "--concurrency", "4"]).run().success();
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn an_attempt_that_is_already_in_the_history_stays_and_stops_no_end_of_a_run() {
    let db = TestDb::new();
    let [recorded, unrecorded] = insert_lost_runs(&db, 1);
    let due = db.enqueue(["shell", "--", "true"]);
    let forced = crate::cancel::enqueue_in_status(&db, "running").to_string();
    // The history has attempt 1 of all runs except one.
    db.execute(&format!(
        "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         SELECT id, 1, 'before', now(), now(), 'failed' FROM jobctl.job_runs
         WHERE id <> {unrecorded}"
    ));
    // A forced retry, two recoveries and a result end attempt 1 of the four runs.
    db.jobctl(["retry", "--force", &forced]).run().success();
    db.jobctl(["cancel", &forced]).run().success();
    db.jobctl(["tick"]).run().success();
    let statuses = [recorded, unrecorded, due].map(|id| db.status(id));
    assert_eq!(statuses, ["dead", "dead", "succeeded"]);
    assert_eq!(
        db.query("SELECT worker, count(*) FROM jobctl.job_attempts GROUP BY 1 ORDER BY 1"),
        "before|3\ngone|1"
    );
}
