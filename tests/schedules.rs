//! Fires: once for each nominal time, whoever ticks, and what is made up for.

use crate::support::{TestDb, temp_dir};

/// Every minute, with these further keys.
fn every_minute(db: &TestDb, keys: &str) {
    db.apply(&format!("[jobs.minutely]\nshell = 'true'\nschedule = '* * * * *'\n{keys}\n"));
}

/// So many definitions with this schedule, whose next time is an expression of SQL.
fn many(db: &TestDb, count: usize, schedule: &str, next: &str) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_definitions (name, kind, action, schedule, next_run_at)
         SELECT 'job_' || n, 'shell', '{{\"command\": \"true\"}}', '{schedule}', {next}
         FROM generate_series(1, {count}) AS n"
    ));
}

/// Nobody has ticked for so long.
fn missed(db: &TestDb, time: &str) {
    db.execute(&format!(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now() - interval '{time}')"
    ));
}

fn fired(db: &TestDb) -> String {
    db.query("SELECT count(*) FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL")
}

#[test]
fn a_new_schedule_does_not_fire_at_once() {
    let db = TestDb::new();
    every_minute(&db, "");
    assert_eq!(db.query("SELECT next_run_at > now() FROM jobctl.job_definitions"), "t");
    assert_eq!(db.query("SELECT next_run_at <= now() + interval '1 minute' FROM jobctl.job_definitions"), "t");
}

#[test]
fn a_due_schedule_is_fired_and_its_run_executed_in_the_same_tick() {
    let db = TestDb::new();
    db.apply(
        "[jobs.nightly]\nshell = 'cat; echo $JOBCTL_SCHEDULED_FOR'\nschedule = '0 2 * * *'\npayload = { a = 1 }\n",
    );
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = date_trunc('day', now()) - interval '22 hours'");
    db.jobctl(["tick"]).run().success().stderr_has("schedule nightly: fired, run 1");
    let expected = db.query(
        r#"SELECT '{"a": 1}' || to_char(scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') FROM jobctl.job_runs"#,
    );
    assert_eq!(db.of_attempt(1, 1, "output"), format!("{expected}\n"));
    assert_eq!(db.query("SELECT next_run_at > now() FROM jobctl.job_definitions"), "t");
}

#[test]
fn ten_ticks_at_once_fire_ten_thousand_schedules_once_each() {
    let db = TestDb::new();
    many(&db, 10_000, "0 * * * *", "date_trunc('hour', now())");
    let workers: Vec<_> = (0..10).map(|n| format!("w{n}")).collect();
    let tick = |worker| db.jobctl(["tick", "--quiet", "--queue", "none", "--worker", worker]).spawn();
    let ticks: Vec<_> = workers.iter().map(|worker| tick(worker.as_str())).collect();
    ticks.into_iter().for_each(|tick| drop(tick.wait().success()));
    let counts = "SELECT count(*), count(DISTINCT (definition_id, scheduled_for)), count(DISTINCT definition_id)
        FROM jobctl.job_runs";
    assert_eq!(db.query(counts), "10000|10000|10000");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_definitions WHERE next_run_at > now()"), "10000");
}

#[test]
fn a_schedule_that_somebody_has_locked_holds_up_no_other() {
    let db = TestDb::new();
    many(&db, 600, "0 * * * *", "date_trunc('hour', now())");
    let mut session = db.client();
    // All, the one in the middle of the first that are looked at, none.
    for (locked, runs) in [("true", "0"), ("name = 'job_7'", "599"), ("false", "600")] {
        let mut edit = session.transaction().unwrap();
        edit.execute(&format!("UPDATE jobctl.job_definitions SET priority = 1 WHERE {locked}"), &[]).unwrap();
        db.jobctl(["tick", "--quiet", "--queue", "none"]).run().success().stderr("");
        assert_eq!(fired(&db), runs, "{locked}");
    }
}

#[test]
fn a_time_is_not_fired_again_after_its_history_is_gone() {
    let db = TestDb::new();
    every_minute(&db, "");
    missed(&db, "0");
    db.jobctl(["tick"]).run().success();
    db.execute("DELETE FROM jobctl.job_runs");
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(fired(&db), "0");
}

#[test]
fn what_was_missed_is_made_up_for_as_the_definition_says() {
    for (catch_up, runs) in [("skip", 1), ("one", 1), ("all:5", 5), ("all", 100)] {
        let db = TestDb::new();
        every_minute(&db, &format!("catch_up = '{catch_up}'\noverlap = 'allow'"));
        missed(&db, "3 hours");
        db.jobctl(["tick", "--queue", "none"]).run().success();
        assert_eq!(fired(&db), runs.to_string(), "{catch_up}");
        // The newest, and all others counted; a minute may have passed meanwhile.
        let newest = "SELECT max(scheduled_for) > now() - interval '2 minutes' FROM jobctl.job_runs";
        assert_eq!(db.query(newest), "t", "{catch_up}");
        let skipped = format!("SELECT skipped_fires + {runs} BETWEEN 181 AND 182 FROM jobctl.job_definitions");
        assert_eq!(db.query(&skipped), "t", "{catch_up}");
    }
}

#[test]
fn a_late_time_is_not_made_up_for_with_skip() {
    let db = TestDb::new();
    db.apply("[jobs.yearly]\nshell = 'true'\nschedule = '@yearly'\ncatch_up = 'skip'\n");
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = date_trunc('year', now())");
    db.jobctl(["tick"]).run().success();
    assert_eq!(fired(&db), "0");
    assert_eq!(db.query("SELECT skipped_fires FROM jobctl.job_definitions"), "1");
}

#[test]
fn catching_up_a_year_of_a_thousand_schedules_is_one_tick() {
    let db = TestDb::new();
    many(&db, 1000, "* * * * *", "now() - interval '1 year'");
    db.jobctl(["tick", "--quiet", "--queue", "none"]).run().success();
    assert_eq!(fired(&db), "1000");
}

#[test]
fn more_times_than_a_statement_fires_are_all_fired() {
    let db = TestDb::new();
    many(&db, 12, "@daily", "date_trunc('day', now()) - interval '3 years'");
    db.execute("UPDATE jobctl.job_definitions SET catch_up = 'all:1000', overlap = 'allow'");
    db.jobctl(["tick", "--quiet", "--queue", "none"]).run().success();
    assert_eq!(db.query("SELECT count(*), count(DISTINCT definition_id) FROM jobctl.job_runs"), "12000|12");
}

#[test]
fn a_schedule_whose_runs_can_not_be_stored_stops_no_other() {
    let db = TestDb::new();
    many(&db, 3, "@daily", "date_trunc('day', now())");
    db.execute("ALTER TABLE jobctl.job_runs ADD CONSTRAINT no_job_2 CHECK (job_type <> 'job_2')");
    let id = db.enqueue(["shell", "--", "true"]);
    let tick = db.jobctl(["tick"]).run().success();
    tick.stderr_has("error schedule of `job_2` does not fire: ").stderr_has("no_job_2");
    assert_eq!(
        db.query("SELECT job_type FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL ORDER BY 1"),
        "job_1\njob_3"
    );
    assert_eq!(db.status(id), "succeeded");
    // It is put off, and keeps the time that has come.
    db.jobctl(["tick"]).run().success().stderr("");
    db.execute(
        "ALTER TABLE jobctl.job_runs DROP CONSTRAINT no_job_2; UPDATE jobctl.job_definitions SET put_off_until = now()",
    );
    db.jobctl(["tick"]).run().success().stderr_has("schedule job_2: fired");
}

#[test]
fn a_time_is_not_taken_for_fired_where_somebody_has_chosen_its_runs_id() {
    let db = TestDb::new();
    every_minute(&db, "overlap = 'allow'");
    db.execute(
        "INSERT INTO jobctl.job_runs (id, job_type, status, finished_at) SELECT n, 'shell', 'succeeded', now()
         FROM generate_series(1, 3) AS n",
    );
    missed(&db, "0");
    db.jobctl(["tick", "--queue", "none"]).run().success().stderr_has("run 4");
    assert_eq!(fired(&db), "1");
    assert_eq!(db.query("SELECT skipped_fires FROM jobctl.job_definitions"), "0");
}

#[test]
fn a_file_mends_a_schedule_whose_runs_can_not_be_stored() {
    let db = TestDb::new();
    let job = |max_attempts| format!("[jobs.a]\nshell = 'true'\nschedule = '@daily'\nmax_attempts = {max_attempts}\n");
    db.apply(&job(7));
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('day', now());
         ALTER TABLE jobctl.job_runs ADD CONSTRAINT not_seven CHECK (max_attempts <> 7)",
    );
    let folder = temp_dir();
    std::fs::write(folder.path().join("jobs.toml"), job(8)).unwrap();
    let applied = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run().success();
    applied.stdout("change\ta\tmax_attempts\n").stderr_has("schedule of `a` does not fire");
    db.jobctl(["tick"]).run().success().stderr_has("schedule a: fired");
    assert_eq!(fired(&db), "1");
}

#[test]
fn the_same_file_again_lets_a_schedule_that_was_put_off_fire() {
    let db = TestDb::new();
    let job = "[jobs.a]\nshell = 'true'\nschedule = '@daily'\n";
    db.apply(job);
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('day', now());
         ALTER TABLE jobctl.job_runs ADD CONSTRAINT none CHECK (scheduled_for IS NULL)",
    );
    db.jobctl(["tick"]).run().success().stderr_has("does not fire");
    db.execute("ALTER TABLE jobctl.job_runs DROP CONSTRAINT none");
    assert_eq!(db.apply(job), "");
    db.jobctl(["tick"]).run().success().stderr_has("schedule a: fired");
}

#[test]
fn a_definition_has_no_payload_that_its_runs_can_not_have() {
    let db = TestDb::new();
    many(&db, 1, "@daily", "date_trunc('day', now())");
    let long = "UPDATE jobctl.job_definitions SET payload = to_jsonb(repeat('x', 3000000))";
    let refused = db.client().batch_execute(long).unwrap_err();
    assert_eq!(refused.as_db_error().and_then(|error| error.constraint()), Some("payload_is_bounded"));
}

#[test]
fn a_time_is_skipped_while_the_last_run_is_not_finished() {
    for (overlap, runs) in [("skip", "1"), ("allow", "2"), ("queue", "2")] {
        let db = TestDb::new();
        every_minute(&db, &format!("overlap = '{overlap}'"));
        missed(&db, "0");
        db.jobctl(["tick", "--queue", "none"]).run().success();
        db.execute("UPDATE jobctl.job_runs SET scheduled_for = scheduled_for - interval '1 day'");
        missed(&db, "0");
        let second = db.jobctl(["tick", "--queue", "none"]).run().success();
        assert_eq!(fired(&db), runs, "{overlap}");
        if overlap == "skip" {
            second.stderr_has("not fired, its last run is not finished");
            assert_eq!(db.query("SELECT skipped_fires > 0 FROM jobctl.job_definitions"), "t");
            // It resumes when the run has finished.
            db.jobctl(["tick"]).run().success();
            db.execute("UPDATE jobctl.job_runs SET scheduled_for = scheduled_for - interval '1 day'");
            missed(&db, "0");
            db.jobctl(["tick"]).run().success();
            assert_eq!(fired(&db), "2");
        }
    }
}

#[test]
fn a_broken_schedule_stops_no_other() {
    let db = TestDb::new();
    db.apply(
        "[jobs.broken]\nshell = 'true'\nschedule = '@hourly'\n[jobs.whole]\nshell = 'true'\nschedule = '@hourly'\n",
    );
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('hour', now());
        UPDATE jobctl.job_definitions SET schedule = 'sometimes' WHERE name = 'broken'",
    );
    db.jobctl(["tick"]).run().success().stderr_has("schedule of `broken` does not fire").nowhere("not fired");
    assert_eq!(db.query("SELECT job_type, status FROM jobctl.job_runs"), "whole|succeeded");
    // It is put off, and does not fill the log.
    db.jobctl(["tick"]).run().success().stderr("");
}

#[test]
fn a_time_that_a_broken_schedule_missed_is_fired_when_it_is_mended() {
    let job = |schedule: &str| format!("[jobs.a]\nshell = 'true'\nschedule = '{schedule}'\n");
    for mended_by_file in [false, true] {
        let db = TestDb::new();
        db.apply(&job("@yearly"));
        db.execute("UPDATE jobctl.job_definitions SET schedule = 'sometimes', next_run_at = date_trunc('year', now())");
        db.jobctl(["tick"]).run().success().stderr_has("does not fire");
        if mended_by_file {
            db.apply(&job("@yearly"));
        } else {
            db.execute("UPDATE jobctl.job_definitions SET schedule = '@yearly', put_off_until = now()");
        }
        db.jobctl(["tick"]).run().success();
        assert_eq!(db.query("SELECT scheduled_for = date_trunc('year', now()) FROM jobctl.job_runs"), "t");
        let next = "SELECT next_run_at = date_trunc('year', now()) + interval '1 year', put_off_until FROM jobctl.job_definitions";
        assert_eq!(db.query(next), "t|");
    }
}

#[test]
fn a_definition_that_another_program_inserted_gets_its_first_time_from_the_tick() {
    let db = TestDb::new();
    many(&db, 2, "@yearly", "NULL");
    db.execute("UPDATE jobctl.job_definitions SET paused_at = now() WHERE name = 'job_2'");
    db.jobctl(["tick"]).run().success().stderr("");
    let next = "SELECT name, next_run_at = date_trunc('year', now()) + interval '1 year' FROM jobctl.job_definitions
        ORDER BY name";
    assert_eq!(db.query(next), "job_1|t\njob_2|");
    assert_eq!(fired(&db), "0");
}

#[test]
fn a_schedule_that_never_fires_is_told_and_put_off() {
    let db = TestDb::new();
    many(&db, 1, "0 0 30 2 *", "NULL");
    db.jobctl(["tick"]).run().success().stderr_has("schedule of `job_1` does not fire: `0 0 30 2 *` never fires");
    db.jobctl(["tick"]).run().success().stderr("");
}

#[test]
fn a_schedule_that_is_changed_fires_what_was_due_and_goes_on_from_now() {
    let db = TestDb::new();
    every_minute(&db, "");
    missed(&db, "0");
    db.apply("[jobs.minutely]\nshell = 'true'\nschedule = '@yearly'\n");
    assert_eq!(fired(&db), "1");
    let next = "SELECT next_run_at = date_trunc('year', now()) + interval '1 year' FROM jobctl.job_definitions";
    assert_eq!(db.query(next), "t");
    db.jobctl(["tick"]).run().success();
    assert_eq!(fired(&db), "1");
}

#[test]
fn applying_the_same_file_again_leaves_a_due_time_due() {
    let db = TestDb::new();
    every_minute(&db, "timeout = '1m'");
    let next = "SELECT next_run_at FROM jobctl.job_definitions";
    let before = db.query(next);
    every_minute(&db, "timeout = '2m'");
    assert_eq!(db.query(next), before);
}

#[test]
fn a_spread_delays_a_job_by_its_own_share() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '@hourly'\nspread = '1h'\n[jobs.b]\nshell = 'true'\nschedule = '@hourly'\nspread = '1h'\n",
    );
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = date_trunc('hour', now())");
    db.jobctl(["tick", "--queue", "none"]).run().success();
    let spread = "SELECT count(DISTINCT run_at - scheduled_for), bool_and(run_at - scheduled_for BETWEEN interval '0' AND interval '1 hour')
        FROM jobctl.job_runs";
    assert_eq!(db.query(spread), "2|t");
}
