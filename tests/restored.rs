//! A tick notices that its database is older than a tick before has seen it, as after the restore
//! of a backup. It starts nothing until an operator accepts the database.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::drill::program;
use crate::restore::{pg_dump_version, restore, run};
use crate::support::{Finished, Gate, Invocation, Role, TestDb, server, temp_dir, wait_until};

/// A host with its own state folder, whose worker ticked a day ago.
struct Host {
    worker: &'static str,
    state: TempDir,
}

impl Host {
    fn new(db: &TestDb, worker: &'static str) -> Self {
        db.execute(&format!(
            "INSERT INTO jobctl.job_workers (worker, version, last_tick_at)
             VALUES ('{worker}', '0.1.0', now() - interval '1 day')"
        ));
        Self { worker, state: temp_dir() }
    }

    fn command<'db>(&self, db: &'db TestDb) -> Invocation<'db> {
        let command = db.jobctl(["tick", "--worker", self.worker]);
        command.env("XDG_STATE_HOME", self.state.path().to_str().unwrap())
    }

    fn tick(&self, db: &TestDb) -> Finished {
        self.command(db).run()
    }

    fn notes(&self) -> PathBuf {
        self.state.path().join("jobctl")
    }

    fn note(&self) -> PathBuf {
        let mut notes = fs::read_dir(self.notes()).unwrap().map(|note| note.unwrap().path());
        let note = notes.next().unwrap();
        assert_eq!(notes.next(), None);
        note
    }
}

/// Moves the last ticks of all workers back to this age, so the database looks like a backup of
/// that time.
fn set_last_ticks_of_database(db: &TestDb, age: &str) {
    db.execute(&format!(
        "UPDATE jobctl.job_workers
         SET last_tick_at = now() - interval '{age}', previous_tick_at = NULL"
    ));
}

const LOST: &str = "jobctl: cannot start runs: the database is older than a tick has seen it";
const REMEDY: &str = ", as after a restore; cancel the runs whose work is done, then accept the \
    rest: as an operator, `jobctl accept-restore`";

/// Asserts that a tick starts no run, because the database is an older one.
#[track_caller]
fn assert_starts_nothing(tick: Finished) {
    tick.exits(7).complains_once().stderr_has(LOST).stderr_has(REMEDY);
}

#[test]
fn no_blocked_run_is_released_before_an_operator_accepts_a_restore() {
    let db = TestDb::new();
    let first = db.enqueue(["shell", "--", "true"]);
    let follower = db.enqueue(["shell", "--after", &first.to_string(), "--", "true"]);
    // Only the release of the follower is left to do.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'succeeded', finished_at = now() WHERE id = {first};
         UPDATE jobctl.job_dependencies SET state = 'due'"
    ));
    db.execute("INSERT INTO jobctl.job_events (action, detail) VALUES ('restore', 'worker web1')");
    assert_starts_nothing(db.jobctl(["tick", "--worker", "web9"]).run());
    assert_eq!(db.status(follower), "blocked");
    db.jobctl(["accept-restore"]).run().success();
    db.jobctl(["tick", "--worker", "web9"]).run().success();
    assert_eq!(db.status(follower), "succeeded");
}

#[test]
fn a_tick_for_one_run_starts_nothing_in_a_restored_database() {
    let db = TestDb::new();
    let web = Host::new(&db, "web1");
    let id = db.enqueue(["shell", "--", "true"]);
    web.command(&db).args(["--limit", "1"]).run().success();
    let other = db.enqueue(["shell", "--", "true"]);
    set_last_ticks_of_database(&db, "2 days");
    assert_starts_nothing(web.command(&db).args(["--run", &other.to_string()]).run());
    assert_eq!([id, other].map(|id| db.status(id)), ["succeeded", "queued"]);
    db.jobctl(["accept-restore"]).run().success();
    web.command(&db).args(["--run", &other.to_string()]).run().success();
    assert_eq!(db.status(other), "succeeded");
}

/// Any worker may notice a restore, so its login can also make one up.
#[test]
fn a_restore_event_that_a_worker_writes_stops_all_hosts_until_an_operator_accepts_it() {
    let db = TestDb::new();
    let [one, other, operator] =
        ["worker", "worker", "operator"].map(|part| Role::granted(&db, part));
    let stop = "INSERT INTO jobctl.job_events (action) VALUES ('restore')";
    one.client().batch_execute(stop).unwrap();
    db.enqueue(["shell", "--", "true"]);
    assert_starts_nothing(other.jobctl(["tick", "--worker", "web9"]).run());
    operator.jobctl(["accept-restore"]).run().success();
    other.jobctl(["tick", "--worker", "web9"]).run().success();
    let events = "SELECT recorded_by FROM jobctl.job_events WHERE action = 'restore'";
    assert_eq!(db.query(events), one.name());
}

#[test]
fn ticks_start_nothing_after_a_restore_until_an_operator_accepts_it() {
    if pg_dump_version() < server::major() {
        return;
    }
    let db = TestDb::new();
    let hosts = ["web1", "web2"].map(|worker| Host::new(&db, worker));
    let folder = temp_dir();
    let receipts = folder.path().join("receipts");
    let charge = format!("echo charged >>{}", receipts.display());
    let receipts = || fs::read_to_string(&receipts).unwrap_or_default();
    db.apply("[jobs.hourly]\nshell = 'true'\nschedule = '0 * * * *'\n");
    let paid = db.enqueue_script(&charge);
    let lost = db.enqueue(["shell", "--", "true"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'web1',
             started_at = now() - interval '1 day', locked_until = now() - interval '1 day'
         WHERE id = {lost};
         UPDATE jobctl.job_definitions SET next_run_at = date_trunc('hour', now())"
    ));
    let backup = folder.path().join("backup");
    run(Command::new(program("pg_dump")).arg("--file").arg(&backup).arg(db.url()));
    set_last_ticks_of_database(&db, "15 minutes");
    hosts.iter().for_each(|host| drop(host.tick(&db).success()));
    assert_eq!(db.status(paid), "succeeded");
    assert_eq!(receipts(), "charged\n");
    db.execute("DROP SCHEMA jobctl CASCADE");
    restore("plain", &backup, &db);

    let rows = "SELECT string_agg(run::text, '') FROM (SELECT * FROM jobctl.job_runs ORDER BY id)
        AS run";
    let restored = db.query(rows);
    assert_starts_nothing(hosts[0].tick(&db));
    // From now on, the event stops all hosts, with or without notes.
    hosts.iter().for_each(|host| assert_starts_nothing(host.tick(&db)));
    assert_starts_nothing(db.jobctl(["tick", "--worker", "web3"]).env("XDG_STATE_HOME", "").run());
    assert_eq!(db.query(rows), restored);
    assert_eq!(receipts(), "charged\n");
    let events = "SELECT action, host_user IS NULL, reason, detail FROM jobctl.job_events
        WHERE action LIKE '%restore' ORDER BY id";
    assert_eq!(db.query(events), "restore|t||worker web1");
    let remedy = "(noticed by worker web1); cancel the runs whose work is done, then accept the \
        rest: `jobctl accept-restore`";
    let check = db.jobctl(["check"]).run().exits(1);
    check
        .stdout_has("the database was restored, so ticks start nothing, since ")
        .stdout_has(remedy);
    // The hosts tick, and recover nothing by design.
    let check = db.jobctl(["check"]).run().exits(1);
    check.prints_nowhere("no worker ticks").prints_nowhere("expired lease");
    let doctor = db.jobctl(["doctor"]).run().exits(1);
    let doctor = doctor.stdout_has("unknown\tqueues\tnot checked while ticks start nothing");
    doctor.stdout_has("bad\trestores\tthe database was restored, so ticks start nothing\t");

    db.jobctl(["cancel", &paid.to_string()]).run().success();
    let operator = Role::granted(&db, "operator");
    let accept = operator.jobctl(["accept-restore", "--reason", "paid ones are cancelled"]);
    let accepted = accept.run().success().stdout("accepted\n").complains_once();
    let owner = "new runs can get the ids of lost runs, and so their keys, such as jobctl-run-17; \
        as the schema's owner, ";
    let setval = "setval('jobctl.job_runs_id_seq', nextval('jobctl.job_runs_id_seq') + 1000000)";
    accepted.stderr_has(owner).stderr_has(setval);
    hosts.iter().for_each(|host| drop(host.tick(&db).success()));
    assert_eq!(db.status(lost), "failed", "recovered");
    assert_eq!(db.status(paid), "cancelled");
    assert_eq!(receipts(), "charged\n");
    let accepted = "restore|t||worker web1\naccept-restore|f|paid ones are cancelled|";
    assert_eq!(db.query(events), accepted);
    db.jobctl(["check"]).run().prints_nowhere("restore");
    db.jobctl(["doctor"]).run().stdout_has("ok\trestores\t");
}

#[test]
fn a_second_restore_needs_to_be_accepted_again() {
    let db = TestDb::new();
    let host = Host::new(&db, "web1");
    for age in ["1 day", "2 days"] {
        set_last_ticks_of_database(&db, "15 minutes");
        host.tick(&db).success();
        // An earlier backup does not have the event.
        db.execute("DELETE FROM jobctl.job_events");
        set_last_ticks_of_database(&db, age);
        assert_starts_nothing(host.tick(&db));
        db.jobctl(["accept-restore"]).run().success();
        host.tick(&db).success();
        // An event of the time before the ticks that were lost.
        db.execute("UPDATE jobctl.job_events SET recorded_at = now() - interval '1 hour'");
        set_last_ticks_of_database(&db, age);
        assert_starts_nothing(host.tick(&db));
        let restores = "SELECT count(*) FROM jobctl.job_events WHERE action = 'restore'";
        assert_eq!(db.query(restores), "2");
        db.jobctl(["accept-restore"]).run().success().stderr("");
    }
    // The ids of runs that this database lacks have been used.
    assert!(db.enqueue(["shell", "--", "true"]) > 4_000_000);
}

#[test]
fn a_restore_that_no_tick_has_noticed_is_accepted_only_with_yes() {
    let db = TestDb::new();
    let refused = db.jobctl(["accept-restore", "--reason", "what does it do?"]).run().exits(4);
    refused.stdout("").stderr(
        "jobctl: cannot accept a restore: no tick has noticed one; after a restore while no tick \
         ran, or a failover that lost runs, add --yes\n",
    );
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_events"), "0");
    assert_eq!(db.enqueue(["shell", "--", "true"]), 1, "no id is skipped");
    let failover = db.jobctl(["accept-restore", "--yes", "--reason", "failover at 03:10"]).run();
    failover.success().stdout("accepted\n").stderr("");
    assert!(db.enqueue(["shell", "--", "true"]) > 1_000_000);
    assert_eq!(
        db.query("SELECT action, reason FROM jobctl.job_events"),
        "accept-restore|failover at 03:10"
    );
}

#[test]
fn a_corrected_clock_of_the_database_stops_no_other_host_of_the_worker() {
    let db = TestDb::new();
    let away = Host::new(&db, "web1");
    let there = Host { worker: "web1", state: temp_dir() };
    set_last_ticks_of_database(&db, "15 minutes");
    away.tick(&db).success();
    let later = |time: &str| {
        db.execute(&format!(
            "UPDATE jobctl.job_workers SET
                 last_tick_at = last_tick_at + interval '{time}',
                 previous_tick_at = previous_tick_at + interval '{time}'"
        ));
    };
    // The clock was two hours ahead, and is set back.
    later("2 hours");
    for _ in 0..2 {
        there.tick(&db).success();
    }
    // Two hours pass.
    later("-2 hours");
    away.tick(&db).success();
    there.tick(&db).success();
    // A backup from before both ticks is still noticed.
    set_last_ticks_of_database(&db, "1 day");
    assert_starts_nothing(away.tick(&db));
}

#[test]
fn a_failover_that_lost_ten_minutes_stops_no_tick() {
    let db = TestDb::new();
    let host = Host::new(&db, "web1");
    // The host has ticked once, so what it has seen before is unknown.
    db.execute("DELETE FROM jobctl.job_workers");
    host.tick(&db).success();
    set_last_ticks_of_database(&db, "9 minutes");
    host.tick(&db).success();
    set_last_ticks_of_database(&db, "11 minutes");
    assert_starts_nothing(host.tick(&db));
    // A host that ticks every hour loses its last tick.
    let db = TestDb::new();
    let host = Host::new(&db, "web2");
    set_last_ticks_of_database(&db, "1 hour");
    host.tick(&db).success();
    set_last_ticks_of_database(&db, "1 hour");
    host.tick(&db).success();
    set_last_ticks_of_database(&db, "61 minutes");
    assert_starts_nothing(host.tick(&db));
}

#[test]
fn a_worker_that_the_backup_does_not_know_starts_nothing_unless_it_was_forgotten() {
    let db = TestDb::new();
    let host = Host::new(&db, "web1");
    set_last_ticks_of_database(&db, "15 minutes");
    host.tick(&db).success();
    db.jobctl(["forget", "web1"]).run().success();
    host.tick(&db).success();
    db.execute("DELETE FROM jobctl.job_workers; DELETE FROM jobctl.job_events");
    db.jobctl(["tick", "--worker", "web2"]).run().success();
    db.execute("INSERT INTO jobctl.job_events (action, detail) VALUES ('forget', 'worker web2')");
    assert_starts_nothing(host.tick(&db));
    assert_eq!(db.query("SELECT worker FROM jobctl.job_workers"), "web2");
}

#[test]
fn a_new_database_stops_no_tick() {
    let db = TestDb::new();
    let host = Host::new(&db, "web1");
    set_last_ticks_of_database(&db, "15 minutes");
    host.tick(&db).success();
    db.execute("DROP SCHEMA jobctl CASCADE");
    db.jobctl(["migrate"]).run().success();
    host.tick(&db).success();
    set_last_ticks_of_database(&db, "15 minutes");
    assert_starts_nothing(host.tick(&db));
}

#[test]
fn a_lingering_tick_stops_without_a_state_folder() {
    let db = TestDb::new();
    let tick = db.jobctl(["tick", "--linger", "--lease", "3s", "--worker", "web1"]).spawn();
    wait_until("the tick", || db.query("SELECT count(*) FROM jobctl.job_workers") == "1");
    set_last_ticks_of_database(&db, "11 minutes");
    assert_starts_nothing(tick.wait());
}

#[test]
fn a_missing_or_unreadable_state_folder_stops_no_tick() {
    let db = TestDb::new();
    let host = Host::new(&db, "web1");
    set_last_ticks_of_database(&db, "15 minutes");
    host.tick(&db).success();
    let (notes, note) = (host.notes(), host.note());
    fs::write(&note, "{\"ticks\": [").unwrap();
    set_last_ticks_of_database(&db, "1 day");
    host.tick(&db).success().prints_nowhere("cannot");
    // The broken note was replaced.
    set_last_ticks_of_database(&db, "2 days");
    assert_starts_nothing(host.tick(&db));
    db.jobctl(["accept-restore"]).run().success();
    fs::remove_file(&note).unwrap();
    fs::set_permissions(&notes, Permissions::from_mode(0o777)).unwrap();
    host.tick(&db).success().prints_nowhere("cannot");
    fs::remove_dir_all(&notes).unwrap();
    fs::write(&notes, "").unwrap();
    set_last_ticks_of_database(&db, "2 days");
    host.tick(&db).success().prints_nowhere("cannot");
    let homeless = db.jobctl(["tick"]).env("XDG_STATE_HOME", "").env("HOME", "/dev/null");
    homeless.run().success().prints_nowhere("cannot");
}

#[test]
fn a_quiet_tick_says_once_an_hour_that_it_starts_nothing() {
    let db = TestDb::new();
    let host = Host::new(&db, "web1");
    set_last_ticks_of_database(&db, "15 minutes");
    host.tick(&db).success();
    set_last_ticks_of_database(&db, "1 day");
    let quiet = || host.command(&db).args(["--quiet"]).run().exits(7);
    quiet().complains_once().stderr_has("repeated after an hour at the earliest");
    quiet().stderr("");
}

#[test]
fn a_tick_that_ends_late_keeps_the_notes_of_a_later_one() {
    let db = TestDb::new();
    let (host, gate) = (Host::new(&db, "web1"), Gate::new());
    gate.enqueue(&db);
    // This tick has claimed its only run, so it does not wake again.
    let early = host.command(&db).args(["--limit", "1"]).spawn();
    gate.wait_for_starts(1);
    let is_free = "SELECT claiming_tick IS NULL FROM jobctl.job_workers";
    wait_until("the tick to claim nothing more", || db.query(is_free) == "t");
    host.tick(&db).success();
    let later = fs::read_to_string(host.note()).unwrap();
    gate.open();
    early.wait().success();
    assert_eq!(fs::read_to_string(host.note()).unwrap(), later);
}

/// A load test removes its workers. A note about them would make the next one miss them.
#[test]
fn a_load_test_keeps_no_notes() {
    let (db, state) = (TestDb::new(), temp_dir());
    let load = db.jobctl(["load", "--runs", "1"]);
    load.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run().success();
    assert!(!state.path().join("jobctl").exists());
}

/// Creates a file that was last changed this many days ago.
fn create_file_of_age(file: &Path, days: u64) {
    File::create(file).unwrap();
    let modified = SystemTime::now() - Duration::from_secs(days * 86_400);
    File::open(file).unwrap().set_times(FileTimes::new().set_modified(modified)).unwrap();
}

#[test]
fn notes_that_no_tick_has_written_for_long_are_deleted() {
    let db = TestDb::new();
    let host = Host::new(&db, "web1");
    fs::create_dir_all(host.notes()).unwrap();
    let [old, new] = ["old", "new"].map(|name| host.notes().join(name));
    create_file_of_age(&old, 101);
    create_file_of_age(&new, 99);
    host.tick(&db).success();
    assert!(!old.exists());
    assert!(new.exists());
}
