//! One tick, flag by flag.

use std::fs;
use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cancel::enqueue_in_status;
use crate::retry::answer_at_terminal;
use crate::support::{Gate, TestDb, jobctl, temp_dir, wait_until};

/// Returns the lines of a log without times and durations.
fn log_without_times(stderr: &str) -> Vec<String> {
    // Replaces each duration by `T`.
    let event = |line: &str| {
        let (_, line) = line.split_once("Z ").unwrap_or(("", line));
        let mut words = Vec::new();
        for word in line.split(' ').filter(|word| !word.is_empty()) {
            let length = word.trim_end_matches(',');
            if !length.starts_with(|c: char| c.is_ascii_digit()) || !length.ends_with(['s', 'm']) {
                words.push(word);
                continue;
            }
            // A duration has one or two words: `59s`, `1m 4s`.
            if words.last() == Some(&"T") {
                words.pop();
            }
            words.push(if word.ends_with(',') { "T," } else { "T" });
        }
        words.join(" ")
    };
    stderr.lines().map(event).collect()
}

/// Returns `ID|STATUS` for each run. The ids of a new database begin with 1.
fn statuses(db: &TestDb) -> String {
    db.query("SELECT id, status FROM jobctl.job_runs ORDER BY id").replace('\n', " ")
}

#[test]
fn a_tick_prints_nothing_when_nothing_is_due() {
    let db = TestDb::new();
    db.jobctl(["tick"]).run().success().stdout("").stderr("");
    db.enqueue(["shell", "--in", "1h", "--", "true"]);
    db.enqueue(["shell", "--queue", "other", "--", "true"]);
    db.jobctl(["tick", "--queue", "default"]).run().success().stdout("").stderr("");
    db.jobctl(["tick", "--queue", "default", "--linger", "--max-time", "1s"])
        .run()
        .success()
        .stdout("")
        .stderr("");
    assert_eq!(statuses(&db), "1|queued 2|queued");
}

#[test]
fn a_tick_logs_one_line_per_event_and_exits_0_even_if_jobs_failed() {
    let db = TestDb::new();
    let good = db.enqueue(["shell", "--", "true"]);
    let failing = db.enqueue(["shell", "--", "false"]);
    let last = db.enqueue(["shell", "--max-attempts", "1", "--", "false"]);
    let permanent = db.enqueue(["shell", "--", "sh", "-c", "exit 65"]);
    let undefined =
        db.query("INSERT INTO jobctl.job_runs (job_type) VALUES (E'no\\nsuch') RETURNING id");
    // With one slot, the runs end in the order of their ids.
    let tick = db.jobctl(["tick", "--concurrency", "1"]).run().success().stdout("");
    assert_eq!(
        log_without_times(&tick.stderr),
        [
            format!("info run {good} shell attempt 1/10: succeeded after T"),
            format!(
                "info run {failing} shell attempt 1/10: exit status 1 after T, next attempt in T"
            ),
            format!("warn run {last} shell attempt 1/1: exit status 1 after T, dead"),
            format!("warn run {permanent} shell attempt 1/10: exit status 65 after T, dead"),
            format!(
                "warn run {undefined} no\\nsuch attempt 1/10: no definition `no\\nsuch`; it was \
                 never applied, or was removed, dead"
            ),
        ]
    );
    let expected =
        format!("{good}|succeeded {failing}|failed {last}|dead {permanent}|dead {undefined}|dead");
    assert_eq!(statuses(&db), expected);
}

#[test]
fn a_log_line_names_the_duration_once_and_only_of_a_started_job() {
    let db = TestDb::new();
    let slow = db.enqueue(["shell", "--timeout", "1s", "--", "sleep", "600"]);
    let call = r#"{"url": "http://127.0.0.1/", "headers": {"X": "${APP_ABSENT}"}}"#;
    let unstarted = db.enqueue(["http", call]);
    let tick = db.jobctl(["tick", "--concurrency", "1"]).run().success();
    assert_eq!(
        log_without_times(&tick.stderr),
        [
            format!("info run {slow} shell attempt 1/10: timed out after T, next attempt in T"),
            format!(
                "info run {unstarted} http attempt 1/10: could not start: header `X` names a \
                 variable that is unset or empty; the variable is `APP_ABSENT`, next attempt in T"
            ),
        ]
    );
}

#[test]
fn a_quiet_tick_logs_only_what_needs_a_person() {
    let db = TestDb::new();
    db.enqueue(["shell", "--", "true"]);
    db.enqueue(["shell", "--", "false"]);
    db.jobctl(["tick", "--quiet"]).run().success().stderr("");
    // No tick tries this run again, so a person must.
    let dead = db.enqueue(["shell", "--max-attempts", "1", "--", "false"]);
    let tick = db.jobctl(["tick"]).env("JOBCTL_TICK_QUIET", "1").run().success();
    assert_eq!(
        log_without_times(&tick.stderr),
        [format!("warn run {dead} shell attempt 1/1: exit status 1 after T, dead")]
    );
}

#[test]
fn smaller_priorities_start_first_then_older_runs() {
    let db = TestDb::new();
    let log = temp_dir();
    let script = format!("echo $JOBCTL_RUN_ID >>{}/log", log.path().display());
    // Run 6 is not due.
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (id, job_type, payload, queue, priority, run_at)
         SELECT id, 'shell', jsonb_build_object('command', '{script}'), queue, priority, now() - age
         FROM (VALUES
             (1, 'default', 0, interval '1 minute'),
             (2, 'default', 0, interval '3 minutes'),
             (3, 'other', 0, interval '2 minutes'),
             (4, 'default', 5, interval '1 hour'),
             (5, 'default', -5, interval '1 second'),
             (6, 'default', -5, interval '-1 hour')
         ) AS line (id, queue, priority, age)"
    ));
    let preview = db.jobctl(["tick", "--dry-run"]).run().success();
    db.jobctl(["tick", "--concurrency", "1", "--quiet"]).run().success();
    let started = fs::read_to_string(log.path().join("log")).unwrap().replace('\n', " ");
    // Run 5 has the smallest priority, and run 4 the largest.
    let first = started.split(' ').next().unwrap();
    assert_eq!(first, "5", "started in the order {started}");
    assert!(started.trim().ends_with('4'), "started in the order {started}");
    // Runs 1 and 2 have the same queue and priority, and run 2 is older.
    let within_queue: String = started.split(' ').filter(|id| ["1", "2"].contains(id)).collect();
    assert_eq!(within_queue, "21");
    let previewed: Vec<_> =
        preview.stdout.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(previewed, ["5", "2", "3", "1", "4"]);
    assert_eq!(db.status(6), "queued");
}

#[test]
fn limit_bounds_the_runs_that_a_tick_starts() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT 'shell', '{\"command\": \"true\"}' FROM generate_series(1, 60)",
    );
    let succeeded = || db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded'");
    db.jobctl(["tick", "--limit", "1", "--quiet"]).run().success();
    assert_eq!(succeeded(), "1");
    db.jobctl(["tick", "--linger", "--quiet"]).env("JOBCTL_TICK_LIMIT", "40").run().success();
    assert_eq!(succeeded(), "41");
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'queued' AND attempts = 0"),
        "19"
    );
}

#[test]
fn after_max_time_running_jobs_finish_and_no_run_is_claimed() {
    let db = TestDb::new();
    let gate = Gate::new();
    let long = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--max-time", "1s", "--linger", "--worker", "w"]).spawn();
    gate.wait_for_starts(1);
    // The claim right is released when the time is spent.
    db.wait_until_no_tick_has_the_claim_right();
    let late = db.enqueue(["shell", "--", "true"]);
    gate.open();
    tick.wait().success();
    assert_eq!(db.status(long), "succeeded");
    assert_eq!(db.status(late), "queued");
}

#[test]
fn only_a_lingering_tick_runs_jobs_that_are_enqueued_later() {
    let db = TestDb::new();
    db.jobctl(["tick"]).run().success().stderr("");
    let mut tick = db.jobctl(["tick", "--linger", "--max-time", "1m"]).spawn();
    db.wait_until_a_tick_has_the_claim_right();
    for _ in 0..2 {
        let id = db.enqueue(["shell", "--", "true"]);
        db.wait_for_status(id, "succeeded");
    }
    assert!(tick.is_running());
    tick.signal(Signal::TERM);
    tick.wait().success();
}

#[test]
fn a_tick_claims_only_from_the_named_queues() {
    let db = TestDb::new();
    for queue in ["a", "b", "c", "default"] {
        db.enqueue(["shell", "--queue", queue, "--", "true"]);
    }
    db.jobctl(["tick", "--queue", "b", "--quiet"]).run().success();
    assert_eq!(statuses(&db), "1|queued 2|succeeded 3|queued 4|queued");
    db.jobctl(["tick", "--queue", "a", "c", "--quiet"]).run().success();
    assert_eq!(statuses(&db), "1|succeeded 2|succeeded 3|succeeded 4|queued");
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.status(4), "succeeded");
}

#[test]
fn a_running_run_and_its_attempt_name_their_worker() {
    let db = TestDb::new();
    let gate = Gate::new();
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--worker", "blue", "--lease", "1h"]).spawn();
    gate.wait_for_starts(1);
    let lease = "locked_by,
        locked_until BETWEEN now() + interval '50 minutes' AND now() + interval '1 hour',
        started_at > created_at";
    assert_eq!(db.of_run(id, lease), "blue|t|t");
    gate.open();
    tick.wait().success();
    assert_eq!(db.of_attempt(id, 1, "worker, outcome"), "blue|succeeded");
    assert_eq!(
        db.query("SELECT worker, version <> '', claiming_tick IS NULL FROM jobctl.job_workers"),
        "blue|t|t"
    );
}

#[test]
fn the_worker_of_a_tick_has_the_name_of_the_host_by_default() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["tick"]).run().success();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(db.of_attempt(id, 1, "worker"), host);
}

#[test]
fn a_worker_row_has_the_queues_of_its_last_tick() {
    let db = TestDb::new();
    for (flags, row) in [(&["--queue", "mail,reports"][..], "w|{mail,reports}"), (&[], "w|{}")] {
        db.jobctl(["tick", "--worker", "w"]).args(flags.iter().copied()).run().success();
        assert_eq!(db.query("SELECT worker, queues FROM jobctl.job_workers"), row);
    }
}

#[test]
fn a_tick_logs_that_a_tick_for_other_queues_has_the_claim_right() {
    let db = TestDb::new();
    let tick = |queues: &str| {
        let tick = db.jobctl(["tick", "--worker", "w"]);
        if queues.is_empty() { tick } else { tick.args(["--queue", queues]) }
    };
    let has_claim_right = |queues: &str| {
        let claims = format!(
            "SELECT queues = '{{{queues}}}' AND claiming_tick IS NOT NULL FROM jobctl.job_workers"
        );
        db.query(&claims) == "t"
    };
    let run = db.enqueue(["shell", "--queue", "c", "--", "true"]);
    let warning = " worker w: runs are due, but another tick of this worker claims only from queue \
        a,b; ";
    // The queues of the tick with the claim right, and of each later tick with the text in its log.
    // No queue means all queues.
    for (claiming, others) in [
        // Only queue `c` has a due run.
        ("a,b", &[("b,a", ""), ("b", ""), ("c,b", warning), ("", warning), ("d", "")][..]),
        ("", &[("", ""), ("a", "")]),
    ] {
        let lingering = tick(claiming).args(["--linger"]).spawn();
        wait_until("the claim right", || has_claim_right(claiming));
        if claiming.is_empty() {
            // This tick executes the due run. Then no run is due any more.
            db.wait_for_status(run, "succeeded");
        }
        for (queues, text) in others {
            let log = tick(queues).run().success().stderr;
            let lines = usize::from(!text.is_empty());
            assert_eq!(log.lines().count(), lines, "{claiming} {queues}: {log}");
            assert!(log.contains(text), "{claiming} {queues}: {log}");
        }
        assert!(has_claim_right(claiming));
        lingering.signal(Signal::TERM);
        lingering.wait().success();
    }
}

#[test]
fn a_tick_logs_why_due_runs_wait_unless_it_is_quiet() {
    let db = TestDb::new();
    let gate = Gate::new();
    let folder = temp_dir();
    let typescript = folder.path().join("typescript");
    // Runs two more ticks of the worker: without a terminal and on one. Returns what they print.
    let log_and_terminal = |flags: &str| {
        let tick = format!("\"$jobctl\" tick --worker w {flags}");
        let log = db.script(&tick).run().success().stderr;
        let script = format!("script -qec '{tick}' \"$typescript\" </dev/null >/dev/null");
        db.script(&script).env("typescript", typescript.to_str().unwrap()).run().success();
        [log, fs::read_to_string(&typescript).unwrap()]
    };
    // The first tick has the claim right, and its two threads are busy.
    gate.enqueue(&db);
    gate.enqueue(&db);
    let tick = db
        .jobctl(["tick", "--worker", "w", "--linger", "--concurrency", "2", "--grace", "1m"])
        .spawn();
    gate.wait_for_starts(2);
    let reason = "runs are due, but ";
    let is_silent = |flags: &str| log_and_terminal(flags).iter().all(|text| !text.contains(reason));
    assert!(is_silent(""), "nothing is due");

    db.enqueue(["shell", "--queue", "mail", "--", "true"]);
    for flags in ["", "--queue mail"] {
        let line = " worker w: runs are due, but another tick of this worker claims them; give \
            this tick its own --worker";
        let [log, shown] = log_and_terminal(flags);
        assert!([&log, &shown].iter().all(|text| text.matches(line).count() == 1), "{log}{shown}");
        let summary = "0 succeeded, 0 failed, 0 dead, 1 still due: another tick of this worker \
            claims\r\n";
        assert!(shown.contains(summary) && !log.contains("still due"), "{log}{shown}");
    }
    assert!(is_silent("--quiet"));
    assert!(is_silent("--queue other"));

    // After a signal, the first tick claims nothing more, and its threads are still busy.
    tick.signal(Signal::TERM);
    db.wait_until_no_tick_has_the_claim_right();
    let [_, shown] = log_and_terminal("--concurrency 2");
    let line = "runs are due, but runs of other ticks of this worker use all of --concurrency; ";
    assert_eq!(shown.matches(line).count(), 1, "{shown}");
    gate.open();
    tick.wait().success();
}

#[test]
fn a_tick_on_a_terminal_ends_with_a_summary() {
    let db = TestDb::new();
    db.enqueue_script("true");
    db.enqueue_script("true");
    db.enqueue_script("exit 1");
    db.enqueue_script("exit 65");
    // Returns the last line of a tick at a terminal, without its time and level.
    let summary = |flags: &str| {
        let shown = answer_at_terminal(&db, &format!("tick {flags}"), "").0;
        let line = shown.lines().find(|line| line.contains("still due"));
        line.map(|line| line.trim_end().split_once(" info  ").unwrap().1.to_owned())
    };
    for (flags, expected) in [
        ("--limit 1", "1 succeeded, 0 failed, 0 dead, 3 still due: --limit is reached"),
        ("", "1 succeeded, 1 failed, 1 dead, 0 still due: nothing is due"),
        (
            "--linger --max-time 1s",
            "0 succeeded, 0 failed, 0 dead, 0 still due: --max-time is over",
        ),
    ] {
        assert_eq!(summary(flags).as_deref(), Some(expected));
    }
    // A quiet tick has no summary, and neither has a tick without a terminal.
    assert_eq!(summary("--quiet"), None);
    db.jobctl(["tick"]).run().success().stderr("");
}

#[test]
fn with_log_format_json_each_line_of_the_log_is_an_object() {
    let db = TestDb::new();
    let id = db.enqueue_script("exit 65");
    let json = |log: &str| -> Value {
        assert_eq!(log.lines().count(), 1, "{log}");
        serde_json::from_str(log).unwrap()
    };
    let tick = || db.jobctl(["tick", "--worker", "w"]).env("JOBCTL_TICK_LOG_FORMAT", "json");
    let mut line = json(&tick().run().success().stderr);
    assert!(line["time"].take().as_str().unwrap().ends_with('Z'));
    let message = line["message"].take();
    let took = line["run_time_seconds"].take().as_f64().unwrap();
    assert!(took > 0.0 && took < 60.0, "{took}");
    let start = format!("run {id} shell attempt 1/10: exit status 65 ");
    assert!(message.as_str().unwrap().starts_with(&start), "{message}");
    assert_eq!(
        line,
        json!({"time": null, "level": "warn", "message": null, "run": id, "job": "shell",
            "attempt": 1, "status": "dead", "worker": "w", "run_time_seconds": null,
            "error_type": "exit_code", "error": "exit status 65"})
    );

    // A failed attempt says when the next one is due.
    db.enqueue(["shell", "--backoff", "fixed:0s", "--max-attempts", "2", "--", "false"]);
    let log = tick().args(["--limit", "1"]).run().success().stderr;
    assert_eq!(json(&log)["next_attempt_seconds"], 0.0);

    // The error with which a command ends is an object, too.
    let error = tick().args(["--database-url", "postgres://127.0.0.1:1/x"]).run().exits(5);
    assert_eq!(json(&error.stderr)["level"], "error");
}

#[test]
fn each_line_about_a_run_has_its_fields() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '@daily'\n");
    // Returns the fields of the line that a tick logs about this, except those that all lines have.
    let line = |what: &str| -> Value {
        let tick = db.jobctl(["tick", "--worker", "w", "--log-format", "json"]);
        let log = tick.env("JOBCTL_LOG", "debug").run().success().stderr;
        let line = log.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{log}"));
        let mut line: Value = serde_json::from_str(line).unwrap();
        for field in ["time", "level", "message"] {
            line.as_object_mut().unwrap().remove(field).unwrap();
        }
        line
    };
    let id = db.enqueue_script("true");
    assert_eq!(
        line("attempt 1/10: claimed"),
        json!({"run": id, "job": "shell", "attempt": 1, "worker": "w", "status": "running"})
    );

    // A lost run. Its line has the worker that lost the run.
    let lost = enqueue_in_status(&db, "running");
    db.execute("UPDATE jobctl.job_runs SET backoff = 'fixed:0s' WHERE status = 'running'");
    db.expire_leases();
    assert_eq!(
        line("lease of worker elsewhere expired"),
        json!({"run": lost, "job": "shell", "attempt": 1, "worker": "elsewhere", "status": "failed",
            "error_type": "lease_expired", "next_attempt_seconds": 0.0})
    );

    // A run whose claim the database rejects.
    let rejected = db.enqueue(["shell", "--", "true"]);
    crate::bulk::reject_changes_of(&db, &format!("OLD.id = {rejected}"));
    assert_eq!(line("this tick skips the run"), json!({"run": rejected, "job": "shell"}));

    // A schedule.
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = now()");
    assert_eq!(line("schedule a: fired"), json!({"job": "a"}));
}

#[test]
fn failures_are_not_logged_in_the_colour_of_success() {
    let db = TestDb::new();
    db.enqueue_script("true");
    db.enqueue_script("exit 1");
    let log = db.jobctl(["tick", "--color", "always"]).run().success().stderr;
    // Returns the first colour of the line with this text.
    let colour = |what: &str| {
        let line = log.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{log}"));
        line.split_once('\u{1b}').unwrap().1.split_once('m').unwrap().0.to_owned()
    };
    assert_ne!(colour("exit status 1"), colour("succeeded"));
}

#[test]
fn a_host_that_runs_no_commands_leaves_them_to_others() {
    let db = TestDb::new();
    // `defined` allows only the commands of definitions.
    for shell in ["off", "defined"] {
        let command = db.enqueue(["shell", "--", "true"]);
        let call = db.enqueue(["http", "--max-attempts", "1", r#"{"url": "http://127.0.0.1:1/"}"#]);
        let preview = db.jobctl(["tick", "--dry-run", "--shell", shell]).run().success();
        assert!(
            preview.stdout.starts_with(&format!("{call}\t")) && preview.stdout.lines().count() == 1,
            "{preview}"
        );
        db.jobctl(["tick", "--shell", shell]).run().success();
        assert_eq!(db.status(command), "queued");
        assert_eq!(db.of_run(command, "attempts"), "0");
        assert_eq!(db.status(call), "dead");
        db.jobctl(["tick", "--shell", "any"]).run().success();
        assert_eq!(db.status(command), "succeeded");
    }
}

#[test]
fn a_dry_run_shows_what_would_be_claimed_and_changes_nothing() {
    let db = TestDb::new();
    db.jobctl(["tick", "--dry-run"]).run().success().stdout("").stderr("");
    db.jobctl(["tick", "--dry-run", "--json"]).run().success().stdout("[]\n").stderr("");

    let second = db.enqueue(["shell", "--", "true"]);
    let first = db.enqueue(["shell", "--queue", "mail", "--priority", "-1", "--", "true"]);
    db.execute("UPDATE jobctl.job_runs SET run_at = '2026-01-05T09:30:00Z'");
    // This run is not due.
    db.enqueue(["shell", "--in", "1h", "--", "true"]);
    let everything = || {
        db.query("SELECT run::text FROM jobctl.job_runs AS run ORDER BY id")
            + &db.query("SELECT count(*) FROM jobctl.job_workers")
    };
    let before = everything();
    let lines = [
        format!("{first}\tshell\tmail\t-1\t2026-01-05T09:30:00.000000Z\t1\t10\n"),
        format!("{second}\tshell\tdefault\t0\t2026-01-05T09:30:00.000000Z\t1\t10\n"),
    ];
    db.jobctl(["tick", "--dry-run"]).run().success().stdout(&lines.concat()).stderr("");
    db.jobctl(["tick", "--dry-run", "--limit", "1"]).run().success().stdout(&lines[0]);
    db.jobctl(["tick", "--dry-run", "--queue", "default"]).run().success().stdout(&lines[1]);
    let json = db.jobctl(["tick", "--dry-run", "--json", "--limit", "1"]).run().success();
    let rows: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let row = serde_json::json!([{
        "id": first, "job_type": "shell", "queue": "mail", "priority": -1,
        "run_at": "2026-01-05T09:30:00.000000Z", "attempt": 1, "max_attempts": 10
    }]);
    assert_eq!(rows, row);
    assert_eq!(everything(), before);
}

#[test]
fn a_flag_out_of_range_is_rejected_before_anything_happens() {
    let refused = [
        ["--concurrency", "0"],
        ["--concurrency", "1025"],
        ["--limit", "0"],
        ["--limit", "-1"],
        ["--max-time", "0s"],
        ["--max-time", "2d"],
        ["--lease", "0s"],
        ["--lease", "25h"],
        ["--lease", "soon"],
        ["--grace", "-1s"],
        ["--worker", ""],
        ["--worker", "a\nb"],
        ["--queue", "a b"],
        ["--queue", ""],
        ["--shell", "some"],
    ];
    for flags in refused {
        // There is no database at this address: the tick must not need one.
        let tick = jobctl(["tick"])
            .args(flags)
            .env("JOBCTL_DATABASE_URL", "postgresql://127.0.0.1:1/x")
            .run();
        let tick = tick.exits(2).stdout("");
        assert!(tick.stderr.starts_with("jobctl: "), "{tick}");
    }
}

#[test]
fn a_tick_needs_no_environment_and_no_working_directory() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "sh", "-c", "exit 0"]);
    let folder = temp_dir();
    let gone = folder.path().join("gone");
    fs::create_dir(&gone).unwrap();
    // The shell in between deletes its own working directory.
    let binary = env!("CARGO_BIN_EXE_jobctl");
    let script = format!(
        "cd {0} && rmdir {0} && exec env -i {binary} tick --database-url '{1}'",
        gone.display(),
        db.url()
    );
    let tick = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
    assert!(tick.status.success(), "{tick:?}");
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn runs_with_unknown_jobs_or_wrong_payloads_end_dead_and_do_not_delay_the_next() {
    let db = TestDb::new();
    // Of 200 runs that come first, a third has an unknown job. The others have a payload that is
    // wrong for their job: a number instead of a text, or an array.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload, priority)
         SELECT CASE n % 3 WHEN 0 THEN 'no_such_job' WHEN 1 THEN 'shell' ELSE 'http' END,
             CASE n % 2 WHEN 0 THEN '{\"url\": 5, \"command\": 5}'::jsonb ELSE '[]' END, -1
         FROM generate_series(1, 200) AS n",
    );
    let id = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(id), "succeeded");
    let ends = db.query(
        "SELECT count(*), count(*) FILTER (WHERE status = 'dead' AND error_type = 'bad_payload' \
            AND last_error <> '')
         FROM jobctl.job_runs WHERE priority = -1",
    );
    assert_eq!(ends, "200|200");
}

#[test]
fn a_tick_has_one_connection_and_no_transaction_while_jobs_run() {
    let db = TestDb::new();
    let gate = Gate::new();
    for _ in 0..8 {
        gate.enqueue(&db);
    }
    let tick = db.jobctl(["tick", "--concurrency", "8"]).spawn();
    gate.wait_for_starts(8);
    let sessions = "SELECT count(*), count(*) FILTER (WHERE state = 'idle' AND xact_start IS NULL)
         FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    // A session is busy only during a statement. The sessions of the test take a moment to end.
    wait_until("one idle session", || db.query(sessions) == "1|1");
    gate.open();
    tick.wait().success();
}

#[test]
fn a_tick_whose_log_is_read_late_records_all_results_and_loses_no_line() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT 'shell', '{\"command\": [\"true\"]}' FROM generate_series(1, 1500)",
    );
    // The log of 1500 runs is longer than a pipe can hold.
    let (reader, writer) = std::io::pipe().unwrap();
    let tick = db.jobctl(["tick"]).env("JOBCTL_LOG", "debug").stderr_to(writer.into()).spawn();
    wait_until("all results to be recorded", || {
        db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded'") == "1500"
    });
    // The test reads the log only now.
    let lines = BufReader::new(reader).lines().map_while(Result::ok);
    assert_eq!(lines.filter(|line| line.contains(": succeeded after ")).count(), 1500);
    tick.wait().success();
}

#[test]
fn a_tick_at_a_terminal_says_that_its_user_is_another_one() {
    let db = TestDb::new();
    let user = rustix::process::geteuid();
    let name = std::process::Command::new("id").arg("-un").output().unwrap();
    let name = String::from_utf8(name.stdout).unwrap().trim().to_owned();
    // Enqueues a run, runs a tick at a terminal, and returns its warning about the user. In the
    // flags, `ID` means that run.
    let warning = |flags: &str| {
        let id = db.enqueue_script("true");
        let tick =
            format!("script -qec \"'$jobctl' tick --worker w {flags}\" /dev/null </dev/null");
        let shown = db.script(&tick.replace("ID", &id.to_string())).env("NO_COLOR", "1");
        let shown = shown.run().success().stdout;
        // The warning comes before the first job.
        let line = shown.lines().find(|line| line.contains("this tick runs jobs as")).map(|line| {
            let log = shown.find("succeeded").unwrap_or(shown.len());
            assert!(shown.find(line).unwrap() < log, "{shown}");
            line.split(" warn  ").nth(1).unwrap_or(line).trim().to_owned()
        });
        line.unwrap_or_default()
    };
    let stored_user = || db.query("SELECT os_user FROM jobctl.job_workers WHERE worker = 'w'");

    // Before the first tick of the worker, no user is stored. Then only root is warned.
    let of_root = if user.is_root() { "this tick runs jobs as root; Ctrl-C stops it" } else { "" };
    assert_eq!(warning("--run ID"), of_root);
    assert_eq!(warning(""), of_root);
    assert_eq!(stored_user(), name);
    assert_eq!(warning(""), "");

    // The last tick of the worker ran as another user.
    let store_another_user = || db.execute("UPDATE jobctl.job_workers SET os_user = 'ana'");
    for flags in ["", "--quiet", "--run ID"] {
        store_another_user();
        let line = format!(
            "this tick runs jobs as {name}, but the last tick of worker w ran them as ana; Ctrl-C \
             stops it"
        );
        assert_eq!(warning(flags), line, "{flags}");
    }

    // A preview starts nothing, and cron has no terminal.
    store_another_user();
    assert_eq!(warning("--dry-run"), "");
    db.jobctl(["tick", "--worker", "w"]).run().success().prints_nowhere("this tick runs jobs as");
    assert_eq!(stored_user(), name);
}
