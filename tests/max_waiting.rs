//! `max_waiting`: how many runs of a definition may wait, and what an enqueue does when it is full.

use crate::support::{TestDb, temp_dir, wait_until};

/// The runs of `db_with_full_definition`. The oldest one has the key `k`.
const OLDEST: i64 = 1;
const SECOND: i64 = 2;

/// Returns a database whose definition `a` allows two waiting runs, and has two: `OLDEST` and
/// `SECOND`. Definition `b` has no limit.
fn db_with_full_definition(when_full: &str) -> TestDb {
    let db = TestDb::new();
    db.apply(&format!(
        "[jobs.a]\nshell = 'true'\nmax_waiting = 2\nwhen_full = '{when_full}'\n\
         [jobs.b]\nshell = 'true'\n"
    ));
    assert_eq!([db.enqueue(["a", "--key", "k"]), db.enqueue(["a"])], [OLDEST, SECOND]);
    db
}

/// If the run that it waits for were dropped, the new run could never start.
#[test]
fn an_enqueue_does_not_drop_the_run_that_it_waits_for() {
    let db = db_with_full_definition("drop_oldest");
    // The new run would drop run 1, the oldest, and waits for it. All ways to enqueue refuse that.
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
    // The runs of a batch drop runs 1 and 2, and then the run `p` of the same batch.
    let named = r#"{"job_type": "a", "as": "p"}
        {"job_type": "a"}
        {"job_type": "a", "after": ["p"]}"#;
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(named).run().exits(9).stdout("");
    batch.stderr_has("batch line 3: it waits for run ");
    assert_eq!(db.statuses(), "queued queued");
    // An enqueue drops only run 1, so its run may wait for run 2.
    db.enqueue(["a", "--after", "2"]);
    assert_eq!(db.statuses(), "cancelled queued blocked");
}

/// The exit status 9 and the SQLSTATE JC008 mean that a definition is full, and nothing else.
#[test]
fn a_full_definition_refuses_runs_with_a_status_and_a_code_of_its_own() {
    let db = db_with_full_definition("refuse");
    let why = "definition `a` is full, its max_waiting is 2; try again later\n";
    db.jobctl(["enqueue", "a"]).run().exits(9).stdout("").stderr(&format!("jobctl: {why}"));
    let refused = db.client().simple_query("SELECT jobctl.enqueue('a')").unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "JC008");
    assert_eq!(refused.detail(), Some("a"));
    let lines = "{\"job_type\": \"b\"}\n{\"job_type\": \"a\"}\n";
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().exits(9).stdout("");
    batch.stderr(&format!("jobctl: cannot enqueue: batch line 2: {why}"));
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "2");
}

#[test]
fn a_definition_is_full_while_as_many_runs_wait_as_it_allows() {
    let db = db_with_full_definition("refuse");
    // The oldest run has the key already, so this enqueue adds no run.
    assert_eq!(db.enqueue(["a", "--key", "k"]), OLDEST);
    // Another definition has a limit of its own, or none.
    db.enqueue(["b"]);
    // A failed run waits for its next attempt.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'failed', attempts = 1 WHERE id = {SECOND}"
    ));
    db.jobctl(["enqueue", "a"]).run().exits(9);
    // A cancelled run does not wait.
    db.jobctl(["cancel", &SECOND.to_string()]).run().success();
    db.enqueue(["a"]);
    db.jobctl(["enqueue", "a"]).run().exits(9);
    // A tick executes the runs. Then they do not wait any more.
    db.jobctl(["tick"]).run().success();
    db.enqueue(["a"]);
}

#[test]
fn a_full_definition_can_drop_new_runs() {
    let db = db_with_full_definition("drop_new");
    // Four enqueues are dropped: two by the command, one by SQL, and one in a batch.
    let dropped = db.jobctl(["enqueue", "a"]).run().success().stdout("\n");
    dropped.stderr("jobctl: 1 run dropped: the definition is full\n");
    let dropped = db.jobctl(["enqueue", "a", "--json"]).run().success();
    dropped.stdout("{\"id\":null,\"result\":\"dropped\"}\n");
    assert_eq!(db.query("SELECT jobctl.enqueue('a') IS NULL"), "t");
    // The batch prints the new run 3 of `b`, an empty line for the dropped run, and the oldest run,
    // run 1, which has the key.
    let lines = "{\"job_type\": \"b\"}\n{\"job_type\": \"a\"}\n\
                 {\"job_type\": \"a\", \"idempotency_key\": \"k\"}\n";
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
    batch.stdout("3\n\n1\n").stderr("jobctl: 1 run dropped: the definition is full\n");
    assert_eq!(db.statuses(), "queued queued queued");
    assert_eq!(dropped_figures(&db), "a|4");
}

#[test]
fn the_figures_and_the_report_count_dropped_runs() {
    let db = db_with_full_definition("drop_new");
    for _ in 0..4 {
        db.jobctl(["enqueue", "a"]).run().success().stdout("\n");
    }
    let figures = db.jobctl(["status", "--prometheus"]).run().success();
    figures.stdout_has("jobctl_dropped_total{job_type=\"a\"} 4\n");
    let report = db.jobctl(["report"]).run().success();
    let report = report.stdout_has(", 4 dropped.</p>");
    report.stdout_has("<strong class=\"warn\">4 dropped</strong>");
    // Three runs were dropped three days ago, and one today: of `a`, 1 today, and 4 in 7 days.
    db.execute(
        "UPDATE jobctl.job_figures SET day = day - 3, dropped = dropped - 1 WHERE dropped > 0",
    );
    assert_eq!(db.query("SELECT jobctl.enqueue('a') IS NULL"), "t");
    let status = db.jobctl(["status", "--format", "table"]).run().success();
    status.stdout_has("Dropped runs").stdout_has("a        1            4       4\n");
    // A job without a dropped run in 7 days is not listed.
    db.execute("UPDATE jobctl.job_figures SET day = day - 7");
    let status = db.jobctl(["status", "--format", "table"]).run().success();
    assert!(!status.stdout.contains("Dropped runs"), "{}", status.stdout);
    let status = db.jobctl(["status", "--json"]).run().success();
    status.stdout_has("\"dropped_today\":0,\"dropped_last_7_days\":0");
}

/// Returns the jobs with dropped runs, and the numbers of these runs.
fn dropped_figures(db: &TestDb) -> String {
    db.query("SELECT job_type, dropped FROM jobctl.daily_figures WHERE dropped > 0")
}

#[test]
fn a_full_definition_can_drop_its_oldest_runs_but_no_running_ones() {
    let db = db_with_full_definition("drop_oldest");
    // A new run takes the place of the oldest one.
    assert_eq!(db.enqueue(["a"]), SECOND + 1);
    assert_eq!(
        db.of_run(OLDEST, "status, error_type, last_error, finished_at IS NOT NULL"),
        "cancelled|dropped|dropped: the definition was full|t"
    );
    db.jobctl(["list", "--status", "cancelled"]).run().success().stdout_has("dropped");
    // A running run does not wait, so one more run may wait.
    db.allow_running_runs_at_end();
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'w',
             locked_until = now() + interval '1 hour' WHERE id = {SECOND}"
    ));
    db.enqueue(["a"]);
    assert_eq!(db.statuses(), "cancelled running queued queued");
    // The dropped run still has the key, so this enqueue adds no run and drops none.
    assert_eq!(db.enqueue(["a", "--key", "k"]), OLDEST);
    assert_eq!(db.statuses(), "cancelled running queued queued");
    assert_eq!(dropped_figures(&db), "a|1");
}

/// An enqueue does not wait for a locked run, because a tick may be starting it. So for a time one
/// run more than the limit waits. A later enqueue drops two runs, and the limit holds again.
#[test]
fn an_enqueue_skips_a_locked_oldest_run_and_a_later_one_drops_it() {
    let db = db_with_full_definition("drop_oldest");
    let mut other = db.client();
    let lock = format!("BEGIN; SELECT FROM jobctl.job_runs WHERE id = {OLDEST} FOR UPDATE");
    other.batch_execute(&lock).unwrap();
    db.enqueue(["a"]);
    assert_eq!(db.statuses(), "queued queued queued");
    // After the end of the lock, the next enqueue drops two runs.
    other.batch_execute("ROLLBACK").unwrap();
    db.enqueue(["a"]);
    assert_eq!(db.statuses(), "cancelled cancelled queued queued");
    assert_eq!(dropped_figures(&db), "a|2");
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
            // A second enqueue finds the definition full. The savepoint keeps the first one.
            let again = client.simple_query("SAVEPOINT s; SELECT jobctl.enqueue('a')");
            assert_eq!(again.is_err(), when_full == "refuse");
        }
        for client in &mut open {
            client.batch_execute("ROLLBACK TO s; COMMIT").unwrap();
        }
        let waiting = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued'";
        assert_eq!(db.query(waiting), "4", "{when_full}");
        // A later enqueue does not add to the excess. With `drop_oldest`, it adds a run and drops
        // two.
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
    // The first run fills the definition. A row by SQL and a run of the schedule come on top.
    db.enqueue(["a", "--in", "1h"]);
    db.execute("INSERT INTO jobctl.job_runs (job_type) VALUES ('a')");
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now())");
    db.jobctl(["tick"]).run().success();
    let fired = "SELECT count(*) FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL";
    assert_eq!(db.query(fired), "1");
    db.jobctl(["enqueue", "a"]).run().exits(9);
}

/// The 20,000 runs of the history are not read to count the runs that wait.
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
    // Keys of a definition, and the error.
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
    // `apply` and `jobs` print the keys.
    let job = "[jobs.a]\nshell = 'true'\n";
    db.apply(job);
    let changed = db.apply(&format!("{job}max_waiting = 2\nwhen_full = 'drop_new'\n"));
    assert_eq!(changed, "change\ta\tmax_waiting\t\t2\nchange\ta\twhen_full\t\t\"drop_new\"\n");
    let shown = db.jobctl(["jobs", "a"]).run().success();
    shown.stdout_has("\"max_waiting\":2").stdout_has("\"when_full\":\"drop_new\"");
}

/// All blocked runs may become queued at once, when the run that they wait for ends. So blocked
/// runs count as waiting.
#[test]
fn max_waiting_counts_blocked_runs_too() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nmax_waiting = 2\n[jobs.b]\nshell = 'true'\n");
    // Two runs of `a` that wait for a run of `b` fill the definition. No way to enqueue adds a run.
    let first = db.enqueue(["b", "--in", "1h"]).to_string();
    let after = ["enqueue", "a", "--after", &first];
    let why = "definition `a` is full, its max_waiting is 2; try again later\n";
    db.enqueue(["a", "--after", &first, "--key", "k"]);
    db.enqueue(["a", "--after", &first]);
    db.jobctl(after).run().exits(9).stdout("").stderr(&format!("jobctl: {why}"));
    db.jobctl(["enqueue", "a"]).run().exits(9);
    // The key has a run already, so this enqueue adds none.
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
    assert_eq!(db.statuses(), "queued blocked blocked");
}

#[test]
fn batches_of_runs_that_wait_are_stored_up_to_the_limit() {
    // The exit status of the batch that exceeds the limit, and the statuses of all runs after it.
    for (when_full, exit, expected) in [
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
        // Two runs fill the definition, and four more exceed its limit.
        for (lines, exit) in [(2, 0), (4, exit)] {
            let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(line.repeat(lines));
            batch.run().exits(exit);
        }
        assert_eq!(db.statuses(), expected, "{when_full}");
        // The end of the first run makes the two blocked runs queued.
        db.make_waiting_runs_due();
        db.jobctl(["tick", "--limit", "1"]).run().success();
        let queued = "SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued'";
        assert_eq!(db.query(queued), "2", "{when_full}");
    }
}
