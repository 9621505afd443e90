//! A run that has not started by its `expires_at` never starts.

use std::time::Duration;

use crate::support::{TestDb, temp_dir, wait_until_within};

/// Makes a run expire now.
fn expire_now(db: &TestDb, id: i64) {
    db.execute(&format!("UPDATE jobctl.job_runs SET expires_at = now() WHERE id = {id}"));
}

/// Asserts that this run was cancelled because it had expired.
#[track_caller]
fn assert_expired(db: &TestDb, id: i64) {
    let columns = "status, error_type, last_error, finished_at IS NOT NULL";
    let expired = "cancelled|expired|expired: it did not start in time|t";
    assert_eq!(db.of_run(id, columns), expired);
}

#[test]
fn a_run_that_did_not_start_in_time_never_starts() {
    for limit in ["", "max_running = 3", "rate = '9/1s'"] {
        let db = TestDb::new();
        db.apply(&format!("[jobs.a]\nshell = 'true'\n{limit}\n"));
        let [late, other] = ["1s", "1h"].map(|time| db.enqueue(["a", "--expires-in", time]));
        expire_now(&db, late);
        let preview = db.jobctl(["tick", "--dry-run"]).run().success().stdout;
        assert!(preview.starts_with(&format!("{other}\t")), "{preview}");
        // The database rejects the end of the expired run. Nevertheless no claim takes the run, and
        // the other run starts.
        db.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN RAISE check_violation; END';
             CREATE TRIGGER refuse BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
                 WHEN (new.error_type = 'expired') EXECUTE FUNCTION refuse()",
        );
        db.jobctl(["tick"]).run().success();
        assert_eq!([late, other].map(|id| db.status(id)), ["queued", "succeeded"], "{limit}");
        db.execute("DROP TRIGGER refuse ON jobctl.job_runs");
        let tick = db.jobctl(["tick"]).run().success();
        assert!(tick.stderr.contains("1 run expired"), "{}", tick.stderr);
        assert_expired(&db, late);
        assert_eq!(
            db.query("SELECT expired, dead, last_status FROM jobctl.daily_figures"),
            "1|0|succeeded"
        );
        let metrics = db.jobctl(["status", "--prometheus"]).run().success().stdout;
        assert!(metrics.contains("jobctl_expired_total{job_type=\"a\"} 1\n"), "{metrics}");
    }
}

#[test]
fn every_way_to_enqueue_sets_expires_at() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nexpires = '2h'\n");
    let lines = r#"{"job_type": "a", "expires_in": "10m"}
{"job_type": "shell", "payload": {"command": "true"}, "in": "1m", "expires_in": "10m"}
{"job_type": "shell", "payload": {"command": "true"}, "idempotency_key": "k", "expires_in": "10m"}
{"job_type": "a"}"#;
    db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
    db.query("SELECT jobctl.enqueue('a', run_in => '1 day', expires_in => '10 minutes')");
    // Only the last line of the batch has the two hours of its definition.
    let waits = "SELECT expires_at - run_at, count(*) FROM jobctl.job_runs GROUP BY 1 ORDER BY 1";
    assert_eq!(db.query(waits), "00:10:00|4\n02:00:00|1");
    // Values out of range.
    db.jobctl(["enqueue", "a", "--expires-in", "0s"]).run().exits(2).stdout("");
    let refused = [
        "expires_in => '0'",
        "expires_in => '4000 days'",
        "expires_in => '1 day', run_at => '9999-12-31 12:00Z'",
    ];
    for arguments in refused {
        let error = db.try_query(&format!("SELECT jobctl.enqueue('a', {arguments})"));
        let error = error.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "22023", "{arguments}");
        assert!(error.message().starts_with("expires_in is out of range"), "{error}");
    }
}

#[test]
fn the_runs_of_a_schedule_expire() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\nexpires = '1h'\n");
    db.execute(
        "UPDATE jobctl.job_definitions
             SET next_run_at = date_trunc('minute', now()) - interval '5 minutes'",
    );
    db.jobctl(["tick"]).run().success();
    let first_run = 1;
    assert_eq!(db.of_run(first_run, "status, expires_at - run_at"), "succeeded|01:00:00");
}

#[test]
fn a_failed_run_expires_before_its_next_attempt_and_a_running_one_does_not() {
    let db = TestDb::new();
    let gate = crate::support::Gate::new();
    let failed =
        db.enqueue(["shell", "--backoff", "fixed:1h", "--expires-in", "10m", "--", "false"]);
    let running = gate.enqueue(&db);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET expires_at = now() + interval '1 hour' WHERE id = {running}"
    ));
    let tick = db.jobctl(["tick"]).spawn();
    gate.wait_for_starts(1);
    db.wait_for_status(failed, "failed");
    // Both runs expire while one waits for its next attempt and the other one runs.
    expire_now(&db, failed);
    expire_now(&db, running);
    db.jobctl(["tick", "--worker", "other"]).run().success();
    assert_expired(&db, failed);
    assert_eq!(db.status(running), "running");
    gate.open();
    tick.wait().success();
    assert_eq!(db.status(running), "succeeded");
    assert_eq!(
        db.of_attempt(failed, 1, "error_type"),
        "exit_code",
        "the history keeps the failure"
    );
}

#[test]
fn a_held_run_expires_and_a_retried_one_does_not() {
    let db = TestDb::new();
    let run = db.enqueue(["shell", "--expires-in", "1h", "--", "true"]);
    db.jobctl(["hold", "--all"]).run().success();
    expire_now(&db, run);
    db.jobctl(["show", &run.to_string()]).run().success().stdout_has("the next tick cancels it");
    db.jobctl(["tick"]).run().success();
    assert_expired(&db, run);
    // A retry removes the expiry.
    db.jobctl(["release", "--all"]).run().success();
    db.jobctl(["retry", &run.to_string()]).run().success();
    assert_eq!(db.of_run(run, "status, error_type, last_error"), "queued||");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(run, "status, expires_at"), "succeeded|");
}

#[test]
fn runs_that_cannot_be_cancelled_do_not_keep_others_from_expiring() {
    let db = TestDb::new();
    let insert = |runs: u32, ago: &str| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, payload, expires_at)
             SELECT 'shell', '{{\"command\": \"true\"}}', now() - interval '{ago}'
             FROM generate_series(1, {runs})",
        ));
    };
    // The database rejects the end of the first 600 runs, which expired before the others.
    insert(600, "2 hours");
    crate::bulk::reject_changes_of(&db, "OLD.id <= 600");
    insert(100, "1 hour");
    // A tick tries for a limited time, in random order.
    wait_until_within(Duration::from_secs(120), "all others to expire", || {
        db.jobctl(["tick"]).run().success();
        db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1 ORDER BY 1")
            == "cancelled|100\nqueued|600"
    });
}

#[test]
fn a_retried_cancelled_run_keeps_its_expiry_unless_it_is_made_due_now() {
    let db = TestDb::new();
    let run = db.enqueue(["shell", "--in", "1h", "--expires-in", "10m", "--", "true"]);
    let id = run.to_string();
    for (flags, lasts) in [(&[][..], "00:10:00"), (&["--now"], "")] {
        db.jobctl(["cancel", &id]).run().success();
        db.jobctl(["retry", &id]).args(flags.iter().copied()).run().success();
        assert_eq!(db.of_run(run, "expires_at - run_at"), lasts);
    }
}

#[test]
fn edit_moves_expires_at_and_replace_resets_it() {
    let db = TestDb::new();
    let key = ["--key", "k", "--key-scope", "live", "--on-conflict", "replace"];
    // The first enqueue makes run 1, and the others replace it.
    let enqueue = |arguments: &[&str]| {
        let enqueue = db.jobctl(["enqueue", "shell"]).args(key).args(arguments.iter().copied());
        enqueue.args(["--", "true"]).run().success().stdout("1\n");
    };
    let lasts = || db.of_run(1, "expires_at - run_at");
    enqueue(&["--in", "1h", "--expires-in", "5m"]);
    db.jobctl(["edit", "1", "--in", "3h"]).run().success();
    assert_eq!(lasts(), "00:05:00");
    assert_eq!(db.of_run(1, "run_at > now() + interval '2 hours'"), "t");
    enqueue(&["--expires-in", "7m"]);
    assert_eq!(lasts(), "00:07:00");
    enqueue(&[]);
    assert_eq!(lasts(), "");
}

#[test]
fn an_edited_run_without_an_expiry_never_expires() {
    let db = TestDb::new();
    let first = db.enqueue(["shell", "--", "true"]);
    let follower = db.enqueue(["shell", "--after", &first.to_string(), "--", "true"]);
    let later = db.enqueue(["shell", "--expires-in", "5m", "--", "true"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET expires_at = '9999-12-31 23:59:59Z' WHERE id = {later}"
    ));
    db.jobctl(["edit", "--all-waiting", "--in", "1h", "--yes"]).run().success();
    let expires = "SELECT string_agg(coalesce(expires_at::text, 'never'), ' ' ORDER BY id)
                   FROM jobctl.job_runs";
    assert_eq!(db.query(expires), "never never 9999-12-31 23:59:59+00");
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '1 hour'");
    // A release moves the expiry, but at most to the last time that the schema accepts.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET expires_at = '9999-12-31 23:59:59Z' WHERE id = {follower}"
    ));
    db.jobctl(["tick"]).run().success().stderr_has("succeeded");
    assert_eq!([first, follower, later].map(|id| db.status(id)), ["succeeded"; 3]);
}

#[test]
fn a_claimed_run_that_expires_before_its_start_does_not_start() {
    let db = TestDb::new();
    let folder = temp_dir();
    let started = folder.path().join("started");
    let id = db.enqueue_script(&format!("touch {}", started.display()));
    // A trigger lets the run expire right after its claim, before the answer arrives.
    db.execute(
        "CREATE FUNCTION public.expire() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN NEW.expires_at = now() + interval '1 microsecond'; RETURN NEW; END $$;
         CREATE TRIGGER expire BEFORE UPDATE ON jobctl.job_runs
             FOR EACH ROW WHEN (NEW.status = 'running') EXECUTE FUNCTION public.expire()",
    );
    // The first tick releases the claim without an attempt; the second one ends the expired run.
    db.jobctl(["tick"]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts, error_type"), "cancelled|0|expired");
    assert!(!started.exists());
}

#[test]
fn log_and_show_say_that_a_run_expires_before_its_next_attempt() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--backoff", "fixed:1h", "--expires-in", "10m", "--", "false"]);
    let in_time = ["--backoff", "fixed:1m", "--expires-in", "1h", "--", "false"];
    let other = db.enqueue(["shell"].into_iter().chain(in_time));
    let tick = db.jobctl(["tick"]).run().success().stderr;
    let line = |id| {
        let of_run = |line: &&str| line.contains(&format!(" run {id} "));
        tick.lines().find(of_run).unwrap_or_else(|| panic!("{tick}")).to_owned()
    };
    assert!(line(id).ends_with(", expires before its next attempt"), "{tick}");
    assert!(line(other).contains(", next attempt in "), "{tick}");
    let why = |id: i64| {
        let shown = db.jobctl(["show", &id.to_string(), "--json"]).run().success().stdout;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        shown["why_not_running"].as_str().unwrap().to_owned()
    };
    assert!(why(id).ends_with(", before it is due"), "{}", why(id));
    assert!(why(other).starts_with("attempt 2 of 10 is due in "), "{}", why(other));
    // A run that lost its lease expires before its next attempt, too.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', locked_by = 'gone', locked_until = now(), \
         started_at = now() WHERE id = {id}"
    ));
    let tick = db.jobctl(["tick"]).run().success();
    tick.stderr_has("lease of worker gone expired, expires before its next attempt");
}

#[test]
fn a_run_expires_before_the_year_10000() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    let why = "is out of range; the run would expire after the year 9999\n";
    for job in [&["a"][..], &["shell", "--", "true"]] {
        let enqueue = |at: &str| {
            let flags = ["enqueue", "--expires-in", "2d", "--run-at", at];
            db.jobctl(flags.iter().copied().chain(job.iter().copied())).run()
        };
        enqueue("9999-12-30T00:00:01Z")
            .exits(2)
            .stdout("")
            .stderr_has(&format!("--expires-in {why}"));
        enqueue("9999-12-29T23:59:59Z").success().stderr("");
    }
    // The flags are the defaults of a batch.
    let line = r#"{"job_type": "shell", "payload": {"command": "true"}, "run_at": "#;
    let lines = format!("{line}\"2030-01-01T00:00:00Z\"}}\n{line}\"9999-12-31T00:00:00Z\"}}\n");
    let batch = db.jobctl(["enqueue", "--batch", "-", "--expires-in", "2d"]).stdin(lines);
    batch.run().exits(2).stderr_has(&format!("batch line 2: `expires_in` {why}"));
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "2");
    // An edit of the time moves the expiry, too, but at most to the end of the year 9999.
    let id = db.enqueue(["a", "--in", "1h", "--expires-in", "2d"]);
    db.jobctl(["edit", &id.to_string(), "--run-at", "9999-12-31T00:00:00Z"]).run().success();
    let expires = "to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')";
    assert_eq!(db.of_run(id, expires), "9999-12-31 23:59:59");
}

/// Returns a database with a worker and two runs that have been due for two hours. The first, of
/// this job, expired an hour ago, but no tick has cancelled it yet.
fn db_with_expired_run(job: &str) -> (TestDb, [i64; 2]) {
    let db = TestDb::new();
    db.apply("[jobs.mail]\nshell = 'true'\n[jobs.other]\nshell = 'true'\n");
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    let [expired, due] = [job, "other"].map(|job| db.enqueue([job]));
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET run_at = now() - interval '2 hours',
             created_at = now() - interval '2 hours';
         UPDATE jobctl.job_runs SET expires_at = now() - interval '1 hour' WHERE id = {expired}"
    ));
    (db, [expired, due])
}

/// No claim takes an expired run, so it is not overdue: no worker and no queue would help.
#[test]
fn an_expired_run_is_not_overdue() {
    let (db, [_, due]) = db_with_expired_run("mail");
    let found = db.jobctl(["check"]).run().exits(1).prints_nowhere(" of mail ");
    found.stdout_has("1 run of other is overdue").stdout_has(&format!("run {due})"));
    db.execute("UPDATE jobctl.job_workers SET queues = '{elsewhere}'");
    let found = db.jobctl(["check"]).run().exits(1);
    found.stdout_has("no worker serves queue default, which has 1 overdue run");
    db.execute("UPDATE jobctl.job_workers SET queues = '{}', excluded_kinds = '{shell}'");
    db.jobctl(["check"]).run().exits(1).prints_nowhere(" of mail, which has");
}

#[test]
fn an_expired_run_is_due_in_no_figure() {
    let (db, _) = db_with_expired_run("mail");
    let status = db.jobctl(["status", "--json"]).run().success().stdout;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let job = |rows: &str, job: Option<&str>| {
        let rows = status[rows].as_array().unwrap();
        let row = rows.iter().find(|row| row["job_type"].as_str() == job);
        row.map(|row| row["due_runs"].clone())
    };
    assert_eq!(job("jobs", Some("mail")), Some(0.into()), "{status}");
    assert_eq!(job("jobs", Some("other")), Some(1.into()), "{status}");
    assert_ne!(job("flow", Some("mail")), Some(1.into()), "{status}");
    assert_ne!(job("flow", None), Some(2.into()), "{status}");
    let metrics = db.jobctl(["status", "--prometheus"]).run().success();
    metrics
        .stdout_has("jobctl_due_runs{job_type=\"mail\"} 0\n")
        .stdout_has("jobctl_oldest_due_age_seconds{job_type=\"mail\"} 0\n")
        // The run is queued until a tick cancels it.
        .stdout_has("jobctl_runs{job_type=\"mail\",status=\"queued\"} 1\n");
}

/// The next tick cancels the expired run, and starts the other one.
#[test]
fn show_dry_run_and_metrics_do_not_count_an_expired_run_as_ahead_or_held() {
    let (db, [_, due]) = db_with_expired_run("other");
    let shown = db.jobctl(["show", &due.to_string()]).run().success();
    shown.prints_nowhere("due run is ahead of it").prints_nowhere("due runs are ahead of it");
    let claims = db.jobctl(["tick", "--dry-run"]).run().success().stdout;
    assert!(claims.starts_with(&format!("{due}\t")) && claims.lines().count() == 1, "{claims}");
    db.jobctl(["hold", "--all"]).run().success();
    let metrics = db.jobctl(["status", "--prometheus"]).run().success();
    metrics.stdout_has("jobctl_held_runs{scope=\"all\",name=\"\"} 1\n");
}
