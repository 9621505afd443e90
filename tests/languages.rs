//! The same enqueue from other languages, with their own drivers: an order and its job in one
//! transaction. A language that is not installed, or whose driver can't be, is left out and said to be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use postgres::Config;
use postgres::config::Host;

use crate::support::{Role, TestDb};

/// A folder with a driver, installed once for all runs of the tests.
fn driver(name: &str, install: &[&str]) -> Option<PathBuf> {
    let folders = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = folders.join(format!("driver-{name}"));
    if !folder.exists() {
        // Whole or not at all, also when two install at the same time.
        let made = tempfile::tempdir_in(folders).unwrap();
        let installed = Command::new(install[0])
            .args(&install[1..])
            .arg(made.path())
            .current_dir(made.path())
            .stdin(Stdio::null())
            .output();
        match installed {
            Ok(output) if output.status.success() => {
                let _ = fs::rename(made.keep(), &folder);
            }
            Ok(output) => {
                left_out(&format!("the driver {name} can't be installed: {}", String::from_utf8_lossy(&output.stderr)));
                return None;
            }
            Err(error) => {
                left_out(&format!("{} can't be run: {error}", install[0]));
                return None;
            }
        }
    }
    Some(folder)
}

#[allow(clippy::print_stderr, reason = "a test that does less than it says has to say so")]
fn left_out(why: &str) {
    eprintln!("left out: {why}");
}

/// An order of an application that may enqueue and write its own table, and nothing more.
#[track_caller]
fn orders(script: &str, mut command: Command) {
    let db = TestDb::new();
    db.apply("[jobs.send_receipt]\nshell = 'cat'\n");
    let role = Role::granted(&db, "enqueuer");
    db.execute(&format!("CREATE TABLE orders (id int PRIMARY KEY); GRANT INSERT ON orders TO {}", role.name()));
    let config: Config = role.url().parse().unwrap();
    match &config.get_hosts()[0] {
        Host::Tcp(host) => command.env("PGHOST", host),
        Host::Unix(folder) => command.env("PGHOST", folder),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/languages").join(script))
        .envs([("PGPORT", port.as_str()), ("PGDATABASE", db.name())])
        .envs([("PGUSER", role.name()), ("PGPASSWORD", role.name())]);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return left_out(&format!("{script} can't be run: {error}")),
    };
    assert!(output.status.success(), "{script}: {output:?}");
    let (id, code) = db
        .query("SELECT id, 'JC004' FROM jobctl.job_runs")
        .split_once('|')
        .map(|(id, code)| (id.to_owned(), code.to_owned()))
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{id} {code}\n"), "{output:?}");
    assert_eq!(db.query("SELECT id FROM orders"), "1");
    db.jobctl(["tick"]).run().success();
    assert_eq!(
        db.query("SELECT outcome, output FROM jobctl.job_attempts"),
        "succeeded|{\"note\": \"it's “ok” $1 %s\", \"order\": 1}"
    );
    assert_eq!(db.query("SELECT idempotency_key FROM jobctl.job_runs"), "receipt:1");
}

#[test]
fn python_enqueues_in_its_transaction() {
    let install = ["python3", "-m", "pip", "install", "--quiet", "psycopg[binary]", "--target"];
    let Some(folder) = driver("psycopg", &install) else { return };
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", folder).env("PYTHONDONTWRITEBYTECODE", "1");
    orders("order.py", python);
}

#[test]
fn node_enqueues_in_its_transaction() {
    let install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "pg", "--prefix"];
    let Some(folder) = driver("pg", &install) else { return };
    let mut node = Command::new("node");
    node.env("NODE_PATH", folder.join("node_modules"));
    orders("order.js", node);
}

#[test]
fn psql_enqueues_in_its_transaction() {
    let mut psql = Command::new("psql");
    psql.args(["--no-psqlrc", "--quiet", "--file"]);
    orders("order.sql", psql);
}
