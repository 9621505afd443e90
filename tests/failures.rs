//! The attempts that `failures` shows, alone and in groups.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cancel::enqueue_in_status;
use crate::retry::answer_at_terminal;
use crate::support::{Gate, TestDb};

/// Adds a failed attempt of the worker `w` to the history of a run. It ended on 31 January 2026, at
/// this second after 08:00. `changes` is empty, or SQL such as `, worker = 'web2'` that then
/// changes columns of the attempt.
fn insert_attempt(db: &TestDb, run: i64, attempt: i32, second: u32, changes: &str) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         VALUES ({run}, {attempt}, 'w', '2026-01-31 08:00Z',
             '2026-01-31 08:00:{second:02}Z', 'failed');
         UPDATE jobctl.job_attempts SET attempt = attempt {changes}
         WHERE run_id = {run} AND attempt = {attempt}"
    ));
}

/// Returns `RUN/ATTEMPT` of each row that `failures` lists.
#[track_caller]
fn listed_attempts<'a>(db: &TestDb, arguments: impl IntoIterator<Item = &'a str>) -> String {
    let finished = db.jobctl(["failures"]).args(arguments).run().success().stderr("");
    let rows = finished.stdout.lines().map(|line| {
        let cells: Vec<_> = line.split('\t').collect();
        format!("{}/{}", cells[0], cells[1])
    });
    rows.collect::<Vec<_>>().join(" ")
}

/// Flags for a window that contains all attempts of `insert_attempt`.
const ALWAYS: [&str; 2] = ["--since", "2026-01-01"];

#[test]
fn a_failure_of_a_run_that_recovered_is_listed() {
    let db = TestDb::new();
    let script = "if [ $JOBCTL_ATTEMPT = 1 ]; then echo copying; echo 'no space left' >&2; exit 3; \
                  fi";
    let run = db.enqueue_script(script);
    let fine = db.enqueue_script("true");
    // The first attempt fails on web1, and the second succeeds on web2.
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--worker", "web2"]).run().success();
    assert_eq!([run, fine].map(|id| db.status(id)), ["succeeded", "succeeded"]);
    let shown = db.jobctl(["failures", "--json"]).run().success().stderr("").stdout;
    let mut rows: Value = serde_json::from_str(&shown).unwrap();
    assert!(rows[0]["finished_at"].take().is_string());
    assert_eq!(
        rows,
        json!([{
            "run_id": run, "attempt": 1, "job_type": "shell", "worker": "web1",
            "finished_at": null, "error_type": "exit_code", "error": "exit status 3",
            "last_line": "no space left", "status": "succeeded",
        }])
    );

    // `list` finds the run, too. A worker finds all runs of which it made an attempt.
    let listed = |arguments: &[&str]| {
        let list = db.jobctl(["list"]).args(arguments.iter().copied()).run().success().stdout;
        let ids = list.lines().map(|line| line.split('\t').next().unwrap().parse().unwrap());
        ids.collect::<Vec<i64>>()
    };
    assert_eq!(listed(&["--had-failures"]), [run]);
    assert_eq!(listed(&["--had-failures", "--status", "dead"]), [] as [i64; 0]);
    assert_eq!(listed(&["--worker", "web1"]), [fine, run]);
    assert_eq!(listed(&["--worker", "web2"]), [run]);
    assert_eq!(listed(&["--worker", "web3"]), [] as [i64; 0]);
}

#[test]
fn list_finds_running_runs_by_their_worker_and_their_failures() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let [first, second] = ["running"; 2].map(|status| enqueue_in_status(&db, status));
    // Both runs are running on the worker `elsewhere`. The first one lost its lease on `w` before.
    db.execute(&format!("UPDATE jobctl.job_runs SET attempts = 2 WHERE id = {first}"));
    insert_attempt(&db, first, 1, 1, ", outcome = 'lease_expired'");
    let ids = |filter: &[&str]| {
        let list = db.jobctl(["list"]).args(filter.iter().copied()).run().success().stdout;
        let ids = list.lines().map(|line| line.split('\t').next().unwrap().parse().unwrap());
        ids.collect::<Vec<i64>>()
    };
    assert_eq!(ids(&["--worker", "elsewhere"]), [second, first]);
    assert_eq!(ids(&["--worker", "w"]), [first]);
    assert_eq!(ids(&["--had-failures"]), [first]);
}

#[test]
fn only_failures_and_lost_leases_of_the_window_are_listed_the_newest_first() {
    let db = TestDb::new();
    let [one, two] = ["dead", "succeeded"].map(|status| enqueue_in_status(&db, status));
    assert_eq!([one, two], [1, 2], "the rows below name the runs by these ids");
    db.execute(&format!("UPDATE jobctl.job_runs SET job_type = 'report' WHERE id = {two}"));
    insert_attempt(&db, one, 1, 1, "");
    insert_attempt(&db, two, 1, 1, "");
    insert_attempt(&db, one, 2, 3, ", outcome = 'lease_expired', worker = 'web2'");
    // These three attempts are no failures.
    for (attempt, outcome) in [(3, "succeeded"), (4, "cancelled"), (5, "interrupted")] {
        insert_attempt(&db, one, attempt, 4, &format!(", outcome = '{outcome}'"));
    }
    let with = |more: &[&'static str]| {
        listed_attempts(&db, ALWAYS.into_iter().chain(more.iter().copied()))
    };
    assert_eq!(with(&[]), "1/2 2/1 1/1");
    assert_eq!(with(&["--limit", "2"]), "1/2 2/1");
    assert_eq!(with(&["--worker", "web2"]), "1/2");
    assert_eq!(with(&["--job", "report"]), "2/1");
    assert_eq!(with(&["--job", "report,shell"]), "1/2 2/1 1/1");
    assert_eq!(with(&["--job", "report", "--job", "shell"]), "1/2 2/1 1/1");
    assert_eq!(with(&["--until", "2026-01-31T08:00:03Z"]), "2/1 1/1");
    assert_eq!(listed_attempts(&db, ["--since", "2026-01-31 08:00:02"]), "1/2");
    // Without --since, the window is a day.
    assert_eq!(listed_attempts(&db, []), "");
    assert_eq!(listed_attempts(&db, ["--until", "2026-02-01T08:00:01Z"]), "1/2 2/1 1/1");
    assert_eq!(listed_attempts(&db, ["--until", "2026-02-01T08:00:02Z"]), "1/2");
    // Kathmandu is 5:45 hours ahead of UTC.
    let zone = ["--since", "2026-01-31 13:45:02", "--time-zone", "Asia/Kathmandu"];
    assert_eq!(listed_attempts(&db, zone), "1/2");
    let mistyped = db.jobctl(["failures", "--job", "reprot"]).run().exits(3).stdout("");
    mistyped.complains_once().stderr_has("no definition `reprot`");
}

#[test]
fn the_last_line_is_the_last_one_that_is_not_blank() {
    let db = TestDb::new();
    let run = enqueue_in_status(&db, "dead");
    // The output of an attempt as SQL, and its last line.
    let outputs = [
        ("NULL", ""),
        (r"''", ""),
        (r"E' \n\t\n'", ""),
        (r"'one'", "one"),
        (r"E'one\ntwo\n'", "two"),
        (r"E'one\n  two  \n\n \n'", "  two"),
        (r"E'10%\r100%\r\n'", "100%"),
        (r"E'a\n--- stderr ---\nb\u001b[2J\n'", r"b\u{1b}[2J"),
        (r"repeat('x', 100000) || E'\nend'", "end"),
    ];
    for (attempt, (output, _)) in (1..).zip(outputs) {
        insert_attempt(&db, run, attempt, 0, &format!(", output = {output}"));
    }
    let shown = db.jobctl(["failures"]).args(ALWAYS).run().success().stdout;
    let lines: Vec<_> = shown.lines().rev().collect();
    for (line, (output, last_line)) in lines.iter().zip(outputs) {
        // The last line is the eighth of nine cells.
        let cells: Vec<_> = line.split('\t').collect();
        assert_eq!(cells.len(), 9, "{output}");
        assert_eq!(cells[7], last_line, "{output}");
    }
    assert_eq!(lines.len(), outputs.len());
}

#[test]
fn a_terminal_hints_at_more_failures_or_says_none_match() {
    let db = TestDb::new();
    let run = enqueue_in_status(&db, "dead");
    let says = |arguments: &str| answer_at_terminal(&db, &format!("failures {arguments}"), "").0;
    assert!(says("").contains("jobctl: no failed attempt matches"));
    assert!(says("--group").contains("jobctl: no failed attempt matches"));
    insert_attempt(&db, run, 1, 1, ", error = 'no such host'");
    insert_attempt(&db, run, 2, 2, ", error = 'no such file'");
    // With a limit of 2, both rows are shown, so there is no hint. With 1, there is one.
    let [attempts, groups] = ["", "--group"].map(|form| {
        let [limited, all] =
            ["1", "2"].map(|limit| says(&format!("--since 2026-01-01 --limit {limit} {form}")));
        assert!(all.contains("no such host") && !all.contains("these are"), "{all}");
        limited
    });
    assert!(attempts.contains("these are the newest 1; --limit shows more"), "{attempts}");
    assert!(groups.contains("these are the worst 1; --limit shows more"), "{groups}");
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug)]
enum AttemptEnd {
    /// This last command of its script ends.
    Command(&'static str),
    /// Its tick gets this signal.
    Signal(Signal),
    /// An operator cancels its run.
    Cancel,
}

/// Starts a run and ends its first attempt in this way. Returns the run.
fn run_with_ended_attempt(db: &TestDb, end: AttemptEnd) -> i64 {
    let gate = Gate::new();
    let last_command = if let AttemptEnd::Command(command) = end { command } else { "" };
    let script = format!("{}\n{last_command}", gate.script());
    let run = db.enqueue(["shell", "--backoff", "fixed:1h", "--", "sh", "-c", &script]);
    let tick = db.jobctl(["tick", "--grace", "0s", "--lease", "10s"]).spawn();
    gate.wait_for_starts(1);
    match end {
        AttemptEnd::Command(_) => gate.open(),
        AttemptEnd::Signal(signal) => tick.signal(signal),
        AttemptEnd::Cancel => drop(db.jobctl(["cancel", &run.to_string()]).run().success()),
    }
    let _ = tick.wait();
    run
}

/// Moves the runs by a day, so that the next tick does not start them again.
fn postpone_all_runs(db: &TestDb) {
    db.execute("UPDATE jobctl.job_runs SET run_at = run_at + interval '1 day'");
}

/// An attempt fails if its command does, or if its lease ends. It does not fail if it is snoozed,
/// interrupted or cancelled, or if its run expires or is taken from its worker.
#[test]
fn only_a_failed_attempt_sets_failed_at() {
    let db = TestDb::new();
    let status_and_failed = |run: i64| db.of_run(run, "status, failed_at IS NOT NULL");
    // Exit status 64 is permanent: the run is dead at once. Exit status 75 snoozes the run.
    for (end, expected) in [
        (AttemptEnd::Command("true"), "succeeded|f"),
        (AttemptEnd::Command("exit 1"), "failed|t"),
        (AttemptEnd::Command("exit 64"), "dead|t"),
        (AttemptEnd::Command("exit 75"), "queued|f"),
        (AttemptEnd::Signal(Signal::TERM), "queued|f"),
        (AttemptEnd::Cancel, "cancelled|f"),
    ] {
        let run = run_with_ended_attempt(&db, end);
        assert_eq!(status_and_failed(run), expected, "{end:?}");
        postpone_all_runs(&db);
    }

    // A signal kills the worker, so its lease ends.
    let lost = run_with_ended_attempt(&db, AttemptEnd::Signal(Signal::KILL));
    db.expire_leases();
    db.jobctl(["tick"]).run().success();
    assert_eq!(status_and_failed(lost), "failed|t");

    // An operator takes the run from its worker.
    let taken = enqueue_in_status(&db, "running");
    db.jobctl(["retry", "--force", &taken.to_string()]).run().success();
    assert_eq!(status_and_failed(taken), "queued|f");
    postpone_all_runs(&db);

    // The run expires before its first attempt.
    let expired = db.enqueue(["shell", "--expires-in", "1h", "--", "true"]);
    db.execute("UPDATE jobctl.job_runs SET expires_at = now()");
    db.jobctl(["tick"]).run().success();
    assert_eq!(status_and_failed(expired), "cancelled|f");
}

/// A shutdown or a snooze is not a failure, so the run keeps the time of its last failure.
#[test]
fn an_attempt_that_did_not_fail_keeps_the_time_of_the_failure_before() {
    // Exit status 75 snoozes the run; a signal to the tick interrupts the attempt.
    for (last, signal) in [("exit 75", None), ("exec sleep 600", Some(Signal::TERM))] {
        let db = TestDb::new();
        let gate = Gate::new();
        // The first attempt fails at once. The second one waits at the gate and ends by `last`.
        let script = format!("test $JOBCTL_ATTEMPT = 2 || exit 3\n{}\n{last}", gate.script());
        let run = db.enqueue_script(&script);
        db.jobctl(["tick"]).run().success();
        // Make the time of the failure differ from any time that the second attempt could set.
        db.execute("UPDATE jobctl.job_runs SET failed_at = failed_at - interval '2 days'");
        let before = db.of_run(run, "failed_at");
        db.make_waiting_runs_due();
        let tick = db.jobctl(["tick", "--grace", "0s"]).spawn();
        gate.wait_for_starts(1);
        match signal {
            Some(signal) => tick.signal(signal),
            None => gate.open(),
        }
        tick.wait().success();
        assert_eq!(db.of_run(run, "status, attempts"), "queued|2");
        assert_eq!(db.of_run(run, "failed_at"), before, "{last}");
    }
}

#[test]
fn the_query_of_the_manual_counts_the_failures_of_a_day() {
    let page = include_str!("../docs/schema.md");
    let (_, rest) = page.split_once("\nFailures of the last day by job and type:\n").unwrap();
    let query = rest.split("```").nth(1).and_then(|block| block.strip_prefix("sql")).unwrap();
    let db = TestDb::new();
    // A snoozed, an interrupted and a cancelled attempt are no failures.
    run_with_ended_attempt(&db, AttemptEnd::Command("exit 75"));
    postpone_all_runs(&db);
    run_with_ended_attempt(&db, AttemptEnd::Signal(Signal::TERM));
    postpone_all_runs(&db);
    run_with_ended_attempt(&db, AttemptEnd::Cancel);
    assert_eq!(db.query(query), "");

    // A later interruption of a failed run changes neither the number nor the type of the failure.
    let failed = run_with_ended_attempt(&db, AttemptEnd::Command("exit 1"));
    db.jobctl(["retry", &failed.to_string()]).run().success();
    let gate = Gate::new();
    let payload = json!({ "command": gate.script() });
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET payload = $text${payload}$text$ WHERE id = {failed}"
    ));
    let tick = db.jobctl(["tick", "--grace", "0s"]).spawn();
    gate.wait_for_starts(1);
    tick.signal(Signal::TERM);
    tick.wait().success();
    assert_eq!(db.query(query), "shell|exit_code|1");
}
