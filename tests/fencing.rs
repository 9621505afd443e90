//! A tick that lost a run kills its job and writes only history.

use std::thread;

use rustix::process::Signal;

use crate::support::{Gate, Running, TestDb, wait_until};

#[test]
fn a_tick_that_lost_its_runs_kills_the_jobs_and_writes_only_history() {
    // Changes of a running run by other sessions. After each, the tick no longer holds the run.
    let changes = [
        "locked_by = 'other'",
        "attempts = attempts + 1",
        "status = 'queued', locked_by = NULL, locked_until = NULL",
        "status = 'failed', locked_by = NULL, locked_until = NULL, run_at = now() + \
            interval '1 hour'",
        "status = 'succeeded', locked_by = NULL, locked_until = NULL, finished_at = now()",
        "status = 'dead', locked_by = NULL, locked_until = NULL, finished_at = now()",
        "status = 'cancelled', locked_by = NULL, locked_until = NULL, finished_at = now()",
    ];
    let db = TestDb::new();
    let gate = Gate::new();
    let ids: Vec<_> = changes.iter().map(|_| gate.enqueue(&db)).collect();
    let flags = ["--concurrency", "7", "--limit", "7", "--lease", "3s", "--worker", "w"];
    let tick = db.jobctl(["tick"]).args(flags).spawn();
    gate.wait_for_starts(ids.len());
    let updates: String = changes
        .iter()
        .zip(&ids)
        .map(|(change, id)| format!("UPDATE jobctl.job_runs SET {change} WHERE id = {id};"))
        .collect();
    // All changes become visible at once.
    db.execute(&format!("BEGIN; {updates} COMMIT"));
    let runs = || db.query("SELECT run::text FROM jobctl.job_runs AS run ORDER BY id");
    let before = runs();
    let tick = tick.wait().success();
    assert!(!gate.has_processes());
    assert_eq!(gate.count("end"), 0);
    assert_eq!(runs(), before);
    for (id, change) in ids.iter().zip(changes) {
        let line = format!("run {id} shell attempt 1/10: lease lost, result not recorded");
        assert_eq!(tick.stderr.matches(&line).count(), 1, "{tick}");
        let history = "worker, outcome, error_type, started_at < finished_at";
        // If another claim has the same number, that claim writes the history.
        let is_of_other = change.starts_with("locked_by");
        let written = if is_of_other { "" } else { "w|lease_expired|lease_expired|t" };
        assert_eq!(db.of_attempt(*id, 1, history), written, "{change}");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "6");
    // The first two changes left their runs running. A test must not end with running runs.
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'queued', locked_by = NULL, locked_until = NULL
         WHERE status = 'running'",
    );
}

#[test]
fn a_late_result_is_not_recorded() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--worker", "w"]).spawn();
    gate.wait_for_starts(1);
    // Another tick of the same worker has recovered the run and claimed it again.
    db.execute("UPDATE jobctl.job_runs SET attempts = 2");
    let before = db.of_run(id, "job_runs::text");
    gate.open();
    tick.wait()
        .success()
        .stderr_has(": lease lost, result not recorded")
        .prints_nowhere("succeeded");
    assert_eq!(db.of_run(id, "job_runs::text"), before);
    assert_eq!(db.of_attempt(id, 1, "outcome"), "lease_expired");
    assert_eq!(db.of_attempt(id, 2, "outcome"), "");
    db.allow_running_runs_at_end();
}

#[test]
fn a_late_result_never_waits_for_the_lock_of_its_run() {
    let db = TestDb::new();
    let (taken_gate, kept_gate) = (Gate::new(), Gate::new());
    let [taken, kept] = [taken_gate.enqueue(&db), kept_gate.enqueue(&db)];
    let tick = db.jobctl(["tick", "--limit", "2", "--lease", "6s"]).spawn();
    taken_gate.wait_for_starts(1);
    kept_gate.wait_for_starts(1);
    // The first run is taken from the tick, and another session locks its row.
    db.jobctl(["retry", "--force", &taken.to_string()]).run().success();
    let mut client = db.client();
    let mut locked = client.transaction().unwrap();
    locked.execute("SELECT FROM jobctl.job_runs WHERE id = $1 FOR UPDATE", &[&taken]).unwrap();
    wait_until("the tick to kill the job of the lost run", || !taken_gate.has_processes());
    // The late result of that run does not delay the result of the other one.
    kept_gate.open();
    db.wait_for_status(kept, "succeeded");
    locked.rollback().unwrap();
    tick.wait().success();
}

#[test]
fn a_run_that_is_deleted_is_killed_and_other_runs_continue() {
    let db = TestDb::new();
    // Two runs, each with a gate of its own. The first one is deleted while both are running.
    let (doomed, spared) = (Gate::new(), Gate::new());
    let (deleted, other) = (doomed.enqueue(&db), spared.enqueue(&db));
    let tick = db.jobctl(["tick"]).spawn();
    doomed.wait_for_starts(1);
    spared.wait_for_starts(1);
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {deleted}"));
    wait_until("the next heartbeat to kill the job of the deleted run", || !doomed.has_processes());
    assert!(spared.has_processes());
    spared.open();
    tick.wait().success();
    assert_eq!(db.status(other), "succeeded");
    assert_eq!(db.query("SELECT run_id FROM jobctl.job_attempts"), other.to_string());
}

#[test]
fn a_forced_retry_takes_a_run_from_its_holder() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let text = id.to_string();
    let tick = db.jobctl(["tick", "--lease", "3s", "--limit", "1", "--worker", "w"]).spawn();
    gate.wait_for_starts(1);
    let before = db.of_run(id, "job_runs::text");
    // Without --force, `retry` refuses a running run.
    db.jobctl(["retry", &text]).run().exits(4);
    // Times have a colon. Leave them out, because heartbeats renew the lease meanwhile.
    let without_times =
        |row: &str| row.split(',').filter(|field| !field.contains(':')).collect::<String>();
    assert_eq!(without_times(&db.of_run(id, "job_runs::text")), without_times(&before));
    db.jobctl(["retry", "--force", &text]).run().success();
    assert_eq!(db.of_run(id, "status, attempts, locked_by, run_at <= now()"), "queued|1||t");
    tick.wait().success().stderr_has(": lease lost, result not recorded");
    assert!(!gate.has_processes());
    assert_eq!(
        db.of_attempt(id, 1, "worker, outcome, error"),
        "w|interrupted|taken from its holder by retry --force"
    );
    gate.open();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|2");
}

#[test]
fn a_cancelled_run_is_killed_with_its_children() {
    let db = TestDb::new();
    let gate = Gate::new();
    // The child logs its start, too, so the test can wait until both processes run.
    let script = format!(
        "sh -c 'echo start child 0 $$ >>{0}; sleep 600' &\n{1}",
        gate.log().display(),
        gate.script()
    );
    let id = db.enqueue_script(&script);
    let text = id.to_string();
    let tick = db.jobctl(["tick", "--lease", "3s", "--worker", "w"]).spawn();
    gate.wait_for_starts(2);
    // A second cancel of a running run changes nothing.
    for _ in 0..2 {
        db.jobctl(["cancel", &text]).run().success();
    }
    let tick =
        tick.wait().success().stderr_has(&format!("run {id} shell attempt 1/10: cancelled after "));
    assert_eq!(tick.stderr.lines().count(), 1, "{tick}");
    assert!(!gate.has_processes());
    let ended = "status, attempts, finished_at IS NOT NULL, locked_by, error_type";
    assert_eq!(db.of_run(id, ended), "cancelled|1|t||cancelled");
    assert_eq!(db.of_attempt(id, 1, "worker, outcome, error_type"), "w|cancelled|cancelled");
    // The run has ended, so it can't be cancelled.
    db.jobctl(["cancel", &text]).run().exits(4);
}

#[test]
fn a_cancelled_run_that_fails_is_not_retried() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = db.enqueue_script(&format!("{}; exit 1", gate.script()));
    let tick = db.jobctl(["tick"]).spawn();
    gate.wait_for_starts(1);
    db.jobctl(["cancel", &id.to_string()]).run().success();
    gate.open();
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, attempts"), "cancelled|1");
}

#[test]
fn a_run_that_is_cancelled_while_it_ends_is_either_cancelled_or_succeeded_also_in_its_history() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT 'shell', '{\"command\": \"sleep 0.02\"}' FROM generate_series(1, 100)",
    );
    let tick = db.jobctl(["tick", "--quiet", "--concurrency", "4"]).spawn();
    // The runs have the ids 1 to 100. One thread cancels the odd ones, and one the even ones.
    let cancel_every_second = |first: usize| {
        let ids: Vec<_> = (first..=100).step_by(2).map(|id| id.to_string()).collect();
        for five_ids in ids.chunks(5) {
            // The exit status is 4 if one of the runs has ended.
            let cancel = db.jobctl(["cancel"]).args(five_ids.iter().map(String::as_str)).run();
            assert!(matches!(cancel.status.code(), Some(0 | 4)), "{cancel}");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| cancel_every_second(1));
        scope.spawn(|| cancel_every_second(2));
    });
    tick.wait().success();
    // A run that was cancelled before its claim has no attempt.
    let ends = "SELECT count(*) FROM jobctl.job_runs AS run
         LEFT JOIN jobctl.job_attempts AS attempt ON attempt.run_id = run.id
         WHERE run.finished_at IS NOT NULL AND (
             run.status = 'succeeded' AND attempt.outcome = 'succeeded'
             OR run.status = 'cancelled' AND coalesce(attempt.outcome, 'cancelled') = 'cancelled')";
    assert_eq!(db.query(ends), "100", "{}", db.dump());
}

#[test]
fn a_claimed_run_that_is_cancelled_never_starts() {
    let db = TestDb::new();
    let gate = Gate::new();
    // After many short runs, the tick prefetches runs. So it claims the second run of the gate
    // while the first one still runs.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT 'shell', '{\"command\": \":\"}' FROM generate_series(1, 60)",
    );
    gate.enqueue(&db);
    let second = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--quiet", "--concurrency", "1", "--limit", "61"]).spawn();
    gate.wait_for_starts(1);
    db.jobctl(["cancel", &second.to_string()]).run().success();
    wait_until("the run to be cancelled", || db.status(second) == "cancelled");
    tick.signal(Signal::TERM);
    gate.open();
    tick.wait().success();
    assert_eq!(gate.count("start"), 1);
    assert_eq!(db.of_attempt(second, 1, "outcome"), "");
}

#[test]
fn a_cancel_that_waits_for_a_claim_sees_the_runs_new_status() {
    let claimed = "status = 'running', attempts = 1, locked_by = 'w', locked_until = now() + \
        interval '1 hour'";
    // The status that the cancel reads first, the change that another session commits while the
    // cancel waits, the exit status of the cancel, and the status of the run afterwards with
    // whether the run is asked to stop.
    let changes = [
        ("queued", claimed, 0, "running|t"),
        ("running", "status = 'failed', locked_by = NULL, locked_until = NULL", 0, "cancelled|t"),
        (
            "running",
            "status = 'dead', locked_by = NULL, locked_until = NULL, finished_at = now()",
            4,
            "dead|f",
        ),
    ];
    for (before, change, exit, after) in changes {
        let db = TestDb::new();
        db.allow_running_runs_at_end();
        let id = super::cancel::enqueue_in_status(&db, before);
        let mut client = db.client();
        let mut transaction = client.transaction().unwrap();
        transaction
            .batch_execute(&format!("UPDATE jobctl.job_runs SET {change} WHERE id = {id}"))
            .unwrap();
        let cancel = db.jobctl(["cancel"]).args([id.to_string().as_str()]).spawn();
        wait_until("the cancel to wait", || db.sessions_waiting_for_locks() == 1);
        transaction.commit().unwrap();
        cancel.wait().exits(exit);
        assert_eq!(db.of_run(id, "status, cancel_requested_at IS NOT NULL"), after);
    }
}

#[test]
fn a_run_whose_max_attempts_were_lowered_meanwhile_ends_dead() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = db.enqueue_script(&format!("{}; exit 1", gate.script()));
    let tick = db.jobctl(["tick"]).spawn();
    gate.wait_for_starts(1);
    db.execute("UPDATE jobctl.job_runs SET max_attempts = 1");
    gate.open();
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, attempts, finished_at IS NOT NULL"), "dead|1|t");
}

#[test]
fn a_result_of_a_recovered_run_does_not_count_as_recorded() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--worker", "w"]).spawn();
    gate.wait_for_starts(1);
    db.expire_leases();
    db.jobctl(["tick", "--worker", "other"])
        .run()
        .success()
        .stderr_has("lease of worker w expired");
    // The job ends before the next heartbeat, so only its result finds that the run is lost.
    gate.open();
    tick.wait()
        .success()
        .stderr_has(": lease lost, result not recorded")
        .prints_nowhere("succeeded");
    assert_eq!(db.of_run(id, "status, attempts"), "failed|1");
}

#[test]
fn a_tick_that_claims_its_own_run_again_ends_both_attempts_and_records_no_result_of_the_first() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--linger", "--concurrency", "2", "--grace", "0s"]).spawn();
    gate.wait_for_starts(1);
    db.jobctl(["retry", "--force", &id.to_string()]).run().success();
    // The same tick claims the run again, and starts its second attempt.
    gate.wait_for_starts(2);
    tick.signal(Signal::TERM);
    tick.wait()
        .success()
        .stderr_has(&format!("run {id} shell attempt 1/10: lease lost, result not recorded"));
    assert!(!gate.has_processes());
    assert_eq!(db.of_run(id, "status, attempts"), "queued|2");
}

#[test]
fn a_tick_that_claims_a_run_again_which_it_lost_renews_the_lease_of_the_second_attempt() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--linger", "--lease", "3s", "--concurrency", "2"]).spawn();
    gate.wait_for_starts(1);
    // Another program takes the run from the tick, which claims it again.
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'queued', locked_by = NULL, locked_until = NULL",
    );
    gate.wait_for_starts(2);
    wait_until("the first attempt to be ended", || {
        db.of_attempt(id, 1, "outcome") == "lease_expired"
    });
    db.wait_for_renewals(id, 2);
    gate.open();
    db.wait_for_status(id, "succeeded");
    tick.signal(Signal::TERM);
    tick.wait().success();
    assert_eq!(db.of_run(id, "attempts"), "2");
}

#[test]
fn a_cancel_request_that_another_program_wrote_stops_a_waiting_run() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]);
    db.execute("UPDATE jobctl.job_runs SET cancel_requested_at = now()");
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(db.of_run(id, "status, attempts"), "cancelled|0");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "0");
}

/// Makes the database forget all claims, like a failover to a replica without them.
fn forget_claims(db: &TestDb) {
    db.execute(
        "UPDATE jobctl.job_runs
         SET status = 'queued', attempts = attempts - 1, locked_by = NULL, locked_until = NULL, \
         started_at = NULL;
         DELETE FROM jobctl.job_attempts",
    );
}

/// A run whose first execution fails when the first gate opens. A later execution succeeds when the
/// second gate opens.
fn enqueue_that_fails_first_and_succeeds_later(db: &TestDb, first: &Gate, second: &Gate) -> i64 {
    let is_first = format!("mkdir {}.first 2>/dev/null", first.log().display());
    db.enqueue_script(&format!(
        "if {is_first}; then {}; exit 3; fi; {}",
        first.script(),
        second.script()
    ))
}

/// Lets two ticks of one worker execute a run as the same attempt, as after a failover that lost
/// the claim of the first. Returns the run and both ticks.
fn let_two_ticks_execute_one_attempt<'db>(
    db: &'db TestDb,
    lease: &'db str,
    first: &Gate,
    second: &Gate,
) -> (i64, Running<'db>, Running<'db>) {
    let id = enqueue_that_fails_first_and_succeeds_later(db, first, second);
    let tick = || db.jobctl(["tick", "--worker", "w", "--limit", "1", "--lease", lease]).spawn();
    let earlier = tick();
    first.wait_for_starts(1);
    forget_claims(db);
    let later = tick();
    second.wait_for_starts(1);
    (id, earlier, later)
}

#[test]
fn a_result_is_not_recorded_for_another_claim_of_the_same_attempt() {
    let db = TestDb::new();
    let [first, second] = [Gate::new(), Gate::new()];
    let (id, earlier, later) = let_two_ticks_execute_one_attempt(&db, "2m", &first, &second);
    // The execution of the earlier tick fails. The later tick holds the run.
    first.open();
    earlier
        .wait()
        .success()
        .stderr_has(": lease lost, result not recorded")
        .prints_nowhere("exit status 3");
    assert_eq!(db.of_run(id, "status, attempts, locked_by"), "running|1|w");
    second.open();
    later.wait().success();
    assert_eq!(db.of_run(id, "status, attempts, last_error"), "succeeded|1|");
    assert_eq!(db.of_attempt(id, 1, "outcome, error"), "succeeded|");
}

#[test]
fn a_heartbeat_ends_an_execution_whose_attempt_is_claimed_again() {
    let db = TestDb::new();
    let [first, second] = [Gate::new(), Gate::new()];
    let (id, earlier, later) = let_two_ticks_execute_one_attempt(&db, "3s", &first, &second);
    earlier.wait().success().stderr_has(": lease lost, result not recorded");
    assert!(!first.has_processes());
    // The heartbeats of the later tick go on.
    db.wait_for_renewals(id, 1);
    second.open();
    later.wait().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    assert_eq!(db.of_attempt(id, 1, "outcome"), "succeeded");
}

#[test]
fn a_tick_that_claims_the_same_attempt_again_ends_the_first_execution() {
    let db = TestDb::new();
    let [first, second] = [Gate::new(), Gate::new()];
    let id = enqueue_that_fails_first_and_succeeds_later(&db, &first, &second);
    let tick = db.jobctl(["tick", "--linger", "--concurrency", "2", "--lease", "3s"]).spawn();
    first.wait_for_starts(1);
    forget_claims(&db);
    second.wait_for_starts(1);
    wait_until("the end of the first execution", || !first.has_processes());
    // The heartbeats of the second execution go on.
    db.wait_for_renewals(id, 1);
    second.open();
    db.wait_for_status(id, "succeeded");
    tick.signal(Signal::TERM);
    let tick = tick.wait().success();
    assert_eq!(tick.stderr.matches(": lease lost, result not recorded").count(), 1, "{tick}");
    assert_eq!(db.of_attempt(id, 1, "outcome"), "succeeded");
}
