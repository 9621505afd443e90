//! `enqueue --batch`: JSON Lines, all or nothing.

use crate::cli::Untouched;
use crate::support::{TestDb, temp_dir};

const GOOD: &str = r#"{"job": "shell", "payload": {"command": "true"}}"#;

fn rows(db: &TestDb) -> String {
    db.query("SELECT count(*) FROM jobctl.job_runs")
}

#[track_caller]
fn refuses(db: &TestDb, lines: &[&str], exit: i32, why: &str) {
    let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines.join("\n")).run();
    let line = format!("jobctl: nothing is enqueued: batch line {}: {why}", lines.len());
    refused.exits(exit).stdout("").complains_once().stderr_has(&line);
}

#[test]
fn a_batch_comes_from_a_file_or_stdin_and_prints_an_id_a_line() {
    let db = TestDb::new();
    // Blank lines, the other line end, and none at the end.
    let lines = format!("{GOOD}\n\n  \t\n{GOOD}\r\n{GOOD}");
    let directory = temp_dir();
    let path = directory.path().join("batch.jsonl");
    std::fs::write(&path, &lines).unwrap();
    let ids = "SELECT id FROM jobctl.job_runs ORDER BY id";
    let from_file = db.jobctl(["enqueue", "--batch", path.to_str().unwrap()]).run().success().stderr("");
    assert_eq!(from_file.stdout, db.query(ids) + "\n");
    assert_eq!(rows(&db), "3");
    let from_stdin = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success().stderr("");
    assert_eq!(from_file.stdout + &from_stdin.stdout, db.query(ids) + "\n");
    assert_eq!(rows(&db), "6");
}

#[test]
fn a_line_says_all_that_the_flags_say() {
    let db = TestDb::new();
    let lines = r#"{"job": "shell", "payload": {"command": "true"}, "run_at": "2026-03-29T08:00:00+02:00", "key": "k", "priority": -5, "queue": "mail", "max_attempts": 3, "timeout": "1h", "backoff": "fixed:1m"}
{"job": "http", "payload": {"url": "http://127.0.0.1/"}, "in": "1d"}
{"job": "shell", "payload": {"command": "true"}, "in": null, "key": null, "queue": null}"#;
    db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
    let columns = "SELECT job_type, payload, CASE WHEN id % 2 = 1 THEN NULL END, queue, priority, max_attempts, timeout, \
                   backoff, idempotency_key, run_at - created_at IN ('0', '24 hours') FROM jobctl.job_runs ORDER BY id";
    let expected = r#"shell|{"command": "true"}||mail|-5|3|01:00:00|fixed:1m|k|f
http|{"url": "http://127.0.0.1/"}||default|0|10||exponential:1m..30m||t
shell|{"command": "true"}||default|0|10||exponential:1m..30m||t"#;
    assert_eq!(db.query(columns), expected);
    let run_at = "SELECT run_at AT TIME ZONE 'UTC' FROM jobctl.job_runs WHERE idempotency_key = 'k'";
    assert_eq!(db.query(run_at), "2026-03-29 06:00:00");
}

#[test]
fn one_bad_line_keeps_the_whole_batch_out_and_is_named() {
    let db = TestDb::new();
    let with = |fields: &str| format!(r#"{{"job": "shell", "payload": {{"command": "true"}}, {fields}}}"#);
    for (line, exit, why) in [
        ("{".to_owned(), 2, "EOF while parsing an object at column 1"),
        (format!("{GOOD} x"), 2, "trailing characters at column 50"),
        ("[1]".to_owned(), 2, "must be an object"),
        ("{}".to_owned(), 2, "missing field `job`"),
        (r#"{"job": "shell"}"#.to_owned(), 2, "payload is no shell job: missing field `command`"),
        (r#"{"job": "nosuch"}"#.to_owned(), 3, "no definition `nosuch`"),
        (r#"{"job": "a\u0000"}"#.to_owned(), 2, "`job`: NUL not allowed"),
        (
            r#"{"job": "shell", "payload": {"command": "\u0000"}}"#.to_owned(),
            2,
            "payload is not valid JSON: NUL not allowed at its column",
        ),
        (
            r#"{"job": "shell", "payload": {"command": "x", "command": "x"}}"#.to_owned(),
            2,
            "payload is not valid JSON: the same key twice",
        ),
        (with(r#""job": "shell""#), 2, "duplicate field `job` at column"),
        (with(r#""run-at": "x""#), 2, "unknown field `run-at`"),
        (with(r#""run_at": "infinity""#), 2, "`run_at`: `infinity` is not a time"),
        (with(r#""run_at": "2026-01-01T00:00:00Z", "in": "5s""#), 2, "`run_at` and `in` exclude each other"),
        (with(r#""in": "5""#), 2, "`in`: `5` is not a duration"),
        (with(r#""in": 5"#), 2, "invalid type: integer `5`"),
        (with(r#""key": """#), 2, "`key`: a key must have 1 to 255 bytes"),
        (with(r#""key_scope": "live""#), 2, "`key_scope` needs a `key`"),
        (with(r#""run_at": "9999-12-31T23:59:59-01:00""#), 2, "`run_at`: `9999-12-31T23:59:59-01:00` is out of range"),
        (with(r#""priority": 2147483648"#), 2, "invalid value: integer `2147483648`"),
        (with(r#""queue": "a b""#), 2, "`queue`: a queue's name"),
        (with(r#""max_attempts": 0"#), 2, "`max_attempts`: 0 is out of range; allowed are 1 to 1000"),
        (with(r#""max_attempts": 1001"#), 2, "`max_attempts`: 1001 is out of range; allowed are 1 to 1000"),
        (with(r#""timeout": "0s""#), 2, "`timeout`: `0s` is out of range; allowed are 1s to 30d"),
        (with(r#""backoff": "1m""#), 2, "`backoff`: `1m` is not a backoff"),
    ] {
        refuses(&db, &[GOOD, "", GOOD, &line], exit, why);
    }
    assert_eq!(rows(&db), "0");
}

#[test]
fn a_taken_key_keeps_the_whole_batch_out() {
    let db = TestDb::new();
    let with_key = |command: &str, key: &str| {
        format!(r#"{{"job": "shell", "payload": {{"command": "{command}"}}, "key": "{key}"}}"#)
    };
    let id = db.enqueue(["--key", "taken", "shell", r#"{"command": "true"}"#]);
    let taken = "key `taken` belongs to a run with another job or payload";
    refuses(&db, &[GOOD, &with_key("true", "new"), &with_key("false", "taken")], 4, taken);
    assert_eq!(rows(&db), "1");
    // The same key and payload is the run that is there; the others are new.
    let lines = [with_key("true", "new"), with_key("true", "taken"), GOOD.to_owned()].join("\n");
    let finished = db.jobctl(["enqueue", "--batch", "-", "--json"]).stdin(lines).run().success();
    let answers: Vec<serde_json::Value> = serde_json::from_str(&finished.stdout).unwrap();
    let existing: Vec<_> = answers.iter().map(|answer| answer["existing"].as_bool().unwrap()).collect();
    assert_eq!((existing, answers[1]["id"].as_i64()), (vec![false, true, false], Some(id)));
    assert_eq!(rows(&db), "3");
}

#[test]
fn a_key_twice_in_a_batch_is_one_run_or_a_conflict() {
    let db = TestDb::new();
    let with_key = |command: &str| format!(r#"{{"job": "shell", "payload": {{"command": "{command}"}}, "key": "k"}}"#);
    let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(format!("{}\n{}", with_key("a"), with_key("b"))).run();
    refused.exits(4).stdout("").complains_once().stderr_has("nothing is enqueued: batch line 2: key `k`");
    assert_eq!(rows(&db), "0");
    let lines = format!("{}\n{GOOD}\n{}", with_key("a"), with_key("a"));
    let finished = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
    let ids: Vec<_> = finished.stdout.lines().collect();
    assert_eq!((ids.len(), ids[0] == ids[2], rows(&db).as_str()), (3, true, "2"), "{finished}");
}

#[test]
fn the_line_that_is_wrong_is_named_and_not_one_that_looks_like_it() {
    let db = TestDb::new();
    db.apply("[jobs.d]\nshell = 'cat'\n");
    let z = |payload: &str| format!(r#"{{"job": "d", "key": "z", "payload": {payload}}}"#);
    let other = r#"{"job": "d", "key": "z2"}"#;
    let twice = "key `z` is also in line 1, with another job or payload\n";
    refuses(&db, &[&z("{}"), other, &z("{}"), &z(r#"{"x": 1}"#)], 4, twice);
    refuses(&db, &[&z("{}"), other, GOOD, r#"{"job": "shell", "key": "z", "payload": {"command": "id"}}"#], 4, twice);
    // A key that is the name of a job.
    refuses(&db, &[r#"{"job": "d", "key": "nosuch"}"#, GOOD, r#"{"job": "nosuch"}"#], 3, "no definition `nosuch`");
    let long = format!(r#"{{"job": "d", "payload": [{}]}}"#, vec!["1e300"; 40_000].join(","));
    refuses(&db, &[other, &long], 2, "payload is longer than 1 MiB");
    // The same key in the other scope is another key.
    db.enqueue(["d", "--key", "z", "1"]);
    let live = r#"{"job": "d", "key": "z", "key_scope": "live"}"#;
    refuses(&db, &[other, live, &z("2")], 4, "key `z` belongs to a run with another job or payload");
    assert_eq!(rows(&db), "1");
}

#[test]
fn a_conflict_at_the_end_of_a_long_batch_takes_back_its_beginning() {
    let db = TestDb::new();
    let id = db.enqueue(["--key", "taken", "shell", "--", "false"]);
    let mut lines = vec![GOOD; 5000];
    let last = r#"{"job": "shell", "payload": {"command": "true"}, "key": "taken"}"#;
    lines.push(last);
    refuses(&db, &lines, 4, "key `taken` belongs to a run with another job or payload");
    assert_eq!(rows(&db), "1");
    lines.pop();
    let finished = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines.join("\n")).run().success().stderr("");
    assert_eq!(
        finished.stdout,
        db.query(&format!("SELECT id FROM jobctl.job_runs WHERE id <> {id} ORDER BY id")) + "\n"
    );
    assert_eq!(finished.stdout.lines().count(), 5000);
}

#[test]
fn an_empty_batch_is_no_error() {
    let db = TestDb::new();
    for text in ["", "\n", " \n\n"] {
        db.jobctl(["enqueue", "--batch", "-"]).stdin(text).run().success().stdout("").stderr("");
        db.jobctl(["enqueue", "--batch", "-", "--json"]).stdin(text).run().success().stdout("[]\n").stderr("");
    }
}

#[test]
fn a_batch_stands_alone() {
    let db = TestDb::new();
    for surplus in [&["shell"][..], &["--key", "k"], &["--in", "5s"], &["--payload-file", "x"]] {
        let refused = db.jobctl(["enqueue", "--batch", "-"]).args(surplus.iter().copied()).run();
        refused.exits(2).stdout("").stderr_has("cannot be used with");
    }
}

#[test]
fn what_a_line_does_not_say_the_flags_do() {
    let db = TestDb::new();
    let lines = r#"{"job": "shell", "payload": {"command": "true"}}
        {"job": "shell", "payload": {"command": "true"}, "queue": "own", "priority": 0, "max_attempts": 1, "timeout": "1m", "backoff": "fixed:1m"}"#;
    let flags = ["--priority", "7", "--max-attempts", "3", "--timeout", "5s", "--backoff", "fixed:2s"];
    let enqueue = db.jobctl(["enqueue", "--batch", "-"]).args(flags).env("JOBCTL_QUEUE", "mail").stdin(lines);
    enqueue.run().success().stdout("1\n2\n");
    assert_eq!(
        db.query("SELECT queue, priority, max_attempts, timeout, backoff FROM jobctl.job_runs ORDER BY id"),
        "mail|7|3|00:00:05|fixed:2s\nown|0|1|00:01:00|fixed:1m"
    );
}

#[test]
fn a_batch_is_read_to_its_end_before_the_database_is_asked() {
    let database = Untouched::new();
    for last in ["{", r#"{"job": "shell"}"#] {
        let lines = format!("{GOOD}\n{last}\n");
        let refused = database.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().stdout("").complains_once();
        refused.stderr_has("batch line 2");
    }
}

#[test]
fn progress_is_shown_on_a_terminal_only() {
    let db = TestDb::new();
    let directory = temp_dir();
    let path = directory.path().join("batch.jsonl");
    std::fs::write(&path, vec![GOOD; 3000].join("\n")).unwrap();
    let batch = path.to_str().unwrap();
    db.jobctl(["enqueue", "--batch", batch]).run().success().stderr("");
    let typescript = directory.path().join("typescript");
    let script = "script -qec \"'$jobctl' enqueue --batch '$batch' >/dev/null\" \"$typescript\" </dev/null >/dev/null";
    let shown = db.script(script).env("batch", batch).env("typescript", typescript.to_str().unwrap()).run().success();
    let shown = format!("{shown}{}", std::fs::read_to_string(typescript).unwrap());
    assert!(shown.contains("\r\u{1b}[K2000 of 3000 enqueued\r\u{1b}[K3000 of 3000 enqueued\r\u{1b}[K"), "{shown:?}");
    assert_eq!(rows(&db), "6000");
}
