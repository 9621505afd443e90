//! Connections through PgBouncer, which may give each transaction another session.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use postgres::config::Host;

use crate::support::{Gate, TestDb, leave_out, temp_dir, wait_until};

/// PgBouncer before a test's database; ends with this value.
struct Pooler {
    process: Child,
    folder: tempfile::TempDir,
}

impl Pooler {
    /// Starts it in this mode. Lines with further settings may follow the mode. Returns `None` if
    /// the program is missing.
    fn start(db: &TestDb, mode: &str) -> Option<Self> {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];
        let program = program.into_iter().find(|path| Path::new(path).exists())?;
        let server: postgres::Config = db.url().parse().unwrap();
        let host = match &server.get_hosts()[0] {
            Host::Unix(folder) => folder.display().to_string(),
            Host::Tcp(name) => name.clone(),
        };
        let port = server.get_ports().first().copied().unwrap_or(5432);
        let user = server.get_user().unwrap_or("postgres");
        let password = server
            .get_password()
            .map(|password| format!("password={}", String::from_utf8_lossy(password)));
        let folder = temp_dir();
        let path = folder.path().display();
        let settings = format!(
            "[databases]\n{name} = host={host} port={port} user={user} {password}\n\
             [pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {path}\nauth_type = any\n\
             pool_mode = {mode}\ndefault_pool_size = 2\nmax_client_conn = 50\nserver_lifetime = 1\n\
             logfile = {path}/log\npidfile = {path}/pid\n",
            name = db.name(),
            password = password.unwrap_or_default()
        );
        fs::write(folder.path().join("settings"), settings).unwrap();
        // PgBouncer does not run as root; the server's user can open the server's socket.
        let mut command = if rustix::process::geteuid().is_root() {
            let socket = fs::metadata(Path::new(&host).join(format!(".s.PGSQL.{port}")));
            let user = socket.map_or(65534, |socket| socket.uid());
            std::os::unix::fs::chown(folder.path(), Some(user), None).unwrap();
            let mut command = Command::new("setpriv");
            command.args([&format!("--reuid={user}"), "--clear-groups", program]);
            command
        } else {
            Command::new(program)
        };
        let settings = folder.path().join("settings");
        let process = command
            .arg("-q")
            .arg(settings)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pooler = Self { process, folder };
        let socket = pooler.folder.path().join(".s.PGSQL.6432");
        // The file is there before the pooler listens.
        wait_until("the pooler to listen", || UnixStream::connect(&socket).is_ok());
        Some(pooler)
    }

    fn url(&self, db: &TestDb) -> String {
        let host = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgresql://postgres@{host}:6432/{}", db.name())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In this mode, each transaction may have another session. So no statement may rely on a session:
/// `migrate`, enqueues with and without keys, claims, renewals, results, `cancel`, `retry` and
/// `list-dead` are tried.
#[test]
fn commands_and_ticks_work_through_a_pooler_in_transaction_mode() {
    let db = TestDb::empty();
    let Some(pooler) = Pooler::start(&db, "transaction") else {
        return leave_out("everything through a pooler", "PgBouncer is not installed");
    };
    let url = pooler.url(&db);
    let through = || db.jobctl([]).env("JOBCTL_DATABASE_URL", &url);
    through().args(["migrate"]).run().success();
    let enqueue = |words: &[&str]| -> i64 {
        through()
            .args(["enqueue"])
            .args(words.iter().copied())
            .run()
            .success()
            .stdout
            .trim()
            .parse()
            .unwrap()
    };
    let gate = Gate::new();
    let payload = serde_json::json!({ "command": gate.script() }).to_string();
    // Two runs wait at the gate, in a tick that renews their leases.
    let held = enqueue(&["shell", "--key", "held", &payload]);
    assert_eq!(enqueue(&["shell", "--key", "held", &payload]), held);
    let doomed = enqueue(&["shell", &payload]);
    let worker = through().args(["tick", "--lease", "3s", "--linger", "--worker", "long"]).spawn();
    gate.wait_for_starts(2);
    // The pool has two sessions. Seven ticks share them, while the first tick renews its leases.
    let ids: Vec<_> =
        (0..60).map(|_| ["shell", "--", "true"]).map(|words| enqueue(&words)).collect();
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let ticks: Vec<_> =
        names.map(|name| through().args(["tick", "--quiet", "--worker", name]).spawn()).into();
    ticks.into_iter().for_each(|tick| drop(tick.wait().success().stderr("")));
    ids.iter().for_each(|id| db.wait_for_status(*id, "succeeded"));
    let lease = db.of_run(held, "locked_until");
    wait_until("a renewal", || db.of_run(held, "locked_until") != lease);
    // A cancel reaches the first tick, and a signal ends it.
    through().args(["cancel", &doomed.to_string()]).run().success();
    db.wait_for_status(doomed, "cancelled");
    worker.signal(rustix::process::Signal::TERM);
    gate.open();
    worker.wait().success();
    through().args(["retry", &doomed.to_string()]).run().success();
    through().args(["tick"]).run().success();
    through().args(["list-dead"]).run().success().stdout("");
    through()
        .args(["doctor"])
        .run()
        .success()
        .stdout_has("pooler\ta pooler shares the server processes");
    // The 60 quick runs and the two at the gate succeeded once each.
    assert_eq!(db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1"), "succeeded|62");
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'succeeded'"),
        "62"
    );
}

#[test]
fn a_wrong_setting_of_the_login_at_a_pooler_exits_7() {
    let (db, folder) = (TestDb::new(), temp_dir());
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let users = folder.path().join("users");
    fs::write(&users, "\"ana\" \"right\"\n").unwrap();
    let settings = format!("transaction\nauth_type = md5\nauth_file = {}", users.display());
    let Some(pooler) = Pooler::start(&db, &settings) else {
        return leave_out("a wrong login at a pooler", "PgBouncer is not installed");
    };
    let list = |login: &str, end: &str| {
        let url = pooler.url(&db).replacen("postgres@", &format!("{login}@"), 1) + end;
        db.jobctl(["list"]).env("JOBCTL_DATABASE_URL", &url).run()
    };
    list("ana:right", "").success();
    let password = "authentication failed; check the user and the password";
    // The user and the password, the rest of the URL after the database, and the error.
    for (login, end, why) in [
        ("ana:wrong", "", password),
        ("bob:right", "", password),
        ("ana:right", "_other", "_other; create it, or name another in the URL"),
        ("ana:right", "?options=-cwork_mem%3D1MB", "options; remove it from the URL"),
    ] {
        list(login, end).exits(7).complains_once().stderr_has(why);
    }
}

#[test]
fn a_pooler_in_session_mode_is_not_ruled_out_and_its_console_is_named() {
    let db = TestDb::new();
    let Some(pooler) = Pooler::start(&db, "session") else {
        return leave_out("a pooler in session mode", "PgBouncer is not installed");
    };
    let doctor = db.jobctl(["doctor"]).env("JOBCTL_DATABASE_URL", &pooler.url(&db)).run();
    doctor.stdout_has("own server process: no pooler, or one in session mode");
    let console = pooler.url(&db).replace(&format!("/{}", db.name()), "/pgbouncer");
    let console = db.jobctl(["list"]).env("JOBCTL_DATABASE_URL", &console).run().exits(7);
    console.stderr_has("it is the console of PgBouncer; name a database in the URL or PGDATABASE");
}

#[test]
fn a_pool_without_a_free_session_is_named() {
    let db = TestDb::new();
    let settings = "session\nquery_wait_timeout = 1\nmax_db_connections = 1";
    let Some(pooler) = Pooler::start(&db, settings) else {
        return leave_out("an exhausted pool", "PgBouncer is not installed");
    };
    let url = pooler.url(&db);
    // Another client has the only session of the pool.
    let mut other = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    other.simple_query("SELECT").unwrap();
    let refused = db.jobctl(["list"]).env("JOBCTL_DATABASE_URL", &url).run().exits(5);
    refused.complains_once().stderr_has(
        "query_wait_timeout; try again: the server behind the pooler may be down, or the pool \
         exhausted or paused\n",
    );
}

#[test]
fn the_error_names_statement_mode_of_a_pooler() {
    let db = TestDb::new();
    let Some(pooler) = Pooler::start(&db, "statement") else {
        return leave_out("a pooler in statement mode", "PgBouncer is not installed");
    };
    for command in [&["list"][..], &["tick"], &["enqueue", "shell", "--", "true"], &["migrate"]] {
        let refused =
            db.jobctl(command.iter().copied()).env("JOBCTL_DATABASE_URL", &pooler.url(&db)).run();
        let refused = refused.exits(7).stdout("").complains_once();
        refused.stderr_has(
            "in statement pooling mode; set the pooler's pool_mode to transaction or session\n",
        );
    }
}
