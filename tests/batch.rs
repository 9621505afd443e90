//! `enqueue --batch`: JSON Lines, all or nothing.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::cli::Untouched;
use crate::support::{TestDb, temp_dir, wait_until};

const GOOD: &str = r#"{"job_type": "shell", "payload": {"command": "true"}}"#;

fn count_runs(db: &TestDb) -> String {
    db.query("SELECT count(*) FROM jobctl.job_runs")
}

/// Asserts that a batch of these lines is refused because of its last line.
#[track_caller]
fn assert_last_line_refused(db: &TestDb, lines: &[&str], exit: i32, why: &str) {
    let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines.join("\n")).run();
    let line = format!("jobctl: cannot enqueue: batch line {}: {why}", lines.len());
    refused.exits(exit).stdout("").complains_once().stderr_has(&line);
}

#[test]
fn the_payload_null_is_kept_by_each_way_to_enqueue() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'cat'\n");
    let first = db.enqueue(["a", "null", "--key", "k"]);
    let batch = r#"{"job_type": "a", "payload": null, "idempotency_key": "k"}"#;
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(batch).run().success();
    assert_eq!(batch.stdout, format!("{first}\n"));
    assert_eq!(db.query("SELECT jobctl.enqueue('a', 'null', key => 'k')"), first.to_string());
    assert_eq!(db.of_run(first, "payload, payload IS NULL"), "null|f");
}

#[test]
fn a_batch_from_a_file_or_stdin_prints_one_id_per_line() {
    let db = TestDb::new();
    // The text has blank lines, a CRLF, and no line end after the last line.
    let lines = format!("{GOOD}\n\n  \t\n{GOOD}\r\n{GOOD}");
    let directory = temp_dir();
    let path = directory.path().join("batch.jsonl");
    std::fs::write(&path, &lines).unwrap();
    let ids = "SELECT id FROM jobctl.job_runs ORDER BY id";
    let from_file =
        db.jobctl(["enqueue", "--batch", path.to_str().unwrap()]).run().success().stderr("");
    assert_eq!(from_file.stdout, db.query(ids) + "\n");
    assert_eq!(count_runs(&db), "3");
    let from_stdin = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success().stderr("");
    assert_eq!(from_file.stdout + &from_stdin.stdout, db.query(ids) + "\n");
    assert_eq!(count_runs(&db), "6");
}

#[test]
fn the_ids_of_a_batch_ascend_in_the_order_of_its_lines_even_over_several_jobs() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.few]\nshell = 'true'\nmax_waiting = 9\n");
    // A built-in job, one with a limit of waiting runs, and one without.
    let lines = [GOOD, r#"{"job_type": "few"}"#, r#"{"job_type": "a"}"#].repeat(3).join("\n");
    let printed = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success().stdout;
    assert_eq!(printed, db.query("SELECT id FROM jobctl.job_runs ORDER BY id") + "\n");
    let jobs = db.query("SELECT string_agg(job_type, ' ' ORDER BY id) FROM jobctl.job_runs");
    assert_eq!(jobs, "shell few a shell few a shell few a");
}

#[test]
fn a_batch_of_a_defined_job_takes_less_than_four_times_as_long_as_one_of_a_built_in_job() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    let time = |line: &str| {
        let lines = [line].repeat(2000).join("\n");
        let round = |_| {
            let started = Instant::now();
            db.jobctl(["enqueue", "--batch", "-"]).stdin(lines.clone()).run().success();
            started.elapsed()
        };
        (0..3).map(round).min().unwrap()
    };
    let (built_in, defined) = (time(GOOD), time(r#"{"job_type": "a"}"#));
    assert!(defined < built_in * 4, "{defined:?} and {built_in:?}");
}

#[test]
fn a_batch_line_has_a_key_for_every_flag() {
    let db = TestDb::new();
    // A line with most keys, one with the key of `--in`, and one whose keys are null, so unset.
    let lines = concat!(
        r#"{"job_type": "shell", "payload": {"command": "true"}, "priority": -5, "#,
        r#""queue": "mail", "run_at": "2126-03-29T08:00:00+02:00", "idempotency_key": "k", "#,
        r#""max_attempts": 3, "timeout": "1h", "backoff": "fixed:1m"}"#,
        "\n",
        r#"{"job_type": "http", "payload": {"url": "http://127.0.0.1/"}, "in": "1d"}"#,
        "\n",
        r#"{"job_type": "shell", "payload": {"command": "true"}, "in": null, "#,
        r#""idempotency_key": null, "queue": null, "after": null, "after_any_end": null, "#,
        r#""or_cancel": null}"#
    );
    db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
    // The last column: the run is due at once, or in a day.
    let columns = "SELECT job_type, payload, queue, priority, max_attempts, timeout, backoff,
            idempotency_key, run_at - created_at IN ('0', '24 hours')
        FROM jobctl.job_runs ORDER BY id";
    let expected = r#"shell|{"command": "true"}|mail|-5|3|01:00:00|fixed:1m|k|f
http|{"url": "http://127.0.0.1/"}|default|0|10||exponential:1m..30m||t
shell|{"command": "true"}|default|0|10||exponential:1m..30m||t"#;
    assert_eq!(db.query(columns), expected);
    let run_at =
        "SELECT run_at AT TIME ZONE 'UTC' FROM jobctl.job_runs WHERE idempotency_key = 'k'";
    assert_eq!(db.query(run_at), "2126-03-29 06:00:00");
}

#[test]
fn an_unknown_field_that_another_tool_uses_gets_the_right_field_as_a_tip() {
    let db = TestDb::new();
    // The fields of a line, and the field that the tip names.
    for (field, meant) in [
        (r#""type": "a""#, "job`?"),
        (r#""job_type": "a", "unique_key": "k""#, "key`?"),
        (r#""job_type": "a", "args": {}"#, "payload`?"),
        (r#""job_type": "a", "delay": "5m""#, "in`?"),
        (r#""job_type": "a", "depends_on": [1]"#, "after`?"),
        (r#""job_type": "a", "retries": 3"#, "max_attempts`, which counts the first attempt, too?"),
        (r#""job_type": "shell", "payload": {"cmd": "true"}"#, "command`?"),
        (r#""job_type": "http", "payload": {"uri": "http://a"}"#, "url`?"),
    ] {
        let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(format!("{{{field}}}"));
        let refused = batch.run().exits(2).stdout("").complains_once();
        refused.stderr_has("unknown field `").stderr_has(&format!("; did you mean `{meant}"));
    }
}

#[test]
fn a_bad_line_is_named_and_rejects_the_whole_batch() {
    let db = TestDb::new();
    let with = |fields: &str| {
        format!(r#"{{"job_type": "shell", "payload": {{"command": "true"}}, {fields}}}"#)
    };
    // The bad line, which is the fourth of its batch, the exit status, and the error.
    for (line, exit, why) in [
        ("{".to_owned(), 2, "EOF while parsing an object, at column 1"),
        (format!("{GOOD} x"), 2, "trailing characters, at column 55"),
        ("[1]".to_owned(), 2, "must be an object"),
        ("{}".to_owned(), 2, "missing field `job`"),
        (
            r#"{"job_type": "shell"}"#.to_owned(),
            2,
            "the payload is not a shell job: missing field `command`",
        ),
        (r#"{"job_type": "nosuch"}"#.to_owned(), 3, "no definition `nosuch`"),
        (r#"{"job_type": "a\u0000"}"#.to_owned(), 2, "`job`: NUL not allowed"),
        (
            r#"{"job_type": "shell", "payload": {"command": "\u0000"}}"#.to_owned(),
            2,
            "payload is not valid JSON: NUL not allowed, at its column",
        ),
        (
            r#"{"job_type": "shell", "payload": {"command": "x", "command": "x"}}"#.to_owned(),
            2,
            "payload is not valid JSON: the same key twice",
        ),
        (with(r#""job_type": "shell""#), 2, "duplicate field `job`, at column"),
        (with(r#""run-at": "x""#), 2, "unknown field `run-at`"),
        (with(r#""run_at": "infinity""#), 2, "`run_at`: `infinity` is not a time"),
        (
            with(r#""run_at": "2026-01-01T00:00:00Z", "in": "5s""#),
            2,
            "`run_at`, `in`, `next` and `debounce` exclude each other",
        ),
        (with(r#""in": "5""#), 2, "`in`: `5` is not a duration"),
        (with(r#""in": 5"#), 2, "`in`: expected a string, at column"),
        (with(r#""idempotency_key": """#), 2, "`idempotency_key`: a key must have 1 to 255 bytes"),
        (with(r#""key_scope": "live""#), 2, "`key_scope` needs a `key`"),
        (
            with(r#""idempotency_key": "k", "key_scope": "replaced""#),
            2,
            "`key_scope`: must be one of retained, live",
        ),
        (
            with(r#""idempotency_key": "k", "on_conflict": "merge""#),
            2,
            "`on_conflict`: must be one of same, replace, error",
        ),
        (
            with(r#""run_at": "9999-12-31T23:59:59-01:00""#),
            2,
            "`run_at`: `9999-12-31T23:59:59-01:00` is out of range",
        ),
        (
            with(r#""priority": 2147483648"#),
            2,
            "`priority`: expected a whole number of 32 bits, at column",
        ),
        (with(r#""queue": "a b""#), 2, "`queue`: a queue's name"),
        (
            with(r#""max_attempts": 0"#),
            2,
            "`max_attempts`: 0 is out of range; allowed are 1 to 1000",
        ),
        (
            with(r#""max_attempts": 1001"#),
            2,
            "`max_attempts`: 1001 is out of range; allowed are 1 to 1000",
        ),
        (with(r#""timeout": "0s""#), 2, "`timeout`: `0s` is out of range; allowed are 1s to 30d"),
        (with(r#""backoff": "1m""#), 2, "`backoff`: `1m` is not a backoff"),
    ] {
        assert_last_line_refused(&db, &[GOOD, "", GOOD, &line], exit, why);
    }
    let misspelt = db.jobctl(["enqueue", "--batch", "-"]).stdin(with(r#""run-at": "x""#)).run();
    misspelt.exits(2).stderr_has("; did you mean `run_at`?\n");
    assert_eq!(count_runs(&db), "0");
}

#[test]
fn a_key_that_another_run_has_rejects_the_whole_batch() {
    let db = TestDb::new();
    let with_key = |command: &str, key: &str| {
        let payload = format!(r#"{{"command": "{command}"}}"#);
        format!(r#"{{"job_type": "shell", "payload": {payload}, "idempotency_key": "{key}"}}"#)
    };
    let id = db.enqueue(["--key", "taken", "shell", r#"{"command": "true"}"#]);
    let taken = &format!("key `taken` belongs to run {id} with another job or payload");
    assert_last_line_refused(
        &db,
        &[GOOD, &with_key("true", "new"), &with_key("false", "taken")],
        4,
        taken,
    );
    assert_eq!(count_runs(&db), "1");
    // A line with the same key and payload returns the existing run; the other lines are new.
    let lines = [with_key("true", "new"), with_key("true", "taken"), GOOD.to_owned()].join("\n");
    let finished = db.jobctl(["enqueue", "--batch", "-", "--json"]).stdin(lines).run().success();
    let answers: Vec<serde_json::Value> = serde_json::from_str(&finished.stdout).unwrap();
    let results: Vec<_> = answers.iter().map(|answer| answer["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["enqueued", "existing", "enqueued"]);
    assert_eq!(answers[1]["id"].as_i64(), Some(id));
    assert_eq!(count_runs(&db), "3");
}

#[test]
fn a_repeated_key_in_a_batch_is_one_run_or_a_conflict() {
    let db = TestDb::new();
    let with_key = |command: &str| {
        let payload = format!(r#"{{"command": "{command}"}}"#);
        format!(r#"{{"job_type": "shell", "payload": {payload}, "idempotency_key": "k"}}"#)
    };
    // With another payload, the whole batch is refused.
    let refused = db
        .jobctl(["enqueue", "--batch", "-"])
        .stdin(format!("{}\n{}", with_key("a"), with_key("b")))
        .run();
    refused
        .exits(4)
        .stdout("")
        .complains_once()
        .stderr_has("cannot enqueue: batch line 2: key `k`");
    assert_eq!(count_runs(&db), "0");
    // The same payload twice is one run.
    let lines = format!("{}\n{GOOD}\n{}", with_key("a"), with_key("a"));
    let finished = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
    let ids: Vec<_> = finished.stdout.lines().collect();
    assert_eq!(ids.len(), 3, "{finished}");
    assert_eq!(ids[0], ids[2], "{finished}");
    assert_eq!(count_runs(&db), "2", "{finished}");
}

#[test]
fn errors_name_the_wrong_line_among_similar_lines() {
    let db = TestDb::new();
    db.apply("[jobs.d]\nshell = 'cat'\n");
    let with_key_z = |payload: &str| {
        format!(r#"{{"job_type": "d", "idempotency_key": "z", "payload": {payload}}}"#)
    };
    let other = r#"{"job_type": "d", "idempotency_key": "z2"}"#;
    let twice = "key `z` is also in line 1, with another job or payload\n";
    assert_last_line_refused(
        &db,
        &[&with_key_z("{}"), other, &with_key_z("{}"), &with_key_z(r#"{"x": 1}"#)],
        4,
        twice,
    );
    assert_last_line_refused(
        &db,
        &[
            &with_key_z("{}"),
            other,
            GOOD,
            r#"{"job_type": "shell", "idempotency_key": "z", "payload": {"command": "id"}}"#,
        ],
        4,
        twice,
    );
    // The key of one line may be the unknown job of another line.
    assert_last_line_refused(
        &db,
        &[r#"{"job_type": "d", "idempotency_key": "nosuch"}"#, GOOD, r#"{"job_type": "nosuch"}"#],
        3,
        "no definition `nosuch`",
    );
    // Numbers such as 1e300 are short in the line, and have 300 digits in the database.
    let long = format!(r#"{{"job_type": "d", "payload": [{}]}}"#, vec!["1e300"; 40_000].join(","));
    assert_last_line_refused(&db, &[other, &long], 2, "payload is longer than 1 MiB");
    // The same key in the other scope is another key: the third line is wrong, not the second.
    let id = db.enqueue(["d", "--key", "z", "1"]);
    let live = r#"{"job_type": "d", "idempotency_key": "z", "key_scope": "live"}"#;
    assert_last_line_refused(
        &db,
        &[other, live, &with_key_z("2")],
        4,
        &format!("key `z` belongs to run {id} with another job or payload"),
    );
    assert_eq!(count_runs(&db), "1");
}

#[test]
fn a_conflict_in_the_last_line_rolls_back_a_long_batch() {
    let db = TestDb::new();
    let id = db.enqueue(["--key", "taken", "shell", "--", "false"]);
    let taken = format!("key `taken` belongs to run {id} with another job or payload");
    let mut lines = vec![GOOD; 5000];
    let last =
        r#"{"job_type": "shell", "payload": {"command": "true"}, "idempotency_key": "taken"}"#;
    lines.push(last);
    assert_last_line_refused(&db, &lines, 4, &taken);
    assert_eq!(count_runs(&db), "1");
    // Without the last line, the same batch succeeds.
    lines.pop();
    let finished =
        db.jobctl(["enqueue", "--batch", "-"]).stdin(lines.join("\n")).run().success().stderr("");
    assert_eq!(
        finished.stdout,
        db.query(&format!("SELECT id FROM jobctl.job_runs WHERE id <> {id} ORDER BY id")) + "\n"
    );
    assert_eq!(finished.stdout.lines().count(), 5000);
}

#[test]
fn an_empty_batch_succeeds() {
    let db = TestDb::new();
    for text in ["", "\n", " \n\n"] {
        db.jobctl(["enqueue", "--batch", "-"]).stdin(text).run().success().stdout("").stderr("");
        db.jobctl(["enqueue", "--batch", "-", "--json"])
            .stdin(text)
            .run()
            .success()
            .stdout("[]\n")
            .stderr("");
    }
}

#[test]
fn batch_excludes_a_job_and_the_flags_of_single_runs() {
    let db = TestDb::new();
    for surplus in [&["shell"][..], &["--key", "k"], &["--in", "5s"], &["--payload-file", "x"]] {
        let refused = db.jobctl(["enqueue", "--batch", "-"]).args(surplus.iter().copied()).run();
        refused.exits(2).stdout("").stderr_has("cannot be used with");
    }
}

#[test]
fn flags_are_the_defaults_of_batch_lines() {
    let db = TestDb::new();
    let lines = concat!(
        r#"{"job_type": "shell", "payload": {"command": "true"}}"#,
        "\n",
        r#"{"job_type": "shell", "payload": {"command": "true"}, "queue": "own", "priority": 0, "#,
        r#""max_attempts": 1, "timeout": "1m", "backoff": "fixed:1m"}"#
    );
    let flags =
        ["--priority", "7", "--max-attempts", "3", "--timeout", "5s", "--backoff", "fixed:2s"];
    let enqueue = db
        .jobctl(["enqueue", "--batch", "-"])
        .args(flags)
        .env("JOBCTL_ENQUEUE_QUEUE", "mail")
        .stdin(lines);
    // The ids of the first two runs of this database.
    enqueue.run().success().stdout("1\n2\n");
    assert_eq!(
        db.query(
            "SELECT queue, priority, max_attempts, timeout, backoff FROM jobctl.job_runs \
            ORDER BY id"
        ),
        "mail|7|3|00:00:05|fixed:2s\nown|0|1|00:01:00|fixed:1m"
    );
}

#[test]
fn enqueue_reads_the_whole_batch_before_it_connects() {
    // The test fails if a client connects to this database.
    let database = Untouched::new();
    // Lines with a mistake: no valid JSON, and no command.
    for last in ["{", r#"{"job_type": "shell"}"#] {
        let lines = format!("{GOOD}\n{last}\n");
        let refused = database
            .jobctl(["enqueue", "--batch", "-"])
            .stdin(lines)
            .run()
            .stdout("")
            .complains_once();
        refused.stderr_has("batch line 2");
    }
}

#[test]
fn batch_shows_progress_only_on_a_terminal() {
    let db = TestDb::new();
    let directory = temp_dir();
    let path = directory.path().join("batch.jsonl");
    std::fs::write(&path, vec![GOOD; 3000].join("\n")).unwrap();
    let batch = path.to_str().unwrap();
    db.jobctl(["enqueue", "--batch", batch]).run().success().stderr("");
    // A batch shows its progress after a second, at the end of a statement. The first statement has
    // 2000 runs and is quick, and the second has 1000 and takes over a second.
    db.execute(
        "CREATE FUNCTION delay() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN
                 IF (SELECT count(*) FROM new) < 2000 THEN PERFORM pg_sleep(1.1); END IF;
                 RETURN NULL;
             END $$;
         CREATE TRIGGER delay AFTER INSERT ON jobctl.job_runs REFERENCING NEW TABLE AS new
             EXECUTE FUNCTION delay()",
    );
    let typescript = directory.path().join("typescript");
    let script = "script -qec \"'$jobctl' enqueue --batch '$batch' >/dev/null\" \"$typescript\" \
        </dev/null >/dev/null";
    let shown = db
        .script(script)
        .env("batch", batch)
        .env("typescript", typescript.to_str().unwrap())
        .run()
        .success();
    let shown = format!("{shown}{}", std::fs::read_to_string(typescript).unwrap());
    let (before, after) =
        shown.split_once("3,000 of 3,000 runs, ").unwrap_or_else(|| panic!("{shown:?}"));
    // The line is cleared before and after it is written.
    assert!(before.ends_with("\r\u{1b}[K") && !before.contains("2,000 of"), "{shown:?}");
    assert!(after.contains(" a second\r\u{1b}[K"), "{shown:?}");
    assert_eq!(count_runs(&db), "6000");
}

/// Returns how many sessions wait for this event of the server.
fn sessions_that_wait_for(db: &TestDb, event: &str) -> String {
    db.query(&format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event \
         = '{event}'"
    ))
}

/// Two batches have the same keys in opposite orders. If each locked the keys in the order of its
/// lines, they could wait for each other.
#[test]
fn batches_lock_keys_in_one_order_and_answer_in_the_order_of_lines() {
    let db = TestDb::new();
    // The first batch stops when it inserts the key in the middle.
    db.execute(
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM \
         pg_advisory_xact_lock_shared(1); RETURN NEW; END';
         CREATE TRIGGER gate BEFORE INSERT ON jobctl.job_runs FOR EACH ROW WHEN \
         (NEW.idempotency_key LIKE '%m') EXECUTE FUNCTION gate()",
    );
    db.apply("[jobs.d]\nshell = 'true'\n");
    let line = |job: &str, rest: &str, key: &str| {
        let payload = r#"{"command": "true"}"#;
        format!(
            r#"{{"job_type": "{job}", "payload": {payload}, "idempotency_key": "{key}"{rest}}}"#
        )
    };
    let replace = r#", "key_scope": "live", "on_conflict": "replace""#;
    // A prefix of the keys, the job, and more fields of each line.
    for (kind, job, rest) in
        [("built-in", "shell", ""), ("defined", "d", ""), ("replace", "shell", replace)]
    {
        let lines = ["a", "m", "z"].map(|key| line(job, rest, &format!("{kind} {key}")));
        let batch = |lines: &[String]| {
            db.jobctl(["enqueue", "--batch", "-"]).stdin(lines.join("\n")).spawn()
        };
        let mut gate = db.client();
        gate.batch_execute("SELECT pg_advisory_lock(1)").unwrap();
        let first = batch(&lines);
        wait_until("the first batch to insert", || sessions_that_wait_for(&db, "advisory") == "1");
        let reversed: Vec<_> = lines.iter().rev().cloned().collect();
        let second = batch(&reversed);
        wait_until("the second batch to wait for the first", || {
            sessions_that_wait_for(&db, "transactionid") == "1"
        });
        drop(gate);
        let (first, second) = (first.wait().success().stderr(""), second.wait().success());
        let mut ids: Vec<_> = first.stdout.lines().collect();
        let keys = format!(
            "SELECT id FROM jobctl.job_runs WHERE idempotency_key LIKE '{kind} %' ORDER BY \
             idempotency_key"
        );
        assert_eq!(ids.join("\n"), db.query(&keys), "{kind}");
        // The second batch gets the same runs, in the order of its lines.
        ids.reverse();
        assert_eq!(second.stdout.lines().collect::<Vec<_>>(), ids, "{kind}");
    }
}

#[test]
fn a_batch_waits_longer_for_a_key_than_the_lock_timeout_and_a_single_run_names_the_cause() {
    let db = TestDb::new();
    db.apply("[jobs.d]\nshell = 'true'\n");
    let mut other = db.client();
    other.batch_execute("BEGIN; SELECT jobctl.enqueue('d', key => 'k')").unwrap();
    let single = db.jobctl(["enqueue", "--key", "k", "d"]).run().exits(5).stdout("");
    single.complains_once().stderr_has("another open transaction, holds a key of these runs");
    let line = r#"{"job_type": "d", "idempotency_key": "k"}"#;
    // A batch waits for the key, in one transaction after the other.
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(format!("{line}\n{line}\n")).spawn();
    // The starts of the transactions in which the batch has waited for the key.
    let mut begun = BTreeSet::new();
    wait_until("the batch to try again", || {
        let waiting = "SELECT xact_start FROM pg_stat_activity WHERE datname = current_database() \
            AND wait_event = 'transactionid'";
        begun.extend(Some(db.query(waiting)).filter(|start| !start.is_empty()));
        begun.len() > 1
    });
    other.batch_execute("COMMIT").unwrap();
    // Both lines get the run of the other session.
    let run = db.query("SELECT id FROM jobctl.job_runs");
    batch.wait().success().stdout(&format!("{run}\n{run}\n"));
}
