//! `tests/with-postgres` stops its server when its command ends, whatever ends the command.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{leave_out, temp_dir, wait_until};

/// Returns a script that runs with a server of its own, also if the tests use another server.
fn with_postgres(script: &str) -> Command {
    let mut command =
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/with-postgres"));
    command.args(["sh", "-c", script]);
    for name in ["JOBCTL_TEST_DATABASE_URL", "WITH_POSTGRES_LISTEN"] {
        command.env_remove(name);
    }
    command
}

/// Starts a server that stops when its stdin ends, and returns the folder of its socket.
fn start() -> (Child, PathBuf) {
    let script =
        r#""$PG_BIN/pg_ctl" --version >/dev/null && echo "$JOBCTL_TEST_DATABASE_URL" && exec cat"#;
    let mut child =
        with_postgres(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let host = url.split(['@', '/']).nth(3).unwrap_or_else(|| panic!("no URL: {url:?}"));
    let folder = PathBuf::from(
        percent_encoding::percent_decode_str(host).decode_utf8().unwrap().into_owned(),
    );
    assert!(folder.join(".s.PGSQL.5432").exists(), "{folder:?}");
    (child, folder)
}

#[test]
fn the_exit_status_is_passed_on_after_the_server_stopped() {
    let output = with_postgres(r#"echo "$JOBCTL_TEST_DATABASE_URL"; exit 7"#).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    // The shell prints no message of its own about a command that a signal ended.
    let output = with_postgres("kill -KILL $$").output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(137), &b""[..]), "{output:?}");
}

#[test]
fn no_server_outlives_an_interrupted_run() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::KILL] {
        let (mut child, folder) = start();
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        // After SIGKILL, the script itself can't stop the server, which takes a moment to notice.
        if signal == Signal::KILL {
            wait_until("the server to notice", || !folder.exists());
        }
        assert!(!folder.exists(), "{folder:?} outlived {signal:?}");
    }
}

#[test]
fn no_server_outlives_a_closed_pipe() {
    let (mut child, folder) = start();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!folder.exists());
}

/// Hides PostgreSQL, puts the programs in $1 first on the PATH, and runs the rest of the arguments.
const BARE: &str = r#"
mount -t tmpfs tmpfs /usr/lib/postgresql
! program=$(command -v pg_config) || mount --bind /bin/false "$program"
export PATH="$1:$PATH"
shift
exec "$@"
"#;

fn can_hide_postgresql() -> bool {
    let mut bare = Command::new("unshare");
    bare.args(["--mount", "sh", "-euc", BARE, "sh", "/", "true"]);
    bare.output().is_ok_and(|done| done.status.success())
}

/// Interrupts the installation as Ctrl-C does, then waits until the setting is removed.
const INTERRUPT: &str = r#"
mount -t tmpfs tmpfs /etc/postgresql-common
! setsid --wait "$1" true
attempts=100
until [ -z "$(ls /etc/postgresql-common/createcluster.d)" ]; do
    attempts=$((attempts - 1))
    [ $attempts -gt 0 ]
    sleep 0.1
done
"#;

#[test]
fn an_interrupted_installation_leaves_no_setting() {
    if !can_hide_postgresql() || !Path::new("/etc/postgresql-common").exists() {
        return leave_out("an interrupted installation", "it needs root, unshare and PostgreSQL");
    }
    let folder = temp_dir();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let apt_get = folder.path().join("apt-get");
    for signal in ["HUP", "INT", "QUIT", "TERM"] {
        // Instead of an installation, the signal comes, once the setting is there.
        let is_set = "grep -q false /etc/postgresql-common/createcluster.d/*";
        fs::write(&apt_get, format!("#!/bin/sh\n{is_set} && kill -s {signal} 0\n")).unwrap();
        fs::set_permissions(&apt_get, Permissions::from_mode(0o755)).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/with-postgres");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-euc", BARE, "sh"]).arg(folder.path());
        command.args(["sh", "-euc", INTERRUPT, "sh"]).arg(script);
        command.env_remove("JOBCTL_TEST_DATABASE_URL").env_remove("PG_BIN");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{signal}: {output:?}");
    }
}

/// If a script has no trap for a signal, the signal ends the script without its trap for EXIT.
#[test]
fn every_script_that_cleans_up_does_so_after_a_signal() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut scripts = 0;
    for folder in [".ci", "tests", "packaging", "examples", "benches/peers"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let traps = |signal: &str| {
                let mut lines = text.lines().map(str::trim);
                lines.any(|line| {
                    line.starts_with("trap ") && line.split(' ').any(|word| word == signal)
                })
            };
            // A script that cleans up at its end.
            if text.starts_with("#!/bin/sh") && traps("EXIT") {
                scripts += 1;
                for signal in ["HUP", "INT", "TERM"] {
                    assert!(traps(signal), "{}: {signal}", path.display());
                }
            }
        }
    }
    // Otherwise, the test looks in the wrong place.
    assert!(scripts > 5, "{scripts}");
}

#[test]
fn missing_programs_are_installed_quietly_or_the_error_names_the_package() {
    if !can_hide_postgresql() {
        return leave_out(
            "the installation of PostgreSQL",
            "it needs root, unshare and /usr/lib/postgresql",
        );
    }
    let folder = temp_dir();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    };
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let script = file("with-postgres", include_str!("with-postgres"));
    file("sudo", "#!/bin/sh\nexit 1\n");
    let run = |before: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-euc", BARE, "sh"])
            .arg(folder.path())
            .args(before)
            .arg(&script)
            .arg("true");
        command.env_remove("JOBCTL_TEST_DATABASE_URL").env_remove("PG_BIN");
        let output = command.output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let installs =
        "with-postgres: PostgreSQL's server programs are missing; running: apt-get install --yes";
    let fails = "with-postgres: cannot find PostgreSQL's server programs initdb, pg_ctl and \
        postgres; run as an administrator: apt-get install --yes --no-install-recommends \
        postgresql; or";

    // The installation succeeds, but brings no programs.
    file("apt-get", "#!/bin/sh\necho \"Unpacking $*\"\n");
    let stderr = run(&[]);
    assert!(
        stderr.starts_with(installs) && stderr.contains(fails) && !stderr.contains("Unpacking"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 2, "{stderr}");

    // The installation fails.
    file("apt-get", "#!/bin/sh\necho \"E: no $1\" >&2\nexit 100\n");
    let stderr = run(&[]);
    assert!(
        stderr.starts_with(installs)
            && stderr.contains("\nE: no update\n")
            && stderr.contains(fails),
        "{stderr}"
    );

    // Without root, and with a `sudo` that fails, nothing is installed.
    let stderr = run(&["setpriv", "--reuid=nobody", "--clear-groups"]);
    assert!(stderr.starts_with(fails), "{stderr}");
}
