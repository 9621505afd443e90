//! `undo`: what a retry, a cancel, an edit or a settle changed comes back, unless it has changed
//! since.

use crate::support::{Finished, TestDb, temp_dir};

const COLUMNS: &str = "status, queue, priority, run_at, expires_at, max_attempts, \
    granted_attempts, timeout, backoff, key_scope, cancel_requested_at, last_error, error_type, \
    finished_at, settled_at, attempts";

/// The ids of four runs. The last two wait, and only the first of them expires.
struct Ids {
    dead: i64,
    cancelled: i64,
    expiring: i64,
    waiting: i64,
}

fn db_with_runs() -> (TestDb, Ids) {
    let db = TestDb::new();
    let dead = enqueue_run_that_dies(&db);
    db.jobctl(["tick"]).run().success();
    let expiring = db.enqueue(["shell", "--in", "1h", "--expires-in", "3h", "--", "true"]);
    let cancelled = enqueue_with_live_key(&db);
    db.jobctl(["cancel", &cancelled.to_string()]).run().success();
    let waiting = db.enqueue(["shell", "--in", "2h", "--", "true"]);
    (db, Ids { dead, cancelled, expiring, waiting })
}

/// Enqueues a run that is dead after its only attempt.
fn enqueue_run_that_dies(db: &TestDb) -> i64 {
    db.enqueue(["shell", "--max-attempts", "1", "--", "sh", "-c", "echo no; exit 3"])
}

/// Enqueues a waiting run with a key that only one waiting or running run can have.
fn enqueue_with_live_key(db: &TestDb) -> i64 {
    db.enqueue(["shell", "--key", "k", "--key-scope", "live", "--in", "2h", "--", "true"])
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
    let (db, ids) = db_with_runs();
    let (cancelled, expiring) = (ids.cancelled.to_string(), ids.expiring.to_string());
    let before = runs(&db);
    // Each command changes some of the runs.
    for command in [
        &["retry", "--all-dead", "--yes"][..],
        &["retry", "--all-cancelled", "--yes"],
        &["retry", &cancelled, "--now"],
        &["cancel", "--all-waiting", "--yes"],
        &["settle", "--all-dead", "--yes"],
        &[
            "edit",
            &expiring,
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
        &["retry", &expiring],
    ] {
        db.jobctl(command.iter().copied()).run().success();
        assert_ne!(runs(&db), before, "{command:?}");
        let operation = newest(&db);
        let undone = undo(&db, &operation).success();
        assert!(undone.stdout.starts_with("undone\t"), "{command:?}: {undone}");
        assert_eq!(runs(&db), before, "{command:?}");
        // A second undo finds nothing to undo.
        undo(&db, &operation).exits(4).stderr_has("it has changed since");
        assert_eq!(runs(&db), before, "{command:?}");
    }
}

#[test]
fn a_run_that_has_changed_since_is_named_and_stays() {
    let db = TestDb::new();
    let [unchanged, changed] = [(); 2].map(|()| enqueue_run_that_dies(&db));
    db.jobctl(["tick"]).run().success();
    db.jobctl(["retry", "--all-dead", "--yes"]).run().success();
    let operation = newest(&db);
    // A tick attempts one of the retried runs again, before the undo.
    db.jobctl(["tick", "--run", &changed.to_string()]).run();
    let undone = undo(&db, &operation).exits(4);
    assert_eq!(undone.stdout, format!("undone\t{unchanged}\n"));
    undone.stderr_has(&format!("cannot undo run {changed}: it has changed since"));
    assert_eq!(db.of_run(unchanged, "status, attempts"), "dead|1");
    assert_eq!(db.of_run(changed, "status, attempts"), "dead|2");
    let trail = db.jobctl(["trail", "--action", "undo", "--format", "json-lines"]).run().success();
    trail
        .stdout_has(&format!("\"run_id\":{unchanged},"))
        .stdout_has("\"detail\":\"retry, was queued\"");
}

#[test]
fn an_undone_cancel_restores_a_graph_and_a_run_whose_key_is_free_again() {
    let db = TestDb::new();
    let first = db.enqueue(["shell", "--in", "1h", "--", "true"]);
    let follower = db.enqueue(["shell", "--after", &first.to_string(), "--", "true"]);
    let with_key = enqueue_with_live_key(&db);
    let before = runs(&db);
    db.jobctl(["cancel", "--all-waiting", "--yes"]).run().success();
    let operation = newest(&db);

    // A cancelled run gives up its live key. While another run has the key, the undo fails for it.
    let new_holder = enqueue_with_live_key(&db);
    undo(&db, &operation).stderr_has(&format!("cannot undo run {with_key}: "));

    // The key is free again, so a second undo restores that run, too.
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {new_holder}"));
    undo(&db, &operation);
    assert_eq!(runs(&db), before);

    // The follower waits for the first run again.
    db.execute(&format!("UPDATE jobctl.job_runs SET run_at = now() WHERE id = {first}"));
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(follower), "succeeded");
}

/// A dead run is retried, and a new run is enqueued to start after its end. The undo makes the
/// first run dead again, which is the end that the second waits for.
#[test]
fn an_undo_that_ends_a_run_again_starts_the_runs_that_wait_for_its_end() {
    let (db, Ids { dead, .. }) = db_with_runs();
    let id = dead.to_string();
    // The hold keeps the retried run queued until the undo.
    db.jobctl(["hold", "--all"]).run().success();
    db.jobctl(["retry", &id]).run().success();
    let operation = newest(&db);
    let follower = db.enqueue(["shell", "--after", &id, "--after-any-end", "--", "true"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(follower), "blocked");
    undo(&db, &operation).success();
    db.jobctl(["release", "--all"]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(dead), "dead");
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
    let (db, Ids { dead, .. }) = db_with_runs();
    // A command for one run does not mention `undo`.
    let (shown, _) = crate::retry::answer_at_terminal(&db, &format!("retry {dead}"), "");
    assert!(!shown.contains("undo"), "{shown}");
    undo(&db, &newest(&db)).success();
    // A command for many runs does.
    enqueue_run_that_dies(&db);
    db.jobctl(["tick"]).run().success();
    let (shown, _) = crate::retry::answer_at_terminal(&db, "retry --all-dead --yes", "");
    let operation = newest(&db);
    assert!(shown.contains(&format!("`jobctl undo {operation}` undoes it")), "{shown}");
}

#[test]
fn an_undo_of_an_unknown_command_fails() {
    let db = TestDb::new();
    undo(&db, "3fa94c01be").exits(3).stderr_has("no command `3fa94c01be` is in the trail");
}

#[test]
fn an_edited_payload_and_a_forced_retry_cannot_be_undone() {
    let (db, ids) = db_with_runs();
    let (edited, forced) = (ids.expiring.to_string(), ids.waiting.to_string());
    let folder = temp_dir();
    let payload = folder.path().join("payload.json");
    std::fs::write(&payload, r#"{"command": "false"}"#).unwrap();
    db.jobctl(["edit", &edited, "--payload-file", payload.to_str().unwrap()]).run().success();
    undo(&db, &newest(&db)).exits(4).stderr_has("can't be undone");

    // `undo` can't return a run to the worker from which `retry --force` took it.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'gone',
             locked_until = now() + interval '1 h', started_at = now() WHERE id = {forced}"
    ));
    db.jobctl(["retry", &forced, "--force"]).run().success();
    undo(&db, &newest(&db)).exits(4).stderr_has("can't be undone");
}
