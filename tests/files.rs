//! The files that jobctl reads and writes, in folders that another user can write, too.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::time::Duration;

use crate::support::{Finished, Invocation, TestDb, jobctl, leave_out, temp_dir};

/// Another user than the one that runs the tests.
const OTHER: u32 = 65534;

/// Returns whether the tests run as root. Otherwise this part of a test is reported as left out.
fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        leave_out(what, "a change of owner needs root");
    }
    is_root
}

fn give_to_other_user(path: &Path, mode: u32) {
    chown(path, Some(OTHER), Some(OTHER)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn make_fifo(path: &Path) {
    let mode = rustix::fs::Mode::from(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_replaced_file_lends_neither_special_permissions_nor_those_of_another_user() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let page = folder.path().join("jobs.html");
    let write = || {
        let page = page.to_str().unwrap();
        let report = db.jobctl(["report", "-o", page]).after("umask 022");
        report.run().success();
    };
    // The mode of the old file, and the mode of its replacement.
    for (given, kept) in [(0o7777, 0o666), (0o4755, 0o644), (0o600, 0o600), (0o2640, 0o640)] {
        fs::write(&page, "old").unwrap();
        fs::set_permissions(&page, Permissions::from_mode(given)).unwrap();
        write();
        assert_eq!(mode(&page), kept, "{given:o}");
    }
    if is_root("the permissions of another user's file") {
        // If the old file is of another user, only the umask decides the mode.
        for given in [0o4777, 0o666, 0o600] {
            fs::write(&page, "old").unwrap();
            give_to_other_user(&page, given);
            write();
            let owner = fs::metadata(&page).unwrap().uid();
            assert_eq!(mode(&page), 0o644, "{given:o}");
            assert_eq!(owner, 0, "{given:o}");
        }
    }
}

#[test]
fn prune_writes_an_archive_only_into_a_plain_file_of_its_own_user() {
    let (db, folder) = (TestDb::new(), temp_dir());
    // By default, `prune` deletes succeeded runs after 30 days.
    db.execute(
        "INSERT INTO jobctl.job_runs
            (job_type, payload, status, run_at, created_at, started_at, finished_at, attempts)
        SELECT 'shell', '{\"command\": \"s3cret\"}', 'succeeded', at, at, at, at, 1
        FROM (SELECT now() - interval '40 days') AS old (at)",
    );
    let path = |name: &str| folder.path().join(name);
    let prune = |name: &str| {
        let file = path(name);
        db.jobctl(["prune", "--yes", "--archive", file.to_str().unwrap()]).run()
    };
    let assert_refused_and_run_kept = |name: &str, why: &str| {
        let file = path(name);
        let refused = prune(name).exits(1).complains_once().stdout("");
        refused.stderr_has(&format!("cannot open {}: {why}", file.display()));
        assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1", "{name}");
    };
    // A pipe, and a folder.
    make_fifo(&path("pipe"));
    assert_refused_and_run_kept("pipe", "it is not a plain file");
    assert_refused_and_run_kept(".", "it is not a plain file");

    // A file that all users can write, and a file with two hard links.
    fs::write(path("own"), "").unwrap();
    fs::set_permissions(path("own"), Permissions::from_mode(0o666)).unwrap();
    assert_refused_and_run_kept("own", "another user can write to it");
    fs::set_permissions(path("own"), Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(path("own"), path("second")).unwrap();
    assert_refused_and_run_kept("second", "it has a second name");
    fs::remove_file(path("second")).unwrap();

    // A file and a link of another user.
    if is_root("an archive of another user") {
        fs::write(path("foreign"), "").unwrap();
        give_to_other_user(&path("foreign"), 0o644);
        assert_refused_and_run_kept("foreign", "another user can write to it");
        symlink("own", path("link")).unwrap();
        lchown(path("link"), Some(OTHER), None).unwrap();
        let link = format!("{} is a link of another user; ", path("link").display());
        assert_refused_and_run_kept("link", &link);
        assert_eq!(fs::read_to_string(path("foreign")).unwrap(), "");
    }

    // A link of the user itself is followed.
    symlink("own", path("own link")).unwrap();
    prune("own link").success();
    assert!(fs::read_to_string(path("own")).unwrap().contains("s3cret"));
}

/// Creates a database with an overdue run and without a tick: `check` reports problems.
fn db_with_problems() -> TestDb {
    let db = TestDb::new();
    db.execute(
        "UPDATE jobctl.schema_migrations SET applied_at = now() - interval '1 day';
        INSERT INTO jobctl.job_runs (job_type, payload, run_at, created_at)
        SELECT 'shell', '{\"command\": \"true\"}', at, at
        FROM (SELECT now() - interval '1 day') AS old (at)",
    );
    db
}

/// Runs a command that keeps its notes in this folder.
fn run_with_state(command: Invocation<'_>, state: &Path) -> Finished {
    let command = command.env("XDG_STATE_HOME", state.to_str().unwrap());
    command.spawn().wait_within(Duration::from_secs(20))
}

/// Runs `check --repeat`, which notes the problems that it printed.
fn check_with_state(db: &TestDb, state: &Path) -> Finished {
    run_with_state(db.jobctl(["check", "--repeat", "1h"]), state)
}

/// Runs `tick --quiet` without a database. It notes that it complained.
fn failing_tick_with_state(state: &Path) -> Finished {
    let no_database = "postgresql://127.0.0.1:1/none";
    run_with_state(jobctl(["tick", "--quiet", "--database-url", no_database]), state)
}

/// `check` and `tick` note what they have reported, so that they do not repeat it. Another user who
/// could write such a note could hide a problem, and a link could lead anywhere. Without a safe
/// place, they report each time.
#[test]
fn notes_are_kept_only_where_no_other_user_can_write() {
    let db = db_with_problems();
    // All users may write to the folders of `check` and of `tick`.
    let state = temp_dir();
    let check_notes = state.path().join("jobctl");
    let tick_notes = check_notes.join("said");
    for folder in [&check_notes, &tick_notes] {
        fs::create_dir(folder).unwrap();
        fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
    }
    let check = check_with_state(&db, state.path()).exits(1);
    check.stderr_has("another user can write to the folder");
    failing_tick_with_state(state.path()).exits(5).prints_nowhere("; repeated after an hour");
    if !is_root("notes in a folder of another user") {
        return;
    }

    // The folder is of another user.
    let state = temp_dir();
    fs::create_dir(state.path().join("jobctl")).unwrap();
    give_to_other_user(&state.path().join("jobctl"), 0o755);
    let check = check_with_state(&db, state.path()).exits(1).stdout_has("new: ");
    check.complains_once().stderr_has("another user can write to the folder");

    // The folder is a link of another user: both commands report each time, and nothing is written
    // to where the link leads.
    let elsewhere = temp_dir();
    let state = temp_dir();
    symlink(elsewhere.path(), state.path().join("jobctl")).unwrap();
    lchown(state.path().join("jobctl"), Some(OTHER), None).unwrap();
    for _ in 0..2 {
        let check = check_with_state(&db, state.path()).exits(1).stdout_has("new: ");
        check.complains_once().stderr_has("cannot write ");
        let tick = failing_tick_with_state(state.path()).exits(5).complains_once();
        tick.prints_nowhere("; repeated after an hour");
    }
    assert!(fs::symlink_metadata(state.path().join("jobctl")).unwrap().is_symlink());
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_note_that_is_a_link_or_a_pipe_is_not_read() {
    let (db, state) = (db_with_problems(), temp_dir());
    // The first check writes the note. The second one reads it, so no problem is new.
    check_with_state(&db, state.path()).exits(1).stdout_has("new: ").stderr("");
    check_with_state(&db, state.path()).exits(1).stdout("").stderr("");
    let notes = state.path().join("jobctl");
    let note = fs::read_dir(&notes).unwrap().next().unwrap().unwrap().path();

    // A link to the same text. The problems are new again, so the text was not read.
    let elsewhere = state.path().join("elsewhere");
    fs::copy(&note, &elsewhere).unwrap();
    fs::remove_file(&note).unwrap();
    symlink(&elsewhere, &note).unwrap();
    check_with_state(&db, state.path()).exits(1).stdout_has("new: ");

    // A named pipe.
    fs::remove_file(&note).unwrap();
    make_fifo(&note);
    let check = check_with_state(&db, state.path()).exits(1).stdout_has("new: ");
    check.complains_once().stderr_has("it is not a plain file");
}

/// Commands that read a file. Its name follows as the last argument.
const READERS: [&[&str]; 5] = [
    &["apply"],
    &["apply", "--dry-run"],
    &["import-crontab"],
    &["enqueue", "shell", "--payload-file"],
    &["enqueue", "--batch"],
];

#[test]
fn devices_and_named_pipes_are_not_read() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let pipe = folder.path().join("pipe");
    make_fifo(&pipe);
    for command in READERS {
        for file in [pipe.to_str().unwrap(), "/dev/zero", "/dev/full", "/"] {
            let read = db.jobctl(command.iter().copied()).args([file]).spawn();
            let refused = read.wait_within(Duration::from_secs(20)).exits(1).stdout("");
            refused.complains_once().stderr_has(&format!("`{file}`: it is not a plain file; "));
        }
    }

    // Addresses of a database that name the pipe. An invalid one fails, and names this.
    let pipe = pipe.to_str().unwrap();
    let url = db.url();
    for (address, named) in [
        (format!("{url}?sslmode=verify-full&host=127.0.0.1&sslrootcert={pipe}"), "sslrootcert"),
        (format!("{url}?sslmode=require&host=127.0.0.1&sslcert={pipe}&sslkey={pipe}"), "ssl"),
        (format!("service=s servicefile={pipe}"), "it is not a plain file"),
    ] {
        let list = jobctl(["list", "--database-url", &address]).spawn();
        let refused = list.wait_within(Duration::from_secs(20)).exits(7).complains_once();
        refused.stderr_has(named).stderr_has("it is not a plain file");
    }
    // An invalid PGPASSFILE is only a warning.
    let list = db.jobctl(["list"]).env("PGPASSFILE", pipe).spawn();
    list.wait_within(Duration::from_secs(20)).success().stderr_has("it is not a plain file");
}

#[test]
fn a_file_is_read_up_to_a_limit() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let file = folder.path().join("large");
    let large = fs::File::create(&file).unwrap();
    // A sparse file of 1 TiB: a command that reads it whole needs more than the 4 GB that prlimit
    // leaves.
    large.set_len(1 << 40).unwrap();
    for command in READERS {
        for name in [file.to_str().unwrap(), "-", "/dev/stdin"] {
            let command = command.join(" ");
            let script =
                format!("exec prlimit --as=4000000000 \"$jobctl\" {command} {name} <large");
            let refused = db.script(&script).current_dir(folder.path()).run().stdout("");
            refused.stderr_has("longer than").prints_nowhere("memory");
        }
    }
}

/// A shell passes a pipe for `<(COMMAND)`, whose text may come late.
#[test]
fn a_file_may_be_a_pipe() {
    let db = TestDb::new();
    let text = "[jobs.a]\nshell = \"true\"\n";
    let script = "{ cat; } | \"$jobctl\" apply /dev/fd/0";
    db.script(script).stdin(text).run().success().stdout("add\ta\n");
    db.jobctl(["apply", "-"]).stdin(text).run().success().stderr("");
}

#[test]
fn a_definitions_file_may_have_ten_thousand_jobs_and_reports_fifty_mistakes() {
    let db = TestDb::new();
    let jobs = |number: usize, command: &str| -> String {
        (0..number).map(|n| format!("[jobs.j{n}]\nshell = {command}\n")).collect()
    };
    let refused = db.jobctl(["apply", "-"]).stdin(jobs(10_001, "'true'")).run().exits(2).stdout("");
    refused.complains_once().stderr_has("-:1: more than 10,000 jobs; ");
    // The command of each of these 60 jobs is a number, which is a mistake.
    let refused = db.jobctl(["apply", "-"]).stdin(jobs(60, "1")).run().exits(2).stdout("");
    assert_eq!(refused.stderr.lines().count(), 51, "{refused}");
    refused.stderr_has(":100: job `j49`: ").stderr_has("cannot apply: -: 10 more mistakes");
}
