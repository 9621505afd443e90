//! Settings that others chose for the database or the role, and row level security.

use std::fs;

use crate::support::{Role, TestDb, temp_dir};

/// The tables of the schema.
fn tables(db: &TestDb) -> Vec<String> {
    let tables = db.query(
        "SELECT relname FROM pg_class WHERE relnamespace = 'jobctl'::regnamespace AND relkind = 'r'
         ORDER BY relname",
    );
    tables.lines().map(str::to_owned).collect()
}

/// Switches row level security on, also for the owner, and hides rows by a policy or all of them.
fn hide(db: &TestDb, table: &str, policy: &str) {
    let policy = match policy {
        "" => String::new(),
        rows => format!("CREATE POLICY p ON jobctl.{table} USING ({rows})"),
    };
    db.execute(&format!(
        "ALTER TABLE jobctl.{table} ENABLE ROW LEVEL SECURITY;
         ALTER TABLE jobctl.{table} FORCE ROW LEVEL SECURITY; {policy}"
    ));
}

fn show(db: &TestDb, table: &str) {
    db.execute(&format!(
        "ALTER TABLE jobctl.{table} NO FORCE ROW LEVEL SECURITY;
         ALTER TABLE jobctl.{table} DISABLE ROW LEVEL SECURITY;
         DROP POLICY IF EXISTS p ON jobctl.{table}"
    ));
}

/// The error of a command under row level security.
fn names(table: &str) -> String {
    format!(
        ": row level security hides rows of jobctl.{table} from this role; as the schema's owner, \
         run ALTER TABLE jobctl.{table} DISABLE ROW LEVEL SECURITY\n"
    )
}

/// A database whose schema belongs to an ordinary role, with a due run and a due schedule.
fn owned(db: &TestDb) -> Role<'_> {
    let owner = Role::new(db);
    db.execute(&format!("CREATE SCHEMA jobctl AUTHORIZATION {}", owner.name()));
    owner.jobctl(["migrate"]).run().success();
    let folder = temp_dir();
    let jobs = folder.path().join("jobs.toml");
    fs::write(&jobs, "[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\n").unwrap();
    owner.jobctl(["apply", "--yes", jobs.to_str().unwrap()]).run().success();
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now());
         SELECT jobctl.enqueue('a', key => 'k'), jobctl.record_effect('e', 'done')",
    );
    owner
}

#[test]
fn row_level_security_is_an_error_that_names_the_table_and_no_run_ends() {
    let db = TestDb::empty();
    let owner = owned(&db);
    let [worker, viewer, operator] =
        ["worker", "viewer", "operator"].map(|part| Role::granted(&db, part));
    for policy in ["", "false", "id < 0"] {
        for table in ["job_definitions", "job_runs"] {
            hide(&db, table, policy);
            let all = [&owner, &worker, &operator];
            for role in all {
                role.jobctl(["tick"]).run().exits(7).complains_once().stderr_has(&names(table));
            }
            for role in all.into_iter().chain([&viewer]) {
                let other = if table == "job_runs" { "list" } else { "next" };
                for command in ["check", "status", other] {
                    let said = role.jobctl([command]).run();
                    // A viewer may not read all columns of a list.
                    if !said.stderr.contains("permission denied") {
                        said.exits(7).stdout("").complains_once().stderr_has(&names(table));
                    }
                }
            }
            owner.jobctl(["enqueue", "a"]).run().exits(7).stderr_has(&names(table));
            assert_eq!(db.query("SELECT status, attempts FROM jobctl.job_runs"), "queued|0");
            let due = "SELECT next_run_at <= now() FROM jobctl.job_definitions";
            assert_eq!(db.query(due), "t");
            show(&db, table);
        }
    }
    // Every other table.
    for table in tables(&db) {
        hide(&db, &table, "false");
        let commands =
            ["check", "list", "status", "failures", "trail", "once --list", "hold --list"];
        let said = commands.map(|command| owner.jobctl(command.split(' ')).run());
        let named = said.iter().filter(|said| said.stderr.ends_with(&names(&table)));
        assert!(named.count() > 0, "{table}");
        assert_eq!(db.query("SELECT status FROM jobctl.job_runs WHERE status = 'dead'"), "");
        let findings = owner.jobctl(["doctor", "--json"]).run().exits(1).stdout;
        let expected = format!(
            "row level security is on for {table}, so jobctl fails for the roles that it applies to"
        );
        assert!(findings.contains(&expected), "{findings}");
        show(&db, &table);
    }
    owner.jobctl(["tick"]).run().success();
    assert_eq!(db.query("SELECT DISTINCT status FROM jobctl.job_runs"), "succeeded");
}

#[test]
fn a_role_that_row_level_security_does_not_apply_to_works() {
    let db = TestDb::empty();
    let owner = owned(&db);
    let worker = Role::granted(&db, "worker");
    for table in tables(&db) {
        db.execute(&format!("ALTER TABLE jobctl.{table} ENABLE ROW LEVEL SECURITY"));
    }
    owner.jobctl(["list"]).run().success();
    worker.jobctl(["tick"]).run().exits(7);
    db.execute(&format!("ALTER ROLE {} BYPASSRLS", worker.name()));
    worker.jobctl(["tick"]).run().success();
    assert_eq!(db.query("SELECT DISTINCT status FROM jobctl.job_runs"), "succeeded");
}

#[test]
fn no_function_answers_as_if_hidden_rows_did_not_exist() {
    let db = TestDb::empty();
    let owner = owned(&db);
    let application = Role::granted(&db, "enqueuer,effects");
    let mut client = application.client();
    let calls = [
        ("job_definitions", "SELECT jobctl.enqueue('a')"),
        ("job_runs", "SELECT jobctl.enqueue('a', key => 'k')"),
        ("job_runs", "SELECT jobctl.enqueue('a', after => '{1}')"),
        ("job_runs", "SELECT jobctl.run_states('{1}')"),
        ("job_dependencies", "SELECT jobctl.run_states('{1}')"),
        ("job_attempts", "SELECT jobctl.run_states('{1}')"),
        ("job_effects", "SELECT jobctl.record_effect('e')"),
        ("job_effects", "SELECT jobctl.effect_result('e')"),
    ];
    for (table, call) in calls {
        hide(&db, table, "false");
        let error = client.batch_execute(call).expect_err(call);
        let error = error.as_db_error().unwrap();
        assert_eq!(error.routine(), Some("check_enable_rls"), "{call}: {error}");
        assert!(error.message().contains(table), "{call}: {error}");
        show(&db, table);
    }
    // The history of a run that the owner deletes.
    owner.jobctl(["tick"]).run().success();
    hide(&db, "job_attempts", "false");
    owner.client().batch_execute("DELETE FROM jobctl.job_runs").unwrap_err();
    show(&db, "job_attempts");
}
