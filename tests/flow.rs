//! Flow: what comes and goes, whether the backlog grows, and when it is empty.

use serde_json::{Value, json};

use crate::retry::answer_at_terminal;
use crate::support::{Role, TestDb};

/// Runs of `mail`, which may start once a second, and of `copy`: 300 due runs of mail, 20 of them
/// enqueued and due in the last 10 minutes, in which 50 others began and ended, and 5 attempts
/// failed.
fn db_with_backlog() -> TestDb {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.mail]\nshell = 'true'\nrate = '60/1m'\n[jobs.copy]\nshell = 'true'\n");
    db.execute(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, ticking_since, queues)
             VALUES ('web1', '0.1.0', now(), now(), '{}');
         INSERT INTO jobctl.job_runs (job_type, run_at, created_at)
             SELECT 'mail', at, at
             FROM (SELECT now() - CASE WHEN n <= 20
                 THEN interval '9 minutes' WHEN n <= 30 THEN interval '59 minutes'
                 ELSE interval '2 hours' END AS at FROM generate_series(1, 300) AS n) AS enqueued;
         INSERT INTO jobctl.job_runs (job_type, run_at) VALUES ('mail', now() + interval '1 day');
         UPDATE jobctl.job_runs SET created_at = now() - interval '2 hours' WHERE run_at > now();
         INSERT INTO jobctl.job_runs (job_type, status, attempts, created_at, run_at, started_at,
                 finished_at)
             SELECT 'mail', 'succeeded', 1, at - interval '2 hours', at - interval '2 hours', at, at
             FROM (SELECT now() - CASE WHEN n <= 50 THEN interval '9 minutes'
                 ELSE interval '30 minutes' END AS at FROM generate_series(1, 70) AS n) AS ended;
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
             SELECT id, 1, 'web1', now() - interval '10 minutes' * n, now() - interval '5 minutes',
                 'failed'
             FROM generate_series(0, 4) AS n, LATERAL (SELECT id + n AS id FROM jobctl.job_runs
                 WHERE status = 'queued' ORDER BY id LIMIT 1) AS run;
         INSERT INTO jobctl.job_runs (job_type, status, attempts, created_at, run_at, started_at,
                 locked_by, locked_until)
             SELECT 'copy', 'running', 1, at - interval '1 hour', at, at, 'web1',
                 now() + interval '1 minute'
             FROM (SELECT now() - interval '2 hours' AS at) AS begun",
    );
    db
}

/// Returns the rows of the field `flow` of `status`.
fn flow_in_status(db: &TestDb, more: &[&'static str]) -> Vec<Value> {
    let status = db.jobctl(["status", "--json"]).args(more.iter().copied()).run().success().stdout;
    let mut status: Value = serde_json::from_str(&status).unwrap();
    serde_json::from_value(status["flow"].take()).unwrap()
}

#[test]
fn status_shows_what_came_and_went_and_when_the_backlog_ends() {
    let db = db_with_backlog();
    let flow = flow_in_status(&db, &[]);
    let jobs: Vec<_> = flow.iter().map(|row| row["job_type"].clone()).collect();
    assert_eq!(jobs, [json!(null), json!("copy"), json!("mail")]);
    let mail = |name: &str| flow[2][name].clone();
    let counts = ["enqueued", "started", "succeeded", "failed"]
        .map(|what| ["10m", "1h"].map(|window| mail(&format!("{what}_{window}"))));
    // Of the five failed attempts, one started in the last 10 minutes, all in the last hour.
    assert_eq!(json!(counts), json!([[20, 30], [51, 75], [50, 70], [5, 5]]));
    assert_eq!((mail("due_runs"), mail("trend")), (json!(300), json!("shrinks")));
    // In 10 minutes, 50 left and 20 came; at best, one starts a second.
    assert_eq!(mail("empty_in_seconds"), json!(300.0 * 600.0 / 30.0));
    assert_eq!(mail("at_best_seconds"), json!(300.0));
    assert_eq!((&flow[1]["trend"], &flow[1]["empty_in_seconds"]), (&json!(null), &json!(null)));
    let longest = flow[1]["longest_running_seconds"].as_f64().unwrap();
    assert!((7200.0..7260.0).contains(&longest), "{longest}");
    let all = &flow[0];
    assert_eq!(
        (&all["due_runs"], &all["started_1h"], &all["at_best_seconds"]),
        (&json!(300), &json!(75), &json!(null))
    );
    assert_eq!(all["longest_running_seconds"], flow[1]["longest_running_seconds"]);

    let shown = db.jobctl(["status", "--format", "table"]).run().success().stdout;
    assert!(shown.contains("Flow (last 10 minutes/last hour)"), "{shown}");
    let row = shown.lines().find(|line| line.starts_with(" mail ") && line.contains("shrinks"));
    let words: Vec<_> = row.expect("a row").split_whitespace().collect();
    assert_eq!(words[1..], ["20/30", "50/70", "5/5", "shrinks", "1h", "40m", "5m"]);

    let metrics = db.jobctl(["status", "--prometheus"]).run().success().stdout;
    for sample in [
        "jobctl_flow_last_hour{job_type=\"mail\",what=\"enqueued\"} 30",
        "jobctl_flow_last_hour{job_type=\"mail\",what=\"started\"} 75",
        "jobctl_flow_last_hour{job_type=\"mail\",what=\"succeeded\"} 70",
        "jobctl_flow_last_hour{job_type=\"mail\",what=\"failed\"} 5",
        "jobctl_empty_in_seconds{job_type=\"mail\"} 6000",
        "jobctl_at_best_seconds{job_type=\"mail\"} 300",
        "jobctl_holds{scope=\"queue\"} 0",
    ] {
        assert!(metrics.contains(&format!("{sample}\n")), "{sample} in\n{metrics}");
    }
    Role::granted(&db, "viewer").jobctl(["status", "--json"]).run().success();
}

#[test]
fn the_backlog_grows_or_stays_if_more_or_as_many_runs_come_as_end() {
    let db = db_with_backlog();
    let trend = || {
        let mail = flow_in_status(&db, &["--job", "mail"]);
        assert_eq!(mail.len(), 1);
        (mail[0]["trend"].clone(), mail[0]["empty_in_seconds"].clone())
    };
    let enqueue = |runs: u32| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type) SELECT 'mail' FROM generate_series(1, {runs})"
        ));
    };
    enqueue(29);
    assert_eq!(trend().0, json!("shrinks"));
    enqueue(1);
    assert_eq!(trend(), (json!("steady"), json!(null)));
    enqueue(1);
    assert_eq!(trend(), (json!("grows"), json!(null)));
    db.execute("DELETE FROM jobctl.job_runs WHERE status = 'queued'");
    assert_eq!(trend(), (json!(null), json!(null)));
}

#[test]
fn the_backlog_counts_due_runs_and_not_those_that_were_only_enqueued() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.mail]\nshell = 'true'\n");
    db.jobctl(["tick"]).run().success();
    let mail = || {
        let mail = &flow_in_status(&db, &["--job", "mail"])[0];
        (mail["due_runs"].clone(), mail["trend"].clone(), mail["empty_in_seconds"].clone())
    };
    let insert = |columns: &str, values: &str, runs: u32| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, created_at, {columns})
             SELECT 'mail', now() - interval '1 day', {values} FROM generate_series(1, {runs})"
        ));
    };
    // Enqueued yesterday, 60 became due and 40 of these began, in whatever state they are now.
    insert("run_at", "now() - interval '5 minutes'", 20);
    let began = "now() - interval '5 minutes', now() - interval '4 minutes'";
    let status = "status, attempts, run_at, started_at";
    insert(&format!("{status}, finished_at"), &format!("'succeeded', 1, {began}, now()"), 20);
    let lease = "'w', now() + interval '1 minute'";
    insert(
        &format!("{status}, locked_by, locked_until"),
        &format!("'running', 1, {began}, {lease}"),
        20,
    );
    assert_eq!(mail(), (json!(20), json!("grows"), json!(null)));
    // Enqueued for next week.
    insert("run_at", "now() + interval '7 days'", 1000);
    assert_eq!(mail(), (json!(20), json!("grows"), json!(null)));
    // A long run that ended, and one that was cancelled while it waited, began nothing.
    let long = "now() - interval '1 day', now() - interval '1 hour'";
    insert(&format!("{status}, finished_at"), &format!("'succeeded', 1, {long}, now()"), 30);
    assert_eq!(mail(), (json!(20), json!("grows"), json!(null)));
    insert(&format!("{status}, finished_at"), &format!("'cancelled', 1, {long}, now()"), 15);
    assert_eq!(mail(), (json!(20), json!("grows"), json!(null)));
    // Nor did one that was cancelled before it was due.
    let early = "now() + interval '1 hour', NULL::timestamptz";
    insert(&format!("{status}, finished_at"), &format!("'cancelled', 0, {early}, now()"), 30);
    assert_eq!(mail(), (json!(20), json!("grows"), json!(null)));
    // Runs that keep failing, and those that came and failed within ten minutes, change nothing.
    let failed = "'failed', 2, now() + interval '1 hour', now(), now()";
    insert(&format!("{status}, failed_at"), failed, 500);
    let failed = "'failed', 1, now() + interval '1 hour', now(), now()";
    insert(&format!("{status}, failed_at"), failed, 700);
    db.execute("UPDATE jobctl.job_runs SET created_at = now() WHERE status = 'failed'");
    assert_eq!(mail(), (json!(20), json!("grows"), json!(null)));
    // Due before, and failed for the first time.
    insert(&format!("{status}, failed_at"), failed, 5);
    assert_eq!(mail(), (json!(20), json!("steady"), json!(null)));
    insert(&format!("{status}, failed_at"), failed, 10);
    assert_eq!(mail(), (json!(20), json!("shrinks"), json!(20.0 * 600.0 / 10.0)));
}

#[test]
fn show_says_how_long_the_runs_ahead_take() {
    let db = db_with_backlog();
    db.execute("UPDATE jobctl.job_definitions SET rate = NULL");
    let last = db.enqueue(["mail"]);
    db.execute("UPDATE jobctl.job_workers SET last_tick_at = now() + interval '1 s'");
    // 50 ended in 10 minutes, so 300 take an hour.
    db.jobctl(["show", &last.to_string()])
        .run()
        .success()
        .stdout_has("300 due runs are ahead of it, about 1h at this pace");
    db.execute(
        "UPDATE jobctl.job_runs SET finished_at = now() - interval '11 minutes'
        WHERE finished_at IS NOT NULL",
    );
    let shown = db.jobctl(["show", &last.to_string()]).run().success().stdout;
    assert!(shown.contains("300 due runs are ahead of it\n"), "{shown}");
    // A hold or a limit keeps them from starting before a run of another job.
    let other = db.enqueue(["copy"]);
    let ahead = |wanted: &str| {
        db.execute("UPDATE jobctl.job_workers SET last_tick_at = now() + interval '1 s'");
        let shown = db.jobctl(["show", &other.to_string()]).run().success().stdout;
        assert!(shown.contains(wanted), "{shown}");
    };
    ahead("301 due runs are ahead of it");
    for limit in ["max_running = 1", "rate = '1/1h', rate_next_at = now() + interval '1 hour'"] {
        db.execute(&format!("UPDATE jobctl.job_definitions SET {limit} WHERE name = 'mail'"));
        db.execute("UPDATE jobctl.job_runs SET job_type = 'mail' WHERE status = 'running'");
        ahead("skipped it");
        db.execute(
            "UPDATE jobctl.job_runs SET job_type = 'copy' WHERE status = 'running';
            UPDATE jobctl.job_definitions SET max_running = NULL, rate = NULL",
        );
    }
    db.execute("INSERT INTO jobctl.job_holds (scope, name) VALUES ('job', 'mail')");
    ahead("skipped it");
    db.execute("DELETE FROM jobctl.job_holds");
    ahead("301 due runs are ahead of it");
}

#[test]
fn prometheus_counts_holds_and_held_runs() {
    let db = db_with_backlog();
    let hold = |flags: &[&'static str], held: &str| {
        db.jobctl(["hold"]).args(flags.iter().copied()).run().success().stdout(held);
    };
    hold(&["--job", "mail", "--job", "mail"], "job\tmail\theld\n");
    let queues = ["--queue", "slow", "--queue", "other"];
    hold(&queues, "queue\tother\theld\nqueue\tslow\theld\n");
    let metrics = db.jobctl(["status", "--prometheus"]).run().success().stdout;
    for sample in [
        "jobctl_holds{scope=\"all\"} 0",
        "jobctl_holds{scope=\"job\"} 1",
        "jobctl_holds{scope=\"queue\"} 2",
        "jobctl_held_runs{scope=\"job\",name=\"mail\"} 300",
        "jobctl_held_runs{scope=\"queue\",name=\"slow\"} 0",
    ] {
        assert!(metrics.contains(&format!("{sample}\n")), "{sample} in\n{metrics}");
    }
    // Two holds of one job keep the same runs: a scraper rejects a sample that comes twice.
    db.jobctl(["hold", "--job", "mail", "--reason", "twice"]).run().success();
    let metrics = db.jobctl(["status", "--prometheus"]).run().success().stdout;
    assert_eq!(metrics.matches("jobctl_held_runs{scope=\"job\",name=\"mail\"} 300\n").count(), 1);
    assert!(metrics.contains("jobctl_holds{scope=\"job\"} 2\n"), "{metrics}");
    db.execute("DELETE FROM jobctl.job_holds WHERE reason = 'twice'");
    db.jobctl(["release", "mail"]).run().success().stdout("job\tmail\treleased\n");
    let release = db.jobctl(["release", "--queue", "other", "--queue", "none"]);
    release
        .run()
        .success()
        .stdout("queue\tother\treleased\n")
        .stderr_has("no holds of queue none are in force");
    db.jobctl(["hold", "--all", "--job", "mail"]).run().exits(2);
    db.jobctl(["hold", "--list", "--job", "mail"]).run().exits(2);
    assert_eq!(db.query("SELECT count(*) FROM jobctl.current_holds"), "1");
}

#[test]
fn next_names_the_hold_of_a_queue_without_runs() {
    let db = TestDb::new();
    db.apply("[jobs.nightly]\nshell = 'true'\nschedule = '@yearly'\nqueue = 'slow'\n");
    db.jobctl(["hold", "--queue", "slow", "--reason", "a move"]).run().success();
    db.jobctl(["hold", "--queue", "other"]).run().success();
    let (shown, _) = answer_at_terminal(&db, "next nightly --count 1", "");
    assert!(shown.contains("queue slow is held") && !shown.contains("other"), "{shown}");
    assert!(shown.contains("no worker has ever ticked"), "{shown}");
}

/// Runs that can't start do not leave at the pace of the others.
#[test]
fn the_estimate_leaves_out_runs_that_no_worker_can_start() {
    for (change, can_start) in [
        ("INSERT INTO jobctl.job_holds (scope, name) VALUES ('queue', 'slow')", 200.0),
        ("UPDATE jobctl.job_workers SET queues = '{default}'", 200.0),
        ("INSERT INTO jobctl.job_holds (scope, name) VALUES ('job', 'mail')", 0.0),
        ("UPDATE jobctl.job_workers SET excluded_kinds = '{shell}'", 0.0),
    ] {
        let db = db_with_backlog();
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET queue = 'slow' WHERE id IN (SELECT id FROM jobctl.job_runs
                 WHERE status = 'queued' AND run_at < now() - interval '1 hour'
                 ORDER BY id LIMIT 100);
             UPDATE jobctl.job_workers SET last_tick_at = now(); {change}"
        ));
        // 30 runs leave in ten minutes, or one a second. No estimate is an answer, too.
        let mail = &flow_in_status(&db, &["--job", "mail"])[0];
        for (name, seconds_a_run) in [("empty_in_seconds", 20.0), ("at_best_seconds", 1.0)] {
            let is_true = mail[name].as_f64().is_none_or(|estimate| {
                can_start > 0.0 && (estimate - can_start * seconds_a_run).abs() < 1.0
            });
            assert!(is_true, "{change}: {mail}");
        }
        // The time at which no run is due is not known.
        let page = db.jobctl(["report"]).run().success().stdout;
        assert!(!page.contains("none due in about"), "{change}: {page}");
        db.jobctl(["status", "--format", "table"]).run().success().prints_nowhere("1h 40m");
    }
}
