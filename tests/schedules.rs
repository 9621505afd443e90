//! Schedules: a nominal time fires once for any number of ticks, and missed times are caught up.

use rustix::process::Signal;

use crate::support::{Gate, Proxy, TestDb, jobctl, temp_dir, wait_until};

const STATUSES: [&str; 6] = ["queued", "running", "failed", "succeeded", "dead", "cancelled"];

/// The start of this year, at which a yearly schedule was due.
const NEW_YEAR: &str = "date_trunc('year', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'";

/// The first words of the statement by which a tick reads the due schedules.
const READ_DUE_SCHEDULES: &str = "Finds schedules that may have to fire";

/// Defines a job that fires once a year, so that no test depends on the minute in which it runs.
fn define_yearly_job(db: &TestDb, keys: &str) {
    db.apply(&format!("[jobs.yearly]\nshell = 'true'\nschedule = '@yearly'\n{keys}\n"));
}

/// Inserts definitions, `job_1` and so on. `next`, their next time, is an expression of SQL.
fn insert_definitions(db: &TestDb, count: usize, schedule: &str, next: &str) {
    db.execute(&format!(
        "INSERT INTO jobctl.job_definitions (name, kind, action, schedule, next_run_at)
         SELECT 'job_' || n, 'shell', '{{\"command\": \"true\"}}', '{schedule}', {next}
         FROM generate_series(1, {count}) AS n"
    ));
}

/// Makes the schedules due since `time` ago.
fn make_due_since(db: &TestDb, time: &str) {
    db.execute(&format!(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now() - interval \
         '{time}')"
    ));
}

fn number_of_fired_runs(db: &TestDb) -> String {
    db.query("SELECT count(*) FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL")
}

#[test]
fn a_new_schedule_does_not_fire_at_once() {
    let db = TestDb::new();
    define_yearly_job(&db, "");
    assert_eq!(db.query("SELECT next_run_at > now() FROM jobctl.job_definitions"), "t");
    assert_eq!(
        db.query("SELECT next_run_at <= now() + interval '366 days' FROM jobctl.job_definitions"),
        "t"
    );
}

#[test]
fn a_due_schedule_is_fired_and_its_run_executed_in_the_same_tick() {
    let db = TestDb::new();
    db.apply(
        "[jobs.nightly]\nshell = 'cat; echo $JOBCTL_SCHEDULED_FOR'\nschedule = '0 2 * * \
         *'\npayload = { a = 1 }\n",
    );
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('day', now()) - \
        interval '22 hours'",
    );
    let tick = db.jobctl(["tick"]).run().success();
    let id: i64 = db.query("SELECT id FROM jobctl.job_runs").parse().unwrap();
    tick.stderr_has(&format!("schedule nightly: fired, run {id}"));
    // The job prints its payload and its nominal time.
    let expected = db.query(
        r#"SELECT '{"a": 1}' ||
                  to_char(scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
              FROM jobctl.job_runs"#,
    );
    assert_eq!(db.of_attempt(id, 1, "output"), format!("{expected}\n"));
    assert_eq!(db.query("SELECT next_run_at > now() FROM jobctl.job_definitions"), "t");
}

#[test]
fn a_tick_fires_and_recovers_while_its_own_jobs_run() {
    let (db, gate) = (TestDb::new(), Gate::new());
    let id = gate.enqueue(&db);
    let tick = db.jobctl(["tick", "--linger", "--lease", "3s", "--max-time", "1h"]).spawn();
    gate.wait_for_starts(1);
    // From then on, each wake is sent just before a renewal.
    db.wait_for_renewals(id, 2);
    // A schedule becomes due, and another worker loses a run.
    define_yearly_job(&db, "");
    db.execute(&format!(
        "UPDATE jobctl.job_definitions SET next_run_at = {NEW_YEAR};
         INSERT INTO jobctl.job_runs (job_type, payload, status, attempts, locked_by, locked_until,
             started_at)
         VALUES ('shell', '{{\"command\": \"true\"}}', 'running', 1, 'gone',
             now() - interval '1 second', now())"
    ));
    wait_until("the schedule to fire", || number_of_fired_runs(&db) == "1");
    let lost = "SELECT count(*) FROM jobctl.job_runs WHERE locked_by = 'gone'";
    wait_until("the run to be recovered", || db.query(lost) == "0");
    assert_eq!(db.status(id), "running");
    gate.open();
    db.wait_for_status(id, "succeeded");
    tick.signal(Signal::TERM);
    tick.wait().success();
}

#[test]
fn ten_ticks_at_once_fire_ten_thousand_schedules_once_each() {
    let db = TestDb::new();
    insert_definitions(&db, 10_000, "0 0 1 1 *", NEW_YEAR);
    // Each other schedule allows overlaps, which is another path in the database.
    db.execute(
        "UPDATE jobctl.job_definitions SET overlap = CASE id % 2 WHEN 0 THEN 'allow' ELSE 'skip' \
         END",
    );
    let workers: Vec<_> = (0..10).map(|n| format!("w{n}")).collect();
    // The queue is empty, so that the ticks only fire.
    let tick = |worker| db.tick_that_starts_nothing().args(["--quiet", "--worker", worker]).spawn();
    let ticks: Vec<_> = workers.iter().map(|worker| tick(worker.as_str())).collect();
    ticks.into_iter().for_each(|tick| drop(tick.wait().success()));
    // A wake on a busy machine leaves the rest to the next one.
    let due = "SELECT count(*) FROM jobctl.job_definitions WHERE next_run_at <= now()";
    while db.query(due) != "0" {
        tick("w0").wait().success();
    }
    let counts = format!(
        "SELECT count(*), count(DISTINCT definition_id), bool_and(scheduled_for = {NEW_YEAR})
         FROM jobctl.job_runs"
    );
    assert_eq!(db.query(&counts), "10000|10000|t");
    let definitions =
        "SELECT bool_and(next_run_at > now()), sum(skipped_fires) FROM jobctl.job_definitions";
    assert_eq!(db.query(definitions), "t|0");
}

#[test]
fn a_scheduled_run_is_for_any_worker_whatever_a_null_in_an_array_means() {
    let db = TestDb::new();
    // With this setting, the text `{NULL}` would be an array with the name of a worker.
    db.execute(&format!("ALTER DATABASE {} SET array_nulls = off", db.name()));
    insert_definitions(&db, 1, "0 0 1 1 *", NEW_YEAR);
    db.jobctl(["tick", "--quiet", "--queue", "none"]).run().success();
    assert_eq!(db.query("SELECT count(*), count(worker) FROM jobctl.job_runs"), "1|0");
}

#[test]
fn a_locked_schedule_delays_no_other() {
    let db = TestDb::new();
    insert_definitions(&db, 600, "0 * * * *", "date_trunc('hour', now())");
    let mut session = db.client();
    // A transaction locks all schedules, then one of the first batch, then none.
    for (locked, runs) in [("true", "0"), ("name = 'job_7'", "599"), ("false", "600")] {
        let mut edit = session.transaction().unwrap();
        edit.execute(
            &format!("UPDATE jobctl.job_definitions SET priority = 1 WHERE {locked}"),
            &[],
        )
        .unwrap();
        db.tick_that_starts_nothing().args(["--quiet"]).run().success().stderr("");
        assert_eq!(number_of_fired_runs(&db), runs, "{locked}");
    }
}

#[test]
fn a_time_is_not_fired_again_after_its_run_is_deleted() {
    let db = TestDb::new();
    define_yearly_job(&db, "");
    make_due_since(&db, "0");
    db.jobctl(["tick"]).run().success();
    // `prune`, or an application, has deleted the run.
    db.execute("DELETE FROM jobctl.job_runs");
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(number_of_fired_runs(&db), "0");
}

#[test]
fn catch_up_decides_how_many_missed_times_fire() {
    for (catch_up, runs) in [("skip", 1), ("one", 1), ("all:5", 5), ("all", 100)] {
        let db = TestDb::new();
        db.apply(&format!(
            "[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\ncatch_up = '{catch_up}'\n\
             overlap = 'allow'\n"
        ));
        make_due_since(&db, "3 hours");
        db.tick_that_starts_nothing().run().success();
        assert_eq!(number_of_fired_runs(&db), runs.to_string(), "{catch_up}");
        // The newest times fired.
        let newest =
            "SELECT max(scheduled_for) > now() - interval '2 minutes' FROM jobctl.job_runs";
        assert_eq!(db.query(newest), "t", "{catch_up}");
        // The others were counted: three hours have 181 times, and a minute may have passed since.
        let skipped = format!(
            "SELECT skipped_fires + {runs} BETWEEN 181 AND 182 FROM jobctl.job_definitions"
        );
        assert_eq!(db.query(&skipped), "t", "{catch_up}");
    }
}

#[test]
fn catch_up_skip_fires_no_time_that_is_late() {
    let db = TestDb::new();
    db.apply("[jobs.yearly]\nshell = 'true'\nschedule = '@yearly'\ncatch_up = 'skip'\n");
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = date_trunc('year', now())");
    db.jobctl(["tick"]).run().success();
    assert_eq!(number_of_fired_runs(&db), "0");
    assert_eq!(db.query("SELECT skipped_fires FROM jobctl.job_definitions"), "1");
}

#[test]
fn catching_up_a_year_of_a_thousand_schedules_is_one_tick() {
    let db = TestDb::new();
    insert_definitions(&db, 1000, "* * * * *", "now() - interval '1 year'");
    db.tick_that_starts_nothing().args(["--quiet"]).run().success();
    assert_eq!(number_of_fired_runs(&db), "1000");
}

#[test]
fn more_times_than_a_statement_fires_are_all_fired() {
    let db = TestDb::new();
    insert_definitions(&db, 12, "@daily", "date_trunc('day', now()) - interval '3 years'");
    db.execute("UPDATE jobctl.job_definitions SET catch_up = 'all:1000', overlap = 'allow'");
    db.tick_that_starts_nothing().args(["--quiet"]).run().success();
    assert_eq!(
        db.query("SELECT count(*), count(DISTINCT definition_id) FROM jobctl.job_runs"),
        "12000|12"
    );
}

#[test]
fn a_schedule_whose_runs_cannot_be_stored_stops_no_other() {
    let db = TestDb::new();
    insert_definitions(&db, 3, "@daily", "date_trunc('day', now())");
    db.execute("ALTER TABLE jobctl.job_runs ADD CONSTRAINT no_job_2 CHECK (job_type <> 'job_2')");
    let id = db.enqueue(["shell", "--", "true"]);
    let tick = db.jobctl(["tick"]).run().success();
    tick.stderr_has("error schedule of `job_2` does not fire: ").stderr_has("no_job_2");
    assert_eq!(
        db.query("SELECT job_type FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL ORDER BY 1"),
        "job_1\njob_3"
    );
    assert_eq!(db.status(id), "succeeded");

    // The schedule of `job_2` is put off: the next tick does not try it, and its time is not lost.
    db.jobctl(["tick"]).run().success().stderr("");
    db.execute(
        "ALTER TABLE jobctl.job_runs DROP CONSTRAINT no_job_2; UPDATE jobctl.job_definitions SET \
         put_off_until = now()",
    );
    db.jobctl(["tick"]).run().success().stderr_has("schedule job_2: fired");
}

#[test]
fn a_time_whose_run_id_is_taken_does_not_count_as_fired() {
    let db = TestDb::new();
    define_yearly_job(&db, "overlap = 'allow'");
    // Another program has inserted the runs 1 to 3 with ids of its own, so the first three ids that
    // the sequence yields are taken.
    db.execute(
        "INSERT INTO jobctl.job_runs (id, job_type, status, finished_at)
         SELECT n, 'shell', 'succeeded', now() FROM generate_series(1, 3) AS n",
    );
    make_due_since(&db, "0");
    db.tick_that_starts_nothing().run().success().stderr_has("run 4");
    assert_eq!(number_of_fired_runs(&db), "1");
    assert_eq!(db.query("SELECT skipped_fires FROM jobctl.job_definitions"), "0");
}

#[test]
fn apply_fixes_a_schedule_whose_runs_cannot_be_stored() {
    let db = TestDb::new();
    let job = |max_attempts| {
        format!("[jobs.a]\nshell = 'true'\nschedule = '@daily'\nmax_attempts = {max_attempts}\n")
    };
    db.apply(&job(7));
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('day', now());
         ALTER TABLE jobctl.job_runs ADD CONSTRAINT not_seven CHECK (max_attempts <> 7)",
    );
    let folder = temp_dir();
    // `apply` changes the definition before a tick has tried to fire the schedule.
    std::fs::write(folder.path().join("jobs.toml"), job(8)).unwrap();
    let applied = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run().success();
    applied.stdout_has("change\ta\tmax_attempts\t7\t8\n").stderr("");
    db.jobctl(["tick"]).run().success().stderr_has("schedule a: fired");
    assert_eq!(number_of_fired_runs(&db), "1");
}

#[test]
fn apply_of_the_same_file_lets_a_schedule_that_was_put_off_fire() {
    let db = TestDb::new();
    let job = "[jobs.a]\nshell = 'true'\nschedule = '@daily'\n";
    db.apply(job);
    // The constraint rejects each run of a schedule, so the tick puts the schedule off.
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('day', now());
         ALTER TABLE jobctl.job_runs ADD CONSTRAINT none CHECK (scheduled_for IS NULL)",
    );
    db.jobctl(["tick"]).run().success().stderr_has("does not fire");
    db.execute("ALTER TABLE jobctl.job_runs DROP CONSTRAINT none");
    // Nothing changes in the definition.
    assert_eq!(db.apply(job), "");
    db.jobctl(["tick"]).run().success().stderr_has("schedule a: fired");
}

#[test]
fn a_definition_rejects_a_payload_that_its_runs_would_reject() {
    let db = TestDb::new();
    insert_definitions(&db, 1, "@daily", "date_trunc('day', now())");
    let long = "UPDATE jobctl.job_definitions SET payload = to_jsonb(repeat('x', 3000000))";
    let refused = db.client().batch_execute(long).unwrap_err();
    assert_eq!(
        refused.as_db_error().and_then(|error| error.constraint()),
        Some("payload_is_bounded")
    );
}

#[test]
fn overlap_skip_skips_a_time_while_the_last_run_is_not_finished() {
    for (overlap, runs) in [("skip", "1"), ("allow", "2"), ("queue", "2")] {
        let db = TestDb::new();
        define_yearly_job(&db, &format!("overlap = '{overlap}'"));
        make_due_since(&db, "0");
        db.tick_that_starts_nothing().run().success();
        // The run that waits is for yesterday now, so that today's time can fire.
        db.execute("UPDATE jobctl.job_runs SET scheduled_for = scheduled_for - interval '1 day'");
        make_due_since(&db, "0");
        let second = db.tick_that_starts_nothing().run().success();
        assert_eq!(number_of_fired_runs(&db), runs, "{overlap}");
        if overlap == "skip" {
            second.stderr_has("not fired, its last run is not finished");
            assert_eq!(db.query("SELECT skipped_fires > 0 FROM jobctl.job_definitions"), "t");

            // After a tick has executed the waiting run, the next time fires.
            db.jobctl(["tick"]).run().success();
            db.execute(
                "UPDATE jobctl.job_runs SET scheduled_for = scheduled_for - interval '1 day'",
            );
            make_due_since(&db, "0");
            db.jobctl(["tick"]).run().success();
            assert_eq!(number_of_fired_runs(&db), "2");
        }
    }
}

#[test]
fn a_schedule_with_an_invalid_expression_is_logged_once_and_stops_no_other() {
    let db = TestDb::new();
    db.apply(
        "[jobs.broken]\nshell = 'true'\nschedule = '@hourly'\n\
         [jobs.whole]\nshell = 'true'\nschedule = '@hourly'\n",
    );
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('hour', now());
        UPDATE jobctl.job_definitions SET schedule = 'sometimes' WHERE name = 'broken'",
    );
    db.jobctl(["tick"])
        .run()
        .success()
        .stderr_has("schedule of `broken` does not fire")
        .prints_nowhere("not fired");
    assert_eq!(db.query("SELECT job_type, status FROM jobctl.job_runs"), "whole|succeeded");
    // The broken schedule is put off, so the next tick does not log it again.
    db.jobctl(["tick"]).run().success().stderr("");
}

#[test]
fn a_fixed_schedule_fires_the_time_that_it_missed() {
    let job = |schedule: &str| format!("[jobs.a]\nshell = 'true'\nschedule = '{schedule}'\n");
    // A person fixes the schedule by `apply` or by SQL.
    for fixed_by_file in [false, true] {
        let db = TestDb::new();
        db.apply(&job("@yearly"));
        db.execute(
            "UPDATE jobctl.job_definitions SET schedule = 'sometimes', next_run_at = \
            date_trunc('year', now())",
        );
        // This tick puts the schedule off, with its due time.
        db.jobctl(["tick"]).run().success().stderr_has("does not fire");
        if fixed_by_file {
            db.apply(&job("@yearly"));
        } else {
            db.execute(
                "UPDATE jobctl.job_definitions SET schedule = '@yearly', put_off_until = now()",
            );
        }
        db.jobctl(["tick"]).run().success();
        assert_eq!(
            db.query("SELECT scheduled_for = date_trunc('year', now()) FROM jobctl.job_runs"),
            "t"
        );
        let next = "SELECT next_run_at = date_trunc('year', now()) + interval '1 year', \
            put_off_until FROM jobctl.job_definitions";
        assert_eq!(db.query(next), "t|");
    }
}

#[test]
fn a_definition_that_another_program_inserted_gets_its_first_time_from_the_tick() {
    let db = TestDb::new();
    insert_definitions(&db, 2, "@yearly", "NULL");
    db.execute("UPDATE jobctl.job_definitions SET paused_at = now() WHERE name = 'job_2'");
    db.jobctl(["tick"]).run().success().stderr("");
    let next = "SELECT name, next_run_at = date_trunc('year', now()) + interval '1 year' FROM \
        jobctl.job_definitions
        ORDER BY name";
    assert_eq!(db.query(next), "job_1|t\njob_2|");
    assert_eq!(number_of_fired_runs(&db), "0");
}

#[test]
fn a_schedule_that_never_fires_is_logged_and_put_off() {
    let db = TestDb::new();
    // February has no 30th day.
    insert_definitions(&db, 1, "0 0 30 2 *", "NULL");
    db.jobctl(["tick"])
        .run()
        .success()
        .stderr_has("schedule of `job_1` does not fire: `0 0 30 2 *` never fires");
    db.jobctl(["tick"]).run().success().stderr("");
}

#[test]
fn a_changed_schedule_fires_the_due_time_in_the_next_tick_and_continues_from_now() {
    let db = TestDb::new();
    define_yearly_job(&db, "");
    make_due_since(&db, "0");
    db.apply("[jobs.yearly]\nshell = 'true'\nschedule = '0 0 1 1 *'\n");
    assert_eq!(number_of_fired_runs(&db), "0");
    db.jobctl(["tick"]).run().success();
    assert_eq!(number_of_fired_runs(&db), "1");
    let next = "SELECT next_run_at = date_trunc('year', now()) + interval '1 year' FROM \
        jobctl.job_definitions";
    assert_eq!(db.query(next), "t");
}

/// Times of a schedule are due; `apply` changes its definition. The new definition decides how many
/// of them the next tick fires, and `apply` says the number, also in a dry run.
#[test]
fn apply_says_how_many_due_times_the_new_definition_fires_and_a_tick_fires_them() {
    let job = |keys: &str| format!("[jobs.a]\nshell = 'true'\n{keys}\n");
    let all = "schedule = '* * * * *'\ncatch_up = 'all'\noverlap = 'allow'";
    let other = "[jobs.b]\nshell = 'true'\n".to_owned();
    let folder = temp_dir();
    let file = folder.path().join("jobs.toml");
    // The schedule has 51 due times. The new file, whether `apply` gets `--prune`, and how many
    // times fire; `None`: the definition does not change, so `apply` says nothing.
    for (after, prune, fires) in [
        (other.clone(), false, Some(0)),
        (other, true, Some(0)),
        (job(""), false, Some(0)),
        (job(&format!("{all}\nenabled = false")), false, Some(0)),
        (job("schedule = '* * * * *'\ncatch_up = 'skip'\noverlap = 'allow'"), false, Some(1)),
        (job("schedule = '@yearly'\ncatch_up = 'skip'\noverlap = 'allow'"), false, Some(0)),
        (job("schedule = '@yearly'\ncatch_up = 'one'"), false, Some(1)),
        (job("schedule = '* * * * *'\ncatch_up = 'all'\noverlap = 'skip'"), false, Some(1)),
        (job("schedule = '* * * * *'\ncatch_up = 'all:7'\noverlap = 'queue'"), false, Some(7)),
        (job(&format!("{all}\ntimeout = '1m'")), false, Some(51)),
        (job(all), false, None),
    ] {
        let db = TestDb::new();
        db.apply(&job(all));
        // No run starts.
        db.jobctl(["hold", "--all"]).run().success();
        make_due_since(&db, "50 minutes");
        std::fs::write(&file, &after).unwrap();
        let apply = |flags: &[&str]| {
            let prune = prune.then_some("--prune");
            let apply = db.jobctl(["apply", file.to_str().unwrap(), "--yes", "--json"]).args(prune);
            apply.args(flags.iter().copied()).run().success().stdout
        };
        // Returns the first due time and the number of runs that `apply` has said.
        let due = |answer: &str| {
            let rows: Vec<serde_json::Value> = serde_json::from_str(answer).unwrap();
            let mut due = rows.iter().filter(|row| row["change"] == "due");
            due.next().map(|row| {
                assert_eq!(row["job_type"], "a");
                (row["due_at"].as_str().unwrap().to_owned(), row["due_runs"].as_u64().unwrap())
            })
        };
        let due_since = db.query(
            "SELECT to_char(next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')
             FROM jobctl.job_definitions",
        );
        let (planned, applied) = (due(&apply(&["--dry-run"])), due(&apply(&[])));
        assert_eq!(number_of_fired_runs(&db), "0", "{after}");
        db.jobctl(["tick"]).run().success();
        let fired: u64 = number_of_fired_runs(&db).parse().unwrap();
        let Some(fires) = fires else {
            assert_eq!(planned, None, "{after}");
            assert_eq!(applied, None, "{after}");
            continue;
        };
        for (since, runs) in [planned.unwrap(), applied.unwrap()] {
            assert_eq!(since, due_since, "{after}");
            // The minute may have ended meanwhile: then one more time is due.
            assert!(runs == fires || runs == fires + 1 && fires > 1, "{after}: {runs}");
        }
        assert!(fired == fires || fired == fires + 1 && fires > 1, "{after}: {fired}");
    }
}

#[test]
fn applying_a_file_with_the_same_schedule_keeps_the_next_time() {
    let db = TestDb::new();
    define_yearly_job(&db, "timeout = '1m'");
    let next = "SELECT next_run_at FROM jobctl.job_definitions";
    let before = db.query(next);
    define_yearly_job(&db, "timeout = '2m'");
    assert_eq!(db.query(next), before);
}

#[test]
fn a_spread_delays_each_job_by_a_fixed_time() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'true'\nschedule = '@hourly'\nspread = '1h'\n\
         [jobs.b]\nshell = 'true'\nschedule = '@hourly'\nspread = '1h'\n",
    );
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = date_trunc('hour', now())");
    db.tick_that_starts_nothing().run().success();
    let spread = "SELECT count(DISTINCT run_at - scheduled_for), bool_and(run_at - scheduled_for \
        BETWEEN interval '0' AND interval '1 hour')
        FROM jobctl.job_runs";
    assert_eq!(db.query(spread), "2|t");
}

#[test]
fn a_fired_run_copies_its_definition() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'cat; echo; echo $JOBCTL_SCHEDULED_FOR'\nschedule = '0 0 1 1 *'\n\
         payload = { why = 'yearly' }\n\
         queue = 'q'\npriority = 3\nmax_attempts = 2\nbackoff = 'fixed:1s'\n",
    );
    db.execute(&format!("UPDATE jobctl.job_definitions SET next_run_at = {NEW_YEAR}"));
    db.jobctl(["tick"]).run().success();
    assert_eq!(
        db.query(
            "SELECT job_type, payload, queue, priority, max_attempts, backoff, idempotency_key \
             FROM jobctl.job_runs"
        ),
        "a|{\"why\": \"yearly\"}|q|3|2|fixed:1s|"
    );
    // The job has printed its payload and its nominal time.
    let year = db.query("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY')");
    assert_eq!(
        db.query("SELECT output FROM jobctl.job_attempts"),
        format!("{{\"why\": \"yearly\"}}\n{year}-01-01T00:00:00Z\n")
    );
}

/// Returns a call of the function by which a tick fires a schedule, for a query on its definition.
/// All arguments are expressions of SQL: the next time that the tick has `seen`, the `next` time
/// after this call, an array of the `times` to fire, the `delay` of their runs, and how many other
/// times were `missed`.
fn fire(seen: &str, next: &str, times: &str, delay: &str, missed: &str) -> String {
    format!(
        "jobctl.fire(definition_id => id, seen => {seen}, schedule => schedule,
             time_zone => time_zone, next => {next}, times => {times}, delay => {delay},
             missed => {missed})"
    )
}

/// The day after the next time of a definition.
const A_DAY_LATER: &str = "next_run_at + interval '1 day'";

/// Fires a schedule as a tick does, with these hours of 2026-01-01 as its due times and a number of
/// other times that it `missed`. Returns how many runs were enqueued.
fn call_fire(db: &TestDb, hours: &[u32], missed: u32) -> String {
    let times: Vec<_> = hours.iter().map(|hour| format!("'2026-01-01 {hour:02}:00Z'")).collect();
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = '2026-01-01 00:00Z', skipped_fires = 0,
             spread = '5 minutes'",
    );
    let times = format!("ARRAY[{}]::timestamptz[]", times.join(", "));
    let fire = fire("next_run_at", A_DAY_LATER, &times, "'5 minutes'", &missed.to_string());
    db.query(&format!("SELECT cardinality({fire}) FROM jobctl.job_definitions"))
}

#[test]
fn overlap_decides_whether_to_fire_while_the_last_run_is_unfinished() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 0 1 1 *'\n");
    for overlap in ["skip", "allow", "queue"] {
        db.execute(&format!("UPDATE jobctl.job_definitions SET overlap = '{overlap}'"));
        for status in STATUSES {
            db.execute("DELETE FROM jobctl.job_runs");
            assert_eq!(call_fire(&db, &[1], 0), "1", "the first time is always fired");
            // The run of the first time is in this status when the second time is due.
            let columns = match status {
                "running" => {
                    ", attempts = 1, locked_by = 'w', locked_until = now() + interval '1 hour'"
                }
                "succeeded" | "dead" | "cancelled" => ", finished_at = now()",
                _ => "",
            };
            db.execute(&format!("UPDATE jobctl.job_runs SET status = '{status}' {columns}"));
            let skips = overlap == "skip" && ["queued", "running", "failed"].contains(&status);
            let (runs, skipped) = if skips { ("0", "1") } else { ("1", "0") };
            assert_eq!(call_fire(&db, &[2], 0), runs, "{overlap} {status}");
            let definition = "SELECT skipped_fires, next_run_at = '2026-01-02 00:00Z'
                FROM jobctl.job_definitions";
            assert_eq!(db.query(definition), format!("{skipped}|t"), "{overlap} {status}");
        }
        // A run enqueued by hand does not belong to the schedule.
        db.execute("DELETE FROM jobctl.job_runs");
        db.enqueue(["a"]);
        assert_eq!(call_fire(&db, &[3], 0), "1", "{overlap}");
    }
}

#[test]
fn fire_enqueues_a_run_for_each_time_or_counts_it_as_skipped() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 0 1 1 *'\ncatch_up = 'all'\n");
    // The overlap, the hours of which a run is enqueued, and the number of skipped times.
    for (overlap, fired, skipped) in
        [("allow", "1\n2\n3", 7), ("queue", "1\n2\n3", 7), ("skip", "3", 9)]
    {
        db.execute("DELETE FROM jobctl.job_runs");
        db.execute(&format!("UPDATE jobctl.job_definitions SET overlap = '{overlap}'"));
        call_fire(&db, &[1, 2, 3], 7);
        let hours = "SELECT extract(hour FROM scheduled_for AT TIME ZONE 'UTC')::int FROM \
            jobctl.job_runs ORDER BY id";
        assert_eq!(db.query(hours), fired, "{overlap}");
        assert_eq!(
            db.query("SELECT skipped_fires FROM jobctl.job_definitions"),
            skipped.to_string(),
            "{overlap}"
        );
        assert_eq!(
            db.query("SELECT DISTINCT run_at - scheduled_for FROM jobctl.job_runs"),
            "00:05:00",
            "the spread delays the run, not its nominal time"
        );
        // Fired again, no time gets a second run.
        call_fire(&db, &[1, 2, 3], 0);
        assert_eq!(
            db.query("SELECT count(DISTINCT scheduled_for) = count(*) FROM jobctl.job_runs"),
            "t"
        );
    }
}

#[test]
fn fire_refuses_another_next_time_than_the_stored_one_and_disabled_or_paused_jobs() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 0 1 1 *'\n");
    db.execute(&format!("UPDATE jobctl.job_definitions SET next_run_at = {NEW_YEAR}"));
    let fire_is_refused = |seen: &str| {
        let fire = fire(seen, A_DAY_LATER, &format!("ARRAY[{seen}]"), "'0'", "0");
        db.query(&format!("SELECT {fire} IS NULL FROM jobctl.job_definitions"))
    };
    // The stored time is another one than the tick has seen.
    assert_eq!(fire_is_refused("next_run_at - interval '1 second'"), "t");
    // A column that stops the job, the value that stops it, and the usual value.
    for (column, stopped, usual) in [("enabled", "false", "true"), ("paused_at", "now()", "NULL")] {
        db.execute(&format!("UPDATE jobctl.job_definitions SET {column} = {stopped}"));
        assert_eq!(fire_is_refused("next_run_at"), "t", "{column}");
        db.execute(&format!("UPDATE jobctl.job_definitions SET {column} = {usual}"));
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
    // Without any of these reasons, it fires.
    assert_eq!(fire_is_refused("next_run_at"), "f");
}

#[test]
fn fire_refuses_times_that_no_schedule_yields() {
    let db = TestDb::new();
    // Returns whether jobctl.fire accepts these times, and how many runs it makes. The schedule is
    // due since two hours ago, so each minute since then is one of its times.
    let fires = |times: &str| {
        db.execute(
            "UPDATE jobctl.job_definitions
             SET next_run_at = date_trunc('minute', now()) - interval '2 hours';
             DELETE FROM jobctl.job_runs",
        );
        let times = format!("ARRAY({times})::timestamptz[]");
        let fire = fire("next_run_at", A_DAY_LATER, &times, "'0'", "0");
        let fired = db.query(&format!("SELECT {fire} IS NOT NULL FROM jobctl.job_definitions"));
        (fired == "t", db.query("SELECT count(*) FROM jobctl.job_runs"))
    };
    let none = (false, "0".to_owned());
    // Each rule allows so many times at once, and not one more.
    for (catch_up, most) in [("skip", 1), ("one", 1), ("all:7", 7), ("all", 100)] {
        db.execute("DELETE FROM jobctl.job_definitions");
        db.apply(&format!(
            "[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\noverlap = 'allow'\ncatch_up = \
             '{catch_up}'\n"
        ));
        let times = |count: u32| {
            format!(
                "SELECT next_run_at + n * interval '1 minute' FROM generate_series(1, {count}) AS n"
            )
        };
        assert_eq!(fires(&times(most)), (true, most.to_string()), "{catch_up}");
        assert_eq!(fires(&times(most + 1)), none, "{catch_up}");
    }
    for (time, what) in [
        ("next_run_at + interval '121 minutes'", "the future"),
        ("next_run_at - interval '1 minute'", "before the time that was seen"),
        ("next_run_at + interval '1 second'", "between two minutes"),
        ("NULL::timestamptz", "no time"),
    ] {
        assert_eq!(fires(&format!("SELECT {time}")), none, "{what}");
    }
}

/// A delay is at most the `spread` of the definition. In two hours, a schedule of each minute has
/// 121 times.
#[test]
fn fire_refuses_a_wrong_array_delay_or_number_of_missed_times() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\noverlap = 'skip'\ncatch_up = 'all'\n\
         spread = '1m'\n",
    );
    // Both statements are in one transaction, so that no minute begins between them.
    let fires = |times: &str, delay: &str, missed: &str| {
        let fire = fire("next_run_at", A_DAY_LATER, times, &format!("'{delay}'"), missed);
        db.query(&format!(
            "UPDATE jobctl.job_definitions
             SET next_run_at = date_trunc('minute', now()) - interval '2 hours';
             SELECT {fire} IS NOT NULL FROM jobctl.job_definitions"
        ))
    };
    let times = "ARRAY[next_run_at + interval '1 minute', next_run_at + interval '2 minutes']";
    assert_eq!(fires(&format!("ARRAY[{times}]"), "0", "0"), "f", "two dimensions");
    for delay in ["-1000 years", "61 seconds", "-1 second", "-1 year 366 days"] {
        assert_eq!(fires(times, delay, "0"), "f", "{delay}");
    }
    for missed in ["-1", "122", "9223372036854775807", "NULL"] {
        assert_eq!(fires(times, "0", missed), "f", "{missed}");
    }
    // The largest values that can be true.
    assert_eq!(fires(times, "1 minute", "120"), "t");
}

#[test]
fn fire_refuses_a_next_time_that_no_schedule_yields() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\noverlap = 'skip'\n");
    let is_refused =
        |fire: &str| db.query(&format!("SELECT {fire} IS NULL FROM jobctl.job_definitions")) == "t";
    let make_due = || {
        db.execute(
            "UPDATE jobctl.job_definitions
             SET next_run_at = date_trunc('minute', now()) - interval '2 hours'",
        );
    };
    // The next time must be later than the fired times, and a time of the schedule.
    let minute = "next_run_at + interval '1 minute'";
    make_due();
    let fired_twice = fire("next_run_at", minute, &format!("ARRAY[{minute}]"), "'0'", "0");
    assert!(is_refused(&fired_twice), "the next call could fire this minute again");
    let wrong =
        ["next_run_at", "next_run_at - interval '1 minute'", "next_run_at + interval '1 s'"];
    for next in wrong {
        make_due();
        let fire = fire("next_run_at", next, "ARRAY[next_run_at]", "'0'", "0");
        assert!(is_refused(&fire), "next is {next}");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");

    // The first time of a schedule must be in the future, and a time that is not due must stay.
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = NULL");
    assert!(is_refused(&fire("NULL", "'2000-01-01'", "'{}'", "'0'", "0")), "a first time long ago");
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = now() + interval '1 hour'");
    assert!(is_refused(&fire("next_run_at", "NULL", "'{}'", "'0'", "0")), "not due yet");
}

#[test]
fn a_tick_does_not_fire_a_schedule_that_changed_after_the_tick_had_read_it() {
    let db = TestDb::new();
    // What `apply` may change while a tick computes the times, and a proof that the next tick fires
    // by the new schedule.
    let changes = [
        ("schedule = '* * * * *'", "next_run_at <= now() + interval '1 minute'"),
        // Midnight in Tokyo is 15:00 UTC.
        ("time_zone = 'Asia/Tokyo'", "extract(hour FROM next_run_at AT TIME ZONE 'UTC') = 15"),
        // Of the two missed times, the tick fires only the newest.
        ("catch_up = 'one'", "next_run_at > now() AND (SELECT count(*) FROM jobctl.job_runs) = 1"),
    ];
    for (change, proof) in changes {
        db.execute("DELETE FROM jobctl.job_definitions");
        db.apply(
            "[jobs.a]\nshell = 'true'\nschedule = '0 0 1 1 *'\ncatch_up = 'all'\noverlap = \
            'allow'\n",
        );
        db.execute(&format!(
            "UPDATE jobctl.job_definitions SET next_run_at = {NEW_YEAR} - interval '1 year'"
        ));
        // The proxy stops the tick after the statement that reads the schedules.
        let proxy = Proxy::to(&db);
        proxy.freeze_after(READ_DUE_SCHEDULES);
        let tick = jobctl(["tick", "--queue", "none"]).through(&proxy).spawn();
        wait_until("the tick to read the schedules", || {
            proxy.is_frozen()
                && db.query(&format!(
                    "SELECT count(*) FROM pg_stat_activity
                     WHERE state = 'idle in transaction' AND query LIKE '%{READ_DUE_SCHEDULES}%'"
                )) == "1"
        });
        // The tick has read the schedule and has not fired it yet.
        db.execute(&format!("UPDATE jobctl.job_definitions SET {change}"));
        proxy.restore();
        tick.wait().success();
        assert_eq!(
            db.query(&format!(
                "SELECT next_run_at = {NEW_YEAR} - interval '1 year', (SELECT count(*) FROM \
                 jobctl.job_runs)
                 FROM jobctl.job_definitions"
            )),
            "t|0",
            "{change}: the tick has changed nothing"
        );

        db.tick_that_starts_nothing().run().success();
        let follows_new_schedule = format!("SELECT {proof} FROM jobctl.job_definitions");
        assert_eq!(db.query(&follows_new_schedule), "t", "{change}");
        db.execute("DELETE FROM jobctl.job_runs");
    }
}
