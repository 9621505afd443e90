//! `retry` makes runs due again: by id in each status, or many by a filter.

use std::fs;

use crate::cancel::{STATUSES, enqueue_in_status};
use crate::support::{Finished, TestDb, temp_dir};

/// The columns that a retry sets: the run is queued, is due (t or f) and has an attempt left (t);
/// the other columns are empty.
const QUEUED_DUE_LEFT: &str = "status, run_at <= now(), attempts < max_attempts, locked_by, \
    locked_until, finished_at, cancel_requested_at";

#[test]
fn retry_makes_runs_due_and_refuses_running_and_succeeded_ones() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    for status in STATUSES {
        let id = enqueue_in_status(&db, status);
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET run_at = now() + interval '1 hour' WHERE id = {id}"
        ));
        let before = db.of_run(id, "job_runs::text");
        let retried = db.jobctl(["retry", &id.to_string()]).run();
        if matches!(status, "running" | "succeeded") {
            // A refused run does not change. The error names the flag that retries it.
            let flag = if status == "running" { "--force" } else { "--again" };
            let why = format!(
                "jobctl: cannot retry run {id}: its status is {status}; {flag} retries it\n"
            );
            retried.exits(4).stdout("").stderr(&why);
            assert_eq!(db.of_run(id, "job_runs::text"), before, "{status}");
        } else {
            retried.success().stdout(&format!("{id}\tqueued\n")).stderr("");
            // A cancelled run keeps its time, which is in an hour. All others are due now.
            let is_due = if status == "cancelled" { "f" } else { "t" };
            let expected = format!("queued|{is_due}|t||||");
            assert_eq!(db.of_run(id, QUEUED_DUE_LEFT), expected, "{status}");
        }
    }
}

#[test]
fn force_needs_run_ids() {
    let db = TestDb::new();
    let dead = enqueue_in_status(&db, "dead");
    db.jobctl(["retry", "--all-dead", "--force"])
        .run()
        .exits(2)
        .stdout("")
        .stderr_has("cannot be used with");
    assert_eq!(db.status(dead), "dead");
}

#[test]
fn force_takes_a_running_run_and_records_the_end_of_its_attempt() {
    let db = TestDb::new();
    for status in STATUSES {
        let id = enqueue_in_status(&db, status);
        let retried = db.jobctl(["retry", "--force", &id.to_string()]).run();
        if status == "succeeded" {
            let why = format!(
                "jobctl: cannot retry run {id}: its status is succeeded; --again retries it\n"
            );
            retried.exits(4).stdout("").stderr(&why);
        } else {
            retried.success().stdout(&format!("{id}\tqueued\n"));
            assert_eq!(db.of_run(id, QUEUED_DUE_LEFT), "queued|t|t||||", "{status}");
        }
        // Only a running run has an attempt to end.
        let history = if status == "running" {
            "elsewhere|interrupted|interrupted|taken from its holder by retry --force"
        } else {
            ""
        };
        assert_eq!(db.of_attempt(id, 1, "worker, outcome, error_type, error"), history, "{status}");
    }
}

#[test]
fn retry_grants_used_attempts_again_and_never_lowers_the_limit() {
    let db = TestDb::new();
    let id = db.enqueue(["--max-attempts", "3", "shell", "--", "sh", "-c", "exit 64"]);
    // As if three attempts had failed.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'dead', attempts = 3, finished_at = now()
         WHERE id = {id};
         INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome)
         SELECT {id}, n, 'elsewhere', now(), now(), 'failed' FROM generate_series(1, 3) AS n"
    ));
    db.jobctl(["retry", &id.to_string()]).run().success();
    assert_eq!(db.of_run(id, "attempts, max_attempts"), "3|6");

    // Exit status 64 is a permanent failure, so the run is dead with two attempts left.
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.of_run(id, "status, attempts, max_attempts"), "dead|4|6");
    assert_eq!(
        db.query("SELECT string_agg(attempt::text, ',' ORDER BY attempt) FROM jobctl.job_attempts"),
        "1,2,3,4"
    );
    // The run has attempts left, so retry grants no more.
    db.jobctl(["retry", &id.to_string()]).run().success();
    assert_eq!(db.of_run(id, "attempts, max_attempts"), "4|6");

    // Once all are used up, each retry grants the original number of attempts, which is three.
    for attempts in ["6|9", "9|12"] {
        db.execute(&format!(
            "UPDATE jobctl.job_runs
             SET status = 'dead', attempts = max_attempts, finished_at = now()
             WHERE id = {id}"
        ));
        db.jobctl(["retry", &id.to_string()]).run().success();
        assert_eq!(db.of_run(id, "attempts, max_attempts"), attempts);
    }
}

#[test]
fn retry_caps_max_attempts_at_a_million_and_continues() {
    let db = TestDb::new();
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, finished_at, attempts, max_attempts)
         VALUES ('shell', 'dead', now(), 600000, 600000), ('shell', 'dead', now(), 1, 1)",
    );
    db.jobctl(["retry", "--all-dead", "--yes"]).run().success().stdout("queued\t2\n");
    assert_eq!(db.query("SELECT max_attempts FROM jobctl.job_runs ORDER BY id"), "1000000\n2");
}

#[test]
fn retry_prints_a_result_for_each_id_and_the_worst_sets_its_exit_status() {
    let db = TestDb::new();
    let [dead, succeeded, failed] =
        ["dead", "succeeded", "failed"].map(|status| enqueue_in_status(&db, status));
    let (dead_id, succeeded_id, failed_id) =
        (dead.to_string(), succeeded.to_string(), failed.to_string());
    // An id that is given twice is retried and printed once.
    let finished = db.jobctl(["retry", &failed_id, "999999", &dead_id, &failed_id]).run().exits(3);
    finished
        .stdout(&format!("{failed}\tqueued\n{dead}\tqueued\n"))
        .stderr("jobctl: cannot retry run 999999: no such run\n");
    // A refused run (exit status 4) is worse than a missing one (3). The run that was dead is
    // queued by now, and the retry of a queued run makes it due.
    let finished =
        db.jobctl(["retry", "--json", "999999", &succeeded_id, &dead_id]).run().exits(4).stderr("");
    let refusal = "its status is succeeded; --again retries it";
    let expected = serde_json::json!([
        {"id": 999999, "result": "not found", "why_not_changed": "no such run"},
        {"id": succeeded, "result": "refused", "why_not_changed": refusal},
        {"id": dead, "result": "queued", "why_not_changed": null},
    ]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&finished.stdout).unwrap(), expected);
}

#[test]
fn all_dead_retries_dead_runs_only() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    // There is no dead run yet.
    db.jobctl(["retry", "--all-dead", "--yes"]).run().success().stdout("").stderr("");
    db.jobctl(["retry", "--all-dead", "--yes", "--json"]).run().success().stdout("[]\n").stderr("");

    let others: Vec<_> = STATUSES
        .into_iter()
        .filter(|status| *status != "dead")
        .map(|status| (status, enqueue_in_status(&db, status)))
        .collect();
    let dead = [(); 2].map(|()| enqueue_in_status(&db, "dead"));
    let retried =
        db.jobctl(["retry", "--all-dead", "--yes", "--verbose"]).run().success().stderr("");
    retried.stdout(&format!("{}\tqueued\n{}\tqueued\n", dead[0], dead[1]));
    assert_eq!(dead.map(|id| db.status(id)), ["queued", "queued"]);
    for (status, id) in others {
        assert_eq!(db.status(id), status);
    }
}

#[test]
fn a_retried_dead_run_succeeds_after_a_fix() {
    let db = TestDb::new();
    let directory = crate::support::temp_dir();
    let id = db.enqueue(["shell", "--", "test", "-e", "fixed"]);
    // As if all ten attempts had failed.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'dead', attempts = 10, finished_at = now()
         WHERE id = {id}"
    ));
    std::fs::write(directory.path().join("fixed"), "").unwrap();
    db.jobctl(["retry", &id.to_string()]).run().success();
    db.jobctl(["tick", "--quiet"]).current_dir(directory.path()).run().success().stderr("");
    assert_eq!(
        db.of_run(id, "status, attempts, max_attempts, finished_at IS NOT NULL"),
        "succeeded|11|20|t"
    );
}

/// Runs a command at a terminal and types an answer to its question. Returns what the terminal
/// showed, and how the command ended.
pub fn answer_at_terminal(db: &TestDb, command: &str, answer: &str) -> (String, Finished) {
    let directory = temp_dir();
    let typescript = directory.path().join("typescript");
    let script = format!(
        "printf '{answer}\\n' | script -qec \"'$jobctl' {command}\" \"$typescript\" >/dev/null; \
         exit $?"
    );
    let finished = db
        .script(&script)
        .env("typescript", typescript.to_str().unwrap())
        .env("NO_COLOR", "1")
        .run();
    (std::fs::read_to_string(typescript).unwrap(), finished)
}

#[test]
fn all_dead_retries_the_dead_runs_that_match_the_filters() {
    let db = TestDb::new();
    let dead = |columns: &str| {
        let id = enqueue_in_status(&db, "dead");
        db.execute(&format!("UPDATE jobctl.job_runs SET {columns} WHERE id = {id}"));
        id
    };
    // A filter, and the columns of the only dead run that matches it.
    for (filter, columns) in [
        (["--job", "report"], "job_type = 'report'"),
        (["--queue", "mail"], "queue = 'mail'"),
        (["--key", "k"], "idempotency_key = 'k'"),
        (["--error-type", "timeout"], "error_type = 'timeout'"),
        // The filters compare the time of death, not of creation.
        (
            ["--since", "1h"],
            "finished_at = now() - interval '30 minutes', created_at = now() - interval '9 days'",
        ),
        (["--until", "2d"], "finished_at = now() - interval '3 days'"),
    ] {
        let other = dead("finished_at = now() - interval '1 day', created_at = now()");
        let matching = dead(columns);
        // The filters by job and queue match this run, but it is not dead.
        let failed = enqueue_in_status(&db, "failed");
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET job_type = 'report', queue = 'mail' WHERE id = {failed}"
        ));
        let retry = db.jobctl(["retry", "--all-dead", "--yes", "--verbose"]).args(filter);
        retry.run().success().stdout(&format!("{matching}\tqueued\n")).stderr("");
        assert_eq!([other, failed].map(|id| db.status(id)), ["dead", "failed"], "{filter:?}");
        db.execute("DELETE FROM jobctl.job_runs");
    }
}

#[test]
fn retry_needs_all_dead_all_cancelled_or_again_with_filters() {
    let db = TestDb::new();
    let why =
        "jobctl: filters need --all-dead, --all-cancelled or --again; add it, or give run ids\n";
    db.jobctl(["retry", "--job", "report"]).run().exits(2).stdout("").stderr(why);
}

#[test]
fn all_dead_retries_in_id_order_and_gives_a_key_to_the_newest_run() {
    let db = TestDb::new();
    // Runs 1 to 2500, which ended in the opposite order. The first and the last have one live key.
    db.execute(
        "INSERT INTO jobctl.job_runs
             (job_type, status, attempts, finished_at, idempotency_key, key_scope)
         SELECT 'a', 'dead', 1, now() - n * interval '1 second',
             CASE WHEN n IN (1, 2500) THEN 'k' END,
             CASE WHEN n IN (1, 2500) THEN 'live' ELSE 'retained' END
         FROM generate_series(1, 2500) AS n",
    );
    // The last run gets the key, so the first one is refused.
    let finished = db.jobctl(["retry", "--all-dead", "--yes", "--verbose"]).run().exits(4);
    let expected: String = (2..=2500).map(|id| format!("{id}\tqueued\n")).collect();
    let refused =
        "jobctl: cannot retry run 1: another unfinished run has its key; cancel that run first\n";
    finished.stdout(&expected).stderr(refused);
    assert_eq!(db.query("SELECT id FROM jobctl.job_runs WHERE status = 'dead'"), "1");
}

#[test]
fn a_retried_cancelled_run_gets_back_a_later_time() {
    let db = TestDb::new();
    for (status, wait) in [("queued", "1 hour"), ("failed", "2 hours")] {
        let id = enqueue_in_status(&db, status).to_string();
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET run_at = now() + interval '{wait}' WHERE id = {id}"
        ));
        let run_at = || db.query(&format!("SELECT run_at FROM jobctl.job_runs WHERE id = {id}"));
        let before = run_at();
        db.jobctl(["cancel", &id]).run().success();
        db.jobctl(["retry", &id]).run().success().stdout(&format!("{id}\tqueued\n"));
        assert_eq!(run_at(), before, "{status}");
        // The run is queued now. Another retry makes it due at once.
        db.jobctl(["retry", &id]).run().success();
        assert_eq!(db.of_run(id.parse().unwrap(), QUEUED_DUE_LEFT), "queued|t|t||||");
    }
}

#[test]
fn a_retried_cancelled_run_is_due_at_once_with_now_or_if_its_time_has_passed() {
    let db = TestDb::new();
    let id = enqueue_in_status(&db, "cancelled");
    for (wait, flags) in [("1 hour", &["--now"][..]), ("-1 day", &[])] {
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET run_at = now() + interval '{wait}' WHERE id = {id}"
        ));
        db.jobctl(["retry", &id.to_string()]).args(flags.iter().copied()).run().success();
        // The retry has set both columns to the time of its transaction.
        assert_eq!(db.of_run(id, "run_at = updated_at"), "t", "{wait}");
        db.jobctl(["cancel", &id.to_string()]).run().success();
    }
}

#[test]
fn retry_all_cancelled_restores_the_status_and_time_of_runs_that_a_cancel_ended() {
    let db = TestDb::new();
    db.apply("[jobs.report]\nshell = 'true'\n");
    let [first, second] = [(); 2].map(|()| db.enqueue(["report", "--in", "1h"]));
    // These runs do not match the filters of the retry.
    let others = ["cancelled", "dead"].map(|status| enqueue_in_status(&db, status));
    let times = || db.query("SELECT id, status, run_at FROM jobctl.job_runs ORDER BY id");
    let before = times();
    db.jobctl(["cancel", "--all-waiting", "--yes"]).run().success().stdout("cancelled\t2\n");
    let retry = ["retry", "--all-cancelled", "--job", "report", "--since", "1h"];
    let retried = db.jobctl(retry).args(["--yes", "--reason", "wrong job"]).run().success();
    retried.stdout("queued\t2\n").stderr("");
    assert_eq!(times(), before);
    assert_eq!(
        db.query("SELECT run_id, reason FROM jobctl.job_events WHERE action = 'retry' ORDER BY 1"),
        format!("{first}|wrong job\n{second}|wrong job")
    );
    assert_eq!(others.map(|id| db.status(id)), ["cancelled", "dead"]);
}

#[test]
fn all_cancelled_takes_expired_and_dropped_runs_only_by_their_error_type() {
    let db = TestDb::new();
    // No operator cancelled the first two runs. The third one was cancelled after a failure.
    let [expired, dropped, failed] = ["expired", "dropped", "exit_code"].map(|error_type| {
        let id = enqueue_in_status(&db, "cancelled");
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET error_type = '{error_type}' WHERE id = {id}"
        ));
        id
    });
    let retry = ["retry", "--all-cancelled", "--yes", "--verbose"];
    db.jobctl(retry).run().success().stdout(&format!("{failed}\tqueued\n"));
    let retried = db.jobctl(retry).args(["--error-type", "expired"]).run().success();
    retried.stdout(&format!("{expired}\tqueued\n"));
    assert_eq!(db.status(dropped), "cancelled");
}

#[test]
fn all_runs_need_yes_without_a_terminal() {
    let db = TestDb::new();
    let states = || db.query("SELECT id, status, settled_at FROM jobctl.job_runs ORDER BY id");
    // Each of the commands would change one of these runs.
    for status in ["queued", "dead", "cancelled"] {
        enqueue_in_status(&db, status);
    }
    let before = states();
    for (command, flag) in [
        ("retry", "--all-dead"),
        ("retry", "--all-cancelled"),
        ("settle", "--all-dead"),
        ("cancel", "--all-waiting"),
        ("cancel", "--all"),
    ] {
        let why = format!(
            "jobctl: cannot {command}: it would {command} all runs that match, and stdin is not a \
             terminal to ask; add --yes\n"
        );
        db.jobctl([command, flag]).run().exits(2).stdout("").stderr(&why);
        // A dry run needs no `--yes`.
        let result = match command {
            "retry" => "queued",
            "settle" => "settled",
            _ => "cancelled",
        };
        let dry = db.jobctl([command, flag, "--dry-run"]).run().success();
        dry.stdout(&format!("{result}\t1\n")).stderr("");
    }
    assert_eq!(states(), before);
}

#[test]
fn a_dry_run_changes_nothing_and_answers_as_the_command() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let states = || db.query("SELECT run::text FROM jobctl.job_runs AS run ORDER BY id");
    for command in ["retry", "cancel", "settle", "prune"] {
        let ids = STATUSES.map(|status| enqueue_in_status(&db, status).to_string());
        let ids = || ids.iter().map(String::as_str);
        let before = states();
        let dry = db.jobctl([command, "--dry-run", "999999"]).args(ids()).run();
        assert_eq!(states(), before, "{command}");
        let done = db.jobctl([command, "999999"]).args(ids()).run();
        assert_eq!(dry.status, done.status, "{command}");
        assert_eq!(dry.stdout, done.stdout, "{command}");
        assert_eq!(dry.stderr, done.stderr, "{command}");
    }
}

#[test]
fn a_command_for_many_runs_prints_a_total_for_each_result() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    for status in ["queued", "failed", "running"] {
        enqueue_in_status(&db, status);
    }
    let totals = serde_json::json!([
        {"result": "cancel requested", "runs": 1, "why_not_changed": null},
        {"result": "cancelled", "runs": 2, "why_not_changed": null},
    ]);
    for flag in ["--dry-run", "--yes"] {
        let cancel = db.jobctl(["cancel", "--all", "--json", flag]).run().success().stderr("");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&cancel.stdout).unwrap(), totals);
    }

    // Of three dead runs with one live key, only the newest gets it back.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, status, finished_at, idempotency_key, key_scope)
         SELECT 'a', 'dead', now(), 'k', 'live' FROM generate_series(1, 3)",
    );
    let first = db.query("SELECT min(id) FROM jobctl.job_runs WHERE job_type = 'a'");
    db.jobctl(["retry", "--all-dead", "--yes"]).run().exits(4).stdout("queued\t1\n").stderr(
        &format!(
            "jobctl: cannot retry 2 runs, such as run {first}: another unfinished run has its \
             key; cancel that run first\n"
        ),
    );
    let why = "another unfinished run has its key; cancel that run first";
    let totals = serde_json::json!([{"result": "refused", "runs": 2, "why_not_changed": why}]);
    let retry = db.jobctl(["retry", "--all-dead", "--yes", "--json"]).run().exits(4).stderr("");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&retry.stdout).unwrap(), totals);
}

#[test]
fn all_dead_asks_for_confirmation_at_a_terminal() {
    let db = TestDb::new();
    for _ in 0..3 {
        enqueue_in_status(&db, "dead");
    }
    let dead = || db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'dead'");
    // Any answer except yes.
    for no in ["n", "", "yess"] {
        let (shown, finished) = answer_at_terminal(&db, "retry --all-dead", no);
        assert!(shown.contains("retry 3 dead runs? [y/N] "), "{shown}");
        assert!(shown.contains("jobctl: cannot retry: not confirmed"), "{shown}");
        finished.exits(1);
        assert_eq!(dead(), "3");
    }

    // Without a run to retry, there is no question.
    let (shown, finished) =
        answer_at_terminal(&db, "retry --all-dead --job shell --error-type timeout", "y");
    assert!(shown.contains("jobctl: no dead run matches"), "{shown}");
    finished.success();

    let (shown, finished) = answer_at_terminal(&db, "retry --all-dead", "y");
    assert!(shown.contains("[y/N] ") && shown.contains("queued"), "{shown}");
    finished.success();
    assert_eq!(dead(), "0");

    // With `--yes`, there is no question.
    enqueue_in_status(&db, "dead");
    let (shown, finished) = answer_at_terminal(&db, "retry --all-dead --yes", "n");
    assert!(!shown.contains("[y/N]"), "{shown}");
    finished.success();
    assert_eq!(dead(), "0");
}

#[test]
fn again_repeats_runs_that_succeeded_but_not_their_effects() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let file = folder.path().join("times");
    let script = format!(
        "{} once invoice:4711 -- sh -c 'echo sent >>{file}' && echo ran >>{file}",
        env!("CARGO_BIN_EXE_jobctl"),
        file = file.display()
    );
    let shell = ["--key", "4711", "--max-attempts", "1", "shell", "--", "sh", "-c", &script];
    let id = db.enqueue(shell);
    // The job's `once` reads the address from this variable.
    let tick = || db.jobctl(["tick"]).env("DATABASE_URL", &db.url()).run().success();
    tick();
    assert_eq!(db.status(id), "succeeded");

    // The command prints which effects it does not repeat.
    let retry = |args: &[&str]| db.jobctl(["retry", "--again"]).args(args.iter().copied()).run();
    let effects = "jobctl: `once` does not repeat 1 effect of 1 run, such as `invoice:4711`\n";
    let counted = retry(&["--job", "shell", "--dry-run"]).success();
    counted.stdout("queued\t1\n").stderr(effects);
    assert_eq!(db.status(id), "succeeded");
    retry(&[&id.to_string()]).success().stderr(effects);
    assert_eq!(
        db.of_run(id, "status, attempts, max_attempts, idempotency_key, finished_at"),
        "queued|1|2|4711|"
    );
    assert_eq!(db.query("SELECT detail FROM jobctl.job_events"), "was succeeded");

    // The second attempt repeats the command, except the effect.
    tick();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|2");
    assert_eq!(fs::read_to_string(&file).unwrap(), "sent\nran\nran\n");
}

#[test]
fn again_takes_the_runs_that_match_the_filters() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    let retry = |args: &[&str]| db.jobctl(["retry", "--again"]).args(args.iter().copied()).run();
    let ids = STATUSES.map(|status| enqueue_in_status(&db, status));
    retry(&["--job", "shell"]).exits(2).stdout("").stderr_has("--yes");
    retry(&["--job", "shell", "--since", "1h", "--yes"]).success().stdout("queued\t1\n").stderr("");
    // Only the run that succeeded is retried.
    for (id, before) in ids.into_iter().zip(STATUSES) {
        let expected = if before == "succeeded" { "queued" } else { before };
        assert_eq!(db.status(id), expected);
    }
}

#[test]
fn again_needs_ids_or_filters_and_excludes_other_flags() {
    let db = TestDb::new();
    let retry = |args: &[&str]| db.jobctl(["retry", "--again"]).args(args.iter().copied()).run();
    retry(&[]).exits(2).stdout("").stderr_has("required arguments were not provided");
    retry(&["--all-dead", "--yes"]).exits(2).stderr_has("cannot be used with");
    retry(&["--job", "shell", "--force", "--yes"]).exits(2).stderr_has("--force needs run ids");
}

#[test]
fn again_with_ids_takes_all_runs_except_running_ones_which_need_force() {
    let db = TestDb::new();
    let ids = STATUSES.map(|status| enqueue_in_status(&db, status).to_string());
    let retry = || db.jobctl(["retry", "--again"]).args(ids.iter().map(String::as_str));
    retry().run().exits(4).stderr_has("its status is running; --force retries it\n");
    retry().args(["--force"]).run().success();
    assert!(ids.iter().all(|id| db.status(id.parse().unwrap()) == "queued"));
}

#[test]
fn of_runs_that_succeeded_with_one_key_the_newest_gets_it_back() {
    let db = TestDb::new();
    let enqueue = ["--key", "k", "--key-scope", "live", "shell", "--", "true"];
    let [older, newest] = [(); 2].map(|()| {
        let id = db.enqueue(enqueue);
        // When the run succeeds, the live key is free for the next one.
        db.jobctl(["tick", "--quiet"]).run().success();
        id
    });
    let retried = db.jobctl(["retry", "--again", "--key", "k", "--yes", "--verbose"]).run();
    retried.exits(4).stdout(&format!("{newest}\tqueued\n")).stderr(&format!(
        "jobctl: cannot retry run {older}: another unfinished run has its key; cancel that run \
         first\n"
    ));
}
