//! Attempts that do not use up `max_attempts`: a shutdown interrupted them, or they asked to be
//! made later.

use rustix::process::Signal;

use crate::support::http_server::HttpServer;
use crate::support::{TestDb, temp_dir, wait_until};

const STATUS_ATTEMPTS_UNCOUNTED_MAX: &str = "status, attempts, uncounted_attempts, max_attempts";

/// What `check` finds.
const REPORTED: &str = "1 waiting run of shell asked for a later attempt at least ten times";

#[test]
fn interruptions_by_a_shutdown_do_not_use_up_attempts() {
    let db = TestDb::new();
    // Lasts until its tick is stopped. Once the file `done` exists, it fails.
    let command = "test -e done && exit 3; echo x >>starts; exec sleep 600";
    let folder = temp_dir();
    let starts = folder.path().join("starts");
    let starts = || std::fs::read_to_string(&starts).map_or(0, |text| text.lines().count());
    let id = db.enqueue(["shell", "--max-attempts", "2", "--", "sh", "-c", command]);
    let tick = || db.jobctl(["tick", "--grace", "0s"]).current_dir(folder.path());
    for attempt in 1..=4 {
        let tick = tick().spawn();
        // A signal before the claim's answer would release the run instead.
        wait_until("the command to run", || starts() == attempt);
        tick.signal(Signal::TERM);
        tick.wait().success().stderr_has("interrupted after ").stderr_has(", queued again\n");
        assert_eq!(
            db.of_run(id, STATUS_ATTEMPTS_UNCOUNTED_MAX),
            format!("queued|{attempt}|{attempt}|2")
        );
    }
    // Commands show 4 attempts of 6: the 2 of `max_attempts` and the 4 that do not count.
    let listed = db.jobctl(["list", "--format", "table"]).run().success();
    listed.stdout_has(" 4/6 ");

    // Failed attempts count, so the second failure is the last attempt.
    std::fs::write(folder.path().join("done"), "").unwrap();
    tick().run().success().stderr_has("attempt 5/6: exit status 3");
    assert_eq!(db.of_run(id, STATUS_ATTEMPTS_UNCOUNTED_MAX), "failed|5|4|2");
    db.make_waiting_runs_due();
    tick().run().success();
    assert_eq!(db.of_run(id, STATUS_ATTEMPTS_UNCOUNTED_MAX), "dead|6|4|2");
    let run = id.to_string();
    db.jobctl(["show", &run]).run().success().stdout_has("attempt 6 of 6 was the last");

    // An edit can't set `max_attempts` to the attempts that are used up. A retry grants two more.
    db.jobctl(["edit", &run, "--max-attempts", "2"]).run().exits(4);
    db.jobctl(["retry", &run]).run().success();
    assert_eq!(db.of_run(id, STATUS_ATTEMPTS_UNCOUNTED_MAX), "queued|6|4|4");
}

#[test]
fn a_run_that_asks_for_a_later_attempt_more_than_a_hundred_times_ends_dead() {
    let db = TestDb::new();
    let snooze = db.enqueue(["shell", "--max-attempts", "1", "--", "sh", "-c", "exit 75"]);
    // As if 99 attempts had been snoozed. The hundredth snooze is the last that does not count.
    db.execute_without_triggers(
        "UPDATE jobctl.job_runs SET attempts = 99, uncounted_attempts = 99, snoozed_attempts = 99",
    );
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(snooze, STATUS_ATTEMPTS_UNCOUNTED_MAX), "queued|100|100|1");
    db.make_waiting_runs_due();
    db.jobctl(["tick"]).run().success().stderr_has("attempt 101/101: exit status 75 after ");
    assert_eq!(db.of_run(snooze, STATUS_ATTEMPTS_UNCOUNTED_MAX), "dead|101|100|1");
    assert_eq!(db.of_run(snooze, "last_error, finished_at IS NOT NULL"), "exit status 75|t");
    assert_eq!(db.query("SELECT dead FROM jobctl.daily_figures"), "1");
}

#[test]
fn exit_status_75_and_a_retry_after_line_put_a_run_off_without_a_failure() {
    let db = TestDb::new();
    let script = "echo busy; echo retry-after: 10m; exit 75";
    let id = db.enqueue(["shell", "--max-attempts", "1", "--", "sh", "-c", script]);
    let tick = db.jobctl(["tick"]).run().success();
    tick.stderr_has("attempt 1/1: exit status 75 after ").stderr_has(", snoozed for 10m\n");
    assert_eq!(db.of_run(id, STATUS_ATTEMPTS_UNCOUNTED_MAX), "queued|1|1|1");
    assert_eq!(db.of_run(id, "run_at - updated_at"), "00:10:00");
    assert_eq!(db.of_attempt(id, 1, "outcome, error, exit_code"), "snoozed|exit status 75|75");

    // A snooze does not count as a failure.
    db.jobctl(["failures"]).run().success().stdout("");
    assert_eq!(db.query("SELECT failed_attempts FROM jobctl.daily_figures"), "0");
    db.jobctl(["show", &id.to_string()]).run().success().stdout_has("snoozed");

    // A retry by an operator makes the run due before the ten minutes are over.
    db.jobctl(["retry", &id.to_string()]).run().success();
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, STATUS_ATTEMPTS_UNCOUNTED_MAX), "queued|2|2|1");
}

#[test]
fn check_reports_a_run_that_asked_for_a_later_attempt_ten_times() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "sh", "-c", "echo retry-after: 1h; exit 75"]);
    db.jobctl(["tick"]).run().success();
    let check = || db.jobctl(["check"]).run();
    // After one request for a later attempt, `check` reports nothing.
    check().success();
    // The next attempt is the tenth.
    db.execute_without_triggers(
        "UPDATE jobctl.job_runs SET attempts = 9, uncounted_attempts = 9, snoozed_attempts = 9",
    );
    db.make_waiting_runs_due();
    db.jobctl(["tick"]).run().success();
    check().exits(1).stdout_has(&format!("{REPORTED} (such as run {id})"));
}

#[test]
fn a_retry_after_of_a_server_puts_a_call_off_and_does_not_count_the_attempt() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let call = |path: &str| {
        let payload = format!("{{\"url\": \"{}\"}}", server.url(path));
        db.enqueue(["http", "--max-attempts", "1", &payload])
    };
    let in_two_hours =
        ["429", "503"].map(|status| call(&format!("/status/{status}?retry-after=7200")));
    let at_once = ["0", "Wed,%2021%20Oct%202015%2007:28:00%20GMT"]
        .map(|time| call(&format!("/status/429?retry-after={time}")));
    let without_retry_after = call("/status/503");
    db.jobctl(["tick"]).run().success();
    for id in in_two_hours {
        assert_eq!(db.of_run(id, STATUS_ATTEMPTS_UNCOUNTED_MAX), "queued|1|1|1");
        assert_eq!(db.of_run(id, "run_at - updated_at"), "02:00:00");
        assert_eq!(db.of_attempt(id, 1, "outcome"), "snoozed");
    }
    // A time that has passed does not count the attempt either, but the run waits for its backoff.
    for id in at_once {
        assert_eq!(db.of_run(id, STATUS_ATTEMPTS_UNCOUNTED_MAX), "queued|1|1|1");
        let after_backoff = "run_at > updated_at + interval '30 seconds'";
        assert_eq!(db.of_run(id, after_backoff), "t");
    }
    let counted = db.of_run(without_retry_after, STATUS_ATTEMPTS_UNCOUNTED_MAX);
    assert_eq!(counted, "dead|1|0|1");
}

#[test]
fn snooze_exit_codes_says_which_exit_statuses_put_a_run_off() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'exit 3'\nsnooze_exit_codes = [3]\nmax_attempts = 1\n\
         [jobs.b]\nshell = 'exit 75'\nsnooze_exit_codes = []\nmax_attempts = 1\n",
    );
    let [a, b] = ["a", "b"].map(|job| db.enqueue([job]));
    db.jobctl(["tick"]).run().success();
    assert_eq!([a, b].map(|id| db.status(id)), ["queued", "dead"]);
    // Exit status 0 is a success.
    let file = "[jobs.a]\nshell = 'x'\nsnooze_exit_codes = [0]\n";
    let apply = db.jobctl(["apply", "-", "--yes"]).stdin(file).run().exits(2);
    apply.stderr_has("`snooze_exit_codes` must hold exit statuses from 1 to 255");
}

/// A provider that says "later" to one run would say so to the others.
#[test]
fn a_snooze_holds_its_job_and_says_why() {
    let db = TestDb::new();
    let server = HttpServer::start();
    db.apply(&format!(
        "[jobs.pay]\nhttp = {{ url = '{}' }}\nsnooze = 'job'\n\
         [jobs.mail]\nshell = 'exit 75'\nbackoff = 'fixed:1h'\n",
        server.url("/status/429?retry-after=7200")
    ));
    let snoozed = db.enqueue(["pay"]);
    // This run asks for a later attempt, too, but without `snooze` its job is not held.
    db.enqueue(["mail"]);
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    let hold = "SELECT scope, name, held_until = run_at, host_user, reason
        FROM jobctl.job_holds, jobctl.job_runs WHERE job_type = 'pay'";
    let expected = format!("job|pay|t|web1|run {snoozed} asked for a later attempt");
    assert_eq!(db.query(hold), expected);

    // The new runs are due: only a hold can keep them waiting.
    let [held, free] = ["pay", "mail"].map(|job| db.enqueue([job]));
    db.jobctl(["tick"]).run().success();
    assert_eq!([held, free].map(|id| db.of_run(id, "attempts")), ["0", "1"]);

    // `show` and `status` say why the job waits. The report does not call it stopped by a person.
    let shown = db.jobctl(["show", &held.to_string()]).run().success().stdout;
    assert!(shown.contains("held by web1 for "), "{shown}");
    assert!(shown.contains(&format!(": run {snoozed} asked for a later attempt")), "{shown}");
    db.jobctl(["status", "--format", "table"])
        .run()
        .success()
        .stdout_has(&format!("job pay waits, because run {snoozed} asked for a later attempt"));
    let page = db.jobctl(["report"]).run().success().stdout;
    assert!(page.contains("All well.") && !page.contains("Stopped on purpose"), "{page}");
}

/// Returns a database in which a run of `pay` has asked for an attempt in 2 hours, so that its job
/// is held, and that run.
fn db_with_snoozed_run() -> (TestDb, i64) {
    let db = TestDb::new();
    let script = "echo retry-after: 2h; exit 75";
    db.apply(&format!("[jobs.pay]\nshell = '{script}'\nsnooze = 'job'\n"));
    let snoozed = db.enqueue(["pay"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(holds_in_force(&db), "1");
    (db, snoozed)
}

fn holds_in_force(db: &TestDb) -> String {
    db.query("SELECT count(*) FROM jobctl.current_holds")
}

/// Moves the end of each hold into the past, and makes all waiting runs due.
fn expire_holds_and_make_runs_due(db: &TestDb) {
    db.execute("UPDATE jobctl.job_holds SET held_until = now() - interval '1 s'");
    db.make_waiting_runs_due();
    assert_eq!(holds_in_force(db), "0");
}

#[test]
fn a_hold_by_a_snooze_ends_if_a_person_changes_the_time_of_its_run_or_cancels_it() {
    let (db, snoozed) = db_with_snoozed_run();
    // The hold is in force while its run waits until the end of the hold.
    let restore_run = format!(
        "UPDATE jobctl.job_runs SET status = 'queued', finished_at = NULL, run_at = held_until
         FROM jobctl.job_holds WHERE job_runs.id = {snoozed}"
    );
    for command in [&["edit", "--in", "2h"][..], &["cancel"], &["retry"]] {
        db.jobctl(command.iter().copied()).args([snoozed.to_string().as_str()]).run().success();
        assert_eq!(holds_in_force(&db), "0", "{command:?}");
        db.execute(&restore_run);
        assert_eq!(holds_in_force(&db), "1", "{command:?}");
    }
}

#[test]
fn a_hold_by_a_snooze_stays_if_a_person_changes_only_other_values_of_its_run() {
    let (db, snoozed) = db_with_snoozed_run();
    db.jobctl(["edit", &snoozed.to_string(), "--max-attempts", "20"]).run().success();
    assert_eq!(holds_in_force(&db), "1");
}

#[test]
fn the_next_snooze_replaces_a_hold_that_has_run_out() {
    let (db, snoozed) = db_with_snoozed_run();
    expire_holds_and_make_runs_due(&db);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(snoozed, "snoozed_attempts"), "2");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_holds"), "1");
    assert_eq!(holds_in_force(&db), "1");
}

#[test]
fn a_person_can_hold_a_job_whose_hold_by_a_snooze_has_run_out() {
    // The snooze of one run holds its whole job, `pay`. This hold runs out.
    let (db, snoozed) = db_with_snoozed_run();
    expire_holds_and_make_runs_due(&db);
    db.jobctl(["hold", "--job", "pay", "--for", "3h"]).run().success();
    // Without the person's hold, the tick would start both runs.
    let new = db.enqueue(["pay"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(snoozed, "attempts"), "1", "only the attempt that snoozed");
    assert_eq!(db.of_run(new, "attempts"), "0");
    assert_eq!(holds_in_force(&db), "1");
}

#[test]
fn apply_refuses_an_unknown_snooze() {
    let db = TestDb::new();
    let definitions = "[jobs.a]\nshell = 'x'\nsnooze = 'queue'\n";
    let apply = db.jobctl(["apply", "-", "--yes"]).stdin(definitions).run().exits(2);
    apply.stderr_has("`snooze`").stderr_has("run, job");
}

#[test]
fn a_retry_cancel_or_edit_that_waited_for_a_snooze_to_commit_ends_its_hold() {
    let db = TestDb::new();
    db.apply("[jobs.pay]\nshell = 'exit 75'\nsnooze = 'job'\n");
    for command in [&["retry"][..], &["cancel"], &["edit", "--in", "2h"]] {
        let run = db.enqueue(["pay"]);
        let mut client = db.client();
        let mut transaction = client.transaction().unwrap();
        // Make the changes of a tick that records a snooze, and do not commit them yet.
        transaction
            .batch_execute(&format!(
                "UPDATE jobctl.job_runs SET run_at = now() + interval '1 hour' WHERE id = {run};
             INSERT INTO jobctl.job_holds (scope, name, held_until, run_id)
             VALUES ('job', 'pay', now() + interval '1 hour', {run})"
            ))
            .unwrap();
        let id = run.to_string();
        let running = db.jobctl(command.iter().copied().chain([id.as_str()])).spawn();
        wait_until("the command to wait for the row", || db.sessions_waiting_for_locks() == 1);
        transaction.commit().unwrap();
        running.wait().success();
        assert_eq!(holds_in_force(&db), "0");
    }
}

#[test]
fn a_job_has_one_hold_by_snoozes_until_the_latest_time() {
    let db = TestDb::new();
    // The payload is the time after which the run asks for its next attempt.
    db.apply(
        "[jobs.pay]\nshell = 'echo retry-after: $(tr -dc a-z0-9); exit 75'\nsnooze = 'job'\n\
         backoff = 'fixed:1s'\nmax_lag = '1h'\n",
    );
    let hold = || {
        db.query(
            "SELECT run_id, round(extract(epoch FROM held_until - now()) / 60), reason
             FROM jobctl.job_holds",
        )
    };
    // One claim starts all three runs, so no hold keeps any of them from starting.
    let [_, longest, _] = ["5m", "9m", "7m"].map(|wait| db.enqueue(["pay", &format!("{wait:?}")]));
    db.jobctl(["tick", "--concurrency", "3"]).run().success();
    assert_eq!(hold(), format!("{longest}|9|run {longest} asked for a later attempt"));

    // A later snooze until a later time replaces the hold.
    let longer = db.enqueue(["pay", "\"12m\""]);
    let release = db.jobctl(["release", "--job", "pay"]).run().success();
    assert_eq!(release.stdout, "job\tpay\treleased\n");
    db.jobctl(["tick"]).run().success();
    assert_eq!(hold(), format!("{longer}|12|run {longer} asked for a later attempt"));
}

#[test]
fn check_reports_overdue_runs_of_a_job_that_a_snooze_holds_but_not_that_a_person_holds() {
    let db = TestDb::new();
    db.apply(
        "[jobs.pay]\nshell = 'echo retry-after: 1h; exit 75'\nsnooze = 'job'\nmax_lag = '1h'\n",
    );
    db.enqueue(["pay"]);
    db.jobctl(["tick"]).run().success();
    // Another run waits for the end of the hold, and has been due for less than `max_lag`.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, run_at)
         VALUES ('pay', now() - interval '50 minutes')",
    );
    db.jobctl(["check"]).run().success();

    // Now the run has been due for longer than `max_lag`, and no person stopped the job.
    db.execute("UPDATE jobctl.job_runs SET run_at = now() - interval '2 hours' WHERE attempts = 0");
    db.jobctl(["check"]).run().exits(1).stdout_has("1 run of pay is overdue");

    // A hold without a run is by a person.
    db.execute("UPDATE jobctl.job_holds SET run_id = NULL");
    db.jobctl(["check"]).run().success();
}

#[test]
fn a_result_does_not_wait_for_a_hold_that_another_session_deletes() {
    let db = TestDb::new();
    db.apply("[jobs.pay]\nshell = 'exit 75'\nsnooze = 'job'\n");
    // An old hold, which the tick would delete when it records the snooze.
    db.execute(
        "INSERT INTO jobctl.job_holds (scope, name, held_until)
         VALUES ('job', 'other', now() - interval '1 day')",
    );
    let mut other = db.client();
    other.batch_execute("BEGIN; DELETE FROM jobctl.job_holds").unwrap();
    let run = db.enqueue(["pay"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(run, "uncounted_attempts"), "1");
    other.batch_execute("ROLLBACK").unwrap();
}

/// A command that fails.
const FAILS: &str = "exit 1";

/// A command that asks for a later attempt: exit status 75 snoozes the run.
const ASKS_FOR_LATER: &str = "exit 75";

/// A command that lasts until its tick is stopped, so its attempt is interrupted.
const IS_INTERRUPTED: &str = "exec sleep 600";

/// Enqueues a run and executes ten attempts of it with the command `ten_times`, and then an attempt
/// with each command of `then`. Returns the run.
fn run_with_ten_attempts_and_then(db: &TestDb, ten_times: &str, then: &[&str]) -> i64 {
    let folder = temp_dir();
    let script = "echo x >>starts; exec sh ./command";
    let run = db.enqueue(["shell", "--backoff", "fixed:1h", "--", "sh", "-c", script]);
    let starts = || {
        let text = std::fs::read_to_string(folder.path().join("starts"));
        text.map_or(0, |text| text.lines().count())
    };
    let commands = [ten_times; 10].into_iter().chain(then.iter().copied());
    for (command, before) in commands.zip(0..) {
        std::fs::write(folder.path().join("command"), command).unwrap();
        db.make_waiting_runs_due();
        let tick = db.jobctl(["tick", "--grace", "0s"]).current_dir(folder.path()).spawn();
        if command == IS_INTERRUPTED {
            wait_until("the command to run", || starts() == before + 1);
            tick.signal(Signal::TERM);
        }
        tick.wait().success();
    }
    assert_eq!(db.of_run(run, "attempts"), (10 + then.len()).to_string());
    run
}

#[test]
fn check_does_not_count_interruptions_as_requests_for_a_later_attempt() {
    for (last, status) in [(FAILS, "failed"), (ASKS_FOR_LATER, "queued")] {
        let db = TestDb::new();
        let run = run_with_ten_attempts_and_then(&db, IS_INTERRUPTED, &[last]);
        assert_eq!(db.status(run), status);
        db.jobctl(["check"]).run().success().stdout("");
    }
}

#[test]
fn check_reports_a_run_that_asked_for_later_ten_times_and_was_then_interrupted() {
    let db = TestDb::new();
    let run = run_with_ten_attempts_and_then(&db, ASKS_FOR_LATER, &[IS_INTERRUPTED]);
    db.jobctl(["check"]).run().exits(1).stdout_has(&format!("{REPORTED} (such as run {run})"));
}

#[test]
fn check_reports_a_run_that_asked_for_later_ten_times_and_then_failed() {
    let db = TestDb::new();
    let run = run_with_ten_attempts_and_then(&db, ASKS_FOR_LATER, &[FAILS]);
    db.jobctl(["check"]).run().exits(1).stdout_has(&format!("{REPORTED} (such as run {run})"));
}

/// Interruptions and snoozes have a limit of 100 each. `uncounted_attempts` has both, and
/// `snoozed_attempts` has the snoozes.
#[test]
fn a_run_that_was_interrupted_a_hundred_times_may_still_be_snoozed() {
    let db = TestDb::new();
    let run = run_with_ten_attempts_and_then(&db, IS_INTERRUPTED, &[]);
    assert_eq!(db.of_run(run, "uncounted_attempts, snoozed_attempts"), "10|0");
    // Go on as if there were a hundred. With one counted attempt, an attempt that is not snoozed
    // ends the run as dead.
    let payload = format!(r#"{{"command": "{ASKS_FOR_LATER}"}}"#);
    db.execute_without_triggers(&format!(
        "UPDATE jobctl.job_runs
         SET attempts = 100, uncounted_attempts = 100, max_attempts = 1, payload = '{payload}'"
    ));
    db.jobctl(["tick"]).run().success().stderr_has("snoozed for ");
    let attempts = "status, attempts, uncounted_attempts, snoozed_attempts";
    assert_eq!(db.of_run(run, attempts), "queued|101|101|1");
}

/// Lets a run hold its job by a snooze, ends that run with `end`, and asserts that the job is not
/// held any more. `keys` are added to the job's definition.
#[track_caller]
fn assert_hold_ends_with_its_run(keys: &str, end: impl FnOnce(&TestDb, i64)) {
    let db = TestDb::new();
    // Only the first run of the database asks for a later attempt.
    db.apply(&format!(
        "[jobs.pay]\nshell = 'test $JOBCTL_RUN_ID != 1 || {{ echo retry-after: 1h; exit 75; }}'\n\
         snooze = 'job'\n{keys}\n"
    ));
    let run = db.enqueue(["pay"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.query("SELECT run_id FROM jobctl.current_holds"), run.to_string());
    end(&db, run);
    let asked = format!("run {run} asked for a later attempt");
    for command in ["doctor", "status", "check"] {
        db.jobctl([command]).run().prints_nowhere(&asked);
    }
    let other = db.enqueue(["pay"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(other), "succeeded");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.current_holds"), "0");
}

#[test]
fn a_run_that_expires_ends_the_hold_of_its_job() {
    assert_hold_ends_with_its_run("", |db, run| {
        db.execute(&format!("UPDATE jobctl.job_runs SET expires_at = now() WHERE id = {run}"));
        db.jobctl(["tick"]).run().success();
        assert_eq!(db.of_run(run, "status, error_type"), "cancelled|expired");
    });
}

#[test]
fn a_run_that_is_dropped_ends_the_hold_of_its_job() {
    let keys = "max_waiting = 1\nwhen_full = 'drop_oldest'";
    assert_hold_ends_with_its_run(keys, |db, run| {
        // There is room for only one waiting run.
        db.enqueue(["pay"]);
        assert_eq!(db.of_run(run, "status, error_type"), "cancelled|dropped");
        db.jobctl(["tick"]).run().success();
    });
}

#[test]
fn a_run_that_is_deleted_ends_the_hold_of_its_job() {
    // An application deletes it.
    assert_hold_ends_with_its_run("", |db, run| {
        db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {run}"));
    });
    // `prune` deletes it.
    assert_hold_ends_with_its_run("", |db, run| {
        db.execute(&format!("UPDATE jobctl.job_runs SET expires_at = now() WHERE id = {run}"));
        db.jobctl(["tick"]).run().success();
        db.execute("UPDATE jobctl.job_runs SET finished_at = now() - interval '1 year'");
        db.jobctl(["prune", &run.to_string()]).run().success();
    });
}
