//! How long an idempotency key is taken: with the scope `retained` as long as its run is kept, with
//! `live` as long as its run has not ended.

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
fn a_retained_key_stays_taken_until_its_run_is_deleted() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    for status in UNFINISHED.into_iter().chain(FINISHED) {
        let id = insert_with_key(&db, status, status, "retained");
        assert_eq!(enqueue_with_key_in_both_ways(&db, status, "retained"), [id, id], "{status}");
        let default = db.enqueue(["refresh", "--key", status]);
        assert_eq!(default, id, "retained is the default");
    }
    // Without these runs, the first enqueue makes a run again, and the second one returns it.
    db.execute("DELETE FROM jobctl.job_runs");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
    enqueue_with_key_in_both_ways(&db, "dead", "retained");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1");
}

/// Commands name their effects by `JOBCTL_IDEMPOTENCY_KEY`. Each run with the live key gets a value
/// of its own, with its id. With the retained key, the second enqueue makes no run, so only one run
/// prints the key.
#[test]
fn successive_runs_of_one_live_key_have_separate_effects() {
    let db = TestDb::new();
    // The scope of the key, and what its runs print.
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
    // Each job has a key of its own.
    for job in [["refresh", "{}"], ["shell", r#"{"command": "true"}"#]] {
        let enqueue = || {
            let key = ["--key", job[0], "--key-scope", "live"];
            db.jobctl(["enqueue"]).args(job).args(key).spawn()
        };
        // The second ten enqueues come after the first run has ended, so its key is free again.
        for _ in 0..2 {
            let asked: Vec<_> = (0..10).map(|_| enqueue()).collect();
            let mut ids: Vec<String> =
                asked.into_iter().map(|one| one.wait().success().stdout).collect();
            ids.dedup();
            assert_eq!(ids.len(), 1, "{ids:?}");
            db.jobctl(["tick"]).run().success();
        }
    }
    // Two runs of each job.
    assert_eq!(db.query("SELECT count(*), min(status) FROM jobctl.job_runs"), "4|succeeded");
}

#[test]
fn a_live_key_with_another_payload_is_a_conflict_only_while_its_run_lives() {
    let db = TestDb::new();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    let key = ["--key", "k", "--key-scope", "live"];
    let first = db.enqueue(["refresh", "[1]"].into_iter().chain(key));
    let refused = db.jobctl(["enqueue", "refresh", "[2]"]).args(key).run().exits(4).stdout("");
    refused.stderr(&format!(
        "jobctl: key `k` belongs to run {first} with another job or payload; use another key\n"
    ));
    let retained = db.enqueue(["refresh", "[2]", "--key", "k"]);
    assert_ne!(retained, first, "the scopes do not share their keys");
    db.jobctl(["tick"]).run().success();
    // The first run has ended, so the key is free for another payload.
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

/// The unfinished run itself can be retried, unless it is running: then its worker has it.
#[test]
fn an_unfinished_run_with_the_live_key_blocks_only_retries_of_other_runs() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    for status in UNFINISHED {
        let older = insert_with_key(&db, "dead", status, "live").to_string();
        let newer = insert_with_key(&db, status, status, "live").to_string();
        db.jobctl(["retry", &older])
            .run()
            .exits(4)
            .stderr_has("another unfinished run has its key");
        if status != "running" {
            db.jobctl(["retry", &newer]).run().success();
        }
    }
}

#[test]
fn a_live_key_taken_during_a_bulk_retry_blocks_only_its_run() {
    let db = TestDb::new();
    db.apply("[jobs.refresh]\nshell = 'true'\n");
    let [older, other] =
        [insert_with_key(&db, "dead", "k", "live"), enqueue_in_status(&db, "dead")];
    // An open transaction has enqueued a run with the key. It commits while the retry waits for it.
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
    for (key, scope, other_scope) in [("a", "live", "retained"), ("b", "retained", "live")] {
        let id = insert_with_key(&db, "dead", key, scope);
        insert_with_key(&db, "queued", key, other_scope);
        db.jobctl(["retry", &id.to_string()]).run().success();
    }
    // One retry takes both runs.
    for (key, scopes) in [("c", ["live", "retained"]), ("d", ["retained", "live"])] {
        let ids = scopes.map(|scope| insert_with_key(&db, "dead", key, scope));
        let [older, newer] = ids.map(|id| id.to_string());
        db.jobctl(["retry", &older, &newer]).run().success();
        assert_eq!(ids.map(|id| db.status(id)), ["queued", "queued"], "{scopes:?}");
    }
}

#[test]
fn a_newer_run_that_succeeded_does_not_block_the_retry_of_an_older_run_with_its_live_key() {
    let db = TestDb::new();
    let ids = ["dead", "succeeded"].map(|status| insert_with_key(&db, status, "k", "live"));
    let [older, newer] = ids.map(|id| id.to_string());
    // The newer run is refused because it succeeded, and not because of its key.
    db.jobctl(["retry", &older, &newer]).run().exits(4).stderr_has("its status is succeeded");
    assert_eq!(ids.map(|id| db.status(id)), ["queued", "succeeded"]);
}

/// One key can have many runs: one retained run, one unfinished live run, and any number of
/// finished live runs. An enqueue must find the run of its scope among them, in whatever order an
/// index or the table returns them.
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
        // One finished run has a smaller id than the others. Another gets a larger id, by SQL.
        finish(enqueue("live"));
        let retained = enqueue("retained");
        let other = enqueue("live");
        finish(other);
        let live = enqueue("live");
        db.execute(&format!("UPDATE jobctl.job_runs SET id = id + 1000000 WHERE id = {other}"));
        assert_eq!([enqueue("live"), enqueue("retained")], [live, retained], "{job:?}");
    }
}
