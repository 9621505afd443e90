//! `show`: the facts of one run, why it is not running, its history and its output.

use serde_json::{Value, json};

use crate::cancel::{STATUSES, enqueue_in_status};
use crate::list_dead::{HARMLESS, HOSTILE};
use crate::support::http_server::HttpServer;
use crate::support::{TestDb, temp_dir, without_seconds};

/// Returns what `show` prints, without the ages of times.
fn show(db: &TestDb, id: i64) -> String {
    let show = db.jobctl(["show", &id.to_string(), "--format", "table"]).run();
    let without_age = |line: &str| {
        let end = line.rfind(" (").filter(|_| line.ends_with(" ago)")).unwrap_or(line.len());
        line[..end].to_owned() + "\n"
    };
    show.success().stderr("").stdout.lines().map(without_age).collect()
}

fn json_of(db: &TestDb, id: i64) -> Value {
    let finished = db.jobctl(["show", "--json", &id.to_string()]).run().success().stderr("");
    assert_eq!(finished.stdout.lines().count(), 1);
    serde_json::from_str(&finished.stdout).unwrap()
}

/// Returns the value of a fact, `None` if it is left out.
fn fact<'a>(shown: &'a str, name: &str) -> Option<&'a str> {
    shown
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(&format!("{name}:")))
        .map(str::trim)
}

/// Inserts a run that was marked dead after its second attempt, long ago.
fn insert_dead(db: &TestDb) -> i64 {
    let id = db.enqueue([
        "shell",
        "--key",
        "k",
        "--timeout",
        "90s",
        "--max-attempts",
        "2",
        "--",
        "sh",
        "-c",
        "exit 3",
    ]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs
         SET status = 'dead', attempts = 2, last_error = 'exit status 3', error_type = 'exit_code',
             created_at = '2026-01-31 07:00:00+00', run_at = '2026-01-31 07:00:00+00',
             started_at = '2026-01-31 08:00:00+00', failed_at = '2026-01-31 08:00:05+00',
             finished_at = '2026-01-31 08:00:05+00', updated_at = '2026-01-31 08:00:05+00'
         WHERE id = {id};
         INSERT INTO jobctl.job_attempts
             (run_id, attempt, worker, started_at, finished_at, outcome, error_type, error,
             exit_code, signal, output, output_bytes)
         VALUES
             ({id}, 1, 'blue', '2026-01-31 07:00:00+00', '2026-01-31 07:00:00.25+00', 'failed',
                 'signal', 'killed by signal 9', NULL, 9, NULL, 0),
             ({id}, 2, 'green', '2026-01-31 08:00:00+00', '2026-01-31 08:00:05+00', 'failed',
                 'exit_code', 'exit status 3', 3, NULL, E'one\n\ttwo', 8)"
    ));
    id
}

/// A payload may be any JSON value, also a list of words.
#[test]
fn a_payload_is_shown_as_json() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'cat'\n");
    for payload in [r#"["a,b", "c"]"#, "[]", "[1, 2]", r#""1""#, "1"] {
        let id = db.enqueue(["a", payload]).to_string();
        db.jobctl(["show", &id]).run().success().stdout_has(&format!("\npayload\t{payload}\n"));
        let shown = db.jobctl(["show", &id, "--format", "table"]).run().success().stdout;
        assert!(shown.contains(&format!("\npayload:   {payload}\n")), "{shown}");
    }
}

#[test]
fn show_prints_a_run_with_its_history() {
    let db = TestDb::new();
    let id = insert_dead(&db);
    let expected = format!(
        "run:         {id}
job:         shell
status:      dead
why:         attempt 2 of 2 was the last
queue:       default
priority:    0
key:         k
created:     2026-01-31T07:00:00Z
ended:       2026-01-31T08:00:05Z
attempts:    2/2
timeout:     1m 30s
backoff:     exponential:1m..30m
error type:  exit_code
error:       exit status 3
payload:     {{\"command\":[\"sh\", \"-c\", \"exit 3\"]}}

attempt:       1
  outcome:     failed
  worker:      blue
  started:     2026-01-31T07:00:00Z
  took:        250ms
  signal:      9
  error type:  signal
  error:       killed by signal 9

attempt:        2
  outcome:      failed
  worker:       green
  started:      2026-01-31T08:00:00Z
  took:         5s
  exit status:  3
  error type:   exit_code
  error:        exit status 3
  output:       8 bytes
    one
    \ttwo

`jobctl retry {id}` tries it again
`jobctl settle {id}` closes it
`jobctl prune {id}` deletes it
"
    );
    assert_eq!(show(&db, id), expected);
}

#[test]
fn equal_attempts_are_shown_as_one() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "failed");
    // Nine attempts failed. The ninth has another error, and the third was on another worker.
    db.execute(&format!(
        "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome,
                 error_type, error, exit_code, output, output_bytes)
             SELECT {id}, n, CASE WHEN n = 3 THEN 'green' ELSE 'blue' END,
                 '2026-01-31 07:00Z'::timestamptz + n * interval '1 min',
                 '2026-01-31 07:00Z'::timestamptz + n * interval '61 s', 'failed', 'exit_code',
                 CASE WHEN n = 9 THEN 'exit status 2' ELSE 'exit status 1' END,
                 CASE WHEN n = 9 THEN 2 ELSE 1 END, 'output ' || n, 8
             FROM generate_series(1, 9) AS n"
    ));
    let shown = show(&db, id);
    let history = shown.split_once("\n\nattempt").unwrap_or_else(|| panic!("{shown}")).1;
    // Attempt 3 belongs to the others: the worker may differ.
    let expected = format!(
        ":        1 to 8, with the same result
  outcome:      failed
  worker:       blue, green
  started:      2026-01-31T07:01:00Z to 2026-01-31T07:08:00Z
  took:         8s (the last)
  exit status:  1
  error type:   exit_code
  error:        exit status 1
  output:       8 bytes (the last)
    output 8

attempt:        9
  outcome:      failed
  worker:       blue
  started:      2026-01-31T07:09:00Z
  took:         9s
  exit status:  2
  error type:   exit_code
  error:        exit status 2
  output:       8 bytes
    output 9

`jobctl retry {id}` tries it now
`jobctl cancel {id}` stops it
"
    );
    assert_eq!(history, expected);

    // JSON has each attempt.
    let json = db.jobctl(["show", &id.to_string(), "--json"]).run().success().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["history"].as_array().unwrap().len(), 9);
}

#[test]
fn json_has_every_column_the_reason_and_the_history() {
    let db = TestDb::new();
    let id = insert_dead(&db);
    // The first attempt of this run, with other values for some fields.
    let attempt = |of: Value| {
        let mut all = json!({
            "attempt": 1, "worker": "blue", "started_at": "2026-01-31T07:00:00.000000Z",
            "finished_at": "2026-01-31T07:00:00.250000Z", "run_time_seconds": 0.25,
            "outcome": "failed", "error_type": "signal", "error": "killed by signal \
                9", "exit_code": null, "signal": 9,
            "http_status": null, "output": null, "output_bytes": 0, "output_truncated": false,
        });
        all.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
        all
    };
    let mut expected = json!({
        "id": id, "job_type": "shell", "status": "dead", "why_not_running": "attempt 2 of 2 was \
            the last", "queue": "default", "priority": 0,
        "attempts": 2, "max_attempts": 2, "timeout_seconds": 90.0, "backoff": "exponential:1m..30m",
        "idempotency_key": "k",
        "key_scope": "retained", "payload": {"command": ["sh", "-c", "exit \
            3"]}, "error_type": "exit_code",
        "last_error": "exit status \
            3", "run_at": "2026-01-31T07:00:00.000000Z", "scheduled_for": null,
        "enqueued_by": db.query("SELECT \
            session_user"), "created_at": "2026-01-31T07:00:00.000000Z",
            "started_at": "2026-01-31T08:00:00.000000Z", "failed_at": "2026-01-31T08:00:05.000000Z",
        "finished_at": "2026-01-31T08:00:05.000000Z", "cancel_requested_at": null,
        "locked_by": null, "locked_until": null,
        "updated_at": "2026-01-31T08:00:05.000000Z",
        "history": [
            attempt(json!({})),
            attempt(json!({
                "attempt": 2, "worker": "green", "started_at": "2026-01-31T08:00:00.000000Z",
                "finished_at": "2026-01-31T08:00:05.000000Z", "run_time_seconds": 5.0,
                "error_type": "exit_code", "error": "exit status 3", "exit_code": 3,
                "signal": null, "output": "one\n\ttwo", "output_bytes": 8,
            })),
        ],
    });
    for empty in ["events", "after", "followers", "roots"] {
        expected[empty] = json!([]);
    }
    // All other fields are null.
    let unset = "share expires_at schedule_state payload_error settled_at held_at held_until \
                 held_by hold_reason live_output after_rule usual_end_at trace_id lock only_worker \
                 schedule";
    unset.split(' ').for_each(|unset| expected[unset] = Value::Null);
    assert_eq!(json_of(&db, id), expected);
}

#[test]
fn show_prints_runs_of_every_status_and_refuses_unknown_ids() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    for status in STATUSES {
        let id = enqueue_in_status(&db, status);
        let shown = show(&db, id);
        assert_eq!(fact(&shown, "status"), Some(status));
        // A fact is left out if a run of this status has none.
        let worker = if status == "running" { Some("elsewhere") } else { None };
        assert_eq!(fact(&shown, "worker"), worker, "{shown}");
        assert_eq!(fact(&shown, "due").is_some(), matches!(status, "queued" | "failed"), "{shown}");
        assert_eq!(
            fact(&shown, "ended").is_some(),
            matches!(status, "succeeded" | "dead" | "cancelled"),
            "{shown}"
        );
    }
    for form in [&[][..], &["--json"], &["--output"]] {
        let missing =
            db.jobctl(["show", "999999"]).args(form.iter().copied()).run().exits(3).stdout("");
        missing.stderr("jobctl: cannot show run 999999: no such run\n");
    }
}

#[test]
fn the_history_has_the_http_status_of_each_answer() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // The HTTP status, the status of the run after the attempt, and the error.
    let statuses = [
        ("204", "succeeded", None),
        ("301", "dead", Some("HTTP status 301, redirect not followed")),
        ("404", "dead", Some("HTTP status 404")),
        ("429", "failed", Some("HTTP status 429")),
        ("503", "failed", Some("HTTP status 503")),
    ];
    for (http_status, run_status, error) in statuses {
        let payload = json!({"url": server.url(&format!("/status/{http_status}"))});
        let id = db.enqueue(["http", "--backoff", "fixed:1h", &payload.to_string()]);
        db.jobctl(["tick", "--quiet"]).run().success();
        let shown = show(&db, id);
        assert_eq!(fact(&shown, "status"), Some(run_status), "{shown}");
        assert_eq!(fact(&shown, "HTTP status"), Some(http_status), "{shown}");
        assert_eq!(fact(&shown, "error"), error, "{shown}");
        let why = fact(&shown, "why");
        match run_status {
            "failed" => {
                assert!(why.unwrap().starts_with("attempt 2 of 10 is due in "), "{shown}");
            }
            "dead" => {
                let permanent = "its failure is permanent, or max_attempts was raised since; so no \
                    tick retries it";
                assert_eq!(why, Some(permanent), "{shown}");
            }
            _ => assert_eq!(why, None, "{shown}"),
        }
    }
}

#[test]
fn no_command_shows_secrets_of_built_in_jobs() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let call = json!({
        "url": server.url("/status/404?token=s3cret&x=1"),
        "headers": {"authorization": "Bearer s3cret", "x-api-key": "${API_KEY}"},
        "json": {"user": 5},
    });
    let call = db.enqueue(["http", &call.to_string()]);
    let command = json!({"command": "exit 64", "env": {"TOKEN": "s3cret"}});
    let command = db.enqueue(["shell", &command.to_string()]);
    db.jobctl(["tick"]).env("API_KEY", "s3cret").run().success().prints_nowhere("s3cret");

    for id in [call, command] {
        for form in [&[][..], &["--json"]] {
            let shown =
                db.jobctl(["show", &id.to_string()]).args(form.iter().copied()).run().success();
            shown.prints_nowhere("s3cret").stdout_has("[redacted]");
        }
    }
    for command in [
        &["list"][..],
        &["list", "--json"],
        &["list-dead"],
        &["list-dead", "--group", "--json"],
        &["failures"],
        &["failures", "--group"],
    ] {
        db.jobctl(command.iter().copied()).run().success().prints_nowhere("s3cret");
    }

    // The query and the values of headers are hidden. The name of a variable and the body are not.
    assert_eq!(
        json_of(&db, call)["payload"],
        json!({
            "url": server.url("/status/404?[redacted]"),
            "headers": {"authorization": "[redacted]", "x-api-key": "${API_KEY}"},
            "json": {"user": 5},
        })
    );
}

#[test]
fn control_characters_are_escaped() {
    let db = TestDb::new();
    let id = insert_dead(&db);
    let mut client = db.client();
    let update = "UPDATE jobctl.job_runs
        SET job_type = $1, last_error = $1, error_type = $1, payload = to_jsonb($1::text),
            queue = 'mail'
        WHERE id = $2";
    client.execute(update, &[&HOSTILE, &id]).unwrap();
    let update =
        "UPDATE jobctl.job_attempts SET output = $1, error = $1, worker = $1 WHERE run_id = $2";
    client.execute(update, &[&HOSTILE, &id]).unwrap();
    let shown = show(&db, id);
    assert!(
        shown.chars().all(|c| matches!(c, '\n' | '\t') || !c.is_control() && c != '\u{202e}'),
        "{shown:?}"
    );
    assert_eq!(fact(&shown, "job"), Some(HARMLESS));
    // A forged line stays indented below its attempt.
    let forged = "\n    7\tforged\\u{202e}\\u{9b}2J\\u{7f}\\u{2028}\n";
    assert_eq!(shown.matches(forged).count(), 2, "{shown}");
    assert_eq!(json_of(&db, id)["history"][1]["output"], HOSTILE);
    // --output prints the bytes unchanged.
    db.jobctl(["show", &id.to_string(), "--output"]).run().success().stdout(HOSTILE).stderr("");
}

#[test]
fn output_prints_the_stored_bytes_of_any_attempt() {
    let db = TestDb::new();
    let id = db.enqueue_script("printf 'a\\033[1m\\r\\n\\n b'; exit 1");
    let show = |arguments: &[&str]| {
        db.jobctl(["show", &id.to_string(), "--output"]).args(arguments.iter().copied()).run()
    };
    show(&[])
        .exits(3)
        .stdout("")
        .stderr(&format!("jobctl: cannot show the output of run {id}: no attempt has begun\n"));
    db.jobctl(["tick", "--quiet"]).run().success();
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--quiet"]).run().success();
    // Without `--attempt`, it is the output of the last attempt.
    db.execute("UPDATE jobctl.job_attempts SET output = 'first' WHERE attempt = 1");
    show(&[]).success().stdout("a\u{1b}[1m\r\n\n b").stderr("");
    show(&["--attempt", "1"]).success().stdout("first");
    show(&["--attempt", "2"]).success().stdout("a\u{1b}[1m\r\n\n b");
    let why = format!("jobctl: cannot show the output of run {id}: attempt 3 has not begun\n");
    show(&["--attempt", "3"]).exits(3).stdout("").stderr(&why);
    db.execute("UPDATE jobctl.job_attempts SET output = NULL");
    show(&[]).success().stdout("");
}

#[test]
fn show_prints_the_end_of_a_long_output() {
    let db = TestDb::new();
    let id = db.enqueue_script("seq 1 100000");
    db.jobctl(["tick", "--quiet"]).run().success();
    let shown = show(&db, id);
    assert_eq!(
        fact(&shown, "output"),
        Some("the end of 588895 bytes; --output prints all stored bytes")
    );
    // The last 20 lines.
    let lines: Vec<_> = shown.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert_eq!(lines, (99_981..=100_000).map(|n| n.to_string()).collect::<Vec<_>>());
    db.jobctl(["show", &id.to_string(), "--output", "--json"])
        .run()
        .exits(2)
        .stdout("")
        .stderr_has("cannot be used with");
    // These flags need --output. Without an error, the parser of arguments would ignore that.
    for flags in [["--follow", "--json"], ["--attempt=1", "--json"], ["--follow", "--header"]] {
        let refused = db.jobctl(["show", &id.to_string()]).args(flags).run().exits(2).stdout("");
        refused.stderr_has("cannot be used with");
    }
    let whole = db.jobctl(["show", &id.to_string(), "--output"]).run().success();
    assert_eq!(whole.stdout, db.of_attempt(id, 1, "output"));
}

#[test]
fn show_cuts_a_long_payload_and_a_long_line() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "head", "-c", "9000", "/dev/zero"]);
    db.execute(
        "UPDATE jobctl.job_runs
         SET payload = jsonb_set(payload, '{stdin}', to_jsonb(repeat('ü', 5000)))",
    );
    let shown = show(&db, id);
    assert!(fact(&shown, "payload").unwrap().ends_with("… (10058 bytes in all)"), "{shown}");
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(
        fact(&show(&db, id), "output"),
        Some("the end of 9000 bytes; --output prints all stored bytes")
    );
}

/// Returns why a run is not running, after checking that the text and the JSON agree.
#[track_caller]
fn why_in_show(db: &TestDb, id: i64) -> String {
    let text = fact(&show(db, id), "why").unwrap_or_default().to_owned();
    let json = json_of(db, id)["why_not_running"].as_str().unwrap_or_default().to_owned();
    // Time passes between the two calls.
    let digitless = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    assert_eq!(digitless(&text), digitless(&json));
    text
}

/// Enqueues a run of a definition that has been due for this many hours.
fn enqueue_due(db: &TestDb, job: &str, hours: u32) -> i64 {
    let id = db.enqueue([job]);
    // Five seconds more, because times are rounded down.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET run_at = now() - interval '{hours} hours 5 seconds'
         WHERE id = {id}"
    ));
    id
}

/// Sets when the only worker `w` ticked last, and which queues it serves; `{}` means all.
fn insert_or_update_worker(db: &TestDb, ago: &str, queues: &str) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, queues)
         VALUES ('w', '0', now() - interval '{ago} 5 seconds', '{queues}')
         ON CONFLICT (worker) DO UPDATE SET last_tick_at = excluded.last_tick_at, queues = \
         excluded.queues"
    ));
}

#[test]
fn workers_and_earlier_runs_explain_why_a_due_run_waits() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nqueue = 'mail'\n");
    let id = enqueue_due(&db, "a", 4);
    assert_eq!(why_in_show(&db, id), "due 4h ago: no worker has ever ticked");

    insert_or_update_worker(&db, "1 minute", "{default,reports}");
    assert_eq!(
        why_in_show(&db, id),
        "due 4h ago: no worker serves queue mail, which has 1 overdue run"
    );

    // A worker that has not ticked for over five minutes is missing.
    insert_or_update_worker(&db, "6 minutes", "{mail}");
    assert_eq!(why_in_show(&db, id), "due 4h ago: no worker ticks");

    insert_or_update_worker(&db, "2 minutes", "{mail}");
    assert_eq!(
        without_seconds(&why_in_show(&db, id)),
        "due 4h ago: the last tick, 2m ago, skipped it: all slots were busy, its --limit was \
         reached, a limit, a hold or a lock of another transaction kept it, or this worker does \
         not run such jobs"
    );

    // The last tick was before the run was due.
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '1 minute'");
    assert_eq!(
        without_seconds(&why_in_show(&db, id)),
        "due 1m ago: no tick has served its queue since; the last one was 2m ago"
    );
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '4 hours'");

    // Runs of another queue, later runs, and runs that are not due are not ahead of it.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, queue, run_at, priority)
         VALUES ('a', 'other', now() - interval '9 hours', 0),
             ('a', 'mail', now() - interval '1 hour', 0),
             ('a', 'mail', now() + interval '1 hour', -1)",
    );
    assert!(why_in_show(&db, id).contains("skipped it"));

    // Earlier runs of its queue, and runs of a higher priority, are ahead of it.
    enqueue_due(&db, "a", 5);
    assert_eq!(why_in_show(&db, id), "due 4h ago: 1 due run is ahead of it");
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, queue, priority)
         SELECT 'a', 'mail', -1 FROM generate_series(1, 11)",
    );
    assert_eq!(why_in_show(&db, id), "due 4h ago: 12 due runs are ahead of it");

    // The last tick began hours ago, but it lingers and may claim: so the worker is not missing.
    insert_or_update_worker(&db, "5 hours", "{mail}");
    db.execute(
        "UPDATE jobctl.job_workers
         SET claiming_tick = 't', claiming_until = now() + interval '1 minute'",
    );
    assert_eq!(why_in_show(&db, id), "due 4h ago: 12 due runs are ahead of it");
}

#[test]
fn the_limit_of_its_job_explains_why_a_due_run_waits() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    // A schedule with the overlap `queue` allows one running run.
    db.apply(
        "[jobs.two]\nshell = 'true'\nmax_running = 2\n\
         [jobs.one]\nshell = 'true'\nschedule = '@yearly'\noverlap = 'queue'\n",
    );
    insert_or_update_worker(&db, "1 minute", "{}");
    for (job, most) in [("two", 2), ("one", 1)] {
        let mut running = 0;
        for _ in 0..most {
            running = db.enqueue([job]);
            db.execute(&format!(
                "UPDATE jobctl.job_runs
                 SET status = 'running', attempts = 1, locked_by = 'w', started_at = now(),
                     locked_until = now() + interval '1 hour'
                 WHERE id = {running}"
            ));
        }
        let id = enqueue_due(&db, job, 4);
        let full = format!("due 4h ago: {most} of at most {most} runs of this job are running");
        assert_eq!(why_in_show(&db, id), full);

        // The findings of `check` come before the limit.
        let assert_reason =
            |found: &str| assert_eq!(why_in_show(&db, id), format!("due 4h ago: {found}"));
        insert_or_update_worker(&db, "6 minutes", "{}");
        assert_reason("no worker ticks");
        insert_or_update_worker(&db, "1 minute", "{mail}");
        assert_reason("no worker serves queue default, which has 1 overdue run");
        insert_or_update_worker(&db, "1 minute", "{}");
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET locked_until = now() - interval '1 hour'
             WHERE id = {running}"
        ));
        assert_reason("no tick has recovered 1 run of worker w with an expired lease");
    }
}

#[test]
fn show_says_that_a_paused_or_disabled_schedule_does_not_stop_a_run() {
    let db = TestDb::new();
    db.apply("[jobs.any]\nshell = 'true'\nschedule = '@daily'\n");
    insert_or_update_worker(&db, "1 minute", "{}");
    let id = enqueue_due(&db, "any", 4);
    // Operators may expect a paused or disabled schedule to stop its runs; `show` says that it does
    // not.
    for (change, says) in [
        ("SET paused_at = now()", "paused, which does not stop this run"),
        ("SET enabled = false", "disabled, which does not stop this run"),
    ] {
        assert_eq!(fact(&show(&db, id), "schedule").is_some(), change.contains("enabled"));
        db.execute(&format!("UPDATE jobctl.job_definitions {change} WHERE name = 'any'"));
        assert_eq!(fact(&show(&db, id), "schedule"), Some(says));
    }
    db.execute(
        "UPDATE jobctl.job_definitions SET schedule = NULL, next_run_at = NULL WHERE name = 'any'",
    );
    assert_eq!(fact(&show(&db, id), "schedule"), None);
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.status(id), "succeeded");
}

#[test]
fn show_says_that_a_run_without_a_definition_will_end_dead() {
    let db = TestDb::new();
    db.apply("[jobs.any]\nshell = 'true'\n");
    insert_or_update_worker(&db, "1 minute", "{}");
    let id = enqueue_due(&db, "any", 4);
    db.execute("DELETE FROM jobctl.job_definitions WHERE name = 'any'");
    assert_eq!(why_in_show(&db, id), "any has no definition; 1 waiting run will end dead");
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.status(id), "dead");
}

#[test]
fn times_lease_and_attempts_explain_why_a_run_is_not_running() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let why_with = |id: i64, columns: &str| {
        db.execute(&format!("UPDATE jobctl.job_runs SET {columns} WHERE id = {id}"));
        why_in_show(&db, id)
    };
    // Runs that are not due.
    let later = "run_at = now() + interval '4 minutes 30.9 seconds'";
    let queued = why_with(enqueue_in_status(&db, "queued"), later);
    assert!(queued.starts_with("due in 4m "), "{queued}");
    let failed = why_with(enqueue_in_status(&db, "failed"), later);
    assert!(failed.starts_with("attempt 2 of 10 is due in 4m "), "{failed}");

    // A running run.
    let running = enqueue_in_status(&db, "running");
    assert_eq!(why_in_show(&db, running), "");
    assert!(why_with(running, "cancel_requested_at = now()").starts_with("cancel was requested "));
    let lost = "locked_until = now() - interval '4 hours 5 seconds'";
    assert_eq!(why_with(running, lost), "its lease expired 4h ago; no worker has ever ticked");
    insert_or_update_worker(&db, "1 minute", "{}");
    assert_eq!(why_in_show(&db, running), "its lease expired 4h ago; the next tick recovers it");

    // Runs that have ended.
    let dead = why_with(enqueue_in_status(&db, "dead"), "attempts = 10");
    assert_eq!(dead, "attempt 10 of 10 was the last");
    for status in ["succeeded", "cancelled"] {
        assert_eq!(why_in_show(&db, enqueue_in_status(&db, status)), "");
    }
}

#[test]
fn a_terminal_shows_ages() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "dead");
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET created_at = now() - interval '3 hours 5 seconds' WHERE id = \
         {id}"
    ));
    let directory = temp_dir();
    let typescript = directory.path().join("typescript");
    let script =
        format!("script -qec \"'$jobctl' show {id}\" \"$typescript\" </dev/null >/dev/null");
    db.script(&script).env("typescript", typescript.to_str().unwrap()).run().success();
    let shown = std::fs::read_to_string(typescript).unwrap();
    assert!(fact(&shown, "created").unwrap().ends_with("Z (3h ago)"), "{shown}");
}
