//! `max_waiting`: how many runs of a definition may wait, and what an enqueue does when it is full.

use crate::support::{TestDb, temp_dir, wait_until};

/// Returns a database whose definition `a` allows two waiting runs, and has two.
fn db_with_full_definition(when_full: &str) -> TestDb {
    let db = TestDb::new();
    db.apply(&format!(
        "[jobs.a]\nshell = 'true'\nmax_waiting = 2\nwhen_full = '{when_full}'\n\
         [jobs.b]\nshell = 'true'\n"
    ));
    assert_eq!([db.enqueue(["a", "--key", "k"]), db.enqueue(["a"])], [1, 2]);
    db
}

fn statuses(db: &TestDb) -> String {
    db.query("SELECT string_agg(status, ' ' ORDER BY id) FROM jobctl.job_runs")
}

/// Else the new run could never start, and no command would have said so.
#[test]
fn an_enqueue_does_not_drop_the_run_that_it_waits_for() {
    let db = db_with_full_definition("drop_oldest");
    let why = "it waits for run 1, which this transaction has dropped, as a definition is full\n";
    for rule in [&["--after", "1"][..], &["--after", "1", "--after-any-end"]] {
        db.jobctl(["enqueue", "a"])
            .args(rule.iter().copied())
            .run()
            .exits(9)
            .stdout("")
            .stderr_has(why);
    }
    let sql = db.client().simple_query("SELECT jobctl.enqueue('a', after => '{1}')").unwrap_err();
    assert_eq!(sql.as_db_error().unwrap().code().code(), "JC008");
    let named = r#"{"job_type": "a", "as": "p"}
        {"job_type": "a"}
        {"job_type": "a", "after": ["p"]}"#;
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(named).run().exits(9).stdout("");
    batch.stderr_has("batch line 3: it waits for run ");
    assert_eq!(statuses(&db), "queued queued");
    // Another run is dropped.
    let last = db.enqueue(["a", "--after", "2"]);
    assert_eq!(
        (statuses(&db).as_str(), db.status(last).as_str()),
        ("cancelled queued blocked", "blocked")
    );
}

#[test]
fn a_full_definition_refuses_runs_with_a_status_and_a_code_of_its_own() {
    let db = db_with_full_definition("refuse");
    let why = "definition `a` is full, its max_waiting is 2; try again later\n";
    db.jobctl(["enqueue", "a"]).run().exits(9).stdout("").stderr(&format!("jobctl: {why}"));
    let refused = db.client().simple_query("SELECT jobctl.enqueue('a')").unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!((refused.code().code(), refused.detail()), ("JC008", Some("a")));
    let lines = "{\"job_type\": \"b\"}\n{\"job_type\": \"a\"}\n";
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().exits(9).stdout("");
    batch.stderr(&format!("jobctl: cannot enqueue: batch line 2: {why}"));
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "2");
    // A key that has its run needs no room, and other definitions have their own.
    assert_eq!(db.enqueue(["a", "--key", "k"]), 1);
    db.enqueue(["b"]);
    // Failed runs wait, too.
    db.execute("UPDATE jobctl.job_runs SET status = 'failed', attempts = 1 WHERE id = 2");
    db.jobctl(["enqueue", "a"]).run().exits(9);
    db.jobctl(["cancel", "2"]).run().success();
    db.enqueue(["a"]);
    db.jobctl(["enqueue", "a"]).run().exits(9);
    db.jobctl(["tick"]).run().success();
    db.enqueue(["a"]);
}

#[test]
fn a_full_definition_can_drop_new_runs() {
    let db = db_with_full_definition("drop_new");
    let dropped = db.jobctl(["enqueue", "a"]).run().success().stdout("\n");
    dropped.stderr("jobctl: 1 run dropped: the definition is full\n");
    let dropped = db.jobctl(["enqueue", "a", "--json"]).run().success();
    dropped.stdout("{\"id\":null,\"result\":\"dropped\"}\n");
    assert_eq!(db.query("SELECT jobctl.enqueue('a') IS NULL"), "t");
    let lines = "{\"job_type\": \"b\"}\n{\"job_type\": \"a\"}\n\
                 {\"job_type\": \"a\", \"idempotency_key\": \"k\"}\n";
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
    batch.stdout("3\n\n1\n").stderr("jobctl: 1 run dropped: the definition is full\n");
    assert_eq!(statuses(&db), "queued queued queued");
    assert_eq!(dropped_figures(&db), "a|4");
    let figures = db.jobctl(["status", "--prometheus"]).run().success();
    figures.stdout_has("jobctl_dropped_total{job_type=\"a\"} 4\n");
    let report = db.jobctl(["report"]).run().success();
    let report = report.stdout_has(", 4 dropped.</p>");
    report.stdout_has("<strong class=\"warn\">4 dropped</strong>");
    // The number of each job is that of the days in question.
    db.execute(
        "UPDATE jobctl.job_figures SET day = day - 3, dropped = dropped - 1 WHERE dropped > 0",
    );
    assert_eq!(db.query("SELECT jobctl.enqueue('a') IS NULL"), "t");
    let status = db.jobctl(["status", "--format", "table"]).run().success();
    status.stdout_has("Dropped runs").stdout_has("a        1            4       4\n");
    db.execute("UPDATE jobctl.job_figures SET day = day - 7");
    let status = db.jobctl(["status", "--format", "table"]).run().success();
    assert!(!status.stdout.contains("Dropped runs"), "{}", status.stdout);
    let status = db.jobctl(["status", "--json"]).run().success();
    status.stdout_has("\"dropped_today\":0,\"dropped_last_7_days\":0");
}

fn dropped_figures(db: &TestDb) -> String {
    db.query("SELECT job_type, dropped FROM jobctl.daily_figures WHERE dropped > 0")
}

#[test]
fn a_full_definition_can_drop_its_oldest_runs_but_no_running_ones() {
    let db = db_with_full_definition("drop_oldest");
    assert_eq!(db.enqueue(["a"]), 3);
    assert_eq!(
        db.of_run(1, "status, error_type, last_error, finished_at IS NOT NULL"),
        "cancelled|dropped|dropped: the definition was full|t"
    );
    db.jobctl(["list", "--status", "cancelled"]).run().success().stdout_has("dropped");
    db.allow_running_runs_at_end();
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'w',
             locked_until = now() + interval '1 hour' WHERE id = 2",
    );
    db.enqueue(["a"]);
    assert_eq!(statuses(&db), "cancelled running queued queued");
    // An enqueue with a key that has its run drops none.
    assert_eq!(db.enqueue(["a", "--key", "k"]), 1);
    assert_eq!(statuses(&db), "cancelled running queued queued");
    // Another session has locked the oldest: it may be starting it.
    let mut other = db.client();
    other.batch_execute("BEGIN; SELECT FROM jobctl.job_runs WHERE id = 3 FOR UPDATE").unwrap();
    db.enqueue(["a"]);
    assert_eq!(statuses(&db), "cancelled running queued queued queued");
    other.batch_execute("ROLLBACK").unwrap();
    // The next enqueue corrects that.
    db.enqueue(["a"]);
    assert_eq!(statuses(&db), "cancelled running cancelled cancelled queued queued");
    assert_eq!(dropped_figures(&db), "a|3");
}

#[test]
fn open_transactions_exceed_the_limit_by_their_own_runs_only() {
    for when_full in ["refuse", "drop_new", "drop_oldest"] {
        let db = TestDb::new();
        db.apply(&format!(
            "[jobs.a]\nshell = 'true'\nmax_waiting = 1\nwhen_full = '{when_full}'\n"
        ));
        // Each transaction sees its own run only, so each enqueues one.
        let mut open: Vec<_> = (0..4).map(|_| db.client()).collect();
        for client in &mut open {
            client.batch_execute("BEGIN; SELECT jobctl.enqueue('a')").unwrap();
            let again = client.simple_query("SAVEPOINT s; SELECT jobctl.enqueue('a')");
            assert_eq!(again.is_err(), when_full == "refuse");
        }
        for client in &mut open {
            client.batch_execute("ROLLBACK TO s; COMMIT").unwrap();
        }
        let waiting = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued'";
        assert_eq!(db.query(waiting), "4", "{when_full}");
        // Later enqueues do not add to the excess, and those that drop old runs reduce it.
        let _ = db.jobctl(["enqueue", "a"]).run();
        let left = if when_full == "drop_oldest" { "3" } else { "4" };
        assert_eq!(db.query(waiting), left, "{when_full}");
    }
}

#[test]
fn schedules_and_inserted_rows_are_counted_but_not_refused() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'true'\nschedule = '@yearly'\noverlap = 'allow'\nmax_waiting = 1\n",
    );
    db.enqueue(["a", "--in", "1h"]);
    db.execute("INSERT INTO jobctl.job_runs (job_type) VALUES ('a')");
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now())");
    db.jobctl(["tick"]).run().success();
    let fired = "SELECT count(*) FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL";
    assert_eq!(db.query(fired), "1");
    db.jobctl(["enqueue", "a"]).run().exits(9);
}

#[test]
fn a_full_definition_counts_in_its_index_whatever_the_history() {
    let db = db_with_full_definition("refuse");
    for when_full in ["refuse", "drop_oldest"] {
        db.execute(&format!(
            "UPDATE jobctl.job_definitions SET when_full = '{when_full}';
             INSERT INTO jobctl.job_runs (job_type, status, finished_at)
             SELECT 'a', 'succeeded', now() FROM generate_series(1, 20000);
             ANALYZE jobctl.job_runs"
        ));
        let read = "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes
                    WHERE schemaname = 'jobctl' AND relname = 'job_runs'";
        db.wait_for_statistics();
        let before: i64 = db.query(read).parse().unwrap();
        let _ = db.jobctl(["enqueue", "a"]).run();
        let mut after = before;
        wait_until("the statistics", || {
            after = db.query(read).parse().unwrap();
            after > before
        });
        assert!(after - before < 100, "{when_full}: {before} {after}");
    }
}

#[test]
fn when_full_needs_max_waiting_and_is_one_of_three_words() {
    let db = TestDb::new();
    for (keys, why) in [
        ("when_full = 'refuse'", "jobs.toml:3: job `a`: `when_full` needs `max_waiting`"),
        ("max_waiting = 2\nwhen_full = 'wait'", "jobs.toml:4: job `a`: `when_full`: "),
        ("max_waiting = 0", "jobs.toml:3: job `a`: `max_waiting`: "),
        ("max_waiting = 100001", "from 1 to 100000"),
    ] {
        let folder = temp_dir();
        let file = folder.path().join("jobs.toml");
        std::fs::write(&file, format!("[jobs.a]\nshell = 'true'\n{keys}\n")).unwrap();
        let refused = db.jobctl(["apply", file.to_str().unwrap()]).run().exits(2).stdout("");
        refused.stderr_has(why);
    }
    let job = "[jobs.a]\nshell = 'true'\n";
    db.apply(job);
    let changed = db.apply(&format!("{job}max_waiting = 2\nwhen_full = 'drop_new'\n"));
    assert_eq!(changed, "change\ta\tmax_waiting\t\t2\nchange\ta\twhen_full\t\t\"drop_new\"\n");
    let shown = db.jobctl(["jobs", "a"]).run().success();
    shown.stdout_has("\"max_waiting\":2").stdout_has("\"when_full\":\"drop_new\"");
}

/// Else all of them would become queued at once, when the run that they wait for ends.
#[test]
fn max_waiting_counts_blocked_runs_too() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_waiting = 2\n[jobs.b]\nshell = 'true'\n");
    let first = db.enqueue(["b", "--in", "1h"]).to_string();
    let after = ["enqueue", "a", "--after", &first];
    let why = "definition `a` is full, its max_waiting is 2; try again later\n";
    db.enqueue(["a", "--after", &first, "--key", "k"]);
    db.enqueue(["a", "--after", &first]);
    db.jobctl(after).run().exits(9).stdout("").stderr(&format!("jobctl: {why}"));
    db.jobctl(["enqueue", "a"]).run().exits(9);
    // A key that has its run needs no room.
    db.jobctl(after).args(["--key", "k"]).run().success();
    let line = format!("{{\"job_type\": \"a\", \"after\": [{first}]}}\n");
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().exits(9).stdout("");
    batch.stderr_has(why);
    let keyed = "{\"job_type\": \"b\", \"as\": \"b\"}\n\
        {\"job_type\": \"a\", \"after\": [\"b\"], \"idempotency_key\": \"l\"}\n";
    db.jobctl(["enqueue", "--batch", "-"]).stdin(keyed).run().exits(9).stdout("");
    let then = ["enqueue", "--batch", "-", "--then", "a"];
    db.jobctl(then).stdin("{\"job_type\": \"b\"}\n").run().exits(9).stdout("");
    let sql = format!("SELECT jobctl.enqueue('a', after => ARRAY[{first}]::bigint[])");
    let refused = db.client().simple_query(&sql).unwrap_err();
    assert_eq!(refused.as_db_error().unwrap().code().code(), "JC008");
    assert_eq!(statuses(&db), "queued blocked blocked");
}

#[test]
fn batches_of_runs_that_wait_are_stored_up_to_the_limit() {
    for (when_full, status, expected) in [
        ("refuse", 9, "queued blocked blocked"),
        ("drop_new", 0, "queued blocked blocked"),
        ("drop_oldest", 0, "queued cancelled cancelled cancelled cancelled blocked blocked"),
    ] {
        let db = TestDb::new();
        db.apply(&format!(
            "[jobs.a]\nshell = 'true'\nmax_waiting = 2\nwhen_full = '{when_full}'\n\
             [jobs.b]\nshell = 'true'\n"
        ));
        let first = db.enqueue(["b", "--in", "1h"]);
        let line = format!("{{\"job_type\": \"a\", \"after\": [{first}]}}\n");
        for (lines, status) in [(2, 0), (4, status)] {
            let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(line.repeat(lines));
            batch.run().exits(status);
        }
        assert_eq!(statuses(&db), expected, "{when_full}");
        db.make_waiting_runs_due();
        db.jobctl(["tick", "--limit", "1"]).run().success();
        let queued = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued'";
        assert_eq!(db.query(queued), "2", "{when_full}");
    }
}
