//! A server with answers that PostgreSQL never sends: no command panics, hangs or uses up
//! the host's memory.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::fake_server::{FakeServer, columns, complete, head, message, ready, row};
use crate::support::{Finished, jobctl, temp_dir};

/// Commands that read from the server.
const COMMANDS: [&[&str]; 14] = [
    &["check"],
    &["doctor"],
    &["enqueue", "job"],
    &["enqueue", "shell", "--key", "k", "--", "true"],
    &["jobs"],
    &["list"],
    &["migrate"],
    &["migrate", "--dry-run"],
    &["next"],
    &["once", "key", "--", "true"],
    &["report"],
    &["status"],
    &["tick"],
    &["tick", "--dry-run"],
];

/// Asserts that a command rejects the server's answer: it ends with exit status 5 and one line on
/// stderr, without a panic. Returns the ended command.
fn assert_rejects_answer(server: &FakeServer, command: &[&str]) -> Finished {
    let refused = jobctl(command.iter().copied()).env("JOBCTL_DATABASE_URL", &server.url()).run();
    refused.exits(5).stdout("").complains_once().prints_nowhere("panicked")
}

/// Begins transactions like PostgreSQL and returns the schema's version; `answer` does the rest.
fn after_begin(
    answer: impl Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static {
    move |statement, client| match statement {
        begin if begin.starts_with("BEGIN") => {
            let columns = columns(&["version", "applied_at"]);
            client.write_all(&[columns, row(&["1", "2026-01-31 07:00:00+00"]), complete()].concat())
        }
        "COMMIT" | "ROLLBACK" => client.write_all(&complete()),
        _ => answer(client),
    }
}

/// The messages before the rows of a statement with parameters.
fn opening() -> Vec<u8> {
    [message(b'1', &[]), message(b'2', &[]), message(b't', &[0, 0]), columns(&["text"])].concat()
}

#[test]
fn an_answer_without_its_rows_or_columns_is_exit_5() {
    const INVALID: &str = "the database sent an invalid answer";
    // After the begin of a transaction, one server sends no rows, and one sends a row whose column
    // no statement has.
    let without_rows = FakeServer::start(after_begin(|client| {
        client.write_all(&[opening(), complete()].concat())
    }));
    let with_other_column = FakeServer::start(after_begin(|client| {
        client.write_all(&[opening(), row(&["unexpected"]), complete()].concat())
    }));
    for command in COMMANDS {
        assert_rejects_answer(&with_other_column, command).stderr_has(INVALID);
        // For these four commands, an answer without rows is valid.
        if !matches!(command[0], "jobs" | "list" | "next") && command != ["tick", "--dry-run"] {
            assert_rejects_answer(&without_rows, command).stderr_has(INVALID);
        }
    }

    // A server that answers everything in this way, also a question for its own state.
    let nonsense = FakeServer::start(|_, client| {
        client.write_all(&[columns(&["something"]), row(&["else"]), complete()].concat())
    });
    assert_rejects_answer(&nonsense, &["list"])
        .stderr_has(&format!("cannot read the schema's version: {INVALID}"));
    let url = format!("{}&target_session_attrs=read-write", nonsense.url());
    jobctl(["list", "--database-url", &url])
        .run()
        .exits(5)
        .stderr_has("it is not a PostgreSQL server");
}

/// A server that reports this version at the login, and counts the statements it gets.
fn server_of_version(version: &'static str) -> (FakeServer, Arc<AtomicUsize>) {
    let statements = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&statements);
    let login = move |client: &mut TcpStream| {
        let version = message(b'S', format!("server_version\0{version}\0").as_bytes());
        client.write_all(&[message(b'R', &[0; 4]), version, ready()].concat())
    };
    let server = FakeServer::start_with_login(login, move |_, client| {
        counter.fetch_add(1, Ordering::Relaxed);
        client.write_all(&complete())
    });
    (server, statements)
}

#[test]
fn a_server_older_than_postgresql_14_is_rejected_before_a_statement() {
    let (server, statements) = server_of_version("13.23 (Debian 13.23-0+deb11u1)");
    let init: &[&str] = &["init"];
    for command in COMMANDS.into_iter().chain([init]) {
        let refused =
            jobctl(command.iter().copied()).env("JOBCTL_DATABASE_URL", &server.url()).run();
        refused.exits(7).stderr_has(
            ": its version is 13.23 (Debian 13.23-0+deb11u1), but jobctl needs PostgreSQL 14 or \
             newer; upgrade the server, or use another\n",
        );
    }
    assert_eq!(statements.load(Ordering::Relaxed), 0);
    // A server that is not too old, or whose version is unreadable, gets statements.
    for (version, is_old) in
        [("9.6.24", true), ("14beta1", false), ("14.0", false), ("18devel", false), ("x", false)]
    {
        let (server, statements) = server_of_version(version);
        jobctl(["list"]).env("JOBCTL_DATABASE_URL", &server.url()).run();
        assert_eq!(statements.load(Ordering::Relaxed) == 0, is_old, "{version}");
    }
}

#[test]
fn an_error_with_a_short_code_is_reported() {
    // The codes of PostgreSQL have five characters.
    for code in ["", "2", "é", "22"] {
        let error = format!("SERROR\0VERROR\0C{code}\0Mnothing goes\0\0");
        let server = FakeServer::start(move |_, client| {
            client.write_all(&[message(b'E', error.as_bytes()), ready()].concat())
        });
        let refused = jobctl(["list", "--database-url", &server.url()]).run();
        refused.exits(1).complains_once().stderr("jobctl: cannot list runs: nothing goes\n");
    }
}

#[test]
fn the_error_names_transaction_timeout() {
    let server = FakeServer::start(|_, client| {
        let error =
            "SFATAL\0VFATAL\0C25P04\0Mterminating connection due to transaction timeout\0\0";
        client.write_all(&message(b'E', error.as_bytes()))?;
        client.shutdown(Shutdown::Both)
    });
    assert_rejects_answer(&server, &["list"])
        .stderr_has("; try again, or set transaction_timeout higher for this role");
}

#[test]
fn a_too_long_row_is_rejected_by_its_header() {
    // The header announces 1 GB. The server never sends these bytes.
    let server = FakeServer::start(after_begin(|client| {
        client.write_all(&[opening(), head(b'D', 1_000_000_000)].concat())
    }));
    for command in [&["list"][..], &["tick"], &["show", "1"]] {
        let refused = assert_rejects_answer(&server, command);
        refused.stderr_has(
            "the database sends a row of more than 64 MiB; check that the address is right",
        );
    }
}

#[test]
fn an_endless_answer_is_read_up_to_a_limit() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let server = FakeServer::start(after_begin(move |client| {
        client.write_all(&opening())?;
        let rows = row(&[&"x".repeat(1024 * 1024)]);
        loop {
            client.write_all(&rows)?;
            counter.fetch_add(rows.len(), Ordering::Relaxed);
        }
    }));
    assert_rejects_answer(&server, &["list"])
        .stderr_has("the database sends an answer of more than 256 MiB");
    // Some more bytes may be in the buffers of the sockets.
    assert!(sent.load(Ordering::Relaxed) < 300 * 1024 * 1024);
}

/// Sends a message until the client closes the connection, and counts the bytes.
fn send_endlessly(client: &mut TcpStream, message: &[u8], sent: &AtomicUsize) -> io::Result<()> {
    let many = message.repeat((64 * 1024 / message.len()).max(1));
    loop {
        client.write_all(&many)?;
        sent.fetch_add(many.len(), Ordering::Relaxed);
    }
}

/// The driver needs some hundred bytes for each message, however short it is.
#[test]
fn an_endless_answer_of_tiny_messages_is_read_up_to_a_limit() {
    let notice = message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mx\0\0");
    for tiny in [row(&["x"]), row(&[]), message(b'C', b"\0"), message(b'I', &[]), notice] {
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        let server = FakeServer::start(after_begin(move |client| {
            client.write_all(&opening())?;
            send_endlessly(client, &tiny, &counter)
        }));
        assert_rejects_answer(&server, &["list"]);
        // Some more bytes may be in the buffers of the sockets.
        assert!(sent.load(Ordering::Relaxed) < 100 * 1024 * 1024, "{sent:?}");
    }
}

#[test]
fn an_endless_answer_to_the_login_is_read_up_to_a_limit() {
    let parameter = |name: &str| message(b'S', format!("{name}\0x\0").as_bytes());
    let notice = message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mx\0\0");
    let key = message(b'K', &[0; 8]);
    // The message that each server repeats, and whether it accepts the login before.
    let many: Vec<u8> = (0..10_000).flat_map(|n| parameter(&format!("p{n}"))).collect();
    for (logged_in, endless) in
        [(false, notice.clone()), (true, notice), (true, parameter("a")), (true, key), (true, many)]
    {
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        let login = move |client: &mut TcpStream| {
            if logged_in {
                client.write_all(&message(b'R', &[0; 4]))?;
            }
            send_endlessly(client, &endless, &counter)
        };
        let server = FakeServer::start_with_login(login, |_, _| Ok(()));
        assert_rejects_answer(&server, &["tick"]).stderr_has("cannot connect to the database");
        assert!(sent.load(Ordering::Relaxed) < 20 * 1024 * 1024, "{sent:?}");
    }
}

#[test]
fn a_long_error_is_printed_without_its_middle() {
    let error = |bytes: usize| {
        let text = "x".repeat(bytes);
        message(b'E', format!("SFATAL\0VFATAL\0C57P03\0M{text}\0\0").as_bytes())
    };
    // An error of 60 MB at the login is more than the client reads, one of 500 kB is not. The third
    // server sends its error after the login.
    let login = move |client: &mut TcpStream| client.write_all(&error(60_000_000));
    let rejected = FakeServer::start_with_login(login, |_, _| Ok(()));
    let login = move |client: &mut TcpStream| client.write_all(&error(500_000));
    let long = FakeServer::start_with_login(login, |_, _| Ok(()));
    let later = FakeServer::start(move |_, client| client.write_all(&error(60_000_000)));
    for (server, remedy) in [
        (
            rejected,
            "; is PostgreSQL running there? set --database-url, DATABASE_URL or the PG* \
                    variables",
        ),
        (long, "; try again in a moment"),
        (later, "; try again"),
    ] {
        for command in [&["list"][..], &["tick", "--quiet", "--log-format", "json"]] {
            let state = temp_dir();
            let refused = jobctl(command.iter().copied())
                .env("JOBCTL_DATABASE_URL", &server.url())
                .env("XDG_STATE_HOME", state.path().to_str().unwrap())
                .run()
                .exits(5)
                .stderr_has(remedy);
            assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
            assert!(refused.stderr.len() < 5000, "{refused}");
        }
    }
}

#[test]
fn migrate_does_not_wait_for_a_server_that_falls_silent_after_the_login() {
    let server = FakeServer::start(|_, _| Ok(()));
    let refused = assert_rejects_answer(&server, &["migrate", "--dry-run"]);
    let refused =
        refused.stderr_has("cannot migrate: the database does not answer; try again later");
    assert!(refused.took < Duration::from_secs(4), "{refused}");
}
