//! `enqueue`: the columns that flags set, and the rules of idempotency keys.

use std::collections::BTreeSet;

use crate::support::{TestDb, json_string};

const SHELL: [&str; 3] = ["shell", "--", "true"];

/// Enqueues a run with a flag and returns the value of an SQL expression for its row.
#[track_caller]
fn enqueue_with(db: &TestDb, flag: &str, value: &str, expression: &str) -> String {
    let id = db.enqueue([flag, value].into_iter().chain(SHELL));
    db.of_run(id, expression)
}

#[test]
fn no_worker_has_a_name_that_a_script_would_pass_as_a_flag() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    let why = "a worker's name must have 1 to 255 bytes, not all blanks, without control or";
    for name in ["-web", "--quiet", "\u{200b}", "a\tb"] {
        // Given as a flag, in a file, in a batch, and in SQL.
        let flag = format!("--worker={name}");
        for line in [
            &["tick", &flag][..],
            &["enqueue", "shell", &flag, "--", "true"],
            &["enqueue", "a", &flag],
            &["hold", &flag],
            &["list", &flag],
            &["forget", "--", name],
        ] {
            db.jobctl(line.iter().copied()).run().exits(2).stdout("").stderr_has(why);
        }
        let file = format!("[jobs.b]\nshell = 'true'\nschedule = '@daily'\nworkers = [{name:?}]\n");
        let file = file.replace("\\u{200b}", "\\u200b");
        db.jobctl(["apply", "-"]).stdin(file).run().exits(2).stderr_has(why);
        let line =
            serde_json::json!({"job": "shell", "payload": {"command": "true"}, "worker": name});
        let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(line.to_string()).run().exits(2);
        batch.stderr_has(why);
        let sql = db.client().execute("SELECT jobctl.enqueue('a', worker => $1)", &[&name]);
        assert!(sql.is_err(), "{name}");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn a_run_without_flags_has_the_defaults() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", r#"{"command": "true"}"#]);
    let columns = "job_type, payload, queue, priority, run_at = created_at, status, attempts, \
        max_attempts, timeout, \
                   backoff, idempotency_key, definition_id, updated_at = created_at";
    let expected = r#"shell|{"command": "true"}|default|0|t|queued|0|10||exponential:1m..30m|||t"#;
    assert_eq!(db.of_run(id, columns), expected);
    let id = db.enqueue(["http", r#"{"url": "http://127.0.0.1/", "method": "put"}"#]);
    assert_eq!(db.of_run(id, "job_type, payload ->> 'method', timeout IS NULL"), "http|put|t");
}

#[test]
fn every_flag_sets_its_column() {
    let db = TestDb::new();
    // The flag, its value, an expression of the run's columns, and the expression's value.
    for (flag, value, expression, expected) in [
        (
            "--run-at",
            "2126-03-29T08:00:00+02:00",
            "run_at AT TIME ZONE 'UTC'",
            "2126-03-29 06:00:00",
        ),
        (
            "--run-at",
            "2126-03-29T08:00:00.5Z",
            "run_at AT TIME ZONE 'UTC'",
            "2126-03-29 08:00:00.5",
        ),
        ("--run-at", "9999-12-31T23:59:59Z", "run_at AT TIME ZONE 'UTC'", "9999-12-31 23:59:59"),
        ("--in", "90s", "run_at - created_at", "00:01:30"),
        ("--in", "0s", "run_at - created_at", "00:00:00"),
        ("--in", "250ms", "run_at - created_at", "00:00:00.25"),
        ("--in", "1h30m", "run_at - created_at", "01:30:00"),
        ("--in", "2d", "run_at - created_at = '48 hours'", "t"),
        ("--key", "weekly:5", "idempotency_key", "weekly:5"),
        ("--priority", "-2147483648", "priority", "-2147483648"),
        ("--priority", "2147483647", "priority", "2147483647"),
        ("--queue", "mail.out:a-b_1", "queue", "mail.out:a-b_1"),
        ("--max-attempts", "1", "max_attempts", "1"),
        ("--max-attempts", "1000", "max_attempts", "1000"),
        ("--timeout", "5s", "timeout", "00:00:05"),
        ("--timeout", "2m", "timeout", "00:02:00"),
        ("--timeout", "30d", "timeout = '720 hours'", "t"),
        ("--backoff", "fixed:1m", "backoff", "fixed:1m"),
        ("--backoff", "exponential:1s..10s", "backoff", "exponential:1s..10s"),
        ("--backoff", "exponential:1s", "backoff", "exponential:1s"),
        ("--backoff", "polynomial:10s", "backoff", "polynomial:10s"),
        ("--backoff", "list:1m,5m, 30m,2h", "backoff", "list:1m,5m, 30m,2h"),
    ] {
        assert_eq!(enqueue_with(&db, flag, value, expression), expected, "{flag} {value}");
    }
}

#[test]
fn a_run_waits_for_the_next_time_of_a_schedule() {
    let db = TestDb::new();
    let next = ["--next", "0 9 * * mon", "--time-zone", "Europe/Berlin"];
    let id = db.enqueue(next.into_iter().chain(SHELL));
    let line = r#"{"job_type": "shell", "payload": {"command": "true"}, "next": "0 9 * * mon", "#;
    let batch = db.jobctl(["enqueue", "--batch", "-"]);
    let batch =
        batch.stdin(format!("{line}\"time_zone\": \"Europe/Berlin\"}}\n{line}\"in\": null}}"));
    batch.run().success();
    // The batch got the next two ids. Each run is due on the next Monday at 9:00 in its zone. The
    // default is UTC.
    for (id, zone) in [(id, "Europe/Berlin"), (id + 1, "Europe/Berlin"), (id + 2, "UTC")] {
        let local = format!("to_char(run_at AT TIME ZONE '{zone}', 'ID HH24:MI')");
        let is_next = "run_at > created_at AND run_at <= created_at + interval '8 days'";
        assert_eq!(db.of_run(id, &format!("{local}, {is_next}")), "1 09:00|t", "{id}");
    }
}

#[test]
fn a_wrong_next_time_of_a_schedule_enqueues_nothing() {
    let db = TestDb::new();
    for (schedule, why) in [
        (&["--next", "0 0 30 2 *"][..], "`0 0 30 2 *` never fires"),
        (&["--next", "@daily", "--in", "1h"], "cannot be used with"),
        (&["--next", "@daily", "--run-at", "2026-01-01T00:00:00Z"], "cannot be used with"),
        (&["--time-zone", "Europe/Berlin"], "--next"),
    ] {
        let refused = db.jobctl(["enqueue"]).args(schedule.iter().copied()).args(SHELL).run();
        refused.exits(2).stdout("").stderr_has(why);
    }
    // The same as keys of a batch.
    for (keys, why) in [
        (
            r#""next": "@daily", "in": "1h""#,
            "`run_at`, `in`, `next` and `debounce` exclude each other",
        ),
        (r#""next": "0 0 30 2 *""#, "batch line 1: `0 0 30 2 *` never fires"),
        (r#""next": "@daily", "time_zone": "Mars/Phobos""#, "`next`: "),
        (r#""time_zone": "UTC""#, "`time_zone` needs `next`"),
    ] {
        let line = format!(r#"{{"job_type": "shell", "payload": {{"command": "true"}}, {keys}}}"#);
        let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run();
        refused.exits(2).stdout("").complains_once().stderr_has(why);
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn enqueue_refuses_bad_values_and_inserts_nothing() {
    let db = TestDb::new();
    let long = "q".repeat(64);
    // The flag, its value, and the error.
    for (flag, value, why) in [
        ("--run-at", "2026-13-01", "write RFC 3339 with the offset"),
        ("--run-at", "2026-01-01T00:00:00", "write RFC 3339 with the offset"),
        ("--run-at", "300000-01-01T00:00:00Z", "write RFC 3339 with the offset"),
        ("--run-at", "infinity", "write RFC 3339 with the offset"),
        ("--run-at", "tomorrow", "write RFC 3339 with the offset"),
        ("--run-at", "", "write RFC 3339 with the offset"),
        ("--in", "3651d", "allowed are 0ms to 3650d"),
        ("--timeout", "0s", "allowed are 1s to 30d"),
        ("--backoff", "1m", "write fixed:1m"),
        ("--backoff", "linear:1m", "write fixed:1m"),
        ("--backoff", "fixed:5", "is not a duration"),
        ("--backoff", "fixed:31d", "allowed are 0ms to 30d"),
        ("--backoff", "exponential:2h..1m", "exceeds its maximum"),
        ("--queue", "", "1 to 63 letters"),
        ("--queue", "a b", "1 to 63 letters"),
        ("--queue", "é", "1 to 63 letters"),
        ("--queue", &long, "1 to 63 letters"),
    ] {
        let refused = db.jobctl(["enqueue", flag, value]).args(SHELL).run().exits(2).stdout("");
        refused.stderr_has(flag).stderr_has(why);
    }
    db.jobctl(["enqueue", "--run-at=-infinity"]).args(SHELL).run().exits(2).stderr_has("--run-at");
    let both = ["enqueue", "--in", "5s", "--run-at", "2026-01-01T00:00:00Z"];
    db.jobctl(both).args(SHELL).run().exits(2).stderr_has("cannot be used with");
    db.jobctl(["enqueue", "shell", "{}", "--payload-file", "-"])
        .run()
        .exits(2)
        .stderr_has("cannot be used with");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn a_run_in_the_future_is_not_claimed_and_one_in_the_past_is() {
    let db = TestDb::new();
    let later = db.enqueue(["--in", "1h"].into_iter().chain(SHELL));
    let past = db.enqueue(["--run-at", "2001-01-01T00:00:00Z"].into_iter().chain(SHELL));
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.status(later), "queued");
    assert_eq!(db.status(past), "succeeded");
}

#[test]
fn a_payload_comes_from_an_argument_a_file_or_stdin() {
    let db = TestDb::new();
    let payload = r#"{"command": ["cat"], "stdin": {"a": 1}}"#;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), payload).unwrap();
    let path = file.path().to_str().unwrap();
    let ids = [
        db.enqueue(["shell", payload]),
        db.enqueue(["shell", "--payload-file", path]),
        db.enqueue(["shell", r#"{"a": 1}"#, "--", "cat"]),
    ];
    let piped =
        db.jobctl(["enqueue", "shell", "--payload-file", "-"]).stdin(payload).run().success();
    for id in ids.iter().map(i64::to_string).chain([piped.stdout.trim().to_owned()]) {
        let same =
            db.query(&format!("SELECT payload = '{payload}' FROM jobctl.job_runs WHERE id = {id}"));
        assert_eq!(same, "t", "run {id}");
    }
}

#[test]
fn the_id_is_printed_bare_or_as_json() {
    let db = TestDb::new();
    let finished =
        db.jobctl(["enqueue", "--json", "--key", "k"]).args(SHELL).run().success().stderr("");
    let id = db.query("SELECT max(id) FROM jobctl.job_runs");
    assert_eq!(finished.stdout, format!("{{\"id\":{id},\"result\":\"enqueued\"}}\n"));
    let again = format!("{{\"id\":{id},\"result\":\"existing\",\"status\":\"queued\"}}\n");
    db.jobctl(["enqueue", "--json", "--key", "k"])
        .args(SHELL)
        .run()
        .success()
        .stdout(&again)
        .stderr("");
    db.jobctl(["enqueue", "--key", "k"])
        .args(SHELL)
        .run()
        .success()
        .stdout(&format!("{id}\n"))
        .stderr("");
}

#[test]
fn the_same_key_and_payload_return_the_same_run_in_any_status() {
    let db = TestDb::new();
    let id = db.enqueue([
        "--key",
        "k",
        "shell",
        r#"{"command": "true", "stdin": {"a": [1, 2], "b": 1.0}}"#,
    ]);
    let same = r#" {"stdin":{"b":1.0,"a":[1,2]},"command":"true"} "#;
    assert_eq!(db.enqueue(["--key", "k", "shell", same]), id);
    // With other flags, the enqueue still finds the run, and does not change it.
    assert_eq!(
        db.enqueue(["--key", "k", "--priority", "5", "--queue", "other", "shell", same]),
        id
    );
    assert_eq!(db.of_run(id, "priority, queue"), "0|default");
    for status in ["succeeded", "dead", "cancelled"] {
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET status = '{status}', finished_at = now() WHERE id = {id}"
        ));
        assert_eq!(db.enqueue(["--key", "k", "shell", same]), id, "{status}");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1");
}

#[test]
fn a_key_of_another_job_or_payload_is_a_conflict() {
    let db = TestDb::new();
    let first = db.enqueue(["--key", "k", "shell", r#"{"command": "true"}"#]);
    for (job, payload) in [
        ("shell", r#"{"command": "false"}"#),
        ("shell", r#"{"command": "true", "cwd": "/"}"#),
        ("http", r#"{"url": "http://127.0.0.1/"}"#),
    ] {
        let refused = db
            .jobctl(["enqueue", "--key", "k", job, payload])
            .run()
            .exits(4)
            .stdout("")
            .complains_once();
        let why = format!("key `k` belongs to run {first} with another job or payload");
        refused.stderr_has(&format!("{why}; use another key"));
    }
    // The same key in the other scope is another key, with a run of its own.
    let live = ["--key", "k", "--key-scope", "live", "shell"];
    let id = db.enqueue(live.into_iter().chain(["--", "true"]));
    let refused = db.jobctl(["enqueue"]).args(live).args(["--", "false"]).run().exits(4);
    refused.stderr_has(&format!("key `k` belongs to run {id} with another job or payload"));
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "2");
}

#[test]
fn a_key_has_1_to_255_bytes_and_no_control_characters() {
    let db = TestDb::new();
    for key in [
        "",
        "a\nb",
        " ",
        "a\tb",
        "\u{7f}",
        "\u{85}",
        &"k".repeat(256),
        &"é".repeat(128),
        &"x".repeat(3000),
    ] {
        let why = "a key must have 1 to 255 bytes, not all blanks, without control or";
        db.jobctl(["enqueue", "--key", key]).args(SHELL).run().exits(2).stdout("").stderr_has(why);
        let line = format!(
            r#"{{"job_type":"shell","payload":{{"command":"true"}},"idempotency_key":{}}}"#,
            json_string(key)
        );
        db.jobctl(["enqueue", "--batch", "-"])
            .stdin(line)
            .run()
            .exits(2)
            .complains_once()
            .stderr_has(why);
    }
    // The table itself refuses these keys, too.
    for (key, why) in [
        ("-k", "must not begin with -"),
        ("jobctl-run-1", "the key prefix jobctl-run- is reserved for runs without a key"),
        ("jobctl-run-", "the key prefix jobctl-run- is reserved for runs without a key"),
    ] {
        db.jobctl(["enqueue", &format!("--key={key}")])
            .args(SHELL)
            .run()
            .exits(2)
            .stdout("")
            .stderr_has(why);
        let line = format!(
            r#"{{"job_type":"shell","payload":{{"command":"true"}},"idempotency_key":"{key}"}}"#
        );
        db.jobctl(["enqueue", "--batch", "-"])
            .stdin(line)
            .run()
            .exits(2)
            .complains_once()
            .stderr_has(why);
        let insert = "INSERT INTO jobctl.job_runs (job_type, idempotency_key) VALUES ('shell', $1)";
        let refused = db.client().execute(insert, &[&key]).unwrap_err();
        assert_eq!(
            refused.as_db_error().unwrap().constraint(),
            Some("key_is_plain_and_not_reserved")
        );
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn keys_that_only_look_alike_are_different_keys() {
    let db = TestDb::new();
    let keys = [
        &"k".repeat(255),
        &"é".repeat(127),
        "K",
        "k",
        "k ",
        "k-",
        "Jobctl-run-1",
        "\u{e9}",
        "e\u{301}",
        "'; DROP TABLE x; --",
        "$$%s\\",
    ];
    let ids: BTreeSet<_> =
        keys.iter().map(|key| db.enqueue(["--key", key].into_iter().chain(SHELL))).collect();
    assert_eq!(ids.len(), keys.len());
    for (key, id) in keys.iter().zip(ids) {
        assert_eq!(db.of_run(id, "idempotency_key"), *key);
    }
}

#[test]
fn concurrent_enqueues_of_one_key_return_the_same_run() {
    let db = TestDb::new();
    let started: Vec<_> =
        (0..32).map(|_| db.jobctl(["enqueue", "--key", "k"]).args(SHELL).spawn()).collect();
    let answers: BTreeSet<_> =
        started.into_iter().map(|one| one.wait().success().stderr("").stdout).collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(
        db.query("SELECT count(*), min(id) || E'\\n' FROM jobctl.job_runs"),
        format!("1|{}", answers.first().unwrap())
    );
}

#[test]
fn a_payload_may_be_a_negative_number() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    db.jobctl(["enqueue", "a", "-5"]).run().success();
    assert_eq!(db.query("SELECT payload FROM jobctl.job_runs"), "-5");
}

#[test]
fn enqueue_waits_for_a_transaction_with_the_same_key() {
    let db = TestDb::new();
    let insert = "INSERT INTO jobctl.job_runs (job_type, payload, idempotency_key) \
                  VALUES ('shell', '{\"command\": [\"true\"]}', 'k') RETURNING id";
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname \
        = current_database()";
    // How the other transaction ends, and whether the enqueue then returns its run.
    for (end, keeps) in [("COMMIT", true), ("ROLLBACK", false)] {
        db.execute("DELETE FROM jobctl.job_runs");
        let mut other = db.client();
        other.batch_execute("BEGIN").unwrap();
        let theirs: i64 = other.query_one(insert, &[]).unwrap().get(0);
        let enqueue = db.jobctl(["enqueue", "--key", "k"]).args(SHELL).spawn();
        crate::support::wait_until("the enqueue to wait", || db.query(waits) == "1");
        other.batch_execute(end).unwrap();
        let answer = enqueue.wait().success().stdout;
        assert_eq!(answer == format!("{theirs}\n"), keeps, "{end}");
        assert_eq!(db.query("SELECT id || E'\\n' FROM jobctl.job_runs"), answer, "{end}");
    }
}

#[test]
fn errors_name_a_sequence_behind_its_table_and_use_few_ids() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    // The sequence starts again at 1, but the ids 1 to 100 are in use. An id of a sequence is used
    // up even if the INSERT fails, so the command must not try a hundred times.
    db.execute("INSERT INTO jobctl.job_runs (job_type) SELECT 'a' FROM generate_series(1, 100)");
    let why = "the sequence of jobctl.job_runs is behind its table; `jobctl doctor` prints the \
        statement that corrects it";
    for arguments in [
        &["enqueue", "shell", "--", "true"][..],
        &["enqueue", "shell", "--key", "k", "--", "true"],
        &["enqueue", "a"],
        &["enqueue", "a", "--key", "k"],
    ] {
        db.execute("SELECT setval('jobctl.job_runs_id_seq', 1, false)");
        let refused =
            db.jobctl(arguments.iter().copied()).run().exits(7).stdout("").complains_once();
        refused.stderr_has(why).prints_nowhere("duplicate key");
        let last: i64 = db.query("SELECT last_value FROM jobctl.job_runs_id_seq").parse().unwrap();
        assert!(last < 10, "{arguments:?} used {last} ids");
    }
    db.execute("SELECT setval('jobctl.job_runs_id_seq', 1, false)");
    let refused = db.client().simple_query("SELECT jobctl.enqueue('a')").unwrap_err();
    assert_eq!(refused.code().map(|code| code.code()), Some("JC007"));
    // If another program has chosen a single id, the enqueue takes the next one.
    db.execute("SELECT setval('jobctl.job_runs_id_seq', 100)");
    db.execute("INSERT INTO jobctl.job_runs (id, job_type) VALUES (102, 'a')");
    assert_eq!([db.enqueue(["a"]), db.enqueue(["a"])], [101, 103]);
    // The same error for definitions.
    db.execute("SELECT setval('jobctl.job_definitions_id_seq', 1, false)");
    let folder = crate::support::temp_dir();
    std::fs::write(folder.path().join("jobs.toml"), "[jobs.b]\nshell = 'true'\n").unwrap();
    let refused = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run().exits(7);
    refused
        .complains_once()
        .stderr_has("the sequence of jobctl.job_definitions is behind its table");
}

#[test]
fn an_enqueue_tells_that_the_run_of_its_key_has_ended_or_is_due_later() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.a]\nshell = 'true'\n");
    for job in [&["a"][..], &["shell", "--", "true"]] {
        let key = ["enqueue", "--json", "--key", job[0]];
        let enqueue = |more: &[&'static str]| {
            db.jobctl(key).args(more.iter().copied()).args(job.iter().copied()).run().success()
        };
        let id = serde_json::from_str::<serde_json::Value>(&enqueue(&["--in", "1h"]).stdout);
        let id = id.unwrap()["id"].as_i64().unwrap();
        let existing = |rest: &str| format!("{{\"id\":{id},\"result\":\"existing\",{rest}}}\n");
        // The run was enqueued a moment ago, so `--in 1h` means a later time now. A request for an
        // earlier time gets a warning.
        enqueue(&["--in", "1h"]).stdout(&existing("\"status\":\"queued\"")).stderr("");
        let later = enqueue(&["--in", "30m"]);
        let due = db.of_run(id, "to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS')");
        later.stderr_has(&format!("jobctl: run {id} has the key and is due at {due}"));
        let columns = |status: &str| match status {
            "running" => ", attempts = 1, locked_by = 'w', locked_until = now() + interval '1 h'",
            "failed" => ", locked_by = NULL, locked_until = NULL",
            _ => ", locked_by = NULL, locked_until = NULL, finished_at = now()",
        };
        for status in ["running", "failed", "succeeded", "cancelled", "dead"] {
            db.execute(&format!(
                "UPDATE jobctl.job_runs SET status = '{status}' {} WHERE id = {id}",
                columns(status)
            ));
            let answer = enqueue(&[]).stdout(&existing(&format!("\"status\":\"{status}\"")));
            if matches!(status, "cancelled" | "dead") {
                answer.stderr(&format!(
                    "jobctl: run {id} has the key and is {status}, so nothing will run; `jobctl \
                     retry {id}`, or use another key\n"
                ));
            } else {
                answer.stderr("");
            }
        }
        // The answer stays the id.
        let plain = db.jobctl(["enqueue", "--key", job[0]]).args(job.iter().copied());
        plain.run().success().stdout(&format!("{id}\n"));
    }
    // A batch prints one warning for all runs that have ended.
    let line = |key| {
        let payload = r#"{"command": ["true"]}"#;
        format!(r#"{{"job_type": "shell", "payload": {payload}, "idempotency_key": "{key}"}}"#)
    };
    let batch = || {
        let lines = [line("x"), line("y"), line("z")].join("\n");
        db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success()
    };
    let ids = batch().stderr("").stdout;
    db.jobctl(["cancel"]).args(ids.lines().take(2)).run().success();
    let first = ids.lines().next().unwrap();
    batch().stdout(&ids).stderr(&format!(
        "jobctl: 2 runs have the keys, such as run {first}, which is cancelled, so nothing will \
         run; `jobctl retry {first}`, or use another key\n"
    ));
}
