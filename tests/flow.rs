//! Flow: what comes and goes, whether the backlog grows, and when it is empty.

use serde_json::{Value, json};

use crate::retry::answer_at_terminal;
use crate::support::{Role, TestDb};

/// A database with two jobs. Of `mail`, which may start once a second:
/// - 300 runs are due. Of these, 20 were enqueued in the last 10 minutes, 10 more in the last hour.
/// - 70 runs succeeded in the last hour, and 50 of them began and ended in the last 10 minutes.
/// - 5 attempts failed 5 minutes ago. They began 5, 15, 25, 35 and 45 minutes ago.
/// - One run is not due until tomorrow.
///
/// So in the last 10 minutes 20 runs of `mail` came and 50 left. Of `copy`, one run has been
/// running for two hours. One worker has just ticked; it serves all queues.
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
             SELECT id, 1, 'web1', now() - interval '5 minutes' - interval '10 minutes' * n,
                 now() - interval '5 minutes', 'failed'
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

/// Returns the rows of the field `flow` of `status`, called with these flags.
fn flow_in_status(db: &TestDb, flags: &[&'static str]) -> Vec<Value> {
    let status = db.jobctl(["status", "--json"]).args(flags.iter().copied()).run().success().stdout;
    let mut status: Value = serde_json::from_str(&status).unwrap();
    serde_json::from_value(status["flow"].take()).unwrap()
}

#[test]
fn status_shows_what_came_and_went_and_when_the_backlog_ends() {
    let db = db_with_backlog();
    let flow = flow_in_status(&db, &[]);
    let jobs: Vec<_> = flow.iter().map(|row| row["job_type"].clone()).collect();
    assert_eq!(jobs, [json!(null), json!("copy"), json!("mail")]);
    let [all, copy, mail] = &flow[..] else { panic!("{flow:?}") };
    let of_windows = |what: &str| ["10m", "1h"].map(|window| &mail[format!("{what}_{window}")]);
    // The first number is of the last 10 minutes, the second one of the last hour.
    assert_eq!(of_windows("enqueued"), [20, 30]);
    assert_eq!(of_windows("succeeded"), [50, 70]);
    assert_eq!(of_windows("failed"), [5, 5]);
    // Failed attempts started, too: one of the five in the last 10 minutes, all in the last hour.
    assert_eq!(of_windows("started"), [50 + 1, 70 + 5]);
    assert_eq!(mail["due_runs"], 300);
    assert_eq!(mail["trend"], "shrinks");
    // The backlog loses 50 - 20 runs in 600 seconds.
    assert_eq!(mail["empty_in_seconds"], 300.0 * 600.0 / 30.0);
    // The definition's rate is one start a second.
    assert_eq!(mail["at_best_seconds"], 300.0);
    // No run of `copy` is due, so it has no backlog that could grow or end.
    assert_eq!(copy["trend"], json!(null));
    assert_eq!(copy["empty_in_seconds"], json!(null));
    let longest = copy["longest_running_seconds"].as_f64().unwrap();
    assert!((7200.0..7260.0).contains(&longest), "{longest}");
    // In the row of all jobs, only `mail` counts: no run of `copy` is due or started in this hour.
    assert_eq!(all["due_runs"], 300);
    assert_eq!(all["started_1h"], 75);
    // The rate is of one job, so all jobs together have none.
    assert_eq!(all["at_best_seconds"], json!(null));
    assert_eq!(all["longest_running_seconds"], copy["longest_running_seconds"]);

    let shown = db.jobctl(["status", "--format", "table"]).run().success().stdout;
    assert!(shown.contains("Flow (last 10 minutes/last hour)"), "{shown}");
    let row = shown.lines().find(|line| line.starts_with(" mail ") && line.contains("shrinks"));
    let words: Vec<_> = row.expect("a row").split_whitespace().collect();
    // Enqueued, succeeded, failed, the trend, empty in 6000 s, and at best in 300 s.
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
fn only_a_backlog_that_shrinks_has_an_estimate_of_its_end() {
    let db = db_with_backlog();
    let mail = || {
        let flow = flow_in_status(&db, &["--job", "mail"]);
        let [mail] = &flow[..] else { panic!("{flow:?}") };
        (mail["trend"].clone(), mail["empty_in_seconds"].clone())
    };
    let enqueue = |runs: u32| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type) SELECT 'mail' FROM generate_series(1, {runs})"
        ));
    };
    // At first, 20 runs of the last 10 minutes came and 50 left, and 300 are due.
    enqueue(29);
    assert_eq!(mail(), (json!("shrinks"), json!(329.0 * 600.0)), "49 came, 50 left, 329 are due");
    enqueue(1);
    assert_eq!(mail(), (json!("steady"), json!(null)), "50 came, 50 left");
    enqueue(1);
    assert_eq!(mail(), (json!("grows"), json!(null)), "51 came, 50 left");
    db.execute("DELETE FROM jobctl.job_runs WHERE status = 'queued'");
    assert_eq!(mail(), (json!(null), json!(null)), "no run is due");
}

const YESTERDAY: &str = "now() - interval '1 day'";
const IN_AN_HOUR: &str = "now() + interval '1 hour'";
const AN_HOUR_AGO: &str = "now() - interval '1 hour'";
const FIVE_MINUTES_AGO: &str = "now() - interval '5 minutes'";
const NOW: &str = "now()";
const NEVER: &str = "NULL::timestamptz";

/// Inserts this number of runs of `mail`. `columns` has names and SQL values. Without `created_at`
/// among them, the runs were created yesterday.
fn insert_mail(db: &TestDb, runs: u32, columns: &[(&str, &str)]) {
    let has_creation = columns.iter().any(|(name, _)| *name == "created_at");
    let creation = (!has_creation).then_some(("created_at", YESTERDAY));
    let (names, values): (Vec<_>, Vec<_>) = columns.iter().copied().chain(creation).unzip();
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, {})
         SELECT 'mail', {} FROM generate_series(1, {runs})",
        names.join(", "),
        values.join(", ")
    ));
}

/// A database in which 20 runs of `mail` became due five minutes ago. They came and have not left,
/// so `mail` grows by 20. A worker has ticked, so its runs can start.
fn db_that_grows_by_20() -> TestDb {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.mail]\nshell = 'true'\n");
    db.jobctl(["tick"]).run().success();
    insert_mail(&db, 20, &[("run_at", FIVE_MINUTES_AGO)]);
    db
}

/// Asserts that 20 runs of `mail` are due, and that this backlog grew by this number of runs in the
/// last 10 minutes. Proves the number by letting as many more runs leave: then the backlog is
/// steady. Removes these runs again.
#[track_caller]
fn assert_grows_by(db: &TestDb, growth: u32) {
    let mail = || flow_in_status(db, &["--job", "mail"]).remove(0);
    let before = mail();
    assert_eq!(before["due_runs"], 20);
    assert_eq!(before["trend"], "grows");
    assert_eq!(before["empty_in_seconds"], json!(null));
    let left = [
        ("queue", "'extra'"),
        ("status", "'succeeded'"),
        ("attempts", "1"),
        ("run_at", YESTERDAY),
        ("started_at", FIVE_MINUTES_AGO),
        ("finished_at", NOW),
    ];
    insert_mail(db, growth, &left);
    assert_eq!(mail()["trend"], "steady", "it does not grow by {growth}");
    db.execute("DELETE FROM jobctl.job_runs WHERE queue = 'extra'");
}

/// The trend compares, for the last 10 minutes, the runs that came with the runs that left. A run
/// comes when it becomes due, whenever it was enqueued.
#[test]
fn the_trend_counts_runs_that_became_due_and_not_runs_that_were_enqueued() {
    let db = db_that_grows_by_20();
    assert_grows_by(&db, 20);
    // These were enqueued now, and are not due: the growth changes by 0.
    insert_mail(&db, 1000, &[("created_at", NOW), ("run_at", IN_AN_HOUR)]);
    assert_grows_by(&db, 20);
}

/// A run leaves when it begins, whatever becomes of it, or when it is cancelled while it is due.
#[test]
fn the_trend_counts_runs_that_began_or_were_cancelled_while_they_were_due() {
    let db = db_that_grows_by_20();
    let began = [("attempts", "1"), ("run_at", FIVE_MINUTES_AGO), ("started_at", FIVE_MINUTES_AGO)];
    let ended = |status: &'static str, run_at: &'static str, started_at: &'static str| {
        let has_started = started_at != NEVER;
        [
            ("status", status),
            ("attempts", if has_started { "1" } else { "0" }),
            ("run_at", run_at),
            ("started_at", started_at),
            ("finished_at", NOW),
        ]
    };
    // Each comment ends with the change of the growth.
    // These came and left within the 10 minutes, and some of them still run: 0.
    insert_mail(&db, 20, &ended("'succeeded'", FIVE_MINUTES_AGO, FIVE_MINUTES_AGO));
    let running = [("status", "'running'"), ("locked_by", "'w'"), ("locked_until", IN_AN_HOUR)];
    insert_mail(&db, 20, &[&began[..], &running].concat());
    assert_grows_by(&db, 20);
    // These came and left before the 10 minutes, and only ended in them: 0.
    insert_mail(&db, 30, &ended("'succeeded'", YESTERDAY, AN_HOUR_AGO));
    assert_grows_by(&db, 20);
    // These were due since yesterday, and were cancelled now, after an attempt an hour ago: -15.
    insert_mail(&db, 15, &ended("'cancelled'", YESTERDAY, AN_HOUR_AGO));
    assert_grows_by(&db, 5);
    // These were cancelled before they were due, so they neither came nor left: 0.
    insert_mail(&db, 30, &ended("'cancelled'", IN_AN_HOUR, NEVER));
    assert_grows_by(&db, 5);
}

/// A failure moves the time at which a run was due to its next attempt. So of the runs that failed,
/// only those leave whose first attempt failed now and that were enqueued before the 10 minutes.
#[test]
fn the_trend_counts_a_failed_run_as_left_only_after_its_first_attempt() {
    let db = db_that_grows_by_20();
    let failed = |attempts: &'static str, created_at: &'static str| {
        [
            ("status", "'failed'"),
            ("attempts", attempts),
            ("created_at", created_at),
            ("run_at", IN_AN_HOUR),
            ("started_at", NOW),
            ("failed_at", NOW),
        ]
    };
    // Each comment ends with the change of the growth.
    // A retry that failed again was due only briefly: 0.
    insert_mail(&db, 500, &failed("2", YESTERDAY));
    assert_grows_by(&db, 20);
    // These came and left within the 10 minutes: 0.
    insert_mail(&db, 700, &failed("1", NOW));
    assert_grows_by(&db, 20);
    // These came before the 10 minutes, and left: -15.
    insert_mail(&db, 15, &failed("1", YESTERDAY));
    assert_grows_by(&db, 5);
    // -15 again, so the 20 due runs shrink by 10 in 600 seconds.
    insert_mail(&db, 15, &failed("1", YESTERDAY));
    let mail = &flow_in_status(&db, &["--job", "mail"])[0];
    assert_eq!(mail["due_runs"], 20);
    assert_eq!(mail["trend"], "shrinks");
    assert_eq!(mail["empty_in_seconds"], 20.0 * 600.0 / 10.0);
}

/// Pretends that the worker ticked later than all runs were enqueued, so the tick saw each run.
fn tick_after_all_enqueues(db: &TestDb) {
    db.execute("UPDATE jobctl.job_workers SET last_tick_at = now() + interval '1 s'");
}

#[test]
fn show_says_how_long_the_runs_ahead_take() {
    let db = db_with_backlog();
    // Remove the only limit of `mail`, so its runs wait only for the runs ahead of them.
    db.execute("UPDATE jobctl.job_definitions SET rate = NULL");
    let last = db.enqueue(["mail"]);
    tick_after_all_enqueues(&db);
    // 50 runs of `mail` ended in 10 minutes, so the 300 due runs that are ahead take an hour.
    db.jobctl(["show", &last.to_string()])
        .run()
        .success()
        .stdout_has("300 due runs are ahead of it, about 1h at this pace");
    db.execute(
        "UPDATE jobctl.job_runs SET finished_at = now() - interval '11 minutes'
        WHERE finished_at IS NOT NULL",
    );
    let shown = db.jobctl(["show", &last.to_string()]).run().success().stdout;
    assert!(shown.contains("300 due runs are ahead of it\n"), "no run ended lately: {shown}");
}

/// Due runs that can't start are not ahead of a run of another job. If no run is ahead, `show` says
/// that the last tick skipped the run, and lists the possible reasons.
#[test]
fn show_counts_only_runs_that_can_start_as_ahead() {
    const ALL_MAIL_IS_AHEAD: &str = "301 due runs are ahead of it";
    const NO_RUN_IS_AHEAD: &str = "skipped it: all slots were busy";
    let db = db_with_backlog();
    // Remove the only limit of `mail`.
    db.execute("UPDATE jobctl.job_definitions SET rate = NULL");
    // The database has 300 due runs of `mail`; this is one more.
    db.enqueue(["mail"]);
    let copy = db.enqueue(["copy"]);
    let assert_show_says = |place: &str| {
        tick_after_all_enqueues(&db);
        let shown = db.jobctl(["show", &copy.to_string()]).run().success().stdout;
        assert!(shown.contains(place), "{shown}");
    };
    assert_show_says(ALL_MAIL_IS_AHEAD);

    // A limit keeps all runs of `mail` from starting.
    for limit in ["max_running = 1", "rate = '1/1h', rate_next_at = now() + interval '1 hour'"] {
        db.execute(&format!("UPDATE jobctl.job_definitions SET {limit} WHERE name = 'mail'"));
        // The running run of `copy` becomes one of `mail`, so `max_running` is reached.
        db.execute("UPDATE jobctl.job_runs SET job_type = 'mail' WHERE status = 'running'");
        assert_show_says(NO_RUN_IS_AHEAD);
        db.execute(
            "UPDATE jobctl.job_runs SET job_type = 'copy' WHERE status = 'running';
            UPDATE jobctl.job_definitions SET max_running = NULL, rate = NULL",
        );
    }

    // A hold keeps them.
    db.execute("INSERT INTO jobctl.job_holds (scope, name) VALUES ('job', 'mail')");
    assert_show_says(NO_RUN_IS_AHEAD);
    db.execute("DELETE FROM jobctl.job_holds");
    assert_show_says(ALL_MAIL_IS_AHEAD);
}

#[test]
fn prometheus_counts_holds_and_held_runs() {
    // 300 runs of `mail` are due.
    let db = db_with_backlog();
    // A name that is given twice is held once.
    let hold = db.jobctl(["hold", "--job", "mail", "--job", "mail"]).run().success();
    hold.stdout("job\tmail\theld\n");
    let hold = db.jobctl(["hold", "--queue", "slow", "--queue", "other"]).run().success();
    hold.stdout("queue\tother\theld\nqueue\tslow\theld\n");
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
}

#[test]
fn hold_and_release_take_several_targets_of_one_kind() {
    let db = db_with_backlog();
    db.jobctl(["hold", "--job", "mail"]).run().success();
    db.jobctl(["hold", "--queue", "slow", "--queue", "other"]).run().success();
    db.jobctl(["release", "mail"]).run().success().stdout("job\tmail\treleased\n");
    let release = db.jobctl(["release", "--queue", "other", "--queue", "none"]);
    release
        .run()
        .success()
        .stdout("queue\tother\treleased\n")
        .stderr_has("no holds of queue none are in force");
    // These flags exclude each other, so these commands hold nothing.
    db.jobctl(["hold", "--all", "--job", "mail"]).run().exits(2);
    db.jobctl(["hold", "--list", "--job", "mail"]).run().exits(2);
    assert_eq!(db.query("SELECT scope, name FROM jobctl.current_holds"), "queue|slow");
}

#[test]
fn next_names_the_hold_of_a_queue_without_runs() {
    let db = TestDb::new();
    db.apply("[jobs.nightly]\nshell = 'true'\nschedule = '@yearly'\nqueue = 'slow'\n");
    db.jobctl(["hold", "--queue", "slow", "--reason", "a move"]).run().success();
    db.jobctl(["hold", "--queue", "other"]).run().success();
    // At a terminal, `next` prints a table with remarks. It asks nothing, so the answer is empty.
    let (shown, _) = answer_at_terminal(&db, "next nightly --count 1", "");
    assert!(shown.contains("queue slow is held") && !shown.contains("other"), "{shown}");
    assert!(shown.contains("no worker has ever ticked"), "{shown}");
}

/// Runs that can't start do not leave at the pace of the other runs. So the estimate may be about
/// the due runs that can start, or it may be missing, but it may not be about all due runs.
#[test]
fn the_estimate_leaves_out_runs_that_no_worker_can_start() {
    // What keeps runs of `mail` from starting, and how many of its 300 due runs can still start.
    for (change, can_start) in [
        ("INSERT INTO jobctl.job_holds (scope, name) VALUES ('queue', 'slow')", 200.0),
        ("UPDATE jobctl.job_workers SET queues = '{default}'", 200.0),
        ("INSERT INTO jobctl.job_holds (scope, name) VALUES ('job', 'mail')", 0.0),
        ("UPDATE jobctl.job_workers SET excluded_kinds = '{shell}'", 0.0),
    ] {
        let db = db_with_backlog();
        // 100 of the 300 due runs are in another queue.
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET queue = 'slow' WHERE id IN (SELECT id FROM jobctl.job_runs
                 WHERE status = 'queued' AND run_at < now() - interval '1 hour'
                 ORDER BY id LIMIT 100);
             UPDATE jobctl.job_workers SET last_tick_at = now(); {change}"
        ));
        // The backlog loses 30 runs in ten minutes, and at best one run starts a second.
        let mail = &flow_in_status(&db, &["--job", "mail"])[0];
        for (name, seconds_a_run) in [("empty_in_seconds", 20.0), ("at_best_seconds", 1.0)] {
            if let Some(estimate) = mail[name].as_f64() {
                assert!(can_start > 0.0, "{change}: {mail}");
                let of_startable_runs = can_start * seconds_a_run;
                assert!((estimate - of_startable_runs).abs() < 1.0, "{change}: {mail}");
            }
        }
        // No page and no table prints the estimate for all 300 due runs, which is 1h 40m.
        let page = db.jobctl(["report"]).run().success().stdout;
        assert!(!page.contains("none due in about"), "{change}: {page}");
        db.jobctl(["status", "--format", "table"]).run().success().prints_nowhere("1h 40m");
    }
}
