//! How long an idempotency key is taken: as long as its run is kept, or as long as it is not
//! finished.

use crate::cancel::enqueue_in_status;
use crate::support::{TestDb, wait_until};

const UNFINISHED: [&str; 3] = ["queued", "running", "failed"];
const FINISHED: [&str; 3] = ["succeeded", "dead", "cancelled"];

/// Inserts a run of `refresh` with this key and status.
fn insert_with_key(db: &TestDb, status: &str, key: &str, scope: &str) -> i64 {
    let id = enqueue_in_status(db, status);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET job_type = 'refresh', payload = '{{}}', idempotency_key = \
            '{key}',
         key_scope = '{scope}' WHERE id = {id}"
    ));
    id
}

/// Enqueues `refresh` with this key by the command and by the SQL function, and returns the id of
/// each answer.
fn enqueue_with_key_in_both_ways(db: &TestDb, key: &str, scope: &str) -> [i64; 2] {
    let sql = format!("SELECT jobctl.enqueue('refresh', key => '{key}', key_scope => '{scope}')");
    [db.enqueue(["refresh", "--key", key, "--key-scope", scope]), db.query(&sql).parse().unwrap()]
}

#[test]
fn a_finished_run_frees_its_live_key() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    for status in UNFINISHED {
        let id = insert_with_key(&db, status, status, "live");
        assert_eq!(enqueue_with_key_in_both_ways(&db, status, "live"), [id, id], "{status}");
    }
    for status in FINISHED {
        let id = insert_with_key(&db, status, status, "live");
        let [new, same] = enqueue_with_key_in_both_ways(&db, status, "live");
        assert!(new != id && new == same, "{status}");
    }
}

#[test]
fn a_kept_run_holds_its_retained_key() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    for status in UNFINISHED.into_iter().chain(FINISHED) {
        let id = insert_with_key(&db, status, status, "retained");
        assert_eq!(enqueue_with_key_in_both_ways(&db, status, "retained"), [id, id], "{status}");
        let default = db.enqueue(["refresh", "--key", status]);
        assert_eq!(default, id, "retained is the default");
    }
    db.execute("DELETE FROM jobctl.job_runs");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
    enqueue_with_key_in_both_ways(&db, "dead", "retained");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1");
}

#[test]
fn successive_runs_of_one_live_key_have_separate_effects() {
    let db = TestDb::new();
    for (scope, keys) in [("live", "jobctl-run-1\njobctl-run-2"), ("retained", "k")] {
        for _ in 0..2 {
            db.enqueue([
                "shell",
                "--key",
                "k",
                "--key-scope",
                scope,
                "--",
                "printenv",
                "JOBCTL_IDEMPOTENCY_KEY",
            ]);
            db.jobctl(["tick"]).run().success();
        }
        assert_eq!(
            db.query("SELECT trim(output, E'\\n') FROM jobctl.job_attempts ORDER BY run_id"),
            keys
        );
        db.execute("DELETE FROM jobctl.job_runs");
    }
}

#[test]
fn ten_enqueues_with_one_live_key_make_one_run() {
    let db = TestDb::new();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    for built_in in [false, true] {
        let enqueue = || {
            let job =
                if built_in { ["shell", r#"{"command": "true"}"#] } else { ["refresh", "{}"] };
            db.jobctl(["enqueue"])
                .args(job)
                .args(["--key", if built_in { "b" } else { "d" }, "--key-scope", "live"])
                .spawn()
        };
        for _ in 0..2 {
            let asked: Vec<_> = (0..10).map(|_| enqueue()).collect();
            let mut ids: Vec<String> =
                asked.into_iter().map(|one| one.wait().success().stdout).collect();
            ids.dedup();
            assert_eq!(ids.len(), 1, "{ids:?}");
            db.jobctl(["tick"]).run().success();
        }
    }
    assert_eq!(db.query("SELECT count(*), min(status) FROM jobctl.job_runs"), "4|succeeded");
}

#[test]
fn a_live_key_with_another_payload_is_a_conflict_only_while_its_run_lives() {
    let db = TestDb::new();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    let key = ["--key", "k", "--key-scope", "live"];
    let first = db.enqueue(["refresh", "[1]"].into_iter().chain(key));
    let refused = db.jobctl(["enqueue", "refresh", "[2]"]).args(key).run().exits(4).stdout("");
    refused
        .stderr("jobctl: key `k` belongs to run 1 with another job or payload; use another key\n");
    let retained = db.enqueue(["refresh", "[2]", "--key", "k"]);
    assert_ne!(retained, first, "the scopes do not share their keys");
    db.jobctl(["tick"]).run().success();
    let second = db.enqueue(["refresh", "[2]"].into_iter().chain(key));
    assert!(second != first && second != retained);
}

#[test]
fn a_retry_is_refused_while_another_run_holds_its_live_key() {
    let db = TestDb::new();
    let older = insert_with_key(&db, "dead", "k", "live");
    let newer = insert_with_key(&db, "queued", "k", "live");
    db.jobctl(["retry", &older.to_string()]).run().exits(4).stdout("").stderr(&format!(
        "jobctl: cannot retry run {older}: another unfinished run has its key; cancel that run \
         first\n"
    ));
    db.jobctl(["cancel", &newer.to_string()]).run().success();
    db.jobctl(["retry", &older.to_string()]).run().success();
    assert_eq!(db.status(older), "queued");
}

#[test]
fn only_one_of_the_dead_runs_of_a_live_key_is_retried() {
    let db = TestDb::new();
    let runs =
        [insert_with_key(&db, "dead", "k", "live"), insert_with_key(&db, "dead", "k", "live")];
    let other = enqueue_in_status(&db, "dead");
    let said = format!(
        "jobctl: cannot retry run {}: another unfinished run has its key; cancel that run first\n",
        runs[0]
    );
    db.jobctl(["retry", "--all-dead", "--yes"]).run().exits(4).stderr(&said);
    assert_eq!(db.status(other), "queued");
    assert_eq!(runs.map(|id| db.status(id)), ["dead", "queued"], "the newest has the key");
}

#[test]
fn a_key_scope_needs_a_key_and_is_one_of_two_words() {
    let db = TestDb::new();
    db.jobctl(["enqueue", "shell", "--key-scope", "live", "--", "true"]).run().exits(2);
    db.jobctl(["enqueue", "shell", "--key", "k", "--key-scope", "forever", "--", "true"])
        .run()
        .exits(2);
    let line = concat!(
        r#"{"job_type": "shell", "payload": {"command": "true"}, "#,
        r#""idempotency_key": "k", "key_scope": "forever"}"#
    );
    db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().exits(2).complains_once();
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn an_unfinished_run_with_the_live_key_blocks_other_retries_only() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    for status in UNFINISHED {
        let older = insert_with_key(&db, "dead", status, "live").to_string();
        let heir = insert_with_key(&db, status, status, "live").to_string();
        db.jobctl(["retry", &older])
            .run()
            .exits(4)
            .stderr_has("another unfinished run has its key");
        if status != "running" {
            db.jobctl(["retry", &heir]).run().success();
        }
    }
}

#[test]
fn a_live_key_taken_during_a_bulk_retry_blocks_only_its_run() {
    let db = TestDb::new();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    let [older, other] =
        [insert_with_key(&db, "dead", "k", "live"), enqueue_in_status(&db, "dead")];
    let mut enqueuer = db.client();
    enqueuer
        .batch_execute("BEGIN; SELECT jobctl.enqueue('refresh', key => 'k', key_scope => 'live')")
        .unwrap();
    let retry = db.jobctl(["retry", "--all-dead", "--yes", "--verbose"]).spawn();
    wait_until("the retry to wait for the key", || {
        let waits = "datname = current_database() AND wait_event = 'transactionid'";
        db.query(&format!("SELECT count(*) FROM pg_stat_activity WHERE {waits}")) == "1"
    });
    enqueuer.batch_execute("COMMIT").unwrap();
    let why = format!(
        "jobctl: cannot retry run {older}: another unfinished run has its key; cancel that run \
         first\n"
    );
    retry.wait().exits(4).stdout(&format!("{other}\tqueued\n")).stderr(&why);
}

#[test]
fn a_live_key_and_a_retained_key_do_not_block_each_others_retry() {
    let db = TestDb::new();
    for (key, scope, other) in [("a", "live", "retained"), ("b", "retained", "live")] {
        let id = insert_with_key(&db, "dead", key, scope);
        insert_with_key(&db, "queued", key, other);
        db.jobctl(["retry", &id.to_string()]).run().success();
    }
    // The same holds for a retry of both, and after the newer run succeeded and freed its key.
    for (key, older, newer, retried) in [
        ("c", ("dead", "live"), ("dead", "retained"), ["queued", "queued"]),
        ("d", ("dead", "retained"), ("dead", "live"), ["queued", "queued"]),
        ("e", ("dead", "live"), ("succeeded", "live"), ["queued", "succeeded"]),
    ] {
        let ids = [older, newer].map(|(status, scope)| insert_with_key(&db, status, key, scope));
        db.jobctl(["retry"]).args(ids.map(|id| id.to_string()).iter().map(String::as_str)).run();
        assert_eq!(ids.map(|id| db.status(id)), retried, "{older:?} {newer:?}");
    }
}

#[test]
fn a_key_finds_its_run_among_other_scopes_and_finished_runs() {
    let db = TestDb::new();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    for job in [["refresh", "{}"], ["shell", "{\"command\": \"true\"}"]] {
        let enqueue =
            |scope| db.enqueue(job.into_iter().chain(["--key", job[0], "--key-scope", scope]));
        let finish = |id: i64| {
            db.execute(&format!(
                "UPDATE jobctl.job_runs SET status = 'dead', finished_at = now() WHERE id = {id}"
            ));
        };
        // Finished runs have smaller and larger ids.
        finish(enqueue("live"));
        let retained = enqueue("retained");
        let behind = enqueue("live");
        finish(behind);
        let live = enqueue("live");
        db.execute(&format!("UPDATE jobctl.job_runs SET id = -id WHERE id = {behind}"));
        assert_eq!([enqueue("live"), enqueue("retained")], [live, retained], "{job:?}");
    }
}
