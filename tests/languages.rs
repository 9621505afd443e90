//! The same enqueue from other languages, with their own drivers: an order and its job in one
//! transaction.

use std::env;
use std::path::Path;
use std::process::Command;

use postgres::Config;

use crate::support::packages::{self, is_installed};
use crate::support::{Proxy, Role, TestDb, leave_out};

/// Runs this script of examples/ as an application that may enqueue and write its own table, and
/// nothing more. Each script commits the order 1 with its run, rolls the order 2 back with its run,
/// and enqueues with the key of the first run and another payload, which fails.
#[track_caller]
fn assert_places_one_order_with_its_run(script: &str, mut command: Command) {
    let db = TestDb::new();
    db.apply("[jobs.send_receipt]\nshell = 'cat'\n");
    let role = Role::granted(&db, "enqueuer");
    db.execute(&format!(
        "CREATE TABLE orders (id int PRIMARY KEY); GRANT INSERT ON orders TO {}",
        role.name()
    ));
    // Java can't use the server's socket file.
    let tcp = Proxy::to(&db);
    let port = tcp.url().parse::<Config>().unwrap().get_ports()[0].to_string();
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(script))
        .envs([("PGHOST", "127.0.0.1"), ("PGPORT", &port), ("PGDATABASE", db.name())])
        .envs([("PGUSER", role.name()), ("PGPASSWORD", role.name())]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    // The script prints the id of the only run, and the SQLSTATE of the error: the key belongs to a
    // run with another payload.
    let id = db.query("SELECT id FROM jobctl.job_runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{id} JC004\n"), "{output:?}");
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
    let driver = packages::python("psycopg[binary]");
    let [driver, sqlalchemy] = [driver, packages::python("SQLAlchemy")];
    let folders = match (driver, sqlalchemy) {
        (Ok(driver), Ok(sqlalchemy)) => env::join_paths([driver, sqlalchemy]).unwrap(),
        (Err(why), _) | (_, Err(why)) => return leave_out("enqueue from Python", &why),
    };
    for script in ["order.py", "order_sqlalchemy.py"] {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", &folders).env("PYTHONDONTWRITEBYTECODE", "1");
        assert_places_one_order_with_its_run(script, python);
    }
}

#[test]
fn ruby_enqueues_in_its_transaction() {
    let finds_driver = Command::new("ruby").args(["-rpg", "-e", ""]).output();
    if !finds_driver.is_ok_and(|output| output.status.success()) {
        return leave_out("enqueue from Ruby", "ruby-pg is not installed");
    }
    assert_places_one_order_with_its_run("order.rb", Command::new("ruby"));
}

#[test]
fn php_enqueues_in_its_transaction() {
    let finds_driver = ["-r", "exit(extension_loaded('pdo_pgsql') ? 0 : 1);"];
    let finds_driver = Command::new("php").args(finds_driver).output();
    if !finds_driver.is_ok_and(|output| output.status.success()) {
        return leave_out("enqueue from PHP", "php-pgsql is not installed");
    }
    assert_places_one_order_with_its_run("order.php", Command::new("php"));
}

#[test]
fn java_enqueues_in_its_transaction() {
    let driver = "/usr/share/java/postgresql.jar";
    if !is_installed("java") || !Path::new(driver).exists() {
        return leave_out("enqueue from Java", "java or libpostgresql-jdbc-java is not installed");
    }
    let mut java = Command::new("java");
    java.args(["--class-path", driver]);
    assert_places_one_order_with_its_run("order.java", java);
}

#[test]
fn go_enqueues_in_its_transaction() {
    let packages = "/usr/share/gocode";
    let driver = Path::new(packages).join("src/github.com/jackc/pgx/v4");
    if !is_installed("go") || !driver.exists() {
        let why = "go or golang-github-jackc-pgx-v4-dev is not installed";
        return leave_out("enqueue from Go", why);
    }
    let mut go = Command::new("go");
    go.arg("run").envs([("GO111MODULE", "off"), ("GOPATH", packages)]);
    assert_places_one_order_with_its_run("order.go", go);
}

#[test]
fn node_enqueues_in_its_transaction() {
    let folder = match packages::node("pg") {
        Ok(folder) => folder,
        Err(why) => return leave_out("enqueue from Node.js", &why),
    };
    let mut node = Command::new("node");
    node.env("NODE_PATH", folder);
    assert_places_one_order_with_its_run("order.js", node);
}

#[test]
fn psql_enqueues_in_its_transaction() {
    if !is_installed("psql") {
        return leave_out("enqueue from psql", "psql is not installed");
    }
    let mut psql = Command::new("psql");
    psql.args(["--no-psqlrc", "--quiet", "--file"]);
    assert_places_one_order_with_its_run("order.sql", psql);
}
