//! What each role may do with the statements that `grants` prints, and what it may not.

use crate::support::{Role, TestDb, jobctl, temp_dir};

const PARTS: [&str; 5] = ["enqueuer", "effects", "worker", "operator", "viewer"];

fn db_with_jobs_and_runs() -> TestDb {
    let db = TestDb::new();
    insert_jobs_and_runs(&db);
    db
}

/// Adds the jobs `a` and `nightly`, which has a schedule, a dead run and a waiting run.
fn insert_jobs_and_runs(db: &TestDb) {
    db.apply("[jobs.a]\nshell = 'cat'\n[jobs.nightly]\nshell = 'true'\nschedule = '@yearly'\n");
    let dead = db.enqueue(["shell", "--", "sh", "-c", "exit 64"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(dead), "dead");
    db.enqueue(["a", "--in", "1h"]);
}

/// Grants a role all privileges on objects that are created later.
const DEFAULT_PRIVILEGES: &str = "ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO {role};
     ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {role};
     ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO {role};
     ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO {role}";

const ALL_PRIVILEGES: &str = "GRANT ALL ON SCHEMA jobctl TO {role};
     GRANT ALL ON ALL TABLES IN SCHEMA jobctl TO {role};
     GRANT ALL ON ALL SEQUENCES IN SCHEMA jobctl TO {role};
     GRANT ALL ON ALL FUNCTIONS IN SCHEMA jobctl TO {role}";

/// Asserts that this role may execute the first statements, and that the others fail for lack of a
/// privilege. Reports all violations at once.
#[track_caller]
fn assert_may<'a>(role: &Role<'_>, may: &[&'a str], may_not: impl IntoIterator<Item = &'a str>) {
    let mut client = role.client();
    let mut otherwise = String::new();
    let statements =
        may.iter().map(|sql| ("00000", *sql)).chain(may_not.into_iter().map(|sql| ("42501", sql)));
    for (expected, sql) in statements {
        let code = match client.batch_execute(&format!("BEGIN; {sql}")) {
            Ok(()) => "00000".to_owned(),
            Err(error) => {
                error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned())
            }
        };
        client.batch_execute("ROLLBACK").unwrap();
        if code != expected {
            otherwise += &format!("{code}: {sql}\n");
        }
    }
    assert_eq!(otherwise, "");
}

/// Asserts that a role with the grants of this part may execute the first statements, and not the
/// others, also if it had more privileges before.
#[track_caller]
fn assert_grants_allow_exactly(part: &str, may: &[&str], may_not: &[&str]) {
    let db = db_with_jobs_and_runs();
    assert_may(&Role::granted(&db, part), may, may_not.iter().copied());

    // By default, this role gets all privileges on each new object of the database. `migrate`
    // revokes them.
    let db = TestDb::empty();
    let role = Role::new(&db);
    db.execute(&DEFAULT_PRIVILEGES.replace("{role}", role.name()));
    db.jobctl(["migrate"]).run().success();
    insert_jobs_and_runs(&db);
    let all: Vec<_> = may.iter().chain(may_not).copied().collect();
    assert_may(&role, &[], all);

    // By hand, the role gets all privileges. The statements of `grants` revoke all others.
    db.execute(&ALL_PRIVILEGES.replace("{role}", role.name()));
    role.grant(part);
    assert_may(&role, may, may_not.iter().copied());
}

#[test]
fn an_error_names_the_sets_of_grants_only_if_one_of_them_helps() {
    let (db, folder) = (db_with_jobs_and_runs(), temp_dir());
    let all_parts = Role::new(&db);
    let words = ["grants", "--role", all_parts.name(), "--as"].into_iter().chain(PARTS);
    db.execute(&jobctl(words).run().success().stdout);
    let waiting = db.query("SELECT max(id) FROM jobctl.job_runs");
    let file = folder.path().join("jobs.toml");
    std::fs::write(&file, "[jobs.b]\nshell = 'true'\n").unwrap();
    let file = file.to_str().unwrap();
    // Only the owner may do this, so no set of grants helps.
    let remedy = "no set of `jobctl grants` allows it: connect as the schema's owner\n";
    for words in [
        &["apply", file, "--yes"][..],
        &["apply", file, "--dry-run"],
        &["edit", &waiting, "--payload-file", "-"],
        &["enqueue", "shell", "--", "true"],
        &["enqueue", "--key", "k", "shell", "--", "true"],
        &["enqueue", "http", "{\"url\": \"http://a\"}"],
        &["enqueue", "--run", "shell", "--", "true"],
        &["load", "--runs", "1", "--yes"],
    ] {
        let refused = all_parts.jobctl(words.iter().copied()).stdin("{}").run().exits(7);
        let refused = refused.complains_once();
        refused.stderr_has("permission denied").stderr_has(remedy);
    }
    // An operator may do this, so a set of grants helps a role that has none.
    let no_part = Role::new(&db);
    let edit = no_part.jobctl(["edit", &waiting, "--priority", "1"]);
    let refused = edit.run().exits(7).complains_once();
    refused.stderr_has("`jobctl grants --role ROLE --as SET` prints what a role needs");
}

/// Statements that only the owner may execute.
const OWNERS: &[&str] = &[
    "INSERT INTO jobctl.job_runs (job_type, payload) VALUES ('shell', '{\"command\": \"id\"}')",
    "INSERT INTO jobctl.job_definitions (name, kind, action) VALUES ('x', 'shell', '{\"command\": \
        \"id\"}')",
    "UPDATE jobctl.job_definitions SET action = '{\"command\": \"id\"}'",
    "UPDATE jobctl.job_definitions SET schedule = '@yearly'",
    "UPDATE jobctl.job_definitions SET payload = '{}'",
    "UPDATE jobctl.job_definitions SET enabled = true",
    "DELETE FROM jobctl.job_definitions",
    "UPDATE jobctl.job_runs SET payload = '{\"command\": \"id\"}'",
    "UPDATE jobctl.job_runs SET job_type = 'shell'",
    "UPDATE jobctl.job_runs SET definition_id = 1",
    "UPDATE jobctl.job_runs SET idempotency_key = 'k'",
    "UPDATE jobctl.job_attempts SET output = ''",
    "INSERT INTO jobctl.job_figures (job_type) VALUES ('a')",
    "UPDATE jobctl.job_figures SET dead = 0",
    "DELETE FROM jobctl.job_figures",
    "DELETE FROM jobctl.job_attempts",
    "UPDATE jobctl.schema_migrations SET version = 99",
    "INSERT INTO jobctl.schema_migrations SELECT * FROM jobctl.schema_migrations",
    "DELETE FROM jobctl.schema_migrations",
    "TRUNCATE jobctl.job_runs",
    "TRUNCATE jobctl.job_effects",
    "TRUNCATE jobctl.job_events",
    FORGE[0],
    FORGE[1],
    FORGE[2],
    "ALTER TABLE jobctl.job_runs ADD COLUMN x int",
    "DROP TABLE jobctl.job_effects",
    "CREATE TABLE jobctl.mine (x int)",
    "CREATE FUNCTION jobctl.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE VIEW jobctl.dead_runs AS SELECT 1",
    "DROP SCHEMA jobctl CASCADE",
    "SELECT nextval('jobctl.job_runs_id_seq')",
    "SELECT setval('jobctl.job_runs_id_seq', 1)",
    "ALTER TABLE jobctl.job_runs OWNER TO CURRENT_USER",
];

/// `OWNERS` and more.
fn owners_and(more: &[&'static str]) -> Vec<&'static str> {
    OWNERS.iter().chain(more).copied().collect()
}

/// Tables with columns that a viewer may not read.
const TABLES_WITH_SECRETS: [&str; 5] =
    ["job_runs", "job_definitions", "job_attempts", "job_effects", "job_locked_runs"];

/// Statements on the trail that only the owner may execute.
const FORGE: [&str; 3] = [
    "UPDATE jobctl.job_events SET reason = ''",
    "INSERT INTO jobctl.job_events (action, recorded_by) VALUES ('prune', 'x')",
    "INSERT INTO jobctl.job_events (action, recorded_at) VALUES ('prune', now())",
];

/// Stores a lease in place of a locked run, as only workers may.
const KEEP: &str = "INSERT INTO jobctl.job_locked_runs (run_id, attempt, worker, started_at, \
    locked_until) VALUES (1, 1, 'w', now(), now())";

/// Calls a function that only workers may call.
const FIRE: &str = "SELECT jobctl.fire(1, now(), '', '', now(), '{}', '0', 0)";

#[test]
fn a_role_without_grants_may_do_nothing() {
    let db = db_with_jobs_and_runs();
    let role = Role::new(&db);
    let statements = owners_and(&[
        FIRE,
        "SELECT * FROM jobctl.job_runs",
        "SELECT * FROM jobctl.dead_runs",
        "SELECT * FROM jobctl.schema_migrations",
        "SELECT jobctl.enqueue('a')",
        "SELECT jobctl.record_effect('k')",
    ]);
    assert_may(&role, &[], statements);
    role.jobctl(["enqueue", "a"]).run().exits(7).complains_once();
    role.jobctl(["tick"]).run().exits(7).complains_once();
}

#[test]
fn an_enqueuer_enqueues_definitions_and_reads_nothing() {
    assert_grants_allow_exactly(
        "enqueuer",
        &[
            "SELECT jobctl.enqueue('a', '[1]', key => 'k')",
            "SELECT (jobctl.try_enqueue('a', NULL, 'k', NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
                NULL)).id",
        ],
        &owners_and(&[
            FIRE,
            "SELECT jobctl.record_effect('k')",
            "SELECT jobctl.may_settle('a', 'b')",
            "SELECT jobctl.is_operator('a')",
            "SELECT id FROM jobctl.job_runs",
            "SELECT name FROM jobctl.job_definitions",
            "SELECT run_id FROM jobctl.job_attempts",
            "SELECT run_id FROM jobctl.job_locked_runs",
            KEEP,
            "DELETE FROM jobctl.job_locked_runs",
            "SELECT key FROM jobctl.job_effects",
            "SELECT worker FROM jobctl.job_workers",
            "SELECT id FROM jobctl.job_events",
            "INSERT INTO jobctl.job_events (action) VALUES ('prune')",
            "SELECT id FROM jobctl.dead_runs",
            "SELECT id FROM jobctl.long_running_runs",
            "UPDATE jobctl.job_runs SET status = 'queued'",
            "UPDATE jobctl.job_runs SET run_at = now()",
            "DELETE FROM jobctl.job_runs",
            "DELETE FROM jobctl.job_workers",
            "INSERT INTO jobctl.job_effects (key) VALUES ('k')",
            "DELETE FROM jobctl.job_effects",
            "INSERT INTO jobctl.job_workers (worker, version, last_tick_at) VALUES ('w', '1', \
             now())",
            "UPDATE jobctl.job_definitions SET paused_at = now()",
        ]),
    );
}

#[test]
fn an_effects_role_can_only_record_effects() {
    assert_grants_allow_exactly(
        "effects",
        &["SELECT jobctl.record_effect('k')"],
        &owners_and(&[
            FIRE,
            "SELECT jobctl.enqueue('a')",
            "SELECT jobctl.may_settle('a', 'b')",
            "SELECT key FROM jobctl.job_effects",
            "SELECT id FROM jobctl.job_runs",
            "INSERT INTO jobctl.job_effects (key) VALUES ('k')",
            "UPDATE jobctl.job_effects SET completed_at = now()",
            "DELETE FROM jobctl.job_effects",
        ]),
    );
}

#[test]
fn a_worker_moves_runs_but_cannot_change_their_work() {
    assert_grants_allow_exactly(
        "worker",
        &[
            FIRE,
            "SELECT * FROM jobctl.job_runs, jobctl.job_definitions",
            "UPDATE jobctl.job_runs SET status = 'running', attempts = attempts + 1, locked_by = \
                'w', locked_until = now()
                WHERE status = 'queued'",
            "INSERT INTO jobctl.job_workers (worker, version, last_tick_at) VALUES ('w', '1', \
             now())",
            "INSERT INTO jobctl.job_effects (key, run_id, attempt) VALUES ('k', 1, 1)",
            "UPDATE jobctl.job_effects SET completed_at = now()",
            "DELETE FROM jobctl.job_effects",
            "INSERT INTO jobctl.job_events (action, host_user, detail) VALUES ('prune', 'w', '1')",
            KEEP,
            "UPDATE jobctl.job_locked_runs SET locked_until = now()",
            "DELETE FROM jobctl.job_locked_runs",
        ],
        &owners_and(&[
            "INSERT INTO jobctl.job_events (action, run_id) VALUES ('retry', 1)",
            "INSERT INTO jobctl.job_events (action, job) VALUES ('pause', 'a')",
            "DELETE FROM jobctl.job_events",
            "SELECT jobctl.record_effect('k')",
            "UPDATE jobctl.job_effects SET recorded_by = current_user",
            "INSERT INTO jobctl.job_effects (key, recorded_by) VALUES ('k', 'postgres')",
            "DELETE FROM jobctl.job_runs",
            "DELETE FROM jobctl.job_workers",
            "UPDATE jobctl.job_runs SET max_attempts = 1000",
            "UPDATE jobctl.job_runs SET settled_at = now()",
            "UPDATE jobctl.job_runs SET queue = 'q'",
            "UPDATE jobctl.job_definitions SET paused_at = now()",
            "UPDATE jobctl.job_definitions SET next_run_at = now()",
            "SELECT jobctl.enqueue('a')",
            "SELECT jobctl.try_enqueue('a', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
                NULL)",
        ]),
    );
}

/// A claim adds one to `attempts`. An attempt that was not started, interrupted or snoozed does not
/// count: then the worker lowers `attempts` by one, or raises `uncounted_attempts` by one. It may
/// do that once for each claim, when it releases the run to `queued` or `cancelled`. Otherwise it
/// could start a run more often than `max_attempts` allows.
#[test]
fn a_worker_may_uncount_one_attempt_and_only_when_it_releases_the_run() {
    let db = db_with_jobs_and_runs();
    let worker = Role::granted(&db, "worker");
    let run = db.enqueue(["a"]);
    // Returns whether the worker may set the columns `after` of a run with the columns `before`. If
    // not, one of two constraints must be the reason.
    let may_update = |before: &str, after: &str| {
        db.execute(&format!("UPDATE jobctl.job_runs SET {before} WHERE id = {run}"));
        let mut client = worker.client();
        let refused = client
            .batch_execute(&format!("BEGIN; UPDATE jobctl.job_runs SET {after} WHERE id = {run}"))
            .err();
        client.batch_execute("ROLLBACK").unwrap();
        let refusal = refused
            .map(|error| error.as_db_error().unwrap().constraint().unwrap_or_default().to_owned());
        assert!(
            refusal.as_deref().is_none_or(|it| {
                it == "attempts_only_go_up" || it == "uncounted_attempts_follow_attempts"
            }),
            "{refusal:?}"
        );
        refusal.is_none()
    };
    let no_lease = "locked_by = NULL, locked_until = NULL";
    let running = "status = 'running', attempts = 3, locked_by = 'w', locked_until = now() + \
        interval '1 hour'";
    let (uncount, uncount_two) = ("uncounted_attempts = 1", "uncounted_attempts = 2");
    let (lower, lower_by_two) = ("attempts = 2", "attempts = 1");
    // The new status, the change of a number, and whether both are allowed.
    for (status, change, is_allowed) in [
        ("status = 'queued'", lower, true),
        ("status = 'queued'", lower_by_two, false),
        ("status = 'queued'", uncount, true),
        ("status = 'queued'", uncount_two, false),
        ("status = 'cancelled', finished_at = now()", lower, true),
        ("status = 'failed'", lower, false),
        ("status = 'failed'", uncount, false),
        ("status = 'succeeded', finished_at = now()", lower, false),
    ] {
        let after = format!("{no_lease}, {status}, {change}");
        assert_eq!(may_update(running, &after), is_allowed, "{after}");
    }
    // The worker keeps the run.
    assert!(!may_update(running, lower));
    // The worker does not have the run, so it may only leave the number as it is.
    for status in ["queued", "failed"] {
        let waiting = format!("{no_lease}, status = '{status}', attempts = 3");
        assert!(!may_update(&waiting, lower), "{status}");
        assert!(may_update(&waiting, "attempts = 3"), "{status}");
    }
}

/// A worker writes texts that other roles list. The constraints `texts_are_...` limit their
/// lengths, so a worker that writes the longest texts slows no command down.
#[test]
fn the_longest_texts_that_a_worker_may_write_break_no_listing() {
    let db = db_with_jobs_and_runs();
    let worker = Role::granted(&db, "worker");
    let long = "repeat('x', 1048576)";
    let mut client = worker.client();
    client
        .batch_execute(&format!(
            "UPDATE jobctl.job_runs SET last_error = {long}, live_output = {long},
                 error_type = repeat('x', 100)
             WHERE status = 'dead'"
        ))
        .unwrap();
    // Returns a statement that inserts an attempt whose texts have these lengths.
    let insert_attempt = |worker: usize, error_type: usize, error: usize, output: usize| {
        format!(
            "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at,
                 outcome, error_type, error, output)
             SELECT run_id, 2, repeat('x', {worker}), now(), now(), outcome,
                 repeat('x', {error_type}), repeat('x', {error}), repeat('x', {output})
             FROM jobctl.job_attempts"
        )
    };
    let [name_limit, code_limit, text_limit] = [255, 100, 1_048_576];
    let longest = insert_attempt(name_limit, code_limit, text_limit, text_limit);
    client.batch_execute(&longest).unwrap();

    // One character more is too long for each of the columns.
    let too_long = [
        insert_attempt(name_limit + 1, 1, 1, 1),
        insert_attempt(1, code_limit + 1, 1, 1),
        insert_attempt(1, 1, text_limit + 1, 1),
        insert_attempt(1, 1, 1, text_limit + 1),
        "UPDATE jobctl.job_runs SET error_type = repeat('x', 101)".to_owned(),
        format!("UPDATE jobctl.job_runs SET last_error = {long} || 'x'"),
        format!("UPDATE jobctl.job_runs SET live_output = {long} || 'x'"),
        "UPDATE jobctl.job_runs SET status = 'running', locked_by = repeat('x', 256),
             locked_until = now(), finished_at = NULL WHERE status = 'dead'"
            .to_owned(),
        "UPDATE jobctl.job_workers SET version = repeat('x', 256)".to_owned(),
    ];
    for statement in too_long {
        let error = client.batch_execute(&statement).unwrap_err();
        let constraint = error.as_db_error().unwrap().constraint().unwrap_or_default();
        assert!(constraint.starts_with("texts_are_"), "{statement}: {error}: {constraint}");
    }

    for command in [
        &["list"][..],
        &["list-dead"],
        &["list-dead", "--group"],
        &["failures"],
        &["failures", "--group"],
        &["status"],
        &["report"],
    ] {
        db.jobctl(command.iter().copied()).run().success();
    }
    db.jobctl(["check"]).run().exits(1).stdout_has("1 dead run");
}

#[test]
fn an_operator_manages_runs_but_cannot_choose_commands() {
    assert_grants_allow_exactly(
        "operator",
        &[
            "SELECT * FROM jobctl.job_runs, jobctl.job_definitions, jobctl.job_attempts, \
                jobctl.job_effects",
            "SELECT * FROM jobctl.dead_runs",
            "SELECT jobctl.enqueue('a')",
            "UPDATE jobctl.job_runs SET settled_at = now() WHERE status = 'dead'",
            "UPDATE jobctl.job_runs SET queue = 'q', priority = 1, timeout = '1 s', backoff = \
             'fixed:1s'",
            "DELETE FROM jobctl.job_runs WHERE status = 'dead'",
            "DELETE FROM jobctl.job_workers",
            "DELETE FROM jobctl.job_effects",
            "SELECT jobctl.definition_keys(definition) FROM jobctl.job_definitions AS definition",
            "INSERT INTO jobctl.job_events (action, run_id, job, host_user, reason, detail) VALUES \
                ('retry', 1, 'a', 'ana@web1', 'why', 'was dead')",
            "DELETE FROM jobctl.job_events",
        ],
        &owners_and(&[
            FIRE,
            KEEP,
            "UPDATE jobctl.job_locked_runs SET locked_until = now()",
            "DELETE FROM jobctl.job_locked_runs",
            "UPDATE jobctl.job_runs SET attempts = 0",
            "UPDATE jobctl.job_runs SET enqueued_by = 'x'",
            "UPDATE jobctl.job_effects SET recorded_by = 'x'",
            "SELECT jobctl.record_effect('k')",
        ]),
    );
}

#[test]
fn a_viewer_sees_no_payload_command_or_output() {
    let whole_tables = TABLES_WITH_SECRETS.map(|table| format!("SELECT * FROM jobctl.{table}"));
    assert_grants_allow_exactly(
        "viewer",
        &[
            "SELECT * FROM jobctl.dead_runs",
            "SELECT * FROM jobctl.long_running_runs",
            "SELECT * FROM jobctl.daily_figures",
            "SELECT * FROM jobctl.job_figures",
            "SELECT * FROM jobctl.job_workers",
            "SELECT * FROM jobctl.job_events",
            "SELECT * FROM jobctl.schema_migrations",
            "SELECT job_type, status, run_at, last_error FROM jobctl.job_runs",
            "SELECT worker, error_type, exit_code, signal, http_status FROM jobctl.job_attempts",
            "SELECT name, schedule, next_run_at FROM jobctl.job_definitions",
        ],
        &[
            &whole_tables.each_ref().map(String::as_str)[..],
            OWNERS,
            &[
                FIRE,
                KEEP,
                "SELECT payload FROM jobctl.job_runs",
                "SELECT id FROM jobctl.job_runs WHERE payload <> '{}'",
                "SELECT idempotency_key FROM jobctl.job_runs",
                "SELECT action FROM jobctl.job_definitions",
                "SELECT payload FROM jobctl.job_definitions",
                "SELECT error FROM jobctl.job_attempts",
                "SELECT output FROM jobctl.job_attempts",
                "SELECT key FROM jobctl.job_effects",
                "SELECT id FROM jobctl.job_runs FOR SHARE",
                "SELECT jobctl.enqueue('a')",
                "SELECT jobctl.record_effect('k')",
                "UPDATE jobctl.job_runs SET status = 'queued'",
                "DELETE FROM jobctl.job_runs",
                "INSERT INTO jobctl.job_events (action) VALUES ('prune')",
                "DELETE FROM jobctl.job_events",
                "UPDATE jobctl.job_workers SET version = ''",
                "UPDATE jobctl.dead_runs SET queue = 'q'",
            ],
        ]
        .concat(),
    );
}

#[test]
fn the_views_and_tables_that_a_viewer_may_read_whole_have_no_secret_column() {
    let db = TestDb::new();
    assert_eq!(
        db.query(
            "SELECT DISTINCT column_name FROM information_schema.columns
             WHERE table_schema = 'jobctl' AND table_name IN ('dead_runs', 'long_running_runs', \
             'job_workers')
                AND column_name IN ('payload', 'output', 'action', 'idempotency_key')"
        ),
        ""
    );
}

#[test]
fn remedies_say_if_only_an_operator_may_run_them() {
    let db = db_with_jobs_and_runs();
    // Two findings: a dead run, and no worker has ever ticked.
    db.execute("DELETE FROM jobctl.job_workers");
    let remedies = |part| {
        let check = Role::granted(&db, part).jobctl(["check", "--json"]).run().exits(1);
        let found: serde_json::Value = serde_json::from_str(&check.stdout).unwrap();
        let findings = found["findings"].as_array().unwrap();
        let of = |code| findings.iter().find(|one| one["code"] == code).unwrap()["remedy"].clone();
        [of("runs_dead"), of("worker_missing")]
    };
    let [dead, missing] = remedies("operator");
    let list_dead = dead.as_str().unwrap();
    assert!(list_dead.starts_with("`jobctl list-dead --job "), "{list_dead}");
    // A viewer may not list dead runs. The remedy for the missing worker needs no role.
    let for_viewer = format!("as an operator: {list_dead}");
    assert_eq!(remedies("viewer"), [for_viewer.into(), missing]);
}

#[test]
fn an_enqueuer_can_only_enqueue_from_the_command_line() {
    let db = db_with_jobs_and_runs();
    let role = Role::granted(&db, "enqueuer");
    let id = role.jobctl(["enqueue", "a", "[1]", "--key", "k"]).run().success().stderr("").stdout;
    role.jobctl(["enqueue", "a", "[1]", "--key", "k"]).run().success().stdout(&id);
    // The error of a key and of a missing definition are as for other roles.
    role.jobctl(["enqueue", "a", "[2]", "--key", "k"]).run().exits(4).complains_once();
    role.jobctl(["enqueue", "absent"]).run().exits(3).complains_once();
    role.jobctl(["enqueue", "--batch", "-"])
        .stdin("{\"job_type\": \"a\"}\n{\"job_type\": \"a\"}\n")
        .run()
        .success();

    let id = id.trim();
    for refused in [
        &["enqueue", "shell", "--", "id"][..],
        &["enqueue", "http", "{\"url\": \"http://127.0.0.1\"}"],
        &["tick"],
        &["tick", "--dry-run"],
        &["retry", id],
        &["cancel", id],
        &["settle", id],
        &["edit", id, "--queue", "q"],
        &["list-dead"],
        &["failures"],
        &["list"],
        &["show", id],
        &["jobs"],
        &["jobs", "nightly"],
        &["pause", "nightly"],
        &["resume", "nightly"],
        &["once", "k", "--", "true"],
    ] {
        role.jobctl(refused.iter().copied()).run().exits(7).stdout("").complains_once();
    }
    // The run from before, the run with a key, and the two runs of the batch are unchanged.
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_runs WHERE job_type = 'a' AND status = 'queued'"),
        "4"
    );
}

#[test]
fn the_worker_grants_suffice_for_a_whole_tick() {
    let db = db_with_jobs_and_runs();
    let role = Role::granted(&db, "worker");
    // A due schedule, a lost lease, a limited definition, a failure, a success and an effect.
    db.apply(
        "[jobs.a]\nshell = 'cat'\n[jobs.nightly]\nshell = 'true'\nschedule = '@yearly'\n
         [jobs.limited]\nshell = 'true'\nmax_running = 1\n",
    );
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now()) WHERE \
        name = 'nightly'",
    );
    let [lost, good, bad] = ["true", "true", "exit 1"].map(|script| db.enqueue_script(script));
    db.execute(&format!(
        "UPDATE jobctl.job_runs
         SET status = 'running', attempts = 1, locked_by = 'elsewhere', started_at = now(),
             locked_until = now() - interval '1 minute'
         WHERE id = {lost}"
    ));
    let limited = db.enqueue(["limited"]);
    let effect = db.enqueue_script(&format!("'{}' once k -- true", env!("CARGO_BIN_EXE_jobctl")));
    role.jobctl(["tick", "--dry-run"]).run().success();
    role.jobctl(["tick"]).env("DATABASE_URL", &role.url()).run().success();
    assert_eq!(
        [lost, good, bad, limited, effect].map(|id| db.status(id)),
        ["failed", "succeeded", "failed", "succeeded", "succeeded"]
    );
    assert_eq!(
        db.query("SELECT status FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL"),
        "succeeded"
    );
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_effects WHERE completed_at IS NOT NULL"),
        "1"
    );

    // Heartbeats, and a run that is cancelled while it is running.
    let cancelled = db.enqueue_script("exec sleep 60");
    let tick = role.jobctl(["tick", "--lease", "3s", "--concurrency", "1"]).spawn();
    db.wait_for_status(cancelled, "running");
    db.wait_for_renewals(cancelled, 1);
    db.jobctl(["cancel", &cancelled.to_string()]).run().success();
    tick.wait().success();
    assert_eq!(db.status(cancelled), "cancelled");

    // A run that the end of its tick interrupts.
    let interrupted = db.enqueue(["shell", "--", "sleep", "60"]);
    let tick = role.jobctl(["tick", "--grace", "0s"]).spawn();
    db.wait_for_status(interrupted, "running");
    tick.signal(rustix::process::Signal::TERM);
    tick.wait().success();
    assert_eq!(db.status(interrupted), "queued");

    // A worker may not use the commands of other roles.
    let id = interrupted.to_string();
    for refused in [&["retry", &id][..], &["cancel", &id], &["enqueue", "a"], &["pause", "nightly"]]
    {
        role.jobctl(refused.iter().copied()).run().exits(7);
    }
}

#[test]
fn an_operator_lists_retries_cancels_pauses_and_settles() {
    let db = db_with_jobs_and_runs();
    let role = Role::granted(&db, "operator");
    let dead = db.query("SELECT id FROM jobctl.dead_runs");
    role.jobctl(["list-dead"]).run().success().stdout_has(&dead);
    role.jobctl(["list-dead", "--group"]).run().success().stdout_has(&dead);
    role.jobctl(["failures"]).run().success();
    role.jobctl(["list", "--since", "1h"]).run().success().stdout_has(&dead);
    role.jobctl(["show", &dead]).run().success().stdout_has("status\tdead\n");
    role.jobctl(["retry", &dead]).run().success();
    role.jobctl(["cancel", &dead]).run().success();
    role.jobctl(["retry", "--all-dead", "--yes"]).run().success();
    // A running run can be asked to stop, and be taken from its worker.
    let running = db.enqueue(["a"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs
         SET status = 'running', attempts = 1, locked_by = 'w', started_at = now(),
             locked_until = now() + interval '1 hour'
         WHERE id = {running}"
    ));
    role.jobctl(["cancel", &running.to_string()]).run().success();
    role.jobctl(["retry", "--force", &running.to_string()]).run().success();

    role.jobctl(["pause", "nightly"]).run().success();
    role.jobctl(["resume", "nightly"]).run().success();
    role.jobctl(["enqueue", "a"]).run().success();
    role.jobctl(["enqueue", "a", "--after", &running.to_string()]).run().success();

    // An effect that is open: it is unknown whether it happened.
    db.execute("INSERT INTO jobctl.job_effects (key) VALUES ('open')");
    role.jobctl(["once", "--settle", "redo", "open"]).run().success();
    role.jobctl(["once", "open", "--", "true"]).run().success();
}

#[test]
fn an_operator_can_neither_choose_a_command_nor_execute_one() {
    let db = db_with_jobs_and_runs();
    let role = Role::granted(&db, "operator");
    let folder = crate::support::temp_dir();
    std::fs::write(folder.path().join("jobs.toml"), "[jobs.a]\nshell = 'id'\n").unwrap();
    role.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run().exits(7).complains_once();
    role.jobctl(["enqueue", "shell", "--", "id"]).run().exits(7).complains_once();
    role.jobctl(["tick"]).run().exits(7);
}

#[test]
fn every_role_except_the_enqueuer_reads_the_status() {
    let db = db_with_jobs_and_runs();
    for part in ["viewer", "worker", "operator"] {
        let role = Role::granted(&db, part);
        role.jobctl(["status"]).run().success().stdout_has("job\tnightly\t");
        role.jobctl(["status", "--prometheus", "--job", "a"])
            .run()
            .success()
            .stdout_has("jobctl_runs{job_type=\"a\"");
        role.jobctl(["check", "--max-failures", "0"])
            .run()
            .exits(1)
            .stdout_has("1 dead run")
            .stderr("");
        role.jobctl(["check", "--job", "a"]).run().success().stdout("").stderr("");
    }
    let role = Role::granted(&db, "enqueuer");
    for command in ["status", "check"] {
        role.jobctl([command]).run().exits(7).stdout("").complains_once();
    }
    Role::granted(&db, "viewer").jobctl(["next"]).run().success().stdout_has("nightly");
}

/// Returns a value in SQL for a parameter of a function of the schema. With these values, the
/// function would read or change something that most roles may not. `due` is the next time of
/// `nightly`, and `times` an array of it.
fn argument<'a>(name: &str, kind: &str, due: &'a str, times: &'a str) -> &'a str {
    match name {
        "after" if kind == "bigint[]" => "'{1}'",
        "job" => "'closed'",
        "key" => "'taken'",
        "payload" => "'[1]'",
        "key_scope" => "'live'",
        "on_conflict" => "'replace'",
        "queue" | "share" | "lock" | "result" | "exceeded" | "delivery" => "'x'",
        "priority" | "most" | "missed" => "0",
        "tries" | "payload_bytes" => "1",
        "max_attempts" | "run_id" | "attempt" => "1",
        // The job `nightly`, by its name.
        "definition_id" => "2",
        "run_at" | "expires_at" => "now()",
        "timeout" | "expires_in" => "'1 minute'",
        "backoff" => "'fixed:1m'",
        "caller" | "role" => "CURRENT_USER",
        "recorded_by" | "host_user" => "'postgres'",
        "worker" => "'w'",
        "names" => "'{*}'",
        "run" => "1",
        "runs" if kind == "jsonb[]" => {
            r#"ARRAY['{"job_type": "closed", "idempotency_key": "taken", "key_scope": "live",
                "on_conflict": "replace", "payload": [1]}'::jsonb]"#
        }
        "runs" | "predecessors" | "ended" | "followers" => "'{1}'",
        "way" => "'cancel'",
        "workers" => "'{w}'",
        "attempt_numbers" | "exit_codes" | "signals" | "http_statuses" | "output_bytes" => "'{1}'",
        "claim_times" | "after_run_at" => "'{now}'",
        "at_most" | "bytes" | "free_threads" | "lane_priority" | "only_run" => "1",
        "chosen" | "written" => "1",
        "table_name" => "'job_runs'",
        "lease" | "tick_age" => "60",
        "tick" | "lane_queue" => "'x'",
        "queues" | "excluded_jobs" | "excluded_kinds" | "excluded_runs" => "'{}'",
        "after_queues" | "after_shares" => "'{default}'",
        "after_priorities" | "after_ids" | "after_definitions" => "'{0}'",
        "after_definition" => "0",
        "definitions" => "'{1}'",
        "releases_right" | "or_all" => "true",
        "text" => "'[1]'",
        "next_statuses" => "'{dead}'",
        "next_attempt_in" | "started_ago" | "ended_ago" => "'{1}'",
        "error_types" | "errors" | "details" | "outputs" => "'{x}'",
        "are_truncated" => "'{t}'",
        "rules" => "'{success}'",
        "after_rule" => "'success'",
        "error_type" | "error" | "output" => "'x'",
        "at" => "'9:00'",
        "days" => "'mon'",
        "after" => "now()",
        "put_off_for" => "'5 minutes'",
        "takes_key" | "is_backoff" => "true",
        "job_types" | "jobs" => "'{nightly}'",
        "statuses" => "'{dead}'",
        "outcomes" => "'{failed}'",
        "run_times" | "wait_times" => "'{1}'",
        "definition" | "slow" => "NULL",
        "schedule" => "'@yearly'",
        "traceparent" => "'00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'",
        "time_zone" => "'UTC'",
        "name" => "'kept'",
        "part" => "'mon'",
        "day" => "'2026-01-01'",
        "expression" => "'@daily'",
        "seen" => due,
        "times" => times,
        "next" => "'2100-01-01 00:00Z'",
        "delay" => "'0'",
        "in" | "run_in" | "after_any_end" | "or_cancel" | "debounce" | "debounce_max"
        | "put_off_until" | "schedule_id" | "starts" | "ends" => "NULL",
        _ => panic!("a value for the parameter {name}"),
    }
}

/// Reads what most roles may not change. The columns, from 0: the runs of before (up to `last`),
/// the number of new runs except those of `nightly`, the number of new runs, the schedule of an
/// application, the effects and the definitions.
const PROTECTED: &str = "SELECT
    (SELECT md5(string_agg(run::text, ';' ORDER BY id)) FROM jobctl.job_runs AS run
         WHERE id <= {last}),
    (SELECT count(*) FROM jobctl.job_runs WHERE id > {last} AND job_type <> 'nightly'),
    (SELECT count(*) FROM jobctl.job_runs WHERE id > {last}),
    (SELECT md5(string_agg(schedule::text, ';')) FROM jobctl.job_schedules AS schedule
         WHERE name = 'kept'),
    (SELECT md5(string_agg(effect::text, ';' ORDER BY key)) FROM jobctl.job_effects AS effect),
    (SELECT md5(string_agg(jobctl.definition_keys(definition)::text, ';' ORDER BY id))
         FROM jobctl.job_definitions AS definition)";

#[test]
fn null_in_any_parameter_of_any_function_gives_no_role_a_right() {
    let db = TestDb::new();
    db.apply(
        "[jobs.closed]\nshell = 'cat'\nenqueuers = []\npayload = { pin = 'SECRET' }\n
         [jobs.nightly]\nshell = 'cat'\nschedule = '@yearly'\npayload = { pin = 'SECRET' }\n",
    );
    // Most roles may neither read `SECRET` nor enqueue `closed`.
    let taken = ["--key", "taken", "--key-scope", "live", "--in", "1h"];
    let last = db.enqueue(["closed", "\"SECRET\""].into_iter().chain(taken)).to_string();
    db.execute(
        "SELECT jobctl.record_effect('taken', 'SECRET');
         SELECT jobctl.schedule('kept', 'nightly', '@yearly', payload => '\"SECRET\"');
         UPDATE jobctl.job_schedules SET owner = 'another';
         UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now())
         WHERE name = 'nightly'",
    );
    let due =
        "SELECT quote_literal(next_run_at) FROM jobctl.job_definitions WHERE name = 'nightly'";
    let due = db.query(due);
    let times = format!("ARRAY[{due}]");

    // Each function of the schema, with the names and types of its parameters.
    let mut client = db.client();
    let functions = client
        .query(
            "SELECT proname::text, coalesce(proargnames[:pronargs], '{}'), ARRAY(
                 SELECT format_type(type, NULL) FROM unnest(proargtypes) WITH ORDINALITY
                     AS argument (type, number) ORDER BY number
             )
             FROM pg_proc WHERE pronamespace = 'jobctl'::regnamespace ORDER BY proname",
            &[],
        )
        .unwrap();

    // Calls of each function: with values, with NULL in all parameters, and with each kind of NULL
    // in one of them.
    let mut calls = Vec::new();
    for function in &functions {
        let [name, names, types] = [0, 1, 2];
        let (name, names) = (function.get::<_, &str>(name), function.get::<_, Vec<&str>>(names));
        let types = function.get::<_, Vec<&str>>(types);
        let given: Vec<_> = names
            .iter()
            .zip(&types)
            .map(|(name, kind)| argument(name, kind, &due, &times))
            .collect();
        let call = |null: &dyn Fn(usize) -> Option<String>| {
            let values = given.iter().zip(&types).enumerate().map(|(at, (value, kind))| {
                null(at).unwrap_or_else(|| format!("({value})::{kind}"))
            });
            format!("SELECT jobctl.{name}({})", values.collect::<Vec<_>>().join(", "))
        };
        calls.push(call(&|_| None));
        calls.push(call(&|_| Some("NULL".to_owned())));
        for at in 0..given.len() {
            let (value, kind) = (given[at], types[at]);
            for null in [
                "NULL".to_owned(),
                format!("NULL::{kind}"),
                format!("(SELECT ({value})::{kind} WHERE false)"),
            ] {
                calls.push(call(&|other| (other == at).then(|| null.clone())));
            }
        }
    }

    // Executes a call as a role. Returns its answer or error, and what `PROTECTED` reads before the
    // rollback.
    let mut run = |role: &str, call: &str| {
        client.batch_execute(&format!("BEGIN; SET LOCAL ROLE {role}")).unwrap();
        let said = client.simple_query(call).map_or_else(
            |error| format!("{:?}", error.as_db_error().unwrap()),
            |rows| {
                rows.iter().fold("answered".to_owned(), |said, message| match message {
                    postgres::SimpleQueryMessage::Row(row) if !row.is_empty() => {
                        said + " " + row.get(0).unwrap_or_default()
                    }
                    _ => said,
                })
            },
        );
        if !said.starts_with("answered") {
            client.batch_execute("ROLLBACK; BEGIN").unwrap();
        }
        let row =
            client.simple_query(&format!("RESET ROLE; {}", PROTECTED.replace("{last}", &last)));
        let row = row.unwrap().into_iter().find_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        client.batch_execute("ROLLBACK").unwrap();
        let row = row.unwrap();
        (said, [0, 1, 2, 3, 4, 5].map(|at| row.get(at).unwrap_or_default().to_owned()))
    };
    let (_, before) = run("postgres", "SELECT");

    // Check the calls themselves: as the owner, they read the secret and change the rows.
    let owners: Vec<_> = calls.iter().map(|call| run("postgres", call)).collect();
    assert!(owners.iter().any(|(said, _)| said.contains("SECRET")));
    for at in [0, 2, 3] {
        assert!(owners.iter().any(|(_, after)| after[at] != before[at]), "{at}");
    }

    // As each role, they read no secret and change no row, except what the role may change.
    let mut roles = vec![("no set", Role::new(&db))];
    roles.extend(PARTS.map(|part| (part, Role::granted(&db, part))));
    let mut otherwise = String::new();
    for (part, role) in &roles {
        // The columns of `PROTECTED` that the role may not change. A worker fires schedules, so it
        // adds runs of `nightly`. An operator may enqueue, replace and unschedule.
        let kept: &[usize] = match *part {
            "worker" => &[0, 1, 3, 4, 5],
            "operator" => &[4, 5],
            _ => &[0, 1, 2, 3, 4, 5],
        };
        for call in &calls {
            let (said, after) = run(role.name(), call);
            let reads = said.contains("SECRET") && !["worker", "operator"].contains(part);
            // A worker ends runs.
            let ends = *part == "worker" && call.contains("jobctl.end_runs(");
            let is_kept = |at: &usize| after[*at] == before[*at] || (ends && *at == 0);
            if reads || !kept.iter().all(is_kept) {
                otherwise += &format!("{part}: {call}: {said}\n");
            }
        }
    }
    assert_eq!(otherwise, "");
}

#[test]
fn a_change_by_a_function_names_its_owner_beside_the_login() {
    let db = db_with_jobs_and_runs();
    let [owner, caller] = ["operator", "operator"].map(|part| Role::granted(&db, part));
    // The function of one operator changes something with the rights of that operator, although
    // another operator calls it.
    db.execute(&format!("CREATE SCHEMA trap AUTHORIZATION {}", owner.name()));
    owner
        .client()
        .batch_execute(
            "CREATE FUNCTION trap.spring() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
                 INSERT INTO jobctl.job_events (action, job) VALUES ('pause', 'a');
                 INSERT INTO jobctl.job_holds (scope, name) VALUES ('job', 'a') $$;
             GRANT USAGE ON SCHEMA trap TO PUBLIC",
        )
        .unwrap();
    caller.jobctl(["pause", "nightly"]).run().success();
    caller.client().batch_execute("SELECT trap.spring()").unwrap();
    let (owner, caller) = (owner.name(), caller.name());
    let by = "SELECT recorded_by FROM jobctl.job_events WHERE action = 'pause' ORDER BY id";
    assert_eq!(db.query(by), format!("{caller}\n{caller} as {owner}"));
    assert_eq!(
        db.query("SELECT recorded_by FROM jobctl.job_holds"),
        format!("{caller} as {owner}")
    );
}

#[test]
fn an_operator_cannot_replace_a_payload_through_the_scope_of_its_key() {
    let db = db_with_jobs_and_runs();
    let operator = Role::granted(&db, "operator");
    let retained = db.enqueue(["a", "[1]", "--key", "r", "--in", "1h"]);
    let live = db.enqueue(["a", "[1]", "--key", "l", "--key-scope", "live", "--in", "1h"]);
    for (id, scope) in [(retained, "live"), (retained, "replaced"), (live, "retained")] {
        let sql = format!("UPDATE jobctl.job_runs SET key_scope = '{scope}' WHERE id = {id}");
        for mut client in [operator.client(), db.client()] {
            let refused = client.batch_execute(&sql).expect_err(&sql);
            let refused = refused.as_db_error().unwrap();
            assert_eq!(refused.constraint(), Some("key_scope_only_follows_a_replacement"), "{sql}");
        }
    }

    // The scope `replaced` is for runs that were replaced while they were running.
    let sql = format!("UPDATE jobctl.job_runs SET key_scope = 'replaced' WHERE id = {live}");
    operator.client().batch_execute(&sql).unwrap_err();

    // An enqueue does not replace a run with a retained key.
    let replace = "SELECT jobctl.enqueue('a', '[2]', key => 'r', key_scope => 'live', \
                   on_conflict => 'replace')";
    operator.client().batch_execute(replace).unwrap();
    assert_eq!(db.of_run(retained, "payload, key_scope"), "[1]|retained");
}

#[test]
fn grants_change_nothing_and_reject_an_impossible_role_name() {
    for part in PARTS {
        let said =
            jobctl(["grants", "--role", "app_1", "--as", part]).run().success().stderr("").stdout;
        assert!(said.contains(" TO \"app_1\";") && !said.contains('{'), "{said}");
        // Without quotes this reserved word would be the role that runs the statements.
        jobctl(["grants", "--role", "current_user", "--as", part])
            .run()
            .stdout_has(" TO \"current_user\";");
        for name in ["", "a\nb", "public", "none", &"a".repeat(64), &"é".repeat(32)] {
            jobctl(["grants", "--role", name, "--as", part]).run().exits(2).stdout("");
        }
    }
    jobctl(["grants", "--role", "app", "--as", "owner"]).run().exits(2).stdout("");
}

#[test]
fn grants_quote_any_role_name() {
    let db = TestDb::new();
    let names = [
        "Upper",
        "1st",
        "a-b",
        "job@app.iam",
        "x; drop schema y",
        "x\"; drop schema y",
        "{role}",
        "it's $$",
        "é",
    ];
    for name in names.map(|name| format!("{name} {}", std::process::id())) {
        let quoted = format!("\"{}\"", name.replace('"', "\"\""));
        db.execute(&format!("CREATE ROLE {quoted}"));
        for part in PARTS {
            db.execute(&jobctl(["grants", "--role", &name, "--as", part]).run().success().stdout);
        }
        let may =
            db.client().query_one("SELECT has_schema_privilege($1, 'jobctl', 'USAGE')", &[&name]);
        db.execute(&format!("DROP OWNED BY {quoted}; DROP ROLE {quoted}"));
        assert!(may.unwrap().get::<_, bool>(0), "{name}");
    }
}

#[test]
fn grants_combine_two_sets() {
    let db = db_with_jobs_and_runs();
    let role = Role::new(&db);
    let grants = jobctl(["grants", "--role", role.name(), "--as", "enqueuer", "--as", "viewer"])
        .run()
        .success();
    db.execute(&grants.stdout);
    role.jobctl(["enqueue", "a"]).run().success();
    role.jobctl(["status"]).run().success();
    // The statements for one set revoke the other set.
    role.grant("viewer");
    role.jobctl(["enqueue", "a"]).run().exits(7);
    role.jobctl(["status"]).run().success();
}

#[test]
fn grants_to_the_owner_fail_and_revoke_nothing() {
    let db = TestDb::empty();
    let owner = Role::new(&db);
    db.execute(&format!("CREATE SCHEMA jobctl AUTHORIZATION {}", owner.name()));
    owner.jobctl(["migrate"]).run().success();
    let grants =
        jobctl(["grants", "--role", owner.name(), "--as", "worker"]).run().success().stdout;
    let refused = owner.client().batch_execute(&grants).unwrap_err();
    assert!(
        refused.as_db_error().unwrap().message().contains("owns the schema jobctl"),
        "{refused:?}"
    );
    owner.jobctl(["enqueue", "shell", "--", "true"]).run().success();
}

/// The job connects with the login of its worker.
#[test]
fn a_job_enqueues_with_both_sets_of_grants() {
    let db = TestDb::new();
    db.apply(
        "[jobs.first]\nshell = '\"$jobctl\" enqueue next'\nmax_attempts = 1\n\
        [jobs.next]\nshell = 'true'\n",
    );
    let worker = Role::granted(&db, "worker");
    let program = env!("CARGO_BIN_EXE_jobctl");
    let url = db.url_as(worker.name());
    let tick = || {
        let tick = worker.jobctl(["tick", "--quiet"]).env("jobctl", program);
        tick.env("DATABASE_URL", &url).run().success();
    };
    let next = "SELECT string_agg(status, ',') FROM jobctl.job_runs WHERE job_type = 'next'";
    // As a worker only, the job may not enqueue. Its error names the remedy.
    let denied = db.enqueue(["first"]);
    tick();
    assert_eq!(db.status(denied), "dead");
    assert_eq!(db.query(next), "");
    db.jobctl(["show", &denied.to_string(), "--output"])
        .run()
        .success()
        .stdout_has("permission denied")
        .stdout_has("`jobctl grants --role ROLE --as SET` prints what a role needs");

    // As a worker and an enqueuer, it may.
    let words = ["grants", "--role", worker.name(), "--as", "worker", "enqueuer"];
    db.execute(&jobctl(words).run().success().stdout);
    db.enqueue(["first"]);
    tick();
    assert_eq!(db.query(next), "succeeded");
}
