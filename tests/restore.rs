//! The schema as `pg_dump` writes it, and what a restored backup does.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::docs::root;
use crate::drill::program;
use crate::support::{TestDb, leave_out, server, wait_until};

/// Runs a program that must succeed, and returns what it printed to stdout.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Reviewers see in this file what a migration changes.
#[test]
fn schema_sql_is_the_migrated_schema() {
    let file = root().join("docs/schema.sql");
    // Each version of pg_dump writes another text. The file is that of version 15.
    if server::major() != 15 {
        return;
    }
    let db = TestDb::new();
    let mut dump = Command::new(program("pg_dump"));
    let options = ["--schema-only", "--schema=jobctl", "--no-owner", "--no-privileges"];
    let dump = run(dump.args(options).arg(db.url()));
    // Without comments, settings and the lines that differ in each dump.
    let is_kept = |line: &&str| {
        let left_out = ["--", "SET ", "SELECT pg_catalog.set_config", "\\"];
        !line.is_empty() && !left_out.iter().any(|start| line.starts_with(start))
    };
    let dump: String = dump.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, dump).unwrap();
    } else {
        let is_current = fs::read_to_string(&file).is_ok_and(|text| text == dump);
        let update = "UPDATE_DOCS=1 tests/with-postgres cargo test --test integration restore::";
        assert!(is_current, "docs/schema.sql is stale; run `{update}`");
    }
}

/// Returns the major version of pg_dump. It can't dump a newer server, and the folder of a server
/// that the tests fetch has no pg_dump.
pub(crate) fn pg_dump_version() -> u32 {
    let version = run(Command::new(program("pg_dump")).arg("--version"));
    let number = version.split(' ').find_map(|word| word.split('.').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{version}"))
}

#[test]
fn schedules_and_runs_continue_after_a_restore() {
    if pg_dump_version() < server::major() {
        return;
    }
    for format in ["plain", "custom"] {
        assert_that_work_continues_after_a_restore(format, &TestDb::empty());
    }
}

#[test]
fn schedules_and_runs_continue_after_a_restore_into_a_newer_server() {
    // The test needs two servers. One pair of versions is enough.
    if server::major() != 15 {
        return;
    }
    match server::start_newest() {
        Ok(newest) => {
            assert_that_work_continues_after_a_restore("plain", &TestDb::empty_on(&newest));
        }
        Err(why) => leave_out("restore into PostgreSQL 18", &why),
    }
}

/// Dumps a database in this format, restores it as `restored`, and asserts that keys and effects
/// are still taken, that new ids go on, and that the waiting run starts.
#[track_caller]
fn assert_that_work_continues_after_a_restore(format: &str, restored: &TestDb) {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 2 * * *'\n");
    let with_key = ["shell", "--key", "k", "--", "true"];
    let [done, waiting] = [db.enqueue(with_key), db.enqueue(["a"])];
    db.jobctl(["tick", "--limit", "1"]).run().success();
    db.jobctl(["pause", "a"]).run().success();
    // Each execution of this effect would print another process id.
    let effect = ["once", "invoice:17", "--", "sh", "-c", "echo $$"];
    let printed = db.jobctl(effect).run().success().stdout;
    let folder = crate::support::temp_dir();
    let file = folder.path().join("dump");
    let mut dump = Command::new(program("pg_dump"));
    run(dump.arg("--format").arg(format).arg("--file").arg(&file).arg(db.url()));
    restore(format, &file, restored);

    let doctor = restored.jobctl(["doctor"]).run().stdout;
    for check in ["schema", "objects", "sequences", "indexes"] {
        assert!(doctor.contains(&format!("ok\t{check}\t")), "{doctor}");
    }
    assert_eq!(restored.enqueue(with_key), done, "the key is still taken");
    restored.jobctl(effect).run().success().stdout(&printed);
    let new = restored.enqueue(["shell", "--", "true"]);
    assert!(new > waiting, "{new}");
    restored.jobctl(["resume", "a"]).run().success();
    restored.jobctl(["tick"]).run().success();
    for id in [done, waiting, new] {
        assert_eq!(restored.of_run(id, "status, attempts"), "succeeded|1", "{format}");
    }
    assert_eq!(restored.of_attempt(done, 1, "outcome"), "succeeded");
}

/// Restores a dump of this format with psql or `pg_restore`.
pub(crate) fn restore(format: &str, file: &Path, into: &TestDb) {
    let mut command = match format {
        "plain" => {
            let mut psql = Command::new(program("psql"));
            psql.args(["-qX", "-v", "ON_ERROR_STOP=1", "-f"]).arg(file).arg(into.url());
            psql
        }
        _ => {
            let mut restore = Command::new(program("pg_restore"));
            restore.args(["--exit-on-error", "--dbname"]).arg(into.url()).arg(file);
            restore
        }
    };
    run(&mut command);
}

/// Follows "Move to another server" of docs/operations.md.
#[test]
fn a_replica_takes_over_when_its_sequences_are_set() {
    let [old, new] = [TestDb::new(), TestDb::new()];
    let documented = include_str!("../docs/operations.md");
    let publication = &documented[documented.find("CREATE PUBLICATION").unwrap()..];
    old.execute(publication.split_once(';').unwrap().0);
    // `migrate` fills these two tables in the new database.
    let unpublished =
        "SELECT string_agg(tablename, ', ') FROM pg_tables WHERE schemaname = 'jobctl'
        AND tablename NOT IN (SELECT tablename FROM pg_publication_tables)";
    assert_eq!(old.query(unpublished), "job_lock_slots, schema_migrations");
    if old.query("SHOW wal_level") != "logical" {
        return leave_out("logical replication", "the server's wal_level is not logical");
    }
    old.apply("[jobs.a]\nshell = 'true'\n");
    let done = old.enqueue(["a", "--key", "k"]);
    old.jobctl(["tick", "--quiet"]).run().success();
    // Both databases are on one server, where the subscription can't create its slot.
    let slot = old.name();
    old.execute(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
    new.execute(&format!(
        "CREATE SUBSCRIPTION {slot} CONNECTION '{}' PUBLICATION jobctl WITH (create_slot = false)",
        old.url()
    ));
    let waiting = old.enqueue(["a"]);
    let follower = old.enqueue(["a", "--after", &waiting.to_string()]);
    // The tables are copied one by one.
    let arrived = "SELECT (SELECT count(*) FROM jobctl.job_runs) = 3
                       AND (SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel)";
    wait_until("the replica to have all rows", || new.query(arrived) == "t");
    new.execute(&format!("DROP SUBSCRIPTION {slot}"));

    // The newest id is in no table any more, so only the sequence knows it.
    let gone = old.enqueue(["a"]).to_string();
    old.jobctl(["cancel", &gone]).run().success();
    old.jobctl(["prune", &gone]).run().success();
    let statements = &documented[documented.find("SELECT format('SELECT setval(").unwrap()..];
    let statements = statements.split_once(";\n").unwrap().0;
    let set_sequences = format!("SELECT string_agg(line, ' ') FROM ({statements}) AS set (line)");
    new.execute(&old.query(&set_sequences));

    // The new database goes on with the keys, the ids and the waiting runs.
    new.jobctl(["doctor"]).run().stdout_has("ok\tsequences");
    assert_eq!(new.enqueue(["a", "--key", "k"]), done, "the key is still taken");
    assert!(new.enqueue(["a"]) > gone.parse().unwrap());
    new.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(new.of_run(waiting, "status, attempts"), "succeeded|1");
    assert_eq!(new.of_run(follower, "status, attempts"), "succeeded|1");
    assert_eq!(new.of_attempt(done, 1, "outcome"), "succeeded");
    assert_eq!(new.query("SELECT sum(succeeded) FROM jobctl.job_figures"), "4");
}
