//! `cancel` in each status of a run.

use rustix::process::Signal;

use crate::retry::answer_at_terminal;
use crate::support::{Gate, TestDb, wait_until};

pub const STATUSES: [&str; 7] =
    ["queued", "running", "succeeded", "failed", "dead", "cancelled", "blocked"];

/// Enqueues a run and sets its status by SQL.
pub fn enqueue_in_status(db: &TestDb, status: &str) -> i64 {
    let id = db.enqueue(["shell", "--", "true"]);
    let columns = match status {
        "queued" | "blocked" => "",
        "running" => {
            ", attempts = 1, locked_by = 'elsewhere', locked_until = now() + interval '1 hour'"
        }
        "failed" => ", attempts = 1, run_at = now() + interval '1 hour'",
        _ => ", attempts = 1, finished_at = now()",
    };
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = '{status}' {columns} WHERE id = {id}"
    ));
    id
}

#[test]
fn a_cancelled_waiting_run_never_starts() {
    let db = TestDb::new();
    for status in ["queued", "failed", "blocked"] {
        let id = enqueue_in_status(&db, status).to_string();
        db.jobctl(["cancel", &id]).run().success().stdout(&format!("{id}\tcancelled\n"));
    }
    db.make_waiting_runs_due();
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(
        db.query(
            "SELECT count(*) FROM jobctl.job_runs WHERE status = 'cancelled' AND started_at IS NULL"
        ),
        "3"
    );
}

#[test]
fn cancel_ends_waiting_runs_asks_running_ones_and_refuses_others() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let columns =
        "status, finished_at IS NOT NULL, cancel_requested_at IS NOT NULL, locked_by, attempts";
    for status in STATUSES {
        let id = enqueue_in_status(&db, status);
        let before = db.of_run(id, "job_runs::text");
        let cancelled = db.jobctl(["cancel", &id.to_string()]).run();
        match status {
            "queued" | "failed" | "blocked" => {
                cancelled.success().stdout(&format!("{id}\tcancelled\n")).stderr("");
                let attempts = i32::from(status == "failed");
                assert_eq!(
                    db.of_run(id, columns),
                    format!("cancelled|t|t||{attempts}"),
                    "{status}"
                );
            }
            "running" => {
                cancelled.success().stdout(&format!("{id}\tcancel requested\n")).stderr("");
                assert_eq!(db.of_run(id, columns), "running|f|t|elsewhere|1");
                // A second request succeeds and keeps the time of the first.
                let requested = db.of_run(id, "cancel_requested_at");
                db.jobctl(["cancel", &id.to_string()])
                    .run()
                    .success()
                    .stdout(&format!("{id}\tcancel requested\n"));
                assert_eq!(db.of_run(id, "cancel_requested_at"), requested);
            }
            _ => {
                let why = format!(
                    "jobctl: cannot cancel run {id}: its status is {status}; only \
                     unfinished runs can be cancelled\n"
                );
                cancelled.exits(4).stdout("").stderr(&why);
                assert_eq!(db.of_run(id, "job_runs::text"), before, "{status}");
            }
        }
    }
}

#[test]
fn cancel_prints_a_result_for_each_id_and_the_worst_sets_its_exit_status() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let [queued, running, dead] =
        ["queued", "running", "dead"].map(|status| enqueue_in_status(&db, status).to_string());
    let finished = db.jobctl(["cancel", &running, "999999", &queued, &running]).run().exits(3);
    let granted = format!("{running}\tcancel requested\n{queued}\tcancelled\n");
    finished.stdout(&granted).stderr("jobctl: cannot cancel run 999999: no such run\n");
    let finished = db
        .jobctl(["cancel", "--json", &dead, "9223372036854775807", &running])
        .run()
        .exits(4)
        .stderr("");
    let id = |text: &str| text.parse::<i64>().unwrap();
    let expected = serde_json::json!([
        {
            "id": id(&dead),
            "result": "refused",
            "why_not_changed":
                "its status is dead; only unfinished runs can be cancelled",
        },
        {"id": i64::MAX, "result": "not found", "why_not_changed": "no such run"},
        {"id": id(&running), "result": "cancel requested", "why_not_changed": null},
    ]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&finished.stdout).unwrap(), expected);
    // Both runs are missing.
    db.jobctl(["cancel", "999998", "999999"]).run().exits(3).stdout("");
}

#[test]
fn retry_runs_a_cancelled_run_again() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "failed");
    db.jobctl(["cancel", &id.to_string()]).run().success();
    db.jobctl(["retry", "--now", &id.to_string()]).run().success();
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts, cancel_requested_at"), "succeeded|2|");
}

#[test]
fn concurrent_cancels_in_opposite_orders_do_not_deadlock() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload) \
         SELECT 'shell', '{\"command\": \"true\"}' FROM generate_series(1, 50)",
    );
    let ids = db.query("SELECT id FROM jobctl.job_runs ORDER BY id");
    let (forward, backward) = (ids.lines(), ids.lines().rev());
    let both =
        [db.jobctl(["cancel"]).args(forward).spawn(), db.jobctl(["cancel"]).args(backward).spawn()];
    // Each run is cancelled by one of both.
    let answers = both.map(|one| one.wait().stdout.lines().count());
    assert_eq!(answers[0] + answers[1], 50);
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'cancelled'"), "50");
}

#[test]
fn all_waiting_cancels_the_waiting_runs_that_match_the_filters() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let ids = STATUSES.map(|status| (status, enqueue_in_status(&db, status)));
    let [other, of_job] = [enqueue_in_status(&db, "queued"), enqueue_in_status(&db, "failed")];
    // One run is of another job and older.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET job_type = 'report', created_at = now() - interval '2 days' \
         WHERE id = {of_job}"
    ));
    // The only run of the job is older than a day.
    db.jobctl(["cancel", "--all-waiting", "--yes", "--job", "report", "--since", "1d"])
        .run()
        .success()
        .stdout("")
        .stderr("");
    let cancel = ["cancel", "--all-waiting", "--yes", "--verbose", "--job", "report"];
    let cancelled = db.jobctl(cancel).args(["--until", "1d"]).run().success();
    cancelled.stdout(&format!("{of_job}\tcancelled\n")).stderr("");
    assert_eq!(db.status(other), "queued");
    // Without filters, all other waiting runs are cancelled.
    let [queued, _, _, failed, _, _, blocked] = ids.map(|(_, id)| id);
    let lines = [queued, failed, blocked, other].map(|id| format!("{id}\tcancelled\n"));
    let cancel = db.jobctl(["cancel", "--all-waiting", "--yes", "--verbose"]).run().success();
    cancel.stderr("").stdout(&lines.concat());
    for (status, id) in ids {
        // Runs in the other statuses do not even get a request.
        let expected = match status {
            "queued" | "failed" | "blocked" => "cancelled|t".to_owned(),
            _ => format!("{status}|f"),
        };
        assert_eq!(db.of_run(id, "status, cancel_requested_at IS NOT NULL"), expected);
    }
    // A filter alone selects nothing.
    let why = "jobctl: filters need --all-waiting or --all; add it, or give run ids\n";
    db.jobctl(["cancel", "--queue", "mail"]).run().exits(2).stdout("").stderr(why);
}

#[test]
fn all_cancels_waiting_and_running_runs_that_match_the_filters() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let ids = STATUSES.map(|status| enqueue_in_status(&db, status));
    // The same runs of another job, which the filter selects.
    let of_job = STATUSES.map(|status| {
        let id = enqueue_in_status(&db, status);
        db.execute(&format!("UPDATE jobctl.job_runs SET job_type = 'report' WHERE id = {id}"));
        id
    });
    let [queued, running, _, failed, _, _, blocked] = of_job;
    let cancel = ["cancel", "--all", "--job", "report", "--yes", "--verbose"];
    db.jobctl(cancel).run().success().stderr("").stdout(&format!(
        "{queued}\tcancelled\n{running}\tcancel requested\n{failed}\tcancelled\n\
         {blocked}\tcancelled\n"
    ));
    assert_eq!(ids.map(|id| db.status(id)), STATUSES);
    let now = ["cancelled", "running", "succeeded", "cancelled", "dead", "cancelled", "cancelled"];
    assert_eq!(of_job.map(|id| db.status(id)), now);
    assert_eq!(db.of_run(running, "cancel_requested_at IS NOT NULL"), "t");
}

#[test]
fn all_waiting_asks_for_confirmation_at_a_terminal() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "queued");
    let (shown, finished) = answer_at_terminal(&db, "cancel --all-waiting", "n");
    assert!(shown.contains("cancel 1 waiting run? [y/N] "), "{shown}");
    finished.exits(1);
    assert_eq!(db.status(id), "queued");
    answer_at_terminal(&db, "cancel --all-waiting", "y").1.success();
    assert_eq!(db.status(id), "cancelled");
}

/// A command for many runs first selects them, and then waits for the rows that another session has
/// locked. It must look at them again.
#[test]
fn cancel_and_retry_skip_runs_that_no_longer_match() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    // The command, the status that it selects, and what the other session changes meanwhile.
    for (command, status, change) in [
        (
            ["cancel", "--all-waiting", "--yes"],
            "queued",
            "status = 'running', attempts = 1, locked_by = 'w', locked_until = now() + interval \
             '1 hour'",
        ),
        (["retry", "--all-dead", "--yes"], "dead", "status = 'cancelled'"),
        (["retry", "--all-dead", "--yes"], "dead", "settled_at = now()"),
        (["retry", "--all-cancelled", "--yes"], "cancelled", "status = 'dead'"),
    ] {
        db.execute("DELETE FROM jobctl.job_runs");
        let id = enqueue_in_status(&db, status);
        let mut client = db.client();
        let mut other = client.transaction().unwrap();
        other
            .batch_execute(&format!("UPDATE jobctl.job_runs SET {change} WHERE id = {id}"))
            .unwrap();
        let changed = other
            .query_one("SELECT run::text FROM jobctl.job_runs AS run WHERE id = $1", &[&id])
            .unwrap();
        let asked = db.jobctl(command).spawn();
        wait_until("the command to wait for the row", || db.sessions_waiting_for_locks() == 1);
        other.commit().unwrap();
        asked.wait().success().stdout("").stderr("");
        assert_eq!(db.of_run(id, "job_runs::text"), changed.get::<_, String>(0), "{command:?}");
    }
}

/// Starts a run that has been due for an hour, makes a `change` meanwhile, and only then ends its
/// first attempt: with the command `end`, or by a signal to its tick. A second attempt succeeds.
/// Returns the run.
fn end_first_attempt_after(
    db: &TestDb,
    end: &str,
    signal: Option<Signal>,
    change: impl FnOnce(i64),
) -> i64 {
    let gate = Gate::new();
    let script = format!("test $JOBCTL_ATTEMPT = 2 && exit\n{}\n{end}", gate.script());
    let run = db.enqueue(["shell", "--backoff", "fixed:1h", "--", "sh", "-c", &script]);
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '1 hour'");
    let tick = db.jobctl(["tick", "--grace", "0s"]).spawn();
    gate.wait_for_starts(1);
    change(run);
    match signal {
        Some(signal) => tick.signal(signal),
        None => gate.open(),
    }
    tick.wait().success();
    run
}

/// How long runs waited from due to start, in units of ten minutes.
const WAITED_TENS_OF_MINUTES: &str = "SELECT round(wait_seconds / 600) FROM jobctl.daily_figures";

/// A command that asks for a later attempt.
const SNOOZE: &str = "echo retry-after: 1h; exit 75";

#[test]
fn a_run_that_is_cancelled_while_it_runs_keeps_its_due_time_however_its_attempt_ends() {
    // The attempt fails, or asks for a later attempt, or its tick stops it.
    for (end, signal) in [("exit 1", None), (SNOOZE, None), ("", Some(Signal::TERM))] {
        let db = TestDb::new();
        let run = end_first_attempt_after(&db, end, signal, |run| {
            db.jobctl(["cancel", &run.to_string()]).run().success();
        });
        let columns = "status, run_at < now() - interval '50 minutes'";
        assert_eq!(db.of_run(run, columns), "cancelled|t", "{end} {signal:?}");
        // The figures count this run's wait of an hour, because its attempt ended it.
        assert_eq!(db.query(WAITED_TENS_OF_MINUTES), "6", "{end} {signal:?}");
        let id = run.to_string();
        db.jobctl(["retry", &id]).run().success().stdout(&format!("{id}\tqueued\n"));
        db.jobctl(["tick"]).run().success();
        assert_eq!(db.status(run), "succeeded", "{end} {signal:?}");
    }
}

#[test]
fn a_lost_run_that_was_cancelled_keeps_its_due_time() {
    let db = TestDb::new();
    let lost = enqueue_in_status(&db, "running");
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '1 hour'");
    db.jobctl(["cancel", &lost.to_string()]).run().success();
    db.expire_leases();
    db.jobctl(["tick"]).run().success();
    let columns = "status, error_type, run_at < now() - interval '50 minutes'";
    assert_eq!(db.of_run(lost, columns), "cancelled|lease_expired|t");
}

/// A failure ends a run if `edit --max-attempts` has left it no attempt, or if a newer run has
/// taken its live key.
#[test]
fn the_figures_count_the_wait_of_a_run_whose_failure_ends_it() {
    // The change during the attempt, the end of the command, and the status after it.
    for (change, end, status) in [
        ("max_attempts = 1", "exit 1", "dead"),
        ("idempotency_key = 'k', key_scope = 'replaced'", "exit 1", "cancelled"),
        ("idempotency_key = 'k', key_scope = 'replaced'", SNOOZE, "cancelled"),
    ] {
        let db = TestDb::new();
        let run = end_first_attempt_after(&db, end, None, |run| {
            db.execute_without_triggers(&format!(
                "UPDATE jobctl.job_runs SET {change} WHERE id = {run}"
            ));
        });
        let columns = "status, run_at < now() - interval '50 minutes'";
        assert_eq!(db.of_run(run, columns), format!("{status}|t"), "{change} {end}");
        assert_eq!(db.query(WAITED_TENS_OF_MINUTES), "6", "{change} {end}");
    }
}
