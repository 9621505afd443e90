//! A schedule fires once for each nominal time, however many look at it.

use crate::support::{Proxy, TestDb, jobctl, wait_until};

const STATUSES: [&str; 6] = ["queued", "running", "failed", "succeeded", "dead", "cancelled"];

/// The start of this year, at which a yearly schedule was due.
const NEW_YEAR: &str = "date_trunc('year', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'";

#[test]
fn many_ticks_fire_each_schedule_once() {
    let db = TestDb::new();
    let jobs = |policy: &str| -> String {
        (0..200).map(|n| format!("[jobs.job_{n}]\nshell = 'true'\nschedule = '0 0 1 1 *'\n{policy}\n")).collect()
    };
    for overlap in ["overlap = 'allow'", "overlap = 'skip'"] {
        db.apply(&jobs(overlap));
        db.execute(&format!("DELETE FROM jobctl.job_runs; UPDATE jobctl.job_definitions SET next_run_at = {NEW_YEAR}"));
        // Of a queue that has nothing, so that they fire and do nothing else.
        let ticks: Vec<_> = (0..10)
            .map(|worker| db.jobctl(["tick", "--queue", "none"]).env("JOBCTL_WORKER", &format!("w{worker}")).spawn())
            .collect();
        ticks.into_iter().for_each(|tick| drop(tick.wait().success()));
        assert_eq!(
            db.query(&format!(
                "SELECT count(*), count(DISTINCT definition_id), bool_and(scheduled_for = {NEW_YEAR}) FROM jobctl.job_runs"
            )),
            "200|200|t"
        );
        assert_eq!(
            db.query("SELECT bool_and(next_run_at > now()), sum(skipped_fires) FROM jobctl.job_definitions"),
            "t|0"
        );
    }
}

#[test]
fn a_fire_is_not_repeated_when_its_run_is_deleted() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 0 1 1 *'\n");
    db.execute(&format!("UPDATE jobctl.job_definitions SET next_run_at = {NEW_YEAR}"));
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.query("SELECT status FROM jobctl.job_runs"), "succeeded");
    db.execute("DELETE FROM jobctl.job_runs");
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn a_fired_run_has_what_the_definition_gives_it() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'cat; echo; echo $JOBCTL_SCHEDULED_FOR'\nschedule = '0 0 1 1 *'\npayload = { why = 'yearly' }\n\
         queue = 'q'\npriority = 3\nmax_attempts = 2\nbackoff = 'fixed:1s'\n",
    );
    db.execute(&format!("UPDATE jobctl.job_definitions SET next_run_at = {NEW_YEAR}"));
    db.jobctl(["tick"]).run().success();
    assert_eq!(
        db.query(
            "SELECT job_type, payload, queue, priority, max_attempts, backoff, idempotency_key FROM jobctl.job_runs"
        ),
        "a|{\"why\": \"yearly\"}|q|3|2|fixed:1s|"
    );
    let year = db.query("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY')");
    assert_eq!(
        db.query("SELECT output FROM jobctl.job_attempts"),
        format!("{{\"why\": \"yearly\"}}\n{year}-01-01T00:00:00Z\n")
    );
}

/// Fires these nominal times, hours of 2026-01-01, through the function that ticks call.
fn fire(db: &TestDb, hours: &[u32], missed: u32) -> String {
    let times: Vec<_> = hours.iter().map(|hour| format!("'2026-01-01 {hour:02}:00Z'")).collect();
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = '2026-01-01 00:00Z', skipped_fires = 0");
    db.query(&format!(
        "SELECT cardinality(jobctl.fire(id, next_run_at, schedule, time_zone, next_run_at + interval '1 day',
            ARRAY[{}]::timestamptz[], '5 minutes', {missed})) FROM jobctl.job_definitions",
        times.join(", ")
    ))
}

#[test]
fn overlap_decides_about_a_fire_while_the_last_one_is_not_finished() {
    let db = TestDb::new();
    db.leaves_running();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 0 1 1 *'\n");
    for overlap in ["skip", "allow", "queue"] {
        db.execute(&format!("UPDATE jobctl.job_definitions SET overlap = '{overlap}'"));
        for status in STATUSES {
            db.execute("DELETE FROM jobctl.job_runs");
            assert_eq!(fire(&db, &[1], 0), "1", "the first is always fired");
            let columns = match status {
                "running" => ", attempts = 1, locked_by = 'w', locked_until = now() + interval '1 hour'",
                "succeeded" | "dead" | "cancelled" => ", finished_at = now()",
                _ => "",
            };
            db.execute(&format!("UPDATE jobctl.job_runs SET status = '{status}' {columns}"));
            let skips = overlap == "skip" && ["queued", "running", "failed"].contains(&status);
            assert_eq!(fire(&db, &[2], 0), if skips { "0" } else { "1" }, "{overlap} {status}");
            assert_eq!(
                db.query("SELECT skipped_fires, next_run_at = '2026-01-02 00:00Z' FROM jobctl.job_definitions"),
                if skips { "1|t" } else { "0|t" },
                "{overlap} {status}"
            );
        }
        // One that was enqueued by hand is none of the schedule's.
        db.execute("DELETE FROM jobctl.job_runs");
        db.enqueue(["a"]);
        assert_eq!(fire(&db, &[3], 0), "1", "{overlap}");
    }
}

#[test]
fn of_several_times_each_has_its_run_or_is_counted() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 0 1 1 *'\ncatch_up = 'all'\n");
    for (overlap, fired, skipped) in [("allow", "1\n2\n3", 7), ("queue", "1\n2\n3", 7), ("skip", "3", 9)] {
        db.execute("DELETE FROM jobctl.job_runs");
        db.execute(&format!("UPDATE jobctl.job_definitions SET overlap = '{overlap}'"));
        fire(&db, &[1, 2, 3], 7);
        let hours = "SELECT extract(hour FROM scheduled_for AT TIME ZONE 'UTC')::int FROM jobctl.job_runs ORDER BY id";
        assert_eq!(db.query(hours), fired, "{overlap}");
        assert_eq!(db.query("SELECT skipped_fires FROM jobctl.job_definitions"), skipped.to_string(), "{overlap}");
        assert_eq!(
            db.query("SELECT DISTINCT run_at - scheduled_for FROM jobctl.job_runs"),
            "00:05:00",
            "the spread delays the run, not its nominal time"
        );
        fire(&db, &[1, 2, 3], 0);
        assert_eq!(db.query("SELECT count(DISTINCT scheduled_for) = count(*) FROM jobctl.job_runs"), "t");
    }
}

#[test]
fn only_who_saw_the_next_time_fires_it() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 0 1 1 *'\n");
    db.execute(&format!("UPDATE jobctl.job_definitions SET next_run_at = {NEW_YEAR}"));
    let seen = "next_run_at - interval '1 second'";
    let fire = |seen: &str| {
        db.query(&format!(
            "SELECT jobctl.fire(id, {seen}, schedule, time_zone, next_run_at + interval '1 day', ARRAY[{seen}], '0', 0)
                IS NULL
             FROM jobctl.job_definitions"
        ))
    };
    assert_eq!(fire(seen), "t");
    for (column, value) in [("enabled", "false"), ("paused_at", "now()")] {
        let was = db.query(&format!("SELECT coalesce({column}::text, '') FROM jobctl.job_definitions"));
        db.execute(&format!("UPDATE jobctl.job_definitions SET {column} = {value}"));
        assert_eq!(fire("next_run_at"), "t", "{column}");
        db.execute(&format!(
            "UPDATE jobctl.job_definitions SET {column} = nullif('{was}', '')::{}",
            if column == "enabled" { "boolean" } else { "timestamptz" }
        ));
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
    assert_eq!(fire("next_run_at"), "f");
}

#[test]
fn fire_refuses_times_that_no_schedule_yields() {
    let db = TestDb::new();
    let fires = |seen: &str, next: &str, times: &str| {
        db.execute(
            "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now()) - interval '2 hours';
             DELETE FROM jobctl.job_runs",
        );
        let fired = db.query(&format!(
            "SELECT jobctl.fire(id, {seen}, schedule, time_zone, {next}, ARRAY({times})::timestamptz[], '0', 0) IS NOT NULL
             FROM jobctl.job_definitions"
        ));
        (fired == "t", db.query("SELECT count(*) FROM jobctl.job_runs"))
    };
    let (later, seen) = ("next_run_at + interval '1 day'", "next_run_at");
    let none = (false, "0".to_owned());
    for (catch_up, most) in [("skip", 1), ("one", 1), ("all:7", 7), ("all", 100)] {
        db.execute("DELETE FROM jobctl.job_definitions");
        db.apply(&format!(
            "[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\noverlap = 'allow'\ncatch_up = '{catch_up}'\n"
        ));
        let times =
            |count: u32| format!("SELECT next_run_at + n * interval '1 minute' FROM generate_series(1, {count}) AS n");
        assert_eq!(fires(seen, later, &times(most)), (true, most.to_string()), "{catch_up}");
        assert_eq!(fires(seen, later, &times(most + 1)), none, "{catch_up}");
    }
    assert_eq!(fires(seen, later, "SELECT next_run_at + interval '121 minutes'"), none, "the future");
    assert_eq!(fires(seen, later, "SELECT next_run_at - interval '1 minute'"), none, "before the time that was seen");
    assert_eq!(fires(seen, later, "SELECT next_run_at + interval '1 second'"), none, "between two minutes");
    assert_eq!(fires(seen, later, "SELECT NULL::timestamptz"), none, "no time");
    let minute = "next_run_at + interval '1 minute'";
    assert_eq!(fires(seen, minute, &format!("SELECT {minute}")), none, "next could fire again");
    for next in [seen, "next_run_at - interval '1 minute'", "next_run_at + interval '1 second'"] {
        assert_eq!(fires(seen, next, "SELECT next_run_at"), none, "next is {next}");
    }
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = NULL");
    let first = "SELECT jobctl.fire(id, NULL, schedule, time_zone, '2000-01-01', '{}', '0', 0) IS NULL
         FROM jobctl.job_definitions";
    assert_eq!(db.query(first), "t", "a first time long ago");
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = now() + interval '1 hour'");
    let early = "SELECT jobctl.fire(id, next_run_at, schedule, time_zone, NULL, '{}', '0', 0) IS NULL
         FROM jobctl.job_definitions";
    assert_eq!(db.query(early), "t", "not due yet");
}

#[test]
fn a_fire_computed_from_a_changed_schedule_does_nothing() {
    let db = TestDb::new();
    let changes = ["schedule = '* * * * *'", "time_zone = 'Asia/Tokyo'", "catch_up = 'one'"];
    for change in changes {
        db.execute("DELETE FROM jobctl.job_definitions");
        db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 0 1 1 *'\ncatch_up = 'all'\noverlap = 'allow'\n");
        db.execute(&format!("UPDATE jobctl.job_definitions SET next_run_at = {NEW_YEAR} - interval '1 year'"));
        let proxy = Proxy::to(&db);
        proxy.freeze_after("candidates for fire.sql");
        let tick = jobctl(["tick", "--queue", "none"]).env("JOBCTL_DATABASE_URL", &proxy.url()).spawn();
        wait_until("the tick to have looked", || {
            proxy.is_frozen()
                && db.query(
                    "SELECT count(*) FROM pg_stat_activity
                     WHERE state = 'idle in transaction' AND query LIKE '%candidates for fire.sql%'",
                ) == "1"
        });
        // `apply` changes the schedule after the tick has read it.
        db.execute(&format!("UPDATE jobctl.job_definitions SET {change}"));
        proxy.mend();
        tick.wait().success();
        assert_eq!(
            db.query(&format!(
                "SELECT next_run_at = {NEW_YEAR} - interval '1 year', (SELECT count(*) FROM jobctl.job_runs)
                 FROM jobctl.job_definitions"
            )),
            "t|0",
            "{change}: the tick left it alone"
        );
        db.jobctl(["tick", "--queue", "none"]).run().success();
        let next = match change {
            "schedule = '* * * * *'" => "next_run_at <= now() + interval '1 minute'",
            "time_zone = 'Asia/Tokyo'" => "extract(hour FROM next_run_at AT TIME ZONE 'UTC') = 15",
            _ => "next_run_at > now()",
        };
        assert_eq!(db.query(&format!("SELECT {next} FROM jobctl.job_definitions")), "t", "{change}");
        db.execute("DELETE FROM jobctl.job_runs");
    }
}
