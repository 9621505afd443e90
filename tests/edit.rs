//! `edit` changes what waits or is dead, and never what runs.

use std::fs;

use crate::cancel::{STATUSES, enqueue_in_status};
use crate::support::{Role, TestDb, jobctl, temp_dir, wait_until};

/// The columns that FLAGS change.
const VALUES: &str = "queue, priority, backoff, max_attempts, extract(epoch FROM timeout)::float8";
const FLAGS: [&str; 10] = [
    "--queue",
    "slow",
    "--priority",
    "-5",
    "--backoff",
    "fixed:5s",
    "--max-attempts",
    "20",
    "--timeout",
    "90s",
];

#[test]
fn edit_changes_waiting_and_dead_runs_and_refuses_others() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    for status in STATUSES {
        let id = enqueue_in_status(&db, status);
        let before = db.of_run(id, "job_runs::text");
        let edited = db.jobctl(["edit", &id.to_string()]).args(FLAGS).run();
        if matches!(status, "queued" | "failed" | "dead" | "blocked") {
            edited.success().stdout(&format!("{id}\tedited\n")).stderr("");
            assert_eq!(db.of_run(id, VALUES), "slow|-5|fixed:5s|20|90");
            assert_eq!(db.status(id), status);
        } else {
            edited.exits(4).stdout("").stderr(&format!(
                "jobctl: cannot edit run {id}: its status is {status}; only waiting \
                 and dead runs can be edited\n"
            ));
            assert_eq!(db.of_run(id, "job_runs::text"), before, "{status}");
        }
    }
    db.jobctl(["edit", "999999", "--priority", "1"]).run().exits(3).stdout("");
}

#[test]
fn edit_changes_the_time_of_waiting_runs_only() {
    let db = TestDb::new();
    let [queued, failed, dead] =
        ["queued", "failed", "dead"].map(|status| enqueue_in_status(&db, status));
    let time = "2126-01-02T03:04:05Z";
    let ids = [queued, failed, dead].map(|id| id.to_string());
    let edited = db.jobctl(["edit", "--run-at", time]).args(ids.iter().map(String::as_str)).run();
    edited.exits(4).stdout(&format!("{queued}\tedited\n{failed}\tedited\n")).stderr(&format!(
        "jobctl: cannot edit run {dead}: its status is dead; only waiting runs have a time; \
         a retry makes other runs due\n"
    ));
    for id in [queued, failed] {
        assert_eq!(db.of_run(id, &format!("run_at = '{time}'")), "t");
    }
    db.jobctl(["edit", "--in", "1h", &ids[0]]).run().success();
    assert_eq!(db.of_run(queued, "run_at = updated_at + interval '1 hour'"), "t");
    // The run does not start before its new time.
    db.jobctl(["tick", "--quiet"]).run().success();
    db.jobctl(["edit", "--in", "0s", &ids[0]]).run().success();
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.of_run(queued, "status, attempts"), "succeeded|1");
}

#[test]
fn edit_refuses_max_attempts_that_the_starts_so_far_use_up() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "failed");
    db.execute(&format!("UPDATE jobctl.job_runs SET attempts = 3 WHERE id = {id}"));
    let run = id.to_string();
    db.jobctl(["edit", &run, "--max-attempts", "3"]).run().exits(4).stdout("").stderr(&format!(
        "jobctl: cannot edit run {id}: its starts so far use up --max-attempts; give a larger \
         number\n"
    ));
    db.jobctl(["edit", &run, "--max-attempts", "4"]).run().success();
    assert_eq!(db.of_run(id, "max_attempts"), "4");
}

#[test]
fn a_retried_dead_run_uses_the_edited_values() {
    let db = TestDb::new();
    let folder = temp_dir();
    fs::write(folder.path().join("fixed"), r#"{"command": "echo fixed"}"#).unwrap();
    let id = db.enqueue_script("exit 64");
    let run = id.to_string();
    db.jobctl(["tick", "--quiet"]).run().success();
    let edit = db.jobctl(["edit", &run, "--queue", "slow", "--max-attempts", "2"]);
    edit.args(["--payload-file", "fixed"]).current_dir(folder.path()).run().success();
    assert_eq!(db.status(id), "dead");
    // The retried run waits in its new queue.
    db.jobctl(["retry", &run]).run().success();
    db.jobctl(["tick", "--quiet", "--queue", "default"]).run().success();
    assert_eq!(db.of_run(id, "status, max_attempts"), "queued|2");
    db.jobctl(["tick", "--quiet", "--queue", "slow"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|2");
    assert_eq!(db.of_attempt(id, 2, "output"), "fixed\n");
}

#[test]
fn a_run_that_is_claimed_meanwhile_is_not_edited() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]);
    let run = id.to_string();
    let claims = db.block_claims();
    let tick = db.jobctl(["tick", "--quiet"]).spawn();
    wait_until("the claim to wait", || db.sessions_waiting_for_locks() == 1);
    let edit = db.jobctl(["edit", &run, "--queue", "slow"]).spawn();
    wait_until("the edit to wait for the claim", || db.sessions_waiting_for_locks() == 2);
    drop(claims);
    let edit = edit.wait().exits(4);
    assert!(edit.stderr.contains("its status is "), "{edit}");
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, queue"), "succeeded|default");
}

#[test]
fn a_tick_for_the_old_queue_does_not_claim_a_run_whose_queue_is_being_edited() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]);
    let mut client = db.client();
    let mut edit = client.transaction().unwrap();
    edit.batch_execute(&format!("UPDATE jobctl.job_runs SET queue = 'slow' WHERE id = {id}"))
        .unwrap();
    // The open transaction has locked the row, so the tick leaves the run.
    db.jobctl(["tick", "--quiet", "--queue", "default"]).run().success();
    assert_eq!(db.status(id), "queued");
    edit.commit().unwrap();
    db.jobctl(["tick", "--quiet", "--queue", "default"]).run().success();
    assert_eq!(db.status(id), "queued");
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn all_waiting_edits_the_runs_that_match_the_filters() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let ids = STATUSES.map(|status| enqueue_in_status(&db, status));
    let other = db.enqueue(["--queue", "mail", "--in", "1h", "shell", "--", "true"]);
    let edit = ["edit", "--all-waiting", "--from-queue", "mail", "--queue", "slow"];
    db.jobctl(edit).run().exits(2).stdout("").stderr_has("add --yes");
    db.jobctl(edit).args(["--dry-run"]).run().success().stdout("edited\t1\n");
    assert_eq!(db.of_run(other, "queue"), "mail");
    db.jobctl(edit).args(["--yes"]).run().success().stdout("edited\t1\n").stderr("");
    assert_eq!(db.of_run(other, "queue"), "slow");
    for id in ids {
        assert_eq!(db.of_run(id, "queue"), "default");
    }
    // Without a filter, all waiting runs are edited.
    let edit = ["edit", "--all-waiting", "--yes", "--verbose", "--priority", "7"];
    let [queued, _, _, failed, _, _, blocked] = ids;
    let lines = format!("{queued}\tedited\n{failed}\tedited\n{blocked}\tedited\n{other}\tedited\n");
    db.jobctl(edit).run().success().stdout(&lines);
    // A filter alone selects nothing.
    db.jobctl(["edit", "--from-queue", "mail", "--priority", "7"])
        .run()
        .exits(2)
        .stderr("jobctl: filters need --all-waiting; add it, or give run ids\n");
}

#[test]
fn the_trail_has_the_old_and_the_new_values() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "queued");
    db.execute("UPDATE jobctl.job_runs SET run_at = '2026-01-02 03:04:05.6Z'");
    // Returns the events since the last call.
    let events = || {
        let events = db.query("SELECT run_id, reason, detail FROM jobctl.job_events ORDER BY id");
        db.execute("DELETE FROM jobctl.job_events");
        events
    };
    let run = id.to_string();
    let edit = |flags: &[&str]| {
        let edit = db.jobctl(["edit", &run, "--reason", "why"]);
        edit.args(flags.iter().copied()).run().success();
    };
    edit(&FLAGS);
    assert_eq!(
        events(),
        format!(
            "{id}|why|queue default -> slow, priority 0 -> -5, max_attempts 10 -> 20, timeout \
             none -> 90s, backoff exponential:1m..30m -> fixed:5s"
        )
    );
    edit(&FLAGS);
    assert_eq!(events(), "", "nothing changed");
    edit(&["--timeout", "2m", "--run-at", "2027-01-01T01:00:00+01:00"]);
    assert_eq!(
        events(),
        format!(
            "{id}|why|run_at 2026-01-02T03:04:05Z -> 2027-01-01T00:00:00Z, timeout 90s -> 120s"
        )
    );
    // The old and the new value of 900 characters do not both fit into 1000.
    let long = format!("list:{}1s", "1s,".repeat(300));
    edit(&["--backoff", &long]);
    edit(&["--backoff", &long.replace("1s", "2s")]);
    assert_eq!(db.query("SELECT max(length(detail)) FROM jobctl.job_events"), "1000");
    db.execute("DELETE FROM jobctl.job_events");
    let payload = r#"{"command": "echo secret"}"#;
    // A payload may hold a secret, so the event only says that it changed.
    let edit = db.jobctl(["edit", &run, "--payload-file", "-"]).stdin(payload);
    edit.run().success();
    assert_eq!(events(), format!("{id}||payload"));
}

#[test]
fn edit_checks_values_like_enqueue() {
    for (flag, value) in [
        ("--queue", "a b"),
        ("--from-queue", "a b"),
        ("--priority", "x"),
        ("--run-at", "tomorrow"),
        ("--in", "5"),
        ("--backoff", "1m"),
        ("--max-attempts", "0"),
        ("--max-attempts", "1001"),
        ("--timeout", "0s"),
    ] {
        let edit = jobctl(["edit", "1", flag, value]).run().exits(2).stdout("");
        edit.stderr_has(&format!("'{flag} "));
    }
    // Without a change, the error lists the flags.
    jobctl(["edit", "1"]).run().exits(2).stderr_has("--priority");
    let payload = ["--payload-file", "-"];
    jobctl(["edit", "--all-waiting", "--yes"]).args(payload).run().exits(2).stderr_has("--payload");
    jobctl(["edit", "1", "--in", "1s", "--run-at", "2026-01-01T00:00:00Z"]).run().exits(2);
}

#[test]
fn edit_checks_a_payload_like_enqueue() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'cat'\n");
    let [shell, defined] = [db.enqueue(["shell", "--", "true"]), db.enqueue(["a"])];
    let edit = |id: i64, payload: &str| {
        db.jobctl(["edit", &id.to_string(), "--payload-file", "-"]).stdin(payload).run()
    };
    for payload in ["", "{", r#"{"a": 1, "a": 2}"#] {
        edit(defined, payload).exits(2).complains_once();
        edit(shell, payload).exits(2).complains_once();
    }
    // A built-in job needs its keys. The payload of a definition may be any JSON.
    edit(shell, r#"{"url": "http://a.example"}"#).exits(2).complains_once().stderr_has("command");
    edit(defined, r#"{"url": "http://a.example"}"#).success();
    assert_eq!(db.of_run(defined, "payload"), r#"{"url": "http://a.example"}"#);
}

#[test]
fn an_operator_edits_all_but_payloads_and_other_roles_edit_nothing() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "queued").to_string();
    let operator = Role::granted(&db, "operator");
    operator.jobctl(["edit", &id, "--in", "1h"]).args(FLAGS).run().success();
    // None of these roles changes the run.
    let before = db.query("SELECT run::text FROM jobctl.job_runs AS run");
    let payload = r#"{"command": "id"}"#;
    let edit = operator.jobctl(["edit", &id, "--priority", "1", "--payload-file", "-"]);
    edit.stdin(payload).run().exits(7).stdout("").complains_once();
    for part in ["viewer", "enqueuer", "worker", "effects"] {
        let role = Role::granted(&db, part);
        role.jobctl(["edit", &id, "--priority", "1"]).run().exits(7).stdout("").complains_once();
    }
    assert_eq!(db.query("SELECT run::text FROM jobctl.job_runs AS run"), before);
    let edit = db.jobctl(["edit", &id, "--priority", "1", "--payload-file", "-"]);
    edit.stdin(payload).run().success();
    assert_eq!(db.query("SELECT payload, priority FROM jobctl.job_runs"), format!("{payload}|1"));
}
