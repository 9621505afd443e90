//! The files that jobctl reads and writes, in folders that another user can write, too.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::time::Duration;

use crate::support::{Finished, TestDb, jobctl, leave_out, temp_dir};

/// Another user than the one that runs the tests.
const OTHER: u32 = 65534;

fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        leave_out(what, "a change of owner needs root");
    }
    is_root
}

fn own_by_other(path: &Path, mode: u32) {
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
    for (given, kept) in [(0o7777, 0o666), (0o4755, 0o644), (0o600, 0o600), (0o2640, 0o640)] {
        fs::write(&page, "old").unwrap();
        fs::set_permissions(&page, Permissions::from_mode(given)).unwrap();
        write();
        assert_eq!(mode(&page), kept, "{given:o}");
    }
    if is_root("the permissions of another user's file") {
        for given in [0o4777, 0o666, 0o600] {
            fs::write(&page, "old").unwrap();
            own_by_other(&page, given);
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
    // Without an archive, nothing may be deleted.
    let refuses = |name: &str, why: &str| {
        let file = path(name);
        let refused = prune(name).exits(1).complains_once().stdout("");
        refused.stderr_has(&format!("cannot open {}: {why}", file.display()));
        assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1", "{name}");
    };
    make_fifo(&path("pipe"));
    refuses("pipe", "it is not a plain file");
    refuses(".", "it is not a plain file");
    fs::write(path("own"), "").unwrap();
    fs::set_permissions(path("own"), Permissions::from_mode(0o666)).unwrap();
    refuses("own", "another user can write to it");
    fs::set_permissions(path("own"), Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(path("own"), path("second")).unwrap();
    refuses("second", "it has a second name");
    fs::remove_file(path("second")).unwrap();
    if is_root("an archive of another user") {
        fs::write(path("foreign"), "").unwrap();
        own_by_other(&path("foreign"), 0o644);
        refuses("foreign", "another user can write to it");
        symlink("own", path("link")).unwrap();
        lchown(path("link"), Some(OTHER), None).unwrap();
        let link = format!("{} is a link of another user; ", path("link").display());
        refuses("link", &link);
        assert_eq!(fs::read_to_string(path("foreign")).unwrap(), "");
    }
    // A link of the user itself is followed.
    symlink("own", path("own link")).unwrap();
    prune("own link").success();
    assert!(fs::read_to_string(path("own")).unwrap().contains("s3cret"));
}

/// Runs `check --repeat` or `tick --quiet`, which keep notes in a folder of the user.
fn with_state(db: Option<&TestDb>, state: &Path) -> Finished {
    let command = match db {
        Some(db) => db.jobctl(["check", "--repeat", "1h"]),
        None => jobctl(["tick", "--quiet", "--database-url", "postgresql://127.0.0.1:1/none"]),
    };
    command
        .env("XDG_STATE_HOME", state.to_str().unwrap())
        .spawn()
        .wait_within(Duration::from_secs(20))
}

/// `check` and `tick` note what they have reported, so that they do not repeat it. Another user who
/// could write such a note could hide a problem, and a link could lead anywhere. Without a safe
/// place, they report each time.
#[test]
fn notes_are_kept_only_where_no_other_user_can_write() {
    let db = TestDb::new();
    db.execute(
        "UPDATE jobctl.schema_migrations SET applied_at = now() - interval '1 day';
        INSERT INTO jobctl.job_runs (job_type, payload, run_at, created_at)
        SELECT 'shell', '{\"command\": \"true\"}', at, at
        FROM (SELECT now() - interval '1 day') AS old (at)",
    );
    let prints_each_time = |what: &str, state: &Path| {
        for _ in 0..2 {
            let check = with_state(Some(&db), state).exits(1).stdout_has("new: ");
            check.complains_once().stderr_has("cannot write ");
            let tick = with_state(None, state).exits(5).complains_once();
            tick.prints_nowhere("; repeated after an hour");
        }
        let kept = state.join("jobctl");
        let is_folder = fs::symlink_metadata(&kept).is_ok_and(|seen| seen.is_dir());
        assert!(!is_folder || fs::read_dir(kept).unwrap().count() == 0, "{what}");
    };
    let state = temp_dir();
    let kept = state.path().join("jobctl");
    fs::create_dir(&kept).unwrap();
    fs::set_permissions(&kept, Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(kept.join("said")).unwrap();
    fs::set_permissions(kept.join("said"), Permissions::from_mode(0o777)).unwrap();
    // All users may write to the folder.
    with_state(Some(&db), state.path()).exits(1).stderr_has("another user can write to the folder");
    with_state(None, state.path()).exits(5).prints_nowhere("; repeated after an hour");
    if !is_root("notes in a folder of another user") {
        return;
    }
    // The folder is of another user.
    let state = temp_dir();
    fs::create_dir(state.path().join("jobctl")).unwrap();
    own_by_other(&state.path().join("jobctl"), 0o755);
    let check = with_state(Some(&db), state.path()).exits(1).stdout_has("new: ");
    check.complains_once().stderr_has("another user can write to the folder");
    // The folder is a link of another user: nothing is written to where it leads.
    let elsewhere = temp_dir();
    let state = temp_dir();
    symlink(elsewhere.path(), state.path().join("jobctl")).unwrap();
    lchown(state.path().join("jobctl"), Some(OTHER), None).unwrap();
    prints_each_time("a link of another user", state.path());
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_note_that_is_a_link_or_a_pipe_is_not_read() {
    let (db, state) = (TestDb::new(), temp_dir());
    db.execute(
        "UPDATE jobctl.schema_migrations SET applied_at = now() - interval '1 day';
        INSERT INTO jobctl.job_runs (job_type, payload, run_at, created_at)
        SELECT 'shell', '{\"command\": \"true\"}', at, at
        FROM (SELECT now() - interval '1 day') AS old (at)",
    );
    with_state(Some(&db), state.path()).exits(1).stdout_has("new: ").stderr("");
    with_state(Some(&db), state.path()).exits(1).stdout("").stderr("");
    let kept = state.path().join("jobctl");
    let note = fs::read_dir(&kept).unwrap().next().unwrap().unwrap().path();
    let text = fs::read(&note).unwrap();
    let elsewhere = state.path().join("elsewhere");
    fs::write(&elsewhere, &text).unwrap();
    fs::remove_file(&note).unwrap();
    symlink(&elsewhere, &note).unwrap();
    with_state(Some(&db), state.path()).exits(1).stdout_has("new: ");
    fs::remove_file(&note).unwrap();
    make_fifo(&note);
    let check = with_state(Some(&db), state.path()).exits(1).stdout_has("new: ");
    check.complains_once().stderr_has("it is not a plain file");
}

/// Commands that read a file, before its name.
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
    let pipe = pipe.to_str().unwrap();
    let url = db.url();
    for (address, why) in [
        (format!("{url}?sslmode=verify-full&host=127.0.0.1&sslrootcert={pipe}"), "sslrootcert"),
        (format!("{url}?sslmode=require&host=127.0.0.1&sslcert={pipe}&sslkey={pipe}"), "ssl"),
        (format!("service=s servicefile={pipe}"), "it is not a plain file"),
    ] {
        let list = jobctl(["list", "--database-url", &address]).spawn();
        let refused = list.wait_within(Duration::from_secs(20)).exits(7).complains_once();
        refused.stderr_has(why).stderr_has("it is not a plain file");
    }
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
    let refused = db.jobctl(["apply", "-"]).stdin(jobs(60, "1")).run().exits(2).stdout("");
    assert_eq!(refused.stderr.lines().count(), 51, "{refused}");
    refused.stderr_has(":100: job `j49`: ").stderr_has("cannot apply: -: 10 more mistakes");
}
