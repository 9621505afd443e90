//! The output of commands.

use crate::support::{TestDb, json_string};

/// How many bytes are kept of the beginning and of the end of each stream.
const KEPT: usize = 32 * 1024;

/// Runs a script, and asserts that exactly this output is stored, with this number of bytes.
#[track_caller]
fn assert_output_kept(db: &TestDb, script: &str, output: &str, bytes: usize) {
    let id = db.enqueue_script(script);
    db.jobctl(["tick", "--quiet"]).run().success().stdout("").stderr("");
    assert_eq!(db.status(id), "succeeded", "{script}");
    assert_eq!(
        db.of_attempt(id, 1, "output, output_bytes, output_truncated"),
        format!("{output}|{bytes}|f"),
        "{script}"
    );
}

#[test]
fn output_is_kept_as_text() {
    let db = TestDb::new();
    assert_output_kept(&db, "echo hi", "hi\n", 3);
    assert_output_kept(&db, "printf 'no newline'", "no newline", 10);
    assert_output_kept(&db, "echo out; echo err >&2", "out\n--- stderr ---\nerr\n", 8);
    assert_output_kept(&db, "printf out; printf err >&2", "out\n--- stderr ---\nerr", 6);
    assert_output_kept(&db, "echo err >&2", "--- stderr ---\nerr\n", 4);
    assert_output_kept(&db, "printf 'grün €'", "grün €", 9);
    // PostgreSQL would reject these bytes in a text. U+FFFD replaces them.
    assert_output_kept(&db, r"printf 'a\000b\377c\303'", "a\u{fffd}b\u{fffd}c\u{fffd}", 6);
    assert_output_kept(&db, r"printf '\355\240\200'", "\u{fffd}\u{fffd}\u{fffd}", 3);
    assert_output_kept(
        &db,
        "printf '\\\\ %s' \"'; DROP TABLE jobctl.job_runs; -- \\$\\$\"",
        "\\ '; DROP TABLE jobctl.job_runs; -- $$",
        38,
    );
}

#[test]
fn a_command_that_prints_nothing_has_no_output() {
    let db = TestDb::new();
    let id = db.enqueue_script("true");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_attempt(id, 1, "output IS NULL, output_bytes, output_truncated"), "t|0|f");
}

#[test]
fn output_of_a_failed_command_is_kept() {
    let db = TestDb::new();
    let failed = db.enqueue_script("echo so far; exit 1");
    let dead = db.enqueue_script("echo so far; exit 65");
    let killed = db.enqueue_script("echo so far; kill -KILL $$");
    let late = db.enqueue(["shell", r#"{"command": "echo so far; sleep 600"}"#, "--timeout", "1s"]);
    db.jobctl(["tick"]).run().success();
    for id in [failed, dead, killed, late] {
        assert_eq!(db.of_attempt(id, 1, "outcome, output"), "failed|so far\n");
    }
}

#[test]
fn both_ends_of_a_long_output_are_kept_in_little_memory() {
    const MIDDLE: usize = 64 << 20;
    let db = TestDb::new();
    // The tick runs these four one after the other: its memory before, a line of 64 MiB, lines
    // until the timeout, and its memory after them.
    let before = db.enqueue_that_prints_peak_memory();
    let line = db.enqueue_script(&format!(
        "printf first; head -c {MIDDLE} /dev/zero | tr '\\0' x; printf last"
    ));
    let endless = db.enqueue(["shell", r#"{"command": "yes"}"#, "--timeout", "1s"]);
    let after = db.enqueue_that_prints_peak_memory();
    db.jobctl(["tick", "--concurrency", "1"]).run().success();

    let bytes = "first".len() + MIDDLE + "last".len();
    assert_eq!(
        db.of_attempt(line, 1, "outcome, output_bytes, output_truncated"),
        format!("succeeded|{bytes}|t")
    );
    let head = "x".repeat(KEPT - "first".len());
    let tail = "x".repeat(KEPT - "last".len());
    let left_out = bytes - 2 * KEPT;
    let expected = format!("first{head}\n[{left_out} bytes left out]\n{tail}last");
    assert!(db.of_attempt(line, 1, "output") == expected, "not both ends");

    assert_eq!(
        db.of_attempt(
            endless,
            1,
            "error_type, output_truncated, output_bytes > 1000000, length(output) < 66000"
        ),
        "timeout|t|t|t"
    );
    assert!(db.of_attempt(endless, 1, "output").starts_with("y\ny\n"));
    let (before, after) = (db.peak_memory(before), db.peak_memory(after));
    assert!(after - before < 8 * 1024, "grew from {before} KiB to {after} KiB");
}

#[test]
fn a_tick_runs_all_due_runs_however_much_they_print() {
    const RUNS: usize = 400;
    let db = TestDb::new();
    db.execute(&format!(
        "INSERT INTO jobctl.job_runs (job_type, payload) \
         SELECT 'shell', '{{\"command\": \"head -c 100000 /dev/zero | tr ''\\\\0'' x\"}}' FROM \
         generate_series(1, {RUNS})"
    ));
    // Together the runs print more than one statement may store.
    db.jobctl(["tick", "--concurrency", "64", "--quiet"]).run().success().stderr("");
    assert_eq!(
        db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY status"),
        format!("succeeded|{RUNS}")
    );
}

#[test]
fn alternating_long_streams_do_not_block_each_other() {
    let db = TestDb::new();
    // Each block is a byte longer than a pipe holds, so the script waits until jobctl reads it.
    let block = |letter: char| format!("head -c 65537 /dev/zero | tr '\\0' {letter}");
    let script = format!(
        "i=0; while [ $i -lt 32 ]; do {}; {} >&2; i=$((i + 1)); done; printf end-out; printf \
            end-err >&2",
        block('o'),
        block('e')
    );
    let id = db.enqueue_script(&script);
    db.jobctl(["tick"]).run().success();
    // 32 blocks, and `end-out` or `end-err`.
    let stream = 32 * 65537 + 7;
    assert_eq!(
        db.of_attempt(id, 1, "outcome, output_bytes, output_truncated"),
        format!("succeeded|{}|t", 2 * stream)
    );
    let (edge, left_out) = (KEPT - 7, stream - 2 * KEPT);
    let kept = |letter: &str, end: &str| {
        format!(
            "{}\n[{left_out} bytes left out]\n{}{end}",
            letter.repeat(KEPT),
            letter.repeat(edge)
        )
    };
    let expected = format!("{}\n--- stderr ---\n{}", kept("o", "end-out"), kept("e", "end-err"));
    assert!(db.of_attempt(id, 1, "output") == expected, "not both ends of both");
}

#[test]
fn no_character_is_cut_where_output_is_left_out() {
    let db = TestDb::new();
    // 50,000 characters of three bytes. The number of kept bytes can't be divided by three.
    let id = db.enqueue_script(
        "i=0; while [ $i -lt 50 ]; do printf %01000d 0; i=$((i + 1)); done | sed 's/0/€/g'",
    );
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_attempt(id, 1, "output_bytes, output_truncated"), "150000|t");
    let output = db.of_attempt(id, 1, "output");
    let (head, rest) = output.split_once("\n[").unwrap();
    let (_, tail) = rest.split_once("]\n").unwrap();
    for end in [head, tail] {
        assert!(end.chars().all(|c| c == '€'), "{end}");
        assert!((KEPT - 3..=KEPT).contains(&end.len()), "{}", end.len());
    }
}

#[test]
fn a_result_is_recorded_even_if_the_database_rejects_its_output() {
    let db = TestDb::new();
    // A trigger rejects the output `poison` with the error for an invalid character.
    db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '22021'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON jobctl.job_attempts
         FOR EACH ROW WHEN (NEW.output = 'poison') EXECUTE FUNCTION refuse()",
    );
    let script = |text: &str, status: i32| format!("printf {}; exit {status}", json_string(text));
    let good = [1, 2].map(|_| db.enqueue_script(&script("fine", 0)));
    let poisoned = db.enqueue_script(&script("poison", 0));
    let failed = db.enqueue_script(&script("poison", 65));
    db.jobctl(["tick", "--quiet"]).run().success().stderr_has("output not stored");
    for id in good {
        assert_eq!(db.status(id), "succeeded");
        assert_eq!(db.of_attempt(id, 1, "output"), "fine");
    }
    assert_eq!(db.status(poisoned), "succeeded");
    assert_eq!(db.status(failed), "dead");
    for id in [poisoned, failed] {
        assert_eq!(db.of_attempt(id, 1, "output, output_bytes"), "[output could not be stored]|6");
    }
}
