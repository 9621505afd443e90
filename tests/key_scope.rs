//! How long an idempotency key is taken: as long as its run is kept, or as long as it is not finished.

use crate::cancel::run_in;
use crate::support::{TestDb, wait_until};

const UNFINISHED: [&str; 3] = ["queued", "running", "failed"];
const FINISHED: [&str; 3] = ["succeeded", "dead", "cancelled"];

/// A run with this key, put into a status by SQL.
fn keyed(db: &TestDb, status: &str, key: &str, scope: &str) -> i64 {
    let id = run_in(db, status);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET job_type = 'refresh', payload = '{{}}', idempotency_key = '{key}',
         key_scope = '{scope}' WHERE id = {id}"
    ));
    id
}

fn again(db: &TestDb, key: &str, scope: &str) -> [i64; 2] {
    let sql = format!("SELECT jobctl.enqueue('refresh', key => '{key}', key_scope => '{scope}')");
    [db.enqueue(["refresh", "--key", key, "--key-scope", scope]), db.query(&sql).parse().unwrap()]
}

#[test]
fn a_live_key_is_free_again_when_its_run_is_finished() {
    let db = TestDb::new();
    db.leaves_running();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    for status in UNFINISHED {
        let id = keyed(&db, status, status, "live");
        assert_eq!(again(&db, status, "live"), [id, id], "{status}");
    }
    for status in FINISHED {
        let id = keyed(&db, status, status, "live");
        let [new, same] = again(&db, status, "live");
        assert!(new != id && new == same, "{status}");
    }
}

#[test]
fn a_retained_key_holds_as_long_as_its_run_is_kept() {
    let db = TestDb::new();
    db.leaves_running();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    for status in UNFINISHED.into_iter().chain(FINISHED) {
        let id = keyed(&db, status, status, "retained");
        assert_eq!(again(&db, status, "retained"), [id, id], "{status}");
        let default = db.enqueue(["refresh", "--key", status]);
        assert_eq!(default, id, "retained is the default");
    }
    db.execute("DELETE FROM jobctl.job_runs");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
    again(&db, "dead", "retained");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1");
}

#[test]
fn the_effects_of_runs_that_had_one_live_key_after_the_other_are_not_the_same() {
    let db = TestDb::new();
    for (scope, told) in [("live", "jobctl-run-1\njobctl-run-2"), ("retained", "k")] {
        for _ in 0..2 {
            db.enqueue(["shell", "--key", "k", "--key-scope", scope, "--", "printenv", "JOBCTL_IDEMPOTENCY_KEY"]);
            db.jobctl(["tick"]).run().success();
        }
        assert_eq!(db.query("SELECT trim(output, E'\\n') FROM jobctl.job_attempts ORDER BY run_id"), told);
        db.execute("DELETE FROM jobctl.job_runs");
    }
}

#[test]
fn a_refresh_that_is_asked_for_ten_times_waits_once() {
    let db = TestDb::new();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    for built_in in [false, true] {
        let enqueue = || {
            let job = if built_in { ["shell", r#"{"command": "true"}"#] } else { ["refresh", "{}"] };
            db.jobctl(["enqueue"])
                .args(job)
                .args(["--key", if built_in { "b" } else { "d" }, "--key-scope", "live"])
                .spawn()
        };
        for _ in 0..2 {
            let asked: Vec<_> = (0..10).map(|_| enqueue()).collect();
            let mut ids: Vec<String> = asked.into_iter().map(|one| one.wait().success().stdout).collect();
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
    refused.stderr("jobctl: key `k` belongs to a run with another job or payload; use another key\n");
    let retained = db.enqueue(["refresh", "[2]", "--key", "k"]);
    assert_ne!(retained, first, "the scopes do not share their keys");
    db.jobctl(["tick"]).run().success();
    let second = db.enqueue(["refresh", "[2]"].into_iter().chain(key));
    assert!(second != first && second != retained);
}

#[test]
fn a_run_whose_live_key_went_to_another_run_is_not_retried_beside_it() {
    let db = TestDb::new();
    let older = keyed(&db, "dead", "k", "live");
    let newer = keyed(&db, "queued", "k", "live");
    db.jobctl(["retry", &older.to_string()])
        .run()
        .exits(4)
        .stdout("")
        .stderr(&format!("jobctl: cannot retry run {older}: its key is live in another run; cancel that one first\n"));
    db.jobctl(["cancel", &newer.to_string()]).run().success();
    db.jobctl(["retry", &older.to_string()]).run().success();
    assert_eq!(db.status(older), "queued");
}

#[test]
fn of_the_dead_runs_of_one_live_key_only_one_is_retried() {
    let db = TestDb::new();
    let runs = [keyed(&db, "dead", "k", "live"), keyed(&db, "dead", "k", "live")];
    let other = run_in(&db, "dead");
    let said = format!("jobctl: cannot retry run {}: its key is live in another run; cancel that one first\n", runs[0]);
    db.jobctl(["retry", "--all-dead"]).run().exits(4).stderr(&said);
    assert_eq!(db.status(other), "queued");
    assert_eq!(runs.map(|id| db.status(id)), ["dead", "queued"], "the newest has the key");
}

#[test]
fn a_key_scope_needs_a_key_and_is_one_of_two_words() {
    let db = TestDb::new();
    db.jobctl(["enqueue", "shell", "--key-scope", "live", "--", "true"]).run().exits(2);
    db.jobctl(["enqueue", "shell", "--key", "k", "--key-scope", "forever", "--", "true"]).run().exits(2);
    let line = r#"{"job": "shell", "payload": {"command": "true"}, "key": "k", "key_scope": "forever"}"#;
    db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().exits(2).complains_once();
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn a_live_key_holds_up_a_retry_as_long_as_its_run_is_not_finished_and_never_that_of_its_own_run() {
    let db = TestDb::new();
    db.leaves_running();
    for status in UNFINISHED {
        let older = keyed(&db, "dead", status, "live").to_string();
        let heir = keyed(&db, status, status, "live").to_string();
        db.jobctl(["retry", &older]).run().exits(4).stderr_has("its key is live in another run");
        if status != "running" {
            db.jobctl(["retry", &heir]).run().success();
        }
    }
}

#[test]
fn a_live_key_that_is_taken_while_a_retry_is_under_way_is_refused_and_the_other_runs_are_retried() {
    let db = TestDb::new();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    let [older, other] = [keyed(&db, "dead", "k", "live"), run_in(&db, "dead")];
    let mut enqueuer = db.client();
    enqueuer.batch_execute("BEGIN; SELECT jobctl.enqueue('refresh', key => 'k', key_scope => 'live')").unwrap();
    let retry = db.jobctl(["retry", "--all-dead"]).spawn();
    wait_until("the retry to wait for the key", || {
        let waits = "datname = current_database() AND wait_event = 'transactionid'";
        db.query(&format!("SELECT count(*) FROM pg_stat_activity WHERE {waits}")) == "1"
    });
    enqueuer.batch_execute("COMMIT").unwrap();
    let why = format!("jobctl: cannot retry run {older}: its key is live in another run; cancel that one first\n");
    retry.wait().exits(4).stdout(&format!("{other}\tqueued\n")).stderr(&why);
}

#[test]
fn a_key_of_one_scope_holds_up_no_retry_in_the_other() {
    let db = TestDb::new();
    for (key, scope, other) in [("a", "live", "retained"), ("b", "retained", "live")] {
        let id = keyed(&db, "dead", key, scope);
        keyed(&db, "queued", key, other);
        db.jobctl(["retry", &id.to_string()]).run().success();
    }
    // Nor when both are asked for at once, nor where the newer run succeeded and keeps no key.
    for (key, older, newer, retried) in [
        ("c", ("dead", "live"), ("dead", "retained"), ["queued", "queued"]),
        ("d", ("dead", "retained"), ("dead", "live"), ["queued", "queued"]),
        ("e", ("dead", "live"), ("succeeded", "live"), ["queued", "succeeded"]),
    ] {
        let ids = [older, newer].map(|(status, scope)| keyed(&db, status, key, scope));
        db.jobctl(["retry"]).args(ids.map(|id| id.to_string()).iter().map(String::as_str)).run();
        assert_eq!(ids.map(|id| db.status(id)), retried, "{older:?} {newer:?}");
    }
}

#[test]
fn a_key_finds_its_own_run_among_those_of_the_other_scope_and_those_that_are_finished() {
    let db = TestDb::new();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    for job in [["refresh", "{}"], ["shell", "{\"command\": \"true\"}"]] {
        let enqueue = |scope| db.enqueue(job.into_iter().chain(["--key", job[0], "--key-scope", scope]));
        let finish = |id: i64| {
            db.execute(&format!("UPDATE jobctl.job_runs SET status = 'dead', finished_at = now() WHERE id = {id}"));
        };
        // Finished ones lie before and behind.
        finish(enqueue("live"));
        let retained = enqueue("retained");
        let behind = enqueue("live");
        finish(behind);
        let live = enqueue("live");
        db.execute(&format!("UPDATE jobctl.job_runs SET id = -id WHERE id = {behind}"));
        assert_eq!([enqueue("live"), enqueue("retained")], [live, retained], "{job:?}");
    }
}
