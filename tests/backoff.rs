//! The wait after a failure, and the end of the attempts.

use std::fs;

use crate::support::http_server::HttpServer;
use crate::support::{TestDb, json_string, temp_dir};

/// Returns the seconds from the end of the last attempt to the next one.
fn seconds_until_next_attempt(db: &TestDb, id: i64) -> f64 {
    db.of_run(id, "extract(epoch FROM run_at - updated_at)").parse().unwrap()
}

/// Asserts that the next attempt is this many seconds after the last one, with at most 20 percent
/// of jitter.
#[track_caller]
fn assert_waits_about(db: &TestDb, id: i64, seconds: f64) {
    let wait = seconds_until_next_attempt(db, id);
    assert!(
        (seconds * 0.8..=seconds * 1.2).contains(&wait),
        "{wait} s instead of {seconds} s\n{}",
        db.dump()
    );
}

#[test]
fn a_failed_run_waits_by_its_rule_with_20_percent_jitter() {
    let db = TestDb::new();
    let rules: [(&[&str], [f64; 4]); 6] = [
        (&[], [60.0, 120.0, 240.0, 480.0]),
        (&["--backoff", "fixed:90s"], [90.0, 90.0, 90.0, 90.0]),
        (&["--backoff", "exponential:1m..3m"], [60.0, 120.0, 180.0, 180.0]),
        (&["--backoff", "polynomial:10s"], [10.0, 40.0, 90.0, 160.0]),
        (&["--backoff", "list:1m,5m,2h"], [60.0, 300.0, 7200.0, 7200.0]),
        (&["--backoff", "fixed:0s"], [0.0, 0.0, 0.0, 0.0]),
    ];
    let runs = rules.map(|(flags, waits)| {
        let id = db.enqueue(
            ["shell", "--max-attempts", "5"]
                .into_iter()
                .chain(flags.iter().copied())
                .chain(["--", "false"]),
        );
        (id, waits)
    });
    for attempt in 1..=4 {
        // The run with `fixed:0s` is due again at once. The limit stops the tick after one start of
        // each run.
        db.jobctl(["tick", "--limit", "6"]).run().success();
        for (id, expected) in runs {
            assert_eq!(db.of_run(id, "status, attempts"), format!("failed|{attempt}"));
            assert_waits_about(&db, id, expected[attempt - 1]);
        }
        db.make_waiting_runs_due();
    }
}

#[test]
fn a_very_short_wait_ends_in_the_same_tick() {
    let db = TestDb::new();
    db.apply("[jobs.limited]\nshell = 'false'\nmax_running = 1\nmax_attempts = 3\n");
    for backoff in ["fixed:0s", "fixed:10ms"] {
        for (job, command) in
            [("shell", &["--max-attempts", "3", "--", "false"][..]), ("limited", &[])]
        {
            let id =
                db.enqueue(["--backoff", backoff, job].into_iter().chain(command.iter().copied()));
            db.jobctl(["tick"]).run().success();
            assert_eq!(db.of_run(id, "status, attempts"), "dead|3", "{job} {backoff}");
        }
    }
    // A run whose worker has gone. If it may start again at once, the tick that finds it starts it.
    let id = db.enqueue(["shell", "--backoff", "fixed:0s", "--", "true"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'gone', \
         locked_until = now(), started_at = now() WHERE id = {id}"
    ));
    db.jobctl(["tick"]).run().success().stderr_has("lease of worker gone expired");
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|2");
}

#[test]
fn jitter_spreads_runs_that_failed_together() {
    let db = TestDb::new();
    let line =
        r#"{"job_type": "shell", "payload": {"command": ["false"]}, "backoff": "fixed:100s"}"#;
    db.jobctl(["enqueue", "--batch", "-"]).stdin(format!("{line}\n").repeat(40)).run().success();
    db.jobctl(["tick", "--quiet"]).run().success();
    // The waits differ, and reach from below 95 s to above 105 s, within 20 percent of 100 s.
    let spread = "SELECT count(*),
            count(DISTINCT round(extract(epoch FROM run_at - failed_at))) > 5,
            min(run_at - failed_at) BETWEEN '80s' AND '95s',
            max(run_at - failed_at) BETWEEN '105s' AND '120s'
        FROM jobctl.job_runs WHERE status = 'failed'";
    assert_eq!(db.query(spread), "40|t|t|t");
}

#[test]
fn a_failed_run_does_not_start_before_its_time() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "false"]);
    db.jobctl(["tick"]).run().success();
    let failed = db.of_run(id, "job_runs::text");
    db.jobctl(["tick"]).run().success().stdout("").stderr("");
    assert_eq!(db.of_run(id, "job_runs::text"), failed);
    db.make_waiting_runs_due();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts"), "failed|2");
}

#[test]
fn a_run_is_dead_after_exactly_max_attempts_starts() {
    let db = TestDb::new();
    let directory = temp_dir();
    let starts = directory.path().join("starts");
    for limit in [1, 3] {
        // Each attempt appends its number to the file.
        let script = format!("echo $JOBCTL_ATTEMPT >> {}; exit 9", starts.display());
        let payload = format!("{{\"command\": {}}}", json_string(&script));
        let id = db.enqueue(["shell", &payload, "--max-attempts", &limit.to_string()]);
        // Two ticks more than the run has attempts.
        for _ in 0..limit + 2 {
            db.jobctl(["tick", "--quiet"]).run().success();
            db.make_waiting_runs_due();
        }
        let expected: String = (1..=limit).map(|attempt| format!("{attempt}\n")).collect();
        assert_eq!(fs::read_to_string(&starts).unwrap(), expected);
        fs::remove_file(&starts).unwrap();
        assert_eq!(
            db.of_run(id, "status, attempts, error_type, last_error, finished_at = failed_at"),
            format!("dead|{limit}|exit_code|exit status 9|t")
        );
        assert_eq!(
            db.query(&format!(
                "SELECT attempt, outcome FROM jobctl.job_attempts WHERE run_id = \
                {id} ORDER BY attempt"
            )),
            (1..=limit).map(|attempt| format!("{attempt}|failed")).collect::<Vec<_>>().join("\n")
        );
    }
}

#[test]
fn a_run_that_succeeds_at_last_keeps_its_history() {
    let db = TestDb::new();
    let id = db.enqueue_script("test $JOBCTL_ATTEMPT -eq 3");
    for _ in 0..4 {
        db.jobctl(["tick"]).run().success();
        db.make_waiting_runs_due();
    }
    assert_eq!(db.of_run(id, "status, attempts, locked_by, locked_until"), "succeeded|3||");
    assert_eq!(
        db.query("SELECT attempt, outcome, exit_code FROM jobctl.job_attempts ORDER BY attempt"),
        "1|failed|1\n2|failed|1\n3|succeeded|0"
    );
}

#[test]
fn the_log_says_when_the_next_attempt_is_or_that_there_is_none() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--max-attempts", "2", "--backoff", "fixed:30s", "--", "false"]);
    // Exit status 64 means that no other attempt can succeed.
    let permanent = db.enqueue_script("exit 64");
    let first = db.jobctl(["tick", "--limit", "2"]).run().success();
    let first = first.stderr_has(&format!("run {id} shell attempt 1/2: exit status 1 after "));
    let first = first.stderr_has(", next attempt in ");
    first
        .stderr_has(&format!("run {permanent} shell attempt 1/10: exit status 64 after "))
        .stderr_has(", dead\n");
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--quiet"])
        .run()
        .success()
        .stderr_has(&format!("run {id} shell attempt 2/2: exit status 1 after "));
}

#[test]
fn an_invalid_backoff_or_attempt_in_the_table_stops_no_other_run() {
    let db = TestDb::new();
    // The rule, the number of the attempt that fails, and the wait after it in seconds.
    let rules = [
        // The constraint lets these rules in, but they can't be read. The default applies.
        ("fixed:zz", 1, 60.0),
        ("exponential:5m..1m", 2, 120.0),
        ("list: ,", 1, 60.0),
        // High powers do not overflow.
        ("exponential:1d..30d", 999_000, 30.0 * 86400.0),
        ("exponential:1s..1h", 64, 3600.0),
        ("polynomial:30d", 999_000, 30.0 * 86400.0),
    ];
    let runs = rules.map(|(rule, attempt, wait)| {
        let id = db.enqueue(["shell", "--", "false"]);
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET backoff = '{rule}', attempts = {}, max_attempts = 1000000 \
             WHERE id = {id}",
            attempt - 1
        ));
        (id, attempt, wait)
    });
    db.jobctl(["tick"]).run().success();
    for (id, attempt, wait) in runs {
        assert_eq!(db.of_run(id, "status, attempts"), format!("failed|{attempt}"));
        assert_waits_about(&db, id, wait);
    }
}

#[test]
fn a_retry_after_of_a_server_lengthens_the_backoff_and_never_shortens_it() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let date = "date=Wed,%2021%20Oct%202015%2007:28:00%20GMT";
    // The address whose answer has this Retry-After, and the wait in seconds that the run gets by
    // it; `None`: the answer asks for nothing. Retry-After has no jitter, and the backoff of ten
    // seconds has.
    let asked = [
        ("/status/503?retry-after=120".to_owned(), Some(120)),
        ("/status/429?retry-after=7200".to_owned(), Some(7200)),
        ("/status/503?retry-after=99999999999999999999".to_owned(), Some(86400)),
        // A date counts from the answer's own date, here 90 s later, or earlier.
        (
            format!("/status/503?{date}&retry-after=Wed,%2021%20Oct%202015%2007:29:30%20GMT"),
            Some(90),
        ),
        (
            format!("/status/503?{date}&retry-after=Wed,%2021%20Oct%202015%2007:00:00%20GMT"),
            Some(0),
        ),
        // Without a date of the answer, it counts from this host's time, which is later.
        ("/status/503?retry-after=Wed,%2021%20Oct%202015%2007:29:30%20GMT".to_owned(), Some(0)),
        ("/status/503?retry-after=0".to_owned(), Some(0)),
        // Not a number or a date, or two values.
        ("/status/503?retry-after=-5".to_owned(), None),
        ("/status/503?retry-after=abc".to_owned(), None),
        ("/status/503?retry-after=".to_owned(), None),
        ("/status/503?retry-after=500&retry-after=600".to_owned(), None),
        ("/status/503".to_owned(), None),
        // Other statuses than 429 and 503.
        ("/status/500?retry-after=120".to_owned(), None),
        ("/status/408?retry-after=120".to_owned(), None),
    ];
    let runs = asked.map(|(path, seconds)| {
        let payload = format!("{{\"url\": \"{}\"}}", server.url(&path));
        (db.enqueue(["http", &payload, "--backoff", "fixed:10s"]), path, seconds)
    });
    db.jobctl(["tick"]).run().success();
    for (id, path, seconds) in runs {
        // An answer that asks for a wait of 0 s snoozes the run, too.
        let status = if seconds.is_some() { "queued" } else { "failed" };
        let found = db.of_run(id, "status, error_type");
        assert_eq!(found, format!("{status}|http_status"), "{path}");
        match seconds {
            Some(seconds) if seconds > 0 => {
                let wait = seconds_until_next_attempt(&db, id);
                assert!((wait - f64::from(seconds)).abs() < 0.001, "{path}: {wait} s");
            }
            _ => assert_waits_about(&db, id, 10.0),
        }
    }
}

#[test]
fn a_run_that_succeeds_keeps_its_last_error_and_run_at() {
    let db = TestDb::new();
    let id = db.enqueue_script("test $JOBCTL_ATTEMPT -eq 2 || exit 3");
    db.jobctl(["tick"]).run().success();
    db.make_waiting_runs_due();
    let failure = "last_error, error_type, failed_at, run_at";
    let before = db.of_run(id, failure);
    assert!(before.starts_with("exit status 3|exit_code|"), "{before}");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|2");
    assert_eq!(db.of_run(id, failure), before);
}
