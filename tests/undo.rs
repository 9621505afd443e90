//! `undo`: what a retry, a cancel, an edit or a settle changed comes back, unless it has changed
//! since.

use crate::support::{Finished, TestDb, temp_dir};

const COLUMNS: &str = "status, queue, priority, run_at, expires_at, max_attempts, \
    granted_attempts, timeout, backoff, key_scope, cancel_requested_at, last_error, error_type, \
    finished_at, settled_at, attempts";

/// A dead, a waiting, a cancelled and a delayed run.
fn db_with_runs() -> TestDb {
    let db = TestDb::new();
    db.enqueue(["shell", "--max-attempts", "1", "--", "sh", "-c", "echo no; exit 3"]);
    db.jobctl(["tick"]).run().success();
    db.enqueue(["shell", "--in", "1h", "--expires-in", "3h", "--", "true"]);
    db.enqueue(["shell", "--key", "k", "--key-scope", "live", "--in", "2h", "--", "true"]);
    db.jobctl(["cancel", "3"]).run().success();
    db.enqueue(["shell", "--in", "2h", "--", "true"]);
    db
}

fn runs(db: &TestDb) -> String {
    db.query(&format!("SELECT id, {COLUMNS} FROM jobctl.job_runs ORDER BY id"))
}

/// Returns the name by which `undo` finds the newest command that changed runs.
fn newest(db: &TestDb) -> String {
    db.query(
        "SELECT operation FROM jobctl.job_events WHERE operation IS NOT NULL
         ORDER BY id DESC LIMIT 1",
    )
}

fn undo(db: &TestDb, operation: &str) -> Finished {
    db.jobctl(["undo", operation]).run()
}

#[test]
fn each_command_for_runs_is_undone() {
    let db = db_with_runs();
    let before = runs(&db);
    for command in [
        &["retry", "--all-dead", "--yes"][..],
        &["retry", "--all-cancelled", "--yes"],
        &["retry", "3", "--now"],
        &["cancel", "--all-waiting", "--yes"],
        &["settle", "--all-dead", "--yes"],
        &[
            "edit",
            "2",
            "--in",
            "5h",
            "--priority",
            "-3",
            "--queue",
            "slow",
            "--max-attempts",
            "7",
            "--timeout",
            "9s",
            "--backoff",
            "fixed:1m",
        ],
        &["retry", "2"],
    ] {
        db.jobctl(command.iter().copied()).run().success();
        assert_ne!(runs(&db), before, "{command:?}");
        let operation = newest(&db);
        let undone = undo(&db, &operation).success();
        assert!(undone.stdout.starts_with("undone\t"), "{command:?}: {undone}");
        assert_eq!(runs(&db), before, "{command:?}");
        // There is nothing to undo any more.
        undo(&db, &operation).exits(4).stderr_has("it has changed since");
        assert_eq!(runs(&db), before, "{command:?}");
    }
}

#[test]
fn a_run_that_has_changed_since_is_named_and_stays() {
    let db = db_with_runs();
    db.enqueue(["shell", "--max-attempts", "1", "--", "sh", "-c", "exit 3"]);
    db.jobctl(["tick"]).run().success();
    db.jobctl(["retry", "--all-dead", "--yes"]).run().success();
    let operation = newest(&db);
    // A tick has attempted one of them again.
    db.jobctl(["tick", "--run", "5"]).run();
    let undone = undo(&db, &operation).exits(4);
    assert_eq!(undone.stdout, "undone\t1\n");
    undone.stderr_has("cannot undo run 5: it has changed since");
    assert_eq!(db.of_run(1, "status, attempts"), "dead|1");
    assert_eq!(db.of_run(5, "status, attempts"), "dead|2");
    let trail = db.jobctl(["trail", "--action", "undo", "--format", "json-lines"]).run();
    trail.success().stdout_has("\"run_id\":1,").stdout_has("\"detail\":\"retry, was queued\"");
}

#[test]
fn a_cancelled_graph_waits_again_and_a_lost_key_stays_lost() {
    let db = TestDb::new();
    let first = db.enqueue(["shell", "--in", "1h", "--", "true"]);
    let second = db.enqueue(["shell", "--after", &first.to_string(), "--", "true"]);
    db.enqueue(["shell", "--key", "k", "--key-scope", "live", "--in", "2h", "--", "true"]);
    let before = runs(&db);
    db.jobctl(["cancel", "--all-waiting", "--yes"]).run().success();
    let operation = newest(&db);
    // The key is free now, and another run takes it.
    let heir =
        db.enqueue(["shell", "--key", "k", "--key-scope", "live", "--in", "2h", "--", "true"]);
    undo(&db, &operation).stderr_has("cannot undo run 3: ");
    // With the key free again, the rest is undone.
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {heir}"));
    undo(&db, &operation);
    assert_eq!(runs(&db), before);
    db.execute("UPDATE jobctl.job_runs SET run_at = now() WHERE id = 1");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(second), "succeeded");
}

/// A dead run is retried, and a new run is enqueued to start after its end. The undo makes the
/// first run dead again, which is the end that the second waits for.
#[test]
fn an_undo_that_ends_a_run_again_starts_the_runs_that_wait_for_its_end() {
    let db = db_with_runs();
    // The hold keeps the retried run queued until the undo.
    db.jobctl(["hold", "--all"]).run().success();
    db.jobctl(["retry", "1"]).run().success();
    let operation = newest(&db);
    let follower = db.enqueue(["shell", "--after", "1", "--after-any-end", "--", "true"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(follower), "blocked");
    undo(&db, &operation).success();
    db.jobctl(["release", "--all"]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(1), "dead");
    assert_eq!(db.status(follower), "succeeded");
}

#[test]
fn an_undone_retry_of_a_blocked_run_does_not_block_it_again_if_its_predecessor_has_succeeded() {
    let db = TestDb::new();
    let first = db.enqueue(["shell", "--", "true"]);
    let after = first.to_string();
    let follower = db.enqueue(["shell", "--queue", "later", "--after", &after, "--", "true"]);
    // The retry releases `follower` before `first` has ended.
    db.jobctl(["retry", &follower.to_string()]).run().success();
    // Only `first` runs: `follower` is in the other queue.
    db.jobctl(["tick", "--queue", "default"]).run().success();
    undo(&db, &newest(&db)).success();
    // The undo leaves `follower` due, since `first` has succeeded meanwhile.
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(follower), "succeeded");
}

#[test]
fn a_bulk_command_at_a_terminal_prints_how_to_undo_it() {
    let db = db_with_runs();
    let (shown, _) = crate::retry::answer_at_terminal(&db, "retry 1", "");
    assert!(!shown.contains("undo"), "{shown}");
    undo(&db, &newest(&db)).success();
    db.enqueue(["shell", "--max-attempts", "1", "--", "sh", "-c", "exit 3"]);
    db.jobctl(["tick"]).run().success();
    let (shown, _) = crate::retry::answer_at_terminal(&db, "retry --all-dead --yes", "");
    let operation = newest(&db);
    assert!(shown.contains(&format!("`jobctl undo {operation}` undoes it")), "{shown}");
    undo(&db, "3fa94c01be").exits(3).stderr_has("no command `3fa94c01be` is in the trail");
}

#[test]
fn an_edited_payload_and_a_forced_retry_cannot_be_undone() {
    let db = db_with_runs();
    let folder = temp_dir();
    let payload = folder.path().join("payload.json");
    std::fs::write(&payload, r#"{"command": "false"}"#).unwrap();
    db.jobctl(["edit", "2", "--payload-file", payload.to_str().unwrap()]).run().success();
    undo(&db, &newest(&db)).exits(4).stderr_has("can't be undone");
    // `undo` can't return a run to the worker from which `retry --force` took it.
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'gone',
             locked_until = now() + interval '1 h', started_at = now() WHERE id = 4",
    );
    db.jobctl(["retry", "4", "--force"]).run().success();
    undo(&db, &newest(&db)).exits(4).stderr_has("can't be undone");
}
