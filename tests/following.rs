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

/// Returns a database with these jobs, and the start of this hour: `hours` count back from it.
fn db_with(jobs: &str) -> (TestDb, String) {
    let db = TestDb::new();
    db.apply(jobs);
    let base = db.query("SELECT date_trunc('hour', now())");
    (db, base)
}

/// Returns a database with `JOBS`, but without the schedules of `export` and `prices`, which tests
/// enqueue; and the start of this hour.
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

/// Fires due schedules, and executes runs until no run is due.
fn tick(db: &TestDb) {
    db.jobctl(["tick"]).run();
}

/// Fires the due schedules. A hold keeps the tick from starting runs.
fn fire_without_starting_runs(db: &TestDb) {
    db.jobctl(["hold", "--all"]).run().success();
    tick(db);
    db.jobctl(["release", "--all"]).run().success();
}

/// Returns the runs of a job: the status of each, and for how many hours before `base` it is
/// scheduled. A run without a scheduled time has only its status.
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
    // The columns of the report come from its definition, and the run belongs to the owner.
    let made = "SELECT status, payload, queue, priority, run_at = scheduled_for,
            expires_at - run_at, enqueued_by = pg_get_userbyid(nspowner)
        FROM jobctl.job_runs, pg_namespace
        WHERE job_type = 'report' AND nspname = 'jobctl'";
    assert_eq!(db.query(made), "blocked|{\"a\": 1}|reports|7|t|01:00:00|t");
    // The report (3) waits for the export (1) and the prices (2), and the mail (4) for the report.
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
}

#[test]
fn a_follower_reads_the_results_of_its_predecessors_and_starts_once_for_each_time() {
    let (db, base) = db_with(JOBS);
    make_due_since_hours(&db, &base, 9);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded 9");
    // The runs 1 and 2 are of `export` and `prices`, and run 3 is of `report`. The script of
    // `report` prints its input, and then two variables to stderr.
    let report = db.query("SELECT output FROM jobctl.job_attempts WHERE run_id = 3");
    let (input, variables) = report.split_once("--- stderr ---\n").unwrap();
    let input: Value = serde_json::from_str(input).unwrap();
    assert_eq!(input["payload"], json!({"a": 1}));
    let outputs = input["after"].as_array().unwrap().iter().map(|run| &run["output"]);
    assert_eq!(outputs.collect::<Vec<_>>(), ["orders\n", "stock\n"]);
    let time =
        db.of_run(1, "to_char(scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SSZ')");
    assert_eq!(variables.trim(), format!("{time} 1,2"));
    // A repetition of the first runs starts no follower for their time again.
    db.jobctl(["retry", "--again", "1", "2"]).run().success();
    tick(&db);
    make_due_since_hours(&db, &base, 8);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded 9, succeeded 8");
}

#[test]
fn a_failure_in_the_middle_stops_what_follows_until_a_retry() {
    // `prices` fails until this file exists.
    let folder = temp_dir();
    let file = folder.path().join("stock");
    let jobs = JOBS.replace("echo stock", &format!("cat {}", file.display()));
    let (db, base) = db_with(&jobs);
    make_due_since_hours(&db, &base, 9);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "prices"), "dead 9");
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "blocked 9");
    // A success for another time does not release the followers of this one.
    fs::write(&file, "stock\n").unwrap();
    make_due_since_hours(&db, &base, 8);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "blocked 9, succeeded 8");
    db.jobctl(["retry", "--all-dead", "--yes"]).run().success();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded 9, succeeded 8");
}

#[test]
fn after_a_failure_the_rule_decides_whether_a_follower_starts_or_is_cancelled() {
    let jobs = JOBS.replace("echo stock", "exit 1");
    let (db, base) = db_with(&jobs);
    let with_rule = |rule: &str| {
        jobs.replace("['export', 'prices']", &format!("['export', 'prices']\nwhen = '{rule}'"))
    };
    db.apply(&with_rule("any_end"));
    make_due_since_hours(&db, &base, 7);
    tick(&db);
    db.apply(&with_rule("or_cancel"));
    make_due_since_hours(&db, &base, 6);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "succeeded 7, cancelled 6");
    // The mail has the rule `success`, so it waits for a retry of the report.
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded 7, blocked 6");
}

/// A predecessor may have ended before the tick enqueues its follower. Here the dead reports of two
/// times are noted as ended, and the mails do not exist yet.
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
    // `undo` takes the number of the operation, here of the cancel.
    let operation = db.query("SELECT max(operation) FROM jobctl.job_events");
    db.jobctl(["undo", &operation]).run().success();
    assert_eq!(statuses_and_hours(&db, &base, "report"), "blocked 9");
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded 9");
}

#[test]
fn a_follower_of_unscheduled_runs_starts_once_for_each_set_of_their_successes() {
    let (db, base) = db_without_schedules();
    let run = |job: &str| {
        db.enqueue([job]);
        tick(&db);
    };
    // Only the newest export counts, and there are no prices yet.
    ["export", "export"].into_iter().for_each(run);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "");
    assert_eq!(jobs_with_noted_ends(&db), "export");
    // The first prices complete the set of runs 2 and 3, so the report (run 4) and the mail start.
    run("prices");
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded");
    assert_eq!(jobs_with_noted_ends(&db), "");
    let after = "SELECT string_agg(after_id::text, ',' ORDER BY after_id)
        FROM jobctl.job_dependencies WHERE run_id = 4";
    assert_eq!(db.query(after), "2,3");
    // The second set needs a new run of both jobs.
    run("prices");
    assert_eq!(statuses_and_hours(&db, &base, "report"), "succeeded");
    run("export");
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded, succeeded");
    // A dead run does not complete the third set; its retry does.
    db.execute(
        "UPDATE jobctl.job_definitions SET action = '{\"command\": \"exit 1\"}'
        WHERE name = 'prices'",
    );
    ["export", "prices"].into_iter().for_each(run);
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
    // This run of `a` is cancelled before it is due.
    let id = db.enqueue(["a", "--in", "1h"]).to_string();
    db.jobctl(["cancel", &id]).run().success();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "b"), "succeeded");
}

/// A transaction that ends a run only inserts a row of job_predecessors. So two runs with the same
/// follower can end at once: neither end waits for the other.
#[test]
fn the_open_end_of_one_predecessor_delays_no_end_of_another() {
    let (db, base) = db_without_schedules();
    let ids = [db.enqueue(["export"]), db.enqueue(["prices"])];
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'w',
             locked_until = now() + interval '1 hour', started_at = '2026-01-05'",
    );
    // What a tick does to record a success. It fails if it must wait for a lock for 1 ms.
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
    // The first end is not committed, so the report has one predecessor of two.
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "");
    transaction.commit().unwrap();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded");
}

#[test]
fn a_locked_definition_delays_no_fire_and_no_follower() {
    let (db, base) = db_without_schedules();
    db.enqueue(["export"]);
    db.enqueue(["prices"]);
    // An open transaction keeps the definitions of the followers locked for the whole test.
    let mut client = db.client();
    let mut transaction = client.transaction().unwrap();
    transaction
        .batch_execute(
            "SELECT FROM jobctl.job_definitions WHERE name IN ('report', 'mail') FOR UPDATE",
        )
        .unwrap();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded");
    // With schedules, the fire enqueues the followers.
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
    // These runs end while the jobs that follow are paused, so no follower is enqueued yet.
    db.enqueue(["export"]);
    db.enqueue(["prices"]);
    db.execute("UPDATE jobctl.job_definitions SET paused_at = now() WHERE after IS NOT NULL");
    tick(&db);
    // Another tick has locked one of the rows that note these ends, or both.
    for rows in [1, 2] {
        // Note both ends, as `end_runs` does for a follower that is not paused.
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
        // This tick leaves the decision to the other one, which then makes it.
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
    // A trigger of another program rejects the runs of `b`.
    db.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON jobctl.job_runs FOR EACH ROW
             WHEN (NEW.job_type = 'b') EXECUTE FUNCTION public.refuse()",
    );
    let id = db.enqueue(["a"]);
    db.jobctl(["tick"]).run().stderr_has("job b does not follow others: ").stderr_has("no");
    assert_eq!(db.status(id), "succeeded");
    assert_eq!(statuses_and_hours(&db, &base, "c"), "succeeded");
    // job_predecessors keeps the end of `a` until `b` is enqueued.
    assert_eq!(jobs_with_noted_ends(&db), "a");
    db.execute("DROP TRIGGER refuse ON jobctl.job_runs");
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "b"), "succeeded");
    assert_eq!(jobs_with_noted_ends(&db), "");
}

#[test]
fn a_paused_or_disabled_job_follows_nothing() {
    let (db, base) = db_without_schedules();
    let end_both_predecessors = || {
        db.enqueue(["export"]);
        db.enqueue(["prices"]);
        tick(&db);
        // No end stays noted, so the report does not follow them later.
        assert_eq!(jobs_with_noted_ends(&db), "");
    };
    db.jobctl(["pause", "report"]).run().success().stderr("");
    end_both_predecessors();
    db.jobctl(["jobs", "--format", "table"]).run().success().stdout_has("paused");
    db.jobctl(["resume", "report"]).run().success();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "");
    // The same if it is disabled or deleted.
    db.execute("UPDATE jobctl.job_definitions SET enabled = false WHERE name = 'report'");
    end_both_predecessors();
    db.execute("DELETE FROM jobctl.job_definitions WHERE name = 'report'");
    end_both_predecessors();
    assert_eq!(statuses_and_hours(&db, &base, "report"), "");
}

/// A noted end is new until a tick has looked at it. Later ticks look at it again only together
/// with a new one that may complete the set.
#[test]
fn a_noted_end_is_new_until_a_tick_has_looked_at_it() {
    let (db, base) = db_without_schedules();
    db.enqueue(["export"]);
    tick(&db);
    let new = "SELECT is_new FROM jobctl.job_predecessors";
    assert_eq!(db.query(new), "f");
    db.enqueue(["prices"]);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded");
    assert_eq!(db.query(new), "", "the follower is enqueued, so both rows are gone");
}

/// Sets the age of all noted ends.
fn age_noted_ends(db: &TestDb, days: u32) {
    db.execute(&format!(
        "UPDATE jobctl.job_predecessors SET noted_at = now() - interval '{days} days'"
    ));
}

#[test]
fn of_the_ends_without_a_scheduled_time_only_the_newest_of_each_job_is_kept() {
    // `export` has no schedule, so its runs have no scheduled time.
    let (db, base) = db_without_schedules();
    // As if 30 exports had succeeded and were pruned since. No run has these ids; -1 is the newest.
    db.execute(
        "INSERT INTO jobctl.job_predecessors (definition_id, job_type, run_id)
         SELECT id, 'export', run
         FROM jobctl.job_definitions, generate_series(-30, -1) AS run WHERE name = 'report'",
    );
    tick(&db);
    let noted = "SELECT job_type, run_id FROM jobctl.job_predecessors";
    assert_eq!(db.query(noted), "export|-1");
    // The pruned export still counts as a predecessor: its end was noted because it succeeded. But
    // a run can't wait for a deleted one, so the report (run 2) waits for the prices (run 1) alone.
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
}

#[test]
fn an_end_without_a_scheduled_time_is_kept_for_years() {
    let (db, base) = db_without_schedules();
    db.enqueue(["export"]);
    tick(&db);
    // The other job may run once a year.
    age_noted_ends(&db, 700);
    db.enqueue(["prices"]);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "succeeded");
}

/// If the other job has not been fired for that time within a week, it never will be.
#[test]
fn an_end_with_a_scheduled_time_is_kept_for_a_week() {
    let (db, base) = db_without_schedules();
    let note_end_of_hour = |hours| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_predecessors (definition_id, job_type, run_id, scheduled_for)
             SELECT id, 'export', -1, '{base}'::timestamptz - interval '{hours} h'
             FROM jobctl.job_definitions WHERE name = 'report'"
        ));
        tick(&db);
    };
    note_end_of_hour(9);
    age_noted_ends(&db, 6);
    note_end_of_hour(8);
    assert_eq!(jobs_with_noted_ends(&db), "export export");
    // The next tick deletes the two old rows, and keeps the new one.
    age_noted_ends(&db, 7);
    note_end_of_hour(7);
    assert_eq!(jobs_with_noted_ends(&db), "export");
}

#[test]
fn a_follower_starts_although_its_predecessors_were_pruned_since_their_ends() {
    let (db, base) = db_without_schedules();
    // The ends of an export and of prices are noted, but no run has the id -1.
    db.execute(
        "INSERT INTO jobctl.job_predecessors (definition_id, job_type, run_id)
         SELECT id, job, -1 FROM jobctl.job_definitions, unnest(after) AS job
         WHERE name = 'report'",
    );
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "report"), "succeeded");
}

#[test]
fn a_truncation_of_the_runs_deletes_their_noted_ends() {
    let (db, _) = db_without_schedules();
    db.enqueue(["export"]);
    tick(&db);
    assert_eq!(jobs_with_noted_ends(&db), "export");
    db.execute("TRUNCATE jobctl.job_runs");
    assert_eq!(jobs_with_noted_ends(&db), "");
}

#[test]
fn a_follower_continues_the_trace_and_belongs_to_the_owner() {
    let (db, _) = db_without_schedules();
    let role = Role::granted(&db, "enqueuer");
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    // Of the two predecessors, only the run of `prices` has a trace.
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
    // The follower belongs to the owner, too, if an operator ended its predecessors.
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
    // The hooks are in a queue of their own, so they start only after both attempts.
    let hook = "[jobs.b]\nshell = 'cat'\npass_result = true\nqueue = 'hooks'\n";
    db.apply(&format!("[jobs.a]\nshell = 'echo one'\non_success = 'b'\n{hook}"));
    let id = db.enqueue(["a"]).to_string();
    db.jobctl(["tick", "--queue", "default"]).run().success();
    db.apply(&format!("[jobs.a]\nshell = 'echo two'\non_success = 'b'\n{hook}"));
    db.jobctl(["retry", "--again", &id]).run().success();
    db.jobctl(["tick", "--queue", "default"]).run().success();
    tick(&db);
    let read = format!(
        "SELECT output::jsonb -> 'after' -> 0 ->> 'output',
             output::jsonb -> 'payload' ->> 'attempts'
         FROM jobctl.job_attempts WHERE run_id <> {id} ORDER BY run_id"
    );
    // The hook of each attempt: the output that it reads, and the attempt's number.
    assert_eq!(db.query(&read), ["one\n|1", "two\n|2"].join("\n"));
}

/// The runs that read the output are in another queue. So they start only after a retry has made
/// another attempt.
#[test]
fn a_run_with_pass_result_reads_the_attempt_that_released_it_and_not_a_later_one() {
    let db = TestDb::new();
    // `b` waits for a run by `--after`. `c` follows each run of `a` by its definition.
    let rest = "[jobs.b]\nshell = 'cat'\npass_result = true\nqueue = 'later'\n\
        [jobs.c]\nshell = 'cat'\npass_result = true\nqueue = 'later'\nafter = ['a']\n";
    db.apply(&format!("[jobs.a]\nshell = 'echo one'\n{rest}"));
    let id = db.enqueue(["a"]).to_string();
    // The end of the first attempt releases this run of `b`, and enqueues a run of `c`.
    db.enqueue(["b", "--after", &id]);
    db.jobctl(["tick", "--queue", "default"]).run().success();
    // This run of `b` waits for nothing, because `a` has succeeded.
    db.enqueue(["b", "--after", &id]);
    // The end of the second attempt enqueues another run of `c`.
    db.apply(&format!("[jobs.a]\nshell = 'echo two'\n{rest}"));
    db.jobctl(["retry", "--again", &id]).run().success();
    db.jobctl(["tick", "--queue", "default"]).run().success();
    // Now all four start.
    tick(&db);
    let read = format!(
        "SELECT run.job_type, output::jsonb -> 'after' -> 0 ->> 'output'
         FROM jobctl.job_attempts AS attempt JOIN jobctl.job_runs AS run ON run.id = run_id
         WHERE run_id <> {id} ORDER BY run_id"
    );
    // Each run's job, and the output that it read.
    assert_eq!(db.query(&read), ["b|one\n", "c|one\n", "b|one\n", "c|two\n"].join("\n"));
}

/// The tick in which `a` dies cancels the run of `b`, enqueues the run of `c` and starts it.
#[test]
fn a_run_that_its_predecessor_cancels_is_followed_at_once() {
    let (db, base) = db_with(
        "[jobs.a]\nshell = 'exit 1'\nmax_attempts = 1\n[jobs.b]\nshell = 'true'\n\
         [jobs.c]\nshell = 'true'\nafter = ['b']\nwhen = 'any_end'\n",
    );
    let id = db.enqueue(["a"]).to_string();
    db.enqueue(["b", "--after", &id, "--or-cancel"]);
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "c"), "succeeded");
}

#[test]
fn the_first_jobs_of_a_graph_start_after_the_commit_of_the_transaction_that_enqueues_them() {
    let (db, base) = db_without_schedules();
    let mut client = db.client();
    let mut transaction = client.transaction().unwrap();
    let both = "SELECT jobctl.enqueue('export'), jobctl.enqueue('prices')";
    transaction.batch_execute(both).unwrap();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "export"), "");
    transaction.commit().unwrap();
    tick(&db);
    assert_eq!(statuses_and_hours(&db, &base, "mail"), "succeeded");
}

/// The runs that follow belong to the owner of the schema. So an enqueuer reads the results of the
/// runs that it enqueued, and not those of the runs that followed.
#[test]
fn an_enqueuer_has_no_right_to_runs_and_rows_of_jobs_that_follow_its_own() {
    let (db, base) = db_without_schedules();
    let role = Role::granted(&db, "enqueuer");
    let mut client = role.client();
    let both = "SELECT jobctl.enqueue('export'), jobctl.enqueue('prices')";
    client.batch_execute(both).unwrap();
    tick(&db);
    // The enqueuer's runs have the ids 1 and 2, so run 3 is of `report`, and run 4 of `mail`.
    let followers = "SELECT job_type FROM jobctl.job_runs WHERE id > 2 ORDER BY id";
    assert_eq!(db.query(followers), "report\nmail");
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
fn jobs_that_follow_each_other_in_a_circle_are_refused() {
    let (db, base) = db_with("[jobs.z]\nshell = 'true'\n");
    // A refused file changes nothing: `z` stays the only definition.
    let refused = |file: &str, why: &str| {
        let apply = db.jobctl(["apply", "-", "--yes"]).stdin(file).run().exits(2).stdout("");
        apply.stderr(&format!("jobctl: cannot apply: {why}\n"));
        assert_eq!(db.query("SELECT string_agg(name, ' ') FROM jobctl.job_definitions"), "z");
    };
    let job = |name: &str, keys: &str| format!("[jobs.{name}]\nshell = 'true'\n{keys}\n");
    refused(&job("a", "after = ['a']"), "-: job `a`: its end would enqueue it again: a -> a");
    // `d` and `e` are beside the circle, so the error leaves them out.
    let circle =
        job("a", "after = ['c']") + &job("b", "after = ['a', 'd']") + &job("c", "after = ['b']");
    refused(
        &(circle + &job("d", "") + &job("e", "after = ['a']")),
        "-: job `a`: its end would enqueue it again: a -> b -> c -> a",
    );
    // The end of `a` enqueues `b` as its hook, and the end of `b` enqueues `a`.
    refused(
        &(job("a", "on_success = 'b'\nafter = ['b']") + &job("b", "")),
        "-: job `a`: its end would enqueue it again: a -> b -> a",
    );
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
fn a_wrong_after_is_refused() {
    let db = TestDb::new();
    let refused = |file: &str, why: &str| {
        let apply = db.jobctl(["apply", "-", "--yes"]).stdin(file).run().exits(2).stdout("");
        apply.stderr(&format!("jobctl: cannot apply: {why}\n"));
        assert_eq!(db.query("SELECT count(*) FROM jobctl.job_definitions"), "0");
    };
    let job = |name: &str, keys: &str| format!("[jobs.{name}]\nshell = 'true'\n{keys}\n");
    refused(
        &job("a", "after = ['b']"),
        "-: job `a`: `after`: no definition `b`; add it to the file",
    );
    // A job that follows several jobs needs times at which all of them have a run.
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
    // These errors name the line of `after`, which is the last one of the file. The first key of
    // `keys` is in line 3.
    for (keys, why) in [
        ("after = []", "must name 1 to 100 jobs"),
        ("after = 'b'", "must be a list of jobs"),
        ("after = ['b', 'b']", "\"b\" stands twice"),
        ("after = ['shell']", "\"shell\" is the name of a built-in job"),
        ("after = [7]", "must be a string"),
        (
            "schedule = '@daily'\nafter = ['b']",
            "excludes `schedule`: the job has the times of the jobs in `after`",
        ),
        (
            "each_worker = true\nafter = ['b']",
            "excludes `each_worker`: the job has the times of the jobs in `after`",
        ),
    ] {
        let line = 3 + keys.matches('\n').count();
        refused(&job("a", keys), &format!("-:{line}: job `a`: `after`: {why}"));
    }
    refused(&job("a", "when = 'any_end'"), "-:3: job `a`: `when` needs `after`; add it");
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
    // Only `mail` changes, so only its predecessor is printed.
    let changed = JOBS.replace("after = ['report']", "after = ['report']\nmax_attempts = 3");
    let changed = apply(&changed, &[]);
    changed.stdout_has("\nreport -> mail\n").prints_nowhere("-> report");
}

#[test]
fn commands_say_what_a_job_follows() {
    let (db, base) = db_with(JOBS);
    // `report` follows these two jobs.
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
    // Another session has locked the noted end of one run of `a`.
    let mut other = db.client();
    let mut other = other.transaction().unwrap();
    other.execute("SELECT FROM jobctl.job_predecessors WHERE run_id = 1 FOR UPDATE", &[]).unwrap();
    // The end of another run of `a` enqueues a run of `b` nevertheless.
    db.enqueue(["a"]);
    let runs_of_b = "SELECT count(*) FROM jobctl.job_runs WHERE job_type = 'b'";
    let before: i64 = db.query(runs_of_b).parse().unwrap();
    db.jobctl(["tick"]).run().success();
    db.jobctl(["tick"]).run().success();
    let after: i64 = db.query(runs_of_b).parse().unwrap();
    assert!(after > before, "{before} {after}");
}
