//! `migrate`, and the reaction of every other command to a schema of another version.

use std::fs;

use crate::docs::{all_migrations, migrations, root, sql_files};
use crate::support::{Role, TestDb, temp_dir};

/// The applied migrations, and how many times each was recorded.
const HISTORY: &str = "SELECT version, name, count(*) FROM jobctl.schema_migrations
     WHERE version IS NOT NULL GROUP BY 1, 2 ORDER BY 1";

/// Returns the result of `HISTORY` in a database to which each migration was applied once.
fn history_of_all_migrations() -> String {
    let rows = migrations().into_iter().enumerate();
    let rows: Vec<_> = rows.map(|(index, name)| format!("{}|{name}|1", index + 1)).collect();
    rows.join("\n")
}

/// Commands that use the database, except `migrate`.
const OTHERS: [&[&str]; 10] = [
    &["enqueue", "shell", "--", "true"],
    &["tick"],
    &["tick", "--dry-run"],
    &["retry", "1"],
    &["retry", "--all-dead", "--yes"],
    &["cancel", "1"],
    &["settle", "1"],
    &["edit", "1", "--priority", "1"],
    &["list-dead"],
    &["list-dead", "--json"],
];

/// Returns every row of the schema, to prove that a command wrote nothing.
fn contents(db: &TestDb) -> String {
    [
        "job_runs",
        "job_attempts",
        "job_workers",
        "job_locked_runs",
        "job_effects",
        "job_events",
        "job_definitions",
        "schema_migrations",
    ]
    .map(|table| {
        db.query(&format!("SELECT row::text, row.xmin FROM jobctl.{table} AS row ORDER BY 1"))
    })
    .join("\n--\n")
}

#[test]
fn a_dry_run_lists_missing_migrations_and_changes_nothing() {
    let db = TestDb::empty();
    db.jobctl(["migrate", "--dry-run"]).run().success().stdout(&all_migrations()).stderr("");
    let objects: Vec<_> =
        migrations().iter().map(|name| format!("{{\"name\":\"{name}\"}}")).collect();
    db.jobctl(["migrate", "--dry-run", "--json"])
        .run()
        .success()
        .stdout(&format!("[{}]\n", objects.join(",")));
    assert_eq!(db.query("SELECT count(*) FROM pg_namespace WHERE nspname = 'jobctl'"), "0");
    db.jobctl(["migrate"]).run().success().stdout(&all_migrations()).stderr("");
    // Now no migration is missing.
    for command in [&["migrate", "--dry-run"][..], &["migrate"]] {
        db.jobctl(command.iter().copied()).run().success().stdout("").stderr("");
    }
    assert_eq!(db.query(HISTORY), history_of_all_migrations());
}

/// The objects of a database outside of the schema, and the settings and rights of the database.
const OUTSIDE: &str = "
    WITH ours AS (SELECT oid FROM pg_namespace WHERE nspname IN ('jobctl', 'pg_toast'))
    SELECT jsonb_build_array(
        (SELECT jsonb_agg(oid ORDER BY oid) FROM pg_class WHERE relnamespace NOT IN (TABLE ours)),
        (SELECT jsonb_agg(oid ORDER BY oid) FROM pg_proc WHERE pronamespace NOT IN (TABLE ours)),
        (SELECT jsonb_agg(oid ORDER BY oid) FROM pg_type WHERE typnamespace NOT IN (TABLE ours)),
        (SELECT jsonb_agg(oid ORDER BY oid) FROM pg_operator),
        (SELECT jsonb_agg(oid ORDER BY oid) FROM pg_cast),
        (SELECT jsonb_agg(oid ORDER BY oid) FROM pg_extension),
        (SELECT jsonb_agg(oid ORDER BY oid) FROM pg_event_trigger),
        (SELECT jsonb_agg(oid ORDER BY oid) FROM pg_default_acl),
        (SELECT jsonb_agg(row ORDER BY oid) FROM pg_namespace AS row WHERE nspname <> 'jobctl'),
        (SELECT datacl FROM pg_database WHERE datname = current_database()),
        (SELECT jsonb_agg(setconfig) FROM pg_db_role_setting AS setting
         JOIN pg_database AS base ON base.oid = setting.setdatabase
         WHERE base.datname = current_database())
    )::text";

#[test]
fn migrate_changes_nothing_outside_of_its_schema() {
    let db = TestDb::empty();
    let before = db.query(OUTSIDE);
    db.jobctl(["migrate"]).run().success();
    assert_eq!(db.query(OUTSIDE), before);
}

#[test]
fn migrate_applies_the_files_of_the_repository() {
    let db = TestDb::new();
    let names = sql_files(&["migrations"]);
    // The first file creates the table of migrations, so it has no row in it.
    assert_eq!(names[0], "migrations/0000_version_table");
    let applied = "SELECT 'migrations/' || name FROM jobctl.schema_migrations
         WHERE version IS NOT NULL ORDER BY version";
    assert_eq!(db.query(applied), names[1..].join("\n"));
    let applied = "SELECT name FROM jobctl.schema_migrations
         WHERE version IS NULL ORDER BY name COLLATE \"C\"";
    assert_eq!(db.query(applied), sql_files(&["functions", "views"]).join("\n"));
}

#[test]
fn changed_functions_and_views_are_applied_again_and_keep_their_grants() {
    let db = TestDb::new();
    let app = Role::granted(&db, "enqueuer");
    let viewer = Role::granted(&db, "viewer");
    db.apply("[jobs.a]\nshell = 'true'\n");
    let definition = "SELECT pg_get_functiondef('jobctl.is_operator'::regproc)";
    let present = db.query(definition);
    // An earlier release may have left another body of one function (`is_operator`), and fewer
    // parameters of another (`enqueue`). Its checksums differ, also that of a view.
    db.execute(
        "CREATE OR REPLACE FUNCTION jobctl.is_operator(role name) RETURNS boolean LANGUAGE sql
             AS 'SELECT true'",
    );
    let signature = db.query("SELECT 'jobctl.enqueue'::regproc::oid::regprocedure");
    db.execute(&format!(
        "DROP FUNCTION {signature};
         CREATE FUNCTION jobctl.enqueue(job text) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint';
         REVOKE ALL ON FUNCTION jobctl.enqueue FROM PUBLIC;
         GRANT EXECUTE ON FUNCTION jobctl.enqueue TO {};
         UPDATE jobctl.schema_migrations SET checksum = 'another' WHERE name IN
             ('functions/enqueue', 'functions/is_operator', 'views/dead_runs')",
        app.name()
    ));
    let changed = "functions/enqueue\nfunctions/is_operator\nviews/dead_runs\n";
    db.jobctl(["migrate", "--dry-run"]).run().success().stdout(changed).stderr("");
    // The dry run has not restored the body.
    assert_ne!(db.query(definition), present);
    db.jobctl(["migrate"]).run().success().stdout(changed).stderr("");
    assert_eq!(db.query(definition), present);
    assert_eq!(db.query("SELECT 'jobctl.enqueue'::regproc::oid::regprocedure"), signature);
    // The new function enqueues, and the role that might execute the old one may execute it.
    let id: i64 = app.client().query_one("SELECT jobctl.enqueue('a')", &[]).unwrap().get(0);
    assert_ne!(id, 7);
    assert!(viewer.client().execute("SELECT jobctl.enqueue('a')", &[]).is_err());
    viewer.client().execute("SELECT FROM jobctl.dead_runs", &[]).unwrap();
    db.jobctl(["migrate"]).run().success().stdout("");
}

#[test]
fn lost_functions_views_and_triggers_are_applied_again() {
    let db = TestDb::new();
    // The file that `migrate` applies again, and how its object was lost.
    for (lost, change) in [
        ("views/dead_runs", "DROP VIEW jobctl.dead_runs"),
        ("functions/fire", "DROP FUNCTION jobctl.fire"),
        ("functions/refuse_update", "DROP TRIGGER attempts_only_go_up ON jobctl.job_runs"),
    ] {
        db.execute(change);
        db.jobctl(["migrate"]).run().success().stdout(&format!("{lost}\n")).stderr("");
        db.jobctl(["migrate"]).run().success().stdout("");
    }
}

#[test]
fn a_table_that_a_missing_migration_will_change_is_not_called_altered() {
    let db = TestDb::new();
    let text = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let query = text("sql/queries/schema/list_migrations.sql");
    let first = text("sql/migrations/0001_initial.sql");
    // This table differs from the schema after all migrations of the program.
    let altered = ["table job_runs"];
    // Returns the altered objects that the query reports for the first migration, if the program
    // has these migrations. Only the first one is applied.
    let missing = |versions: &[i32], names: &[&str], texts: &[&str]| -> Vec<String> {
        let rows = db.client().query(&query, &[&versions, &names, &texts, &&altered[..]]).unwrap();
        rows.into_iter().find(|row| row.get::<_, Option<i32>>(0) == Some(1)).unwrap().get("missing")
    };
    assert_eq!(missing(&[1], &["0001_initial"], &[&first]), altered);
    // The program also has a second migration, which explains the difference.
    let second = "ALTER TABLE jobctl.job_runs ADD COLUMN note text";
    assert!(missing(&[1, 2], &["0001_initial", "0002_note"], &[&first, second]).is_empty());
}

#[test]
fn altered_functions_views_and_triggers_are_restored() {
    let db = TestDb::new();
    // The file that `migrate` applies again, and a change by hand, after which the stored checksum
    // is still that of the file.
    for (altered, change) in [
        (
            "functions/is_operator",
            "CREATE OR REPLACE FUNCTION jobctl.is_operator(role name) RETURNS boolean LANGUAGE sql
                 AS 'SELECT true'",
        ),
        ("functions/fire", "ALTER FUNCTION jobctl.fire RESET search_path"),
        ("functions/may_settle", "ALTER FUNCTION jobctl.may_settle SECURITY INVOKER"),
        (
            "views/dead_runs",
            "CREATE OR REPLACE VIEW jobctl.dead_runs AS
                 SELECT id, job_type, queue, attempts, max_attempts, error_type,
                     payload::text AS last_error, failed_at, finished_at, created_at
                 FROM jobctl.job_runs",
        ),
        ("views/leases", "ALTER VIEW jobctl.leases SET (security_barrier = true)"),
        (
            "functions/refuse_update",
            "ALTER TABLE jobctl.job_runs DISABLE TRIGGER attempts_only_go_up",
        ),
    ] {
        db.execute(change);
        let listed = format!("{altered}\n");
        db.jobctl(["migrate", "--dry-run"]).run().success().stdout(&listed);
        db.jobctl(["migrate"]).run().success().stdout(&listed).stderr("");
        db.jobctl(["migrate"]).run().success().stdout("");
        db.jobctl(["doctor"]).run().stdout_has("ok\tobjects\t");
    }
    // A function with the same name and other parameters: `migrate` applies the file again, and the
    // foreign function stays.
    let other = "FUNCTION jobctl.fire(job varchar)";
    db.execute(&format!("CREATE {other} RETURNS bigint LANGUAGE sql AS 'SELECT 1'"));
    db.jobctl(["migrate"]).run().success().stdout("functions/fire\n");
    db.execute(&format!("DROP {other}"));
    db.jobctl(["migrate"]).run().success().stdout("");
}

#[test]
fn twenty_concurrent_migrators_all_succeed_and_apply_each_migration_once() {
    for _ in 0..3 {
        let db = TestDb::empty();
        let started: Vec<_> = (0..20).map(|_| db.jobctl(["migrate"]).spawn()).collect();
        let answers: Vec<_> =
            started.into_iter().map(|one| one.wait().success().stderr("").stdout).collect();
        assert_eq!(answers.concat(), all_migrations(), "exactly one migrator applies it");
        assert_eq!(db.query(HISTORY), history_of_all_migrations());
    }
}

#[test]
fn a_newer_schema_stops_every_command_before_it_writes() {
    let db = TestDb::new();
    db.enqueue(["shell", "--", "true"]);
    // A newer program has applied a migration that this one does not know.
    db.execute(
        "INSERT INTO jobctl.schema_migrations (version, name, checksum) VALUES (9999, \
        '9999_later', 'x')",
    );
    let before = contents(&db);
    let known = migrations().len();
    for command in OTHERS {
        let refused = db.jobctl(command.iter().copied()).run().exits(6).stdout("").complains_once();
        refused
            .stderr_has(&format!(
                "the schema is at version 9999 and this program knows {known} (database "
            ))
            .stderr_has(&format!("/{}); install the jobctl that migrated it", db.name()));
    }
    for command in [&["migrate"][..], &["migrate", "--dry-run"]] {
        db.jobctl(command.iter().copied())
            .run()
            .exits(6)
            .stdout("")
            .complains_once()
            .stderr_has("at version 9999")
            .stderr_has(&format!("/{}); install the jobctl that migrated it", db.name()));
    }
    db.jobctl(["--version"]).run().success();
    assert_eq!(contents(&db), before);
}

#[test]
fn a_quiet_tick_reports_a_newer_schema_once_an_hour() {
    let (db, state) = (TestDb::new(), temp_dir());
    db.execute(
        "INSERT INTO jobctl.schema_migrations (version, name, checksum) VALUES (9, 'later', 'x')",
    );
    let tick = |flags: &[&str]| {
        let tick = db.jobctl(["tick"]).args(flags.iter().copied());
        tick.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run().exits(6)
    };
    tick(&["--quiet"]).complains_once().stderr_has("; repeated after an hour at the earliest");
    tick(&["--quiet"]).stderr("");
    tick(&[]).complains_once().stderr_has("the schema is at version 9");
}

#[test]
fn an_older_schema_stops_every_command_and_stays_as_it_is() {
    let db = TestDb::new();
    db.enqueue(["shell", "--", "true"]);
    db.execute("DELETE FROM jobctl.schema_migrations");
    let before = contents(&db);
    for command in OTHERS {
        let refused = db.jobctl(command.iter().copied()).run().exits(6).stdout("");
        refused
            .stderr_has("the schema is at version 0 and this program needs 1 (database ")
            .stderr_has(&format!("/{}); run `jobctl migrate`", db.name()));
    }
    assert_eq!(contents(&db), before);
}

#[test]
fn without_a_schema_every_command_suggests_migrate() {
    let db = TestDb::empty();
    for command in OTHERS {
        let refused = db.jobctl(command.iter().copied()).run().exits(6).stdout("");
        refused
            .stderr_has("does not exist (database ")
            .stderr_has(&format!("/{}); run `jobctl migrate`", db.name()));
    }
    assert_eq!(db.query("SELECT count(*) FROM pg_namespace WHERE nspname = 'jobctl'"), "0");
}

#[test]
fn migrate_refuses_a_migration_that_was_applied_with_another_text() {
    let db = TestDb::new();
    db.execute("UPDATE jobctl.schema_migrations SET checksum = repeat('0', 64)");
    let before = contents(&db);
    for command in [&["migrate"][..], &["migrate", "--dry-run"]] {
        let refused = db.jobctl(command.iter().copied()).run().exits(6).stdout("").complains_once();
        refused.stderr_has("migration 1 was applied with a different text than this program's");
    }
    assert_eq!(contents(&db), before);
}

#[test]
fn migrate_refuses_a_database_that_is_not_utf8() {
    let db = TestDb::encoded("LATIN1");
    for command in [&["migrate"][..], &["migrate", "--dry-run"]] {
        let refused = db.jobctl(command.iter().copied()).run().exits(7).stdout("").complains_once();
        refused.stderr_has(
            "the database's encoding is LATIN1; create another database, as a superuser such as \
             postgres: `createdb --owner postgres --encoding UTF8 --locale C --template template0 \
             NAME`",
        );
    }
    assert_eq!(db.query("SELECT count(*) FROM pg_namespace WHERE nspname = 'jobctl'"), "0");
}

/// Without a locale, as in a container, the databases of a new server are SQL_ASCII.
#[test]
fn a_database_that_the_documentation_creates_is_utf8() {
    let mut commands = 0;
    for name in ["README.md", "examples/demo"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.lines().filter(|line| line.contains(" createdb ")) {
            assert!(line.contains(" --encoding UTF8 --template template0 "), "{name}: {line}");
            commands += 1;
        }
    }
    assert_eq!(commands, 2);
}

#[test]
fn a_failed_migration_leaves_no_object_behind() {
    let db = TestDb::empty();
    // An event trigger rejects REVOKE, the last statement of the migration.
    db.execute(
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS
             'BEGIN RAISE EXCEPTION ''not in this database''; END';
         CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('REVOKE') EXECUTE \
             FUNCTION refuse()",
    );
    let refused = db.jobctl(["migrate"]).run().exits(1).stdout("").complains_once();
    refused.stderr_has("cannot migrate: not in this database");
    assert_eq!(db.query("SELECT count(*) FROM pg_namespace WHERE nspname = 'jobctl'"), "0");
    db.execute("DROP EVENT TRIGGER refuse");
    db.jobctl(["migrate"]).run().success().stdout(&all_migrations());
}

#[test]
fn migrate_refuses_a_foreign_schema_and_changes_nothing() {
    // A thing in the schema that is not jobctl's, and its name in the error.
    let things = [
        ("TABLE jobctl.misc (x integer)", "table jobctl.misc"),
        ("VIEW jobctl.misc AS SELECT 1 AS x", "view jobctl.misc"),
        (
            "FUNCTION jobctl.misc(text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
            "function jobctl.misc(pg_catalog.text)",
        ),
        ("TYPE jobctl.job_runs AS ENUM ('x')", "type jobctl.job_runs"),
    ];
    for (thing, name) in things {
        let db = TestDb::empty();
        db.execute(&format!(
            "CREATE SCHEMA jobctl; GRANT USAGE ON SCHEMA jobctl TO PUBLIC; CREATE {thing}"
        ));
        let schema =
            "SELECT nspacl, (SELECT count(*) FROM pg_class WHERE relnamespace = pg_namespace.oid)
             FROM pg_namespace WHERE nspname = 'jobctl'";
        let before = db.query(schema);
        for command in [&["migrate"][..], &["migrate", "--dry-run"]] {
            let refused = db.jobctl(command.iter().copied()).run().exits(6).stdout("");
            refused
                .stderr_has(&format!("the schema `jobctl` is not jobctl's: it has {name} in it ("))
                .stderr_has(&format!("/{}); remove or rename that schema\n", db.name()));
        }
        // doctor does not report tables that do not exist.
        db.jobctl(["doctor"])
            .run()
            .exits(1)
            .stdout_has("is not jobctl's")
            .prints_nowhere("job_runs\"");
        assert_eq!(db.query(schema), before);
    }
}

#[test]
fn migrate_fills_an_empty_schema_that_an_administrator_created() {
    let db = TestDb::empty();
    db.execute(
        "CREATE SCHEMA jobctl AUTHORIZATION CURRENT_USER;
         ALTER DEFAULT PRIVILEGES IN SCHEMA jobctl GRANT SELECT ON TABLES TO CURRENT_USER, PUBLIC",
    );
    for command in [&["migrate", "--dry-run"][..], &["migrate"]] {
        db.jobctl(command.iter().copied()).run().success().stdout(&all_migrations()).stderr("");
    }
}

#[test]
fn a_migrator_waits_for_another_and_then_finds_nothing_to_do() {
    let db = TestDb::empty();
    // Another migrator has the lock that all migrators take. Its key is `jobctl` in ASCII.
    let mut other = db.client();
    other.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(x'6a6f6263746c'::bigint)").unwrap();
    let mut migrate = db.jobctl(["migrate"]).spawn();
    // The migrator polls: a session that waits for a lock would delay an index build.
    let asked = "SELECT count(*) FROM pg_stat_activity \
                 WHERE application_name = 'jobctl' AND datname = current_database() AND state = \
                     'idle'";
    crate::support::wait_until("the migrator to poll", || db.query(asked) == "1");
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'";
    for _ in 0..20 {
        assert_eq!(db.query(waiting), "0");
    }
    assert!(migrate.is_running());
    other.batch_execute("COMMIT").unwrap();
    migrate.wait().success().stdout(&all_migrations());
}

#[test]
fn migrate_ignores_objects_of_the_same_names_in_public() {
    let db = TestDb::empty();
    // Each of these functions fails if it is called.
    db.execute(
        "CREATE TABLE public.job_runs (x integer);
         CREATE TABLE public.schema_migrations (version integer);
         INSERT INTO public.schema_migrations VALUES (9999);
         CREATE FUNCTION public.nextval(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint / 0';
         CREATE FUNCTION public.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql \
             AS 'SELECT 1 / 0 = 1'",
    );
    db.jobctl(["migrate"]).run().success().stdout(&all_migrations());
    let id = db.enqueue(["shell", "--", "true"]);
    db.jobctl(["tick", "--quiet"]).run().success().stderr("");
    assert_eq!(db.status(id), "succeeded");
    assert_eq!(db.query("SELECT count(*) FROM public.job_runs"), "0");
}

#[test]
fn migrate_revokes_what_default_privileges_grant() {
    let db = TestDb::empty();
    let role = Role::new(&db);
    db.execute(
        ["SCHEMAS", "TABLES", "SEQUENCES", "FUNCTIONS"]
            .map(|kind| {
                format!("ALTER DEFAULT PRIVILEGES GRANT ALL ON {kind} TO PUBLIC, {};", role.name())
            })
            .concat()
            .as_str(),
    );
    db.jobctl(["migrate"]).run().success();
    // The schema, tables, views, sequences and functions on which another role than the owner has a
    // privilege.
    let granted =
        "SELECT nspname FROM pg_namespace, aclexplode(nspacl) WHERE nspname = 'jobctl' AND \
            grantee <> nspowner
         UNION SELECT relname FROM pg_class, aclexplode(relacl)
         WHERE relnamespace = 'jobctl'::regnamespace AND grantee <> relowner
         UNION SELECT proname FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))
         WHERE pronamespace = 'jobctl'::regnamespace AND grantee <> proowner";
    assert_eq!(db.query(granted), "");
}

/// Asserts that `migrate` and its dry run fail and change nothing.
#[track_caller]
fn assert_migrate_refused(db: &TestDb, exit: i32, why: &str) {
    // A new table, view or index would change these two numbers.
    let catalog =
        "SELECT count(*), max(oid) FROM pg_class WHERE relnamespace = 'jobctl'::regnamespace";
    let before = db.query(catalog);
    for command in [&["migrate"][..], &["migrate", "--dry-run"]] {
        let refused =
            db.jobctl(command.iter().copied()).run().exits(exit).stdout("").complains_once();
        refused.stderr_has(why);
    }
    assert_eq!(db.query(catalog), before);
}

#[test]
fn migrate_refuses_a_schema_of_another_role_but_its_owner_may_migrate() {
    let db = TestDb::empty();
    let (owner, member) = (Role::new(&db), Role::new(&db));
    db.execute(&format!("CREATE SCHEMA jobctl AUTHORIZATION {}", owner.name()));
    // A superuser has the rights of every role, but must not run an ordinary role's code.
    let why = format!(
        "the schema `jobctl` belongs to role {0}, not to postgres; migrate as {0}",
        owner.name()
    );
    assert_migrate_refused(&db, 7, &why);
    // Another role may migrate only if it is a member of the owner.
    member.jobctl(["migrate"]).run().exits(7).complains_once().stderr_has("belongs to role");
    db.execute(&format!("GRANT {} TO {}", owner.name(), member.name()));
    member.jobctl(["migrate", "--dry-run"]).run().success().stdout(&all_migrations());
    owner.jobctl(["migrate"]).run().success().stdout(&all_migrations()).stderr("");
    member.jobctl(["migrate"]).run().success().stdout("").stderr("");
    // The refusal is the same if no migration is missing.
    assert_migrate_refused(&db, 7, &why);
    db.jobctl(["doctor"]).run().stdout_has("schema\tup to date");
}

#[test]
fn migrate_and_init_name_the_grant_that_creates_the_schema() {
    let (db, folder) = (TestDb::empty(), temp_dir());
    let role = Role::new(&db);
    let grant = format!("GRANT CREATE ON DATABASE {} TO {}", db.name(), role.name());
    let why = format!(
        "jobctl: cannot create the schema `jobctl`: {} may not create schemas in this database; \
         migrate as the role that shall own jobctl's schema, or as the database's owner, run \
         {grant}\n",
        role.name()
    );
    // The role may not create a schema, until the owner of the database runs the grant.
    for command in [&["migrate"][..], &["migrate", "--dry-run"], &["init"]] {
        let jobctl = role.jobctl_with_pass_file(command.iter().copied(), folder.path());
        jobctl.run().exits(7).stdout("").stderr(&why);
    }
    db.execute(&grant);
    role.jobctl(["migrate"]).run().success().stdout(&all_migrations()).stderr("");
}

#[test]
fn migrate_refuses_a_schema_where_other_roles_may_create() {
    let db = TestDb::empty();
    let other = Role::new(&db);
    // An empty schema in which this role and all others may create objects.
    db.execute(&format!(
        "CREATE SCHEMA jobctl; GRANT CREATE ON SCHEMA jobctl TO {}, PUBLIC",
        other.name()
    ));
    let both = format!("PUBLIC, {}", other.name());
    assert_migrate_refused(
        &db,
        7,
        &format!(
            "{both} may create objects in the schema `jobctl`; run REVOKE CREATE ON SCHEMA \
                jobctl FROM {both}\n"
        ),
    );
    db.execute(&format!("REVOKE CREATE ON SCHEMA jobctl FROM {both}"));
    db.jobctl(["migrate"]).run().success();
    // The same after the migration.
    db.execute(&format!("GRANT CREATE ON SCHEMA jobctl TO {}", other.name()));
    assert_migrate_refused(&db, 7, "may create objects in the schema `jobctl`");
}

#[test]
fn migrate_refuses_objects_of_other_roles_in_a_migrated_schema() {
    let db = TestDb::new();
    let other = Role::new(&db);
    // Asserts that `migrate` refuses such an object of the other role, and names it.
    let assert_object_refused = |object: &str, kind: &str| {
        db.execute(&format!("CREATE {kind} {object}"));
        let name = object.split([' ', '(']).next().unwrap();
        db.execute(&format!("ALTER {kind} {name} OWNER TO {}", other.name()));
        let why = "the schema `jobctl` has objects of other roles in it: ";
        assert_migrate_refused(&db, 7, &format!("{why}{} {name}", kind.to_lowercase()));
        db.execute(&format!("DROP {kind} {name}"));
    };
    assert_object_refused("jobctl.misc (x integer)", "TABLE");
    let function = "jobctl.length(bigint) RETURNS int LANGUAGE sql AS 'SELECT 1'";
    assert_object_refused(function, "FUNCTION");
    assert_object_refused("jobctl.mood AS ENUM ('x')", "TYPE");
    assert_object_refused("jobctl.misc AS SELECT 1 AS x", "VIEW");

    // A table of jobctl that belongs to the other role.
    db.execute(&format!("ALTER TABLE jobctl.schema_migrations OWNER TO {}", other.name()));
    assert_migrate_refused(&db, 7, "table jobctl.schema_migrations");
    db.execute("ALTER TABLE jobctl.schema_migrations OWNER TO CURRENT_USER");

    // A trigger on a table of jobctl that calls a function of the other role.
    db.execute(&format!(
        "CREATE FUNCTION public.mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         ALTER FUNCTION public.mine OWNER TO {};
         CREATE TRIGGER mine BEFORE INSERT ON jobctl.schema_migrations FOR EACH ROW EXECUTE \
             FUNCTION public.mine()",
        other.name()
    ));
    assert_migrate_refused(&db, 7, "trigger mine on jobctl.schema_migrations");
    db.execute("DROP TRIGGER mine ON jobctl.schema_migrations");
    db.jobctl(["migrate"]).run().success().stdout("");
}

#[test]
fn migrate_requires_the_tables_of_the_recorded_version() {
    let db = TestDb::new();
    db.execute("DROP TABLE jobctl.job_workers CASCADE");
    let known = migrations().len();
    assert_migrate_refused(
        &db,
        6,
        &format!("the schema is at version {known} but lacks table job_workers (database "),
    );
}

#[test]
fn a_missing_builtin_function_does_not_suggest_a_migration() {
    let db = TestDb::empty();
    // A server that lacks this function is too old for jobctl.
    db.execute("UPDATE pg_proc SET proname = 'absent' WHERE proname = 'pg_identify_object'");
    for command in [&["migrate"][..], &["migrate", "--dry-run"]] {
        let refused = db.jobctl(command.iter().copied()).run().exits(6).stdout("").complains_once();
        refused
            .prints_nowhere("run `jobctl migrate`")
            .stderr_has("cannot migrate: function pg_identify_object(oid, oid, integer) does not ")
            .stderr_has("exist (database ")
            .stderr_has("use PostgreSQL 14 or newer");
    }
}
