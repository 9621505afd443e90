//! The server that tests and the demo run against is gone when they are, however they end.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::wait_until;

/// A server of its own, even where the tests were given one.
fn with_postgres(script: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/with-postgres"));
    command.args(["sh", "-c", script]);
    for name in ["JOBCTL_TEST_DATABASE_URL", "WITH_POSTGRES_LISTEN"] {
        command.env_remove(name);
    }
    command
}

/// Starts a server that is left when its stdin ends, and says in which folder it lives.
fn start() -> (Child, PathBuf) {
    let script = r#""$PG_BIN/pg_ctl" --version >/dev/null && echo "$JOBCTL_TEST_DATABASE_URL" && exec cat"#;
    let mut child = with_postgres(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let host = url.split(['@', '/']).nth(3).unwrap_or_else(|| panic!("no URL: {url:?}"));
    let folder = PathBuf::from(percent_encoding::percent_decode_str(host).decode_utf8().unwrap().into_owned());
    assert!(folder.join(".s.PGSQL.5432").exists(), "{folder:?}");
    (child, folder)
}

#[test]
fn the_command_s_exit_status_is_passed_on_when_the_server_has_gone() {
    let output = with_postgres(r#"echo "$JOBCTL_TEST_DATABASE_URL"; exit 7"#).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

#[test]
fn no_server_outlives_an_interrupted_run() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::KILL] {
        let (mut child, folder) = start();
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        if signal == Signal::KILL {
            wait_until("the server to notice", || !folder.exists());
        }
        assert!(!folder.exists(), "{folder:?} outlived {signal:?}");
    }
}

#[test]
fn no_server_outlives_the_process_whose_pipe_it_was_given() {
    let (mut child, folder) = start();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!folder.exists());
}
