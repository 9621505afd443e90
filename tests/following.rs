//! Jobs that follow other jobs: `after` and `when` in definitions.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Role, TestDb, temp_dir};

const JOBS: &str = "
[jobs.export]
shell = 'echo orders'
schedule = '0 0 29 2 *'

[jobs.prices]
shell = 'echo stock'
schedule = '0 0 29 2 *'
max_attempts = 1

[jobs.report]
shell = 'cat; echo $JOBCTL_SCHEDULED_FOR $JOBCTL_AFTER >&2'
after = ['export', 'prices']
pass_result = true
payload = { a = 1 }
queue = 'reports'
priority = 7
expires = '1h'

[jobs.mail]
shell = 'true'
after = ['report']
";

/// A database with these jobs, and the time from which hours count.
fn db_with(jobs: &str) -> (TestDb, String) {
    let db = TestDb::new();
    db.apply(jobs);
    let base = db.query("SELECT date_trunc('hour', now())");
    (db, base)
}

fn db_without_schedules() -> (TestDb, String) {
    db_with(&JOBS.replace("schedule = '0 0 29 2 *'", ""))
}

/// Makes the schedules due since this many hours before `base`.
fn make_due_since_hours(db: &TestDb, base: &str, hours: i64) {
    db.execute(&format!(
        "UPDATE jobctl.job_definitions
         SET next_run_at = '{base}'::timestamptz - interval '{hours} h'
         WHERE schedule IS NOT NULL"
    ));
}

fn tick(db: &TestDb) {
    db.jobctl(["tick"]).run();
}

/// Fires the due schedules. A hold keeps the tick from starting runs.
fn fire_without_starting_runs(db: &TestDb) {
    db.jobctl(["hold", "--all"]).run().success();
    tick(db);
    db.jobctl(["release", "--all"]).run().success();
}

/// Returns the runs of a job: their statuses, and for how many hours ago they are scheduled.
fn statuses_and_hours(db: &TestDb, base: &str, job: &str) -> String {
    db.query(&format!(
        "SELECT coalesce(string_agg(concat_ws(' ', status,
             extract(epoch FROM '{base}'::timestamptz - scheduled_for)::integer / 3600), ', '
             ORDER BY id), '')
         FROM jobctl.job_runs WHERE job_type = '{job}'"
    ))
}

/// Returns the jobs of the ended runs that are noted until their followers are enqueued.
fn jobs_with_noted_ends(db: &TestDb) -> String {
    db.query(
        "SELECT coalesce(string_agg(job_type, ' ' ORDER BY job_type, run_id), '')
         FROM jobctl.job_predecessors",
    )
}

#[test]
fn the_whole_graph_of_a_time_is_there_after_its_fire() {
    let (db, base) = db_with(JOBS);
    make_due_since_hours(&db, &base, 9);
    fire_without_starting_runs(&db);
    assert_eq!(statuses_and_hours(&db, &base, "export"), "queued 9");
    let made = "SELECT status, payload, queue, priority, run_at = scheduled_for,
            expires_at - run_at, enqueued_by = pg_get_userbyid(nspowner)
        FROM jobctl.job_runs, pg_namespace
        WHERE job_type = 'report' AND nspname = 'jobctl'";
    assert_eq!(db.query(made), "blocked|{\"a\": 1}|reports|7|t|01:00:00|t");
    let edges = "SELECT waits.run_id, after_id, rule, state FROM jobctl.job_dependencies AS waits
        ORDER BY 1, 2";
    assert_eq!(db.query(edges), "3|1|success|open\n3|2|success|open\n4|3|success|open");
    assert_eq!(jobs_with_noted_ends(&db), "");
    db.jobctl(["list", "--after", "1", "--columns", "job_type"])
        .run()
        .success()
        .stdout("mail\nreport\n");
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded 9");
    let report = db.query("SELECT output FROM jobctl.job_attempts WHERE run_id = 3");
    let (input, variables) = report.split_once("--- stderr ---\n").unwrap();
    let input: Value = serde_json::from_str(input).unwrap();
    assert_eq!(input["payload"], json!({"a": 1}));
    let outputs = input["after"].as_array().unwrap().iter().map(|run| &run["output"]);
    assert_eq!(outputs.collect::<Vec<_>>(), ["orders\n", "stock\n"]);
    let time =
        db.of_run(1, "to_char(scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SSZ')");
    assert_eq!(variables.trim(), format!("{time} 1,2"));
    // Once for each time, also if a run before it is repeated.
    db.jobctl(["retry", "--again", "1", "2"]).run().success();
    tick(&db);
    make_due_since_hours(&db, &base, 8);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded 9, succeeded 8");
}

#[test]
fn a_failure_in_the_middle_stops_what_follows_until_a_retry() {
    let folder = temp_dir();
    let file = folder.path().join("stock");
    let jobs = JOBS.replace("echo stock", &format!("cat {}", file.display()));
    let (db, base) = db_with(&jobs);
    make_due_since_hours(&db, &base, 9);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "prices"), "dead 9");
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "blocked 9");
    // Another time does not count.
    fs::write(&file, "stock\n").unwrap();
    make_due_since_hours(&db, &base, 8);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "blocked 9, succeeded 8");
    db.jobctl(["retry", "--all-dead", "--yes"]).run().success();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded 9, succeeded 8");
    fs::remove_file(&file).unwrap();
    let with_rule = |rule: &str| {
        jobs.replace("['export', 'prices']", &format!("['export', 'prices']\nwhen = '{rule}'"))
    };
    db.apply(&with_rule("any_end"));
    make_due_since_hours(&db, &base, 7);
    tick(&db);
    db.apply(&with_rule("or_cancel"));
    make_due_since_hours(&db, &base, 6);
    tick(&db);
    assert_eq!(
        statuses_and_hours(&db, &base, "report"),
        "succeeded 9, succeeded 8, succeeded 7, cancelled 6"
    );
    assert_eq!(
        statuses_and_hours(&db, &base, "mail"),
        "succeeded 9, succeeded 8, succeeded 7, blocked 6"
    );
}

/// The run that is followed may have ended when the tick decides.
#[test]
fn a_run_that_died_before_its_follower_was_enqueued_decides_by_the_rule() {
    let (db, base) = db_with(&JOBS.replace("['report']", "['report']\nwhen = 'or_cancel'"));
    for hours in [9, 8] {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, status, scheduled_for, finished_at)
             VALUES ('report', 'dead', '{base}'::timestamptz - interval '{hours} h', now());
             INSERT INTO jobctl.job_predecessors (definition_id, scheduled_for, job_type, run_id)
             SELECT definition.id, run.scheduled_for, 'report', run.id
             FROM jobctl.job_runs AS run, jobctl.job_definitions AS definition
             WHERE name = 'mail' AND run.id = lastval()"
        ));
    }
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "cancelled 9, cancelled 8");
}

#[test]
fn an_undone_cancel_of_a_follower_blocks_it_again() {
    let (db, base) = db_with(JOBS);
    make_due_since_hours(&db, &base, 9);
    fire_without_starting_runs(&db);
    let cancel = ["cancel", "--job", "report", "--all-waiting", "--yes"];
    db.jobctl(cancel).run().success();
    assert_eq!(statuses_and_hours(&db, &base, "report"), "cancelled 9");
    let operation = db.query("SELECT max(operation) FROM jobctl.job_events");
    db.jobctl(["undo", &operation]).run().success();
    assert_eq!(statuses_and_hours(&db, &base, "report"), "blocked 9");
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded 9");
}

#[test]
fn a_follower_of_unscheduled_runs_starts_once_for_each_set_of_their_successes() {
    let (db, base) = db_without_schedules();
    let enqueue = |job: &str| {
        db.enqueue([job]);
        tick(&db);
    };
    ["export", "export"].into_iter().for_each(enqueue);
    assert_eq!(
        (statuses_and_hours(&db, &base, "report"), jobs_with_noted_ends(&db)),
        (String::new(), "export".into())
    );
    enqueue("prices");
    assert_eq!(
        (statuses_and_hours(&db, &base, "mail"), jobs_with_noted_ends(&db)),
        ("succeeded".to_owned(), String::new())
    );
    let after = "SELECT string_agg(after_id::text, ',' ORDER BY after_id)
        FROM jobctl.job_dependencies WHERE run_id = 4";
    assert_eq!(db.query(after), "2,3");
    enqueue("prices");
    assert_eq!(statuses_and_hours(&db, &base, "report"), "succeeded");
    enqueue("export");
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded, succeeded");
    // A job that dies has not succeeded; its retry has.
    db.execute(
        "UPDATE jobctl.job_definitions SET action = '{\"command\": \"exit 1\"}'
        WHERE name = 'prices'",
    );
    ["export", "prices"].into_iter().for_each(enqueue);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "succeeded, succeeded");
    db.execute(
        "UPDATE jobctl.job_definitions SET action = '{\"command\": \"true\"}'
        WHERE name = 'prices'",
    );
    db.jobctl(["retry", "--all-dead", "--yes"]).run().success();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded, succeeded, succeeded");
}

#[test]
fn with_any_end_a_run_without_a_time_counts_however_it_ends() {
    let (db, base) = db_with(
        "[jobs.a]\nshell = 'true'\n[jobs.b]\nshell = 'true'\nafter = ['a']\nwhen = 'any_end'\n",
    );
    let id = db.enqueue(["a", "--in", "1h"]).to_string();
    db.jobctl(["cancel", &id]).run().success();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "b"), "succeeded");
}

/// A transaction that ends a run only inserts a row, so the other end does not wait for it.
#[test]
fn an_open_transaction_delays_no_end_no_fire_and_no_follower() {
    let (db, base) = db_without_schedules();
    let ids = [db.enqueue(["export"]), db.enqueue(["prices"])];
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'w',
             locked_until = now() + interval '1 hour', started_at = '2026-01-05'",
    );
    let end = |id: i64| {
        format!(
            "SET LOCAL lock_timeout = 1;
             SELECT jobctl.end_runs('result', '{{{id}}}', '{{w}}', '{{1}}', '{{2026-01-05}}',
                 '{{succeeded}}', '{{0}}', '{{succeeded}}', started_ago => '{{1}}')"
        )
    };
    let [first, second] = ids.map(end);
    let mut client = db.client();
    let mut transaction = client.transaction().unwrap();
    transaction.batch_execute(&first).unwrap();
    db.execute(&format!("BEGIN; {second}; COMMIT"));
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "");
    transaction.commit().unwrap();
    // An application that holds the lock of a definition delays nothing.
    let mut transaction = client.transaction().unwrap();
    transaction
        .batch_execute(
            "SELECT FROM jobctl.job_definitions WHERE name IN ('report', 'mail') FOR UPDATE",
        )
        .unwrap();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded");
    db.execute(
        "UPDATE jobctl.job_definitions SET schedule = '0 0 29 2 *'
        WHERE name IN ('export', 'prices')",
    );
    make_due_since_hours(&db, &base, 9);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded, succeeded 9");
}

#[test]
fn two_ticks_at_once_enqueue_one_follower() {
    let (db, base) = db_without_schedules();
    db.enqueue(["export"]);
    db.enqueue(["prices"]);
    db.execute("UPDATE jobctl.job_definitions SET paused_at = now() WHERE after IS NOT NULL");
    tick(&db);
    // Another tick is about to decide about one of the rows, or about both.
    for rows in [1, 2] {
        db.execute(
            "UPDATE jobctl.job_definitions SET paused_at = NULL;
             INSERT INTO jobctl.job_predecessors (definition_id, job_type, run_id)
             SELECT definition.id, run.job_type, run.id
             FROM jobctl.job_runs AS run, jobctl.job_definitions AS definition
             WHERE name = 'report' AND run.job_type IN ('export', 'prices')",
        );
        let mut client = db.client();
        let mut transaction = client.transaction().unwrap();
        let lock = format!("SELECT FROM jobctl.job_predecessors LIMIT {rows} FOR UPDATE");
        transaction.batch_execute(&lock).unwrap();
        tick(&db);
        assert_eq!(jobs_with_noted_ends(&db), "export prices");
        transaction
            .batch_execute(
                "SELECT jobctl.enqueue_following(ARRAY[id], '{NULL}')
                 FROM jobctl.job_definitions WHERE name = 'report'",
            )
            .unwrap();
        tick(&db);
        transaction.commit().unwrap();
        tick(&db);
        assert_eq!(statuses_and_hours(&db, &base, "mail"), vec!["succeeded"; rows].join(", "));
    }
}

#[test]
fn a_follower_that_cannot_be_enqueued_delays_no_other() {
    let (db, base) = db_with(
        "[jobs.a]\nshell = 'true'\n[jobs.b]\nshell = 'true'\nafter = ['a']\n\
         [jobs.c]\nshell = 'true'\nafter = ['a']\n",
    );
    db.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.job_type = 'b') EXECUTE FUNCTION public.refuse()",
    );
    let id = db.enqueue(["a"]);
    db.jobctl(["tick"]).run().stderr_has("job b does not follow others: ").stderr_has("no");
    assert_eq!(
        (db.status(id), statuses_and_hours(&db, &base, "c")),
        ("succeeded".into(), "succeeded".into())
    );
    db.execute("DROP TRIGGER refuse ON jobctl.job_runs");
    tick(&db);
    assert_eq!(
        (statuses_and_hours(&db, &base, "b"), jobs_with_noted_ends(&db)),
        ("succeeded".to_owned(), String::new())
    );
}

#[test]
fn a_paused_or_disabled_job_follows_nothing() {
    let (db, base) = db_without_schedules();
    let work = || {
        db.enqueue(["export"]);
        db.enqueue(["prices"]);
        tick(&db);
        // Nothing is made up later.
        assert_eq!(jobs_with_noted_ends(&db), "");
    };
    db.jobctl(["pause", "report"]).run().success().stderr("");
    work();
    db.jobctl(["jobs", "--format", "table"]).run().success().stdout_has("paused");
    db.jobctl(["resume", "report"]).run().success();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "");
    db.execute("UPDATE jobctl.job_definitions SET enabled = false WHERE name = 'report'");
    work();
    db.execute("DELETE FROM jobctl.job_definitions WHERE name = 'report'");
    work();
    assert_eq!(statuses_and_hours(&db, &base, "report"), "");
}

#[test]
fn a_tick_looks_at_each_row_once() {
    let (db, base) = db_without_schedules();
    db.enqueue(["export"]);
    tick(&db);
    let new = "SELECT is_new FROM jobctl.job_predecessors";
    assert_eq!(db.query(new), "f");
    db.enqueue(["prices"]);
    tick(&db);
    assert_eq!(
        (statuses_and_hours(&db, &base, "mail"), db.query(new)),
        ("succeeded".into(), String::new())
    );
}

#[test]
fn rows_that_no_job_needs_are_deleted() {
    let (db, base) = db_without_schedules();
    // The newest row of each job stays.
    db.execute(
        "INSERT INTO jobctl.job_predecessors (definition_id, job_type, run_id)
         SELECT id, 'export', run
         FROM jobctl.job_definitions, generate_series(-30, -1) AS run WHERE name = 'report'",
    );
    tick(&db);
    assert_eq!(jobs_with_noted_ends(&db), "export");
    // The run was pruned since, but it has succeeded.
    db.enqueue(["prices"]);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "succeeded");
    assert_eq!(
        db.query(
            "SELECT string_agg(after_id::text, ' ') FROM jobctl.job_dependencies
        WHERE run_id = 2"
        ),
        "1"
    );
    // A job may end once a year.
    let age = |days| {
        db.execute(&format!(
            "UPDATE jobctl.job_predecessors SET noted_at = now() - interval '{days} days'"
        ))
    };
    db.enqueue(["export"]);
    tick(&db);
    age(700);
    db.enqueue(["prices"]);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "succeeded, succeeded");
    // But a job that was not fired for a time will not be.
    let note = |hours| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_predecessors (definition_id, job_type, run_id, scheduled_for)
             SELECT id, 'export', -1, '{base}'::timestamptz - interval '{hours} h'
             FROM jobctl.job_definitions WHERE name = 'report'"
        ));
        tick(&db);
    };
    note(9);
    age(6);
    note(8);
    assert_eq!(jobs_with_noted_ends(&db), "export export");
    age(7);
    note(7);
    assert_eq!(jobs_with_noted_ends(&db), "export");
    db.execute("DELETE FROM jobctl.job_predecessors");
    // Of runs that are gone, none is followed.
    db.execute(
        "INSERT INTO jobctl.job_predecessors (definition_id, job_type, run_id)
         SELECT id, job, -1 FROM jobctl.job_definitions, unnest(after) AS job
         WHERE name = 'report'",
    );
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "succeeded, succeeded, succeeded");
    db.enqueue(["export"]);
    tick(&db);
    db.execute("TRUNCATE jobctl.job_runs");
    assert_eq!(jobs_with_noted_ends(&db), "");
}

#[test]
fn a_follower_continues_the_trace_and_belongs_to_the_owner() {
    let (db, _) = db_without_schedules();
    let role = Role::granted(&db, "enqueuer");
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = ["enqueue", "prices", "--traceparent", TRACE];
    role.jobctl(["enqueue", "export"]).run().success();
    role.jobctl(traced).run().success();
    let worker = Role::granted(&db, "worker");
    worker.jobctl(["tick"]).run().success();
    let of_job = |job: &str| {
        db.query(&format!(
            "SELECT status, traceparent, enqueued_by = pg_get_userbyid(nspowner)
             FROM jobctl.job_runs, pg_namespace
             WHERE job_type = '{job}' AND nspname = 'jobctl'"
        ))
    };
    assert_eq!(of_job("mail"), format!("succeeded|{TRACE}|t"));
    assert_eq!(of_job("prices"), format!("succeeded|{TRACE}|f"));
    // Of runs that an operator ends, too.
    db.execute("UPDATE jobctl.job_definitions SET \"when\" = 'any_end' WHERE name = 'report'");
    let operator = Role::granted(&db, "operator");
    for job in ["export", "prices"] {
        let id = db.enqueue([job, "--in", "1h"]).to_string();
        operator.jobctl(["cancel", &id]).run().success();
    }
    worker.jobctl(["tick"]).run().success();
    assert!(of_job("mail").ends_with("\nsucceeded||t"), "{}", of_job("mail"));
}

#[test]
fn a_hook_with_pass_result_reads_the_attempt_that_ended() {
    let db = TestDb::new();
    let hook = "[jobs.b]\nshell = 'cat'\npass_result = true\nqueue = 'hooks'\n";
    db.apply(&format!("[jobs.a]\nshell = 'echo one'\non_success = 'b'\n{hook}"));
    let id = db.enqueue(["a"]).to_string();
    db.jobctl(["tick", "--queue", "default"]).run().success();
    db.apply(&format!("[jobs.a]\nshell = 'echo two'\non_success = 'b'\n{hook}"));
    db.jobctl(["retry", "--again", &id]).run().success();
    db.jobctl(["tick", "--queue", "default"]).run().success();
    tick(&db);
    let read = "SELECT output::jsonb -> 'after' -> 0 ->> 'output',
            output::jsonb -> 'payload' ->> 'attempts'
        FROM jobctl.job_attempts WHERE run_id <> 1 ORDER BY run_id";
    assert_eq!(db.query(read), "one\n|1\ntwo\n|2");
}

/// The runs that follow are held while a retry of the first one begins another attempt.
#[test]
fn a_run_with_pass_result_reads_the_attempt_that_released_it_and_not_a_later_one() {
    let db = TestDb::new();
    let rest = "[jobs.b]\nshell = 'cat'\npass_result = true\nqueue = 'later'\n\
        [jobs.c]\nshell = 'cat'\npass_result = true\nqueue = 'later'\nafter = ['a']\n";
    db.apply(&format!("[jobs.a]\nshell = 'echo one'\n{rest}"));
    let id = db.enqueue(["a"]).to_string();
    db.enqueue(["b", "--after", &id]);
    db.jobctl(["tick", "--queue", "default"]).run().success();
    db.enqueue(["b", "--after", &id]);
    db.apply(&format!("[jobs.a]\nshell = 'echo two'\n{rest}"));
    db.jobctl(["retry", "--again", &id]).run().success();
    db.jobctl(["tick", "--queue", "default"]).run().success();
    tick(&db);
    let read = "SELECT run.job_type, output::jsonb -> 'after' -> 0 ->> 'output'
        FROM jobctl.job_attempts AS attempt JOIN jobctl.job_runs AS run ON run.id = run_id
        WHERE run_id > 1 ORDER BY run_id";
    assert_eq!(db.query(read), "b|one\n\nc|one\n\nb|one\n\nc|two\n");
}

#[test]
fn a_run_that_another_one_cancels_is_followed_at_once() {
    let (db, base) = db_with(
        "[jobs.a]\nshell = 'exit 1'\nmax_attempts = 1\n[jobs.b]\nshell = 'true'\n\
         [jobs.c]\nshell = 'true'\nafter = ['b']\nwhen = 'any_end'\n",
    );
    let id = db.enqueue(["a"]).to_string();
    db.enqueue(["b", "--after", &id, "--or-cancel"]);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "c"), "succeeded");
}

/// In SQL, an application only enqueues the first jobs. What follows is not its own.
#[test]
fn an_application_enqueues_the_first_jobs_in_its_transaction() {
    let (db, base) = db_without_schedules();
    let role = Role::granted(&db, "enqueuer");
    let mut client = role.client();
    let mut transaction = client.transaction().unwrap();
    let both = "SELECT jobctl.enqueue('export'), jobctl.enqueue('prices')";
    transaction.batch_execute(both).unwrap();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "export"), "");
    transaction.commit().unwrap();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded");
    let visible = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM jobctl.results('{1,2,3,4}')";
    assert_eq!(client.query_one(visible, &[]).unwrap().get::<_, &str>(0), "1 2");
    for denied in [
        "INSERT INTO jobctl.job_predecessors (definition_id, job_type, run_id) VALUES (3, 'a', 1)",
        "SELECT FROM jobctl.job_predecessors",
        "SELECT FROM jobctl.following_jobs",
        "SELECT jobctl.enqueue_following('{3}', '{NULL}')",
        "SELECT jobctl.note_predecessors('{1}')",
    ] {
        let error = client.batch_execute(denied).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{denied}: {error}");
    }
}

#[test]
fn circles_and_unknown_jobs_are_refused() {
    let (db, base) = db_with("[jobs.z]\nshell = 'true'\n");
    let refused = |file: &str, why: &str| {
        let apply = db.jobctl(["apply", "-", "--yes"]).stdin(file).run().exits(2).stdout("");
        apply.stderr(&format!("jobctl: cannot apply: {why}\n"));
        assert_eq!(db.query("SELECT string_agg(name, ' ') FROM jobctl.job_definitions"), "z");
    };
    let job = |name: &str, keys: &str| format!("[jobs.{name}]\nshell = 'true'\n{keys}\n");
    refused(
        &job("a", "after = ['b']"),
        "-: job `a`: `after`: no definition `b`; add it to the file",
    );
    refused(&job("a", "after = ['a']"), "-: job `a`: its end would enqueue it again: a -> a");
    let circle =
        job("a", "after = ['c']") + &job("b", "after = ['a', 'd']") + &job("c", "after = ['b']");
    refused(
        &(circle + &job("d", "") + &job("e", "after = ['a']")),
        "-: job `a`: its end would enqueue it again: a -> b -> c -> a",
    );
    // A hook enqueues, too.
    refused(
        &(job("a", "on_success = 'b'\nafter = ['b']") + &job("b", "")),
        "-: job `a`: its end would enqueue it again: a -> b -> a",
    );
    refused(
        &(job("a", "after = ['b', 'c']") + &job("b", "schedule = '@daily'") + &job("c", "")),
        "-: job `a`: `after`: `b` has scheduled times and `c` has none; name jobs of one kind",
    );
    refused(
        &(job("a", "after = ['b', 'c']")
            + &job("b", "schedule = '0 2 * * *'")
            + &job("c", "schedule = '0 3 * * *'")),
        "-: job `a`: `after`: the schedules of b, c have no time in common; give them one schedule",
    );
    for (keys, why) in [
        ("after = []", "must name 1 to 100 jobs"),
        ("after = 'b'", "must be a list of jobs"),
        ("after = ['b', 'b']", "\"b\" stands twice"),
        ("after = ['shell']", "\"shell\" is the name of a built-in job"),
        ("after = [7]", "must be a string"),
        (
            "schedule = '@daily'\nafter = ['b']",
            "excludes `schedule`: the job has the times of those that it follows",
        ),
        (
            "each_worker = true\nafter = ['b']",
            "excludes `each_worker`: the job has the times of those that it follows",
        ),
    ] {
        let line = 3 + keys.matches('\n').count();
        refused(&job("a", keys), &format!("-:{line}: job `a`: `after`: {why}"));
    }
    refused(&job("a", "when = 'any_end'"), "-:3: job `a`: `when` needs `after`; add it");
    // A diamond is not a circle.
    db.apply(
        &(job("a", "")
            + &job("b", "after = ['a']")
            + &job("c", "after = ['a']")
            + &job("d", "after = ['b', 'c']")),
    );
    db.enqueue(["a"]);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "d"), "succeeded");
}

#[test]
fn apply_prints_the_graph_that_it_changes() {
    let db = TestDb::new();
    let apply = |file: &str, flags: &[&str]| {
        let arguments = ["apply", "-", "--yes", "--format", "table"].into_iter();
        db.jobctl(arguments.chain(flags.iter().copied())).stdin(file).run().success()
    };
    apply(JOBS, &["--dry-run"]).stdout_has("export, prices -> report\nreport -> mail\n");
    apply(JOBS, &[]).stdout_has("export, prices -> report\nreport -> mail\n").stderr("");
    apply(JOBS, &[]).prints_nowhere(" -> ");
    let changed = JOBS.replace("after = ['report']", "after = ['report']\nmax_attempts = 3");
    let changed = apply(&changed, &[]);
    changed.stdout_has("\nreport -> mail\n").prints_nowhere("-> report");
}

#[test]
fn commands_say_what_a_job_follows() {
    let (db, base) = db_with(JOBS);
    let says = "after export, prices";
    for command in [&["jobs"][..], &["jobs", "report"], &["next"]] {
        let arguments = command.iter().copied().chain(["--format", "table"]);
        db.jobctl(arguments).run().success().stdout_has(says);
    }
    let refused = db.jobctl(["next", "report"]).run().exits(4);
    refused.stderr_has("definition `report` has no schedule: it follows export, prices");
    make_due_since_hours(&db, &base, 9);
    tick(&db);
    db.jobctl(["report"]).run().success().stdout_has(says);
    let viewer = Role::granted(&db, "viewer");
    viewer.jobctl(["next"]).run().success().stdout_has(says);
    viewer.jobctl(["report"]).run().success().stdout_has(says);
}

#[test]
fn ends_that_another_session_has_locked_delay_no_follower() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.b]\nshell = 'true'\nafter = ['a']\npriority = 9\n");
    db.execute(
        "INSERT INTO jobctl.job_predecessors (definition_id, job_type, run_id)
         SELECT id, 'a', 1 FROM jobctl.job_definitions WHERE name = 'b'",
    );
    let mut other = db.client();
    let mut other = other.transaction().unwrap();
    other.execute("SELECT FROM jobctl.job_predecessors WHERE run_id = 1 FOR UPDATE", &[]).unwrap();
    db.enqueue(["a"]);
    let runs = "SELECT count(*) FROM jobctl.job_runs WHERE job_type = 'b'";
    let before: i64 = db.query(runs).parse().unwrap();
    db.jobctl(["tick"]).run().success();
    db.jobctl(["tick"]).run().success();
    let after: i64 = db.query(runs).parse().unwrap();
    assert!(after > before, "{before} {after}");
}
