//! The database's clock was ahead and was corrected: the rows have times that no rule can have
//! written. None of them stops work for as long as the clock was ahead.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Gate, TestDb, temp_dir};

/// Moves times of a table into the future, as a clock that is two days ahead writes them.
fn move_two_days_ahead(db: &TestDb, table: &str, columns: &[&str]) {
    let moved = columns.iter().map(|column| format!("{column} = {column} + interval '2 days'"));
    let moved: Vec<_> = moved.collect();
    db.execute(&format!("UPDATE jobctl.{table} SET {}", moved.join(", ")));
}

/// Inserts a run that a crashed worker has left. The times are relative to now.
fn insert_lost_run(db: &TestDb, started_at: &str, locked_until: &str) -> i64 {
    let id = db.enqueue(["shell", "--", "true"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'dead',
             started_at = now() + interval '{started_at}',
             locked_until = now() + interval '{locked_until}'
         WHERE id = {id}"
    ));
    id
}

#[test]
fn a_rate_that_a_clock_two_days_ahead_used_up_begins_again() {
    let db = TestDb::new();
    db.apply("[jobs.mail]\nshell = 'true'\nrate = '2/1d'\n");
    let [.., last] = [(); 5].map(|()| db.enqueue(["mail"]));
    let sent = || db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded'");
    for _ in 0..2 {
        db.jobctl(["tick"]).run().success().prints_nowhere("begins again");
        assert_eq!(sent(), "2", "the rate allows two runs a day");
    }
    // The rate allows a run each 12 hours, after two at once. No rule uses it up for two days, so
    // the next tick begins it again.
    move_two_days_ahead(&db, "job_definitions", &["rate_next_at"]);
    db.jobctl(["show", &last.to_string()]).run().success().stdout_has("used up for another 12h");
    let tick = db.jobctl(["tick"]).run().success();
    tick.stderr_has(
        "jobctl: the rates of these jobs begin again, because the database's clock was ahead: \
         mail\n",
    );
    assert_eq!(sent(), "4");
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(sent(), "4");
}

#[test]
fn a_lease_lasts_no_longer_than_a_tick_may_ask_for() {
    let db = TestDb::new();
    // A lease may last a day. The first ends later, the second also began in the future, and the
    // third is allowed.
    let too_long = insert_lost_run(&db, "-1 hour", "2 days");
    let ahead = insert_lost_run(&db, "2 days", "2 days 2 minutes");
    let usual = insert_lost_run(&db, "-1 hour", "1 day");
    let hours = "round(extract(epoch FROM locked_until - now()) / 3600)";
    let mut tick = db.jobctl(["tick"]).run().success();
    for (id, ends_in) in [(too_long, "1d"), (ahead, "2m")] {
        tick = tick.stderr_has(&format!(
            "run {id}: its lease now ends in {ends_in}, because its old end came from a clock of \
             the database that was ahead; if its worker is gone: `jobctl retry --force {id}`\n"
        ));
    }
    assert_eq!(tick.stderr.lines().count(), 2, "{tick}");
    let ends = [too_long, ahead, usual].map(|id| db.of_run(id, hours));
    assert_eq!(ends, ["24", "0", "24"]);
    db.jobctl(["tick"]).run().success().stderr("");
    db.expire_leases();
    db.jobctl(["tick"]).run().success();
    for id in [too_long, ahead, usual] {
        assert_eq!(db.of_run(id, "status, error_type"), "failed|lease_expired");
    }
}

#[test]
fn a_lease_in_job_locked_runs_lasts_no_longer_than_a_tick_may_ask_for() {
    let db = TestDb::new();
    let id = insert_lost_run(&db, "-1 hour", "-1 minute");
    db.allow_running_runs_at_end();
    // A worker renews a lease there while another session locks the run's row.
    db.execute(
        "INSERT INTO jobctl.job_locked_runs (run_id, attempt, worker, started_at, locked_until)
         SELECT id, 1, 'dead', started_at, now() + interval '2 days' FROM jobctl.job_runs",
    );
    db.jobctl(["tick"]).run().success().stderr_has("its lease now ends in 1d");
    let is_bounded = "SELECT locked_until <= now() + interval '1 day' FROM jobctl.leases";
    assert_eq!(db.status(id), "running");
    assert_eq!(db.query(is_bounded), "t");
}

#[test]
fn a_corrected_clock_takes_no_run_from_a_worker_that_runs_it() {
    let (db, gate) = (TestDb::new(), Gate::new());
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--lease", "3s"]).spawn();
    gate.wait_for_starts(1);
    // Each time, the tick of another worker shortens the lease, but does not take the run.
    for _ in 0..3 {
        move_two_days_ahead(&db, "job_runs", &["locked_until"]);
        db.jobctl(["tick", "--worker", "other"]).run().success();
    }
    db.wait_for_renewals(id, 1);
    gate.open();
    tick.wait().success();
    assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
}

#[test]
fn a_claim_right_from_the_future_stops_no_worker() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]);
    // The first tick of a worker inserts its row.
    db.jobctl(["tick", "--limit", "1", "--queue", "none", "--worker", "web1"]).run().success();
    // A claim right lasts for less than ten minutes, so only one of these times is possible.
    let has_right = "UPDATE jobctl.job_workers
        SET claiming_tick = 'other', claiming_until = now() + interval";
    db.execute(&format!("{has_right} '9 minutes'"));
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    assert_eq!(db.status(id), "queued");
    db.jobctl(["forget", "web1"]).run().exits(4);
    db.execute(&format!("{has_right} '2 days'"));
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    assert_eq!(db.status(id), "succeeded");
    db.execute(&format!("{has_right} '2 days'"));
    db.jobctl(["forget", "web1"]).run().success();
}

#[test]
fn a_worker_whose_last_tick_has_a_future_time_counts_as_silent() {
    let db = TestDb::new();
    db.enqueue(["shell", "--", "true"]);
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    db.execute("UPDATE jobctl.job_workers SET slow_at = now(), slow_since = now()");
    // With true times, the worker ticks and the database is slow.
    db.jobctl(["doctor"])
        .run()
        .prints_nowhere("no worker ticks")
        .stdout_has("the database is slow");
    move_two_days_ahead(&db, "job_workers", &["last_tick_at", "ticking_since", "slow_at"]);
    let doctor = db.jobctl(["doctor"]).run().exits(1);
    doctor.stdout_has("no worker ticks").prints_nowhere("the database is slow");
    db.jobctl(["report"]).run().success().stdout_has("0 of 1");
    // A claim right until the day after tomorrow does not count as a tick either.
    let ahead = "SET claiming_tick = 'x', claiming_until = now() + interval '2 days'";
    db.execute(&format!("UPDATE jobctl.job_workers {ahead}"));
    db.jobctl(["check"]).run().exits(1).stdout_has("no worker ticks");
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    db.jobctl(["check"]).run().success().stdout("");
    assert_eq!(db.query("SELECT ticking_since <= now() FROM jobctl.job_workers"), "t");
}

#[test]
fn a_schedule_is_put_off_for_an_hour_at_most() {
    let db = TestDb::new();
    db.apply("[jobs.hourly]\nshell = 'true'\nschedule = '0 * * * *'\n");
    // Puts off the due schedule until then. Returns how many runs a tick enqueues.
    let put_off = |time: &str| {
        db.execute(&format!(
            "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('hour', now()),
                 put_off_until = now() + interval '{time}'"
        ));
        db.jobctl(["tick"]).run().success();
        db.query("SELECT count(*) FROM jobctl.job_runs")
    };
    assert_eq!(put_off("1 hour"), "0");
    // Ticks put off a schedule for an hour at most, so this time is ignored.
    assert_eq!(put_off("2 days"), "1");
}

#[test]
fn a_hold_from_the_future_ends_if_a_run_made_it_and_is_reported_if_a_person_did() {
    let db = TestDb::new();
    // A run that snoozes its job: it holds the job until its own next attempt.
    let holder = db.enqueue(["shell", "--", "true"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET run_at = now() + interval '1 hour';
         INSERT INTO jobctl.job_holds (scope, name, held_until, run_id)
         VALUES ('job', 'shell', now() + interval '1 hour', {holder})"
    ));
    let id = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(id), "queued");
    move_two_days_ahead(&db, "job_holds", &["held_at", "held_until"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET run_at = run_at + interval '2 days' WHERE id = {holder}"
    ));
    // A person's hold, with true times.
    db.jobctl(["hold", "--queue", "mail", "--for", "1h"]).run().success();
    db.jobctl(["check"]).run().prints_nowhere("held");
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(id), "succeeded");
    // Now the person's hold is in the future, too. It stays, but `check` reports it.
    db.execute("DELETE FROM jobctl.job_holds WHERE run_id IS NOT NULL");
    move_two_days_ahead(&db, "job_holds", &["held_at", "held_until"]);
    let check = db.jobctl(["check"]).run().exits(1);
    check.stdout_has("queue mail is held").stdout_has("clock was ahead when it began");
    let held = db.enqueue(["shell", "--queue", "mail", "--", "true"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(held), "queued");
}

#[test]
fn check_names_waiting_runs_that_got_their_time_from_a_clock_that_was_ahead() {
    let db = TestDb::new();
    db.jobctl(["tick"]).run().success();
    let id = db.enqueue_script("exit 1");
    let later = db.enqueue(["shell", "--in", "1h", "--", "true"]);
    db.jobctl(["tick"]).run().success();
    db.jobctl(["check"]).run().success().stdout("");
    // The clock was ahead when the first run failed.
    db.execute(&format!(
        "UPDATE jobctl.job_runs
         SET run_at = run_at + interval '2 days', failed_at = failed_at + interval '2 days',
             updated_at = updated_at + interval '2 days'
         WHERE id = {id}"
    ));
    let check = db.jobctl(["check"]).run().exits(1);
    check
        .stdout_has("the database's clock was ahead when 1 waiting run of shell got its time")
        .stdout_has(&format!("`jobctl retry {id}` makes it due now"));
    // It was ahead when both runs were enqueued.
    move_two_days_ahead(&db, "job_runs", &["created_at", "updated_at"]);
    let check = db.jobctl(["check"]).run().exits(1);
    check.stdout_has("when 2 waiting runs of shell got their time");
    // These commands give the runs a new time.
    db.jobctl(["retry", &id.to_string()]).run().success();
    db.jobctl(["edit", &later.to_string(), "--in", "1h"]).run().success();
    db.jobctl(["check"]).run().prints_nowhere("clock was ahead");
}

#[test]
fn check_applies_max_age_to_a_job_whose_definition_has_a_future_time() {
    let db = TestDb::new();
    db.apply("[jobs.backup]\nshell = 'true'\nmax_age = '1h'\n");
    db.jobctl(["tick"]).run().success();
    db.jobctl(["check"]).run().success().stdout("");
    // The job has never succeeded, so max_age counts from the definition's creation.
    move_two_days_ahead(&db, "job_definitions", &["created_at"]);
    db.jobctl(["check"]).run().exits(1).stdout_has("backup has not succeeded within 1h");
}

#[test]
fn a_success_dated_in_the_future_does_not_count_for_max_age() {
    let db = TestDb::new();
    db.apply("[jobs.backup]\nshell = 'true'\nmax_age = '1h'\n");
    db.enqueue(["backup"]);
    db.jobctl(["tick"]).run().success();
    // Without a success, max_age counts from the definition's creation. That is too old to help.
    db.execute("UPDATE jobctl.job_definitions SET created_at = now() - interval '1 day'");
    db.jobctl(["check"]).run().success().stdout("");
    move_two_days_ahead(&db, "job_figures", &["last_succeeded_at"]);
    db.jobctl(["check"]).run().exits(1).stdout_has("backup has not succeeded within 1h");
}

#[test]
fn known_problems_are_repeated_although_the_last_report_is_in_the_future() {
    let (db, state) = (TestDb::new(), temp_dir());
    let check = || {
        let check = db.jobctl(["check", "--repeat", "1h"]);
        check.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run().exits(1)
    };
    check().stdout_has("no worker has ever ticked");
    check().stdout("");
    // `check` remembers in this file what it has reported, and when.
    let mut notes = fs::read_dir(state.path().join("jobctl")).unwrap();
    let note = notes.next().unwrap().unwrap().path();
    let mut remembered: Value = serde_json::from_slice(&fs::read(&note).unwrap()).unwrap();
    remembered["reported_at"] = json!("9000-01-01T00:00:00Z");
    fs::write(&note, remembered.to_string()).unwrap();
    check().stdout_has("no worker has ever ticked");
    check().stdout("");
}

#[test]
fn a_run_or_an_effect_that_began_in_the_future_is_named() {
    let db = TestDb::new();
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    let id = insert_lost_run(&db, "2 days", "1 minute");
    let check = || db.jobctl(["check", "--max-running", "3d"]);
    check().run().exits(1).stdout_has(&format!("run {id} of shell is still running on dead"));
    let long = "SELECT id, run_time_seconds FROM jobctl.long_running_runs";
    assert_eq!(db.query(long), format!("{id}|0"));
    // Up to a minute in the future, a time counts as now.
    db.execute("UPDATE jobctl.job_runs SET started_at = now() + interval '30 seconds'");
    check().run().success();
    db.allow_running_runs_at_end();
    db.execute(
        "INSERT INTO jobctl.job_effects (key, recorded_at) VALUES ('k', now() + interval '2 days')",
    );
    db.jobctl(["doctor"]).run().stdout_has("1 effect began and did not complete");
}

#[test]
fn a_run_time_is_never_negative() {
    let db = TestDb::new();
    // One run that has ended and one that is running, whose starts are in the future.
    let ended = db.enqueue(["shell", "--", "true"]).to_string();
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    move_two_days_ahead(&db, "job_attempts", &["started_at"]);
    move_two_days_ahead(&db, "job_runs", &["started_at"]);
    let running = insert_lost_run(&db, "2 days", "1 minute").to_string();
    db.allow_running_runs_at_end();
    for words in [
        &["list", "--json"][..],
        &["show", &ended, "--json"],
        &["show", &running, "--json"],
        &["status", "--json"],
        &["status", "--prometheus"],
        &["list", "--format", "table"],
        &["status", "--format", "table"],
        &["report"],
    ] {
        let shown = db.jobctl(words.iter().copied()).run().success();
        let mut numbers = shown.stdout.split([' ', ':', ',', '\n', '>', '"']);
        let is_negative = |text: &str| {
            text.starts_with('-') && text.parse::<f64>().is_ok_and(|number| number < -1.0)
        };
        assert!(!numbers.any(is_negative), "{words:?}: {shown}");
    }
    let listed = db.jobctl(["list", "--json"]).run().success().stdout;
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    assert!(listed.iter().all(|run| run["run_time_seconds"] == json!(0.0)), "{listed:?}");
}

#[test]
fn a_load_test_with_a_future_time_counts_as_killed() {
    let db = TestDb::new();
    let load = || db.jobctl(["load", "--runs", "1"]).run();
    // A load test that still runs has stored this definition.
    db.execute(
        r#"INSERT INTO jobctl.job_definitions (name, kind, action, queue)
           VALUES ('jobctl-load', 'shell', '{"command": ["true"]}', 'jobctl-load')"#,
    );
    load().exits(5);
    move_two_days_ahead(&db, "job_definitions", &["updated_at"]);
    load().success();
}
