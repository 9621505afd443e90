//! What `cancel` does to a run in each status.

use crate::retry::answered;
use crate::support::{TestDb, wait_until};

pub const STATUSES: [&str; 6] = ["queued", "running", "succeeded", "failed", "dead", "cancelled"];

/// A run that is put into a status by SQL, as if it had got there.
pub fn run_in(db: &TestDb, status: &str) -> i64 {
    let id = db.enqueue(["shell", "--", "true"]);
    let columns = match status {
        "queued" => "",
        "running" => ", attempts = 1, locked_by = 'elsewhere', locked_until = now() + interval '1 hour'",
        "failed" => ", attempts = 1, run_at = now() + interval '1 hour'",
        _ => ", attempts = 1, finished_at = now()",
    };
    db.execute(&format!("UPDATE jobctl.job_runs SET status = '{status}' {columns} WHERE id = {id}"));
    id
}

#[test]
fn a_waiting_run_is_cancelled_at_once_and_never_starts() {
    let db = TestDb::new();
    for status in ["queued", "failed"] {
        let id = run_in(&db, status).to_string();
        db.jobctl(["cancel", &id]).run().success().stdout(&format!("{id}\tcancelled\n"));
    }
    db.age();
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'cancelled' AND started_at IS NULL"), "2");
}

#[test]
fn a_waiting_run_is_cancelled_a_running_one_is_asked_to_end_and_a_final_one_is_refused() {
    let db = TestDb::new();
    db.leaves_running();
    let columns = "status, finished_at IS NOT NULL, cancel_requested_at IS NOT NULL, locked_by, attempts";
    for status in STATUSES {
        let id = run_in(&db, status);
        let before = db.of_run(id, "job_runs::text");
        let cancelled = db.jobctl(["cancel", &id.to_string()]).run();
        match status {
            "queued" | "failed" => {
                cancelled.success().stdout(&format!("{id}\tcancelled\n")).stderr("");
                let attempts = i32::from(status == "failed");
                assert_eq!(db.of_run(id, columns), format!("cancelled|t|t||{attempts}"), "{status}");
            }
            "running" => {
                cancelled.success().stdout(&format!("{id}\tcancel requested\n")).stderr("");
                assert_eq!(db.of_run(id, columns), "running|f|t|elsewhere|1");
                // Once more is no error, and the first request's time stays.
                let requested = db.of_run(id, "cancel_requested_at");
                db.jobctl(["cancel", &id.to_string()]).run().success().stdout(&format!("{id}\tcancel requested\n"));
                assert_eq!(db.of_run(id, "cancel_requested_at"), requested);
            }
            _ => {
                let why = format!(
                    "jobctl: cannot cancel run {id}: its status is {status}; only queued, failed and running runs can be \
                     cancelled\n"
                );
                cancelled.exits(4).stdout("").stderr(&why);
                assert_eq!(db.of_run(id, "job_runs::text"), before, "{status}");
            }
        }
    }
}

#[test]
fn each_id_gets_a_verdict_and_the_worst_is_the_exit_status() {
    let db = TestDb::new();
    db.leaves_running();
    let [queued, running, dead] = ["queued", "running", "dead"].map(|status| run_in(&db, status).to_string());
    let finished = db.jobctl(["cancel", &running, "999999", &queued, &running]).run().exits(3);
    let granted = format!("{running}\tcancel requested\n{queued}\tcancelled\n");
    finished.stdout(&granted).stderr("jobctl: cannot cancel run 999999: no such run\n");
    let finished = db.jobctl(["cancel", "--json", &dead, "9223372036854775807", &running]).run().exits(4).stderr("");
    let id = |text: &str| text.parse::<i64>().unwrap();
    let expected = serde_json::json!([
        {
            "id": id(&dead),
            "verdict": "refused",
            "reason": "its status is dead; only queued, failed and running runs can be cancelled",
        },
        {"id": i64::MAX, "verdict": "not found", "reason": "no such run"},
        {"id": id(&running), "verdict": "cancel requested"},
    ]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&finished.stdout).unwrap(), expected);
    db.jobctl(["cancel", "999998", "999999"]).run().exits(3).stdout("");
}

#[test]
fn a_cancelled_run_that_is_retried_runs() {
    let db = TestDb::new();
    let id = run_in(&db, "failed");
    db.jobctl(["cancel", &id.to_string()]).run().success();
    db.jobctl(["retry", &id.to_string()]).run().success();
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts, cancel_requested_at"), "succeeded|2|");
}

#[test]
fn cancelling_many_at_once_from_both_ends_ends_in_no_deadlock() {
    let db = TestDb::new();
    let ids: Vec<_> = (0..50).map(|_| "x").collect();
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload) \
         SELECT 'shell', '{{\"command\": \"true\"}}' FROM generate_series(1, {})",
        ids.len()
    ));
    let ids = db.query("SELECT id FROM jobctl.job_runs ORDER BY id");
    let (forward, backward) = (ids.lines(), ids.lines().rev());
    let both = [db.jobctl(["cancel"]).args(forward).spawn(), db.jobctl(["cancel"]).args(backward).spawn()];
    let answers = both.map(|one| one.wait().stdout.lines().count());
    assert_eq!(answers[0] + answers[1], 50);
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'cancelled'"), "50");
}

#[test]
fn all_waiting_runs_are_cancelled_or_those_that_the_filters_leave() {
    let db = TestDb::new();
    db.leaves_running();
    let ids = STATUSES.map(|status| (status, run_in(&db, status)));
    let [other, of_job] = [run_in(&db, "queued"), run_in(&db, "failed")];
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET job_type = 'report', created_at = now() - interval '2 days' WHERE id = {of_job}"
    ));
    db.jobctl(["cancel", "--all-waiting", "--job", "report", "--since", "1d"]).run().success().stdout("").stderr("");
    let cancelled = db.jobctl(["cancel", "--all-waiting", "--job", "report", "--until", "1d"]).run().success();
    cancelled.stdout(&format!("{of_job}\tcancelled\n")).stderr("");
    assert_eq!(db.status(other), "queued");
    db.jobctl(["cancel", "--all-waiting"]).run().success().stderr("").stdout(
        &ids.iter()
            .filter(|(status, _)| matches!(*status, "queued" | "failed"))
            .map(|(_, id)| *id)
            .chain([other])
            .map(|id| format!("{id}\tcancelled\n"))
            .collect::<String>(),
    );
    for (status, id) in ids {
        let now = if matches!(status, "queued" | "failed") { "cancelled" } else { status };
        assert_eq!(
            db.of_run(id, "status, cancel_requested_at IS NULL"),
            format!("{now}|{}", if now == status { "t" } else { "f" })
        );
    }
    let why = "jobctl: cannot tell which runs are meant; filters narrow down --all-waiting: add it\n";
    db.jobctl(["cancel", "--queue", "mail"]).run().exits(2).stdout("").stderr(why);
}

#[test]
fn a_terminal_is_asked_before_all_waiting_runs_are_cancelled() {
    let db = TestDb::new();
    let id = run_in(&db, "queued");
    let (shown, finished) = answered(&db, "cancel --all-waiting", "n");
    assert!(shown.contains("cancel 1 waiting run? [y/N] "), "{shown}");
    finished.exits(1);
    assert_eq!(db.status(id), "queued");
    answered(&db, "cancel --all-waiting", "y").1.success();
    assert_eq!(db.status(id), "cancelled");
}

#[test]
fn a_run_that_has_moved_on_since_it_was_found_is_left_alone() {
    let db = TestDb::new();
    db.leaves_running();
    for (command, status, becomes) in [
        (
            ["cancel", "--all-waiting"],
            "queued",
            "status = 'running', attempts = 1, locked_by = 'w', locked_until = now() + interval '1 hour'",
        ),
        (["retry", "--all-dead"], "dead", "status = 'cancelled'"),
    ] {
        let id = run_in(&db, status);
        let mut client = db.client();
        let mut other = client.transaction().unwrap();
        other.batch_execute(&format!("UPDATE jobctl.job_runs SET {becomes} WHERE id = {id}")).unwrap();
        let moved = other.query_one("SELECT run::text FROM jobctl.job_runs AS run WHERE id = $1", &[&id]).unwrap();
        let asked = db.jobctl(command).spawn();
        wait_until("the row to be waited for", || {
            db.query(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            ) == "1"
        });
        other.commit().unwrap();
        asked.wait().success().stdout("").stderr("");
        assert_eq!(db.of_run(id, "job_runs::text"), moved.get::<_, String>(0), "{command:?}");
    }
}
