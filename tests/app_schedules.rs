//! Schedules that an application makes, one for each of its customers.

use crate::next_time::random;
use crate::support::{Role, TestDb, jobctl};

/// Returns a database with two jobs, which print their payload. The keys are those of `report`.
fn db_with_jobs(keys: &str) -> TestDb {
    let db = TestDb::new();
    db.apply(&format!(
        "[jobs.report]\nshell = 'cat'\ntimeout = '1h'\n{keys}\n[jobs.other]\nshell = 'cat'\n"
    ));
    db
}

/// Executes a statement as a role. Returns its answer, or the SQLSTATE and the message.
#[track_caller]
fn answer_or_error(role: &Role<'_>, sql: &str) -> String {
    match role.client().query_one(sql, &[]) {
        Ok(row) => {
            row.try_get::<_, String>(0).unwrap_or_else(|_| row.get::<_, bool>(0).to_string())
        }
        Err(error) => {
            let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error:?}"));
            format!("{} {}", error.code().code(), error.message())
        }
    }
}

/// Schedules `report` by this name as a role. `more` begins with the expression. Returns the answer
/// or the error.
#[track_caller]
fn schedule(role: &Role<'_>, name: &str, more: &str) -> String {
    answer_or_error(role, &format!("SELECT jobctl.schedule('{name}', 'report', {more})"))
}

/// Makes all schedules of applications due since `time` ago, so their next tick fires them.
fn make_due_since(db: &TestDb, time: &str) {
    db.execute(&format!(
        "UPDATE jobctl.job_schedules SET next_run_at = date_trunc('minute', now() - interval \
         '{time}')"
    ));
}

/// Runs a tick that starts no job: it gives new schedules their next time, and fires those that are
/// due.
fn tick_for_schedules_only(db: &TestDb) {
    db.tick_that_starts_nothing().run().success();
}

fn number_of_runs(db: &TestDb) -> String {
    db.query("SELECT count(*) FROM jobctl.job_runs")
}

const ADDED: &str = "scheduled; the next tick computes the first time";
const CHANGED: &str = "replaced; the next tick computes the next time";

#[test]
fn an_application_makes_a_schedule_and_reads_the_results_of_its_runs() {
    let db = db_with_jobs("result = 'json'");
    let app = Role::granted(&db, "enqueuer");
    let weekly = "'0 9 * * mon', 'Europe/Berlin', '{\"customer\": 7}', share => 'c7'";
    assert_eq!(schedule(&app, "weekly:7", weekly), ADDED);
    // Gives the schedule its first time, next Monday. So there is no run yet.
    tick_for_schedules_only(&db);
    let next = "SELECT to_char(next_run_at AT TIME ZONE 'Europe/Berlin', 'Dy HH24:MI'),
        next_run_at > now(), next_run_at < now() + interval '7 days 1 hour', owner
        FROM jobctl.job_schedules";
    assert_eq!(db.query(next), format!("Mon 09:00|t|t|{}", app.name()));
    assert_eq!(number_of_runs(&db), "0");
    make_due_since(&db, "1 minute");
    let tick = Role::granted(&db, "worker").jobctl(["tick"]).run().success();
    let run = db.query("SELECT id FROM jobctl.job_runs");
    tick.stderr_has(&format!("schedule weekly:7: fired, run {run}"));
    assert_eq!(
        db.query(
            "SELECT job_type, payload, share, schedule, enqueued_by, scheduled_for = run_at,
             definition_id = (SELECT id FROM jobctl.job_definitions WHERE name = 'report')
             FROM jobctl.job_runs"
        ),
        format!("report|{{\"customer\": 7}}|c7|weekly:7|{}|t|t", app.name())
    );
    assert_eq!(db.query(next), format!("Mon 09:00|t|t|{}", app.name()));
    // The job prints its payload, which becomes its result.
    let result = format!("SELECT (jobctl.result({run})).result ->> 'customer'");
    assert_eq!(answer_or_error(&app, &result), "7");
    // `unschedule` returns whether it deleted the schedule.
    assert_eq!(answer_or_error(&app, "SELECT jobctl.unschedule('weekly:7')"), "true");
    assert_eq!(answer_or_error(&app, "SELECT jobctl.unschedule('weekly:7')"), "false");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_schedules"), "0");
}

#[test]
fn a_schedule_belongs_to_the_transaction_that_makes_it() {
    let db = db_with_jobs("");
    let app = Role::granted(&db, "enqueuer");
    let mut client = app.client();
    let make = "BEGIN; SELECT jobctl.schedule('a', 'report', '@daily')";
    // After a rollback, there is no schedule to delete.
    client.batch_execute(&format!("{make}; ROLLBACK")).unwrap();
    assert_eq!(answer_or_error(&app, "SELECT jobctl.unschedule('a')"), "false");
    // The rollback of a deletion leaves the schedule.
    client
        .batch_execute(&format!("{make}; COMMIT; BEGIN; SELECT jobctl.unschedule('a'); ROLLBACK"))
        .unwrap();
    assert_eq!(answer_or_error(&app, "SELECT jobctl.unschedule('a')"), "true");
}

#[test]
fn only_the_enqueuers_of_a_job_may_schedule_it() {
    let db = db_with_jobs("");
    let [app, other, none] =
        [Role::granted(&db, "enqueuer"), Role::granted(&db, "enqueuer"), Role::new(&db)];
    db.apply(&format!(
        "[jobs.report]\nshell = 'cat'\nenqueuers = ['{}']\n[jobs.off]\nshell = 'cat'\nenabled = \
         false\n[jobs.page]\nshell = 'cat'\non_dead = 'hook'\n[jobs.hook]\nshell = 'cat'\n",
        app.name()
    ));
    assert_eq!(schedule(&app, "a", "'@daily'"), ADDED);
    let refused = schedule(&other, "b", "'@daily'");
    assert!(refused.starts_with("42501 role ") && refused.contains("enqueuers"), "{refused}");
    assert!(schedule(&none, "b", "'@daily'").starts_with("42501 permission denied"));
    // A disabled job, a hook of another job, an unknown job and a built-in one.
    for (job, code) in [("off", "55000"), ("hook", "42501"), ("x", "JC003"), ("shell", "JC003")] {
        let sql = format!("SELECT jobctl.schedule('b', '{job}', '@daily')");
        assert!(
            answer_or_error(&app, &sql).starts_with(code),
            "{job}: {}",
            answer_or_error(&app, &sql)
        );
        // A role may schedule exactly the jobs that it may enqueue.
        let enqueued = answer_or_error(&app, &format!("SELECT jobctl.enqueue('{job}')::text"));
        assert_eq!(answer_or_error(&app, &sql), enqueued);
    }
    // An operator may schedule any job, and change the schedules of other logins, who stay owners.
    let operator = Role::granted(&db, "operator");
    assert_eq!(schedule(&operator, "b", "'@daily'"), ADDED);
    for role in [&other, &none] {
        for sql in ["jobctl.unschedule('a')", "jobctl.schedule('a', 'page', '@hourly')"] {
            assert!(answer_or_error(role, &format!("SELECT {sql}")).starts_with("42501 "), "{sql}");
        }
    }
    let taken = answer_or_error(&other, "SELECT jobctl.schedule('a', 'page', '@hourly')");
    assert_eq!(taken, "42501 schedule `a` belongs to another login");
    assert_eq!(
        answer_or_error(&operator, "SELECT jobctl.schedule('a', 'page', '@hourly')"),
        CHANGED
    );
    let owners = "SELECT string_agg(name || ' ' || (owner = session_user), ',' ORDER BY name)
        FROM jobctl.job_schedules";
    // The session of this query is neither the application nor the operator.
    assert_eq!(db.query(owners), "a false,b false");
    // A member of the owning role may delete its schedule. But `b` belongs to the operator.
    db.execute(&format!("GRANT {} TO {}", app.name(), other.name()));
    assert_eq!(answer_or_error(&other, "SELECT jobctl.unschedule('a')"), "true");
    assert_eq!(
        answer_or_error(&app, "SELECT jobctl.unschedule('b')"),
        "42501 schedule `b` belongs to another login"
    );
    db.execute("SELECT jobctl.unschedule('b')");
}

#[test]
fn the_error_of_schedule_names_the_wrong_argument() {
    let db = db_with_jobs("");
    let app = Role::granted(&db, "enqueuer");
    // The schedule's name, the arguments after the job, and the error.
    for (name, arguments, message) in [
        ("", "'@daily'", "name must be 1 to 255 bytes"),
        ("-a", "'@daily'", "name must be 1 to 255 bytes"),
        (&"x".repeat(256), "'@daily'", "name must be 1 to 255 bytes"),
        ("a", "NULL", "schedule is NULL"),
        ("a", "'@daily', 'Berlin'", "cannot compute a time: there is no time zone `Berlin`; write"),
        ("a", "'@daily', 'Mars/Phobos'", "cannot compute a time: there is no time zone `Mars/"),
        ("a", "'@daily', share => ''", "share must be 1 to 255 bytes"),
        ("a", "'@daily', payload => ('[1' || repeat('0', 400) || ']')::jsonb", "payload has a"),
        ("a", "'@daily', starts => 'infinity'", "starts is out of range"),
        ("a", "'@daily', ends => 'infinity'", "ends is out of range"),
        ("a", "'@daily', ends => now()", "ends must be later than now and starts"),
        (
            "a",
            "'@daily', starts => now() + interval '2 d', ends => now() + interval '1 d'",
            "ends must be later than now and starts",
        ),
        ("a", "repeat('* ', 600)", "schedule is longer than 1000 bytes"),
    ] {
        let refused = schedule(&app, name, arguments);
        assert!(refused.starts_with(&format!("22023 {message}")), "{arguments}: {refused}");
    }
    let unnamed = answer_or_error(&app, "SELECT jobctl.schedule(NULL, 'report', '@daily')");
    assert_eq!(unnamed, "22023 name is NULL");
    // NULL means the default of each of the other arguments.
    assert_eq!(schedule(&app, "a", "'@daily', NULL, NULL, NULL, NULL, NULL"), ADDED);
    assert_eq!(db.query("SELECT time_zone, payload FROM jobctl.job_schedules"), "UTC|{}");
}

/// Returns cron expressions: right ones, wrong ones, and some that never fire.
fn expressions() -> Vec<String> {
    let parts: [&[&str]; 5] = [
        &["0", "*", "*/15", "5-10", "5-10/3", "1,2", "60", "1,,2", "**", "5/2", "9-3", "007"],
        &["0", "*", "23", "24", "*/25", "1-2-3", "-1", "+1", "*/0", "1.5", "2/", "1-5/2"],
        &["*", "1", "31", "30", "29", "L", "lw", "*/2", "32", "0", "l,15", "*/31", "LWL", "1L"],
        &["*", "2", "feb", "JAN-mar", "13", "0", "2,4", "febr", "dec-jan", "4,6", "jan/2", "2L"],
        &[
            "*",
            "mon",
            "sat-sun",
            "fri-mon",
            "mon#1",
            "mon#5",
            "5L",
            "friL",
            "7",
            "8",
            "mon#6",
            "*/2",
            "*/7",
            "L",
            "mon-fri#1",
            "#1",
            "mon#",
            "0-7",
            "sun-sat",
            "6-0",
            "5-7/2",
        ],
    ];
    let mut expressions: Vec<_> = [
        "",
        " ",
        "* * * *",
        "* * * * * *",
        "@daily",
        " @weekly ",
        "@Daily",
        "@every 90m",
        "@every 1h30m",
        "@every 1h 30m",
        "@every  2d",
        "@every 30s",
        "@every 90s",
        "@every 366d",
        "@every 365d",
        "@every",
        "@every x",
        "@every 1.5h",
        "@every 1w",
        "@every -5m",
        "@every 5",
        "@every 60000ms",
        "@every 1M",
        "@reboot",
        "0\t0  1 1\t*",
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "0 0 29 2 *",
        "0 0 30 2 mon",
        "0 0 LW * */7",
        "0 0 */31 * mon#5",
        "0 0 */31 * mon#1",
        "0 0 29 2 */2",
        "0 0 */15 * tue#2",
        "0 0 L 2 *",
        "0 0 31 */2 *",
        "0 0 31 2-3 *",
    ]
    .map(str::to_owned)
    .into();
    let mut state = 11;
    for _ in 0..400 {
        let mut any = |part: &[&str]| {
            // Most parts are right: a wrong one hides those after it.
            let end = if random(&mut state) & 1 == 0 { part.len() / 2 } else { part.len() };
            part[random(&mut state) as usize % end].to_owned()
        };
        expressions.push(parts.map(&mut any).join(" "));
    }
    expressions
}

#[test]
fn sql_accepts_the_expressions_that_a_file_accepts() {
    let db = db_with_jobs("");
    let fields = ["minute", "hour", "day-of-month", "month", "day-of-week"];
    let named_field =
        |text: &str| fields.iter().rposition(|name| text.contains(&format!("{name} field")));
    let (mut accepted, mut client) = (0, db.client());
    for expression in expressions() {
        let file = jobctl(["next", "--schedule", &expression, "--count", "1"]).run();
        let sql = client.query_one("SELECT jobctl.schedule_error($1, 'UTC')", &[&expression]);
        let sql: Option<String> = sql.unwrap().get(0);
        assert_eq!(file.stdout.is_empty(), sql.is_some(), "`{expression}`: {sql:?}");
        let sql = sql.unwrap_or_default();
        assert_eq!(
            named_field(&file.stderr),
            named_field(&sql),
            "{expression}: {} {sql}",
            file.stderr
        );
        for words in ["never fires", "runs backwards", "is not a duration", "out of range"] {
            assert_eq!(file.stderr.contains(words), sql.contains(words), "{expression}: {sql}");
        }
        accepted += usize::from(sql.is_empty());
    }
    // Both kinds of expressions were compared: right ones and wrong ones.
    assert!((60..360).contains(&accepted), "{accepted}");
}

#[test]
fn schedule_with_a_name_that_is_taken_replaces_the_schedule() {
    let db = db_with_jobs("");
    let app = Role::granted(&db, "enqueuer");
    assert_eq!(schedule(&app, "a", "'@yearly'"), ADDED);
    assert_eq!(schedule(&app, "a", "'@yearly'"), "unchanged");
    tick_for_schedules_only(&db);
    let next = || db.query("SELECT next_run_at FROM jobctl.job_schedules");
    let first = next();
    assert!(!first.is_empty());
    // A new payload keeps the next time.
    assert_eq!(schedule(&app, "a", "'@yearly', payload => '[1]'"), "replaced");
    assert_eq!(next(), first);
    assert_eq!(schedule(&app, "a", "'@yearly', payload => '[1]'"), "unchanged");
    // With another expression, zone or start, the next time must be computed again.
    for change in ["'@daily'", "'@daily', 'Asia/Tokyo'", "'@daily', starts => '2100-01-01 00:00Z'"]
    {
        tick_for_schedules_only(&db);
        assert_eq!(schedule(&app, "a", change), CHANGED, "{change}");
        assert_eq!(next(), "", "{change}");
    }
    tick_for_schedules_only(&db);
    assert_eq!(answer_or_error(&app, "SELECT jobctl.schedule('a', 'other', '@daily')"), CHANGED);
}

#[test]
fn a_time_that_is_due_when_the_expression_changes_is_fired() {
    let db = db_with_jobs("");
    let app = Role::granted(&db, "enqueuer");
    answer_or_error(&app, "SELECT jobctl.schedule('a', 'other', '@daily')");
    // Gives the schedule its first time.
    tick_for_schedules_only(&db);
    make_due_since(&db, "5 minutes");
    assert_eq!(
        answer_or_error(&app, "SELECT jobctl.schedule('a', 'other', '@yearly')"),
        "replaced"
    );
    tick_for_schedules_only(&db);
    assert_eq!(db.query("SELECT job_type FROM jobctl.job_runs"), "other");
    assert_eq!(db.query("SELECT next_run_at > now() FROM jobctl.job_schedules"), "t");
}

#[test]
fn the_first_time_of_a_schedule_is_not_before_its_start_and_not_after_its_end() {
    let db = db_with_jobs("overlap = 'allow'\ncatch_up = 'all'\n");
    let app = Role::granted(&db, "enqueuer");
    schedule(&app, "at", "'0 9 * * *', starts => '2100-06-01 09:00Z'");
    schedule(&app, "after", "'0 9 * * *', starts => '2100-06-01 09:01Z'");
    schedule(&app, "every", "'@every 90m', starts => '2100-06-01 09:00Z'");
    schedule(&app, "past", "'@yearly', starts => '2000-06-01 09:00Z', ends => '2100-01-02 00:00Z'");
    schedule(
        &app,
        "never",
        "'0 0 1 1 *', starts => '2100-06-01 09:00Z', ends => '2100-07-01 00:00Z'",
    );
    tick_for_schedules_only(&db);
    // `never` has no time before its end, so it is deleted. The time of `past` depends on today.
    assert_eq!(
        db.query(
            "SELECT name, to_char(next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')
             FROM jobctl.job_schedules WHERE name <> 'past' ORDER BY name"
        ),
        "after|2100-06-02 09:00\nat|2100-06-01 09:00\nevery|2100-06-01 10:30"
    );
}

#[test]
fn a_schedule_that_has_ended_fires_its_missed_times_and_is_deleted() {
    let db = db_with_jobs("overlap = 'allow'\ncatch_up = 'all'\n");
    let app = Role::granted(&db, "enqueuer");
    // The schedule has been due for 4 hours and ended 2 hours ago. So the times 4, 3 and 2 hours
    // ago are fired.
    schedule(&app, "hourly", "'@hourly', ends => now() + interval '1 day'");
    db.execute(
        "UPDATE jobctl.job_schedules SET
         next_run_at = date_trunc('hour', now()) - interval '4 hours',
         starts_at = date_trunc('hour', now()) - interval '4 hours',
         ends_at = date_trunc('hour', now()) - interval '2 hours'",
    );
    let tick = db.tick_that_starts_nothing().run().success();
    // The first three runs of this database.
    tick.stderr_has("schedule hourly: fired, run 1, run 2, run 3");
    let fired =
        "SELECT string_agg(extract(epoch FROM date_trunc('hour', now()) - scheduled_for)::int
        / 3600 || '', ' ' ORDER BY id) FROM jobctl.job_runs";
    assert_eq!(db.query(fired), "4 3 2");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_schedules"), "0");
}

#[test]
fn a_new_schedule_fires_from_the_time_when_it_was_stored_even_if_the_first_tick_is_late() {
    let db = db_with_jobs("");
    let app = Role::granted(&db, "enqueuer");
    schedule(&app, "a", "'*/5 * * * *'");
    schedule(&app, "b", "'*/5 * * * *', ends => now() + interval '1 h'");
    // No tick has seen the schedules for 17 minutes. In these, `b` has ended.
    let store_17_minutes_ago = |name: &str, more: &str| {
        db.execute(&format!(
            "UPDATE jobctl.job_schedules SET updated_at = now() - interval '17 minutes'{more}
             WHERE name = '{name}'"
        ));
    };
    store_17_minutes_ago("a", "");
    store_17_minutes_ago("b", ", ends_at = now() - interval '11 minutes'");
    // Another payload does not postpone the first time of `a`.
    assert_eq!(schedule(&app, "a", "'*/5 * * * *', payload => '[1]'"), CHANGED);
    tick_for_schedules_only(&db);
    // `a` fires for its latest time, which is less than 5 minutes ago, and `b` for its last time
    // before its end.
    let of = "SELECT schedule, payload, scheduled_for > now() - interval '5 minutes 10 seconds',
        scheduled_for < now() - interval '11 minutes' FROM jobctl.job_runs ORDER BY schedule";
    assert_eq!(db.query(of), "a|[1]|t|f\nb|{}|f|t");
    // `b` has ended, so it is deleted.
    assert_eq!(db.query("SELECT name, next_run_at > now() FROM jobctl.job_schedules"), "a|t");
}

#[test]
fn a_due_time_that_a_new_start_excludes_is_not_fired() {
    let db = db_with_jobs("");
    let app = Role::granted(&db, "enqueuer");
    schedule(&app, "a", "'*/5 * * * *'");
    // Gives the schedule its first time.
    tick_for_schedules_only(&db);
    make_due_since(&db, "1 minute");
    // The new start is later than the due time, and no later time is before the new end.
    let over = "'@yearly', starts => now(), ends => now() + interval '1 ms'";
    assert_eq!(schedule(&app, "a", over), CHANGED);
    tick_for_schedules_only(&db);
    assert_eq!(number_of_runs(&db), "0");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_schedules"), "0");
}

#[test]
fn catch_up_and_overlap_of_a_definition_apply_to_each_of_its_schedules_alone() {
    // Each of two schedules has missed three times. Keys of the definition, and how many of the
    // three times of one schedule then fire and are skipped. `overlap` allows one unfinished run by
    // default.
    for (keys, fired, skipped) in [
        ("overlap = 'allow'", 1, "2"),
        ("overlap = 'allow'\ncatch_up = 'all'", 3, "0"),
        ("overlap = 'allow'\ncatch_up = 'all:2'", 2, "1"),
        ("overlap = 'allow'\ncatch_up = 'skip'", 0, "3"),
        ("catch_up = 'all'", 1, "2"),
    ] {
        let db = db_with_jobs(keys);
        let app = Role::granted(&db, "enqueuer");
        for name in ["a", "b"] {
            schedule(&app, name, "'*/20 * * * *'");
        }
        // The first of three missed times: 40 minutes before the last one, at least 3 minutes ago.
        db.execute(
            "UPDATE jobctl.job_schedules SET next_run_at =
             date_bin('20 minutes', now() - interval '3 minutes', '2026-01-01 00:00Z')
             - interval '40 minutes'",
        );
        // In the first 3 minutes of an interval, four times are missed. Leave out this case then.
        let due = "SELECT floor(extract(epoch FROM now() - min(next_run_at)) / 1200) FROM \
            jobctl.job_schedules";
        if db.query(due) != "2" {
            continue;
        }
        tick_for_schedules_only(&db);
        let of = |name: &str| {
            db.query(&format!("SELECT count(*) FROM jobctl.job_runs WHERE schedule = '{name}'"))
        };
        assert_eq!([of("a"), of("b")], [fired.to_string(), fired.to_string()], "{keys}");
        let counted = "SELECT DISTINCT skipped_fires FROM jobctl.job_schedules";
        assert_eq!(db.query(counted), skipped, "{keys}");
    }
}

#[test]
fn a_waiting_run_keeps_only_its_own_schedule_from_firing() {
    let db = db_with_jobs("schedule = '@yearly'\nspread = '1h'");
    let app = Role::granted(&db, "enqueuer");
    for name in ["a", "b"] {
        schedule(&app, name, "'@yearly'");
    }
    // Fires the schedules of applications for another time, and returns the schedules of all runs;
    // `-` is the one of the definition.
    let fire_for_time = |time: &str| {
        make_due_since(&db, time);
        tick_for_schedules_only(&db);
        db.query(
            "SELECT string_agg(coalesce(schedule, '-'), '' ORDER BY schedule) FROM jobctl.job_runs",
        )
    };
    let make_own_schedule_due = "UPDATE jobctl.job_definitions
        SET next_run_at = date_trunc('minute', now()) WHERE name = 'report'";
    db.execute(make_own_schedule_due);
    assert_eq!(fire_for_time("9 minutes"), "ab-");
    assert_eq!(fire_for_time("8 minutes"), "ab-");
    // `spread` delays each schedule by its own offset.
    assert_eq!(db.query("SELECT count(DISTINCT run_at - scheduled_for) FROM jobctl.job_runs"), "3");
    // Without its waiting run, a schedule fires again.
    db.execute("DELETE FROM jobctl.job_runs WHERE schedule = 'a'");
    assert_eq!(fire_for_time("7 minutes"), "ab-");
    db.execute("DELETE FROM jobctl.job_runs WHERE schedule IS NULL");
    db.execute(make_own_schedule_due);
    assert_eq!(fire_for_time("6 minutes"), "ab-");
}

#[test]
fn ticks_at_once_fire_ten_thousand_schedules_once_each() {
    let db = db_with_jobs("");
    db.execute(
        "SELECT jobctl.schedule('s' || n, 'report', '@yearly', payload => to_jsonb(n))
         FROM generate_series(1, 10000) AS n;
         UPDATE jobctl.job_schedules SET next_run_at = date_trunc('minute', now())",
    );
    let workers: Vec<_> = (0..4).map(|n| format!("w{n}")).collect();
    let tick = |worker| db.tick_that_starts_nothing().args(["--quiet", "--worker", worker]).spawn();
    let ticks: Vec<_> = workers.iter().map(|worker| tick(worker.as_str())).collect();
    ticks.into_iter().for_each(|tick| drop(tick.wait().success()));
    // On a busy machine, a tick may run out of time and leave the rest to the next tick.
    let due = "SELECT count(*) FROM jobctl.job_schedules WHERE next_run_at <= now()";
    while db.query(due) != "0" {
        tick("w0").wait().success();
    }
    let counts = "SELECT count(*), count(DISTINCT (schedule, payload)) FROM jobctl.job_runs";
    assert_eq!(db.query(counts), "10000|10000");
    let moved =
        "SELECT bool_and(next_run_at > now()), sum(skipped_fires) FROM jobctl.job_schedules";
    assert_eq!(db.query(moved), "t|0");
    // A time that was fired is not fired again, even if a schedule says that it is the next time.
    db.execute(
        "DELETE FROM jobctl.job_schedules WHERE name <> 's1';
         UPDATE jobctl.job_runs SET status = 'cancelled', finished_at = now();
         UPDATE jobctl.job_schedules
         SET next_run_at = (SELECT max(scheduled_for) FROM jobctl.job_runs)",
    );
    tick_for_schedules_only(&db);
    assert_eq!(number_of_runs(&db), "10000");
}

#[test]
fn fire_refuses_times_that_the_schedule_of_an_application_cannot_have() {
    let db = db_with_jobs("overlap = 'allow'\ncatch_up = 'all'");
    schedule(&Role::granted(&db, "enqueuer"), "a", "'@hourly'");
    make_due_since(&db, "3 hours");
    // Calls `fire` as a tick does that has seen the schedule with this `next_run_at`. Returns
    // whether it fires. The arguments are SQL expressions.
    let fires = |definition: &str, seen: &str, next: &str, times: &str| {
        db.query(&format!(
            "SELECT jobctl.fire(
                 definition_id =>
                     (SELECT id FROM jobctl.job_definitions WHERE name = '{definition}'),
                 seen => {seen}, schedule => schedule, time_zone => time_zone, next => {next},
                 times => ARRAY[{times}]::timestamptz[], delay => '0', missed => 0,
                 put_off_until => NULL, schedule_id => id
             ) IS NOT NULL
             FROM jobctl.job_schedules"
        )) == "t"
    };
    let (seen, next) = ("next_run_at", "next_run_at + interval '1 day'");
    assert!(!fires("other", seen, next, seen), "the schedule is of another definition");
    assert!(
        !fires("report", "next_run_at - interval '1 minute'", next, seen),
        "another tick has fired it since"
    );
    assert!(!fires("report", seen, seen, seen), "the next time is not later");
    assert!(!fires("report", seen, "NULL", seen), "no next time would delete the schedule");
    // Changes after which the schedule must not fire at its stored time.
    for change in [
        "UPDATE jobctl.job_schedules SET starts_at = next_run_at + interval '1 minute'",
        "UPDATE jobctl.job_schedules SET ends_at = next_run_at - interval '1 minute'",
        "UPDATE jobctl.job_definitions SET paused_at = now()",
        "UPDATE jobctl.job_definitions SET enabled = false",
    ] {
        db.execute(change);
        assert!(!fires("report", seen, next, seen), "{change}");
        db.execute(
            "UPDATE jobctl.job_schedules SET starts_at = NULL, ends_at = NULL;
             UPDATE jobctl.job_definitions SET paused_at = NULL, enabled = true",
        );
    }
    assert_eq!(number_of_runs(&db), "0");
    // The true values fire it.
    assert!(fires("report", seen, next, seen));
    assert_eq!(number_of_runs(&db), "1");
}

#[test]
fn a_paused_or_disabled_job_pauses_its_schedules() {
    let db = db_with_jobs("");
    let app = Role::granted(&db, "enqueuer");
    schedule(&app, "a", "'@monthly'");
    tick_for_schedules_only(&db);
    let file = |enabled: bool| {
        db.apply(&format!("[jobs.report]\nshell = 'cat'\nenabled = {enabled}\n"));
    };
    let begins: [&dyn Fn(); 2] =
        [&|| drop(db.jobctl(["pause", "report"]).run().success().stderr("")), &|| file(false)];
    let ends: [&dyn Fn(); 2] =
        [&|| drop(db.jobctl(["resume", "report"]).run().success()), &|| file(true)];
    for (begin, end) in begins.into_iter().zip(ends) {
        begin();
        make_due_since(&db, "1 hour");
        tick_for_schedules_only(&db);
        assert_eq!(number_of_runs(&db), "0");
        end();
        // The times of the pause are skipped.
        tick_for_schedules_only(&db);
        assert_eq!(number_of_runs(&db), "0");
        assert_eq!(db.query("SELECT next_run_at > now() FROM jobctl.job_schedules"), "t");
    }
    let trail = db.jobctl(["trail", "--format", "tsv"]).run().success();
    trail.stdout_has(&format!("schedules of applications: 1 of {}", app.name()));
    // `resume` of a job that is not paused skips nothing. The resume before must not count: it
    // skipped all times until now.
    db.execute("UPDATE jobctl.job_definitions SET resumed_at = now() - interval '1 day'");
    make_due_since(&db, "1 hour");
    db.jobctl(["resume", "report"]).run().success();
    tick_for_schedules_only(&db);
    assert_eq!(number_of_runs(&db), "1");
}

#[test]
fn apply_leaves_schedules_alone_but_a_removed_job_takes_its_schedules_with_it() {
    let db = db_with_jobs("");
    let app = Role::granted(&db, "enqueuer");
    schedule(&app, "a", "'@daily'");
    let row = || db.query("SELECT schedule::text FROM jobctl.job_schedules AS schedule");
    tick_for_schedules_only(&db);
    make_due_since(&db, "1 hour");
    let before = row();
    let answer = db.apply("[jobs.report]\nshell = 'true'\nschedule = '@hourly'\n");
    assert!(!answer.contains("due"), "{answer}");
    assert_eq!(row(), before);
    let folder = crate::support::temp_dir();
    std::fs::write(folder.path().join("jobs.toml"), "[jobs.x]\nshell = 'true'\n").unwrap();
    db.apply("[jobs.report]\nshell = 'true'\n[jobs.x]\nshell = 'true'\n");
    let words = ["apply", "--prune", "jobs.toml"];
    let apply = || db.jobctl(words).current_dir(folder.path());
    // `apply` asks, because the removed definition has a schedule, if only of an application.
    apply().run().exits(2);
    assert_eq!(row(), before);
    apply().args(["--yes"]).run().success();
    assert_eq!(row(), "");
}

#[test]
fn a_login_may_make_at_most_100000_schedules_for_a_job() {
    let db = db_with_jobs("");
    let [app, other] = [(); 2].map(|()| Role::granted(&db, "enqueuer"));
    db.execute(&format!(
        "INSERT INTO jobctl.job_schedules (name, definition_id, schedule, time_zone, payload, owner)
         SELECT 's' || n, definition.id, '@daily', 'UTC', '{{}}', '{}'
         FROM generate_series(1, 100000) AS n
         JOIN jobctl.job_definitions AS definition ON definition.name = 'report'",
        app.name()
    ));
    let full = format!(
        "53400 login `{}` has 100000 schedules of job `report`; that is the limit",
        app.name()
    );
    assert_eq!(schedule(&app, "one", "'@daily'"), full);
    // The login may still replace a schedule. The limit is for one login and one job.
    assert_eq!(schedule(&app, "s7", "'@hourly'"), CHANGED);
    assert_eq!(schedule(&other, "two", "'@daily'"), ADDED);
    assert_eq!(answer_or_error(&app, "SELECT jobctl.schedule('one', 'other', '@daily')"), ADDED);
    // A deleted schedule makes room for a single new one.
    assert_eq!(answer_or_error(&app, "SELECT jobctl.unschedule('s7')"), "true");
    assert_eq!(schedule(&app, "three", "'@daily'"), ADDED);
    assert!(schedule(&app, "four", "'@daily'").starts_with("53400"));
    // A list shows the next five schedules of a job, and how many there are. The sixth row is the
    // schedule of `other`.
    let next = db.jobctl(["next", "--format", "json"]).run().success();
    let next =
        next.stderr_has("applications made 100,001 schedules for report; the next 5 are listed");
    let listed: Vec<serde_json::Value> = serde_json::from_str(&next.stdout).unwrap();
    assert_eq!(listed.len(), 6);
    // With --within, it reads the next 10,000.
    let within = db.jobctl(["next", "--within", "1h"]).run().success();
    within.stderr_has("applications made 100,001 schedules for report; the next 10000 are listed");
}

#[test]
fn next_jobs_and_report_show_which_login_made_each_schedule() {
    let db = db_with_jobs("");
    let [app, viewer] = ["enqueuer", "viewer"].map(|part| Role::granted(&db, part));
    schedule(&app, "weekly:7", "'0 9 * * mon', payload => '\"SECRET\"'");
    tick_for_schedules_only(&db);
    let next = viewer.jobctl(["next", "--format", "json"]).run().success();
    let next: Vec<serde_json::Value> = serde_json::from_str(&next.stdout).unwrap();
    let fact = |key: &str| next[0][key].as_str().unwrap();
    assert_eq!(next.len(), 1);
    assert_eq!(
        ["job_type", "application_schedule", "owner", "schedule", "state"].map(fact),
        ["report", "weekly:7", app.name(), "0 9 * * mon", "fires"]
    );
    // `next NAME` lists the schedules of applications for this job.
    let named = db.jobctl(["next", "report", "--format", "json"]).run().success();
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&named.stdout).unwrap(), next);
    db.jobctl(["next", "other"]).run().exits(4).stderr_has("definition `other` has no schedule");
    // Two schedules of one login.
    schedule(&app, "hourly:8", "'@hourly'");
    tick_for_schedules_only(&db);
    let within = viewer.jobctl(["next", "--within", "1h"]).run().success();
    within.stdout_has(&format!("hourly:8\t{}", app.name()));
    let job = db.jobctl(["jobs", "report", "--format", "json"]).run().success();
    let job: serde_json::Value = serde_json::from_str(&job.stdout).unwrap();
    assert_eq!(job["application_schedules"], 2);
    assert_eq!(job["schedule_owners"], serde_json::json!([app.name()]));
    // A pause of the job stops them.
    db.jobctl(["pause", "report"]).run().success().stderr("");
    db.jobctl(["jobs", "report"]).run().success().stdout_has("state\tpaused");
    db.jobctl(["next"]).run().success().stdout_has("paused");
    // The page names the logins, but shows no payload.
    let folder = crate::support::temp_dir();
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    db.jobctl(["report", "--output", page]).run().success();
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains(&format!("weekly:7 of login {}", app.name())), "{html}");
    assert!(html.contains("2 schedules"), "{html}");
    assert!(!html.contains("SECRET"));
    // A viewer may read the owners, but no payload. An enqueuer may read neither.
    let read = "SELECT name, owner, due_at FROM jobctl.job_schedules";
    viewer.client().query(read, &[]).unwrap();
    assert!(
        answer_or_error(&viewer, "SELECT payload FROM jobctl.job_schedules").starts_with("42501")
    );
    assert!(answer_or_error(&app, read).starts_with("42501"));
}

#[test]
fn check_names_schedules_that_do_not_fire() {
    let db = db_with_jobs("");
    let app = Role::granted(&db, "enqueuer");
    for name in ["a", "b", "c"] {
        schedule(&app, name, "'@yearly'");
    }
    tick_for_schedules_only(&db);
    db.jobctl(["check"]).run().success();
    // `check` calls a schedule late only if it has not been changed for a while, either.
    let let_time_pass = "UPDATE jobctl.job_schedules SET updated_at = now() - interval '1 hour'";
    // A restore on a server without this zone leaves `a` and `b` in this state.
    db.execute("UPDATE jobctl.job_schedules SET time_zone = 'Mars/Phobos' WHERE name < 'c'");
    make_due_since(&db, "10 minutes");
    db.execute(let_time_pass);
    let tick = db.tick_that_starts_nothing().run().success();
    tick.stderr_has("schedule of `a` does not fire: there is no time zone `Mars/Phobos`");
    let fired = "SELECT string_agg(schedule, ' ' ORDER BY id) FROM jobctl.job_runs";
    assert_eq!(db.query(fired), "c");
    let login = app.name();
    let broken = format!("2 schedules (such as a of login {login}) for report can't fire");
    db.jobctl(["check"]).run().exits(1).stdout_has(&broken);
    // The next tick leaves them alone.
    db.tick_that_starts_nothing().run().success().stderr("");
    // The application corrects the zone. The schedules are due, and no tick has fired them yet.
    assert_eq!(schedule(&app, "a", "'@yearly'"), "replaced");
    assert_eq!(schedule(&app, "b", "'@yearly'"), "replaced");
    let late = format!("2 schedules (such as a of login {login}) for report are late");
    db.execute(let_time_pass);
    db.jobctl(["check"]).run().exits(1).stdout_has(&late);
    tick_for_schedules_only(&db);
    assert_eq!(number_of_runs(&db), "3", "also a and b have fired");
}

#[test]
fn schedules_of_one_job_do_not_keep_others_waiting() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.b]\nshell = 'true'\nschedule = '* * * * *'\n");
    db.execute(
        "INSERT INTO jobctl.job_schedules
             (name, definition_id, schedule, time_zone, payload, next_run_at)
         SELECT 'a' || number, id, '* * * * *', 'UTC', '{}', date_trunc('minute', now())
         FROM jobctl.job_definitions, generate_series(1, 600) AS number WHERE name = 'a';
         UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now())
         WHERE name = 'b'",
    );
    db.tick_that_starts_nothing().args(["--quiet"]).run().success();
    // A tick fires 500 schedules at a time, and `a` has 600. Nevertheless the run of `b` is the
    // first one.
    let place = "SELECT count(*) FROM jobctl.job_runs WHERE id <= (
                     SELECT id FROM jobctl.job_runs WHERE job_type = 'b')";
    assert_eq!(db.query(place), "1");
}
